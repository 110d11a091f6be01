//! RocksDB's manifest: column families, and the tables and logs of each.
//!
//! A manifest is a record file of edits, and an edit is a list of fields, each a tag and its value.
//! An edit belongs to one column family. Edits of a group count together or not at all. A manifest
//! that is cut short is an error: RocksDB itself must open that database once. Salvage takes it as
//! it was before the damage.
//!
//! Format: RocksDB's `db/version_edit.cc`, versions 5 to 11.

use crate::coding::{Decoder, get_u64};
use crate::current::open_manifest;
use crate::damage::Damage;
use crate::error;
use crate::internal_key::{SEQUENCE_MAX, split};
use crate::log::Step;
use crate::run::TableFacts;
use crate::store::Store;
use siftdb::Result;
use siftdb::env::Env;
use std::collections::BTreeMap;
use std::path::Path;

/// More levels than any database has.
const LEVELS_MAX: u32 = 1 << 10;

/// The bit of tags that a reader need not know. Their fields begin with a length.
const IGNORABLE: u32 = 1 << 13;

/// The bit of tags of a table that a reader must know.
const MUST_BE_KNOWN: u32 = 1 << 6;

/// The tag of a path besides the first, which is where `OPTIONS` does not say.
const PATH: u32 = 65;

/// What the manifest says about a column family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FamilyFacts {
    pub name: Vec<u8>,
    /// The name of the order of its keys.
    pub comparator: Vec<u8>,
    /// By number.
    pub tables: BTreeMap<u64, TableFacts>,
    /// Logs below this number are in tables.
    pub log_number: u64,
}

/// The contents of a manifest, with all its edits applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// By number. 0 is `default`, which is always there.
    pub families: BTreeMap<u32, FamilyFacts>,
    /// Logs below this number are needed by no column family.
    pub first_log: u64,
    /// It was lost, and made of what tables say. There may be other column families.
    pub is_made_up: bool,
}

/// An edit.
#[derive(Debug, Default)]
struct Edit {
    family: u32,
    added: Option<Vec<u8>>,
    is_dropped: bool,
    comparator: Option<Vec<u8>>,
    log_number: Option<u64>,
    first_log: Option<u64>,
    deleted: Vec<u64>,
    tables: Vec<(u64, TableFacts)>,
    /// How many edits of its group follow.
    group_rest: Option<u32>,
}

/// Reads `CURRENT` and the manifest that it names.
///
/// # Errors
/// `Io` if there is no `CURRENT`; `Corruption`, unless damage is noted and there are edits before
/// it; `UnsupportedFormat` for fields that RocksDB 11 does not write and that must be known.
pub(crate) fn read_manifest(env: &dyn Env, directory: &Path, damage: &Damage) -> Result<Manifest> {
    let (path, mut reader) = open_manifest(env, directory, Store::RocksDb)?;
    let mut manifest = Manifest::empty();
    let mut group = Vec::new();
    let mut is_empty = true;
    loop {
        match reader.step()? {
            Step::Record { offset, bytes } => {
                let wrong = |what: &str| error::corruption(&path, offset, what);
                let edit = match Edit::read(&bytes) {
                    Ok(edit) => edit.ok_or_else(|| wrong("a malformed edit"))?,
                    Err(what) => return Err(error::unsupported(&path, what)),
                };
                let rest = edit.group_rest.unwrap_or(0);
                group.push(edit);
                if rest > 0 {
                    continue;
                }
                for edit in group.drain(..) {
                    manifest.apply(edit).map_err(wrong)?;
                }
                is_empty = false;
            }
            Step::Bad { offset, what, .. } => {
                let error = error::corruption(&path, offset, what);
                if is_empty {
                    return Err(error);
                }
                return damage.pass(error).map(|()| manifest);
            }
            Step::Compressed => return Err(error::unsupported(&path, "a compressed manifest")),
            Step::End if is_empty => return Err(error::corruption(&path, 0, "it has no edits")),
            Step::End => return Ok(manifest),
        }
    }
}

impl Manifest {
    /// That of an empty database.
    pub(crate) fn empty() -> Self {
        let default = FamilyFacts { name: b"default".to_vec(), ..FamilyFacts::default() };
        Manifest { families: BTreeMap::from([(0, default)]), first_log: 0, is_made_up: false }
    }

    /// The first log that is needed. If transactions may be committed later than they are prepared,
    /// an older log may have their operations.
    pub(crate) fn first_needed_log(&self, may_commit_late: bool) -> u64 {
        let unflushed = self.families.values().map(|family| family.log_number).min();
        if may_commit_late { self.first_log } else { self.first_log.max(unflushed.unwrap_or(0)) }
    }

    /// Applies an edit. The error says what is wrong.
    fn apply(&mut self, edit: Edit) -> std::result::Result<(), &'static str> {
        if let Some(name) = edit.added {
            let added = FamilyFacts { name, ..FamilyFacts::default() };
            if self.families.insert(edit.family, added).is_some() {
                return Err("a column family that is there already");
            }
        }
        self.first_log = self.first_log.max(edit.first_log.unwrap_or(0));
        if edit.is_dropped {
            let dropped = self.families.remove(&edit.family);
            return dropped.map(drop).ok_or("a column family that is not there");
        }
        let Some(family) = self.families.get_mut(&edit.family) else {
            return Err("a column family that is not there");
        };
        family.comparator =
            edit.comparator.unwrap_or_else(|| std::mem::take(&mut family.comparator));
        family.log_number = family.log_number.max(edit.log_number.unwrap_or(0));
        for number in &edit.deleted {
            if family.tables.remove(number).is_none() {
                return Err("a table that is not there");
            }
        }
        family.tables.extend(edit.tables);
        Ok(())
    }
}

impl Edit {
    /// The edit in `bytes`; `None` if it is malformed. The error says what is not supported.
    fn read(bytes: &[u8]) -> std::result::Result<Option<Self>, String> {
        let mut edit = Edit::default();
        let mut decoder = Decoder::new(bytes);
        while !decoder.is_empty() {
            let Some(tag) = decoder.varint32() else { return Ok(None) };
            match edit.read_field(tag, &mut decoder) {
                Some(Field::Known) => {}
                Some(Field::Unknown) => return Err(format!("a field {tag} of the manifest")),
                None => return Ok(None),
            }
        }
        Ok(Some(edit))
    }

    /// `None` if the field is malformed.
    fn read_field(&mut self, tag: u32, decoder: &mut Decoder<'_>) -> Option<Field> {
        match tag {
            1 => self.comparator = Some(decoder.length_prefixed()?.to_vec()),
            2 => self.log_number = Some(decoder.varint()?),
            // The next number of a file, and the log before: RocksDB writes 0.
            3 | 9 => _ = decoder.varint()?,
            // The last sequence number, as of the edit; logs may be ahead.
            4 => _ = sequence(decoder)?,
            // Where the next compaction of a level begins.
            5 => {
                level(decoder)?;
                decoder.length_prefixed()?;
            }
            6 => {
                level(decoder)?;
                self.deleted.push(decoder.varint()?);
            }
            7 | 100 | 102 | 103 => return self.read_table(tag, decoder),
            10 => self.first_log = Some(decoder.varint()?),
            200 => self.family = decoder.varint32()?,
            201 => self.added = Some(decoder.length_prefixed()?.to_vec()),
            202 => self.is_dropped = true,
            // The largest number of a column family.
            203 => _ = decoder.varint32()?,
            300 => self.group_rest = Some(decoder.varint32()?),
            // A blob file, and garbage in one. Tables that need them say so.
            400 | 8194 => read_blob_file(decoder, true)?,
            401 | 8195 => read_blob_file(decoder, false)?,
            // Logs, in the form without a length.
            8196 => read_log(decoder)?,
            8197 => _ = decoder.varint()?,
            tag if tag & IGNORABLE != 0 => _ = decoder.length_prefixed()?,
            _ => return Some(Field::Unknown),
        }
        Some(Field::Known)
    }

    /// A table, in the forms of all versions.
    fn read_table(&mut self, tag: u32, decoder: &mut Decoder<'_>) -> Option<Field> {
        let (level, number) = (level(decoder)?, decoder.varint()?);
        if tag == 102 {
            // The path.
            decoder.varint32()?;
        }
        let bytes = decoder.varint()?;
        let mut key = || decoder.length_prefixed().filter(|key| split(key).is_some());
        let (smallest, largest) = (key()?.to_vec(), key()?.to_vec());
        let mut facts = TableFacts { level, bytes, smallest, largest, ..TableFacts::default() };
        if tag != 7 {
            sequence(decoder)?;
            facts.largest_sequence = Some(sequence(decoder)?).filter(|&last| last < SEQUENCE_MAX);
        }
        if tag == 103 && matches!(self.read_table_fields(&mut facts, decoder)?, Field::Unknown) {
            return Some(Field::Unknown);
        }
        self.tables.push((number, facts));
        Some(Field::Known)
    }

    /// The fields of a table that not every version has.
    fn read_table_fields(
        &mut self,
        facts: &mut TableFacts,
        decoder: &mut Decoder<'_>,
    ) -> Option<Field> {
        loop {
            let tag = decoder.varint32()?;
            if tag == 1 {
                return Some(Field::Known);
            }
            let field = decoder.length_prefixed()?;
            match tag {
                3 => self.first_log = Some(get_u64(field, 0)?),
                4 => facts.has_blobs = Decoder::new(field).varint()? != 0,
                tag if tag & MUST_BE_KNOWN != 0 && tag != PATH => return Some(Field::Unknown),
                _ => {}
            }
        }
    }
}

/// The kind of a field of an edit.
enum Field {
    Known,
    Unknown,
}

fn level(decoder: &mut Decoder<'_>) -> Option<usize> {
    decoder.varint32().filter(|&level| level < LEVELS_MAX).map(|level| level as usize)
}

fn sequence(decoder: &mut Decoder<'_>) -> Option<u64> {
    decoder.varint().filter(|&sequence| sequence <= SEQUENCE_MAX)
}

/// Passes a blob file: number, count and bytes; of a new one the checksum, too; then other fields.
fn read_blob_file(decoder: &mut Decoder<'_>, is_new: bool) -> Option<()> {
    for _ in 0..3 {
        decoder.varint()?;
    }
    if is_new {
        decoder.length_prefixed()?;
        decoder.length_prefixed()?;
    }
    while decoder.varint32()? != 0 {
        decoder.length_prefixed()?;
    }
    Some(())
}

/// Passes a log: its number, and its length if that is known.
fn read_log(decoder: &mut Decoder<'_>) -> Option<()> {
    decoder.varint()?;
    while decoder.varint32()? != 1 {
        decoder.varint()?;
    }
    Some(())
}
