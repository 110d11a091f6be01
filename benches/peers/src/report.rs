//! The report of a run: settings, figures, and siftdb's ratios, as tables and as JSON.
//!
//! A figure is the median of its rounds, with the smallest and the largest. A ratio is siftdb's
//! cost over the rival's, below 1 where siftdb is ahead, also in rows where more is better.

use crate::args::Args;
use crate::databases::{MEMTABLE_ENTRIES, STARVED_CACHE_BYTES};
use crate::engine::{BITS_PER_KEY, BLOCK_BYTES, Engine, Result, WRITE_BUFFER_BYTES};
use crate::machine;
use crate::rows::{ROWS, Row, Unit};
use crate::runner::{Figure, Results};
use crate::workload::Workload;
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
        settings(args).into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let report = json!({
        "settings": settings,
        "engines": described.collect::<Vec<_>>(),
        "rows": rows.collect::<Vec<_>>(),
    });
    Ok(fs::write(file, serde_json::to_string_pretty(&report)? + "\n")?)
}

fn settings(args: &Args) -> Vec<(&'static str, String)> {
    let workload = Workload::new(&args.workload);
    let directory = args.directory.clone().unwrap_or_else(std::env::temp_dir);
    let mut settings = machine::facts(&directory);
    settings.extend([
        (
            "data",
            format!(
                "{} keys of {} bytes ({:?}), values of {} bytes, {:.0} MB of pairs",
                workload.keys,
                workload.shape.key_bytes(),
                workload.shape,
                workload.value_bytes,
                workload.bytes() as f64 / 1e6
            ),
        ),
        ("rounds", format!("{}, of {} lookups each", args.rounds, workload.lookups)),
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
    ]);
    settings
}

/// Row title, then a cell for each engine: median and spread.
fn figures(engines: &[&Engine], results: &Results) -> Vec<Vec<String>> {
    let mut table = vec![vec!["median (min to max)".to_owned()]];
    table[0].extend(engines.iter().map(|engine| engine.name.to_owned()));
    for row in ROWS {
        let cells: Vec<Option<String>> = engines
            .iter()
            .map(|engine| results.figure(row.id, row.layout, engine.name).map(figure_cell))
            .collect();
        if cells.iter().any(Option::is_some) {
            let title = format!("{}, {}", row.title, row.unit.name());
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()));
            table.push(std::iter::once(title).chain(cells).collect());
        }
    }
    table
}

fn figure_cell(figure: &Figure) -> String {
    let (low, high) = spread(&figure.rounds);
    format!("{} ({} to {})", short(median(&figure.rounds)), short(low), short(high))
}

/// Three significant digits below 1000, and no fraction above.
fn short(value: f64) -> String {
    let places = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.places$}")
}

/// A line for each engine that has figures by parts of the run.
fn print_over_time(engines: &[&Engine], results: &Results) {
    for engine in engines {
        let rows = ROWS
            .iter()
            .filter_map(|row| over_time(row, results.figure(row.id, row.layout, engine.name)?));
        let rows: Vec<String> = rows.collect();
        if !rows.is_empty() {
            println!("\n{}: {}", engine.name, rows.join("; "));
        }
    }
}

/// A row's figures by parts of the run, in order: medians of the rounds.
fn over_time(row: &Row, figure: &Figure) -> Option<String> {
    let parts = 0..figure.over_time.first()?.len();
    let medians = parts.map(|part| {
        let rounds = figure.over_time.iter().filter_map(|round| round.get(part));
        format!("{:.0}", median(&rounds.copied().collect::<Vec<_>>()))
    });
    let medians = medians.collect::<Vec<_>>().join(" ");
    Some(format!("{}, {}, over time: {medians}", row.title, row.unit.name()))
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
        let value = median(&results.figure(row.id, row.layout, name)?.rounds);
        Some(if row.unit == Unit::PerSecond { 1.0 / value } else { value })
    };
    let best = against.names.iter().filter_map(|name| cost(name)).reduce(f64::min)?;
    Some(cost(OURS)? / best)
}

fn ratios(engines: &[&Engine], results: &Results) -> Vec<Vec<String>> {
    let sets = comparisons(engines);
    let mut table = vec![vec!["siftdb over".to_owned()]];
    table[0].extend(sets.iter().map(|set| set.title.clone()));
    for row in ROWS {
        let ratios: Vec<Option<f64>> = sets.iter().map(|set| ratio(row, set, results)).collect();
        if let Some(Some(_)) = ratios.first() {
            let cell =
                |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
            let cells = ratios.into_iter().map(cell);
            table.push(std::iter::once(row.title.to_owned()).chain(cells).collect());
        }
    }
    table
}

fn json_row(row: &Row, engines: &[&Engine], results: &Results) -> Option<Value> {
    let mut measured = Map::new();
    for engine in engines {
        let Some(figure) = results.figure(row.id, row.layout, engine.name) else { continue };
        let (min, max) = spread(&figure.rounds);
        let mut value = json!({
            "median": median(&figure.rounds), "min": min, "max": max, "rounds": figure.rounds,
        });
        if !figure.wall.is_empty() {
            value["wall_rounds"] = json!(figure.wall);
        }
        if !figure.over_time.is_empty() {
            value["over_time_rounds"] = json!(figure.over_time);
        }
        measured.insert(engine.name.to_owned(), value);
    }
    let ratios: Map<String, Value> = comparisons(engines)
        .iter()
        .filter_map(|set| Some((set.title.clone(), ratio(row, set, results)?.into())))
        .collect();
    (!measured.is_empty()).then(|| {
        json!({
            "row": row.id, "layout": row.layout.name(), "title": row.title,
            "unit": row.unit.name(), "engines": measured, "ratios": ratios,
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

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

fn spread(values: &[f64]) -> (f64, f64) {
    let fold = |better: fn(f64, f64) -> f64| values.iter().copied().reduce(better);
    (fold(f64::min).unwrap_or(f64::NAN), fold(f64::max).unwrap_or(f64::NAN))
}
