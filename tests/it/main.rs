//! The integration tests, one binary.
//!
//! | module | what it checks |
//! |---|---|
//! | `architecture` | imports go downward, files and functions are small, no dead file |
//! | `model` | random operations against a `BTreeMap`, in every filter layout and encoding |
//! | `call_costs` | the reads and syncs of each operation are those of docs/costs.md |
//! | `crash` | power loss after each call on a file: a prefix of the writes, with all synced ones |
//! | `arguments` | bad options, arguments and ranges are refused by name, nothing is created |
//! | `corruption` | each byte flipped, each length cut: the right answer or a typed error |
//! | `hostile` | contents that no writer makes, under correct checksums |
//! | `indexes` | data indexes are read once, when needed; damaged ones are errors |
//! | `faults` | each call on a file fails: the write is not acknowledged, reads continue |
//! | `encodings` | sizes and rates for any number and pattern of keys |
//! | `compatibility` | tables of every filter, read under the options of every other |
//! | `filters` | no false negatives, expected false positives, exact counters |
//! | `mapped` | tables in memory: no calls, the same errors; `MapEnv` on a disk |
//! | `multi_get` | batches answer and count like single lookups, and read less |
//! | `cold_reads` | what lookups and batches read whose blocks are in no cache |
//! | `larger_than_memory` | pages that a disk reads under a small page cache |
//! | `in_memory_only` | reads without I/O: the answer of a normal read, or a refusal |
//! | `cursors` | cursors and scans of keys agree with a sorted map and copy no value |
//! | `prefixes` | scans skip tables, and answer as without filters |
//! | `range_deletes` | lookups and scans of every kind agree with a sorted map |
//! | `range_differential` | range deletes answer as single deletes of the same keys |
//! | `checkpoint_bars` | what checkpoints cost, in time and to writers; only on demand |
//! | `checkpoints` | databases of their own at one moment, whatever happens at the same time |
//! | `changes` | the writes of a database in their order, read while they are written |
//! | `watches` | committed writes, handed out once, in order, while they are written |
//! | `kept_logs` | logs kept for followers stay up to the limit and change no answer |
//! | `followers` | prefixes of the writes of a writer, and typed errors where there is none |
//! | `follower_processes` | the same in processes, of a writer that is killed |
//! | `read_only` | reading changes no byte, whatever the permissions and the state of the logs |
//! | `recovery` | the three modes: what each drops, refuses, keeps and reports |
//! | `verify` | finds and names damage, and nothing else |
//! | `repair` | a repaired database is sound, the newest version wins, nothing is deleted |
//! | `repair_keyspaces` | the same with several keyspaces: names, numbers, dropped ones, the epoch |
//! | `foreign` | databases of LevelDB and RocksDB are named and not touched |
//! | `rescue` | damaged tables are read block by block, sound blocks are kept |
//! | `damage` | random databases repaired after every kind of damage |
//! | `packaging` | a package has what its documents name, and no more |
//! | `golden` | documents and formats agree with the code |
//! | `fixtures` | databases of version 0.1 are read, verified, written on and repaired |
//! | `ingest` | bulk loads: what they answer, when they appear, what a failure leaves |
//! | `ingest_threads` | the threads that write their tables |
//! | `load_opens` | what a load waits for, and what waits for it |
//! | `ingested` | tables with one sequence for all entries: reads, repair |
//! | `limits` | keys, bounds and names at their limits are written and read again |
//! | `levels` | filters by level: a budget, none on the last level, pinning |
//! | `monkey` | a filter budget against even bits, after a load and at rest |
//! | `concurrency` | many threads, background jobs, locks |
//! | `lifetime` | how long a directory is locked, by which process, and the error about it |
//! | `write_waits` | what a put without sync waits for: no file, directory or edit |
//! | `tickets` | tickets of a sync resolve after it, never before, and always |
//! | `fork` | what a forked child may do with its parent's handles |
//! | `events` | what a listener is told, in which order, and that it harms nothing |
//! | `metrics` | OpenMetrics text by the rules of its specification, and latencies |
//! | `spans` | the spans of `tracing`, with the feature of that name |
//! | `resume` | a disk that fills up at any call, and writes after there is space again |
//! | `kills` | a process is killed again and again; every acknowledged write is there |
//! | `hidden_tables` | range deletes give space back at once, and no crash loses one alone |
//! | `transaction_faults` | transactions on bad input, failing disks and closed databases |
//! | `transactions` | what they read, when they conflict, and what a refused one leaves |
//! | `compactions` | tables share no key, whatever ends them; reads agree with a map |
//! | `conflicts` | when transactions conflict: scenarios, with the write in each place
//! | `histories` | the operations of four threads are linearizable |
//! | `resources` | descriptors, threads, memory and disk space, in separate processes |
//! | `filter_rebuild` | filters are replaced during reads and writes, and used |
//! | `regressions` | found defects, each with its account |
//!
//! A failed random test prints its seed; the same seed repeats the same operations.

// Tests read files directly; the library goes through `env`.
#![allow(clippy::disallowed_methods)]

mod architecture;
mod arguments;
mod call_costs;
mod changes;
mod checkpoint_bars;
mod checkpoints;
mod close_now;
mod cold_reads;
mod compactions;
mod compatibility;
mod compression;
mod concurrency;
mod conflicts;
mod corruption;
mod crash;
mod cursors;
mod damage;
mod encodings;
mod events;
mod expiry;
mod expiry_cursors;
mod faults;
mod filter_rebuild;
mod filters;
mod fixtures;
mod fork;
mod follower_processes;
mod followers;
mod foreign;
mod golden;
mod hidden_tables;
mod histories;
mod hit_streaks;
mod hostile;
mod in_memory_only;
mod indexes;
mod ingest;
mod ingest_threads;
mod ingested;
mod interface;
mod kept_logs;
mod keyspace_batches;
mod keyspace_model;
mod keyspaces;
mod kills;
mod larger_than_memory;
mod levels;
mod lifetime;
mod limits;
mod load_opens;
mod long_life;
mod mapped;
mod metrics;
mod model;
mod monkey;
mod multi_get;
mod packaging;
mod prefixes;
mod range_deletes;
mod range_differential;
mod range_filters;
mod read_only;
mod recovery;
mod regressions;
mod repair;
mod repair_keyspaces;
mod rescue;
mod resources;
mod resume;
#[cfg(feature = "tracing")]
mod spans;
mod support;
mod tickets;
mod transaction_faults;
mod transactions;
mod verify;
mod watched_drops;
mod watches;
mod working_directory;
mod write_waits;
