//! An Env under a page cache of a fixed size, as a machine has whose memory is smaller than its
//! data.

use lru::LruCache;
use siftdb::env::{Env, EnvLayer, RandomFile};
use std::collections::HashSet;
use std::io;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// A page of a file.
type Page = (PathBuf, u64);

/// What was read since the last question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskReads {
    /// Calls that had to read a page or more.
    pub calls: u64,
    /// Calls that had to wait: for pages that they read, or for pages that were asked for. All that
    /// was asked for is there after any of them.
    pub waits: u64,
    /// Pages that were not in the cache, those that were read ahead included.
    pub pages: u64,
}

#[derive(Debug)]
struct Pages {
    cached: LruCache<Page, ()>,
    /// Pages that were asked for since the last wait.
    on_the_way: HashSet<Page>,
    reads: DiskReads,
    files_without_read_ahead: u64,
}

impl Pages {
    /// Takes pages of a file into the cache, and returns those that were not in it.
    fn touch(&mut self, path: &Path, pages: RangeInclusive<u64>) -> Vec<Page> {
        let pages = pages.map(|page| (path.to_path_buf(), page));
        let missed: Vec<Page> =
            pages.filter(|page| self.cached.put(page.clone(), ()).is_none()).collect();
        self.reads.pages += missed.len() as u64;
        missed
    }
}

/// Forwards every call, and counts the pages that the disk reads. Pages that were read last stay in
/// the cache. Clones share it.
#[derive(Clone, Debug)]
pub struct PageCacheEnv {
    inner: Arc<dyn Env>,
    pages: Arc<Mutex<Pages>>,
}

impl PageCacheEnv {
    /// A cache of this size, empty.
    pub fn new(inner: Arc<dyn Env>, bytes: u64) -> Self {
        let pages = NonZeroUsize::new((bytes / PAGE_BYTES) as usize).expect("a page at least");
        let pages = Pages {
            cached: LruCache::new(pages),
            on_the_way: HashSet::new(),
            reads: DiskReads::default(),
            files_without_read_ahead: 0,
        };
        PageCacheEnv { inner, pages: Arc::new(Mutex::new(pages)) }
    }

    /// Files that are read at random places: the system reads nothing ahead of them by itself.
    pub fn files_without_read_ahead(&self) -> u64 {
        self.pages.lock().unwrap().files_without_read_ahead
    }

    /// The reads since the last call.
    pub fn take(&self) -> DiskReads {
        std::mem::take(&mut self.pages.lock().unwrap().reads)
    }
}

impl EnvLayer for PageCacheEnv {
    fn inner(&self) -> &dyn Env {
        &*self.inner
    }

    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        let inner = self.inner.open_random(path)?;
        Ok(Arc::new(CachedFile { inner, path: path.to_path_buf(), pages: Arc::clone(&self.pages) }))
    }
}

#[derive(Debug)]
struct CachedFile {
    inner: Arc<dyn RandomFile>,
    path: PathBuf,
    pages: Arc<Mutex<Pages>>,
}

fn pages_of(offset: u64, bytes: usize) -> RangeInclusive<u64> {
    offset / PAGE_BYTES..=(offset + bytes as u64).saturating_sub(1) / PAGE_BYTES
}

impl RandomFile for CachedFile {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut pages = self.pages.lock().unwrap();
        let mut read = pages_of(offset, buffer.len());
        let missed = !pages.touch(&self.path, read.clone()).is_empty();
        pages.reads.calls += u64::from(missed);
        if missed || read.any(|page| pages.on_the_way.contains(&(self.path.clone(), page))) {
            pages.reads.waits += 1;
            pages.on_the_way.clear();
        }
        drop(pages);
        self.inner.read_exact_at(offset, buffer)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn expect_random_reads(&self) {
        self.pages.lock().unwrap().files_without_read_ahead += 1;
    }

    fn read_ahead(&self, offset: u64, bytes: u64) {
        let mut pages = self.pages.lock().unwrap();
        let missed = pages.touch(&self.path, pages_of(offset, bytes as usize));
        pages.on_the_way.extend(missed);
    }
}
