//! Tests of the sorter of bulk loads, with runs of one entry.

use crate::db::open;
use crate::env::api::Env;
use crate::env::mem::MemEnv;
use crate::jobs::ingest::sort::{LoadSorter, RUNS_MAX};
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
        let mut sorter = LoadSorter::new(&engine.unwrap(), 1).unwrap();
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
