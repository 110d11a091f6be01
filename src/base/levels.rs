//! The number of levels of a tree.

/// Levels of the tree, from 0 to 6. Level 0 holds flushed tables, which may overlap; every other
/// level is one sorted run.
pub const LEVELS: usize = 7;
