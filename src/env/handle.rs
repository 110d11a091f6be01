//! Files that are opened on demand, with a bound on open descriptors.
//!
//! Every open table owns a [`FileHandle`]: a path, and a [`Place`] for the open file, which it
//! shares with the [`FilePool`] of its database. Only a read of a block that is not cached uses it.
//! Such a read finds the file in its place without a lock. If the place is empty, it opens the
//! file, and the pool closes another: the one that was opened or looked at longest ago, of those
//! that no thread has read since then.
//!
//! Invariants: no file is opened, read or closed while the pool is locked. The pool lists a place
//! if and only if a file is in it; both change under the lock of the pool. A file that is closed
//! while another thread reads it closes when that read ends. So at most `max_open_files` are open,
//! one more for each reading thread, and for a moment those that threads are about to close. If a
//! file cannot be opened, only that read fails; the next read tries again.
//!
//! Descriptors belong to the process. When the process has none left, [`evict_descriptors`] makes
//! every pool close half of its descriptors, and `descriptor_retry` tries again. The limit of the
//! database that met the shortage is halved too. The limit grows back after a while, by one for
//! every few files opened. If growth leads to another shortage, that while is doubled.

use crate::base::error::{Error, Result};
use crate::base::process::Process;
use crate::base::sync::{Arc, ArcSwapOption, AtomicU64, Mutex, OnceLock, Ordering, plain};
use crate::env::api::{Env, RandomFile};
use arc_swap::Guard;
use lru::LruCache;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::path::PathBuf;
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

/// An open file.
#[derive(Debug)]
struct OpenFile {
    file: Arc<dyn RandomFile>,
    /// A thread has read it since the pool last looked.
    was_read: plain::AtomicBool,
}

impl OpenFile {
    fn new(file: Arc<dyn RandomFile>) -> Arc<Self> {
        Arc::new(OpenFile { file, was_read: plain::AtomicBool::new(false) })
    }
}

/// Where the open file of a handle is, if there is one.
type Place = ArcSwapOption<OpenFile>;

#[derive(Debug)]
struct OpenFiles {
    /// The places with a file, the one that was looked at longest ago first to go. Its capacity is
    /// the current limit.
    places: LruCache<u64, Arc<Place>>,
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
    fn new(limit: Option<NonZeroUsize>) -> Self {
        // Resized after creation: `LruCache::new` would allocate its whole capacity now.
        let mut places = LruCache::unbounded();
        limit.into_iter().for_each(|limit| places.resize(limit));
        OpenFiles { places, opened: 0, short_at: None, patience: PATIENCE.0, grown: false }
    }

    /// Takes a file out of its place. The caller closes it after it releases the lock.
    ///
    /// This is the rule of the second chance (F. J. Corbato, "A Paging Experiment with the Multics
    /// System", 1968): a file that was read since it was last looked at stays once more. So reads
    /// need not say in which order they come.
    fn take_one(&mut self) -> Option<Arc<OpenFile>> {
        for _ in 0..self.places.len() {
            let (id, place) = self.places.pop_lru()?;
            let was_read = |open: &Arc<OpenFile>| open.was_read.swap(false, Ordering::Relaxed);
            if !place.load().as_ref().is_some_and(was_read) {
                return place.swap(None);
            }
            self.places.put(id, place);
        }
        // All were read.
        let (_, place) = self.places.pop_lru()?;
        place.swap(None)
    }

    /// Takes half of the files out, and with `shrink` halves the limit too. The caller closes them
    /// after it releases the lock.
    fn take_half(&mut self, shrink: bool, now: Instant) -> Vec<Arc<OpenFile>> {
        let kept = self.places.len() / 2;
        let mut taken = Vec::new();
        while self.places.len() > kept {
            taken.extend(self.take_one());
        }
        if shrink && !taken.is_empty() {
            self.places.resize(NonZeroUsize::new(kept).unwrap_or(NonZeroUsize::MIN));
            if std::mem::take(&mut self.grown) {
                self.patience = PATIENCE.1.min(2 * self.patience);
            }
            (self.opened, self.short_at) = (0, Some(now));
        }
        taken
    }

    /// Counts an opened file; every few of them raise the limit by one, up to `bound`.
    fn grow(&mut self, bound: NonZeroUsize, now: impl Fn() -> Instant) {
        let limit = self.places.cap();
        if limit >= bound {
            return;
        }
        self.opened += 1;
        let waits = |at: Instant| now().saturating_duration_since(at) < self.patience;
        if self.opened < OPENS_PER_GROWTH || self.short_at.is_some_and(waits) {
            return;
        }
        (self.opened, self.grown) = (0, true);
        self.places.resize(limit.saturating_add(1));
    }
}

impl FilePool {
    /// A pool that keeps at most `max_open_files` descriptors, at least one.
    pub(crate) fn new(env: Arc<dyn Env>, max_open_files: usize) -> Arc<Self> {
        let limit = NonZeroUsize::new(max_open_files).unwrap_or(NonZeroUsize::MIN);
        let pool = Arc::new(FilePool::of(env, limit, OpenFiles::new(Some(limit))));
        let mut pools = POOLS.lock();
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&pool));
        pool
    }

    /// A pool that closes nothing: a file that was read once stays open as long as its handle, so
    /// it can be read after it was removed.
    pub(crate) fn holding(env: Arc<dyn Env>) -> Arc<Self> {
        // Not in `POOLS`, so a shortage does not close its files either.
        Arc::new(FilePool::of(env, NonZeroUsize::MAX, OpenFiles::new(None)))
    }

    fn of(env: Arc<dyn Env>, max_open_files: NonZeroUsize, open: OpenFiles) -> Self {
        let (process, next_id) = (Process::current(), AtomicU64::new(0));
        FilePool { env, process, next_id, max_open_files, open: Mutex::new(open) }
    }

    /// Descriptors in the pool now.
    #[cfg(test)]
    pub(crate) fn open_files(&self) -> usize {
        self.open.lock().places.len()
    }

    /// Descriptors that the pool may hold now.
    #[cfg(test)]
    pub(crate) fn limit(&self) -> usize {
        self.open.lock().places.cap().get()
    }

    /// Closes half of the descriptors, at least one; `shrink` halves the limit too. False if there
    /// were none.
    fn evict_half(&self, shrink: bool) -> bool {
        // Closing a file may take time, so the descriptors drop after the lock is released.
        let taken = self.open.lock().take_half(shrink, Instant::now());
        !taken.is_empty()
    }

    /// Puts a file that was just opened into its place, unless another thread was faster. Returns
    /// the file in the place, and the one to close.
    fn keep(
        &self,
        id: u64,
        place: &Arc<Place>,
        opened: Arc<OpenFile>,
    ) -> (Arc<OpenFile>, Option<Arc<OpenFile>>) {
        let mut open = self.open.lock();
        open.grow(self.max_open_files, Instant::now);
        if let Some(earlier) = place.load_full() {
            return (earlier, Some(opened));
        }
        let is_full = open.places.len() >= open.places.cap().get();
        let taken = if is_full { open.take_one() } else { None };
        place.store(Some(Arc::clone(&opened)));
        open.places.put(id, Arc::clone(place));
        (opened, taken)
    }
}

/// A file that any thread can read at any time; it is opened on demand.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pool: Arc<FilePool>,
    id: u64,
    /// The path of the file.
    pub path: PathBuf,
    /// The open file. An entry of the pool has it too, if a file is in it.
    place: Arc<Place>,
    /// The file, once it was opened, if it is in memory. It has no descriptor, so it stays.
    in_memory: OnceLock<Arc<OpenFile>>,
}

impl FileHandle {
    /// A handle of the file at `path`, which is not opened yet.
    pub(crate) fn new(pool: &Arc<FilePool>, path: PathBuf) -> Self {
        let id = pool.next_id.fetch_add(1, Ordering::Relaxed);
        let (place, in_memory) = (Arc::new(Place::empty()), OnceLock::new());
        FileHandle { pool: Arc::clone(pool), id, path, place, in_memory }
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
        let file = OpenFile::new(file);
        if file.file.as_bytes().is_some() {
            self.in_memory = OnceLock::from(file);
        } else {
            self.place.store(None);
            self.pool.keep(self.id, &self.place, file);
        }
    }

    /// Whether the pool holds its file.
    #[cfg(feature = "interleavings")]
    pub(crate) fn is_open(&self) -> bool {
        self.place.load().is_some()
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
        self.in_memory.get()?.file.as_bytes()
    }

    /// The open file, for one read.
    fn file(&self) -> Result<Opened> {
        if let Some(file) = self.in_memory.get() {
            return Ok(Opened(Guard::from_inner(Some(Arc::clone(file)))));
        }
        self.check_process()?;
        let found = self.place.load();
        if let Some(open) = &*found {
            // Written once, not by each read: threads that read the same file share this line.
            if !open.was_read.load(Ordering::Relaxed) {
                open.was_read.store(true, Ordering::Relaxed);
            }
            return Ok(Opened(found));
        }
        Ok(Opened(Guard::from_inner(Some(self.open()?))))
    }

    /// Opens the file.
    #[cold]
    fn open(&self) -> Result<Arc<OpenFile>> {
        let opened = self.pool.env.open_random(&self.path);
        let file = opened.map_err(|error| Error::io("open", &self.path, error))?;
        // A lookup wants one block; iterators say what they want (`table/scan_ahead.rs`).
        file.expect_random_reads();
        if file.as_bytes().is_some() {
            return Ok(Arc::clone(self.in_memory.get_or_init(|| OpenFile::new(file))));
        }
        let (file, unused) = self.pool.keep(self.id, &self.place, OpenFile::new(file));
        // Closing a file may take time, so it drops after the lock is released.
        drop(unused);
        Ok(file)
    }
}

/// An open file that a thread reads. Taking it and dropping it changes no reference count.
struct Opened(Guard<Option<Arc<OpenFile>>>);

impl Deref for Opened {
    type Target = dyn RandomFile;

    fn deref(&self) -> &(dyn RandomFile + 'static) {
        let Some(open) = &*self.0 else { unreachable!("only `FileHandle::file` makes one") };
        &*open.file
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        if !self.pool.process.is_current() {
            return;
        }
        let place = self.pool.open.lock().places.pop(&self.id);
        drop(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::layer::EnvLayer;
    use crate::env::mem::MemEnv;
    use std::path::Path;

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

    /// A file in memory maps, which counts the hints that it gets.
    #[derive(Clone, Debug)]
    struct Mapped(MemEnv, Arc<AtomicU64>);

    impl EnvLayer for Mapped {
        fn inner(&self) -> &dyn Env {
            &self.0
        }

        fn open_random(&self, _path: &Path) -> std::io::Result<Arc<dyn RandomFile>> {
            Ok(Arc::new(self.clone()))
        }
    }

    impl RandomFile for Mapped {
        fn read_exact_at(&self, _offset: u64, _buffer: &mut [u8]) -> std::io::Result<()> {
            Ok(())
        }

        fn len(&self) -> std::io::Result<u64> {
            Ok(0)
        }

        fn expect_random_reads(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }

        fn as_bytes(&self) -> Option<&[u8]> {
            Some(&[])
        }
    }

    /// The system read megabytes around each page that was missing in a map.
    #[test]
    fn a_mapped_file_expects_random_reads() {
        let env = Mapped(MemEnv::new(), Arc::default());
        let pool = FilePool::new(Arc::new(env.clone()), 3);
        let handle = FileHandle::new(&pool, PathBuf::from("/0"));
        for _ in 0..3 {
            handle.read_exact_at(0, &mut [0; 4]).unwrap();
        }
        assert_eq!(env.1.load(Ordering::Relaxed), 1);
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
