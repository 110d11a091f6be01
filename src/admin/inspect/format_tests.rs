//! Holds the worked examples of docs/format.md to the code that writes the real files.
//!
//! A line of an example is `bytes in hex  meaning`, or `... N bytes  meaning` for bytes left out;
//! the meanings are the document's own. An example of printed text comes from `dump`.
//! `UPDATE_GOLDEN=1 cargo test --lib format_tests` writes bytes and text of the code into the
//! document; where the number of bytes changed, correct the lines of the example by hand first.

use crate::admin::inspect::dump::dump;
use crate::admin::inspect::text::DumpOptions;
use crate::base::batch_format::WriteKind;
use crate::base::events::delivery::Events;
use crate::base::filename::FileName;
use crate::base::key::{KeyspaceLabel, ValueKind, put_internal_key};
use crate::base::range_deletes::{RangeDelete, RangeDeletes};
use crate::base::write_batch::WriteBatch;
use crate::env::api::Env;
use crate::env::mem::MemEnv;
use crate::log::record::format::{FILE_HEADER_BYTES, FRAGMENT_HEADER_BYTES};
use crate::log::wal::consistency::CleanClose;
use crate::log::wal::format::WalStart;
use crate::log::wal::writer::WalWriter;
use crate::options::keyspace::KeyspaceOptions;
use crate::state::stats_file::{SavedStats, save};
use crate::table::builder::{TableBuilder, TableOptions};
use crate::table::compression::Compression;
use crate::table::filter::layout::{FilterLayout, FilterMembers, TableFilter};
use crate::table::format::{BLOCK_PREFIX_BYTES, BLOCK_TRAILER_BYTES, FOOTER_BYTES, HEADER_BYTES};
use crate::tree::current::{mark_unfinished, set_current};
use crate::tree::edit::{FirstLog, KeyspaceMeta, VersionEdit};
use crate::tree::file_meta::FileMeta;
use siftdb_filter::construction::Construction;
use siftdb_filter::encoding::Encoding;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/format.md");
const MARKER: &str = "<!-- example: ";
/// The width of 16 bytes in hex, each with a blank after it.
const HEX_COLUMNS: usize = 48;

const DIRECTORY: &str = "/";
const TABLE: FileName = FileName::Table(13);
const TABLE_ID: u64 = 0x0102_0304_0506_0708;
const LOG: FileName = FileName::Wal(12);
const FAST_LOCAL_BLOOM: Encoding = Encoding::FastLocalBloom { millibits: 10_000 };

/// Sizes of parts of the example tables.
const DATA_BYTES: usize = 52;
const FULL_FILTER_BYTES: usize = 69;
const METAINDEX_BYTES: usize = 78;
const INDEX_BYTES: usize = 16;
const TOP_LEVEL_BYTES: usize = 18;
/// The payload of the start record of a log.
const START_BYTES: usize = 24;
/// Prefix and trailer of a block.
const AROUND_BYTES: usize = BLOCK_PREFIX_BYTES + BLOCK_TRAILER_BYTES;

/// What an example shows.
enum Example {
    Bytes(Vec<u8>),
    Text(String),
}

/// The name of every example, and what the code makes of it.
fn examples() -> Vec<(&'static str, Example)> {
    let mut examples = table_examples();
    examples.extend(log_examples());
    let (current, stats) = (MemEnv::new(), MemEnv::new());
    set_current(&current, Path::new(DIRECTORY), 7, 8).unwrap();
    let saved = SavedStats {
        since_unix_seconds: 1_800_000_000,
        database: vec![5, 3],
        keyspaces: vec![(2, vec![1])],
    };
    save(&stats, Path::new(DIRECTORY), 9, &saved);
    let line = String::from_utf8(contents(&current, FileName::Current)).unwrap();
    let unfinished = MemEnv::new();
    mark_unfinished(&unfinished, Path::new(DIRECTORY), 7).unwrap();
    let mark = String::from_utf8(contents(&unfinished, FileName::Current)).unwrap();
    examples.extend([
        ("edit", Example::Bytes(edit())),
        ("creation of a keyspace", Example::Bytes(creation())),
        ("a batch that moves a keyspace", Example::Bytes(moving_batch())),
        ("mark of a clean close", Example::Bytes(clean_close())),
        ("CURRENT", Example::Text(line)),
        ("CURRENT of an unfinished copy", Example::Text(mark)),
        ("STATS", Example::Bytes(contents(&stats, FileName::Stats))),
        ("STATS as printed", printed(&stats, FileName::Stats)),
    ]);
    examples
}

fn contents(env: &MemEnv, name: FileName) -> Vec<u8> {
    env.read_file(&name.path(Path::new(DIRECTORY))).unwrap()
}

fn printed(env: &MemEnv, name: FileName) -> Example {
    let (engine, mut text): (Arc<dyn Env>, _) = (Arc::new(env.clone()), Vec::new());
    let path = name.path(Path::new(DIRECTORY));
    dump(&engine, &path, &DumpOptions::default(), &mut text).unwrap();
    Example::Text(String::from_utf8(text).unwrap())
}

fn internal_key(user_key: &str, sequence: u64, kind: ValueKind) -> Vec<u8> {
    let mut key = Vec::new();
    put_internal_key(&mut key, user_key.as_bytes(), sequence, kind);
    key
}

fn table(layout: FilterLayout, encoding: Encoding) -> MemEnv {
    table_with(layout, encoding, 0, 0)
}

fn table_with(
    layout: FilterLayout,
    encoding: Encoding,
    range_millibits: u32,
    index_partition_bytes: usize,
) -> MemEnv {
    let env = MemEnv::new();
    let path = TABLE.path(Path::new(DIRECTORY));
    let options = TableOptions {
        keyspace: KeyspaceLabel::default(),
        databases: Vec::new(),
        block_bytes: 4096,
        restart_interval: 16,
        hash_index: true,
        index_partition_bytes,
        compression: Compression::None,
        filter: Some(TableFilter {
            encoding,
            layout,
            members: FilterMembers::default(),
            range_millibits,
        }),
        construction: Construction::default(),
        write_bytes: 64 << 10,
        events: Events::default(),
    };
    let file = env.create_new(&path).unwrap();
    let mut builder = TableBuilder::new(file, path, TABLE_ID, options);
    let [put, tombstone] = [ValueKind::Put, ValueKind::Tombstone];
    let entries = [("ada", put, "1815"), ("adam", tombstone, ""), ("bob", put, "1912")];
    for (sequence, (key, kind, value)) in (1..).zip(entries) {
        builder.add(&internal_key(key, sequence, kind), value.as_bytes()).unwrap();
    }
    builder.finish().unwrap();
    env
}

fn table_examples() -> Vec<(&'static str, Example)> {
    let env = table(FilterLayout::Full, FAST_LOCAL_BLOOM);
    let full = contents(&env, TABLE);
    let data = HEADER_BYTES + BLOCK_PREFIX_BYTES;
    let filter = data + DATA_BYTES + AROUND_BYTES;
    let properties = filter + FULL_FILTER_BYTES + AROUND_BYTES;
    let footer = full.len() - FOOTER_BYTES;
    let index = footer - BLOCK_TRAILER_BYTES - INDEX_BYTES;
    let metaindex = index - AROUND_BYTES - METAINDEX_BYTES;
    let trailer = data + DATA_BYTES..data + DATA_BYTES + BLOCK_TRAILER_BYTES;
    let around = [&full[HEADER_BYTES..data], &full[trailer]].concat();
    let bytes = |from: usize, bytes: usize| Example::Bytes(full[from..from + bytes].to_vec());
    let level_db = Encoding::LevelDbBloom { bits_per_key: 10 };
    let block_based = table(FilterLayout::BlockBased { window_bytes: 2048 }, level_db);
    let partitioned = table(FilterLayout::Partitioned { block_bytes: 4096 }, FAST_LOCAL_BLOOM);
    let top_level = contents(&partitioned, TABLE)[properties..][..16].to_vec();
    let ranges = table_with(FilterLayout::Full, FAST_LOCAL_BLOOM, 12_000, 0);
    let range_filter = contents(&ranges, TABLE)[properties..][..31].to_vec();
    let cut = contents(&table_with(FilterLayout::Full, FAST_LOCAL_BLOOM, 0, 1), TABLE);
    let top = cut.len() - FOOTER_BYTES - BLOCK_TRAILER_BYTES - TOP_LEVEL_BYTES;
    let parts = [&cut[properties..][..INDEX_BYTES], &cut[top..][..TOP_LEVEL_BYTES]].concat();
    vec![
        ("index in one partition", Example::Bytes(parts)),
        ("block", bytes(data, DATA_BYTES)),
        ("block prefix and trailer", Example::Bytes(around)),
        ("table as printed", printed(&env, TABLE)),
        ("header", bytes(0, HEADER_BYTES)),
        ("metaindex", bytes(metaindex, METAINDEX_BYTES)),
        ("footer", bytes(footer, FOOTER_BYTES)),
        ("properties", bytes(properties, metaindex - AROUND_BYTES - properties)),
        ("range deletes", Example::Bytes(range_deletes())),
        ("filter block, full", bytes(filter, FULL_FILTER_BYTES)),
        (
            "filter block, block-based",
            Example::Bytes(contents(&block_based, TABLE)[filter..][..18].to_vec()),
        ),
        ("filter block, partitioned", Example::Bytes(top_level)),
        ("filter block, range", Example::Bytes(range_filter)),
    ]
}

fn range_deletes() -> Vec<u8> {
    let delete = |start: &str, end: Option<&str>, sequence| RangeDelete {
        start: start.into(),
        end: end.map(Into::into),
        sequence,
    };
    let deletes = [delete("a", Some("c"), 5), delete("b", None, 7)];
    let mut bytes = Vec::new();
    RangeDeletes::fragmented(&deletes, &[]).encode(&mut bytes);
    bytes
}

fn log_examples() -> [(&'static str, Example); 3] {
    let env = MemEnv::new();
    let start = WalStart {
        first_sequence: 1,
        manifest_number: 7,
        manifest_synced_bytes: 51,
        ..WalStart::default()
    };
    let mut batch = WriteBatch::new();
    batch.put("ada", "1815").delete("adam");
    batch.push_in((0, 1), WriteKind::Put, b"bob", b"1912");
    let mut wal = WalWriter::create(&env, Path::new(DIRECTORY), 12, &start, &[], 1 << 20).unwrap();
    wal.append(0, 1, batch.len() as u32, [&batch.entries[..]]).unwrap();
    let log = contents(&env, LOG);
    let (front, rest) = log.split_at(FILE_HEADER_BYTES + FRAGMENT_HEADER_BYTES);
    let payloads = [&rest[..START_BYTES], &rest[START_BYTES + FRAGMENT_HEADER_BYTES..]].concat();
    [
        ("record", Example::Bytes(front.to_vec())),
        ("wal records", Example::Bytes(payloads)),
        ("log as printed", printed(&env, LOG)),
    ]
}

fn file() -> FileMeta {
    FileMeta {
        keyspace: 1,
        number: 13,
        table_id: TABLE_ID,
        bytes: 900,
        start: b"ada".to_vec(),
        end: Bound::Included(b"bob".to_vec()),
        entries: 3,
        garbage: 1,
        expiring: Default::default(),
        range_deletes: 0,
        smallest_sequence: 1,
        largest_sequence: 3,
        global_sequence: None,
    }
}

fn edit() -> Vec<u8> {
    let edit = VersionEdit {
        first_log: Some(FirstLog { number: 14, flushed_through: 3 }),
        next_file_number: Some(15),
        last_sequence: Some(3),
        synced_through: Some(3),
        flushed_through: vec![(1, 3)],
        added: vec![(0, file())],
        ..VersionEdit::default()
    };
    let mut bytes = Vec::new();
    edit.encode(2, &mut bytes);
    bytes
}

fn creation() -> Vec<u8> {
    let settings = KeyspaceOptions::new().block_bytes(16 << 10).encoded();
    let users = KeyspaceMeta { id: 1, name: "users".into(), flushed_through: 2, settings };
    let edit = VersionEdit {
        next_file_number: Some(13),
        last_sequence: Some(2),
        synced_through: Some(2),
        next_keyspace: Some(2),
        created: vec![users],
        ..VersionEdit::default()
    };
    let mut bytes = Vec::new();
    edit.encode(3, &mut bytes);
    bytes
}

/// Creates a keyspace with two entries, and drops the one that they were in.
fn moving_batch() -> Vec<u8> {
    let (entries, garbage, smallest_sequence, largest_sequence) = (2, 0, 4, 5);
    let file = FileMeta {
        keyspace: 2,
        number: 16,
        entries,
        garbage,
        smallest_sequence,
        largest_sequence,
        ..file()
    };
    let settings = Vec::new();
    let edit = VersionEdit {
        next_file_number: Some(17),
        last_sequence: Some(5),
        synced_through: Some(5),
        next_keyspace: Some(3),
        created: vec![KeyspaceMeta { id: 2, name: "v2".into(), flushed_through: 5, settings }],
        dropped: vec![1],
        added: vec![(0, file)],
        ..VersionEdit::default()
    };
    let mut bytes = Vec::new();
    edit.encode(4, &mut bytes);
    bytes
}

fn clean_close() -> Vec<u8> {
    let edit = VersionEdit {
        next_file_number: Some(15),
        last_sequence: Some(3),
        synced_through: Some(3),
        clean_close: Some(CleanClose { log: 12, log_bytes: 90, last_sequence: 3 }),
        ..VersionEdit::default()
    };
    let mut bytes = Vec::new();
    edit.encode(3, &mut bytes);
    bytes
}

/// The lines of an example with the bytes that the code writes, each line with as many bytes as
/// before. The error says that the number of bytes differs.
fn with_bytes(lines: &[&str], mut bytes: &[u8]) -> Result<Vec<String>, String> {
    let mut filled = Vec::new();
    for line in lines {
        let left_out = line.strip_prefix("... ").and_then(|rest| rest.split(' ').next());
        let columns = line.get(..HEX_COLUMNS).unwrap_or(line);
        let count = match left_out {
            Some(count) => count.parse().map_err(|error| format!("{line}: {error}"))?,
            None => columns.split_whitespace().count(),
        };
        let Some((shown, rest)) = bytes.split_at_checked(count) else {
            return Err(format!("only {} bytes are left for: {line}", bytes.len()));
        };
        bytes = rest;
        let meaning = line.get(HEX_COLUMNS..).unwrap_or("").trim_start();
        let hex: String = shown.iter().map(|byte| format!("{byte:02x} ")).collect();
        let hex = if left_out.is_some() { columns } else { &hex };
        filled.push(format!("{hex:<HEX_COLUMNS$} {meaning}").trim_end().into());
    }
    match bytes {
        [] => Ok(filled),
        _ => Err(format!("{} bytes without a line", bytes.len())),
    }
}

/// `document` with the output of the code in each example, and the examples that cannot be filled
/// in.
fn with_examples(document: &str, examples: &[(&str, Example)]) -> (String, Vec<String>) {
    let (mut text, mut wrong, mut shown) = (String::new(), Vec::new(), Vec::new());
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        text.push_str(line);
        text.push('\n');
        let name = line.strip_prefix(MARKER).and_then(|rest| rest.strip_suffix(" -->"));
        let Some(name) = name else { continue };
        shown.push(name);
        let found: Vec<&str> = lines
            .by_ref()
            .skip_while(|line| *line != "```text")
            .skip(1)
            .take_while(|line| *line != "```")
            .collect();
        let expected = match examples.iter().find(|(known, _)| *known == name) {
            None => Err("no example has this name".into()),
            Some((_, Example::Text(text))) => Ok(text.lines().map(String::from).collect()),
            Some((_, Example::Bytes(bytes))) => with_bytes(&found, bytes),
        };
        let lines = expected.unwrap_or_else(|error: String| {
            wrong.push(format!("{name}: {error}"));
            Vec::new()
        });
        text.push_str(&format!("```text\n{}\n```\n", lines.join("\n")));
    }
    let missing = examples.iter().filter(|(name, _)| !shown.contains(name));
    wrong.extend(missing.map(|(name, _)| format!("{name}: the document does not show it")));
    (text, wrong)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the document is no file of a database")]
fn worked_examples_equal_written_bytes() {
    // A package without documents has nothing to compare.
    let Ok(document) = std::fs::read_to_string(DOCUMENT) else { return };
    let (expected, wrong) = with_examples(&document, &examples());
    assert_eq!(wrong, [""; 0]);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(DOCUMENT, expected).unwrap();
        return;
    }
    for (found, expected) in document.lines().zip(expected.lines()) {
        assert_eq!(found, expected, "docs/format.md differs from the code");
    }
    assert_eq!(document.len(), expected.len(), "docs/format.md differs in length");
}

#[test]
fn wrong_and_missing_examples_are_found() {
    let hex = "00 01                                            meaning";
    let document = format!("x\n<!-- example: a -->\n```text\n{hex}\n... 2 bytes  rest\n```\n");
    let bytes = |bytes: &[u8]| [("a", Example::Bytes(bytes.to_vec()))];
    assert_eq!(with_examples(&document, &bytes(&[0, 1, 2, 3])).1, [""; 0]);
    let (text, wrong) = with_examples(&document, &bytes(&[0, 9, 2, 3]));
    assert!(wrong.is_empty() && text.contains("00 09 ") && text != document, "{text}");
    assert_eq!(with_examples(&document, &bytes(&[0, 1, 2])).1.len(), 1);
    assert_eq!(with_examples(&document, &bytes(&[0, 1, 2, 3, 4])).1.len(), 1);
    let other = [("b", Example::Text("b\n".into()))];
    let expected = ["a: no example has this name", "b: the document does not show it"];
    assert_eq!(with_examples(&document, &other).1, expected);
}
