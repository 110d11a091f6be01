//! Pictures of a keyspace's tree: its tables, and where the bytes are.

use crate::experiment::figure::{Figure, Picture, Unit, table};
use siftdb::inspect::bytes;
use siftdb::{FilterFacts, Keyspace, Result, TableInfo};
use std::ops::Bound;

/// Boxes of one level. A level of more tables has boxes of several tables each.
const BOXES_MAX: usize = 48;

/// The figures `tree` and `bytes-by-level` of `keyspace`.
///
/// # Errors
/// A data index cannot be read or is damaged; `Closed`; `KeyspaceDropped`.
pub fn tree_figures(keyspace: &Keyspace) -> Result<Vec<Figure>> {
    let (tables, filters) = (keyspace.tables(), keyspace.filter_report().tables);
    let levels = levels_of(&tables, &filters);
    let mut boxes = Vec::new();
    for level in &levels {
        boxes.extend(level.boxes(keyspace)?);
    }
    let tree = Figure {
        id: "tree",
        title: "The tree: levels, tables and filters".into(),
        finding: tree_finding(&levels),
        picture: Picture::Boxes { group: 0, label: 1, ends: (7, 8), shade: Some(6) },
        ..table! { for TreeBox { label, tables, ends } in boxes;
            Unit::Text, "level", "level" => tables.name();
            Unit::Text, "table", "table" => label;
            Unit::Count, "entries", "entries" => tables.sum(|table| table.entries);
            Unit::Bytes, "bytes", "size of the file" => tables.sum(|table| table.bytes);
            Unit::Text, "filter", "filter" => tables.filter_kind();
            Unit::Bytes, "filter_bytes", "size of the filter" =>
                tables.sum(filter_bytes);
            Unit::Share, "filter_share", "share of the filter" =>
                tables.sum(filter_bytes) as f64
                    / tables.sum(|table| table.bytes).max(1) as f64;
            Unit::Share, "from_share", "entries before its keys" => ends.0;
            Unit::Share, "to_share", "up to its last key" => ends.1;
        }
    };
    let bytes_by_level = Figure {
        id: "bytes-by-level",
        title: "Where the bytes are".into(),
        finding: bytes_finding(&levels),
        picture: Picture::bars(&[3, 4, 5]),
        ..table! { for level in &levels;
            Unit::Text, "level", "level" => level.name();
            Unit::Count, "tables", "tables" => level.tables.len() as u64;
            Unit::Count, "entries", "entries" => level.sum(|table| table.entries);
            Unit::Bytes, "data_bytes", "data" =>
                level.sum(|one| one.bytes.saturating_sub(filter_bytes(one) + one.index_bytes));
            Unit::Bytes, "filter_bytes", "filters" => level.sum(filter_bytes);
            Unit::Bytes, "index_bytes", "indexes" => level.sum(|table| table.index_bytes);
            Unit::Number, "bits_per_key", "bits a key" =>
                level.per_key(|filter| Some(8.0 * filter.bytes as f64));
            Unit::Share, "expected_fpr", "expected false positives" =>
                level.per_key(|filter| Some(filter.expected_fpr? * filter.keys as f64));
        }
    };
    Ok(vec![tree, bytes_by_level])
}

/// A level that has tables.
struct LevelTables<'a> {
    level: usize,
    tables: Vec<(&'a TableInfo, Option<&'a FilterFacts>)>,
}

/// A table, or several neighbours of a level that has many.
struct TreeBox<'a> {
    label: String,
    tables: LevelTables<'a>,
    /// Where its keys begin and end: the shares of the keyspace's entries that are before.
    ends: (f64, f64),
}

fn levels_of<'a>(tables: &'a [TableInfo], filters: &'a [FilterFacts]) -> Vec<LevelTables<'a>> {
    let mut levels: Vec<LevelTables<'a>> = Vec::new();
    for table in tables {
        if levels.last().is_none_or(|last| last.level != table.level) {
            levels.push(LevelTables { level: table.level, tables: Vec::new() });
        }
        let filter = filters.iter().find(|filter| filter.table == table.number);
        if let Some(level) = levels.last_mut() {
            level.tables.push((table, filter));
        }
    }
    levels
}

impl<'a> LevelTables<'a> {
    fn name(&self) -> String {
        format!("L{}", self.level)
    }

    fn sum(&self, one: impl Fn(&TableInfo) -> u64) -> u64 {
        self.tables.iter().map(|(table, _)| one(table)).sum()
    }

    fn boxes(&self, keyspace: &Keyspace) -> Result<Vec<TreeBox<'a>>> {
        let of_a_box = self.tables.len().div_ceil(BOXES_MAX).max(1);
        let boxes = self.tables.chunks(of_a_box).map(|tables| {
            let label = match tables {
                [(table, _)] => format!("{:06}", table.number),
                _ => format!("{} tables", tables.len()),
            };
            let tables = LevelTables { level: self.level, tables: tables.to_vec() };
            let ends = tables.place(keyspace)?;
            Ok(TreeBox { label, tables, ends })
        });
        boxes.collect()
    }

    /// Where its keys begin and end: the shares of the keyspace's entries that are before.
    fn place(&self, keyspace: &Keyspace) -> Result<(f64, f64)> {
        let ends = self.tables.iter().map(|(table, _)| &table.end);
        let last = ends.max_by_key(|end| match end {
            Bound::Unbounded => (true, &[][..], false),
            Bound::Excluded(key) => (false, &key[..], false),
            Bound::Included(key) => (false, &key[..], true),
        });
        let last = last.cloned().unwrap_or(Bound::Unbounded);
        let first = self.tables.iter().map(|(table, _)| table.first_key.clone()).min();
        let first = Bound::Excluded(first.unwrap_or_default());
        let all = keyspace.estimate_range(..)?.entries.max(1) as f64;
        let before = |end| Ok(keyspace.estimate_range((Bound::Unbounded, end))?.entries as f64);
        Ok((before(first)? / all, before(last)? / all))
    }

    /// Encoding and layout of the filters.
    fn filter_kind(&self) -> String {
        let mut kinds: Vec<String> = Vec::new();
        for (_, filter) in &self.tables {
            let kind = match filter.filter(|filter| !filter.policy.is_empty()) {
                Some(filter) if filter.encoding.is_empty() => filter.policy.clone(),
                Some(filter) => format!("{}, {}", filter.encoding, filter.layout),
                None => "none".into(),
            };
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds.join("; ")
    }

    /// The sum of `of` over the filters that have keys, for each key; `None` without such, or if
    /// one has no answer.
    fn per_key(&self, of: impl Fn(&FilterFacts) -> Option<f64>) -> Option<f64> {
        let filters = self.tables.iter().filter_map(|(_, filter)| *filter);
        let filters = filters.filter(|filter| filter.keys > 0);
        let keys: u64 = filters.clone().map(|filter| filter.keys).sum();
        let sum: f64 = filters.map(of).sum::<Option<f64>>()?;
        (keys > 0).then(|| sum / keys as f64)
    }
}

fn tree_finding(levels: &[LevelTables<'_>]) -> String {
    let tables: usize = levels.iter().map(|level| level.tables.len()).sum();
    let Some(last) = levels.last() else {
        return "No tables: all entries are in memory and in the log.".into();
    };
    // At level 0 tables overlap, so each may have to be asked; below, one of each level.
    let runs: usize =
        levels.iter().map(|level| if level.level == 0 { level.tables.len() } else { 1 }).sum();
    let all: u64 = levels.iter().map(|level| level.sum(|table| table.bytes)).sum();
    format!(
        "A lookup may have to ask {runs} of {tables} tables: all of level 0 and one of each level \
         below. Level {} has {:.0} % of the bytes.",
        last.level,
        100.0 * last.sum(|table| table.bytes) as f64 / all.max(1) as f64
    )
}

/// Bytes of the filters of a table, for keys and for ranges.
fn filter_bytes(table: &TableInfo) -> u64 {
    table.filter_bytes + table.range_filter_bytes
}

fn bytes_finding(levels: &[LevelTables<'_>]) -> String {
    let all: u64 = levels.iter().map(|level| level.sum(|table| table.bytes)).sum();
    let filters: u64 = levels.iter().map(|level| level.sum(filter_bytes)).sum();
    format!(
        "Filters take {} of {}, {:.1} % of the tables.",
        bytes(filters),
        bytes(all),
        100.0 * filters as f64 / all.max(1) as f64
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::figure::Cell;
    use crate::experiment::load::level0;
    use siftdb::Options;
    use siftdb::env::MemEnv;
    use std::path::Path;
    use std::sync::Arc;

    fn sum(figure: &Figure, column: usize) -> f64 {
        let numbers = figure.rows.iter().filter_map(|row| match row[column] {
            Cell::Number(number) => Some(number),
            _ => None,
        });
        numbers.sum()
    }

    #[test]
    fn figures_of_trees_add_up_to_the_tables() {
        let options = Options::new().env(Arc::new(MemEnv::new()));
        let db = level0(Path::new("/tree"), &options, 4_000, 100).unwrap();
        let (tables, figures) = (db.tables(), tree_figures(&db).unwrap());
        let [tree, by_level] = figures.as_slice() else { panic!("{figures:?}") };
        assert!(tree.rows.len() <= BOXES_MAX && tree.rows.len() > 20, "{}", tree.rows.len());
        let filters: u64 = tables.iter().map(|table| table.filter_bytes).sum();
        let all: u64 = tables.iter().map(|table| table.bytes).sum();
        assert_eq!((sum(tree, 2), sum(tree, 3), sum(tree, 5)), (4e3, all as f64, filters as f64));
        assert_eq!(sum(by_level, 1), 100.0);
        assert_eq!((3..6).map(|column| sum(by_level, column)).sum::<f64>(), all as f64);
        assert!(sum(by_level, 5) > 0.0);
        assert!(tree.finding.contains("100 of 100 tables"), "{}", tree.finding);
        for figure in figures {
            assert!(figure.rows.iter().all(|row| row.len() == figure.columns.len()));
        }
    }

    #[test]
    fn boxes_of_a_tree_lie_along_its_keys() {
        let options = Options::new().env(Arc::new(MemEnv::new())).table_bytes(16 << 10);
        let db = level0(Path::new("/keys"), &options, 4_000, 4).unwrap();
        let ends = || {
            let figures = tree_figures(&db).unwrap();
            let shares = |row: &Vec<Cell>| [7, 8].map(|column| figures[0].number(row, column));
            figures[0].rows.iter().map(shares).map(|ends| ends.map(Option::unwrap)).collect()
        };
        let overlapping: Vec<[f64; 2]> = ends();
        assert_eq!(overlapping.len(), 4);
        assert!(overlapping.iter().all(|[from, to]| *from < 0.02 && *to > 0.98), "{overlapping:?}");
        db.compact_range(..).unwrap();
        let disjoint: Vec<[f64; 2]> = ends();
        assert!(disjoint.len() > 4 && disjoint[0][0] == 0.0, "{disjoint:?}");
        assert!(disjoint.windows(2).all(|pair| pair[0][1] <= pair[1][0]), "{disjoint:?}");
        let covered: f64 = disjoint.iter().map(|[from, to]| to - from).sum();
        assert!(covered > 0.999, "{disjoint:?}");
    }

    #[test]
    fn empty_trees_have_figures() {
        let db = Options::new().env(Arc::new(MemEnv::new())).open("/empty").unwrap();
        let figures = tree_figures(&db).unwrap();
        assert!(figures.iter().all(|figure| figure.rows.is_empty()));
        assert!(figures[0].finding.contains("in memory"), "{}", figures[0].finding);
    }
}
