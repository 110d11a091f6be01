//! What lookups and scans found, for comparison with what is there.
//!
//! Readers make it, `workload` knows what it should be, every phase compares the two.

use std::ops::AddAssign;

/// What reads found: compared with what is known to be there, in every phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of values.
    pub found: u64,
    /// Sum of their last bytes.
    pub sum: u64,
}

impl Tally {
    /// Counts one answer.
    pub fn add(&mut self, last_byte: Option<u8>) {
        if let Some(byte) = last_byte {
            self.found += 1;
            self.sum += u64::from(byte);
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Tally) {
        self.found += more.found;
        self.sum += more.sum;
    }
}
