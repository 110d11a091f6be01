//! Adds an ingested table to a closed database, for tests of the readers of such tables.
//!
//! `Keyspace::ingest` makes such tables in an open database, at a level that it chooses. This one
//! goes where a test wants it, with the sequence that the test wants.

use crate::admin::offline;
use crate::admin::repair::history::options_of;
use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::{KeyspaceLabel, SequenceNumber};
use crate::base::sync::Arc;
use crate::env::api::Env;
use crate::env::directory::{lock_to_write, our_files};
use crate::jobs::rewrite::output::new_table_id;
use crate::options::database::Options;
use crate::options::levels::TablePlace;
use crate::table::builder::TableBuilder;
use crate::tree::current::read_current;
use crate::tree::edit::KeyspaceMeta;
use crate::tree::file_meta::FileMeta;
use crate::tree::manifest::replay;
use crate::tree::runs::SortedRuns;
use crate::tree::version::LevelFiles;
use std::path::Path;

/// Adds a table of `entries` to level 0 of the keyspace: sorted, each key once, `None` deletes. It
/// is newer than everything else. Returns its sequence. Every memtable must have been flushed
/// before the close, because the logs are left out.
///
/// # Errors
/// `InvalidArgument`; the failure of a file.
#[doc(hidden)]
pub fn add_ingested_table(
    env: &Arc<dyn Env>,
    directory: impl AsRef<Path>,
    keyspace: &str,
    entries: &[(Vec<u8>, Option<Vec<u8>>)],
) -> Result<SequenceNumber> {
    let directory = directory.as_ref();
    let _lock = lock_to_write(&**env, directory)?;
    let refused = |what: &str| Error::InvalidArgument { what: what.into() };
    let current = read_current(&**env, directory)?.ok_or_else(|| refused("no database"))?;
    let mut state = replay(&**env, directory, current)?;
    let mut keyspaces = state.keyspaces.values_mut();
    let keyspace = keyspaces.find(|tables| tables.meta.name == keyspace);
    let keyspace = keyspace.ok_or_else(|| refused("no such keyspace"))?;
    let sequence = state.facts.last_sequence + 1;
    let numbers = our_files(&**env, directory)?.into_iter().filter_map(|name| name.number());
    let number = numbers.max().unwrap_or(0) + 1;
    let file = write_table(env, directory, number, &keyspace.meta, sequence, entries)?;
    keyspace.levels[0].push(file);
    (state.facts.last_sequence, state.checkpoint_of) = (sequence, None);
    offline::make_current(state, &**env, directory, number + 1)?;
    Ok(sequence)
}

fn write_table(
    env: &Arc<dyn Env>,
    directory: &Path,
    number: u64,
    meta: &KeyspaceMeta,
    sequence: SequenceNumber,
    entries: &[(Vec<u8>, Option<Vec<u8>>)],
) -> Result<FileMeta> {
    let path = FileName::Table(number).path(directory);
    let options = options_of(&Options::new(), meta);
    let options = options.map_err(|error| error.into_error(directory, 0))?;
    let label = KeyspaceLabel { id: meta.id, name: meta.name.clone() };
    let runs = SortedRuns::of(&LevelFiles::default());
    let filter = options.table_filter(0, &runs);
    let table_options = options.table_options(label, Vec::new(), TablePlace::LEVEL_0, filter);
    let file = env.create_new(&path).map_err(|error| Error::io("create_new", &path, error))?;
    let mut builder = TableBuilder::new(file, path, new_table_id(), table_options);
    builder.mark_ingested();
    for (key, value) in entries {
        // Sequence 0, and kind 0 or 1.
        let trailer = [u8::from(value.is_some()), 0, 0, 0, 0, 0, 0, 0];
        builder.add(&[key, &trailer[..]].concat(), value.as_deref().unwrap_or_default())?;
    }
    let summary = builder.finish()?;
    let mut file = FileMeta::of_summary(number, &summary);
    file.set_global_sequence(sequence);
    Ok(file)
}
