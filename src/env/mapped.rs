//! [`MapEnv`]: the disk, with tables read through memory maps.
//!
//! Tables are never changed once they are written, so only they are mapped; logs and manifests,
//! which grow, are read by calls. A map is as long as the file was when it was opened, and lives as
//! long as the table is open. All `unsafe` of this Env is here.
#![allow(unsafe_code)]

use crate::base::filename::{FileName, parse};
use crate::env::api::{Env, RandomFile};
use crate::env::disk::{DiskEnv, open_file};
use crate::env::layer::EnvLayer;
#[cfg(unix)]
use memmap2::Advice;
use memmap2::Mmap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The real file system, with tables read through memory maps (feature `mmap`).
///
/// No read of a table is then a call. A block that the block cache does not keep is searched where
/// it lies in the system's page cache, without a copy unless it is compressed. Its checksum is
/// verified when the process first uses it so, and not again while the table's index is in memory.
/// It pays where the data fit into the page cache and the block cache is much smaller.
///
/// A disk that fails, and a file that is cut short, end the process by the signal `SIGBUS`, where
/// [`DiskEnv`] returns an error. Maps take no descriptors, so
/// [`max_open_files`](crate::Options::max_open_files) does not bound them: a table that was read
/// stays mapped until it is removed or the database is closed.
///
/// ```
/// use siftdb::Options;
/// use siftdb::env::MapEnv;
/// use std::sync::Arc;
///
/// # fn main() -> siftdb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path();
/// // SAFETY: only siftdb changes files in this directory.
/// let env = unsafe { MapEnv::new() };
/// let db = Options::new().env(Arc::new(env)).block_cache_bytes(8 << 20).open(path)?;
/// db.put("ada", "1815")?;
/// db.flush()?;
/// assert_eq!(db.get("ada")?.as_deref(), Some(&b"1815"[..]));
/// # db.close()
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MapEnv(DiskEnv);

impl MapEnv {
    /// The real file system, with tables in memory maps.
    ///
    /// # Safety
    /// As long as a database is open through this Env, or an iterator or snapshot of it lives,
    /// nobody but siftdb changes or truncates a table in its directory: no other process, and
    /// nothing else in this one. siftdb itself never changes a table that it has written. Removing
    /// a table is an error of the database and is sound.
    #[must_use]
    pub unsafe fn new() -> Self {
        MapEnv(DiskEnv::new())
    }
}

impl EnvLayer for MapEnv {
    fn inner(&self) -> &dyn Env {
        &self.0
    }

    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        let name = path.file_name().and_then(|name| name.to_str());
        if !matches!(name.and_then(parse), Some(FileName::Table(_))) {
            return self.0.open_random(path);
        }
        let file = open_file(path)?;
        // SAFETY: a shared map of a file that nobody changes or truncates while it is mapped. That
        // is the contract of `MapEnv::new`, and siftdb opens a table to read it only when all of it
        // is written.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Arc::new(MappedFile(map)))
    }
}

/// A file in the address space, as long as it was when it was opened.
#[derive(Debug)]
struct MappedFile(Mmap);

impl RandomFile for MappedFile {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let range = start.and_then(|start| Some(start..start.checked_add(buffer.len())?));
        let bytes = range.and_then(|range| self.0.get(range));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    // Without it the system reads up to megabytes around each page that is missing.
    #[cfg(unix)]
    fn expect_random_reads(&self) {
        let _ = self.0.advise(Advice::Random);
    }

    #[cfg(unix)]
    fn read_ahead(&self, offset: u64, bytes: u64) {
        let bytes = bytes.min((self.0.len() as u64).saturating_sub(offset));
        let _ = self.0.advise_range(Advice::WillNeed, offset as usize, bytes as usize);
    }

    fn as_bytes(&self) -> Option<&[u8]> {
        Some(&self.0)
    }
}
