//! Empty scans without a filter, with prefixes in the filter and with a range filter: the same keys
//! and the same scans in each database.
//!
//! Half of the scans are within one prefix, which a filter of prefixes can answer. The others go
//! across prefixes, and only a range filter can. Scans begin at keys that are drawn like the stored
//! ones, so the keys are those of [`KeySet::generate`].

use crate::experiment::databases::{Cache, Databases, load_one, read_indexes};
use crate::experiment::figure::{Figure, Picture, Unit, table};
use crate::experiment::keys::{KeySet, below};
use crate::experiment::range_keys::{Range, shared_bytes};
use crate::experiment::report::Column;
use crate::experiment::settings::{Progress, Settings};
use siftdb::{Error, Filter, LevelStats, Options, Prefix, ReadOptions, Result};
use std::path::Path;

/// Scans of each kind in each database, at most.
const SCANS_MAX: usize = 3_000;

/// Keys of each database, at most: three more databases of all keys would take long to load.
const KEYS_MAX: usize = 100_000;

/// Bits per key of the range filter.
const RANGE_BITS: f64 = 12.0;

/// One of the databases, after its scans of each kind.
struct Scanned {
    name: &'static str,
    within: LevelStats,
    across: LevelStats,
}

/// Loads a database without filters, one with prefixes in its filters and one with range filters,
/// and makes the same empty scans in each. The keys are as many as `keys`, up to a limit.
///
/// # Errors
/// A database of a former call in the way; any failure of a database; a scan that finds a key.
pub fn scan_figure(
    settings: &Settings,
    keys: &KeySet,
    progress: &mut dyn FnMut(Progress),
) -> Result<Figure> {
    let keys = &KeySet::generate(keys.len().min(KEYS_MAX), settings.seed);
    let prefix_bytes = prefix_bytes(keys);
    let filter = |filter| Column::Full.filter(filter);
    let prefixes = settings.filter.clone().prefix(Prefix::capped(prefix_bytes));
    let ranges = settings.filter.clone().ranges(RANGE_BITS);
    let loaded = [
        ("no filter", Filter::none(), settings.directory.join("no-scan-filter")),
        ("prefixes in the filter", filter(prefixes), settings.directory.join("prefixes")),
        ("a range filter", filter(ranges), settings.directory.join("ranges")),
    ];
    let mut written = Progress::count("scans", 3 * keys.len() as u64, progress);
    for (_, filter, directory) in &loaded {
        let options = Options::new().filter(filter.clone());
        load_one(settings, keys, options, directory, &mut written)?;
    }
    let databases = Databases::existing(settings)?;
    let kinds = empty_ranges(settings, keys, prefix_bytes);
    let scanned = loaded.iter().map(|(name, _, directory)| {
        let [within, across] = kinds.each_ref().map(|kind| scanned(&databases, directory, kind));
        Ok(Scanned { name, within: within?, across: across? })
    });
    let scanned = scanned.collect::<Result<Vec<_>>>()?;
    Ok(figure_of(&scanned, kinds[0].len() as f64))
}

fn figure_of(scanned: &[Scanned], scans: f64) -> Figure {
    let blocks = |of: &LevelStats| of.scan_data_blocks_read as f64 / scans.max(1.0);
    let of = |one: Option<&Scanned>| one.map_or(0.0, |one| blocks(&one.across));
    let (without, with) = (of(scanned.first()), of(scanned.last()));
    Figure {
        id: "scans",
        title: "Data blocks read by an empty scan".into(),
        finding: format!(
            "An empty scan across prefixes reads {without:.2} blocks without filters, {with:.2} \
             with range filters."
        ),
        picture: Picture::bars(&[1, 2]),
        ..table! { for one in scanned;
            Unit::Text, "filter", "filter" => one.name;
            Unit::Number, "data_blocks_read_within", "within one prefix" => blocks(&one.within);
            Unit::Number, "data_blocks_read_across", "across prefixes" => blocks(&one.across);
            Unit::Bytes, "filter_bytes", "filters" => one.within.filter_bytes;
            Unit::Bytes, "range_filter_bytes", "range filters" => one.within.range_filter_bytes;
            Unit::Count, "scans", "scans" => scans;
        }
    }
}

/// The shortest prefix that differs between nine of ten keys and the next one.
fn prefix_bytes(keys: &KeySet) -> usize {
    let pairs = keys.iter().zip(keys.iter().skip(1));
    let mut shared: Vec<usize> = pairs.map(|(one, next)| shared_bytes(one, next)).collect();
    shared.sort_unstable();
    shared.get(shared.len() * 9 / 10).map_or(1, |bytes| bytes + 1)
}

/// Ranges without a key: the keys with one prefix, and a quarter of the mean gap from a key on.
fn empty_ranges(settings: &Settings, keys: &KeySet, prefix_bytes: usize) -> [Vec<Range>; 2] {
    let mut state = settings.seed ^ 0x5ca9;
    let span = KeySet::generated_span(keys.len());
    let (gap, scans) = (span / keys.len().max(1) as u64, settings.lookups.min(SCANS_MAX));
    let mut draw = |bounds: &dyn Fn(u64) -> Range| -> Vec<Range> {
        let drawn = std::iter::repeat_with(|| bounds(below(&mut state, span as usize) as u64));
        drawn.filter(|range| keys.rank(&range.start) == keys.rank(&range.end)).take(scans).collect()
    };
    let within = draw(&|number| {
        let mut start = KeySet::generated_key(number);
        start.truncate(prefix_bytes);
        let mut end = start.clone();
        // A digit, or one of the letters before them.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        start..end
    });
    let across = draw(&|number| {
        KeySet::generated_key(number)..KeySet::generated_key(number + (gap / 4).max(1))
    });
    [within, across]
}

/// The counters of these scans.
fn scanned(databases: &Databases<'_>, directory: &Path, ranges: &[Range]) -> Result<LevelStats> {
    let db = databases.open_at(directory, Cache::ROOMY)?;
    read_indexes(&db)?;
    let before = db.stats();
    // No scan finds its blocks in the cache.
    let options = ReadOptions::new().fill_cache(false);
    for range in ranges {
        if let Some(entry) = db.range_with(range.clone(), &options).next() {
            let what = format!("a key in an empty range: {:?}", entry?.0);
            return Err(Error::MemoryCorruption { what });
        }
    }
    let scanned = db.stats().since(&before).total();
    db.close()?;
    Ok(scanned)
}
