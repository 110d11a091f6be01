//! The blocks of a batch that are in no cache, read at once.
//!
//! Where files are not in the system's page cache, a read waits for the disk, which serves many
//! reads in the time of one. `tree/multi_get.rs` calls [`read_ahead`] when the blocks of all keys
//! in a level are known and before it searches them: first for parts of data indexes, then for data
//! blocks. The calling thread reads the first block. If
//! that took as long as a disk takes, a few threads read the others, and end. So a batch that finds
//! its blocks in the page cache starts no thread.
//!
//! A block that could not be read ahead is read by the search, which has the error.

use crate::table::batch_key::BatchKey;
use crate::table::format::BlockKind;
use crate::table::reader::Table;
use std::thread;
use std::time::{Duration, Instant};

/// Reads at once, with that of the calling thread. Each thread takes as long to start as a fast
/// disk to read.
const READERS: usize = 8;

/// A read that takes longer waits for a disk. A block in the page cache takes a few microseconds.
const DISK_TIME_MIN: Duration = Duration::from_micros(25);

/// Bytes of the blocks that are read before the first is searched, at most.
const BYTES_MAX: u64 = 1 << 20;

/// A key whose block is not in memory.
type Missing<'r, 'b, 'k> = (&'r Table, &'r mut &'b mut BatchKey<'k>);

/// Reads the blocks of a kind that the next step will need for these keys, if several are missing
/// and the disk is slow. The keys come with their tables.
pub(crate) fn read_ahead<'r, 'b: 'r, 'k: 'b>(
    runs: impl Iterator<Item = (&'r Table, &'r mut [&'b mut BatchKey<'k>])>,
    kind: BlockKind,
    fill_cache: bool,
) {
    let mut missing = missing(runs, kind);
    let [(table, key), others @ ..] = &mut missing[..] else { return };
    if others.is_empty() {
        return;
    }
    let started = Instant::now();
    table.read_ahead(key, kind, fill_cache);
    // A scheduler of threads has no time, and must not depend on it.
    if cfg!(not(feature = "interleavings")) && started.elapsed() >= DISK_TIME_MIN {
        read_at_once(others, kind, fill_cache);
    }
}

fn read_at_once(missing: &mut [Missing<'_, '_, '_>], kind: BlockKind, fill_cache: bool) {
    let part = missing.len().div_ceil(READERS);
    thread::scope(|scope| {
        let mut parts = missing.chunks_mut(part);
        let own = parts.next();
        for part in parts {
            // If the system refuses a thread, the search reads the blocks of this part.
            let builder = thread::Builder::new().name("siftdb-read".into());
            let _ = builder.spawn_scoped(scope, move || read_all(part, kind, fill_cache));
        }
        read_all(own.unwrap_or_default(), kind, fill_cache);
    });
}

fn read_all(part: &mut [Missing<'_, '_, '_>], kind: BlockKind, fill_cache: bool) {
    for (table, key) in part {
        table.read_ahead(key, kind, fill_cache);
    }
}

/// One key for each missing block, up to [`BYTES_MAX`] of them.
fn missing<'r, 'b, 'k>(
    runs: impl Iterator<Item = (&'r Table, &'r mut [&'b mut BatchKey<'k>])>,
    kind: BlockKind,
) -> Vec<Missing<'r, 'b, 'k>> {
    let (mut missing, mut bytes) = (Vec::new(), 0);
    for (table, keys) in runs {
        let mut last = None;
        for key in keys {
            let id = key.block_id();
            let Some(more) = table.missing_bytes(key, kind).filter(|_| id != last) else {
                continue;
            };
            last = id;
            bytes += more;
            if bytes > BYTES_MAX {
                return missing;
            }
            missing.push((table, key));
        }
    }
    missing
}
