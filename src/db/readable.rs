//! [`Readable`]: the reads that a database, a keyspace, a snapshot and a transaction have in
//! common, for code that is written once for all of them.

use crate::base::error::Result;
use crate::base::range::{KeyBounds, KeyRange};
use crate::base::value::{Key, Value};
use crate::db::database::Db;
use crate::db::follower::Follower;
use crate::db::keyspace::Keyspace;
use crate::db::snapshot::Snapshot;
use crate::db::transaction::{KeyspaceTransaction, Transaction};
use crate::options::access::ReadOptions;
use crate::read::iter::Iter;

/// A source of reads: a [`Db`], a [`Keyspace`], a [`Snapshot`], a [`Transaction`] or a
/// [`Follower`].
///
/// Each of them has these methods of its own too, with their documentation; the trait is for
/// functions that take any of them. A `Db` and a `Follower` read the
/// keyspace `default`.
///
/// ```
/// use siftdb::{Readable, Result};
///
/// /// How many users there are, now or at a snapshot.
/// fn users(of: &impl Readable) -> Result<usize> {
///     of.prefix("user:").try_fold(0, |count, user| user.map(|_| count + 1))
/// }
///
/// # fn main() -> siftdb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// let db = siftdb::Db::open(directory.path().join("people.sift"))?;
/// let before = db.snapshot();
/// db.put("user:ada", "1815")?;
/// assert_eq!((users(&db)?, users(&before)?), (1, 0));
/// # Ok(())
/// # }
/// ```
pub trait Readable {
    /// The value of `key`, or `None` if there is none.
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Value>>;

    /// The values of many keys, in the order of `keys`, all as of one moment.
    ///
    /// # Errors
    /// As for [`Keyspace::multi_get`].
    fn multi_get_with(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
        options: &ReadOptions,
    ) -> Result<Vec<Option<Value>>>;

    /// The entries of a range of keys.
    fn range_with(&self, range: impl KeyRange, options: &ReadOptions) -> Iter;

    /// As [`Readable::get_with`], with default options.
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_with(key, &ReadOptions::new())
    }

    /// As [`Readable::multi_get_with`], with default options.
    ///
    /// # Errors
    /// As for [`Keyspace::multi_get`].
    fn multi_get(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Vec<Option<Value>>> {
        self.multi_get_with(keys, &ReadOptions::new())
    }

    /// True if `key` has a value.
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// As [`Readable::range_with`], with default options.
    fn range(&self, range: impl KeyRange) -> Iter {
        self.range_with(range, &ReadOptions::new())
    }

    /// The entries whose keys start with `prefix`, which may be any bytes.
    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        self.range(KeyBounds::of_prefix(prefix.as_ref()))
    }

    /// The entry with the smallest key.
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    fn first(&self) -> Result<Option<(Key, Value)>> {
        self.range(..).next().transpose()
    }

    /// The entry with the largest key.
    ///
    /// # Errors
    /// As for [`Keyspace::get`].
    fn last(&self) -> Result<Option<(Key, Value)>> {
        self.range(..).next_back().transpose()
    }
}

/// Each has the three methods that the others are made of.
macro_rules! readable {
    ($type:ty, $inner:ty) => {
        impl Readable for $type {
            fn get_with(
                &self,
                key: impl AsRef<[u8]>,
                options: &ReadOptions,
            ) -> Result<Option<Value>> {
                <$inner>::get_with(self, key, options)
            }

            fn multi_get_with(
                &self,
                keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
                options: &ReadOptions,
            ) -> Result<Vec<Option<Value>>> {
                <$inner>::multi_get_with(self, keys, options)
            }

            fn range_with(&self, range: impl KeyRange, options: &ReadOptions) -> Iter {
                <$inner>::range_with(self, range, options)
            }
        }
    };
}

readable!(Db, Keyspace);
readable!(Follower, Follower);
readable!(Keyspace, Keyspace);
readable!(Snapshot, Snapshot);
readable!(Transaction, Transaction);
readable!(KeyspaceTransaction<'_>, KeyspaceTransaction<'_>);
