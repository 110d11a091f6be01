//! A durable database for fedimint: its traits of a raw database, over siftdb.
//!
//! fedimint puts its typed records, its module prefixes and its notifications on top of two traits:
//! [`IRawDatabase`] begins transactions, and `IRawDatabaseTransaction` reads, writes and commits.
//! [`SiftDb`] is the first, [`SiftTransaction`] the second.
//!
//! ```
//! use fedimint_core::db::{IDatabaseTransactionOpsCore, IRawDatabaseExt};
//! use siftdb_fedimint_db::SiftDb;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let db = SiftDb::open(directory.path().join("client.sift"))?.into_database();
//! let mut dbtx = db.begin_transaction().await;
//! dbtx.raw_insert_bytes(b"ada", b"1815").await?;
//! dbtx.commit_tx_result().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Read it in this order.

mod transaction;
mod scan;

pub use transaction::SiftTransaction;

use async_trait::async_trait;
use fedimint_core::db::{DatabaseError, DatabaseResult, IRawDatabase};
use siftdb::Db;
use std::path::Path;

/// A siftdb database as fedimint's raw database. All keys are in the keyspace `default`.
///
/// It needs tokio's multi-thread runtime, as fedimint's RocksDB adapter does.
#[derive(Clone, Debug)]
pub struct SiftDb(Db);

impl SiftDb {
    /// Opens the database in `path`, or creates it there. This waits for the disk.
    ///
    /// # Errors
    /// As for [`Db::open`]: `Locked` while another process has it open.
    pub fn open(path: impl AsRef<Path>) -> siftdb::Result<Self> {
        Db::open(path).map(SiftDb)
    }
}

/// For a database with options of its own: [`siftdb::Options::open`].
impl From<Db> for SiftDb {
    fn from(db: Db) -> Self {
        SiftDb(db)
    }
}

#[async_trait]
impl IRawDatabase for SiftDb {
    type Transaction<'a> = SiftTransaction;

    async fn begin_transaction<'a>(&'a self) -> SiftTransaction {
        SiftTransaction::begin(&self.0)
    }

    /// A checkpoint of the moment of the call. An earlier checkpoint in `backup_path` is brought up
    /// to date.
    fn checkpoint(&self, backup_path: &Path) -> DatabaseResult<()> {
        self.0.checkpoint(backup_path).map(drop).map_err(DatabaseError::backend)
    }
}
