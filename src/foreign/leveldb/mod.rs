//! LevelDB's files.

#[cfg(test)]
mod tests;
pub(crate) mod figures;
pub(crate) mod database;
mod table;
mod filter;
mod manifest;
mod log;
#[cfg(test)]
mod testing;
