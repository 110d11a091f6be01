//! Figures of filters by themselves: false positives over bits, and what encodings take and cost.

use crate::experiment::figure::{Cell, Figure, Heading, Picture, Scale, Unit};
use crate::experiment::filters::{FilterMeasurement, FilterTrial, count_passed, measure_filter};
use siftdb::Result;
use siftdb::filter::Encoding;

/// False positives of every built-in encoding with each of these `bits` a key. `done` gets keys as
/// `measure_filter` says, but one for each key and each lookup.
///
/// # Errors
/// As for [`count_passed`].
pub fn fpr_figure(
    bits: &[f64],
    trial: &FilterTrial,
    command: &str,
    done: &mut dyn FnMut(u64),
) -> Result<Figure> {
    let (mut rows, mut inside, mut near_ten) = (Vec::new(), 0, Vec::new());
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
            let numbers = [
                *bits,
                passed.bits_per_key(),
                passed.observed_fpr(),
                low,
                high,
                expected,
                passed.false_positives as f64,
                passed.lookups as f64,
            ];
            let label = Cell::Text(encoding.label().into());
            rows.push(std::iter::once(label).chain(numbers.map(Cell::Number)).collect());
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
            rows.len()
        ),
        command: command.into(),
        columns: vec![
            Heading { name: "encoding", label: "encoding", unit: Unit::Text },
            Heading { name: "asked_bits", label: "bits asked for", unit: Unit::Number },
            Heading { name: "bits_per_key", label: "bits a key", unit: Unit::Number },
            Heading { name: "observed_fpr", label: "false positives", unit: Unit::Share },
            Heading { name: "observed_fpr_low", label: "95 % interval from", unit: Unit::Share },
            Heading { name: "observed_fpr_high", label: "to", unit: Unit::Share },
            Heading { name: "expected_fpr", label: "theory", unit: Unit::Share },
            Heading { name: "false_positives", label: "keys that passed", unit: Unit::Count },
            Heading { name: "lookups", label: "absent keys asked for", unit: Unit::Count },
        ],
        rows,
        picture: Picture::Lines {
            series: 0,
            x: 2,
            y: 3,
            interval: Some((4, 5)),
            expected: Some(6),
            x_scale: Scale::Linear,
            y_scale: Scale::Log,
        },
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
    command: &str,
    done: &mut dyn FnMut(u64),
) -> Result<[Figure; 2]> {
    let encodings = Encoding::built_in((1_000.0 * bits).round() as u32).into_iter();
    let measured = encodings.map(|encoding| measure_filter(encoding, trial, done));
    let measured = measured.collect::<Result<Vec<_>>>()?;
    Ok([space_figure(bits, trial, &measured, command), cost_figure(&measured, command)])
}

/// A row for each encoding: its name and these numbers.
fn rows_of(
    measured: &[FilterMeasurement],
    numbers: impl Fn(&FilterMeasurement) -> Vec<f64>,
) -> Vec<Vec<Cell>> {
    let row = |one: &FilterMeasurement| {
        let label = Cell::Text(one.encoding.label().into());
        std::iter::once(label).chain(numbers(one).into_iter().map(Cell::Number)).collect()
    };
    measured.iter().map(row).collect()
}

fn space_figure(
    bits: f64,
    trial: &FilterTrial,
    measured: &[FilterMeasurement],
    command: &str,
) -> Figure {
    Figure {
        id: "encoding-space",
        title: format!("Space of the encodings with {bits} bits asked for"),
        finding: format!("{} {}", held(trial), space_finding(measured)),
        command: command.into(),
        columns: vec![
            Heading { name: "encoding", label: "encoding", unit: Unit::Text },
            Heading { name: "bits_per_key", label: "bits a key", unit: Unit::Number },
            Heading { name: "observed_fpr", label: "false positives", unit: Unit::Share },
            Heading { name: "expected_fpr", label: "theory", unit: Unit::Share },
            Heading { name: "filter_bytes", label: "size of the filter", unit: Unit::Bytes },
        ],
        rows: rows_of(measured, |one| {
            let passed = &one.passed;
            let expected = passed.expected_fpr.unwrap_or_default();
            let bytes = passed.filter_bytes as f64;
            vec![passed.bits_per_key(), passed.observed_fpr(), expected, bytes]
        }),
        picture: Picture::Bars {
            labels: vec![0],
            values: vec![1],
            interval: None,
            scale: Scale::Linear,
        },
    }
}

fn cost_figure(measured: &[FilterMeasurement], command: &str) -> Figure {
    let time = |name, label| Heading { name, label, unit: Unit::Nanos };
    Figure {
        id: "encoding-cost",
        title: "Time to build filters and to ask them".into(),
        finding: cost_finding(measured),
        command: command.into(),
        columns: vec![
            Heading { name: "encoding", label: "encoding", unit: Unit::Text },
            time("build_nanos_per_key", "build, a key"),
            time("inside_absent_nanos", "ask, absent, in the processor's cache"),
            time("inside_present_nanos", "ask, present, in the processor's cache"),
            time("outside_absent_nanos", "ask, absent, in memory"),
            time("outside_present_nanos", "ask, present, in memory"),
        ],
        rows: rows_of(measured, |one| {
            vec![
                one.build_nanos_per_key,
                one.inside_absent_nanos,
                one.inside_present_nanos,
                one.outside_absent_nanos,
                one.outside_present_nanos,
            ]
        }),
        picture: Picture::Bars {
            labels: vec![0],
            values: vec![1, 2, 4],
            interval: None,
            scale: Scale::Linear,
        },
    }
}

fn space_finding(measured: &[FilterMeasurement]) -> String {
    let by_bits = |a: &&FilterMeasurement, b: &&FilterMeasurement| {
        a.passed.filter_bytes.cmp(&b.passed.filter_bytes)
    };
    let ends = measured.iter().min_by(by_bits).zip(measured.iter().max_by(by_bits));
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
