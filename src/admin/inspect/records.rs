//! Prints write-ahead logs and manifests: every record and every bad place.
//!
//! A line begins with the bytes of the record (`start..end`), then says what it is; the entries of
//! a batch follow, indented. The text of a manifest ends with the state after all edits.
//!
//! Invariants: after damage, the dump continues with the next readable record. It returns the first
//! damage as its error at the end. A torn place is no damage, because a crash can cause it. Whether
//! recovery would accept a log depends on the other logs and the manifest, and is not decided here.

use crate::admin::inspect::text::{DumpValue, KeyRangeText, Printer, by_level, quoted};
use crate::base::batch_format::{DecodedBatch, WriteKind};
use crate::base::error::Result;
use crate::base::key::{DEFAULT_KEYSPACE, KeyspaceId, ValueKind};
use crate::base::levels::LEVELS;
use crate::base::stats::text::counted;
use crate::env::api::Env;
use crate::log::record::format::{HeaderState, RecordFile, Undecodable};
use crate::log::record::reader::RecordReader;
use crate::log::wal::consistency::CleanClose;
use crate::log::wal::cursor::{LogCursor, LogEntry, LogFile, LogItem};
use crate::log::wal::format::{DatabaseIdentity, DecodedLoads, WalBody, WalStart};
use crate::options::keyspace::KeyspaceOptions;
use crate::table::filter::layout::CustomRules;
use crate::tree::edit::{DeletedFile, SessionBegin, VersionEdit};
use crate::tree::manifest;
use crate::tree::manifest_state::{KeyspaceTables, ManifestState};
use std::ops::Bound;
use std::path::Path;

/// Opens a file of records by the number in its name, else by the one that its header claims.
fn open(env: &dyn Env, path: &Path, named: Option<u64>) -> Result<(RecordReader, u64)> {
    let mut reader = RecordReader::open(env, path, named.unwrap_or(0))?;
    let number = match named {
        Some(number) => number,
        None => reader.claimed_number()?,
    };
    reader.renumber(number);
    Ok((reader, number))
}

fn print_header(
    file: RecordFile,
    number: u64,
    reader: &mut RecordReader,
    printer: &mut Printer<'_>,
) -> Result<()> {
    let state = match reader.header(file)? {
        HeaderState::Good => "header ok".into(),
        HeaderState::Torn if reader.file_bytes() == 0 => "no header: the file is empty".into(),
        HeaderState::Torn => "header torn: a crash interrupted writing it".into(),
        HeaderState::Bad(bad) => reason(&bad),
    };
    let (record, kind) = match file {
        RecordFile::Wal => ("log", "write-ahead log"),
        RecordFile::Manifest => ("manifest", "manifest"),
    };
    let fields = [
        ("number", number.into()),
        ("bytes", reader.file_bytes().into()),
        ("header", DumpValue::Text(&state)),
    ];
    let line = format_args!("{kind} {number}, {} B, {state}", reader.file_bytes());
    printer.record(record, &fields, line)
}

fn reason(bad: &Undecodable) -> String {
    match bad {
        Undecodable::Damaged(what) => format!("damaged: {what}"),
        Undecodable::Unknown(what) => format!("unknown: {what}"),
    }
}

/// Prints the log at `path`, damage included.
///
/// # Errors
/// Those of the output; and the first damage, after everything is printed.
pub(crate) fn dump_wal(
    env: &dyn Env,
    path: &Path,
    named: Option<u64>,
    printer: &mut Printer<'_>,
) -> Result<()> {
    let (mut reader, number) = open(env, path, named)?;
    print_header(RecordFile::Wal, number, &mut reader, printer)?;
    let mut printed = Ok(());
    let mut is_cut = false;
    let mut damage = None;
    let mut log = LogCursor::new(LogFile { number, path: path.to_path_buf() }, reader);
    loop {
        let entry = log.next()?;
        match &entry.item {
            LogItem::End => break,
            LogItem::Bad { what, torn: false } => {
                damage.get_or_insert((entry.start, Undecodable::Damaged(what.clone())));
            }
            LogItem::Damaged(bad) => {
                damage.get_or_insert((entry.start, bad.clone()));
            }
            _ => {}
        }
        // The header is printed already.
        if entry.start == 0 {
            continue;
        }
        // The limit ends the text, but damage after it is still the error at the end.
        is_cut |= printer.left == 0;
        if printed.is_ok() && printer.left > 0 {
            printed = print_entry(&entry, printer);
        }
    }
    printed?;
    if is_cut {
        let entries = printer.options.entries_max;
        printer.line(format_args!("the rest is left out: {entries} entries printed"))?;
    }
    damage.map_or(Ok(()), |(offset, bad)| Err(bad.into_error(path, offset)))
}

fn print_entry(entry: &LogEntry<'_>, printer: &mut Printer<'_>) -> Result<()> {
    let (start, end, synced) = (entry.start, entry.end, entry.synced_through);
    match &entry.item {
        LogItem::Bad { what, torn } => {
            let state = if *torn { "torn" } else { "damaged" };
            let line = format_args!("{start:>10}  {state}: {what}");
            printer.damage(start, state, what, line)
        }
        LogItem::Damaged(bad) => {
            let what = reason(bad);
            let line = format_args!("{start:>10}..{end}  {what}");
            printer.damage(start, "damaged", &what, line)
        }
        LogItem::Record(WalBody::Start(first)) => print_start(start, end, first, printer),
        LogItem::Record(WalBody::Loads(loads)) => print_loads(start, end, loads, printer),
        LogItem::Record(WalBody::Batch(batch)) => {
            let fields = [
                ("offset", start.into()),
                ("entries", u64::from(batch.count).into()),
                ("sequence", batch.sequence.into()),
                ("synced_through", synced.into()),
            ];
            let line = format_args!(
                "{start:>10}..{end}  batch: {} from sequence {}; synced through {synced}",
                counted(batch.count.into(), "entry"),
                batch.sequence
            );
            printer.record("batch", &fields, line)?;
            print_batch(batch, printer)
        }
        LogItem::StartOfNewerManifest | LogItem::End => Ok(()),
    }
}

fn print_loads(
    offset: u64,
    end: u64,
    loads: &DecodedLoads<'_>,
    printer: &mut Printer<'_>,
) -> Result<()> {
    let tables = loads.tables().count() as u64;
    let fields = [("offset", offset.into()), ("tables", tables.into())];
    let line = format_args!("{offset:>10}..{end}  bulk loads: {}", counted(tables, "table"));
    printer.record("loads", &fields, line)?;
    for (table_id, sequence) in loads.tables() {
        let fields = [("table_id", table_id.into()), ("sequence", sequence.into())];
        let line = format_args!("  table {table_id} has sequence {sequence}");
        printer.record("loaded_table", &fields, line)?;
    }
    Ok(())
}

fn print_start(offset: u64, end: u64, first: &WalStart, printer: &mut Printer<'_>) -> Result<()> {
    let id = id_text(first.database);
    let fields = [
        ("offset", offset.into()),
        ("database_id", DumpValue::Text(&id)),
        ("epoch", first.database.epoch.into()),
        ("synced_through", first.synced_through.into()),
        ("previous_log", first.previous_log.into()),
        ("previous_last_sequence", first.previous_last_sequence.into()),
        ("first_sequence", first.first_sequence.into()),
        ("manifest", first.manifest_number.into()),
        ("manifest_bytes", first.manifest_synced_bytes.into()),
    ];
    let line = format_args!(
        "{offset:>10}..{end}  start: synced through {}; log {} before, to sequence {}; first \
         sequence {}; manifest {} of {} B; database {id}, epoch {}",
        first.synced_through,
        first.previous_log,
        first.previous_last_sequence,
        first.first_sequence,
        first.manifest_number,
        first.manifest_synced_bytes,
        first.database.epoch
    );
    printer.record("start", &fields, line)
}

/// The id of a database in hexadecimal.
fn id_text(database: DatabaseIdentity) -> String {
    format!("{:032x}", database.id)
}

/// Saved settings as words, `none` if nothing is named. Settings that cannot be decoded, as those
/// of a later version, are printed as bytes.
fn settings_text(settings: &[u8]) -> String {
    match KeyspaceOptions::decode(settings, &CustomRules::default()) {
        Ok(options) if options.settings().is_empty() => "none".into(),
        Ok(options) => options.to_string(),
        Err(bad) => format!("{}: {}", reason(&bad), quoted(settings)),
    }
}

fn print_batch(batch: &DecodedBatch<'_>, printer: &mut Printer<'_>) -> Result<()> {
    for (place, entry) in (0u64..).zip(batch.iter()) {
        if printer.left == 0 {
            break;
        }
        printer.left -= 1;
        let sequence = batch.sequence.saturating_add(place);
        let (keyspace, key) = (entry.keyspace, entry.key);
        let kind = match entry.kind {
            WriteKind::Put => ValueKind::Put,
            WriteKind::PutExpiring => ValueKind::ExpiringPut,
            WriteKind::Delete => ValueKind::Tombstone,
            WriteKind::DeleteRange => {
                printer.range_delete(Some(keyspace), key, entry.range_end(), sequence)?;
                continue;
            }
        };
        printer.entry(Some(keyspace), key, sequence, kind, entry.value)?;
    }
    Ok(())
}

/// Prints the manifest at `path`, edit by edit, and the state after all edits.
///
/// # Errors
/// Those of the output; and those of a replay, after everything is printed.
pub(crate) fn dump_manifest(
    env: &dyn Env,
    path: &Path,
    named: Option<u64>,
    printer: &mut Printer<'_>,
) -> Result<()> {
    let (mut reader, number) = open(env, path, named)?;
    print_header(RecordFile::Manifest, number, &mut reader, printer)?;
    let mut printed = Ok(());
    manifest::visit(env, path, number, &mut |offset, edit| {
        if printed.is_ok() {
            printed = match edit {
                Ok(edit) => print_edit(offset, &edit, printer),
                Err(what) => {
                    let line = format_args!("{offset:>10}  not an edit: {what}");
                    printer.damage(offset, "damaged", &what.to_string(), line)
                }
            };
        }
    })?;
    printed?;
    let state = manifest::replay_file(env, path, number)?;
    print_state(&state, printer)?;
    match state.dropped {
        Some(part) => {
            let (offset, what) = (part.offset, part.what);
            let line = format_args!("dropped at the end: byte {offset}: {what}");
            printer.damage(offset, "torn", &what, line)
        }
        None => Ok(()),
    }
}

/// Prints what all edits of a manifest lead to, as a whole and by keyspace.
fn print_state(state: &ManifestState, printer: &mut Printer<'_>) -> Result<()> {
    let facts = &state.facts;
    let (count, tables) = tables_by_level(state.keyspaces.values());
    let id = id_text(facts.database);
    let fields = [
        ("tables", count.into()),
        ("keyspaces", (state.keyspaces.len() as u64).into()),
        ("next_keyspace", state.next_keyspace.into()),
        ("expired_through", state.expired_through.into()),
        ("first_log", facts.log_number.into()),
        ("next_file", state.next_file_number.into()),
        ("last_sequence", facts.last_sequence.into()),
        ("flushed_through", facts.flushed_through.into()),
        ("synced_through", facts.synced_through.into()),
        ("database_id", DumpValue::Text(&id)),
        ("epoch", facts.database.epoch.into()),
    ];
    let line = format_args!(
        "in all: tables {tables}; logs from {}; next file {}; next keyspace {}; last sequence {}; \
         flushed through {}; synced through {}; database {id}, epoch {}",
        facts.log_number,
        state.next_file_number,
        state.next_keyspace,
        facts.last_sequence,
        facts.flushed_through,
        facts.synced_through,
        facts.database.epoch
    );
    printer.record("state", &fields, line)?;
    for (id, keyspace) in &state.keyspaces {
        let (count, tables) = tables_by_level([keyspace]);
        let settings = settings_text(&keyspace.meta.settings);
        let fields = [
            ("keyspace", u64::from(*id).into()),
            ("name", DumpValue::Text(&keyspace.meta.name)),
            ("tables", count.into()),
            ("flushed_through", keyspace.meta.flushed_through.into()),
            ("settings", DumpValue::Text(&settings)),
        ];
        let line = format_args!(
            "  keyspace {id} {:?}: tables {tables}; flushed through {}; settings {settings}",
            keyspace.meta.name, keyspace.meta.flushed_through
        );
        printer.record("keyspace", &fields, line)?;
    }
    Ok(())
}

/// The tables of some keyspaces: how many, and words for the levels that have any.
fn tables_by_level<'a>(keyspaces: impl IntoIterator<Item = &'a KeyspaceTables>) -> (u64, String) {
    let mut counts = [0; LEVELS];
    for keyspace in keyspaces {
        let levels = keyspace.levels.iter().map(|tables| tables.len() as u64);
        counts.iter_mut().zip(levels).for_each(|(sum, tables)| *sum += tables);
    }
    let text = by_level(counts);
    (counts.iter().sum(), if text.is_empty() { "none".into() } else { text })
}

fn print_edit(offset: u64, edit: &VersionEdit, printer: &mut Printer<'_>) -> Result<()> {
    let mut parts = Vec::new();
    if let Some(name) = &edit.comparator {
        parts.push(format!("order {}", name.escape_debug()));
    }
    let id = edit.database.map(id_text);
    if let Some((database, id)) = edit.database.zip(id.as_ref()) {
        parts.push(format!("database {id}, epoch {}", database.epoch));
    }
    let origin = edit.checkpoint_of.map(id_text);
    if let Some((of, origin)) = edit.checkpoint_of.zip(origin.as_ref()) {
        parts.push(format!("checkpoint of {origin}, epoch {}", of.epoch));
    }
    let ancestors: Vec<String> = edit.ancestors.iter().map(|id| format!("{id:032x}")).collect();
    parts.extend(ancestors.iter().map(|id| format!("ancestor {id}")));
    if let Some(log) = edit.first_log {
        parts.push(format!("logs from {}, flushed through {}", log.number, log.flushed_through));
    }
    let numbers = [
        ("next_file", edit.next_file_number),
        ("last_sequence", edit.last_sequence),
        ("synced_through", edit.synced_through),
        ("session_log", edit.session_log),
        ("next_keyspace", edit.next_keyspace),
        ("expired_through", edit.expired_through),
    ];
    for (name, number) in numbers {
        parts.extend(number.map(|number| format!("{} {number}", name.replace('_', " "))));
    }
    for SessionBegin { id, begins_after } in &edit.sessions {
        parts.push(format!("session {id:016x} after sequence {begins_after}"));
    }
    let close = edit.clean_close;
    if let Some(close) = close {
        let CleanClose { log, log_bytes, last_sequence } = close;
        parts.push(format!("closed at sequence {last_sequence}, log {log} at byte {log_bytes}"));
    }
    let ancestors = Some(ancestors.join(" ")).filter(|ids| !ids.is_empty());
    let mut fields = vec![
        ("offset", offset.into()),
        ("ordinal", edit.ordinal.into()),
        ("first_log", DumpValue::Number(edit.first_log.map(|log| log.number))),
        ("flushed_through", DumpValue::Number(edit.first_log.map(|log| log.flushed_through))),
    ];
    fields.extend(numbers.map(|(name, number)| (name, DumpValue::Number(number))));
    fields.extend([
        ("database_id", id.as_deref().map_or(DumpValue::Number(None), DumpValue::Text)),
        ("epoch", DumpValue::Number(edit.database.map(|database| database.epoch))),
        ("checkpoint_of", origin.as_deref().map_or(DumpValue::Number(None), DumpValue::Text)),
        ("ancestors", ancestors.as_deref().map_or(DumpValue::Number(None), DumpValue::Text)),
        ("closed_at_sequence", DumpValue::Number(close.map(|close| close.last_sequence))),
        ("closed_log", DumpValue::Number(close.map(|close| close.log))),
        ("closed_log_bytes", DumpValue::Number(close.map(|close| close.log_bytes))),
    ]);
    let line = format_args!("{offset:>10}  edit {}: {}", edit.ordinal, parts.join("; "));
    printer.record("edit", &fields, line)?;
    print_keyspaces(edit, printer)?;
    print_tables(edit, printer)
}

fn print_keyspaces(edit: &VersionEdit, printer: &mut Printer<'_>) -> Result<()> {
    for keyspace in &edit.created {
        let (id, name) = (keyspace.id, &keyspace.name);
        let settings = settings_text(&keyspace.settings);
        let fields = [
            ("keyspace", u64::from(id).into()),
            ("name", DumpValue::Text(name)),
            ("flushed_through", keyspace.flushed_through.into()),
            ("settings", DumpValue::Text(&settings)),
        ];
        let line = format_args!(
            "  + keyspace {id} {name:?}  flushed through {}  settings {settings}",
            keyspace.flushed_through
        );
        printer.record("created", &fields, line)?;
    }
    for (id, settings) in &edit.settings {
        let settings = settings_text(settings);
        let fields =
            [("keyspace", u64::from(*id).into()), ("settings", DumpValue::Text(&settings))];
        printer.record(
            "settings",
            &fields,
            format_args!("  keyspace {id}: settings {settings}"),
        )?;
    }
    for &(id, sequence) in &edit.flushed_through {
        let fields = [("keyspace", u64::from(id).into()), ("flushed_through", sequence.into())];
        let line = format_args!("  keyspace {id}: flushed through {sequence}");
        printer.record("flushed", &fields, line)?;
    }
    for &id in &edit.dropped {
        let fields = [("keyspace", u64::from(id).into())];
        printer.record("dropped", &fields, format_args!("  - keyspace {id}"))?;
    }
    Ok(())
}

/// Says the keyspace of a table, unless it is `default`.
fn in_keyspace(id: KeyspaceId) -> String {
    if id == DEFAULT_KEYSPACE { String::new() } else { format!("  keyspace {id}") }
}

fn print_tables(edit: &VersionEdit, printer: &mut Printer<'_>) -> Result<()> {
    for &DeletedFile { keyspace, level, number } in &edit.deleted {
        let fields = [
            ("keyspace", u64::from(keyspace).into()),
            ("level", (level as u64).into()),
            ("table", number.into()),
        ];
        let line = format_args!("  - L{level} {number:06}{}", in_keyspace(keyspace));
        printer.record("removed", &fields, line)?;
    }
    for (level, file) in &edit.added {
        let (end_key, end) = match &file.end {
            Bound::Included(last) => (DumpValue::Bytes(last), "included"),
            Bound::Excluded(end) => (DumpValue::Bytes(end), "excluded"),
            Bound::Unbounded => (DumpValue::Number(None), "unbounded"),
        };
        let fields = [
            ("keyspace", u64::from(file.keyspace).into()),
            ("level", (*level as u64).into()),
            ("table", file.number.into()),
            ("bytes", file.bytes.into()),
            ("entries", file.entries.into()),
            ("smallest_sequence", file.smallest_sequence.into()),
            ("largest_sequence", file.largest_sequence.into()),
            ("global_sequence", DumpValue::Number(file.global_sequence)),
            ("range_deletes", file.range_deletes.into()),
            ("expiring", file.expiring.entries.into()),
            ("expires_by", file.expiring.by.into()),
            ("first_key", DumpValue::Bytes(&file.start)),
            ("end_key", end_key),
            ("end", DumpValue::Text(end)),
        ];
        let line = format_args!(
            "  + L{level} {:06}{}  {} B  id {:016x}  {}  sequences {}..={}{}  {}",
            file.number,
            in_keyspace(file.keyspace),
            file.bytes,
            file.table_id,
            counted(file.entries, "entry"),
            file.smallest_sequence,
            file.largest_sequence,
            if file.global_sequence.is_some() { " of an ingested table" } else { "" },
            KeyRangeText(&file.start, &file.end)
        );
        printer.record("added", &fields, line)?;
    }
    Ok(())
}
