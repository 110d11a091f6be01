//! Blocks: sorted entries with shared prefixes, restart points and an optional hash index.
//!
//! `builder` writes a block; `buffer` is what one is read to; `block` checks and searches it;
//! `cursor` iterates over it.

pub(crate) mod cursor;
pub(crate) mod block;
pub(crate) mod buffer;
pub(crate) mod builder;
