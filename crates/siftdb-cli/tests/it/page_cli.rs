//! Pages of the command: `siftdb report`, and the options for pages of every command.

use crate::cli::{Place, fails, files, json, ok, read, siftdb, write};
use serde_json::Value;
use siftdb::{Filter, FilterLayout, Options};
use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Command;

/// Several tables at levels 0 to 2, with several versions of keys, and counted lookups.
fn database(place: &Place) -> String {
    let path = place.path("db");
    let small = Options::new().table_bytes(32 << 10).level_base_bytes(64 << 10);
    let small = small.filter(Filter::bloom(6.0)).auto_compaction(false);
    let small = small.filter_at_level(0, Filter::bloom(6.0).layout(FilterLayout::Full));
    let db = small.open(&path).unwrap();
    for round in 0..3 {
        for i in (0..9_000).step_by(2).skip(round * 1500) {
            db.put(format!("key{i:04}"), format!("value {i} of round {round}")).unwrap();
        }
        db.flush().unwrap();
        if round == 0 {
            db.compact_range(..).unwrap();
        }
    }
    (0..9_000).for_each(|i| drop(db.get(format!("key{i:04}")).unwrap()));
    db.close().unwrap();
    path
}

/// The bytes of all files below a directory.
fn contents(directory: &str) -> BTreeMap<String, Vec<u8>> {
    let names = files(directory, "").into_iter().filter(|path| path.is_file());
    names.map(|path| (path.to_string_lossy().into_owned(), read(&path))).collect()
}

fn figures(report: &Value) -> BTreeMap<&str, &Value> {
    let figures = report["figures"].as_array().unwrap().iter();
    figures.map(|figure| (figure["id"].as_str().unwrap(), figure)).collect()
}

/// The sum of a column of a figure.
fn sum(figure: &Value, name: &str) -> f64 {
    let columns = figure["columns"].as_array().unwrap();
    let place = columns.iter().position(|column| column["name"] == name).unwrap();
    let rows = figure["rows"].as_array().unwrap().iter();
    rows.map(|row| row[place].as_f64().unwrap_or(0.0)).sum()
}

#[test]
fn reports_add_up_to_the_counters() {
    let place = Place::new();
    let (db, page) = (database(&place), place.path("page.html"));
    let before = contents(&db);
    let report = json(&["report", &db, "--json", "-o", &page]);
    assert_eq!(contents(&db), before, "a report changes no byte");
    let stats = json(&["stats", &db, "--json"]);
    let (total, figures) = (&stats["total"], figures(&report));
    let count = |name: &str| total[name].as_f64().unwrap();
    let tree = figures["tree"];
    for name in ["entries", "bytes", "filter_bytes"] {
        assert_eq!(sum(tree, name), count(name), "{name}");
    }
    let by_level = figures["bytes-by-level"];
    let parts = ["data_bytes", "filter_bytes", "index_bytes"].map(|name| sum(by_level, name));
    assert_eq!(parts.iter().sum::<f64>(), count("bytes"));
    let saved = figures["saved-by-filters"];
    assert_eq!(sum(saved, "data_blocks_avoided"), count("negatives"));
    assert!(count("negatives") > 4_000.0, "{stats}");
    let share = count("negatives") / (count("negatives") + sum(saved, "data_blocks"));
    let finding = saved["finding"].as_str().unwrap();
    assert!(finding.contains(&format!("{:.1} %", 100.0 * share)), "{share} {finding}");
    let rates = figures["filters-by-level"];
    assert_eq!(sum(rates, "absent"), count("negatives") + count("false_positives"));
    let written = sum(figures["bytes-written"], "bytes_written");
    let by_reason = ["wal_bytes", "flush_bytes", "compaction_bytes_written"];
    assert_eq!(written, by_reason.iter().map(|name| stats[name].as_f64().unwrap()).sum::<f64>());
    // The page says the same, and the lookups are of a present and an absent key.
    let html = String::from_utf8(read(Path::new(&page))).unwrap();
    assert!(html.contains(finding) && html.contains("role=\"img\""));
    assert!(figures["lookup-present"]["finding"].as_str().unwrap().contains(" is present:"));
    assert!(figures["lookup-absent"]["finding"].as_str().unwrap().contains(" is absent:"));
    if let Ok(folder) = std::env::var("SIFTDB_PAGES") {
        write(&format!("{folder}/report.html"), html.as_bytes());
    }
}

#[test]
fn reports_explain_a_named_key_and_its_neighbor() {
    let place = Place::new();
    let db = database(&place);
    for (key, present, absent) in [
        ("key0010", "\"key0010\" is present", "\"key0010\\x00\" is absent"),
        ("key0011", "\"key0012\" is present", "\"key0011\" is absent"),
        ("zzz", "\"key8998\" is present", "\"zzz\" is absent"),
    ] {
        let report = json(&["report", &db, "--json", "--key", key]);
        let figures = figures(&report);
        let finding = |id: &str| figures[id]["finding"].as_str().unwrap();
        assert!(finding("lookup-present").contains(present), "{key}: {report}");
        assert!(finding("lookup-absent").contains(absent), "{key}: {report}");
    }
    let exact = json(&["report", &db, "--json", "--escaped", "--key", "key\\x30010"]);
    let finding = figures(&exact)["lookup-present"]["finding"].clone();
    assert!(finding.as_str().unwrap().contains("key0010"), "{finding}");
}

#[test]
fn commands_on_pages_work() {
    let place = Place::new();
    let db = database(&place);
    let report = json(&["report", &db, "--json", "--key=key0010", "--memory=1MB", "--cache=9kB"]);
    let figures = report["figures"].as_array().unwrap().iter();
    let commands = figures.map(|figure| &figure["command"]).chain([&report["command"]]);
    for command in commands.map(|command| command.as_str().unwrap()) {
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words[0], "siftdb", "{command}");
        // A path of this test needs no quotes, and its files no other name.
        let page = place.path("again.html");
        let words = words[1..].iter().map(|word| match *word {
            "report.html" => page.as_str(),
            "'key0010\\x00'" => "key0010\\x00",
            word => word,
        });
        ok(&words.collect::<Vec<_>>());
    }
}

#[test]
fn reports_say_what_fits_into_memory() {
    let place = Place::new();
    let db = database(&place);
    let figure = |memory: &str, cache: &str| {
        let report = json(&["report", &db, "--json", "--memory", memory, "--cache", cache]);
        figures(&report)["memory"].clone()
    };
    let ample = figure("1GB", "64MB");
    assert_eq!((sum(&ample, "pages_absent"), sum(&ample, "pages_present")), (0.0, 0.0), "{ample}");
    let scarce = figure("8kB", "4kB");
    assert!(sum(&scarce, "pages_present") > 1.0, "{scarce}");
    assert!(scarce["finding"].as_str().unwrap().contains("do not fit"), "{scarce}");
    // `filter advise` says the same.
    let advice = ["filter", "advise", &db, "--memory", "8kB", "--cache", "4kB"];
    let memory = json(&[&advice[..], &["--json"]].concat())["memory"].clone();
    assert_eq!(scarce["rows"][0][2], memory["pages_present"], "{memory}");
    assert_eq!(memory["parts"].as_array().unwrap().len(), 3, "{memory}");
    assert_eq!(memory["fits"], false);
    let text = ok(&advice);
    assert!(text.starts_with("memory 8.0 kB, block cache 4.0 kB of it"), "{text}");
    let more = "  and more: filters and indexes do not fit into this memory";
    assert!(text.lines().any(|line| line == more), "{text}");
    assert!(!text.contains("budget"), "{text}");
    for command in ["report", "filter advise"] {
        let words: Vec<&str> = command.split(' ').chain([&db[..], "--memory", "1MB"]).collect();
        fails(2, &words);
    }
}

#[test]
fn reports_of_little_data_are_sound() {
    let place = Place::new();
    let (empty, one, page) = (place.path("empty"), place.path("one"), place.path("page.html"));
    siftdb::Db::open(&empty).unwrap().close().unwrap();
    let lone = siftdb::Db::open(&one).unwrap();
    lone.put("", "").unwrap();
    lone.close().unwrap();
    for (db, figures) in [(&empty, 6), (&one, 7)] {
        let report = json(&["report", db, "--json", "-o", &page]);
        assert_eq!(report["figures"].as_array().unwrap().len(), figures, "{report}");
        let html = String::from_utf8(read(Path::new(&page))).unwrap();
        assert!(html.contains("There is nothing to draw") && !html.contains("NaN"));
    }
    // Then a table without a filter, in a keyspace of its own.
    let db = siftdb::Db::open(&one).unwrap();
    let plain = siftdb::KeyspaceOptions::new().filter(Filter::none());
    let plain = db.keyspace_with("<b>plain</b>", &plain).unwrap();
    plain.put("key", "value").unwrap();
    plain.flush().unwrap();
    db.close().unwrap();
    let report = json(&["report", &one, "--keyspace", "<b>plain</b>", "--json", "-o", &page]);
    let figures = figures(&report);
    assert_eq!(figures["filters-by-level"]["finding"], "No table has a filter.");
    assert_eq!(figures["keyspaces"]["rows"].as_array().unwrap().len(), 2);
    let html = String::from_utf8(read(Path::new(&page))).unwrap();
    assert!(html.contains("&lt;b&gt;plain") && !html.contains("<b>"));
}

#[test]
fn tables_of_figures_are_csv_files() {
    let place = Place::new();
    let (db, folder) = (place.database(), place.path("new/tables"));
    let report = json(&["report", &db, "--json", "--csv", &folder]);
    for figure in report["figures"].as_array().unwrap() {
        let name = format!("{folder}/{}.csv", figure["id"].as_str().unwrap());
        let text = String::from_utf8(read(Path::new(&name))).unwrap();
        let names = figure["columns"].as_array().unwrap().iter();
        let names: Vec<_> = names.map(|column| column["name"].as_str().unwrap()).collect();
        assert_eq!(text.lines().next().unwrap(), names.join(","));
        assert_eq!(text.lines().count(), 1 + figure["rows"].as_array().unwrap().len());
    }
    assert_eq!(files(&folder, "").len(), report["figures"].as_array().unwrap().len());
}

#[test]
fn files_that_cannot_be_written_are_named() {
    let place = Place::new();
    let (db, file) = (place.database(), place.path("file"));
    write(&file, b"mine");
    let nowhere = place.path("nowhere/page.html");
    let inside = format!("{file}/page.html");
    let folder = place.path("");
    for (option, path, advice) in [
        ("-o", &nowhere, "create it"),
        ("-o", &inside, "create it"),
        ("-o", &folder, "name a file"),
        ("--csv", &file, "name a folder"),
    ] {
        let text = fails(4, &["report", &db, option, path]);
        assert!(text.contains(path.as_str()) && text.contains(advice), "{text}");
    }
    // A page replaces an earlier one, as a whole and with nothing next to it.
    let page = place.path("pages/page.html");
    ok(&["report", &db, "--csv", &place.path("pages")]);
    write(&page, b"an earlier page");
    ok(&["report", &db, "-o", &page]);
    assert!(read(Path::new(&page)).starts_with(b"<!doctype html>"));
    assert_eq!(files(&place.path("pages"), "page.html").len(), 1);
    assert!(
        files(&place.path("pages"), "")
            .iter()
            .all(|path| { !path.file_name().unwrap().to_str().unwrap().starts_with('.') })
    );
}

#[test]
fn pages_are_written_into_pipes() {
    let place = Place::new();
    let (db, pipe) = (place.database(), place.path("pipe"));
    // Not a device of the machine: a broken command would replace it.
    if !Command::new("mkfifo").arg(&pipe).status().is_ok_and(|made| made.success()) {
        return;
    }
    let reader = pipe.clone();
    let reader = std::thread::spawn(move || read(Path::new(&reader)));
    ok(&["report", &db, "-o", &pipe]);
    // First, since nothing comes through a pipe that was replaced.
    assert!(Path::new(&pipe).metadata().unwrap().file_type().is_fifo());
    assert!(reader.join().unwrap().starts_with(b"<!doctype html>"));
}

#[test]
fn reports_show_a_locked_database() {
    let place = Place::new();
    let (db, page) = (place.database(), place.path("page.html"));
    let none = place.path("none");
    assert!(fails(4, &["report", &none, "-o", &page]).contains("no database in"));
    let held = siftdb::Db::open(&db).unwrap();
    assert!(siftdb(&["report", &db, "-o", &page]).status.success());
    drop(held);
    assert!(Path::new(&page).exists());
}
