//! Every command that README, docs/commands.md and help show does what it says, and every command
//! refuses bad directories in one line, without creating or changing anything.

use crate::cli::{Place, fails, files, ok, read, siftdb, write};
use crate::help_cli::commands;
use crate::support::repository::repository;
use std::path::Path;
use std::process::{Command, Output};

/// The lines of `text` that show a command, without comments.
fn shown(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| {
        let line = line.strip_prefix("$ ").or_else(|| line.strip_prefix("  "))?;
        // Fields of JSON have the name, too.
        let is_command = line.starts_with("siftdb ") && !line.starts_with("siftdb  ");
        is_command.then(|| line.split("  ").next().unwrap_or(line).trim().to_string())
    });
    lines.collect()
}

/// `line` for each of the alternatives of its words, such as `get|put`.
fn alternatives(line: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_whitespace() {
        let words: Vec<&str> = if word == "|" { vec![word] } else { word.split('|').collect() };
        lines = lines
            .iter()
            .flat_map(|line| words.iter().map(move |word| format!("{line}{word} ")))
            .collect();
    }
    lines.iter().map(|line| line.trim().to_string()).collect()
}

/// Every command of both READMEs, of docs/commands.md and of all help.
fn examples() -> Vec<String> {
    let documents = ["README.md", "docs/commands.md", "crates/siftdb-cli/README.md"];
    let read_document = |path| read(&repository().join(path));
    let mut texts = documents.map(|path| String::from_utf8(read_document(path)).unwrap()).to_vec();
    for words in commands() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let help = siftdb(&[&words[..], &["--help"]].concat());
        texts.push(String::from_utf8(help.stdout).unwrap());
    }
    for topic in ok(&["help", "topics"]).lines().filter_map(|line| line.strip_prefix("  ")) {
        texts.push(ok(&["help", topic.split(' ').next().unwrap()]));
    }
    let lines = texts.iter().flat_map(|text| shown(text));
    let commands = lines.flat_map(|line| line.split("; ").map(str::to_string).collect::<Vec<_>>());
    let commands = commands.map(|command| command.split(" #").next().unwrap().trim().to_string());
    let mut all: Vec<String> = commands.flat_map(|command| alternatives(&command)).collect();
    all.sort();
    all.dedup();
    all
}

/// The value of a placeholder in the directory of [`directory`].
fn filled(command: &str) -> String {
    let words: Vec<&str> = command.split_whitespace().collect();
    let of = |at: usize| words.get(at).copied().unwrap_or_default();
    let file = match (of(1), of(2)) {
        ("sst", _) => "table.sst",
        ("get", _) => "keys",
        _ => "lines",
    };
    let place = |word: &str| match word {
        "DIR" if of(1) == "restore" => "restored".into(),
        "DIR" if of(2) == "leveldb" => "leveldb".into(),
        "TO" if of(1) == "restore" => "backup".into(),
        "LEVELDB_DIR" => "leveldb".into(),
        "KEY" | "KEY1" => "key0001".into(),
        "KEY2" => "key0002".into(),
        "KEY3" => "key0003".into(),
        "FROM" => format!("export.{}", of(2)),
        "FILE" => file.into(),
        "FILE.html" => "page.html".into(),
        "DIR" => "db".into(),
        word => word.to_string(),
    };
    let mut filled: Vec<String> = words.iter().map(|word| place(word)).collect();
    if let Some(rest) = filled.iter().position(|word| word == "…" || word == "...") {
        let more: &[&str] = match (of(1), of(2)) {
            ("get" | "delete", _) => &["key0001"],
            ("put", _) => &["key0001", "value"],
            ("keyspace", "create") => &["users"],
            ("keyspace", "drop") => &["there"],
            _ => &[],
        };
        filled.splice(rest..=rest, more.iter().map(|word| word.to_string()));
    }
    let smaller: &[&str] = match (of(1), of(2)) {
        ("demo", _) => &["--keys", "1000", "--lookups", "100"],
        ("bench", "compare") => &[],
        ("bench", _) => &["--operations", "100"],
        ("filter", "bench") => &["--keys", "1000", "--lookups", "100"],
        _ => &[],
    };
    filled.extend(smaller.iter().map(|word| word.to_string()));
    filled.join(" ")
}

/// A directory with what examples name.
fn directory() -> Place {
    let place = Place::new();
    let db = place.database();
    ok(&["put", &db, "--", "-key", "value"]);
    ok(&["keyspace", "create", &db, "there"]);
    ok(&["checkpoint", &db, &place.path("backup")]);
    write(&place.path("keys"), b"key0001\nkey0002\n");
    for format in ["jsonl", "tsv", "mdb", "bdb"] {
        let entries =
            ok(&["export", &place.path("backup"), "--keyspace", "default", "--format", format]);
        write(&place.path(&format!("export.{format}")), entries.as_bytes());
    }
    write(&place.path("table.sst"), &read(&files(&db, ".sst")[0]));
    write(&place.path("export.ldb"), b"0x61 ==> 0x62\nKeys in range: 1\n");
    for directory in [".local/share/bash-completion/completions", ".local/share/man/man1", ".zfunc"]
    {
        std::fs::create_dir_all(place.path(directory)).unwrap();
    }
    std::fs::create_dir_all(place.path(".config/fish/completions")).unwrap();
    place
}

fn shell(command: &str, place: &Place) -> Output {
    let binary = Path::new(env!("CARGO_BIN_EXE_siftdb")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let home = place.path("");
    Command::new("sh")
        .args(["-c", &format!("set -e; {command}")])
        .current_dir(&home)
        .env("PATH", path)
        .env("HOME", &home)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn commands_of_readme_and_help_work() {
    let examples = examples();
    let has = |part: &str| examples.iter().any(|example| example.contains(part));
    assert!(
        examples.len() > 40 && has("siftdb delete DIR --prefix") && has("siftdb restore TO DIR")
    );
    let template = directory();
    let is_installed = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    for example in examples {
        // Files of other stores, and their programs: `exchange_cli` and `rocksdb_cli` have them.
        let is_foreign = ["leveldb", "LEVELDB", "rocksdb", "--db=", "mdb_", "db_dump"];
        if is_foreign.iter().any(|word| example.contains(word))
            || example.contains("| man") && !is_installed("man")
        {
            continue;
        }
        let place = Place::new();
        let copied = Command::new("cp").args(["-R", &template.path("."), &place.path("")]).status();
        assert!(copied.unwrap().success());
        let command = filled(&example);
        let output = shell(&command, &place);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{example}: {command}: {errors}");
    }
}

/// A command of each kind on the database at `DIR`.
const ON_A_DATABASE: [&str; 30] = [
    "get DIR key",
    "get DIR key other",
    "put DIR key value",
    "delete DIR key",
    "delete DIR --prefix key",
    "scan DIR",
    "count DIR",
    "count DIR --estimate",
    "load DIR LINES",
    "export DIR",
    "export DIR --format tsv",
    "keyspace list DIR",
    "keyspace create DIR users",
    "keyspace drop DIR users",
    "settings DIR",
    "settings DIR --set filter=none",
    "flush DIR",
    "compact DIR",
    "checkpoint DIR TO",
    "restore DIR TO",
    "stats DIR",
    "stats DIR --watch",
    "explain DIR key",
    "report DIR",
    "verify DIR",
    "repair DIR",
    "filter stats DIR",
    "filter advise DIR --budget 1MB",
    "filter advise DIR --memory 100MB",
    "filter rebuild DIR",
];

#[test]
fn bad_directories_are_named_and_left_alone() {
    for line in ON_A_DATABASE {
        for (kind, is_directory) in
            [("missing", false), ("file", false), ("empty", true), ("foreign", true)]
        {
            let place = Place::new();
            let (path, lines, to) = (place.path(kind), place.path("lines"), place.path("to"));
            write(&lines, b"a\t1\n");
            if is_directory {
                std::fs::create_dir(&path).unwrap();
            }
            match kind {
                "file" => write(&path, b"some text"),
                "foreign" => write(&format!("{path}/notes.txt"), b"some text"),
                _ => {}
            }
            let words: Vec<&str> = line
                .split(' ')
                .map(|word| match word {
                    "DIR" => &path[..],
                    "LINES" => &lines,
                    "TO" => &to,
                    word => word,
                })
                .collect();
            let output = siftdb(&words);
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(4), "{line} on {kind}: {errors}");
            assert!(output.stdout.is_empty(), "{line} on {kind}");
            assert_eq!(errors.lines().count(), 1, "{line} on {kind}: {errors}");
            assert!(errors.contains(&path), "{line} on {kind}: {errors}");
            assert!(!Path::new(&to).exists(), "{line} on {kind} made {to}");
            let left = if is_directory {
                files(&path, "").len()
            } else {
                usize::from(Path::new(&path).exists())
            };
            assert_eq!(left, usize::from(kind == "foreign" || kind == "file"), "{line} on {kind}");
        }
    }
}

#[test]
fn copies_into_themselves_are_refused() {
    let place = Place::new();
    let (db, again) = (place.database(), format!("{}/../db", place.path("db")));
    let before = ok(&["scan", &db]);
    for arguments in [["checkpoint", &db, &db], ["restore", &db, &db], ["checkpoint", &db, &again]]
    {
        let errors = fails(2, &arguments);
        assert!(errors.contains("are the same directory"), "{errors}");
    }
    assert_eq!(ok(&["scan", &db]), before);
    // Nor does a watch without a pause begin.
    assert!(fails(2, &["stats", &db, "--watch=0"]).contains("above 0"));
    fails(2, &["stats", &db, "--watch=-1"]);
}

#[test]
fn missing_keyspaces_are_named() {
    let place = Place::new();
    let (db, lines) = (place.database(), place.path("lines"));
    let whole = ["keyspace create", "keyspace drop", "restore", "repair", "keyspace list"];
    for line in ON_A_DATABASE.iter().filter(|line| !whole.iter().any(|name| line.starts_with(name)))
    {
        let words = line.split(' ').map(|word| match word {
            "DIR" => db.clone(),
            "LINES" => lines.clone(),
            "TO" => place.path("to"),
            word => word.to_string(),
        });
        let words: Vec<String> = words.chain(["--keyspace".into(), "nowhere".into()]).collect();
        let output = siftdb(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{line}: {errors}");
        assert!(
            errors.contains("no keyspace \"nowhere\"") && errors.lines().count() == 1,
            "{errors}"
        );
        assert!(output.stdout.is_empty() && !Path::new(&place.path("to")).exists(), "{line}");
    }
    assert_eq!(ok(&["count", &db]), "3000\n");
}
