//! Opens tables: one that an edit adds, or all that a manifest names.
//!
//! The cost of opening a large table is reading and checking its filter. Several threads share that
//! work if there is enough of it. Tables are opened in the order of levels, so if memory for
//! pinned filters runs out, the deepest levels go without. If several tables fail, the answer is
//! the first error in that order.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::parallel::in_parallel;
use crate::base::sync::Arc;
use crate::table::filter::layout::FilterPinning;
use crate::table::reader::{Expect, Table, TableContext};
use crate::tree::file_meta::FileMeta;
use std::io::ErrorKind;
use std::path::Path;
use std::thread;

/// Most threads, the caller's own among them.
const THREADS_MAX: usize = 8;

/// Tables that together are smaller are opened by the caller alone. Opening a table of 64 MiB takes
/// about 100 us if its filter is read whole, and 15 us if only a top-level index is read. Starting
/// a thread takes 80 us. (Two tables of the first kind take 400 us with a second thread, 310 us
/// without.)
const THREADS_TABLE_BYTES_MIN: u64 = 512 << 20;

/// Opens a table that has to be as `expect` says.
///
/// # Errors
/// It is missing, of another size, foreign or damaged.
pub(crate) fn open_expected(
    context: &TableContext,
    directory: &Path,
    number: u64,
    expect: Expect,
    pinning: FilterPinning,
) -> Result<Table> {
    let path = FileName::Table(number).path(directory);
    let context = TableContext { pinning, ..context.clone() };
    match Table::open(&context, &path, expect) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            Err(Error::missing(path, "the manifest names this table"))
        }
        opened => opened,
    }
}

/// Opens the tables `wanted` as the manifest has them; returns them in that order.
///
/// # Errors
/// The first table, in that order, that cannot be opened.
pub(crate) fn open_tables(
    context: &TableContext,
    directory: &Path,
    wanted: &[(&FileMeta, FilterPinning)],
) -> Result<Vec<Arc<Table>>> {
    let open = |at: usize| {
        let &(meta, pinning) = wanted.get(at)?;
        let opened = open_expected(context, directory, meta.number, meta.expect(), pinning);
        Some(opened.map(Arc::new))
    };
    let opened = in_parallel("siftdb-open", threads(wanted), open);
    opened.into_iter().collect()
}

fn threads(wanted: &[(&FileMeta, FilterPinning)]) -> usize {
    let bytes = wanted.iter().map(|(meta, _)| meta.bytes).fold(0, u64::saturating_add);
    if bytes < THREADS_TABLE_BYTES_MIN {
        return 1;
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    cores.min(THREADS_MAX).min(wanted.len())
}
