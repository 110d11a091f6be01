//! Tests that need a process of their own: with limits of the system, or to count what it holds.

use std::process::Command;

/// Set in the process of its own.
const ALONE: &str = "SIFTDB_TEST_ALONE";

/// What a test prints before figures that are to be seen.
pub const FIGURES: &str = "# ";

/// Runs `body` in a process that was made for it: this binary running the test `name` only, started
/// by a shell behind `prelude`, which may also replace the shell.
pub fn alone(name: &str, prelude: &str, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let output = Command::new("sh")
        .args(["-c", &format!("{prelude}\nexec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}{errors}", output.status);
    assert!(said.contains("1 passed"), "{name} is no test: {said}");
    // The harness has begun the line before.
    for (_, figures) in said.lines().filter_map(|line| line.split_once(FIGURES)) {
        println!("{name}: {figures}");
    }
}
