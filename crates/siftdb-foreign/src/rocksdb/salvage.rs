//! What a RocksDB database has if its manifest is lost: every table in its directory.
//!
//! Each table names its column family and is taken as a table of level 0. All logs are needed then.
//! Without the manifest nothing says which tables compactions replaced, so deleted keys and older
//! values may return. A range delete holds for the keys of its own table only: beyond them, entries
//! may be newer than their sequence numbers say, as compactions set those to 0.

use crate::damage::Damage;
use crate::error;
use crate::files::Files;
use crate::key_order::KeyOrder;
use crate::rocksdb::manifest::{FamilyFacts, Manifest};
use crate::rocksdb::table;
use crate::run::TableFacts;
use siftdb::env::Env;
use siftdb::{Error, Result};
use std::path::Path;

/// The manifest that has all tables.
///
/// # Errors
/// `Io`, `UnsupportedFormat`; `Corruption` unless damage is noted.
pub(crate) fn manifest_of_tables(
    env: &dyn Env,
    files: &Files,
    damage: &Damage,
) -> Result<Manifest> {
    let mut manifest = Manifest { is_made_up: true, ..Manifest::empty() };
    for (number, path) in &files.tables {
        add(&mut manifest, env, *number, path).or_else(|error| damage.pass(error))?;
    }
    Ok(manifest)
}

fn add(manifest: &mut Manifest, env: &dyn Env, number: u64, path: &Path) -> Result<()> {
    let (table, rocks) = match table::open(env, path, KeyOrder::Bytewise) {
        Err(Error::UnsupportedFormat { .. }) => table::open(env, path, KeyOrder::Reverse)?,
        opened => opened?,
    };
    let properties = &rocks.properties;
    let family = properties.number("rocksdb.column.family.id");
    let family = family.and_then(|id| u32::try_from(id).ok());
    let name = properties.bytes("rocksdb.column.family.name").filter(|name| !name.is_empty());
    let (Some(family), Some(name)) = (family, name) else {
        let what = "nothing says which column family has this table, which was made outside";
        return Err(error::corruption(path, rocks.properties_at.offset, what));
    };
    let order = table.style.order.name().as_bytes().to_vec();
    let new = || FamilyFacts { name: name.into(), ..FamilyFacts::default() };
    let facts = manifest.families.entry(family).or_insert_with(new);
    facts.comparator = order;
    // A table with range deletes alone has no ends.
    let (smallest, largest) = table.ends()?.unwrap_or_default();
    let bytes = table.file.bytes;
    let found = TableFacts { bytes, smallest, largest, ..TableFacts::default() };
    facts.tables.insert(number, found);
    Ok(())
}
