//! The worked examples of docs/format.md, made by the code that writes the real files.
//!
//! [`format_examples`] writes one small table in each layout, a log, an edit and the small files
//! into a [`MemEnv`] and prints their bytes with what they mean. A test compares that with the
//! document, so neither can change without the other. Nothing here decodes: where the bytes are
//! not as many as an example names, it says so in its text, and the comparison fails.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::{ValueKind, put_internal_key};
use crate::base::write_batch::WriteBatch;
use crate::env::api::Env;
use crate::env::mem::MemEnv;
use crate::filter::builder::Construction;
use crate::filter::encoding::Encoding;
use crate::log::record::format::{FILE_HEADER_BYTES, FRAGMENT_HEADER_BYTES};
use crate::log::wal::evidence::CleanClose;
use crate::log::wal::format::WalStart;
use crate::log::wal::writer::WalWriter;
use crate::state::stats_file::{SavedStats, save};
use crate::table::builder::{TableBuilder, TableOptions};
use crate::table::filter::layout::{FilterLayout, FilterMembers, TableFilter};
use crate::table::format::{
    BLOCK_PREFIX_BYTES, BLOCK_TRAILER_BYTES, Compression, FOOTER_BYTES, HEADER_BYTES,
};
use crate::tree::edit::{FileMeta, FirstLog, VersionEdit};
use crate::tree::manifest::set_current;
use std::fmt::Write;
use std::path::Path;

const DIRECTORY: &str = "/example";
const TABLE: u64 = 13;
const TABLE_ID: u64 = 0x0102_0304_0506_0708;
const LOG: u64 = 12;

/// Name and text of every worked example, in the order of the document.
///
/// # Errors
/// None that a disk in memory can cause; a writer that refuses an example.
pub fn format_examples() -> Result<Vec<(&'static str, String)>> {
    let mut examples = Vec::new();
    table_examples(&mut examples)?;
    filter_examples(&mut examples)?;
    log_examples(&mut examples)?;
    examples.push(("edit", edit_example()));
    examples.push(("mark of a clean close", clean_close_example()));
    small_file_examples(&mut examples)?;
    Ok(examples)
}

/// Bytes with their meaning, 16 a line.
struct Rows<'a> {
    rest: &'a [u8],
    text: String,
}

impl<'a> Rows<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Rows { rest: bytes, text: String::new() }
    }

    /// The next `count` bytes mean `what`.
    fn row(&mut self, count: usize, what: &str) -> &mut Self {
        let Some((bytes, rest)) = self.rest.split_at_checked(count) else {
            let _ = writeln!(self.text, "!! only {} bytes left for: {what}", self.rest.len());
            return self;
        };
        self.rest = rest;
        for (i, line) in bytes.chunks(16).enumerate() {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            let what = if i == 0 { what } else { "" };
            let _ = writeln!(self.text, "{}", format!("{:<49}{what}", hex.join(" ")).trim_end());
        }
        self
    }

    /// The next `count` bytes are left out.
    fn skip(&mut self, count: usize, what: &str) -> &mut Self {
        let Some(rest) = self.rest.get(count..) else {
            return self.row(count, what);
        };
        self.rest = rest;
        let _ = writeln!(self.text, "{:<49}{what}", format!("... {count} bytes"));
        self
    }

    fn finish(&mut self) -> String {
        if !self.rest.is_empty() {
            let _ = writeln!(self.text, "!! {} bytes without a meaning", self.rest.len());
        }
        std::mem::take(&mut self.text)
    }
}

/// What was written to a fresh disk.
fn written(name: FileName, write: impl FnOnce(&MemEnv, &Path) -> Result<()>) -> Result<Vec<u8>> {
    let env = MemEnv::new();
    let directory = Path::new(DIRECTORY);
    env.create_dir(directory).map_err(|error| Error::io("create_dir", directory, error))?;
    write(&env, directory)?;
    let path = name.path(directory);
    let missing = || Error::corruption(&path, 0, "the example was not written");
    env.read_file(&path).ok_or_else(missing)
}

fn table(layout: FilterLayout, encoding: Encoding) -> Result<Vec<u8>> {
    written(FileName::Table(TABLE), |env, directory| {
        let path = FileName::Table(TABLE).path(directory);
        let file = env.create_new(&path).map_err(|error| Error::io("create_new", &path, error))?;
        let options = TableOptions {
            block_bytes: 4096,
            restart_interval: 16,
            hash_index: true,
            compression: Compression::None,
            filter: Some(TableFilter { encoding, layout, members: FilterMembers::default() }),
            construction: Construction::default(),
            write_bytes: 64 << 10,
        };
        let mut builder = TableBuilder::new(file, path, TABLE_ID, options);
        let entries: [(&str, ValueKind, &str); 3] = [
            ("ada", ValueKind::Put, "1815"),
            ("adam", ValueKind::Tombstone, ""),
            ("bob", ValueKind::Put, "1912"),
        ];
        for (sequence, (key, kind, value)) in (1..).zip(entries) {
            let mut internal_key = Vec::new();
            put_internal_key(&mut internal_key, key.as_bytes(), sequence, kind);
            builder.add(&internal_key, value.as_bytes())?;
        }
        builder.finish().map(|_| ())
    })
}

const FAST_LOCAL_BLOOM: Encoding = Encoding::FastLocalBloom { millibits: 10_000 };

/// Sizes of the pieces of the table with a full filter, which the test holds to be true.
const DATA_BYTES: usize = 52;
const FULL_FILTER_BYTES: usize = 69;
const METAINDEX_BYTES: usize = 78;
const INDEX_BYTES: usize = 16;
/// Prefix and trailer of a block.
const AROUND_BYTES: usize = BLOCK_PREFIX_BYTES + BLOCK_TRAILER_BYTES;

fn table_examples(examples: &mut Vec<(&'static str, String)>) -> Result<()> {
    let file = table(FilterLayout::Full, FAST_LOCAL_BLOOM)?;
    let (header, rest) = split(&file, HEADER_BYTES);
    let (data_prefix, rest) = split(rest, BLOCK_PREFIX_BYTES);
    let (block, rest) = split(rest, DATA_BYTES);
    let (data_trailer, rest) = split(rest, BLOCK_TRAILER_BYTES);
    let (_, rest) = split(rest, BLOCK_PREFIX_BYTES);
    let (filter, rest) = split(rest, FULL_FILTER_BYTES);
    let (_, rest) = split(rest, AROUND_BYTES);
    let behind = METAINDEX_BYTES + INDEX_BYTES + 2 * AROUND_BYTES + FOOTER_BYTES;
    let properties = rest.len().saturating_sub(behind + BLOCK_TRAILER_BYTES);
    let (properties, rest) = split(rest, properties);
    let (_, rest) = split(rest, AROUND_BYTES);
    let (metaindex, rest) = split(rest, METAINDEX_BYTES);
    let (_, footer) = split(rest, AROUND_BYTES + INDEX_BYTES + BLOCK_TRAILER_BYTES);
    examples.push(("block", block_example(block)));
    let text = Rows::of(&[data_prefix, data_trailer].concat())
        .row(4, "52 bytes of contents, which follow this prefix")
        .row(1, "kind: data")
        .row(3, "check of the prefix")
        .row(1, "no compression; this and the checksum follow the contents")
        .row(4, "checksum of the block")
        .finish();
    examples.push(("block prefix and trailer", text));
    let text = Rows::of(header)
        .row(8, "\"siftdbST\"")
        .row(4, "version 1")
        .row(4, "keyspace 0")
        .row(8, "table id")
        .row(4, "checksum of all before it")
        .finish();
    examples.push(("header", text));
    let metaindex = Rows::of(metaindex)
        .row(3, "shared 0, non_shared 37, value 2 bytes")
        .row(37, "\"fullfilter.rocksdb.BuiltinBloomFilter\"")
        .row(2, "handle: offset 101, size 69")
        .row(3, "shared 0, non_shared 17, value 4 bytes")
        .row(17, "\"siftdb.properties\"")
        .row(4, "handle: offset 183, size 538")
        .row(12, "two restarts, at 0 and 42")
        .finish();
    examples.push(("metaindex", metaindex));
    let footer = Rows::of(footer)
        .row(16, "metaindex: offset and size")
        .row(16, "index: offset and size")
        .row(8, "table id")
        .row(4, "checksum of all but itself")
        .row(4, "version 1")
        .row(8, "\"siftdbST\"")
        .finish();
    examples.push(("footer", footer));
    examples.push(("properties", properties_example(properties)));
    let filter = Rows::of(filter)
        .row(64, "one line of 512 bits for three keys")
        .row(5, "ff, 0, 64-byte lines and 6 probes, 0, 0")
        .finish();
    examples.push(("filter block, full", filter));
    Ok(())
}

fn split(bytes: &[u8], at: usize) -> (&[u8], &[u8]) {
    bytes.split_at_checked(at).unwrap_or((bytes, &[]))
}

fn block_example(block: &[u8]) -> String {
    Rows::of(block)
        .row(3, "shared 0, non_shared 3, value 4 bytes")
        .row(3, "\"ada\"")
        .row(2, "base + 0 is 1 << 8 | 1: put, sequence 1")
        .row(4, "\"1815\"")
        .row(3, "shared 3, non_shared 1, value 0 bytes")
        .row(1, "\"m\"")
        .row(2, "base + 255 is 2 << 8 | 0: tombstone, sequence 2")
        .row(3, "shared 0, non_shared 3, value 4 bytes")
        .row(3, "\"bob\"")
        .row(2, "base + 512 is 3 << 8 | 1: put, sequence 3")
        .row(4, "\"1912\"")
        .row(4, "restart at 0")
        .row(3, "fingerprints of the three entries")
        .row(2, "fingerprint count")
        .row(8, "base")
        .row(1, "width")
        .row(4, "one restart; the block has a hash index")
        .finish()
}

fn properties_example(properties: &[u8]) -> String {
    let restarts = 4 * (23 + 1);
    let shown = 3 + 11 + 4 + 3 + 11 + 1 + 3 + 10 + 1;
    Rows::of(properties)
        .row(3, "shared 0, non_shared 11, value 4 bytes")
        .row(11, "\"compression\"")
        .row(4, "\"none\"")
        .row(3, "shared 0, non_shared 11, value 1 byte")
        .row(11, "\"data_blocks\"")
        .row(1, "1")
        .row(3, "shared 0, non_shared 10, value 1 byte")
        .row(10, "\"data_bytes\"")
        .row(1, "65: the data block, its prefix and its trailer")
        .skip(
            properties.len().saturating_sub(restarts + shown),
            "\"entries\" to \"whole_key_filtering\"",
        )
        .skip(restarts - 4, "restarts, one an entry")
        .row(4, "23 restarts")
        .finish()
}

fn filter_examples(examples: &mut Vec<(&'static str, String)>) -> Result<()> {
    let block_based = FilterLayout::BlockBased { window_bytes: 2048 };
    let file = table(block_based, Encoding::LevelDbBloom { bits_per_key: 10 })?;
    let before = HEADER_BYTES + DATA_BYTES + AROUND_BYTES + BLOCK_PREFIX_BYTES;
    let (_, rest) = split(&file, before);
    let (filter, _) = split(rest, 18);
    let text = Rows::of(filter)
        .row(8, "64 bits, the smallest filter, for three keys")
        .row(1, "k: 6 probes a key")
        .row(4, "window 0: its filter begins at 0")
        .row(4, "the offsets begin at 9")
        .row(1, "base_lg: windows of 2 KiB")
        .finish();
    let at = examples.len().saturating_sub(1);
    examples.insert(at, ("filter block, block-based", text));
    let file = table(FilterLayout::Partitioned { block_bytes: 4096 }, FAST_LOCAL_BLOOM)?;
    let (_, rest) = split(&file, before + FULL_FILTER_BYTES + AROUND_BYTES);
    let (index, _) = split(rest, 16);
    let text = Rows::of(index)
        .row(3, "shared 0, non_shared 3, value 2 bytes")
        .row(3, "largest key of the partition: \"bob\"")
        .row(2, "handle: offset 101, size 69")
        .row(8, "one restart, at 0")
        .finish();
    examples.push(("filter block, partitioned", text));
    Ok(())
}

fn log_examples(examples: &mut Vec<(&'static str, String)>) -> Result<()> {
    let start = WalStart {
        first_sequence: 1,
        manifest_number: 7,
        manifest_synced_bytes: 51,
        ..WalStart::default()
    };
    let log = written(FileName::Wal(LOG), |env, directory| {
        let mut batch = WriteBatch::new();
        batch.put("ada", "1815").delete("adam").put("bob", "1912");
        let mut wal = WalWriter::create(env, directory, LOG, &start, 1 << 20)?;
        wal.append(0, 1, batch.len() as u32, &[batch.entries()]).map(drop)
    })?;
    let (front, rest) = split(&log, FILE_HEADER_BYTES + FRAGMENT_HEADER_BYTES);
    let text = Rows::of(front)
        .row(8, "\"siftdbWL\"")
        .row(4, "version 1")
        .row(4, "file number 12")
        .row(4, "checksum of the header")
        .row(4, "checksum of what follows")
        .row(2, "length of the payload: 7")
        .row(1, "full: the whole record")
        .row(4, "file number 12")
        .finish();
    examples.push(("record", text));
    let (start, rest) = split(rest, 7);
    let (_, rest) = split(rest, FRAGMENT_HEADER_BYTES);
    examples.push(("wal records", wal_records_example(&[start, rest].concat())));
    Ok(())
}

fn wal_records_example(payloads: &[u8]) -> String {
    Rows::of(payloads)
        .row(1, "START: synced through 0, nothing yet")
        .row(2, "no log before, no sequence before")
        .row(1, "first sequence 1")
        .row(2, "manifest 7, 51 bytes of it durable")
        .row(1, "kind: start")
        .row(1, "BATCH: synced through 0")
        .row(8, "sequence 1")
        .row(4, "three entries")
        .row(1, "keyspace 0")
        .row(1, "put")
        .row(4, "key of 3 bytes: \"ada\"")
        .row(5, "value of 4 bytes: \"1815\"")
        .row(1, "tombstone")
        .row(5, "key of 4 bytes: \"adam\"")
        .row(1, "put")
        .row(4, "key of 3 bytes: \"bob\"")
        .row(5, "value of 4 bytes: \"1912\"")
        .row(1, "kind: batch")
        .finish()
}

fn edit_example() -> String {
    let key = |user_key: &str, sequence| {
        let mut key = Vec::new();
        put_internal_key(&mut key, user_key.as_bytes(), sequence, ValueKind::Put);
        key
    };
    let file = FileMeta {
        number: TABLE,
        table_id: TABLE_ID,
        bytes: 900,
        smallest: key("ada", 1),
        largest: key("bob", 3),
        entries: 3,
        garbage: 1,
        smallest_sequence: 1,
        largest_sequence: 3,
    };
    let edit = VersionEdit {
        first_log: Some(FirstLog { number: 14, flushed_through: 3 }),
        next_file_number: Some(15),
        last_sequence: Some(3),
        synced_through: Some(3),
        added: vec![(0, file)],
        ..VersionEdit::default()
    };
    let mut bytes = Vec::new();
    edit.encode(2, &mut bytes);
    Rows::of(&bytes)
        .row(3, "keyspace: 0")
        .row(4, "first log 14; everything up to 3 is in tables")
        .row(3, "next file number: 15")
        .row(3, "last sequence: 3")
        .row(3, "synced through: 3")
        .row(2, "added file, 54 bytes")
        .row(2, "to level 0, file number 13")
        .row(10, "table id")
        .row(4, "900 bytes")
        .row(13, "smallest: \"ada\", put, sequence 1")
        .row(13, "largest: \"bob\", put, sequence 3")
        .row(3, "3 entries")
        .row(3, "smallest sequence 1")
        .row(3, "largest sequence 3")
        .row(3, "1 entry that may be dropped; readers may skip this")
        .row(3, "ordinal: the second edit of its manifest")
        .finish()
}

fn clean_close_example() -> String {
    let edit = VersionEdit {
        next_file_number: Some(15),
        last_sequence: Some(3),
        synced_through: Some(3),
        clean_close: Some(CleanClose { log: LOG, log_bytes: 90, last_sequence: 3 }),
        ..VersionEdit::default()
    };
    let mut bytes = Vec::new();
    edit.encode(3, &mut bytes);
    Rows::of(&bytes)
        .row(3, "keyspace: 0")
        .row(3, "next file number: 15")
        .row(3, "last sequence: 3")
        .row(3, "synced through: 3")
        .row(5, "closed: log 12 of 90 bytes, through sequence 3")
        .row(3, "ordinal: the last edit of its manifest")
        .finish()
}

fn small_file_examples(examples: &mut Vec<(&'static str, String)>) -> Result<()> {
    let current = written(FileName::Current, |env, directory| set_current(env, directory, 7, 8))?;
    examples.push(("CURRENT", String::from_utf8_lossy(&current).into_owned()));
    let stats = written(FileName::Stats, |env, directory| {
        let saved = SavedStats { since_unix_seconds: 1_800_000_000, totals: vec![5, 3] };
        save(env, directory, 9, &saved);
        Ok(())
    })?;
    let text = Rows::of(&stats)
        .row(8, "\"siftstat\"")
        .row(4, "version 1")
        .row(8, "since 1800000000")
        .row(4, "two counters; a real file has all of them")
        .row(16, "5, 3")
        .row(4, "checksum")
        .finish();
    examples.push(("STATS", text));
    Ok(())
}
