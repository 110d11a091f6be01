//! One figure of one round, as workers send it to the first process.
//!
//! Phases make samples; `runner` and `report` collect them. Units are those of the row that a
//! sample names (`rows`).

use crate::clock::Elapsed;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One figure of one round.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Sample {
    /// The row it belongs to.
    pub row: String,
    /// The figure that is compared, in the row's unit.
    pub value: f64,
    /// The same by wall time, if `value` is processor time.
    pub wall: Option<f64>,
    /// The same by equal parts of the run, in order, if it was cut into such.
    pub over_time: Vec<f64>,
}

impl Sample {
    /// A figure that is not processor time.
    pub fn new(row: &str, value: f64) -> Self {
        Sample { row: row.to_owned(), value, wall: None, over_time: Vec::new() }
    }

    /// Nanoseconds of wall time for each of `count`.
    pub fn wall(row: &str, time: Duration, count: u64) -> Self {
        Sample::new(row, time.as_nanos() as f64 / count as f64)
    }

    /// Nanoseconds of processor time for each of `count`.
    pub fn cpu(row: &str, elapsed: Elapsed, count: u64) -> Self {
        let wall = elapsed.wall.as_nanos() as f64 / count as f64;
        Sample { wall: Some(wall), ..Sample::wall(row, elapsed.cpu, count) }
    }

    /// Figures of equal parts of the run, and their mean.
    pub fn over_time(row: &str, parts: Vec<f64>) -> Self {
        let mean = parts.iter().sum::<f64>() / parts.len() as f64;
        Sample { over_time: parts, ..Sample::new(row, mean) }
    }

    /// Milliseconds of wall time.
    pub fn milliseconds(row: &str, time: Duration) -> Self {
        Sample::new(row, time.as_secs_f64() * 1e3)
    }
}
