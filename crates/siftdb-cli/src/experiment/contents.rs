//! Figures of a database that is there: its tree, its filters by level, what they saved, and what
//! the lookups of a present and an absent key touch.
//!
//! Nothing is measured: figures come from the properties of tables, and from the counters that all
//! programs with the database open to write have counted. Two lookups are explained.

use crate::experiment::figure::{Figure, Picture, Unit, table};
use crate::experiment::steps::steps_figure;
use crate::experiment::tree::tree_figures;
use siftdb::inspect::bytes;
use siftdb::{Db, Keyspace, LevelStats, ReadOptions, Result, Stats};

/// Reads that leave the cache as it is: no lookup finds a block that another one read.
const COLD: ReadOptions = ReadOptions::new().fill_cache(false);

/// Keyspaces with a bar of their own; others share one.
const KEYSPACES_MAX: usize = 20;

/// The figures of `keyspace` and of the keyspaces of `db`. `command` makes them again, `explain`
/// the lookup of a key. One lookup is that of `key`, or of the first key if none is named. The
/// other is its opposite: that of an absent key next to a present one, or the other way round.
///
/// # Errors
/// As for [`Keyspace::explain`].
pub fn contents_figures(
    db: &Db,
    keyspace: &Keyspace,
    key: Option<&[u8]>,
    command: &str,
    explain: impl Fn(&[u8]) -> String,
) -> Result<Vec<Figure>> {
    let stats = keyspace.stats();
    let mut figures = tree_figures(keyspace)?;
    figures.extend([rates_figure(&stats), saved_figure(&stats), written_figure(&db.stats())]);
    if db.keyspaces().len() > 1 {
        figures.push(keyspaces_figure(db)?);
    }
    let mut figures: Vec<_> = figures.into_iter().map(|figure| figure.again(command)).collect();
    let (present, absent) = keys_to_look_up(keyspace, key)?;
    let report = keyspace.filter_report();
    for (id, key) in [("lookup-present", present), ("lookup-absent", Some(absent))] {
        if let Some(key) = key {
            let explained = keyspace.explain_with(&key, &COLD)?;
            figures.push(steps_figure(id, &explained, &report).again(explain(&key)));
        }
    }
    Ok(figures)
}

/// A present key, if there is one, and an absent one near it.
fn keys_to_look_up(keyspace: &Keyspace, key: Option<&[u8]>) -> Result<(Option<Vec<u8>>, Vec<u8>)> {
    let is_there = |key: &[u8]| Ok(keyspace.get_with(key, &COLD)?.is_some());
    let near = |key: &[u8]| {
        let next = keyspace.range_with(key.., &COLD).next();
        let near = next.or_else(|| keyspace.range_with(.., &COLD).next_back()).transpose()?;
        Ok(near.map(|(near, _)| near.to_vec()))
    };
    let present = match key {
        Some(key) if !is_there(key)? => return Ok((near(key)?, key.to_vec())),
        Some(key) => Some(key.to_vec()),
        None => near(b"")?,
    };
    // The next keys in the order of bytes are in the range of the same table.
    let mut absent = present.clone().unwrap_or_default();
    while is_there(&absent)? {
        absent.push(0);
    }
    Ok((present, absent))
}

/// The levels that have tables or were asked, each with its number.
fn levels(stats: &Stats) -> impl Iterator<Item = (usize, &LevelStats)> {
    let is_there = |(_, level): &(usize, &LevelStats)| {
        level.tables + level.data_blocks() + level.data_blocks_avoided() > 0
    };
    stats.levels.iter().enumerate().filter(is_there)
}

fn rates_figure(stats: &Stats) -> Figure {
    let total = stats.total();
    let filtered = stats.levels.iter().filter(|level| level.filter_bytes > 0);
    let expected = filtered.clone().map(|level| level.expected_fpr).reduce(f64::max);
    let percent = |share: f64| Unit::Share.print(share);
    let finding = match (expected, total.observed_fpr(), total.observed_fpr_interval()) {
        (None, None, _) => "No table has a filter.".into(),
        (Some(expected), None, _) => format!(
            "At most {} of absent keys should pass the filters of a level; no lookup of an absent \
             key is counted yet.",
            percent(expected)
        ),
        (_, Some(observed), interval) => {
            let (low, high) = interval.unwrap_or((observed, observed));
            format!(
                "Of {} answers of filters about absent keys, {} were false positives ({} to {} \
                 with 95 % confidence).",
                Unit::Count.print((total.negatives + total.false_positives) as f64),
                percent(observed),
                percent(low),
                percent(high)
            )
        }
    };
    Figure {
        id: "filters-by-level",
        title: "False positives by level: expected and observed".into(),
        finding,
        picture: Picture::bars(&[2, 3]),
        ..table! { for (number, level) in levels(stats);
            Unit::Text, "level", "level" => format!("L{number}");
            Unit::Number, "bits_per_entry", "bits an entry" => (level.filter_bytes > 0)
                .then(|| 8.0 * level.filter_bytes as f64 / level.entries.max(1) as f64);
            Unit::Share, "expected_fpr", "expected" =>
                (level.filter_bytes > 0).then_some(level.expected_fpr);
            Unit::Share, "observed_fpr", "observed" => level.observed_fpr();
            Unit::Share, "observed_fpr_low", "95 % from" =>
                level.observed_fpr_interval().map(|(low, _)| low);
            Unit::Share, "observed_fpr_high", "95 % to" =>
                level.observed_fpr_interval().map(|(_, high)| high);
            Unit::Count, "absent", "answers about absent keys" =>
                level.negatives + level.false_positives;
        }
    }
}

fn saved_figure(stats: &Stats) -> Figure {
    let total = stats.total();
    let (searched, avoided) = (total.data_blocks(), total.data_blocks_avoided());
    let finding = match searched + avoided {
        0 => {
            "No lookup is counted yet: only programs that open the database to write count.".into()
        }
        all => format!(
            "Filters kept lookups from {} of {} data blocks, {}: about {} were not searched.",
            Unit::Count.print(avoided as f64),
            Unit::Count.print(all as f64),
            Unit::Share.print(avoided as f64 / all as f64),
            bytes(total.bytes_avoided)
        ),
    };
    Figure {
        id: "saved-by-filters",
        title: "What filters saved so far".into(),
        finding,
        picture: Picture::bars(&[1, 2]),
        ..table! { for (number, level) in levels(stats);
            Unit::Text, "level", "level" => format!("L{number}");
            Unit::Count, "data_blocks", "data blocks searched" => level.data_blocks();
            Unit::Count, "data_blocks_avoided", "saved by filters" => level.data_blocks_avoided();
            Unit::Count, "data_blocks_read", "read from files" => level.data_blocks_read;
            Unit::Bytes, "bytes_avoided", "bytes saved, about" => level.bytes_avoided;
            Unit::Bytes, "filter_bytes_read", "filters read" => level.filter_bytes_read;
        }
    }
}

/// Why bytes were written, and how many, in all keyspaces.
fn written_figure(stats: &Stats) -> Figure {
    let levels = stats.levels.iter().enumerate();
    let levels =
        levels.map(|(number, level)| (format!("tables of L{number}"), level.bytes_written));
    let mut rows: Vec<_> =
        std::iter::once(("logs".into(), stats.wal_bytes)).chain(levels).collect();
    rows.retain(|(_, written)| *written > 0);
    let all: u64 = rows.iter().map(|(_, written)| written).sum();
    let filters: u64 = stats.levels.iter().map(|level| level.filter_bytes_written).sum();
    let user = stats.entry_bytes;
    let finding = match user {
        0 => format!("{} were written, {} of it filters.", bytes(all), bytes(filters)),
        user => format!(
            "{} were written for {} of keys and values, {} bytes for one; {} of it filters.",
            bytes(all),
            bytes(user),
            Unit::Number.print(all as f64 / user as f64),
            bytes(filters)
        ),
    };
    Figure {
        id: "bytes-written",
        title: "Bytes that the database wrote so far, by reason".into(),
        finding,
        picture: Picture::bars(&[1]),
        ..table! { for (reason, written) in rows;
            Unit::Text, "reason", "reason" => reason;
            Unit::Bytes, "bytes_written", "bytes written" => written;
            Unit::Number, "bytes_for_one", "bytes for one of the user" =>
                (user > 0).then(|| written as f64 / user as f64);
        }
    }
}

fn keyspaces_figure(db: &Db) -> Result<Figure> {
    let mut totals = Vec::new();
    for name in db.keyspaces() {
        let stats = db.keyspace(&name)?.stats();
        totals.push((name, stats.total(), stats.memtable_entries));
    }
    totals.sort_by(|(one, a, _), (other, b, _)| b.bytes.cmp(&a.bytes).then(one.cmp(other)));
    let all: u64 = totals.iter().map(|(_, total, _)| total.bytes).sum();
    let finding = match totals.first() {
        Some((largest, total, _)) if all > 0 => format!(
            "The largest of {} keyspaces, \"{largest}\", has {} of the bytes in tables.",
            totals.len(),
            Unit::Share.print(total.bytes as f64 / all as f64)
        ),
        _ => format!("None of the {} keyspaces has a table.", totals.len()),
    };
    let others = totals.split_off(totals.len().min(KEYSPACES_MAX));
    if !others.is_empty() {
        let mut sum = Stats::default();
        sum.levels = others.iter().map(|(_, total, _)| total.clone()).collect();
        let in_log = others.iter().map(|(.., in_log)| in_log).sum();
        totals.push((format!("{} others", others.len()), sum.total(), in_log));
    }
    Ok(Figure {
        id: "keyspaces",
        title: "Bytes by keyspace".into(),
        finding,
        picture: Picture::bars(&[4, 5]),
        ..table! { for (name, total, in_log) in totals;
            Unit::Text, "keyspace", "keyspace" => name;
            Unit::Count, "tables", "tables" => total.tables;
            Unit::Count, "entries", "entries in tables" => total.entries;
            Unit::Count, "log_entries", "entries only in the log" => in_log;
            Unit::Bytes, "bytes", "bytes of tables" => total.bytes;
            Unit::Bytes, "filter_bytes", "of these filters" => total.filter_bytes;
        }
    })
}
