//! LevelDB's files.

#[cfg(test)]
mod tests;
pub(crate) mod database;
mod table;
mod manifest;
mod log;
#[cfg(test)]
mod testing;
