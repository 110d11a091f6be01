//! Damaged and forged tables of RocksDB: refused, or read as they were.

use crate::block_file::BlockFile;
use crate::block_handle::BlockHandle;
use crate::checksum::{ChecksumKind, checksum_context};
use crate::coding::get_u32;
use crate::filter::{TableFilter, rocksdb_filter};
use crate::filter_figures::FilterFigures;
use crate::index::IndexStyle;
use crate::key_order::KeyOrder;
use crate::leveldb::testing::{self, Block, TableStyle, put_block};
use crate::rocksdb::properties::Properties;
use crate::rocksdb::tests::{contents, golden, golden_bytes, properties, recorded};
use crate::single::ForeignTable;
use crate::store::Store;
use crate::table::Table;
use crate::testing::put_varint;
use crate::verify::verify;
use proptest::prelude::*;
use siftdb::env::{CountingEnv, Env, MemEnv, WritableFile};
use siftdb::{Error, Result};
use siftdb_filter::hash::KeyHash;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A table in memory, of which bytes can be changed.
struct Changed {
    env: Arc<dyn Env>,
    file: Box<dyn WritableFile>,
    bytes: Vec<u8>,
}

const PATH: &str = "/table.sst";

impl Changed {
    fn new(bytes: Vec<u8>) -> Self {
        let env: Arc<dyn Env> = Arc::new(MemEnv::new());
        let mut file = env.create_new(Path::new(PATH)).unwrap();
        file.write_at(0, &bytes).unwrap();
        Changed { env, file, bytes }
    }

    fn set(&mut self, at: usize, byte: u8) {
        self.bytes[at] = byte;
        self.file.write_at(at as u64, &[byte]).unwrap();
    }

    fn open(&self) -> Result<ForeignTable> {
        ForeignTable::open(&self.env, Path::new(PATH))
    }
}

type Whole = ((Vec<u8>, Vec<u8>), Vec<(Vec<u8>, Vec<u8>)>);

fn whole(changed: &Changed) -> Result<Whole> {
    let table = changed.open()?;
    Ok((contents(&table)?, properties(&table)?))
}

/// Of one table for each kind of checksum, or of all with `SIFTDB_ROCKSDB_LONG`.
#[test]
fn flipped_bits_never_change_what_is_read() {
    let short = ["v2_crc32c", "v6_xxhash", "v7_xxh3", "v6_xxhash64_hash"];
    let mut all: Vec<String> = short.map(String::from).into();
    if is_long() {
        let names = recorded(&golden()).into_iter();
        all = names.map(|(path, _)| path.file_stem().unwrap().to_string_lossy().into()).collect();
    }
    for name in all.iter().filter(|name| !name.contains("none")) {
        let mut changed = Changed::new(golden_bytes(name));
        let as_written = whole(&changed).unwrap();
        let (mut refused, bits) = (0, 8 * changed.bytes.len());
        for bit in 0..bits {
            let byte = changed.bytes[bit / 8];
            changed.set(bit / 8, byte ^ 1 << (bit % 8));
            match whole(&changed) {
                Ok(found) => assert!(found == as_written, "{name}: bit {bit}"),
                Err(error) => {
                    assert!(error.is_corruption(), "{name}: bit {bit}: {error}");
                    refused += 1;
                }
            }
            changed.set(bit / 8, byte);
        }
        assert!(refused > 0, "{name}");
    }
}

#[test]
fn flipped_bits_of_filters_are_found() {
    for name in ["v5_crc32c_partitioned", "v7_crc32c_snappy"] {
        let mut changed = Changed::new(golden_bytes(name));
        let mut parts = Vec::new();
        let table = changed.open().unwrap();
        table
            .each_part(&mut |part| {
                if part.kind.contains("filter") || part.kind.contains("index") {
                    parts.push(part.offset as usize..(part.offset + part.bytes) as usize);
                }
                Ok(())
            })
            .unwrap();
        assert!(parts.len() > 1);
        for at in parts.into_iter().flatten() {
            changed.set(at, changed.bytes[at] ^ 0x10);
            let error = changed.open().and_then(|table| table.verify()).unwrap_err();
            assert!(error.to_string().contains("checksum"), "{name}: byte {at}: {error}");
            changed.set(at, changed.bytes[at] ^ 0x10);
        }
    }
}

/// Reads all that there is. Whatever it says, it must end.
fn read_all(changed: &Changed) -> Result<()> {
    let table = changed.open()?;
    let mut _parts = 0;
    let parts = table.each_part(&mut |_| {
        _parts += 1;
        Ok(())
    });
    let read = [
        parts,
        contents_of_any_kind(&table),
        properties(&table).map(drop),
        table.verify().map(drop),
        table.filter_figures().map(drop),
        table.trace_lookups(&[b"user000003".to_vec(), b"user000003x".to_vec()]).map(drop),
    ];
    read.into_iter().collect()
}

fn contents_of_any_kind(table: &ForeignTable) -> Result<()> {
    table.each_entry(None, &mut |_| Ok(true))
}

fn hostile_cases() -> u32 {
    if is_long() { 100_000 } else { 1_000 }
}

fn is_long() -> bool {
    std::env::var_os("SIFTDB_ROCKSDB_LONG").is_some()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(hostile_cases()))]

    /// Without checksums, anything may be there.
    #[test]
    fn hostile_tables_are_refused_or_read(
        name in prop_oneof![Just("v5_none_partitioned"), Just("v6_none")],
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop_oneof![Just(None), any::<prop::sample::Index>().prop_map(Some)],
    ) {
        let mut bytes = golden_bytes(name);
        for (at, byte) in changes {
            let at = at.index(bytes.len() - 8);
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            // The end stays, so that it is taken for a table.
            let cut = cut.index(bytes.len() - 53);
            bytes.drain(cut..(cut + 40).min(bytes.len() - 53));
        }
        if let Err(error) = read_all(&Changed::new(bytes)) {
            prop_assert!(error.is_corruption() || matches!(error, Error::Io { .. }), "{error}");
        }
    }
}

/// A recorded table with another byte at `at`, in a block whose checksum is made to fit.
fn forged(name: &str, at: usize, byte: u8) -> Changed {
    let kind = match name {
        name if name.contains("crc32c") => ChecksumKind::Crc32c,
        name if name.contains("xxh3") => ChecksumKind::Xxh3,
        _ => ChecksumKind::None,
    };
    resealed(golden_bytes(name), at, byte, kind)
}

fn resealed(bytes: Vec<u8>, at: usize, byte: u8, kind: ChecksumKind) -> Changed {
    let table = Changed::new(bytes.clone()).open().unwrap();
    let mut changed = Changed::new(bytes);
    changed.set(at, byte);
    let block = parts(&table, "").into_iter().rfind(|block| block.contains(&at)).unwrap();
    // The footer has the version, and from 6 on what checksums depend on.
    let footer = &changed.bytes[changed.bytes.len() - 53..];
    let base = if footer[41] >= 6 { get_u32(footer, 9).unwrap() } else { 0 };
    let context = checksum_context(base, block.start as u64);
    let sum = kind.of(&changed.bytes[block.start..block.end - 4]).wrapping_add(context);
    for (i, byte) in sum.to_le_bytes().into_iter().enumerate() {
        changed.set(block.end - 4 + i, byte);
    }
    changed
}

/// Where the parts of this kind are; without a kind all but the footer.
fn parts(table: &ForeignTable, kind: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    table
        .each_part(&mut |part| {
            if part.kind == kind || kind.is_empty() && part.kind != "footer" {
                found.push(part.offset as usize..(part.offset + part.bytes) as usize);
            }
            Ok(())
        })
        .unwrap();
    found
}

fn refusal(changed: &Changed) -> String {
    match changed.open().and_then(|table| table.verify()) {
        Err(error @ Error::UnsupportedFormat { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn position(name: &str, bytes: &[u8]) -> usize {
    position_in(&golden_bytes(name), bytes)
}

fn position_in(all: &[u8], bytes: &[u8]) -> usize {
    all.windows(bytes.len()).position(|window| window == bytes).unwrap()
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    let name = "v2_crc32c";
    let bytes = golden_bytes(name);
    let mut first = 0;
    let table = Changed::new(bytes.clone()).open().unwrap();
    table
        .each_part(&mut |part| {
            if part.kind == "data" && first == 0 {
                first = (part.offset + part.bytes) as usize - 5;
            }
            Ok(())
        })
        .unwrap();
    let bzip2 = refusal(&forged(name, first, 3));
    assert!(bzip2.contains("compression bzip2 (3)"), "{bzip2}");
    let early = refusal(&forged(name, first, 0x40));
    assert!(early.contains("compression ZSTDNotFinal (64)"), "{early}");
    let at = position(name, b"leveldb.BytewiseComparator") + 8;
    assert!(refusal(&forged(name, at, b'X')).contains("leveldb.XytewiseComparator"));
    let at = position(name, b"index.type") + b"index.type".len();
    assert!(refusal(&forged(name, at, 9)).contains("an index of the unknown type 9"));
    let footer = |at: usize, byte: u8| {
        let mut changed = Changed::new(bytes.clone());
        changed.set(bytes.len() - at, byte);
        changed
    };
    assert!(refusal(&footer(12, 8)).contains("format version 8; read are 2 to 7"));
    assert!(refusal(&footer(12, 1)).contains("format version 1; read are 2 to 7"));
    assert!(refusal(&footer(53, 9)).contains("unknown checksum 9"));
    for (magic, what) in [(0x8242_2296_63bf_9564u64, "plain"), (0x9267_89d0_c5f1_7873, "cuckoo")] {
        let mut changed = Changed::new(bytes.clone());
        for (i, byte) in magic.to_le_bytes().into_iter().enumerate() {
            changed.set(bytes.len() - 8 + i, byte);
        }
        assert!(ForeignTable::is_at(&*changed.env, Path::new(PATH)));
        assert!(refusal(&changed).contains(&format!("a {what} table of RocksDB")));
    }
}

/// Each block is sound by itself.
#[test]
fn contradictions_between_blocks_are_found() {
    let name = "v2_crc32c";
    let found = |changed: Changed| changed.open().and_then(|one| one.verify()).unwrap_err();
    let table = Changed::new(golden_bytes(name)).open().unwrap();
    let mut filter = 0..0;
    table
        .each_part(&mut |part| {
            if part.kind == "filter" {
                filter = part.offset as usize..(part.offset + part.bytes) as usize - 10;
            }
            Ok(())
        })
        .unwrap();
    let bytes = golden_bytes(name);
    let at = filter.clone().find(|&at| bytes[at] != 0).unwrap();
    let denied = found(forged(name, at, 0));
    assert!(denied.to_string().contains("the filter denies a key that is there"), "{denied}");
    // A name shares its first bytes with the one before it.
    let properties = [
        ("entries", "num.entries"),
        ("eleted.keys", "deleted.keys"),
        ("um.data.blocks", "num.data.blocks"),
        ("raw.key.size", "raw.key.size"),
    ];
    for (own, property) in properties {
        let at = position(name, own.as_bytes()) + own.len();
        let wrong = found(forged(name, at, bytes[at] ^ 1)).to_string();
        assert!(wrong.contains(&format!("the property rocksdb.{property} is")), "{wrong}");
    }
    let at = position(name, b"user000000");
    for (byte, what) in [(b'v', "above"), (b'\xff', "above")] {
        let wrong = found(forged(name, at, byte)).to_string();
        assert!(wrong.contains(what), "{wrong}");
    }
    let at = position(name, b"user000000") + 9;
    let wrong = found(forged(name, at, b'9')).to_string();
    assert!(wrong.contains("keys out of order"), "{wrong}");
}

/// RocksDB 7.8 wrote 0 for every format version.
#[test]
fn a_format_version_of_0_in_the_properties_says_nothing() {
    let name = "v2_crc32c";
    // The name shares its first bytes with the one before it; the value follows it.
    let at = position(name, b"ormat.version") + b"ormat.version".len();
    assert_eq!(golden_bytes(name)[at], 2);
    forged(name, at, 0).open().unwrap().verify().unwrap();
    let wrong = wrong(&forged(name, at, 3));
    assert!(wrong.contains("the property rocksdb.format.version is 3, counted are 2"), "{wrong}");
}

fn wrong(changed: &Changed) -> String {
    changed.open().and_then(|table| table.verify()).unwrap_err().to_string()
}

/// LevelDB has zstd under a number of its own.
#[test]
fn compressions_have_the_names_of_their_store() {
    let style = TableStyle { block_bytes: 60, snappy: false, bits_per_key: 0 };
    let key = [&b"a"[..], &(7u64 << 8 | 1).to_le_bytes()].concat();
    let bytes = testing::table(&[(key, vec![b'v'])], style);
    let table = Changed::new(bytes.clone()).open().unwrap();
    let compression = parts(&table, "data")[0].end - 5;
    let changed = |codec| resealed(bytes.clone(), compression, codec, ChecksumKind::Crc32c);
    if cfg!(feature = "codecs") {
        // No frame of zstd, and no codec.
        assert!(wrong(&changed(2)).contains("not decompressed"));
        assert!(refusal(&changed(3)).contains("compression unknown (3)"));
    } else {
        assert!(refusal(&changed(2)).contains("compression zstd (2)"));
    }
}

#[test]
fn keys_below_their_block_are_found() {
    // Blocks a..d and e..h; LevelDB looks for e and f in the first if its separator is f.
    let entry = |letter: u8| ([&[letter][..], &(7u64 << 8 | 1).to_le_bytes()].concat(), vec![b'v']);
    let entries: Vec<_> = (b'a'..=b'h').map(entry).collect();
    let bytes =
        testing::table(&entries, TableStyle { block_bytes: 60, snappy: false, bits_per_key: 0 });
    let sound = Changed::new(bytes.clone()).open().unwrap();
    assert_eq!(sound.verify().unwrap().data_blocks, 2);
    let at = bytes.windows(9).rposition(|window| window == entry(b'd').0).unwrap();
    let refused = wrong(&resealed(bytes, at, b'f', ChecksumKind::Crc32c));
    assert!(refused.contains("a key that the index says is in a block before"), "{refused}");
    // Separators without sequences: the first is raised to just below the second, user000016.
    let name = "v5_none_partitioned";
    let refused = wrong(&forged(name, position(name, b"user000010") + 9, b'5'));
    assert!(refused.contains("a key that the index says is in a block before"), "{refused}");
}

#[test]
fn wrong_keys_of_top_level_indexes_are_found() {
    // A separator of the only partition, user000085, is above the top level's key.
    let name = "v5_none_partitioned";
    let refused = wrong(&forged(name, position(name, b"user000089") + 8, b'7'));
    assert!(refused.contains("a key above what the top level says"), "{refused}");
}

/// The keys of three data blocks.
type Blocks = [[u8; 2]; 3];
const BLOCKS: Blocks = [*b"ab", *b"cd", *b"ef"];
const LAST_KEYS: [u8; 3] = *b"bdf";

/// Checks a table of these blocks whose index has two partitions: the first has the separator of
/// the first block, the second has the others. The top level names them by `top`, and the metaindex
/// names it as the index of a filter, too. With `has_empty`, the first partition is empty.
fn verify_partitioned(
    blocks: Blocks,
    separators: [u8; 3],
    top: [u8; 2],
    has_empty: bool,
    style: IndexStyle,
) -> std::result::Result<u64, String> {
    let key = |letter: u8| [&[letter][..], &(7u64 << 8 | 1).to_le_bytes()].concat();
    let mut bytes = Vec::new();
    let mut put = |entries: &[(Vec<u8>, Vec<u8>)]| {
        let mut block = Block::default();
        entries.iter().for_each(|(key, value)| block.add(key, value, 1));
        put_block(&mut bytes, &block.finish(), false)
    };
    let data = blocks.map(|[a, b]| put(&[(key(a), vec![1]), (key(b), vec![2])]));
    let separator = |letter: u8| if style.has_user_keys { vec![letter] } else { key(letter) };
    let named = |i: usize| (separator(separators[i]), data[i].clone());
    let first = put(&if has_empty { vec![] } else { vec![named(0)] });
    let second = put(&[named(1), named(2)]);
    let index = put(&[(separator(top[0]), first), (separator(top[1]), second)]);
    let metaindex = put(&[(b"partitionedfilter.x".to_vec(), index.clone())]);
    let [index, metaindex] = [index, metaindex].map(|at| BlockHandle::decode(&at).unwrap());
    let changed = Changed::new(bytes);
    let file = BlockFile::open(&*changed.env, Path::new(PATH)).unwrap();
    let style = IndexStyle { is_partitioned: true, ..style };
    let table = Table { file, metaindex, index, style, has_whole_keys: true };
    let verified = verify(&table, None).map(|counts| counts.data_blocks);
    verified.map_err(|error| error.to_string())
}

#[test]
fn wrong_top_levels_of_an_index_are_found() {
    let verify = |top, has_empty| {
        verify_partitioned(BLOCKS, LAST_KEYS, top, has_empty, IndexStyle::default())
    };
    assert_eq!(verify(*b"bf", false), Ok(3));
    assert_eq!(verify(*b"cg", false), Ok(3));
    let wrong = [
        (*b"gf", false, "partitions out of order"),
        (*b"ff", false, "keys of the top level of the index out of order"),
        (*b"af", false, "a key above what the top level says of its partition"),
        (*b"be", false, "a key above what the top level says of its partition"),
        (*b"df", false, "a key that the top level says is in a partition of the index before"),
        (*b"bf", true, "an empty partition of the index"),
    ];
    for (top, has_empty, what) in wrong {
        let refused = verify(top, has_empty).unwrap_err();
        assert!(refused.contains(what), "{}: {refused}", top.escape_ascii());
    }
}

#[test]
fn separators_are_in_the_order_of_their_table() {
    let (blocks, last) = ([*b"fe", *b"dc", *b"ba"], *b"eca");
    let in_between = "a key that the top level says is in a partition of the index before";
    for has_user_keys in [false, true] {
        let style = |order| IndexStyle { has_user_keys, order, ..IndexStyle::default() };
        let reverse = |blocks, separators, top| {
            verify_partitioned(blocks, separators, top, false, style(KeyOrder::Reverse))
        };
        assert_eq!(reverse(blocks, last, *b"ea"), Ok(3));
        for (blocks, separators, top, what) in [
            (blocks, last, *b"ae", "partitions out of order"),
            (blocks, last, *b"fa", "a key above what the top level says of its partition"),
            (blocks, last, *b"ca", in_between),
            (blocks, *b"eac", *b"ea", "keys of the index out of order"),
            (blocks, *b"eda", *b"ea", "a key above what the index says of its block"),
            (blocks, *b"dca", *b"da", "a key that the index says is in a block before"),
            ([*b"ee", *b"dc", *b"ba"], last, *b"ea", "keys out of order"),
            (BLOCKS, LAST_KEYS, *b"bf", "partitions out of order"),
        ] {
            let found = reverse(blocks, separators, top).unwrap_err();
            assert!(found.contains(what), "{}: {found}", separators.escape_ascii());
        }
        let bytewise = style(KeyOrder::Bytewise);
        assert!(verify_partitioned(blocks, last, *b"ea", false, bytewise).is_err());
    }
}

/// A filter of another policy is not asked, and takes as many bytes.
#[test]
fn filters_that_are_not_asked_have_their_size() {
    for name in ["v5_crc32c_partitioned", "v7_crc32c_snappy"] {
        let bytes = |changed: &Changed| {
            let table = changed.open().unwrap();
            let figures = table.filter_figures().unwrap().filters;
            assert_eq!(figures.filter_bytes, table.verify().unwrap().filter_bytes, "{name}");
            (figures.filter_bytes, figures.partitions, figures.tables_without_filter)
        };
        let (size, partitions, _) = bytes(&Changed::new(golden_bytes(name)));
        let at = position(name, b"filter.rocksdb.") + b"filter.".len();
        assert_eq!(bytes(&forged(name, at, b'X')), (size, partitions, 1), "{name}");
        assert_eq!(partitions > 0, name.contains("partitioned"));
    }
}

#[test]
fn wrong_restart_points_are_found() {
    let name = "v2_crc32c";
    let bytes = golden_bytes(name);
    let table = Changed::new(bytes.clone()).open().unwrap();
    for kind in ["data", "index", "metaindex"] {
        let count = parts(&table, kind)[0].end - 5 - 4;
        let restarts = usize::from(bytes[count]);
        assert!(restarts > 0 && bytes[count + 1] == 0, "{kind}");
        let last = count - 4;
        for (at, byte) in [(last, bytes[last] + 1), (last + 2, 1), (count, 0)] {
            let changed = forged(name, at, byte);
            let refused = wrong(&changed);
            assert!(refused.contains("restart points"), "{kind} {at} {byte}: {refused}");
        }
    }
}

/// RocksDB takes a filter that is no longer than a trailer for one of no keys.
#[test]
fn short_filters_deny_every_key() {
    for bytes in 0..10 {
        for fill in [0, 1, 6, 0xff] {
            let filter = rocksdb_filter(vec![fill; bytes]);
            let maybe = filter.may_contain(&KeyHash::new(b"key"));
            assert!(!maybe || bytes > 5, "{bytes} bytes of {fill}");
        }
    }
}

/// A database that ingests a table may write a sequence into its properties.
#[test]
fn sequences_of_ingested_tables_may_change() {
    let name = "ingested_crc32c";
    let bytes = golden_bytes(name);
    let sound = Changed::new(bytes.clone());
    let as_written = whole(&sound).unwrap();
    let global = |found: &Whole| {
        let name = b"rocksdb.external_sst_file.global_seqno";
        found.1.iter().find(|(other, _)| other == name).map(|(_, value)| value[0])
    };
    assert!(global(&as_written).is_some_and(|sequence| sequence > 0), "{as_written:?}");
    let at = position(name, b"external_sst_file.global_seqno") + 30;
    let mut changed = Changed::new(bytes);
    changed.set(at, 0);
    assert_eq!(global(&whole(&changed).unwrap()), Some(0));
    changed.open().unwrap().verify().unwrap();
    changed.set(at - 1, b'x');
    assert!(whole(&changed).unwrap_err().to_string().contains("checksum"));
}

/// A block of these entries, with its handle.
fn put_entries(bytes: &mut Vec<u8>, entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut block = Block::default();
    entries.iter().for_each(|(key, value)| block.add(key, value, 1));
    put_block(bytes, &block.finish(), false)
}

/// An internal key. Those of larger numbers follow.
fn internal(number: u32) -> Vec<u8> {
    [format!("{number:04}").as_bytes(), &(7u64 << 8 | 1).to_le_bytes()].concat()
}

/// A table of this index, whose metaindex names `filter` as an index of filter partitions.
fn table_of(mut bytes: Vec<u8>, index: &[u8], filter: &[u8]) -> (CountingEnv, Table) {
    let name = b"partitionedfilter.rocksdb.BuiltinBloomFilter".to_vec();
    let metaindex = put_entries(&mut bytes, &[(name, filter.to_vec())]);
    let [index, metaindex] = [index, &metaindex].map(|at| BlockHandle::decode(at).unwrap());
    let changed = Changed::new(bytes);
    let env = CountingEnv::new(Arc::clone(&changed.env));
    let mut file = BlockFile::open(&env, Path::new(PATH)).unwrap();
    file.store = Store::RocksDb;
    let style = IndexStyle { has_user_keys: false, ..IndexStyle::default() };
    (env, Table { file, metaindex, index, style, has_whole_keys: true })
}

fn handle_of(offset: u64, size: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, offset);
    put_varint(&mut bytes, size);
    bytes
}

#[test]
fn sizes_of_filter_partitions_do_not_overflow() {
    let mut bytes = Vec::new();
    let data = put_entries(&mut bytes, &[(internal(1), vec![1])]);
    let index = put_entries(&mut bytes, &[(internal(1), data)]);
    let huge = |number| (internal(number), handle_of(0, u64::MAX - 9));
    let filter = put_entries(&mut bytes, &[huge(1), huge(2)]);
    let (_, table) = table_of(bytes, &index, &filter);
    assert!(TableFilter::open(&table).is_err());
}

/// What is read must be in proportion to the file, also if a thousand entries name one block.
#[test]
fn blocks_are_not_read_a_thousand_times() {
    // A data block without entries, and many restart points.
    let mut bytes = Vec::new();
    let mut empty = vec![0; 4 * 25_000];
    empty.extend(25_000u32.to_le_bytes());
    let empty = put_block(&mut bytes, &empty, false);
    let entries: Vec<_> = (0..1000).map(|number| (internal(number), empty.clone())).collect();
    let index = put_entries(&mut bytes, &entries);
    let filter = put_entries(&mut bytes, &[]);
    let (env, table) = table_of(bytes, &index, &filter);
    let read = table.ends().map(drop);
    let (file, bytes) = (table.file.bytes, env.counts().read_bytes);
    assert!(bytes < 20 * file, "data: {bytes} of {file}: {read:?}");
}

#[test]
fn filter_partitions_are_not_read_a_thousand_times() {
    let mut bytes = Vec::new();
    let data = put_entries(&mut bytes, &[(internal(1), vec![1])]);
    let index = put_entries(&mut bytes, &[(internal(1), data)]);
    let mut partition = vec![0xff; 64 * 1500];
    partition.extend([0xff, 0, 6, 0, 0]);
    let partition = put_block(&mut bytes, &partition, false);
    let entries: Vec<_> = (0..1000).map(|number| (internal(number), partition.clone())).collect();
    let filter = put_entries(&mut bytes, &entries);
    let (env, table) = table_of(bytes, &index, &filter);
    let verified = verify(&table, None).map(drop);
    let (file, bytes) = (table.file.bytes, env.counts().read_bytes);
    assert!(bytes < 20 * file, "filter: {bytes} of {file}: {verified:?}");
}

#[test]
fn figures_of_hostile_properties_do_not_overflow() {
    let mut figures = FilterFigures { entries: u64::MAX, ..FilterFigures::default() };
    let other = figures.clone();
    figures.add(&other);
}

#[test]
fn properties_that_no_table_has_are_damage() {
    let mut bytes = Vec::new();
    let index = put_entries(&mut bytes, &[]);
    let (_env, table) = table_of(bytes, &index, &index);
    let mut properties = Properties::default();
    properties.numbers.insert("rocksdb.index.size".into(), 1 << 41);
    let refused = FilterFigures::default().count(&table, Some(&properties)).unwrap_err();
    assert!(refused.to_string().contains("no table has as many"), "{refused}");
}
