//! A history of writes that follows from a seed. Operation `n` writes its number with all else that
//! it does, so a reader that finds `n` must find exactly what operations `1..=n` leave.
//!
//! The operations write to three keyspaces. One of them, [`PASSING`], is created and dropped again
//! and again.

use super::model::{Change, Map, apply};
use super::rng::Rng;
use siftdb::{Db, Error, Keyspace, Result, WriteBatch, WriteOptions};
use std::ops::Bound;

/// The key that has the number, in every keyspace.
pub const NUMBER: &str = "n";

/// The second keyspace.
pub const OTHER: &str = "other";

/// The keyspace that comes and goes.
pub const PASSING: &str = "passing";

/// In this many operations, [`PASSING`] is created once and dropped once.
const CYCLE: u64 = 60;

/// After these operations of each cycle it is created and dropped.
const CREATED: u64 = 20;
const DROPPED: u64 = 40;

const KEYS: usize = 120;

fn key(rng: &mut Rng) -> Vec<u8> {
    format!("key/{:03}", rng.below(KEYS)).into_bytes()
}

/// What operation `n` does: the keyspace, 0 to 2, and the change.
fn operation(seed: u64, n: u64) -> Vec<(usize, Change)> {
    let mut rng = Rng::new(seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut changes = Vec::new();
    for _ in 0..1 + rng.below(5) {
        let keyspace = rng.below(3);
        let change = match rng.below(12) {
            0 => {
                let (from, to) = (key(&mut rng), key(&mut rng));
                let end = [&from[..], b"~"].concat();
                let end = if rng.chance(90) { end } else { to.max(from.clone()) };
                Change::DeleteRange((Bound::Included(from), Bound::Excluded(end)))
            }
            1 | 2 => Change::Delete(key(&mut rng)),
            _ => {
                let value = vec![rng.below(256) as u8; rng.below(300)];
                Change::Put(key(&mut rng), [&n.to_le_bytes()[..], &value].concat())
            }
        };
        changes.push((keyspace, change));
    }
    let number = |keyspace| (keyspace, Change::Put(NUMBER.into(), n.to_le_bytes().to_vec()));
    changes.extend((0..3).map(number));
    changes.retain(|(keyspace, _)| *keyspace != 2 || passing_exists(n) == Some(true));
    changes
}

/// Whether [`PASSING`] exists after `n` operations; `None` where it is just being created or
/// dropped. Operation `n` writes to it if it certainly exists.
fn passing_exists(n: u64) -> Option<bool> {
    match n % CYCLE {
        CREATED | DROPPED => None,
        at => Some((CREATED..DROPPED).contains(&at)),
    }
}

/// Makes keyspaces be there or not, as they are after the last operation, which was `n`.
pub fn prepare(db: &Db, n: u64) -> Result<()> {
    db.keyspace(OTHER)?;
    match n % CYCLE {
        CREATED..DROPPED => db.keyspace(PASSING).map(drop),
        _ => match db.drop_keyspace(PASSING) {
            Err(Error::KeyspaceNotFound { .. }) => Ok(()),
            dropped => dropped,
        },
    }
}

/// Does operation `n`, and what comes before operation `n + 1`.
pub fn write(db: &Db, seed: u64, n: u64, options: &WriteOptions) -> Result<()> {
    let mut batch = WriteBatch::new();
    for (at, change) in operation(seed, n) {
        let keyspace = db.keyspace(["default", OTHER, PASSING][at])?;
        let mut batch = batch.in_keyspace(&keyspace);
        match change {
            Change::Put(key, value) => batch.put(key, value),
            Change::Delete(key) => batch.delete(key),
            Change::DeleteRange(range) => batch.delete_range(range),
        };
    }
    db.write_with(batch, options)?;
    match n % CYCLE {
        CREATED | DROPPED => prepare(db, n),
        _ => Ok(()),
    }
}

/// The number that `keyspace` has; 0 before the first operation.
pub fn number(keyspace: &Keyspace) -> Result<u64> {
    let number = |value: &[u8]| u64::from_le_bytes(value.try_into().unwrap());
    Ok(keyspace.get(NUMBER)?.map_or(0, |value| number(&value)))
}

/// The expected contents after some operations.
#[derive(Clone, Debug)]
pub struct Expected {
    seed: u64,
    /// The operations so far.
    pub n: u64,
    maps: [Map; 3],
}

impl Expected {
    pub fn new(seed: u64) -> Self {
        Expected { seed, n: 0, maps: Default::default() }
    }

    pub fn advance_to(&mut self, n: u64) {
        assert!(n >= self.n, "{n} comes after {}", self.n);
        while self.n < n {
            // After the operation before it may be there still.
            if self.n % CYCLE == DROPPED {
                self.maps[2].clear();
            }
            self.n += 1;
            for (keyspace, change) in operation(self.seed, self.n) {
                apply(&mut self.maps[keyspace], &vec![change]);
            }
        }
    }

    /// Compares all of `db` with the contents, by every kind of read.
    pub fn check(&self, db: &Db) {
        self.check_by(db, &|keyspace, map| check_whole(keyspace, map));
    }

    /// Compares what one range of keys and some lookups find.
    pub fn check_part(&self, db: &Db, rng: &mut Rng) {
        let (from, to) = (key(rng), key(rng));
        let (from, to) = (from.clone().min(to.clone()), from.max(to));
        let other = key(rng);
        self.check_by(db, &|keyspace, map| {
            let expected = map.range(from.clone()..to.clone());
            let found = keyspace.range(&from[..]..&to[..]).map(|entry| entry.unwrap());
            assert!(
                expected.eq(found.map(|(k, v)| (k.to_vec(), v.to_vec())).collect::<Map>().iter())
            );
            for key in [&from, &to, &other] {
                assert_eq!(keyspace.get(key).unwrap().as_deref(), map.get(key).map(|v| &v[..]));
            }
        });
    }

    fn check_by(&self, db: &Db, check: &dyn Fn(&Keyspace, &Map)) {
        check(db, &self.maps[0]);
        let names = db.keyspaces();
        let passing = names.iter().any(|name| name == PASSING);
        let is_expected = passing_exists(self.n).is_none_or(|expected| passing == expected);
        assert!(is_expected, "{names:?} after operation {}: {}", self.n, db.recovery_report());
        for (at, name) in [(1, OTHER), (2, PASSING)] {
            match names.iter().any(|there| there == name) {
                true => check(&db.keyspace(name).unwrap(), &self.maps[at]),
                // In the operation that drops it, it may be there or not.
                false => assert!(self.n == 0 || at == 2, "{name} is there from the first write on"),
            }
        }
    }
}

fn check_whole(keyspace: &Keyspace, map: &Map) {
    let found = keyspace.iter().map(|entry| entry.unwrap());
    let found: Map = found.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert_eq!(found.len(), map.len(), "{keyspace:?}");
    assert!(found == *map, "{keyspace:?}: other values");
    let back = keyspace.iter().rev().map(|entry| entry.unwrap());
    let back: Vec<_> = back.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert!(back.iter().rev().map(|(key, value)| (key, value)).eq(map));
    let keys: Vec<Vec<u8>> = (0..KEYS).map(|n| format!("key/{n:03}").into_bytes()).collect();
    let together = keyspace.multi_get(&keys).unwrap();
    for (key, value) in keys.iter().zip(together) {
        assert_eq!(value.as_deref(), map.get(key).map(|value| &value[..]));
        assert_eq!(keyspace.get(key).unwrap(), value);
    }
    let mut cursor = keyspace.cursor();
    let middle = &keys[KEYS / 2];
    cursor.seek(middle).unwrap();
    let next = map.range(middle.clone()..).next().map(|(key, _)| &key[..]);
    assert_eq!(cursor.key(), next);
}
