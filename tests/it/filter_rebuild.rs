//! `Db::rebuild_filters`: tables get the filters of the options, and nothing else changes.
//!
//! The counters prove that a rebuilt filter is used: lookups of absent keys that were
//! `not_consulted` or false positives before are `negatives` afterwards.

use crate::support::data::{absent_key, bytes, key};
use crate::support::filters::{all_filters, filter_offset};
use crate::support::rng::Rng;
use crate::support::stores::{as_env, files, files_ending, open, scan, small_options};
use siftdb::env::MemEnv;
use siftdb::{
    Db, Error, Filter, FilterLayout, FilterRebuild, FilterReport, LevelStats, Options, Prefix,
    Remedy,
};
use std::sync::atomic::{AtomicBool, Ordering};

const KEYS: usize = 1_500;

/// Three levels with several versions of keys, deletions, and tables of level 0 that overlap.
fn filled(env: &MemEnv, options: &Options) -> Db {
    let db = open(env, &options.clone().auto_compaction(false)).unwrap();
    let mut rng = Rng::new(5);
    for round in 0..4u64 {
        for _ in 0..KEYS {
            let number = rng.below(KEYS);
            match rng.chance(10) {
                true => db.delete(key(number)).unwrap(),
                false => db.put(key(number), bytes(round, 60)).unwrap(),
            }
        }
        db.flush().unwrap();
        if round < 2 {
            db.compact_range(..key(KEYS / (1 + round as usize))).unwrap();
        }
    }
    db
}

/// The counters of lookups of absent keys between present ones, summed over all levels.
fn absent_lookups(db: &Db) -> LevelStats {
    let before = db.stats();
    for number in 0..KEYS {
        assert_eq!(db.get(absent_key(number)).unwrap(), None);
    }
    db.stats().since(&before).total()
}

#[test]
fn every_filter_can_replace_every_other() {
    let filters = all_filters();
    for (place, from) in filters.iter().enumerate() {
        let to = &filters[(place * 7 + 3) % filters.len()];
        let name = format!("{} to {}", from.name, to.name);
        let env = MemEnv::new();
        let db = filled(&env, &small_options().filter(from.filter.clone()));
        let held = scan(&db).unwrap();
        db.close().unwrap();
        drop(db);

        let options = small_options().filter(to.filter.clone()).auto_compaction(false);
        let db = open(&env, &options).unwrap();
        let snapshot = db.snapshot();
        let tables = db.stats().total().tables;
        assert!(tables > 4, "{name}");
        let rebuilt = db.rebuild_filters(FilterRebuild::Differing).unwrap();
        assert_eq!(rebuilt, if from.name == to.name { 0 } else { tables }, "{name}");
        assert!(db.filter_report().tables.iter().all(|table| !table.differs), "{name}");
        assert_eq!(scan(&db).unwrap(), held, "{name}");
        let counts = absent_lookups(&db);
        match to.fpr_max {
            None => assert_eq!((counts.negatives, counts.false_positives), (0, 0), "{name}"),
            Some(most) => {
                assert_eq!(counts.not_consulted, 0, "{name}");
                assert!(counts.negatives > 1_000, "{name}");
                let observed = counts.observed_fpr().unwrap();
                assert!(observed < 2.0 * most, "{name}: {observed}");
            }
        }
        for number in 0..KEYS {
            let found = snapshot.get(key(number)).unwrap().map(|value| value.into_vec());
            assert_eq!(found.as_ref(), held.get(&key(number)), "{name}: key {number}");
        }
        drop(snapshot);
        db.close().unwrap();
        drop(db);
        let db = open(&env, &options).unwrap();
        assert_eq!(scan(&db).unwrap(), held, "{name}, reopened");
    }
}

#[test]
fn an_unneeded_rebuild_writes_nothing() {
    let env = MemEnv::new();
    let options = small_options();
    filled(&env, &options).close().unwrap();
    let before = files(&env);
    let db = open(&env, &options.clone().auto_compaction(false)).unwrap();
    assert_eq!(db.rebuild_filters(FilterRebuild::Differing).unwrap(), 0);
    db.close().unwrap();
    drop(db);
    let without_counters = |mut files: std::collections::BTreeMap<std::path::PathBuf, Vec<u8>>| {
        files.retain(|path, _| !path.ends_with("STATS"));
        files
    };
    assert_eq!(without_counters(files(&env)), without_counters(before));
}

#[test]
fn rebuild_rewrites_only_differing_tables() {
    let env = MemEnv::new();
    filled(&env, &small_options()).close().unwrap();
    let at_level_1 = Filter::bloom(16.0).layout(FilterLayout::Full);
    let options = small_options().filter_at_level(1, at_level_1).auto_compaction(false);
    let db = open(&env, &options).unwrap();
    let before = db.filter_report();
    let numbers = |report: &siftdb::FilterReport, level: usize| -> Vec<u64> {
        report.level(level).map(|table| table.table).collect()
    };
    let of_level_1 = numbers(&before, 1).len() as u64;
    assert!(of_level_1 > 0 && !numbers(&before, 0).is_empty());
    assert_eq!(db.rebuild_filters(FilterRebuild::Differing).unwrap(), of_level_1);
    let after = db.filter_report();
    for level in [0, 2] {
        assert_eq!(numbers(&after, level), numbers(&before, level), "level {level}");
    }
    assert!(numbers(&after, 1).iter().all(|number| !numbers(&before, 1).contains(number)));
    assert!(after.level(1).all(|table| table.asked_bits_per_key == Some(16.0)));

    let tables = db.stats().total().tables;
    assert_eq!(db.rebuild_filters(FilterRebuild::All).unwrap(), tables);
    let all = db.filter_report();
    assert!(numbers(&all, 0).is_empty(), "they went down");
    let old: Vec<u64> = after.tables.iter().map(|table| table.table).collect();
    assert!(all.tables.iter().all(|table| !old.contains(&table.table)));
}

/// Writers, readers and due compactions continue while filters are rebuilt again and again.
#[test]
fn rebuild_allows_concurrent_reads_and_writes() {
    let env = MemEnv::new();
    filled(&env, &small_options()).close().unwrap();
    let options = small_options().filter(Filter::bloom(14.0));
    let db = options.env(as_env(&env)).open("/db").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..4_000usize {
                db.put(key(number % KEYS), bytes(number as u64, 60)).unwrap();
                // What this thread wrote last is what it reads.
                let found = db.get(key(number % KEYS)).unwrap().unwrap();
                assert_eq!(&*found, bytes(number as u64, 60));
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) && !writer.is_finished() {
            db.rebuild_filters(FilterRebuild::All).unwrap();
        }
        writer.join().unwrap();
    });
    for number in 4_000 - KEYS..4_000 {
        let found = db.get(key(number % KEYS)).unwrap().unwrap();
        assert_eq!(&*found, bytes(number as u64, 60));
    }
    db.close().unwrap();
    assert!(matches!(db.rebuild_filters(FilterRebuild::All), Err(siftdb::Error::Closed)));
}

/// Whether every filter was read and has nothing for the doctor of `siftdb filter stats` to find.
fn is_healthy(report: &FilterReport) -> bool {
    let mut tables = report.tables.iter();
    report.were_read
        && tables.all(|table| table.damage.is_none() && table.is_asked && !table.differs)
}

/// A flipped byte in the filter of every table is found without a lookup and gives no wrong answer.
/// What every message advises repairs it.
#[test]
fn damaged_filters_are_found_and_rebuilt() {
    let layouts = [
        (FilterLayout::Full, false),
        (FilterLayout::Partitioned { block_bytes: 256 }, true),
        (FilterLayout::Partitioned { block_bytes: 256 }, false),
        (FilterLayout::BlockBased { window_bytes: 2048 }, false),
    ];
    for (layout, partition) in layouts {
        let name = format!("{layout}, partition: {partition}");
        let env = MemEnv::new();
        let options = small_options().filter(Filter::bloom(10.0).layout(layout));
        let options = options.auto_compaction(false);
        let db = filled(&env, &options);
        let held = scan(&db).unwrap();
        assert!(is_healthy(&db.check_filters().unwrap()), "{name}");
        db.close().unwrap();
        drop(db);
        for table in files_ending(&env, ".sst") {
            let mut bytes = env.read_file(&table).unwrap();
            bytes[filter_offset(&env, &table, partition)] ^= 0x10;
            env.write_file(&table, &bytes);
        }

        let db = open(&env, &options).unwrap();
        let tables = db.stats().total().tables;
        let report = db.check_filters().unwrap();
        let mut damaged = report.tables.iter();
        assert!(damaged.all(|table| table.damage.is_some() && !table.differs), "{name}");
        let levels = (0..7).filter(|level| report.level(*level).next().is_some()).count();
        assert!(levels > 1 && report.were_read, "{name}: {report:?}");
        let verified = db.verify(|_| {}).unwrap();
        assert_eq!(verified.damage.len() as u64, tables, "{name}");
        for error in &verified.damage {
            let filters = matches!(error, Error::Corruption { remedy, .. }
                if *remedy == Remedy::RebuildFilters);
            assert!(filters && error.to_string().contains("siftdb filter rebuild"), "{error}");
        }
        assert_eq!(scan(&db).unwrap(), held, "{name}");
        let counts = absent_lookups(&db);
        assert!(counts.not_consulted > 0 && db.stats().filter_errors > 0, "{name}");
        // By now a report that reads nothing shows the damage, too.
        let seen = db.filter_report();
        assert!(seen.stats.filter_errors > 0 && !seen.were_read, "{name}: {seen:?}");

        assert_eq!(db.rebuild_filters(FilterRebuild::Differing).unwrap(), tables, "{name}");
        assert_eq!(db.rebuild_filters(FilterRebuild::Differing).unwrap(), 0, "{name}");
        assert!(is_healthy(&db.check_filters().unwrap()), "{name}");
        let verified = db.verify(|_| {}).unwrap();
        assert!(verified.is_sound(), "{name}: {:?}", verified.damage);
        assert_eq!(scan(&db).unwrap(), held, "{name}");
        let counts = absent_lookups(&db);
        assert!(counts.not_consulted == 0 && counts.negatives > 1_000, "{name}");
    }
}

#[test]
fn tables_without_keys_need_no_filter() {
    let db = open(&MemEnv::new(), &small_options().auto_compaction(false)).unwrap();
    db.put("a", "1").unwrap();
    db.put("z", "1").unwrap();
    db.flush().unwrap();
    let _older = db.snapshot();
    db.delete_range("b".."c").unwrap();
    db.flush().unwrap();
    assert!(db.tables().iter().any(|table| table.entries == 0), "no table of range deletes alone");
    assert!(db.filter_report().tables.iter().all(|table| !table.differs));
    assert_eq!(db.rebuild_filters(FilterRebuild::Differing).unwrap(), 0);
}

#[test]
fn tables_without_prefixes_need_no_prefix_filter() {
    let prefixes = |bytes| Filter::bloom(10.0).prefix(Prefix::fixed(bytes)).whole_key(false);
    for filter in [prefixes(8), prefixes(8).ranges(12.0)] {
        let env = MemEnv::new();
        let options = small_options().auto_compaction(false);
        let db = open(&env, &options.clone().filter(filter)).unwrap();
        db.put("short", "1").unwrap();
        db.flush().unwrap();
        assert_eq!(db.rebuild_filters(FilterRebuild::Differing).unwrap(), 0);
        assert!(db.verify(|_| {}).unwrap().is_sound());
        drop(db);
        // By another rule the key has a prefix.
        let db = open(&env, &options.filter(prefixes(2))).unwrap();
        assert_eq!(db.rebuild_filters(FilterRebuild::Differing).unwrap(), 1);
        assert_eq!(db.rebuild_filters(FilterRebuild::Differing).unwrap(), 0);
        assert_eq!(db.filter_report().tables[0].keys, 1);
        assert_eq!(db.get("short").unwrap().as_deref(), Some(&b"1"[..]));
    }
}
