//! Writes LevelDB's files, for tests: what LevelDB itself writes of the same entries, byte for byte
//! where nothing is compressed. The test `recorded_tables_are_written_again` compares both.

use crate::checksum::masked_crc32c;
use crate::internal_key::{SEQUENCE_MAX, split};
use crate::testing::{put_length_prefixed, put_u32, put_u64, put_varint};
use siftdb_filter::block_based::BlockBasedBuilder;
use siftdb_filter::encoding::Encoding;

/// An internal key and its value.
pub(crate) type Entry = (Vec<u8>, Vec<u8>);

const BLOCK_BYTES: usize = 32 << 10;
/// Of data that shares a filter.
const WINDOW_BYTES: usize = 2 << 10;

/// How a table is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableStyle {
    pub block_bytes: usize,
    pub snappy: bool,
    /// 0 for no filter.
    pub bits_per_key: u32,
}

/// The bytes of a record file.
pub(crate) fn record_file<'r>(records: impl IntoIterator<Item = &'r Vec<u8>>) -> Vec<u8> {
    let mut file = Vec::new();
    for record in records {
        let (mut rest, mut is_first) = (&record[..], true);
        while is_first || !rest.is_empty() {
            let left = BLOCK_BYTES - file.len() % BLOCK_BYTES;
            if left < 7 {
                file.resize(file.len() + left, 0);
                continue;
            }
            let part = rest.len().min(left - 7);
            let kind = match (is_first, part == rest.len()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            put_u32(&mut file, masked_crc32c(&[&[kind], &rest[..part]]));
            file.extend_from_slice(&(part as u16).to_le_bytes());
            file.push(kind);
            file.extend_from_slice(&rest[..part]);
            (rest, is_first) = (&rest[part..], false);
        }
    }
    file
}

/// A batch for a log; entries without a value are deletions.
pub(crate) fn batch(sequence: u64, entries: &[(Vec<u8>, Option<Vec<u8>>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_u64(&mut bytes, sequence);
    put_u32(&mut bytes, entries.len() as u32);
    for (key, value) in entries {
        bytes.push(u8::from(value.is_some()));
        put_length_prefixed(&mut bytes, key);
        if let Some(value) = value {
            put_length_prefixed(&mut bytes, value);
        }
    }
    bytes
}

/// The edit of a manifest: comparator, first log, and tables as level, number, bytes and the
/// entries at both ends.
pub(crate) fn edit(
    comparator: &str,
    log_number: u64,
    tables: &[(u64, u64, u64, &Entry, &Entry)],
) -> Vec<u8> {
    let mut bytes = vec![1];
    put_length_prefixed(&mut bytes, comparator.as_bytes());
    for (tag, value) in [(2, log_number), (9, 0), (3, 100), (4, 0)] {
        bytes.push(tag);
        put_varint(&mut bytes, value);
    }
    for (level, number, length, (smallest, _), (largest, _)) in tables {
        bytes.push(7);
        for field in [level, number, length] {
            put_varint(&mut bytes, *field);
        }
        put_length_prefixed(&mut bytes, smallest);
        put_length_prefixed(&mut bytes, largest);
    }
    bytes
}

/// A block of entries, and what LevelDB reckons its size to be.
#[derive(Default)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    entries: usize,
    last_key: Vec<u8>,
}

impl Block {
    /// Appends an entry.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8], restart_interval: usize) {
        let mut shared = 0;
        if self.entries.is_multiple_of(restart_interval) {
            self.restarts.push(self.bytes.len() as u32);
        } else {
            shared = key.iter().zip(&self.last_key).take_while(|(a, b)| a == b).count();
        }
        for length in [shared, key.len() - shared, value.len()] {
            put_varint(&mut self.bytes, length as u64);
        }
        self.bytes.extend_from_slice(&key[shared..]);
        self.bytes.extend_from_slice(value);
        self.last_key = key.to_vec();
        self.entries += 1;
    }

    fn estimated_bytes(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len().max(1) + 4
    }

    /// The contents of the block.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        if self.restarts.is_empty() {
            self.restarts.push(0);
        }
        for restart in &self.restarts {
            put_u32(&mut self.bytes, *restart);
        }
        put_u32(&mut self.bytes, self.restarts.len() as u32);
        self.bytes
    }
}

fn handle(offset: usize, size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, offset as u64);
    put_varint(&mut bytes, size as u64);
    bytes
}

/// Appends a block with its trailer; returns its handle.
pub(crate) fn put_block(file: &mut Vec<u8>, contents: &[u8], snappy: bool) -> Vec<u8> {
    let compressed = snap::raw::Encoder::new().compress_vec(contents).unwrap();
    let shrinks = snappy && compressed.len() < contents.len() - contents.len() / 8;
    let stored = if shrinks { &compressed } else { contents };
    let offset = file.len();
    file.extend_from_slice(stored);
    file.push(u8::from(shrinks));
    let checksum = masked_crc32c(&[&file[offset..]]);
    put_u32(file, checksum);
    handle(offset, stored.len())
}

/// A short key at or above `key` and, if there is one, below `next`: what an index holds.
fn separator(key: &[u8], next: Option<&[u8]>) -> Vec<u8> {
    let user = split(key).unwrap().0;
    let short = match next {
        Some(next) => {
            let next = split(next).unwrap().0;
            let at = user.iter().zip(next).take_while(|(a, b)| a == b).count();
            let grows =
                at < user.len().min(next.len()) && user[at] < 0xff && user[at] + 1 < next[at];
            grows.then_some(at)
        }
        None => user.iter().position(|&byte| byte != 0xff),
    };
    match short.filter(|at| at + 1 < user.len()) {
        Some(at) => {
            let mut short = user[..=at].to_vec();
            short[at] += 1;
            // The largest trailer of a value, which comes before all others of this key.
            [&short[..], &(SEQUENCE_MAX << 8 | 1).to_le_bytes()].concat()
        }
        None => key.to_vec(),
    }
}

/// A table of sorted entries.
pub(crate) fn table(entries: &[Entry], style: TableStyle) -> Vec<u8> {
    let (mut file, mut block, mut index) = (Vec::new(), Block::default(), Block::default());
    let encoding = Encoding::LevelDbBloom { bits_per_key: style.bits_per_key.max(1) };
    let mut filter = BlockBasedBuilder::new(encoding.block_based_builder(), WINDOW_BYTES);
    for (i, (key, value)) in entries.iter().enumerate() {
        filter.add_key(split(key).unwrap().0);
        block.add(key, value, 16);
        let next = entries.get(i + 1).map(|(key, _)| &key[..]);
        if next.is_none() || block.estimated_bytes() >= style.block_bytes {
            let block = std::mem::take(&mut block);
            let handle = put_block(&mut file, &block.finish(), style.snappy);
            filter.start_block(file.len() as u64).unwrap();
            index.add(&separator(key, next), &handle, 1);
        }
    }
    let mut metaindex = Block::default();
    if style.bits_per_key > 0 {
        let handle = put_block(&mut file, &filter.finish().unwrap(), false);
        metaindex.add(b"filter.leveldb.BuiltinBloomFilter2", &handle, 16);
    }
    let mut footer = put_block(&mut file, &metaindex.finish(), style.snappy);
    footer.extend(put_block(&mut file, &index.finish(), style.snappy));
    footer.resize(40, 0);
    put_u64(&mut footer, 0xdb47_7524_8b80_fb57);
    [file, footer].concat()
}
