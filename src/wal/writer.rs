//! Appends write batches to a new log.
//!
//! Called by the leader of a write group: [`WalWriter::create`] at a switch of the memtable,
//! [`WalWriter::append`] per group, [`WalWriter::sync`] when asked for, [`WalWriter::finish`] at
//! a clean close. Sequences must follow one another. An old log is never appended to: there is no
//! way to open one for writing.
//!
//! The first sync turns on allocation ahead of the tail, so that later syncs need not write the
//! file's length; a log that is never synced stays as long as its records.

use crate::coding::put_varint;
use crate::env::api::Env;
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::key::SequenceNumber;
use crate::record::format::RecordFile;
use crate::record::writer::RecordWriter;
use crate::wal::format::{KIND_BATCH, WalEnd, WalStart, put_end, put_start};
use crate::write_batch::put_batch_header;
use std::iter;
use std::path::Path;

/// How far ahead of the tail a log is allocated.
const ALLOCATION_STEP_BYTES: u64 = 1 << 20;

/// Writes one log.
#[derive(Debug)]
pub struct WalWriter {
    records: RecordWriter,
    number: u64,
    /// What stands before the entries of a record; reused.
    front: Vec<u8>,
}

impl WalWriter {
    /// Creates log `number` with its start record and makes its name durable. The start record
    /// itself is durable with the first sync.
    pub fn create(env: &dyn Env, directory: &Path, number: u64, start: &WalStart) -> Result<Self> {
        let path = FileName::Wal(number).path(directory);
        let mut records = RecordWriter::create(env, &path, RecordFile::Wal, number)?;
        let mut front = Vec::new();
        put_start(&mut front, start);
        records.append(iter::once(&front[..]))?;
        env.sync_dir(directory).map_err(|e| Error::io("sync_dir", directory, e))?;
        Ok(WalWriter { records, number, front })
    }

    /// Appends `count` entries, numbered from `sequence`, whose encodings are `entries` in order,
    /// as one record: all of them come back or none. `synced_through` is the last sequence known
    /// to be durable. Answers the bytes the log grew by.
    pub fn append(
        &mut self,
        synced_through: SequenceNumber,
        sequence: SequenceNumber,
        count: u32,
        entries: &[&[u8]],
    ) -> Result<u64> {
        debug_assert!(count > 0 && synced_through < sequence);
        self.front.clear();
        put_varint(&mut self.front, synced_through);
        put_batch_header(&mut self.front, sequence, count);
        let front = iter::once(&self.front[..]);
        self.records
            .append(front.chain(entries.iter().copied()).chain(iter::once(&[KIND_BATCH][..])))
    }

    /// Makes everything appended durable.
    pub fn sync(&mut self) -> Result<()> {
        self.records.sync_data()?;
        self.records.allocate_ahead(ALLOCATION_STEP_BYTES);
        Ok(())
    }

    /// Syncs, writes the end record and syncs that: the last calls on a log at a clean close.
    pub fn finish(&mut self, end: &WalEnd) -> Result<()> {
        self.records.sync_data()?;
        self.front.clear();
        put_end(&mut self.front, end);
        self.records.append(iter::once(&self.front[..]))?;
        self.records.sync_all()
    }

    /// Bytes up to the end of the last record.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.records.bytes()
    }

    /// The number in the log's name.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }
}
