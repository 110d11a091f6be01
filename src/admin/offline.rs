//! [`make_current`]: how a database whose entries are all in tables is installed.
//!
//! A repair and a checkpoint end with it: tables are there and durable, and what is missing is an
//! empty log, a manifest that names everything, and `CURRENT`, in this order.

use crate::base::error::Result;
use crate::env::api::Env;
use crate::log::wal::consistency::{CleanClose, ManifestFacts};
use crate::log::wal::format::WalStart;
use crate::log::wal::writer::WalWriter;
use crate::tree::current::set_current;
use crate::tree::edit::SessionBegin;
use crate::tree::manifest::ManifestWriter;
use crate::tree::manifest_state::ManifestState;
use std::path::Path;

/// Writes log, manifest and CURRENT, with the three file numbers from `next` on. Before the last
/// step nothing has changed, and after it all.
///
/// Everything up to the last sequence of `state` is in its tables, which are durable. Their names
/// become durable together with the name of the log. The database gets a log and a session of its
/// own, whatever `state` says of them.
///
/// # Errors
/// `Io`.
pub(crate) fn make_current(
    mut state: ManifestState,
    env: &dyn Env,
    directory: &Path,
    next: u64,
) -> Result<()> {
    let ManifestFacts { database, last_sequence, .. } = state.facts;
    let (log, manifest, temporary) = (next, next + 1, next + 2);
    let start = WalStart {
        synced_through: last_sequence,
        previous_log: 0,
        previous_last_sequence: last_sequence,
        first_sequence: last_sequence + 1,
        manifest_number: manifest,
        manifest_synced_bytes: 0,
        database,
    };
    let loads: Vec<_> = state.tables().filter_map(|(_, meta)| meta.loaded()).collect();
    let mut wal = WalWriter::create(env, directory, log, &start, &loads, 0)?;
    // The manifest needs this log, so its start record must be durable first.
    wal.sync()?;
    state.facts = ManifestFacts {
        log_number: log,
        session_log: log,
        flushed_through: last_sequence,
        synced_through: last_sequence,
        last_sequence,
        // The log is synced and gets no more writes.
        clean_close: Some(CleanClose { log, log_bytes: wal.records.bytes(), last_sequence }),
        database,
        ..ManifestFacts::default()
    };
    state.sessions = vec![SessionBegin::random(last_sequence)];
    state.next_file_number = temporary + 1;
    for keyspace in state.keyspaces.values_mut() {
        keyspace.meta.flushed_through = last_sequence;
    }
    ManifestWriter::create(env, directory, manifest, &state.snapshot())?;
    set_current(env, directory, manifest, temporary)
}
