//! What the benchmarks share: [`Paired`] measures two ways of doing the same by turns, so that a
//! disturbance of the machine meets both.

use siftdb_cli::experiment::bench::median;
use std::time::{Duration, Instant};

/// The times of two sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// The median of each side.
    pub medians: [f64; 2],
    /// Median over the rounds of the second side's time divided by the first side's time.
    pub ratio: f64,
}

impl Paired {
    /// Measures side 0 and side 1 in each round, in changing order. `time` gets a round and a side.
    pub fn measure(rounds: u64, mut time: impl FnMut(u64, usize) -> f64) -> Self {
        let (mut times, mut ratios) = ([const { Vec::new() }; 2], Vec::new());
        for round in 0..rounds {
            let mut pair = [0.0; 2];
            for turn in 0..2 {
                let side = ((round + turn) % 2) as usize;
                pair[side] = time(round, side);
                times[side].push(pair[side]);
            }
            ratios.push(pair[1] / pair[0]);
        }
        let median = |values| median(values).unwrap_or(f64::NAN);
        Paired { medians: times.map(median), ratio: median(ratios) }
    }
}

/// How long the processor worked on this thread in `work`: other processes disturb that less than
/// the time by the clock, which counts where the system does not tell the other.
pub fn processor_time(work: impl FnOnce()) -> Duration {
    let (started, before) = (Instant::now(), thread_nanos());
    work();
    let worked = thread_nanos().zip(before).map(|(now, before)| now - before);
    worked.map_or_else(|| started.elapsed(), Duration::from_nanos)
}

fn thread_nanos() -> Option<u64> {
    // The kernel updates the figure when the thread passes through its scheduler.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// The number of keys of a benchmark: `SIFTDB_BENCH_KEYS`, or 200,000.
pub fn bench_keys() -> u64 {
    let given = std::env::var("SIFTDB_BENCH_KEYS").ok();
    given.and_then(|keys| keys.parse().ok()).unwrap_or(200_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_take_turns_and_pairs_give_the_ratio() {
        let mut order = Vec::new();
        let paired = Paired::measure(3, |round, side| {
            order.push(side);
            // The machine slows down; the second side takes half as long.
            (round + 1) as f64 / (1 + side) as f64
        });
        assert_eq!(order, [0, 1, 1, 0, 0, 1]);
        assert_eq!(paired, Paired { medians: [2.0, 1.0], ratio: 0.5 });
    }
}
