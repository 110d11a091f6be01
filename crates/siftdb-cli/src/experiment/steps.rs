//! The steps of one lookup, from an [`Explain`]: as data and as a picture.

use crate::experiment::figure::{Figure, Picture, Unit, table};
use siftdb::inspect::bytes;
use siftdb::{
    Explain, ExplainOutcome, ExplainStep, ExplainTarget, FilterAnswer, FilterReport, FilterSource,
};

/// One thing that a lookup touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupStep {
    /// The memtable or table.
    pub target: ExplainTarget,
    /// The part that was asked.
    pub part: LookupPart,
    /// Its answer, in words.
    pub answer: String,
    /// Where it was; `None` if it was not touched.
    pub source: Option<FilterSource>,
    /// Bytes read from the file.
    pub bytes_read: u64,
}

/// The part of a memtable or table that a step asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupPart {
    /// The entries of a memtable.
    Memtable,
    /// A filter.
    Filter,
    /// The index over the data blocks.
    Index,
    /// Data blocks; the number is 1, unless versions of a key fill several.
    DataBlocks(u64),
}

impl LookupPart {
    /// It in words.
    pub fn name(self) -> String {
        match self {
            LookupPart::Memtable => "entries".into(),
            LookupPart::Filter => "filter".into(),
            LookupPart::Index => "index".into(),
            LookupPart::DataBlocks(1) => "1 data block".into(),
            LookupPart::DataBlocks(blocks) => format!("{blocks} data blocks"),
        }
    }
}

/// The steps of a lookup in their order. `report` says which filters are asked after the index.
pub fn lookup_steps(explain: &Explain, report: &FilterReport) -> Vec<LookupStep> {
    let steps = explain.steps.iter().flat_map(|step| match step.target {
        ExplainTarget::Table { number, .. } => {
            let facts = report.tables.iter().find(|facts| facts.table == number);
            let index_first = facts.is_some_and(|facts| facts.layout.starts_with("block-based"));
            table_steps(step, index_first)
        }
        _ => memtable_steps(step),
    });
    steps.collect()
}

fn memtable_steps(step: &ExplainStep) -> Vec<LookupStep> {
    let one = |part, answer: &str| LookupStep {
        target: step.target,
        part,
        answer: answer.into(),
        source: Some(FilterSource::Pinned),
        bytes_read: 0,
    };
    let found = found_in(step.outcome);
    match step.filter.answer {
        FilterAnswer::No => vec![one(LookupPart::Filter, "no: the key is not here")],
        FilterAnswer::Maybe => {
            vec![one(LookupPart::Filter, "maybe"), one(LookupPart::Memtable, found)]
        }
        _ => vec![one(LookupPart::Memtable, found)],
    }
}

fn table_steps(step: &ExplainStep, index_first: bool) -> Vec<LookupStep> {
    let (filter, touched) = (&step.filter, &step.touched);
    let one = |part, answer: &str, source, bytes_read| LookupStep {
        target: step.target,
        part,
        answer: answer.into(),
        source,
        bytes_read,
    };
    let from =
        |is_read: bool, otherwise| Some(if is_read { FilterSource::File } else { otherwise });
    let mut steps = Vec::new();
    let answer = match filter.answer {
        FilterAnswer::Damaged => Some("damaged, so it is not used"),
        FilterAnswer::No => Some("no: the key is not here, and no data block is read"),
        FilterAnswer::Maybe => Some("maybe"),
        _ => None,
    };
    if let Some(answer) = answer {
        steps.push(one(LookupPart::Filter, answer, filter.source, filter.bytes_read));
    }
    if touched.index_seeks > 0 {
        let source = from(touched.index_bytes_read > 0, FilterSource::Pinned);
        let answer = match touched.data_blocks_cached + touched.data_blocks_read {
            0 => "in which block the key would be",
            _ => "the block to look into",
        };
        let index = one(LookupPart::Index, answer, source, touched.index_bytes_read);
        // Block-based filters are by offset, which only the index knows.
        let place = if index_first { 0 } else { steps.len() };
        steps.insert(place, index);
    }
    let blocks = touched.data_blocks_cached + touched.data_blocks_read;
    if blocks > 0 {
        let source = from(touched.data_blocks_read > 0, FilterSource::Cached);
        let part = LookupPart::DataBlocks(blocks);
        steps.push(one(part, found_in(step.outcome), source, touched.data_bytes_read));
    }
    steps
}

fn found_in(outcome: ExplainOutcome) -> &'static str {
    match outcome {
        ExplainOutcome::Found => "found",
        ExplainOutcome::Deleted | ExplainOutcome::RangeDeleted => "deleted: the search ends",
        ExplainOutcome::Expired => "expired: the search ends",
        ExplainOutcome::FalsePositive => "not there: a false positive of the filter",
        ExplainOutcome::Empty => "empty",
        _ => "not there",
    }
}

/// Where a step found its bytes, in words.
pub fn source_name(source: Option<FilterSource>) -> &'static str {
    match source {
        Some(FilterSource::Pinned) => "memory",
        Some(FilterSource::Cached) => "cache",
        Some(FilterSource::File) => "file",
        _ => "-",
    }
}

/// The steps of a lookup as the figure `id`.
pub fn steps_figure(id: &'static str, explain: &Explain, report: &FilterReport) -> Figure {
    let asked = lookup_steps(explain, report).into_iter().map(|step| {
        let (place, what) = (step.target.to_string(), step.part.name());
        (place, what, step.answer, step.source, Some(step.bytes_read))
    });
    let unasked = (0..).zip(&explain.out_of_range).filter(|(_, tables)| **tables > 0);
    let unasked = unasked.map(|(level, tables): (u32, _)| {
        let what = if *tables == 1 { "1 table".into() } else { format!("{tables} tables") };
        let answer = "not asked: other keys, or below the answer".to_string();
        (format!("L{level}"), what, answer, None, None)
    });
    let (article, is_there) =
        if explain.value.is_some() { ("a", "present") } else { ("an", "absent") };
    let avoided = explain.data_blocks_without_filters - explain.data_blocks;
    Figure {
        id,
        title: format!("What the lookup of {article} {is_there} key touched"),
        finding: format!(
            "The key \"{}\" is {is_there}: the lookup looked at {} and read {}; filters saved {}.",
            explain.key.escape_ascii(),
            LookupPart::DataBlocks(explain.data_blocks).name(),
            bytes(explain.bytes_read),
            LookupPart::DataBlocks(avoided).name(),
        ),
        picture: Picture::Steps { what: 1, answer: 2, place: 0, read: 4 },
        ..table! { for (place, what, answer, source, bytes_read) in asked.chain(unasked);
            Unit::Text, "place", "memtable or table" => place;
            Unit::Text, "what", "asked" => what;
            Unit::Text, "answer", "answer" => answer;
            Unit::Text, "source", "where it was" => source_name(source);
            Unit::Bytes, "bytes_read", "read from the file" => bytes_read;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::figure::Cell;
    use crate::experiment::keys::{absent, present};
    use crate::experiment::load::level0;
    use siftdb::Db;
    use siftdb::Filter;
    use siftdb::FilterLayout;
    use siftdb::Options;
    use siftdb::ReadOptions;
    use siftdb::env::MemEnv;
    use std::path::Path;
    use std::sync::Arc;

    const LAYOUTS: [FilterLayout; 3] = [
        FilterLayout::Full,
        FilterLayout::Partitioned { block_bytes: 4096 },
        FilterLayout::BlockBased { window_bytes: 2048 },
    ];

    fn database(layout: FilterLayout) -> Db {
        let options = Options::new().env(Arc::new(MemEnv::new()));
        let options = options.filter(Filter::bloom(4.0).layout(layout));
        level0(Path::new("/steps"), &options, 3_000, 4).unwrap()
    }

    #[test]
    fn steps_name_everything_that_explain_counts() {
        for layout in LAYOUTS {
            let db = database(layout);
            db.put(present(1), "newer").unwrap();
            for key in (0..300).flat_map(|n| [present(n), absent(n)]) {
                for filters in [true, false] {
                    let how = ReadOptions::new().use_filters(filters);
                    let explain = db.explain_with(key, &how).unwrap();
                    let steps = lookup_steps(&explain, &db.filter_report());
                    let of = |asked: fn(&LookupPart) -> u64| -> u64 {
                        steps.iter().map(|step| asked(&step.part)).sum()
                    };
                    let blocks = of(|part| match part {
                        LookupPart::DataBlocks(blocks) => *blocks,
                        _ => 0,
                    });
                    assert_eq!(blocks, explain.data_blocks, "{explain}");
                    let seeks = of(|part| u64::from(*part == LookupPart::Index));
                    let counted = explain.steps.iter().map(|step| step.touched.index_seeks);
                    assert_eq!(seeks, counted.sum::<u64>(), "{explain}");
                    let asked = of(|part| u64::from(*part == LookupPart::Filter));
                    let answered = explain
                        .steps
                        .iter()
                        .filter(|step| step.filter.answer != FilterAnswer::NotAsked);
                    assert_eq!(asked, answered.count() as u64, "{explain}");
                    let read: u64 = steps.iter().map(|step| step.bytes_read).sum();
                    assert_eq!(read, explain.bytes_read, "{explain}");
                }
            }
        }
    }

    #[test]
    fn block_based_filters_follow_the_index() {
        for layout in LAYOUTS {
            let db = database(layout);
            let steps = lookup_steps(&db.explain(present(7)).unwrap(), &db.filter_report());
            let is_first = |part: LookupPart| {
                let asked = steps.iter().filter(|step| step.part != LookupPart::Memtable);
                asked.take(1).all(|step| step.part == part)
            };
            let after = matches!(layout, FilterLayout::BlockBased { .. });
            assert_eq!(is_first(LookupPart::Index), after, "{layout}: {steps:?}");
            assert_eq!(is_first(LookupPart::Filter), !after, "{layout}: {steps:?}");
        }
    }

    #[test]
    fn pictures_of_steps_say_what_was_not_asked() {
        let db = database(FilterLayout::Full);
        db.compact_range(..).unwrap();
        let before_all = [0; 3];
        let explain = db.explain(before_all).unwrap();
        let figure = steps_figure("steps-absent", &explain, &db.filter_report());
        assert!(figure.finding.contains("is absent: the lookup looked at 0"), "{figure:?}");
        assert!(figure.rows.iter().any(|row| row[1] == Cell::Text("1 table".into())), "{figure:?}");
        assert!(figure.rows.iter().all(|row| row.len() == figure.columns.len()));
    }
}
