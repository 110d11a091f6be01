//! Constants of the record format, and the header of a record file.
//!
//! The module above describes the format. The header is written together with the first record, in
//! one sector, so a crash leaves it whole, cut off, or all zeros. Any other difference is damage.

use crate::base::checksum::masked;
use crate::base::coding::{get_u32, put_u32};
use crate::base::error::Error;
use std::path::Path;

/// Bytes of a page; no fragment crosses the end of one.
pub(crate) const PAGE_BYTES: usize = 32 << 10;

/// The unit that a disk writes whole or not at all.
pub(crate) const SECTOR_BYTES: usize = 512;

/// Bytes before the payload of a fragment.
pub(crate) const FRAGMENT_HEADER_BYTES: usize = 11;

/// Bytes before the first fragment of a file.
pub(crate) const FILE_HEADER_BYTES: usize = 20;

/// The format version of manifests, and of logs without the record of version 2.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// The format version of logs that name bulk loads, which 0.1 does not know.
pub(crate) const LOADS_VERSION: u32 = 2;

/// A whole record.
pub(crate) const TYPE_FULL: u8 = 1;
/// The first fragment of several.
pub(crate) const TYPE_FIRST: u8 = 2;
/// Neither first nor last.
pub(crate) const TYPE_MIDDLE: u8 = 3;
/// The last fragment of several.
pub(crate) const TYPE_LAST: u8 = 4;

/// The files that hold records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordFile {
    /// A write-ahead log.
    Wal,
    Manifest,
}

impl RecordFile {
    /// The first 8 bytes of such a file.
    #[must_use]
    pub(crate) fn magic(self) -> [u8; 8] {
        match self {
            RecordFile::Wal => *b"siftdbWL",
            RecordFile::Manifest => *b"siftdbMF",
        }
    }

    /// The newest format version that this siftdb knows of such a file; it knows all before.
    fn newest_version(self) -> u32 {
        match self {
            RecordFile::Wal => LOADS_VERSION,
            RecordFile::Manifest => FORMAT_VERSION,
        }
    }

    /// The header of file `number`, which has the format `version`.
    #[must_use]
    pub(crate) fn header(self, number: u64, version: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FILE_HEADER_BYTES);
        bytes.extend_from_slice(&self.magic());
        put_u32(&mut bytes, version);
        put_u32(&mut bytes, low_half(number));
        let sum = masked(&bytes);
        put_u32(&mut bytes, sum);
        bytes
    }

    /// Compares the first bytes of a file with the header that file `number` must have.
    #[must_use]
    pub(crate) fn check_header(self, number: u64, bytes: &[u8]) -> HeaderState {
        let found = bytes.get(..FILE_HEADER_BYTES).unwrap_or(bytes);
        let mut known = (FORMAT_VERSION..=self.newest_version()).map(|v| self.header(number, v));
        let expected = known.find(|expected| expected.starts_with(found));
        if expected.as_deref() == Some(found) {
            return HeaderState::Good;
        }
        let first_sector = bytes.get(..SECTOR_BYTES).unwrap_or(bytes);
        let cut = expected.is_some();
        if cut || first_sector.iter().all(|&byte| byte == 0) {
            return HeaderState::Torn;
        }
        if !found.starts_with(&self.magic()) {
            return HeaderState::Bad(Undecodable::Damaged(format!(
                "the file does not begin with {:?}",
                String::from_utf8_lossy(&self.magic())
            )));
        }
        let sum = found.get(..FILE_HEADER_BYTES - 4).map(masked);
        let (Some(version), Some(low)) = (get_u32(found, 8), get_u32(found, 12)) else {
            return HeaderState::Bad(Undecodable::Damaged("the file header is cut off".into()));
        };
        HeaderState::Bad(if sum != get_u32(found, FILE_HEADER_BYTES - 4) {
            Undecodable::Damaged("the file header fails its checksum".into())
        } else if !(FORMAT_VERSION..=self.newest_version()).contains(&version) {
            let newest = self.newest_version();
            Undecodable::Unknown(format!(
                "format version {version}; this siftdb knows versions up to {newest}"
            ))
        } else {
            Undecodable::Damaged(format!("the header is that of file number {low}"))
        })
    }
}

/// The part of a file number that every fragment contains.
pub(crate) fn low_half(number: u64) -> u32 {
    number as u32
}

/// The low half of the file number in a header, without a check: for printing files whose name has
/// no number.
pub(crate) fn claimed_number(bytes: &[u8]) -> u64 {
    u64::from(get_u32(bytes, 12).unwrap_or(0))
}

/// The state of the header of a record file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderState {
    /// The expected header.
    Good,
    /// A header that a crash interrupted: cut off, or zeros.
    Torn,
    /// Anything else.
    Bad(Undecodable),
}

/// Why bytes cannot be decoded that a crash cannot have caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undecodable {
    /// siftdb does not write such bytes.
    Damaged(String),
    /// The bytes have a version or kind that this siftdb does not know.
    Unknown(String),
}

impl Undecodable {
    /// The error for these bytes at `offset` of `path`.
    #[must_use]
    pub(crate) fn into_error(self, path: &Path, offset: u64) -> Error {
        match self {
            Undecodable::Damaged(what) => Error::corruption(path, offset, what),
            Undecodable::Unknown(what) => {
                Error::of_newer_format(path, format_args!("{what} (at byte {offset})"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_headers_are_torn_and_flipped_ones_bad() {
        let (wal, manifest) = (RecordFile::Wal, RecordFile::Manifest);
        for (file, version) in [(wal, 1), (wal, 2), (manifest, 1)] {
            let header = file.header(7, version);
            assert_eq!(header.len(), FILE_HEADER_BYTES);
            assert_eq!(file.check_header(7, &header), HeaderState::Good);
            for cut in 0..header.len() {
                assert_eq!(file.check_header(7, &header[..cut]), HeaderState::Torn);
            }
            for at in 0..header.len() {
                for bit in 0..8 {
                    let mut flipped = header.clone();
                    flipped[at] ^= 1 << bit;
                    let state = file.check_header(7, &flipped);
                    assert!(matches!(state, HeaderState::Bad(Undecodable::Damaged(_))), "{at}");
                }
            }
        }
    }

    #[test]
    fn headers_distinguish_number_version_and_kind() {
        let wal = RecordFile::Wal;
        let damaged = |state| matches!(state, HeaderState::Bad(Undecodable::Damaged(_)));
        assert!(damaged(wal.check_header(7, &wal.header(8, 1))));
        assert!(damaged(wal.check_header(7, &RecordFile::Manifest.header(7, 1))));
        let newer = wal.header(7, 3);
        for state in [
            wal.check_header(7, &newer),
            wal.check_header(7, &wal.header(7, 0)),
            RecordFile::Manifest.check_header(7, &RecordFile::Manifest.header(7, 2)),
        ] {
            assert!(matches!(state, HeaderState::Bad(Undecodable::Unknown(_))), "{state:?}");
        }
        assert_eq!(claimed_number(&newer), 7);
    }

    #[test]
    fn zeros_are_torn_only_through_the_first_sector() {
        let mut bytes = vec![0; 600];
        assert_eq!(RecordFile::Wal.check_header(7, &bytes), HeaderState::Torn);
        bytes[511] = 1;
        assert!(matches!(RecordFile::Wal.check_header(7, &bytes), HeaderState::Bad(_)));
    }
}
