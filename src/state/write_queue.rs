//! The write queue: one writer leads and commits the requests of all that wait, as one group.
//!
//! Legal order: `join` returns either "lead" or, later, the result of the group that took the
//! request. A leader calls `take_group`, commits it and calls `complete`; it repeats this for each
//! group of `take_next_group`, then drops its [`Leadership`], which passes the lead to the first
//! waiter. If a leader panics, its group gets an error and the next waiter leads: no writer is left
//! waiting (I12).
//!
//! Without a sync, a group takes less time than waking a blocked thread. So before they block,
//! waiters spin, as many as there are processors for, and then yield a few times. The leader
//! commits a few more groups that queued up in the meantime.
//!
//! The queue knows neither logs nor memtables.

use crate::base::error::{Error, Result};
use crate::base::expiry::Expiry;
use crate::base::key::{KeyspaceId, SequenceNumber};
use crate::base::sync::{Arc, AtomicBool, Condvar, Ordering, processors, wait_briefly};
use crate::base::write_batch::WriteBatch;
use crate::state::lock_rank::{LockRank, RankedMutex};
use crate::state::read_set::ReadSet;
use std::collections::VecDeque;

/// A group takes no more requests beyond this many bytes, so its first writer does not wait for a
/// gigabyte of others.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// Groups that one leader commits after its own, while its caller waits.
const GROUPS_AFTER_OWN_MAX: usize = 4;

/// A write in the queue.
#[derive(Debug)]
pub(crate) struct Request {
    /// Entries to write; may be empty.
    pub batch: WriteBatch,
    /// Sync the log before answering.
    pub sync: bool,
    /// When its puts expire, if not as their keyspaces have it.
    pub expiry: Option<Expiry>,
    /// The keyspaces whose memtables are to be switched, so that they are flushed.
    pub switch: Switch,
    /// What must not have been written since it was read: of a transaction.
    pub reads: Option<Box<CheckedReads>>,
    /// It asks for an exclusive write section, so no other leader takes it.
    pub exclusive: bool,
}

impl Request {
    /// A request to write `batch`.
    pub(crate) fn of(batch: WriteBatch) -> Self {
        let (sync, expiry, switch, reads, exclusive) = (false, None, Switch::No, None, false);
        Request { batch, sync, expiry, switch, reads, exclusive }
    }

    /// Asks for neither a sync nor a switch.
    fn is_quick(&self) -> bool {
        !self.sync && self.switch == Switch::No && !self.exclusive
    }

    /// The bytes that it adds to a group.
    fn bytes(&self) -> usize {
        match &self.reads {
            Some(reads) if reads.alone => GROUP_BYTES_MAX + 1,
            _ if self.exclusive => GROUP_BYTES_MAX + 1,
            _ => self.batch.bytes(),
        }
    }
}

/// What a transaction has read, and how far that was checked.
#[derive(Debug)]
pub(crate) struct CheckedReads {
    /// What it has read.
    pub set: ReadSet,
    /// None of it was written up to this sequence since the snapshot.
    pub through: SequenceNumber,
    /// It leads a group of its own and is checked then, when nothing else is written.
    pub alone: bool,
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Committed {
    /// It was written.
    Written,
    /// Nothing of it was written. It was checked through a sequence after which the leader does not
    /// know all writes any more: it must be checked again.
    Unchecked(Box<Request>),
}

/// Which memtables a request asks to switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// None.
    No,
    /// That of one keyspace.
    Keyspace(KeyspaceId),
    /// Those of all keyspaces.
    All,
}

#[derive(Debug)]
enum Turn {
    Waiting(Option<Request>),
    Lead(Option<Request>),
    Done(Result<Committed>),
}

#[derive(Debug)]
struct Waiter {
    turn: RankedMutex<Turn>,
    changed: Condvar,
    /// Whether `turn` was set: a hint that needs no lock.
    has_turn: AtomicBool,
}

impl Waiter {
    fn set(&self, turn: Turn) {
        // The turn before the hint: a writer that sees the hint finds its turn set. The waiter
        // checks its turn under the lock, so it cannot miss the signal that follows.
        *self.turn.lock() = turn;
        self.has_turn.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    fn take_request(&self) -> Option<Request> {
        match &mut *self.turn.lock() {
            Turn::Waiting(request) | Turn::Lead(request) => request.take(),
            Turn::Done(_) => None,
        }
    }
}

#[derive(Debug)]
struct Waiting {
    waiter: Arc<Waiter>,
    bytes: usize,
    /// Asks for neither a sync nor a switch.
    quick: bool,
}

#[derive(Debug, Default)]
struct Line {
    led: bool,
    waiting: VecDeque<Waiting>,
}

/// The queue of one database.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    line: RankedMutex<Line>,
}

impl Default for WriteQueue {
    fn default() -> Self {
        WriteQueue { line: RankedMutex::new(LockRank::Queue, Line::default()) }
    }
}

/// What `join` returns.
pub(crate) enum Joined<'a> {
    /// This thread leads the next group, which begins with its own request.
    Lead(Leadership<'a>, Request),
    /// Another thread committed the request along with its own.
    Done(Result<Committed>),
}

/// The right to commit a group. One exists at a time.
pub(crate) struct Leadership<'a> {
    queue: &'a WriteQueue,
    group: Vec<Arc<Waiter>>,
    groups_after_own: usize,
}

impl WriteQueue {
    /// Queues `request`. Returns when this thread leads, or when another one has committed the
    /// request.
    #[inline]
    pub(crate) fn join(&self, request: Request) -> Joined<'_> {
        let mut line = self.line.lock();
        // Under the lock that a leader holds when it hands over. So a writer either leads, or is in
        // the queue when the leader looks for the next one (I12).
        if !line.led {
            line.led = true;
            return Joined::Lead(Leadership::new(self), request);
        }
        let (quick, bytes) = (request.is_quick(), request.bytes());
        // One processor is the leader's.
        let spins = line.waiting.len() + 1 < processors();
        let turn = RankedMutex::new(LockRank::QueueTurn, Turn::Waiting(Some(request)));
        let has_turn = AtomicBool::new(false);
        let waiter = Arc::new(Waiter { turn, changed: Condvar::new(), has_turn });
        line.waiting.push_back(Waiting { waiter: Arc::clone(&waiter), bytes, quick });
        drop(line);
        // A quick group ends before a blocked thread would run again.
        if quick {
            wait_briefly(spins, || waiter.has_turn.load(Ordering::Acquire));
        }
        let mut turn = waiter.turn.lock();
        loop {
            match &mut *turn {
                Turn::Waiting(_) => waiter.changed.wait(turn.for_condvar()),
                Turn::Done(result) => {
                    return Joined::Done(std::mem::replace(result, Ok(Committed::Written)));
                }
                Turn::Lead(request) => {
                    let leadership = Leadership::new(self);
                    return match request.take() {
                        Some(request) => Joined::Lead(leadership, request),
                        None => Joined::Done(Err(abandoned())),
                    };
                }
            }
        }
    }

    /// Queues for an exclusive write section: nothing is written until the caller drops it.
    ///
    /// # Errors
    /// `Io` if the request was lost.
    pub(crate) fn exclusive(&self) -> Result<Leadership<'_>> {
        match self.join(Request { exclusive: true, ..Request::of(WriteBatch::new()) }) {
            Joined::Lead(leadership, _) => Ok(leadership),
            // A leader takes along what fits its group, and this never does.
            Joined::Done(result) => Err(result.err().unwrap_or_else(abandoned)),
        }
    }
}

#[cfg(test)]
impl WriteQueue {
    /// Requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.line.lock().waiting.len()
    }
}

impl<'a> Leadership<'a> {
    fn new(queue: &'a WriteQueue) -> Self {
        Leadership { queue, group: Vec::new(), groups_after_own: 0 }
    }

    /// The requests that join the leader's own group, in order.
    #[inline]
    pub(crate) fn take_group(&mut self, own: &Request) -> Vec<Request> {
        debug_assert!(self.group.is_empty(), "I12: the group before was answered");
        self.take(own.bytes(), |_| true)
    }

    /// The next requests in the queue that are as quick as waking their writers, in order. Empty if
    /// there are none, and after some groups, because the leader's own caller waits for all.
    #[inline]
    pub(crate) fn take_next_group(&mut self) -> Vec<Request> {
        if self.groups_after_own == GROUPS_AFTER_OWN_MAX {
            return Vec::new();
        }
        debug_assert!(self.group.is_empty(), "I12: the group before was answered");
        self.groups_after_own += 1;
        self.take(0, |waiting| waiting.quick)
    }

    fn take(&mut self, mut bytes: usize, fits: impl Fn(&Waiting) -> bool) -> Vec<Request> {
        let mut group = Vec::new();
        let mut line = self.queue.line.lock();
        // A request above the limit is never taken along: it leads a group of its own when it is
        // the first in the queue.
        while let Some(next) = line.waiting.front()
            && fits(next)
            && bytes + next.bytes <= GROUP_BYTES_MAX
        {
            bytes += next.bytes;
            let Some(next) = line.waiting.pop_front() else { break };
            if let Some(request) = next.waiter.take_request() {
                group.push(request);
                self.group.push(next.waiter);
            }
        }
        group
    }

    /// Answers everyone in the group, in the order of its requests.
    #[inline]
    pub(crate) fn complete(&mut self, mut results: impl FnMut(usize) -> Result<Committed>) {
        for (index, waiter) in self.group.drain(..).enumerate() {
            waiter.set(Turn::Done(results(index)));
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
        // I12: under the lock of the queue, so no writer finds it without a leader in between.
        debug_assert!(line.led, "one leader at a time, and this is it");
        match line.waiting.pop_front() {
            Some(Waiting { waiter, .. }) => {
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
    use crate::base::sync::{AtomicUsize, Ordering};

    fn request(key: usize) -> Request {
        let mut batch = WriteBatch::new();
        batch.put(key.to_string(), "v");
        Request::of(batch)
    }

    #[test]
    fn one_leader_commits_each_request_once() {
        let queue = WriteQueue::default();
        let (committed, leading) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (queue, committed, leading) = (&queue, &committed, &leading);
                scope.spawn(move || {
                    for i in 0..500 {
                        match queue.join(request(thread * 1000 + i)) {
                            Joined::Done(result) => drop(result.unwrap()),
                            Joined::Lead(mut leadership, own) => {
                                assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0);
                                let group = leadership.take_group(&own);
                                committed.fetch_add(1 + group.len(), Ordering::SeqCst);
                                leadership.complete(|_| Ok(Committed::Written));
                                leading.fetch_sub(1, Ordering::SeqCst);
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(committed.load(Ordering::SeqCst), 8 * 500);
    }

    /// Joins from threads of their own, one after the other.
    fn line_up<'s>(
        scope: &'s std::thread::Scope<'s, '_>,
        queue: &'s WriteQueue,
        all: Vec<Request>,
    ) {
        for request in all {
            let before = queue.line.lock().waiting.len();
            scope.spawn(move || match queue.join(request) {
                Joined::Done(result) => drop(result.unwrap()),
                Joined::Lead(mut leadership, own) => {
                    leadership.take_group(&own);
                    leadership.complete(|_| Ok(Committed::Written));
                }
            });
            while queue.line.lock().waiting.len() == before {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn leaders_commit_a_bounded_number_of_groups() {
        let queue = WriteQueue::default();
        std::thread::scope(|scope| {
            let Joined::Lead(mut leadership, own) = queue.join(request(0)) else { panic!() };
            assert!(leadership.take_group(&own).is_empty());
            for round in 0..GROUPS_AFTER_OWN_MAX {
                line_up(scope, &queue, vec![request(round), request(100 + round)]);
                assert_eq!(leadership.take_next_group().len(), 2);
                leadership.complete(|_| Ok(Committed::Written));
            }
            line_up(scope, &queue, vec![request(9)]);
            assert!(leadership.take_next_group().is_empty(), "after {GROUPS_AFTER_OWN_MAX} groups");
            drop(leadership);
        });
        std::thread::scope(|scope| {
            let Joined::Lead(mut leadership, _) = queue.join(request(0)) else { panic!() };
            let sync = Request { sync: true, ..request(2) };
            line_up(scope, &queue, vec![request(1), sync, request(3)]);
            assert_eq!(leadership.take_next_group().len(), 1, "up to the sync");
            leadership.complete(|_| Ok(Committed::Written));
            assert!(leadership.take_next_group().is_empty());
            drop(leadership);
        });
        assert!(!queue.line.lock().led);
    }

    #[test]
    fn no_leader_takes_a_request_for_the_lead() {
        let queue = WriteQueue::default();
        std::thread::scope(|scope| {
            let Joined::Lead(mut leadership, own) = queue.join(request(0)) else { panic!() };
            let section = scope.spawn(|| {
                let leadership = queue.exclusive().unwrap();
                assert!(queue.line.lock().led);
                drop(leadership);
            });
            while queue.waiting() == 0 {
                std::thread::yield_now();
            }
            assert!(leadership.take_group(&own).is_empty());
            assert!(leadership.take_next_group().is_empty());
            drop(leadership);
            section.join().unwrap();
        });
        assert!(!queue.line.lock().led);
    }

    #[test]
    fn waiters_are_answered_after_a_leader_panics() {
        let queue = WriteQueue::default();
        std::thread::scope(|scope| {
            let Joined::Lead(mut leadership, own) = queue.join(request(0)) else { panic!() };
            let waiting = scope.spawn(|| match queue.join(request(1)) {
                Joined::Done(result) => result,
                Joined::Lead(..) => Ok(Committed::Written),
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
