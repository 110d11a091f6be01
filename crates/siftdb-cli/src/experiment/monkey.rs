//! Bits divided over the levels as by `Filter::monkey` against even bits, in the same memory.
//!
//! A budget is divided again whenever the tree changes, and tables keep the filters that they were
//! written with. So the division is computed for the tree of the run, and the tree is loaded once
//! more with these bits: both have the same tables.

use crate::experiment::databases::{Cache, Databases, load_one};
use crate::experiment::figure::{Figure, Picture, Unit, table};
use crate::experiment::keys::KeySet;
use crate::experiment::report::Column;
use crate::experiment::settings::{Progress, Settings};
use crate::filter_advice::advice;
use siftdb::filter::Encoding;
use siftdb::{Filter, LevelStats, Options, Result, Stats};
use std::path::Path;

/// Loads a database whose filters take as many bytes as those of the database with full filters,
/// divided over the levels, and looks up absent keys in both. `None` if the run has no full filters
/// of the default encoding, for which bits are divided.
///
/// # Errors
/// A database of a former call in the way; any failure of a database.
pub fn monkey_figure(
    settings: &Settings,
    keys: &KeySet,
    progress: &mut dyn FnMut(Progress),
) -> Result<Option<Figure>> {
    let databases = Databases::existing(settings)?;
    let budget = databases.filter_bytes(Column::Full);
    if budget == 0 {
        return Ok(None);
    }
    let (even, divided) = (settings.database(Column::Full), settings.directory.join("monkey"));
    let db = databases.open_at(&even, Cache::ROOMY)?;
    let report = db.filter_report();
    db.close()?;
    let default = Encoding::FastLocalBloom { millibits: 10_000 };
    if report.tables.iter().any(|table| table.encoding != default.label()) {
        return Ok(None);
    }
    let filter = |bits: f64| match bits {
        0.0 => Filter::none(),
        bits => Column::Full.filter(Filter::bloom(bits)),
    };
    let levels = advice(&report, budget).levels;
    let options = levels.iter().fold(Options::new(), |options, level| {
        options.filter_at_level(level.level, filter(level.bits_divided))
    });
    let mut written = Progress::count("monkey", keys.len() as u64, progress);
    load_one(settings, keys, options, &divided, &mut written)?;
    let absent = keys.absent(settings.lookups, settings.seed ^ 0xab5e);
    let [even, divided] = [even, divided].map(|directory| asked(&databases, &directory, &absent));
    Ok(Some(figure_of(&even?, &divided?, absent.len() as f64)))
}

fn figure_of(even: &Stats, divided: &Stats, lookups: f64) -> Figure {
    let levels = even.levels.iter().cloned().zip(divided.levels.iter().cloned()).enumerate();
    let levels = levels.filter(|(_, (even, divided))| even.tables + divided.tables > 0);
    let levels = levels.map(|(level, both)| (format!("L{level}"), both));
    let all = (even.total(), divided.total());
    let finding = finding(&all.0, &all.1);
    let passed = |of: &LevelStats| of.false_positives as f64 / lookups.max(1.0);
    let bits = |of: &LevelStats| {
        (of.entries > 0).then(|| 8.0 * of.filter_bytes as f64 / of.entries as f64)
    };
    Figure {
        id: "monkey",
        title: "The same memory for filters, divided evenly and by Monkey".into(),
        finding,
        picture: Picture::bars(&[1, 2]),
        ..table! { for (name, (even, divided)) in levels.chain([("all".into(), all)]);
            Unit::Text, "level", "level" => name;
            Unit::Number, "even_false_positives", "false positives a lookup, even bits" =>
                passed(&even);
            Unit::Number, "monkey_false_positives", "the same, Monkey" => passed(&divided);
            Unit::Number, "even_bits_per_key", "bits a key, even" => bits(&even);
            Unit::Number, "monkey_bits_per_key", "bits a key, Monkey" => bits(&divided);
            Unit::Bytes, "even_filter_bytes", "filters, even" => even.filter_bytes;
            Unit::Bytes, "monkey_filter_bytes", "filters, Monkey" => divided.filter_bytes;
        }
    }
}

/// The counters after lookups of these absent keys.
fn asked(databases: &Databases<'_>, directory: &Path, absent: &[Vec<u8>]) -> Result<Stats> {
    let db = databases.open_at(directory, Cache::ROOMY)?;
    let before = db.stats();
    for key in absent {
        db.get(key)?;
    }
    let asked = db.stats().since(&before);
    db.close()?;
    Ok(asked)
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
