//! LevelDB's `CURRENT` and manifest: which tables and logs make up a database.
//!
//! A manifest is a record file of edits, and an edit is a list of fields, each a tag and its value.
//! A manifest that is cut short is an error: LevelDB itself must open that database once.

use crate::coding::Decoder;
use crate::error;
use crate::internal_key::{SEQUENCE_MAX, split};
use crate::leveldb::log::{LogReader, Step};
use siftdb::env::Env;
use siftdb::{Error, Result};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

/// The only order of keys that siftdb has.
const COMPARATOR: &[u8] = b"leveldb.BytewiseComparator";

/// More than the name of a manifest takes.
const CURRENT_BYTES_MAX: u64 = 64;
const LEVELS: usize = 7;

/// The facts of the manifest about a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableFacts {
    pub level: usize,
    pub bytes: u64,
    pub smallest: Vec<u8>,
    pub largest: Vec<u8>,
}

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

/// Reads `CURRENT`.
///
/// # Errors
/// `Io`; `Corruption` if it is too long for the name of a manifest.
pub(crate) fn read_current(env: &dyn Env, directory: &Path) -> Result<Vec<u8>> {
    let path = directory.join("CURRENT");
    let file = env.open_random(&path).map_err(|source| error::io("open", &path, source))?;
    let bytes = file.len().map_err(|source| error::io("read", &path, source))?;
    if bytes > CURRENT_BYTES_MAX {
        let what = format!("the file has {bytes} bytes, expected at most {CURRENT_BYTES_MAX}");
        return Err(error::corruption(&path, CURRENT_BYTES_MAX, what));
    }
    let mut contents = vec![0; bytes as usize];
    file.read_exact_at(0, &mut contents).map_err(|source| error::io("read", &path, source))?;
    Ok(contents)
}

/// Reads `CURRENT` and the manifest that it names.
///
/// # Errors
/// `Io` if there is no `CURRENT`; `Corruption`; `UnsupportedFormat` for a comparator
/// other than LevelDB's own, and for a manifest of RocksDB.
pub(crate) fn read_manifest(env: &dyn Env, directory: &Path) -> Result<Manifest> {
    let current = directory.join("CURRENT");
    let contents = read_current(env, directory)?;
    let name = std::str::from_utf8(&contents).ok().and_then(|text| text.strip_suffix('\n'));
    let number = name.and_then(|name| name.strip_prefix("MANIFEST-"));
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let Some(number) = number.filter(is_number) else {
        return Err(error::corruption(&current, 0, "it does not name a manifest"));
    };
    let path = directory.join(format!("MANIFEST-{number}"));
    let mut reader = match LogReader::open(env, &path) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            let what = format!("it names MANIFEST-{number}, which is not there");
            return Err(error::corruption(&current, 0, what));
        }
        opened => opened?,
    };
    let mut manifest = Manifest::default();
    loop {
        match reader.step()? {
            Step::Record { offset, bytes } => manifest.apply(&bytes, &path, offset)?,
            Step::Bad { offset, what } => return Err(error::corruption(&path, offset, what)),
            Step::End if manifest.has_comparator => return Ok(manifest),
            Step::End => return Err(error::corruption(&path, 0, "it has no edits")),
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
            match tag.and_then(|tag| self.apply_field(tag, &mut decoder)) {
                Some(Field::Known) => {}
                Some(Field::Refused(what)) => {
                    return Err(error::unsupported(path, what));
                }
                None => return Err(error::corruption(path, offset, "a malformed edit")),
            }
        }
        Ok(())
    }

    /// `None` if the field is malformed.
    fn apply_field(&mut self, tag: u32, decoder: &mut Decoder<'_>) -> Option<Field> {
        match tag {
            1 => {
                let comparator = decoder.length_prefixed()?;
                self.has_comparator = true;
                if comparator != COMPARATOR {
                    let name = String::from_utf8_lossy(comparator);
                    let what = format!("keys in the order of {name:?}; siftdb orders bytewise");
                    return Some(Field::Refused(what));
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
                self.tables.insert(number, TableFacts { level, bytes, smallest, largest });
            }
            9 => self.previous_log = decoder.varint()?,
            _ => {
                let what = format!("a field {tag}, which LevelDB does not write; RocksDB may");
                return Some(Field::Refused(what));
            }
        }
        Some(Field::Known)
    }
}

/// The kind of a field of an edit.
enum Field {
    Known,
    Refused(String),
}

fn level(decoder: &mut Decoder<'_>) -> Option<usize> {
    decoder.varint32().map(|level| level as usize).filter(|&level| level < LEVELS)
}
