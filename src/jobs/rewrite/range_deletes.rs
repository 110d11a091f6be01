//! Which part of the range deletes of a job each of its tables gets.
//!
//! The outputs of a job divide all keys: a table begins at the border where the one before it ended
//! and gets the fragments up to its own border, cut there. So no key has range deletes in two
//! tables of a job (I4). A border is the key of the first entry after it, or the start of a
//! fragment: a table ends where its block of range deletes would get too large.
//!
//! Legal calls: `next_part` with each key that begins, ascending, until it returns `None`; at last
//! without a key. A fragment that begins at a key or before it has begun when the table is cut
//! there. Otherwise its start would be a later border below that cut, and two tables would share
//! keys.

use crate::base::range_deletes::{Fragment, RangeDeletes};
use std::collections::btree_map;
use std::iter::Peekable;

/// Data blocks that the block of range deletes of one table is as large as, at most. It stays in
/// memory as long as the table is open.
const BLOCKS_MAX: u64 = 64;

/// The range deletes of a job, on their way into its tables.
#[derive(Debug)]
pub(crate) struct OutputDeletes {
    /// Those that do not begin in the open table, as far as it goes.
    rest: Peekable<btree_map::IntoIter<Vec<u8>, Fragment>>,
    /// Those that do.
    part: RangeDeletes,
    /// Encoded bytes of `part`.
    bytes: u64,
    /// Encoded bytes that one table takes.
    bytes_max: u64,
    /// Where the open table begins; `None` once the last one has ended.
    border: Option<Vec<u8>>,
}

impl OutputDeletes {
    /// `deletes` are those that stay, `block_bytes` the size of a data block.
    pub(crate) fn new(deletes: RangeDeletes, block_bytes: usize) -> Self {
        OutputDeletes {
            rest: deletes.into_iter().peekable(),
            part: RangeDeletes::default(),
            bytes: 0,
            bytes_max: BLOCKS_MAX * block_bytes as u64,
            border: Some(Vec::new()),
        }
    }

    /// The same, all in one table.
    pub(crate) fn in_one_table(deletes: RangeDeletes) -> Self {
        OutputDeletes { bytes_max: u64::MAX, ..OutputDeletes::new(deletes, 0) }
    }

    /// The part of the next table that ends before `key`, the key of the next entry; `None` if the
    /// open table takes that entry. With `cut` the open table ends there. Without a key all tables
    /// end.
    ///
    /// # Errors
    /// The keys or the borders of tables do not ascend. Two tables would share keys, so the job
    /// must fail.
    pub(crate) fn next_part(
        &mut self,
        key: Option<&[u8]>,
        cut: bool,
    ) -> Result<Option<RangeDeletes>, String> {
        let Some(begin) = self.border.take() else { return Ok(None) };
        if key.is_some_and(|key| key < &begin[..]) {
            return Err("the keys of a job do not ascend".into());
        }
        let end = match (self.extend(key), key) {
            (Some(start), _) => Some(start),
            (None, Some(key)) if cut && key != &begin[..] => Some(key.to_vec()),
            (None, Some(_)) => {
                self.border = Some(begin);
                return Ok(None);
            }
            (None, None) => None,
        };
        if end.as_ref().is_some_and(|end| *end <= begin) {
            return Err("the borders of a job's tables do not ascend".into());
        }
        // The last fragment may continue in the next table.
        let next = end.as_deref().map_or(RangeDeletes::NONE, |end| self.part.split_off(end));
        self.bytes = next.fragments().map(|(start, own)| own.encoded_bytes(start)).sum();
        self.border = end;
        Ok(Some(std::mem::replace(&mut self.part, next)))
    }

    /// Begins the fragments up to the next entry, which has `key`; without one all of them. If the
    /// table must end before that, returns its border.
    fn extend(&mut self, key: Option<&[u8]>) -> Option<Vec<u8>> {
        // A fragment that begins at the key is added before the entry is. So a later border is
        // above every key of the open table.
        let has_begun = |start: &Vec<u8>| key.is_none_or(|key| &start[..] <= key);
        while let Some((start, fragment)) = self.rest.peek()
            && has_begun(start)
        {
            let bytes = fragment.encoded_bytes(start);
            if self.bytes > 0 && self.bytes + bytes > self.bytes_max {
                return Some(start.clone());
            }
            self.bytes += bytes;
            let begun = self.rest.next();
            begun.into_iter().for_each(|(start, fragment)| self.part.push(start, fragment));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::range_deletes::RangeDelete;
    use proptest::prelude::*;

    fn key(number: u16) -> Vec<u8> {
        format!("{number:03}").into_bytes()
    }

    fn encoded_bytes(deletes: &RangeDeletes) -> impl Iterator<Item = u64> {
        deletes.fragments().map(|(start, fragment)| fragment.encoded_bytes(start))
    }

    proptest! {
        /// Tables in order, none with more than it may have, that together cover what the job does;
        /// and none gets a range delete of a key that another one has.
        #[test]
        fn parts_share_no_key_and_lose_none(
            deletes in proptest::collection::vec((0u16..100, 1u16..30), 0..60),
            entries in proptest::collection::btree_map(0u16..100, any::<bool>(), 0..30),
        ) {
            let deletes: Vec<_> = (1..).zip(deletes).map(|(sequence, (start, width))| {
                RangeDelete { start: key(start), end: Some(key(start + width)), sequence }
            }).collect();
            let all = RangeDeletes::fragmented(&deletes, &[]);
            let widest = encoded_bytes(&all).max().unwrap_or(0);
            let mut outputs = OutputDeletes::new(all.clone(), 1);
            let (mut parts, mut begin, mut last) = (Vec::new(), Vec::new(), None);
            let ends = entries.iter().map(|(number, cut)| (Some(key(*number)), *cut));
            for (next, cut) in ends.chain([(None, true)]) {
                let mut count = 0;
                while let Some(part) = outputs.next_part(next.as_deref(), cut).unwrap() {
                    let border = outputs.border.clone();
                    // Above the entries of the open table, up to the next one.
                    prop_assert!(last.is_none() || border.is_none() || last < border);
                    prop_assert!(next.is_none() || border <= next);
                    prop_assert!(border.as_ref().is_none_or(|border| begin < *border));
                    parts.push((begin, border.clone(), part));
                    begin = border.unwrap_or_default();
                    count += 1;
                }
                prop_assert!(!cut || count > 0 || next.as_ref() == Some(&begin));
                last = next;
            }
            prop_assert_eq!(outputs.next_part(None, true), Ok(None));
            for (begin, border, part) in &parts {
                let mut clipped = all.clone();
                border.iter().for_each(|border| _ = clipped.split_off(border));
                prop_assert_eq!(part, &clipped.split_off(begin));
                let bytes: u64 = encoded_bytes(part).sum();
                // A fragment that crosses a border counts in both tables.
                prop_assert!(bytes <= BLOCKS_MAX.max(widest) + widest);
            }
            for number in 0..130 {
                let holding = parts.iter().filter(|(_, _, part)| part.covering(&key(number), 99) > 0);
                let found: Vec<_> = holding.map(|(_, _, part)| part.covering(&key(number), 99)).collect();
                let expected = all.covering(&key(number), 99);
                prop_assert_eq!(found, if expected > 0 { vec![expected] } else { vec![] });
            }
        }
    }

    #[test]
    fn borders_that_go_back_are_errors() {
        let delete = |start, sequence| RangeDelete { start: key(start), end: None, sequence };
        let all = RangeDeletes::fragmented(&[delete(10, 1), delete(20, 2)], &[]);
        let mut outputs = OutputDeletes::new(all, 0);
        assert!(outputs.next_part(Some(&key(30)), true).unwrap().is_some());
        assert!(outputs.next_part(Some(&key(15)), false).is_err(), "a key before the open table");
        // A fragment that an earlier table should have begun, as a defect could leave one.
        (outputs.border, outputs.bytes) = (Some(key(40)), 1);
        assert!(outputs.next_part(Some(&key(50)), false).is_err());
    }
}
