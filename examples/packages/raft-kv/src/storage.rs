//! The database of a node: one siftdb database, so one write-ahead log for everything.
//!
//! | keyspace | contents |
//! |---|---|
//! | `log` | the entries of the replicated log, by index |
//! | `raft` | records: `node`, `vote`, `committed`, `purged`, `snapshot` |
//! | `applied` | the record `state`: the last entry applied, membership, and where the data is |
//! | `data.N` | the keys and values of the clients; each installed snapshot begins a new N |
//!
//! After a power loss siftdb has a prefix of its writes, over all keyspaces. So only two kinds of
//! writes need a sync: those that another node relies on (votes and entries of the log), and those
//! after which files are deleted (snapshots). Everything else is found again in the log.

use crate::types::{LogId, Membership, NodeId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use siftdb::{Db, Filter, Keyspace, KeyspaceOptions, Options, Readable};
use std::io;
use std::path::Path;
use std::sync::{PoisonError, RwLock};
use tokio::sync::watch;

/// Where the state machine stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The last entry that was applied.
    pub last: Option<LogId>,
    /// The membership at that entry.
    pub membership: Membership,
    /// The keyspace with the data.
    pub data: String,
}

impl Default for Applied {
    fn default() -> Self {
        Applied { last: None, membership: Membership::default(), data: "data.0".into() }
    }
}

/// The snapshots that other nodes have sent since the start of this process.
#[derive(Debug, Default)]
pub struct Installs {
    /// Whether there was one.
    pub received: bool,
    /// How many are neither installed nor thrown away.
    pub pending: usize,
    /// Whether an install has failed. Nothing resets it: openraft stops the node then.
    pub failed: bool,
}

/// The open database, shared by log store, state machine and server.
#[derive(Debug)]
pub struct Storage {
    /// The database.
    pub db: Db,
    /// The entries of the log, by index.
    pub log: Keyspace,
    /// Records of the node itself.
    pub raft: Keyspace,
    /// The record `state`.
    pub applied: Keyspace,
    /// The current keyspace `data.N`. Readers hold the lock while they read: an install replaces
    /// the keyspace and then drops the old one.
    data: RwLock<Keyspace>,
    /// What a purge of the log waits for: see `LogStore::purge`.
    pub installs: watch::Sender<Installs>,
}

impl Storage {
    /// Opens or creates the database in `directory`.
    ///
    /// # Errors
    /// The failure of the database.
    pub fn open(directory: &Path, options: Options) -> io::Result<Self> {
        let db = options.open(directory)?;
        // The log is read in ranges of indexes, never by a key that may be absent: no filter.
        let scanned = KeyspaceOptions::new().filter(Filter::none());
        let log = db.keyspace_with("log", &scanned)?;
        let (raft, applied) = (db.keyspace("raft")?, db.keyspace("applied")?);
        let current = read_record::<Applied>(&applied, "state")?;
        let current = current.unwrap_or_default().data;
        let data = RwLock::new(db.keyspace(&current)?);
        // The beginning of an install that a crash ended.
        for name in db.keyspaces() {
            if name.starts_with("data.") && name != current {
                db.drop_keyspace(&name)?;
            }
        }
        let installs = watch::Sender::new(Installs::default());
        Ok(Storage { db, log, raft, applied, data, installs })
    }

    /// Ties the directory to the node `id`, when it is used for the first time.
    ///
    /// # Errors
    /// The directory is that of another node: with its votes, this one could vote twice in a term.
    pub fn claim(&self, id: NodeId) -> io::Result<()> {
        match read_record::<NodeId>(&self.raft, "node")? {
            None => Ok(self.raft.put("node", to_json(&id)?)?),
            Some(owner) if owner == id => Ok(()),
            Some(owner) => {
                let path = self.db.path().display();
                let what = format!("{path} is the directory of node {owner}, not of node {id}");
                Err(io::Error::new(io::ErrorKind::InvalidInput, what))
            }
        }
    }

    /// Where the state machine stands.
    ///
    /// # Errors
    /// The failure of the database; a record that is none.
    pub fn applied(&self) -> io::Result<Applied> {
        Ok(read_record(&self.applied, "state")?.unwrap_or_default())
    }

    /// The keyspace with the data, for the state machine, which is the only one to replace it.
    #[must_use]
    pub fn data(&self) -> Keyspace {
        self.data.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes `data` the keyspace that is read and written.
    pub fn set_data(&self, data: Keyspace) {
        *self.data.write().unwrap_or_else(PoisonError::into_inner) = data;
    }

    /// The value of a key on this node. It may be old: see `clients.rs` for what a read needs.
    ///
    /// # Errors
    /// The failure of the database; a value that is no text.
    pub fn read(&self, key: &str) -> io::Result<Option<String>> {
        let data = self.data.read().unwrap_or_else(PoisonError::into_inner);
        read_text(&*data, key)
    }
}

/// A value as text.
///
/// # Errors
/// The failure of the database; a value that is no text.
pub fn read_text(of: &impl Readable, key: &str) -> io::Result<Option<String>> {
    let value = of.get(key)?;
    value.map(|bytes| String::from_utf8(bytes.into_vec()).map_err(io::Error::other)).transpose()
}

/// A record in JSON.
///
/// # Errors
/// The failure of the database; a record that is none.
pub fn read_record<T: DeserializeOwned>(of: &impl Readable, key: &str) -> io::Result<Option<T>> {
    Ok(of.get(key)?.map(|json| serde_json::from_slice(&json)).transpose()?)
}

/// A record for the database, or a message for another node.
///
/// # Errors
/// None for the types of this service.
pub fn to_json(value: &impl Serialize) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(value)?)
}
