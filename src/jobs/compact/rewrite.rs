//! The loop of every job: read in order, judge each entry, write what stays.
//!
//! `run.rs` and `flush.rs` say what is read and where a table ends; the rest is the same for
//! both and stands here, above all the bookkeeping: every entry of the inputs was read, and every
//! one was either written or dropped on purpose. A count that does not come out is an error, and
//! nothing of the job remains, since an entry lost here would be lost for good.

use crate::base::error::{Error, Result};
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::iterator::merging::MergingIter;
use crate::base::key::{SequenceNumber, ValueKind, split_internal_key, unpack_trailer};
use crate::base::sync::Ordering;
use crate::jobs::compact::output::OutputTables;
use crate::jobs::compact::output::{JobContext, JobCounts, JobOutcome};
use crate::jobs::compact::stripes::SnapshotStripes;
use std::ops::RangeInclusive;

/// Entries between two looks at the stop flag.
const STOP_CHECK_ENTRIES: u64 = 1024;

/// What a job reads, and how it writes.
pub struct Rewrite<'a, I> {
    /// Forward walks over the inputs, newer ones first; together all of the inputs.
    pub sources: Vec<I>,
    /// Entries that the sources must yield.
    pub entries: u64,
    /// Bytes of the inputs, for the statistics.
    pub bytes: u64,
    /// What stays.
    pub stripes: SnapshotStripes,
    /// What the new tables record as their range of sequences, if not that of their entries.
    pub sequences: Option<RangeInclusive<SequenceNumber>>,
    /// Where it goes.
    pub context: &'a JobContext<'a>,
}

impl<I: InternalIterator> Rewrite<'_, I> {
    /// Runs to the end. `cut_before` is asked with each user key and the bytes of the open table
    /// whether to end the table before that key.
    ///
    /// # Errors
    /// Inputs that cannot be read or are damaged, outputs that cannot be written, or
    /// [`Error::Closed`] when stopped. No output file remains.
    pub fn run(mut self, mut cut_before: impl FnMut(&[u8], u64) -> bool) -> Result<JobOutcome> {
        let mut merged = MergingIter::new(Direction::Forward, std::mem::take(&mut self.sources));
        let mut outputs = OutputTables::new(self.context, self.sequences.take());
        let mut counts = JobCounts { bytes_read: self.bytes, ..JobCounts::default() };
        merged.seek(None);
        while merged.valid() {
            if counts.entries_in.is_multiple_of(STOP_CHECK_ENTRIES)
                && self.context.stop.load(Ordering::Relaxed)
            {
                return Err(Error::Closed);
            }
            let key = merged.key();
            let parts = split_internal_key(key);
            let parts = parts.and_then(|(key, trailer)| Some((key, unpack_trailer(trailer)?)));
            let Some((user_key, (sequence, kind))) = parts else {
                return Err(self.damaged("a key without a known kind".to_string()));
            };
            let decision = self.stripes.decide(user_key, sequence, kind);
            if decision.first_of_key
                && (cut_before(user_key, outputs.open_bytes()) || outputs.index_is_full())
            {
                outputs.cut()?;
            }
            if decision.keep {
                // The tables are cut between keys, so the versions of one are all in the same.
                let garbage = kind == ValueKind::Tombstone || !decision.first_of_key;
                outputs.add(key, merged.value(), garbage)?;
                counts.entries_out += 1;
            } else {
                counts.entries_dropped += 1;
            }
            counts.entries_in += 1;
            merged.next();
        }
        merged.status()?;
        if counts.entries_in != self.entries {
            let (read, expected) = (counts.entries_in, self.entries);
            return Err(self.damaged(format!("{read} entries were read instead of {expected}")));
        }
        let tables = outputs.finish(counts.entries_in - counts.entries_dropped)?;
        counts.bytes_written = tables.iter().map(|meta| meta.bytes).sum();
        Ok(JobOutcome { tables, counts })
    }

    fn damaged(&self, what: String) -> Error {
        Error::corruption(self.context.directory, 0, what)
    }
}
