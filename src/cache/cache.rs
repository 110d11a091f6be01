//! The block cache: least recently used blocks, counted in bytes, generic over what it holds.
//!
//! `table/fetch.rs` asks it for every block that is neither resident nor in its slot (`cached`). A
//! shard is a mutex over two `lru` lists, [`Priority::High`] (filters, indexes) and
//! [`Priority::Low`] (data); what was found in its slot counts as used when its turn to go comes.
//! All shards share one budget: the capacity less what is reserved for resident filters and
//! indexes, and for filters while they are built ([`ConstructionBudget`]: up to half of it).
//!
//! Invariants: bytes held and reserved, bookkeeping included, never exceed the capacity; no value
//! is dropped and no block is read while a shard is locked; concurrent misses of one key load it
//! once. To make room, low entries go first, down to a quarter of the budget, then high entries
//! above half of it, so that neither kind can starve the other. An entry larger than a quarter of
//! the budget is served and not kept. Of data, whoever loads it asks first whether the cache
//! [`wants`](Cache::wants) it: one that is full wants what was asked for lately. The blocks of a
//! deleted table are not sought out: nobody asks for them again, so they grow old and go.

use crate::base::error::Result;
use crate::base::process::Process;
use crate::base::sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering};
use crate::cache::budget::ConstructionBudget;
use crate::cache::budget::{Budget, Purpose};
use crate::cache::cached::{Cached, Slot};
use crate::cache::key::{CacheKey, HashedKey, SHARDS};
use crate::cache::lru::RecencyList;
use crate::cache::single_flight::Flights;
use std::fmt;

/// What an entry costs beside its value: list node, hash slot, the allocator's share.
const ENTRY_BYTES: usize = 120;

/// A full cache knows what was asked for within so many loads, however small it is.
const LATELY_LOADS_MIN: u64 = 16;

/// What is evicted last and first. A key must always come with the same priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Filters and indexes: each answers for many data blocks.
    High,
    /// Data.
    Low,
}

type List<V> = RecencyList<HashedKey, Arc<Cached<V>>>;

/// Aligned so that two shards' locks never share a cache line (or the pair fetched with it).
#[repr(align(128))]
struct Shard<V> {
    /// By priority.
    lists: [List<V>; 2],
    flights: Flights<HashedKey, Arc<Cached<V>>>,
}

/// The cache.
pub struct Cache<V> {
    shards: [Mutex<Shard<V>>; SHARDS],
    process: Process,
    budget: Budget,
    /// Bytes held, by priority.
    held: [AtomicU64; 2],
    uncached: AtomicU64,
    turned_away: AtomicU64,
    pinned: Arc<AtomicU64>,
}

impl<V> fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache {{ {} of {} bytes }}", self.used_bytes(), self.capacity_bytes())
    }
}

impl<V> Cache<V> {
    /// A cache of `capacity_bytes`, of which reservations may take `resident_share` (0 to 1).
    /// With a capacity of 0 everything is served uncached.
    pub fn new(capacity_bytes: u64, resident_share: f64) -> Arc<Self> {
        Arc::new(Cache {
            shards: std::array::from_fn(|_| {
                let lists = [List::new(), List::new()];
                Mutex::new(Shard { lists, flights: Flights::new() })
            }),
            process: Process::current(),
            budget: Budget::new(capacity_bytes, resident_share),
            held: [AtomicU64::new(0), AtomicU64::new(0)],
            uncached: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
            pinned: Arc::new(AtomicU64::new(0)),
        })
    }

    /// The value of `key`, if it is held.
    #[inline]
    pub fn get(&self, key: CacheKey, priority: Priority) -> Option<Arc<Cached<V>>> {
        let key = HashedKey::new(key);
        self.lock_shard(&key)?.lists[priority as usize].get(&key)
    }

    /// The shard of a key; `None` in a forked child, if a thread that the child does not have was
    /// in it. Whether this is a child is asked only if the lock is taken.
    #[inline]
    fn lock_shard(&self, key: &HashedKey) -> Option<MutexGuard<'_, Shard<V>>> {
        let shard = &self.shards[key.shard()];
        shard.try_lock().or_else(|| self.process.is_current().then(|| shard.lock()))
    }

    /// Whether data of about `expected_bytes` that is loaded now, since `slot` is empty, should be
    /// kept: while there is room, and in a full cache what was asked for lately, within half as
    /// many loads as it holds blocks. That is the list A1out of 2Q (Johnson and Shasha, 1994), of
    /// the length that they advise, kept in the slots. What is not wanted costs its reader no more
    /// than reading it.
    pub fn wants(&self, slot: Slot<'_, V>, expected_bytes: u64) -> bool {
        let charge = charge::<V>(expected_bytes);
        if self.budget.has_room(charge) {
            return true;
        }
        if charge > self.budget.for_blocks() / 4 {
            self.uncached.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let within = (self.held_bytes(Priority::Low) / charge / 2).max(LATELY_LOADS_MIN);
        let turn = self.turned_away.load(Ordering::Relaxed) as u32;
        let wanted = slot.asked_again(turn, u32::try_from(within).unwrap_or(u32::MAX));
        if !wanted {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
        }
        wanted
    }

    /// The value of `key`, loaded if it is not held; true if this call loaded it. `load` runs
    /// without a lock, must not call the cache, and says how many bytes its value holds on the
    /// heap. When the load of another thread fails, this one tries by itself. What is held enters
    /// `slot`; what there is no room for is held by those who asked for it alone.
    pub fn get_or_load(
        &self,
        key: CacheKey,
        priority: Priority,
        slot: Option<Slot<'_, V>>,
        load: impl FnOnce() -> Result<(V, usize)>,
    ) -> Result<(Arc<Cached<V>>, bool)> {
        let key = HashedKey::new(key);
        loop {
            let waiters = {
                let Some(mut shard) = self.lock_shard(&key) else {
                    return Ok((self.wrap(load()?.0), true));
                };
                if let Some(entry) = shard.lists[priority as usize].get(&key) {
                    let replaced = slot.and_then(|slot| entry.enter(slot));
                    drop(shard);
                    drop(replaced);
                    return Ok((entry, false));
                }
                shard.flights.join(key)
            };
            let Some(waiters) = waiters else {
                let mut landing = Landing { cache: self, key, outcome: None };
                let (value, bytes) = load()?;
                let loaded = self.insert(key, priority, slot, value, bytes);
                landing.outcome = Some(Arc::clone(&loaded));
                return Ok((loaded, true));
            };
            // Nobody loads it in a forked child.
            if !self.process.is_current() {
                return Ok((self.wrap(load()?.0), true));
            }
            if let Some(value) = waiters.wait() {
                return Ok((value, false));
            }
        }
    }

    /// Holds a value that the cache never keeps, in the type of those it does.
    pub fn wrap(&self, value: V) -> Arc<Cached<V>> {
        Arc::new(Cached::unkept(value))
    }

    /// Takes `bytes` off the budget until the reservation is dropped; `None` if reservations
    /// would exceed their share.
    pub fn try_reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation<V>> {
        let reserved = self.reserve_for(Purpose::Resident, bytes);
        reserved.then(|| Reservation { cache: Arc::clone(self), bytes })
    }

    fn reserve_for(&self, purpose: Purpose, bytes: u64) -> bool {
        // Asked first, since making room in vain would empty the cache.
        if !self.budget.promise(purpose, bytes) {
            return false;
        }
        let granted = self.make_room(bytes, 0);
        if !granted {
            self.budget.withdraw(purpose, bytes);
        }
        granted
    }

    fn release_from(&self, purpose: Purpose, bytes: u64) {
        self.budget.withdraw(purpose, bytes);
        self.budget.give_back(bytes);
    }

    /// The capacity it was created with.
    pub fn capacity_bytes(&self) -> u64 {
        self.budget.capacity()
    }

    /// Bytes held, bookkeeping included, without reservations.
    pub fn used_bytes(&self) -> u64 {
        self.held_bytes(Priority::High) + self.held_bytes(Priority::Low)
    }

    /// Bytes reserved for what stays resident elsewhere.
    pub fn reserved_bytes(&self) -> u64 {
        self.budget.reserved(Purpose::Resident)
    }

    /// Bytes reserved for filters that are being built.
    pub fn construction_bytes(&self) -> u64 {
        self.budget.reserved(Purpose::Construction)
    }

    /// Bytes that were evicted and are still held by readers.
    pub fn pinned_bytes(&self) -> u64 {
        self.pinned.load(Ordering::Relaxed)
    }

    /// Loads that were served and not kept, since they were above a quarter of the budget.
    pub fn uncached(&self) -> u64 {
        self.uncached.load(Ordering::Relaxed)
    }

    /// Loads of data that were served and not kept, since the cache was full and they had not been
    /// asked for lately.
    pub fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    fn held_bytes(&self, priority: Priority) -> u64 {
        self.held[priority as usize].load(Ordering::Relaxed)
    }

    fn insert(
        &self,
        key: HashedKey,
        priority: Priority,
        slot: Option<Slot<'_, V>>,
        value: V,
        bytes: usize,
    ) -> Arc<Cached<V>> {
        let charge = charge::<V>(bytes as u64);
        if charge > self.budget.for_blocks() / 4 || !self.make_room(charge, key.shard()) {
            self.uncached.fetch_add(1, Ordering::Relaxed);
            return self.wrap(value);
        }
        let entry = Arc::new(Cached::kept(value, charge, &self.pinned));
        self.held[priority as usize].fetch_add(charge, Ordering::Relaxed);
        let mut shard = self.shards[key.shard()].lock();
        shard.lists[priority as usize].insert(key, Arc::clone(&entry));
        let replaced = slot.and_then(|slot| entry.enter(slot));
        drop(shard);
        drop(replaced);
        entry
    }

    /// Takes `bytes` of the budget, evicting what that needs, from shard `home` first. False if
    /// there is nothing left to evict.
    fn make_room(&self, bytes: u64, home: usize) -> bool {
        while !self.budget.spend(bytes) {
            let half_high = self.held_bytes(Priority::High) > self.budget.for_blocks() / 2;
            let order =
                match half_high && self.held_bytes(Priority::Low) < self.budget.for_blocks() / 4 {
                    true => [Priority::High, Priority::Low],
                    false => [Priority::Low, Priority::High],
                };
            if !order.into_iter().any(|priority| self.evict_one(priority, home)) {
                return self.budget.spend(bytes);
            }
        }
        true
    }

    fn evict_one(&self, priority: Priority, home: usize) -> bool {
        for i in 0..SHARDS {
            let mut shard = self.shards[(home + i) % SHARDS].lock();
            let popped = shard.lists[priority as usize].pop_oldest(|entry| entry.take_used());
            drop(shard);
            if let Some(entry) = popped {
                self.held[priority as usize].fetch_sub(entry.charge(), Ordering::Relaxed);
                self.budget.give_back(entry.charge());
                entry.evict();
                return true;
            }
        }
        false
    }
}

/// What a value of so many bytes counts in the cache.
fn charge<V>(bytes: u64) -> u64 {
    bytes.saturating_add((ENTRY_BYTES + size_of::<Cached<V>>()) as u64)
}

/// Ends a flight, also when the load fails or panics: no waiter is left behind.
struct Landing<'a, V> {
    cache: &'a Cache<V>,
    key: HashedKey,
    outcome: Option<Arc<Cached<V>>>,
}

impl<V> Drop for Landing<'_, V> {
    fn drop(&mut self) {
        let waiters = self.cache.shards[self.key.shard()].lock().flights.land(&self.key);
        if let Some(waiters) = waiters {
            waiters.announce(self.outcome.take());
        }
    }
}

/// A part of the capacity that something resident uses; given back on drop.
pub struct Reservation<V> {
    cache: Arc<Cache<V>>,
    bytes: u64,
}

impl<V> Drop for Reservation<V> {
    fn drop(&mut self) {
        self.cache.release_from(Purpose::Resident, self.bytes);
    }
}

/// What is built gives way to what is read: at most half of the capacity.
impl<V: Send + Sync> ConstructionBudget for Cache<V> {
    fn reserve(&self, bytes: u64) -> bool {
        self.reserve_for(Purpose::Construction, bytes)
    }

    fn release(&self, bytes: u64) {
        self.release_from(Purpose::Construction, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::Error;
    use crate::base::sync::AtomicUsize;
    use crate::cache::cached::{Slots, Slotted};
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::sync::Barrier;

    const OVERHEAD: u64 = (ENTRY_BYTES + size_of::<Cached<u64>>()) as u64;

    fn key(n: u64) -> CacheKey {
        CacheKey { table: n / 7, offset: n % 7 * 4096 }
    }

    fn load(cache: &Cache<u64>, n: u64, priority: Priority, bytes: usize) -> Arc<Cached<u64>> {
        let (value, _) = cache.get_or_load(key(n), priority, None, || Ok((n, bytes))).unwrap();
        assert_eq!(**value, n);
        value
    }

    /// Ends when so many threads stand in the queue of the load of `n`.
    fn until_awaited(cache: &Cache<u64>, n: u64, waiters: usize) {
        let key = HashedKey::new(key(n));
        while cache.shards[key.shard()].lock().flights.waiting(&key) < waiters {
            std::thread::yield_now();
        }
    }

    /// The same as the reader of a table does it: from its slot, if that has it, and data is kept
    /// if the cache wants it.
    fn load_listed(
        cache: &Cache<u64>,
        slots: &Arc<Slots<u64>>,
        n: u64,
        bytes: usize,
    ) -> Arc<Cached<u64>> {
        let slot = slots.slot(n as usize);
        if let Some(value) = slot.get().and_then(Slotted::into_inner) {
            assert_eq!(**value, n);
            return value;
        }
        if priority_of(n) == Priority::Low && !cache.wants(slot, bytes as u64) {
            return cache.wrap(n);
        }
        let load = || Ok((n, bytes));
        cache.get_or_load(key(n), priority_of(n), Some(slot), load).unwrap().0
    }

    /// No slot holds what the cache does not.
    fn check_slots(cache: &Cache<u64>, slots: &Arc<Slots<u64>>) {
        for n in 0..200 {
            if let Some(held) = slots.slot(n).get().and_then(Slotted::into_inner) {
                let key = key(n as u64);
                let kept = cache.get(key, priority_of(n as u64));
                assert!(kept.is_some_and(|kept| Arc::ptr_eq(&kept, &held)), "slot {n}");
            }
        }
    }

    fn check_books(cache: &Cache<u64>) {
        let reserved = cache.reserved_bytes() + cache.construction_bytes();
        let used = cache.used_bytes();
        assert!(used + reserved <= cache.capacity_bytes(), "{used} + {reserved}");
        assert_eq!(cache.budget.spent(), used + reserved);
        let mut counted = 0;
        for shard in &cache.shards {
            let shard = shard.lock();
            assert_eq!(shard.flights.len(), 0);
            let entries = shard.lists.iter().flat_map(|list| list.iter());
            counted += entries.map(|entry| entry.charge()).sum::<u64>();
        }
        assert_eq!(used, counted);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Load { n: u64, bytes: usize, hold: bool },
        Get { n: u64 },
        Release,
        Reserve { bytes: u64 },
        Unreserve,
        Construct { bytes: u64 },
        Constructed,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (0..60u64, 0..9000usize, any::<bool>())
                .prop_map(|(n, bytes, hold)| Op::Load { n, bytes, hold }),
            2 => (0..60u64).prop_map(|n| Op::Get { n }),
            2 => Just(Op::Release),
            1 => (0..9000u64).prop_map(|bytes| Op::Reserve { bytes }),
            1 => Just(Op::Unreserve),
            1 => (0..9000u64).prop_map(|bytes| Op::Construct { bytes }),
            1 => Just(Op::Constructed),
        ]
    }

    fn priority_of(n: u64) -> Priority {
        if n.is_multiple_of(3) { Priority::High } else { Priority::Low }
    }

    proptest! {
        #[test]
        fn cache_accounting_matches_its_entries(
            capacity in 0..40_000u64,
            share in 0.0..1.2f64,
            ops in proptest::collection::vec(op(), 0..120),
        ) {
            let cache = Cache::new(capacity, share);
            let slots = Slots::new(60);
            let mut held = VecDeque::new();
            let mut reservations = VecDeque::new();
            let mut constructions = VecDeque::new();
            for op in ops {
                let unreserved = capacity - cache.reserved_bytes() - cache.construction_bytes();
                match op {
                    Op::Load { n, bytes, hold } => {
                        let turned_away = cache.turned_away();
                        let value = load_listed(&cache, &slots, n, bytes);
                        let fits = bytes as u64 + OVERHEAD <= cache.budget.for_blocks() / 4;
                        let kept = cache.get(key(n), priority_of(n)).is_some();
                        // Only an entry that was held before may be kept without fitting now.
                        prop_assert!(kept || !fits || cache.turned_away() == turned_away + 1);
                        if hold {
                            held.push_back(value);
                        }
                    }
                    Op::Get { n } => {
                        if let Some(value) = cache.get(key(n), priority_of(n)) {
                            prop_assert_eq!(**value, n);
                        }
                    }
                    Op::Release => drop(held.pop_front()),
                    Op::Reserve { bytes } => {
                        let free = (capacity as f64 * share.min(1.0)) as u64
                            - cache.reserved_bytes();
                        let reservation = cache.try_reserve(bytes);
                        prop_assert_eq!(reservation.is_some(), bytes <= free.min(unreserved));
                        reservations.extend(reservation);
                    }
                    Op::Unreserve => drop(reservations.pop_front()),
                    Op::Construct { bytes } => {
                        let free = capacity / 2 - cache.construction_bytes();
                        let granted = cache.reserve(bytes);
                        prop_assert_eq!(granted, bytes <= free.min(unreserved));
                        constructions.extend(granted.then_some(bytes));
                    }
                    Op::Constructed => {
                        constructions.pop_front().into_iter().for_each(|bytes| cache.release(bytes));
                    }
                }
                check_books(&cache);
                check_slots(&cache, &slots);
                // Pinned is exactly what is held and no longer in the cache, each value once.
                let mut evicted: Vec<_> = held
                    .iter()
                    .filter(|v| v.is_evicted())
                    .map(|v| (Arc::as_ptr(v), v.charge()))
                    .collect();
                evicted.sort_unstable();
                evicted.dedup();
                prop_assert_eq!(cache.pinned_bytes(), evicted.iter().map(|e| e.1).sum::<u64>());
            }
            drop((held, reservations, slots));
            constructions.into_iter().for_each(|bytes| cache.release(bytes));
            check_books(&cache);
            prop_assert_eq!(cache.construction_bytes(), 0);
            prop_assert_eq!((cache.pinned_bytes(), cache.reserved_bytes()), (0, 0));
        }
    }

    /// Bytes that make an entry's charge 1000.
    const KILO: usize = 1000 - OVERHEAD as usize;

    #[test]
    fn eviction_takes_old_data_before_filters() {
        let cache = Cache::new(20_000, 0.0);
        for n in 0..10 {
            load(&cache, n, Priority::High, KILO);
        }
        for n in 100..10_000 {
            load(&cache, n, Priority::Low, KILO);
        }
        assert!((0..10).all(|n| cache.get(key(n), Priority::High).is_some()));
        assert!(cache.get(key(9_999), Priority::Low).is_some());
        assert_eq!(cache.used_bytes(), 20_000);
        // In one shard, what was touched stays and what was not goes.
        let cache = Cache::new(4_000, 0.0);
        let home = HashedKey::new(key(0)).shard();
        let same: Vec<u64> =
            (0..1000).filter(|&n| HashedKey::new(key(n)).shard() == home).take(5).collect();
        for &n in &same[..4] {
            load(&cache, n, Priority::Low, KILO);
        }
        assert!(cache.get(key(same[0]), Priority::Low).is_some());
        load(&cache, same[4], Priority::Low, KILO);
        assert!(cache.get(key(same[0]), Priority::Low).is_some());
        assert!(cache.get(key(same[1]), Priority::Low).is_none());
    }

    #[test]
    fn slot_hits_count_as_recent_use() {
        let cache = Cache::new(4_000, 0.0);
        let slots = Slots::new(1000);
        let home = HashedKey::new(key(0)).shard();
        let same: Vec<u64> = (0..1000)
            .filter(|&n| n % 3 > 0 && HashedKey::new(key(n)).shard() == home)
            .take(6)
            .collect();
        for &n in &same[..4] {
            load_listed(&cache, &slots, n, KILO);
        }
        // Of four, the oldest is found in its slot.
        assert!(slots.slot(same[0] as usize).get().is_some());
        for _ in 0..2 {
            load_listed(&cache, &slots, same[4], KILO);
        }
        let held = |n: u64| slots.slot(n as usize).get().is_some();
        let held: Vec<bool> = same.iter().map(|&n| held(n)).collect();
        assert_eq!(held, [true, false, true, true, true, false]);
    }

    #[test]
    fn a_full_cache_admits_ghost_hits() {
        let cache = Cache::new(100_000, 0.0);
        let slots = Slots::new(10_000);
        let ask = |n: usize| {
            let before = cache.turned_away();
            load_listed(&cache, &slots, n as u64, KILO);
            cache.turned_away() == before
        };
        let data: Vec<usize> = (0..10_000).filter(|n| n % 3 > 0).collect();
        let (held, others) = data.split_at(100);
        assert!(held.iter().all(|&n| ask(n)), "there is room");
        assert!(!others.iter().any(|&n| ask(n)), "asked for once");
        assert_eq!((cache.turned_away(), cache.uncached()), (others.len() as u64, 0));
        let kept = |n: usize| cache.get(key(n as u64), Priority::Low).is_some();
        assert!(held.iter().all(|&n| kept(n)), "nothing went");
        // It knows the last fifty, and takes them in place of others.
        let (old, last) = others.split_at(others.len() - 50);
        assert!(last.iter().all(|&n| ask(n)) && !old.iter().rev().take(100).any(|&n| ask(n)));
        let kept_of = |data: &[usize]| data.iter().filter(|&&n| kept(n)).count();
        assert_eq!(kept_of(held) + kept_of(last), 100);
        assert!(kept_of(last) > 30, "oldest first, but each shard has its own");
        assert!(!cache.wants(slots.slot(0), 25_000), "more than a quarter");
        assert_eq!(cache.uncached(), 1);
        check_books(&cache);
        check_slots(&cache, &slots);
    }

    #[test]
    fn filters_are_evicted_down_to_half() {
        let cache = Cache::new(40_000, 0.0);
        for n in 0..100 {
            load(&cache, n, Priority::High, KILO);
        }
        assert_eq!(cache.held_bytes(Priority::High), 40_000);
        for n in 1000..1400 {
            load(&cache, n, Priority::Low, KILO);
        }
        let low = cache.held_bytes(Priority::Low);
        assert!((10_000..=20_000).contains(&low), "data got {low}");
        // Filters come back, and data keeps its quarter.
        for n in 100..400 {
            load(&cache, n, Priority::High, KILO);
        }
        let low = cache.held_bytes(Priority::Low);
        assert!((9_000..=10_000).contains(&low), "data kept {low}");
        assert_eq!(cache.used_bytes(), 40_000);
    }

    #[test]
    fn reservations_shrink_the_cache_until_released() {
        let cache = Cache::new(20_000, 0.5);
        for n in 0..40 {
            load(&cache, n, Priority::Low, KILO);
        }
        let reservation = cache.try_reserve(10_000).unwrap();
        assert_eq!((cache.used_bytes(), reservation.bytes), (10_000, 10_000));
        assert!(cache.try_reserve(1).is_none());
        drop(reservation);
        for n in 0..40 {
            load(&cache, n, Priority::Low, KILO);
        }
        assert_eq!((cache.used_bytes(), cache.reserved_bytes()), (20_000, 0));
    }

    #[test]
    fn oversized_blocks_are_served_uncached() {
        for capacity in [0, 1, 4 * 999] {
            let cache = Cache::new(capacity, 1.0);
            for _ in 0..3 {
                load(&cache, 1, Priority::Low, KILO);
            }
            assert_eq!((cache.uncached(), cache.used_bytes()), (3, 0));
            assert!(cache.try_reserve(capacity + 1).is_none());
        }
        assert!(Cache::<u64>::new(0, f64::NAN).try_reserve(1).is_none());
    }

    #[test]
    fn concurrent_misses_load_once_without_capacity() {
        for capacity in [0, 1 << 20] {
            let cache: Arc<Cache<u64>> = Cache::new(capacity, 0.5);
            let (loads, started) = (AtomicUsize::new(0), Barrier::new(4));
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        started.wait();
                        let slow = || {
                            loads.fetch_add(1, Ordering::Relaxed);
                            until_awaited(&cache, 5, 3);
                            Ok((5, 100))
                        };
                        let (value, _) =
                            cache.get_or_load(key(5), Priority::Low, None, slow).unwrap();
                        assert_eq!(**value, 5);
                    });
                }
            });
            assert_eq!(loads.load(Ordering::Relaxed), 1);
            check_books(&cache);
        }
    }

    #[test]
    fn waiters_retry_after_a_failed_load() {
        let cache: Arc<Cache<u64>> = Cache::new(1 << 20, 0.5);
        let (calls, started) = (AtomicUsize::new(0), Barrier::new(5));
        let (mut errors, mut values, mut panics) = (0, 0, 0);
        std::thread::scope(|scope| {
            let attempt = || {
                started.wait();
                cache.get_or_load(key(1), Priority::High, None, || {
                    match calls.fetch_add(1, Ordering::Relaxed) {
                        0 => Err(Error::corruption("t", 0, "first")),
                        1 => std::panic::resume_unwind(Box::new("second")),
                        _ => Ok((1, 10)),
                    }
                })
            };
            let threads: Vec<_> = (0..5).map(|_| scope.spawn(attempt)).collect();
            for thread in threads {
                match thread.join() {
                    Ok(Ok(_)) => values += 1,
                    Ok(Err(_)) => errors += 1,
                    Err(_) => panics += 1,
                }
            }
        });
        assert_eq!((errors, panics, values), (1, 1, 3));
        check_books(&cache);
    }

    #[test]
    fn accounting_holds_under_threads() {
        let cache: Arc<Cache<u64>> = Cache::new(64_000, 0.5);
        let slots = Slots::new(200);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (cache, slots) = (&cache, &slots);
                scope.spawn(move || {
                    let mut state = thread + 1;
                    for _ in 0..20_000 {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let n = (state >> 33) % 200;
                        match (state >> 50) % 16 {
                            0 => drop(cache.try_reserve((state >> 40) % 20_000)),
                            1 => drop(cache.get(key(n), priority_of(n))),
                            _ => drop(load_listed(cache, slots, n, (n * 13) as usize)),
                        }
                        assert!(cache.budget.spent() <= cache.capacity_bytes());
                    }
                });
            }
        });
        check_books(&cache);
        check_slots(&cache, &slots);
        assert_eq!((cache.pinned_bytes(), cache.reserved_bytes()), (0, 0));
    }

    #[test]
    fn neighbouring_blocks_spread_over_the_shards() {
        let mut counts = [0; SHARDS];
        for block in 0..16_000 {
            let key = CacheKey { table: 0x1234_5678_9abc_def0, offset: block * 4096 };
            counts[HashedKey::new(key).shard()] += 1;
        }
        assert!(counts.iter().all(|count| (700..1300).contains(count)), "{counts:?}");
    }
}
