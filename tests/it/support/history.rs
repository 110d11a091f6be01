//! The promises to writers: the batches of several writers, and what a crash may leave of them.
//!
//! Time is the length of the disk's log of calls; before an earlier crash it is negative. A crash
//! must leave a prefix of the batches of every writer, and of the order of all writes. A test knows
//! part of that order: a batch that was acknowledged before another one was written comes first.
//! Every batch writes its number under a key of its writer. So the entries after a crash say which
//! prefix they are, and everything else must agree with that.

use super::model::{Entries, Map};
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

/// The number of a batch, and the value that it writes to a key.
type Write = (usize, Option<Vec<u8>>);

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
    /// Pairs of times: writes acknowledged by the first are durable from the second on.
    barriers: Vec<(Moment, Moment)>,
}

impl History {
    /// Notes that `writer` writes these entries. Returns the number of the batch and all of its
    /// entries.
    pub fn begin(&mut self, writer: usize, mut entries: Entries, now: Moment) -> (usize, Entries) {
        let batches = &mut self.writers[writer];
        let number = batches.len() + 1;
        let tag = (number as u64).to_le_bytes();
        entries.push((number_key(writer), Some(tag.to_vec())));
        entries.push((b"~last".to_vec(), Some([&[writer as u8], &tag[..]].concat())));
        let mut written = batches.last().map(|last| (*last.written).clone()).unwrap_or_default();
        for (key, value) in &entries {
            written.insert(key.clone(), (number, value.clone()));
        }
        let written = Arc::new(written);
        batches.push(Batch { begun: now, acknowledged: NEVER, synced: false, written });
        (number, entries)
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

    /// Whether a crash at `call` may leave `prefix`.
    pub fn judge(&self, prefix: &Prefix, call: Moment, model: CrashModel) -> Result<(), Violation> {
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

    /// The prefix that `found` is, or why it is none.
    pub fn prefix_of(&self, found: &Map) -> Result<Prefix, Violation> {
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
        for key in keys {
            let of_writer = |writer| Some((writer, last(writer)?.written.get(key)?));
            let writes: Vec<_> = (0..WRITERS).filter_map(of_writer).collect();
            let batch = |writer: usize, number: usize| &self.writers[writer][number - 1];
            let is_last = |&&(writer, (number, _)): &&(usize, &Write)| {
                let own = batch(writer, *number).acknowledged;
                !writes.iter().any(|&(other, (later, _))| batch(other, *later).begun >= own)
            };
            let mut lasts = writes.iter().filter(is_last).map(|(_, (_, value))| value.as_ref());
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
    pub fn after_crash(&self, call: Moment, prefix: &Prefix, durable: &Prefix) -> History {
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
        History { writers, barriers: Vec::new() }
    }
}

fn number_key(writer: usize) -> Vec<u8> {
    format!("~writer{writer}").into_bytes()
}
