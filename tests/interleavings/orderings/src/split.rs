//! A leaf that is split, and filled again, while it is read.

use crate::base::sync::{AtomicBool, Ordering};
use crate::memtable::arena::Place;
use crate::memtable::leaf::{LEAF_ENTRIES, Leaf};
use std::sync::Arc;

/// Entries that stay.
const LOWER: usize = 8;

/// A leaf with the places 10, 20, ..., and whether its upper half is in the list.
pub struct SplitLeaf {
    leaf: Leaf,
    is_linked: AtomicBool,
}

impl SplitLeaf {
    /// Full.
    pub fn new() -> Arc<Self> {
        let leaf = Leaf::of((1..=LEAF_ENTRIES as u32).map(|n| (0, Place(10 * n))));
        Arc::new(SplitLeaf { leaf, is_linked: AtomicBool::new(false) })
    }

    /// As a segment does it, with one more entry in each half of what stays.
    pub fn split(&self) {
        assert_eq!(self.leaf.upper(LOWER).len(), LEAF_ENTRIES - LOWER);
        self.is_linked.store(true, Ordering::Release);
        self.leaf.truncate(LOWER);
        self.leaf.insert(0, 0, Place(5));
        self.leaf.insert(5, 0, Place(45));
    }

    /// As a scan does it. Answers how many entries the leaf had.
    pub fn read(&self) -> usize {
        let places: Vec<u32> = self.leaf.places().as_slice().iter().map(|place| place.0).collect();
        assert!(places.is_sorted_by(|one, next| one < next), "{places:?}");
        let stay = (1..=LOWER as u32).all(|n| places.contains(&(10 * n)));
        let all = (1..=LEAF_ENTRIES as u32).all(|n| places.contains(&(10 * n)));
        assert!(stay && (all || places.len() <= LOWER + 2), "{places:?}");
        assert!(all || self.is_linked.load(Ordering::Relaxed), "lost: {places:?}");
        places.len()
    }
}
