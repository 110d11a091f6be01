//! Hostile files: contents that no writer makes, under correct checksums.
//!
//! A block is judged twice: by [`judge`], which follows docs/format.md and knows nothing of the
//! engine, and by every way to read it. An unsound block is `Corruption` that names the table in
//! each of those ways; a sound one reads as written. Checksums cannot find forged files. These
//! tests check that nothing panics, reserves memory without bound, or takes half a block for a
//! whole one.

use crate::support::rng::{Rng, seeds, setting};
use crate::support::seal::{
    self, Handle, KeyValues, LAST_SEQUENCE, LogRecord, NO_DATABASE, Named, RawEntry, Said, Stored,
    Table, data_block, data_entry_bytes, directory_of, entries_of, flat_block, handle_bytes,
    internal_key, manifest, masked, put_footer, put_varint, record_file, store_of, take_varint,
};
use crate::support::stores::{
    HOME, copy_of, files as stores_files, files_ending, open, scan, scan_back, small_options,
};
use siftdb::env::{Env, MemEnv};
use siftdb::filter::xxph3_64;
use siftdb::inspect::verify_table;
use siftdb::{Db, Error, Filter, Options, Recovery};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const INTERVAL_MAX: usize = 256;
const KEY_BYTES_MAX: usize = 65_535;
const SEQUENCE_MAX: u64 = (1 << 56) - 1;

/// Entries of a block as user key, trailer and value.
type Versions = Vec<(Vec<u8>, u64, Vec<u8>)>;

/// A data block in its parts. `restarts` should name the offsets of the entries, whose keys end in
/// whole trailers.
#[derive(Clone, Debug, Default, PartialEq)]
struct Parts {
    entries: Vec<RawEntry>,
    restarts: Vec<u32>,
    /// With `None` the block says that it has no hash index.
    fingerprints: Option<Vec<u8>>,
    /// The base: each trailer is written as its difference to it.
    base: u64,
    /// Bytes of each trailer.
    width: u8,
}

impl Parts {
    fn entry_bytes(&self) -> (Vec<u8>, Vec<u32>) {
        data_entry_bytes(&self.entries, self.base, self.width.into())
    }

    fn bytes(&self) -> Vec<u8> {
        let (mut bytes, _) = self.entry_bytes();
        self.restarts.iter().for_each(|place| bytes.extend_from_slice(&place.to_le_bytes()));
        let mut count = self.restarts.len() as u32;
        if let Some(fingerprints) = &self.fingerprints {
            bytes.extend_from_slice(fingerprints);
            bytes.extend_from_slice(&(fingerprints.len() as u16).to_le_bytes());
            count |= 1 << 31;
        }
        bytes.extend_from_slice(&self.base.to_le_bytes());
        bytes.push(self.width);
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes
    }

    /// Restarts where they belong: at every `interval`-th entry.
    fn with_restarts(mut self, interval: usize) -> Self {
        let (_, places) = self.entry_bytes();
        self.restarts = places.into_iter().step_by(interval).collect();
        self
    }
}

/// Splits a block as far as its lengths allow; `None` if they exceed it.
fn parts_of(block: &[u8]) -> Option<Parts> {
    let u32_of = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).ok();
    let (rest, count) = block.split_at_checked(block.len().checked_sub(4)?)?;
    let count = u32_of(count)?;
    let (rest, width) = rest.split_at_checked(rest.len().checked_sub(1)?)?;
    let (rest, base) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
    let (base, width) = (u64::from_le_bytes(base.try_into().ok()?), width[0]);
    if !(1..=8).contains(&width) {
        return None;
    }
    let (rest, fingerprints) = if count >> 31 == 1 {
        let (rest, len) = rest.split_at_checked(rest.len().checked_sub(2)?)?;
        let len = u16::from_le_bytes(len.try_into().ok()?);
        let (rest, fingerprints) = rest.split_at_checked(rest.len().checked_sub(len.into())?)?;
        (rest, Some(fingerprints.to_vec()))
    } else {
        (rest, None)
    };
    let restarts = (count & (u32::MAX >> 1)) as usize;
    let (mut rest, places) = rest.split_at_checked(rest.len().checked_sub(4 * restarts)?)?;
    let restarts = places.chunks(4).map(u32_of).collect::<Option<_>>()?;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (shared, behind) = take_varint(rest)?;
        let (own, behind) = take_varint(behind)?;
        let (value, behind) = take_varint(behind)?;
        let (key, behind) = behind.split_at_checked(usize::try_from(own).ok()?)?;
        let (above, behind) = behind.split_at_checked(width.into())?;
        let (value, behind) = behind.split_at_checked(usize::try_from(value).ok()?)?;
        let above = above.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        let trailer = base.checked_add(above)?.to_le_bytes();
        entries.push((shared, [key, &trailer].concat(), value.to_vec()));
        rest = behind;
    }
    Some(Parts { entries, restarts, fingerprints, base, width })
}

/// The contents of a data block, or `None` if it must be refused.
fn judge(block: &[u8]) -> Option<Versions> {
    let Parts { entries, restarts, fingerprints, width, .. } = parts_of(block)?;
    let fingerprints_fit = fingerprints
        .is_none_or(|fingerprints| !fingerprints.is_empty() && fingerprints.len() == entries.len());
    if restarts.is_empty() || !fingerprints_fit {
        return None;
    }
    // The start of an entry is found in the bytes, because a varint may be longer than needed.
    let mut places = Vec::new();
    let mut rest = block;
    for (_, key, value) in &entries {
        places.push((block.len() - rest.len()) as u32);
        for _ in 0..3 {
            rest = take_varint(rest)?.1;
        }
        rest = &rest[key.len() - 8 + usize::from(width) + value.len()..];
    }
    if entries.is_empty() {
        return (restarts == [0]).then(Versions::new);
    }
    if restarts[0] != 0 || !restarts.is_sorted_by(|a, b| a < b) {
        return None;
    }
    if !restarts.iter().all(|restart| places.contains(restart)) {
        return None;
    }
    // All intervals but the last are of one length, and the last is no longer.
    let first_of = |restart| places.iter().position(|place| place == restart);
    let mut lengths: Vec<usize> = restarts.iter().filter_map(first_of).collect();
    lengths.push(entries.len());
    let lengths: Vec<usize> = lengths.windows(2).map(|ends| ends[1] - ends[0]).collect();
    let (last, others) = lengths.split_last()?;
    let interval = others.first().copied().unwrap_or(INTERVAL_MAX);
    if interval > INTERVAL_MAX || others.iter().any(|len| *len != interval) || *last > interval {
        return None;
    }
    let mut versions = Versions::new();
    let mut may_share = 0;
    for (number, (shared, own, value)) in entries.into_iter().enumerate() {
        let restarts = number % interval == 0;
        let none = (Vec::new(), u64::MAX, Vec::new());
        let (last, last_trailer, _) = versions.last().unwrap_or(&none);
        let (user, trailer) = own.split_last_chunk::<8>()?;
        let trailer = u64::from_le_bytes(*trailer);
        let shared = usize::try_from(shared).ok()?;
        if shared > if restarts { 0 } else { may_share } {
            return None;
        }
        let user = [last.get(..shared)?, user].concat();
        may_share = if restarts { user.len() } else { shared };
        let ordered = versions.is_empty() || (last, !last_trailer) < (&user, !trailer);
        if !ordered || trailer & 0xff > 1 || user.len() > KEY_BYTES_MAX {
            return None;
        }
        versions.push((user, trailer, value));
    }
    Some(versions)
}

/// The fingerprints that a hash index of these versions has.
fn right_fingerprints(versions: &Versions) -> Vec<u8> {
    versions.iter().map(|(user, ..)| (xxph3_64(user) >> 24) as u8).collect()
}

/// The possible reads of these versions.
fn visible(versions: &Versions) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut seen = BTreeSet::new();
    let mut map = BTreeMap::new();
    for (user, trailer, value) in versions {
        if trailer >> 8 <= LAST_SEQUENCE && seen.insert(user) && trailer & 0xff == 1 {
            map.insert(user.clone(), value.clone());
        }
    }
    map
}

fn options() -> Options {
    small_options().snappy(false).filter(Filter::none()).auto_compaction(false)
}

/// The only table of a database with several versions of many keys.
fn written(options: &Options, keys: usize) -> (Table, BTreeMap<Vec<u8>, Vec<u8>>) {
    let env = MemEnv::new();
    let db = open(&env, options).unwrap();
    let mut rng = Rng::new(keys as u64);
    let mut map = BTreeMap::new();
    let mut snapshots = Vec::new();
    for round in 0..3 {
        for number in 0..keys {
            let key = format!("k{:03}/{}", number, "tail".repeat(number % 3)).into_bytes();
            if rng.chance(25) {
                db.delete(&key).unwrap();
                map.remove(&key);
            } else if round == 0 || rng.chance(40) {
                let value = format!("{round} {number}").into_bytes();
                db.put(&key, &value).unwrap();
                map.insert(key, value);
            }
        }
        snapshots.push(db.snapshot());
    }
    db.flush().unwrap();
    let table = env.read_file(&files_ending(&env, ".sst")[0]).unwrap();
    let table = Table::take_apart(&table).unwrap();
    assert_eq!(Table::take_apart(&table.assemble()).unwrap().assemble(), table.assemble());
    (table, map)
}

fn table_path() -> PathBuf {
    Path::new(HOME).join("000002.sst")
}

/// A disk with a database whose only table is this one, with that many entries.
fn disk_of(table: &[u8], entries: usize) -> MemEnv {
    copy_of(&store_of(Path::new(HOME), table, entries.max(1) as u64))
}

/// The table with `block` as its only data block, below a separator that is above every key.
fn with_block(table: &Table, block: Vec<u8>) -> Vec<u8> {
    let separator = match separators_are_internal(table) {
        true => internal_key(&[0xff; 20], 0, 0),
        false => vec![0xff; 20],
    };
    Table { data: vec![(separator, Stored::raw(block))], ..table.clone() }.assemble()
}

fn separators_are_internal(table: &Table) -> bool {
    let properties = table.named.iter().find(|named| named.name == b"siftdb.properties").unwrap();
    let all = entries_of(&properties.block.bytes);
    all.iter().any(|(name, value)| name == b"index_key_is_user_key" && *value == [0])
}

/// The error names the table.
fn blames_the_table(error: &Error) -> bool {
    match error {
        Error::Corruption { path, .. } => *path == table_path(),
        // A background job failed, and its error is kept.
        Error::ReadOnly { cause } => blames_the_table(cause),
        _ => false,
    }
}

fn must_blame<T: std::fmt::Debug>(result: siftdb::Result<T>, what: &str) {
    match result {
        Err(error) => assert!(blames_the_table(&error), "{what}: {error}"),
        Ok(found) => panic!("{what}: answered {found:?}"),
    }
}

/// Reads the block with `keys` in every way. Each read must name the table, also when repeated.
fn must_refuse(db: &Db, keys: &[&[u8]], what: &str) {
    for _ in 0..2 {
        for key in keys {
            must_blame(db.get(key), &format!("{what}: get {}", key.escape_ascii()));
        }
        must_blame(db.multi_get(keys), &format!("{what}: multi_get"));
        for backwards in [false, true] {
            let from: &[u8] = keys[0];
            let walk = || db.range(from..=keys[keys.len() - 1]);
            let found = if backwards { walk().next_back() } else { walk().next() };
            must_blame(found.transpose(), &format!("{what}: range"));
        }
    }
}

/// Scans a database with the one block `versions`, both ways.
fn must_walk(db: &Db, versions: &Versions, what: &str) {
    let expected = visible(versions);
    assert_eq!(scan(db).unwrap(), expected, "{what}");
    let back = scan_back(db).unwrap();
    assert!(back.iter().rev().map(|(k, v)| (k, v)).eq(&expected), "{what}, backwards: {back:?}");
}

/// Looks up every key of a database with the one block `versions`, and those in `ask`.
fn must_find(db: &Db, versions: &Versions, ask: &[Vec<u8>], what: &str) {
    let expected = visible(versions);
    for key in ask.iter().chain(versions.iter().map(|(user, _, _)| user)) {
        let found = db.get(key).unwrap();
        let expected = expected.get(key).map(Vec::as_slice);
        assert_eq!(found.as_deref(), expected, "{what}: {}", key.escape_ascii());
        let found = db.multi_get([key]).unwrap();
        assert_eq!(found[0].as_deref(), expected, "{what}: batch of {}", key.escape_ascii());
    }
}

/// Three entries and a tombstone, the second and third sharing with the one before.
fn sound() -> Parts {
    let entry = |shared, user: &[u8], sequence, kind, value: &[u8]| {
        (shared, internal_key(user, sequence, kind), value.to_vec())
    };
    let entries = vec![
        entry(0, b"key1", 9, 1, b"new"),
        entry(4, b"", 5, 1, b"old"),
        entry(3, b"2", 7, 0, b""),
        entry(3, b"3", 8, 1, b"three"),
    ];
    Parts { entries, base: 5 << 8, width: 3, ..Parts::default() }.with_restarts(16)
}

/// Every malformation of a data block; everything else in each block is sound.
fn malformations() -> Vec<(&'static str, Vec<u8>)> {
    let with = |change: fn(&mut Parts)| {
        let mut parts = sound();
        change(&mut parts);
        parts.bytes()
    };
    let relaid = |change: fn(&mut Parts)| {
        let mut parts = sound();
        change(&mut parts);
        parts.with_restarts(2).bytes()
    };
    let tail = |tail: &[u8]| {
        let mut bytes = sound().bytes();
        bytes.truncate(bytes.len() - 4);
        bytes.extend_from_slice(tail);
        bytes
    };
    // A sound end after one unsound entry.
    let ended = |entry: &[u8]| [entry, &[0; 12], &[3, 1, 0, 0, 0]].concat();
    vec![
        ("no bytes", vec![]),
        ("shorter than its count", vec![1, 0, 0]),
        ("no restarts", with(|b| b.restarts.clear())),
        ("more restarts than fit", tail(&[200, 0, 0, 0])),
        ("as many restarts as a count can say", tail(&(u32::MAX >> 1).to_le_bytes())),
        ("restarts whose bytes wrap around", tail(&0x4000_0001u32.to_le_bytes())),
        ("a first restart that is not the first entry", with(|b| b.restarts[0] = 15)),
        ("a restart inside an entry", with(|b| b.restarts.push(7))),
        ("a restart beyond the entries", with(|b| b.restarts.push(5000))),
        ("a restart at the end of the entries", {
            let mut parts = sound();
            parts.restarts.push(parts.entry_bytes().0.len() as u32);
            parts.bytes()
        }),
        ("a restart far beyond the block", with(|b| b.restarts.push(u32::MAX))),
        ("a restart twice", with(|b| b.restarts.push(0))),
        ("restarts in the wrong order", relaid_swapped()),
        (
            "a restart at an entry that shares",
            with(|b| {
                let (_, places) = b.entry_bytes();
                b.restarts.push(places[2]);
            }),
        ),
        ("a first entry that shares", with(|b| b.entries[0].0 = 1)),
        ("shares more than the key before", with(|b| b.entries[2].0 = 5)),
        ("shares the trailer of the key before", with(|b| b.entries[2].0 = 8)),
        ("shares all that can be said", with(|b| b.entries[2].0 = u64::MAX)),
        ("keys out of order", with(|b| b.entries[3].1[0] = b'0')),
        (
            "a key twice",
            with(|b| {
                b.entries[3] = b.entries[2].clone();
                b.entries[3].0 = 3;
            }),
        ),
        (
            "versions from old to new",
            with(|b| {
                b.entries[1].1 = internal_key(b"", 10, 1);
            }),
        ),
        ("two versions of one number", with(|b| b.entries[1].1 = internal_key(b"", 9, 1))),
        (
            "keys out of order at a restart",
            relaid(|b| {
                b.entries[2] = (0, internal_key(b"key0", 7, 0), vec![]);
            }),
        ),
        ("an unknown kind", with(|b| b.entries[3].1 = internal_key(b"3", 8, 2))),
        ("a kind of all bits", with(|b| b.entries[0].1 = internal_key(b"key1", 9, 255))),
        ("trailers without bytes", with(|b| b.width = 0)),
        ("trailers of nine bytes", with(|b| b.width = 9)),
        ("a trailer beyond all numbers", {
            let mut bytes = sound().bytes();
            let base = bytes.len() - 13;
            bytes[base..base + 8].fill(0xff);
            bytes
        }),
        ("an end without room for the base", vec![0, 0, 0, 0, 0, 0, 0, 8, 1, 0, 0, 0]),
        (
            "a key longer than any",
            with(|b| {
                b.entries[3] = (0, internal_key(&vec![b'z'; KEY_BYTES_MAX + 1], 8, 1), vec![]);
            }),
        ),
        (
            "a key that grew longer than any by sharing",
            with(|b| {
                b.entries[2] = (0, internal_key(&vec![b'y'; KEY_BYTES_MAX], 8, 1), vec![]);
                b.entries[3] = (60_000, internal_key(&vec![b'z'; 6_000], 8, 1), vec![]);
            }),
        ),
        (
            "257 entries without a restart",
            with(|b| {
                let versions = (1..=257).rev();
                let entry = |n| {
                    (
                        if n == 257 { 0 } else { 3 },
                        internal_key(if n == 257 { b"key" } else { b"" }, n, 1),
                        vec![],
                    )
                };
                b.entries = versions.map(entry).collect();
                b.base = 0;
            }),
        ),
        ("a value beyond the entries", {
            let mut parts = sound();
            parts.entries.pop();
            let mut bytes = parts.entry_bytes().0;
            bytes.extend_from_slice(&[3, 1, 200, b'3', 1, 8, 0, b'x']);
            ended(&bytes)
        }),
        ("a trailer beyond the entries", ended(&[0, 1, 0, b'k', 1, 1])),
        ("lengths that wrap around", {
            let mut bytes = vec![0];
            put_varint(&mut bytes, u64::MAX - 3);
            put_varint(&mut bytes, u64::MAX - 3);
            ended(&bytes)
        }),
        ("a length without an end", ended(&[0xff; 12])),
        ("shares more than the entry before", with(|b| b.entries[3].0 = 4)),
        (
            "a restart interval of another length",
            with(|b| {
                b.entries[1] = (0, internal_key(b"key1", 5, 1), vec![]);
                b.entries[3] = (0, internal_key(b"key3", 8, 1), vec![]);
                let (_, places) = b.entry_bytes();
                b.restarts = vec![0, places[1], places[3]];
            }),
        ),
        (
            "a restart interval shorter than the first",
            with(|b| {
                b.entries[2] = (0, internal_key(b"key2", 7, 0), vec![]);
                b.entries[3] = (0, internal_key(b"key3", 8, 1), vec![]);
                let (_, places) = b.entry_bytes();
                b.restarts = vec![0, places[2], places[3]];
                b.entries.push((0, internal_key(b"key4", 8, 1), vec![]));
                let (_, places) = b.entry_bytes();
                b.restarts.push(places[4]);
            }),
        ),
        (
            "a last restart interval longer than the others",
            with(|b| {
                b.entries[1] = (0, internal_key(b"key1", 5, 1), vec![]);
                let (_, places) = b.entry_bytes();
                b.restarts.push(places[1]);
            }),
        ),
        ("a hash index without fingerprints", with(|b| b.fingerprints = Some(vec![]))),
        ("a hash index longer than the block", {
            let mut bytes = sound().bytes();
            let end = bytes.split_off(bytes.len() - 13);
            [&bytes[..], &[0xff, 0xff], &end[..9], &[1, 0, 0, 0x80]].concat()
        }),
        ("a fingerprint too few", with(|b| b.fingerprints = Some(vec![7; 3]))),
        ("a fingerprint too many", with(|b| b.fingerprints = Some(vec![7; 5]))),
    ]
}

fn relaid_swapped() -> Vec<u8> {
    let mut parts = sound();
    parts.entries[2] = (0, internal_key(b"key2", 7, 0), vec![]);
    let mut parts = parts.with_restarts(2);
    parts.restarts.swap(0, 1);
    parts.bytes()
}

#[test]
fn the_test_oracle_agrees_with_the_writer() {
    for (hash_index, keys) in [(true, 40), (false, 40), (true, 3)] {
        let (table, map) = written(&options().block_hash_index(hash_index), keys);
        let versions: Versions =
            table.data.iter().flat_map(|(_, block)| judge(&block.bytes).unwrap()).collect();
        assert_eq!(visible(&versions), map);
        assert!(versions.len() > map.len() && versions.is_sorted_by_key(|v| (v.0.clone(), !v.1)));
    }
    assert_eq!(judge(&sound().bytes()).unwrap().len(), 4);
    for (what, block) in malformations() {
        assert_eq!(judge(&block), None, "{what}");
    }
}

#[test]
fn reads_refuse_every_malformed_block() {
    let (table, _) = written(&options(), 40);
    let keys: [&[u8]; 4] = [b"key0", b"key1", b"key2", b"key9"];
    for (what, block) in malformations() {
        for options in [options(), options().block_cache_bytes(0)] {
            let env = disk_of(&with_block(&table, block.clone()), 4);
            let db = open(&env, &options).unwrap();
            must_refuse(&db, &keys, what);
            // A table alone is moved and not rewritten, so this write adds another.
            db.put("key2x", "").unwrap();
            must_blame(db.compact_range(..), &format!("{what}: compaction"));
            must_refuse(&db, &keys, what);
            drop(db);
            let env: Arc<dyn Env> = Arc::new(env);
            must_blame(verify_table(&env, &table_path()), what);
        }
    }
}

/// The neighbours of a malformed block stay readable, and an iterator ends at that block.
#[test]
fn a_malformed_block_leaves_its_neighbours_readable() {
    let (table, map) = written(&options(), 60);
    assert!(table.data.len() > 3);
    let versions: Vec<Versions> =
        table.data.iter().map(|(_, block)| judge(&block.bytes).unwrap()).collect();
    for (number, (what, block)) in malformations().into_iter().enumerate() {
        let at = number % table.data.len();
        let mut forged = table.clone();
        forged.data[at].1 = Stored::raw(block);
        let entries = versions.iter().map(Vec::len).sum();
        let db = open(&disk_of(&forged.assemble(), entries), &options()).unwrap();
        let concerned: BTreeSet<&Vec<u8>> = versions[at].iter().map(|(user, ..)| user).collect();
        // Versions of one key may be in the block before as well.
        for (key, value) in &map {
            match db.get(key) {
                Ok(found) => assert_eq!(found.as_deref(), Some(&value[..]), "{what}"),
                Err(error) => {
                    assert!(concerned.contains(key) && blames_the_table(&error), "{what}: {error}");
                }
            }
        }
        let mut walk = db.iter();
        let before: usize = versions[..at].iter().map(Vec::len).sum();
        let mut good = 0;
        let error = loop {
            match walk.next() {
                Some(Ok((key, value))) => assert_eq!(map[&key[..]], &value[..]),
                Some(Err(error)) => break error,
                None => panic!("{what} in block {at}: the walk passed by"),
            }
            good += 1;
        };
        assert!(blames_the_table(&error) && good <= before, "{what}: {error}");
        assert!(walk.next().is_none());
    }
}

/// A wrong hash index misleads lookups. Checksums do not find it; `verify` does.
#[test]
fn verify_finds_a_wrong_hash_index() {
    let (table, _) = written(&options().block_bytes(8 << 10), 40);
    let block = table.data[0].1.bytes.clone();
    let versions = judge(&block).unwrap();
    let mut parts = parts_of(&block).unwrap();
    assert_eq!(parts.fingerprints, Some(right_fingerprints(&versions)));
    let last =
        parts.fingerprints.as_mut().and_then(|fingerprints| fingerprints.last_mut()).unwrap();
    *last = !*last;
    let env = disk_of(&with_block(&table, parts.bytes()), versions.len());
    let db = open(&env, &options()).unwrap();
    must_walk(&db, &versions, "a lying tag");
    versions.iter().for_each(|(user, ..)| drop(db.get(user).unwrap()));
    drop(db);
    let env: Arc<dyn Env> = Arc::new(env);
    must_blame(verify_table(&env, &table_path()), "a lying tag");
}

/// A random change of the contents: an entry, a restart, the order. In most cases the fingerprints
/// are changed to match.
fn bend(parts: &mut Parts, rng: &mut Rng) {
    bend_entries(parts, rng);
    if let Some(fingerprints) = parts.fingerprints.take() {
        let versions = judge(&parts.bytes()).filter(|_| rng.chance(70));
        let mut kept = fingerprints;
        kept.resize(parts.entries.len(), rng.next() as u8);
        parts.fingerprints = Some(versions.map_or(kept, |versions| right_fingerprints(&versions)));
    }
}

fn bend_entries(parts: &mut Parts, rng: &mut Rng) {
    let count = parts.entries.len();
    let at = rng.below(count);
    let relay = rng.chance(60);
    match rng.below(10) {
        0 => parts.entries[at].0 = parts.entries[at].0.wrapping_add(rng.below(3) as u64) ^ 1,
        1 => parts.entries[at].0 = rng.below(20) as u64,
        2 if !parts.entries[at].1.is_empty() => {
            let len = parts.entries[at].1.len();
            let byte = rng.below(len);
            parts.entries[at].1[byte] ^= 1 << rng.below(8);
        }
        3 => {
            let len = parts.entries[at].1.len();
            let place = rng.below(len + 1);
            parts.entries[at].1.insert(place, *rng.pick(&[0, 1, b'a', 0xff]));
        }
        4 if parts.entries[at].1.len() > 8 => {
            parts.entries[at].1.remove(0);
        }
        5 => parts.entries.swap(at, (at + 1) % count),
        6 if count > 1 => {
            parts.entries.remove(at);
        }
        7 => {
            let copy = parts.entries[at].clone();
            parts.entries.insert(at, copy);
        }
        8 => {
            let restart = rng.below(parts.restarts.len());
            let change = *rng.pick(&[1, u32::MAX, 17, 4, 1 << 31]);
            parts.restarts[restart] = parts.restarts[restart].wrapping_add(change);
            return;
        }
        _ => {
            let restart = rng.below(parts.restarts.len());
            let twice = parts.restarts[restart];
            parts.restarts.insert(restart, twice.wrapping_sub(rng.below(2) as u32));
            return;
        }
    }
    if relay {
        let (_, places) = parts.entry_bytes();
        let restarts = places.iter().step_by(16).take(parts.restarts.len().max(1));
        parts.restarts = restarts.copied().collect();
    }
}

/// A random change of the bytes.
fn break_bytes(block: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.below(block.len());
    match rng.below(6) {
        0 => block[at] = *rng.pick(&[0, 1, 0x7f, 0x80, 0xff]),
        1 => block.insert(at, rng.next() as u8),
        2 if block.len() > 1 => {
            block.remove(at);
        }
        3 => {
            // The offset of the counts.
            let at = block.len() - 1 - rng.below(block.len().min(24));
            block[at] = block[at].wrapping_add(*rng.pick(&[1, 255, 2, 128]));
        }
        _ => block[at] ^= 1 << rng.below(8),
    }
}

/// Every read refuses the blocks that the judge refuses, and reads the blocks that it accepts as
/// they are written. Changes of the block check are tested by this.
#[test]
fn mutated_blocks_read_consistently_or_fail() {
    let mut sound_ones = 0;
    let mut trials = 0;
    let rounds = setting("SIFTDB_HOSTILE_ROUNDS", 150);
    for seed in seeds(4) {
        for hash_index in [false, true] {
            let keys = [2, 5, 18, 60][seed as usize % 4];
            let options = options().block_hash_index(hash_index).block_bytes(8 << 10);
            let (table, map) = written(&options, keys);
            let base = table.data[0].1.bytes.clone();
            let ask: Vec<Vec<u8>> =
                judge(&base).unwrap().into_iter().map(|(user, ..)| user).collect();
            let mut rng = Rng::new(seed);
            for round in 0..rounds {
                let mut block = base.clone();
                for _ in 0..1 + rng.below(2) {
                    match parts_of(&block) {
                        Some(mut parts)
                            if !parts.entries.is_empty()
                                && !parts.restarts.is_empty()
                                && rng.chance(60) =>
                        {
                            bend(&mut parts, &mut rng);
                            block = parts.bytes();
                        }
                        _ => break_bytes(&mut block, &mut rng),
                    }
                }
                let what = format!("seed {seed}, hash index {hash_index}, round {round}");
                let judged = judge(&block);
                let entries = judged.as_ref().map_or(1, Vec::len);
                let env = disk_of(&with_block(&table, block.clone()), entries);
                let db = open(&env, &options).unwrap();
                trials += 1;
                match judged {
                    None => {
                        let keys: Vec<&[u8]> = ask.iter().map(Vec::as_slice).collect();
                        must_refuse(&db, &keys, &what);
                    }
                    Some(versions) => {
                        sound_ones += 1;
                        must_walk(&db, &versions, &what);
                        let fingerprints = parts_of(&block).unwrap().fingerprints;
                        if fingerprints.is_none_or(|fingerprints| {
                            fingerprints == right_fingerprints(&versions)
                        }) {
                            must_find(&db, &versions, &ask, &what);
                        } else {
                            // A hash index that does not fit its entries misleads lookups.
                            // Checksums do not find it; `verify` does.
                            ask.iter().for_each(|key| drop(db.get(key)));
                        }
                    }
                }
            }
            assert!(map.len() <= keys);
        }
    }
    println!("{trials} blocks, {sound_ones} of them sound");
    assert!(sound_ones * 20 > trials, "{sound_ones} of {trials} blocks are sound");
}

/// Handles that cannot be blocks of a file of `len` bytes whose blocks end before `index`.
fn nowhere(len: u64, index: u64) -> Vec<Handle> {
    let footer = len - 56;
    vec![
        (0, len),
        (0, u64::MAX),
        (u64::MAX, 0),
        (u64::MAX - 4, 3),
        (u64::MAX, u64::MAX),
        (len, 1),
        (1 << 40, 5),
        (0, (1 << 30) + (1 << 20)),
        (footer, 51),
        (footer - 5, 1),
        (footer, 0),
        // A handle into the block that holds it, and the handle of that block.
        (index, 10),
        (index - 3, 10),
    ]
}

/// Opening fails and names the table. Unless `at_open`, it may succeed, and then every scan fails.
fn must_fail(file: &[u8], entries: usize, at_open: bool, what: &str) {
    match open(&disk_of(file, entries), &options()) {
        Err(error) => assert!(blames_the_table(&error), "{what}: {error}"),
        Ok(db) => {
            assert!(!at_open, "{what}: opened");
            must_blame(scan(&db), what);
            must_blame(scan_back(&db), what);
        }
    }
}

fn entries_in(table: &Table) -> usize {
    table.data.iter().map(|(_, block)| judge(&block.bytes).unwrap().len()).sum()
}

#[test]
fn hostile_handles_are_refused_everywhere() {
    let (table, map) = written(&options(), 40);
    let entries = entries_in(&table);
    let good = table.assemble();
    assert_eq!(scan(&open(&disk_of(&good, entries), &options()).unwrap()).unwrap(), map);
    // Reads that need the index read it; opening reads everything else.
    let refuse = |file: Vec<u8>, at_open, what: &str| must_fail(&file, entries, at_open, what);
    let len = good.len() as u64;
    let footer = good.len() - 56;
    let word = |i: usize| u64::from_le_bytes(good[footer + 8 * i..][..8].try_into().unwrap());
    let (metaindex, index) = ((word(0), word(1)), (word(2), word(3)));
    for handle in nowhere(len, index.0) {
        let what = format!("handle {handle:?}");
        for (metaindex, index, at_open) in [(handle, index, true), (metaindex, handle, false)] {
            let mut file = good[..footer].to_vec();
            put_footer(&mut file, metaindex, index, (table.id, table.version));
            refuse(file, at_open, &format!("{what} in the footer"));
        }
        let forged = |mut entries: KeyValues| {
            entries[0].1 = handle_bytes(handle);
            flat_block(&entries)
        };
        let index = table.assemble_with(forged, |e| flat_block(&e));
        refuse(index, false, &format!("{what}: index"));
        let properties = table.assemble_with(|e| flat_block(&e), forged);
        refuse(properties, true, &format!("{what}: properties"));
    }
    // A block of the other kind, with a correct checksum.
    let mut file = good[..footer].to_vec();
    put_footer(&mut file, index, metaindex, (table.id, table.version));
    must_fail(&file, entries, false, "index and metaindex exchanged");
    let bend: [fn(&mut KeyValues); 6] = [
        |entries| entries.swap(0, 1),
        |entries| entries[1].1 = entries[0].1.clone(),
        |entries| entries[1].0 = entries[0].0.clone(),
        |entries| entries[1].1.push(0),
        |entries| entries[1].1.truncate(1),
        |entries| drop(entries.drain(..2)),
    ];
    for (number, bend) in bend.into_iter().enumerate() {
        let forged = |mut entries: KeyValues| {
            bend(&mut entries);
            flat_block(&entries)
        };
        let file = table.assemble_with(forged, |entries| flat_block(&entries));
        // The last one omits blocks and is consistent; the missing entries are noticed at the end.
        must_fail(&file, entries, false, &format!("index {number}"));
    }
}

/// A table with the right size and correct checksums, but another id.
#[test]
fn tables_with_another_id_are_refused() {
    let (table, _) = written(&options(), 20);
    let mut files = store_of(Path::new(HOME), &table.assemble(), entries_in(&table) as u64);
    let other = Table { id: table.id ^ 1, ..table };
    files.insert(table_path(), other.assemble());
    must_blame(open(&copy_of(&files), &options()).map(drop), "another table's id");
}

#[test]
fn compression_bombs_are_refused() {
    let (table, _) = written(&options(), 10);
    let good = sound().bytes();
    let compressed = |declared: u64, literal: &[u8]| {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, declared);
        bytes.push((literal.len() as u8 - 1) << 2);
        bytes.extend_from_slice(literal);
        bytes
    };
    let part = &good[..20];
    for declared in [1 << 32, u64::from(u32::MAX), 1 << 30, 22 * 24, 1 << 20, 60, 19, 0] {
        let block = Stored { kind: 1, ..Stored::raw(compressed(declared, part)) };
        let table = Table { data: vec![(vec![0xff; 30], block)], ..table.clone() };
        let db = open(&disk_of(&table.assemble(), 4), &options()).unwrap();
        let error = db.get("key1").unwrap_err();
        let message = error.to_string();
        let before_memory_is_taken = declared < 1 << 20
            || message.contains("declares")
            || message.contains("larger than allowed");
        assert!(blames_the_table(&error) && before_memory_is_taken, "{declared}: {error}");
    }
    for bytes in [vec![], vec![0xff; 9], vec![20], compressed(20, part)[..10].to_vec()] {
        let block = Stored { kind: 1, ..Stored::raw(bytes) };
        let table = Table { data: vec![(vec![0xff; 30], block)], ..table.clone() };
        must_fail(&table.assemble(), 4, false, "no Snappy");
    }
    let block = Stored { kind: 9, ..Stored::raw(good) };
    let table = Table { data: vec![(vec![0xff; 30], block)], ..table };
    must_fail(&table.assemble(), 4, false, "compressed by a method of the future");
}

/// Filters with every bit set, so that only the fields after the bits can deny a key. Each filter
/// has one hostile field. Empty for names under which this layout stores no filter.
fn filters_of_hostile_figures(layout: &str, encoding: &str) -> Vec<Vec<u8>> {
    let figures =
        [0..9u8, 30..34, 62..66, 126..131, 200..201, 253..254].into_iter().flatten().chain([255]);
    let figures: Vec<u8> = figures.collect();
    let trailers: &[&[u8]] = match encoding {
        "leveldb.BuiltinBloomFilter2" => &[&[6]],
        _ => &[&[0xff, 0, 6, 0, 0], &[6, 1, 0, 0, 0], &[0xff; 5]],
    };
    let mut filters = Vec::new();
    for trailer in trailers {
        for (at, &figure) in (0..trailer.len()).flat_map(|at| figures.iter().map(move |f| (at, f)))
        {
            let mut filter = vec![0xff; 64];
            filter.extend_from_slice(trailer);
            filter[64 + at] = figure;
            // A Ribbon filter is an equation: bits that are all set deny half of all keys.
            if trailer.len() == 1 || filter[64] != 0xfe {
                filters.push(filter);
            }
        }
    }
    if layout != "filter." {
        return filters;
    }
    // The filter as the only window of a block, and then the hostile fields of the block itself.
    let in_block = |filter: &[u8], array: u32, window_shift: u8| {
        let offset = 0u32.to_le_bytes();
        [filter, &offset, &array.to_le_bytes(), &[window_shift]].concat()
    };
    let mut blocks: Vec<_> =
        filters.iter().map(|filter| in_block(filter, filter.len() as u32, 30)).collect();
    let plain = [0xff; 65];
    for array in [66, 67, 68, 70, 1 << 20, u32::MAX - 3, u32::MAX] {
        blocks.push(in_block(&plain, array, 30));
    }
    blocks.extend([64, 65, 127, 128, 255].map(|shift| in_block(&plain, 65, shift)));
    blocks.extend((0..9).map(|len| vec![0xff; len]));
    blocks
}

#[test]
fn hostile_filters_deny_nothing() {
    let (table, map) = written(&options(), 20);
    let entries = entries_in(&table);
    for layout in ["filter.", "fullfilter.", "partitionedfilter."] {
        for encoding in [
            "leveldb.BuiltinBloomFilter2",
            "rocksdb.BuiltinBloomFilter",
            "siftdb.FastLocalBloom",
            "siftdb.LegacyBloom",
            "siftdb.Ribbon",
        ] {
            for filter in filters_of_hostile_figures(layout, encoding) {
                let mut table = table.clone();
                let name = format!("{layout}{encoding}").into_bytes();
                let block = Stored::raw(filter.clone());
                let children = match layout {
                    "partitionedfilter." => vec![(vec![0xff; 30], block.clone())],
                    _ => Vec::new(),
                };
                table.named.insert(0, Named { name, block, children });
                let db = open(&disk_of(&table.assemble(), entries), &options()).unwrap();
                for (key, value) in &map {
                    let found = db.get(key).unwrap();
                    let what = format!("{layout}{encoding}: {:?}", &filter[filter.len().min(64)..]);
                    assert_eq!(found.as_deref(), Some(&value[..]), "{what}");
                }
            }
        }
    }
}

/// Readers rely on the properties of a table, so impossible ones are damage.
#[test]
fn tables_with_impossible_properties_are_refused() {
    let (table, map) = written(&options(), 20);
    let entries = entries_in(&table);
    let properties = entries_of(&table.named[0].block.bytes);
    let try_with = |properties: &KeyValues, what: &str| {
        let mut table = table.clone();
        table.named[0].block = Stored::raw(flat_block(properties));
        match open(&disk_of(&table.assemble(), entries), &options()) {
            Err(error) => assert!(error.is_corruption(), "{what}: {error}"),
            Ok(db) => match scan(&db) {
                Err(error) => assert!(blames_the_table(&error), "{what}: {error}"),
                Ok(found) => assert_eq!(found, map, "{what}"),
            },
        }
    };
    for (at, (name, _)) in properties.iter().enumerate() {
        let name = String::from_utf8_lossy(name);
        let mut fewer = properties.clone();
        fewer.remove(at);
        try_with(&fewer, &format!("without {name}"));
        for value in [&b""[..], &[0], &[1], &[7], &[0x80], &[0xff; 11], b"nonsense"] {
            let mut changed = properties.clone();
            changed[at].1 = value.to_vec();
            try_with(&changed, &format!("{name} {value:?}"));
        }
    }
    let unnamed = table.assemble_with(|e| flat_block(&e), |_| flat_block(&[]));
    must_fail(&unnamed, entries, true, "no properties");
    let misnamed = |mut names: KeyValues| {
        let handle = names[0].1.clone();
        names.push((b"siftdb.rangedel".to_vec(), handle));
        flat_block(&names)
    };
    let env = disk_of(&table.assemble_with(|e| flat_block(&e), misnamed), entries);
    let error = open(&env, &options()).unwrap_err();
    assert!(error.is_corruption() && blames_the_table(&error), "{error}");
}

/// Rescued entries may have sequences above those that their table and the manifest mention. The
/// repaired manifest was below them, and refused. Found by fuzzing.
#[test]
fn repair_continues_above_every_found_sequence() {
    let (table, _) = written(&options(), 20);
    let block = data_block(&internal_key(b"k", LAST_SEQUENCE + 5, 1), b"v");
    let env = disk_of(&with_block(&table, block), entries_in(&table));
    let repair = || options().env(Arc::new(env.clone())).repair(HOME).unwrap();
    let report = repair();
    assert!(report.manifest_used && report.entries == 1, "{report}");
    let db = open(&env, &options()).unwrap();
    assert!(db.verify(|_| {}).unwrap().is_sound());
    assert_eq!(db.get("k").unwrap().unwrap(), "v");
    db.put("k", "later").unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), "later");
    db.close().unwrap();
    drop(db);
    assert!(!repair().changed);
}

#[test]
fn unknown_format_versions_are_named() {
    let (table, _) = written(&options(), 20);
    let store = store_of(Path::new(HOME), &table.assemble(), 1);
    let log = seal::log(3, &[]);
    for name in ["CURRENT", "MANIFEST-000001", "000002.sst", "000003.wal"] {
        let path = Path::new(HOME).join(name);
        let mut files = store.clone();
        files.insert(Path::new(HOME).join("000003.wal"), log.clone());
        let file = files.get_mut(&path).unwrap();
        match name {
            "CURRENT" => {
                *file = b"siftdb 2 MANIFEST-000001 ".to_vec();
                seal::seal(name, file);
            }
            "000002.sst" => {
                let footer = file.len() - 56;
                file[footer + 44] = 3;
                let sum = masked(&[&file[footer..footer + 40], &file[footer + 44..]]);
                file[footer + 40..footer + 44].copy_from_slice(&sum.to_le_bytes());
            }
            _ => {
                // Logs have version 2 where they name bulk loads.
                file[8] = if name.ends_with(".wal") { 3 } else { 2 };
                seal::seal(name, file);
            }
        }
        let env = copy_of(&files);
        let error = open(&env, &options()).unwrap_err();
        assert!(
            matches!(&error, Error::UnsupportedFormat { path: p, .. } if *p == path),
            "{error}"
        );
        assert!(stores_files(&env) == files, "{name}: something was changed");
    }
}

/// Numbers at the end of a counter's range, in a consistent manifest.
#[test]
fn exhausted_counters_are_refused() {
    let max = (1 << 56) - 1;
    // A file under a number above the counter's end is not taken for a new one.
    let ends = |error: &Error| {
        let message = error.to_string();
        message.contains("used up") || message.contains("already exists")
    };
    for next_file in [1000, 1 << 56, (1 << 57) - 6, 1 << 57, (1 << 57) + 1, u64::MAX] {
        for last_sequence in [LAST_SEQUENCE, max - 5, max, max + 1, u64::MAX] {
            let what = format!("next file {next_file}, last sequence {last_sequence}");
            let said = Said { next_file, last_sequence, ..Said::default() };
            let env = copy_of(&directory_of(Path::new(HOME), manifest(1, said, &[]), &[]));
            let is_ordinary = next_file <= 1 << 56 && last_sequence < max - 5;
            let mut written = Vec::new();
            for round in 0..4 {
                let db = match open(&env, &options()) {
                    Ok(db) => db,
                    Err(error) => {
                        let is_end = error.is_corruption() && round == 0;
                        assert!(is_end || ends(&error) && !is_ordinary, "{what}: {error}");
                        break;
                    }
                };
                for number in 0..4 {
                    let key = format!("{round} {number}").into_bytes();
                    match db.put(&key, "value") {
                        Ok(()) => written.push(key),
                        Err(error) => {
                            assert!(ends(&error) && !is_ordinary, "{what}: {error}");
                        }
                    }
                }
                let _ = db.flush();
                for key in &written {
                    assert!(db.get(key).unwrap().is_some(), "{what}: {}", key.escape_ascii());
                }
                let _ = db.close();
            }
            assert!(!is_ordinary || written.len() == 16, "{what}: {} writes", written.len());
        }
    }
}

#[test]
fn impossible_log_records_are_refused() {
    let batch = |sequence: u64, count: u32, entries: &[u8]| {
        let mut body = sequence.to_le_bytes().to_vec();
        body.extend_from_slice(&count.to_le_bytes());
        body.extend_from_slice(entries);
        (body, 2)
    };
    let one = b"\x01\x01a\x01b";
    let good = batch(1, 1, one);
    let cases: Vec<(&str, Vec<LogRecord>)> = vec![
        ("more entries than it says", vec![batch(1, 1, b"\x01\x01a\x01b\x00\x01c")]),
        ("fewer entries than it says", vec![batch(1, 2, one)]),
        ("as many entries as a count can say", vec![batch(1, u32::MAX, one)]),
        ("no entries", vec![batch(1, 0, b"")]),
        ("a sequence of 0", vec![batch(0, 1, one)]),
        ("a sequence beyond all", vec![batch(1 << 56, 1, one)]),
        ("a sequence that wraps around", vec![batch(u64::MAX, 2, b"\x01\x01a\x01b\x00\x01c")]),
        ("a sequence that goes back", vec![good.clone(), good.clone()]),
        ("a sequence that leaves one out", vec![good.clone(), batch(3, 1, one)]),
        ("an unknown kind of entry", vec![batch(1, 1, b"\x0f\x01a\x01b")]),
        ("an expiring entry without its time", vec![batch(1, 1, b"\x03\x01a\x01b")]),
        ("a key beyond the record", vec![batch(1, 1, b"\x01\x7fa\x01b")]),
        ("a length without an end", vec![batch(1, 1, &[[1].as_slice(), &[0xff; 12]].concat())]),
        ("a key longer than any", {
            let mut entry = vec![0];
            put_varint(&mut entry, KEY_BYTES_MAX as u64 + 1);
            entry.extend_from_slice(&vec![b'k'; KEY_BYTES_MAX + 1]);
            vec![batch(1, 1, &entry)]
        }),
        ("a second start", vec![([&[0, 0, 1, 1, 0][..], &NO_DATABASE].concat(), 1)]),
        ("a record of an unknown kind", vec![good.clone(), (vec![1], 9)]),
        ("a keyspace that was never created", vec![batch(1, 1, b"\x41\x05\x01a\x01b")]),
        ("the default keyspace by its number", vec![batch(1, 1, b"\x41\x00\x01a\x01b")]),
        ("a keyspace without an end", vec![batch(1, 1, b"\x41\xff\xff\xff\xff\xff\x01a\x01b")]),
    ];
    let said = Said { first_log: 2, flushed_through: 0, next_file: 10, last_sequence: 0 };
    let store = |log: Vec<u8>| {
        copy_of(&directory_of(Path::new(HOME), manifest(1, said, &[]), &[("000002.wal", log)]))
    };
    let db = open(&store(seal::log(2, std::slice::from_ref(&good))), &options()).unwrap();
    assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"b"[..]));
    for (what, records) in cases {
        let env = store(seal::log(2, &records));
        let before = stores_files(&env);
        let error = open(&env, &options()).expect_err(what);
        assert!(error.is_corruption() && error.to_string().contains("00000"), "{what}: {error}");
        assert!(stores_files(&env) == before, "{what}: a refused opening changed files");
    }
}

/// Durability claims are compared with every log. An impossible claim is damage at its offset, and
/// a salvage ignores it.
#[test]
fn impossible_durability_claims_are_damage() {
    let varint = |value| {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, value);
        bytes
    };
    // After the durable sequence: previous log and sequence, first sequence, manifest; kind.
    let start =
        |synced| [varint(synced), vec![0, 0, 1, 1, 0], NO_DATABASE.to_vec(), vec![1]].concat();
    let batch = |synced, sequence: u64| {
        let entry = [1, 0, 0, 0, 1, 1, b'a', 1, b'b', 2];
        [varint(synced), sequence.to_le_bytes().to_vec(), entry.to_vec()].concat()
    };
    let said = Said { first_log: 2, flushed_through: 0, next_file: 10, last_sequence: 0 };
    let store = |records: &[Vec<u8>]| {
        let log = record_file(b"siftdbWL", 2, records);
        copy_of(&directory_of(Path::new(HOME), manifest(1, said, &[]), &[("000002.wal", log)]))
    };
    let good = [start(0), batch(0, 1), batch(1, 2)];
    assert_eq!(open(&store(&good), &options()).unwrap().get("a").unwrap().unwrap(), "b");
    let claims = [1, 2, SEQUENCE_MAX, SEQUENCE_MAX + 1, u64::MAX];
    let starts = claims.map(|claim| (0, [start(claim), batch(0, 1), batch(1, 2)]));
    let batches = claims.map(|claim| (2, [start(0), batch(0, 1), batch(claim, 2)]));
    let later =
        [SEQUENCE_MAX + 1, u64::MAX].map(|last| (2, [start(0), batch(0, 1), batch(1, last)]));
    let claims = starts.iter().chain(&batches[1..]).chain(&later);
    for (at, (bad, records)) in claims.enumerate() {
        let env = store(records);
        let place = 20 + records[..*bad].iter().map(|record| 11 + record.len() as u64).sum::<u64>();
        let error = open(&env, &options()).unwrap_err();
        assert!(
            matches!(&error, Error::Corruption { path, offset, .. }
                if path.ends_with("000002.wal") && *offset == place),
            "{at}: {error}"
        );
        let db = open(&env, &options().recovery(Recovery::Salvage)).unwrap();
        assert_eq!(db.get("a").unwrap().unwrap(), "b", "{at}");
        db.put("c", "d").unwrap();
        db.close().unwrap();
    }
}
