//! [`Explain`]: what one lookup did, from a trace of the real read path.
//!
//! `explain` runs `point::get` itself, with a trace. It counts in the statistics and warms the
//! cache like any other lookup.

use crate::base::error::Result;
use crate::base::key::{Lookup, SequenceNumber};
use crate::base::levels::LEVELS;
use crate::base::stats::text::{bytes, counted};
use crate::base::value::Value;
use crate::options::access::ReadOptions;
use crate::read::point::{self, LookupTrace, MemtableStep};
use crate::state::keyspace::KeyspaceState;
use crate::table::file::TableIo;
use siftdb_filter::encoding::FilterVerdict;
use std::fmt;
use std::ops::Bound;

/// What one lookup touched, memtable by memtable and table by table. Print it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explain {
    /// The key that was looked up, or the first key of the range.
    pub key: Vec<u8>,
    /// Of a range: where it ends. `None` for a lookup of one key.
    pub end: Option<Bound<Vec<u8>>>,
    /// The sequence the lookup read at.
    pub sequence: u64,
    /// The value that was found; `None` for a range.
    pub value: Option<Value>,
    /// Memtables and tables in the order they were asked.
    pub steps: Vec<ExplainStep>,
    /// Tables by level that were not asked: their key range does not cover the key, or the answer
    /// was found above them.
    pub out_of_range: Vec<u64>,
    /// Data blocks looked at.
    pub data_blocks: u64,
    /// Bytes read from files: data, index and filter blocks.
    pub bytes_read: u64,
    /// Data blocks that the same lookup would look at without filters.
    pub data_blocks_without_filters: u64,
}

/// One memtable or table that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExplainStep {
    /// The memtable or table.
    pub target: ExplainTarget,
    /// What the filter said, and where it was.
    pub filter: ExplainFilter,
    /// Blocks and bytes that the step touched.
    pub touched: ExplainTouched,
    /// What the step found, which decides whether the lookup goes on.
    pub outcome: ExplainOutcome,
}

/// The memtable or table of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExplainTarget {
    /// A memtable: 0 is the one that takes the writes, larger numbers are older.
    Memtable(usize),
    /// A table of a level.
    Table {
        /// The level of the table, 0 to 6.
        level: usize,
        /// The number in its file's name.
        number: u64,
    },
}

/// What the filter of a memtable or table said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExplainFilter {
    /// What the filter said about the key.
    pub answer: FilterAnswer,
    /// Where the filter of a table was; `None` where none was asked.
    pub source: Option<FilterSource>,
    /// Bytes of the filter that were read from the file.
    pub bytes_read: u64,
}

/// The answer of a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterAnswer {
    /// There is none, or the lookup asks none.
    #[default]
    NotAsked,
    /// It is damaged, so the search did without it.
    Damaged,
    /// The key is certainly not there.
    No,
    /// The key may be there.
    Maybe,
}

/// Where a filter was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterSource {
    /// In memory for as long as its table is open.
    Pinned,
    /// In the block cache.
    Cached,
    /// In the file: the lookup read it.
    File,
}

/// Blocks that a step touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExplainTouched {
    /// Searches in a data index.
    pub index_seeks: u64,
    /// Bytes of the index that were read from the file.
    pub index_bytes_read: u64,
    /// Data blocks, or single entries in place of them, found in the cache.
    pub data_blocks_cached: u64,
    /// Data blocks read from the file.
    pub data_blocks_read: u64,
    /// Bytes of these blocks in the file.
    pub data_bytes_read: u64,
}

/// What a step found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExplainOutcome {
    /// The value: the lookup ends here. Of a range: an entry in it, of whichever version.
    Found,
    /// A tombstone: the key is deleted.
    Deleted,
    /// A range delete covers the key, and there is no newer value: the key is deleted.
    RangeDeleted,
    /// An expired entry, which hides older ones as a tombstone does.
    Expired,
    /// Nothing: the lookup goes on.
    Absent,
    /// Nothing, although the filter said "maybe".
    FalsePositive,
    /// The filter said no: nothing was searched.
    Skipped,
    /// The memtable is empty.
    Empty,
}

/// Looks `key` up and says what that did.
///
/// # Errors
/// As the lookup itself.
pub(crate) fn explain(
    keyspace: &KeyspaceState,
    key: &[u8],
    sequence: Option<SequenceNumber>,
    options: &ReadOptions,
) -> Result<Explain> {
    let mut trace = LookupTrace::default();
    let value = point::get(keyspace, key, sequence, options, Some(&mut trace))?;
    let memtables = trace.memtables.iter().enumerate().map(|(age, step)| {
        let asked =
            if options.tables.use_filters { FilterAnswer::Maybe } else { FilterAnswer::NotAsked };
        let (answer, outcome) = match step {
            MemtableStep::Empty => (FilterAnswer::NotAsked, ExplainOutcome::Empty),
            MemtableStep::Skipped => (FilterAnswer::No, ExplainOutcome::Skipped),
            MemtableStep::Covered { searched } => {
                (if *searched { asked } else { FilterAnswer::No }, ExplainOutcome::RangeDeleted)
            }
            MemtableStep::Searched(lookup) => (asked, outcome(lookup, value.is_some())),
        };
        ExplainStep {
            target: ExplainTarget::Memtable(age),
            filter: ExplainFilter { answer, ..ExplainFilter::default() },
            touched: ExplainTouched::default(),
            outcome,
        }
    });
    let mut steps: Vec<_> = memtables.collect();
    let (mut data_blocks, mut bytes_read, mut avoided) = (0, 0, 0);
    for table in &trace.tables {
        let io = &table.io;
        data_blocks += u64::from(io.data_cached + io.data_read);
        bytes_read += io.data_bytes + io.index_bytes + io.filter_bytes;
        avoided += u64::from(table.verdict == FilterVerdict::No);
        steps.push(ExplainStep {
            target: ExplainTarget::Table { level: table.level, number: table.number },
            filter: filter_of(table.verdict, io),
            touched: touched_of(io),
            outcome: match (table.verdict, outcome(&table.lookup, value.is_some())) {
                // The search ends here, also after a "no" of the filter.
                (_, ExplainOutcome::Deleted) if table.is_covered => ExplainOutcome::RangeDeleted,
                (FilterVerdict::No, _) => ExplainOutcome::Skipped,
                (FilterVerdict::Maybe, ExplainOutcome::Absent) => ExplainOutcome::FalsePositive,
                (_, outcome) => outcome,
            },
        });
    }
    let mut out_of_range = vec![0; LEVELS];
    if let Some(view) = &trace.view {
        for (level, count) in out_of_range.iter_mut().enumerate() {
            let asked = trace.tables.iter().filter(|table| table.level == level).count();
            *count = (view.version.level(level).len() - asked) as u64;
        }
    }
    Ok(Explain {
        key: key.to_vec(),
        end: None,
        sequence: trace.sequence,
        value,
        steps,
        out_of_range,
        data_blocks,
        bytes_read,
        data_blocks_without_filters: data_blocks + avoided,
    })
}

/// An expiring entry ends the search, so it has expired unless the lookup found a value.
fn outcome(lookup: &Lookup, found: bool) -> ExplainOutcome {
    match lookup {
        Lookup::Found { .. } if !found => ExplainOutcome::Expired,
        Lookup::Found { .. } => ExplainOutcome::Found,
        Lookup::Deleted => ExplainOutcome::Deleted,
        Lookup::Absent => ExplainOutcome::Absent,
    }
}

pub(super) fn filter_of(verdict: FilterVerdict, io: &TableIo) -> ExplainFilter {
    let answer = match verdict {
        FilterVerdict::NotConsulted if io.filter_errors > 0 => FilterAnswer::Damaged,
        FilterVerdict::NotConsulted | FilterVerdict::Bypassed => FilterAnswer::NotAsked,
        FilterVerdict::No => FilterAnswer::No,
        FilterVerdict::Maybe => FilterAnswer::Maybe,
    };
    let source = match verdict {
        FilterVerdict::NotConsulted | FilterVerdict::Bypassed => None,
        _ if io.filter_read > 0 => Some(FilterSource::File),
        _ if io.filter_cached > 0 => Some(FilterSource::Cached),
        _ => Some(FilterSource::Pinned),
    };
    ExplainFilter { answer, source, bytes_read: io.filter_bytes }
}

pub(super) fn touched_of(io: &TableIo) -> ExplainTouched {
    ExplainTouched {
        index_seeks: io.index_seeks.into(),
        index_bytes_read: io.index_bytes,
        data_blocks_cached: io.data_cached.into(),
        data_blocks_read: io.data_read.into(),
        data_bytes_read: io.data_bytes,
    }
}

impl fmt::Display for ExplainTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self {
            ExplainTarget::Memtable(0) => "memtable".to_string(),
            ExplainTarget::Memtable(age) => format!("memtable, {age} older"),
            ExplainTarget::Table { level, number } => format!("L{level} {number:06}"),
        })
    }
}

impl fmt::Display for ExplainFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = match self.answer {
            FilterAnswer::NotAsked => "none asked",
            FilterAnswer::Damaged => "damaged, not asked",
            FilterAnswer::No => "NO",
            FilterAnswer::Maybe => "MAYBE",
        };
        f.pad(&match self.source {
            None => answer.to_string(),
            Some(FilterSource::Pinned) => format!("{answer} (pinned)"),
            Some(FilterSource::Cached) => format!("{answer} (cached)"),
            Some(FilterSource::File) => format!("{answer} (read, {})", bytes(self.bytes_read)),
        })
    }
}

impl fmt::Display for ExplainTouched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.index_bytes_read > 0 {
            parts.push(format!("index (read, {})", bytes(self.index_bytes_read)));
        } else if self.index_seeks > 0 {
            parts.push("index".to_string());
        }
        let (read, size) = (self.data_blocks_read, bytes(self.data_bytes_read));
        if read > 0 {
            parts.push(format!("{read} data block (read, {size})"));
        }
        if self.data_blocks_cached > 0 {
            parts.push(format!("{} data block (cached)", self.data_blocks_cached));
        }
        f.pad(&parts.join(", "))
    }
}

impl fmt::Display for ExplainOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ExplainOutcome::Found => "FOUND",
            ExplainOutcome::Deleted => "tombstone",
            ExplainOutcome::RangeDeleted => "range delete",
            ExplainOutcome::Expired => "expired",
            ExplainOutcome::Absent => "not there",
            ExplainOutcome::FalsePositive => "not there  <- false positive",
            ExplainOutcome::Skipped => "skipped",
            ExplainOutcome::Empty => "empty",
        })
    }
}

impl Explain {
    fn question(&self) -> String {
        let key = self.key.escape_ascii();
        match &self.end {
            None => format!("get \"{key}\""),
            Some(Bound::Unbounded) => format!("scan from \"{key}\" on"),
            Some(Bound::Excluded(end)) => {
                format!("scan from \"{key}\" to before \"{}\"", end.escape_ascii())
            }
            Some(Bound::Included(end)) => {
                format!("scan from \"{key}\" to \"{}\"", end.escape_ascii())
            }
        }
    }

    fn answer(&self) -> String {
        let tables = |step: &&ExplainStep| matches!(step.target, ExplainTarget::Table { .. });
        let entered = |step: &&ExplainStep| step.outcome != ExplainOutcome::Skipped;
        match (&self.end, &self.value) {
            (None, Some(value)) => format!("found, {} B", value.len()),
            (None, None) => "not found".into(),
            (Some(_), _) => {
                let asked = self.steps.iter().filter(tables);
                let entered = asked.clone().filter(entered).count();
                format!("entered {entered} of {}", counted(asked.count() as u64, "table"))
            }
        }
    }
}

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} at sequence {}: {}\n", self.question(), self.sequence, self.answer())?;
        for step in &self.steps {
            let ExplainStep { target, filter, touched, outcome } = step;
            writeln!(f, "  {target:<17}  filter {filter:<20}  {touched:<44}  {outcome}")?;
        }
        for (level, count) in self.out_of_range.iter().enumerate().filter(|(_, count)| **count > 0)
        {
            let tables = if *count == 1 { "table" } else { "tables" };
            writeln!(
                f,
                "  L{level} {count:>6} {tables} not asked: out of range, or below the answer"
            )?;
        }
        write!(
            f,
            "\n  looked at {}, read {} from files; without filters: {}",
            counted(self.data_blocks, "data block"),
            bytes(self.bytes_read),
            counted(self.data_blocks_without_filters, "data block")
        )
    }
}
