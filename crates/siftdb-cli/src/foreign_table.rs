//! `siftdb sst layout|dump|verify` of a single table of LevelDB or RocksDB, which its last bytes
//! tell from a table of siftdb.

use crate::failure::{Failure, Outcome};
use crate::json::{bytes_field, error_json, fields, joined, path_field};
use crate::output::{Output, Shown};
use crate::text::{counted, counted_entries};
use serde_json::{Value, json};
use siftdb::Error;
use siftdb::env::DiskEnv;
use siftdb::foreign::{EntryKind, ForeignTable, PropertyValue, TableCounts, TableItem, TablePart};
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

/// Prints what the table consists of.
pub fn layout(path: &Path, output: Output) -> Outcome<Shown> {
    let table = open(path)?;
    if !output.is_json() {
        return output.show(json!({}), |out| print_layout(&table, path, out));
    }
    let (mut properties, mut parts) = (Vec::new(), Vec::new());
    table.each_property(&mut |name, value| {
        properties.push(property_json(name, value));
        Ok(())
    })?;
    table.each_part(&mut |part| {
        parts.push(part_json(part));
        Ok(())
    })?;
    let facts = json!({ "properties": properties, "parts": parts });
    output.show(joined([facts_json(&table), facts]), |_| Outcome::Ok(()))
}

fn facts_json(table: &ForeignTable) -> Value {
    json!({
        "store": table.store(),
        "bytes": table.bytes(),
        "checksum": table.checksum(),
        "format_version": table.format_version(),
        "index_type": table.index_type(),
    })
}

fn property_json(name: &[u8], value: PropertyValue<'_>) -> Value {
    let value = match value {
        PropertyValue::Number(number) => json!({ "number": number }),
        PropertyValue::Bytes(bytes) => bytes_field("value", bytes),
    };
    joined([bytes_field("name", name), value])
}

fn part_json(part: &TablePart<'_>) -> Value {
    joined([
        fields!(part; kind, offset, bytes, compression),
        bytes_field("name", part.name),
        part.separator.map_or(json!({}), |key| bytes_field("separator", key)),
    ])
}

/// The name of the store, for people.
pub fn store_name(table: &ForeignTable) -> &'static str {
    if table.store() == "rocksdb" { "RocksDB" } else { "LevelDB" }
}

fn print_layout(table: &ForeignTable, path: &Path, out: &mut dyn Write) -> Outcome {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    write!(out, "{name}  {} B  {}", table.bytes(), store_name(table))?;
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
            true => rows.json(item_json(item))?,
            false => print_item(item, rows.text())?,
        }
        Ok(true)
    })?;
    rows.end()
}

fn item_json(item: &TableItem<'_>) -> Value {
    match item {
        TableItem::Block { number, part, .. } => joined([
            json!({ "record": "block", "number": number, "stored_bytes": part.bytes }),
            fields!(part; offset, compression),
            bytes_field("separator", part.separator.unwrap_or_default()),
        ]),
        TableItem::RangeDelete { start, end, sequence, .. } => joined([
            json!({ "record": "range_deletion", "sequence": sequence }),
            bytes_field("start", start),
            bytes_field("end", end),
        ]),
        TableItem::Entry { key, sequence, kind, value, .. } => {
            let record = if kind.is_deletion() { "deletion" } else { "entry" };
            joined([
                json!({ "record": record, "kind": kind.name(), "sequence": sequence }),
                bytes_field("key", key),
                if kind.is_deletion() { json!({}) } else { bytes_field("value", value) },
            ])
        }
        _ => json!({}),
    }
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

/// Checks a table.
pub fn verify(path: &Path, output: Output) -> Outcome<Shown> {
    let checked = judged(
        ForeignTable::open(&(Arc::new(DiskEnv::new()) as _), path)
            .and_then(|table| table.verify().map(|counts| (table, counts))),
    )?;
    let table = joined([
        path_field("path", path),
        json!({
            "keyspace": null,
            "ok": checked.is_ok(),
            "error": checked.as_ref().err().map(error_json),
            "table": checked.as_ref().ok().map(|(table, counts)| counts_json(table, counts)),
        }),
    ]);
    let json = json!({
        "sound": checked.is_ok(), "in_use": null, "unchecked_logs": null, "tables": [table],
    });
    let shown = output.show(json, |out| match &checked {
        Ok((table, counts)) => print_counts(path, table, counts, out),
        Err(_) => writeln!(out, "1 table, 1 not in order"),
    })?;
    match checked {
        Ok(_) => Ok(shown),
        Err(error) => Err(Failure::damage(&[error])),
    }
}

fn counts_json(table: &ForeignTable, counts: &TableCounts) -> Value {
    joined([
        facts_json(table),
        fields!(counts;
            entries, keys, deletions, merges, range_deletes, data_blocks, data_bytes, filter_bytes,
            filter_partitions, smallest_sequence, largest_sequence),
    ])
}

fn print_counts(
    path: &Path,
    table: &ForeignTable,
    counts: &TableCounts,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (entries, blocks) = (counted_entries(counts.entries), counts.data_blocks);
    let blocks = counted(blocks, "data block");
    write!(out, "{}: ok, {}, {entries} in {blocks}", path.display(), store_name(table))?;
    if counts.range_deletes > 0 {
        write!(out, ", {}", counted(counts.range_deletes, "range delete"))?;
    }
    writeln!(out)?;
    if table.checksum() == "none" {
        writeln!(out, "it has no checksums: changed bytes of keys and values are not found")?;
    }
    writeln!(out, "1 table, all in order")
}
