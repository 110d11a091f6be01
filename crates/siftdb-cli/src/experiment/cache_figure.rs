//! Bytes read over the size of the cache: where full filters stop paying and partitions begin to.

use crate::experiment::databases::{Cache, Databases, Lookups};
use crate::experiment::figure::{Figure, Picture, Unit, table};
use crate::experiment::keys::KeySet;
use crate::experiment::probe::Measurement;
use crate::experiment::report::Column;
use crate::experiment::settings::{Progress, Settings};
use siftdb::Result;
use siftdb::inspect::bytes;

/// Lookups with each cache in each layout, at most.
const LOOKUPS_MAX: usize = 1_000;

/// The reads of a lookup of an absent key with each of these `caches`, in bytes, or with those
/// around the size of the filters if none are given. The databases are those of a finished run.
///
/// # Errors
/// Any failure of a database.
pub fn cache_figure(
    settings: &Settings,
    keys: &KeySet,
    caches: &[u64],
    progress: &mut dyn FnMut(Progress),
) -> Result<Figure> {
    let databases = Databases::existing(settings)?;
    let filters = databases.filters_to_hold();
    let mut caches = match caches {
        [] => vec![filters / 8, filters / 4, filters / 2, filters, 2 * filters, 4 * filters],
        given => given.to_vec(),
    };
    caches.sort_unstable();
    caches.dedup();
    let layouts: Vec<Column> = settings.databases().collect();
    let absent = keys.absent(settings.lookups.min(LOOKUPS_MAX), settings.seed ^ 0xab5e);
    // Other keys than those measured, whose blocks would all be in a larger cache.
    let warm_up = keys.absent(absent.len(), settings.seed ^ 0x3a93);
    let lookups = Lookups { keys: &absent, warm_up: &warm_up, is_present: &|_| false };
    let total = (caches.len() * layouts.len() * absent.len()) as u64;
    let (mut points, mut looked_up) = (Vec::new(), Progress::count("caches", total, progress));
    for column in &layouts {
        for bytes in &caches {
            let cache = Cache { bytes: *bytes, pinned_share: 0.0 };
            let measured = databases.look_up(*column, cache, &lookups, &mut looked_up)?;
            points.push((*column, *bytes, measured));
        }
    }
    Ok(Figure {
        id: "bytes-by-cache",
        title: "Bytes read for an absent key over the size of the cache".into(),
        finding: finding(&points, &caches),
        picture: Picture::log_lines(1, 2),
        ..table! { for (column, cache, one) in &points;
            Unit::Text, "layout", "layout" => column.name();
            Unit::Bytes, "cache_bytes", "cache" => *cache;
            Unit::Bytes, "bytes_read", "read a lookup" => one.per_lookup(one.bytes_read());
            Unit::Bytes, "filter_bytes_read", "of these filters" =>
                one.per_lookup(one.total.filter_bytes_read);
            Unit::Bytes, "index_bytes_read", "indexes" =>
                one.per_lookup(one.total.index_bytes_read);
            Unit::Bytes, "data_bytes_read", "data" => one.per_lookup(one.total.data_bytes_read);
        }
    })
}

/// Where the full layout begins to read no more than the partitioned one.
fn finding(points: &[(Column, u64, Measurement)], caches: &[u64]) -> String {
    let read = |column: Column, cache: u64| {
        let point = points.iter().find(|(of, bytes, _)| (*of, *bytes) == (column, cache));
        point.map(|(.., one)| one.per_lookup(one.bytes_read()))
    };
    let both = |cache: &u64| {
        Some((*cache, read(Column::Full, *cache)?, read(Column::Partitioned, *cache)?))
    };
    let both: Vec<_> = caches.iter().filter_map(both).collect();
    let Some((smallest, full, partitioned)) = both.first() else {
        return "A cache that holds all filters and indexes leaves only data to read.".into();
    };
    let size = |number: f64| Unit::Bytes.print(number);
    let small = format!(
        "With a cache of {} the full layout reads {} a lookup, the partitioned one {}",
        bytes(*smallest),
        size(*full),
        size(*partitioned)
    );
    // Equal but for noise.
    let is_even = |(_, full, partitioned): &&(u64, f64, f64)| *full <= 1.1 * partitioned;
    match both.iter().rev().take_while(is_even).last() {
        Some((cache, ..)) if cache == smallest => format!("{small}: partitions save nothing here."),
        Some((cache, ..)) => {
            format!("{small}; from {} on, the full layout reads no more.", bytes(*cache))
        }
        None => format!("{small}; partitions read less with every cache here."),
    }
}
