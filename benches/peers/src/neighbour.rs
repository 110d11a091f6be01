//! A neighbour on the same machine: a thread that keeps the processor's shared cache busy.
//!
//! Stores differ in how many cache lines a lookup touches that are in no cache. On a quiet machine
//! a large shared cache hides that. The neighbour writes lines of an array in no order, in the
//! first process, for as long as the run measures. So the workers find their data in memory.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, spawn};

/// Words of a cache line.
const LINE_WORDS: usize = 8;

/// The thread, until it is dropped.
pub struct Neighbour {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbour {
    /// A neighbour with an array of `megabytes`.
    pub fn start(megabytes: usize) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&end);
        let thread = spawn(move || {
            let lines = (megabytes << 20) / (8 * LINE_WORDS);
            let mut array = vec![[1u64; LINE_WORDS]; lines.max(1)];
            let mut state = 1u64;
            while !seen.load(Ordering::Relaxed) {
                // No address depends on a loaded value, so the processor loads many lines at once.
                for _ in 0..4096 {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    let line = (u128::from(state) * array.len() as u128) >> 64;
                    array[line as usize][0] += 1;
                }
                black_box(&mut array);
            }
        });
        Neighbour { end, thread: Some(thread) }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        // It ends at its next look at `end`; a panic of it would be a bug of this file alone.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
