//! The phase whose files are not in the system's page cache: opening, then lookups one by one.
//!
//! The system is asked to drop the pages of every file of the database (`fadvise`). That is a wish:
//! pages that a program maps or that are being written stay. So the phase fails if the lookups of
//! present keys read less than a page each from the disk.
//!
//! Opening is timed with its first lookup, since some engines read nothing before that. Then some
//! lookups bring indexes into memory, the pages are dropped again, and each further lookup is
//! timed by itself: a mean would hide the few that the disk keeps waiting.

use crate::databases::{Databases, expect};
use crate::engine::{Result, Store};
use crate::sample::Sample;
use crate::tally::Tally;
use crate::timed::{Timed, timed};
use crate::workload::{Draw, KeyList};
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

/// Lookups that are timed; fewer if there are few data blocks, since each should meet a new one.
const LOOKUPS: u64 = 3000;

/// About the entries of a data block.
const BLOCK_ENTRIES: u64 = 32;

/// Lookups that bring indexes into memory.
const WARMING: u64 = 200;

/// What every read of a cold block brings from the disk, at least.
const PAGE_BYTES: f64 = 4096.0;

/// Opens the settled database and looks keys up, everything cold.
pub fn cold(databases: &mut Databases<'_>, round: u64) -> Result<Vec<Sample>> {
    let workload = databases.workload;
    let directory = databases.settled_directory()?;
    let lookups = LOOKUPS.min(workload.keys / BLOCK_ENTRIES / 8).max(20);
    let draw = |draw, seed, count| workload.draw(draw, round * 8 + seed, count);
    drop_pages(&directory)?;

    let first = draw(Draw::Present, 0, 1);
    let started = Instant::now();
    let store = databases.reopen()?;
    let found = store.reader()?.lookups(&first.keys)?;
    let opened = started.elapsed();
    expect(found, first.expected)?;

    for kind in [Draw::Present, Draw::Absent] {
        let warming = draw(kind, 1, WARMING.min(lookups));
        expect(store.reader()?.lookups(&warming.keys)?, warming.expected)?;
    }
    drop_pages(&directory)?;
    let present = draw(Draw::Present, 2, lookups);
    let (tally, hits) = looked_up(store.as_ref(), &present.keys)?;
    expect(tally, present.expected)?;
    if hits.disk_bytes < PAGE_BYTES {
        let what = "lookups read less than a page each: the files are not cold; use --directory \
                    with a file system on a disk";
        return Err(what.into());
    }
    let absent = draw(Draw::Absent, 3, lookups);
    let (tally, misses) = looked_up(store.as_ref(), &absent.keys)?;
    expect(tally, absent.expected)?;
    store.close()?;
    Ok(vec![
        Sample::milliseconds("cold-open", opened),
        Sample::new("cold-hit-p50", hits.p50),
        Sample::new("cold-hit-p99", hits.p99),
        Sample::new("cold-hit-bytes", hits.disk_bytes),
        Sample::new("cold-miss-mean", misses.mean),
        Sample::new("cold-miss-bytes", misses.disk_bytes),
    ])
}

/// Looks each key up by itself.
fn looked_up(store: &dyn Store, keys: &KeyList) -> Result<(Tally, Timed)> {
    let (mut reader, mut tally) = (store.reader()?, Tally::default());
    let timed = timed(keys.iter(), |key| {
        tally.add(reader.get(key)?);
        Ok(())
    })?;
    Ok((tally, timed))
}

/// Asks the system to drop all files below a directory from its page cache.
pub fn drop_pages(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.metadata()?.is_dir() {
            drop_pages(&entry.path())?;
            continue;
        }
        let file = File::open(entry.path())?;
        // Only pages that are on the disk can be dropped.
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}
