//! The machine and the versions of a run: processor, memory, system, crates.

use siftdb_cli::experiment::bench::Machine;
use std::path::Path;
use std::process::Command;

/// The version of a crate in this package's lock file.
pub fn crate_version(name: &str) -> String {
    const LOCK: &str = include_str!("../Cargo.lock");
    let entry = format!("name = \"{name}\"\nversion = \"");
    let version = LOCK.split_once(&entry).and_then(|(_, rest)| rest.split('"').next());
    version.unwrap_or("unknown").to_owned()
}

/// The machine, its system and the build, as far as they tell: name and value of each fact.
pub fn facts(directory: &Path) -> Vec<(String, String)> {
    let rustc = Command::new("rustc").arg("--version").output();
    let rustc =
        rustc.map_or_else(|_| String::new(), |out| String::from_utf8_lossy(&out.stdout).into());
    let machine = Machine::of(directory);
    let profile = if machine.is_optimized { "release" } else { "debug: the figures mean nothing" };
    let mut facts = machine.facts();
    facts.push(("compiler".into(), rustc.trim().into()));
    facts.push(("profile".into(), profile.into()));
    facts
}
