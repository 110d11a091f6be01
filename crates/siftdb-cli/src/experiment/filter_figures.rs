//! Figures of filters by themselves: false positives over bits, and what encodings take and cost.

use crate::experiment::figure::{Figure, Picture, Scale, Unit, table};
use crate::experiment::filters::{FilterMeasurement, FilterTrial, count_passed, measure_filter};
use siftdb::Result;
use siftdb::filter::Encoding;

/// False positives of every built-in encoding with each of these `bits` a key. `done` gets keys as
/// `measure_filter` says, but one for each key and each lookup.
///
/// # Errors
/// As for [`count_passed`].
pub fn fpr_figure(bits: &[f64], trial: &FilterTrial, done: &mut dyn FnMut(u64)) -> Result<Figure> {
    let (mut points, mut inside, mut near_ten) = (Vec::new(), 0, Vec::new());
    for encoding in 0..Encoding::built_in(10_000).len() {
        for bits in bits {
            let encoding = &Encoding::built_in((1_000.0 * bits).round() as u32)[encoding];
            let passed = count_passed(encoding, trial)?;
            done(trial.keys + trial.lookups);
            let (low, high) = passed.interval().unwrap_or_default();
            let expected = passed.expected_fpr.unwrap_or_default();
            inside += usize::from((low..=high).contains(&expected));
            if (bits - 10.0).abs() < 0.01 {
                let rate = Unit::Share.print(passed.observed_fpr());
                near_ten.push(format!("{} {rate}", encoding.label()));
            }
            points.push((encoding.label(), *bits, passed, (low, high)));
        }
    }
    let at_ten = match near_ten.as_slice() {
        [] => String::new(),
        rates => format!("With 10 bits asked for: {}. ", rates.join(", ")),
    };
    Ok(Figure {
        id: "fpr-by-bits",
        title: "False positives over bits a key".into(),
        finding: format!(
            "{} {at_ten}Theory lies within the 95 % interval of the measurement at {inside} of \
             {} points.",
            held(trial),
            points.len()
        ),
        picture: Picture::Lines {
            series: 0,
            x: 2,
            y: 3,
            interval: Some((4, 5)),
            expected: Some(6),
            x_scale: Scale::Linear,
            y_scale: Scale::Log,
        },
        ..table! { for (label, bits, passed, (low, high)) in points;
            Unit::Text, "encoding", "encoding" => label;
            Unit::Number, "asked_bits", "bits asked for" => bits;
            Unit::Number, "bits_per_key", "bits a key" => passed.bits_per_key();
            Unit::Share, "observed_fpr", "false positives" => passed.observed_fpr();
            Unit::Share, "observed_fpr_low", "95 % interval from" => low;
            Unit::Share, "observed_fpr_high", "to" => high;
            Unit::Share, "expected_fpr", "theory" => passed.expected_fpr.unwrap_or_default();
            Unit::Count, "false_positives", "keys that passed" => passed.false_positives;
            Unit::Count, "lookups", "absent keys asked for" => passed.lookups;
        }
    })
}

/// For how many keys and lookups the rates of a trial hold.
fn held(trial: &FilterTrial) -> String {
    let [keys, lookups] = [trial.keys, trial.lookups].map(|count| Unit::Count.print(count as f64));
    format!("Each filter holds {keys} keys and is asked for {lookups} absent ones.")
}

/// Space and time of the built-in encodings with `bits` a key: two figures. `done` gets keys as
/// [`measure_filter`] says.
///
/// # Errors
/// As for [`measure_filter`].
pub fn encoding_figures(
    bits: f64,
    trial: &FilterTrial,
    done: &mut dyn FnMut(u64),
) -> Result<[Figure; 2]> {
    let encodings = Encoding::built_in((1_000.0 * bits).round() as u32).into_iter();
    let measured = encodings.map(|encoding| measure_filter(encoding, trial, done));
    let measured = measured.collect::<Result<Vec<_>>>()?;
    Ok([space_figure(bits, trial, &measured), cost_figure(&measured)])
}

fn space_figure(bits: f64, trial: &FilterTrial, measured: &[FilterMeasurement]) -> Figure {
    Figure {
        id: "encoding-space",
        title: format!("Space of the encodings with {bits} bits asked for"),
        finding: format!("{} {}", held(trial), space_finding(measured)),
        picture: Picture::bars(&[1]),
        ..table! { for FilterMeasurement { encoding, passed, .. } in measured;
            Unit::Text, "encoding", "encoding" => encoding.label();
            Unit::Number, "bits_per_key", "bits a key" => passed.bits_per_key();
            Unit::Share, "observed_fpr", "false positives" => passed.observed_fpr();
            Unit::Share, "expected_fpr", "theory" => passed.expected_fpr.unwrap_or_default();
            Unit::Bytes, "filter_bytes", "size of the filter" => passed.filter_bytes;
        }
    }
}

fn cost_figure(measured: &[FilterMeasurement]) -> Figure {
    Figure {
        id: "encoding-cost",
        title: "Time to build filters and to ask them".into(),
        finding: cost_finding(measured),
        picture: Picture::bars(&[1, 2, 4]),
        ..table! { for one in measured;
            Unit::Text, "encoding", "encoding" => one.encoding.label();
            Unit::Nanos, "build_nanos_per_key", "build, a key" => one.build_nanos_per_key;
            Unit::Nanos, "inside_absent_nanos", "ask, absent, in the processor's cache" =>
                one.inside_absent_nanos;
            Unit::Nanos, "inside_present_nanos", "ask, present, in the processor's cache" =>
                one.inside_present_nanos;
            Unit::Nanos, "outside_absent_nanos", "ask, absent, in memory" =>
                one.outside_absent_nanos;
            Unit::Nanos, "outside_present_nanos", "ask, present, in memory" =>
                one.outside_present_nanos;
        }
    }
}

fn space_finding(measured: &[FilterMeasurement]) -> String {
    let bytes = |one: &&FilterMeasurement| one.passed.filter_bytes;
    let ends = measured.iter().min_by_key(bytes).zip(measured.iter().max_by_key(bytes));
    let Some((least, most)) = ends else { return String::new() };
    let each = |one: &FilterMeasurement| {
        let rate = Unit::Share.print(one.passed.observed_fpr());
        format!(
            "{} takes {:.1} bits and passes {rate}",
            one.encoding.label(),
            one.passed.bits_per_key()
        )
    };
    format!("{}; {}.", each(least), each(most))
}

fn cost_finding(measured: &[FilterMeasurement]) -> String {
    let by_time = |a: &&FilterMeasurement, b: &&FilterMeasurement| {
        a.build_nanos_per_key.total_cmp(&b.build_nanos_per_key)
    };
    let ends = measured.iter().min_by(by_time).zip(measured.iter().max_by(by_time));
    let Some((fast, slow)) = ends else { return String::new() };
    format!(
        "{} takes {} a key to build, {} {}: {:.1} times as long.",
        fast.encoding.label(),
        Unit::Nanos.print(fast.build_nanos_per_key),
        slow.encoding.label(),
        Unit::Nanos.print(slow.build_nanos_per_key),
        slow.build_nanos_per_key / fast.build_nanos_per_key.max(f64::MIN_POSITIVE)
    )
}
