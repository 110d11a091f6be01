//! The machine of a run, and the other users of its cores. Times can be compared only with both.
//!
//! Everything comes from files of the kernel's that anybody may read. What a system does not tell
//! is `None`, and `null` in JSON.

use serde::Serialize;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The time of a processor is counted in hundredths of a second on every Linux.
const TICKS_A_SECOND: f64 = 100.0;

/// Others may use this much of a core on average before a warning is due: an idle desktop does.
const OTHERS_CORES_MOST: f64 = 0.2;

/// Facts that decide about times.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// The name of the processor.
    pub processor: Option<String>,
    /// How many of its threads this process may use.
    pub cores: usize,
    /// How its frequency is chosen.
    pub governor: Option<String>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// The type of the file system of the databases.
    pub file_system: Option<String>,
    /// The version of the kernel.
    pub kernel: Option<String>,
    /// The mean number of processes that wanted to run during the last minute.
    pub load_average: Option<f64>,
    /// The commit of the sources, with `-dirty` after it if they have changes; `None` if this was
    /// not built from a checkout that is still there.
    pub commit: Option<String>,
    /// Whether the build is optimized.
    pub is_optimized: bool,
}

impl Machine {
    /// The machine now, with the file system of `directory`.
    pub fn of(directory: &Path) -> Self {
        Machine {
            processor: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            governor: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_bytes: kibibytes("/proc/meminfo", "MemTotal"),
            file_system: file_system(directory),
            kernel: text("/proc/sys/kernel/osrelease"),
            load_average: text("/proc/loadavg")
                .and_then(|text| text.split(' ').next()?.parse().ok()),
            commit: commit(),
            is_optimized: !cfg!(debug_assertions),
        }
    }

    /// Names and texts of these facts, for people.
    pub fn facts(&self) -> Vec<(String, String)> {
        let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
        let memory = self.memory_bytes.map(|bytes| format!("{:.1} GB", bytes as f64 / 1e9));
        let load = self.load_average.map(|load| load.to_string());
        let facts = [
            ("processor", format!("{}, {} cores", or_unknown(&self.processor), self.cores)),
            ("governor", or_unknown(&self.governor)),
            ("memory", or_unknown(&memory)),
            ("file system", or_unknown(&self.file_system)),
            ("kernel", or_unknown(&self.kernel)),
            ("load average", or_unknown(&load)),
            ("commit", or_unknown(&self.commit)),
        ];
        facts.into_iter().map(|(name, text)| (name.into(), text)).collect()
    }
}

/// Processor time up to now: of everybody, and of this process.
#[derive(Clone, Copy, Debug)]
pub struct CoresUsed {
    all: f64,
    own: f64,
    at: std::time::Instant,
}

impl CoresUsed {
    /// The times up to now; `None` if the system does not tell.
    pub fn now() -> Option<Self> {
        let stat = text("/proc/stat")?;
        // After the name: user, nice and system.
        let all = stat.lines().next()?.split_whitespace().skip(1).take(3);
        let all: f64 = all.map(|word| word.parse::<f64>().ok()).sum::<Option<_>>()?;
        // After the name, which may have spaces; times of user and system are numbers 14 and 15.
        let own = text("/proc/self/stat")?;
        let own = own.rsplit_once(") ")?.1.split(' ').skip(11).take(2);
        let own: Vec<f64> = own.filter_map(|word| word.parse().ok()).collect();
        Some(CoresUsed {
            all: all / TICKS_A_SECOND,
            own: own.iter().sum::<f64>() / TICKS_A_SECOND,
            at: std::time::Instant::now(),
        })
    }

    /// How many cores other processes used on average since then; `None` after too short a time.
    pub fn by_others_since(&self) -> Option<f64> {
        let now = CoresUsed::now()?;
        let seconds = (now.at - self.at).as_secs_f64();
        let others = (now.all - self.all) - (now.own - self.own);
        // A few ticks are too coarse to divide.
        (seconds >= 0.1).then(|| (others / seconds).max(0.0))
    }
}

/// A warning if other processes used this many of `cores`.
pub fn warning_of_others(used: f64, cores: usize) -> Option<String> {
    (used > OTHERS_CORES_MOST).then(|| {
        format!(
            "other processes used {used:.1} of {cores} cores: times are not to be trusted; end \
             these processes, or run more rounds and compare medians"
        )
    })
}

/// Bytes of memory that this process has resident now.
pub fn resident_bytes() -> Option<u64> {
    kibibytes("/proc/self/status", "VmRSS")
}

fn text(file: &str) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

/// The value after the first `name : value` in a file.
fn field(file: &str, name: &str) -> Option<String> {
    let text = text(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kibibytes(file: &str, name: &str) -> Option<u64> {
    field(file, name)?.strip_suffix(" kB")?.parse::<u64>().ok().map(|count| count * 1024)
}

/// The type of the file system that holds a directory.
fn file_system(directory: &Path) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    let mounts = text("/proc/mounts")?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let holding = mounts.filter(|(mounted, _)| directory.starts_with(mounted));
    holding.max_by_key(|(mounted, _)| mounted.len()).map(|(_, kind)| kind.to_owned())
}

/// The commit of the checkout that this was compiled in.
fn commit() -> Option<String> {
    let sources = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    // Sources of a package may lie inside of a repository of something else.
    if !sources.join(".git").exists() {
        return None;
    }
    let git = Command::new("git")
        .arg("-C")
        .arg(sources)
        .args(["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"])
        .output()
        .ok()?;
    let commit = String::from_utf8(git.stdout).ok()?.trim().to_owned();
    (git.status.success() && !commit.is_empty()).then_some(commit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_by_others_is_told() {
        assert!(warning_of_others(0.05, 4).is_none());
        assert!(warning_of_others(1.5, 4).unwrap().contains("1.5 of 4"));
        let before = CoresUsed::now().unwrap();
        let earlier = before.at.checked_sub(std::time::Duration::from_secs(10)).unwrap();
        let used = CoresUsed { all: before.all - 5.0, own: before.own - 5.0, at: earlier };
        // This process alone used half a core for 10 s; its tests may have used more since.
        let others = used.by_others_since().unwrap();
        let idle = CoresUsed { all: before.all - 25.0, own: before.own - 5.0, at: earlier };
        let more = idle.by_others_since().unwrap();
        assert!((1.9..2.1).contains(&(more - others)) || others == 0.0, "{others} {more}");
    }

    #[test]
    fn facts_of_this_machine_are_there() {
        let machine = Machine::of(Path::new("."));
        assert!(machine.cores >= 1 && machine.memory_bytes.unwrap() > 1 << 20, "{machine:?}");
        assert!(machine.kernel.is_some() && machine.file_system.is_some(), "{machine:?}");
        assert!(resident_bytes().unwrap() > 1 << 16);
        assert_eq!(serde_json::json!(machine)["cores"], machine.cores);
    }
}
