//! The thread that writes a table of a bulk load, while the load fills the next blocks.
//!
//! It compresses and writes the blocks. At the end it also takes the builder, writes filter and
//! index and syncs the file, while the load begins the next table. Where a table ends does not
//! depend on the schedule: the load asks for blocks back only by their sizes. Its bytes do not
//! depend on the schedule either. The exceptions are filters for which the cache has no memory,
//! which the next table may have taken: a Ribbon filter becomes a Bloom filter, and a table with
//! very many keys ends early.
//!
//! Legal calls: `start, write* end? join`. The first failure of the thread is the answer of the
//! next call. Dropped, the thread has ended, so nothing writes to the file afterwards.

use crate::base::error::{Error, Result};
use crate::base::sync::{mpsc, thread};
use crate::table::block_file::{BlockFile, FullBlocks};
use crate::table::builder::{TableBuilder, TableSummary};
use siftdb_filter::policy::guarded;
use std::path::Path;

/// The next work of the thread.
enum Work {
    /// The first work. The file is not moved into the thread when it is started, because a thread
    /// that cannot be started would drop it.
    Begin(Box<BlockFile>),
    Write(FullBlocks),
    End(Box<TableBuilder>),
}

/// The written blocks, and the size of the file with them.
type Written = (FullBlocks, u64);

/// The thread of one table.
pub(super) struct TableThread {
    /// `None` once the table has ended.
    work: Option<mpsc::Sender<Work>>,
    written: mpsc::Receiver<Written>,
    /// `None` once its answer was taken.
    thread: Option<thread::JoinHandle<Result<TableSummary>>>,
}

impl TableThread {
    /// Gives the file of `builder` to a thread. `None` if no thread can be started, or the filter
    /// does not allow it: then the builder writes the file itself.
    pub(super) fn start(builder: &mut TableBuilder, path: &Path) -> Option<Self> {
        if !builder.can_detach() {
            return None;
        }
        let (work, works) = mpsc::channel();
        let (writes, written) = mpsc::channel();
        let path = path.to_path_buf();
        let write = move || {
            let ended = guarded(|| write_table(&works, &writes));
            ended.unwrap_or_else(|panic| {
                let cause = std::io::Error::other(format!("its thread panicked: {panic}"));
                Err(Error::io("write", path, cause))
            })
        };
        let thread = thread::Builder::new().name("siftdb-load".into()).spawn(write).ok()?;
        let mut started = TableThread { work: Some(work), written, thread: Some(thread) };
        let file = builder.detach()?;
        started.send(Work::Begin(Box::new(file))).ok()?;
        Some(started)
    }

    /// Gives the full blocks to the thread. Waits before that until the earlier blocks that are
    /// unwritten take at most `bytes_max` of memory.
    ///
    /// # Errors
    /// The failure of the thread.
    pub(super) fn write(&mut self, builder: &mut TableBuilder, bytes_max: u64) -> Result<()> {
        let full = builder.detached().take();
        // Only as many as the sizes require. Blocks that are written early stay away, because where
        // a table ends must not depend on the schedule.
        while builder.detached().away_memory > full.memory + bytes_max {
            let Ok((blocks, file_bytes)) = self.written.recv() else { return Err(self.failure()) };
            builder.detached().give_back(blocks, file_bytes);
        }
        self.send(Work::Write(full))
    }

    /// Lets the thread complete the table.
    ///
    /// # Errors
    /// The failure of the thread.
    pub(super) fn end(&mut self, builder: TableBuilder) -> Result<()> {
        let sent = self.send(Work::End(Box::new(builder)));
        self.work = None;
        sent
    }

    /// Waits until the table is durable.
    ///
    /// # Errors
    /// The failure of the thread.
    pub(super) fn join(mut self) -> Result<TableSummary> {
        self.work = None;
        self.take_answer()
    }

    fn send(&mut self, work: Work) -> Result<()> {
        match self.work.as_ref().map(|to| to.send(work)) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.failure()),
        }
    }

    /// Why the thread takes no more work.
    fn failure(&mut self) -> Error {
        self.work = None;
        self.take_answer().err().unwrap_or(Error::Closed)
    }

    fn take_answer(&mut self) -> Result<TableSummary> {
        // `guarded` has turned a panic into an error.
        let answer = self.thread.take().and_then(|thread| thread.join().ok());
        answer.unwrap_or(Err(Error::Closed))
    }
}

impl Drop for TableThread {
    fn drop(&mut self) {
        self.work = None;
        let _ = self.take_answer();
    }
}

fn write_table(
    works: &mpsc::Receiver<Work>,
    written: &mpsc::Sender<Written>,
) -> Result<TableSummary> {
    let mut open = None;
    for work in works {
        match (work, &mut open) {
            (Work::Begin(file), _) => open = Some(file),
            (Work::Write(mut full), Some(file)) => {
                full.blocks.iter_mut().try_for_each(|block| file.write(block))?;
                // The load may be over: then nobody takes them back.
                let _ = written.send((full, file.file_bytes()));
            }
            (Work::End(mut builder), file) => {
                if let Some(file) = file.take() {
                    builder.attach(*file)?;
                }
                return builder.finish();
            }
            (Work::Write(_), None) => break,
        }
    }
    // The load was dropped.
    Err(Error::Closed)
}
