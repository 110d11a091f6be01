//! Tests of the sorter of bulk loads, with small runs and small tables in them.

use crate::db::open;
use crate::env::api::Env;
use crate::env::mem::MemEnv;
use crate::jobs::ingest::sort::{LoadSorter, RUNS_MAX};
use crate::jobs::rewrite::output::INDEX_BYTES_MAX;
use crate::options::database::Options;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The runs that are there.
fn runs(env: &MemEnv) -> usize {
    let files = env.list(Path::new("/db")).unwrap();
    files.iter().filter(|file| file.name.ends_with(".tmp")).count()
}

#[test]
fn few_runs_are_merged_at_once() {
    // No merge before the last one, one, several, and so many that merged runs are merged again.
    for entries in [1, RUNS_MAX, RUNS_MAX + 1, 3 * RUNS_MAX, RUNS_MAX * RUNS_MAX + 1] {
        let env = MemEnv::new();
        let engine = open::open(Options::new().env(Arc::new(env.clone())), Path::new("/db"));
        let mut sorter = LoadSorter::new(&engine.unwrap(), 1, INDEX_BYTES_MAX).unwrap();
        let mut expected = BTreeMap::new();
        for entry in 0..entries {
            // With more than 501 entries each key comes again, 501 entries later.
            let (key, value) = (format!("{:05}", entry * 7919 % 501), entry.to_string());
            sorter.add(key.as_bytes(), value.as_bytes()).unwrap();
            expected.insert(key, value);
        }
        assert_eq!(runs(&env), entries - 1);
        let mut sorted = Vec::new();
        let taken = sorter.finish(|key, value| {
            assert!(runs(&env) <= RUNS_MAX, "{} runs of {entries}", runs(&env));
            sorted.push((key.to_vec(), value.to_vec()));
            Ok(())
        });
        taken.unwrap();
        let bytes = |(key, value): (String, String)| (key.into_bytes(), value.into_bytes());
        assert_eq!(sorted, expected.into_iter().map(bytes).collect::<Vec<_>>());
        drop(sorter);
        assert_eq!(runs(&env), 0);
    }
}

/// A run with long keys has several tables: the index of one would not fit a block.
#[test]
fn runs_with_large_indexes_have_several_tables() {
    let env = MemEnv::new();
    let engine = open::open(Options::new().env(Arc::new(env.clone())), Path::new("/db")).unwrap();
    let mut sorter = LoadSorter::new(&engine, 300 << 10, 1).unwrap();
    let mut expected = BTreeMap::new();
    // A block of a run is one of these entries.
    let key = |number: usize| [format!("{number:08}").as_bytes(), &[7; 60_000]].concat();
    for number in 0..RUNS_MAX + 200 {
        let (key, value) = (key(number * 7919 % 301), vec![number as u8; 10_000]);
        sorter.add(&key, &value).unwrap();
        expected.insert(key, value);
    }
    let tables = runs(&env);
    assert!(tables > 100, "{tables} tables of runs of four entries");
    let mut sorted = Vec::new();
    let taken = sorter.finish(|key, value| {
        sorted.push((key.to_vec(), value.to_vec()));
        Ok(())
    });
    taken.unwrap();
    assert!(sorted == expected.into_iter().collect::<Vec<_>>());
    drop(sorter);
    assert_eq!(runs(&env), 0);
}
