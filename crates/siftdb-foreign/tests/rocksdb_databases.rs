//! Whole databases that RocksDB wrote, read as RocksDB reads them, sound and damaged.
//!
//! What lookups ask is compared with the entries. The databases and what RocksDB found in them: `tests/it/support/rocksdb_fixtures.rs`.

#![allow(clippy::disallowed_methods)]

#[allow(dead_code)]
#[path = "../../../tests/it/support/archive.rs"]
mod archive;
#[path = "../../../tests/it/support/rocksdb_fixtures.rs"]
mod rocksdb_fixtures;

/// What these tests share with those of the other packages.
mod support {
    pub(crate) use super::archive;
}

use archive::Files;
use rocksdb_fixtures::{Contents, Entries, Fixture, fixtures};
use siftdb::env::testing::{Calls, EIO, Fault, FaultEnv, FaultKind};
use siftdb::env::{Env, MemEnv};
use siftdb::{Error, Result};
use siftdb_foreign::{ForeignTable, MergeOperator, RocksDb, RocksDbOptions, TablePart, TableVisit};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

const HOME: &str = "/old";

fn env_of(files: &Files) -> Arc<dyn Env> {
    let env = MemEnv::new();
    env.create_dir(Path::new(HOME)).unwrap();
    for (name, bytes) in files {
        env.write_file(&Path::new(HOME).join(name), bytes);
    }
    Arc::new(env)
}

/// The database of a fixture. Files whose names are `elsewhere` are in the directory `other`.
fn scattered(files: &Files, other: &str, elsewhere: impl Fn(&str) -> bool) -> MemEnv {
    let env = MemEnv::new();
    // Writing a file creates the directories above it.
    for directory in [HOME, other] {
        let file = Path::new(directory).join("note");
        env.write_file(&file, b"");
        env.remove_file(&file);
    }
    for (name, bytes) in files {
        let directory = if elsewhere(name) { other } else { HOME };
        env.write_file(&Path::new(directory).join(name), bytes);
    }
    env
}

/// The files, with this `wal_dir` in each `OPTIONS`.
fn with_wal_dir(files: &Files, wal_dir: &str) -> Files {
    let mut files = files.clone();
    for (_, bytes) in files.iter_mut().filter(|(name, _)| name.starts_with("OPTIONS-")) {
        // Names of column families may be any bytes.
        let section = b"[DBOptions]\n";
        let at = bytes.windows(section.len()).position(|window| window == section).unwrap();
        let at = at + section.len();
        bytes.splice(at..at, format!("  wal_dir={wal_dir}\n").into_bytes());
    }
    files
}

fn is_log(name: &str) -> bool {
    name.ends_with(".log")
}

/// What is in a database, and whether parts of it were not read. Both orders of keys are read.
fn read(env: &Arc<dyn Env>, salvage: bool) -> Result<(Contents, bool)> {
    read_with(env, RocksDbOptions::new().salvage(salvage).reverse_keys(true))
}

fn read_with(env: &Arc<dyn Env>, options: RocksDbOptions) -> Result<(Contents, bool)> {
    let database = RocksDb::open(Arc::clone(env), Path::new(HOME), options)?;
    Ok((contents_of(&database)?, !database.losses().is_empty()))
}

fn contents_of(database: &RocksDb) -> Result<Contents> {
    let mut contents = Contents { prepared: database.prepared().to_vec(), ..Contents::default() };
    for family in database.families() {
        let entries = database.entries(family).collect::<Result<Entries>>()?;
        contents.families.insert(family.name().to_vec(), entries);
    }
    Ok(contents)
}

/// The words of an error for what is refused.
fn words_of(refused: &str) -> &'static str {
    match refused {
        "merge" => "operands of merges",
        "blob" => "values in blob files",
        "wide-columns" => "wide columns",
        "timestamps" | "comparator" => "in the order of",
        "plain-table" => "a plain table",
        "cuckoo-table" => "a cuckoo table",
        "write-prepared" => "WritePrepared",
        "compressed-log" => "a compressed log",
        refused => panic!("{refused}"),
    }
}

#[test]
fn databases_are_read_as_rocksdb_reads_them() {
    let fixtures = fixtures();
    let (mut read_whole, mut refusals, mut problems) = (0, 0, Vec::new());
    for Fixture { name, files, expected, refused, .. } in &fixtures {
        match (read(&env_of(files), false), refused) {
            (Ok((contents, _)), None) if &contents == expected => read_whole += 1,
            (Err(Error::UnsupportedFormat { what, .. }), Some(refused))
                if what.contains(words_of(refused)) =>
            {
                refusals += 1;
            }
            (Err(Error::Corruption { path, .. }), Some(refused))
                if refused == "corrupt-log" && path.extension().is_some_and(|log| log == "log") =>
            {
                refusals += 1;
            }
            (Ok((contents, _)), None) => {
                problems.push(format!("{name}: {}", difference(&contents, expected)));
            }
            (read, _) => problems.push(format!("{name}: {read:.200?}")),
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(read_whole >= 60 && refusals >= 8, "{read_whole} read, {refusals} refused");
}

#[test]
fn every_codec_with_dictionaries_has_a_fixture() {
    let mut codecs = BTreeSet::new();
    for Fixture { name, files, .. } in &fixtures() {
        for table in files.keys().filter(|file| file.ends_with(".sst")) {
            let mut parts = Vec::new();
            // Some tables are of a kind that is refused.
            let path = Path::new(HOME).join(table);
            let Ok(table) = ForeignTable::open(&env_of(files), &path) else { continue };
            let each = &mut |part: &TablePart<'_>| {
                parts.push((part.kind, part.compression));
                Ok(())
            };
            table.each_part(each).unwrap();
            if parts.iter().any(|(kind, _)| *kind == "dictionary") {
                let data = parts.iter().filter(|(kind, _)| *kind == "data");
                codecs.extend(data.map(|(_, codec)| (*codec, name.contains("raw"))));
            }
        }
    }
    let expected = [("LZ4", false), ("zlib", false), ("zstd", false), ("zstd", true)];
    assert_eq!(codecs, BTreeSet::from(expected));
}

#[test]
fn reverse_orders_are_read_only_on_request() {
    let (mut refusals, mut mixed) = (0, 0);
    for Fixture { name, files, expected, reversed, refused } in &fixtures() {
        let env = env_of(files);
        let Err(error) = read_with(&env, RocksDbOptions::new()) else {
            assert!(reversed.is_empty(), "{name}");
            continue;
        };
        if reversed.is_empty() {
            assert!(refused.is_some(), "{name}");
            continue;
        }
        let Error::UnsupportedFormat { what, .. } = error else { panic!("{name}: {error}") };
        assert!(what.contains("in the order of \"rocksdb.ReverseBytewiseComparator\""), "{what}");
        refusals += 1;
        let options = RocksDbOptions::new().reverse_keys(true);
        let database = RocksDb::open(env, Path::new(HOME), options).unwrap();
        for family in database.families() {
            assert_eq!(family.has_reverse_keys(), reversed.contains(family.name()), "{name}");
            let is_sorted = |(a, _): &(Vec<u8>, Vec<u8>), (b, _): &(Vec<u8>, Vec<u8>)| {
                if family.has_reverse_keys() { a > b } else { a < b }
            };
            let entries = &expected.families[family.name()];
            assert!(entries.len() > 5 && entries.is_sorted_by(is_sorted), "{name}");
        }
        mixed += usize::from(reversed.len() < database.families().len());
    }
    assert!(refusals >= 3 && mixed >= 2, "{refusals} refused, {mixed} with both orders");
}

#[test]
fn operands_are_merged_as_by_rocksdb() {
    let mut merged = 0;
    for Fixture { name, files, expected, .. } in &fixtures() {
        let operator = match name.split('.').next() {
            Some("merge-append") => MergeOperator::Append,
            Some("merge-uint64add") => MergeOperator::Uint64Add,
            Some("merge-max") => MergeOperator::Max,
            _ => continue,
        };
        let read = read_with(&env_of(files), RocksDbOptions::new().merge(operator)).unwrap().0;
        assert!(&read == expected, "{name}: {}", difference(&read, expected));
        merged += 1;
    }
    assert!(merged >= 6, "{merged}");
}

/// A table is damaged after the opening, which has not read it.
#[test]
fn figures_of_damaged_tables_are_errors_or_losses() {
    let all = fixtures();
    let has_table = |files: &Files| files.iter().any(|(name, _)| name.ends_with(".sst"));
    let sound = all.iter().find(|fixture| fixture.refused.is_none() && has_table(&fixture.files));
    let Fixture { files, .. } = sound.unwrap();
    for salvage in [false, true] {
        let (env, home) = (scattered(files, "/none", |_| false), Path::new(HOME));
        let options = RocksDbOptions::new().salvage(salvage).reverse_keys(true);
        let database = RocksDb::open(Arc::new(env.clone()), home, options).unwrap();
        for (name, bytes) in files.iter().filter(|(name, _)| name.ends_with(".sst")) {
            env.write_file(&home.join(name), &vec![0x5a; bytes.len()]);
        }
        let figures = |family| database.filter_figures(family).map_err(|error| error.to_string());
        let found: Vec<_> = database.families().iter().map(figures).collect();
        match salvage {
            true => {
                assert!(found.iter().all(|found| found.is_ok()) && !database.losses().is_empty())
            }
            false => {
                let error = found.iter().find_map(|found| found.as_ref().err());
                assert!(error.is_some_and(|said| said.contains(".sst")), "{found:?}");
            }
        }
    }
}

/// The filters of RocksDB deny no key that it reads, and a lookup asks tables until one has the key.
#[test]
fn lookups_find_what_rocksdb_reads() {
    let (mut asked, mut denied, mut merged, mut beyond) = (0, 0, 0, 0);
    for Fixture { name, files, expected, refused, .. } in &fixtures() {
        // Values are not read: those that cannot be are no reason to refuse the filters.
        let options = RocksDbOptions::new().keys_only(true).reverse_keys(true);
        let database = match (RocksDb::open(env_of(files), Path::new(HOME), options), refused) {
            (Ok(database), _) => database,
            (Err(_), Some(_)) => continue,
            (Err(error), None) => panic!("{name}: {error}"),
        };
        for family in database.families() {
            let present = expected.families.get(family.name()).into_iter().flatten();
            let present: Vec<_> = present.map(|(key, _)| key.clone()).collect();
            let tables = database.filter_figures(family).unwrap();
            let trace = database.trace_lookups(family, &present).unwrap();
            assert_eq!(trace.tables().len(), tables.len(), "{name}");
            assert_eq!(trace.found(), present.len() as u64, "{name}");
            // After operands of a merge, lookups go on in older tables.
            let in_several =
                |visits: &[TableVisit]| visits.iter().filter(|visit| visit.has_key).count() > 1;
            let several = trace.lookups().filter(|(_, visits)| in_several(visits)).count();
            assert!(several == 0 || name.starts_with("merge"), "{name}: {several}");
            merged += several;
            for (_, visits) in trace.lookups() {
                let asked: Vec<_> = visits.iter().map(|visit| visit.table).collect();
                assert!(asked.is_sorted_by(|a, b| a < b), "{name}: {asked:?}");
            }
            let absent: Vec<_> =
                present.iter().map(|key| [&key[..], b"\0absent"].concat()).collect();
            let trace = database.trace_lookups(family, &absent).unwrap();
            assert_eq!(trace.found(), 0, "{name}");
            // An absent key after the last one of its block, but not after the separator.
            let visits = trace.lookups().flat_map(|(_, visits)| visits);
            beyond += visits.filter(|visit| visit.next_data.is_some()).count();
            let negatives: u64 = trace.tables().iter().map(|counts| counts.negatives).sum();
            (asked, denied) = (asked + trace.lookups().len(), denied + negatives);
            let levels: Vec<_> = tables.iter().map(|table| table.level).collect();
            assert!(levels.is_sorted(), "{name}: {levels:?}");
        }
    }
    assert!(asked > 1_000 && denied > 1_000, "{asked} asked, {denied} denied");
    assert!(merged > 5 && beyond > 5, "{merged} merged, {beyond} beyond their block");
}

/// Without a manifest every table is read. What is missed then is listed.
#[test]
fn lost_manifests_are_made_up_for_by_all_tables() {
    let (mut whole, mut missed) = (0, 0);
    for Fixture { name, files, expected, refused, .. } in fixtures() {
        if refused.is_some() || !files.keys().any(|name| name.ends_with(".sst")) {
            continue;
        }
        let mut lost = files.clone();
        lost.retain(|name, _| !name.starts_with("MANIFEST"));
        assert!(read(&env_of(&lost), false).is_err(), "{name}");
        lost.remove("CURRENT");
        let options = RocksDbOptions::new().salvage(true).reverse_keys(true);
        let database = RocksDb::open(env_of(&lost), Path::new(HOME), options).unwrap();
        let contents = contents_of(&database).unwrap();
        let losses: Vec<_> = database.losses().iter().map(ToString::to_string).collect();
        assert!(losses.iter().any(|loss| loss.contains("CURRENT")), "{name}: {losses:?}");
        whole += u64::from(contents == expected);
        let is_missed = expected.families.iter().any(|(family, entries)| {
            let found = contents.families.get(family);
            let found: BTreeMap<_, _> = found.into_iter().flatten().cloned().collect();
            entries.iter().any(|(key, value)| found.get(key) != Some(value))
        });
        // Tables that were made outside, and column families that only logs have.
        assert!(!is_missed || losses.len() > 1, "{name}: {losses:?}");
        missed += u64::from(is_missed);
    }
    assert!(whole > 40 && missed > 5, "{whole} whole, {missed} with losses");
}

#[test]
fn logs_of_another_directory_are_read_on_request() {
    let (mut all, mut needed) = (0, 0);
    for Fixture { name, files, expected, refused, .. } in &fixtures() {
        if refused.is_some() || !files.keys().any(|name| is_log(name)) {
            continue;
        }
        let whole = read(&env_of(files), false).unwrap();
        let options = || RocksDbOptions::new().reverse_keys(true);
        let env: Arc<dyn Env> = Arc::new(scattered(files, "/wals", is_log));
        let found = read_with(&env, options().wal_directory("/wals")).unwrap();
        assert!(found == whole, "{name}: {}", difference(&found.0, expected));
        let without = read_with(&env, options().wal_directory(HOME)).unwrap().0;
        needed += usize::from(&without != expected);
        all += 1;
    }
    assert!(all > 40 && needed > 20, "{all} with logs, {needed} that need them");
}

#[test]
fn needed_logs_in_the_wal_dir_are_not_left_out() {
    let options = || RocksDbOptions::new().reverse_keys(true);
    let open = |env: &MemEnv, options| RocksDb::open(Arc::new(env.clone()), HOME.as_ref(), options);
    let mut refusals = 0;
    for Fixture { name, files, refused, .. } in &fixtures() {
        let is_whole = files.keys().any(|name| name.starts_with("OPTIONS-"));
        let logs: Vec<_> = files.keys().filter(|name| is_log(name)).cloned().collect();
        if refused.is_some() || !is_whole || logs.is_empty() {
            continue;
        }
        for wal_dir in ["/other/wals", "other/wals"] {
            let files = with_wal_dir(files, wal_dir);
            let env = scattered(&files, "/other/wals", is_log);
            env.remove_file(&Path::new(HOME).join("IDENTITY"));
            // As in a checkpoint, whose origin may have written more.
            let opened = open(&env, options()).unwrap();
            assert_eq!(opened.unread_wal_directory(), Some(Path::new(wal_dir)), "{name}");
            env.write_file(&Path::new(HOME).join("LOCK"), b"");
            for salvage in [false, true] {
                match open(&env, options().salvage(salvage)) {
                    Err(Error::InvalidArgument { what }) => {
                        assert!(what.contains("other/wals has logs"), "{what}");
                        assert!(what.contains("--wal-dir /old"), "{what}");
                    }
                    // No log is needed.
                    Ok(opened) => assert!(opened.unread_wal_directory().is_some(), "{name}"),
                    opened => panic!("{name}: {opened:?}"),
                }
            }
            open(&env, options().keys_only(true)).unwrap();
            for directory in ["/other/wals", HOME] {
                let opened = open(&env, options().wal_directory(directory)).unwrap();
                assert_eq!(opened.unread_wal_directory(), None);
            }
            refusals += usize::from(open(&env, options()).is_err());
            // A copy of all: the directory that `OPTIONS` names has nothing else.
            for log in &logs {
                env.write_file(&Path::new(HOME).join(log), &files[log]);
            }
            assert_eq!(open(&env, options()).unwrap().unread_wal_directory(), None, "{name}");
            env.write_file(Path::new("/other/wals/999999.log"), b"");
            assert!(open(&env, options()).is_err(), "{name}");
        }
    }
    assert!(refusals > 40, "{refusals}");
}

#[test]
fn a_wal_dir_that_is_absent_or_the_database_itself_is_no_error() {
    let fixtures = fixtures();
    let fixture = fixtures.iter().find(|fixture| fixture.name == "snapshots.rocksdb-7.8");
    let Fixture { files, expected, .. } = fixture.unwrap();
    for (wal_dir, is_listed) in
        [("", false), (HOME, false), ("/old/", false), ("old", false), ("/gone", true)]
    {
        let mut files = with_wal_dir(files, wal_dir);
        files.insert("LOCK".into(), Vec::new());
        assert_eq!(&read(&env_of(&files), false).unwrap().0, expected, "{wal_dir}");
        files.retain(|name, _| !is_log(name));
        let options = RocksDbOptions::new();
        let opened = RocksDb::open(env_of(&files), Path::new(HOME), options).unwrap();
        assert_eq!(opened.unread_wal_directory().is_some(), is_listed, "{wal_dir}");
    }
}

/// RocksDB reads the logs of one directory.
#[test]
fn logs_that_a_request_leaves_out_are_listed() {
    let fixtures = fixtures();
    let fixture = fixtures.iter().find(|fixture| fixture.name == "snapshots.rocksdb-7.8").unwrap();
    let log = fixture.files.keys().filter(|name| is_log(name)).max().unwrap();
    let env = scattered(&fixture.files, "/wals", |_| false);
    let options = RocksDbOptions::new().wal_directory("/wals");
    let opened = RocksDb::open(Arc::new(env), Path::new(HOME), options).unwrap();
    let losses = opened.losses();
    assert!(losses.iter().any(|loss| loss.path == Path::new(HOME).join(log)), "{losses:?}");
}

#[test]
fn tables_are_found_in_other_directories() {
    let mut found = 0;
    for Fixture { name, files, expected, refused, .. } in &fixtures() {
        let is_moved = |name: &str| name.ends_with("1.sst") || name.ends_with("9.sst");
        if refused.is_some() || !files.keys().any(|name| is_moved(name)) {
            continue;
        }
        let env: Arc<dyn Env> = Arc::new(scattered(files, "/tables", is_moved));
        match read(&env, false) {
            Err(Error::Missing { what, .. }) => assert!(what.contains("--db-path"), "{what}"),
            // Not every table that is there is needed.
            read => assert_eq!(&read.unwrap().0, expected, "{name}"),
        }
        env.create_dir(Path::new("/empty")).unwrap();
        let options = RocksDbOptions::new().reverse_keys(true).table_directory("/empty");
        let read = read_with(&env, options.table_directory("/tables")).unwrap().0;
        assert!(&read == expected, "{name}: {}", difference(&read, expected));
        found += 1;
    }
    assert!(found > 20, "{found}");
}

/// The estimate is exact where every deleted key was written once, and no other one again.
#[test]
fn entries_are_estimated_from_properties_and_logs() {
    let (mut estimates, mut counts) = (0, 0);
    for Fixture { name, files, expected, refused, .. } in &fixtures() {
        if refused.is_some() || name.starts_with("merge") {
            continue;
        }
        let options = RocksDbOptions::new().reverse_keys(true);
        let database = RocksDb::open(env_of(files), Path::new(HOME), options).unwrap();
        let count = expected.families.values().map(|entries| entries.len() as u64).sum::<u64>();
        let estimate = database.entries_estimate();
        let exact = ["dictionary-lz4", "random-09.rocksdb-11", "transactions-committed"];
        if exact.iter().any(|exact| name.starts_with(exact)) {
            assert_eq!(estimate, count, "{name}");
        }
        (estimates, counts) = (estimates + estimate, counts + count);
    }
    assert!(
        counts > 1_000 && (counts..counts * 3 / 2).contains(&estimates),
        "{estimates}, {counts}"
    );
}

/// Where two contents begin to differ.
fn difference(read: &Contents, expected: &Contents) -> String {
    if read.prepared != expected.prepared {
        return format!("prepared are {:?}, expected {:?}", read.prepared, expected.prepared);
    }
    let names = |contents: &Contents| contents.families.keys().cloned().collect::<Vec<_>>();
    if names(read) != names(expected) {
        return format!("families are {:?}, expected {:?}", names(read), names(expected));
    }
    let differing = read.families.iter().find(|(name, read)| expected.families[*name] != **read);
    let Some((name, read)) = differing else { return "no difference".into() };
    let expected = &expected.families[name];
    let at = read.iter().zip(expected).take_while(|(read, expected)| read == expected).count();
    format!(
        "{name:?}: entry {at} of {} is {:.80?}, expected of {} {:.80?}",
        read.len(),
        read.get(at),
        expected.len(),
        expected.get(at)
    )
}

/// Reads, with each file that has checksums changed at every place in turn, and gives what came out.
fn with_flipped_bits(
    fixture: &Fixture,
    mut check: impl FnMut(&str, usize, Result<(Contents, bool)>),
) {
    let stride: usize = match std::env::var("SIFTDB_FLIP_STRIDE") {
        Ok(stride) => stride.parse().unwrap(),
        Err(_) => 97,
    };
    for (name, bytes) in &fixture.files {
        let is_checked = match name.rsplit_once(['.', '-']) {
            Some((_, "sst")) => has_checksums(bytes),
            Some((front, _)) => front != "OPTIONS",
            None => true,
        };
        let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        for at in (0..end).step_by(stride).filter(|_| is_checked) {
            let mut files = fixture.files.clone();
            files.get_mut(name).unwrap()[at] ^= 1 << (at % 8);
            check(name, at, read(&env_of(&files), false));
        }
    }
}

/// Whether the footer of a table, its last 53 bytes, begins with a kind of checksum that is not 0.
fn has_checksums(table: &[u8]) -> bool {
    table.iter().nth_back(52) != Some(&0)
}

#[test]
fn flipped_bits_never_show_other_entries() {
    for fixture in fixtures().iter().filter(|fixture| fixture.refused.is_none()) {
        with_flipped_bits(fixture, |name, at, read| match read {
            Ok((contents, has_losses)) if contents != fixture.expected => {
                // As in RocksDB, a log counts up to its first bad part.
                let is_log = name.ends_with(".log");
                assert!(is_log && has_losses, "{}: {name} at {at}", fixture.name);
            }
            Err(Error::Io { path, .. }) => panic!("{}: {name} at {at}: {path:?}", fixture.name),
            _ => {}
        });
    }
}

/// Each file but one: what is left is salvaged, and nothing else appears.
#[test]
fn missing_tables_are_named_and_the_rest_is_salvaged() {
    let mut missing = 0;
    for Fixture { name, files, expected, refused, .. } in &fixtures() {
        let tables = files.keys().filter(|file| file.ends_with(".sst") && refused.is_none());
        for table in tables.take(3) {
            let mut rest = files.clone();
            rest.remove(table);
            let env = env_of(&rest);
            let Err(Error::Missing { path, .. }) = read(&env, false) else {
                // Not every table that is there is needed.
                assert_eq!(&read(&env, false).unwrap().0, expected, "{name} {table}");
                continue;
            };
            assert!(path.ends_with(table), "{path:?}");
            let (salvaged, has_losses) = read(&env, true).unwrap();
            assert!(has_losses, "{name} without {table}");
            assert_eq!(salvaged.families.len(), expected.families.len(), "{name}");
            missing += 1;
        }
    }
    assert!(missing > 30, "{missing}");
}

#[test]
fn failed_reads_are_errors() {
    for Fixture { name, files, expected, refused, .. } in fixtures().iter().step_by(7) {
        if refused.is_some() {
            continue;
        }
        let faults = FaultEnv::new(env_of(files));
        let env: Arc<dyn Env> = Arc::new(faults.clone());
        for salvage in [false, true] {
            let before = faults.calls();
            assert_eq!(&read(&env, salvage).unwrap().0, expected, "{name}");
            for call in 0..faults.calls() - before {
                faults.fail_at(faults.calls() + call, Fault::once(FaultKind::Error(EIO)));
                let read = read(&env, salvage);
                assert!(matches!(read, Err(Error::Io { .. })), "{name}, call {call}: {read:?}");
                assert!(faults.has_fired());
            }
            faults.heal();
        }
        assert_eq!(faults.calls_of(Calls::Changes), 0);
    }
}
