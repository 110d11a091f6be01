//! Where the bits of a filter live.

pub mod dispatch;
pub mod full;
pub mod partitioned;
pub mod block_based;
pub mod layout;
