//! One level of a version as a lookup meets it: for each table fences and a [`TableProbe`], side by
//! side in the order of the search.
//!
//! `version.rs` and `multi_get.rs` walk them. Fences settle whether a table can have the key by
//! its range; a probe keeps what a probe needs, so that nothing else of a table is touched before
//! its filter says "maybe". In level 0, where tables may overlap, every table is asked; of any
//! other level at most one ([`Level::probe_for`]).

use crate::base::key::key_head;
use crate::base::sync::Arc;
use crate::filter::bloom::fast_local::LineBits;
use crate::filter::encoding::PreparedFilter;
use crate::filter::hash::KeyHash;
use crate::tree::edit::FileMeta;
use crate::tree::handle::TableHandle;

/// What a probe of one table needs.
#[derive(Debug)]
pub struct TableProbe {
    /// The filter of the whole table, if it is resident.
    pub filter: Option<PreparedFilter>,
    /// What the table's filter says of a key, it says of the key's prefix.
    pub by_prefix: bool,
    /// What a "no" saves, about.
    pub mean_block_bytes: u64,
    /// The table.
    pub handle: Arc<TableHandle>,
}

impl TableProbe {
    fn new(handle: &Arc<TableHandle>) -> Self {
        TableProbe {
            filter: handle.table.resident_filter().cloned(),
            by_prefix: !handle.table.filter().holds_whole_keys(),
            mean_block_bytes: handle.table.mean_block_bytes(),
            handle: Arc::clone(handle),
        }
    }

    /// True if the resident filter proves that the table does not have the key. `bits` are of its
    /// hash, the same for all tables of a lookup.
    #[inline(always)]
    pub fn denies(&self, hash: &KeyHash<'_>, bits: &mut LineBits) -> bool {
        match &self.filter {
            Some(filter) => !filter.may_contain_bits(hash, bits),
            None => false,
        }
    }
}

/// First and last user key of a table. The first eight bytes stand in the fence itself, so that
/// most comparisons touch nothing else.
#[derive(Debug)]
pub struct Fence {
    smallest_prefix: u64,
    largest_prefix: u64,
    smallest: Box<[u8]>,
    largest: Box<[u8]>,
}

impl Fence {
    fn new(meta: &FileMeta) -> Self {
        let (smallest, largest) = (meta.first_key(), meta.last_key());
        Fence {
            smallest_prefix: key_head(smallest),
            largest_prefix: key_head(largest),
            smallest: smallest.into(),
            largest: largest.into(),
        }
    }

    /// The key, whose first bytes are `prefix`, is outside of the table's range.
    #[inline]
    pub fn excludes(&self, prefix: u64, key: &[u8]) -> bool {
        self.starts_after(prefix, key) || self.ends_before(prefix, key)
    }

    /// All keys of the table are above this one, whose first bytes are `prefix`.
    #[inline]
    pub fn starts_after(&self, prefix: u64, key: &[u8]) -> bool {
        self.smallest_prefix > prefix || (self.smallest_prefix == prefix && &*self.smallest > key)
    }

    /// All keys of the table are below this one, whose first bytes are `prefix`.
    #[inline]
    pub fn ends_before(&self, prefix: u64, key: &[u8]) -> bool {
        self.largest_prefix < prefix || (self.largest_prefix == prefix && &*self.largest < key)
    }
}

/// One level: fences and probes side by side, in the order of the search.
#[derive(Debug, Default)]
pub struct Level {
    /// Of each table.
    pub fences: Vec<Fence>,
    /// Of each table.
    pub probes: Vec<TableProbe>,
    /// The tables themselves.
    pub handles: Vec<Arc<TableHandle>>,
}

impl Level {
    /// A level of these tables, which are in the order of the search.
    pub fn new(handles: Vec<Arc<TableHandle>>) -> Self {
        Level {
            fences: handles.iter().map(|handle| Fence::new(&handle.meta)).collect(),
            probes: handles.iter().map(TableProbe::new).collect(),
            handles,
        }
    }

    /// The one table of a level sorted by key that can have this one, whose first bytes are
    /// `prefix`.
    #[inline]
    pub fn probe_for(&self, prefix: u64, key: &[u8]) -> Option<&TableProbe> {
        // `partition_point`, in line whatever the compiler makes of the rest: as a call it is a
        // twentieth of a lookup that the filter ends.
        let (mut place, mut count) = (0, self.fences.len());
        while count > 0 {
            let half = count / 2;
            if self.fences.get(place + half)?.ends_before(prefix, key) {
                place += half + 1;
                count -= half + 1;
            } else {
                count = half;
            }
        }
        let covers = !self.fences.get(place)?.starts_after(prefix, key);
        self.probes.get(place).filter(|_| covers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_compare_whole_keys_after_equal_heads() {
        let fence = Fence {
            smallest_prefix: key_head(b"abcdefghb"),
            largest_prefix: key_head(b"abcdefghy"),
            smallest: b"abcdefghb".as_slice().into(),
            largest: b"abcdefghy".as_slice().into(),
        };
        let starts_after = |key: &[u8]| fence.starts_after(key_head(key), key);
        let ends_before = |key: &[u8]| fence.ends_before(key_head(key), key);
        assert!(starts_after(b"abcdefgha") && !starts_after(b"abcdefghb"));
        assert!(ends_before(b"abcdefghz") && !ends_before(b"abcdefghy"));
    }
}
