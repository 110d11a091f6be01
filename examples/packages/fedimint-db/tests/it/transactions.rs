//! What the tests of crashes and kills commit, and what must be there afterwards.
//!
//! Transaction `n` of a writer writes `n` under four keys that all its transactions share, and under
//! one key of its own. It removes the key of transaction `n - 10`. So a half of it shows.

use fedimint_core::db::{Database, IDatabaseTransactionOpsCore};
use futures_util::StreamExt;

const SHARED_KEYS: u64 = 4;
const KEPT: u64 = 10;

fn shared_key(writer: u64, key: u64) -> Vec<u8> {
    format!("{writer}/shared/{key}").into_bytes()
}

fn own_key(writer: u64, number: u64) -> Vec<u8> {
    format!("{writer}/own/{number:08}").into_bytes()
}

/// Values of many sizes.
fn value(number: u64) -> Vec<u8> {
    let len = 8 + (number as usize * 37) % 1000;
    number.to_be_bytes().into_iter().cycle().take(len).collect()
}

/// Commits transaction `number` of `writer`, while another one has written and is then dropped.
pub async fn commit(db: &Database, writer: u64, number: u64) {
    let mut dropped = db.begin_transaction().await;
    dropped.ignore_uncommitted();
    dropped.raw_insert_bytes(&own_key(writer, u64::MAX), b"never committed").await.unwrap();
    let mut dbtx = db.begin_transaction().await;
    for key in 0..SHARED_KEYS {
        dbtx.raw_insert_bytes(&shared_key(writer, key), &value(number)).await.unwrap();
    }
    dbtx.raw_insert_bytes(&own_key(writer, number), &value(number)).await.unwrap();
    if number > KEPT {
        let removed = dbtx.raw_remove_entry(&own_key(writer, number - KEPT)).await.unwrap();
        assert_eq!(removed, Some(value(number - KEPT)));
    }
    dbtx.commit_tx_result().await.unwrap();
}

async fn entries(db: &Database, prefix: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut dbtx = db.begin_transaction_nc().await;
    dbtx.raw_find_by_prefix(prefix.as_bytes()).await.unwrap().collect().await
}

/// Checks that the database has exactly the transactions 1 to some number of `writer`, each of them
/// whole. Returns that number.
pub async fn check(db: &Database, writer: u64) -> u64 {
    let own = entries(db, &format!("{writer}/own/")).await;
    let last =
        own.last().map_or(0, |(_, value)| u64::from_be_bytes(value[..8].try_into().unwrap()));
    let first = last.saturating_sub(KEPT) + 1;
    let expected = (first..=last).map(|number| (own_key(writer, number), value(number)));
    assert_eq!(own, expected.collect::<Vec<_>>(), "the own keys of writer {writer}");
    let expected = (0..SHARED_KEYS).filter(|_| last > 0);
    let expected = expected.map(|key| (shared_key(writer, key), value(last)));
    let shared = entries(db, &format!("{writer}/shared/")).await;
    assert_eq!(shared, expected.collect::<Vec<_>>(), "the shared keys of writer {writer}");
    last
}
