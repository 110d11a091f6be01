//! Compares the documents with the code: README.md shows the example that runs, every file and test
//! that a document names exists, and `golden/files.txt` has the files of three small databases as
//! `inspect` prints them. (`src/admin/inspect/format_tests.rs` checks the bytes of docs/format.md.)
//!
//! `UPDATE_GOLDEN=1 cargo test --test it golden` writes new text. Read the difference before you
//! commit it: a changed byte is a changed format.

use siftdb::env::{Env, MemEnv};
use siftdb::inspect::{self, DumpOptions};
use siftdb::{Filter, FilterLayout, KeyspaceOptions, Options, WriteBatch};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Fails where the file differs from `expected`, or rewrites it if that is asked for.
fn compare_or_update(name: &str, expected: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(root().join(name), expected).unwrap();
        return;
    }
    let found = read(name);
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected, "{name} differs from the code; see tests/it/golden.rs");
    }
    assert_eq!(found.len(), expected.len(), "{name} differs in length");
}

/// `text` with the random ids blanked: those of tables and of the database.
fn without_ids(text: &str) -> String {
    let mut masked = text.to_string();
    for (before, digits) in [(" id ", 16), (" database ", 32)] {
        let text = std::mem::take(&mut masked);
        let mut pieces = text.split(before);
        masked.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            let id = piece.chars().take_while(char::is_ascii_hexdigit).count();
            assert_eq!(id, digits, "an id has {digits} digits: {piece}");
            masked.extend([before, &".".repeat(digits), &piece[id..]]);
        }
    }
    masked
}

/// Every file of a small database that is not empty or full of times, as text.
fn files_as_text(layout: FilterLayout) -> String {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let options = Options::new().env(Arc::clone(&env)).snappy(false).block_bytes(512);
    let db = options.filter(Filter::bloom(10.0).layout(layout)).open("/db").unwrap();
    // Another keyspace with a setting of its own, and one that is dropped again.
    let users = db.keyspace_with("users", &KeyspaceOptions::new().snappy(false)).unwrap();
    db.keyspace("gone").unwrap();
    db.drop_keyspace("gone").unwrap();
    users.put("ada", "1815").unwrap();
    for number in 0..300 {
        db.put(format!("key{number:03}"), format!("value {number}")).unwrap();
    }
    db.delete("key007").unwrap();
    db.flush().unwrap();
    let mut batch = WriteBatch::new();
    batch.put("key008", "newer").in_keyspace(&users).put("ada", "1852").delete("bob");
    db.write(batch).unwrap();
    db.close().unwrap();
    let mut text = format!("= {layout}\n").into_bytes();
    let mut names: Vec<String> =
        env.list(Path::new("/db")).unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    for name in names.iter().filter(|name| *name != "LOCK" && *name != "STATS") {
        let path = Path::new("/db").join(name);
        text.extend_from_slice(format!("\n== {name}\n").as_bytes());
        match name.ends_with(".sst") {
            true => inspect::layout(&env, &path, &mut text).unwrap(),
            false => inspect::dump(&env, &path, &DumpOptions::default(), &mut text).unwrap(),
        }
    }
    without_ids(&String::from_utf8(text).unwrap())
}

#[test]
fn inspected_files_print_as_recorded() {
    let layouts = [
        FilterLayout::BlockBased { window_bytes: FilterLayout::WINDOW_BYTES_DEFAULT },
        FilterLayout::Full,
        FilterLayout::Partitioned { block_bytes: 128 },
    ];
    let texts = layouts.map(files_as_text);
    compare_or_update("tests/it/golden/files.txt", &texts.join("\n"));
}

/// The text between backticks outside of fenced blocks.
fn code_spans(document: &str) -> Vec<&str> {
    let mut fenced = false;
    let prose = document.lines().filter(|line| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    prose.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files_below(&path, found),
            false => found.push(path),
        }
    }
}

/// The documents whose names of files and tests are checked.
const DOCUMENTS: [&str; 14] = [
    "DESIGN.md",
    "README.md",
    "CONTRIBUTING.md",
    "docs/format.md",
    "docs/crash-safety.md",
    "docs/measurements.md",
    "docs/results/recorded.md",
    "docs/decisions.md",
    "docs/tuning.md",
    "docs/commands.md",
    "docs/followers.md",
    "docs/costs.md",
    "docs/compaction.md",
    "docs/recipes.md",
];

fn rust_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in ["src", "crates", "tests", "examples", "benches", "fuzz/src"] {
        files_below(&root().join(folder), &mut files);
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    files
}

#[test]
fn files_named_in_documents_exist() {
    let files = rust_files();
    let exists = |named: &str| {
        let below_src = root().join("src").join(named);
        let below_root = root().join(named);
        // `siftdb-filter/hash.rs` is a source of that package.
        let of_package = named
            .split_once('/')
            .map(|(package, path)| root().join("crates").join(package).join("src").join(path));
        files.iter().any(|file| {
            *file == below_src || *file == below_root || Some(file) == of_package.as_ref()
        })
            // Short for a file of the folder that the text speaks of.
            || (!named.contains('/') && files.iter().any(|file| file.ends_with(named)))
    };
    for document in DOCUMENTS {
        let text = read(document);
        let named: Vec<_> = code_spans(&text).into_iter().filter(|s| s.ends_with(".rs")).collect();
        for name in named {
            assert!(exists(name), "{document} names {name}, which is not there");
        }
    }
    // The rules of imports are explained with made-up files.
    for file in files.iter().filter(|file| !file.ends_with("tests/it/architecture.rs")) {
        let text = fs::read_to_string(file).unwrap();
        let comments = text.lines().map(str::trim_start).filter(|line| line.starts_with("//"));
        let spans = comments.flat_map(|line| line.split('`').skip(1).step_by(2));
        // A name with its folder may begin below any room.
        let is_there = |name: &str| exists(name) || files.iter().any(|file| file.ends_with(name));
        let missing: Vec<_> = spans.filter(|s| s.ends_with(".rs") && !is_there(s)).collect();
        assert!(missing.is_empty(), "{} names {missing:?}, not there", file.display());
    }
}

/// True for a code span that is the name of a test: four words or more, and no call.
fn is_test_name(span: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    span.split('_').count() >= 4 && span.split('_').all(is_word) && !NO_TESTS.contains(&span)
}

/// Options, properties and fields with names as long as those of tests.
const NO_TESTS: [&str; 5] = [
    "compaction_bytes_per_second",
    "read_only_log_bytes_max",
    "optimize_filters_for_memory",
    "index_key_is_user_key",
    "filter_millibits_per_key",
];

/// Names in `documents` that look like tests and are not in `sources`.
fn missing_tests(documents: &[(&str, String)], sources: &str) -> Vec<String> {
    let mut missing = Vec::new();
    for (name, text) in documents {
        let tests = code_spans(text).into_iter().filter(|span| is_test_name(span));
        let absent = tests.filter(|test| !sources.contains(&format!("fn {test}(")));
        missing.extend(absent.map(|test| format!("{name} names {test}, which is no test")));
    }
    missing
}

#[test]
fn tests_named_in_documents_exist() {
    let sources: String =
        rust_files().iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let documents = DOCUMENTS.map(|name| (name, read(name)));
    assert_eq!(missing_tests(&documents, &sources), [""; 0]);
    let made_up = [("X.md", "`entry_counts_add_up`, `a_test_that_nobody_wrote`".to_string())];
    let missing = missing_tests(&made_up, &sources);
    assert_eq!(missing, ["X.md names a_test_that_nobody_wrote, which is no test"]);
}

/// Figures of time in a text outside of fenced blocks: a number and a unit.
fn durations(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split([' ', '\n', '|']).collect();
    let is_number = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.bytes().all(|b| b.is_ascii_digit() || b == b',' || b == b'.')
    };
    let is_unit = |word: &str| {
        let word = word.trim_end_matches(['.', ',', ';', ')']);
        ["ns", "us", "ms"].contains(&word)
    };
    let pairs = words.windows(2).filter(|pair| is_number(pair[0]) && is_unit(pair[1]));
    pairs.map(|pair| pair.join(" ")).collect()
}

#[test]
fn the_design_is_short_and_has_no_durations() {
    let design = read("DESIGN.md");
    let lines = design.lines().count();
    assert!(lines <= 450, "DESIGN.md has {lines} lines, at most 450: details belong into docs/");
    assert_eq!(durations(&design), [""; 0], "figures belong into docs/measurements.md");
    assert_eq!(
        durations("takes 1,200 ns.\nOr 3 ms, or 4 KiB | 5 us |"),
        ["1,200 ns.", "3 ms,", "5 us"]
    );
}

/// The rows of the table of invariants: number, and the texts between backticks in the row.
fn invariants(design: &str) -> Vec<(usize, Vec<&str>)> {
    let rows = design.lines().filter_map(|line| {
        let (number, rest) = line.strip_prefix("| I")?.split_once(' ')?;
        Some((number.parse().ok()?, rest.split('`').skip(1).step_by(2).collect()))
    });
    rows.collect()
}

#[test]
fn every_invariant_has_a_file_and_a_test() {
    let design = read("DESIGN.md");
    let sources: String =
        rust_files().iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let invariants = invariants(&design);
    assert!(invariants.len() > 10);
    for (place, (number, spans)) in invariants.iter().enumerate() {
        assert_eq!(*number, place + 1, "invariants are numbered in order");
        assert!(spans.iter().any(|span| span.ends_with(".rs")), "I{number} names no file");
        let tests = spans.iter().filter(|span| span.contains('_') && !span.ends_with(".rs"));
        let tests: Vec<_> = tests.filter(|span| **span != "filter_key").collect();
        assert!(!tests.is_empty(), "I{number} names no test");
        for test in tests {
            assert!(sources.contains(&format!("fn {test}(")), "I{number}: no test {test}");
        }
    }
}

#[test]
fn the_readme_shows_the_example_that_runs() {
    let readme = read("README.md");
    let example = read("examples/quickstart.rs");
    // The header comment of the file is not part of what the README shows.
    let code = example.split_once("\n\n").map_or("", |(_, code)| code).trim();
    assert!(!code.is_empty() && readme.contains(code), "README.md differs from the quickstart");
    assert!(readme.split_whitespace().count() <= 956, "README.md is to be read in five minutes");
    let place = readme.lines().position(|line| line == "```rust");
    assert!(place.is_some_and(|line| line < 10), "the code is what README.md begins with");
}

#[test]
fn readmes_of_packages_show_their_example() {
    for (package, example) in [("siftdb-filter", "encodings"), ("siftdb-foreign", "copy_leveldb")] {
        let readme = read(&format!("crates/{package}/README.md"));
        let example = read(&format!("crates/{package}/examples/{example}.rs"));
        let code = example.split_once("\n\n").map_or("", |(_, code)| code).trim();
        assert!(!code.is_empty() && readme.contains(code), "{package}: README.md differs");
    }
}
