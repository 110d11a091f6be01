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
    #[must_use]
    pub fn asks_filters(self) -> bool {
        matches!(self, Action::Get | Action::MultiGet | Action::ReadModifyWrite)
    }

    /// True if the action changes the store.
    #[must_use]
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
    pub mix: &'static [(Action, u64)],
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

const READ: Workload = Workload {
    name: "",
    about: "",
    start: Start::Loaded,
    mix: &[(Action::Get, 100)],
    background: None,
    distribution: None,
    hit_ratio: None,
    sync: false,
    batches: false,
};

const FILL: Workload =
    Workload { start: Start::EmptyShuffled, mix: &[(Action::Fill, 100)], ..READ };

const ZIPFIAN: Workload =
    Workload { distribution: Some(Distribution::Zipfian), hit_ratio: Some(1.0), ..READ };

/// All workloads.
pub const WORKLOADS: [Workload; 20] = [
    Workload {
        name: "fillseq",
        about: "writes all entries in the order of their keys",
        start: Start::EmptyAscending,
        ..FILL
    },
    Workload { name: "fillrandom", about: "writes all entries in random order", ..FILL },
    Workload {
        name: "fillsync",
        about: "the same, and every write waits for the disk",
        sync: true,
        ..FILL
    },
    Workload {
        name: "fillbatch",
        about: "writes all entries in random order, in batches",
        batches: true,
        ..FILL
    },
    Workload {
        name: "overwrite",
        about: "overwrites entries",
        mix: &[(Action::Overwrite, 100)],
        ..READ
    },
    Workload {
        name: "readseq",
        about: "reads all entries in ascending order, 1000 an operation",
        mix: &[(Action::ReadForward, 100)],
        ..READ
    },
    Workload {
        name: "readreverse",
        about: "reads all entries in descending order, 1000 an operation",
        mix: &[(Action::ReadBackward, 100)],
        ..READ
    },
    Workload { name: "readrandom", about: "looks up keys, present by the hit ratio", ..READ },
    Workload {
        name: "readmissing",
        about: "looks up keys that are absent",
        hit_ratio: Some(0.0),
        ..READ
    },
    Workload {
        name: "readhot",
        about: "looks up keys of one entry in 100",
        distribution: Some(Distribution::HotSet { keys: 0.01, operations: 1.0 }),
        ..READ
    },
    Workload {
        name: "readwhilewriting",
        about: "looks up keys while one more thread overwrites entries",
        background: Some(Action::Overwrite),
        ..READ
    },
    Workload {
        name: "multireadrandom",
        about: "looks up as many keys at once as a batch has",
        mix: &[(Action::MultiGet, 100)],
        ..READ
    },
    Workload {
        name: "seekrandom",
        about: "seeks keys, present by the hit ratio, and reads one entry",
        mix: &[(Action::Seek, 100)],
        ..READ
    },
    Workload {
        name: "deleterandom",
        about: "deletes entries",
        mix: &[(Action::Delete, 100)],
        ..READ
    },
    Workload {
        name: "ycsb-a",
        about: "half lookups, half overwrites; zipfian",
        mix: &[(Action::Get, 50), (Action::Overwrite, 50)],
        ..ZIPFIAN
    },
    Workload {
        name: "ycsb-b",
        about: "95 % lookups, 5 % overwrites; zipfian",
        mix: &[(Action::Get, 95), (Action::Overwrite, 5)],
        ..ZIPFIAN
    },
    Workload { name: "ycsb-c", about: "lookups; zipfian", ..ZIPFIAN },
    Workload {
        name: "ycsb-d",
        about: "95 % lookups of mostly new entries, 5 % inserts",
        mix: &[(Action::Get, 95), (Action::Insert, 5)],
        distribution: Some(Distribution::Latest),
        ..ZIPFIAN
    },
    Workload {
        name: "ycsb-e",
        about: "95 % scans of 1 to 100 entries, 5 % inserts; zipfian",
        mix: &[(Action::Scan, 95), (Action::Insert, 5)],
        ..ZIPFIAN
    },
    Workload {
        name: "ycsb-f",
        about: "half lookups, half lookups with an overwrite; zipfian",
        mix: &[(Action::Get, 50), (Action::ReadModifyWrite, 50)],
        ..ZIPFIAN
    },
];

/// The workload of a name.
#[must_use]
pub fn workload(name: &str) -> Option<Workload> {
    WORKLOADS.into_iter().find(|workload| workload.name == name)
}

impl Workload {
    fn actions(&self) -> impl Iterator<Item = Action> {
        self.mix.iter().map(|(action, _)| *action).chain(self.background)
    }

    /// True if it writes all entries into an empty store.
    #[must_use]
    pub fn fills(&self) -> bool {
        self.start != Start::Loaded
    }

    /// True if some of its operations ask filters, so that they can be compared with none.
    #[must_use]
    pub fn asks_filters(&self) -> bool {
        self.actions().any(Action::asks_filters)
    }

    /// True if afterwards the same keys are there as before, or all of them after a fill.
    #[must_use]
    pub fn keeps_entries(&self) -> bool {
        self.actions().all(|action| !matches!(action, Action::Insert | Action::Delete))
    }

    /// True if it leaves another store than it found.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.actions().any(Action::writes)
    }

    /// The action of a random number.
    #[must_use]
    pub(crate) fn action(&self, random: u64) -> Action {
        let mut left = random % 100;
        for (action, share) in self.mix {
            match left.checked_sub(*share) {
                Some(rest) => left = rest,
                None => return *action,
            }
        }
        Action::Get
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
