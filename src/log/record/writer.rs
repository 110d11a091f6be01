//! Appends records to a new file.
//!
//! After [`RecordWriter::create`], appends and syncs come in any order. The file header is written
//! with the first record. All fragments of a record are composed in one reused buffer and written
//! by one call. A record above 1 MiB takes several calls, so that the buffer stays small.
//!
//! After a failed write or sync the contents of the file are unknown, so every later call returns
//! the same error, also those of its [`RecordSyncer`]. Preallocation is optional and best effort:
//! if it fails, records simply extend the file.

use crate::base::checksum::masked;
use crate::base::error::{Error, Result};
use crate::base::sync::Arc;
use crate::env::api::{Env, WritableFile};
use crate::log::record::format::{
    FRAGMENT_HEADER_BYTES, PAGE_BYTES, RecordFile, TYPE_FIRST, TYPE_FULL, TYPE_LAST, TYPE_MIDDLE,
    low_half,
};
use crate::log::record::syncer::{FileFailure, RecordSyncer};
use std::path::Path;

/// The buffer is written out when it holds this much.
const BUFFER_BYTES: usize = 1 << 20;

/// Writes one record file.
#[derive(Debug)]
pub(crate) struct RecordWriter {
    file: Box<dyn WritableFile>,
    number: u32,
    /// Bytes written; the contents of `buffer` follow.
    end: u64,
    buffer: Vec<u8>,
    /// The file is filled with zeros up to here.
    allocated: u64,
    /// Bytes to preallocate at a time; 0 for none.
    allocation_step: u64,
    failure: Arc<FileFailure>,
    /// Once another thread has asked for it.
    syncer: Option<Arc<RecordSyncer>>,
}

impl RecordWriter {
    /// Creates file `number` of the format `version`; writes nothing yet.
    pub(crate) fn create(
        env: &dyn Env,
        path: &Path,
        kind: RecordFile,
        number: u64,
        version: u32,
    ) -> Result<Self> {
        let file = env.create_new(path).map_err(|e| Error::io("create_new", path, e))?;
        Ok(RecordWriter::new(file, path, kind, number, version))
    }

    /// Writes `file`, which is new and has this path and number.
    pub(crate) fn new(
        file: Box<dyn WritableFile>,
        path: &Path,
        kind: RecordFile,
        number: u64,
        version: u32,
    ) -> Self {
        RecordWriter {
            file,
            number: low_half(number),
            end: 0,
            buffer: kind.header(number, version),
            allocated: 0,
            allocation_step: 0,
            failure: Arc::new(FileFailure::of(path)),
            syncer: None,
        }
    }

    /// Appends one record whose payload is the concatenation of `parts`. Returns the bytes that the
    /// file grew by.
    #[inline]
    pub(crate) fn append<'p>(
        &mut self,
        mut parts: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> Result<u64> {
        self.failure.check()?;
        let before = self.end;
        let mut left: usize = parts.clone().map(<[u8]>::len).sum();
        let mut part: &[u8] = &[];
        let mut first = true;
        loop {
            let used = (self.end + self.buffer.len() as u64) % PAGE_BYTES as u64;
            let room = PAGE_BYTES - used as usize;
            // The rest of the page has no room for a payload. It is filled with zeros, which
            // readers skip.
            if room <= FRAGMENT_HEADER_BYTES {
                self.buffer.resize(self.buffer.len() + room, 0);
                continue;
            }
            let length = left.min(room - FRAGMENT_HEADER_BYTES);
            let kind = match (first, length == left) {
                (true, true) => TYPE_FULL,
                (true, false) => TYPE_FIRST,
                (false, false) => TYPE_MIDDLE,
                (false, true) => TYPE_LAST,
            };
            let at = self.buffer.len();
            let [low, high] = (length as u16).to_le_bytes();
            let [n0, n1, n2, n3] = self.number.to_le_bytes();
            let header: [u8; FRAGMENT_HEADER_BYTES] = [0, 0, 0, 0, low, high, kind, n0, n1, n2, n3];
            self.buffer.extend_from_slice(&header);
            let full = self.buffer.len() + length;
            while self.buffer.len() < full {
                if part.is_empty() {
                    let Some(next) = parts.next() else { break };
                    part = next;
                }
                let (taken, rest) = part.split_at(part.len().min(full - self.buffer.len()));
                self.buffer.extend_from_slice(taken);
                part = rest;
            }
            // The checksum covers everything after it, so it is filled in last.
            let sum = masked(&self.buffer[at + 4..]);
            self.buffer[at..at + 4].copy_from_slice(&sum.to_le_bytes());
            left -= length;
            first = false;
            if left == 0 {
                break;
            }
            if self.buffer.len() >= BUFFER_BYTES {
                self.write_out()?;
            }
        }
        debug_assert_ne!(self.buffer.last(), Some(&0), "a payload must not end in a zero byte");
        self.write_out()?;
        Ok(self.end - before)
    }

    /// Makes all appended records durable.
    pub(crate) fn sync_data(&mut self) -> Result<()> {
        let _turn = self.syncer.as_ref().map(|syncer| syncer.turn());
        self.failure.check()?;
        self.failure.keep("sync_data", self.file.sync_data())
    }

    /// Makes all appended records and the file's metadata durable.
    pub(crate) fn sync_all(&mut self) -> Result<()> {
        let _turn = self.syncer.as_ref().map(|syncer| syncer.turn());
        self.failure.check()?;
        self.failure.keep("sync_all", self.file.sync_all())
    }

    /// What another thread syncs this file with; `None` if the Env has no second handle of a file.
    pub(crate) fn syncer(&mut self) -> Option<Arc<RecordSyncer>> {
        if self.syncer.is_none() {
            let file = self.file.try_clone().ok()?;
            self.syncer = Some(Arc::new(RecordSyncer::new(file, &self.failure)));
        }
        self.syncer.clone()
    }

    /// From now on preallocates zero-filled space after the last record, `step` bytes at a time.
    pub(crate) fn allocate_ahead(&mut self, step: u64) {
        self.allocation_step = step;
    }

    /// Bytes of the file up to the end of its last record.
    pub(crate) fn bytes(&self) -> u64 {
        self.end
    }

    /// Bytes of the file with what is preallocated.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.end.max(self.allocated)
    }

    fn write_out(&mut self) -> Result<()> {
        let end = self.end + self.buffer.len() as u64;
        if self.allocation_step > 0 && end > self.allocated {
            // Space is allocated before the write, so that the write does not change the length of
            // the file and its sync writes no metadata.
            let from = self.allocated.max(self.end);
            let bytes = (end - from).next_multiple_of(self.allocation_step);
            match self.file.allocate_zeroed(from, bytes) {
                Ok(()) => self.allocated = from + bytes,
                Err(_) => self.allocation_step = 0,
            }
        }
        self.failure.keep("write_at", self.file.write_at(self.end, &self.buffer))?;
        self.end = end;
        self.buffer.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::mem::MemEnv;
    use std::iter;

    fn writer(env: &MemEnv) -> RecordWriter {
        RecordWriter::create(env, Path::new("/file"), RecordFile::Wal, 0x0102_0304, 1).unwrap()
    }

    #[test]
    fn a_small_log_has_known_bytes() {
        let env = MemEnv::with_log();
        let mut writer = writer(&env);
        assert_eq!(writer.append([&b"a re"[..], b"", b"cord"].into_iter()).unwrap(), 39);
        let bytes = env.read_file(Path::new("/file")).unwrap();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        // Magic, version, number, checksum; then checksum, length, type, number, payload.
        let expected = [
            "73696674646257",
            "4c",
            "01000000",
            "04030201",
            "45b3b1e7",
            "305660f3",
            "0800",
            "01",
            "04030201",
            "61207265636f7264",
        ];
        assert_eq!(hex, expected.concat());
    }

    #[test]
    fn a_record_is_one_write() {
        let env = MemEnv::with_log();
        let mut writer = writer(&env);
        let before = env.log_len();
        writer.append(iter::once(&[1; 100_000][..])).unwrap();
        assert_eq!(env.log_len(), before + 1);
        writer.append(iter::once(&[1; 3 << 20][..])).unwrap();
        assert!(env.log_len() <= before + 5);
    }

    #[test]
    fn preallocation_grows_in_steps_of_zeros() {
        let env = MemEnv::with_log();
        let mut writer = writer(&env);
        writer.append(iter::once(&[1; 100][..])).unwrap();
        let length = |env: &MemEnv| env.read_file(Path::new("/file")).unwrap().len() as u64;
        assert_eq!(length(&env), writer.bytes());
        writer.allocate_ahead(4096);
        writer.append(iter::once(&[1; 100][..])).unwrap();
        let first = length(&env);
        assert!(first >= writer.bytes() && first < writer.bytes() + 4096);
        let calls = env.log_len();
        writer.append(iter::once(&[1; 100][..])).unwrap();
        assert_eq!((length(&env), env.log_len()), (first, calls + 1));
        writer.append(iter::once(&[1; 10_000][..])).unwrap();
        assert!(length(&env) >= writer.bytes() && length(&env) < writer.bytes() + 4096);
        let bytes = env.read_file(Path::new("/file")).unwrap();
        assert!(bytes[writer.bytes() as usize..].iter().all(|&byte| byte == 0));
    }
}
