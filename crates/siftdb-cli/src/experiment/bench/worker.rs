//! One thread of a run: draws operations, keeps to its schedule, times each.

use crate::experiment::bench::data::Data;
use crate::experiment::bench::draw::Sampler;
use crate::experiment::bench::result::{ByKind, Kind, record};
use crate::experiment::bench::store::{Direction, Reader, Result, Store};
use crate::experiment::bench::workload::{Action, Workload};
use crate::experiment::keys::{KeySet, splitmix64, unit};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Entries of one operation of `ReadForward` and `ReadBackward`.
const READ_ENTRIES: u64 = 1000;

/// Entries of a scan, at most.
const SCAN_ENTRIES_MAX: u64 = 100;

/// The system wakes a sleeper up to about this much late, so the rest of a wait is spent spinning.
const WAKE_UP: Duration = Duration::from_micros(100);

/// The state that all threads of a run share.
pub(crate) struct Common<'a> {
    pub store: &'a dyn Store,
    pub data: &'a Data,
    pub workload: Workload,
    pub sampler: Sampler,
    pub hit_ratio: f64,
    pub batch: usize,
    pub sync: bool,
    /// The order of a fill.
    pub order: Vec<u32>,
    /// The next position in it.
    pub position: AtomicUsize,
    /// Entries there are, for inserts.
    pub entries: AtomicU64,
    /// Threads that still work in this turn, without those in the background.
    pub running: AtomicUsize,
}

/// A turn of all threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// Index of the reader: which variant this is.
    pub variant: usize,
    /// It ends after this time, or with the operation that lasts longer.
    pub nanos: u64,
    /// Operations of this thread, at most.
    pub operations: u64,
    /// Whether its latencies are kept.
    pub recorded: bool,
}

/// The work of a thread in a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub operations: u64,
    pub entries: u64,
    /// Time of the operations, without waiting for the schedule.
    pub busy_nanos: u64,
    /// From the thread's start to its end.
    pub nanos: u64,
    /// Nothing is left to fill.
    pub is_exhausted: bool,
}

pub(crate) struct Worker<'a> {
    common: &'a Common<'a>,
    readers: Vec<Box<dyn Reader + 'a>>,
    /// The operation that this thread repeats all the time, if it is in the background.
    background: Option<Action>,
    random: u64,
    /// Nanoseconds between two operations, and the time of the next one.
    schedule: Option<(f64, f64)>,
    /// Time of this thread's former turns. The schedule goes by the time of turns, because nothing
    /// can start between them.
    active: u64,
    request: Request,
    latencies: Vec<ByKind>,
    wrong_answers: u64,
}

/// The next operation, made before its clock starts.
#[derive(Default)]
struct Request {
    /// Numbers of the entries to write.
    numbers: Vec<u64>,
    keys: Vec<Vec<u8>>,
    /// How many of the keys are present.
    present: u64,
    /// Entries to scan.
    entries: u64,
    /// The last key of a scan, from where the next one continues; empty at an end.
    last: Vec<u8>,
    /// How many of the keys are in use.
    used: usize,
    version: u64,
}

impl Request {
    /// A buffer for one more key.
    fn next_key(&mut self) -> &mut Vec<u8> {
        if self.used == self.keys.len() {
            self.keys.push(Vec::new());
        }
        self.used += 1;
        &mut self.keys[self.used - 1]
    }

    fn keys(&self) -> &[Vec<u8>] {
        &self.keys[..self.used]
    }

    fn key(&self) -> &[u8] {
        self.keys().first().map_or(&[], Vec::as_slice)
    }
}

impl<'a> Worker<'a> {
    /// The thread `number`, counted from zero, which starts an operation every `interval`
    /// nanoseconds and `first` nanoseconds after the start; without it as soon as the former one
    /// has ended.
    pub(crate) fn new(
        common: &'a Common<'a>,
        filters: &[bool],
        background: Option<Action>,
        seed: u64,
        schedule: Option<(f64, f64)>,
    ) -> Result<Self> {
        let readers = filters.iter().map(|use_filters| common.store.reader(*use_filters));
        Ok(Worker {
            common,
            readers: readers.collect::<Result<_>>()?,
            background,
            random: seed,
            schedule,
            active: 0,
            request: Request::default(),
            latencies: vec![ByKind::default(); filters.len()],
            wrong_answers: 0,
        })
    }

    /// The latencies by variant, and the number of wrong answers.
    pub(crate) fn finish(self) -> (Vec<ByKind>, u64) {
        (self.latencies, self.wrong_answers)
    }

    /// Makes operations until the turn is over.
    pub(crate) fn turn(&mut self, turn: &Turn) -> Result<Done> {
        let mut done = Done::default();
        let clock = Instant::now();
        let now = |active: u64| active + clock.elapsed().as_nanos() as u64;
        let end = self.active + turn.nanos;
        while done.operations < turn.operations && now(self.active) < end && self.goes_on() {
            let action = match self.background {
                Some(action) => action,
                None => self.common.workload.action(splitmix64(&mut self.random)),
            };
            let intended = match &mut self.schedule {
                None => None,
                Some((_, next)) if *next >= end as f64 => {
                    wait(|| now(self.active), end);
                    break;
                }
                Some((interval, next)) => {
                    let intended = *next as u64;
                    *next += *interval;
                    Some(intended)
                }
            };
            if !self.prepare(action) {
                done.is_exhausted = true;
                break;
            }
            if let Some(intended) = intended {
                wait(|| now(self.active), intended);
            }
            let start = now(self.active);
            let (kind, entries) = self.perform(action, turn.variant)?;
            let finish = now(self.active);
            done.operations += 1;
            done.entries += entries;
            done.busy_nanos += finish - start;
            if turn.recorded {
                // A late start is latency too: the user has waited since the intended one.
                let waited_since = intended.map_or(start, |intended| intended.min(start));
                record(&mut self.latencies[turn.variant], kind, finish - waited_since);
            }
        }
        done.nanos = clock.elapsed().as_nanos() as u64;
        self.active += done.nanos;
        if self.background.is_none() {
            self.common.running.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(done)
    }

    /// A thread in the background ends with the others.
    fn goes_on(&self) -> bool {
        self.background.is_none() || self.common.running.load(Ordering::Relaxed) > 0
    }

    /// Makes keys and values. False if nothing is left to write.
    fn prepare(&mut self, action: Action) -> bool {
        let common = self.common;
        let entries = common.entries.load(Ordering::Relaxed);
        self.request.used = 0;
        self.request.numbers.clear();
        self.request.present = 0;
        match action {
            Action::Fill => {
                let batch = if common.workload.batches { common.batch } else { 1 };
                let first = common.position.fetch_add(batch, Ordering::Relaxed);
                let last = (first + batch).min(common.order.len());
                let entries = common.order.get(first..last).unwrap_or_default();
                entries.iter().for_each(|n| self.write_entry(u64::from(*n)));
                return first < last;
            }
            Action::Get | Action::Seek => self.draw_key(entries),
            Action::MultiGet => (0..common.batch).for_each(|_| self.draw_key(entries)),
            Action::Scan => {
                self.request.entries = 1 + splitmix64(&mut self.random) % SCAN_ENTRIES_MAX;
                self.draw_key(entries);
            }
            Action::Overwrite | Action::ReadModifyWrite | Action::Delete => {
                self.request.version += 1;
                let n = common.sampler.draw(&mut self.random, entries);
                self.write_entry(n);
            }
            Action::Insert => self.write_entry(common.entries.fetch_add(1, Ordering::Relaxed)),
            Action::ReadForward | Action::ReadBackward => {
                let mut from = std::mem::take(&mut self.request.last);
                if from.is_empty() && action == Action::ReadBackward {
                    // No key is above the highest one that fits a database.
                    from = vec![0xff; KeySet::KEY_BYTES_MAX];
                }
                *self.request.next_key() = from;
            }
        }
        true
    }

    /// Takes the entry `n` to be written.
    fn write_entry(&mut self, n: u64) {
        self.request.numbers.push(n);
        self.common.data.present(n, self.request.next_key());
    }

    /// Draws a key to look up, present by the hit ratio.
    fn draw_key(&mut self, entries: u64) {
        let common = self.common;
        let n = common.sampler.draw(&mut self.random, entries);
        if unit(&mut self.random) < common.hit_ratio {
            self.request.present += 1;
            common.data.present(n, self.request.next_key());
        } else {
            common.data.absent(n, self.request.next_key());
        }
    }

    /// Makes the operation; answers its kind and its entries.
    fn perform(&mut self, action: Action, variant: usize) -> Result<(Kind, u64)> {
        let (store, sync) = (self.common.store, self.common.sync);
        let reader = self.readers[variant].as_mut();
        let request = &mut self.request;
        let value = |n: Option<&u64>| self.common.data.value(n.map_or(0, |n| *n), request.version);
        let mut found = None;
        let done = match action {
            Action::Get => {
                found = Some(u64::from(black_box(reader.get(request.key())?).is_some()));
                (Kind::Get, 1)
            }
            Action::MultiGet => {
                found = Some(reader.multi_get(request.keys())?);
                (Kind::MultiGet, request.used as u64)
            }
            Action::Fill if self.common.workload.batches => {
                let values = request.numbers.iter().map(|n| value(Some(n)));
                let keys = request.keys().iter().map(Vec::as_slice);
                let entries: Vec<(&[u8], &[u8])> = keys.zip(values).collect();
                store.write(&entries, sync)?;
                (Kind::Write, entries.len() as u64)
            }
            Action::Fill | Action::Overwrite | Action::Insert => {
                store.put(request.key(), value(request.numbers.first()), sync)?;
                (Kind::Put, 1)
            }
            Action::Delete => {
                store.delete(request.key(), sync)?;
                (Kind::Delete, 1)
            }
            Action::ReadModifyWrite => {
                black_box(reader.get(request.key())?);
                store.put(request.key(), value(request.numbers.first()), sync)?;
                (Kind::ReadModifyWrite, 1)
            }
            Action::Seek => (Kind::Seek, scan(reader, Direction::Forward, 1, request)?),
            Action::Scan => {
                (Kind::Scan, scan(reader, Direction::Forward, request.entries, request)?)
            }
            Action::ReadForward => (Kind::Scan, read_on(reader, Direction::Forward, request)?),
            Action::ReadBackward => (Kind::Scan, read_on(reader, Direction::Backward, request)?),
        };
        if found.is_some_and(|found| found != request.present) && !self.common.workload.writes() {
            self.wrong_answers += 1;
        }
        Ok(done)
    }
}

/// Scans from the key of the request; keeps the last key.
fn scan(
    reader: &mut dyn Reader,
    direction: Direction,
    entries: u64,
    request: &mut Request,
) -> Result<u64> {
    let (from, last) = (&request.keys[0], &mut request.last);
    reader.scan(from, direction, entries, &mut |key, value| {
        black_box(value.last());
        key.clone_into(last);
    })
}

/// Reads on from the last key, which is read again; begins again after the last entry.
fn read_on(reader: &mut dyn Reader, direction: Direction, request: &mut Request) -> Result<u64> {
    let read = scan(reader, direction, READ_ENTRIES, request)?;
    if read < READ_ENTRIES {
        request.last.clear();
    }
    Ok(read)
}

/// Waits until the clock `now` shows `time`.
fn wait(now: impl Fn() -> u64, time: u64) {
    loop {
        let left = Duration::from_nanos(time.saturating_sub(now()));
        match left.checked_sub(WAKE_UP) {
            _ if left.is_zero() => return,
            Some(sleep) => std::thread::sleep(sleep),
            None => spin_loop(),
        }
    }
}
