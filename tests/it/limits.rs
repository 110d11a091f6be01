//! Whatever a call accepts is written and read again: keys, bounds, names, settings and counts at
//! their limits, in the log, in tables, after a compaction, in a checkpoint, by a follower and
//! repaired. The command's test of the same name exports and imports them.

use crate::support::by_document::read_database;
use crate::support::limits::{KEY_BYTES_MAX, Limits, Map, contents, long, options};
use crate::support::rng::seeds;
use crate::support::stores::{HOME, as_env, files, name, open};
use siftdb::TableInfo;
use siftdb::env::MemEnv;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Opens the database again, and reads it in every other way that there is.
fn check_all(limits: &Limits, checkpoint: &str, what: &str) {
    let db = open(&limits.env, &options()).unwrap_or_else(|error| panic!("{what}: {error}"));
    limits.check(&db, what);
    db.checkpoint(checkpoint).unwrap();
    db.close().unwrap();
    let with_env = || options().env(as_env(&limits.env));
    limits.check(&with_env().open_read_only(checkpoint).unwrap(), "the checkpoint");
    let follower = with_env().open_follower(HOME).unwrap();
    assert!(contents(&follower.moment()) == limits.contents, "{what}: the follower");
    let of_home = files(&limits.env).into_iter().filter(|(path, _)| path.starts_with(HOME));
    let files = of_home.map(|(path, bytes)| (name(&path).to_string(), bytes)).collect();
    assert!(read_database(&files, 0) == limits.contents, "{what}: by the document");
}

/// A range delete begins after a key of the greatest length, and entries follow it in the table.
#[test]
fn starts_after_the_longest_key_are_read() {
    for last in ["z".into(), long(b'z', 0)] {
        let env = MemEnv::new();
        let db = open(&env, &options()).unwrap();
        db.put("a", "1").unwrap();
        db.put("LM", "2").unwrap();
        db.flush().unwrap();
        let snapshot = db.snapshot();
        db.delete_range((Bound::Excluded(long(b'L', 0)), Bound::Excluded(b"M".to_vec()))).unwrap();
        db.put(&last, "3").unwrap();
        db.flush().unwrap();
        let left = Map::from([(b"a".to_vec(), b"1".to_vec()), (last, b"3".to_vec())]);
        assert_eq!(snapshot.iter().count(), 2);
        let begins_late = |table: &TableInfo| table.first_key.len() > KEY_BYTES_MAX;
        let tables = db.tables();
        assert!(tables.iter().any(|table| begins_late(table) && table.entries > 0));
        drop(snapshot);
        db.close().unwrap();
        let contents = BTreeMap::from([("default".to_string(), left)]);
        check_all(&Limits { env, contents, settings: BTreeMap::new() }, "/checkpoint", "flushed");
    }
}

#[test]
fn whatever_is_accepted_is_read_again() {
    for seed in seeds(1) {
        let limits = Limits::written(seed);
        check_all(&limits, "/checkpoint", &format!("seed {seed}"));
        let db = open(&limits.env, &options()).unwrap();
        for name in limits.contents.keys() {
            db.keyspace(name).unwrap().compact_range(..).unwrap();
        }
        db.close().unwrap();
        check_all(&limits, "/compacted", &format!("seed {seed}, compacted"));
        // Without a manifest the tables say what is in them.
        let manifest = files(&limits.env)
            .into_keys()
            .find(|path| path.starts_with(HOME) && name(path).starts_with("MANIFEST"));
        limits.env.remove_file(&manifest.unwrap());
        options().env(as_env(&limits.env)).repair(HOME).unwrap();
        let repaired = contents(&open(&limits.env, &options()).unwrap());
        let has_any = |(_, found): &(&String, &Map)| !found.is_empty();
        let expected = limits.contents.iter().filter(has_any);
        assert!(expected.eq(repaired.iter().filter(has_any)), "seed {seed}, repaired");
    }
}
