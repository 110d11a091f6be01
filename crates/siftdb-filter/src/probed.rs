//! Which bits of a filter a lookup looks at, for `siftdb explain --step`.

use crate::bloom::fast_local;
use crate::bloom::leveldb;
use crate::encoding::Encoding;
use crate::hash::KeyHash;

/// The bits that a filter is asked for, given one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProbedBits {
    /// The line of 64 bytes that has all of them, and the number of lines; `None` if they are
    /// anywhere in the filter.
    pub line: Option<(u64, u64)>,
    /// Their positions, in the line if there is one.
    pub bits: Vec<usize>,
}

impl Encoding {
    /// The bits of `key` in one filter of `filter_bytes` bytes; `None` for encodings that do not
    /// answer with single bits of the filter, for the legacy one, and for policies.
    #[must_use]
    pub fn probed_bits(&self, filter_bytes: u64, key: &KeyHash<'_>) -> Option<ProbedBits> {
        match self {
            Encoding::FastLocalBloom { millibits } => {
                let (line, lines, bits) = fast_local::probed(filter_bytes, *millibits, key.xxph3());
                Some(ProbedBits { line: Some((line, lines)), bits })
            }
            Encoding::LevelDbBloom { bits_per_key } => {
                let bits = leveldb::probed(filter_bytes, *bits_per_key, key.leveldb());
                Some(ProbedBits { line: None, bits })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter of one key has its bits set and no others.
    #[test]
    fn probed_bits_are_those_that_are_set() {
        for encoding in Encoding::built_in(10_000) {
            for key in ["a", "user:07364129880", ""] {
                let hash = KeyHash::new(key.as_bytes());
                let mut builder = encoding.builder();
                builder.add_key(key.as_bytes());
                let mut filter = Vec::new();
                builder.finish(&mut filter).unwrap();
                let Some(probed) = encoding.probed_bits(filter.len() as u64, &hash) else {
                    continue;
                };
                let start = probed.line.map_or(0, |(line, _)| 512 * line as usize);
                let mut expected: Vec<usize> = probed.bits.iter().map(|bit| start + bit).collect();
                expected.sort_unstable();
                expected.dedup();
                let body = match probed.line {
                    Some((_, lines)) => 64 * lines as usize,
                    None => filter.len() - 1,
                };
                let is_set = |bit: &usize| filter[bit / 8] & (1 << (bit % 8)) != 0;
                let set: Vec<usize> = (0..8 * body).filter(is_set).collect();
                assert_eq!(set, expected, "{encoding:?} {key}");
            }
        }
    }
}
