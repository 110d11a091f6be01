//! Arguments that choose a filter, for `demo`, `filter` and `settings`; the spelling of settings.
//!
//! An encoding is named by its label in `siftdb::filter::Encoding`, so a new one needs no change
//! here. A layout is spelled as `siftdb::FilterLayout` prints it, with or without a size. Bits that
//! an encoding cannot have, such as a fraction of a bit, are refused and never rounded.

use crate::failure::{Failure, Outcome};
use crate::numbers::{bits, size};
use clap::Args;
use clap::builder::PossibleValuesParser;
use siftdb::filter::Encoding;
use siftdb::inspect::LEVELS;
use siftdb::{Compression, Filter, FilterLayout, FilterPinning, KeyspaceOptions, Prefix};
use siftdb_cli::filter_advice::{FilterAdvice, LevelAdvice};
use std::collections::BTreeMap;
use std::time::Duration;

/// The encoding that is the library's default.
pub const ENCODING_DEFAULT: &str = "fast-local-bloom";

/// Takes the label of a built-in encoding.
pub fn encoding_labels() -> PossibleValuesParser {
    PossibleValuesParser::new(Encoding::built_in(10_000).iter().map(Encoding::label))
}

/// The encoding with this label and these bits per key.
pub fn encoding_of(label: &str, bits: f64) -> Outcome<Encoding> {
    let refuse = |what: String| Err(Failure::usage(what));
    if !(0.5..=100.0).contains(&bits) {
        return refuse(format!("{bits} bits per key; a filter takes 0.5 to 100"));
    }
    let millibits = (1_000.0 * bits.max(1.0)).round();
    let Some(encoding) = Encoding::of_table(label, millibits as u64) else {
        let labels = Encoding::built_in(10_000).iter().map(Encoding::label).collect::<Vec<_>>();
        return refuse(format!("no encoding {label:?}; there are {}", labels.join(", ")));
    };
    match encoding.bits_per_key() {
        Some(taken) if (taken - millibits / 1_000.0).abs() > 1e-6 => {
            refuse(format!("{label} takes whole bits per key, not {bits}"))
        }
        Some(taken) if (taken - bits.max(1.0)).abs() > 1e-9 => {
            refuse(format!("{label} takes bits per key with at most three decimals, not {bits}"))
        }
        _ => Ok(encoding),
    }
}

/// The filters that tables are to have. Without any of these arguments, the saved settings say it.
#[derive(Args)]
pub struct WantedFilter {
    /// Bits of filter for each key [default: as saved, or 10 with --encoding or --layout]
    #[arg(long, value_parser = bits)]
    bits: Option<f64>,
    /// Encoding of the filters [default: as saved, or fast-local-bloom with --bits or --layout]
    #[arg(long, value_parser = encoding_labels())]
    encoding: Option<String>,
    /// Where the bits live: full, partitioned[:BYTES] or block-based[:BYTES] [default: as saved, or
    /// full at levels 0 and 1 and partitioned below]
    #[arg(long, value_parser = layout)]
    layout: Option<FilterLayout>,
    /// Memory for all filters together, such as 64MB, divided over the levels: instead of --bits
    #[arg(long, value_name = "SIZE", value_parser = size)]
    #[arg(conflicts_with_all = ["bits", "encoding"])]
    pub monkey: Option<u64>,
}

impl WantedFilter {
    /// The name of an option that was given, if any was.
    pub fn given(&self) -> Option<&'static str> {
        let options = [
            ("--bits", self.bits.is_some()),
            ("--encoding", self.encoding.is_some()),
            ("--layout", self.layout.is_some()),
            ("--monkey", self.monkey.is_some()),
        ];
        options.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }

    /// The settings that `filter advise` recommends.
    pub fn advised(&self, advice: &FilterAdvice) -> KeyspaceOptions {
        let filter = |level: &LevelAdvice| {
            let layout = self.layout.unwrap_or(level.layout);
            match level.bits_divided {
                0.0 => Filter::none(),
                bits => Filter::bloom(bits).layout(layout),
            }
        };
        let levels = advice.levels.iter();
        // A rebuild takes the tables of level 0 down to level 1, which may be empty now.
        let settings = match advice.levels.first() {
            Some(top) => KeyspaceOptions::new().filter(filter(top)),
            None => KeyspaceOptions::new(),
        };
        levels
            .fold(settings, |settings, level| settings.filter_at_level(level.level, filter(level)))
    }

    /// The filter; `None` if no argument was given.
    fn filter(&self) -> Outcome<Option<Filter>> {
        let filter = match (&self.encoding, self.bits, self.layout, self.monkey) {
            (None, None, None, None) => return Ok(None),
            (.., Some(bytes)) => Filter::monkey(bytes),
            (encoding, bits, ..) => {
                let label = encoding.as_deref().unwrap_or(ENCODING_DEFAULT);
                Filter::from(encoding_of(label, bits.unwrap_or(10.0))?)
            }
        };
        Ok(Some(match self.layout {
            Some(layout) => filter.layout(layout),
            None => filter,
        }))
    }

    /// The settings with this filter; none if no argument was given.
    pub fn settings(&self) -> Outcome<KeyspaceOptions> {
        let settings = KeyspaceOptions::new();
        Ok(match self.filter()? {
            Some(filter) => settings.filter(filter),
            None => settings,
        })
    }

    /// The same for a comparison, which saves nothing: no filter that is saved for a level counts.
    pub fn settings_at_all_levels(&self) -> Outcome<KeyspaceOptions> {
        let settings = self.settings()?;
        // A budget applies only to levels without a filter of their own.
        let Some(filter) = self.filter()?.filter(|_| self.monkey.is_none()) else {
            return Ok(settings);
        };
        let at_level =
            |settings: KeyspaceOptions, level| settings.filter_at_level(level, filter.clone());
        let settings = (0..LEVELS).fold(settings, at_level);
        Ok(settings.filter_at_last_level(filter).filter_last_level(true))
    }
}

/// `named`, with its filter set at every level that has a filter of its own in `saved`, or none;
/// so may the last level. Otherwise what is saved for a level would win over the argument, which is
/// meant for all levels.
pub fn at_saved_levels(
    named: KeyspaceOptions,
    saved: &KeyspaceOptions,
) -> Outcome<KeyspaceOptions> {
    let settings = named.settings();
    let Some((_, filter)) = settings.iter().find(|(name, _)| name == "filter") else {
        return Ok(named);
    };
    let of_levels: BTreeMap<usize, &String> = settings
        .iter()
        .filter_map(|(name, value)| Some((level_of(name, FILTER_AT_LEVEL)?, value)))
        .collect();
    let of_last = of_levels.values().next_back().copied().unwrap_or(filter);
    let (filter, of_last) = (parse_filter(filter)?, parse_filter(of_last)?);
    let with = |named: KeyspaceOptions, (name, _): (String, String)| match &*name {
        "filter_at_last_level" => named.filter_at_last_level(of_last.clone()),
        "filter_last_level" => named.filter_last_level(true),
        name => match level_of(name, FILTER_AT_LEVEL) {
            Some(level) if !of_levels.contains_key(&level) => {
                named.filter_at_level(level, filter.clone())
            }
            _ => named,
        },
    };
    Ok(saved.settings().into_iter().fold(named, with))
}

/// The level of a setting `NAME.LEVEL`.
fn level_of(setting: &str, name: &str) -> Option<usize> {
    setting.strip_prefix(name)?.strip_prefix('.')?.parse().ok()
}

/// A compression of data blocks: `none`, `snappy`, `lz4`, `zstd` or `zstd:LEVEL`.
///
/// # Errors
/// Usage.
pub fn parse_compression(text: &str) -> Outcome<Compression> {
    let zstd = |level: &str| Some(Compression::Zstd(level.parse().ok()?));
    let compression = match text {
        "none" => Some(Compression::None),
        "snappy" => Some(Compression::Snappy),
        "lz4" => Some(Compression::Lz4),
        "zstd" => Some(Compression::Zstd(3)),
        text => text.strip_prefix("zstd:").and_then(zstd),
    };
    let refuse = || {
        Failure::usage(format!("compression {text:?}; there are none, snappy, lz4 and zstd:LEVEL"))
    };
    compression.ok_or_else(refuse)
}

/// The settings with NAME=VALUE, as `siftdb settings` prints it.
pub fn with_setting(settings: KeyspaceOptions, assignment: &str) -> Outcome<KeyspaceOptions> {
    let refuse = |what: String| Failure::usage(format!("{assignment}: {what}"));
    let (name, value) =
        assignment.split_once('=').ok_or_else(|| refuse("a setting is NAME=VALUE".into()))?;
    let flag = || match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(refuse("true or false".into())),
    };
    Ok(match name {
        "filter" => settings.filter(parse_filter(value)?),
        "filter_at_last_level" => settings.filter_at_last_level(parse_filter(value)?),
        "filter_last_level" => settings.filter_last_level(flag()?),
        "block_bytes" => settings.block_bytes(size(value).map_err(refuse)? as usize),
        // No size, but a choice.
        "index_partition_bytes" if value == "0" => settings.index_partition_bytes(0),
        "index_partition_bytes" => {
            settings.index_partition_bytes(size(value).map_err(refuse)? as usize)
        }
        "block_hash_index" => settings.block_hash_index(flag()?),
        "compression" => settings.compression(parse_compression(value)?),
        "compression_at_last_level" => {
            settings.compression_at_last_level(parse_compression(value)?)
        }
        // As it was spelled before there were others.
        "snappy" => settings.snappy(flag()?),
        "expire_after" => settings.expire_after(duration(value).map_err(refuse)?),
        name => match [FILTER_AT_LEVEL, COMPRESSION_AT_LEVEL].map(|of| level_of(name, of)) {
            [Some(level), _] => settings.filter_at_level(level, parse_filter(value)?),
            [_, Some(level)] => settings.compression_at_level(level, parse_compression(value)?),
            _ => return Err(refuse(format!("no setting {name:?}; there are {SETTINGS}"))),
        },
    })
}

const FILTER_AT_LEVEL: &str = "filter_at_level";

const COMPRESSION_AT_LEVEL: &str = "compression_at_level";

const SETTINGS: &str = "filter, filter_at_level.LEVEL, filter_at_last_level, filter_last_level, \
                        block_bytes, block_hash_index, index_partition_bytes, compression, \
                        compression_at_level.LEVEL, compression_at_last_level and expire_after";

/// A duration: `never`, or a number with a unit.
fn duration(text: &str) -> Result<Duration, String> {
    let refuse = || format!("{text:?} is no duration: a number with ms, s, m, h or d, or never");
    if text == "never" {
        return Ok(Duration::MAX);
    }
    let unit = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(refuse)?;
    let (number, unit) = text.split_at(unit);
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(refuse()),
    };
    let number: u64 = number.parse().map_err(|_| refuse())?;
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(refuse)
}

/// The filter that prints as `text`. `bloom` is short for the default encoding; without bits it
/// has 10.
pub fn parse_filter(text: &str) -> Outcome<Filter> {
    let refuse = |what: String| Failure::usage(format!("filter {text:?}: {what}"));
    let mut words = text.split_whitespace();
    let kind = words.next().unwrap_or_default();
    let (label, rest) = kind.split_once(':').unwrap_or((kind, "10"));
    let parsed_bits = |text: &str| bits(text).map_err(refuse);
    let filter = match label {
        "none" if !kind.contains(':') => Filter::none(),
        // In bytes it is what a program may have set, however large.
        "monkey" => Filter::monkey(rest.parse().or_else(|_| size(rest)).map_err(refuse)?),
        "bloom-then-ribbon" => {
            let (bits, level) = rest.split_once(':').unwrap_or((rest, ""));
            let level = level.parse().map_err(|_| refuse("bloom-then-ribbon:BITS:LEVEL".into()))?;
            Filter::bloom_then_ribbon(parsed_bits(bits)?, level)
        }
        "custom" => return Err(refuse("only a program can name a filter policy".into())),
        "bloom" => Filter::from(encoding_of(ENCODING_DEFAULT, parsed_bits(rest)?)?),
        label => Filter::from(encoding_of(label, parsed_bits(rest)?)?),
    };
    words.try_fold(filter, |filter, word| {
        Ok(match word.split_once('=') {
            Some(("layout", value)) => filter.layout(layout(value).map_err(refuse)?),
            Some(("prefix", id)) => filter.prefix(Prefix::built_in(id).ok_or_else(|| {
                refuse(format!("no built-in prefix {id}, such as siftdb.FixedPrefix.4"))
            })?),
            Some(("whole_key", "true")) => filter.whole_key(true),
            Some(("whole_key", "false")) => filter.whole_key(false),
            Some(("ranges", bits)) => filter.ranges(parsed_bits(bits)?),
            Some(("pinning", "none")) => filter.pinning(FilterPinning::None),
            Some(("pinning", "top-level")) => filter.pinning(FilterPinning::TopLevel),
            Some(("pinning", "all")) => filter.pinning(FilterPinning::All),
            _ => {
                let what = "layout=..., prefix=..., whole_key=false, ranges=BITS or \
                            pinning=none|top-level|all";
                return Err(refuse(format!("{word}: {what}")));
            }
        })
    })
}

/// Whether the value of a setting has a filter policy or a prefix that only a program can name.
pub fn is_of_program(value: &str) -> bool {
    let is_own = |id: &str| Prefix::built_in(id).is_none();
    let mut prefixes = value.split_whitespace().filter_map(|word| word.strip_prefix("prefix="));
    value.starts_with("custom:") || prefixes.any(is_own)
}

/// The layout that prints as `text`.
pub fn layout(text: &str) -> Result<FilterLayout, String> {
    let (word, bytes) = match text.split_once(':') {
        Some((word, bytes)) => {
            let bytes: usize = bytes.parse().map_err(|_| format!("{bytes} is no size in bytes"))?;
            (word, Some(bytes))
        }
        None => (text, None),
    };
    let layout = match (word, bytes) {
        ("full", None) => FilterLayout::Full,
        ("partitioned", bytes) => FilterLayout::Partitioned {
            block_bytes: bytes.unwrap_or(FilterLayout::BLOCK_BYTES_DEFAULT),
        },
        ("block-based", bytes) => FilterLayout::BlockBased {
            window_bytes: bytes.unwrap_or(FilterLayout::WINDOW_BYTES_DEFAULT),
        },
        _ => return Err("full, partitioned[:BYTES] or block-based[:BYTES]".into()),
    };
    layout.validate().map(|()| layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_parse_as_they_print() {
        for text in ["full", "partitioned:4096", "partitioned:1", "block-based:256"] {
            assert_eq!(layout(text).unwrap().to_string(), text);
        }
        assert_eq!(layout("partitioned").unwrap().to_string(), "partitioned:4096");
        assert_eq!(layout("block-based").unwrap().to_string(), "block-based:2048");
        for wrong in ["", "whole", "full:1", "partitioned:0", "block-based:1000", "partitioned:x"] {
            assert!(layout(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn settings_parse_as_they_print() {
        let all = [
            "filter=fast-local-bloom:12",
            "filter=monkey:300000 prefix=siftdb.FixedPrefix.3 pinning=all",
            "filter=bloom-then-ribbon:9.999:3 layout=partitioned:4096",
            "filter_at_level.2=none pinning=none",
            "filter_at_level.6=ribbon:10 prefix=siftdb.DelimitedPrefix.2f.2 whole_key=false",
            "filter_at_last_level=ribbon:12",
            "filter_last_level=false",
            "block_bytes=16384",
            "block_hash_index=true",
            "compression=none",
            "compression_at_level.6=lz4",
            "compression_at_last_level=zstd:3",
            "expire_after=1500ms",
            "expire_after=never",
        ];
        let parsed = |text: &str| with_setting(KeyspaceOptions::new(), text);
        for text in all {
            assert_eq!(parsed(text).unwrap().to_string(), text);
        }
        assert_eq!(parsed("expire_after=7d").unwrap().to_string(), "expire_after=604800000ms");
        assert_eq!(parsed("filter=bloom:12").unwrap().to_string(), all[0]);
        assert_eq!(parsed("snappy=false").unwrap().to_string(), "compression=none");
        assert_eq!(parsed("compression=zstd").unwrap().to_string(), "compression=zstd:3");
        let wrong = [
            "",
            "filter",
            "filter=",
            "filter=bloom:x",
            "filter=bloom:0",
            "filter=none:3",
            "filter=custom:own.policy",
            "filter=bloom-then-ribbon:9",
            "filter=bloom:9 layout=whole",
            "filter=bloom:9 prefix=own",
            "filter=bloom:9 pinning=some",
            "filter_at_level.x=none",
            "block_bytes=-1",
            "snappy=1",
            "compression=zlib",
            "compression=zstd:",
            "compression_at_level.x=none",
            "expire_after=7",
            "expire_after=s",
            "expire_after=1.5s",
            "expire_after=99999999999999999999d",
            "write_buffer_bytes=100000",
        ];
        for text in wrong {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn arguments_replace_filters_of_saved_levels() {
        let saved = with_setting(KeyspaceOptions::new(), "filter_at_level.3=none").unwrap();
        let named = KeyspaceOptions::new().filter(Filter::bloom(12.0));
        let all = at_saved_levels(named, &saved).unwrap().to_string();
        assert_eq!(all, "filter=fast-local-bloom:12, filter_at_level.3=fast-local-bloom:12");
        let none = at_saved_levels(KeyspaceOptions::new(), &saved).unwrap();
        assert!(none.settings().is_empty());
    }

    #[test]
    fn unknown_encodings_are_refused() {
        assert_eq!(encoding_of(ENCODING_DEFAULT, 9.9).unwrap().bits_per_key(), Some(9.9));
        assert_eq!(encoding_of(ENCODING_DEFAULT, 0.5).unwrap().bits_per_key(), Some(1.0));
        assert_eq!(encoding_of("leveldb-bloom", 9.0).unwrap().bits_per_key(), Some(9.0));
        assert!(encoding_of("leveldb-bloom", 9.5).is_err());
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(encoding_of(ENCODING_DEFAULT, wrong).is_err(), "{wrong}");
        }
        assert!(encoding_of("custom", 10.0).is_err());
    }
}
