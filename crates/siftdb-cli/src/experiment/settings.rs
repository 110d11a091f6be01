//! How a run of the demonstration is done, and how far it is.

use crate::experiment::report::Column;
use siftdb::Filter;
use siftdb::env::{DiskEnv, Env};
use std::path::PathBuf;
use std::sync::Arc;

/// How a run is done.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the databases are created, each in a directory of its own. Created if need be; its
    /// parent has to exist. They are left there.
    pub directory: PathBuf,
    /// Bytes of each value. Default: 100.
    pub value_bytes: usize,
    /// How keys become bits; its layout is set by the run. Default: `Filter::bloom(10.0)`.
    pub filter: Filter,
    /// Lookups of each act in each column; a fifth of them in the act with a cache too small, where
    /// each reads much. Default: 30,000.
    pub lookups: usize,
    /// The measured variants: a database for each, but [`Column::FullNotAsked`], which looks keys
    /// up in the one of [`Column::Full`]. Default: [`Column::ALL`].
    pub columns: Vec<Column>,
    /// The share of present keys in one more act. Default: none.
    pub hit_ratio: Option<f64>,
    /// Decides order of loading, values and the keys that are looked up. Default: 42.
    pub seed: u64,
    /// The file system. Default: the real one.
    pub env: Arc<dyn Env>,
}

impl Settings {
    /// The defaults, with databases in `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Settings {
            directory: directory.into(),
            value_bytes: 100,
            filter: Filter::bloom(10.0),
            lookups: 30_000,
            columns: Column::ALL.to_vec(),
            hit_ratio: None,
            seed: 42,
            env: Arc::new(DiskEnv::new()),
        }
    }

    /// The column that figures about filters measure: the first measured one of full, partitioned
    /// and block-based. If none of them is measured, the column without filters.
    pub fn filtered(&self) -> Column {
        let filtered = [Column::Full, Column::Partitioned, Column::BlockBased];
        let measured = filtered.into_iter().find(|column| self.columns.contains(column));
        measured.unwrap_or(Column::NoFilter)
    }

    /// The columns that have a database.
    pub fn databases(&self) -> impl Iterator<Item = Column> {
        self.columns.iter().copied().filter(|column| *column != Column::FullNotAsked)
    }

    /// The directory of a column's database.
    pub fn database(&self, column: Column) -> PathBuf {
        self.directory.join(column.layout())
    }
}

/// How far a step of a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The name of the step, such as `load`.
    pub step: &'static str,
    /// Keys done.
    pub done: u64,
    /// Keys in all.
    pub total: u64,
}

impl Progress {
    /// A counter of the keys of a step, of `total`, that tells `progress` each time.
    pub fn count(
        step: &'static str,
        total: u64,
        progress: &mut dyn FnMut(Progress),
    ) -> impl FnMut(u64) {
        let mut done = 0;
        move |keys| {
            done += keys;
            progress(Progress { step, done, total });
        }
    }
}
