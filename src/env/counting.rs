//! [`CountingEnv`]: an Env that counts the reads, writes and syncs of another one.
//!
//! Tests compare the engine's own statistics with it: a block counts as avoided only if it was not
//! read. A read is one `read_exact_at`; opening a file, listing a directory and asking for a length
//! are not reads. A failed call counts too, with the bytes that it asked for. The counters are
//! relaxed atomics: they are exact once the threads that made the calls are joined.

use crate::base::sync::{Arc, AtomicU64, Ordering};
use crate::env::api::Env;
use crate::env::layer::EnvLayer;
use crate::env::watched::{WatchedEnv, Watcher};
use std::io;
use std::path::Path;

/// An Env that counts the calls that it forwards. Clones share the counters.
///
/// ```
/// use siftdb::env::{CountingEnv, Env, MemEnv};
/// use std::path::Path;
/// use std::sync::Arc;
///
/// let env = CountingEnv::new(Arc::new(MemEnv::new()));
/// env.create_new(Path::new("/file"))?.write_at(0, b"contents")?;
/// let mut buffer = [0; 3];
/// env.open_random(Path::new("/file"))?.read_exact_at(2, &mut buffer)?;
/// assert_eq!((env.read_calls(), env.read_bytes()), (1, 3));
/// assert_eq!((env.write_calls(), env.write_bytes()), (1, 8));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CountingEnv(WatchedEnv<Arc<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    read_calls: AtomicU64,
    read_bytes: AtomicU64,
    read_bytes_max: AtomicU64,
    write_calls: AtomicU64,
    write_bytes: AtomicU64,
    syncs: AtomicU64,
    directory_syncs: AtomicU64,
}

impl CountingEnv {
    /// Wraps `inner`, with all counters at zero.
    #[must_use]
    pub fn new(inner: Arc<dyn Env>) -> Self {
        CountingEnv(WatchedEnv { inner, watcher: Arc::default() })
    }

    fn counts(&self) -> &Counts {
        &self.0.watcher
    }

    /// Calls of `read_exact_at`.
    #[must_use]
    pub fn read_calls(&self) -> u64 {
        self.counts().read_calls.load(Ordering::Relaxed)
    }

    /// Bytes that these calls asked for.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.counts().read_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the largest of these calls.
    #[must_use]
    pub fn read_bytes_max(&self) -> u64 {
        self.counts().read_bytes_max.load(Ordering::Relaxed)
    }

    /// Calls of `write_at` and `allocate_zeroed`.
    #[must_use]
    pub fn write_calls(&self) -> u64 {
        self.counts().write_calls.load(Ordering::Relaxed)
    }

    /// Bytes that these calls wrote.
    #[must_use]
    pub fn write_bytes(&self) -> u64 {
        self.counts().write_bytes.load(Ordering::Relaxed)
    }

    /// Calls of `sync_data` and `sync_all`.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.counts().syncs.load(Ordering::Relaxed)
    }

    /// Calls of `sync_dir`.
    #[must_use]
    pub fn directory_syncs(&self) -> u64 {
        self.counts().directory_syncs.load(Ordering::Relaxed)
    }
}

impl EnvLayer for CountingEnv {
    fn inner(&self) -> &dyn Env {
        &self.0
    }
}

impl Watcher for Arc<Counts> {
    fn call<T>(
        &self,
        operation: &'static str,
        _path: &Path,
        bytes: u64,
        mut make: impl FnMut(u64) -> io::Result<T>,
    ) -> io::Result<T> {
        let add = |counter: &AtomicU64, amount| {
            counter.fetch_add(amount, Ordering::Relaxed);
        };
        match operation {
            "read_exact_at" => {
                add(&self.read_calls, 1);
                add(&self.read_bytes, bytes);
                self.read_bytes_max.fetch_max(bytes, Ordering::Relaxed);
            }
            "write_at" | "allocate_zeroed" => {
                add(&self.write_calls, 1);
                add(&self.write_bytes, bytes);
            }
            "sync_data" | "sync_all" => add(&self.syncs, 1),
            "sync_dir" => add(&self.directory_syncs, 1),
            _ => {}
        }
        make(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::mem::MemEnv;

    #[test]
    fn only_reads_writes_and_syncs_are_counted() {
        let counting = CountingEnv::new(Arc::new(MemEnv::new()));
        let (env, path): (&dyn Env, _) = (&counting, Path::new("/f"));
        let mut file = env.create_new(path).unwrap();
        file.write_at(0, &[1; 10]).unwrap();
        file.allocate_zeroed(10, 100).unwrap();
        file.sync_data().unwrap();
        file.sync_all().unwrap();
        env.sync_dir(Path::new("/")).unwrap();
        let reader = env.open_random(path).unwrap();
        assert_eq!(reader.len().unwrap(), 110);
        env.metadata(path).unwrap();
        env.list(Path::new("/")).unwrap();
        assert_eq!((counting.read_calls(), counting.read_bytes()), (0, 0));
        reader.read_exact_at(3, &mut [0; 7]).unwrap();
        reader.read_exact_at(109, &mut [0; 2]).unwrap_err();
        assert_eq!(
            (counting.read_calls(), counting.read_bytes(), counting.read_bytes_max()),
            (2, 9, 7)
        );
        assert_eq!((counting.write_calls(), counting.write_bytes()), (2, 110));
        assert_eq!((counting.syncs(), counting.directory_syncs()), (2, 1));
    }
}
