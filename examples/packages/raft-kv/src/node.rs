//! A node: one process with its database, its part of the protocol, and its server.

use crate::log_store::LogStore;
use crate::members::Heard;
use crate::network::Peers;
use crate::server::{App, routes};
use crate::state_machine::StateMachine;
use crate::storage::Storage;
use crate::types::{NodeId, Raft};
use crate::{log, members};
use openraft::{Config, SnapshotPolicy};
use siftdb::Options;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Entries in one message between nodes at most.
pub const ENTRIES_PER_MESSAGE: u64 = 64;

/// A follower that gets no message of a leader for this time becomes a candidate.
pub const ELECTION_TIMEOUT_MAX: Duration = Duration::from_millis(1400);

/// What a node is started with.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Its number.
    pub id: NodeId,
    /// Where it listens, as `127.0.0.1:7101`.
    pub listen: String,
    /// Its database.
    pub directory: PathBuf,
    /// Entries after which a snapshot is built and the log is purged.
    pub snapshot_after: u64,
    /// Writes without an outcome at most. Each holds its value in memory.
    pub open_proposals: u16,
}

fn config(snapshot_after: u64) -> io::Result<Config> {
    let config = Config {
        cluster_name: "raft-kv".into(),
        // Milliseconds. A follower syncs before it answers, and disks can be slow.
        heartbeat_interval: 200,
        election_timeout_min: 700,
        election_timeout_max: ELECTION_TIMEOUT_MAX.as_millis() as u64,
        install_snapshot_timeout: 60_000,
        max_payload_entries: ENTRIES_PER_MESSAGE,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(snapshot_after),
        // A node that was away for a moment gets entries, one that was away for long a snapshot.
        max_in_snapshot_log_to_keep: snapshot_after / 4,
        replication_lag_threshold: snapshot_after,
        ..Config::default()
    };
    config.validate().map_err(io::Error::other)
}

/// Runs a node until `stop` is done.
///
/// # Errors
/// The address is in use; the directory is open elsewhere, damaged or of another node; a failure
/// of the storage, after which a node must stop.
pub async fn run(options: NodeOptions, stop: impl Future<Output = ()>) -> io::Result<()> {
    let listener = TcpListener::bind(&options.listen).await.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen on {}: {error}", options.listen))
    })?;
    let storage = Arc::new(Storage::open(&options.directory, Options::new())?);
    storage.claim(options.id)?;
    log::begin(options.id);
    let log = LogStore::new(Arc::clone(&storage));
    let machine = StateMachine::open(Arc::clone(&storage))?;
    let config = Arc::new(config(options.snapshot_after)?);
    let raft = Raft::new(options.id, config, Peers, log, machine).await;
    let raft = raft.map_err(io::Error::other)?;
    let (address, process) = (listener.local_addr()?, std::process::id());
    println!("node {} listens on {address}, process {process}", options.id);

    let app = App {
        id: options.id,
        raft: raft.clone(),
        storage: Arc::clone(&storage),
        heard: Arc::new(Heard::default()),
        proposals: Arc::new(Semaphore::new(options.open_proposals.into())),
        open_proposals_max: options.open_proposals.into(),
        refused: Arc::default(),
    };
    let mut metrics = raft.metrics();
    let ended = tokio::select! {
        served = axum::serve(listener, routes(app.clone())) => served,
        // These two never end. The node ends by the arm below.
        ((), ()) = async { tokio::join!(log::watch(&app), members::ask(&app)) } => Ok(()),
        failed = metrics.wait_for(|now| now.running_state.is_err()) => {
            let why = failed.map_or_else(|end| end.to_string(), |now| format!("{now:?}"));
            Err(io::Error::other(format!("the node has stopped: {why}")))
        }
        () = stop => Ok(()),
    };
    raft.shutdown().await.map_err(io::Error::other)?;
    ended.and(storage.db.close().map_err(io::Error::from))
}
