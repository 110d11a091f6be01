//! One lookup, step by step, for teaching: what is asked, with which hash and bits, what the answer
//! means, and what is not read because of it. `explain --step` and `demo --step` print it.
//!
//! On a terminal each step waits for Enter.

use crate::failure::Outcome;
use crate::output::Text;
use crate::text::counted;
use siftdb::filter::{Encoding, KeyHash};
use siftdb::{Explain, ExplainOutcome, ExplainTarget, FilterAnswer, FilterFacts, FilterReport};
use siftdb_cli::experiment::{LookupPart, LookupStep, bytes, lookup_steps, source_name};
use std::io::{self, BufRead, IsTerminal, Write};

/// Prints the steps of `explain`; `report` is of the same keyspace.
pub fn walk(explain: &Explain, report: &FilterReport, out: &mut Text<'_>) -> Outcome {
    let wait = io::stdin().is_terminal() && io::stdout().is_terminal();
    writeln!(out, "lookup of \"{}\" at sequence {}", explain.key.escape_ascii(), explain.sequence)?;
    let mut number = 0u64;
    let steps = lookup_steps(explain, report);
    for step in &steps {
        number += 1;
        let table = facts_of(step.target, report);
        writeln!(out, "\n{number}  {}: {}", step.target, step.part.name())?;
        for (name, text) in lines(explain, step, table) {
            writeln!(out, "   {name:<9} {text}")?;
        }
        if wait {
            write!(out, "   (Enter: next step) ")?;
            out.flush()?;
            if io::stdin().lock().read_line(&mut String::new())? == 0 {
                writeln!(out)?;
            }
        }
    }
    writeln!(out)?;
    for (level, tables) in (0..).zip(&explain.out_of_range).filter(|(_, tables)| **tables > 0) {
        let level: u32 = level;
        writeln!(out, "   not asked  {tables} of L{level}: other keys, or below the answer")?;
    }
    let found = match &explain.value {
        Some(value) => format!("found, {} B", value.len()),
        None => "not found".into(),
    };
    let blocks = |count| counted(count, "data block");
    let (looked_at, without) = (explain.data_blocks, explain.data_blocks_without_filters);
    let (steps, read) = (counted(number, "step"), bytes(explain.bytes_read));
    writeln!(out, "   in all     {found}: {steps}, {} looked at, {read} read", blocks(looked_at))?;
    let saved = blocks(without - looked_at);
    writeln!(out, "   saved      {saved}: without filters {}", blocks(without))?;
    Ok(())
}

fn facts_of(target: ExplainTarget, report: &FilterReport) -> Option<&FilterFacts> {
    let ExplainTarget::Table { number, .. } = target else { return None };
    report.tables.iter().find(|facts| facts.table == number)
}

/// The lines of a step: what each is about, and the text.
fn lines(
    explain: &Explain,
    step: &LookupStep,
    table: Option<&FilterFacts>,
) -> Vec<(&'static str, String)> {
    let of_target = explain.steps.iter().find(|of| of.target == step.target);
    let outcome = of_target.map(|of| of.outcome);
    let mut lines = vec![("asked", question(explain, step, table))];
    let read = match step.bytes_read {
        0 => String::new(),
        read => format!(", {} read", bytes(read)),
    };
    lines.push(("where", format!("{}{read}", source_name(step.source))));
    lines.push(("answer", step.answer.clone()));
    let says_no = of_target.is_some_and(|of| of.filter.answer == FilterAnswer::No);
    let meaning = match (step.part, outcome) {
        (LookupPart::Filter, _) if says_no => {
            "one of the bits is 0, and every key that was put in has all of its bits set"
        }
        (LookupPart::Filter, Some(ExplainOutcome::FalsePositive)) => {
            "all of the bits are 1, here set by other keys: only the data block tells"
        }
        (LookupPart::Filter, _) => "the key may be here, so the search continues",
        (LookupPart::Index, _) => "the index knows the last key of each block",
        (
            _,
            Some(
                ExplainOutcome::Found
                | ExplainOutcome::Deleted
                | ExplainOutcome::RangeDeleted
                | ExplainOutcome::Expired,
            ),
        ) => "newer data comes first, so the search ends here",
        _ => "the search continues in older data",
    };
    lines.push(("means", meaning.into()));
    if says_no && step.part == LookupPart::Filter {
        let has_index = of_target.is_some_and(|of| of.touched.index_seeks > 0);
        let unread = match (step.target, has_index) {
            (ExplainTarget::Memtable(_), _) => "the entries of the memtable",
            (_, true) => "the data block",
            (_, false) => "the index and the data block of this table",
        };
        lines.push(("not read", unread.into()));
    }
    lines
}

fn question(explain: &Explain, step: &LookupStep, table: Option<&FilterFacts>) -> String {
    let key = KeyHash::new(&explain.key);
    match step.part {
        LookupPart::Memtable => "the key, in a sorted list in memory".into(),
        LookupPart::Index => "which block has the key, if any, by binary search".into(),
        LookupPart::DataBlocks(_) => "the key, by binary search in the block".into(),
        LookupPart::Filter => match table {
            Some(table) => filter_question(&key, table),
            None => format!("hash {:016x} (XXPH3), in the filter of the memtable", key.xxph3()),
        },
    }
}

/// With which hash and for which bits the filter of a table is asked.
fn filter_question(key: &KeyHash<'_>, table: &FilterFacts) -> String {
    let hash = match table.encoding.as_str() {
        "leveldb-bloom" => format!("hash {:08x} (LevelDB's)", key.leveldb()),
        "legacy-bloom" => format!("hash {:08x} (LevelDB's, of RocksDB)", key.legacy()),
        "fast-local-bloom" | "ribbon" => format!("hash {:016x} (XXPH3)", key.xxph3()),
        _ => format!("the key, by the policy {}", table.policy),
    };
    let millibits = table.asked_bits_per_key.map_or(0, |bits| (1_000.0 * bits).round() as u64);
    let encoding = Encoding::of_table(&table.encoding, millibits);
    let full = table.layout == "full";
    let probed = encoding.as_ref().filter(|_| full).and_then(|of| of.probed_bits(table.bytes, key));
    let asked = match (probed, encoding.and_then(|of| of.probes())) {
        (Some(probed), _) => {
            let bits: Vec<String> = probed.bits.iter().map(usize::to_string).collect();
            let line = probed.line.map(|(line, lines)| format!("line {line} of {lines}, "));
            format!("{}bits {}", line.unwrap_or_default(), bits.join(" "))
        }
        (None, Some(probes)) if full => format!("{probes} probes"),
        (None, Some(probes)) if table.layout.starts_with("partitioned") => {
            format!("{probes} probes in the partition whose keys include it")
        }
        (None, Some(probes)) => format!("{probes} probes in the filter of the block's offset"),
        (None, None) => "all of its bits".into(),
    };
    format!("{hash}: {asked} ({}, {})", table.encoding, table.layout)
}
