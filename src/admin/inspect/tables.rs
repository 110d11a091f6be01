//! Prints tables: layout, entries and filters; and makes their [`TableFacts`].
//!
//! A table is opened as the engine opens it, with a cache that keeps nothing, so the text shows
//! what a lookup would see. Blocks are read in the order of the index.
//!
//! Invariants: damage of a filter is printed in its line and the rest follows, because it never
//! makes an answer wrong. Any other damage ends the text with an error. Filters of custom policies
//! are named and never asked.

use crate::admin::inspect::text::{DumpOptions, DumpValue, Output, Printer, TableFacts, quoted};
use crate::base::coding::get_u32;
use crate::base::error::{Error, Result};
use crate::base::iterator::api::Direction;
use crate::base::key::{split_internal_key, unpack_trailer, user_key};
use crate::base::stats::text::counted;
use crate::env::api::Env;
use crate::env::foreign::foreign_or;
use crate::table::block::cursor::BlockCursor;
use crate::table::features::version_of;
use crate::table::file::TableIo;
use crate::table::filter::layout::{CustomRules, PARTITIONED_PREFIX};
use crate::table::filter::ranges::RANGE_FILTER_NAME;
use crate::table::format::{
    BlockHandle, BlockKind, FOOTER_BYTES, HEADER_BYTES, PROPERTIES_NAME, RANGE_DELETES_NAME,
    TABLE_MAGIC,
};
use crate::table::reader::{Expect, Table};
use crate::table::verify::TableCheck;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

fn check(env: &Arc<dyn Env>) -> TableCheck<'_> {
    TableCheck { env, rules: CustomRules::default() }
}

/// Opens a file that should be a table.
fn open(env: &Arc<dyn Env>, path: &Path) -> Result<Table> {
    check(env).open(path, Expect::default()).map_err(|error| or_no_table(&**env, path, error))
}

/// Replaces damage by `UnsupportedFormat` if the file has the magic number at neither end: then it
/// is no table.
fn or_no_table(env: &dyn Env, path: &Path, error: Error) -> Error {
    let is_table = |words: Result<Option<[[u8; 8]; 2]>>| match words {
        Ok(words) => words.is_some_and(|words| words.contains(&TABLE_MAGIC.to_le_bytes())),
        Err(_) => true,
    };
    match foreign_or(env, path, error) {
        Error::Corruption { path, .. } if !is_table(end_words(env, &path)) => {
            Error::UnsupportedFormat { path, what: "not a siftdb table".into() }
        }
        error => error,
    }
}

/// The first and the last eight bytes of a file; `None` if it is shorter.
pub(crate) fn end_words(env: &dyn Env, path: &Path) -> Result<Option<[[u8; 8]; 2]>> {
    let io = |op| move |error| Error::io(op, path, error);
    let file = env.open_random(path).map_err(io("open"))?;
    let Some(last) = file.len().map_err(io("len"))?.checked_sub(8) else { return Ok(None) };
    let mut words = [[0; 8]; 2];
    for (offset, word) in [0, last].into_iter().zip(&mut words) {
        file.read_exact_at(offset, word).map_err(io("read"))?;
    }
    Ok(Some(words))
}

/// The facts of the table at `path`; reads footer, metaindex, properties and index.
///
/// # Errors
/// `Io`, `Corruption` or `UnsupportedFormat`.
pub fn table_facts(env: &Arc<dyn Env>, path: &Path) -> Result<TableFacts> {
    open(env, path).map(|table| facts_of(&table))
}

/// Checks every block, entry and filter of the table at `path` against everything else in it.
///
/// # Errors
/// The first contradiction, as `Corruption`; `Io`; `UnsupportedFormat`.
pub fn verify_table(env: &Arc<dyn Env>, path: &Path) -> Result<TableFacts> {
    verify_expected(env, path, Expect::default()).map_err(|error| or_no_table(&**env, path, error))
}

/// [`verify_table`] for a table with a known id and length.
pub(crate) fn verify_expected(
    env: &Arc<dyn Env>,
    path: &Path,
    expect: Expect,
) -> Result<TableFacts> {
    let (table, _) = check(env).run(path, expect, &mut |_| {})?;
    Ok(facts_of(&table))
}

fn facts_of(table: &Table) -> TableFacts {
    let properties = &table.properties;
    TableFacts {
        bytes: table.file.bytes,
        table_id: table.file.table_id,
        keyspace: properties.keyspace.id,
        keyspace_name: properties.keyspace.name.clone(),
        entries: properties.entries,
        tombstones: properties.tombstones,
        range_deletes: properties.range_deletes,
        data_blocks: properties.data_blocks,
        data_bytes: properties.data_bytes,
        index_bytes: properties.index_bytes,
        filter_bytes: properties.filter_bytes,
        range_filter_bytes: properties.range_filter_bytes,
        filter_partitions: properties.filter_partitions,
        filter_policy: properties.filter_policy.clone(),
        filter_encoding: properties.filter_encoding.clone(),
        filter_layout: properties.filter_layout.clone(),
        databases: properties.databases.iter().map(|id| format!("{id:032x}")).collect(),
        smallest_sequence: properties.smallest_sequence,
        largest_sequence: properties.largest_sequence,
    }
}

/// Prints the layout of the table at `path`.
///
/// # Errors
/// As for [`table_facts`], and of the output.
pub fn layout(env: &Arc<dyn Env>, path: &Path, out: &mut dyn Write) -> Result<()> {
    let options = DumpOptions::default();
    print_layout(&open(env, path)?, &mut Printer::new(Output::Text(out), &options))
}

/// Prints layout, filters and entries of the table at `path`.
///
/// # Errors
/// As for [`layout`]; `InvalidArgument` for a block that the table does not have.
pub(crate) fn dump_table(env: &Arc<dyn Env>, path: &Path, printer: &mut Printer<'_>) -> Result<()> {
    let table = open(env, path)?;
    let block = printer.options.block;
    if block.is_none() {
        print_layout(&table, printer)?;
        print_range_deletes(&table, printer)?;
    }
    let (index, _) = table.index.read(&table.file, &mut TableIo::default())?;
    if let Some(wanted) = block.filter(|wanted| *wanted >= index.len()) {
        let blocks = index.len();
        let what = format!("block {wanted} of {blocks} data blocks, counted from 0");
        return Err(Error::InvalidArgument { what });
    }
    for number in 0..index.len() {
        if printer.left == 0 {
            break;
        }
        if block.is_none_or(|wanted| wanted == number)
            && let Some(handle) = index.handle(number)
        {
            print_block(&table, number, handle, index.key(number), printer)?;
        }
    }
    Ok(())
}

/// `from..to`, prefix and trailer of the block included. A damaged prefix is printed, not refused:
/// only salvage reads it.
fn place(table: &Table, handle: BlockHandle, kind: BlockKind) -> Result<String> {
    let (start, end) = (handle.start().unwrap_or(0), handle.end().unwrap_or(u64::MAX));
    match table.file.check_prefix(handle, kind) {
        Ok(()) => Ok(format!("{start:>10}..{end}")),
        Err(Error::Corruption { what, .. }) => Ok(format!("{start:>10}..{end} ({what})")),
        Err(error) => Err(error),
    }
}

fn print_layout(table: &Table, printer: &mut Printer<'_>) -> Result<()> {
    let properties = &table.properties;
    let name = table.path().file_name().unwrap_or_default().to_string_lossy();
    printer.line(format_args!(
        "{name}  {} B  format {}  id {:016x}  {}",
        table.file.bytes,
        version_of(&properties.required_features),
        table.file.table_id,
        properties.compression.name()
    ))?;
    printer.line(format_args!(
        "  entries     {} ({} tombstones), sequences {}..={}{}",
        properties.entries,
        properties.tombstones,
        properties.smallest_sequence,
        properties.largest_sequence,
        if properties.ingested { ": ingested, the manifest has the sequence" } else { "" }
    ))?;
    if let Some((database, ancestors)) = properties.databases.split_first() {
        let ancestors: String =
            ancestors.iter().map(|id| format!(", ancestor {id:032x}")).collect();
        printer.line(format_args!("  written by database {database:032x}{ancestors}"))?;
    }
    if properties.entries > 0 {
        printer.line(format_args!(
            "  keys        {} ..= {}",
            quoted(user_key(&properties.smallest_key)),
            quoted(user_key(&properties.largest_key))
        ))?;
    }
    let header = match table.file.check_header(properties) {
        Ok(()) => "checksum ok".to_string(),
        Err(Error::Corruption { what, .. }) => what,
        Err(error) => return Err(error),
    };
    printer.line(format_args!(
        "  header      {:>10}..{HEADER_BYTES}  {HEADER_BYTES} B, keyspace {} {:?}, {header}",
        0, properties.keyspace.id, properties.keyspace.name
    ))?;
    printer.line(format_args!(
        "  data        {:>10}..{}  {}, {} B each on average; {} B of keys, {} B of values",
        HEADER_BYTES,
        (HEADER_BYTES as u64).saturating_add(properties.data_bytes),
        counted(properties.data_blocks, "block"),
        properties.mean_block_bytes(),
        properties.raw_key_bytes,
        properties.raw_value_bytes
    ))?;
    for (name, handle) in table.metaindex()? {
        print_named(table, &name, handle, printer)?;
    }
    let metaindex = table.footer.metaindex;
    let bytes = metaindex.stored_bytes();
    let at = place(table, metaindex, BlockKind::Metaindex)?;
    printer.line(format_args!("  metaindex   {at}  {bytes} B"))?;
    print_index(table, printer)?;
    let end = table.file.bytes;
    let start = table.file.blocks_end();
    printer.line(format_args!("  footer      {start:>10}..{end}  {FOOTER_BYTES} B, checksum ok"))
}

fn print_index(table: &Table, printer: &mut Printer<'_>) -> Result<()> {
    let is_by_user_key = table.properties.index_key_is_user_key;
    let keys = if is_by_user_key { "user keys" } else { "internal keys" };
    let index = table.footer.index;
    let (entries, top_level) = table.index.read(&table.file, &mut TableIo::default())?;
    let entries = counted(entries.len() as u64, "entry");
    if let Some(top_level) = &top_level {
        let handles: Vec<_> = top_level.partitions.handles().collect();
        let bytes: u64 = handles.iter().map(BlockHandle::stored_bytes).sum();
        let partitions = counted(handles.len() as u64, "partition");
        let start = handles.first().and_then(BlockHandle::start).unwrap_or(0);
        let end = handles.last().and_then(BlockHandle::end).unwrap_or(u64::MAX);
        printer.line(format_args!("  partitions  {start:>10}..{end}  {bytes} B, {partitions}"))?;
    }
    printer.line(format_args!(
        "  index       {}  {} B, {entries}, {keys}{}",
        place(table, index, BlockKind::Index)?,
        index.stored_bytes(),
        if top_level.is_some() { ", top level" } else { "" }
    ))
}

/// Prints a block that the metaindex names.
fn print_named(
    table: &Table,
    name: &str,
    handle: BlockHandle,
    printer: &mut Printer<'_>,
) -> Result<()> {
    let bytes = handle.stored_bytes();
    if name == PROPERTIES_NAME {
        let place = place(table, handle, BlockKind::Properties)?;
        return printer.line(format_args!("  properties  {place}  {bytes} B"));
    }
    if name == RANGE_DELETES_NAME {
        let place = place(table, handle, BlockKind::RangeDeletes)?;
        let count = table.properties.range_deletes;
        return printer
            .line(format_args!("  ranges      {place}  {bytes} B, {count} range deletes"));
    }
    if name == RANGE_FILTER_NAME {
        return print_range_filter(table, handle, printer);
    }
    print_filter(table, name, handle, printer)
}

fn print_range_filter(table: &Table, handle: BlockHandle, printer: &mut Printer<'_>) -> Result<()> {
    let properties = &table.properties;
    printer.line(format_args!(
        "  range filter  {}  {} bits a key, {} B",
        place(table, handle, BlockKind::FilterIndex)?,
        properties.range_filter_millibits as f64 / 1000.0,
        properties.range_filter_bytes
    ))?;
    if table.range_filter.as_deref().is_none() {
        return printer.line(format_args!("    not consulted: its key model is unknown"));
    }
    or_not_consulted(print_partitions(table, handle, printer), printer)
}

/// Prints damage of a filter, which never makes an answer wrong.
fn or_not_consulted(printed: Result<()>, printer: &mut Printer<'_>) -> Result<()> {
    match printed {
        Err(error) if error.is_corruption() => {
            printer.line(format_args!("    not consulted: {error}"))
        }
        other => other,
    }
}

/// Prints the range deletes, cut into fragments, each with its sequences.
fn print_range_deletes(table: &Table, printer: &mut Printer<'_>) -> Result<()> {
    for delete in table.range_deletes().iter().flat_map(|deletes| deletes.deletes()) {
        printer.range_delete(None, &delete.start, delete.end.as_deref(), delete.sequence)?;
    }
    Ok(())
}

fn print_filter(
    table: &Table,
    name: &str,
    handle: BlockHandle,
    printer: &mut Printer<'_>,
) -> Result<()> {
    let properties = &table.properties;
    let bits = properties.filter_millibits_per_key as f64 / 1000.0;
    let kind = match name.starts_with(PARTITIONED_PREFIX) {
        true => BlockKind::FilterIndex,
        false => BlockKind::Filter,
    };
    printer.line(format_args!(
        "  filter      {}  {} {} {}, {}, {bits} bits a key, {} B",
        place(table, handle, kind)?,
        name.escape_debug(),
        properties.filter_encoding.escape_debug(),
        properties.filter_layout.escape_debug(),
        counted(properties.filter_entries, "key"),
        properties.filter_bytes
    ))?;
    if properties.prefix_filtering {
        let held =
            if properties.whole_key_filtering { "whole keys and prefixes" } else { "prefixes" };
        let id = properties.prefix_extractor.escape_debug();
        printer.line(format_args!("    {held} by {id}"))?;
    }
    let filter = &table.filter;
    if filter.layout_name() == "none" {
        let policy = properties.filter_policy.escape_debug();
        return printer.line(format_args!("    not consulted: policy {policy} is not built in"));
    }
    let printed = match filter.layout_name() {
        "partitioned" => print_partitions(table, handle, printer),
        "block-based" => print_windows(table, handle, printer),
        _ => table.file.read_raw(handle, BlockKind::Filter, &mut TableIo::default()).map(drop),
    };
    or_not_consulted(printed, printer)
}

fn print_partitions(table: &Table, handle: BlockHandle, printer: &mut Printer<'_>) -> Result<()> {
    let mut io = TableIo::default();
    let index = table.file.read_index(handle, BlockKind::FilterIndex, &mut io)?;
    let bytes = handle.stored_bytes();
    printer.line(format_args!("    top-level index {bytes} B, {} partitions", index.len()))?;
    for number in 0..index.len() {
        let Some(partition) = index.handle(number) else { continue };
        let separator = separator_of(table, index.key(number));
        printer.line(format_args!(
            "    {number:>8}  {}  {} B  to {}",
            place(table, partition, BlockKind::Filter)?,
            partition.stored_bytes(),
            quoted(separator)
        ))?;
        table.file.read_raw(partition, BlockKind::Filter, &mut io)?;
    }
    Ok(())
}

fn print_windows(table: &Table, handle: BlockHandle, printer: &mut Printer<'_>) -> Result<()> {
    let mut io = TableIo::default();
    let contents = table.file.read_raw(handle, BlockKind::Filter, &mut io)?;
    let Some((base_lg, offsets)) = window_offsets(&contents) else {
        return Err(table.file.corruption(handle.offset, "a malformed block-based filter"));
    };
    let empty = offsets.windows(2).filter(|pair| matches!(pair, [from, to] if from == to)).count();
    let windows = offsets.len().saturating_sub(1);
    printer.line(format_args!(
        "    {windows} windows of 2^{base_lg} B, {empty} of them empty: no data block starts there"
    ))
}

/// The logarithm of the window size, the start of each window's filter, and the end of the last
/// one; see `table/filter/block_based.rs`.
fn window_offsets(contents: &[u8]) -> Option<(u8, Vec<u32>)> {
    let (&base_lg, front) = contents.split_last()?;
    let array = get_u32(front, front.len().checked_sub(4)?)? as usize;
    let offsets = front.get(array..)?.chunks_exact(4).map(|word| get_u32(word, 0));
    Some((base_lg, offsets.collect::<Option<Vec<u32>>>()?))
}

/// The user key of a separator, which is stored as a user key or an internal key.
fn separator_of<'k>(table: &Table, stored: &'k [u8]) -> &'k [u8] {
    if table.properties.index_key_is_user_key { stored } else { user_key(stored) }
}

fn print_block(
    table: &Table,
    number: usize,
    handle: BlockHandle,
    separator: &[u8],
    printer: &mut Printer<'_>,
) -> Result<()> {
    let mut io = TableIo::default();
    let fetched = table.file.fetch(handle, BlockKind::Data, false, &mut io)?.into_shared();
    let Some(block) = fetched.data() else {
        return Err(table.file.corruption(handle.offset, "the data index names no data block"));
    };
    let separator = separator_of(table, separator);
    let fields = [
        ("number", (number as u64).into()),
        ("offset", handle.offset.into()),
        ("stored_bytes", handle.stored_bytes().into()),
        ("bytes", (block.contents().len() as u64).into()),
        ("separator", DumpValue::Bytes(separator)),
    ];
    let line = format_args!(
        "block {number}  {}  {} B stored, {} B; to {}",
        place(table, handle, BlockKind::Data)?,
        handle.stored_bytes(),
        block.contents().len(),
        quoted(separator)
    );
    printer.record("block", &fields, line)?;
    let mut cursor = BlockCursor::new(Direction::Forward);
    cursor.seek(block, None);
    while cursor.valid() && printer.left > 0 {
        printer.left -= 1;
        print_entry(cursor.key(), cursor.value(block), printer)?;
        cursor.next(block);
    }
    Ok(())
}

fn print_entry(internal_key: &[u8], value: &[u8], printer: &mut Printer<'_>) -> Result<()> {
    let Some((key, trailer)) = split_internal_key(internal_key) else {
        let fields =
            [("what", DumpValue::Text("malformed key")), ("key", DumpValue::Bytes(internal_key))];
        let line = format_args!("  malformed key {}", quoted(internal_key));
        return printer.record("damage", &fields, line);
    };
    match unpack_trailer(trailer) {
        Some((sequence, kind)) => printer.entry(None, key, sequence, kind, value),
        None => {
            let fields =
                [("what", DumpValue::Text("unknown kind")), ("key", DumpValue::Bytes(key))];
            let line = format_args!("  {} of an unknown kind {}", quoted(key), trailer as u8);
            printer.record("damage", &fields, line)
        }
    }
}
