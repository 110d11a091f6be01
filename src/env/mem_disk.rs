//! The contents of a disk in memory, live and durable, and the calls that change it.
//!
//! `MemEnv` puts a lock around it; `testing::crash` computes what a crash leaves of it. A call is
//! an [`Op`], which can be stored and run again: [`Disk::run`] serves live calls and replays alike.
//!
//! Every file, and the set of names, has two states: the live one that a process sees, and the
//! durable one, with the changes between them in order. Syncing a file applies its changes to the
//! durable state; syncing a directory applies the changes of names in that directory. A file exists
//! while a live or durable name or a handle refers to it. Paths are absolute and without `..`; see
//! `normal`. Directories cannot be removed or renamed, which the engine never does.

use crate::base::sync::{Arc, Mutex};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Identity of a file, whatever its names.
pub(crate) type MemFileId = u64;

/// A file, shared by its names and handles.
pub(crate) type FileRef = Arc<MemFile>;

/// One call that changes the disk.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Creates a file, open for writing. It gets the next identity, in a replay too.
    Create { path: PathBuf },
    /// Writes bytes to an open file.
    Write { id: MemFileId, offset: u64, data: Arc<[u8]> },
    /// `sync_data` or `sync_all` of an open file, which are the same here.
    Sync { id: MemFileId },
    /// Syncs a directory.
    SyncDir { path: PathBuf },
    /// Renames a file.
    Rename { from: PathBuf, to: PathBuf },
    /// Removes a name.
    Remove { path: PathBuf },
    /// Gives a file a second name.
    Link { existing: PathBuf, new: PathBuf },
    /// Creates a directory.
    CreateDir { path: PathBuf },
    /// A test creates or replaces a file durably.
    Put { path: PathBuf, data: Arc<[u8]> },
    /// A test removes a file durably.
    Take { path: PathBuf },
}

/// A write that is not synced.
#[derive(Clone, Debug)]
pub(crate) struct PendingWrite {
    pub offset: usize,
    pub data: Arc<[u8]>,
    /// The length of the file before: bytes beyond it were appended, others overwritten.
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only crashes read it"))]
    pub bytes_before: usize,
}

/// The two states of a file. Copies share bytes until one is written to, so that copying a disk for
/// a crash is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    pub live: Arc<Vec<u8>>,
    pub durable: Arc<Vec<u8>>,
    pub pending: Vec<PendingWrite>,
}

impl Contents {
    /// A file that holds `bytes` durably.
    pub(crate) fn durable(bytes: Vec<u8>) -> Self {
        let bytes = Arc::new(bytes);
        Contents { live: Arc::clone(&bytes), durable: bytes, pending: Vec::new() }
    }

    fn write(&mut self, offset: u64, data: &Arc<[u8]>) -> io::Result<()> {
        let end = offset.checked_add(data.len() as u64).and_then(|end| usize::try_from(end).ok());
        end.ok_or(io::ErrorKind::FileTooLarge)?;
        let offset = offset as usize;
        let bytes_before = self.live.len();
        overwrite(Arc::make_mut(&mut self.live), offset, data);
        self.pending.push(PendingWrite { offset, data: Arc::clone(data), bytes_before });
        Ok(())
    }

    fn sync(&mut self) {
        for write in self.pending.drain(..) {
            overwrite(Arc::make_mut(&mut self.durable), write.offset, &write.data);
        }
    }
}

/// Writes `data` at `offset`; zeros fill the gap if the bytes end before `offset`.
pub(crate) fn overwrite(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}

/// A file: its identity and contents.
#[derive(Debug)]
pub(crate) struct MemFile {
    pub id: MemFileId,
    pub contents: Mutex<Contents>,
}

impl MemFile {
    pub(crate) fn new(id: MemFileId, contents: Contents) -> FileRef {
        Arc::new(MemFile { id, contents: Mutex::new(contents) })
    }
}

/// One change of the names in one directory.
#[derive(Clone, Debug)]
pub(crate) enum NameChange {
    Bind { path: PathBuf, file: FileRef },
    Unbind { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, file: FileRef },
    MakeDir { path: PathBuf },
}

impl NameChange {
    fn directory(&self) -> Option<&Path> {
        match self {
            NameChange::Bind { path, .. }
            | NameChange::Unbind { path }
            | NameChange::Rename { to: path, .. }
            | NameChange::MakeDir { path } => path.parent(),
        }
    }
}

/// All names on a disk.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub files: BTreeMap<PathBuf, FileRef>,
    pub directories: BTreeSet<PathBuf>,
}

impl Names {
    pub(crate) fn apply(&mut self, change: &NameChange) {
        match change {
            NameChange::Bind { path, file } => {
                self.files.insert(path.clone(), Arc::clone(file));
            }
            NameChange::Unbind { path } => {
                self.files.remove(path);
            }
            NameChange::Rename { from, to, file } => {
                // In a crash state the old name may refer to another file already, or to none.
                if self.files.get(from).is_some_and(|old| old.id == file.id) {
                    self.files.remove(from);
                }
                self.files.insert(to.clone(), Arc::clone(file));
            }
            NameChange::MakeDir { path } => {
                self.directories.insert(path.clone());
            }
        }
    }

    /// The file of that name, or why there is none.
    pub(crate) fn file(&self, path: &Path) -> io::Result<&FileRef> {
        self.files.get(path).ok_or_else(|| match self.directories.contains(path) {
            true => io::ErrorKind::IsADirectory.into(),
            false => self.missing(path),
        })
    }

    /// Fails if `path` is no directory.
    pub(crate) fn expect_directory(&self, path: &Path) -> io::Result<()> {
        match path {
            path if self.directories.contains(path) => Ok(()),
            path if self.files.contains_key(path) => Err(io::ErrorKind::NotADirectory.into()),
            path => Err(self.missing(path)),
        }
    }

    /// Why nothing is found at `path`.
    pub(crate) fn missing(&self, path: &Path) -> io::Error {
        match path.ancestors().skip(1).any(|above| self.files.contains_key(above)) {
            true => io::ErrorKind::NotADirectory.into(),
            false => io::ErrorKind::NotFound.into(),
        }
    }

    /// Fails if no new name may be made at `path`.
    fn expect_free(&self, path: &Path) -> io::Result<()> {
        if self.files.contains_key(path) || self.directories.contains(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.expect_parent(path)
    }

    fn expect_parent(&self, path: &Path) -> io::Result<()> {
        path.parent().map_or(Ok(()), |parent| self.expect_directory(parent))
    }
}

/// A change of names that is not durable yet.
#[derive(Clone, Debug)]
pub(crate) struct PendingName {
    /// The position among all changes of names on this disk.
    pub order: u64,
    pub change: NameChange,
}

/// A disk.
#[derive(Debug)]
pub(crate) struct Disk {
    pub live: Names,
    pub durable: Names,
    pub pending: Vec<PendingName>,
    /// On a journaling file system, changes of names up to this `order` are durable.
    pub ordered_through: u64,
    pub open: HashMap<MemFileId, FileRef>,
    pub next_id: MemFileId,
    pub next_order: u64,
}

impl Disk {
    /// A disk with a root directory.
    pub(crate) fn new() -> Self {
        let directories = BTreeSet::from([PathBuf::from("/")]);
        let names = Names { files: BTreeMap::new(), directories };
        Disk::with_names(names, 0)
    }

    /// A disk that holds `names` durably and gives new files identities from `next_id`.
    pub(crate) fn with_names(names: Names, next_id: MemFileId) -> Self {
        Disk {
            live: names.clone(),
            durable: names,
            pending: Vec::new(),
            ordered_through: 0,
            open: HashMap::new(),
            next_id,
            next_order: 1,
        }
    }

    /// A copy that shares no file with this disk and has no open file.
    pub(crate) fn deep_copy(&self) -> Self {
        let mut copies: HashMap<MemFileId, FileRef> = HashMap::new();
        let mut copy = |file: &FileRef| {
            let contents = || file.contents.lock().clone();
            Arc::clone(copies.entry(file.id).or_insert_with(|| MemFile::new(file.id, contents())))
        };
        let mut copy_names = |names: &Names| Names {
            files: names.files.iter().map(|(path, file)| (path.clone(), copy(file))).collect(),
            directories: names.directories.clone(),
        };
        let (live, durable) = (copy_names(&self.live), copy_names(&self.durable));
        let mut pending = self.pending.clone();
        for name in &mut pending {
            if let NameChange::Bind { file, .. } | NameChange::Rename { file, .. } =
                &mut name.change
            {
                *file = copy(file);
            }
        }
        Disk { live, durable, pending, open: HashMap::new(), ..*self }
    }

    /// Runs one call. Returns the identity of a file that `Create` made.
    pub(crate) fn run(&mut self, op: &Op) -> io::Result<MemFileId> {
        match op {
            Op::Create { path } => return self.create(path),
            Op::Write { id, offset, data } => {
                self.opened(*id)?.contents.lock().write(*offset, data)?;
            }
            Op::Sync { id } => self.opened(*id)?.contents.lock().sync(),
            Op::SyncDir { path } => self.sync_dir(path)?,
            Op::Rename { from, to } => self.rename(from, to)?,
            Op::Remove { path } => {
                self.live.file(path)?;
                self.change(NameChange::Unbind { path: path.clone() });
            }
            Op::Link { existing, new } => {
                let file = Arc::clone(self.live.file(existing)?);
                self.live.expect_free(new)?;
                self.change(NameChange::Bind { path: new.clone(), file });
            }
            Op::CreateDir { path } => {
                self.live.expect_free(path)?;
                self.change(NameChange::MakeDir { path: path.clone() });
            }
            Op::Put { path, data } => {
                let file = MemFile::new(self.next_id, Contents::durable(data.to_vec()));
                self.next_id += 1;
                self.settle(path, Some(&file));
            }
            Op::Take { path } => self.settle(path, None),
        }
        Ok(0)
    }

    /// Ends the writing of a file.
    pub(crate) fn close(&mut self, id: MemFileId) {
        self.open.remove(&id);
    }

    fn opened(&self, id: MemFileId) -> io::Result<&FileRef> {
        self.open.get(&id).ok_or_else(|| io::Error::other("the file is not open"))
    }

    fn create(&mut self, path: &Path) -> io::Result<MemFileId> {
        self.live.expect_free(path)?;
        let id = self.next_id;
        self.next_id += 1;
        let file = MemFile::new(id, Contents::default());
        self.open.insert(id, Arc::clone(&file));
        self.change(NameChange::Bind { path: path.to_path_buf(), file });
        Ok(id)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let file = Arc::clone(self.live.file(from)?);
        self.live.expect_parent(to)?;
        match self.live.file(to) {
            // Both names refer to one file. POSIX says that nothing happens.
            Ok(old) if old.id == file.id => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Err(error),
            _ => {}
        }
        let (from, to) = (from.to_path_buf(), to.to_path_buf());
        if from.parent() == to.parent() {
            self.change(NameChange::Rename { from, to, file });
        } else {
            // Each of the two directories is synced by itself, so these are two changes.
            self.change(NameChange::Bind { path: to, file });
            self.change(NameChange::Unbind { path: from });
        }
        Ok(())
    }

    fn change(&mut self, change: NameChange) {
        self.live.apply(&change);
        self.pending.push(PendingName { order: self.next_order, change });
        self.next_order += 1;
    }

    fn sync_dir(&mut self, directory: &Path) -> io::Result<()> {
        self.live.expect_directory(directory)?;
        let is_settled = |name: &mut PendingName| name.change.directory() == Some(directory);
        for name in self.pending.extract_if(.., is_settled) {
            self.durable.apply(&name.change);
            self.ordered_through = self.ordered_through.max(name.order);
        }
        Ok(())
    }

    /// Binds a name to `file`, or unbinds it, in both states; creates missing directories.
    fn settle(&mut self, path: &Path, file: Option<&FileRef>) {
        self.pending.retain(|name| match &name.change {
            NameChange::Bind { path: other, .. }
            | NameChange::Unbind { path: other }
            | NameChange::Rename { to: other, .. } => other != path,
            NameChange::MakeDir { .. } => true,
        });
        for names in [&mut self.live, &mut self.durable] {
            names.files.remove(path);
            if let Some(file) = file {
                names.files.insert(path.to_path_buf(), Arc::clone(file));
                names.directories.extend(path.ancestors().skip(1).map(Path::to_path_buf));
            }
        }
    }
}

/// `path` from the root, without `.`, `..` and doubled separators.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                plain.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}

/// The last part of a name in `directory`, or `None` if `path` is not directly in it.
pub(crate) fn name_in<'p>(directory: &Path, path: &'p Path) -> Option<&'p OsStr> {
    (path.parent() == Some(directory)).then(|| path.file_name())?
}
