//! Reads of LevelDB databases, compared with LevelDB's own answers and with models.

use crate::block_based::BlockBasedFilter;
use crate::checksum::masked_crc32c;
use crate::damage::{Damage, LOSSES_MAX, Loss};
use crate::filter_figures::FilterFigures;
use crate::internal_key::{internal_key, user_key};
use crate::key_order::KeyOrder;
use crate::leveldb::database::LevelDb;
use crate::leveldb::manifest::read_manifest;
use crate::leveldb::table::open_expected;
use crate::leveldb::testing::{Entry, TableStyle, batch, edit, record_file, table};
use crate::lookup_trace::{LookupCounts, LookupTrace};
use crate::run::{TableFile, TableRun};
use crate::testing::file_bytes;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use siftdb::env::{DiskEnv, Env, MemEnv};
use siftdb::{Error, Result};
use siftdb_filter::testing::vectors::{array, load, number, unhex};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Files = BTreeMap<String, Vec<u8>>;
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;
/// A put, or a deletion.
type Write = (Vec<u8>, Option<Vec<u8>>);

fn directory() -> &'static Path {
    Path::new("/old")
}

fn env_of(files: &Files) -> Arc<dyn Env> {
    let env = MemEnv::new();
    env.create_dir(directory()).unwrap();
    for (name, bytes) in files {
        env.create_new(&directory().join(name)).unwrap().write_at(0, bytes).unwrap();
    }
    Arc::new(env)
}

fn read(env: &Arc<dyn Env>, salvage: bool) -> Result<(Pairs, LevelDb)> {
    let old = LevelDb::open(Arc::clone(env), directory(), salvage)?;
    let entries = old.entries().collect::<Result<_>>()?;
    Ok((entries, old))
}

/// Databases that LevelDB wrote.
fn recorded() -> Option<Vec<(PathBuf, serde_json::Value)>> {
    let names = [
        "none_compacted",
        "snappy_compacted",
        "none_crash_wal",
        "wal_only",
        "nofilter_snappy",
        "bpk4_block512",
    ];
    let root = PathBuf::from(std::env::var_os("SIFTDB_VECTORS")?).join("leveldb_db");
    let expected = |name| load(&format!("leveldb_db/{name}/expected.json")).expect("is set");
    Some(names.iter().map(|name| (root.join(name).join("db"), expected(name))).collect())
}

#[test]
fn databases_of_leveldb_are_read_whole() {
    let env: Arc<dyn Env> = Arc::new(DiskEnv::new());
    for (path, expected) in recorded().unwrap_or_default() {
        let old = LevelDb::open(Arc::clone(&env), &path, false).unwrap();
        let found: Pairs = old.entries().collect::<Result<_>>().unwrap();
        let hex = |value: &serde_json::Value| unhex(value.as_str().unwrap());
        let live = array(&expected, "live").iter().map(|pair| (hex(&pair[0]), hex(&pair[1])));
        assert!(found == live.collect::<Vec<_>>(), "{}", path.display());
        assert_eq!(found.len() as u64, number(&expected, "live_count"));
        assert_eq!(old.losses(), []);
    }
}

/// The writer of these tests is as good as LevelDB's: where nothing is compressed, it writes the
/// same bytes.
#[test]
fn recorded_tables_are_written_again() {
    let env: Arc<dyn Env> = Arc::new(DiskEnv::new());
    for (path, expected) in recorded().unwrap_or_default() {
        let options = &expected["options"];
        let style = TableStyle {
            // LevelDB takes no less.
            block_bytes: number(options, "block_size").max(1024) as usize,
            snappy: options["compression"] == "snappy",
            bits_per_key: number(options, "bloom_bits_per_key") as u32,
        };
        for number in read_manifest(&*env, &path).unwrap().tables.keys() {
            let path = path.join(format!("{number:06}.ldb"));
            let file = TableFile { path: path.clone(), expected: None, order: KeyOrder::Bytewise };
            let mut run = TableRun::new(&env, open_expected, vec![file], &Damage::new(false));
            let mut entries: Vec<Entry> = Vec::new();
            while run.next().unwrap() {
                entries.push((run.key.to_vec(), run.value().to_vec()));
            }
            let again = table(&entries, style);
            let bytes = file_bytes(&path);
            // Compressors differ in the bytes they write.
            assert!(style.snappy || again == bytes, "{}", path.display());
        }
    }
}

/// A database: what each write did, cut into tables of levels and logs.
#[derive(Clone, Debug)]
struct Written {
    /// A batch each.
    writes: Vec<Vec<Write>>,
    /// This many writes, the first ones, are at level 1, the next at level 0, the rest in logs.
    level_1: usize,
    level_0: usize,
    style: TableStyle,
}

impl Written {
    fn versions(&self, from: usize, to: usize) -> BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)> {
        let mut sequence = 1;
        let mut newest = BTreeMap::new();
        for (i, write) in self.writes.iter().enumerate().take(to) {
            for (key, value) in write {
                if i >= from {
                    newest.insert(key.clone(), (sequence, value.clone()));
                }
                sequence += 1;
            }
        }
        newest
    }

    /// The live entries after the first `count` writes.
    fn live(&self, count: usize) -> Pairs {
        let newest = self.versions(0, count).into_iter();
        newest.filter_map(|(key, (_, value))| Some((key, value?))).collect()
    }

    fn entries(&self, from: usize, to: usize) -> Vec<Entry> {
        let entry = |(key, (sequence, value)): (Vec<u8>, (u64, Option<Vec<u8>>))| {
            let internal = internal_key(&key, sequence << 8 | u64::from(value.is_some()));
            (internal, value.unwrap_or_default())
        };
        self.versions(from, to).into_iter().map(entry).collect()
    }

    fn first_logged(&self) -> usize {
        (self.level_1 + self.level_0).min(self.writes.len())
    }

    fn log(&self) -> Vec<Vec<u8>> {
        let mut sequence = 1;
        let mut batches = Vec::new();
        for (i, write) in self.writes.iter().enumerate() {
            if i >= self.first_logged() {
                batches.push(batch(sequence, write));
            }
            sequence += write.len() as u64;
        }
        batches
    }

    fn files(&self) -> Files {
        let mut files = Files::new();
        let mut tables = Vec::new();
        let (below, above) = (self.level_1.min(self.writes.len()), self.first_logged());
        let bottom = self.entries(0, below);
        // Level 1 has two tables, which follow each other; level 0 two that overlap.
        let halves = [&bottom[..bottom.len() / 2], &bottom[bottom.len() / 2..]];
        let middle = below + (above - below) / 2;
        let tops = [self.entries(below, middle), self.entries(middle, above)];
        let levels =
            halves.into_iter().map(|half| (1, half)).chain(tops.iter().map(|t| (0, &t[..])));
        for (number, (level, entries)) in (10..).zip(levels) {
            if let (Some(first), Some(last)) = (entries.first(), entries.last()) {
                let bytes = table(entries, self.style);
                tables.push((level, number, bytes.len() as u64, first.clone(), last.clone()));
                files.insert(format!("{number:06}.ldb"), bytes);
            }
        }
        let named: Vec<_> = tables.iter().map(|(l, n, b, s, e)| (*l, *n, *b, s, e)).collect();
        let log = self.log();
        let half = log.len() / 2;
        files.insert("000020.log".into(), record_file(&log[..half]));
        files.insert("000021.log".into(), record_file(&log[half..]));
        // Replaced before, and still there.
        files.insert("000003.log".into(), record_file([&b"old".to_vec()]));
        files.insert("000004.ldb".into(), b"old".to_vec());
        let edit = edit("leveldb.BytewiseComparator", 20, &named);
        files.insert("MANIFEST-000005".into(), record_file([&edit]));
        files.insert("CURRENT".into(), b"MANIFEST-000005\n".to_vec());
        files
    }
}

fn written(writes: std::ops::Range<usize>) -> impl Strategy<Value = Written> {
    let key = vec(prop_oneof![Just(0u8), Just(b'a'), Just(0xff)], 0..4);
    let value = proptest::option::weighted(0.8, vec(any::<u8>(), 0..30));
    let write = btree_map(key, value, 1..6).prop_map(|entries| entries.into_iter().collect());
    let style = (20usize..200, any::<bool>(), prop_oneof![Just(0), Just(10)]);
    (vec(write, writes), 0usize..20, 0usize..20, style).prop_map(
        |(writes, level_1, level_0, style)| {
            let (block_bytes, snappy, bits_per_key) = style;
            Written {
                writes,
                level_1,
                level_0,
                style: TableStyle { block_bytes, snappy, bits_per_key },
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_live_entry_is_read_and_no_other(written in written(0..40)) {
        let (found, old) = read(&env_of(&written.files()), false).unwrap();
        prop_assert_eq!(found, written.live(usize::MAX));
        prop_assert_eq!(old.losses(), []);
    }
}

/// The files of a database, of which one bit is flipped at a time.
struct Flips<'a> {
    written: &'a Written,
    files: Files,
    whole: Pairs,
    /// All that was ever written.
    ever: BTreeSet<(Vec<u8>, Vec<u8>)>,
}

impl<'a> Flips<'a> {
    fn of(written: &'a Written) -> Self {
        let puts = written.writes.iter().flatten();
        let ever = puts.filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect();
        Flips { written, files: written.files(), whole: written.live(usize::MAX), ever }
    }

    fn check(&self, name: &str, at: usize, bit: u8) -> std::result::Result<(), TestCaseError> {
        let written = self.written;
        let mut files = self.files.clone();
        files.get_mut(name).unwrap()[at] ^= 1 << bit;
        let env = env_of(&files);
        let place = format!("bit {bit} of byte {at} of {name}");
        let is_told = |error: &Error| error.is_corruption() || matches!(error, Error::Io { .. });
        let found = match read(&env, false) {
            Ok((found, _)) if found == self.whole => None,
            Ok((found, old)) => {
                prop_assert!(name.ends_with(".log"), "{}", place);
                let mut counts = written.first_logged()..written.writes.len();
                let is_prefix = counts.any(|count| written.live(count) == found);
                prop_assert!(is_prefix, "{}", place);
                let losses = old.losses();
                prop_assert_eq!(losses.len(), 1, "{}", place);
                let loss = &losses[0];
                prop_assert!(loss.path.ends_with(name) && loss.offset <= at as u64, "{}", place);
                Some(found)
            }
            Err(error) => {
                prop_assert!(is_told(&error), "{}: {}", place, error);
                None
            }
        };
        // What is salvaged was written, and what could not be read is named.
        match read(&env, true) {
            Ok((salvaged, old)) => {
                let is_known = |pair: &(Vec<u8>, Vec<u8>)| self.ever.contains(pair);
                prop_assert!(salvaged.iter().all(is_known), "{}: never written", place);
                let is_whole = salvaged == self.whole || found == Some(salvaged);
                prop_assert!(is_whole || !old.losses().is_empty(), "{}: nothing is noted", place);
            }
            Err(error) => prop_assert!(is_told(&error), "{}: {}", place, error),
        }
        Ok(())
    }
}

/// Each bit of each file, where tables are raw and where they are compressed.
#[test]
fn every_flipped_bit_is_an_error_or_harmless() {
    for snappy in [false, true] {
        let style = TableStyle { snappy, ..sample().style };
        let written = Written { writes: sample().writes[..18].to_vec(), style, ..sample() };
        let written = Written { level_1: 6, level_0: 6, ..written };
        let flips = Flips::of(&written);
        for (name, bytes) in &flips.files {
            for place in 0..8 * bytes.len() {
                flips.check(name, place / 8, place as u8 % 8).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// A flipped bit is an error, or harmless; in a log it may cut the end, and that is noted.
    #[test]
    fn flipped_bits_never_show_other_data(written in written(4..16), bit in 0u8..8) {
        let flips = Flips::of(&written);
        for (name, bytes) in &flips.files {
            for at in 0..bytes.len() {
                flips.check(name, at, bit)?;
            }
        }
    }

    /// A log that a crash cut short holds the writes before that place.
    #[test]
    fn cut_logs_hold_a_prefix(written in written(4..30)) {
        let mut files = written.files();
        let log = files["000021.log"].clone();
        let batches = written.log();
        let first = written.first_logged() + batches.len() / 2;
        let mut ends = vec![0];
        for count in 1..=batches.len() - batches.len() / 2 {
            ends.push(record_file(&batches[batches.len() / 2..][..count]).len());
        }
        for cut in 0..=log.len() {
            files.insert("000021.log".into(), log[..cut].to_vec());
            let (found, old) = read(&env_of(&files), false).unwrap();
            let whole = ends.iter().rposition(|&end| end <= cut).unwrap();
            prop_assert_eq!(found, written.live(first + whole), "cut at {}", cut);
            let is_torn = !ends.contains(&cut);
            prop_assert_eq!(old.losses().len(), usize::from(is_torn), "cut at {}", cut);
            // The file system may show zeros where nothing was written.
            files.get_mut("000021.log").unwrap().resize(log.len() + 40_000, 0);
            if !is_torn {
                let (found, old) = read(&env_of(&files), false).unwrap();
                prop_assert_eq!(found, written.live(first + whole), "zeros from {}", cut);
                prop_assert_eq!(old.losses(), []);
            }
        }
    }

    /// To salvage a damaged block is to lose its entries, and to say so.
    #[test]
    fn salvage_reads_what_is_left(written in written(20..40), at in any::<prop::sample::Index>()) {
        let mut files = written.files();
        let tables: Vec<String> =
            files.keys().filter(|name| name.starts_with("00001")).cloned().collect();
        prop_assume!(!tables.is_empty());
        let name = at.get(&tables).clone();
        let bytes = files.get_mut(&name).unwrap();
        let place = at.index(bytes.len());
        bytes[place] ^= 0x55;
        let refused = read(&env_of(&files), false).is_err();
        let (found, old) = read(&env_of(&files), true).unwrap();
        let losses = old.losses();
        prop_assert_eq!(refused, !losses.is_empty(), "{:?}", losses);
        prop_assert!(losses.iter().all(|loss| loss.path.ends_with(&name)));
        let ever: Vec<_> = written.writes.iter().flatten().collect();
        for (key, value) in found {
            let was = |(k, v): &&Write| *k == key && v.as_ref() == Some(&value);
            prop_assert!(ever.iter().any(was), "never written");
        }
    }
}

fn sample() -> Written {
    let write = |i: u8| vec![(vec![b'k', i], Some(vec![i; 20]))];
    let style = TableStyle { block_bytes: 60, snappy: false, bits_per_key: 10 };
    Written { writes: (0..30).map(write).collect(), level_1: 10, level_0: 10, style }
}

#[test]
fn long_records_span_blocks() {
    let long = |i: u8| vec![(vec![i], Some(vec![i; 20_000]))];
    let written =
        Written { writes: (0..20).map(long).collect(), level_1: 0, level_0: 0, ..sample() };
    assert_eq!(read(&env_of(&written.files()), false).unwrap().0, written.live(usize::MAX));
}

#[test]
fn other_orders_and_rocksdb_are_refused_by_name() {
    let mut files = sample().files();
    let mut refusal = |edit: Vec<u8>| {
        files.insert("MANIFEST-000005".into(), record_file([&edit]));
        for salvage in [false, true] {
            let error = read(&env_of(&files), salvage).unwrap_err();
            assert!(matches!(error, Error::UnsupportedFormat { .. }), "{error}");
            if salvage {
                return error.to_string();
            }
        }
        unreachable!()
    };
    assert!(refusal(edit("reversed", 20, &[])).contains("\"reversed\""));
    let mut rocksdb = edit("leveldb.BytewiseComparator", 20, &[]);
    rocksdb.extend([100, 0, 0]);
    assert!(refusal(rocksdb).contains("RocksDB"));
}

#[test]
fn a_torn_manifest_is_an_error() {
    let files = sample().files();
    let manifest = &files["MANIFEST-000005"];
    for cut in 0..manifest.len() {
        let mut files = files.clone();
        files.insert("MANIFEST-000005".into(), manifest[..cut].to_vec());
        assert!(read(&env_of(&files), false).unwrap_err().is_corruption(), "cut at {cut}");
    }
}

#[test]
fn missing_files_are_named() {
    let files = sample().files();
    for name in ["000010.ldb", "000012.ldb", "000020.log", "MANIFEST-000005"] {
        let mut files = files.clone();
        files.remove(name).unwrap();
        let error = read(&env_of(&files), false).unwrap_err();
        let says = error.to_string();
        assert!(error.is_corruption() && says.contains(name), "{name}: {says}");
        assert!(!says.contains("siftdb repair"), "{says}");
        let (_, old) = read(&env_of(&files), true).unwrap();
        let is_named = |loss: &Loss| loss.path.ends_with(name) || loss.what.contains(name);
        assert!(old.losses().iter().any(is_named), "{name}");
    }
}

#[test]
fn without_a_manifest_every_file_is_salvaged() {
    let written = sample();
    let mut files = written.files();
    files.retain(|name, _| name != "000003.log" && name != "000004.ldb");
    files.get_mut("MANIFEST-000005").unwrap()[20] ^= 1;
    for lost in ["no file", "CURRENT"] {
        files.remove(lost);
        let (found, old) = read(&env_of(&files), true).unwrap();
        assert_eq!(found, written.live(usize::MAX));
        assert_eq!(old.losses().len(), 1);
        assert_eq!(old.tables(), 4);
    }
    assert!(!read(&env_of(&files), false).unwrap_err().is_corruption());
    assert!(read(&env_of(&Files::new()), true).is_err(), "an empty directory has no database");
}

/// Files that are sound by themselves and not what the manifest, or each other, say.
#[test]
fn sound_files_that_do_not_fit_are_refused() {
    let written = sample();
    let files = written.files();
    let refusal = |change: &dyn Fn(&mut Files)| {
        let mut files = files.clone();
        change(&mut files);
        read(&env_of(&files), false).unwrap_err().to_string()
    };
    let bottom = written.entries(0, 10);
    let one = |entries: &[Entry], largest: usize| -> Files {
        let bytes = table(entries, written.style);
        let named = (1, 10, bytes.len() as u64, &bottom[0], &bottom[largest]);
        let edit = edit("leveldb.BytewiseComparator", 20, &[named]);
        let manifest = record_file([&edit]);
        Files::from([("000010.ldb".into(), bytes), ("MANIFEST-000005".into(), manifest)])
    };
    let says = refusal(&|files| files.extend(one(&bottom[..9], 9)));
    assert!(says.contains("ends before the largest key"), "{says}");
    let says = refusal(&|files| files.extend(one(&bottom, 8)));
    assert!(says.contains("beyond what the manifest says"), "{says}");
    let mut mixed = bottom.clone();
    mixed.swap(3, 4);
    let says = refusal(&|files| files.extend(one(&mixed, 9)));
    assert!(says.contains("out of order"), "{says}");
    let other = table(&bottom[..4], written.style);
    let says = refusal(&|files| _ = files.insert("000010.ldb".into(), other.clone()));
    assert!(says.contains("bytes, the manifest says"), "{says}");
    // Of the same length.
    let says = refusal(&|files| {
        let other = files["000011.ldb"].clone();
        files.insert("000010.ldb".into(), other);
    });
    assert!(says.contains("beyond what the manifest says"), "{says}");
    let again = record_file(&[written.log(), written.log()].concat());
    let says = refusal(&|files| _ = files.insert("000021.log".into(), again.clone()));
    assert!(says.contains("sequence does not follow"), "{says}");
}

#[test]
fn zeros_before_a_record_are_damage() {
    let written = sample();
    let mut files = written.files();
    let batches = written.log();
    let mut log = record_file(&batches[..5]);
    log.resize(32 << 10, 0);
    log.extend(record_file(&batches[5..]));
    files.insert("000020.log".into(), log);
    files.insert("000021.log".into(), Vec::new());
    assert!(read(&env_of(&files), false).unwrap_err().is_corruption());
    let (found, old) = read(&env_of(&files), true).unwrap();
    assert_eq!((found, old.losses().len()), (written.live(usize::MAX), 1));
}

#[test]
fn records_cut_between_their_parts_are_noted() {
    let long = vec![(vec![9], Some(vec![1; 40_000]))];
    let written = Written { writes: vec![long], level_1: 0, level_0: 0, ..sample() };
    let mut files = written.files();
    files.get_mut("000021.log").unwrap().truncate(32 << 10);
    let (found, old) = read(&env_of(&files), false).unwrap();
    assert_eq!((found, old.losses().len()), (Vec::new(), 1));
}

#[test]
fn losses_of_hostile_logs_are_limited() {
    // Middle parts of no record, as many as a block has room for.
    let mut part = masked_crc32c(&[&[3]]).to_le_bytes().to_vec();
    part.extend([0, 0, 3]);
    let mut block = part.repeat((32 << 10) / part.len());
    block.resize(32 << 10, 0);
    let mut files = sample().files();
    files.insert("000022.log".into(), block.repeat(5));
    for salvage in [false, true] {
        let (_, old) = read(&env_of(&files), salvage).unwrap();
        let losses = old.losses();
        assert_eq!(losses.len(), LOSSES_MAX + 1, "salvage {salvage}");
        assert!(losses[LOSSES_MAX].what.contains("not listed"), "{}", losses[LOSSES_MAX]);
    }
}

/// All keys in tables, deleted ones included.
fn table_keys(env: &Arc<dyn Env>, old: &LevelDb) -> BTreeSet<Vec<u8>> {
    let mut keys = BTreeSet::new();
    for file in old.newest_first() {
        let mut run = TableRun::new(env, open_expected, vec![file.clone()], &Damage::new(false));
        while run.next().unwrap() {
            keys.insert(user_key(&run.key).to_vec());
        }
    }
    keys
}

/// The figures of all tables, the lookups of `keys`, and what these did in all tables.
fn asked(old: &LevelDb, keys: &[Vec<u8>]) -> (FilterFigures, LookupCounts, LookupTrace) {
    let mut figures = FilterFigures::default();
    let tables = old.filter_figures().unwrap();
    tables.iter().for_each(|table| figures.add(&table.filters));
    let newest_first = tables.iter().filter(|table| table.level == 0).map(|table| &table.path);
    assert!({ newest_first }.is_sorted_by(|a, b| a > b));
    let trace = old.trace_lookups(keys).unwrap();
    let mut counts = LookupCounts::default();
    trace.tables().iter().for_each(|table| counts.add(table));
    (figures, counts, trace)
}

/// A program of other hands counted these: it decodes the files by itself.
#[test]
fn filters_of_leveldb_are_counted_right() {
    let counted = [
        ("bpk4_block512", [218, 5548, 4000, 3362, 22376, 9065, 572, 935, 1507, 572]),
        ("nofilter_snappy", [42, 4158, 3000, 0, 0, 0, 0, 0, 10429, 429]),
        ("none_compacted", [87, 9358, 5268, 12716, 93856, 9992, 753, 8, 761, 753]),
        ("snappy_compacted", [87, 9358, 5268, 12456, 93856, 9992, 753, 8, 761, 753]),
    ];
    let env: Arc<dyn Env> = Arc::new(DiskEnv::new());
    for (path, _) in recorded().unwrap_or_default() {
        let is_this = |(name, _): &&(&str, _)| path.parent().is_some_and(|p| p.ends_with(name));
        let Some((name, expected)) = counted.iter().find(is_this) else { continue };
        let old = LevelDb::open(Arc::clone(&env), &path, false).unwrap();
        let absent = (0..10_000u64).map(|d| format!("user{:08}x", d * 9973 % 100_000_000));
        let mut probes: Vec<Vec<u8>> = absent.map(String::into_bytes).collect();
        probes.extend(table_keys(&env, &old).into_iter().step_by(7));
        let (figures, counts, trace) = asked(&old, &probes);
        let found = [
            figures.data_blocks,
            figures.entries,
            figures.keys,
            figures.filter_bytes,
            figures.filter_bits,
            counts.negatives,
            counts.true_positives,
            counts.false_positives,
            counts.blocks_read,
            trace.found(),
        ];
        assert_eq!(found, *expected, "{name}");
        assert_eq!(trace.lookups().len(), probes.len());
        assert_eq!(figures.tables_without_filter, u64::from(*name == "nofilter_snappy"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A filter never denies a key that is there, and lookups find what the model has.
    #[test]
    fn lookups_find_every_version(written in written(0..40)) {
        let env = env_of(&written.files());
        let old = LevelDb::open(env, directory(), false).unwrap();
        let keys: BTreeSet<Vec<u8>> =
            written.writes.iter().flatten().map(|(key, _)| key.clone()).collect();
        let absent = (0..50u8).map(|i| vec![b'a', i, 0, 0, 0]);
        let probes: Vec<Vec<u8>> = keys.iter().cloned().chain(absent).collect();
        let (figures, counts, trace) = asked(&old, &probes);
        let logged: BTreeSet<_> =
            written.writes[written.first_logged()..].iter().flatten().map(|(key, _)| key).collect();
        prop_assert_eq!(trace.found(), keys.len() as u64);
        prop_assert_eq!(trace.found_in_logs(), logged.len() as u64);
        if written.style.bits_per_key > 0 {
            prop_assert_eq!(counts.true_positives, keys.len() as u64 - logged.len() as u64);
            prop_assert_eq!(counts.blocks_read, counts.true_positives + counts.false_positives);
        } else {
            prop_assert_eq!(counts.negatives + figures.filter_bytes, 0);
        }
    }
}

#[test]
fn hostile_filter_blocks_are_refused() {
    let good = [&b"abc\x01d\x02"[..], &[0, 0, 0, 0, 4, 0, 0, 0, 6, 0, 0, 0, 11]].concat();
    assert!(BlockBasedFilter::new("other", good.clone()).is_ok());
    for at in 0..good.len() {
        for byte in 0..=255 {
            let mut bytes = good.clone();
            bytes[at] = byte;
            // Whatever is there is refused, or read without a panic.
            if let Ok(filter) = BlockBasedFilter::new("leveldb.BuiltinBloomFilter2", bytes) {
                for offset in [0, 2047, 2048, 4096, u64::MAX] {
                    filter.block_may_contain(offset, 7);
                }
            }
        }
        // A cut block is refused, or its last bytes name other filters, which a checksum tells.
        if BlockBasedFilter::new("", good[..at].to_vec()).is_ok() {
            assert!(at > 5, "cut at {at}");
        }
    }
}

/// A power cut may take any page of the last record, whose other parts are sound. LevelDB drops
/// the record, and no valid one follows.
#[test]
fn a_page_that_is_missing_in_the_last_record_is_noted() {
    let first = vec![(vec![8], Some(vec![1; 10]))];
    let long = vec![(vec![9], Some(vec![1; 150_000]))];
    let written = Written { writes: vec![first.clone(), long], level_1: 0, level_0: 0, ..sample() };
    for block in 0..5 {
        let mut files = written.files();
        let log = files.get_mut("000021.log").unwrap();
        let start = (block * (32 << 10) + 4096).min(log.len() - 100);
        let end = log.len().min(start + 4096);
        log[start..end].fill(0);
        let read = read(&env_of(&files), false);
        let (found, old) = read.unwrap_or_else(|error| panic!("block {block}: {error}"));
        assert!(found == written.live(1) && !old.losses().is_empty(), "block {block}");
    }
}

#[test]
fn sequences_beyond_64_bits_are_damage() {
    let writes = vec![vec![(vec![8], Some(vec![1; 10]))]];
    let written = Written { writes, level_1: 0, level_0: 0, ..sample() };
    let mut files = written.files();
    let batch = batch(u64::MAX, &[(vec![8], Some(vec![1]))]);
    files.insert("000020.log".into(), record_file([&batch]));
    files.insert("000021.log".into(), Vec::new());
    assert!(read(&env_of(&files), false).unwrap_err().is_corruption());
}
