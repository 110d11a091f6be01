//! A checkpoint that is taken while another thread drops a keyspace. The test stops both threads
//! at chosen steps.

use crate::env::mem::MemEnv;
use crate::env::watched::{Call, WatchedEnv, Watcher};
use crate::options::database::Options;
use crate::tree::current::{read_current, set_current};
use crate::tree::manifest::{ManifestWriter, replay};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// Holds the next flush up after its edit, where it saves the counters.
#[derive(Clone, Debug, Default)]
struct FlushEnd(Arc<[AtomicBool; 3]>);

impl Watcher for FlushEnd {
    fn call<T>(&self, call: Call<'_>, mut make: impl FnMut(u64) -> io::Result<T>) -> io::Result<T> {
        let [armed, reached, go] = &*self.0;
        let ends = call.operation == "rename" && call.path.ends_with("STATS");
        if ends && armed.swap(false, Ordering::SeqCst) {
            reached.store(true, Ordering::SeqCst);
            until(|| go.load(Ordering::SeqCst));
        }
        make(call.bytes)
    }
}

fn until(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(1));
    }
}

/// A program moves an entry to another keyspace, then drops the one that had it. Each checkpoint
/// has it in one of the two.
#[test]
fn a_checkpoint_beside_a_drop_is_one_moment() {
    let (disk, flush_end) = (MemEnv::new(), FlushEnd::default());
    let env = WatchedEnv { inner: Arc::new(disk.clone()), watcher: flush_end.clone() };
    let db = Options::new().env(Arc::new(env)).open("/db").unwrap();
    db.keyspace("old").unwrap().put("k", "v").unwrap();
    let (engine, [armed, reached, go]) = (db.engine(), &*flush_end.0);
    let (held, release) = (AtomicBool::new(false), AtomicBool::new(false));
    scope(|scope| {
        armed.store(true, Ordering::SeqCst);
        scope.spawn(|| db.checkpoint("/copy").unwrap());
        // Its moment is over, and it lists its tables next.
        until(|| reached.load(Ordering::SeqCst));
        db.put("k", "v").unwrap();
        // The drop comes as far as its edit, and is not counted yet.
        scope.spawn(|| {
            engine.catalog.snapshots.in_one_step(|| {
                held.store(true, Ordering::SeqCst);
                until(|| release.load(Ordering::SeqCst));
            });
        });
        until(|| held.load(Ordering::SeqCst));
        scope.spawn(|| db.drop_keyspace("old").unwrap());
        let versions = &engine.catalog.versions;
        until(|| engine.catalog.keyspaces.is_locked() || versions.is_locked());
        // The checkpoint has time to list its tables. It waits for the drop, so nothing tells when
        // it would have done so.
        go.store(true, Ordering::SeqCst);
        sleep(Duration::from_millis(300));
        release.store(true, Ordering::SeqCst);
    });
    let copy = Options::new().env(Arc::new(disk)).open("/copy").unwrap();
    let is_in_old = copy.keyspaces().iter().any(|name| name == "old");
    let is_moved = copy.get("k").unwrap().is_some();
    assert!(is_in_old || is_moved, "the checkpoint has neither: {:?}", copy.keyspaces());
}

/// Gives the database in `home` the last epoch, under correct checksums.
fn give_last_epoch(disk: &MemEnv, home: &str) {
    let home = Path::new(home);
    let current = read_current(disk, home).unwrap().unwrap();
    let mut state = replay(disk, home, current).unwrap();
    state.facts.database.epoch = u64::MAX;
    state.next_file_number = 1002;
    ManifestWriter::create(disk, home, 1000, &state.snapshot()).unwrap();
    set_current(disk, home, 1000, 1001).unwrap();
}

#[test]
fn the_last_epoch_is_followed_by_a_new_identity() {
    let disk = MemEnv::new();
    let options = Options::new().env(Arc::new(disk.clone()));
    let db = options.clone().open("/db").unwrap();
    db.put("k", "v").unwrap();
    db.checkpoint("/copy").unwrap();
    give_last_epoch(&disk, "/copy");
    db.put("k2", "v").unwrap();
    db.checkpoint("/copy").unwrap();
    db.close().unwrap();
    drop(db);
    give_last_epoch(&disk, "/db");
    assert!(options.clone().repair("/db").unwrap().changed);
    for home in ["/copy", "/db"] {
        let db = options.clone().open(home).unwrap();
        assert_eq!(db.iter().count(), 2, "{home}");
        db.put("k3", "v").unwrap();
        db.close().unwrap();
        drop(db);
        assert!(!options.clone().repair(home).unwrap().changed, "{home}");
    }
}
