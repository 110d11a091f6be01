//! Checks whether the operations of several threads are linearizable.
//!
//! This is the search of Wing and Gong. It places an operation next if no unplaced operation ended
//! before it began, and if its answer fits the state. If none fits, it takes back the last
//! placement. Lowe's addition makes the search fast: it tries each set of placed operations with
//! its state only once. A history is linearizable if every operation can be placed between its
//! begin and its end. (Wing and Gong, "Testing and verifying concurrent objects", 1993; Lowe,
//! "Testing for linearizability", 2017.)
//!
//! An operation reads some keys in one moment, writes some in one step, or does both in one step;
//! get, put, delete, batch, scan and snapshot are all of that form. Every put has a number of its own. A history that fails
//! is made smaller before it is printed, by leaving out operations while the rest still fails.

use std::collections::HashSet;
use std::fmt::{self, Write};

/// Keys of a history, by number.
pub const KEYS: usize = 15;

/// The most operations of a history.
pub const OPERATIONS_MAX: usize = 128;

/// The value of a key: the number of its put, or nothing.
pub type Held = Option<u32>;

/// The whole store.
pub type State = [Held; KEYS];

/// Keys by number, each with the value written or read.
pub type Entries = Vec<(usize, Held)>;

/// What an operation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Writes in one step; of several writes to one key the last counts.
    Write(Entries),
    /// Reads at one moment. A key may occur twice, and then both values must be equal.
    Read(Entries),
    /// Writes in a step that found those entries.
    Change { found: Entries, written: Entries },
}

/// An operation with its time, counted in begins and ends of all operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// For display.
    pub thread: usize,
    /// For display: which call it was.
    pub name: &'static str,
    pub begun: u64,
    pub ended: u64,
    pub action: Action,
}

/// Operations in the order of their begin, and the state before them.
#[derive(Clone, Debug)]
pub struct History {
    pub before: State,
    operations: Vec<Operation>,
}

impl History {
    pub fn new(before: State, mut operations: Vec<Operation>) -> Self {
        assert!(operations.len() <= OPERATIONS_MAX, "{} operations", operations.len());
        assert!(operations.iter().all(|operation| operation.begun < operation.ended));
        operations.sort_by_key(|operation| operation.begun);
        History { before, operations }
    }

    /// Operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Operations that another one overlaps.
    pub fn overlapping(&self) -> usize {
        let operations = self.operations.iter().enumerate();
        let overlaps = |(place, one): &(usize, &Operation)| {
            let others = self.operations.iter().enumerate().filter(|(other, _)| other != place);
            others.into_iter().any(|(_, other)| other.begun < one.ended && one.begun < other.ended)
        };
        operations.filter(overlaps).count()
    }

    /// True if some order explains all answers.
    pub fn is_linearizable(&self) -> bool {
        let all = self.operations.len();
        let mut placed = Placed::default();
        let mut state = self.before;
        // The placed operations, in order, each with the state before it.
        let mut stack: Vec<(usize, State)> = Vec::new();
        let mut tried: HashSet<(Placed, State)> = HashSet::new();
        let mut from = 0;
        while stack.len() < all {
            match self.next_candidate(&placed, &state, from) {
                Some((operation, next)) if tried.insert((placed.with(operation), next)) => {
                    placed = placed.with(operation);
                    stack.push((operation, state));
                    (state, from) = (next, 0);
                }
                Some((operation, _)) => from = operation + 1,
                None => {
                    let Some((operation, before)) = stack.pop() else { return false };
                    placed = placed.without(operation);
                    (state, from) = (before, operation + 1);
                }
            }
        }
        true
    }

    /// The first operation from `from` on that may be placed next and fits, and the state after it.
    fn next_candidate(
        &self,
        placed: &Placed,
        state: &State,
        from: usize,
    ) -> Option<(usize, State)> {
        let unplaced =
            || self.operations.iter().enumerate().filter(|(place, _)| !placed.has(*place));
        let first_end = unplaced().map(|(_, operation)| operation.ended).min()?;
        let minimal = unplaced().take_while(|(_, operation)| operation.begun < first_end);
        let mut candidates = minimal.filter(|(place, _)| *place >= from);
        candidates.find_map(|(place, operation)| Some((place, after(&operation.action, state)?)))
    }

    /// Leaves out operations and keys while no order is possible; returns what is left.
    pub fn minimized(&self) -> History {
        let mut history = self.clone();
        loop {
            let before = history.size();
            for place in (0..history.operations.len()).rev() {
                history.shrink_at(place);
            }
            if history.size() == before {
                return history;
            }
        }
    }

    fn size(&self) -> usize {
        let entries = |operation: &Operation| match &operation.action {
            Action::Read(entries) | Action::Write(entries) => 1 + entries.len(),
            Action::Change { found, written } => 1 + found.len() + written.len(),
        };
        self.operations.iter().map(entries).sum()
    }

    /// Leaves out an operation, or some keys of a read, if still no order is possible. Both are
    /// sound: an order of the whole history would be an order of the rest.
    fn shrink_at(&mut self, place: usize) {
        let Some(operation) = self.operations.get(place) else { return };
        let entries = match &operation.action {
            Action::Read(entries) => entries.clone(),
            Action::Write(written) | Action::Change { written, .. } => {
                if written.iter().any(|entry| self.is_read(place, entry)) {
                    return;
                }
                Vec::new()
            }
        };
        let mut without = self.clone();
        without.operations.remove(place);
        if !without.is_linearizable() {
            *self = without;
            return;
        }
        for kept in (0..entries.len()).rev() {
            let mut smaller = self.clone();
            if let Some(Operation { action: Action::Read(entries), .. }) =
                smaller.operations.get_mut(place)
                && kept < entries.len()
            {
                entries.remove(kept);
                if !smaller.is_linearizable() {
                    *self = smaller;
                }
            }
        }
    }

    /// Whether a read may have returned this entry of a write.
    fn is_read(&self, writer: usize, entry: &(usize, Held)) -> bool {
        let others = self.operations.iter().enumerate().filter(|(place, _)| *place != writer);
        others.into_iter().any(|(_, operation)| match &operation.action {
            Action::Read(found) | Action::Change { found, .. } => found.contains(entry),
            Action::Write(_) => false,
        })
    }
}

/// The state after an action; `None` if the action read something else.
fn after(action: &Action, state: &State) -> Option<State> {
    let (found, written): (&[_], &[_]) = match action {
        Action::Read(found) => (found, &[]),
        Action::Write(written) => (&[], written),
        Action::Change { found, written } => (found, written),
    };
    if found.iter().any(|&(key, held)| state[key] != held) {
        return None;
    }
    let mut next = *state;
    written.iter().for_each(|&(key, held)| next[key] = held);
    Some(next)
}

/// A set of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Placed(u128);

impl Placed {
    fn has(self, operation: usize) -> bool {
        self.0 >> operation & 1 == 1
    }

    fn with(self, operation: usize) -> Self {
        Placed(self.0 | 1 << operation)
    }

    fn without(self, operation: usize) -> Self {
        Placed(self.0 & !(1 << operation))
    }
}

fn entry(&(key, held): &(usize, Held)) -> String {
    let name = (b'a' + key as u8) as char;
    held.map_or(format!("{name}=-"), |number| format!("{name}={number}"))
}

/// One line an operation: its time from begin to end, its thread, its call, and for each key
/// (`a` is the first) what was written or found there, `-` for nothing.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.before.iter().copied().enumerate().filter(|(_, held)| held.is_some());
        let before: Vec<String> = before.map(|held| entry(&held)).collect();
        writeln!(f, "before: {}", before.join(" "))?;
        for operation in &self.operations {
            let Operation { thread, name, begun, ended, action } = operation;
            let parts: &[(&str, &Entries)] = match action {
                Action::Write(written) => &[("writes", written)],
                Action::Read(found) => &[("finds ", found)],
                Action::Change { found, written } => &[("finds ", found), ("writes", written)],
            };
            let mut line = format!("{begun:>4} to {ended:>4}  thread {thread}  {name:<16}");
            for (kind, entries) in parts {
                write!(line, " {kind}")?;
                for shown in *entries {
                    write!(line, " {}", entry(shown))?;
                }
            }
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}
