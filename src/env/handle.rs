//! Files that are opened on demand, with a bound on open descriptors.
//!
//! Every open table owns a [`FileHandle`]: a path, and an entry in the [`FilePool`] of its
//! database. Only a read of a block that is not cached uses it. Such a read opens the file if the
//! pool does not hold it; the pool then evicts the descriptor that was used longest ago.
//!
//! Invariants: no file is opened, read or closed while the pool is locked. A descriptor that is
//! evicted while another thread reads with it closes when that read ends, so at most
//! `max_open_files` plus one for each reading thread are open. If a file cannot be opened, only
//! that read fails; the next read tries again.
//!
//! Descriptors belong to the process. When the process has none left, [`evict_descriptors`] makes
//! every pool close half of its descriptors, and `descriptor_retry` tries again. The limit of the
//! database that met the shortage is halved too. The limit grows back after a while, by one for
//! every few files opened. If growth leads to another shortage, that while is doubled.

use crate::base::error::{Error, Result};
use crate::base::process::Process;
use crate::base::sync::{Arc, AtomicU64, Mutex, OnceLock, Ordering, plain};
use crate::env::api::{Env, RandomFile};
use lru::LruCache;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::{Duration, Instant};

/// Every pool of the process. Creating a pool removes the entries of dropped ones.
static POOLS: plain::Mutex<Vec<Weak<FilePool>>> = plain::Mutex::new(Vec::new());

/// Files that a pool opens before its limit grows by one.
const OPENS_PER_GROWTH: usize = 4;

/// How long a shortage keeps the limit from growing: at first, and at most.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(3600));

/// Closes half of the descriptors of every pool in this process, and halves the limit of the pool
/// that opens its files through `env`. False if no pool held a descriptor. A descriptor that a
/// thread reads with closes when that read ends.
pub(crate) fn evict_descriptors(env: &dyn Env) -> bool {
    let pools: Vec<_> = POOLS.lock().iter().filter_map(Weak::upgrade).collect();
    // The address identifies the pool: every database wraps the Env of its options in one of its
    // own.
    let is_short = |pool: &Arc<FilePool>| std::ptr::addr_eq(Arc::as_ptr(&pool.env), env);
    // `count`, because `any` would stop at the first pool.
    pools.iter().filter(|pool| pool.evict_half(is_short(pool))).count() > 0
}

/// The cached descriptors of one database.
#[derive(Debug)]
pub(crate) struct FilePool {
    env: Arc<dyn Env>,
    process: Process,
    next_id: AtomicU64,
    /// The limit when there is no shortage.
    max_open_files: NonZeroUsize,
    open: Mutex<OpenFiles>,
}

#[derive(Debug)]
struct OpenFiles {
    /// Its capacity is the current limit.
    files: LruCache<u64, Arc<dyn RandomFile>>,
    /// Files opened since the limit last changed.
    opened: usize,
    /// The time when a shortage last halved the limit.
    short_at: Option<Instant>,
    /// How long the limit does not grow after that.
    patience: Duration,
    /// The limit has grown since that shortage.
    grown: bool,
}

impl OpenFiles {
    /// Evicts half of the descriptors, and with `shrink` halves the limit too. Returns the evicted
    /// descriptors, so that the caller closes them after it releases the lock.
    fn evict_half(&mut self, shrink: bool, now: Instant) -> Vec<Arc<dyn RandomFile>> {
        let kept = self.files.len() / 2;
        let mut forgotten = Vec::new();
        while self.files.len() > kept {
            forgotten.extend(self.files.pop_lru().map(|(_, file)| file));
        }
        if shrink && !forgotten.is_empty() {
            self.files.resize(NonZeroUsize::new(kept).unwrap_or(NonZeroUsize::MIN));
            if std::mem::take(&mut self.grown) {
                self.patience = PATIENCE.1.min(2 * self.patience);
            }
            (self.opened, self.short_at) = (0, Some(now));
        }
        forgotten
    }

    /// Counts an opened file; every few of them raise the limit by one, up to `bound`.
    fn grow(&mut self, bound: NonZeroUsize, now: impl Fn() -> Instant) {
        let limit = self.files.cap();
        if limit >= bound {
            return;
        }
        self.opened += 1;
        let waits = |at: Instant| now().saturating_duration_since(at) < self.patience;
        if self.opened < OPENS_PER_GROWTH || self.short_at.is_some_and(waits) {
            return;
        }
        (self.opened, self.grown) = (0, true);
        self.files.resize(limit.saturating_add(1));
    }
}

impl FilePool {
    /// A pool that keeps at most `max_open_files` descriptors, at least one.
    #[must_use]
    pub(crate) fn new(env: Arc<dyn Env>, max_open_files: usize) -> Arc<Self> {
        let capacity = NonZeroUsize::new(max_open_files).unwrap_or(NonZeroUsize::MIN);
        // Resized after creation: `LruCache::new` would allocate its whole capacity now.
        let mut files = LruCache::unbounded();
        files.resize(capacity);
        let (short_at, patience) = (None, PATIENCE.0);
        let open = OpenFiles { files, opened: 0, short_at, patience, grown: false };
        let open = Mutex::new(open);
        let (process, next_id) = (Process::current(), AtomicU64::new(0));
        let pool = Arc::new(FilePool { env, process, next_id, max_open_files: capacity, open });
        let mut pools = POOLS.lock();
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&pool));
        pool
    }

    /// A pool that evicts nothing: a file that was read once stays open as long as its handle, so
    /// it can be read after it was removed.
    #[must_use]
    pub(crate) fn holding(env: Arc<dyn Env>) -> Arc<Self> {
        // Not in `POOLS`, so a shortage does not evict its descriptors either.
        let files = LruCache::unbounded();
        let (short_at, patience) = (None, PATIENCE.0);
        let open = OpenFiles { files, opened: 0, short_at, patience, grown: false };
        let (process, next_id) = (Process::current(), AtomicU64::new(0));
        let (max_open_files, open) = (NonZeroUsize::MAX, Mutex::new(open));
        Arc::new(FilePool { env, process, next_id, max_open_files, open })
    }

    /// Descriptors in the pool now.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn open_files(&self) -> usize {
        self.open.lock().files.len()
    }

    /// Descriptors that the pool may hold now.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn limit(&self) -> usize {
        self.open.lock().files.cap().get()
    }

    /// Closes half of the descriptors, at least one; `shrink` halves the limit too. False if there
    /// were none.
    fn evict_half(&self, shrink: bool) -> bool {
        // Closing a file may take time, so the descriptors drop after the lock is released.
        let forgotten = self.open.lock().evict_half(shrink, Instant::now());
        !forgotten.is_empty()
    }

    /// Adds a file that was just opened; returns the evicted one.
    fn keep(&self, id: u64, file: Arc<dyn RandomFile>) -> Option<(u64, Arc<dyn RandomFile>)> {
        let mut open = self.open.lock();
        open.grow(self.max_open_files, Instant::now);
        open.files.push(id, file)
    }
}

/// A file that any thread can read at any time; it is opened on demand.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pool: Arc<FilePool>,
    id: u64,
    path: PathBuf,
    /// The file, once it was opened, if it is in memory. It has no descriptor, so it stays.
    in_memory: OnceLock<Arc<dyn RandomFile>>,
}

impl FileHandle {
    /// A handle of the file at `path`, which is not opened yet.
    #[must_use]
    pub(crate) fn new(pool: &Arc<FilePool>, path: PathBuf) -> Self {
        let id = pool.next_id.fetch_add(1, Ordering::Relaxed);
        FileHandle { pool: Arc::clone(pool), id, path, in_memory: OnceLock::new() }
    }

    /// The path of the file.
    #[must_use]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The length of the file now.
    pub(crate) fn len(&self) -> Result<u64> {
        self.file()?.len().map_err(|error| Error::io("metadata", &self.path, error))
    }

    /// Fills `buffer` from `offset`. The caller asks only for bytes that the file must have, so a
    /// file that ends earlier is corrupt.
    pub(crate) fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.file()?.read_exact_at(offset, buffer).map_err(|error| {
            if error.kind() == io::ErrorKind::UnexpectedEof {
                let what = format!("the file ends within the {} bytes from here", buffer.len());
                Error::corruption(&self.path, offset, what)
            } else {
                Error::io("read", &self.path, error)
            }
        })
    }

    /// Says which bytes will be read soon. Without effect on a file that cannot be opened: the read
    /// has the error.
    pub(crate) fn read_ahead(&self, offset: u64, bytes: u64) {
        if let Ok(file) = self.file() {
            file.read_ahead(offset, bytes);
        }
    }

    /// Puts another file in the place of this one, as if it was opened.
    #[cfg(test)]
    pub(crate) fn replace(&mut self, file: Arc<dyn RandomFile>) {
        if file.as_bytes().is_some() {
            self.in_memory = OnceLock::from(file);
        } else {
            self.pool.open.lock().files.put(self.id, file);
        }
    }

    /// Refuses a forked child.
    ///
    /// # Errors
    /// `Forked`.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.pool.process.check()
    }

    /// All of the file, if it is in memory and was opened: without a lock, and in a forked child
    /// too.
    #[inline]
    pub(crate) fn in_memory(&self) -> Option<&[u8]> {
        self.in_memory.get()?.as_bytes()
    }

    /// The file in memory, or a descriptor, from the pool or newly opened.
    fn file(&self) -> Result<Arc<dyn RandomFile>> {
        if let Some(file) = self.in_memory.get() {
            return Ok(Arc::clone(file));
        }
        self.check_process()?;
        if let Some(file) = self.pool.open.lock().files.get(&self.id) {
            return Ok(Arc::clone(file));
        }
        let file = self
            .pool
            .env
            .open_random(&self.path)
            .map_err(|error| Error::io("open", &self.path, error))?;
        if file.as_bytes().is_some() {
            return Ok(Arc::clone(self.in_memory.get_or_init(|| file)));
        }
        // A lookup wants one block; iterators say what they want (`table/scan_ahead.rs`).
        file.expect_random_reads();
        let forgotten = self.pool.keep(self.id, Arc::clone(&file));
        // Closing a file may take time, so it drops after the lock is released.
        drop(forgotten);
        Ok(file)
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        if !self.pool.process.is_current() {
            return;
        }
        let file = self.pool.open.lock().files.pop(&self.id);
        drop(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::mem::MemEnv;

    fn pool(files: usize, max_open_files: usize) -> (MemEnv, Arc<FilePool>, Vec<FileHandle>) {
        let env = MemEnv::new();
        let pool = FilePool::new(Arc::new(env.clone()), max_open_files);
        let handles = (0..files)
            .map(|n| {
                let path = PathBuf::from(format!("/{n}"));
                env.write_file(&path, format!("file {n:04}").as_bytes());
                FileHandle::new(&pool, path)
            })
            .collect();
        (env, pool, handles)
    }

    #[test]
    fn open_files_stay_below_the_bound() {
        let (_env, pool, handles) = pool(10, 3);
        assert_eq!(pool.open_files(), 0, "making a handle opens nothing");
        for round in 0..3 {
            for (n, handle) in handles.iter().enumerate() {
                let mut buffer = [0; 4];
                handle.read_exact_at(5, &mut buffer).unwrap();
                assert_eq!(&buffer[..], format!("{n:04}").as_bytes());
                assert_eq!(handle.len().unwrap(), 9);
                assert_eq!(pool.open_files(), 3.min(round * 10 + n + 1));
            }
        }
        drop(handles);
        assert_eq!(pool.open_files(), 0, "a dropped handle closes its descriptor");
    }

    #[test]
    fn the_least_recently_used_file_closes_first() {
        let (env, pool, handles) = pool(3, 2);
        let read = |n: usize| handles[n].read_exact_at(0, &mut [0; 1]);
        read(0).unwrap();
        read(1).unwrap();
        read(0).unwrap();
        read(2).unwrap();
        for n in 0..3 {
            env.remove_file(Path::new(&format!("/{n}")));
        }
        assert!(read(1).is_err(), "it was closed, and its name is gone");
        read(0).unwrap();
        read(2).unwrap();
        assert_eq!(pool.open_files(), 2);
    }

    #[test]
    fn descriptor_shortages_end() {
        let (_env, short, handles) = pool(16, 8);
        let (_other_env, other, other_handles) = pool(8, 8);
        let read = |handles: &[FileHandle], rounds: usize| {
            for handle in (0..rounds).flat_map(|_| handles) {
                handle.read_exact_at(0, &mut [0; 1]).unwrap();
            }
        };
        read(&handles, 1);
        read(&other_handles, 1);
        assert!(evict_descriptors(&*short.env));
        assert_eq!((short.open_files(), short.limit()), (4, 4), "met the shortage");
        assert_eq!((other.open_files(), other.limit()), (4, 8), "only helps out");
        assert!(evict_descriptors(&*short.env));
        assert_eq!((short.open_files(), short.limit()), (2, 2));
        read(&other_handles, 1);
        assert_eq!(other.open_files(), 8, "its limit is its own");
        // Twice as many files as the pool may hold, so each read opens one.
        read(&handles, 4);
        assert_eq!(short.limit(), 2, "not at once");
        let back_in_time = |by: Duration| {
            let mut open = short.open.lock();
            open.short_at = open.short_at.and_then(|at| at.checked_sub(by));
        };
        back_in_time(PATIENCE.0);
        read(&handles, 2);
        assert_eq!((short.open_files(), short.limit()), (8, 8), "as before the shortage");
        read(&handles, 4);
        assert_eq!(short.limit(), 8, "and never more");
        // The next shortage was caused by growth.
        assert!(evict_descriptors(&*short.env));
        back_in_time(PATIENCE.0);
        read(&handles, 4);
        assert_eq!(short.limit(), 4, "it waits longer");
        back_in_time(PATIENCE.0);
        read(&handles, 4);
        assert_eq!(short.limit(), 8);
    }

    #[test]
    fn a_failed_open_fails_only_its_read() {
        let (env, _pool, handles) = pool(1, 2);
        env.remove_file(Path::new("/0"));
        for _ in 0..2 {
            let error = handles[0].read_exact_at(0, &mut [0; 1]).unwrap_err();
            assert!(matches!(error, Error::Io { op: "open", .. }), "{error}");
        }
        env.write_file(Path::new("/0"), b"again");
        let mut buffer = [0; 5];
        handles[0].read_exact_at(0, &mut buffer).unwrap();
        assert_eq!(&buffer, b"again");
    }

    #[test]
    fn a_short_file_is_corruption_with_offset() {
        let (_env, _pool, handles) = pool(1, 2);
        let error = handles[0].read_exact_at(7, &mut [0; 3]).unwrap_err();
        let Error::Corruption { path, offset: 7, .. } = error else { panic!("{error}") };
        assert_eq!(path, Path::new("/0"));
    }

    #[test]
    fn many_threads_share_few_descriptors() {
        let (_env, pool, handles) = pool(8, 2);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let handles = &handles;
                scope.spawn(move || {
                    for step in 0..200 {
                        let n = (step * (thread + 1)) % handles.len();
                        let mut buffer = [0; 9];
                        handles[n].read_exact_at(0, &mut buffer).unwrap();
                        assert_eq!(&buffer[..], format!("file {n:04}").as_bytes());
                    }
                });
            }
        });
        assert_eq!(pool.open_files(), 2);
    }
}
