//! Tests that need a process of their own, for limits of the system or to count open files.

use std::process::Command;

/// This environment variable is set in the new process.
const ALONE: &str = "SIFTDB_TEST_ALONE";

/// A test prints this before lines that must be shown.
pub const FIGURES: &str = "# ";

/// Runs `body` in a new process: this binary, running only the test `name`. A shell starts it after
/// the command `prelude`, which may also replace the shell.
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
    // The test harness has written the start of the line.
    for (_, figures) in said.lines().filter_map(|line| line.split_once(FIGURES)) {
        println!("{name}: {figures}");
    }
}
