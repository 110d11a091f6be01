//! Wall time, processor time of the thread, and memory of the process.
//!
//! Single-threaded reads are compared by the processor time of their thread: other processes of a
//! busy machine then cost less of the comparison's truth. Everything else is compared by wall time.

use crate::engine::Result;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::{Duration, Instant};

/// Runs from `start` to `stop`, on one thread.
pub struct Clock {
    wall: Instant,
    cpu: Duration,
}

/// What a [`Clock`] measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Elapsed {
    /// Time by the clock on the wall.
    pub wall: Duration,
    /// Processor time of the thread.
    pub cpu: Duration,
}

impl Clock {
    /// Starts now.
    pub fn start() -> Self {
        Clock { cpu: thread_time(), wall: Instant::now() }
    }

    /// What passed since the start.
    pub fn stop(self) -> Elapsed {
        let wall = self.wall.elapsed();
        Elapsed { wall, cpu: thread_time().saturating_sub(self.cpu) }
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Starts the high-water mark of the resident memory anew, and says what is resident now, in MB.
pub fn reset_memory_peak() -> Result<f64> {
    fs::write("/proc/self/clear_refs", "5")?;
    status("VmRSS:")
}

/// The high-water mark of the resident memory, in MB.
pub fn memory_peak() -> Result<f64> {
    status("VmHWM:")
}

/// A figure of the kernel's about this process, which states it in KiB.
fn status(name: &str) -> Result<f64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()).ok_or("no such figure")?;
    Ok(kib.parse::<f64>()? * 1024.0 / 1e6)
}
