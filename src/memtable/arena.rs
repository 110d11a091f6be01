//! [`Arena`]: the entries of a memtable, one record behind the other; all are freed together.
//!
//! ```text
//! record := trailer: word  lengths: word  key: words  value: words
//! ```
//!
//! A record is written once, by the one writer, and never changes. Readers get its [`Place`] from a
//! leaf, which stores it with Release. Records are made of atomic words because the rest of their
//! page is written while they are read: relaxed loads of them cost what other loads cost.
//!
//! Bytes are packed big-endian and padded with zeros, so that words compare as bytes do.
//!
//! A value above [`COPY_BYTES`] is no part of its record: it has an allocation of its own, which
//! reads share.

use crate::base::key::{key_head, put_key_with_trailer};
use crate::base::sync::Arc;
use crate::base::sync::plain::{AtomicU32, AtomicU64, Ordering};
use crate::base::value::{COPY_BYTES, Value};
use crate::memtable::append_list::AppendList;
use std::cmp;

/// Words of the first page: most memtables of many keyspaces stay small.
const PAGE_WORDS_MIN: usize = 128;

/// Each page has twice the words of the one before, up to this many. Zeroing a page delays a put.
const PAGE_WORDS_MAX: usize = 32 << 10;

/// Bits of a [`Place`] that count words in the page. The longest key and value fit.
const OFFSET_BITS: u32 = 16;

/// In the word of lengths: the value has an allocation of its own, and its length is its number.
const SHARED: u64 = 1 << 63;

/// Words before the key.
const HEADER_WORDS: usize = 2;

/// Where a record begins: a page in the high bits, a word of it in the low [`OFFSET_BITS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(pub u32);

#[derive(Default)]
pub(crate) struct Arena {
    pages: AppendList<Box<[AtomicU64]>>,
    /// Values above [`COPY_BYTES`].
    shared: AppendList<Arc<[u8]>>,
    /// Where the next record goes, for the writer.
    end: AtomicU32,
    /// Words of the last page, for the writer.
    page_words: AtomicU32,
}

fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(size_of::<u64>())
}

impl Arena {
    /// Appends a record; the trailer is that of an internal key. One caller at a time.
    pub(crate) fn push(&self, user_key: &[u8], trailer: u64, value: &[u8]) -> Place {
        let (inline, value_len) = match value.len() > COPY_BYTES {
            true => (&[][..], SHARED | u64::from(self.shared.push(Arc::from(value)))),
            false => (value, value.len() as u64),
        };
        let words = HEADER_WORDS + words_of(user_key.len()) + words_of(inline.len());
        let place = self.room_for(words);
        let lengths = (user_key.len() as u64) << 32 | value_len;
        let bytes = user_key.chunks(8).chain(inline.chunks(8)).map(key_head);
        for (word, new) in self.words(place).iter().zip([trailer, lengths].into_iter().chain(bytes))
        {
            word.store(new, Ordering::Relaxed);
        }
        place
    }

    /// Reserves `words` words. Begins a new page if the last one has not enough left.
    fn room_for(&self, words: usize) -> Place {
        let end = self.end.load(Ordering::Relaxed);
        let page_words = self.page_words.load(Ordering::Relaxed) as usize;
        let offset = end as usize & ((1 << OFFSET_BITS) - 1);
        let mut place = end;
        if offset + words > page_words {
            let size = (2 * page_words).clamp(PAGE_WORDS_MIN, PAGE_WORDS_MAX).max(words);
            let page = std::iter::repeat_with(AtomicU64::default).take(size).collect();
            place = self.pages.push(page) << OFFSET_BITS;
            self.page_words.store(size as u32, Ordering::Relaxed);
        }
        self.end.store(place + words as u32, Ordering::Relaxed);
        Place(place)
    }

    /// Bytes allocated for pages, and for values above [`COPY_BYTES`].
    #[cfg(test)]
    pub(crate) fn allocated(&self) -> usize {
        let words: usize = self.pages.iter().map(|page| page.len()).sum();
        let shared: usize = self.shared.iter().map(|value| value.len() + 16 + 8 + 24).sum();
        words * size_of::<u64>() + shared
    }

    /// The words of a page from `place` on.
    #[inline]
    fn words(&self, place: Place) -> &[AtomicU64] {
        &self.pages.get(place.0 >> OFFSET_BITS)[place.0 as usize & ((1 << OFFSET_BITS) - 1)..]
    }

    /// A record that was appended.
    #[inline]
    pub(crate) fn record(&self, place: Place) -> Record<'_> {
        Record { words: self.words(place), arena: self }
    }
}

/// An entry in the arena.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    /// Those of its page from its first one on.
    words: &'a [AtomicU64],
    arena: &'a Arena,
}

impl<'a> Record<'a> {
    #[inline]
    fn word(self, at: usize) -> u64 {
        self.words[at].load(Ordering::Relaxed)
    }

    /// The trailer of its internal key.
    #[inline]
    pub(crate) fn trailer(self) -> u64 {
        self.word(0)
    }

    #[inline]
    fn key_bytes(self) -> usize {
        ((self.word(1) & !SHARED) >> 32) as usize
    }

    #[inline]
    fn key_words(self) -> &'a [AtomicU64] {
        &self.words[HEADER_WORDS..HEADER_WORDS + words_of(self.key_bytes())]
    }

    /// The words of a value in the record, and its bytes; `Err` is the value elsewhere.
    #[inline]
    fn stored(self) -> Result<(&'a [AtomicU64], usize), &'a Arc<[u8]>> {
        let lengths = self.word(1);
        if lengths & SHARED != 0 {
            return Err(self.arena.shared.get(lengths as u32));
        }
        let (start, bytes) = (HEADER_WORDS + words_of(self.key_bytes()), lengths as u32 as usize);
        Ok((&self.words[start..start + words_of(bytes)], bytes))
    }

    /// The order of its user key.
    #[inline]
    pub(crate) fn compare_key(self, user_key: &[u8]) -> cmp::Ordering {
        // Zeros fill up the last words. So where all words are equal that both keys have, the
        // shorter key is the beginning of the longer one, up to zeros.
        let pairs = self.key_words().iter().zip(user_key.chunks(8));
        let mut orders =
            pairs.map(|(own, other)| own.load(Ordering::Relaxed).cmp(&key_head(other)));
        let first = orders.find(|order| order.is_ne());
        first.unwrap_or_else(|| self.key_bytes().cmp(&user_key.len()))
    }

    /// The order of its internal key: user key ascending, then trailer descending.
    #[inline]
    pub(crate) fn compare(self, user_key: &[u8], trailer: u64) -> cmp::Ordering {
        self.compare_key(user_key).then_with(|| trailer.cmp(&self.trailer()))
    }

    /// Appends the user key.
    pub(crate) fn put_user_key(self, into: &mut Vec<u8>) {
        put_bytes(into, self.key_words(), self.key_bytes());
    }

    /// Appends the internal key.
    pub(crate) fn put_internal_key(self, into: &mut Vec<u8>) {
        self.put_user_key(into);
        put_key_with_trailer(into, &[], self.trailer());
    }

    /// The value as a lookup returns it.
    pub(crate) fn value(self) -> Value {
        match self.stored() {
            Ok((words, bytes)) => {
                let mut copy = [0; COPY_BYTES];
                for (eight, word) in copy.chunks_exact_mut(8).zip(words) {
                    eight.copy_from_slice(&bytes_of(word));
                }
                Value::from(&copy[..bytes])
            }
            Err(shared) => Value::sharing(Arc::clone(shared)),
        }
    }

    /// Appends the value, or answers it if it has an allocation of its own.
    pub(crate) fn put_value(self, into: &mut Vec<u8>) -> Option<Arc<[u8]>> {
        match self.stored() {
            Ok((words, bytes)) => {
                put_bytes(into, words, bytes);
                None
            }
            Err(shared) => Some(Arc::clone(shared)),
        }
    }
}

/// The inverse of [`key_head`], of eight bytes.
#[inline]
fn bytes_of(word: &AtomicU64) -> [u8; 8] {
    word.load(Ordering::Relaxed).swap_bytes().to_le_bytes()
}

/// Appends the first `bytes` of `words`.
fn put_bytes(into: &mut Vec<u8>, words: &[AtomicU64], bytes: usize) {
    let start = into.len();
    into.reserve(size_of_val(words));
    words.iter().for_each(|word| into.extend_from_slice(&bytes_of(word)));
    into.truncate(start + bytes);
}
