//! [`KeyspaceBatch`]: the part of a batch that writes to one keyspace.

use crate::base::batch_format::WriteKind;
use crate::base::key::KeyspaceId;
use crate::base::range::{KeyBounds, KeyRange};
use crate::base::write_batch::WriteBatch;
use crate::options::access::WriteOptions;

/// Adds a put with options to a batch.
pub(super) fn put_with(
    batch: &mut WriteBatch,
    to: Option<(u64, KeyspaceId)>,
    key: &[u8],
    value: &[u8],
    options: &WriteOptions,
) {
    batch.push_put(to, key, value, options.expiry);
    if options.sync {
        batch.sync = true;
    }
}

/// The part of a [`WriteBatch`] that writes to one keyspace: [`WriteBatch::in_keyspace`] and
/// [`WriteBatch::create_keyspace`].
#[derive(Debug)]
pub struct KeyspaceBatch<'a> {
    pub(super) batch: &'a mut WriteBatch,
    /// The open database and the number of the keyspace; `None` if `batch` is of it alone.
    pub(super) to: Option<(u64, KeyspaceId)>,
}

impl KeyspaceBatch<'_> {
    /// Adds a write of `value` under `key`. A later entry of the batch replaces an earlier one.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.batch.push_to(self.to, WriteKind::Put, key.as_ref(), value.as_ref());
        self
    }

    /// As [`KeyspaceBatch::put`], with options of this entry: see [`WriteBatch::put_with`].
    pub fn put_with(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> &mut Self {
        put_with(self.batch, self.to, key.as_ref(), value.as_ref(), options);
        self
    }

    /// Adds a deletion of `key`, which need not exist.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.batch.push_to(self.to, WriteKind::Delete, key.as_ref(), &[]);
        self
    }

    /// Adds a deletion of all keys of `range` that are there by then: see
    /// [`WriteBatch::delete_range`].
    pub fn delete_range(&mut self, range: impl KeyRange) -> &mut Self {
        self.batch.push_range(self.to, &range.into_bounds());
        self
    }

    /// Adds a deletion of all keys that start with `prefix` and are there by then.
    pub fn delete_prefix(&mut self, prefix: impl AsRef<[u8]>) -> &mut Self {
        self.batch.push_range(self.to, &KeyBounds::of_prefix(prefix.as_ref()));
        self
    }
}
