//! The command's demonstration: its figures, its options, its answers to bad input, and lookups step
//! by step.

use crate::cli::{Place, command, fails, files, json, ok, read, siftdb, write};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

fn figures(report: &Value) -> BTreeMap<&str, &Value> {
    let figures = report["figures"].as_array().unwrap().iter();
    figures.map(|figure| (figure["id"].as_str().unwrap(), figure)).collect()
}

/// The rows of a figure as objects.
fn rows(figure: &Value) -> Vec<BTreeMap<&str, &Value>> {
    let names = figure["columns"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|column| column["name"].as_str().unwrap()).collect();
    let rows = figure["rows"].as_array().unwrap().iter();
    rows.map(|row| names.iter().copied().zip(row.as_array().unwrap()).collect()).collect()
}

fn number(row: &BTreeMap<&str, &Value>, name: &str) -> f64 {
    row[name].as_f64().unwrap()
}

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
}

const IDS: [&str; 17] = [
    "blocks-absent",
    "blocks-mixed",
    "blocks-present",
    "blocks-starved",
    "bytes-by-cache",
    "bytes-by-level",
    "encoding-cost",
    "encoding-space",
    "fpr-by-bits",
    "latency-absent",
    "latency-mixed",
    "latency-present",
    "lookup-absent",
    "lookup-present",
    "monkey",
    "scans",
    "tree",
];

#[test]
fn figures_of_the_demo_agree_with_its_counts() {
    let place = Place::new();
    let (page, tables) = (place.path("demo.html"), place.path("csv"));
    let report = json(&[
        "demo",
        "--keys",
        "4000",
        "--lookups",
        "1000",
        "--hit-ratio",
        "0.25",
        "--sweep",
        "bits=5,10",
        "--json",
        "--html",
        &page,
        "--csv",
        &tables,
    ]);
    let figures = figures(&report);
    let ids: Vec<&str> = figures.keys().copied().collect();
    assert_eq!(ids, IDS);
    for act in report["acts"].as_array().unwrap() {
        let blocks = rows(figures[format!("blocks-{}", act["act"].as_str().unwrap()).as_str()]);
        let columns = act["columns"].as_array().unwrap();
        assert_eq!(blocks.len(), columns.len());
        for (row, column) in blocks.iter().zip(columns) {
            let count = |name: &str| column[name].as_f64().unwrap();
            let each = |name: &str| count(name) / count("lookups");
            assert_eq!(row["layout"], &column["column"]);
            let names =
                ["data_blocks", "data_blocks_read", "index_blocks_read", "filter_blocks_read"];
            for name in names {
                assert!(is_near(number(row, name), each(name)), "{name}: {row:?} {column}");
            }
            assert!(is_near(number(row, "bytes_read"), each("env_bytes_read")), "{row:?} {column}");
            assert_eq!(row["observed_fpr"], &column["observed_fpr"]);
            let found = match act["act"].as_str().unwrap() {
                "present" => 1_000.0,
                "mixed" => 250.0,
                _ => 0.0,
            };
            assert_eq!(count("found"), found, "{column}");
        }
    }
    for id in ["latency-absent", "latency-present", "latency-mixed"] {
        let rows = rows(figures[id]);
        assert!(rows.windows(2).all(|pair| pair[0]["layout"] != pair[1]["layout"]
            || number(&pair[0], "nanos") <= number(&pair[1], "nanos")));
        assert_eq!(rows.iter().filter(|row| number(row, "one_in") == 1_000.0).count(), 5, "{id}");
    }
    let monkey = rows(figures["monkey"]);
    let all = monkey.last().unwrap();
    let bytes = ["even_filter_bytes", "monkey_filter_bytes"].map(|name| number(all, name));
    // Filters of small tables are rounded up to lines of 64 bytes.
    assert!((bytes[1] / bytes[0] - 1.0).abs() < 0.15, "the same memory: {bytes:?}");
    assert!(number(all, "monkey_false_positives") < number(all, "even_false_positives"), "{all:?}");
    let [without, prefixes, ranges] = &rows(figures["scans"])[..] else { panic!("three") };
    let kinds = ["data_blocks_read_within", "data_blocks_read_across"];
    let blocks = |row| kinds.map(|name| number(row, name));
    let [within, across] = blocks(without);
    assert!(within > 0.9 && across > 0.9, "{without:?}");
    assert!(blocks(prefixes)[0] < 0.2 * within && blocks(prefixes)[1] == across, "{prefixes:?}");
    assert!(blocks(ranges)[0] < 0.2 * within && blocks(ranges)[1] < 0.05 * across, "{ranges:?}");
    // An encoding has one rate on the page.
    let space = rows(figures["encoding-space"]);
    let swept = rows(figures["fpr-by-bits"]).into_iter();
    let swept: Vec<_> = swept.filter(|row| number(row, "asked_bits") == 10.0).collect();
    assert_eq!((swept.len(), space.len()), (4, 4));
    for (one, other) in swept.iter().zip(&space) {
        assert_eq!(one["encoding"], other["encoding"]);
        assert_eq!(one["observed_fpr"], other["observed_fpr"], "{one:?} {other:?}");
    }
    let full = &report["databases"].as_array().unwrap()[2];
    assert_eq!(full["column"], "full");
    let sum = |id: &str, name| rows(figures[id]).iter().map(|row| number(row, name)).sum::<f64>();
    assert_eq!(sum("tree", "filter_bytes"), full["filter_bytes"].as_f64().unwrap());
    assert_eq!(sum("bytes-by-level", "entries"), 4_000.0);
    // Everything on the page is in the JSON, and each figure is a table of its own.
    let html = String::from_utf8(read(Path::new(&page))).unwrap();
    for (id, figure) in &figures {
        assert!(html.contains(&format!("id=\"{id}\"")), "{id}");
        let table = String::from_utf8(read(&Path::new(&tables).join(format!("{id}.csv")))).unwrap();
        let rows = figure["rows"].as_array().unwrap().len();
        assert_eq!(table.lines().count(), rows + 1, "{id}");
        assert!(figure["command"].as_str().unwrap().starts_with("siftdb "), "{figure}");
        assert!(figure["finding"].as_str().unwrap().ends_with('.'), "{figure}");
    }
    assert!(html.len() < 1_000_000, "{}", html.len());
    if let Ok(folder) = std::env::var("SIFTDB_PAGES") {
        write(&format!("{folder}/demo.html"), html.as_bytes());
    }
}

#[test]
fn swept_rates_lie_in_their_intervals() {
    let report =
        json(&["demo", "--keys", "2e3", "--lookups", "2000", "--sweep", "bits=3..6", "--json"]);
    let figures = figures(&report);
    let rows = rows(figures["fpr-by-bits"]);
    assert_eq!(rows.len(), 4 * 4, "four encodings with 3, 4, 5 and 6 bits");
    let mut inside = 0;
    for row in &rows {
        let (observed, expected) = (number(row, "observed_fpr"), number(row, "expected_fpr"));
        let (low, high) = (number(row, "observed_fpr_low"), number(row, "observed_fpr_high"));
        assert!(low < observed && observed < high, "{row:?}");
        assert!(is_near(observed, number(row, "false_positives") / number(row, "lookups")));
        assert!((observed / expected - 1.0).abs() < 0.5, "{row:?}");
        inside += usize::from(low <= expected && expected <= high);
    }
    let finding = figures["fpr-by-bits"]["finding"].as_str().unwrap();
    assert!(finding.contains(&format!("{inside} of 16 points")), "{finding}");
    assert!(finding.contains("holds 2,000 keys and is asked for 20,000"), "{finding}");
}

#[test]
fn options_of_the_demo_choose_what_is_shown() {
    let run = ["demo", "--keys", "2e3", "--lookups", "500"];
    let with = |more: &[&str]| ok(&[&run, more].concat());
    let text = with(&["--layouts", "partitioned", "--cache", "5kB,50kB", "--sweep", "bits=4"]);
    assert!(!text.contains("per 2 KiB") && !text.contains(" full"), "{text}");
    assert!(text.contains("no filter    50 kB") && text.contains("partitioned"), "{text}");
    assert!(text.contains("False positives over bits a key") && text.contains("legacy-bloom"));
    assert_eq!(text.matches("Keys ").count(), 3, "three acts: {text}");
    let text = with(&["--hit-ratio", "90%"]);
    assert!(text.contains("3  Keys of which some are there (500 lookups"), "{text}");
    assert!(!text.contains("False positives over"), "{text}");
    let layouts = json(&[&run[..], &["--layouts", "full", "--json"]].concat());
    assert_eq!(layouts["databases"].as_array().unwrap().len(), 2);
    assert_eq!(layouts["acts"][0]["columns"].as_array().unwrap().len(), 3);
}

#[test]
fn the_first_table_of_the_demo_fits_a_screen() {
    let text = ok(&["demo", "--keys", "3000", "--lookups", "500"]);
    let screen: Vec<&str> = text.lines().take(24).collect();
    assert!(screen.iter().any(|line| line.contains("-> of ")), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn bad_input_of_the_demo_says_what_to_do() {
    let place = Place::new();
    let keys = place.path("keys");
    for few in ["", "one\n"] {
        write(&keys, few.as_bytes());
        let message = fails(2, &["demo", "--input", &keys]);
        assert!(message.contains("name a file with more lines"), "{message}");
    }
    for (arguments, advice) in [
        (["--sweep", "bits=20..2"], "the range ends before it begins"),
        (["--sweep", "keys=1..2"], "write bits=2..20"),
        (["--layouts", "whole"], "block-based"),
        (["--hit-ratio", "1.5"], "a share between 0 and 1"),
        (["--cache", "0"], "a size from 1"),
    ] {
        let message = fails(2, &[&["demo"], &arguments[..]].concat());
        assert!(message.contains(advice), "{arguments:?}: {message}");
    }
    let nowhere = place.path("none/demo.html");
    let message = fails(4, &["demo", "--keys", "2e3", "--html", &nowhere]);
    assert!(message.contains("its folder does not exist"), "{message}");
    let output = command(&["demo", "--keys", "2e3"]).env("TMPDIR", &keys).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("set TMPDIR to another directory"), "{message}");
    assert_eq!(output.status.code(), Some(4));
}

/// Figures of cold files, or the one line that says why there are none; never both.
#[test]
fn cold_lookups_are_shown_or_refused() {
    let place = Place::new();
    for directory in [place.path(""), "/dev/shm".to_string()] {
        if !Path::new(&directory).is_dir() {
            continue;
        }
        let run = command(&["demo", "--keys", "2e3", "--lookups", "200", "--cold"])
            .env("TMPDIR", &directory)
            .output()
            .unwrap();
        let text = String::from_utf8(run.stdout).unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let shown = text.matches("Lookups in files that are not in the system's cache").count();
        let refused = text.lines().filter(|line| line.starts_with("no cold figures of ")).count();
        assert_eq!(shown + refused, 1, "{directory}: {text}");
    }
    assert!(files(&place.path(""), "").is_empty());
}

#[test]
fn steps_name_all_that_explain_counts() {
    let place = Place::new();
    let db = place.database();
    ok(&["put", &db, "key0011", "in the memtable"]);
    for key in ["key0007", "key0011", "key0007x", "before"] {
        for more in [&[][..], &["--no-filters"][..]] {
            let explain = [&["explain", &db, key], more].concat();
            let text = ok(&[&explain[..], &["--step"]].concat());
            let counted = json(&[&explain[..], &["--json"]].concat());
            let steps = counted["steps"].as_array().unwrap();
            let named =
                |part: &str| text.lines().filter(|line| line.ends_with(part)).count() as u64;
            assert_eq!(named(": 1 data block"), counted["data_blocks"].as_u64().unwrap(), "{text}");
            let seeks = steps.iter().map(|step| step["touched"]["index_seeks"].as_u64().unwrap());
            assert_eq!(named(": index"), seeks.sum::<u64>(), "{text}");
            let asked = steps.iter().filter(|step| step["filter"]["answer"] != "not_asked");
            assert_eq!(named(": filter"), asked.count() as u64, "{text}");
            assert!(text.contains("in all"), "{text}");
            let with_step = json(&[&explain[..], &["--step", "--json"]].concat());
            assert_eq!(with_step, counted, "JSON is unaffected");
        }
    }
    let text = ok(&["explain", &db, "key0007x", "--step"]);
    for words in ["(XXPH3)", "means ", "not read", ": without filters 1 data block"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let demo = siftdb(&["demo", "--keys", "2e3", "--lookups", "200", "--step"]);
    let text = String::from_utf8(demo.stdout).unwrap();
    assert_eq!(text.matches("lookup of \"").count(), 2, "{text}");
    assert!(text.contains("line ") && text.contains(" bits "), "full filters name bits: {text}");
}
