//! Tables in memory, as through a memory map: reads make no call, and damage is the same error as
//! through calls, with file and offset. `MapEnv` itself, on a disk.

use crate::support::data::{absent_key, bytes, key};
use crate::support::filters::one_of_each_layout;
use crate::support::stores::{HOME, as_env, copy_of, files, files_ending, small_options};
use crate::support::table_reads::ReadsEnv;
use siftdb::env::{Env, MemEnv};
use siftdb::{Db, Error, Options, Result, Value};
use std::path::Path;
use std::sync::Arc;

const KEYS: usize = 120;

/// A cache that holds filters and indexes and few of the data blocks.
fn options() -> Options {
    small_options().auto_compaction(false).block_cache_bytes(16 << 10)
}

/// Values of different lengths that can be compressed.
fn compressible(number: usize) -> Vec<u8> {
    bytes(number as u64, 20).repeat(2 + number % 15)
}

fn fill(db: &Db) {
    for number in 0..KEYS {
        db.put(key(number), compressible(number)).unwrap();
    }
    db.flush().unwrap();
}

/// What each of many reads answers, errors included.
fn answers(env: Arc<dyn Env>, options: &Options, home: &Path) -> Vec<String> {
    let db = match options.clone().env(env).open(home) {
        Ok(db) => db,
        Err(error) => return vec![said(&error)],
    };
    let value = |found: &Option<Value>| match found {
        Some(value) => value.escape_ascii().to_string(),
        None => "absent".into(),
    };
    let one = |found: Result<Option<Value>>| match found {
        Ok(found) => value(&found),
        Err(error) => said(&error),
    };
    let mut answers = Vec::new();
    // The second time a block that was sound is not checked again.
    for _ in 0..2 {
        for number in 0..KEYS {
            answers.push(one(db.get(key(number))));
            answers.push(one(db.get(absent_key(number))));
        }
    }
    for first in (0..KEYS).step_by(20) {
        let many = db.multi_get((first..first + 20).map(key));
        answers.push(match many {
            Ok(found) => found.iter().map(value).collect(),
            Err(error) => said(&error),
        });
    }
    for entries in [db.iter().collect::<Vec<_>>(), db.iter().rev().collect()] {
        answers.extend(entries.into_iter().map(|entry| match entry {
            Ok((key, value)) => format!("{key:?} {}", value.escape_ascii()),
            Err(error) => said(&error),
        }));
    }
    answers
}

/// The kind of an error and what it says: path and offset are in it.
fn said(error: &Error) -> String {
    format!("{error:?}")
}

#[test]
fn damage_in_memory_is_the_same_error() {
    for filter in one_of_each_layout() {
        for snappy in [false, true] {
            let options = options().filter(filter.filter.clone()).snappy(snappy);
            let disk = MemEnv::new();
            fill(&options.clone().env(as_env(&disk)).open(HOME).unwrap());
            let table = files_ending(&disk, ".sst").remove(0);
            let sound = files(&disk);
            let (mut failed, len) = (0, sound[&table].len());
            let flips = (0..len).step_by(211).map(|at| (at, None));
            let cuts = (0..len).step_by(811).map(|len| (len, Some(len)));
            for (at, cut) in flips.chain(cuts) {
                let mut damaged = sound.clone();
                let bytes = damaged.get_mut(&table).unwrap();
                match cut {
                    None => bytes[at] ^= 1 << (at % 8),
                    Some(len) => bytes.truncate(len),
                }
                let [called, mapped] = [false, true].map(|in_memory| {
                    let disk = as_env(&copy_of(&damaged));
                    let env: Arc<dyn Env> = match in_memory {
                        false => disk,
                        true => Arc::new(ReadsEnv::in_memory(disk)),
                    };
                    answers(env, &options, Path::new(HOME))
                });
                assert!(called == mapped, "{}, {at}, {cut:?}", filter.name);
                failed += usize::from(called.iter().any(|said| said.contains("Corruption")));
            }
            assert!(failed > len / 211 / 3, "{}: {failed} of {len} bytes", filter.name);
        }
    }
}

#[test]
fn tables_in_memory_are_read_without_calls() {
    for filter in one_of_each_layout() {
        let env = ReadsEnv::in_memory(Arc::new(MemEnv::new()));
        let options = options().filter(filter.filter.clone()).env(Arc::new(env.clone()));
        let db = options.open(HOME).unwrap();
        fill(&db);
        env.take();
        for number in (0..KEYS).chain(0..KEYS) {
            let expected = compressible(number);
            assert_eq!(db.get(key(number)).unwrap().as_deref(), Some(&expected[..]));
            assert_eq!(db.get(absent_key(number)).unwrap(), None);
        }
        assert_eq!(db.iter().count(), KEYS);
        assert!(db.stats().total().data_blocks_read > 20, "{}: all are cached", filter.name);
        assert_eq!(env.take(), [], "{}", filter.name);
    }
}

/// All entries of an ingested table have the sequence 0 in the file, wherever it is searched.
#[test]
fn ingested_tables_in_memory_have_their_sequence() {
    let env = ReadsEnv::in_memory(Arc::new(MemEnv::new()));
    let options = options().snappy(false).env(Arc::new(env));
    let db = options.open(HOME).unwrap();
    fill(&db);
    let before = db.snapshot();
    db.ingest((0..KEYS).map(|number| (key(number), "loaded"))).unwrap();
    for _ in 0..3 {
        for number in 0..KEYS {
            let old = compressible(number);
            assert_eq!(before.get(key(number)).unwrap().as_deref(), Some(&old[..]));
            assert_eq!(db.get(key(number)).unwrap().as_deref(), Some(&b"loaded"[..]));
        }
    }
}

#[cfg(feature = "mmap")]
mod map_env {
    use super::*;
    use siftdb::env::MapEnv;
    use std::fs::{self, OpenOptions};
    use std::os::unix::process::ExitStatusExt;
    use std::path::PathBuf;
    use std::process::Command;

    #[expect(unsafe_code, reason = "the contract of MapEnv")]
    fn map_env() -> Arc<dyn Env> {
        // SAFETY: the tests change no table while a database has it open, except the one that
        // expects to be killed.
        Arc::new(unsafe { MapEnv::new() })
    }

    fn table(directory: &Path) -> PathBuf {
        let mut names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        names.find(|path| path.extension().is_some_and(|end| end == "sst")).unwrap()
    }

    #[test]
    fn damaged_maps_are_typed_errors() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("db");
        let options = options().snappy(false);
        let db = options.clone().env(map_env()).open(&home).unwrap();
        fill(&db);
        db.close().unwrap();
        drop(db);
        let path = table(&home);
        let sound = fs::read(&path).unwrap();
        let disk: Arc<dyn Env> = Arc::new(siftdb::env::DiskEnv::new());
        let undamaged = answers(map_env(), &options, &home);
        assert_eq!(undamaged, answers(Arc::clone(&disk), &options, &home));
        for at in (0..sound.len()).step_by(211) {
            let mut damaged = sound.clone();
            damaged[at] ^= 0x10;
            let cut = &sound[..at];
            for contents in [&damaged[..], cut] {
                fs::write(&path, contents).unwrap();
                let mapped = answers(map_env(), &options, &home);
                assert!(mapped == answers(Arc::clone(&disk), &options, &home), "byte {at}");
            }
        }
        fs::write(&path, &sound).unwrap();
        assert_eq!(undamaged, answers(map_env(), &options, &home));
    }

    #[test]
    fn other_files_are_not_mapped() {
        let directory = tempfile::tempdir().unwrap();
        let env = map_env();
        for (name, is_mapped) in [
            ("000012.sst", true),
            ("12.sst", false),
            ("000012.wal", false),
            ("MANIFEST-000007", false),
            ("CURRENT", false),
        ] {
            let path = directory.path().join(name);
            fs::write(&path, b"contents").unwrap();
            let file = env.open_random(&path).unwrap();
            assert_eq!(file.as_bytes().is_some(), is_mapped, "{name}");
            let mut buffer = [0; 3];
            file.read_exact_at(5, &mut buffer).unwrap();
            assert_eq!((&buffer, file.len().unwrap()), (b"nts", 8));
            for (offset, len) in [(6, 3), (9, 0), (u64::MAX, 1)] {
                let error = file.read_exact_at(offset, &mut vec![0; len]);
                if (offset, len) == (9, 0) {
                    continue;
                }
                assert_eq!(error.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
            }
        }
        fs::write(directory.path().join("000013.sst"), b"").unwrap();
        assert!(env.open_random(&directory.path().join("000013.sst")).unwrap().is_empty().unwrap());
        let link = directory.path().join("000014.sst");
        std::os::unix::fs::symlink(directory.path().join("000012.sst"), &link).unwrap();
        assert_eq!(env.open_random(&link).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    }

    /// Set in the process that breaks the contract.
    const VICTIM: &str = "SIFTDB_TEST_TRUNCATES";

    /// What the documentation says: no error can be returned, the system ends the process.
    #[test]
    fn truncation_under_a_map_kills() {
        if let Some(home) = std::env::var_os(VICTIM) {
            let options = options().snappy(false).env(map_env());
            let db = options.open(&home).unwrap();
            assert!(db.get(key(1)).unwrap().is_some());
            let table = OpenOptions::new().write(true).open(table(Path::new(&home))).unwrap();
            table.set_len(0).unwrap();
            println!("truncated");
            for number in 0..KEYS {
                drop(db.get(key(number)));
            }
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("db");
        let db = options().snappy(false).open(&home).unwrap();
        fill(&db);
        db.close().unwrap();
        drop(db);
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "mapped::map_env::truncation_under_a_map_kills", "--nocapture"])
            .env(VICTIM, &home)
            .output()
            .unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains("truncated"));
        let bus_error = if cfg!(target_os = "linux") { 7 } else { 10 };
        assert_eq!(output.status.signal(), Some(bus_error), "{}", output.status);
        // The next opening sees the length.
        let error = options().env(map_env()).open(&home).unwrap_err();
        let Error::Corruption { path, offset: 0, .. } = &error else { panic!("{error}") };
        assert_eq!(*path, table(&home));
    }
}
