//! Snapshots of one node: built, installed, in use, cut off.

use crate::crashes::{count_to, run};
use openraft::RaftSnapshotBuilder;
use openraft::storage::{RaftLogStorage, RaftStateMachine};
use openraft::testing::log_id;
use siftdb::Options;
use siftdb_raft_kv::log_store::LogStore;
use siftdb_raft_kv::snapshot_directory::SnapshotDirectory;
use siftdb_raft_kv::state_machine::StateMachine;
use siftdb_raft_kv::storage::Storage;
use siftdb_raft_kv::transfer::{Header, Incoming};
use siftdb_raft_kv::types::{Command, Entry, Snapshot};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

struct Node {
    directory: TempDir,
    storage: Arc<Storage>,
    machine: StateMachine,
}

impl Node {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (storage, machine) = open(directory.path());
        Node { directory, storage, machine }
    }

    async fn apply(&mut self, upto: u64) {
        let from = self.storage.applied().unwrap().last.map_or(1, |last| last.index + 1);
        self.machine.apply((from..=upto).map(count_to)).await.unwrap();
    }

    async fn build(&mut self) -> Snapshot {
        self.machine.get_snapshot_builder().await.build_snapshot().await.unwrap()
    }

    fn count(&self) -> Option<String> {
        self.storage.read("count").unwrap()
    }

    /// The names below `snapshots`.
    fn directories(&self) -> usize {
        fs::read_dir(self.directory.path().join("snapshots")).unwrap().count()
    }
}

fn open(directory: &Path) -> (Arc<Storage>, StateMachine) {
    let storage = Arc::new(Storage::open(directory, Options::new()).unwrap());
    (Arc::clone(&storage), StateMachine::open(storage).unwrap())
}

/// A received snapshot: its files are copies.
async fn received(by: &mut Node, snapshot: &Snapshot) -> Box<SnapshotDirectory> {
    let directory = by.machine.begin_receiving_snapshot().await.unwrap();
    for file in fs::read_dir(snapshot.snapshot.path()).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), directory.path().join(file.file_name())).unwrap();
    }
    directory
}

#[test]
fn an_installed_snapshot_replaces_all_data() {
    run(async {
        let (mut leader, mut follower) = (Node::new(), Node::new());
        leader.apply(100).await;
        let snapshot = leader.build().await;
        leader.apply(120).await;

        let extra = Command::Put { key: "extra".into(), value: "old".into() };
        let payload = openraft::EntryPayload::Normal(extra);
        let entry = Entry { log_id: log_id(1, 1, 1), payload };
        follower.machine.apply([entry]).await.unwrap();
        follower.build().await;
        let files = received(&mut follower, &snapshot).await;
        follower.machine.install_snapshot(&snapshot.meta, files).await.unwrap();

        assert_eq!(follower.count().as_deref(), Some("100"));
        assert_eq!(follower.storage.read("extra").unwrap(), None);
        // What came in is gone, and so is the snapshot from before.
        assert_eq!(follower.directories(), 1);
        follower.apply(110).await;

        let Node { directory, storage, machine } = follower;
        drop((storage, machine));
        let (storage, mut machine) = open(directory.path());
        assert_eq!(storage.read("count").unwrap().as_deref(), Some("110"));
        let current = machine.get_current_snapshot().await.unwrap().unwrap();
        assert_eq!(current.meta, snapshot.meta);
        assert_eq!(storage.db.keyspaces().len(), 5, "{:?}", storage.db.keyspaces());
    });
}

#[test]
fn a_purge_waits_for_the_install() {
    run(async {
        let (mut leader, mut follower) = (Node::new(), Node::new());
        leader.apply(100).await;
        let snapshot = leader.build().await;
        let files = received(&mut follower, &snapshot).await;

        let mut log = LogStore::new(Arc::clone(&follower.storage));
        let mut purge = Box::pin(log.purge(log_id(1, 1, 100)));
        let early = tokio::time::timeout(Duration::from_millis(50), &mut purge).await;
        assert!(early.is_err(), "the log begins after entries that are not applied");
        follower.machine.install_snapshot(&snapshot.meta, files).await.unwrap();
        purge.await.unwrap();
        assert_eq!(follower.count().as_deref(), Some("100"));
    });
}

/// A follower without entries, and a received snapshot up to entry 100 with a damaged table.
async fn with_damaged_snapshot() -> (Node, Snapshot, Box<SnapshotDirectory>) {
    let (mut leader, mut follower) = (Node::new(), Node::new());
    leader.apply(100).await;
    let snapshot = leader.build().await;
    let files = received(&mut follower, &snapshot).await;
    let mut paths = fs::read_dir(files.path()).unwrap().map(|file| file.unwrap().path());
    let table = paths.find(|path| path.extension().is_some_and(|of| of == "sst")).unwrap();
    fs::File::options().write(true).open(table).unwrap().set_len(10).unwrap();
    (follower, snapshot, files)
}

/// Nothing may be purged, until another snapshot is installed.
async fn assert_purge_is_refused(follower: &mut Node, purge: impl Future<Output = bool>) {
    // In time, since openraft reads no message while it purges.
    let purged = tokio::time::timeout(Duration::from_secs(10), purge).await;
    assert!(!purged.unwrap(), "entries that are not applied are purged");
    let mut log = LogStore::new(Arc::clone(&follower.storage));
    assert_eq!(log.get_log_state().await.unwrap().last_purged_log_id, None);

    let mut leader = Node::new();
    leader.apply(100).await;
    let snapshot = leader.build().await;
    let files = received(follower, &snapshot).await;
    follower.machine.install_snapshot(&snapshot.meta, files).await.unwrap();
    log.purge(log_id(1, 1, 100)).await.unwrap();
    assert_eq!(log.get_log_state().await.unwrap().last_purged_log_id, Some(log_id(1, 1, 100)));
}

async fn purge(storage: Arc<Storage>) -> bool {
    LogStore::new(storage).purge(log_id(1, 1, 100)).await.is_ok()
}

#[test]
fn a_failed_install_ends_a_waiting_purge() {
    run(async {
        let (mut follower, snapshot, files) = with_damaged_snapshot().await;
        let mut purge = Box::pin(purge(Arc::clone(&follower.storage)));
        let early = tokio::time::timeout(Duration::from_millis(50), &mut purge).await;
        assert!(early.is_err(), "the log begins after entries that are not applied");
        assert!(follower.machine.install_snapshot(&snapshot.meta, files).await.is_err());
        assert_purge_is_refused(&mut follower, purge).await;
    });
}

#[test]
fn no_purge_follows_a_failed_install() {
    run(async {
        let (mut follower, snapshot, files) = with_damaged_snapshot().await;
        assert!(follower.machine.install_snapshot(&snapshot.meta, files).await.is_err());
        let purge = purge(Arc::clone(&follower.storage));
        assert_purge_is_refused(&mut follower, purge).await;
    });
}

#[test]
fn a_failed_install_waits_for_no_other_snapshot() {
    run(async {
        let (mut follower, snapshot, files) = with_damaged_snapshot().await;
        let _other = follower.machine.begin_receiving_snapshot().await.unwrap();
        assert!(follower.machine.install_snapshot(&snapshot.meta, files).await.is_err());
        let purge = purge(Arc::clone(&follower.storage));
        assert_purge_is_refused(&mut follower, purge).await;
    });
}

#[test]
fn no_purge_follows_a_discarded_snapshot() {
    run(async {
        // A state machine that stops drops the installs in its queue.
        let (mut follower, _, files) = with_damaged_snapshot().await;
        drop(files);
        let purge = purge(Arc::clone(&follower.storage));
        assert_purge_is_refused(&mut follower, purge).await;
    });
}

#[test]
fn a_snapshot_in_use_keeps_its_files() {
    run(async {
        let mut node = Node::new();
        node.apply(10).await;
        let first = node.build().await;
        let in_use = first.snapshot.path().to_path_buf();
        node.apply(20).await;
        node.build().await;
        assert!(in_use.join("CURRENT").exists());
        drop(first);
        assert!(!in_use.exists());
        assert_eq!(node.directories(), 1);
    });
}

#[test]
fn leftovers_of_a_crash_are_removed() {
    run(async {
        let mut node = Node::new();
        node.apply(10).await;
        let kept = node.build().await.meta;
        let Node { directory, storage, machine } = node;
        // An install and a transfer that did not end.
        storage.db.keyspace("data.1").unwrap().put("count", "half").unwrap();
        fs::create_dir(directory.path().join("snapshots/9")).unwrap();
        fs::write(directory.path().join("snapshots/9/000001.sst"), "half").unwrap();
        drop((storage, machine));

        let (storage, mut machine) = open(directory.path());
        assert_eq!(storage.db.keyspaces(), ["default", "log", "raft", "applied", "data.0"]);
        assert_eq!(fs::read_dir(directory.path().join("snapshots")).unwrap().count(), 1);
        assert_eq!(machine.get_current_snapshot().await.unwrap().unwrap().meta, kept);
    });
}

/// A transfer whose header promises one file of `bytes`.
fn transfer(name: &str, bytes: u64, contents: &[u8]) -> Incoming {
    let (vote, meta) = (Default::default(), Default::default());
    let header = Header { vote, meta, files: vec![(name.into(), bytes)] };
    let json = serde_json::to_vec(&header).unwrap();
    let start = u32::try_from(json.len()).unwrap().to_be_bytes();
    Incoming::new([&start[..], &json, contents].concat().into())
}

#[test]
fn cut_and_hostile_transfers_are_refused() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let into = directory.path().join("received");
        fs::create_dir(&into).unwrap();
        for (name, contents, said) in [
            ("a.sst", &b"12345678"[..], ""),
            ("b.sst", b"1234", "cut off"),
            ("../c.sst", b"12345678", "no name"),
            ("a.sst", b"12345678", "exists"),
        ] {
            let mut incoming = transfer(name, 8, contents);
            let header = incoming.header().await.unwrap();
            let written = incoming.write_files(&header, &into).await;
            let error = written.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(said) && error.is_empty() == said.is_empty(), "{error}");
        }
        assert!(!directory.path().join("c.sst").exists());
        let mut huge = Incoming::new(u32::MAX.to_be_bytes().to_vec().into());
        assert!(huge.header().await.unwrap_err().to_string().contains("header"));
    });
}

#[test]
fn a_failed_last_write_fails_the_transfer() {
    const LIMITED: &str = "RAFT_KV_TEST_OF_LIMITED_FILES";
    if std::env::var_os(LIMITED).is_none() {
        // This test again, in a process whose files end after a block. Without the trap the
        // signal of the limit would end the process.
        let test = ["snapshots::a_failed_last_write_fails_the_transfer", "--exact"];
        let limited = std::process::Command::new("sh")
            .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(test)
            .env(LIMITED, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&limited.stdout);
        assert!(limited.status.success() && said.contains("1 passed"), "{limited:?}");
        return;
    }
    run(async {
        let into = tempfile::tempdir().unwrap();
        let mut incoming = transfer("a.sst", 4096, &[0; 4096]);
        let header = incoming.header().await.unwrap();
        let written = incoming.write_files(&header, into.path()).await;
        let bytes = fs::metadata(into.path().join("a.sst")).unwrap().len();
        assert!(written.is_err(), "{bytes} of 4096 bytes were written");
    });
}
