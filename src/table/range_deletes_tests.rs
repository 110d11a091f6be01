//! Tests of tables with range deletes, with entries and without.

use crate::base::error::Result;
use crate::base::iterator::api::Direction;
use crate::base::key::{
    Lookup, LookupKey, SEQUENCE_MAX, compare_internal, split_internal_key, user_key,
};
use crate::base::range_deletes::{RangeDelete, RangeDeletes};
use crate::base::sync::Arc;
use crate::env::api::Env;
use crate::table::builder::{TableBuilder, TableOptions, TableSummary};
use crate::table::reader::{Expect, TableReadOptions};
use crate::table::salvage::{Expected, salvage};
use crate::table::tests::{
    Entries, PATH, READ, TABLE_ID, any_entries, any_options, filters, get, model_get, multi_get,
    new_env, open, options, small_entries, walk,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::path::Path;

pub(super) fn written(
    options: &TableOptions,
    entries: &Entries,
    deletes: &[RangeDelete],
) -> (Vec<u8>, TableSummary) {
    let env = new_env();
    let file = env.create_new(Path::new(PATH)).unwrap();
    let mut builder = TableBuilder::new(file, PATH.into(), TABLE_ID, options.clone());
    for (key, value) in entries {
        builder.add(key, value).unwrap();
    }
    builder.add_range_deletes(RangeDeletes::fragmented(deletes, &[]));
    let summary = builder.finish().unwrap();
    (env.read_file(Path::new(PATH)).unwrap(), summary)
}

fn delete(start: &str, end: &str, sequence: u64) -> RangeDelete {
    let end = (!end.is_empty()).then(|| end.as_bytes().to_vec());
    RangeDelete { start: start.into(), end, sequence }
}

/// Ranges over the keys of [`any_entries`], some of them without an end or without a key.
fn any_deletes() -> impl Strategy<Value = Vec<RangeDelete>> {
    let letter = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(b'b'), Just(0xff)];
    let key = vec(letter, 0..4);
    let delete = (key.clone(), proptest::option::weighted(0.8, key), 1u64..12);
    vec(delete.prop_map(|(start, end, sequence)| RangeDelete { start, end, sequence }), 0..6)
}

/// The newest version of a key among the entries, unless a newer range delete covers it.
pub(super) fn expected(entries: &Entries, deletes: &[RangeDelete], user: &[u8], at: u64) -> Lookup {
    let covering = RangeDeletes::fragmented(deletes, &[]).covering(user, at);
    let key = LookupKey::new(user, at);
    let found = entries.iter().find(|(k, _)| compare_internal(k, key.internal_key()).is_ge());
    let newest = found.filter(|(k, _)| user_key(k) == user);
    let sequence = newest.and_then(|(k, _)| split_internal_key(k)).map(|(_, trailer)| trailer >> 8);
    match covering {
        covering if covering > 0 && sequence.is_none_or(|own| own < covering) => Lookup::Deleted,
        _ => model_get(entries, user, at),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// Single and batched lookups, with any filter, see a range delete wherever it is the newest.
    #[test]
    fn range_deletes_hide_older_entries(
        entries in any_entries(),
        deletes in any_deletes(),
        options in any_options(),
        others in any_entries(),
        pinned: bool,
    ) {
        let fragments = RangeDeletes::fragmented(&deletes, &[]);
        prop_assume!(!entries.is_empty() || !fragments.is_empty());
        let (bytes, summary) = written(&options, &entries, &deletes);
        let table = open(&bytes, Expect::default(), pinned).unwrap();
        prop_assert_eq!(table.range_deletes().cloned().unwrap_or_default(), fragments.clone());
        prop_assert_eq!(table.properties.range_deletes, fragments.count());
        let report = table.verify(&mut |_| ()).unwrap();
        prop_assert_eq!(report.entries, entries.len() as u64);

        let mut keys: Vec<&[u8]> =
            entries.iter().chain(&others).map(|(key, _)| user_key(key)).collect();
        keys.sort_unstable();
        for at in [0, 1, 4, 7, 11, SEQUENCE_MAX] {
            for use_filters in [true, false] {
                let read = TableReadOptions { use_filters, ..READ };
                for key in &keys {
                    let expected = expected(&entries, &deletes, key, at);
                    prop_assert_eq!(get(&table, key, at, read).unwrap(), expected);
                }
                for key in multi_get(&table, &keys, at, read).unwrap() {
                    let user = key.lookup.user_key();
                    prop_assert_eq!(key.answer, expected(&entries, &deletes, user, at));
                }
            }
        }
        // Iterators know nothing of range deletes.
        prop_assert_eq!(walk(&table, Direction::Forward, None).unwrap(), entries.clone());
        prop_assert_eq!(&summary.range_deletes, &fragments);
        prop_assert_eq!(&summary.properties, &table.properties);
    }
}

#[test]
fn a_table_may_have_only_range_deletes() {
    for filter in filters() {
        for pinned in [true, false] {
            let (bytes, _) =
                written(&options(filter.clone()), &Entries::new(), &[delete("b", "d", 5)]);
            let table = open(&bytes, Expect::default(), pinned).unwrap();
            for at in [4, 5] {
                let covered = if at == 5 { Lookup::Deleted } else { Lookup::Absent };
                assert_eq!(get(&table, b"c", at, READ).unwrap(), covered);
                assert_eq!(get(&table, b"d", at, READ).unwrap(), Lookup::Absent);
                let answers = multi_get(&table, &[b"a", b"c", b"d"], at, READ).unwrap();
                let answers: Vec<_> = answers.into_iter().map(|key| key.answer).collect();
                assert_eq!(answers, [Lookup::Absent, covered, Lookup::Absent]);
            }
            table.verify(&mut |_| ()).unwrap();
            for direction in [Direction::Forward, Direction::Reverse] {
                for bound in [None, Some(&b"c\0\0\0\0\0\0\0\0"[..])] {
                    assert!(walk(&table, direction, bound).unwrap().is_empty());
                }
            }
            let found = &table.properties;
            assert_eq!((found.entries, found.range_deletes), (0, 1));
            assert_eq!((found.smallest_sequence, found.largest_sequence), (5, 5));
        }
    }
}

#[test]
fn range_deletes_count_against_the_budget() {
    let reserved = |deletes: &[RangeDelete]| {
        let (bytes, _) = written(&options(None), &small_entries(), deletes);
        let table = open(&bytes, Expect::default(), true).unwrap();
        let own = table.range_deletes().map_or(0, RangeDeletes::memory_bytes);
        (table.file.cache.reserved_bytes(), own)
    };
    let deletes: Vec<_> =
        (1..100).map(|n| delete(&format!("{n:03}"), &format!("{:03}", n + 1), n)).collect();
    let ((without, none), (with, own)) = (reserved(&[]), reserved(&deletes));
    assert!(none == 0 && own > 99 * 16);
    assert_eq!(with, without + own);
}

/// A flipped bit anywhere in the table makes it an error, or changes no answer.
#[test]
fn damaged_range_deletes_never_change_answers() {
    let deletes =
        [delete("key000", "key030", 7), delete("key021", "key060", 300), delete("x", "", 3)];
    let (bytes, _) = written(&options(None), &small_entries(), &deletes);
    let keys: Vec<String> = (0..130).map(|n| format!("key{n:03}")).chain(["y".into()]).collect();
    let answers = |bytes: &[u8]| -> Result<Vec<Lookup>> {
        let table = open(bytes, Expect::default(), true)?;
        keys.iter().map(|key| get(&table, key.as_bytes(), SEQUENCE_MAX, READ)).collect()
    };
    let expected = answers(&bytes).unwrap();
    let mut refused = 0;
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        match answers(&damaged) {
            Ok(found) => assert_eq!(found, expected, "byte {at}"),
            Err(error) => {
                assert!(error.is_corruption(), "byte {at}: {error}");
                refused += 1;
            }
        }
        if let Ok(table) = open(&damaged, Expect::default(), true) {
            assert!(table.verify(&mut |_| ()).is_err(), "byte {at}");
        }
    }
    assert!(refused > bytes.len() / 2);
}

/// Whatever byte is damaged: a rescue saves all range deletes, or says that they are lost.
#[test]
fn rescued_tables_name_lost_range_deletes() {
    for (entries, filter) in [(small_entries(), 2), (Entries::new(), 2), (small_entries(), 0)] {
        let deletes = [delete("key000", "key030", 7), delete("key021", "key060", 300)];
        let filter = filters().swap_remove(filter);
        let (bytes, summary) = written(&options(filter), &entries, &deletes);
        let salvaged = |bytes: &[u8], range_deletes| {
            let env = new_env();
            env.write_file(Path::new(PATH), bytes);
            let expected = Expected {
                table_id: Some(TABLE_ID),
                sequences: 0..=SEQUENCE_MAX,
                global_sequence: None,
                entries: Some(entries.len() as u64),
                range_deletes,
            };
            let env: Arc<dyn Env> = Arc::new(env);
            salvage(&env, Path::new(PATH), &expected, &mut |_, _| Ok(())).unwrap()
        };
        let counted = summary.properties.range_deletes;
        let mut lost = 0;
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            // With and without a manifest that knows them; and a file that ends here.
            for (bytes, known) in [
                (&damaged[..], Some(counted)),
                (&damaged, None),
                (&bytes[..at], Some(counted)),
                (&bytes[..at], None),
            ] {
                let found = salvaged(bytes, known);
                if found.range_deletes == summary.range_deletes {
                    continue;
                }
                lost += 1;
                assert!(found.range_deletes.is_empty(), "byte {at}");
                assert!(!found.lost.is_empty(), "byte {at}");
            }
        }
        assert!(lost > 0);
        assert!(salvaged(&bytes, None).lost.is_empty());
    }
}
