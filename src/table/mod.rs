//! The SST format.

#[cfg(test)]
mod tests;
pub mod verify;
pub mod iter;
pub mod reader;
pub mod builder;
pub mod filter_block;
pub mod fetch;
pub mod index;
pub mod properties;
pub mod block_cursor;
pub mod block;
pub mod block_builder;
pub mod format;
