//! Writes a batch that creates or drops keyspaces, by one edit of the manifest.
//!
//! No log record creates a keyspace, so the entries of such a batch are not logged. They become
//! tables of level 0, and the edit that creates and drops the keyspaces names them.
//!
//! 1. Take the lead of the write queue, and flush the keyspaces that the batch writes to: a lookup
//!    ends in a memtable if that has the key, so none may have an older version.
//! 2. Sync the logs: a crash must not keep the batch and lose an older write (I13).
//! 3. Number the entries, and write them to tables. They are durable before the edit (I5).
//! 4. Begin a log that skips these numbers, and sync its start. So recovery misses no entry in the
//!    logs, whether it finds the edit or not.
//! 5. Log and sync the edit, begin another log, and show the change (`db/alter.rs`).
//!
//! A crash before the edit is durable leaves tables that nothing names, and after it everything is
//! there. A transaction that read before the batch is checked again, in the tables: the batch is
//! not among the recent writes, so these do not go back far enough.

use crate::base::error::{Error, Result};
use crate::base::expiry::{Expiry, clock_millis};
use crate::base::key::{DEFAULT_KEYSPACE, KeyspaceId, OWN_SEQUENCE_FIRST, SequenceNumber};
use crate::base::stats::counters::Counter;
use crate::base::sync::Arc;
use crate::base::write_batch::{CreatedKeyspace, KeyspaceChanges, WriteBatch};
use crate::db::alter::{Alteration, exclusive_log, install, new_keyspace, to_drop};
use crate::jobs::flush::{FlushInput, flush_keyspace, write_memtables};
use crate::jobs::workers::run_once;
use crate::memtable::memtable::Memtable;
use crate::options::access::WriteOptions;
use crate::options::keyspace::KeyspaceOptions;
use crate::state::catalog::new_memtable;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::keyspace::{KeyspaceState, written};
use crate::state::session;
use crate::tree::new_tables::{DurableTables, NewTables};
use crate::write::commit::check_batch;
use std::collections::BTreeMap;

/// Writes `batch`, which makes `changes`.
///
/// # Errors
/// As `Db::write`. What cannot be done is refused before anything is written.
pub(super) fn write(
    engine: &Engine,
    batch: &WriteBatch,
    changes: &KeyspaceChanges,
    options: &WriteOptions,
) -> Result<()> {
    engine.context.process.check()?;
    check_batch(engine, batch, options)?;
    // Looked up again below, when nothing else is written.
    Targets::find(engine, batch, changes)?;
    // A session begins before its first flush.
    session::activate(engine)?;
    run_once(engine, || {
        // Before the lock of flushes: a leader may wait for one.
        let _exclusive = engine.writer.queue.exclusive()?;
        let _one_at_a_time = engine.jobs.flushes.lock();
        let targets = Targets::find(engine, batch, changes);
        for keyspace in targets.iter().flat_map(|targets| &targets.written) {
            flush_keyspace(engine, keyspace)?;
        }
        Ok(targets.and_then(|_| write_leading(engine, batch, changes, options.expiry)))
    })??;
    engine.writer.watchers.wake();
    Ok(())
}

/// The keyspaces of a batch that are there.
struct Targets {
    /// Ascending by number.
    written: Vec<Arc<KeyspaceState>>,
    dropped: Vec<Arc<KeyspaceState>>,
}

impl Targets {
    /// # Errors
    /// `KeyspaceNotFound`; `KeyspaceDropped`; `InvalidArgument` for a keyspace that is there and
    /// would be created, or that is written to and would be dropped.
    fn find(engine: &Engine, batch: &WriteBatch, changes: &KeyspaceChanges) -> Result<Self> {
        let refuse = |what: String| Err(Error::InvalidArgument { what });
        let keyspaces = engine.catalog.keyspaces.lock();
        if let Some(there) = changes.created.iter().find(|new| keyspaces.named(&new.name).is_some())
        {
            return refuse(format!("the keyspace {:?} is there already", there.name));
        }
        let dropped = changes.dropped.iter().map(|name| to_drop(&keyspaces, name));
        let dropped = dropped.collect::<Result<Vec<_>>>()?;
        let is_default = |id: KeyspaceId| id == DEFAULT_KEYSPACE;
        let default = batch.decoded(0).runs().any(|(id, ..)| is_default(id));
        let ids = batch.keyspaces.iter().copied().chain(default.then_some(DEFAULT_KEYSPACE));
        let written = ids.map(|id| written(&keyspaces, id).cloned());
        let mut written = written.collect::<Result<Vec<_>>>()?;
        written.sort_by_key(|keyspace| keyspace.id);
        let is_written = |gone: &&Arc<KeyspaceState>| find(&written, gone.id).is_some();
        if let Some(keyspace) = dropped.iter().find(is_written) {
            return refuse(format!(
                "a batch that writes to the keyspace {:?} and drops it",
                keyspace.name
            ));
        }
        Ok(Targets { written, dropped })
    }
}

/// The keyspace of that number; `all` ascend.
fn find(all: &[Arc<KeyspaceState>], id: KeyspaceId) -> Option<&Arc<KeyspaceState>> {
    all.binary_search_by_key(&id, |keyspace| keyspace.id).ok().map(|index| &all[index])
}

/// Writes the batch while nothing else is written. The keyspaces that it writes to have no entry in
/// a memtable.
fn write_leading(
    engine: &Engine,
    batch: &WriteBatch,
    changes: &KeyspaceChanges,
    expiry: Option<Expiry>,
) -> Result<()> {
    let mut log = exclusive_log(engine)?;
    // Again, under the lock that a creation and a drop take.
    let Targets { written, dropped } = Targets::find(engine, batch, changes)?;
    let create = |new: &CreatedKeyspace| {
        new_keyspace(
            &engine.context,
            &engine.catalog,
            &new.name,
            &settings_of(&engine.context, new)?,
        )
    };
    let created = changes.created.iter().map(create).collect::<Result<Vec<_>>>()?;
    let mut entries = Entries::new(engine, expiry, log.next_sequence);
    entries.add(batch, &written)?;
    for (new, keyspace) in changes.created.iter().zip(&created) {
        entries.add(&new.batch, std::slice::from_ref(keyspace))?;
    }
    let (count, bytes) = (entries.next_sequence - log.next_sequence, entries.bytes);
    let mut last_sequence = log.last_sequence;
    let mut tables = NewTables::default();
    if count > 0 {
        last_sequence = entries.next_sequence - 1;
        let durable = entries.write(last_sequence)?;
        let files = durable.file_names();
        // Even after a failure: tables may have these numbers, or the log may skip them (I10).
        log.next_sequence = last_sequence + 1;
        session::sync_starts(engine, &mut log)
            .map_err(|error| engine.set_background_error(error))
            .and_then(|()| session::skip_sequences(engine, &mut log, &[]))
            // A `resume` lets them go.
            .inspect_err(|_| engine.catalog.obsolete.add(files.clone()))?;
        // Only now: the next write begins after these numbers, whether the tables open or not.
        let keyspaces: Vec<_> = written.iter().chain(&created).map(|k| &**k).collect();
        let opened = engine.catalog.open_new(&engine.context.directory, durable, 0, &keyspaces);
        tables = opened.inspect_err(|_| engine.catalog.obsolete.add(files))?;
    }
    let changed: Vec<_> = written.iter().chain(&created).cloned().collect();
    install(engine, log, Alteration { created, dropped, tables, last_sequence })?;
    let stripe = engine.context.counters.stripe();
    stripe.add(Counter::Batches, 1);
    stripe.add(Counter::Entries, count);
    stripe.add(Counter::EntryBytes, bytes);
    // Older logs may not be needed any more.
    engine.jobs.schedule_flush();
    changed.iter().for_each(|keyspace| engine.jobs.schedule_table_removal(keyspace));
    engine.jobs.schedule_compactions(changed.iter().map(|keyspace| keyspace.id));
    Ok(())
}

/// The settings of a keyspace that a batch creates.
///
/// # Errors
/// `InvalidOptions` for settings that cannot work, or a filter rule that is not registered.
fn settings_of(context: &Context, new: &CreatedKeyspace) -> Result<KeyspaceOptions> {
    let settings = KeyspaceOptions::decode(&new.settings, &context.options.custom_rules())
        .map_err(|bad| bad.into_error(&context.directory, 0))?;
    settings.check_registered()?;
    context.options.for_keyspace(&settings).validate()?;
    Ok(settings)
}

/// The entries of a batch, in a memtable for each keyspace.
struct Entries<'a> {
    engine: &'a Engine,
    expiry: Option<Expiry>,
    /// Milliseconds since 1970.
    now: u64,
    next_sequence: SequenceNumber,
    /// Bytes of keys and values.
    bytes: u64,
    memtables: BTreeMap<KeyspaceId, (Arc<KeyspaceState>, Arc<Memtable>)>,
}

impl<'a> Entries<'a> {
    fn new(engine: &'a Engine, expiry: Option<Expiry>, next_sequence: SequenceNumber) -> Self {
        let now = clock_millis(engine.context.env.now());
        Entries { engine, expiry, now, next_sequence, bytes: 0, memtables: BTreeMap::new() }
    }

    /// Adds `batch`, whose entries are of keyspaces of `to`; all of them, if that is one.
    ///
    /// # Errors
    /// `InvalidArgument` for a batch that is too large with its times, and if no number is left.
    fn add(&mut self, batch: &WriteBatch, to: &[Arc<KeyspaceState>]) -> Result<()> {
        let of = |id: KeyspaceId| match to {
            [one] => Some(one),
            all => find(all, id),
        };
        let own = |id| self.expiry.or_else(|| of(id).and_then(|keyspace| keyspace.expiry()));
        let batch = batch.with_expiry(self.now, own);
        batch.check()?;
        for (id, first, run) in batch.decoded(self.next_sequence).runs() {
            let Some(keyspace) = of(id) else { continue };
            let new = || (Arc::clone(keyspace), new_memtable(&self.engine.context.options));
            self.memtables.entry(keyspace.id).or_insert_with(new).1.insert(first, run);
        }
        self.next_sequence += batch.len() as u64;
        self.bytes += batch.payload_bytes as u64;
        if self.next_sequence > OWN_SEQUENCE_FIRST {
            let what = "all sequence numbers are used up".into();
            return Err(Error::InvalidArgument { what });
        }
        Ok(())
    }

    /// Writes tables up to `last_sequence`, and makes them and their names durable.
    ///
    /// # Errors
    /// The failure of a table: none is left.
    fn write(self, last_sequence: SequenceNumber) -> Result<DurableTables> {
        let input = |(keyspace, memtable): (Arc<KeyspaceState>, Arc<Memtable>)| {
            let levels = keyspace.view.load().version.files.clone();
            FlushInput { keyspace, memtables: vec![memtable], levels }
        };
        let inputs = self.memtables.into_values().map(input).collect();
        let mut snapshots = self.engine.catalog.snapshots.needed(&self.engine.catalog.published);
        snapshots.push(last_sequence);
        write_memtables(self.engine, inputs, Some(snapshots))
    }
}
