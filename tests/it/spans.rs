//! The spans that the feature `tracing` makes: their names, nesting and fields.
//!
//! The subscriber is that of the whole process, because workers have spans, too. Tests in other
//! threads report to it; each span has the directory, which tells them apart.

use crate::events::slowed_down;
use crate::support::data::{bytes, key};
use crate::support::gate::{Gate, GateEnv, OpensOnDrop, Stops};
use crate::support::stores::{as_env, small_options};
use siftdb::Options;
use siftdb::env::MemEnv;
use siftdb::env::testing::{Calls, EIO, Fault, FaultEnv, FaultKind};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A span: its name, that of the span around it, and its fields.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    within: Option<&'static str>,
    fields: BTreeMap<&'static str, String>,
    has_ended: bool,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

/// Keeps every span of siftdb.
struct Spans {
    seen: &'static Mutex<BTreeMap<u64, Seen>>,
    next: AtomicU64,
}

thread_local!(static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) });

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "siftdb"
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut seen = self.seen.lock().unwrap();
        let parent = ENTERED.with_borrow(|entered| entered.last().copied());
        let within = parent.and_then(|parent| seen.get(&parent)).map(|parent| parent.name);
        let mut span = Seen { name: attributes.metadata().name(), within, ..Seen::default() };
        attributes.record(&mut span);
        seen.insert(id, span);
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        values.record(self.seen.lock().unwrap().get_mut(&id.into_u64()).unwrap());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(id.into_u64()));
    }

    fn exit(&self, id: &Id) {
        let left = ENTERED.with_borrow_mut(Vec::pop);
        assert_eq!(left, Some(id.into_u64()), "spans are left in order");
    }

    fn try_close(&self, id: Id) -> bool {
        self.seen.lock().unwrap().get_mut(&id.into_u64()).unwrap().has_ended = true;
        true
    }
}

/// The spans of the process so far.
fn all_spans() -> &'static Mutex<BTreeMap<u64, Seen>> {
    static SEEN: OnceLock<&'static Mutex<BTreeMap<u64, Seen>>> = OnceLock::new();
    SEEN.get_or_init(|| {
        let seen: &'static Mutex<_> = Box::leak(Box::default());
        let spans = Spans { seen, next: AtomicU64::new(1) };
        tracing::subscriber::set_global_default(spans).unwrap();
        seen
    })
}

/// True for the span of a writer that waits for a flush.
fn stops_writes(span: &Seen) -> bool {
    span.fields.get("cause").is_some_and(|cause| cause == "\"memtable\"")
}

#[test]
fn long_work_is_in_spans() {
    let (spans, directory) = (all_spans(), "/traced");
    let (disk, gate) = (MemEnv::new(), Gate::default());
    let env = Arc::new(GateEnv::new(as_env(&disk), &gate));
    let _opens = OpensOnDrop([&gate]);
    let options = small_options().env(env).auto_compaction(false).immutable_memtables_max(1);
    let db = options.clone().open(directory).unwrap();
    // A writer that waits for a flush.
    gate.shut(Stops::SyncsOf(".sst"));
    let put = |n: usize| db.put(key(n % 5), bytes(n as u64, 30_000)).unwrap();
    (0..4).for_each(put);
    gate.wait_for_a_call();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (4..7).for_each(put));
        let stalls = || {
            let seen = spans.lock().unwrap();
            let mut seen = seen.values();
            seen.any(|span| span.fields["directory"] == directory && stops_writes(span))
        };
        crate::support::stores::until("stalled", stalls);
        gate.open();
        writer.join().unwrap();
    });
    db.flush().unwrap();
    db.compact_range(..).unwrap();
    assert!(db.verify(|_| {}).unwrap().is_sound());
    db.put("key", "value").unwrap();
    db.close().unwrap();
    drop(db);
    options.clone().open_read_only(directory).unwrap();
    options.repair(directory).unwrap();
    let spans: Vec<Seen> = spans.lock().unwrap().values().cloned().collect();
    let mine: Vec<_> = spans.iter().filter(|span| span.fields["directory"] == directory).collect();
    assert!(mine.iter().all(|span| span.has_ended), "{mine:#?}");
    let of = |name: &str| mine.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let named = ["open", "recovery", "flush", "compaction", "stall", "verify", "repair"];
    for name in named {
        assert!(!of(name).is_empty(), "no span {name}: {mine:#?}");
    }
    assert!(mine.iter().all(|span| named.contains(&span.name)));
    assert_eq!(of("open").len(), 2);
    let recovery = of("recovery")[0];
    assert_eq!((recovery.within, &*recovery.fields["entries"]), (Some("open"), "1"));
    assert!(mine.iter().any(|span| stops_writes(span)), "{mine:#?}");
    let flushed = |span: &&&&Seen| span.fields["bytes"].parse::<u64>().unwrap() > 30_000;
    assert!(of("flush").iter().filter(flushed).count() >= 2, "{mine:#?}");
    let compaction = of("compaction")[0];
    assert_eq!(compaction.fields["keyspace"], "\"default\"");
    let [from, to, entries] = ["input_level", "output_level", "entries"];
    assert_eq!([from, to, entries].map(|field| &*compaction.fields[field]), ["0", "1", "5"]);
}

/// The spans of a database so far.
fn spans_in(directory: &str) -> Vec<Seen> {
    let seen = all_spans().lock().unwrap();
    seen.values().filter(|span| span.fields["directory"] == directory).cloned().collect()
}

#[test]
fn failed_jobs_leave_their_spans() {
    all_spans();
    let (directory, faults) = ("/failed", FaultEnv::new(as_env(&MemEnv::new())));
    let db = small_options().env(Arc::new(faults.clone())).open(directory).unwrap();
    db.put("key", "value").unwrap();
    let fault = Fault::from_then_on(FaultKind::Error(EIO)).among(Calls::Named("sync_all"));
    faults.fail_at(0, fault);
    assert!(db.flush().is_err() && faults.has_fired());
    drop(db);
    let spans = spans_in(directory);
    assert!(spans.iter().all(|span| span.has_ended), "{spans:#?}");
    let failed = spans.iter().find(|span| span.name == "flush").unwrap();
    assert!(!failed.fields.contains_key("tables"), "{spans:#?}");
}

#[test]
fn slowdowns_are_spans_of_stalls() {
    all_spans();
    let (directory, disk) = ("/slowed", MemEnv::new());
    let opened = |options: Options| options.env(as_env(&disk)).open(directory).unwrap();
    let (db, filter) = slowed_down(opened);
    filter.open();
    db.close().unwrap();
    let slowed = |span: &Seen| span.fields.get("cause").is_some_and(|c| c == "\"slowdown\"");
    let spans = spans_in(directory).into_iter().filter(slowed).count() as u64;
    assert_eq!(spans, db.stats().slowdowns);
}
