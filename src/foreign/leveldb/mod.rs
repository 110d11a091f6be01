//! LevelDB's files.

#[cfg(test)]
mod tests;
pub(crate) mod database;
mod run;
pub(crate) mod table;
mod manifest;
mod log;
#[cfg(test)]
pub(crate) mod testing;
