//! [`CountingEnv`]: an Env that counts the reads, writes and syncs of another one.
//!
//! Tests compare the engine's own statistics with it: a block counts as avoided only if it was not
//! read. A read is one `read_exact_at`; opening a file, listing a directory and asking for a length
//! are not reads. A failed call counts too, with the bytes that it asked for.

use crate::base::sync::{Arc, Mutex};
use crate::env::api::Env;
use crate::env::layer::EnvLayer;
use crate::env::watched::{Call, WatchedEnv, Watcher};
use std::io;

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
/// assert_eq!((env.counts().read_calls, env.counts().read_bytes), (1, 3));
/// assert_eq!((env.counts().write_calls, env.counts().write_bytes), (1, 8));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CountingEnv(WatchedEnv<Arc<Mutex<IoCounts>>>);

/// What a [`CountingEnv`] has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoCounts {
    /// Calls of `read_exact_at`, failed ones included.
    pub read_calls: u64,
    /// Bytes that these calls asked for.
    pub read_bytes: u64,
    /// Bytes of the largest of these calls.
    pub read_bytes_max: u64,
    /// Calls of `write_at` and `allocate_zeroed`.
    pub write_calls: u64,
    /// Bytes that these calls wrote.
    pub write_bytes: u64,
    /// Calls of `sync_data` and `sync_all`.
    pub syncs: u64,
    /// Calls of `sync_dir`, failed ones included.
    pub directory_syncs: u64,
}

impl CountingEnv {
    /// Wraps `inner`, with all counters at zero.
    #[must_use]
    pub fn new(inner: Arc<dyn Env>) -> Self {
        CountingEnv(WatchedEnv { inner, watcher: Arc::default() })
    }

    /// The counters as they are now.
    #[must_use]
    pub fn counts(&self) -> IoCounts {
        *self.0.watcher.lock()
    }
}

impl EnvLayer for CountingEnv {
    fn inner(&self) -> &dyn Env {
        &self.0
    }
}

impl Watcher for Arc<Mutex<IoCounts>> {
    fn call<T>(&self, call: Call<'_>, mut make: impl FnMut(u64) -> io::Result<T>) -> io::Result<T> {
        let mut counts = self.lock();
        match call.operation {
            "read_exact_at" => {
                counts.read_calls += 1;
                counts.read_bytes += call.bytes;
                counts.read_bytes_max = counts.read_bytes_max.max(call.bytes);
            }
            "write_at" | "allocate_zeroed" => {
                counts.write_calls += 1;
                counts.write_bytes += call.bytes;
            }
            "sync_data" | "sync_all" => counts.syncs += 1,
            "sync_dir" => counts.directory_syncs += 1,
            _ => {}
        }
        drop(counts);
        make(call.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::mem::MemEnv;
    use std::path::Path;

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
        assert_eq!((counting.counts().read_calls, counting.counts().read_bytes), (0, 0));
        reader.read_exact_at(3, &mut [0; 7]).unwrap();
        reader.read_exact_at(109, &mut [0; 2]).unwrap_err();
        assert_eq!(
            (
                counting.counts().read_calls,
                counting.counts().read_bytes,
                counting.counts().read_bytes_max
            ),
            (2, 9, 7)
        );
        assert_eq!((counting.counts().write_calls, counting.counts().write_bytes), (2, 110));
        assert_eq!((counting.counts().syncs, counting.counts().directory_syncs), (2, 1));
    }
}
