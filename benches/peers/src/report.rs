//! The report of a run: settings, figures, and siftdb's ratios, as tables and as JSON.
//!
//! A figure is the median of its rounds, with the smallest and the largest. A ratio is siftdb's
//! cost over the rival's, below 1 where siftdb is ahead, also in rows where more is better.

use crate::args::Args;
use crate::databases::{MEMTABLE_ENTRIES, STARVED_CACHE_BYTES};
use crate::engine::{BITS_PER_KEY, BLOCK_BYTES, Engine, Result, WRITE_BUFFER_BYTES, name};
use crate::large_values::CACHE_PART;
use crate::machine;
use crate::rows::{ROWS, Row};
use crate::runner::Results;
use crate::sample::Sample;
use crate::workload::{LARGE_VALUE_BYTES, Workload};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// The engine that the others are compared with.
const OURS: &str = "siftdb";

/// Prints everything.
pub fn print(args: &Args, results: &Results) {
    for (name, value) in settings(args) {
        println!("{name}: {value}");
    }
    let engines = args.selected_engines().unwrap_or_default();
    for engine in &engines {
        println!("{}: {}; {}", engine.name, (engine.version)(), engine.settings);
    }
    print_table(&figures(&engines, results));
    print_over_time(&engines, results);
    let ratios = ratios(&engines, results);
    if ratios.len() > 1 {
        print_table(&ratios);
        println!("\nratio: siftdb's cost over the rival's, below 1 where siftdb is ahead");
    }
}

/// Writes everything as JSON.
pub fn write_json(args: &Args, results: &Results, file: &Path) -> Result<()> {
    let engines = args.selected_engines()?;
    let described = engines.iter().map(|engine| {
        json!({
            "name": engine.name,
            "version": (engine.version)(),
            "settings": engine.settings,
        })
    });
    let rows = ROWS.iter().filter_map(|row| json_row(row, &engines, results));
    let settings: Map<String, Value> =
        settings(args).into_iter().map(|(name, value)| (name, value.into())).collect();
    let report = json!({
        "settings": settings,
        "engines": described.collect::<Vec<_>>(),
        "rows": rows.collect::<Vec<_>>(),
    });
    Ok(fs::write(file, serde_json::to_string_pretty(&report)? + "\n")?)
}

fn settings(args: &Args) -> Vec<(String, String)> {
    let workload = Workload::new(&args.workload);
    let directory = args.directory.clone().unwrap_or_else(std::env::temp_dir);
    let mut settings = machine::facts(&directory);
    let more = [
        (
            "data",
            format!(
                "{} keys of {} bytes ({:?}), values of {} bytes, {:.0} MB of pairs",
                workload.keys,
                workload.bytes() / workload.keys - workload.value_bytes as u64,
                workload.shape,
                workload.value_bytes,
                workload.bytes() as f64 / 1e6
            ),
        ),
        ("rounds", format!("{}, of {} lookups each", args.rounds, workload.lookups)),
        (
            "large values",
            format!(
                "{} of {LARGE_VALUE_BYTES} B, cache for one in {CACHE_PART}",
                workload.large_values
            ),
        ),
        (
            "memory when bounded",
            args.memory.map_or("-".to_owned(), |bytes| format!("{} MiB", bytes >> 20)),
        ),
        (
            "neighbour",
            args.neighbour.map_or("none".to_owned(), |mb| format!("writes {mb} MB in no order")),
        ),
        (
            "all engines",
            format!(
                "blocks {BLOCK_BYTES} B, write buffer {} MiB, Bloom {BITS_PER_KEY} bits a key, \
                 log on, no sync, no compression, cache larger than the data ({} MiB when \
                 starved), {MEMTABLE_ENTRIES} entries in a full memtable",
                WRITE_BUFFER_BYTES >> 20,
                STARVED_CACHE_BYTES >> 20
            ),
        ),
    ];
    settings.extend(more.map(|(name, value)| (name.to_owned(), value)));
    settings
}

/// A table with a line for each row of which some column has a cell.
fn table(
    head: &str,
    columns: Vec<&str>,
    title: impl Fn(&Row) -> String,
    cell: impl Fn(&Row, usize) -> Option<String>,
) -> Vec<Vec<String>> {
    let head = std::iter::once(head).chain(columns.iter().copied()).map(str::to_owned).collect();
    let lines = ROWS.iter().filter_map(|row| {
        let cells: Vec<_> = (0..columns.len()).map(|column| cell(row, column)).collect();
        let line = cells.iter().map(|cell| cell.clone().unwrap_or_else(|| "-".to_owned()));
        let some = cells.iter().any(Option::is_some);
        some.then(|| std::iter::once(title(row)).chain(line).collect())
    });
    std::iter::once(head).chain(lines).collect()
}

/// Median and spread of each row for each engine.
fn figures(engines: &[&Engine], results: &Results) -> Vec<Vec<String>> {
    let title = |row: &Row| format!("{}, {}", row.title, row.unit);
    let names = engines.iter().map(|engine| engine.name).collect();
    table("median (min to max)", names, title, |row, column| {
        let [low, median, high] = spread(&results.rounds(row, engines[column].name))?;
        Some(format!("{} ({} to {})", short(median), short(low), short(high)))
    })
}

/// Three significant digits below 1000, and no fraction above.
fn short(value: f64) -> String {
    let places = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.places$}")
}

/// A line for each engine that has figures by parts of the run.
fn print_over_time(engines: &[&Engine], results: &Results) {
    for engine in engines {
        let over_time = |row| over_time(row, &results.rounds(row, engine.name));
        let rows: Vec<String> = ROWS.iter().filter_map(over_time).collect();
        if !rows.is_empty() {
            println!("\n{}: {}", engine.name, rows.join("; "));
        }
    }
}

/// A row's figures by parts of the run, in order: medians of the rounds.
fn over_time(row: &Row, rounds: &[&Sample]) -> Option<String> {
    let parts = rounds.first()?.over_time.len();
    let medians = (0..parts).filter_map(|part| {
        let [_, median, _] = of_values(rounds.iter().map(|round| round.over_time[part]))?;
        Some(format!("{median:.0}"))
    });
    let medians = medians.collect::<Vec<_>>().join(" ");
    let text = format!("{}, {}, over time: {medians}", row.title, row.unit);
    (parts > 0).then_some(text)
}

/// A set of engines that siftdb is compared with.
struct Against {
    title: String,
    names: Vec<&'static str>,
}

/// The best of all, the best log-structured one, and each.
fn comparisons(engines: &[&Engine]) -> Vec<Against> {
    let rivals = engines.iter().filter(|engine| engine.name != OURS);
    let names = |wanted: fn(&Engine) -> bool| {
        rivals.clone().filter(|engine| wanted(engine)).map(|engine| engine.name).collect()
    };
    let mut sets = vec![
        Against { title: "best rival".to_owned(), names: names(|_| true) },
        Against { title: "best LSM".to_owned(), names: names(|engine| engine.log_structured) },
    ];
    sets.extend(
        rivals.map(|engine| Against { title: engine.name.to_owned(), names: vec![engine.name] }),
    );
    sets
}

/// siftdb's cost over that of the best of some rivals.
fn ratio(row: &Row, against: &Against, results: &Results) -> Option<f64> {
    let cost = |name: &str| {
        let [_, median, _] = spread(&results.rounds(row, name))?;
        Some(if row.more_is_better() { 1.0 / median } else { median })
    };
    let best = against.names.iter().filter_map(|name| cost(name)).reduce(f64::min)?;
    Some(cost(OURS)? / best)
}

fn ratios(engines: &[&Engine], results: &Results) -> Vec<Vec<String>> {
    let sets = comparisons(engines);
    let titles = sets.iter().map(|set| &*set.title).collect();
    table(
        "siftdb over",
        titles,
        |row| row.title.to_owned(),
        |row, column| ratio(row, &sets[column], results).map(|ratio| format!("{ratio:.2}")),
    )
}

fn json_row(row: &Row, engines: &[&Engine], results: &Results) -> Option<Value> {
    let mut measured = Map::new();
    for engine in engines {
        let samples = results.rounds(row, engine.name);
        let Some([min, median, max]) = spread(&samples) else { continue };
        let rounds: Vec<f64> = samples.iter().map(|sample| sample.value).collect();
        let mut value = json!({ "median": median, "min": min, "max": max, "rounds": rounds });
        let wall: Vec<f64> = samples.iter().filter_map(|sample| sample.wall).collect();
        if !wall.is_empty() {
            value["wall_rounds"] = json!(wall);
        }
        let over_time = || samples.iter().map(|sample| &sample.over_time);
        if over_time().any(|parts| !parts.is_empty()) {
            value["over_time_rounds"] = json!(over_time().collect::<Vec<_>>());
        }
        measured.insert(engine.name.to_owned(), value);
    }
    let ratios: Map<String, Value> = comparisons(engines)
        .iter()
        .filter_map(|set| Some((set.title.clone(), ratio(row, set, results)?.into())))
        .collect();
    (!measured.is_empty()).then(|| {
        json!({
            "row": row.id, "layout": name(row.layout), "title": row.title,
            "unit": row.unit, "engines": measured, "ratios": ratios,
        })
    })
}

/// Prints a table whose first line is its head.
fn print_table(table: &[Vec<String>]) {
    let columns = table.iter().map(Vec::len).max().unwrap_or(0);
    let lengths = |column| table.iter().filter_map(move |line| line.get(column)).map(String::len);
    let widths: Vec<usize> =
        (0..columns).map(|column| lengths(column).max().unwrap_or(0)).collect();
    println!();
    for (number, line) in table.iter().enumerate() {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        println!("| {} |", cells.collect::<Vec<_>>().join(" | "));
        if number == 0 {
            let rules = widths.iter().map(|width| "-".repeat(*width));
            println!("|-{}-|", rules.collect::<Vec<_>>().join("-|-"));
        }
    }
}

/// The smallest, the median and the largest; `None` without samples.
fn spread(samples: &[&Sample]) -> Option<[f64; 3]> {
    of_values(samples.iter().map(|sample| sample.value))
}

fn of_values(values: impl Iterator<Item = f64>) -> Option<[f64; 3]> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (*sorted.first()?, *sorted.last()?);
    let upper = sorted.len() / 2;
    let lower = (sorted.len() - 1) / 2;
    Some([low, f64::midpoint(sorted[lower], sorted[upper]), high])
}
