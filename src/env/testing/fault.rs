//! [`FaultEnv`]: an Env that makes calls of another one fail.
//!
//! A test runs once to count the calls, then once for each call with [`FaultEnv::fail_at`]. It
//! checks what the engine answers and what reopening finds. Calls are selected by the names in
//! [`READS`] and [`CHANGES`]; each call is counted, whether it fails or not. Dropping a file or a
//! lock is not a call. [`FaultEnv::changes`] lists the calls after the fault was set.
//!
//! There is one fault at a time. An Env must hide `EINTR` and short writes of the system, so they
//! do not show here: a fault of `EINTR` lets the call succeed, as the loop around an interrupted
//! call would. A short write fails after its first half, as when the disk fills up.

use crate::base::sync::{Arc, Mutex, MutexGuard};
use crate::env::api::Env;
use crate::env::layer::EnvLayer;
use crate::env::watched::{Call, WatchedEnv, Watcher};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// `EINTR`: the call was interrupted; every Env repeats such a call.
pub const EINTR: i32 = 4;
/// `EIO`: the device failed.
pub const EIO: i32 = 5;
/// `EMFILE`: the process has too many open files.
pub const EMFILE: i32 = 24;
/// `ENOSPC`: the disk is full.
pub const ENOSPC: i32 = 28;

/// The calls that do not change the disk.
pub const READS: [&str; 5] = ["open_random", "read_exact_at", "len", "list", "metadata"];

/// The calls that change the disk, make changes durable or lock.
pub const CHANGES: [&str; 11] = [
    "create_new",
    "write_at",
    "allocate_zeroed",
    "sync_data",
    "sync_all",
    "sync_dir",
    "rename",
    "remove",
    "hard_link",
    "create_dir",
    "lock",
];

/// A selection of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Every call of an Env and of its files.
    All,
    /// The calls of [`READS`].
    Reads,
    /// The calls of [`CHANGES`].
    Changes,
    /// The calls of one name.
    Named(&'static str),
}

impl Calls {
    fn includes(self, operation: &str) -> bool {
        match self {
            Calls::All => true,
            Calls::Reads => READS.contains(&operation),
            Calls::Changes => CHANGES.contains(&operation),
            Calls::Named(name) => name == operation,
        }
    }
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The call does nothing and returns this error of the system.
    Error(i32),
    /// The call does its work and returns this error nevertheless.
    ErrorAfter(i32),
    /// A write writes the first half of its bytes and returns [`ENOSPC`]. Any other call does
    /// nothing and returns that error.
    ShortWrite,
    /// This call and every later one do nothing and return [`EIO`]. The test then takes the disk
    /// with `MemEnv::power_cut`.
    PowerCut,
}

/// Which calls fail, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    kind: FaultKind,
    from_then_on: bool,
    among: Calls,
}

impl Fault {
    /// A fault for one call; later calls succeed.
    #[must_use]
    pub fn once(kind: FaultKind) -> Self {
        Fault { kind, from_then_on: false, among: Calls::All }
    }

    /// One call fails, and so does every later one.
    #[must_use]
    pub fn from_then_on(kind: FaultKind) -> Self {
        Fault { kind, from_then_on: true, among: Calls::All }
    }

    /// Counts and fails only these calls.
    #[must_use]
    pub fn among(self, among: Calls) -> Self {
        Fault { among, ..self }
    }
}

/// A call of [`CHANGES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The name of the call.
    pub operation: &'static str,
    /// The file or directory; of a rename or link the new name.
    pub path: PathBuf,
    /// How the call failed, if it was made to.
    pub fault: Option<FaultKind>,
}

/// An Env that forwards calls to another one and makes some fail. Clones share the fault.
///
/// ```
/// use siftdb::env::testing::{Calls, EIO, Fault, FaultEnv, FaultKind};
/// use siftdb::env::{Env, MemEnv};
/// use std::path::Path;
/// use std::sync::Arc;
///
/// let env = FaultEnv::new(Arc::new(MemEnv::new()));
/// let mut file = env.create_new(Path::new("/file"))?;
/// // The second sync from the start, counted from 0.
/// env.fail_at(1, Fault::once(FaultKind::Error(EIO)).among(Calls::Named("sync_data")));
/// file.sync_data()?;
/// assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(EIO));
/// file.sync_data()?;
/// assert_eq!(env.calls(), 4);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FaultEnv(WatchedEnv<Switch>);

impl FaultEnv {
    /// Wraps `inner`; no call fails yet.
    #[must_use]
    pub fn new(inner: Arc<dyn Env>) -> Self {
        FaultEnv(WatchedEnv { inner, watcher: Switch::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.watcher.0.lock()
    }

    /// Calls so far, reads included.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls_of(Calls::All)
    }

    /// Calls of this selection so far.
    #[must_use]
    pub fn calls_of(&self, calls: Calls) -> u64 {
        self.state().count(calls)
    }

    /// Makes call `n` fail, counted from 0 among the calls that the fault selects, since this Env
    /// was created. This replaces an earlier fault and ends a power cut.
    pub fn fail_at(&self, n: u64, fault: Fault) {
        let mut state = self.state();
        state.fault = Some((n, fault));
        state.fired = false;
        state.power_off = false;
        state.changes.clear();
    }

    /// Ends the fault: no further call fails.
    pub fn heal(&self) {
        let mut state = self.state();
        state.fault = None;
        state.power_off = false;
    }

    /// The calls of [`CHANGES`] since the fault was set, in order.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        self.state().changes.clone()
    }

    /// True once a call has failed because of the latest fault.
    #[must_use]
    pub fn has_fired(&self) -> bool {
        self.state().fired
    }
}

/// Counts calls and decides which fail; an Env and its files share it.
#[derive(Clone, Debug, Default)]
struct Switch(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    counts: BTreeMap<&'static str, u64>,
    fault: Option<(u64, Fault)>,
    fired: bool,
    power_off: bool,
    changes: Vec<Change>,
}

impl State {
    fn count(&self, calls: Calls) -> u64 {
        self.counts.iter().filter(|(name, _)| calls.includes(name)).map(|(_, count)| count).sum()
    }

    /// How the call that was just counted fails, if it does.
    fn fault_of(&mut self, operation: &str) -> Option<FaultKind> {
        if self.power_off {
            return Some(FaultKind::PowerCut);
        }
        let (n, fault) = self.fault?;
        if !fault.among.includes(operation) {
            return None;
        }
        let index = self.count(fault.among) - 1;
        if index != n && !(fault.from_then_on && index > n) {
            return None;
        }
        self.fired = true;
        self.power_off = fault.kind == FaultKind::PowerCut;
        Some(fault.kind)
    }
}

impl Switch {
    /// Counts a call on `path` and says how it fails, if it does.
    fn decide(&self, operation: &'static str, path: &Path) -> Option<FaultKind> {
        let mut state = self.0.lock();
        *state.counts.entry(operation).or_insert(0) += 1;
        let fault = state.fault_of(operation);
        if CHANGES.contains(&operation) {
            state.changes.push(Change { operation, path: path.to_path_buf(), fault });
        } else {
            debug_assert!(READS.contains(&operation));
        }
        fault
    }
}

impl Watcher for Switch {
    fn call<T>(&self, call: Call<'_>, mut make: impl FnMut(u64) -> io::Result<T>) -> io::Result<T> {
        let Call { operation, path, bytes } = call;
        let code = match self.decide(operation, path) {
            None | Some(FaultKind::Error(EINTR) | FaultKind::ErrorAfter(EINTR)) => {
                return make(bytes);
            }
            Some(FaultKind::Error(code)) => code,
            Some(FaultKind::ErrorAfter(code)) => make(bytes).map(|_| code)?,
            Some(FaultKind::ShortWrite) => {
                if matches!(operation, "write_at" | "allocate_zeroed") {
                    make(bytes / 2)?;
                }
                ENOSPC
            }
            Some(FaultKind::PowerCut) => EIO,
        };
        Err(io::Error::from_raw_os_error(code))
    }
}

impl EnvLayer for FaultEnv {
    fn inner(&self) -> &dyn Env {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use crate::env::api::{Env, LockMode};
    use crate::env::mem::MemEnv;
    use crate::env::testing::fault::{
        CHANGES, Calls, Change, EINTR, EIO, EMFILE, ENOSPC, Fault, FaultEnv, FaultKind, READS,
    };
    use std::io;
    use std::path::Path;
    use std::sync::Arc;

    /// Makes each kind of call once, in the order of the list; returns how each ended.
    fn script(env: &dyn Env) -> Vec<(&'static str, Option<i32>)> {
        let path = Path::new;
        let mut outcomes = Vec::new();
        let mut note = |name, error: Option<io::Error>| {
            outcomes.push((name, error.map(|error| error.raw_os_error().unwrap_or(0))));
        };
        note("lock", env.lock(path("/LOCK"), LockMode::Exclusive).err());
        note("create_dir", env.create_dir(path("/d")).err());
        match env.create_new(path("/a")) {
            Ok(mut file) => {
                note("create_new", None);
                note("write_at", file.write_at(0, b"12345678").err());
                note("allocate_zeroed", file.allocate_zeroed(8, 8).err());
                note("sync_data", file.sync_data().err());
                note("sync_all", file.sync_all().err());
            }
            Err(error) => note("create_new", Some(error)),
        }
        note("sync_dir", env.sync_dir(path("/")).err());
        note("hard_link", env.hard_link(path("/a"), path("/b")).err());
        note("rename", env.rename(path("/b"), path("/c")).err());
        note("list", env.list(path("/")).err());
        note("metadata", env.metadata(path("/a")).err());
        match env.open_random(path("/a")) {
            Ok(file) => {
                note("open_random", None);
                note("len", file.len().err());
                note("read_exact_at", file.read_exact_at(0, &mut [0; 1]).err());
            }
            Err(error) => note("open_random", Some(error)),
        }
        note("remove", env.remove(path("/a")).err());
        outcomes
    }

    fn fresh() -> (MemEnv, FaultEnv) {
        let mem = MemEnv::new();
        (mem.clone(), FaultEnv::new(Arc::new(mem)))
    }

    #[test]
    fn fault_env_counts_calls_by_name() {
        let (_, env) = fresh();
        assert!(script(&env).iter().all(|(_, error)| error.is_none()));
        assert_eq!(env.calls(), 16);
        assert_eq!(env.calls_of(Calls::Reads), READS.len() as u64);
        assert_eq!(env.calls_of(Calls::Changes), CHANGES.len() as u64);
        for name in READS.iter().chain(&CHANGES) {
            assert_eq!(env.calls_of(Calls::Named(name)), 1, "{name}");
        }
        assert!(!env.has_fired());
    }

    /// A call that is added to the traits must be counted and able to fail. This test fails first
    /// if it is not.
    #[test]
    fn every_call_of_the_traits_is_known() {
        let source = include_str!("../api.rs");
        let traits = source.split("pub trait ").skip(1).map(|text| text.split("\n}\n").next());
        let methods = traits.flatten().flat_map(|text| text.split("\n    fn ").skip(1));
        let names = methods.filter_map(|text| text.split('(').next());
        // `is_empty` asks for the length, two are hints, the others no calls on the file system.
        let others = [
            "is_empty",
            "expect_random_reads",
            "read_ahead",
            "absolute",
            "as_bytes",
            "change_signal",
            "id",
            "now",
            "try_clone",
        ];
        let mut names: Vec<_> = names.filter(|name| !others.contains(name)).collect();
        let mut known = [&READS[..], &CHANGES].concat();
        names.sort_unstable();
        known.sort_unstable();
        assert_eq!(names, known);
    }

    #[test]
    fn any_single_call_can_fail() {
        for n in 0..16 {
            let (_, env) = fresh();
            env.fail_at(n, Fault::once(FaultKind::Error(EMFILE)));
            let outcomes = script(&env);
            assert_eq!(outcomes[n as usize].1, Some(EMFILE), "{n}");
            assert!(env.has_fired());
            assert!(outcomes[..n as usize].iter().all(|(_, error)| error.is_none()));
            let injected = outcomes.iter().filter(|(_, error)| *error == Some(EMFILE));
            assert_eq!(injected.count(), 1, "once");
        }
    }

    #[test]
    fn lasting_faults_hit_every_matching_call() {
        let (_, env) = fresh();
        let changes = Fault::from_then_on(FaultKind::Error(ENOSPC)).among(Calls::Changes);
        env.fail_at(6, changes);
        for (at, (name, error)) in script(&env).into_iter().enumerate() {
            let fails = at >= 6 && CHANGES.contains(&name);
            assert_eq!(error, fails.then_some(ENOSPC), "{name}");
        }
        env.heal();
        env.remove(Path::new("/a")).unwrap();
    }

    #[test]
    fn a_power_cut_freezes_the_disk() {
        let (mem, env) = fresh();
        env.fail_at(0, Fault::once(FaultKind::PowerCut).among(Calls::Named("sync_all")));
        let outcomes = script(&env);
        let cut = outcomes.iter().position(|(name, _)| *name == "sync_all").unwrap();
        assert!(outcomes[..cut].iter().all(|(_, error)| error.is_none()));
        assert!(outcomes[cut..].iter().all(|(_, error)| *error == Some(EIO)));
        assert_eq!(mem.list_files(), [Path::new("/LOCK"), Path::new("/a")]);
        assert!(mem.power_cut().list_files().is_empty());
    }

    #[test]
    fn a_short_write_leaves_its_first_half() {
        let (mem, env) = fresh();
        env.fail_at(0, Fault::once(FaultKind::ShortWrite).among(Calls::Named("write_at")));
        let mut file = env.create_new(Path::new("/f")).unwrap();
        assert_eq!(file.write_at(0, b"12345").unwrap_err().raw_os_error(), Some(ENOSPC));
        assert_eq!(mem.read_file(Path::new("/f")).unwrap(), b"12");
        env.fail_at(0, Fault::once(FaultKind::ShortWrite).among(Calls::Named("allocate_zeroed")));
        assert_eq!(file.allocate_zeroed(2, 6).unwrap_err().raw_os_error(), Some(ENOSPC));
        assert_eq!(mem.read_file(Path::new("/f")).unwrap(), b"12\0\0\0");
    }

    #[test]
    fn changes_are_recorded_after_the_fault() {
        let (_, env) = fresh();
        env.create_dir(Path::new("/before")).unwrap();
        env.fail_at(0, Fault::once(FaultKind::Error(EIO)).among(Calls::Named("sync_all")));
        script(&env);
        let changes = env.changes();
        assert_eq!(changes.len(), CHANGES.len());
        let failed: Vec<_> = changes.iter().filter(|change| change.fault.is_some()).collect();
        let (path, fault) = ("/a".into(), Some(FaultKind::Error(EIO)));
        assert_eq!(failed, [&Change { operation: "sync_all", path, fault }]);
    }

    #[test]
    fn late_errors_keep_the_completed_work() {
        let (mem, env) = fresh();
        mem.write_file(Path::new("/a"), b"a");
        env.fail_at(0, Fault::once(FaultKind::ErrorAfter(EIO)));
        let error = env.rename(Path::new("/a"), Path::new("/b")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(EIO));
        assert_eq!(mem.list_files(), [Path::new("/b")]);
    }

    #[test]
    fn interrupted_calls_are_repeated() {
        let (_, env) = fresh();
        env.fail_at(0, Fault::from_then_on(FaultKind::Error(EINTR)));
        assert!(script(&env).iter().all(|(_, error)| error.is_none()));
        assert!(env.has_fired());
    }
}
