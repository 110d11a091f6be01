//! Reads everything in a store by every kind of read, and checks that all of them agree.

use super::stores::{scan, scan_back};
use siftdb::{Db, Keyspace, ReadOptions};
use std::collections::BTreeMap;

/// By name: the contents of a keyspace.
pub type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// The contents of all keyspaces of `db`, each read as [`all_reads`] does.
pub fn all_keyspaces(
    db: &Db,
    keys: impl IntoIterator<Item = impl AsRef<[u8]>> + Clone,
    what: &str,
) -> Contents {
    let read = |name: String| {
        let keyspace = db.keyspace(&name).unwrap_or_else(|error| panic!("{what}: {error}"));
        let what = format!("{what}, keyspace {name}");
        let found = keyspace_reads(&keyspace, keys.clone(), &what);
        (name, found)
    };
    let contents = db.keyspaces().into_iter().map(read).collect();
    check(db, what);
    contents
}

/// The contents of `db`. Scans in both directions, and `get` and `multi_get` with and without
/// filters, must agree on each key of `keys` and each key that a scan found; `verify` must find the
/// store sound. `what` names the store in a failure.
pub fn all_reads(
    db: &Db,
    keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
    what: &str,
) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let found = keyspace_reads(db, keys, what);
    check(db, what);
    found
}

fn check(db: &Db, what: &str) {
    let verified = db.verify(|_| {}).unwrap();
    assert!(verified.is_sound(), "{what}: {:?}", verified.damage);
}

/// The contents of one keyspace, as [`all_reads`] reads it, without `verify`.
pub fn keyspace_reads(
    db: &Keyspace,
    keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
    what: &str,
) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let found = scan(db).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut back = scan_back(db).unwrap_or_else(|error| panic!("{what}, backwards: {error}"));
    back.reverse();
    assert!(back.iter().map(|(k, v)| (k, v)).eq(&found), "{what}: the scans differ");
    let mut asked: Vec<Vec<u8>> = keys.into_iter().map(|key| key.as_ref().to_vec()).collect();
    asked.extend(found.keys().cloned());
    asked.sort();
    asked.dedup();
    for use_filters in [true, false] {
        let options = ReadOptions::new().use_filters(use_filters);
        let together = db.multi_get_with(&asked, &options).unwrap();
        for (number, (key, together)) in asked.iter().zip(together).enumerate() {
            let place = format!("{what}, key {}, filters {use_filters}", key.escape_ascii());
            // A full cache may keep an entry at the third request, and answers the fourth from it.
            for _ in 0..if number % 4 == 0 { 4 } else { 1 } {
                let alone = db.get_with(key, &options).unwrap_or_else(|e| panic!("{place}: {e}"));
                assert_eq!(alone.as_deref(), found.get(key).map(|v| &v[..]), "{place}: get");
            }
            assert_eq!(together.as_deref(), found.get(key).map(|v| &v[..]), "{place}: multi_get");
        }
    }
    found
}
