//! The same random calls on this database and on fedimint's own in memory, with equal answers.

use crate::random::Random;
use fedimint_core::db::mem_impl::MemDatabase;
use fedimint_core::db::{IDatabaseTransactionOpsCore, IRawDatabase, IRawDatabaseTransaction};
use futures_util::StreamExt;
use siftdb::Options;
use siftdb_fedimint_db::SiftDb;
use std::path::Path;

type Answer = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Up to three of few bytes, so that keys and prefixes meet. 0xff is the last byte of all.
fn key(random: &mut Random) -> Vec<u8> {
    let len = random.below(4);
    (0..len).map(|_| [0, b'a', b'b', 0xff][random.below(4) as usize]).collect()
}

/// One call. The same `random` makes the same call of every transaction.
async fn call(random: &mut Random, dbtx: &mut impl IDatabaseTransactionOpsCore) -> Answer {
    let (kind, key, end) = (random.below(16), key(random), key(random));
    let value = [random.below(256) as u8; 100];
    let stream = match kind {
        0..4 => return vec![(vec![], dbtx.raw_insert_bytes(&key, &value).await.unwrap())],
        4..6 => return vec![(vec![], dbtx.raw_remove_entry(&key).await.unwrap())],
        6..9 => return vec![(vec![], dbtx.raw_get_bytes(&key).await.unwrap())],
        // Not often, because it may empty the database.
        9 if end.is_empty() => {
            dbtx.raw_remove_by_prefix(&key).await.unwrap();
            return vec![];
        }
        9..12 => dbtx.raw_find_by_prefix(&key).await.unwrap(),
        12..14 => dbtx.raw_find_by_prefix_sorted_descending(&key).await.unwrap(),
        _ => dbtx.raw_find_by_range(&key..&end).await.unwrap(),
    };
    // A stream need not be read to its end.
    let take = if random.below(4) == 0 { 2 } else { usize::MAX };
    stream.take(take).map(|(key, value)| (key, Some(value))).collect().await
}

fn open(directory: &Path) -> SiftDb {
    // Nothing stays in memory, so that lookups have to wait for files.
    let options = Options::new().block_cache_bytes(0).max_open_files(1);
    SiftDb::from(options.open(directory).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_equal_those_of_fedimints_memory() {
    let directory = tempfile::tempdir().unwrap();
    let (memory, mut db) = (MemDatabase::new(), open(directory.path()));
    let (mut random, mut entries) = (Random(1), 0);
    for round in 0..200 {
        if round % 20 == 0 {
            // What was in the log is in tables after this.
            drop(db);
            db = open(directory.path());
        }
        let (mut expected, mut found) =
            (memory.begin_transaction().await, db.begin_transaction().await);
        for number in 0..20 {
            let mut same = random.clone();
            let answer = call(&mut random, &mut expected).await;
            assert_eq!(call(&mut same, &mut found).await, answer, "round {round}, call {number}");
            entries += answer.len();
        }
        if random.below(4) > 0 {
            expected.commit_tx().await.unwrap();
            found.commit_tx().await.unwrap();
        }
    }
    assert!(entries > 5_000, "{entries} entries");
}
