//! The databases of one worker: built when a phase first needs them, one open at a time.
//!
//! A stage is a database in a state that phases read or write. `settled` stays on disk to the end;
//! the other directories go as soon as the next stage is entered. Entering a stage is never timed.
//! Everything that a phase reads was read once before, so caches are full and every value was
//! found.

use crate::big;
use crate::engine::{Engine, Layout, Result, Settings, Store, Transactions, WRITE_BUFFER_BYTES};
use crate::memory_group::MemoryGroup;
use crate::tally::Tally;
use crate::workload::{Draw, Workload};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Entries of one batch while a database is built.
const BATCH_ENTRIES: usize = 1000;

/// A cache that is too small for data and filters, even in the smallest sizes that are measured.
pub const STARVED_CACHE_BYTES: u64 = 8 << 20;

/// Entries that are only in the memtable, in the phase of that name.
pub const MEMTABLE_ENTRIES: u64 = 100_000;

/// Most that is written for that.
const WARM_BYTES_MAX: u64 = 1 << 30;

/// A database in a state that phases need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// All entries, flushed and compacted.
    Settled,
    /// The same under a cache that is too small.
    Starved,
    /// The same, compressed.
    StarvedCompressed,
    /// As starved, and files are read through memory maps.
    StarvedMapped,
    /// Settled, and some fresh entries that were not flushed.
    Memtable,
    /// All entries in files of level 0.
    Level0,
    /// A copy of the settled one, to be overwritten.
    Overwritten,
}

impl Stage {
    fn folder(self) -> &'static str {
        match self {
            Stage::Settled | Stage::Starved | Stage::StarvedMapped => "settled",
            Stage::StarvedCompressed => "compressed",
            Stage::Memtable => "memtable",
            Stage::Level0 => "level0",
            Stage::Overwritten => "overwritten",
        }
    }
}

/// What one worker has on disk, and what of it is open.
pub struct Databases<'w> {
    /// Their entries.
    pub workload: &'w Workload,
    engine: &'static Engine,
    layout: Layout,
    directory: PathBuf,
    open: Option<(Stage, Box<dyn Store>)>,
    /// The control group that this process is in, if it is in one, and the bytes of its memory.
    pub memory: Option<(MemoryGroup, u64)>,
}

impl<'w> Databases<'w> {
    /// Nothing is built yet.
    pub fn new(
        engine: &'static Engine,
        layout: Layout,
        directory: PathBuf,
        workload: &'w Workload,
    ) -> Self {
        Databases { workload, engine, layout, directory, open: None, memory: None }
    }

    /// The settings that this engine and layout have for the workload.
    pub fn settings(&self) -> Settings {
        Settings {
            layout: self.layout,
            cache_bytes: match self.memory {
                Some((_, memory_bytes)) => memory_bytes / big::CACHE_PART,
                None => (4 * self.workload.bytes()).max(1 << 30),
            },
            compression: false,
            map_files: false,
            compaction: true,
            durable: false,
            map_bytes: 8 * self.workload.bytes() + (1 << 30),
        }
    }

    /// The database at `stage`.
    pub fn at(&mut self, stage: Stage) -> Result<&mut dyn Store> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != stage) {
            self.close()?;
            self.open = Some((stage, self.enter(stage)?));
        }
        let (_, store) = self.open.as_mut().ok_or("no database is open")?;
        Ok(store.as_mut())
    }

    /// Closes the open database, and removes it if no other stage needs it.
    pub fn close(&mut self) -> Result<()> {
        let Some((stage, store)) = self.open.take() else { return Ok(()) };
        store.close()?;
        if stage.folder() != Stage::Settled.folder() {
            fs::remove_dir_all(self.directory.join(stage.folder()))?;
        }
        Ok(())
    }

    /// Closes the open database; returns the directory of the settled one, which exists then.
    pub fn settled_directory(&mut self) -> Result<PathBuf> {
        self.at(Stage::Settled)?;
        self.close()?;
        Ok(self.directory.join(Stage::Settled.folder()))
    }

    /// The same, of which nothing was read.
    pub fn built_directory(&mut self) -> Result<PathBuf> {
        self.close()?;
        self.built(Stage::Settled)
    }

    /// Creates an empty database in place of the settled one. The caller loads and settles it, and
    /// gives it back by `keep`.
    pub fn create(&mut self) -> Result<Box<dyn Store>> {
        self.close()?;
        let directory = self.emptied(Stage::Settled.folder())?;
        self.even_out()?;
        self.open_in(&directory, &self.settings())
    }

    /// Brings the machine into one state for all engines, before a phase that writes is timed.
    ///
    /// It syncs what others have left for the system to write, because the disk would write it
    /// during the phase. It also writes and removes a file as large as all entries: a virtual
    /// machine may have returned its free memory to the host, and the first use of such a page
    /// takes ten times as long.
    pub fn even_out(&self) -> Result<()> {
        let path = self.directory.join("warm");
        let mut file = File::create(&path)?;
        let piece = vec![1; 1 << 20];
        for _ in 0..(4 * self.workload.bytes()).min(WARM_BYTES_MAX).div_ceil(piece.len() as u64) {
            file.write_all(&piece)?;
        }
        drop(file);
        fs::remove_file(path)?;
        rustix::fs::sync();
        Ok(())
    }

    /// Opens the settled database, which must be built and closed. The caller gives it back by
    /// `keep`.
    pub fn reopen(&mut self) -> Result<Box<dyn Store>> {
        let directory = self.directory.join(Stage::Settled.folder());
        self.open_in(&directory, &self.settings())
    }

    /// Takes back a settled database from `create` or `reopen`; it stays open.
    pub fn keep(&mut self, store: Box<dyn Store>) -> Result<()> {
        read_all(store.as_ref(), self.workload)?;
        self.open = Some((Stage::Settled, store));
        Ok(())
    }

    /// An empty database and its directory for `work`, which closes it; removed afterwards.
    pub fn scratch<T>(
        &mut self,
        settings: &Settings,
        work: impl FnOnce(Box<dyn Store>, &Path) -> Result<T>,
    ) -> Result<T> {
        let open = self.engine.open;
        self.scratch_directory(|directory| work(open(directory, settings)?, directory))
    }

    /// As [`Databases::scratch`], with transactions: an engine without them has no such phase.
    pub fn scratch_transactions<T>(
        &mut self,
        work: impl FnOnce(Box<dyn Transactions>) -> Result<T>,
    ) -> Result<T> {
        let open = self.engine.open_transactions.ok_or("an engine without transactions")?;
        let settings = self.settings();
        self.scratch_directory(|directory| work(open(directory, &settings)?))
    }

    fn scratch_directory<T>(&mut self, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        self.close()?;
        let directory = self.emptied("scratch")?;
        self.even_out()?;
        let done = work(&directory)?;
        fs::remove_dir_all(directory)?;
        Ok(done)
    }

    fn enter(&self, stage: Stage) -> Result<Box<dyn Store>> {
        let settings = self.settings();
        let store = match stage {
            Stage::Settled => self.open_in(&self.built(stage)?, &settings)?,
            Stage::Starved | Stage::StarvedCompressed | Stage::StarvedMapped => {
                let starved = Settings {
                    cache_bytes: STARVED_CACHE_BYTES,
                    compression: stage == Stage::StarvedCompressed,
                    map_files: stage == Stage::StarvedMapped,
                    ..settings
                };
                self.open_in(&self.built(stage)?, &starved)?
            }
            Stage::Memtable => {
                let store = self.open_in(&self.copied(stage)?, &settings)?;
                let entry_bytes = (self.workload.bytes() / self.workload.keys + 200) as usize;
                let fit = (WRITE_BUFFER_BYTES / 2 / entry_bytes) as u64;
                let count = MEMTABLE_ENTRIES.min(fit);
                for first in (0..count).step_by(BATCH_ENTRIES) {
                    let entries = (count - first).min(BATCH_ENTRIES as u64);
                    store.write(&self.workload.fresh(first, entries))?;
                }
                store
            }
            Stage::Level0 => self.level0(&Settings { compaction: false, ..settings })?,
            Stage::Overwritten => self.open_in(&self.copied(stage)?, &settings)?,
        };
        match stage {
            Stage::Starved | Stage::StarvedCompressed | Stage::StarvedMapped => {
                let lookups = self.workload.draw(Draw::Present, 0, self.workload.lookups);
                expect(store.reader()?.lookups(&lookups.keys)?, lookups.expected)?;
            }
            Stage::Overwritten => {}
            Stage::Settled | Stage::Memtable | Stage::Level0 => {
                read_all(store.as_ref(), self.workload)?;
            }
        }
        Ok(store)
    }

    /// The directory of a settled database, which is loaded if it is not there.
    fn built(&self, stage: Stage) -> Result<PathBuf> {
        let directory = self.directory.join(stage.folder());
        if directory.exists() {
            return Ok(directory);
        }
        let compression = stage == Stage::StarvedCompressed;
        let settings = Settings { compression, ..self.settings() };
        let store = self.open_in(&self.emptied(stage.folder())?, &settings)?;
        for numbers in self.workload.shuffled().chunks(BATCH_ENTRIES) {
            store.write(&self.workload.batch(numbers))?;
        }
        store.settle()?;
        store.close()?;
        Ok(directory)
    }

    /// The directory of a copy of the settled database.
    fn copied(&self, stage: Stage) -> Result<PathBuf> {
        let directory = self.emptied(stage.folder())?;
        copy(&self.built(Stage::Settled)?, &directory)?;
        Ok(directory)
    }

    /// All entries in overlapping files of level 0. It stays open: some engines compact at open.
    fn level0(&self, settings: &Settings) -> Result<Box<dyn Store>> {
        let store = self.open_in(&self.emptied(Stage::Level0.folder())?, settings)?;
        let numbers = self.workload.shuffled();
        let files = self.engine.level0_files.max(1) as usize;
        for part in numbers.chunks(numbers.len().div_ceil(files)) {
            for numbers in part.chunks(BATCH_ENTRIES) {
                store.write(&self.workload.batch(numbers))?;
            }
            store.flush()?;
        }
        Ok(store)
    }

    fn open_in(&self, directory: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
        (self.engine.open)(directory, settings)
    }

    fn emptied(&self, folder: &str) -> Result<PathBuf> {
        let directory = self.directory.join(folder);
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
        Ok(directory)
    }
}

/// Looks every entry up once.
fn read_all(store: &dyn Store, workload: &Workload) -> Result<()> {
    let mut reader = store.reader()?;
    let mut tally = Tally::default();
    for numbers in workload.shuffled().chunks(BATCH_ENTRIES) {
        tally += reader.lookups(workload.batch(numbers).keys())?;
    }
    expect(tally, workload.all())
}

/// Compares a result with the expected one.
pub fn expect(found: Tally, expected: Tally) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(format!("wrong answers: found {found:?}, where {expected:?} is right").into())
}

/// Bytes that the files below a directory take on disk. A file that is removed during the call
/// counts as none.
pub fn disk_bytes(directory: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path())?,
            Ok(metadata) => metadata.blocks() * 512,
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error.into()),
        };
    }
    Ok(bytes)
}

/// Copies all files below a directory.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.metadata()?.is_dir() {
            fs::create_dir(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
