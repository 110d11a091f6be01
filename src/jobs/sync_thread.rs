//! The syncing thread: it makes the writes before [`SyncTicket`]s durable and resolves the tickets.
//!
//! A database has one, from its first ticket to its close. It syncs the logs without their lock, so
//! writers continue during a sync, and their tickets wait for the next one together. The end of the
//! database waits for it, unless that is the drop of the last handle in a callback: that runs on
//! this thread.

use crate::base::error::{Error, Result};
use crate::base::sync::Arc;
use crate::base::sync::thread::{self, Builder};
use crate::state::engine::Engine;
use crate::state::session::sync_beside_writers;
use crate::state::sync_ticket::SyncTicket;
use siftdb_filter::policy::guarded;
use std::time::{Duration, Instant};

/// The thread waits at most this part of the time of a sync for tickets that come back.
const SYNC_PER_PATIENCE: u32 = 4;

/// A ticket for every write acknowledged so far.
pub(crate) fn sync_ticket(engine: &Arc<Engine>) -> SyncTicket {
    if let Err(error) = engine.context.process.check().and_then(|()| engine.check_writable()) {
        return SyncTicket::resolved(Err(error));
    }
    engine.writer.sync_tickets.take(|| {
        let owned = Arc::clone(engine);
        let thread = Builder::new().name("siftdb-sync".into()).spawn(move || resolve_all(&owned));
        thread.map_err(|error| Error::io("spawn", &engine.context.directory, error))
    })
}

fn resolve_all(engine: &Engine) {
    let mut patience = Duration::ZERO;
    while let Some(batch) = engine.writer.sync_tickets.next_batch(patience) {
        let started = Instant::now();
        let synced = guarded(|| sync_beside_writers(engine));
        patience = started.elapsed() / SYNC_PER_PATIENCE;
        let outcome = synced.unwrap_or_else(|panic| {
            let cause = std::io::Error::other(format!("a sync panicked: {panic}"));
            Err(engine.set_background_error(Error::io("sync", &engine.context.directory, cause)))
        });
        engine.writer.sync_tickets.resolve(&batch, outcome);
    }
}

/// Ends the thread; every ticket has resolved when it returns.
///
/// # Errors
/// The thread panicked.
pub(crate) fn stop(engine: &Engine) -> Result<()> {
    match engine.writer.sync_tickets.end() {
        Some(thread) if thread.thread().id() == thread::current().id() => Ok(()),
        Some(thread) => thread.join().map_err(|_| {
            let cause = std::io::Error::other("a background thread panicked");
            Error::io("join", &engine.context.directory, cause)
        }),
        None => Ok(()),
    }
}
