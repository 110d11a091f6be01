//! Which part of the range deletes of a job each of its tables gets.
//!
//! The outputs of a job divide all keys: a table begins at the border where the one before it ended
//! and gets the fragments up to its own border, cut there. So no key has range deletes in two
//! tables of a job (I4). A border is the key of the first entry after it, or the start of a
//! fragment: a table ends where its block of range deletes would get too large.

use crate::base::range_deletes::RangeDeletes;

/// Data blocks that the block of range deletes of one table is as large as, at most. It stays in
/// memory as long as the table is open.
const BLOCKS_MAX: u64 = 64;

/// The range deletes of a job, on their way into its tables.
#[derive(Debug)]
pub(crate) struct OutputDeletes {
    deletes: RangeDeletes,
    /// Encoded bytes that one table takes.
    bytes_max: u64,
    /// Where the open table begins.
    border: Vec<u8>,
    /// The first fragment that does not begin in the open table, as far as it goes.
    next: usize,
    /// Encoded bytes of those that do.
    bytes: u64,
}

impl OutputDeletes {
    /// `deletes` are those that stay, `block_bytes` the size of a data block.
    #[must_use]
    pub(crate) fn new(deletes: RangeDeletes, block_bytes: usize) -> Self {
        let bytes_max = BLOCKS_MAX * block_bytes as u64;
        OutputDeletes { deletes, bytes_max, border: Vec::new(), next: 0, bytes: 0 }
    }

    /// Extends the open table up to the next entry, which has `key`; without one to the end. If
    /// the table must end before that, returns its border: ask again after the cut.
    pub(crate) fn extend(&mut self, key: Option<&[u8]>) -> Option<Vec<u8>> {
        while let Some(fragment) = self.deletes.fragments().get(self.next) {
            // A fragment that begins at the key is added before the entry is. So a later border is
            // above every key of the open table.
            if key.is_some_and(|key| key < &fragment.start[..]) {
                break;
            }
            let bytes = fragment.encoded_bytes();
            if self.bytes > 0 && self.bytes + bytes > self.bytes_max {
                return Some(fragment.start.clone());
            }
            self.bytes += bytes;
            self.next += 1;
        }
        None
    }

    /// The part of the open table, which ends before `border` or has no end. The next one begins
    /// there.
    pub(crate) fn take_part(&mut self, border: Option<&[u8]>) -> RangeDeletes {
        let part = self.deletes.clipped(&self.border, border);
        let begun = self.next.checked_sub(1).and_then(|last| self.deletes.fragments().get(last));
        // The last fragment may continue in the next table.
        let goes_on = begun.filter(|last| border.is_some_and(|border| !last.ends_before(border)));
        self.bytes = goes_on.map_or(0, |fragment| fragment.encoded_bytes());
        self.border = border.unwrap_or_default().to_vec();
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::range_deletes::RangeDelete;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn key(number: u16) -> Vec<u8> {
        format!("{number:03}").into_bytes()
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
            let widest = all.fragments().iter().map(|f| f.encoded_bytes()).max().unwrap_or(0);
            let mut outputs = OutputDeletes::new(all.clone(), 1);
            let (mut parts, mut begin, mut last) = (Vec::new(), Vec::new(), None);
            let ends = entries.iter().map(|(number, cut)| (Some(key(*number)), *cut));
            for (next, cut) in ends.chain([(None, true)]) {
                let mut borders = BTreeSet::new();
                while let Some(border) = outputs.extend(next.as_deref()) {
                    // Above the entries of the open table, up to the next one.
                    prop_assert!(last.as_ref().is_none_or(|last| *last < border));
                    prop_assert!(next.as_ref().is_none_or(|next| border <= *next));
                    prop_assert!(borders.insert(border.clone()), "asked for twice");
                    parts.push((begin, Some(border.clone()), outputs.take_part(Some(&border))));
                    begin = border;
                }
                if cut {
                    let part = outputs.take_part(next.as_deref());
                    parts.push((begin, next.clone(), part));
                    begin = next.clone().unwrap_or_default();
                }
                last = next;
            }
            for (begin, border, part) in &parts {
                prop_assert_eq!(part, &all.clipped(begin, border.as_deref()));
                let bytes: u64 = part.fragments().iter().map(|f| f.encoded_bytes()).sum();
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
}
