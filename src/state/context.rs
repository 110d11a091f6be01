//! [`Context`]: what an open database is, and what all its parts use. It takes no lock of the
//! engine.

use crate::base::error::{Error, Result};
use crate::base::events::delivery::Events;
use crate::base::process::Process;
use crate::base::stats::counters::{Counters, Timer};
use crate::base::sync::{Arc, AtomicBool, Mutex, Ordering};
use crate::env::api::Env;
use crate::env::directory_lock::DirectoryLock;
use crate::env::gate::EnvGate;
use crate::log::recovery::RecoveryReport;
use crate::log::wal::format::DatabaseIdentity;
use crate::options::database::Options;
use crate::table::index::BlockCache;
use std::path::PathBuf;
use std::sync::Weak;

/// Options, environment, directory, cache, events, counters and identity of an open database.
pub(crate) struct Context {
    /// How the database was opened.
    pub options: Options,
    /// Where its files are.
    pub directory: PathBuf,
    pub env: Arc<dyn Env>,
    /// Shut by `close_now`: every call of `env` passes it.
    pub gate: Arc<EnvGate>,
    /// The directory's lock, for `close_now`. The views have the shares of it.
    pub lock: Weak<DirectoryLock>,
    /// Blocks, filters, indexes.
    pub cache: Arc<BlockCache>,
    pub counters: Arc<Counters>,
    /// When counting began, seconds since 1970.
    pub counting_since: u64,
    /// Delivers events to the user's listener.
    pub events: Events,
    /// The identity of the database: in every log.
    pub database: DatabaseIdentity,
    /// The ids of the other databases whose tables it may have, the nearest ones first.
    pub ancestors: Vec<u128>,
    /// A number that no other open database of this process has.
    pub instance: u64,
    /// The process that opened it.
    pub process: Process,
    /// Opened to read only: no file may be written, renamed or removed.
    pub read_only: bool,
    /// A read point of a database that another process may write to: files that it names may be
    /// gone by name, and its manifest may have gone on.
    pub follows: bool,
    /// What opening found in manifest and logs.
    pub recovery: Mutex<RecoveryReport>,
    /// `close` was called: no more writes and jobs. Reads end when the view is closed.
    pub closed: AtomicBool,
    /// `close_now` was called: no more steps of iterators, cursors and snapshots.
    pub ended: AtomicBool,
}

impl Context {
    /// The id of the database, then those of its ancestors: in every table.
    pub(crate) fn databases(&self) -> Vec<u128> {
        [&[self.database.id], &self.ancestors[..]].concat()
    }

    /// A timer for a write, which does nothing unless calls are timed.
    #[inline]
    pub(crate) fn timer(&self) -> Timer {
        Timer::start(self.options.latency_histograms)
    }

    /// `Closed` once `close` was called.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    /// `Closed` once `close_now` was called. Each step of a read asks before it begins.
    #[inline]
    pub(crate) fn check_reads(&self) -> Result<()> {
        if self.ended.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) }
    }

    /// `Closed` or `OpenedReadOnly` if writes are not taken, whatever failed before.
    pub(crate) fn check_takes_writes(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only { Err(Error::OpenedReadOnly) } else { Ok(()) }
    }
}
