//! [`Writer`]: the queue of writes, the logs they go to, and what waits for them.

use crate::base::key::SequenceNumber;
use crate::base::sync::{AtomicU64, AtomicUsize, Mutex};
use crate::log::wal::writer::{WalFile, WalWriter};
use crate::state::live_logs::LiveLogs;
use crate::state::lock_rank::{LockRank, RankedMutex};
use crate::state::lock_watch::LockWatch;
use crate::state::recent_writes::RecentWrites;
use crate::state::retry_backoff::RetryBackoff;
use crate::state::sync_ticket::SyncTickets;
use crate::state::watchers::Watchers;
use crate::state::write_queue::WriteQueue;
use std::time::Instant;

/// Queue, logs, recent writes and tickets.
pub(crate) struct Writer {
    pub queue: WriteQueue,
    /// The logs being written.
    pub log: RankedMutex<LogState>,
    /// Which logs may be needed.
    pub live_logs: RankedMutex<LiveLogs>,
    /// Bytes of these logs but the current one.
    pub old_log_bytes: AtomicU64,
    /// No active memtable needs this log or an older one.
    pub unheld_log: AtomicU64,
    /// Bytes of all active memtables.
    pub active_bytes: AtomicUsize,
    /// Nanoseconds that writes have yet to wait, because the background work is behind.
    pub owed_nanos: AtomicU64,
    /// When writes were first slowed down, as the listener was told; `None` while they are not.
    pub slowed_since: Mutex<Option<Instant>>,
    /// The last writes, while transactions are alive.
    pub recent: RecentWrites,
    /// Whose turn it is among transactions that run again.
    pub retries: RetryBackoff,
    /// Tickets that wait for a sync, and the thread that syncs.
    pub sync_tickets: SyncTickets,
    /// When a worker compares `LOCK` again.
    pub lock_watch: LockWatch,
    /// Who is woken after a write.
    pub watchers: Watchers,
}

/// The logs that are being written; belongs to the leader of the write queue.
#[derive(Debug, Default)]
pub(crate) struct LogState {
    /// The log that is written; none before the first write.
    pub current: Option<WalWriter>,
    /// The log after that, if it was made before it is needed.
    pub ahead: Option<WalFile>,
    /// Older logs with writes that were never synced, oldest first.
    pub unsynced: Vec<WalWriter>,
    /// The last sequence of the history: the last one written.
    pub last_sequence: SequenceNumber,
    /// What the next entry gets: above `last_sequence`, and by more than one only where recovery
    /// saw numbers that are not part of the history.
    pub next_sequence: SequenceNumber,
    /// The last sequence known to be synced.
    pub synced_through: SequenceNumber,
    /// Number of the log before the current one, or of the last one that was recovered; 0 if
    /// there was none.
    pub previous_log: u64,
    /// How many times a `resume` has put everything into tables and given up all logs before.
    pub resumes: u64,
}

impl Writer {
    /// The writer of a database whose history is where `log` says. Old logs may have
    /// `log_bytes_max` before memtables are flushed for them. Up to `keep_log_bytes` of them are
    /// kept for followers, and up to the larger of both for watches.
    pub(crate) fn new(log: LogState, keep_log_bytes: u64, log_bytes_max: u64) -> Self {
        let live_logs = LiveLogs::new(keep_log_bytes, log_bytes_max);
        Writer {
            queue: Default::default(),
            log: RankedMutex::new(LockRank::Log, log),
            live_logs: RankedMutex::new(LockRank::LiveLogs, live_logs),
            old_log_bytes: AtomicU64::new(0),
            unheld_log: AtomicU64::new(0),
            active_bytes: AtomicUsize::new(0),
            owed_nanos: AtomicU64::new(0),
            slowed_since: Mutex::default(),
            recent: Default::default(),
            retries: Default::default(),
            sync_tickets: Default::default(),
            lock_watch: Default::default(),
            watchers: Default::default(),
        }
    }
}
