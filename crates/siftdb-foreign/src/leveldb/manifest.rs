//! LevelDB's `CURRENT` and manifest: which tables and logs make up a database.
//!
//! A manifest is a record file of edits, and an edit is a list of fields, each a tag and its value.
//! A manifest that is cut short is an error: LevelDB itself must open that database once.

use crate::coding::Decoder;
use crate::current::open_manifest;
use crate::error;
use crate::internal_key::{SEQUENCE_MAX, split};
use crate::key_order::KeyOrder;
use crate::log::Step;
use crate::run::TableFacts;
use crate::store::Store;
use siftdb::Result;
use siftdb::env::Env;
use std::collections::BTreeMap;
use std::path::Path;

const LEVELS: usize = 7;

/// The contents of a manifest, with all its edits applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// By number.
    pub tables: BTreeMap<u64, TableFacts>,
    /// Logs below this number are in tables.
    pub log_number: u64,
    /// An older log that is needed, too; 0 for none.
    pub previous_log: u64,
    pub last_sequence: u64,
    has_comparator: bool,
}

/// Reads `CURRENT` and the manifest that it names.
///
/// # Errors
/// `Io` if there is no `CURRENT`; `Corruption`; `UnsupportedFormat` for a comparator
/// other than LevelDB's own, and for a manifest of RocksDB.
pub(crate) fn read_manifest(env: &dyn Env, directory: &Path) -> Result<Manifest> {
    let (path, mut reader) = open_manifest(env, directory, Store::LevelDb)?;
    let mut manifest = Manifest::default();
    loop {
        match reader.step()? {
            Step::Record { offset, bytes } => manifest.apply(&bytes, &path, offset)?,
            Step::Bad { offset, what, .. } => return Err(error::corruption(&path, offset, what)),
            Step::End if manifest.has_comparator => return Ok(manifest),
            Step::End | Step::Compressed => {
                return Err(error::corruption(&path, 0, "it has no edits"));
            }
        }
    }
}

impl Manifest {
    /// Whether the log has entries that are in no table.
    pub(crate) fn needs_log(&self, number: u64) -> bool {
        number >= self.log_number || number == self.previous_log
    }

    fn apply(&mut self, edit: &[u8], path: &Path, offset: u64) -> Result<()> {
        let mut decoder = Decoder::new(edit);
        while !decoder.is_empty() {
            let tag = decoder.varint32();
            let Some(applied) = tag.and_then(|tag| self.apply_field(tag, &mut decoder)) else {
                return Err(error::corruption(path, offset, "a malformed edit"));
            };
            applied.map_err(|what| error::unsupported(path, what))?;
        }
        Ok(())
    }

    /// `None` if the field is malformed. The error says what is not supported.
    fn apply_field(
        &mut self,
        tag: u32,
        decoder: &mut Decoder<'_>,
    ) -> Option<std::result::Result<(), String>> {
        match tag {
            1 => {
                let comparator = decoder.length_prefixed()?;
                self.has_comparator = true;
                if comparator != KeyOrder::Bytewise.name().as_bytes() {
                    let name = String::from_utf8_lossy(comparator);
                    let what = format!("keys in the order of {name:?}; siftdb orders bytewise");
                    return Some(Err(what));
                }
            }
            2 => self.log_number = decoder.varint()?,
            // The next file number, which only a writer needs.
            3 => _ = decoder.varint()?,
            4 => {
                let sequence = decoder.varint()?;
                self.last_sequence = Some(sequence).filter(|&s| s <= SEQUENCE_MAX)?;
            }
            // Where the next compaction of a level begins.
            5 => {
                level(decoder)?;
                decoder.length_prefixed()?;
            }
            6 => {
                level(decoder)?;
                self.tables.remove(&decoder.varint()?)?;
            }
            7 => {
                let (level, number, bytes) =
                    (level(decoder)?, decoder.varint()?, decoder.varint()?);
                let mut key = || {
                    let key = decoder.length_prefixed()?;
                    split(key).map(|_| key.to_vec())
                };
                let (smallest, largest) = (key()?, key()?);
                self.tables.insert(
                    number,
                    TableFacts { level, bytes, smallest, largest, ..TableFacts::default() },
                );
            }
            9 => self.previous_log = decoder.varint()?,
            _ => {
                let what = format!("a field {tag}, which LevelDB does not write; RocksDB may");
                return Some(Err(what));
            }
        }
        Some(Ok(()))
    }
}

fn level(decoder: &mut Decoder<'_>) -> Option<usize> {
    decoder.varint32().map(|level| level as usize).filter(|&level| level < LEVELS)
}
