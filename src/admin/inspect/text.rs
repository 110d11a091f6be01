//! Options, table facts and the printer that all of `inspect` uses.
//!
//! `dump`, `tables` and `records` print through a [`Printer`], which tells errors of the output
//! from errors of the file. Keys and values are printed in quotes with Rust's byte-string escapes:
//! in ASCII, so that no key can break a line or a terminal.

use crate::base::error::{Error, Result};
use crate::base::expiry::split_expiring;
use crate::base::key::{DEFAULT_KEYSPACE, KeyspaceId, ValueKind};
use std::fmt;
use std::io::{self, Write};
use std::ops::Bound;
use std::path::Path;

/// How much of a file to print.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DumpOptions {
    /// Print only this data block of a table, counted from 0. Default: all.
    pub block: Option<usize>,
    /// The most entries to print. Default: all.
    pub entries_max: u64,
    /// The most bytes of each value to print. Default: 64.
    pub value_bytes_max: usize,
}

impl Default for DumpOptions {
    fn default() -> Self {
        DumpOptions { block: None, entries_max: u64::MAX, value_bytes_max: 64 }
    }
}

/// The properties of a table. Sizes are as stored, block trailers included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableFacts {
    /// Length of the file.
    pub bytes: u64,
    /// The random number that its blocks and the manifest contain.
    pub table_id: u64,
    /// The number of the keyspace that it is of.
    pub keyspace: u32,
    /// The name of that keyspace when the table was written.
    pub keyspace_name: String,
    /// Number of entries, tombstones included.
    pub entries: u64,
    /// Entries that delete their key.
    pub tombstones: u64,
    /// Sequences of its range deletes.
    pub range_deletes: u64,
    /// Number of data blocks.
    pub data_blocks: u64,
    /// Bytes of data blocks.
    pub data_bytes: u64,
    /// Bytes of the data index.
    pub index_bytes: u64,
    /// Bytes of the filter, all partitions and their index included.
    pub filter_bytes: u64,
    /// Bytes of the range filter, all partitions and their index included; 0 without one.
    pub range_filter_bytes: u64,
    /// Partitions of the filter; 0 in other layouts.
    pub filter_partitions: u64,
    /// The name of the filter policy in the table; empty without a filter.
    pub filter_policy: String,
    /// The label of the filter's encoding; empty without a filter.
    pub filter_encoding: String,
    /// The layout of the filter; empty without a filter.
    pub filter_layout: String,
    /// The id of the database that wrote the table and those of its ancestors, in hexadecimal;
    /// empty in a table of version 0.1.0.
    pub databases: Vec<String>,
    /// Smallest sequence number of an entry or range delete.
    pub smallest_sequence: u64,
    /// Largest sequence number of an entry or range delete.
    pub largest_sequence: u64,
}

/// A part of a dumped file as data; [`dump_records`](crate::inspect::dump_records) calls its sink
/// with each of them.
#[derive(Clone, Copy, Debug)]
pub struct DumpRecord<'a> {
    /// The kind of record: `block`, `entry`, `deletion`, `range_deletion`, `log`, `start`, `loads`,
    /// `loaded_table`, `batch`, `damage`, `manifest`, `edit`, `created`, `settings`, `flushed`,
    /// `dropped`, `removed`, `added`, `state`, `keyspace`, `current`, `statistics` or `counter`.
    pub kind: &'static str,
    /// Its fields by name.
    pub fields: &'a [(&'static str, DumpValue<'a>)],
}

/// A field of a [`DumpRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DumpValue<'a> {
    /// A number, or nothing.
    Number(Option<u64>),
    /// A key or value.
    Bytes(&'a [u8]),
    /// Text, such as a name or settings.
    Text(&'a str),
}

impl From<u64> for DumpValue<'_> {
    fn from(number: u64) -> Self {
        DumpValue::Number(Some(number))
    }
}

/// The function that gets each record.
pub type RecordSink<'a> = &'a mut dyn FnMut(&DumpRecord<'_>) -> io::Result<()>;

/// Where a dump goes.
pub(crate) enum Output<'a> {
    Text(&'a mut dyn Write),
    Records(RecordSink<'a>),
}

/// Prints a dump as text, or passes it on as records. A failed write is an `Io` error with the
/// operation `print`.
pub(crate) struct Printer<'a> {
    output: Output<'a>,
    pub options: &'a DumpOptions,
    /// How many entries may still be printed.
    pub left: u64,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(output: Output<'a>, options: &'a DumpOptions) -> Self {
        Printer { output, options, left: options.entries_max }
    }

    /// Prints one line of text that belongs to no record.
    pub(crate) fn line(&mut self, line: fmt::Arguments<'_>) -> Result<()> {
        match &mut self.output {
            Output::Text(out) => printed(out.write_fmt(line).and_then(|()| out.write_all(b"\n"))),
            Output::Records(_) => Ok(()),
        }
    }

    /// Hands out a record, or prints `line`, which says the same.
    pub(crate) fn record(
        &mut self,
        kind: &'static str,
        fields: &[(&'static str, DumpValue<'_>)],
        line: fmt::Arguments<'_>,
    ) -> Result<()> {
        match &mut self.output {
            Output::Text(_) => self.line(line),
            Output::Records(sink) => printed(sink(&DumpRecord { kind, fields })),
        }
    }

    /// Prints or hands out a bad place: what is wrong at `offset`, whether it is torn or damaged.
    pub(crate) fn damage(
        &mut self,
        offset: u64,
        state: &str,
        what: &str,
        line: fmt::Arguments<'_>,
    ) -> Result<()> {
        let (state, what) = (DumpValue::Text(state), DumpValue::Text(what));
        let fields = [("offset", offset.into()), ("state", state), ("what", what)];
        self.record("damage", &fields, line)
    }

    /// Prints one entry, or a deletion. `keyspace` is that of an entry of a log; a table holds
    /// entries of one keyspace only.
    pub(crate) fn entry(
        &mut self,
        keyspace: Option<KeyspaceId>,
        key: &[u8],
        sequence: u64,
        kind: ValueKind,
        value: &[u8],
    ) -> Result<()> {
        let (name, of) = (quoted(key), in_keyspace(keyspace));
        let fields = [
            ("keyspace", u64::from(keyspace.unwrap_or_default()).into()),
            ("key", DumpValue::Bytes(key)),
            ("sequence", sequence.into()),
            ("value", DumpValue::Bytes(value)),
        ];
        // A table names its keyspace once.
        let fields = if keyspace.is_some() { &fields[..] } else { &fields[1..] };
        match kind {
            ValueKind::ExpiringPut => {
                let (expires_at, bytes) = split_expiring(value).unwrap_or((0, value));
                let value = Quoted { bytes, bytes_max: self.options.value_bytes_max };
                let mut fields = fields.to_vec();
                fields.pop();
                fields.extend([
                    ("value", DumpValue::Bytes(bytes)),
                    ("expires_at", expires_at.into()),
                ]);
                let line = format_args!("  {name} @{sequence}{of} until {expires_at} ms = {value}");
                self.record("entry", &fields, line)
            }
            ValueKind::Put => {
                let value = Quoted { bytes: value, bytes_max: self.options.value_bytes_max };
                self.record("entry", fields, format_args!("  {name} @{sequence}{of} = {value}"))
            }
            ValueKind::Tombstone => {
                let line = format_args!("  {name} @{sequence}{of} deleted");
                self.record("deletion", &fields[..fields.len() - 1], line)
            }
        }
    }

    /// Prints a range delete; without `keyspace` one of a table, which names its keyspace once.
    pub(crate) fn range_delete(
        &mut self,
        keyspace: Option<KeyspaceId>,
        start: &[u8],
        end: Option<&[u8]>,
        sequence: u64,
    ) -> Result<()> {
        let mut fields = vec![("start", DumpValue::Bytes(start)), ("sequence", sequence.into())];
        fields.extend(end.map(|end| ("end", DumpValue::Bytes(end))));
        fields.extend(keyspace.map(|id| ("keyspace", u64::from(id).into())));
        let (start, of) = (quoted(start), in_keyspace(keyspace));
        let end = end.map(|end| quoted(end).to_string()).unwrap_or_default();
        let line = format_args!("  {start}..{end} @{sequence}{of} deleted");
        self.record("range_deletion", &fields, line)
    }
}

/// Names a keyspace that is not `default`.
fn in_keyspace(keyspace: Option<KeyspaceId>) -> String {
    match keyspace {
        None | Some(DEFAULT_KEYSPACE) => String::new(),
        Some(id) => format!(" in keyspace {id}"),
    }
}

fn printed(outcome: io::Result<()>) -> Result<()> {
    outcome.map_err(|error| Error::io("print", Path::new("output"), error))
}

/// Numbers of tables as words for the levels that have any, such as `L0 3, L1 7`.
pub(crate) fn by_level(tables: impl IntoIterator<Item = u64>) -> String {
    let levels = (0..).zip(tables).filter(|(_, tables)| *tables > 0);
    levels
        .map(|(level, tables): (u32, _)| format!("L{level} {tables}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Prints bytes in quotes, escaped, and cut after `bytes_max`.
pub(crate) struct Quoted<'a> {
    pub bytes: &'a [u8],
    /// How many of them to print.
    pub bytes_max: usize,
}

/// All of `bytes` in quotes.
pub(crate) fn quoted(bytes: &[u8]) -> Quoted<'_> {
    Quoted { bytes, bytes_max: usize::MAX }
}

/// The keys of a table, as a range of Rust.
pub(crate) struct KeyRangeText<'a>(pub &'a [u8], pub &'a Bound<Vec<u8>>);

impl fmt::Display for KeyRangeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ..", quoted(self.0))?;
        match self.1 {
            Bound::Included(last) => write!(f, "= {}", quoted(last)),
            Bound::Excluded(end) => write!(f, " {}", quoted(end)),
            Bound::Unbounded => Ok(()),
        }
    }
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes.get(..self.bytes_max) {
            Some(front) if front.len() < self.bytes.len() => {
                write!(f, "\"{}\"... ({} B)", front.escape_ascii(), self.bytes.len())
            }
            _ => write!(f, "\"{}\"", self.bytes.escape_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_quoted_and_cut() {
        assert_eq!(quoted(b"a\"b\xff\n").to_string(), r#""a\"b\xff\n""#);
        let cut = |bytes_max| Quoted { bytes: b"abc", bytes_max }.to_string();
        assert_eq!(cut(3), "\"abc\"");
        assert_eq!(cut(2), "\"ab\"... (3 B)");
    }
}
