//! The workloads, by the names that the field uses: those of LevelDB's `db_bench`, and the core
//! workloads A to F of YCSB. A workload is a mix of actions; it does not know the store.

use crate::experiment::bench::draw::Distribution;

/// The kind of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Writes the next entries in the workload's order; ends after the last one.
    Fill,
    /// Writes an entry that is there.
    Overwrite,
    /// Writes an entry that was never there.
    Insert,
    /// Looks up a key, which is there by the hit ratio.
    Get,
    /// Looks up as many keys as a batch has, each there by the hit ratio.
    MultiGet,
    /// Looks up an entry and writes it.
    ReadModifyWrite,
    /// Reads the entry at a key.
    Seek,
    /// Reads 1 to 100 entries from a key on.
    Scan,
    /// Reads the next 1000 entries, ascending; begins again after the last one.
    ReadForward,
    /// Reads the next 1000 entries, descending; begins again after the first one.
    ReadBackward,
    /// Deletes an entry.
    Delete,
}

impl Action {
    /// True if the action asks filters.
    pub fn asks_filters(self) -> bool {
        matches!(self, Action::Get | Action::MultiGet | Action::ReadModifyWrite)
    }

    /// True if the action changes the store.
    pub fn writes(self) -> bool {
        match self {
            Action::Fill | Action::Overwrite | Action::Insert => true,
            Action::ReadModifyWrite | Action::Delete => true,
            Action::Get | Action::MultiGet | Action::Seek | Action::Scan => false,
            Action::ReadForward | Action::ReadBackward => false,
        }
    }
}

/// The store in which a workload starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// An empty one, to be filled in the order of the keys.
    EmptyAscending,
    /// An empty one, to be filled in an order that looks random.
    EmptyShuffled,
    /// One that has all entries.
    Loaded,
}

/// A named mix of actions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Its name in options and results.
    pub name: &'static str,
    /// Its description in a few words.
    pub about: &'static str,
    /// The store in which it starts.
    pub start: Start,
    /// Its actions, each with its share in per cent.
    pub mix: [(Action, u64); 2],
    /// The operation that one more thread repeats all the time. Its operations are measured, and do
    /// not count toward the number of operations.
    pub background: Option<Action>,
    /// Replaces the distribution of the settings.
    pub distribution: Option<Distribution>,
    /// Replaces the hit ratio of the settings.
    pub hit_ratio: Option<f64>,
    /// Every write waits for the disk, whatever the settings say.
    pub sync: bool,
    /// `Fill` writes batches; without this, single entries.
    pub batches: bool,
}

/// A workload of one action in a loaded store.
const fn loaded(name: &'static str, about: &'static str, action: Action) -> Workload {
    Workload {
        name,
        about,
        start: Start::Loaded,
        mix: [(action, 100), (action, 0)],
        background: None,
        distribution: None,
        hit_ratio: None,
        sync: false,
        batches: false,
    }
}

/// A workload that fills an empty store.
const fn fill(name: &'static str, about: &'static str, start: Start) -> Workload {
    Workload { start, ..loaded(name, about, Action::Fill) }
}

/// A workload of YCSB: lookups, and another action in this share.
const fn ycsb(name: &'static str, about: &'static str, share: u64, action: Action) -> Workload {
    Workload {
        mix: [(Action::Get, 100 - share), (action, share)],
        distribution: Some(Distribution::Zipfian),
        hit_ratio: Some(1.0),
        ..loaded(name, about, Action::Get)
    }
}

/// All workloads.
pub const WORKLOADS: [Workload; 20] = [
    fill("fillseq", "writes all entries in the order of their keys", Start::EmptyAscending),
    fill("fillrandom", "writes all entries in random order", Start::EmptyShuffled),
    Workload {
        sync: true,
        ..fill("fillsync", "the same, and every write waits for the disk", Start::EmptyShuffled)
    },
    Workload {
        batches: true,
        ..fill("fillbatch", "writes all entries in random order, in batches", Start::EmptyShuffled)
    },
    loaded("overwrite", "overwrites entries", Action::Overwrite),
    loaded(
        "readseq",
        "reads all entries in ascending order, 1000 an operation",
        Action::ReadForward,
    ),
    loaded(
        "readreverse",
        "reads all entries in descending order, 1000 an operation",
        Action::ReadBackward,
    ),
    loaded("readrandom", "looks up keys, present by the hit ratio", Action::Get),
    Workload {
        hit_ratio: Some(0.0),
        ..loaded("readmissing", "looks up keys that are absent", Action::Get)
    },
    Workload {
        distribution: Some(Distribution::HotSet { keys: 0.01, operations: 1.0 }),
        ..loaded("readhot", "looks up keys of one entry in 100", Action::Get)
    },
    Workload {
        background: Some(Action::Overwrite),
        ..loaded(
            "readwhilewriting",
            "looks up keys while one more thread overwrites entries",
            Action::Get,
        )
    },
    loaded("multireadrandom", "looks up as many keys at once as a batch has", Action::MultiGet),
    loaded("seekrandom", "seeks keys, present by the hit ratio, and reads one entry", Action::Seek),
    loaded("deleterandom", "deletes entries", Action::Delete),
    ycsb("ycsb-a", "half lookups, half overwrites; zipfian", 50, Action::Overwrite),
    ycsb("ycsb-b", "95 % lookups, 5 % overwrites; zipfian", 5, Action::Overwrite),
    ycsb("ycsb-c", "lookups; zipfian", 0, Action::Get),
    Workload {
        distribution: Some(Distribution::Latest),
        ..ycsb("ycsb-d", "95 % lookups of mostly new entries, 5 % inserts", 5, Action::Insert)
    },
    Workload {
        mix: [(Action::Scan, 95), (Action::Insert, 5)],
        ..ycsb("ycsb-e", "95 % scans of 1 to 100 entries, 5 % inserts; zipfian", 5, Action::Insert)
    },
    ycsb(
        "ycsb-f",
        "half lookups, half lookups with an overwrite; zipfian",
        50,
        Action::ReadModifyWrite,
    ),
];

/// The workload of a name.
pub fn workload(name: &str) -> Option<Workload> {
    WORKLOADS.into_iter().find(|workload| workload.name == name)
}

impl Workload {
    fn actions(&self) -> impl Iterator<Item = Action> {
        self.mix.into_iter().map(|(action, _)| action).chain(self.background)
    }

    /// True if it writes all entries into an empty store.
    pub fn fills(&self) -> bool {
        self.start != Start::Loaded
    }

    /// True if some of its operations ask filters, so that they can be compared with none.
    pub fn asks_filters(&self) -> bool {
        self.actions().any(Action::asks_filters)
    }

    /// True if afterwards the same keys are there as before, or all of them after a fill.
    pub fn keeps_entries(&self) -> bool {
        self.actions().all(|action| !matches!(action, Action::Insert | Action::Delete))
    }

    /// True if it leaves another store than it found.
    pub fn writes(&self) -> bool {
        self.actions().any(Action::writes)
    }

    /// The action of a random number.
    pub(crate) fn action(&self, random: u64) -> Action {
        let [(first, share), (second, _)] = self.mix;
        if random % 100 < share { first } else { second }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_every_mix_are_complete() {
        for workload in WORKLOADS {
            assert_eq!(workload.mix.iter().map(|(_, share)| share).sum::<u64>(), 100);
            let (action, share) = workload.mix[0];
            let first = (0..100).filter(|random| workload.action(*random) == action).count();
            assert_eq!(first as u64, share, "{}", workload.name);
        }
        assert!(workload("readrandom").is_some() && workload("").is_none());
    }
}
