//! One lookup in words: [`Explain`], made of the trace that the real read path leaves behind.
//!
//! `explain` runs `read::get` itself, with a trace, so it can neither drift from the lookup nor
//! flatter it; it counts in the statistics and warms the cache like any other lookup.

use crate::db::read::{self, LookupTrace, MemtableStep};
use crate::db::state::Shared;
use crate::error::Result;
use crate::key::Lookup;
use crate::options::access::ReadOptions;
use crate::stats::counters::LEVELS;
use crate::stats::text::bytes;
use crate::table::fetch::TableIo;
use crate::table::filter_block::layout::FilterVerdict;
use crate::value::Value;
use std::fmt;

/// What one lookup touched, place by place. Print it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explain {
    /// The key that was looked up.
    pub key: Vec<u8>,
    /// The sequence the lookup read at.
    pub sequence: u64,
    /// The value that was found.
    pub value: Option<Value>,
    /// Places in the order they were asked.
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

/// One place that was asked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExplainStep {
    /// For instance `memtable` or `L2 000041`.
    pub place: String,
    /// What the filter said, and where it was.
    pub filter: String,
    /// Blocks touched.
    pub touched: String,
    /// What was found.
    pub outcome: &'static str,
}

/// Looks `key` up and says what that did.
///
/// # Errors
/// As the lookup itself.
pub fn explain(shared: &Shared, key: &[u8], options: &ReadOptions) -> Result<Explain> {
    let mut trace = LookupTrace::default();
    let value = read::get(shared, key, None, options, Some(&mut trace))?;
    let memtables = trace.memtables.iter().enumerate().map(|(age, step)| {
        let (filter, found) = match step {
            MemtableStep::Empty => ("none asked", "empty"),
            MemtableStep::Skipped => ("NO", "skipped"),
            MemtableStep::Searched(lookup) if options.use_filters => ("MAYBE", outcome(lookup)),
            MemtableStep::Searched(lookup) => ("none asked", outcome(lookup)),
        };
        ExplainStep {
            place: if age == 0 { "memtable".into() } else { format!("memtable, {age} older") },
            filter: filter.into(),
            touched: String::new(),
            outcome: found,
        }
    });
    let mut steps: Vec<_> = memtables.collect();
    let (mut data_blocks, mut bytes_read, mut avoided) = (0, 0, 0);
    for table in &trace.tables {
        let io = &table.io;
        data_blocks += u64::from(io.data_cached + io.data_read);
        bytes_read += io.data_bytes + io.index_bytes + io.filter_bytes;
        avoided += u64::from(table.verdict == FilterVerdict::No);
        let false_positive =
            table.verdict == FilterVerdict::Maybe && table.lookup == Lookup::Absent;
        steps.push(ExplainStep {
            place: format!("L{} {:06}", table.level, table.number),
            filter: filter_text(table.verdict, io),
            touched: touched_text(io),
            outcome: match table.verdict {
                FilterVerdict::No => "blocks skipped",
                _ if false_positive => "not there  <- false positive",
                _ => outcome(&table.lookup),
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
        sequence: trace.sequence,
        value,
        steps,
        out_of_range,
        data_blocks,
        bytes_read,
        data_blocks_without_filters: data_blocks + avoided,
    })
}

fn outcome(lookup: &Lookup) -> &'static str {
    match lookup {
        Lookup::Found(_) => "FOUND",
        Lookup::Deleted => "tombstone",
        Lookup::Absent => "not there",
    }
}

fn filter_text(verdict: FilterVerdict, io: &TableIo) -> String {
    let answer = match verdict {
        FilterVerdict::NotConsulted if io.filter_errors > 0 => return "damaged, not asked".into(),
        FilterVerdict::NotConsulted => return "none asked".into(),
        FilterVerdict::No => "NO",
        FilterVerdict::Maybe => "MAYBE",
    };
    let source = if io.filter_read > 0 {
        format!("read, {}", bytes(io.filter_bytes))
    } else if io.filter_cached > 0 {
        "cached".into()
    } else {
        "resident".into()
    };
    format!("{answer} ({source})")
}

fn touched_text(io: &TableIo) -> String {
    let mut parts = Vec::new();
    if io.index_read > 0 {
        parts.push(format!("index (read, {})", bytes(io.index_bytes)));
    } else if io.index_seeks > 0 {
        parts.push("index".to_string());
    }
    if io.data_read > 0 {
        parts.push(format!("{} data block (read, {})", io.data_read, bytes(io.data_bytes)));
    }
    if io.data_cached > 0 {
        parts.push(format!("{} data block (cached)", io.data_cached));
    }
    parts.join(", ")
}

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.escape_ascii();
        let result = match &self.value {
            Some(value) => format!("found, {} B", value.len()),
            None => "not found".into(),
        };
        writeln!(f, "get \"{key}\" at sequence {}: {result}\n", self.sequence)?;
        for step in &self.steps {
            let ExplainStep { place, filter, touched, outcome } = step;
            writeln!(f, "  {place:<17}  filter {filter:<20}  {touched:<44}  {outcome}")?;
        }
        for (level, count) in self.out_of_range.iter().enumerate().filter(|(_, count)| **count > 0)
        {
            writeln!(
                f,
                "  L{level} {count:>6} tables not asked: out of range, or below the answer"
            )?;
        }
        write!(
            f,
            "\n  looked at {} data blocks, read {} from files; without filters: {} data blocks",
            self.data_blocks,
            bytes(self.bytes_read),
            self.data_blocks_without_filters
        )
    }
}
