//! Blocks: sorted entries with shared prefixes, restart points and an optional hash index.
//!
//! `builder` writes a block; `check` validates one that was read; `block` and `view` search it;
//! `cursor` iterates over it.

pub mod cursor;
pub mod block;
pub mod view;
pub mod check;
pub mod builder;
