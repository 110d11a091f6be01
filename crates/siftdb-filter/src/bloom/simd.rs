//! Probing one 64-byte line of a FastLocalBloom filter.
//!
//! Bit `i` of a key is the top 9 bits of `hash * 0x9e3779b9^i`, where `hash` is the high half of
//! the key's hash. On x86-64 with AVX2, detected at run time, eight bits are tested at once;
//! everywhere else one after the other. A test compares both for many lines, hashes and counts.
//!
//! Source: `FastLocalBloomImpl::HashMayMatchPrepared` in RocksDB's `util/bloom_impl.h`.
//!
//! The compiler cannot check two calls here: the use of an instruction set that is detected at run
//! time, and a load through a pointer. Miri interprets both (CONTRIBUTING.md).
#![allow(unsafe_code)]

use crate::cache_line::LINE_BYTES;

/// The multiplier from one probe to the next: 2^32 divided by the golden ratio.
pub const PROBE_STEP: u32 = 0x9e37_79b9;

/// True if all `probes` bits of `hash` are set in `line`.
#[inline]
#[must_use]
pub fn probe_line(line: &[u8; LINE_BYTES], hash: u32, probes: u32) -> bool {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, checked on the line above.
        return unsafe { avx2::probe_line(line, hash, probes) };
    }
    probe_line_scalar(line, hash, probes)
}

/// The same, one bit at a time.
#[inline]
#[must_use]
pub fn probe_line_scalar(line: &[u8; LINE_BYTES], hash: u32, probes: u32) -> bool {
    bits_in_line(hash, probes).all(|bit| line[bit / 8] & 1 << (bit % 8) != 0)
}

/// The bits that `hash` has in its line, of 512.
#[inline]
pub fn bits_in_line(mut hash: u32, probes: u32) -> impl Iterator<Item = usize> {
    (0..probes).map(move |_| {
        // The top 9 bits: a multiplication mixes upwards, so they are the best of the product.
        let bit = (hash >> 23) as usize;
        hash = hash.wrapping_mul(PROBE_STEP);
        bit
    })
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use crate::bloom::simd::PROBE_STEP;
    use crate::cache_line::LINE_BYTES;
    use std::arch::x86_64::{
        __m256i, _mm256_and_si256, _mm256_blendv_ps, _mm256_castps_si256, _mm256_castsi256_ps,
        _mm256_cmpgt_epi32, _mm256_loadu_si256, _mm256_mullo_epi32, _mm256_permutevar8x32_epi32,
        _mm256_set1_epi32, _mm256_setr_epi32, _mm256_slli_epi32, _mm256_sllv_epi32,
        _mm256_srli_epi32, _mm256_testc_si256,
    };

    /// `PROBE_STEP` to the powers 0 to 7: what each lane multiplies the hash by.
    const STEPS: [u32; 8] = powers();
    /// `PROBE_STEP` to the power 8: from one group of eight probes to the next.
    const GROUP_STEP: u32 = STEPS[7].wrapping_mul(PROBE_STEP);

    const fn powers() -> [u32; 8] {
        let mut powers = [1u32; 8];
        let mut i = 1;
        while i < 8 {
            powers[i] = powers[i - 1].wrapping_mul(PROBE_STEP);
            i += 1;
        }
        powers
    }

    #[target_feature(enable = "avx2")]
    fn lanes(values: [u32; 8]) -> __m256i {
        let v = values.map(|value| value as i32);
        _mm256_setr_epi32(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7])
    }

    #[target_feature(enable = "avx2")]
    pub fn probe_line(line: &[u8; LINE_BYTES], hash: u32, probes: u32) -> bool {
        let half = line.as_ptr().cast::<__m256i>();
        // SAFETY: the line has 64 bytes, so 32 can be read at 0 and at 32; no alignment is needed.
        let (low, high) = unsafe { (_mm256_loadu_si256(half), _mm256_loadu_si256(half.add(1))) };
        let mut hash = hash;
        let mut remaining = probes as i32;
        loop {
            let hashes = _mm256_mullo_epi32(_mm256_set1_epi32(hash as i32), lanes(STEPS));
            // The top 4 bits name one of 16 words: 3 pick within a half, the first picks the half
            // (a blend looks at the sign bit only).
            let word = _mm256_srli_epi32::<28>(hashes);
            let words = _mm256_castps_si256(_mm256_blendv_ps(
                _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, word)),
                _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, word)),
                _mm256_castsi256_ps(hashes),
            ));
            // The next 5 bits name the bit in the word. Lanes beyond the last probe ask nothing.
            let bit = _mm256_srli_epi32::<27>(_mm256_slli_epi32::<4>(hashes));
            let active =
                _mm256_cmpgt_epi32(_mm256_set1_epi32(remaining), lanes([0, 1, 2, 3, 4, 5, 6, 7]));
            let asked = _mm256_and_si256(_mm256_sllv_epi32(_mm256_set1_epi32(1), bit), active);
            if _mm256_testc_si256(words, asked) == 0 {
                return false;
            }
            if remaining <= 8 {
                return true;
            }
            remaining -= 8;
            hash = hash.wrapping_mul(GROUP_STEP);
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn multipliers_equal_the_format() {
            assert_eq!(
                STEPS,
                [
                    0x0000_0001,
                    0x9e37_79b9,
                    0xe35e_67b1,
                    0x7342_97e9,
                    0x35fb_e861,
                    0xdeb7_c719,
                    0x0448_b211,
                    0x3459_b749
                ]
            );
            assert_eq!(GROUP_STEP, 0xab25_f4c1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// xorshift64*, good enough for lines and hashes.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
        }

        /// A line in which about 1, 1/2, 3/4, 7/8 … of the bits are set, so that long runs of
        /// probes give both answers.
        fn line(&mut self, fullness: u32) -> [u8; LINE_BYTES] {
            let mut line = [0; LINE_BYTES];
            for word in line.as_chunks_mut::<8>().0 {
                let bits = (0..fullness).fold(0, |bits, _| bits | self.next());
                *word = bits.to_le_bytes();
            }
            line
        }
    }

    #[test]
    fn both_probes_agree_for_every_count() {
        // Miri takes some 25 ms for a round.
        const ROUNDS: u32 = if cfg!(miri) { 16 } else { 1500 };
        let mut random = Random(7);
        let mut yes = [0u32; 31];
        for probes in 0..=30 {
            for round in 0..ROUNDS {
                let line = random.line(1 + round % 8);
                let hash = random.next() as u32;
                let expected = probe_line_scalar(&line, hash, probes);
                assert_eq!(probe_line(&line, hash, probes), expected, "{probes} probes, {hash:#x}");
                yes[probes as usize] += u32::from(expected);
            }
        }
        // Both answers were seen at every count above zero.
        assert!(yes[1..].iter().all(|&count| (1..ROUNDS).contains(&count)), "{yes:?}");
    }

    #[test]
    fn clearing_any_bit_denies_a_key() {
        let mut random = Random(11);
        for probes in 1..=30u32 {
            let hash = random.next() as u32;
            let mut line = [0; LINE_BYTES];
            let mut x = hash;
            let bits: Vec<usize> = (0..probes)
                .map(|_| {
                    let bit = (x >> 23) as usize;
                    x = x.wrapping_mul(PROBE_STEP);
                    bit
                })
                .collect();
            for &bit in &bits {
                line[bit / 8] |= 1 << (bit % 8);
            }
            assert!(probe_line(&line, hash, probes));
            for &bit in &bits {
                let mut damaged = line;
                damaged[bit / 8] &= !(1 << (bit % 8));
                assert!(!probe_line(&damaged, hash, probes));
                assert!(!probe_line_scalar(&damaged, hash, probes));
            }
        }
    }
}
