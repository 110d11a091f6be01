//! The calls that siftdb makes on files, and nothing else.
//!
//! The set is small, because crash models and fault injection must know every call. There is no
//! append: a writer tracks its own end of file. Reads are positional, so threads share a reader.
//! Every call returns the error of the system; the caller adds the path.
//!
//! Implementations repeat short writes and calls that end with `EINTR`. A read past the end of the
//! file is an `UnexpectedEof`. No call follows a symbolic link in the last component of a path,
//! except to the database directory itself. Opening a FIFO or device is refused, so it never
//! blocks.
//!
//! The functions at the end combine calls: they read a small file whole, and replace one durably.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// How a lock file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Many readers may hold it at a time, and no writer.
    Shared,
    /// One writer holds it, and nobody else.
    Exclusive,
}

/// What a directory entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory, not a link to one.
    Directory,
    /// A symbolic link, FIFO, device or socket.
    Other,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name, without the directory. A name that is not UTF-8 is converted lossily: it is no
    /// name of siftdb in any case.
    pub name: String,
    /// What the name refers to.
    pub kind: FileKind,
}

/// Identifies a file while it exists, whatever its names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The number of the file system, unique on this machine.
    pub device: u64,
    /// The number of the file in that file system.
    pub inode: u64,
}

/// What the file system knows about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The kind of file; a link is not followed.
    pub kind: FileKind,
    /// The length in bytes.
    pub bytes: u64,
    /// The identity of the file.
    pub id: FileId,
}

/// A file opened for reading at any offset, by any thread.
pub trait RandomFile: Send + Sync + Debug {
    /// Fills `buffer` from `offset`; `UnexpectedEof` if the file ends before that.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// The length of the file now, in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Says that reads will be at places without order, so that what follows a read is not wanted.
    /// A hint, which does nothing by default.
    fn expect_random_reads(&self) {}

    /// Says that these bytes will be read soon, so that the system reads them now. A hint, which
    /// does nothing by default.
    fn read_ahead(&self, offset: u64, bytes: u64) {
        let _ = (offset, bytes);
    }

    /// True for a file of no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// The whole file in memory, if it is there anyway, as in a memory map: then siftdb reads
    /// blocks of tables without a call and without a copy. Every call returns the same bytes at the
    /// same place. `None` by default, and then every read is a call.
    fn as_bytes(&self) -> Option<&[u8]> {
        None
    }
}

/// A new file, opened by its only writer.
pub trait WritableFile: Send + Debug {
    /// Writes all of `data` at `offset`, extending the file as needed.
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Fills `offset..offset + bytes` with zeros that are allocated on disk. A later write there,
    /// followed by `sync_data`, then need not change the metadata of the file.
    fn allocate_zeroed(&mut self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Makes the contents durable, and as much of the metadata as reading them needs.
    fn sync_data(&mut self) -> io::Result<()>;

    /// Makes contents and metadata durable.
    fn sync_all(&mut self) -> io::Result<()>;

    /// A second handle of the file, so that one thread can sync it while another one writes. A sync
    /// through either handle makes durable what was written through both before it began.
    ///
    /// By default `Unsupported`: then writers wait while the engine syncs for tickets
    /// (`Db::sync_ticket`).
    fn try_clone(&self) -> io::Result<Box<dyn WritableFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A held lock; dropping it unlocks the file and leaves the file in place. In a process that was
/// forked while the lock was held, dropping must not unlock: the lock belongs to the parent.
pub trait FileLock: Send + Sync + Debug {
    /// The locked file. Another file under the same name is not locked.
    fn id(&self) -> io::Result<FileId>;
}

/// A file system and a clock.
///
/// This trait can grow without breaking an implementation. A call that is added later, here or to
/// the traits of files, has a default made of existing calls, or one that returns `Unsupported` if
/// the engine can do without the call. To change single calls of another Env, implement
/// [`EnvLayer`] instead.
///
/// [`EnvLayer`]: crate::env::EnvLayer
pub trait Env: Send + Sync + Debug {
    /// Opens an ordinary file for reading. A link, directory, FIFO or device is `InvalidInput`.
    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>>;

    /// Creates a file for writing; `AlreadyExists` if the name is taken.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>>;

    /// Makes the names in a directory durable: creations, renames and removals.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Renames a file in one step; a file that has the new name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file; its contents stay readable through handles that are open.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Gives a file a second name.
    fn hard_link(&self, existing: &Path, new: &Path) -> io::Result<()>;

    /// Creates a directory; `AlreadyExists` if the name is taken.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// The entries of a directory, in no order.
    fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>>;

    /// The metadata of `path`; a link is not followed.
    fn metadata(&self, path: &Path) -> io::Result<Metadata>;

    /// Locks the file, creating it if needed; `WouldBlock` if another handle, of this process or
    /// another, holds it. Never blocks.
    fn lock(&self, path: &Path, mode: LockMode) -> io::Result<Box<dyn FileLock>>;

    /// A descriptor that becomes readable when a file of the directory is created, written, renamed
    /// or removed. Reading it to its end, which does not block, makes it wait for the next change.
    /// By default `Unsupported`: then [`Follower::wait`](crate::Follower::wait) looks again after
    /// pauses.
    fn change_signal(&self, directory: &Path) -> io::Result<OwnedFd> {
        let _ = directory;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// `path` as it is called from any working directory. A database asks for its directory once,
    /// when it is opened. By default `path` itself: an Env may have no working directory. On disk
    /// an empty path is an error.
    fn absolute(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    /// The time by which entries expire. By default that of the system's clock.
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// The answer of a call on a file; `None` if there is no such file.
pub(crate) fn if_there<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    match answer {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        answer => answer.map(Some),
    }
}

/// Reads a small file whole. A file above `limit_bytes` is corruption, and no memory is allocated
/// for it.
pub(crate) fn read_file(env: &dyn Env, path: &Path, limit_bytes: u64) -> Result<Vec<u8>> {
    let file = env.open_random(path).map_err(|error| Error::io("open", path, error))?;
    let bytes = file.len().map_err(|error| Error::io("metadata", path, error))?;
    if bytes > limit_bytes {
        let what = format!("the file has {bytes} bytes, expected at most {limit_bytes}");
        return Err(Error::corruption(path, limit_bytes, what));
    }
    let mut contents = vec![0; bytes as usize];
    file.read_exact_at(0, &mut contents).map_err(|error| Error::io("read", path, error))?;
    Ok(contents)
}

/// Writes `contents` durably to the file `temporary`, for [`put_in_place`]. A file of that name is
/// replaced. After a failure the file may remain.
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

/// Renames `temporary` to `target` and makes that durable. After a crash or a failure, `target` has
/// either the old contents or the new ones.
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
