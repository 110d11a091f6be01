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
use std::sync::{Mutex, PoisonError};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Clean-ups to make before the process ends.
static CLEAN_UPS: Mutex<Vec<Box<dyn FnOnce() + Send>>> = Mutex::new(Vec::new());

/// Calls `clean_up`, after those of earlier calls, before the process ends by SIGINT, SIGTERM or
/// SIGHUP.
pub fn on_interrupt(clean_up: impl FnOnce() + Send + 'static) -> Outcome {
    let mut clean_ups = CLEAN_UPS.lock().unwrap_or_else(PoisonError::into_inner);
    clean_ups.push(Box::new(clean_up));
    // One thread serves all: the first to clean up ends the process.
    if clean_ups.len() > 1 {
        return Ok(());
    }
    let signals = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
    let mut signals =
        Signals::new(signals).map_err(|source| Failure::io(Path::new("signals"), source))?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            INTERRUPTED.store(true, Ordering::SeqCst);
            let mut clean_ups = CLEAN_UPS.lock().unwrap_or_else(PoisonError::into_inner);
            clean_ups.drain(..).for_each(|clean_up| clean_up());
            let _ = emulate_default_handler(signal);
        }
    });
    Ok(())
}

/// Whether the process was started with `signal` ignored, as `nohup` does. Only Linux tells.
fn is_ignored(signal: i32) -> bool {
    // A line `SigIgn:` TAB, then hex digits: bit 0 is signal 1.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Blocks for ever after a signal, because the process is about to end.
pub fn wait_if_interrupted() {
    while INTERRUPTED.load(Ordering::SeqCst) {
        std::thread::park();
    }
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
