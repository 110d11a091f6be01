//! Formats in which entries leave a database and come back.
//!
//! | format | what it carries |
//! |---|---|
//! | `jsonl` | everything: keyspaces with their settings, entries, when they expire |
//! | `tsv` | the entries of one keyspace, as `scan` prints them |
//! | `mdb`, `bdb` | entries and names of keyspaces: the text of `mdb_dump` and `db_dump` |
//! | `ldb` | the entries of one keyspace, as RocksDB's `ldb dump --hex` prints them |
//!
//! A file of each is a list of records. `record` has the reader and the writer of a format, `input`
//! the lines of a file.

pub mod jsonl;
pub mod mdb;
pub mod ldb;
pub mod tsv;
pub mod record;
pub mod input;
