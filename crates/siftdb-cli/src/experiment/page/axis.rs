//! An axis: which values it shows, where its ticks are, and where a value is.

use crate::experiment::figure::{Scale, Unit};
use crate::experiment::page::canvas::width_of;

/// One axis of a chart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    scale: Scale,
    /// The values at its ends.
    ends: (f64, f64),
    /// The pixels at its ends.
    pixels: (i32, i32),
    /// Values with a tick, rising.
    pub(crate) ticks: Vec<f64>,
    unit: Unit,
    /// Whether 0 is among the values of a logarithmic axis: it is drawn apart, below a break.
    has_zero: bool,
}

/// Pixels between 0 and the least other value of a logarithmic axis.
const BREAK: i32 = 24;

impl Axis {
    /// An axis that shows all `values`, with at most `ticks_max` ticks.
    pub(crate) fn new(values: &[f64], unit: Unit, scale: Scale, ticks_max: usize) -> Self {
        let ticks_max = ticks_max.max(2);
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let (low, high) = (positive.clone().reduce(f64::min), positive.reduce(f64::max));
        let (scale, ends, mut ticks) = match (scale, low.zip(high)) {
            (Scale::Log, Some((low, high))) => {
                let (ends, ticks) = log_ticks(low, high, ticks_max);
                (Scale::Log, ends, ticks)
            }
            // Nothing is above zero, so there is no factor to draw.
            _ => {
                let (ends, ticks) = linear_ticks(values, unit, ticks_max);
                (Scale::Linear, ends, ticks)
            }
        };
        let has_zero = scale == Scale::Log && values.contains(&0.0);
        if has_zero {
            ticks.insert(0, 0.0);
        }
        Axis { scale, ends, pixels: (0, 1), ticks, unit, has_zero }
    }

    /// The same between these pixels; the first belongs to the least value.
    pub(crate) fn between(self, from: i32, to: i32) -> Self {
        Axis { pixels: (from, to), ..self }
    }

    /// The same without the room between the greatest of `values` and the tick above it.
    pub(crate) fn ending_at_data(mut self, values: &[f64]) -> Self {
        let last = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if self.scale == Scale::Linear && last > self.ends.0 && last < self.ends.1 {
            self.ends.1 = last;
            self.ticks.retain(|tick| *tick <= last);
        }
        self
    }

    /// The same with fewer ticks, until their labels are apart from each other.
    pub(crate) fn with_labels_apart(mut self) -> Self {
        let overlap = |axis: &Axis| {
            axis.ticks.windows(2).any(|two| {
                let half = |value| width_of(&axis.label(value)) / 2;
                axis.at(two[1]) - axis.at(two[0]) < half(two[0]) + half(two[1]) + 8
            })
        };
        while self.ticks.len() > 2 && overlap(&self) {
            self.ticks = self.ticks.iter().copied().step_by(2).collect();
        }
        self
    }

    /// The text at a tick.
    pub(crate) fn label(&self, value: f64) -> String {
        self.unit.print(value)
    }

    /// The pixel of a value; one that is outside is drawn at the end.
    pub(crate) fn at(&self, value: f64) -> i32 {
        if self.has_zero && value <= 0.0 {
            return self.pixels.0;
        }
        let to = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(self.ends.0).log10(),
        };
        let (low, high) = (to(self.ends.0), to(self.ends.1));
        let share = ((to(value) - low) / (high - low)).clamp(0.0, 1.0);
        let (from, until) = (f64::from(self.least_above_zero()), f64::from(self.pixels.1));
        (from + share * (until - from)).round() as i32
    }

    /// The pixel of the least value that is drawn to scale.
    fn least_above_zero(&self) -> i32 {
        let (from, until) = self.pixels;
        from + if self.has_zero { BREAK * (until - from).signum() } else { 0 }
    }

    /// The pixel in the middle of the break between 0 and the other values, if there is one.
    pub(crate) fn break_at(&self) -> Option<i32> {
        self.has_zero.then(|| i32::midpoint(self.pixels.0, self.least_above_zero()))
    }

    /// Whether its steps grow by multiplication.
    pub(crate) fn is_log(&self) -> bool {
        self.scale == Scale::Log
    }
}

/// Steps of 1, 2 or 5 times a power of ten, from zero.
fn linear_ticks(values: &[f64], unit: Unit, ticks_max: usize) -> ((f64, f64), Vec<f64>) {
    let low = values.iter().copied().fold(0.0, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    let high = if high > low { high } else { low + 1.0 };
    // Shares of one are printed in per cent, so their steps are as round as others.
    let power = 10f64.powf(((high - low) / ticks_max as f64).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0].map(|factor| factor * power);
    let fits = |step: &&f64| (high - low) / **step <= ticks_max as f64 - 1.0;
    let step = steps.iter().find(fits).copied().unwrap_or(20.0 * power);
    let step = if unit == Unit::Count { step.max(1.0) } else { step };
    let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
    let ticks: Vec<f64> = (first..=last).map(|tick| tick as f64 * step).collect();
    ((first as f64 * step, last as f64 * step), ticks)
}

/// Powers of ten, with 2 and 5 times them if there is room.
fn log_ticks(low: f64, high: f64, ticks_max: usize) -> ((f64, f64), Vec<f64>) {
    // 1, 2 and 5 times a power of ten, numbered: 0 is 1, 1 is 2, 2 is 5, 3 is 10.
    let value = |number: i32| {
        let factor = [1.0, 2.0, 5.0][number.rem_euclid(3) as usize];
        factor * 10f64.powi(number.div_euclid(3))
    };
    let near = 3 * low.log10().floor() as i32;
    // A hundred-thousandth off is rounding.
    let first = (near..near + 3).rev().find(|n| value(*n) <= low * 1.00001).unwrap_or(near);
    let near = 3 * high.log10().floor() as i32;
    let last = (near..=near + 3).find(|n| value(*n) >= high / 1.00001).unwrap_or(near + 3);
    let last = last.max(first + 1);
    let ends = (value(first), value(last));
    let numbers = first..=last;
    if (last - first + 1) as usize <= ticks_max {
        return (ends, numbers.map(value).collect());
    }
    let tens: Vec<f64> = numbers.filter(|n| n.rem_euclid(3) == 0).map(value).collect();
    let every = tens.len().div_ceil(ticks_max).max(1);
    (ends, tens.into_iter().step_by(every).collect())
}
