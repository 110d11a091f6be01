//! Runs the fuzz targets with stable Rust: the corpus, then mutations of it.
//!
//! ```console
//! siftdb-fuzz [--seconds N] [--seed N] [--target NAME]   corpus, then mutations for N seconds
//! siftdb-fuzz --target NAME FILE...                      these inputs, once each
//! siftdb-fuzz --target operations [--seconds N] [--seed N] [FILE]   calls beside a model
//! siftdb-fuzz --write-corpus                             make the corpus again
//! ```
//!
//! The same seed makes the same mutations. An input that fails is kept in `artifacts`.

use siftdb_fuzz::operations::Case;
use siftdb_fuzz::rng::Rng;
use siftdb_fuzz::targets::{ALL, Target};
use siftdb_fuzz::{corpus, mutate, watch};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: watch::Counting = watch::Counting;

struct Arguments {
    seconds: u64,
    seed: u64,
    target: Option<String>,
    write_corpus: bool,
    inputs: Vec<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed =
        Arguments { seconds: 10, seed: 1, target: None, write_corpus: false, inputs: Vec::new() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{text}: not a number"));
        match word.as_str() {
            "--seconds" => parsed.seconds = number(value()?)?,
            "--seed" => parsed.seed = number(value()?)?,
            "--target" => parsed.target = Some(value()?),
            "--write-corpus" => parsed.write_corpus = true,
            unknown if unknown.starts_with('-') => return Err(format!("{unknown}: unknown")),
            _ => parsed.inputs.push(word),
        }
    }
    Ok(parsed)
}

/// Runs one input; a failure is kept and reported.
fn run(target: &Target, input: &[u8]) -> Result<watch::Cost, String> {
    watch::run(target, input).map_err(|what| {
        let path = watch::save(target.name, input);
        format!("{}: {what}; the input is kept: {path}", target.name)
    })
}

/// The corpus of a target, then mutations until the time is over.
fn campaign(target: &Target, seed: u64, time: Duration) -> Result<(), String> {
    let corpus = corpus::read(target.name).map_err(|error| format!("{}: {error}", target.name))?;
    if corpus.is_empty() {
        return Err(format!("{}: no corpus", target.name));
    }
    let mut worst = watch::Cost::default();
    let mut note = |cost: watch::Cost| {
        worst.bytes = worst.bytes.max(cost.bytes);
        worst.time = worst.time.max(cost.time);
    };
    for (name, input) in &corpus {
        (target.check)(&(target.files)(input))
            .map_err(|error| format!("corpus/{}/{name}: {error}", target.name))?;
        note(run(target, input)?);
    }
    let mut rng = Rng::new(seed);
    let mut runs = 0u64;
    let started = Instant::now();
    while started.elapsed() < time {
        let (_, input) = rng.pick(&corpus);
        let (_, other) = rng.pick(&corpus);
        let mutated = mutate::mutate(target.name, input, other, &mut rng);
        note(run(target, &mutated)?);
        runs += 1;
    }
    println!(
        "{:<16} {:>2} in the corpus, {runs:>8} mutations; at most {:>6.1} ms, {:>5} KB of memory",
        target.name,
        corpus.len(),
        worst.time.as_secs_f64() * 1e3,
        worst.bytes >> 10,
    );
    Ok(())
}

/// What names the operations beside a model, which are no target with a corpus.
const OPERATIONS: &str = "operations";

/// Runs cases until the time is over, or those in the files. A case that fails is made smaller,
/// kept and reported.
fn operations(arguments: &Arguments) -> Result<(), String> {
    let run = |case: &Case| watch::guarded(OPERATIONS, case.text().as_bytes(), || case.run());
    for path in &arguments.inputs {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        let case = Case::parse(&text).ok_or_else(|| format!("{path}: no case"))?;
        run(&case).map_err(|what| format!("{path}: {what}"))?;
    }
    if !arguments.inputs.is_empty() {
        return Ok(());
    }
    let (started, mut cases) = (Instant::now(), 0u64);
    while started.elapsed() < Duration::from_secs(arguments.seconds) {
        let case = Case::whole(arguments.seed.wrapping_mul(1_000_000) + cases);
        if let Err(what) = run(&case) {
            watch::be_quiet(true);
            let small = case.clone().shrunk(Duration::from_secs(20), |case| run(case).is_err());
            watch::be_quiet(false);
            let _ = run(&small);
            let path = watch::save(OPERATIONS, small.text().as_bytes());
            let (seed, steps) = (case.seed, small.steps.len());
            return Err(format!("seed {seed}: {what}; {steps} steps fail and are kept: {path}"));
        }
        cases += 1;
    }
    println!("{OPERATIONS:<16} {cases:>8} cases");
    Ok(())
}

fn work() -> Result<(), String> {
    let arguments = arguments()?;
    if arguments.write_corpus {
        return corpus::write().map_err(|error| error.to_string());
    }
    watch::begin();
    if arguments.target.as_deref() == Some(OPERATIONS) {
        println!("seed {}", arguments.seed);
        return operations(&arguments);
    }
    let is_wanted =
        |target: &&Target| arguments.target.as_ref().is_none_or(|name| name == target.name);
    let targets: Vec<&Target> = ALL.iter().filter(is_wanted).collect();
    if targets.is_empty() {
        return Err(format!("targets are {}", ALL.map(|target| target.name).join(", ")));
    }
    if !arguments.inputs.is_empty() {
        let [target] = targets[..] else { return Err("files need one --target".into()) };
        for path in &arguments.inputs {
            let input = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
            println!("{path}: {:?}", run(target, &input)?);
        }
        return Ok(());
    }
    println!("seed {}", arguments.seed);
    let time = Duration::from_secs(arguments.seconds) / targets.len() as u32;
    let outcomes = targets.into_iter().map(|target| campaign(target, arguments.seed, time));
    let failures: Vec<String> = outcomes.filter_map(Result::err).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}
