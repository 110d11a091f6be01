//! What is not read of a RocksDB database, and what to do about it.

use crate::error;
use crate::store::EntryKind;
use siftdb::Error;
use std::path::Path;

/// The error for a kind of entries that has no counterpart in siftdb.
pub(crate) fn refuse_kind(kind: EntryKind, path: &Path) -> Error {
    let what = match kind {
        EntryKind::Merge => {
            "operands of merges; name the merge operator if it is one that is known, or compact \
             all in RocksDB, with that operator and without snapshots, which leaves values"
        }
        EntryKind::BlobIndex => {
            "values in blob files; a full compaction in RocksDB with `enable_blob_files` off, \
             garbage collection of blobs on and `blob_garbage_collection_age_cutoff` at 1 puts \
             them into tables"
        }
        EntryKind::WideColumns => "values of wide columns; a siftdb value is one string of bytes",
        kind => kind.name(),
    };
    error::unsupported(path, what)
}
