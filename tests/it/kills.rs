//! A writing process is killed again and again: every acknowledged write is there, and a write in
//! progress is there whole or not at all.
//!
//! The killed process is this test binary running `the_writer_process_to_kill` alone. It records
//! what it begins and what was acknowledged (`support/expected.rs`). The next process continues in
//! the same directory with other options. After some kills a new directory is used.
//!
//! `SIFTDB_KILLS` sets how many; `SIFTDB_SEED` repeats the options and operations of a run, not the
//! moments of its kills.

use crate::support::child::end_with_the_parent;
use crate::support::data::absent_key;
use crate::support::expected::{
    COUNTER, Counts, Expected, Moment, NOTE_BYTES, Notes, Operation, WRITERS, all_keys,
    first_moment, is_in_other, operation, own_key, tag_key,
};
use crate::support::filters::{all_filters, prefix_filters};
use crate::support::model::Map;
use crate::support::rng::{Rng, setting};
use crate::support::stores::{any_block_settings, scan, scan_back, small_options};
use siftdb::{
    Db, Error, FilterRebuild, Keyspace, Options, ReadOptions, Transaction, WriteBatch, WriteOptions,
};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Set for the process that is to be killed: the directory, the seed and the number of the run.
const CHILD: &str = "SIFTDB_TEST_KILLED";

/// The second keyspace. Which keys are in it follows from the key, so most batches write to both.
const OTHER: &str = "other";

/// Kills in one directory.
const KILLS_EACH: u64 = 25;

const SIGKILL: i32 = 9;

/// How long a process may take for the operations that it is killed after.
const PATIENCE: Duration = Duration::from_secs(20);

/// Small options. Filters, sizes and bounds change at random from run to run.
fn options(seed: u64, run: u64) -> Options {
    // Some runs keep the options of the run before.
    let mut rng = Rng::new(seed ^ (run * 2 / 3).rotate_left(32));
    let filters = [all_filters(), prefix_filters()].concat();
    small_options()
        .filter(rng.pick(&filters).filter.clone())
        .default_keyspace(&any_block_settings(&mut rng))
        .block_bytes(*rng.pick(&[128, 512, 4096]))
        .block_hash_index(rng.chance(70))
        .write_buffer_bytes((64 << 10) << rng.below(3))
        .immutable_memtables_max(1 + rng.below(3))
        // The reader may have a smaller write buffer than the process that was killed.
        .read_only_log_bytes_max(16 << 20)
        .memtable_filter(rng.chance(70))
        .table_bytes((16 << 10) << rng.below(3))
        .level_base_bytes((64 << 10) << rng.below(3))
        .level0_compaction_trigger(1 + rng.below(4))
        .manifest_bytes((1 << 10) << rng.below(4))
        .block_cache_bytes(*rng.pick(&[0, 128 << 10, 4 << 20]))
        .max_open_files(*rng.pick(&[1, 8, 100]))
}

/// No test of its own: what the killed process runs.
#[test]
fn the_writer_process_to_kill() {
    let Ok(child) = std::env::var(CHILD) else { return };
    end_with_the_parent();
    let mut words = child.splitn(3, ' ');
    let (seed, run) = (words.next().unwrap(), words.next().unwrap());
    let directory = Path::new(words.next().unwrap());
    let (seed, run): (u64, u64) = (seed.parse().unwrap(), run.parse().unwrap());
    let db = options(seed, run).open(directory.join("db")).unwrap();
    let other = db.keyspace(OTHER).unwrap();
    let clock = AtomicU64::new(first_moment(run));
    let now = || -> Moment { clock.fetch_add(1, Ordering::SeqCst) };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, other, now) = (&db, &other, &now);
            scope.spawn(move || write_on(db, other, directory, writer, seed, now));
        }
        let mut rng = Rng::new(seed ^ run);
        loop {
            std::thread::sleep(Duration::from_millis(rng.next() % 20));
            let keyspace = if rng.chance(50) { &other } else { &db };
            match rng.below(8) {
                0..3 => keyspace.flush().unwrap(),
                3 => keyspace.compact_range(own_key(1, 0)..own_key(2, 60)).unwrap(),
                4 => drop(keyspace.rebuild_filters(FilterRebuild::All).unwrap()),
                5 => drop(scan(&db).unwrap()),
                6 => db.sync_ticket().wait().unwrap(),
                _ => db.sync().unwrap(),
            }
        }
    });
}

fn write_on(
    db: &Db,
    other: &Keyspace,
    directory: &Path,
    writer: usize,
    seed: u64,
    now: &dyn Fn() -> Moment,
) {
    let (notes, first) = Notes::open(directory, writer);
    for number in first.. {
        let operation = operation(seed, writer, number);
        let mut options = WriteOptions::new().sync(operation.sync);
        if let Some(seconds) = operation.lives {
            options = options.expire_after(Duration::from_secs(seconds));
        }
        let refused = operation.refused.then(|| to_be_refused(db, other, writer));
        notes.begun(number, now());
        match &operation.entries[..] {
            entries if operation.load => load(db, entries, number),
            _ if operation.counts() => count_up(db, other, &operation, &options),
            [(key, value)] if operation.transaction && !operation.batch => {
                let keyspace = if is_in_other(key) { other } else { db };
                let set = |_: Option<&[u8]>| value.clone();
                keyspace.update_with(key, set, &options).map(drop)
            }
            [(key, value)] if !operation.batch && !operation.sync => {
                let keyspace = if is_in_other(key) { other } else { db };
                match value {
                    Some(value) => keyspace.put_with(key, value, &options),
                    None => keyspace.delete(key),
                }
            }
            _ => db.write_with(batch_across(&operation, other), &options),
        }
        .unwrap();
        // Every batch writes the tag that it has read.
        if let Some(refused) = refused.filter(|_| operation.batch) {
            assert!(matches!(refused.commit(), Err(Error::Conflict { .. })));
        }
        notes.acknowledged(number, now());
        if number % 5 == 0 {
            drop(db.sync_ticket());
        }
    }
}

/// A bulk load, by one of its three calls.
fn load(db: &Db, entries: &[(Vec<u8>, Option<Vec<u8>>)], number: u64) -> siftdb::Result<()> {
    let entries = entries.iter().map(|(key, value)| (key, value.as_ref().unwrap()));
    match number % 3 {
        0 => db.ingest(entries),
        1 => db.ingest_unsorted(entries.rev()),
        _ => {
            let mut writer = db.table_writer()?;
            entries.into_iter().try_for_each(|(key, value)| writer.put(key, value))?;
            writer.finish()
        }
    }
    .map(drop)
}

/// A transaction that reads the writer's tag and writes what must never be seen.
fn to_be_refused(db: &Db, other: &Keyspace, writer: usize) -> Transaction {
    let tx = db.transaction();
    let tag = tag_key(writer);
    let keyspace = if is_in_other(&tag) { other } else { db };
    tx.in_keyspace(keyspace).get(&tag).unwrap();
    for keyspace in [db, other] {
        let part = tx.in_keyspace(keyspace);
        part.delete_range(..).unwrap();
        part.put("refused", "refused").unwrap();
    }
    tx
}

/// Writes the operation and counts it, in one transaction, until that meets no conflict.
fn count_up(
    db: &Db,
    other: &Keyspace,
    operation: &Operation,
    options: &WriteOptions,
) -> siftdb::Result<()> {
    let run = |tx: &Transaction| {
        let parts = [db, other].map(|keyspace| tx.in_keyspace(keyspace));
        for range in &operation.ranges {
            parts.iter().try_for_each(|part| part.delete_range(range.clone()))?;
        }
        for (key, value) in &operation.entries {
            let part = &parts[usize::from(is_in_other(key))];
            part.get(key)?;
            match value {
                Some(value) => part.put(key, value)?,
                None => part.delete(key)?,
            }
        }
        let count = tx
            .get(COUNTER)?
            .map_or(0, |count| std::str::from_utf8(&count).unwrap().parse::<u64>().unwrap());
        tx.put(COUNTER, (count + 1).to_string())
    };
    loop {
        match db.transact_with(options, run) {
            Err(Error::Conflict { .. }) => {}
            result => return result,
        }
    }
}

fn start(directory: &Path, seed: u64, run: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::the_writer_process_to_kill", "--nocapture"])
        .env(CHILD, format!("{seed} {run} {}", directory.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Operations that writers have begun, by the lengths of their notes.
fn begun(directory: &Path) -> u64 {
    let bytes = |writer| {
        let notes = std::fs::metadata(directory.join(format!("writer-{writer}")));
        notes.map_or(0, |notes| notes.len())
    };
    (0..WRITERS).map(bytes).sum::<u64>() / NOTE_BYTES
}

/// Lets run `run` write for a moment and kills it.
fn run_and_kill(directory: &Path, seed: u64, run: u64, rng: &mut Rng) -> Result<(), String> {
    let before = begun(directory);
    let mut child = start(directory, seed, run);
    // Some are killed after a short time, while they open the database, the others after a number
    // of operations: on a busy machine no operation may fit into a short time.
    if rng.chance(25) {
        std::thread::sleep(Duration::from_micros(rng.below(15_000) as u64));
    } else {
        let (target, deadline) = (before + rng.below(600) as u64, Instant::now() + PATIENCE);
        while begun(directory) < target && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    let locked =
        (run == 0 && begun(directory) > 0).then(|| options(seed, run).open(directory.join("db")));
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    if output.status.signal() != Some(SIGKILL) {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("it ended by itself, {}: {said}", output.status));
    }
    match locked {
        Some(Ok(_)) => Err("it was opened by two processes".into()),
        Some(Err(Error::Locked { .. })) | None => Ok(()),
        Some(Err(error)) => Err(format!("a second opening: {error}")),
    }
}

/// The operation's ranges in both keyspaces, and its entries, each in its own.
fn batch_across(operation: &Operation, other: &Keyspace) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for range in &operation.ranges {
        batch.delete_range(range.clone());
        batch.in_keyspace(other).delete_range(range.clone());
    }
    for (key, value) in &operation.entries {
        match (is_in_other(key), value) {
            (false, Some(value)) => _ = batch.put(key, value),
            (false, None) => _ = batch.delete(key),
            (true, Some(value)) => _ = batch.in_keyspace(other).put(key, value),
            (true, None) => _ = batch.in_keyspace(other).delete(key),
        }
    }
    batch
}

/// Reads both keyspaces in every way; all of it must agree.
fn look(db: &Db) -> Result<Map, String> {
    let mut found = look_into(db)?;
    if db.keyspaces().iter().any(|name| name == OTHER) {
        let other = db.keyspace(OTHER).map_err(|error| error.to_string())?;
        let in_other = look_into(&other)?;
        if found.keys().any(|key| is_in_other(key)) || !in_other.keys().all(|key| is_in_other(key))
        {
            return Err("a key is in the wrong keyspace".into());
        }
        found.extend(in_other);
    }
    Ok(found)
}

fn look_into(db: &Keyspace) -> Result<Map, String> {
    let text = |error: Error| error.to_string();
    let found = scan(db).map_err(text)?;
    let backwards = scan_back(db).map_err(text)?;
    if !backwards.iter().rev().map(|(key, value)| (key, value)).eq(&found) {
        return Err("a scan backwards finds something else".into());
    }
    let keys = [all_keys(), vec![absent_key(1)]].concat();
    let together = db.multi_get(&keys).map_err(text)?;
    let unfiltered = ReadOptions::new().use_filters(false);
    for (key, value) in keys.iter().zip(together) {
        let answers = [Ok(value), db.get(key), db.get_with(key, &unfiltered)];
        for answer in answers {
            let answer = answer.map_err(text)?;
            if answer.as_deref() != found.get(key).map(Vec::as_slice) {
                let answer = answer.map(|value| value.len());
                return Err(format!("\"{}\": a lookup finds {answer:?}", key.escape_ascii()));
            }
        }
    }
    Ok(found)
}

/// What the checks have seen.
#[derive(Debug, Default)]
struct Seen {
    kills: u64,
    counts: Counts,
    while_opening: u64,
    /// The most tables, and the deepest level that had one.
    tables: u64,
    deepest: usize,
}

/// Checks what a kill left, sometimes read-only, sometimes as a writer.
fn check(
    directory: &Path,
    expected: &mut Expected,
    run: u64,
    rng: &mut Rng,
    seen: &mut Seen,
) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let (path, seed) = (directory.join("db"), expected.seed);
    let before = expected.counts.acknowledged;
    let mut as_writer = rng.chance(50);
    let options = options(seed, run + rng.below(2) as u64);
    let db = match as_writer {
        true => options.clone().open(&path).map_err(text)?,
        false => match options.clone().open_read_only(&path) {
            Ok(db) => db,
            // Killed before a database was created.
            Err(Error::Io { op: "open", .. }) if before == 0 => {
                as_writer = true;
                options.clone().open(&path).map_err(text)?
            }
            Err(error) => return Err(error.to_string()),
        },
    };
    let found = look(&db)?;
    expected.judge(directory, run, &found)?;
    seen.while_opening += u64::from(expected.counts.acknowledged == before);
    if rng.chance(30) {
        let report = db.verify(|_| {}).map_err(text)?;
        if !report.is_sound() {
            return Err(format!("{:?}", report.damage));
        }
    }
    let levels = &db.stats().levels;
    seen.tables = seen.tables.max(levels.iter().map(|level| level.tables).sum());
    let deepest = levels.iter().rposition(|level| level.tables > 0).unwrap_or(0);
    seen.deepest = seen.deepest.max(deepest);
    if as_writer && rng.chance(50) {
        db.close().map_err(text)?;
    }
    drop(db);
    if rng.chance(20) {
        let again = options.open(&path).map_err(text)?;
        if look(&again)? != found {
            return Err("another opening finds something else".into());
        }
    }
    Ok(())
}

fn kill_in_one_directory(seed: u64, kills: u64, seen: &mut Seen) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(seed);
    let mut expected = Expected::new(seed);
    let mut result = Ok(());
    for run in 0..kills {
        result = run_and_kill(directory.path(), seed, run, &mut rng)
            .and_then(|()| check(directory.path(), &mut expected, run, &mut rng, seen));
        if let Err(what) = &mut result {
            *what = format!("seed {seed}, kill {run}, {}: {what}", directory.path().display());
            let _kept = directory.keep();
            break;
        }
        seen.kills += 1;
    }
    seen.counts += expected.counts;
    result
}

#[test]
fn a_killed_process_loses_nothing_acknowledged() {
    let kills = setting("SIFTDB_KILLS", 20) as u64;
    let first_seed = setting("SIFTDB_SEED", std::process::id() as usize) as u64;
    let (mut seen, started) = (Seen::default(), Instant::now());
    let enough = |seen: &Seen| {
        let written = seen.counts.acknowledged > kills * 20;
        written && seen.deepest > 0 && seen.tables > 4 && seen.counts.loads > kills / 2
    };
    // If the kills have met too little, more of them follow, up to a limit.
    for seed in first_seed.. {
        let limit = if enough(&seen) { kills } else { 5 * kills + KILLS_EACH };
        let rest = limit.saturating_sub(seen.kills);
        if rest == 0 {
            break;
        }
        let rest = if seen.kills < kills { kills - seen.kills } else { rest.min(5) };
        let result = kill_in_one_directory(seed, rest.min(KILLS_EACH), &mut seen);
        println!("seeds {first_seed} to {seed}, {:.0?}: {seen:?}", started.elapsed());
        result.unwrap_or_else(|what| panic!("{what}"));
    }
    assert!(enough(&seen), "little was written, or little compacted: {seen:?}");
}
