//! Write-ahead logs and manifests: every record, and every place where one should be and is not.
//!
//! `dump` calls this with the whole file in memory. A line begins with the bytes that the record
//! takes up (`start..end`), then says what it is; entries of a batch follow, indented. A manifest
//! ends with what its edits come to.
//!
//! Invariants: reading goes on behind damage as far as the framing allows, and the first damage is
//! the error at the end. Torn is not damaged: a crash may leave it. What recovery would make of a
//! log depends on the other logs and the manifest, and is not decided here.

use crate::error::Result;
use crate::inspect::text::{DumpOptions, Printer, Quoted, quoted};
use crate::key::{ValueKind, user_key};
use crate::record::format::{HeaderState, RecordFile, Undecodable, claimed_number};
use crate::version::edit::VersionEdit;
use crate::version::manifest;
use crate::wal::evidence::CleanClose;
use crate::wal::format::{self, WalBody, WalItem};
use crate::write_batch::DecodedBatch;
use std::path::Path;

/// The file's number by its name, else what its header claims.
fn number_of(named: Option<u64>, bytes: &[u8]) -> u64 {
    named.unwrap_or_else(|| claimed_number(bytes))
}

fn print_header(
    kind: &str,
    file: RecordFile,
    number: u64,
    bytes: &[u8],
    printer: &mut Printer<'_>,
) -> Result<()> {
    let state = match file.check_header(number, bytes) {
        HeaderState::Good => "header ok".into(),
        HeaderState::Torn => "header torn: a crash kept it from being written".into(),
        HeaderState::Bad(bad) => reason(&bad),
    };
    printer.line(format_args!("{kind} {number}, {} B, {state}", bytes.len()))
}

fn reason(bad: &Undecodable) -> String {
    match bad {
        Undecodable::Damaged(what) => format!("damaged: {what}"),
        Undecodable::Unknown(what) => format!("unknown: {what}"),
    }
}

/// Prints the log `bytes`. What is damaged is printed as such; whether recovery would accept it
/// depends on the other logs and the manifest.
///
/// # Errors
/// Of the output; and the first damage, once all is printed.
pub fn dump_wal(
    path: &Path,
    named: Option<u64>,
    bytes: &[u8],
    options: &DumpOptions,
    printer: &mut Printer<'_>,
) -> Result<()> {
    let number = number_of(named, bytes);
    print_header("write-ahead log", RecordFile::Wal, number, bytes, printer)?;
    let mut left = options.entries_max;
    let mut printed = Ok(());
    let mut damage = None;
    let header = format::visit(bytes, number, &mut |start, end, item| {
        match &item {
            WalItem::Bad(bad) if !bad.torn => {
                damage.get_or_insert((start, Undecodable::Damaged(bad.what.clone())));
            }
            WalItem::Undecodable(bad) => {
                damage.get_or_insert((start, bad.clone()));
            }
            _ => {}
        }
        if printed.is_ok() {
            printed = print_item(start, end, &item, options, &mut left, printer);
        }
    });
    printed?;
    if let HeaderState::Bad(bad) = header {
        return Err(bad.into_error(path, 0));
    }
    damage.map_or(Ok(()), |(offset, bad)| Err(bad.into_error(path, offset)))
}

fn print_item(
    start: u64,
    end: u64,
    item: &WalItem<'_>,
    options: &DumpOptions,
    left: &mut u64,
    printer: &mut Printer<'_>,
) -> Result<()> {
    match item {
        WalItem::Bad(bad) => {
            let state = if bad.torn { "torn" } else { "damaged" };
            printer.line(format_args!("{start:>10}  {state}: {}", bad.what))
        }
        WalItem::Undecodable(bad) => {
            printer.line(format_args!("{start:>10}..{end}  {}", reason(bad)))
        }
        WalItem::Record(record) => {
            let synced = record.synced_through;
            match record.body {
                WalBody::Start(first) => printer.line(format_args!(
                    "{start:>10}..{end}  start: synced through {synced}; log {} before, to \
                     sequence {}; first sequence {}; manifest {} of {} B",
                    first.previous_log,
                    first.previous_last_sequence,
                    first.first_sequence,
                    first.manifest_number,
                    first.manifest_synced_bytes
                )),
                WalBody::Batch(batch) => {
                    printer.line(format_args!(
                        "{start:>10}..{end}  batch: {} entries from sequence {}; synced through \
                         {synced}",
                        batch.count, batch.sequence
                    ))?;
                    print_batch(&batch, options, left, printer)
                }
            }
        }
    }
}

fn print_batch(
    batch: &DecodedBatch<'_>,
    options: &DumpOptions,
    left: &mut u64,
    printer: &mut Printer<'_>,
) -> Result<()> {
    for (place, entry) in (0u64..).zip(batch.iter()) {
        if *left == 0 {
            break;
        }
        *left -= 1;
        let sequence = batch.sequence.saturating_add(place);
        let key = quoted(entry.key);
        match entry.kind {
            ValueKind::Put => {
                let value = Quoted { bytes: entry.value, bytes_max: options.value_bytes_max };
                printer.line(format_args!("  {key} @{sequence} = {value}"))?;
            }
            ValueKind::Tombstone => printer.line(format_args!("  {key} @{sequence} deleted"))?,
        }
    }
    Ok(())
}

/// Prints the manifest `bytes`, edit by edit, and what they come to.
///
/// # Errors
/// Of the output; and what replaying it says, once all is printed.
pub fn dump_manifest(
    path: &Path,
    named: Option<u64>,
    bytes: &[u8],
    printer: &mut Printer<'_>,
) -> Result<()> {
    let number = number_of(named, bytes);
    print_header("manifest", RecordFile::Manifest, number, bytes, printer)?;
    let mut printed = Ok(());
    manifest::visit(bytes, number, &mut |offset, edit| {
        if printed.is_ok() {
            printed = match edit {
                Ok(edit) => print_edit(offset, &edit, printer),
                Err(what) => printer.line(format_args!("{offset:>10}  not an edit: {what}")),
            };
        }
    });
    printed?;
    let state = manifest::replay_bytes(path, number, bytes)?;
    let tables: Vec<String> = (0..)
        .zip(&state.levels)
        .filter(|(_, files)| !files.is_empty())
        .map(|(level, files)| format!("L{level} {}", files.len()))
        .collect();
    let tables = if tables.is_empty() { "none".into() } else { tables.join(", ") };
    printer.line(format_args!(
        "in all: tables {tables}; logs from {}; next file {}; last sequence {}; flushed through \
         {}; synced through {}",
        state.log_number,
        state.next_file_number,
        state.last_sequence,
        state.flushed_through,
        state.synced_through
    ))?;
    match state.dropped {
        Some(part) => {
            let (offset, what) = (part.offset, part.what);
            printer.line(format_args!("dropped at the end: byte {offset}: {what}"))
        }
        None => Ok(()),
    }
}

fn print_edit(offset: u64, edit: &VersionEdit, printer: &mut Printer<'_>) -> Result<()> {
    let mut parts = Vec::new();
    if let Some(name) = &edit.comparator {
        parts.push(format!("order {}", name.escape_debug()));
    }
    if let Some(log) = edit.first_log {
        parts.push(format!("logs from {}, flushed through {}", log.number, log.flushed_through));
    }
    for (name, value) in [
        ("next file", edit.next_file_number),
        ("last sequence", edit.last_sequence),
        ("synced through", edit.synced_through),
        ("session log", edit.session_log),
    ] {
        if let Some(value) = value {
            parts.push(format!("{name} {value}"));
        }
    }
    if let Some(close) = edit.clean_close {
        let CleanClose { log, log_bytes, last_sequence } = close;
        parts.push(format!("closed at sequence {last_sequence}, log {log} at byte {log_bytes}"));
    }
    printer.line(format_args!("{offset:>10}  edit {}: {}", edit.ordinal, parts.join("; ")))?;
    for (level, number) in &edit.deleted {
        printer.line(format_args!("  - L{level} {number:06}"))?;
    }
    for (level, file) in &edit.added {
        printer.line(format_args!(
            "  + L{level} {:06}  {} B  id {:016x}  {} entries  sequences {}..={}  {} ..= {}",
            file.number,
            file.bytes,
            file.table_id,
            file.entries,
            file.smallest_sequence,
            file.largest_sequence,
            quoted(user_key(&file.smallest)),
            quoted(user_key(&file.largest))
        ))?;
    }
    Ok(())
}
