//! Blocks: sorted entries with shared prefixes, restart points and an optional hash index.
//!
//! `builder` writes a block, `block` checks and
//! decodes it. Lookups search cached blocks by their `directory` and others by their restart points
//! (`restart_search`). `cursor` iterates over a block.

pub(crate) mod cursor;
pub(crate) mod directory;
mod restart_search;
pub(crate) mod block;
pub(crate) mod builder;
