//! Watches beside writers, flushes, drops of keyspaces and a close: none misses a write or its end,
//! wherever it begins.

use crate::base::error::Error;
use crate::base::sync::{Arc, Wakeup, thread};
use crate::db::change::{Change, ChangedEntry};
use crate::db::database::Db;
use crate::db::watch::Watch;
use crate::env::mem::MemEnv;
use crate::interleavings::run::check;
use crate::options::database::Options;
use std::task::{Context, Poll, Wake, Waker};

fn open() -> Db {
    let options = Options::new().env(Arc::new(MemEnv::new())).write_buffer_bytes(64 << 10);
    options.auto_compaction(false).open("/db").unwrap()
}

/// Fails unless `seen` are the sequences up to `last`, from `begun` on or before.
fn assert_unbroken(seen: &[Change], begun: u64, last: u64) -> u64 {
    let first = seen.first().map_or(last + 1, |change| change.sequence);
    assert!(seen.iter().map(|change| change.sequence).eq(first..=last), "{seen:?}");
    assert!(first <= begun + 1, "{first} after {begun}");
    first
}

/// A watch that begins at any moment; none if the database was closed before.
fn watched(db: &Db, read: impl FnOnce(Watch) -> Vec<Change>) -> Option<(Vec<Change>, u64)> {
    let watch = match db.watch() {
        Ok(watch) => watch,
        Err(Error::Closed) => return None,
        Err(error) => panic!("{error}"),
    };
    let begun = db.snapshot().last_sequence();
    Some((read(watch), begun))
}

fn write(db: &Db) {
    for n in 0..4u8 {
        db.put([n], "v").unwrap();
        if n == 1 {
            db.flush().unwrap();
        }
    }
    db.close().unwrap();
}

pub fn a_blocked_watch_misses_no_write() {
    check("blocked watches", 1500, 4, || {
        let db = open();
        thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let found = watched(&db, |watch| watch.map(Result::unwrap).collect());
                found.map(|(seen, begun)| assert_unbroken(&seen, begun, 4))
            });
            scope.spawn(|| write(&db));
            watcher.join().unwrap()
        })
    });
}

/// Wakes a thread that polls.
#[derive(Default)]
struct Woken(Wakeup);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.wake();
    }
}

fn poll_all(mut watch: Watch) -> Vec<Change> {
    let woken = std::sync::Arc::new(Woken::default());
    let waker = Waker::from(std::sync::Arc::clone(&woken));
    let mut seen = Vec::new();
    loop {
        let before = woken.0.generation();
        match watch.poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(Some(change)) => seen.push(change.unwrap()),
            Poll::Ready(None) => return seen,
            Poll::Pending => woken.0.wait_past(before),
        }
    }
}

pub fn a_polled_watch_misses_no_write() {
    check("polled watches", 1500, 4, || {
        let db = open();
        thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let found = watched(&db, poll_all);
                found.map(|(seen, begun)| assert_unbroken(&seen, begun, 4))
            });
            scope.spawn(|| write(&db));
            watcher.join().unwrap()
        })
    });
}

/// The drop is the last change, and comes after every write that was accepted.
pub fn a_drop_comes_after_the_writes() {
    check("watched drops", 1500, 3, || {
        let db = open();
        let keyspace = db.keyspace("a").unwrap();
        let watch = keyspace.watch(..).unwrap();
        thread::scope(|scope| {
            let watcher =
                scope.spawn(|| watch.map(|change| change.unwrap().entry).collect::<Vec<_>>());
            let writer = scope.spawn(|| {
                let results = (0..3u8).map(|n| keyspace.put([n], "v"));
                results.take_while(Result::is_ok).count()
            });
            scope.spawn(|| {
                db.put("other", "write").unwrap();
                db.drop_keyspace("a").unwrap();
            });
            let (written, seen) = (writer.join().unwrap(), watcher.join().unwrap());
            assert_eq!(seen.len(), written + 1);
            assert_eq!(seen.last(), Some(&ChangedEntry::DropKeyspace));
            written
        })
    });
}
