//! A cache that follows a database: it reads everything once, then only what was written since.
//!
//! Run it with `cargo run --example changes`.

use siftdb::{ChangedEntry, Db, Error, Follower, Options, Result};
use std::collections::BTreeMap;

/// All entries of the keyspace `default`, in memory.
#[derive(Default)]
struct Mirror {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    next: u64,
}

impl Mirror {
    /// Applies the changes since the last call, after a refresh of `follower`. True if everything
    /// was read again instead.
    fn follow(&mut self, follower: &Follower) -> Result<bool> {
        follower.refresh()?;
        let done = follower.changes(self.next).and_then(|changes| {
            for change in changes {
                let change = change?;
                self.next = change.sequence + 1;
                if change.keyspace_number == 0 {
                    self.apply(change.entry);
                }
            }
            Ok(())
        });
        match done {
            // The logs do not reach back so far.
            Err(Error::ChangesGone { .. }) => self.read_all(follower).map(|()| true),
            done => done.map(|()| false),
        }
    }

    fn apply(&mut self, entry: ChangedEntry) {
        match entry {
            ChangedEntry::Put { key, value, .. } => drop(self.entries.insert(key, value)),
            ChangedEntry::Delete { key } => drop(self.entries.remove(&key)),
            ChangedEntry::DeleteRange { start, end } => self
                .entries
                .retain(|key, _| *key < start || end.as_ref().is_some_and(|end| key >= end)),
            _ => unreachable!("a kind of write that this program does not know"),
        }
    }

    fn read_all(&mut self, follower: &Follower) -> Result<()> {
        self.next = follower.last_sequence() + 1;
        let entry = |(key, value): (siftdb::Key, siftdb::Value)| (key.into_vec(), value.into_vec());
        self.entries = follower.iter().map(|found| found.map(entry)).collect::<Result<_>>()?;
        Ok(())
    }
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // The writer, in another process; it keeps logs for those that follow.
    let db = Options::new().keep_log_bytes(64 << 20).open(directory.path())?;
    (0..1000).try_for_each(|user| db.put(format!("user/{user}"), "new"))?;
    let follower = Db::open_follower(directory.path())?;
    let mut mirror = Mirror::default();
    println!("read again: {}, {} entries", mirror.follow(&follower)?, mirror.entries.len());
    db.put("user/7", "changed")?;
    db.delete_range("user/8".."user/9")?;
    db.flush()?;
    println!("read again: {}, {} entries", mirror.follow(&follower)?, mirror.entries.len());
    db.close()
}
