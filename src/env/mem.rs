//! [`MemEnv`]: a file system in memory.
//!
//! `mem_disk` holds the files and runs the calls; this file puts a lock around it. A file is kept
//! as long as a name or a handle refers to it, as in Unix. A call that fails changes nothing.
//!
//! The disk tells live contents from durable ones, so that a test can crash it: `testing::crash`.
//! Test hooks ([`MemEnv::write_file`] and its like) act at once and durably.

use crate::base::sync::{Arc, Mutex, plain};
use crate::env::api::{
    DirectoryEntry, Env, FileId, FileKind, FileLock, LockMode, Metadata, RandomFile, WritableFile,
};
use crate::env::mem_disk::{Disk, FileRef, MemFileId, Op, name_in, normal};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file system in memory. Clones share it.
///
/// ```
/// use siftdb::env::{Env, MemEnv};
/// use std::path::Path;
///
/// let env = MemEnv::new();
/// env.create_new(Path::new("/file"))?.write_at(0, b"contents")?;
/// assert_eq!(env.read_file(Path::new("/file")).unwrap(), b"contents");
/// assert_eq!(env.list_files(), [Path::new("/file")]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemEnv {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// By lock file: the number of shared locks, or `EXCLUSIVE`.
    locks: Mutex<HashMap<MemFileId, usize>>,
    /// The device number, so that the files of two disks differ.
    device: u64,
    /// The time that was set; the system's clock without one.
    now: Mutex<Option<SystemTime>>,
}

const EXCLUSIVE: usize = usize::MAX;

/// Device numbers of disks in memory, downward from the highest, which no real device has.
static NEXT_DEVICE: plain::AtomicU64 = plain::AtomicU64::new(u64::MAX);

#[derive(Debug)]
pub(super) struct State {
    pub(super) disk: Disk,
    /// Kept only for crash tests: it grows with every call.
    pub(super) log: Option<Log>,
}

/// The successful changes since `base`, in order.
#[derive(Debug)]
pub(super) struct Log {
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only crashes read it"))]
    pub(super) base: Disk,
    pub(super) calls: Vec<Op>,
}

impl Default for MemEnv {
    fn default() -> Self {
        MemEnv::new()
    }
}

impl MemEnv {
    /// An empty file system with a root directory.
    #[must_use]
    pub fn new() -> Self {
        MemEnv::with_disk(Disk::new(), false)
    }

    /// A file system that holds `disk`; `keep_log` records every change from here on.
    pub(super) fn with_disk(disk: Disk, keep_log: bool) -> Self {
        let log = keep_log.then(|| Log { base: disk.deep_copy(), calls: Vec::new() });
        let state = Mutex::new(State { disk, log });
        let device = NEXT_DEVICE.fetch_sub(1, plain::Ordering::Relaxed);
        let (locks, now) = (Mutex::new(HashMap::new()), Mutex::new(None));
        MemEnv { shared: Arc::new(Shared { state, locks, device, now }) }
    }

    /// Stops the clock at `now`, which may be before the time that it showed: entries expire by it.
    /// Until then it is the system's clock.
    ///
    /// ```
    /// use siftdb::env::{Env, MemEnv};
    /// use std::time::{Duration, UNIX_EPOCH};
    ///
    /// let env = MemEnv::new();
    /// env.set_now(UNIX_EPOCH + Duration::from_secs(60));
    /// assert_eq!(env.now(), UNIX_EPOCH + Duration::from_secs(60));
    /// ```
    pub fn set_now(&self, now: SystemTime) {
        *self.shared.now.lock() = Some(now);
    }

    /// The contents of a file; `None` if there is none of that name.
    #[must_use]
    pub fn read_file(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.shared.state.lock();
        let file = state.disk.live.file(&normal(path)).ok()?;
        let bytes = file.contents.lock().live.to_vec();
        Some(bytes)
    }

    /// Creates or replaces a file durably. Missing directories are created. Handles that were
    /// opened before keep the old contents.
    pub fn write_file(&self, path: &Path, bytes: &[u8]) {
        let put = self.shared.run(Op::Put { path: normal(path), data: Arc::from(bytes) });
        debug_assert!(put.is_ok());
    }

    /// Removes a file durably. Nothing happens if there is none.
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
    fn file_id(&self, file: MemFileId) -> FileId {
        FileId { device: self.device, inode: file }
    }

    fn run(&self, op: Op) -> io::Result<MemFileId> {
        self.state.lock().run(op)
    }
}

impl State {
    fn run(&mut self, op: Op) -> io::Result<MemFileId> {
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
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(MemWritable(Arc::new(OpenMemFile { shared, id }))))
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
                Ok(Metadata { kind: FileKind::File, bytes, id: self.shared.file_id(file.id) })
            }
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                // Directories have no identity here, and the engine does not use it.
                let id = self.shared.file_id(MemFileId::MAX);
                Ok(Metadata { kind: FileKind::Directory, bytes: 0, id })
            }
            Err(error) => Err(error),
        }
    }

    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn FileLock>> {
        let path = normal(path);
        let mut locks = self.shared.locks.lock();
        let mut state = self.shared.state.lock();
        let file = match state.disk.live.file(&path).map(|file| file.id) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let id = state.run(Op::Create { path })?;
                state.disk.close(id);
                id
            }
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            found => found?,
        };
        let holders = locks.entry(file).or_insert(0);
        match mode {
            LockMode::Exclusive if *holders == 0 => *holders = EXCLUSIVE,
            LockMode::Shared if *holders != EXCLUSIVE => *holders += 1,
            _ => return Err(io::ErrorKind::WouldBlock.into()),
        }
        Ok(Box::new(MemLock { shared: Arc::clone(&self.shared), file, mode }))
    }

    fn now(&self) -> SystemTime {
        self.shared.now.lock().unwrap_or_else(SystemTime::now)
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

/// A file that is open for writing until its last handle is dropped.
#[derive(Debug)]
struct OpenMemFile {
    shared: Arc<Shared>,
    id: MemFileId,
}

impl Drop for OpenMemFile {
    fn drop(&mut self) {
        self.shared.state.lock().disk.close(self.id);
    }
}

#[derive(Clone, Debug)]
struct MemWritable(Arc<OpenMemFile>);

impl WritableFile for MemWritable {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let OpenMemFile { shared, id } = &*self.0;
        shared.run(Op::Write { id: *id, offset, data: Arc::from(data) }).map(drop)
    }

    fn allocate_zeroed(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        self.write_at(offset, &vec![0; bytes as usize])
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.0.shared.run(Op::Sync { id: self.0.id }).map(drop)
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn try_clone(&self) -> io::Result<Box<dyn WritableFile>> {
        Ok(Box::new(self.clone()))
    }
}

#[derive(Debug)]
struct MemLock {
    shared: Arc<Shared>,
    file: MemFileId,
    mode: LockMode,
}

impl FileLock for MemLock {
    fn id(&self) -> io::Result<FileId> {
        Ok(self.shared.file_id(self.file))
    }
}

impl Drop for MemLock {
    fn drop(&mut self) {
        let mut locks = self.shared.locks.lock();
        if let Some(holders) = locks.get_mut(&self.file) {
            *holders = if self.mode == LockMode::Exclusive { 0 } else { *holders - 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Error;
    use crate::base::filename::FileName;
    use crate::env::api::{put_in_place, read_file, write_temporary};
    use crate::env::disk::DiskEnv;

    // -- what DiskEnv and MemEnv both do ---------------------------------------------------------

    /// Runs `suite` on an empty directory of each.
    fn on_both(suite: impl Fn(&dyn Env, &Path)) {
        let real = tempfile::tempdir().unwrap();
        suite(&DiskEnv::new(), real.path());
        let env = MemEnv::new();
        env.create_dir(Path::new("/db")).unwrap();
        suite(&env, Path::new("/db"));
    }

    fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
        result.err().expect("it must fail").kind()
    }

    fn create(env: &dyn Env, path: &Path, contents: &[u8]) -> Box<dyn WritableFile> {
        let mut file = env.create_new(path).unwrap();
        file.write_at(0, contents).unwrap();
        file
    }

    fn contents(env: &dyn Env, path: &Path) -> Vec<u8> {
        read_file(env, path, u64::MAX).unwrap()
    }

    fn names(env: &dyn Env, directory: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            env.list(directory).unwrap().into_iter().map(|entry| entry.name).collect();
        names.sort();
        names
    }

    #[test]
    fn both_environments_write_at_any_offset() {
        on_both(|env, directory| {
            let path = directory.join("f");
            let mut file = env.create_new(&path).unwrap();
            let reader = env.open_random(&path).unwrap();
            assert!(reader.is_empty().unwrap());
            file.write_at(3, b"def").unwrap();
            file.write_at(0, b"ab").unwrap();
            file.allocate_zeroed(6, 70_000).unwrap();
            file.write_at(5, b"FGH").unwrap();
            file.write_at(9, b"").unwrap();
            file.sync_data().unwrap();
            file.sync_all().unwrap();
            assert_eq!(reader.len().unwrap(), 70_006);
            assert_eq!(env.metadata(&path).unwrap().bytes, 70_006);
            let mut start = [1; 10];
            reader.read_exact_at(0, &mut start).unwrap();
            assert_eq!(&start, b"ab\0deFGH\0\0");
            let all = contents(env, &path);
            assert!(all[8..].iter().all(|byte| *byte == 0));
            reader.read_exact_at(70_006, &mut []).unwrap();
            let past = [(70_000, 7), (70_006, 1), (u64::MAX >> 1, 1), (u64::MAX, 9)];
            for (offset, bytes) in past {
                let error = kind(reader.read_exact_at(offset, &mut vec![0; bytes]));
                assert_eq!(error, io::ErrorKind::UnexpectedEof, "{offset}");
            }
        });
    }

    #[test]
    fn both_environments_change_names_alike() {
        on_both(|env, directory| {
            let at = |name: &str| directory.join(name);
            drop(create(env, &at("a"), b"A"));
            drop(create(env, &at("b"), b"B"));
            assert_eq!(kind(env.create_new(&at("a"))), io::ErrorKind::AlreadyExists);
            let reader = env.open_random(&at("b")).unwrap();
            env.rename(&at("a"), &at("b")).unwrap();
            assert_eq!(contents(env, &at("b")), b"A");
            let mut old = [0];
            reader.read_exact_at(0, &mut old).unwrap();
            assert_eq!(&old, b"B", "an open file outlives its name");
            env.hard_link(&at("b"), &at("c")).unwrap();
            assert_eq!(kind(env.hard_link(&at("b"), &at("c"))), io::ErrorKind::AlreadyExists);
            env.rename(&at("b"), &at("c")).unwrap();
            assert_eq!(names(env, directory), ["b", "c"], "one file's names do not merge");
            env.remove(&at("b")).unwrap();
            assert_eq!(contents(env, &at("c")), b"A");
            env.create_dir(&at("d")).unwrap();
            drop(create(env, &at("d/inner"), b""));
            assert_eq!(names(env, directory), ["c", "d"]);
            assert_eq!(names(env, &at("d")), ["inner"]);
            env.rename(&at("c"), &at("d/c")).unwrap();
            assert_eq!(names(env, directory), ["d"]);
            let kinds = env.list(directory).unwrap();
            assert_eq!(kinds[0].kind, FileKind::Directory);
            assert_eq!(env.metadata(&at("d")).unwrap().kind, FileKind::Directory);
            assert_eq!(env.metadata(&at("d/c")).unwrap().kind, FileKind::File);
            env.sync_dir(&at("d")).unwrap();
            env.sync_dir(&at("d/../d/.")).unwrap();
        });
    }

    #[test]
    fn both_environments_fail_alike() {
        on_both(|env, directory| {
            let at = |name: &str| directory.join(name);
            drop(create(env, &at("file"), b""));
            env.create_dir(&at("dir")).unwrap();
            for (gone, error) in [
                ("gone", io::ErrorKind::NotFound),
                ("gone/x", io::ErrorKind::NotFound),
                ("file/x", io::ErrorKind::NotADirectory),
            ] {
                let path = at(gone);
                assert_eq!(kind(env.open_random(&path)), error, "{gone}");
                assert_eq!(kind(env.metadata(&path)), error, "{gone}");
                assert_eq!(kind(env.list(&path)), error, "{gone}");
                assert_eq!(kind(env.sync_dir(&path)), error, "{gone}");
                assert_eq!(kind(env.remove(&path)), error, "{gone}");
                assert_eq!(kind(env.rename(&path, &at("new"))), error, "{gone}");
                assert_eq!(kind(env.hard_link(&path, &at("new"))), error, "{gone}");
                if gone != "gone" {
                    assert_eq!(kind(env.create_new(&path)), error, "{gone}");
                    assert_eq!(kind(env.create_dir(&path)), error, "{gone}");
                    assert_eq!(kind(env.rename(&at("file"), &path)), error, "{gone}");
                    assert_eq!(kind(env.lock(&path, LockMode::Exclusive)), error, "{gone}");
                }
            }
            assert_eq!(kind(env.open_random(&at("dir"))), io::ErrorKind::InvalidInput);
            assert_eq!(
                kind(env.lock(&at("dir"), LockMode::Exclusive)),
                io::ErrorKind::InvalidInput
            );
            assert_eq!(kind(env.sync_dir(&at("file"))), io::ErrorKind::NotADirectory);
            assert_eq!(kind(env.list(&at("file"))), io::ErrorKind::NotADirectory);
            assert_eq!(kind(env.rename(&at("file"), &at("dir"))), io::ErrorKind::IsADirectory);
            for taken in ["file", "dir"] {
                assert_eq!(kind(env.create_dir(&at(taken))), io::ErrorKind::AlreadyExists);
                assert_eq!(kind(env.create_new(&at(taken))), io::ErrorKind::AlreadyExists);
            }
            env.remove(&at("dir")).unwrap_err();
            assert_eq!(names(env, directory), ["dir", "file"]);
        });
    }

    #[test]
    fn both_environments_lock_alike() {
        on_both(|env, directory| {
            let path = directory.join("LOCK");
            let exclusive = env.lock(&path, LockMode::Exclusive).unwrap();
            for mode in [LockMode::Shared, LockMode::Exclusive] {
                assert_eq!(kind(env.lock(&path, mode)), io::ErrorKind::WouldBlock);
            }
            drop(exclusive);
            assert_eq!(names(env, directory), ["LOCK"], "the lock file stays");
            let shared = [(); 2].map(|()| env.lock(&path, LockMode::Shared).unwrap());
            assert_eq!(kind(env.lock(&path, LockMode::Exclusive)), io::ErrorKind::WouldBlock);
            drop(shared);
            env.lock(&path, LockMode::Exclusive).unwrap();
            env.lock(&directory.join("OTHER"), LockMode::Shared).unwrap();
            assert_eq!(names(env, directory), ["LOCK", "OTHER"]);
        });
    }

    #[test]
    fn both_environments_replace_files_whole() {
        on_both(|env, directory| {
            let (temporary, target) = (FileName::Temporary(3), FileName::Current);
            drop(create(env, &temporary.path(directory), b"stale and longer"));
            for text in [&b"one"[..], b"", b"three"] {
                write_temporary(env, directory, temporary, text).unwrap();
                put_in_place(env, directory, temporary, target).unwrap();
                assert_eq!(contents(env, &target.path(directory)), text);
                assert_eq!(names(env, directory), ["CURRENT"]);
            }
            let path = target.path(directory);
            assert_eq!(read_file(env, &path, 5).unwrap(), b"three");
            let error = read_file(env, &path, 4).unwrap_err();
            assert!(matches!(error, Error::Corruption { offset: 4, .. }), "{error}");
            let error = read_file(env, &directory.join("gone"), 4).unwrap_err();
            assert!(matches!(error, Error::Io { op: "open", .. }), "{error}");
        });
    }
}
