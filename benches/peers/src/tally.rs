//! Counts and sums of what reads found, to be compared with the expected ones.
//!
//! Readers fill a tally, `workload` computes the expected one, and every phase compares the two.

use std::ops::AddAssign;

/// The results of reads, as a count and a sum.
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
