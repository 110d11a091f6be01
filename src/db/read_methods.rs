//! The reads that keyspaces, snapshots, followers and transactions have in common, written once.
//!
//! A type that invokes the macros has `get_with`, `multi_get_with` and `range_with` of its own; all
//! other reads are made of these three. It imports the types that they name. The text of the
//! invocation says what is read.

/// Lookups with default options.
macro_rules! lookup_methods {
    ($at:literal) => {
        #[doc = concat!("The value of `key`, or `None`; ", $at, ".")]
        ///
        /// # Errors
        /// As for [`get_with`](Self::get_with).
        pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
            self.get_with(key, &ReadOptions::new())
        }

        /// The values of many keys, in the order of `keys`; see
        /// [`Keyspace::multi_get`](crate::Keyspace::multi_get).
        ///
        /// # Errors
        /// As for [`get_with`](Self::get_with); the first error on the way of any key is the answer
        /// for all.
        pub fn multi_get(
            &self,
            keys: impl IntoIterator<Item = impl AsRef<[u8]>>,
        ) -> Result<Vec<Option<Value>>> {
            self.multi_get_with(keys, &ReadOptions::new())
        }
    };
}

/// Scans with default options, and what is made of them or of a lookup.
macro_rules! scan_methods {
    ($at:literal) => {
        /// True if `key` has a value.
        ///
        /// # Errors
        /// As for [`get_with`](Self::get_with).
        pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
            Ok(self.get(key)?.is_some())
        }

        #[doc = concat!("All entries, ascending; ", $at, ".")]
        pub fn iter(&self) -> Iter {
            self.range(..)
        }

        #[doc = concat!("The entries of a range of keys; ", $at, ".")]
        pub fn range(&self, range: impl KeyRange) -> Iter {
            self.range_with(range, &ReadOptions::new())
        }

        /// The entries whose keys start with `prefix`, which may be any bytes; otherwise as
        /// [`range`](Self::range).
        pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
            self.range(KeyBounds::of_prefix(prefix.as_ref()))
        }

        /// A cursor over all entries, which seeks and steps both ways.
        /// [`Iter::cursor`](crate::Iter::cursor) makes one over a range.
        pub fn cursor(&self) -> Cursor {
            self.iter().cursor()
        }

        /// The entry with the smallest key.
        ///
        /// # Errors
        /// As for [`get_with`](Self::get_with).
        pub fn first(&self) -> Result<Option<(Key, Value)>> {
            self.iter().next().transpose()
        }

        /// The entry with the largest key.
        ///
        /// # Errors
        /// As for [`get_with`](Self::get_with).
        pub fn last(&self) -> Result<Option<(Key, Value)>> {
            self.iter().next_back().transpose()
        }
    };
}

pub(crate) use {lookup_methods, scan_methods};
