//! Recovers the logs: finds where the history of writes ends, and whether durable writes are
//! missing.
//!
//! Opening reads the logs twice, in order, from the first log that the manifest needs. The first
//! reading, [`survey`], decides where the history ends and whether opening is refused; it changes
//! nothing. The second one, [`replay`], hands out the batches of that history.
//!
//! Let S be the first sequence that is missing or bad. If the manifest, or a valid record after S,
//! says that S was durable, the files are damaged. Otherwise the history ends before S if a crash
//! can have caused that: the log ends there, it is torn there (see `log::record::reader`), or the
//! next log begins with a later sequence. Everything after S is dropped, later logs included. Every
//! other bad place is damage. After a clean close nothing may be missing, because the manifest says
//! where the logs end.
//!
//! If a log continues exactly where the good records ended, nothing is missing there: an earlier
//! recovery dropped what is in between. A log of an opening that did not finish names a manifest
//! that is not current; it contains no writes and is skipped.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::SequenceNumber;
use crate::env::api::Env;
use crate::log::recovery::DroppedPart;
use crate::log::wal::consistency::{CleanClose, ConsistencyCheck, ManifestFacts};
use crate::log::wal::cursor::{LogCursor, LogEntry, LogFile, LogItem, missing_log};
use crate::log::wal::format::{WalBody, WalStart};
use crate::log::wal::replay::{Apply, LogPart, changed, push_batch, replay_parts};
use std::path::Path;

/// Bytes that are read after the end of a log that was closed cleanly. No log is preallocated
/// further ahead. siftdb did not write what follows, which may be gigabytes of a sparse file.
const AFTER_CLOSE_BYTES: u64 = 2 << 20;

/// The history that the logs hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecoveredLogs {
    /// The last sequence of the history, tables included.
    pub last_sequence: SequenceNumber,
    /// The highest sequence in the manifest and in all records, dropped ones included. New writes
    /// get higher sequences.
    pub highest_sequence: SequenceNumber,
    /// The last log that is part of the history, which the next log follows; 0 if there is none.
    pub last_log: u64,
    /// The last session was closed cleanly and nothing was dropped, so opening need not write.
    pub clean: bool,
    /// The place from which on records were dropped, if any were; a crash caused it.
    pub dropped: Option<DroppedPart>,
    /// The parts of the logs that hold the history, in order.
    pub parts: Vec<LogPart>,
    /// The logs that are part of the history, oldest first.
    pub logs: Vec<LiveLog>,
}

/// A log that unflushed memtables may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveLog {
    /// The number in its name.
    pub number: u64,
    /// The last sequence of the logs before it.
    pub begins_after: SequenceNumber,
    /// The length of its file, with what is allocated ahead.
    pub bytes: u64,
}

/// Finds where the history in `logs` ends. They must be sorted and start with the first log that
/// the manifest needs.
///
/// # Errors
/// Damage: a durable write is missing, or a crash cannot have caused a bad place.
pub(crate) fn survey(
    env: &dyn Env,
    directory: &Path,
    logs: &[u64],
    facts: &ManifestFacts,
) -> Result<RecoveredLogs> {
    if let Some((number, why)) = facts.missing_from(logs).next() {
        return Err(missing_log(directory, number, why));
    }
    let mut survey = Survey {
        logs,
        check: ConsistencyCheck::new(directory, facts),
        next: facts.flushed_through + 1,
        end: 0,
        gap: false,
        found: RecoveredLogs { last_sequence: facts.flushed_through, ..Default::default() },
    };
    for &number in logs {
        let close = facts.clean_close.filter(|close| close.log == number);
        let bytes_max =
            close.map_or(u64::MAX, |close| close.log_bytes.saturating_add(AFTER_CLOSE_BYTES));
        let log = LogCursor::open(env, directory, number, bytes_max)?;
        survey.read_log(log.ok_or_else(|| missing_log(directory, number, "it is needed"))?)?;
    }
    survey.finish()
}

/// Hands out the batches of `parts`, which a survey found, in order.
///
/// # Errors
/// Those of `apply`; `Corruption` if a log changed since the survey.
pub(crate) fn replay(
    env: &dyn Env,
    directory: &Path,
    parts: &[LogPart],
    apply: Apply<'_>,
) -> Result<()> {
    let last = replay_parts(env, directory, parts, apply)?;
    match parts.last() {
        Some(part) if *part.sequences.end() != last => Err(changed(directory, part.log)),
        _ => Ok(()),
    }
}

struct Survey<'a> {
    logs: &'a [u64],
    check: ConsistencyCheck<'a>,
    /// The next sequence; beyond the last one by more than one only if the start of a log skips
    /// some.
    next: SequenceNumber,
    /// The end of the last record of the history, in its last log.
    end: u64,
    /// The history ends because the next log begins with a later sequence.
    gap: bool,
    /// The history so far. A later log may continue it after the place from which on records were
    /// dropped.
    found: RecoveredLogs,
}

impl Survey<'_> {
    fn read_log(&mut self, mut log: LogCursor) -> Result<()> {
        if log.is_ahead(self.logs) {
            return Ok(());
        }
        let file_bytes = log.reader.file_bytes();
        // Of records that are not part of the history, only the durable watermark counts. It shows
        // that the history must not end before them.
        let (mut begun, mut dropped) = (false, false);
        loop {
            let mut entry = self.check.next(&mut log)?;
            if !dropped {
                entry = entry.due(begun.then_some(self.next));
            }
            let LogEntry { file, start: at, end, item, .. } = entry;
            let closed = begun && self.is_closed();
            match item {
                LogItem::Damaged(bad) => return Err(bad.into_error(&file.path, at)),
                LogItem::End => return Ok(()),
                _ if dropped => {}
                // Nothing was written after the mark of a clean close, so nothing is lost there.
                LogItem::Bad { what, torn } if torn || closed => {
                    let path = file.path.clone();
                    self.found.dropped.get_or_insert(DroppedPart { path, offset: at, what });
                    dropped = true;
                }
                LogItem::Bad { what, .. } => return Err(file.corruption(at, what)),
                LogItem::StartOfNewerManifest if file.number == self.check.facts.log_number => {
                    return Err(file.of_newer_manifest(at));
                }
                LogItem::StartOfNewerManifest => return log.expect_no_writes(),
                LogItem::Record(_) if closed => {
                    let what = "a record after the end that the last clean close noted";
                    return Err(file.corruption(at, what));
                }
                LogItem::Record(WalBody::Start(start)) => {
                    dropped = !self.follows(file, at, &start)?;
                    if !dropped {
                        self.begin(file, &start, file_bytes);
                        (begun, self.end) = (true, end);
                    }
                }
                LogItem::Record(WalBody::Loads(_)) => self.end = end,
                LogItem::Record(WalBody::Batch(batch)) => {
                    let last = batch.last_sequence();
                    push_batch(&mut self.found.parts, file.number, end, self.next..=last);
                    (self.end, self.next) = (end, last + 1);
                    self.found.last_sequence = last;
                }
            }
        }
    }

    /// Adds a log with this start to the history.
    fn begin(&mut self, file: &LogFile, start: &WalStart, bytes: u64) {
        let (found, number) = (&mut self.found, file.number);
        (found.dropped, self.gap) = (None, false);
        self.next = start.first_sequence;
        // After a bulk load this is a sequence that no log has.
        let begins_after = found.last_sequence.max(start.previous_last_sequence);
        (found.last_sequence, found.last_log) = (begins_after, number);
        found.logs.push(LiveLog { number, begins_after, bytes });
    }

    /// The last record ends where the mark of a clean close says.
    fn is_closed(&self) -> bool {
        let close = self.check.facts.clean_close;
        close.is_some_and(|close| (close.log, close.log_bytes) == (self.found.last_log, self.end))
    }

    /// True if `log` continues the history so far, false if sequences are missing in between.
    fn follows(&mut self, log: &LogFile, begins: u64, start: &WalStart) -> Result<bool> {
        if self.check.facts.clean_close.is_some_and(|close| close.log < log.number) {
            let what = "the log is newer than the last one at the last close";
            return Err(log.corruption(begins, what));
        }
        let (begins_after, first) = (start.previous_last_sequence, start.first_sequence);
        let last = self.found.last_sequence;
        if Some(&log.number) == self.logs.first() {
            if begins_after <= last && last < first {
                return Ok(true);
            }
            let what =
                format!("the log begins with sequence {first}, but the tables end with {last}");
            return Err(log.corruption(begins, what));
        }
        // The log follows the last good record. `next` is beyond `last + 1` only if the start of a
        // log skipped sequences, which no log has.
        if (last..self.next).contains(&begins_after) {
            return Ok(true);
        }
        // A log cannot follow a sequence that the logs before it have already passed.
        if begins_after < last {
            let what =
                format!("the log follows sequence {begins_after}, but {last} was read already");
            return Err(log.corruption(begins, what));
        }
        let previous = start.previous_log;
        if previous >= self.check.facts.log_number && !self.logs.contains(&previous) {
            // The name of a log is durable before its first record, so no crash removes it.
            return Err(missing_log(self.check.directory, previous, "a later log follows it"));
        }
        if self.found.dropped.is_none() {
            self.gap = true;
            let what = format!("sequences {} to {begins_after} are missing", self.next);
            self.found.dropped = Some(DroppedPart { path: log.path.clone(), offset: begins, what });
        }
        Ok(false)
    }

    /// The error for a history that ends too early; `why` says why.
    fn ends_too_early(&self, why: &str) -> Error {
        let last = self.found.last_sequence;
        let what = |here: &str| format!("{here}; the history ends with sequence {last}, but {why}");
        match &self.found.dropped {
            Some(bad) if !self.gap => Error::corruption(&bad.path, bad.offset, what(&bad.what)),
            // The log before the gap, or the last log.
            _ => {
                let number = match self.found.last_log {
                    0 => self.check.facts.log_number,
                    last_log => last_log,
                };
                let path = FileName::Wal(number).path(self.check.directory);
                Error::corruption(path, self.end, what("the log ends here"))
            }
        }
    }

    fn finish(mut self) -> Result<RecoveredLogs> {
        // The log that begins after an ingest was not begun, or its start is torn: the sequence of
        // the ingest is in tables.
        if self.next == self.check.facts.ingested_through {
            self.next += 1;
        }
        // Logs that do not end where the mark of a clean close says are damaged.
        if let Some(CleanClose { log, log_bytes, last_sequence }) = self.check.facts.clean_close
            && !(self.is_closed() && (self.found.last_sequence..self.next).contains(&last_sequence))
        {
            return Err(self.ends_too_early(&format!(
                "the last close left log {log} with {log_bytes} bytes and sequence {last_sequence}"
            )));
        }
        // A durable sequence is not part of the history, so it was lost to damage and not to a
        // crash.
        if self.check.durable >= self.next {
            return Err(self.ends_too_early(&self.check.durable_text()));
        }
        // Reads must see what is in tables. No log has the sequence of a load. Its tables may be
        // gone, by a drop, an expiry or a range delete, but the edit that named them called it
        // durable. What is durable is part of the history: it is below `next`.
        let in_tables = self.check.facts.tables_through;
        let last = self.found.last_sequence.max(in_tables).max(self.check.durable);
        let clean = self.is_closed() && self.found.dropped.is_none();
        let highest_sequence = self.check.highest_sequence.max(last);
        Ok(RecoveredLogs { last_sequence: last, highest_sequence, clean, ..self.found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::write_batch::WriteBatch;
    use crate::env::mem::MemEnv;
    use crate::env::testing::crash::CrashModel;
    use crate::log::record::format::SECTOR_BYTES;
    use crate::log::record::reader::{RecordReader, Step};
    use crate::log::wal::format::DatabaseIdentity;
    use crate::log::wal::format::{WalBody, decode};
    use crate::log::wal::writer::WalWriter;
    use std::path::PathBuf;

    const MANIFEST: u64 = 2;
    const MANIFEST_BYTES: u64 = 100;

    fn directory() -> &'static Path {
        Path::new("/db")
    }

    fn path_of(log: u64) -> PathBuf {
        FileName::Wal(log).path(directory())
    }

    fn facts() -> ManifestFacts {
        ManifestFacts {
            number: MANIFEST,
            bytes: MANIFEST_BYTES,
            log_number: 3,
            ..ManifestFacts::default()
        }
    }

    fn new_env() -> MemEnv {
        let env = MemEnv::with_log();
        env.create_dir(directory()).unwrap();
        env.sync_dir(Path::new("/")).unwrap();
        env
    }

    fn start_of(synced_through: u64, previous_log: u64, previous_last: u64) -> WalStart {
        WalStart {
            synced_through,
            previous_log,
            previous_last_sequence: previous_last,
            first_sequence: previous_last + 1,
            manifest_number: MANIFEST,
            manifest_synced_bytes: MANIFEST_BYTES,
            database: DatabaseIdentity::default(),
        }
    }

    fn create(env: &MemEnv, log: u64, start: &WalStart) -> WalWriter {
        WalWriter::create(env, directory(), log, start, &[], 1 << 16).unwrap()
    }

    /// Writes one batch of `count` entries; the value of each is as long as `bytes`.
    fn put(wal: &mut WalWriter, synced_through: u64, sequence: u64, count: u32, bytes: usize) {
        let mut batch = WriteBatch::new();
        for i in 0..u64::from(count) {
            batch.put(format!("{:05}", sequence + i), vec![0xa5; bytes]);
        }
        wal.append(synced_through, sequence, count, [&batch.entries[..]]).unwrap();
    }

    fn recover(
        env: &dyn Env,
        directory: &Path,
        logs: &[u64],
        facts: &ManifestFacts,
        apply: Apply<'_>,
    ) -> Result<RecoveredLogs> {
        let recovered = survey(env, directory, logs, facts)?;
        replay(env, directory, &recovered.parts, apply)?;
        Ok(recovered)
    }

    /// Recovers and checks that what comes is consecutive: the keys are the sequences.
    fn recover_in(env: &dyn Env, logs: &[u64], facts: &ManifestFacts) -> Result<RecoveredLogs> {
        let mut last = 0;
        let recovered = recover(env, directory(), logs, facts, &mut |_, batch| {
            for (entry, sequence) in batch.iter().zip(batch.sequence..) {
                assert!(sequence > last);
                assert_eq!(entry.key, format!("{sequence:05}").as_bytes());
                last = sequence;
            }
            Ok(())
        })?;
        // What was durable is part of the history, also if no log has it, as after a load.
        let known = facts.flushed_through.max(facts.synced_through);
        assert_eq!(last.max(known), recovered.last_sequence);
        Ok(recovered)
    }

    /// A record of the sample history.
    #[derive(Clone, Debug)]
    struct Written {
        log: u64,
        start: u64,
        end: u64,
        synced_through: u64,
        /// First and last sequence; 0 and 0 for a start or end record.
        sequences: (u64, u64),
    }

    /// Three logs, the second of them allocated ahead, all records in them, and what the manifest
    /// says.
    fn sample(closed: bool) -> (MemEnv, Vec<Written>, ManifestFacts) {
        let env = new_env();
        let mut log3 = create(&env, 3, &start_of(0, 0, 0));
        put(&mut log3, 0, 1, 2, 40);
        log3.sync().unwrap();
        put(&mut log3, 2, 3, 1, 600);
        put(&mut log3, 2, 4, 1, 10);
        let mut log4 = create(&env, 4, &start_of(2, 3, 4));
        put(&mut log4, 2, 5, 1, 700);
        log3.sync().unwrap();
        log4.sync().unwrap();
        put(&mut log4, 5, 6, 3, 500);
        put(&mut log4, 5, 9, 1, 0);
        put(&mut log4, 5, 10, 1, 300);
        let mut log6 = create(&env, 6, &start_of(5, 4, 10));
        put(&mut log6, 5, 11, 1, 40_000);
        put(&mut log6, 5, 12, 2, 100);
        if closed {
            log4.sync().unwrap();
            log6.sync().unwrap();
            put(&mut log6, 13, 14, 1, 5);
            log6.sync().unwrap();
        }
        let close = CleanClose { log: 6, log_bytes: log6.records.bytes(), last_sequence: 14 };
        let facts = ManifestFacts { clean_close: closed.then_some(close), ..facts() };
        let mut written = Vec::new();
        for log in [3, 4, 6] {
            let mut bytes = env.read_file(&path_of(log)).unwrap();
            // A shorter zero tail makes shorter loops.
            let data = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
            bytes.truncate(data + 600);
            env.write_file(&path_of(log), &bytes);
            let mut reader = RecordReader::open(&env, &path_of(log), log).unwrap();
            while let Step::Record(record) = reader.step().unwrap() {
                let decoded = decode(record.payload).unwrap();
                let sequences = match decoded.body {
                    WalBody::Batch(batch) => (batch.sequence, batch.last_sequence()),
                    _ => (0, 0),
                };
                let (start, end) = (record.start, record.end);
                let synced_through = decoded.synced_through;
                written.push(Written { log, start, end, synced_through, sequences });
            }
        }
        (env, written, facts)
    }

    /// The expected result of recovery if only `lost` records are gone: the last sequence that
    /// comes back, or `None` for damage.
    fn expected(
        written: &[Written],
        facts: &ManifestFacts,
        lost: impl Fn(&Written) -> bool,
    ) -> Option<u64> {
        if facts.clean_close.is_some() && written.iter().any(&lost) {
            return None;
        }
        let unreadable = |w: &Written| {
            // Without its start record nothing says where a log belongs.
            lost(w) || written.iter().find(|start| start.log == w.log).is_some_and(&lost)
        };
        let mut batches = written.iter().filter(|w| w.sequences.0 > 0);
        let Some(first) = batches.clone().find(|w| unreadable(w)) else {
            return batches.next_back().map(|w| w.sequences.1);
        };
        let missing = first.sequences.0;
        let proven = written.iter().any(|w| !lost(w) && w.synced_through >= missing);
        (!proven).then_some(missing - 1)
    }

    fn check(env: &MemEnv, facts: &ManifestFacts, expected: Option<u64>, what: &str) {
        match (recover_in(env, &[3, 4, 6], facts), expected) {
            (Ok(recovered), Some(last)) => assert_eq!(recovered.last_sequence, last, "{what}"),
            (Err(error), None) => assert!(error.is_corruption(), "{what}: {error}"),
            (result, expected) => panic!("{what}: {result:?}, expected {expected:?}"),
        }
    }

    /// Every offset of a log where records are small, and some of the large record.
    fn offsets(bytes: &[u8]) -> impl Iterator<Item = usize> {
        let stride = if bytes.len() > 10_000 { 37 } else { 1 };
        (0..bytes.len()).filter(move |at| at % stride == 0 || (32_700..32_800).contains(at))
    }

    #[test]
    fn cut_logs_give_a_prefix_or_corruption() {
        for closed in [false, true] {
            let (env, written, facts) = sample(closed);
            for log in [3, 4, 6] {
                let bytes = env.read_file(&path_of(log)).unwrap();
                for cut in offsets(&bytes) {
                    env.write_file(&path_of(log), &bytes[..cut]);
                    let lost = |w: &Written| w.log == log && w.end > cut as u64;
                    check(
                        &env,
                        &facts,
                        expected(&written, &facts, lost),
                        &format!("log {log} cut at {cut}"),
                    );
                }
                env.write_file(&path_of(log), &bytes);
            }
        }
    }

    #[test]
    fn zeroed_sectors_give_a_prefix_or_corruption() {
        for closed in [false, true] {
            let (env, written, facts) = sample(closed);
            for log in [3, 4, 6] {
                let bytes = env.read_file(&path_of(log)).unwrap();
                for sector in (0..bytes.len()).step_by(SECTOR_BYTES) {
                    let end = (sector + SECTOR_BYTES).min(bytes.len());
                    let mut zeroed = bytes.clone();
                    zeroed[sector..end].fill(0);
                    env.write_file(&path_of(log), &zeroed);
                    let lost =
                        |w: &Written| w.log == log && w.start < end as u64 && w.end > sector as u64;
                    check(
                        &env,
                        &facts,
                        expected(&written, &facts, lost),
                        &format!("log {log} zero at {sector}"),
                    );
                }
                env.write_file(&path_of(log), &bytes);
            }
        }
    }

    #[test]
    fn flipped_record_bytes_are_corruption() {
        for closed in [false, true] {
            let (env, written, facts) = sample(closed);
            let last = written.iter().map(|w| w.sequences.1).max().unwrap();
            for log in [3, 4, 6] {
                let mut bytes = env.read_file(&path_of(log)).unwrap();
                let data = written.iter().filter(|w| w.log == log).map(|w| w.end).max().unwrap();
                for at in offsets(&bytes.clone()) {
                    for flip in [1 << (at % 8), 0xff] {
                        bytes[at] ^= flip;
                        env.write_file(&path_of(log), &bytes);
                        match recover_in(&env, &[3, 4, 6], &facts) {
                            Ok(found) => {
                                assert_eq!(found.last_sequence, last, "log {log} at {at}");
                                assert!(at as u64 >= data, "log {log} at {at} by {flip:#x}");
                            }
                            Err(error) => assert!(error.is_corruption(), "{error}"),
                        }
                        bytes[at] ^= flip;
                    }
                }
                env.write_file(&path_of(log), &bytes);
            }
        }
    }

    #[test]
    fn every_crash_keeps_what_was_synced() {
        let env = new_env();
        let mut log3 = create(&env, 3, &start_of(0, 0, 0));
        // What is durable once that many calls were made.
        let mut durable = vec![(env.log_len(), 0)];
        put(&mut log3, 0, 1, 2, 40);
        log3.sync().unwrap();
        durable.push((env.log_len(), 2));
        for sequence in 3..9 {
            put(&mut log3, 2, sequence, 1, 150 * sequence as usize % 1100);
        }
        log3.sync().unwrap();
        durable.push((env.log_len(), 8));
        put(&mut log3, 8, 9, 1, 900);
        let mut log4 = create(&env, 4, &start_of(8, 3, 9));
        put(&mut log4, 8, 10, 1, 40);
        put(&mut log4, 8, 11, 1, 40);
        log3.sync().unwrap();
        durable.push((env.log_len(), 9));
        log4.sync().unwrap();
        durable.push((env.log_len(), 11));
        for sequence in 12..18 {
            put(&mut log4, 11, sequence, 1, 170 * sequence as usize % 1300);
        }
        log4.sync().unwrap();
        durable.push((env.log_len(), 17));
        put(&mut log4, 17, 18, 1, 5);
        log4.sync().unwrap();
        durable.push((env.log_len(), 18));
        let mut dropped = 0;
        for upto in durable[0].0..=env.log_len() {
            let synced = durable.iter().rfind(|(calls, _)| *calls <= upto).unwrap().1;
            for model in [CrashModel::Kill, CrashModel::Journal, CrashModel::Posix] {
                for seed in 0..if model == CrashModel::Kill { 1 } else { 3 } {
                    let crashed = env.replay(upto, model, seed);
                    let exists = |log: &u64| crashed.read_file(&path_of(*log)).is_some();
                    let logs: Vec<u64> = [3, 4].into_iter().filter(exists).collect();
                    let recovered = recover_in(&crashed, &logs, &facts())
                        .unwrap_or_else(|e| panic!("{upto} {model:?} {seed}: {e}"));
                    assert!(recovered.last_sequence >= synced, "{upto} {model:?} {seed}");
                    dropped += usize::from(recovered.dropped.is_some());
                }
            }
        }
        assert!(dropped > 15, "the crashes must tear something: {dropped}");
    }

    #[test]
    fn a_closed_log_recovers_clean() {
        let (env, _, facts) = sample(true);
        let recovered = recover_in(&env, &[3, 4, 6], &facts).unwrap();
        assert_eq!(
            recovered,
            RecoveredLogs {
                last_sequence: 14,
                highest_sequence: 14,
                last_log: 6,
                clean: true,
                dropped: None,
                parts: recovered.parts.clone(),
                logs: recovered.logs.clone(),
            }
        );
        let ends = recovered.parts.iter().map(|part| (part.log, *part.sequences.end()));
        assert!(ends.eq([(3, 4), (4, 10), (6, 14)]));
        let logs = recovered.logs.iter().map(|log| (log.number, log.begins_after));
        assert!(logs.eq([(3, 0), (4, 4), (6, 10)]));
        let (env, _, facts) = sample(false);
        let recovered = recover_in(&env, &[3, 4, 6], &facts).unwrap();
        assert_eq!((recovered.clean, recovered.dropped), (false, None));
    }

    #[test]
    fn losing_durable_records_is_corruption() {
        let (env, _, facts) = sample(false);
        let knows = |synced_through| ManifestFacts { synced_through, ..facts };
        assert!(recover_in(&env, &[3, 4, 6], &knows(13)).is_ok());
        let error = recover_in(&env, &[3, 4, 6], &knows(14)).unwrap_err();
        assert!(matches!(error, Error::Corruption { .. }), "{error}");
    }

    #[test]
    fn missing_durable_sequences_are_found_exactly() {
        // An earlier recovery gave up 2 to 7; 8 is torn.
        let env = new_env();
        let mut log3 = create(&env, 3, &start_of(0, 0, 0));
        put(&mut log3, 0, 1, 1, 10);
        let mut log5 = create(&env, 5, &WalStart { first_sequence: 8, ..start_of(1, 3, 1) });
        put(&mut log5, 1, 8, 1, 10);
        put(&mut log5, 1, 9, 1, 10);
        put(&mut log5, 8, 10, 1, 600);
        let bytes = env.read_file(&path_of(5)).unwrap();
        let mut ends = Vec::new();
        let mut reader = RecordReader::open(&env, &path_of(5), 5).unwrap();
        while let Step::Record(record) = reader.step().unwrap() {
            ends.push(record.end as usize);
        }
        let knows = |synced_through| ManifestFacts { synced_through, ..facts() };
        for (kept, last) in [(1, 1), (2, 8), (3, 9), (4, 10)] {
            env.write_file(&path_of(5), &bytes[..ends[kept - 1]]);
            let next = if last == 1 { 8 } else { last + 1 };
            for known in [last, next - 1] {
                let recovered = recover_in(&env, &[3, 5], &knows(known)).unwrap();
                // No log has 2 to 7. If one of them was durable, it was the sequence of a load.
                assert_eq!(recovered.last_sequence, known, "{last} is the last in a log");
            }
            let error = recover_in(&env, &[3, 5], &knows(next)).unwrap_err();
            assert!(error.is_corruption(), "{error}");
        }
    }

    #[test]
    fn sequences_of_dropped_records_are_not_reused() {
        let (env, _, facts) = sample(false);
        let mut bytes = env.read_file(&path_of(4)).unwrap();
        bytes[1024..1536].fill(0);
        env.write_file(&path_of(4), &bytes);
        let recovered = recover_in(&env, &[3, 4, 6], &facts).unwrap();
        assert_eq!((recovered.last_sequence, recovered.highest_sequence), (5, 13));
        assert!(recovered.dropped.unwrap().to_string().contains("000004.wal at byte"));
        let known = ManifestFacts { last_sequence: 99, ..facts };
        assert_eq!(recover_in(&env, &[3, 4, 6], &known).unwrap().highest_sequence, 99);
    }

    #[test]
    fn a_missing_log_is_corruption_that_names_it() {
        let (env, _, facts) = sample(false);
        let named = |logs: &[u64], name: &str| {
            let error = recover_in(&env, logs, &facts).unwrap_err();
            assert!(matches!(&error, Error::Missing { path, .. } if path.ends_with(name)));
        };
        named(&[], "000003.wal");
        named(&[4, 6], "000003.wal");
        named(&[3, 6], "000004.wal");
        named(&[3, 5], "000005.wal");
        // The newest log is missing, of a session that was closed or one that was killed.
        let closed = sample(true).2;
        let begun = ManifestFacts { session_log: 6, ..facts };
        for facts in [closed, begun] {
            let error = recover_in(&env, &[3, 4], &facts).unwrap_err();
            assert!(matches!(&error, Error::Missing { path, .. } if path.ends_with("000006.wal")));
        }
        let long_ago = ManifestFacts { session_log: 2, ..facts };
        assert!(recover_in(&env, &[3, 4, 6], &long_ago).is_ok());
    }

    #[test]
    fn logs_record_the_manifest_length() {
        let (env, _, facts) = sample(true);
        let short = ManifestFacts { bytes: MANIFEST_BYTES - 1, ..facts };
        let error = recover_in(&env, &[3, 4, 6], &short).unwrap_err();
        assert!(
            matches!(&error, Error::Corruption { path, .. } if path.ends_with("MANIFEST-000002"))
        );
        let newer = ManifestFacts { number: MANIFEST + 5, bytes: 1, ..facts };
        assert!(recover_in(&env, &[3, 4, 6], &newer).is_ok());
        let older = ManifestFacts { number: MANIFEST - 1, ..facts };
        assert!(recover_in(&env, &[3, 4, 6], &older).unwrap_err().is_corruption());
    }

    #[test]
    fn logs_of_unfinished_openings_are_skipped() {
        let (env, _, facts) = sample(false);
        let start = WalStart {
            first_sequence: 100,
            manifest_number: MANIFEST + 1,
            manifest_synced_bytes: 1,
            ..start_of(13, 6, 13)
        };
        let mut log9 = create(&env, 9, &start);
        let recovered = recover_in(&env, &[3, 4, 6, 9], &facts).unwrap();
        assert_eq!((recovered.last_sequence, recovered.last_log), (13, 6));
        // The same where history ends before it.
        let log4 = env.read_file(&path_of(4)).unwrap();
        let mut torn = log4.clone();
        torn[1024..1536].fill(0);
        env.write_file(&path_of(4), &torn);
        assert_eq!(recover_in(&env, &[3, 4, 6, 9], &facts).unwrap().last_sequence, 5);
        env.write_file(&path_of(4), &log4);
        // Writes in it mean that its manifest was current.
        put(&mut log9, 99, 100, 1, 1);
        assert!(recover_in(&env, &[3, 4, 6, 9], &facts).unwrap_err().is_corruption());
        env.write_file(&path_of(4), &torn);
        assert!(recover_in(&env, &[3, 4, 6, 9], &facts).unwrap_err().is_corruption());
    }

    #[test]
    fn a_recovered_tail_keeps_the_next_log() {
        let env = new_env();
        let mut log3 = create(&env, 3, &start_of(0, 0, 0));
        put(&mut log3, 0, 1, 1, 10);
        put(&mut log3, 0, 2, 1, 10);
        let bytes = env.read_file(&path_of(3)).unwrap();
        env.write_file(&path_of(3), &bytes[..bytes.len() - 1]);
        // An opening saw the torn tail, gave up sequence 2 and continued from 8.
        let start = WalStart { first_sequence: 8, ..start_of(1, 3, 1) };
        let mut log5 = create(&env, 5, &start);
        let recovered = recover_in(&env, &[3, 5], &facts()).unwrap();
        assert_eq!((recovered.last_sequence, recovered.dropped), (1, None));
        put(&mut log5, 7, 8, 1, 10);
        let recovered = recover_in(&env, &[3, 5], &facts()).unwrap();
        assert_eq!((recovered.last_sequence, recovered.last_log), (8, 5));
        // Nor does a log that was dropped with that tail.
        let mut log4 = create(&env, 4, &start_of(1, 3, 2));
        put(&mut log4, 1, 3, 1, 10);
        let recovered = recover_in(&env, &[3, 4], &facts()).unwrap();
        assert_eq!((recovered.last_sequence, recovered.highest_sequence), (1, 3));
        assert!(recovered.dropped.is_some());
        let recovered = recover_in(&env, &[3, 4, 5], &facts()).unwrap();
        assert_eq!((recovered.last_sequence, recovered.dropped), (8, None));
    }

    #[test]
    fn renamed_logs_are_refused() {
        let (env, _, facts) = sample(false);
        let log3 = env.read_file(&path_of(3)).unwrap();
        env.write_file(&path_of(4), &log3);
        assert!(recover_in(&env, &[3, 4, 6], &facts).unwrap_err().is_corruption());
        // Records of another log after those of a recycled file.
        let (env, _, facts) = sample(false);
        let mut log6 = env.read_file(&path_of(6)).unwrap();
        let tail = log6.iter().rposition(|&byte| byte != 0).unwrap() + 1;
        log6.truncate(tail);
        log6.extend_from_slice(&log3[20..]);
        env.write_file(&path_of(6), &log6);
        assert!(recover_in(&env, &[3, 4, 6], &facts).unwrap_err().is_corruption());
    }

    #[test]
    fn junk_after_a_clean_close_loses_nothing() {
        let (env, _, facts) = sample(true);
        let mut log6 = env.read_file(&path_of(6)).unwrap();
        log6.extend_from_slice(&[0x5a; 3000]);
        env.write_file(&path_of(6), &log6);
        let recovered = recover_in(&env, &[3, 4, 6], &facts).unwrap();
        assert_eq!((recovered.last_sequence, recovered.clean), (14, false));
        assert!(recovered.dropped.is_some());
    }

    #[test]
    fn a_log_that_contradicts_the_tables_is_corruption() {
        let (env, _, facts) = sample(false);
        let flushed = |flushed_through, log_number| ManifestFacts {
            flushed_through,
            log_number,
            last_sequence: flushed_through,
            ..facts
        };
        assert!(recover_in(&env, &[4, 6], &flushed(4, 4)).is_ok());
        for flushed_through in [3, 5] {
            let error = recover_in(&env, &[4, 6], &flushed(flushed_through, 4)).unwrap_err();
            assert!(error.is_corruption());
        }
    }

    #[test]
    fn records_after_a_clean_close_are_corruption() {
        let (env, written, facts) = sample(true);
        let before = written.iter().rev().nth(1).unwrap();
        let (log_bytes, last_sequence) = (before.end, before.sequences.1);
        let close = CleanClose { log: 6, log_bytes, last_sequence };
        let facts = ManifestFacts { clean_close: Some(close), ..facts };
        let error = recover_in(&env, &[3, 4, 6], &facts).unwrap_err();
        assert!(error.to_string().contains("a record after the end"), "{error}");
        // So is a log that nobody had opened then.
        let mut log9 = create(&env, 9, &start_of(13, 6, 14));
        put(&mut log9, 13, 15, 1, 1);
        let closed = sample(true).2;
        let error = recover_in(&env, &[3, 4, 6, 9], &closed).unwrap_err();
        assert!(error.to_string().contains("newer than the last one"), "{error}");
        let elsewhere = CleanClose { log_bytes: 1, ..closed.clean_close.unwrap() };
        let facts = ManifestFacts { clean_close: Some(elsewhere), ..closed };
        assert!(recover_in(&env, &[3, 4, 6], &facts).unwrap_err().is_corruption());
        let other = CleanClose { last_sequence: 13, ..closed.clean_close.unwrap() };
        let facts = ManifestFacts { clean_close: Some(other), ..closed };
        assert!(recover_in(&env, &[3, 4, 6], &facts).unwrap_err().is_corruption());
    }

    #[test]
    fn a_callback_error_ends_recovery() {
        let (env, _, facts) = sample(false);
        let result = recover(&env, directory(), &[3, 4, 6], &facts, &mut |_, _| Err(Error::Closed));
        assert!(matches!(result, Err(Error::Closed)));
    }
}
