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

fn run(args: &[&str]) {
    let peers = Command::new(env!("CARGO_BIN_EXE_siftdb-peers")).args(args).output();
    let output = peers.expect("the binary starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
