//! For the tests of this package and of siftdb, behind the feature `testing`: memory that fails, a
//! budget that counts, golden vectors.

pub mod faults;
pub mod budget;
pub mod vectors;
