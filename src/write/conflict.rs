//! The check of a transaction: was anything that it read written since its snapshot?
//!
//! Writes are numbered in the order of their commits. So a transaction whose reads are unchanged up
//! to its own number could have read everything at that moment: it takes its place in one order of
//! all transactions. The check has two halves.
//!
//! - [`check`], in the thread that commits, before it joins the queue: from the snapshot to the
//!   published sequence. It asks memtables and then tables, filters first. Tables without a newer
//!   entry are not asked. Ranges are compared with the recent writes instead, if these go back far
//!   enough: that walks what was written and not what was read.
//! - [`refuse_conflicts`], in the leader: the rest, from the recent writes in memory, and what
//!   earlier members of the group write. The leader reads no file. If the recent writes do not go
//!   back far enough, the transaction is checked again.

use crate::base::batch_format::DecodedBatch;
use crate::base::error::{Error, Result};
use crate::base::key::{LookupKey, SEQUENCE_MAX, SequenceNumber};
use crate::base::range::KeyBounds;
use crate::base::sync::Ordering;
use crate::base::value::Key;
use crate::state::context::Context;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::state::read_set::{KeyspaceReads, ReadSet};
use crate::state::read_view::ReadView;
use crate::state::recent_writes::{Conflict, RecentList};
use crate::state::write_queue::{CheckedReads, Request};
use crate::state::writer::LogState;
use crate::state::writer::Writer;
use siftdb_filter::hash::KeyHash;

/// Recent writes that are compared at a time: the leader waits for their lock.
const COMPARED_AT_ONCE: usize = 1_000;

/// Recent writes that may be left to the leader.
const LEFT_TO_LEADER: usize = 100;

/// Why a request was left out of its group.
pub(super) enum Refusal {
    /// This is its answer.
    Failed(Error),
    /// It must be checked again.
    Unchecked,
}

/// Checks `reads` through the published sequence, and notes that.
///
/// # Errors
/// `Conflict`; `Closed`; the error of a table that must be read.
pub(super) fn check(engine: &Engine, reads: &mut CheckedReads) -> Result<()> {
    if let Some(conflict) = with_drop(reads) {
        return Err(conflict);
    }
    // Before the views: everything up to it is in a view that is loaded later, except what
    // compactions have dropped (`tree/newer.rs` says why that is no matter).
    let published = engine.catalog.published.visible();
    let scanned = reads.set.keyspaces().any(|own| own.ranges.iter().next().is_some());
    let compares = scanned && engine.writer.recent.list().cover(reads.through, published);
    if !compares && reads.through < published {
        for own in reads.set.keyspaces() {
            check_keyspace(own, reads.through)?;
        }
        reads.through = published;
    }
    // What was written meanwhile.
    let published = engine.catalog.published.visible();
    let left = if compares { 0 } else { LEFT_TO_LEADER };
    loop {
        let list = engine.writer.recent.list();
        if !list.has_more_above(reads.through, left) || reads.through >= published {
            return Ok(());
        }
        let compared = list.compare((reads.through, published), COMPARED_AT_ONCE, &reads.set);
        reads.through = compared.map_err(|conflict| error_of(&reads.set, conflict))?;
    }
}

/// Checks what was read of one keyspace.
fn check_keyspace(own: &KeyspaceReads, since: SequenceNumber) -> Result<()> {
    let view = own.keyspace.view.load_full();
    if view.dropped {
        return Err(dropped(own));
    }
    if view.lock.is_none() {
        return Err(Error::Closed);
    }
    for key in &own.keys {
        if has_newer(&view, key, since)? {
            return Err(conflict_at(&own.keyspace, key.to_vec()));
        }
    }
    for (start, end) in own.ranges.iter() {
        let bounds = KeyBounds { start: Key::from(start), end: end.map(Key::from) };
        if let Some(key) = newer_within(&view, &bounds, since)? {
            return Err(conflict_at(&own.keyspace, key));
        }
    }
    Ok(())
}

/// True if something in `view` writes or deletes the key above `since`.
fn has_newer(view: &ReadView, key: &[u8], since: SequenceNumber) -> Result<bool> {
    let lookup = LookupKey::new(key, SEQUENCE_MAX);
    let hash = KeyHash::new(key);
    let mut memtables = view.memtables().filter(|memtable| !memtable.is_empty());
    if memtables.any(|memtable| memtable.has_newer(&lookup, &hash, since)) {
        return Ok(true);
    }
    view.version.has_newer(&lookup, &hash, since)
}

/// A key of `bounds` that something in `view` writes or deletes above `since`.
fn newer_within(
    view: &ReadView,
    bounds: &KeyBounds,
    since: SequenceNumber,
) -> Result<Option<Vec<u8>>> {
    for memtable in view.memtables().filter(|memtable| !memtable.is_empty()) {
        if let Some(key) = memtable.newer_within(bounds, since)? {
            return Ok(Some(key));
        }
    }
    view.version.newer_within(bounds, since)
}

/// Refuses the requests of a group whose reads were written, by earlier groups or by earlier
/// members of this one, and notes what the others write. In the order of the group, which is that
/// of the numbers that its members get.
#[inline]
pub(super) fn refuse_conflicts(
    context: &Context,
    writer: &Writer,
    log: &LogState,
    group: &[Request],
    refused: &mut Vec<(usize, Refusal)>,
) {
    let members = group.iter().filter(|request| request.reads.is_some()).count();
    let others = writer.recent.transactions() > members;
    if members == 0 && !others {
        return;
    }
    let notes = others || group.len() > 1;
    let mut list = writer.recent.list();
    let (mut last, mut next) = (log.last_sequence, log.next_sequence);
    for (index, request) in group.iter().enumerate() {
        if refused.iter().any(|(left, _)| *left == index) {
            continue;
        }
        if let Some(reads) = &request.reads
            && let Some(refusal) = refusal(&list, reads, last)
        {
            refused.push((index, refusal));
            continue;
        }
        if notes && !request.batch.is_empty() {
            let count = request.batch.len() as u32;
            let batch = DecodedBatch::trusted(next, count, &request.batch.entries);
            list.note(last, &batch, context.options.write_buffer_bytes);
            (last, next) = (next + u64::from(count) - 1, next + u64::from(count));
        }
    }
}

/// Why the transaction cannot be written after `last`, the last number that was given.
fn refusal(list: &RecentList, reads: &CheckedReads, last: SequenceNumber) -> Option<Refusal> {
    // Under the lock of the log, which a drop of a keyspace takes.
    if let Some(conflict) = with_drop(reads) {
        return Some(Refusal::Failed(conflict));
    }
    if !list.cover(reads.through, last) {
        return Some(Refusal::Unchecked);
    }
    let compared = list.compare((reads.through, last), usize::MAX, &reads.set);
    compared.err().map(|conflict| Refusal::Failed(error_of(&reads.set, conflict)))
}

/// The conflict with the drop of a keyspace that was read. It comes before the answer that the
/// keyspace cannot be written to: what was read has changed, so the transaction may run again.
pub(super) fn with_drop(reads: &CheckedReads) -> Option<Error> {
    let is_dropped = |own: &&KeyspaceReads| own.keyspace.dropped_as.load(Ordering::SeqCst) != 0;
    reads.set.keyspaces().find(is_dropped).map(dropped)
}

fn error_of(reads: &ReadSet, conflict: Conflict) -> Error {
    let name = reads.keyspace(conflict.keyspace).map(|own| own.keyspace.name.clone());
    Error::Conflict { keyspace: name.unwrap_or_default(), key: conflict.key }
}

fn conflict_at(keyspace: &KeyspaceState, key: Vec<u8>) -> Error {
    Error::Conflict { keyspace: keyspace.name.clone(), key }
}

/// The drop of a keyspace deletes everything that was read in it.
fn dropped(own: &KeyspaceReads) -> Error {
    conflict_at(&own.keyspace, own.any_key())
}
