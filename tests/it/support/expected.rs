//! The operations of writers that are killed, their notes, and what must survive.
//!
//! Operation `n` of writer `w` follows from the seed, so a writer only notes its progress, in a
//! file of its own. For each operation it writes 16 bytes: the time before the call, and the time
//! after the acknowledgement. When the process dies, the system has the notes, as it must have all
//! acknowledged writes.
//!
//! Each writer has keys of its own. Of those, every acknowledged operation must survive, the one
//! operation that was running survives whole or not at all, and there is nothing else. Writers
//! write to shared keys in batches only. A shared key has the value of a write that no other write
//! certainly followed.

use super::data::bytes;
use super::model::Map;
use super::ranges::{KeyRange, any_range, holds, remove_range, within};
use super::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Writers at the same time.
pub const WRITERS: usize = 4;

/// Keys of each writer, and of all together.
const OWN_KEYS: usize = 120;
const SHARED_KEYS: usize = 12;

/// Bytes that a writer notes for each operation.
pub const NOTE_BYTES: u64 = 16;

/// A time: the run of the process in the high bits, a counter in the low ones.
pub type Moment = u64;

/// The first time of a run.
pub fn first_moment(run: u64) -> Moment {
    (run + 1) << 40
}

pub fn own_key(writer: usize, number: usize) -> Vec<u8> {
    match number % 3 {
        0 => format!("w{writer}/{number:04}").into_bytes(),
        1 => format!("w{writer}/a/longer/path/{number}").into_bytes(),
        _ => [format!("w{writer}/").as_bytes(), &[0xff, number as u8]].concat(),
    }
}

fn shared_key(number: usize) -> Vec<u8> {
    format!("all/{number:02}").into_bytes()
}

/// What transactions count up: text of digits.
pub const COUNTER: &[u8] = b"~counter0";

/// Every key that is ever written, and some that are not.
pub fn all_keys() -> Vec<Vec<u8>> {
    let own = (0..WRITERS).flat_map(|writer| {
        (0..OWN_KEYS + 5).map(move |number| own_key(writer, number)).chain([tag_key(writer)])
    });
    own.chain((0..SHARED_KEYS + 2).map(shared_key)).collect()
}

pub fn tag_key(writer: usize) -> Vec<u8> {
    format!("w{writer}/~").into_bytes()
}

/// One call of a writer.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Deleted before anything else, in both keyspaces.
    pub ranges: Vec<KeyRange>,
    pub entries: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// How many seconds the values live: none, so that they count as deletions, or without end.
    pub lives: Option<u64>,
    pub batch: bool,
    pub sync: bool,
    /// A batch is written by a transaction that also counts up [`COUNTER`], and a single entry by
    /// an update of its key.
    pub transaction: bool,
    /// A transaction that reads what a batch writes is open at the same time, and is refused.
    pub refused: bool,
    /// Written as a bulk load: values only, all in the keyspace of keys that end evenly, by key.
    pub load: bool,
}

/// Keys with an odd last byte are in the second keyspace.
pub fn is_in_other(key: &[u8]) -> bool {
    key.last().is_some_and(|byte| byte % 2 == 1)
}

/// Entries of a load: many keys, and the tag, so that a part of one is noticed.
fn loaded(rng: &mut Rng, writer: usize, tag: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let (first, count) = (rng.below(OWN_KEYS), 1 + rng.below(OWN_KEYS));
    let keys = (first..OWN_KEYS).take(count).map(|number| own_key(writer, number));
    let keys: BTreeSet<_> = keys.filter(|key| !is_in_other(key)).chain([tag_key(writer)]).collect();
    let value = |rng: &mut Rng| Some(bytes(tag, *rng.pick(&[8, 30, 100, 257, 3000])));
    keys.into_iter().map(|key| (key, value(rng))).collect()
}

/// Operation `number` of a writer.
pub fn operation(seed: u64, writer: usize, number: u64) -> Operation {
    let mut rng = Rng::new(seed ^ ((writer as u64) << 56) ^ number.rotate_left(20));
    let tag = number << 8 | writer as u64;
    let value = |rng: &mut Rng| {
        let size = *rng.pick(&[8, 30, 31, 100, 256, 257, 900, 3000]);
        rng.chance(75).then(|| bytes(tag, size))
    };
    let batch = rng.chance(50);
    let count = if batch { 1 + rng.below(5) } else { 1 };
    let mut entries: Vec<_> =
        (0..count).map(|_| (own_key(writer, rng.below(OWN_KEYS)), value(&mut rng))).collect();
    if batch {
        entries.push((tag_key(writer), Some(bytes(tag, 8))));
        if rng.chance(40) {
            entries.push((shared_key(rng.below(SHARED_KEYS)), value(&mut rng)));
        }
    }
    let mut ranges = Vec::new();
    if batch && rng.chance(12) {
        let mut keys: Vec<_> = (0..OWN_KEYS).map(|number| own_key(writer, number)).collect();
        keys.sort();
        let (start, end) = (format!("w{writer}/"), format!("w{writer}0"));
        ranges.push(within(any_range(&mut rng, &keys), start.as_bytes(), end.as_bytes()));
    }
    if batch && rng.chance(4) {
        let keys: Vec<_> = (0..SHARED_KEYS).map(shared_key).collect();
        ranges.push(within(any_range(&mut rng, &keys), b"all/", b"all0"));
    }
    let lives = match rng.below(10) {
        0 if !batch => Some(0),
        1 => Some(u64::MAX),
        _ => None,
    };
    let (sync, transaction, refused) = (rng.chance(2), rng.chance(35), rng.chance(10));
    if rng.chance(2) {
        let entries = loaded(&mut rng, writer, tag);
        let (ranges, lives, sync, transaction) = (Vec::new(), None, true, false);
        return Operation {
            ranges,
            entries,
            lives,
            batch: true,
            sync,
            transaction,
            refused,
            load: true,
        };
    }
    Operation { ranges, entries, lives, batch, sync, transaction, refused, load: false }
}

/// Digits, or nothing that can be parsed.
fn text_of(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

impl Operation {
    /// It counts up [`COUNTER`].
    pub fn counts(&self) -> bool {
        self.batch && self.transaction
    }

    /// The keys that it names, each with what it leaves there.
    fn left(&self) -> impl Iterator<Item = (&Vec<u8>, Option<&Vec<u8>>)> {
        let value = |value: &'_ Option<Vec<u8>>| value.is_some() && self.lives != Some(0);
        self.entries.iter().map(move |(key, put)| (key, put.as_ref().filter(|_| value(put))))
    }
}

/// Writes the notes of one writer.
pub struct Notes(File);

impl Notes {
    /// Continues the notes; also returns the number of the next operation. An operation that was
    /// running when its process was killed is not repeated.
    pub fn open(directory: &Path, writer: usize) -> (Self, u64) {
        let path = directory.join(format!("writer-{writer}"));
        let file = File::options().create(true).truncate(false).write(true).open(path).unwrap();
        let next = file.metadata().unwrap().len().div_ceil(NOTE_BYTES);
        (Notes(file), next)
    }

    pub fn begun(&self, number: u64, now: Moment) {
        self.0.write_all_at(&now.to_le_bytes(), number * NOTE_BYTES).unwrap();
    }

    pub fn acknowledged(&self, number: u64, now: Moment) {
        self.0.write_all_at(&now.to_le_bytes(), number * NOTE_BYTES + 8).unwrap();
    }
}

/// The notes from operation `first` on: when each began, and when it was acknowledged, or 0.
fn read_notes(directory: &Path, writer: usize, first: u64) -> Vec<(Moment, Moment)> {
    let notes = std::fs::read(directory.join(format!("writer-{writer}"))).unwrap_or_default();
    let new = notes.get((first * NOTE_BYTES) as usize..).unwrap_or_default();
    let moment = |bytes: Option<&[u8]>| {
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    let notes = new.chunks(NOTE_BYTES as usize);
    notes.map(|note| (moment(note.get(..8)), moment(note.get(8..)))).collect()
}

/// A write to a shared key.
#[derive(Clone, Debug)]
struct SharedWrite {
    begun: Moment,
    acknowledged: Moment,
    value: Option<Vec<u8>>,
}

/// What must survive.
#[derive(Debug)]
pub struct Expected {
    pub seed: u64,
    /// The first operation of each writer that is not checked yet.
    next: [u64; WRITERS],
    own: [Map; WRITERS],
    shared: BTreeMap<Vec<u8>, Vec<SharedWrite>>,
    /// How often transactions have counted.
    counter: u64,
    pub counts: Counts,
}

/// Figures of the checks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub acknowledged: u64,
    pub synced: u64,
    pub loads: u64,
    /// Loads that were running when the process was killed: surviving ones, and lost ones.
    pub loads_kept: u64,
    pub loads_lost: u64,
    /// Operations that were running when the process was killed: surviving ones, and lost ones.
    pub kept: u64,
    pub lost: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.acknowledged += other.acknowledged;
        self.synced += other.synced;
        self.loads += other.loads;
        self.loads_kept += other.loads_kept;
        self.loads_lost += other.loads_lost;
        self.kept += other.kept;
        self.lost += other.lost;
    }
}

impl Expected {
    pub fn new(seed: u64) -> Self {
        let next = [0; WRITERS];
        Expected {
            seed,
            next,
            own: Default::default(),
            shared: BTreeMap::new(),
            counter: 0,
            counts: Counts::default(),
        }
    }

    /// Compares everything `found` after run `run` was killed with the notes.
    pub fn judge(&mut self, directory: &Path, run: u64, found: &Map) -> Result<(), String> {
        let mut rest = found.clone();
        for writer in 0..WRITERS {
            let on_its_way = self.take_notes(directory, writer)?;
            let prefix = format!("w{writer}/").into_bytes();
            let own: Map = found
                .range(prefix.clone()..)
                .take_while(|(key, _)| key.starts_with(&prefix))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            rest.retain(|key, _| !key.starts_with(&prefix));
            if let Some((number, begun)) = on_its_way {
                let mut with = self.own[writer].clone();
                let operation = operation(self.seed, writer, number);
                apply(&mut with, &operation);
                if own == with {
                    self.counts.kept += 1;
                    self.counts.loads_kept += u64::from(operation.load);
                    self.own[writer] = with;
                    self.counter += u64::from(operation.counts());
                    self.note_shared(&operation, begun, first_moment(run + 1) - 1);
                } else {
                    self.counts.lost += 1;
                    self.counts.loads_lost += u64::from(operation.load);
                }
            }
            if own != self.own[writer] {
                let what = difference(&self.own[writer], &own);
                let next = self.next[writer];
                return Err(format!(
                    "writer {writer} after {next} operations, {on_its_way:?} on its way: {what}"
                ));
            }
        }
        let counter = rest.remove(COUNTER).map_or(Ok(0), |text| text_of(&text).parse());
        if counter != Ok(self.counter) {
            return Err(format!("{counter:?} was counted, not {}", self.counter));
        }
        self.judge_shared(&rest)
    }

    /// Applies acknowledged operations; returns the number and the begin of the one that was not
    /// acknowledged.
    fn take_notes(
        &mut self,
        directory: &Path,
        writer: usize,
    ) -> Result<Option<(u64, Moment)>, String> {
        let notes = read_notes(directory, writer, self.next[writer]);
        let last = notes.len().saturating_sub(1);
        for (place, &(begun, acknowledged)) in notes.iter().enumerate() {
            let number = self.next[writer];
            self.next[writer] += 1;
            if acknowledged == 0 {
                assert_eq!(place, last, "notes after one that was not acknowledged");
                return Ok(Some((number, begun)));
            }
            let operation = operation(self.seed, writer, number);
            apply(&mut self.own[writer], &operation);
            self.counter += u64::from(operation.counts());
            self.note_shared(&operation, begun, acknowledged);
            self.counts.acknowledged += 1;
            self.counts.synced += u64::from(operation.sync);
            self.counts.loads += u64::from(operation.load);
        }
        Ok(None)
    }

    fn note_shared(&mut self, operation: &Operation, begun: Moment, acknowledged: Moment) {
        let shared: Vec<_> = (0..SHARED_KEYS).map(shared_key).collect();
        let mut written: BTreeMap<&Vec<u8>, Option<&Vec<u8>>> = BTreeMap::new();
        for range in &operation.ranges {
            let deleted = shared.iter().filter(|key| holds(range, key));
            written.extend(deleted.map(|key| (key, None)));
        }
        written.extend(operation.left().filter(|(key, _)| key.starts_with(b"all/")));
        for (key, value) in written {
            let writes = self.shared.entry(key.clone()).or_default();
            writes.retain(|earlier| earlier.acknowledged >= begun);
            writes.push(SharedWrite { begun, acknowledged, value: value.cloned() });
        }
    }

    fn judge_shared(&mut self, found: &Map) -> Result<(), String> {
        if let Some((key, _)) = found.iter().find(|(key, _)| !self.shared.contains_key(*key)) {
            return Err(format!("\"{}\" was never written", key.escape_ascii()));
        }
        for (key, writes) in &mut self.shared {
            let value = found.get(key);
            let last_begun = writes.iter().map(|write| write.begun).max().unwrap_or(0);
            let fits = |write: &SharedWrite| {
                write.acknowledged >= last_begun && write.value.as_ref() == value
            };
            match writes.iter().find(|write| fits(write)).cloned() {
                // From now on the last write is known.
                Some(last) => *writes = vec![last],
                None => {
                    let tag = value.map(|value| tag_of(value));
                    let key = key.escape_ascii();
                    return Err(format!("\"{key}\" holds {tag:?}, of {} writes", writes.len()));
                }
            }
        }
        Ok(())
    }
}

fn apply(map: &mut Map, operation: &Operation) {
    operation.ranges.iter().for_each(|range| remove_range(map, range));
    for (key, value) in operation.left().filter(|(key, _)| !key.starts_with(b"all/")) {
        match value.cloned() {
            Some(value) => map.insert(key.clone(), value),
            None => map.remove(key),
        };
    }
}

/// The writer and the operation that wrote a value.
fn tag_of(value: &[u8]) -> String {
    let tag = u64::from_le_bytes(value[..8].try_into().unwrap());
    format!("operation {} of writer {}", tag >> 8, tag & 0xff)
}

fn difference(expected: &Map, found: &Map) -> String {
    let keys = expected.keys().chain(found.keys());
    let of = |map: &Map, key: &Vec<u8>| map.get(key).map_or("nothing".into(), |v| tag_of(v));
    let differing = keys.filter(|key| expected.get(*key) != found.get(*key)).min();
    differing.map_or("nothing".into(), |key| {
        let (name, is, should) = (key.escape_ascii(), of(found, key), of(expected, key));
        format!("\"{name}\" holds {is}, not {should}")
    })
}
