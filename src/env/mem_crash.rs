//! What a crash leaves of a disk in memory.
//!
//! A file system may leave many states; a [`CrashModel`] says which, and a seed picks one of
//! them, always the same one. Seed 0 is the strictest: nothing survives that was not synced. The
//! other seeds first choose for each file and for the names how things went (nothing more
//! arrived, all of it, all up to some moment, or each sector as chance has it), so that whole
//! and half outcomes both come up often. Files are independent of each other.
//!
//! The state that is left is durable in full, as it is after a reboot; only a killed process
//! leaves unsynced changes, which a later power cut may still take.

use crate::base::sync::Arc;
use crate::env::mem_disk::{Contents, Disk, FileRef, MemFile, MemFileId, Names, overwrite};
use std::collections::HashMap;
use std::path::Path;

/// What is written as a whole or not at all.
const SECTOR_BYTES: usize = 512;

/// Which states a crash may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashModel {
    /// The process died and the system did not: every call made is there, synced or not.
    Kill,
    /// Power failed on a journaling file system (ext4, XFS). Names become durable in the order of
    /// the calls, so that a prefix of them survives, at least up to the last one whose directory
    /// was synced. Appended bytes survive as a prefix torn at 512 bytes; of bytes overwritten in
    /// place, each sector has its state of any moment since the last sync.
    Journal,
    /// Power failed, and only what POSIX promises holds. A change of names is durable only after
    /// a sync of its directory; unsynced changes and sectors survive in any combination; a file
    /// may have its new length and zeros for data.
    Posix,
}

/// The disk that is found after a crash now.
pub fn crash(disk: &Disk, model: CrashModel, seed: u64) -> Disk {
    if model == CrashModel::Kill {
        return disk.deep_copy();
    }
    let mut names = disk.durable.clone();
    let mut chance = Chance::new(seed, u64::MAX);
    let fate = Fate::draw(seed, &mut chance, disk.pending.len());
    for (index, name) in disk.pending.iter().enumerate() {
        let survives = match model {
            CrashModel::Kill => true,
            CrashModel::Journal => {
                name.order <= disk.ordered_through || index < fate.moment(disk.pending.len())
            }
            CrashModel::Posix => fate.keeps(index),
        };
        if survives {
            names.apply(&name.change);
        }
    }
    drop_unreachable(&mut names);
    let mut survivors: HashMap<MemFileId, FileRef> = HashMap::new();
    for file in names.files.values_mut() {
        let survivor = survivors.entry(file.id).or_insert_with(|| {
            MemFile::new(file.id, what_is_left(&file.contents.lock(), model, seed, file.id))
        });
        *file = Arc::clone(survivor);
    }
    Disk::with_names(names, disk.next_id)
}

/// A name counts only if all the directories on the way to it do.
fn drop_unreachable(names: &mut Names) {
    let all = names.directories.clone();
    let reached = |path: &Path| path.ancestors().skip(1).all(|above| all.contains(above));
    names.directories.retain(|path| reached(path));
    names.files.retain(|path, _| reached(path));
}

/// The bytes of a file after a power failure.
fn what_is_left(contents: &Contents, model: CrashModel, seed: u64, id: MemFileId) -> Contents {
    let pending = &contents.pending;
    if pending.is_empty() {
        let durable = || Arc::clone(&contents.durable);
        return Contents { live: durable(), durable: durable(), pending: Vec::new() };
    }
    let mut left = contents.durable.to_vec();
    let mut chance = Chance::new(seed, id);
    // Length and data go their own ways.
    let length = surviving_length(contents, model, seed, &mut chance);
    let fate = Fate::draw(seed, &mut chance, pending.len());
    for (index, write) in pending.iter().enumerate() {
        let end = write.offset + write.data.len();
        if left.len() < end {
            left.resize(end, 0);
        }
        let mut at = write.offset;
        if model == CrashModel::Journal && end > write.bytes_before {
            // Appended: there as far as the length reaches.
            let appended = write.bytes_before.max(write.offset);
            overwrite(&mut left, appended, &write.data[appended - write.offset..]);
        }
        while at < end {
            let sector = at / SECTOR_BYTES;
            let next = end.min((sector + 1) * SECTOR_BYTES);
            if fate.reaches(index, sector as u64, pending.len() + 1) {
                overwrite(&mut left, at, &write.data[at - write.offset..next - write.offset]);
            }
            at = next;
        }
    }
    left.resize(length, 0);
    Contents::durable(left)
}

/// How long a file is found to be: between the durable and the live length.
fn surviving_length(
    contents: &Contents,
    model: CrashModel,
    seed: u64,
    chance: &mut Chance,
) -> usize {
    let (durable, live) = (contents.durable.len(), contents.live.len());
    if seed == 0 {
        return durable;
    }
    let torn = |chance: &mut Chance| {
        let sectors = live.div_ceil(SECTOR_BYTES) - durable / SECTOR_BYTES;
        let sector = durable / SECTOR_BYTES + chance.below(sectors as u64 + 1) as usize;
        (sector * SECTOR_BYTES).clamp(durable, live)
    };
    match chance.below(4) {
        0 => durable,
        1 => live,
        // The length between two writes is no multiple of a sector, and POSIX has no objection.
        2 if model == CrashModel::Posix && !contents.pending.is_empty() => {
            let moment = chance.below(contents.pending.len() as u64) as usize;
            contents.pending[moment].bytes_before
        }
        _ => torn(chance),
    }
}

/// How far unsynced changes of one thing got.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// All changes before this one arrived, none after.
    Until(usize),
    /// Each part by itself, chosen by this number.
    Scattered(u64),
}

impl Fate {
    fn draw(seed: u64, chance: &mut Chance, changes: usize) -> Self {
        match if seed == 0 { 0 } else { chance.below(4) } {
            0 => Fate::Until(0),
            1 => Fate::Until(changes),
            2 => Fate::Until(chance.below(changes as u64 + 1) as usize),
            _ => Fate::Scattered(chance.next()),
        }
    }

    /// Where all stops, for what happens in order.
    fn moment(self, changes: usize) -> usize {
        match self {
            Fate::Until(end) => end,
            Fate::Scattered(number) => (number % (changes as u64 + 1)) as usize,
        }
    }

    /// Whether change `index` arrived, for what happens in no order.
    fn keeps(self, index: usize) -> bool {
        match self {
            Fate::Until(end) => index < end,
            Fate::Scattered(number) => Chance::new(number, index as u64).below(2) == 0,
        }
    }

    /// Whether change `index` reached `part`, which stopped at one of `moments` moments.
    fn reaches(self, index: usize, part: u64, moments: usize) -> bool {
        match self {
            Fate::Until(end) => index < end,
            Fate::Scattered(number) => {
                let mut chance = Chance::new(number, part);
                index < chance.below(moments as u64) as usize
            }
        }
    }
}

/// Numbers as if by chance, the same ones for the same seed (splitmix64).
#[derive(Debug)]
struct Chance(u64);

impl Chance {
    fn new(seed: u64, stream: u64) -> Self {
        let mut chance = Chance(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        chance.next();
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
