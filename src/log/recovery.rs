//! What opening may accept where the logs end badly, and what it says it left out.
//!
//! [`Recovery`] is the user's choice, an option; `log::wal::recover`, `log::wal::salvage` and
//! `tree::manifest` keep to it. What they leave out is a [`DroppedPart`] each, and `db::recover`
//! puts these together into the [`RecoveryReport`] that a database keeps from its opening on.
//! Nothing is ever left out without standing there.

use crate::base::key::SequenceNumber;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// What opening does where a log, or the manifest, ends badly.
///
/// In every mode a part that was never synced is told from one that was: each record of a log says
/// up to where everything was durable when it was written. Damaged tables, a damaged `CURRENT` and
/// a damaged manifest are `Corruption` in every mode; [`Options::repair`] is for them.
///
/// [`Options::repair`]: crate::Options::repair
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recovery {
    /// The default. What a crash can have left at the end of the last log, or of the manifest, and
    /// what nothing says was ever durable, is dropped: a record that is cut off or has a sector of
    /// zeros, and the logs behind it. The database then is what it was after some prefix of its
    /// writes, at or after the last synced one. Everything else that does not fit is `Corruption`.
    #[default]
    TolerateTornTail,
    /// Nothing is dropped: a torn end of a log or of the manifest is `Corruption` too, also one
    /// that a crash explains, and so is a log that was created and never written. For those who
    /// must know that what they handed over unsynced is there, such as a replicated log that
    /// would rather be copied from elsewhere. Opening with the default afterwards is possible.
    Strict,
    /// As the default, wherever the default opens. Where it would refuse because logs are damaged
    /// or missing, every write that can still be read is taken, those behind the damage included:
    /// later writes may then be there without earlier ones, and keys may show older values.
    /// Whenever anything of the logs was left out, all of them stay in the folder `lost` of the
    /// database, and [`Db::recovery_report`](crate::Db::recovery_report) says what it was.
    Salvage,
}

/// A part of a file that recovery did not use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DroppedPart {
    /// The file.
    pub path: PathBuf,
    /// Where the part begins, in bytes from the start of the file.
    pub offset: u64,
    /// Why it was not used.
    pub what: String,
}

impl fmt::Display for DroppedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.path.display(), self.offset, self.what)
    }
}

/// What opening found in manifest and logs: [`Db::recovery_report`](crate::Db::recovery_report).
///
/// After a crash it is usual that a last record was torn, under the default mode too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// The last sequence number that came back, tables included: how many entries were ever
    /// written, if none was dropped.
    pub last_sequence: SequenceNumber,
    /// What was left out, in the order of the files.
    pub dropped: Vec<DroppedPart>,
    /// Sequence numbers of writes that should have been there and could not be read. Only
    /// [`Recovery::Salvage`] opens with such gaps; each number is one entry of a batch.
    pub missing: Vec<RangeInclusive<SequenceNumber>>,
    /// The logs that [`Recovery::Salvage`] keeps in the folder `lost`.
    pub set_aside: Vec<PathBuf>,
}

impl RecoveryReport {
    /// True if everything that was found was used.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.dropped.is_empty() && self.missing.is_empty()
    }
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "recovered through sequence {}", self.last_sequence)?;
        for part in &self.dropped {
            write!(f, "\ndropped: {part}")?;
        }
        for range in &self.missing {
            write!(f, "\nmissing: sequences {} to {}", range.start(), range.end())?;
        }
        for path in &self.set_aside {
            write!(f, "\nkept: {}", path.display())?;
        }
        Ok(())
    }
}
