//! [`DiskEnv`]: the calls of [`Env`] on the real file system, with the standard library and, for
//! hints about reads and signals of changes, the crate `rustix`.
//!
//! Only this file of siftdb uses `std::fs`; `clippy.toml` forbids it elsewhere. The standard
//! library repeats interrupted and short calls in `write_all_at`, `read_exact_at` and `sync_*`, so
//! plain `read` and `write` must not be used. It makes calls on paths only once, so these go
//! through `uninterrupted`.
//!
//! Locks are those of `File::try_lock`: they belong to the open file, exclude other handles of
//! this process too, and end when the process dies. Unlocking leaves the lock file in place: if it
//! were removed, two processes could lock two files that had the same name.
#![expect(clippy::disallowed_methods, reason = "all access to real files is made here")]

use crate::base::process::Process;
use crate::env::api::{
    DirectoryEntry, Env, FileId, FileKind, FileLock, LockMode, Metadata, RandomFile, WritableFile,
};
#[cfg(target_os = "linux")]
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
#[cfg(target_os = "linux")]
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Flags of `open(2)` that std does not name: `(O_NOFOLLOW, O_NONBLOCK)`. On systems where they are
/// not known they are 0, and only the check before opening protects.
const OPEN_FLAGS: (i32, i32) = if cfg!(target_vendor = "apple") {
    (0x100, 0x4)
} else if cfg!(not(any(target_os = "linux", target_os = "android"))) {
    (0, 0)
} else if cfg!(any(target_arch = "arm", target_arch = "aarch64", target_arch = "powerpc64")) {
    (0o100_000, 0o4_000)
} else if cfg!(any(target_arch = "x86_64", target_arch = "x86", target_arch = "riscv64")) {
    (0o400_000, 0o4_000)
} else {
    (0, 0)
};

/// The bytes that `allocate_zeroed` writes repeatedly.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// The real file system.
///
/// ```
/// use siftdb::env::Env;
/// use siftdb::env::DiskEnv;
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("file");
/// let mut file = DiskEnv::new().create_new(&path)?;
/// file.write_at(0, b"contents")?;
/// file.sync_all()?;
/// assert_eq!(DiskEnv::new().metadata(&path)?.bytes, 8);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskEnv;

impl DiskEnv {
    /// The real file system.
    #[must_use]
    pub fn new() -> Self {
        DiskEnv
    }
}

/// `Path::parent` returns an empty path for a bare name; it means the current directory.
fn directory_path(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Repeats a call that a signal interrupted: network file systems and FUSE may return `EINTR`.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn kind_of(kind: fs::FileType) -> FileKind {
    if kind.is_file() {
        FileKind::File
    } else if kind.is_dir() {
        FileKind::Directory
    } else {
        FileKind::Other
    }
}

fn id_of(metadata: &fs::Metadata) -> FileId {
    FileId { device: metadata.dev(), inode: metadata.ino() }
}

fn refuse_unless_file(metadata: &fs::Metadata) -> io::Result<()> {
    match kind_of(metadata.file_type()) {
        FileKind::File => Ok(()),
        FileKind::Directory => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "a directory, not an ordinary file"))
        }
        FileKind::Other => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a link, FIFO, device or socket, not an ordinary file",
        )),
    }
}

/// Opens an existing ordinary file. The check before opening gives a clear error and never opens a
/// device. The flags and the check after opening protect if the path changes in between.
fn open_existing(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    refuse_unless_file(&uninterrupted(|| fs::symlink_metadata(path))?)?;
    let file = options.custom_flags(OPEN_FLAGS.0 | OPEN_FLAGS.1).open(path)?;
    refuse_unless_file(&file.metadata()?)?;
    Ok(file)
}

/// Opens an existing ordinary file to be mapped.
#[cfg(feature = "mmap")]
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    open_existing(path, OpenOptions::new().read(true))
}

/// Opens the lock file; creates it if needed.
fn open_lock(path: &Path, mode: LockMode) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // A shared lock needs no write permission, so that a read-only directory can be read.
    options.read(true).write(mode == LockMode::Exclusive);
    match open_existing(path, &mut options) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => return result,
    }
    match OpenOptions::new().read(true).write(true).create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            open_existing(path, &mut options)
        }
        result => result,
    }
}

impl Env for DiskEnv {
    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        Ok(Arc::new(DiskFile(open_existing(path, OpenOptions::new().read(true))?)))
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Box::new(DiskWriter(Arc::new(file))))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let path = directory_path(path);
        let directory = OpenOptions::new().read(true).custom_flags(OPEN_FLAGS.1).open(path)?;
        if !directory.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        directory.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        uninterrupted(|| fs::rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        uninterrupted(|| fs::remove_file(path))
    }

    fn hard_link(&self, existing: &Path, new: &Path) -> io::Result<()> {
        uninterrupted(|| fs::hard_link(existing, new))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        uninterrupted(|| fs::create_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        uninterrupted(|| fs::read_dir(directory_path(path)))?
            .map(|entry| {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                Ok(DirectoryEntry { name, kind: kind_of(entry.file_type()?) })
            })
            .collect()
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        let metadata = uninterrupted(|| fs::symlink_metadata(directory_path(path)))?;
        let (kind, bytes) = (kind_of(metadata.file_type()), metadata.len());
        Ok(Metadata { kind, bytes, id: id_of(&metadata) })
    }

    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn FileLock>> {
        let file = open_lock(path, mode)?;
        uninterrupted(|| {
            let result = match mode {
                LockMode::Shared => file.try_lock_shared(),
                LockMode::Exclusive => file.try_lock(),
            };
            result.map_err(|error| match error {
                TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
                TryLockError::Error(error) => error,
            })
        })?;
        Ok(Box::new(DiskLock { file, process: Process::current() }))
    }

    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        std::path::absolute(path)
    }

    #[cfg(target_os = "linux")]
    fn change_signal(&self, directory: &Path) -> io::Result<OwnedFd> {
        let signal = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let names = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::DELETE;
        inotify::add_watch(&signal, directory_path(directory), names | WatchFlags::MODIFY)?;
        Ok(signal)
    }
}

#[derive(Debug)]
struct DiskFile(File);

impl RandomFile for DiskFile {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        // An offset that the system cannot express is past the end of every file.
        match offset.checked_add(buffer.len() as u64) {
            Some(end) if i64::try_from(end).is_ok() => self.0.read_exact_at(buffer, offset),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    // Hints: where one fails, reads take longer.

    #[cfg(target_os = "linux")]
    fn expect_random_reads(&self) {
        let _ = fadvise(&self.0, 0, None, Advice::Random);
    }

    #[cfg(target_os = "linux")]
    fn read_ahead(&self, offset: u64, bytes: u64) {
        let _ = fadvise(&self.0, offset, NonZeroU64::new(bytes), Advice::WillNeed);
    }
}

/// Its clones share one descriptor: a clone never fails for want of one.
#[derive(Clone, Debug)]
struct DiskWriter(Arc<File>);

impl WritableFile for DiskWriter {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn allocate_zeroed(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        // `set_len` would leave a hole, and the later write would change metadata.
        let mut done = 0;
        while done < bytes {
            let step = (bytes - done).min(ZEROS.len() as u64);
            self.0.write_all_at(&ZEROS[..step as usize], offset + done)?;
            done += step;
        }
        Ok(())
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn try_clone(&self) -> io::Result<Box<dyn WritableFile>> {
        Ok(Box::new(self.clone()))
    }
}

/// Dropping it closes the file, and that releases the lock.
#[derive(Debug)]
struct DiskLock {
    file: File,
    /// The process that locked it.
    process: Process,
}

impl FileLock for DiskLock {
    fn id(&self) -> io::Result<FileId> {
        Ok(id_of(&self.file.metadata()?))
    }
}

impl Drop for DiskLock {
    fn drop(&mut self) {
        // A forked child shares the open file, and so the lock: unlocking would unlock the parent.
        if self.process.is_current() {
            // Closing alone does not unlock while a child that this process just forked still has
            // the descriptor. If unlocking fails, closing is the only way left.
            let _ = self.file.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn interrupted_disk_calls_are_retried() {
        let mut calls = 0;
        let done = uninterrupted(|| {
            calls += 1;
            if calls < 4 { Err(io::ErrorKind::Interrupted.into()) } else { Ok(calls) }
        });
        assert_eq!(done.unwrap(), 4);
        let error = uninterrupted(|| Err::<(), _>(io::ErrorKind::NotFound.into())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    /// A child that was just forked has every descriptor until it starts its program.
    #[test]
    fn a_childs_descriptor_does_not_keep_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let file = open_lock(&path, LockMode::Exclusive).unwrap();
        file.try_lock().unwrap();
        let of_the_child = file.try_clone().unwrap();
        drop(DiskLock { file, process: Process::current() });
        assert!(DiskEnv::new().lock(&path, LockMode::Exclusive).is_ok());
        drop(of_the_child);
    }

    #[test]
    fn special_files_are_refused_without_blocking() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let env = DiskEnv::new();
        env.create_new(&at("file")).unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        env.create_dir(&at("directory")).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(at("fifo")).status();
        let fifo = made.is_ok_and(|status| status.success());
        let mut names = vec!["link", "dangling", "directory", "socket"];
        names.extend(fifo.then_some("fifo"));
        for name in names {
            let kind = io::ErrorKind::InvalidInput;
            assert_eq!(env.open_random(&at(name)).unwrap_err().kind(), kind, "{name}");
            for mode in [LockMode::Shared, LockMode::Exclusive] {
                assert_eq!(env.lock(&at(name), mode).unwrap_err().kind(), kind, "{name}");
            }
            let error = env.create_new(&at(name)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{name}");
            let kind = env.metadata(&at(name)).unwrap().kind;
            assert_eq!(kind == FileKind::Directory, name == "directory");
            assert_ne!(kind, FileKind::File);
            if name != "directory" {
                env.sync_dir(&at(name)).unwrap_err();
            }
        }
        assert!(!at("nowhere").exists(), "a dangling link was followed");
    }

    #[test]
    fn open_flags_take_effect() {
        // Past the check by name, the flags alone refuse a link.
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        DiskEnv::new().create_new(&directory.path().join("file")).unwrap();
        symlink(directory.path().join("file"), &link).unwrap();
        if OPEN_FLAGS.0 != 0 {
            OpenOptions::new().read(true).custom_flags(OPEN_FLAGS.0).open(&link).unwrap_err();
        }
    }

    #[test]
    fn a_database_directory_may_be_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().join("real");
        let link = directory.path().join("link");
        let env = DiskEnv::new();
        env.create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        env.create_new(&link.join("file")).unwrap();
        env.sync_dir(&link).unwrap();
        assert_eq!(env.list(&link).unwrap().len(), 1);
        env.sync_dir(Path::new("")).unwrap();
    }
}
