//! `siftdb bench` end to end: answers, files, comparisons, and what it says to bad input.

use crate::cli::{Place, command, fails, files, json, ok, read, write};
use serde_json::{Value, json as value};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

const SMALL: [&str; 5] = ["bench", "--keys", "3e3", "--operations", "1e3"];

fn bench(more: &[&str]) -> Vec<String> {
    // Workloads come before a matrix, which takes all words that follow.
    let words = [&SMALL[..1], more, &SMALL[1..]].concat();
    words.into_iter().map(String::from).collect()
}

fn strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[test]
fn answers_agree_in_json_csv_and_html() {
    let place = Place::new();
    let (csv, html) = (place.path("runs.csv"), place.path("page.html"));
    let words = bench(&["readmissing", "fillrandom", "--csv", &csv, "--html", &html, "--json"]);
    let words = [&strs(&words)[..], &["--matrix", "filter=none,bloom:10", "layout=full"]].concat();
    let answer = json(&words);
    let runs = answer["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 4);
    let table = String::from_utf8(read(Path::new(&csv))).unwrap();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    // Lookups have two variants of one kind each, fills have one.
    assert_eq!(lines.len(), 1 + 2 * (2 + 1));
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    let column = |name: &str| lines[0].iter().position(|other| *other == name).unwrap();
    let mut rows = lines[1..].iter();
    for run in runs {
        assert_eq!(run["wrong_answers"], 0);
        for variant in run["variants"].as_array().unwrap() {
            let row = rows.next().unwrap();
            assert_eq!(row[column("workload")], run["workload"]);
            assert_eq!(row[column("filter")], run["settings"]["filter"]);
            assert_eq!(row[column("operations")], variant["operations"].to_string());
            assert_eq!(row[column("p99_nanos")], variant["kinds"][0]["p99_nanos"].to_string());
        }
    }
    // Filters save blocks where there are filters.
    let blocks = |run: &Value, variant: usize| {
        run["variants"][variant]["data_blocks_per_operation"].as_f64().unwrap()
    };
    assert!((blocks(&runs[0], 0) - blocks(&runs[0], 1)).abs() < 0.2, "{runs:?}");
    assert!(blocks(&runs[2], 0) < 0.2 && blocks(&runs[2], 1) > 1.0, "{runs:?}");
    let page = String::from_utf8(read(Path::new(&html))).unwrap();
    assert!(page.len() < 1_000_000 && page.contains("<svg"), "{} bytes", page.len());
    for figure in answer["figures"].as_array().unwrap() {
        let id = figure["id"].as_str().unwrap();
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
        assert!(!figure["rows"].as_array().unwrap().is_empty(), "{id}");
    }
    assert_eq!(answer["figures"].as_array().unwrap().len(), 5);
    assert!(answer["command"].as_str().unwrap().contains("filter=none,bloom:10"));
    assert!(answer["machine"]["cores"].as_u64().unwrap() > 0);
}

#[test]
fn a_seed_decides_what_is_read() {
    let words = bench(&["readrandom", "--hit-ratio", "0.5", "--threads", "1", "--json"]);
    let answers = [json(&strs(&words)), json(&strs(&words))];
    // Turns end by time, too, so the variants may have different shares.
    let sum = |answer: &Value, of: &str| -> f64 {
        let variants = answer["runs"][0]["variants"].as_array().unwrap();
        variants.iter().map(|variant| variant[of].as_f64().unwrap()).sum()
    };
    assert_eq!(sum(&answers[0], "lookups"), sum(&answers[1], "lookups"));
    assert_eq!(sum(&answers[0], "lookups"), 1000.0);
}

#[test]
fn a_database_of_the_user_is_only_read() {
    let place = Place::new();
    let db = place.database();
    let before: Vec<_> = files(&db, "").into_iter().map(|file| (read(&file), file)).collect();
    let words = ["bench", "readrandom", "readseq", "--operations", "500", "--json", "--db", &db];
    let answer = json(&[&words[..], &["--hit-ratio", "0.5"]].concat());
    let runs = answer["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert!(runs.iter().all(|run| run["wrong_answers"] == 0), "{runs:?}");
    assert!(runs[0]["space_amplification"].is_null());
    let after: Vec<_> = files(&db, "").into_iter().map(|file| (read(&file), file)).collect();
    assert!(before == after, "a file has changed");
    let words = ["bench", "overwrite", "--db", &db];
    assert!(fails(2, &words).contains("overwrite writes, and --db is opened read-only"));
    let held = siftdb::Db::open(&db).unwrap();
    assert!(fails(4, &["bench", "--db", &db]).contains("close the database"));
    held.close().unwrap();
    let missing = place.path("missing");
    assert!(fails(4, &["bench", "--db", &missing]).contains("no database"));
    let empty = place.path("empty");
    siftdb::Db::open(&empty).unwrap().close().unwrap();
    assert!(fails(2, &["bench", "--db", &empty]).contains("load some first"));
}

#[test]
fn bad_input_says_what_to_do() {
    let place = Place::new();
    let (empty, one, file) = (place.path("empty"), place.path("one"), place.path("file"));
    write(&empty, b"\n\n");
    write(&one, b"the only key\n");
    write(&file, b"");
    let operations = ["--operations", "300"];
    let message = fails(2, &["bench", "--key-file", &empty]);
    assert!(message.contains("no keys in") && message.contains("one key a line"), "{message}");
    let words = ["bench", "readrandom", "fillseq", "readreverse", "ycsb-d", "--key-file", &one];
    let answer = json(&[&words[..], &operations, &["--json", "--hit-ratio", "0.5"]].concat());
    assert_eq!(answer["runs"].as_array().unwrap().len(), 4);
    fails(4, &["bench", "--key-file", &place.path("missing")]);
    let message = fails(4, &["bench", "--dir", &file]);
    assert!(message.contains("--dir"), "{message}");
    let nowhere = place.path("no/folder/page.html");
    assert!(fails(4, &["bench", "--html", &nowhere]).contains("create it, or name another"));
    for wrong in [&["filter"][..], &["color=red"], &["cache=much"], &["layout=round"]] {
        assert!(!fails(2, &[&["bench", "--matrix"], wrong].concat()).is_empty());
    }
    assert!(fails(2, &["bench", "fillrandom", "--cold"]).contains("--cold reads"));
}

#[test]
fn benchmarks_leave_nothing_behind() {
    let place = Place::new();
    let temporary = place.path("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let words = bench(&["readrandom", "--dir", &temporary]);
    let text = ok(&strs(&words));
    assert!(text.contains("siftdb readrandom  round 1") && text.contains("false positives"));
    assert!(files(&temporary, "").is_empty());
    let mut child = command(&["bench", "readrandom", "--duration", "1h", "--keys", "3e3"])
        .args(["--dir", &temporary])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let is_loading = || {
        let made = files(&temporary, "").into_iter();
        made.flat_map(|directory| files(directory.to_str().unwrap(), "")).next().is_some()
    };
    while !is_loading() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was interrupted");
        std::thread::yield_now();
    }
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    assert!(child.wait().unwrap().signal().is_some());
    assert!(files(&temporary, "").is_empty(), "{:?}", files(&temporary, ""));
}

#[test]
fn cold_runs_read_every_block_or_say_why_not() {
    let place = Place::new();
    let parent = place.path("tmp");
    std::fs::create_dir(&parent).unwrap();
    let words = bench(&["readmissing", "--cold", "--dir", &parent, "--json"]);
    let output = command(&strs(&words)).output().unwrap();
    if output.status.code() == Some(4) {
        let why = String::from_utf8(output.stderr).unwrap();
        assert!(why.contains("no cold figures of"), "{why}");
        return;
    }
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let variants = answer["runs"][0]["variants"].as_array().unwrap();
    assert_eq!(variants.len(), 2);
    for variant in variants {
        let of = |name: &str| variant[name].as_f64().unwrap();
        assert!(of("blocks_read_per_operation") >= of("data_blocks_per_operation"), "{variant}");
    }
}

/// An answer of one workload that ran `rounds` times and took this long.
fn answer(started: f64, rounds: u32, nanos: f64) -> String {
    let run = |round: u32| {
        let variant = value!({
            "filters": true,
            "typical_nanos": nanos + f64::from(round % 3),
            "blocks_read_per_operation": 0.5,
            "kinds": [{ "kind": "get", "p50_nanos": 90, "p99_nanos": 2_000 }],
        });
        value!({
            "store": "siftdb",
            "workload": "readrandom",
            "settings": { "cache": "8MB" },
            "started": started + f64::from(round),
            "variants": [variant],
        })
    };
    value!({ "runs": (0..rounds).map(run).collect::<Value>() }).to_string()
}

#[test]
fn comparisons_say_what_differs() {
    let place = Place::new();
    let (first, second) = (place.path("a.json"), place.path("b.json"));
    // Several answers one after the other, as a loop of the shell makes them.
    let write_both = |rounds: u32, slower: f64| {
        let rounds = |from: f64, nanos: f64| -> String {
            (0..rounds).map(|n| answer(from + 10.0 * f64::from(n), 1, nanos)).collect()
        };
        write(&first, rounds(0.0, 100.0).as_bytes());
        write(&second, rounds(5.0, 100.0 * slower).as_bytes());
    };
    write_both(9, 1.25);
    let compared = json(&["bench", "compare", &first, &second, "--json"]);
    assert_eq!((&compared["rounds_needed"], &compared["by_turns"]), (&8.into(), &true.into()));
    let figures = compared["compared"].as_array().unwrap();
    let differing: Vec<_> = figures.iter().filter(|one| one["differs"] == true).collect();
    assert_eq!((figures.len(), differing.len()), (4, 1));
    assert_eq!(differing[0]["figure"], "typical_nanos");
    assert!((differing[0]["ratio"].as_f64().unwrap() - 1.25).abs() < 0.01);
    let text = ok(&["bench", "compare", &first, &second]);
    assert!(text.contains("siftdb readrandom cache=8MB, filters on"), "{text}");
    assert_eq!((text.matches("DIFFERS").count(), text.matches("no difference").count()), (1, 3));
    write_both(3, 2.0);
    let text = ok(&["bench", "compare", &first, &second]);
    assert!(text.contains("at least 8 rounds are needed"), "{text}");
    assert!(!text.contains("DIFFERS"), "{text}");
    // Two answers of many rounds each were not made by turns.
    write(&first, answer(0.0, 9, 100.0).as_bytes());
    write(&second, answer(100.0, 9, 100.0).as_bytes());
    let text = ok(&["bench", "compare", &first, &second]);
    assert!(text.contains("not made by turns") && !text.contains("DIFFERS"), "{text}");
    for wrong in ["", "no json", "{}", "[1]", "{\"runs\":[{}]}"] {
        write(&second, wrong.as_bytes());
        let message = fails(2, &["bench", "compare", &first, &second]);
        assert!(message.contains("b.json: "), "{wrong}: {message}");
    }
}
