//! What a loss of power leaves, on a disk in memory that forgets what was not synced. A killed
//! process loses nothing that it wrote, so `kills.rs` cannot see a commit that does not sync.

use crate::transactions::{check, commit};
use fedimint_core::db::{Database, IRawDatabaseExt};
use siftdb::Options;
use siftdb::env::MemEnv;
use siftdb::env::testing::CrashModel;
use siftdb_fedimint_db::SiftDb;
use std::sync::Arc;

fn open(env: &MemEnv) -> Database {
    let options = Options::new().env(Arc::new(env.clone()));
    SiftDb::from(options.open("/db").unwrap()).into_database()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_crash_keeps_acknowledged_transactions_whole() {
    let env = MemEnv::with_log();
    let db = open(&env);
    let begin = env.log_len();
    // The calls of the file system that each commit had made when it returned.
    let mut acknowledged = Vec::new();
    for number in 1..=12 {
        commit(&db, 0, number).await;
        acknowledged.push(env.log_len());
    }
    let mut found = std::collections::BTreeSet::new();
    for call in begin..=env.log_len() {
        let at_least = acknowledged.iter().filter(|len| **len <= call).count() as u64;
        for (model, seed) in
            [(CrashModel::Kill, 0), (CrashModel::Posix, 0), (CrashModel::Posix, call as u64)]
        {
            let last = check(&open(&env.replay(call, model, seed)), 0).await;
            let expected = at_least..=at_least + 1;
            assert!(expected.contains(&last), "{last} after {call} calls, {model:?}, seed {seed}");
            found.insert(last);
        }
    }
    assert_eq!(found.len(), 13, "crashes before and after each transaction");
}
