//! The merge of a compaction: the tables of a task become new ones of its output level.
//!
//! It reads the inputs with every checksum verified and without filling the cache; otherwise a
//! damaged block would be rewritten with a good checksum. Every table must yield the number of
//! entries that the manifest says. A table that range deletes of the inputs cover is not read.
//!
//! A large task is cut by key into parts (`parts.rs`), which several threads merge at once. An
//! output ends where its part does and where `output_cuts.rs` says, but never between two versions
//! of one user key. So sorted levels are disjoint by user key.

use crate::base::error::{Error, Result};
use crate::base::filename::FileName;
use crate::base::iterator::api::Direction;
use crate::base::key::SequenceNumber;
use crate::base::parallel::in_parallel;
use crate::base::sync::Arc;
use crate::jobs::compact::output_cuts::OutputCuts;
use crate::jobs::compact::pace::{Pace, PacedOutput};
use crate::jobs::compact::task::CompactionTask;
use crate::jobs::rewrite::output::{JobContext, JobOutcome, KeyPart, Rewrite, check_entries_read};
use crate::jobs::rewrite::stripes::{KeysBelow, SnapshotStripes};
use crate::tree::file_meta::FileMeta;
use crate::tree::handle::TableHandle;
use crate::tree::level_iter::LevelIter;
use crate::tree::overlap::sequence_span;
use crate::tree::targets::CompactionOptions;
use crate::tree::version::Version;

/// How the work of a merge is divided.
pub(super) struct Division<'a> {
    /// As [`key_parts`](crate::jobs::compact::parts::key_parts) gives them.
    pub parts: Vec<KeyPart>,
    /// Threads that may share them, the caller's own among them.
    pub threads: usize,
    /// `None` without a limit.
    pub pace: Option<Pace<'a>>,
}

/// Writes the tables that replace those of `task`, which is not a trivial move. `version` is the
/// one it was picked from, or a later one. `snapshots` ascend and end with the published sequence.
///
/// # Errors
/// Inputs that cannot be read or are damaged, outputs that cannot be written, or
/// [`Error::Closed`] when stopped. No output file remains.
pub(super) fn merge(
    context: &JobContext<'_>,
    task: &CompactionTask,
    version: Arc<Version>,
    snapshots: &[SequenceNumber],
    options: &CompactionOptions,
    Division { parts, threads, pace }: &Division<'_>,
) -> Result<JobOutcome> {
    let mut runs = input_runs(context, task, &version)?;
    // The files of other tables can be removed while this runs.
    drop(version);
    let deletes = runs.iter().flatten().filter_map(|handle| handle.table.range_deletes());
    let deletes: Vec<_> = deletes.flat_map(|deletes| deletes.deletes()).collect();
    let below = KeysBelow::new(task.below.iter().cloned().map(Arc::new), &task.older);
    let stripes = SnapshotStripes::new(snapshots, below, &deletes);
    let unread = leave_deleted_out(&mut runs, &stripes);
    let (mut entries, mut bytes, mut range_deletes) = (0, 0, 0);
    for (_, meta) in task.replaced() {
        entries += meta.entries;
        bytes += meta.bytes;
        range_deletes += meta.range_deletes;
    }
    let merged = in_parallel("siftdb-compact", (*threads).min(parts.len()), |at| {
        let keys = parts.get(at)?.clone();
        let mut cuts = OutputCuts::new(task, options, &keys.start);
        let rewrite = Rewrite {
            sources: sources(&runs, &keys),
            keys,
            entries: None,
            range_deletes,
            stripes: stripes.clone(),
            // At level 0 the range of all inputs is the age of the output, even if entries are
            // dropped.
            sequences: (task.output_level == 0).then(|| sequence_span(&task.inputs)).flatten(),
            context,
        };
        let mut paced = PacedOutput::new(*pace);
        Some(rewrite.run(|key, open_bytes| {
            paced.wait(open_bytes);
            cuts.ends_before(key, open_bytes)
        }))
    });
    let mut outcome = joined(context, merged, entries - unread.entries)?;
    outcome.counts.bytes_read = bytes - unread.bytes;
    outcome.counts.entries_dropped += unread.entries;
    Ok(outcome)
}

/// The tables that the task replaces, newer runs first.
fn input_runs(
    context: &JobContext<'_>,
    task: &CompactionTask,
    version: &Version,
) -> Result<Vec<Vec<Arc<TableHandle>>>> {
    let find = |level, metas| find_tables(version, level, metas, context);
    let inputs = find(task.input_level, &task.inputs)?;
    // For every key that they share, an input is newer than the tables between, and those are newer
    // than the tables of the output level.
    let mut runs: Vec<Vec<Arc<TableHandle>>> = match task.input_level {
        // Newest first, each with an iterator of its own.
        0 => inputs.into_iter().map(|table| vec![table]).collect(),
        _ => vec![inputs],
    };
    for (level, metas) in (task.input_level + 1..).zip(&task.between) {
        runs.push(find(level, metas)?);
    }
    runs.push(find(task.output_level, &task.overlapping)?);
    Ok(runs)
}

/// Iterators over the tables that may have keys of the part.
fn sources(runs: &[Vec<Arc<TableHandle>>], keys: &KeyPart) -> Vec<LevelIter> {
    let within = |handle: &&Arc<TableHandle>| {
        !handle.meta.ends_before(&keys.start) && keys.is_before_end(&handle.meta.start)
    };
    let of_run = |run: &Vec<_>| run.iter().filter(within).cloned().collect();
    runs.iter().map(|run| LevelIter::new(Direction::Forward, of_run(run), false)).collect()
}

/// What all parts wrote together. If one of them failed, or if they did not read all `entries`, the
/// files of the others are removed.
fn joined(
    context: &JobContext<'_>,
    parts: Vec<Result<JobOutcome>>,
    entries: u64,
) -> Result<JobOutcome> {
    let (mut outcome, mut failure) = (JobOutcome::default(), Ok(()));
    for part in parts {
        match part {
            Ok(part) => {
                outcome.tables.extend(part.tables);
                outcome.counts.add(&part.counts);
            }
            // The first one in the order of keys.
            Err(error) => failure = failure.and(Err(error)),
        }
    }
    // I17: a damaged input could end early without an error of its own.
    let read = outcome.counts.entries_in;
    failure = failure.and_then(|()| check_entries_read(context.directory, read, entries));
    if failure.is_err() {
        for meta in &outcome.tables {
            // The job already reports the error that made it fail.
            let _ = context.env.remove(&FileName::Table(meta.number).path(context.directory));
        }
    }
    failure.map(|()| outcome)
}

/// The tables that a job does not read.
#[derive(Default)]
struct Unread {
    entries: u64,
    bytes: u64,
}

/// Takes out fully deleted tables: they are replaced unread. What their own range deletes cover is
/// also covered by the newer ones that cover the table.
fn leave_deleted_out(runs: &mut [Vec<Arc<TableHandle>>], stripes: &SnapshotStripes) -> Unread {
    let mut unread = Unread::default();
    for tables in runs {
        for deleted in tables.extract_if(.., |handle| stripes.covers_table(&handle.meta)) {
            unread.entries += deleted.meta.entries;
            unread.bytes += deleted.meta.bytes;
        }
    }
    unread
}

fn find_tables(
    version: &Version,
    level: usize,
    metas: &[Arc<FileMeta>],
    context: &JobContext<'_>,
) -> Result<Vec<Arc<TableHandle>>> {
    let find = |meta: &Arc<FileMeta>| {
        let mut handles = version.level(level).iter();
        let handle = handles.find(|handle| handle.meta.number == meta.number);
        handle.cloned().ok_or_else(|| {
            let what = format!("compaction of table {}, not at level {level}", meta.number);
            Error::corruption(context.directory, 0, what)
        })
    };
    metas.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::levels::LEVELS;
    use crate::base::range::{KeyBounds, KeyRange};
    use crate::base::sync::{AtomicBool, Ordering};
    use crate::jobs::compact::manual::{ManualCompaction, ManualGoal};
    use crate::jobs::compact::parts::key_parts;
    use crate::jobs::compact::picker::{CompactionCursors, pick, score};
    use crate::jobs::testing::{Tree, path_of};
    use crate::tree::overlap::{KeySpan, order_conflicts};
    use proptest::prelude::*;
    use std::ops::Bound;

    const OPTIONS: CompactionOptions = CompactionOptions {
        level0_compaction_trigger: 3,
        level_base_bytes: 6000,
        level_multiplier: 3,
        table_bytes: 2000,
    };

    fn run_with(
        tree: &Tree,
        task: &CompactionTask,
        options: CompactionOptions,
    ) -> Result<JobOutcome> {
        run_begun(tree, task, Arc::clone(&tree.version), &tree.needed(), &options)
    }

    fn run_begun(
        tree: &Tree,
        task: &CompactionTask,
        version: Arc<Version>,
        needed: &[SequenceNumber],
        options: &CompactionOptions,
    ) -> Result<JobOutcome> {
        merge(&tree.context(), task, version, needed, options, &divided(task, options))
    }

    fn divided(task: &CompactionTask, options: &CompactionOptions) -> Division<'static> {
        Division { parts: key_parts(task, options), threads: 2, pace: None }
    }

    fn run(tree: &Tree, task: &CompactionTask) -> Result<JobOutcome> {
        run_with(tree, task, OPTIONS)
    }

    /// Here most tables are small: they join, also within level 0.
    const WIDE: CompactionOptions = CompactionOptions {
        level0_compaction_trigger: 3,
        level_base_bytes: 30_000,
        level_multiplier: 3,
        table_bytes: 40_000,
    };

    fn apply(tree: &mut Tree, task: &CompactionTask, options: &CompactionOptions) {
        let output = match task.trivial_move {
            true => JobOutcome::default(),
            false => run_with(tree, task, options.clone()).unwrap(),
        };
        tree.install(task.edit(0, output.tables));
        check_shape(tree, options);
    }

    /// Every level is in its order, tables are bounded, files are those of the tree.
    fn check_shape(tree: &Tree, options: &CompactionOptions) {
        for level in 0..LEVELS {
            let metas = tree.version.level(level).iter().map(|handle| &*handle.meta);
            assert_eq!(order_conflicts(level, metas), []);
        }
        for level in 1..LEVELS {
            let tables = tree.version.level(level);
            for handle in tables {
                // A block, index, properties and the versions of the last key beyond the limit. The
                // headers of tiny blocks and the range deletes come on top.
                let tiny = tree.block_bytes < 256;
                assert!(tiny || handle.meta.bytes <= 2 * options.table_bytes + 2000);
            }
        }
        let (present, live) = tree.files();
        assert_eq!(present, live);
    }

    fn settle(tree: &mut Tree, cursors: &mut CompactionCursors, options: &CompactionOptions) {
        let oldest = |tree: &Tree| tree.needed()[0];
        let mut tasks = 0;
        while let Some(task) =
            pick(&tree.version.files, options, cursors, oldest(tree), 0, &[], &|_| false)
        {
            tasks += 1;
            assert!(tasks < 1000, "compactions without an end");
            cursors.advance(&task);
            apply(tree, &task, options);
        }
        let shape = &tree.version.files;
        assert!((0..LEVELS - 1).all(|level| score(shape, level, options) < 1.0));
    }

    fn compact_range(tree: &mut Tree, range: KeyBounds, options: &CompactionOptions) {
        compact_beside(tree, range, options, |_, _| {});
    }

    /// Compacts a range. After each step, `other` gets the level below which it may take nothing.
    fn compact_beside(
        tree: &mut Tree,
        range: KeyBounds,
        options: &CompactionOptions,
        mut other: impl FnMut(&mut Tree, usize),
    ) {
        let next_file_number = tree.next_file_number.load(Ordering::Relaxed);
        let goal = ManualGoal::Compact { force: false };
        let is_due = |meta: &FileMeta| meta.overlaps(&range);
        let levels = &tree.version.files;
        let mut compaction = ManualCompaction::new(goal, levels, next_file_number, is_due);
        while let Some(task) = compaction.next_task(&tree.version.files, options, is_due) {
            apply(tree, &task, options);
            other(tree, compaction.bottom);
        }
    }

    /// Keys in the order of their numbers, many of them a prefix of the next: there the order of
    /// internal keys is not the order of their bytes.
    fn key(number: u16) -> Vec<u8> {
        let mut key = format!("{:03}", number / 4).into_bytes();
        key.extend(std::iter::repeat_n(0, usize::from(number % 4)));
        key
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write { first: u16, step: u16, count: u16, value_bytes: Option<u8> },
        DeleteRange(u16, Option<u16>),
        DeleteRanges { first: u16, step: u16, count: u16, width: u16 },
        Ingest { first: u16, step: u16, count: u16, value_bytes: Option<u8> },
        Flush,
        Seal,
        TakeSnapshot,
        DropSnapshot,
        Settle,
        Begin,
        End(u8),
        CompactRange(u16, u16),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let value_bytes = prop_oneof![2 => any::<u8>().prop_map(Some), 1 => Just(None)];
        let entries = || (0u16..200, 1u16..9, 1u16..40, value_bytes.clone());
        let write = entries().prop_map(|(first, step, count, value_bytes)| Step::Write {
            first,
            step,
            count,
            value_bytes,
        });
        let ingest = entries().prop_map(|(first, step, count, value_bytes)| Step::Ingest {
            first,
            step,
            count,
            value_bytes,
        });
        let delete = (0u16..250, proptest::option::weighted(0.9, 1u16..120))
            .prop_map(|(first, width)| Step::DeleteRange(first, width.map(|width| first + width)));
        let deletes =
            (0u16..200, 1u16..9, 2u16..12, 1u16..5).prop_map(|(first, step, count, width)| {
                Step::DeleteRanges { first, step, count, width }
            });
        let step = prop_oneof![
            12 => write,
            1 => ingest,
            4 => delete,
            4 => deletes,
            5 => Just(Step::Flush),
            1 => Just(Step::Seal),
            2 => Just(Step::TakeSnapshot),
            2 => Just(Step::DropSnapshot),
            3 => Just(Step::Settle),
            8 => Just(Step::Begin),
            5 => any::<u8>().prop_map(Step::End),
            1 => (0u16..250, 0u16..250).prop_map(|(a, b)| Step::CompactRange(a.min(b), a.max(b))),
        ];
        proptest::collection::vec(step, 1..60)
    }

    /// A compaction that has begun: with the tree and the snapshots of that moment.
    type Running = (CompactionTask, Arc<Version>, Vec<SequenceNumber>);

    /// Begins the most urgent compaction that has no conflict with those in `running`.
    fn begin(
        tree: &Tree,
        running: &mut Vec<Running>,
        cursors: &mut CompactionCursors,
        options: &CompactionOptions,
        deepest: usize,
    ) {
        let claims: Vec<_> =
            running.iter().map(|(task, ..)| task.claim().unwrap().into()).collect();
        let (shape, needed) = (&tree.version.files, tree.needed());
        let is_refused = |task: &CompactionTask| task.output_level > deepest;
        if let Some(task) = pick(shape, options, cursors, needed[0], 0, &claims, &is_refused) {
            let task = task.clean_at(deepest);
            cursors.advance(&task);
            running.push((task, Arc::clone(&tree.version), needed));
        }
    }

    /// Runs the most urgent compaction that takes nothing below a level, if one is due.
    fn run_due(
        tree: &mut Tree,
        cursors: &mut CompactionCursors,
        options: &CompactionOptions,
        deepest: usize,
    ) {
        let mut begun = Vec::new();
        begin(tree, &mut begun, cursors, options, deepest);
        begun.into_iter().for_each(|one| end(tree, one, options));
    }

    fn end(tree: &mut Tree, (task, version, needed): Running, options: &CompactionOptions) {
        let output = match task.trivial_move {
            true => JobOutcome::default(),
            false => run_begun(tree, &task, version, &needed, options).unwrap(),
        };
        tree.install(task.edit(0, output.tables));
        check_shape(tree, options);
    }

    /// Whatever is flushed, compacted and dropped, also by several compactions at a time, every
    /// snapshot reads what it always did; and once all is deleted and no snapshot is left, nothing
    /// remains.
    fn check_history(steps: Vec<Step>, (wide, by_range): (bool, bool), block_bytes: usize) {
        let options = if wide { &WIDE } else { &OPTIONS };
        let mut tree = Tree::new();
        tree.block_bytes = block_bytes;
        let mut cursors = CompactionCursors::default();
        let mut running = Vec::new();
        for step in steps {
            if matches!(step, Step::Settle | Step::CompactRange(..)) {
                running.drain(..).for_each(|one| end(&mut tree, one, options));
            }
            match step {
                Step::Write { first, step, count, value_bytes } => {
                    for i in 0..count {
                        let stamp = tree.sequence as u8;
                        let value = value_bytes.map(|bytes| vec![stamp; usize::from(bytes)]);
                        tree.write(key(first + i * step), value);
                    }
                    continue;
                }
                Step::DeleteRange(first, end) => {
                    tree.delete_range(key(first), end.map(key));
                    continue;
                }
                Step::DeleteRanges { first, step, count, width } => {
                    for start in (0..count).map(|i| first + i * step) {
                        tree.delete_range(key(start), Some(key(start + width)));
                    }
                    continue;
                }
                Step::Ingest { first, step, count, value_bytes } => {
                    let value = value_bytes.map(|bytes| vec![0xee; usize::from(bytes)]);
                    let keys = (0..count).map(|i| key(first + i * step));
                    tree.ingest(keys.map(|key| (key, value.clone())).collect());
                }
                Step::Flush => {
                    tree.flush();
                }
                Step::Seal => tree.seal(),
                Step::TakeSnapshot => {
                    tree.snapshots.insert(tree.sequence);
                }
                Step::DropSnapshot => {
                    tree.snapshots.pop_first();
                }
                Step::Settle => settle(&mut tree, &mut cursors, options),
                Step::Begin => begin(&tree, &mut running, &mut cursors, options, LEVELS),
                Step::End(_) if running.is_empty() => {}
                Step::End(at) => {
                    let one = running.swap_remove(usize::from(at) % running.len());
                    end(&mut tree, one, options);
                }
                Step::CompactRange(first, last) => {
                    tree.flush();
                    let range = (key(first)..key(last)).into_bounds();
                    let due = |tree: &mut Tree, level| run_due(tree, &mut cursors, options, level);
                    compact_beside(&mut tree, range, options, due);
                }
            }
            tree.check();
        }
        running.drain(..).for_each(|one| end(&mut tree, one, options));
        delete_all(&mut tree, by_range);
        let due = |tree: &mut Tree, level| run_due(tree, &mut cursors, options, level);
        compact_beside(&mut tree, (..).into_bounds(), options, due);
        tree.check();
        assert_eq!(tree.files().0.len(), 0);
    }

    fn delete_all(tree: &mut Tree, by_range: bool) {
        tree.snapshots.clear();
        match by_range {
            true => tree.delete_range(Vec::new(), None),
            false => (0..600).for_each(|number| tree.write(key(number), None)),
        }
        tree.flush();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// With tiny blocks a table has one range delete or a few, so tables are cut everywhere.
        #[test]
        fn compacted_histories_read_like_the_model(
            steps in steps(),
            flags in any::<(bool, bool)>(),
            block_bytes in prop_oneof![Just(1), Just(5), Just(256)],
        ) {
            check_history(steps, flags, block_bytes);
        }
    }

    #[test]
    fn merges_within_level0_come_to_an_end() {
        let puts = |first, step, count, bytes| Step::Write {
            first,
            step,
            count,
            value_bytes: Some(bytes),
        };
        let steps = vec![
            puts(0, 1, 1, 0),
            puts(35, 1, 34, 0),
            Step::Ingest { first: 0, step: 5, count: 1, value_bytes: None },
            Step::Settle,
            // More than one table takes.
            Step::DeleteRanges { first: 26, step: 4, count: 9, width: 2 },
            puts(55, 3, 36, 199),
            puts(155, 4, 31, 246),
            Step::CompactRange(56, 59),
            Step::Settle,
        ];
        check_history(steps, (true, false), 1);
    }

    /// Level 0 with two tables over a level 1, and the task that merges them.
    fn tree_with_task() -> (Tree, CompactionTask) {
        let mut tree = Tree::new();
        for round in 0..3u8 {
            for number in 0..100 {
                tree.write(key(number * u16::from(round + 1)), Some(vec![round; 50]));
            }
            tree.flush();
            if round == 0 {
                compact_range(&mut tree, (..).into_bounds(), &OPTIONS);
            }
        }
        let shape = &tree.version.files;
        let task = CompactionTask::down(shape, 0, shape[0].to_vec(), &OPTIONS);
        assert_eq!(task.inputs.len(), 2);
        assert!(task.overlapping.len() > 1);
        (tree, task)
    }

    #[test]
    fn a_flush_leaves_the_deeper_levels_shared() {
        let (mut tree, _) = tree_with_task();
        let before = Arc::clone(&tree.version);
        tree.write(key(1), Some(vec![9; 50]));
        tree.flush();
        let after = &tree.version;
        assert_eq!(after.level(0).len(), before.level(0).len() + 1);
        for level in 1..LEVELS {
            assert!(Arc::ptr_eq(&before.files[level], &after.files[level]));
            assert!(Arc::ptr_eq(&before.levels[level], &after.levels[level]));
        }
    }

    #[test]
    fn threads_do_not_change_what_becomes_of_a_task() {
        let (tree, task) = tree_with_task();
        let merged = |threads| {
            let division = Division { threads, ..divided(&task, &OPTIONS) };
            assert!(division.parts.len() > 1, "{task:?}");
            let (version, needed) = (Arc::clone(&tree.version), tree.needed());
            merge(&tree.context(), &task, version, &needed, &OPTIONS, &division).unwrap()
        };
        let [alone, shared] = [1, 3].map(merged);
        assert_eq!(alone.counts, shared.counts);
        let unnamed = |tables: Vec<FileMeta>| -> Vec<_> {
            let of = |meta| FileMeta { number: 0, table_id: 0, ..meta };
            tables.into_iter().map(of).collect()
        };
        assert_eq!(unnamed(alone.tables), unnamed(shared.tables));
    }

    #[test]
    fn entry_counts_add_up() {
        let (tree, task) = tree_with_task();
        let JobOutcome { tables, counts } = run(&tree, &task).unwrap();
        assert!(tables.len() > 3);
        assert_eq!(counts.entries_in, 300);
        let entries: u64 = tables.iter().map(|meta| meta.entries).sum();
        assert_eq!(entries + counts.entries_dropped, 300);
        assert_eq!(counts.bytes_written, tables.iter().map(|meta| meta.bytes).sum::<u64>());
        assert_eq!(counts.bytes_read, task.replaced().map(|(_, meta)| meta.bytes).sum::<u64>());
    }

    #[test]
    fn level_0_merges_keep_visibility() {
        let options = &CompactionOptions { level_base_bytes: 100_000, ..WIDE };
        let mut tree = Tree::new();
        for number in 0..400 {
            tree.write(key(number), Some(vec![1; 150]));
        }
        tree.flush();
        compact_range(&mut tree, (..).into_bounds(), options);
        // Deleted, and some of it written again; every table spans all keys.
        for round in 0..3u16 {
            for number in [0, 50 + round, 60, 399] {
                tree.write(key(number), (number + round == 61).then(|| vec![2]));
            }
            tree.flush();
        }
        let shape = &tree.version.files;
        let task =
            pick(shape, options, &CompactionCursors::default(), tree.sequence, 0, &[], &|_| false)
                .unwrap();
        assert_eq!((task.inputs.len(), task.output_level), (3, 0));
        let ages = sequence_span(&shape[0]).unwrap();
        apply(&mut tree, &task, options);
        tree.check();
        let [merged] = tree.version.level(0) else { panic!() };
        let recorded = merged.meta.smallest_sequence..=merged.meta.largest_sequence;
        assert_eq!(recorded, ages, "although the oldest entries are gone");
        assert_eq!(merged.meta.entries, 6);

        // A tombstone stays above an older table of level 0, and is dropped above nothing.
        let mut tree = Tree::new();
        for value in [Some(vec![1]), None, None] {
            tree.write(key(7), value);
            tree.flush();
        }
        let newer = tree.version.files[0][..2].to_vec();
        let task = CompactionTask::rewrite(&tree.version.files, 0, newer);
        apply(&mut tree, &task, &WIDE);
        tree.check();
        let all = tree.version.files[0].to_vec();
        assert_eq!(all.len(), 2);
        let task = CompactionTask::rewrite(&tree.version.files, 0, all);
        apply(&mut tree, &task, &WIDE);
        tree.check();
        assert!(tree.version.level(0).is_empty());
    }

    #[test]
    fn outputs_are_cut_at_large_grandparent_overlap() {
        let (tree, task) = tree_with_task();
        let options = CompactionOptions { table_bytes: 1 << 20, ..OPTIONS };
        let outputs =
            |task: &CompactionTask| run_with(&tree, task, options.clone()).unwrap().tables;
        assert_eq!(outputs(&task).len(), 1);
        let large = |first: u16, last: u16| {
            let mut meta = (*task.inputs[0]).clone();
            (meta.start, meta.end) = (key(first), Bound::Included(key(last)));
            meta.bytes = 6 << 20;
            Arc::new(meta)
        };
        let below = vec![vec![large(0, 19), large(20, 49), large(60, 89), large(100, 120)]];
        let task = CompactionTask { below, ..task.clone() };
        let ends: Vec<_> = outputs(&task).into_iter().map(|meta| meta.end).collect();
        assert_eq!(ends, [49, 120, 297].map(|last| Bound::Included(key(last))));
    }

    #[test]
    fn a_stopped_or_failed_job_leaves_no_file() {
        let (tree, task) = tree_with_task();
        let stop = AtomicBool::new(true);
        let context = JobContext { stop: &stop, ..tree.context() };
        let (version, division) = (Arc::clone(&tree.version), divided(&task, &OPTIONS));
        let stopped = merge(&context, &task, version, &tree.needed(), &OPTIONS, &division);
        assert!(matches!(stopped, Err(Error::Closed)));
        check_shape(&tree, &OPTIONS);
        // An input that yields another number of entries than the manifest says.
        let mut wrong = task.clone();
        let mut meta = (*wrong.inputs[0]).clone();
        meta.entries += 1;
        wrong.inputs[0] = Arc::new(meta);
        assert!(run(&tree, &wrong).unwrap_err().is_corruption());
        check_shape(&tree, &OPTIONS);
    }

    #[test]
    fn damaged_input_is_never_rewritten() {
        let (tree, task) = tree_with_task();
        for (_, meta) in task.replaced() {
            let path = path_of(meta.number);
            let bytes = tree.disk.read_file(&path).unwrap();
            for at in (0..bytes.len()).step_by(bytes.len() / 20) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x10;
                tree.disk.write_file(&path, &damaged);
                // A byte of a filter or of the properties does no harm to the entries.
                match run(&tree, &task) {
                    Ok(outcome) => {
                        assert_eq!(outcome.counts.entries_in, 300);
                        tree.remove(&outcome);
                    }
                    Err(error) => assert!(error.is_corruption(), "{error}"),
                }
                check_shape(&tree, &OPTIONS);
            }
            tree.disk.write_file(&path, &bytes);
        }
    }

    /// A tree with 200 keys in tables of level 1, and a range delete over most of them in level 0.
    fn tree_with_range_delete() -> (Tree, CompactionTask) {
        let mut tree = Tree::new();
        for number in 0..200 {
            tree.write(key(number), Some(vec![1; 100]));
        }
        tree.flush();
        compact_range(&mut tree, (..).into_bounds(), &OPTIONS);
        tree.delete_range(key(10), Some(key(190)));
        tree.write(key(100), Some(vec![2]));
        tree.flush();
        let shape = &tree.version.files;
        let task = CompactionTask::down(shape, 0, shape[0].to_vec(), &OPTIONS);
        (tree, task)
    }

    #[test]
    fn deleted_inputs_are_not_read() {
        let (mut tree, task) = tree_with_range_delete();
        let deleted = |meta: &&Arc<FileMeta>| meta.start >= key(10) && meta.ends_before(&key(190));
        let deleted: Vec<_> = task.overlapping.iter().filter(deleted).cloned().collect();
        assert!(deleted.len() > 5, "{task:?}");
        let unread: u64 = deleted.iter().map(|meta| meta.entries).sum();
        // The last table does not overlap the range.
        let entries = 1 + task.overlapping.iter().map(|meta| meta.entries).sum::<u64>();
        for meta in &deleted {
            let path = path_of(meta.number);
            let mut bytes = tree.disk.read_file(&path).unwrap();
            bytes[40..400].fill(0xff);
            tree.disk.write_file(&path, &bytes);
        }
        let outcome = run(&tree, &task).unwrap();
        assert_eq!(outcome.counts.entries_in, entries - unread);
        let written: u64 = outcome.tables.iter().map(|meta| meta.entries).sum();
        assert_eq!((written, outcome.counts.entries_dropped), (entries - 180, 180));
        // With nothing below, the range delete goes.
        assert!(outcome.tables.iter().all(|meta| meta.range_deletes == 0));
        tree.install(task.edit(0, outcome.tables));
        tree.check();
        // A snapshot that sees them needs them read.
        let (mut tree, task) = tree_with_range_delete();
        tree.snapshots.insert(200);
        assert_eq!(run(&tree, &task).unwrap().counts.entries_in, entries);
    }

    #[test]
    fn range_deletes_are_cut_at_table_borders() {
        let (mut tree, task) = tree_with_range_delete();
        tree.snapshots.insert(200);
        apply(&mut tree, &task, &OPTIONS);
        tree.check();
        let tables = tree.version.level(1);
        let covered: Vec<_> = tables.iter().filter(|table| table.meta.range_deletes > 0).collect();
        assert!(tables.len() > 5 && covered.len() > 5);
        for handle in covered {
            let deletes = handle.table.range_deletes().unwrap();
            for (start, fragment) in deletes.fragments() {
                let end = Bound::Excluded(fragment.end.as_deref().unwrap());
                let part = KeySpan { start, end };
                assert!(handle.meta.span().covers(&part), "{:?} {fragment:?}", handle.meta);
            }
        }
    }

    #[test]
    fn outputs_are_cut_at_large_range_delete_blocks() {
        let mut tree = Tree::new();
        tree.write(key(1), Some(vec![1]));
        tree.flush();
        // 64 blocks of 256 bytes are 16 KiB; each delete takes 30 bytes or more.
        for number in 0..2000u32 {
            let bound = |more: u8| format!("000\0{number:06}{more}").into_bytes();
            tree.delete_range(bound(1), Some(bound(2)));
        }
        tree.snapshots.insert(1);
        tree.flush();
        tree.check();
        let tables: Vec<_> = tree.version.level(0).iter().map(|handle| &handle.meta).collect();
        let with_deletes = tables.iter().filter(|meta| meta.range_deletes > 0).count();
        assert!(with_deletes > 3 && with_deletes < 12, "{with_deletes} tables");
        assert_eq!(tables.iter().map(|meta| meta.range_deletes).sum::<u64>(), 2000);
        assert!(tables.iter().all(|meta| meta.range_deletes <= 600));
    }

    #[test]
    fn a_missing_range_delete_fails_the_job() {
        let (tree, task) = tree_with_range_delete();
        let mut wrong = task.clone();
        let mut meta = (*wrong.inputs[0]).clone();
        meta.range_deletes += 1;
        wrong.inputs[0] = Arc::new(meta);
        assert!(run(&tree, &wrong).unwrap_err().is_corruption());
        check_shape(&tree, &OPTIONS);
    }

    #[test]
    fn tasks_of_another_version_are_refused() {
        let (mut tree, task) = tree_with_task();
        apply(&mut tree, &task, &OPTIONS);
        assert!(run(&tree, &task).unwrap_err().to_string().contains("not at level 0"));
        check_shape(&tree, &OPTIONS);
    }
}
