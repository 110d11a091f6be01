//! The file `STATS`: counters kept from one opening to the next.
//!
//! ```text
//! magic: 8 bytes  version: u32  since: u64  counters*  checksum: u32
//! counters := owner: varint  count: varint  count * varint
//! ```
//!
//! The owner is 0 for the database, and 1 more than its number for a keyspace.
//!
//! Advisory: it is replaced at flush and close, without syncs, and when it is absent, damaged or
//! of another version, counting starts at zero. It is never a reason to refuse or delay anything.

use crate::base::checksum::masked;
use crate::base::coding::{Decoder, put_u32, put_u64, put_varint};
use crate::base::filename::FileName;
use crate::base::key::KeyspaceId;
use crate::env::api::{Env, read_file};
use std::path::Path;

/// The first bytes of the file.
pub(crate) const MAGIC: &[u8; 8] = b"siftstat";
const VERSION: u32 = 1;

/// No version of this file is longer: that of the most keyspaces takes some kilobytes for each.
pub(crate) const BYTES_MAX: u64 = 256 << 20;

/// The most that all counters may be together.
const SUM_MAX: u64 = u64::MAX / 2;

/// Saved counters and when counting began, in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SavedStats {
    pub since_unix_seconds: u64,
    /// What `Counters::saved` gave of the database.
    pub database: Vec<u64>,
    /// The same of each keyspace that counted anything.
    pub keyspaces: Vec<(KeyspaceId, Vec<u64>)>,
}

fn encode(stats: &SavedStats) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    put_u32(&mut bytes, VERSION);
    put_u64(&mut bytes, stats.since_unix_seconds);
    let keyspaces = stats.keyspaces.iter().map(|(id, totals)| (u64::from(*id) + 1, totals));
    for (owner, totals) in std::iter::once((0, &stats.database)).chain(keyspaces) {
        put_varint(&mut bytes, owner);
        put_varint(&mut bytes, totals.len() as u64);
        totals.iter().for_each(|&total| put_varint(&mut bytes, total));
    }
    let checksum = masked(&bytes);
    put_u32(&mut bytes, checksum);
    bytes
}

/// The contents of the file; `None` if they are damaged or of another version.
pub(crate) fn decode(bytes: &[u8]) -> Option<SavedStats> {
    let (body, stored) = bytes.split_last_chunk::<4>()?;
    if masked(body) != u32::from_le_bytes(*stored) {
        return None;
    }
    let mut decoder = Decoder::new(body);
    if decoder.bytes(8)? != MAGIC || decoder.u32()? != VERSION {
        return None;
    }
    let since_unix_seconds = decoder.u64()?;
    let mut stats = SavedStats { since_unix_seconds, database: Vec::new(), keyspaces: Vec::new() };
    let mut sum: u64 = 0;
    while !decoder.is_empty() {
        let owner = decoder.varint()?;
        let count = decoder.varint()?.min(decoder.rest().len() as u64);
        let totals: Vec<u64> = (0..count).map_while(|_| decoder.varint()).collect();
        // No computer counts that far, and no sum of some of these overflows.
        sum = totals.iter().try_fold(sum, |sum, total| sum.checked_add(*total))?;
        (sum <= SUM_MAX).then_some(())?;
        match owner.checked_sub(1) {
            None => stats.database = totals,
            Some(id) => stats.keyspaces.push((id.try_into().ok()?, totals)),
        }
    }
    Some(stats)
}

/// The counters that the last session saved, if they can be used.
pub(crate) fn load(env: &dyn Env, directory: &Path) -> Option<SavedStats> {
    let bytes = read_file(env, &FileName::Stats.path(directory), BYTES_MAX).ok()?;
    decode(&bytes)
}

/// Replaces what is saved; a failure leaves the old counters, or none.
pub(crate) fn save(env: &dyn Env, directory: &Path, temporary: u64, stats: &SavedStats) {
    let temporary = FileName::Temporary(temporary).path(directory);
    let written = env.create_new(&temporary).and_then(|mut file| {
        file.write_at(0, &encode(stats))?;
        drop(file);
        env.rename(&temporary, &FileName::Stats.path(directory))
    });
    if written.is_err() {
        // Advisory: nothing is lost but the counters. The next session removes what is left.
        let _ = env.remove(&temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_stats_file_means_no_counters() {
        let stats = SavedStats {
            since_unix_seconds: 1_800_000_000,
            database: vec![1, 2, SUM_MAX - 15],
            keyspaces: vec![(0, vec![3]), (7, vec![4, 5])],
        };
        let good = encode(&stats);
        assert_eq!(decode(&good), Some(stats));
        for cut in 0..good.len() {
            assert_eq!(decode(&good[..cut]), None);
        }
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 1;
            assert_eq!(decode(&bad), None, "byte {index}");
        }
    }

    /// Under a correct checksum: the sums of the figures would not fit.
    #[test]
    fn impossible_counters_mean_no_counters() {
        let stats = |last: u64| SavedStats {
            since_unix_seconds: 1_800_000_000,
            database: vec![1, u64::MAX / 4],
            keyspaces: vec![(0, vec![u64::MAX / 8]), (7, vec![last])],
        };
        assert_eq!(decode(&encode(&stats(5))), Some(stats(5)));
        assert_eq!(decode(&encode(&stats(u64::MAX / 4))), None);
        assert_eq!(decode(&encode(&stats(u64::MAX))), None);
    }
}
