//! An Env that records the reads of tables, can make them slow, and can have tables in memory.

use siftdb::env::{Env, EnvLayer, RandomFile};
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

/// One read call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub path: PathBuf,
    pub offset: u64,
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Seen {
    reads: Vec<Read>,
    threads: HashSet<ThreadId>,
    running: usize,
    most_at_once: usize,
    delay: Duration,
    fail_at: Option<u64>,
}

/// Forwards every call. Clones share what was recorded.
#[derive(Clone, Debug)]
pub struct ReadsEnv {
    inner: Arc<dyn Env>,
    in_memory: bool,
    seen: Arc<Mutex<Seen>>,
}

impl ReadsEnv {
    pub fn new(inner: Arc<dyn Env>) -> Self {
        ReadsEnv { inner, in_memory: false, seen: Arc::default() }
    }

    /// The same with tables that are in memory, as in a memory map.
    pub fn in_memory(inner: Arc<dyn Env>) -> Self {
        ReadsEnv { in_memory: true, ..Self::new(inner) }
    }

    /// The reads since the last call.
    pub fn take(&self) -> Vec<Read> {
        let mut seen = self.seen.lock().unwrap();
        seen.threads.clear();
        seen.most_at_once = 0;
        std::mem::take(&mut seen.reads)
    }

    /// How many reads ran at the same time at most, and on how many threads, since `take`.
    pub fn at_once(&self) -> (usize, usize) {
        let seen = self.seen.lock().unwrap();
        (seen.most_at_once, seen.threads.len())
    }

    /// Each read takes this long from now on.
    pub fn delay(&self, delay: Duration) {
        self.seen.lock().unwrap().delay = delay;
    }

    /// Reads that begin at this offset fail from now on.
    pub fn fail_at(&self, offset: Option<u64>) {
        self.seen.lock().unwrap().fail_at = offset;
    }
}

impl EnvLayer for ReadsEnv {
    fn inner(&self) -> &dyn Env {
        &*self.inner
    }

    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        let inner = self.inner.open_random(path)?;
        if path.extension().is_none_or(|extension| extension != "sst") {
            return Ok(inner);
        }
        let memory = match self.in_memory {
            true => {
                let mut bytes = vec![0; inner.len()? as usize];
                inner.read_exact_at(0, &mut bytes)?;
                Some(bytes)
            }
            false => None,
        };
        let (path, seen) = (path.to_path_buf(), Arc::clone(&self.seen));
        Ok(Arc::new(TableFile { inner, path, memory, seen }))
    }
}

#[derive(Debug)]
struct TableFile {
    inner: Arc<dyn RandomFile>,
    path: PathBuf,
    memory: Option<Vec<u8>>,
    seen: Arc<Mutex<Seen>>,
}

impl RandomFile for TableFile {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let (delay, fails) = {
            let mut seen = self.seen.lock().unwrap();
            let (path, bytes) = (self.path.clone(), buffer.len() as u64);
            seen.reads.push(Read { path, offset, bytes });
            seen.threads.insert(std::thread::current().id());
            seen.running += 1;
            seen.most_at_once = seen.most_at_once.max(seen.running);
            (seen.delay, seen.fail_at == Some(offset))
        };
        std::thread::sleep(delay);
        let result = match fails {
            true => Err(io::Error::from_raw_os_error(5)),
            false => self.inner.read_exact_at(offset, buffer),
        };
        self.seen.lock().unwrap().running -= 1;
        result
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn as_bytes(&self) -> Option<&[u8]> {
        self.memory.as_deref()
    }
}
