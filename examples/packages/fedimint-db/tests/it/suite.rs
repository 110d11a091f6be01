//! Fedimint's own tests of a database: every public `verify_*` of `fedimint_core::db`, and
//! `expect_write_conflict`.
//!
//! `verify_string_prefix` of 0.13.0 contradicts itself, and no adapter of fedimint calls it. It puts
//! two keys, one of them three times, and expects four entries. So it must fail here as it fails
//! on fedimint's database in memory. These two tests fail when fedimint corrects it.

use fedimint_core::db::mem_impl::MemDatabase;
use fedimint_core::db::{Database, IRawDatabaseExt};
use siftdb_fedimint_db::SiftDb;
use std::path::Path;

fn open(directory: &Path) -> Database {
    SiftDb::open(directory).unwrap().into_database()
}

macro_rules! suite {
    ($($name:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let directory = tempfile::tempdir().unwrap();
            fedimint_core::db::$name(open(directory.path())).await;
        }
    )*};
}

suite! {
    verify_insert_elements
    verify_remove_nonexisting
    verify_remove_existing
    verify_read_own_writes
    verify_prevent_dirty_reads
    verify_find_by_range
    verify_find_by_prefix
    verify_commit
    verify_prevent_nonrepeatable_reads
    verify_snapshot_isolation
    verify_phantom_entry
    expect_write_conflict
    verify_remove_by_prefix
    verify_module_prefix
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "left: 2\n right: 4")]
async fn verify_string_prefix_finds_two_keys() {
    let directory = tempfile::tempdir().unwrap();
    fedimint_core::db::verify_string_prefix(open(directory.path())).await;
}

#[tokio::test]
#[should_panic(expected = "left: 2\n right: 4")]
async fn verify_string_prefix_finds_two_keys_in_memory() {
    fedimint_core::db::verify_string_prefix(MemDatabase::new().into_database()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_module_db() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (module_db, _) = open(other.path()).with_prefix_module_id(1);
    fedimint_core::db::verify_module_db(open(one.path()), module_db).await;
}

/// Fedimint's RocksDB adapter passes two databases to `verify_module_db`. With one, modules share it.
#[tokio::test(flavor = "multi_thread")]
async fn modules_share_one_database() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let (module_db, _) = db.with_prefix_module_id(1);
    fedimint_core::db::verify_module_db(db, module_db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn modules_hold_only_their_prefixes() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    fedimint_core::db::verify_module_prefix(db.clone()).await;
    let kind = fedimint_core::core::ModuleKind::from_static_str("test");
    let prefixes = [0x42].into();
    let mut dbtx = db.begin_transaction_nc().await;
    fedimint_core::db::verify_module_db_integrity_dbtx(&mut dbtx, 1, kind, &prefixes).await;
}
