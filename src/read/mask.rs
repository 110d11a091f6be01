//! [`Mask`]: the range deletes of the sources of a scan, and how a scan passes what they hide.
//!
//! A scan has one only if a memtable or a table of its view has a range delete. The mask stands
//! above the merge: it says of each entry that the merge is at whether a range delete hides it. It
//! keeps a [`Window`], keys that are covered alike, so most entries cost two comparisons.
//!
//! Sources have *ranks*, newest first: memtables, tables of level 0, levels. Everything in a source
//! is newer than everything in a source of a higher rank that has the same key. So the delete of
//! one source hides all entries of its range in the sources of higher ranks, whatever their
//! sequences. Such a child of the merge seeks to the end of the *run*: the keys that follow each
//! other and are all hidden in that child. Any other child steps from entry to entry, because it
//! may have newer ones among them. Those are few: a range delete begins a segment of its memtable,
//! and the segments before it are older than the delete.
//!
//! Only the child at the current entry moves. The others follow when their turn comes, so each
//! child seeks at most once for each run.

use crate::base::iterator::api::InternalIterator;
use crate::base::iterator::merging::MergingIter;
use crate::base::key::{
    INTERNAL_KEY_TRAILER_BYTES, SequenceNumber, put_key_with_trailer, split_internal_key,
};
use crate::base::range_deletes::{RangeDeletes, Window};
use crate::base::sync::Arc;
use crate::memtable::memtable::Memtable;
use crate::state::read_view::ReadView;
use crate::tree::handle::TableHandle;
use crate::tree::version::DeletingTables;

/// The range deletes of a scan.
pub(crate) struct Mask {
    /// The sources with range deletes, newest first.
    sources: Vec<Source>,
    /// How many memtables and tables of level 0 the view has, for the ranks.
    memtables: usize,
    level0_tables: usize,
    /// The children of the merge, in its order.
    children: Vec<Child>,
    /// Where the scan is; none before the first entry.
    window: Option<Window>,
    /// The rank of the newest source with a delete that covers the window.
    rank: usize,
    /// The bound of the last seek of each child.
    passed: Vec<Option<Vec<u8>>>,
    /// A child came back to keys that a seek had passed: those of a file do not ascend. Only a
    /// forged file has such keys under valid checksums. From then on children step, so that the
    /// scan ends.
    only_steps: bool,
}

/// A source with range deletes.
struct Source {
    rank: usize,
    /// What the scan reads of it: up to this sequence.
    at: SequenceNumber,
    deletes: Deletes,
}

/// The range deletes of a source.
enum Deletes {
    Memtable(Arc<Memtable>),
    /// Tables with range deletes, by key: one of level 0, or any of a sorted level.
    Tables(Vec<Arc<TableHandle>>),
}

/// A child of the merge.
#[derive(Clone, Copy)]
struct Child {
    /// The rank of its source.
    rank: usize,
    /// The sequences of all its entries are below this one.
    below: SequenceNumber,
}

impl Child {
    /// The sequence above which a delete hides all that the child has in its range; `None` if the
    /// deletes of that source never do.
    fn hidden_above(self, source: &Source) -> Option<SequenceNumber> {
        match source.rank.cmp(&self.rank) {
            std::cmp::Ordering::Less => Some(0),
            std::cmp::Ordering::Equal => {
                self.below.checked_sub(1).filter(|_| self.below < u64::MAX)
            }
            std::cmp::Ordering::Greater => None,
        }
    }
}

impl Deletes {
    fn window(&self, key: &[u8], at: SequenceNumber) -> Window {
        match self {
            Deletes::Memtable(memtable) => memtable.range_deletes().window(key, at),
            Deletes::Tables(tables) => {
                // The tables before these two end before the window, the others begin after it.
                let next = tables.partition_point(|table| deletes_of(table).end_before(key));
                let around = next.saturating_sub(1)..tables.len().min(next + 1);
                let mut window = Window::default();
                for table in &tables[around] {
                    window.narrow(deletes_of(table).window(key, at));
                }
                window
            }
        }
    }

    /// The end of the keys from `key` on that all have a covering sequence above `above`, as far as
    /// it is at hand: `Some(None)` if there is none, `None` if `key` has no such sequence.
    fn covered_until(
        &self,
        key: &[u8],
        at: SequenceNumber,
        above: SequenceNumber,
    ) -> Option<Option<Vec<u8>>> {
        match self {
            Deletes::Memtable(memtable) => memtable.range_deletes().covered_until(key, at, above),
            Deletes::Tables(tables) => {
                let place = tables.partition_point(|table| deletes_of(table).end_before(key));
                let until = deletes_of(tables.get(place)?).covered_until(key, at)?;
                Some(until.map(<[u8]>::to_vec))
            }
        }
    }

    /// The first of the keys just before `bound` that all have a covering sequence above `above`,
    /// as far as it is at hand; `None` if they have none.
    fn covered_before(
        &self,
        bound: &[u8],
        at: SequenceNumber,
        above: SequenceNumber,
    ) -> Option<Vec<u8>> {
        match self {
            Deletes::Memtable(memtable) => {
                memtable.range_deletes().covered_before(bound, at, above)
            }
            Deletes::Tables(tables) => {
                let begins_before =
                    |table: &Arc<TableHandle>| deletes_of(table).begin_before(bound);
                let place = tables.partition_point(begins_before).checked_sub(1)?;
                deletes_of(tables.get(place)?).covered_before(bound, at).map(<[u8]>::to_vec)
            }
        }
    }
}

/// The range deletes of a table that has some.
fn deletes_of(handle: &TableHandle) -> &RangeDeletes {
    static NONE: RangeDeletes = RangeDeletes::NONE;
    handle.table.range_deletes().unwrap_or(&NONE)
}

impl Mask {
    /// The mask of a scan of `view` at `at`; `None` if nothing in it has a range delete. `own` are
    /// the writes of a transaction, newer than the view, and the sequence that they are read at.
    #[inline]
    pub(crate) fn of(
        view: &ReadView,
        at: SequenceNumber,
        own: Option<(&Arc<Memtable>, SequenceNumber)>,
    ) -> Option<Box<Mask>> {
        let has_any = |memtable: &Arc<Memtable>| memtable.range_deletes().count() > 0;
        let any = !view.version.range_deletes().is_empty()
            || view.memtables().any(has_any)
            || own.is_some_and(|(own, _)| has_any(own));
        any.then(|| Box::new(Mask::new(view, at, own)))
    }

    #[cold]
    fn new(
        view: &ReadView,
        at: SequenceNumber,
        own: Option<(&Arc<Memtable>, SequenceNumber)>,
    ) -> Mask {
        let shared = view.memtables().map(|memtable| (memtable, at));
        let memtables: Vec<_> = own.into_iter().chain(shared).collect();
        let mut mask = Mask {
            sources: Vec::new(),
            memtables: memtables.len(),
            level0_tables: view.version.level(0).len(),
            children: Vec::new(),
            window: None,
            rank: 0,
            passed: Vec::new(),
            only_steps: false,
        };
        for (rank, (memtable, at)) in memtables.into_iter().enumerate() {
            if memtable.range_deletes().count() > 0 {
                let deletes = Deletes::Memtable(Arc::clone(memtable));
                mask.sources.push(Source { rank, at, deletes });
            }
        }
        for DeletingTables { level, place, tables } in view.version.range_deletes() {
            let (rank, deletes) = (mask.rank_of(*level, *place), Deletes::Tables(tables.clone()));
            mask.sources.push(Source { rank, at, deletes });
        }
        mask
    }

    /// Adds the next child of the merge: entries of the memtable that has `age` newer ones, all
    /// with smaller sequences than `below`.
    pub(crate) fn add_memtable(&mut self, age: usize, below: SequenceNumber) {
        self.add(Child { rank: age, below });
    }

    /// Adds the next child of the merge: tables of a sorted level, or the one of level 0 that has
    /// `age` newer ones.
    pub(crate) fn add_tables(&mut self, level: usize, age: usize) {
        let rank = self.rank_of(level, age);
        self.add(Child { rank, below: SequenceNumber::MAX });
    }

    fn add(&mut self, child: Child) {
        self.children.push(child);
        self.passed.push(None);
    }

    fn rank_of(&self, level: usize, age: usize) -> usize {
        match level {
            0 => self.memtables + age,
            _ => self.memtables + self.level0_tables + level,
        }
    }

    /// Forgets where the scan was: it seeks.
    pub(crate) fn restart(&mut self) {
        self.passed.fill(None);
    }

    /// True if a range delete hides the entry.
    pub(crate) fn hides(&mut self, key: &[u8], sequence: SequenceNumber) -> bool {
        let window = match self.window.take().filter(|window| window.holds(key)) {
            Some(window) => window,
            None => self.window_around(key),
        };
        let covering = window.covering;
        self.window = Some(window);
        sequence < covering
    }

    /// The window around `key`. It ends where any newer source changes, and where the source that
    /// covers it does. Older sources add nothing to what that source hides.
    fn window_around(&mut self, key: &[u8]) -> Window {
        let mut window = Window::default();
        for source in &self.sources {
            window.narrow(source.deletes.window(key, source.at));
            if window.covering > 0 {
                self.rank = source.rank;
                break;
            }
        }
        window
    }

    /// Moves an ascending merge on from an entry that is hidden. `is_within` is false of keys after
    /// the scan.
    pub(crate) fn pass_up<I: InternalIterator>(
        &mut self,
        merge: &mut MergingIter<I>,
        is_within: impl Fn(&[u8]) -> bool,
    ) {
        self.only_steps |= self.comes_back(merge, |key, passed| key < passed);
        match self.hidden_until(merge.winner()) {
            None => _ = merge.next(),
            Some(until) => self.skip(merge, until.filter(|key| is_within(key))),
        }
    }

    /// As [`pass_up`](Self::pass_up), of a descending merge. `is_within` is false of keys before
    /// the scan.
    pub(crate) fn pass_down<I: InternalIterator>(
        &mut self,
        merge: &mut MergingIter<I>,
        is_within: impl Fn(&[u8]) -> bool,
    ) {
        self.only_steps |= self.comes_back(merge, |key, passed| key >= passed);
        match self.hidden_from(merge.winner()) {
            None => _ = merge.next(),
            Some(from) => self.skip(merge, Some(from).filter(|from| is_within(from))),
        }
    }

    /// True if the merge is at a key that the last seek of its child was to pass.
    fn comes_back<I: InternalIterator>(
        &self,
        merge: &MergingIter<I>,
        is_passed: impl Fn(&[u8], &[u8]) -> bool,
    ) -> bool {
        let key = merge.current().and_then(|current| split_internal_key(current.key()));
        let passed = self.passed.get(merge.winner()).and_then(Option::as_deref);
        key.zip(passed).is_some_and(|((key, _), passed)| is_passed(key, passed))
    }

    fn skip<I: InternalIterator>(&mut self, merge: &mut MergingIter<I>, to: Option<Vec<u8>>) {
        let child = merge.winner();
        merge.skip_to(to.as_deref().map(before_versions).as_deref());
        if let Some(passed) = self.passed.get_mut(child) {
            *passed = to;
        }
    }

    /// The window, and the child of that number, if the window is hidden in all of the child, which
    /// may be passed by a seek.
    fn hidden_window(&self, child: usize) -> Option<(&Window, Child)> {
        if self.only_steps {
            return None;
        }
        let (window, child) = (self.window.as_ref()?, *self.children.get(child)?);
        let is_hidden =
            self.rank < child.rank || (self.rank == child.rank && child.below <= window.covering);
        is_hidden.then_some((window, child))
    }

    /// The sources that hide runs in `child`, each with the sequence above which it does.
    fn hiding(&self, child: Child) -> impl Iterator<Item = (&Source, SequenceNumber)> {
        self.sources.iter().filter_map(move |source| Some((source, child.hidden_above(source)?)))
    }

    /// The end of the run of keys that are hidden in a child: `Some(None)` if it has no end, `None`
    /// if the child must step.
    fn hidden_until(&self, child: usize) -> Option<Option<Vec<u8>>> {
        let (window, child) = self.hidden_window(child)?;
        let Some(mut until) = window.until.clone() else { return Some(None) };
        // Until no source goes on from there: a run may change from source to source.
        loop {
            let mut goes_on = false;
            for (source, above) in self.hiding(child) {
                match source.deletes.covered_until(&until, source.at, above) {
                    Some(None) => return Some(None),
                    Some(Some(next)) => (until, goes_on) = (next, true),
                    None => {}
                }
            }
            if !goes_on {
                return Some(Some(until));
            }
        }
    }

    /// The first key of the run of keys that are hidden in a child; `None` if the child must step.
    fn hidden_from(&self, child: usize) -> Option<Vec<u8>> {
        let (window, child) = self.hidden_window(child)?;
        let mut from = window.from.clone();
        loop {
            let mut goes_on = false;
            for (source, above) in self.hiding(child) {
                if let Some(before) = source.deletes.covered_before(&from, source.at, above) {
                    (from, goes_on) = (before, true);
                }
            }
            if !goes_on {
                return Some(from);
            }
        }
    }
}

/// The bound before all versions of `key`.
fn before_versions(key: &[u8]) -> Vec<u8> {
    let mut bound = Vec::with_capacity(key.len() + INTERNAL_KEY_TRAILER_BYTES);
    put_key_with_trailer(&mut bound, key, u64::MAX);
    bound
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Result;
    use crate::base::iterator::api::Direction;
    use crate::base::value::Value;
    use crate::base::write_batch::WriteBatch;

    /// Entries of a forged file, whose keys do not ascend: a seek leads to the wrong ones.
    struct Forged {
        keys: [Vec<u8>; 3],
        at: usize,
        direction: Direction,
    }

    impl InternalIterator for Forged {
        fn seek(&mut self, bound: Option<&[u8]>) {
            let passes = |key: &[u8]| match self.direction {
                Direction::Forward => &b"k5"[..] < key,
                Direction::Reverse => key < &b"k5"[..],
            };
            self.at = usize::from(bound.is_some_and(passes));
        }

        fn next(&mut self) -> bool {
            self.at += 1;
            self.valid()
        }

        fn valid(&self) -> bool {
            self.at < self.keys.len()
        }

        fn key(&self) -> &[u8] {
            &self.keys[self.at]
        }

        fn value(&self) -> &[u8] {
            b""
        }

        fn value_owned(&self) -> Value {
            Value::from(&b""[..])
        }

        fn status(&self) -> Result<()> {
            Ok(())
        }
    }

    fn passes_all(keys: [&str; 3], direction: Direction) {
        let mut batch = WriteBatch::new();
        batch.delete_range("k1".."k3").delete_range("k6".."k8");
        let memtable = Arc::new(Memtable::new(0, false));
        batch.decoded(5).runs().for_each(|(_, first, run)| memtable.insert(first, run));
        let deletes = Deletes::Memtable(memtable);
        let mut mask = Mask {
            sources: vec![Source { rank: 0, at: SequenceNumber::MAX, deletes }],
            memtables: 1,
            level0_tables: 0,
            children: Vec::new(),
            window: None,
            rank: 0,
            passed: Vec::new(),
            only_steps: false,
        };
        mask.add_tables(1, 0);
        let keys = keys.map(|key| before_versions(key.as_bytes()));
        let mut merge = MergingIter::new(direction, vec![Forged { keys, at: 0, direction }]);
        merge.seek(None);
        for _ in 0..3 {
            let Some(current) = merge.current() else { return };
            let key = split_internal_key(current.key()).unwrap().0.to_vec();
            assert!(mask.hides(&key, 1));
            match direction {
                Direction::Forward => mask.pass_up(&mut merge, |_| true),
                Direction::Reverse => mask.pass_down(&mut merge, |_| true),
            }
        }
        assert!(!merge.valid(), "it would never end");
    }

    #[test]
    fn scans_of_keys_that_go_back_end() {
        passes_all(["k7", "k2", "k2"], Direction::Forward);
        passes_all(["k2", "k7", "k7"], Direction::Reverse);
    }
}
