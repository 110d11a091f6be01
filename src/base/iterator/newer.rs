//! [`newer_within`]: whether a source was written in a range of keys since some sequence.

use crate::base::error::Result;
use crate::base::iterator::api::InternalIterator;
use crate::base::key::{
    INTERNAL_KEY_TRAILER_BYTES, SequenceNumber, put_key_with_trailer, split_internal_key,
};
use crate::base::range::KeyBounds;
use std::ops::Bound;

/// The first key of `bounds` that `source`, an ascending iterator, has a version of above `since`.
/// It steps over the older ones.
///
/// # Errors
/// The first error of the source.
pub(crate) fn newer_within(
    source: &mut impl InternalIterator,
    bounds: &KeyBounds,
    since: SequenceNumber,
) -> Result<Option<Vec<u8>>> {
    let first = match &bounds.start {
        Bound::Unbounded => None,
        // Before all versions of the key, or after them.
        Bound::Included(key) => Some((key, u64::MAX)),
        Bound::Excluded(key) => Some((key, 0)),
    };
    let first = first.map(|(key, trailer)| {
        let mut internal = Vec::with_capacity(key.len() + INTERNAL_KEY_TRAILER_BYTES);
        put_key_with_trailer(&mut internal, key, trailer);
        internal
    });
    source.seek(first.as_deref());
    while source.valid() {
        let Some((key, trailer)) = split_internal_key(source.key()) else { break };
        if !bounds.is_before_end(key) {
            return Ok(None);
        }
        if trailer >> 8 > since {
            return Ok(Some(key.to_vec()));
        }
        source.next();
    }
    source.status().map(|()| None)
}
