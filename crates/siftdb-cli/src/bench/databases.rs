//! The databases of a benchmark: one for each cell of the matrix, in a temporary directory.
//!
//! A workload that reads starts from a loaded database, one that fills from an empty one. So a
//! result does not depend on the workloads before it. A database that no workload has changed
//! serves for the next one and for the next round.

use crate::args::options;
use crate::bars::Bar;
use crate::bench::args::BenchArgs;
use crate::failure::{Failure, Outcome};
use crate::filter_args::{layout as parse_layout, parse_compression, parse_filter};
use crate::interrupt::{Uninterrupted, remove_whole, temporary_directory, wait_if_interrupted};
use crate::lines::key_set;
use crate::numbers::{count, size};
use siftdb::env::DiskEnv;
use siftdb::{Error, Options};
use siftdb_cli::experiment::bench::{Cell, Data, SiftdbStore, Tree, Workload, load, sampled};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Keys of an existing database that are looked up: a sample, if it has more.
const SAMPLED_KEYS: usize = 1_000_000;

/// The databases that the benchmark runs on.
pub enum Databases {
    /// Databases of its own, by cell: whether each is loaded.
    Own { directory: TempDir, loaded: Vec<bool> },
    /// A database of the user's.
    Existing(PathBuf),
}

/// The settings of one cell: those of the arguments, unless an axis of the matrix names them.
pub struct CellSettings {
    pub options: Options,
    pub threads: usize,
}

/// The settings that a matrix may have.
const SETTINGS: [&str; 5] = ["filter", "layout", "cache", "compression", "threads"];

impl CellSettings {
    pub fn new(args: &BenchArgs, cell: &Cell) -> Outcome<Self> {
        if let Some((name, _)) = cell.iter().find(|(name, _)| !SETTINGS.contains(&name.as_str())) {
            let known = SETTINGS.join(", ");
            return Err(Failure::usage(format!("--matrix {name}=...: the settings are {known}")));
        }
        let named = |name: &str| cell.iter().find(|(other, _)| other == name);
        let value = |name: &str, or: &str| {
            named(name).map_or_else(|| or.to_owned(), |(_, value)| value.clone())
        };
        let refuse = |name: &str, what: String| Failure::usage(format!("{name}: {what}"));
        let mut filter = parse_filter(&value("filter", &args.filter))?;
        let layout = value("layout", args.layout.as_deref().unwrap_or_default());
        if !layout.is_empty() {
            filter = filter.layout(parse_layout(&layout).map_err(|what| refuse("layout", what))?);
        }
        let cache = size(&value("cache", &args.cache)).map_err(|what| refuse("cache", what))?;
        let compression = parse_compression(&value("compression", &args.compression))?;
        let threads = value("threads", &args.threads.to_string());
        let threads = count(&threads).ok().filter(|threads| *threads <= 1024);
        let threads = threads.ok_or_else(|| refuse("threads", "1 to 1024".into()))?;
        let options =
            Options::new().filter(filter).block_cache_bytes(cache).compression(compression);
        options.validate()?;
        Ok(CellSettings { options, threads: threads as usize })
    }
}

impl Databases {
    /// Checks the place before anything is measured.
    pub fn new(args: &BenchArgs, cells: usize) -> Outcome<Self> {
        if let Some(existing) = &args.db {
            return Ok(Databases::Existing(existing.clone()));
        }
        let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
        let advice = "name an existing directory with --dir, where files may be created";
        let directory = temporary_directory("siftdb-bench-", &parent, false, advice)?;
        Ok(Databases::Own { directory, loaded: vec![false; cells] })
    }

    /// The directory whose file system is measured.
    pub fn directory(&self) -> &Path {
        match self {
            Databases::Own { directory, .. } => directory.path(),
            Databases::Existing(directory) => directory,
        }
    }

    /// The directory of a cell's database.
    pub fn database(&self, cell: usize) -> PathBuf {
        match self {
            Databases::Own { directory, .. } => directory.path().join(format!("cell-{cell}")),
            Databases::Existing(directory) => directory.clone(),
        }
    }

    /// The keys and values that are written and looked up.
    pub fn data(&self, args: &BenchArgs) -> Outcome<Data> {
        let value_bytes = args.value_bytes as usize;
        if let Databases::Existing(directory) = self {
            let store = open_existing(directory, options())?;
            let data = sampled(&store.db, SAMPLED_KEYS, args.seed)?;
            store.db.close()?;
            return data.ok_or_else(|| {
                let what = format!("no entries in {}: load some first", directory.display());
                Failure::usage(what)
            });
        }
        let Some(file) = &args.key_file else {
            if args.keys > Data::KEYS_MAX {
                return Err(Failure::usage(format!("--keys: at most {}", Data::KEYS_MAX)));
            }
            return Ok(Data::of_shape(args.key_shape, args.keys, value_bytes));
        };
        let keys = key_set(file)?;
        if keys.is_empty() {
            let what = format!("no keys in {}: it takes one key a line", file.display());
            return Err(Failure::usage(what));
        }
        Ok(Data::of_keys(&keys, value_bytes, args.seed))
    }

    /// Opens the database of a cell in the state in which `workload` starts.
    pub fn open(
        &mut self,
        cell: usize,
        settings: &CellSettings,
        args: &BenchArgs,
        data: &Data,
        workload: &Workload,
    ) -> Outcome<SiftdbStore> {
        let path = self.database(cell);
        let loaded = match self {
            Databases::Existing(directory) => {
                let cache = size(&args.cache).map_err(Failure::usage)?;
                return open_existing(directory, options().block_cache_bytes(cache));
            }
            Databases::Own { loaded, .. } => loaded,
        };
        if workload.fills() || !loaded[cell] {
            remove_whole(&path);
        }
        // It creates directories above its own that are missing.
        let uninterrupted = Uninterrupted::begin()?;
        let db = settings.options.clone().env(Arc::new(DiskEnv::new())).open(&path);
        drop(uninterrupted);
        let db = db.map_err(|error| failure_of(error.into()))?;
        let store = SiftdbStore::new(db, Arc::new(DiskEnv::new()));
        if !workload.fills() && !loaded[cell] {
            let bar = Bar::keys("load", Some(data.count));
            let mut written = |count| {
                wait_if_interrupted();
                bar.add(count);
            };
            load(&store, data, Tree::Levels, args.seed, &mut written).map_err(failure_of)?;
        }
        loaded[cell] = !workload.writes();
        Ok(store)
    }
}

fn open_existing(directory: &Path, options: Options) -> Outcome<SiftdbStore> {
    let opened = options.open_read_only(directory);
    let db = opened.map_err(|error| Failure::opening(error, directory, None))?;
    Ok(SiftdbStore::new(db, Arc::new(DiskEnv::new())))
}

/// The failure of a store, with advice for a full disk.
pub fn failure_of(error: Box<dyn std::error::Error + Send + Sync>) -> Failure {
    match error.downcast::<Error>() {
        Ok(error) if error.is_out_of_space() => {
            let advice = "use fewer --keys, or name a directory on a larger disk with --dir";
            Failure::from(*error).with_advice(advice)
        }
        Ok(error) => Failure::from(*error),
        Err(other) => Failure::fault(other.to_string()),
    }
}
