//! The integration tests, one binary.
//!
//! | module | what it holds the store to |
//! |---|---|
//! | `architecture` | imports go downward, files and functions stay small, no dead file |
//! | `model` | random operations against a `BTreeMap`, in every filter layout and encoding |
//! | `crash` | power lost after each call on a file: a prefix of the writes, synced ones included |
//! | `arguments` | bad options, arguments and ranges: refused by name, nothing created |
//! | `corruption` | each byte flipped, each length cut: the right answer or a typed error |
//! | `hostile` | contents that no writer makes, under checksums that hold |
//! | `indexes` | read when they are needed, once; what a bad one costs |
//! | `faults` | each call on a file fails: not acknowledged, or there; reads go on |
//! | `encodings` | sizes and rates for any number of keys of any shape |
//! | `compatibility` | tables of every filter, asked under the options of every other |
//! | `filters` | no false negatives, false positives as expected, exact counters |
//! | `multi_get` | batches answer and count as single lookups, and read less |
//! | `prefixes` | scans pass tables by, and answer as without filters |
//! | `read_only` | looking changes no byte, whatever the rights and the state of the logs |
//! | `recovery` | the three modes: what each drops, refuses, keeps and says |
//! | `verify` | the check of everything finds and names what is damaged, and nothing else |
//! | `repair` | what is left opens and is sound, the newest wins, nothing is deleted, crashes are repeated |
//! | `foreign` | databases of LevelDB and RocksDB are named and not touched; refused openings leave nothing |
//! | `rescue` | damaged tables are taken apart block by block, what is sound is kept |
//! | `damage` | random stores repaired after every kind of damage, against what must have survived |
//! | `packaging` | a package has what its documents name, and nothing that only we run |
//! | `golden` | documents and formats say what the code does |
//! | `levels` | filters by level: a budget, none on the last level, what stays in memory |
//! | `concurrency` | many threads, background jobs, locks |
//! | `lifetime` | how long a directory is locked, by whom, and what is said of it |
//! | `fork` | what a forked child may do with its parent's handles |
//! | `resume` | a disk that fills up at any call, and writes when there is room again |
//! | `kills` | a process killed again and again, everything acknowledged is there |
//! | `histories` | what four threads saw has an order that explains it |
//! | `resources` | descriptors, threads, memory and room on the disk, in processes of their own |
//! | `filter_rebuild` | filters are replaced under readers and writers, and used |
//! | `cli`, `care_cli`, `filter_cli`, `output_cli`, `demo` | the command, and the demonstration behind it |
//! | `regressions` | defects that were found, each with its story |
//!
//! A failed random test prints its seed; the same seed runs the same operations again.

// Tests look at files from outside; the library goes through `env`.
#![allow(clippy::disallowed_methods)]

mod architecture;
mod arguments;
#[cfg(feature = "cli")]
mod care_cli;
#[cfg(feature = "cli")]
mod cli;
mod compatibility;
mod concurrency;
mod corruption;
mod crash;
mod damage;
#[cfg(feature = "cli")]
mod demo;
mod encodings;
mod faults;
#[cfg(feature = "cli")]
mod filter_cli;
mod filter_rebuild;
mod filters;
mod fork;
mod foreign;
mod golden;
mod histories;
mod hostile;
mod indexes;
mod kills;
mod levels;
mod lifetime;
mod long_life;
mod model;
mod multi_get;
#[cfg(feature = "cli")]
mod output_cli;
mod packaging;
mod prefixes;
mod read_only;
mod recovery;
mod regressions;
mod repair;
mod rescue;
mod resources;
mod resume;
mod support;
mod verify;
