//! [`Leaf`]: up to 15 neighbouring entries of a segment, in order, for one writer and many readers.
//!
//! The order is one word: the number of entries in its low 4 bits, then the slot of each in 4 bits.
//! An insertion fills a free slot and stores a new word, so a reader sees all of it or nothing.
//! This is the border node of Masstree (Mao, Kohler, Morris, "Cache Craftiness for Fast Multicore
//! Key-Value Storage", EuroSys 2012, section 4.6).
//!
//! When a leaf is split, its upper entries get a leaf of their own, and their slots are free here.
//! A reader may still be in such a slot when it is filled again. So [`truncate`](Leaf::truncate)
//! counts, and a reader that finds another count at its end reads again.

use crate::base::sync::plain::AtomicU32;
use crate::base::sync::{AtomicU64, Ordering, fence};
use crate::memtable::arena::Place;
use std::cmp;

/// Most entries: a word has 4 bits for each, and for their number.
pub(crate) const LEAF_ENTRIES: usize = 15;

/// No entries, and all slots in turn as the free ones.
const EMPTY: u64 = 0xedcb_a987_6543_2100;

pub(crate) struct Leaf {
    /// The slots of the entries, then those that are free.
    order: AtomicU64,
    /// How often slots became free.
    truncations: AtomicU64,
    /// The first eight bytes of each user key: they decide most comparisons.
    heads: [AtomicU64; LEAF_ENTRIES],
    places: [AtomicU32; LEAF_ENTRIES],
}

/// The places of the entries of a leaf, in order, as they were at one moment.
pub(crate) struct Places {
    places: [Place; LEAF_ENTRIES],
    len: usize,
}

impl Places {
    #[inline]
    pub(crate) fn as_slice(&self) -> &[Place] {
        &self.places[..self.len]
    }
}

#[inline]
fn len_of(order: u64) -> usize {
    (order & 15) as usize
}

/// The slot of an entry, or of a free one after them.
#[inline]
fn slot_of(order: u64, at: usize) -> usize {
    (order >> (4 + 4 * at) & 15) as usize
}

/// The order with the first free slot moved to place `at`.
fn inserted(order: u64, at: usize) -> u64 {
    let (len, slots) = (len_of(order), order >> 4);
    let up_to = |place: usize| (1 << (4 * place)) - 1;
    let later = slots & up_to(len) & !up_to(at);
    let stay = slots & up_to(at) | slots & !up_to(len + 1);
    let own = (slot_of(order, len) as u64) << (4 * at);
    (stay | own | later << 4) << 4 | (len as u64 + 1)
}

impl Leaf {
    /// A leaf of some entries in order, by their heads and places.
    pub(crate) fn of(entries: impl Iterator<Item = (u64, Place)>) -> Self {
        let leaf = Leaf {
            order: AtomicU64::new(EMPTY),
            truncations: AtomicU64::new(0),
            heads: std::array::from_fn(|_| AtomicU64::new(0)),
            places: std::array::from_fn(|_| AtomicU32::new(0)),
        };
        entries.enumerate().for_each(|(at, (head, place))| leaf.insert(at, head, place));
        leaf
    }

    /// How many entries it has. For the writer, as all that changes a leaf.
    pub(crate) fn len(&self) -> usize {
        len_of(self.order.load(Ordering::Relaxed))
    }

    /// Inserts before entry `at`; there must be room.
    pub(crate) fn insert(&self, at: usize, head: u64, place: Place) {
        let order = self.order.load(Ordering::Relaxed);
        debug_assert!(at <= len_of(order) && len_of(order) < LEAF_ENTRIES, "no room");
        let slot = slot_of(order, len_of(order));
        self.heads[slot].store(head, Ordering::Relaxed);
        self.places[slot].store(place.0, Ordering::Relaxed);
        // Release: who sees the new order sees the slot, and the record before it.
        self.order.store(inserted(order, at), Ordering::Release);
    }

    /// Removes the entries from `len` on. They are in a leaf that readers find after this one.
    pub(crate) fn truncate(&self, len: usize) {
        let order = self.order.load(Ordering::Relaxed);
        self.order.store(order & !15 | len as u64, Ordering::Release);
        // Release: who sees the new count sees the shorter order. The fence: who sees a slot that
        // is filled after this finds the new count at its end.
        self.truncations.store(self.truncations.load(Ordering::Relaxed) + 1, Ordering::Release);
        fence(Ordering::Release);
    }

    /// Calls `read` with the order, again if slots were freed meanwhile.
    #[inline]
    fn read<T>(&self, read: impl Fn(u64) -> T) -> T {
        loop {
            let before = self.truncations.load(Ordering::Acquire);
            let found = read(self.order.load(Ordering::Acquire));
            fence(Ordering::Acquire);
            if self.truncations.load(Ordering::Relaxed) == before {
                return found;
            }
        }
    }

    #[inline]
    fn place(&self, order: u64, at: usize) -> Place {
        Place(self.places[slot_of(order, at)].load(Ordering::Relaxed))
    }

    /// The places of all entries.
    pub(crate) fn places(&self) -> Places {
        self.read(|order| {
            let len = len_of(order);
            let mut places = [Place(0); LEAF_ENTRIES];
            (0..len).for_each(|at| places[at] = self.place(order, at));
            Places { places, len }
        })
    }

    /// How many entries are before the key with that head, and the place of the next one.
    /// `compare` orders the entry at a place and the key; it decides where the heads are equal.
    #[inline]
    pub(crate) fn seek(
        &self,
        head: u64,
        compare: impl Fn(Place) -> cmp::Ordering,
    ) -> (usize, Option<Place>) {
        self.read(|order| {
            let len = len_of(order);
            let (mut low, mut high) = (0, len);
            while low < high {
                let middle = (low + high) / 2;
                let own = self.heads[slot_of(order, middle)].load(Ordering::Relaxed);
                match own.cmp(&head).then_with(|| compare(self.place(order, middle))) {
                    cmp::Ordering::Less => low = middle + 1,
                    _ => high = middle,
                }
            }
            (low, (low < len).then(|| self.place(order, low)))
        })
    }

    /// A leaf of the entries from `first` on. For the writer.
    pub(crate) fn upper(&self, first: usize) -> Leaf {
        let order = self.order.load(Ordering::Relaxed);
        Leaf::of((first..len_of(order)).map(|at| {
            let head = self.heads[slot_of(order, at)].load(Ordering::Relaxed);
            (head, self.place(order, at))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn leaves_hold_what_a_vector_holds(
            steps in proptest::collection::vec(0..17_usize, 0..200),
        ) {
            let (leaf, mut model) = (Leaf::of(std::iter::empty()), Vec::new());
            for (number, step) in (0..).zip(steps) {
                if model.len() == LEAF_ENTRIES || step == 16 {
                    let half = model.len() / 2;
                    let upper = leaf.upper(half);
                    assert_eq!(upper.places().as_slice(), &model[half..]);
                    leaf.truncate(half);
                    model.truncate(half);
                } else {
                    let at = step.min(model.len());
                    leaf.insert(at, 0, Place(number));
                    model.insert(at, Place(number));
                }
                assert_eq!(leaf.places().as_slice(), &*model);
                prop_assert_eq!(leaf.len(), model.len());
                let mut slots: Vec<_> = (0..LEAF_ENTRIES)
                    .map(|at| slot_of(leaf.order.load(Ordering::Relaxed), at))
                    .collect();
                slots.sort_unstable();
                prop_assert!(slots.into_iter().eq(0..LEAF_ENTRIES), "each slot once");
            }
        }
    }

    #[test]
    fn a_seek_compares_where_heads_are_equal() {
        let leaf = Leaf::of([(1, Place(10)), (5, Place(20)), (5, Place(30))].into_iter());
        let seek = |head, place: u32| leaf.seek(head, |own| own.0.cmp(&place));
        assert_eq!(seek(0, 99), (0, Some(Place(10))));
        assert_eq!(seek(1, 10), (0, Some(Place(10))));
        assert_eq!(seek(5, 25), (2, Some(Place(30))));
        assert_eq!(seek(5, 31), (3, None));
    }
}
