//! [`AppendList`]: a list that one thread appends to while others read. Nothing in it moves.
//!
//! Its buckets have 1, 2, 4, ... places and stay where they are, so a reader needs no lock, and
//! finds an element by the bits of its number.

use crate::base::sync::OnceLock;
use crate::base::sync::plain::{AtomicU32, Ordering};

/// Room for 2^25 elements. The largest write buffer and one batch have 6 GiB; no page and no large
/// value counts for less than 256 bytes.
const BUCKETS: usize = 25;

pub(crate) struct AppendList<T> {
    /// For the thread that appends.
    len: AtomicU32,
    buckets: [OnceLock<Box<[OnceLock<T>]>>; BUCKETS],
}

impl<T> Default for AppendList<T> {
    fn default() -> Self {
        AppendList { len: AtomicU32::new(0), buckets: std::array::from_fn(|_| OnceLock::new()) }
    }
}

/// The bucket of an element, and its place there.
fn place_of(number: u32) -> (usize, usize) {
    let bucket = (number + 1).ilog2();
    (bucket as usize, (number + 1 - (1 << bucket)) as usize)
}

impl<T> AppendList<T> {
    /// Appends and answers the element's number. One caller at a time; a reader learns the number
    /// by a store with Release.
    pub(crate) fn push(&self, element: T) -> u32 {
        let number = self.len.load(Ordering::Relaxed);
        let (bucket, place) = place_of(number);
        let places = self.buckets[bucket]
            .get_or_init(|| std::iter::repeat_with(OnceLock::new).take(1 << bucket).collect());
        places[place].get_or_init(|| element);
        self.len.store(number + 1, Ordering::Relaxed);
        number
    }

    /// An element that was appended.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> &T {
        let (bucket, place) = place_of(number);
        let element = self.buckets[bucket].get().and_then(|places| places[place].get());
        element.unwrap_or_else(|| unreachable!("element {number} was not appended"))
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len.load(Ordering::Relaxed)).map(|number| self.get(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_elements_stay_where_they_are() {
        let list = AppendList::default();
        assert_eq!(list.push(0), 0);
        let first: *const u32 = list.get(0);
        assert!((1..1000).all(|number| list.push(number) == number));
        assert!(list.iter().copied().eq(0..1000));
        assert_eq!(first, std::ptr::from_ref(list.get(0)));
    }
}
