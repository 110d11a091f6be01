//! Repair: makes a sound database from one that is damaged or does not open.
//!
//! | module | what |
//! |---|---|
//! | `run` | `Options::repair`: the steps, and the order in which they become durable |
//! | `trees` | the tables of each keyspace, by the manifest or by sequence |
//! | `rebuild` | writes sound tables from damaged ones, from logs and from overlapping tables |
//! | `history` | chooses the manifest and the logs to use, and finds what is missing |
//! | `keyspaces` | finds the keyspaces, and which one each table and log entry is of |
//! | `lineage` | finds the tables of other databases |
//! | `inventory` | finds manifests, tables and logs, and checks each of them |
//! | `report` | says what was kept, set aside and lost |
//!
//! **A repair keeps the newest version of a key.** A lookup stops at the first table that has its
//! key, so the order of the tables decides. There are two cases.
//!
//! - `history` finds a manifest that can be trusted. It says where each table belongs. The sound
//!   entries of a damaged table replace that table in its place: removing entries does not change
//!   the order of the others. A missing table is left out, and the report names it. Entries in logs
//!   are newer than every table and become tables of level 0.
//! - There is no manifest, or it may lack its last edits. Then the place of a table is unknown. The
//!   range of its sequences does not help: the output of a compaction has old and new entries, so
//!   ranges overlap. But every entry has its sequence. So all tables that share user keys, those
//!   from logs included, are merged by internal key into tables that share none. That puts the
//!   newest version of each key first. All tables go to one sorted level. A table that shares no
//!   keys with another one stays unchanged.
//!
//! Each keyspace is a tree of its own, so all of this is done once for each of them; see
//! `keyspaces` for the numbers and names.
//!
//! Without a manifest, nothing tells obsolete tables and logs from live ones. Their entries take
//! part too, so a deleted key may come back if its tombstone is gone. If the tombstone still
//! exists, it wins. A manifest without its last edits still identifies most obsolete files.
//!
//! Nothing is removed or replaced before its replacement is durable; see `run`.

pub(crate) mod run;
pub(crate) mod trees;
pub(crate) mod rebuild;
pub(crate) mod keyspaces;
pub(crate) mod history;
pub(crate) mod lineage;
pub(crate) mod inventory;
pub(crate) mod report;

pub use report::{LostEntries, RenamedKeyspace, RepairReport, SetAside};
