//! Rescue: damage to a table's frame costs none of its entries, and damage to a block costs only
//! that block's. Repair writes the rest into a table with index, filter and properties.

use crate::support::data::key;
use crate::support::filters::one_of_each_layout;
use crate::support::reads::all_reads;
use crate::support::stores::{
    HOME, as_env, copy_of, files, files_ending, name, open, small_options,
};
use siftdb::env::MemEnv;
use siftdb::{Options, Recovery};
use std::collections::BTreeMap;
use std::path::Path;

const KEYS: usize = 400;
const HEADER: usize = 28;
const FOOTER: usize = 56;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A closed database of one table.
fn store(options: &Options) -> (MemEnv, Map) {
    let env = MemEnv::new();
    let db = open(&env, options).unwrap();
    let mut map = Map::new();
    for number in 0..KEYS {
        let value = format!("value {number}").into_bytes();
        db.put(key(number), &value).unwrap();
        map.insert(key(number), value);
    }
    db.flush().unwrap();
    db.close().unwrap();
    assert_eq!(files_ending(&env, ".sst").len(), 1);
    (env, map)
}

fn is_manifest(path: &Path) -> bool {
    name(path).starts_with("MANIFEST-")
}

/// Repairs the store, opens it and reads it in every way.
fn repaired(env: &MemEnv, options: &Options, what: &str) -> (siftdb::RepairReport, Map) {
    let report = options.clone().env(as_env(env)).repair(HOME);
    let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
    let db = open(env, &options.clone().recovery(Recovery::Strict));
    let db = db.unwrap_or_else(|error| panic!("{what}: {error}"));
    let verified = db.verify(|_| {}).unwrap();
    assert!(verified.is_sound(), "{what}: {:?}", verified.damage);
    assert_eq!(verified.filter_probes > 0, !what.starts_with("none"), "{what}: the filter");
    (report, all_reads(&db, (0..KEYS).map(key), what))
}

/// Where each block begins, by the sizes in the prefixes.
fn blocks(table: &[u8]) -> Vec<(u8, std::ops::Range<usize>)> {
    let mut blocks = Vec::new();
    let mut at = HEADER;
    while at + FOOTER < table.len() {
        let size = u32::from_le_bytes(table[at..at + 4].try_into().unwrap()) as usize;
        let end = at + 8 + size + 5;
        blocks.push((table[at + 4], at..end));
        at = end;
    }
    assert_eq!(at + FOOTER, table.len());
    blocks
}

#[test]
fn a_damaged_frame_costs_no_entry() {
    for filter in one_of_each_layout() {
        let options = small_options().auto_compaction(false).filter(filter.filter.clone());
        let (env, map) = store(&options);
        let path = files_ending(&env, ".sst").remove(0);
        let table = env.read_file(&path).unwrap();
        let mut cases = vec![
            ("a byte after it".to_string(), [&table[..], b"x"].concat()),
            ("junk after it".to_string(), [&table[..], &table[..700]].concat()),
            ("no footer".to_string(), table[..table.len() - FOOTER].to_vec()),
        ];
        let mut damage = |what: String, place: std::ops::Range<usize>| {
            let mut damaged = table.clone();
            damaged[place].fill(0x2a);
            cases.push((what, damaged));
        };
        damage("header".into(), 0..HEADER);
        damage("footer".into(), table.len() - FOOTER..table.len());
        let mut behind = table.len();
        for (kind, place) in blocks(&table).into_iter().filter(|(kind, _)| *kind != 1) {
            behind = behind.min(place.start);
            damage(format!("block of kind {kind}"), place.start + 8..place.end);
            damage(format!("prefix of kind {kind}"), place.start..place.start + 8);
        }
        damage("everything after the data".into(), behind..table.len());
        for (what, damaged) in cases {
            for without_manifest in [false, true] {
                let what = format!("{}: {what}, {without_manifest}", filter.name);
                let env = copy_of(&files(&env));
                env.write_file(&path, &damaged);
                if without_manifest {
                    let manifest =
                        env.list_files().into_iter().find(|path| is_manifest(path)).unwrap();
                    env.remove_file(&manifest);
                }
                let (report, found) = repaired(&env, &options, &what);
                assert_eq!(found, map, "{what}");
                assert!(report.changed, "{what}");
                assert_eq!(report.entries, KEYS as u64, "{what}");
                assert!(without_manifest || report.saved_everything(), "{what}: {report}");
                // Without manifest and properties nothing says how many entries there were.
                let untold = what.contains("after the data") || what.contains("kind 4");
                let lost: Vec<_> = report.lost.iter().filter(|lost| lost.path == path).collect();
                assert!(lost.is_empty() || without_manifest && untold, "{what}: {lost:?}");
            }
        }
    }
}

#[test]
fn a_damaged_block_costs_only_its_entries() {
    let options = small_options().auto_compaction(false);
    let (env, map) = store(&options);
    let path = files_ending(&env, ".sst").remove(0);
    let table = env.read_file(&path).unwrap();
    let data: Vec<_> = blocks(&table).into_iter().filter(|(kind, _)| *kind == 1).collect();
    assert!(data.len() > 10);
    for (_, place) in data.iter().step_by(3) {
        for at in [place.start, place.start + 5, place.start + 20, place.end - 1] {
            let what = format!("byte {at}");
            let env = copy_of(&files(&env));
            let mut damaged = table.clone();
            damaged[at] ^= 0x10;
            // Damages the footer, too: only prefixes are left to find blocks by.
            *damaged.last_mut().unwrap() ^= 1;
            env.write_file(&path, &damaged);
            let (report, found) = repaired(&env, &options, &what);
            assert!(found.iter().all(|(key, value)| map.get(key) == Some(value)), "{what}");
            let lost: Vec<_> = map.keys().filter(|key| !found.contains_key(*key)).collect();
            assert!(!lost.is_empty() && lost.len() * data.len() < 3 * map.len(), "{what}");
            assert_eq!(report.entries_lost, lost.len() as u64, "{what}");
            let [named] = &report.lost[..] else { panic!("{what}: {:?}", report.lost) };
            let covers = |key: &Vec<u8>| {
                named.from.as_ref().is_none_or(|from| from <= key)
                    && named.to.as_ref().is_none_or(|to| key <= to)
            };
            assert!(lost.into_iter().all(covers), "{what}: {named:?}");
        }
    }
}

/// Any block may be the damaged one, and the footer is in any case.
#[test]
fn rescues_keep_range_deletes_or_name_the_loss() {
    let options = small_options().auto_compaction(false);
    let (env, _) = store(&options);
    let db = open(&env, &options).unwrap();
    db.delete_range(key(100)..key(300)).unwrap();
    (280..KEYS).for_each(|number| db.put(key(number), "new").unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    let path = files_ending(&env, ".sst").into_iter().max().unwrap();
    let table = env.read_file(&path).unwrap();
    let range_deletes = 7;
    assert!(blocks(&table).iter().any(|(kind, _)| *kind == range_deletes));
    for (kind, place) in blocks(&table) {
        for at in [place.start + 4, place.start + 8, place.end - 1] {
            let what = format!("byte {at} of kind {kind}");
            let env = copy_of(&files(&env));
            let mut damaged = table.clone();
            damaged[at] ^= 0x10;
            *damaged.last_mut().unwrap() ^= 1;
            env.write_file(&path, &damaged);
            let report = options.clone().env(as_env(&env)).repair(HOME).unwrap();
            let db = open(&env, &options.clone().recovery(Recovery::Strict)).unwrap();
            assert!(db.verify(|_| {}).unwrap().is_sound(), "{what}");
            let is_back = |number| db.get(key(number)).unwrap().is_some();
            let back = (100..280).filter(|number| is_back(*number)).count();
            assert_eq!(back, if kind == range_deletes { 180 } else { 0 }, "{what}");
            let names_it =
                |lost: &siftdb::LostEntries| lost.what.contains("range deletes are lost");
            assert_eq!(report.lost.iter().any(names_it), back > 0, "{what}: {report}");
        }
    }
}

/// The kind of the block with range deletes.
const RANGE_DELETES: u8 = 7;

/// A range delete whose block is damaged may be lost. Then the report names the table, and every
/// key that comes back lies in the named range.
#[test]
fn lost_range_deletes_are_named() {
    for filter in one_of_each_layout() {
        let options = small_options().auto_compaction(false).filter(filter.filter.clone());
        let env = MemEnv::new();
        let db = open(&env, &options).unwrap();
        let value = |number: usize| format!("value {number}").into_bytes();
        (0..KEYS).for_each(|number| db.put(key(number), value(number)).unwrap());
        db.compact_range(..).unwrap();
        db.delete_range(key(100)..key(130)).unwrap();
        db.delete_range(key(120)..key(200)).unwrap();
        (300..310).for_each(|number| db.delete(key(number)).unwrap());
        db.flush().unwrap();
        db.close().unwrap();
        drop(db);
        let gone = |number: &usize| (100..200).contains(number) || (300..310).contains(number);
        let left: Map =
            (0..KEYS).filter(|n| !gone(n)).map(|number| (key(number), value(number))).collect();
        let image = files(&env);
        let of_deletes = |path: &&std::path::PathBuf| {
            let is_table = name(path).ends_with(".sst");
            is_table && blocks(&image[*path]).iter().any(|(kind, _)| *kind == RANGE_DELETES)
        };
        let path = image.keys().find(of_deletes).expect("a table with range deletes");
        let table = &image[path];
        let (_, block) =
            blocks(table).into_iter().find(|(kind, _)| *kind == RANGE_DELETES).unwrap();
        for without_manifest in [false, true] {
            for at in block.clone() {
                let what = format!("{}, byte {at} of {block:?}, {without_manifest}", filter.name);
                let env = copy_of(&image);
                let mut damaged = table.clone();
                damaged[at] ^= 1 << (at % 8);
                env.write_file(path, &damaged);
                if without_manifest {
                    let manifest = image.keys().find(|path| is_manifest(path)).unwrap();
                    env.remove_file(manifest);
                }
                let (report, found) = repaired(&env, &options, &what);
                let is_named = |key: &Vec<u8>| {
                    report.lost.iter().any(|lost| {
                        lost.path == *path
                            && lost.from.as_ref().is_none_or(|from| from <= key)
                            && lost.to.as_ref().is_none_or(|to| key <= to)
                    })
                };
                for number in 0..KEYS {
                    let key = key(number);
                    let is_back = found.contains_key(&key) && !left.contains_key(&key);
                    assert!(!is_back || is_named(&key), "{what}: {number} is back: {report}");
                    assert!(!left.contains_key(&key) || found.get(&key) == left.get(&key));
                }
                let is_back = found.len() > left.len();
                assert!(!is_back || !report.saved_everything(), "{what}: {report}");
            }
        }
    }
}
