//! [`CompactionFilter`]: a user's rule for which entries compactions keep.
//!
//! Only `jobs/rewrite/output.rs` asks it, through `filter::policy::guarded`: a panic fails the job.

use std::fmt::Debug;

/// A rule that compactions ask which entries to keep: see [`KeyspaceOptions::compaction_filter`].
///
/// # The contract
///
/// 1. **It is asked for one version of a key**, the newest one in the tables that the compaction
///    reads, if that has a value and has not expired. A newer one may be in memory or in a level
///    above: then what the filter decides shows in no read. Entries that a live snapshot sees are
///    never shown to it, so a snapshot loses nothing by a filter that was taken before the
///    compaction began. One that is taken while a compaction runs may see what the filter decided.
///    Iterators see what was there when they were made.
/// 2. **It is asked at some time, or never.** Only a compaction that writes tables asks; a flush
///    does not, nor a table that only moves to another level. [`Keyspace::compact_range_with`] with
///    [`force`] asks for every entry of a range. The same entry is asked about again in later
///    compactions.
/// 3. **An entry that it removes is deleted**: reads no longer find the key. Older versions of it
///    do not come back.
/// 4. **A replacement keeps the age and the expiry** of the entry.
/// 5. **No error channel.** A panic, or a replacement over 1 GiB, fails the compaction with
///    [`Error::CompactionFilter`]: its tables stay as they were, and the database takes no more
///    writes until it is reopened. The filter should not block, nor use the database that it works
///    for.
/// 6. **It is not saved.** Each opening gives it again. Until a keyspace is opened with it, its
///    compactions do without. A job that runs at that moment ends without it.
///
/// # Example
///
/// ```
/// use siftdb::{CompactionDecision, CompactionFilter, CompactRangeOptions, Db, KeyspaceOptions};
/// use std::sync::Arc;
///
/// /// Removes drafts.
/// #[derive(Debug)]
/// struct NoDrafts;
///
/// impl CompactionFilter for NoDrafts {
///     fn name(&self) -> &str {
///         "example.NoDrafts"
///     }
///
///     fn filter(&self, _key: &[u8], value: &[u8]) -> CompactionDecision {
///         match value {
///             b"draft" => CompactionDecision::Remove,
///             _ => CompactionDecision::Keep,
///         }
///     }
/// }
///
/// # fn main() -> siftdb::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let db = Db::open(directory.path().join("db"))?;
/// let options = KeyspaceOptions::new().compaction_filter(Arc::new(NoDrafts));
/// let pages = db.keyspace_with("pages", &options)?;
/// pages.put("home", "draft")?;
/// pages.put("about", "text")?;
/// pages.flush()?;
/// pages.compact_range_with(.., &CompactRangeOptions::new().force(true))?;
/// assert_eq!(pages.get("home")?, None);
/// assert_eq!(pages.get("about")?.unwrap(), "text");
/// # db.close()
/// # }
/// ```
///
/// [`KeyspaceOptions::compaction_filter`]: crate::KeyspaceOptions::compaction_filter
/// [`Keyspace::compact_range_with`]: crate::Keyspace::compact_range_with
/// [`force`]: crate::CompactRangeOptions::force
/// [`Error::CompactionFilter`]: crate::Error::CompactionFilter
pub trait CompactionFilter: Send + Sync + Debug {
    /// Its name, for errors.
    fn name(&self) -> &str;

    /// Decides about the entry. Several threads may ask at once.
    fn filter(&self, key: &[u8], value: &[u8]) -> CompactionDecision;
}

/// The decision of a [`CompactionFilter`] about an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompactionDecision {
    /// It stays as it is.
    Keep,
    /// It is deleted, as by a delete of its key.
    Remove,
    /// Its value becomes this one.
    Replace(Vec<u8>),
}
