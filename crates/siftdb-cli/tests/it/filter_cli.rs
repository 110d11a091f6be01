//! `siftdb filter` end to end: its figures, each finding provoked alone, exit codes.

use crate::cli::{Place, fails, files, json, ok, read, siftdb, write};
use crate::support::filters::Marks;
use serde_json::Value;
use siftdb::{Filter, FilterLayout, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of lines.
fn lines(place: &Place, name: &str, lines: impl Iterator<Item = String>) -> String {
    let path = place.path(name);
    write(&path, lines.map(|line| line + "\n").collect::<String>().as_bytes());
    path
}

/// 3,000 entries in one table of level 1, and the counters at zero.
fn database(place: &Place, name: &str, filter: Filter) -> String {
    let path = place.path(name);
    let db =
        Options::new().filter(filter).register_filter_policy(Arc::new(Marks)).open(&path).unwrap();
    (0..3_000).for_each(|i| db.put(format!("key{i:04}"), format!("value {i}")).unwrap());
    db.compact_range(..).unwrap();
    db.close().unwrap();
    path
}

/// Several tables at levels 0 to 2, with several versions of keys.
fn several_tables(place: &Place) -> String {
    let path = place.path("several");
    let small =
        Options::new().table_bytes(16 << 10).level_base_bytes(32 << 10).filter(Filter::bloom(5.0));
    let db = small.auto_compaction(false).open(&path).unwrap();
    for round in 0..3 {
        for i in (0..3_000).skip(round * 500) {
            db.put(format!("key{i:04}"), format!("value {i} of round {round}")).unwrap();
        }
        db.flush().unwrap();
        if round == 0 {
            db.compact_range(..).unwrap();
        }
    }
    db.close().unwrap();
    path
}

/// The kinds of findings, each of them a sentence that says what to do, and its figures.
fn findings(arguments: &[&str]) -> Vec<String> {
    let report = json(&[arguments, &["--json"]].concat());
    let text = ok(arguments);
    let kinds = report["findings"].as_array().unwrap().iter().map(|finding| {
        let (kind, sentence) = (&finding["kind"], finding["what"].as_str().unwrap());
        let line = format!("  {}: {sentence}\n", kind.as_str().unwrap());
        // With --probe the second run starts at zero and finds the same.
        assert!(text.contains(&line), "{line}\n{text}");
        assert!(finding.as_object().unwrap().len() > 2, "only a sentence: {finding}");
        kind.as_str().unwrap().to_string()
    });
    let kinds: Vec<String> = kinds.collect();
    assert_eq!(kinds.is_empty(), text.contains("doctor: nothing to say"), "{text}");
    kinds
}

#[test]
fn sim_needs_no_database() {
    let sim = json(&["filter", "sim", "--keys", "1e6", "--bits", "10,16", "--json"]);
    let rows = sim["filters"].as_array().unwrap();
    let row = |encoding: &str, bits: f64| {
        rows.iter().find(|row| row["encoding"] == encoding && row["asked_bits"] == bits).unwrap()
    };
    let fast = row("fast-local-bloom", 10.0);
    assert_eq!((&fast["bytes"], &fast["probes"]), (&1_250_053.into(), &6.0.into()));
    assert!((fast["expected_fpr"].as_f64().unwrap() - 0.009_65).abs() < 5e-5);
    assert_eq!(row("leveldb-bloom", 16.0)["probes"], 11.0);
    let ideal = row("ideal Bloom", 16.0);
    assert!((ideal["probes"].as_f64().unwrap() - 11.09).abs() < 0.001);
    assert!(ideal["above_ideal"].as_f64().unwrap().abs() < 1e-9);

    let aim = json(&["filter", "sim", "--fpr", "1%", "--json"]);
    for row in aim["filters"].as_array().unwrap() {
        assert!(row["expected_fpr"].as_f64().unwrap() <= 0.01 + 1e-12, "{row}");
        assert!((6.0..12.0).contains(&row["bits_per_key"].as_f64().unwrap()), "{row}");
    }
    let text = ok(&["filter", "sim", "--fpr", "0.0001"]);
    assert!(text.contains("fast-local-bloom") && text.contains("1.44 * log2"), "{text}");
    // One key in 512 sets a single bit: no number of bits helps.
    assert!(text.contains("legacy-bloom cannot keep to 0.0100 %"), "{text}");
}

#[test]
fn filter_bench_checks_every_encoding() {
    let bench = ["filter", "bench", "--keys", "2e3", "--lookups", "2e4"];
    let figures = json(&[&bench[..], &["--json"]].concat());
    let encodings = figures["encodings"].as_array().unwrap();
    let built_in = siftdb::filter::Encoding::built_in(10_000);
    assert_eq!(encodings.len(), built_in.len());
    for (measured, encoding) in encodings.iter().zip(built_in) {
        assert_eq!(measured["encoding"], encoding.label());
        let figure = |name: &str| measured[name].as_f64().unwrap();
        // A Ribbon filter rounds up or down by its first key.
        let expected = encoding.filter_bytes(2_000).unwrap();
        assert!(expected.abs_diff(figure("filter_bytes") as u64) <= 16, "{measured}");
        let (low, high) = (figure("observed_fpr_low"), figure("observed_fpr_high"));
        assert!(low <= figure("observed_fpr") && figure("observed_fpr") <= high);
        assert!((0.005..0.016).contains(&figure("observed_fpr")), "{measured}");
        for time in ["build_nanos_per_key", "inside_absent_nanos", "outside_present_nanos"] {
            assert!(figure(time) > 0.0, "{measured}");
        }
    }
    assert!(ok(&bench).contains("no false negatives"));
}

#[test]
fn filter_bench_measures_range_filters() {
    let bench = ["filter", "bench", "--ranges", "--keys", "3e3", "--lookups", "2e3"];
    let figures = json(&[&bench[..], &["--json"]].concat());
    let filters = figures["range_filters"].as_array().unwrap();
    assert_eq!((filters.len(), &figures["keys_per_block"]), (6 * 4, &34.into()));
    for (measured, asked) in filters.iter().zip([8.0, 10.0, 12.0, 16.0].into_iter().cycle()) {
        let figure = |name: &str| measured[name].as_f64().unwrap();
        assert_eq!(figure("asked_bits"), asked);
        // The model takes 0.7 bits of each of these few keys.
        assert!((-0.5..1.2).contains(&(figure("bits_per_key") - asked)), "{measured}");
        assert_eq!(figure("random_share"), figure("random_passed") / 2e3);
        assert!(figure("random_share") < figure("after_key_share"), "{measured}");
        for time in ["build_nanos_per_key", "empty_nanos", "present_nanos"] {
            assert!(figure(time) > 0.0, "{measured}");
        }
    }
    let text = ok(&[&bench[..], &["--bits", "9"]].concat());
    assert!(text.contains("every range with a key passed"), "{text}");
    assert_eq!(text.lines().count(), 3 + 6 + 1, "{text}");
    assert!(fails(2, &[&bench[..], &["--bits", "21"]].concat()).contains("it takes 4 to 20"));
    assert!(fails(2, &["filter", "bench", "--ranges", "--keys", "1e8"]).contains("at most"));
}

#[test]
fn filter_stats_print_filters_and_their_use() {
    let place = Place::new();
    let db = database(&place, "db", Filter::bloom(10.0));
    let fresh = json(&["filter", "stats", &db, "--json"]);
    let level = &fresh["levels"][0];
    assert_eq!((&level["level"], &level["lookups"]), (&1.into(), &0.into()));
    let filter = &level["filters"][0];
    assert_eq!((&filter["tables"], &filter["keys"]), (&1.into(), &3_000.into()));
    assert_eq!(
        (&filter["encoding"], &filter["layout"]),
        (&"fast-local-bloom".into(), &"full".into())
    );
    assert!((filter["bits_per_key"].as_f64().unwrap() - 10.0).abs() < 0.2, "{filter}");
    assert_eq!(level["observed_fpr"], Value::Null);

    // Absent keys within the table's range, and some that are there.
    let keys = (0..9_000).map(|i| match i % 9 {
        0 => format!("key{:04}", i / 9),
        part => format!("key{:04}x{part}", i / 9),
    });
    let probe = lines(&place, "probe", keys);
    for _ in 0..2 {
        // Two runs give the same figures, because earlier counts are left out.
        let probed = json(&["filter", "stats", &db, "--probe", &probe, "--json"]);
        let level = &probed["levels"][0];
        assert_eq!(probed["probe"]["found"], 1_000);
        assert_eq!((&level["lookups"], &level["true_positives"]), (&9_000.into(), &1_000.into()));
        let passed = level["false_positives"].as_u64().unwrap();
        assert_eq!(level["negatives"].as_u64().unwrap() + passed, 8_000);
        let figure = |name: &str| level[name].as_f64().unwrap();
        assert!((0.005..0.015).contains(&figure("observed_fpr")), "{level}");
        assert!(figure("observed_fpr_low") < figure("observed_fpr"));
        assert!(figure("observed_fpr") < figure("observed_fpr_high"));
    }
    let text = ok(&["filter", "stats", &db, "--probe", &probe]);
    assert!(
        text.contains("counted: 9000 lookups of keys of") && text.contains("1000 found"),
        "{text}"
    );
    // Read-only commands count nothing; the lookups of a program are counted.
    let since = ok(&["filter", "stats", &db]);
    assert!(since.contains("counted since 20") && since.contains("         0 "), "{since}");
    let program = siftdb::Db::open(&db).unwrap();
    (0..2_700).for_each(|i| assert_eq!(program.get(format!("key{i:04}x")).unwrap(), None));
    program.close().unwrap();
    let since = ok(&["filter", "stats", &db]);
    assert!(since.contains("counted since 20") && since.contains("      2700 "), "{since}");
}

/// Most ranges lie between two neighbours, so that a range filter excludes the table.
#[test]
fn probed_ranges_count_what_range_filters_exclude() {
    let place = Place::new();
    let plain = database(&place, "plain", Filter::bloom(10.0));
    let with_ranges = database(&place, "ranges", Filter::bloom(10.0).ranges(20.0));
    let ranges = (0..1_000).map(|i| match i % 4 {
        0 => format!("key{i:04}\tkey{i:04}0"),
        _ => format!("key{i:04}30\tkey{i:04}5"),
    });
    let file = lines(&place, "ranges.tsv", ranges.chain(["key12".into()]));
    let probe = |db: &str| json(&["filter", "stats", db, "--probe-ranges", &file, "--json"]);
    for (db, excludes) in [(&plain, false), (&with_ranges, true)] {
        let report = probe(db);
        assert_eq!(report["probe"], serde_json::json!({ "lookups": 1_001, "found": 251 }));
        assert_eq!((&report["scans"], &report["scans_empty"]), (&1_001.into(), &750.into()));
        let level = &report["levels"][0];
        let count = |name: &str| level[name].as_u64().unwrap();
        assert_eq!(count("scan_tables") + count("scan_negatives"), 1_001, "{level}");
        let maybe = count("scan_true_positives") + count("scan_false_positives");
        assert_eq!(count("scan_negatives") >= 675, excludes, "{level}");
        assert_eq!(maybe, if excludes { count("scan_tables") } else { 0 }, "{level}");
        let wants = report["findings"].as_array().unwrap().iter();
        assert_eq!(wants.filter(|one| one["kind"] == "empty-scans").count() == 1, !excludes);
    }
    let text = ok(&["filter", "stats", &with_ranges, "--probe-ranges", &file]);
    assert!(text.contains("1001 scans, 750 of them without an entry"), "{text}");
    assert!(text.contains(" scans of ranges of ") && text.contains("251 found"), "{text}");

    // A program's scans are counted, and `advise` says what would exclude tables.
    let program = siftdb::Db::open(&plain).unwrap();
    for i in 0..1_000 {
        assert_eq!(program.range(format!("key{i:04}30")..format!("key{i:04}5")).count(), 0);
    }
    program.close().unwrap();
    let advice = ["filter", "advise", &plain, "--budget", "1MB"];
    let text = ok(&advice);
    assert!(text.contains("ranges: 100 % of 1000 scans found nothing"), "{text}");
    let advice = json(&[&advice[..], &["--json"]].concat());
    assert_eq!(advice["empty_scans"]["tables_per_scan"], 1.0, "{advice}");

    let bad = lines(&place, "bad.tsv", ["a\tb".into(), "b\ta".into()].into_iter());
    let why = fails(2, &["filter", "stats", &plain, "--probe-ranges", &bad]);
    assert!(why.contains("line 2") && why.contains("ends before it begins"), "{why}");
}

#[test]
fn mixed_levels_have_a_line_per_filter() {
    let place = Place::new();
    let path = place.path("mixed");
    let open =
        |filter: Filter| Options::new().filter(filter).auto_compaction(false).open(&path).unwrap();
    let kinds = [
        Filter::bloom(10.0),
        Filter::leveldb_bloom(12.0),
        Filter::none(),
        Filter::bloom(10.0).layout(FilterLayout::Partitioned { block_bytes: 1_000 }),
        Filter::bloom(10.0),
    ];
    for (round, filter) in kinds.into_iter().enumerate() {
        let db = open(filter);
        (0..500).for_each(|i| db.put(format!("key{i:04}"), format!("{round}")).unwrap());
        db.flush().unwrap();
        db.close().unwrap();
    }
    let text = ok(&["filter", "stats", &path]);
    let level_0: Vec<&str> = text.lines().filter(|line| line.starts_with("    0 ")).collect();
    assert_eq!(level_0.len(), 4, "{text}");
    assert!(level_0[0].contains("     2       1000"), "{text}");
    assert!(text.contains("leveldb-bloom") && text.contains("partitioned:1000"), "{text}");
    assert_eq!(findings(&["filter", "stats", &path]), ["no-filter"]);
}

#[test]
fn the_doctor_names_what_is_wrong_with_filters() {
    let place = Place::new();
    let stats = |db: &str, more: &[&str]| findings(&[&["filter", "stats", db][..], more].concat());
    let good = database(&place, "good", Filter::bloom(10.0));
    assert!(stats(&good, &[]).is_empty());
    assert_eq!(stats(&good, &["--bits", "16"]), ["weaker"]);
    assert_eq!(stats(&good, &["--cache", "1kB"]), ["larger-than-cache"]);
    assert_eq!(stats(&good, &["--cache", "5kB"]), ["larger-than-pinned"]);
    // Filters are compared with the saved settings, unless arguments name others.
    let none = database(&place, "none", Filter::none());
    assert!(stats(&none, &[]).is_empty());
    assert_eq!(stats(&none, &["--bits", "10"]), ["no-filter"]);
    let unknown = database(&place, "unknown", Filter::custom(Arc::new(Marks)));
    assert_eq!(stats(&unknown, &[]), ["unknown-policy"]);
    assert!(ok(&["filter", "stats", &unknown]).contains("\"test.Marks\""));
    let weak = database(&place, "weak", Filter::leveldb_bloom(5.0));
    assert_eq!(stats(&weak, &["--bits", "10"]), ["weaker"]);
    assert!(stats(&weak, &["--encoding", "leveldb-bloom", "--bits", "5"]).is_empty());
    assert!(stats(&weak, &[]).is_empty());
}

fn damage_filter(table: &Path) {
    let text = ok(&["sst", "layout", table.to_str().unwrap()]);
    let line = text.lines().find(|line| line.starts_with("  filter ")).unwrap();
    let (_, end) = line.split_whitespace().nth(1).unwrap().split_once("..").unwrap();
    let mut bytes = read(table);
    bytes[end.parse::<usize>().unwrap() - 100] ^= 1;
    write(table.to_str().unwrap(), &bytes);
}

/// `filter rebuild` works on one keyspace, so advice has to say on which.
#[test]
fn advised_commands_name_the_keyspace() {
    let place = Place::new();
    let (db, one) = (place.path("db"), lines(&place, "lines", (0..900).map(|i| format!("{i}\tv"))));
    ok(&["load", "--create", &db, &one]);
    ok(&["load", "--create", &db, &one, "--keyspace", "seen"]);
    let advised = ok(&["filter", "advise", &db, "--budget", "1kB", "--keyspace", "seen"]);
    assert!(advised.contains("filter rebuild DIR --keyspace seen --monkey 1000\n"), "{advised}");
    damage_filter(files(&db, ".sst").last().unwrap());
    let checked = siftdb(&["verify", &db]);
    let text = String::from_utf8(checked.stdout).unwrap();
    let advice = "1 not in order; `siftdb filter rebuild DIR --keyspace seen` repairs filters\n";
    assert!(text.ends_with(advice), "{text}");
    ok(&["filter", "rebuild", &db, "--keyspace", "seen"]);
    ok(&["verify", &db]);
}

#[test]
fn damaged_filters_are_named_with_their_remedy() {
    let place = Place::new();
    let db = database(&place, "db", Filter::bloom(10.0).layout(FilterLayout::Full));
    let [table] = &files(&db, ".sst")[..] else { panic!("one table") };
    damage_filter(table);
    assert_eq!(findings(&["filter", "stats", &db]), ["damaged"]);
    let report = json(&["filter", "stats", &db, "--json"]);
    assert_eq!(report["levels"][0]["filters"][0]["damaged"], 1);
    assert!(fails(3, &["verify", &db]).contains("`siftdb filter rebuild`"));
    let mended = json(&["filter", "rebuild", &db, "--layout", "full", "--json"]);
    assert_eq!(mended["tables_rewritten"], 1);
    ok(&["verify", &db]);
    assert!(findings(&["filter", "stats", &db]).is_empty());
}

#[test]
fn the_doctor_judges_observed_rates() {
    let place = Place::new();
    let db = database(&place, "db", Filter::bloom(10.0));
    let probed = |file: &str| findings(&["filter", "stats", &db, "--probe", file]);
    let present = lines(&place, "present", (0..1_500).map(|i| format!("key{i:04}")));
    assert_eq!(probed(&present), ["does-not-pay"]);
    let absent = lines(&place, "absent", (0..2_900).map(|i| format!("key{i:04}x")));
    assert!(probed(&absent).is_empty());
    // One absent key that the filter lets through, asked for again and again.
    let opened = siftdb::Db::open(&db).unwrap();
    let mut absent = (0..2_900).map(|i| format!("key{i:04}y"));
    let passes = absent.find(|key| opened.may_contain(key).unwrap()).unwrap();
    opened.close().unwrap();
    drop(opened);
    let unlucky = lines(&place, "unlucky", (0..1_200).map(|_| passes.clone()));
    assert_eq!(probed(&unlucky), ["above-expected"]);
}

#[test]
fn rebuild_changes_only_filters() {
    let place = Place::new();
    let db = several_tables(&place);
    let held = ok(&["scan", &db]);
    let probe = lines(&place, "probe", (0..2_900).map(|i| format!("key{i:04}x")));
    // Lookups that passed a filter, and lookups that asked none, over all levels.
    let bill = |more: &[&str]| {
        let stats = ["filter", "stats", &db, "--probe", &probe, "--json"];
        let report = json(&[&stats[..], more].concat());
        let levels = report["levels"].as_array().unwrap().clone();
        let filters = levels.iter().flat_map(|level| level["filters"].as_array().unwrap().clone());
        let differing = filters.filter(|filter| filter["differs"] == true).count();
        let sum =
            |name: &str| levels.iter().map(|level| level[name].as_u64().unwrap()).sum::<u64>();
        (sum("negatives"), sum("false_positives"), sum("not_consulted"), differing)
    };
    let (_, passed, unasked, differing) = bill(&["--bits", "10"]);
    assert!(passed > 300 && unasked == 0 && differing > 1, "5 bits a key: {passed} {differing}");
    let tables = json(&["stats", &db, "--json"])["total"]["tables"].as_u64().unwrap();
    assert!(tables > 4);

    let better = ["--bits", "14", "--layout", "partitioned:512"];
    let rebuilt = json(&[&["filter", "rebuild", &db, "--json"][..], &better].concat());
    assert_eq!(
        (&rebuilt["tables_rewritten"], &rebuilt["tables_before"]),
        (&tables.into(), &tables.into())
    );
    assert!(rebuilt["bytes_written"].as_u64().unwrap() > 0, "{rebuilt}");
    let (negatives, passed, unasked, differing) = bill(&better);
    assert!(negatives > 2_500 && passed < 60 && unasked == 0 && differing == 0, "{passed}");
    assert_eq!(ok(&["scan", &db]), held);

    // Again there is nothing to do, and nothing is written but counters.
    let contents = || -> Vec<(PathBuf, Vec<u8>)> {
        let all = files(&db, "").into_iter().filter(|path| !path.ends_with("STATS"));
        all.map(|path| (path.clone(), read(&path))).collect()
    };
    let before = contents();
    let again = ok(&[&["filter", "rebuild", &db][..], &better].concat());
    assert!(again.starts_with("0 of "), "{again}");
    assert_eq!(contents(), before);
    let all = json(&[&["filter", "rebuild", &db, "--all", "--json"][..], &better].concat());
    assert_eq!(all["tables_rewritten"], all["tables_before"]);
    assert_ne!(contents(), before);
    ok(&["filter", "rebuild", &db, "--encoding", "leveldb-bloom", "--layout", "block-based"]);
    let text = ok(&["filter", "stats", &db]);
    assert!(text.contains("leveldb-bloom") && text.contains("block-based:2048"), "{text}");
    assert_eq!(ok(&["scan", &db]), held);
    ok(&["sst", "verify", &db]);
}

#[test]
fn rebuild_adds_range_filters() {
    let place = Place::new();
    let db = database(&place, "db", Filter::bloom(10.0));
    let range_bytes = || {
        let [table] = &files(&db, ".sst")[..] else { panic!("one table") };
        let table = table.to_str().unwrap().to_string();
        let layout = json(&["sst", "layout", &table, "--json"])["range_filter_bytes"].clone();
        assert_eq!(layout != 0, ok(&["sst", "layout", &table]).contains("12 bits a key"));
        let verified = json(&["sst", "verify", &db, "--json"]);
        assert_eq!(verified["tables"][0]["table"]["range_filter_bytes"], layout);
        layout
    };
    assert_eq!(range_bytes(), 0);
    let ranges = Options::new().filter(Filter::bloom(10.0).ranges(12.0));
    let opened = ranges.open(&db).unwrap();
    opened.save_settings().unwrap();
    opened.close().unwrap();
    let filter = |report: &Value| report["levels"][0]["filters"][0].clone();
    let before = json(&["filter", "stats", &db, "--json"]);
    assert_eq!(before["levels"][0]["wanted"]["range_bits_per_key"], 12.0);
    assert_eq!(filter(&before)["range_bits_per_key"], Value::Null);
    assert_eq!(filter(&before)["differs"], true);

    let rebuilt = json(&["filter", "rebuild", &db, "--json"]);
    assert_eq!(rebuilt["tables_rewritten"], 1);
    assert_eq!(rebuilt["range_filter_bytes_before"], 0);
    let bytes = range_bytes();
    // 12 bits for each of 3,000 keys.
    assert!((3_800..5_000).contains(&bytes.as_u64().unwrap()), "{bytes}");
    assert_eq!(rebuilt["range_filter_bytes_after"], bytes);
    let after = json(&["filter", "stats", &db, "--json"]);
    assert_eq!(filter(&after)["range_filter_bytes"], bytes);
    assert_eq!(filter(&after)["differs"], false);
    assert_eq!(json(&["stats", &db, "--json"])["total"]["range_filter_bytes"], bytes);
    assert!(ok(&["filter", "rebuild", &db]).starts_with("0 of "));
    // The arguments name no range filter.
    assert_eq!(json(&["filter", "rebuild", &db, "--bits", "10", "--json"])["tables_rewritten"], 1);
    assert_eq!(range_bytes(), 0);
}

#[test]
fn damaged_range_filters_are_rebuilt() {
    let place = Place::new();
    let db = database(&place, "db", Filter::bloom(10.0).ranges(12.0));
    let [table] = &files(&db, ".sst")[..] else { panic!("one table") };
    let text = ok(&["sst", "layout", table.to_str().unwrap()]);
    let line = text.lines().find(|line| line.starts_with("  range filter ")).unwrap();
    let (start, _) = line.split_whitespace().nth(2).unwrap().split_once("..").unwrap();
    let mut bytes = read(table);
    // The partitions are before their index.
    bytes[start.parse::<usize>().unwrap() - 100] ^= 1;
    write(table.to_str().unwrap(), &bytes);

    assert_eq!(findings(&["filter", "stats", &db]), ["damaged"]);
    assert!(fails(3, &["verify", &db]).contains("`siftdb filter rebuild`"));
    assert_eq!(json(&["filter", "rebuild", &db, "--json"])["tables_rewritten"], 1);
    ok(&["verify", &db]);
    assert!(findings(&["filter", "stats", &db]).is_empty());
}

#[test]
fn impossible_rebuilds_are_refused_untouched() {
    let place = Place::new();
    let missing = place.path("missing");
    for subcommand in ["stats", "rebuild"] {
        fails(4, &["filter", subcommand, &missing]);
        assert!(!Path::new(&missing).exists(), "{subcommand}");
        let held = siftdb::Db::open(place.path("held")).unwrap();
        // `stats` only reads, so it reads while the handle is open.
        if subcommand == "rebuild" {
            let message = fails(4, &["filter", subcommand, &place.path("held")]);
            assert!(message.contains("locked"), "{message}");
        }
        drop(held);
        for wrong in ["0", "-5", "NaN", "inf", "1e9", "ten", ""] {
            fails(2, &["filter", subcommand, &missing, "--bits", wrong]);
        }
        for wrong in ["whole", "full:3", "partitioned:0", "block-based:77", "partitioned:-1"] {
            fails(2, &["filter", subcommand, &missing, "--layout", wrong]);
        }
        fails(2, &["filter", subcommand, &missing, "--encoding", "rot13"]);
        let half = ["filter", subcommand, &missing, "--encoding", "leveldb-bloom", "--bits", "9.5"];
        assert!(fails(2, &half).contains("whole bits"));
        let fine = ["filter", subcommand, &missing, "--encoding", "ribbon", "--bits", "9.1234"];
        assert!(fails(2, &fine).contains("three decimals"));
    }
    let db = place.database();
    fails(4, &["filter", "stats", &db, "--probe", &missing]);
    fails(2, &["filter", "stats", &db, "--cache", "0"]);
    fails(2, &["filter"]);
    for wrong in [
        &["sim"][..],
        &["sim", "--bits", "0"],
        &["sim", "--bits", "1e9"],
        &["sim", "--bits", "NaN"],
        &["sim", "--bits=-1"],
        &["sim", "--fpr", "0"],
        &["sim", "--fpr", "1"],
        &["sim", "--fpr", "NaN"],
        &["sim", "--fpr", "1%", "--bits", "10"],
        &["sim", "--bits", "10", "--keys", "0"],
        &["sim", "--bits", "10", "--keys", "-1"],
        &["sim", "--bits", "10", "--keys", "1e30"],
        &["bench", "--keys", "0"],
        &["bench", "--keys", "1e12"],
        &["bench", "--bits", "0"],
        &["bench", "--lookups", "0"],
    ] {
        let output = siftdb(&[&["filter"][..], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{wrong:?}");
    }
}

#[test]
fn advise_spends_a_budget_where_it_saves_most() {
    let place = Place::new();
    let db = several_tables(&place);
    let advice = json(&["filter", "advise", &db, "--budget", "5kB", "--json"]);
    let figure = |name: &str| advice[name].as_f64().unwrap();
    let levels = advice["levels"].as_array().unwrap();
    assert!(levels.len() >= 2, "{advice}");
    assert!(figure("fpr_divided") <= figure("fpr_even"), "{advice}");
    let spent: f64 = levels.iter().map(|level| level["bytes_divided"].as_f64().unwrap()).sum();
    assert!((4_500.0..5_010.0).contains(&spent), "{advice}");
    let text = ok(&["filter", "advise", &db, "--budget", "5kB"]);
    assert!(text.contains("Filter::monkey(5000)"), "{text}");
    assert!(text.contains(".filter_at_level(0, Filter::bloom("), "{text}");
    assert!(text.contains("FilterLayout::Full"), "{text}");
    // Lookups confirm the advice: filters are as good as it says.
    let probe = lines(&place, "probe", (0..2_900).map(|i| format!("key{i:04}x")));
    let even = levels[0]["bits_even"].as_f64().unwrap();
    ok(&["filter", "rebuild", &db, "--bits", &format!("{even:.2}")]);
    let report = json(&["filter", "stats", &db, "--probe", &probe, "--json"]);
    let passed = report["levels"].as_array().unwrap().iter();
    let passed: u64 = passed.map(|level| level["false_positives"].as_u64().unwrap()).sum();
    // The tables of level 0 moved down, so lookups ask fewer runs than the advice assumed.
    assert!(passed as f64 <= 1.5 * 2_900.0 * figure("fpr_even"), "{passed}: {advice}");
    let empty = place.path("empty");
    siftdb::Db::open(&empty).unwrap().close().unwrap();
    let nothing = json(&["filter", "advise", &empty, "--budget", "1MB", "--json"]);
    assert_eq!((&nothing["levels"], &nothing["fpr_even"]), (&serde_json::json!([]), &0.0.into()));
    for wrong in ["0", "-1", "NaN", "1e30", "many", "5XB"] {
        fails(2, &["filter", "advise", &db, "--budget", wrong]);
    }
    fails(2, &["filter", "advise", &db]);
    fails(4, &["filter", "advise", &place.path("missing"), "--budget", "1MB"]);
}

#[test]
fn rebuild_applies_what_advise_recommends() {
    let place = Place::new();
    let db = several_tables(&place);
    let advice = json(&["filter", "advise", &db, "--budget", "5kB", "--json"]);
    let text = ok(&["filter", "advise", &db, "--budget", "5kB"]);
    assert!(text.contains("siftdb filter rebuild DIR --monkey 5000"), "{text}");
    ok(&["filter", "rebuild", &db, "--monkey", "5kB"]);
    let report = json(&["filter", "stats", &db, "--monkey", "5kB", "--json"]);
    let advised = |level: u64| {
        let levels = advice["levels"].as_array().unwrap();
        let level = levels.iter().find(|of| of["level"] == level).unwrap();
        level["bits_divided"].as_f64().unwrap()
    };
    let deep: Vec<&Value> = report["levels"].as_array().unwrap().iter().collect();
    let mut groups = 0;
    for level in &deep {
        let number = level["level"].as_u64().unwrap();
        for group in level["filters"].as_array().unwrap() {
            let bits = group["asked_bits_per_key"].as_f64().unwrap();
            assert!((bits - advised(number)).abs() < 0.002, "level {number}: {bits}, {advice}");
            groups += 1;
        }
    }
    assert!(groups > 0, "{report}");
    fails(2, &["filter", "rebuild", &db, "--monkey", "5kB", "--bits", "10"]);
}

/// Its saved settings leave the last level without filters, or give it others.
#[test]
fn arguments_are_for_the_last_level_too() {
    let last = ["filter_at_last_level=none", "filter_last_level=false", "filter_at_level.1=none"];
    for saved in last {
        let place = Place::new();
        let db = database(&place, "db", Filter::bloom(10.0));
        ok(&["settings", &db, "--set", saved]);
        ok(&["compact", &db, "--force"]);
        let bits = |report: &Value, of: &str| report["levels"][0][of].clone();
        let stats = json(&["filter", "stats", &db, "--bits", "12", "--json"]);
        assert_eq!(bits(&stats, "wanted")["bits_per_key"], 12.0, "{saved}: {stats}");
        assert_eq!(bits(&stats, "filters")[0]["differs"], true, "{saved}: {stats}");
        for wanted in [["--bits", "12"], ["--monkey", "3kB"]] {
            let rebuild = ["filter", "rebuild", &db, "--json"];
            let rebuilt = json(&[&rebuild[..], &wanted].concat());
            assert_eq!(rebuilt["tables_rewritten"], 1, "{saved}, {wanted:?}: {rebuilt}");
            assert_ne!(rebuilt["filter_bytes_after"], 0, "{saved}, {wanted:?}: {rebuilt}");
        }
        // Later tables have them, too.
        ok(&["compact", &db, "--force"]);
        let stats = json(&["filter", "stats", &db, "--json"]);
        assert_eq!(bits(&stats, "filters")[0]["differs"], false, "{saved}: {stats}");
        assert_eq!(bits(&stats, "filters")[0]["encoding"], "fast-local-bloom", "{saved}: {stats}");
    }
}

#[test]
fn stats_judges_filters_by_their_budget() {
    let place = Place::new();
    let db = database(&place, "evenly", Filter::bloom(8.0));
    let found = |budget: &str| findings(&["filter", "stats", &db, "--monkey", budget]);
    assert!(found("3kB").is_empty());
    assert_eq!(found("2kB"), ["budget"]);
    assert_eq!(found("4kB"), ["budget"]);
    let report = json(&["filter", "stats", &db, "--monkey", "2kB", "--json"]);
    let finding = &report["findings"][0];
    assert_eq!(finding["budget_bytes"], 2_000);
    assert!((3_000..3_300).contains(&finding["filter_bytes"].as_u64().unwrap()), "{finding}");
}
