//! The logs that unflushed memtables may need, oldest first: which one is the first, and how many
//! bytes all of them take.
//!
//! A log is needed as long as a memtable began in it or in an older one. A keyspace that rarely
//! writes would keep old logs alive; its memtable is flushed when all logs together are too long
//! (`state/session.rs`). Flushes and bulk loads begin logs, too, so there may be many short ones:
//! each counts as a [`LOGS_MAX`]th of what all may have, at least.
//!
//! Logs that no memtable needs may be kept for followers: the newest ones, up to
//! [`Options::keep_log_bytes`](crate::Options::keep_log_bytes). For watches of this process those
//! are kept that they have not read, up to a bound of their own. Kept logs are below the first log
//! that the manifest needs, so no opening reads them.

use crate::log::wal::recover::LiveLog;
use crate::tree::edit::FirstLog;
use std::collections::{BTreeMap, VecDeque};

/// About how many old logs are too long, however short they are. Each takes a file, and openings
/// and followers open all of them.
const LOGS_MAX: u64 = 64;

/// The logs that may be needed, and those that are kept although they are not.
#[derive(Debug, Default)]
pub(crate) struct LiveLogs {
    /// Oldest first. The last one is written, or was written last.
    live: VecDeque<LiveLog>,
    /// The number and bytes of each kept log, oldest first; all are older than the first live one.
    kept: VecDeque<(u64, u64)>,
    /// How many bytes of logs are kept.
    keep_bytes_max: u64,
    /// How many bytes of logs are kept while a watch has not read them.
    watched_bytes_max: u64,
    /// What each old log counts as, at least.
    log_bytes_min: u64,
    /// The log that each watch reads, by the number of the watch.
    watched: BTreeMap<u64, u64>,
    /// How many watches read each of these logs.
    watches: BTreeMap<u64, usize>,
}

impl LiveLogs {
    /// No logs. Those that memtables need may have `bytes_max`. Keeps `keep_bytes_max` bytes of
    /// those that are not needed any more, and as many as the larger of both of those that a watch
    /// has not read.
    pub(crate) fn new(keep_bytes_max: u64, bytes_max: u64) -> Self {
        let watched_bytes_max = bytes_max.max(keep_bytes_max);
        let log_bytes_min = bytes_max / LOGS_MAX;
        LiveLogs { keep_bytes_max, watched_bytes_max, log_bytes_min, ..LiveLogs::default() }
    }

    /// Adds a log that was begun. The one before has `previous_bytes` by now.
    pub(crate) fn push(&mut self, log: LiveLog, previous_bytes: Option<u64>) {
        if let (Some(last), Some(bytes)) = (self.live.back_mut(), previous_bytes) {
            last.bytes = bytes;
        }
        debug_assert!(self.live.back().is_none_or(|last| last.number < log.number));
        self.live.push_back(log);
    }

    /// Takes out the log of a session that did not begin: its file was removed.
    pub(crate) fn forget(&mut self, number: u64) {
        self.live.retain(|log| log.number != number);
    }

    /// The number of the log that is written; 0 without one.
    pub(crate) fn current(&self) -> u64 {
        self.live.back().map_or(0, |log| log.number)
    }

    /// The numbers of all logs, oldest first.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.live.iter().map(|log| log.number)
    }

    /// As [`LiveLogs::numbers`], with those that are kept.
    pub(crate) fn all(&self) -> impl Iterator<Item = u64> {
        self.kept.iter().map(|(number, _)| *number).chain(self.numbers())
    }

    pub(crate) fn oldest(&self) -> Option<LiveLog> {
        self.live.front().copied()
    }

    /// Bytes of all logs but the current one, which has none here. Short ones count as more.
    pub(crate) fn bytes(&self) -> u64 {
        let old = self.live.iter().filter(|log| log.bytes > 0);
        old.map(|log| log.bytes.max(self.log_bytes_min)).sum()
    }

    /// The first log that is needed if the oldest unflushed write is in log `number`; logs that are
    /// not listed were never needed by a memtable.
    pub(crate) fn first_needed(&self, number: u64) -> Option<FirstLog> {
        let log = self.live.iter().find(|log| log.number >= number)?;
        Some(FirstLog { number: log.number, flushed_through: log.begins_after })
    }

    /// Takes out the logs before `number`, which nothing needs any more, and returns those that are
    /// to be removed: the ones beyond what is kept.
    pub(crate) fn take_before(&mut self, number: u64) -> Vec<u64> {
        let count = self.live.iter().take_while(|log| log.number < number).count();
        self.kept.extend(self.live.drain(..count).map(|log| (log.number, log.bytes)));
        self.drop_oldest()
    }

    /// Keeps `logs` of earlier sessions, given as number and bytes, oldest first. Returns those
    /// that are to be removed.
    pub(crate) fn keep_older(&mut self, mut logs: Vec<(u64, u64)>) -> Vec<u64> {
        // One of a session that could not begin may be among or above those that are kept.
        let first = self.kept.front().map_or(u64::MAX, |(number, _)| *number);
        logs.retain(|(number, _)| *number < first);
        let newer = std::mem::replace(&mut self.kept, logs.into());
        debug_assert!(self.kept.back() < newer.front() || newer.is_empty());
        self.kept.extend(newer);
        self.drop_oldest()
    }

    /// Watch `watch` reads log `log`, and then later ones. Returns the logs that are to be removed.
    pub(crate) fn watch(&mut self, watch: u64, log: u64) -> Vec<u64> {
        let before = self.watched.insert(watch, log);
        *self.watches.entry(log).or_default() += 1;
        self.leave(before);
        self.drop_oldest()
    }

    /// Watch `watch` has ended. Returns the logs that are to be removed.
    pub(crate) fn unwatch(&mut self, watch: u64) -> Vec<u64> {
        let before = self.watched.remove(&watch);
        self.leave(before);
        self.drop_oldest()
    }

    /// A watch has left this log.
    fn leave(&mut self, log: Option<u64>) {
        if let Some(log) = log
            && let Some(watches) = self.watches.get_mut(&log)
        {
            *watches -= 1;
            if *watches == 0 {
                self.watches.remove(&log);
            }
        }
    }

    /// True if no log is kept.
    pub(crate) fn keeps_nothing(&self) -> bool {
        self.keep_bytes_max == 0 && self.watched.is_empty()
    }

    /// True if the log is kept although nothing needs it.
    pub(crate) fn is_kept(&self, number: u64) -> bool {
        self.kept.iter().any(|(kept, _)| *kept == number)
    }

    /// Followers and watches read the newest logs without a gap, so the oldest go first.
    fn drop_oldest(&mut self) -> Vec<u64> {
        let first_watched = self.watches.first_key_value().map_or(u64::MAX, |(log, _)| *log);
        let mut bytes: u64 = self.kept.iter().map(|(_, bytes)| bytes).sum();
        let mut dropped = Vec::new();
        while let Some(&(number, length)) = self.kept.front() {
            let is_watched = number >= first_watched;
            let bytes_max = if is_watched { self.watched_bytes_max } else { self.keep_bytes_max };
            if bytes <= bytes_max && bytes_max > 0 {
                break;
            }
            self.kept.pop_front();
            bytes -= length;
            dropped.push(number);
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs_of(bytes: &[u64], keep_bytes_max: u64) -> LiveLogs {
        let mut logs = LiveLogs::new(keep_bytes_max, 0);
        for (index, bytes) in bytes.iter().enumerate() {
            let number = index as u64 + 1;
            logs.push(LiveLog { number, begins_after: 0, bytes: *bytes }, None);
        }
        logs
    }

    #[test]
    fn nothing_is_kept_by_default() {
        let mut logs = logs_of(&[10, 0, 10, 10], 0);
        assert_eq!(logs.take_before(3), [1, 2]);
        assert!(!logs.is_kept(2));
        assert_eq!(logs.numbers().collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn the_newest_logs_are_kept() {
        let mut logs = logs_of(&[10, 20, 30, 40], 55);
        assert!(logs.take_before(2).is_empty());
        assert!(logs.take_before(3).is_empty());
        assert_eq!(logs.take_before(4), [1], "60 bytes are too many");
        assert_eq!(logs.bytes(), 40, "kept logs hold nothing back");
        assert!(logs.is_kept(2) && logs.is_kept(3) && !logs.is_kept(4));
        // One that is too long goes, and so do all older ones.
        logs.push(LiveLog { number: 5, begins_after: 0, bytes: 0 }, Some(56));
        assert_eq!(logs.take_before(5), [2, 3, 4]);
    }

    #[test]
    fn logs_of_earlier_sessions_are_kept() {
        let mut logs = LiveLogs::new(100, 0);
        logs.push(LiveLog { number: 9, begins_after: 0, bytes: 40 }, None);
        assert_eq!(logs.keep_older(vec![(3, 50), (5, 30), (8, 60)]), [3]);
        logs.push(LiveLog { number: 10, begins_after: 0, bytes: 0 }, None);
        assert_eq!(logs.take_before(10), [5]);
        assert!(logs.is_kept(8) && logs.is_kept(9));
    }

    #[test]
    fn an_abandoned_log_among_older_ones_is_not_kept() {
        let mut logs = LiveLogs::new(100, 0);
        logs.push(LiveLog { number: 5, begins_after: 0, bytes: 40 }, None);
        logs.push(LiveLog { number: 9, begins_after: 0, bytes: 0 }, None);
        assert_eq!(logs.take_before(9), [0; 0]);
        assert_eq!(logs.keep_older(vec![(3, 50), (7, 10)]), [0; 0]);
        assert!(logs.is_kept(3) && logs.is_kept(5) && !logs.is_kept(7));
    }

    #[test]
    fn the_oldest_watched_log_is_kept_whoever_reads_it() {
        let mut logs = LiveLogs::new(0, 1 << 30);
        (1..=9).for_each(|number| {
            logs.push(LiveLog { number, begins_after: 0, bytes: 10 }, Some(10));
        });
        for (watch, log) in [(1, 3), (2, 3), (3, 5)] {
            assert_eq!(logs.watch(watch, log), [0; 0]);
        }
        assert_eq!(logs.take_before(9), [1, 2]);
        assert_eq!(logs.watch(1, 6), [0; 0], "the second watch reads it, too");
        assert_eq!(logs.watch(2, 6), [3, 4]);
        assert_eq!(logs.unwatch(3), [5]);
        assert_eq!(logs.unwatch(3), [0; 0]);
        assert_eq!(logs.watch(1, u64::MAX), [0; 0]);
        assert_eq!(logs.unwatch(2), [6, 7, 8]);
        assert_eq!(logs.unwatch(1), [0; 0]);
        assert!(logs.keeps_nothing() && logs.watches.is_empty());
    }

    /// Each call looked at all watches.
    #[test]
    fn a_watch_costs_the_same_beside_many() {
        let time = |count: u64| {
            let mut logs = LiveLogs::new(0, 1 << 30);
            let started = std::time::Instant::now();
            (0..count).for_each(|watch| drop(logs.watch(watch, 1)));
            (0..count).for_each(|watch| drop(logs.watch(watch, 2)));
            (0..count).for_each(|watch| drop(logs.unwatch(watch)));
            started.elapsed()
        };
        let few = (0..9).map(|_| time(500)).min().unwrap();
        let many = (0..9).map(|_| time(8_000)).min().unwrap();
        // 16 times as many; the square of that is 256.
        assert!(many < 100 * few, "{few:?} and {many:?}");
    }
}
