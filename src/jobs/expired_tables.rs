//! Removes tables whose entries have all expired, without reading them.
//!
//! [`remove_expired_tables`] is the whole job. The tables that a running compaction replaces stay.
//! A flush may run: everything in it is newer.
//!
//! An expired entry hides older versions of its key, so a table stays if an older one overlaps it:
//! a compaction then rewrites it. It also stays while a snapshot may need what a newer table hides.
//!
//! [`ExpiryWatch`] says when the compaction worker looks next.

use crate::base::error::Result;
use crate::base::key::KeyspaceId;
use crate::base::stats::counters::Counter;
use crate::base::sync::Arc;
use crate::jobs::rewrite::entry_rules::job_time;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::tree::edit::{DeletedFile, VersionEdit};
use crate::tree::file_meta::FileMeta;
use crate::tree::new_tables::NewTables;
use crate::tree::overlap::overlapping_places;
use crate::tree::version::LevelFiles;
use std::time::Duration;

/// The shortest wait for a table to expire; [`WAIT_MAX`] is the longest. The clock is the
/// environment's: it may stop, or jump.
const WAIT_MIN: Duration = Duration::from_millis(500);

/// See [`WAIT_MIN`].
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

/// Removes the tables of `keyspace` in which everything has expired. False if there are none.
///
/// # Errors
/// The failure of the manifest; `KeyspaceDropped`. Nothing was removed then.
pub(crate) fn remove_expired_tables(engine: &Engine, keyspace: &KeyspaceState) -> Result<bool> {
    let now = job_time(&engine.context, &engine.catalog);
    let version = Arc::clone(&keyspace.view.load().version);
    if !version.tables().any(|handle| handle.meta.is_expired(now)) {
        return Ok(false);
    }
    let oldest =
        engine.catalog.snapshots.needed(&engine.catalog.published).first().copied().unwrap_or(0);
    engine.check_lock()?;
    let mut entries = 0;
    let removal = |_: &NewTables| {
        // The tables as they are: a flush or the removal of covered tables may have ended since.
        let claims = engine.jobs.claims_before_change(keyspace.id)?;
        let is_kept = |meta: &FileMeta| {
            meta.largest_sequence > oldest
                || claims.iter().any(|claim| claim.tables.contains(&meta.number))
        };
        let version = Arc::clone(&keyspace.view.load().version);
        let expired = expired_tables(&version.files, now, is_kept);
        entries = expired.iter().map(|(_, meta)| meta.entries).sum();
        let deleted = expired.iter().map(|(level, meta)| DeletedFile {
            keyspace: keyspace.id,
            level: *level,
            number: meta.number,
        });
        let edit = VersionEdit {
            deleted: deleted.collect(),
            expired_through: Some(now),
            ..VersionEdit::default()
        };
        Some(edit).filter(|edit| !edit.deleted.is_empty())
    };
    let removed = engine.catalog.apply(&mut NewTables::default(), removal)?;
    engine.context.counters.add(Counter::EntriesExpired, entries);
    Ok(removed)
}

/// The tables, with their levels, that may go at `now`. One that `is_kept` stays: a read may need
/// what it hides, or a compaction replaces it.
fn expired_tables(
    levels: &LevelFiles,
    now: u64,
    is_kept: impl Fn(&FileMeta) -> bool,
) -> Vec<(usize, Arc<FileMeta>)> {
    // From the oldest on: what goes itself is in nobody's way.
    let mut deeper: Vec<Vec<Arc<FileMeta>>> = Vec::new();
    let mut expired = Vec::new();
    for (level, tables) in levels.iter().enumerate().rev() {
        // Level 0 has its newest tables first. In any other level none overlaps another.
        let mut stay: Vec<Arc<FileMeta>> = Vec::new();
        for meta in tables.iter().rev() {
            let span = meta.span();
            let is_free = || {
                deeper.iter().all(|tables| overlapping_places(tables, &span).is_empty())
                    && (level > 0 || stay.iter().all(|older| !older.span().overlaps(&span)))
            };
            if meta.is_expired(now) && !is_kept(meta) && is_free() {
                expired.push((level, Arc::clone(meta)));
            } else {
                stay.push(Arc::clone(meta));
            }
        }
        stay.reverse();
        deeper.push(stay);
    }
    expired
}

/// Which tables the compaction worker has looked at since they expired.
#[derive(Debug, Default)]
pub(crate) struct ExpiryWatch {
    /// Tables that expired up to here were named to it.
    named_through: u64,
}

/// The answer of the watch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// Tables of these keyspaces have expired.
    Expired(Vec<KeyspaceId>),
    /// To look again after this time.
    Later(Duration),
    /// Nothing expires.
    Never,
}

impl ExpiryWatch {
    /// Looks at the tables of all keyspaces.
    pub(crate) fn look(&mut self, engine: &Engine) -> Watched {
        let all = engine.catalog.all_keyspaces();
        let tables = all.iter().flat_map(|keyspace| {
            let version = Arc::clone(&keyspace.view.load().version);
            let metas = version.tables().map(|handle| &handle.meta);
            let due = metas.filter(|meta| meta.is_mostly_expiring());
            due.map(|meta| (keyspace.id, meta.expiring.by)).collect::<Vec<_>>()
        });
        self.look_at(&tables.collect::<Vec<_>>(), job_time(&engine.context, &engine.catalog))
    }

    /// The same for tables of these keyspaces, by the times at which their last entries expire.
    fn look_at(&mut self, tables: &[(KeyspaceId, u64)], now: u64) -> Watched {
        let (mut expired, mut next, mut waits) = (Vec::new(), None, false);
        for &(keyspace, expires_by) in tables {
            if expires_by > now {
                next = Some(next.map_or(expires_by, |next: u64| next.min(expires_by)));
            } else if expires_by > self.named_through {
                expired.push(keyspace);
            } else {
                // It was named before and is still there: a snapshot may be in the way.
                waits = true;
            }
        }
        if !expired.is_empty() {
            self.named_through = now;
            expired.dedup();
            return Watched::Expired(expired);
        }
        match next {
            Some(next) => {
                Watched::Later(Duration::from_millis(next - now).clamp(WAIT_MIN, WAIT_MAX))
            }
            None if waits => Watched::Later(WAIT_MAX),
            None => Watched::Never,
        }
    }

    /// Names again what was named and is still there: called once in the longest wait.
    pub(crate) fn forget(&mut self) {
        self.named_through = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::testing::drawn_levels;

    #[test]
    fn expired_tables_wait_for_older_ones() {
        // Tables of 100 entries that expire by 50, sequences 1 to 10.
        let golden = [
            ("L1: 1[a..c]x100t50", 50, 10, "1"),
            ("L1: 1[a..c]x100t50", 49, 10, ""),
            ("L1: 1[a..c]x99t50", 50, 10, ""),
            ("L1: 1[a..c]x100t50r1", 50, 10, ""),
            // A snapshot may need what is under a newer table.
            ("L1: 1[a..c]x100t50", 50, 9, ""),
            ("L1: 1[a..c]x100t50\nL3: 2[c..d]", 50, 10, ""),
            ("L1: 1[a..c]x100t50\nL3: 2[d..e]", 50, 10, "1"),
            // An older one that goes as well is in nobody's way; a newer one never is.
            ("L1: 1[a..c]x100t50\nL3: 2[c..d]x100t40", 50, 10, "2 1"),
            ("L0: 3[a..c]^8 2[a..c]x100t50^4@7\nL1: 1[a..c]x100t50", 50, 10, "1 2"),
            ("L0: 3[a..c]x100t50^8 2[a..c]^4@7", 50, 10, ""),
            ("L2: 1[a..c]x100t50 2[d..f] 3[g..h]x100t50", 50, 10, "3 1"),
        ];
        for (drawing, now, oldest, expected) in golden {
            let is_kept = |meta: &FileMeta| meta.largest_sequence > oldest;
            let expired = expired_tables(&drawn_levels(drawing), now, is_kept);
            let numbers: Vec<_> = expired.iter().map(|(_, meta)| meta.number.to_string()).collect();
            assert_eq!(numbers.join(" "), expected, "{drawing}");
        }
    }

    #[test]
    fn a_worker_looks_once_at_each_expired_table() {
        let mut watch = ExpiryWatch::default();
        assert_eq!(watch.look_at(&[], 5), Watched::Never);
        let tables = [(0, 1_000), (1, 10_000), (1, 10_500), (2, 10_000_000)];
        assert_eq!(watch.look_at(&tables, 999), Watched::Later(WAIT_MIN));
        assert_eq!(watch.look_at(&tables, 1_000), Watched::Expired(vec![0]));
        let nine = Duration::from_secs(9);
        assert_eq!(watch.look_at(&tables, 1_000), Watched::Later(nine), "named once");
        assert_eq!(watch.look_at(&tables, 10_600), Watched::Expired(vec![1]));
        assert_eq!(watch.look_at(&tables, 10_600), Watched::Later(WAIT_MAX));
        assert_eq!(watch.look_at(&tables[..2], 10_600), Watched::Later(WAIT_MAX), "it waits");
        watch.forget();
        assert_eq!(watch.look_at(&tables[..2], 10_600), Watched::Expired(vec![0, 1]));
    }
}
