//! A database of three runs: a settled level under two tables of level 0.

use crate::support::rng::Rng;
use crate::support::stores::{HOME, as_env};
use siftdb::Options;
use siftdb::env::MemEnv;

/// Keys of the database.
pub const KEYS: usize = 150_000;

/// Keys that are overwritten in each of the two tables of level 0.
const OVERWRITTEN: usize = 5_000;

/// 100 bytes, of which no codec makes `random_bytes` shorter.
pub fn value(number: usize, random_bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(number as u64 + 1);
    (0..100).map(|at| if at < random_bytes { rng.next() as u8 } else { b'v' }).collect()
}

/// Fills the database in [`HOME`] of `disk` with values of [`value`], and closes it.
pub fn fill(disk: &MemEnv, options: &Options, key: impl Fn(usize) -> Vec<u8>, random_bytes: usize) {
    let options = options.clone().auto_compaction(false);
    let db = options.env(as_env(disk)).open(HOME).unwrap();
    let put = |numbers: &[usize]| {
        for &number in numbers {
            db.put(key(number), value(number, random_bytes)).unwrap();
        }
        db.flush().unwrap();
    };
    let mut numbers: Vec<usize> = (0..KEYS).collect();
    Rng::new(7).shuffle(&mut numbers);
    put(&numbers);
    db.compact_range(..).unwrap();
    put(&numbers[..OVERWRITTEN]);
    put(&numbers[OVERWRITTEN..2 * OVERWRITTEN]);
    db.close().unwrap();
}
