//! Tests of iterators over tables whose blocks are in their slots.

use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::key::{ValueKind, put_internal_key};
use crate::table::reader::Expect;
use crate::table::tests::{Entries, READ, bytes_of, open, options, walk};

#[test]
fn cached_iteration_agrees_with_the_model() {
    let mut entries = Entries::new();
    for i in 0..900usize {
        let mut key = Vec::new();
        let user = format!("{i:03}{}", "k".repeat(7 * i % 40));
        put_internal_key(&mut key, user.as_bytes(), 1 + i as u64, ValueKind::Put);
        entries.push((key, vec![i as u8; 37 * i % 220]));
    }
    let table = open(&bytes_of(&options(None), &entries), Expect::default(), true).unwrap();
    let mut iter = table.iter(Direction::Forward, READ);
    for from in [0, 0, 450, 13, 899].into_iter().chain((0..900).step_by(17)) {
        iter.seek(Some(&entries[from].0));
        // Not always to the end: then the prefetched blocks are after the next seek or before it.
        for (key, value) in entries[from..].iter().take(if from % 2 == 0 { 900 } else { 40 }) {
            assert_eq!((iter.key(), iter.value()), (&key[..], &value[..]));
            iter.next();
        }
    }
    assert!(entries.iter().rev().eq(&walk(&table, Direction::Reverse, None).unwrap()));
}
