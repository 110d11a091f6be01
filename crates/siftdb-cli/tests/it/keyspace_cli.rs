//! Keyspaces and saved settings in the command, end to end.

use crate::cli::{Place, command, fails, files, json, ok, read, siftdb, write};
use crate::support::filters::Marks;
use serde_json::{Value, json as object};
use siftdb::{Db, Filter, KeyspaceOptions, Options};
use std::process::Stdio;
use std::sync::Arc;

/// A database whose keyspaces `default` and `users` hold the key `ada` with different values.
fn two_keyspaces(place: &Place) -> String {
    let path = place.path("db");
    let db = Db::open(&path).unwrap();
    let users = db.keyspace("users").unwrap();
    db.put("ada", "default").unwrap();
    users.put("ada", "1815").unwrap();
    users.put("bob", "1912").unwrap();
    db.close().unwrap();
    path
}

/// Lines of `count` keys.
fn lines(place: &Place, name: &str, count: usize) -> String {
    let path = place.path(name);
    let text: String = (0..count).map(|i| format!("{name}{i:05}\tvalue {i}\n")).collect();
    write(&path, text.as_bytes());
    path
}

/// The filters of the tables of a keyspace: their encodings and bits a key.
fn filters(db: &str, keyspace: &str) -> Vec<(String, f64)> {
    let report = json(&["filter", "stats", db, "--keyspace", keyspace, "--json"]);
    assert_eq!(report["keyspace"], keyspace);
    let levels = report["levels"].as_array().unwrap().clone();
    let groups = levels.iter().flat_map(|level| level["filters"].as_array().unwrap().clone());
    let of = |group: Value| {
        let bits = group["asked_bits_per_key"].as_f64().unwrap_or(0.0);
        (group["encoding"].as_str().unwrap().to_string(), bits)
    };
    groups.map(of).collect()
}

fn bloom(bits: f64) -> (String, f64) {
    ("fast-local-bloom".into(), bits)
}

#[test]
fn commands_act_on_the_named_keyspace() {
    let place = Place::new();
    let db = two_keyspaces(&place);
    let users = &["--keyspace", "users"][..];
    let of = |arguments: &[&'static str]| -> Vec<String> {
        let (first, rest) = arguments.split_first().unwrap();
        [&[*first, &db], rest].concat().iter().map(|word| word.to_string()).collect()
    };
    let run = |arguments: &[&'static str]| {
        let words = of(arguments);
        ok(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert_eq!(run(&["get", "ada"]), "default");
    assert_eq!(run(&[&["get", "ada"], users].concat()), "1815");
    assert_eq!(run(&["scan"]), "ada\tdefault\n");
    assert_eq!(run(&[&["scan"], users].concat()), "ada\t1815\nbob\t1912\n");
    assert_eq!(run(&["count", "--keyspace", "default"]), "1\n");
    fails(1, &["get", &db, "bob"]);
    run(&[&["delete", "ada"], users].concat());
    assert_eq!(run(&[&["scan"], users].concat()), "bob\t1912\n");
    assert_eq!(run(&["get", "ada"]), "default");
    assert!(run(&[&["explain", "bob"], users].concat()).contains("found"));
    assert!(run(&["explain", "bob"]).contains("not found"));
    run(&[&["flush"], users].concat());
    let listed = |arguments: &[&str]| json(arguments)["keyspaces"].clone();
    let keyspaces = listed(&["keyspace", "list", &db, "--json"]);
    let of = |at: usize, name: &str| keyspaces[at][name].clone();
    assert_eq!((of(0, "keyspace"), of(0, "number")), ("default".into(), 0.into()));
    let held = (of(1, "keyspace"), of(1, "number"), of(1, "log_entries"));
    assert_eq!(held, ("users".into(), 1.into(), 0.into()));
    assert!(of(1, "tables").as_u64() > Some(0), "{keyspaces}");
    run(&[&["compact", "--force"], users].concat());
    let users = listed(&["keyspace", "list", &db, "--keyspace", "users", "--json"]);
    assert_eq!((&users[0]["entries"], users.as_array().unwrap().len()), (&1.into(), 1));
    ok(&["flush", &db]);
    let all = listed(&["keyspace", "list", &db, "--json"]);
    assert_eq!((&all[0]["tables"], &all[0]["log_entries"]), (&1.into(), &0.into()));
    let text = ok(&["keyspace", "list", &db]);
    assert!(text.contains("1 \"users\": 1 table, 1 entry"), "{text}");
}

#[test]
fn missing_keyspaces_are_errors_and_create_nothing() {
    let place = Place::new();
    let db = two_keyspaces(&place);
    let lines = lines(&place, "key", 3);
    let nowhere = &["--keyspace", "nowhere"][..];
    let commands: [&[&str]; 15] = [
        &["get", &db, "ada"],
        &["put", &db, "ada", "1"],
        &["delete", &db, "ada"],
        &["load", &db, &lines],
        &["scan", &db],
        &["explain", &db, "ada"],
        &["stats", &db],
        &["flush", &db],
        &["verify", &db],
        &["compact", &db],
        &["settings", &db],
        &["settings", &db, "--set", "snappy=false"],
        &["filter", "stats", &db],
        &["filter", "rebuild", &db],
        &["sst", "verify", &db],
    ];
    let names = || {
        let keyspaces = json(&["keyspace", "list", &db, "--json"])["keyspaces"].clone();
        let names = keyspaces.as_array().unwrap().iter().map(|one| one["keyspace"].to_string());
        names.collect::<Vec<_>>()
    };
    let before = names();
    for arguments in commands {
        let message = fails(4, &[arguments, nowhere].concat());
        assert!(message.contains(&format!("no keyspace \"nowhere\" in {db}")), "{message}");
        let error = fails(4, &[arguments, nowhere, &["--json"]].concat());
        let error: Value = serde_json::from_str(&error).unwrap();
        assert_eq!(error["error"]["kind"], "keyspace_not_found", "{arguments:?}");
        let creates = ["put", "load"].contains(&arguments[0]);
        assert_eq!(error["error"]["advice"] == "use --create", creates, "{arguments:?}");
        assert_eq!(names(), before, "{arguments:?}");
    }
    fails(4, &["filter", "advise", &db, "--budget", "1MB", "--keyspace", "nowhere"]);
    fails(4, &["keyspace", "drop", &db, "nowhere"]);
    fails(2, &["keyspace", "drop", &db, "default"]);
    fails(2, &["keyspace", "create", &db, "users"]);
    for wrong in ["", "a\nb", &"n".repeat(256)] {
        fails(2, &["keyspace", "create", &db, wrong]);
        fails(2, &["put", "--create", &db, "k", "v", "--keyspace", wrong]);
        fails(4, &["get", &db, "k", "--keyspace", wrong]);
    }
    assert_eq!(names(), before);
    assert!(fails(4, &["keyspace", "create", &place.path("none"), "x"]).contains("no database"));
}

#[test]
fn a_dropped_keyspace_is_gone() {
    let place = Place::new();
    let db = two_keyspaces(&place);
    ok(&["flush", &db]);
    let tables = files(&db, ".sst").len();
    ok(&["keyspace", "drop", &db, "users"]);
    assert!(fails(4, &["get", &db, "ada", "--keyspace", "users"]).contains("no keyspace"));
    assert_eq!(ok(&["get", &db, "ada"]), "default");
    assert!(ok(&["verify", &db]).ends_with("all in order\n"));
    let left = json(&["stats", &db, "--json"])["total"]["tables"].as_u64().unwrap();
    assert!(left < tables as u64, "{left} of {tables}");
    assert_eq!(files(&db, ".sst").len() as u64, left, "files of dropped tables are removed");
    // The next keyspace of that name is another one.
    let created = json(&["keyspace", "create", &db, "users", "--json"]);
    assert_eq!((&created["keyspace"], &created["number"]), (&"users".into(), &2.into()));
    assert_eq!(ok(&["scan", &db, "--keyspace", "users"]), "");
}

#[test]
fn scan_into_load_keeps_bytes_between_keyspaces() {
    let place = Place::new();
    let db = place.path("db");
    ok(&["put", "--create", "--escaped", &db, "tab\\t\\x00\\xff", "\\n\\\\", "--keyspace", "a"]);
    ok(&["put", "--create", "--escaped", &db, "plain", "", "--keyspace", "a"]);
    let scanned = siftdb(&["scan", &db, "--keyspace", "a"]).stdout;
    let mut load = command(&["load", "--create", &db, "-", "--keyspace", "b"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut load.stdin.take().unwrap(), &scanned).unwrap();
    assert!(load.wait().unwrap().success());
    assert_eq!(siftdb(&["scan", &db, "--keyspace", "b"]).stdout, scanned);
    assert_eq!(ok(&["scan", &db]), "");
}

#[test]
fn saved_filters_are_those_of_later_loads() {
    let place = Place::new();
    let db = place.path("db");
    ok(&["load", "--create", &db, &lines(&place, "a", 300)]);
    assert_eq!(filters(&db, "default"), [bloom(10.0)]);
    ok(&["settings", &db, "--set", "filter=bloom:12"]);
    assert_eq!(filters(&db, "default"), [bloom(10.0)], "tables that are there stay");
    let report = ok(&["filter", "stats", &db]);
    assert!(report.contains("  weaker: level 0: 1 table"), "{report}");
    ok(&["load", &db, &lines(&place, "b", 300)]);
    let mut all = filters(&db, "default");
    all.sort_by(|one, other| one.1.total_cmp(&other.1));
    assert_eq!(all, [bloom(10.0), bloom(12.0)]);
    // A rebuild without arguments goes by the settings.
    assert_eq!(json(&["filter", "rebuild", &db, "--json"])["tables_rewritten"], 1);
    assert!(filters(&db, "default").iter().all(|filter| *filter == bloom(12.0)));
    // The arguments of a rebuild are saved, also for the level that has a setting of its own.
    ok(&["settings", &db, "--set", "filter_at_level.0=none"]);
    ok(&["filter", "rebuild", &db, "--bits", "14"]);
    ok(&["load", &db, &lines(&place, "c", 300)]);
    assert!(filters(&db, "default").iter().all(|filter| *filter == bloom(14.0)));
    assert_eq!(json(&["filter", "rebuild", &db, "--json"])["tables_rewritten"], 0);
    // They are saved even if there was nothing to rewrite.
    let empty = place.path("empty");
    Db::open(&empty).unwrap().close().unwrap();
    ok(&["filter", "rebuild", &empty, "--bits", "9"]);
    ok(&["load", &empty, &lines(&place, "d", 300)]);
    assert_eq!(filters(&empty, "default"), [bloom(9.0)]);
}

#[test]
fn keyspaces_have_settings_of_their_own() {
    let place = Place::new();
    let db = place.path("db");
    ok(&["load", "--create", &db, &lines(&place, "a", 300)]);
    ok(&["keyspace", "create", &db, "seen", "--set", "filter=ribbon:16", "--set", "snappy=false"]);
    ok(&["load", &db, &lines(&place, "b", 300), "--keyspace", "seen"]);
    assert_eq!(filters(&db, "default"), [bloom(10.0)]);
    assert_eq!(filters(&db, "seen"), [("ribbon".into(), 16.0)]);
    let settings = json(&["settings", &db, "--json"])["keyspaces"].clone();
    let value = |name: &str, value: &str| object!({ "name": name, "value": value });
    assert_eq!(settings[0], object!({ "keyspace": "default", "settings": [] }));
    let seen = [value("filter", "ribbon:16"), value("compression", "none")];
    assert_eq!(settings[1], object!({ "keyspace": "seen", "settings": seen }));
    let text = ok(&["settings", &db]);
    assert!(text.contains("keyspace \"default\":\n  all settings have their defaults\n"), "{text}");
    assert!(
        text.ends_with("keyspace \"seen\":\n  filter=ribbon:16\n  compression=none\n"),
        "{text}"
    );
    // Each is changed alone, and the other settings stay.
    ok(&["settings", &db, "--keyspace", "seen", "--set", "block_bytes=16KiB"]);
    let text = ok(&["settings", &db, "--keyspace", "seen"]);
    let lines = ["keyspace \"seen\":", "filter=ribbon:16", "block_bytes=16384", "compression=none"];
    assert_eq!(text.lines().map(str::trim).collect::<Vec<_>>(), lines);
    assert!(ok(&["settings", &db, "--keyspace", "default"]).contains("defaults"));
    // A rebuild of one keyspace leaves the others.
    ok(&["filter", "rebuild", &db, "--keyspace", "seen", "--bits", "8"]);
    assert_eq!(
        (filters(&db, "default"), filters(&db, "seen")),
        (vec![bloom(10.0)], vec![bloom(8.0)])
    );
    // A program finds them, and its own names win.
    let program = Db::open(&db).unwrap();
    let kept = program.keyspace("seen").unwrap().settings().to_string();
    assert_eq!(kept, "filter=fast-local-bloom:8, block_bytes=16384, compression=none");
    program.close().unwrap();
}

#[test]
fn impossible_settings_are_usage_errors() {
    let place = Place::new();
    let db = two_keyspaces(&place);
    let wrong = [
        "filter",
        "filter=bloom:0",
        "filter=custom:own",
        "filter_at_level.7=none",
        "filter_at_level.1=monkey:1MB",
        "block_bytes=5",
        "snappy=maybe",
        "write_buffer_bytes=1MB",
    ];
    let before = ok(&["settings", &db]);
    for text in wrong {
        fails(2, &["settings", &db, "--set", text]);
        fails(2, &["settings", &db, "--set", text, "--keyspace", "users"]);
        fails(2, &["keyspace", "create", &db, "new", "--set", text]);
        assert_eq!(ok(&["settings", &db]), before, "{text}");
    }
    assert!(!ok(&["keyspace", "list", &db]).contains("new"));
}

#[test]
fn reports_show_every_keyspace_by_name() {
    let place = Place::new();
    let db = two_keyspaces(&place);
    ok(&["flush", &db]);
    let before: Vec<_> = files(&db, "").iter().map(|path| read(path)).collect();
    let stats = json(&["stats", &db, "--json"]);
    assert_eq!((&stats["keyspace"], &stats["total"]["tables"]), (&Value::Null, &2.into()));
    let names: Vec<_> =
        stats["keyspaces"].as_array().unwrap().iter().map(|one| one["keyspace"].clone()).collect();
    assert_eq!(names, ["default", "users"]);
    assert_eq!(stats["keyspaces"][1]["total"]["entries"], 2);
    let users = json(&["stats", &db, "--keyspace", "users", "--json"]);
    assert_eq!(users, {
        let mut users = stats["keyspaces"][1].clone();
        users["format"] = 1.into();
        users
    });
    let text = ok(&["stats", &db]);
    assert!(text.contains("keyspace \"users\": 1 table, 2 entries"), "{text}");
    let text = ok(&["filter", "stats", &db]);
    let (first, second) = text.split_once("\nkeyspace \"users\":\n").unwrap();
    assert!(first.starts_with("keyspace \"default\":\n") && second.contains("doctor:"), "{text}");
    assert_eq!(ok(&["filter", "stats", &db, "--json"]).lines().count(), 2);
    assert!(!ok(&["filter", "stats", &db, "--keyspace", "users"]).contains("keyspace"));
    let tables = json(&["sst", "verify", &db, "--json"])["tables"].clone();
    let numbers: Vec<_> =
        tables.as_array().unwrap().iter().map(|table| table["keyspace"].clone()).collect();
    assert_eq!(numbers, [0, 1]);
    let one = ok(&["sst", "verify", &db, "--keyspace", "users"]);
    assert!(one.contains("2 entries in 1 data block, keyspace 1\n1 table"), "{one}");
    let text = ok(&["verify", &db]);
    assert!(text.contains("2 tables, 3 entries"), "{text}");
    assert!(text.contains("keyspace \"users\": 1 table, 2 entries\n"), "{text}");
    let users = json(&["verify", &db, "--keyspace", "users", "--json"]);
    assert_eq!((&users["tables"], &users["keyspaces"][0]["entries"]), (&1.into(), &2.into()));
    let facts = tables[1]["table"].clone();
    assert_eq!((&facts["keyspace"], &facts["keyspace_name"]), (&1.into(), &"users".into()));
    assert!(ok(&["scan", &db, "--keyspace", "users"]).starts_with("ada\t1815\n"));
    assert_eq!(ok(&["keyspace", "list", &db]).matches("defaults").count(), 2);
    assert_eq!(ok(&["settings", &db]).matches("defaults").count(), 2);
    // Nothing of this wrote anything.
    assert_eq!(before, files(&db, "").iter().map(|path| read(path)).collect::<Vec<_>>());
}

#[test]
fn dumps_name_keyspaces() {
    let place = Place::new();
    let db = two_keyspaces(&place);
    ok(&["settings", &db, "--keyspace", "users", "--set", "filter=bloom:12"]);
    ok(&["keyspace", "create", &db, "gone"]);
    ok(&["keyspace", "drop", &db, "gone"]);
    let file = |part: &str| {
        let mut all = files(&db, "").into_iter().map(|path| path.to_str().unwrap().to_string());
        all.rfind(|path| path.contains(part)).unwrap()
    };
    let records = |path: &str, kind: &str| -> Vec<Value> {
        let rows = ok(&["sst", "dump", path, "--json"]);
        let rows = rows.lines().map(|row| serde_json::from_str::<Value>(row).unwrap());
        rows.filter(|row| row["record"] == kind).collect()
    };
    let manifest = file("MANIFEST");
    let [default, users] = &records(&manifest, "keyspace")[..] else { panic!("two keyspaces") };
    assert_eq!((&default["name"], &default["settings"]), (&"default".into(), &"none".into()));
    assert_eq!(
        (&users["name"], &users["keyspace"], &users["settings"]),
        (&"users".into(), &1.into(), &"filter=fast-local-bloom:12".into())
    );
    let state = &records(&manifest, "state")[0];
    assert_eq!((&state["keyspaces"], &state["next_keyspace"]), (&2.into(), &3.into()));
    assert_eq!(records(&manifest, "dropped")[0]["keyspace"], 2);
    ok(&["put", &db, "carl", "1777", "--keyspace", "users"]);
    let log = file(".wal");
    let start = &records(&log, "start")[0];
    assert_eq!((&start["database_id"], &start["epoch"]), (&state["database_id"], &state["epoch"]));
    let entry = records(&log, "entry").pop().unwrap();
    assert_eq!((&entry["key"], &entry["keyspace"]), (&"carl".into(), &1.into()));
    assert!(ok(&["sst", "dump", &log]).contains(" in keyspace 1 = \"1777\"\n"));
}

#[test]
fn commands_read_data_with_a_programs_filters() {
    let place = Place::new();
    let db = place.path("db");
    let own = || Filter::custom(Arc::new(Marks));
    let program = Options::new().filter(own()).open(&db).unwrap();
    let users = program.keyspace_with("users", &KeyspaceOptions::new().filter(own())).unwrap();
    program.put("ada", "1").unwrap();
    users.put("ada", "2").unwrap();
    program.flush().unwrap();
    program.close().unwrap();
    assert!(Db::open(&db).unwrap_err().to_string().contains("test.Marks"));
    assert_eq!(ok(&["get", &db, "ada"]), "1");
    assert_eq!(ok(&["get", &db, "ada", "--keyspace", "users"]), "2");
    ok(&["put", &db, "bob", "3", "--keyspace", "users"]);
    let settings = ok(&["settings", &db]);
    assert_eq!(settings.matches("filter=custom:test.Marks").count(), 2, "{settings}");
    // A filter that the command can name takes its place.
    ok(&["settings", &db, "--set", "filter=bloom:9"]);
    assert_eq!(ok(&["settings", &db]).matches("custom").count(), 1);
}
