//! The entries of LevelDB's logs, sorted in memory.

use crate::coding::Decoder;
use crate::damage::{Damage, LOSSES_MAX, Loss};
use crate::error;
use crate::internal_key::{SEQUENCE_MAX, internal_key};
use crate::key_order::KeyOrder;
use crate::log::{LogReader, Step};
use crate::merged::Logged;
use crate::store::{EntryKind, Store};
use siftdb::Result;
use siftdb::env::Env;
use std::path::PathBuf;

/// The kinds of entries, in batches and in the trailers of keys.
const DELETION: u8 = EntryKind::Deletion as u8;
const VALUE: u8 = EntryKind::Value as u8;

/// Reads logs, the oldest first.
///
/// # Errors
/// `Io`; `Corruption`, unless damage is noted.
pub(crate) fn read_logs(env: &dyn Env, logs: &[&PathBuf], damage: &Damage) -> Result<Logged> {
    let mut entries = Logged::new();
    // The last bad parts of logs, until a valid record comes after them. A record that a crash tore
    // may have parts in several blocks.
    let mut end: Vec<Loss> = Vec::new();
    let mut sequence = 0;
    for path in logs {
        let mut reader = LogReader::open(env, path, Store::LevelDb, 0)?;
        loop {
            match reader.step()? {
                Step::End | Step::Compressed => break,
                Step::Bad { .. } if end.len() > LOSSES_MAX => {}
                Step::Bad { offset, what, .. } => {
                    let path = path.to_path_buf();
                    end.push(Loss { path, offset, what: what.into() });
                }
                Step::Record { offset, bytes } => {
                    end.drain(..).try_for_each(|earlier| damage.pass(earlier.into_error()))?;
                    match put_batch(&bytes, sequence, &mut entries) {
                        Ok(last) => sequence = last,
                        Err(what) => damage.pass(error::corruption(path, offset, what))?,
                    }
                }
            }
        }
    }
    // A crash cut the last record short.
    for Loss { path, offset, what } in end {
        damage.note(&path, offset, what);
    }
    entries.sort_by(|(a, _), (b, _)| KeyOrder::Bytewise.compare_internal(a, b));
    Ok(entries)
}

/// Adds the entries of a batch. Returns the sequence of its last one; the first must be above
/// `after`. The error says what is wrong; then nothing was added.
fn put_batch(
    batch: &[u8],
    after: u64,
    entries: &mut Logged,
) -> std::result::Result<u64, &'static str> {
    let (mut added, malformed) = (Vec::new(), "a malformed batch");
    let mut decoder = Decoder::new(batch);
    let (Some(first), Some(count)) = (decoder.u64(), decoder.u32()) else { return Err(malformed) };
    let last = first.saturating_add(count.into()).saturating_sub(1);
    if first > SEQUENCE_MAX || last > SEQUENCE_MAX || first <= after && count > 0 {
        return Err("a batch whose sequence does not follow the one before it");
    }
    for sequence in first..first + u64::from(count) {
        let entry = match (decoder.u8(), decoder.length_prefixed()) {
            (Some(VALUE), Some(key)) => decoder.length_prefixed().map(|value| (VALUE, key, value)),
            (Some(DELETION), Some(key)) => Some((DELETION, key, &[][..])),
            _ => None,
        };
        let (kind, key, value) = entry.ok_or(malformed)?;
        added.push((internal_key(key, sequence << 8 | u64::from(kind)), value.to_vec()));
    }
    if !decoder.is_empty() {
        return Err(malformed);
    }
    entries.append(&mut added);
    Ok(last.max(after))
}
