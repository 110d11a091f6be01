//! All filters: no filter, and five encodings in three layouts each; and where a table has its
//! filter.

use crate::support::stores::as_env;
use siftdb::env::MemEnv;
use siftdb::filter::{FilterPolicy, PrefixExtractor};
use siftdb::{Filter, FilterLayout, Prefix, inspect};
use std::path::Path;
use std::sync::Arc;

/// A filter with a name for messages.
#[derive(Clone, Debug)]
pub struct NamedFilter {
    pub name: String,
    pub filter: Filter,
    /// The highest allowed false-positive rate; `None` for no limit.
    pub fpr_max: Option<f64>,
}

/// The layouts, with windows and partitions so small that little data fills several.
pub fn layouts() -> [(&'static str, FilterLayout); 3] {
    [
        ("block-based", FilterLayout::BlockBased { window_bytes: 2048 }),
        ("full", FilterLayout::Full),
        ("partitioned", FilterLayout::Partitioned { block_bytes: 256 }),
    ]
}

/// No filter first, then all encodings in all layouts.
pub fn all_filters() -> Vec<NamedFilter> {
    let none = NamedFilter { name: "none".into(), filter: Filter::none(), fpr_max: None };
    let mut filters = vec![none];
    for (layout_name, layout) in layouts() {
        for (at, (encoding, filter)) in encodings().into_iter().enumerate() {
            filters.push(NamedFilter {
                name: format!("{encoding} {layout_name}"),
                filter: ranged(at, filter).layout(layout),
                // At 10 bits per key, built-in filters have a rate of about 1 %, Marks of 2 %.
                fpr_max: Some(if encoding == "marks" { 0.03 } else { 0.016 }),
            });
        }
    }
    filters
}

/// Filters with prefixes: every extractor, each in one of the layouts, with and without whole keys.
pub fn prefix_filters() -> Vec<NamedFilter> {
    let layouts = layouts().into_iter().filter(|(name, _)| *name != "block-based");
    let choices = layouts.flat_map(|layout| [(layout, true), (layout, false)]).collect::<Vec<_>>();
    let rules = prefix_rules().into_iter().zip(choices.into_iter().cycle());
    let filters = rules.enumerate().map(|(at, (rule, ((layout_name, layout), whole_key)))| {
        let filter = ranged(at, Filter::bloom(10.0));
        NamedFilter {
            name: format!("bloom {layout_name}, {rule:?}, whole keys: {whole_key}"),
            filter: filter.layout(layout).prefix(rule).whole_key(whole_key),
            fpr_max: None,
        }
    });
    filters.collect()
}

/// Every second filter with a range filter besides.
fn ranged(at: usize, filter: Filter) -> Filter {
    if at.is_multiple_of(2) { filter.ranges(7.0) } else { filter }
}

/// Every kind of prefix extractor.
pub fn prefix_rules() -> Vec<Prefix> {
    vec![
        Prefix::fixed(1),
        Prefix::fixed(3),
        Prefix::capped(2),
        Prefix::delimited(b'a', 1),
        Prefix::delimited(b'-', 2),
        Prefix::custom(Arc::new(UpToDash)),
    ]
}

/// A custom prefix extractor: the part up to the first dash.
#[derive(Debug)]
pub struct UpToDash;

impl PrefixExtractor for UpToDash {
    fn id(&self) -> &str {
        "test.UpToDash"
    }

    fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let dash = key.iter().position(|&byte| byte == b'-')?;
        key.get(..=dash)
    }

    fn prefix_of_all<'k>(&self, common: &'k [u8]) -> Option<&'k [u8]> {
        self.prefix(common)
    }
}

/// One filter of each layout, FastLocalBloom, and none.
pub fn one_of_each_layout() -> Vec<NamedFilter> {
    let names = ["none", "bloom block-based", "bloom full", "bloom partitioned"];
    all_filters().into_iter().filter(|filter| names.contains(&filter.name.as_str())).collect()
}

fn encodings() -> [(&'static str, Filter); 5] {
    [
        ("leveldb", Filter::leveldb_bloom(10.0)),
        ("bloom", Filter::bloom(10.0)),
        ("ribbon", Filter::ribbon(10.0)),
        ("legacy", Filter::legacy_bloom(10.0)),
        ("marks", Filter::custom(Arc::new(Marks))),
    ]
}

/// A custom policy: a sorted list of 32-bit hashes of the keys. It says "maybe" for one absent key
/// in 50, so that there are false positives.
#[derive(Debug)]
pub struct Marks;

impl Marks {
    fn mark(key: &[u8]) -> u32 {
        let mut hash = 0x811c_9dc5_u32;
        for &byte in key {
            hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
        hash ^ (hash >> 15)
    }
}

impl FilterPolicy for Marks {
    fn name(&self) -> &str {
        "test.Marks"
    }

    fn create_filter(&self, keys: &[&[u8]], dst: &mut Vec<u8>) {
        let mut marks: Vec<u32> = keys.iter().map(|key| Marks::mark(key)).collect();
        marks.sort_unstable();
        marks.iter().for_each(|mark| dst.extend_from_slice(&mark.to_le_bytes()));
    }

    fn key_may_match(&self, key: &[u8], filter: &[u8]) -> bool {
        let mark = Marks::mark(key);
        let (marks, rest) = filter.as_chunks::<4>();
        if !rest.is_empty() || mark.is_multiple_of(50) {
            return true;
        }
        marks.binary_search_by_key(&mark, |bytes| u32::from_le_bytes(*bytes)).is_ok()
    }

    fn keys_per_partition(&self, partition_bytes: usize) -> usize {
        (partition_bytes / 4).max(1)
    }
}

/// The middle of a table's filter, by `inspect`: of the block that the metaindex names, or with
/// `partition` of the first partition.
pub fn filter_offset(env: &MemEnv, table: &Path, partition: bool) -> usize {
    let mut text = Vec::new();
    inspect::layout(&as_env(env), table, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let mut lines = text.lines().skip_while(|line| !line.starts_with("  filter "));
    let line = if partition { lines.nth(2) } else { lines.next() };
    let range = line.unwrap().split_whitespace().nth(1).unwrap();
    let (start, end) = range.split_once("..").unwrap();
    (start.parse::<usize>().unwrap() + end.parse::<usize>().unwrap()) / 2
}
