//! What a scan touches until its first entry, table by table, as an [`Explain`].
//!
//! A scan asks all of its sources before it returns an entry. Here they are asked one after the
//! other, by the same question and the same seek, so that each has its own figures. Tables are left
//! out where a scan does: those of a sorted level after the first one with an entry from the start
//! on. It counts in the statistics and warms the cache like a scan.

use crate::base::error::Result;
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::key::{LookupKey, SEQUENCE_MAX, user_key};
use crate::base::levels::LEVELS;
use crate::base::range::KeyBounds;
use crate::base::sync::Arc;
use crate::memtable::memtable::Memtable;
use crate::options::access::ReadOptions;
use crate::read::explain::{
    Explain, ExplainFilter, ExplainOutcome, ExplainStep, ExplainTarget, ExplainTouched, filter_of,
    touched_of,
};
use crate::read::scan::Scan;
use crate::state::keyspace::KeyspaceState;
use crate::tree::handle::TableHandle;
use crate::tree::level::RangeEnds;
use crate::tree::range_probe::RangeProbe;
use crate::tree::version::count_scan_io;
use siftdb_filter::encoding::FilterVerdict;
use std::ops::Bound;

/// Says what a scan of `bounds` touches until its first entry.
///
/// # Errors
/// As the scan itself.
pub(crate) fn explain_range(
    keyspace: &Arc<KeyspaceState>,
    bounds: KeyBounds,
    options: &ReadOptions,
) -> Result<Explain> {
    let scan = Scan::new(keyspace, None, bounds, options);
    scan.check()?;
    let mut explain = Explain {
        key: scan.bounds.start.to_vec(),
        end: Some(end_of(&scan.bounds)),
        sequence: scan.sequence,
        value: None,
        steps: Vec::new(),
        out_of_range: vec![0; LEVELS],
        data_blocks: 0,
        bytes_read: 0,
        data_blocks_without_filters: 0,
    };
    if scan.bounds.is_empty() {
        return Ok(explain);
    }
    let question = Question {
        start: LookupKey::new(&scan.bounds.start, SEQUENCE_MAX),
        probe: RangeProbe::new(&scan.bounds, scan.read, &keyspace.counters),
        scan: &scan,
    };
    for (age, memtable) in scan.view.memtables().enumerate() {
        explain.steps.push(question.ask_memtable(age, memtable));
    }
    for (level, tables) in scan.view.version.levels.iter().enumerate() {
        let places: Vec<usize> = match level {
            0 => tables.overlapping(RangeEnds::of(&scan.bounds)).collect(),
            _ => tables.neighbours(RangeEnds::of(&scan.bounds)).collect(),
        };
        let mut asked = 0;
        for handle in places.iter().filter_map(|place| tables.handles.get(*place)) {
            asked += 1;
            if question.ask_table(level, handle, &mut explain)? && level > 0 {
                break;
            }
        }
        explain.out_of_range[level] = tables.handles.len() as u64 - asked;
    }
    Ok(explain)
}

/// Where a range ends, in the words of a user: a range before the successor of a key has that key.
fn end_of(bounds: &KeyBounds) -> Bound<Vec<u8>> {
    match bounds.end.as_deref().map(|end| (end, end.strip_suffix(&[0]))) {
        None => Bound::Unbounded,
        Some((_, Some(last))) => Bound::Included(last.to_vec()),
        Some((end, None)) => Bound::Excluded(end.to_vec()),
    }
}

/// The question of one scan to its sources.
struct Question<'s> {
    start: LookupKey,
    probe: RangeProbe,
    scan: &'s Scan,
}

impl Question<'_> {
    fn ask_memtable(&self, age: usize, memtable: &Arc<Memtable>) -> ExplainStep {
        let mut iterators = memtable.iterators(Direction::Forward);
        let found = iterators.any(|mut iter| {
            iter.seek(Some(self.start.internal_key()));
            iter.valid() && self.scan.bounds.contains(user_key(iter.key()))
        });
        let outcome = match (memtable.is_empty(), found) {
            (true, _) => ExplainOutcome::Empty,
            (false, true) => ExplainOutcome::Found,
            (false, false) => ExplainOutcome::Absent,
        };
        ExplainStep {
            target: ExplainTarget::Memtable(age),
            filter: ExplainFilter::default(),
            touched: ExplainTouched::default(),
            outcome,
        }
    }

    /// Adds the step of one table. True if the table has an entry from the start of the range on.
    fn ask_table(&self, level: usize, handle: &TableHandle, explain: &mut Explain) -> Result<bool> {
        let mut of_filter = self.scan.read.io();
        let verdict = match self.scan.read.use_filters {
            true => self.probe.ask_with(level, &handle.table, &mut of_filter),
            false => FilterVerdict::NotConsulted,
        };
        let mut iter = handle.table.iter(Direction::Forward, self.scan.read);
        if verdict != FilterVerdict::No {
            iter.seek(Some(self.start.internal_key()));
            iter.status()?;
        }
        let found = iter.valid().then(|| user_key(iter.key()));
        let outcome = match (verdict, found.is_some_and(|key| self.scan.bounds.contains(key))) {
            (FilterVerdict::No, _) => ExplainOutcome::Skipped,
            (_, true) => ExplainOutcome::Found,
            (FilterVerdict::Maybe, false) => ExplainOutcome::FalsePositive,
            (_, false) => ExplainOutcome::Absent,
        };
        if verdict == FilterVerdict::Maybe {
            let start = Some(self.start.user_key());
            self.probe.count_positive(level, Direction::Forward, start, found);
        }
        let has_entry = found.is_some();
        let io = iter.take_io();
        count_scan_io(level, &io, &self.scan.keyspace.counters.stripe());
        let blocks = u64::from(io.data_cached + io.data_read);
        explain.data_blocks += blocks;
        explain.data_blocks_without_filters += blocks.max(1);
        explain.bytes_read +=
            io.data_bytes + io.index_bytes + of_filter.index_bytes + of_filter.filter_bytes;
        explain.steps.push(ExplainStep {
            target: ExplainTarget::Table { level, number: handle.meta.number },
            filter: filter_of(verdict, &of_filter),
            touched: touched_of(&io),
            outcome,
        });
        Ok(has_entry)
    }
}
