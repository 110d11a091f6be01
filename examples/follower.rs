//! A live service seen from outside: one process writes, another one shows how far it is.
//!
//! This program starts itself a second time as the writer. A follower takes no lock and changes
//! nothing, so the writer does not notice it. It wakes when there is something new, and shows one
//! read point of all keyspaces: the count below always agrees with the jobs that are there.
//!
//! `cargo run --example follower`

use siftdb::keys::{decode, encode};
use siftdb::{Db, Error, WriteBatch};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const JOBS: u64 = 20_000;

/// The service: each job is written together with the count of all jobs.
fn write(path: &Path) -> siftdb::Result<()> {
    let db = Db::open(path)?;
    let counts = db.keyspace("counts")?;
    for job in 1..=JOBS {
        let mut batch = WriteBatch::new();
        batch.put(encode(&job), "done");
        batch.in_keyspace(&counts).put("jobs", encode(&job));
        db.write(batch)?;
    }
    db.close()
}

/// How many jobs are done at the moment that `db` shows.
fn done(db: &Db) -> siftdb::Result<u64> {
    let count = db.keyspace("counts")?.get("jobs")?;
    let count = count.and_then(|count| decode(&count).ok()).unwrap_or(0);
    assert_eq!(db.last()?.map_or(Ok(0), |(job, _)| decode(&job)), Ok(count));
    Ok(count)
}

/// Waits until all jobs are done; returns in how many steps they were seen.
fn watch(path: &Path) -> siftdb::Result<u64> {
    // The writer has not created the database yet, or not the keyspace.
    let follower = loop {
        match Db::open_follower(path) {
            Ok(follower) if follower.keyspaces().len() == 2 => break follower,
            Ok(_) | Err(Error::Io { .. }) => std::thread::yield_now(),
            Err(error) => return Err(error),
        }
    };
    let (mut last, mut steps) = (0, 0);
    while last < JOBS {
        steps += u64::from(follower.wait(Duration::from_secs(1))?);
        let jobs = done(&follower.moment())?;
        assert!(jobs >= last, "it never goes back");
        last = jobs;
    }
    Ok(steps)
}

fn main() -> siftdb::Result<()> {
    if let Some(path) = std::env::args_os().nth(1) {
        return write(Path::new(&path));
    }
    let path = std::env::temp_dir().join(format!("siftdb-follower-{}", std::process::id()));
    let program = std::env::current_exe().expect("this program has a path");
    let mut writer = Command::new(program).arg(&path).spawn().expect("it starts once more");
    let seen = watch(&path);
    assert!(writer.wait().expect("it ends").success());
    println!("{JOBS} jobs, seen in {} steps while they were written", seen?);
    std::fs::remove_dir_all(&path).expect("nobody has it open");
    Ok(())
}
