//! Followers in processes of their own, of a writer that is killed again and again: what they
//! show at every refresh is a prefix of the writes, at or after the last one, with everything that
//! was acknowledged before.
//!
//! The processes are this test binary. The writer runs `the_writer_beside_followers`: operations of
//! a counted history (`support/counted.rs`), under flushes, compactions, drops and creations of
//! keyspaces. It notes each operation that was acknowledged. Each follower runs
//! `the_follower_of_a_writer`. The next writer continues after the last operation of the one
//! before.
//!
//! `SIFTDB_REFRESHES` sets how many refreshes there are over all followers.

use crate::support::child::end_with_the_parent;
use crate::support::counted::{self, Expected};
use crate::support::rng::{Rng, setting};
use crate::support::stores::small_options;
use siftdb::{Db, Error, Options, WriteOptions};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const WRITER: &str = "SIFTDB_TEST_FOLLOWED";
const FOLLOWER: &str = "SIFTDB_TEST_FOLLOWER";

const FOLLOWERS: usize = 3;

const SEED: u64 = 21;

/// How long a writer may take for the operations that it is killed after.
const PATIENCE: Duration = Duration::from_secs(20);

/// The number of the last acknowledged operation, in a file that survives the writer.
struct Acknowledged(File);

impl Acknowledged {
    fn open(directory: &Path) -> Self {
        let path = directory.join("acknowledged");
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        Acknowledged(file.unwrap())
    }

    fn set(&self, n: u64) {
        self.0.write_all_at(&n.to_le_bytes(), 0).unwrap();
    }

    fn get(&self) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 0).map_or(0, |()| u64::from_le_bytes(bytes))
    }
}

fn options() -> Options {
    // Logs of a writer that is slow to flush are longer than a write buffer.
    small_options().read_only_log_bytes_max(16 << 20)
}

/// No test of its own: what the writing process runs.
#[test]
fn the_writer_beside_followers() {
    let Ok(directory) = std::env::var(WRITER) else { return };
    end_with_the_parent();
    let directory = PathBuf::from(directory);
    let acknowledged = Acknowledged::open(&directory);
    let db = options().open(directory.join("db")).unwrap();
    let first = counted::number(&db).unwrap();
    counted::prepare(&db, first).unwrap();
    acknowledged.set(first);
    let mut rng = Rng::new(SEED ^ first);
    for n in first + 1.. {
        counted::write(&db, SEED, n, &WriteOptions::new().sync(rng.chance(1))).unwrap();
        acknowledged.set(n);
        match rng.below(400) {
            0 => db.flush().unwrap(),
            1 => db.compact_range(..).unwrap(),
            2 => db.keyspace(counted::OTHER).unwrap().compact_range(..).unwrap(),
            _ => {}
        }
    }
}

/// No test of its own: what each following process runs.
#[test]
fn the_follower_of_a_writer() {
    let Ok(words) = std::env::var(FOLLOWER) else { return };
    end_with_the_parent();
    let mut words = words.splitn(3, ' ');
    let (refreshes, seed) = (words.next().unwrap(), words.next().unwrap());
    let directory = PathBuf::from(words.next().unwrap());
    let (refreshes, seed): (u64, u64) = (refreshes.parse().unwrap(), seed.parse().unwrap());
    let acknowledged = Acknowledged::open(&directory);
    let path = directory.join("db");
    let follower = options().open_follower(&path).unwrap();
    let mut rng = Rng::new(seed);
    let mut expected = Expected::new(SEED);
    let mut earlier: Option<(Db, Expected)> = None;
    let mut overtaken = 0;
    for round in 0..refreshes {
        let least = acknowledged.get();
        match follower.refresh() {
            Ok(_) => {}
            Err(Error::FollowerOvertaken { .. }) => {
                overtaken += 1;
                continue;
            }
            Err(error) => panic!("round {round}: {error}"),
        }
        let moment = follower.moment();
        let n = counted::number(&moment).unwrap();
        assert!(n >= least.max(expected.n), "{n} is shown, {least} was acknowledged");
        expected.advance_to(n);
        match round % 50 {
            0 => expected.check(&moment),
            _ => expected.check_part(&moment, &mut rng),
        }
        if round % 200 == 0 {
            // Whatever the writer has removed since, an earlier moment is whole.
            if let Some((moment, expected)) = earlier.replace((moment, expected.clone())) {
                expected.check(&moment);
            }
        }
    }
    assert!(overtaken <= refreshes / 100, "overtaken {overtaken} times");
}

fn start(test: &str, variable: &str, value: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("follower_processes::{test}"), "--nocapture"])
        .env(variable, value)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills its process when it goes, so that none is left after a failed assertion.
struct Killed(Option<Child>);

impl Drop for Killed {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn following_processes_see_prefixes() {
    let refreshes = setting("SIFTDB_REFRESHES", 10_000) / FOLLOWERS;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let acknowledged = Acknowledged::open(directory.path());
    let write = || Killed(Some(start("the_writer_beside_followers", WRITER, path)));
    let wait_for = |n: u64, what: &mut dyn FnMut() -> bool| {
        let deadline = Instant::now() + PATIENCE;
        while acknowledged.get() < n && Instant::now() < deadline && !what() {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let mut writer = write();
    wait_for(1, &mut || false);
    let mut followers: Vec<Killed> = (0..FOLLOWERS)
        .map(|seed| {
            let value = format!("{refreshes} {seed} {path}");
            Killed(Some(start("the_follower_of_a_writer", FOLLOWER, &value)))
        })
        .collect();
    let mut rng = Rng::new(SEED);
    let mut kills = 0;
    let mut all_done = || {
        followers.iter_mut().all(|follower| match &mut follower.0 {
            Some(child) => child.try_wait().unwrap().is_some(),
            None => true,
        })
    };
    while !all_done() {
        let target = acknowledged.get() + 200 + rng.below(2000) as u64;
        wait_for(target, &mut all_done);
        if let Some(child) = &mut writer.0 {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "the writer ended by itself: {}", said(writer));
        }
        drop(writer);
        kills += 1;
        writer = write();
    }
    drop(writer);
    assert!(kills > 0);
    for mut follower in followers {
        let Some(child) = follower.0.take() else { continue };
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
    }
}

/// What a process that has ended wrote before that.
fn said(mut ended: Killed) -> String {
    let output = ended.0.take().map(|child| child.wait_with_output().unwrap());
    output.map_or_else(String::new, |output| String::from_utf8_lossy(&output.stderr).into_owned())
}
