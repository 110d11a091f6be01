//! Reads every write that can still be read from damaged logs, and reports the others.
//!
//! Opening with `Recovery::Salvage` uses it after `recover` refused, and so does a repair. Nothing
//! is written. Every record with a valid checksum is used, so the history may have gaps, which are
//! reported. Two kinds of records are not used. An earlier recovery may have dropped some: the
//! start record of the next log names the last sequence that it follows. And sequences that go back
//! occur in no sound log.
//!
//! The logs are read twice: first to choose the records, then to hand them out in the order of
//! their sequences. A log or record of an unknown format is refused, because it is not damaged. So
//! is a record that shows that the manifest is damaged (see `consistency`).

use crate::base::error::Result;
use crate::base::filename::FileName;
use crate::base::key::SequenceNumber;
use crate::env::api::Env;
use crate::log::record::format::Undecodable;
use crate::log::recovery::DroppedPart;
use crate::log::wal::consistency::{ConsistencyCheck, ManifestFacts};
use crate::log::wal::cursor::{LogCursor, LogEntry, LogItem};
use crate::log::wal::format::{WalBody, WalStart};
use crate::log::wal::replay::{Apply, LogPart, push_batch, replay_parts};
use std::ops::RangeInclusive;
use std::path::Path;

/// The result of a salvage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SalvagedLogs {
    /// The last sequence that was recovered, tables included.
    pub last_sequence: SequenceNumber,
    /// The highest sequence in the manifest and in all records. New writes get higher sequences.
    pub highest_sequence: SequenceNumber,
    /// The parts of the logs that were not used.
    pub dropped: Vec<DroppedPart>,
    /// Missing logs that held a part of the history, each with the reason why they must exist.
    pub missing_logs: Vec<(u64, String)>,
    /// Sequences of the history that were not found.
    pub missing: Vec<RangeInclusive<SequenceNumber>>,
}

/// Reads `logs`, which must be sorted.
///
/// # Errors
/// A log that cannot be read at all, of an unknown format, or that belongs to another manifest.
pub(crate) fn salvage(
    env: &dyn Env,
    directory: &Path,
    logs: &[u64],
    facts: &ManifestFacts,
    apply: Apply<'_>,
) -> Result<SalvagedLogs> {
    let mut salvage = Salvage {
        logs,
        check: ConsistencyCheck::new(directory, facts),
        kept: Vec::new(),
        seen_through: facts.flushed_through,
        found: SalvagedLogs::default(),
    };
    for (number, why) in facts.missing_from(logs) {
        salvage.miss_log(number, why);
    }
    for &number in logs {
        match LogCursor::open(env, directory, number, u64::MAX)? {
            Some(log) => salvage.read_log(log)?,
            None => salvage.drop_part(&FileName::Wal(number).path(directory), 0, "it is missing"),
        }
    }
    salvage.finish(env, apply)
}

struct Salvage<'a> {
    logs: &'a [u64],
    check: ConsistencyCheck<'a>,
    kept: Vec<LogPart>,
    /// Every sequence up to this one is in a table, kept, missing, or was never logged.
    seen_through: SequenceNumber,
    found: SalvagedLogs,
}

impl Salvage<'_> {
    fn read_log(&mut self, mut log: LogCursor) -> Result<()> {
        if log.is_ahead(self.logs) {
            return Ok(());
        }
        loop {
            let LogEntry { file, start: at, end, item, .. } = self.check.next(&mut log)?;
            match item {
                LogItem::End => break,
                LogItem::StartOfNewerManifest => return log.expect_no_writes(),
                LogItem::Bad { what, .. }
                | LogItem::Damaged(Undecodable::Damaged(what) | Undecodable::Unknown(what)) => {
                    self.drop_part(&file.path, at, &what);
                }
                LogItem::Record(WalBody::Start(start)) => self.settle(&start),
                LogItem::Record(WalBody::Loads(_)) => {}
                // These entries are in tables.
                LogItem::Record(WalBody::Batch(batch))
                    if batch.last_sequence() <= self.check.facts.flushed_through => {}
                LogItem::Record(WalBody::Batch(batch)) if batch.sequence <= self.seen_through => {
                    let (first, seen) = (batch.sequence, self.seen_through);
                    let what = format!("the batch begins with sequence {first}, after {seen}");
                    self.drop_part(&file.path, at, &what);
                }
                LogItem::Record(WalBody::Batch(batch)) => {
                    let (first, last) = (batch.sequence, batch.last_sequence());
                    // What lies between the last batch and this one existed and cannot be read.
                    self.expect_through(first - 1);
                    self.seen_through = last;
                    push_batch(&mut self.kept, file.number, end, first..=last);
                }
            }
        }
        let (file, end) = (&log.file, log.end);
        let close = self.check.facts.clean_close.filter(|close| close.log == file.number);
        if let Some(close) = close.filter(|close| close.log_bytes != end) {
            let left = close.log_bytes;
            let what = format!("the last record ends here; the last close left {left} bytes");
            self.drop_part(&file.path, end, &what);
        }
        Ok(())
    }

    /// Handles the start of a log: records after the sequence that it follows are not part of the
    /// history, because an earlier recovery dropped them.
    fn settle(&mut self, start: &WalStart) {
        let follows = start.previous_last_sequence;
        // A batch that continues after that sequence is dropped whole, when batches are handed out.
        self.kept.retain(|kept| *kept.sequences.start() <= follows);
        if let Some(kept) = self.kept.last_mut().filter(|kept| *kept.sequences.end() > follows) {
            kept.sequences = *kept.sequences.start()..=follows;
        }
        let missing = std::mem::take(&mut self.found.missing).into_iter();
        let cut = missing.map(|range| *range.start()..=follows.min(*range.end()));
        self.found.missing = cut.filter(|range| !range.is_empty()).collect();
        let previous = start.previous_log;
        let is_needed = previous != 0 && previous >= self.check.facts.log_number;
        if is_needed && follows > self.seen_through && !self.logs.contains(&previous) {
            self.miss_log(previous, "a later log follows it");
        }
        self.expect_through(follows);
        self.seen_through = self.check.facts.flushed_through.max(start.first_sequence - 1);
    }

    /// Notes the sequences after `seen_through`, up to `sequence`, as missing.
    fn expect_through(&mut self, sequence: SequenceNumber) {
        if sequence > self.seen_through {
            self.found.missing.push(self.seen_through + 1..=sequence);
            self.seen_through = sequence;
        }
    }

    /// Notes a missing log; `why` says why it must exist.
    fn miss_log(&mut self, number: u64, why: &str) {
        if self.found.missing_logs.iter().all(|(known, _)| *known != number) {
            self.found.missing_logs.push((number, why.into()));
            let path = FileName::Wal(number).path(self.check.directory);
            self.drop_part(&path, 0, &format!("it is missing, and {why}"));
        }
    }

    fn drop_part(&mut self, path: &Path, offset: u64, what: &str) {
        let (path, what) = (path.to_path_buf(), what.to_string());
        self.found.dropped.push(DroppedPart { path, offset, what });
    }

    fn finish(mut self, env: &dyn Env, apply: Apply<'_>) -> Result<SalvagedLogs> {
        let facts = self.check.facts;
        // No log has the sequence of an ingest; the next log begins above it.
        if self.seen_through + 1 == facts.ingested_through {
            self.seen_through = facts.ingested_through;
        }
        let closed = facts.clean_close.map_or(0, |close| close.last_sequence);
        // Records and the manifest say what was durable, even if no record with it is left.
        self.expect_through(self.check.durable.max(closed));
        let last = replay_parts(env, self.check.directory, &self.kept, apply)?;
        let in_tables = facts.flushed_through.max(facts.tables_through);
        self.found.last_sequence = last.max(in_tables).max(facts.synced_through);
        self.found.highest_sequence = self.check.highest_sequence.max(self.seen_through);
        Ok(self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::write_batch::WriteBatch;
    use crate::env::mem::MemEnv;
    use crate::log::record::reader::{RecordReader, Step};
    use crate::log::wal::consistency::CleanClose;
    use crate::log::wal::format::{WalBody, decode};
    use crate::log::wal::writer::WalWriter;

    fn home() -> &'static Path {
        Path::new("/")
    }

    fn create(env: &MemEnv, log: u64, follows: u64, first: u64) -> WalWriter {
        let start = WalStart {
            previous_log: log - 1,
            previous_last_sequence: follows,
            first_sequence: first,
            ..WalStart::default()
        };
        WalWriter::create(env, home(), log, &start, &[], 1 << 16).unwrap()
    }

    fn put(wal: &mut WalWriter, synced_through: u64, sequence: u64) {
        let mut batch = WriteBatch::new();
        batch.put(sequence.to_string(), vec![7; 50]);
        wal.append(synced_through, sequence, 1, [&batch.entries[..]]).unwrap();
    }

    /// Makes the record of `sequence` unreadable.
    fn damage(env: &MemEnv, log: u64, sequence: u64) {
        let path = FileName::Wal(log).path(home());
        let mut bytes = env.read_file(&path).unwrap();
        let mut reader = RecordReader::open(env, &path, log).unwrap();
        let at = loop {
            let step = reader.step().unwrap();
            let Step::Record(record) = step else { panic!("no sequence {sequence}") };
            let WalBody::Batch(batch) = decode(record.payload).unwrap().body else { continue };
            if batch.sequence == sequence {
                break record.end as usize - 3;
            }
        };
        bytes[at] ^= 1;
        env.write_file(&path, &bytes);
    }

    fn run(env: &MemEnv, logs: &[u64], facts: &ManifestFacts) -> (Vec<u64>, SalvagedLogs) {
        let mut came = Vec::new();
        let found = salvage(env, home(), logs, facts, &mut |_, batch| {
            came.push(batch.sequence);
            Ok(())
        });
        (came, found.unwrap())
    }

    /// Logs 3 and 4 of one session with the sequences 1 to 4 and 5 to 7.
    fn two_logs() -> MemEnv {
        let env = MemEnv::new();
        let mut log3 = create(&env, 3, 0, 1);
        (1..5).for_each(|sequence| put(&mut log3, 0, sequence));
        let mut log4 = create(&env, 4, 4, 5);
        (5..8).for_each(|sequence| put(&mut log4, 0, sequence));
        env
    }

    #[test]
    fn salvage_returns_every_sound_record() {
        let facts = ManifestFacts::default();
        let (came, found) = run(&two_logs(), &[3, 4], &facts);
        assert_eq!((came, found.last_sequence), ((1..8).collect(), 7));
        assert!(found.dropped.is_empty() && found.missing.is_empty());
        // Nothing says that there was more than 6 if 7 is broken.
        for broken in 1..7 {
            let env = two_logs();
            damage(&env, if broken < 5 { 3 } else { 4 }, broken);
            let (came, found) = run(&env, &[3, 4], &facts);
            assert_eq!(came, (1..8).filter(|number| *number != broken).collect::<Vec<_>>());
            assert_eq!((found.missing, found.dropped.len()), (vec![broken..=broken], 1));
            assert_eq!(found.highest_sequence, 7);
        }
        let (came, found) = run(&two_logs(), &[4], &facts);
        assert_eq!((came, found.missing), (vec![5, 6, 7], vec![1..=4]));
        assert_eq!(found.missing_logs, [(3, "a later log follows it".to_string())]);
        let needs = ManifestFacts { log_number: 3, ..facts };
        let (_, found) = run(&two_logs(), &[4], &needs);
        assert_eq!(found.missing_logs, [(3, "the manifest needs it".to_string())]);
        assert_eq!((found.missing, found.dropped.len()), (vec![1..=4], 1));
        let (came, found) = run(&two_logs(), &[3, 5], &facts);
        assert_eq!((came, found.dropped.len()), (vec![1, 2, 3, 4], 1));
        // Entries that are in tables are not taken again.
        let flushed = ManifestFacts { flushed_through: 4, ..facts };
        let (came, found) = run(&two_logs(), &[3, 4], &flushed);
        assert_eq!((came, found.missing.len()), (vec![5, 6, 7], 0));
        let synced = ManifestFacts { synced_through: 9, ..facts };
        assert_eq!(run(&two_logs(), &[3, 4], &synced).1.missing, [8..=9]);
    }

    #[test]
    fn salvage_reports_shortened_logs() {
        let env = two_logs();
        let path = FileName::Wal(4).path(home());
        let bytes = env.read_file(&path).unwrap();
        let close = CleanClose { log: 4, log_bytes: bytes.len() as u64, last_sequence: 7 };
        let facts = ManifestFacts { clean_close: Some(close), ..ManifestFacts::default() };
        let (_, found) = run(&env, &[3, 4], &facts);
        assert!(found.dropped.is_empty() && found.missing.is_empty());
        let mut reader = RecordReader::open(&two_logs(), &path, 4).unwrap();
        let mut last = 4;
        while let Step::Record(record) = reader.step().unwrap() {
            env.write_file(&path, &bytes[..record.end as usize]);
            let (came, found) = run(&env, &[3, 4], &facts);
            assert_eq!((came.len(), found.dropped.len()), (last, usize::from(last < 7)));
            assert!(last == 7 || found.missing == [last as u64 + 1..=7], "{:?}", found.missing);
            last += 1;
        }
        for logs in [&[3][..], &[3, 4]] {
            env.write_file(&path, &vec![0; bytes.len()]);
            let (came, found) = run(&env, logs, &facts);
            assert_eq!((came, found.missing), (vec![1, 2, 3, 4], vec![5..=7]));
            assert!(
                found.dropped.iter().all(|part| part.path == path) && !found.dropped.is_empty()
            );
        }
    }

    #[test]
    fn records_once_dropped_stay_dropped() {
        let env = two_logs();
        // That recovery saw 3 damaged, ended history at 2 and continued from 20.
        let mut log6 = create(&env, 6, 2, 20);
        put(&mut log6, 2, 20);
        damage(&env, 3, 3);
        let (came, found) = run(&env, &[3, 4, 6], &ManifestFacts::default());
        assert_eq!((came, found.missing), (vec![1, 2, 20], vec![]));
        assert_eq!((found.last_sequence, found.highest_sequence), (20, 20));
    }

    #[test]
    fn logs_of_another_manifest_are_refused() {
        let env = two_logs();
        let start = WalStart { manifest_number: 9, first_sequence: 8, ..WalStart::default() };
        let mut log9 = WalWriter::create(&env, home(), 9, &start, &[], 1 << 16).unwrap();
        let facts = ManifestFacts { number: 2, ..ManifestFacts::default() };
        assert_eq!(run(&env, &[3, 4, 9], &facts).0.len(), 7);
        put(&mut log9, 7, 8);
        let refused = salvage(&env, home(), &[3, 4, 9], &facts, &mut |_, _| Ok(()));
        assert!(refused.unwrap_err().is_corruption());
        let path = FileName::Wal(3).path(home());
        let mut bytes = env.read_file(&path).unwrap();
        bytes.truncate(7);
        env.write_file(&path, &bytes);
        let (came, found) = run(&env, &[3, 4], &facts);
        assert_eq!((came, found.missing), (vec![5, 6, 7], vec![1..=4]));
    }
}
