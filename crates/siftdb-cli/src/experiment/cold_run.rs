//! Lookups in files that are not in the system's cache: how often they read the disk, and how long
//! that takes.

use crate::experiment::cold_files::{disk_bytes_read, make_cold};
use crate::experiment::databases::{Databases, read_indexes};
use crate::experiment::figure::{Figure, Picture, Unit, table};
use crate::experiment::keys::KeySet;
use crate::experiment::probe::measure;
use crate::experiment::settings::Settings;
use siftdb::{ReadOptions, Result};
use std::time::{Duration, Instant};

/// Data blocks for each lookup: more lookups would often meet blocks that are read already.
const BLOCKS_PER_LOOKUP: u64 = 20;

/// How long one run lasts, at most.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Lookups of absent and of present keys in cold files, with filters and without. The databases are
/// those of a finished run. The inner error is the line that says why nothing can be cold; there is
/// no figure then.
///
/// # Errors
/// Any failure of a database.
pub fn cold_figure(
    settings: &Settings,
    keys: &KeySet,
) -> Result<std::result::Result<Figure, String>> {
    let databases = Databases::existing(settings)?;
    // The same files with filters and without, if there are full ones.
    let column = settings.filtered();
    let (cache, _) = databases.caches()?;
    let blocks = databases.facts.first().map_or(0, |facts| facts.total.data_blocks);
    let lookups = settings.lookups.min(blocks.div_ceil(BLOCKS_PER_LOOKUP).max(20) as usize);
    let mut runs = Vec::new();
    for is_present in [false, true] {
        let keys = match is_present {
            false => keys.absent(lookups, settings.seed ^ 0xc01d),
            true => keys.present(lookups, settings.seed ^ 0xc01d),
        };
        for use_filters in [true, false] {
            let db = databases.open(column, cache)?;
            read_indexes(&db)?;
            if let Err(why) = make_cold(db.path()) {
                db.close()?;
                return Ok(Err(why));
            }
            let options = ReadOptions::new().use_filters(use_filters);
            let (started, before) = (Instant::now(), disk_bytes_read());
            let in_time = keys.iter().take_while(|_| started.elapsed() < TIME_MAX);
            let one = measure(&db, &databases.env, in_time, |_| is_present, &options, &mut |_| {})?;
            let disk = disk_bytes_read().zip(before).map(|(after, before)| after - before);
            db.close()?;
            runs.push((is_present, use_filters, one, disk));
        }
    }
    let mut figure = Figure {
        id: "cold",
        title: "Lookups in files that are not in the system's cache".into(),
        picture: Picture::Bars { labels: vec![0, 1], values: vec![2], interval: None },
        ..table! { for (is_present, use_filters, one, disk) in runs;
            Unit::Text, "keys", "keys" => if is_present { "present" } else { "absent" };
            Unit::Text, "filters", "filters" =>
                if use_filters { "with filters" } else { "without" };
            Unit::Number, "disk_reads", "reads of the disk" => one.per_lookup(one.env_read_calls);
            Unit::Bytes, "disk_bytes_read", "read from the disk" =>
                disk.map(|bytes| one.per_lookup(bytes));
            Unit::Nanos, "p50_nanos", "half within" => f64::from(one.p50_nanos);
            Unit::Nanos, "p99_nanos", "99 % within" => f64::from(one.p99_nanos);
            Unit::Count, "lookups", "lookups" => one.lookups;
        }
    };
    figure.finding = finding(&figure);
    Ok(Ok(figure))
}

fn finding(figure: &Figure) -> String {
    let cell = |row: usize, column| figure.text(&figure.rows[row], column);
    format!(
        "A lookup of an absent key reads the disk {} times with filters and {} without; half of \
         them end within {} and {}.",
        cell(0, 2),
        cell(1, 2),
        cell(0, 4),
        cell(1, 4)
    )
}
