//! Reads records back, and tells torn places from damaged ones.
//!
//! [`RecordReader::step`] returns one record after the other, then `End`. At a bad place it returns
//! that place once, and continues with the next whole record that has a valid checksum. Recovery
//! looks at such records for what they say was durable; inspection prints them.
//!
//! A bad place is *torn* if a crash can have caused it. Either the file, or the data before its
//! trailing zeros, ends inside the record; or a sector of the record was never written and reads as
//! zeros. A sector with the end of an older record reads as zeros from there on. Every other bad
//! place is damage.
//!
//! Files may have any size: the reader holds a window of some pages, and one record. It compares
//! every length from the file with the size of the file before it uses the length.

use crate::base::batch_format::BATCH_BYTES_MAX;
use crate::base::checksum::Checksum;
use crate::base::coding::Decoder;
use crate::base::error::{Error, Result};
use crate::base::sync::Arc;
use crate::env::api::{Env, RandomFile};
use crate::log::record::format::{
    FILE_HEADER_BYTES, FRAGMENT_HEADER_BYTES, HeaderState, PAGE_BYTES, RecordFile, SECTOR_BYTES,
    TYPE_FIRST, TYPE_FULL, TYPE_LAST, TYPE_MIDDLE, claimed_number, low_half,
};
use std::path::{Path, PathBuf};

/// The search after a bad place tries every byte until it has computed checksums over this many
/// times the size of the file; then it tries only page starts. Only a malicious file needs that.
const SEARCH_FACTOR: u64 = 16;

/// The largest read: whole pages.
pub(crate) const WINDOW_BYTES: usize = 32 * PAGE_BYTES;

/// The longest record: a write group with the largest batch, or the snapshot of a manifest.
const RECORD_BYTES_MAX: usize = 2 * BATCH_BYTES_MAX;

const PAGE: u64 = PAGE_BYTES as u64;
const SECTOR: u64 = SECTOR_BYTES as u64;
const FRAGMENT_HEADER: u64 = FRAGMENT_HEADER_BYTES as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// The start of its first fragment.
    pub start: u64,
    /// The end of its last fragment.
    pub end: u64,
    pub payload: &'a [u8],
}

/// A place without a valid record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadPlace {
    /// The start of the bad fragment.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
    /// A crash can have caused it.
    pub torn: bool,
}

/// The next item of the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    Record(Record<'a>),
    /// A bad place; the next step returns the next record after it.
    Bad(BadPlace),
    /// The end of the file, or only zeros up to the end.
    End,
}

/// A window over some pages of a file.
#[derive(Debug)]
struct Window {
    file: Arc<dyn RandomFile>,
    path: PathBuf,
    /// The length of the file, or the bound up to which it is read.
    file_bytes: u64,
    start: u64,
    buffer: Vec<u8>,
}

impl Window {
    /// The page that holds byte `at`, as far as the file goes.
    fn page(&mut self, at: u64) -> Result<&[u8]> {
        let from = at - at % PAGE;
        let end = (from + PAGE).min(self.file_bytes).max(from);
        if from < self.start || end > self.start + self.buffer.len() as u64 {
            self.load(from)?;
        }
        let inside =
            from.saturating_sub(self.start) as usize..end.saturating_sub(self.start) as usize;
        Ok(self.buffer.get(inside).unwrap_or_default())
    }

    fn load(&mut self, from: u64) -> Result<()> {
        let left = self.file_bytes.saturating_sub(from);
        self.start = from;
        self.buffer.clear();
        self.buffer.resize(left.min(WINDOW_BYTES as u64) as usize, 0);
        if self.buffer.is_empty() {
            return Ok(());
        }
        let read = self.file.read_exact_at(from, &mut self.buffer);
        read.map_err(|error| {
            self.buffer.clear();
            Error::io("read", &self.path, error)
        })
    }

    /// The end of the last byte that is not zero; `lowest` if there is none after it.
    fn data_end(&mut self, lowest: u64) -> Result<u64> {
        let mut end = self.file_bytes;
        while end > lowest {
            let from = (end - 1) / WINDOW_BYTES as u64 * WINDOW_BYTES as u64;
            // Pages before the lowest byte are not needed, also not by the next record.
            let from = from.max(lowest - lowest % PAGE);
            self.load(from)?;
            if let Some(last) = last_not_zero(&self.buffer) {
                return Ok((from + last as u64 + 1).max(lowest));
            }
            end = from;
        }
        Ok(lowest)
    }
}

/// Compares whole blocks, because a preallocated or sparse file may have gigabytes of zeros.
fn is_zero(bytes: &[u8]) -> bool {
    static ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|block| Some(block) == ZEROS.get(..block.len()))
}

fn last_not_zero(bytes: &[u8]) -> Option<usize> {
    let mut end = bytes.len();
    for block in bytes.rchunks(4096) {
        if !is_zero(block) {
            let last = block.iter().rposition(|&byte| byte != 0)?;
            return Some(end - block.len() + last);
        }
        end -= block.len();
    }
    None
}

/// Reads the records of one file in order.
#[derive(Debug)]
pub(crate) struct RecordReader {
    window: Window,
    number: u64,
    position: u64,
    /// The end of the last byte that is not zero.
    data_end: u64,
    /// The payload of the last record.
    payload: Vec<u8>,
}

struct Fragment<'a> {
    kind: u8,
    payload: &'a [u8],
}

/// The result of an attempt to read a record.
enum Attempt {
    /// A record from and to these offsets; its payload is in the reader.
    Record(u64, u64),
    /// Only zeros are left.
    End,
    /// What is wrong at this offset.
    Fault(u64, String),
}

impl RecordReader {
    /// Opens file `number` at `path`; the first step reads the first record.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn open(env: &dyn Env, path: &Path, number: u64) -> Result<Self> {
        RecordReader::open_to(env, path, number, u64::MAX)
    }

    /// As [`RecordReader::open`], but reads at most the first `bytes_max` bytes.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn open_to(env: &dyn Env, path: &Path, number: u64, bytes_max: u64) -> Result<Self> {
        let file = env.open_random(path).map_err(|error| Error::io("open", path, error))?;
        let file_bytes = file.len().map_err(|error| Error::io("metadata", path, error))?;
        let mut window = Window {
            file,
            path: path.to_path_buf(),
            file_bytes: file_bytes.min(bytes_max),
            start: 0,
            buffer: Vec::new(),
        };
        let data_end = window.data_end(0)?;
        let position = FILE_HEADER_BYTES as u64;
        Ok(RecordReader { window, number, position, data_end, payload: Vec::new() })
    }

    /// The length of the file, or the bound that it was opened with.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.window.file_bytes
    }

    /// Compares the header of the file with the one that it must have.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn header(&mut self, kind: RecordFile) -> Result<HeaderState> {
        Ok(kind.check_header(self.number, self.window.page(0)?))
    }

    /// The file number in the header, without a check.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn claimed_number(&mut self) -> Result<u64> {
        Ok(claimed_number(self.window.page(0)?))
    }

    /// From now on expects another file number.
    pub(crate) fn renumber(&mut self, number: u64) -> &mut Self {
        self.number = number;
        self
    }

    /// Forgets what was read of the file, which may have grown, and continues at `position`, where
    /// a record ends. From now on reads to the end that the file has now.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn reload(&mut self, position: u64) -> Result<()> {
        let file_bytes = self.window.file.len();
        self.window.file_bytes =
            file_bytes.map_err(|error| Error::io("metadata", &self.window.path, error))?;
        self.window.buffer.clear();
        self.position = position;
        // What is before the position is not read again, however long the file is.
        self.data_end = self.window.data_end(position)?;
        Ok(())
    }

    /// The next record, bad place or end.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn step(&mut self) -> Result<Step<'_>> {
        match self.read_record(self.position)? {
            Attempt::Record(start, end) => {
                self.position = end;
                Ok(Step::Record(Record { start, end, payload: &self.payload }))
            }
            Attempt::End => Ok(Step::End),
            Attempt::Fault(offset, what) => {
                // The next whole record bounds the bad place, and reading continues there.
                let next = self.search(offset + 1)?;
                let torn = self.is_torn(offset, next)?;
                // Without a further record the next step is the end.
                self.position = next.unwrap_or(self.window.file_bytes.max(self.position));
                Ok(Step::Bad(BadPlace { offset, what, torn }))
            }
        }
    }

    /// Reads the record at `from`; its payload goes to `self.payload`.
    fn read_record(&mut self, from: u64) -> Result<Attempt> {
        self.payload.clear();
        let mut position = from;
        let mut begun = None;
        loop {
            let page = self.window.page(position)?;
            let inside = (position % PAGE) as usize;
            let rest = page.get(inside..).unwrap_or_default();
            let room = PAGE_BYTES - inside;
            let fault = |what| Ok(Attempt::Fault(position, what));
            if room <= FRAGMENT_HEADER_BYTES {
                if !is_zero(rest) {
                    return fault("the unused end of a page is not zero".into());
                }
                position += room as u64;
                continue;
            }
            if position >= self.data_end {
                return match begun {
                    None => Ok(Attempt::End),
                    Some(start) => {
                        fault(format!("the record that begins at byte {start} is cut off"))
                    }
                };
            }
            let fragment = match fragment(rest, room, low_half(self.number)) {
                Ok(fragment) => fragment,
                Err(what) => return fault(what),
            };
            let start = match (fragment.kind, begun) {
                (TYPE_FULL | TYPE_FIRST, None) => position,
                (TYPE_MIDDLE | TYPE_LAST, Some(start)) => start,
                (kind, begun) => {
                    let place = if begun.is_some() { "inside" } else { "outside" };
                    return fault(format!("a fragment of type {kind} {place} a record"));
                }
            };
            if self.payload.len() + fragment.payload.len() > RECORD_BYTES_MAX {
                return fault(format!("a record of more than {RECORD_BYTES_MAX} bytes"));
            }
            self.payload.extend_from_slice(fragment.payload);
            position += FRAGMENT_HEADER + fragment.payload.len() as u64;
            if matches!(fragment.kind, TYPE_FULL | TYPE_LAST) {
                return Ok(Attempt::Record(start, position));
            }
            begun = Some(start);
        }
    }

    /// Finds the first whole record at or after `from`.
    fn search(&mut self, from: u64) -> Result<Option<u64>> {
        let budget = self.window.file_bytes.saturating_mul(SEARCH_FACTOR);
        let mut spent = 0u64;
        let mut at = from.max(FILE_HEADER_BYTES as u64);
        while at + FRAGMENT_HEADER <= self.data_end {
            let page_start = at - at % PAGE;
            let page = self.window.page(at)?;
            let inside = (at - page_start) as usize;
            // Beyond the budget only page starts are tried, so a page takes a fixed time.
            let last = if spent > budget { inside } else { PAGE_BYTES };
            let found = claimed_start(page, inside..=last, low_half(self.number));
            at = page_start + PAGE;
            if let Some((start, length)) = found {
                let start = page_start + start as u64;
                spent = spent.saturating_add(length as u64);
                if let Attempt::Record(..) = self.read_record(start)? {
                    return Ok(Some(start));
                }
                if spent <= budget {
                    // No record begins here, though the bytes look like a header. The search
                    // continues at the next byte, because the length in that header may be wrong.
                    at = start + 1;
                }
            }
        }
        Ok(None)
    }

    /// True if a crash can have caused the bad fragment at `at`; the next record starts at `next`.
    /// A fragment is in one page, so this looks at one page only.
    fn is_torn(&mut self, at: u64, next: Option<u64>) -> Result<bool> {
        let (data_end, file_bytes) = (self.data_end, self.window.file_bytes);
        let page_start = at - at % PAGE;
        let page = self.window.page(at)?;
        let part = |from: u64, to: u64| {
            let to = to.min(page_start + page.len() as u64);
            let inside = from.saturating_sub(page_start) as usize;
            page.get(inside..to.saturating_sub(page_start) as usize).unwrap_or_default()
        };
        let first_sector_end = (at / SECTOR + 1) * SECTOR;
        // The fragment's first sector was last written before the fragment: from here on it is
        // zeros.
        if at >= data_end || is_zero(part(at, first_sector_end)) {
            return Ok(true);
        }
        let page_end = page_start + PAGE;
        let length = Decoder::new(part(at + 4, page_end)).u16();
        // The length may be damaged. It only says where the fragment would end, and nothing is read
        // by it.
        let claimed_end = (at + FRAGMENT_HEADER + u64::from(length.unwrap_or(0))).min(page_end);
        if next.is_none() && claimed_end > data_end {
            // The data seems to end inside the fragment. If the checksum holds for the length that
            // is left, the length field is wrong, and that is damage.
            let mut ends = [file_bytes, data_end].into_iter().filter(|end| *end <= page_end);
            return Ok(!ends.any(|end| is_fragment_but_for_length(part(at, end))));
        }
        // Sectors reach the disk in any order. A zero one inside the fragment was not written.
        let end = claimed_end.min(next.unwrap_or(claimed_end)).min(file_bytes);
        let mut sectors = (first_sector_end..end).step_by(SECTOR_BYTES);
        Ok(sectors.any(|sector| is_zero(part(sector, sector + SECTOR))))
    }
}

/// Decodes the fragment at the start of `rest`; the page has `room` bytes from there on.
fn fragment(
    rest: &[u8],
    room: usize,
    own_number: u32,
) -> std::result::Result<Fragment<'_>, String> {
    let mut decoder = Decoder::new(rest);
    let fields = (decoder.u32(), decoder.u16(), decoder.u8(), decoder.u32());
    let (Some(sum), Some(length), Some(kind), Some(number)) = fields else {
        return Err("a fragment header is cut off by the end of the file".into());
    };
    if sum == 0 && length == 0 && kind == 0 && number == 0 {
        return Err("zeros, expected a record".into());
    }
    let length = usize::from(length);
    if FRAGMENT_HEADER_BYTES + length > room {
        return Err(format!("a fragment of {length} bytes reaches beyond its page"));
    }
    let Some(payload) = decoder.bytes(length) else {
        return Err(format!("a fragment of {length} bytes is cut off by the end of the file"));
    };
    if sum != checksum(length, kind, number, payload) {
        return Err("a fragment fails its checksum".into());
    }
    if number != own_number {
        return Err(format!("a fragment of file number {number}, expected {own_number}"));
    }
    Ok(Fragment { kind, payload })
}

/// The first of the `places` in `page` that could be the header of a record's first fragment, and
/// the length in that header.
fn claimed_start(
    page: &[u8],
    places: std::ops::RangeInclusive<usize>,
    number: u32,
) -> Option<(usize, usize)> {
    if is_zero(page) {
        return None;
    }
    let number = number.to_le_bytes();
    let from = *places.start();
    let headers = page.get(from..)?.windows(FRAGMENT_HEADER_BYTES);
    (from..=*places.end()).zip(headers).find_map(|(at, header)| {
        let (kind, claimed) = header.get(6..)?.split_first()?;
        if !matches!(*kind, TYPE_FULL | TYPE_FIRST) || *claimed != number {
            return None;
        }
        let length = usize::from(Decoder::new(header.get(4..)?).u16()?);
        let room = PAGE_BYTES - at;
        let fits = room > FRAGMENT_HEADER_BYTES && FRAGMENT_HEADER_BYTES + length <= room;
        fits.then_some((at, length))
    })
}

/// True if `bytes` are a fragment whose checksum holds for the length of `bytes`, not for the
/// length in its header.
fn is_fragment_but_for_length(bytes: &[u8]) -> bool {
    let mut decoder = Decoder::new(bytes);
    let fields = (decoder.u32(), decoder.u16(), decoder.u8(), decoder.u32());
    let (Some(sum), Some(_), Some(kind), Some(found)) = fields else {
        return false;
    };
    let payload = decoder.rest();
    payload.len() <= PAGE_BYTES && sum == checksum(payload.len(), kind, found, payload)
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
    use crate::env::counting::CountingEnv;
    use crate::env::mem::MemEnv;
    use crate::log::record::format::RecordFile;
    use crate::log::record::writer::RecordWriter;
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
        let env = MemEnv::new();
        let path = Path::new("/file");
        let mut writer = RecordWriter::create(&env, path, RecordFile::Wal, number, 1).unwrap();
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

    /// The item of a step, with its payload.
    #[derive(Clone, Debug, PartialEq, Eq)]
    enum Found {
        Record(Whole),
        Bad(BadPlace),
    }

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Whole {
        start: u64,
        end: u64,
        payload: Vec<u8>,
    }

    fn reader(bytes: &[u8], number: u64) -> RecordReader {
        let env = MemEnv::new();
        env.write_file(Path::new("/file"), bytes);
        RecordReader::open(&env, Path::new("/file"), number).unwrap()
    }

    fn steps(bytes: &[u8], number: u64) -> Vec<Found> {
        let mut reader = reader(bytes, number);
        let mut steps = Vec::new();
        loop {
            steps.push(match reader.step().unwrap() {
                Step::End => return steps,
                Step::Bad(bad) => Found::Bad(bad),
                Step::Record(Record { start, end, payload }) => {
                    Found::Record(Whole { start, end, payload: payload.to_vec() })
                }
            });
        }
    }

    fn records(bytes: &[u8], number: u64) -> Vec<Whole> {
        let only = |step| match step {
            Found::Record(record) => record,
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
    fn records_round_trip_at_every_page_end() {
        // The second record begins 0 to 30 bytes before the end of the page.
        for gap in 0..30 {
            let first = PAGE_BYTES - FILE_HEADER_BYTES - FRAGMENT_HEADER_BYTES - gap;
            for second in [1, 10, PAGE_BYTES - FRAGMENT_HEADER_BYTES, 2 * PAGE_BYTES] {
                let payloads = [payload(first, 0), payload(second, 1), payload(7, 2)];
                let bytes = file_of(3, &payloads);
                let found = records(&bytes, 3);
                let back: Vec<_> = found.iter().map(|r| r.payload.clone()).collect();
                assert!(back == payloads, "gap {gap}, second {second}");
            }
        }
    }

    #[test]
    fn records_larger_than_the_buffer_round_trip() {
        let payloads = [payload(3 << 20, 1), payload(5, 0)];
        let bytes = file_of(u64::from(u32::MAX) + 4, &payloads);
        let found = records(&bytes, 3);
        assert!(found.iter().map(|r| &r.payload[..]).eq(payloads.iter().map(|p| &p[..])));
    }

    #[test]
    fn a_cut_log_keeps_earlier_records() {
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
                if let Some(Found::Bad(place)) = steps.last() {
                    assert!(place.torn, "cut at {cut} and {zeros} zeros: {place:?}");
                }
            }
        }
    }

    #[test]
    fn a_flip_damages_only_its_record() {
        let (bytes, extents) = sample();
        for zeros in [0, 1000] {
            let mut bytes = bytes.clone();
            let data = bytes.len();
            bytes.resize(data + zeros, 0);
            for at in interesting(&extents, data) {
                let flip = 1 << (at % 8);
                bytes[at] ^= flip;
                let steps = steps(&bytes, 9);
                let place = steps.iter().position(|step| matches!(step, Found::Bad(_)));
                let before = extents.iter().filter(|&&(_, end)| end <= at).count();
                assert_eq!(place, Some(before), "flip at {at}");
                let torn = matches!(&steps[before], Found::Bad(bad) if bad.torn);
                assert!(!torn, "flip at {at}: {:?}", steps[before]);
                // A flip in the unused end of a page hits no record.
                let hit = extents.iter().any(|&(start, end)| start <= at && at < end);
                assert_eq!(steps.len(), extents.len() + usize::from(!hit), "flip at {at}");
                bytes[at] ^= flip;
            }
        }
    }

    #[test]
    fn zeroed_sectors_hide_no_later_record() {
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
            let found = steps.iter().filter(|step| matches!(step, Found::Record(_))).count();
            assert_eq!(found, extents.len() - lost, "sector at {sector}");
            let bad = steps.iter().filter_map(|step| match step {
                Found::Bad(bad) => Some(bad),
                _ => None,
            });
            assert!(bad.clone().all(|bad| bad.torn), "sector at {sector}: {steps:?}");
        }
    }

    #[test]
    fn a_stale_sector_ends_in_a_torn_record() {
        // Records of 100 bytes; the second sector was last written when it held one and a half.
        let payloads: Vec<_> = (0..12).map(|i| payload(100, 2 * i)).collect();
        let bytes = file_of(4, &payloads);
        let extents: Vec<_> = records(&bytes, 4).iter().map(|r| (r.start, r.end)).collect();
        let &(stale, _) = extents.iter().find(|(start, _)| *start > 700).unwrap();
        let mut crashed = bytes.clone();
        crashed[stale as usize..1024].fill(0);
        let steps = steps(&crashed, 4);
        let bad = steps.iter().find_map(|step| match step {
            Found::Bad(bad) => Some((bad.offset, bad.torn)),
            _ => None,
        });
        assert_eq!(bad, Some((stale, true)));
        assert!(matches!(steps.last(), Some(Found::Record(_))));
    }

    #[test]
    fn records_of_another_file_are_ignored() {
        let mut bytes = file_of(4, &[payload(50, 0)]);
        let foreign = file_of(5, &[payload(50, 0), payload(60, 2)]);
        bytes.extend_from_slice(&foreign[bytes.len()..]);
        let steps = steps(&bytes, 4);
        assert_eq!(steps.len(), 2);
        let Found::Bad(bad) = &steps[1] else { panic!("{steps:?}") };
        assert!(!bad.torn && bad.what.contains("file number 5"), "{bad:?}");
    }

    #[test]
    fn resynchronization_is_linear_on_hostile_files() {
        // Read at every other byte, this is the header of a full record of 16,129 bytes.
        let bytes: Vec<u8> = iter::repeat_n([0x01, 0x3f], 2 << 20).flatten().collect();
        let number = u64::from(u32::from_le_bytes([0x3f, 0x01, 0x3f, 0x01]));
        let (page, number32) = (&bytes[PAGE_BYTES..2 * PAGE_BYTES], low_half(number));
        assert!(claimed_start(page, 10_000..=10_001, number32).is_some());
        let started = std::time::Instant::now();
        assert_eq!(steps(&bytes, number).len(), 1);
        assert!(started.elapsed().as_millis() < 1500, "{:?}", started.elapsed());
    }

    #[test]
    fn no_read_is_longer_than_the_window() {
        let memory = MemEnv::new();
        let env = CountingEnv::new(Arc::new(memory.clone()));
        let bytes = file_of(9, &[payload(3 << 20, 0), payload(9, 2), payload(5 << 20, 4)]);
        let flipped = {
            let mut flipped = bytes.clone();
            flipped[4 << 20] ^= 1;
            flipped
        };
        for (bytes, whole) in [(&bytes, 3), (&flipped, 2)] {
            let padded = [&bytes[..], &vec![0; 7 << 20]].concat();
            memory.write_file(Path::new("/file"), &padded);
            let mut reader = RecordReader::open(&env, Path::new("/file"), 9).unwrap();
            let mut found = 0;
            loop {
                match reader.step().unwrap() {
                    Step::Record(_) => found += 1,
                    Step::Bad(bad) => assert!(!bad.torn),
                    Step::End => break,
                }
            }
            assert_eq!(found, whole);
        }
        assert_eq!(env.counts().read_bytes_max, WINDOW_BYTES as u64);
    }

    #[test]
    fn reading_stops_at_the_given_bound() {
        let (bytes, extents) = sample();
        let env = MemEnv::new();
        env.write_file(Path::new("/file"), &bytes);
        for (at, (_, end)) in extents.iter().enumerate() {
            let end = *end as u64;
            let mut reader = RecordReader::open_to(&env, Path::new("/file"), 9, end).unwrap();
            let mut last = 0;
            while let Step::Record(record) = reader.step().unwrap() {
                last = record.end;
            }
            assert_eq!((last, reader.step().unwrap()), (end, Step::End), "record {at}");
        }
    }

    proptest! {
        #[test]
        fn records_of_any_length_round_trip(lengths in proptest::collection::vec(1usize..50_000, 0..12)) {
            let payloads: Vec<_> =
                lengths.iter().enumerate().map(|(i, &n)| payload(n, i as u64)).collect();
            let bytes = file_of(77, &payloads);
            let found = records(&bytes, 77);
            let back: Vec<_> = found.iter().map(|r| r.payload.clone()).collect();
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
