//! The order of the keys in a block, checked entry by entry when the block is loaded.
//!
//! Lookups and iterators rely on what is checked here, and check nothing again.

use crate::base::expiry::EXPIRY_BYTES;
use crate::base::key::{KEY_BYTES_MAX, ValueKind, common_prefix, unpack_trailer};
use std::cmp::Ordering;

/// What the check needs of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckedKey<'b> {
    /// Bytes that the key shares.
    pub shared: usize,
    /// The bytes of its own.
    pub own: &'b [u8],
    /// Its trailer; `None` if it has none, or one that no entry can have.
    pub trailer: Option<u64>,
    /// Bytes of the stored value.
    pub value_bytes: usize,
}

/// The last key of a check, to compare the next one with.
pub(super) trait KeyOrder<'b> {
    /// Takes the next entry's key. Returns whether it is above the one before.
    fn advance(&mut self, restarts: bool, key: CheckedKey<'b>) -> Result<bool, &'static str>;
}

/// Keys in bytewise order, each built from the one before.
#[derive(Default)]
pub(super) struct AnyKeys(Vec<u8>);

impl<'b> KeyOrder<'b> for AnyKeys {
    fn advance(&mut self, _: bool, key: CheckedKey<'b>) -> Result<bool, &'static str> {
        let last = &mut self.0;
        let Some(rest) = last.get(key.shared..) else {
            return Err("entry that shares more than the key before");
        };
        let ordered = rest < key.own;
        last.truncate(key.shared);
        last.extend_from_slice(key.own);
        Ok(ordered)
    }
}

/// Internal keys, which are not built: what an entry shares are bytes of its restart entry's key.
/// So the last key is two slices of the block, `head[..shared]` and `own`, and its trailer.
#[derive(Default)]
pub(super) struct InternalKeys<'b> {
    /// The user key of the restart entry.
    head: &'b [u8],
    shared: usize,
    own: &'b [u8],
    trailer: u64,
}

impl<'b> KeyOrder<'b> for InternalKeys<'b> {
    #[inline]
    fn advance(&mut self, restarts: bool, key: CheckedKey<'b>) -> Result<bool, &'static str> {
        let CheckedKey { shared, own, trailer, value_bytes } = key;
        let Some(trailer) = trailer else {
            return Err("entry with a sequence beyond all");
        };
        match unpack_trailer(trailer) {
            None => return Err("entry of an unknown kind"),
            Some((_, ValueKind::ExpiringPut)) if value_bytes < EXPIRY_BYTES => {
                return Err("expiring entry without its time");
            }
            Some(_) => {}
        }
        // `head[..shared]` is common to both keys. What the last key has after that is `rest`, then
        // its `own`; the new key has its own bytes there. An entry that shares more than the last
        // one did would share bytes of `own`, which its restart entry does not have.
        let Some(rest) = self.head.get(shared..self.shared) else {
            return Err("entry that shares more than the one before it");
        };
        if shared + own.len() > KEY_BYTES_MAX {
            return Err("key longer than any key may be");
        }
        // Most neighbours differ in the first byte that either has of its own.
        let order = match (own.first(), rest.first()) {
            (Some(a), Some(b)) if a != b => a.cmp(b),
            (_, None) => compare(own, self.own).then(self.trailer.cmp(&trailer)),
            _ => compare_to_both(own, rest, self.own).then(self.trailer.cmp(&trailer)),
        };
        (self.shared, self.own, self.trailer) = (shared, own, trailer);
        if restarts {
            (self.head, self.shared, self.own) = (own, own.len(), &[]);
        }
        Ok(order == Ordering::Greater)
    }
}

/// The order of `bytes` and the concatenation of `first` and `second`.
fn compare_to_both(bytes: &[u8], first: &[u8], second: &[u8]) -> Ordering {
    match bytes.split_at_checked(first.len()) {
        Some((head, tail)) => compare(head, first).then_with(|| compare(tail, second)),
        None => compare(bytes, first),
    }
}

/// The order of two short slices. Inlined: a call costs more than most comparisons.
#[inline]
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let common = common_prefix(a, b);
    match (a.get(common), b.get(common)) {
        (Some(x), Some(y)) => x.cmp(y),
        _ => a.len().cmp(&b.len()),
    }
}
