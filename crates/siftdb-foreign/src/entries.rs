//! The live entries of a database or column family: of each key the newest version, unless it is a
//! deletion or a newer range delete covers it. Operands of a merge count down to the next value or
//! deletion.

use crate::error;
use crate::internal_key::split;
use crate::merge::Merge;
use crate::merged::MergedRuns;
use crate::range_deletes::RangeDeletes;
use crate::refused::refuse_kind;
use crate::store::{EntryKind, Store};
use siftdb::Result;
use std::path::PathBuf;

/// The bytes after a value with a time.
const TIME_BYTES: usize = 8;

/// The live entries of a [`LevelDb`](crate::LevelDb) or of a column family of a
/// [`RocksDb`](crate::RocksDb), key by key. Ends after an error.
#[derive(Debug)]
pub struct Entries {
    /// The database, for errors.
    directory: PathBuf,
    runs: MergedRuns,
    range_deletes: RangeDeletes,
    merge: Option<Merge>,
    /// The user key of the entry before. Further entries of this key are old versions.
    last_key: Option<Vec<u8>>,
    /// `runs` is at an entry that is still to be read.
    is_ahead: bool,
    is_over: bool,
}

/// A version of a key.
enum Version {
    Value(Vec<u8>),
    Deleted,
    Operand(Vec<u8>),
}

impl Entries {
    pub(crate) fn new(
        directory: PathBuf,
        runs: MergedRuns,
        range_deletes: RangeDeletes,
        merge: Option<Merge>,
    ) -> Self {
        let (last_key, is_ahead, is_over) = (None, false, false);
        Entries { directory, runs, range_deletes, merge, last_key, is_ahead, is_over }
    }

    /// Moves to the newest version of the next key that is live.
    fn advance(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        while std::mem::take(&mut self.is_ahead) || self.runs.next()? {
            if self.is_old_version() {
                continue;
            }
            let (key, _) = split(self.runs.key()).unwrap_or_default();
            let key = key.to_vec();
            self.last_key = Some(key.clone());
            match self.version()? {
                Version::Deleted => {}
                Version::Value(value) => return Ok(Some((key, value))),
                Version::Operand(newest) => {
                    let value = self.merged(newest)?;
                    return Ok(Some((key, value)));
                }
            }
        }
        Ok(None)
    }

    fn is_old_version(&self) -> bool {
        let (key, _) = split(self.runs.key()).unwrap_or_default();
        self.last_key.as_deref() == Some(key)
    }

    /// The version that `runs` is at.
    fn version(&mut self) -> Result<Version> {
        let (key, trailer) = split(self.runs.key()).unwrap_or_default();
        if self.range_deletes.covers(key, trailer) {
            return Ok(Version::Deleted);
        }
        let value = self.runs.value();
        let wrong = |what: &str| Err(error::corruption(&self.directory, 0, what));
        Ok(match EntryKind::of_number(Store::RocksDb, trailer as u8) {
            Some(EntryKind::Deletion | EntryKind::SingleDeletion) => Version::Deleted,
            Some(EntryKind::Value) => Version::Value(value.to_vec()),
            Some(EntryKind::ValueWithTime) => match value.len().checked_sub(TIME_BYTES) {
                Some(end) => Version::Value(value[..end].to_vec()),
                None => return wrong("a value without its time"),
            },
            Some(EntryKind::Merge) if self.merge.is_some() => Version::Operand(value.to_vec()),
            Some(kind) => return Err(refuse_kind(kind, &self.directory)),
            None => return wrong("an entry of an unknown kind"),
        })
    }

    /// The value of the key whose newest version is the operand `newest`.
    fn merged(&mut self, newest: Vec<u8>) -> Result<Vec<u8>> {
        let (mut operands, mut base) = (vec![newest], None);
        while self.runs.next()? {
            if !self.is_old_version() {
                self.is_ahead = true;
                break;
            }
            match self.version()? {
                Version::Operand(operand) => {
                    operands.push(operand);
                    continue;
                }
                Version::Value(value) => base = Some(value),
                Version::Deleted => {}
            }
            break;
        }
        let Some(merge) = &self.merge else { return Ok(Vec::new()) };
        Ok(merge.value(base, operands.into_iter().rev()))
    }
}

impl Iterator for Entries {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.advance().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}
