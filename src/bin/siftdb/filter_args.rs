//! Which filter: the words for encodings that commands share.
//!
//! Encodings go by their label in `siftdb::filter::Encoding`, so a new one needs no line here.
//! What an encoding cannot do, a fraction of a bit for instance, is refused and never rounded.
//! `demo` takes its encoding from here; layouts it has all of them.

use crate::failure::{Failure, Outcome};
use clap::builder::PossibleValuesParser;
use siftdb::filter::Encoding;

/// The encoding that is the library's default.
pub const ENCODING_DEFAULT: &str = "fast-local-bloom";

/// Takes the label of a built-in encoding.
pub fn encoding_labels() -> PossibleValuesParser {
    PossibleValuesParser::new(Encoding::built_in(10_000).iter().map(Encoding::label))
}

/// The encoding with this label and these bits per key.
pub fn encoding_of(label: &str, bits: f64) -> Outcome<Encoding> {
    let refuse = |what: String| Err(Failure::Usage(what));
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
        _ => Ok(encoding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_taken_as_asked_for_or_refused() {
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
