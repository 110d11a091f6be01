//! What a program sees of its database: events while it runs, and figures for Prometheus.
//!
//! The listener gets an event for each flush, compaction, stall, new or removed table and failure,
//! in a thread of its own, so only a close waits for it. `Stats::to_openmetrics` is what a program
//! answers to a request of `/metrics`.
//!
//! ```console
//! $ cargo run --example metrics
//! ```

use siftdb::{Event, EventListener, Options};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Prints events, and adds up for how long writes were stopped.
#[derive(Default)]
struct Log {
    stalled_micros: AtomicU64,
}

impl EventListener for Log {
    fn on_event(&self, event: &Event) {
        match event {
            Event::StallEnded { duration, .. } => {
                self.stalled_micros.fetch_add(duration.as_micros() as u64, Ordering::Relaxed);
            }
            Event::BackgroundError { error, .. } => eprintln!("the database is read-only: {error}"),
            event => println!("{event:?}"),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("siftdb-metrics-{}", std::process::id()));
    let log = Arc::new(Log::default());
    let db = Options::new()
        .event_listener(Arc::clone(&log) as Arc<dyn EventListener>)
        .latency_histograms(true)
        .write_buffer_bytes(64 << 10)
        .open(&directory)?;
    for round in 0..4 {
        for n in 0..1000 {
            db.put(format!("user/{n:04}"), format!("visit {round}"))?;
        }
        db.flush()?;
    }
    db.compact_range(..)?;
    for n in 0..2000 {
        db.get(format!("user/{n:04}"))?;
    }
    let stats = db.stats();
    let micros = |share| stats.latency("get", share).map_or(0.0, |time| time.as_secs_f64() * 1e6);
    println!("gets: half within {:.1} us, 99 % within {:.1} us", micros(0.5), micros(0.99));
    let text = stats.to_openmetrics();
    let is_shown = |line: &&str| line.contains("siftdb_gets") || line.contains("_negatives");
    text.lines().filter(is_shown).for_each(|line| println!("{line}"));
    // Returns after the listener got every event.
    db.close()?;
    println!("writes were stopped for {} us", log.stalled_micros.load(Ordering::Relaxed));
    drop(db);
    siftdb::Db::destroy(&directory)?;
    Ok(std::fs::remove_dir(&directory)?)
}
