//! [`FollowedManifest`]: a manifest that another process may append to, read piece by piece.
//!
//! [`read_on`](FollowedManifest::read_on) applies the edits that were appended since the last call
//! and reads nothing else. A last record that does not decode is the writer at work: each edit is
//! durable before the next one begins, so nothing valid comes after it. If something does, the
//! place is read once more, and then it is damage. An edit that was complete and is damaged now is
//! not noticed here; the logs know how long the manifest was (`log::wal::consistency`).

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::sync::Arc;
use crate::env::api::{Env, FileId, Metadata};
use crate::log::record::format::FILE_HEADER_BYTES;
use crate::tree::manifest::ManifestCursor;
use crate::tree::manifest_state::ManifestState;
use std::path::Path;

/// A manifest as far as it was read.
#[derive(Debug)]
pub(crate) struct FollowedManifest {
    env: Arc<dyn Env>,
    /// The file that was opened: another one under the same name is another history.
    file: FileId,
    cursor: ManifestCursor,
}

impl FollowedManifest {
    /// Reads manifest `number` as far as it goes now.
    ///
    /// # Errors
    /// `Io`, of the kind `NotFound` if it is not there; `Corruption`; `UnsupportedFormat`.
    pub(crate) fn open(env: &Arc<dyn Env>, directory: &Path, number: u64) -> Result<Self> {
        let path = FileName::Manifest(number).path(directory);
        let cursor = ManifestCursor::open(&**env, &path, number)?;
        let file = metadata(&**env, &path)?.id;
        let mut manifest = FollowedManifest { env: Arc::clone(env), file, cursor };
        manifest.read_on()?;
        Ok(manifest)
    }

    /// The number in its name.
    pub(crate) fn number(&self) -> u64 {
        self.cursor.replay.state.facts.number
    }

    /// Where the last edit ends.
    pub(crate) fn bytes(&self) -> u64 {
        self.cursor.replay.state.facts.bytes.max(FILE_HEADER_BYTES as u64)
    }

    /// The first log that it needs. The writer may have removed the logs before.
    pub(crate) fn needed_log(&self) -> u64 {
        self.cursor.replay.state.facts.log_number
    }

    /// How many keyspaces it created and dropped so far.
    pub(crate) fn keyspace_changes(&self) -> u64 {
        self.cursor.replay.keyspace_changes
    }

    /// Its contents so far.
    ///
    /// # Errors
    /// `Corruption`: tables of a level overlap.
    pub(crate) fn state(&self) -> Result<ManifestState> {
        let finished = self.cursor.replay.clone().finish();
        finished.map_err(|bad| bad.into_error(&self.cursor.path, self.bytes()))
    }

    /// True if the file is still the one that was opened, and not shorter than it was.
    ///
    /// # Errors
    /// `Io`, of the kind `NotFound` if it is not there.
    pub(crate) fn is_in_place(&self) -> Result<bool> {
        let metadata = metadata(&*self.env, &self.cursor.path)?;
        Ok(metadata.id == self.file && metadata.bytes >= self.bytes())
    }

    /// Applies the edits that were appended since the last call; true if there are any.
    ///
    /// # Errors
    /// `Io`; `Corruption`; `UnsupportedFormat`.
    pub(crate) fn read_on(&mut self) -> Result<bool> {
        let edits_before = self.cursor.replay.edits;
        let mut suspect = None;
        while let Some((offset, what)) = self.read_edits()? {
            // The reader may have been there before the writer, and after it a moment later.
            if suspect == Some(offset) {
                return Err(Error::corruption(&self.cursor.path, offset, what));
            }
            suspect = Some(offset);
        }
        Ok(self.cursor.replay.edits > edits_before)
    }

    /// Applies the edits up to the end, or to a bad place, which it returns. The writer at work is
    /// an end.
    fn read_edits(&mut self) -> Result<Option<(u64, String)>> {
        self.cursor.reload()?;
        Ok(match self.cursor.apply_edits()? {
            Some((bad, false)) => Some((bad.offset, bad.what)),
            None if self.cursor.replay.edits == 0 => {
                Some((self.bytes(), "it has no snapshot".into()))
            }
            _ => None,
        })
    }
}

fn metadata(env: &dyn Env, path: &Path) -> Result<Metadata> {
    env.metadata(path).map_err(|error| Error::io("metadata", path, error))
}
