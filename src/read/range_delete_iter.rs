//! [`RangeDeleteIter`]: the range deletes of the sources of a scan, and how a scan passes what they
//! cover.
//!
//! A scan has one only if a memtable or a table of its view has a range delete. It is asked about
//! each entry that the merge is at, whether a range delete covers it. It keeps the coverage of the
//! current key, a range of keys that are covered alike, so most entries cost two comparisons.
//!
//! Sources have *ranks*, newest first: memtables, tables of level 0, levels. Everything in a source
//! is newer than everything in a source of a higher rank that has the same key. So the delete of
//! one source covers all entries of its range in the sources of higher ranks, whatever their
//! sequences. Such a child of the merge seeks to the end of the *run*: the keys that follow each
//! other and are all covered in that child. Any other child steps from entry to entry, because it
//! may have newer ones among them. Those are few: a range delete begins a segment of its memtable,
//! and the segments before it are older than the delete.
//!
//! Only the child at the current entry moves. The others follow when their turn comes, so each
//! child seeks at most once for each run.
//!
//! A seek costs as much as many steps, and many deletes cover an entry or two. So the first
//! entries are stepped over in any case, and the run is looked for only after these.

use crate::base::iterator::api::InternalIterator;
use crate::base::iterator::merging::MergingIter;
use crate::base::key::{LookupKey, SEQUENCE_MAX, SequenceNumber, split_internal_key};
use crate::base::range_deletes::{RangeDelete, RangeDeletes};
use crate::base::sync::Arc;
use crate::memtable::memtable::Memtable;
use crate::state::read_view::ReadView;
use crate::tree::handle::TableHandle;
use crate::tree::version::DeletingTables;

/// Covered entries that are stepped over before a run is looked for. More would read blocks that a
/// seek passes.
const STEPS: usize = 2;

/// The range deletes of a scan.
#[derive(Default)]
pub(crate) struct RangeDeleteIter {
    /// The sources with range deletes, newest first.
    sources: Vec<DeleteSource>,
    /// How many memtables and tables of level 0 the view has, for the ranks.
    memtables: usize,
    level0_tables: usize,
    /// The children of the merge, in its order.
    children: Vec<MergeChild>,
    /// The coverage of the key that the scan is at; none before the first entry.
    coverage: Option<RangeDelete>,
    /// The rank of the newest source with a delete that covers it.
    rank: usize,
    /// How many covered entries were stepped over, in coverages that touch each other.
    steps: usize,
    /// A child came back to keys that a seek had passed: those of a file do not ascend. Only a
    /// forged file has such keys under valid checksums. From then on children step, so that the
    /// scan ends.
    only_steps: bool,
}

/// A source with range deletes.
struct DeleteSource {
    rank: usize,
    /// What the scan reads of it: up to this sequence.
    at: SequenceNumber,
    lists: DeleteLists,
    /// Its coverage around the last key that it was asked about; at first no key is in it.
    coverage: RangeDelete,
}

/// The fragmented lists of a source.
enum DeleteLists {
    Memtable(Arc<Memtable>),
    /// Tables with range deletes, by key: one of level 0, or any of a sorted level.
    Tables(Vec<Arc<TableHandle>>),
}

/// A child of the merge.
struct MergeChild {
    /// The rank of its source.
    rank: usize,
    /// The sequences of all its entries are below this one.
    below: SequenceNumber,
    /// The bound of its last seek.
    passed: Option<Vec<u8>>,
}

impl MergeChild {
    /// The sequence above which a delete covers all that the child has in its range; `None` if the
    /// deletes of a source of that rank never do.
    fn covered_above(&self, rank: usize) -> Option<SequenceNumber> {
        match rank.cmp(&self.rank) {
            std::cmp::Ordering::Less => Some(0),
            std::cmp::Ordering::Equal => {
                self.below.checked_sub(1).filter(|_| self.below < SequenceNumber::MAX)
            }
            std::cmp::Ordering::Greater => None,
        }
    }
}

/// Moves an end of a run of keys over keys that a source covers by sequences above the last
/// argument. False if there are none.
type Extend = fn(&DeleteSource, &mut RangeDelete, SequenceNumber) -> bool;

impl DeleteSource {
    fn new(rank: usize, at: SequenceNumber, lists: DeleteLists) -> Self {
        let coverage = RangeDelete { end: Some(Vec::new()), ..RangeDelete::default() };
        DeleteSource { rank, at, lists, coverage }
    }

    /// The coverage of `key`. A scan asks about keys in order, and most of them are in the coverage
    /// of the key before: so many sources cost a search each only where they change.
    fn coverage(&mut self, key: &[u8]) -> &RangeDelete {
        if !self.coverage.contains(key) {
            self.coverage = self.find_coverage(key);
        }
        &self.coverage
    }

    fn find_coverage(&self, key: &[u8]) -> RangeDelete {
        match &self.lists {
            DeleteLists::Memtable(memtable) => memtable.range_deletes.coverage(key, self.at),
            DeleteLists::Tables(tables) => {
                // The tables before these two end before the coverage, the others begin after it.
                let next = tables.partition_point(|table| deletes_of(table).end_before(key));
                let around = next.saturating_sub(1)..tables.len().min(next + 1);
                let mut coverage = RangeDelete::default();
                for table in &tables[around] {
                    coverage.intersect(&deletes_of(table).coverage(key, self.at));
                }
                coverage
            }
        }
    }

    fn extend_end(&self, run: &mut RangeDelete, above: SequenceNumber) -> bool {
        match &self.lists {
            DeleteLists::Memtable(memtable) => {
                memtable.range_deletes.extend_end(run, self.at, above)
            }
            DeleteLists::Tables(tables) => {
                let Some(end) = &run.end else { return false };
                let next = tables.partition_point(|table| deletes_of(table).end_before(end));
                let next = tables.get(next);
                next.is_some_and(|table| deletes_of(table).extend_end(run, self.at, above))
            }
        }
    }

    fn extend_start(&self, run: &mut RangeDelete, above: SequenceNumber) -> bool {
        match &self.lists {
            DeleteLists::Memtable(memtable) => {
                memtable.range_deletes.extend_start(run, self.at, above)
            }
            DeleteLists::Tables(tables) => {
                let begins_before =
                    |table: &Arc<TableHandle>| deletes_of(table).begin_before(&run.start);
                let last = tables.partition_point(begins_before).checked_sub(1);
                let last = last.and_then(|last| tables.get(last));
                last.is_some_and(|table| deletes_of(table).extend_start(run, self.at, above))
            }
        }
    }
}

/// The range deletes of a table that has some.
fn deletes_of(handle: &TableHandle) -> &RangeDeletes {
    static NONE: RangeDeletes = RangeDeletes::NONE;
    handle.table.range_deletes().unwrap_or(&NONE)
}

impl RangeDeleteIter {
    /// The range deletes of a scan of `view` at `at`; `None` if nothing in it has one. `own` are
    /// the writes of a transaction, newer than the view and newest first, and the sequence that
    /// they are read at.
    #[inline]
    pub(crate) fn of(
        view: &ReadView,
        at: SequenceNumber,
        own: (&[Arc<Memtable>], SequenceNumber),
    ) -> Option<Box<Self>> {
        let has_any = |memtable: &Arc<Memtable>| memtable.range_deletes.count() > 0;
        let any = !view.version.range_deletes.is_empty()
            || view.memtables().any(has_any)
            || own.0.iter().any(has_any);
        any.then(|| Box::new(Self::new(view, at, own)))
    }

    #[cold]
    fn new(view: &ReadView, at: SequenceNumber, own: (&[Arc<Memtable>], SequenceNumber)) -> Self {
        let shared = view.memtables().map(|memtable| (memtable, at));
        let own = own.0.iter().map(|memtable| (memtable, own.1));
        let memtables: Vec<_> = own.chain(shared).collect();
        let mut deletes = Self::with_ranks(memtables.len(), view.version.level(0).len());
        for (rank, (memtable, at)) in memtables.into_iter().enumerate() {
            if memtable.range_deletes.count() > 0 {
                let lists = DeleteLists::Memtable(Arc::clone(memtable));
                deletes.sources.push(DeleteSource::new(rank, at, lists));
            }
        }
        for DeletingTables { level, index, tables } in &view.version.range_deletes {
            let rank = deletes.rank_of(*level, *index);
            let lists = DeleteLists::Tables(tables.clone());
            deletes.sources.push(DeleteSource::new(rank, at, lists));
        }
        deletes
    }

    /// Without sources, for a view of so many memtables and tables of level 0.
    fn with_ranks(memtables: usize, level0_tables: usize) -> Self {
        RangeDeleteIter { memtables, level0_tables, ..RangeDeleteIter::default() }
    }

    /// Adds the next child of the merge: entries of the memtable that has `age` newer ones, all
    /// with smaller sequences than `below`.
    pub(crate) fn add_memtable(&mut self, age: usize, below: SequenceNumber) {
        self.children.push(MergeChild { rank: age, below, passed: None });
    }

    /// Adds the next child of the merge: tables of a sorted level, or the one of level 0 that has
    /// `age` newer ones.
    pub(crate) fn add_tables(&mut self, level: usize, age: usize) {
        let (rank, below) = (self.rank_of(level, age), SequenceNumber::MAX);
        self.children.push(MergeChild { rank, below, passed: None });
    }

    fn rank_of(&self, level: usize, age: usize) -> usize {
        match level {
            0 => self.memtables + age,
            _ => self.memtables + self.level0_tables + level,
        }
    }

    /// Forgets where the scan was: it seeks.
    pub(crate) fn restart(&mut self) {
        self.children.iter_mut().for_each(|child| child.passed = None);
        self.steps = 0;
    }

    /// True if a range delete covers the entry.
    pub(crate) fn covers(&mut self, key: &[u8], sequence: SequenceNumber) -> bool {
        let before = self.coverage.take();
        let coverage = match before {
            Some(coverage) if coverage.contains(key) => coverage,
            before => {
                let coverage = self.coverage_of(key);
                let goes_on =
                    |before: &RangeDelete| before.sequence > 0 && before.touches(&coverage);
                if !before.is_some_and(|before| goes_on(&before)) {
                    self.steps = 0;
                }
                coverage
            }
        };
        let covering = coverage.sequence;
        self.coverage = Some(coverage);
        sequence < covering
    }

    /// The coverage of `key`. It ends where any newer source changes, and where the source that
    /// covers it does. Older sources add nothing to what that source covers.
    fn coverage_of(&mut self, key: &[u8]) -> RangeDelete {
        let mut coverage = RangeDelete::default();
        for source in &mut self.sources {
            coverage.intersect(source.coverage(key));
            if coverage.sequence > 0 {
                self.rank = source.rank;
                break;
            }
        }
        coverage
    }

    /// Moves an ascending merge on from an entry that is covered. `is_within` is false of keys
    /// after the scan.
    pub(crate) fn pass_up<I: InternalIterator>(
        &mut self,
        merge: &mut MergingIter<I>,
        is_within: impl Fn(&[u8]) -> bool,
    ) {
        self.only_steps |= self.comes_back(merge, |key, passed| key < passed);
        match self.run(merge.winner(), DeleteSource::extend_end) {
            None => _ = merge.next(),
            Some(run) => self.skip(merge, run.end.filter(|key| is_within(key))),
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
        match self.run(merge.winner(), DeleteSource::extend_start) {
            None => _ = merge.next(),
            Some(run) => self.skip(merge, Some(run.start).filter(|start| is_within(start))),
        }
    }

    /// True if the merge is at a key that the last seek of its child was to pass.
    fn comes_back<I: InternalIterator>(
        &self,
        merge: &MergingIter<I>,
        is_passed: impl Fn(&[u8], &[u8]) -> bool,
    ) -> bool {
        let key = merge.current().and_then(|current| split_internal_key(current.key()));
        let child = self.children.get(merge.winner());
        let passed = child.and_then(|child| child.passed.as_deref());
        key.zip(passed).is_some_and(|((key, _), passed)| is_passed(key, passed))
    }

    fn skip<I: InternalIterator>(&mut self, merge: &mut MergingIter<I>, to: Option<Vec<u8>>) {
        let child = merge.winner();
        let bound = to.as_deref().map(|key| LookupKey::new(key, SEQUENCE_MAX));
        merge.skip_to(bound.as_ref().map(LookupKey::internal_key));
        if let Some(child) = self.children.get_mut(child) {
            child.passed = to;
        }
    }

    /// The keys from the current one on, as far as `extend` goes, that are covered in the child of
    /// that number; `None` if the child must step.
    fn run(&mut self, child: usize, extend: Extend) -> Option<RangeDelete> {
        if self.only_steps || self.steps < STEPS {
            self.steps += 1;
            return None;
        }
        let (coverage, child) = (self.coverage.as_ref()?, self.children.get(child)?);
        if child.covered_above(self.rank).is_none_or(|above| coverage.sequence <= above) {
            return None;
        }
        let mut run = coverage.clone();
        let extend = |source: &DeleteSource, run: &mut RangeDelete| {
            child.covered_above(source.rank).is_some_and(|above| extend(source, run, above))
        };
        // Until no source goes on from there: a run may change from source to source.
        while self.sources.iter().any(|source| extend(source, &mut run)) {}
        Some(run)
    }
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
        let lists = DeleteLists::Memtable(memtable);
        let mut deletes = RangeDeleteIter::with_ranks(1, 0);
        deletes.sources.push(DeleteSource::new(0, SequenceNumber::MAX, lists));
        deletes.add_tables(1, 0);
        let keys =
            keys.map(|key| LookupKey::new(key.as_bytes(), SEQUENCE_MAX).internal_key().to_vec());
        let mut merge = MergingIter::new(direction, vec![Forged { keys, at: 0, direction }]);
        merge.seek(None);
        for _ in 0..3 {
            let Some(current) = merge.current() else { return };
            let key = split_internal_key(current.key()).unwrap().0.to_vec();
            assert!(deletes.covers(&key, 1));
            // As if entries before it had been stepped over.
            deletes.steps = STEPS;
            match direction {
                Direction::Forward => deletes.pass_up(&mut merge, |_| true),
                Direction::Reverse => deletes.pass_down(&mut merge, |_| true),
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
