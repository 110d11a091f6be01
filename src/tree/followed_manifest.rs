//! [`FollowedManifest`]: a manifest that another process may append to, read piece by piece.
//!
//! [`read_on`](FollowedManifest::read_on) applies the edits that were appended since the last call
//! and reads nothing else. A last record that does not decode is the writer at work: each edit is
//! durable before the next one begins, so nothing valid comes after it. If something does, the
//! place is read once more, and then it is damage. An edit that was complete and is damaged now is
//! not noticed here; the logs know how long the manifest was (`log::wal::consistency`).

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::KeyspaceId;
use crate::base::sync::Arc;
use crate::env::api::{Env, FileId};
use crate::log::record::format::{FILE_HEADER_BYTES, HeaderState, RecordFile};
use crate::log::record::reader::{RecordReader, Step};
use crate::tree::edit::VersionEdit;
use crate::tree::manifest::{ManifestState, Replay, open_manifest};
use std::path::{Path, PathBuf};

/// A manifest as far as it was read.
#[derive(Debug)]
pub(crate) struct FollowedManifest {
    env: Arc<dyn Env>,
    path: PathBuf,
    /// The file that was opened: another one under the same name is another history.
    file: FileId,
    reader: RecordReader,
    replay: Replay,
}

impl FollowedManifest {
    /// Reads manifest `number` as far as it goes now.
    ///
    /// # Errors
    /// `Io`, of the kind `NotFound` if it is not there; `Corruption`; `UnsupportedFormat`.
    pub(crate) fn open(env: &Arc<dyn Env>, directory: &Path, number: u64) -> Result<Self> {
        let path = FileName::Manifest(number).path(directory);
        let mut reader = open_manifest(&**env, &path, number)?;
        match reader.header(RecordFile::Manifest)? {
            HeaderState::Good => {}
            // Header and snapshot were durable before CURRENT named them.
            HeaderState::Torn => {
                return Err(Error::corruption(&path, 0, "the file header is missing"));
            }
            HeaderState::Bad(bad) => return Err(bad.into_error(&path, 0)),
        }
        let file = file_at(&**env, &path)?;
        let mut replay = Replay::default();
        replay.state.facts.number = number;
        replay.state.facts.bytes = FILE_HEADER_BYTES as u64;
        let env = Arc::clone(env);
        let mut manifest = FollowedManifest { env, path, file, reader, replay };
        manifest.read_on()?;
        Ok(manifest)
    }

    /// The number in its name.
    pub(crate) fn number(&self) -> u64 {
        self.replay.state.facts.number
    }

    /// Where the last edit ends.
    pub(crate) fn bytes(&self) -> u64 {
        self.replay.state.facts.bytes
    }

    /// The first log that it needs. The writer may have removed the logs before.
    pub(crate) fn needed_log(&self) -> u64 {
        self.replay.state.facts.log_number
    }

    /// The numbers of the keyspaces that it has so far.
    pub(crate) fn keyspaces(&self) -> impl Iterator<Item = &KeyspaceId> {
        self.replay.state.keyspaces.keys()
    }

    /// Its contents so far.
    ///
    /// # Errors
    /// `Corruption`: tables of a level overlap.
    pub(crate) fn state(&self) -> Result<ManifestState> {
        let finished = self.replay.clone().finish();
        finished.map_err(|bad| bad.into_error(&self.path, self.bytes()))
    }

    /// True if the file is still the one that was opened, and not shorter than it was.
    ///
    /// # Errors
    /// `Io`, of the kind `NotFound` if it is not there.
    pub(crate) fn is_in_place(&self) -> Result<bool> {
        let metadata = self.env.metadata(&self.path);
        let metadata = metadata.map_err(|error| Error::io("metadata", &self.path, error))?;
        Ok(metadata.id == self.file && metadata.bytes >= self.bytes())
    }

    /// Applies the edits that were appended since the last call; true if there are any.
    ///
    /// # Errors
    /// `Io`; `Corruption`; `UnsupportedFormat`.
    pub(crate) fn read_on(&mut self) -> Result<bool> {
        let edits_before = self.replay.edits;
        let mut suspect = None;
        while let Some((offset, what)) = self.read_edits()? {
            // The reader may have been there before the writer, and after it a moment later.
            if suspect == Some(offset) {
                return Err(Error::corruption(&self.path, offset, what));
            }
            suspect = Some(offset);
        }
        Ok(self.replay.edits > edits_before)
    }

    /// Applies the edits up to the end, or to a bad place, which it returns. The writer at work is
    /// an end.
    fn read_edits(&mut self) -> Result<Option<(u64, String)>> {
        self.reader.reload(self.bytes())?;
        loop {
            let bad = match self.reader.step()? {
                Step::Record(record) => {
                    VersionEdit::decode(record.payload)
                        .and_then(|edit| self.replay.apply(edit))
                        .map_err(|bad| bad.into_error(&self.path, record.start))?;
                    self.replay.state.facts.bytes = record.end;
                    continue;
                }
                Step::Bad(bad) => bad,
                Step::End if self.replay.edits > 0 => return Ok(None),
                Step::End => return Ok(Some((self.bytes(), "it has no snapshot".into()))),
            };
            // The snapshot was durable before CURRENT named the manifest.
            let is_tail = matches!(self.reader.step()?, Step::End) && self.replay.edits > 0;
            return Ok((!is_tail).then_some((bad.offset, bad.what)));
        }
    }
}

fn file_at(env: &dyn Env, path: &Path) -> Result<FileId> {
    let metadata = env.metadata(path).map_err(|error| Error::io("metadata", path, error))?;
    Ok(metadata.id)
}
