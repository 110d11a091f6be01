//! Where the outputs of a compaction end: when they are full, and where tables of the next level
//! end.
//!
//! It is a function of the task alone, so the same inputs become the same tables.

use crate::base::sync::Arc;
use crate::jobs::compact::task::CompactionTask;
use crate::tree::file_meta::FileMeta;
use crate::tree::targets::CompactionOptions;

/// The borders of one task's outputs.
pub(crate) struct OutputCuts<'a> {
    /// The tables of the level below the output that do not end before the last key.
    grandparents: &'a [Arc<FileMeta>],
    /// Bytes of those that end within the open output: what that overlaps.
    passed_bytes: u64,
    options: &'a CompactionOptions,
    /// Every lookup asks each table of level 0, so the output there stays one table.
    one_table: bool,
}

impl<'a> OutputCuts<'a> {
    /// Those of the outputs from the key `start` on.
    pub(crate) fn new(
        task: &'a CompactionTask,
        options: &'a CompactionOptions,
        start: &[u8],
    ) -> Self {
        let grandparents = task.grandparents();
        let first = grandparents.partition_point(|table| table.ends_before(start));
        OutputCuts {
            grandparents: grandparents.get(first..).unwrap_or_default(),
            passed_bytes: 0,
            options,
            one_table: task.output_level == 0,
        }
    }

    /// True if the open output, of `open_bytes`, ends before the user key `key`: if it is full, if
    /// it overlaps too much of the next level, or where a table of that level ends and it is half
    /// full. Tables that end together overlap no part of a table, which would be rewritten with
    /// them.
    pub(crate) fn ends_before(&mut self, key: &[u8], open_bytes: u64) -> bool {
        if self.one_table {
            return false;
        }
        let mut passes_border = false;
        while let Some((first, rest)) = self.grandparents.split_first()
            && first.ends_before(key)
        {
            self.passed_bytes += first.bytes;
            self.grandparents = rest;
            passes_border = true;
        }
        let options = self.options;
        let ends = open_bytes >= options.table_bytes
            || (passes_border && open_bytes >= options.table_bytes / 2)
            || self.passed_bytes > options.grandparent_bytes_max();
        if ends {
            self.passed_bytes = 0;
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::compact::task::tests::OPTIONS;
    use crate::tree::testing::drawn_levels;

    /// The first keys of the outputs of a task that leads down to level 1, in which each key of
    /// `a` to `z` takes `bytes`.
    fn cut(drawing: &str, bytes: u64) -> String {
        cut_from(b'a', drawing, bytes)
    }

    /// The same for the part of the task that begins with the key `start`.
    fn cut_from(start: u8, drawing: &str, bytes: u64) -> String {
        let levels = drawn_levels(drawing);
        let task = CompactionTask::down(&levels, 0, levels[0].to_vec(), &OPTIONS);
        let mut cuts = OutputCuts::new(&task, &OPTIONS, &[start]);
        let (mut open, mut firsts) = (0, String::new());
        for key in start..=b'z' {
            if cuts.ends_before(&[key], open) {
                open = 0;
                firsts.push(char::from(key));
            }
            open += bytes;
        }
        firsts
    }

    #[test]
    fn outputs_end_where_tables_of_the_next_level_end() {
        // Full tables have 100 bytes.
        assert_eq!(cut("L0: 1[a..z]", 10), "ku");
        assert_eq!(cut("L0: 1[a..z]\nL2: 2[a..f] 3[g..m] 4[n..v]", 10), "gnw");
        // Not before they are half full.
        assert_eq!(cut("L0: 1[a..z]\nL2: 2[a..d] 3[e..e] 4[n..p]", 10), "fpz");
        // Nor later than when they overlap too much: ten full tables.
        assert_eq!(cut("L0: 1[a..z]\nL2: 2[a..c]:1000 3[d..e]:1 4[f..z]", 1), "f");
    }

    #[test]
    fn a_part_passes_no_table_before_its_start() {
        assert_eq!(cut_from(b'm', "L0: 1[a..z]\nL2: 2[a..c]:2000 3[n..z]", 1), "");
        assert_eq!(cut_from(b'm', "L0: 1[a..z]\nL2: 2[m..n]:2000 3[o..z]", 1), "o");
    }
}
