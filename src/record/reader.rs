//! Reads records back, and judges the places where there is none.
//!
//! [`RecordReader::step`] yields one record after the other, then `End`. At a bad place it yields
//! that, once, and goes on at the next record that is whole and has a good checksum, if there is
//! one: recovery looks there for proofs, inspection prints what it finds.
//!
//! A bad place is *torn* if a crash can have left it: the file, or the data before its zero tail,
//! ends inside the record; or a sector of the record was never written and reads as zeros. A
//! sector in which an older record ends reads as zeros from there on. Everything else is damage.
//!
//! Works on the bytes of a whole file: records borrow from them unless they span pages. No length
//! read from the file is trusted before it is compared with what is there.

use crate::checksum::Checksum;
use crate::coding::Decoder;
use crate::record::format::{
    FILE_HEADER_BYTES, FRAGMENT_HEADER_BYTES, PAGE_BYTES, SECTOR_BYTES, TYPE_FIRST, TYPE_FULL,
    TYPE_LAST, TYPE_MIDDLE, low_half,
};
use std::borrow::Cow;

/// The search behind a bad place tries every byte until it has checksummed this many times the
/// file; then only page starts. Only a file made to be slow gets there.
const SEARCH_FACTOR: usize = 16;

/// A whole record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where its first fragment begins.
    pub start: u64,
    /// Where its last fragment ends.
    pub end: u64,
    /// Its payload.
    pub payload: Cow<'a, [u8]>,
}

/// A place where a record should be and is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPlace {
    /// Where the bad fragment begins.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
    /// A crash can have left it so.
    pub torn: bool,
}

/// What a reader finds next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A record.
    Record(Record<'a>),
    /// Something else; the next step looks for a record behind it.
    Bad(BadPlace),
    /// Nothing, or nothing but zeros, up to the end of the file.
    End,
}

/// Reads the records of one file in order.
#[derive(Clone, Debug)]
pub struct RecordReader<'a> {
    bytes: &'a [u8],
    number: u32,
    position: usize,
    /// Behind the last byte that is not zero.
    data_end: usize,
}

struct Fragment<'a> {
    kind: u8,
    payload: &'a [u8],
    end: usize,
}

struct Fault {
    offset: usize,
    what: String,
}

impl<'a> RecordReader<'a> {
    /// Reads `bytes`, the whole of file `number`, from behind its header. The header is checked
    /// elsewhere.
    #[must_use]
    pub fn new(bytes: &'a [u8], number: u64) -> Self {
        RecordReader {
            bytes,
            number: low_half(number),
            position: FILE_HEADER_BYTES,
            data_end: bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1),
        }
    }

    /// The next record, bad place or end.
    pub fn step(&mut self) -> Step<'a> {
        match self.read_record(self.position) {
            Ok(Some(record)) => {
                self.position = record.end as usize;
                Step::Record(record)
            }
            Ok(None) => Step::End,
            Err(fault) => {
                let next = self.search(fault.offset + 1);
                self.position = next.unwrap_or(self.bytes.len().max(self.position));
                Step::Bad(BadPlace {
                    offset: fault.offset as u64,
                    what: fault.what,
                    torn: self.is_torn(fault.offset, next),
                })
            }
        }
    }

    /// The record at `from`, `None` if only zeros are left.
    fn read_record(&self, from: usize) -> Result<Option<Record<'a>>, Fault> {
        let mut position = from;
        let mut begun: Option<(usize, Vec<u8>)> = None;
        loop {
            let at = self.skip_padding(position)?;
            if at >= self.data_end {
                return match begun {
                    None => Ok(None),
                    Some((start, _)) => {
                        let what = format!("the record that begins at byte {start} is cut off");
                        Err(Fault { offset: at, what })
                    }
                };
            }
            let fragment = self.fragment(at)?;
            position = fragment.end;
            match (fragment.kind, &mut begun) {
                (TYPE_FULL, None) => {
                    let payload = Cow::Borrowed(fragment.payload);
                    return Ok(Some(Record { start: at as u64, end: position as u64, payload }));
                }
                (TYPE_FIRST, None) => begun = Some((at, fragment.payload.to_vec())),
                (TYPE_MIDDLE, Some((_, joined))) => joined.extend_from_slice(fragment.payload),
                (TYPE_LAST, Some((start, joined))) => {
                    joined.extend_from_slice(fragment.payload);
                    let payload = Cow::Owned(std::mem::take(joined));
                    return Ok(Some(Record {
                        start: *start as u64,
                        end: position as u64,
                        payload,
                    }));
                }
                (kind, begun) => {
                    let place = if begun.is_some() { "inside" } else { "outside" };
                    let what = format!("a fragment of type {kind} stands {place} a record");
                    return Err(Fault { offset: at, what });
                }
            }
        }
    }

    /// Where the fragment at or after `position` begins.
    fn skip_padding(&self, position: usize) -> Result<usize, Fault> {
        let room = PAGE_BYTES - position % PAGE_BYTES;
        if room > FRAGMENT_HEADER_BYTES {
            return Ok(position);
        }
        if self.is_zero(position, position + room) {
            Ok(position + room)
        } else {
            let what = "the unused end of a page is not zero".into();
            Err(Fault { offset: position, what })
        }
    }

    fn fragment(&self, at: usize) -> Result<Fragment<'a>, Fault> {
        let fault = |what: String| Fault { offset: at, what };
        let mut decoder = Decoder::new(self.bytes.get(at..).unwrap_or_default());
        let fields = (decoder.u32(), decoder.u16(), decoder.u8(), decoder.u32());
        let (Some(sum), Some(length), Some(kind), Some(number)) = fields else {
            return Err(fault("a fragment header is cut off by the end of the file".into()));
        };
        if sum == 0 && length == 0 && kind == 0 && number == 0 {
            return Err(fault("zeros stand where a record should".into()));
        }
        let length = usize::from(length);
        if FRAGMENT_HEADER_BYTES + length > PAGE_BYTES - at % PAGE_BYTES {
            return Err(fault(format!("a fragment of {length} bytes reaches beyond its page")));
        }
        let Some(payload) = decoder.bytes(length) else {
            return Err(fault(format!(
                "a fragment of {length} bytes is cut off by the end of the file"
            )));
        };
        if sum != checksum(length, kind, number, payload) {
            return Err(fault("a fragment fails its checksum".into()));
        }
        if number != self.number {
            return Err(fault(format!(
                "a fragment of file number {number} stands in file number {}",
                self.number
            )));
        }
        Ok(Fragment { kind, payload, end: at + FRAGMENT_HEADER_BYTES + length })
    }

    /// The first place at or after `from` where a whole record stands.
    fn search(&self, from: usize) -> Option<usize> {
        let budget = self.bytes.len().saturating_mul(SEARCH_FACTOR);
        let mut spent = 0usize;
        let mut at = from.max(FILE_HEADER_BYTES);
        while at + FRAGMENT_HEADER_BYTES <= self.data_end {
            if let Some(length) = self.claims_start(at) {
                spent = spent.saturating_add(length);
                if let Ok(Some(_)) = self.read_record(at) {
                    return Some(at);
                }
            }
            at = if spent > budget { (at / PAGE_BYTES + 1) * PAGE_BYTES } else { at + 1 };
        }
        None
    }

    /// The length of the fragment at `at` if its header could be that of a record's front.
    fn claims_start(&self, at: usize) -> Option<usize> {
        let room = PAGE_BYTES - at % PAGE_BYTES;
        let header = self.bytes.get(at..at.checked_add(FRAGMENT_HEADER_BYTES)?)?;
        let (kind, number) = header.get(6..)?.split_first()?;
        if !matches!(*kind, TYPE_FULL | TYPE_FIRST) || *number != self.number.to_le_bytes() {
            return None;
        }
        let length = usize::from(Decoder::new(header.get(4..)?).u16()?);
        (room > FRAGMENT_HEADER_BYTES && FRAGMENT_HEADER_BYTES + length <= room).then_some(length)
    }

    /// True if a crash can have left the bad fragment at `at`, where the next record stands at
    /// `next`.
    fn is_torn(&self, at: usize, next: Option<usize>) -> bool {
        let first_sector_end = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
        if at >= self.data_end || self.is_zero(at, first_sector_end) {
            return true;
        }
        let page_end = (at / PAGE_BYTES + 1) * PAGE_BYTES;
        let length = Decoder::new(self.bytes.get(at + 4..).unwrap_or_default()).u16();
        let claimed_end =
            (at + FRAGMENT_HEADER_BYTES + usize::from(length.unwrap_or(0))).min(page_end);
        if next.is_none() && claimed_end > self.data_end {
            // The data ends inside the fragment, unless it is the length that is wrong.
            return ![self.bytes.len(), self.data_end]
                .into_iter()
                .any(|end| self.would_end_at(at, end));
        }
        let end = claimed_end.min(next.unwrap_or(claimed_end)).min(self.bytes.len());
        (first_sector_end..end)
            .step_by(SECTOR_BYTES)
            .any(|sector| self.is_zero(sector, sector + SECTOR_BYTES))
    }

    /// True if the fragment at `at` has a good checksum once its length makes it end at `end`.
    fn would_end_at(&self, at: usize, end: usize) -> bool {
        let mut decoder = Decoder::new(self.bytes.get(at..end).unwrap_or_default());
        let fields = (decoder.u32(), decoder.u16(), decoder.u8(), decoder.u32());
        let (Some(sum), Some(_), Some(kind), Some(number)) = fields else {
            return false;
        };
        let payload = decoder.rest();
        payload.len() <= PAGE_BYTES && sum == checksum(payload.len(), kind, number, payload)
    }

    /// True if `from..to`, as far as it is in the file, is all zeros.
    fn is_zero(&self, from: usize, to: usize) -> bool {
        let to = to.min(self.bytes.len());
        self.bytes.get(from..to).is_none_or(|bytes| bytes.iter().all(|&byte| byte == 0))
    }
}

fn checksum(length: usize, kind: u8, number: u32, payload: &[u8]) -> u32 {
    Checksum::new()
        .with(&(length as u16).to_le_bytes())
        .with(&[kind])
        .with(&number.to_le_bytes())
        .with(payload)
        .masked()
}
