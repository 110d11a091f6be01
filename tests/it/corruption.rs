//! Damaged files: each byte flipped, each length cut, files missing, swapped, extended, foreign.
//!
//! Every read gives the right answer or an error that names a file, and nothing panics. A refused
//! opening leaves all files unchanged, so undoing the damage restores everything. For a log the
//! right answer is a prefix of its writes that contains everything known to be durable.
//!
//! The database is small, so that every byte can be damaged, in two states: after a clean close and
//! after its process died. `every_damage_to_every_store` is the long form, see CONTRIBUTING.md.

use crate::support::cursors::roam;
use crate::support::data::bytes;
use crate::support::filters::{NamedFilter, all_filters, one_of_each_layout, prefix_filters};
use crate::support::model::Map;
use crate::support::ranges::remove_range;
use crate::support::reads::all_keyspaces;
use crate::support::rng::{Rng, setting};
use crate::support::stores::{
    begun_logs, compressions, copy_of, files, files_ending, is_honest, name, open, small_options,
};
use siftdb::env::MemEnv;
use siftdb::env::testing::CrashModel;
use siftdb::{Db, Error, Iter, Keyspace, Options, WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

/// Holds the number of the last batch.
const NUMBER_KEY: &[u8] = b"~number";

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A database as files, with everything that may be read from it.
struct Image {
    name: String,
    options: Options,
    files: Files,
    /// The state after each batch; the first is empty.
    states: Vec<Map>,
    /// Every key that was ever written, and some absent ones.
    keys: Vec<Vec<u8>>,
    /// Batches that other files prove to have been durable.
    known_durable: usize,
    /// In the log: where the records of the last batches end, with the batch's number.
    record_ends: Vec<(usize, usize)>,
}

impl Image {
    fn last(&self) -> usize {
        self.states.len() - 1
    }

    fn with(&self, path: &Path, bytes: Option<Vec<u8>>) -> MemEnv {
        let mut files = self.files.clone();
        match bytes {
            Some(bytes) => files.insert(path.to_path_buf(), bytes),
            None => files.remove(path),
        };
        copy_of(&files)
    }

    /// Batches that must be there after damage to the file, if there is no error.
    fn least(&self, path: &Path) -> usize {
        if name(path).ends_with(".sst") { self.last() } else { self.known_durable }
    }

    /// The same after a flip at byte `at`. Only a flip in the last record of a log may look like a
    /// torn end.
    fn least_of_flip(&self, path: &Path, at: usize) -> usize {
        let ends = self.record_ends.iter().map(|(end, _)| *end);
        let last_begins = ends.rev().nth(1).unwrap_or(0);
        let is_inside = name(path).ends_with(".wal") && at < last_begins;
        if is_inside { self.last() } else { self.least(path) }
    }

    /// The same after a cut at byte `len`. Only a clean close records the length of a log.
    fn least_of_cut(&self, path: &Path, len: usize) -> usize {
        if !name(path).ends_with(".wal") || self.known_durable == self.last() {
            return self.last();
        }
        let whole = self.record_ends.iter().rev().find(|(end, _)| *end <= len);
        whole
            .or(self.record_ends.first())
            .map_or(0, |(end, number)| number - usize::from(*end > len))
    }

    fn paths(&self, end: &str) -> Vec<PathBuf> {
        self.files.keys().filter(|path| name(path).ends_with(end)).cloned().collect()
    }
}

/// Writes batches and records them.
struct Writer {
    states: Vec<Map>,
    rng: Rng,
}

impl Writer {
    /// Writes a range delete, and then `count` random puts and deletions. Half of the batches
    /// expire, in a far future.
    fn write(&mut self, db: &Db, count: usize, sync: bool) {
        let number = self.states.len() as u64;
        let (mut batch, mut state) = (WriteBatch::new(), self.last().clone());
        batch.put(NUMBER_KEY, number.to_le_bytes());
        state.insert(NUMBER_KEY.to_vec(), number.to_le_bytes().to_vec());
        let first = self.rng.below(30);
        let range = (Bound::Included(key(first)), Bound::Excluded(key(first + self.rng.below(7))));
        batch.delete_range(range.clone());
        remove_range(&mut state, &range);
        for _ in 0..count {
            let unique = self.rng.next();
            let (key, size) = (key(unique as usize % 30), 10 + self.rng.below(40));
            if self.rng.chance(85) {
                // Every codec makes less of it.
                let value = bytes(unique, size / 2).repeat(2);
                batch.put(&key, &value);
                state.insert(key, value);
            } else {
                batch.delete(&key);
                state.remove(&key);
            }
        }
        self.states.push(state);
        let options = WriteOptions::new().sync(sync);
        let expiring = options.clone().expire_after(Duration::from_secs(1 << 50));
        db.write_with(batch, if number % 2 == 1 { &expiring } else { &options }).unwrap();
    }

    fn last(&self) -> &Map {
        &self.states[self.states.len() - 1]
    }

    /// Writes a value that has expired when the store is read.
    fn write_expired(&mut self, db: &Db, number: usize) {
        self.states.last_mut().unwrap().remove(&key(number));
        let minute = WriteOptions::new().expire_after(Duration::from_secs(60));
        db.put_with(key(number), [b'x'; 30], &minute).unwrap();
    }
}

fn key(number: usize) -> Vec<u8> {
    format!("key{number:02}").into_bytes()
}

/// A database with a table at level 1, one at level 0 that shadows part of it, and a log with
/// synced and unsynced batches, all with range deletes and entries that expire: after its process
/// died, and after a clean close. Its number chooses how each of the tables is compressed.
fn images((number, filter): (usize, &NamedFilter)) -> [Image; 2] {
    let compression = |level| compressions()[(number + level) % compressions().len()];
    let options = small_options()
        .filter(filter.filter.clone())
        .compression_at_level(0, compression(0))
        .compression_at_level(1, compression(1))
        .auto_compaction(false);
    let env = MemEnv::with_log();
    // The store is read at the time of the system.
    env.set_now(UNIX_EPOCH);
    let db = open(&env, &options).unwrap();
    let mut writer = Writer { states: vec![Map::new()], rng: Rng::new(5) };
    writer.write(&db, 25, false);
    let snapshot = db.snapshot();
    writer.write_expired(&db, 3);
    writer.write(&db, 15, false);
    // The snapshot needs what the range delete deleted, so both stay.
    db.compact_range(..).unwrap();
    drop(snapshot);
    writer.write_expired(&db, 7);
    writer.write(&db, 12, false);
    db.flush().unwrap();
    for table in db.tables() {
        // Otherwise the damage would meet no compressed block.
        let bytes =
            env.read_file(&Path::new("/db").join(format!("{:06}.sst", table.number))).unwrap();
        let long = writer.states.iter().flat_map(Map::values).filter(|value| value.len() >= 40);
        let is_whole = |value: &Vec<u8>| bytes.windows(value.len()).any(|part| part == value);
        assert_eq!({ long }.any(is_whole), table.compression == "none", "{table:?}");
    }
    // The flush is done; its log is removed a moment later.
    while begun_logs(&env).len() > 1 {
        std::thread::yield_now();
    }
    let mut record_ends = Vec::new();
    for sync in [false, true, false, true, false, false] {
        // Nobody ever sees this key.
        writer.write_expired(&db, 31);
        writer.write(&db, 2, sync);
        let log = begun_logs(&env).pop().unwrap();
        let bytes = env.read_file(&log).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        record_ends.push((end, writer.states.len() - 1));
    }
    let killed = files(&env.replay(env.log_len(), CrashModel::Kill, 0));
    db.close().unwrap();
    let image = |state: &str, files: Files, known_durable: usize| Image {
        name: format!("{}, {state}", filter.name),
        options: options.clone(),
        files,
        states: writer.states.clone(),
        keys: (0..32).map(key).collect(),
        known_durable,
        record_ends: record_ends.clone(),
    };
    let last = writer.states.len() - 1;
    let images = [image("killed", killed, last - 2), image("closed", files(&env), last)];
    for image in &images {
        assert_eq!(image.paths(".sst").len(), 2, "{}", image.name);
        assert_eq!(image.paths(".wal").len(), 1, "{}", image.name);
        let undamaged = examine(image, &copy_of(&image.files), image.last(), "undamaged");
        assert!(undamaged.errors.is_empty(), "{:?}", undamaged.errors);
    }
    images
}

/// The result of reading a database.
#[derive(Default)]
struct Seen {
    refused: bool,
    errors: Vec<Error>,
    filter_errors: u64,
}

/// Opens the database and reads everything in every way. Panics at a wrong answer.
fn examine(image: &Image, env: &MemEnv, least: usize, place: &str) -> Seen {
    let before = files(env);
    let mut seen = Seen::default();
    let place = format!("{}: {place}", image.name);
    let db = match open(env, &image.options) {
        Ok(db) => db,
        Err(error) => {
            assert!(is_honest(&error), "{place}: {error}");
            assert!(files(env) == before, "{place}: a refused opening changed files");
            return Seen { refused: true, errors: vec![error], ..seen };
        }
    };
    // The key is in the log, or in a table that recovery has just written, unless a table is
    // damaged.
    let number = match db.get(NUMBER_KEY) {
        Ok(value) => value.map_or(0, |value| {
            u64::from_le_bytes(value.as_ref().try_into().expect("eight bytes")) as usize
        }),
        Err(error) => {
            seen.errors.push(error);
            image.last()
        }
    };
    assert!(
        (least..=image.last()).contains(&number),
        "{place}: batch {number} is the last, {least} to {} may be",
        image.last()
    );
    let state = &image.states[number];
    for key in &image.keys {
        match db.get(key) {
            Ok(value) => assert_eq!(
                value.as_deref(),
                state.get(key).map(Vec::as_slice),
                "{place}: {}",
                key.escape_ascii()
            ),
            Err(error) => seen.errors.push(error),
        }
    }
    walk(db.iter(), false, state, &mut seen, &place);
    walk(db.iter(), true, state, &mut seen, &place);
    let entries = state.clone().into_iter().collect();
    let rng = &mut Rng::new(least as u64);
    let roamed = roam(&mut db.cursor(), &entries, &image.keys, 40, rng, &place);
    seen.errors.extend(roamed.err());
    for error in &seen.errors {
        assert!(is_honest(error), "{place}: {error}");
    }
    seen.filter_errors = db.stats().filter_errors;
    seen
}

/// Entries are right and complete, up to the first error.
fn walk(mut iter: Iter, backwards: bool, state: &Map, seen: &mut Seen, place: &str) {
    let mut expected = state.iter();
    loop {
        let (found, wanted) = if backwards {
            (iter.next_back(), expected.next_back())
        } else {
            (iter.next(), expected.next())
        };
        match found {
            Some(Err(error)) => {
                seen.errors.push(error);
                assert!(iter.next().is_none() && iter.next_back().is_none(), "{place}: not fused");
                return;
            }
            Some(Ok((key, value))) => {
                let (wanted_key, wanted_value) = wanted.expect(place);
                assert_eq!(&key[..], &wanted_key[..], "{place}, backwards {backwards}");
                assert_eq!(&value[..], &wanted_value[..], "{place}, backwards {backwards}");
            }
            None => {
                assert!(wanted.is_none(), "{place}, backwards {backwards}: {wanted:?} is missing");
                return;
            }
        }
    }
}

/// The results of many trials.
#[derive(Default)]
struct Tally {
    trials: AtomicUsize,
    refused: AtomicUsize,
    /// Trials with an error, and those whose first error names the damaged file.
    failed: AtomicUsize,
    named: AtomicUsize,
    /// Trials in which a damaged filter was noticed and no answer was lost.
    filters: AtomicUsize,
    /// Refused openings after which undoing the damage restored everything.
    undone: AtomicUsize,
    /// Wrong answers and panics, each of which is printed.
    violations: AtomicUsize,
    /// For errors that name another file: the damaged one, and that other.
    elsewhere: Mutex<BTreeMap<(String, String), usize>>,
}

impl Tally {
    fn add(&self, seen: &Seen, damaged: &Path) {
        let count = |counter: &AtomicUsize, yes: bool| {
            counter.fetch_add(usize::from(yes), Ordering::Relaxed);
        };
        count(&self.trials, true);
        count(&self.refused, seen.refused);
        count(&self.failed, !seen.errors.is_empty());
        count(&self.filters, seen.filter_errors > 0 && seen.errors.is_empty());
        let Some(error) = seen.errors.first() else { return };
        let named = match error {
            Error::Corruption { path, .. }
            | Error::Missing { path, .. }
            | Error::UnsupportedFormat { path, .. }
            | Error::Io { path, .. } => path,
            _ => Path::new("no file"),
        };
        count(&self.named, named == damaged);
        if named != damaged {
            let kinds = (kind(damaged), kind(named));
            *self.elsewhere.lock().unwrap().entry(kinds).or_default() += 1;
        }
    }

    fn get(counter: &AtomicUsize) -> usize {
        counter.load(Ordering::Relaxed)
    }
}

/// A file's name without its number.
fn kind(path: &Path) -> String {
    name(path).trim_matches(|c: char| c.is_ascii_digit()).into()
}

/// Changes the bytes of a file.
type Make = Box<dyn Fn(&mut Vec<u8>) + Send + Sync>;

/// Damage to one file, and how many batches must be there if there is no error.
struct Damage {
    path: PathBuf,
    /// Damages a copy of the file.
    make: Make,
    least: usize,
    what: String,
}

impl Damage {
    fn new(
        path: &Path,
        least: usize,
        what: String,
        make: impl Fn(&mut Vec<u8>) + Send + Sync + 'static,
    ) -> Self {
        Damage { path: path.to_path_buf(), make: Box::new(make), least, what }
    }
}

/// Tries every damage on two threads. Slow checks run for one trial in `thorough`.
fn try_all(image: &Image, damages: &[Damage], thorough: usize, tally: &Tally) {
    let next = AtomicUsize::new(0);
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(damage) = damages.get(number) else { return };
            let again = number.is_multiple_of(thorough);
            let tried = catch_unwind(AssertUnwindSafe(|| try_one(image, damage, again, tally)));
            if tried.is_err() {
                tally.violations.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

fn try_one(image: &Image, damage: &Damage, again: bool, tally: &Tally) {
    let place = format!("{} {}", name(&damage.path), damage.what);
    let mut bytes = image.files[&damage.path].clone();
    (damage.make)(&mut bytes);
    let env = image.with(&damage.path, Some(bytes));
    let seen = examine(image, &env, damage.least, &place);
    tally.add(&seen, &damage.path);
    if seen.refused && again {
        env.write_file(&damage.path, &image.files[&damage.path]);
        let again = examine(image, &env, image.last(), &format!("{place}, undone"));
        assert!(again.errors.is_empty(), "{place}, undone: {:?}", again.errors);
        tally.undone.fetch_add(1, Ordering::Relaxed);
    }
    if !seen.refused && again {
        rewrite(image, &env, damage.least, &place);
    }
}

/// Compactions must not give a damaged block a good checksum.
fn rewrite(image: &Image, env: &MemEnv, least: usize, place: &str) {
    if let Ok(db) = open(env, &image.options)
        && let Err(error) = db.compact_range(..)
    {
        assert!(is_honest(&error), "{place}: {error}");
    }
    examine(image, env, least, &format!("{place}, compacted"));
}

/// The offsets to damage: every `stride`-th outside long runs of zeros, and some of the zeros.
fn places(bytes: &[u8], stride: usize) -> Vec<usize> {
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let zeros = (used..bytes.len()).step_by((bytes.len() / 16).max(1));
    (0..used).step_by(stride).chain(zeros).collect()
}

fn flips(image: &Image, stride: usize) -> Vec<Damage> {
    let damaged = image.files.iter().flat_map(|(path, bytes)| {
        places(bytes, stride).into_iter().map(move |at| {
            let least = image.least_of_flip(path, at);
            let what = format!("byte {at} flipped");
            Damage::new(path, least, what, move |bytes| bytes[at] ^= 1 << (at % 8))
        })
    });
    damaged.collect()
}

fn cuts(image: &Image, stride: usize) -> Vec<Damage> {
    let damaged = image.files.iter().flat_map(|(path, bytes)| {
        places(bytes, stride).into_iter().map(move |len| {
            let least = image.least_of_cut(path, len);
            Damage::new(path, least, format!("cut to {len} bytes"), move |b| b.truncate(len))
        })
    });
    damaged.collect()
}

/// Sectors, and runs of bytes, that read as zeros, as if they had never been written.
fn zeroed(image: &Image, stride: usize) -> Vec<Damage> {
    let damaged = image.files.iter().flat_map(|(path, bytes)| {
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let sectors = (0..used).step_by(512).map(|at| (at, 512));
        let runs = (0..used).step_by(stride).map(|at| (at, 16));
        sectors.chain(runs).chain([(0, used)]).filter_map(move |(at, len)| {
            let end = used.min(at + len);
            let what = format!("{len} bytes from {at} on zeroed");
            let least = if end == used { image.least_of_cut(path, at) } else { image.least(path) };
            let is_change = bytes[at..end].iter().any(|&byte| byte != 0);
            is_change.then(|| Damage::new(path, least, what, move |b| b[at..end].fill(0)))
        })
    });
    damaged.collect()
}

/// Files with bytes appended. Nothing is lost, so everything must be found.
fn extended(image: &Image) -> Vec<Damage> {
    let mut rng = Rng::new(1);
    let noise: Vec<u8> = (0..700).map(|_| rng.next() as u8).collect();
    let damaged = image.files.iter().flat_map(|(path, bytes)| {
        let junk: [&[u8]; 7] = [&[0], b"x", &[0; 11], &[0; 512], &noise[..5], &noise, bytes];
        junk.map(|junk| {
            let what = format!("with {} bytes of junk after it", junk.len());
            let junk = junk.to_vec();
            Damage::new(path, image.last(), what, move |b| b.extend_from_slice(&junk))
        })
    });
    damaged.collect()
}

/// Every file with the contents of every other, and with none.
fn exchanged(image: &Image) -> Vec<Damage> {
    let contents = image.files.values().map(Vec::as_slice).chain([&[][..]]);
    let pairs = contents.flat_map(|bytes| image.files.iter().map(move |file| (bytes, file)));
    let damaged = pairs.filter(|(bytes, (_, own))| *bytes != &own[..]).map(|(bytes, (path, _))| {
        let what = format!("with {} bytes of another file", bytes.len());
        // An empty log, or a log of zeros, counts as one that was never written to.
        let least = image.least_of_cut(path, 0);
        let bytes = bytes.to_vec();
        Damage::new(path, least, what, move |b| b.clone_from(&bytes))
    });
    damaged.collect()
}

/// In the short form, the distance between damaged bytes.
fn stride() -> usize {
    setting("SIFTDB_CORRUPTION_STRIDE", 13)
}

#[test]
fn flipped_bytes_never_give_wrong_answers() {
    let tally = Tally::default();
    for filter in all_filters().iter().enumerate() {
        for image in images(filter) {
            try_all(&image, &flips(&image, stride()), 8, &tally);
        }
    }
    report("flips", &tally);
    let (failed, named) = (Tally::get(&tally.failed), Tally::get(&tally.named));
    assert!(named * 100 >= failed * 95, "{named} of {failed} errors name the damaged file");
    assert!(Tally::get(&tally.filters) > 0, "no damaged filter was noticed");
}

/// The layout changes tables only; the other files are the same in all layouts.
#[test]
fn every_flipped_byte_in_each_layout() {
    let tally = Tally::default();
    for (number, filter) in one_of_each_layout().iter().enumerate() {
        for (state, image) in images((number, filter)).iter().enumerate() {
            let of_tables = state == 1;
            let mut damages = flips(image, 1);
            damages.retain(|damage| match name(&damage.path) {
                "STATS" => false,
                path if path.ends_with(".sst") => of_tables,
                _ => number == 0,
            });
            try_all(image, &damages, 8, &tally);
        }
    }
    report("flips of every byte", &tally);
}

#[test]
fn cut_files_never_give_wrong_answers() {
    let tally = Tally::default();
    for (number, filter) in one_of_each_layout().iter().enumerate() {
        for image in images((number, filter)) {
            let stride = if number == 0 { 1 } else { stride() };
            try_all(&image, &cuts(&image, stride), 8, &tally);
        }
    }
    report("cuts", &tally);
    // If a manifest is cut between two records, the error names the log that proves it.
    let (failed, named) = (Tally::get(&tally.failed), Tally::get(&tally.named));
    assert!(named * 100 >= failed * 70, "{named} of {failed} errors name the cut file");
}

/// Prints the figures; panics if anything was violated.
fn report(what: &str, tally: &Tally) {
    let [trials, failed] = [&tally.trials, &tally.failed].map(Tally::get);
    let violations = Tally::get(&tally.violations);
    println!(
        "{what}: {trials} trials, {} right answers, {failed} typed errors ({} refused openings, \
         {} of them undone), {} name the file, {} filters passed over, {violations} violations",
        trials - failed,
        Tally::get(&tally.refused),
        Tally::get(&tally.undone),
        Tally::get(&tally.named),
        Tally::get(&tally.filters)
    );
    for ((damaged, named), count) in &*tally.elsewhere.lock().unwrap() {
        println!("  {count} errors for damage to {damaged} name {named}");
    }
    assert_eq!(violations, 0, "{what}");
}

#[test]
fn exchanged_files_never_give_wrong_answers() {
    let tally = Tally::default();
    for filter in one_of_each_layout().iter().enumerate() {
        for image in images(filter) {
            try_all(&image, &zeroed(&image, 4 * stride()), 8, &tally);
            try_all(&image, &extended(&image), 2, &tally);
            try_all(&image, &exchanged(&image), 2, &tally);
        }
    }
    report("zeroed, extended, exchanged", &tally);
}

/// Every kind of damage, at every byte, in stores of every layout, encoding and prefix rule. Each
/// refused opening is repeated after the damage is undone. Takes long; CONTRIBUTING.md has the
/// command.
#[test]
#[ignore = "the long form"]
fn every_damage_to_every_store() {
    let all = Tally::default();
    let stride = setting("SIFTDB_CORRUPTION_STRIDE", 1);
    let mut bytes = 0;
    let filters: Vec<_> = all_filters().into_iter().chain(prefix_filters()).collect();
    for filter in filters.iter().enumerate() {
        for image in images(filter) {
            bytes += image.files.values().map(Vec::len).sum::<usize>();
            try_all(&image, &flips(&image, stride), 1, &all);
            try_all(&image, &cuts(&image, stride), 1, &all);
            try_all(&image, &zeroed(&image, stride), 1, &all);
            try_all(&image, &extended(&image), 1, &all);
            try_all(&image, &exchanged(&image), 1, &all);
        }
    }
    println!("{bytes} bytes in all stores, every {stride}th of them damaged");
    report("everything", &all);
    let (failed, named) = (Tally::get(&all.failed), Tally::get(&all.named));
    assert!(named * 100 >= failed * 95, "{named} of {failed} errors name the damaged file");
}

/// A database that needs two logs, and its entries; `None` if flushes kept up with the writer.
fn with_two_logs(options: &Options) -> Option<(MemEnv, Writer)> {
    let env = MemEnv::with_log();
    let db = open(&env, options).unwrap();
    let mut writer = Writer { states: vec![Map::new()], rng: Rng::new(11) };
    let mut begun = vec![0];
    for _ in 0..60 {
        begun.push(env.log_len());
        writer.write(&db, 60, false);
    }
    db.sync().unwrap();
    let synced_at = env.log_len();
    begun.push(env.log_len());
    writer.write(&db, 1, false);
    drop(db);
    let candidates = (begun[20]..synced_at).step_by(3);
    let several: Vec<MemEnv> = candidates
        .map(|call| env.replay(call, CrashModel::Kill, 0))
        .filter(|env| {
            let logs = begun_logs(env);
            let begun = |log: &PathBuf| env.read_file(log).is_some_and(|bytes| !bytes.is_empty());
            logs.len() >= 2 && logs.iter().all(begun)
        })
        .collect();
    // The first log may be flushed and not yet removed: then nothing is missing without it.
    let needed = several.into_iter().find(|env| {
        let first = begun_logs(env).remove(0);
        let mut files = files(env);
        files.remove(&first);
        open(&copy_of(&files), options).is_err()
    });
    needed.map(|needed| (needed, writer))
}

/// A store with several logs, killed while their memtables waited to be flushed.
#[test]
fn a_damaged_earlier_log_is_corruption() {
    let options = small_options().immutable_memtables_max(4);
    let found = (0..50).find_map(|_| with_two_logs(&options));
    let (needed, mut writer) = found.expect("a moment at which two logs are needed");
    let logs = begun_logs(&needed);
    let found = open(&copy_of(&files(&needed)), &options).unwrap();
    let number = found.get(NUMBER_KEY).unwrap().unwrap();
    let number = u64::from_le_bytes(number.as_ref().try_into().unwrap()) as usize;
    writer.states.truncate(number + 1);
    let image = Image {
        name: "several logs".into(),
        options,
        files: files(&needed),
        states: writer.states,
        keys: (0..32).map(key).collect(),
        known_durable: 0,
        record_ends: Vec::new(),
    };
    let tally = Tally::default();
    let mut rng = Rng::new(3);
    let mut damages = Vec::new();
    for path in &logs {
        let bytes = &image.files[path];
        for _ in 0..60 {
            let at = rng.below(bytes.len());
            let what = format!("byte {at} flipped");
            damages.push(Damage::new(path, 0, what, move |bytes| bytes[at] ^= 0x40));
            let what = format!("cut to {at} bytes");
            damages.push(Damage::new(path, 0, what, move |bytes| bytes.truncate(at)));
        }
    }
    try_all(&image, &damages, 8, &tally);
    report("several logs", &tally);
}

/// A killed and a closed database with three keyspaces and a dropped one, which have tables and
/// entries of a log each. Its manifest says what each table belongs to.
#[test]
fn damaged_manifests_never_mix_keyspaces() {
    let options = small_options().auto_compaction(false);
    let env = MemEnv::with_log();
    let db = open(&env, &options).unwrap();
    let keyspaces = ["default", "first", "second", "dropped"];
    let handles = keyspaces.map(|name| db.keyspace(name).unwrap());
    let tables = || files_ending(&env, ".sst").len();
    let write = |round: usize, handles: &[Keyspace]| {
        for (number, handle) in handles.iter().enumerate() {
            let value = format!("{number} in round {round}");
            handle.put("deleted", &value).unwrap();
            handle.delete_range(.."key").unwrap();
            let hour = WriteOptions::new().expire_after(Duration::from_secs(3600));
            handle.put_with("key", &value, &hour).unwrap();
            handle.put(format!("key{round}{number}"), &value).unwrap();
        }
    };
    write(1, &handles);
    db.flush().unwrap();
    assert_eq!(tables(), 4);
    db.drop_keyspace("dropped").unwrap();
    // Until its table is removed, nothing tells a manifest that lost this last edit from one of the
    // time before it: no log began since.
    while tables() > 3 {
        std::thread::yield_now();
    }
    write(2, &handles[..3]);
    let keys = (0..40).map(|number| format!("key{number}").into_bytes());
    let keys: Vec<Vec<u8>> = keys.chain([b"key".to_vec()]).collect();
    let expected = all_keyspaces(&db, &keys, "undamaged");
    assert!(expected.len() == 3 && expected.values().all(|contents| contents.len() == 3));
    let killed = files(&env.replay(env.log_len(), CrashModel::Kill, 0));
    drop(handles);
    db.close().unwrap();
    let (mut refused, mut trials) = (0, 0);
    for image in [killed, files(&env)] {
        let is_manifest = |path: &&PathBuf| kind(path) == "MANIFEST-";
        let path = image.keys().rfind(is_manifest).expect("a manifest").clone();
        let mut try_bytes = |bytes: Vec<u8>, what: &str| {
            trials += 1;
            let mut damaged = image.clone();
            damaged.insert(path.clone(), bytes);
            let env = copy_of(&damaged);
            match open(&env, &options) {
                Ok(db) => assert_eq!(all_keyspaces(&db, &keys, what), expected, "{what}"),
                Err(error) => {
                    refused += 1;
                    assert!(is_honest(&error), "{what}: {error}");
                    assert!(files(&env) == damaged, "{what}: a refused opening changed files");
                }
            }
        };
        let good = &image[&path];
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            try_bytes(bytes, &format!("byte {at} flipped"));
            try_bytes(good[..at].to_vec(), &format!("cut to {at} bytes"));
        }
    }
    println!("{refused} of {trials} refused");
    assert!(refused * 10 > trials * 9, "{refused} of {trials}");
}

#[test]
fn missing_files_are_reported() {
    for image in images((0, &all_filters()[0])) {
        for path in image.files.keys().filter(|path| !path.ends_with("STATS")) {
            let env = image.with(path, None);
            let place = format!("{} missing", name(path));
            let seen = examine(&image, &env, image.last(), &place);
            assert!(seen.refused, "{}: {place}", image.name);
            assert!(seen.errors[0].to_string().contains(name(path)), "{}", seen.errors[0]);
            assert!(seen.errors[0].is_corruption(), "{place}: {}", seen.errors[0]);
            env.write_file(path, &image.files[path]);
            let again = examine(&image, &env, image.last(), &format!("{place}, put back"));
            assert!(again.errors.is_empty(), "{place}, put back: {:?}", again.errors);
        }
    }
}

#[test]
fn swapped_emptied_and_extended_files_are_noticed() {
    for image in images((0, &all_filters()[0])) {
        for end in [".sst", ".wal", "CURRENT", "000001", "000002", "000003"] {
            for path in image.paths(end) {
                let empty = image.with(&path, Some(Vec::new()));
                let place = format!("{} empty", name(&path));
                let least = if end == ".wal" { image.record_ends[0].1 - 1 } else { image.last() };
                let seen = examine(&image, &empty, least, &place);
                assert!(seen.refused || end == ".wal", "{}: {place}", image.name);

                let mut longer = image.files[&path].clone();
                longer.extend_from_slice(b"junk that nobody wrote");
                let extended = image.with(&path, Some(longer));
                let place = format!("{} extended", name(&path));
                let seen = examine(&image, &extended, image.known_durable, &place);
                let must_refuse = end == ".sst" || end == "CURRENT";
                assert!(seen.refused || !must_refuse, "{}: {place}", image.name);
            }
        }
        let tables = image.paths(".sst");
        let mut swapped = image.files.clone();
        swapped.insert(tables[0].clone(), image.files[&tables[1]].clone());
        swapped.insert(tables[1].clone(), image.files[&tables[0]].clone());
        let seen = examine(&image, &copy_of(&swapped), image.last(), "tables swapped");
        assert!(seen.refused, "{}: tables swapped", image.name);
    }
}

#[test]
fn foreign_files_stay_and_obsolete_ones_go() {
    let [killed, _] = images((0, &all_filters()[0]));
    let env = copy_of(&killed.files);
    let foreign =
        ["notes.txt", "7.sst", "000007.sst.bak", "CURRENT~", "sub/000001.sst", "099989.sst"];
    let unbelievable = "18446744073709551615.sst";
    for name in foreign.iter().chain([&unbelievable]) {
        env.write_file(&Path::new("/db").join(name), b"mine");
    }
    // Files of siftdb by their contents, too, and one that a crash left empty.
    let orphans = ["099990.sst", "099991.tmp", "099992.sst"];
    for (name, contents) in orphans.into_iter().zip([&b"siftdbST"[..], b"siftdb 1 MANIFEST", b""]) {
        env.write_file(&Path::new("/db").join(name), contents);
    }
    let db = open(&env, &killed.options).unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    for name in foreign {
        let path = Path::new("/db").join(name);
        assert_eq!(env.read_file(&path).as_deref(), Some(b"mine".as_slice()), "{name}");
    }
    for name in orphans {
        assert_eq!(env.read_file(&Path::new("/db").join(name)), None, "{name}");
    }
}

#[test]
fn a_database_without_current_is_not_new() {
    let [_, closed] = images((0, &all_filters()[0]));
    let current = closed.paths("CURRENT").remove(0);
    let env = closed.with(&current, None);
    let error = open(&env, &closed.options).expect_err("files of a store are there");
    assert!(error.is_corruption() && error.to_string().contains("CURRENT"), "{error}");
}

#[test]
fn opening_after_a_clean_close_writes_nothing() {
    for image in images((4, &all_filters()[4])) {
        let env = copy_of(&image.files);
        let before = files(&env);
        let db = open(&env, &image.options).unwrap();
        db.get("key01").unwrap();
        if image.name.ends_with("closed") {
            assert!(files(&env) == before, "opening wrote");
        }
        drop(db);
        let seen = examine(&image, &env, image.last(), "opened again");
        assert!(seen.errors.is_empty(), "{:?}", seen.errors);
    }
}

/// Writes the files of an image to the real disk.
fn on_disk(image: &Image, home: &Path) {
    std::fs::create_dir_all(home).unwrap();
    for (path, bytes) in &image.files {
        std::fs::write(home.join(name(path)), bytes).unwrap();
    }
}

/// Puts something of this kind in place of a file. The good file is at `good`. False if the system
/// does not allow it.
fn put_in_place(what: &str, path: &Path, good: &Path) -> bool {
    match what {
        "directory" => std::fs::create_dir(path).is_ok(),
        "link" => symlink(good, path).is_ok(),
        "dangling link" => symlink(good.join("nowhere"), path).is_ok(),
        "link to itself" => symlink(path, path).is_ok(),
        "FIFO" => Command::new("mkfifo").arg(path).status().is_ok_and(|status| status.success()),
        "device" => symlink("/dev/zero", path).is_ok(),
        _ => UnixListener::bind(path).is_ok(),
    }
}

#[test]
fn special_files_are_refused_and_left_alone() {
    let kinds =
        ["directory", "link", "dangling link", "link to itself", "FIFO", "device", "socket"];
    let [_, closed] = images((0, &all_filters()[0]));
    let directory = tempfile::tempdir().unwrap();
    let (home, aside) = (directory.path().join("db"), directory.path().join("aside"));
    on_disk(&closed, &home);
    let open = || closed.options.clone().open(&home);
    let mut names: Vec<&str> = closed.files.keys().map(|path| name(path)).collect();
    names.push("LOCK");
    std::fs::write(home.join("LOCK"), "").unwrap();
    for file in names {
        for kind in kinds {
            let place = format!("{kind} in place of {file}");
            let path = home.join(file);
            std::fs::rename(&path, &aside).unwrap();
            if !put_in_place(kind, &path, &aside) {
                std::fs::rename(&aside, &path).unwrap();
                continue;
            }
            match open() {
                // Damaged counters never refuse an opening.
                Ok(db) if file == "STATS" => db.close().unwrap(),
                Ok(_) => panic!("{place}: opened"),
                Err(error) => {
                    assert!(is_honest(&error) && file != "STATS", "{place}: {error}");
                    assert!(error.to_string().contains(file), "{place}: {error}");
                }
            }
            if file != "STATS" {
                let now = std::fs::symlink_metadata(&path).unwrap();
                assert!(!now.is_file(), "{place}: something was put there");
            }
            match std::fs::symlink_metadata(&path).unwrap().is_dir() {
                true => std::fs::remove_dir(&path).unwrap(),
                false => std::fs::remove_file(&path).unwrap(),
            }
            std::fs::rename(&aside, &path).unwrap();
            let db = open().unwrap_or_else(|error| panic!("{place}, undone: {error}"));
            let state = &closed.states[closed.last()];
            for (key, value) in state {
                assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]), "{place}, undone");
            }
            assert_eq!(db.iter().count(), state.len());
            db.close().unwrap();
        }
    }
}

#[test]
fn unusual_directories_work_or_are_errors() {
    let [_, closed] = images((0, &all_filters()[0]));
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    on_disk(&closed, &at("db"));
    let entries = closed.states[closed.last()].len();
    let open = |path: &Path| closed.options.clone().open(path);

    symlink(at("db"), at("link")).unwrap();
    assert_eq!(open(&at("link")).unwrap().iter().count(), entries);

    symlink(at("nowhere"), at("dangling")).unwrap();
    std::fs::write(at("file"), "").unwrap();
    let long = at(&"long".repeat(100));
    let deep = at("file").join("below");
    for refused in [at("dangling"), at("file"), long, deep] {
        let error = open(&refused).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
    }
    assert!(!at("nowhere").exists(), "a dangling link was followed");

    let no_text = at("db").with_file_name(OsStr::from_bytes(b"not \xff UTF-8"));
    for _ in 0..2 {
        let db = open(&no_text).unwrap();
        db.put("key", "value").unwrap();
        db.close().unwrap();
    }
    assert_eq!(open(&no_text).unwrap().iter().count(), 1);
}

/// An iterator may meet damage while it steps past the entry that it returns. The entries from its
/// other end must then not pass as the complete rest.
#[test]
fn two_ended_scans_are_complete_or_fail() {
    let env = MemEnv::with_log();
    let db = open(&env, &small_options()).unwrap();
    (0..200u64).for_each(|number| db.put(format!("{number:03}"), bytes(number, 40)).unwrap());
    db.compact_range(..).unwrap();
    db.close().unwrap();
    let table = files_ending(&env, ".sst").remove(0);
    let mut damaged = env.read_file(&table).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    env.write_file(&table, &damaged);
    let db = open(&env, &small_options()).unwrap();
    for from_front in 0..200 {
        let mut iter = db.iter();
        let mut entries: Vec<_> = iter.by_ref().take(from_front).collect();
        entries.extend(iter.rev());
        let complete = entries.len() == 200 && entries.iter().all(Result::is_ok);
        assert!(complete || entries.iter().any(Result::is_err), "{from_front} from the front");
    }
}
