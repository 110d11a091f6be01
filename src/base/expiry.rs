//! Expiry: from when on an entry is gone.
//!
//! An *expiring put* is stored like a put, but its value begins with eight bytes: the time from
//! which on reads do not find it. Such times are milliseconds since the Unix epoch, little-endian,
//! called `expires_at`. A put that expires at a time has it from the start. For a put that expires
//! after a duration, the leader of a write group computes it when it numbers the entries.
//! Nothing computes it again: not recovery, a compaction, a repair, or a read.
//!
//! An expired entry is a tombstone. A read that meets it as the newest version ends there, since an
//! older version may lie below.

use crate::base::error::{Error, Result};
use crate::base::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of `expires_at` before the value of an expiring put.
pub(crate) const EXPIRY_BYTES: usize = 8;

/// `expires_at` and the value of an expiring put; `None` if it is too short for both.
#[inline]
pub(crate) fn split_expiring(stored: &[u8]) -> Option<(u64, &[u8])> {
    let (expires_at, value) = stored.split_first_chunk::<EXPIRY_BYTES>()?;
    Some((u64::from_le_bytes(*expires_at), value))
}

/// The value of an expiring put as it is stored, at the end of `dst`.
pub(crate) fn put_expiring(dst: &mut Vec<u8>, expires_at: u64, value: &[u8]) {
    dst.extend_from_slice(&expires_at.to_le_bytes());
    dst.extend_from_slice(value);
}

/// True if a read at `now` does not find the expiring put with the stored value `stored`. A value
/// without `expires_at` never gets here: blocks and batches that have one are refused.
pub(crate) fn has_expired(stored: &[u8], now: u64) -> bool {
    split_expiring(stored).is_none_or(|(expires_at, _)| expires_at <= now)
}

/// Whole milliseconds since the epoch: 0 for earlier times, the largest number for times beyond it.
pub(crate) fn clock_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds of a duration, rounded up; `None` if they are beyond 64 bits.
pub(crate) fn duration_millis(duration: Duration) -> Option<u64> {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).ok()
}

/// When the puts of a write expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    At(SystemTime),
    /// This long after the leader of the write group numbers them.
    After(Duration),
}

impl Expiry {
    /// Refuses a time that cannot be stored.
    ///
    /// # Errors
    /// `InvalidArgument` for a time beyond the range of milliseconds in 64 bits.
    pub(crate) fn check(self) -> Result<()> {
        let millis = match self {
            Expiry::At(time) => time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis(),
            Expiry::After(_) => 0,
        };
        match u64::try_from(millis) {
            Ok(_) => Ok(()),
            Err(_) => {
                let what = format!("an expiry {millis} ms after 1970; at most {} may be", u64::MAX);
                Err(Error::InvalidArgument { what })
            }
        }
    }

    /// `expires_at` of an entry that is numbered at `now`. `None` for a duration that ends beyond
    /// the range: then the entry never expires.
    pub(crate) fn expires_at(self, now: u64) -> Option<u64> {
        match self {
            Expiry::At(time) => Some(clock_millis(time)),
            Expiry::After(duration) => now.checked_add(duration_millis(duration)?),
        }
    }
}

/// The `now` of one read, fixed when it is first asked for. A read that meets no expiring put never
/// asks the clock.
#[derive(Debug, Default)]
pub(crate) struct ReadClock(OnceLock<u64>);

impl ReadClock {
    /// True if the read does not find the expiring put with the stored value `stored`.
    pub(crate) fn has_expired(&self, stored: &[u8], clock: impl FnOnce() -> SystemTime) -> bool {
        has_expired(stored, *self.0.get_or_init(|| clock_millis(clock())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(millis)
    }

    #[test]
    fn entries_expire_at_their_millisecond() {
        let mut stored = Vec::new();
        put_expiring(&mut stored, 1_000, b"value");
        assert_eq!(split_expiring(&stored), Some((1_000, &b"value"[..])));
        assert!(!has_expired(&stored, 999) && has_expired(&stored, 1_000));
        assert_eq!(split_expiring(&stored[..EXPIRY_BYTES - 1]), None);
    }

    #[test]
    fn times_beyond_the_range_are_refused() {
        let last = at(u64::MAX);
        assert!(Expiry::At(last).check().is_ok());
        assert_eq!(Expiry::At(last).expires_at(5), Some(u64::MAX));
        let beyond = Expiry::At(last + Duration::from_millis(1));
        assert!(matches!(beyond.check(), Err(Error::InvalidArgument { .. })));
        assert_eq!(Expiry::At(UNIX_EPOCH - Duration::from_secs(1)).expires_at(5), Some(0));
    }

    #[test]
    fn durations_beyond_the_range_never_expire() {
        let after = |duration| Expiry::After(duration).expires_at(5);
        assert_eq!(after(Duration::ZERO), Some(5));
        assert_eq!(after(Duration::from_nanos(1)), Some(6));
        assert_eq!(after(Duration::from_millis(u64::MAX - 5)), Some(u64::MAX));
        assert_eq!(after(Duration::from_millis(u64::MAX - 4)), None);
        assert_eq!(after(Duration::MAX), None);
        assert!(Expiry::After(Duration::MAX).check().is_ok());
    }

    #[test]
    fn a_read_asks_the_clock_once() {
        let clock = ReadClock::default();
        let mut stored = Vec::new();
        put_expiring(&mut stored, 10, b"");
        assert!(!clock.has_expired(&stored, || at(9)));
        assert!(!clock.has_expired(&stored, || unreachable!("a second question")));
    }
}
