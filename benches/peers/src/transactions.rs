//! The phase of transactions: what one costs, how threads share, and whether a large one disturbs
//! puts.
//!
//! - A get and a put of one key, in a transaction and as two calls, on 1 and on 4 threads with keys
//!   of their own. Slices of both alternate, and the cost is the median ratio of neighbours.
//! - 4 threads that add to one counter, and 4 that move money between accounts. What is there at
//!   the end is compared with what must be: a lost update is an error that ends the run.
//! - The 99th percentile of puts, alone and next to a thread that scans everything in a transaction
//!   and commits it with a write, over and over. The puts are to keys after the scanned ones, so
//!   nothing conflicts.
//!
//! Values begin with a number of 8 bytes. Rates are by wall time, of all threads together.

use crate::clock::{Span, at_once};
use crate::databases::Databases;
use crate::engine::{Result, Transactions};
use crate::sample::Sample;
use crate::workload::{Batch, Workload};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Threads, where there are several.
const THREADS: u64 = 4;

/// Slices of each kind that alternate.
const SLICES: u64 = 8;

/// Transactions of a measurement, at most.
const COUNT_MAX: u64 = 200_000;

/// The same for transactions that each wait for the disk.
const DURABLE_MAX: u64 = 2_000;

/// Entries of a transaction that loads.
const LOADED_AT_ONCE: usize = 1000;

/// Accounts, and what is on each at the begin.
const ACCOUNTS: u64 = 1000;
const COINS_EACH: u64 = 1000;

/// A key after all entries. Scans end before it, and puts that run at the same time follow it.
const END: &[u8] = &[0xff; 9];

/// What a transaction writes after its scan.
const SCANNED: &[u8] = &[0xff; 20];

/// Puts next to a transaction end after this time, where they wait for it.
const PUTS_TIME_MAX: Duration = Duration::from_secs(3);

/// One round.
pub fn transactions(databases: &mut Databases<'_>, round: u64) -> Result<Vec<Sample>> {
    let workload = databases.workload;
    databases.scratch_transactions(|database| {
        let store = database.as_ref();
        load(store, workload)?;
        let mut samples = Vec::new();
        for threads in [1, THREADS] {
            samples.extend(cost(store, workload, round, threads)?);
        }
        let count = (workload.keys / 2).min(DURABLE_MAX) / THREADS;
        let rate = disjoint(store, &drawn(workload, round, THREADS, count), Way::Durable)?;
        samples.push(Sample::new("transactions-durable-4", rate));
        samples.push(Sample::new("transactions-counter", counter(store, workload)?));
        samples.push(Sample::new("transactions-bank", bank(store, workload, false)?));
        samples.push(Sample::new("transactions-bank-durable", bank(store, workload, true)?));
        samples.extend(large(store, workload)?);
        database.close()?;
        Ok(samples)
    })
}

/// Puts all entries.
fn load(store: &dyn Transactions, workload: &Workload) -> Result<()> {
    for numbers in workload.shuffled().chunks(LOADED_AT_ONCE) {
        let batch = workload.batch(numbers);
        store.transact(false, &mut |transaction| {
            batch.iter().try_for_each(|(key, value)| transaction.put(key, value))
        })?;
    }
    Ok(())
}

/// How a get and a put are done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As two calls.
    Plain,
    /// As a transaction.
    Transaction,
    /// As a durable transaction.
    Durable,
}

/// The entries of each thread: different ones, in random order.
fn drawn(workload: &Workload, seed: u64, threads: u64, count: u64) -> Vec<Batch<'_>> {
    let numbers = workload.reshuffled(seed + 1);
    let parts = numbers.chunks(numbers.len() / threads as usize);
    let parts = parts.take(threads as usize);
    parts.map(|part| workload.overwriting(&part[..part.len().min(count as usize)])).collect()
}

/// Gets and puts of each thread's entries. Answers how many a second there were.
fn disjoint(store: &dyn Transactions, batches: &[Batch<'_>], way: Way) -> Result<f64> {
    let count: usize = batches.iter().map(|batch| batch.iter().count()).sum();
    let elapsed = at_once(batches, |batch, start| {
        timed(start, || {
            batch.iter().try_for_each(|(key, value)| get_and_put(store, key, value, way))
        })
    })?;
    Ok(count as f64 / elapsed.as_secs_f64())
}

fn get_and_put(store: &dyn Transactions, key: &[u8], value: &[u8], way: Way) -> Result<()> {
    let found = |found: Option<u64>| found.map(|_| ()).ok_or("an entry is missing");
    if way == Way::Plain {
        found(store.get(key)?)?;
        return store.put(key, value);
    }
    store.transact(way == Way::Durable, &mut |transaction| {
        found(transaction.get(key)?)?;
        transaction.put(key, value)
    })
}

/// Both ways alternately, and their ratio.
fn cost(
    store: &dyn Transactions,
    workload: &Workload,
    round: u64,
    threads: u64,
) -> Result<[Sample; 3]> {
    let count = (workload.keys / 2).min(COUNT_MAX) / threads / SLICES;
    let (mut plain, mut transaction, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for slice in 0..SLICES {
        let drawn = drawn(workload, round * SLICES + slice, 2 * threads, count.max(1));
        // Entries of their own: those that were just put are found sooner.
        let (one, other) = drawn.split_at(threads as usize);
        let (first, second) = if slice % 2 == 0 { (one, other) } else { (other, one) };
        plain.push(disjoint(store, first, Way::Plain)?);
        transaction.push(disjoint(store, second, Way::Transaction)?);
        ratios.push(plain[plain.len() - 1] / transaction[transaction.len() - 1]);
    }
    Ok([
        Sample::new(&format!("transactions-plain-{threads}"), median(plain)),
        Sample::new(&format!("transactions-{threads}"), median(transaction)),
        Sample::new(&format!("transactions-cost-{threads}"), median(ratios)),
    ])
}

fn median(figures: Vec<f64>) -> f64 {
    siftdb_cli::experiment::bench::median(figures).unwrap_or(f64::NAN)
}

/// All threads add to one counter.
fn counter(store: &dyn Transactions, workload: &Workload) -> Result<f64> {
    let key = b"counter";
    let before = store.get(key)?.unwrap_or(0);
    let count = (workload.keys / 2).min(COUNT_MAX) / THREADS;
    let elapsed = at_once(&[(); THREADS as usize], |(), start| {
        let add = || {
            store.transact(false, &mut |transaction| {
                let number = transaction.get(key)?.unwrap_or(0);
                transaction.put(key, &(number + 1).to_be_bytes())
            })
        };
        timed(start, || (0..count).try_for_each(|_| add()))
    })?;
    let (found, right) = (store.get(key)?, before + count * THREADS);
    if found != Some(right) {
        return Err(format!("lost updates: the counter is {found:?}, not {right}").into());
    }
    Ok((count * THREADS) as f64 / elapsed.as_secs_f64())
}

/// All threads move money between accounts.
fn bank(store: &dyn Transactions, workload: &Workload, durable: bool) -> Result<f64> {
    let account = |number: u64| [b"account/".as_slice(), &number.to_be_bytes()].concat();
    let accounts: Vec<_> = (0..ACCOUNTS).map(account).collect();
    accounts.iter().try_for_each(|key| store.put(key, &COINS_EACH.to_be_bytes()))?;
    let count = (workload.keys / 2).min(if durable { DURABLE_MAX } else { COUNT_MAX }) / THREADS;
    let pairs: Vec<_> = (0..THREADS).map(|n| workload.drawn_pairs(n, count, ACCOUNTS)).collect();
    let transfer = |from: &[u8], to: &[u8]| {
        store.transact(durable, &mut |transaction| {
            let (has, gets) = (transaction.get(from)?, transaction.get(to)?);
            let (has, gets) = has.zip(gets).ok_or("an account is missing")?;
            let coins = has.min(7);
            transaction.put(from, &(has - coins).to_be_bytes())?;
            transaction.put(to, &(gets + coins).to_be_bytes())
        })
    };
    let elapsed = at_once(&pairs, |pairs, start| {
        timed(start, || {
            pairs.iter().try_for_each(|[from, to]| transfer(&accounts[*from], &accounts[*to]))
        })
    })?;
    let mut sum = 0;
    for key in &accounts {
        sum += store.get(key)?.ok_or("an account is missing")?;
    }
    if sum != ACCOUNTS * COINS_EACH {
        return Err(format!("lost updates: {sum} coins are on the accounts").into());
    }
    Ok((count * THREADS) as f64 / elapsed.as_secs_f64())
}

/// Waits for the other threads, then works.
fn timed(start: &Barrier, work: impl FnOnce() -> Result<()>) -> Result<Span> {
    start.wait();
    let start = Instant::now();
    work()?;
    Ok(Span { start, end: Instant::now() })
}

/// Puts alone and next to large transactions, alternately.
fn large(store: &dyn Transactions, workload: &Workload) -> Result<[Sample; 4]> {
    let count = (workload.keys / 2).min(COUNT_MAX) as usize;
    let (mut alone, mut shared, mut ratios, mut rates) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let commits = AtomicU64::new(1);
        let without = percentile(puts(store, workload, count, &commits)?);
        let (with, rate) = puts_beside_transactions(store, workload, count)?;
        ratios.push(with / without);
        alone.push(without);
        shared.push(with);
        rates.push(rate);
    }
    Ok([
        Sample::new("transactions-p99-alone", median(alone)),
        Sample::new("transactions-p99", median(shared)),
        Sample::new("transactions-p99-times", median(ratios)),
        Sample::new("transactions-scans", median(rates)),
    ])
}

/// The percentile of puts next to transactions, and how many of these a second there were.
fn puts_beside_transactions(
    store: &dyn Transactions,
    workload: &Workload,
    count: usize,
) -> Result<(f64, f64)> {
    let (commits, stop) = (AtomicU64::new(0), AtomicU64::new(0));
    let scan = || -> Result<()> {
        while stop.load(Ordering::Relaxed) == 0 {
            store.transact(false, &mut |transaction| {
                let found = transaction.scan(END)?;
                if found < workload.keys {
                    return Err(format!("a scan found {found} entries").into());
                }
                transaction.put(SCANNED, &found.to_be_bytes())
            })?;
            commits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let scanning = scope.spawn(scan);
        let started = Instant::now();
        let each = puts(store, workload, count, &commits);
        let rate = commits.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
        stop.store(1, Ordering::Relaxed);
        scanning.join().map_err(|_| "a thread panicked")??;
        Ok((percentile(each?), rate))
    })
}

/// Puts until there are `count` and something was committed. Answers what each took.
fn puts(
    store: &dyn Transactions,
    workload: &Workload,
    count: usize,
    commits: &AtomicU64,
) -> Result<Vec<Duration>> {
    let mut each = Vec::with_capacity(count);
    let started = Instant::now();
    while (each.len() < count || commits.load(Ordering::Relaxed) == 0)
        && started.elapsed() < PUTS_TIME_MAX
    {
        let number = each.len() as u64;
        let key = [END, &number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()].concat();
        let value = workload.value(number);
        let start = Instant::now();
        store.put(&key, value)?;
        each.push(start.elapsed());
    }
    Ok(each)
}

fn percentile(mut each: Vec<Duration>) -> f64 {
    each.sort_unstable();
    each[((each.len() as f64 * 0.99).ceil() as usize).max(1) - 1].as_nanos() as f64
}
