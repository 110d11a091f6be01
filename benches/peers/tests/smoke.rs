//! Runs of the binary with few entries, by every engine that it was built with. A wrong answer of
//! an engine ends a run with an error.

use std::process::Command;

#[test]
fn every_engine_answers_right() {
    run(&["--keys", "2000", "--rounds", "1", "--phases", "reopen,miss,hit,overwrite"]);
}

#[test]
fn every_tree_stores_large_values() {
    run(&["--large-values", "1000", "--rounds", "1", "--phases", "large-values"]);
}

/// Without the right to make control groups, or without a disk, the run says what it needs.
#[test]
fn bounded_memory_works_or_says_what_it_needs() {
    let args = ["--keys", "2000", "--rounds", "1", "--phases", "big", "--memory", "64MiB"];
    if let Err(error) = try_to_run(&args) {
        let needs = ["needs the right to make control groups", "use --directory"];
        assert!(needs.iter().any(|needed| error.contains(needed)), "{error}");
    }
    let error = try_to_run(&args[..6]).expect_err("no bound");
    assert!(error.contains("needs --memory"), "{error}");
}

fn run(args: &[&str]) {
    try_to_run(args).expect("a run without an error");
}

fn try_to_run(args: &[&str]) -> Result<(), String> {
    let peers = Command::new(env!("CARGO_BIN_EXE_siftdb-peers")).args(args).output();
    let output = peers.expect("the binary starts");
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
