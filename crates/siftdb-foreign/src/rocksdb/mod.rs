//! RocksDB's block-based tables.

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;
pub(crate) mod table;
pub(crate) mod properties;
