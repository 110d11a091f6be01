//! Failing memory: once armed, a filter with one of these keys is damaged.

use std::sync::atomic::{AtomicBool, Ordering};

/// Benchmarks are built with these faults, but must not search the hashes for them.
static ARMED: AtomicBool = AtomicBool::new(false);

/// The first hash changes before the filter is made of it.
pub const CHANGES_HASH: &[u8] = b"fault: a hash changes";
/// The finished filter loses its bits.
pub const CLEARS_BITS: &[u8] = b"fault: bits are cleared";

/// From now on, filters of this process can be damaged.
pub fn arm() {
    ARMED.store(true, Ordering::Relaxed);
}

/// `trigger` is the hash of [`CHANGES_HASH`].
pub(crate) fn change_hash(trigger: u64, hashes: &mut [u64]) {
    if strikes(trigger, hashes) {
        hashes[0] ^= u64::from(u32::MAX);
    }
}

/// `trigger` is the hash of [`CLEARS_BITS`].
pub(crate) fn clear_bits(trigger: u64, hashes: &[u64], filter: &mut [u8]) {
    if strikes(trigger, hashes) {
        // All but the longest trailer.
        let body = filter.len() - 5;
        filter[..body].fill(0);
    }
}

fn strikes(trigger: u64, hashes: &[u64]) -> bool {
    ARMED.load(Ordering::Relaxed) && hashes.contains(&trigger)
}
