//! What a run found: plain data, and its tables for people.
//!
//! `probe` fills a [`Measurement`], `experiment` puts the [`Report`] together; the demonstration
//! prints it by `Display` or takes the fields for its JSON, and tests hold bounds against them.
//! Counts are exact and come out the same for the same keys and seed; times do not. A row of a
//! table that says nothing in any column is left out, and a dash stands for "does not apply".

use crate::base::stats::text::bytes;
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
    /// The database of `Full`, its filters not asked: the same files with and without.
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

    /// Its heading.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Column::NoFilter => "no filter",
            Column::BlockBased => "per 2 KiB",
            Column::Full => "full",
            Column::Partitioned => "partitioned",
            Column::FullNotAsked => "full, unasked",
        }
    }

    /// Whether lookups ask filters, if there are any.
    #[must_use]
    pub fn asks_filters(self) -> bool {
        self != Column::FullNotAsked
    }

    /// Whether tables have filters and lookups ask them.
    #[must_use]
    pub fn filters(self) -> bool {
        self.asks_filters() && self != Column::NoFilter
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A part of the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActKind {
    /// Keys that are not there; the cache holds all filters and indexes.
    Absent,
    /// Keys that are there, at all levels; the same cache.
    Present,
    /// Keys that are not there; the cache holds half of the filters' bytes, and nothing is
    /// resident.
    Starved,
}

impl ActKind {
    /// Its heading.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ActKind::Absent => "Keys that are not there",
            ActKind::Present => "Keys that are there",
            ActKind::Starved => "Keys that are not there, and a cache too small for the filters",
        }
    }
}

/// One database of the run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DatabaseFacts {
    /// Which layout it has.
    pub column: Column,
    /// Tables at each level, level 0 first.
    pub tables: Vec<u64>,
    /// Entries in all tables.
    pub entries: u64,
    /// Data blocks in all tables.
    pub data_blocks: u64,
    /// Bytes of those as stored.
    pub data_bytes: u64,
    /// Bytes of all filters.
    pub filter_bytes: u64,
    /// Bytes of all indexes.
    pub index_bytes: u64,
}

/// The lookups of one act in one column.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Measurement {
    /// Which column.
    pub column: Column,
    /// Lookups made.
    pub lookups: u64,
    /// Of these, found.
    pub found: u64,
    /// Data blocks looked at, from cache or file.
    pub data_blocks: u64,
    /// Data blocks read from files.
    pub data_blocks_read: u64,
    /// Bytes of those.
    pub data_bytes_read: u64,
    /// Data indexes searched.
    pub index_seeks: u64,
    /// Index blocks read from files.
    pub index_blocks_read: u64,
    /// Bytes of those.
    pub index_bytes_read: u64,
    /// Filter blocks read from files.
    pub filter_blocks_read: u64,
    /// Bytes of those.
    pub filter_bytes_read: u64,
    /// Data blocks not looked at because a filter said no.
    pub data_blocks_avoided: u64,
    /// Filters that said "maybe" of a table without the key.
    pub false_positives: u64,
    /// Filters asked about a key that their table does not have.
    pub filter_answers_absent: u64,
    /// False positives among those; `None` without any.
    pub observed_fpr: Option<f64>,
    /// The rate to expect of these filters, weighted by how often each level was asked.
    pub expected_fpr: Option<f64>,
    /// Median time of a lookup.
    pub p50_nanos: u32,
    /// Time that 99 of 100 lookups kept within.
    pub p99_nanos: u32,
    /// Read calls that the Env saw.
    pub env_read_calls: u64,
    /// Bytes that the Env saw read.
    pub env_bytes_read: u64,
    /// Counts that do not agree with their witness; empty if all is well.
    pub faults: Vec<String>,
}

impl Measurement {
    /// No lookups yet.
    pub(crate) fn of(column: Column) -> Self {
        Measurement {
            column,
            lookups: 0,
            found: 0,
            data_blocks: 0,
            data_blocks_read: 0,
            data_bytes_read: 0,
            index_seeks: 0,
            index_blocks_read: 0,
            index_bytes_read: 0,
            filter_blocks_read: 0,
            filter_bytes_read: 0,
            data_blocks_avoided: 0,
            false_positives: 0,
            filter_answers_absent: 0,
            observed_fpr: None,
            expected_fpr: None,
            p50_nanos: 0,
            p99_nanos: 0,
            env_read_calls: 0,
            env_bytes_read: 0,
            faults: Vec::new(),
        }
    }

    /// Blocks of any kind read from files.
    #[must_use]
    pub fn blocks_read(&self) -> u64 {
        self.data_blocks_read + self.index_blocks_read + self.filter_blocks_read
    }

    /// Bytes of those.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.data_bytes_read + self.index_bytes_read + self.filter_bytes_read
    }

    /// `count` for each lookup.
    #[must_use]
    pub fn per_lookup(&self, count: u64) -> f64 {
        count as f64 / self.lookups.max(1) as f64
    }
}

/// One act: the same lookups in every column.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Act {
    /// Which one.
    pub kind: ActKind,
    /// Bytes of the block cache, the same in every column.
    pub cache_bytes: u64,
    /// The columns, in the order of [`Column::ALL`].
    pub columns: Vec<Measurement>,
}

impl Act {
    /// The column `column`, if it was measured.
    #[must_use]
    pub fn column(&self, column: Column) -> Option<&Measurement> {
        self.columns.iter().find(|measured| measured.column == column)
    }

    /// The share of data block reads that `column` saves against the database without filters.
    #[must_use]
    pub fn data_reads_saved(&self, column: Column) -> Option<f64> {
        let without = self.column(Column::NoFilter)?.data_blocks_read;
        let with = self.column(column)?.data_blocks_read;
        (without > 0).then(|| 1.0 - with as f64 / without as f64)
    }
}

/// Everything that a run found. Print it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// The databases, in the order of [`Column::ALL`]; the last column has none of its own.
    pub databases: Vec<DatabaseFacts>,
    /// The acts.
    pub acts: Vec<Act>,
    /// Whatever does not add up; a run without faults has none.
    pub faults: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(one) = self.databases.last() {
            let levels: Vec<String> = (0..)
                .zip(&one.tables)
                .filter(|(_, tables)| **tables > 0)
                .map(|(level, tables)| format!("L{level} {tables}"))
                .collect();
            let data = bytes(one.data_bytes);
            let levels = levels.join(", ");
            writeln!(f, "each database: {} data blocks, {data}; tables {levels}", one.data_blocks)?;
        }
        let filters: Vec<String> = self
            .databases
            .iter()
            .filter(|database| database.filter_bytes > 0)
            .map(|database| {
                let bits = 8.0 * database.filter_bytes as f64 / database.entries.max(1) as f64;
                let stored = bytes(database.filter_bytes);
                format!("{} {stored} ({bits:.1} bits a key)", database.column)
            })
            .collect();
        writeln!(f, "filters: {}", filters.join(", "))?;
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

type Row = (&'static str, fn(&Act, &Measurement) -> Option<String>);

const ROWS: [Row; 11] = [
    ("data blocks per lookup", |_, m| Some(decimal(m.per_lookup(m.data_blocks)))),
    ("  of these read from files", |_, m| Some(decimal(m.per_lookup(m.data_blocks_read)))),
    ("  reads saved by filters", |act, m| {
        let saved = act.data_reads_saved(m.column).filter(|_| m.column.filters());
        saved.map(|saved| format!("{:.1} %", 100.0 * saved))
    }),
    ("indexes searched per lookup", |_, m| Some(decimal(m.per_lookup(m.index_seeks)))),
    ("bytes read per lookup", |_, m| Some(size(m, m.bytes_read()))),
    ("  of these filters", |_, m| Some(size(m, m.filter_bytes_read))),
    ("  of these indexes", |_, m| Some(size(m, m.index_bytes_read))),
    ("false positives, observed", |_, m| m.observed_fpr.map(percent)),
    ("false positives, expected", |_, m| m.expected_fpr.map(percent)),
    ("time, half within", |_, m| Some(time(m.p50_nanos))),
    ("time, 99 of 100 within", |_, m| Some(time(m.p99_nanos))),
];

fn write_act(f: &mut fmt::Formatter<'_>, number: u32, act: &Act) -> fmt::Result {
    writeln!(f, "{number}  {} (cache {})", act.kind.name(), bytes(act.cache_bytes))?;
    write!(f, "   {:<28}", "")?;
    for measured in &act.columns {
        write!(f, "{:>15}", measured.column)?;
    }
    writeln!(f)?;
    for (name, cell) in ROWS {
        let cells: Vec<Option<String>> =
            act.columns.iter().map(|measured| cell(act, measured)).collect();
        let says_something =
            |cell: &Option<String>| cell.as_ref().is_some_and(|text| text != "0 B");
        if !cells.iter().any(says_something) {
            continue;
        }
        write!(f, "   {name:<28}")?;
        for cell in cells {
            write!(f, "{:>15}", cell.as_deref().unwrap_or("-"))?;
        }
        writeln!(f)?;
    }
    if let Some(full) = act.column(Column::Full) {
        let all = full.data_blocks + full.data_blocks_avoided;
        writeln!(
            f,
            "   -> of {} data blocks to look at, full filters avoided {}",
            grouped(all),
            grouped(full.data_blocks_avoided)
        )?;
    }
    Ok(())
}

fn decimal(value: f64) -> String {
    format!("{value:.3}")
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
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act() -> Act {
        let measured = |column, data_blocks, data_blocks_read| Measurement {
            lookups: 100,
            data_blocks,
            data_blocks_read,
            ..Measurement::of(column)
        };
        Act {
            kind: ActKind::Absent,
            cache_bytes: 1_000_000,
            columns: vec![measured(Column::NoFilter, 500, 400), measured(Column::Full, 5, 4)],
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
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
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
