//! Chooses the manifest and the logs that a repair trusts, and finds what is missing.
//!
//! A manifest is trusted if it is whole, and no log says that it was longer or that a newer one was
//! current. The manifest that `CURRENT` names is tried first, then the newest one, by the number
//! in its header. A manifest begins with a snapshot of the one before, which never changes after
//! that, so the newest manifest is right even if it never became current. A manifest that is not
//! whole was never current, or is damaged. Then an older one is trusted only if it mentions every
//! table that exists. If the damaged one was current, either it had tables that the older one does
//! not mention, or both say the same.
//!
//! Tables and logs that the manifest needs may be missing. The manifest then still places the other
//! tables. But its last edits may be missing instead, and tables that these edits named may hold
//! the entries of the missing files. So tables with higher numbers that no edit mentions take part
//! too ([`History::newer`]). If nothing is missing, an interrupted job left such tables.

use crate::admin::repair::inventory::{Inventory, TableFound, TableState, part_of};
use crate::base::batch_format::DecodedBatch;
use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::DEFAULT_KEYSPACE;
use crate::env::api::Env;
use crate::env::directory::TRUSTED_NUMBER_MAX;
use crate::log::record::format::Undecodable;
use crate::log::recovery::DroppedPart;
use crate::log::wal::consistency::ManifestFacts;
use crate::log::wal::format::DatabaseIdentity;
use crate::log::wal::recover::{replay, survey};
use crate::log::wal::salvage::salvage;
use crate::options::database::Options;
use crate::options::keyspace::KeyspaceOptions;
use crate::tree::current::read_current;
use crate::tree::edit::KeyspaceMeta;
use crate::tree::file_meta::FileMeta;
use crate::tree::manifest::{ManifestRemains, replay_file};
use crate::tree::manifest_state::{KeyspaceTables, ManifestState};
use std::collections::HashSet;
use std::path::Path;

/// The manifest and the logs that the repair uses.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The trusted manifest, if there is one.
    pub manifest: Option<ManifestState>,
    /// CURRENT names that manifest.
    pub by_current: bool,
    /// The logs that may have writes that are in no table.
    pub logs: Vec<u64>,
    /// The facts of the manifest about these logs.
    pub facts: ManifestFacts,
    /// Opening would recover these logs without an error.
    pub logs_are_sound: bool,
    /// Files or entries of logs that the manifest needs are missing, or the manifest ends before it
    /// names any.
    pub misses_files: bool,
    /// Numbers of tables that missing edits of the manifest may have named.
    pub newer: Vec<u64>,
    /// A log has entries of a keyspace that the trusted manifest never gave a number.
    names_unknown_keyspace: bool,
    /// The identity of the database, with the highest epoch that any file has.
    pub database: DatabaseIdentity,
    /// Without a manifest: missing tables that the readable part of a manifest names.
    pub named_and_missing: Vec<FileMeta>,
    /// The parts of CURRENT and of manifests that could not be used.
    pub dropped: Vec<DroppedPart>,
}

impl History {
    /// Chooses the manifest and reads the logs.
    ///
    /// # Errors
    /// A file of an unknown format; a file that cannot be opened.
    pub(crate) fn find(env: &dyn Env, directory: &Path, found: &Inventory) -> Result<Self> {
        let mut history = History { dropped: found.dropped.clone(), ..History::default() };
        let current = match current_of(env, directory, found) {
            Ok(number) => Some(number),
            Err(error) => {
                history.dropped.push(part_of(error)?);
                None
            }
        };
        let numbers = || found.manifests.iter().map(|(_, manifest)| manifest.number);
        if let Some(number) = current.filter(|number| !numbers().any(|there| there == *number)) {
            let path = FileName::Manifest(number).path(directory);
            history.dropped.push(part_of(Error::missing(path, "CURRENT names this manifest"))?);
        }
        let newest = numbers().max();
        let mut candidates: Vec<_> = found.manifests.iter().collect();
        candidates.sort_by_key(|(name, manifest)| {
            let by_current = Some(manifest.number) == current;
            std::cmp::Reverse((by_current, manifest.number, *name))
        });
        for (name, remains) in candidates {
            // CURRENT counts only if the file has the number of the manifest in its name.
            let by_current =
                current == Some(remains.number) && *name == FileName::Manifest(remains.number);
            let is_newest = Some(remains.number) == newest;
            if !by_current && !fits(found, remains, is_newest) {
                continue;
            }
            match history.trust(env, directory, found, *name, remains) {
                Ok(()) => {
                    history.by_current = by_current;
                    history.database = identity(found, &history);
                    return Ok(history);
                }
                Err(error) => history.dropped.push(part_of(error)?),
            }
        }
        history.use_every_file(env, directory, found)?;
        history.database = identity(found, &history);
        Ok(history)
    }

    /// True if the database needs no repair.
    pub(crate) fn is_sound(&self, found: &Inventory, options: &Options) -> bool {
        let Some(state) = self.manifest.as_ref().filter(|_| self.by_current) else { return false };
        let sound = |meta: &FileMeta| {
            let file = found.tables.iter().find(|table| table.number == meta.number);
            file.is_some_and(|file| match &file.state {
                TableState::Sound(found) => found.agrees_with(meta),
                _ => false,
            })
        };
        // A log with a number that siftdb never assigns would count as newer than every later log,
        // which would be damage in the next session.
        let given = self.logs.iter().all(|log| *log < TRUSTED_NUMBER_MAX);
        let logs_are_sound = self.logs_are_sound && given && !self.names_unknown_keyspace;
        let usable = |tables: &KeyspaceTables| options_of(options, &tables.meta).is_ok();
        let keyspaces_are_sound = state.keyspaces.values().all(usable);
        logs_are_sound
            && keyspaces_are_sound
            && self.newer.is_empty()
            && state.tables().all(|(_, meta)| sound(meta))
    }

    /// Trusts a manifest and reads the logs that it needs. An error that is damage says why the
    /// manifest cannot be trusted.
    fn trust(
        &mut self,
        env: &dyn Env,
        directory: &Path,
        found: &Inventory,
        name: FileName,
        remains: &ManifestRemains,
    ) -> Result<()> {
        let state = replay_file(env, &name.path(directory), remains.number)?;
        let facts = state.facts;
        let mut logs = found.all_logs();
        logs.retain(|log| *log >= facts.log_number);
        let (mut highest_keyspace, mut lacks_entries) = (0, false);
        let mut used_through = facts.last_sequence;
        let mut note = |_, batch: &DecodedBatch<'_>| {
            used_through = used_through.max(batch.sequence);
            let named = batch.runs().map(|(keyspace, ..)| u64::from(keyspace)).max();
            highest_keyspace = named.unwrap_or(0).max(highest_keyspace);
            Ok(())
        };
        let recovered = survey(env, directory, &logs, &facts)
            .and_then(|found| replay(env, directory, &found.parts, &mut note));
        let logs_are_sound = match recovered {
            Err(error) if !error.is_corruption() => return Err(error),
            Ok(()) if facts.clean_close.is_none() => true,
            recovered => {
                // If a log says that the manifest is older or shorter than it was, this fails.
                let salvaged = salvage(env, directory, &logs, &facts, &mut note)?;
                lacks_entries = !salvaged.missing.is_empty();
                // No crash can have torn a log of before the clean close. One that tore the first
                // log of the next session makes this repair needless, and it loses nothing.
                recovered.is_ok() && salvaged.dropped.is_empty()
            }
        };
        // The edit that created the keyspace is missing, so other edits may be too.
        self.names_unknown_keyspace = highest_keyspace >= state.next_keyspace;
        // Missing edits may have flushed one keyspace from a log that others still need.
        let may_be_short = self.names_unknown_keyspace || lacks_entries;
        self.misses_files = may_be_short || misses_files(found, &state, &facts, &logs);
        if self.misses_files {
            // The name of a file may be wrong, so its entries count too: those of a table that was
            // obsolete before this manifest are in other tables.
            let flushed_through = state.facts.flushed_through;
            let is_newer = |table: &TableFound| {
                // A table of version 0.1 may be of another database: its sequences must be in use.
                let may_be_ours = |meta: &FileMeta| {
                    !table.databases.is_empty() || meta.smallest_sequence <= used_through
                };
                let is_later = |meta: &FileMeta| meta.largest_sequence > flushed_through;
                table.meta().is_none_or(may_be_ours)
                    && (table.number > state.facts.number || table.meta().is_some_and(is_later))
            };
            let unknown = found.tables.iter().filter(|table| {
                table.table_id.is_some_and(|id| !remains.mentioned.contains_key(&id))
                    && is_newer(table)
            });
            self.newer = unknown.map(|table| table.number).collect();
        }
        self.manifest = Some(state);
        (self.logs, self.facts, self.logs_are_sound) = (logs, facts, logs_are_sound);
        Ok(())
    }

    /// Repairs without a manifest: uses every file that was found.
    fn use_every_file(&mut self, env: &dyn Env, directory: &Path, found: &Inventory) -> Result<()> {
        // These values pass every check against a manifest.
        let number = u64::MAX;
        self.facts = ManifestFacts { number, bytes: u64::MAX, ..ManifestFacts::default() };
        self.logs = found.all_logs();
        // Only for its errors, because the steps after this one write.
        salvage(env, directory, &self.logs, &self.facts, &mut |_, _| Ok(()))?;
        let newest = found.manifests.iter().max_by_key(|(name, manifest)| (manifest.number, *name));
        let named = newest.into_iter().flat_map(|(_, manifest)| &manifest.named);
        let ids = ids_of(found);
        let missing = named.filter(|meta| {
            let has_file = found.tables.iter().any(|table| table.number == meta.number);
            !ids.contains(&meta.table_id) && !has_file
        });
        self.named_and_missing = missing.cloned().collect();
        Ok(())
    }
}

/// The number in CURRENT.
fn current_of(env: &dyn Env, directory: &Path, found: &Inventory) -> Result<u64> {
    let current = FileName::Current.path(directory);
    if found.not_files.contains(&FileName::Current) {
        return Err(Error::corruption(current, 0, "not an ordinary file"));
    }
    let missing = || Error::missing(current, "other files of a database are there");
    read_current(env, directory)?.ok_or_else(missing)
}

/// Whether a manifest that CURRENT does not name can be trusted.
fn fits(found: &Inventory, manifest: &ManifestRemains, is_newest: bool) -> bool {
    let ids = ids_of(found);
    let knows = |id: &u64| manifest.mentioned.contains_key(id);
    // The manifest of another database would mention no table of this one.
    let related = ids.is_empty() || manifest.mentioned.is_empty() || ids.iter().any(knows);
    if is_newest { related } else { ids.iter().all(knows) }
}

/// The identity of the database, by the trusted manifest, else by the newest one, else by the
/// newest log. The epoch is the highest that any of its files has. 0 and 0 if no file says it.
fn identity(found: &Inventory, history: &History) -> DatabaseIdentity {
    let trusted = history.manifest.iter().map(|state| state.facts.database);
    let mut manifests: Vec<&ManifestRemains> = found.manifests.iter().map(|(_, m)| m).collect();
    manifests.sort_by_key(|manifest| std::cmp::Reverse(manifest.number));
    let manifests = manifests.into_iter().map(|manifest| manifest.database);
    let mut seen: Vec<DatabaseIdentity> = trusted.chain(manifests).collect();
    seen.extend(&found.logged);
    let none = DatabaseIdentity::default();
    let id = seen.iter().find(|database| **database != none).map_or(0, |database| database.id);
    let epochs = seen.iter().filter(|database| database.id == id).map(|database| database.epoch);
    DatabaseIdentity { id, epoch: epochs.max().unwrap_or(0) }
}

fn ids_of(found: &Inventory) -> HashSet<u64> {
    found.tables.iter().filter_map(|table| table.table_id).collect()
}

/// True if files that the manifest needs are missing, or if it ends before it names any file.
fn misses_files(
    found: &Inventory,
    state: &ManifestState,
    facts: &ManifestFacts,
    logs: &[u64],
) -> bool {
    let ids = ids_of(found);
    let misses_table = state.tables().any(|(_, meta)| !ids.contains(&meta.table_id));
    // Tables come from logs, so a manifest that names neither ends before the first log. A log
    // without a sound start does not count: tables of its entries may be there.
    let knows_no_log = state.facts.log_number == 0 && state.facts.session_log == 0;
    let knows_nothing = knows_no_log && (logs.is_empty() || !found.tables.is_empty());
    misses_table || facts.missing_from(logs).next().is_some() || knows_nothing
}

/// The options with the settings that are saved for a keyspace. The error says why these cannot be
/// used.
pub(crate) fn options_of(
    options: &Options,
    meta: &KeyspaceMeta,
) -> std::result::Result<Options, Undecodable> {
    let saved = KeyspaceOptions::decode(&meta.settings, &options.custom_rules())?;
    let data = match meta.id {
        // The data settings of a database's options are those of `default`.
        DEFAULT_KEYSPACE => options.data.over(&saved),
        _ => saved,
    };
    // Settings with a codec that is not there are those of a program with more features.
    data.check_compression().map_err(|error| Undecodable::Unknown(error.to_string()))?;
    Ok(options.for_keyspace(&data))
}
