//! [`newer_within`]: whether a source was written in a range of keys since some sequence.

use crate::base::error::Result;
use crate::base::iterator::api::InternalIterator;
use crate::base::key::{LookupKey, SEQUENCE_MAX, SequenceNumber, split_internal_key};
use crate::base::range::KeyBounds;

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
    let first = LookupKey::new(&bounds.start, SEQUENCE_MAX);
    source.seek(Some(first.internal_key()));
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
