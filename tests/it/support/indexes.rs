//! A file system on which the data indexes of all tables are damaged, or cannot be read, for as
//! long as that is wanted.

use siftdb::env::{Env, EnvLayer, RandomFile};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

/// What reading an index gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexes {
    Sound,
    /// The same, after a while.
    Slow,
    /// A bit is flipped.
    Damaged,
    /// The device answers an error.
    Unreadable,
}

/// Passes every call on. An index is known by its place: its trailer ends where the footer begins.
#[derive(Clone, Debug)]
pub struct IndexEnv {
    inner: Arc<dyn Env>,
    state: Arc<Mutex<(Indexes, u64)>>,
}

impl IndexEnv {
    pub fn new(inner: Arc<dyn Env>) -> Self {
        IndexEnv { inner, state: Arc::new(Mutex::new((Indexes::Sound, 0))) }
    }

    pub fn set(&self, indexes: Indexes) {
        self.state.lock().unwrap().0 = indexes;
    }

    /// Indexes that were read so far, or would have been.
    pub fn reads(&self) -> u64 {
        self.state.lock().unwrap().1
    }
}

impl EnvLayer for IndexEnv {
    fn inner(&self) -> &dyn Env {
        &*self.inner
    }

    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        let inner = self.inner.open_random(path)?;
        if path.extension().is_none_or(|extension| extension != "sst") {
            return Ok(inner);
        }
        Ok(Arc::new(TableFile { inner, state: Arc::clone(&self.state) }))
    }
}

#[derive(Debug)]
struct TableFile {
    inner: Arc<dyn RandomFile>,
    state: Arc<Mutex<(Indexes, u64)>>,
}

impl RandomFile for TableFile {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact_at(offset, buffer)?;
        if offset + buffer.len() as u64 + 56 != self.inner.len()? {
            return Ok(());
        }
        let indexes = {
            let mut state = self.state.lock().unwrap();
            state.1 += 1;
            state.0
        };
        match indexes {
            Indexes::Sound => {}
            Indexes::Slow => std::thread::sleep(Duration::from_millis(5)),
            Indexes::Damaged => buffer[0] ^= 1,
            Indexes::Unreadable => return Err(io::Error::from_raw_os_error(5)),
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}
