//! The parts that the three layouts share: the settings of a table's filter, and its blocks.
//!
//! A filter block that cannot be read or understood is never a "no": the lookup counts it in
//! `TableIo::filter_errors` and continues without a filter. Filter blocks are never compressed.

use crate::base::error::{Error, Result};
use crate::base::sync::{Arc, AtomicBool, Ordering};
use crate::table::file::{TableFile, TableIo};
use crate::table::format::{BLOCK_BYTES_MAX, BlockHandle, BlockKind};
use crate::table::properties::Properties;
use siftdb_filter::builder::FilterBuilder;
use siftdb_filter::cache_line::AlignedBytes;
use siftdb_filter::encoding::Encoding;
use siftdb_filter::policy::FilterPolicy;
use siftdb_filter::prefix::{Prefix, PrefixExtractor};
use siftdb_filter::range::RangeFilterBuilder;
use std::fmt;

/// Where the bits of a table's filter live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterLayout {
    /// One filter per window of data offsets, as in LevelDB. It is asked after the data index, so
    /// it saves data blocks only.
    BlockBased {
        /// A power of two from 256 to 2^30; LevelDB has 2048. All keys of the data blocks that
        /// start in one window share a filter, so less than a block's size wastes space.
        window_bytes: usize,
    },
    /// One filter for the whole table, asked before anything else of it.
    Full,
    /// Filters for runs of keys under a small index; only the run of the key is loaded.
    Partitioned {
        /// About the size of one partition, 1 to 2^30; RocksDB's metadata block size, of which a
        /// partition takes 90 %.
        block_bytes: usize,
    },
}

impl FilterLayout {
    /// Bytes of data for each filter of the block-based layout, as in LevelDB.
    pub const WINDOW_BYTES_DEFAULT: usize = 2048;

    /// RocksDB's metadata block size.
    pub const BLOCK_BYTES_DEFAULT: usize = 4096;

    const BYTES_MAX: usize = 1 << 30;

    /// What is wrong with this choice, if anything.
    pub fn validate(&self) -> std::result::Result<(), String> {
        match *self {
            FilterLayout::BlockBased { window_bytes }
                if !window_bytes.is_power_of_two()
                    || !(256..=Self::BYTES_MAX).contains(&window_bytes) =>
            {
                Err(format!(
                    "window_bytes of block-based filters is a power of two from 256 to 2^30, \
                     not {window_bytes}"
                ))
            }
            FilterLayout::Partitioned { block_bytes }
                if !(1..=Self::BYTES_MAX).contains(&block_bytes) =>
            {
                Err(format!("block_bytes of partitioned filters is 1 to 2^30, not {block_bytes}"))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for FilterLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterLayout::BlockBased { window_bytes } => write!(f, "block-based:{window_bytes}"),
            FilterLayout::Full => f.write_str("full"),
            FilterLayout::Partitioned { block_bytes } => write!(f, "partitioned:{block_bytes}"),
        }
    }
}

/// How much of a table's filter stays in memory as long as the table is open, as far as the
/// cache's share for that allows (`Options::filter_pinned_share`). The rest comes and goes
/// through the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilterPinning {
    /// Nothing: for levels that are asked seldom, so that others have the room.
    None,
    /// The filter of a whole table (full, block-based), and of a partitioned one the top-level
    /// index: a lookup reads one partition at most.
    #[default]
    TopLevel,
    /// Partitions too: no lookup reads a filter, touches the cache or takes a lock for one. Costs
    /// the memory of the whole filter, and one read of it when a table is opened.
    All,
}

/// How new tables filter.
#[derive(Clone, Debug)]
pub(crate) struct TableFilter {
    /// The bytes that keys become.
    pub encoding: Encoding,
    /// Where in the table these bytes are.
    pub layout: FilterLayout,
    /// The members of a filter for each key.
    pub members: FilterMembers,
    /// Thousandths of a bit per key of a range filter besides; 0 for none.
    pub range_millibits: u32,
}

impl TableFilter {
    /// What is wrong with this choice, if anything.
    pub(crate) fn validate(&self) -> std::result::Result<(), String> {
        self.encoding.validate()?;
        self.layout.validate()?;
        if self.range_millibits > 0 {
            RangeFilterBuilder::new(f64::from(self.range_millibits) / 1_000.0)?;
        }
        self.members.validate(self.layout)
    }

    /// A builder for the range filter, if there is to be one.
    pub(crate) fn range_filter_builder(&self) -> Option<RangeFilterBuilder> {
        // `validate` refused all other bits.
        RangeFilterBuilder::new(f64::from(self.range_millibits) / 1_000.0).ok()
    }

    /// Writes this choice into the properties of a table with such a filter.
    pub(crate) fn describe(&self, properties: &mut Properties) {
        self.describe_no_member(properties);
        properties.filter_policy = self.policy_name();
        properties.filter_encoding = self.encoding.label().to_string();
        properties.filter_layout = self.layout.to_string();
        properties.filter_millibits_per_key = self.millibits_per_key();
        properties.whole_key_filtering = self.members.whole_keys;
        properties.prefix_filtering = self.members.prefix.is_some();
    }

    /// Writes this choice into the properties of a table without a filter: none of its keys has a
    /// prefix for one. So `rebuild_filters` knows that this choice was asked.
    pub(crate) fn describe_no_member(&self, properties: &mut Properties) {
        properties.range_filter_millibits = u64::from(self.range_millibits);
        properties.prefix_extractor = self.members.prefix_id();
    }

    /// Whether [`describe_no_member`](Self::describe_no_member) wrote these properties.
    #[must_use]
    pub(crate) fn had_no_member(&self, properties: &Properties) -> bool {
        properties.filter_policy.is_empty()
            && !self.members.whole_keys
            && properties.prefix_extractor == self.members.prefix_id()
    }

    /// Whether a table with these properties has such a filter, bits per key aside.
    pub(crate) fn is_alike(&self, properties: &Properties) -> bool {
        let mut described = properties.clone();
        self.describe(&mut described);
        described.filter_millibits_per_key = properties.filter_millibits_per_key;
        described == *properties
    }

    /// Thousandths of a bit per key as tables state them: 0 where the policy decides.
    pub(crate) fn millibits_per_key(&self) -> u64 {
        (1_000.0 * self.encoding.bits_per_key().unwrap_or_default()).round() as u64
    }

    /// The metaindex entry of its filter: layout and policy.
    pub(crate) fn metaindex_name(&self) -> String {
        let prefix = match self.layout {
            FilterLayout::BlockBased { .. } => BLOCK_BASED_PREFIX,
            FilterLayout::Full => FULL_PREFIX,
            FilterLayout::Partitioned { .. } => PARTITIONED_PREFIX,
        };
        format!("{prefix}{}", self.policy_name())
    }

    /// The name its tables persist for the encoding.
    pub(crate) fn policy_name(&self) -> String {
        match self.layout {
            FilterLayout::BlockBased { .. } => self.encoding.block_based_name(),
            FilterLayout::Full | FilterLayout::Partitioned { .. } => self.encoding.full_name(),
        }
    }
}

/// The members of a filter for each key: the whole key, its prefix, or both.
#[derive(Clone, Debug)]
pub(crate) struct FilterMembers {
    /// Whole keys. A filter without them has no answer for a key that has no prefix.
    pub whole_keys: bool,
    /// Prefixes by this rule.
    pub prefix: Option<Prefix>,
}

impl Default for FilterMembers {
    /// Whole keys only.
    fn default() -> Self {
        FilterMembers { whole_keys: true, prefix: None }
    }
}

impl FilterMembers {
    /// What the filter of a table holds, as far as it can be asked: prefixes only by a known rule.
    pub(crate) fn of_table(properties: &Properties, custom: &[Arc<dyn PrefixExtractor>]) -> Self {
        let id = Some(&properties.prefix_extractor).filter(|_| properties.prefix_filtering);
        FilterMembers {
            whole_keys: properties.whole_key_filtering,
            prefix: id.and_then(|id| Prefix::for_id(id, custom)),
        }
    }

    /// The id of the rule for prefixes; empty without one.
    #[must_use]
    fn prefix_id(&self) -> String {
        self.prefix.as_ref().map(Prefix::id).unwrap_or_default()
    }

    fn validate(&self, layout: FilterLayout) -> std::result::Result<(), String> {
        let Some(prefix) = &self.prefix else {
            let nothing = "a filter of neither whole keys nor prefixes: whole_key(false) is for \
                           filters with a prefix";
            return if self.whole_keys { Ok(()) } else { Err(nothing.to_string()) };
        };
        if let FilterLayout::BlockBased { .. } = layout {
            return Err("prefixes in a block-based filter: it answers for one window of the \
                        file, a scan crosses many; take the full or partitioned layout"
                .to_string());
        }
        prefix.validate()
    }

    /// The prefix of a key to be added. The error says that a user's rule broke its contract.
    #[inline]
    pub(crate) fn prefix_of<'k>(&self, user_key: &'k [u8]) -> Result<Option<&'k [u8]>> {
        let Some(prefix) = &self.prefix else { return Ok(None) };
        prefix.extract_checked(user_key).map_err(|what| Error::InvalidOptions { what })
    }

    /// Adds a key in the form that the filter holds. A filter of prefixes only does not hold a key
    /// without a prefix.
    #[inline]
    pub(crate) fn add(&self, user_key: &[u8], prefix: Option<&[u8]>, filter: &mut FilterBuilder) {
        match prefix {
            Some(prefix) if self.whole_keys => filter.add_key_and_alternate(user_key, prefix),
            Some(prefix) => filter.add_key(prefix),
            None if self.whole_keys => filter.add_key(user_key),
            None => {}
        }
    }
}

/// The user's rules, found by the names that tables and saved settings have of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct CustomRules {
    pub policies: Vec<Arc<dyn FilterPolicy>>,
    pub prefixes: Vec<Arc<dyn PrefixExtractor>>,
}

/// Metaindex prefix of a block-based filter.
pub(crate) const BLOCK_BASED_PREFIX: &str = "filter.";
/// Metaindex prefix of a full filter.
pub(crate) const FULL_PREFIX: &str = "fullfilter.";
/// Metaindex prefix of a partitioned filter; its handle is that of the top-level index.
pub(crate) const PARTITIONED_PREFIX: &str = "partitionedfilter.";

/// Takes finished blocks of a filter. `table/builder.rs` writes them to the file as they are, with
/// the usual prefix and trailer, one after the other.
pub(crate) trait BlockSink {
    /// Writes one block and returns its handle.
    fn write_raw(&mut self, contents: &[u8], kind: BlockKind) -> Result<BlockHandle>;
}

/// A filter that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterBlockSummary {
    /// The block that the metaindex names.
    pub handle: BlockHandle,
    /// Bytes of all its blocks, without their trailers.
    pub filter_bytes: u64,
    /// Keys it was built from, dropped repeats not counted.
    pub entries: u64,
    /// Number of partitions; 0 unless partitioned.
    pub partitions: u64,
}

/// Whether a filter block of this size can be read back. A larger one is not written: a table
/// without a filter is slow, one that cannot be read is lost.
pub(crate) fn is_writable(bytes: usize) -> bool {
    bytes <= BLOCK_BYTES_MAX
}

/// Writes a filter that is one block; nothing if it is empty or too large to be read back.
pub(crate) fn write_one_block(
    contents: &[u8],
    entries: u64,
    sink: &mut dyn BlockSink,
) -> Result<Option<FilterBlockSummary>> {
    if contents.is_empty() || entries == 0 || !is_writable(contents.len()) {
        return Ok(None);
    }
    let handle = sink.write_raw(contents, BlockKind::Filter)?;
    let filter_bytes = contents.len() as u64;
    Ok(Some(FilterBlockSummary { handle, filter_bytes, entries, partitions: 0 }))
}

/// The block that a metaindex entry names.
#[derive(Debug)]
pub(crate) struct FilterSource {
    /// The filter block, or the top-level index of partitions.
    pub handle: BlockHandle,
    /// The block was found damaged. It is not read again: that would cost every lookup a large
    /// read.
    damaged: AtomicBool,
}

impl FilterSource {
    /// The block at `handle`.
    pub(crate) fn new(handle: BlockHandle) -> Self {
        FilterSource { handle, damaged: AtomicBool::new(false) }
    }

    /// Calls `ask` with the filter block, from the cache or the file. Damage is counted.
    #[inline]
    pub(crate) fn with_bytes<R>(
        &self,
        file: &TableFile,
        io: &mut TableIo,
        ask: impl FnOnce(&[u8], &mut TableIo) -> R,
    ) -> Option<R> {
        let fetch = |io: &mut _| file.fetch(self.handle, BlockKind::Filter, true, io);
        let block = self.guard(file, io, fetch)?;
        // A block of another kind has no bytes of a filter; every reader takes that for damage.
        Some(ask(block.filter().map_or(&[][..], |bytes| bytes), io))
    }

    /// The filter block, past the cache, for a reader that pins it.
    pub(crate) fn load(&self, file: &TableFile, io: &mut TableIo) -> Option<AlignedBytes> {
        self.guard(file, io, |io| file.read_filter(self.handle, io))
    }

    /// Runs a read unless the block is known to be damaged. A system error is not remembered: the
    /// next read may succeed. A block that must not be read is no error.
    #[inline]
    pub(crate) fn guard<T>(
        &self,
        file: &TableFile,
        io: &mut TableIo,
        read: impl FnOnce(&mut TableIo) -> Result<T>,
    ) -> Option<T> {
        if !self.is_known_damaged() {
            match read(io) {
                Ok(block) => return Some(block),
                Err(Error::WouldRead { .. }) => return None,
                Err(error) => {
                    file.emit_damaged_filter(&error);
                    if error.is_corruption() {
                        self.damaged.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        io.filter_errors += 1;
        None
    }

    /// True if the block was found damaged when it was last read.
    pub(crate) fn is_known_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_layouts_are_refused() {
        for window_bytes in [0, 1, 128, 255, 257, 2047, 3000, 1 << 31, usize::MAX] {
            assert!(FilterLayout::BlockBased { window_bytes }.validate().is_err());
        }
        for window_bytes in [256, 2048, 1 << 30] {
            assert!(FilterLayout::BlockBased { window_bytes }.validate().is_ok());
        }
        for block_bytes in [0, (1 << 30) + 1, usize::MAX] {
            assert!(FilterLayout::Partitioned { block_bytes }.validate().is_err());
        }
        assert!(FilterLayout::Partitioned { block_bytes: 1 }.validate().is_ok());
        assert!(FilterLayout::Full.validate().is_ok());
    }
}
