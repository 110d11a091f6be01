//! A block as the cache hands it out, and the direct pointers from a table to its cached blocks.
//!
//! A [`Cached`] value is held by the cache, by readers, or by both. A table's index owns [`Slots`],
//! one per block, next to the heads that it searches by. The cache stores a pointer to each block
//! that it holds in the block's slot. The next reader finds the block there without a lock, a hash
//! or a reference count. An evicted block is removed from its slot. A slot also has [`Marks`]: what
//! is remembered of a block that the cache does not hold.
//!
//! `cache/cache.rs` fills and empties slots; `table/index.rs` owns them. A value is inserted into a
//! slot only under the lock of its shard and only while the cache holds it. So no slot keeps an
//! evicted value (I19). Values do not keep slots alive.

use crate::base::sync::plain::AtomicU32;
use crate::base::sync::{Arc, ArcSwapOption, AtomicBool, AtomicU64, Mutex, Ordering};
use arc_swap::Guard;
use siftdb_filter::cache_line::{prefetch_line, prefetch_line_before};
use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::Weak;

/// A value that the cache holds, held, or never kept. Aligned, and with what a reader touches in
/// front, so that a reader touches one cache line of it and of the front of the value.
#[repr(C, align(64))]
pub(crate) struct Cached<V> {
    /// A reader found it in its slot since the cache last asked.
    used: AtomicBool,
    evicted: AtomicBool,
    value: V,
    /// Bytes that it counts in the cache.
    pub charge: u64,
    /// Counts the bytes of evicted values that readers still hold. `None` if never kept.
    evicted_in_use: Option<Arc<AtomicU64>>,
    /// The slot that points to it: table index and position.
    home: Mutex<Option<(Weak<Slots<V>>, usize)>>,
}

/// One slot per block of an index, in order, each with the head that its owner searches by.
pub(crate) struct Slots<V> {
    groups: Box<[Group<V>]>,
    /// The part that only readers of uncached blocks need.
    marks: Box<[Marks]>,
}

/// What the slot of a block remembers of it while the cache does not hold it.
#[derive(Default)]
pub(crate) struct Marks {
    /// The checksum with which the block was found sound; 0 before. It survives eviction.
    checksum: AtomicU32,
    /// The number of the request that was rejected last (`cache/ghosts.rs`); 0 for none.
    pub(super) rejected_at: AtomicU32,
    /// Bits of the row that was wanted last, and a flag.
    pub(super) requests: AtomicU32,
}

/// Slots of one group.
pub(crate) const GROUP_SLOTS: usize = 4;

/// One cache line: a search ends in it, and has the pointer to the block that it names.
#[repr(align(64))]
struct Group<V>([Slot<V>; GROUP_SLOTS]);

struct Slot<V> {
    head: u64,
    value: ArcSwapOption<Cached<V>>,
}

/// Names one slot.
pub(crate) struct SlotRef<'s, V> {
    slots: &'s Arc<Slots<V>>,
    position: usize,
}

/// The contents of a slot when it was read. Cheaper than an `Arc`: taking it and dropping it
/// changes no reference count. Meant to be held briefly, since a thread has few of them.
pub(crate) struct Slotted<V>(Guard<Option<Arc<Cached<V>>>>);

impl<V> Cached<V> {
    /// Where the value begins.
    pub(crate) const VALUE_OFFSET: usize = std::mem::offset_of!(Self, value);

    /// A value that the cache does not keep.
    pub(crate) fn uncached(value: V) -> Arc<Self> {
        Arc::new(Self::new(value, 0, None))
    }

    /// A value for the cache to keep. It counts `charge` bytes, in `evicted_in_use` once it is
    /// evicted and until the last reader drops it.
    pub(crate) fn kept(value: V, charge: u64, evicted_in_use: &Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self::new(value, charge, Some(Arc::clone(evicted_in_use))))
    }

    fn new(value: V, charge: u64, evicted_in_use: Option<Arc<AtomicU64>>) -> Self {
        let (used, evicted) = (AtomicBool::new(false), AtomicBool::new(false));
        Cached { value, used, evicted, charge, evicted_in_use, home: Mutex::new(None) }
    }

    /// True once the cache has evicted it.
    #[cfg(any(test, feature = "interleavings"))]
    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Whether a reader found it in its slot since the last call.
    pub(crate) fn take_used(&self) -> bool {
        self.used.load(Ordering::Relaxed) && self.used.swap(false, Ordering::Relaxed)
    }

    /// Stores a pointer to it in `slot`. The caller locks the shard that holds it. Returns what the
    /// slot held before, for the caller to drop without that lock.
    #[must_use]
    pub(crate) fn insert_into(self: &Arc<Self>, slot: SlotRef<'_, V>) -> Option<Arc<Self>> {
        // I19: the shard is locked and holds the value, so no thread has evicted it.
        debug_assert!(!self.evicted.load(Ordering::Relaxed), "an evicted value in a slot");
        let cell = slot.cell()?;
        let before = self.home.lock().replace((Arc::downgrade(slot.slots), slot.position));
        // An index was evicted while a reader held it, and read again: two copies have a slot for
        // this block. Only the newer one may keep the pointer.
        if let Some((slots, position)) = before {
            self.remove_from(&slots, position);
        }
        cell.swap(Some(Arc::clone(self)))
    }

    /// Removes it from its slot and counts it as evicted. Called once, when no shard holds it.
    pub(crate) fn evict(self: &Arc<Self>) {
        // I19, the other half: evicted once, and in no slot afterwards.
        debug_assert!(!self.evicted.load(Ordering::Relaxed), "a value is evicted once");
        if let Some((slots, position)) = self.home.lock().take() {
            self.remove_from(&slots, position);
        }
        if let Some(bytes) = &self.evicted_in_use {
            // Added before the flag is set: the drop that sees the flag subtracts them again.
            bytes.fetch_add(self.charge, Ordering::Relaxed);
            self.evicted.store(true, Ordering::Release);
        }
    }

    /// Empties a slot if it holds this value. A second load of the block may have replaced it.
    fn remove_from(self: &Arc<Self>, slots: &Weak<Slots<V>>, position: usize) {
        let Some(slots) = slots.upgrade() else { return };
        let Some(cell) = slots.cell(position) else { return };
        let held = cell.load();
        if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, self)) {
            cell.compare_and_swap(&held, None);
        }
    }
}

impl<V> Drop for Cached<V> {
    fn drop(&mut self) {
        if let Some(bytes) = &self.evicted_in_use
            && *self.evicted.get_mut()
        {
            bytes.fetch_sub(self.charge, Ordering::Relaxed);
        }
    }
}

impl<V> std::fmt::Debug for Cached<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cached({} B)", self.charge)
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
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.value.as_ref()
    }
}

impl<V> Slots<V> {
    /// An empty slot for each head.
    pub(crate) fn new(heads: impl ExactSizeIterator<Item = u64>) -> Arc<Self> {
        let (count, mut heads) = (heads.len(), heads);
        // The last group may have slots beyond the last block. Their head is above all others.
        let mut slot =
            || Slot { head: heads.next().unwrap_or(u64::MAX), value: ArcSwapOption::empty() };
        let groups =
            (0..count.div_ceil(GROUP_SLOTS)).map(|_| Group([(); GROUP_SLOTS].map(|()| slot())));
        let groups = groups.collect();
        Arc::new(Slots { groups, marks: (0..count).map(|_| Marks::default()).collect() })
    }

    /// `count` empty slots whose heads nobody searches by.
    #[cfg(any(test, feature = "interleavings"))]
    pub(crate) fn of(count: usize) -> Arc<Self> {
        Self::new(std::iter::repeat_n(0, count))
    }

    /// The slot at `position`. One beyond the last is always empty.
    #[inline]
    pub(crate) fn slot(self: &Arc<Self>, position: usize) -> SlotRef<'_, V> {
        SlotRef { slots: self, position }
    }

    /// The head of the slot at `position`; the largest beyond the last.
    #[inline]
    pub(crate) fn head(&self, position: usize) -> u64 {
        self.get(position).map_or(u64::MAX, |slot| slot.head)
    }

    /// The largest head of each group, to find the group by.
    pub(crate) fn group_heads(&self) -> impl ExactSizeIterator<Item = u64> {
        self.groups.iter().map(|Group(slots)| slots[GROUP_SLOTS - 1].head)
    }

    /// The first position from group `group` on whose head is at or above `head`. The caller found
    /// `group` as the first group with such a head.
    #[inline]
    pub(crate) fn first_at_or_above(&self, group: usize, head: u64) -> usize {
        let slots = self.groups.get(group).map(|Group(slots)| slots);
        let below = slots.map_or(0, |slots| slots.iter().filter(|slot| slot.head < head).count());
        (GROUP_SLOTS * group + below).min(self.marks.len())
    }

    #[inline]
    fn get(&self, position: usize) -> Option<&Slot<V>> {
        self.groups.get(position / GROUP_SLOTS)?.0.get(position % GROUP_SLOTS)
    }

    #[inline]
    fn cell(&self, position: usize) -> Option<&ArcSwapOption<Cached<V>>> {
        // The slots that fill the last group up hold nothing.
        (position < self.marks.len()).then(|| self.get(position).map(|slot| &slot.value))?
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.groups) + size_of_val(&*self.marks)
    }
}

/// Drops the slots that hold a value. The others are forgotten.
impl<V> Drop for Slots<V> {
    fn drop(&mut self) {
        let groups = std::mem::take(&mut self.groups);
        for slot in groups.into_iter().flat_map(|Group(slots)| slots) {
            // Dropping an `ArcSwapOption` scans the hazard slots of every thread: about 30 ns, even
            // when it is empty, and an index has thousands. Forgetting an empty one leaks nothing,
            // because it owns no value and its own memory belongs to the slice. No reader is in it,
            // because a reader borrows the slots. Guards from a time when it held a value are
            // settled: the swap that emptied it did that.
            if slot.value.load().is_none() {
                std::mem::forget(slot);
            }
        }
    }
}

impl<V> std::fmt::Debug for Slots<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slots({})", self.marks.len())
    }
}

impl<V> Clone for SlotRef<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for SlotRef<'_, V> {}

impl<'s, V> SlotRef<'s, V> {
    #[inline]
    fn cell(&self) -> Option<&ArcSwapOption<Cached<V>>> {
        self.slots.cell(self.position)
    }

    /// What the slot remembers of its block.
    #[inline]
    pub(crate) fn marks(self) -> Option<&'s Marks> {
        self.slots.marks.get(self.position)
    }

    /// True if the slot has a value. That does not count as a use.
    pub(crate) fn is_filled(self) -> bool {
        self.cell().is_some_and(|cell| cell.load().is_some())
    }

    /// The value in the slot, which counts as used.
    #[inline]
    pub(crate) fn get(self) -> Option<Slotted<V>> {
        let held = self.cell()?.load();
        let value = held.as_ref()?;
        // Stored at most once between two evictions, so readers share the cache line.
        if !value.used.load(Ordering::Relaxed) {
            value.used.store(true, Ordering::Relaxed);
        }
        Some(Slotted(held))
    }

    /// Prefetches the cache lines that a reader of the slot's value touches first. Does not wait.
    /// False if the slot is empty.
    #[inline]
    pub(crate) fn prefetch(self) -> bool {
        let held = self.cell().map(|cell| cell.load());
        let value = held.as_deref().and_then(Option::as_deref);
        if let Some(value) = value {
            prefetch_line(value);
            // A reader that takes a share of the value writes the counts.
            prefetch_line_before(value);
        }
        value.is_some()
    }
}

impl<V> Slotted<V> {
    #[inline]
    pub(crate) fn cached(&self) -> &Arc<Cached<V>> {
        // Only `SlotRef::get` makes one, of a slot that holds a value.
        self.0.as_ref().unwrap_or_else(|| unreachable!("an empty slot is never handed out"))
    }

    /// The value, to be held for long.
    pub(crate) fn into_shared(self) -> Arc<Cached<V>> {
        Arc::clone(self.cached())
    }
}

impl Marks {
    /// The checksum with which the block was found sound, if it was.
    #[inline]
    pub(crate) fn known_checksum(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.checksum.load(Ordering::Relaxed))
    }

    /// Remembers the checksum of a block that was found sound.
    pub(crate) fn remember_checksum(&self, checksum: Option<NonZeroU32>) {
        self.checksum.store(checksum.map_or(0, NonZeroU32::get), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_clears_only_its_own_slot() {
        let in_use = Arc::new(AtomicU64::new(0));
        let slots = Slots::of(2);
        let held = |position| slots.slot(position).get().map(|held| ***held.cached());
        let first = Cached::kept(1, 10, &in_use);
        assert!(first.insert_into(slots.slot(0)).is_none());
        assert_eq!((held(0), held(1), held(2)), (Some(1), None, None));
        assert!(first.take_used() && !first.take_used());
        // The block was loaded again before its first copy was evicted.
        let second = Cached::kept(2, 10, &in_use);
        assert!(
            second.insert_into(slots.slot(0)).is_some_and(|before| Arc::ptr_eq(&before, &first))
        );
        first.evict();
        assert_eq!((held(0), in_use.load(Ordering::Relaxed)), (Some(2), 10));
        second.evict();
        assert_eq!((held(0), in_use.load(Ordering::Relaxed)), (None, 20));
        drop((first, second));
        assert_eq!(in_use.load(Ordering::Relaxed), 0);
    }

    /// An index is evicted while an iterator holds it, and is read again. A block that both copies
    /// point to must leave both when it is evicted.
    #[test]
    fn a_value_occupies_one_slot_only() {
        let [held, again] = [Slots::of(1), Slots::of(1)];
        let value = Cached::uncached(1);
        assert!(value.insert_into(held.slot(0)).is_none());
        assert!(value.insert_into(again.slot(0)).is_none());
        assert!(held.slot(0).get().is_none() && again.slot(0).get().is_some());
        assert!(value.insert_into(again.slot(0)).is_none(), "the same slot once more");
        assert!(again.slot(0).get().is_some());
        value.evict();
        assert!(again.slot(0).get().is_none());
    }

    #[test]
    fn dropped_slots_release_their_values() {
        let values: Vec<_> = (0..4).map(Cached::uncached).collect();
        let slots = Slots::of(40);
        for (value, positions) in values.iter().zip([&[0][..], &[13, 14], &[20], &[20, 39]]) {
            for &position in positions {
                drop(value.insert_into(slots.slot(position)));
            }
        }
        values[0].evict();
        assert!(values[0].insert_into(slots.slot(7)).is_none());
        let [emptied, moved, replaced, last] = [0, 13, 20, 39].map(|at| slots.slot(at).get());
        assert!(emptied.is_none() && moved.is_none() && replaced.is_none() && last.is_some());
        drop(last);
        drop(slots);
        for value in values {
            assert_eq!(Arc::strong_count(&value), 1, "{}", **value);
        }
    }

    /// The drop of slots relies on the inside of `arc-swap`: an empty slot owns nothing. Here
    /// readers hold more values than a thread has hazard slots, and drop the slots at any moment.
    #[test]
    fn threads_leak_no_value() {
        const PLACES: usize = 24;
        for round in 0..if cfg!(miri) { 2 } else { 100 } {
            let values: Vec<_> = (0..3 * PLACES).map(Cached::uncached).collect();
            let slots = Slots::of(PLACES);
            std::thread::scope(|scope| {
                for writer in 0..2 {
                    // A value enters and leaves under the lock of its shard, so one thread writes a
                    // slot.
                    let mine = values.iter().enumerate().filter(move |(n, _)| n % 2 == writer);
                    let slots = Arc::clone(&slots);
                    scope.spawn(move || {
                        for (number, value) in mine {
                            drop(value.insert_into(slots.slot(number % PLACES)));
                            if (number + round) % 3 == 0 {
                                value.evict();
                            }
                        }
                    });
                }
                for _ in 0..2 {
                    let slots = Arc::clone(&slots);
                    scope.spawn(move || {
                        let held: Vec<_> =
                            (0..4 * PLACES).map(|n| slots.slot(n % PLACES).get()).collect();
                        // The last owner frees the slots, perhaps while others hold values from
                        // them.
                        drop(slots);
                        drop(held);
                    });
                }
                drop(slots);
            });
            for value in &values {
                let counts = (Arc::strong_count(value), Arc::weak_count(value));
                assert_eq!(counts, (1, 0), "value {} of round {round}", ***value);
            }
        }
    }

    #[test]
    fn slots_and_values_outlive_each_other() {
        let value = Cached::uncached(1);
        let slots = Slots::of(1);
        assert!(value.insert_into(slots.slot(0)).is_none());
        assert!(value.insert_into(slots.slot(1)).is_none(), "there is no such slot");
        drop(slots);
        assert_eq!(Arc::strong_count(&value), 1);
        value.evict();
        let slots = Slots::of(1);
        let value = Cached::uncached(2);
        assert!(value.insert_into(slots.slot(0)).is_none());
        let weak = Arc::downgrade(&value);
        drop(value);
        assert!(slots.slot(0).get().is_some());
        drop(slots);
        assert!(weak.upgrade().is_none());
    }
}
