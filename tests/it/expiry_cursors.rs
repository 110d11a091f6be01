//! Cursors say of each entry when it expires, wherever they come from and however they got there.

use crate::support::rng::{Rng, seeds};
use crate::support::stores::{open, small_options};
use siftdb::env::MemEnv;
use siftdb::{Cursor, Db, WriteOptions};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Value and when it expires, by key.
type Live = BTreeMap<Vec<u8>, (Vec<u8>, Option<SystemTime>)>;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

/// A key of few, so that versions of one meet.
fn key(rng: &mut Rng) -> Vec<u8> {
    format!("k{:02}", rng.below(60)).into_bytes()
}

/// Writes at random what lives for ever, until later, until `now + 1`, or not at all.
fn write(db: &Db, rng: &mut Rng, live: &mut Live, now: u64) {
    for _ in 0..80 {
        let (key, value) = (key(rng), vec![rng.next() as u8; rng.below(300)]);
        let expires_at = match rng.below(5) {
            0 => Some(at(now + 1)),
            1 | 2 => Some(at(100 + rng.below(1_000) as u64)),
            3 => None,
            _ => {
                db.delete(&key).unwrap();
                live.remove(&key);
                continue;
            }
        };
        let never = WriteOptions::new().expire_after(Duration::MAX);
        let options = expires_at.map_or(never, |time| WriteOptions::new().expire_at(time));
        db.put_with(&key, &value, &options).unwrap();
        live.insert(key, (value, expires_at));
    }
}

/// Walks at random, and compares each position with the model.
fn walk(mut cursor: Cursor, live: &Live, rng: &mut Rng, what: &str) {
    let keys: Vec<&Vec<u8>> = live.keys().collect();
    // Where it is: before the first, at one, or after the last.
    let mut place: isize = -1;
    let count = keys.len() as isize;
    for step in 0..300 {
        let sought = key(rng);
        place = match rng.below(9) {
            0 => {
                cursor.seek(&sought).unwrap();
                keys.partition_point(|key| **key < sought) as isize
            }
            1 => {
                cursor.seek_for_prev(&sought).unwrap();
                keys.partition_point(|key| **key <= sought) as isize - 1
            }
            2 => {
                cursor.seek_to_first().unwrap();
                0
            }
            3 => {
                cursor.seek_to_last().unwrap();
                count - 1
            }
            4 | 5 => {
                cursor.next().unwrap();
                (place + 1).min(count)
            }
            _ => {
                cursor.prev().unwrap();
                (place - 1).max(-1)
            }
        };
        let expected = usize::try_from(place).ok().and_then(|place| keys.get(place));
        let expected = expected.map(|key| (*key, &live[*key]));
        let found = cursor.entry().map(|(key, value)| (key.to_vec(), value.to_vec()));
        let place = format!("{what}, step {step}");
        assert_eq!(
            found,
            expected.map(|(key, (value, _))| (key.clone(), value.clone())),
            "{place}"
        );
        assert_eq!(cursor.expires_at(), expected.and_then(|(_, (_, at))| *at), "{place}");
    }
}

fn until(live: &Live, now: u64) -> Live {
    let mut live = live.clone();
    live.retain(|_, (_, expires_at)| expires_at.is_none_or(|time| time > at(now)));
    live
}

#[test]
fn cursors_say_when_entries_expire() {
    for seed in seeds(8) {
        let (env, mut rng) = (MemEnv::new(), Rng::new(seed));
        env.set_now(at(0));
        let db = open(&env, &small_options()).unwrap();
        let mut live = Live::new();
        for round in 0..4u64 {
            env.set_now(at(round));
            write(&db, &mut rng, &mut live, round);
            // Older versions are in tables, those of the last round in memory.
            if round < 3 {
                db.flush().unwrap();
            }
        }
        let (before, snapshot) = (live.clone(), db.snapshot());
        write(&db, &mut rng, &mut live, 3);
        let what = |read: &str| format!("seed {seed}, {read}");
        for now in [3, 4] {
            env.set_now(at(now));
            walk(db.cursor(), &until(&live, now), &mut rng, &what("database"));
            walk(snapshot.cursor(), &until(&before, now), &mut rng, &what("snapshot"));
        }
        assert!(until(&live, 4).len() < until(&live, 3).len(), "{}", what("some expired"));
        // What a transaction wrote itself gets its time when it commits.
        let transaction = db.transaction();
        let mut own = until(&live, 4);
        for _ in 0..10 {
            let (kept, deleted) = (key(&mut rng), key(&mut rng));
            transaction.put(&kept, "own").unwrap();
            own.insert(kept, (b"own".to_vec(), None));
            transaction.delete(&deleted).unwrap();
            own.remove(&deleted);
        }
        walk(transaction.iter().cursor(), &own, &mut rng, &what("transaction"));
        drop((transaction, snapshot));
        db.compact_range(..).unwrap();
        walk(db.cursor(), &until(&live, 4), &mut rng, &what("compacted"));
        db.close().unwrap();
    }
}
