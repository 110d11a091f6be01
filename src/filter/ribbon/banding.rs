//! Solves the equations of a Ribbon filter's keys.
//!
//! A key's hash and the seed make a [`Row`]: 128 coefficients, of which the first is 1, from slot
//! `start` on, and a result of 32 bits, one for each column. A filter is a solution: the parity of
//! coefficients and solution, column by column, is the result of every key; of another key it is
//! so by chance, with one half for each column.
//!
//! [`Banding::solve`] brings the rows into triangular form on the fly, at most one to a slot, and
//! tries up to 256 seeds; [`Banding::write_solution`] fills the segments from the last slot down
//! (slots without a row are 0). Called by `filter/ribbon/ribbon.rs`; queries use [`RowMaker`] too.

use crate::base::prefetch;
use crate::filter::ribbon::space::{BLOCK_SLOTS, Columns, SEGMENT_BYTES};

/// Rows ahead whose slot is asked for while one is added.
const LOOKAHEAD: usize = 8;

/// A key's equation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The slot of the first coefficient.
    pub start: u32,
    /// Bit `i` belongs to slot `start + i`; bit 0 is set.
    pub coefficients: u128,
    /// Bit `i` is what column `i` has to give.
    pub result: u32,
}

/// Makes rows of hashes, for one seed and number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowMaker {
    seed: u32,
    starts: u32,
}

impl RowMaker {
    /// For the seed that a trailer names and a number of slots, at least 128.
    #[must_use]
    pub fn new(ordinal_seed: u8, slots: u32) -> Self {
        let mixed = u64::from(ordinal_seed).wrapping_mul(0xc782_19a2_3eea_dd03) as u32;
        let seed = mixed ^ (mixed & 0xf0f0_f0f0) >> 4;
        RowMaker { seed, starts: slots - (BLOCK_SLOTS - 1) }
    }

    #[inline]
    fn seeded(self, hash: u64) -> u64 {
        (hash ^ u64::from(self.seed)).wrapping_mul(0x6193_d459_236a_3a0d)
    }

    #[inline]
    fn start_of(self, seeded: u64) -> u32 {
        ((u128::from(seeded) * u128::from(self.starts)) >> 64) as u32
    }

    /// Where the row of a hash starts.
    #[inline]
    #[must_use]
    pub fn start(self, hash: u64) -> u32 {
        self.start_of(self.seeded(hash))
    }

    /// The row of a hash.
    #[inline]
    #[must_use]
    pub fn row(self, hash: u64) -> Row {
        let seeded = self.seeded(hash);
        let a = seeded.wrapping_mul(0xc28f_8282_2b65_0bed);
        let coefficients = u128::from(a) << 64 | u128::from(a ^ 0xc367_844a_6e52_731d) | 1;
        Row { start: self.start_of(seeded), coefficients, result: a.swap_bytes() as u32 }
    }
}

/// 1 if the number of set bits is odd.
#[inline]
#[must_use]
pub fn parity(bits: u128) -> u32 {
    ((bits >> 64) as u64 ^ bits as u64).count_ones() & 1
}

/// Rows in triangular form: the one of a slot has its first coefficient there.
#[derive(Debug)]
pub struct Banding {
    /// 0 where a slot has no row.
    coefficients: Vec<u128>,
    results: Vec<u32>,
}

impl Banding {
    /// Memory that a banding of `slots` takes.
    #[must_use]
    pub fn memory_bytes(slots: u32) -> usize {
        slots as usize * (size_of::<u128>() + size_of::<u32>())
    }

    /// Takes the rows of all hashes, in their order, with the first seed from `first_seed` on that
    /// works. `None` if none of 256 does.
    #[must_use]
    pub fn solve(hashes: &[u64], slots: u32, first_seed: u8) -> Option<(u8, Self)> {
        let mut banding =
            Banding { coefficients: vec![0; slots as usize], results: vec![0; slots as usize] };
        for tried in 0..=u8::MAX {
            let seed = first_seed.wrapping_add(tried);
            if banding.add_all(hashes, RowMaker::new(seed, slots)) {
                return Some((seed, banding));
            }
            banding.coefficients.fill(0);
            banding.results.fill(0);
        }
        None
    }

    fn add_all(&mut self, hashes: &[u64], rows: RowMaker) -> bool {
        hashes.iter().enumerate().all(|(i, &hash)| {
            if let Some(&ahead) = hashes.get(i + LOOKAHEAD) {
                let start = rows.start(ahead) as usize;
                prefetch::prefetch_line(&self.coefficients[start]);
                prefetch::prefetch_line(&self.results[start]);
            }
            self.add(rows.row(hash))
        })
    }

    /// False if the row contradicts those before it.
    fn add(&mut self, row: Row) -> bool {
        let Row { start, mut coefficients, mut result } = row;
        let mut slot = start as usize;
        loop {
            let other = self.coefficients[slot];
            if other == 0 {
                self.coefficients[slot] = coefficients;
                self.results[slot] = result;
                return true;
            }
            coefficients ^= other;
            result ^= self.results[slot];
            if coefficients == 0 {
                // Follows from the others, such as the row of a hash that came before.
                return result == 0;
            }
            let zeros = coefficients.trailing_zeros();
            coefficients >>= zeros;
            slot += zeros as usize;
        }
    }

    /// Writes the solution to the segments of `body`, which `columns` has the places of.
    pub fn write_solution(&self, columns: Columns, body: &mut [u8]) {
        let (segments, _) = body.as_chunks_mut::<SEGMENT_BYTES>();
        // By column: the solution of the slot last reached and the 127 behind it, lowest first.
        let mut solved = [0u128; 32];
        for block in (0..self.results.len() / BLOCK_SLOTS as usize).rev() {
            let slots = block * BLOCK_SLOTS as usize..(block + 1) * BLOCK_SLOTS as usize;
            let (first, count) = columns.of(block as u32);
            for (column, segment) in segments[first..first + count].iter_mut().enumerate() {
                let mut bits = solved[column];
                for slot in slots.clone().rev() {
                    bits <<= 1;
                    let rest = parity(bits & self.coefficients[slot]);
                    bits |= u128::from(rest ^ self.results[slot] >> column & 1);
                }
                solved[column] = bits;
                *segment = bits.to_le_bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::hash::xxph3_64;
    use crate::filter::vectors;

    #[test]
    fn rows_equal_those_of_rocksdb() {
        let Some(file) = vectors::load("rocksdb_ribbon.json") else { return };
        for entry in vectors::array(&file["raw"], "entries") {
            let hash = vectors::hex_u64(entry, "hash64");
            let ordinal = vectors::number(entry, "ordinal_seed") as u8;
            let starts = vectors::number(entry, "num_starts") as u32;
            let rows = RowMaker::new(ordinal, starts + BLOCK_SLOTS - 1);
            assert_eq!(u64::from(rows.seed), vectors::number(entry, "raw_seed"));
            assert_eq!(rows.seeded(hash), vectors::hex_u64(entry, "seeded_hash"));
            let row = rows.row(hash);
            assert_eq!(row.start, rows.start(hash));
            assert_eq!(u64::from(row.start), vectors::number(entry, "start"));
            let coefficients = entry["coeff_row"].as_str().expect("hex");
            assert_eq!(row.coefficients, u128::from_str_radix(coefficients, 16).expect("hex"));
            assert_eq!(u64::from(row.result), vectors::number(entry, "result_row"));
        }
    }

    #[test]
    fn golden_row() {
        let row = RowMaker::new(37, 384).row(0x910a_2dec_8902_5cc1);
        let coefficients = 0x76e6_bfe8_64e6_3fe8_b581_3ba2_0ab4_4cf5;
        assert_eq!(row, Row { start: 238, coefficients, result: 3_904_890_486 });
    }

    #[test]
    fn seeds_are_tried_in_order_and_wrap() {
        let hashes: Vec<u64> = (0..248).map(|i| xxph3_64(&vectors::key8(i))).collect();
        let solves =
            |seed: u8| Banding::solve(&hashes, 256, seed).map(|(found, _)| found).expect("solved");
        let found: Vec<u8> = (0..=255).map(solves).collect();
        for (first, &seed) in found.iter().enumerate() {
            // The first that works, so every one from `first` to it finds the same.
            assert_eq!(found[usize::from(seed)], seed);
            assert!(first as u8 == seed || found[(first + 1) % 256] == seed);
        }
        let first_try = found.iter().enumerate().filter(|(i, seed)| *i == usize::from(**seed));
        assert!((200..256).contains(&first_try.count()), "about one in 20 fails");
    }

    #[test]
    fn banding_accepts_repeats_and_refuses_contradictions() {
        let hash = xxph3_64(b"key");
        assert!(Banding::solve(&[hash; 1_000], 256, 0).is_some());
        let rows = RowMaker::new(0, 256);
        let mut banding = Banding { coefficients: vec![0; 256], results: vec![0; 256] };
        let row = rows.row(hash);
        assert!(banding.add(row) && banding.add(row));
        assert!(!banding.add(Row { result: row.result ^ 1, ..row }));
        // More keys than slots.
        let hashes: Vec<u64> = (0..400).map(|i| xxph3_64(&vectors::key8(i))).collect();
        assert!(Banding::solve(&hashes, 256, 0).is_none());
    }
}
