//! Arguments that choose a filter, for `demo` and `filter`.
//!
//! An encoding is named by its label in `siftdb::filter::Encoding`, so a new one needs no change
//! here. A layout is spelled as `siftdb::FilterLayout` prints it, with or without a size. Bits that
//! an encoding cannot have, such as a fraction of a bit, are refused and never rounded.

use crate::failure::{Failure, Outcome};
use crate::numbers::{bits, size};
use clap::Args;
use clap::builder::PossibleValuesParser;
use siftdb::filter::Encoding;
use siftdb::{Filter, FilterAdvice, FilterLayout, LevelAdvice, Options};

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
        return refuse(format!("no encoding is called {label}"));
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

/// The filters that tables are to have.
#[derive(Args)]
pub struct WantedFilter {
    /// Bits of filter for each key
    #[arg(long, default_value_t = 10.0, value_parser = bits)]
    bits: f64,
    /// Encoding of the filters
    #[arg(long, default_value = ENCODING_DEFAULT, value_parser = encoding_labels())]
    encoding: String,
    /// Where the bits live: full, partitioned[:BYTES] or block-based[:BYTES] [default: full at
    /// levels 0 and 1, partitioned below]
    #[arg(long, value_parser = layout)]
    layout: Option<FilterLayout>,
    /// Memory for all filters together, such as 64MB, divided over the levels: instead of --bits
    #[arg(long, value_name = "SIZE", value_parser = size)]
    #[arg(conflicts_with_all = ["bits", "encoding"])]
    pub monkey: Option<u64>,
}

impl WantedFilter {
    /// `options` with what `filter advise` recommends.
    pub fn set_advised(&self, options: Options, advice: &FilterAdvice) -> Options {
        let filter = |level: &LevelAdvice| {
            let layout = self.layout.unwrap_or(level.layout);
            match level.bits_divided {
                0.0 => Filter::none(),
                bits => Filter::bloom(bits).layout(layout),
            }
        };
        let levels = advice.levels.iter();
        // A rebuild takes the tables of level 0 down to level 1, which may be empty now.
        let options = match advice.levels.first() {
            Some(top) => options.filter(filter(top)),
            None => options,
        };
        levels.fold(options, |options, level| options.filter_at_level(level.level, filter(level)))
    }

    /// `options` with this filter at all levels.
    pub fn set(&self, options: Options) -> Outcome<Options> {
        let filter = match self.monkey {
            Some(bytes) => Filter::monkey(bytes),
            None => Filter::from(encoding_of(&self.encoding, self.bits)?),
        };
        Ok(options.filter(match self.layout {
            Some(layout) => filter.layout(layout),
            None => filter,
        }))
    }
}

fn layout(text: &str) -> Result<FilterLayout, String> {
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
