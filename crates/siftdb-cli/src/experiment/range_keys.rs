//! Keys as programs have them, and ranges of them, to measure range filters with.
//!
//! Keys of a shape are drawn from a [`KeySource`], which repeats itself: [`key_set`] draws until it
//! has enough different ones. The ranges that hold no key of such a set begin at further keys of
//! the source ([`at_random`]) or directly after a key of the set ([`after_a_key`]).

use crate::experiment::keys::{KeySet, below, mix, splitmix64, swapped, unit, uuid};
use std::collections::BTreeSet;

/// The shape of keys for range filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeKeys {
    /// Random numbers in 8 bytes, big-endian.
    Integers,
    /// Random UUIDs as text, of 36 bytes.
    Uuids,
    /// Random milliseconds of a year, in 13 decimal digits.
    Timestamps,
    /// One of eight fields of a user, such as `user:00000123:name`.
    Ids,
    /// A host, path words and a number. Some hosts and words are frequent, most are rare.
    Urls,
    /// Directories and a file with a number. Some names are frequent, most are rare.
    Paths,
}

impl RangeKeys {
    /// All shapes.
    pub const ALL: [RangeKeys; 6] = [
        RangeKeys::Integers,
        RangeKeys::Uuids,
        RangeKeys::Timestamps,
        RangeKeys::Ids,
        RangeKeys::Urls,
        RangeKeys::Paths,
    ];

    /// Its name.
    pub fn label(self) -> &'static str {
        match self {
            RangeKeys::Integers => "integers",
            RangeKeys::Uuids => "uuids",
            RangeKeys::Timestamps => "timestamps",
            RangeKeys::Ids => "ids",
            RangeKeys::Urls => "urls",
            RangeKeys::Paths => "paths",
        }
    }
}

/// Keys of a shape, without end. For a set of `count` keys, it has several times as many.
#[derive(Debug)]
pub struct KeySource {
    shape: RangeKeys,
    count: usize,
    state: u64,
}

impl KeySource {
    /// The keys of a shape, for a set of `count`.
    pub fn new(shape: RangeKeys, count: usize) -> Self {
        KeySource { shape, count, state: 42 }
    }

    /// The next key. Keys repeat.
    pub(crate) fn draw(&mut self) -> Vec<u8> {
        let count = self.count;
        let text = match self.shape {
            RangeKeys::Integers => return swapped(self.random()).to_vec(),
            RangeKeys::Uuids => uuid(self.random(), self.random()),
            RangeKeys::Timestamps => {
                let year_millis = 365 * 24 * 3_600 * 1_000;
                format!("{}", 1_700_000_000_000 + self.below(year_millis) as u64)
            }
            RangeKeys::Ids => {
                let fields =
                    ["born", "city", "language", "mail", "name", "phone", "photo", "visits"];
                let user = self.below(count.max(1_000));
                format!("user:{user:08}:{}", fields[self.below(fields.len())])
            }
            RangeKeys::Urls => self.url(),
            RangeKeys::Paths => self.path(),
        };
        text.into_bytes()
    }

    fn url(&mut self) -> String {
        let site = self.zipf(5_000);
        let domain = ["com", "org", "net", "de"][site % 4];
        let host = if self.below(4) > 0 { "www".into() } else { self.word(20) };
        let mut url = format!("https://{host}.{}.{domain}", word(site));
        for _ in 0..=self.below(3) {
            url = format!("{url}/{}", self.word(300));
        }
        let number = self.below(self.count.max(100_000));
        match self.below(2) {
            0 => format!("{url}/{}-{number}", self.word(2_000)),
            _ => format!("{url}?id={number}"),
        }
    }

    fn path(&mut self) -> String {
        let top = ["home", "srv", "usr/share", "var/lib"][self.zipf(4)];
        let mut path = format!("/{top}/{}", self.word(200));
        for _ in 0..=self.below(4) {
            path = format!("{path}/{}", self.word(100));
        }
        let number = self.below(self.count.max(10_000));
        let suffix = ["jpg", "txt", "json", "log"][self.zipf(4)];
        format!("{path}/{}_{number:05}.{suffix}", self.word(50))
    }

    fn random(&mut self) -> u64 {
        splitmix64(&mut self.state)
    }

    fn below(&mut self, bound: usize) -> usize {
        below(&mut self.state, bound)
    }

    /// A number below `count`. Number `n` is drawn about `1 / (n + 1)` as often as the number 0.
    fn zipf(&mut self, count: usize) -> usize {
        ((count as f64 + 1.0).powf(unit(&mut self.state)) as usize).clamp(1, count) - 1
    }

    /// One of `count` words, by [`zipf`](Self::zipf).
    fn word(&mut self, count: usize) -> String {
        word(self.zipf(count))
    }
}

/// Word `number`, of four or six letters.
fn word(number: usize) -> String {
    let mut bits = mix(number as u64 + 1);
    let syllables = 2 + bits % 2;
    let mut letter = |letters: &[u8]| {
        bits >>= 5;
        char::from(letters[bits as usize % letters.len()])
    };
    (0..2 * syllables)
        .map(|place| letter(if place % 2 == 0 { b"bcdfghklmnprstvw" } else { b"aeiou" }))
        .collect()
}

/// `count` different keys of the source.
pub fn key_set(source: &mut KeySource, count: usize) -> KeySet {
    let mut keys = BTreeSet::new();
    while keys.len() < count {
        keys.insert(source.draw());
    }
    KeySet::new(keys)
}

/// The keys from the start on and below the end.
pub type Range = std::ops::Range<Vec<u8>>;

/// A range without a key of `keys`. It begins at a drawn key, and has the keys that begin with
/// that. One of integers is 2^-20 to 1/2 of the mean gap wide, each power of two as often. Ranges
/// with a key are drawn again. Were they cut before the key, they would pass as those after a key.
pub fn at_random(source: &mut KeySource, keys: &KeySet) -> Range {
    loop {
        let start = source.draw();
        let end = match source.shape {
            RangeKeys::Integers => {
                let gap = u64::MAX / keys.len().max(1) as u64;
                let width = (gap >> (1 + source.below(20))).max(1);
                swapped(head(&start).saturating_add(width)).to_vec()
            }
            _ => {
                // Text does not end with byte ff.
                let (last, rest) = start.split_last().unwrap_or((&0, &[]));
                [rest, &[last + 1]].concat()
            }
        };
        // The largest integer has no end above it.
        if start < end && keys.rank(&start) == keys.rank(&end) {
            return Range { start, end };
        }
    }
}

/// A range without a key of `keys`: from the successor of one of them to a place before the next.
pub fn after_a_key(source: &mut KeySource, keys: &KeySet) -> Range {
    loop {
        let at = source.below(keys.len());
        let (key, next) = (keys.key(at), keys.key(at + 1));
        let start = [key, &[0]].concat();
        let shared = shared_bytes(key, next);
        let (low, high) = (head(&key[shared..]), head(&next[shared..]));
        let end = match high.checked_sub(low) {
            // After the last key.
            None => [key, &[1]].concat(),
            Some(0 | 1) => next.to_vec(),
            Some(gap) => [&key[..shared], &swapped(low + 1 + source.random() % (gap - 1))].concat(),
        };
        if start < end {
            return Range { start, end };
        }
    }
}

/// The range of one of the keys.
pub fn of_a_key(source: &mut KeySource, keys: &KeySet) -> Range {
    let start = keys.key(source.below(keys.len())).to_vec();
    Range { end: [&start[..], &[0]].concat(), start }
}

/// How many bytes two keys have in common at their front.
pub(crate) fn shared_bytes(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// The first eight bytes as a number; a shorter key is filled up with zeros.
fn head(key: &[u8]) -> u64 {
    (0..8).fold(0, |head, place| head << 8 | u64::from(key.get(place).copied().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_ranges_hold_no_key() {
        for (shape, count) in
            RangeKeys::ALL.into_iter().flat_map(|shape| [(shape, 1), (shape, 3_000)])
        {
            let mut source = KeySource::new(shape, count);
            let keys = key_set(&mut source, count);
            assert_eq!(keys.len(), count);
            for draw in [at_random, after_a_key] {
                for _ in 0..2_000 {
                    let Range { start, end } = draw(&mut source, &keys);
                    assert!(start < end, "{shape:?}: {start:?} {end:?}");
                    assert_eq!(keys.rank(&start), keys.rank(&end), "{shape:?}: {start:?} {end:?}");
                }
            }
            let Range { start, end } = of_a_key(&mut source, &keys);
            assert_eq!(keys.rank(&start) + 1, keys.rank(&end), "{shape:?}");
        }
    }

    #[test]
    fn frequent_words_are_few() {
        let mut source = KeySource::new(RangeKeys::Urls, 10);
        let mut drawn = [0u32; 100];
        (0..10_000).for_each(|_| drawn[source.zipf(100)] += 1);
        assert!(drawn[0] > 1_000 && drawn[99] > 0 && drawn[99] < 100, "{drawn:?}");
    }
}
