//! A change of the set of tables, and its encoding in the manifest.
//!
//! ```text
//! edit := field*                    in any order, the ordinal last
//! ```
//!
//! `fields` says what a field is; a table's description (`file_meta`) is a list of fields again.
//! Integers are varints. One edit may change several keyspaces, as a flush of all of them does.
//!
//! Decoding checks an edit alone: every field once, keys and sequences in order. `manifest` checks
//! that it fits the earlier edits.

use crate::base::coding::{Decoder, put_length_prefixed};
use crate::base::key::{
    DEFAULT_KEYSPACE, DEFAULT_KEYSPACE_NAME, KeyspaceId, SequenceNumber, check_keyspace_name,
};
use crate::base::levels::LEVELS;
use crate::log::record::format::Undecodable;
use crate::log::wal::consistency::CleanClose;
use crate::log::wal::format::{DatabaseIdentity, random};
use crate::tree::fields::{Decoded, Value, damaged, malformed, record, value};
use crate::tree::file_meta::FileMeta;

/// The order of keys, by the name that manifests carry.
pub(crate) const COMPARATOR: &str = "siftdb.bytewise";

/// Ancestors that a database remembers: the nearest ones.
pub(crate) const ANCESTORS_MAX: usize = 15;

/// The logs that are still needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FirstLog {
    /// The oldest log of a memtable that is not in a table, 0 if there is no log. It must exist,
    /// by a durable name, before the edit is current.
    pub number: u64,
    /// The last sequence of the logs before it: everything up to here is in tables.
    pub flushed_through: SequenceNumber,
}

/// Where the history stood when a session of the writer began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionBegin {
    /// Drawn at random when the session began: file numbers repeat in a restored copy.
    pub id: u64,
    /// The last sequence before it: later ones of earlier sessions are not part of the history.
    pub begins_after: SequenceNumber,
}

impl SessionBegin {
    /// A session that begins now.
    pub(crate) fn random(begins_after: SequenceNumber) -> Self {
        SessionBegin { id: random(), begins_after }
    }
}

/// The manifest's facts about a keyspace besides its tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyspaceMeta {
    pub id: KeyspaceId,
    pub name: String,
    /// Its entries up to this sequence are in tables, or it was created after them. The logs may
    /// hold them too.
    pub flushed_through: SequenceNumber,
    /// Its settings, as `options::keyspace` encodes them.
    pub settings: Vec<u8>,
}

impl KeyspaceMeta {
    /// The keyspace that every database has, as it is created.
    pub(crate) fn default_keyspace() -> Self {
        let name = DEFAULT_KEYSPACE_NAME.into();
        KeyspaceMeta { id: DEFAULT_KEYSPACE, name, ..KeyspaceMeta::default() }
    }
}

/// A table that an edit removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeletedFile {
    pub keyspace: KeyspaceId,
    pub level: usize,
    /// The number in its name.
    pub number: u64,
}

record! {
    /// A change of the set of tables; a snapshot is the change from nothing.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct VersionEdit: "a version edit" {
        /// The name of the key order; in a snapshot always.
        pub comparator: Option<String> = 1 "comparator",
        /// The identity of the database; in a snapshot always.
        pub database: Option<DatabaseIdentity> = 2 "database id",
        /// The database that this one is a checkpoint of; only in a snapshot, and in none that a
        /// session begins with.
        pub checkpoint_of: Option<DatabaseIdentity> = 0x81 "checkpoint's origin",
        /// The logs that are needed from here on; in a snapshot always.
        pub first_log: Option<FirstLog> = 3 "first log",
        /// Above every file number in use; in a snapshot always.
        pub next_file_number: Option<u64> = 4 "next file number",
        /// The last sequence given to a write; in a snapshot always. It bounds the numbers that are
        /// used up (I10), and writes up to it may be lost in a crash.
        pub last_sequence: Option<SequenceNumber> = 5 "last sequence",
        /// The last sequence known to be durable: the history reaches at least this far, also if
        /// the tables of a load, whose sequence no log has, are gone. So no edit may raise it above
        /// what is synced, and no later edit or snapshot lowers it.
        pub synced_through: Option<SequenceNumber> = 6 "synced-through sequence",
        /// The log that the session began with, which exists by a durable name; only in a snapshot.
        pub session_log: Option<u64> = 10 "session log",
        /// Above the number of every keyspace that was ever created; in a snapshot always.
        pub next_keyspace: Option<u64> = 12 "next keyspace",
        /// The largest time by which a job took entries for expired; in a snapshot always, unless
        /// none did. The time of later jobs is never before it.
        pub expired_through: Option<u64> = 17 "expired-through time",
        /// The mark of a clean close; only in the last edit of a manifest.
        pub clean_close: Option<CleanClose> = 11 "clean close",
        /// The last sessions, oldest first, the current one included; only in a snapshot. The
        /// session that created the database is not listed.
        pub sessions: Vec<SessionBegin> = 0x82 "session",
        /// The ids of the other databases whose tables this one may have: it is a checkpoint of one
        /// of them. Only in a snapshot.
        pub ancestors: Vec<u128> = 0x83 "ancestor",
        /// Created keyspaces; in a snapshot all that there are, `default` included.
        pub created: Vec<KeyspaceMeta> = 13 "created keyspace",
        /// New settings of keyspaces.
        pub settings: Vec<(KeyspaceId, Vec<u8>)> = 15 "keyspace with new settings",
        /// Keyspaces whose entries up to a sequence are in tables now.
        pub flushed_through: Vec<(KeyspaceId, SequenceNumber)> = 16 "flushed-through sequence",
        /// Dropped keyspaces, with all their tables.
        pub dropped: Vec<KeyspaceId> = 14 "dropped keyspace",
        /// Removed tables. They are removed before others are added.
        pub deleted: Vec<DeletedFile> = 7 "deleted file",
        /// Added tables, each with its level.
        pub added: Vec<(usize, FileMeta)> = 8 "added file",
        /// Counts the edits of a manifest from 1. Only reading sets it: the writer counts by
        /// itself. It is written last and never 0, so that no edit ends in a zero byte (see
        /// `record`).
        pub ordinal: u64 = 9 "ordinal",
    }
}

value! { FirstLog { number, flushed_through } }
value! { CleanClose { log, log_bytes, last_sequence } }
value! { SessionBegin { id, begins_after } }
value! { DatabaseIdentity { id, epoch } }
value! { DeletedFile { keyspace, level, number } }

/// The settings have no length: they are the rest of the field.
impl Value for KeyspaceMeta {
    fn put(&self, dst: &mut Vec<u8>) {
        self.id.put(dst);
        self.flushed_through.put(dst);
        put_length_prefixed(dst, self.name.as_bytes());
        self.settings.put(dst);
    }

    fn take(bytes: &mut Decoder<'_>, of: &str) -> Decoded<Self> {
        let (id, flushed_through) = Value::take(bytes, of)?;
        let name = bytes.length_prefixed().ok_or_else(|| malformed(of))?;
        let name = str::from_utf8(name).ok().filter(|name| check_keyspace_name(name).is_ok());
        let name = name.ok_or_else(|| damaged(&format!("the name of keyspace {id} is none")))?;
        Ok(KeyspaceMeta {
            id,
            name: name.into(),
            flushed_through,
            settings: Value::take(bytes, of)?,
        })
    }
}

impl VersionEdit {
    /// Appends the encoding as edit number `ordinal` of a manifest.
    pub(crate) fn encode(&self, ordinal: u64, dst: &mut Vec<u8>) {
        VersionEdit { ordinal, ..self.clone() }.put_fields(dst);
    }

    /// Decodes a whole edit.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Undecodable> {
        let edit = VersionEdit::take_fields(bytes)?;
        let deleted = edit.deleted.iter().map(|file| file.level);
        match deleted.chain(edit.added.iter().map(|(level, _)| *level)).max() {
            Some(level @ LEVELS..) => Err(damaged(&format!("level {level}; there are {LEVELS}"))),
            _ => Ok(edit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::key::{KEY_BYTES_MAX, SEQUENCE_MAX, ValueKind, put_internal_key};
    use crate::base::range::KeyRange;
    use crate::base::range_deletes::{RANGE_BOUND_BYTES_MAX, RangeDelete, RangeDeletes};
    use crate::table::properties::Properties;
    use crate::tree::fields::put_field;
    use crate::tree::file_meta::Expiring;
    use proptest::prelude::*;
    use std::ops::Bound;

    const TAG_DATABASE: u8 = 2;
    const TAG_ADDED_FILE: u8 = 8;
    const TAG_ORDINAL: u8 = 9;
    const TAG_NEXT_KEYSPACE: u8 = 12;
    const TAG_KEYSPACE_CREATED: u8 = 13;
    const TAG_KEYSPACE_DROPPED: u8 = 14;
    const TAG_KEYSPACE_SETTINGS: u8 = 15;

    fn file() -> FileMeta {
        FileMeta {
            keyspace: 5,
            number: 12,
            table_id: 0x1122_3344_5566_7788,
            bytes: 1000,
            start: b"a".to_vec(),
            end: Bound::Included(b"b".to_vec()),
            entries: 3,
            garbage: 1,
            expiring: Expiring { entries: 2, by: 300 },
            range_deletes: 2,
            smallest_sequence: 7,
            largest_sequence: 9,
            global_sequence: None,
        }
    }

    fn encoded(edit: &VersionEdit) -> Vec<u8> {
        let mut bytes = Vec::new();
        edit.encode(edit.ordinal, &mut bytes);
        bytes
    }

    fn full() -> VersionEdit {
        VersionEdit {
            ordinal: 1,
            comparator: Some(COMPARATOR.into()),
            first_log: Some(FirstLog { number: 11, flushed_through: 9 }),
            next_file_number: Some(300),
            last_sequence: Some(10),
            synced_through: Some(8),
            session_log: Some(12),
            sessions: vec![SessionBegin { id: 0x0201, begins_after: 7 }],
            clean_close: Some(CleanClose { log: 13, log_bytes: 500, last_sequence: 10 }),
            database: Some(DatabaseIdentity { id: 0x0102 << 64, epoch: 3 }),
            checkpoint_of: Some(DatabaseIdentity { id: 0x0d, epoch: 2 }),
            ancestors: vec![0x0d],
            next_keyspace: Some(7),
            expired_through: Some(200),
            created: vec![KeyspaceMeta {
                id: 5,
                name: "ab".into(),
                flushed_through: 4,
                settings: vec![0xee],
            }],
            dropped: vec![6],
            settings: vec![(0, vec![0xdd, 0xdd])],
            flushed_through: vec![(5, 9)],
            deleted: vec![
                DeletedFile { keyspace: 0, level: 0, number: 5 },
                DeletedFile { keyspace: 5, level: 6, number: 6 },
            ],
            added: vec![(2, file())],
        }
    }

    proptest! {
        /// A table's span begins and ends where its entries or range deletes do.
        #[test]
        fn spans_have_entries_and_range_deletes(
            keys in proptest::collection::btree_set(0u8..9, 0..3),
            deletes in proptest::collection::vec((0u8..9, proptest::option::of(0u8..9)), 0..3),
        ) {
            let delete = |(start, end): &(u8, Option<u8>)| RangeDelete {
                start: vec![*start],
                end: end.map(|end| vec![end]),
                sequence: 4,
            };
            let deletes: Vec<_> = deletes.iter().map(delete).collect();
            let deletes = RangeDeletes::fragmented(&deletes, &[]);
            prop_assume!(!keys.is_empty() || !deletes.is_empty());
            let mut properties = Properties::new();
            for key in &keys {
                let mut internal = Vec::new();
                put_internal_key(&mut internal, &[*key], 3, ValueKind::Put);
                properties.count(&internal, b"");
            }
            let meta = FileMeta::new(7, 8, 9, &properties, Some(&deletes));
            // Each letter, and a key before the next one.
            let probes: Vec<_> = (0u8..11).flat_map(|key| [vec![key], vec![key, 7]]).collect();
            let has = |key: &Vec<u8>| {
                (key.len() == 1 && keys.contains(&key[0])) || deletes.covering(key, 4) > 0
            };
            let within = |key: &Vec<u8>| {
                let end = (Bound::Unbounded, meta.end.clone()).into_bounds();
                meta.start <= *key && end.is_before_end(key)
            };
            let first = probes.iter().position(has);
            prop_assert_eq!(first, probes.iter().position(within));
            prop_assert_eq!(probes.iter().rposition(has), probes.iter().rposition(within));
        }
    }

    /// Version 0.1 wrote tables that begin after the longest key and end with a key of their own. It
    /// refused to read them.
    #[test]
    fn starts_after_the_longest_key_have_one_form() {
        let start = [vec![b'a'; KEY_BYTES_MAX], vec![0]].concat();
        let delete = RangeDelete { start: start.clone(), end: Some(b"c".to_vec()), sequence: 4 };
        let deletes = RangeDeletes::fragmented(&[delete], &[]);
        for largest in [b"z".to_vec(), vec![b'z'; KEY_BYTES_MAX]] {
            let mut properties = Properties::new();
            let mut internal = Vec::new();
            put_internal_key(&mut internal, &largest, 3, ValueKind::Put);
            properties.count(&internal, b"");
            properties.range_deletes = 1;
            let meta = FileMeta::new(7, 8, 9, &properties, Some(&deletes));
            let after = [&largest[..], &[0]].concat();
            assert_eq!((&meta.start, &meta.end), (&start, &Bound::Excluded(after)));
            let written = VersionEdit { added: vec![(0, meta.clone())], ..full() };
            assert_eq!(VersionEdit::decode(&encoded(&written)).unwrap(), written);
            let old = FileMeta { end: Bound::Included(largest), ..meta };
            let old = encoded(&VersionEdit { added: vec![(0, old)], ..full() });
            assert_eq!(VersionEdit::decode(&old).unwrap(), written);
        }
    }

    #[test]
    fn edits_have_known_bytes() {
        let expected = [
            "010f7369667464622e6279746577697365", // comparator
            "0211",
            "0000000000000000", // database: id
            "0201000000000000",
            "03",   //   epoch
            "8111", // checkpoint of: id
            "0d00000000000000",
            "000000000000000002",   //   epoch
            "03020b09",             // first log
            "0402ac02",             // next file number
            "05010a",               // last sequence
            "060108",               // synced through
            "0a010c",               // session log
            "0c0107",               // next keyspace
            "1102c801",             // expired through
            "0b040df4030a",         // clean close
            "8203810407",           // session
            "83100d00000000000000", // ancestor
            "0000000000000000",
            "0d06050402",
            "6162",
            "ee",                   // created: name, settings
            "0f0300dddd",           // settings
            "10020509",             // flushed through
            "0e0106",               // dropped
            "0703000005",           // deleted
            "0703050606",           // deleted
            "082e020c",             // added: level, number
            "01088877665544332211", //   table id
            "0202e807",             //   bytes
            "030161",               //   start
            "04020062",             //   end, which is included
            "050103",               //   entries
            "060107",               //   smallest sequence
            "070109",               //   largest sequence
            "090105",               //   keyspace
            "0a0102",               //   range deletes
            "0b0302ac02",           //   expiring entries
            "810101",               //   garbage
            "090101",               // ordinal
        ];
        let hex: String = encoded(&full()).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected.concat());
        assert_eq!(VersionEdit::decode(&encoded(&full())).unwrap(), full());
    }

    #[test]
    fn unknown_mandatory_fields_are_refused() {
        let with = |field: &[u8]| {
            let mut bytes = field.to_vec();
            bytes.extend_from_slice(&encoded(&full()));
            VersionEdit::decode(&bytes)
        };
        assert_eq!(with(&[0x92, 2, 1, 2]).unwrap(), full());
        assert!(matches!(with(&[0x12, 2, 1, 2]), Err(Undecodable::Unknown(_))));
        assert!(matches!(with(&[TAG_NEXT_KEYSPACE, 1, 0]), Err(Undecodable::Damaged(_))), "twice");
    }

    #[test]
    fn unknown_file_fields_are_refused_alike() {
        let with = |field: &[u8]| {
            let mut description = vec![2, 12];
            file().put_fields(&mut description);
            description.extend_from_slice(field);
            let mut bytes = encoded(&VersionEdit { added: Vec::new(), ..full() });
            put_field(&mut bytes, TAG_ADDED_FILE, &description);
            VersionEdit::decode(&bytes)
        };
        assert_eq!(with(&[]).unwrap(), full());
        assert_eq!(with(&[0xff, 0]).unwrap(), full());
        assert!(matches!(with(&[0x0c, 0]), Err(Undecodable::Unknown(_))));
        assert!(matches!(with(&[5, 1, 5]), Err(Undecodable::Damaged(_))), "twice");
    }

    /// An edit with a file that says how many of its entries expire, also if none does.
    fn with_expiring(count: u8) -> Vec<u8> {
        let mut description = vec![2, 12];
        FileMeta { expiring: Expiring::default(), ..file() }.put_fields(&mut description);
        put_field(&mut description, 11, &[count, 5]);
        let mut bytes = encoded(&VersionEdit { added: Vec::new(), ..full() });
        put_field(&mut bytes, TAG_ADDED_FILE, &description);
        bytes
    }

    #[test]
    fn global_sequences_are_those_of_the_whole_file() {
        let mut ingested = file();
        ingested.set_global_sequence(300);
        let of = |file: FileMeta| VersionEdit { added: vec![(0, file)], ..full() };
        let decoded = |file: &FileMeta| VersionEdit::decode(&encoded(&of(file.clone())));
        assert_eq!(decoded(&ingested).unwrap(), of(ingested.clone()));
        assert_eq!(ingested.expect().global_sequence, Some(Some(300)));
        for (smallest_sequence, largest_sequence, given) in
            [(300, 301, 300), (299, 300, 300), (7, 7, 300), (0, 0, 0)]
        {
            let global_sequence = Some(given);
            let impossible =
                FileMeta { smallest_sequence, largest_sequence, global_sequence, ..file() };
            assert!(matches!(decoded(&impossible), Err(Undecodable::Damaged(_))), "{given}");
        }
    }

    #[test]
    fn impossible_files_are_refused() {
        let refused = |change: &dyn Fn(&mut FileMeta)| {
            let mut edit = full();
            change(&mut edit.added[0].1);
            matches!(VersionEdit::decode(&encoded(&edit)), Err(Undecodable::Damaged(_)))
        };
        assert!(!refused(&|_| {}));
        let none = Expiring::default();
        assert!(refused(&|file| file.start = b"c".to_vec()));
        assert!(!refused(&|file| file.start = b"b".to_vec()));
        let ends_before = |key: &[u8]| Bound::Excluded(key.to_vec());
        assert!(refused(&|file| file.end = ends_before(b"a")), "no key at all");
        assert!(!refused(&|file| file.end = ends_before(b"a\0")));
        assert!(!refused(&|file| file.end = Bound::Unbounded));
        assert!(!refused(&|file| file.end = Bound::Included(vec![b'z'; KEY_BYTES_MAX])));
        assert!(refused(&|file| file.end = Bound::Included(vec![b'z'; KEY_BYTES_MAX + 1])));
        assert!(!refused(&|file| file.end = ends_before(&[b'z'; RANGE_BOUND_BYTES_MAX])));
        assert!(refused(&|file| file.end = ends_before(&[b'z'; RANGE_BOUND_BYTES_MAX + 1])));
        assert!(refused(&|file| file.start = vec![b'a'; RANGE_BOUND_BYTES_MAX + 1]));
        // Only a range delete reaches further than the last key.
        let without = |end: Bound<Vec<u8>>| {
            refused(&move |file| (file.end, file.range_deletes) = (end.clone(), 0))
        };
        assert!(without(Bound::Unbounded) && without(ends_before(b"c")));
        assert!(!without(Bound::Included(b"c".to_vec())));
        assert!(refused(&|file| file.smallest_sequence = 10));
        assert!(!refused(&|file| (file.entries, file.garbage, file.expiring) = (0, 0, none)));
        assert!(refused(&|file| file.expiring.entries = 4));
        assert!(VersionEdit::decode(&with_expiring(1)).is_ok());
        let zero = VersionEdit::decode(&with_expiring(0));
        assert!(matches!(zero, Err(Undecodable::Damaged(_))));
        assert!(refused(&|file| {
            (file.entries, file.garbage, file.expiring, file.range_deletes) = (0, 0, none, 0);
        }));
        assert!(refused(&|file| file.largest_sequence = SEQUENCE_MAX + 1));
        assert!(refused(&|file| file.entries = 0));
        assert!(refused(&|file| file.garbage = 4));
        assert!(refused(&|file| file.bytes = 0));
        let too_deep = DeletedFile { keyspace: 0, level: LEVELS, number: 1 };
        let too_deep = VersionEdit { deleted: vec![too_deep], ..full() };
        assert!(matches!(VersionEdit::decode(&encoded(&too_deep)), Err(Undecodable::Damaged(_))));
    }

    #[test]
    fn impossible_keyspaces_are_refused() {
        for name in ["", "line\nbreak", &"n".repeat(256)] {
            let meta = KeyspaceMeta { id: 3, name: name.into(), ..KeyspaceMeta::default() };
            let edit = VersionEdit { created: vec![meta], ..full() };
            assert!(matches!(VersionEdit::decode(&encoded(&edit)), Err(Undecodable::Damaged(_))));
        }
        let with = |tag: u8, value: &[u8]| {
            let mut bytes = Vec::new();
            put_field(&mut bytes, tag, value);
            put_field(&mut bytes, TAG_ORDINAL, &[1]);
            matches!(VersionEdit::decode(&bytes), Err(Undecodable::Damaged(_)))
        };
        assert!(!with(TAG_KEYSPACE_DROPPED, &[5]));
        let beyond = [0x80, 0x80, 0x80, 0x80, 0x10];
        assert!(with(TAG_KEYSPACE_DROPPED, &beyond) && with(TAG_KEYSPACE_SETTINGS, &beyond));
        assert!(with(TAG_KEYSPACE_CREATED, &[5, 0, 2, b'a']), "the name is cut off");
        assert!(with(TAG_KEYSPACE_CREATED, &[5, 0, 1, 0xff]), "not UTF-8");
        assert!(with(TAG_DATABASE, &[0; 16]), "no epoch");
    }

    #[test]
    fn every_cut_is_refused() {
        let bytes = encoded(&full());
        for cut in 0..bytes.len() {
            assert!(VersionEdit::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>, at: prop::sample::Index, byte: u8) {
            let _ = VersionEdit::decode(&bytes);
            let mut edit = encoded(&full());
            let at = at.index(edit.len());
            edit[at] = byte;
            let _ = VersionEdit::decode(&edit);
        }
    }
}
