//! The write queue: whenever requests come, one writer leads, and each request is answered once.

use crate::base::error::Result;
use crate::base::sync::{AtomicUsize, Mutex, Ordering, thread};
use crate::base::write_batch::WriteBatch;
use crate::interleavings::run::check;
use crate::state::write_queue::{Committed, Joined, Request, WriteQueue};

const THREADS: u8 = 3;
const REQUESTS: u8 = 2;

fn request(number: u8) -> Request {
    let mut batch = WriteBatch::new();
    batch.put([number], "");
    Request::of(batch)
}

/// Which of the requests it is.
fn number_of(request: &Request) -> u8 {
    let is = |number: &u8| self::request(*number).batch.entries == request.batch.entries;
    (0..THREADS * REQUESTS).find(is).expect("one of them")
}

/// What was committed, in groups.
type Groups = Mutex<Vec<Vec<u8>>>;

/// Joins with one request; leads if it is told to. A leader that `gives_up` goes without an answer
/// for its group, as one that panics does.
fn submit(
    queue: &WriteQueue,
    number: u8,
    leading: &AtomicUsize,
    groups: &Groups,
    gives_up: bool,
) -> Option<Result<()>> {
    match queue.join(request(number)) {
        Joined::Done(result) => Some(result.map(drop)),
        Joined::Lead(mut leadership, own) => {
            assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two leaders");
            let mut group = leadership.take_group(&own);
            group.insert(0, own);
            let numbers = group.iter().map(number_of).collect();
            if !gives_up {
                groups.lock().push(numbers);
                leadership.complete(|_| Ok(Committed::Written));
                loop {
                    let next = leadership.take_next_group();
                    if next.is_empty() {
                        break;
                    }
                    groups.lock().push(next.iter().map(number_of).collect());
                    leadership.complete(|_| Ok(Committed::Written));
                }
            }
            leading.fetch_sub(1, Ordering::SeqCst);
            drop(leadership);
            (!gives_up).then_some(Ok(()))
        }
    }
}

fn scenario(some_give_up: bool) -> Vec<Vec<u8>> {
    let (queue, leading) = (WriteQueue::default(), AtomicUsize::new(0));
    let (groups, acknowledged) = (Groups::default(), Groups::default());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (queue, leading) = (&queue, &leading);
            let (groups, acknowledged) = (&groups, &acknowledged);
            scope.spawn(move || {
                let mut mine = Vec::new();
                for n in 0..REQUESTS {
                    let number = thread * REQUESTS + n;
                    let gives_up = some_give_up && number.is_multiple_of(2);
                    match submit(queue, number, leading, groups, gives_up) {
                        Some(Ok(())) => mine.push(number),
                        Some(Err(_)) => assert!(some_give_up, "no leader gave up"),
                        None => {}
                    }
                }
                acknowledged.lock().push(mine);
            });
        }
    });
    let groups = std::mem::take(&mut *groups.lock());
    let mut committed = groups.concat();
    for thread in 0..THREADS {
        let own = committed.iter().filter(|number| **number / REQUESTS == thread);
        assert!(own.is_sorted(), "out of order: {groups:?}");
    }
    let mut acknowledged = acknowledged.lock().concat();
    committed.sort_unstable();
    acknowledged.sort_unstable();
    assert_eq!(committed, acknowledged);
    groups
}

pub fn one_leader_at_once_commits_each_request() {
    check("write queue", 10_000, 20, || {
        let groups = scenario(false);
        assert_eq!(groups.concat().len(), usize::from(THREADS * REQUESTS));
        groups
    });
}

pub fn waiters_are_answered_when_leaders_fail() {
    check("write queue, leaders give up", 10_000, 20, || scenario(true));
}
