//! `siftdb sst layout|dump|verify`: looks into files, by `siftdb::inspect`, without the lock.
//! `foreign_table.rs` has the same for single tables of LevelDB and RocksDB.
//!
//! `verify` of a directory reads CURRENT and the manifest to find its tables. It ignores other
//! files; a missing table is damage. Sound tables are listed on standard output, with their number
//! at the end. Each damaged table is a sentence on standard error, and the exit code is 3. The
//! command also says what it did not check: logs with entries that are in no table, and tables that
//! a running program may add.

use crate::args::LIST_THEM;
use crate::bars::Bar;
use crate::failure::{Failure, Outcome};
use crate::foreign_table;
use crate::json::{bytes_field, error_json, fields, joined, list, path_field};
use crate::output::{Output, Shown};
use crate::text::{counted, counted_entries};
use clap::Args;
use serde_json::{Value, json};
use siftdb::Error;
use siftdb::env::{DiskEnv, Env, FileKind};
use siftdb::inspect::{self, DumpRecord, DumpValue, LiveTable, TableFacts, UncheckedLogs};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// The fields of [`facts_json`].
macro_rules! facts_help {
    () => {
        "\
  bytes             length of the file
  table_id          the number that ties its blocks together, in hexadecimal
  keyspace, keyspace_name   number and name of the keyspace it was written for
  entries, tombstones   all entries, and those that delete their key
  range_deletes     range deletes, each counted in every part that others cut it into
  data_blocks, data_bytes   data blocks and their bytes
  index_bytes       bytes of the index
  filter_bytes      bytes of the filter
  filter_partitions partitions of the filter; 0 in the other layouts
  filter_policy, filter_encoding, filter_layout   empty without a filter
  databases         ids of the database that wrote it and of its ancestors, in hexadecimal; empty in
                    a table of 0.1.0
  smallest_sequence, largest_sequence   the sequence numbers of entries and range deletes"
    };
}

const LAYOUT_JSON: &str = concat!(
    "JSON fields:\n  format            1\n",
    facts_help!(),
    "
Of a table of LevelDB or RocksDB:
  store             leveldb or rocksdb
  bytes, checksum   length of the file; none, CRC-32C, xxHash, xxHash64 or XXH3
  format_version, index_type   of RocksDB, else null
  properties        of RocksDB: name, and number or value
  parts             in the order of the text: kind, such as data, filter, index or footer; offset
                    and bytes, with checksum; compression; name in the metaindex or empty;
                    separator, a key at or above all of the part, if it has one"
);

const VERIFY_JSON: &str = concat!(
    "\
JSON fields:
  format            1
  sound             whether all tables that were checked are in order
  in_use            whether a program has the database open to write; null for a single table
  unchecked_logs    logs, and log_entries: the entries in them that are in no table; not checked
                    here. Null for a single table
  tables            each table: path, keyspace, its number, ok, error, table; keyspace is null
                    for a single table
    error           null, or kind, path, offset, operation, what, advice
    table           null, or\n",
    facts_help!(),
    "
Of a table of LevelDB or RocksDB, table is null, or
  store, bytes, checksum, format_version, index_type   as `sst layout` says
  entries, keys, deletions, merges, range_deletes, data_blocks, data_bytes, filter_bytes,
  filter_partitions, smallest_sequence, largest_sequence   as counted"
);

#[derive(Args)]
#[command(after_long_help = LAYOUT_JSON)]
pub struct Layout {
    /// A table of siftdb, LevelDB or RocksDB; its last bytes say which
    file: PathBuf,
}

const DUMP_JSON: &str = "\
JSON, one object a line: format, 1, and record, what the rest is about. A keyspace is a number.
  block             of a table: number, offset, stored_bytes, bytes, separator
  entry, deletion   key and sequence, and of an entry its value, whole, and expires_at in ms since
                    1970 if it expires; keys and values that are not UTF-8 are under the names with
                    _base64; in a log also keyspace
  range_deletion    start, end (absent without an end) and sequence; in a log also keyspace
  log, manifest     number, bytes, header: its state in words
  start             of a log: offset, synced_through, previous_log, previous_last_sequence,
                    first_sequence, manifest, manifest_bytes, database_id in hexadecimal, epoch
  batch             offset, entries, sequence of the first, synced_through
  edit              of a manifest: offset, ordinal, and first_log, flushed_through, next_file,
                    last_sequence, synced_through, session_log, next_keyspace, database_id,
                    epoch, checkpoint_of, ancestors (ids with a space between),
                    expired_through, each null where it is not changed;
                    after a clean close closed_at_sequence, closed_log, closed_log_bytes, else null
  created, settings, flushed, dropped   keyspaces of the edit: keyspace, name, flushed_through,
                    settings in words; each where it changes
  removed, added    tables of the edit: keyspace, level, table; and bytes, entries, range_deletes,
                    expiring, expires_by,
                    smallest_sequence, largest_sequence, global_sequence of an ingested table or
                    null, first_key, end_key, and end: included, excluded, or unbounded if there is
                    no end_key
  state             of a manifest: what all edits come to: tables, keyspaces, next_keyspace,
                    first_log, next_file, last_sequence, flushed_through, synced_through,
                    database_id, epoch, expired_through
  keyspace          after the state: keyspace, name, tables, flushed_through, settings
  current           manifest: the number of the one in force; or unfinished: 1
  statistics        of STATS: since_unix_seconds, counters and keyspaces: how many
  counter           keyspace, null for the database; number of the counter, total
  damage            what; offset and state, torn or damaged, or the key
Of a table of LevelDB or RocksDB:
  block             number, offset, stored_bytes, compression, separator
  entry, deletion   kind: value, merge, deletion, single_deletion, blob_index, wide_columns or
                    value_with_time; key, value, and sequence as it is stored, which is 0 in a
                    table made to be ingested: there a property global_seqno has it for all
  range_deletion    start, end and sequence";

#[derive(Args)]
#[command(after_long_help = DUMP_JSON)]
pub struct Dump {
    /// A table, also of LevelDB or RocksDB; a write-ahead log, a manifest or CURRENT, also if
    /// renamed
    file: PathBuf,
    /// Of a table, only the data block of this number, counted from 0
    #[arg(long)]
    block: Option<usize>,
    /// Of a table or a log, at most this many entries
    #[arg(long)]
    limit: Option<u64>,
}

#[derive(Args)]
#[command(after_long_help = VERIFY_JSON)]
pub struct Verify {
    /// A table, also of LevelDB or RocksDB, or the directory of a database
    path: PathBuf,
    /// Of a database, only the tables of this keyspace
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
}

fn disk() -> Arc<dyn Env> {
    Arc::new(DiskEnv::new())
}

impl Layout {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        if foreign_table::is_at(&self.file) {
            return foreign_table::layout(&self.file, output);
        }
        let facts = inspect::table_facts(&disk(), &self.file)?;
        output.show(facts_json(&facts), |out| inspect::layout(&disk(), &self.file, out))
    }
}

impl Dump {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        if foreign_table::is_at(&self.file) {
            let limit = self.limit.unwrap_or(u64::MAX);
            return foreign_table::dump(&self.file, self.block, limit, output);
        }
        let mut options = inspect::DumpOptions::default();
        options.block = self.block;
        options.entries_max = self.limit.unwrap_or(u64::MAX);
        if !output.is_json() {
            return output.show(json!({}), |out| inspect::dump(&disk(), &self.file, &options, out));
        }
        let mut rows = output.rows();
        inspect::dump_records(&disk(), &self.file, &options, &mut |record| {
            rows.json(record_json(record))
        })?;
        rows.end()
    }
}

fn record_json(record: &DumpRecord<'_>) -> Value {
    let kind = json!({ "record": record.kind });
    record.fields.iter().fold(kind, |object, &(name, value)| {
        let field = match value {
            DumpValue::Number(number) => json!({ name: number }),
            DumpValue::Bytes(bytes) => bytes_field(name, bytes),
            DumpValue::Text(text) => json!({ name: text }),
            _ => json!({}),
        };
        joined([object, field])
    })
}

/// A table, the number of its keyspace, and the result of its check.
pub struct Checked {
    pub path: PathBuf,
    pub keyspace: Option<u32>,
    pub result: Result<TableFacts, Error>,
}

impl Verify {
    pub fn run(self, output: Output) -> Outcome<Shown> {
        let (env, path) = (disk(), &self.path);
        let metadata = env.metadata(path).map_err(|source| Failure::io(path, source))?;
        if metadata.kind != FileKind::Directory {
            if self.keyspace.is_some() {
                return Err(Failure::usage("--keyspace needs the directory of a database"));
            }
            if foreign_table::is_at(path) {
                return foreign_table::verify(path, output);
            }
            let result = foreign_table::judged(inspect::verify_table(&env, path))?;
            let checked = Checked { path: path.clone(), keyspace: None, result };
            return print(&[checked], None, output);
        }
        let no_database = || Failure::no_database(path, None);
        let mut tables = inspect::live_tables(&env, path)?.ok_or_else(no_database)?;
        if let Some(name) = &self.keyspace {
            let keyspaces = inspect::live_keyspaces(&env, path)?;
            let number = keyspaces.iter().find(|(_, other)| other == name);
            let (number, _) = number.ok_or_else(|| Failure::no_keyspace(path, name, LIST_THEM))?;
            tables.retain(|table| table.keyspace == *number);
        }
        let checked = check_tables(&env, tables);
        let unchecked = inspect::unchecked_logs(&env, path)?;
        print(&checked, Some(unchecked), output)
    }
}

/// Checks tables one by one, with a progress bar. Leaves out those that a running database replaced
/// in the meantime.
pub fn check_tables(env: &Arc<dyn Env>, tables: Vec<LiveTable>) -> Vec<Checked> {
    let bar = Bar::bytes("verify", Some(tables.iter().map(|table| table.bytes).sum()));
    let check = |table: LiveTable| {
        let checked = inspect::verify_live_table(env, &table);
        bar.add(table.bytes);
        let keyspace = Some(table.keyspace);
        checked.transpose().map(|result| Checked { path: table.path, keyspace, result })
    };
    tables.into_iter().filter_map(check).collect()
}

fn print(checked: &[Checked], unchecked: Option<UncheckedLogs>, output: Output) -> Outcome<Shown> {
    let failures: Vec<Error> = checked.iter().filter_map(|one| one.result.clone().err()).collect();
    let bad = failures.len();
    let json = json!({
        "sound": bad == 0,
        "in_use": unchecked.as_ref().map(|unchecked| unchecked.in_use),
        "unchecked_logs": unchecked.as_ref().map(|unchecked| {
            json!({ "logs": unchecked.logs, "log_entries": unchecked.entries })
        }),
        "tables": list(checked, table_json),
    });
    let shown = output.show(json, |out| {
        for Checked { path, keyspace, result } in checked {
            if let Ok(facts) = result {
                let blocks = counted(facts.data_blocks, "data block");
                let entries = counted_entries(facts.entries);
                let of = match keyspace {
                    None | Some(0) => String::new(),
                    Some(number) => format!(", keyspace {number}"),
                };
                writeln!(out, "{}: ok, {entries} in {blocks}{of}", path.display())?;
            }
        }
        let tables = counted(checked.len() as u64, "table");
        let rest = unchecked.unwrap_or_default();
        match bad {
            0 if rest.entries == 0 && !rest.in_use => writeln!(out, "{tables}, all in order")?,
            0 => writeln!(out, "{tables} in order")?,
            bad => writeln!(out, "{tables}, {bad} not in order")?,
        }
        print_unchecked(rest, out)
    })?;
    if failures.is_empty() { Ok(shown) } else { Err(Failure::damage(&failures)) }
}

fn print_unchecked(unchecked: UncheckedLogs, out: &mut dyn Write) -> std::io::Result<()> {
    if unchecked.in_use {
        writeln!(out, "the database is in use: tables that are written now are not checked")?;
    }
    if unchecked.entries == 0 {
        return Ok(());
    }
    let logs = counted(unchecked.logs, "log");
    let entries = counted_entries(unchecked.entries);
    let way = match unchecked.in_use {
        true => "once it is closed, `siftdb verify DIR` checks logs, too",
        false => "`siftdb verify DIR` checks logs, `siftdb flush DIR` writes them to a table",
    };
    writeln!(out, "not checked: {logs} with {entries} that are in no table; {way}")
}

fn table_json(Checked { path, keyspace, result }: &Checked) -> Value {
    joined([
        path_field("path", path),
        json!({
            "keyspace": keyspace,
            "ok": result.is_ok(),
            "error": result.as_ref().err().map(error_json),
            "table": result.as_ref().ok().map(facts_json),
        }),
    ])
}

fn facts_json(facts: &TableFacts) -> Value {
    joined([
        json!({ "table_id": format!("{:016x}", facts.table_id) }),
        fields!(facts;
            bytes, keyspace, keyspace_name, entries, tombstones, range_deletes, data_blocks,
            data_bytes, index_bytes, filter_bytes, filter_partitions, filter_policy,
            filter_encoding, filter_layout, databases, smallest_sequence, largest_sequence),
    ])
}
