//! Bits divided over the levels by `Filter::monkey` against even bits, in the same memory.

use crate::base::error::Result;
use crate::base::levels::LEVELS;
use crate::base::stats::report::LevelStats;
use crate::db::database::Db;
use crate::experiment::databases::{Cache, Databases, PINNED_SHARE, load_one};
use crate::experiment::figure::{Cell, Figure, Heading, Picture, Scale, Unit};
use crate::experiment::keys::KeySet;
use crate::experiment::report::Column;
use crate::experiment::settings::{Progress, Settings, Stage};
use crate::options::filter::Filter;
use std::path::Path;

/// Loads a database whose filters share as many bytes as those of the database with full filters,
/// and looks up absent keys in both. `None` if the run has no full filters.
///
/// # Errors
/// A database of a former call in the way; any failure of a database.
pub fn monkey_figure(
    settings: &Settings,
    keys: &KeySet,
    command: &str,
    progress: &mut dyn FnMut(Progress),
) -> Result<Option<Figure>> {
    let databases = Databases::existing(settings)?;
    let budget = databases.filter_bytes(Column::Full);
    if budget == 0 {
        return Ok(None);
    }
    let directory = settings.directory.join("monkey");
    let filter = Column::Full.filter(Filter::monkey(budget));
    let total = keys.len() as u64;
    let mut done = 0;
    load_one(settings, keys, filter.clone(), &directory, &mut |written| {
        done += written;
        progress(Progress { stage: Stage::Monkey, done, total });
    })?;
    let absent = keys.absent(settings.lookups, settings.seed ^ 0xab5e);
    let even = settings.database(Column::Full);
    let [even, divided] =
        [(even.as_path(), Column::Full.filter(settings.filter.clone())), (&directory, filter)]
            .map(|(directory, filter)| asked(&databases, directory, filter, &absent));
    let (even, divided) = (even?, divided?);
    let levels = (0..LEVELS).filter(|level| even[*level].tables + divided[*level].tables > 0);
    let each = |count: u64| Cell::Number(count as f64 / absent.len().max(1) as f64);
    let bits = |level: &LevelStats| match level.entries {
        0 => Cell::Absent,
        entries => Cell::Number(8.0 * level.filter_bytes as f64 / entries as f64),
    };
    let row = |name: String, even: &LevelStats, divided: &LevelStats| {
        vec![
            Cell::Text(name),
            each(even.false_positives),
            each(divided.false_positives),
            bits(even),
            bits(divided),
            Cell::Number(even.filter_bytes as f64),
            Cell::Number(divided.filter_bytes as f64),
        ]
    };
    let mut rows: Vec<Vec<Cell>> =
        levels.map(|level| row(format!("L{level}"), &even[level], &divided[level])).collect();
    let [all_even, all_divided] = [&even, &divided].map(|levels| sum(levels));
    rows.push(row("all".into(), &all_even, &all_divided));
    let heading = |name, label, unit| Heading { name, label, unit };
    Ok(Some(Figure {
        id: "monkey",
        title: "The same memory for filters, divided evenly and by Monkey".into(),
        finding: finding(&all_even, &all_divided),
        command: command.into(),
        columns: vec![
            heading("level", "level", Unit::Text),
            heading("even_false_positives", "false positives a lookup, even bits", Unit::Number),
            heading("monkey_false_positives", "the same, Monkey", Unit::Number),
            heading("even_bits_per_key", "bits a key, even", Unit::Number),
            heading("monkey_bits_per_key", "bits a key, Monkey", Unit::Number),
            heading("even_filter_bytes", "filters, even", Unit::Bytes),
            heading("monkey_filter_bytes", "filters, Monkey", Unit::Bytes),
        ],
        rows,
        picture: Picture::Bars { labels: vec![0], values: vec![1, 2], scale: Scale::Linear },
    }))
}

/// The counters of each level after lookups of these absent keys.
fn asked(
    databases: &Databases<'_>,
    directory: &Path,
    filter: Filter,
    absent: &[Vec<u8>],
) -> Result<Vec<LevelStats>> {
    let cache = Cache { bytes: 1 << 30, pinned_share: PINNED_SHARE };
    let db: Db = databases.open_at(directory, filter, cache)?;
    let before = db.stats();
    for key in absent {
        db.get(key)?;
    }
    let levels = db.stats().since(&before).levels;
    db.close()?;
    Ok(levels)
}

fn sum(levels: &[LevelStats]) -> LevelStats {
    let mut sum = LevelStats::default();
    for level in levels {
        sum.tables += level.tables;
        sum.entries += level.entries;
        sum.filter_bytes += level.filter_bytes;
        sum.false_positives += level.false_positives;
    }
    sum
}

fn finding(even: &LevelStats, divided: &LevelStats) -> String {
    let change = divided.false_positives as f64 / even.false_positives.max(1) as f64 - 1.0;
    let (percent, word) = (100.0 * change.abs(), if change < 0.0 { "fewer" } else { "more" });
    format!(
        "With {} of filters Monkey passes {percent:.0} % {word} absent keys than even bits with \
         {}: small levels get more bits a key, because each is asked as often as a large one.",
        Unit::Bytes.print(divided.filter_bytes as f64),
        Unit::Bytes.print(even.filter_bytes as f64),
    )
}
