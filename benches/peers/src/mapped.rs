//! Files that siftdb reads through memory maps, for the row that compares such reads.
//!
//! LevelDB and LMDB always read that way, RocksDB if it is told to. siftdb itself does not: an
//! error of the disk, or a mapped file that is cut short, ends the process by a signal, where a
//! call would return an error. A custom `Env` may do so. This one is siftdb's disk Env with random
//! reads replaced.
#![allow(unsafe_code)]

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use siftdb::env::{DiskEnv, Env, EnvLayer, RandomFile};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

/// The disk, read through maps.
#[derive(Debug, Default)]
pub struct MappedEnv(DiskEnv);

impl EnvLayer for MappedEnv {
    fn inner(&self) -> &dyn Env {
        &self.0
    }

    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        // Fails for everything that is not a file, as the disk Env does.
        let bytes = usize::try_from(self.0.open_random(path)?.len()?).map_err(io::Error::other)?;
        if bytes == 0 {
            return self.0.open_random(path);
        }
        let (file, protection) = (File::open(path)?, ProtFlags::READ);
        // SAFETY: a new map, at an address that the system chooses.
        let start =
            unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0)? };
        Ok(Arc::new(MappedFile { start: start as usize, bytes }))
    }
}

/// A file in the address space, as long as it was when it was opened.
#[derive(Debug)]
struct MappedFile {
    /// An address, so that threads may share it.
    start: usize,
    bytes: usize,
}

impl RandomFile for MappedFile {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let room = (self.bytes as u64).checked_sub(offset);
        if room.is_none_or(|room| room < buffer.len() as u64) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let from = (self.start + offset as usize) as *const u8;
        // SAFETY: the source is within the map, which stays to the drop, and no buffer of Rust's
        // overlaps it. siftdb changes no byte of a file once it is read, and nobody else is here.
        unsafe { ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), buffer.len()) };
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes as u64)
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: the map is this file's alone, and nothing reads it any more.
        let unmapped = unsafe { munmap(self.start as *mut _, self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
