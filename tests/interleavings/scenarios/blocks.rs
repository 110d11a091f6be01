//! The block cache: loads that several threads share, slots, use and eviction.

use crate::base::error::Error;
use crate::base::sync::{Arc, AtomicUsize, Mutex, Ordering, thread};
use crate::cache::cache::{Answer, Cache, Priority, Request, RowRequest};
use crate::cache::cached::{Cached, Slots, Slotted};
use crate::cache::recency_list::{CacheKey, block_charge, row_charge};
use crate::interleavings::run::check;
use std::cell::Cell;

type Numbers = Cache<u64>;

/// Bytes of a block: a cache of [`CAPACITY`] keeps four of them, and not five.
const BLOCK: usize = 10_000;
const CAPACITY: u64 = 4 * 10_600;

/// Keys of one shard, since each shard has an order of its own.
fn keys() -> impl Iterator<Item = CacheKey> {
    (0..).map(|offset| CacheKey { table: 1, offset }).filter(|key| key.shard() == 3)
}

fn key(block: u64) -> CacheKey {
    keys().nth(block as usize).expect("there is no end of them")
}

fn request(n: u64, slots: &Arc<Slots<u64>>) -> Request<'_, u64> {
    let slot = Some(slots.slot(n as usize));
    let (priority, bytes) = (Priority::Low, BLOCK as u64);
    Request { key: key(n), priority, slot, bytes, fill: true, row: None }
}

/// Block `n` through its slot, as the table reader goes.
fn fetch(cache: &Numbers, slots: &Arc<Slots<u64>>, n: u64) -> Arc<Cached<u64>> {
    if let Some(slotted) = slots.slot(n as usize).get() {
        return slotted.into_shared();
    }
    let found = match cache.block(request(n, slots)) {
        Answer::Held(held) => held,
        Answer::Load(load) => load.keep(n, BLOCK),
        Answer::Uncached { .. } => Cached::uncached(n),
    };
    assert_eq!(**found, n);
    found
}

/// The same three times, since a full cache keeps what is asked for so often.
fn fetch_often(cache: &Numbers, slots: &Arc<Slots<u64>>, n: u64) {
    (0..3).for_each(|_| drop(fetch(cache, slots, n)));
}

/// What a slot holds, the cache holds.
fn check_slots(cache: &Numbers, slots: &Arc<Slots<u64>>, blocks: u64) -> Vec<u64> {
    let in_slots = (0..blocks).filter(|&n| {
        let Some(held) = slots.slot(n as usize).get().map(Slotted::into_shared) else {
            return false;
        };
        let kept = cache.get(key(n), Priority::Low);
        assert!(!held.is_evicted() && kept.is_some_and(|kept| Arc::ptr_eq(&kept, &held)), "{n}");
        true
    });
    in_slots.collect()
}

pub fn an_evicted_block_leaves_its_slot() {
    check("slots and eviction", 5000, 10, || {
        let cache = Numbers::new(CAPACITY, 0.5);
        let slots = Slots::of(6);
        let walks: [&[u64]; 3] = [&[0, 0, 1, 4, 0], &[0, 2, 2, 5, 1], &[3, 3, 0, 5, 4]];
        thread::scope(|scope| {
            for walk in walks {
                let (cache, slots) = (&cache, &slots);
                scope.spawn(move || walk.iter().for_each(|&n| fetch_often(cache, slots, n)));
            }
        });
        let left = check_slots(&cache, &slots, 6);
        assert!(cache.used_bytes() <= CAPACITY);
        assert_eq!(cache.evicted_bytes_in_use(), 0);
        // All blocks can be evicted, and then no slot holds one.
        let everything = cache.try_reserve(CAPACITY / 2);
        assert!(everything.is_some());
        check_slots(&cache, &slots, 6);
        left
    });
}

/// Two threads make room at once; the filter that was found in its slot is not the one to go.
pub fn slot_hits_protect_a_filter_from_eviction() {
    check("use through slots", 1000, 2, || {
        // Of fewer, each would be a large one.
        const FIT: u64 = 66;
        let cache = Numbers::new(FIT * block_charge::<u64>(0), 0.0);
        let slots = Slots::of(FIT as usize + 2);
        let names: Vec<_> = keys().take(FIT as usize + 2).collect();
        let load = |n: u64| {
            let (key, slot) = (names[n as usize], Some(slots.slot(n as usize)));
            let priority = Priority::High;
            let request = Request { key, priority, slot, bytes: 0, fill: true, row: None };
            match cache.block(request) {
                Answer::Load(load) => drop(load.keep(n, 0)),
                _ => panic!("{n} is read once"),
            }
        };
        (0..FIT).for_each(load);
        assert!(slots.slot(0).get().is_some(), "used through its slot, and the oldest");
        thread::scope(|scope| {
            for n in [FIT, FIT + 1] {
                let load = &load;
                scope.spawn(move || load(n));
            }
            // This use may come before the eviction or after it.
            scope.spawn(|| drop(slots.slot(1).get()));
        });
        let held = |n: &u64| cache.get(names[*n as usize], Priority::High).is_some();
        assert!(held(&0));
        (0..FIT + 2).filter(held).collect::<Vec<_>>()
    });
}

/// A partition of an index is evicted and read again. The first copy dies with its slots, while
/// its blocks are evicted or found through the second one.
pub fn slots_die_with_their_partition() {
    check("slots of two copies", 5000, 4, || {
        let cache = Numbers::new(CAPACITY, 0.5);
        let (first, second) = (Slots::of(6), Slots::of(6));
        [0, 0, 1].iter().for_each(|&n| fetch_often(&cache, &first, n));
        let alive = Arc::downgrade(&first);
        thread::scope(|scope| {
            let (cache, second) = (&cache, &second);
            scope.spawn(move || {
                fetch(cache, &first, 0);
                drop(first);
            });
            scope.spawn(move || [2, 3, 4].iter().for_each(|&n| fetch_often(cache, second, n)));
            scope.spawn(move || [0, 1, 5].iter().for_each(|&n| fetch_often(cache, second, n)));
        });
        assert!(alive.upgrade().is_none(), "a cached block keeps no slots alive");
        assert!(cache.used_bytes() <= CAPACITY);
        assert_eq!(cache.evicted_bytes_in_use(), 0);
        check_slots(&cache, &second, 6)
    });
}

pub fn concurrent_misses_share_one_load() {
    check("single flight", 5000, 9, || {
        let cache = Numbers::new(CAPACITY, 0.5);
        let (loading, loads) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let answers = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for thread in 0..3 {
                let (cache, loading, loads, answers) = (&cache, &loading, &loads, &answers);
                scope.spawn(move || {
                    let loaded = Cell::new(false);
                    let load = || {
                        loaded.set(true);
                        assert_eq!(loading.fetch_add(1, Ordering::SeqCst), 0, "two loads at once");
                        let first = loads.fetch_add(1, Ordering::SeqCst) == 0;
                        loading.fetch_sub(1, Ordering::SeqCst);
                        match first {
                            true => Err(Error::Closed),
                            false => Ok((7, BLOCK)),
                        }
                    };
                    let slot = None;
                    let (priority, bytes) = (Priority::Low, BLOCK as u64);
                    let request =
                        Request { key: key(0), priority, slot, bytes, fill: true, row: None };
                    let answer = match cache.block(request) {
                        Answer::Held(held) => Ok(held),
                        Answer::Load(call) => load().map(|(value, bytes)| call.keep(value, bytes)),
                        Answer::Uncached { .. } => {
                            panic!("a block that the cache wants")
                        }
                    };
                    let is_seven = answer.is_ok_and(|value| **value == 7);
                    answers.lock().push((thread, is_seven, loaded.get()));
                });
            }
        });
        // The first load fails for its own thread only; the next one serves the others.
        let answers = std::mem::take(&mut *answers.lock());
        for expected in [(false, true), (true, true), (true, false)] {
            let found = answers.iter().any(|&(_, right, loaded)| (right, loaded) == expected);
            assert!(found, "{answers:?}");
        }
        assert_eq!(loads.load(Ordering::SeqCst), 2);
        answers
    });
}

/// A full cache rejects a block at its first two requests. Several threads may be the first to ask.
/// After them, two requests at most are rejected.
pub fn a_rejected_block_is_kept_when_asked_again() {
    check("turned away", 5000, 2, || {
        let cache = Numbers::new(CAPACITY, 0.5);
        let slots = Slots::of(6);
        (0..4).for_each(|n| drop(fetch(&cache, &slots, n)));
        assert_eq!(cache.rejected(), 0, "there was room");
        thread::scope(|scope| {
            for _ in 0..3 {
                let (cache, slots) = (&cache, &slots);
                scope.spawn(move || drop(fetch(cache, slots, 4)));
            }
        });
        let rejected = cache.rejected();
        (0..3).for_each(|_| drop(fetch(&cache, &slots, 4)));
        assert!(cache.get(key(4), Priority::Low).is_some());
        assert!(cache.rejected() <= rejected + 2);
        (rejected, check_slots(&cache, &slots, 6))
    });
}

/// Several threads keep one row at the same time. It is held once, and counted once.
pub fn a_row_is_kept_once() {
    check("rows", 5000, 2, || {
        let cache = Numbers::new(CAPACITY, 0.5);
        let slots = Slots::of(6);
        (0..4).for_each(|n| drop(fetch(&cache, &slots, n)));
        let name = CacheKey::of_row(1, 7 << 40);
        let look_up = || {
            if let Some(row) = cache.row(name) {
                assert_eq!(*row, [7; 500]);
                return;
            }
            let row = Some(RowRequest { key: name, bytes: 500 });
            if let Answer::Uncached { keeps_row: true } =
                cache.block(Request { row, ..request(4, &slots) })
            {
                cache.keep_row(name, [7; 500].into());
            }
        };
        look_up();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..2).for_each(|_| look_up()));
            }
        });
        assert!(cache.row(name).is_some());
        let in_slots = check_slots(&cache, &slots, 6);
        let blocks_bytes = in_slots.len() as u64 * block_charge::<u64>(BLOCK as u64);
        assert_eq!(cache.used_bytes(), blocks_bytes + row_charge(500));
        (cache.rejected(), in_slots)
    });
}
