//! Calls on files that fail: each call of a workload in turn, once or from then on, before or
//! after its work is done, half done, with the disk full.
//!
//! A read that fails is an error of that read. A write that fails is not acknowledged, and nothing
//! after it is, until the database is reopened; reads go on and do not see it. After reopening it
//! is there whole or not at all, and everything acknowledged is there, after a power cut everything
//! synced.

use crate::support::data::bytes;
use crate::support::model::{Entries, Map, apply, batch_of, first_difference};
use crate::support::rng::Rng;
use crate::support::stores::{as_env, is_honest, open, scan, small_options};
use siftdb::env::MemEnv;
use siftdb::env::fault::{Calls, EINTR, EIO, EMFILE, ENOSPC, Fault, FaultEnv, FaultKind};
use siftdb::{Db, Error, FilterRebuild, Options, WriteOptions};
use std::sync::Arc;

/// Holds the number of the last batch.
const NUMBER_KEY: &[u8] = b"~number";

/// What was tried and what was promised.
#[derive(Default)]
struct Account {
    /// The state after each batch that was handed in; the first is empty.
    states: Vec<Map>,
    acknowledged: usize,
    synced: usize,
    /// A write was refused or failed.
    failed: bool,
    errors: usize,
}

impl Account {
    /// True if it went well. Any other error than those that faults lead to is wrong.
    fn went_well<T>(&mut self, result: siftdb::Result<T>, place: &str) -> bool {
        if let Err(error) = &result {
            let is_io = matches!(error, Error::Io { .. });
            assert!(is_io || matches!(error, Error::ReadOnly { .. }), "{place}: {error}");
            self.errors += 1;
        }
        result.is_ok()
    }

    fn write(&mut self, db: &Db, mut entries: Entries, sync: bool, place: &str) {
        let number = self.states.len();
        entries.push((NUMBER_KEY.to_vec(), Some((number as u64).to_le_bytes().to_vec())));
        let batch = batch_of(&entries);
        let result = db.write_with(batch, &WriteOptions::new().sync(sync));
        if self.failed {
            assert!(result.is_err(), "{place}: a write after a failed one was acknowledged");
            return;
        }
        let mut state = self.states[number - 1].clone();
        apply(&mut state, &entries);
        self.states.push(state);
        if self.went_well(result, place) {
            self.acknowledged = number;
            self.synced = if sync { number } else { self.synced };
        } else {
            self.failed = true;
        }
    }
}

/// One session: writes, reads, flushes, a compaction, a close. Goes on whatever fails.
fn session(env: &FaultEnv, options: &Options, place: &str) -> Account {
    let mut account = Account { states: vec![Map::new()], ..Account::default() };
    let opened = options.clone().env(Arc::new(env.clone())).open("/db");
    let db = match opened {
        Ok(db) => db,
        Err(error) => {
            assert!(is_honest(&error), "{place}: {error}");
            return account;
        }
    };
    let mut rng = Rng::new(9);
    for step in 0..16 {
        let mut entries = Entries::new();
        for _ in 0..4 {
            let number = rng.next();
            let value = rng.chance(85).then(|| bytes(number, 2500));
            entries.push((format!("key{:02}", number % 30).into_bytes(), value));
        }
        account.write(&db, entries, step % 5 == 2, place);
        if step == 13 {
            account.went_well(db.rebuild_filters(FilterRebuild::All), place);
        }
        let done = match step {
            4 | 9 => Some(db.flush()),
            12 => Some(db.compact_range(..)),
            14 => Some(db.sync()),
            _ => None,
        };
        if let Some(result) = done
            && account.went_well(result, place)
        {
            account.synced = account.acknowledged;
        }
        check_reads(&db, &mut account, place);
    }
    let closed = db.close();
    if account.went_well(closed, place) {
        account.synced = account.acknowledged;
    }
    account
}

/// A read gives what was acknowledged, or fails; never what a failed write left behind.
fn check_reads(db: &Db, account: &mut Account, place: &str) {
    let state = account.states[account.acknowledged].clone();
    for key in ["key03", "key11", "key29"] {
        let result = db.get(key);
        if let Ok(found) = &result {
            let expected = state.get(key.as_bytes()).map(Vec::as_slice);
            assert_eq!(found.as_deref(), expected, "{place}: {key}");
        }
        account.went_well(result, place);
    }
    let result = scan(db);
    if let Ok(found) = &result {
        assert_eq!(first_difference(found, &state), None, "{place}");
    }
    account.went_well(result, place);
}

/// After the faults are over: reopened on what is there, with at least `least` batches.
fn check_reopened(account: &Account, env: &MemEnv, options: &Options, least: usize, place: &str) {
    let db = open(env, options).unwrap_or_else(|error| panic!("{place}: {error}"));
    let found = scan(&db).unwrap_or_else(|error| panic!("{place}: {error}"));
    let number = found
        .get(NUMBER_KEY)
        .map_or(0, |bytes| u64::from_le_bytes(bytes.as_slice().try_into().unwrap()) as usize);
    assert!(number >= least, "{place}: batch {number} is the last, {least} was promised");
    let difference = first_difference(&found, &account.states[number]);
    assert_eq!(difference, None, "{place}: state after batch {number}");
    db.put("more", "m").unwrap();
    db.close().unwrap_or_else(|error| panic!("{place}: {error}"));
}

fn run_with(fault: Fault, n: u64, what: &str) -> bool {
    let place = format!("{what} at call {n}");
    let options = small_options();
    let disk = MemEnv::new();
    let env = FaultEnv::new(as_env(&disk));
    env.fail_at(n, fault);
    let account = session(&env, &options, &place);
    let fired = env.has_fired();
    assert!(fired || account.errors == 0, "{place}: an error without a fault");
    env.heal();
    check_reopened(&account, &disk.power_cut(), &options, account.synced, &place);
    check_reopened(&account, &disk, &options, account.acknowledged, &place);
    fired
}

/// Fails every call in turn, until a session passes without meeting the fault.
fn fail_each(fault: Fault, step: u64, what: &str) {
    let mut fired_last = 0;
    let mut n = 0;
    // Background work makes the number of calls vary a little: a gap is not the end.
    while n < fired_last + 4 * step + 8 {
        if run_with(fault, n, what) {
            fired_last = n;
        }
        n += step;
    }
    assert!(fired_last > 3 * step, "{what}: the last call that failed was {fired_last}");
}

#[test]
fn any_change_of_the_disk_may_fail_once() {
    fail_each(Fault::once(FaultKind::Error(EIO)).among(Calls::Changes), 1, "EIO");
}

#[test]
fn any_change_of_the_disk_may_fail_after_its_work_was_done() {
    fail_each(Fault::once(FaultKind::ErrorAfter(EIO)).among(Calls::Changes), 1, "EIO afterwards");
}

#[test]
fn the_disk_may_fill_up_at_any_moment() {
    fail_each(Fault::once(FaultKind::ShortWrite).among(Calls::Changes), 2, "short write");
    let full = Fault::from_then_on(FaultKind::Error(ENOSPC)).among(Calls::Changes);
    fail_each(full, 2, "disk full");
}

#[test]
fn any_sync_may_fail() {
    for name in ["sync_data", "sync_all", "sync_dir"] {
        let fault = Fault::once(FaultKind::Error(EIO)).among(Calls::Named(name));
        for n in 0..14 {
            run_with(fault, n, name);
        }
    }
}

#[test]
fn any_read_may_fail() {
    fail_each(Fault::once(FaultKind::Error(EIO)).among(Calls::Reads), 9, "EIO of a read");
    fail_each(
        Fault::once(FaultKind::Error(EMFILE)).among(Calls::Named("open_random")),
        1,
        "EMFILE",
    );
}

#[test]
fn interrupted_calls_are_made_again() {
    let env = FaultEnv::new(as_env(&MemEnv::new()));
    env.fail_at(0, Fault::from_then_on(FaultKind::Error(EINTR)));
    let account = session(&env, &small_options(), "EINTR");
    assert_eq!((account.errors, account.synced), (0, 16));
}

#[test]
fn an_opening_that_fails_creates_nothing_that_is_in_the_way() {
    for n in 0..40 {
        let disk = MemEnv::new();
        let env = FaultEnv::new(as_env(&disk));
        env.fail_at(n, Fault::once(FaultKind::Error(EIO)));
        let opened = small_options().env(Arc::new(env.clone())).open("/db");
        let failed = opened.is_err();
        drop(opened);
        env.heal();
        let db = open(&disk, &small_options());
        let db = db.unwrap_or_else(|error| panic!("call {n} failed ({failed}): {error}"));
        db.put("k", "v").unwrap();
        db.close().unwrap();
    }
}
