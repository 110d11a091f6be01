//! Writes that are durable before anybody hears of them: entries and votes.
//!
//! No thread of this program waits: siftdb gives a ticket, which a sync that began after the write
//! resolves. Several writes share a sync. A snapshot is written with a sync of its own
//! (`snapshots.rs`).

use siftdb::{Db, WriteBatch};
use std::io;

/// Writes a batch, which is visible when this returns. `done` is called once, when it is durable
/// or will never be, and must be short.
///
/// # Errors
/// The failure of the write: then `done` is not called.
pub fn write_then(
    db: &Db,
    batch: WriteBatch,
    done: impl FnOnce(io::Result<()>) + Send + 'static,
) -> io::Result<()> {
    db.write(batch)?;
    db.sync_ticket().on_done(|synced| done(synced.map_err(io::Error::from)));
    Ok(())
}

/// Writes a batch and waits until it is durable.
///
/// # Errors
/// The failure of the write or of the sync.
pub async fn write(db: &Db, batch: WriteBatch) -> io::Result<()> {
    db.write(batch)?;
    Ok(db.sync_ticket().await?)
}
