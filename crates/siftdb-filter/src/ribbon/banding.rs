//! Solves the equations of a Ribbon filter's keys.
//!
//! A key's hash and the seed make an [`Equation`]: 128 coefficients from slot `start` on, the first
//! of them 1, and a result of 32 bits, one for each column. A filter is a solution of all
//! equations: for every key, the parity of its coefficients and the solution, column by column, is
//! the key's result. For another key it is so by chance, one half for each column.
//!
//! Source: Dillinger and Walzer, "Ribbon filter: practically smaller than Bloom and Xor", 2021;
//! `StandardHasher` and `StandardBanding` in RocksDB's `util/ribbon_impl.h`, `BandingAdd` and
//! `InterleavedBackSubst` in its `util/ribbon_alg.h`.

use crate::cache_line;
use crate::ribbon::space::{BLOCK_SLOTS, Columns, SEGMENT_BYTES};

/// How many equations ahead a slot is prefetched.
const LOOKAHEAD: usize = 8;

/// A key's equation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Equation {
    /// The slot of the first coefficient.
    pub start: u32,
    /// Bit `i` belongs to slot `start + i`; bit 0 is set.
    pub coefficients: u128,
    /// Bit `i` is the parity that column `i` must have.
    pub result: u32,
}

/// Makes equations of hashes, for one seed and number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EquationMaker {
    seed: u32,
    starts: u32,
}

impl EquationMaker {
    /// For the seed that a trailer names and a number of slots, at least 128.
    #[must_use]
    pub fn new(ordinal_seed: u8, slots: u32) -> Self {
        let mixed = u64::from(ordinal_seed).wrapping_mul(0xc782_19a2_3eea_dd03) as u32;
        let seed = mixed ^ (mixed & 0xf0f0_f0f0) >> 4;
        EquationMaker { seed, starts: slots - (BLOCK_SLOTS - 1) }
    }

    /// Blocks that equations start in; the last one has a single start.
    pub fn starting_blocks(self) -> u32 {
        self.starts / BLOCK_SLOTS
    }

    #[inline]
    fn seeded(self, hash: u64) -> u64 {
        (hash ^ u64::from(self.seed)).wrapping_mul(0x6193_d459_236a_3a0d)
    }

    #[inline]
    fn start_of(self, seeded: u64) -> u32 {
        ((u128::from(seeded) * u128::from(self.starts)) >> 64) as u32
    }

    /// The first slot of the equation of a hash.
    #[inline]
    #[must_use]
    pub fn start(self, hash: u64) -> u32 {
        self.start_of(self.seeded(hash))
    }

    /// The equation of a hash.
    #[inline]
    #[must_use]
    pub fn equation(self, hash: u64) -> Equation {
        let seeded = self.seeded(hash);
        let a = seeded.wrapping_mul(0xc28f_8282_2b65_0bed);
        let coefficients = u128::from(a) << 64 | u128::from(a ^ 0xc367_844a_6e52_731d) | 1;
        Equation { start: self.start_of(seeded), coefficients, result: a.swap_bytes() as u32 }
    }
}

/// 1 if the number of set bits is odd.
#[inline]
#[must_use]
pub fn parity(bits: u128) -> u32 {
    ((bits >> 64) as u64 ^ bits as u64).count_ones() & 1
}

/// Equations in echelon form: the equation at a slot has its first coefficient there.
#[derive(Debug)]
pub struct Banding {
    /// 0 where a slot has no equation.
    coefficients: Vec<u128>,
    results: Vec<u32>,
}

impl Banding {
    /// Memory that a banding of `slots` takes.
    #[must_use]
    pub fn memory_bytes(slots: u32) -> usize {
        slots as usize * (size_of::<u128>() + size_of::<u32>())
    }

    /// Takes the equations of all hashes, in their order, with the first seed from `first_seed` on
    /// that has a solution. `None` if none of 256 seeds has one.
    #[must_use]
    pub fn solve(hashes: &[u64], slots: u32, first_seed: u8) -> Option<(u8, Self)> {
        let mut banding =
            Banding { coefficients: vec![0; slots as usize], results: vec![0; slots as usize] };
        for tried in 0..=u8::MAX {
            let seed = first_seed.wrapping_add(tried);
            if banding.add_all(hashes, EquationMaker::new(seed, slots)) {
                return Some((seed, banding));
            }
            banding.coefficients.fill(0);
            banding.results.fill(0);
        }
        None
    }

    fn add_all(&mut self, hashes: &[u64], equations: EquationMaker) -> bool {
        hashes.iter().enumerate().all(|(i, &hash)| {
            if let Some(&ahead) = hashes.get(i + LOOKAHEAD) {
                let start = equations.start(ahead) as usize;
                cache_line::prefetch_line(&self.coefficients[start]);
                cache_line::prefetch_line(&self.results[start]);
            }
            self.add(equations.equation(hash))
        })
    }

    /// False if the equation contradicts those before it.
    fn add(&mut self, equation: Equation) -> bool {
        let Equation { start, mut coefficients, mut result } = equation;
        let mut slot = start as usize;
        loop {
            let other = self.coefficients[slot];
            if other == 0 {
                self.coefficients[slot] = coefficients;
                self.results[slot] = result;
                return true;
            }
            // The slot is taken: subtract its equation (in GF(2), xor). The first coefficient
            // becomes 0, so the rest moves on to its new first slot. It never grows beyond 128
            // slots, because both equations start at this slot. That makes elimination cheap.
            coefficients ^= other;
            result ^= self.results[slot];
            if coefficients == 0 {
                // 0 = 0: the equation follows from the others, for example for a repeated hash.
                // 0 = 1: it contradicts them, and this seed has no solution.
                return result == 0;
            }
            let zeros = coefficients.trailing_zeros();
            coefficients >>= zeros;
            slot += zeros as usize;
        }
    }

    /// Writes the solution to `body`, in the interleaved layout that `columns` describes.
    pub fn write_solution(&self, columns: Columns, body: &mut [u8]) {
        let (segments, _) = body.as_chunks_mut::<SEGMENT_BYTES>();
        // Back substitution: from the last slot down, the bit of a slot follows from its equation
        // and the 127 bits after it, which are solved by then. Each column is a system of its own.
        // `solved` holds for each column the last 128 solved bits, the lowest slot in bit 0.
        // A slot without an equation is free: its bit becomes 0, as both of its words are 0.
        let mut solved = [0u128; 32];
        for block in (0..self.results.len() / BLOCK_SLOTS as usize).rev() {
            let slots = block * BLOCK_SLOTS as usize..(block + 1) * BLOCK_SLOTS as usize;
            let (first, count) = columns.of(block as u32);
            for (column, segment) in segments[first..first + count].iter_mut().enumerate() {
                let mut bits = solved[column];
                for slot in slots.clone().rev() {
                    // Bit 0 is 0 now, so the parity is that of the bits after the slot, and the
                    // slot's own bit is what they lack of the result.
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
    use crate::hash::xxph3_64;
    use crate::testing::vectors;

    #[test]
    fn rows_equal_those_of_rocksdb() {
        let Some(file) = vectors::load("rocksdb_ribbon.json") else { return };
        for entry in vectors::array(&file["raw"], "entries") {
            let hash = vectors::hex_u64(entry, "hash64");
            let ordinal = vectors::number(entry, "ordinal_seed") as u8;
            let starts = vectors::number(entry, "num_starts") as u32;
            let equations = EquationMaker::new(ordinal, starts + BLOCK_SLOTS - 1);
            assert_eq!(u64::from(equations.seed), vectors::number(entry, "raw_seed"));
            assert_eq!(equations.seeded(hash), vectors::hex_u64(entry, "seeded_hash"));
            let equation = equations.equation(hash);
            assert_eq!(equation.start, equations.start(hash));
            assert_eq!(u64::from(equation.start), vectors::number(entry, "start"));
            let coefficients = entry["coeff_row"].as_str().expect("hex");
            assert_eq!(equation.coefficients, u128::from_str_radix(coefficients, 16).expect("hex"));
            assert_eq!(u64::from(equation.result), vectors::number(entry, "result_row"));
        }
    }

    #[test]
    fn golden_row() {
        let equation = EquationMaker::new(37, 384).equation(0x910a_2dec_8902_5cc1);
        let coefficients = 0x76e6_bfe8_64e6_3fe8_b581_3ba2_0ab4_4cf5;
        assert_eq!(equation, Equation { start: 238, coefficients, result: 3_904_890_486 });
    }

    #[test]
    fn seeds_are_tried_in_order_and_wrap() {
        let hashes: Vec<u64> = (0..248).map(|i| xxph3_64(&vectors::key8(i))).collect();
        let solves =
            |seed: u8| Banding::solve(&hashes, 256, seed).map(|(found, _)| found).expect("solved");
        let found: Vec<u8> = (0..=255).map(solves).collect();
        for (first, &seed) in found.iter().enumerate() {
            // The first seed that works, so every seed from `first` up to it finds the same one.
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
        let equations = EquationMaker::new(0, 256);
        let mut banding = Banding { coefficients: vec![0; 256], results: vec![0; 256] };
        let equation = equations.equation(hash);
        assert!(banding.add(equation) && banding.add(equation));
        assert!(!banding.add(Equation { result: equation.result ^ 1, ..equation }));
        // More keys than slots.
        let hashes: Vec<u64> = (0..400).map(|i| xxph3_64(&vectors::key8(i))).collect();
        assert!(Banding::solve(&hashes, 256, 0).is_none());
    }
}
