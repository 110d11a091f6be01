//! Help, topics, completions and manual pages agree with the command, and what they say is true.

use crate::cli::{Place, command, fails, files, json, ok, read, siftdb, write};
use crate::support::repository::repository;
use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Every command with an answer of its own, such as `filter stats`: those with a manual page and
/// without subcommands, and `bench`, which has both.
pub fn commands() -> Vec<Vec<String>> {
    let pages = json(&["man", "--json", Place::new().path("").trim_end_matches('/')]);
    let pages = pages["pages"].as_array().unwrap().iter();
    let names = pages.map(|page| page["page"].as_str().unwrap().trim_end_matches(".1").to_string());
    let names: Vec<String> = names.collect();
    let is_group = |name: &str| {
        let below = format!("{name}-");
        name != "siftdb-bench" && names.iter().any(|other| other.starts_with(&below))
    };
    let commands = names.iter().filter(|name| !is_group(name));
    commands.map(|name| name.split('-').skip(1).map(str::to_string).collect()).collect()
}

fn strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// The help of a command, as wide as `columns`.
fn help(words: &[String], columns: usize) -> String {
    let output = command(&strs(words)).arg("--help").env("COLUMNS", columns.to_string()).output();
    let output = output.unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The long options that a help lists.
fn options(help: &str) -> BTreeSet<String> {
    let lines = help.lines().map(str::trim_start);
    let options = lines.filter_map(|line| {
        let line = line.strip_prefix("-h, ").or(line.strip_prefix("-o, ")).unwrap_or(line);
        let name: String =
            line.strip_prefix("--")?.chars().take_while(|c| !" =<[".contains(*c)).collect();
        Some(format!("--{name}"))
    });
    options.collect()
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn help_fits_a_screen() {
    let text = ok(&["--help"]);
    assert!(text.lines().count() <= 40, "{} lines", text.lines().count());
    assert!(widest(&text) <= 80, "{text}");
    assert_eq!(text, ok(&["-h"]));
    assert_eq!(text, ok(&["help"]));
    assert_eq!(text, fails(2, &[]));
    for words in commands() {
        let line = format!("\n  {} ", words[0]);
        assert_eq!(text.matches(&line).count(), 1, "{words:?}");
    }
}

#[test]
fn help_fits_every_width() {
    for words in commands() {
        let wide: Vec<String> = help(&words, 100).split_whitespace().map(str::to_string).collect();
        for columns in [60, 80] {
            let text = help(&words, columns);
            // clap writes a usage in one line, and values that may be long words.
            let lines =
                text.lines().filter(|line| !line.contains("Usage:") && !line.contains("siftdb "));
            for line in lines.filter(|line| line.chars().count() > columns) {
                let is_values = line.contains("values: ") || line.contains("<");
                assert!(is_values || line.trim().split(' ').count() == 1, "{words:?}: {line}");
            }
            let words_of: Vec<String> = text.split_whitespace().map(str::to_string).collect();
            assert_eq!(words_of, wide, "{words:?} at {columns}");
        }
        assert!(widest(&help(&words, 300)) <= 140, "{words:?}");
    }
}

#[test]
fn the_list_of_commands_fits_every_width() {
    let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    let wide = words(&help(&[], 100));
    for columns in [50, 60, 80] {
        let text = help(&[], columns);
        assert!(widest(&text) <= columns, "{columns}: {text}");
        assert_eq!(words(&text), wide, "{columns}");
    }
}

#[test]
fn help_of_a_command_is_the_same_either_way() {
    for words in commands().iter().chain([&vec!["filter".to_string()], &vec!["sst".to_string()]]) {
        let asked = siftdb(&[&["help"], &strs(words)[..]].concat());
        assert_eq!(asked.status.code(), Some(0), "{words:?}");
        assert_eq!(String::from_utf8(asked.stdout).unwrap(), help(words, 80), "{words:?}");
    }
    assert_eq!(json(&["help", "filter", "stats", "--json"])["topic"], "filter-stats");
}

/// The names of all topics.
fn topics() -> Vec<String> {
    let list = ok(&["help", "topics"]);
    let lines = list.lines().filter(|line| line.starts_with("  "));
    lines.map(|line| line.split_whitespace().next().unwrap().to_string()).collect()
}

#[test]
fn topics_fit_the_screen_and_the_manual() {
    let topics = topics();
    let page = ok(&["man"]);
    for wanted in ["filters", "layouts", "durability", "formats", "exit-codes"] {
        assert!(topics.iter().any(|topic| topic == wanted), "{wanted}");
    }
    for topic in &topics {
        let text = ok(&["help", topic]);
        assert!(widest(&text) <= 80 && text.lines().count() <= 40, "{topic}: {text}");
        assert_eq!(json(&["help", topic, "--json"])["text"], text.trim_end_matches('\n'));
        assert!(page.contains(&format!(".SH {}\n", topic.to_uppercase())), "{topic}");
        // No word is lost in a narrow terminal.
        let narrow = command(&["help", topic]).env("COLUMNS", "40").output().unwrap().stdout;
        let narrow = String::from_utf8(narrow).unwrap();
        assert!(narrow.split_whitespace().eq(text.split_whitespace()), "{topic}");
    }
    assert_eq!(ok(&["help", "exit", "codes"]), ok(&["help", "exit-codes"]));
    let unknown = fails(2, &["help", "nothing", "of", "it"]);
    assert!(unknown.contains("\"nothing of it\"") && unknown.contains("help topics"), "{unknown}");
}

/// Every command that a topic names exists.
#[test]
fn topics_name_commands_that_exist() {
    let known: Vec<String> = commands().iter().map(|words| words.join(" ")).collect();
    for topic in topics() {
        let text = ok(&["help", &topic]);
        for line in text.lines().filter_map(|line| line.trim().strip_prefix("siftdb ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_known = known.contains(&words[0].to_string())
                || known.contains(&words[..2.min(words.len())].join(" "))
                || words[0].contains('|');
            assert!(is_known || ["sst", "help"].contains(&words[0]), "{topic}: {line}");
            let options = words.iter().filter(|word| word.starts_with("--") && word.len() > 2);
            for option in options {
                let depth = if known.contains(&words[0].to_string()) { 1 } else { 2 };
                let of: Vec<String> = words[..depth].iter().map(|word| word.to_string()).collect();
                assert!(help(&of, 100).contains(option), "{topic}: {line}");
            }
        }
    }
}

/// Each exit code of the topic, by commands that have it.
#[test]
fn exit_codes_are_those_of_the_topic() {
    let text = ok(&["help", "exit-codes"]);
    let codes = text.lines().filter_map(|line| line.trim_start().split_once("  "));
    let codes: Vec<i32> = codes.filter_map(|(code, _)| code.parse().ok()).collect();
    assert_eq!(codes, [0, 1, 2, 3, 4, 5, 130]);
    let place = Place::new();
    let db = place.database();
    let mut watch = command(&["stats", &db, "--watch"]).stdout(Stdio::piped()).spawn().unwrap();
    // Once it prints, it runs.
    watch.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    // A shell starts what runs in the background without SIGINT.
    let ended = Command::new("kill").args(["-TERM", &watch.id().to_string()]).status();
    assert!(ended.unwrap().success());
    assert_eq!(watch.wait().unwrap().signal().map(|signal| 128 + signal), Some(143));
    ok(&["get", &db, "key0000"]);
    let mut closed = command(&["scan", &db]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    drop(closed.as_mut().unwrap().stdout.take());
    let closed = closed.unwrap().wait_with_output().unwrap();
    assert_eq!((closed.status.code(), closed.stderr), (Some(0), vec![]));
    fails(1, &["get", &db, "absent"]);
    fails(1, &["get", &db, "key0000", "absent"]);
    let bad = place.path("bad");
    write(&bad, b"no tab\n");
    fails(2, &["get", &db]);
    fails(2, &["load", &db, &bad]);
    fails(2, &["settings", &db, "--set", "filter=nothing"]);
    fails(4, &["get", &place.path("missing"), "k"]);
    fails(4, &["get", &db, "k", "--keyspace", "missing"]);
    fails(4, &["load", &db, &place.path("missing")]);
    let held = siftdb::Db::open(&db).unwrap();
    fails(4, &["put", &db, "k", "v"]);
    drop(held);
    fails(3, &["sst", "layout", &bad]);
    let table = files(&db, ".sst").remove(0);
    let mut bytes = read(&table);
    bytes[2_000] ^= 1;
    write(table.to_str().unwrap(), &bytes);
    fails(3, &["scan", &db]);
    fails(3, &["verify", &db]);
    fails(5, &["repair", &db]);
    ok(&["verify", &db]);
}

/// Every kind of error that the topic lists is one of the library or the command.
#[test]
fn kinds_of_errors_exist() {
    let text = ok(&["help", "json"]);
    let from = text.find("  kind ").unwrap() + 7;
    let kinds = &text[from..text.find("  path ").unwrap()];
    let sources = ["src/base/error.rs", "crates/siftdb-cli/src/failure.rs"]
        .map(|path| String::from_utf8(read(&repository().join(path))).unwrap());
    let mut count = 0;
    for kind in kinds.split(|c: char| !c.is_alphabetic() && c != '_') {
        let is_word = ["", "or", "of", "the", "database"].contains(&kind);
        count += usize::from(!is_word);
        let quoted = format!("\"{kind}\"");
        assert!(is_word || sources.iter().any(|source| source.contains(&quoted)), "{kind}");
    }
    assert!(count > 20, "{kinds}");
}

/// `name` with these arguments, where it is installed.
fn tool(name: &str, arguments: &[&str]) -> Option<Output> {
    Command::new(name).args(arguments).stdin(Stdio::null()).output().ok()
}

#[test]
fn completions_have_every_command_and_option() {
    let place = Place::new();
    let scripts = ["bash", "zsh", "fish", "elvish", "powershell"];
    let scripts = scripts.map(|shell| (shell, ok(&["completions", shell])));
    for words in commands() {
        let options = options(&help(&words, 100));
        assert!(options.contains("--help") && options.contains("--json"), "{words:?}: {options:?}");
        for (shell, script) in &scripts {
            for option in options.iter().map(|option| option.trim_start_matches('-')) {
                let spelled = match *shell {
                    "fish" => format!("-l {option}"),
                    _ => format!("--{option}"),
                };
                assert!(script.contains(&spelled), "{shell} {words:?} {option}");
            }
        }
        // In bash, the words of a command are in one line.
        let of = format!("siftdb__subcmd__{})", words.join("__subcmd__"));
        let from = scripts[0].1.find(&of).unwrap_or_else(|| panic!("{of}"));
        let opts = scripts[0].1[from..].lines().nth(1).unwrap();
        let completed: BTreeSet<&str> = opts.split([' ', '"']).collect();
        assert!(options.iter().all(|option| completed.contains(&option[..])), "{words:?}: {opts}");
    }
    for (shell, script) in &scripts {
        let path = place.path(shell);
        write(&path, script.as_bytes());
        let checked = match *shell {
            "bash" | "zsh" | "fish" => tool(shell, &["-n", &path]),
            _ => None,
        };
        let Some(checked) = checked else { continue };
        assert!(checked.status.success() && checked.stderr.is_empty(), "{shell}: {checked:?}");
    }
    let ask = ". \"$0\"; COMP_WORDS=(siftdb filter st); COMP_CWORD=2; _siftdb siftdb st filter
        COMPREPLY+=(and); COMP_WORDS=(siftdb cou); COMP_CWORD=1; echo \"${COMPREPLY[@]}\"
        _siftdb siftdb cou siftdb; echo \"${COMPREPLY[@]}\"; complete -p siftdb";
    let Some(bash) = tool("bash", &["-c", ask, &place.path("bash")]) else { return };
    let answer = String::from_utf8(bash.stdout).unwrap();
    assert!(answer.starts_with("stats and\ncount\ncomplete "), "{answer}");
    assert!(bash.stderr.is_empty());
    fails(2, &["completions", "nothing"]);
    let text = json(&["completions", "bash", "--json"]);
    assert_eq!((&text["shell"], &text["text"]), (&"bash".into(), &scripts[0].1.clone().into()));
}

#[test]
fn manual_pages_have_every_command_and_option() {
    let place = Place::new();
    let directory = place.path("man");
    let unwritten = fails(4, &["man", &directory]);
    assert!(unwritten.contains("make the directory"), "{unwritten}");
    std::fs::create_dir(&directory).unwrap();
    ok(&["man", &directory]);
    let first = ok(&["man"]);
    assert_eq!(read(&Path::new(&directory).join("siftdb.1")), first.as_bytes());
    // Pages are the same whatever the width of the terminal.
    let narrow = place.path("narrow");
    std::fs::create_dir(&narrow).unwrap();
    let made = command(&["man", &narrow]).env("COLUMNS", "40").output().unwrap();
    assert!(made.status.success(), "{made:?}");
    for page in files(&directory, ".1") {
        let name = page.file_name().unwrap();
        assert!(read(&page) == read(&Path::new(&narrow).join(name)), "{name:?}");
    }
    for words in commands() {
        let page = Path::new(&directory).join(format!("siftdb-{}.1", words.join("-")));
        let page = String::from_utf8(read(&page)).unwrap();
        for option in options(&help(&words, 100)) {
            let spelled = option.replace('-', "\\-");
            assert!(page.contains(&spelled), "{words:?} {option}");
        }
        let name = format!("siftdb\\-{}", words[0]);
        assert!(words.len() > 1 || first.contains(&name), "{words:?}");
        assert!(page.contains("JSON"), "{words:?}");
    }
    for page in files(&directory, ".1") {
        let checked = tool("groff", &["-man", "-Tutf8", "-ww", page.to_str().unwrap()]);
        let Some(checked) = checked else { return };
        let errors = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success() && errors.is_empty(), "{}: {errors}", page.display());
    }
}

/// Runs the command on a terminal of its own; `None` where there is no `script` to make one.
fn on_a_terminal(arguments: &[&str], variables: &[(&str, &str)]) -> Option<String> {
    let words = [&[env!("CARGO_BIN_EXE_siftdb")], arguments].concat();
    let line: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let script = Command::new("script")
        .args(["-qec", &line.join(" "), "/dev/null"])
        // With it, a dumb terminal gets colors.
        .env_remove("CI")
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR")
        .env_remove("CLICOLOR_FORCE")
        .env_remove("COLUMNS")
        .env("TERM", "xterm")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .ok()?;
    Some(String::from_utf8(script.stdout).unwrap().replace("\r\n", "\n"))
}

#[test]
fn colors_follow_one_rule() {
    let place = Place::new();
    let db = place.database();
    let piped = |arguments: &[&str], name: &str| {
        let output = command(arguments).env(name, "1").output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let colored: [&[&str]; 4] = [&["--help"], &["get", "--help"], &["help", "get"], &["get"]];
    for arguments in colored {
        assert!(!piped(arguments, "CLICOLOR").contains('\x1b'), "{arguments:?}");
        assert!(piped(arguments, "CLICOLOR_FORCE").contains('\x1b'), "{arguments:?}");
        let Some(shown) = on_a_terminal(arguments, &[]) else { return };
        assert!(shown.contains('\x1b'), "{arguments:?}");
        for off in [("NO_COLOR", "1"), ("CLICOLOR", "0"), ("TERM", "dumb")] {
            let shown = on_a_terminal(arguments, &[off]).unwrap();
            assert!(!shown.contains('\x1b'), "{arguments:?} {off:?}");
        }
    }
    for arguments in [&["stats", &db][..], &["get", &db, "none"], &["help", "topics"]] {
        assert!(!piped(arguments, "CLICOLOR_FORCE").contains('\x1b'), "{arguments:?}");
        assert!(!on_a_terminal(arguments, &[]).unwrap().contains('\x1b'), "{arguments:?}");
    }
}

#[test]
fn results_fit_the_terminal_and_pipes_get_whole_lines() {
    let place = Place::new();
    let db = place.database();
    let long = "words of a value ".repeat(20);
    ok(&["put", &db, "long", &long]);
    for arguments in [
        &["stats", &db][..],
        &["filter", "stats", &db],
        &["filter", "sim", "--bits", "10"],
        &["filter", "advise", &db, "--budget", "1MB"],
        &["explain", &db, "key0000"],
        &["report", &db],
        &["help", "json"],
    ] {
        let whole = ok(arguments);
        for (columns, variables) in [(80, &[][..]), (60, &[("COLUMNS", "60")])] {
            let Some(shown) = on_a_terminal(arguments, variables) else { return };
            assert!(widest(&shown) <= columns, "{arguments:?}: {shown}");
            // Labels of rows are repeated, but nothing is left out.
            let shown: BTreeSet<&str> = shown.split_whitespace().collect();
            assert!(whole.split_whitespace().all(|word| shown.contains(word)), "{arguments:?}");
        }
    }
    let Some(shown) = on_a_terminal(&["get", &db, "long"], &[]) else { return };
    assert_eq!(shown, format!("{long}\n"), "a value is never folded");
    let shown = on_a_terminal(&["scan", &db, "--prefix", "long"], &[]).unwrap();
    assert_eq!(shown, format!("long\t{long}\n"));
}

/// Counts of one with a noun in the plural, such as `1 tables`.
fn wrong_plurals(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_one = |word: &str| word.trim_start_matches(['(', '"']) == "1";
    let is_plural = |word: &str| {
        let word = word.trim_end_matches([',', ';', ':', '.', ')']);
        word.ends_with('s') && !word.ends_with("ss") && !["is", "was", "has", "ms"].contains(&word)
    };
    let found = words.windows(3).filter(|three| {
        // `1 of 1 tables` is right, and `synced through 1` is no count.
        let [before, one, noun] = three else { return false };
        is_one(one) && is_plural(noun) && !["of", "through"].contains(before)
    });
    found.map(|three| three.join(" ")).collect()
}

#[test]
fn one_of_a_kind_is_singular() {
    let place = Place::new();
    let (db, lines, other) = (place.path("db"), place.path("lines"), place.path("other"));
    write(&lines, b"a\t1\n");
    let loaded = siftdb(&["load", "--create", &db, &lines]);
    assert_eq!(wrong_plurals(&String::from_utf8_lossy(&loaded.stderr)), Vec::<String>::new());
    ok(&["put", &db, "b", "2"]);
    let file = |end: &str| files(&db, end).pop().unwrap().to_str().unwrap().to_string();
    let manifest = files(&db, "").into_iter().find(|path| path.to_str().unwrap().contains("MANI"));
    let (table, log) = (file(".sst"), file(".wal"));
    let manifest = manifest.unwrap().to_str().unwrap().to_string();
    let seen: [&[&str]; 25] = [
        &["sst", "dump", &table],
        &["sst", "dump", &log],
        &["sst", "dump", &manifest],
        &["sst", "layout", &table],
        &["sst", "verify", &db],
        &["stats", &db],
        &["filter", "stats", &db],
        &["filter", "advise", &db, "--budget", "1kB"],
        &["filter", "sim", "--keys", "1", "--bits", "10"],
        &["explain", &db, "a"],
        &["explain", &db, "b"],
        &["explain", &db, "a", "--step"],
        &["explain", &db, "--prefix", "a"],
        &["keyspace", "list", &db],
        &["verify", &db],
        &["report", &db],
        &["checkpoint", &db, &other],
        &["repair", &db],
        &["flush", &db],
        &["compact", &db],
        &["compact", &db, "--force"],
        &["stats", &db],
        &["filter", "rebuild", &db, "--bits", "12"],
        &["verify", &db],
        &["repair", &db],
    ];
    for arguments in seen {
        let wrong = wrong_plurals(&ok(arguments));
        assert!(wrong.is_empty(), "{arguments:?}: {wrong:?}");
    }
    assert_eq!(
        wrong_plurals("of 1 table, (1 tables) and 1 entries"),
        ["table, (1 tables)", "and 1 entries"]
    );
    let current = format!("{db}/CURRENT");
    write(&current, b"damaged");
    let wrong = wrong_plurals(&ok(&["repair", &db]));
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn full_disks_are_reported() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let place = Place::new();
    let db = place.database();
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["get", "--help"],
        &["help", "topics"],
        &["help", "get"],
        &["completions", "bash"],
        &["man"],
        &["get", &db, "key0000"],
        &["get", &db, "key0000", "key0001"],
        &["scan", &db],
        &["count", &db],
        &["stats", &db],
        &["export", &db],
        &["verify", &db],
        &["keyspace", "list", &db],
        &["get", &db, "key0000", "--json"],
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(arguments).stdout(full).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{arguments:?}: {errors}");
        assert!(errors.contains("standard output") && errors.lines().count() == 1, "{errors}");
    }
}

#[test]
fn usage_errors_are_one_json_line() {
    let place = Place::new();
    let db = place.database();
    let usage = |arguments: &[&str]| {
        let text = fails(2, &[arguments, &["--json"]].concat());
        assert_eq!(text.lines().count(), 1, "{text}");
        let error: serde_json::Value = serde_json::from_str(&text).unwrap();
        error["error"]["what"].as_str().unwrap().to_string()
    };
    assert!(usage(&["get", &db]).contains("required arguments were not provided: <KEY>"));
    assert!(usage(&["get", &db, "k", "--no-such"]).contains("--no-such"));
    assert!(usage(&["scan", &db, "--limit", "many"]).contains("many"));
    assert!(usage(&["no-such-command"]).contains("no-such-command"));
}

/// The page of docs/json.md.
fn json_page() -> String {
    let mut page = String::from(
        "# JSON of the command\n\n\
         What each command prints with `--json`. `siftdb COMMAND --help` says the same; a test \
         compares both.\n\n\
         ```text\n",
    );
    page.push_str(&ok(&["help", "json"]));
    page.push_str("```\n");
    for words in commands() {
        let help = help(&words, 100);
        let from = help.find("\nJSON").unwrap_or_else(|| panic!("{words:?} has no JSON"));
        let fields = &help[from + 1..];
        page.push_str(&format!("\n## siftdb {}\n\n```text\n{fields}", words.join(" ")));
        page.push_str("```\n");
    }
    page
}

#[test]
fn the_page_of_json_is_that_of_the_help() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/json.md");
    let page = json_page();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        write(path.to_str().unwrap(), page.as_bytes());
    }
    let there = String::from_utf8(read(&path)).unwrap();
    for (line, (there, page)) in there.lines().zip(page.lines()).enumerate() {
        assert_eq!(there, page, "docs/json.md:{}: run this test with UPDATE_GOLDEN=1", line + 1);
    }
    assert_eq!(there, page, "docs/json.md: run this test with UPDATE_GOLDEN=1");
    assert!(siftdb(&["--version"]).status.success());
}
