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

use crate::base::sync::{Arc, Mutex, plain};
use crate::env::api::{
    DirectoryEntry, Env, FileId, FileKind, FileLock, LockMode, Metadata, RandomFile, WritableFile,
};
pub use crate::env::mem_crash::CrashModel;
use crate::env::mem_crash::crash;
use crate::env::mem_disk::{Disk, FileRef, MemFileId, Op, name_in, normal};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// A disk in memory.
///
/// ```
/// use siftdb::env::Env;
/// use siftdb::env::MemEnv;
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
    locks: Mutex<HashMap<MemFileId, usize>>,
    /// Tells the files of this disk from those of others.
    device: u64,
}

const EXCLUSIVE: usize = usize::MAX;

/// Device numbers of disks in memory, from the end that no real device has.
static NEXT_DEVICE: plain::AtomicU64 = plain::AtomicU64::new(u64::MAX);

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
        let device = NEXT_DEVICE.fetch_sub(1, plain::Ordering::Relaxed);
        MemEnv { shared: Arc::new(Shared { state, locks: Mutex::new(HashMap::new()), device }) }
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
        let mut walk = self.walk_log();
        walk.advance_to(upto_call);
        walk.crash(model, seed)
    }

    /// Runs the log again, call by call: for crashes at many places of one log.
    #[must_use]
    pub fn walk_log(&self) -> LogWalk {
        let state = self.shared.state.lock();
        let (disk, calls, keeps_log) = match &state.log {
            Some(log) => (log.base.deep_copy(), log.calls.clone(), true),
            None => (state.disk.deep_copy(), Vec::new(), false),
        };
        LogWalk { disk, calls, keeps_log, at: 0 }
    }

    /// What the file holds, or `None` if there is none of that name.
    #[must_use]
    pub fn read_file(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.shared.state.lock();
        let file = state.disk.live.file(&normal(path)).ok()?;
        let bytes = file.contents.lock().live.to_vec();
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

/// A disk that makes the calls of a log again; see [`MemEnv::walk_log`].
#[derive(Debug)]
pub struct LogWalk {
    disk: Disk,
    calls: Vec<Op>,
    keeps_log: bool,
    at: usize,
}

impl LogWalk {
    /// Goes on to where the first `call` calls are made, or all if there are fewer; never back.
    pub fn advance_to(&mut self, call: usize) {
        while self.at < call.min(self.calls.len()) {
            // Only calls that worked are in the log, and each finds what it found then.
            let again = self.disk.run(&self.calls[self.at]);
            debug_assert!(again.is_ok(), "{:?}: {again:?}", self.calls[self.at]);
            self.at += 1;
        }
    }

    /// A disk as a crash here may leave it. The same arguments give the same disk.
    #[must_use]
    pub fn crash(&self, model: CrashModel, seed: u64) -> MemEnv {
        MemEnv::with_disk(crash(&self.disk, model, seed), self.keeps_log)
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
                Ok(Metadata { kind: FileKind::File, bytes, id: self.shared.file_id(file.id) })
            }
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                // Directories have no identity of their own here, and nobody asks for it.
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
    id: MemFileId,
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
    use std::collections::BTreeSet;

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

    // -- crashes ---------------------------------------------------------------------------------

    const SEEDS: std::ops::Range<u64> = 1..400;

    fn path(text: &str) -> &Path {
        Path::new(text)
    }

    /// A durable, empty file that is still open.
    fn durable(env: &MemEnv, name: &str) -> Box<dyn WritableFile> {
        let file = env.create_new(path(name)).unwrap();
        env.sync_dir(path(name).parent().unwrap()).unwrap();
        file
    }

    /// The states that seeds find, of what `look` sees.
    fn states<T: Ord>(env: &MemEnv, model: CrashModel, look: impl Fn(&MemEnv) -> T) -> BTreeSet<T> {
        SEEDS.map(|seed| look(&env.replay(usize::MAX, model, seed))).collect()
    }

    fn files(env: &MemEnv) -> Vec<String> {
        env.list_files().iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn a_power_cut_loses_unsynced_names() {
        let env = MemEnv::new();
        let mut file = env.create_new(path("/f")).unwrap();
        file.write_at(0, b"x").unwrap();
        file.sync_all().unwrap();
        assert!(files(&env.power_cut()).is_empty());
        env.sync_dir(path("/")).unwrap();
        assert_eq!(env.power_cut().read_file(path("/f")).unwrap(), b"x");
        env.rename(path("/f"), path("/g")).unwrap();
        assert_eq!(files(&env.power_cut()), ["/f"]);
        env.sync_dir(path("/")).unwrap();
        assert_eq!(files(&env.power_cut()), ["/g"]);
        env.remove(path("/g")).unwrap();
        assert_eq!(files(&env.power_cut()), ["/g"]);
        env.sync_dir(path("/")).unwrap();
        assert!(files(&env.power_cut()).is_empty());
    }

    #[test]
    fn a_power_cut_loses_unsynced_bytes() {
        let env = MemEnv::new();
        let mut file = durable(&env, "/f");
        assert_eq!(env.power_cut().read_file(path("/f")).unwrap(), b"");
        file.write_at(0, b"abc").unwrap();
        file.sync_data().unwrap();
        file.write_at(1, b"BCD").unwrap();
        assert_eq!(env.read_file(path("/f")).unwrap(), b"aBCD");
        assert_eq!(env.power_cut().read_file(path("/f")).unwrap(), b"abc");
        file.sync_all().unwrap();
        assert_eq!(env.power_cut().read_file(path("/f")).unwrap(), b"aBCD");
    }

    #[test]
    fn directories_need_a_sync_of_their_parent() {
        let env = MemEnv::new();
        env.create_dir(path("/db")).unwrap();
        durable(&env, "/db/f").sync_all().unwrap();
        let after = env.power_cut();
        assert!(files(&after).is_empty());
        assert_eq!(kind(after.list(path("/db"))), io::ErrorKind::NotFound);
        env.sync_dir(path("/")).unwrap();
        assert_eq!(files(&env.power_cut()), ["/db/f"]);
    }

    #[test]
    fn moves_between_directories_need_both_synced() {
        let env = MemEnv::new();
        env.create_dir(path("/a")).unwrap();
        env.create_dir(path("/b")).unwrap();
        env.sync_dir(path("/")).unwrap();
        drop(durable(&env, "/a/f"));
        env.rename(path("/a/f"), path("/b/f")).unwrap();
        env.sync_dir(path("/b")).unwrap();
        assert_eq!(files(&env.power_cut()), ["/a/f", "/b/f"]);
        env.sync_dir(path("/a")).unwrap();
        assert_eq!(files(&env.power_cut()), ["/b/f"]);
    }

    #[test]
    fn a_crashed_disk_is_independent_and_unlocked() {
        let env = MemEnv::new();
        let _lock = env.lock(path("/LOCK"), LockMode::Exclusive).unwrap();
        let mut file = durable(&env, "/f");
        for model in [CrashModel::Kill, CrashModel::Journal, CrashModel::Posix] {
            let after = env.replay(usize::MAX, model, 0);
            let _lock = after.lock(path("/LOCK"), LockMode::Exclusive).unwrap();
            assert_eq!(after.log_len(), 0);
            after.remove(path("/f")).unwrap();
            assert_eq!(files(&env), ["/LOCK", "/f"]);
            file.write_at(0, b"later").unwrap();
        }
        assert_eq!(env.clone().read_file(path("/f")).unwrap(), b"later");
    }

    #[test]
    fn a_kill_keeps_unsynced_calls() {
        let env = MemEnv::new();
        let mut file = env.create_new(path("/f")).unwrap();
        file.write_at(0, b"x").unwrap();
        let killed = env.replay(2, CrashModel::Kill, 7);
        assert_eq!(killed.read_file(path("/f")).unwrap(), b"x");
        assert_eq!(env.replay(1, CrashModel::Kill, 7).read_file(path("/f")).unwrap(), b"");
        assert!(files(&env.replay(0, CrashModel::Kill, 7)).is_empty());
        assert!(files(&killed.power_cut()).is_empty());
        // And its own log starts from what was not synced.
        killed.sync_dir(path("/")).unwrap();
        assert_eq!(killed.replay(0, CrashModel::Kill, 0).read_file(path("/f")).unwrap(), b"x");
        assert!(files(&killed.replay(0, CrashModel::Posix, 0)).is_empty());
        assert_eq!(killed.replay(1, CrashModel::Posix, 0).read_file(path("/f")).unwrap(), b"");
    }

    #[test]
    fn seed_zero_loses_the_most() {
        let env = MemEnv::new();
        let mut file = durable(&env, "/f");
        file.write_at(0, b"abc").unwrap();
        file.sync_data().unwrap();
        file.write_at(0, &[7; 2000]).unwrap();
        drop(env.create_new(path("/g")).unwrap());
        for model in [CrashModel::Journal, CrashModel::Posix] {
            let after = env.replay(usize::MAX, model, 0);
            assert_eq!(files(&after), ["/f"]);
            assert_eq!(after.read_file(path("/f")).unwrap(), b"abc");
        }
    }

    #[test]
    fn synced_data_survives_every_crash() {
        let env = MemEnv::new();
        let mut file = durable(&env, "/f");
        file.write_at(0, &[1; 1500]).unwrap();
        file.sync_data().unwrap();
        let calls = env.log_len();
        file.write_at(1500, &[2; 1500]).unwrap();
        drop(env.create_new(path("/g")).unwrap());
        for model in [CrashModel::Kill, CrashModel::Journal, CrashModel::Posix] {
            for seed in SEEDS {
                for upto in calls..=env.log_len() {
                    let after = env.replay(upto, model, seed).read_file(path("/f")).unwrap();
                    assert!(after.len() >= 1500 && after[..1500].iter().all(|b| *b == 1));
                }
            }
        }
    }

    #[test]
    fn journal_names_survive_as_a_prefix() {
        let env = MemEnv::new();
        for name in ["/a", "/b", "/c"] {
            drop(env.create_new(path(name)).unwrap());
        }
        let seen = states(&env, CrashModel::Journal, files);
        let expected: [&[&str]; 4] = [&[], &["/a"], &["/a", "/b"], &["/a", "/b", "/c"]];
        assert_eq!(
            seen,
            expected.map(|names| names.iter().map(|n| n.to_string()).collect()).into()
        );
    }

    #[test]
    fn journal_one_directory_sync_settles_earlier_names() {
        let env = MemEnv::new();
        env.create_dir(path("/db")).unwrap();
        drop(env.create_new(path("/early")).unwrap());
        drop(durable(&env, "/db/f"));
        drop(env.create_new(path("/late")).unwrap());
        let seen = states(&env, CrashModel::Journal, files);
        assert!(seen.iter().all(|names| names.starts_with(&["/db/f".into(), "/early".into()])));
        assert_eq!(seen.len(), 2);
        assert!(files(&env.power_cut()).is_empty(), "POSIX does not promise that");
    }

    #[test]
    fn journal_appends_survive_as_a_torn_prefix() {
        let env = MemEnv::new();
        let mut file = durable(&env, "/f");
        file.write_at(0, &[1; 700]).unwrap();
        file.sync_data().unwrap();
        file.write_at(700, &[2; 600]).unwrap();
        file.write_at(1300, &[3; 900]).unwrap();
        let whole = env.read_file(path("/f")).unwrap();
        let seen = states(&env, CrashModel::Journal, |after| after.read_file(path("/f")).unwrap());
        assert!(seen.iter().all(|bytes| whole.starts_with(bytes)));
        let lengths: Vec<usize> = seen.iter().map(Vec::len).collect();
        assert_eq!(lengths, [700, 1024, 1536, 2048, 2200]);
    }

    #[test]
    fn journal_overwritten_sectors_survive_in_any_combination() {
        let env = MemEnv::new();
        let mut file = durable(&env, "/f");
        file.allocate_zeroed(0, 1536).unwrap();
        file.sync_all().unwrap();
        file.write_at(100, &[1; 1000]).unwrap();
        file.write_at(1100, &[2; 300]).unwrap();
        let seen = states(&env, CrashModel::Journal, |after| {
            let bytes = after.read_file(path("/f")).unwrap();
            assert_eq!(bytes.len(), 1536);
            [bytes[100], bytes[511], bytes[512], bytes[1023], bytes[1024], bytes[1100]]
        });
        // Sectors 0 and 1 were written once, sector 2 twice: 2 * 2 * 3 states, each whole.
        assert!(seen.iter().all(|s| s[0] == s[1] && s[2] == s[3] && (s[4] == 1 || s[5] == 0)));
        assert_eq!(seen.len(), 12);
    }

    #[test]
    fn posix_unsynced_names_survive_in_any_combination() {
        let env = MemEnv::new();
        drop(durable(&env, "/old"));
        drop(env.create_new(path("/a")).unwrap());
        drop(env.create_new(path("/b")).unwrap());
        env.remove(path("/old")).unwrap();
        assert_eq!(states(&env, CrashModel::Posix, files).len(), 8);
    }

    #[test]
    fn posix_renames_are_atomic_but_unordered() {
        let env = MemEnv::new();
        for (name, text) in [("/CURRENT", "old"), ("/new", "new"), ("/MANIFEST", "")] {
            env.write_file(path(name), text.as_bytes());
        }
        env.rename(path("/new"), path("/CURRENT")).unwrap();
        env.remove(path("/MANIFEST")).unwrap();
        let seen = states(&env, CrashModel::Posix, |after| {
            (after.read_file(path("/CURRENT")).unwrap(), files(after))
        });
        assert_eq!(seen.len(), 4);
        for (current, names) in seen {
            assert_eq!(current == b"old", names.contains(&"/new".to_string()));
        }
    }

    #[test]
    fn posix_files_may_grow_by_zeros() {
        let env = MemEnv::new();
        let mut file = durable(&env, "/f");
        file.write_at(0, &[1; 300]).unwrap();
        file.write_at(300, &[2; 900]).unwrap();
        let seen = states(&env, CrashModel::Posix, |after| after.read_file(path("/f")).unwrap());
        assert!(seen.contains(&vec![0; 1200]), "size and no data");
        assert!(seen.contains(&Vec::new()), "neither");
        assert!(seen.contains(&env.read_file(path("/f")).unwrap()), "both");
        assert!(seen.iter().any(|b| b.len() == 300), "the size between two writes");
        assert!(seen.iter().any(|b| b.len() == 1200 && b[0] == 0 && b[600] == 2), "a hole");
        assert!(seen.iter().any(|b| b.len() > 512 && b[299] == 1 && b[300] == 0), "half a sector");
    }

    #[test]
    fn a_seed_determines_the_crashed_disk() {
        let env = MemEnv::new();
        for name in ["/a", "/b"] {
            durable(&env, name).write_at(0, &[1; 5000]).unwrap();
        }
        let look =
            |after: &MemEnv| [path("/a"), path("/b")].map(|path| after.read_file(path).unwrap());
        for model in [CrashModel::Journal, CrashModel::Posix] {
            for seed in 0..20 {
                let [first, again] = [(); 2].map(|()| look(&env.replay(usize::MAX, model, seed)));
                assert_eq!(first, again);
            }
            assert!(states(&env, model, look).iter().any(|[a, b]| a != b));
        }
    }

    #[test]
    fn replaying_every_call_gives_the_present() {
        let env = MemEnv::new();
        let mut file = durable(&env, "/a");
        env.hard_link(path("/a"), path("/b")).unwrap();
        file.write_at(0, b"12").unwrap();
        env.write_file(path("/x/y"), b"hook");
        env.rename(path("/b"), path("/x/b")).unwrap();
        drop(env.lock(path("/LOCK"), LockMode::Shared).unwrap());
        let mut later = env.create_new(path("/later")).unwrap();
        later.write_at(1, b"!").unwrap();
        env.remove_file(path("/gone"));
        drop(env.create_new(path("/a")).unwrap_err());
        let again = env.replay(env.log_len(), CrashModel::Kill, 0);
        assert_eq!(files(&again), files(&env));
        for name in env.list_files() {
            assert_eq!(again.read_file(&name), env.read_file(&name), "{name:?}");
        }
        assert_eq!(env.log_text().len(), env.log_len());
        assert_eq!(files(&again.power_cut()), files(&env.power_cut()));
    }

    #[test]
    fn hooks_change_files_durably() {
        let env = MemEnv::new();
        env.write_file(path("/db/f"), b"one");
        env.write_file(path("/db/f"), b"two");
        assert_eq!(env.power_cut().read_file(path("/db/f")).unwrap(), b"two");
        assert_eq!(env.read_file(path("/db")), None);
        env.remove_file(path("/db/f"));
        assert!(files(&env.power_cut()).is_empty());
        assert!(env.list(path("/db")).unwrap().is_empty());
    }

    #[test]
    fn logging_does_not_change_a_power_cut() {
        for env in [MemEnv::new(), MemEnv::without_log()] {
            let mut file = durable(&env, "/f");
            file.write_at(0, b"x").unwrap();
            file.sync_data().unwrap();
            file.write_at(0, b"y").unwrap();
            drop(env.create_new(path("/g")).unwrap());
            assert_eq!(env.power_cut().read_file(path("/f")).unwrap(), b"x");
            assert_eq!(files(&env.power_cut()), ["/f"]);
            assert_eq!(files(&env.replay(usize::MAX, CrashModel::Kill, 0)), ["/f", "/g"]);
        }
        assert_eq!(MemEnv::without_log().log_len(), 0);
    }
}
