//! Blocks: sorted entries with shared prefixes, restart points and an optional hash index.
//!
//! `builder` writes a block; `buffer` is what one is read to; `block` checks and searches it;
//! `cursor` iterates over it.

pub mod cursor;
pub mod block;
pub mod buffer;
pub mod builder;
