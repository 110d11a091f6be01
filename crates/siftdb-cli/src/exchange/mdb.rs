//! The text of LMDB's `mdb_dump` and Berkeley DB's `db_dump`, which `mdb_load` and `db_load` read.
//!
//! A header of NAME=VALUE lines, then each entry as two lines, key and value, each after a space
//! and in hex (`format=bytevalue`) or, with escapes, as text (`format=print`). `DATA=END` ends it.
//! A file may have several such parts, each a database of that name: a keyspace.
//!
//! It has no expiry and no settings. The two tools differ:
//!
//! - `mdb_load` needs the size of its map, `mapsize`, a line that `db_load` refuses.
//! - LMDB has a database without a name besides those with names. A file of Berkeley DB has one or
//!   the other.
//! - Berkeley DB spells names of databases with the escapes of text, LMDB as they are.
//! - `mdb_dump -p` of older versions does not escape backslashes, so its text may say other bytes.
//!   Escapes that it never writes show that, and are refused.
//! - LMDB takes keys of 1 to 511 bytes only.

use crate::exchange::input::Input;
use crate::exchange::record::{Entry, Expiry, KeyspaceBegin, Reader, Record, Writer};
use crate::exchange::tsv::refuse_expiry;
use crate::failure::{Failure, Outcome};
use crate::text::escaped;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use std::io::Write;
use std::ops::RangeInclusive;

/// Reads a dump.
#[derive(Default)]
pub struct MdbReader {
    /// After a header. The file may end only before one.
    in_data: bool,
    is_text: bool,
    /// The header has fields that only LMDB writes.
    is_of_lmdb: bool,
    /// A header was read. A file without one comes from a tool that failed.
    has_parts: bool,
    /// A part before was of a named database.
    was_named: bool,
}

impl Reader for MdbReader {
    fn next(&mut self, input: &mut Input) -> Outcome<Option<Record>> {
        // A file may have any number of parts without a record.
        loop {
            if !self.in_data {
                let settings = Box::default();
                let name = match self.header(input)? {
                    Header::Keyspace(name) => name,
                    Header::Unnamed if self.was_named => "default".into(),
                    Header::Unnamed => continue,
                    Header::EndOfFile if self.has_parts => return Ok(None),
                    Header::EndOfFile => {
                        return Err(Failure::usage("the file is empty: no header of a dump"));
                    }
                };
                self.was_named = true;
                return Ok(Some(Record::Keyspace { name, settings, left_out: Vec::new() }));
            }
            let Some(key) = self.bytes(input)? else {
                self.in_data = false;
                continue;
            };
            let Some(value) = self.bytes(input)? else {
                return Err(Failure::usage("the data ends with a key without its value"));
            };
            return Ok(Some(Record::Entry { key, value, expiry: Expiry::OfKeyspace }));
        }
    }
}

/// The database that a header names.
enum Header {
    Keyspace(String),
    Unnamed,
    EndOfFile,
}

impl MdbReader {
    fn header(&mut self, input: &mut Input) -> Outcome<Header> {
        let (mut database, mut format) = (None, None);
        let mut fields = 0;
        self.is_of_lmdb = false;
        loop {
            let Some(line) = input.line()? else {
                return match fields {
                    0 => Ok(Header::EndOfFile),
                    _ => Err(Failure::usage("the file ends within a header")),
                };
            };
            fields += 1;
            let line = std::str::from_utf8(line).unwrap_or_default();
            let Some((name, value)) = line.split_once('=') else {
                return Err(Failure::usage("a line of the header that is not NAME=VALUE"));
            };
            match (name, value) {
                ("VERSION", "3") | ("type", "btree" | "hash") => {}
                ("VERSION" | "type", _) => {
                    return Err(Failure::usage(format!("{line}: only version 3, btree and hash")));
                }
                ("format", "bytevalue") => format = Some(false),
                ("format", "print") => format = Some(true),
                ("duplicates" | "dupsort", "1") => {
                    let what = "the database may have several values of one key; siftdb has one";
                    return Err(Failure::usage(what));
                }
                ("database", name) => database = Some(name.to_string()),
                ("mapsize" | "maxreaders", _) => self.is_of_lmdb = true,
                ("HEADER", "END") => break,
                // Sizes and flags of the other store.
                _ => {}
            }
        }
        self.is_text = format.ok_or_else(|| Failure::usage("the header has no format"))?;
        (self.in_data, self.has_parts) = (true, true);
        let Some(name) = database else { return Ok(Header::Unnamed) };
        if self.is_of_lmdb {
            return Ok(Header::Keyspace(name));
        }
        let bytes = from_print(name.as_bytes(), false);
        let name = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let name = name.ok_or_else(|| Failure::usage("the name of a database is malformed"))?;
        Ok(Header::Keyspace(name))
    }

    /// The bytes of a line of data; `None` at the end of the data.
    fn bytes(&self, input: &mut Input) -> Outcome<Option<Vec<u8>>> {
        let Some(line) = input.line()? else {
            return Err(Failure::usage("the file ends before DATA=END"));
        };
        if line == b"DATA=END" {
            return Ok(None);
        }
        let bytes = line.strip_prefix(b" ").and_then(|text| match self.is_text {
            true => from_print(text, self.is_of_lmdb),
            false => HEXLOWER_PERMISSIVE.decode(text).ok(),
        });
        bytes.map(Some).ok_or_else(|| {
            let failure = Failure::usage("a line of data that is malformed");
            match self.is_text && self.is_of_lmdb {
                true => {
                    failure.with_advice("`mdb_dump -p` may not escape backslashes; dump without -p")
                }
                false => failure,
            }
        })
    }
}

/// The bytes of `format=print`: a backslash is before another one, or before two hex digits. LMDB
/// writes only the second kind, and of printable bytes only for the backslash itself.
fn from_print(text: &[u8], is_of_lmdb: bool) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'\\' {
            bytes.push(first);
        } else if let Some(tail) = rest.strip_prefix(b"\\").filter(|_| !is_of_lmdb) {
            bytes.push(b'\\');
            rest = tail;
        } else {
            let escaped = HEXLOWER_PERMISSIVE.decode(rest.get(..2)?).ok()?;
            if is_of_lmdb && matches!(escaped[..], [b' '..=b'~']) && escaped != b"\\" {
                return None;
            }
            bytes.extend(escaped);
            rest = rest.get(2..)?;
        }
    }
    Some(bytes)
}

/// The spelling of a name that `from_print` reads back, as Berkeley DB has it.
fn printed(name: &str) -> String {
    let spelled = |byte| match byte {
        b'\\' => "\\\\".into(),
        b' '..=b'~' => char::from(byte).to_string(),
        byte => format!("\\{byte:02x}"),
    };
    name.bytes().map(spelled).collect()
}

/// Writes a dump in hex, for LMDB's tool or for Berkeley DB's.
pub enum MdbWriter {
    Lmdb,
    Berkeley,
}

/// The lengths of keys that `mdb_load` takes.
const LMDB_KEY_BYTES: RangeInclusive<usize> = 1..=511;

/// Bytes of the page of a B-tree for each entry, besides key and value.
const ENTRY_BYTES: u64 = 16;

impl Writer for MdbWriter {
    fn keyspace(&mut self, out: &mut dyn Write, begins: &KeyspaceBegin<'_>) -> Outcome {
        writeln!(out, "VERSION=3\nformat=bytevalue")?;
        let is_unnamed = begins.name == "default" && (begins.alone || self.is_for_lmdb());
        match self {
            _ if is_unnamed => {}
            MdbWriter::Lmdb => writeln!(out, "database={}", begins.name)?,
            MdbWriter::Berkeley => writeln!(out, "database={}", printed(begins.name))?,
        }
        writeln!(out, "type=btree")?;
        if self.is_for_lmdb() {
            // Pages may be half full, and one is the least.
            let bytes = 2 * (begins.bytes + ENTRY_BYTES * begins.entries) + (1 << 20);
            writeln!(out, "mapsize={}", bytes.next_multiple_of(4096))?;
        }
        Ok(writeln!(out, "HEADER=END")?)
    }

    fn entry(&mut self, out: &mut dyn Write, entry: &Entry<'_>) -> Outcome {
        refuse_expiry(if self.is_for_lmdb() { "mdb" } else { "bdb" }, entry)?;
        let bytes = entry.key.len();
        if self.is_for_lmdb() && !LMDB_KEY_BYTES.contains(&bytes) {
            let first = escaped(&entry.key[..bytes.min(40)]);
            let (least, most) = LMDB_KEY_BYTES.into_inner();
            return Err(Failure::usage(format!(
                "a key of {bytes} bytes, which begins with {first:?}; LMDB takes keys of {least} \
                 to {most} bytes; use --format jsonl"
            )));
        }
        Ok(writeln!(out, " {}\n {}", HEXLOWER.encode(entry.key), HEXLOWER.encode(entry.value))?)
    }

    fn end(&mut self, out: &mut dyn Write) -> Outcome {
        Ok(writeln!(out, "DATA=END")?)
    }
}

impl MdbWriter {
    fn is_for_lmdb(&self) -> bool {
        matches!(self, MdbWriter::Lmdb)
    }
}
