//! Repair: a database that does not open, or is damaged, becomes one that opens and is sound.
//!
//! | module | what |
//! |---|---|
//! | `run` | `Options::repair`: the order of the steps, and of what becomes durable |
//! | `rebuild` | sound tables from damaged ones, from logs and from tables that overlap |
//! | `history` | which manifest and which logs count, and what of both is missing |
//! | `inventory` | what is there: manifests, tables, logs, and what each is worth |
//! | `report` | what was kept, set aside and lost |
//!
//! **Which value is the newest** is the question a repair must not get wrong: a lookup stops at the
//! first table that has its key. There are two answers.
//!
//! - There is a manifest to be believed (`history`). Then it says where each table belongs. A
//!   damaged table is replaced, in its place, by what is sound of it: taking entries away does not
//!   change the order of the others. The same holds for a table that is missing: the report names
//!   it. Logs hold what is newer than every table, and become tables of level 0.
//! - There is none, or one that may miss its last edits. Then the place of a table is not known,
//!   and its range of sequences does not tell: a compaction's output has old and new entries, so
//!   ranges overlap while keys alternate in age. But every entry carries its sequence. So all
//!   tables that share user keys, those from logs among them, are merged by internal key, which
//!   puts the newest version of a key first whatever it came from, and written anew into tables
//!   that share none. All go to one sorted level. A table that shares keys with no other stays as
//!   it is.
//!
//! Without a manifest nothing says which tables and logs were replaced long ago and only not yet
//! removed. Their entries take part, so a key may come back whose tombstone is gone; where the
//! tombstone is there, it wins. Even a manifest without its last edits tells most of them.
//!
//! Nothing is changed before everything that replaces it is durable; see `run`.

pub mod run;
pub mod rebuild;
pub mod history;
pub mod inventory;
pub mod report;

pub use report::{LostEntries, RepairReport, SetAside};
