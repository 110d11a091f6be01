//! Bad options and arguments: each one that has a limit, in one table for options and one for
//! arguments.
//!
//! An impossible option is refused with `InvalidOptions`, which names it, and nothing is created or
//! changed. A key, value or batch beyond its limit is `InvalidArgument` before anything is logged;
//! at the limit it works. Impossible ranges are empty. The command's arguments are tested here too.

use crate::support::filters::one_of_each_layout;
use crate::support::stores::{HOME, as_env, files, open, small_options};
use siftdb::env::MemEnv;
use siftdb::filter::{Encoding, FilterPolicy, PrefixExtractor};
use siftdb::{Db, Error, Filter, FilterLayout, FilterPinning, Options, Prefix, WriteBatch};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

const KEY_BYTES_MAX: usize = 65_535;
const VALUE_BYTES_MAX: usize = 1 << 30;

/// An option: its name, its smallest and largest value, and how to set it.
type Limited = (&'static str, u64, u64, fn(u64) -> Options);

fn limited_options() -> Vec<Limited> {
    vec![
        ("write_buffer_bytes", 64 << 10, 4 << 30, |n| {
            Options::new().write_buffer_bytes(n as usize)
        }),
        ("immutable_memtables_max", 1, 16, |n| Options::new().immutable_memtables_max(n as usize)),
        ("block_bytes", 64, 4 << 20, |n| Options::new().block_bytes(n as usize)),
        ("transaction_bytes_max", 1 << 10, 1 << 40, |n| {
            Options::new().transaction_bytes_max(n as usize)
        }),
        ("max_open_files", 1, 1 << 20, |n| Options::new().max_open_files(n as usize)),
        ("table_bytes", 16 << 10, 4 << 30, |n| {
            Options::new().table_bytes(n).level_base_bytes(1 << 50)
        }),
        ("level_base_bytes", 64 << 20, 1 << 50, |n| Options::new().level_base_bytes(n)),
        ("compaction_threads", 1, 64, |n| Options::new().compaction_threads(n as usize)),
        ("compaction_bytes_per_second", 1 << 20, 1 << 50, |n| {
            Options::new().compaction_bytes_per_second(n)
        }),
        ("level0_compaction_trigger", 1, 64, |n| {
            Options::new().level0_compaction_trigger(n as usize)
        }),
        ("block_cache_bytes", 0, 1 << 50, |n| Options::new().block_cache_bytes(n)),
        ("window_bytes", 256, 1 << 30, |n| {
            layout(FilterLayout::BlockBased { window_bytes: n as usize })
        }),
        ("block_bytes of partitioned", 1, 1 << 30, |n| {
            layout(FilterLayout::Partitioned { block_bytes: n as usize })
        }),
        ("FixedPrefix", 1, 65_535, |n| prefix(Prefix::fixed(n as usize))),
        ("CappedPrefix", 1, 65_535, |n| prefix(Prefix::capped(n as usize))),
        ("DelimitedPrefix", 1, 65_535, |n| prefix(Prefix::delimited(b'/', n as usize))),
        ("bloom_then_ribbon", 1, 6, |n| {
            Options::new().filter(Filter::bloom_then_ribbon(10.0, n as usize))
        }),
        ("filter_at_level", 0, 6, |n| Options::new().filter_at_level(n as usize, Filter::none())),
        ("whole bits", 1, 100, |n| Options::new().filter(Filter::leveldb_bloom(n as f64))),
        ("LevelDB Bloom", 1, 100, |n| {
            Options::new().filter(Encoding::LevelDbBloom { bits_per_key: n as u32 }.into())
        }),
        ("legacy Bloom", 1, 100, |n| {
            Options::new().filter(Encoding::LegacyBloom { bits_per_key: n as u32 }.into())
        }),
        ("FastLocalBloom", 1_000, 100_000, |n| {
            Options::new().filter(Encoding::FastLocalBloom { millibits: n as u32 }.into())
        }),
        ("Ribbon", 1_000, 100_000, |n| {
            Options::new().filter(Encoding::Ribbon { millibits: n as u32 }.into())
        }),
    ]
}

fn layout(layout: FilterLayout) -> Options {
    Options::new().filter(Filter::bloom(10.0).layout(layout))
}

fn prefix(prefix: Prefix) -> Options {
    Options::new().filter(Filter::bloom(10.0).prefix(prefix))
}

/// A filter policy and prefix extractor with this name.
#[derive(Debug)]
struct Called(String);

impl FilterPolicy for Called {
    fn name(&self) -> &str {
        &self.0
    }

    fn create_filter(&self, _: &[&[u8]], _: &mut Vec<u8>) {}

    fn key_may_match(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }
}

impl PrefixExtractor for Called {
    fn id(&self) -> &str {
        &self.0
    }

    fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        Some(key)
    }
}

/// Options that are refused, each with a word of the error message.
fn bad_options() -> Vec<(String, Options)> {
    let mut cases: Vec<(String, Options)> = Vec::new();
    for (name, least, most, with) in limited_options() {
        let below = least.checked_sub(1);
        cases.extend(below.map(|value| (name.to_string(), with(value))));
        cases.push((name.to_string(), with(most + 1)));
    }
    let mut add = |name: &str, options: Options| cases.push((name.into(), options));
    for bits in [0.0, 0.4, 100.5, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for filter in [Filter::bloom(bits), Filter::ribbon(bits), Filter::legacy_bloom(bits)] {
            add("bits per key", Options::new().filter(filter.clone()));
            add("bits per key", Options::new().filter_at_level(3, filter));
        }
        add("bits per key", Options::new().filter(Filter::bloom_then_ribbon(bits, 2)));
        add("whole bits", Options::new().filter(Filter::leveldb_bloom(bits)));
    }
    add("whole bits", Options::new().filter(Filter::leveldb_bloom(9.5)));
    for bits in [9.1234, 1.0001, 99.9999] {
        add("three decimals", Options::new().filter(Filter::ribbon(bits)));
        add("three decimals", Options::new().filter(Filter::bloom_then_ribbon(bits, 2)));
    }
    for share in [-0.1, 1.5, f64::NAN, f64::INFINITY] {
        add("filter_pinned_share", Options::new().filter_pinned_share(share));
    }
    for window_bytes in [257, 1000, usize::MAX] {
        add("window_bytes", layout(FilterLayout::BlockBased { window_bytes }));
    }
    add("filter_at_level", Options::new().filter_at_level(usize::MAX, Filter::none()));
    for name in ["", "rocksdb.Mine", "leveldb.Mine", "siftdb.Mine", "my policy", "tab\t", "ümlaut"]
    {
        let called = || Arc::new(Called(name.into()));
        add("filter policy's name", Options::new().filter(Filter::custom(called())));
        add("prefix extractor's id", prefix(Prefix::custom(called())));
    }
    let long = Arc::new(Called("n".repeat(256)));
    add("filter policy's name", Options::new().filter(Filter::custom(long.clone())));
    add("prefix extractor's id", prefix(Prefix::custom(long)));
    let pinned = || Filter::bloom(9.0).pinning(FilterPinning::All);
    add("FilterPinning::All", Options::new().filter(pinned()).filter_pinned_share(0.0));
    add("FilterPinning::All", Options::new().filter_at_level(2, pinned()).block_cache_bytes(0));
    let windows = FilterLayout::BlockBased { window_bytes: 2048 };
    add("monkey(0)", Options::new().filter(Filter::monkey(0)));
    add("with monkey(100)", Options::new().filter_at_level(1, Filter::monkey(100)));
    add("monkey in the block", Options::new().filter(Filter::monkey(100).layout(windows)));
    add("whole_key(false)", Options::new().filter(Filter::bloom(10.0).whole_key(false)));
    add("no filter", Options::new().filter(Filter::none().prefix(Prefix::fixed(3))));
    add("no filter", Options::new().filter(Filter::none().whole_key(false)));
    let windowed = Filter::leveldb_bloom(10.0).prefix(Prefix::capped(3)).layout(windows);
    add("block-based", Options::new().filter_at_level(3, windowed));
    add("error_if_exists", Options::new().error_if_exists(true).create_if_missing(false));
    cases
}

#[test]
fn impossible_options_are_refused_before_creation() {
    let existing = MemEnv::with_log();
    let db = open(&existing, &small_options()).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    drop(db);
    let before = files(&existing);
    let directory = tempfile::tempdir().unwrap();
    for (name, options) in bad_options() {
        let empty = MemEnv::with_log();
        let on_disk = options.clone().open(directory.path().join("a/b"));
        for refused in [open(&empty, &options), open(&existing, &options), on_disk] {
            match refused.map(drop) {
                Err(Error::InvalidOptions { what }) => {
                    assert!(what.contains(&name), "{name}: {what}");
                }
                other => panic!("{name}: {other:?} with {options:?}"),
            }
        }
        assert_eq!(empty.log_len(), 0, "{name}: {:?}", empty.log_text());
        assert!(files(&existing) == before, "{name}: something was changed");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{name}");
    }
}

#[test]
fn options_at_their_limits_work() {
    for (name, least, most, with) in limited_options() {
        for value in [least, most] {
            with(value).validate().unwrap_or_else(|error| panic!("{name} {value}: {error}"));
        }
        // Only the smallest value is used: the largest may take as much memory as it says.
        let db = with(least).env(as_env(&MemEnv::with_log())).open(HOME).unwrap();
        (0..50).for_each(|n| db.put(format!("key{n}"), "value").unwrap());
        db.flush().unwrap();
        assert_eq!(db.iter().count(), 50, "{name}");
    }
    for budget in [1, u64::MAX] {
        let db =
            open(&MemEnv::with_log(), &small_options().filter(Filter::monkey(budget))).unwrap();
        (0..50).for_each(|n| db.put(format!("key{n}"), "value").unwrap());
        db.compact_range(..).unwrap();
        assert!(db.get("key7").unwrap().is_some(), "monkey({budget})");
    }
}

#[test]
fn refused_openings_change_nothing() {
    let env = MemEnv::with_log();
    let error = open(&env, &small_options().create_if_missing(false)).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert_eq!(env.log_len(), 0, "{:?}", env.log_text());
    open(&env, &small_options()).unwrap().close().unwrap();
    let before = files(&env);
    let error = open(&env, &small_options().error_if_exists(true)).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    assert!(files(&env) == before);
}

/// A write that must be refused.
type Write = fn(&Db) -> siftdb::Result<()>;

#[test]
fn oversized_writes_are_refused_before_logging() {
    let cases: [(&str, Write); 6] = [
        ("a key", |db| db.put(vec![b'k'; KEY_BYTES_MAX + 1], "value")),
        ("a key", |db| db.delete(vec![b'k'; KEY_BYTES_MAX + 1])),
        // Untouched zeros take no memory.
        ("a value", |db| db.put("key", vec![0; VALUE_BYTES_MAX + 1])),
        ("a key", |db| {
            let mut batch = WriteBatch::new();
            batch.put("good", "1").put(vec![0; KEY_BYTES_MAX + 1], "").put("also good", "2");
            db.write(batch)
        }),
        ("a key", |db| {
            let mut batch = WriteBatch::new();
            batch.delete(vec![0; KEY_BYTES_MAX + 1]).delete("old");
            db.write(batch)
        }),
        ("a value", |db| {
            let mut batch = WriteBatch::new();
            batch.delete("old").put("key", vec![0; VALUE_BYTES_MAX + 1]);
            db.write(batch)
        }),
    ];
    let env = MemEnv::with_log();
    let db = open(&env, &small_options()).unwrap();
    db.put("old", "there").unwrap();
    let calls = env.log_len();
    for (what, write) in cases {
        match write(&db) {
            Err(Error::InvalidArgument { what: message }) => {
                assert!(message.contains(what) && message.contains("at most"), "{message}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    db.write(WriteBatch::new()).unwrap();
    assert_eq!(env.log_len(), calls, "something was logged");
    let entries: Vec<_> = db.iter().map(|entry| entry.unwrap().0.into_vec()).collect();
    assert_eq!(entries, [b"old"]);
    db.put("later", "goes on").unwrap();
}

#[test]
fn oversized_keys_are_never_found() {
    let db = open(&MemEnv::with_log(), &small_options()).unwrap();
    for n in 0..300 {
        db.put(format!("key{n}"), "value").unwrap();
    }
    for flushed in [false, true] {
        for key in [vec![b'k'; KEY_BYTES_MAX + 1], vec![0xff; 1 << 20], vec![0; 70_000]] {
            assert_eq!(db.get(&key).unwrap(), None);
            assert_eq!(db.multi_get([&key[..], b"key7"]).unwrap()[0], None);
            assert!(!db.contains_key(&key).unwrap());
            db.may_contain(&key).unwrap();
            db.explain(&key).unwrap();
            assert_eq!(db.prefix(&key).count(), 0);
            assert_eq!(db.range(..=&key[..]).rev().count(), db.range(..&key[..]).count());
        }
        if !flushed {
            db.flush().unwrap();
        }
    }
}

#[test]
fn unusual_ranges_agree_with_the_model() {
    let keys: [&[u8]; 9] =
        [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\xff", b"b", b"\xff", b"\xff\xff"];
    let mut bounds = vec![Unbounded];
    for key in keys.iter().chain([&&b"\xff\xff\xff"[..], &&b"aa"[..]]) {
        bounds.extend([Included(*key), Excluded(*key)]);
    }
    for filter in one_of_each_layout() {
        let env = MemEnv::with_log();
        let db = open(&env, &small_options().filter(filter.filter)).unwrap();
        keys.iter().for_each(|key| db.put(key, key).unwrap());
        for flushed in [false, true] {
            for &low in &bounds {
                for &high in &bounds {
                    let inside = |key: &&&[u8]| {
                        let above = match low {
                            Included(low) => **key >= low,
                            Excluded(low) => **key > low,
                            Unbounded => true,
                        };
                        let below = match high {
                            Included(high) => **key <= high,
                            Excluded(high) => **key < high,
                            Unbounded => true,
                        };
                        above && below
                    };
                    let expected: Vec<&[u8]> = keys.iter().filter(inside).copied().collect();
                    let range = || db.range((low, high)).map(|entry| entry.unwrap().0.into_vec());
                    assert_eq!(range().collect::<Vec<_>>(), expected, "{low:?} to {high:?}");
                    let back = range().rev().collect::<Vec<_>>();
                    assert!(back.iter().rev().eq(expected.iter()), "{low:?} to {high:?}: {back:?}");
                }
            }
            for prefix in keys {
                let found: Vec<_> = db.prefix(prefix).map(|e| e.unwrap().0.into_vec()).collect();
                let expected = keys.iter().filter(|key| key.starts_with(prefix));
                assert!(found.iter().eq(expected), "{}", prefix.escape_ascii());
            }
            if !flushed {
                db.compact_range(..).unwrap();
            }
        }
    }
}

/// Keys of the greatest length, across pages of the log and with blocks of their own.
#[test]
fn the_largest_keys_and_values_work() {
    let keys = [
        vec![0; KEY_BYTES_MAX],
        vec![0xff; KEY_BYTES_MAX],
        [&vec![0xff; KEY_BYTES_MAX - 1][..], &[0xfe]].concat(),
        vec![b'k'; KEY_BYTES_MAX],
        vec![b'k'; KEY_BYTES_MAX - 1],
    ];
    let value = |n: usize| vec![n as u8 + 1; [0, 1, 300, 40_000, 700_000][n]];
    for filter in one_of_each_layout() {
        let env = MemEnv::with_log();
        let options = small_options().filter(filter.filter);
        let check = |db: &Db, what: &str| {
            for (n, key) in keys.iter().enumerate() {
                let found = db.get(key).unwrap();
                assert!(found.as_deref() == Some(&value(n)[..]), "{}: {n} {what}", filter.name);
            }
            assert_eq!(db.iter().count(), keys.len(), "{}: {what}", filter.name);
            assert_eq!(db.iter().rev().count(), keys.len(), "{}: {what}", filter.name);
            assert_eq!(db.prefix(vec![0xff; KEY_BYTES_MAX - 1]).count(), 2);
            assert_eq!(db.range(&keys[1][..]..).count(), 1);
        };
        let db = open(&env, &options).unwrap();
        keys.iter().enumerate().for_each(|(n, key)| db.put(key, value(n)).unwrap());
        check(&db, "written");
        drop(db);
        let db = open(&env, &options).unwrap();
        check(&db, "recovered");
        db.compact_range(..).unwrap();
        check(&db, "compacted");
        db.close().unwrap();
        drop(db);
        check(&open(&env, &options).unwrap(), "opened again");
    }
}
