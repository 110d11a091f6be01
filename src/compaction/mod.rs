//! Jobs that rewrite the tree.

pub mod merge;
pub mod flush;
pub mod picker;
pub mod task;
