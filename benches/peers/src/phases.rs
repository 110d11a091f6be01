//! The phases: what each one does, and for which engines and layouts.
//!
//! A worker calls [`run`] once for each round of each phase. A phase answers with samples, one for
//! each of its rows, in the row's unit. What is found is compared with what is there in every
//! round, and a difference is an error that ends the run.

use crate::big;
use crate::cold;
use crate::databases::{Databases, Stage};
use crate::engine::{Engine, Layout, Result};
use crate::large_values;
use crate::reads;
use crate::sample::Sample;
use crate::sustained;
use crate::transactions;
use crate::workload::Draw;
use crate::writers;
use crate::writes;
use clap::ValueEnum;

/// A part of the run. Phases run in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Phase {
    /// Put all entries one by one in random order, then settle.
    Load,
    /// What the settled database takes on disk.
    Disk,
    /// Open the settled database.
    Reopen,
    /// Look absent keys up.
    Miss,
    /// Look present keys up, each equally often.
    Hit,
    /// Look present keys up, few of them most of the time.
    Zipfian,
    /// Look keys up of which half are absent.
    Mixed,
    /// Misses and hits on two threads.
    Threads,
    /// Read runs of 100 entries.
    Scan,
    /// Read everything in order.
    FullScan,
    /// Hits with a cache of 8 MiB.
    Starved,
    /// The same, files read through memory maps, by engines that can.
    StarvedMapped,
    /// As starved, data compressed.
    StarvedCompressed,
    /// Open, then look keys up, nothing in the system's page cache. Needs a directory on a disk.
    /// Not by default.
    Cold,
    /// Open and read a database that memory does not hold, in a control group of `--memory` bytes;
    /// then again next to a thread that writes. Needs the right to make groups. Not by default.
    Big,
    /// Misses and hits with 100,000 fresh entries in the memtable.
    Memtable,
    /// Misses through about ten files of level 0.
    Level0,
    /// Overwrite entries in batches of 100.
    Overwrite,
    /// Load all entries in the order of their keys, in batches of 1000, and flush.
    Sorted,
    /// Puts that each wait for the disk.
    Durable,
    /// High-water marks of the resident memory, in a process of its own.
    Memory,
    /// Put all entries one by one in random order, then all again in another, and settle: over
    /// time, the slowest puts, bytes written and taken. Not by default.
    Sustained,
    /// Put values of 16 KiB in random order, then all twice again, and settle: bytes written and
    /// taken; hits and a full scan. Engines that are LSM trees only. Not by default.
    LargeValues,
    /// Put by 1, 2, 4 and 8 threads at once, without sync and durably. Not by default.
    Writers,
    /// Transactions of a get and a put, a counter, a bank, and a large one next to puts. Not by
    /// default.
    Transactions,
}

impl Phase {
    /// Whether it runs if no phases are selected.
    pub fn by_default(self) -> bool {
        let takes_long = matches!(
            self,
            Phase::Cold
                | Phase::Big
                | Phase::Sustained
                | Phase::LargeValues
                | Phase::Writers
                | Phase::Transactions
        );
        !takes_long
    }

    /// Whether an engine has this phase in a layout.
    pub fn applies(self, engine: &Engine, layout: Layout) -> bool {
        let asks_filters = match layout {
            Layout::Own => true,
            Layout::Partitioned | Layout::BlockBased => matches!(self, Phase::Miss | Phase::Hit),
            Layout::NoFilter => matches!(self, Phase::Miss | Phase::Hit | Phase::Level0),
        };
        asks_filters
            && (self == Phase::LargeValues || !engine.separates_values)
            && match self {
                Phase::LargeValues => engine.log_structured,
                Phase::Level0 => engine.level0_files > 0,
                Phase::StarvedMapped => engine.maps_files,
                Phase::StarvedCompressed => engine.compression.is_some(),
                Phase::Transactions => engine.open_transactions.is_some(),
                _ => true,
            }
    }
}

/// One round of a phase.
pub fn run(phase: Phase, round: u64, databases: &mut Databases<'_>) -> Result<Vec<Sample>> {
    let mut lookups = |row, stage, draw| reads::lookups(databases, round, row, stage, draw);
    match phase {
        Phase::Miss => lookups("miss", Stage::Settled, Draw::Absent),
        Phase::Hit => lookups("hit", Stage::Settled, Draw::Present),
        Phase::Zipfian => lookups("zipfian", Stage::Settled, Draw::Zipfian),
        Phase::Mixed => lookups("mixed", Stage::Settled, Draw::Mixed),
        Phase::Threads => reads::threads(databases, round),
        Phase::Scan => reads::scans(databases, round),
        Phase::FullScan => reads::full_scan(databases),
        Phase::Starved => lookups("starved", Stage::Starved, Draw::Present),
        Phase::StarvedMapped => lookups("starved-mapped", Stage::StarvedMapped, Draw::Present),
        Phase::StarvedCompressed => {
            lookups("starved-compressed", Stage::StarvedCompressed, Draw::Present)
        }
        Phase::Cold => cold::cold(databases, round),
        Phase::Big => match databases.memory.clone() {
            None => big::prepare(databases),
            Some((group, _)) => big::measure(databases, round, &group),
        },
        Phase::Memtable => {
            let mut samples = lookups("memtable-miss", Stage::Memtable, Draw::Absent)?;
            samples.extend(lookups("memtable-hit", Stage::Memtable, Draw::Present)?);
            Ok(samples)
        }
        Phase::Level0 => lookups("level0", Stage::Level0, Draw::Absent),
        Phase::Load => writes::load(databases),
        Phase::Disk => writes::disk(databases),
        Phase::Reopen => writes::reopen(databases),
        Phase::Overwrite => writes::overwrite(databases, round),
        Phase::Sorted => writes::sorted(databases),
        Phase::Durable => writes::durable(databases),
        Phase::Memory => writes::memory(databases),
        Phase::Sustained => sustained::sustained(databases, round),
        Phase::LargeValues => large_values::large_values(databases, round),
        Phase::Writers => writers::writers(databases),
        Phase::Transactions => transactions::transactions(databases, round),
    }
}
