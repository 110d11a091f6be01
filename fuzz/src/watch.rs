//! Notices what no input may cause: a panic in any thread, memory out of proportion, an endless
//! loop.
//!
//! [`Counting`] is the allocator of the binary; what an input needs at most is the peak above what
//! was there before it. A thread of its own waits for the end of each run, so that an endless loop
//! is reported with its input.

use crate::targets::Target;
use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What any input may need: write buffers, caches and what a file system in memory keeps.
pub const FIXED_BYTES: usize = 512 << 10;

/// What an input may need for each of its bytes. Snappy alone expands up to 22 times.
pub const BYTES_PER_BYTE: usize = 64;

/// Longer is an endless loop.
pub const LONGEST: Duration = Duration::from_secs(20);

/// The system's allocator, counted.
#[derive(Debug)]
pub struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static PANICS: AtomicUsize = AtomicUsize::new(0);
static RUNNING: Mutex<Option<(Instant, String, Vec<u8>)>> = Mutex::new(None);

static QUIET: AtomicBool = AtomicBool::new(false);

/// Panics are counted and not printed from now on.
pub fn be_quiet(yes: bool) {
    QUIET.store(yes, Ordering::Relaxed);
}

/// True if panics are not printed.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

fn grown(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call is handed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// What a run took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub bytes: usize,
    pub time: Duration,
}

/// Begins to count panics and to wait for runs that do not end.
pub fn begin() {
    set_hook(Box::new(|panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        if !is_quiet() {
            eprintln!("{panic}\n{}", std::backtrace::Backtrace::force_capture());
        }
    }));
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let running = RUNNING.lock().expect("no panic while it is held");
            if let Some((since, target, input)) = &*running
                && since.elapsed() > LONGEST
            {
                save(target, input);
                eprintln!("{target}: no end after {LONGEST:?}");
                std::process::exit(1);
            }
        }
    });
}

/// Runs one input. The error says what it must not have done.
pub fn run(target: &Target, input: &[u8]) -> Result<Cost, String> {
    let cost = guarded(target.name, input, || target.run(input))?;
    let allowed = FIXED_BYTES + BYTES_PER_BYTE * input.len();
    if cost.bytes > allowed {
        return Err(format!("took {} bytes of memory, {allowed} are allowed", cost.bytes));
    }
    Ok(cost)
}

/// Does the work of an input: it must end, and no thread may panic.
pub fn guarded(name: &str, input: &[u8], work: impl FnOnce()) -> Result<Cost, String> {
    *RUNNING.lock().expect("no panic while it is held") =
        Some((Instant::now(), name.into(), input.to_vec()));
    let (before, panics) = (LIVE.load(Ordering::Relaxed), PANICS.load(Ordering::Relaxed));
    PEAK.store(before, Ordering::Relaxed);
    let started = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(work));
    let cost = Cost {
        bytes: PEAK.load(Ordering::Relaxed).saturating_sub(before),
        time: started.elapsed(),
    };
    *RUNNING.lock().expect("no panic while it is held") = None;
    match outcome.is_err() || PANICS.load(Ordering::Relaxed) > panics {
        true => Err("panicked".into()),
        false => Ok(cost),
    }
}

/// Keeps an input that failed; returns its path.
pub fn save(target: &str, input: &[u8]) -> String {
    let name = format!("{target}-{:08x}", crate::seal::masked(&[input]));
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/artifacts");
    let path = format!("{directory}/{name}");
    let _ = std::fs::create_dir_all(directory);
    match std::fs::write(&path, input) {
        Ok(()) => path,
        Err(error) => format!("{path}, which could not be written: {error}"),
    }
}
