//! The properties of a table: counts, sizes, ranges, and how to read its filter.
//!
//! A block of `name -> value`, names sorted, values varints or text. `builder` writes it; the
//! metaindex names it. It records the policy, layout and keys of the filter, so a reader need not
//! guess. Unknown names are ignored, so later versions may add some. What changes the meaning of
//! the data is a required feature (`features.rs`): a reader that lacks it refuses the table.

use crate::base::coding::{get_varint, put_varint};
use crate::base::expiry::split_expiring;
use crate::base::key::{
    INTERNAL_KEY_TRAILER_BYTES, KeyspaceId, KeyspaceLabel, SEQUENCE_MAX, SequenceNumber, ValueKind,
    check_keyspace_name, split_internal_key, unpack_trailer,
};
use crate::table::block::block::Block;
use crate::table::block::builder::BlockBuilder;
use crate::table::block::cursor::for_each_entry;
use crate::table::features::REQUIRED_FEATURES;
use crate::table::format::Codec;
use siftdb_filter::bloom::fast_local::ROCKSDB_TRAILER_BYTES;
use siftdb_filter::encoding::Encoding;

/// The properties of one table. Sizes of blocks are as stored, trailers included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    /// The keyspace that the table is of. A repair without a manifest goes by it.
    pub keyspace: KeyspaceLabel,
    /// The id of the database that wrote the table, then those of the databases that its tables
    /// may come from. Not written when empty, as in tables of 0.1.
    pub databases: Vec<u128>,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Entries that delete their key.
    pub tombstones: u64,
    /// Entries with a value that expires. Not written for 0, as the next one.
    pub expiring: u64,
    /// The last time at which one of them expires.
    pub expires_by: u64,
    /// Range tombstones: none in this version.
    pub range_deletes: u64,
    pub data_blocks: u64,
    /// Bytes from the header to the end of the last data block.
    pub data_bytes: u64,
    /// Bytes of the keys, trailers included, before prefix compression.
    pub raw_key_bytes: u64,
    /// Bytes of the values.
    pub raw_value_bytes: u64,
    /// Bytes of the data index, all partitions and their top level included.
    pub index_bytes: u64,
    /// Whether index separators are user keys, not internal keys.
    pub index_key_is_user_key: bool,
    /// How data blocks are compressed if that makes them smaller.
    pub compression: Codec,
    /// Name of the filter policy as persisted; empty without a filter.
    pub filter_policy: String,
    /// Encoding of the filter by its label, since two may persist their filters under one name;
    /// empty without a filter.
    pub filter_encoding: String,
    /// Layout of the filter in words; empty without a filter.
    pub filter_layout: String,
    /// Bits per key in thousandths; 0 where the policy does not say.
    pub filter_millibits_per_key: u64,
    /// Bytes of the filter, all partitions and their index included.
    pub filter_bytes: u64,
    /// Keys that the filter was built from.
    pub filter_entries: u64,
    /// Partitions of the filter.
    pub filter_partitions: u64,
    /// Whether the filter holds whole user keys. A filter without them is not consulted.
    pub whole_key_filtering: bool,
    /// Whether the filter holds prefixes.
    pub prefix_filtering: bool,
    /// Id of their rule, parameters included; empty without prefixes, and then not written. A table
    /// without a filter has it if that would have held prefixes only and no key has one.
    pub prefix_extractor: String,
    /// Bytes of the range filter, all partitions and their index included; 0 without one. Not
    /// written then, as the next two.
    pub range_filter_bytes: u64,
    /// Bits per key that it was asked to have, in thousandths.
    pub range_filter_millibits: u64,
    /// How it maps keys to cells.
    pub range_filter_model: Vec<u8>,
    /// What a reader of the table must have (`features.rs`). Not written when empty.
    pub required_features: String,
    /// Smallest sequence number. A table of level 0 that was rewritten keeps its range, since that
    /// is its age: the range may then be wider than its entries.
    pub smallest_sequence: SequenceNumber,
    /// Largest sequence number; also kept when a table of level 0 is rewritten.
    pub largest_sequence: SequenceNumber,
    /// Whether the table was ingested: its entries are written with sequence 0, and the manifest
    /// gives all of them one sequence. Not written when false.
    pub ingested: bool,
    pub smallest_key: Vec<u8>,
    pub largest_key: Vec<u8>,
}

impl Properties {
    /// The properties of a table without entries.
    pub(crate) fn new() -> Self {
        Properties {
            index_key_is_user_key: true,
            whole_key_filtering: true,
            smallest_sequence: SEQUENCE_MAX,
            ..Properties::default()
        }
    }

    /// Counts the next entry of the table. Its internal key is above all earlier ones.
    pub(crate) fn count(&mut self, internal_key: &[u8], value: &[u8]) {
        if self.entries == 0 {
            self.smallest_key = internal_key.to_vec();
        }
        let trailer = split_internal_key(internal_key).map(|(_, trailer)| trailer);
        if let Some((sequence, kind)) = trailer.and_then(unpack_trailer) {
            self.smallest_sequence = self.smallest_sequence.min(sequence);
            self.largest_sequence = self.largest_sequence.max(sequence);
            self.tombstones += u64::from(kind == ValueKind::Tombstone);
            if kind == ValueKind::ExpiringPut {
                let expires_at = split_expiring(value).map_or(0, |(expires_at, _)| expires_at);
                self.expiring += 1;
                self.expires_by = self.expires_by.max(expires_at);
            }
        }
        self.entries += 1;
        self.raw_key_bytes += internal_key.len() as u64;
        self.raw_value_bytes += value.len() as u64;
        internal_key.clone_into(&mut self.largest_key);
    }
}

impl Properties {
    /// Whether a reader of the table must have this feature.
    pub(crate) fn requires(&self, feature: &str) -> bool {
        self.required_features.split(',').any(|name| name == feature)
    }

    /// Adds a feature that a reader of the table must have.
    pub(crate) fn require(&mut self, feature: &str) {
        if !self.required_features.is_empty() {
            self.required_features.push(',');
        }
        self.required_features.push_str(feature);
    }

    /// The sequence that an ingested table was given.
    pub(crate) fn given_sequence(&self) -> Option<SequenceNumber> {
        Some(self.largest_sequence).filter(|sequence| self.ingested && *sequence > 0)
    }

    /// Gives an ingested table its sequence.
    pub(crate) fn set_sequence(&mut self, sequence: SequenceNumber) {
        (self.smallest_sequence, self.largest_sequence) = (sequence, sequence);
        for key in [&mut self.smallest_key, &mut self.largest_key] {
            // The kind stays in the first byte of the trailer.
            if let Some(trailer) = key.last_chunk_mut::<INTERNAL_KEY_TRAILER_BYTES>() {
                let kind = u64::from_le_bytes(*trailer) & 0xff;
                *trailer = (sequence << 8 | kind).to_le_bytes();
            }
        }
    }
}

/// The only property that the oldest tables do not have.
const ENCODING: &str = "filter_encoding";

/// A reference to a property: one list of them serves reading and writing.
enum Field<'p> {
    Number(&'p mut u64),
    Keyspace(&'p mut KeyspaceId),
    Flag(&'p mut bool),
    Text(&'p mut String),
    Bytes(&'p mut Vec<u8>),
    Codec(&'p mut Codec),
    Databases(&'p mut Vec<u128>),
}

/// Whether a table must have a property.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// A block without it is refused.
    Required,
    /// Always written, but may be missing.
    Later,
    /// Not written where it is 0, false or empty, and may be missing.
    Optional,
}

impl Properties {
    /// The expected false-positive rate of the filter; `None` without one, or for a user's policy.
    ///
    /// An estimate from the keys and bytes of one filter, which `siftdb-filter` knows to use.
    /// A block-based filter is one small filter for each block or two. RocksDB's encodings round
    /// each of them up to whole cache lines. Their bytes are those in the table, without the offset
    /// of each window.
    pub(crate) fn expected_fpr(&self) -> Option<f64> {
        let encoding = Encoding::of_table(&self.filter_encoding, self.filter_millibits_per_key)?;
        let window = self.filter_layout.strip_prefix("block-based:");
        let window = window.and_then(|bytes| bytes.parse().ok()).filter(|bytes: &u64| *bytes > 0);
        let Some(window) = window else {
            return encoding.expected_fpr_of(self.keys_per_filter());
        };
        let windows = (self.data_bytes / window).saturating_add(1);
        let filters = self.data_blocks.min(windows).max(1) as f64;
        let keys = self.filter_entries as f64 / filters;
        let bytes = self.filter_bytes.saturating_sub(windows.saturating_mul(4)) as f64 / filters;
        let asked_for = encoding.bits_per_key().unwrap_or_default() * keys / 8.0;
        encoding.expected_fpr_in(keys, bytes.max(asked_for + ROCKSDB_TRAILER_BYTES as f64))
    }

    /// Keys that share one filter, on average, in the full and partitioned layouts.
    pub(crate) fn keys_per_filter(&self) -> u64 {
        self.filter_entries / self.filter_partitions.max(1)
    }

    /// All properties, by name in bytewise order.
    fn fields(&mut self) -> [(&'static str, Presence, Field<'_>); 34] {
        use Field::{Bytes, Flag, Number, Text};
        use Presence::{Later, Optional, Required};
        [
            ("compression", Required, Field::Codec(&mut self.compression)),
            ("data_blocks", Required, Number(&mut self.data_blocks)),
            ("data_bytes", Required, Number(&mut self.data_bytes)),
            ("databases", Optional, Field::Databases(&mut self.databases)),
            ("entries", Required, Number(&mut self.entries)),
            ("expires_by", Optional, Number(&mut self.expires_by)),
            ("expiring", Optional, Number(&mut self.expiring)),
            ("filter_bytes", Required, Number(&mut self.filter_bytes)),
            (ENCODING, Later, Text(&mut self.filter_encoding)),
            ("filter_entries", Required, Number(&mut self.filter_entries)),
            ("filter_layout", Required, Text(&mut self.filter_layout)),
            ("filter_millibits_per_key", Required, Number(&mut self.filter_millibits_per_key)),
            ("filter_partitions", Required, Number(&mut self.filter_partitions)),
            ("filter_policy", Required, Text(&mut self.filter_policy)),
            ("index_bytes", Required, Number(&mut self.index_bytes)),
            ("index_key_is_user_key", Required, Flag(&mut self.index_key_is_user_key)),
            ("ingested", Optional, Flag(&mut self.ingested)),
            ("keyspace", Required, Field::Keyspace(&mut self.keyspace.id)),
            ("keyspace_name", Required, Text(&mut self.keyspace.name)),
            ("largest_key", Required, Bytes(&mut self.largest_key)),
            ("largest_sequence", Required, Number(&mut self.largest_sequence)),
            ("prefix_extractor", Optional, Text(&mut self.prefix_extractor)),
            ("prefix_filtering", Required, Flag(&mut self.prefix_filtering)),
            ("range_deletes", Required, Number(&mut self.range_deletes)),
            ("range_filter_bytes", Optional, Number(&mut self.range_filter_bytes)),
            ("range_filter_millibits", Optional, Number(&mut self.range_filter_millibits)),
            ("range_filter_model", Optional, Bytes(&mut self.range_filter_model)),
            ("raw_key_bytes", Required, Number(&mut self.raw_key_bytes)),
            ("raw_value_bytes", Required, Number(&mut self.raw_value_bytes)),
            (REQUIRED_FEATURES, Optional, Text(&mut self.required_features)),
            ("smallest_key", Required, Bytes(&mut self.smallest_key)),
            ("smallest_sequence", Required, Number(&mut self.smallest_sequence)),
            ("tombstones", Required, Number(&mut self.tombstones)),
            ("whole_key_filtering", Required, Flag(&mut self.whole_key_filtering)),
        ]
    }

    /// Mean size of a data block as stored, for estimates.
    pub(crate) fn mean_block_bytes(&self) -> u64 {
        self.data_bytes.checked_div(self.data_blocks).unwrap_or_default()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut builder = BlockBuilder::new(1);
        let mut copy = self.clone();
        for (name, presence, field) in copy.fields() {
            let mut value = Vec::new();
            let is_number = matches!(field, Field::Number(_) | Field::Flag(_));
            match field {
                Field::Number(number) => put_varint(&mut value, *number),
                Field::Keyspace(id) => put_varint(&mut value, u64::from(*id)),
                Field::Flag(flag) => value.push(u8::from(*flag)),
                Field::Text(text) => value.extend_from_slice(text.as_bytes()),
                Field::Bytes(bytes) => value.extend_from_slice(bytes),
                Field::Codec(codec) => value.extend_from_slice(codec.name().as_bytes()),
                Field::Databases(ids) => {
                    ids.iter().for_each(|id| value.extend_from_slice(&id.to_le_bytes()));
                }
            }
            let nothing: &[u8] = if is_number { &[0] } else { &[] };
            if presence == Presence::Optional && value == nothing {
                continue;
            }
            builder.add(name.as_bytes(), &value);
        }
        builder.finish().to_vec()
    }

    /// Reads a properties block. The error says which property is wrong.
    pub(crate) fn decode(block: &Block) -> Result<Self, String> {
        let mut properties = Properties::new();
        let mut seen = 0;
        for_each_entry(block, |key, value| {
            let mut fields = properties.fields().into_iter();
            let Some((name, presence, field)) = fields.find(|(name, ..)| name.as_bytes() == key)
            else {
                return Ok(());
            };
            seen += usize::from(presence == Presence::Required);
            read_field(field, value)
                .ok_or_else(|| format!("property {name} with a malformed value"))
        })?;
        let expected = properties.fields();
        let expected = expected.iter().filter(|field| field.1 == Presence::Required).count();
        if seen < expected {
            return Err(format!("{seen} of {expected} properties"));
        }
        if properties.filter_encoding.is_empty() && !properties.filter_policy.is_empty() {
            properties.filter_encoding = encoding_by_name(&properties.filter_policy).to_string();
        }
        if let Err(why) = check_keyspace_name(&properties.keyspace.name) {
            return Err(format!("keyspace {}: {why}", properties.keyspace.id));
        }
        // Each key is there once, or two versions of it would be equally old.
        let has_versions = properties.largest_sequence > 0 || !properties.index_key_is_user_key;
        if properties.ingested && (has_versions || properties.range_deletes > 0) {
            return Err("an ingested table with sequences of its own, or with range deletes".into());
        }
        let ends = [&properties.smallest_key, &properties.largest_key];
        // A table may have range deletes only.
        if properties.entries > 0 && ends.iter().any(|key| split_internal_key(key).is_none()) {
            return Err("smallest or largest key shorter than its trailer".into());
        }
        Ok(properties)
    }
}

/// The label of the encoding of tables that do not record it: when they were written, each name
/// meant the first encoding that has it.
fn encoding_by_name(policy: &str) -> &'static str {
    let built_in = Encoding::built_in(10_000).into_iter();
    let named = |encoding: &Encoding| {
        [encoding.full_name(), encoding.block_based_name()].iter().any(|name| name == policy)
    };
    built_in.filter(named).map(|encoding| encoding.label()).next().unwrap_or("custom")
}

fn read_number(value: &[u8]) -> Option<u64> {
    get_varint(value).filter(|(_, used)| *used == value.len()).map(|(number, _)| number)
}

fn read_field(field: Field<'_>, value: &[u8]) -> Option<()> {
    match field {
        Field::Number(number) => *number = read_number(value)?,
        Field::Keyspace(id) => *id = KeyspaceId::try_from(read_number(value)?).ok()?,
        Field::Flag(flag) => {
            *flag = match value {
                [0] => false,
                [1] => true,
                _ => return None,
            }
        }
        Field::Text(text) => *text = String::from_utf8(value.to_vec()).ok()?,
        Field::Bytes(bytes) => *bytes = value.to_vec(),
        Field::Databases(ids) => {
            let (chunks, rest) = value.as_chunks::<16>();
            let are_ids = !chunks.is_empty() && rest.is_empty();
            *ids = are_ids.then(|| chunks.iter().map(|id| u128::from_le_bytes(*id)).collect())?;
        }
        Field::Codec(codec) => *codec = Codec::from_name(value)?,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::iterator::api::Direction;
    use crate::table::block::block::BlockKeys;
    use crate::table::block::cursor::BlockCursor;

    fn sample() -> Properties {
        Properties {
            keyspace: KeyspaceLabel { id: 70_000, name: "users".into() },
            databases: vec![7 << 64, 6],
            entries: 300,
            tombstones: 3,
            data_blocks: 7,
            data_bytes: 28_000,
            compression: Codec::Snappy,
            filter_policy: "rocksdb.BuiltinBloomFilter".into(),
            filter_encoding: "fast-local-bloom".into(),
            filter_layout: "full".into(),
            filter_millibits_per_key: 9_900,
            index_key_is_user_key: false,
            smallest_sequence: 4,
            largest_sequence: SEQUENCE_MAX,
            smallest_key: b"a\x01\0\0\0\0\0\0\0".to_vec(),
            largest_key: b"\xff\x01\0\0\0\0\0\0\0".to_vec(),
            ..Properties::new()
        }
    }

    fn decode(bytes: Vec<u8>) -> Result<Properties, String> {
        Properties::decode(&Block::new(&bytes, BlockKeys::Bytes).unwrap())
    }

    #[test]
    fn properties_round_trip() {
        let properties = sample();
        assert_eq!(decode(properties.encode()), Ok(properties.clone()));
        let prefixes = Properties {
            prefix_filtering: true,
            prefix_extractor: "siftdb.FixedPrefix.3".into(),
            ..sample()
        };
        assert_eq!(decode(prefixes.encode()), Ok(prefixes.clone()));
        assert!(properties.encode().len() < prefixes.encode().len(), "not written when empty");
        assert_eq!(properties.mean_block_bytes(), 4_000);
        assert_eq!(Properties::new().mean_block_bytes(), 0);
    }

    #[test]
    fn malformed_properties_are_refused() {
        let mut with_unknown = BlockBuilder::new(16);
        let mut without_entries = BlockBuilder::new(16);
        let mut malformed = BlockBuilder::new(16);
        let mut copy = sample();
        let encoded = Block::new(&copy.encode(), BlockKeys::Bytes).unwrap();
        let mut cursor = BlockCursor::new(Direction::Forward);
        cursor.seek(&encoded, None);
        while cursor.valid() {
            let (name, value) = (cursor.key(), cursor.value(&encoded));
            with_unknown.add(name, value);
            if name == b"entries" {
                with_unknown.add(b"entries_of_a_new_kind", b"7");
                malformed.add(name, &[1, 2]);
            } else {
                without_entries.add(name, value);
                malformed.add(name, value);
            }
            cursor.next(&encoded);
        }
        assert_eq!(decode(with_unknown.finish().to_vec()), Ok(sample()));
        assert!(decode(without_entries.finish().to_vec()).is_err());
        let long = "k".repeat(256);
        for name in ["", "line\nbreak", &long] {
            let keyspace = KeyspaceLabel { id: 7, name: name.into() };
            let error = decode(Properties { keyspace, ..sample() }.encode()).unwrap_err();
            assert!(error.contains("keyspace 7"), "{name:?}: {error}");
        }
        assert!(decode(malformed.finish().to_vec()).unwrap_err().contains("entries"));
        assert!(copy.fields().is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn tables_without_encoding_use_the_first() {
        let without_encoding = |policy: &str| {
            let properties = Properties { filter_policy: policy.into(), ..sample() };
            let encoded = Block::new(&properties.encode(), BlockKeys::Bytes).unwrap();
            let mut builder = BlockBuilder::new(16);
            let mut cursor = BlockCursor::new(Direction::Forward);
            cursor.seek(&encoded, None);
            while cursor.valid() {
                if cursor.key() != ENCODING.as_bytes() {
                    builder.add(cursor.key(), cursor.value(&encoded));
                }
                cursor.next(&encoded);
            }
            decode(builder.finish().to_vec()).unwrap().filter_encoding
        };
        for (policy, label) in [
            ("", ""),
            ("leveldb.BuiltinBloomFilter2", "leveldb-bloom"),
            ("rocksdb.BuiltinBloomFilter", "fast-local-bloom"),
            ("siftdb.FastLocalBloom", "fast-local-bloom"),
            ("somebody.Else", "custom"),
        ] {
            assert_eq!(without_encoding(policy), label, "{policy}");
        }
    }

    #[test]
    fn small_ribbons_are_expected_as_bloom() {
        let fpr = |encoding: &str, layout: &str, entries: u64, filter_bytes: u64| {
            let properties = Properties {
                filter_encoding: encoding.into(),
                filter_layout: layout.into(),
                filter_entries: entries,
                filter_bytes,
                ..sample()
            };
            properties.expected_fpr().expect("known")
        };
        let bloom = fpr("fast-local-bloom", "full", 100_000, 125_000);
        let ribbon = fpr("ribbon", "full", 100_000, 88_000);
        assert!((bloom / ribbon - 1.0).abs() < 0.03, "Ribbon promises what Bloom does");
        assert!(fpr("legacy-bloom", "full", 100_000, 125_000) > bloom);
        // 7 windows of 57 keys: Bloom filters, rounded up to two lines.
        let small = fpr("ribbon", "block-based:2048", 400, 7 * 133 + 60);
        assert!(small < ribbon / 2.0, "{small}");
        assert_eq!(fpr("fast-local-bloom", "block-based:2048", 400, 7 * 133 + 60), small);
        assert!(fpr("ribbon", "block-based:2048", 4_000, 7 * 600) > small);
    }

    /// Numbers that no writer leaves.
    #[test]
    fn rates_of_hostile_properties_are_known_at_once() {
        for encoding in ["fast-local-bloom", "legacy-bloom", "leveldb-bloom", "ribbon"] {
            for filter_layout in ["block-based:1", "full", "partitioned:1"] {
                for filter_entries in [1, u64::MAX] {
                    let properties = Properties {
                        filter_encoding: encoding.into(),
                        filter_layout: filter_layout.into(),
                        filter_millibits_per_key: 10_000,
                        data_bytes: u64::MAX,
                        data_blocks: 1,
                        filter_entries,
                        ..Properties::new()
                    };
                    let start = std::time::Instant::now();
                    let rate = properties.expected_fpr();
                    let took = start.elapsed();
                    assert!(took.as_secs() < 5, "{encoding} {filter_layout}: {took:?}, {rate:?}");
                }
            }
        }
    }
}
