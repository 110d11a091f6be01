//! Merges sorted iterators over memtables, level-0 tables and levels into one.
//!
//! Scans and compactions read through it. The child with the next entry is the *winner*. The others
//! are in a binary heap whose root is the runner-up. While the winner stays ahead of the runner-up,
//! a step costs one comparison, whatever the number of children. A change of the winner costs two
//! comparisons for each level of the heap.
//!
//! Invariants: every child in the heap is valid; the winner's entry comes before all of theirs.
//! Of equal internal keys, the entry of the earlier child comes first, so callers list newer
//! sources first. The first error of a child ends the iteration: `valid` is false and `status`
//! returns the error until the next seek. The merge returns old versions and tombstones too.

use crate::base::error::{Error, Result};
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::key::compare_internal;
use crate::base::value::Value;
use std::cmp::Ordering;

pub(crate) struct MergingIter<I> {
    direction: Direction,
    children: Vec<I>,
    /// The child positioned at the current entry; [`NONE`] without one.
    winner: usize,
    /// The other valid children, the next one at the root.
    heap: Vec<usize>,
    error: Option<Error>,
}

/// No child's place.
const NONE: usize = usize::MAX;

impl<I: InternalIterator> MergingIter<I> {
    /// Merges `children`, which all have `direction`. Not positioned until the first seek.
    pub(crate) fn new(direction: Direction, children: Vec<I>) -> Self {
        MergingIter { direction, children, winner: NONE, heap: Vec::new(), error: None }
    }

    /// True if child `a` comes before child `b`. Both are valid.
    fn precedes(&self, a: usize, b: usize) -> bool {
        let order = compare_internal(self.children[a].key(), self.children[b].key());
        match (order, self.direction) {
            (Ordering::Equal, _) => a < b,
            (_, Direction::Forward) => order.is_lt(),
            (_, Direction::Reverse) => order.is_gt(),
        }
    }

    /// Moves the child at `at` down the heap until both children below it come after it.
    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut first = at;
            for below in [2 * at + 1, 2 * at + 2] {
                if below < self.heap.len() && self.precedes(self.heap[below], self.heap[first]) {
                    first = below;
                }
            }
            if first == at {
                return;
            }
            self.heap.swap(at, first);
            at = first;
        }
    }

    fn pop_runner_up(&mut self) -> usize {
        if self.heap.is_empty() {
            return NONE;
        }
        let runner_up = self.heap.swap_remove(0);
        self.sift_down(0);
        runner_up
    }

    /// Handles a `child` that is not valid: true if it has no more entries; false after an error,
    /// which ends the iteration.
    fn exhausted(&mut self, child: usize) -> bool {
        match self.children[child].status() {
            Ok(()) => true,
            Err(error) => {
                self.error = Some(error);
                self.winner = NONE;
                self.heap.clear();
                false
            }
        }
    }

    /// Finds the child with the next entry, after a step of the winner; returns `valid`.
    #[inline(never)]
    fn settle(&mut self) -> bool {
        let winner = self.winner;
        let Some(child) = self.children.get(winner) else { return false };
        if !child.valid() {
            if self.exhausted(winner) {
                self.winner = self.pop_runner_up();
            }
        } else if let Some(&runner_up) = self.heap.first()
            && self.precedes(runner_up, winner)
        {
            self.heap[0] = winner;
            self.winner = runner_up;
            self.sift_down(0);
        }
        self.valid()
    }

    /// Moves the child at the current entry to `bound`, which is further on; past all of its
    /// entries without a bound. The others stay.
    pub(crate) fn skip_to(&mut self, bound: Option<&[u8]>) {
        match (bound, self.children.get_mut(self.winner)) {
            (Some(bound), Some(child)) => {
                child.seek(Some(bound));
                self.settle();
            }
            // Left out of the heap until the next seek.
            _ => self.winner = self.pop_runner_up(),
        }
    }

    /// The children, for what is to count from the next seek on. None of them may be moved.
    pub(crate) fn children_mut(&mut self) -> &mut [I] {
        &mut self.children
    }

    /// The place of the child at the current entry; that of no child unless valid.
    pub(crate) fn winner(&self) -> usize {
        self.winner
    }

    /// The child at the current entry; `None` unless valid.
    #[inline]
    pub(crate) fn current(&self) -> Option<&I> {
        self.children.get(self.winner)
    }
}

impl<I: InternalIterator> InternalIterator for MergingIter<I> {
    fn seek(&mut self, bound: Option<&[u8]>) {
        self.error = None;
        self.winner = NONE;
        self.heap.clear();
        // The deepest level goes first, because it is in no cache most often: while its block is
        // read, the disk works on those of the others.
        if let Some((_, others)) = self.children.split_last_mut() {
            others.iter_mut().for_each(|child| child.prepare_seek(bound));
        }
        for i in (0..self.children.len()).rev() {
            self.children[i].seek(bound);
            if self.children[i].valid() {
                // The first one is the winner until it is compared: one child needs no heap.
                match self.winner {
                    NONE => self.winner = i,
                    _ => self.heap.push(i),
                }
            } else if !self.exhausted(i) {
                return;
            }
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
        self.settle();
    }

    #[inline(always)]
    fn next(&mut self) -> bool {
        let Some(child) = self.children.get_mut(self.winner) else { return false };
        // With one child left this is all.
        (child.next() && self.heap.is_empty()) || self.settle()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.winner != NONE
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current().map_or(&[], |child| child.key())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.current().map_or(&[], |child| child.value())
    }

    #[inline]
    fn value_owned(&self) -> Value {
        self.current().map_or_else(|| Value::from(&[][..]), |child| child.value_owned())
    }

    fn status(&self) -> Result<()> {
        self.error.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::{ValueKind, put_internal_key};
    use crate::base::sync::{Arc, AtomicUsize, Ordering as MemoryOrdering};
    use proptest::prelude::*;

    type Entry = (Vec<u8>, Vec<u8>);

    /// A sorted list as an iterator, which fails before entry `fails_at` and counts key reads.
    struct ListIter {
        direction: Direction,
        entries: Vec<Entry>,
        at: usize,
        fails_at: Option<usize>,
        sought: bool,
        keys_read: Arc<AtomicUsize>,
    }

    impl ListIter {
        fn new(direction: Direction, mut entries: Vec<Entry>) -> Self {
            entries.sort_by(|a, b| compare_internal(&a.0, &b.0));
            if direction == Direction::Reverse {
                entries.reverse();
            }
            let keys_read = Arc::default();
            ListIter { direction, entries, at: 0, fails_at: None, sought: false, keys_read }
        }

        fn failed(&self) -> bool {
            self.sought && self.fails_at.is_some_and(|fails_at| self.at >= fails_at)
        }
    }

    impl InternalIterator for ListIter {
        fn seek(&mut self, bound: Option<&[u8]>) {
            self.sought = true;
            let before = |(key, _): &Entry| {
                bound.is_some_and(|bound| match self.direction {
                    Direction::Forward => compare_internal(key, bound).is_lt(),
                    Direction::Reverse => compare_internal(key, bound).is_ge(),
                })
            };
            self.at = self.entries.partition_point(before);
        }

        fn next(&mut self) -> bool {
            assert!(self.valid());
            self.at += 1;
            self.valid()
        }

        fn valid(&self) -> bool {
            self.sought && !self.failed() && self.at < self.entries.len()
        }

        fn key(&self) -> &[u8] {
            assert!(self.valid());
            self.keys_read.fetch_add(1, MemoryOrdering::Relaxed);
            &self.entries[self.at].0
        }

        fn value(&self) -> &[u8] {
            &self.entries[self.at].1
        }

        fn value_owned(&self) -> Value {
            Value::from(self.value())
        }

        fn status(&self) -> Result<()> {
            if self.failed() { Err(Error::corruption("list", 9, "cut")) } else { Ok(()) }
        }
    }

    fn internal(key: &[u8], sequence: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_internal_key(&mut bytes, key, sequence, ValueKind::Put);
        bytes
    }

    fn merged(direction: Direction, lists: &[Vec<Entry>]) -> MergingIter<ListIter> {
        let child = |list: &Vec<Entry>| ListIter::new(direction, list.clone());
        MergingIter::new(direction, lists.iter().map(child).collect())
    }

    fn collect(iter: &mut MergingIter<ListIter>, bound: Option<&[u8]>) -> Vec<Entry> {
        iter.seek(bound);
        let mut entries = Vec::new();
        while iter.valid() {
            assert_eq!(iter.value_owned(), *iter.value());
            entries.push((iter.key().to_vec(), iter.value().to_vec()));
            iter.next();
        }
        entries
    }

    /// Few keys and sequences, so that children tie; values name their child.
    fn lists(children: usize) -> impl Strategy<Value = Vec<Vec<Entry>>> {
        let list = proptest::collection::btree_set(("[ab]{0,3}", 1..4u64), 0..12);
        proptest::collection::vec(list, 0..children).prop_map(|lists| {
            let named = lists.into_iter().enumerate().map(|(child, list)| {
                let value = format!("child {child:03}").into_bytes();
                list.into_iter()
                    .map(|(key, sequence)| (internal(key.as_bytes(), sequence), value.clone()))
                    .collect()
            });
            named.collect()
        })
    }

    proptest! {
        #[test]
        fn merged_iterators_sort(
            lists in prop_oneof![lists(5), lists(200)],
            bounds: Vec<Option<(u8, u64)>>,
        ) {
            let mut sorted: Vec<Entry> = lists.iter().flatten().cloned().collect();
            // Ties: the earlier child first, both ways.
            sorted.sort_by(|a, b| compare_internal(&a.0, &b.0).then(a.1.cmp(&b.1)));
            let mut backward = sorted.clone();
            backward.sort_by(|a, b| compare_internal(&b.0, &a.0).then(a.1.cmp(&b.1)));
            let mut forward = merged(Direction::Forward, &lists);
            let mut reverse = merged(Direction::Reverse, &lists);
            prop_assert!(!forward.valid() && forward.status().is_ok());
            for bound in bounds.into_iter().take(4).chain([None]) {
                let bound = bound.map(|(n, sequence)| internal(&[b'a' + n % 2], sequence % 4));
                let bound = bound.as_deref();
                let upward: Vec<Entry> = sorted
                    .iter()
                    .filter(|e| bound.is_none_or(|b| compare_internal(&e.0, b).is_ge()))
                    .cloned()
                    .collect();
                prop_assert_eq!(collect(&mut forward, bound), upward);
                let downward: Vec<Entry> = backward
                    .iter()
                    .filter(|e| bound.is_none_or(|b| compare_internal(&e.0, b).is_lt()))
                    .cloned()
                    .collect();
                prop_assert_eq!(collect(&mut reverse, bound), downward);
            }
        }
    }

    #[test]
    fn a_seek_restarts_after_an_error() {
        for fails_at in 0..3 {
            let list = |name: u8| (0..3).map(|i| (internal(&[name, i], 1), vec![])).collect();
            let mut bad = ListIter::new(Direction::Forward, list(b'b'));
            bad.fails_at = Some(fails_at);
            let good = ListIter::new(Direction::Forward, list(b'a'));
            let mut iter = MergingIter::new(Direction::Forward, vec![good, bad]);
            // An error met while seeking ends it at once: its keys might have come first.
            let expected = if fails_at == 0 { 0 } else { 3 + fails_at };
            for _ in 0..2 {
                assert_eq!(collect(&mut iter, None).len(), expected);
                assert!(iter.status().unwrap_err().is_corruption());
                iter.next();
                assert!(!iter.valid());
            }
        }
    }

    #[test]
    fn runs_cost_one_comparison_a_step() {
        let run: Vec<Entry> =
            (0..1000).map(|i| (internal(format!("{i:04}").as_bytes(), 1), vec![])).collect();
        let keys_read = Arc::new(AtomicUsize::new(0));
        let mut children = Vec::new();
        for i in 0..100u8 {
            let entries = if i == 50 {
                run.clone()
            } else {
                vec![(internal(&[b'9', b'9', b'9', b'9', i], 1), vec![])]
            };
            let mut list = ListIter::new(Direction::Forward, entries);
            list.keys_read = Arc::clone(&keys_read);
            children.push(list);
        }
        let mut iter = MergingIter::new(Direction::Forward, children);
        iter.seek(None);
        keys_read.store(0, MemoryOrdering::Relaxed);
        for _ in 0..999 {
            iter.next();
        }
        assert_eq!(iter.key(), &internal(b"0999", 1)[..]);
        // Two keys a comparison, and the one read above.
        assert_eq!(keys_read.load(MemoryOrdering::Relaxed), 2 * 999 + 1);
    }
}
