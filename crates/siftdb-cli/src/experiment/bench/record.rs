//! Runs as data: the JSON and the CSV of `siftdb bench`, the same for every store.

use crate::experiment::bench::machine::resident_bytes;
use crate::experiment::bench::matrix::{Cell, cell_text};
use crate::experiment::bench::result::{Kind, Latencies, Measured, Variant};
use crate::experiment::bench::store::{Counts, Footprint, Result, Store};
use crate::experiment::figure::csv_line;
use serde_json::{Map, Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The shares of operations whose time is reported, with their names in JSON and CSV.
pub const QUANTILES: [(&str, f64); 5] = [
    ("p50_nanos", 0.5),
    ("p90_nanos", 0.9),
    ("p99_nanos", 0.99),
    ("p999_nanos", 0.999),
    ("p9999_nanos", 0.9999),
];

/// One run of a workload in one round, and the store afterwards.
#[derive(Clone, Debug)]
pub struct Run {
    /// The name of the store.
    pub store: String,
    /// The measured runs.
    pub measured: Measured,
    /// The settings of this cell of a matrix.
    pub cell: Cell,
    /// The round, counted from 1.
    pub round: u32,
    /// When it began, in seconds since 1970.
    pub started: f64,
    /// Bytes of all keys and values; `None` if they are not known.
    pub user_bytes: Option<u64>,
    /// Memory and files of the store at the end.
    pub footprint: Footprint,
    /// Bytes of memory of this process at the end.
    pub resident_bytes: Option<u64>,
}

impl Run {
    /// Asks `store` for the rest, right after the run.
    ///
    /// # Errors
    /// Those of the store.
    pub fn of(
        name: &str,
        store: &dyn Store,
        measured: Measured,
        cell: &Cell,
        round: u32,
        user_bytes: Option<u64>,
    ) -> Result<Self> {
        let seconds: f64 = measured.variants.iter().map(|variant| variant.seconds).sum();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Ok(Run {
            store: name.into(),
            started: now.as_secs_f64() - seconds,
            measured,
            cell: cell.clone(),
            round,
            user_bytes,
            footprint: store.footprint()?,
            resident_bytes: resident_bytes(),
        })
    }

    /// The workload and the cell, which name the run besides its round.
    pub fn name(&self) -> String {
        let cell = cell_text(&self.cell);
        let space = if cell.is_empty() { "" } else { "  " };
        format!("{} {}{space}{cell}", self.store, self.measured.workload)
    }

    /// What the store counted in this run, of all variants together.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        let counts = self.measured.variants.iter().filter_map(|variant| variant.counts);
        counts.for_each(|counts| sum.add(&Counts::default(), &counts));
        sum
    }

    /// Bytes of files for each byte of the user's entries.
    pub fn space_amplification(&self) -> Option<f64> {
        let user_bytes = self.user_bytes.filter(|bytes| *bytes > 0)?;
        Some(self.footprint.disk_bytes as f64 / user_bytes as f64)
    }

    /// The whole run as an object.
    pub fn json(&self) -> Value {
        let settings: Map<String, Value> =
            self.cell.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let variants = self.measured.variants.iter().map(|variant| {
            let kinds = variant.kinds.iter().map(|kind| object(&kind_fields(kind)).into());
            let mut variant = object(&variant_fields(variant));
            variant.insert("kinds".into(), kinds.collect::<Vec<Value>>().into());
            variant.into()
        });
        let mut run = object(&[self.first_fields(), self.last_fields()].concat());
        run.insert("settings".into(), settings.into());
        run.insert("off_on_ratio".into(), json!(self.measured.ratio));
        let reasons = self.counts().write_amplification_by_reason();
        let reasons: Map<String, Value> =
            reasons.into_iter().map(|(reason, bytes)| (reason, json!(bytes))).collect();
        run.insert("write_amplification_by_reason".into(), reasons.into());
        run.insert("variants".into(), variants.collect::<Vec<Value>>().into());
        run.into()
    }

    /// The fields of a run that come first in CSV.
    fn first_fields(&self) -> Fields {
        vec![
            ("store", json!(self.store)),
            ("workload", json!(self.measured.workload)),
            ("round", json!(self.round)),
            ("started", json!(self.started)),
        ]
    }

    /// The fields of a run that come after those of a kind.
    fn last_fields(&self) -> Fields {
        vec![
            ("wrong_answers", json!(self.measured.wrong_answers)),
            ("write_amplification", json!(self.counts().write_amplification())),
            ("space_amplification", json!(self.space_amplification())),
            ("disk_bytes", json!(self.footprint.disk_bytes)),
            ("cache_bytes", json!(self.footprint.cache_bytes)),
            ("pinned_bytes", json!(self.footprint.pinned_bytes)),
            ("memtable_bytes", json!(self.footprint.memtable_bytes)),
            ("resident_bytes", json!(self.resident_bytes)),
        ]
    }
}

/// Names and values, in the order of CSV.
type Fields = Vec<(&'static str, Value)>;

fn object(fields: &[(&'static str, Value)]) -> Map<String, Value> {
    fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

fn variant_fields(variant: &Variant) -> Fields {
    let counts = variant.counts;
    let count = |of: fn(Counts) -> u64| json!(counts.map(of));
    let per_operation =
        |of: fn(Counts) -> u64| json!(counts.map(|counts| variant.per_operation(of(counts))));
    vec![
        ("filters", json!(variant.filters)),
        ("operations", json!(variant.operations)),
        ("entries", json!(variant.entries)),
        ("seconds", json!(variant.seconds)),
        ("operations_per_second", json!(variant.operations_per_second())),
        ("entries_per_second", json!(variant.entries_per_second())),
        ("typical_nanos", json!(variant.typical_nanos)),
        ("lookups", count(|counts| counts.lookups)),
        ("data_blocks_per_operation", per_operation(|counts| counts.data_blocks)),
        ("blocks_read_per_operation", per_operation(|counts| counts.blocks_read)),
        ("bytes_read_per_operation", per_operation(|counts| counts.bytes_read)),
        ("negatives", count(|counts| counts.negatives)),
        ("false_positives", count(|counts| counts.false_positives)),
        ("not_paying", count(|counts| counts.not_paying)),
        ("observed_fpr", json!(counts.and_then(|counts| counts.observed_fpr()))),
    ]
}

fn kind_fields((kind, latencies): (&Kind, &Latencies)) -> Fields {
    let mut fields = vec![
        ("kind", json!(kind.name())),
        ("operations", json!(latencies.len())),
        ("mean_nanos", json!(latencies.mean())),
    ];
    fields.extend(QUANTILES.map(|(name, share)| (name, json!(latencies.value_at_quantile(share)))));
    fields.push(("longest_nanos", json!(latencies.max())));
    fields
}

/// Runs as comma-separated values: a line of names, then a line for each kind of operation of each
/// variant of each run. Names are those of JSON; the settings of a matrix have columns of their
/// own, and the operations of the kind are `kind_operations`.
pub fn csv(runs: &[Run]) -> String {
    let mut lines: Vec<Vec<(String, Value)>> = Vec::new();
    for run in runs {
        for variant in &run.measured.variants {
            for kind in &variant.kinds {
                let owned = |fields: Fields| {
                    fields.into_iter().map(|(name, value)| (name.to_owned(), value))
                };
                let settings = run.cell.iter().map(|(name, value)| (name.clone(), json!(value)));
                let kind = kind_fields(kind).into_iter().map(|(name, value)| match name {
                    "operations" => ("kind_operations".to_owned(), value),
                    name => (name.to_owned(), value),
                });
                let line = owned(run.first_fields()).chain(settings);
                let line = line.chain(owned(variant_fields(variant))).chain(kind);
                lines.push(line.chain(owned(run.last_fields())).collect());
            }
        }
    }
    let names = lines.iter().take(1).flatten().map(|(name, _)| name.as_str().into());
    let head = csv_line(names);
    let line = |line: Vec<(String, Value)>| csv_line(line.into_iter().map(|(_, value)| value));
    head + &lines.into_iter().map(line).collect::<String>()
}
