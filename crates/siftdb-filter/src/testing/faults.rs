//! Failing memory: once armed, a filter with one of these keys is damaged.

use crate::encoding::Encoding;
use std::sync::atomic::{AtomicBool, Ordering};

/// Benchmarks are built with these faults, but must not search the hashes for them.
static ARMED: AtomicBool = AtomicBool::new(false);

/// From now on, filters of this process can be damaged.
pub fn arm() {
    ARMED.store(true, Ordering::Relaxed);
}

fn strikes(encoding: &Encoding, hashes: &[u64], key: &[u8]) -> bool {
    ARMED.load(Ordering::Relaxed) && hashes.contains(&encoding.hash_of(key))
}

/// The first hash changes before the filter is made of it.
pub const CHANGES_HASH: &[u8] = b"fault: a hash changes";
/// The finished filter loses its bits.
pub const CLEARS_BITS: &[u8] = b"fault: bits are cleared";

pub(crate) fn change_hash(encoding: &Encoding, hashes: &mut [u64]) {
    if strikes(encoding, hashes, CHANGES_HASH) {
        hashes[0] ^= u64::from(u32::MAX);
    }
}

pub(crate) fn clear_bits(encoding: &Encoding, hashes: &[u64], filter: &mut [u8]) {
    if strikes(encoding, hashes, CLEARS_BITS) {
        // All but the longest trailer.
        let body = filter.len() - 5;
        filter[..body].fill(0);
    }
}
