//! What a filter is built from: hashes or keys in the order they came, repeats dropped.
//!
//! Called by `filter/builder.rs`. Keys come sorted, so several versions of one user key are
//! neighbours, and so are the keys of one *alternate*, a second name under which a key is added
//! (its prefix). The rule of what is dropped is RocksDB's to the letter, since the number of
//! entries decides the size of a filter and so its bytes:
//!
//! - a key, unless it equals the last entry; with an alternate also unless it equals the alternate
//!   before;
//! - its alternate, ahead of it, unless it equals the alternate before, the key, or the last entry.
//!
//! "Last entry" and "alternate before" are those of before the call. The alternate goes first, so
//! that the last entry is the key wherever one was added. [`clear`](Hashes::clear) forgets both:
//! whatever the next filter is asked for must be in the next filter. For hashes, equal means an
//! equal hash; users' policies are given keys, and there it means equal bytes.
//!
//! Hashes carry the XOR of all that were added, so that one that changed in memory before its
//! filter was made can be told (two equal changes escape: it is no proof).

use std::ops::BitXor;

/// Hashes of keys.
#[derive(Debug, Default)]
pub struct Hashes<H> {
    list: Vec<H>,
    /// XOR of all that were pushed.
    checksum: H,
    previous_alternate: Option<H>,
}

impl<H: Copy + Default + PartialEq + BitXor<Output = H>> Hashes<H> {
    /// Adds a key; also one that equals the last entry, if `keep_repeats`.
    #[inline]
    pub fn add(&mut self, key: H, keep_repeats: bool) {
        if keep_repeats || self.list.last() != Some(&key) {
            self.push(key);
        }
    }

    #[inline]
    fn push(&mut self, hash: H) {
        self.list.push(hash);
        self.checksum = self.checksum ^ hash;
    }

    /// Adds a key and its alternate.
    pub fn add_with_alternate(&mut self, key: H, alternate: H) {
        let last = self.list.last().copied();
        let before = self.previous_alternate.replace(alternate);
        if wants_alternate(alternate, key, last, before) {
            self.push(alternate);
        }
        if wants_key(key, last, before) {
            self.push(key);
        }
    }

    /// The entries.
    #[inline]
    pub fn as_slice(&self) -> &[H] {
        &self.list
    }

    /// Whether the entries are those that were added.
    pub fn are_sound(&self) -> bool {
        self.list.iter().fold(H::default(), |sum, &hash| sum ^ hash) == self.checksum
    }

    /// Changes the first entry, as failing memory would.
    #[cfg(test)]
    pub fn damage(&mut self, to: H) {
        self.list[0] = to;
    }

    /// Memory that the entries take, without room for more.
    #[inline]
    pub fn used_bytes(&self) -> usize {
        self.list.len() * size_of::<H>()
    }

    /// Memory that they take.
    pub fn memory_bytes(&self) -> usize {
        self.list.capacity() * size_of::<H>()
    }

    /// Forgets everything but its memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.checksum = H::default();
        self.previous_alternate = None;
    }
}

/// Keys, one behind the other, and where each ends.
#[derive(Debug, Default)]
pub struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    previous_alternate: Option<Vec<u8>>,
}

impl Keys {
    /// Adds a key; also one that equals the last entry, if `keep_repeats`.
    pub fn add(&mut self, key: &[u8], keep_repeats: bool) {
        if keep_repeats || self.last() != Some(key) {
            self.push(key);
        }
    }

    /// Adds a key and its alternate.
    pub fn add_with_alternate(&mut self, key: &[u8], alternate: &[u8]) {
        let (last, before) = (self.last(), self.previous_alternate.as_deref());
        let alternate_wanted = wants_alternate(alternate, key, last, before);
        let key_wanted = wants_key(key, last, before);
        if alternate_wanted {
            self.push(alternate);
        }
        if key_wanted {
            self.push(key);
        }
        let previous = self.previous_alternate.get_or_insert_default();
        previous.clear();
        previous.extend_from_slice(alternate);
    }

    /// The entries, sorted. Prefixes that do not sort where their keys do can be out of place.
    pub fn sorted(&self) -> Vec<&[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let mut keys: Vec<&[u8]> =
            starts.zip(&self.ends).filter_map(|(start, &end)| self.bytes.get(start..end)).collect();
        if !keys.is_sorted() {
            keys.sort_unstable();
        }
        keys
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Memory that the entries take, without room for more.
    #[inline]
    pub fn used_bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<usize>()
    }

    /// Memory that they take.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// Forgets everything but its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.previous_alternate = None;
    }

    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn last(&self) -> Option<&[u8]> {
        let (_, before) = self.ends.split_last()?;
        self.bytes.get(before.last().copied().unwrap_or(0)..)
    }
}

#[inline]
fn wants_alternate<T: PartialEq>(alternate: T, key: T, last: Option<T>, before: Option<T>) -> bool {
    let alternate = Some(alternate);
    alternate != before && alternate != Some(key) && alternate != last
}

#[inline]
fn wants_key<T: PartialEq>(key: T, last: Option<T>, before: Option<T>) -> bool {
    let key = Some(key);
    key != last && key != before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::hash::{leveldb_hash, xxph3_64};

    /// Each key with its alternate, and how many entries there are after it.
    const SCRIPT: [(&str, Option<&str>, usize); 13] = [
        ("abc", None, 1),
        ("abc1", Some("abc"), 2), // the alternate is the last entry
        ("abc1", Some("abc"), 2),
        ("abc2", Some("abc"), 3),
        ("bc1", Some("bc"), 5),
        ("bc", Some("bc"), 5), // the key is the alternate before
        ("def1", Some("def"), 7),
        ("def1", Some("def"), 7),
        ("def", None, 8), // without an alternate of its own it counts
        ("def2", Some("def"), 9),
        ("", Some(""), 10), // the empty key is its own alternate
        ("g", Some(""), 11),
        ("g", None, 11),
    ];

    #[test]
    fn hashes_and_bytes_drop_equal_repeats() {
        let (mut wide, mut narrow, mut bytes) =
            (Hashes::default(), Hashes::default(), Keys::default());
        for (key, alternate, entries) in SCRIPT {
            let k = key.as_bytes();
            if let Some(a) = alternate.map(str::as_bytes) {
                wide.add_with_alternate(xxph3_64(k), xxph3_64(a));
                narrow.add_with_alternate(leveldb_hash(k), leveldb_hash(a));
                bytes.add_with_alternate(k, a);
            } else {
                wide.add(xxph3_64(k), false);
                narrow.add(leveldb_hash(k), false);
                bytes.add(k, false);
            }
            let found = [wide.as_slice().len(), narrow.as_slice().len(), bytes.len()];
            assert_eq!(found, [entries; 3], "{key:?} {alternate:?}");
        }
        assert!(wide.memory_bytes() > 0 && bytes.memory_bytes() > 0);
    }

    #[test]
    fn a_hash_that_changes_is_noticed() {
        let mut hashes = Hashes::default();
        for round in 0..2u64 {
            for key in 1..100 {
                hashes.add(key, false);
                hashes.add_with_alternate(key * 1_000, key * 7 + round);
                assert!(hashes.are_sound());
            }
            let first = hashes.as_slice()[0];
            for bit in 0..64 {
                hashes.damage(first ^ 1 << bit);
                assert!(!hashes.are_sound(), "bit {bit}");
            }
            hashes.clear();
            assert!(hashes.are_sound());
        }
    }

    #[test]
    fn alternates_come_before_their_key() {
        let mut keys = Keys::default();
        keys.add_with_alternate(b"ab1", b"ab");
        assert_eq!(keys.last(), Some(&b"ab1"[..]));
        assert_eq!(keys.sorted(), [&b"ab"[..], b"ab1"]);
        // An alternate that sorts below what came before it is put in its place.
        keys.add_with_alternate(b"ac", b"a");
        assert_eq!(keys.sorted(), [&b"a"[..], b"ab", b"ab1", b"ac"]);
    }

    #[test]
    fn a_cut_forgets_earlier_keys() {
        let (mut hashes, mut keys) = (Hashes::default(), Keys::default());
        for _ in 0..2 {
            for key in [1, 2] {
                hashes.add_with_alternate(key, 0);
            }
            assert_eq!(hashes.as_slice(), [0, 1, 2], "the alternate is in this filter, too");
            hashes.clear();
            keys.add_with_alternate(b"ab", b"a");
            assert_eq!(keys.sorted(), [&b"a"[..], b"ab"]);
            keys.clear();
        }
    }
}
