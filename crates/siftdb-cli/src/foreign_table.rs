//! `siftdb sst layout|dump|verify` of a single table of LevelDB or RocksDB, which its last bytes
//! tell from a table of siftdb.

use crate::described::result;
use crate::failure::Outcome;
use crate::json::{Bytes, bytes_entry};
use crate::output::{Output, Shown};
use crate::text::{counted, counted_entries};
use serde_json::json;
use siftdb::Error;
use siftdb::env::DiskEnv;
use siftdb_foreign::{EntryKind, ForeignTable, PropertyValue, TableCounts, TableItem, TablePart};
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// The most bytes of a value that are printed as text.
const VALUE_BYTES_MAX: usize = 64;

/// True if the file is such a table.
pub fn is_at(path: &Path) -> bool {
    ForeignTable::is_at(&DiskEnv::new(), path)
}

/// Opens such a table.
pub fn open(path: &Path) -> Outcome<ForeignTable> {
    Ok(ForeignTable::open(&(Arc::new(DiskEnv::new()) as _), path)?)
}

result! {
    /// Of a table of LevelDB or RocksDB:
    pub struct Layout of table: &ForeignTable {
        #[serde(flatten)] facts: Facts = Facts::of(table);
        /// of RocksDB: name, and number or value
        properties: Vec<Property> = Vec::new();
        /// in the order of the text:
        parts: Vec<Part> = Vec::new();
    }

    pub struct Facts of table: &ForeignTable {
        /// leveldb or rocksdb
        store: &'static str = table.store();
        /// length of the file
        bytes: u64 = table.bytes();
        /// none, CRC-32C, xxHash, xxHash64 or XXH3
        checksum: &'static str = table.checksum();
        format_version: Option<u32> = table.format_version();
        /// of RocksDB, else null
        index_type: Option<&'static str> = table.index_type();
    }

    pub struct Property {
        #[serde(flatten)] name: Bytes;
        #[serde(skip_serializing_if = "Option::is_none")] number: Option<u64>;
        /// one of number and value
        #[serde(flatten)] value: Option<Bytes>;
    }
}

impl Property {
    fn of(name: &[u8], value: PropertyValue<'_>) -> Self {
        let (number, value) = match value {
            PropertyValue::Number(number) => (Some(number), None),
            PropertyValue::Bytes(bytes) => (None, Some(Bytes::new("value", bytes))),
        };
        Property { name: Bytes::new("name", name), number, value }
    }
}

result! {
    pub struct Part of part: &TablePart<'_> {
        /// such as data, filter, index or footer
        kind: &'static str;
        /// with checksum
        offset, bytes: u64;
        /// none, snappy, ..., or empty
        compression: &'static str;
        /// its name in the metaindex, or empty
        #[serde(flatten)] name: Bytes = Bytes::new("name", part.name);
        /// a key at or above all of the part, if it has one
        #[serde(flatten)] separator: Option<Bytes> =
            part.separator.map(|key| Bytes::new("separator", key));
    }
}

/// Prints what the table consists of.
pub fn layout(path: &Path, output: Output) -> Outcome<Shown> {
    let table = open(path)?;
    if !output.is_json() {
        return output.show_text(|out| print_layout(&table, path, out));
    }
    let mut layout = Layout::of(&table);
    table.each_property(&mut |name, value| {
        layout.properties.push(Property::of(name, value));
        Ok(())
    })?;
    table.each_part(&mut |part| {
        layout.parts.push(Part::of(part));
        Ok(())
    })?;
    output.show_json(&layout)
}

/// The name of a store, for people; `store` is its name in JSON.
pub fn store_name(store: &str) -> &'static str {
    if store == "rocksdb" { "RocksDB" } else { "LevelDB" }
}

fn print_layout(table: &ForeignTable, path: &Path, out: &mut dyn Write) -> Outcome {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    write!(out, "{name}  {} B  {}", table.bytes(), store_name(table.store()))?;
    if let (Some(version), Some(index)) = (table.format_version(), table.index_type()) {
        write!(out, ", format version {version}, index {index}")?;
    }
    writeln!(out, ", checksums {}", table.checksum())?;
    table.each_part(&mut |part| print_part(part, out))?;
    table.each_property(&mut |name, value| {
        let name = name.escape_ascii();
        match value {
            PropertyValue::Number(number) => writeln!(out, "  {name} = {number}"),
            PropertyValue::Bytes(bytes) => writeln!(out, "  {name} = {}", quoted(bytes)),
        }
    })?;
    Ok(())
}

fn print_part(part: &TablePart<'_>, out: &mut dyn Write) -> io::Result<()> {
    let (kind, start, end) = (part.kind, part.offset, part.offset + part.bytes);
    write!(out, "  {kind:<16} {start:>10}..{end:<10} {:>8} B", part.bytes)?;
    match part.compression {
        "" | "none" => {}
        compression => write!(out, "  {compression}")?,
    }
    if !part.name.is_empty() {
        write!(out, "  {}", part.name.escape_ascii())?;
    }
    match part.separator {
        Some(key) => writeln!(out, "  to {}", quoted(key)),
        None => writeln!(out),
    }
}

fn quoted(bytes: &[u8]) -> impl Display {
    format!("\"{}\"", bytes.escape_ascii())
}

fn quoted_front(bytes: &[u8]) -> impl Display {
    match bytes.get(..VALUE_BYTES_MAX) {
        Some(front) if front.len() < bytes.len() => {
            format!("\"{}\"... ({} B)", front.escape_ascii(), bytes.len())
        }
        _ => quoted(bytes).to_string(),
    }
}

/// Prints the entries of a table, or of one of its blocks.
pub fn dump(path: &Path, block: Option<usize>, limit: u64, output: Output) -> Outcome<Shown> {
    let table = open(path)?;
    let mut rows = output.rows();
    if block.is_none() && !output.is_json() {
        print_layout(&table, path, rows.text())?;
    }
    let mut left = limit;
    table.each_entry(block.map(|block| block as u64), &mut |item| {
        if left == 0 {
            return Ok(false);
        }
        if matches!(item, TableItem::Entry { .. }) {
            left -= 1;
        }
        match output.is_json() {
            true => rows.json(&item_of(item))?,
            false => print_item(item, rows.text())?,
        }
        Ok(true)
    })?;
    rows.end()
}

result! {
    /// Of a table of LevelDB or RocksDB:
    pub value Item {
        /// number, offset, stored_bytes, compression, separator
        block;
        /// kind: value, merge, deletion, single_deletion, blob_index, wide_columns or
        /// value_with_time; key, value, and sequence as it is stored, which is 0 in a table made to
        /// be ingested: there a property global_seqno has it for all
        entry, deletion;
        /// start, end and sequence
        range_deletion;
    }
}

fn item_of(item: &TableItem<'_>) -> Item {
    let mut object = match item {
        TableItem::Block { number, part, .. } => json!({
            "record": "block", "number": number, "stored_bytes": part.bytes,
            "offset": part.offset, "compression": part.compression,
        }),
        TableItem::RangeDelete { sequence, .. } => {
            json!({ "record": "range_deletion", "sequence": sequence })
        }
        TableItem::Entry { sequence, kind, .. } => {
            let record = if kind.is_deletion() { "deletion" } else { "entry" };
            json!({ "record": record, "kind": kind.name(), "sequence": sequence })
        }
        _ => json!({}),
    };
    let bytes: &[(&str, &[u8])] = match item {
        TableItem::Block { part, .. } => &[("separator", part.separator.unwrap_or_default())],
        TableItem::RangeDelete { start, end, .. } => &[("start", start), ("end", end)],
        TableItem::Entry { key, kind, .. } if kind.is_deletion() => &[("key", key)],
        TableItem::Entry { key, value, .. } => &[("key", key), ("value", value)],
        _ => &[],
    };
    if let Some(object) = object.as_object_mut() {
        object.extend(bytes.iter().map(|(name, bytes)| bytes_entry(name, bytes)));
    }
    Item(object)
}

fn print_item(item: &TableItem<'_>, out: &mut dyn Write) -> io::Result<()> {
    match item {
        TableItem::Block { number, part, .. } => {
            write!(out, "block {number}")?;
            print_part(part, out)
        }
        TableItem::RangeDelete { start, end, sequence, .. } => {
            writeln!(out, "  {}..{} @{sequence} deleted", quoted(start), quoted(end))
        }
        TableItem::Entry { key, sequence, kind, value, .. } => {
            let key = quoted(key);
            write!(out, "  {key} @{sequence}")?;
            match kind {
                EntryKind::Deletion => writeln!(out, " deleted"),
                EntryKind::SingleDeletion => writeln!(out, " deleted (once)"),
                EntryKind::Value => writeln!(out, " = {}", quoted_front(value)),
                kind => writeln!(out, " {} = {}", kind.name(), quoted_front(value)),
            }
        }
        _ => Ok(()),
    }
}

/// The result of a check, if it says whether the file is sound: damage does; a format that is not
/// read or a failure of the disk do not.
pub fn judged<T>(checked: Result<T, Error>) -> Outcome<Result<T, Error>> {
    match checked {
        Err(error @ (Error::UnsupportedFormat { .. } | Error::Io { .. })) => Err(error.into()),
        checked => Ok(checked),
    }
}

/// Checks a table. `print` gets it with its counts.
pub fn verify(path: &Path) -> Outcome<Result<(ForeignTable, TableCounts), Error>> {
    judged(
        ForeignTable::open(&(Arc::new(DiskEnv::new()) as _), path)
            .and_then(|table| table.verify().map(|counts| (table, counts))),
    )
}

result! {
    /// Of a table of LevelDB or RocksDB, table is null, or
    pub struct Counts of counts: &TableCounts, table: &ForeignTable {
        #[serde(flatten)] facts: Facts = Facts::of(table);
        /// as counted
        entries, keys, deletions, merges, range_deletes, data_blocks, data_bytes, filter_bytes,
        filter_partitions, smallest_sequence, largest_sequence: u64;
    }
}

/// Prints what the check of a table counted.
pub fn print_counts(
    path: &Path,
    table: &ForeignTable,
    counts: &TableCounts,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (entries, blocks) = (counted_entries(counts.entries), counts.data_blocks);
    let blocks = counted(blocks, "data block");
    let store = store_name(table.store());
    write!(out, "{}: ok, {store}, {entries} in {blocks}", path.display())?;
    if counts.range_deletes > 0 {
        write!(out, ", {}", counted(counts.range_deletes, "range delete"))?;
    }
    writeln!(out)?;
    if table.checksum() == "none" {
        writeln!(out, "it has no checksums: changed bytes of keys and values are not found")?;
    }
    writeln!(out, "1 table, all in order")
}
