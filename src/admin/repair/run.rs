//! The steps of a repair, and what is durable between them.
//!
//! 1. LOCK is locked and everything is read (`inventory`). A sound database is not changed.
//! 2. New tables are written (`rebuild`) under new file numbers, and synced.
//! 3. Every file that will not be part of the database gets a second name in `lost`, unless all of
//!    its contents are in the new tables.
//! 4. A new log and a new manifest are written and synced, then CURRENT is replaced.
//! 5. Files that the new manifest does not name are removed: each of them has its second name in
//!    `lost`, or all of its contents are in the new tables.
//!
//! A crash before step 4 leaves all old files, and perhaps new tables and second names. Another
//! repair then treats the new tables as copies of the old entries. If the database could be opened
//! before, opening treats them as obsolete files. A crash after step 4 leaves the repaired
//! database, and files that the next opening removes.

use crate::admin::offline;
use crate::admin::repair::history::History;
use crate::admin::repair::inventory::Inventory;
use crate::admin::repair::keyspaces::FoundKeyspaces;
use crate::admin::repair::lineage::{databases_of, leave_out_foreign};
use crate::admin::repair::rebuild::Rebuild;
use crate::admin::repair::report::{RepairReport, SetAside};
use crate::admin::repair::trees::{Sources, Trees};
use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::KeyspaceId;
use crate::base::sync::Ordering;
use crate::base::trace::{Span, span};
use crate::env::descriptor_retry::DescriptorRetryEnv;
use crate::env::directory::{keep_in_lost, lock_to_write, number_after, our_files};
use crate::env::foreign::refuse_foreign;
use crate::jobs::rewrite::output::INDEX_BYTES_MAX;
use crate::log::wal::consistency::ManifestFacts;
use crate::log::wal::format::DatabaseIdentity;
use crate::log::wal::salvage::salvage;
use crate::options::database::Options;
use crate::tree::current::read_current;
use crate::tree::manifest_state::ManifestState;
use std::collections::BTreeSet;
use std::io::{Error as IoError, ErrorKind};
use std::ops::Range;
use std::path::Path;

/// Why a table is set aside that may be sound.
const FOREIGN: &str = "another database wrote this table";

/// Repairs the database in `directory`; see `Options::repair`.
///
/// # Errors
/// As `Options::repair` says.
pub(crate) fn repair(options: Options, directory: &Path) -> Result<RepairReport> {
    repair_with(options, directory, INDEX_BYTES_MAX)
}

/// The same, with tables that end where their index has this many bytes.
pub(crate) fn repair_with(
    options: Options,
    directory: &Path,
    index_bytes_max: u64,
) -> Result<RepairReport> {
    let _span = span!("repair", directory);
    let env = DescriptorRetryEnv::over(&options.env);
    let options = &options.env(env);
    options.validate()?;
    let env = &*options.env;
    refuse_foreign(env, directory)?;
    // Half a copy would become a sound database without the rest.
    if let Err(error @ Error::Unfinished { .. }) = read_current(env, directory) {
        return Err(error);
    }
    let holds_nothing =
        |name: &FileName| matches!(name, FileName::Lock | FileName::Stats | FileName::Temporary(_));
    if our_files(env, directory)?.iter().all(holds_nothing) {
        let what = "no file of a siftdb database is here";
        return Err(Error::io("repair", directory, IoError::new(ErrorKind::NotFound, what)));
    }
    let _lock = lock_to_write(env, directory)?;
    let mut found = Inventory::take(options, directory)?;
    leave_out_foreign(&mut found);
    let history = History::find(env, directory, &found)?;
    if history.is_sound(&found, options) {
        let tables = history.manifest.iter().flat_map(|state| state.tables().map(|(_, meta)| meta));
        return Ok(RepairReport {
            manifest_used: true,
            tables_kept: tables.clone().count() as u64,
            entries: tables.map(|meta| meta.entries).sum(),
            last_sequence: found.last_sequence,
            ..RepairReport::default()
        });
    }
    let logged = logged_keyspaces(options, directory, &history)?;
    let keyspaces = FoundKeyspaces::find(&found, &history, &logged);
    let first = found.next_file_number.max(number_after(&found.files));
    // The id stays. The new epoch tells logs of now from those of before the repair.
    let database = history.database.next_epoch();
    let databases = databases_of(&found, database);
    let rebuild = Rebuild::new(options, directory, first, databases, index_bytes_max);
    let from = Sources {
        options,
        directory,
        found: &found,
        history: &history,
        keyspaces: &keyspaces,
        rebuild: &rebuild,
    };
    let mut trees = Trees::build(from)?;
    let next = rebuild.next_file_number.load(Ordering::Relaxed);
    set_aside(&mut trees, &from)?;
    make_current(&trees, &from, database, next)?;
    Ok(clear(trees, &from, first..next))
}

/// The keyspaces that readable entries of the logs name.
fn logged_keyspaces(
    options: &Options,
    directory: &Path,
    history: &History,
) -> Result<BTreeSet<KeyspaceId>> {
    let mut logged = BTreeSet::new();
    salvage(&*options.env, directory, &history.logs, &history.facts, &mut |_, batch| {
        logged.extend(batch.runs().map(|(keyspace, ..)| keyspace));
        Ok(())
    })?;
    Ok(logged)
}

/// Gives a second name in `lost` to every file whose contents are not all in the new tables.
fn set_aside(trees: &mut Trees<'_>, from: &Sources<'_>) -> Result<()> {
    let Sources { found, history, .. } = *from;
    for name in &found.files {
        let why = match name {
            _ if found.not_files.contains(name) => "not an ordinary file",
            FileName::Current if !history.by_current => {
                "it named a manifest that could not be used"
            }
            FileName::Manifest(number)
                if history.manifest.as_ref().is_none_or(|state| state.facts.number != *number) =>
            {
                "it was not current, or could not be used"
            }
            FileName::Table(number) if found.foreign.contains(number) => FOREIGN,
            FileName::Wal(number) if !history.logs.contains(number) => {
                "its writes are in tables, as the manifest says"
            }
            FileName::Temporary(_) => "it was not renamed to its final name",
            _ => continue,
        };
        trees.aside.push((*name, why.into()));
    }
    let names: Vec<FileName> = trees.aside.iter().map(|(name, _)| *name).collect();
    let places = keep_in_lost(&*from.options.env, from.directory, &names)?;
    let reasons = trees.aside.iter().map(|(_, why)| why.clone());
    trees.report.set_aside =
        places.into_iter().zip(reasons).map(|(path, why)| SetAside { path, why }).collect();
    Ok(())
}

fn make_current(
    trees: &Trees<'_>,
    from: &Sources<'_>,
    database: DatabaseIdentity,
    next: u64,
) -> Result<()> {
    let last_sequence = trees.last_sequence;
    let state = ManifestState {
        facts: ManifestFacts { database, last_sequence, ..ManifestFacts::default() },
        ancestors: from.rebuild.databases[1..].to_vec(),
        next_keyspace: from.keyspaces.next,
        expired_through: from.keyspaces.expired_through,
        keyspaces: trees.keyspaces.clone(),
        ..ManifestState::default()
    };
    offline::make_current(state, &*from.options.env, from.directory, next)
}

/// Removes the files that the new manifest does not name: old ones, and new tables that were
/// merged into others.
fn clear(trees: Trees<'_>, from: &Sources<'_>, new: Range<u64>) -> RepairReport {
    let Sources { options, directory, found, .. } = *from;
    let live: Vec<u64> = trees.tables().map(|meta| meta.number).collect();
    for name in found.files.iter().copied().chain(new.map(FileName::Table)) {
        let stays = match name {
            FileName::Current | FileName::Lock | FileName::Stats => true,
            FileName::Table(number) => live.contains(&number),
            FileName::Manifest(_) | FileName::Wal(_) | FileName::Temporary(_) => false,
        };
        if !stays {
            // A file that cannot be removed is obsolete, and the next opening removes it.
            let _ = options.env.remove(&name.path(directory));
        }
    }
    let kept = found.tables.iter().filter(|table| live.contains(&table.number)).count();
    RepairReport {
        changed: true,
        tables_kept: kept as u64,
        tables_written: (live.len() - kept) as u64,
        entries: trees.tables().map(|meta| meta.entries).sum(),
        last_sequence: trees.last_sequence,
        ..trees.report
    }
}
