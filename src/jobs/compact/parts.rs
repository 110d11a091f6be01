//! The parts that a large task is cut into, so that several threads can merge it.
//!
//! They follow from the task alone, not from the threads that are free: the same inputs become the
//! same tables.

use crate::jobs::compact::task::CompactionTask;
use crate::jobs::rewrite::output::KeyPart;
use crate::tree::overlap::total_bytes;
use crate::tree::targets::CompactionOptions;

/// A part has about this many full tables at least. The last output of a part is not full.
const PART_TABLES: u64 = 4;

/// Parts of one task at most. Each reads its inputs by itself.
const PARTS_MAX: u64 = 16;

/// The parts of the keys of `task`, in order. They begin where tables of the output level begin, so
/// few of the old tables are in two parts. A task within level 0 has one part: its output stays one
/// table.
pub(super) fn key_parts(task: &CompactionTask, options: &CompactionOptions) -> Vec<KeyPart> {
    let bytes: u64 = task.replaced().map(|(_, meta)| meta.bytes).sum();
    let part_bytes = options.table_bytes.saturating_mul(PART_TABLES).max(1);
    let count = match task.output_level {
        0 => 1,
        _ => (bytes / part_bytes).clamp(1, PARTS_MAX),
    };
    let lower_bytes = total_bytes(&task.overlapping);
    let (mut parts, mut passed_bytes) = (vec![KeyPart::default()], 0);
    for pair in task.overlapping.windows(2) {
        passed_bytes += pair[0].bytes;
        // What is above the output level is taken to be spread like what is in it.
        if passed_bytes * count >= lower_bytes * parts.len() as u64
            && let Some(last) = parts.last_mut()
        {
            let border = pair[1].start.clone();
            last.end = Some(border.clone());
            parts.push(KeyPart { start: border, end: None });
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::compact::task::tests::OPTIONS;
    use crate::tree::testing::drawn_levels;

    fn starts(drawing: &str) -> String {
        let levels = drawn_levels(drawing);
        let task = CompactionTask::down(&levels, 0, levels[0].to_vec(), &OPTIONS);
        let parts = key_parts(&task, &OPTIONS);
        assert!(parts.windows(2).all(|pair| pair[0].end.as_ref() == Some(&pair[1].start)));
        assert_eq!((&parts[0].start[..], &parts[parts.len() - 1].end), (&[][..], &None));
        parts.iter().map(|part| String::from_utf8(part.start.clone()).unwrap()).collect()
    }

    #[test]
    fn large_tasks_are_cut_where_tables_of_their_output_level_begin() {
        // Full tables have 100 bytes, so parts have 400.
        assert_eq!(starts("L0: 1[a..z]:10\nL1: 2[a..c]:100 3[d..f]:100 4[g..z]:100"), "");
        assert_eq!(starts("L0: 1[a..z]:900\nL1: 2[a..c]:100 3[d..f]:100 4[g..z]:100"), "dg");
        assert_eq!(starts("L0: 1[a..z]:500\nL1: 2[a..c]:100 3[d..f]:100 4[g..z]:200"), "g");
        // There is nothing that says where to cut.
        assert_eq!(starts("L0: 1[a..z]:5000\nL1: 2[a..z]:100"), "");
        assert_eq!(starts("L0: 1[a..z]:5000"), "");
    }
}
