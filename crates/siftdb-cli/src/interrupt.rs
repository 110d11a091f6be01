//! Ctrl-C and requests to end, for commands that have something to clean up.
//!
//! A thread waits for the signal, cleans up, and then ends the process by the same signal, as a
//! shell expects. Other commands need no cleanup: a database may be killed at any time.

use crate::failure::{Failure, Outcome};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A thread came to [`wait_if_interrupted`] after a signal.
static IS_WAITING: AtomicBool = AtomicBool::new(false);

/// How long clean-ups wait for that thread. It may wait for input itself, or compute.
const PATIENCE: Duration = Duration::from_millis(100);

/// Clean-ups to make before the process ends. `None` until a thread waits for signals.
static CLEAN_UPS: Mutex<Option<Vec<CleanUp>>> = Mutex::new(None);

type CleanUp = Box<dyn FnOnce() + Send>;

/// A time in which no clean-up runs: what is created in it and has one is never left behind, and
/// what is done in it is done as a whole. A signal in between ends the process afterwards.
pub struct Uninterrupted(MutexGuard<'static, Option<Vec<CleanUp>>>);

impl Uninterrupted {
    /// Begins such a time. Does not return once a clean-up runs: the process is about to end.
    pub fn begin() -> Outcome<Self> {
        let mut clean_ups = lock();
        if clean_ups.is_none() {
            let signals = [SIGINT, SIGTERM, SIGHUP];
            let signals = Signals::new(signals.into_iter().filter(|signal| !is_ignored(*signal)));
            let signals = signals.map_err(|source| Failure::io(Path::new("signals"), source))?;
            std::thread::spawn(move || clean_up_on(signals));
            *clean_ups = Some(Vec::new());
        }
        Ok(Uninterrupted(clean_ups))
    }

    /// Calls `clean_up`, after those of earlier calls, before the process ends by SIGINT, SIGTERM
    /// or SIGHUP.
    pub fn on_interrupt(&mut self, clean_up: impl FnOnce() + Send + 'static) {
        self.0.get_or_insert_default().push(Box::new(clean_up));
    }
}

fn lock() -> MutexGuard<'static, Option<Vec<CleanUp>>> {
    CLEAN_UPS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn clean_up_on(mut signals: Signals) {
    if let Some(signal) = signals.forever().next() {
        INTERRUPTED.store(true, Ordering::SeqCst);
        // A thread that is about to open a database would create what was removed again.
        let began = Instant::now();
        while !IS_WAITING.load(Ordering::SeqCst) && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Locked until the end.
        let mut clean_ups = lock();
        clean_ups.iter_mut().flat_map(|all| all.drain(..)).for_each(|clean_up| clean_up());
        let _ = emulate_default_handler(signal);
    }
}

/// Whether the process was started with `signal` ignored, as `nohup` does. Only Linux tells.
fn is_ignored(signal: i32) -> bool {
    // A line `SigIgn:` TAB, then hex digits: bit 0 is signal 1.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Blocks for ever after a signal, because the process is about to end. Not for an
/// [`Uninterrupted`] time, whose end the clean-up awaits.
pub fn wait_if_interrupted() {
    while INTERRUPTED.load(Ordering::SeqCst) {
        IS_WAITING.store(true, Ordering::SeqCst);
        std::thread::park();
    }
}

/// Makes a temporary directory in `parent`, which an interrupt removes unless it is to be kept.
pub fn temporary_directory(
    prefix: &str,
    parent: &Path,
    is_kept: bool,
    advice: &str,
) -> Outcome<TempDir> {
    let mut uninterrupted = Uninterrupted::begin()?;
    let made = tempfile::Builder::new().prefix(prefix).disable_cleanup(is_kept).tempdir_in(parent);
    let directory = made.map_err(|source| Failure::unwritable(parent, source, advice))?;
    if !is_kept {
        let path = directory.path().to_path_buf();
        uninterrupted.on_interrupt(move || remove_whole(&path));
    }
    Ok(directory)
}

/// Removes a directory that other threads may still write to, which fail once it is removed. A
/// thread that fails may remove it at the same time.
pub fn remove_whole(directory: &Path) {
    while let Err(error) = std::fs::remove_dir_all(directory) {
        let is_raced = matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound);
        if !is_raced || !directory.exists() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siftdb::env::{DiskEnv, Env};
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Names a directory in the child that this test starts.
    const CHILD: &str = "SIFTDB_INTERRUPTED_CHILD";

    /// Once, a file or directory was created first and then noted for the clean-up. A signal in
    /// between left it.
    #[test]
    fn a_signal_during_a_creation_leaves_nothing() {
        if let Some(directory) = std::env::var_os(CHILD) {
            let mut time = Uninterrupted::begin().unwrap();
            let created = tempfile::tempdir_in(directory).unwrap();
            signal_hook::low_level::raise(SIGTERM).unwrap();
            while !INTERRUPTED.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let path = created.path().to_path_buf();
            time.on_interrupt(move || remove_whole(&path));
            drop(time);
            wait_if_interrupted();
        }
        expect_nothing_left("a_signal_during_a_creation_leaves_nothing");
    }

    /// Once, a database that was opened after the clean-up had its directory created again.
    #[test]
    fn a_signal_before_an_opening_leaves_nothing() {
        if let Some(parent) = std::env::var_os(CHILD) {
            let made = temporary_directory("made-", Path::new(&parent), false, "").unwrap();
            signal_hook::low_level::raise(SIGTERM).unwrap();
            let (env, began) = (DiskEnv::new(), Instant::now());
            while began.elapsed() < Duration::from_millis(20) {
                // As an opening does.
                let _ = env.create_dir(made.path());
                let _ = env.create_dir(&made.path().join("database"));
            }
            wait_if_interrupted();
        }
        for _ in 0..5 {
            expect_nothing_left("a_signal_before_an_opening_leaves_nothing");
        }
    }

    /// Runs a test of this module as a child, which ends by a signal.
    fn expect_nothing_left(test: &str) {
        let directory = tempfile::tempdir().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("interrupt::tests::{test}")])
            .env(CHILD, directory.path())
            .output()
            .unwrap();
        assert_eq!(child.status.signal(), Some(SIGTERM), "{child:?}");
        std::fs::remove_dir(directory.path()).expect("nothing is left in it");
    }
}
