//! An Env that records the reads of tables, can make one fail, and can have tables in memory.

use siftdb::env::{Env, EnvLayer, RandomFile};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// One read call, or a request to read ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub path: PathBuf,
    pub offset: u64,
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Seen {
    reads: Vec<Read>,
    requests: Vec<Read>,
    /// How many reads there were before the last request.
    reads_before: usize,
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
        std::mem::take(&mut self.seen.lock().unwrap().reads)
    }

    /// The requests to read ahead since the last call, and how many of the reads that were not
    /// taken came before the last one.
    pub fn take_requests(&self) -> (Vec<Read>, usize) {
        let mut seen = self.seen.lock().unwrap();
        let reads_before = std::mem::take(&mut seen.reads_before);
        (std::mem::take(&mut seen.requests), reads_before)
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
        let fails = {
            let mut seen = self.seen.lock().unwrap();
            let (path, bytes) = (self.path.clone(), buffer.len() as u64);
            seen.reads.push(Read { path, offset, bytes });
            seen.fail_at == Some(offset)
        };
        match fails {
            true => Err(io::Error::from_raw_os_error(5)),
            false => self.inner.read_exact_at(offset, buffer),
        }
    }

    fn read_ahead(&self, offset: u64, bytes: u64) {
        let mut seen = self.seen.lock().unwrap();
        seen.reads_before = seen.reads.len();
        seen.requests.push(Read { path: self.path.clone(), offset, bytes });
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn as_bytes(&self) -> Option<&[u8]> {
        self.memory.as_deref()
    }
}
