//! What a killed process and a power cut leave of a stream of transactions.

use crate::shell::PROGRAM;
use crate::support::{Sql, connect, open, query, refused, run};
use gluesql_core::prelude::Glue;
use siftdb::Options;
use siftdb::env::MemEnv;
use siftdb::env::testing::{Calls, ENOSPC, Fault, FaultEnv, FaultKind};
use siftdb_sql::Database;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Three rows, and the count of the transactions.
fn transaction(number: u64) -> String {
    let row = |part: u64| format!("({}, {number})", 3 * number + part);
    let rows = [row(0), row(1), row(2)].join(", ");
    format!(
        "BEGIN; INSERT INTO parts VALUES {rows};\nUPDATE total SET count = {}; COMMIT;\n",
        number + 1
    )
}

const TABLES: &str = "CREATE TABLE parts (id INT PRIMARY KEY, number INT);
    CREATE TABLE total (count INT); INSERT INTO total VALUES (0);\n";

/// How many transactions there are: each whole, and none without those before it.
fn whole_transactions(sql: &mut Sql) -> u64 {
    let count: u64 = query(sql, "SELECT count FROM total")[0].parse().unwrap();
    let expected: Vec<String> = (0..3 * count).map(|id| format!("{id} {}", id / 3)).collect();
    assert_eq!(query(sql, "SELECT * FROM parts"), expected);
    count
}

/// Runs the shell from transaction `first` on, kills it after it has acknowledged `commits`, and
/// returns how many it has acknowledged.
fn kill_after(directory: &Path, first: u64, commits: u64) -> u64 {
    let mut command = Command::new(PROGRAM);
    command.arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = command.spawn().unwrap();
    let (mut input, output) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
    let writer = std::thread::spawn(move || {
        if first == 0 {
            input.write_all(TABLES.as_bytes()).unwrap();
        }
        // Without an end: the shell is killed in the middle of it.
        let mut numbers = first..;
        while numbers.next().is_some_and(|n| input.write_all(transaction(n).as_bytes()).is_ok()) {}
    });
    let mut lines = BufReader::new(output).lines();
    let mut acknowledged = 0;
    while acknowledged < commits {
        acknowledged += u64::from(lines.next().unwrap().unwrap() == "committed");
    }
    shell.kill().unwrap();
    // Those that it printed before it died count too.
    acknowledged +=
        lines.filter(|line| line.as_ref().is_ok_and(|line| line == "committed")).count() as u64;
    assert!(!shell.wait().unwrap().success());
    writer.join().unwrap();
    first + acknowledged
}

#[test]
fn killed_shells_leave_whole_transactions() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let mut count = 0;
    for commits in [1, 7, 30, 2, 50, 11] {
        let acknowledged = kill_after(&path, count, commits);
        let database = Database::open(&path, Options::new()).unwrap();
        let mut sql = Glue::new(database.connect());
        count = whole_transactions(&mut sql);
        // One more may be there: it was killed before it could say so.
        assert!((acknowledged..=acknowledged + 1).contains(&count), "{acknowledged} {count}");
        database.db().close().unwrap();
    }
}

#[test]
fn committed_transactions_survive_a_power_cut() {
    let env = MemEnv::new();
    let mut sql = connect(&open(&env));
    run(&mut sql, TABLES);
    for number in 0..20 {
        run(&mut sql, &transaction(number));
        let mut after = connect(&open(&env.power_cut()));
        assert_eq!(whole_transactions(&mut after), number + 1);
    }
}

#[test]
fn row_numbers_are_not_given_out_again() {
    let mut env = MemEnv::new();
    run(&mut connect(&open(&env)), "CREATE TABLE lines (n INT)");
    for n in [1, 700, 1, 2000, 1] {
        env = env.power_cut();
        let mut sql = connect(&open(&env));
        run(&mut sql, &format!("INSERT INTO lines SELECT N FROM SERIES({n})"));
        run(&mut sql, "INSERT INTO lines VALUES (0)");
    }
    let mut sql = connect(&open(&env.power_cut()));
    assert_eq!(query(&mut sql, "SELECT COUNT(*) FROM lines"), ["2708"]);
}

#[test]
fn queries_work_when_writes_fail() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let options = Options::new().env(Arc::new(env.clone()));
    let mut sql = connect(&Database::open(Path::new("/db"), options).unwrap());
    run(&mut sql, TABLES);
    let full = Fault::from_then_on(FaultKind::Error(ENOSPC)).among(Calls::Changes);
    env.fail_at(env.calls_of(Calls::Changes), full);
    for _ in 0..2 {
        refused(&mut sql, "UPDATE total SET count = 1");
        assert_eq!(query(&mut sql, "SELECT count FROM total"), ["0"]);
    }
}
