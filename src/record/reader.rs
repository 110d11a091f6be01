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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::mem::MemEnv;
    use crate::record::format::RecordFile;
    use crate::record::writer::RecordWriter;
    use proptest::prelude::*;
    use std::iter;
    use std::path::Path;

    /// A payload of `length` bytes that does not end in zero; with zeros inside if `seed` is odd.
    fn payload(length: usize, seed: u64) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..length as u64)
            .map(|i| (i.wrapping_mul(31).wrapping_add(seed.wrapping_mul(77)) >> 2) as u8 | 1)
            .collect();
        if seed % 2 == 1 {
            let middle = length / 3..length / 2;
            bytes[middle].fill(0);
        }
        bytes
    }

    fn file_of(number: u64, payloads: &[Vec<u8>]) -> Vec<u8> {
        let env = MemEnv::without_log();
        let path = Path::new("/file");
        let mut writer = RecordWriter::create(&env, path, RecordFile::Wal, number).unwrap();
        for payload in payloads {
            // In three pieces, to see that pieces do not matter.
            let (head, rest) = payload.split_at(payload.len() / 3);
            let (middle, tail) = rest.split_at(rest.len() / 2);
            writer.append([head, middle, tail].into_iter()).unwrap();
        }
        let bytes = env.read_file(path).unwrap();
        assert_eq!(bytes.len() as u64, writer.bytes());
        bytes
    }

    fn steps(bytes: &[u8], number: u64) -> Vec<Step<'_>> {
        let mut reader = RecordReader::new(bytes, number);
        let mut steps = Vec::new();
        loop {
            match reader.step() {
                Step::End => return steps,
                step => steps.push(step),
            }
        }
    }

    fn records(bytes: &[u8], number: u64) -> Vec<Record<'_>> {
        let only = |step| match step {
            Step::Record(record) => record,
            step => panic!("{step:?}"),
        };
        steps(bytes, number).into_iter().map(only).collect()
    }

    /// Small records, one that fills the page but for a few bytes, one over three pages.
    fn sample() -> (Vec<u8>, Vec<(usize, usize)>) {
        let lengths = [5, 700, 1, 30_000, 1270, 90, 70_000, 1500, 3];
        let payloads: Vec<_> =
            lengths.iter().enumerate().map(|(i, &n)| payload(n, 2 * i as u64)).collect();
        let bytes = file_of(9, &payloads);
        let found = records(&bytes, 9);
        let extents = found.iter().map(|r| (r.start as usize, r.end as usize)).collect();
        (bytes, extents)
    }

    /// Every offset near the ends of records, pages and sectors, and some in between.
    fn interesting(extents: &[(usize, usize)], length: usize) -> Vec<usize> {
        let edges = extents.iter().flat_map(|&(start, end)| [start, end]);
        let pages = (0..=length).step_by(PAGE_BYTES);
        let mut offsets: Vec<usize> = edges
            .chain(pages)
            .flat_map(|edge| edge.saturating_sub(14)..edge + 14)
            .chain((0..length).step_by(509))
            .filter(|&offset| offset >= FILE_HEADER_BYTES && offset < length)
            .collect();
        offsets.sort_unstable();
        offsets.dedup();
        offsets
    }

    #[test]
    fn records_come_back_around_every_page_end() {
        // The second record begins 0 to 30 bytes before the end of the page.
        for gap in 0..30 {
            let first = PAGE_BYTES - FILE_HEADER_BYTES - FRAGMENT_HEADER_BYTES - gap;
            for second in [1, 10, PAGE_BYTES - FRAGMENT_HEADER_BYTES, 2 * PAGE_BYTES] {
                let payloads = [payload(first, 0), payload(second, 1), payload(7, 2)];
                let bytes = file_of(3, &payloads);
                let found = records(&bytes, 3);
                let back: Vec<_> = found.iter().map(|r| r.payload.to_vec()).collect();
                assert!(back == payloads, "gap {gap}, second {second}");
            }
        }
    }

    #[test]
    fn a_record_larger_than_the_write_buffer_comes_back() {
        let payloads = [payload(3 << 20, 1), payload(5, 0)];
        let bytes = file_of(u64::from(u32::MAX) + 4, &payloads);
        let found = records(&bytes, 3);
        assert!(found.iter().map(|r| &r.payload[..]).eq(payloads.iter().map(|p| &p[..])));
    }

    #[test]
    fn every_cut_is_torn_and_keeps_what_is_before() {
        let (bytes, extents) = sample();
        for cut in interesting(&extents, bytes.len()) {
            for zeros in [0, 1000] {
                let mut cut_bytes = bytes[..cut].to_vec();
                cut_bytes.resize(cut + zeros, 0);
                let whole = extents.iter().filter(|&&(_, end)| end <= cut).count();
                let steps = steps(&cut_bytes, 9);
                let last_end = extents[..whole].last().map_or(FILE_HEADER_BYTES, |e| e.1);
                let nothing_begun = bytes[last_end..cut].iter().all(|&byte| byte == 0);
                let bad = usize::from(!nothing_begun);
                assert_eq!(steps.len(), whole + bad, "cut at {cut} and {zeros} zeros");
                if let Some(Step::Bad(place)) = steps.last() {
                    assert!(place.torn, "cut at {cut} and {zeros} zeros: {place:?}");
                }
            }
        }
    }

    #[test]
    fn every_flip_is_damage_and_the_other_records_are_found() {
        let (bytes, extents) = sample();
        for zeros in [0, 1000] {
            let mut bytes = bytes.clone();
            let data = bytes.len();
            bytes.resize(data + zeros, 0);
            for at in interesting(&extents, data) {
                let flip = 1 << (at % 8);
                bytes[at] ^= flip;
                let steps = steps(&bytes, 9);
                let place = steps.iter().position(|step| matches!(step, Step::Bad(_)));
                let before = extents.iter().filter(|&&(_, end)| end <= at).count();
                assert_eq!(place, Some(before), "flip at {at}");
                let torn = matches!(&steps[before], Step::Bad(bad) if bad.torn);
                assert!(!torn, "flip at {at}: {:?}", steps[before]);
                // A flip in the unused end of a page hits no record.
                let hit = extents.iter().any(|&(start, end)| start <= at && at < end);
                assert_eq!(steps.len(), extents.len() + usize::from(!hit), "flip at {at}");
                bytes[at] ^= flip;
            }
        }
    }

    #[test]
    fn every_sector_of_zeros_is_torn_and_the_records_behind_are_found() {
        let (bytes, extents) = sample();
        for sector in (SECTOR_BYTES..bytes.len()).step_by(SECTOR_BYTES) {
            let end = (sector + SECTOR_BYTES).min(bytes.len());
            let mut zeroed = bytes.clone();
            zeroed[sector..end].fill(0);
            if zeroed == bytes {
                continue;
            }
            let hit = |&&(from, to): &&(usize, usize)| from < end && sector < to;
            let lost = extents.iter().filter(hit).count();
            let steps = steps(&zeroed, 9);
            let found = steps.iter().filter(|step| matches!(step, Step::Record(_))).count();
            assert_eq!(found, extents.len() - lost, "sector at {sector}");
            let bad = steps.iter().filter_map(|step| match step {
                Step::Bad(bad) => Some(bad),
                _ => None,
            });
            assert!(bad.clone().all(|bad| bad.torn), "sector at {sector}: {steps:?}");
        }
    }

    #[test]
    fn a_stale_sector_is_torn_where_an_older_record_ends_in_it() {
        // Records of 100 bytes; the second sector was last written when it held one and a half.
        let payloads: Vec<_> = (0..12).map(|i| payload(100, 2 * i)).collect();
        let bytes = file_of(4, &payloads);
        let extents: Vec<_> = records(&bytes, 4).iter().map(|r| (r.start, r.end)).collect();
        let &(stale, _) = extents.iter().find(|(start, _)| *start > 700).unwrap();
        let mut crashed = bytes.clone();
        crashed[stale as usize..1024].fill(0);
        let steps = steps(&crashed, 4);
        let bad = steps.iter().find_map(|step| match step {
            Step::Bad(bad) => Some((bad.offset, bad.torn)),
            _ => None,
        });
        assert_eq!(bad, Some((stale, true)));
        assert!(matches!(steps.last(), Some(Step::Record(_))));
    }

    #[test]
    fn what_another_file_left_behind_is_no_record() {
        let mut bytes = file_of(4, &[payload(50, 0)]);
        let foreign = file_of(5, &[payload(50, 0), payload(60, 2)]);
        bytes.extend_from_slice(&foreign[bytes.len()..]);
        let steps = steps(&bytes, 4);
        assert_eq!(steps.len(), 2);
        let Step::Bad(bad) = &steps[1] else { panic!("{steps:?}") };
        assert!(!bad.torn && bad.what.contains("file number 5"), "{bad:?}");
    }

    #[test]
    fn the_search_behind_a_bad_place_ends_soon_on_a_hostile_file() {
        // Read at every other byte, this is the header of a full record of 16,129 bytes.
        let bytes: Vec<u8> = iter::repeat_n([0x01, 0x3f], 2 << 20).flatten().collect();
        let number = u64::from(u32::from_le_bytes([0x3f, 0x01, 0x3f, 0x01]));
        assert!(RecordReader::new(&bytes, number).claims_start(PAGE_BYTES + 10_000).is_some());
        let started = std::time::Instant::now();
        assert_eq!(steps(&bytes, number).len(), 1);
        assert!(started.elapsed().as_millis() < 1500, "{:?}", started.elapsed());
    }

    proptest! {
        #[test]
        fn records_of_any_length_come_back(lengths in proptest::collection::vec(1usize..50_000, 0..12)) {
            let payloads: Vec<_> =
                lengths.iter().enumerate().map(|(i, &n)| payload(n, i as u64)).collect();
            let bytes = file_of(77, &payloads);
            let found = records(&bytes, 77);
            let back: Vec<_> = found.iter().map(|r| r.payload.to_vec()).collect();
            prop_assert!(back == payloads);
            let inside = found.iter().all(|r| r.start < r.end && r.end <= bytes.len() as u64);
            prop_assert!(inside && found.windows(2).all(|w| w[0].end <= w[1].start));
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>, number: u64) {
            let _ = steps(&bytes, number);
        }
    }
}
