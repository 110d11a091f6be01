//! Holds the encoder of every structure on disk to bytes in `tests/it/golden/encoders.txt`.
//!
//! Ids, numbers and times are fixed here. Which tables the engine writes, where it cuts them and
//! how large it makes filters is no part of this. Every later release reads these bytes, so a
//! difference is a new version of the format (docs/format.md, "Versions").
//!
//! `UPDATE_GOLDEN=1 cargo test --all-features --lib encoder_tests` rewrites the file.

use crate::base::batch_format::WriteKind;
use crate::base::events::delivery::Events;
use crate::base::filename::FileName;
use crate::base::key::{KeyspaceLabel, SEQUENCE_MAX, ValueKind, put_internal_key};
use crate::base::range_deletes::{RangeDelete, RangeDeletes};
use crate::base::write_batch::WriteBatch;
use crate::env::api::Env;
use crate::env::directory::lock_to_write;
use crate::env::mem::MemEnv;
use crate::log::wal::consistency::CleanClose;
use crate::log::wal::format::{DatabaseIdentity, WalStart};
use crate::log::wal::writer::WalWriter;
use crate::options::filter::Filter;
use crate::options::keyspace::KeyspaceOptions;
use crate::state::stats_file::{SavedStats, save};
use crate::table::block::builder::BlockBuilder;
use crate::table::builder::{TableBuilder, TableOptions};
use crate::table::compression::Compression;
use crate::table::filter::layout::{FilterLayout, FilterMembers, FilterPinning, TableFilter};
use crate::table::format::{BlockHandle, BlockIdentity, BlockKind, Codec, Footer, Header};
use crate::table::index::IndexBuilder;
use crate::table::properties::Properties;
use crate::tree::current::set_current;
use crate::tree::edit::{DeletedFile, FirstLog, KeyspaceMeta, SessionBegin, VersionEdit};
use crate::tree::file_meta::{Expiring, FileMeta};
use crate::tree::manifest::ManifestWriter;
use siftdb_filter::construction::Construction;
use siftdb_filter::encoding::Encoding;
use siftdb_filter::policy::FilterPolicy;
use siftdb_filter::prefix::Prefix;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/golden/encoders.txt");
const DIRECTORY: &str = "/";
const TABLE_ID: u64 = 0x0102_0304_0506_0708;
const DATABASE: DatabaseIdentity =
    DatabaseIdentity { id: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10, epoch: 3 };

/// The name of each structure, and its bytes.
type Structures = Vec<(String, Vec<u8>)>;

fn structures() -> Structures {
    let mut all = Structures::new();
    all.extend(blocks());
    all.extend(tables());
    all.extend(logs());
    all.extend(edits());
    all.extend(settings());
    all.extend(small_files());
    all
}

fn named(name: &str, bytes: impl Into<Vec<u8>>) -> (String, Vec<u8>) {
    (name.into(), bytes.into())
}

fn internal_key(user_key: &str, sequence: u64, kind: ValueKind) -> Vec<u8> {
    let mut key = Vec::new();
    put_internal_key(&mut key, user_key.as_bytes(), sequence, kind);
    key
}

/// Entries of every kind, sorted.
fn entries() -> Vec<(Vec<u8>, Vec<u8>)> {
    let put = |key: &str, sequence| (internal_key(key, sequence, ValueKind::Put), b"1815".to_vec());
    let gone = |key: &str, sequence| (internal_key(key, sequence, ValueKind::Tombstone), vec![]);
    vec![
        put("", 7),
        put("ada", 300),
        gone("ada", 299),
        put("ada", 1),
        gone("adam", 2),
        (internal_key("bo", 4, ValueKind::ExpiringPut), expiring()),
        (internal_key("bob", SEQUENCE_MAX, ValueKind::Put), vec![b'v'; 200]),
    ]
}

/// The stored value of an entry that expires at 1.8 billion seconds, and a millisecond.
fn expiring() -> Vec<u8> {
    [&1_800_000_000_001_u64.to_le_bytes()[..], b"1815"].concat()
}

fn blocks() -> Structures {
    let data = |restart_interval, hash_index| {
        let mut builder = BlockBuilder::data(restart_interval, hash_index);
        entries().iter().for_each(|(key, value)| builder.add(key, value));
        builder.finish().to_vec()
    };
    let index = |keys: [&str; 3]| {
        let mut builder = IndexBuilder::default();
        let [last, next, end] = keys.map(|key| internal_key(key, 5, ValueKind::Put));
        builder.push(&last, Some(&next));
        builder.push(&end, None);
        let handles = [(36, 200), (249, 70_000)];
        builder.build(&handles.map(|(offset, size)| BlockHandle { offset, size }))
    };
    let mut pairs = BlockBuilder::new(1);
    pairs.add(b"name", b"value");
    pairs.add(b"names", b"");
    let deletes = [("a", Some("c"), 9), ("b", Some("d"), 4), ("x", None, 300)];
    let deletes = deletes.map(|(start, end, sequence)| RangeDelete {
        start: start.into(),
        end: end.map(Into::into),
        sequence,
    });
    let mut fragments = Vec::new();
    RangeDeletes::fragmented(&deletes, &[5]).encode(&mut fragments);
    let with_range_filter = Properties {
        range_filter_bytes: 500,
        range_filter_millibits: 12_000,
        range_filter_model: vec![1, 2, 3],
        ..every_property()
    };
    let identity = BlockIdentity { table_id: TABLE_ID, offset: 36, kind: BlockKind::Data };
    let [metaindex, index_handle] =
        [(900, 91), (1000, 29)].map(|(offset, size)| BlockHandle { offset, size });
    let footer = Footer { version: 1, table_id: TABLE_ID, metaindex, index: index_handle };
    vec![
        named("data block", data(16, false)),
        named("data block with hash index", data(2, true)),
        named("block of names", pairs.finish()),
        named("index of user keys", index(["ada", "bob", "eve"])),
        named("index of internal keys", index(["ada", "ada", "eve"])),
        named("range deletes", fragments),
        named("properties of an empty table", Properties::new().encode()),
        named("properties with every field", every_property().encode()),
        named("properties with a range filter", with_range_filter.encode()),
        named("block prefix", identity.prefix(200)),
        named("block trailer, none", identity.trailer(b"contents", Codec::None)),
        named("block trailer, snappy", identity.trailer(b"contents", Codec::Snappy)),
        named("table header", Header { version: 1, table_id: TABLE_ID, keyspace: 7 }.encode()),
        named("table header, features", {
            Header { version: 2, table_id: TABLE_ID, keyspace: 7 }.encode()
        }),
        named("table footer", footer.encode()),
    ]
}

/// No field has the value of an absent one, except those of a range filter.
fn every_property() -> Properties {
    Properties {
        keyspace: KeyspaceLabel { id: 70_000, name: "users".into() },
        databases: vec![DATABASE.id, 0xfeed],
        entries: 300,
        tombstones: 3,
        expiring: 5,
        expires_by: 1_900_000_000_000,
        range_deletes: 2,
        data_blocks: 7,
        data_bytes: 28_000,
        raw_key_bytes: 4000,
        raw_value_bytes: 50_000,
        index_bytes: 290,
        index_key_is_user_key: false,
        compression: Codec::Snappy,
        filter_policy: "rocksdb.BuiltinBloomFilter".into(),
        filter_encoding: "fast-local-bloom".into(),
        filter_layout: "partitioned:4096".into(),
        filter_millibits_per_key: 9900,
        filter_bytes: 400,
        filter_entries: 290,
        filter_partitions: 2,
        whole_key_filtering: true,
        prefix_filtering: true,
        prefix_extractor: "siftdb.FixedPrefix.3".into(),
        range_filter_bytes: 0,
        range_filter_millibits: 0,
        range_filter_model: Vec::new(),
        required_features: "lz4".into(),
        smallest_sequence: 4,
        largest_sequence: SEQUENCE_MAX,
        ingested: true,
        smallest_key: internal_key("a", 4, ValueKind::Put),
        largest_key: internal_key("z", 9, ValueKind::Tombstone),
    }
}

fn table(filter: Option<TableFilter>, compression: Compression) -> Vec<u8> {
    let env = MemEnv::new();
    let path = FileName::Table(13).path(Path::new(DIRECTORY));
    let options = TableOptions {
        keyspace: KeyspaceLabel { id: 1, name: "users".into() },
        databases: Vec::new(),
        block_bytes: 4096,
        restart_interval: 16,
        hash_index: true,
        index_partition_bytes: 0,
        compression,
        filter,
        construction: Construction::default(),
        write_bytes: 64 << 10,
        events: Events::default(),
    };
    let file = env.create_new(&path).unwrap();
    let mut builder = TableBuilder::new(file, path.clone(), TABLE_ID, options);
    entries().iter().for_each(|(key, value)| builder.add(key, value).unwrap());
    builder.finish().unwrap();
    env.read_file(&path).unwrap()
}

/// One block of data each, so that no cut matters.
fn tables() -> Structures {
    let encodings = [
        Encoding::LevelDbBloom { bits_per_key: 10 },
        Encoding::FastLocalBloom { millibits: 10_000 },
        Encoding::Ribbon { millibits: 10_000 },
        Encoding::LegacyBloom { bits_per_key: 10 },
    ];
    let layouts = [
        FilterLayout::BlockBased { window_bytes: 2048 },
        FilterLayout::Full,
        FilterLayout::Partitioned { block_bytes: 4096 },
    ];
    let mut tables = vec![
        named("table without filter", table(None, Compression::None)),
        named("table, snappy", table(None, Compression::Snappy)),
    ];
    for layout in layouts {
        for encoding in &encodings {
            let name = format!("table, {} {layout}", encoding.label());
            let (encoding, members) = (encoding.clone(), FilterMembers::default());
            let filter = TableFilter { encoding, layout, members, range_millibits: 0 };
            tables.push((name, table(Some(filter), Compression::None)));
        }
    }
    let members = FilterMembers { whole_keys: false, prefix: Some(Prefix::fixed(1)) };
    let encoding = Encoding::FastLocalBloom { millibits: 10_000 };
    let filter = TableFilter { encoding, layout: FilterLayout::Full, members, range_millibits: 0 };
    tables.push(named("table, prefixes", table(Some(filter.clone()), Compression::None)));
    let members = FilterMembers::default();
    let filter = TableFilter { members, range_millibits: 12_000, ..filter };
    tables.push(named("table, range filter", table(Some(filter), Compression::None)));
    tables
}

/// A log that begins with `start` after bulk loads.
fn log_of_loads(start: &WalStart) -> Vec<u8> {
    let (env, directory) = (MemEnv::new(), Path::new(DIRECTORY));
    let loads = [(0x0102_0304_0506_0708, 300), (u64::MAX, 302)];
    WalWriter::create(&env, directory, 12, start, &loads, 0).unwrap().sync().unwrap();
    env.read_file(&FileName::Wal(12).path(directory)).unwrap()
}

fn logs() -> Structures {
    let start = WalStart {
        synced_through: 300,
        previous_log: 4,
        previous_last_sequence: 301,
        first_sequence: 303,
        manifest_number: 2,
        manifest_synced_bytes: 1000,
        database: DATABASE,
    };
    let log = |write: &dyn Fn(&mut WalWriter)| {
        let (env, directory) = (MemEnv::new(), Path::new(DIRECTORY));
        let mut wal = WalWriter::create(&env, directory, 0x1_0000_000c, &start, &[], 0).unwrap();
        write(&mut wal);
        env.read_file(&FileName::Wal(0x1_0000_000c).path(directory)).unwrap()
    };
    let batch = |wal: &mut WalWriter| {
        let mut batch = WriteBatch::new();
        batch
            .put("ada", "1815")
            .put("", "")
            .delete("adam")
            .delete_range("b".."c")
            .delete_range("x"..);
        batch.push_in((0, 70_000), WriteKind::Put, b"bob", b"1912");
        batch.push_in((0, 1), WriteKind::Delete, b"eve", b"");
        batch.push_in((0, 1), WriteKind::PutExpiring, b"session", &expiring());
        wal.append(302, 303, batch.len() as u32, [&batch.entries[..]]).unwrap();
    };
    // The middle of what crosses pages is left out: only where fragments begin is of interest.
    let pages = log(&|wal| {
        let mut batch = WriteBatch::new();
        batch.put("k", vec![b'v'; 70_000]);
        wal.append(302, 303, 1, [&batch.entries[..]]).unwrap();
    });
    let around = |at: usize| &pages[at - 16..at + 16];
    let crossing = [around(32 << 10), around(64 << 10), &pages[pages.len() - 16..]].concat();
    vec![
        named("log with a start record", log(&|_| {})),
        named("log that names bulk loads", log_of_loads(&start)),
        named("log with a batch of every kind", log(&batch)),
        named("log over three pages, around their borders", crossing),
    ]
}

fn file(keyspace: u32, number: u64, end: Bound<&[u8]>) -> FileMeta {
    FileMeta {
        keyspace,
        number,
        table_id: TABLE_ID,
        bytes: 900,
        start: b"a".to_vec(),
        end: end.map(<[u8]>::to_vec),
        entries: 300,
        garbage: 3,
        expiring: Expiring { entries: 5, by: 1_900_000_000_000 },
        range_deletes: 2,
        smallest_sequence: 4,
        largest_sequence: SEQUENCE_MAX,
        global_sequence: None,
    }
}

/// A file without any of the fields that may be absent.
fn plain_file() -> FileMeta {
    let file = file(0, 16, Bound::Included(b"z"));
    FileMeta { garbage: 0, expiring: Expiring::default(), range_deletes: 0, ..file }
}

fn edits() -> Structures {
    let encoded = |edit: &VersionEdit| {
        let mut bytes = Vec::new();
        edit.encode(2, &mut bytes);
        bytes
    };
    let keyspace = |id, name: &str, settings: &[u8]| KeyspaceMeta {
        id,
        name: name.into(),
        flushed_through: 200,
        settings: settings.to_vec(),
    };
    let every_field = VersionEdit {
        ordinal: 0,
        comparator: Some("siftdb.bytewise".into()),
        first_log: Some(FirstLog { number: 14, flushed_through: 3 }),
        next_file_number: Some(1500),
        last_sequence: Some(SEQUENCE_MAX),
        synced_through: Some(302),
        expired_through: Some(1_800_000_000_123),
        session_log: Some(12),
        sessions: vec![SessionBegin { id: 12, begins_after: 300 }],
        clean_close: Some(CleanClose { log: 12, log_bytes: 90, last_sequence: 303 }),
        database: Some(DATABASE),
        checkpoint_of: Some(DatabaseIdentity { id: 0xfeed, epoch: 3 }),
        ancestors: vec![0xfeed],
        next_keyspace: Some(70_001),
        created: vec![keyspace(0, "default", b""), keyspace(70_000, "users", &[4, 1, 9])],
        dropped: vec![5],
        settings: vec![(1, vec![4, 1, 9])],
        flushed_through: vec![(1, 300)],
        deleted: vec![DeletedFile { keyspace: 1, level: 6, number: 10 }],
        added: vec![
            (0, file(0, 13, Bound::Excluded(b"z"))),
            (6, file(70_000, 14, Bound::Unbounded)),
            (1, plain_file()),
            (0, ingested_file()),
        ],
    };
    let (env, directory) = (MemEnv::new(), Path::new(DIRECTORY));
    let edit = VersionEdit { last_sequence: Some(3), ..VersionEdit::default() };
    ManifestWriter::create(&env, directory, 7, &edit).unwrap();
    vec![
        named("edit with every field", encoded(&every_field)),
        named("edit without fields", encoded(&VersionEdit::default())),
        named("manifest", env.read_file(&FileName::Manifest(7).path(directory)).unwrap()),
    ]
}

fn ingested_file() -> FileMeta {
    let (global_sequence, smallest_sequence, largest_sequence) = (Some(9), 9, 9);
    FileMeta { global_sequence, smallest_sequence, largest_sequence, ..plain_file() }
}

/// A policy that does nothing, for its name.
#[derive(Debug)]
struct Named;

impl FilterPolicy for Named {
    fn name(&self) -> &str {
        "test.Named"
    }

    fn create_filter(&self, _: &[&[u8]], _: &mut Vec<u8>) {}

    fn key_may_match(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }
}

fn settings() -> Structures {
    let encoded = |settings: KeyspaceOptions| settings.encoded();
    let filter = |filter: Filter| encoded(KeyspaceOptions::new().filter(filter));
    let partitioned = FilterLayout::Partitioned { block_bytes: 4096 };
    let block_based = FilterLayout::BlockBased { window_bytes: 2048 };
    let prefixes = Filter::bloom(9.5).prefix(Prefix::delimited(b'/', 2)).whole_key(false);
    let every = KeyspaceOptions::new()
        .filter(Filter::bloom(10.0))
        .filter_at_level(2, Filter::ribbon(12.5))
        .filter_at_last_level(Filter::bloom(14.0))
        .filter_last_level(false)
        .block_bytes(16 << 10)
        .block_hash_index(true)
        .compression(Compression::Snappy)
        .compression_at_level(0, Compression::None)
        .compression_at_level(1, Compression::Lz4)
        .compression_at_last_level(Compression::Zstd(3));
    vec![
        named("settings, every one", encoded(every)),
        named("settings, none", encoded(KeyspaceOptions::new())),
        named("settings, no hash index, no compression", {
            encoded(KeyspaceOptions::new().block_hash_index(false).snappy(false))
        }),
        named("settings, no filter", filter(Filter::none())),
        named("settings, leveldb block-based", {
            filter(Filter::leveldb_bloom(10.0).layout(block_based))
        }),
        named("settings, legacy partitioned", {
            filter(Filter::legacy_bloom(10.0).layout(partitioned))
        }),
        named("settings, ribbon below", filter(Filter::bloom_then_ribbon(10.0, 3))),
        named("settings, budget", filter(Filter::monkey(1 << 20))),
        named("settings, policy", filter(Filter::custom(Arc::new(Named)))),
        named("settings, prefixes", filter(prefixes)),
        named("settings, all pinned", filter(Filter::bloom(10.0).pinning(FilterPinning::All))),
        named("settings, none pinned", filter(Filter::bloom(10.0).pinning(FilterPinning::None))),
    ]
}

fn small_files() -> Structures {
    let (env, directory) = (MemEnv::new(), Path::new(DIRECTORY));
    set_current(&env, directory, 7, 8).unwrap();
    let saved = SavedStats {
        since_unix_seconds: 1_800_000_000,
        database: vec![5, 300],
        keyspaces: vec![(0, vec![]), (70_000, vec![1])],
    };
    save(&env, directory, 9, &saved);
    let lock = FileName::Lock.path(directory);
    drop(lock_to_write(&env, directory).unwrap());
    vec![
        named("CURRENT", env.read_file(&FileName::Current.path(directory)).unwrap()),
        named("STATS", env.read_file(&FileName::Stats.path(directory)).unwrap()),
        named("LOCK", env.read_file(&lock).unwrap()),
    ]
}

/// Each structure as lines of 32 bytes in hex, below its name.
fn text() -> String {
    let mut text = String::new();
    for (name, bytes) in structures() {
        text.push_str(&format!("{name}: {} bytes\n", bytes.len()));
        for line in bytes.chunks(32) {
            let hex: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
            text.push_str(&format!("  {hex}\n"));
        }
    }
    text
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the golden bytes are no file of a database")]
fn encoders_write_the_promised_bytes() {
    let text = text();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(GOLDEN, text).unwrap();
        return;
    }
    // A package has no golden bytes.
    let Ok(golden) = std::fs::read_to_string(GOLDEN) else { return };
    let mut structure = "";
    for (found, promised) in text.lines().zip(golden.lines()) {
        structure = if found.starts_with(' ') { structure } else { found };
        assert_eq!(found, promised, "{structure} differs from tests/it/golden/encoders.txt");
    }
    assert_eq!(text.len(), golden.len());
}
