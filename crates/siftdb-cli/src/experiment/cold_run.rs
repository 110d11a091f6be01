//! Lookups in files that are not in the system's cache: how often they read the disk, and how long
//! that takes.

use crate::experiment::databases::{Databases, read_indexes};
use crate::experiment::figure::{Cell, Figure, Heading, Picture, Scale, Unit};
use crate::experiment::keys::KeySet;
use crate::experiment::probe::measure;
use crate::experiment::report::Column;
use crate::experiment::settings::Settings;
use siftdb::ReadOptions;
use siftdb::Result;
use std::path::Path;
use std::time::{Duration, Instant};

/// Data blocks for each lookup: more lookups would often meet blocks that are read already.
const BLOCKS_PER_LOOKUP: u64 = 20;

/// How long one run lasts, at most.
const TIME_MAX: Duration = Duration::from_secs(5);

/// The services that the experiment needs of the system.
pub struct ColdFiles<'a> {
    /// Drops the files of a directory from the system's cache, or says in a line why it cannot.
    pub make_cold: &'a dyn Fn(&Path) -> std::result::Result<(), String>,
    /// Bytes that this process had read from the disk so far, if the system counts them.
    pub disk_bytes_read: &'a dyn Fn() -> Option<u64>,
}

/// Lookups of absent and of present keys in cold files, with filters and without. The databases are
/// those of a finished run. The inner error is the line that says why nothing can be cold; there is
/// no figure then.
///
/// # Errors
/// Any failure of a database.
pub fn cold_figure(
    settings: &Settings,
    keys: &KeySet,
    command: &str,
    files: &ColdFiles<'_>,
) -> Result<std::result::Result<Figure, String>> {
    let databases = Databases::existing(settings)?;
    // The same files with filters and without, if there are full ones.
    let layouts = [Column::Full, Column::Partitioned, Column::BlockBased, Column::NoFilter];
    let column = layouts.into_iter().find(|column| settings.columns.contains(column));
    let column = column.unwrap_or(Column::NoFilter);
    let (cache, _) = databases.caches()?;
    let blocks = databases.facts.first().map_or(0, |facts| facts.total.data_blocks);
    let lookups = settings.lookups.min(blocks.div_ceil(BLOCKS_PER_LOOKUP).max(20) as usize);
    let mut rows = Vec::new();
    for is_present in [false, true] {
        let keys = match is_present {
            false => keys.absent(lookups, settings.seed ^ 0xc01d),
            true => keys.present(lookups, settings.seed ^ 0xc01d),
        };
        for use_filters in [true, false] {
            let db = databases.open(column, cache)?;
            read_indexes(&db)?;
            if let Err(why) = (files.make_cold)(db.path()) {
                db.close()?;
                return Ok(Err(why));
            }
            let options = ReadOptions::new().use_filters(use_filters);
            let (started, before) = (Instant::now(), (files.disk_bytes_read)());
            let in_time = keys.iter().take_while(|_| started.elapsed() < TIME_MAX);
            let one = measure(&db, &databases.env, in_time, |_| is_present, &options, &mut |_| {})?;
            let disk = (files.disk_bytes_read)().zip(before).map(|(after, before)| after - before);
            db.close()?;
            rows.push(vec![
                Cell::Text(if is_present { "present" } else { "absent" }.into()),
                Cell::Text(if use_filters { "with filters" } else { "without" }.into()),
                Cell::Number(one.per_lookup(one.env_read_calls)),
                disk.map_or(Cell::Absent, |bytes| Cell::Number(one.per_lookup(bytes))),
                Cell::Number(f64::from(one.p50_nanos)),
                Cell::Number(f64::from(one.p99_nanos)),
                Cell::Number(one.lookups as f64),
            ]);
        }
    }
    let mut figure = Figure {
        id: "cold",
        title: "Lookups in files that are not in the system's cache".into(),
        finding: String::new(),
        command: command.into(),
        columns: vec![
            Heading { name: "keys", label: "keys", unit: Unit::Text },
            Heading { name: "filters", label: "filters", unit: Unit::Text },
            Heading { name: "disk_reads", label: "reads of the disk", unit: Unit::Number },
            Heading { name: "disk_bytes_read", label: "read from the disk", unit: Unit::Bytes },
            Heading { name: "p50_nanos", label: "half within", unit: Unit::Nanos },
            Heading { name: "p99_nanos", label: "99 % within", unit: Unit::Nanos },
            Heading { name: "lookups", label: "lookups", unit: Unit::Count },
        ],
        rows,
        picture: Picture::Bars {
            labels: vec![0, 1],
            values: vec![2],
            interval: None,
            scale: Scale::Linear,
        },
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
