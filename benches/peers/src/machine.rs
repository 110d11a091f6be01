//! The machine and the versions of a run: processor, memory, system, crates.

use std::fs;
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
pub fn facts(directory: &Path) -> Vec<(&'static str, String)> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let rustc = Command::new("rustc").arg("--version").output();
    let rustc =
        rustc.map_or_else(|_| String::new(), |out| String::from_utf8_lossy(&out.stdout).into());
    let profile =
        if cfg!(debug_assertions) { "debug: the figures mean nothing" } else { "release" };
    vec![
        ("processor", format!("{}, {cores} cores", field("/proc/cpuinfo", "model name"))),
        ("memory", field("/proc/meminfo", "MemTotal")),
        ("kernel", text("/proc/sys/kernel/osrelease").trim().to_owned()),
        ("file system", file_system(directory)),
        ("compiler", rustc.trim().to_owned()),
        ("profile", profile.to_owned()),
    ]
}

/// The value after the first `name : value` in a file.
fn field(file: &str, name: &str) -> String {
    let text = text(file);
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, value)| value.trim()).into()
}

/// The type of the file system that holds a directory.
fn file_system(directory: &Path) -> String {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mounts = text("/proc/mounts");
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let holding = mounts.filter(|(mounted, _)| directory.starts_with(mounted));
    let nearest = holding.max_by_key(|(mounted, _)| mounted.len());
    nearest.map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}

fn text(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default()
}
