//! Tests of ingested tables: their entries are written with sequence 0, and every reader gives them
//! the sequence of the manifest. The model is the same table written with that sequence.

use crate::base::error::Result;
use crate::base::iterator::api::Direction;
use crate::base::key::{SEQUENCE_MAX, ValueKind, compare_internal, put_internal_key};
use crate::base::sync::Arc;
use crate::cache::cache::Cache;
use crate::table::batch_key::BatchKey;
use crate::table::builder::TableOptions;
use crate::table::reader::{Expect, Table, TableReadOptions};
use crate::table::salvage::Expected;
use crate::table::salvage_tests::salvaged;
use crate::table::tests::{
    Entries, PATH, READ, TABLE_ID, any_options, bytes_of, get, ingested_bytes_of, multi_get,
    new_env, open, open_in, options, walk,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

/// Keys and values; `None` deletes.
type Contents = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn any_contents() -> impl Strategy<Value = Contents> {
    let letter = prop_oneof![Just(0u8), Just(b'a'), Just(b'b'), Just(0xff)];
    let value = proptest::option::weighted(0.8, vec(any::<u8>(), 0..300));
    btree_map(vec(letter, 0..6), value, 1..120)
}

fn entries(contents: &Contents, sequence: u64) -> Entries {
    let entry = |(key, value): (&Vec<u8>, &Option<Vec<u8>>)| {
        let kind = if value.is_some() { ValueKind::Put } else { ValueKind::Tombstone };
        let mut internal = Vec::new();
        put_internal_key(&mut internal, key, sequence, kind);
        (internal, value.clone().unwrap_or_default())
    };
    contents.iter().map(entry).collect()
}

fn given(sequence: u64) -> Expect {
    Expect { global_sequence: Some(Some(sequence)), ..Expect::default() }
}

/// The table with everything in memory, with cached filters, and with a cache that keeps nothing.
fn opened(bytes: &[u8], expect: Expect) -> Vec<Arc<Table>> {
    let uncached = || {
        let env = new_env();
        env.write_file(Path::new(PATH), bytes);
        open_in(env, expect, Cache::new(0, 0.0)).unwrap()
    };
    vec![open(bytes, expect, true).unwrap(), open(bytes, expect, false).unwrap(), uncached()]
}

/// Both tables answer every question in the same way.
fn compare(ingested: &Arc<Table>, written: &Arc<Table>, contents: &Contents, sequence: u64) {
    let without_filters = TableReadOptions { use_filters: false, ..READ };
    // Where the windows of a filter begin depends on the compressed size of blocks, and that on the
    // sequences in them: an absent key may be a false positive of one table alone.
    let has_windows = written.filter.layout_name() == "block-based";
    let absent = [b"".to_vec(), b"ab\x01".to_vec(), b"zz".to_vec()];
    let mut keys: Vec<&[u8]> = contents.keys().chain(&absent).map(Vec::as_slice).collect();
    keys.sort_unstable();
    for at in [0, 1, sequence - 1, sequence, sequence.saturating_add(1), SEQUENCE_MAX] {
        let at = at.min(SEQUENCE_MAX);
        for read in [READ, without_filters] {
            // Twice: the second time, the structure of an uncached block is known to be sound.
            for key in keys.iter().chain(&keys) {
                let answer = get(ingested, key, at, read).unwrap();
                assert_eq!(answer, get(written, key, at, read).unwrap(), "{key:?} at {at}");
            }
            let [ours, theirs] = [ingested, written].map(|table| {
                let batch = multi_get(table, &keys, at, read).unwrap();
                let told = |key: BatchKey<'_>| ((!has_windows).then_some(key.verdict), key.answer);
                batch.into_iter().map(told).collect::<Vec<_>>()
            });
            assert_eq!(ours, theirs, "at {at}");
        }
        for key in &keys {
            let mut bound = Vec::new();
            put_internal_key(&mut bound, key, at, ValueKind::Put);
            for direction in [Direction::Forward, Direction::Reverse] {
                let [ours, theirs] =
                    [ingested, written].map(|table| walk(table, direction, Some(&bound)).unwrap());
                assert_eq!(ours, theirs, "{direction:?} from {bound:?}");
            }
        }
    }
    let forward = walk(ingested, Direction::Forward, None).unwrap();
    assert_eq!(forward, entries(contents, sequence));
    let mut reverse = walk(ingested, Direction::Reverse, None).unwrap();
    reverse.reverse();
    assert_eq!(reverse, forward);
    let [ours, theirs] = [ingested, written].map(|table| &table.properties);
    assert_eq!(ours.smallest_key, theirs.smallest_key);
    assert_eq!(ours.largest_key, theirs.largest_key);
    assert_eq!((ours.smallest_sequence, ours.largest_sequence), (sequence, sequence));
    let [ours, theirs] = [ingested, written].map(|table| table.verify(&mut |_| {}).unwrap());
    assert_eq!(ours.entries, theirs.entries);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn ingested_tables_read_as_if_written_with_their_sequence(
        contents in any_contents(),
        options in any_options(),
        sequence in prop_oneof![1..9u64, 250..260u64, Just(SEQUENCE_MAX - 1), Just(SEQUENCE_MAX)],
    ) {
        let ingested = ingested_bytes_of(&options, &entries(&contents, 0));
        let written = bytes_of(&options, &entries(&contents, sequence));
        let written = opened(&written, Expect::default());
        for (ingested, written) in opened(&ingested, given(sequence)).iter().zip(&written) {
            compare(ingested, written, &contents, sequence);
        }
        // A rescue gives the sound entries the same sequence, and refuses them without one.
        let rescue = Expected {
            table_id: Some(TABLE_ID),
            sequences: sequence..=sequence,
            global_sequence: Some(sequence),
            entries: None,
            range_deletes: Some(0),
        };
        let (kept, found) = salvaged(&ingested, &rescue).unwrap();
        prop_assert_eq!(kept, entries(&contents, sequence));
        prop_assert!(found.lost.is_empty());
        let unknown = Expected { sequences: 1..=SEQUENCE_MAX, global_sequence: None, ..rescue };
        let (kept, found) = salvaged(&ingested, &unknown).unwrap();
        prop_assert!(kept.is_empty() && !found.lost.is_empty());
        prop_assert!(found.lost[0].error.to_string().contains("without a sequence"));
    }
}

fn contents() -> Contents {
    (0..200u8).map(|i| (vec![i], (i % 7 > 0).then(|| vec![i; 50]))).collect()
}

fn refusal(opened: Result<Arc<Table>>) -> String {
    let error = opened.unwrap_err();
    assert!(error.is_corruption(), "{error}");
    error.to_string()
}

#[test]
fn manifest_and_ingested_table_must_agree() {
    let options = options(None);
    let ingested = ingested_bytes_of(&options, &entries(&contents(), 0));
    let written = bytes_of(&options, &entries(&contents(), 7));
    let own = Expect { global_sequence: Some(None), ..Expect::default() };
    assert!(open(&written, own, true).is_ok());
    assert!(refusal(open(&ingested, own, true)).contains("manifest does not say"));
    assert!(refusal(open(&written, given(7), true)).contains("no ingested table"));
    // Without a manifest, the table shows what is in it.
    let alone = open(&ingested, Expect::default(), true).unwrap();
    assert!(alone.properties.ingested);
    assert_eq!(walk(&alone, Direction::Forward, None).unwrap(), entries(&contents(), 0));
    assert_eq!(alone.verify(&mut |_| {}).unwrap().entries, 200);
}

#[test]
fn ingested_tables_with_own_sequences_are_refused() {
    let options = TableOptions { block_bytes: 400, ..options(None) };
    let mut mixed = entries(&contents(), 0);
    mixed[150] = entries(&contents(), 3)[150].clone();
    let bytes = ingested_bytes_of(&options, &mixed);
    assert!(refusal(open(&bytes, given(7), true)).contains("sequences of its own"));
    // Two versions of a key, which would be equally old.
    let mut doubled = entries(&contents(), 0);
    let mut tombstone = Vec::new();
    put_internal_key(&mut tombstone, &[150], 0, ValueKind::Tombstone);
    doubled.insert(151, (tombstone, Vec::new()));
    assert!(doubled.is_sorted_by(|a, b| compare_internal(&a.0, &b.0).is_lt()));
    let table = open(&ingested_bytes_of(&options, &doubled), given(7), true).unwrap();
    let error = table.verify(&mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("twice in an ingested table"), "{error}");
}
