//! What fedimint promises of its databases, or its RocksDB adapter does, and the suite leaves open.

use fedimint_core::db::{
    Database, DatabaseError, DatabaseTransaction, IDatabaseTransactionOpsCore, IRawDatabase,
    IRawDatabaseExt, IRawDatabaseTransaction,
};
use futures_util::StreamExt;
use siftdb::env::MemEnv;
use siftdb::env::testing::{Calls, EIO, Fault, FaultEnv, FaultKind};
use siftdb::{Db, Options};
use siftdb_fedimint_db::{SiftDb, SiftTransaction};
use std::sync::Arc;
use tempfile::TempDir;

/// A database with the keys `a` to `e`.
async fn open() -> (TempDir, SiftDb) {
    let directory = tempfile::tempdir().unwrap();
    let db = SiftDb::open(directory.path().join("db")).unwrap();
    let mut dbtx = db.begin_transaction().await;
    for key in ["a", "b", "c", "d", "e"] {
        dbtx.raw_insert_bytes(key.as_bytes(), b"old").await.unwrap();
    }
    dbtx.commit_tx().await.unwrap();
    (directory, db)
}

async fn write(db: &SiftDb, key: &str) {
    let mut dbtx = db.begin_transaction().await;
    dbtx.raw_insert_bytes(key.as_bytes(), b"new").await.unwrap();
    dbtx.commit_tx().await.unwrap();
}

async fn keys(dbtx: &mut SiftTransaction, prefix: &[u8]) -> Vec<Vec<u8>> {
    let entries = dbtx.raw_find_by_prefix(prefix).await.unwrap();
    entries.map(|(key, _)| key).collect().await
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_conflict_with_nothing() {
    let (_directory, db) = open().await;
    let mut dbtx = db.begin_transaction().await;
    dbtx.raw_get_bytes(b"a").await.unwrap();
    assert_eq!(keys(&mut dbtx, b"").await.len(), 5);
    dbtx.raw_insert_bytes(b"z", b"own").await.unwrap();
    write(&db, "a").await;
    write(&db, "y").await;
    dbtx.commit_tx().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_write_conflicts() {
    let (_directory, db) = open().await;
    for kind in 0..3 {
        let mut dbtx = db.begin_transaction().await;
        match kind {
            0 => drop(dbtx.raw_insert_bytes(b"a", b"own").await.unwrap()),
            1 => drop(dbtx.raw_remove_entry(b"a").await.unwrap()),
            _ => dbtx.raw_remove_by_prefix(b"a").await.unwrap(),
        }
        write(&db, "a").await;
        let refused = dbtx.commit_tx().await;
        assert!(matches!(refused, Err(DatabaseError::WriteConflict)), "{kind}: {refused:?}");
    }
    let mut dbtx = db.begin_transaction().await;
    assert_eq!(dbtx.raw_get_bytes(b"a").await.unwrap().unwrap(), b"new");
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_by_prefix_keeps_unseen_keys() {
    let (_directory, db) = open().await;
    let mut dbtx = db.begin_transaction().await;
    dbtx.raw_insert_bytes(b"b2", b"own").await.unwrap();
    dbtx.raw_remove_by_prefix(b"b").await.unwrap();
    assert!(keys(&mut dbtx, b"b").await.is_empty());
    write(&db, "b1").await;
    dbtx.commit_tx().await.unwrap();
    assert_eq!(keys(&mut db.begin_transaction().await, b"b").await, [b"b1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_transactions_commit_without_a_common_key() {
    // RocksDB refuses this commit: it keeps 4 MiB of writes to compare with.
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().write_buffer_bytes(256 << 10);
    let db = SiftDb::from(options.open(directory.path().join("db")).unwrap());
    let (mut old, mut late) = (db.begin_transaction().await, db.begin_transaction().await);
    old.raw_insert_bytes(b"a", b"own").await.unwrap();
    late.raw_insert_bytes(&7_u32.to_be_bytes(), b"own").await.unwrap();
    for number in 0..128_u32 {
        let mut dbtx = db.begin_transaction().await;
        dbtx.raw_insert_bytes(&number.to_be_bytes(), &[0xab; 64 << 10]).await.unwrap();
        dbtx.commit_tx().await.unwrap();
    }
    old.commit_tx().await.unwrap();
    assert!(matches!(late.commit_tx().await, Err(DatabaseError::WriteConflict)));
}

#[tokio::test(flavor = "multi_thread")]
async fn too_long_keys_are_refused_when_inserted() {
    let (_directory, db) = open().await;
    let mut dbtx = db.begin_transaction().await;
    let refused = dbtx.raw_insert_bytes(&[1; 1 << 16], b"").await;
    assert!(matches!(refused, Err(DatabaseError::DatabaseBackend(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_hold_what_was_committed() {
    let (directory, db) = open().await;
    let backup = directory.path().join("backup");
    let mut open = db.begin_transaction().await;
    open.raw_insert_bytes(b"f", b"not committed").await.unwrap();
    let mut expected = vec![b"a", b"b", b"c", b"d", b"e"];
    for key in [b"g", b"h"] {
        // The second one brings the first up to date.
        db.checkpoint(&backup).unwrap();
        let copy = SiftDb::from(Db::open_read_only(&backup).unwrap());
        assert_eq!(keys(&mut copy.begin_transaction().await, b"").await, expected);
        write(&db, str::from_utf8(key).unwrap()).await;
        expected.push(key);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_writes_are_synced() {
    let db = Options::new().env(Arc::new(MemEnv::new())).open("/db").unwrap();
    let adapter = SiftDb::from(db.clone());
    write(&adapter, "a").await;
    db.put("b", "not synced yet").unwrap();
    let before = db.stats().wal_syncs;
    let mut dbtx = adapter.begin_transaction().await;
    assert_eq!(keys(&mut dbtx, b"").await, [b"a", b"b"]);
    dbtx.commit_tx().await.unwrap();
    assert_eq!(db.stats().wal_syncs, before);
    write(&adapter, "c").await;
    assert_eq!(db.stats().wal_syncs, before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_values_are_not_shown() {
    let (_directory, db) = open().await;
    let mut dbtx = db.begin_transaction().await;
    dbtx.raw_insert_bytes(b"key", b"secret").await.unwrap();
    assert_eq!(format!("{dbtx:?}"), "SiftTransaction { writes: 1, .. }");
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "a scan failed")]
async fn a_scan_that_cannot_read_panics() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let db = Options::new().env(Arc::new(env.clone())).block_cache_bytes(0).open("/db").unwrap();
    let adapter = SiftDb::from(db.clone());
    write(&adapter, "a").await;
    db.flush().unwrap();
    let fault = Fault::from_then_on(FaultKind::Error(EIO)).among(Calls::Reads);
    env.fail_at(env.calls_of(Calls::Reads), fault);
    let mut dbtx = adapter.begin_transaction().await;
    dbtx.raw_get_bytes(b"a").await.unwrap_err();
    keys(&mut dbtx, b"").await;
}

async fn add_one(dbtx: &mut DatabaseTransaction<'_>) -> Result<(), DatabaseError> {
    let count = dbtx.raw_get_bytes(b"count").await?.unwrap_or(vec![0; 8]);
    let count = u64::from_be_bytes(count.try_into().unwrap()) + 1;
    dbtx.raw_insert_bytes(b"count", &count.to_be_bytes()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn autocommits_lose_no_increment() {
    let (_directory, db) = open().await;
    let db: Database = db.into_database();
    let tasks = (0..4).map(|_| {
        let db = db.clone();
        tokio::spawn(async move {
            for _ in 0..25 {
                db.autocommit(|dbtx, _| Box::pin(add_one(dbtx)), None).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let mut dbtx = db.begin_transaction_nc().await;
    let count = dbtx.raw_get_bytes(b"count").await.unwrap();
    assert_eq!(count.unwrap(), 100_u64.to_be_bytes());
}

/// A commit while another transaction begins is in its snapshot, or conflicts with it. Without
/// waits for a disk there are many of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_commit_comes_between_snapshot_and_transaction() {
    let db = Options::new().env(Arc::new(MemEnv::new())).open("/db").unwrap();
    let db: Database = SiftDb::from(db).into_database();
    let tasks = (0..4).map(|_| {
        let db = db.clone();
        tokio::spawn(async move {
            for _ in 0..2000 {
                loop {
                    let mut dbtx = db.begin_transaction().await;
                    add_one(&mut dbtx.to_ref_nc()).await.unwrap();
                    if dbtx.commit_tx_result().await.is_ok() {
                        break;
                    }
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let mut dbtx = db.begin_transaction_nc().await;
    let count = dbtx.raw_get_bytes(b"count").await.unwrap();
    assert_eq!(count.unwrap(), 8000_u64.to_be_bytes());
}
