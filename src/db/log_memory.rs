//! [`LogMemory`]: the memory that the entries of logs take where nothing can flush them, and the
//! limit of it.
//!
//! By default the limit follows what a writer with the same options leaves in its logs: the write
//! buffers that wait for their flush, and the active one. Each memtable may end with one record
//! that is larger than all of them. So by default a record counts as one write buffer at most.

use crate::base::error::{Error, Result};
use crate::options::database::Options;
use std::ops::AddAssign;
use std::path::Path;

/// The memory of some entries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogMemory {
    bytes: u64,
    /// The part of these bytes that the limit counts.
    counted: u64,
}

impl LogMemory {
    /// `bytes` of a record of which so far `of_record` are taken.
    pub(super) fn more(bytes: u64, of_record: LogMemory, options: &Options) -> Self {
        let record_bytes_max = match options.read_only_log_bytes_max {
            Some(_) => u64::MAX,
            None => options.write_buffer_bytes as u64,
        };
        LogMemory { bytes, counted: bytes.min(record_bytes_max.saturating_sub(of_record.counted)) }
    }

    /// Refuses more than `options` allow.
    ///
    /// # Errors
    /// `LogsTooLarge`, with the limit that suffices.
    pub(super) fn check(&self, options: &Options, directory: &Path) -> Result<()> {
        let bytes_max = options.read_only_log_bytes();
        match self.counted <= bytes_max {
            true => Ok(()),
            false => {
                let directory = directory.to_path_buf();
                Err(Error::LogsTooLarge { directory, bytes: self.bytes, bytes_max })
            }
        }
    }
}

impl AddAssign for LogMemory {
    fn add_assign(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.counted += more.counted;
    }
}
