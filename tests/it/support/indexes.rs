//! An Env on which a test can make the data indexes of all tables slow, damaged or unreadable.

use siftdb::env::{Env, EnvLayer, RandomFile};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

/// The result of reading an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexes {
    Sound,
    /// The read takes some time.
    Slow,
    /// A bit is flipped.
    Damaged,
    /// The read fails.
    Unreadable,
}

/// Forwards every call. An index is recognized by its place: its trailer ends where the footer
/// begins.
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

    /// How often an index was read, failed reads included.
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
