//! Reads the batches that recovery or salvage chose, the second time that the logs are read.
//!
//! The first reading chooses [`LogPart`]s and hands out nothing, so that every refusal comes before
//! the first batch.

use crate::base::batch_format::DecodedBatch;
use crate::base::error::{Error, Result};
use crate::base::key::SequenceNumber;
use crate::env::api::Env;
use crate::log::wal::cursor::{LogCursor, LogEntry, LogFile, LogItem, missing_log};
use crate::log::wal::format::WalBody;
use std::ops::RangeInclusive;
use std::path::Path;

/// Batches of one log that follow each other without a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogPart {
    /// The number of the log.
    pub log: u64,
    /// Where the last of the batches ends, in bytes from the start of the log.
    pub end: u64,
    /// The sequences of their entries.
    pub sequences: RangeInclusive<SequenceNumber>,
}

/// Receives each batch with the number of its log, in order.
pub(crate) type Apply<'a> = &'a mut dyn FnMut(u64, &DecodedBatch<'_>) -> Result<()>;

/// Adds a batch of `log` that ends at byte `end` to `parts`: to the last part if it continues it.
pub(crate) fn push_batch(
    parts: &mut Vec<LogPart>,
    log: u64,
    end: u64,
    sequences: RangeInclusive<SequenceNumber>,
) {
    let continues =
        |part: &&mut LogPart| part.log == log && *part.sequences.end() + 1 == *sequences.start();
    match parts.last_mut().filter(continues) {
        Some(part) => {
            (part.end, part.sequences) = (end, *part.sequences.start()..=*sequences.end());
        }
        None => parts.push(LogPart { log, end, sequences }),
    }
}

/// Hands out the batches of `parts`, in order. Records that cannot be read are skipped. Returns the
/// sequence of the last entry; 0 if there was no batch.
///
/// # Errors
/// Those of `apply`; `Io`; a log is missing, or it changed since the first reading.
pub(crate) fn replay_parts(
    env: &dyn Env,
    directory: &Path,
    parts: &[LogPart],
    apply: Apply<'_>,
) -> Result<SequenceNumber> {
    let mut last = 0;
    for of_one_log in parts.chunk_by(|left, right| left.log == right.log) {
        let [.., LogPart { log: number, end, .. }] = of_one_log else { continue };
        let Some(mut log) = LogCursor::open(env, directory, *number, *end)? else {
            return Err(missing_log(directory, *number, "it was there a moment ago"));
        };
        loop {
            let LogEntry { item, .. } = log.next()?;
            let batch = match item {
                LogItem::Record(WalBody::Batch(batch)) => batch,
                LogItem::End => break,
                _ => continue,
            };
            let batch_end = batch.last_sequence();
            let has_batch = |part: &&LogPart| {
                part.sequences.contains(&batch.sequence) && part.sequences.contains(&batch_end)
            };
            // A second record with the same sequences was not chosen.
            if batch.sequence <= last {
                continue;
            }
            let Some(part) = of_one_log.iter().find(has_batch) else { continue };
            // Batches skip sequences only between two parts.
            if batch.sequence != last + 1 && batch.sequence != *part.sequences.start() {
                return Err(changed(directory, *number));
            }
            last = batch_end;
            apply(*number, &batch)?;
        }
    }
    Ok(last)
}

/// The error for a log that is not the same any more.
pub(crate) fn changed(directory: &Path, log: u64) -> Error {
    LogFile::new(directory, log).corruption(0, "the log changed while it was read")
}
