//! The result of a run: plain data, which prints as tables.
//!
//! `probe` makes each [`Measurement`], `run` collects them in a [`Report`]. The demonstration
//! prints the report, or its fields as JSON. Counts are exact and equal for equal keys and seed;
//! times are not. A table leaves out rows without content. A dash means "does not apply".

use crate::experiment::figure::Unit;
use crate::experiment::probe::Measurement;
use siftdb::inspect::{TableFacts, bytes};
use siftdb::{Filter, FilterLayout};
use std::fmt;

/// One way to look keys up: a column of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Column {
    /// A database without filters.
    NoFilter,
    /// A filter for each 2 KiB of data offsets, as in LevelDB.
    BlockBased,
    /// One filter for each table.
    Full,
    /// Filters cut into partitions under an index of their own.
    Partitioned,
    /// The same files as `Full`, without asking the filters.
    FullNotAsked,
}

impl Column {
    /// All of them, in the order of the tables.
    pub const ALL: [Column; 5] = [
        Column::NoFilter,
        Column::BlockBased,
        Column::Full,
        Column::Partitioned,
        Column::FullNotAsked,
    ];

    /// The name of its layout in options, and of its database.
    pub fn layout(self) -> &'static str {
        match self {
            Column::NoFilter => "none",
            Column::BlockBased => "block-based",
            Column::Full | Column::FullNotAsked => "full",
            Column::Partitioned => "partitioned",
        }
    }

    /// Its heading.
    pub fn name(self) -> &'static str {
        match self {
            Column::NoFilter => "no filter",
            Column::BlockBased => "per 2 KiB",
            Column::Full => "full",
            Column::Partitioned => "partitioned",
            Column::FullNotAsked => "full, unasked",
        }
    }

    /// Its filters, with the encoding of `filter`.
    pub fn filter(self, filter: Filter) -> Filter {
        match self {
            Column::NoFilter => Filter::none(),
            Column::BlockBased => filter.layout(FilterLayout::BlockBased { window_bytes: 2048 }),
            Column::Full | Column::FullNotAsked => filter.layout(FilterLayout::Full),
            Column::Partitioned => filter.layout(FilterLayout::Partitioned { block_bytes: 4096 }),
        }
    }

    /// Whether lookups ask filters, if there are any.
    pub fn asks_filters(self) -> bool {
        self != Column::FullNotAsked
    }

    /// Whether tables have filters and lookups ask them.
    pub fn filters(self) -> bool {
        self.asks_filters() && self != Column::NoFilter
    }
}

/// A part of the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActKind {
    /// Keys that are not there; the cache holds all filters and indexes.
    Absent,
    /// Keys that are there, at all levels; the same cache.
    Present,
    /// Keys of which a share is there; the same cache.
    Mixed,
    /// Keys that are not there; the cache holds half of the filters' bytes, and nothing is
    /// pinned.
    Starved,
}

impl ActKind {
    /// Its heading.
    pub fn name(self) -> &'static str {
        match self {
            ActKind::Absent => "Keys that are not there",
            ActKind::Present => "Keys that are there",
            ActKind::Mixed => "Keys of which some are there",
            ActKind::Starved => "Keys that are not there, and a cache too small for the filters",
        }
    }
}

/// One database of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseFacts {
    /// Its layout.
    pub column: Column,
    /// Tables at each level, level 0 first.
    pub tables: Vec<u64>,
    /// The facts of all tables, added up.
    pub total: TableFacts,
}

/// One act: the same lookups in every column.
#[derive(Clone, Debug, PartialEq)]
pub struct Act {
    /// Which one.
    pub kind: ActKind,
    /// Bytes of the block cache, the same in every column.
    pub cache_bytes: u64,
    /// The columns, in the order of [`Column::ALL`].
    pub columns: Vec<(Column, Measurement)>,
}

impl Act {
    /// The column `column`, if it was measured.
    pub fn column(&self, column: Column) -> Option<&Measurement> {
        self.columns.iter().find(|(of, _)| *of == column).map(|(_, measured)| measured)
    }

    /// The share of data block reads that `column` saves against the database without filters.
    pub fn data_reads_saved(&self, column: Column) -> Option<f64> {
        let without = self.column(Column::NoFilter)?.total.data_blocks_read;
        let with = self.column(column)?.total.data_blocks_read;
        (without > 0).then(|| 1.0 - with as f64 / without as f64)
    }
}

/// Everything that a run found. Print it.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The databases, in the order of [`Column::ALL`]; the last column has none of its own.
    pub databases: Vec<DatabaseFacts>,
    /// The acts.
    pub acts: Vec<Act>,
    /// Counts that disagree; empty in a sound run.
    pub faults: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(one) = self.databases.last() {
            let (blocks, data) = (one.total.data_blocks, bytes(one.total.data_bytes));
            let levels = (0..).zip(&one.tables).filter(|(_, tables)| **tables > 0);
            let levels = levels.map(|(level, tables): (u32, _)| format!("L{level} {tables}"));
            let levels = levels.collect::<Vec<_>>().join(", ");
            writeln!(f, "each database: {blocks} data blocks, {data}; tables {levels}")?;
        }
        let filters: Vec<String> = self
            .databases
            .iter()
            .filter(|database| database.total.filter_bytes > 0)
            .map(|database| {
                let (filter_bytes, entries) = (database.total.filter_bytes, database.total.entries);
                let bits = 8.0 * filter_bytes as f64 / entries.max(1) as f64;
                let stored = bytes(filter_bytes);
                format!("{} {stored} ({bits:.1})", database.column.name())
            })
            .collect();
        writeln!(f, "filters (bits a key): {}", filters.join(", "))?;
        for (number, act) in (1..).zip(&self.acts) {
            writeln!(f)?;
            write_act(f, number, act)?;
        }
        writeln!(f)?;
        if self.faults.is_empty() {
            write!(
                f,
                "checked: the engine's counts of blocks and bytes read are exactly what the \
                 files saw.\ntimes: one thread, files mostly in the system's page cache."
            )
        } else {
            write!(f, "FAULTS: these figures are not to be trusted\n  {}", self.faults.join("\n  "))
        }
    }
}

type Row = (&'static str, fn(&Act, Column, &Measurement) -> Option<String>);

const ROWS: [Row; 11] = [
    ("data blocks per lookup", |_, _, m| Some(decimal(m, m.total.data_blocks()))),
    ("  of these read from files", |_, _, m| Some(decimal(m, m.total.data_blocks_read))),
    ("  reads saved by filters", |act, column, _| {
        let saved = act.data_reads_saved(column).filter(|_| column.filters());
        saved.map(|saved| format!("{:.1} %", 100.0 * saved))
    }),
    ("index searches per lookup", |_, _, m| Some(decimal(m, m.total.index_seeks))),
    ("bytes read per lookup", |_, _, m| Some(size(m, m.bytes_read()))),
    ("  of these filters", |_, _, m| Some(size(m, m.total.filter_bytes_read))),
    ("  of these indexes", |_, _, m| Some(size(m, m.total.index_bytes_read))),
    ("false positives, observed", |_, _, m| m.total.observed_fpr().map(percent)),
    ("false positives, expected", |_, _, m| m.expected_fpr.map(percent)),
    ("time, half within", |_, _, m| Some(time(m.p50_nanos))),
    ("time, 99 of 100 within", |_, _, m| Some(time(m.p99_nanos))),
];

fn write_act(f: &mut fmt::Formatter<'_>, number: u32, act: &Act) -> fmt::Result {
    let lookups = grouped(act.columns.first().map_or(0, |(_, measured)| measured.lookups));
    let (name, cache) = (act.kind.name(), bytes(act.cache_bytes));
    writeln!(f, "{number}  {name} ({lookups} lookups, cache {cache})")?;
    write!(f, "   {:<26}", "")?;
    for (column, _) in &act.columns {
        write!(f, "{:>14}", column.name())?;
    }
    writeln!(f)?;
    for (name, cell) in ROWS {
        let cells: Vec<Option<String>> =
            act.columns.iter().map(|(column, one)| cell(act, *column, one)).collect();
        let says_something =
            |cell: &Option<String>| cell.as_ref().is_some_and(|text| text != "0 B");
        if !cells.iter().any(says_something) {
            continue;
        }
        write!(f, "   {name:<26}")?;
        for cell in cells {
            write!(f, "{:>14}", cell.as_deref().unwrap_or("-"))?;
        }
        writeln!(f)?;
    }
    if let Some(full) = act.column(Column::Full) {
        let avoided = full.total.data_blocks_avoided();
        let all = grouped(full.total.data_blocks() + avoided);
        let avoided = grouped(avoided);
        writeln!(f, "   -> of {all} data blocks to look at, full filters avoided {avoided}")?;
    }
    Ok(())
}

fn decimal(measured: &Measurement, count: u64) -> String {
    format!("{:.3}", measured.per_lookup(count))
}

fn percent(rate: f64) -> String {
    format!("{:.3} %", 100.0 * rate)
}

fn size(measured: &Measurement, count: u64) -> String {
    bytes(measured.per_lookup(count).round() as u64)
}

fn time(nanos: u32) -> String {
    if nanos < 100_000 {
        format!("{:.1} us", f64::from(nanos) / 1000.0)
    } else {
        format!("{} us", nanos / 1000)
    }
}

/// A count with commas between thousands.
fn grouped(count: u64) -> String {
    Unit::Count.print(count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use siftdb::LevelStats;

    fn act() -> Act {
        let measured = |cached, read| {
            let mut total = LevelStats::default();
            (total.data_blocks_cached, total.data_blocks_read) = (cached, read);
            Measurement { lookups: 100, total, ..Measurement::default() }
        };
        Act {
            kind: ActKind::Absent,
            cache_bytes: 1_000_000,
            columns: vec![(Column::NoFilter, measured(100, 400)), (Column::Full, measured(1, 4))],
        }
    }

    #[test]
    fn savings_compare_with_no_filter() {
        let act = act();
        assert_eq!(act.data_reads_saved(Column::Full), Some(0.99));
        assert_eq!(act.data_reads_saved(Column::NoFilter), Some(0.0));
        assert_eq!(act.data_reads_saved(Column::Partitioned), None);
    }

    #[test]
    fn reports_leave_out_empty_rows() {
        let text = Report { databases: Vec::new(), acts: vec![act()], faults: Vec::new() };
        let text = text.to_string();
        assert!(text.contains("99.0 %"), "{text}");
        assert!(!text.contains("false positives") && !text.contains("of these filters"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let faulty = Report { databases: Vec::new(), acts: Vec::new(), faults: vec!["x".into()] };
        assert!(faulty.to_string().contains("FAULTS"));
    }

    #[test]
    fn counts_have_thousands_separators() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
