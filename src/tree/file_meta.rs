//! [`FileMeta`]: what the manifest knows of a table, and its encoding there.
//!
//! It is a list of fields, as an edit is. Integers are varints; the table id is a plain `u64`. A
//! global sequence replaces the sequences of all entries of a table: of one that was ingested,
//! whose entries are written with sequence 0. A table of `default` has no field for its keyspace.

use crate::base::coding::Decoder;
use crate::base::key::{
    DEFAULT_KEYSPACE, KEY_BYTES_MAX, KeyspaceId, SEQUENCE_MAX, SequenceNumber, user_key,
};
use crate::base::range_deletes::{RANGE_BOUND_BYTES_MAX, RangeDeletes};
use crate::log::record::format::Undecodable;
use crate::log::wal::format::LoadedTable;
use crate::table::builder::TableSummary;
use crate::table::properties::Properties;
use crate::table::reader::{Expect, Table};
use crate::tree::fields::{Decoded, Fixed64, Value, damaged, malformed, record};
use std::ops::Bound;

/// The first byte of an end: its key belongs to the table, or comes after it, or there is none.
const END_INCLUDED: u8 = 0;
const END_EXCLUDED: u8 = 1;
const END_UNBOUNDED: u8 = 2;

record! {
    /// The manifest's facts about a table.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct FileMeta: "an added file" {
        /// The number in its name. It is written before the fields.
        pub number: u64,
        /// The random id in its footer and in every block's checksum.
        pub table_id: u64 = 1 "table id" as Fixed64,
        pub bytes: u64 = 2 "file size",
        /// The first user key that it has an entry or a range delete of.
        pub start: Vec<u8> = 3 "first key",
        /// The end of those keys: its last key, or the end of its last range delete.
        pub end: Bound<Vec<u8>> = 4 "end",
        /// How many entries it has; may be 0 if it has range deletes.
        pub entries: u64 = 5 "entries",
        /// The smallest sequence of an entry or a range delete.
        pub smallest_sequence: SequenceNumber = 6 "smallest sequence",
        /// The largest sequence of an entry or a range delete.
        pub largest_sequence: SequenceNumber = 7 "largest sequence",
        /// The sequence of everything in an ingested table. The table itself does not know it.
        pub global_sequence: Option<SequenceNumber> = 8 "global sequence",
        /// The keyspace whose entries it holds.
        pub keyspace: KeyspaceId = 9 "keyspace" or DEFAULT_KEYSPACE,
        /// How many sequences its range deletes have.
        pub range_deletes: u64 = 10 "range deletes" or 0,
        /// Entries with a value that expires.
        pub expiring: Expiring = 11 "expiring entries" or Expiring::default(),
        /// Tombstones, and versions that a newer one in the same table covers: entries that a
        /// compaction may drop once no snapshot needs them. Only a hint.
        pub garbage: u64 = 0x81 "garbage" or 0,
    }
}

/// The entries of a table that expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expiring {
    /// How many they are.
    pub entries: u64,
    /// The last time at which one of them expires, in milliseconds since the epoch.
    pub by: u64,
}

impl Value for Expiring {
    fn put(&self, dst: &mut Vec<u8>) {
        (self.entries, self.by).put(dst);
    }

    fn take(bytes: &mut Decoder<'_>, name: &str) -> Decoded<Self> {
        match Value::take(bytes, name)? {
            (0, _) => Err(malformed(name)),
            (entries, by) => Ok(Expiring { entries, by }),
        }
    }
}

impl Value for Bound<Vec<u8>> {
    fn put(&self, dst: &mut Vec<u8>) {
        let (kind, key) = match self {
            Bound::Included(last) => (END_INCLUDED, &last[..]),
            Bound::Excluded(end) => (END_EXCLUDED, &end[..]),
            Bound::Unbounded => (END_UNBOUNDED, &[][..]),
        };
        dst.push(kind);
        dst.extend_from_slice(key);
    }

    fn take(bytes: &mut Decoder<'_>, name: &str) -> Decoded<Self> {
        match (bytes.u8(), Vec::take(bytes, name)?) {
            (Some(END_INCLUDED), last) => Ok(Bound::Included(last)),
            (Some(END_EXCLUDED), end) => Ok(Bound::Excluded(end)),
            (Some(END_UNBOUNDED), rest) if rest.is_empty() => Ok(Bound::Unbounded),
            _ => Err(malformed(name)),
        }
    }
}

impl Value for FileMeta {
    fn put(&self, dst: &mut Vec<u8>) {
        self.number.put(dst);
        self.put_fields(dst);
    }

    fn take(bytes: &mut Decoder<'_>, name: &str) -> Decoded<Self> {
        let number = Value::take(bytes, name)?;
        let file = FileMeta::take_fields(&Vec::take(bytes, name)?)?;
        // Version 0.1 wrote both forms, and read only one of them.
        let end = match file.end {
            Bound::Included(last) => end_with(&file.start, last),
            end => end,
        };
        let file = FileMeta { number, end, ..file };
        file.check()?;
        Ok(file)
    }
}

impl FileMeta {
    /// The description of `table`, in file `number`.
    pub(crate) fn of_table(number: u64, table: &Table) -> Self {
        let properties = &table.properties;
        let (table_id, bytes) = (table.file.table_id, table.file.bytes);
        FileMeta::new(number, table_id, bytes, properties, table.range_deletes())
    }

    /// The description of a table that was just written to file `number`.
    pub(crate) fn of_summary(number: u64, summary: &TableSummary) -> Self {
        let TableSummary { bytes, table_id, properties, range_deletes } = summary;
        FileMeta::new(number, *table_id, *bytes, properties, Some(range_deletes))
    }

    /// It counts its tombstones as garbage.
    pub(super) fn new(
        number: u64,
        table_id: u64,
        bytes: u64,
        properties: &Properties,
        range_deletes: Option<&RangeDeletes>,
    ) -> Self {
        let (start, end) = span_of(properties, range_deletes);
        FileMeta {
            keyspace: properties.keyspace.id,
            number,
            table_id,
            bytes,
            start,
            end,
            entries: properties.entries,
            garbage: properties.tombstones,
            expiring: Expiring { entries: properties.expiring, by: properties.expires_by },
            range_deletes: properties.range_deletes,
            smallest_sequence: properties.smallest_sequence,
            largest_sequence: properties.largest_sequence,
            global_sequence: properties.given_sequence(),
        }
    }

    /// Gives an ingested table its sequence.
    pub(crate) fn set_global_sequence(&mut self, sequence: SequenceNumber) {
        (self.smallest_sequence, self.largest_sequence) = (sequence, sequence);
        self.global_sequence = Some(sequence);
    }

    /// Its id and sequence, if it was ingested.
    pub(crate) fn loaded(&self) -> Option<LoadedTable> {
        self.global_sequence.map(|sequence| (self.table_id, sequence))
    }

    /// What its file must be.
    pub(crate) fn expect(&self) -> Expect {
        Expect {
            table_id: Some(self.table_id),
            bytes: Some(self.bytes),
            keyspace: Some(self.keyspace),
            global_sequence: Some(self.global_sequence),
        }
    }

    /// True if both describe the same table. The table itself does not know all of its `garbage`.
    pub(crate) fn agrees_with(&self, other: &FileMeta) -> bool {
        FileMeta { garbage: other.garbage, ..self.clone() } == *other
    }

    /// What a compaction at `now` may drop once no snapshot needs it: garbage, range deletes, and
    /// entries if all that expire have. Only a hint.
    pub(crate) fn droppable(&self, now: u64) -> u64 {
        let expired = if self.expiring.by <= now { self.expiring.entries } else { 0 };
        (self.garbage + expired).min(self.entries) + self.range_deletes
    }

    /// True if that is half of the table.
    pub(crate) fn is_mostly_garbage(&self, now: u64) -> bool {
        self.droppable(now) >= (self.entries + self.range_deletes).div_ceil(2).max(1)
    }

    /// True if half of the entries expire: once they have, a compaction is due.
    pub(crate) fn is_mostly_expiring(&self) -> bool {
        self.expiring.entries >= self.entries.div_ceil(2).max(1)
    }

    /// True if there is nothing in the table but entries that have expired at `now`.
    pub(crate) fn is_expired(&self, now: u64) -> bool {
        self.expiring.entries > 0
            && self.expiring.entries == self.entries
            && self.range_deletes == 0
            && self.expiring.by <= now
    }

    fn check(&self) -> Result<(), Undecodable> {
        let number = self.number;
        let (longest, ends) = match &self.end {
            Bound::Included(last) => (KEY_BYTES_MAX, Some((last, self.start > *last))),
            Bound::Excluded(end) => (RANGE_BOUND_BYTES_MAX, Some((end, self.start >= *end))),
            Bound::Unbounded => (RANGE_BOUND_BYTES_MAX, None),
        };
        if self.start.len() > longest || ends.is_some_and(|(end, _)| end.len() > longest) {
            return Err(damaged(&format!("file {number} has keys that are too long")));
        }
        if ends.is_some_and(|(_, is_reversed)| is_reversed) {
            return Err(damaged(&format!("file {number} ends before its first key")));
        }
        if self.range_deletes == 0 && !matches!(self.end, Bound::Included(_)) {
            return Err(damaged(&format!("file {number} does not end with a key")));
        }
        let holds_any = self.entries > 0 || self.range_deletes > 0;
        let counts_are_sound = holds_any
            && self.garbage <= self.entries
            && self.expiring.entries <= self.entries
            && self.bytes > 0;
        let sequences_are_sound = self.smallest_sequence <= self.largest_sequence;
        if self.largest_sequence > SEQUENCE_MAX || !sequences_are_sound || !counts_are_sound {
            return Err(damaged(&format!("the counts of file {number} are impossible")));
        }
        let sequences = self.smallest_sequence..=self.largest_sequence;
        if self.global_sequence.is_some_and(|given| given == 0 || sequences != (given..=given)) {
            return Err(damaged(&format!("the sequences of file {number} are not its global one")));
        }
        Ok(())
    }
}

/// The first user key, and the end, of the entries and range deletes of a table.
fn span_of(
    properties: &Properties,
    range_deletes: Option<&RangeDeletes>,
) -> (Vec<u8>, Bound<Vec<u8>>) {
    let of_entries =
        || [&properties.smallest_key, &properties.largest_key].map(|key| user_key(key).to_vec());
    let Some((first, end)) = range_deletes.and_then(RangeDeletes::span) else {
        let [start, end] = of_entries();
        return (start, Bound::Included(end));
    };
    let (first, end) = (first.to_vec(), end.map(<[u8]>::to_vec));
    if properties.entries == 0 {
        return (first, end.map_or(Bound::Unbounded, Bound::Excluded));
    }
    let [smallest, largest] = of_entries();
    let start = first.min(smallest);
    let end = match end {
        None => Bound::Unbounded,
        Some(end) if end <= largest => end_with(&start, largest),
        Some(end) => Bound::Excluded(end),
    };
    (start, end)
}

/// The end of a table that begins with `start` and whose last key is `last`.
///
/// Version 0.1 reads a start of [`RANGE_BOUND_BYTES_MAX`] only where the end does not belong to the
/// table. The key after `last` is the same end. A description has this one form, so that the one in
/// a manifest equals that of its table.
fn end_with(start: &[u8], mut last: Vec<u8>) -> Bound<Vec<u8>> {
    if start.len() <= KEY_BYTES_MAX {
        return Bound::Included(last);
    }
    last.push(0);
    Bound::Excluded(last)
}
