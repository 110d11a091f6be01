//! Follows the logs while another process writes them.
//!
//! A [`LogTail`] keeps its place: the log, the end of the last record that it read, and the next
//! sequence. Each [`LogTail::read`] hands out the batches that were appended since, over as many
//! logs as there are, and reads only the appended bytes. It holds the log that it reads open,
//! and opens all later ones before it reads, so it can finish logs that the writer removes. The
//! tail of a watch only reads their starts: their files stay, and there may be thousands of them.
//!
//! Where a log ends is decided as in `recover`, except that a writer may be at work:
//!
//! - The start of a later log says with which sequence the logs before it end. Records after that
//!   sequence are not part of the history: a recovery dropped them, or the writer did after a
//!   failed write. A log is complete when that sequence is reached.
//! - A place without the next record is the writer at work as long as three things hold. No valid
//!   record comes after it in its log. No later log follows a sequence that is missing. And neither
//!   the manifest nor a record says that a missing sequence was durable.
//! - Otherwise the place is read once more, because the reader may have been there before the
//!   writer and after it a moment later. Then it is damage.
//!
//! A log that is needed and gone is not damage: the writer flushed and removed it. The caller reads
//! the manifest again and begins a new tail.

use crate::base::error::Result;
use crate::base::key::SequenceNumber;
use crate::base::sync::Arc;
use crate::env::api::Env;
use crate::log::record::format::{PAGE_BYTES, Undecodable};
use crate::log::wal::consistency::{ConsistencyCheck, ManifestFacts};
use crate::log::wal::cursor::{LogCursor, LogEntry, LogFile, LogItem, missing_log};
use crate::log::wal::format::{WalBody, WalStart};
use crate::log::wal::replay::Apply;
use std::collections::BTreeMap;
use std::path::Path;

/// How a reading of the logs ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TailEnd {
    /// Everything that is there was handed out. The writer may be at work after it.
    UpToDate,
    /// Log `log` is gone, or it was written under a newer manifest: read `CURRENT`, the manifest
    /// and the listing again, and begin a new tail.
    StartOver {
        /// The number of the log.
        log: u64,
    },
    /// The history continues after `to`, which is before what was handed out: the writer dropped
    /// the rest.
    Rewound {
        /// The last sequence that is still part of the history.
        to: SequenceNumber,
    },
}

/// A log whose start record was read.
#[derive(Debug)]
struct OpenLog {
    cursor: LogCursor,
    start: WalStart,
    /// The end of the start record, or of the last record that was handed out.
    end: u64,
    /// The bulk loads whose tables were there when it was begun: how many tables each of them had.
    loads: BTreeMap<SequenceNumber, usize>,
}

/// A log after the one that is read.
#[derive(Debug)]
enum LaterLog {
    Open(Box<OpenLog>),
    /// Its start and its bulk loads. The file is opened again when it is its turn.
    Known(WalStart, BTreeMap<SequenceNumber, usize>),
}

impl LaterLog {
    fn start(&self) -> &WalStart {
        match self {
            LaterLog::Open(log) => &log.start,
            LaterLog::Known(start, _) => start,
        }
    }

    fn loads(&self) -> &BTreeMap<SequenceNumber, usize> {
        match self {
            LaterLog::Open(log) => &log.loads,
            LaterLog::Known(_, loads) => loads,
        }
    }
}

/// The state of the beginning of a log.
enum Beginning {
    /// The file does not exist, or has writes under a newer manifest than the one that was read.
    StartOver,
    /// No start record yet, or not any more; or an opening that has not finished, or never did.
    None,
    Start(Box<OpenLog>),
}

/// About the memory of an entry that was handed out, besides its key and value.
const ENTRY_BYTES: usize = 128;

/// How far a reading goes.
#[derive(Debug)]
pub(crate) struct Reach {
    /// No batch that ends after this sequence is handed out.
    pub through: SequenceNumber,
    /// It stops after the batch with which that many bytes of entries were handed out,
    /// [`ENTRY_BYTES`] of each included.
    pub bytes: usize,
}

impl Reach {
    /// Everything that is there.
    pub(crate) const ALL: Reach = Reach { through: SequenceNumber::MAX, bytes: usize::MAX };
}

/// Why a reading of batches stopped.
enum Stop {
    /// The sequence that a later log follows is reached.
    EndOfLog,
    /// All requested records were handed out.
    Reached,
    /// There is no next batch at this offset.
    NoBatch { offset: u64, what: String, followed: bool },
}

/// A place in the logs, from where on they are read.
#[derive(Debug)]
pub(crate) struct LogTail {
    env: Arc<dyn Env>,
    directory: Arc<Path>,
    /// Logs before this one are not read.
    first_log: u64,
    /// The log that it reads.
    current: Option<Box<OpenLog>>,
    /// The last sequence that was handed out, or that it began after.
    pub last: SequenceNumber,
    /// The next sequence; above `last + 1` only if the start of a log skips some.
    pub next: SequenceNumber,
    /// The logs after that, as far as they have a start record.
    ahead: BTreeMap<u64, LaterLog>,
    /// The files of these logs are open.
    holds_later: bool,
    /// The highest sequence that the manifest or a record says is durable.
    pub synced_through: SequenceNumber,
    /// The newest log whose start was read, and that start.
    newest: (u64, WalStart),
}

impl LogTail {
    /// A tail that begins at log `first_log`, after sequence `after`.
    pub(crate) fn new(
        env: Arc<dyn Env>,
        directory: &Path,
        first_log: u64,
        after: SequenceNumber,
    ) -> Self {
        LogTail {
            env,
            directory: directory.into(),
            first_log,
            current: None,
            last: after,
            next: after + 1,
            ahead: BTreeMap::new(),
            holds_later: true,
            synced_through: 0,
            newest: (0, WalStart::default()),
        }
    }

    /// The same, but it holds only the log open that it reads. A later one that is gone when it is
    /// its turn ends the reading with `StartOver`.
    pub(crate) fn holding_one_log(self) -> Self {
        LogTail { holds_later: false, ..self }
    }

    /// The number of the log that it reads; 0 before the first.
    pub(crate) fn log(&self) -> u64 {
        self.current.as_ref().map_or(0, |log| log.cursor.file.number)
    }

    /// The log that it reads, and the end of the last record that was handed out; `None` before the
    /// first log. A tail that is placed there continues this one.
    pub(crate) fn place(&self) -> Option<(u64, u64)> {
        self.current.as_ref().map(|log| (log.cursor.file.number, log.end))
    }

    /// It reads no log before this one.
    pub(crate) fn oldest_log(&self) -> u64 {
        self.first_log.max(self.log())
    }

    /// The start of the newest log: a manifest that is shorter than it says was read too early, or
    /// it is damaged.
    pub(crate) fn newest_start(&self) -> &WalStart {
        &self.newest.1
    }

    /// Hands out the batches that were appended since the last reading, in order and not beyond
    /// `reach`. `logs` are the numbers of all logs, sorted; they were listed after the manifest of
    /// `facts` was read. An error or another end than `UpToDate` leaves the tail after the last
    /// batch that it handed out.
    ///
    /// # Errors
    /// Those of `apply`; `Io`; `Corruption` for damage, as described above.
    pub(crate) fn read(
        &mut self,
        logs: &[u64],
        facts: &ManifestFacts,
        mut reach: Reach,
        apply: Apply<'_>,
    ) -> Result<TailEnd> {
        // A start may name more bytes of the manifest than were read: it has grown since then.
        let facts = ManifestFacts { bytes: u64::MAX, ..*facts };
        let directory = Arc::clone(&self.directory);
        let mut check = ConsistencyCheck::new(&directory, &facts);
        if let Some((log, _)) = facts.missing_from(logs).find(|(log, _)| *log > self.log()) {
            return Ok(TailEnd::StartOver { log });
        }
        if let Some(log) = self.open_ahead(logs, &mut check)? {
            return Ok(TailEnd::StartOver { log });
        }
        self.reload()?;
        let mut suspect = None;
        loop {
            let next = self.next_log();
            if let Some((number, start)) = next {
                let begins_after = start.previous_last_sequence;
                if self.follows(&start) {
                    if !self.enter(number, &mut check)? {
                        return Ok(TailEnd::StartOver { log: number });
                    }
                    continue;
                }
                if begins_after < self.last && self.current.is_some() {
                    return Ok(TailEnd::Rewound { to: begins_after });
                }
            }
            let ends_with = next.map_or(SequenceNumber::MAX, |(_, s)| s.previous_last_sequence);
            let stop = self.read_batches(ends_with, &mut reach, &mut check, apply);
            self.synced_through = self.synced_through.max(check.durable);
            let (offset, what, followed) = match stop? {
                Stop::EndOfLog => continue,
                Stop::Reached => return Ok(TailEnd::UpToDate),
                Stop::NoBatch { offset, what, followed } => (offset, what, followed),
            };
            if let Some(log) = next.and_then(|(_, start)| self.gone_before(&start, logs)) {
                return Ok(TailEnd::StartOver { log });
            }
            let closed = facts.clean_close.map_or(0, |close| close.last_sequence);
            let durable = self.synced_through.max(closed);
            // The sequence of an ingest is in tables, and the log after it is about to begin.
            let is_ingest = self.next == facts.ingested_through;
            let missing = self.next + u64::from(is_ingest);
            let why = match next {
                Some((number, _)) => format!("log {number} follows sequence {ends_with}"),
                None if durable >= missing => format!("sequence {durable} was durable"),
                None if followed => "valid records follow".to_string(),
                None => return Ok(TailEnd::UpToDate),
            };
            let position = (self.log(), offset);
            if suspect == Some(position) {
                let what =
                    format!("{what}; the batches end with sequence {}, but {why}", self.last);
                return Err(self.culprit(next, logs).corruption(offset, what));
            }
            suspect = Some(position);
            if let Some(log) = self.open_ahead(logs, &mut check)? {
                return Ok(TailEnd::StartOver { log });
            }
            self.reload()?;
        }
    }

    /// The next log that is part of the history. A log that follows a later sequence than a log
    /// after it is not: a recovery dropped it.
    fn next_log(&self) -> Option<(u64, WalStart)> {
        let (mut next, mut follows) = (None, SequenceNumber::MAX);
        for (number, log) in self.ahead.iter().rev() {
            let start = *log.start();
            if start.previous_last_sequence <= follows {
                (next, follows) = (Some((*number, start)), start.previous_last_sequence);
            }
        }
        next
    }

    /// True if a log with this start continues where the tail is.
    fn follows(&self, start: &WalStart) -> bool {
        let (begins_after, first) = (start.previous_last_sequence, start.first_sequence);
        match self.current {
            // The tables may end with a sequence that the start skips.
            None => begins_after <= self.last && self.last < first,
            Some(_) => (self.last..self.next).contains(&begins_after),
        }
    }

    /// The log before `start`, if it is needed and gone.
    fn gone_before(&self, start: &WalStart, logs: &[u64]) -> Option<u64> {
        let previous = start.previous_log;
        let is_gone = previous > self.log() && previous >= self.first_log;
        (is_gone && !logs.contains(&previous)).then_some(previous)
    }

    /// The log that lacks the next batch: the one before `next`, if it has no start.
    fn culprit(&self, next: Option<(u64, WalStart)>, logs: &[u64]) -> LogFile {
        let previous = next.map(|(_, start)| start.previous_log);
        let unread = previous.filter(|log| *log > self.log() && !self.ahead.contains_key(log));
        let first = || logs.iter().copied().find(|log| *log >= self.first_log);
        let own = || Some(self.log()).filter(|log| *log != 0).or_else(first);
        LogFile::new(&self.directory, unread.or_else(own).unwrap_or(self.first_log))
    }

    /// Goes on to this log. False if it is not there any more.
    fn enter(&mut self, number: u64, check: &mut ConsistencyCheck<'_>) -> Result<bool> {
        let mut log = match self.ahead.remove(&number) {
            Some(LaterLog::Open(log)) => log,
            Some(LaterLog::Known(known, _)) => match open_log(&*self.env, number, check)? {
                Beginning::Start(log) if log.start == known => log,
                _ => return Ok(false),
            },
            None => return Ok(false),
        };
        log.cursor.reader.reload(log.end)?;
        self.ahead.retain(|later, _| *later > number);
        self.next = log.start.first_sequence;
        // After a bulk load this is a sequence that no log has.
        self.last = self.last.max(log.start.previous_last_sequence);
        self.current = Some(log);
        Ok(true)
    }

    fn add_later(&mut self, number: u64, log: Box<OpenLog>) {
        let later = match self.holds_later {
            true => LaterLog::Open(log),
            false => LaterLog::Known(log.start, log.loads),
        };
        self.ahead.insert(number, later);
    }

    /// Places a new tail where the batch with `sequence` is to be found, or at the first log from
    /// which on all logs are there. Opens these logs and none before, and returns their numbers.
    /// `logs` are all logs, sorted; of those that cannot be used, none is an error.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn place_before(
        &mut self,
        sequence: SequenceNumber,
        logs: &[u64],
        facts: &ManifestFacts,
    ) -> Result<Vec<u64>> {
        let directory = Arc::clone(&self.directory);
        let mut check = ConsistencyCheck::new(&directory, facts);
        let mut later: Option<WalStart> = None;
        for &number in logs.iter().rev() {
            let log = match open_log(&*self.env, number, &mut check) {
                Ok(Beginning::Start(log)) => log,
                Ok(_) => continue,
                Err(error) if error.is_corruption() => continue,
                Err(error) => return Err(error),
            };
            let start = log.start;
            let follows = later.map_or(SequenceNumber::MAX, |later| later.previous_last_sequence);
            // As in `next_log`: a recovery dropped it.
            if start.previous_last_sequence > follows {
                continue;
            }
            if later.is_some_and(|later| later.previous_log > number) {
                break;
            }
            self.add_later(number, log);
            self.first_log = number;
            (self.last, self.next) = (start.previous_last_sequence, start.first_sequence);
            later = Some(start);
            if self.last < sequence {
                break;
            }
        }
        Ok(self.ahead.keys().copied().collect())
    }

    /// Opens `logs` as far as they are later ones: see [`LogTail::loads`].
    ///
    /// # Errors
    /// `Io`; `Corruption`.
    pub(crate) fn look_ahead(&mut self, logs: &[u64], facts: &ManifestFacts) -> Result<()> {
        let directory = Arc::clone(&self.directory);
        let mut check = ConsistencyCheck::new(&directory, facts);
        // Of one that must be read again, `read` tells.
        self.open_ahead(logs, &mut check).map(drop)
    }

    /// The sequences from `first` on that this log and later ones say are those of bulk loads, and
    /// how many tables each load made.
    pub(crate) fn loads(&self, first: SequenceNumber) -> BTreeMap<SequenceNumber, usize> {
        // The first log that names a load names all of its tables; later ones those that are left.
        let current = self.current.iter().map(|log| &log.loads);
        let known = current.chain(self.ahead.values().map(LaterLog::loads)).rev();
        known
            .flat_map(|loads| loads.range(first..))
            .map(|(load, tables)| (*load, *tables))
            .collect()
    }

    /// Places a new tail at byte `end` of its first log, where the last sequence before it ends.
    ///
    /// # Errors
    /// `Io`; `Corruption` of the start of the log; `Missing`.
    pub(crate) fn place_at(&mut self, end: u64, facts: &ManifestFacts) -> Result<()> {
        let directory = Arc::clone(&self.directory);
        let mut check = ConsistencyCheck::new(&directory, facts);
        match open_log(&*self.env, self.first_log, &mut check)? {
            Beginning::Start(mut log) => {
                log.end = end;
                self.next = self.next.max(log.start.first_sequence);
                self.current = Some(log);
                Ok(())
            }
            _ => Err(missing_log(&directory, self.first_log, "it is being written")),
        }
    }

    /// The first sequence of the log after the one that it reads.
    pub(crate) fn next_log_begins_with(&self) -> Option<SequenceNumber> {
        self.next_log().map(|(_, start)| start.first_sequence)
    }

    /// Continues after the last record that was handed out, with what the file holds now.
    fn reload(&mut self) -> Result<()> {
        let Some(OpenLog { cursor, end, .. }) = self.current.as_deref_mut() else { return Ok(()) };
        cursor.reader.reload(*end)?;
        match cursor.reader.file_bytes() {
            bytes if bytes < *end => {
                let what = format!("the log ends here, but {end} bytes of it were read");
                Err(cursor.file.corruption(bytes, what))
            }
            _ => Ok(()),
        }
    }

    /// Hands out the batches of the current log within `reach`. Those of the history end with
    /// `ends_with`.
    fn read_batches(
        &mut self,
        ends_with: SequenceNumber,
        reach: &mut Reach,
        check: &mut ConsistencyCheck<'_>,
        apply: Apply<'_>,
    ) -> Result<Stop> {
        let Some(log) = &mut self.current else {
            let what = "there is no log that begins here".to_string();
            return Ok(Stop::NoBatch { offset: 0, what, followed: false });
        };
        let no_batch = |offset, what, followed| Stop::NoBatch { offset, what, followed };
        loop {
            if self.last == ends_with {
                return Ok(Stop::EndOfLog);
            }
            if self.next > reach.through || reach.bytes == 0 {
                return Ok(Stop::Reached);
            }
            let entry = check.next(&mut log.cursor)?.due(Some(self.next));
            let LogEntry { file, start, end, item, .. } = entry;
            let batch = match item {
                LogItem::Record(WalBody::Batch(batch)) => batch,
                LogItem::End => return Ok(no_batch(log.end, "the log ends here".into(), false)),
                LogItem::Bad { what, .. } => {
                    return Ok(no_batch(start, what, log.cursor.is_followed()?));
                }
                LogItem::Damaged(Undecodable::Damaged(what) | Undecodable::Unknown(what)) => {
                    return Ok(no_batch(start, what, true));
                }
                LogItem::Record(_) | LogItem::StartOfNewerManifest => {
                    log.end = end;
                    continue;
                }
            };
            let last = batch.last_sequence();
            if last > ends_with {
                let what = "a batch that a later log does not follow".into();
                return Ok(no_batch(start, what, true));
            }
            if last > reach.through {
                return Ok(Stop::Reached);
            }
            apply(file.number, &batch)?;
            let bytes = batch.entries.len() + batch.count as usize * ENTRY_BYTES;
            reach.bytes = reach.bytes.saturating_sub(bytes);
            (log.end, self.last, self.next) = (end, last, last + 1);
        }
    }

    /// Opens the logs after the current one that are not open yet. Returns one that the caller must
    /// start over for.
    fn open_ahead(
        &mut self,
        logs: &[u64],
        check: &mut ConsistencyCheck<'_>,
    ) -> Result<Option<u64>> {
        for &number in logs {
            let is_later = number > self.log() && number >= self.first_log;
            if !is_later || self.ahead.contains_key(&number) {
                continue;
            }
            match open_log(&*self.env, number, check)? {
                Beginning::StartOver => return Ok(Some(number)),
                Beginning::None => {}
                Beginning::Start(log) => {
                    if number >= self.newest.0 {
                        self.newest = (number, log.start);
                    }
                    self.add_later(number, log);
                }
            }
        }
        Ok(None)
    }
}

/// Opens a log and reads its start, twice if it is not valid the first time.
fn open_log(env: &dyn Env, number: u64, check: &mut ConsistencyCheck<'_>) -> Result<Beginning> {
    match try_open_log(env, number, check) {
        Err(error) if error.is_corruption() => try_open_log(env, number, check),
        result => result,
    }
}

fn try_open_log(env: &dyn Env, number: u64, check: &mut ConsistencyCheck<'_>) -> Result<Beginning> {
    // Header and start record are in the first page.
    let Some(mut log) = LogCursor::open(env, check.directory, number, PAGE_BYTES as u64)? else {
        return Ok(Beginning::StartOver);
    };
    let LogEntry { file, start: at, end, item, .. } = check.next(&mut log)?.due(None);
    match item {
        LogItem::Record(WalBody::Start(start)) => {
            // A record of loads that is not all there yet, or does not fit into this page, is left
            // out: then their sequences are in no log. What it says of durable writes counts when
            // it is handed out.
            let mut ahead = ConsistencyCheck::new(check.directory, check.facts);
            let mut loads = BTreeMap::new();
            if let LogItem::Record(WalBody::Loads(tables)) = ahead.next(&mut log)?.item {
                for (_, sequence) in tables.tables() {
                    *loads.entry(sequence).or_default() += 1;
                }
            }
            Ok(Beginning::Start(Box::new(OpenLog { cursor: log, start, end, loads })))
        }
        LogItem::StartOfNewerManifest => match log.expect_no_writes() {
            Ok(()) => Ok(Beginning::None),
            Err(error) if error.is_corruption() => Ok(Beginning::StartOver),
            Err(error) => Err(error),
        },
        LogItem::Damaged(bad) => Err(bad.into_error(&file.path, at)),
        LogItem::Bad { what, .. } => {
            let damage = file.corruption(at, what);
            // The writer at work, unless it has gone on already. The header is written first.
            if at > 0 && log.is_followed()? { Err(damage) } else { Ok(Beginning::None) }
        }
        LogItem::Record(_) | LogItem::End => Ok(Beginning::None),
    }
}
