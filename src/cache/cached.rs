//! What the block cache hands out, and the short way back to it.
//!
//! A [`Cached`] value is held by the cache, by readers, or by both. [`Slots`] belong to whoever
//! keeps asking for the same values by number, for instance the index of a table: a value that the
//! cache takes or has is put into its slot, and from then on is found there, with no lock, no hash
//! and no count that another core writes. An evicted value leaves its slot. What a full cache did
//! not take, a slot remembers for a while, since it is taken when it is asked for again.
//!
//! Called by `cache/cache.rs`; `table` owns slots and reads them. Invariants: a value enters a slot
//! only under the lock of its shard, while the cache holds it, so that no slot keeps what was
//! evicted (I19); values do not keep slots alive.

use crate::base::prefetch::prefetch_line;
use crate::base::sync::plain::AtomicU32;
use crate::base::sync::{Arc, ArcSwapOption, AtomicBool, AtomicU64, Mutex, Ordering};
use arc_swap::Guard;
use std::ops::Deref;
use std::sync::Weak;

/// A value that the cache holds, held, or served without keeping it.
pub struct Cached<V> {
    value: V,
    /// Found in its slot since the cache last asked.
    used: AtomicBool,
    evicted: AtomicBool,
    charge: u64,
    /// Where the bytes are counted between eviction and drop; none if never kept.
    pinned: Option<Arc<AtomicU64>>,
    home: Mutex<Option<Home<V>>>,
}

/// The slot that a value is in.
struct Home<V> {
    slots: Weak<Slots<V>>,
    number: usize,
}

/// Places for values that are asked for by number.
pub struct Slots<V>(Box<[Place<V>]>);

struct Place<V> {
    value: ArcSwapOption<Cached<V>>,
    /// What the owner of the slots wants to know of a value that is loaded again.
    note: AtomicU32,
    /// The turn at which the value was asked for and not kept; 0 for never.
    asked: AtomicU32,
}

/// One of them.
pub struct Slot<'s, V> {
    slots: &'s Arc<Slots<V>>,
    number: usize,
}

/// What a slot held when it was read.
pub type Slotted<V> = Guard<Option<Arc<Cached<V>>>>;

impl<V> Cached<V> {
    /// A value that the cache does not keep.
    pub fn unkept(value: V) -> Self {
        Self::new(value, 0, None)
    }

    /// A value for the cache to keep, which counts `charge` bytes; while readers hold them beyond
    /// its eviction, they are counted in `pinned`.
    pub fn kept(value: V, charge: u64, pinned: &Arc<AtomicU64>) -> Self {
        Self::new(value, charge, Some(Arc::clone(pinned)))
    }

    fn new(value: V, charge: u64, pinned: Option<Arc<AtomicU64>>) -> Self {
        let (used, evicted) = (AtomicBool::new(false), AtomicBool::new(false));
        Cached { value, used, evicted, charge, pinned, home: Mutex::new(None) }
    }

    /// Bytes it counts in the cache.
    pub fn charge(&self) -> u64 {
        self.charge
    }

    /// True if the cache let go of it.
    #[cfg(any(test, feature = "interleavings"))]
    pub fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Whether it was found in its slot since this was last asked.
    pub fn take_used(&self) -> bool {
        self.used.load(Ordering::Relaxed) && self.used.swap(false, Ordering::Relaxed)
    }

    /// Puts it into `slot`. Only under the lock of its shard, while the shard holds it. Answers
    /// what was there before, to be dropped without that lock.
    #[must_use]
    pub fn enter(self: &Arc<Self>, slot: Slot<'_, V>) -> Option<Arc<Self>> {
        // I19: the shard is locked and holds the value, so nobody has evicted it.
        debug_assert!(!self.evicted.load(Ordering::Relaxed), "an evicted value enters no slot");
        let place = slot.slots.0.get(slot.number)?;
        let home = Home { slots: Arc::downgrade(slot.slots), number: slot.number };
        let before = self.home.lock().replace(home);
        // Of an index that was loaded again while someone still holds the first copy of it.
        if let Some(before) = before {
            self.leave(&before);
        }
        place.value.swap(Some(Arc::clone(self)))
    }

    /// Takes it out of its slot and counts it as pinned. Called once, when no shard holds it.
    pub fn evict(self: &Arc<Self>) {
        // I19, the other half: evicted once, and out of its slot.
        debug_assert!(!self.evicted.load(Ordering::Relaxed), "a value is evicted once");
        if let Some(home) = self.home.lock().take() {
            self.leave(&home);
            debug_assert!(!self.is_in(&home), "an evicted value left its slot");
        }
        if let Some(pinned) = &self.pinned {
            // Counted before the flag is set: the drop that sees the flag takes it off again.
            pinned.fetch_add(self.charge, Ordering::Relaxed);
            self.evicted.store(true, Ordering::Release);
        }
    }

    /// Empties the slot, if this value is in it: another load of the same block may have taken the
    /// place already.
    fn is_in(self: &Arc<Self>, home: &Home<V>) -> bool {
        let slots = home.slots.upgrade();
        let place = slots.as_ref().and_then(|slots| slots.0.get(home.number));
        place.is_some_and(|place| {
            place.value.load().as_ref().is_some_and(|held| Arc::ptr_eq(held, self))
        })
    }

    fn leave(self: &Arc<Self>, home: &Home<V>) {
        let Some(slots) = home.slots.upgrade() else { return };
        let Some(place) = slots.0.get(home.number) else { return };
        let there = place.value.load();
        if there.as_ref().is_some_and(|held| Arc::ptr_eq(held, self)) {
            place.value.compare_and_swap(&there, None);
        }
    }
}

impl<V> Drop for Cached<V> {
    fn drop(&mut self) {
        if let Some(pinned) = &self.pinned
            && *self.evicted.get_mut()
        {
            pinned.fetch_sub(self.charge, Ordering::Relaxed);
        }
    }
}

impl<V> Deref for Cached<V> {
    type Target = V;

    #[inline]
    fn deref(&self) -> &V {
        &self.value
    }
}

impl<V: AsRef<[u8]>> AsRef<[u8]> for Cached<V> {
    fn as_ref(&self) -> &[u8] {
        self.value.as_ref()
    }
}

impl<V> Slots<V> {
    /// So many slots, all empty.
    pub fn new(count: usize) -> Arc<Self> {
        let empty = |_| Place {
            value: ArcSwapOption::empty(),
            note: AtomicU32::new(0),
            asked: AtomicU32::new(0),
        };
        Arc::new(Slots((0..count).map(empty).collect()))
    }

    /// Slot `number`, which may be beyond the last: it is then always empty.
    #[inline]
    pub fn slot(self: &Arc<Self>, number: usize) -> Slot<'_, V> {
        Slot { slots: self, number }
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// Lets go of the places that hold something, and of those alone.
///
/// To drop a place is to look through the debts of every thread that ever read one, some 30 ns even
/// if it is empty, and an index has thousands of them. An empty place owns nothing: no value, and
/// no memory beside its own, which goes with the slice. Nobody is looking into it any more, since
/// whoever does borrows the slots; and who found it empty, and still holds that, holds nothing.
impl<V> Drop for Slots<V> {
    fn drop(&mut self) {
        for place in std::mem::take(&mut self.0) {
            if place.value.load().is_none() {
                std::mem::forget(place);
            }
        }
    }
}

impl<V> std::fmt::Debug for Slots<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slots({})", self.0.len())
    }
}

impl<V> Clone for Slot<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Slot<'_, V> {}

impl<V> Slot<'_, V> {
    /// What it holds; notes that it was of use.
    #[inline]
    pub fn get(self) -> Option<Slotted<V>> {
        let there = self.slots.0.get(self.number)?.value.load();
        let value = there.as_ref()?;
        // Written at most once between two evictions, so that readers share the line in peace.
        if !value.used.load(Ordering::Relaxed) {
            value.used.store(true, Ordering::Relaxed);
        }
        Some(there)
    }

    /// What was noted last; 0 if nothing was. It stays when the value goes.
    #[inline]
    pub fn note(self) -> u32 {
        self.slots.0.get(self.number).map_or(0, |place| place.note.load(Ordering::Relaxed))
    }

    /// Notes something of its value.
    pub fn set_note(self, note: u32) {
        if let Some(place) = self.slots.0.get(self.number) {
            place.note.store(note, Ordering::Relaxed);
        }
    }

    /// Notes that its value is asked for at turn `now`, and is not kept. True if the last time is
    /// not more than `within` turns ago, which is then forgotten: the value is kept now.
    pub fn asked_again(self, now: u32, within: u32) -> bool {
        let Some(place) = self.slots.0.get(self.number) else { return false };
        let last = place.asked.load(Ordering::Relaxed);
        // Turns begin anew after 2^32 of them: then a value may be kept one request early.
        let again = last != 0 && now.wrapping_sub(last) <= within;
        place.asked.store(if again { 0 } else { now.max(1) }, Ordering::Relaxed);
        again
    }

    /// Asks the processor for what whoever gets what it holds will look at first. Waits for none
    /// of it.
    #[inline]
    pub fn prefetch(self) {
        let there = self.slots.0.get(self.number).map(|place| place.value.load());
        if let Some(value) = there.as_deref().and_then(Option::as_deref) {
            prefetch_line(value);
            prefetch_line(&value.value);
            prefetch_line(&value.used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_clears_only_its_own_slot() {
        let pinned = Arc::new(AtomicU64::new(0));
        let slots = Slots::new(2);
        let held = |number| slots.slot(number).get().and_then(|held| held.as_ref().map(|v| ***v));
        let first = Arc::new(Cached::kept(1, 10, &pinned));
        assert!(first.enter(slots.slot(0)).is_none());
        assert_eq!((held(0), held(1), held(2)), (Some(1), None, None));
        assert!(first.take_used() && !first.take_used());
        // The block was loaded again before the first copy of it left.
        let second = Arc::new(Cached::kept(2, 10, &pinned));
        assert!(second.enter(slots.slot(0)).is_some_and(|before| Arc::ptr_eq(&before, &first)));
        first.evict();
        assert_eq!((held(0), pinned.load(Ordering::Relaxed)), (Some(2), 10));
        second.evict();
        assert_eq!((held(0), pinned.load(Ordering::Relaxed)), (None, 20));
        drop((first, second));
        assert_eq!(pinned.load(Ordering::Relaxed), 0);
    }

    /// An index was evicted while an iterator held it, and loaded again: blocks that both copies
    /// had found stayed in the slots of the first when they were evicted. Found by reviewing.
    #[test]
    fn a_value_occupies_one_slot_only() {
        let [held, again] = [Slots::new(1), Slots::new(1)];
        let value = Arc::new(Cached::unkept(1));
        assert!(value.enter(held.slot(0)).is_none());
        assert!(value.enter(again.slot(0)).is_none());
        assert!(held.slot(0).get().is_none() && again.slot(0).get().is_some());
        assert!(value.enter(again.slot(0)).is_none(), "the same slot once more");
        assert!(again.slot(0).get().is_some());
        value.evict();
        assert!(again.slot(0).get().is_none());
    }

    /// Whatever happened at a place before.
    #[test]
    fn dropped_slots_release_their_values() {
        let values: Vec<_> = (0..4).map(|number| Arc::new(Cached::unkept(number))).collect();
        let slots = Slots::new(40);
        for (value, places) in values.iter().zip([&[0][..], &[13, 14], &[20], &[20, 39]]) {
            for &place in places {
                drop(value.enter(slots.slot(place)));
            }
        }
        values[0].evict();
        assert!(values[0].enter(slots.slot(7)).is_none());
        let [emptied, moved, replaced, last] = [0, 13, 20, 39].map(|at| slots.slot(at).get());
        assert!(emptied.is_none() && moved.is_none() && replaced.is_none() && last.is_some());
        drop(last);
        drop(slots);
        for value in values {
            assert_eq!(Arc::strong_count(&value), 1, "{}", **value);
        }
    }

    #[test]
    fn recent_use_lasts_several_turns() {
        let slots: Arc<Slots<u64>> = Slots::new(2);
        let slot = slots.slot(1);
        assert!(!slot.asked_again(0, 10));
        assert!(slot.asked_again(10, 10) && !slot.asked_again(11, 10), "kept, so it starts anew");
        assert!(!slots.slot(0).asked_again(12, 10), "another value");
        assert!(!slot.asked_again(22, 10), "eleven turns");
        assert!(slot.asked_again(23, 10));
        assert!(!slot.asked_again(u32::MAX, 10));
        assert!(slot.asked_again(3, 10), "turns began anew");
        assert!(!slots.slot(2).asked_again(1, 10) && !slots.slot(2).asked_again(1, 10), "no slot");
    }

    #[test]
    fn slots_and_values_outlive_each_other() {
        let value = Arc::new(Cached::unkept(1));
        let slots = Slots::new(1);
        assert!(value.enter(slots.slot(0)).is_none());
        assert!(value.enter(slots.slot(1)).is_none(), "there is no such slot");
        drop(slots);
        assert_eq!(Arc::strong_count(&value), 1);
        value.evict();
        let slots = Slots::new(1);
        let value = Arc::new(Cached::unkept(2));
        assert!(value.enter(slots.slot(0)).is_none());
        let weak = Arc::downgrade(&value);
        drop(value);
        assert!(slots.slot(0).get().is_some());
        drop(slots);
        assert!(weak.upgrade().is_none());
    }
}
