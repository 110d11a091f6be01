//! The bytes of a keyspace's settings in the manifest.
//!
//! ```text
//! settings := field*                 the settings that are named, each once, in any order
//! filter   := field*                 what differs from `Filter::none()` with its defaults
//! field    := tag: u8  length: varint  bytes
//! ```
//!
//! Fields are those of `tree/fields.rs`: a reader skips unknown tags with the bit 0x80 and refuses
//! the others. Integers are varints, and flags are the varints 0 and 1. Encodings go by label,
//! prefixes by id, a user's policies and extractors by name. Decoding looks such a name up among
//! the registered ones. A name that is not among them is kept, so that settings pass unchanged
//! through a process that does not have all the rules: see `KeyspaceOptions::check_registered`.
//!
//! `KeyspaceOptions` declares the fields of the settings, and `SavedFilter` those of a filter.

use crate::base::coding::{Decoder, put_length_prefixed};
use crate::base::levels::LEVELS;
use crate::log::record::format::Undecodable;
use crate::options::filter::{Filter, Unregistered};
use crate::options::keyspace::KeyspaceOptions;
use crate::table::compression::Compression;
use crate::table::filter::layout::{CustomRules, FilterLayout, FilterPinning};
use crate::table::format::Codec;
use crate::tree::fields::{Decoded, Value, damaged, malformed, record};
use siftdb_filter::encoding::{Encoding, FilterReader};
use siftdb_filter::policy::FilterPolicy;
use siftdb_filter::prefix::{Prefix, PrefixExtractor};
use std::sync::Arc;

/// Equal if they are saved as the same bytes: a user's rules are compared by name.
impl PartialEq for KeyspaceOptions {
    fn eq(&self, other: &Self) -> bool {
        self.encoded() == other.encoded()
    }
}

impl KeyspaceOptions {
    /// The encoding of valid settings.
    pub(crate) fn encoded(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.put_fields(&mut bytes);
        bytes
    }

    /// Decodes and validates settings. `policies` and `prefixes` are those that may be named.
    pub(crate) fn decode(bytes: &[u8], rules: &CustomRules) -> Decoded<Self> {
        let mut options = KeyspaceOptions::take_fields(bytes)?;
        options.filters_mut().for_each(|filter| filter.register(rules));
        options.validate().map_err(|error| damaged(&format!("saved settings: {error}")))?;
        Ok(options)
    }
}

record! {
    /// A filter in saved settings.
    struct SavedFilter: "a saved filter" {
        encoding: Option<Encoding> = 1 "encoding",
        /// The name of a user's policy, instead of an encoding.
        policy: Option<String> = 2 "filter policy",
        /// Instead of an encoding.
        memory_bytes: Option<u64> = 3 "memory budget",
        first_ribbon_level: Option<usize> = 4 "first Ribbon level",
        layout: Option<FilterLayout> = 5 "layout",
        whole_keys: bool = 6 "whole_key" or true,
        /// The id of the extractor.
        prefix: Option<String> = 7 "prefix",
        pinning: FilterPinning = 8 "pinning" or FilterPinning::TopLevel,
        /// Of a range filter. Versions without range filters skip it.
        range_millibits: u32 = 0x89 "range filter" or 0,
    }
}

impl Value for Filter {
    fn put(&self, dst: &mut Vec<u8>) {
        let (encoding, policy) = match self.encoding.clone().filter(|_| self.memory_bytes.is_none())
        {
            Some(policy @ Encoding::Custom(_)) => (None, Some(policy.full_name())),
            encoding => (encoding, None),
        };
        let saved = SavedFilter {
            encoding,
            policy,
            memory_bytes: self.memory_bytes,
            first_ribbon_level: self.first_ribbon_level,
            layout: self.layout,
            whole_keys: self.members.whole_keys,
            prefix: self.members.prefix.as_ref().map(|prefix| prefix.id()),
            pinning: self.pinning,
            range_millibits: self.range_millibits,
        };
        saved.put_fields(dst);
    }

    /// All rules of the user's are still to be [registered](Filter::register).
    fn take(bytes: &mut Decoder<'_>, name: &str) -> Decoded<Self> {
        let saved = SavedFilter::take_fields(&Vec::take(bytes, name)?)?;
        let mut filter = match (saved.encoding, saved.policy, saved.memory_bytes) {
            (None, None, None) => Filter::none(),
            (Some(encoding), None, None) => Filter::from(encoding),
            (None, Some(name), None) => decode_policy(name)?,
            (None, None, Some(bytes)) => Filter::monkey(bytes),
            _ => return Err(damaged("a filter of two kinds")),
        };
        filter.layout = saved.layout;
        filter.first_ribbon_level = saved
            .first_ribbon_level
            .map(|level| decode_ribbon_level(level, filter.encoding.as_ref()))
            .transpose()?;
        filter.members.whole_keys = saved.whole_keys;
        filter.pinning = saved.pinning;
        filter.range_millibits = saved.range_millibits;
        if let Some(id) = saved.prefix {
            filter.members.prefix = Some(decode_prefix(id, &mut filter.unregistered)?);
        }
        Ok(filter)
    }
}

impl Filter {
    /// Installs those of the user's rules that are among these.
    fn register(&mut self, rules: &CustomRules) {
        self.unregistered.retain(|rule| match rule {
            Unregistered::Policy(name) => match FilterReader::for_name(name, &rules.policies) {
                Some(FilterReader::Custom(policy)) => {
                    self.encoding = Some(Encoding::Custom(policy));
                    false
                }
                _ => true,
            },
            Unregistered::Prefix(id) => {
                let known = Prefix::for_id(id, &rules.prefixes);
                let is_unknown = known.is_none();
                self.members.prefix = known.or(self.members.prefix.take());
                is_unknown
            }
        });
    }
}

/// A policy or an extractor that is not registered. It carries the name, so that the filter is
/// checked, shown and saved like any other. `Filter::at_level` keeps it out of tables.
#[derive(Debug)]
pub(crate) struct NameOnly(pub(crate) String);

impl FilterPolicy for NameOnly {
    fn name(&self) -> &str {
        &self.0
    }

    fn create_filter(&self, _: &[&[u8]], _: &mut Vec<u8>) {}

    fn key_may_match(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }
}

impl PrefixExtractor for NameOnly {
    fn id(&self) -> &str {
        &self.0
    }

    fn prefix<'k>(&self, _: &'k [u8]) -> Option<&'k [u8]> {
        None
    }
}

fn decode_policy(name: String) -> Decoded<Filter> {
    if FilterReader::for_name(&name, &[]).is_some() {
        return Err(damaged(&format!("a filter policy with the built-in name {name:?}")));
    }
    let mut filter = Filter::custom(Arc::new(NameOnly(name.clone())));
    filter.unregistered.push(Unregistered::Policy(name));
    Ok(filter)
}

fn decode_prefix(id: String, unregistered: &mut Vec<Unregistered>) -> Decoded<Prefix> {
    if let Some(prefix) = Prefix::for_id(&id, &[]) {
        return Ok(prefix);
    }
    let prefix = Prefix::custom(Arc::new(NameOnly(id.clone())));
    // Names of built-in rules are not free, so this one is a built-in rule of a later version.
    prefix.validate().map_err(Undecodable::Unknown)?;
    unregistered.push(Unregistered::Prefix(id));
    Ok(prefix)
}

fn decode_ribbon_level(level: usize, encoding: Option<&Encoding>) -> Decoded<usize> {
    match (level, encoding) {
        (1..LEVELS, Some(Encoding::Ribbon { .. })) => Ok(level),
        _ => Err(damaged(&format!("a filter that is a Ribbon filter from level {level} on"))),
    }
}

/// Label and thousandths of a bit per key.
impl Value for Encoding {
    fn put(&self, dst: &mut Vec<u8>) {
        put_length_prefixed(dst, self.label().as_bytes());
        millibits(self).put(dst);
    }

    fn take(bytes: &mut Decoder<'_>, name: &str) -> Decoded<Self> {
        let label = bytes.length_prefixed().ok_or_else(|| malformed(name))?;
        let bits = Value::take(bytes, name)?;
        let built_in = Encoding::built_in(1_000);
        if !built_in.iter().any(|encoding| encoding.label().as_bytes() == label) {
            let label = String::from_utf8_lossy(label);
            return Err(Undecodable::Unknown(format!("the filter encoding {label:?}")));
        }
        // `of_table` takes the nearest bits that the encoding can have; saved ones are exact.
        let encoding = std::str::from_utf8(label).ok().and_then(|l| Encoding::of_table(l, bits));
        let exact = encoding.filter(|encoding| millibits(encoding) == bits);
        exact.ok_or_else(|| damaged(&format!("a filter of {bits} thousandths of a bit per key")))
    }
}

/// Kind and bytes.
impl Value for FilterLayout {
    fn put(&self, dst: &mut Vec<u8>) {
        let kind_and_bytes: (u64, usize) = match *self {
            FilterLayout::Full => (0, 0),
            FilterLayout::Partitioned { block_bytes } => (1, block_bytes),
            FilterLayout::BlockBased { window_bytes } => (2, window_bytes),
        };
        kind_and_bytes.put(dst);
    }

    fn take(bytes: &mut Decoder<'_>, name: &str) -> Decoded<Self> {
        match <(u64, usize)>::take(bytes, name)? {
            (0, 0) => Ok(FilterLayout::Full),
            (0, _) => Err(damaged("a full filter with a size")),
            (1, block_bytes) => Ok(FilterLayout::Partitioned { block_bytes }),
            (2, window_bytes) => Ok(FilterLayout::BlockBased { window_bytes }),
            (kind, _) => Err(Undecodable::Unknown(format!("filter layout {kind}"))),
        }
    }
}

/// A value of few cases: a varint that is the place of one in a list.
macro_rules! cases {
    ($Value:ident, $name:literal: $($case:ident),*) => {
        impl Value for $Value {
            fn put(&self, dst: &mut Vec<u8>) {
                let case = [$($Value::$case),*].iter().position(|case| case == self);
                case.unwrap_or_default().put(dst);
            }

            fn take(bytes: &mut Decoder<'_>, name: &str) -> Decoded<Self> {
                let number = usize::take(bytes, name)?;
                let case = [$($Value::$case),*].get(number).copied();
                case.ok_or_else(|| Undecodable::Unknown(format!("{} {number}", $name)))
            }
        }
    };
}
cases!(FilterPinning, "filter pinning": None, TopLevel, All);

/// The number of the codec in blocks, and the level after that of Zstandard.
impl Value for Compression {
    fn put(&self, dst: &mut Vec<u8>) {
        u64::from(self.codec() as u8).put(dst);
        if let Compression::Zstd(level) = self {
            level.unsigned_abs().put(dst);
        }
    }

    fn take(bytes: &mut Decoder<'_>, name: &str) -> Decoded<Self> {
        let number = u64::take(bytes, name)?;
        let codec = u8::try_from(number).ok().and_then(Codec::from_byte);
        match codec.ok_or_else(|| Undecodable::Unknown(format!("compression {number}")))? {
            Codec::None => Ok(Compression::None),
            Codec::Snappy => Ok(Compression::Snappy),
            Codec::Lz4 => Ok(Compression::Lz4),
            Codec::Zstd => {
                let level = i32::try_from(u32::take(bytes, name)?);
                level.map(Compression::Zstd).map_err(|_| malformed(name))
            }
        }
    }
}

/// Thousandths of a bit per key. They come out exactly: an `f64` holds more than an encoding has.
fn millibits(encoding: &Encoding) -> u64 {
    (1_000.0 * encoding.bits_per_key().unwrap_or_default()).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::levels::LEVELS;
    use crate::tree::fields::{IGNORABLE, next_field, put_field};
    use proptest::prelude::*;
    use std::time::Duration;

    const TAG_FILTER: u8 = 1;
    const TAG_FILTER_AT_LEVEL: u8 = 2;
    const TAG_FILTER_LAST_LEVEL: u8 = 3;
    const TAG_BLOCK_BYTES: u8 = 4;
    const TAG_BLOCK_HASH_INDEX: u8 = 5;
    const TAG_COMPRESSION: u8 = 6;
    const TAG_EXPIRE_AFTER: u8 = 7;

    const FILTER_ENCODING: u8 = 1;
    const FILTER_POLICY: u8 = 2;
    const FILTER_MEMORY_BYTES: u8 = 3;
    const FILTER_FIRST_RIBBON_LEVEL: u8 = 4;
    const FILTER_LAYOUT: u8 = 5;
    const FILTER_WHOLE_KEYS: u8 = 6;
    const FILTER_PREFIX: u8 = 7;
    const FILTER_PINNING: u8 = 8;

    fn encoded_filter(filter: &Filter) -> Vec<u8> {
        let mut bytes = Vec::new();
        filter.put(&mut bytes);
        bytes
    }

    /// A policy of the user's.
    fn own_policy() -> Arc<dyn FilterPolicy> {
        Arc::new(NameOnly("test.policy".into()))
    }

    /// An extractor of the user's.
    fn own_prefix() -> Arc<dyn PrefixExtractor> {
        Arc::new(NameOnly("test.prefix,=:".into()))
    }

    fn encoded(options: &KeyspaceOptions) -> Vec<u8> {
        options.encoded()
    }

    /// Decoded where the user's own are registered.
    fn decoded(bytes: &[u8]) -> Decoded<KeyspaceOptions> {
        let rules = CustomRules { policies: vec![own_policy()], prefixes: vec![own_prefix()] };
        KeyspaceOptions::decode(bytes, &rules)
    }

    /// Decoded where nothing is registered.
    fn decoded_alone(bytes: &[u8]) -> Decoded<KeyspaceOptions> {
        KeyspaceOptions::decode(bytes, &CustomRules::default())
    }

    fn prefixes() -> impl Strategy<Value = Prefix> {
        prop_oneof![
            (1usize..=65_535).prop_map(Prefix::fixed),
            (1usize..=65_535).prop_map(Prefix::capped),
            (any::<u8>(), 1usize..=65_535).prop_map(|(byte, count)| Prefix::delimited(byte, count)),
            Just(Prefix::custom(own_prefix())),
        ]
    }

    fn layouts() -> impl Strategy<Value = FilterLayout> {
        prop_oneof![
            Just(FilterLayout::Full),
            (1usize..=1 << 30).prop_map(|block_bytes| FilterLayout::Partitioned { block_bytes }),
            (8u32..=30).prop_map(|log| FilterLayout::BlockBased { window_bytes: 1 << log }),
        ]
    }

    fn filters() -> impl Strategy<Value = Filter> {
        let bits = || (500u32..=100_000).prop_map(|millibits| f64::from(millibits) / 1_000.0);
        let kinds = prop_oneof![
            Just(Filter::none()),
            bits().prop_map(Filter::bloom),
            bits().prop_map(Filter::ribbon),
            bits().prop_map(Filter::legacy_bloom),
            (bits(), 1..LEVELS).prop_map(|(bits, level)| Filter::bloom_then_ribbon(bits, level)),
            (1u32..=100).prop_map(|bits| Filter::leveldb_bloom(f64::from(bits))),
            (1..=u64::MAX).prop_map(Filter::monkey),
            Just(Filter::custom(own_policy())),
        ];
        let pinnings = prop::sample::select(vec![
            FilterPinning::None,
            FilterPinning::TopLevel,
            FilterPinning::All,
        ]);
        let parts = (
            kinds,
            prop::option::of(layouts()),
            prop::option::of(prefixes()),
            any::<bool>(),
            pinnings,
            prop_oneof![Just(0), 4_000..=20_000u32],
        );
        parts
            .prop_map(|(mut filter, layout, prefix, whole_key, pinning, range_millibits)| {
                filter.layout = layout;
                filter.members.prefix = prefix;
                filter.range_millibits = range_millibits;
                filter.whole_key(whole_key).pinning(pinning)
            })
            .prop_filter("valid", |filter| filter.validate().is_ok())
    }

    fn settings() -> impl Strategy<Value = KeyspaceOptions> {
        let of_level = filters().prop_filter("no budget", |filter| filter.memory_bytes.is_none());
        let flags = [any::<Option<bool>>(), any::<Option<bool>>()];
        let bytes = prop::option::of(64usize..=4 << 20);
        let partitions = prop::option::of(prop_oneof![Just(0), 64u32..=1 << 20]);
        let levels = prop::collection::btree_map(0..LEVELS, of_level, 0..4);
        let expiry = prop::option::of(prop_oneof![1..=u64::MAX, Just(u64::MAX)]);
        let last_level = prop::option::of(
            filters()
                .prop_filter("no budget", |filter| filter.memory_bytes.is_none())
                .prop_map(|filter| Box::new(filter.pinning(FilterPinning::default()))),
        );
        let general = (prop::option::of(filters()), last_level);
        let compression = || {
            use Compression::{Lz4, None, Snappy, Zstd};
            prop_oneof![Just(None), Just(Snappy), Just(Lz4), (1..=22).prop_map(Zstd)]
        };
        let compressions = (
            prop::option::of(compression()),
            prop::collection::btree_map(0..LEVELS, compression(), 0..4),
            prop::option::of(compression()),
        );
        let parts = (general, levels, (bytes, partitions), flags, expiry, compressions);
        parts.prop_map(|(general, filter_at_level, bytes, flags, expire_after, of_data)| {
            let (block_bytes, index_partition_bytes) = bytes;
            let (filter, filter_at_last_level) = general;
            let [last, hash] = flags;
            let (compression, compression_at_level, compression_at_last_level) = of_data;
            KeyspaceOptions {
                filter,
                filter_at_level,
                filter_at_last_level,
                filter_last_level: last,
                block_bytes,
                block_hash_index: hash,
                index_partition_bytes,
                compression,
                compression_at_level,
                compression_at_last_level,
                expire_after,
                compaction_filter: None,
            }
        })
    }

    proptest! {
        #[test]
        fn settings_round_trip_exactly(options in settings()) {
            options.validate().unwrap();
            let bytes = encoded(&options);
            let back = decoded(&bytes).unwrap();
            // `Debug` shows every field, also one that a broken `encode` leaves out of `==`.
            prop_assert_eq!(format!("{:?}", back), format!("{:?}", options));
            prop_assert!(back == options && back.check_registered().is_ok());
            prop_assert_eq!(back.settings().is_empty(), bytes.is_empty());
            // A process that does not have the user's rules shows and saves the same.
            let alone = decoded_alone(&bytes).unwrap();
            prop_assert_eq!(encoded(&alone), bytes);
            prop_assert_eq!(alone.to_string(), options.to_string());
        }

        #[test]
        fn damaged_settings_fail_or_are_valid(options in settings(), flip in 1u8..) {
            let bytes = encoded(&options);
            let cut = (0..bytes.len()).map(|end| bytes[..end].to_vec());
            let flipped = (0..bytes.len()).map(|at| {
                let mut bytes = bytes.clone();
                bytes[at] ^= flip;
                bytes
            });
            for wrong in cut.chain(flipped) {
                if let Ok(other) = decoded(&wrong) {
                    other.validate().unwrap();
                    prop_assert!(decoded(&encoded(&other)).unwrap() == other);
                }
            }
        }
    }

    /// Every setting is named, and every field of a filter is there.
    fn full() -> KeyspaceOptions {
        let own = Filter::custom(own_policy()).prefix(Prefix::custom(own_prefix()));
        KeyspaceOptions::new()
            .filter(Filter::monkey(300_000).prefix(Prefix::fixed(3)).pinning(FilterPinning::All))
            .filter_at_level(0, own.whole_key(false).layout(FilterLayout::Full))
            .filter_at_level(2, Filter::none().pinning(FilterPinning::None))
            .filter_at_level(
                6,
                Filter::bloom_then_ribbon(9.999, 3)
                    .layout(FilterLayout::Partitioned { block_bytes: 4096 }),
            )
            .filter_last_level(false)
            .block_bytes(16 << 10)
            .block_hash_index(true)
            .snappy(false)
            .expire_after(Duration::from_millis(300))
    }

    #[test]
    fn saved_bytes_stay_the_same() {
        let golden = concat!(
            "011e0303e0a71207147369667464622e46697865645072656669782e33080102",
            "022500020b746573742e706f6c69637905020000060100070e746573742e7072656669782c3d3a",
            "020402080100021406010906726962626f6e8f4e0401030503018020",
            "03010004038080010501010601000702ac02",
        );
        let hex: String = encoded(&full()).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden);
        assert_eq!(
            full().to_string(),
            "filter=monkey:300000 prefix=siftdb.FixedPrefix.3 pinning=all, \
             filter_at_level.0=custom:test.policy layout=full prefix=test.prefix,=: \
             whole_key=false, filter_at_level.2=none pinning=none, \
             filter_at_level.6=bloom-then-ribbon:9.999:3 layout=partitioned:4096, \
             filter_last_level=false, block_bytes=16384, block_hash_index=true, \
             compression=none, expire_after=300ms"
        );
        let compressed = KeyspaceOptions::new()
            .compression(Compression::Lz4)
            .compression_at_level(2, Compression::Snappy)
            .compression_at_level(6, Compression::None)
            .compression_at_last_level(Compression::Zstd(19));
        let golden = [6, 1, 2, 0x89, 2, 2, 1, 0x89, 2, 6, 0, 0x8a, 2, 3, 19];
        assert_eq!(encoded(&compressed), golden);
        assert_eq!(
            compressed.to_string(),
            "compression=lz4, compression_at_level.2=snappy, compression_at_level.6=none, \
             compression_at_last_level=zstd:19"
        );
    }

    /// The encoding of a filter with one more field.
    fn filter_with(filter: &Filter, tag: u8, value: &[u8]) -> Vec<u8> {
        let mut inner = encoded_filter(filter);
        put_field(&mut inner, tag, value);
        let mut bytes = Vec::new();
        put_field(&mut bytes, TAG_FILTER, &inner);
        bytes
    }

    #[test]
    fn unknown_tags_are_refused_or_skipped() {
        let bytes = encoded(&full());
        let more = |tag: u8| [&bytes[..], &[tag, 2, 7, 7]].concat();
        assert!(decoded(&more(IGNORABLE | 70)).unwrap() == full());
        assert!(matches!(decoded(&more(9)), Err(Undecodable::Unknown(_))));
        let bloom = Filter::bloom(8.0);
        let skipped = decoded(&filter_with(&bloom, IGNORABLE | 70, b"x")).unwrap();
        assert!(skipped == KeyspaceOptions::new().filter(bloom.clone()));
        let encoding = |label: &str| {
            let mut value = vec![label.len() as u8];
            value.extend_from_slice(label.as_bytes());
            value.push(100);
            filter_with(&Filter::none(), FILTER_ENCODING, &value)
        };
        let later = [
            filter_with(&bloom, 9, b"x"),
            filter_with(&bloom, FILTER_LAYOUT, &[3, 1]),
            filter_with(&bloom, FILTER_PINNING, &[3]),
            filter_with(&bloom, FILTER_PREFIX, b"siftdb.OtherPrefix.3"),
            encoding("xor"),
            encoding("custom"),
            vec![TAG_COMPRESSION, 1, 4],
        ];
        for bytes in later {
            let decoded = decoded(&bytes);
            assert!(matches!(decoded, Err(Undecodable::Unknown(_))), "{bytes:x?}: {decoded:?}");
        }
    }

    #[test]
    fn every_setting_is_saved_once() {
        let bytes = encoded(&full());
        let mut fields = Decoder::new(&bytes);
        let mut count = 0;
        while let Some((tag, value)) = next_field(&mut fields, "settings").unwrap() {
            let mut twice = bytes.clone();
            put_field(&mut twice, tag, value);
            assert!(matches!(decoded(&twice), Err(Undecodable::Damaged(_))), "tag {tag}");
            count += 1;
        }
        assert_eq!(count, 9);
        let filter = Filter::ribbon(10.0).layout(FilterLayout::Full).prefix(Prefix::fixed(1));
        let filter = filter.pinning(FilterPinning::All);
        let inner = encoded_filter(&filter);
        let mut fields = Decoder::new(&inner);
        while let Some((tag, value)) = next_field(&mut fields, "a filter").unwrap() {
            let twice = decoded(&filter_with(&filter, tag, value));
            assert!(matches!(twice, Err(Undecodable::Damaged(_))), "field {tag}");
        }
    }

    #[test]
    fn the_document_lists_every_setting() {
        let document = include_str!("../../docs/format.md");
        let (_, table) = document.split_once("| tag | setting | bytes |").unwrap();
        let (table, _) = table.split_once("\n\n").unwrap();
        let rest = KeyspaceOptions::new()
            .filter_at_last_level(Filter::none())
            .compression_at_level(2, Compression::Snappy)
            .compression_at_last_level(Compression::None);
        let partitions = KeyspaceOptions::new().index_partition_bytes(300);
        assert_eq!(encoded(&partitions), [0x8b, 2, 0xac, 2]);
        for bytes in [full(), rest, partitions].iter().map(encoded) {
            let mut fields = Decoder::new(&bytes);
            while let Some((tag, _)) = next_field(&mut fields, "settings").unwrap() {
                let number = if tag < 0x80 { tag.to_string() } else { format!("`{tag:x}`") };
                assert!(table.contains(&format!("| {number} |")), "tag {number}");
            }
        }
    }

    #[test]
    fn impossible_saved_settings_are_refused() {
        let (none, bloom) = (Filter::none(), Filter::bloom(8.0));
        let ribbon = Filter::ribbon(8.0);
        let of_level = |level: u8, filter: &Filter| {
            let mut bytes = Vec::new();
            put_field(
                &mut bytes,
                TAG_FILTER_AT_LEVEL,
                &[&[level], &encoded_filter(filter)[..]].concat(),
            );
            bytes
        };
        let impossible = [
            vec![TAG_BLOCK_BYTES, 1, 63],
            vec![TAG_EXPIRE_AFTER, 1, 0],
            vec![TAG_EXPIRE_AFTER, 0],
            vec![TAG_FILTER_LAST_LEVEL, 1, 2],
            vec![TAG_BLOCK_HASH_INDEX, 0],
            vec![TAG_FILTER_AT_LEVEL, 0],
            of_level(7, &bloom),
            of_level(0, &Filter::monkey(1)),
            // 8,500 thousandths of a bit, where only whole bits can be.
            filter_with(&none, FILTER_ENCODING, b"\x0dleveldb-bloom\xb4\x42"),
            filter_with(&none, FILTER_MEMORY_BYTES, &[0]),
            filter_with(&bloom, FILTER_MEMORY_BYTES, &[9]),
            filter_with(&bloom, FILTER_POLICY, b"test.policy"),
            filter_with(&none, FILTER_POLICY, b"leveldb.BuiltinBloomFilter2"),
            filter_with(&none, FILTER_POLICY, b"leveldb.Other"),
            filter_with(&none, FILTER_POLICY, b"with space"),
            filter_with(&none, FILTER_POLICY, b"\xff"),
            filter_with(&none, FILTER_PREFIX, b"test.prefix"),
            filter_with(&none, FILTER_WHOLE_KEYS, &[0]),
            filter_with(&bloom, FILTER_FIRST_RIBBON_LEVEL, &[1]),
            filter_with(&ribbon, FILTER_FIRST_RIBBON_LEVEL, &[0]),
            filter_with(&ribbon, FILTER_FIRST_RIBBON_LEVEL, &[7]),
            filter_with(&bloom, FILTER_LAYOUT, &[0, 1]),
            filter_with(&bloom, FILTER_LAYOUT, &[1, 0]),
            filter_with(&bloom, FILTER_LAYOUT, &[2, 3]),
        ];
        for bytes in impossible {
            let decoded = decoded(&bytes);
            assert!(matches!(decoded, Err(Undecodable::Damaged(_))), "{bytes:x?}: {decoded:?}");
        }
    }

    #[test]
    fn unregistered_rules_are_named_and_kept() {
        let bytes = encoded(&full());
        let alone = decoded_alone(&bytes).unwrap();
        let rules: Vec<_> = alone.unregistered().cloned().collect();
        let policy = Unregistered::Policy("test.policy".into());
        assert_eq!(rules, [policy, Unregistered::Prefix("test.prefix,=:".into())]);
        let error = alone.check_registered().unwrap_err();
        assert_eq!(error.kind(), "invalid_options");
        let what = error.to_string();
        assert!(
            what.contains("\"test.policy\"") && what.contains("register_filter_policy"),
            "{what}"
        );
        // Named now, the filter of the level replaces the saved one and needs no policy.
        let named = KeyspaceOptions::new().filter_at_level(0, Filter::bloom(9.0)).over(&alone);
        named.check_registered().unwrap();
    }

    #[test]
    fn unregistered_filters_are_left_out() {
        let filters = [
            Filter::custom(own_policy()),
            Filter::bloom(9.0).prefix(Prefix::custom(own_prefix())),
            Filter::monkey(1 << 20).prefix(Prefix::custom(own_prefix())),
        ];
        for filter in filters {
            let bytes = encoded(&KeyspaceOptions::new().filter(filter));
            let known = decoded(&bytes).unwrap().filter.unwrap();
            assert!((0..LEVELS).all(|level| known.at_level(level).is_some()), "{known}");
            let alone = decoded_alone(&bytes).unwrap().filter.unwrap();
            assert!((0..LEVELS).all(|level| alone.at_level(level).is_none()), "{alone}");
            assert_eq!(alone.budget(), None);
        }
    }
}
