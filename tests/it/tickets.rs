//! Tickets resolve after the sync that covers them, never before: under every crash and failing
//! call, with writers beside the sync, and whatever becomes of the ticket and the database.

use crate::support::gate::{Gate, GateEnv, OpensOnDrop, Stops};
use crate::support::rng::Rng;
use crate::support::run::MODELS;
use crate::support::stores::{HOME, as_env, open, scan, small_options, until};
use siftdb::env::testing::{Calls, CrashModel, EIO, ENOSPC, Fault, FaultEnv, FaultKind};
use siftdb::env::{Env, EnvLayer, MemEnv, WritableFile};
use siftdb::{Db, Error, Event, Options, SyncTicket, WriteOptions};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, Weak, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

fn open_on(env: Arc<dyn Env>, options: &Options) -> Db {
    options.clone().env(env).open(HOME).unwrap()
}

/// A database whose syncs stop at the gate.
fn gated() -> (MemEnv, Gate, Db) {
    let (disk, gate) = (MemEnv::with_log(), Gate::default());
    let env = Arc::new(GateEnv::new(as_env(&disk), &gate));
    let db = open_on(env, &small_options());
    db.put("first", "v").unwrap();
    (disk, gate, db)
}

/// Counts how often it is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Any executor may have it.
fn assert_any_executor<T: Send + Sync + Unpin + 'static>(_: &T) {}

fn poll(ticket: &mut SyncTicket, wakes: &Arc<Wakes>) -> Poll<siftdb::Result<()>> {
    let waker = Waker::from(Arc::clone(wakes));
    Pin::new(ticket).poll(&mut Context::from_waker(&waker))
}

/// What a power cut now would leave.
fn durable(disk: &MemEnv) -> BTreeMap<Vec<u8>, Vec<u8>> {
    scan(&open(&disk.power_cut(), &small_options()).unwrap()).unwrap()
}

#[test]
fn writers_and_readers_go_on_during_syncs() {
    let (disk, gate, db) = gated();
    let _open = OpensOnDrop([&gate]);
    gate.shut(Stops::SyncsOf(".wal"));
    let wakes = Arc::default();
    let mut first = db.sync_ticket();
    assert_any_executor(&first);
    gate.wait_for_a_call();
    // Visible at once, and acknowledged although the disk is busy.
    db.put("second", "v").unwrap();
    assert_eq!(db.get("second").unwrap().unwrap(), "v");
    let mut second = db.sync_ticket();
    assert!(poll(&mut first, &wakes).is_pending() && poll(&mut second, &wakes).is_pending());
    assert!(durable(&disk).is_empty());
    gate.open();
    second.wait().unwrap();
    assert_eq!(durable(&disk).len(), 2);
    assert!(matches!(poll(&mut first, &wakes), Poll::Ready(Ok(()))), "rounds resolve in order");
    assert_eq!(db.stats().wal_syncs, 2, "the first sync does not cover the second write");
    db.close().unwrap();
}

#[test]
fn tickets_taken_during_a_sync_share_the_next() {
    let (_, gate, db) = gated();
    let _open = OpensOnDrop([&gate]);
    gate.shut(Stops::SyncsOf(".wal"));
    let mut tickets = vec![db.sync_ticket()];
    gate.wait_for_a_call();
    for n in 0..50u8 {
        db.put([n], "v").unwrap();
        tickets.push(db.sync_ticket());
    }
    gate.open();
    tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
    assert_eq!(db.stats().wal_syncs, 2);
    db.sync_ticket().wait().unwrap();
    assert_eq!(db.stats().wal_syncs, 2, "all is synced already");
}

/// The memtable is switched between a write and its ticket, and while the ticket is synced. No
/// flush ends in that time, so the writes are in logs alone.
#[test]
fn a_log_switch_before_the_sync_is_covered() {
    let (disk, [gate, tables]) = (MemEnv::new(), [Gate::default(), Gate::default()]);
    let env = Arc::new(GateEnv::new(as_env(&disk), &gate));
    let options = small_options().immutable_memtables_max(4);
    let db = open_on(Arc::new(GateEnv::new(env, &tables)), &options);
    let _open = OpensOnDrop([&gate, &tables]);
    gate.shut(Stops::SyncsOf(".wal"));
    tables.shut(Stops::SyncsOf(".sst"));
    let fill = |name: &str, switches: u64| {
        let mut written = 0;
        while db.stats().log_switches < switches {
            db.put(format!("{name} {written:03}"), [7; 1000]).unwrap();
            written += 1;
        }
        written
    };
    let before = fill("before", 1);
    let ticket = db.sync_ticket();
    gate.wait_for_a_call();
    let beside = fill("beside", 2);
    let later = db.sync_ticket();
    gate.open();
    let first = |name: &str, count: usize, found: &BTreeMap<Vec<u8>, Vec<u8>>| {
        (0..count).all(|n| found.contains_key(format!("{name} {n:03}").as_bytes()))
    };
    ticket.wait().unwrap();
    assert!(first("before", before, &durable(&disk)));
    later.wait().unwrap();
    assert!(first("before", before, &durable(&disk)) && first("beside", beside, &durable(&disk)));
    tables.open();
    db.close().unwrap();
    drop(db);
    assert_eq!(scan(&open(&disk, &small_options()).unwrap()).unwrap().len(), before + beside);
}

/// The sync is done, but has not returned, when the log gets further writes and ends.
#[test]
fn writes_beside_a_sync_need_the_next() {
    let (disk, [gate, tables]) = (MemEnv::new(), [Gate::default(), Gate::default()]);
    let env = Arc::new(GateEnv::new(as_env(&disk), &gate));
    let options = small_options().immutable_memtables_max(4);
    let db = open_on(Arc::new(GateEnv::new(env, &tables)), &options);
    let _open = OpensOnDrop([&gate, &tables]);
    gate.shut(Stops::SyncedOf(".wal"));
    tables.shut(Stops::SyncsOf(".sst"));
    db.put("before", "v").unwrap();
    let ticket = db.sync_ticket();
    gate.wait_for_a_call();
    let mut written = 1;
    while db.stats().log_switches == 0 {
        db.put(format!("beside {written:03}"), [7; 1000]).unwrap();
        written += 1;
    }
    let later = db.sync_ticket();
    gate.open();
    ticket.wait().unwrap();
    later.wait().unwrap();
    assert_eq!(durable(&disk).len(), written);
    tables.open();
    db.close().unwrap();
}

/// What resolved, by the calls that the disk had seen by then.
type Resolved = Arc<Mutex<Vec<(Vec<u8>, usize)>>>;

/// Threads that write and take tickets, beside flushes and other syncs, on a disk that logs its
/// calls. Each ticket notes when it resolved.
fn ticket_run(seed: u64) -> (MemEnv, Resolved) {
    let (disk, resolved) = (MemEnv::with_log(), Resolved::default());
    let db = open(&disk, &small_options()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (db, disk, resolved) = (&db, &disk, &resolved);
            scope.spawn(move || {
                let mut rng = Rng::new(seed * 3 + thread);
                for n in 0..40 {
                    let key = format!("{thread} {n:02}").into_bytes();
                    let sync = WriteOptions::new().sync(rng.chance(5));
                    db.put_with(&key, vec![n; *rng.pick(&[1, 300, 4000])], &sync).unwrap();
                    if rng.chance(60) {
                        let (resolved, disk) = (Arc::clone(resolved), disk.clone());
                        db.sync_ticket().on_done(move |synced| {
                            synced.unwrap();
                            resolved.lock().unwrap().push((key, disk.log_len()));
                        });
                    }
                    match rng.below(20) {
                        0 => db.flush().unwrap(),
                        1 => db.sync().unwrap(),
                        2 => db.sync_ticket().wait().unwrap(),
                        3 => drop(db.sync_ticket()),
                        _ => {}
                    }
                }
            });
        }
    });
    match seed % 2 {
        0 => db.close().unwrap(),
        _ => drop(db),
    }
    (disk, resolved)
}

/// The crash test has tickets too; this one has many at once and knows when each resolved.
#[test]
fn no_crash_loses_a_resolved_write() {
    let mut checked = 0;
    for seed in 0..4 {
        let (disk, resolved) = ticket_run(seed);
        let resolved = resolved.lock().unwrap();
        let mut rng = Rng::new(seed);
        let mut walk = disk.walk_log();
        for call in 0..=disk.log_len() {
            walk.advance_to(call);
            let promised = resolved.iter().filter(|(_, at)| *at <= call);
            // Right after a ticket resolved, and now and then.
            if !resolved.iter().any(|(_, at)| *at == call) && !rng.chance(5) {
                continue;
            }
            for (model, seed) in [(CrashModel::Posix, 0), (*rng.pick(&MODELS), rng.next())] {
                let left = scan(&open(&walk.crash(model, seed), &small_options()).unwrap());
                let left = left.unwrap();
                for (key, at) in promised.clone() {
                    let key_text = key.escape_ascii();
                    assert!(left.contains_key(key), "{key_text} of {at}, {model:?} at {call}");
                    checked += 1;
                }
            }
        }
        assert!(resolved.len() > 20, "only {} tickets", resolved.len());
    }
    println!("{checked} promises kept");
}

/// Every call fails once. A ticket whose sync failed says so, and no later one resolves as if
/// nothing had happened.
#[test]
fn any_failing_call_fails_the_covered_tickets() {
    let (mut failed, mut fired_last, mut n) = (0, 0, 0);
    let kinds = [FaultKind::Error(EIO), FaultKind::ErrorAfter(EIO), FaultKind::Error(ENOSPC)];
    while n < fired_last + 12 {
        for kind in kinds {
            let (disk, place) = (MemEnv::with_log(), format!("{kind:?} at call {n}"));
            let faulty = FaultEnv::new(as_env(&disk));
            faulty.fail_at(n, Fault::once(kind).among(Calls::Changes));
            let options = small_options().auto_compaction(false);
            let Ok(db) = options.clone().env(Arc::new(faulty.clone())).open(HOME) else {
                fired_last = n;
                continue;
            };
            let (mut synced, mut refused) = (Vec::new(), false);
            for step in 0..30u8 {
                let written = db.put([step], vec![step; 3000]);
                let ticket = db.sync_ticket();
                // Some tickets wait together.
                let more = (step % 3 == 0).then(|| db.sync_ticket());
                let results = [Some(ticket), more].into_iter().flatten().map(SyncTicket::wait);
                for result in results {
                    match (&written, result) {
                        (Ok(()), Ok(())) => {
                            assert!(!refused, "{place}: resolved after a failure");
                            synced.push(step);
                        }
                        (Err(_), Ok(())) => panic!("{place}: nothing was written"),
                        (_, Err(Error::ReadOnly { .. } | Error::Io { .. })) => refused = true,
                        (_, Err(error)) => panic!("{place}: {error}"),
                    }
                }
            }
            if refused {
                assert!(db.put("later", "v").is_err(), "{place}: it takes writes");
                assert!(db.close().is_err(), "{place}: it is closed as if nothing had happened");
                failed += 1;
            }
            if faulty.has_fired() {
                fired_last = n;
            }
            drop(db);
            for model in [CrashModel::Kill, CrashModel::Posix] {
                let left = disk.replay(disk.log_len(), model, 0);
                let left = scan(&open(&left, &small_options()).unwrap()).unwrap();
                let lost = synced.iter().find(|step| !left.contains_key(&[**step][..]));
                assert_eq!(lost, None, "{place}, {model:?}");
            }
        }
        n += 1;
    }
    assert!(failed > 60, "only {failed} failures");
}

/// A system reports the loss of a page to one sync only. The other sync of that moment must not
/// take that for a success.
#[test]
fn a_failed_sync_fails_the_sync_beside_it() {
    let (disk, gate) = (MemEnv::new(), Gate::default());
    let faulty = FaultEnv::new(as_env(&disk));
    let env = Arc::new(GateEnv::new(Arc::new(faulty.clone()), &gate));
    let db = open_on(env, &small_options());
    db.put("k", "v").unwrap();
    let syncs = Calls::Named("sync_data");
    faulty.fail_at(faulty.calls_of(syncs), Fault::once(FaultKind::Error(EIO)).among(syncs));
    let _open = OpensOnDrop([&gate]);
    gate.shut(Stops::SyncsOf(".wal"));
    let ticket = db.sync_ticket();
    gate.wait_for_a_call();
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| db.sync());
        // Without turns it would come to the gate as well.
        for _ in 0..2000 {
            std::thread::yield_now();
        }
        gate.open();
        assert!(beside.join().unwrap().is_err());
    });
    let said = ticket.wait().unwrap_err().to_string();
    let Err(Error::ReadOnly { cause }) = db.sync_ticket().wait() else { panic!() };
    assert_eq!(cause.to_string(), said);
    assert_eq!(faulty.changes().iter().filter(|call| call.operation == "sync_data").count(), 1);
}

/// Only the waker of the last poll is woken, once, and none of a dropped ticket.
#[test]
fn each_ticket_wakes_its_last_poller_once() {
    let (_, gate, db) = gated();
    let _open = OpensOnDrop([&gate]);
    gate.shut(Stops::SyncsOf(".wal"));
    let [moved_from, moved_to, other, dropped] = [(); 4].map(|()| Arc::new(Wakes::default()));
    let [mut moved, mut own, mut gone] = [(); 3].map(|()| db.sync_ticket());
    for _ in 0..3 {
        assert!(poll(&mut moved, &moved_from).is_pending());
        assert!(poll(&mut own, &other).is_pending() && poll(&mut gone, &dropped).is_pending());
    }
    assert!(poll(&mut moved, &moved_to).is_pending());
    let kept = Arc::downgrade(&dropped);
    drop((gone, dropped));
    assert_eq!(Weak::strong_count(&kept), 0, "its task could not end");
    assert_eq!(Arc::strong_count(&moved_from), 1);
    gate.open();
    // The first may be told before those of its round. All of them are before the second.
    db.sync_ticket().wait().unwrap();
    db.sync_ticket().wait().unwrap();
    assert_eq!((moved_from.count(), moved_to.count(), other.count()), (0, 1, 1));
    for _ in 0..3 {
        assert!(matches!(poll(&mut moved, &moved_from), Poll::Ready(Ok(()))));
    }
    assert!(matches!(own.wait(), Ok(())), "after it was polled");
    assert_eq!(Arc::strong_count(&moved_to), 1, "no waker is kept");
}

/// A waker that panics, and drops what holds another ticket of the same round.
struct Rude(#[expect(dead_code, reason = "dropped with it")] Mutex<Option<SyncTicket>>);

impl Wake for Rude {
    fn wake(self: Arc<Self>) {
        panic!("on purpose");
    }
}

/// What a panic carries, whose drop panics as well.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("on purpose, too");
    }
}

#[test]
fn panics_of_waiters_harm_no_other() {
    let (_, gate, db) = gated();
    let _open = OpensOnDrop([&gate]);
    gate.shut(Stops::SyncsOf(".wal"));
    let mut rude = db.sync_ticket();
    let mut held = db.sync_ticket();
    assert!(poll(&mut held, &Arc::default()).is_pending());
    let waker = Waker::from(Arc::new(Rude(Mutex::new(Some(held)))));
    assert!(Pin::new(&mut rude).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    db.sync_ticket().on_done(|_| std::panic::panic_any(PanicsOnDrop));
    let (sender, calls) = mpsc::channel();
    for n in 0..4 {
        let sender = sender.clone();
        db.sync_ticket().on_done(move |synced| {
            sender.send((n, synced.is_ok())).unwrap();
            assert!(n % 2 == 0, "on purpose");
        });
    }
    gate.open();
    rude.wait().unwrap();
    db.put("k", "v").unwrap();
    db.sync_ticket().wait().unwrap();
    drop(sender);
    assert_eq!(calls.iter().collect::<Vec<_>>(), [(0, true), (1, true), (2, true), (3, true)]);
    db.close().unwrap();
}

#[test]
fn callbacks_may_write_and_take_tickets() {
    let disk = MemEnv::new();
    let db = open(&disk, &small_options()).unwrap();
    let (sender, done) = mpsc::channel();
    let own = db.clone();
    db.put("0", "v").unwrap();
    db.sync_ticket().on_done(move |synced| {
        synced.unwrap();
        own.put("1", "v").unwrap();
        let ticket = own.sync_ticket();
        ticket.on_done(move |synced| sender.send(synced).unwrap());
    });
    done.recv().unwrap().unwrap();
    assert_eq!(durable(&disk).len(), 2);
    db.close().unwrap();
}

/// The listener waits for a ticket that is resolved after the callback which closes.
#[test]
fn a_close_in_a_callback_does_not_wait_for_the_listener() {
    let (disk, gate) = (MemEnv::new(), Gate::default());
    let env: Arc<dyn Env> = Arc::new(GateEnv::new(as_env(&disk), &gate));
    let _open = OpensOnDrop([&gate]);
    let (give, given) = mpsc::channel::<Db>();
    let (waits, is_waiting) = mpsc::channel();
    let (resolved, has_resolved) = mpsc::channel();
    let given = Mutex::new(given);
    let listener = move |event: &Event| {
        if !matches!(event, Event::FlushEnded { .. }) {
            return;
        }
        let ticket = given.lock().unwrap().recv().unwrap().sync_ticket();
        waits.send(()).unwrap();
        let _ = resolved.send(ticket.wait().is_ok());
    };
    let options = small_options().env(env).event_listener(Arc::new(listener));
    let db = options.open(HOME).unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    db.put("l", "v").unwrap();
    gate.shut(Stops::SyncsOf(".wal"));
    let (own, (sender, closed)) = (db.clone(), mpsc::channel());
    db.sync_ticket().on_done(move |_| sender.send(own.close()).unwrap());
    gate.wait_for_a_call();
    give.send(db).unwrap();
    is_waiting.recv().unwrap();
    gate.open();
    closed.recv_timeout(Duration::from_secs(60)).expect("the close ends").unwrap();
    assert!(has_resolved.recv_timeout(Duration::from_secs(60)).expect("the ticket resolves"));
}

/// The log that it syncs is full; a `resume` puts its writes into tables. Then the sync fails.
#[test]
fn a_sync_that_fails_after_a_resume_harms_nothing() {
    let (disk, gate) = (MemEnv::new(), Gate::default());
    let faulty = FaultEnv::new(as_env(&disk));
    let db = open_on(Arc::new(GateEnv::new(Arc::new(faulty.clone()), &gate)), &small_options());
    let _open = OpensOnDrop([&gate]);
    db.put("k", "v").unwrap();
    gate.shut(Stops::SyncsOf(".wal"));
    let ticket = db.sync_ticket();
    gate.wait_for_a_call();
    let writes = Calls::Named("write_at");
    let full = Fault::from_then_on(FaultKind::Error(ENOSPC)).among(writes);
    faulty.fail_at(faulty.calls_of(writes), full);
    db.put("refused", "v").unwrap_err();
    faulty.heal();
    db.resume().unwrap();
    let syncs = Calls::Named("sync_data");
    faulty.fail_at(faulty.calls_of(syncs), Fault::once(FaultKind::Error(EIO)).among(syncs));
    gate.open();
    ticket.wait().unwrap();
    db.put("accepted", "v").unwrap();
    db.close().unwrap();
    let left = scan(&open(&disk, &small_options()).unwrap()).unwrap();
    assert_eq!(left.keys().collect::<Vec<_>>(), [&b"accepted"[..], b"k"]);
}

/// Known at once: the callback runs here.
#[test]
fn refused_tickets_have_resolved() {
    let disk = MemEnv::new();
    let db = open(&disk, &small_options()).unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    let here = std::thread::current().id();
    let called = Arc::new(AtomicBool::new(false));
    let note = Arc::clone(&called);
    db.sync_ticket().on_done(move |result| {
        assert!(matches!(result, Err(Error::Closed)));
        note.store(std::thread::current().id() == here, Ordering::SeqCst);
    });
    assert!(called.load(Ordering::SeqCst));
    drop(db);
    let db = small_options().env(as_env(&disk)).open_read_only(HOME).unwrap();
    assert!(matches!(db.sync_ticket().wait(), Err(Error::OpenedReadOnly)));
}

/// The sync of a close covers what waits, and so does that of the last drop.
#[test]
fn a_close_or_drop_resolves_every_ticket() {
    for close in [true, false] {
        let (disk, gate, db) = gated();
        let _open = OpensOnDrop([&gate]);
        gate.shut(Stops::SyncsOf(".wal"));
        let mut tickets = vec![db.sync_ticket()];
        gate.wait_for_a_call();
        for n in 0..10u8 {
            db.put([n], "v").unwrap();
            tickets.push(db.sync_ticket());
        }
        std::thread::scope(|scope| {
            scope.spawn(move || match close {
                true => db.close().unwrap(),
                false => drop(db),
            });
            gate.open();
            let results = tickets.drain(..).map(SyncTicket::wait);
            results.for_each(|result| result.unwrap());
        });
        assert_eq!(durable(&disk).len(), 11);
    }
}

#[test]
fn a_failed_close_fails_every_ticket() {
    let (disk, gate) = (MemEnv::new(), Gate::default());
    let faulty = FaultEnv::new(as_env(&disk));
    let db = open_on(Arc::new(GateEnv::new(Arc::new(faulty.clone()), &gate)), &small_options());
    db.put("k", "v").unwrap();
    let _open = OpensOnDrop([&gate]);
    gate.shut(Stops::SyncsOf(".wal"));
    let first = db.sync_ticket();
    gate.wait_for_a_call();
    db.put("l", "v").unwrap();
    let second = db.sync_ticket();
    faulty.fail_at(0, Fault::from_then_on(FaultKind::Error(EIO)).among(Calls::Changes));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            db.close().unwrap_err();
            assert!(matches!(db.close(), Err(Error::ReadOnly { .. })), "it tells again");
        });
        gate.open();
        assert!(matches!(first.wait(), Err(Error::Io { op: "sync", .. })));
        assert!(matches!(second.wait(), Err(Error::ReadOnly { .. })));
    });
}

/// The callback has the last handle: the thread that it runs on cannot wait for itself.
#[test]
fn the_last_handle_may_go_in_a_callback() {
    for close in [true, false] {
        let (disk, gate, db) = gated();
        let _open = OpensOnDrop([&gate]);
        gate.shut(Stops::SyncsOf(".wal"));
        let (first, last) = (db.sync_ticket(), db.sync_ticket());
        gate.wait_for_a_call();
        db.put("later", "v").unwrap();
        let waits = db.sync_ticket();
        first.on_done(move |synced| {
            synced.unwrap();
            if close {
                db.close().unwrap();
            }
            drop(db);
        });
        gate.open();
        last.wait().unwrap();
        waits.wait().unwrap();
        // Closed and unlocked.
        until("unlocked", || open(&disk, &small_options()).is_ok());
        assert_eq!(durable(&disk).len(), 2);
    }
}

/// Both close: one of them waits for the other, and the callback must not.
#[test]
fn a_close_beside_that_of_a_callback_ends() {
    for _ in 0..50 {
        let disk = MemEnv::new();
        let db = open(&disk, &small_options()).unwrap();
        db.put("k", "v").unwrap();
        let (own, both) = (db.clone(), Arc::new(Barrier::new(2)));
        let (meets, closed) = (Arc::clone(&both), Arc::new(Mutex::new(None)));
        let note = Arc::clone(&closed);
        let ticket = db.sync_ticket();
        // In a thread of its own: a sync that is over calls back at once.
        let registered = std::thread::spawn(move || {
            ticket.on_done(move |_| {
                meets.wait();
                *note.lock().unwrap() = Some(own.close());
            });
        });
        both.wait();
        let here = db.close();
        drop(db);
        until("the callback ended", || closed.lock().unwrap().is_some());
        registered.join().unwrap();
        let there = closed.lock().unwrap().take().unwrap();
        // The callback must not wait for the close that waits for it.
        let there_is_fine = matches!(there, Ok(()) | Err(Error::Closed));
        assert!(here.is_ok() && there_is_fine, "{here:?}, {there:?}");
        until("unlocked", || open(&disk, &small_options()).is_ok());
    }
}

/// An Env whose files have one handle only, as that of a user may.
#[derive(Debug)]
struct OneHandleEnv(MemEnv);

#[derive(Debug)]
struct OneHandle(Box<dyn WritableFile>);

impl EnvLayer for OneHandleEnv {
    fn inner(&self) -> &dyn Env {
        &self.0
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        Ok(Box::new(OneHandle(self.0.create_new(path)?)))
    }
}

impl WritableFile for OneHandle {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }

    fn allocate_zeroed(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        self.0.allocate_zeroed(offset, bytes)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }
}

#[test]
fn files_with_one_handle_are_synced_too() {
    let disk = MemEnv::new();
    let db = open_on(Arc::new(OneHandleEnv(disk.clone())), &small_options());
    for n in 0..100u8 {
        db.put([n], [n; 2000]).unwrap();
        db.sync_ticket().wait().unwrap();
        assert!(open(&disk.power_cut(), &small_options()).unwrap().get([n]).unwrap().is_some());
    }
    db.close().unwrap();
}
