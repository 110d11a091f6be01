//! Which blocks were asked for lately and not kept: what a full cache knows of those it turned
//! away.
//!
//! Called by `cache.rs` under the lock of a shard. A block that is read once should not push out
//! one that is read again and again, so a full cache keeps a block when it is asked for a second
//! time within about as many loads as it holds blocks. That is the list A1out of 2Q (Johnson and
//! Shasha, 1994), here without an order: each key has one place, and the next key of that place
//! takes it over. A collision forgets a key, or keeps a block one request early; neither shows but
//! in time.

/// Tags of keys, each where the key's hash puts it.
#[derive(Debug, Default)]
pub struct GhostList {
    /// A power of two of them; 0 is an empty place.
    tags: Vec<u32>,
}

/// Places of the smallest list.
const PLACES_MIN: usize = 16;

/// Bytes of memory for each entry of the cache, at most, once its shard has [`PLACES_MIN`].
pub const GHOST_BYTES: usize = 2 * size_of::<u32>();

impl GhostList {
    /// Notes that the key of this hash was asked for, in a shard that holds `entries`. True if it
    /// had been noted before, which is then forgotten: the block is kept now.
    pub fn asked_again(&mut self, hash: u64, entries: usize) -> bool {
        let places = entries.next_power_of_two().max(PLACES_MIN);
        if self.tags.len() < places {
            // Who stood in it starts anew; that happens as often as the cache doubles.
            self.tags = vec![0; places];
        }
        let tag = (hash >> 32) as u32;
        let place = hash as usize & (self.tags.len() - 1);
        let Some(noted) = self.tags.get_mut(place) else { return false };
        let again = *noted == tag;
        *noted = if again { 0 } else { tag };
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::hash::xxph3_64;

    fn hash(key: u64) -> u64 {
        xxph3_64(&key.to_le_bytes())
    }

    #[test]
    fn a_key_is_known_until_as_many_others_were_asked_for() {
        let mut ghosts = GhostList::default();
        assert!(!ghosts.asked_again(hash(0), 1000));
        assert!(ghosts.asked_again(hash(0), 1000));
        assert!(!ghosts.asked_again(hash(0), 1000), "kept, so it starts anew");
        // Keys that are asked for in a circle: known the second time are most of a small one, some
        // of one as large as the cache, none to speak of if it is ten times that.
        for (circle, known) in [(50, 900..=1000), (1000, 250..=550), (10_000, 0..=10)] {
            let mut ghosts = GhostList::default();
            let mut round = || (0..circle).filter(|&n| ghosts.asked_again(hash(n), 1000)).count();
            round();
            let share = round() as u64 * 1000 / circle;
            assert!(known.contains(&share), "{circle}: {share} of 1000");
        }
    }

    #[test]
    fn it_grows_with_the_shard_and_never_beyond_what_is_counted() {
        let mut ghosts = GhostList::default();
        for entries in [0, 16, 17, 1000, 3, 1025, 5000] {
            ghosts.asked_again(1, entries);
            assert!(ghosts.tags.len().is_power_of_two() && ghosts.tags.len() >= entries);
        }
        for entries in [16, 17, 1000, 1024, 1025] {
            let mut ghosts = GhostList::default();
            ghosts.asked_again(1, entries);
            assert!(size_of_val(&ghosts.tags[..]) <= GHOST_BYTES * entries);
        }
    }
}
