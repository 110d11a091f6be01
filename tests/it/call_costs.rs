//! What each operation asks of the file system: reads and syncs, counted by `CountingEnv`. Writes
//! are left out: a worker replaces `STATS` after a flush has returned.
//!
//! docs/costs.md has the table. `UPDATE_GOLDEN=1 cargo test --test it call_costs` writes it again.

use crate::support::stores::{HOME, until};
use siftdb::env::{CountingEnv, DirectoryEntry, Env, IoCounts, MemEnv};
use siftdb::{Options, ReadOptions, Result, WriteBatch, WriteOptions};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const BEGIN: &str = "<!-- calls: begin -->\n";
const END: &str = "<!-- calls: end -->\n";
const ENTRIES: u64 = 10_000;

fn key(n: u64) -> Vec<u8> {
    format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}

/// The table so far, and the Env that counts.
struct Costs {
    env: CountingEnv,
    table: String,
}

impl Costs {
    fn new() -> Self {
        let table = "| operation | reads | syncs of files | of directories |\n|---|---|---|---|\n";
        Costs { env: CountingEnv::new(Arc::new(MemEnv::new())), table: table.into() }
    }

    /// Adds a row: what `operation` asks for.
    fn row<T>(&mut self, name: &str, operation: impl FnOnce() -> Result<T>) -> T {
        let before = self.env.counts();
        let answer = operation().unwrap_or_else(|error| panic!("{name}: {error}"));
        let counted = |of: fn(&IoCounts) -> u64| of(&self.env.counts()) - of(&before);
        let (reads, syncs) = (counted(|c| c.read_calls), counted(|c| c.syncs));
        let directories = counted(|c| c.directory_syncs);
        writeln!(self.table, "| {name} | {reads} | {syncs} | {directories} |").unwrap();
        answer
    }

    /// Nothing runs by itself, so that every run counts the same.
    fn options(&self) -> Options {
        Options::new().auto_compaction(false).env(Arc::new(self.env.clone()) as Arc<dyn Env>)
    }
}

fn writes(costs: &mut Costs) -> Result<()> {
    let options = costs.options();
    let db = costs.row("open: a new database", || options.open(HOME));
    costs.row("first put of a session: log and manifest", || db.put("a", "1"));
    costs.row("put, delete, delete of a range", || {
        db.put("b", "1")?;
        db.delete("b")?;
        db.delete_range("x".."y")
    });
    costs.row("batch of 100 entries", || db.write(batch(0..100)));
    let synced = WriteOptions::new().sync(true);
    costs.row("put with sync", || db.put_with("c", "1", &synced));
    db.put("d", "1")?;
    costs.row("`sync` after a put", || db.sync());
    drop(costs.row("snapshot", || Ok(db.snapshot())));
    costs.row("transaction: get and put of one key", || {
        db.transact(|transaction| {
            transaction.get("d")?;
            transaction.put("d", "2")
        })
    });
    costs.row("create a keyspace", || db.keyspace("other"));
    costs.row("drop it", || db.drop_keyspace("other"));
    (0..ENTRIES).try_for_each(|n| db.put(key(n), [b'v'; 100]))?;
    costs.row("flush of 10,000 entries", || db.flush());
    costs.row("flush of nothing", || db.flush());
    let env = costs.env.clone();
    let load = (0..ENTRIES).map(|n| (format!("load {n:05}"), [b'v'; 100]));
    costs.row("bulk load of 10,000 entries, removal of the log before it", || {
        db.ingest(load)?;
        wait_for_one_log(&env);
        Ok(())
    });
    (0..ENTRIES).try_for_each(|n| db.put(key(n), [b'w'; 100]))?;
    db.flush()?;
    costs.row("`compact_range` of these three tables", || db.compact_range(..));
    costs.row("checkpoint in a new directory", || db.checkpoint("/checkpoint"));
    costs.row("close", || db.close());
    Ok(())
}

/// A load begins a log. The worker then logs that no older one is needed, and removes those.
fn wait_for_one_log(env: &dyn Env) {
    let is_log = |entry: &DirectoryEntry| entry.name.ends_with(".wal");
    let logs = || env.list(Path::new(HOME)).unwrap().iter().filter(|entry| is_log(entry)).count();
    until("one log is left", || logs() == 1);
}

fn batch(numbers: std::ops::Range<u64>) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for n in numbers {
        batch.put(key(n), "in a batch");
    }
    batch
}

fn reads(costs: &mut Costs) -> Result<()> {
    let options = costs.options();
    let db = costs.row("open: two tables, closed cleanly", || options.open(HOME));
    let found = |n: u64| db.get(key(n)).map(|value| assert!(value.is_some()));
    costs.row("get: first of a table, index and block", || found(1));
    costs.row("get: the same key again", || found(1));
    costs.row("get: a key of another block", || found(2));
    costs.row("get: an absent key", || db.get("absent"));
    let unfilled = ReadOptions::new().fill_cache(false);
    costs.row("`multi_get` of 32 keys in other blocks", || {
        db.multi_get_with((100..132).map(key), &unfilled)
    });
    costs.row("scan of 100 entries", || db.iter().take(100).collect::<Result<Vec<_>>>());
    db.put("a", "in memory")?;
    costs.row("get: a key of the memtable", || db.get("a"));
    let follower_options = costs.options();
    let follower = costs.row("open a follower", || follower_options.open_follower(HOME));
    costs.row("refresh: nothing has changed", || follower.refresh());
    db.put("b", "newer")?;
    costs.row("refresh after a put", || follower.refresh());
    drop(follower);
    costs.row("`verify`", || db.verify(|_| ()));
    db.close()
}

#[test]
fn costs_in_calls_are_documented() {
    let mut costs = Costs::new();
    writes(&mut costs).unwrap();
    reads(&mut costs).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/costs.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, [before, BEGIN, &costs.table, END, after].concat()).unwrap();
    } else {
        assert_eq!(found, costs.table, "docs/costs.md differs; see tests/it/call_costs.rs");
    }
}
