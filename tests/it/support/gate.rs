//! An Env with a gate: reads, opens or syncs block at it until the test opens it.

use crate::support::stores::name;
use siftdb::env::{Env, EnvLayer, RandomFile, WritableFile};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

/// The calls that block at a shut gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stops {
    /// Reads of files.
    Reads,
    /// Syncs of files.
    Syncs,
    /// Syncs of files with this in their names.
    SyncsOf(&'static str),
    /// The same syncs, when they are done and before they return.
    SyncedOf(&'static str),
    /// Opening files with this in their names.
    Opens(&'static str),
    /// Syncs of directories.
    DirectorySyncs,
}

impl Stops {
    fn includes(self, call: Stops, path: &Path) -> bool {
        match self {
            Stops::SyncsOf(part) => call == Stops::Syncs && name(path).contains(part),
            Stops::SyncedOf(part) => call == Stops::SyncedOf("") && name(path).contains(part),
            Stops::Opens(part) => call == Stops::Opens("") && name(path).contains(part),
            _ => self == call,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    shut: Option<Stops>,
    waiting: usize,
}

/// The gate. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<State>, Condvar)>);

impl Gate {
    /// From now on these calls block.
    pub fn shut(&self, what: Stops) {
        self.0.0.lock().unwrap().shut = Some(what);
    }

    /// Waits until a call blocks at the gate.
    pub fn wait_for_a_call(&self) {
        let (state, changed) = &*self.0;
        drop(changed.wait_while(state.lock().unwrap(), |state| state.waiting == 0).unwrap());
    }

    /// Lets all calls through.
    pub fn open(&self) {
        let (state, changed) = &*self.0;
        state.lock().unwrap().shut = None;
        changed.notify_all();
    }

    fn pass(&self, call: Stops, path: &Path) {
        let is_shut = |state: &State| state.shut.is_some_and(|shut| shut.includes(call, path));
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        if !is_shut(&state) {
            return;
        }
        state.waiting += 1;
        changed.notify_all();
        let mut state = changed.wait_while(state, |state| is_shut(state)).unwrap();
        state.waiting -= 1;
    }
}

/// Opens the gates, also if an assertion fails while they are shut.
pub struct OpensOnDrop<'a, const N: usize>(pub [&'a Gate; N]);

impl<const N: usize> Drop for OpensOnDrop<'_, N> {
    fn drop(&mut self) {
        self.0.iter().for_each(|gate| gate.open());
    }
}

/// An Env whose calls wait at a gate.
#[derive(Clone, Debug)]
pub struct GateEnv {
    inner: Arc<dyn Env>,
    gate: Gate,
}

impl GateEnv {
    pub fn new(inner: Arc<dyn Env>, gate: &Gate) -> Self {
        GateEnv { inner, gate: gate.clone() }
    }
}

impl EnvLayer for GateEnv {
    fn inner(&self) -> &dyn Env {
        &*self.inner
    }

    fn open_random(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        self.gate.pass(Stops::Opens(""), path);
        let inner = self.inner.open_random(path)?;
        Ok(Arc::new(GateRandom { inner, path: path.into(), gate: self.gate.clone() }))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.gate.pass(Stops::DirectorySyncs, path);
        self.inner.sync_dir(path)
    }

    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let inner = self.inner.create_new(path)?;
        Ok(Box::new(GateWritable { inner, path: path.into(), gate: self.gate.clone() }))
    }
}

#[derive(Debug)]
struct GateRandom {
    inner: Arc<dyn RandomFile>,
    path: PathBuf,
    gate: Gate,
}

impl RandomFile for GateRandom {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.gate.pass(Stops::Reads, &self.path);
        self.inner.read_exact_at(offset, buffer)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
}

#[derive(Debug)]
struct GateWritable {
    inner: Box<dyn WritableFile>,
    path: PathBuf,
    gate: Gate,
}

impl WritableFile for GateWritable {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, data)
    }

    fn allocate_zeroed(&mut self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.allocate_zeroed(offset, bytes)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.gate.pass(Stops::Syncs, &self.path);
        let synced = self.inner.sync_data();
        self.gate.pass(Stops::SyncedOf(""), &self.path);
        synced
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.gate.pass(Stops::Syncs, &self.path);
        self.inner.sync_all()
    }

    fn try_clone(&self) -> io::Result<Box<dyn WritableFile>> {
        let (inner, path) = (self.inner.try_clone()?, self.path.clone());
        Ok(Box::new(GateWritable { inner, path, gate: self.gate.clone() }))
    }
}
