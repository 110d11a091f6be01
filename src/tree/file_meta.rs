//! [`FileMeta`]: what the manifest knows of a table, and its encoding there.
//!
//! It is a list of fields, as an edit is. Integers are varints; the table id is a plain `u64`. A
//! global sequence replaces the sequences of all entries of a table: of one that was ingested,
//! whose entries are written with sequence 0. A table of `default` has no field for its keyspace.

use crate::base::coding::{Decoder, put_u64};
use crate::base::key::{
    DEFAULT_KEYSPACE, KEY_BYTES_MAX, KeyspaceId, SEQUENCE_MAX, SequenceNumber, user_key,
};
use crate::base::range_deletes::{RANGE_BOUND_BYTES_MAX, RangeDeletes};
use crate::log::record::format::Undecodable;
use crate::log::wal::format::LoadedTable;
use crate::table::builder::TableSummary;
use crate::table::properties::Properties;
use crate::table::reader::{Expect, Table};
use crate::tree::fields::{
    IGNORABLE, check_level, damaged, keyspace_id, next_field, put_field, put_varint_field, set,
    set_number, varints,
};
use std::ops::Bound;
const FILE_TABLE_ID: u8 = 1;
const FILE_BYTES: u8 = 2;
const FILE_START: u8 = 3;
const FILE_END: u8 = 4;
pub(super) const FILE_ENTRIES: u8 = 5;
const FILE_SMALLEST_SEQUENCE: u8 = 6;
const FILE_LARGEST_SEQUENCE: u8 = 7;
/// Absent for a table whose entries have their own sequences.
const FILE_GLOBAL_SEQUENCE: u8 = 8;
/// Absent for `default`.
const FILE_KEYSPACE: u8 = 9;
/// Absent for 0.
const FILE_RANGE_DELETES: u8 = 10;
/// How many, and the last time. Absent for 0.
pub(super) const FILE_EXPIRING: u8 = 11;
/// Absent for 0.
const FILE_GARBAGE: u8 = IGNORABLE | 1;

/// The first byte of an end: its key belongs to the table, or comes after it, or there is none.
const END_INCLUDED: u8 = 0;
const END_EXCLUDED: u8 = 1;
const END_UNBOUNDED: u8 = 2;

/// The manifest's facts about a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileMeta {
    /// The keyspace whose entries it holds.
    pub keyspace: KeyspaceId,
    /// The number in its name.
    pub number: u64,
    /// The random id in its footer and in every block's checksum.
    pub table_id: u64,
    /// Its length.
    pub bytes: u64,
    /// The first user key that it has an entry or a range delete of.
    pub start: Vec<u8>,
    /// The end of those keys: its last key, or the end of its last range delete.
    pub end: Bound<Vec<u8>>,
    /// How many entries it has; may be 0 if it has range deletes.
    pub entries: u64,
    /// Tombstones, and versions that a newer one in the same table covers: entries that a
    /// compaction may drop once no snapshot needs them. Only a hint.
    pub garbage: u64,
    /// Entries with a value that expires.
    pub expiring: u64,
    /// The last time at which one of them expires, in milliseconds since the epoch.
    pub expires_by: u64,
    /// How many sequences its range deletes have.
    pub range_deletes: u64,
    /// The smallest sequence of an entry or a range delete.
    pub smallest_sequence: SequenceNumber,
    /// The largest sequence of an entry or a range delete.
    pub largest_sequence: SequenceNumber,
    /// The sequence of everything in an ingested table. The table itself does not know it.
    pub global_sequence: Option<SequenceNumber>,
}

impl FileMeta {
    /// The description of `table`, in file `number`.
    #[must_use]
    pub(crate) fn of_table(number: u64, table: &Table) -> Self {
        let properties = table.properties();
        let (table_id, bytes) = (table.table_id(), table.file().bytes());
        FileMeta::new(number, table_id, bytes, properties, table.range_deletes())
    }

    /// The description of a table that was just written to file `number`.
    #[must_use]
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
            expiring: properties.expiring,
            expires_by: properties.expires_by,
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
    #[must_use]
    pub(crate) fn loaded(&self) -> Option<LoadedTable> {
        self.global_sequence.map(|sequence| (self.table_id, sequence))
    }

    /// What its file must be.
    #[must_use]
    pub(crate) fn expect(&self) -> Expect {
        Expect {
            table_id: Some(self.table_id),
            bytes: Some(self.bytes),
            keyspace: Some(self.keyspace),
            global_sequence: Some(self.global_sequence),
        }
    }

    /// True if both describe the same table. The table itself does not know all of its `garbage`.
    #[must_use]
    pub(crate) fn agrees_with(&self, other: &FileMeta) -> bool {
        FileMeta { garbage: other.garbage, ..self.clone() } == *other
    }

    /// What a compaction at `now` may drop once no snapshot needs it: garbage, range deletes, and
    /// entries if all that expire have. Only a hint.
    #[must_use]
    pub(crate) fn droppable(&self, now: u64) -> u64 {
        let expired = if self.expires_by <= now { self.expiring } else { 0 };
        (self.garbage + expired).min(self.entries) + self.range_deletes
    }

    /// True if that is half of the table.
    #[must_use]
    pub(crate) fn is_mostly_garbage(&self, now: u64) -> bool {
        self.droppable(now) >= (self.entries + self.range_deletes).div_ceil(2).max(1)
    }

    /// True if half of the entries expire: once they have, a compaction is due.
    #[must_use]
    pub(crate) fn is_mostly_expiring(&self) -> bool {
        self.expiring >= self.entries.div_ceil(2).max(1)
    }

    /// True if there is nothing in the table but entries that have expired at `now`.
    #[must_use]
    pub(crate) fn is_expired(&self, now: u64) -> bool {
        self.expiring > 0
            && self.expiring == self.entries
            && self.range_deletes == 0
            && self.expires_by <= now
    }

    /// Appends its fields.
    pub(crate) fn encode(&self, dst: &mut Vec<u8>) {
        let mut field = Vec::new();
        put_u64(&mut field, self.table_id);
        put_field(dst, FILE_TABLE_ID, &field);
        put_varint_field(dst, FILE_BYTES, &[self.bytes], &mut field);
        put_field(dst, FILE_START, &self.start);
        field.clear();
        match &self.end {
            Bound::Included(last) => {
                field.push(END_INCLUDED);
                field.extend_from_slice(last);
            }
            Bound::Excluded(end) => {
                field.push(END_EXCLUDED);
                field.extend_from_slice(end);
            }
            Bound::Unbounded => field.push(END_UNBOUNDED),
        }
        put_field(dst, FILE_END, &field);
        put_varint_field(dst, FILE_ENTRIES, &[self.entries], &mut field);
        put_varint_field(dst, FILE_SMALLEST_SEQUENCE, &[self.smallest_sequence], &mut field);
        put_varint_field(dst, FILE_LARGEST_SEQUENCE, &[self.largest_sequence], &mut field);
        if let Some(sequence) = self.global_sequence {
            put_varint_field(dst, FILE_GLOBAL_SEQUENCE, &[sequence], &mut field);
        }
        if self.keyspace != DEFAULT_KEYSPACE {
            put_varint_field(dst, FILE_KEYSPACE, &[u64::from(self.keyspace)], &mut field);
        }
        if self.range_deletes > 0 {
            put_varint_field(dst, FILE_RANGE_DELETES, &[self.range_deletes], &mut field);
        }
        if self.expiring > 0 {
            let values = [self.expiring, self.expires_by];
            put_varint_field(dst, FILE_EXPIRING, &values, &mut field);
        }
        if self.garbage > 0 {
            put_varint_field(dst, FILE_GARBAGE, &[self.garbage], &mut field);
        }
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
            && self.expiring <= self.entries
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
    let fragments = range_deletes.map_or(&[][..], RangeDeletes::fragments);
    let (Some(first), Some(last)) = (fragments.first(), fragments.last()) else {
        let [start, end] = of_entries();
        return (start, Bound::Included(end));
    };
    let end = last.end.clone();
    if properties.entries == 0 {
        return (first.start.clone(), end.map_or(Bound::Unbounded, Bound::Excluded));
    }
    let [smallest, largest] = of_entries();
    let start = first.start.clone().min(smallest);
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

/// Decodes the field of an added table: its level, and what the manifest knows of it.
pub(crate) fn decode_added(bytes: &[u8]) -> Result<(usize, FileMeta), Undecodable> {
    let mut fields = Decoder::new(bytes);
    let (Some(level), Some(number)) = (fields.varint(), fields.varint()) else {
        return Err(damaged("an added file without level or number"));
    };
    let level = check_level(level)?;
    let (mut table_id, mut start, mut end, mut range_deletes) = (None, None, None, None);
    let (mut file_bytes, mut entries, mut garbage, mut keyspace) = (None, None, None, None);
    let (mut smallest_sequence, mut largest_sequence, mut expiring) = (None, None, None);
    let mut global_sequence = None;
    while let Some((tag, value)) = next_field(&mut fields, "an added file")? {
        match tag {
            FILE_TABLE_ID => {
                let id = value.try_into().map(u64::from_le_bytes);
                set(&mut table_id, id.map_err(|_| damaged("a malformed table id"))?, "table id")?;
            }
            FILE_BYTES => set_number(&mut file_bytes, value, "file size")?,
            FILE_START => set(&mut start, value.to_vec(), "first key")?,
            FILE_END => set(&mut end, decode_end(number, value)?, "end")?,
            FILE_ENTRIES => set_number(&mut entries, value, "entries")?,
            FILE_GARBAGE => set_number(&mut garbage, value, "garbage")?,
            FILE_SMALLEST_SEQUENCE => {
                set_number(&mut smallest_sequence, value, "smallest sequence")?
            }
            FILE_LARGEST_SEQUENCE => set_number(&mut largest_sequence, value, "largest sequence")?,
            FILE_KEYSPACE => set_number(&mut keyspace, value, "keyspace")?,
            FILE_RANGE_DELETES => set_number(&mut range_deletes, value, "range deletes")?,
            FILE_EXPIRING => {
                let counted: [u64; 2] = varints(value, "expiring entries")?;
                if counted[0] == 0 {
                    return Err(damaged("a malformed number of expiring entries"));
                }
                set(&mut expiring, counted, "expiring entries")?;
            }
            FILE_GLOBAL_SEQUENCE => set_number(&mut global_sequence, value, "global sequence")?,
            tag if tag & IGNORABLE != 0 => {}
            tag => return Err(Undecodable::Unknown(format!("a file with field {tag}"))),
        }
    }
    let missing = || damaged(&format!("the description of file {number} is incomplete"));
    let start = start.ok_or_else(missing)?;
    // Version 0.1 wrote both forms, and read only one of them.
    let end = match end.ok_or_else(missing)? {
        Bound::Included(last) => end_with(&start, last),
        end => end,
    };
    let [expiring, expires_by] = expiring.unwrap_or_default();
    let file = FileMeta {
        keyspace: keyspace_id(Some(keyspace.unwrap_or(0)))?,
        number,
        table_id: table_id.ok_or_else(missing)?,
        bytes: file_bytes.ok_or_else(missing)?,
        start,
        end,
        entries: entries.ok_or_else(missing)?,
        garbage: garbage.unwrap_or(0),
        expiring,
        expires_by,
        range_deletes: range_deletes.unwrap_or(0),
        smallest_sequence: smallest_sequence.ok_or_else(missing)?,
        largest_sequence: largest_sequence.ok_or_else(missing)?,
        global_sequence,
    };
    file.check()?;
    Ok((level, file))
}

fn decode_end(number: u64, bytes: &[u8]) -> Result<Bound<Vec<u8>>, Undecodable> {
    match bytes.split_first() {
        Some((&END_INCLUDED, last)) => Ok(Bound::Included(last.to_vec())),
        Some((&END_EXCLUDED, end)) => Ok(Bound::Excluded(end.to_vec())),
        Some((&END_UNBOUNDED, [])) => Ok(Bound::Unbounded),
        _ => Err(damaged(&format!("file {number} has a malformed end"))),
    }
}
