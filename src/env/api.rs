//! The calls that siftdb makes on files, and nothing else.
//!
//! The set is closed: crash models and fault injection are written once, against these calls.
//! A writer tracks its own end of file, so there is no append; a reader is positional, so it is
//! shared between threads. Every call answers the system's own error; the caller adds which file.
//!
//! Implementations loop over short writes and `EINTR`; a read that meets the end of the file is
//! an `UnexpectedEof`. No call follows a symbolic link in its last component except opening the
//! database directory itself. Opening never blocks on a FIFO or device: it is refused.
//!
//! At the end, what the engine does with several calls in more than one place: reading a small
//! file whole, and replacing one in a durable step.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Shared or exclusive hold on a lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Many readers.
    Shared,
    /// One writer.
    Exclusive,
}

/// What a directory entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// An ordinary file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, FIFO, device or socket.
    Other,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name, without the directory. Names that are not UTF-8 are replaced lossily: they are
    /// foreign in any case.
    pub name: String,
    /// What it names.
    pub kind: FileKind,
}

/// Names one file for as long as it exists, whatever names it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The file system that it is in.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// What is known of a file without opening it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// What it is; a link is not followed.
    pub kind: FileKind,
    /// Its length in bytes.
    pub bytes: u64,
    /// Which file it is.
    pub id: FileId,
}

/// A file opened for reading at any offset, by any thread.
pub trait RandomFile: Send + Sync + Debug {
    /// Fills `buffer` from `offset`. Meeting the end of the file is `UnexpectedEof`.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// The length of the file now, in bytes.
    fn len(&self) -> io::Result<u64>;

    /// True for a file of no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A new file that one writer fills.
pub trait WritableFile: Send + Debug {
    /// Writes all of `data` at `offset`, extending the file as needed.
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes `offset..offset + bytes` part of the file, zero-filled and allocated on disk, so that
    /// a later write there followed by `sync_data` need not change the file's metadata.
    fn allocate_zeroed(&mut self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Makes the contents durable, and the length where it is needed to read them.
    fn sync_data(&mut self) -> io::Result<()>;

    /// Makes contents and metadata durable.
    fn sync_all(&mut self) -> io::Result<()>;
}

/// A held lock; dropping it lets go. The lock file itself stays. In a child process that was
/// forked while the lock was held, dropping it must not let go: the lock is the parent's.
pub trait FileLock: Send + Sync + Debug {
    /// Which file is locked. Another file under the same name is not locked.
    fn id(&self) -> io::Result<FileId>;
}

/// A file system.
///
/// This trait can grow without breaking an implementation: a call that is added later, here or to
/// the traits of files, has a default that is made of the calls of today, or one that answers
/// `Unsupported` where the engine can do without the call. Implement [`EnvLayer`] instead to change
/// single calls of another Env.
///
/// [`EnvLayer`]: crate::env::EnvLayer
pub trait Env: Send + Sync + Debug {
    /// Opens an ordinary file for reading. A link, directory, FIFO or device is `InvalidInput`.
    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>>;

    /// Creates a file for writing; `AlreadyExists` if the name is taken.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>>;

    /// Makes the names in a directory durable: creations, renames and removals.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Gives a file another name, replacing what had it, in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Gives a file a second name.
    fn hard_link(&self, existing: &Path, new: &Path) -> io::Result<()>;

    /// Creates a directory; `AlreadyExists` if the name is taken.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// The entries of a directory, in no order.
    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>>;

    /// What is known of `path`; a link is not followed.
    fn metadata(&self, path: &Path) -> io::Result<Metadata>;

    /// Locks the file, creating it if needed; `WouldBlock` if another handle, of this process or
    /// another, holds it. Never waits.
    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn FileLock>>;
}

/// The whole of a small file. More than `limit_bytes` is corruption, found before any memory is
/// taken for it.
pub(crate) fn read_file(env: &dyn Env, path: &Path, limit_bytes: u64) -> Result<Vec<u8>> {
    let file = env.open_random(path).map_err(|error| Error::io("open", path, error))?;
    let bytes = file.len().map_err(|error| Error::io("metadata", path, error))?;
    if bytes > limit_bytes {
        let what = format!("the file has {bytes} bytes, at most {limit_bytes} are possible");
        return Err(Error::corruption(path, limit_bytes, what));
    }
    let mut contents = vec![0; bytes as usize];
    file.read_exact_at(0, &mut contents).map_err(|error| Error::io("read", path, error))?;
    Ok(contents)
}

/// Makes the contents durable under the name `temporary`, for [`put_in_place`]. After a failure the
/// name may stay, and a stale one is replaced.
pub(crate) fn write_temporary(
    env: &dyn Env,
    directory: &Path,
    temporary: FileName,
    contents: &[u8],
) -> Result<()> {
    let temporary = temporary.path(directory);
    let created = match env.create_new(&temporary) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            env.remove(&temporary).map_err(|error| Error::io("remove", &temporary, error))?;
            env.create_new(&temporary)
        }
        result => result,
    };
    let mut file = created.map_err(|error| Error::io("create", &temporary, error))?;
    file.write_at(0, contents).map_err(|error| Error::io("write", &temporary, error))?;
    file.sync_all().map_err(|error| Error::io("sync_all", &temporary, error))
}

/// Gives `target` the contents of `temporary` in one durable step: after a crash it has the old
/// contents or the new, and so it has after a failure.
pub(crate) fn put_in_place(
    env: &dyn Env,
    directory: &Path,
    temporary: FileName,
    target: FileName,
) -> Result<()> {
    let (temporary, target) = (temporary.path(directory), target.path(directory));
    env.rename(&temporary, &target).map_err(|error| Error::io("rename", &target, error))?;
    env.sync_dir(directory).map_err(|error| Error::io("sync_dir", directory, error))
}
