//! Strict serializability: the reads, writes and transactions of four threads, while tables are
//! flushed, compacted and removed, could have happened one after the other.
//!
//! A run opens a database and records several histories on it, so that later ones start from what
//! earlier ones left. Every operation is stamped at its begin and end (`support/recorder.rs`).
//! After each history everything is read once more. Short histories are checked by a search for an
//! order (`support/linearizability.rs`), long ones by what follows from their answers
//! (`support/serializability.rs`).
//!
//! The seed decides options and operations and not the schedule, so a failure may need many runs of
//! its seed to occur again.

use crate::support::filters::all_filters;
use crate::support::linearizability::{Action, History, Operation, State};
use crate::support::mirror::Mirror;
use crate::support::recorder::{LIVES, Lives, OTHER, PASSING, Recorder};
use crate::support::restless::RestlessEnv;
use crate::support::rng::{Rng, seeds, setting};
use crate::support::serializability;
use crate::support::stores::{HOME, any_block_settings, scan, small_options};
use siftdb::env::{DiskEnv, Env, MemEnv};
use siftdb::{Db, Keyspace, Options};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

const THREADS: usize = 4;

/// Operations of one thread in one history.
const OPERATIONS: usize = 26;

/// Operations of one thread in one long history.
const LONG_OPERATIONS: usize = 500;

/// Histories of one run.
const HISTORIES: usize = 10;

/// What a run came to.
#[derive(Debug, Default)]
struct Figures {
    histories: usize,
    operations: usize,
    overlapping: usize,
    flushes: u64,
    compactions: u64,
    tables_removed: u64,
    creations: usize,
    refused: usize,
    ranges: usize,
    loads: usize,
    transactions: usize,
    conflicts: usize,
}

impl Figures {
    fn add(&mut self, other: &Figures) {
        self.histories += other.histories;
        self.operations += other.operations;
        self.overlapping += other.overlapping;
        self.flushes += other.flushes;
        self.compactions += other.compactions;
        self.tables_removed += other.tables_removed;
        self.creations += other.creations;
        self.refused += other.refused;
        self.ranges += other.ranges;
        self.loads += other.loads;
        self.transactions += other.transactions;
        self.conflicts += other.conflicts;
    }
}

#[test]
fn every_history_in_memory_is_linearizable() {
    let runs = setting("SIFTDB_HISTORIES", 500).div_ceil(HISTORIES) as u64;
    let mut figures = Figures::default();
    for seed in seeds(runs) {
        figures.add(&run(seed, Arc::new(MemEnv::new()), Path::new(HOME)));
    }
    judge(&figures);
}

#[test]
fn every_history_on_disk_is_linearizable() {
    let runs = setting("SIFTDB_HISTORIES", 500).div_ceil(10 * HISTORIES) as u64;
    let mut figures = Figures::default();
    for seed in seeds(runs) {
        let directory = tempfile::tempdir().unwrap();
        figures.add(&run(1000 + seed, Arc::new(DiskEnv), &directory.path().join("db")));
    }
    judge(&figures);
}

#[test]
fn long_histories_are_strictly_serializable() {
    let mut figures = Figures::default();
    for seed in seeds(setting("SIFTDB_HISTORIES", 500).div_ceil(100) as u64) {
        figures.add(&long_run(seed));
    }
    println!("{figures:?}");
    let histories = figures.histories;
    assert!(figures.operations > histories * THREADS * LONG_OPERATIONS / 2, "{figures:?}");
    assert!(figures.conflicts > 10 * histories && figures.transactions > 100 * histories);
}

/// Checks that many operations overlapped, and that flushes and compactions ran.
fn judge(figures: &Figures) {
    println!("{figures:?}");
    let runs = figures.histories as u64 / HISTORIES as u64;
    assert!(figures.flushes >= 10 * runs && figures.compactions >= 3 * runs, "{figures:?}");
    assert!(figures.tables_removed >= 10 * runs, "{figures:?}");
    assert!(figures.overlapping * 5 > figures.operations, "{figures:?}");
    assert!(figures.creations as u64 > 3 * runs && figures.refused as u64 > 3 * runs);
    assert!(figures.ranges as u64 > 10 * runs, "{figures:?}");
    assert!(figures.loads as u64 > 3 * runs, "{figures:?}");
    assert!(figures.transactions > 5 * figures.histories, "{figures:?}");
    assert!(figures.conflicts * 2 > figures.histories, "{figures:?}");
}

fn options(seed: u64) -> Options {
    let mut rng = Rng::new(seed);
    let filters = all_filters();
    small_options()
        .filter(rng.pick(&filters).filter.clone())
        .memtable_filter(rng.chance(70))
        .block_hash_index(rng.chance(50))
        .default_keyspace(&any_block_settings(&mut rng))
        .block_cache_bytes(*rng.pick(&[0, 16 << 10, 1 << 20]))
        .immutable_memtables_max(1 + rng.below(2))
        .max_open_files(1 + rng.below(8))
        .level0_compaction_trigger(1 + rng.below(3))
}

/// A database under test, and what happened to it.
struct World {
    db: Db,
    /// A copy of the keyspace `default` that is made of the changes of a watch.
    mirror: Option<Mirror>,
    env: RestlessEnv,
    seed: u64,
    clock: AtomicU64,
    other: Keyspace,
    passing: Mutex<Lives>,
    figures: Figures,
}

impl World {
    fn open(seed: u64, disk: Arc<dyn Env>, path: &Path) -> Self {
        let env = RestlessEnv::new(disk, seed);
        let db = options(seed).env(Arc::new(env.clone())).open(path).unwrap();
        let other = db.keyspace(OTHER).unwrap();
        let passing = Mutex::new(vec![(0, db.keyspace(PASSING).unwrap())]);
        let (clock, figures) = (AtomicU64::new(0), Figures::default());
        let mirror = Some(Mirror::new(&db).unwrap());
        World { db, mirror, env, seed, clock, other, passing, figures }
    }

    fn recorder(&self, round: usize, thread: usize, operations: usize) -> Recorder<'_> {
        // No operation takes more numbers.
        let first_number = ((round * THREADS + thread) * operations) as u32 * 8 + 1;
        Recorder {
            db: &self.db,
            other: &self.other,
            passing: &self.passing,
            clock: &self.clock,
            thread,
            rng: Rng::new((self.seed << 16) + (round << 8) as u64 + thread as u64),
            number: first_number,
            refused: 0,
            done: Vec::new(),
            conflicts: Vec::new(),
            begins: if operations > OPERATIONS { usize::MAX } else { 5 },
        }
    }

    /// Lets the threads run that many operations each; answers what they did.
    fn record(&mut self, round: usize, operations: usize) -> Vec<Operation> {
        let start = Barrier::new(THREADS);
        let mut mirror = self.mirror.take().expect("it is put back");
        let (mut done, mut conflicts, mut refused) = (Vec::new(), Vec::new(), 0);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (mut recorder, start) = (self.recorder(round, thread, operations), &start);
                    scope.spawn(move || {
                        start.wait();
                        recorder.run(operations);
                        (recorder.done, recorder.conflicts, recorder.refused)
                    })
                })
                .collect();
            // At the same time a copy follows.
            while !threads.iter().all(|thread| thread.is_finished()) {
                mirror.follow(&self.db, Duration::from_millis(1)).unwrap();
            }
            for thread in threads {
                let (its_done, its_conflicts, its_refused) = thread.join().unwrap();
                done.extend(its_done);
                conflicts.extend(its_conflicts);
                refused += its_refused;
            }
        });
        for refusal in &conflicts {
            let seed = self.seed;
            assert!(refusal.has_cause(&done), "seed {seed}, no cause of a conflict: {refusal:?}");
        }
        mirror.catch_up(&self.db).unwrap();
        assert!(mirror.map == scan(&self.db).unwrap(), "seed {}: the changes", self.seed);
        self.mirror = Some(mirror);
        self.figures.creations += self.passing.lock().unwrap().len() - 1;
        let mut last = self.recorder(round, 0, operations);
        last.read_everything();
        done.append(&mut last.done);
        let count = |names: &[&str]| done.iter().filter(|one| names.contains(&one.name)).count();
        self.figures.histories += 1;
        self.figures.refused += refused;
        self.figures.conflicts += conflicts.len();
        self.figures.ranges += count(&["delete_range"]);
        self.figures.loads += count(&["ingest", "ingest_unsorted"]);
        self.figures.transactions += count(&["transaction"]);
        done
    }

    fn close(mut self) -> Figures {
        let stats = self.db.stats();
        (self.figures.flushes, self.figures.compactions) = (stats.flushes, stats.compactions);
        self.db.close().unwrap();
        self.figures.tables_removed = self.env.tables_removed();
        self.figures
    }
}

/// The state before the first history.
fn first_state() -> State {
    let mut state = State::default();
    state[LIVES.start] = Some(1);
    state
}

fn run(seed: u64, disk: Arc<dyn Env>, path: &Path) -> Figures {
    let mut world = World::open(seed, disk, path);
    let mut before = first_state();
    for round in 0..HISTORIES {
        let operations = world.record(round, OPERATIONS);
        let after = state_of(&operations);
        if let Some(why) = serializability::contradiction(before, &operations) {
            panic!("seed {seed}, history {round}: {why}");
        }
        let history = History::new(before, operations);
        assert!(
            history.is_linearizable(),
            "seed {seed}, history {round}: no order explains these operations, to which\n{}\n\
             it was cut down; the store had {:?}",
            history.minimized(),
            options(seed)
        );
        world.figures.operations += history.len();
        world.figures.overlapping += history.overlapping();
        before = after;
    }
    world.close()
}

fn long_run(seed: u64) -> Figures {
    let mut world = World::open(seed, Arc::new(MemEnv::new()), Path::new(HOME));
    let operations = world.record(0, LONG_OPERATIONS);
    world.figures.operations = operations.len();
    if let Some(why) = serializability::contradiction(first_state(), &operations) {
        panic!("seed {seed}: {why}");
    }
    world.close()
}

/// What the last operation, a scan of everything, found.
fn state_of(operations: &[Operation]) -> State {
    let mut state = State::default();
    if let Some(Operation { action: Action::Read(entries), .. }) = operations.last() {
        entries.iter().for_each(|&(key, held)| state[key] = held);
    }
    state
}

/// Begin, end, `w` or `r`, and keys with what they hold.
type Line = (u64, u64, char, &'static [(usize, u32)]);

/// A history of such lines. 0 is an absent key, and each line has a thread of its own.
fn by_hand(lines: &[Line]) -> History {
    let operations = lines.iter().enumerate().map(|(thread, &(begun, ended, kind, entries))| {
        let held = |&(key, number): &(usize, u32)| (key, (number > 0).then_some(number));
        let entries = entries.iter().map(held).collect();
        let action = if kind == 'w' { Action::Write(entries) } else { Action::Read(entries) };
        Operation { thread, name: "by hand", begun, ended, action }
    });
    History::new(State::default(), operations.collect())
}

#[test]
fn the_check_accepts_what_an_order_explains() {
    let histories: [&[Line]; 6] = [
        &[],
        // A read concurrent with a write may see either version, and so may two, in the order of
        // their ends.
        &[(0, 9, 'w', &[(0, 1)]), (1, 2, 'r', &[(0, 0)]), (3, 4, 'r', &[(0, 1)])],
        &[(0, 9, 'w', &[(0, 1)]), (1, 8, 'r', &[(0, 1)]), (2, 7, 'r', &[(0, 0)])],
        // Two writes at once, in the order that the later read tells.
        &[(0, 5, 'w', &[(0, 1)]), (1, 4, 'w', &[(0, 2)]), (6, 7, 'r', &[(0, 1)])],
        // A batch between two keys of one moment; of two entries of a key the last counts.
        &[
            (0, 3, 'w', &[(0, 1), (1, 1)]),
            (4, 9, 'w', &[(0, 2), (1, 2), (0, 3)]),
            (5, 6, 'r', &[(0, 1), (1, 1)]),
            (7, 8, 'r', &[(0, 3), (1, 2)]),
        ],
        // The first choice is wrong: 2 comes before 1.
        &[
            (0, 20, 'w', &[(0, 1)]),
            (1, 21, 'w', &[(0, 2)]),
            (2, 22, 'w', &[(1, 3)]),
            (23, 24, 'r', &[(0, 1), (1, 3)]),
        ],
    ];
    for lines in histories {
        assert!(by_hand(lines).is_linearizable(), "{}", by_hand(lines));
    }
}

#[test]
fn the_check_refuses_what_no_order_explains() {
    let histories: [(&str, &[Line]); 8] = [
        ("a stale read", &[(0, 1, 'w', &[(0, 1)]), (2, 3, 'r', &[(0, 0)])]),
        ("a read of what nobody wrote", &[(0, 1, 'r', &[(0, 7)])]),
        ("an early read", &[(0, 1, 'r', &[(0, 1)]), (2, 3, 'w', &[(0, 1)])]),
        (
            "a lost update",
            &[(0, 1, 'w', &[(0, 1)]), (2, 3, 'w', &[(0, 2)]), (4, 5, 'r', &[(0, 1)])],
        ),
        (
            "a deleted key that comes back",
            &[(0, 1, 'w', &[(0, 1)]), (2, 3, 'w', &[(0, 0)]), (4, 5, 'r', &[(0, 1)])],
        ),
        (
            "a torn batch",
            &[(0, 9, 'w', &[(0, 1), (1, 1)]), (1, 2, 'r', &[(0, 1)]), (3, 4, 'r', &[(1, 0)])],
        ),
        ("a snapshot that moves", &[(0, 9, 'w', &[(0, 1)]), (1, 2, 'r', &[(0, 0), (0, 1)])]),
        (
            "two readers who see two writes in different orders",
            &[
                (0, 20, 'w', &[(0, 1)]),
                (1, 21, 'w', &[(1, 2)]),
                (2, 3, 'r', &[(0, 1), (1, 0)]),
                (4, 5, 'r', &[(0, 0), (1, 2)]),
            ],
        ),
    ];
    for (name, lines) in histories {
        assert!(!by_hand(lines).is_linearizable(), "{name}");
    }
}

#[test]
fn violations_are_shrunk_to_their_operations() {
    let history = by_hand(&[
        (0, 1, 'w', &[(2, 8)]),
        (2, 3, 'w', &[(0, 1), (1, 4)]),
        (4, 6, 'r', &[(2, 8), (0, 1)]),
        (5, 9, 'w', &[(0, 2), (1, 5)]),
        (7, 8, 'w', &[(3, 9)]),
        (10, 11, 'r', &[(3, 9), (0, 1), (2, 8)]),
        (12, 13, 'w', &[(0, 3)]),
    ]);
    assert!(!history.is_linearizable());
    let text = "before: \n   \
                2 to    3  thread 1  by hand          writes a=1 b=4\n   \
                5 to    9  thread 3  by hand          writes a=2 b=5\n  \
                10 to   11  thread 5  by hand          finds  a=1\n";
    assert_eq!(history.minimized().to_string(), text);
}

/// Begin, end, and keys with what was found and written; 0 is an absent key.
type Change = (u64, u64, &'static [(usize, u32)], &'static [(usize, u32)]);

/// What is wrong with a history of such changes, if anything is. Each has a thread of its own.
fn contradiction(changes: &[Change]) -> Option<String> {
    let operations = changes.iter().enumerate().map(|(thread, (begun, ended, found, written))| {
        let held = |entries: &[(usize, u32)]| {
            entries.iter().map(|&(key, number)| (key, (number > 0).then_some(number))).collect()
        };
        let action = Action::Change { found: held(found), written: held(written) };
        Operation { thread, name: "by hand", begun: *begun, ended: *ended, action }
    });
    let operations: Vec<_> = operations.collect();
    let found = serializability::contradiction(State::default(), &operations);
    let is_linearizable = History::new(State::default(), operations).is_linearizable();
    assert_eq!(found.is_none(), is_linearizable, "the search disagrees");
    found
}

#[test]
fn cycles_are_found_in_bad_histories() {
    let histories: [(&str, &[Change]); 13] = [
        (
            "write skew",
            &[(0, 9, &[(0, 0), (1, 0)], &[(0, 1)]), (1, 8, &[(0, 0), (1, 0)], &[(1, 2)])],
        ),
        ("a lost update", &[(0, 9, &[(0, 0)], &[(0, 1)]), (1, 8, &[(0, 0)], &[(0, 2)])]),
        (
            "a lost update of a deleted key",
            &[
                (0, 1, &[], &[(0, 1)]),
                (2, 3, &[], &[(0, 0)]),
                (4, 9, &[(0, 0)], &[(0, 2)]),
                (5, 8, &[(0, 0)], &[(0, 3)]),
            ],
        ),
        (
            "a phantom: each found the place free that the other one takes",
            &[
                (0, 9, &[(0, 0), (1, 0), (2, 0)], &[(1, 1)]),
                (1, 8, &[(0, 0), (1, 0), (2, 0)], &[(2, 2)]),
            ],
        ),
        ("read skew", &[(0, 9, &[], &[(0, 1), (1, 1)]), (1, 8, &[(0, 1), (1, 0)], &[])]),
        (
            "read skew of deletions",
            &[
                (0, 1, &[], &[(0, 1), (1, 2)]),
                (2, 9, &[], &[(0, 0), (1, 0)]),
                (3, 8, &[(0, 0), (1, 2)], &[]),
            ],
        ),
        ("a stale read", &[(0, 1, &[], &[(0, 1)]), (2, 3, &[(0, 0)], &[])]),
        (
            "a stale read of an older value",
            &[(0, 1, &[], &[(0, 1)]), (2, 3, &[], &[(0, 2)]), (4, 5, &[(0, 1)], &[])],
        ),
        (
            "a deleted key that comes back",
            &[(0, 1, &[], &[(0, 1)]), (2, 3, &[], &[(0, 0)]), (4, 5, &[(0, 1)], &[])],
        ),
        ("a read of what nobody wrote", &[(0, 1, &[(0, 7)], &[])]),
        ("an early read", &[(0, 1, &[(0, 1)], &[]), (2, 3, &[], &[(0, 1)])]),
        (
            "two readers who see two writes in different orders",
            &[
                (0, 20, &[], &[(0, 1)]),
                (1, 21, &[], &[(1, 2)]),
                (2, 22, &[(0, 1), (1, 0)], &[]),
                (4, 23, &[(0, 0), (1, 2)], &[]),
            ],
        ),
        (
            "three that each overwrite what the next one read",
            &[
                (0, 20, &[(0, 0)], &[(1, 1)]),
                (1, 21, &[(1, 0)], &[(2, 2)]),
                (2, 22, &[(2, 0)], &[(0, 3)]),
            ],
        ),
    ];
    for (name, changes) in histories {
        assert!(contradiction(changes).is_some(), "{name}");
    }
}

#[test]
fn good_histories_have_no_cycle() {
    let histories: [&[Change]; 7] = [
        &[],
        // One after the other, in an order that only the answers tell.
        &[(0, 9, &[(0, 0)], &[(0, 1)]), (1, 8, &[(0, 2)], &[(0, 3)]), (2, 7, &[(0, 1)], &[(0, 2)])],
        // Writes without reads.
        &[(0, 9, &[], &[(0, 1), (1, 1)]), (1, 8, &[], &[(0, 2), (1, 2)]), (10, 11, &[(0, 1)], &[])],
        // A chain of two that read what they do not write, not a ring.
        &[(0, 9, &[(0, 0)], &[(1, 1)]), (1, 8, &[(1, 0)], &[(2, 2)])],
        // Either of two deletions explains each absence.
        &[
            (0, 1, &[], &[(0, 1)]),
            (2, 9, &[], &[(0, 0)]),
            (3, 8, &[], &[(0, 2)]),
            (4, 7, &[], &[(0, 0)]),
            (5, 6, &[(0, 0)], &[]),
            (10, 11, &[(0, 0)], &[]),
        ],
        // A read of the moment before a write that is not over.
        &[(0, 9, &[], &[(0, 1)]), (1, 2, &[(0, 0)], &[]), (3, 4, &[(0, 1)], &[])],
        // The last of two entries for one key counts.
        &[(0, 1, &[], &[(0, 1), (0, 0)]), (2, 3, &[(0, 0)], &[(0, 2)]), (4, 5, &[(0, 2)], &[])],
    ];
    for changes in histories {
        assert_eq!(contradiction(changes), None);
    }
}
