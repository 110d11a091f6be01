//! Appends write batches to a new log.
//!
//! A [`WalFile`] is a log that is not begun, an empty file. The leader of a write group calls
//! [`WalWriter::begin`] when it switches the memtable, and [`WalWriter::append`] for each group.
//! [`WalWriter::sync`] runs on request and at a clean close. Sequences must follow each other.
//! Nothing is ever appended to an old log: it cannot be opened for writing.
//!
//! The first sync turns on preallocation, so that later syncs need not write the length of the
//! file. A log that is never synced stays as long as its records. The caller chooses the step of
//! the preallocation, because the log of a small memtable should not be mostly empty.

use crate::base::batch_format::put_batch_header;
use crate::base::coding::put_varint;
use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::key::SequenceNumber;
use crate::base::sync::Arc;
use crate::env::api::{Env, WritableFile};
use crate::log::record::format::{FORMAT_VERSION, LOADS_VERSION, RecordFile};
use crate::log::record::syncer::RecordSyncer;
use crate::log::record::writer::RecordWriter;
use crate::log::wal::format::{KIND_BATCH, LoadedTable, WalStart, put_loads, put_start};
use std::iter;
use std::path::Path;

/// The file of a log, before its start record. Its name is durable.
#[derive(Debug)]
pub(crate) struct WalFile {
    file: Box<dyn WritableFile>,
    /// The number in its name.
    pub number: u64,
}

impl WalFile {
    /// Creates log `number` and makes its name durable. If that fails, there is no such log.
    pub(crate) fn create(env: &dyn Env, directory: &Path, number: u64) -> Result<Self> {
        let path = FileName::Wal(number).path(directory);
        let file = env.create_new(&path).map_err(|e| Error::io("create_new", &path, e))?;
        let log = WalFile { file, number };
        match env.sync_dir(directory) {
            Ok(()) => Ok(log),
            Err(error) => {
                log.remove(env, directory);
                Err(Error::io("sync_dir", directory, error))
            }
        }
    }

    /// Removes it. If that fails, a later session does: recovery reads nothing from an empty log.
    pub(crate) fn remove(self, env: &dyn Env, directory: &Path) {
        let _ = env.remove(&FileName::Wal(self.number).path(directory));
    }
}

#[derive(Debug)]
pub(crate) struct WalWriter {
    pub records: RecordWriter,
    /// The number in the log's name.
    pub number: u64,
    allocation_step_bytes: u64,
    /// A reused buffer for the bytes before the entries of a record.
    front: Vec<u8>,
}

impl WalWriter {
    /// Creates log `number` and begins it: see [`WalFile::create`] and [`begin`](Self::begin).
    pub(crate) fn create(
        env: &dyn Env,
        directory: &Path,
        number: u64,
        start: &WalStart,
        loads: &[LoadedTable],
        allocation_step_bytes: u64,
    ) -> Result<Self> {
        let log = WalFile::create(env, directory, number)?;
        WalWriter::begin(log, env, directory, start, loads, allocation_step_bytes)
    }

    /// Begins `log` with its start record, and a record of `loads` if there are any. The first sync
    /// makes these records durable. Preallocates `allocation_step_bytes` at a time after that. If
    /// this fails, the log is removed.
    pub(crate) fn begin(
        log: WalFile,
        env: &dyn Env,
        directory: &Path,
        start: &WalStart,
        loads: &[LoadedTable],
        allocation_step_bytes: u64,
    ) -> Result<Self> {
        let WalFile { file, number } = log;
        let path = FileName::Wal(number).path(directory);
        let version = if loads.is_empty() { FORMAT_VERSION } else { LOADS_VERSION };
        let mut records = RecordWriter::new(file, &path, RecordFile::Wal, number, version);
        let mut front = Vec::new();
        put_start(&mut front, start);
        let mut begun = records.append(iter::once(&front[..]));
        if !loads.is_empty() {
            front.clear();
            put_loads(&mut front, start.synced_through, loads);
            begun = begun.and_then(|_| records.append(iter::once(&front[..])));
        }
        if let Err(error) = begun {
            let _ = env.remove(&path);
            return Err(error);
        }
        Ok(WalWriter { records, number, allocation_step_bytes, front })
    }

    /// Appends `count` entries, numbered from `sequence`, whose encodings are `entries` in order,
    /// as one record: recovery finds all of them or none. `synced_through` is the last sequence
    /// known to be durable. Returns the bytes that the log grew by.
    pub(crate) fn append<'e>(
        &mut self,
        synced_through: SequenceNumber,
        sequence: SequenceNumber,
        count: u32,
        entries: impl IntoIterator<Item = &'e [u8], IntoIter: Clone>,
    ) -> Result<u64> {
        debug_assert!(count > 0 && synced_through < sequence);
        self.front.clear();
        put_varint(&mut self.front, synced_through);
        put_batch_header(&mut self.front, sequence, count);
        let front = iter::once(&self.front[..]);
        // Borrowed for as short as the front, which they are chained with.
        let entries = entries.into_iter().map(|entry: &'e [u8]| -> &[u8] { entry });
        self.records.append(front.chain(entries).chain(iter::once(&[KIND_BATCH][..])))
    }

    /// Makes everything appended durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.records.sync_data()?;
        self.records.allocate_ahead(self.allocation_step_bytes);
        Ok(())
    }

    /// What another thread syncs this log with, while this one appends; `None` if the Env has no
    /// second handle of a file.
    pub(crate) fn syncer(&mut self) -> Option<Arc<RecordSyncer>> {
        self.records.allocate_ahead(self.allocation_step_bytes);
        self.records.syncer()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::mem::MemEnv;
    use crate::env::testing::fault::{Calls, EIO, ENOSPC, Fault, FaultEnv, FaultKind};
    use crate::log::wal::cursor::{LogCursor, LogItem};
    use crate::log::wal::format::WalBody;

    const LOG: u64 = 7;
    const STEP: u64 = 1 << 16;

    fn start() -> WalStart {
        WalStart { first_sequence: 1, ..WalStart::default() }
    }

    fn writer(env: &dyn Env) -> WalWriter {
        WalWriter::create(env, Path::new("/"), LOG, &start(), &[], STEP).unwrap()
    }

    fn contents(env: &MemEnv) -> Vec<u8> {
        env.read_file(&FileName::Wal(LOG).path(Path::new("/"))).unwrap()
    }

    /// A letter for each item of the log: start, batch, loads, damaged or torn.
    fn kinds(env: &MemEnv) -> String {
        let mut log = LogCursor::open(env, Path::new("/"), LOG, u64::MAX).unwrap().unwrap();
        let mut kinds = String::new();
        loop {
            kinds.push(match log.next().unwrap().item {
                LogItem::Record(WalBody::Start(_)) => 's',
                LogItem::Record(WalBody::Batch(_)) => 'b',
                LogItem::Record(WalBody::Loads(_)) => 'l',
                LogItem::Bad { torn: true, .. } => 't',
                LogItem::Bad { .. } | LogItem::Damaged(_) | LogItem::StartOfNewerManifest => '!',
                LogItem::End => return kinds,
            });
        }
    }

    /// An entry with a key of one byte and an empty value.
    const ENTRY: &[u8] = &[1, 1, b'k', 0];

    #[test]
    fn only_syncs_enable_preallocation() {
        let env = MemEnv::new();
        let mut wal = writer(&env);
        for sequence in 1..50 {
            wal.append(0, sequence, 1, [ENTRY]).unwrap();
        }
        assert_eq!(contents(&env).len() as u64, wal.records.bytes());
        wal.sync().unwrap();
        let before = wal.records.bytes();
        let grown = wal.append(49, 50, 2, [ENTRY, ENTRY]).unwrap();
        assert_eq!(wal.records.bytes(), before + grown);
        assert!(contents(&env).len() as u64 >= STEP);
        assert_eq!(kinds(&env), format!("s{}", "b".repeat(50)));
    }

    #[test]
    fn a_log_name_is_durable_before_records() {
        let env = MemEnv::new();
        let mut wal = writer(&env);
        assert_eq!(env.power_cut().list_files().len(), 1);
        wal.append(0, 1, 1, [ENTRY]).unwrap();
        wal.sync().unwrap();
        assert_eq!(contents(&env.power_cut()), contents(&env));
    }

    #[test]
    fn a_failed_log_refuses_later_calls() {
        for calls in [Calls::Named("write_at"), Calls::Named("sync_data")] {
            let memory = MemEnv::new();
            let env = FaultEnv::new(Arc::new(memory.clone()));
            let mut wal = writer(&env);
            env.fail_at(env.calls_of(calls), Fault::once(FaultKind::Error(EIO)).among(calls));
            let first = wal.append(0, 1, 1, [ENTRY]).and_then(|_| wal.sync()).unwrap_err();
            env.heal();
            let after = contents(&memory);
            for later in [wal.append(0, 2, 1, [ENTRY]).map(|_| ()), wal.sync()] {
                assert_eq!(later.unwrap_err().to_string(), first.to_string());
            }
            assert_eq!(contents(&memory), after);
        }
    }

    #[test]
    fn refused_preallocation_is_not_an_error() {
        let env = FaultEnv::new(Arc::new(MemEnv::new()));
        let mut wal = writer(&env);
        wal.sync().unwrap();
        let calls = Calls::Named("allocate_zeroed");
        env.fail_at(0, Fault::from_then_on(FaultKind::Error(ENOSPC)).among(calls));
        wal.append(0, 1, 1, [ENTRY]).unwrap();
        assert!(env.has_fired());
        wal.append(0, 2, 1, [ENTRY]).unwrap();
        wal.sync().unwrap();
    }

    #[test]
    fn half_written_records_are_torn() {
        for synced in [false, true] {
            let memory = MemEnv::new();
            let env = FaultEnv::new(Arc::new(memory.clone()));
            let mut wal = writer(&env);
            if synced {
                wal.sync().unwrap();
                wal.append(0, 1, 1, [ENTRY]).unwrap();
            }
            let calls = Calls::Named("write_at");
            let fault = Fault::once(FaultKind::ShortWrite).among(calls);
            env.fail_at(env.calls_of(calls), fault);
            wal.append(0, 2, 1, [ENTRY]).unwrap_err();
            let kinds = kinds(&memory);
            assert_eq!(kinds.find('t'), Some(kinds.len() - 1), "{synced}");
        }
    }
}
