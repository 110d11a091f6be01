//! Runs a workload in a store, turn by turn.
//!
//! Each thread waits for a turn, makes operations until it is over, and answers what it did.
//! Between turns nothing is under way: the store's counters are read, and the next variant begins.
//! Variants alternate as on, off, off, on, so that a machine that slowly becomes faster or slower
//! favours neither.

use crate::experiment::bench::data::Data;
use crate::experiment::bench::draw::{Distribution, Sampler};
use crate::experiment::bench::interval::{median, median_interval};
use crate::experiment::bench::result::{ByKind, Measured, Variant, add};
use crate::experiment::bench::store::{Counts, Result, Store};
use crate::experiment::bench::worker::{Common, Done, Turn, Worker};
use crate::experiment::bench::workload::{Start, Workload};
use crate::experiment::keys::mix;
use siftdb::Error;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// A turn lasts at most this long: short compared with the changes of a busy machine, and long
/// compared with the refill of the processor's caches, which the other variant has used.
const TURN: Duration = Duration::from_millis(5);

/// A run is cut into at least about this many turns.
const TURNS: u64 = 64;

/// How a workload is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Threads that make operations. Default: 1.
    pub threads: usize,
    /// Operations of all threads and variants together. Default: no limit.
    pub operations: Option<u64>,
    /// Time in which operations are made. Default: 2 s, unless operations are given. A workload
    /// that fills a store ends with the last entry, if not before.
    pub duration: Option<Duration>,
    /// Operations a second of all threads together. Default: as many as can be made.
    pub rate: Option<f64>,
    /// Keys or entries of one batch. Default: 100.
    pub batch: usize,
    /// Every write waits for the disk. Default: false.
    pub sync: bool,
    /// The share of lookups whose key is there. Default: 1.
    pub hit_ratio: f64,
    /// How often entries are asked for. Default: uniform.
    pub distribution: Distribution,
    /// Whether filters are asked; with both, they alternate. Default: both, asked first. A workload
    /// that asks no filters takes the first alone.
    pub filters: Vec<bool>,
    /// Operations that are not measured come first, for a fifth of the duration or of the
    /// operations, in a workload that writes nothing. Default: true.
    pub warm_up: bool,
    /// Decides which operations are made, and in which order. Default: 42.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            threads: 1,
            operations: None,
            duration: None,
            rate: None,
            batch: 100,
            sync: false,
            hit_ratio: 1.0,
            distribution: Distribution::Uniform,
            filters: vec![true, false],
            warm_up: true,
            seed: 42,
        }
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Time of all turns so far, without the warm-up.
    pub elapsed: Duration,
    /// Operations in it.
    pub operations: u64,
}

/// Other work between turns, when no operation runs.
pub trait Watch {
    /// Comes before each turn, for example to drop caches. False ends the run.
    ///
    /// # Errors
    /// An error ends the run, too.
    fn before_turn(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Comes after each turn that was measured.
    fn after_turn(&mut self, _progress: &Progress) {}
}

/// Nothing.
impl Watch for () {}

/// Runs a workload in a store that has the entries of `data`, or none if the workload fills it.
///
/// # Errors
/// `InvalidArgument` for settings without sense; errors of the store.
pub fn run(
    store: &dyn Store,
    data: &Data,
    workload: &Workload,
    settings: &Settings,
    watch: &mut dyn Watch,
) -> Result<Measured> {
    check(settings)?;
    let filters = match workload.asks_filters() {
        true => &settings.filters[..],
        false => &settings.filters[..1],
    };
    let distribution = workload.distribution.unwrap_or(settings.distribution);
    let common = Common {
        store,
        data,
        workload: *workload,
        sampler: Sampler::new(distribution, data.count),
        hit_ratio: workload.hit_ratio.unwrap_or(settings.hit_ratio),
        batch: settings.batch,
        sync: settings.sync || workload.sync,
        order: match workload.start {
            Start::Loaded => Vec::new(),
            Start::EmptyAscending => data.ascending(),
            Start::EmptyShuffled => data.shuffled(settings.seed),
        },
        position: AtomicUsize::new(0),
        entries: AtomicU64::new(data.count),
        running: AtomicUsize::new(0),
    };
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..settings.threads + usize::from(workload.background.is_some()) {
            let (start, turns) = channel();
            let (done, answers) = channel();
            let (common, settings) = (&common, &*settings);
            let handle = scope.spawn(move || work(common, settings, filters, number, turns, done));
            threads.push(Thread { handle, start, answers });
        }
        let mut turns = Turns::new(&common, settings, filters);
        let warm = settings.warm_up && !workload.writes();
        // An answer that is missing is explained by the end of the thread.
        let warmed = if warm { turns.warm_up(&threads) } else { Ok(()) };
        let done = warmed
            .and_then(|()| turns.run(&threads, settings.operations, turns.duration, true, watch));
        let measured = turns.finish(threads);
        done.and(measured)
    })
}

fn check(settings: &Settings) -> Result<()> {
    let sound = settings.threads > 0
        && settings.batch > 0
        && !settings.filters.is_empty()
        && settings.filters.len() <= 2
        && (0.0..=1.0).contains(&settings.hit_ratio)
        && settings.rate.is_none_or(|rate| rate > 0.0);
    match sound {
        true => Ok(()),
        false => {
            let what = "a benchmark takes at least one thread, a batch of at least one, a hit \
                        ratio from 0 to 1 and a rate above 0";
            Err(Error::InvalidArgument { what: what.into() }.into())
        }
    }
}

/// A thread and the channels to it.
struct Thread<'scope> {
    handle: ScopedJoinHandle<'scope, Result<(Vec<ByKind>, u64)>>,
    start: Sender<Turn>,
    answers: Receiver<Done>,
}

/// The body of a thread: runs all turns that it is given.
fn work(
    common: &Common<'_>,
    settings: &Settings,
    filters: &[bool],
    number: usize,
    turns: Receiver<Turn>,
    done: Sender<Done>,
) -> Result<(Vec<ByKind>, u64)> {
    let background = common.workload.background.filter(|_| number == settings.threads);
    let schedule = settings.rate.filter(|_| background.is_none()).map(|rate| {
        // Threads take turns: each has its part of the rate, and starts a part later.
        let interval = 1e9 / rate;
        (interval * settings.threads as f64, interval * number as f64)
    });
    let seed = mix(settings.seed ^ (number as u64 + 1) << 48);
    let mut worker = Worker::new(common, filters, background, seed, schedule)?;
    while let Ok(turn) = turns.recv() {
        if done.send(worker.turn(&turn)?).is_err() {
            break;
        }
    }
    Ok(worker.finish())
}

/// All turns of a run, and their sums.
struct Turns<'a> {
    common: &'a Common<'a>,
    settings: &'a Settings,
    duration: Option<Duration>,
    variants: Vec<Variant>,
    /// Mean time of an operation, by turn and variant.
    nanos: Vec<(usize, f64)>,
    counts: Option<Counts>,
    number: usize,
}

impl<'a> Turns<'a> {
    fn new(common: &'a Common<'a>, settings: &'a Settings, filters: &[bool]) -> Self {
        let limited = settings.operations.is_some() || common.workload.fills();
        let default = (!limited).then_some(Duration::from_secs(2));
        let variant = |filters: &bool| Variant { filters: *filters, ..Variant::default() };
        Turns {
            common,
            settings,
            duration: settings.duration.or(default),
            variants: filters.iter().map(variant).collect(),
            nanos: Vec::new(),
            counts: common.store.counts(),
            number: 0,
        }
    }

    /// On, off, off, on.
    fn variant(&self) -> usize {
        usize::from(matches!(self.number % 4, 1 | 2)) % self.variants.len()
    }

    /// Makes operations that are not measured.
    fn warm_up(&mut self, threads: &[Thread<'_>]) -> Result<()> {
        let operations = self.settings.operations.map(|all| all / 5);
        self.run(threads, operations, self.duration.map(|all| all / 5), false, &mut ())?;
        self.number = 0;
        self.counts = self.common.store.counts();
        Ok(())
    }

    /// Makes operations, measured if they are `recorded`, until the limits are met, nothing is left
    /// to fill or a thread has failed.
    fn run(
        &mut self,
        threads: &[Thread<'_>],
        operations: Option<u64>,
        duration: Option<Duration>,
        recorded: bool,
        watch: &mut dyn Watch,
    ) -> Result<()> {
        let mut operations = operations.unwrap_or(u64::MAX);
        let mut left = duration.map_or(u64::MAX, nanos);
        let each = (operations / TURNS).max(self.settings.threads as u64);
        let turn_nanos = (left / TURNS).clamp(1, nanos(TURN));
        while operations > 0 && left > 0 && watch.before_turn()? {
            let turn = self.turn(threads, operations.min(each), left.min(turn_nanos), recorded);
            let Some(done) = turn else { break };
            operations -= done.operations.min(operations);
            left = left.saturating_sub(done.nanos.max(1));
            let seconds: f64 = self.variants.iter().map(|variant| variant.seconds).sum();
            watch.after_turn(&Progress {
                elapsed: Duration::from_secs_f64(seconds),
                operations: self.variants.iter().map(|variant| variant.operations).sum(),
            });
            if done.is_exhausted {
                break;
            }
        }
        Ok(())
    }

    /// One turn of all threads. `None` if a thread has failed.
    fn turn(
        &mut self,
        threads: &[Thread<'_>],
        operations: u64,
        nanos: u64,
        recorded: bool,
    ) -> Option<Done> {
        let variant = self.variant();
        let workers = self.settings.threads as u64;
        self.common.running.store(self.settings.threads, Ordering::Relaxed);
        for (thread, number) in threads.iter().zip(0..) {
            // Some make one operation more, so that the sum comes out.
            let share = operations / workers + u64::from(number < operations % workers);
            let operations = if number < workers { share } else { u64::MAX };
            thread.start.send(Turn { variant, nanos, operations, recorded }).ok()?;
        }
        let mut sum = Done::default();
        for (thread, number) in threads.iter().zip(0..) {
            let done = thread.answers.recv().ok()?;
            if number < workers {
                sum.operations += done.operations;
                sum.entries += done.entries;
                sum.busy_nanos += done.busy_nanos;
                sum.nanos = sum.nanos.max(done.nanos);
                sum.is_exhausted |= done.is_exhausted;
            }
        }
        if recorded {
            self.add(variant, &sum);
        }
        self.number += 1;
        Some(sum)
    }

    fn add(&mut self, variant: usize, sum: &Done) {
        // Not a number without operations: the turn keeps its place next to its neighbour.
        self.nanos.push((variant, sum.busy_nanos as f64 / sum.operations as f64));
        let of = &mut self.variants[variant];
        of.operations += sum.operations;
        of.entries += sum.entries;
        of.seconds += sum.nanos as f64 / 1e9;
        let counts = self.common.store.counts();
        if let Some((before, now)) = self.counts.zip(counts) {
            of.counts.get_or_insert_default().add(&before, &now);
        }
        self.counts = counts;
    }

    /// Ends the threads and puts together what they measured.
    fn finish(mut self, threads: Vec<Thread<'_>>) -> Result<Measured> {
        let mut wrong_answers = 0;
        let handles: Vec<_> = threads.into_iter().map(|thread| thread.handle).collect();
        for handle in handles {
            let ended = handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (by_variant, wrong) = ended?;
            wrong_answers += wrong;
            for (variant, latencies) in self.variants.iter_mut().zip(&by_variant) {
                add(&mut variant.kinds, latencies);
            }
        }
        for (number, variant) in self.variants.iter_mut().enumerate() {
            let of_it = |turn: &&(usize, f64)| turn.0 == number && turn.1.is_finite();
            let of_it = self.nanos.iter().filter(of_it).map(|(_, nanos)| *nanos);
            variant.typical_nanos = median(of_it.collect()).unwrap_or(0.0);
        }
        // Neighbouring turns are of different variants, in changing order.
        let pairs = self.nanos.chunks_exact(2).filter_map(|pair| match pair {
            [(0, one), (1, other)] | [(1, other), (0, one)] => Some(other / one),
            _ => None,
        });
        let pairs = pairs.filter(|ratio| ratio.is_finite());
        let ratio = match self.variants[..] {
            [Variant { filters: true, .. }, _] => median_interval(pairs.collect(), 0.95),
            _ => None,
        };
        Ok(Measured {
            workload: self.common.workload.name,
            variants: self.variants,
            ratio,
            wrong_answers,
        })
    }
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}
