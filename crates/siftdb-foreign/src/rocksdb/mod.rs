//! RocksDB's files.

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod reverse_tests;
#[cfg(test)]
mod database_tests;
#[cfg(test)]
mod tests;
pub(crate) mod database;
mod salvage;
mod wal_directory;
mod logged;
mod batch;
mod options;
mod manifest;
pub(crate) mod table;
pub(crate) mod properties;
