//! A block cache that is only simulated: it holds no blocks, only their sizes.
//!
//! It behaves as RocksDB's `LRUCache` of one shard does. Two queues share the capacity. Blocks of
//! high priority enter the first queue, and so does every block that is found in the cache. What
//! the first queue drops enters the second, which data blocks enter at first. Blocks leave the
//! cache at the end of the second queue. Without a share for the first queue this is the plain LRU
//! cache of LevelDB.

use crate::foreign_filters::settings::Store;
use lru::LruCache;

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
    /// The blocks of each queue, with their bytes.
    high: LruCache<BlockKey, u64>,
    low: LruCache<BlockKey, u64>,
    has_evicted: bool,
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
            high: LruCache::unbounded(),
            low: LruCache::unbounded(),
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
        // In the first queue, this is all that changes.
        if self.high.get(&key).is_some() {
            return true;
        }
        if let Some(bytes) = self.low.pop(&key) {
            self.enter(key, bytes, true);
            return true;
        }
        let bytes = bytes + self.entry_bytes;
        while self.used + bytes > self.capacity && self.evict() {}
        if self.used + bytes <= self.capacity {
            self.used += bytes;
            self.enter(key, bytes, is_high);
        }
        false
    }

    /// Adds a block to a queue. What the first queue has no room for goes to the second.
    fn enter(&mut self, key: BlockKey, bytes: u64, is_high: bool) {
        if !is_high || self.high_bytes_max == 0 {
            self.low.put(key, bytes);
            return;
        }
        self.high.put(key, bytes);
        self.high_bytes += bytes;
        while self.high_bytes > self.high_bytes_max
            && let Some((oldest, bytes)) = self.high.pop_lru()
        {
            self.high_bytes -= bytes;
            self.low.put(oldest, bytes);
        }
    }

    /// Drops the block that leaves first; false if there is none.
    fn evict(&mut self) -> bool {
        let of_high = || self.high.pop_lru().inspect(|(_, bytes)| self.high_bytes -= bytes);
        let Some((_, bytes)) = self.low.pop_lru().or_else(of_high) else { return false };
        self.used -= bytes;
        self.has_evicted = true;
        true
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
