//! A property of whole repairs: tables everywhere cut, long keys, versions that snapshots keep and
//! range deletes, in tables and in logs; then tables are damaged and the manifest goes, or neither.
//! Keys that no damaged
//! table could have read as before, all reads agree, and no level has two tables of one key (I4).

use crate::admin::repair::run::repair_with;
use crate::base::error::Result;
use crate::base::levels::LEVELS;
use crate::base::value::Value;
use crate::db::database::Db;
use crate::env::api::Env;
use crate::env::mem::MemEnv;
use crate::jobs::rewrite::output::INDEX_BYTES_MAX;
use crate::jobs::testing::{Tree, path_of};
use crate::options::database::Options;
use crate::tree::overlap::order_conflicts;
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
/// Keys with a value that each one once had.
type Ever = BTreeSet<(Vec<u8>, Vec<u8>)>;

const HOME: &str = "/db";

/// Keys by number. Every third one is longer than all data blocks.
const KEYS: u8 = 60;

fn key(number: u8) -> Vec<u8> {
    let mut key = format!("{number:03}").into_bytes();
    key.resize([3, 40, 2_500][usize::from(number % 3)], b'k');
    key
}

#[derive(Clone, Debug)]
enum Step {
    Put { first: u8, step: u8, count: u8 },
    Delete(u8),
    DeleteRange(Bound<u8>, Bound<u8>),
    DeleteRanges { first: u8, step: u8, count: u8, width: u8 },
    Flush,
    TakeSnapshot,
    DropSnapshot,
    Compact(u8, u8),
}

fn bound() -> impl Strategy<Value = Bound<u8>> {
    prop_oneof![
        4 => (0..KEYS).prop_map(Bound::Included),
        4 => (0..KEYS).prop_map(Bound::Excluded),
        1 => Just(Bound::Unbounded),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let several = || (0..KEYS, 1u8..9, 1u8..12);
    let step = prop_oneof![
        6 => several().prop_map(|(first, step, count)| Step::Put { first, step, count }),
        2 => (0..KEYS).prop_map(Step::Delete),
        2 => (bound(), bound()).prop_map(|(start, end)| Step::DeleteRange(start, end)),
        4 => (several(), 1u8..5).prop_map(|((first, step, count), width)| {
            Step::DeleteRanges { first, step, count, width }
        }),
        // Of long keys: two of them are more than a table may have.
        4 => (0..KEYS / 3, 2u8..8).prop_map(|(first, count)| {
            Step::DeleteRanges { first: 3 * first + 2, step: 3, count, width: 1 }
        }),
        6 => Just(Step::Flush),
        2 => Just(Step::TakeSnapshot),
        1 => Just(Step::DropSnapshot),
        2 => (0..KEYS, 0..KEYS).prop_map(|(a, b)| Step::Compact(a.min(b), a.max(b))),
    ];
    proptest::collection::vec(step, 1..40)
}

fn options(env: &MemEnv) -> Options {
    let options = Options::new().auto_compaction(false).block_bytes(64).table_bytes(16 << 10);
    options.env(Arc::new(env.clone()))
}

/// Runs the steps on a database and closes it. Returns what it has, and by key every value that the
/// key ever had.
fn fill(db: &Db, steps: &[Step]) -> (Map, Ever) {
    let (mut map, mut ever, mut snapshots) = (Map::new(), BTreeSet::new(), Vec::new());
    let delete_range = |map: &mut Map, range: (Bound<Vec<u8>>, Bound<Vec<u8>>)| {
        db.delete_range(range.clone()).unwrap();
        let is_deleted = |key: &[u8]| {
            let from = match &range.0 {
                Bound::Included(start) => key >= &start[..],
                Bound::Excluded(start) => key > &start[..],
                Bound::Unbounded => true,
            };
            from && match &range.1 {
                Bound::Included(end) => key <= &end[..],
                Bound::Excluded(end) => key < &end[..],
                Bound::Unbounded => true,
            }
        };
        map.retain(|key, _| !is_deleted(key));
    };
    for (stamp, step) in steps.iter().enumerate() {
        match step {
            Step::Put { first, step, count } => {
                for number in (0..*count).map(|n| (first + n * step) % KEYS) {
                    let value = format!("{stamp} ").repeat(usize::from(number)).into_bytes();
                    db.put(key(number), &value).unwrap();
                    ever.insert((key(number), value.clone()));
                    map.insert(key(number), value);
                }
            }
            Step::Delete(number) => {
                db.delete(key(*number)).unwrap();
                map.remove(&key(*number));
            }
            Step::DeleteRange(start, end) => {
                delete_range(&mut map, (start.map(key), end.map(key)));
            }
            Step::DeleteRanges { first, step, count, width } => {
                for start in (0..*count).map(|n| (first + n * step) % KEYS) {
                    let end = Bound::Excluded(key(start + width));
                    delete_range(&mut map, (Bound::Included(key(start)), end));
                }
            }
            Step::Flush => db.flush().unwrap(),
            Step::TakeSnapshot => snapshots.push(db.snapshot()),
            Step::DropSnapshot => drop(snapshots.pop()),
            Step::Compact(first, last) => db.compact_range(key(*first)..=key(*last)).unwrap(),
        }
    }
    (map, ever)
}

/// What all reads show alike.
fn contents(db: &Db) -> Map {
    let owned = |entry: Result<(Value, Value)>| {
        let (key, value) = entry.unwrap();
        (key.into_vec(), value.into_vec())
    };
    let forward: Map = db.iter().map(owned).collect();
    let back: Vec<_> = db.iter().rev().map(owned).collect();
    assert!(back.into_iter().rev().eq(forward.clone()), "the scan back");
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let batch = db.multi_get(&keys).unwrap();
    for (key, found) in keys.iter().zip(batch) {
        let expected = forward.get(key).map(|value| &value[..]);
        assert_eq!(found.as_deref(), expected, "{}, of a batch", key.escape_ascii());
        assert_eq!(db.get(key).unwrap().as_deref(), expected, "{}", key.escape_ascii());
    }
    assert!(forward.keys().all(|key| keys.contains(key)));
    forward
}

/// Which tables are damaged, how, and from which byte on.
fn damages() -> impl Strategy<Value = Vec<(Index, u8, Index)>> {
    proptest::collection::vec((any::<Index>(), 0u8..3, any::<Index>()), 0..4)
}

fn damage(bytes: &mut Vec<u8>, how: u8, place: Index) {
    let place = place.index(bytes.len().max(1));
    match how {
        0 => bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= 0x40),
        1 => bytes.truncate(place),
        _ => bytes.iter_mut().skip(place).take(100).for_each(|byte| *byte = 0),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn repaired_databases_read_alike_and_keep_their_levels_in_order(
        steps in steps(),
        damages in damages(),
        (flushes, drops_manifest) in any::<(bool, bool)>(),
        index_bytes_max in prop_oneof![Just(1), Just(300), Just(INDEX_BYTES_MAX)],
    ) {
        let env = MemEnv::new();
        let db = options(&env).open(HOME).unwrap();
        let (map, ever) = fill(&db, &steps);
        if flushes {
            db.flush().unwrap();
        }
        let tables = db.tables();
        db.close().unwrap();
        drop(db);
        let mut damaged = Vec::new();
        for (table, how, place) in damages.iter().filter(|_| !tables.is_empty()) {
            let table = table.get(&tables);
            let path = Path::new(HOME).join(format!("{:06}.sst", table.number));
            let mut bytes = env.read_file(&path).unwrap();
            damage(&mut bytes, *how, *place);
            env.write_file(&path, &bytes);
            damaged.push(table);
        }
        if drops_manifest {
            let names = env.list(Path::new(HOME)).unwrap();
            for entry in names.iter().filter(|entry| entry.name.starts_with("MANIFEST")) {
                env.remove_file(&Path::new(HOME).join(&entry.name));
            }
        }
        repair_with(options(&env), Path::new(HOME), index_bytes_max).unwrap();
        let db = options(&env).open(HOME).unwrap();
        for level in 0..LEVELS {
            let version = Arc::clone(&db.engine().catalog.default.view.load().version);
            let metas = version.level(level).iter().map(|handle| &*handle.meta);
            prop_assert_eq!(order_conflicts(level, metas), vec![], "level {}", level);
        }
        let report = db.verify(|_| {}).unwrap();
        prop_assert!(report.is_sound(), "{}", report);
        let found = contents(&db);
        for number in 0..KEYS {
            let key = key(number);
            let may_differ = damaged.iter().any(|table| {
                table.first_key <= key && match &table.end {
                    Bound::Included(end) => key <= *end,
                    Bound::Excluded(end) => key < *end,
                    Bound::Unbounded => true,
                }
            });
            let found = found.get(&key);
            match may_differ {
                // Lost, or an older version whose successor is lost.
                true => {
                    let was_there = |value: &Vec<u8>| ever.contains(&(key.clone(), value.clone()));
                    prop_assert!(found.is_none_or(was_there), "never written: {:?}", found);
                }
                false => prop_assert_eq!(found, map.get(&key), "{}", key.escape_ascii()),
            }
        }
        db.compact_range(..).unwrap();
        prop_assert_eq!(contents(&db), found, "compacted");
    }
}

/// Such a table does not say which database wrote it. It is without the edit that named it.
#[test]
fn a_table_of_0_1_counts_as_newer_only_if_its_sequences_are_in_use() {
    for (sequence, is_ours) in [(2, true), (1_000, false)] {
        let env = MemEnv::new();
        let db = options(&env).open(HOME).unwrap();
        for number in 0..3 {
            db.put(key(number), "own").unwrap();
            db.flush().unwrap();
        }
        let missing = db.tables().into_iter().map(|table| table.number).min().unwrap();
        db.close().unwrap();
        drop(db);
        env.remove_file(&Path::new(HOME).join(format!("{missing:06}.sst")));
        let mut other = Tree::new();
        other.sequence = sequence - 1;
        other.write(key(9), Some(b"of 0.1".to_vec()));
        other.flush();
        let table = other.disk.read_file(&path_of(1)).unwrap();
        env.write_file(&Path::new(HOME).join("000900.sst"), &table);
        let report = repair_with(options(&env), Path::new(HOME), INDEX_BYTES_MAX).unwrap();
        assert!(report.manifest_used && !report.saved_everything(), "{report}");
        let found = contents(&options(&env).open(HOME).unwrap());
        assert_eq!(found.contains_key(&key(9)), is_ours, "sequence {sequence}: {report}");
        let is_aside = report.set_aside.iter().any(|file| file.path.ends_with("000900.sst"));
        assert_eq!(is_aside, !is_ours, "sequence {sequence}: {report}");
    }
}
