//! The task of a compaction as plain data: which tables merge into which level.
//!
//! Made by `picker.rs` and `manual.rs`, run by `run.rs`, logged by the caller as
//! [`CompactionTask::edit`]. Level 0 is listed newest first and may overlap; every other level is
//! sorted by key, and no user key lies in two of its tables.
//!
//! Invariants of a task that leads down: no table that stays at the input level shares a user key
//! with the inputs, so an older version never passes a newer one. `overlapping` holds every table
//! of the output level that shares keys with the inputs, so that level stays disjoint. `below`
//! holds every table deeper than the output that may hold a key of the task.
//!
//! A task within level 0 merges tables of consecutive age: each table that stays is older or newer
//! than all of them, or shares no key with them (`tree::overlap`).
//!
//! A task may lead several levels down, with all tables between that share keys with it. What goes
//! down then is not written again at the levels that it passes.
//!
//! Small tables are merged with their neighbours, because opening a database costs one open file
//! for each table. A task takes small neighbours of its output along only if they are not much
//! larger than the task itself. So an entry is rewritten a logarithmic number of times.

use crate::base::key::KeyspaceId;
use crate::base::levels::LEVELS;
use crate::base::sync::Arc;
use crate::state::claim::Claim;
use crate::tree::edit::{DeletedFile, VersionEdit};
use crate::tree::file_meta::FileMeta;
use crate::tree::overlap::{key_span, overlapping_places, overlapping_tables, total_bytes};
use crate::tree::targets::CompactionOptions;
use crate::tree::version::LevelFiles;
use std::ops::Range;

/// A small neighbour is merged if it has at most this many times the bytes of the task. So each
/// such rewrite makes the table of an entry larger by half at least. In a row of small tables that
/// stay apart, each is more than twice as large as all later ones together.
const NEIGHBOUR_FACTOR: u64 = 2;

#[derive(Clone, Debug, Default)]
pub(crate) struct CompactionTask {
    /// Where the inputs are.
    pub input_level: usize,
    /// Where the outputs go; the input level itself when it is only cleaned.
    pub output_level: usize,
    /// Tables of the input level.
    pub inputs: Vec<Arc<FileMeta>>,
    /// For each level between input and output, from the upper one on, the tables that share keys
    /// with the inputs or with what goes down from above it. Most tasks lead one level down, and
    /// have none.
    pub between: Vec<Vec<Arc<FileMeta>>>,
    /// Tables of the output level that share keys with the inputs, and small neighbours of those.
    pub overlapping: Vec<Arc<FileMeta>>,
    /// For each level below the output, the tables that share keys with the task.
    pub below: Vec<Vec<Arc<FileMeta>>>,
    /// Tables of level 0 that stay there and are older than the inputs; for tasks within level 0.
    pub older: Vec<Arc<FileMeta>>,
    /// True if the one input can go down as it is: the caller only logs the edit.
    pub trivial_move: bool,
}

impl CompactionTask {
    /// The task that merges `inputs` into the level under theirs. The inputs must already be
    /// closed under overlap at their own level, and that must not be the last one.
    pub(crate) fn down(
        levels: &LevelFiles,
        level: usize,
        inputs: Vec<Arc<FileMeta>>,
        options: &CompactionOptions,
    ) -> Self {
        CompactionTask::down_to(levels, level, level + 1, inputs, options)
    }

    /// The task that merges `inputs` into the deeper level `output_level`, with all that lies
    /// between and shares keys with them. So no table that stays above the output has an older
    /// version of what goes down.
    pub(crate) fn down_to(
        levels: &LevelFiles,
        level: usize,
        output_level: usize,
        inputs: Vec<Arc<FileMeta>>,
        options: &CompactionOptions,
    ) -> Self {
        let (mut upper, mut between) = (inputs.clone(), Vec::new());
        for (passed, tables) in (level + 1..).zip(&levels[level + 1..output_level]) {
            let overlapping = |span| overlapping_tables(passed, tables, &span);
            let shared = key_span(&upper).map(overlapping).unwrap_or_default();
            upper.extend(shared.iter().cloned());
            between.push(shared);
        }
        let overlapping = with_small_neighbours(&levels[output_level], &upper, options);
        let mut task = CompactionTask {
            input_level: level,
            output_level,
            below: tables_below(levels, output_level, &upper, &overlapping),
            inputs,
            between,
            overlapping,
            ..CompactionTask::default()
        };
        // A moved table is not cut. One that overlaps too much of the next level would make its own
        // later compaction too large.
        let grandparent_bytes = total_bytes(task.grandparents());
        // The table of a large memtable is cut into tables of the usual size on its way down.
        let oversized =
            level == 0 && task.inputs.iter().any(|meta| meta.bytes / 2 > options.table_bytes);
        task.trivial_move = task.replaced().count() == 1
            && !oversized
            && grandparent_bytes <= options.grandparent_bytes_max();
        task
    }

    /// The task that rewrites tables at their level, to drop entries that no read can see, or to
    /// make one table of several. At level 0 the inputs must be consecutive in age; at any other
    /// level they must be neighbours.
    pub(crate) fn rewrite(levels: &LevelFiles, level: usize, inputs: Vec<Arc<FileMeta>>) -> Self {
        let oldest = inputs.iter().map(|meta| meta.smallest_sequence).min().unwrap_or(0);
        let is_older = |meta: &&Arc<FileMeta>| meta.largest_sequence < oldest;
        let older = match level {
            0 => levels[0].iter().filter(is_older).cloned().collect(),
            _ => Vec::new(),
        };
        CompactionTask {
            input_level: level,
            output_level: level,
            below: tables_below(levels, level, &inputs, &[]),
            inputs,
            older,
            ..CompactionTask::default()
        }
    }

    /// The tables one level under the output that share keys with the task.
    pub(crate) fn grandparents(&self) -> &[Arc<FileMeta>] {
        self.below.first().map_or(&[], Vec::as_slice)
    }

    /// All tables that the task replaces, with their levels.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = (usize, &Arc<FileMeta>)> + Clone {
        let upper = self.inputs.iter().map(|meta| (self.input_level, meta));
        let between = (self.input_level + 1..).zip(&self.between);
        let between = between.flat_map(|(level, tables)| tables.iter().map(move |m| (level, m)));
        let lower = self.overlapping.iter().map(|meta| (self.output_level, meta));
        upper.chain(between).chain(lower)
    }

    /// The part of the tree that the task changes; `None` without a table.
    pub(crate) fn claim(&self) -> Option<Claim> {
        let replaced: Vec<_> = self.replaced().map(|(_, meta)| Arc::clone(meta)).collect();
        let span = key_span(&replaced)?;
        Some(Claim {
            keyspace: replaced.first()?.keyspace,
            levels: self.input_level..=self.output_level,
            tables: replaced.iter().map(|meta| meta.number).collect(),
            start: span.start.to_vec(),
            end: span.end.map(<[u8]>::to_vec),
        })
    }

    /// The same task. But if it would move a table to level `bottom` that has something to drop, it
    /// rewrites the table: `compact_range` cleans no table there that is newer than the call.
    #[must_use]
    pub(crate) fn clean_at(mut self, bottom: usize) -> Self {
        self.trivial_move &= self.output_level != bottom || !self.inputs.iter().any(may_drop);
        self
    }

    /// The edit that replaces the inputs with `added`. A trivial move adds the input itself and
    /// ignores `added`.
    pub(crate) fn edit(&self, keyspace: KeyspaceId, added: Vec<FileMeta>) -> VersionEdit {
        let added = match self.inputs.first() {
            Some(moved) if self.trivial_move => vec![(**moved).clone()],
            _ => added,
        };
        VersionEdit {
            deleted: self
                .replaced()
                .map(|(level, meta)| DeletedFile { keyspace, level, number: meta.number })
                .collect(),
            added: added.into_iter().map(|meta| (self.output_level, meta)).collect(),
            ..VersionEdit::default()
        }
    }
}

/// The tables of a sorted level that share keys with `inputs`, and, while all of that is small, the
/// small tables next to them.
fn with_small_neighbours(
    tables: &[Arc<FileMeta>],
    inputs: &[Arc<FileMeta>],
    options: &CompactionOptions,
) -> Vec<Arc<FileMeta>> {
    let Some(span) = key_span(inputs) else { return Vec::new() };
    let Range { start: mut first, mut end } = overlapping_places(tables, &span);
    let mut bytes = total_bytes(inputs) + total_bytes(&tables[first..end]);
    let joins = |meta: Option<&Arc<FileMeta>>, bytes: u64| {
        let small = meta.map(|meta| meta.bytes).filter(|own| options.is_small(*own));
        small.filter(|own| options.is_small(bytes) && *own <= NEIGHBOUR_FACTOR * bytes)
    };
    loop {
        let before = first.checked_sub(1).and_then(|before| tables.get(before));
        if let Some(own) = joins(before, bytes) {
            first -= 1;
            bytes += own;
        } else if let Some(own) = joins(tables.get(end), bytes) {
            end += 1;
            bytes += own;
        } else {
            return tables[first..end].to_vec();
        }
    }
}

fn tables_below(
    levels: &LevelFiles,
    output_level: usize,
    inputs: &[Arc<FileMeta>],
    overlapping: &[Arc<FileMeta>],
) -> Vec<Vec<Arc<FileMeta>>> {
    let all = [inputs, overlapping].concat();
    let Some(span) = key_span(&all) else { return Vec::new() };
    let deeper = output_level + 1..LEVELS;
    deeper.map(|level| overlapping_tables(level, &levels[level], &span)).collect()
}

/// True if a rewrite at the bottom level may drop entries of the table. Nothing says when the first
/// of the expiring entries does: some may have.
pub(crate) fn may_drop(meta: &Arc<FileMeta>) -> bool {
    meta.garbage + meta.range_deletes + meta.expiring.entries > 0
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    use crate::tree::overlap::{search_order, sequence_span};
    use crate::tree::runs::SortedRuns;
    use crate::tree::testing::drawn_levels;

    /// Limits that fit drawn trees, whose tables have some hundred bytes.
    pub(crate) const OPTIONS: CompactionOptions = CompactionOptions {
        level0_compaction_trigger: 4,
        level_base_bytes: 300,
        level_multiplier: 10,
        table_bytes: 100,
    };

    fn runs_after(task: &CompactionTask, levels: &LevelFiles) -> SortedRuns {
        SortedRuns::after_rewrite(levels, task.replaced(), task.output_level)
    }

    /// A task as text: `L0 5 4 + L1 2 -> L1`, with a note for moves.
    pub(crate) fn described(task: Option<&CompactionTask>) -> String {
        let Some(task) = task else { return "nothing".to_string() };
        let numbers = |tables: &[Arc<FileMeta>]| {
            tables.iter().map(|meta| format!(" {}", meta.number)).collect::<String>()
        };
        let mut text = format!("L{}{}", task.input_level, numbers(&task.inputs));
        for (level, tables) in (task.input_level + 1..).zip(&task.between) {
            if !tables.is_empty() {
                text += &format!(" + L{level}{}", numbers(tables));
            }
        }
        if !task.overlapping.is_empty() {
            text += &format!(" + L{}{}", task.output_level, numbers(&task.overlapping));
        }
        text += &format!(" -> L{}", task.output_level);
        if task.trivial_move {
            text += ", a move";
        }
        text
    }

    /// What `task` leaves of `levels`, its outputs being one table `number` over all its keys and
    /// sequences.
    pub(crate) fn after(levels: &LevelFiles, task: &CompactionTask, number: u64) -> LevelFiles {
        let mut next = levels.clone();
        let gone: Vec<u64> = task.replaced().map(|(_, meta)| meta.number).collect();
        let all: Vec<_> = task.replaced().map(|(_, meta)| Arc::clone(meta)).collect();
        for tables in &mut next {
            Arc::make_mut(tables).retain(|meta| !gone.contains(&meta.number));
        }
        let mut output = (*all[0]).clone();
        let span = key_span(&all).unwrap();
        (output.start, output.end) = (span.start.to_vec(), span.end.map(<[u8]>::to_vec));
        output.range_deletes = all.iter().map(|meta| meta.range_deletes).sum();
        let ages = sequence_span(&all).unwrap();
        (output.smallest_sequence, output.largest_sequence) = (*ages.start(), *ages.end());
        if !task.trivial_move {
            output.number = number;
            output.bytes = all.iter().map(|meta| meta.bytes).sum();
            output.garbage = 0;
        }
        let level = Arc::make_mut(&mut next[task.output_level]);
        level.push(Arc::new(output));
        level.sort_by(|a, b| search_order(task.output_level, a, b));
        next
    }

    #[test]
    fn entries_are_counted_at_their_output_level() {
        // Every drawn table has 100 entries.
        let levels = drawn_levels(
            "L0: 5[x..z] 4[a..d] 3[a..d]\nL1: 9[b..c] 8[x..y]\nL3: 7[a..b] 6[c..d] 2[e..f]",
        );
        let runs = SortedRuns::after_flush(&levels, 7);
        assert_eq!(runs.level(0), [7, 100, 100, 100]);
        assert_eq!(
            (runs.level(1), runs.level(2), runs.level(3)),
            (&[200][..], &[][..], &[300][..])
        );
        assert_eq!((0..7).filter(|&level| runs.is_last(level)).collect::<Vec<_>>(), [3, 4, 5, 6]);

        let down = CompactionTask::down(&levels, 0, levels[0][1..].to_vec(), &OPTIONS);
        let runs = runs_after(&down, &levels);
        assert_eq!(
            (runs.level(0), runs.level(1), runs.level(3)),
            (&[100][..], &[400][..], &[300][..])
        );
        assert!(!runs.is_last(0) && !runs.is_last(1));
        // All of the last level moves down: then the level below is the last one.
        let down = CompactionTask::down(&levels, 3, levels[3].to_vec(), &OPTIONS);
        let runs = runs_after(&down, &levels);
        assert_eq!((runs.level(3), runs.level(4)), (&[][..], &[300][..]));
        assert!(!runs.is_last(3) && runs.is_last(4) && !runs.is_last(1));
        let rewrite = CompactionTask::rewrite(&levels, 1, levels[1][..1].to_vec());
        assert_eq!(runs_after(&rewrite, &levels).level(1), [200]);
    }
}
