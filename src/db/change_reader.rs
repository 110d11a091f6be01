//! [`ChangeReader`]: reads the writes of a database from its logs, in their order.
//!
//! Everything up to a read point is in the logs that are still there, from some sequence on. A
//! batch is read whole, and a read point ends with a batch, so what two readings hand out never
//! shares one. Some sequences are in no log: the start of a log says which ones it skips, and which
//! of them are bulk loads, so nothing else is missing.

use crate::base::batch_format::{BatchEntry, DecodedBatch};
use crate::base::error::{Error, Result};
use crate::base::key::SequenceNumber;
use crate::base::sync::Arc;
use crate::env::directory::{log_numbers, our_files};
use crate::log::wal::consistency::ManifestFacts;
use crate::log::wal::tail::{LogTail, Reach, TailEnd};
use crate::state::context::Context;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Bytes of entries that one reading hands out, about.
const READ_BYTES: usize = 1 << 20;

/// What a reading hands out.
pub(super) enum Found<'a> {
    /// A write, and its sequence.
    Entry(SequenceNumber, &'a BatchEntry<'a>),
    /// The sequence of a bulk load, which no log has, and how many tables it made.
    Load(SequenceNumber, usize),
    /// The last one of other sequences that no log has.
    Unlogged(SequenceNumber),
}

/// Where a reading of changes ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChangePlace {
    /// The last sequence that the logs had.
    pub last: SequenceNumber,
    /// The sequence of the next change.
    pub next: SequenceNumber,
    /// The log that was read last.
    pub log: u64,
    /// Where the last record that was read ends in it; 0 if that log is not there yet, and will be
    /// the next one.
    pub end: u64,
}

/// A place in the history of a database, from where on its logs are read.
pub(super) struct ChangeReader {
    pub tail: LogTail,
    /// The logs that there were when they were listed last.
    logs: Vec<u64>,
    facts: ManifestFacts,
    directory: PathBuf,
    /// No opening reads older logs, so damage in them is no damage of the database.
    needed_log: u64,
    pub next: SequenceNumber,
}

impl ChangeReader {
    /// Reads from sequence `from` on. Opens all logs that it needs, so the writer may remove them
    /// afterwards. The manifest needs no log before `needed_log`.
    ///
    /// # Errors
    /// `Io`; `ChangesGone` if no log has the first one of the changes up to `through`.
    pub(super) fn new(
        context: &Context,
        needed_log: u64,
        from: SequenceNumber,
        through: SequenceNumber,
    ) -> Result<Self> {
        let mut tail = tail_of(context, 0, 0);
        let facts = facts(context);
        let logs = log_numbers(&our_files(&*context.env, &context.directory)?);
        let logs = tail.place_before(from, &logs, &facts)?;
        let begins_after = tail.last;
        let directory = context.directory.clone();
        let next = from.max(1);
        let reader = ChangeReader { tail, logs, facts, directory, needed_log, next };
        match next <= begins_after && next <= through {
            true => Err(reader.gone(begins_after + 1)),
            false => Ok(reader),
        }
    }

    /// Reads from `place` on. Nothing has the changes after it yet, or only logs have them that the
    /// caller adds. The manifest needs no log before `needed_log`.
    ///
    /// # Errors
    /// `Io`; `Corruption` of the log; `Missing`.
    pub(super) fn at(context: &Context, needed_log: u64, place: ChangePlace) -> Result<Self> {
        let ChangePlace { last, next, log, end } = place;
        let mut tail = tail_of(context, log, last);
        let facts = facts(context);
        if end > 0 {
            tail.place_at(end, &facts)?;
        }
        let directory = context.directory.clone();
        Ok(ChangeReader { tail, logs: Vec::new(), facts, directory, needed_log, next })
    }

    /// As [`ChangeReader::at`], with all logs that there are now.
    ///
    /// # Errors
    /// As for [`ChangeReader::at`].
    pub(super) fn continued(
        context: &Context,
        needed_log: u64,
        place: ChangePlace,
    ) -> Result<Self> {
        let mut reader = ChangeReader::at(context, needed_log, place)?;
        let logs = log_numbers(&our_files(&*context.env, &context.directory)?);
        reader.add_logs(logs.into_iter());
        Ok(reader)
    }

    /// Where it is; `None` before its first log.
    pub(super) fn place(&self) -> Option<ChangePlace> {
        let (log, end) = self.tail.place()?;
        Some(ChangePlace { last: self.tail.last, next: self.next, log, end })
    }

    /// Adds logs to those that it reads; `logs` ascend.
    pub(super) fn add_logs(&mut self, logs: impl Iterator<Item = u64>) {
        let last = self.logs.last().copied().unwrap_or_default();
        self.logs.extend(logs.filter(|log| *log > last));
        let oldest = self.tail.oldest_log();
        self.logs.retain(|log| *log >= oldest);
    }

    /// Hands out what comes next up to `through`, some of it or all. The writer has published
    /// `through`, or a read point shows it, so all of it is in logs or in tables.
    ///
    /// # Errors
    /// `ChangesGone` if the listed logs do not have the next change; `Io`; `Corruption`.
    pub(super) fn read(
        &mut self,
        through: SequenceNumber,
        take: &mut dyn FnMut(Found<'_>),
    ) -> Result<()> {
        let before = self.next;
        self.tail.look_ahead(&self.logs, &self.facts)?;
        let loads = self.tail.loads(before);
        let reach = Reach { through, bytes: READ_BYTES };
        let next = &mut self.next;
        let mut apply = |_, batch: &DecodedBatch<'_>| {
            if batch.sequence > *next {
                pass(*next..=batch.sequence - 1, &loads, take);
                *next = batch.sequence;
            }
            for (entry, sequence) in batch.iter().zip(batch.sequence..) {
                if sequence == *next {
                    take(Found::Entry(sequence, &entry));
                    *next += 1;
                }
            }
            Ok(())
        };
        let end = match self.tail.read(&self.logs, &self.facts, reach, &mut apply) {
            Err(error) if error.is_corruption() && self.tail.log() < self.needed_log => {
                // Nothing synced this log before its writes were in tables.
                let first = self.tail.next_log_begins_with();
                return Err(first.map_or(error, |first| self.gone(first)));
            }
            end => end?,
        };
        // The last of them may be those that a log skips.
        let passed = self.tail.next.saturating_sub(1).min(through);
        if end == TailEnd::UpToDate && passed >= self.next {
            pass(self.next..=passed, &loads, take);
            self.next = passed + 1;
        }
        if self.next > before { Ok(()) } else { Err(self.gone(through + 1)) }
    }

    /// Passes the load with the next sequence, which no log tells of yet: all of its tables are
    /// there.
    pub(super) fn pass_load(&mut self) -> Found<'static> {
        self.next += 1;
        Found::Load(self.next - 1, 0)
    }

    fn gone(&self, first: SequenceNumber) -> Error {
        Error::ChangesGone { directory: self.directory.clone(), from: self.next, first }
    }
}

/// Hands out `sequences`, which no log has: each of `loads`, and what is between them.
fn pass(
    sequences: RangeInclusive<SequenceNumber>,
    loads: &BTreeMap<SequenceNumber, usize>,
    take: &mut dyn FnMut(Found<'_>),
) {
    let (mut next, last) = sequences.clone().into_inner();
    for (&load, &tables) in loads.range(sequences) {
        if next < load {
            take(Found::Unlogged(load - 1));
        }
        take(Found::Load(load, tables));
        next = load + 1;
    }
    if next <= last {
        take(Found::Unlogged(last));
    }
}

/// What is known of the logs: those of any later manifest may be there, too. They say by themselves
/// what is missing.
fn facts(context: &Context) -> ManifestFacts {
    let database = context.database;
    ManifestFacts { database, number: u64::MAX, ..ManifestFacts::default() }
}

/// A tail from `log` on, after the sequence `last`. Under a follower the writer may remove logs.
/// For a watch they stay, and it must not take the writer's descriptors.
fn tail_of(context: &Context, log: u64, last: SequenceNumber) -> LogTail {
    let tail = LogTail::new(Arc::clone(&context.env), &context.directory, log, last);
    if context.follows { tail } else { tail.holding_one_log() }
}
