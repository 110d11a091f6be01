//! Prefixes in filters change which tables a scan or lookup reads, and never the answer. The
//! counters say which.

use crate::support::data::bytes;
use crate::support::filters::{Marks, UpToDash, prefix_rules};
use crate::support::rng::Rng;
use crate::support::stores::{as_env, open, small_options};
use siftdb::env::CountingEnv;
use siftdb::env::MemEnv;
use siftdb::filter::PrefixExtractor;
use siftdb::{
    Db, Error, Filter, FilterLayout, Iter, Options, Prefix, ReadOptions, Snapshot, Stats,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

const WITHOUT_FILTERS: ReadOptions = ReadOptions::new().use_filters(false);

fn layouts() -> [FilterLayout; 3] {
    [
        FilterLayout::Full,
        FilterLayout::Partitioned { block_bytes: 1 },
        FilterLayout::Partitioned { block_bytes: 256 },
    ]
}

fn encodings() -> [Filter; 5] {
    [
        Filter::bloom(10.0),
        Filter::leveldb_bloom(4.0),
        Filter::legacy_bloom(10.0),
        Filter::ribbon(8.0),
        Filter::custom(Arc::new(Marks)),
    ]
}

/// A random key of few letters, so that keys share prefixes, and some are prefixes of others.
fn random_key(rng: &mut Rng) -> Vec<u8> {
    let letters = *rng.pick(&[&b"ab-"[..], b"a-\xff", b"abcdef-"]);
    (0..rng.below(7)).map(|_| *rng.pick(letters)).collect()
}

fn successor(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(byte) = end.pop() {
        if byte < 0xff {
            end.push(byte + 1);
            return Bound::Excluded(end);
        }
    }
    Bound::Unbounded
}

/// The bounds of a prefix, of a prefix with one end moved inwards, or any two keys.
fn random_bounds(rng: &mut Rng) -> Bounds {
    let prefix = random_key(rng);
    let inside = [&prefix[..], &random_key(rng)].concat();
    match rng.below(6) {
        0 | 1 => (Bound::Included(prefix.clone()), successor(&prefix)),
        2 => (Bound::Included(inside), successor(&prefix)),
        3 => (Bound::Excluded(inside), successor(&prefix)),
        4 => (Bound::Included(prefix), Bound::Included(inside)),
        _ => (Bound::Excluded(prefix), Bound::Excluded(random_key(rng))),
    }
}

fn within(map: &Map, bounds: &Bounds) -> Vec<(Vec<u8>, Vec<u8>)> {
    use std::ops::RangeBounds;
    let entries = map.iter().filter(|(key, _)| bounds.contains(*key));
    entries.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn entries(iter: impl Iterator<Item = <Iter as Iterator>::Item>) -> Vec<(Vec<u8>, Vec<u8>)> {
    iter.map(|entry| entry.map(|(key, value)| (key.into_vec(), value.into_vec())).unwrap())
        .collect()
}

/// A database that was filled step by step, and a snapshot of it half way.
struct World {
    env: MemEnv,
    db: Db,
    map: Map,
    held: Option<(Snapshot, Map)>,
    rng: Rng,
    place: String,
}

impl World {
    fn new(options: &Options, seed: u64, place: String) -> Self {
        let env = MemEnv::new();
        let db = open(&env, options).unwrap();
        World { env, db, map: Map::new(), held: None, rng: Rng::new(seed), place }
    }

    /// Writes, overwrites and deletes, in tables of their own and one memtable.
    fn fill(&mut self) {
        for round in 0..4 {
            for _ in 0..60 {
                let key = random_key(&mut self.rng);
                if self.rng.chance(20) {
                    self.db.delete(&key).unwrap();
                    self.map.remove(&key);
                } else {
                    let value = bytes(self.rng.next(), 20);
                    self.db.put(&key, &value).unwrap();
                    self.map.insert(key, value);
                }
            }
            if round == 1 {
                self.held = Some((self.db.snapshot(), self.map.clone()));
            }
            if round < 3 {
                self.db.flush().unwrap();
            }
        }
    }

    fn check(&mut self) {
        let keys: Vec<_> = (0..40).map(|_| random_key(&mut self.rng)).collect();
        let found = self.db.multi_get(&keys).unwrap();
        for (key, found) in keys.iter().zip(found) {
            assert_eq!(found.as_deref(), self.map.get(key).map(Vec::as_slice), "{self:?} {key:?}");
        }
        for _ in 0..30 {
            let (key, bounds) = (random_key(&mut self.rng), random_bounds(&mut self.rng));
            for options in [ReadOptions::new(), WITHOUT_FILTERS] {
                let found = self.db.get_with(&key, &options).unwrap();
                assert_eq!(found.as_deref(), self.map.get(&key).map(Vec::as_slice), "{self:?}");
                let expected = within(&self.map, &bounds);
                self.check_walks(|| self.db.range_with(bounds.clone(), &options), &expected);
                if let Some((snapshot, map)) = &self.held {
                    let found = snapshot.get_with(&key, &options).unwrap();
                    assert_eq!(found.as_deref(), map.get(&key).map(Vec::as_slice), "{self:?}");
                    let expected = within(map, &bounds);
                    self.check_walks(|| snapshot.range_with(bounds.clone(), &options), &expected);
                }
            }
            let prefixed = (Bound::Included(key.clone()), successor(&key));
            self.check_walks(|| self.db.prefix(&key), &within(&self.map, &prefixed));
        }
        assert!(self.map.keys().all(|key| self.db.may_contain(key).unwrap()), "{self:?}");
        assert_eq!(self.db.stats().filter_errors, 0, "{self:?}");
    }

    /// Forwards, backwards, and from both ends at once.
    fn check_walks(&self, walk: impl Fn() -> Iter, expected: &[(Vec<u8>, Vec<u8>)]) {
        assert_eq!(entries(walk()), expected, "{self:?}");
        let mut backward = entries(walk().rev());
        backward.reverse();
        assert_eq!(backward, expected, "{self:?}");
        let mut both = walk();
        let mut halves = (Vec::new(), Vec::new());
        while let Some(entry) = both.next() {
            halves.0.push(entry);
            halves.1.extend(both.next_back());
        }
        let halves = halves.0.into_iter().chain(halves.1.into_iter().rev());
        assert_eq!(entries(halves), expected, "{self:?}");
    }

    fn reopen(&mut self, options: &Options) {
        self.held = None;
        self.db.close().unwrap();
        let elsewhere = MemEnv::new();
        self.db = open(&elsewhere, &small_options()).unwrap();
        self.db = open(&self.env, options).unwrap();
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.place)
    }
}

#[test]
fn prefix_filters_never_change_answers() {
    let (rules, layouts) = (prefix_rules(), layouts());
    let mut seed = 0;
    for (number, rule) in rules.iter().enumerate() {
        for layout in layouts {
            for whole_key in [true, false] {
                seed += 1;
                let filter = encodings()[seed as usize % 5]
                    .clone()
                    .layout(layout)
                    .prefix(rule.clone())
                    .whole_key(whole_key);
                let share = [0.0, 0.5][seed as usize % 2];
                let options = |filter: Filter| {
                    let options = small_options().filter(filter).block_bytes(64);
                    let options = options.auto_compaction(false).filter_pinned_share(share);
                    options
                        .register_filter_policy(Arc::new(Marks))
                        .register_prefix(Arc::new(UpToDash))
                };
                let place = format!("{filter:?}, seed {seed}");
                let mut world = World::new(&options(filter), seed, place);
                world.fill();
                world.check();
                // Other rules from here on: tables of both kinds.
                let other = rules[(number + 1 + seed as usize % 3) % rules.len()].clone();
                let other = Filter::bloom(10.0).layout(layout).prefix(other).whole_key(!whole_key);
                world.reopen(&options(other));
                world.check();
                world.fill();
                world.check();
                world.db.compact_range(..).unwrap();
                world.check();
                world.reopen(&options(Filter::none()));
                world.check();
            }
        }
    }
}

/// What the counters gained while `look` ran.
fn counted(db: &Db, look: impl FnOnce()) -> Stats {
    let before = db.stats();
    look();
    db.stats().since(&before)
}

/// Eleven tables at level 0 over the same range of keys; two of them have keys with `wanted/`.
fn eleven_tables(options: &Options) -> Db {
    let db = options.clone().auto_compaction(false).open("/db").unwrap();
    for table in 0..11 {
        for number in 0..200 {
            db.put(format!("from-table-{table:02}/{number:03}"), bytes(number, 40)).unwrap();
        }
        if table % 7 == 3 {
            for number in table..table + 5 {
                db.put(format!("wanted/{number:03}"), bytes(number, 40)).unwrap();
            }
        }
        db.put("a/first", "key").unwrap();
        db.put("z/last", "key").unwrap();
        db.flush().unwrap();
    }
    db
}

#[test]
fn prefix_scans_skip_tables_without_the_prefix() {
    for layout in layouts() {
        for whole_key in [true, false] {
            let counting = CountingEnv::new(as_env(&MemEnv::new()));
            let filter = Filter::bloom(20.0).layout(layout).whole_key(whole_key);
            let options = Options::new()
                .filter(filter.prefix(Prefix::delimited(b'/', 1)))
                .env(Arc::new(counting.clone()));
            let db = eleven_tables(&options);
            for backward in [false, true] {
                let before = counting.counts().read_calls;
                let stats = counted(&db, || {
                    let walk = db.prefix("wanted/");
                    let found = if backward { walk.rev().count() } else { walk.count() };
                    assert_eq!(found, 10);
                });
                let level = &stats.levels[0];
                assert_eq!((level.scan_negatives, level.scan_positives), (9, 2), "{layout}");
                assert_eq!((level.scan_checks(), level.prefix_checks()), (11, 0));
                assert_eq!((level.scan_true_positives, level.scan_false_positives), (2, 0));
                let reads = counting.counts().read_calls - before;
                // One data block of each of the two tables, once; and partitions, if any.
                let data_blocks = if backward { 0 } else { 2 };
                assert_eq!(level.scan_data_blocks_read, data_blocks, "{layout}");
                assert_eq!(reads, data_blocks + level.scan_filter_blocks_read, "{layout}");
            }
            let stats = counted(&db, || assert_eq!(db.prefix("missing/").count(), 0));
            assert_eq!(stats.total().scan_negatives, 11, "{layout}");
            // A range whose keys share no prefix, and a scan without filters, ask no filter.
            let bounds = (Bound::Included("wanted/"), Bound::Excluded("wanted0"));
            let stats = counted(&db, || {
                assert_eq!(db.prefix("wanted").count(), 10);
                assert_eq!(db.range("w".."x").count(), 10);
                assert_eq!(db.iter().count(), 11 * 200 + 10 + 2);
                assert_eq!(db.range_with(bounds, &WITHOUT_FILTERS).count(), 10);
            });
            assert_eq!(stats.total().scan_checks(), 0, "{layout}");
            // The filter has the prefix of these ranges, and the tables have no key of them.
            let ranges = [
                ("wanted/", "wanted/000"),
                ("wanted/0000", "wanted/001"),
                ("wanted/0050", "wanted/006"),
                ("wanted/1", "wanted/9"),
            ];
            for (start, end) in ranges {
                let empty = counted(&db, || {
                    assert_eq!(db.range(start..end).count(), 0);
                    assert_eq!(db.range(start..end).rev().count(), 0);
                });
                let level = &empty.levels[0];
                let positives = (level.scan_true_positives, level.scan_false_positives);
                assert_eq!(positives, (0, 4), "{layout} {start}");
                assert_eq!(level.scan_positives, 4);
                assert_eq!(level.observed_scan_fpr(), Some(4.0 / 22.0));
            }
            // A cursor in the middle of its range does not know what is on the other side.
            let sought = counted(&db, || {
                let mut cursor = db.prefix("wanted/").cursor();
                cursor.seek("wanted/9").unwrap();
            });
            let level = &sought.levels[0];
            assert_eq!((level.scan_true_positives, level.scan_false_positives), (0, 0));
            // A range is as good as a prefix where it shares one.
            let stats = counted(&db, || assert_eq!(db.range("wanted/003".."wanted/9").count(), 10));
            assert_eq!(stats.total().scan_negatives, 9, "{layout}");
        }
    }
}

/// By level: tables that a scan skipped, asked in vain, and read.
fn scan_counters(stats: &Stats) -> Vec<[u64; 3]> {
    let levels = stats.levels.iter();
    levels.map(|of| [of.scan_negatives, of.scan_positives, of.scan_tables]).collect()
}

/// A cursor asks the filters that an iterator over the same range asks, and enters its tables.
#[test]
fn cursors_ask_filters_at_each_range_as_scans_do() {
    for (layout, use_filters) in
        layouts().into_iter().flat_map(|layout| [(layout, true), (layout, false)])
    {
        let filter = Filter::bloom(20.0).layout(layout).prefix(Prefix::fixed(4));
        let options = small_options().filter(filter).auto_compaction(false);
        let db = open(&MemEnv::new(), &options).unwrap();
        for part in 0..6 {
            // Odd prefixes are empty, and each table of level 0 has a third of the others.
            for number in (0..600).filter(|number| part < 2 || number / 2 % 3 == part as usize % 3)
            {
                let key = format!("{:04}-{part}", number * 2);
                db.put(key, bytes(number as u64, 60)).unwrap();
            }
            db.flush().unwrap();
            if part == 1 {
                db.compact_range(..).unwrap();
            }
        }
        let read = ReadOptions::new().use_filters(use_filters);
        let mut cursor = db.range_with(.., &read).cursor();
        cursor.seek("0601").unwrap();
        let mut skipped = 0;
        for number in (0..1200).rev().chain(0..1200) {
            let prefix = format!("{number:04}");
            let bounds = (Bound::Included(prefix.clone()), Bound::Excluded(format!("{prefix}.")));
            let mut expected = 0;
            let scan = counted(&db, || expected = db.range_with(bounds.clone(), &read).count());
            let seek = counted(&db, || {
                let mut found = cursor.seek_range(bounds.clone()).unwrap();
                for _ in 0..expected {
                    assert!(found && cursor.key().unwrap().starts_with(prefix.as_bytes()));
                    found = cursor.next().unwrap();
                }
                assert!(!found);
            });
            assert_eq!(expected == 0, number % 2 == 1);
            for counts in [&seek, &scan] {
                assert_eq!((counts.scans, counts.scans_empty), (1, number % 2), "{prefix}");
            }
            if use_filters {
                assert_eq!(scan_counters(&seek), scan_counters(&scan), "{layout:?}, {prefix}");
            }
            skipped += seek.total().scan_negatives;
        }
        // Those bounds were for one range only.
        cursor.seek_range(..).unwrap();
        let all = counted(&db, || while cursor.next().unwrap() {});
        assert_eq!(all.total().scan_checks(), 0);
        assert_eq!(skipped > 2400, use_filters, "{layout:?}: {skipped}");
    }
}

#[test]
fn long_levels_are_filtered_table_by_table() {
    let filter = Filter::bloom(20.0).prefix(Prefix::fixed(2));
    // Nothing moves while the test looks.
    let options = small_options().filter(filter).auto_compaction(false);
    let db = open(&MemEnv::new(), &options).unwrap();
    for number in 0..4000 {
        db.put(format!("aa{number:06}"), bytes(number, 60)).unwrap();
        db.put(format!("cc{number:06}"), bytes(number, 60)).unwrap();
    }
    db.compact_range(..).unwrap();
    let levels = db.stats().levels.iter().filter(|level| level.tables > 0).count() as u64;
    let tables = db.stats().total().tables;
    assert!(tables > 10 * levels, "{tables}");
    let mut walk = db.prefix("aa");
    let first = counted(&db, || assert!(walk.next().unwrap().is_ok()));
    let first = first.total().scan_checks();
    assert!((1..=levels).contains(&first), "{first} tables before the first entry");
    let rest = counted(&db, || assert_eq!(walk.count(), 3999));
    let asked = first + rest.total().scan_checks();
    assert!(asked.abs_diff(tables / 2) <= 2 * levels, "{asked} of {tables}");
    // The key is between two runs of keys: one table covers it, and no table has it.
    let none = counted(&db, || assert_eq!(db.prefix("bb").count(), 0)).total();
    assert!(none.scan_negatives <= levels && none.scan_positives == 0);
}

#[test]
fn prefix_only_filters_are_asked_by_prefix() {
    for layout in layouts() {
        let filter = Filter::bloom(20.0).layout(layout).prefix(Prefix::fixed(4)).whole_key(false);
        let db = open(&MemEnv::new(), &Options::new().filter(filter)).unwrap();
        for number in 0..500 {
            db.put(format!("{:04}-{number}", number % 50 * 2), bytes(number, 10)).unwrap();
        }
        db.put("abc", "no prefix").unwrap();
        db.flush().unwrap();
        let total = counted(&db, || {
            for number in 0..50 {
                // First the prefix is there and the key is not; then neither is there.
                assert_eq!(db.get(format!("{:04}-absent", number * 2)).unwrap(), None);
                assert_eq!(db.get(format!("{:04}-absent", number * 2 + 1)).unwrap(), None);
            }
        })
        .total();
        assert_eq!((total.prefix_positives, total.not_consulted), (50, 0), "{layout}");
        assert_eq!((total.prefix_negatives, total.data_blocks_avoided()), (50, 50), "{layout}");
        assert_eq!((total.negatives, total.false_positives), (0, 0), "{layout}");
        assert_eq!(total.observed_fpr(), None, "{layout}: nothing was said of a key");
        let total = counted(&db, || {
            assert_eq!(db.get("abc").unwrap().as_deref(), Some(&b"no prefix"[..]));
            assert_eq!(db.get("abb").unwrap(), None);
        })
        .total();
        assert_eq!((total.not_consulted, total.prefix_checks()), (2, 0), "{layout}");
        assert!(db.may_contain("abc").unwrap());
    }
}

#[test]
fn tables_are_asked_by_their_own_rule() {
    let custom = || Prefix::custom(Arc::new(UpToDash));
    let none: Vec<Arc<dyn PrefixExtractor>> = Vec::new();
    let given: Vec<Arc<dyn PrefixExtractor>> = vec![Arc::new(UpToDash)];
    let cases = [
        (Prefix::fixed(5), &none, true),
        (Prefix::capped(5), &none, true),
        (Prefix::delimited(b'-', 1), &none, true),
        (custom(), &none, false),
        (custom(), &given, true),
    ];
    for (rule, extractors, asked) in cases {
        let env = MemEnv::new();
        let place = format!("{rule:?} with {extractors:?}");
        let db = open(&env, &Options::new().filter(Filter::bloom(16.0).prefix(rule))).unwrap();
        (0..100).for_each(|number| db.put(format!("{number:04}-key"), "value").unwrap());
        db.flush().unwrap();
        drop(db);
        // The options have another rule now; the table keeps its own.
        let mut options = Options::new().filter(Filter::bloom(16.0).prefix(Prefix::fixed(1)));
        for extractor in extractors {
            options = options.register_prefix(Arc::clone(extractor));
        }
        let db = open(&env, &options).unwrap();
        let total = counted(&db, || {
            assert_eq!(db.prefix("0042-").count(), 1);
            assert_eq!(db.prefix("0042x").count(), 0);
            assert_eq!(db.prefix("0").count(), 100);
        })
        .total();
        assert_eq!(total.scan_checks() > 0, asked, "{place}");
        // One byte is a prefix by the new rule, and not by the table's.
        assert!(total.scan_checks() <= 2, "{place}");
    }
}

/// Works until it is told to panic, and then panics at every question.
#[derive(Debug, Default)]
struct Moody(std::sync::atomic::AtomicBool);

impl PrefixExtractor for Moody {
    fn id(&self) -> &str {
        "test.moody"
    }

    fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        assert!(!self.0.load(std::sync::atomic::Ordering::Relaxed), "no prefix today");
        key.get(..2)
    }

    fn prefix_of_all<'k>(&self, common: &'k [u8]) -> Option<&'k [u8]> {
        self.prefix(common)
    }
}

#[test]
fn a_panicking_rule_fails_the_flush() {
    let env = MemEnv::new();
    let moody = Arc::new(Moody::default());
    let panics = |yes| moody.0.store(yes, std::sync::atomic::Ordering::Relaxed);
    let filter = Filter::bloom(10.0).prefix(Prefix::custom(moody.clone())).whole_key(false);
    let db = open(&env, &Options::new().filter(filter)).unwrap();
    db.put("ab1", "1").unwrap();
    db.flush().unwrap();
    let asked = counted(&db, || assert_eq!(db.prefix("ab").count(), 1)).total();
    assert_eq!(asked.scan_positives, 1);
    panics(true);
    let asked = counted(&db, || {
        assert_eq!(db.prefix("ab").count(), 1);
        assert_eq!(db.get("ab1").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(db.prefix("xy").count(), 0);
    })
    .total();
    assert_eq!((asked.scan_checks() + asked.prefix_checks(), asked.not_consulted), (0, 1));
    db.put("ab2", "2").unwrap();
    let refused = db.flush().unwrap_err().to_string();
    assert!(refused.contains("no prefix today"), "{refused}");
    assert!(matches!(db.put("ab3", "3"), Err(Error::ReadOnly { .. })));
    drop(db);
    let db = open(&env, &Options::new().allow_unregistered_filters(true)).unwrap();
    assert_eq!(db.prefix("ab").count(), 2);
    db.flush().unwrap();
    assert_eq!(db.prefix("ab").count(), 2);
}

/// Scans have counters of their own. They equal what the file system saw, with any number of
/// threads, and are kept from one opening to the next.
#[test]
fn scans_are_counted_apart_from_lookups() {
    let counting = CountingEnv::new(as_env(&MemEnv::new()));
    let filter = Filter::bloom(20.0).layout(FilterLayout::Partitioned { block_bytes: 256 });
    let filter = filter.prefix(Prefix::delimited(b'/', 1));
    let options = Options::new().filter(filter).env(Arc::new(counting.clone()));
    let db = eleven_tables(&options);
    let (calls, bytes) = (counting.counts().read_calls, counting.counts().read_bytes);
    let unkept = ReadOptions::new().fill_cache(false);
    let one = counted(&db, || {
        assert_eq!(db.range_with("wanted/".."wanted0", &unkept).count(), 10);
        assert_eq!(db.range_with(.., &unkept).rev().count(), 11 * 200 + 10 + 2);
    });
    let total = one.total();
    assert_eq!((one.scans, total.scan_tables, total.scan_negatives), (2, 2 + 11, 9));
    let blocks = total.scan_data_blocks_read + total.scan_filter_blocks_read;
    assert_eq!(blocks + total.scan_index_blocks_read, counting.counts().read_calls - calls);
    let read = total.scan_data_bytes_read + total.scan_filter_bytes_read;
    assert_eq!(read + total.scan_index_bytes_read, counting.counts().read_bytes - bytes);
    assert!(total.scan_data_blocks_read > 20, "{total:?}");
    let lookups = [total.data_blocks(), total.filter_blocks_read, total.index_blocks_read];
    assert_eq!((lookups, total.bytes_avoided), ([0; 3], 0), "no lookup was made");

    let many = counted(&db, || {
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        assert_eq!(db.range_with("wanted/".."wanted0", &unkept).count(), 10);
                        assert_eq!(db.range_with(.., &unkept).rev().count(), 11 * 200 + 10 + 2);
                    }
                });
            }
        });
    });
    let sum = many.total();
    assert_eq!((many.scans, sum.scan_tables, sum.scan_negatives), (60, 30 * 13, 30 * 9));
    let data =
        |level: &siftdb::LevelStats| level.scan_data_blocks_read + level.scan_data_blocks_cached;
    assert_eq!(data(&sum), 30 * data(&total));

    let kept = db.stats();
    db.close().unwrap();
    drop(db);
    let db = options.open("/db").unwrap();
    assert_eq!(db.stats().total().scan_data_blocks_read, kept.total().scan_data_blocks_read);
    assert_eq!(db.stats().scans, kept.scans);
    db.close().unwrap();
}
