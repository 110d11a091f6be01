//! A process that is killed again and again while it commits: every acknowledged transaction is
//! there whole, and every other one whole or not at all.
//!
//! The killed process is this test binary, which runs `the_process_to_kill` alone. It reports each
//! acknowledged transaction on its standard error, a pipe. `FEDIMINT_DB_KILLS` sets how many kills,
//! and `FEDIMINT_DB_SEED` after how many transactions.

use crate::random::Random;
use crate::transactions::{check, commit};
use fedimint_core::db::{Database, IRawDatabaseExt};
use siftdb::Options;
use siftdb_fedimint_db::SiftDb;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Set for the process that is to be killed: the directory of the database.
const CHILD: &str = "FEDIMINT_DB_KILLED";

const WRITERS: u64 = 4;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// A write buffer so small that kills hit flushes and compactions, too.
fn open(directory: &Path) -> Database {
    let options = Options::new().write_buffer_bytes(64 << 10).table_bytes(64 << 10);
    SiftDb::from(options.open(directory).unwrap()).into_database()
}

async fn write_on(db: Database, writer: u64) {
    for number in check(&db, writer).await + 1.. {
        commit(&db, writer, number).await;
        // One line, one write. It fails when the parent is dead, and that ends this process.
        let line = format!("acknowledged {writer} {number}\n");
        if std::io::stderr().write_all(line.as_bytes()).is_err() {
            std::process::exit(3);
        }
    }
}

/// No test of its own: what the killed process runs.
#[tokio::test(flavor = "multi_thread")]
async fn the_process_to_kill() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let db = open(Path::new(&directory));
    let writers: Vec<_> =
        (0..WRITERS).map(|writer| tokio::spawn(write_on(db.clone(), writer))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

/// Starts the process, kills it after `count` transactions or more, and returns the last number
/// that each writer acknowledged, `last` for none.
fn run_and_kill(directory: &Path, count: u64, mut last: [u64; WRITERS as usize]) -> [u64; 4] {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::the_process_to_kill", "--nocapture"])
        .env(CHILD, directory)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = 0;
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let ["acknowledged", writer, number] = words[..] else { panic!("the process: {line}") };
        let (writer, number): (usize, u64) = (writer.parse().unwrap(), number.parse().unwrap());
        assert_eq!(number, last[writer] + 1);
        last[writer] = number;
        seen += 1;
        if seen == count {
            child.kill().unwrap();
            // What it had reported before it died is still in the pipe.
        }
    }
    assert!(seen >= count, "the process ended by itself");
    child.wait().unwrap();
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn no_kill_loses_or_halves_a_transaction() {
    let kills = setting("FEDIMINT_DB_KILLS", 10);
    let mut random = Random(setting("FEDIMINT_DB_SEED", 1));
    let directory = tempfile::tempdir().unwrap();
    let mut last = [0; WRITERS as usize];
    let mut unacknowledged = 0;
    for kill in 1..=kills {
        let count = 1 + random.below(300);
        let path = directory.path().join("db");
        let reported = tokio::task::block_in_place(|| run_and_kill(&path, count, last));
        let db = open(&path);
        for writer in 0..WRITERS {
            let there = check(&db, writer).await;
            let reported = reported[writer as usize];
            let expected = reported..=reported + 1;
            assert!(expected.contains(&there), "kill {kill}: {there}, {reported} reported");
            unacknowledged += there - reported;
            last[writer as usize] = there;
        }
    }
    println!("{kills} kills, {last:?} transactions, {unacknowledged} of them unacknowledged");
}
