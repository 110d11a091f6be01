//! Walks over a merge that stop at the entries that a user sees: [`Forward`] and [`Backward`].
//!
//! A merge gives every version of each key, tombstones, expired entries and what range deletes
//! cover. A walk passes all of these and stops at the newest visible version of a key. Iterators
//! and cursors are made of walks. A walk of a transaction notes what it crosses.

use crate::base::error::Result;
use crate::base::expiry::EXPIRY_BYTES;
use crate::base::iterator::api::{Direction, InternalIterator};
use crate::base::iterator::merging::MergingIter;
use crate::base::key::{LookupKey, ValueKind, split_internal_key};
use crate::base::range::KeyBounds;
use crate::base::value::{INLINE_BYTES, Key};
use crate::read::range_delete_iter::RangeDeleteIter;
use crate::read::scan::{Passed, Scan, Source};
use crate::state::read_set::ReadRange;
use std::ops::Bound;

/// Where an ascending walk ends.
#[derive(Clone, Copy)]
pub(crate) struct Until<'a> {
    /// At the end of the range of this scan.
    pub scan: &'a Scan,
    /// And before this key.
    pub key: Option<&'a [u8]>,
}

impl Until<'_> {
    #[inline]
    fn covers(&self, key: &[u8]) -> bool {
        self.scan.bounds.is_before_end(key) && self.key.is_none_or(|end| key < end)
    }
}

/// What an ascending walk has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Put,
    /// An expiring put that has not expired: its stored value begins with the time.
    ExpiringPut,
    /// Nothing: the walk is at its end, or at an error of the merge.
    End,
}

/// Ascending: the first visible version of a user key is its newest.
pub(crate) struct Forward {
    /// At the entry that was found last.
    merge: MergingIter<Source>,
    /// The range deletes of the sources, if there are any.
    deletes: Option<Box<RangeDeleteIter>>,
    /// Its user key: the other versions of it are older.
    key: FoundKey,
    /// The walk has reached its end.
    ended: bool,
    /// What the last call passed.
    pub(crate) passed: Passed,
    hidden: HiddenVersions,
    /// Of a transaction: where to note what is crossed.
    read_range: Option<Box<Crossed>>,
}

/// Counts the hidden versions that a walk steps over, and notices when many are of one key.
///
/// A key that is written again and again has all of its versions in the memtable until that is
/// flushed. To step over a million of them takes as long as over a million keys.
#[derive(Default)]
struct HiddenVersions {
    count: usize,
    /// Of the last one whose number was a multiple of [`HIDDEN_VERSIONS`].
    key: Vec<u8>,
}

/// How many hidden versions a walk steps over before it compares their keys.
const HIDDEN_VERSIONS: usize = 64;

impl HiddenVersions {
    /// Counts one. True if the one that was looked at before is of the same key.
    fn add(&mut self, key: &[u8]) -> bool {
        self.count = self.count.wrapping_add(1);
        if !self.count.is_multiple_of(HIDDEN_VERSIONS) {
            return false;
        }
        let is_same = self.key == key;
        key.clone_into(&mut self.key);
        is_same
    }
}

/// What a walk of a transaction crosses, since its last seek.
struct Crossed {
    read_range: ReadRange,
    /// From the bound of the last seek to the end of the walk; none before the first.
    range: Option<KeyBounds>,
    /// The last key that a descending walk found.
    reached: Option<Key>,
}

impl Crossed {
    fn of(scan: &Scan) -> Option<Box<Crossed>> {
        let read_range = scan.read_range()?;
        Some(Box::new(Crossed { read_range, range: None, reached: None }))
    }
}

impl Forward {
    pub(crate) fn new(scan: &Scan) -> Self {
        let read_range = Crossed::of(scan);
        let (merge, deletes) = scan.merge(Direction::Forward);
        let (key, hidden) = (FoundKey::default(), HiddenVersions::default());
        Forward { merge, deletes, key, ended: false, passed: Passed::default(), hidden, read_range }
    }

    /// Notes what was crossed since the last seek: up to the entry that was found, or to the end.
    fn track_range(&self) {
        if let Some(crossed) = &self.read_range
            && let Some(range) = &crossed.range
        {
            crossed.read_range.add(&match self.ended {
                true => range.clone(),
                false => {
                    let end = Some(Key::with_byte(self.key.bytes(), 0));
                    KeyBounds { start: range.start.clone(), end }
                }
            });
        }
    }

    /// The user key of the entry that was found.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.key.bytes()
    }

    /// The same as a key of its own.
    #[inline(always)]
    pub(crate) fn owned_key(&self) -> Key {
        self.key.to_owned()
    }

    /// The source at the entry that was found.
    #[inline]
    pub(crate) fn source(&self) -> Option<&Source> {
        self.merge.current()
    }

    /// The error that ended the walk, if there was one.
    pub(crate) fn status(&self) -> Result<()> {
        self.merge.status()
    }

    /// Takes the present bounds of its scan.
    pub(crate) fn take_bounds(&mut self, scan: &Scan) {
        scan.ask_for_bounds(&mut self.merge);
    }

    /// Goes to the first entry from `from` on, as [`Forward::next`].
    pub(crate) fn seek(&mut self, from: Bound<&[u8]>, until: Until<'_>) -> Found {
        self.track_range();
        if let Some(crossed) = &mut self.read_range {
            let end = until.scan.bounds.end.clone();
            crossed.range = Some(KeyBounds { end, ..KeyBounds::between(from, Bound::Unbounded) });
        }
        self.deletes.iter_mut().for_each(|deletes| deletes.restart());
        seek(&mut self.merge, from, Direction::Forward);
        self.key.clear();
        self.ended = false;
        self.find(until)
    }

    /// Goes to the next entry that is visible, and neither a tombstone nor expired.
    // Not inlined: iterators and cursors share one copy with all steps below it inlined.
    #[inline(never)]
    pub(crate) fn next(&mut self, until: Until<'_>) -> Found {
        self.merge.next();
        self.find(until)
    }

    /// Goes on, from where the merge is, to the first entry that counts.
    #[inline(always)]
    fn find(&mut self, until: Until<'_>) -> Found {
        match self.deletes {
            None => self.find_first::<false>(until),
            Some(_) => self.find_uncovered(until),
        }
    }

    /// As `find`, past the entries that range deletes cover.
    // Apart from the walk: most scans meet no range delete.
    #[cold]
    fn find_uncovered(&mut self, until: Until<'_>) -> Found {
        self.find_first::<true>(until)
    }

    #[inline(always)]
    fn find_first<const HAS_DELETES: bool>(&mut self, until: Until<'_>) -> Found {
        self.passed = Passed::default();
        while let Some(source) = self.merge.current() {
            let Some((key, trailer)) = split_internal_key(source.key()) else { break };
            let is_new = !self.key.is(key);
            // Of an entry that the scan does not see, too: all that follows the range may be newer.
            if is_new && !until.covers(key) {
                break;
            }
            if is_new && let Some(kind) = until.scan.visible(trailer) {
                if HAS_DELETES
                    && let Some(deletes) = &mut self.deletes
                    && deletes.covers(key, trailer >> 8)
                {
                    // The older versions of the key are covered, too.
                    let in_memtable = usize::from(source.in_memtable());
                    self.passed.entries += in_memtable;
                    self.passed.droppable += in_memtable;
                    deletes.pass_up(&mut self.merge, |key| until.covers(key));
                    continue;
                }
                self.key.set(key);
                match kind {
                    ValueKind::Put => return Found::Put,
                    ValueKind::ExpiringPut if !until.scan.has_expired(source) => {
                        return Found::ExpiringPut;
                    }
                    ValueKind::ExpiringPut => {
                        self.passed.entries += 1;
                        self.passed.droppable += usize::from(source.in_memtable());
                    }
                    ValueKind::Tombstone => self.passed.entries += 1,
                }
            } else if self.hidden.add(key) && self.pass_versions(until.scan) {
                continue;
            }
            self.merge.next();
        }
        self.ended = true;
        Found::End
    }

    /// Passes what follows a hidden version of a key in the same memtable: older ones, if the key
    /// was found, else those that the scan does not see, either. False in tables, which have few
    /// versions of a key.
    #[cold]
    fn pass_versions(&mut self, scan: &Scan) -> bool {
        let Some(source @ Source::Memtable(_)) = self.merge.current() else { return false };
        let Some((key, trailer)) = split_internal_key(source.key()) else { return false };
        let bound = match self.key.is(key) {
            true => LookupKey::with_trailer(key, 0),
            false => LookupKey::new(key, scan.sees_up_to(trailer)),
        };
        self.merge.skip_to(Some(bound.internal_key()));
        true
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.track_range();
    }
}

/// The user key that a walk found last. It keeps its memory.
struct FoundKey {
    /// A key of at most as many bytes as a [`Key`] has inline.
    short: [u8; INLINE_BYTES],
    /// `usize::MAX` if there is no key yet.
    len: usize,
    /// Any other.
    long: Vec<u8>,
}

impl Default for FoundKey {
    fn default() -> Self {
        FoundKey { short: [0; INLINE_BYTES], len: usize::MAX, long: Vec::new() }
    }
}

impl FoundKey {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.short.get(..self.len).unwrap_or(&self.long)
    }

    #[inline(always)]
    fn to_owned(&self) -> Key {
        match self.len <= INLINE_BYTES {
            true => Key::of_inline(&self.short, self.len),
            false => self.long_to_owned(),
        }
    }

    #[inline(never)]
    fn long_to_owned(&self) -> Key {
        Key::from(&self.long[..])
    }

    fn clear(&mut self) {
        self.len = usize::MAX;
    }

    #[inline(always)]
    fn set(&mut self, key: &[u8]) {
        self.len = key.len();
        // Pieces of a fixed size, which may overlap: a copy of any length would call `memcpy`.
        match (key.first_chunk::<16>(), key.last_chunk::<16>()) {
            (Some(first), Some(last)) if key.len() <= INLINE_BYTES => {
                self.short[..16].copy_from_slice(first);
                self.short[key.len() - 16..key.len()].copy_from_slice(last);
            }
            _ => self.set_any(key),
        }
    }

    #[inline(never)]
    fn set_any(&mut self, key: &[u8]) {
        match self.short.get_mut(..key.len()) {
            Some(short) => short.copy_from_slice(key),
            None => key.clone_into(&mut self.long),
        }
    }

    /// Whether it is this key. Neighbours in sorted order that differ mostly do so at the end.
    #[inline(always)]
    fn is(&self, key: &[u8]) -> bool {
        self.len == key.len() && {
            let own = self.bytes();
            own.last_chunk::<8>() == key.last_chunk::<8>() && own == key
        }
    }
}

/// Descending: the last visible version of a user key is its newest.
pub(crate) struct Backward {
    /// Before each call it is at the last version of a user key.
    merge: MergingIter<Source>,
    /// The range deletes of the sources, if there are any.
    deletes: Option<Box<RangeDeleteIter>>,
    /// What the last call passed.
    pub(crate) passed: Passed,
    hidden: HiddenVersions,
    /// Of a transaction: where to note what is crossed.
    read_range: Option<Box<Crossed>>,
}

impl Backward {
    pub(crate) fn new(scan: &Scan) -> Self {
        let read_range = Crossed::of(scan);
        let (merge, deletes) = scan.merge(Direction::Reverse);
        let (passed, hidden) = (Passed::default(), HiddenVersions::default());
        Backward { merge, deletes, passed, hidden, read_range }
    }

    /// Notes what was crossed since the last seek: down to the entry that was found, or to the
    /// start.
    fn track_range(&self) {
        if let Some(crossed) = &self.read_range
            && let Some(range) = &crossed.range
        {
            let start = crossed.reached.as_ref().unwrap_or(&range.start).clone();
            crossed.read_range.add(&KeyBounds { start, end: range.end.clone() });
        }
    }

    /// Takes the present bounds of its scan.
    pub(crate) fn take_bounds(&mut self, scan: &Scan) {
        scan.ask_for_bounds(&mut self.merge);
    }

    /// Goes to the last entry before `from`: the next call begins there.
    pub(crate) fn seek(&mut self, from: Bound<&[u8]>, scan: &Scan) {
        self.track_range();
        if let Some(crossed) = &mut self.read_range {
            let start = scan.bounds.start.clone();
            crossed.range = Some(KeyBounds { start, ..KeyBounds::between(Bound::Unbounded, from) });
            crossed.reached = None;
        }
        self.deletes.iter_mut().for_each(|deletes| deletes.restart());
        seek(&mut self.merge, from, Direction::Reverse);
    }

    /// The last entry from here on that is visible, and neither a tombstone nor expired: its key,
    /// and what `take` makes of its value, which begins after that many bytes of what is stored.
    pub(crate) fn next<V>(
        &mut self,
        scan: &Scan,
        within: impl Fn(&[u8]) -> bool,
        take: impl Fn(&Source, usize) -> V,
    ) -> Option<Result<(Key, V)>> {
        // The newest visible version so far of the current user key; without a value, it is gone.
        let mut candidate: Option<(Key, Option<V>)> = None;
        self.passed = Passed::default();
        while let Some(source) = self.merge.current() {
            let Some((key, trailer)) = split_internal_key(source.key()) else { break };
            if let Some((current, value)) = &candidate
                && **current != *key
            {
                if value.is_some() {
                    break;
                }
                candidate = None;
                self.passed.entries += 1;
            }
            if !within(key) {
                break;
            }
            if let Some(kind) = scan.visible(trailer) {
                if let Some(deletes) = &mut self.deletes
                    && deletes.covers(key, trailer >> 8)
                {
                    // A newer version of the key may follow in another child.
                    let in_memtable = usize::from(source.in_memtable());
                    self.passed.entries += in_memtable;
                    self.passed.droppable += in_memtable;
                    deletes.pass_down(&mut self.merge, |key| scan.bounds.is_after_start(key));
                    continue;
                }
                let value = match kind {
                    ValueKind::Put => Some(take(source, 0)),
                    ValueKind::ExpiringPut if !scan.has_expired(source) => {
                        Some(take(source, EXPIRY_BYTES))
                    }
                    ValueKind::ExpiringPut => {
                        self.passed.droppable += usize::from(source.in_memtable());
                        None
                    }
                    ValueKind::Tombstone => None,
                };
                match &mut candidate {
                    Some((_, newest)) => *newest = value,
                    None => candidate = Some((Key::from(key), value)),
                }
            }
            if !(self.hidden.add(key) && self.pass_versions(scan)) {
                self.merge.next();
            }
        }
        let ended = self.merge.status();
        let found =
            candidate.and_then(|(key, value)| Some((key, value?))).filter(|_| ended.is_ok());
        if let Some(crossed) = &mut self.read_range {
            crossed.reached = found.as_ref().map(|(key, _)| key.clone());
        }
        ended.map_or_else(|error| Some(Err(error)), |()| found.map(Ok))
    }

    /// Skips versions of a key in a memtable. If the scan sees a newer one there, the newest such
    /// version is next, else the key before. False in tables, which have few versions of a key.
    #[cold]
    fn pass_versions(&mut self, scan: &Scan) -> bool {
        let Some(Source::Memtable(memtable)) = self.merge.current() else { return false };
        let Some((key, trailer)) = split_internal_key(memtable.key()) else { return false };
        let newest = memtable.newest(&LookupKey::new(key, scan.sees_up_to(trailer)));
        // The last entry before a bound is the next one in reverse.
        let bound = newest.filter(|newest| trailer < *newest).map_or(u64::MAX, |newest| newest - 1);
        let bound = LookupKey::with_trailer(key, bound);
        self.merge.skip_to(Some(bound.internal_key()));
        true
    }
}

impl Drop for Backward {
    fn drop(&mut self) {
        self.track_range();
    }
}

/// Moves a merge of that direction to `from`: before every version of its key, or after all of them
/// (see `base/key.rs`).
fn seek(merge: &mut MergingIter<Source>, from: Bound<&[u8]>, direction: Direction) {
    if merge.children_mut().is_empty() {
        // The filters have excluded all tables.
        return;
    }
    let (key, before_versions) = match from {
        Bound::Unbounded => return merge.seek(None),
        Bound::Included(key) => (key, direction == Direction::Forward),
        Bound::Excluded(key) => (key, direction == Direction::Reverse),
    };
    let bound = LookupKey::with_trailer(key, if before_versions { u64::MAX } else { 0 });
    merge.seek(Some(bound.internal_key()));
}
