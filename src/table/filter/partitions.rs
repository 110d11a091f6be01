//! The partitions of a filter under their top-level index: loaded, pinned, fetched.
//!
//! The top-level index names the blocks of all partitions, in ascending order. Both layouts that
//! are cut use it: partitioned filters, and range filters. What a partition holds is theirs.

use crate::base::error::Result;
use crate::cache::cache::Reservation;
use crate::table::file::{TableFile, TableIo};
use crate::table::filter::layout::FilterSource;
use crate::table::format::{BlockHandle, BlockKind, run_bytes};
use crate::table::index::{CachedBlock, Index, IndexEntry};

/// The partitions of one filter. A pinned partition is kept as a `P`.
pub(crate) struct Partitions<P> {
    /// The block of the top-level index.
    pub source: FilterSource,
    pub index: Option<Index>,
    /// The pinned partitions, by position in the index; none if they come through the cache. A
    /// lookup in them touches no lock and no cache.
    pinned: Vec<Option<P>>,
    /// For the pinned partitions.
    memory: Option<Reservation<CachedBlock>>,
}

impl<P> Partitions<P> {
    /// Those under the top-level index at `handle`, which is read at each use until it is pinned.
    pub(crate) fn new(handle: BlockHandle) -> Self {
        Partitions {
            source: FilterSource::new(handle),
            index: None,
            pinned: Vec::new(),
            memory: None,
        }
    }

    /// A partition, if it is pinned.
    #[inline]
    pub(crate) fn pinned(&self, partition: IndexEntry) -> Option<&P> {
        self.pinned.get(partition.position())?.as_ref()
    }

    /// Memory that the index takes.
    #[cfg(test)]
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.index.as_ref().map_or(0, |index| index.memory_bytes() as u64)
    }

    /// Loads the top-level index to stay; if that fails it is fetched at each use.
    pub(crate) fn pin(&mut self, file: &TableFile, io: &mut TableIo) {
        let handle = self.source.handle;
        self.index =
            self.source.guard(file, io, |io| file.read_index(handle, BlockKind::FilterIndex, io));
    }

    /// Loads the partitions to stay, if the index is pinned and names them in one run, and the
    /// cache has room for them. Otherwise they come through the cache.
    pub(crate) fn pin_all(&mut self, file: &TableFile, prepare: impl Fn(&[u8]) -> P) {
        if let Some((pinned, memory)) = self.load_all(file, prepare) {
            (self.pinned, self.memory) = (pinned, Some(memory));
        }
    }

    fn load_all(
        &self,
        file: &TableFile,
        prepare: impl Fn(&[u8]) -> P,
    ) -> Option<(Vec<Option<P>>, Reservation<CachedBlock>)> {
        let handles: Vec<_> = self.index.as_ref()?.handles().collect();
        // A damaged index can name any blocks in ascending order. Only partitions in one run, as a
        // writer leaves them, are worth one read of everything from the first to the last.
        let bytes = run_bytes(&handles)?;
        let extra = (handles.len() as u64).saturating_mul(Self::BYTES_PER_PARTITION);
        let memory = file.cache.try_reserve(bytes.saturating_add(extra))?;
        let prepare = |filter: &[u8]| (!filter.is_empty()).then(|| prepare(filter));
        let read = file.read_run(&handles, BlockKind::Filter, prepare).ok()?;
        // Each partition is checked by itself. A damaged one is left out: a lookup then reads it,
        // fails and says "not consulted", as it would without pinning.
        Some((read.into_iter().map(|filter| filter.ok().flatten()).collect(), memory))
    }

    /// Reads the top-level index and every partition past the cache.
    ///
    /// # Errors
    /// What is wrong with the first of them that is damaged.
    pub(crate) fn check(&self, file: &TableFile) -> Result<()> {
        let (top, io) = (self.source.handle, &mut TableIo::default());
        let index = file.read_index(top, BlockKind::FilterIndex, io)?;
        if index.len() == 0 {
            return Err(file.corruption(top.offset, "an index of no partitions"));
        }
        for handle in index.handles() {
            if handle.size == 0 {
                return Err(file.corruption(handle.offset, "an empty partition"));
            }
            file.read_raw(handle, BlockKind::Filter, io)?;
        }
        Ok(())
    }

    /// Calls `ask` with the top-level index. `None` and a counted error if the index cannot be read
    /// or `ask` says `None`. Without I/O no error is counted, because a partition may be missing.
    #[inline]
    pub(crate) fn with_index<R>(
        &self,
        file: &TableFile,
        io: &mut TableIo,
        ask: impl FnOnce(&Index, &mut TableIo) -> Option<R>,
    ) -> Option<R> {
        let fetched;
        let blocks = match &self.index {
            Some(blocks) => Some(blocks),
            None => {
                let handle = self.source.handle;
                let fetch = |io: &mut _| file.fetch(handle, BlockKind::FilterIndex, true, io);
                fetched = self.source.guard(file, io, fetch)?;
                fetched.index()
            }
        };
        let answer = blocks.and_then(|blocks| ask(blocks, io));
        io.filter_errors += u32::from(answer.is_none() && !io.in_memory_only);
        answer
    }

    /// Calls `ask` with the bytes of a partition that is not pinned; `None` if it cannot be read.
    #[inline]
    pub(crate) fn with_bytes<R>(
        &self,
        file: &TableFile,
        blocks: &Index,
        partition: IndexEntry,
        io: &mut TableIo,
        ask: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let fetched = file.fetch_named(blocks, partition, BlockKind::Filter, true, io);
        let block = fetched.inspect_err(|error| file.emit_damaged_filter(error)).ok()?;
        // A partition without bytes would deny every key, and no writer makes one.
        let filter = block.filter().filter(|filter| !filter.is_empty())?;
        Some(ask(filter))
    }

    /// Memory of a pinned partition besides its bytes: its own fields, reference counts and the
    /// allocator's share.
    const BYTES_PER_PARTITION: u64 = size_of::<Option<P>>() as u64 + 32;
}
