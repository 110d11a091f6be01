//! How one number for memory is divided over the options that bound it.
//!
//! Each option bounds one part; docs/tuning.md lists the parts.

use crate::options::database::Options;

/// The memory divided by this is a write buffer.
const WRITE_BUFFER_PART: u64 = 16;

/// The largest write buffer. A larger one would mean longer logs, and recovery reads them all.
const WRITE_BUFFER_BYTES_MAX: u64 = 64 << 20;

/// Write buffers in the memory that is not the cache's. A writer has an active memtable, two that
/// wait for their flush, and the keys of recent writes: 3.125. A transaction and what jobs need
/// have the rest. A database opened read-only or followed has the entries of the logs instead, for
/// which this is the default limit.
const WRITE_BUFFERS: u64 = 6;

impl Options {
    /// Divides `bytes` of memory: sets [`Options::write_buffer_bytes`] and
    /// [`Options::transaction_bytes_max`] to a sixteenth each, at most 64 MiB,
    /// [`Options::immutable_memtables_max`] to 2, [`Options::read_only_log_bytes_max`] to six
    /// sixteenths, and [`Options::block_cache_bytes`] to the rest. Filters and indexes are within
    /// the cache, those under construction too, but for 4 MiB of each table that is written.
    ///
    /// So cache, memtables and one full transaction, or several small ones, stay within `bytes`,
    /// and so do cache and logs of a database that is opened read-only or followed. Of what is
    /// left, nearly two sixteenths, flushes and compactions take some MiB while they run; if that
    /// is not enough, they take more. What the allocator wastes is not counted.
    /// [`Stats`](crate::Stats) has the bytes and the bound of each part.
    ///
    /// Each of these options can be set again afterwards. Less than 1 MiB is refused at open, as
    /// too small a `write_buffer_bytes`.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let options = siftdb::Options::new().memory_bytes(256 << 20);
    /// let db = options.open(directory.path().join("db"))?;
    /// assert_eq!(db.stats().cache_capacity_bytes, 160 << 20);
    /// assert_eq!(db.stats().memtable_bytes_max, 48 << 20);
    /// # Ok(())
    /// # }
    /// ```
    pub fn memory_bytes(self, bytes: u64) -> Self {
        let write_buffer = (bytes / WRITE_BUFFER_PART).min(WRITE_BUFFER_BYTES_MAX);
        let others = WRITE_BUFFERS * write_buffer;
        self.write_buffer_bytes(write_buffer as usize)
            .immutable_memtables_max(2)
            .transaction_bytes_max(write_buffer as usize)
            .read_only_log_bytes_max(others)
            .block_cache_bytes(bytes - others)
    }

    /// Bytes that memtables may take: the active ones, and those that wait for their flush.
    pub(crate) fn memtable_bytes_max(&self) -> u64 {
        (self.write_buffer_bytes as u64) * (1 + self.immutable_memtables_max as u64)
    }

    /// Bytes that the entries of logs may take in a database opened read-only or followed.
    pub(crate) fn read_only_log_bytes(&self) -> u64 {
        let buffers = self.immutable_memtables_max as u64 + 4;
        self.read_only_log_bytes_max.unwrap_or(buffers * self.write_buffer_bytes as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_is_divided_without_a_rest() {
        for bytes in [1 << 20, (1 << 20) + 15, 200 << 20, 1 << 30, (1 << 30) + 1, 1 << 40] {
            let options = Options::new().immutable_memtables_max(9).memory_bytes(bytes);
            options.validate().unwrap();
            let cache = options.block_cache_bytes;
            let writer = options.memtable_bytes_max() + options.transaction_bytes_max as u64;
            assert!(cache + writer < bytes - options.write_buffer_bytes as u64, "{options:?}");
            assert_eq!(cache + options.read_only_log_bytes(), bytes);
            assert!(cache >= bytes / 8 * 5);
            assert!(options.write_buffer_bytes as u64 == (64 << 20).min(bytes / 16));
        }
        let refused = Options::new().memory_bytes((1 << 20) - 1).validate().unwrap_err();
        assert!(refused.to_string().contains("write_buffer_bytes is 65535"), "{refused}");
        assert!(Options::new().memory_bytes(0).validate().is_err());
    }
}
