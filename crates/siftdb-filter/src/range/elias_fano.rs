//! Sorted numbers in about two bits each more than their spacing takes (Elias 1974, Fano 1971).
//!
//! ```text
//! list := high: bits   one for each number, and a zero after those of each high part from 0 on
//!         low: bits    the low parts, one after the other
//! ```
//!
//! A number below `universe` is split: its low part has as many bits as an even spacing needs. The
//! high parts ascend, so they are stored as steps. Bits are numbered from the lowest of each byte,
//! and the last byte is filled with zeros. The count and the universe determine the size, so lists
//! need no directory.

/// The form of a list: how many numbers, and below which bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListShape {
    count: usize,
    low_bits: u32,
    /// Bits of the high parts.
    high_len: usize,
}

impl ListShape {
    /// `count` numbers below `universe`; both at most 2^32. `low_bits` are 31 at most, and best the
    /// logarithm of their mean spacing.
    #[inline]
    pub(crate) fn new(count: usize, universe: u64, low_bits: u32) -> Self {
        let high_max = universe.saturating_sub(1) >> low_bits;
        ListShape { count, low_bits, high_len: count + high_max as usize + 1 }
    }

    /// Size of a list.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        (self.high_len + self.count * self.low_bits as usize).div_ceil(8)
    }

    /// Appends the list of `numbers`, which ascend and are as many and as small as the shape says.
    pub(crate) fn encode(self, numbers: &[u64], dst: &mut Vec<u8>) {
        let start = dst.len();
        dst.resize(start + self.bytes(), 0);
        let Some(list) = dst.get_mut(start..) else { return };
        for (i, number) in numbers.iter().enumerate() {
            let at = (number >> self.low_bits) as usize + i;
            list.get_mut(at / 8).into_iter().for_each(|byte| *byte |= 1 << (at % 8));
        }
        // The low parts begin in the last byte of the high ones, and are written four bytes at a
        // time: a word that is read back after a write to a part of it would wait for that.
        let (mut at, mut filled) = (self.high_len / 8, self.high_len % 8);
        let mut bits = list.get(at).copied().map_or(0, u64::from);
        let low_mask = (1 << self.low_bits) - 1;
        for number in numbers {
            bits |= (number & low_mask) << filled;
            filled += self.low_bits as usize;
            if filled >= 32
                && let Some(word) = list.get_mut(at..).and_then(|rest| rest.first_chunk_mut())
            {
                *word = (bits as u32).to_le_bytes();
                (at, bits, filled) = (at + 4, bits >> 32, filled - 32);
            }
        }
        let rest = list.iter_mut().skip(at);
        rest.zip(bits.to_le_bytes()).for_each(|(byte, bits)| *byte = bits);
    }

    /// True if `list` has a number from `first` to `last`. `None` if it is malformed.
    #[inline]
    pub(crate) fn any_within(self, list: &[u8], first: u64, last: u64) -> Option<bool> {
        let mut high = first >> self.low_bits;
        let mut at = self.after_zeros(list, high as usize)?;
        // The ones before `at` are the numbers with smaller high parts.
        let mut i = at.checked_sub(high as usize)?;
        loop {
            while get_bit(list, at)? {
                let number = high << self.low_bits | self.low(list, i)?;
                if number >= first {
                    return Some(number <= last);
                }
                (at, i) = (at + 1, i + 1);
            }
            (at, high) = (at + 1, high + 1);
            if high > last >> self.low_bits || at >= self.high_len {
                return Some(false);
            }
        }
    }

    /// The numbers of `list`, as far as it is well-formed.
    pub(crate) fn decode(self, list: &[u8]) -> impl Iterator<Item = u64> {
        let ones = (0..self.high_len).step_by(64).flat_map(move |start| {
            let mut word = word_at(list, start / 8).unwrap_or_default();
            let ones = std::iter::from_fn(move || {
                let at = start + word.trailing_zeros() as usize;
                (word != 0).then(|| word &= word - 1).map(|()| at)
            });
            ones.take_while(move |at| *at < self.high_len)
        });
        ones.enumerate()
            .map_while(move |(i, at)| Some(((at - i) as u64) << self.low_bits | self.low(list, i)?))
    }

    /// The position after the first `zeros` zeros of the high parts.
    #[inline]
    fn after_zeros(self, list: &[u8], mut zeros: usize) -> Option<usize> {
        let mut start = 0;
        while zeros > 0 {
            let word = !word_at(list, start / 8)?;
            let found = word.count_ones() as usize;
            if found >= zeros {
                // Clears all zeros of the list before the wanted one.
                let word = (1..zeros).fold(word, |word, _| word & (word - 1));
                start += word.trailing_zeros() as usize + 1;
                return (start < self.high_len).then_some(start);
            }
            zeros -= found;
            start += 64;
        }
        Some(start)
    }

    #[inline]
    fn low(self, list: &[u8], i: usize) -> Option<u64> {
        if i >= self.count {
            return None;
        }
        let at = self.high_len + i * self.low_bits as usize;
        // 7 bits of the first byte and 32 of the number fit a word.
        Some(word_at(list, at / 8)? >> (at % 8) & ((1 << self.low_bits) - 1))
    }
}

#[inline]
fn get_bit(list: &[u8], at: usize) -> Option<bool> {
    list.get(at / 8).map(|byte| byte >> (at % 8) & 1 == 1)
}

/// The eight bytes from `at` on, with zeros after the last byte of the list.
#[inline]
fn word_at(list: &[u8], at: usize) -> Option<u64> {
    let rest = list.get(at..)?;
    Some(match rest.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn encoded(numbers: &[u64], universe: u64) -> (ListShape, Vec<u8>) {
        let low_bits = (universe / numbers.len() as u64).max(1).ilog2();
        let (shape, mut list) = (ListShape::new(numbers.len(), universe, low_bits), vec![0xff; 3]);
        shape.encode(numbers, &mut list);
        assert_eq!(list.drain(..3).collect::<Vec<_>>(), [0xff; 3]);
        assert_eq!(list.len(), shape.bytes());
        (shape, list)
    }

    proptest! {
        #[test]
        fn a_list_knows_its_numbers(
            mut numbers in vec(0..5_000u64, 1..80),
            spread in 1..40u64,
            ranges in vec((0..200_000u64, 0..3_000u64), 50),
        ) {
            numbers.iter_mut().for_each(|number| *number *= spread);
            numbers.sort_unstable();
            let universe = 5_000 * spread;
            let (shape, list) = encoded(&numbers, universe);
            prop_assert_eq!(shape.decode(&list).collect::<Vec<_>>(), &numbers[..]);
            for (first, width) in ranges {
                let first = first % universe;
                let last = (first + width).min(universe - 1);
                let expected = numbers.iter().any(|number| (first..=last).contains(number));
                prop_assert_eq!(shape.any_within(&list, first, last), Some(expected));
            }
        }

        #[test]
        fn malformed_lists_do_not_panic(
            list in vec(any::<u8>(), 0..40),
            count in 0..60usize,
            universe in 0..1u64 << 32,
            first in any::<u32>(),
            low_bits in 0..32u32,
        ) {
            let shape = ListShape::new(count, universe, low_bits);
            let _ = shape.any_within(&list, u64::from(first), u64::from(first) + 9);
            prop_assert!(shape.decode(&list).count() <= count);
        }
    }

    #[test]
    fn golden_list() {
        // 3 numbers below 96: 5 low bits. High parts 0, 0, 2: ones at 0, 1 and 4, three zeros.
        let (shape, list) = encoded(&[1, 31, 64], 96);
        assert_eq!((shape.low_bits, shape.high_len), (5, 6));
        // From bit 6 on: 00001, 11111, 00000, lowest bit first.
        assert_eq!(list, [0b0101_0011, 0b1111_1000, 0]);
    }

    #[test]
    fn a_list_takes_two_bits_more_than_its_spacing() {
        for (count, universe) in [(34, 34 * 256), (34, 34 * 400), (300, 300 << 10), (1, 512)] {
            let spacing = (universe as f64 / count as f64).log2();
            let bits = 8 * ListShape::new(count, universe, spacing as u32).bytes();
            let most = (count as f64 * (2.0 + spacing)).ceil() as usize + 8;
            assert!(bits <= most, "{count} numbers below {universe}: {bits} bits, not {most}");
        }
    }
}
