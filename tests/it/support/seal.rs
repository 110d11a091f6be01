//! Files with valid checksums and contents that siftdb never writes, as a defect or an attacker
//! could leave them.
//!
//! Tables are split into blocks and assembled from any blocks. [`seal`] repairs the checksums of
//! any file, as far as it can be read. [`store_of`] makes a database of one such table. This file
//! implements docs/format.md a second time, so that the tests do not use the code that they test.
//! The package `fuzz` includes this file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Bytes before the first block.
pub const HEADER: usize = 28;
/// Bytes before every block.
pub const PREFIX: usize = 8;
/// Bytes after every block.
pub const TRAILER: usize = 5;
/// Bytes at the end of a table.
const FOOTER: usize = 56;
/// Blocks may begin at multiples of this, after zeros.
const DISK_PAGE: usize = 4096;
/// Bytes of a page; no fragment crosses the end of one.
const PAGE: usize = 32 << 10;
/// Bytes before the payload of a fragment.
const FRAGMENT_HEADER: usize = 11;
/// Bytes before the first fragment.
const FILE_HEADER: usize = 20;
/// The last sequence that a manifest of [`store_of`] knows.
pub const LAST_SEQUENCE: u64 = 1 << 40;

/// The checksum that siftdb stores for these pieces.
pub fn masked(pieces: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    pieces.iter().for_each(|piece| hasher.update(piece));
    hasher.finalize().rotate_right(15).wrapping_add(0xa282_ead8)
}

pub fn put_varint(dst: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        dst.push(value as u8 | 0x80);
        value >>= 7;
    }
    dst.push(value as u8);
}

/// The first varint, and the rest.
pub fn take_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u128;
    for (at, &byte) in bytes.iter().take(10).enumerate() {
        value |= u128::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Some((u64::try_from(value).ok()?, &bytes[at + 1..]));
        }
    }
    None
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// A block handle: offset and size.
pub type Handle = (u64, u64);

pub fn handle_bytes((offset, size): Handle) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, offset);
    put_varint(&mut bytes, size);
    bytes
}

fn handle_of(bytes: &[u8]) -> Option<Handle> {
    let (offset, rest) = take_varint(bytes)?;
    let (size, rest) = take_varint(rest)?;
    rest.is_empty().then_some((offset, size))
}

/// An encoded entry of a block: shared bytes, own bytes of the key, value.
pub type RawEntry = (u64, Vec<u8>, Vec<u8>);

/// Keys and values.
pub type KeyValues = Vec<(Vec<u8>, Vec<u8>)>;

/// The encoded entries, and the start of each.
pub fn entry_bytes(entries: &[RawEntry]) -> (Vec<u8>, Vec<u32>) {
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    for (shared, key, value) in entries {
        places.push(bytes.len() as u32);
        put_varint(&mut bytes, *shared);
        put_varint(&mut bytes, key.len() as u64);
        put_varint(&mut bytes, value.len() as u64);
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
    }
    (bytes, places)
}

/// A block without a hash index whose every entry is a restart.
pub fn flat_block(entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let whole = entries.iter().map(|(key, value)| (0, key.clone(), value.clone()));
    let (mut bytes, mut places) = entry_bytes(&whole.collect::<Vec<_>>());
    if places.is_empty() {
        places.push(0);
    }
    places.iter().for_each(|place| bytes.extend_from_slice(&place.to_le_bytes()));
    bytes.extend_from_slice(&(places.len() as u32).to_le_bytes());
    bytes
}

/// Entries of a data block, whose keys here end in whole trailers: what these are above `base`
/// takes `width` bytes.
pub fn data_entry_bytes(entries: &[RawEntry], base: u64, width: usize) -> (Vec<u8>, Vec<u32>) {
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    for (shared, key, value) in entries {
        let (own, trailer) = key.split_last_chunk().unwrap_or((key, &[0; 8]));
        places.push(bytes.len() as u32);
        put_varint(&mut bytes, *shared);
        put_varint(&mut bytes, own.len() as u64);
        put_varint(&mut bytes, value.len() as u64);
        bytes.extend_from_slice(own);
        let above = u128::from(u64::from_le_bytes(*trailer).wrapping_sub(base)).to_le_bytes();
        bytes.extend_from_slice(&above[..width]);
        bytes.extend_from_slice(value);
    }
    (bytes, places)
}

/// A data block of one entry without a hash index.
pub fn data_block(internal_key: &[u8], value: &[u8]) -> Vec<u8> {
    let (mut bytes, _) = data_entry_bytes(&[(0, internal_key.to_vec(), value.to_vec())], 0, 8);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 8]);
    bytes.extend_from_slice(&[1, 0, 0, 0]);
    bytes
}

/// The entries of a block without a hash index, as far as they can be read.
pub fn entries_of(block: &[u8]) -> KeyValues {
    let mut entries = KeyValues::new();
    let restarts = block.len().checked_sub(4).and_then(|at| u32_at(block, at)).unwrap_or(0);
    let end = block.len().saturating_sub(4 + 4 * restarts as usize);
    let mut rest = &block[..end];
    let header = |rest| {
        let (shared, rest) = take_varint(rest)?;
        let (own, rest) = take_varint(rest)?;
        let (value, rest) = take_varint(rest)?;
        Some((shared as usize, own as usize, value as usize, rest))
    };
    while let Some((shared, own, value, behind)) = header(rest) {
        let Some((key, behind)) = behind.split_at_checked(own) else { break };
        let Some((value, behind)) = behind.split_at_checked(value) else { break };
        let last = entries.last().map_or(&[][..], |(key, _)| key);
        let front = last.get(..shared).unwrap_or_default();
        entries.push(([front, key].concat(), value.to_vec()));
        rest = behind;
    }
    entries
}

/// A block, and its compression: 0 none, 1 Snappy.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    pub kind: u8,
    pub bytes: Vec<u8>,
    /// Whether it begins at a page, after zeros.
    pub at_page: bool,
}

impl Stored {
    pub fn raw(bytes: Vec<u8>) -> Self {
        Stored { kind: 0, bytes, at_page: false }
    }
}

/// The kind of a block, as in its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Data = 1,
    Filter = 2,
    FilterIndex = 3,
    Properties = 4,
    Metaindex = 5,
    Index = 6,
    RangeDeletes = 7,
}

/// The kind of block that the metaindex has under this name.
pub fn role_of(name: &[u8]) -> Role {
    match name {
        b"siftdb.properties" => Role::Properties,
        b"siftdb.rangedel" => Role::RangeDeletes,
        _ if name.starts_with(b"partitionedfilter.") => Role::FilterIndex,
        _ => Role::Filter,
    }
}

/// A block that the metaindex names, with the blocks that it names itself: partitions of a filter.
#[derive(Clone, Debug)]
pub struct Named {
    pub name: Vec<u8>,
    pub block: Stored,
    pub children: Vec<(Vec<u8>, Stored)>,
}

/// A table as blocks.
#[derive(Clone, Debug)]
pub struct Table {
    pub id: u64,
    /// 2 if a reader must have a feature, as of blocks that begin at pages.
    pub version: u32,
    /// Separators and data blocks.
    pub data: Vec<(Vec<u8>, Stored)>,
    pub named: Vec<Named>,
}

impl Table {
    /// The blocks of a file that siftdb wrote; `None` for another file.
    pub fn take_apart(file: &[u8]) -> Option<Table> {
        let footer = file.len().checked_sub(FOOTER)?;
        let word = |i: usize| u64_at(file, footer + 8 * i);
        let stored = |(offset, size): Handle| {
            let (start, end) = (offset as usize, offset.checked_add(size)? as usize);
            let at_page = start.is_multiple_of(DISK_PAGE);
            Some(Stored { kind: *file.get(end)?, bytes: file.get(start..end)?.to_vec(), at_page })
        };
        let listed = |handle| {
            let entries = entries_of(&stored(handle)?.bytes).into_iter();
            let blocks = entries.map(|(key, value)| Some((key, stored(handle_of(&value)?)?)));
            blocks.collect::<Option<Vec<_>>>()
        };
        let metaindex = entries_of(&stored((word(0)?, word(1)?))?.bytes).into_iter();
        let named = metaindex.map(|(name, value)| {
            let handle = handle_of(&value)?;
            let is_index = name.starts_with(b"partitionedfilter.");
            let children = if is_index { listed(handle)? } else { Vec::new() };
            Some(Named { name, block: stored(handle)?, children })
        });
        let named = named.collect::<Option<_>>()?;
        let (id, version) = (word(4)?, u32_at(file, footer + 44)?);
        Some(Table { id, version, data: listed((word(2)?, word(3)?))?, named })
    }

    /// The file, with valid checksums.
    pub fn assemble(&self) -> Vec<u8> {
        self.assemble_with(|index| flat_block(&index), |metaindex| flat_block(&metaindex))
    }

    /// The same, with an index and a metaindex that name these blocks.
    pub fn assemble_with(
        &self,
        index: impl Fn(KeyValues) -> Vec<u8>,
        metaindex: impl Fn(KeyValues) -> Vec<u8>,
    ) -> Vec<u8> {
        let mut file = header(self.id).to_vec();
        let mut put = |block: &Stored, role| {
            if block.at_page {
                let start = (file.len() + PREFIX).next_multiple_of(DISK_PAGE) - PREFIX;
                file.resize(start, 0);
            }
            put_block(&mut file, &block.bytes, block.kind, role, self.id)
        };
        let data = self.data.iter();
        let data: KeyValues =
            data.map(|(key, block)| (key.clone(), handle_bytes(put(block, Role::Data)))).collect();
        let mut names = KeyValues::new();
        // The properties are the last block that the metaindex names, by their place.
        let (last, first): (Vec<_>, Vec<_>) =
            self.named.iter().partition(|named| role_of(&named.name) == Role::Properties);
        for Named { name, block, children } in first.into_iter().chain(last) {
            let listed: KeyValues = children
                .iter()
                .map(|(key, block)| (key.clone(), handle_bytes(put(block, Role::Filter))))
                .collect();
            let rebuilt = Stored::raw(flat_block(&listed));
            let handle = put(if children.is_empty() { block } else { &rebuilt }, role_of(name));
            names.push((name.clone(), handle_bytes(handle)));
        }
        names.sort();
        let metaindex = put(&Stored::raw(metaindex(names)), Role::Metaindex);
        let index = put(&Stored::raw(index(data)), Role::Index);
        put_footer(&mut file, metaindex, index, (self.id, self.version));
        file
    }
}

/// The beginning of a table.
fn header(id: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(b"siftdbST");
    header[8] = 1;
    header[16..24].copy_from_slice(&id.to_le_bytes());
    let sum = masked(&[&header[..24]]);
    header[24..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// The part of the checksum of a block that covers neither contents nor compression.
fn identity(size: usize, role: Role, id: u64, offset: u64) -> Vec<u8> {
    let (size, id, offset) = ((size as u32).to_le_bytes(), id.to_le_bytes(), offset.to_le_bytes());
    [&[role as u8], &size[..], &id, &offset].concat()
}

fn prefix(size: usize, role: Role, id: u64, offset: u64) -> [u8; PREFIX] {
    let [a, b, c, d] = (size as u32).to_le_bytes();
    let [e, f, g, _] = masked(&[&identity(size, role, id, offset)]).to_le_bytes();
    [a, b, c, d, role as u8, e, f, g]
}

fn trailer(bytes: &[u8], kind: u8, role: Role, id: u64, offset: u64) -> [u8; TRAILER] {
    let identity = identity(bytes.len(), role, id, offset);
    let sum = masked(&[bytes, &[kind], &identity]).to_le_bytes();
    [kind, sum[0], sum[1], sum[2], sum[3]]
}

/// Appends a block of a table between its prefix and its trailer.
pub fn put_block(file: &mut Vec<u8>, bytes: &[u8], kind: u8, role: Role, id: u64) -> Handle {
    let offset = (file.len() + PREFIX) as u64;
    file.extend_from_slice(&prefix(bytes.len(), role, id, offset));
    file.extend_from_slice(bytes);
    file.extend_from_slice(&trailer(bytes, kind, role, id, offset));
    (offset, bytes.len() as u64)
}

/// Appends the footer of a table with this id and version.
pub fn put_footer(file: &mut Vec<u8>, metaindex: Handle, index: Handle, (id, version): (u64, u32)) {
    for word in [metaindex.0, metaindex.1, index.0, index.1, id] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&[0; 4]);
    file.extend_from_slice(&version.to_le_bytes());
    file.extend_from_slice(&[0; 8]);
    seal_footer(file);
}

fn seal_footer(file: &mut [u8]) {
    let Some(at) = file.len().checked_sub(FOOTER) else { return };
    let footer = &mut file[at..];
    let version = if footer[44] == 2 { 2u32 } else { 1 };
    footer[44..48].copy_from_slice(&version.to_le_bytes());
    footer[48..].copy_from_slice(b"siftdbST");
    let sum = masked(&[&footer[..40], &footer[44..]]);
    footer[40..44].copy_from_slice(&sum.to_le_bytes());
}

/// The table id in the footer.
pub fn table_id(file: &[u8]) -> u64 {
    file.len().checked_sub(24).and_then(|at| u64_at(file, at)).unwrap_or(0)
}

/// Repairs checksums and prefixes of every block that a reader would reach. If blocks overlap, one
/// of them stays wrong.
fn seal_table(file: &mut [u8]) {
    let Some(footer) = file.len().checked_sub(FOOTER) else { return };
    let id = table_id(file);
    // The limit is for files in which many handles name the same bytes.
    let mut budget = 64 * file.len();
    if let Some(front) = file[..footer].first_chunk_mut() {
        *front = header(id);
    }
    let mut seal_block = |file: &mut [u8], (offset, size): Handle, role| {
        let end = usize::try_from(offset.checked_add(size)?).ok()?;
        let start = offset as usize;
        if end.checked_add(TRAILER)? > footer || budget < size as usize {
            return None;
        }
        budget -= size as usize;
        let trailer = trailer(&file[start..end], file[end] & 1, role, id, offset);
        file[end..end + TRAILER].copy_from_slice(&trailer);
        if let Some(before) = file[..start].last_chunk_mut() {
            *before = prefix(size as usize, role, id, offset);
        }
        Some(entries_of(&file[start..end]))
    };
    let word = |file: &[u8], i: usize| u64_at(file, footer + 8 * i).unwrap_or(0);
    let metaindex = (word(file, 0), word(file, 1));
    let index = (word(file, 2), word(file, 3));
    let mut lists = vec![];
    for (name, value) in seal_block(file, metaindex, Role::Metaindex).unwrap_or_default() {
        let Some(handle) = handle_of(&value) else { continue };
        let entries = seal_block(file, handle, role_of(&name)).unwrap_or_default();
        if name.starts_with(b"partitioned") {
            lists.extend(entries.into_iter().map(|(_, value)| (value, Role::Filter)));
        }
    }
    let index_entries = seal_block(file, index, Role::Index).unwrap_or_default().into_iter();
    lists.extend(index_entries.map(|(_, value)| (value, Role::Data)));
    for (value, role) in lists {
        handle_of(&value).and_then(|handle| seal_block(file, handle, role));
    }
    seal_block(file, index, Role::Index);
    seal_block(file, metaindex, Role::Metaindex);
    seal_footer(file);
}

fn fragment_sum(fragment: &[u8]) -> [u8; 4] {
    masked(&[&fragment[4..]]).to_le_bytes()
}

/// Repairs the file header and every fragment of a log or manifest.
fn seal_records(file: &mut [u8]) {
    if file.len() < FILE_HEADER {
        return;
    }
    let sum = masked(&[&file[..16]]);
    file[16..20].copy_from_slice(&sum.to_le_bytes());
    let mut at = FILE_HEADER;
    while at + FRAGMENT_HEADER <= file.len() {
        let page_end = (at / PAGE + 1) * PAGE;
        let length = usize::from(u16::from_le_bytes([file[at + 4], file[at + 5]]));
        let end = at + FRAGMENT_HEADER + length;
        let is_zero = file[at..at + FRAGMENT_HEADER].iter().all(|&byte| byte == 0);
        if is_zero || end > page_end.min(file.len()) {
            at = page_end;
            continue;
        }
        let sum = fragment_sum(&file[at..end]);
        file[at..at + 4].copy_from_slice(&sum);
        at = end;
    }
}

/// Repairs the checksums of a file with this name.
pub fn seal(name: &str, file: &mut Vec<u8>) {
    if name.ends_with(".sst") {
        seal_table(file);
    } else if name.ends_with(".wal") || name.starts_with("MANIFEST-") {
        seal_records(file);
    } else if name == "CURRENT" {
        if let Some(space) = file.iter().rposition(|&byte| byte == b' ') {
            file.truncate(space + 1);
            let sum = masked(&[file]);
            file.extend_from_slice(format!("{sum:08x}\n").as_bytes());
        }
    } else if name == "STATS"
        && let Some((body, stored)) = file.split_last_chunk_mut::<4>()
    {
        *stored = masked(&[body]).to_le_bytes();
    }
}

/// A log (`b"siftdbWL"`) or manifest (`b"siftdbMF"`) of these records.
pub fn record_file(magic: &[u8; 8], number: u32, payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut file = magic.to_vec();
    file.extend_from_slice(&1u32.to_le_bytes());
    file.extend_from_slice(&number.to_le_bytes());
    file.extend_from_slice(&[0; 4]);
    for payload in payloads {
        let mut rest = &payload[..];
        let mut begun = false;
        loop {
            let mut room = PAGE - file.len() % PAGE;
            if room <= FRAGMENT_HEADER {
                file.resize(file.len() + room, 0);
                room = PAGE;
            }
            let (piece, behind) = rest.split_at(rest.len().min(room - FRAGMENT_HEADER));
            let kind = match (begun, behind.is_empty()) {
                (false, true) => 1,
                (false, false) => 2,
                (true, false) => 3,
                (true, true) => 4,
            };
            file.extend_from_slice(&[0; 4]);
            file.extend_from_slice(&(piece.len() as u16).to_le_bytes());
            file.push(kind);
            file.extend_from_slice(&number.to_le_bytes());
            file.extend_from_slice(piece);
            (rest, begun) = (behind, true);
            if rest.is_empty() {
                break;
            }
        }
    }
    seal_records(&mut file);
    file
}

/// A user key, sequence and kind as one internal key.
pub fn internal_key(user: &[u8], sequence: u64, kind: u8) -> Vec<u8> {
    [user, &(sequence << 8 | u64::from(kind)).to_le_bytes()].concat()
}

/// The varints of a property of a table; none if it cannot be read.
pub fn property(file: &[u8], name: &str) -> Vec<u64> {
    let named = Table::take_apart(file).map(|table| table.named).unwrap_or_default();
    let block = named.iter().find(|named| named.name == b"siftdb.properties");
    let entries = block.map(|named| entries_of(&named.block.bytes)).unwrap_or_default();
    let value = entries.into_iter().find(|(own, _)| own == name.as_bytes());
    let value = value.map(|(_, value)| value).unwrap_or_default();
    let mut rest = &value[..];
    let next = || {
        let (number, behind) = take_varint(rest)?;
        rest = behind;
        Some(number)
    };
    std::iter::from_fn(next).collect()
}

/// A table in a forged manifest; its range covers all keys.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    pub level: u64,
    pub number: u64,
    /// The number of entries in the manifest.
    pub entries: u64,
    pub file: &'a [u8],
}

/// The fields of the edit in a forged manifest, besides tables.
#[derive(Clone, Copy, Debug)]
pub struct Said {
    pub first_log: u64,
    pub flushed_through: u64,
    pub next_file: u64,
    pub last_sequence: u64,
}

impl Default for Said {
    fn default() -> Self {
        let (flushed_through, last_sequence) = (LAST_SEQUENCE, LAST_SEQUENCE);
        Said { first_log: 0, flushed_through, next_file: 1000, last_sequence }
    }
}

fn varints(values: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    values.iter().for_each(|&value| put_varint(&mut bytes, value));
    bytes
}

fn put_field(dst: &mut Vec<u8>, tag: u8, value: &[u8]) {
    dst.push(tag);
    put_varint(dst, value.len() as u64);
    dst.extend_from_slice(value);
}

/// A manifest of one edit with these fields and tables.
pub fn manifest(number: u32, said: Said, tables: &[Listed<'_>]) -> Vec<u8> {
    let mut edit = Vec::new();
    put_field(&mut edit, 1, b"siftdb.bytewise");
    put_field(&mut edit, 2, &NO_DATABASE);
    put_field(&mut edit, 12, &[1]);
    put_field(&mut edit, 13, &[&[0, 0, 7], &b"default"[..]].concat());
    put_field(&mut edit, 3, &varints(&[said.first_log, said.flushed_through]));
    put_field(&mut edit, 4, &varints(&[said.next_file]));
    put_field(&mut edit, 5, &varints(&[said.last_sequence]));
    put_field(&mut edit, 6, &varints(&[said.flushed_through]));
    for Listed { level, number, entries, file } in tables {
        let mut added = varints(&[*level, *number]);
        put_field(&mut added, 1, &table_id(file).to_le_bytes());
        put_field(&mut added, 2, &varints(&[file.len() as u64]));
        put_field(&mut added, 3, b"");
        // All keys up to this one, which belongs to the table.
        put_field(&mut added, 4, &[&[0][..], &[0xff; 40]].concat());
        put_field(&mut added, 5, &varints(&[*entries]));
        put_field(&mut added, 6, &[0]);
        put_field(&mut added, 7, &varints(&[LAST_SEQUENCE]));
        // What the table says of itself, or it would be refused at once.
        if let Some(count @ 1..) = property(file, "range_deletes").first() {
            put_field(&mut added, 10, &varints(&[*count]));
        }
        if let Some(count @ 1..) = property(file, "expiring").first() {
            let by = property(file, "expires_by").first().copied().unwrap_or(0);
            put_field(&mut added, 11, &varints(&[*count, by]));
        }
        put_field(&mut edit, 8, &added);
    }
    put_field(&mut edit, 9, &[1]);
    record_file(b"siftdbMF", number, &[edit])
}

/// A database id and an epoch of zeros.
pub const NO_DATABASE: [u8; 17] = [0; 17];

/// The payload of a record without `synced_through` and kind, and its kind: 1 is a start, 2 a batch.
pub type LogRecord = (Vec<u8>, u8);

/// A log under manifest 1, with these records after its start.
pub fn log(number: u32, records: &[LogRecord]) -> Vec<u8> {
    let start = [&[0, 0, 0, 1, 1, 0][..], &NO_DATABASE, &[1]].concat();
    let record = |(body, kind): &LogRecord| [&[0], &body[..], &[*kind]].concat();
    let records = records.iter().map(record);
    record_file(b"siftdbWL", number, &std::iter::once(start).chain(records).collect::<Vec<_>>())
}

/// A directory with this manifest in force, and other files.
pub fn directory_of(
    home: &Path,
    manifest: Vec<u8>,
    others: &[(&str, Vec<u8>)],
) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut current = b"siftdb 1 MANIFEST-000001 ".to_vec();
    seal("CURRENT", &mut current);
    let own = [("CURRENT", current), ("MANIFEST-000001", manifest)];
    let files = own.iter().chain(others);
    files.map(|(name, bytes)| (home.join(name), bytes.clone())).collect()
}

/// The files of a cleanly closed database with this table at level 1. The manifest says that it has
/// `entries` entries.
pub fn store_of(home: &Path, table: &[u8], entries: u64) -> BTreeMap<PathBuf, Vec<u8>> {
    let listed = Listed { level: 1, number: 2, entries, file: table };
    let manifest = manifest(1, Said::default(), &[listed]);
    directory_of(home, manifest, &[("000002.sst", table.to_vec())])
}
