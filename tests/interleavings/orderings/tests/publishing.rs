//! What a reader may rely on once it has seen a sequence, in every order of two threads and with
//! every value that the memory model lets a load see.

use loom::thread;
use siftdb_orderings::split::SplitLeaf;
use siftdb_orderings::store::{SEGMENT_BYTES, Store};
use std::sync::Arc;

/// Explores `model`. Readers must meet every state, so that no check passes vacuously.
fn explore(preemptions: usize, model: impl Fn() -> u64 + Sync + Send + 'static, last: u64) {
    let seen = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let noting = Arc::clone(&seen);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(move || {
        let visible = model();
        noting.lock().unwrap().insert(visible);
    });
    let seen = seen.lock().unwrap();
    assert!(seen.contains(&last) && seen.len() > 1, "only {seen:?}");
}

#[test]
fn a_published_key_passes_the_filter() {
    explore(
        3,
        || {
            let store = Store::new(1);
            let writing = Arc::clone(&store);
            let writer = thread::spawn(move || (1..=2).for_each(|n| writing.write(n, 8)));
            let visible = store.read(1);
            writer.join().unwrap();
            assert_eq!(store.read(1), 2);
            visible
        },
        2,
    );
}

#[test]
fn published_keys_are_found_in_the_next_segment() {
    explore(
        1,
        || {
            let store = Store::new(2);
            // Fills the first one.
            store.write(1, SEGMENT_BYTES);
            let writing = Arc::clone(&store);
            let writer = thread::spawn(move || writing.write(2, 8));
            let visible = store.read(2);
            writer.join().unwrap();
            assert_eq!(store.read(2), 2);
            visible
        },
        2,
    );
}

#[test]
fn published_keys_pass_a_filter_that_grows() {
    // The filter has three steps: 320 bytes up to 30 KiB, 1,280 bytes up to 90 KiB, and 5 KiB.
    for (before, filling) in [(8, 40 << 10), (8, 120 << 10), (40 << 10, 80 << 10)] {
        explore(
            2,
            move || {
                let store = Store::with_buffer(256 << 10, 1);
                store.write(1, before);
                let writing = Arc::clone(&store);
                let writer = thread::spawn(move || {
                    // The second one makes the filter grow.
                    writing.write(2, filling);
                    writing.write(3, 8);
                });
                let visible = store.read(1);
                writer.join().unwrap();
                assert_eq!(store.read(1), 3);
                visible
            },
            3,
        );
    }
}

/// The writer is the first thread: loom would not see that its stores conflict with earlier loads of
/// the reader, because it loads the same word before.
#[test]
fn a_split_leaf_is_read_whole_or_split() {
    explore(
        3,
        || {
            let leaf = SplitLeaf::new();
            let reading = Arc::clone(&leaf);
            let reader = thread::spawn(move || reading.read());
            leaf.split();
            let seen = reader.join().unwrap();
            assert_eq!(leaf.read(), 10);
            seen as u64
        },
        10,
    );
}
