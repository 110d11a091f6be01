//! LevelDB's files.

pub(crate) mod database;
mod table;
mod manifest;
mod log;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
