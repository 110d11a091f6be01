//! Updates of one key: transactions that need no code to try again.
//!
//! Each reads the key in a transaction, writes it, and runs again after a conflict (`again.rs`).

use crate::base::error::Result;
use crate::base::value::Value;
use crate::db::again::run_again;
use crate::db::keyspace::Keyspace;
use crate::options::access::WriteOptions;

impl Keyspace {
    /// Writes `new` under `key` if its value is `expected`, as one step. `None` means no
    /// value: as `expected` the key must be absent, and as `new` it is deleted.
    ///
    /// Returns `Ok(Ok(()))` if `new` was written, and otherwise `Ok(Err(value))` with the value
    /// that was there.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// assert!(db.compare_exchange("leader", None, Some(b"ada"))?.is_ok());
    /// let leader = db.compare_exchange("leader", None, Some(b"bob"))?.unwrap_err();
    /// assert_eq!(leader.unwrap(), "ada");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Keyspace::get`] and [`Keyspace::put`].
    pub fn compare_exchange(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<std::result::Result<(), Option<Value>>> {
        self.compare_exchange_with(key, expected, new, &WriteOptions::new())
    }

    /// As [`Keyspace::compare_exchange`], with options for the write.
    ///
    /// # Errors
    /// As for [`Keyspace::compare_exchange`].
    pub fn compare_exchange_with(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        options: &WriteOptions,
    ) -> Result<std::result::Result<(), Option<Value>>> {
        self.alter(key.as_ref(), options, |old| match old == expected {
            true => Some(new.map(<[u8]>::to_vec)),
            false => None,
        })
        .map(|(old, written)| if written { Ok(()) } else { Err(old) })
    }

    /// Writes `value` under `key` if it has none, as one step. True if it was written.
    ///
    /// # Errors
    /// As for [`Keyspace::get`] and [`Keyspace::put`].
    pub fn put_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.put_if_absent_with(key, value, &WriteOptions::new())
    }

    /// As [`Keyspace::put_if_absent`], with options for the write. With an expiry it is a lease:
    /// one caller gets it, and when it expires another one may.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// use siftdb::WriteOptions;
    /// use std::time::Duration;
    ///
    /// let lease = WriteOptions::new().expire_after(Duration::from_secs(30));
    /// assert!(db.put_if_absent_with("leader", "ada", &lease)?);
    /// assert!(!db.put_if_absent_with("leader", "bob", &lease)?);
    /// // The holder renews it.
    /// let (ada, renewed) = (Some(&b"ada"[..]), Some(&b"ada"[..]));
    /// assert!(db.compare_exchange_with("leader", ada, renewed, &lease)?.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Keyspace::put_if_absent`].
    pub fn put_if_absent_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: &WriteOptions,
    ) -> Result<bool> {
        Ok(self.compare_exchange_with(key, None, Some(value.as_ref()), options)?.is_ok())
    }

    /// Replaces the value of `key` by what `change` makes of it, as one step; `None` means no
    /// value. Returns the value that was replaced. `change` is called again if others wrote `key`
    /// in the meantime, and its last result counts. So it must not write `key` itself: then it
    /// would be called again each time.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// db.put("name", "ada")?;
    /// db.update("name", |old| old.map(<[u8]>::to_ascii_uppercase))?;
    /// assert_eq!(db.get("name")?.unwrap(), "ADA");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Keyspace::get`] and [`Keyspace::put`].
    pub fn update<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Value>> {
        self.update_with(key, change, &WriteOptions::new())
    }

    /// As [`Keyspace::update`], with options for the write.
    ///
    /// # Errors
    /// As for [`Keyspace::update`].
    pub fn update_with<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<&[u8]>) -> Option<V>,
        options: &WriteOptions,
    ) -> Result<Option<Value>> {
        self.alter(key.as_ref(), options, |old| Some(change(old))).map(|(old, _)| old)
    }

    /// Gives `key` the value that `choose` returns for its old one. `Some(None)` is a deletion, and
    /// `None` leaves the key as it is. Returns the old value, and whether `choose` returned `Some`.
    fn alter<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        options: &WriteOptions,
        mut choose: impl FnMut(Option<&[u8]>) -> Option<Option<V>>,
    ) -> Result<(Option<Value>, bool)> {
        // A forked child must not wait for a turn.
        self.engine().context.process.check()?;
        run_again(&self.engine().writer.retries, u32::MAX, || {
            let transaction = self.transaction();
            let old = transaction.get(key)?;
            match choose(old.as_deref()) {
                None => return Ok((old, false)),
                Some(Some(new)) => transaction.put(key, new)?,
                Some(None) if old.is_some() => transaction.delete(key)?,
                Some(None) => {}
            }
            transaction.commit_with(options).map(|()| (old, true))
        })
    }
}
