//! The promises to writers: the batches of several writers, and what a crash may leave of them.
//!
//! Time is the length of the disk's log of calls; before an earlier crash it is negative. A crash
//! must leave a prefix of the batches of every writer, and of the order of all writes. A test knows
//! part of that order: a batch that was acknowledged before another one was written comes first.
//! Every batch writes its number under a key of its writer. So the entries after a crash say which
//! prefix they are, and everything else must agree with that.
//!
//! Keyspaces come and go while one thread uses them. Each creation makes a new *generation*, also
//! under a name that was there before. A key of the history begins with its generation
//! ([`key_in`]), and every batch also writes the number of the generation into it. Creations and
//! drops are durable when they return, and so is everything that was acknowledged before them: a
//! crash that leaves one of them leaves these writes too.
//!
//! A range delete counts as deletions of those of the known keys that its range holds. Some
//! keyspaces let their entries expire; the history has a clock of its own, in seconds, which only
//! moves while nobody writes.

use super::model::Map;
use super::ranges::{KeyRange, holds};
use siftdb::env::testing::CrashModel;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The number of writers.
pub const WRITERS: usize = 4;

/// A time: a length of the log of calls.
pub type Moment = i64;

const NEVER: Moment = Moment::MAX;

/// How many batches of each writer a state has.
pub type Prefix = [usize; WRITERS];

/// The keyspaces that are there besides `default`, by name, with the generation that their entries
/// name; `None` if there are no entries.
pub type Names = BTreeMap<String, Option<usize>>;

/// What is in a state.
#[derive(Clone, Debug)]
pub struct Found {
    pub prefix: Prefix,
    pub names: Names,
}

/// In every generation: its number.
pub const GENERATION: &[u8] = b"~generation";

/// The key of the history for `key` in a generation of a keyspace; `None` is `default`.
pub fn key_in(generation: Option<usize>, key: &[u8]) -> Vec<u8> {
    match generation {
        Some(generation) => [&[0], &(generation as u32).to_le_bytes()[..], key].concat(),
        None => key.to_vec(),
    }
}

/// The generation and key of a key of the history.
pub fn split_key(key: &[u8]) -> (Option<usize>, &[u8]) {
    match key {
        [0, a, b, c, d, rest @ ..] => (Some(u32::from_le_bytes([*a, *b, *c, *d]) as usize), rest),
        _ => (None, key),
    }
}

/// A keyspace from its creation to its drop.
#[derive(Clone, Debug)]
struct Generation {
    name: String,
    begun: Moment,
    /// [`NEVER`] as long as it was not.
    created: Moment,
    drop_begun: Moment,
    dropped: Moment,
}

/// What is wrong with a state: a kind to count by, and details.
#[derive(Debug)]
pub struct Violation {
    pub kind: &'static str,
    pub what: String,
}

impl Violation {
    pub fn new(kind: &'static str, what: impl ToString) -> Self {
        Violation { kind, what: what.to_string() }
    }
}

/// What a batch does to a key, or to keys.
#[derive(Clone, Debug)]
pub enum Change {
    Put(Vec<u8>),
    Delete,
    DeleteRange(KeyRange),
}

/// The changes of one batch. Those of a range are under the empty key of their generation.
pub type Changes = Vec<(Vec<u8>, Change)>;

/// A value, and the second at which it expires.
type Stored = (Vec<u8>, u64);

/// The number of a batch, and what it leaves under a key.
type Write = (usize, Option<Stored>);

#[derive(Clone, Debug)]
struct Batch {
    begun: Moment,
    /// [`NEVER`] as long as it was not.
    acknowledged: Moment,
    synced: bool,
    /// What its writer had written to each key by then.
    written: Arc<BTreeMap<Vec<u8>, Write>>,
}

/// All batches and promises.
#[derive(Clone, Debug, Default)]
pub struct History {
    writers: [Vec<Batch>; WRITERS],
    generations: Vec<Generation>,
    /// Pairs of times: writes acknowledged by the first are durable from the second on.
    barriers: Vec<(Moment, Moment)>,
    /// By which entries expire.
    pub seconds: u64,
}

impl History {
    /// Notes that `writer` makes these changes, where ranges hold some of `keys`. Values in a
    /// generation expire as `lives` says, in seconds. Returns the number of the batch and all of
    /// its changes.
    pub fn begin(
        &mut self,
        writer: usize,
        mut changes: Changes,
        keys: &[Vec<u8>],
        lives: impl Fn(&str) -> Option<u64>,
        now: Moment,
    ) -> (usize, Changes) {
        let number = self.writers[writer].len() + 1;
        let tag = (number as u64).to_le_bytes();
        let used: BTreeSet<_> = changes.iter().filter_map(|(key, _)| split_key(key).0).collect();
        for generation in used {
            let marker = Change::Put((generation as u64).to_le_bytes().to_vec());
            changes.push((key_in(Some(generation), GENERATION), marker));
        }
        changes.push((number_key(writer), Change::Put(tag.to_vec())));
        changes.push((b"~last".to_vec(), Change::Put([&[writer as u8], &tag[..]].concat())));
        let last = self.writers[writer].last();
        let mut written = last.map(|last| (*last.written).clone()).unwrap_or_default();
        for (key, change) in &changes {
            let generation = split_key(key).0;
            match change {
                Change::Put(value) => {
                    let life = generation.and_then(|generation| lives(self.name_of(generation)));
                    let expires = life.map_or(u64::MAX, |life| self.seconds + life);
                    written.insert(key.clone(), (number, Some((value.clone(), expires))));
                }
                Change::Delete => drop(written.insert(key.clone(), (number, None))),
                Change::DeleteRange(range) => {
                    for key in keys.iter().filter(|key| holds(range, key)) {
                        written.insert(key_in(generation, key), (number, None));
                    }
                }
            }
        }
        let written = Arc::new(written);
        let batch = Batch { begun: now, acknowledged: NEVER, synced: false, written };
        self.writers[writer].push(batch);
        (number, changes)
    }

    /// Notes that the batch was acknowledged.
    pub fn acknowledge(&mut self, writer: usize, number: usize, now: Moment, synced: bool) {
        let batch = &mut self.writers[writer][number - 1];
        batch.acknowledged = now;
        batch.synced = synced;
    }

    /// Notes that writes acknowledged before `begun` are durable from `now` on, after a sync, a
    /// flush, a close or an opening.
    pub fn durable(&mut self, begun: Moment, now: Moment) {
        self.barriers.push((begun, now));
    }

    /// Notes that a keyspace is about to be created; returns its generation.
    pub fn begin_creation(&mut self, name: &str, now: Moment) -> usize {
        let (name, begun) = (name.to_string(), now);
        let [created, drop_begun, dropped] = [NEVER; 3];
        self.generations.push(Generation { name, begun, created, drop_begun, dropped });
        self.generations.len() - 1
    }

    /// Notes that the keyspace that was begun last was created.
    pub fn created_last(&mut self, now: Moment) {
        self.generations.last_mut().expect("it was begun").created = now;
    }

    /// Notes that it is about to be dropped.
    pub fn begin_drop(&mut self, generation: usize, now: Moment) {
        self.generations[generation].drop_begun = now;
    }

    /// Notes that it was dropped.
    pub fn dropped(&mut self, generation: usize, now: Moment) {
        self.generations[generation].dropped = now;
    }

    /// The keyspaces that are there now and may be used: name and generation.
    pub fn keyspaces(&self) -> Vec<(String, usize)> {
        let there = |(_, one): &(usize, &Generation)| one.created < NEVER && one.dropped == NEVER;
        let all = self.generations.iter().enumerate().filter(there);
        all.map(|(number, one)| (one.name.clone(), number)).collect()
    }

    /// The name of a generation.
    pub fn name_of(&self, generation: usize) -> &str {
        &self.generations[generation].name
    }

    /// Creations and drops that a crash left in doubt are durable from `now` on.
    pub fn settle(&mut self, now: Moment) {
        for one in &mut self.generations {
            if one.begun < NEVER && one.created == NEVER {
                one.created = now;
            }
            if one.drop_begun < NEVER && one.dropped == NEVER {
                one.dropped = now;
            }
        }
    }

    /// Whether a crash at `call` may leave these keyspaces with the entries of `prefix`.
    fn judge_names(&self, found: &Found, call: Moment) -> Result<(), Violation> {
        let mut latest: BTreeMap<&str, usize> = BTreeMap::new();
        for (number, one) in self.generations.iter().enumerate() {
            if one.begun <= call {
                latest.insert(&one.name, number);
            }
        }
        if let Some(name) = found.names.keys().find(|name| !latest.contains_key(&name[..])) {
            return Err(Violation::new("keyspace", format!("{name:?} was never created")));
        }
        for (name, number) in latest {
            let one = &self.generations[number];
            let what = format!("{name:?} of generation {number} ({one:?})");
            match found.names.get(name) {
                None if one.created <= call && one.drop_begun > call => {
                    return Err(Violation::new("keyspace", format!("{what} is lost")));
                }
                None if one.drop_begun <= call => {
                    self.judge_barrier(&found.prefix, one.drop_begun, &what)?;
                }
                None => {}
                Some(_) if one.dropped <= call => {
                    return Err(Violation::new("keyspace", format!("{what} came back")));
                }
                Some(marker) => {
                    let expected = self.is_marked(&found.prefix, number).then_some(number);
                    if *marker != expected {
                        let what = format!("{what} has the entries of {marker:?}");
                        return Err(Violation::new("keyspace", what));
                    }
                    self.judge_barrier(&found.prefix, one.begun, &what)?;
                }
            }
        }
        Ok(())
    }

    /// A creation or drop that is there was made after every write acknowledged by `begun`.
    fn judge_barrier(&self, prefix: &Prefix, begun: Moment, what: &str) -> Result<(), Violation> {
        let least = self.of_each_writer(|batch| batch.acknowledged <= begun);
        match (0..WRITERS).find(|&writer| prefix[writer] < least[writer]) {
            None => Ok(()),
            Some(writer) => {
                let what = format!("a change of {what} is there, older writes of {writer} are not");
                Err(Violation::new("hole before a change of keyspaces", what))
            }
        }
    }

    /// The value of what was stored, unless it has expired.
    fn shown<'a>(&self, stored: Option<&'a Stored>) -> Option<&'a Vec<u8>> {
        stored.filter(|(_, expires)| *expires > self.seconds).map(|(value, _)| value)
    }

    /// True if a batch of the prefix wrote to the generation, and its entries have not expired.
    fn is_marked(&self, prefix: &Prefix, generation: usize) -> bool {
        let marker = key_in(Some(generation), GENERATION);
        let last = |writer: usize| Some(&self.writers[writer][prefix[writer].checked_sub(1)?]);
        let of = |batch: &'_ Batch| batch.written.get(&marker).and_then(|(_, at)| at.clone());
        (0..WRITERS).filter_map(last).any(|batch| self.shown(of(batch).as_ref()).is_some())
    }

    /// The batches that must survive a crash at `call`.
    pub fn least(&self, call: Moment, crash_model: CrashModel) -> Prefix {
        let barrier =
            self.barriers.iter().filter(|(_, done)| *done <= call).map(|(begun, _)| begun);
        let barrier = barrier.max().copied();
        self.of_each_writer(|batch| {
            let covered = barrier.is_some_and(|begun| batch.acknowledged <= begun);
            let promised = batch.synced || crash_model == CrashModel::Kill;
            covered || (promised && batch.acknowledged <= call)
        })
    }

    /// All acknowledged batches.
    pub fn acknowledged(&self) -> Prefix {
        self.of_each_writer(|batch| batch.acknowledged < NEVER)
    }

    fn of_each_writer(&self, includes: impl Fn(&Batch) -> bool) -> Prefix {
        std::array::from_fn(|writer| {
            self.writers[writer].iter().rposition(&includes).map_or(0, |place| place + 1)
        })
    }

    /// Whether a crash at `call` may leave what was found.
    pub fn judge(&self, found: &Found, call: Moment, model: CrashModel) -> Result<(), Violation> {
        self.judge_names(found, call)?;
        let prefix = &found.prefix;
        let least = self.least(call, model);
        let most = self.of_each_writer(|batch| batch.begun <= call);
        for writer in 0..WRITERS {
            let (found, least, most) = (prefix[writer], least[writer], most[writer]);
            if found < least {
                let what = format!("writer {writer}: {found} batches, {least} were promised");
                return Err(Violation::new("lost", what));
            }
            if found > most {
                let what = format!("writer {writer}: {found} batches, {most} were handed in");
                return Err(Violation::new("from nowhere", what));
            }
            let Some(missing) = self.writers[writer].get(found) else { continue };
            for (other, batches) in self.writers.iter().enumerate() {
                let last = prefix[other].checked_sub(1).and_then(|place| batches.get(place));
                if last.is_some_and(|last| missing.acknowledged <= last.begun) {
                    let (number, later) = (found + 1, prefix[other]);
                    let what = format!(
                        "batch {number} of writer {writer} is missing; batch {later} of writer \
                         {other} came later and is there"
                    );
                    return Err(Violation::new("hole", what));
                }
            }
        }
        Ok(())
    }

    /// The prefix that `found` is, or why it is none. Its keys are those of the history, of the
    /// generations in `names`.
    pub fn prefix_of(&self, found: &Map, names: &Names) -> Result<Prefix, Violation> {
        let there = |key: &[u8]| {
            let (generation, _) = split_key(key);
            generation.is_none_or(|number| names.get(self.name_of(number)) == Some(&Some(number)))
        };
        let mut prefix = Prefix::default();
        for (writer, count) in prefix.iter_mut().enumerate() {
            let number =
                found.get(&number_key(writer)).and_then(|tag| tag.as_slice().try_into().ok());
            *count = number.map_or(0, u64::from_le_bytes) as usize;
            if *count > self.writers[writer].len() {
                let what = format!("batch {count} of writer {writer} was never handed in");
                return Err(Violation::new("from nowhere", what));
            }
        }
        let last = |writer: usize| Some(&self.writers[writer][prefix[writer].checked_sub(1)?]);
        let mut keys: BTreeSet<&Vec<u8>> = found.keys().collect();
        keys.extend((0..WRITERS).filter_map(last).flat_map(|batch| batch.written.keys()));
        for key in keys.into_iter().filter(|key| there(key)) {
            let of_writer = |writer| Some((writer, last(writer)?.written.get(key)?));
            let writes: Vec<_> = (0..WRITERS).filter_map(of_writer).collect();
            let batch = |writer: usize, number: usize| &self.writers[writer][number - 1];
            let is_last = |&&(writer, (number, _)): &&(usize, &Write)| {
                let own = batch(writer, *number).acknowledged;
                !writes.iter().any(|&(other, (later, _))| batch(other, *later).begun >= own)
            };
            let lasts = writes.iter().filter(is_last);
            let mut lasts = lasts.map(|(_, (_, stored))| self.shown(stored.as_ref()));
            let found = found.get(key);
            let never_written = writes.is_empty() && found.is_none();
            if !never_written && lasts.all(|value| value != found) {
                let (key, found) = (key.escape_ascii(), found.map(Vec::len));
                let what =
                    format!("after {prefix:?}: \"{key}\" has {found:?} bytes of another time");
                return Err(Violation::new("content", what));
            }
        }
        Ok(prefix)
    }

    /// The history after a crash at `call` that left `prefix`, of which `durable` can no longer be
    /// lost. Time starts again at 0.
    pub fn after_crash(&self, call: Moment, found: &Found, durable: &Prefix) -> History {
        let prefix = &found.prefix;
        let mut writers = self.writers.clone();
        for (writer, batches) in writers.iter_mut().enumerate() {
            batches.truncate(prefix[writer]);
            for (place, batch) in batches.iter_mut().enumerate() {
                batch.begun -= call + 1;
                let known = batch.acknowledged <= call;
                batch.acknowledged = if known { batch.acknowledged - call - 1 } else { 0 };
                batch.synced = place < durable[writer];
            }
        }
        let mut generations = self.generations.clone();
        while generations.last().is_some_and(|one| one.begun > call) {
            generations.pop();
        }
        let mut latest: BTreeMap<String, usize> = BTreeMap::new();
        for (number, one) in generations.iter_mut().enumerate() {
            for moment in [&mut one.begun, &mut one.created, &mut one.drop_begun, &mut one.dropped]
            {
                *moment = if *moment <= call { *moment - call - 1 } else { NEVER };
            }
            if one.begun < NEVER {
                latest.insert(one.name.clone(), number);
            }
        }
        for (name, number) in latest {
            let one = &mut generations[number];
            if found.names.contains_key(&name) {
                // A drop that was begun did not happen.
                one.drop_begun = NEVER;
            } else if one.created == NEVER && one.drop_begun == NEVER {
                // A creation that was begun did not happen.
                one.begun = NEVER;
            }
        }
        History { writers, generations, barriers: Vec::new(), seconds: self.seconds }
    }
}

fn number_key(writer: usize) -> Vec<u8> {
    format!("~writer{writer}").into_bytes()
}
