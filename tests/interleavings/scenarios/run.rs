//! Runs a scenario under many schedules.
//!
//! `SIFTDB_SCHEDULES` multiplies their number, `SIFTDB_SEED` draws others, and `SIFTDB_SCHEDULE`,
//! with what a failure printed, repeats one.

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The most changes of thread in a schedule of the second kind.
const CHANGES: usize = 4;

/// Enough for the engine without optimization.
const STACK_BYTES: usize = 1 << 20;

/// Runs `scenario` under that many schedules of each kind. It must have at least `outcomes`
/// different results.
pub fn check<T: Ord + Debug + Send + 'static>(
    name: &str,
    schedules: usize,
    outcomes: usize,
    scenario: impl Fn() -> T + Send + Sync + 'static,
) {
    let setting = |name: &str| std::env::var(name).ok();
    let number = |name: &str| setting(name).and_then(|value| value.parse().ok());
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let noting = Arc::clone(&seen);
    let scenario = Arc::new(move || {
        let outcome = scenario();
        noting.lock().unwrap().insert(outcome);
    });
    if let Some(schedule) = setting("SIFTDB_SCHEDULE") {
        shuttle::replay(move || scenario(), &schedule);
        return;
    }
    let schedules = schedules * number("SIFTDB_SCHEDULES").unwrap_or(1) as usize;
    let seed = number("SIFTDB_SEED").unwrap_or(1);
    let started = Instant::now();
    run(RandomScheduler::new_from_seed(seed, schedules), &scenario);
    run(PctScheduler::new_from_seed(seed, CHANGES, schedules), &scenario);
    let seen = seen.lock().unwrap();
    println!("{name}: 2 x {schedules} schedules, {} outcomes, {:?}", seen.len(), started.elapsed());
    assert!(seen.len() >= outcomes, "only {seen:?}");
}

fn run(scheduler: impl Scheduler + 'static, scenario: &Arc<impl Fn() + Send + Sync + 'static>) {
    let mut config = shuttle::Config::new();
    config.stack_size = STACK_BYTES;
    config.silence_warnings = true;
    let scenario = Arc::clone(scenario);
    shuttle::Runner::new(scheduler, config).run(move || scenario());
}
