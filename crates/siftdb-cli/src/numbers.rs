//! Numbers of the command line, and how figures are printed.
//!
//! Counts may be written `1000000`, `1_000_000` or `1e6`, sizes with a unit (`64MB`, `1.5GiB`),
//! shares `0.01` or `1%`. A refusal names the allowed values; clap prints it, with exit code 2.

/// A count of at least 1.
pub fn count(text: &str) -> Result<u64, String> {
    match number(text).filter(|number| number.fract() == 0.0) {
        // All whole numbers up to here are exact.
        Some(number) if (1.0..=1e15).contains(&number) => Ok(number as u64),
        _ => Err("a whole number from 1 to 1e15, such as 5000 or 1e6".into()),
    }
}

/// A size in bytes, at least 1.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "B" => 1.0,
        "kB" | "KB" | "k" | "K" => 1e3,
        "MB" | "M" => 1e6,
        "GB" | "G" => 1e9,
        "KiB" | "kiB" => 1024.0,
        "MiB" => f64::from(1 << 20),
        "GiB" => f64::from(1 << 30),
        _ => f64::NAN,
    };
    match number(digits).map(|number| (number * unit).round()) {
        Some(bytes) if (1.0..=1e15).contains(&bytes) => Ok(bytes as u64),
        _ => Err("a size from 1 to 1e15 bytes, such as 5000, 512kB, 64MB or 1GiB".into()),
    }
}

/// A share between 0 and 1, both excluded; also in percent.
pub fn share(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| percent / 100.0),
        None => number(text),
    };
    share
        .filter(|share| *share > 0.0 && *share < 1.0)
        .ok_or_else(|| "a share between 0 and 1, such as 0.01 or 1%".into())
}

/// Bits per key of a filter.
pub fn bits(text: &str) -> Result<f64, String> {
    number(text)
        .filter(|bits| (0.5..=100.0).contains(bits))
        .ok_or_else(|| "bits per key are 0.5 to 100".into())
}

/// Bits per key to try one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// As it was given.
    pub text: String,
    /// The bits, ascending.
    pub bits: Vec<f64>,
}

impl Default for Sweep {
    fn default() -> Self {
        let bits = (2..=20).map(f64::from).collect();
        Sweep { text: "bits=2..20".into(), bits }
    }
}

/// Bits per key as `bits=2..20` or `bits=2,5,10`.
pub fn sweep(text: &str) -> Result<Sweep, String> {
    let refused =
        |what: &str| Err(format!("{what}; write bits=2..20 or bits=5,10,15, of 1 to 100"));
    let Some(values) = text.strip_prefix("bits=") else {
        return refused("only bits are swept");
    };
    let parsed = |text: &str| number(text).filter(|bits| (1.0..=100.0).contains(bits));
    let all: Option<Vec<f64>> = match values.split_once("..") {
        Some((first, last)) => match parsed(first).zip(parsed(last)) {
            Some((first, last)) if first > last => {
                return refused("the range ends before it begins");
            }
            ends => ends.map(|(first, last)| {
                (0..).map(|step| first + f64::from(step)).take_while(|bits| *bits <= last).collect()
            }),
        },
        None => values.split(',').map(parsed).collect(),
    };
    let Some(mut bits) = all else { return refused("no such bits per key") };
    bits.sort_unstable_by(f64::total_cmp);
    bits.dedup();
    Ok(Sweep { text: text.into(), bits })
}

fn number(text: &str) -> Option<f64> {
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    plain.parse().ok().filter(|number: &f64| number.is_finite())
}

/// A share in percent, three digits.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent {
        0.0 => "0 %".into(),
        _ if percent < 0.000_1 => format!("{percent:.1e} %"),
        _ => {
            // Decimal places that make three digits.
            let places = (2.0 - percent.log10().floor()).clamp(0.0, 6.0) as usize;
            format!("{percent:.places$} %")
        }
    }
}

/// An observed share with the ends of its interval, in percent; a dash if one is not known.
pub fn percent_between(share: Option<f64>, ends: Option<(f64, f64)>) -> String {
    match share.zip(ends) {
        Some((share, (low, high))) => {
            format!("{} ({} to {})", percent(share), percent(low), percent(high))
        }
        None => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_accept_units_and_exponents() {
        assert_eq!((count("1"), count("1e6"), count("1_000")), (Ok(1), Ok(1_000_000), Ok(1_000)));
        for wrong in ["", "0", "-1", "1.5", "NaN", "inf", "1e16", "ten", "5k"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
        let sizes = [("7", 7), ("512kB", 512_000), ("1.5GiB", 1_610_612_736), ("64MB", 64_000_000)];
        for (text, bytes) in sizes {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "0", "-1MB", "kB", "1 MB", "1XB", "NaN", "inf", "1e30"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert_eq!((share("0.01"), share("1%")), (Ok(0.01), Ok(0.01)));
        for wrong in ["0", "1", "100%", "-0.1", "NaN", "%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        assert_eq!((bits("0.5"), bits("9.9")), (Ok(0.5), Ok(9.9)));
        for wrong in ["0", "-3", "NaN", "1e9", "100.1", "ten"] {
            assert!(bits(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sweeps_are_ranges_or_lists() {
        let bits = |text| sweep(text).unwrap().bits;
        assert_eq!(bits("bits=2..4"), [2.0, 3.0, 4.0]);
        assert_eq!(bits("bits=10,2.5,10"), [2.5, 10.0]);
        assert_eq!(bits("bits=7..7"), [7.0]);
        assert_eq!(sweep("bits=2..20").unwrap(), Sweep::default());
        for wrong in
            ["bits=20..2", "bits=", "bits=0..5", "bits=5..101", "2..20", "keys=1..2", "bits=a"]
        {
            let what = sweep(wrong).unwrap_err();
            assert!(what.contains("write bits=2..20"), "{wrong}: {what}");
        }
        assert!(sweep("bits=20..2").unwrap_err().contains("ends before it begins"));
    }

    #[test]
    fn percentages_print_three_digits() {
        let cases = [
            (0.0, "0 %"),
            (0.009_53, "0.953 %"),
            (0.0997, "9.97 %"),
            (0.5, "50.0 %"),
            (1.0, "100 %"),
            (0.000_123_4, "0.0123 %"),
            (1e-8, "1.0e-6 %"),
        ];
        for (share, text) in cases {
            assert_eq!(percent(share), text);
        }
    }
}
