//! The block cache: least recently used blocks, counted in bytes, generic over what a block is.
//!
//! A reader that finds the slot of a block empty asks where the block is by one call,
//! [`Cache::block`]: it returns the cached block, or says that the reader must read the file and
//! whether the cache wants the block ([`Load::keep`]) or a row of it ([`Cache::keep_row`]). A shard
//! is a mutex over two LRU lists, [`Priority::High`] (filters, indexes) and [`Priority::Low`]
//! (data). A filter or index that was found in its slot counts as used when it comes up for
//! eviction. All shards share one budget: the capacity less what is reserved for pinned filters and
//! indexes, and less what filters take while they are built ([`ConstructionBudget`]).
//!
//! Invariants: bytes held and reserved, bookkeeping included, never exceed the capacity. No value
//! is dropped and no block is read while a shard is locked. Concurrent misses of one block load it
//! once. Low entries are evicted first, down to a quarter of the budget, then high entries, so
//! neither kind can starve the other. A data block larger than a quarter of the budget is served
//! and not kept, nor is a filter or index larger than the rest. A full cache admits data that was
//! asked for often of late, as a block or as a row of it, and rejects other data
//! (`cache/ghosts.rs`). Large filters and indexes replace only those that were used less: of more
//! than fit, the same ones stay. Blocks and rows of deleted tables are not purged; they age out,
//! because no reader asks for them.

use crate::base::process::Process;
use crate::base::sync::{Arc, AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};
use crate::cache::budget::{Budget, Purpose};
use crate::cache::cached::{Cached, SlotRef};
use crate::cache::ghosts::{Ghosts, LargeGhosts, Window};
use crate::cache::recency_list::{
    CacheKey, HashedKey, Held, RecencyList, SHARDS, block_charge, row_charge,
};
use crate::cache::single_flight::Calls;
use siftdb_filter::budget::ConstructionBudget;
use std::fmt;

/// A filter or index of more than the budget divided by this is large: so few fit that a lookup
/// which asks for one in each of several tables would evict each before it asks for it again.
const LARGE: u64 = 64;

/// The priority of an entry, which decides whether it is evicted early or late. A key must always
/// come with the same priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Filters and indexes: each answers for many data blocks.
    High,
    /// Data.
    Low,
}

/// A block that a reader wants.
pub(crate) struct Request<'s, V> {
    pub key: CacheKey,
    /// How long it is worth keeping.
    pub priority: Priority,
    /// The slot that points to it while it is cached, if its owner has one.
    pub slot: Option<SlotRef<'s, V>>,
    /// About the bytes that it takes in memory.
    pub bytes: u64,
    /// Whether to keep it if it has to be read.
    pub fill: bool,
    /// The entry of a data block that is wanted, if the cache may keep that alone.
    pub row: Option<RowRequest>,
}

/// A row that a reader wants of a block.
#[derive(Clone, Copy)]
pub(crate) struct RowRequest {
    /// The name of the row.
    pub key: CacheKey,
    /// About its size.
    pub bytes: u64,
}

/// Where a reader gets the block that it wants.
pub(crate) enum Answer<'c, V> {
    /// From the cache, or from the thread that just read it.
    Held(Arc<Cached<V>>),
    /// From the file, for this reader and all others that ask until it is read.
    Load(Load<'c, V>),
    /// From the file, for this reader alone: the cache does not keep the block, but the row that is
    /// wanted ([`Cache::keep_row`]) if `keeps_row` is set.
    Uncached { keeps_row: bool },
}

/// What a full cache keeps of a request.
enum Admitted {
    Block,
    Row,
    Nothing,
}

/// Aligned so that two shards' locks never share a cache line (or the pair fetched with it).
#[repr(align(128))]
struct Shard<V> {
    /// By priority.
    lists: [RecencyList<V>; 2],
    calls: Calls<HashedKey, Arc<Cached<V>>>,
}

pub(crate) struct Cache<V> {
    shards: [Mutex<Shard<V>>; SHARDS],
    process: Process,
    pub budget: Budget,
    /// The last data block did not fit without evicting another. A request knows only about how
    /// many bytes its block takes, for a compressed one far too few.
    is_full: AtomicBool,
    /// Bytes held, by priority.
    held: [AtomicU64; 2],
    uncached: AtomicU64,
    ghosts: Ghosts,
    large_ghosts: LargeGhosts,
    evicted_in_use: Arc<AtomicU64>,
}

impl<V> fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache {{ {} of {} bytes }}", self.used_bytes(), self.budget.capacity)
    }
}

impl<V> Cache<V> {
    /// A cache of `capacity_bytes`, of which reservations may take `pinned_share` (0 to 1).
    /// With a capacity of 0 everything is served uncached.
    pub(crate) fn new(capacity_bytes: u64, pinned_share: f64) -> Arc<Self> {
        Arc::new(Cache {
            shards: std::array::from_fn(|_| {
                let lists = [RecencyList::new(), RecencyList::new()];
                Mutex::new(Shard { lists, calls: Calls::new() })
            }),
            process: Process::current(),
            budget: Budget::new(capacity_bytes, pinned_share),
            is_full: AtomicBool::new(false),
            held: [AtomicU64::new(0), AtomicU64::new(0)],
            uncached: AtomicU64::new(0),
            ghosts: Ghosts::default(),
            large_ghosts: LargeGhosts::default(),
            evicted_in_use: Arc::new(AtomicU64::new(0)),
        })
    }

    /// Where the block of `request` is, whose slot the reader found empty. It may wait for another
    /// thread that reads the block. If that read fails, the answer is `Load`.
    pub(crate) fn block<'c>(&'c self, request: Request<'c, V>) -> Answer<'c, V> {
        let admitted = if request.fill { self.admit(&request) } else { Admitted::Nothing };
        if let Admitted::Block = admitted {
            return self.held_or_load(request);
        }
        // The cache may hold a block whose slot is empty: partitions of an index are evicted and
        // read again, with new slots. To look takes little of the time of a read.
        let keeps_row = matches!(admitted, Admitted::Row);
        let held = self.get(request.key, request.priority);
        held.map_or(Answer::Uncached { keeps_row }, Answer::Held)
    }

    /// The block that `key` names, if it is held.
    #[inline]
    pub(crate) fn get(&self, key: CacheKey, priority: Priority) -> Option<Arc<Cached<V>>> {
        self.find(key, priority)?.into_block()
    }

    /// Whether rows may be held or wanted: data was rejected before.
    #[inline]
    pub(crate) fn may_have_rows(&self) -> bool {
        self.ghosts.rejected.load(Ordering::Relaxed) > 0
    }

    /// The row that `key` names, if it is held.
    pub(crate) fn row(&self, key: CacheKey) -> Option<Arc<[u8]>> {
        self.find(key, Priority::Low)?.into_row()
    }

    #[inline]
    fn find(&self, key: CacheKey, priority: Priority) -> Option<Held<V>> {
        let key = key.hashed();
        let now = self.now();
        self.lock_shard(key.shard())?.lists[priority as usize].get(&key, now)
    }

    /// Keeps a row, unless it is held.
    pub(crate) fn keep_row(&self, key: CacheKey, row: Arc<[u8]>) {
        let (key, list) = (key.hashed(), Priority::Low as usize);
        let charge = row_charge(row.len() as u64);
        if charge > self.largest(Priority::Low) || !self.make_room(charge, key.shard(), None) {
            return;
        }
        let is_kept = self.lock_shard(key.shard()).is_some_and(|mut shard| {
            // Another thread may have read it at the same time, or another row has the same hash.
            let is_new = shard.lists[list].get(&key, self.now()).is_none();
            if is_new {
                self.held[list].fetch_add(charge, Ordering::Relaxed);
                shard.lists[list].insert(key, Held::Row(row), self.now());
            }
            is_new
        });
        if !is_kept {
            self.budget.give_back(charge);
        }
    }

    /// The shard of that number. `None` in a forked child if another thread of the parent held the
    /// lock: it would wait for ever. The check for a fork runs only if the lock is taken.
    #[inline]
    fn lock_shard(&self, number: usize) -> Option<MutexGuard<'_, Shard<V>>> {
        let shard = &self.shards[number];
        shard.try_lock().or_else(|| self.process.is_current().then(|| shard.lock()))
    }

    /// What to keep of a block that is read now. Filters and indexes are judged once their size in
    /// memory is known ([`Cache::insert`]). A rejected block costs no more than reading it.
    fn admit(&self, request: &Request<'_, V>) -> Admitted {
        let (Priority::Low, Some(marks)) =
            (request.priority, request.slot.and_then(SlotRef::marks))
        else {
            return Admitted::Block;
        };
        let charge = block_charge::<V>(request.bytes);
        if self.has_room(charge) {
            return Admitted::Block;
        }
        let held_bytes = self.held_bytes(Priority::Low);
        let row = request.row.filter(|row| marks.note_row(row.key));
        let (charge, window, admitted) = match row.map(|row| row_charge(row.bytes)) {
            Some(charge) => (charge, Window::of_row(held_bytes, charge), Admitted::Row),
            None => (charge, Window::of_block(held_bytes, charge), Admitted::Block),
        };
        if charge > self.largest(Priority::Low) {
            self.uncached.fetch_add(1, Ordering::Relaxed);
            return Admitted::Nothing;
        }
        if self.ghosts.admits(marks, window) { admitted } else { Admitted::Nothing }
    }

    /// Whether to leave a block of `bytes` where its reader can use it without reading it: true,
    /// and counted as a rejection, unless there is room or the block is asked for again very soon.
    pub(crate) fn leaves_in_place(&self, slot: SlotRef<'_, V>, bytes: u64) -> bool {
        let charge = block_charge::<V>(bytes);
        let window = Window::of_block_in_place(self.held_bytes(Priority::Low), charge);
        !self.has_room(charge)
            && slot.marks().is_some_and(|marks| !self.ghosts.is_hit(marks, window))
    }

    /// Whether to keep data of this charge without asking for more.
    fn has_room(&self, charge: u64) -> bool {
        !self.is_full.load(Ordering::Relaxed) && self.budget.has_room(charge)
    }

    /// The same for a block to be kept. One that the cache holds is inserted into the slot.
    fn held_or_load<'c>(&'c self, request: Request<'c, V>) -> Answer<'c, V> {
        let (key, list) = (request.key.hashed(), request.priority as usize);
        loop {
            let waiters = {
                let Some(mut shard) = self.lock_shard(key.shard()) else {
                    return Answer::Uncached { keeps_row: false };
                };
                if let Some(Held::Block(entry)) = shard.lists[list].get(&key, self.now()) {
                    let replaced = request.slot.and_then(|slot| entry.insert_into(slot));
                    drop(shard);
                    drop(replaced);
                    return Answer::Held(entry);
                }
                shard.calls.join(key)
            };
            let Some(waiters) = waiters else {
                return Answer::Load(Load { cache: self, key, request, outcome: None });
            };
            // A forked child has no thread that leads.
            if !self.process.is_current() {
                return Answer::Uncached { keeps_row: false };
            }
            if let Some(value) = waiters.wait() {
                return Answer::Held(value);
            }
        }
    }

    /// Takes `bytes` off the budget until the reservation is dropped; `None` if reservations
    /// would exceed their share.
    pub(crate) fn try_reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation<V>> {
        self.try_reserve_for(Purpose::Pinned, bytes)
    }

    /// The same for another purpose, which has its own share.
    pub(crate) fn try_reserve_for(
        self: &Arc<Self>,
        purpose: Purpose,
        bytes: u64,
    ) -> Option<Reservation<V>> {
        let reserved = self.reserve_for(purpose, bytes);
        reserved.then(|| Reservation { cache: Arc::clone(self), purpose, bytes })
    }

    fn reserve_for(&self, purpose: Purpose, bytes: u64) -> bool {
        // Promised first: evicting blocks for a reservation that is refused would empty the cache.
        if !self.budget.promise(purpose, bytes) {
            return false;
        }
        let granted = self.make_room(bytes, 0, None);
        if !granted {
            self.budget.withdraw(purpose, bytes);
        }
        granted
    }

    fn release_from(&self, purpose: Purpose, bytes: u64) {
        self.budget.withdraw(purpose, bytes);
        self.budget.give_back(bytes);
        self.is_full.store(false, Ordering::Relaxed);
    }

    /// Bytes held, bookkeeping included, without reservations.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.held_bytes(Priority::High) + self.held_bytes(Priority::Low)
    }

    /// Bytes reserved for filters and indexes that their tables pin in memory.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.budget.reserved(Purpose::Pinned) + self.budget.reserved(Purpose::WholeIndex)
    }

    /// Of these, those of data indexes that have partitions and are pinned as a whole.
    pub(crate) fn whole_index_bytes(&self) -> u64 {
        self.budget.reserved(Purpose::WholeIndex)
    }

    /// Bytes reserved for filters that are being built.
    pub(crate) fn construction_bytes(&self) -> u64 {
        self.budget.reserved(Purpose::Construction)
    }

    /// Bytes that were evicted and are still held by readers.
    pub(crate) fn evicted_bytes_in_use(&self) -> u64 {
        self.evicted_in_use.load(Ordering::Relaxed)
    }

    /// Blocks that were read and not kept, since each was too large.
    pub(crate) fn uncached(&self) -> u64 {
        self.uncached.load(Ordering::Relaxed)
    }

    /// Blocks that were read and not kept, since the cache was full and they had not been asked for
    /// often of late.
    pub(crate) fn rejected(&self) -> u64 {
        self.ghosts.rejected.load(Ordering::Relaxed) + self.now()
    }

    fn now(&self) -> u64 {
        self.large_ghosts.rejected.load(Ordering::Relaxed)
    }

    fn held_bytes(&self, priority: Priority) -> u64 {
        self.held[priority as usize].load(Ordering::Relaxed)
    }

    fn insert(
        &self,
        key: HashedKey,
        request: &Request<'_, V>,
        value: V,
        bytes: usize,
    ) -> Arc<Cached<V>> {
        let charge = block_charge::<V>(bytes as u64);
        let is_kept = charge <= self.largest(request.priority);
        if is_kept && request.priority == Priority::Low {
            self.is_full.store(!self.budget.has_room(charge), Ordering::Relaxed);
        }
        // In a forked child another thread may have held the lock of the ghosts.
        let is_large = request.priority == Priority::High && self.is_large(charge);
        if is_kept && is_large && self.process.is_current() {
            let unused_since = Some(self.large_ghosts.asked_before(&key));
            if !self.make_room(charge, key.shard(), unused_since) {
                self.large_ghosts.reject(key);
                return Cached::uncached(value);
            }
        } else if !is_kept || !self.make_room(charge, key.shard(), None) {
            self.uncached.fetch_add(1, Ordering::Relaxed);
            return Cached::uncached(value);
        }
        let (entry, list) =
            (Cached::kept(value, charge, &self.evicted_in_use), request.priority as usize);
        self.held[list].fetch_add(charge, Ordering::Relaxed);
        let mut shard = self.shards[key.shard()].lock();
        shard.lists[list].insert(key, Held::Block(Arc::clone(&entry)), self.now());
        let replaced = request.slot.and_then(|slot| entry.insert_into(slot));
        drop(shard);
        drop(replaced);
        entry
    }

    /// The largest charge that is kept. A filter or an index may take all that data leaves to it:
    /// to read it again for every lookup costs much more than to read a data block.
    fn largest(&self, priority: Priority) -> u64 {
        let quarter = self.budget.for_blocks() / 4;
        match priority {
            Priority::High => 3 * quarter,
            Priority::Low => quarter,
        }
    }

    /// Whether filters and indexes of that many bytes more leave its quarter to the data.
    fn leaves_data(&self, bytes: u64) -> bool {
        self.held_bytes(Priority::High) + bytes <= self.largest(Priority::High)
    }

    fn is_large(&self, charge: u64) -> bool {
        charge > self.budget.for_blocks() / LARGE
    }

    /// Takes `bytes` of the budget, evicting what that needs, from shard `home` first. False if
    /// nothing is left to evict. With `unused_since` the bytes are for a large filter or index: the
    /// others that were used since then stay, and so does the quarter of the data.
    fn make_room(&self, bytes: u64, home: usize, unused_since: Option<u64>) -> bool {
        while !self.budget.spend(bytes) {
            // Data that is above its quarter goes first. Below it, filters and indexes have more
            // than half, or one comes that needs what the others have.
            let order: &[Priority] = match unused_since {
                Some(_) if !self.leaves_data(bytes) => &[Priority::High],
                None if self.held_bytes(Priority::Low) < self.budget.for_blocks() / 4 => {
                    &[Priority::High, Priority::Low]
                }
                _ => &[Priority::Low, Priority::High],
            };
            if !order.iter().any(|&priority| self.evict_one(priority, home, unused_since)) {
                return self.budget.spend(bytes);
            }
        }
        true
    }

    /// Evicts data, or a filter or index that was not used since that time if one is given. Use
    /// through a slot spares filters and indexes, not data. Data in use comes back at its third
    /// request, as rows if that suffices. Spared, a block with one hot entry would stay for good.
    fn evict_one(&self, priority: Priority, home: usize, unused_since: Option<u64>) -> bool {
        let is_high = priority == Priority::High;
        let (now, unused_since) = (self.now(), unused_since.filter(|_| is_high));
        let was_used = |held: &Held<V>| is_high && held.take_used();
        for i in 0..SHARDS {
            let Some(mut shard) = self.lock_shard((home + i) % SHARDS) else { continue };
            let list = &mut shard.lists[priority as usize];
            let popped = list.pop_oldest(was_used, now, unused_since);
            drop(shard);
            if let Some(held) = popped {
                self.held[priority as usize].fetch_sub(held.charge(), Ordering::Relaxed);
                self.budget.give_back(held.charge());
                held.evict();
                return true;
            }
        }
        false
    }
}

/// The right and duty to read a block for all that ask for it. Dropping it publishes the outcome:
/// also when the read fails or panics, so that no waiter is left waiting.
pub(crate) struct Load<'c, V> {
    cache: &'c Cache<V>,
    key: HashedKey,
    request: Request<'c, V>,
    outcome: Option<Arc<Cached<V>>>,
}

impl<V> Load<'_, V> {
    /// Hands over the block that was read, which has `bytes` on the heap. One that does not fit is
    /// returned and not kept.
    pub(crate) fn keep(mut self, value: V, bytes: usize) -> Arc<Cached<V>> {
        let loaded = self.cache.insert(self.key, &self.request, value, bytes);
        self.outcome = Some(Arc::clone(&loaded));
        loaded
    }
}

impl<V> Drop for Load<'_, V> {
    fn drop(&mut self) {
        let waiters = self.cache.shards[self.key.shard()].lock().calls.finish(&self.key);
        if let Some(waiters) = waiters {
            waiters.publish(self.outcome.take());
        }
    }
}

/// A part of the capacity for something that its owner pins in memory; given back on drop.
pub(crate) struct Reservation<V> {
    cache: Arc<Cache<V>>,
    purpose: Purpose,
    bytes: u64,
}

impl<V> Drop for Reservation<V> {
    fn drop(&mut self) {
        self.cache.release_from(self.purpose, self.bytes);
    }
}

/// Filters that are being built take at most half of the capacity.
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
    use crate::base::error::{Error, Result};
    use crate::base::sync::AtomicUsize;
    use crate::cache::cached::{Slots, Slotted};
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::sync::Barrier;

    const OVERHEAD: u64 = block_charge::<u64>(0);

    fn key(n: u64) -> CacheKey {
        CacheKey { table: n / 7, offset: n % 7 * 4096 }
    }

    fn load(cache: &Cache<u64>, n: u64, priority: Priority, bytes: usize) -> Arc<Cached<u64>> {
        let request = Request { priority, ..request(n) };
        let value = get_or_load(cache, request, || Ok((n, bytes))).unwrap();
        assert_eq!(**value, n);
        value
    }

    fn request(n: u64) -> Request<'static, u64> {
        Request {
            key: key(n),
            priority: Priority::High,
            slot: None,
            bytes: 0,
            fill: true,
            row: None,
        }
    }

    /// Reads a block as a table reader does.
    fn get_or_load<V>(
        cache: &Cache<V>,
        request: Request<'_, V>,
        read: impl FnOnce() -> Result<(V, usize)>,
    ) -> Result<Arc<Cached<V>>> {
        match cache.block(request) {
            Answer::Held(held) => Ok(held),
            Answer::Load(load) => read().map(|(value, bytes)| load.keep(value, bytes)),
            Answer::Uncached { .. } => read().map(|(value, _)| Cached::uncached(value)),
        }
    }

    /// Returns once that many threads wait for the load of `n`.
    fn until_awaited(cache: &Cache<u64>, n: u64, waiters: usize) {
        let key = key(n).hashed();
        while cache.shards[key.shard()].lock().calls.waiting(&key) < waiters {
            std::thread::yield_now();
        }
    }

    /// The same as a table reader does it: with a slot.
    fn load_listed(
        cache: &Cache<u64>,
        slots: &Arc<Slots<u64>>,
        n: u64,
        bytes: usize,
    ) -> Arc<Cached<u64>> {
        let (slot, priority) = (slots.slot(n as usize), priority_of(n));
        let request = Request {
            key: key(n),
            priority,
            slot: Some(slot),
            bytes: bytes as u64,
            fill: true,
            row: None,
        };
        let value = match slot.get() {
            Some(slotted) => slotted.into_shared(),
            None => get_or_load(cache, request, || Ok((n, bytes))).unwrap(),
        };
        assert_eq!(**value, n);
        value
    }

    /// A partition of an index that was read again has new slots, of which no reader has asked yet.
    #[test]
    fn a_full_cache_finds_blocks_through_new_slots() {
        let cache = Cache::new(4 * (10_000 + OVERHEAD), 0.5);
        let (old, new) = (Slots::of(10), Slots::of(10));
        let ask = |slots: &Arc<Slots<u64>>, n: u64, fill| {
            let slot = Some(slots.slot(n as usize));
            let key = key(n);
            let request =
                Request { key, priority: Priority::Low, slot, bytes: 10_000, fill, row: None };
            match cache.block(request) {
                Answer::Held(_) => true,
                Answer::Load(load) => **load.keep(n, 10_000) != n,
                Answer::Uncached { .. } => false,
            }
        };
        (0..5).for_each(|n| assert!(!ask(&old, n, true), "{n} was read"));
        // Four fit. The first request for the fifth was rejected.
        assert_eq!((0..5).filter(|n| ask(&new, *n, true)).count(), 4);
        assert_eq!((0..5).filter(|n| ask(&Slots::of(10), *n, false)).count(), 4);
    }

    /// The child may read files in memory, whose blocks the cache wants to keep.
    #[test]
    fn a_forked_child_waits_for_no_shard_that_was_locked() {
        let mut cache = Cache::new(40 * (100 + OVERHEAD), 0.0);
        Arc::get_mut(&mut cache).unwrap().process = Process::other();
        (0..100).for_each(|n| drop(load(&cache, n, Priority::Low, 100)));
        // Of another thread of the parent.
        let held: Vec<_> = cache.shards.iter().skip(1).map(Mutex::lock).collect();
        let (done, is_done) = std::sync::mpsc::channel();
        let child = Arc::clone(&cache);
        std::thread::spawn(move || {
            for n in 0..100 {
                let row = CacheKey::of_row(n, n);
                child.keep_row(row, vec![0; 50].into());
                drop(load(&child, 200 + n, [Priority::Low, Priority::High][n as usize % 2], 100));
                drop(load(&child, 300 + n, Priority::High, 1_000));
            }
            done.send(()).unwrap();
        });
        is_done.recv_timeout(std::time::Duration::from_secs(20)).expect("it waits for a shard");
        drop(held);
        check_books(&cache);
    }

    /// No slot holds what the cache does not.
    fn check_slots(cache: &Cache<u64>, slots: &Arc<Slots<u64>>) {
        for n in 0..200 {
            if let Some(held) = slots.slot(n).get().map(Slotted::into_shared) {
                let key = key(n as u64);
                let kept = cache.get(key, priority_of(n as u64));
                assert!(kept.is_some_and(|kept| Arc::ptr_eq(&kept, &held)), "slot {n}");
            }
        }
    }

    fn check_books(cache: &Cache<u64>) {
        let reserved = cache.reserved_bytes() + cache.construction_bytes();
        let used = cache.used_bytes();
        assert!(used + reserved <= cache.budget.capacity, "{used} + {reserved}");
        assert_eq!(cache.budget.spent(), used + reserved);
        let mut counted = 0;
        for shard in &cache.shards {
            let shard = shard.lock();
            assert_eq!(shard.calls.len(), 0);
            let entries = shard.lists.iter().flat_map(|list| list.iter());
            counted += entries.map(|entry| entry.charge()).sum::<u64>();
        }
        assert_eq!(used, counted);
    }

    /// Keeps a row of that many bytes, and looks it up.
    fn keep_row(cache: &Cache<u64>, n: u64, bytes: usize) {
        let row = CacheKey::of_row(n, n);
        let was_held = cache.row(row).is_some();
        let fits = row_charge(bytes as u64) <= cache.largest(Priority::Low);
        cache.keep_row(row, vec![n as u8; bytes].into());
        let kept = cache.row(row);
        assert_eq!(kept.is_some(), fits || was_held);
        assert!(kept.is_none_or(|row| row.iter().all(|&byte| u64::from(byte) == n)));
    }

    #[derive(Clone, Debug)]
    enum Op {
        Load { n: u64, bytes: usize, hold: bool },
        Get { n: u64 },
        Row { n: u64, bytes: usize },
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
            2 => (0..60u64, 0..3000usize).prop_map(|(n, bytes)| Op::Row { n, bytes }),
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
            let slots = Slots::of(60);
            let mut held = VecDeque::new();
            let mut reservations = VecDeque::new();
            let mut constructions = VecDeque::new();
            for op in ops {
                let unreserved = capacity - cache.reserved_bytes() - cache.construction_bytes();
                match op {
                    Op::Load { n, bytes, hold } => {
                        let rejected = cache.rejected();
                        let value = load_listed(&cache, &slots, n, bytes);
                        let fits = bytes as u64 + OVERHEAD <= cache.largest(priority_of(n));
                        let kept = cache.get(key(n), priority_of(n)).is_some();
                        // Only an entry that was already held may be kept without fitting now.
                        prop_assert!(kept || !fits || cache.rejected() == rejected + 1);
                        if hold {
                            held.push_back(value);
                        }
                    }
                    Op::Get { n } => {
                        if let Some(value) = cache.get(key(n), priority_of(n)) {
                            prop_assert_eq!(**value, n);
                        }
                    }
                    Op::Row { n, bytes } => keep_row(&cache, n, bytes),
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
                // The counter has what readers hold and the cache does not, each value once.
                let mut evicted: Vec<_> = held
                    .iter()
                    .filter(|v| v.is_evicted())
                    .map(|v| (Arc::as_ptr(v), v.charge))
                    .collect();
                evicted.sort_unstable();
                evicted.dedup();
                prop_assert_eq!(cache.evicted_bytes_in_use(), evicted.iter().map(|e| e.1).sum::<u64>());
            }
            drop((held, reservations, slots));
            constructions.into_iter().for_each(|bytes| cache.release(bytes));
            check_books(&cache);
            prop_assert_eq!(cache.construction_bytes(), 0);
            prop_assert_eq!((cache.evicted_bytes_in_use(), cache.reserved_bytes()), (0, 0));
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
        // In one shard, entries that were used stay and the others are evicted.
        let cache = Cache::new(4_000, 0.0);
        let home = key(0).shard();
        let same: Vec<u64> = (0..1000).filter(|&n| key(n).shard() == home).take(5).collect();
        for &n in &same[..4] {
            load(&cache, n, Priority::Low, KILO);
        }
        assert!(cache.get(key(same[0]), Priority::Low).is_some());
        load(&cache, same[4], Priority::Low, KILO);
        assert!(cache.get(key(same[0]), Priority::Low).is_some());
        assert!(cache.get(key(same[1]), Priority::Low).is_none());
    }

    /// Of data in use, what is needed comes back.
    #[test]
    fn slot_hits_spare_filters_and_not_data() {
        for is_high in [true, false] {
            let cache = Cache::new(100_000, 0.0);
            let slots = Slots::of(20_000);
            let is_same = |n: &u64| n.is_multiple_of(3) == is_high && key(*n).shard() == 5;
            let same: Vec<u64> = (0..20_000).filter(is_same).take(101).collect();
            let held = |n: usize| slots.slot(same[n] as usize).get().is_some();
            let load = |n: usize| drop(load_listed(&cache, &slots, same[n], KILO));
            (0..100).for_each(load);
            assert!(held(0), "the oldest is found in its slot");
            (0..3).for_each(|_| load(100));
            assert_eq!([0, 1, 2, 100].map(held), [is_high, !is_high, true, true]);
        }
    }

    #[test]
    fn a_full_cache_admits_third_requests() {
        let cache = Cache::new(100_000, 0.0);
        let slots = Slots::of(10_000);
        let ask = |n: usize| {
            let before = cache.rejected();
            load_listed(&cache, &slots, n as u64, KILO);
            cache.rejected() == before
        };
        let data: Vec<usize> = (0..10_000).filter(|n| n % 3 > 0).collect();
        let (held, others) = data.split_at(100);
        assert!(held.iter().all(|&n| ask(n)), "there is room");
        assert!(!others.iter().any(|&n| ask(n)), "asked for once");
        assert_eq!((cache.rejected(), cache.uncached()), (others.len() as u64, 0));
        let kept = |n: usize| cache.get(key(n as u64), Priority::Low).is_some();
        assert!(held.iter().all(|&n| kept(n)), "nothing went");
        // It remembers the last fifty rejections. At their third request, it admits these blocks in
        // place of others.
        let (old, last) = others.split_at(others.len() - 50);
        assert!(!last.iter().any(|&n| ask(n)) && last.iter().all(|&n| ask(n)));
        assert!(!old.iter().rev().take(100).any(|&n| ask(n)));
        let kept_of = |data: &[usize]| data.iter().filter(|&&n| kept(n)).count();
        assert_eq!(kept_of(held) + kept_of(last), 100);
        assert!(kept_of(last) > 30, "oldest first, but each shard has its own");
        load_listed(&cache, &slots, others[0] as u64, 25_000);
        assert_eq!(cache.uncached(), 1);
        check_books(&cache);
        check_slots(&cache, &slots);
    }

    /// What a full cache of a hundred blocks keeps of the block `n`, asked for by lookups of these
    /// keys: the number of the first request that it admits, and whether it keeps a row.
    fn admitted(
        cache: &Cache<u64>,
        slots: &Arc<Slots<u64>>,
        n: usize,
        keys: &[u64],
    ) -> (usize, bool) {
        for (count, hash) in (1..).zip(keys) {
            let slot = slots.slot(n);
            if slot.get().is_some() {
                return (count - 1, false);
            }
            let row = Some(RowRequest { key: CacheKey::of_row(n as u64, hash << 40), bytes: 100 });
            let key = key(n as u64);
            let (priority, bytes) = (Priority::Low, KILO as u64);
            let request = Request { key, priority, slot: Some(slot), bytes, fill: true, row };
            match cache.block(request) {
                Answer::Held(_) => panic!("{n} is not held"),
                Answer::Load(load) => drop(load.keep(n as u64, KILO)),
                Answer::Uncached { keeps_row: false } => {}
                Answer::Uncached { keeps_row: true } => return (count, true),
            }
        }
        (usize::from(slots.slot(n).get().is_some()) * keys.len(), false)
    }

    #[test]
    fn a_full_cache_keeps_rows_of_hot_entries() {
        let cache = Cache::new(100_000, 0.0);
        let slots = Slots::of(10_000);
        let data: Vec<usize> = (0..10_000).filter(|n| n % 3 > 0).collect();
        let (held, others) = data.split_at(100);
        for &n in held {
            load_listed(&cache, &slots, n as u64, KILO);
        }
        let mut others = others.iter();
        let mut admitted = |keys: &[u64]| admitted(&cache, &slots, *others.next().unwrap(), keys);
        assert_eq!(admitted(&[1, 1]), (0, false), "two lookups of a key");
        assert_eq!(admitted(&[1, 1, 1]), (3, true), "three");
        assert_eq!(admitted(&[1, 2, 2]), (3, true), "the last two were of one key");
        assert_eq!(admitted(&[1, 2, 3]), (3, false), "of three keys");
        assert_eq!(admitted(&[1, 1, 2]), (3, false), "of two");
        // A row is remembered for longer than a block: for four times as many rejections as
        // there are blocks, with these sizes.
        for (between, is_kept) in [(100, true), (800, true), (900, false)] {
            let wanted = *others.next().unwrap();
            let ask = |key| self::admitted(&cache, &slots, wanted, &[key]).1;
            assert!(!ask(1));
            for _ in 0..between {
                self::admitted(&cache, &slots, *others.next().unwrap(), &[1]);
            }
            assert!(!ask(1));
            assert_eq!(ask(1), is_kept, "{between} rejections in between");
        }
        check_books(&cache);
        check_slots(&cache, &slots);
    }

    /// Blocks with one hot entry would stay, and rows would have no room.
    #[test]
    fn rows_evict_blocks_in_use() {
        let cache = Cache::new(100_000, 0.0);
        let slots = Slots::of(1000);
        let data = (0..1000).filter(|n| n % 3 > 0);
        data.clone().take(100).for_each(|n| drop(load_listed(&cache, &slots, n, KILO)));
        let use_all = || data.clone().filter(|n| slots.slot(*n as usize).get().is_some()).count();
        assert_eq!(use_all(), 100);
        for n in 0..2000 {
            use_all();
            let row = CacheKey::of_row(n, n);
            cache.keep_row(row, [0; 64].into());
            assert!(cache.row(row).is_some());
        }
        assert_eq!((use_all(), cache.used_bytes() / row_charge(64)), (0, 500));
        check_books(&cache);
    }

    /// Compressed blocks take more memory than their requests say. Where the room that is left is
    /// between both, every block was admitted, in place of another.
    #[test]
    fn a_full_cache_does_not_take_large_blocks_for_small_ones() {
        let cache = Cache::new(9_500, 0.0);
        let slots = Slots::of(1000);
        let mut held = Vec::new();
        let mut ask = |n: usize| {
            let (before, slot) = (cache.rejected(), Some(slots.slot(n)));
            let (key, priority) = (key(n as u64), Priority::Low);
            let request = Request { key, priority, slot, bytes: 0, fill: true, row: None };
            held.push(get_or_load(&cache, request, || Ok((0, KILO))));
            cache.rejected() == before
        };
        assert!((0..9).all(&mut ask), "there is room");
        assert!(ask(9), "there seems to be");
        assert!(!(10..900).any(&mut ask), "asked for once");
        let reserved = cache.reserve(3000);
        assert!(reserved && !ask(900));
        cache.release(3000);
        assert!((901..904).all(&mut ask), "there is room again");
    }

    #[test]
    fn blocks_in_place_are_kept_if_asked_for_often() {
        let cache = Cache::new(100_000, 0.0);
        let slots = Slots::of(10_000);
        let data: Vec<usize> = (0..10_000).filter(|n| n % 3 > 0).collect();
        let is_left = |n: usize| cache.leaves_in_place(slots.slot(n), KILO as u64);
        let (held, others) = data.split_at(100);
        for &n in held {
            assert!(!is_left(n), "there is room");
            load_listed(&cache, &slots, n as u64, KILO);
        }
        assert_eq!(cache.rejected(), 0);
        // A sixteenth of the hundred blocks that it holds.
        for (between, left) in [(5, false), (6, true), (50, true)] {
            let (wanted, rest) = others[100 * between..].split_first().unwrap();
            let before = cache.rejected();
            assert!(is_left(*wanted) && rest[..between].iter().all(|&n| is_left(n)));
            assert_eq!(cache.rejected() - before, 1 + between as u64);
            assert_eq!(is_left(*wanted), left, "{between} rejections in between");
            (0..2).for_each(|_| drop(load_listed(&cache, &slots, *wanted as u64, KILO)));
            assert!(cache.get(key(*wanted as u64), Priority::Low).is_some(), "a third request");
        }
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
        // Filters are read again, and data keeps its quarter.
        for n in 100..400 {
            load(&cache, n, Priority::High, KILO);
        }
        let low = cache.held_bytes(Priority::Low);
        assert!((9_000..=10_000).contains(&low), "data kept {low}");
        assert_eq!(cache.used_bytes(), 40_000);
    }

    /// Above a quarter of the cache, an index was read again for every lookup.
    #[test]
    fn large_indexes_are_kept() {
        let cache = Cache::new(40_000, 0.0);
        for n in 1000..1400 {
            load(&cache, n, Priority::Low, KILO);
        }
        for (n, kilos, is_kept) in [(0, 11, true), (1, 11, true), (2, 30, true), (3, 31, false)] {
            // The third one needs what the others have, and gets it when it is asked for again.
            for _ in 0..2 {
                load(&cache, n, Priority::High, 1000 * kilos - OVERHEAD as usize);
            }
            assert_eq!(cache.get(key(n), Priority::High).is_some(), is_kept, "{kilos}");
            assert!(cache.held_bytes(Priority::Low) >= 9_000);
            check_books(&cache);
        }
        load(&cache, 2000, Priority::Low, 11_000);
        assert!(cache.get(key(2000), Priority::Low).is_none());
    }

    /// Asks for large indexes, and returns the share that the cache held. A few of its own data
    /// blocks are asked for in between, as by lookups.
    fn share_held(cache: &Cache<u64>, asked: impl Iterator<Item = u64>, kilos: usize) -> f64 {
        let (mut held, mut all) = (0, 0);
        for n in asked {
            held += u64::from(cache.get(key(n), Priority::High).is_some());
            all += 1;
            load(cache, n, Priority::High, 1000 * kilos - OVERHEAD as usize);
            assert!(cache.held_bytes(Priority::Low) >= 9_000);
        }
        check_books(cache);
        held as f64 / all as f64
    }

    /// As lookups do it in a database whose tables overlap: in a circle, where each would be
    /// evicted just before it is asked for again; and in any order.
    #[test]
    fn of_too_many_indexes_a_share_stays() {
        for tables in [3, 4, 5, 8, 16, 60] {
            let cache = Cache::new(40_000, 0.0);
            for n in 1000..1400 {
                load(&cache, n, Priority::Low, KILO);
            }
            let fit = 3.0 / tables as f64;
            let circle = share_held(&cache, (0..100 * tables).map(|n| n % tables), 10);
            assert!((fit - 0.05..=fit).contains(&circle), "{tables} in a circle: {circle}");
            let mut state = 1u64;
            let random = std::iter::repeat_with(|| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % tables
            });
            let random = share_held(&cache, random.take(5_000), 10);
            assert!((random - fit).abs() < 0.05, "{tables} at random: {random}");
        }
    }

    /// Filters of which one table's is asked for in nine of ten lookups, after all were asked for
    /// in turn: it replaces what is used less.
    #[test]
    fn large_filters_in_use_replace_others() {
        let cache = Cache::new(40_000, 0.0);
        for n in 1000..1400 {
            load(&cache, n, Priority::Low, KILO);
        }
        share_held(&cache, 0..40, 12);
        for hot in [7, 23] {
            let asked = (0..1000).map(|n| if n % 10 == 0 { n / 10 % 40 } else { hot });
            let share = share_held(&cache, asked, 12);
            assert!(share > 0.88, "{hot}: {share}");
        }
        // A scan that asks for each once replaces nothing.
        share_held(&cache, 0..40, 12);
        assert!(cache.get(key(23), Priority::High).is_some());
        // What is not used any more goes.
        let share = share_held(&cache, (0..1000).map(|n| 50 + n % 2), 12);
        assert!(share > 0.9, "{share}");
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
                        let value = get_or_load(&cache, request(5), slow).unwrap();
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
                get_or_load(&cache, request(1), || match calls.fetch_add(1, Ordering::Relaxed) {
                    0 => Err(Error::corruption("t", 0, "first")),
                    1 => std::panic::resume_unwind(Box::new("second")),
                    _ => Ok((1, 10)),
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
        let slots = Slots::of(200);
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
                            2 | 3 => cache.keep_row(CacheKey::of_row(n, n), [0; 99].into()),
                            _ => drop(load_listed(cache, slots, n, (n * 13) as usize)),
                        }
                        assert!(cache.budget.spent() <= cache.budget.capacity);
                    }
                });
            }
        });
        check_books(&cache);
        check_slots(&cache, &slots);
        assert_eq!((cache.evicted_bytes_in_use(), cache.reserved_bytes()), (0, 0));
    }

    #[test]
    fn neighbouring_blocks_spread_over_the_shards() {
        let mut counts = [0; SHARDS];
        for block in 0..16_000 {
            let key = CacheKey { table: 0x1234_5678_9abc_def0, offset: block * 4096 };
            counts[key.shard()] += 1;
        }
        assert!(counts.iter().all(|count| (700..1300).contains(count)), "{counts:?}");
    }
}
