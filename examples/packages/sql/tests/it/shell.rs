//! The shell: what it prints, and what it says of what it cannot do.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_siftdb-sql");

fn shell(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that failed before it has read all of it is right.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// What a shell prints that must not fail.
fn printed(arguments: &[&str], input: &str) -> String {
    let output = shell(arguments, input.as_bytes());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.is_empty(), "{arguments:?} {input}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a shell says that must fail.
fn refused(arguments: &[&str], input: &[u8]) -> String {
    let output = shell(arguments, input);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
    said
}

fn in_new_directory(test: impl FnOnce(&str)) {
    let directory = tempfile::tempdir().unwrap();
    test(directory.path().join("db").to_str().unwrap());
}

#[test]
fn tables_are_printed() {
    in_new_directory(|db| {
        let make = "CREATE TABLE people (name TEXT PRIMARY KEY, born INT);
            INSERT INTO people VALUES ('ada', 1815), ('älan;', 1912), ('x\ny', NULL);";
        assert_eq!(printed(&[db], make), "created\n3 rows inserted\n");
        let table =
            "name  | born\n------+-----\nada   | 1815\nx\\ny  | NULL\nälan; | 1912\n(3 rows)\n";
        assert_eq!(printed(&[db, "SELECT * FROM people"], ""), table);
        // The last one needs no `;`, nor does one on several lines.
        assert_eq!(printed(&[db], "SELECT * -- all;\nFROM\r\npeople /* ; /* */ ; */"), table);
        let both = printed(&[db, "DELETE FROM people WHERE name = 'ada'", "SHOW TABLES"], "");
        assert_eq!(both, "1 row deleted\ntable\n------\npeople\n(1 row)\n");
        let map =
            printed(&[db], "CREATE TABLE m; INSERT INTO m VALUES ('{\"a\": 1}'); SELECT * FROM m;");
        assert!(map.ends_with("row\n-------\n{\"a\":1}\n(1 row)\n"), "{map}");
    });
}

#[test]
fn texts_of_any_length_are_printed() {
    in_new_directory(|db| {
        let long = "ä".repeat(70_000);
        let table = format!(
            "a{0} | b\n{1}-+--\n{long} | 1\n(1 row)\n",
            " ".repeat(69_999),
            "-".repeat(70_000)
        );
        assert!(printed(&[db], &format!("SELECT '{long}' AS a, 1 AS b")) == table);
    });
}

#[test]
fn nothing_runs_after_a_failure() {
    in_new_directory(|db| {
        let said =
            refused(&[db], b"CREATE TABLE a (id INT); SELECT nothing FROM a WHERE; DROP TABLE a;");
        assert!(said.contains("in: SELECT nothing FROM a WHERE;"), "{said}");
        assert_eq!(printed(&[db, "SHOW TABLES"], ""), "table\n-----\na\n(1 row)\n");
        refused(&[db, "DROP TABLE b", "DROP TABLE a"], b"");
        assert_eq!(printed(&[db, "SELECT * FROM a"], ""), "id\n--\n(0 rows)\n");
    });
}

#[test]
fn an_open_transaction_is_reported() {
    in_new_directory(|db| {
        printed(&[db, "CREATE TABLE a (id INT)"], "");
        assert!(refused(&[db], b"BEGIN; INSERT INTO a VALUES (1);").contains("COMMIT is missing"));
        assert_eq!(printed(&[db, "SELECT * FROM a"], ""), "id\n--\n(0 rows)\n");
    });
}

#[test]
fn no_input_panics() {
    in_new_directory(|db| {
        assert!(refused(&[db], b"SELECT '\xff';").contains("UTF-8"));
        // Each of these panics in GlueSQL 0.20.
        for statement in ["SELECT SUBSTR('ä', 2, 1)", "SELECT ABS(CAST(-128 AS INT8))"] {
            let said = refused(&[db, "BEGIN", statement], b"");
            assert!(said.contains("GlueSQL cannot run this") && said.contains(statement), "{said}");
            assert!(!said.contains("COMMIT is missing") && !said.contains("panicked"), "{said}");
        }
        // Deeper than the stack of a program usually allows.
        let sum = format!("SELECT {}0 AS sum", "1 + ".repeat(5000));
        assert_eq!(printed(&[db], &sum), "sum\n----\n5000\n(1 row)\n");
        for statement in ["", ";", ";;", "--", "/*", "'", "\"", "SELECT", "\0", "\\", "VALUES ()"] {
            let output = shell(&[db], statement.as_bytes());
            assert!(output.status.code().is_some_and(|code| code <= 1), "{statement:?}");
        }
    });
}

#[test]
fn arguments_are_explained() {
    assert!(printed(&["--help"], "").contains("siftdb-sql DIR [STATEMENT]"));
    for arguments in [&[][..], &["--speed"], &["--help", "me"]] {
        assert!(refused(arguments, b"").contains("siftdb-sql DIR [STATEMENT]"));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    assert!(refused(&[path, "SELECT 1"], b"").contains(path));
    assert!(!Path::new("--speed").exists());
}

#[test]
fn an_open_database_is_refused() {
    in_new_directory(|db| {
        let open = siftdb::Db::open(db).unwrap();
        assert!(refused(&[db, "SELECT 1"], b"").contains("LOCK"));
        open.close().unwrap();
    });
}
