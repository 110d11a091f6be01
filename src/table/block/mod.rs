//! Blocks: sorted entries with shared prefixes, restart points and an optional hash index.
//!
//! `builder` writes a block; `buffer` is what one is read to; `block`
//! checks and decodes it; `directory` is what lookups in cached blocks search by; `cursor` iterates
//! over a block.

pub(crate) mod cursor;
pub(crate) mod directory;
pub(crate) mod block;
pub(crate) mod buffer;
pub(crate) mod builder;
