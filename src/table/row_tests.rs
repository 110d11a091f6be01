//! Tests of rows: a lookup has the same answer from a row as from its block.

use crate::base::coding::put_varint;
use crate::base::key::{Lookup, SEQUENCE_MAX, ValueKind, compare_internal, put_internal_key};
use crate::base::range_deletes::RangeDelete;
use crate::base::sync::Arc;
use crate::base::value::Value;
use crate::cache::cache::Cache;
use crate::cache::recency_list::CacheKey;
use crate::table::builder::TableOptions;
use crate::table::index::BlockCache;
use crate::table::range_deletes_tests::{expected, written};
use crate::table::reader::{Expect, Table, TableReadOptions};
use crate::table::tests::{
    Entries, PATH, READ, TABLE_ID, get, ingested_bytes_of, multi_get, new_env, open_in, options,
};
use siftdb_filter::hash::KeyHash;
use std::collections::BTreeSet;
use std::path::Path;

const KEYS: u64 = 400;

fn user(n: u64) -> Vec<u8> {
    let mut key = b"key/".to_vec();
    put_varint(&mut key, n);
    key
}

/// Up to three versions of each third key, of all kinds, in blocks of about ten entries.
fn entries() -> Entries {
    let mut entries = Entries::new();
    for n in (0..KEYS).filter(|n| n % 3 > 0) {
        for sequence in (1..=1 + n % 3).map(|version| 10 * version + n % 7) {
            let kind = match sequence % 5 {
                0 => ValueKind::Tombstone,
                1 => ValueKind::ExpiringPut,
                _ => ValueKind::Put,
            };
            let bytes = if kind == ValueKind::Tombstone { 0 } else { 8 + n as usize % 40 };
            let mut key = Vec::new();
            put_internal_key(&mut key, &user(n), sequence, kind);
            entries.push((key, vec![sequence as u8; bytes]));
        }
    }
    entries.sort_by(|a, b| compare_internal(&a.0, &b.0));
    entries
}

/// A table of these bytes, and its cache, which is smaller than its blocks.
fn open_starved(bytes: &[u8], expect: Expect) -> (Arc<Table>, Arc<BlockCache>) {
    let env = new_env();
    env.write_file(Path::new(PATH), bytes);
    let cache = Cache::new(12 << 10, 0.0);
    (open_in(env, expect, cache.clone()).unwrap(), cache)
}

fn has_row(cache: &BlockCache, n: u64) -> bool {
    cache.row(CacheKey::of_row(TABLE_ID, KeyHash::new(&user(n)).xxph3())).is_some()
}

/// A few keys are asked for often, at the newest sequence and at older ones, in a cache that is too
/// small for the blocks.
#[test]
fn rows_answer_as_blocks_do() {
    let entries = entries();
    let options = TableOptions { block_bytes: 512, ..options(None) };
    let delete =
        |from, to, sequence| RangeDelete { start: user(from), end: Some(user(to)), sequence };
    for deletes in [vec![], vec![delete(20, 60, 25), delete(50, 90, 18), delete(300, 301, 36)]] {
        let (bytes, _) = written(&options, &entries, &deletes);
        let (table, cache) = open_starved(&bytes, Expect::default());
        let mut state = 1u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % limit
        };
        let (mut of_rows, mut by_batches, mut older, mut kinds) = (0, 0, 0, BTreeSet::new());
        for _ in 0..40_000 {
            let n = if below(4) > 0 { below(20) * 20 + 1 + below(2) } else { below(KEYS) };
            let sequence = if below(4) > 0 { SEQUENCE_MAX } else { below(40) };
            let wanted = expected(&entries, &deletes, &user(n), sequence);
            let is_row = has_row(&cache, n);
            if is_row {
                let newest = expected(&entries, &deletes, &user(n), SEQUENCE_MAX);
                older += u64::from(wanted != newest);
                of_rows += 1;
                kinds.insert(match newest {
                    Lookup::Absent => "absent",
                    Lookup::Deleted => "deleted",
                    Lookup::Found { expires: false, .. } => "put",
                    Lookup::Found { expires: true, .. } => "expiring put",
                });
            }
            let read = TableReadOptions { fill_cache: below(8) > 0, ..READ };
            if below(3) > 0 {
                assert_eq!(
                    get(&table, &user(n), sequence, read).unwrap(),
                    wanted,
                    "{n} {sequence}"
                );
            } else {
                let keys = [&user(n)[..], &user(n + 1)];
                let batch = multi_get(&table, &keys, sequence, read).unwrap();
                assert_eq!(batch[0].answer, wanted, "{n} {sequence}");
                by_batches += u64::from(is_row);
            }
        }
        assert!(
            of_rows > 2_000 && by_batches > 500 && older > 200,
            "{of_rows} {by_batches} {older}"
        );
        assert_eq!(kinds.len(), 4, "{kinds:?}");
    }
}

/// All entries of an ingested table have one sequence, which it has from the manifest.
#[test]
fn rows_of_ingested_tables_have_their_sequence() {
    let mut entries: Entries = (0..KEYS)
        .map(|n| {
            let mut key = Vec::new();
            put_internal_key(&mut key, &user(n), 0, ValueKind::Put);
            (key, vec![n as u8; 40])
        })
        .collect();
    entries.sort_by(|a, b| compare_internal(&a.0, &b.0));
    let bytes = ingested_bytes_of(&TableOptions { block_bytes: 512, ..options(None) }, &entries);
    let given = Expect { global_sequence: Some(Some(50)), ..Expect::default() };
    let (table, cache) = open_starved(&bytes, given);
    (0..KEYS).for_each(|n| drop(get(&table, &user(n), SEQUENCE_MAX, READ).unwrap()));
    for n in (0..KEYS).step_by(7) {
        let value = Lookup::found(Value::from(&[n as u8; 40][..]));
        for sequence in [49, 50, 51, SEQUENCE_MAX, 49, 50] {
            let wanted = if sequence < 50 { &Lookup::Absent } else { &value };
            assert_eq!(get(&table, &user(n), sequence, READ).unwrap(), *wanted, "{n} {sequence}");
        }
    }
    assert!((0..KEYS).any(|n| has_row(&cache, n)));
}

/// It would take the place of many others, and a row of the mean size says nothing of it.
#[test]
fn a_large_entry_among_small_ones_has_no_row() {
    let mut entries = entries();
    let large = entries.len() / 2;
    entries[large].1 = vec![7; 2000];
    let (bytes, _) = written(&TableOptions { block_bytes: 512, ..options(None) }, &entries, &[]);
    let (table, cache) = open_starved(&bytes, Expect::default());
    (0..KEYS).for_each(|n| drop(get(&table, &user(n), SEQUENCE_MAX, READ).unwrap()));
    let is_large = |n: &u64| {
        matches!(get(&table, &user(*n), SEQUENCE_MAX, READ).unwrap(),
            Lookup::Found { stored, .. } if stored.len() == 2000)
    };
    let large = (0..KEYS).find(is_large).unwrap();
    for (n, is_kept) in [(large, false), (4, true)] {
        (0..4).for_each(|_| drop(get(&table, &user(n), SEQUENCE_MAX, READ).unwrap()));
        assert_eq!(has_row(&cache, n), is_kept, "{n}");
    }
}
