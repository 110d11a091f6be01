//! Generations: what they cost, that they come back whole, and what failures leave.

use async_trait::async_trait;
use futures_util::stream::{BoxStream, StreamExt};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use siftdb::{Db, Options};
use siftdb_backup_store::Backups;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A store in memory that counts requests and fails all from one on.
#[derive(Clone, Debug, Default)]
struct Counted {
    inner: Arc<InMemory>,
    puts: Arc<AtomicU64>,
    calls: Arc<AtomicU64>,
    fails_at: Arc<AtomicU64>,
}

impl Counted {
    fn new() -> Self {
        let store = Counted::default();
        store.heal();
        store
    }

    fn heal(&self) {
        self.fails_at.store(u64::MAX, Ordering::SeqCst);
    }

    /// The call after the next `n` fails, and all after it.
    fn fail_after(&self, n: u64) {
        self.fails_at.store(self.calls.load(Ordering::SeqCst) + n, Ordering::SeqCst);
    }

    fn call(&self) -> Result<()> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        match call < self.fails_at.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err(object_store::Error::Generic { store: "test", source: "gone".into() }),
        }
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("counted")
    }
}

#[async_trait]
impl ObjectStore for Counted {
    async fn put_opts(
        &self,
        location: &ObjectPath,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.call()?;
        self.puts.fetch_add(1, Ordering::SeqCst);
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &ObjectPath,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.call()?;
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &ObjectPath, options: GetOptions) -> Result<GetResult> {
        self.call()?;
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<ObjectPath>>,
    ) -> BoxStream<'static, Result<ObjectPath>> {
        let store = self.clone();
        // One request each, so that some are removed and others are not.
        let counted = locations.map(move |location| store.call().and(location));
        self.inner.delete_stream(counted.boxed())
    }

    fn list(&self, prefix: Option<&ObjectPath>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.call() {
            Ok(()) => self.inner.list(prefix),
            Err(error) => futures_util::stream::iter([Err(error)]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&ObjectPath>) -> Result<ListResult> {
        self.call()?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &ObjectPath,
        to: &ObjectPath,
        options: CopyOptions,
    ) -> Result<()> {
        self.call()?;
        self.inner.copy_opts(from, to, options).await
    }
}

type Contents = BTreeMap<String, Vec<(Vec<u8>, Vec<u8>)>>;

/// What a sound database holds, by every kind of read.
fn contents(path: &Path) -> Contents {
    let db = Options::new().create_if_missing(false).open(path).unwrap();
    assert!(db.verify(|_| {}).unwrap().is_sound());
    let of = |name: String| {
        let keyspace = db.keyspace(&name).unwrap();
        let pair = |entry: siftdb::Result<(siftdb::Key, siftdb::Value)>| {
            entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()
        };
        let forward: Vec<_> = keyspace.iter().map(pair).collect();
        let mut back: Vec<_> = keyspace.iter().rev().map(pair).collect();
        back.reverse();
        assert_eq!(forward, back);
        let keys: Vec<_> = forward.iter().map(|(key, _)| key).collect();
        let many = keyspace.multi_get(&keys).unwrap();
        for ((key, value), found) in forward.iter().zip(many) {
            assert_eq!(found.as_deref(), Some(&value[..]));
            assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(&value[..]));
        }
        (name, forward)
    };
    db.keyspaces().into_iter().map(of).collect()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// A database with two keyspaces, and the directory of its checkpoint.
struct Home {
    directory: tempfile::TempDir,
    db: Db,
}

impl Home {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::new().auto_compaction(false);
        let db = options.open(directory.path().join("db")).unwrap();
        Home { directory, db }
    }

    /// Writes one table in each keyspace and brings the checkpoint up to date.
    fn write(&self, round: u8) -> Contents {
        for n in 0..20 {
            self.db.put([n, round], vec![round; 100]).unwrap();
            self.db.keyspace("other").unwrap().put([n], [round]).unwrap();
        }
        self.db.checkpoint(self.checkpoint()).unwrap();
        self.contents_of_checkpoint()
    }

    fn checkpoint(&self) -> std::path::PathBuf {
        self.directory.path().join("checkpoint")
    }

    fn contents_of_checkpoint(&self) -> Contents {
        let copy = self.directory.path().join("copy");
        let _ = std::fs::remove_dir_all(&copy);
        Db::open_read_only(self.checkpoint()).unwrap().checkpoint(&copy).unwrap();
        contents(&copy)
    }

    fn restored(&self, backups: &Backups, generation: Option<u64>) -> Contents {
        let back = self.directory.path().join("back");
        let _ = std::fs::remove_dir_all(&back);
        block_on(backups.restore(generation, &back)).unwrap();
        contents(&back)
    }
}

fn numbers(backups: &Backups) -> Vec<u64> {
    block_on(backups.list()).unwrap().iter().map(|generation| generation.number).collect()
}

#[test]
fn generations_come_back_whole() {
    let home = Home::new();
    let local = tempfile::tempdir().unwrap();
    let prefix = ObjectPath::from("a/prefix");
    let on_disk = LocalFileSystem::new_with_prefix(local.path()).unwrap();
    let memory = Backups::new(Arc::new(InMemory::new()), ObjectPath::default());
    let stores = [memory, Backups::new(Arc::new(on_disk), prefix)];
    let kept: Vec<_> = (1..=3)
        .map(|round| {
            let expected = home.write(round);
            for store in &stores {
                let pushed = block_on(store.push(&home.checkpoint())).unwrap();
                assert_eq!(pushed.generation, u64::from(round));
            }
            expected
        })
        .collect();
    for store in &stores {
        assert_eq!(numbers(store), [1, 2, 3]);
        for (number, expected) in (1..).zip(&kept) {
            assert_eq!(&home.restored(store, Some(number)), expected);
        }
        assert_eq!(home.restored(store, None), kept[2]);
        assert!(block_on(store.restore(Some(9), Path::new("/nowhere"))).is_err());
        // The directory is there.
        assert!(block_on(store.restore(None, home.directory.path())).is_err());
    }
}

#[test]
fn tables_are_sent_once() {
    let home = Home::new();
    let store = Counted::new();
    let backups = Backups::new(Arc::new(store.clone()), ObjectPath::from("b"));
    let mut puts = 0;
    for round in 1..=4 {
        home.write(round);
        let pushed = block_on(backups.push(&home.checkpoint())).unwrap();
        assert_eq!(pushed.tables_sent, 2, "one for each keyspace");
        // And manifest, log, CURRENT, index.
        assert_eq!(store.puts.load(Ordering::SeqCst) - puts, 2 + 4);
        puts = store.puts.load(Ordering::SeqCst);
    }
    // All tables become one in each keyspace.
    home.db.compact_range(..).unwrap();
    home.db.keyspace("other").unwrap().compact_range(..).unwrap();
    let expected = home.write(5);
    assert_eq!(block_on(backups.push(&home.checkpoint())).unwrap().tables_sent, 4);
    // Those of the older generations go, and what is left is whole.
    assert!(block_on(backups.prune(0)).is_err());
    let index_and_three = 4;
    assert_eq!(block_on(backups.prune(1)).unwrap(), 4 * index_and_three + 8);
    assert_eq!((numbers(&backups), block_on(backups.prune(1)).unwrap()), (vec![5], 0));
    assert_eq!(home.restored(&backups, None), expected);
}

/// Every request fails once, with all after it, as if the process had died there.
#[test]
fn failures_leave_older_generations_whole() {
    let home = Home::new();
    let first = home.write(1);
    for n in 0.. {
        let store = Counted::new();
        let backups = Backups::new(Arc::new(store.clone()), ObjectPath::default());
        let home = Home::new();
        assert_eq!(home.write(1), first);
        block_on(backups.push(&home.checkpoint())).unwrap();
        let second = home.write(2);
        store.fail_after(n);
        let failed = block_on(backups.push(&home.checkpoint())).is_err();
        store.heal();
        let expected = if failed { vec![1] } else { vec![1, 2] };
        assert_eq!(numbers(&backups), expected, "call {n}");
        assert_eq!(home.restored(&backups, Some(1)), first, "call {n}");
        // The next one is complete, and shares no folder with what was interrupted.
        let folder = ObjectPath::from("generations/0000000002");
        let begun = !block_on(store.inner.list(Some(&folder)).collect::<Vec<_>>()).is_empty();
        let next = block_on(backups.push(&home.checkpoint())).unwrap().generation;
        assert_eq!(next, if begun { 3 } else { 2 }, "call {n}");
        assert_eq!(home.restored(&backups, None), second, "call {n}");
        let objects = store.inner.list(None).collect::<Vec<_>>();
        let before = block_on(objects).len();
        block_on(backups.prune(2)).unwrap();
        let after = block_on(store.inner.list(None).collect::<Vec<_>>()).len();
        // Four tables, and four objects of each generation.
        assert!(after == 4 + 2 * 4 && after <= before, "call {n}: {after} of {before}");
        assert_eq!(home.restored(&backups, None), second, "call {n}");
        if !failed {
            assert!(n > 7, "{n} calls");
            break;
        }
    }
}

#[test]
fn interrupted_prunes_leave_the_last_generation() {
    for n in 0.. {
        let home = Home::new();
        let store = Counted::new();
        let backups = Backups::new(Arc::new(store.clone()), ObjectPath::default());
        let mut last = Contents::new();
        for round in 1..=3 {
            last = home.write(round);
            if round == 3 {
                home.db.compact_range(..).unwrap();
                home.db.checkpoint(home.checkpoint()).unwrap();
            }
            block_on(backups.push(&home.checkpoint())).unwrap();
        }
        store.fail_after(n);
        let failed = block_on(backups.prune(1)).is_err();
        store.heal();
        // What is listed can be restored.
        for number in numbers(&backups) {
            home.restored(&backups, Some(number));
        }
        assert_eq!(home.restored(&backups, None), last, "call {n}");
        block_on(backups.prune(1)).unwrap();
        assert_eq!(numbers(&backups), [3], "call {n}");
        assert_eq!(home.restored(&backups, None), last, "call {n}");
        if !failed {
            assert!(n > 9, "{n} calls");
            break;
        }
    }
}

#[test]
fn interrupted_restores_leave_no_directory() {
    let home = Home::new();
    let store = Counted::new();
    let backups = Backups::new(Arc::new(store.clone()), ObjectPath::default());
    let expected = home.write(1);
    block_on(backups.push(&home.checkpoint())).unwrap();
    for n in 0.. {
        let back = home.directory.path().join(format!("back-{n}"));
        store.fail_after(n);
        let failed = block_on(backups.restore(None, &back)).is_err();
        store.heal();
        if !failed {
            assert_eq!(contents(&back), expected);
            assert!(n > 5, "{n} calls");
            break;
        }
        assert!(!back.exists(), "call {n}");
    }
    // A process that died left files.
    let back = home.directory.path().join("again");
    let unfinished = home.directory.path().join(".again.unfinished");
    std::fs::create_dir(&unfinished).unwrap();
    std::fs::write(unfinished.join("CURRENT"), "half").unwrap();
    block_on(backups.restore(None, &back)).unwrap();
    assert_eq!(contents(&back), expected);
    assert!(!unfinished.exists());
    // What is there stays.
    assert!(block_on(backups.restore(None, &back)).is_err());
    assert_eq!(contents(&back), expected);
}

#[test]
fn unfinished_checkpoints_are_not_sent() {
    let home = Home::new();
    home.write(1);
    let backups = Backups::new(Arc::new(InMemory::new()), ObjectPath::default());
    std::fs::write(home.checkpoint().join("CURRENT"), "siftdb 2 UNFINISHED 352b7988\n").unwrap();
    assert!(block_on(backups.push(&home.checkpoint())).is_err());
    assert!(numbers(&backups).is_empty());
}
