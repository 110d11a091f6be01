//! Openraft's own tests of a log store and a state machine, all of them.

use openraft::testing::{StoreBuilder, Suite};
use siftdb::Options;
use siftdb_raft_kv::log_store::LogStore;
use siftdb_raft_kv::state_machine::StateMachine;
use siftdb_raft_kv::storage::Storage;
use siftdb_raft_kv::types::{StorageError, TypeConfig};
use std::sync::Arc;
use tempfile::TempDir;

struct InNewDirectory;

impl StoreBuilder<TypeConfig, LogStore, StateMachine, TempDir> for InNewDirectory {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError> {
        let directory = tempfile::tempdir().unwrap();
        let storage = Arc::new(Storage::open(directory.path(), Options::new()).unwrap());
        let machine = StateMachine::open(Arc::clone(&storage)).unwrap();
        Ok((directory, LogStore::new(storage), machine))
    }
}

#[test]
fn openraft_suite_passes() {
    Suite::test_all(InNewDirectory).unwrap();
}
