//! LevelDB's files.

#[cfg(test)]
mod tests;
pub(crate) mod database;
pub(crate) mod table;
mod manifest;
mod logged;
#[cfg(test)]
pub(crate) mod testing;
