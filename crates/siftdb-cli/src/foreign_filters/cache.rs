//! A block cache that is only simulated: it holds no blocks, only their sizes.
//!
//! It behaves as RocksDB's `LRUCache` of one shard does. Two queues share the capacity. Blocks of
//! high priority enter the first queue, and so does every block that is found in the cache. What
//! the first queue drops enters the second, which data blocks enter at first. Blocks leave the
//! cache at the end of the second queue. Without a share for the first queue this is the plain LRU
//! cache of LevelDB.

use crate::foreign_filters::settings::Store;
use std::collections::{HashMap, VecDeque};

/// What RocksDB's cache takes for a block, besides its bytes: 88 bytes of its handle, and fields of
/// the block, with what the allocator adds. Its counters say so on 64-bit Linux. LevelDB counts the
/// bytes of blocks alone.
const ENTRY_BYTES: u64 = 190;

/// A block: its kind, table and position.
pub type BlockKey = (u8, u32, u64);

/// A simulated cache.
#[derive(Debug)]
pub struct SimulatedCache {
    capacity: u64,
    entry_bytes: u64,
    /// What the first queue may take.
    high_bytes_max: u64,
    used: u64,
    high_bytes: u64,
    blocks: HashMap<BlockKey, Cached>,
    /// Oldest first, each with the turn at which it entered. An entry whose block entered a queue
    /// at a later turn is void.
    high: VecDeque<(BlockKey, u64)>,
    low: VecDeque<(BlockKey, u64)>,
    turn: u64,
    has_evicted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Cached {
    bytes: u64,
    entered: u64,
    is_high: bool,
}

impl SimulatedCache {
    /// An empty cache of a store. Its first queue may take `high_share` of it.
    pub fn new(store: Store, capacity: u64, high_share: f64) -> Self {
        SimulatedCache {
            capacity,
            entry_bytes: if store == Store::RocksDb { ENTRY_BYTES } else { 0 },
            high_bytes_max: (capacity as f64 * high_share) as u64,
            used: 0,
            high_bytes: 0,
            blocks: HashMap::new(),
            high: VecDeque::new(),
            low: VecDeque::new(),
            turn: 0,
            has_evicted: false,
        }
    }

    /// Takes room for blocks that stay for good, of `bytes` together.
    pub fn pin(&mut self, blocks: u64, bytes: u64) {
        self.capacity = self.capacity.saturating_sub(bytes + blocks * self.entry_bytes);
    }

    /// The bytes of blocks that are not pinned, and whether any left for others.
    pub fn held(&self) -> (u64, bool) {
        (self.used, self.has_evicted)
    }

    /// Accesses a block of `bytes`; false if it had to be read. Then the cache has it from now on,
    /// unless it is larger than the cache.
    pub fn access(&mut self, key: BlockKey, bytes: u64, is_high: bool) -> bool {
        let bytes = bytes + self.entry_bytes;
        if let Some(cached) = self.remove(key) {
            self.insert(key, cached.bytes, true);
            return true;
        }
        while self.used + bytes > self.capacity && self.evict() {}
        if self.used + bytes <= self.capacity {
            self.insert(key, bytes, is_high);
        }
        false
    }

    fn remove(&mut self, key: BlockKey) -> Option<Cached> {
        let cached = self.blocks.remove(&key)?;
        self.used -= cached.bytes;
        if cached.is_high {
            self.high_bytes -= cached.bytes;
        }
        Some(cached)
    }

    /// Adds a block that is not there.
    fn insert(&mut self, key: BlockKey, bytes: u64, is_high: bool) {
        let is_high = is_high && self.high_bytes_max > 0;
        self.turn += 1;
        self.used += bytes;
        self.blocks.insert(key, Cached { bytes, entered: self.turn, is_high });
        if !is_high {
            self.low.push_back((key, self.turn));
            return;
        }
        self.high.push_back((key, self.turn));
        self.high_bytes += bytes;
        while self.high_bytes > self.high_bytes_max
            && let Some(oldest) = Self::oldest(&mut self.high, &self.blocks)
            && let Some(cached) = self.remove(oldest)
        {
            self.insert(oldest, cached.bytes, false);
        }
    }

    /// Drops the block that leaves first; false if there is none.
    fn evict(&mut self) -> bool {
        let oldest = Self::oldest(&mut self.low, &self.blocks)
            .or_else(|| Self::oldest(&mut self.high, &self.blocks));
        let is_gone = oldest.and_then(|oldest| self.remove(oldest)).is_some();
        self.has_evicted |= is_gone;
        is_gone
    }

    /// Takes the oldest block out of a queue.
    fn oldest(
        queue: &mut VecDeque<(BlockKey, u64)>,
        blocks: &HashMap<BlockKey, Cached>,
    ) -> Option<BlockKey> {
        loop {
            let (key, turn) = queue.pop_front()?;
            if blocks.get(&key).is_some_and(|cached| cached.entered == turn) {
                return Some(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1000 - ENTRY_BYTES;

    /// The blocks that had to be read, of those used in this order.
    fn read(cache: &mut SimulatedCache, used: &[(u8, u64)]) -> Vec<u64> {
        let miss = |&&(kind, at): &&(u8, u64)| !cache.access((kind, 0, at), SIZE, kind == 0);
        used.iter().filter(miss).map(|(_, at)| *at).collect()
    }

    #[test]
    fn the_block_used_longest_ago_leaves() {
        let mut cache = SimulatedCache::new(Store::RocksDb, 3_000, 0.0);
        assert_eq!(read(&mut cache, &[(1, 1), (1, 2), (1, 3), (1, 1), (1, 4)]), [1, 2, 3, 4]);
        // 2 was used longest ago, then 3.
        assert_eq!(read(&mut cache, &[(1, 1), (1, 3), (1, 4), (1, 2), (1, 1)]), [2, 1]);
    }

    #[test]
    fn blocks_of_high_priority_stay_longer() {
        let mut cache = SimulatedCache::new(Store::RocksDb, 4_000, 0.5);
        assert_eq!(read(&mut cache, &[(0, 1), (0, 2)]), [1, 2]);
        let scan: Vec<_> = (10..20).map(|at| (1, at)).collect();
        assert_eq!(read(&mut cache, &scan).len(), 10);
        assert!(read(&mut cache, &[(0, 1), (0, 2)]).is_empty());
        // What was found counts as well: 19 takes the place of 1, which leaves with the others.
        assert!(read(&mut cache, &[(1, 19)]).is_empty());
        assert_eq!(read(&mut cache, &scan[..3]).len(), 3);
        assert_eq!(read(&mut cache, &[(0, 2), (1, 19), (0, 1)]), [1]);
    }

    #[test]
    fn oversized_blocks_do_not_stay() {
        let mut cache = SimulatedCache::new(Store::RocksDb, 3_000, 0.0);
        cache.pin(1, SIZE);
        assert_eq!(read(&mut cache, &[(1, 1), (1, 2), (1, 1), (1, 2), (1, 3), (1, 2)]), [1, 2, 3]);
        assert!(!cache.access((1, 0, 9), 5_000, false));
        assert!(!cache.access((1, 0, 9), 5_000, false));
        // All others made room for it in vain, as in RocksDB.
        assert_eq!(read(&mut cache, &[(1, 2), (1, 3)]), [2, 3]);
        assert_eq!(cache.held(), (2_000, true));
    }
}
