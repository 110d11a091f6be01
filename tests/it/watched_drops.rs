//! Watches of all keyspaces tell each drop, also of a keyspace whose entries are in no log: a copy
//! that was made from a snapshot would keep it.

use crate::support::stores::{HOME, open, small_options};
use siftdb::env::{Env, EnvLayer, MemEnv, WritableFile};
use siftdb::{ChangedEntry, Db, Keyspace, KeyspaceOptions, Watch, WriteBatch};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// The numbers of the keyspaces whose drops the watch tells now.
fn drops(watch: &mut Watch) -> Vec<u32> {
    let changes = std::iter::from_fn(|| watch.next_timeout(Duration::ZERO).unwrap());
    let drops = changes.filter(|change| change.entry == ChangedEntry::DropKeyspace);
    drops.map(|change| change.keyspace_number).collect()
}

/// A batch that creates the keyspace "k" with an entry.
fn creation() -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.create_keyspace("k", &KeyspaceOptions::new()).put("a", "1");
    batch
}

/// Drops the keyspace after a snapshot has seen its entry; `watch` must tell that once.
fn must_tell_the_drop(db: &Db, watch: &mut Watch, keyspace: &Keyspace) {
    assert_eq!(db.snapshot().in_keyspace(keyspace).iter().count(), 1);
    db.drop_keyspace("k").unwrap();
    assert_eq!(drops(watch), [keyspace.number()]);
    // The next one does not bring it back.
    db.keyspace("other").unwrap();
    db.drop_keyspace("other").unwrap();
    assert!(!drops(watch).contains(&keyspace.number()));
    assert!(drops(watch).is_empty());
}

#[test]
fn the_drop_of_a_keyspace_that_a_batch_filled_is_told() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    let mut watch = db.watch().unwrap();
    db.write(creation()).unwrap();
    must_tell_the_drop(&db, &mut watch, &db.keyspace("k").unwrap());
}

#[test]
fn the_drop_of_a_keyspace_that_a_load_filled_is_told() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    let mut watch = db.watch().unwrap();
    let keyspace = db.keyspace("k").unwrap();
    keyspace.ingest([("a", "1")]).unwrap();
    must_tell_the_drop(&db, &mut watch, &keyspace);
}

/// A watch tells each drop once, with or without entries of the keyspace before it.
#[test]
fn many_keyspaces_that_come_and_go_are_told_once() {
    let db = open(&MemEnv::new(), &small_options()).unwrap();
    let mut watch = db.watch().unwrap();
    let (mut dropped, mut told) = (Vec::new(), Vec::new());
    for round in 0..40 {
        let keyspace = db.keyspace("k").unwrap();
        match round % 4 {
            0 => keyspace.put("logged", "1").unwrap(),
            1 => drop(keyspace.ingest([("loaded", "1")]).unwrap()),
            2 => {
                keyspace.put("read before", "1").unwrap();
                told.extend(drops(&mut watch));
            }
            _ => {}
        }
        dropped.push(keyspace.number());
        db.drop_keyspace("k").unwrap();
        if round % 3 == 0 {
            told.extend(drops(&mut watch));
        }
    }
    told.extend(drops(&mut watch));
    assert_eq!(told, dropped);
}

/// Entries of a keyspace that an earlier session dropped, the last that was created, are in a log.
#[test]
fn the_drop_of_an_earlier_session_is_told() {
    let env = MemEnv::new();
    let options = small_options().keep_log_bytes(1 << 20);
    let db = open(&env, &options).unwrap();
    let keyspace = db.keyspace("k").unwrap();
    keyspace.put("a", "1").unwrap();
    let number = keyspace.number();
    db.drop_keyspace("k").unwrap();
    drop(keyspace);
    db.close().unwrap();
    let db = open(&env, &options).unwrap();
    assert_eq!(drops(&mut db.watch_from(1).unwrap()), [number]);
}

type Hook = Box<dyn FnOnce() + Send>;

/// Calls a function once, when the next table is created.
#[derive(Clone)]
struct AtTable {
    env: MemEnv,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl std::fmt::Debug for AtTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AtTable")
    }
}

impl EnvLayer for AtTable {
    fn inner(&self) -> &dyn Env {
        &self.env
    }

    fn create_new(&self, path: &Path) -> std::io::Result<Box<dyn WritableFile>> {
        let hook = match path.extension().is_some_and(|extension| extension == "sst") {
            true => self.hook.lock().unwrap().take(),
            false => None,
        };
        hook.into_iter().for_each(|hook| hook());
        self.inner().create_new(path)
    }
}

#[test]
fn the_drop_of_a_keyspace_that_was_created_beside_the_watch_is_told() {
    let env = AtTable { env: MemEnv::new(), hook: Arc::default() };
    let db = small_options().env(Arc::new(env.clone())).open(HOME).unwrap();
    db.put("x", "0").unwrap();
    let (sender, receiver) = mpsc::channel();
    let other = db.clone();
    *env.hook.lock().unwrap() = Some(Box::new(move || {
        std::thread::spawn(move || sender.send(other.watch().unwrap()).unwrap());
        // The watch waits for the lock of the log, which the batch holds. No call says so.
        std::thread::sleep(Duration::from_millis(20));
    }));
    db.write(creation()).unwrap();
    let mut watch = receiver.recv().unwrap();
    must_tell_the_drop(&db, &mut watch, &db.keyspace("k").unwrap());
}
