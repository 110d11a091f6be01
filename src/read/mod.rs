//! Every way to read: one key, many keys, a range; and one lookup explained.
//!
//! Each read takes a `ReadView` and then a sequence, in this order, and looks at the memtables
//! first and at the tree last. `point` is the whole point lookup.

pub mod explain;
pub mod scan;
pub mod multi_get;
pub mod point;
