//! [`SiftTransaction`]: an optimistic transaction with snapshot isolation.
//!
//! fedimint asks for snapshot isolation: a commit fails only if a key that the transaction *wrote*
//! has been written since it began. A [`siftdb::Transaction`] is serializable: it fails for keys
//! that it *read*, too. fedimint's callers do not expect that, and `commit_tx` panics on a conflict.
//! So a transaction has two parts. Reads ask a [`Snapshot`], which notes nothing. Writes go to a
//! `siftdb::Transaction`, and there a key counts as read when it is written.
//!
//! Calls that may wait for the disk run in `block_in_place`, as those of fedimint's RocksDB adapter
//! do: the runtime moves the other tasks of the thread elsewhere. That costs a few microseconds, more
//! than a lookup in memory. So a lookup tries without the disk first, and a scan reads in chunks.

use crate::scan::{self, Bounds, OwnWrites};
use async_trait::async_trait;
use fedimint_core::db::{
    DatabaseError, DatabaseResult, IDatabaseTransactionOps, IDatabaseTransactionOpsCore,
    IRawDatabaseTransaction, PrefixStream,
};
use fedimint_core::runtime::block_in_place;
use siftdb::{Db, Error, ReadOptions, Snapshot, Transaction, Value, WriteOptions};
use std::fmt;
use std::ops::Range;

const IN_MEMORY: ReadOptions = ReadOptions::new().in_memory_only(true);

/// fedimint acts on a commit once it returns: it tells other guardians, or spends a coin.
const DURABLE: WriteOptions = WriteOptions::new().sync(true);

/// A transaction of a [`SiftDb`](crate::SiftDb). It owns all that it needs, so it has no lifetime.
pub struct SiftTransaction {
    /// What a commit writes, and the keys that it compares with later writes of others.
    transaction: Transaction,
    snapshot: Snapshot,
    /// The writes of `transaction`, for reads.
    own: OwnWrites,
}

impl SiftTransaction {
    pub(crate) fn begin(db: &Db) -> Self {
        // The transaction comes first. A write between the two calls is visible in the snapshot and
        // counts as a conflict. In the other order it would be neither, and would be overwritten.
        let transaction = db.transaction();
        SiftTransaction { transaction, snapshot: db.snapshot(), own: OwnWrites::new() }
    }

    fn get(&self, key: &[u8]) -> siftdb::Result<Option<Vec<u8>>> {
        if let Some(own) = self.own.get(key) {
            return Ok(own.clone());
        }
        let stored = match self.snapshot.get_with(key, &IN_MEMORY) {
            Err(Error::WouldRead { .. }) => block_in_place(|| self.snapshot.get(key)),
            in_memory => in_memory,
        };
        Ok(stored?.map(Value::into_vec))
    }

    /// Writes `value`, or deletes the key if it is `None`. Returns the value before.
    fn replace(&mut self, key: &[u8], value: Option<&[u8]>) -> siftdb::Result<Option<Vec<u8>>> {
        let old = self.get(key)?;
        self.write(key, value)?;
        Ok(old)
    }

    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> siftdb::Result<()> {
        // The write-write conflict: siftdb compares what was read.
        self.transaction.set_read_for_update(key)?;
        match value {
            Some(value) => self.transaction.put(key, value)?,
            None => self.transaction.delete(key)?,
        }
        self.own.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        Ok(())
    }

    fn remove_by_prefix(&mut self, prefix: &[u8]) -> siftdb::Result<()> {
        // Not `Transaction::delete_prefix`, which also deletes what others wrote under the prefix
        // since the snapshot: those writes would be lost without a conflict.
        let entries = scan::ascending(&self.own, &self.snapshot, &Bounds::of_prefix(prefix));
        let keys: Vec<Vec<u8>> =
            entries.map(|entry| entry.map(|(key, _)| key)).collect::<siftdb::Result<_>>()?;
        keys.iter().try_for_each(|key| self.write(key, None))
    }

    fn commit(self) -> siftdb::Result<()> {
        // Without a write there is nothing to make durable, and siftdb would sync all the same.
        if self.own.is_empty() {
            return Ok(());
        }
        self.transaction.commit_with(&DURABLE)
    }
}

/// A conflict is fedimint's `WriteConflict`, which its callers answer by another run.
fn to_fedimint(error: Error) -> DatabaseError {
    match error {
        Error::Conflict { .. } => DatabaseError::WriteConflict,
        error => DatabaseError::backend(error),
    }
}

#[async_trait]
impl IDatabaseTransactionOpsCore for SiftTransaction {
    async fn raw_insert_bytes(
        &mut self,
        key: &[u8],
        value: &[u8],
    ) -> DatabaseResult<Option<Vec<u8>>> {
        self.replace(key, Some(value)).map_err(to_fedimint)
    }

    async fn raw_get_bytes(&mut self, key: &[u8]) -> DatabaseResult<Option<Vec<u8>>> {
        self.get(key).map_err(to_fedimint)
    }

    async fn raw_remove_entry(&mut self, key: &[u8]) -> DatabaseResult<Option<Vec<u8>>> {
        self.replace(key, None).map_err(to_fedimint)
    }

    async fn raw_find_by_prefix(&mut self, key_prefix: &[u8]) -> DatabaseResult<PrefixStream<'_>> {
        let bounds = Bounds::of_prefix(key_prefix);
        Ok(scan::stream(scan::ascending(&self.own, &self.snapshot, &bounds)))
    }

    async fn raw_find_by_prefix_sorted_descending(
        &mut self,
        key_prefix: &[u8],
    ) -> DatabaseResult<PrefixStream<'_>> {
        let bounds = Bounds::of_prefix(key_prefix);
        Ok(scan::stream(scan::descending(&self.own, &self.snapshot, &bounds)))
    }

    async fn raw_find_by_range(&mut self, range: Range<&[u8]>) -> DatabaseResult<PrefixStream<'_>> {
        let bounds = Bounds::of_range(range);
        Ok(scan::stream(scan::ascending(&self.own, &self.snapshot, &bounds)))
    }

    async fn raw_remove_by_prefix(&mut self, key_prefix: &[u8]) -> DatabaseResult<()> {
        block_in_place(|| self.remove_by_prefix(key_prefix)).map_err(to_fedimint)
    }
}

impl IDatabaseTransactionOps for SiftTransaction {}

#[async_trait]
impl IRawDatabaseTransaction for SiftTransaction {
    async fn commit_tx(self) -> DatabaseResult<()> {
        block_in_place(|| self.commit()).map_err(to_fedimint)
    }
}

/// One line, without keys and values: these may be secrets.
impl fmt::Debug for SiftTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let writes = self.own.len();
        f.debug_struct("SiftTransaction").field("writes", &writes).finish_non_exhaustive()
    }
}
