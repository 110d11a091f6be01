//! Failing reads: each is reported as the error of the system, also to salvage, and nothing is ever
//! written.

use siftdb::env::testing::{Calls, EIO, Fault, FaultEnv, FaultKind};
use siftdb::env::{DiskEnv, Env};
use siftdb::{Error, Result};
use siftdb_foreign::{ForeignTable, LevelDb};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/golden").join(name)
}

/// Lets each read call that `read` makes fail once. `read` returns how much it found.
fn with_failing_reads(read: impl Fn(&Arc<dyn Env>) -> Result<usize>) {
    let faults = FaultEnv::new(Arc::new(DiskEnv::new()));
    let env: Arc<dyn Env> = Arc::new(faults.clone());
    let found = read(&env).unwrap();
    let calls = faults.calls();
    assert!(found > 0 && calls > 3 && faults.changes().is_empty());
    for call in 0..calls {
        faults.fail_at(faults.calls() + call, Fault::once(FaultKind::Error(EIO)));
        let error = read(&env).expect_err("a read failed");
        assert!(matches!(error, Error::Io { .. }), "call {call}: {error}");
        assert!(faults.has_fired() && faults.changes().is_empty(), "call {call}");
    }
    assert_eq!(faults.calls_of(Calls::Changes), 0);
    faults.heal();
    assert_eq!(read(&env).unwrap(), found);
}

#[test]
fn failed_reads_of_a_database_are_errors() {
    for salvage in [false, true] {
        with_failing_reads(|env| {
            let old = LevelDb::open(Arc::clone(env), &golden("leveldb"), salvage)?;
            let mut entries = old.entries();
            let mut found = 0;
            let ended = loop {
                match entries.next() {
                    Some(Ok(_)) => found += 1,
                    Some(Err(error)) => break Err(error),
                    None => break Ok(found),
                }
            };
            assert!(entries.next().is_none(), "an entry after the end");
            old.filter_figures()?;
            old.trace_lookups(&[b"k".to_vec()]).and(ended)
        });
    }
}

#[test]
fn failed_reads_of_a_table_are_errors() {
    for name in ["leveldb/000011.ldb", "rocksdb/v5_crc32c_partitioned.sst"] {
        with_failing_reads(|env| {
            let table = ForeignTable::open(env, &golden(name))?;
            table.each_part(&mut |_| Ok(()))?;
            Ok(table.verify()?.entries as usize)
        });
    }
}
