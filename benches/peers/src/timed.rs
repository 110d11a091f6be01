//! Operations that are timed one by one: a mean would hide the few that the disk keeps waiting.

use crate::engine::Result;
use siftdb_cli::experiment::disk_bytes_read;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

/// What operations took: nanoseconds, and bytes that each read from the disk.
pub struct Timed {
    /// Half of them took at most this long.
    pub p50: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1,000.
    pub p999: f64,
    /// The mean.
    pub mean: f64,
    /// Bytes that the process read from the disk, divided by the operations.
    pub disk_bytes: f64,
}

/// Runs an operation for each item.
pub fn timed<T>(
    items: impl Iterator<Item = T>,
    mut run: impl FnMut(T) -> Result<()>,
) -> Result<Timed> {
    let mut nanos = Vec::new();
    let uncounted = "no read_bytes in /proc/self/io";
    let before = disk_bytes_read().ok_or(uncounted)?;
    for item in items {
        let started = Instant::now();
        run(item)?;
        nanos.push(started.elapsed().as_nanos() as f64);
    }
    let count = nanos.len().max(1);
    let disk_bytes = (disk_bytes_read().ok_or(uncounted)? - before) as f64 / count as f64;
    let mean = nanos.iter().sum::<f64>() / count as f64;
    nanos.sort_by(f64::total_cmp);
    let within = |permille: usize| nanos.get(count * permille / 1000).copied().unwrap_or(0.0);
    Ok(Timed { p50: within(500), p99: within(990), p999: within(999), mean, disk_bytes })
}

/// Reads so far of the disk that a directory is on, by any process.
pub fn disk_reads(directory: &Path) -> Result<u64> {
    let device = fs::metadata(directory)?.dev();
    // As the kernel numbers devices: the major number has bits 8 to 19.
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
    let file = format!("/sys/dev/block/{major}:{minor}/stat");
    let counts = fs::read_to_string(&file)
        .map_err(|error| format!("{file}: {error}; use --directory with a directory on a disk"))?;
    Ok(counts.split_whitespace().next().unwrap_or_default().parse()?)
}
