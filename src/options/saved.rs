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

use crate::base::coding::{Decoder, put_length_prefixed, put_varint};
use crate::base::levels::LEVELS;
use crate::filter::encoding::{Encoding, FilterReader};
use crate::filter::policy::FilterPolicy;
use crate::filter::prefix::{Prefix, PrefixExtractor};
use crate::log::record::format::Undecodable;
use crate::options::filter::{Filter, Unregistered};
use crate::options::keyspace::KeyspaceOptions;
use crate::table::filter::layout::{FilterLayout, FilterPinning};
use crate::table::format::Compression;
use crate::tree::fields::{
    IGNORABLE, damaged, next_field, put_field, put_varint_field, set, varints,
};
use std::sync::Arc;

const TAG_FILTER: u8 = 1;
const TAG_FILTER_AT_LEVEL: u8 = 2;
const TAG_FILTER_LAST_LEVEL: u8 = 3;
const TAG_BLOCK_BYTES: u8 = 4;
const TAG_BLOCK_HASH_INDEX: u8 = 5;
const TAG_COMPRESSION: u8 = 6;
/// Milliseconds.
const TAG_EXPIRE_AFTER: u8 = 7;

/// Label and thousandths of a bit per key.
const FILTER_ENCODING: u8 = 1;
const FILTER_POLICY: u8 = 2;
/// Instead of an encoding.
const FILTER_MEMORY_BYTES: u8 = 3;
const FILTER_FIRST_RIBBON_LEVEL: u8 = 4;
/// Kind and bytes.
const FILTER_LAYOUT: u8 = 5;
const FILTER_WHOLE_KEYS: u8 = 6;
const FILTER_PREFIX: u8 = 7;
const FILTER_PINNING: u8 = 8;

type Decoded<T> = std::result::Result<T, Undecodable>;

/// Equal if they are saved as the same bytes: a user's rules are compared by name.
impl PartialEq for KeyspaceOptions {
    fn eq(&self, other: &Self) -> bool {
        let encoded = |options: &KeyspaceOptions| {
            let mut bytes = Vec::new();
            options.encode(&mut bytes);
            bytes
        };
        encoded(self) == encoded(other)
    }
}

impl KeyspaceOptions {
    /// Appends the encoding of valid settings.
    pub(crate) fn encode(&self, dst: &mut Vec<u8>) {
        let mut scratch = Vec::new();
        if let Some(filter) = &self.filter {
            put_field(dst, TAG_FILTER, &encoded_filter(filter));
        }
        for (level, filter) in &self.filter_at_level {
            let mut value = Vec::new();
            put_varint(&mut value, *level as u64);
            value.extend_from_slice(&encoded_filter(filter));
            put_field(dst, TAG_FILTER_AT_LEVEL, &value);
        }
        for (tag, value) in [
            (TAG_FILTER_LAST_LEVEL, self.filter_last_level.map(u64::from)),
            (TAG_BLOCK_BYTES, self.block_bytes.map(|bytes| bytes as u64)),
            (TAG_BLOCK_HASH_INDEX, self.block_hash_index.map(u64::from)),
            (TAG_COMPRESSION, self.compression.map(|compression| compression as u64)),
            (TAG_EXPIRE_AFTER, self.expire_after),
        ] {
            if let Some(value) = value {
                put_varint_field(dst, tag, &[value], &mut scratch);
            }
        }
    }

    /// Decodes and validates settings. `policies` and `prefixes` are those that may be named.
    pub(crate) fn decode(
        bytes: &[u8],
        policies: &[Arc<dyn FilterPolicy>],
        prefixes: &[Arc<dyn PrefixExtractor>],
    ) -> Decoded<Self> {
        let mut options = KeyspaceOptions::new();
        let mut fields = Decoder::new(bytes);
        while let Some((tag, value)) = next_field(&mut fields, "saved settings")? {
            match tag {
                TAG_FILTER => {
                    let filter = decode_filter(value, policies, prefixes)?;
                    set(&mut options.filter, filter, "filter")?;
                }
                TAG_FILTER_AT_LEVEL => {
                    let mut rest = Decoder::new(value);
                    let level = rest.varint().and_then(|level| usize::try_from(level).ok());
                    let level = level.ok_or_else(|| damaged("a filter without its level"))?;
                    let filter = decode_filter(rest.rest(), policies, prefixes)?;
                    if options.filter_at_level.insert(level, filter).is_some() {
                        return Err(damaged(&format!("two filters of level {level}")));
                    }
                }
                TAG_FILTER_LAST_LEVEL => {
                    set_flag(&mut options.filter_last_level, value, "filter_last_level")?
                }
                TAG_BLOCK_BYTES => {
                    let [bytes] = varints(value, "block_bytes")?;
                    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                    set(&mut options.block_bytes, bytes, "block_bytes")?;
                }
                TAG_BLOCK_HASH_INDEX => {
                    set_flag(&mut options.block_hash_index, value, "block_hash_index")?
                }
                TAG_COMPRESSION => {
                    let [code] = varints(value, "compression")?;
                    let known = u8::try_from(code).ok().and_then(Compression::from_byte);
                    let unknown = || Undecodable::Unknown(format!("compression {code}"));
                    set(&mut options.compression, known.ok_or_else(unknown)?, "compression")?;
                }
                TAG_EXPIRE_AFTER => {
                    let [millis] = varints(value, "expire_after")?;
                    set(&mut options.expire_after, millis, "expire_after")?;
                }
                tag if tag & IGNORABLE != 0 => {}
                tag => return Err(Undecodable::Unknown(format!("a setting with tag {tag}"))),
            }
        }
        options.validate().map_err(|error| damaged(&format!("saved settings: {error}")))?;
        Ok(options)
    }
}

fn encoded_filter(filter: &Filter) -> Vec<u8> {
    let (mut dst, mut scratch) = (Vec::new(), Vec::new());
    match (&filter.encoding, filter.memory_bytes) {
        (_, Some(bytes)) => {
            put_varint_field(&mut dst, FILTER_MEMORY_BYTES, &[bytes], &mut scratch);
        }
        (Some(policy @ Encoding::Custom(_)), None) => {
            put_field(&mut dst, FILTER_POLICY, policy.full_name().as_bytes());
        }
        (Some(encoding), None) => {
            let mut value = Vec::new();
            put_length_prefixed(&mut value, encoding.label().as_bytes());
            put_varint(&mut value, millibits(encoding));
            put_field(&mut dst, FILTER_ENCODING, &value);
        }
        (None, None) => {}
    }
    if let Some(level) = filter.first_ribbon_level {
        put_varint_field(&mut dst, FILTER_FIRST_RIBBON_LEVEL, &[level as u64], &mut scratch);
    }
    if let Some(layout) = filter.layout {
        let (kind, bytes) = match layout {
            FilterLayout::Full => (0, 0),
            FilterLayout::Partitioned { block_bytes } => (1, block_bytes),
            FilterLayout::BlockBased { window_bytes } => (2, window_bytes),
        };
        put_varint_field(&mut dst, FILTER_LAYOUT, &[kind, bytes as u64], &mut scratch);
    }
    if !filter.members.whole_keys {
        put_varint_field(&mut dst, FILTER_WHOLE_KEYS, &[0], &mut scratch);
    }
    if let Some(prefix) = &filter.members.prefix {
        put_field(&mut dst, FILTER_PREFIX, prefix.id().as_bytes());
    }
    let pinning = match filter.pinning {
        FilterPinning::None => 0,
        FilterPinning::TopLevel => return dst,
        FilterPinning::All => 2,
    };
    put_varint_field(&mut dst, FILTER_PINNING, &[pinning], &mut scratch);
    dst
}

fn decode_filter(
    bytes: &[u8],
    policies: &[Arc<dyn FilterPolicy>],
    prefixes: &[Arc<dyn PrefixExtractor>],
) -> Decoded<Filter> {
    let (mut encoding, mut policy, mut memory_bytes) = (None, None, None);
    let (mut first_ribbon_level, mut whole_keys) = (None, None);
    let (mut layout, mut prefix, mut pinning) = (None, None, None);
    let mut fields = Decoder::new(bytes);
    while let Some((tag, value)) = next_field(&mut fields, "a saved filter")? {
        match tag {
            FILTER_ENCODING => set(&mut encoding, decode_encoding(value)?, "encoding")?,
            FILTER_POLICY => set(&mut policy, text(value)?, "filter policy")?,
            FILTER_MEMORY_BYTES => {
                let [bytes] = varints(value, "memory budget")?;
                set(&mut memory_bytes, bytes, "memory budget")?;
            }
            FILTER_FIRST_RIBBON_LEVEL => {
                let [level] = varints(value, "first Ribbon level")?;
                set(&mut first_ribbon_level, level, "first Ribbon level")?;
            }
            FILTER_LAYOUT => set(&mut layout, decode_layout(value)?, "layout")?,
            FILTER_WHOLE_KEYS => set_flag(&mut whole_keys, value, "whole_key")?,
            FILTER_PREFIX => set(&mut prefix, text(value)?, "prefix")?,
            FILTER_PINNING => set(&mut pinning, decode_pinning(value)?, "pinning")?,
            tag if tag & IGNORABLE != 0 => {}
            tag => return Err(Undecodable::Unknown(format!("a filter with field {tag}"))),
        }
    }
    let mut filter = match (encoding, policy, memory_bytes) {
        (None, None, None) => Filter::none(),
        (Some(encoding), None, None) => Filter::from(encoding),
        (None, Some(name), None) => decode_policy(name, policies)?,
        (None, None, Some(bytes)) => Filter::monkey(bytes),
        _ => return Err(damaged("a filter of two kinds")),
    };
    filter.layout = layout;
    filter.first_ribbon_level = first_ribbon_level
        .map(|level| decode_ribbon_level(level, filter.encoding.as_ref()))
        .transpose()?;
    filter.members.whole_keys = whole_keys.unwrap_or(true);
    filter.pinning = pinning.unwrap_or_default();
    if let Some(id) = prefix {
        filter.members.prefix = Some(decode_prefix(id, prefixes, &mut filter.unregistered)?);
    }
    Ok(filter)
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

fn decode_policy(name: String, policies: &[Arc<dyn FilterPolicy>]) -> Decoded<Filter> {
    match FilterReader::for_name(&name, policies) {
        Some(FilterReader::Custom(policy)) => Ok(Filter::custom(policy)),
        Some(_) => Err(damaged(&format!("a filter policy with the built-in name {name:?}"))),
        None => {
            let mut filter = Filter::custom(Arc::new(NameOnly(name.clone())));
            filter.unregistered.push(Unregistered::Policy(name));
            Ok(filter)
        }
    }
}

fn decode_prefix(
    id: String,
    prefixes: &[Arc<dyn PrefixExtractor>],
    unregistered: &mut Vec<Unregistered>,
) -> Decoded<Prefix> {
    if let Some(prefix) = Prefix::for_id(&id, prefixes) {
        return Ok(prefix);
    }
    let prefix = Prefix::custom(Arc::new(NameOnly(id.clone())));
    // Names of built-in rules are not free, so this one is a built-in rule of a later version.
    prefix.validate().map_err(Undecodable::Unknown)?;
    unregistered.push(Unregistered::Prefix(id));
    Ok(prefix)
}

fn decode_encoding(value: &[u8]) -> Decoded<Encoding> {
    let mut value = Decoder::new(value);
    let (label, bits) = (value.length_prefixed(), value.varint());
    let (Some(label), Some(bits), true) = (label, bits, value.is_empty()) else {
        return Err(damaged("a malformed encoding of a filter"));
    };
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

fn decode_ribbon_level(level: u64, encoding: Option<&Encoding>) -> Decoded<usize> {
    let known = usize::try_from(level).ok().filter(|level| (1..LEVELS).contains(level));
    match (known, encoding) {
        (Some(level), Some(Encoding::Ribbon { .. })) => Ok(level),
        _ => Err(damaged(&format!("a filter that is a Ribbon filter from level {level} on"))),
    }
}

fn decode_layout(value: &[u8]) -> Decoded<FilterLayout> {
    let [kind, bytes] = varints(value, "layout")?;
    let size = usize::try_from(bytes).unwrap_or(usize::MAX);
    match kind {
        0 if bytes == 0 => Ok(FilterLayout::Full),
        0 => Err(damaged("a full filter with a size")),
        1 => Ok(FilterLayout::Partitioned { block_bytes: size }),
        2 => Ok(FilterLayout::BlockBased { window_bytes: size }),
        kind => Err(Undecodable::Unknown(format!("filter layout {kind}"))),
    }
}

fn decode_pinning(value: &[u8]) -> Decoded<FilterPinning> {
    let [pinning] = varints(value, "pinning")?;
    match pinning {
        0 => Ok(FilterPinning::None),
        1 => Ok(FilterPinning::TopLevel),
        2 => Ok(FilterPinning::All),
        pinning => Err(Undecodable::Unknown(format!("filter pinning {pinning}"))),
    }
}

/// Thousandths of a bit per key. They come out exactly: an `f64` holds more than an encoding has.
fn millibits(encoding: &Encoding) -> u64 {
    (1_000.0 * encoding.bits_per_key().unwrap_or_default()).round() as u64
}

fn set_flag(field: &mut Option<bool>, value: &[u8], name: &str) -> Decoded<()> {
    let [number] = varints(value, name)?;
    let flag = match number {
        0 => false,
        1 => true,
        _ => return Err(damaged(&format!("a malformed {name}"))),
    };
    set(field, flag, name)
}

fn text(value: &[u8]) -> Decoded<String> {
    let text = String::from_utf8(value.to_vec());
    text.map_err(|_| damaged("a name that is not text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::levels::LEVELS;
    use proptest::prelude::*;
    use std::time::Duration;

    /// A policy of the user's.
    fn own_policy() -> Arc<dyn FilterPolicy> {
        Arc::new(NameOnly("test.policy".into()))
    }

    /// An extractor of the user's.
    fn own_prefix() -> Arc<dyn PrefixExtractor> {
        Arc::new(NameOnly("test.prefix,=:".into()))
    }

    fn encoded(options: &KeyspaceOptions) -> Vec<u8> {
        let mut bytes = Vec::new();
        options.encode(&mut bytes);
        bytes
    }

    /// Decoded where the user's own are registered.
    fn decoded(bytes: &[u8]) -> Decoded<KeyspaceOptions> {
        KeyspaceOptions::decode(bytes, &[own_policy()], &[own_prefix()])
    }

    /// Decoded where nothing is registered.
    fn decoded_alone(bytes: &[u8]) -> Decoded<KeyspaceOptions> {
        KeyspaceOptions::decode(bytes, &[], &[])
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
        );
        parts
            .prop_map(|(mut filter, layout, prefix, whole_key, pinning)| {
                filter.layout = layout;
                filter.members.prefix = prefix;
                filter.whole_key(whole_key).pinning(pinning)
            })
            .prop_filter("valid", |filter| filter.validate().is_ok())
    }

    fn settings() -> impl Strategy<Value = KeyspaceOptions> {
        let of_level = filters().prop_filter("no budget", |filter| filter.memory_bytes.is_none());
        let flags = [any::<Option<bool>>(), any::<Option<bool>>(), any::<Option<bool>>()];
        let bytes = prop::option::of(64usize..=4 << 20);
        let levels = prop::collection::btree_map(0..LEVELS, of_level, 0..4);
        let expiry = prop::option::of(prop_oneof![1..=u64::MAX, Just(u64::MAX)]);
        let parts = (prop::option::of(filters()), levels, bytes, flags, expiry);
        parts.prop_map(|(filter, filter_at_level, block_bytes, flags, expire_after)| {
            let [last, hash, snappy] = flags;
            let others = KeyspaceOptions {
                filter,
                filter_at_level,
                filter_last_level: last,
                block_bytes,
                block_hash_index: hash,
                compression: None,
                expire_after,
                compaction_filter: None,
            };
            match snappy {
                Some(yes) => others.snappy(yes),
                None => others,
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
             filter_last_level=false, block_bytes=16384, block_hash_index=true, snappy=false, \
             expire_after=300ms"
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
        assert!(decoded(&more(IGNORABLE | 9)).unwrap() == full());
        assert!(matches!(decoded(&more(9)), Err(Undecodable::Unknown(_))));
        let bloom = Filter::bloom(8.0);
        let skipped = decoded(&filter_with(&bloom, IGNORABLE | 9, b"x")).unwrap();
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
            vec![TAG_COMPRESSION, 1, 2],
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
