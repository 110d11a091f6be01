//! Wall time, of one thread and of several at once, processor time of the thread, and the memory
//! and the writing of the process.
//!
//! Single-threaded reads are compared by the processor time of their thread: other processes on a
//! busy machine disturb it less. Everything else is compared by wall time.

use crate::engine::Result;
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::sync::Barrier;
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

/// When a thread was at work.
pub struct Span {
    /// Its start, after the barrier.
    pub start: Instant,
    /// Its end.
    pub end: Instant,
}

/// Runs each piece of work on a thread of its own, all at the same time. Returns the time from the
/// first start to the last end. The threads take these times, because the thread that waits for
/// them may run late. Each piece of work must wait at the barrier, whatever fails before that.
pub fn at_once<W: Sync>(
    work: &[W],
    run: impl Fn(&W, &Barrier) -> Result<Span> + Sync,
) -> Result<Duration> {
    let barrier = Barrier::new(work.len());
    let spans: Result<Vec<Span>> = std::thread::scope(|scope| {
        let (run, barrier) = (&run, &barrier);
        let start = |piece| scope.spawn(move || run(piece, barrier));
        let threads: Vec<_> = work.iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect()
    });
    let spans = spans?;
    let first = spans.iter().map(|span| span.start).min();
    let last = spans.iter().map(|span| span.end).max();
    Ok(last.zip(first).map_or(Duration::ZERO, |(last, first)| last - first))
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Resets the high-water mark of the resident memory; returns what is resident now, in MB.
pub fn reset_memory_peak() -> Result<f64> {
    fs::write("/proc/self/clear_refs", "5")?;
    status("VmRSS:")
}

/// The high-water mark of the resident memory, in MB.
pub fn memory_peak() -> Result<f64> {
    status("VmHWM:")
}

/// Bytes that this process has given to write calls so far, of all its threads.
pub fn written_bytes() -> Result<u64> {
    Ok(figure("/proc/self/io", "wchar:")?.parse()?)
}

/// A figure of the memory, which the kernel states in KiB.
fn status(name: &str) -> Result<f64> {
    Ok(figure("/proc/self/status", name)?.parse::<f64>()? * 1024.0 / 1e6)
}

/// A figure of the kernel's about this process.
fn figure(file: &str, name: &str) -> Result<String> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|line| line.split_whitespace().next());
    Ok(value.ok_or_else(|| format!("no {name} in {file}"))?.to_owned())
}
