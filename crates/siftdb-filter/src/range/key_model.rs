//! Keys as numbers in the same order, with more room for frequent bytes.
//!
//! An arithmetic code without its output: each byte of a key narrows an interval to the part that
//! the byte has of it, in bytewise order, and the end of the key is a symbol below all bytes. So
//! the intervals of two keys are ordered as the keys are, or one contains the other where a key is
//! cut. The parts are as large as the bytes are frequent in the table. Hexadecimal digits then take
//! 4 bits each and not 8, and cells of equal width hold about equally many keys.
//!
//! A key is cut after [`WINDOW_BYTES`] bytes, or when its interval has no room for another symbol.
//! Source of the method: Witten, Neal, Cleary, "Arithmetic coding for data compression" (1987).

/// How many bytes of a key count, after those that its block shares.
pub(crate) const WINDOW_BYTES: usize = 8;

/// The end of a key, then the 256 bytes.
const SYMBOLS: usize = 257;

/// The sum of all parts, at most.
const TOTAL_BITS: u32 = 14;

/// The part of a byte that was not counted. 257 of them are 6 % of the sum, which costs the others
/// a tenth of a bit.
const PART_MIN: u32 = 4;

/// Bytes of an encoded model.
pub const KEY_MODEL_BYTES: usize = SYMBOLS;

/// The bytes of a key that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    /// Big-endian, with zeros after the end.
    head: u64,
    /// Of the key, at most one more than fit.
    len: u8,
}

impl Window {
    /// Of what follows the shared bytes of a key.
    #[inline]
    pub(crate) fn of(rest: &[u8]) -> Self {
        let head = match rest.first_chunk() {
            Some(head) => u64::from_le_bytes(*head).swap_bytes(),
            None => {
                let bytes = rest.iter().zip([56, 48, 40, 32, 24, 16, 8]);
                bytes.fold(0, |head, (byte, shift)| head | u64::from(*byte) << shift)
            }
        };
        Window { head, len: rest.len().min(WINDOW_BYTES + 1) as u8 }
    }

    #[inline]
    fn byte(self, i: usize) -> u8 {
        (self.head >> (56 - 8 * i)) as u8
    }
}

/// The interval of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    /// Of a key and of all that begin with it, if it is cut, the smallest.
    pub low: u64,
    /// The largest.
    pub high: u64,
    /// True if no other key is in it.
    pub is_whole: bool,
}

/// How often each byte occurs.
#[derive(Clone, Debug)]
pub(crate) struct Frequencies([u64; SYMBOLS]);

impl Default for Frequencies {
    fn default() -> Self {
        Frequencies([0; SYMBOLS])
    }
}

/// How much each byte of a window counts. The first ones decide the cell; the last ones are the
/// same in many keys, such as zeros or the ends of words.
const WEIGHTS: [u64; 6] = [4, 4, 2, 2, 1, 1];

impl Frequencies {
    /// Counts the bytes of a key, and its end.
    pub(crate) fn count(&mut self, window: Window) {
        for (i, weight) in WEIGHTS.into_iter().enumerate() {
            let symbol =
                if i < usize::from(window.len) { 1 + usize::from(window.byte(i)) } else { 0 };
            if let Some(count) = self.0.get_mut(symbol) {
                *count += weight;
            }
            if symbol == 0 {
                break;
            }
        }
    }

    /// The encoded model: for each symbol its share of the most frequent one, in 255ths.
    pub(crate) fn encode(&self) -> [u8; KEY_MODEL_BYTES] {
        let most = self.0.iter().copied().max().unwrap_or_default().max(1);
        self.0.map(|count| (count.saturating_mul(255) / most) as u8)
    }
}

/// The parts of all symbols.
#[derive(Clone, Debug)]
pub(crate) struct KeyModel {
    /// Of the end of a key.
    end: Part,
    bytes: [Part; 256],
}

/// The part that a symbol has of each interval, in units of 2^-14.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    start: u16,
    width: u16,
}

impl KeyModel {
    /// The model of these shares. Every byte has a part, whether it was counted or not.
    pub(crate) fn decode(shares: &[u8; KEY_MODEL_BYTES]) -> Self {
        let sum = shares.iter().map(|share| u32::from(*share)).sum::<u32>().max(1);
        let room = (1 << TOTAL_BITS) - SYMBOLS as u32 * PART_MIN;
        let mut start = 0;
        let [end, bytes @ ..] = shares.map(|share| {
            let width = (PART_MIN + u32::from(share) * room / sum) as u16;
            start += width;
            Part { start: start - width, width }
        });
        KeyModel { end, bytes }
    }

    /// Bytes of memory.
    pub(crate) const MEMORY_BYTES: usize = size_of::<Self>();

    /// The interval of a key.
    #[inline]
    pub(crate) fn interval(&self, window: Window) -> Interval {
        let (mut low, mut width) = (0, 1 << 63);
        let mut head = window.head;
        for _ in 0..usize::from(window.len).min(WINDOW_BYTES) {
            let part = self.bytes[usize::from((head >> 56) as u8)];
            let unit: u64 = width >> TOTAL_BITS;
            if unit == 0 {
                break;
            }
            low += unit * u64::from(part.start);
            width = unit * u64::from(part.width);
            head <<= 8;
        }
        let unit = width >> TOTAL_BITS;
        let is_whole = usize::from(window.len) <= WINDOW_BYTES && unit > 0;
        if is_whole {
            width = unit * u64::from(self.end.width);
        }
        Interval { low, high: low + width - 1, is_whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn interval(model: &KeyModel, key: &[u8]) -> Interval {
        model.interval(Window::of(key))
    }

    proptest! {
        #[test]
        fn intervals_are_ordered_as_the_keys_are(
            mut keys in vec(vec(prop_oneof![Just(0u8), Just(7), Just(8), Just(255)], 0..14), 2..20),
            counted in vec(vec(any::<u8>(), 0..9), 0..40),
        ) {
            let mut frequencies = Frequencies::default();
            counted.iter().for_each(|key| frequencies.count(Window::of(key)));
            let model = KeyModel::decode(&frequencies.encode());
            keys.sort();
            for (a, b) in keys.iter().zip(&keys[1..]) {
                let (one, next) = (interval(&model, a), interval(&model, b));
                prop_assert!(one.low <= next.low && one.low <= one.high);
                prop_assert!(one == next || one.high < next.low || next.high <= one.high);
                if a != b && (one.is_whole || next.is_whole) {
                    prop_assert!(one.low < next.low && one.high < next.high);
                }
            }
        }
    }

    #[test]
    fn frequent_bytes_get_more_room() {
        let mut frequencies = Frequencies::default();
        for key in 0..5_000u32 {
            frequencies
                .count(Window::of(format!("{:08x}", key.wrapping_mul(0x9e37_79b9)).as_bytes()));
        }
        let model = KeyModel::decode(&frequencies.encode());
        let width = |key: &[u8]| {
            let Interval { low, high, .. } = interval(&model, key);
            63.0 - ((high - low) as f64).log2()
        };
        let bits = width(b"0123abcdx") / 8.0;
        assert!((3.9..4.3).contains(&bits), "{bits} bits a hexadecimal digit");
        assert!(width(b"\x01x") > 11.0, "a byte that was never counted");
        let even = KeyModel::decode(&Frequencies::default().encode());
        let mut parts = even.bytes.iter().chain([&even.end]);
        assert!(parts.all(|part| part.width == 4), "no symbol is without a part");
    }
}
