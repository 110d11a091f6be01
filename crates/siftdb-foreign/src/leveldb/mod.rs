//! LevelDB's files.

#[cfg(test)]
mod tests;
pub(crate) mod database;
pub(crate) mod entries;
mod run;
pub(crate) mod table;
mod manifest;
mod logged;
mod log;
#[cfg(test)]
pub(crate) mod testing;
