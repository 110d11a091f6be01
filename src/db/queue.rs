//! The write queue: who leads the next group, who waits, who is woken with which answer.
//!
//! Legal order for a writer: `join` answers either "lead" or, later, the result of the group that
//! took its request along. A leader calls `take_group`, commits it, and drops its [`Leadership`]
//! after `complete`; that hands the lead to the first waiter. A leader that unwinds answers its
//! group, and everyone who waits, with an error: nobody is left waiting (I12).
//!
//! Nothing here knows logs or memtables.

use crate::error::{Error, Result};
use crate::sync::{Arc, Condvar, Mutex};
use crate::write_batch::WriteBatch;
use std::collections::VecDeque;

/// Requests of one group stop being added beyond this many bytes, so that the first of them does
/// not wait for a gigabyte of others.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// What a writer wants.
#[derive(Debug)]
pub struct Request {
    /// Entries to write; may be empty.
    pub batch: WriteBatch,
    /// Sync the log before answering.
    pub sync: bool,
    /// Switch to a new memtable, so that the old one is flushed.
    pub switch: bool,
}

#[derive(Debug)]
enum Turn {
    Waiting(Option<Request>),
    Lead(Option<Request>),
    Done(Result<()>),
}

#[derive(Debug)]
struct Waiter {
    turn: Mutex<Turn>,
    changed: Condvar,
}

impl Waiter {
    fn set(&self, turn: Turn) {
        *self.turn.lock() = turn;
        self.changed.notify_one();
    }

    fn take_request(&self) -> Option<Request> {
        match &mut *self.turn.lock() {
            Turn::Waiting(request) | Turn::Lead(request) => request.take(),
            Turn::Done(_) => None,
        }
    }
}

#[derive(Debug, Default)]
struct Line {
    led: bool,
    waiting: VecDeque<(Arc<Waiter>, usize)>,
}

/// The queue of one database.
#[derive(Debug, Default)]
pub struct WriteQueue {
    line: Mutex<Line>,
}

/// What `join` answers.
pub enum Joined<'a> {
    /// This thread leads the next group, which begins with its own request.
    Lead(Leadership<'a>, Request),
    /// Another thread wrote the request along with its own.
    Done(Result<()>),
}

/// The right to commit a group. One exists at a time.
pub struct Leadership<'a> {
    queue: &'a WriteQueue,
    group: Vec<Arc<Waiter>>,
}

impl WriteQueue {
    /// Lines up with `request`; returns when it is this thread's turn to lead, or when its request
    /// was committed by another.
    pub fn join(&self, request: Request) -> Joined<'_> {
        let mut line = self.line.lock();
        if !line.led {
            line.led = true;
            return Joined::Lead(Leadership { queue: self, group: Vec::new() }, request);
        }
        let bytes = request.batch.bytes();
        let turn = Mutex::new(Turn::Waiting(Some(request)));
        let waiter = Arc::new(Waiter { turn, changed: Condvar::new() });
        line.waiting.push_back((Arc::clone(&waiter), bytes));
        drop(line);
        let mut turn = waiter.turn.lock();
        loop {
            match &mut *turn {
                Turn::Waiting(_) => waiter.changed.wait(&mut turn),
                Turn::Done(result) => return Joined::Done(result.clone()),
                Turn::Lead(request) => {
                    let leadership = Leadership { queue: self, group: Vec::new() };
                    return match request.take() {
                        Some(request) => Joined::Lead(leadership, request),
                        None => Joined::Done(Err(abandoned())),
                    };
                }
            }
        }
    }
}

impl Leadership<'_> {
    /// The requests that go along with the leader's own, in order.
    pub fn take_group(&mut self, own: &Request) -> Vec<Request> {
        let mut bytes = own.batch.bytes();
        let mut group = Vec::new();
        let mut line = self.queue.line.lock();
        while let Some(&(_, more)) = line.waiting.front() {
            if bytes + more > GROUP_BYTES_MAX {
                break;
            }
            bytes += more;
            let Some((waiter, _)) = line.waiting.pop_front() else { break };
            if let Some(request) = waiter.take_request() {
                group.push(request);
                self.group.push(waiter);
            }
        }
        group
    }

    /// Answers everyone in the group.
    pub fn complete(&mut self, result: &Result<()>) {
        for waiter in self.group.drain(..) {
            waiter.set(Turn::Done(result.clone()));
        }
    }
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        // Not empty only if the leader unwound before `complete`.
        for waiter in self.group.drain(..) {
            waiter.set(Turn::Done(Err(abandoned())));
        }
        let mut line = self.queue.line.lock();
        match line.waiting.pop_front() {
            Some((waiter, _)) => {
                let request = waiter.take_request();
                waiter.set(Turn::Lead(request));
            }
            None => line.led = false,
        }
    }
}

fn abandoned() -> Error {
    let cause = std::io::Error::other("the thread that led the write group panicked");
    Error::io("write", "write queue", cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{AtomicUsize, Ordering};

    fn request(key: usize) -> Request {
        let mut batch = WriteBatch::new();
        batch.put(key.to_string(), "v");
        Request { batch, sync: false, switch: false }
    }

    #[test]
    fn every_request_is_committed_once_and_by_one_leader_at_a_time() {
        let queue = WriteQueue::default();
        let (committed, leading) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (queue, committed, leading) = (&queue, &committed, &leading);
                scope.spawn(move || {
                    for i in 0..500 {
                        match queue.join(request(thread * 1000 + i)) {
                            Joined::Done(result) => result.unwrap(),
                            Joined::Lead(mut leadership, own) => {
                                assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0);
                                let group = leadership.take_group(&own);
                                committed.fetch_add(1 + group.len(), Ordering::SeqCst);
                                leadership.complete(&Ok(()));
                                leading.fetch_sub(1, Ordering::SeqCst);
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(committed.load(Ordering::SeqCst), 8 * 500);
    }

    #[test]
    fn waiters_are_answered_when_their_leader_panics() {
        let queue = WriteQueue::default();
        std::thread::scope(|scope| {
            let Joined::Lead(mut leadership, own) = queue.join(request(0)) else { panic!() };
            let waiting = scope.spawn(|| match queue.join(request(1)) {
                Joined::Done(result) => result,
                Joined::Lead(..) => Ok(()),
            });
            let leader = scope.spawn(move || {
                while leadership.take_group(&own).is_empty() {
                    std::thread::yield_now();
                }
                panic!("on purpose");
            });
            assert!(leader.join().is_err());
            assert!(waiting.join().unwrap().is_err());
        });
        assert!(matches!(queue.join(request(2)), Joined::Lead(..)));
    }
}
