//! What a crash leaves of a [`MemEnv`].
//!
//! [`MemEnv::with_log`] records every change, so that one run of a program yields every state that
//! a crash may leave: [`MemEnv::replay`] repeats the first changes and crashes there, as a
//! [`CrashModel`] says. [`MemEnv::power_cut`] is the strictest crash, now.
//!
//! A seed picks one of the states of a model, always the same one. Seed 0 is the strictest: nothing
//! survives that was not synced. Other seeds first choose an outcome for each file and for the
//! names: nothing more arrived, everything, everything up to some moment, or each sector at random.
//! So whole and half outcomes both come up often. Files are independent of each other.
//!
//! The disk after a crash is a disk of its own: unlocked, with an empty log, and changes to one are
//! not seen by the other. All of it is durable, as after a reboot. Only [`CrashModel::Kill`] leaves
//! unsynced changes, which a later power cut may still take.

use crate::base::sync::Arc;
use crate::env::mem::MemEnv;
use crate::env::mem_disk::{Contents, Disk, FileRef, MemFile, MemFileId, Names, Op, overwrite};
use std::collections::HashMap;
use std::path::Path;

/// The unit that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// Which states a crash may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashModel {
    /// The process died and the system did not: every call survives, synced or not.
    Kill,
    /// Power failed on a journaling file system (ext4, XFS). Changes of names become durable in the
    /// order of the calls, so a prefix of them survives, at least up to the last change whose
    /// directory was synced. Of appended bytes a prefix survives, torn at 512 bytes. Each sector
    /// that was overwritten in place has its state of any moment since the last sync.
    Journal,
    /// Power failed, and the file system keeps only the promises of POSIX. A change of names is
    /// durable only after a sync of its directory. Unsynced changes and sectors survive in any
    /// combination. A file may have its new length, and zeros instead of its data.
    Posix,
}

impl MemEnv {
    /// An empty file system that records every change for [`MemEnv::replay`].
    #[must_use]
    pub fn with_log() -> Self {
        MemEnv::with_disk(Disk::new(), true)
    }

    /// Calls in the log.
    #[must_use]
    pub fn log_len(&self) -> usize {
        self.shared.state.lock().log.as_ref().map_or(0, |log| log.calls.len())
    }

    /// The calls in the log, one line each, for the message of a failed test.
    #[must_use]
    pub fn log_text(&self) -> Vec<String> {
        let state = self.shared.state.lock();
        let calls = state.log.iter().flat_map(|log| &log.calls);
        calls
            .map(|call| match call {
                Op::Write { id, offset, data } => {
                    format!("Write {{ id: {id}, offset: {offset}, bytes: {} }}", data.len())
                }
                Op::Put { path, data } => {
                    format!("Put {{ path: {path:?}, bytes: {} }}", data.len())
                }
                call => format!("{call:?}"),
            })
            .collect()
    }

    /// The file system after power failed now. Everything unsynced is lost: the change of a name
    /// counts only if its directory was synced since, and bytes only if their file was.
    #[must_use]
    pub fn power_cut(&self) -> MemEnv {
        let state = self.shared.state.lock();
        MemEnv::with_disk(crash(&state.disk, CrashModel::Posix, 0), state.log.is_some())
    }

    /// A disk as a crash may leave it that comes after the first `upto_call` calls of the log, or
    /// after all of them if there are fewer. The same arguments give the same disk.
    #[must_use]
    pub fn replay(&self, upto_call: usize, model: CrashModel, seed: u64) -> MemEnv {
        let mut walk = self.walk_log();
        walk.advance_to(upto_call);
        walk.crash(model, seed)
    }

    /// Runs the log again, call by call: for crashes at many places of one log.
    #[must_use]
    pub fn walk_log(&self) -> LogWalk {
        let state = self.shared.state.lock();
        let (disk, calls, keeps_log) = match &state.log {
            Some(log) => (log.base.deep_copy(), log.calls.clone(), true),
            None => (state.disk.deep_copy(), Vec::new(), false),
        };
        LogWalk { disk, calls, keeps_log, at: 0 }
    }
}

/// A disk that makes the calls of a log again; see [`MemEnv::walk_log`].
#[derive(Debug)]
pub struct LogWalk {
    disk: Disk,
    calls: Vec<Op>,
    keeps_log: bool,
    at: usize,
}

impl LogWalk {
    /// Goes on to where the first `call` calls are made, or all if there are fewer; never back.
    pub fn advance_to(&mut self, call: usize) {
        while self.at < call.min(self.calls.len()) {
            // Only calls that worked are in the log, and each finds what it found then.
            let again = self.disk.run(&self.calls[self.at]);
            debug_assert!(again.is_ok(), "{:?}: {again:?}", self.calls[self.at]);
            self.at += 1;
        }
    }

    /// A disk as a crash here may leave it. The same arguments give the same disk.
    #[must_use]
    pub fn crash(&self, model: CrashModel, seed: u64) -> MemEnv {
        MemEnv::with_disk(crash(&self.disk, model, seed), self.keeps_log)
    }
}

/// The disk that is found after a crash now.
fn crash(disk: &Disk, model: CrashModel, seed: u64) -> Disk {
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

/// Drops names whose directories do not exist.
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
    // Length and data survive independently of each other.
    let length = surviving_length(contents, model, seed, &mut chance);
    let fate = Fate::draw(seed, &mut chance, pending.len());
    for (index, write) in pending.iter().enumerate() {
        let end = write.offset + write.data.len();
        if left.len() < end {
            left.resize(end, 0);
        }
        let mut at = write.offset;
        if model == CrashModel::Journal && end > write.bytes_before {
            // Appended bytes survive as far as the length reaches.
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

/// The length of the file after the crash: between the durable and the live length.
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
        // POSIX also allows the length between two writes, which is no multiple of a sector.
        2 if model == CrashModel::Posix && !contents.pending.is_empty() => {
            let moment = chance.below(contents.pending.len() as u64) as usize;
            contents.pending[moment].bytes_before
        }
        _ => torn(chance),
    }
}

/// How far the unsynced changes of one file, or of the names, got.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// All changes before this one arrived, none after.
    Until(usize),
    /// Each part by itself, at random; the number is the seed.
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

    /// The number of changes that survived, if changes survive in order.
    fn moment(self, changes: usize) -> usize {
        match self {
            Fate::Until(end) => end,
            Fate::Scattered(number) => (number % (changes as u64 + 1)) as usize,
        }
    }

    /// Whether change `index` arrived, where they arrive in any order.
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

/// Pseudo-random numbers (splitmix64).
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::api::{Env, LockMode, WritableFile};
    use std::collections::BTreeSet;
    use std::io;

    fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
        result.err().expect("it must fail").kind()
    }

    const SEEDS: std::ops::Range<u64> = 1..400;

    fn path(text: &str) -> &Path {
        Path::new(text)
    }

    /// A durable, empty file that is still open.
    fn durable(env: &MemEnv, name: &str) -> Box<dyn WritableFile> {
        let file = env.create_new(path(name)).unwrap();
        env.sync_dir(path(name).parent().unwrap()).unwrap();
        file
    }

    /// The states that the seeds reach, as `look` sees them.
    fn states<T: Ord>(env: &MemEnv, model: CrashModel, look: impl Fn(&MemEnv) -> T) -> BTreeSet<T> {
        SEEDS.map(|seed| look(&env.replay(usize::MAX, model, seed))).collect()
    }

    fn files(env: &MemEnv) -> Vec<String> {
        env.list_files().iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn a_power_cut_loses_unsynced_names() {
        let env = MemEnv::with_log();
        let mut file = env.create_new(path("/f")).unwrap();
        file.write_at(0, b"x").unwrap();
        file.sync_all().unwrap();
        assert!(files(&env.power_cut()).is_empty());
        env.sync_dir(path("/")).unwrap();
        assert_eq!(env.power_cut().read_file(path("/f")).unwrap(), b"x");
        env.rename(path("/f"), path("/g")).unwrap();
        assert_eq!(files(&env.power_cut()), ["/f"]);
        env.sync_dir(path("/")).unwrap();
        assert_eq!(files(&env.power_cut()), ["/g"]);
        env.remove(path("/g")).unwrap();
        assert_eq!(files(&env.power_cut()), ["/g"]);
        env.sync_dir(path("/")).unwrap();
        assert!(files(&env.power_cut()).is_empty());
    }

    #[test]
    fn a_power_cut_loses_unsynced_bytes() {
        let env = MemEnv::with_log();
        let mut file = durable(&env, "/f");
        assert_eq!(env.power_cut().read_file(path("/f")).unwrap(), b"");
        file.write_at(0, b"abc").unwrap();
        file.sync_data().unwrap();
        file.write_at(1, b"BCD").unwrap();
        assert_eq!(env.read_file(path("/f")).unwrap(), b"aBCD");
        assert_eq!(env.power_cut().read_file(path("/f")).unwrap(), b"abc");
        file.sync_all().unwrap();
        assert_eq!(env.power_cut().read_file(path("/f")).unwrap(), b"aBCD");
    }

    #[test]
    fn directories_need_a_sync_of_their_parent() {
        let env = MemEnv::with_log();
        env.create_dir(path("/db")).unwrap();
        durable(&env, "/db/f").sync_all().unwrap();
        let after = env.power_cut();
        assert!(files(&after).is_empty());
        assert_eq!(kind(after.list(path("/db"))), io::ErrorKind::NotFound);
        env.sync_dir(path("/")).unwrap();
        assert_eq!(files(&env.power_cut()), ["/db/f"]);
    }

    #[test]
    fn moves_between_directories_need_both_synced() {
        let env = MemEnv::with_log();
        env.create_dir(path("/a")).unwrap();
        env.create_dir(path("/b")).unwrap();
        env.sync_dir(path("/")).unwrap();
        drop(durable(&env, "/a/f"));
        env.rename(path("/a/f"), path("/b/f")).unwrap();
        env.sync_dir(path("/b")).unwrap();
        assert_eq!(files(&env.power_cut()), ["/a/f", "/b/f"]);
        env.sync_dir(path("/a")).unwrap();
        assert_eq!(files(&env.power_cut()), ["/b/f"]);
    }

    #[test]
    fn a_crashed_disk_is_independent_and_unlocked() {
        let env = MemEnv::with_log();
        let _lock = env.lock(path("/LOCK"), LockMode::Exclusive).unwrap();
        let mut file = durable(&env, "/f");
        for model in [CrashModel::Kill, CrashModel::Journal, CrashModel::Posix] {
            let after = env.replay(usize::MAX, model, 0);
            let _lock = after.lock(path("/LOCK"), LockMode::Exclusive).unwrap();
            assert_eq!(after.log_len(), 0);
            after.remove(path("/f")).unwrap();
            assert_eq!(files(&env), ["/LOCK", "/f"]);
            file.write_at(0, b"later").unwrap();
        }
        assert_eq!(env.clone().read_file(path("/f")).unwrap(), b"later");
    }

    #[test]
    fn a_kill_keeps_unsynced_calls() {
        let env = MemEnv::with_log();
        let mut file = env.create_new(path("/f")).unwrap();
        file.write_at(0, b"x").unwrap();
        let killed = env.replay(2, CrashModel::Kill, 7);
        assert_eq!(killed.read_file(path("/f")).unwrap(), b"x");
        assert_eq!(env.replay(1, CrashModel::Kill, 7).read_file(path("/f")).unwrap(), b"");
        assert!(files(&env.replay(0, CrashModel::Kill, 7)).is_empty());
        assert!(files(&killed.power_cut()).is_empty());
        // And its own log starts with the unsynced changes.
        killed.sync_dir(path("/")).unwrap();
        assert_eq!(killed.replay(0, CrashModel::Kill, 0).read_file(path("/f")).unwrap(), b"x");
        assert!(files(&killed.replay(0, CrashModel::Posix, 0)).is_empty());
        assert_eq!(killed.replay(1, CrashModel::Posix, 0).read_file(path("/f")).unwrap(), b"");
    }

    #[test]
    fn seed_zero_loses_the_most() {
        let env = MemEnv::with_log();
        let mut file = durable(&env, "/f");
        file.write_at(0, b"abc").unwrap();
        file.sync_data().unwrap();
        file.write_at(0, &[7; 2000]).unwrap();
        drop(env.create_new(path("/g")).unwrap());
        for model in [CrashModel::Journal, CrashModel::Posix] {
            let after = env.replay(usize::MAX, model, 0);
            assert_eq!(files(&after), ["/f"]);
            assert_eq!(after.read_file(path("/f")).unwrap(), b"abc");
        }
    }

    #[test]
    fn synced_data_survives_every_crash() {
        let env = MemEnv::with_log();
        let mut file = durable(&env, "/f");
        file.write_at(0, &[1; 1500]).unwrap();
        file.sync_data().unwrap();
        let calls = env.log_len();
        file.write_at(1500, &[2; 1500]).unwrap();
        drop(env.create_new(path("/g")).unwrap());
        for model in [CrashModel::Kill, CrashModel::Journal, CrashModel::Posix] {
            for seed in SEEDS {
                for upto in calls..=env.log_len() {
                    let after = env.replay(upto, model, seed).read_file(path("/f")).unwrap();
                    assert!(after.len() >= 1500 && after[..1500].iter().all(|b| *b == 1));
                }
            }
        }
    }

    #[test]
    fn journal_names_survive_as_a_prefix() {
        let env = MemEnv::with_log();
        for name in ["/a", "/b", "/c"] {
            drop(env.create_new(path(name)).unwrap());
        }
        let seen = states(&env, CrashModel::Journal, files);
        let expected: [&[&str]; 4] = [&[], &["/a"], &["/a", "/b"], &["/a", "/b", "/c"]];
        assert_eq!(
            seen,
            expected.map(|names| names.iter().map(|n| n.to_string()).collect()).into()
        );
    }

    #[test]
    fn journal_one_directory_sync_settles_earlier_names() {
        let env = MemEnv::with_log();
        env.create_dir(path("/db")).unwrap();
        drop(env.create_new(path("/early")).unwrap());
        drop(durable(&env, "/db/f"));
        drop(env.create_new(path("/late")).unwrap());
        let seen = states(&env, CrashModel::Journal, files);
        assert!(seen.iter().all(|names| names.starts_with(&["/db/f".into(), "/early".into()])));
        assert_eq!(seen.len(), 2);
        assert!(files(&env.power_cut()).is_empty(), "POSIX does not promise that");
    }

    #[test]
    fn journal_appends_survive_as_a_torn_prefix() {
        let env = MemEnv::with_log();
        let mut file = durable(&env, "/f");
        file.write_at(0, &[1; 700]).unwrap();
        file.sync_data().unwrap();
        file.write_at(700, &[2; 600]).unwrap();
        file.write_at(1300, &[3; 900]).unwrap();
        let whole = env.read_file(path("/f")).unwrap();
        let seen = states(&env, CrashModel::Journal, |after| after.read_file(path("/f")).unwrap());
        assert!(seen.iter().all(|bytes| whole.starts_with(bytes)));
        let lengths: Vec<usize> = seen.iter().map(Vec::len).collect();
        assert_eq!(lengths, [700, 1024, 1536, 2048, 2200]);
    }

    #[test]
    fn journal_overwritten_sectors_survive_in_any_combination() {
        let env = MemEnv::with_log();
        let mut file = durable(&env, "/f");
        file.allocate_zeroed(0, 1536).unwrap();
        file.sync_all().unwrap();
        file.write_at(100, &[1; 1000]).unwrap();
        file.write_at(1100, &[2; 300]).unwrap();
        let seen = states(&env, CrashModel::Journal, |after| {
            let bytes = after.read_file(path("/f")).unwrap();
            assert_eq!(bytes.len(), 1536);
            [bytes[100], bytes[511], bytes[512], bytes[1023], bytes[1024], bytes[1100]]
        });
        // Sectors 0 and 1 were written once, sector 2 twice: 2 * 2 * 3 states, each whole.
        assert!(seen.iter().all(|s| s[0] == s[1] && s[2] == s[3] && (s[4] == 1 || s[5] == 0)));
        assert_eq!(seen.len(), 12);
    }

    #[test]
    fn posix_unsynced_names_survive_in_any_combination() {
        let env = MemEnv::with_log();
        drop(durable(&env, "/old"));
        drop(env.create_new(path("/a")).unwrap());
        drop(env.create_new(path("/b")).unwrap());
        env.remove(path("/old")).unwrap();
        assert_eq!(states(&env, CrashModel::Posix, files).len(), 8);
    }

    #[test]
    fn posix_renames_are_atomic_but_unordered() {
        let env = MemEnv::with_log();
        for (name, text) in [("/CURRENT", "old"), ("/new", "new"), ("/MANIFEST", "")] {
            env.write_file(path(name), text.as_bytes());
        }
        env.rename(path("/new"), path("/CURRENT")).unwrap();
        env.remove(path("/MANIFEST")).unwrap();
        let seen = states(&env, CrashModel::Posix, |after| {
            (after.read_file(path("/CURRENT")).unwrap(), files(after))
        });
        assert_eq!(seen.len(), 4);
        for (current, names) in seen {
            assert_eq!(current == b"old", names.contains(&"/new".to_string()));
        }
    }

    #[test]
    fn posix_files_may_grow_by_zeros() {
        let env = MemEnv::with_log();
        let mut file = durable(&env, "/f");
        file.write_at(0, &[1; 300]).unwrap();
        file.write_at(300, &[2; 900]).unwrap();
        let seen = states(&env, CrashModel::Posix, |after| after.read_file(path("/f")).unwrap());
        assert!(seen.contains(&vec![0; 1200]), "size and no data");
        assert!(seen.contains(&Vec::new()), "neither");
        assert!(seen.contains(&env.read_file(path("/f")).unwrap()), "both");
        assert!(seen.iter().any(|b| b.len() == 300), "the size between two writes");
        assert!(seen.iter().any(|b| b.len() == 1200 && b[0] == 0 && b[600] == 2), "a hole");
        assert!(seen.iter().any(|b| b.len() > 512 && b[299] == 1 && b[300] == 0), "half a sector");
    }

    #[test]
    fn a_seed_determines_the_crashed_disk() {
        let env = MemEnv::with_log();
        for name in ["/a", "/b"] {
            durable(&env, name).write_at(0, &[1; 5000]).unwrap();
        }
        let look =
            |after: &MemEnv| [path("/a"), path("/b")].map(|path| after.read_file(path).unwrap());
        for model in [CrashModel::Journal, CrashModel::Posix] {
            for seed in 0..20 {
                let [first, again] = [(); 2].map(|()| look(&env.replay(usize::MAX, model, seed)));
                assert_eq!(first, again);
            }
            assert!(states(&env, model, look).iter().any(|[a, b]| a != b));
        }
    }

    #[test]
    fn replaying_every_call_gives_the_present() {
        let env = MemEnv::with_log();
        let mut file = durable(&env, "/a");
        env.hard_link(path("/a"), path("/b")).unwrap();
        file.write_at(0, b"12").unwrap();
        env.write_file(path("/x/y"), b"hook");
        env.rename(path("/b"), path("/x/b")).unwrap();
        drop(env.lock(path("/LOCK"), LockMode::Shared).unwrap());
        let mut later = env.create_new(path("/later")).unwrap();
        later.write_at(1, b"!").unwrap();
        env.remove_file(path("/gone"));
        drop(env.create_new(path("/a")).unwrap_err());
        let again = env.replay(env.log_len(), CrashModel::Kill, 0);
        assert_eq!(files(&again), files(&env));
        for name in env.list_files() {
            assert_eq!(again.read_file(&name), env.read_file(&name), "{name:?}");
        }
        assert_eq!(env.log_text().len(), env.log_len());
        assert_eq!(files(&again.power_cut()), files(&env.power_cut()));
    }

    #[test]
    fn hooks_change_files_durably() {
        let env = MemEnv::with_log();
        env.write_file(path("/db/f"), b"one");
        env.write_file(path("/db/f"), b"two");
        assert_eq!(env.power_cut().read_file(path("/db/f")).unwrap(), b"two");
        assert_eq!(env.read_file(path("/db")), None);
        env.remove_file(path("/db/f"));
        assert!(files(&env.power_cut()).is_empty());
        assert!(env.list(path("/db")).unwrap().is_empty());
    }

    #[test]
    fn logging_does_not_change_a_power_cut() {
        for env in [MemEnv::with_log(), MemEnv::new()] {
            let mut file = durable(&env, "/f");
            file.write_at(0, b"x").unwrap();
            file.sync_data().unwrap();
            file.write_at(0, b"y").unwrap();
            drop(env.create_new(path("/g")).unwrap());
            assert_eq!(env.power_cut().read_file(path("/f")).unwrap(), b"x");
            assert_eq!(files(&env.power_cut()), ["/f"]);
            assert_eq!(files(&env.replay(usize::MAX, CrashModel::Kill, 0)), ["/f", "/g"]);
        }
        assert_eq!(MemEnv::new().log_len(), 0);
    }
}
