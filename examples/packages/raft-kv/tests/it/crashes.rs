//! What a loss of power leaves, on a disk in memory that forgets what was not synced. Openraft's
//! suite does not look at that, and a killed process loses nothing that it wrote.

use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::testing::log_id;
use openraft::{CommittedLeaderId, EntryPayload, Vote};
use siftdb::Options;
use siftdb::env::MemEnv;
use siftdb::env::testing::CrashModel;
use siftdb_raft_kv::log_store::LogStore;
use siftdb_raft_kv::state_machine::StateMachine;
use siftdb_raft_kv::storage::Storage;
use siftdb_raft_kv::types::{Command, Entry, LogId};
use std::future::Future;
use std::path::Path;
use std::sync::Arc;

fn open(env: &MemEnv) -> Arc<Storage> {
    let options = Options::new().env(Arc::new(env.clone()));
    Arc::new(Storage::open(Path::new("/node"), options).unwrap())
}

pub fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(test)
}

/// Entry `index`, which counts from `index - 1` to `index`: it works only after the one before it,
/// and only once.
pub fn count_to(index: u64) -> Entry {
    let text = |number: u64| (number > 0).then(|| number.to_string());
    let key = "count".into();
    let (expected, new) = (text(index - 1), text(index));
    let command = Command::CompareAndSet { key, expected, new };
    Entry { log_id: log_id(1, 1, index), payload: EntryPayload::Normal(command) }
}

async fn last(env: &MemEnv) -> Option<LogId> {
    LogStore::new(open(env)).get_log_state().await.unwrap().last_log_id
}

#[test]
fn acknowledged_entries_survive_a_power_cut() {
    run(async {
        let env = MemEnv::new();
        let mut log = LogStore::new(open(&env));
        for index in 1..=20 {
            log.blocking_append([count_to(index)]).await.unwrap();
            assert_eq!(last(&env.power_cut()).await, Some(log_id(1, 1, index)));
        }
        // Entries that replace others: never the old ones after the new ones were acknowledged.
        log.truncate(log_id(1, 1, 11)).await.unwrap();
        let newer = Entry { log_id: log_id(2, 2, 11), payload: EntryPayload::Blank };
        log.blocking_append([newer]).await.unwrap();
        assert_eq!(last(&env.power_cut()).await, Some(log_id(2, 2, 11)));
    });
}

#[test]
fn votes_survive_a_power_cut() {
    run(async {
        let env = MemEnv::new();
        let mut log = LogStore::new(open(&env));
        for term in 1..=20 {
            let vote = Vote::new(term, term % 3);
            log.save_vote(&vote).await.unwrap();
            let mut after = LogStore::new(open(&env.power_cut()));
            assert_eq!(after.read_vote().await.unwrap(), Some(vote));
        }
    });
}

/// After every crash the data is that of the entries up to the last one applied, and the rest of
/// the entries can be applied.
#[test]
fn every_crash_leaves_data_and_position_together() {
    run(async {
        let env = MemEnv::with_log();
        let storage = open(&env);
        let begin = env.log_len();
        let mut machine = StateMachine::open(Arc::clone(&storage)).unwrap();
        for (from, to) in [(1, 1), (2, 5), (6, 6), (7, 12)] {
            machine.apply((from..=to).map(count_to)).await.unwrap();
            if to == 5 {
                storage.db.flush().unwrap();
            }
        }
        let mut positions = std::collections::BTreeSet::new();
        for call in begin..=env.log_len() {
            for (model, seed) in
                [(CrashModel::Kill, 0), (CrashModel::Posix, 0), (CrashModel::Posix, call as u64)]
            {
                let after = env.replay(call, model, seed);
                let storage = open(&after);
                let mut machine = StateMachine::open(Arc::clone(&storage)).unwrap();
                let at = machine.applied_state().await.unwrap().0.map_or(0, |last| last.index);
                let count = storage.read("count").unwrap().map_or(0, |text| text.parse().unwrap());
                assert_eq!(at, count, "after {call} calls, {model:?} with seed {seed}");
                machine.apply((at + 1..=12).map(count_to)).await.unwrap();
                assert_eq!(storage.read("count").unwrap().as_deref(), Some("12"));
                positions.insert(at);
            }
        }
        // Whole batches only, and not always none or all of them.
        assert!(
            positions.is_subset(&[0, 1, 5, 6, 12].into()) && positions.len() > 2,
            "{positions:?}"
        );
    });
}

#[test]
fn purged_logs_begin_where_they_say() {
    run(async {
        let env = MemEnv::with_log();
        let storage = open(&env);
        let mut log = LogStore::new(Arc::clone(&storage));
        log.blocking_append((1..=50).map(count_to)).await.unwrap();
        let begin = env.log_len();
        for upto in [10, 20, 49] {
            log.purge(LogId::new(CommittedLeaderId::new(1, 1), upto)).await.unwrap();
        }
        storage.db.flush().unwrap();
        for call in begin..=env.log_len() {
            for (model, seed) in [(CrashModel::Kill, 0), (CrashModel::Posix, call as u64)] {
                let storage = open(&env.replay(call, model, seed));
                let mut log = LogStore::new(Arc::clone(&storage));
                let state = log.get_log_state().await.unwrap();
                let purged = state.last_purged_log_id.map_or(0, |last| last.index);
                let there: Vec<u64> = storage.log.iter().keys().map(index_of).collect();
                assert_eq!(there, (purged + 1..=50).collect::<Vec<_>>());
            }
        }
    });
}

fn index_of(key: siftdb::Result<siftdb::Key>) -> u64 {
    siftdb::keys::decode(&key.unwrap()).unwrap()
}
