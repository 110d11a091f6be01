//! The logs that unflushed memtables may need, oldest first: which one is the first, and how many
//! bytes all of them take.
//!
//! A log is needed as long as a memtable began in it or in an older one. A keyspace that rarely
//! writes would keep old logs alive; the leader of the write queue flushes its memtable when all
//! logs together are too long (`state/session.rs`).

use crate::log::wal::recover::LiveLog;
use crate::tree::edit::FirstLog;
use std::collections::VecDeque;

/// The logs that may be needed, oldest first. The last one is written, or was written last.
#[derive(Debug, Default)]
pub(crate) struct LiveLogs(VecDeque<LiveLog>);

impl LiveLogs {
    /// Adds a log that was begun. The one before has `previous_bytes` by now.
    pub(crate) fn push(&mut self, log: LiveLog, previous_bytes: Option<u64>) {
        if let (Some(last), Some(bytes)) = (self.0.back_mut(), previous_bytes) {
            last.bytes = bytes;
        }
        debug_assert!(self.0.back().is_none_or(|last| last.number < log.number));
        self.0.push_back(log);
    }

    /// The number of the log that is written; 0 without one.
    pub(crate) fn current(&self) -> u64 {
        self.0.back().map_or(0, |log| log.number)
    }

    /// The numbers of all logs, oldest first.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|log| log.number)
    }

    /// The oldest log.
    pub(crate) fn oldest(&self) -> Option<LiveLog> {
        self.0.front().copied()
    }

    /// Bytes of all logs but the current one.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|log| log.bytes).sum()
    }

    /// The first log that is needed if the oldest unflushed write is in log `number`; logs that are
    /// not listed were never needed by a memtable.
    pub(crate) fn first_needed(&self, number: u64) -> Option<FirstLog> {
        let log = self.0.iter().find(|log| log.number >= number)?;
        Some(FirstLog { number: log.number, flushed_through: log.begins_after })
    }

    /// Takes out the logs before `number`, which nothing needs any more.
    pub(crate) fn take_before(&mut self, number: u64) -> Vec<u64> {
        let count = self.0.iter().take_while(|log| log.number < number).count();
        self.0.drain(..count).map(|log| log.number).collect()
    }
}
