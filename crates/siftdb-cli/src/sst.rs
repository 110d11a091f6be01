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
use crate::described::{Described, Field, help, more_help, result};
use crate::failure::{Failure, Outcome};
use crate::foreign_table;
use crate::json::{Bytes, ErrorFields, bytes_entry};
use crate::output::{Output, Shown};
use crate::text::{counted, counted_entries};
use clap::Args;
use serde::Serialize;
use serde_json::Map;
use siftdb::Error;
use siftdb::env::{DiskEnv, Env, FileKind};
use siftdb::inspect::{self, DumpRecord, DumpValue, LiveTable, TableFacts, UncheckedLogs};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

result! {
    struct Facts of facts: &TableFacts {
        /// length of the file
        bytes: u64;
        /// the number that ties its blocks together, in hexadecimal
        table_id: String = format!("{:016x}", facts.table_id);
        /// number of the keyspace it was written for
        keyspace: u32;
        /// its name
        keyspace_name: String;
        /// all entries, and those that delete their key
        entries, tombstones: u64;
        /// range deletes, each counted in every part that others cut it into
        range_deletes: u64;
        /// data blocks and their bytes
        data_blocks, data_bytes: u64;
        /// bytes of the index
        index_bytes: u64;
        /// bytes of the filter
        filter_bytes: u64;
        /// bytes of the range filter; 0 without one
        range_filter_bytes: u64;
        /// partitions of the filter; 0 in the other layouts
        filter_partitions: u64;
        /// empty without a filter
        filter_policy, filter_encoding, filter_layout: String;
        /// ids of the database that wrote it and of its ancestors, in hexadecimal; empty in a table
        /// of 0.1.0
        databases: Vec<String>;
        /// the sequence numbers of entries and range deletes
        smallest_sequence, largest_sequence: u64;
    }

    struct Verified {
        /// whether all tables that were checked are in order
        sound: bool;
        /// whether a program has the database open to write; null for a single table
        in_use: Option<bool>;
        /// null for a single table; else what is not checked here:
        unchecked_logs: Option<Unchecked>;
        /// each table:
        tables: Vec<OfTable>;
    }

    struct Unchecked of unchecked: &UncheckedLogs {
        /// how many
        logs: u64;
        /// the entries in them that are in no table
        log_entries: u64 = unchecked.entries;
    }

    struct OfTable {
        /// its file
        #[serde(flatten)] path: Bytes;
        /// its number; null for a single table
        keyspace: Option<u32>;
        /// whether it is in order
        ok: bool;
        /// null, or kind, path, offset, operation, what, advice
        error: Option<ErrorFields>;
        /// null, or:
        table: Option<Either>;
    }
}

/// The facts of a table of siftdb, or those of another store.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Either {
    Own(Box<Facts>),
    Foreign(Box<foreign_table::Counts>),
}

impl Described for Either {
    fn fields() -> Vec<Field> {
        Facts::fields()
    }
}

impl OfTable {
    fn new(path: &Path, keyspace: Option<u32>, checked: Result<Either, &Error>) -> Self {
        let error = checked.as_ref().err().map(|error| ErrorFields::of(error));
        OfTable {
            path: Bytes::path(path),
            keyspace,
            ok: checked.is_ok(),
            error,
            table: checked.ok(),
        }
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Facts>() + &more_help::<foreign_table::Layout>())]
pub struct Layout {
    /// A table of siftdb, LevelDB or RocksDB; its last bytes say which
    file: PathBuf,
}

result! {
    /// JSON, one object a line: record, and what the rest is about. A keyspace is a number:
    value Record {
        /// of a table: number, offset, stored_bytes, bytes, separator
        block;
        /// key and sequence, and of an entry its value, whole, and expires_at in ms since 1970 if
        /// it expires; keys and values that are not UTF-8 are under the names with _base64; in a
        /// log also keyspace
        entry, deletion;
        /// start, end (absent without an end) and sequence; in a log also keyspace
        range_deletion;
        /// number, bytes, header: its state in words
        log, manifest;
        /// of a log: offset, synced_through, previous_log, previous_last_sequence, first_sequence,
        /// manifest, manifest_bytes, database_id in hexadecimal, epoch
        start;
        /// of a log: offset, tables of bulk loads that follow one by one: how many
        loads;
        /// table_id and sequence: that of all entries of the table
        loaded_table;
        /// offset, entries, sequence of the first, synced_through
        batch;
        /// of a manifest: offset, ordinal, and first_log, flushed_through, next_file,
        /// last_sequence, synced_through, session_log, next_keyspace, database_id, epoch,
        /// checkpoint_of, ancestors (ids with a space between), expired_through, each null where it
        /// is not changed; after a clean close closed_at_sequence, closed_log, closed_log_bytes,
        /// else null
        edit;
        /// keyspaces of the edit: keyspace, name, flushed_through, settings in words; each where it
        /// changes
        created, settings, flushed, dropped;
        /// tables of the edit: keyspace, level, table; and bytes, entries, range_deletes, expiring,
        /// expires_by, smallest_sequence, largest_sequence, global_sequence of an ingested table or
        /// null, first_key, end_key, and end: included, excluded, or unbounded if there is no
        /// end_key
        removed, added;
        /// of a manifest: what all edits come to: tables, keyspaces, next_keyspace, first_log,
        /// next_file, last_sequence, flushed_through, synced_through, database_id, epoch,
        /// expired_through
        state;
        /// after the state: keyspace, name, tables, flushed_through, settings
        keyspace;
        /// manifest: the number of the one in force; or unfinished: 1
        current;
        /// of STATS: since_unix_seconds, counters and keyspaces: how many
        statistics;
        /// keyspace, null for the database; number of the counter, total
        counter;
        /// what; offset and state, torn or damaged, or the key
        damage;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Record>() + &more_help::<foreign_table::Item>())]
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
#[command(after_long_help = help::<Verified>() + &more_help::<foreign_table::Counts>())]
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
        output.show(&Facts::of(&facts), |out| inspect::layout(&disk(), &self.file, out))
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
            return output.show_text(|out| inspect::dump(&disk(), &self.file, &options, out));
        }
        let mut rows = output.rows();
        inspect::dump_records(&disk(), &self.file, &options, &mut |record| {
            rows.json(&record_of(record))
        })?;
        rows.end()
    }
}

fn record_of(record: &DumpRecord<'_>) -> Record {
    let mut object = Map::from_iter([("record".to_string(), record.kind.into())]);
    for &(name, value) in record.fields {
        let (name, value) = match value {
            DumpValue::Number(number) => (name.into(), number.into()),
            DumpValue::Bytes(bytes) => bytes_entry(name, bytes),
            DumpValue::Text(text) => (name.into(), text.into()),
            _ => continue,
        };
        object.insert(name, value);
    }
    Record(object.into())
}

/// A table, the number of its keyspace, and the result of its check.
pub struct Checked {
    pub path: PathBuf,
    pub keyspace: Option<u32>,
    pub result: Result<TableFacts, Error>,
}

impl Checked {
    fn table(&self) -> OfTable {
        let facts = self.result.as_ref().map(|facts| Either::Own(Box::new(Facts::of(facts))));
        OfTable::new(&self.path, self.keyspace, facts)
    }
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
                return verify_foreign(path, output);
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

/// Checks a table of another store.
fn verify_foreign(path: &Path, output: Output) -> Outcome<Shown> {
    let checked = foreign_table::verify(path)?;
    let counts = checked.as_ref().map(|(table, counts)| foreign_table::Counts::of(counts, table));
    let table = OfTable::new(path, None, counts.map(|counts| Either::Foreign(Box::new(counts))));
    let (sound, tables) = (checked.is_ok(), vec![table]);
    let verified = Verified { sound, in_use: None, unchecked_logs: None, tables };
    let shown = output.show(&verified, |out| match &checked {
        Ok((table, counts)) => foreign_table::print_counts(path, table, counts, out),
        Err(_) => writeln!(out, "1 table, 1 not in order"),
    })?;
    checked.map_or_else(|error| Err(Failure::damage(&[error])), |_| Ok(shown))
}

fn print(checked: &[Checked], unchecked: Option<UncheckedLogs>, output: Output) -> Outcome<Shown> {
    let failures: Vec<Error> = checked.iter().filter_map(|one| one.result.clone().err()).collect();
    let bad = failures.len();
    let verified = Verified {
        sound: bad == 0,
        in_use: unchecked.as_ref().map(|unchecked| unchecked.in_use),
        unchecked_logs: unchecked.as_ref().map(Unchecked::of),
        tables: checked.iter().map(Checked::table).collect(),
    };
    let shown = output.show(&verified, |out| {
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
