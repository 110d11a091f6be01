//! The cache lines of filter memory that one probe touches, none of them in a processor's cache.
//!
//! Counted on real filter bytes. A second reader notes each byte that it needs and stops at the
//! first unset bit, as every reader does. Its answers are compared with the library's. A filter
//! begins 16 bytes into an allocation, after a reference count. Allocations are aligned to 16
//! bytes, and each of the four positions in a line of 64 bytes occurs equally often.
//!
//! Not counted: the data index that block-based filters need first, and the top-level index of
//! partitions. *In sequence* counts dependent steps. A block-based filter ends with the offset of
//! an array. The array has the offset of the filter, and the filter has the bits.

use siftdb::filter::{Encoding, FilterReader, KeyHash, leveldb_hash, xxph3_64};
use siftdb_cli::experiment::{absent, mix, present};
use std::collections::BTreeSet;

/// Entries of a data block of 4 KiB, and the offset of the next one.
const BLOCK_ENTRIES: u64 = 33;
const BLOCK_STEP: usize = 4_120;

const PROBES: u64 = 20_000;

/// Which lines were touched. A filter in memory begins with a line.
#[derive(Default)]
struct Touched {
    lines: BTreeSet<usize>,
}

impl Touched {
    fn bytes(&mut self, at: usize, length: usize) {
        let lines = at / 64..=(at + length - 1) / 64;
        self.lines.extend(lines);
    }

    /// LevelDB's Bloom filter in `filter`, which starts at `start` of the block.
    fn leveldb(&mut self, start: usize, filter: &[u8], key: &[u8]) -> bool {
        let Some((&probes, body)) = filter.split_last() else { return false };
        self.bytes(start + body.len(), 1);
        let mut hash = leveldb_hash(key);
        let delta = hash.rotate_right(17);
        (0..probes).all(|_| {
            let bit = hash as usize % (8 * body.len());
            hash = hash.wrapping_add(delta);
            self.bytes(start + bit / 8, 1);
            body[bit / 8] & (1 << (bit % 8)) != 0
        })
    }

    /// FastLocalBloom; a filter that stays in memory has its trailer read beforehand.
    fn fast_local(&mut self, start: usize, filter: &[u8], key: &[u8], trailer: bool) -> bool {
        let Some((body, tail)) = filter.split_last_chunk::<5>() else { return false };
        if trailer {
            self.bytes(start + body.len(), 5);
        }
        let hash = xxph3_64(key);
        let lines = body.len() as u64 / 64;
        let line = 64 * (((hash & 0xffff_ffff) * lines) >> 32) as usize;
        // All bits of the line are tested at once.
        self.bytes(start + line, 64);
        let mut bits = (hash >> 32) as u32;
        (0..tail[2]).all(|_| {
            let bit = (bits >> 23) as usize;
            bits = bits.wrapping_mul(0x9e37_79b9);
            body[line + bit / 8] & (1 << (bit % 8)) != 0
        })
    }
}

/// A filter of many keys, as bytes, and how a key's own part is found in it.
struct Sample {
    contents: Vec<u8>,
    windows: bool,
}

impl Sample {
    fn full(encoding: &Encoding, keys: &[[u8; 16]]) -> Self {
        Sample { contents: filter_of(encoding, keys), windows: false }
    }

    fn block_based(encoding: &Encoding, keys: &[[u8; 16]]) -> Self {
        let (mut contents, mut offsets) = (Vec::new(), Vec::<u32>::new());
        for (block, keys) in keys.chunks(BLOCK_ENTRIES as usize).enumerate() {
            // The windows since the last block are empty.
            offsets.resize(block * BLOCK_STEP / 2048 + 1, contents.len() as u32);
            contents.extend(filter_of(encoding, keys));
        }
        let array = contents.len() as u32;
        offsets.iter().chain([&array]).for_each(|at| contents.extend(at.to_le_bytes()));
        contents.push(11);
        Sample { contents, windows: true }
    }

    /// Where the filter of a data block starts and ends.
    fn filter(&self, touched: &mut Touched, block: u64) -> std::ops::Range<usize> {
        if !self.windows {
            return 0..self.contents.len();
        }
        let end = self.contents.len();
        touched.bytes(end - 5, 5);
        let word = |at: usize| {
            let bytes = self.contents[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes) as usize
        };
        let entry = word(end - 5) + 4 * (block as usize * BLOCK_STEP / 2048);
        touched.bytes(entry, 8);
        word(entry)..word(entry + 4)
    }
}

fn filter_of(encoding: &Encoding, keys: &[[u8; 16]]) -> Vec<u8> {
    let mut builder = encoding.builder();
    keys.iter().for_each(|key| builder.add_key(key));
    let mut filter = Vec::new();
    builder.finish(&mut filter).expect("built-in encodings always build");
    filter
}

/// Lines of a probe on average.
fn count(sample: &Sample, encoding: &Encoding, keys: &[[u8; 16]], hit: bool) -> f64 {
    let reader = FilterReader::for_name(&encoding.full_name(), &[]).expect("a built-in name");
    let mut lines = 0;
    for probe in 0..PROBES {
        let place = mix(probe + 1) % keys.len() as u64;
        let key = if hit { keys[place as usize] } else { absent(place) };
        let mut touched = Touched::default();
        let part = sample.filter(&mut touched, place / BLOCK_ENTRIES);
        let filter = &sample.contents[part.clone()];
        let answer = match encoding {
            Encoding::LevelDbBloom { .. } => touched.leveldb(part.start, filter, &key),
            _ => touched.fast_local(part.start, filter, &key, sample.windows),
        };
        assert_eq!(answer, reader.may_contain(filter, &KeyHash::new(&key)));
        lines += touched.lines.len();
    }
    lines as f64 / PROBES as f64
}

pub fn print(keys: u64) {
    let mut keys: Vec<[u8; 16]> = (0..keys).map(present).collect();
    keys.sort_unstable();
    let leveldb = Encoding::LevelDbBloom { bits_per_key: 10 };
    let fast = Encoding::FastLocalBloom { millibits: 10_000 };
    println!("{:<32} {:>8} {:>8} {:>8} {:>8}", "", "bytes", "absent", "present", "in seq.");
    for (name, encoding, windows) in [
        ("block-based, LevelDB Bloom", &leveldb, true),
        ("block-based, FastLocalBloom", &fast, true),
        ("full, LevelDB Bloom", &leveldb, false),
        ("full, FastLocalBloom", &fast, false),
    ] {
        let sample = match windows {
            true => Sample::block_based(encoding, &keys),
            false => Sample::full(encoding, &keys),
        };
        let [absent, present] = [false, true].map(|hit| count(&sample, encoding, &keys, hit));
        let in_turn = if windows { 3 } else { 1 };
        let bytes = siftdb_cli::experiment::bytes(sample.contents.len() as u64);
        println!("{name:<32} {bytes:>8} {absent:>8.2} {present:>8.2} {in_turn:>8}");
    }
}
