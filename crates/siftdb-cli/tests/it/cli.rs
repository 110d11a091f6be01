//! The `siftdb` command end to end: output, exit codes, pipes, and which files it leaves.

use crate::support::openmetrics::{Sample, parse};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siftdb"));
    command.args(arguments).stdin(Stdio::null()).env_remove("COLUMNS");
    command
}

pub fn siftdb(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// Standard output of a command that has to succeed.
pub fn ok(arguments: &[&str]) -> String {
    let output = siftdb(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
    // No terminal, so nothing is drawn; `load` has no other place for its figures.
    let is_quiet = arguments.contains(&"--json") || arguments.contains(&"--help");
    match arguments.contains(&"load") && !is_quiet {
        true => assert!(stderr.contains(" loaded in ") && stderr.lines().count() == 1, "{stderr}"),
        false => assert!(stderr.is_empty(), "{arguments:?}: {stderr}"),
    }
    String::from_utf8(output.stdout).unwrap()
}

/// Standard error of a command that has to fail with `code`.
pub fn fails(code: i32, arguments: &[&str]) -> String {
    let output = siftdb(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
    stderr
}

pub fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&ok(arguments)).unwrap()
}

/// Runs a command with a limit on the size of each file, in blocks of 512 bytes: writes beyond it
/// fail as on a full disk.
pub fn with_file_limit(blocks: u32, directory: &str, arguments: &[&str]) -> Output {
    // Signal 25 is SIGXFSZ: ignored, a write past the limit is an error.
    let script = format!("trap '' 25; ulimit -f {blocks}; exec \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_siftdb")]).args(arguments);
    shell.current_dir(directory).output().unwrap()
}

pub struct Place {
    directory: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Place { directory: TempDir::new().unwrap() }
    }

    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().into()
    }

    /// A database of 3,000 entries in one table.
    pub fn database(&self) -> String {
        let (db, lines) = (self.path("db"), self.path("lines"));
        let text: String = (0..3_000).map(|i| format!("key{i:04}\tvalue {i}\n")).collect();
        write(&lines, text.as_bytes());
        ok(&["load", "--create", &db, &lines]);
        let opened = siftdb::Db::open(&db).unwrap();
        opened.compact_range(..).unwrap();
        opened.close().unwrap();
        db
    }
}

#[expect(clippy::disallowed_methods, reason = "the test's own files")]
pub fn write(path: &str, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "the test's own files")]
fn remove(path: &str) {
    std::fs::remove_file(path).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "the test's own files")]
pub fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "the test's own files")]
pub fn files(directory: &str, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.to_str().unwrap().ends_with(extension)).collect();
    files.sort();
    files
}

#[test]
fn values_are_written_read_deleted_and_scanned() {
    let place = Place::new();
    let db = place.path("db");
    ok(&["put", "--create", &db, "b", "2"]);
    ok(&["put", &db, "a", "1"]);
    ok(&["put", &db, "c", "3"]);
    assert_eq!(ok(&["get", &db, "a"]), "1");
    ok(&["delete", &db, "b"]);
    assert!(fails(1, &["get", &db, "b"]).contains("not found"));
    assert_eq!(ok(&["scan", &db]), "a\t1\nc\t3\n");
    assert_eq!(ok(&["scan", &db, "--reverse", "--limit", "1"]), "c\t3\n");
    assert_eq!(ok(&["scan", &db, "--from", "b"]), "c\t3\n");
    assert_eq!(ok(&["scan", &db, "--to", "c"]), "a\t1\n");
    assert_eq!(ok(&["scan", &db, "--prefix", "x"]), "");
    assert_eq!(ok(&["count", &db]), "2\n");
    assert_eq!(json(&["count", &db, "--json"])["entries"], 2);
    let line = ok(&["scan", &db, "--limit", "1", "--json"]);
    assert_eq!(line, "{\"format\":1,\"key\":\"a\",\"value\":\"1\"}\n");
}

#[test]
fn any_bytes_round_trip_through_the_shell() {
    let place = Place::new();
    let (db, copy, lines) = (place.path("db"), place.path("copy"), place.path("lines"));
    let key = "tab\\tnul\\x00back\\\\high\\xff";
    ok(&["put", "--create", "--escaped", &db, key, "\\xfe\\n"]);
    ok(&["put", &db, "gr\u{fc}n", "plain"]);
    // Into a pipe, `get` writes the bytes and nothing else.
    assert_eq!(siftdb(&["get", "--escaped", &db, key]).stdout, b"\xfe\n");
    let scanned = ok(&["scan", &db]);
    assert_eq!(scanned, format!("gr\u{fc}n\tplain\n{key}\t\\xfe\\n\n"));
    write(&lines, scanned.as_bytes());
    ok(&["load", "--create", &copy, &lines]);
    assert_eq!(ok(&["scan", &copy]), scanned);
    fails(2, &["get", "--escaped", &db, "\\q"]);
}

#[test]
fn load_names_the_unusable_line() {
    let place = Place::new();
    let db = place.path("db");
    let mut child = command(&["load", "--create", &db, "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"a\t1\nb\t2\twith a tab\n\tempty key").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(figures["entries"], 3);
    assert_eq!(ok(&["get", &db, "b"]), "2\twith a tab");
    assert_eq!(ok(&["get", &db, ""]), "empty key");
    let lines = place.path("lines");
    write(&lines, b"a\t1\nno tab\n");
    assert!(fails(2, &["load", &db, &lines]).contains("line 2"));
    fails(4, &["load", &db, &place.path("missing")]);
}

#[test]
fn read_commands_change_nothing() {
    let place = Place::new();
    let missing = place.path("missing");
    for arguments in [
        &["get", &missing, "k"][..],
        &["scan", &missing],
        &["stats", &missing],
        &["explain", &missing, "k"],
        &["delete", &missing, "k"],
        &["put", &missing, "k", "v"],
        &["flush", &missing],
        &["compact", &missing],
        &["sst", "verify", &missing],
        &["sst", "layout", &missing],
        &["sst", "dump", &missing],
    ] {
        fails(4, arguments);
        assert!(!Path::new(&missing).exists(), "{arguments:?}");
    }
    let db = place.database();
    let contents = || -> Vec<_> {
        files(&db, "").into_iter().map(|path| (path.clone(), read(&path))).collect()
    };
    let before = contents();
    ok(&["get", &db, "key0007"]);
    ok(&["count", &db]);
    ok(&["stats", &db]);
    ok(&["explain", &db, "key0007x"]);
    ok(&["filter", "stats", &db]);
    ok(&["filter", "advise", &db, "--budget", "1MB"]);
    ok(&["sst", "verify", &db]);
    assert_eq!(contents(), before);
}

#[test]
fn usage_and_locks_have_own_exit_codes() {
    let place = Place::new();
    let db = place.database();
    fails(2, &[]);
    fails(2, &["no-such-command"]);
    fails(2, &["get", &db]);
    fails(2, &["demo", "--bits", "0", "--keys", "1000"]);
    fails(2, &["demo", "--keys", "5"]);
    // The count is refused before any key is generated.
    fails(2, &["demo", "--keys", "99999999999999"]);
    fails(2, &["demo", "--keys", "1000", "--lookups", "0"]);
    assert!(ok(&["--help"]).contains("exit codes"));
    fails(2, &["demo", "--encoding", "leveldb-bloom", "--bits", "9.5", "--keys", "1000"]);
    fails(2, &["scan", &db, "--prefix", "a", "--from", "b"]);
    let held = siftdb::Db::open(&db).unwrap();
    assert!(fails(4, &["put", &db, "key0001", "new"]).contains("locked"));
    // Single files need no lock.
    let table = files(&db, ".sst").remove(0);
    ok(&["sst", "layout", table.to_str().unwrap()]);
    held.close().unwrap();
    drop(held);
    ok(&["get", &db, "key0001"]);
}

#[test]
fn stats_and_explain_report_filters() {
    let place = Place::new();
    let db = place.database();
    let explained = ok(&["explain", &db, "key0007x"]);
    assert!(
        explained.contains("not found") && explained.contains("without filters"),
        "{explained}"
    );
    let explained = json(&["explain", &db, "key0007", "--json"]);
    assert_eq!((&explained["found"], &explained["value_bytes"]), (&true.into(), &7.into()));
    assert_eq!(explained["steps"].as_array().unwrap().last().unwrap()["outcome"], "found");
    let unasked = json(&["explain", &db, "key0007x", "--no-filters", "--json"]);
    assert_eq!(unasked["data_blocks"], 1);
    let range = json(&["explain", &db, "--from", "key0007x", "--to", "key0007y", "--json"]);
    assert_eq!((&range["is_range"], &range["data_blocks"]), (&true.into(), &1.into()));
    assert_eq!(range["steps"].as_array().unwrap().last().unwrap()["outcome"], "absent");
    let text = ok(&["explain", &db, "--prefix", "key0007"]);
    assert!(text.contains("scan from \"key0007\" to before \"key0008\""), "{text}");
    assert!(text.contains("entered 1 of 1 table"), "{text}");
    fails(2, &["explain", &db]);
    fails(2, &["explain", &db, "a", "--to", "b"]);
    let program = siftdb::Db::open(&db).unwrap();
    (0..3).for_each(|i| assert!(program.get(format!("key{i:04}")).unwrap().is_some()));
    program.close().unwrap();
    let stats = json(&["stats", &db, "--json"]);
    assert_eq!(stats["gets"], 3, "those of the program, none of the commands: {stats}");
    assert_eq!(stats["total"]["entries"], 3_000);
    assert_eq!(stats["levels"].as_array().unwrap().len(), 7);
    let text = ok(&["stats", &db]);
    assert!(text.contains("counted since 20") && text.contains("count nothing"), "{text}");
}

#[test]
fn stats_print_openmetrics() {
    let (place, odd) = (Place::new(), "an \"odd\" \\ name");
    let db = place.database();
    let program = siftdb::Options::new().latency_histograms(true).open(&db).unwrap();
    program.keyspace(odd).unwrap().put("key", "value").unwrap();
    (0..3).for_each(|i| assert!(program.get(format!("key{i:04}")).unwrap().is_some()));
    program.close().unwrap();
    let print = |more: &[&str]| {
        let text = ok(&[&["stats", &db, "--openmetrics"][..], more].concat());
        parse(&text).unwrap_or_else(|what| panic!("{what}\n{text}"))
    };
    let all: Vec<Sample> = print(&[]).into_iter().flat_map(|family| family.samples).collect();
    let of = |name: &str, keyspace: &str| {
        let mut named = all.iter().filter(|sample| sample.name == name);
        named.find(|sample| sample.label("keyspace") == Some(keyspace)).map(|sample| sample.value)
    };
    assert_eq!(of("siftdb_gets_total", "default"), Some(3.0));
    assert_eq!(of("siftdb_gets_total", odd), Some(0.0));
    assert_eq!(of("siftdb_call_duration_seconds_count", "default"), Some(3.0));
    let one = print(&["--keyspace", odd]);
    let mut samples = one.iter().flat_map(|family| &family.samples);
    assert!(samples.all(|sample| sample.label("keyspace") == Some(odd)), "{one:?}");
    assert!(one.iter().any(|family| family.name == "siftdb_gets"));
    for other in ["--json", "--watch"] {
        assert!(fails(2, &["stats", &db, "--openmetrics", other]).contains(other));
    }
}

#[test]
fn tables_are_laid_out_dumped_and_verified() {
    let place = Place::new();
    let db = place.database();
    let table = files(&db, ".sst").remove(0);
    let table = table.to_str().unwrap();
    let layout = ok(&["sst", "layout", table]);
    assert!(layout.contains("3000 (0 tombstones)") && layout.contains("filter"), "{layout}");
    assert_eq!(json(&["sst", "layout", table, "--json"])["entries"], 3_000);
    let dump = ok(&["sst", "dump", table]);
    assert!(dump.contains("\"key2999\" @"), "{dump}");
    let block = ok(&["sst", "dump", table, "--block", "0", "--limit", "5"]);
    assert_eq!(block.lines().count(), 6, "{block}");
    let none = fails(2, &["sst", "dump", table, "--block", "99999999"]);
    let blocks = json(&["sst", "layout", table, "--json"])["data_blocks"].as_u64().unwrap();
    assert!(none.contains(&format!("of {blocks} data blocks")), "{none}");
    ok(&["sst", "dump", table, "--block", &(blocks - 1).to_string()]);
    fails(2, &["sst", "dump", table, "--block", &blocks.to_string()]);
    for other in ["CURRENT", "MANIFEST"] {
        let file = files(&db, "").into_iter().find(|path| path.to_str().unwrap().contains(other));
        assert!(!ok(&["sst", "dump", file.unwrap().to_str().unwrap()]).is_empty());
    }
    assert!(ok(&["sst", "verify", &db]).contains("ok, 3000 entries"));
    assert_eq!(json(&["sst", "verify", table, "--json"])["tables"][0]["ok"], true);

    let mut bytes = read(Path::new(table));
    let middle = bytes.len() / 3;
    bytes[middle] ^= 4;
    write(table, &bytes);
    let damaged = siftdb(&["sst", "verify", &db]);
    assert_eq!(damaged.status.code(), Some(3));
    let both = [damaged.stdout, damaged.stderr].concat();
    let both = String::from_utf8(both).unwrap();
    assert_eq!(both.matches("damaged at byte").count(), 1, "{both}");
    assert_eq!(both.matches(table).count(), 1, "{both}");
    assert!(both.contains("1 table, 1 not in order"), "{both}");
    let report = siftdb(&["sst", "verify", &db, "--json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["tables"][0]["ok"], false);
    fails(3, &["count", &db]);
    write(table, &bytes[..100]);
    fails(3, &["sst", "layout", table]);
    fails(3, &["get", &db, "key0001"]);
}

#[test]
fn verify_compares_tables_with_the_manifest() {
    let place = Place::new();
    let db = place.database();
    let tables = files(&db, ".sst");
    let [table] = &tables[..] else { panic!("{tables:?}") };
    let table = table.to_str().unwrap();
    let good = read(Path::new(table));
    // A table that the manifest does not name does not belong to the database.
    for foreign in ["foreign.sst", "999999.sst"] {
        write(&format!("{db}/{foreign}"), b"no table at all");
    }
    let text = ok(&["sst", "verify", &db]);
    assert!(text.ends_with("\n1 table, all in order\n"), "{text}");

    // The table is a byte longer, replaced by another good table, or missing.
    write(table, &[&good[..], b"\0"].concat());
    assert!(fails(3, &["sst", "verify", &db]).contains("the manifest says"));
    let other = Place::new();
    write(table, &read(&files(&other.database(), ".sst")[0]));
    ok(&["sst", "verify", table]);
    assert!(fails(3, &["sst", "verify", &db]).contains("the manifest says"));
    remove(table);
    let missing = fails(3, &["sst", "verify", &db]);
    assert!(missing.contains("is missing: MANIFEST-"), "{missing}");
    assert!(missing.contains(table), "{missing}");

    let current = format!("{db}/CURRENT");
    write(table, &good);
    write(&current, b"siftdb 1 MANIFEST-000001 00000000\n");
    fails(3, &["sst", "verify", &db]);
    remove(&current);
    assert!(fails(3, &["sst", "verify", &db]).contains("CURRENT"));
    let empty = TempDir::new().unwrap();
    let empty = empty.path().to_str().unwrap();
    write(&format!("{empty}/foreign.sst"), &good);
    let none = fails(4, &["sst", "verify", empty]);
    assert_eq!(none, format!("siftdb: no database in {empty}\n"));
    // A database without tables is a database, too.
    let young = place.path("young");
    siftdb::Db::open(&young).unwrap().close().unwrap();
    assert_eq!(ok(&["sst", "verify", &young]), "0 tables, all in order\n");
    assert_eq!(json(&["sst", "verify", &young, "--json"])["tables"].as_array().unwrap().len(), 0);
}

#[test]
fn a_failed_load_says_where_it_stopped() {
    let place = Place::new();
    let (db, lines) = (place.path("db"), place.path("lines"));
    let long_key = format!("{}\tvalue\n", "k".repeat(65_536));
    let wrong = [
        ("no tab\n", "no TAB"),
        (&long_key[..], "a key of 65536 bytes"),
        ("a\\q\tb\n", "an escape"),
    ];
    for (line, reason) in wrong {
        write(&lines, format!("first\t1\nsecond\t2\n{line}fourth\t4\n").as_bytes());
        let message = fails(2, &["load", "--create", &db, &lines]);
        assert!(message.contains(&format!("{lines}: line 3: ")), "{message}");
        assert!(message.contains(reason) && message.contains("nothing was written"), "{message}");
        assert_eq!(ok(&["count", &db]), "0\n");
    }
    // Keys that ascend are loaded in one step, of which nothing appears.
    let text = |i: u32| format!("key{i:05}\t{}\n", "v".repeat(90));
    let load = |order: &mut dyn Iterator<Item = u32>| {
        let mut text: String = order.map(text).collect();
        text.push_str("no tab\n");
        write(&lines, text.as_bytes());
        let message = fails(2, &["load", &db, &lines]);
        assert!(message.contains("line 9001"), "{message}");
        message
    };
    let message = load(&mut (0..9_000));
    assert!(message.contains("nothing was written"), "{message}");
    assert_eq!(ok(&["count", &db]), "0\n");
    // Of others some batches are written before the bad line. They stay, and the message says how
    // many lines they had.
    let message = load(&mut (0..9_000).rev());
    let said: u64 = message.trim().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(said > 1_000, "{message}");
    assert_eq!(ok(&["count", &db]), format!("{said}\n"));
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let place = Place::new();
    let db = place.database();
    let big = place.path("big");
    let text: String = (0..20_000).map(|i| format!("key{i:05}\t{}\n", "v".repeat(50))).collect();
    write(&place.path("lines"), text.as_bytes());
    ok(&["load", "--create", &big, &place.path("lines")]);
    let table = files(&db, ".sst").remove(0);
    for arguments in [&["scan", &big][..], &["sst", "dump", table.to_str().unwrap()]] {
        let mut child =
            command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 10];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_demo_leaves_nothing_behind() {
    let temporary = TempDir::new().unwrap();
    let run = |arguments: &[&str]| {
        let output = command(&["demo", "--keys", "3000", "--lookups", "1000"])
            .args(arguments)
            .env("TMPDIR", temporary.path())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        (String::from_utf8(output.stdout).unwrap(), stderr.into_owned())
    };
    let (text, stderr) = run(&[]);
    assert!(text.contains("Keys that are not there") && text.contains("partitioned"), "{text}");
    assert!(text.contains("checked: ") && stderr.is_empty(), "{text}{stderr}");
    let (text, _) = run(&["--json", "--encoding", "leveldb-bloom"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["faults"].as_array().unwrap().len(), 0);
    assert_eq!((&report["encoding"], &report["input"]), (&"leveldb-bloom".into(), &Value::Null));
    let acts = report["acts"].as_array().unwrap();
    assert_eq!(acts.len(), 3);
    for column in acts[0]["columns"].as_array().unwrap() {
        let reads: u64 = ["data_blocks_read", "index_blocks_read", "filter_blocks_read"]
            .iter()
            .map(|name| column[name].as_u64().unwrap())
            .sum();
        assert_eq!(column["env_read_calls"], reads);
    }
    assert_eq!(files(temporary.path().to_str().unwrap(), ""), Vec::<PathBuf>::new());
    let (_, stderr) = run(&["--keep"]);
    assert!(stderr.contains("databases kept in"), "{stderr}");
    let hint = stderr.lines().find_map(|line| line.strip_prefix("next: ")).unwrap();
    assert!(explained(hint).contains("not found"), "{hint}");
    let kept = files(temporary.path().to_str().unwrap(), "").remove(0);
    assert!(ok(&["stats", kept.join("full").to_str().unwrap()]).contains("level"));
}

/// The output of the command in `hint`, run by a shell. This build replaces the program that cargo
/// would run.
fn explained(hint: &str) -> String {
    let (program, arguments) = hint.split_once(" explain ").unwrap();
    assert!(program.starts_with("cargo run") || program.ends_with("siftdb"), "{hint}");
    let script = format!("exec \"$0\" explain {arguments}");
    let bin = env!("CARGO_BIN_EXE_siftdb");
    let output = Command::new("sh").args(["-c", &script, bin]).output().unwrap();
    assert!(output.status.success(), "{hint}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_demos_hint_is_quoted_for_shells() {
    let place = Place::new();
    let lines = place.path("keys");
    let text: String = (0..1_500).map(|i| format!("-it's \\ $HOME\t{i:04}\n")).collect();
    write(&lines, text.as_bytes());
    let output = command(&["demo", "--input", &lines, "--lookups", "100", "--keep"])
        .env("TMPDIR", place.directory.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let hint = stderr.lines().find_map(|line| line.strip_prefix("next: ")).unwrap();
    let text = explained(hint);
    assert!(text.contains("not found") && text.contains(r#""-it\'s \\ $HOME\t"#), "{hint}: {text}");
}

#[test]
fn the_demo_takes_keys_from_a_file() {
    let place = Place::new();
    let lines = place.path("keys");
    let text: String = (0..2_500).map(|i| format!("/usr/lib/file-{}\n", i % 2_000)).collect();
    write(&lines, text.as_bytes());
    let report = json(&["demo", "--input", &lines, "--lookups", "500", "--json"]);
    assert_eq!(report["keys"], 2_000, "each key once");
    assert_eq!(
        (&report["encoding"], &report["input"]),
        (&"fast-local-bloom".into(), &lines.clone().into())
    );
    fails(4, &["demo", "--input", &place.path("missing")]);
    fails(2, &["demo", "--input", &lines, "--keys", "5"]);
    write(&lines, format!("{text}{}\n", "k".repeat(65_536)).as_bytes());
    let message = fails(2, &["demo", "--input", &lines]);
    assert!(message.contains("line 2501: a key of 65536 bytes"), "{message}");
}
