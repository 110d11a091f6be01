//! Which manifest says where tables belong, which logs count, and what of both is missing.
//!
//! A manifest is believed if it is whole and no log says that it was longer or another one in
//! force. The one that `CURRENT` names comes first. If that is not to be had, the newest one is
//! taken, by the number in its header: a manifest is a snapshot of all that the one before it said,
//! and gets its number and its snapshot while nobody can add to the older one, which is never added
//! to again. So the newest is right whether it came into force or not. One that is not whole was
//! never in force, or is damaged. An older one then counts only if it knows every table that is
//! there: if the damaged one was in force, it had tables that the older one does not know, or says
//! the same.
//!
//! Tables and logs that the manifest needs may be missing. Then it still places what is there. But
//! perhaps its last edits are missing instead, and tables that they named hold what the missing
//! files held: so tables of later numbers that no edit mentions take part ([`History::newer`]).
//! Where nothing is missing, such tables are what an interrupted job left.

use crate::admin::repair::inventory::{Inventory, TableState, part_of};
use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::env::api::Env;
use crate::env::directory::BELIEVED_MAX;
use crate::log::recovery::DroppedPart;
use crate::log::wal::consistency::ManifestFacts;
use crate::log::wal::recover::recover;
use crate::log::wal::salvage::salvage;
use crate::tree::edit::FileMeta;
use crate::tree::manifest::{ManifestRemains, ManifestState, read_current, replay_file};
use std::collections::HashSet;
use std::path::Path;

/// What manifest and logs say.
#[derive(Debug, Default)]
pub struct History {
    /// The manifest that is believed, if there is one.
    pub manifest: Option<ManifestState>,
    /// CURRENT names it.
    pub by_current: bool,
    /// The logs that may hold writes that are in no table.
    pub logs: Vec<u64>,
    /// What to hold those logs against.
    pub facts: ManifestFacts,
    /// They read back as after any crash.
    pub logs_are_sound: bool,
    /// Files are missing that the manifest needs, or it ends before it needs any.
    pub misses_files: bool,
    /// Files of tables that the manifest may have known but for edits that are missing.
    pub newer: Vec<u64>,
    /// Without a manifest: tables that the remains of one name and that are not there.
    pub named_and_missing: Vec<FileMeta>,
    /// What of CURRENT, manifests and logs could not be used.
    pub dropped: Vec<DroppedPart>,
}

impl History {
    /// Looks for the manifest, reads the logs.
    ///
    /// # Errors
    /// Files of an unknown format, and such that the system does not let be opened.
    pub fn find(env: &dyn Env, directory: &Path, found: &Inventory) -> Result<Self> {
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
            // Opening looks for it under its own name.
            let by_current =
                current == Some(remains.number) && *name == FileName::Manifest(remains.number);
            let is_newest = Some(remains.number) == newest;
            if !by_current && !fits(found, remains, is_newest) {
                continue;
            }
            match history.believe(env, directory, found, *name, remains) {
                Ok(()) => {
                    history.by_current = by_current;
                    return Ok(history);
                }
                Err(error) => history.dropped.push(part_of(error)?),
            }
        }
        history.do_without(env, directory, found)?;
        Ok(history)
    }

    /// True if there is nothing that a repair could do.
    #[must_use]
    pub fn is_sound(&self, found: &Inventory) -> bool {
        let Some(state) = self.manifest.as_ref().filter(|_| self.by_current) else { return false };
        let sound = |meta: &FileMeta| {
            let file = found.tables.iter().find(|table| table.number == meta.number);
            file.is_some_and(|file| match &file.state {
                TableState::Sound(found) => {
                    FileMeta { garbage: meta.garbage, ..found.clone() } == *meta
                }
                _ => false,
            })
        };
        // A log under a number that nobody gave is newer than all to come, whatever it holds: after
        // the next session it would be damage.
        let given = self.logs.iter().all(|log| *log < BELIEVED_MAX);
        let logs_are_sound = self.logs_are_sound && given;
        logs_are_sound && self.newer.is_empty() && state.levels.iter().flatten().all(sound)
    }

    /// Takes a manifest for the one that counts, and reads the logs that it needs. An error that is
    /// damage says why it is not to be believed.
    fn believe(
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
        let logs_are_sound = match recover(env, directory, &logs, &facts, &mut |_, _| Ok(())) {
            Err(error) if !error.is_corruption() => return Err(error),
            Ok(_) if facts.clean_close.is_none() => true,
            recovered => {
                // What fails here, too, is what the logs say of the manifest.
                let salvaged = salvage(env, directory, &logs, &facts, &mut |_, _| Ok(()))?;
                // After a clean close no crash can have left anything to drop, in no log.
                recovered.is_ok() && salvaged.dropped.is_empty()
            }
        };
        self.misses_files = misses_files(found, &state, &facts, &logs);
        if self.misses_files {
            let unknown = found.tables.iter().filter(|table| {
                table.number > state.facts.number
                    && table.table_id.is_some_and(|id| !remains.mentioned.contains(&id))
            });
            self.newer = unknown.map(|table| table.number).collect();
        }
        self.manifest = Some(state);
        (self.logs, self.facts, self.logs_are_sound) = (logs, facts, logs_are_sound);
        Ok(())
    }

    /// Everything that is found counts.
    fn do_without(&mut self, env: &dyn Env, directory: &Path, found: &Inventory) -> Result<()> {
        // No manifest is ahead of this one, and none is too short.
        let number = u64::MAX;
        self.facts = ManifestFacts { number, bytes: u64::MAX, ..ManifestFacts::default() };
        self.logs = found.all_logs();
        // For the errors: the steps after this one write.
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
    if found.no_files.contains(&FileName::Current) {
        return Err(Error::corruption(current, 0, "it is no ordinary file"));
    }
    let missing = || Error::missing(current, "other files of a database are there");
    read_current(env, directory)?.ok_or_else(missing)
}

/// Whether a manifest that CURRENT does not name can be the one that counts.
fn fits(found: &Inventory, manifest: &ManifestRemains, is_newest: bool) -> bool {
    let ids = ids_of(found);
    let knows = |id: &u64| manifest.mentioned.contains(id);
    // One of another database would know no table that is here.
    let related = ids.is_empty() || manifest.mentioned.is_empty() || ids.iter().any(knows);
    if is_newest { related } else { ids.iter().all(knows) }
}

fn ids_of(found: &Inventory) -> HashSet<u64> {
    found.tables.iter().filter_map(|table| table.table_id).collect()
}

/// True if files that the manifest needs are not there, or none of those it was written for.
fn misses_files(
    found: &Inventory,
    state: &ManifestState,
    facts: &ManifestFacts,
    logs: &[u64],
) -> bool {
    let ids = ids_of(found);
    let misses_table = state.levels.iter().flatten().any(|meta| !ids.contains(&meta.table_id));
    // Tables come from logs: one that knows neither ends before the first log was made.
    let knows_nothing = state.facts.log_number == 0 && logs.is_empty();
    misses_table || facts.missing_from(logs).is_some() || knows_nothing
}
