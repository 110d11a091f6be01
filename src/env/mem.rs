//! [`MemEnv`]: a disk in memory that can lose power at any call.
//!
//! Clones share the disk. Every call that changes it is kept in a log with its bytes, so that one
//! run of a program yields each state that a crash may leave: [`MemEnv::replay`] runs the first
//! calls of the log again and crashes there, as a [`CrashModel`] says. [`MemEnv::power_cut`] is
//! the strictest crash, now. A call that fails changes nothing and is not kept.
//!
//! What a crash leaves is a disk of its own: no lock is held on it, its log is empty, and changes
//! to one are not seen by the other. Handles go on working on the disk that they were opened on.
//! A file is kept as long as a name or a handle refers to it, as in Unix.
//!
//! Test hooks ([`MemEnv::write_file`] and its like) act at once and durably.

use crate::env::api::{
    DirectoryEntry, Env, FileKind, FileLock, LockMode, Metadata, RandomFile, WritableFile,
};
pub use crate::env::mem_crash::CrashModel;
use crate::env::mem_crash::crash;
use crate::env::mem_disk::{Disk, FileId, FileRef, Op, name_in, normal};
use crate::sync::{Arc, Mutex};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// A disk in memory.
///
/// ```
/// use siftdb::env::Env;
/// use siftdb::env::mem::MemEnv;
/// use std::path::Path;
///
/// let env = MemEnv::new();
/// env.create_dir(Path::new("/db"))?;
/// env.sync_dir(Path::new("/"))?;
/// env.create_new(Path::new("/db/kept"))?.sync_all()?;
/// env.sync_dir(Path::new("/db"))?;
/// env.create_new(Path::new("/db/lost"))?.sync_all()?;
///
/// let after = env.power_cut();
/// assert_eq!(after.list_files(), [Path::new("/db/kept")]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemEnv {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Holders by lock file: shared ones counted, an exclusive one as `EXCLUSIVE`.
    locks: Mutex<HashMap<PathBuf, usize>>,
}

const EXCLUSIVE: usize = usize::MAX;

#[derive(Debug)]
struct State {
    disk: Disk,
    log: Option<Log>,
}

/// The calls made since `base`.
#[derive(Debug)]
struct Log {
    base: Disk,
    calls: Vec<Op>,
}

impl Default for MemEnv {
    fn default() -> Self {
        MemEnv::new()
    }
}

impl MemEnv {
    /// An empty disk with a root directory and a log.
    #[must_use]
    pub fn new() -> Self {
        MemEnv::with_disk(Disk::new(), true)
    }

    /// An empty disk that keeps no log: its memory is bounded by its files and what in them is
    /// not synced. It can still lose power, but [`MemEnv::replay`] has only its present to offer.
    #[must_use]
    pub fn without_log() -> Self {
        MemEnv::with_disk(Disk::new(), false)
    }

    fn with_disk(disk: Disk, keep_log: bool) -> Self {
        let log = keep_log.then(|| Log { base: disk.deep_copy(), calls: Vec::new() });
        let state = Mutex::new(State { disk, log });
        MemEnv { shared: Arc::new(Shared { state, locks: Mutex::new(HashMap::new()) }) }
    }

    /// Calls in the log.
    #[must_use]
    pub fn log_len(&self) -> usize {
        self.shared.state.lock().log.as_ref().map_or(0, |log| log.calls.len())
    }

    /// The calls in the log, one line each, for the message of a failed test.
    #[must_use]
    pub fn log_text(&self) -> Vec<String> {
        let state = self.shared.state.lock();
        let calls = state.log.iter().flat_map(|log| &log.calls);
        calls
            .map(|call| match call {
                Op::Write { id, offset, data } => {
                    format!("Write {{ id: {id}, offset: {offset}, bytes: {} }}", data.len())
                }
                Op::Put { path, data } => {
                    format!("Put {{ path: {path:?}, bytes: {} }}", data.len())
                }
                call => format!("{call:?}"),
            })
            .collect()
    }

    /// The disk after power failed now and took all that was not synced: a name created, renamed
    /// or removed counts only if its directory was synced since, bytes only if their file was.
    #[must_use]
    pub fn power_cut(&self) -> MemEnv {
        let state = self.shared.state.lock();
        MemEnv::with_disk(crash(&state.disk, CrashModel::Posix, 0), state.log.is_some())
    }

    /// A disk as a crash may leave it that comes after the first `upto_call` calls of the log, or
    /// after all of them if there are fewer. The same arguments give the same disk.
    #[must_use]
    pub fn replay(&self, upto_call: usize, model: CrashModel, seed: u64) -> MemEnv {
        let state = self.shared.state.lock();
        let (mut disk, calls) = match &state.log {
            Some(log) => (log.base.deep_copy(), &log.calls[..upto_call.min(log.calls.len())]),
            None => return MemEnv::with_disk(crash(&state.disk, model, seed), false),
        };
        for call in calls {
            // Only calls that worked are in the log, and each finds what it found then.
            let again = disk.run(call);
            debug_assert!(again.is_ok(), "{call:?}: {again:?}");
        }
        MemEnv::with_disk(crash(&disk, model, seed), true)
    }

    /// What the file holds, or `None` if there is none of that name.
    #[must_use]
    pub fn read_file(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.shared.state.lock();
        let file = state.disk.live.file(&normal(path)).ok()?;
        let bytes = file.contents.lock().live.clone();
        Some(bytes)
    }

    /// Puts a file there, durably, in place of what had the name. Missing directories are made.
    /// Handles opened before keep what they had.
    pub fn write_file(&self, path: &Path, bytes: &[u8]) {
        let put = self.shared.run(Op::Put { path: normal(path), data: Arc::from(bytes) });
        debug_assert!(put.is_ok());
    }

    /// Takes a file away, durably. Nothing happens if there is none.
    pub fn remove_file(&self, path: &Path) {
        let taken = self.shared.run(Op::Take { path: normal(path) });
        debug_assert!(taken.is_ok());
    }

    /// The paths of all files, sorted.
    #[must_use]
    pub fn list_files(&self) -> Vec<PathBuf> {
        self.shared.state.lock().disk.live.files.keys().cloned().collect()
    }
}

impl Shared {
    fn run(&self, op: Op) -> io::Result<FileId> {
        self.state.lock().run(op)
    }
}

impl State {
    fn run(&mut self, op: Op) -> io::Result<FileId> {
        let id = self.disk.run(&op)?;
        if let Some(log) = &mut self.log {
            log.calls.push(op);
        }
        Ok(id)
    }
}

impl Env for MemEnv {
    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        match self.shared.state.lock().disk.live.file(&normal(path)) {
            Ok(file) => Ok(Arc::new(MemRandom(Arc::clone(file)))),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                Err(io::ErrorKind::InvalidInput.into())
            }
            Err(error) => Err(error),
        }
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let id = self.shared.run(Op::Create { path: normal(path) })?;
        Ok(Box::new(MemWritable { shared: Arc::clone(&self.shared), id }))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.shared.run(Op::SyncDir { path: normal(path) }).map(drop)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.shared.run(Op::Rename { from: normal(from), to: normal(to) }).map(drop)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.shared.run(Op::Remove { path: normal(path) }).map(drop)
    }

    fn hard_link(&self, existing: &Path, new: &Path) -> io::Result<()> {
        self.shared.run(Op::Link { existing: normal(existing), new: normal(new) }).map(drop)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.shared.run(Op::CreateDir { path: normal(path) }).map(drop)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let directory = normal(path);
        let state = self.shared.state.lock();
        let live = &state.disk.live;
        live.expect_directory(&directory)?;
        let files = live.files.keys().map(|path| (path, FileKind::File));
        let directories = live.directories.iter().map(|path| (path, FileKind::Directory));
        Ok(files
            .chain(directories)
            .filter_map(|(path, kind)| {
                let name = name_in(&directory, path)?.to_string_lossy().into_owned();
                Some(DirectoryEntry { name, kind })
            })
            .collect())
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let path = normal(path);
        match self.shared.state.lock().disk.live.file(&path) {
            Ok(file) => {
                let bytes = file.contents.lock().live.len() as u64;
                Ok(Metadata { kind: FileKind::File, bytes })
            }
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                Ok(Metadata { kind: FileKind::Directory, bytes: 0 })
            }
            Err(error) => Err(error),
        }
    }

    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn FileLock>> {
        let path = normal(path);
        let mut locks = self.shared.locks.lock();
        let mut state = self.shared.state.lock();
        match state.disk.live.file(&path).map(drop) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let id = state.run(Op::Create { path: path.clone() })?;
                state.disk.close(id);
            }
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            found => found?,
        }
        let holders = locks.entry(path.clone()).or_insert(0);
        match mode {
            LockMode::Exclusive if *holders == 0 => *holders = EXCLUSIVE,
            LockMode::Shared if *holders != EXCLUSIVE => *holders += 1,
            _ => return Err(io::ErrorKind::WouldBlock.into()),
        }
        Ok(Box::new(MemLock { shared: Arc::clone(&self.shared), path, mode }))
    }
}

#[derive(Debug)]
struct MemRandom(FileRef);

impl RandomFile for MemRandom {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let contents = self.0.contents.lock();
        let start = usize::try_from(offset).ok();
        let end = start.and_then(|start| start.checked_add(buffer.len()));
        let bytes = start.zip(end).and_then(|(start, end)| contents.live.get(start..end));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.contents.lock().live.len() as u64)
    }
}

#[derive(Debug)]
struct MemWritable {
    shared: Arc<Shared>,
    id: FileId,
}

impl WritableFile for MemWritable {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        self.shared.run(Op::Write { id: self.id, offset, data: Arc::from(data) }).map(drop)
    }

    fn allocate_zeroed(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        self.write_at(offset, &vec![0; bytes as usize])
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.shared.run(Op::Sync { id: self.id }).map(drop)
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.shared.run(Op::Sync { id: self.id }).map(drop)
    }
}

impl Drop for MemWritable {
    fn drop(&mut self) {
        self.shared.state.lock().disk.close(self.id);
    }
}

#[derive(Debug)]
struct MemLock {
    shared: Arc<Shared>,
    path: PathBuf,
    mode: LockMode,
}

impl FileLock for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        let mut locks = self.shared.locks.lock();
        if let Some(holders) = locks.get_mut(&self.path) {
            *holders = if self.mode == LockMode::Exclusive { 0 } else { *holders - 1 };
        }
    }
}
