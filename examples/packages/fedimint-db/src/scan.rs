//! Scans of a transaction: its own writes and its snapshot, merged in one order, as a stream.

use fedimint_core::db::PrefixStream;
use fedimint_core::runtime::block_in_place;
use futures_util::{StreamExt, stream};
use itertools::{EitherOrBoth, Itertools};
use siftdb::{Key, Snapshot, Value};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::{Bound, Range};

/// What a transaction has written: values, and `None` for what it has deleted.
pub(crate) type OwnWrites = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

type Entry = (Vec<u8>, Vec<u8>);

/// How many entries a scan reads at once, at most.
const CHUNK_MAX: usize = 64;

/// The keys that a scan reads. Both `BTreeMap::range` and siftdb take a pair of bounds.
pub(crate) struct Bounds(Bound<Vec<u8>>, Bound<Vec<u8>>);

impl Bounds {
    /// All keys that start with `prefix`.
    pub(crate) fn of_prefix(prefix: &[u8]) -> Self {
        // The next prefix of the same length or less: bytes 0xff cannot be counted up.
        let mut end = prefix.to_vec();
        while end.pop_if(|last| *last == u8::MAX).is_some() {}
        let end = match end.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(end)
            }
            None => Bound::Unbounded,
        };
        Bounds(Bound::Included(prefix.to_vec()), end)
    }

    /// The keys of `range`; none if it ends before it begins, where `BTreeMap::range` would panic.
    pub(crate) fn of_range(range: Range<&[u8]>) -> Self {
        let start = range.start.min(range.end);
        Bounds(Bound::Included(start.to_vec()), Bound::Excluded(range.end.to_vec()))
    }

    fn pair(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.0.as_ref().map(Vec::as_slice), self.1.as_ref().map(Vec::as_slice))
    }
}

/// The entries in `bounds`, as the transaction sees them.
pub(crate) fn ascending<'t>(
    own: &'t OwnWrites,
    snapshot: &Snapshot,
    bounds: &Bounds,
) -> impl Iterator<Item = siftdb::Result<Entry>> + Send + use<'t> {
    let own = own.range::<[u8], _>(bounds.pair());
    merge(own, snapshot.range(bounds.pair()), Ord::cmp)
}

/// As [`ascending`], from the last entry on.
pub(crate) fn descending<'t>(
    own: &'t OwnWrites,
    snapshot: &Snapshot,
    bounds: &Bounds,
) -> impl Iterator<Item = siftdb::Result<Entry>> + Send + use<'t> {
    let own = own.range::<[u8], _>(bounds.pair()).rev();
    merge(own, snapshot.range(bounds.pair()).rev(), |a, b| b.cmp(a))
}

/// Merges two iterators in one order. An own write hides the stored entry of its key.
fn merge<'t>(
    own: impl Iterator<Item = (&'t Vec<u8>, &'t Option<Vec<u8>>)> + Send,
    stored: impl Iterator<Item = siftdb::Result<(Key, Value)>> + Send,
    order: fn(&[u8], &[u8]) -> Ordering,
) -> impl Iterator<Item = siftdb::Result<Entry>> + Send {
    let in_order = own.merge_join_by(stored, move |(own, _), stored| match stored {
        Ok((stored, _)) => order(own, stored),
        // An error is returned at once: nothing after it is known.
        Err(_) => Ordering::Greater,
    });
    in_order.filter_map(|entry| match entry {
        EitherOrBoth::Left((key, value)) | EitherOrBoth::Both((key, value), _) => {
            value.clone().map(|value| Ok((key.clone(), value)))
        }
        EitherOrBoth::Right(stored) => {
            Some(stored.map(|(key, value)| (key.to_vec(), value.into_vec())))
        }
    })
}

/// Makes a stream of entries that are read when they are asked for.
///
/// The chunks grow from one entry on: a caller that takes only the first entry reads no other, and
/// a long scan pays for few changes of threads.
///
/// # Panics
/// The stream panics if a block cannot be read, as that of fedimint's RocksDB adapter does. Its items
/// have no place for an error, and a stream that ends early would hide entries.
pub(crate) fn stream<'t>(
    entries: impl Iterator<Item = siftdb::Result<Entry>> + Send + 't,
) -> PrefixStream<'t> {
    let chunks = stream::unfold((entries, 1), |(mut entries, len)| async move {
        let chunk = block_in_place(|| entries.by_ref().take(len).collect::<siftdb::Result<_>>());
        let chunk: Vec<Entry> = chunk.unwrap_or_else(|error| panic!("a scan failed: {error}"));
        let more = !chunk.is_empty();
        more.then(|| (stream::iter(chunk), (entries, (2 * len).min(CHUNK_MAX))))
    });
    Box::pin(chunks.flatten())
}
