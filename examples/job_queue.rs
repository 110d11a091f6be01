//! A queue of jobs: four workers, each job taken exactly once, and set aside after three attempts.
//!
//! Each state of a job has a keyspace. A worker moves the first waiting job to `running` in one
//! transaction. If two workers choose the same job, one commit conflicts: `transact` runs it again
//! (at most 100 times), and it finds the next job.

use siftdb::{Db, Key, Keyspace};

const JOBS: u64 = 400;
const ATTEMPTS_MAX: u8 = 3;

/// The value of a job is how often it was attempted.
struct Queue {
    waiting: Keyspace,
    running: Keyspace,
    done: Keyspace,
    failed: Keyspace,
}

impl Queue {
    /// Takes the first waiting job. Its key, and which attempt this is.
    fn take(&self) -> siftdb::Result<Option<(Key, u8)>> {
        self.waiting.transact(|tx| {
            let Some((job, attempts)) = tx.first()? else { return Ok(None) };
            tx.delete(&job)?;
            tx.in_keyspace(&self.running).put(&job, [attempts[0] + 1])?;
            Ok(Some((job, attempts[0] + 1)))
        })
    }

    /// Works until no job waits. Returns how many were taken.
    fn work(&self) -> siftdb::Result<u64> {
        let mut taken = 0;
        while let Some((job, attempt)) = self.take()? {
            taken += 1;
            let next = match job.ends_with(b"0") {
                false => &self.done,
                // Every tenth job fails, and waits for another attempt.
                true if attempt < ATTEMPTS_MAX => &self.waiting,
                true => &self.failed,
            };
            self.running.transact(|tx| {
                tx.delete(&job)?;
                tx.in_keyspace(next).put(&job, [attempt])
            })?;
        }
        Ok(taken)
    }
}

fn main() -> siftdb::Result<()> {
    let directory = std::env::temp_dir().join(format!("siftdb-job-queue-{}", std::process::id()));
    let db = Db::open(&directory)?;
    let [waiting, running, done, failed] =
        ["waiting", "running", "done", "failed"].map(|name| db.keyspace(name));
    let queue = Queue { waiting: waiting?, running: running?, done: done?, failed: failed? };
    (0..JOBS).try_for_each(|job| queue.waiting.put(format!("{job:06}"), [0]))?;
    let taken: siftdb::Result<u64> = std::thread::scope(|scope| {
        let workers: [_; 4] = std::array::from_fn(|_| scope.spawn(|| queue.work()));
        workers.map(|worker| worker.join().expect("no worker panics")).into_iter().sum()
    });
    let [done, failed] = [&queue.done, &queue.failed].map(|jobs| jobs.iter().count() as u64);
    let taken = taken?;
    println!("{JOBS} jobs, taken {taken} times: {done} done, {failed} set aside");
    assert_eq!((done, failed, taken), (360, 40, 360 + 40 * u64::from(ATTEMPTS_MAX)));
    db.close()?;
    let _ = std::fs::remove_dir_all(&directory); // Leave no files.
    Ok(())
}
