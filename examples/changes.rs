//! A copy in memory reads everything once, then each write as it is committed.
//!
//! Run it with `cargo run --example changes`.

use siftdb::{Change, ChangedEntry, Db, Error, Keyspace, Result};
use std::collections::BTreeMap;

/// All entries of a keyspace, in memory.
#[derive(Default)]
struct Copy {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    /// It has all changes up to this one.
    through: u64,
}

impl Copy {
    /// Reads everything at one read point.
    fn read_all(&mut self, keyspace: &Keyspace) -> Result<()> {
        let snapshot = keyspace.snapshot();
        let entry = |(key, value): (siftdb::Key, siftdb::Value)| (key.into_vec(), value.into_vec());
        self.entries = snapshot.iter().map(|found| found.map(entry)).collect::<Result<_>>()?;
        self.through = snapshot.last_sequence();
        Ok(())
    }

    fn apply(&mut self, keyspace: &Keyspace, change: Change) -> Result<()> {
        match change.entry {
            _ if change.sequence <= self.through => {}
            ChangedEntry::Put { key, value, .. } => drop(self.entries.insert(key, value)),
            ChangedEntry::Delete { key } => drop(self.entries.remove(&key)),
            ChangedEntry::DeleteRange { start, end } => self
                .entries
                .retain(|key, _| *key < start || end.as_ref().is_some_and(|end| key >= end)),
            // Many entries at once.
            ChangedEntry::Load { .. } => self.read_all(keyspace)?,
            _ => unreachable!("nothing drops the keyspace"),
        }
        Ok(())
    }
}

fn write(users: &Keyspace) -> Result<()> {
    (0..1000).try_for_each(|user| users.put(format!("user/{user:03}"), "new"))?;
    users.ingest((0..500).map(|user| (format!("old/{user:03}"), "loaded")))?;
    users.delete_range("user/100".."user/200")?;
    users.put("~done", "")
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(directory.path())?;
    let users = db.keyspace("users")?;
    users.put("user/000", "before the watch")?;
    // The watch first: so no write comes between it and the copy.
    let (mut watch, mut copy) = (users.watch(..)?, Copy::default());
    copy.read_all(&users)?;
    let of_writer = users.clone();
    let writer = std::thread::spawn(move || write(&of_writer));
    while !copy.entries.contains_key(&b"~done"[..]) {
        match watch.next().expect("the database is open") {
            Ok(change) => copy.apply(&users, change)?,
            // Some changes are gone, so everything is read again. The next changes come after that.
            Err(Error::ChangesGone { .. }) => copy.read_all(&users)?,
            Err(error) => return Err(error),
        }
    }
    writer.join().expect("no panic")?;
    println!("{} entries, {} in the database", copy.entries.len(), users.iter().count());
    db.close()
}
