//! Runs as data: the JSON and the CSV of `siftdb bench`, the same for every store.

use crate::experiment::bench::machine::resident_bytes;
use crate::experiment::bench::matrix::{Cell, cell_text};
use crate::experiment::bench::result::{Kind, Latencies, Measured, Variant};
use crate::experiment::bench::store::{Counts, Footprint, Result, Store};
use serde_json::{Value, json};
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
    #[must_use]
    pub fn name(&self) -> String {
        let cell = cell_text(&self.cell);
        let space = if cell.is_empty() { "" } else { "  " };
        format!("{} {}{space}{cell}", self.store, self.measured.workload)
    }

    /// Bytes written to files for each byte of the user in this run.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let mut sum: Option<Counts> = None;
        for counts in self.measured.variants.iter().filter_map(|variant| variant.counts) {
            *sum.get_or_insert_default() += counts;
        }
        sum?.write_amplification()
    }

    /// Bytes of files for each byte of the user's entries.
    #[must_use]
    pub fn space_amplification(&self) -> Option<f64> {
        let user_bytes = self.user_bytes.filter(|bytes| *bytes > 0)?;
        Some(self.footprint.disk_bytes as f64 / user_bytes as f64)
    }

    /// The whole run as an object.
    #[must_use]
    pub fn json(&self) -> Value {
        let settings: serde_json::Map<String, Value> =
            self.cell.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let ratio = self.measured.ratio.map(|ratio| {
            json!({
                "median": ratio.median,
                "low": ratio.low,
                "high": ratio.high,
                "pairs": ratio.values,
            })
        });
        json!({
            "store": self.store,
            "workload": self.measured.workload,
            "settings": settings,
            "round": self.round,
            "started": self.started,
            "off_on_ratio": ratio,
            "wrong_answers": self.measured.wrong_answers,
            "write_amplification": self.write_amplification(),
            "space_amplification": self.space_amplification(),
            "disk_bytes": self.footprint.disk_bytes,
            "cache_bytes": self.footprint.cache_bytes,
            "pinned_bytes": self.footprint.pinned_bytes,
            "memtable_bytes": self.footprint.memtable_bytes,
            "resident_bytes": self.resident_bytes,
            "variants": self.measured.variants.iter().map(variant_json).collect::<Value>(),
        })
    }
}

fn variant_json(variant: &Variant) -> Value {
    let kinds = variant.kinds.iter().map(|(kind, latencies)| kind_json(*kind, latencies));
    let counts = variant.counts;
    let per_operation = |count: Option<u64>| count.map(|count| variant.per_operation(count));
    json!({
        "filters": variant.filters,
        "operations": variant.operations,
        "entries": variant.entries,
        "seconds": variant.seconds,
        "operations_per_second": variant.operations_per_second(),
        "entries_per_second": variant.entries_per_second(),
        "typical_nanos": variant.typical_nanos,
        "kinds": kinds.collect::<Value>(),
        "lookups": counts.map(|counts| counts.lookups),
        "data_blocks_per_operation": per_operation(counts.map(|counts| counts.data_blocks)),
        "blocks_read_per_operation": per_operation(counts.map(|counts| counts.blocks_read)),
        "bytes_read_per_operation": per_operation(counts.map(|counts| counts.bytes_read)),
        "negatives": counts.map(|counts| counts.negatives),
        "false_positives": counts.map(|counts| counts.false_positives),
        "not_paying": counts.map(|counts| counts.not_paying),
        "observed_fpr": counts.and_then(|counts| counts.observed_fpr()),
    })
}

fn kind_json(kind: Kind, latencies: &Latencies) -> Value {
    let mut object = serde_json::Map::new();
    object.insert("kind".into(), json!(kind.name()));
    object.insert("operations".into(), json!(latencies.operations()));
    object.insert("mean_nanos".into(), json!(latencies.mean()));
    for (name, share) in QUANTILES {
        object.insert(name.into(), json!(latencies.quantile(share)));
    }
    object.insert("longest_nanos".into(), json!(latencies.longest()));
    Value::Object(object)
}

/// The fields of a run that CSV has, in this order; then those of a variant and of a kind.
const RUN_FIELDS: [&str; 4] = ["store", "workload", "round", "started"];
const AFTER_FIELDS: [&str; 8] = [
    "wrong_answers",
    "write_amplification",
    "space_amplification",
    "disk_bytes",
    "cache_bytes",
    "pinned_bytes",
    "memtable_bytes",
    "resident_bytes",
];
const VARIANT_FIELDS: [&str; 15] = [
    "filters",
    "operations",
    "entries",
    "seconds",
    "operations_per_second",
    "entries_per_second",
    "typical_nanos",
    "lookups",
    "data_blocks_per_operation",
    "blocks_read_per_operation",
    "bytes_read_per_operation",
    "negatives",
    "false_positives",
    "not_paying",
    "observed_fpr",
];
const KIND_FIELDS: [&str; 9] = [
    "kind",
    "operations",
    "mean_nanos",
    "p50_nanos",
    "p90_nanos",
    "p99_nanos",
    "p999_nanos",
    "p9999_nanos",
    "longest_nanos",
];

/// Runs as comma-separated values: a line of names, then a line for each kind of operation of each
/// variant of each run. Names are those of JSON; the settings of a matrix have columns of their
/// own, and the operations of the kind are `kind_operations`.
#[must_use]
pub fn csv(runs: &[Run]) -> String {
    let settings: Vec<&String> =
        runs.first().map_or_else(Vec::new, |run| run.cell.iter().map(|(name, _)| name).collect());
    let kind_names = KIND_FIELDS.map(|name| match name {
        "operations" => "kind_operations",
        name => name,
    });
    let mut names: Vec<&str> = RUN_FIELDS.to_vec();
    names.extend(settings.iter().map(|name| name.as_str()));
    names.extend(VARIANT_FIELDS.iter().chain(&kind_names).chain(&AFTER_FIELDS));
    let mut text = names.join(",") + "\n";
    for run in runs {
        let of_run = run.json();
        for variant in of_run["variants"].as_array().into_iter().flatten() {
            for kind in variant["kinds"].as_array().into_iter().flatten() {
                let mut line: Vec<String> = Vec::new();
                line.extend(RUN_FIELDS.iter().map(|name| field(&of_run[name])));
                line.extend(settings.iter().map(|name| field(&of_run["settings"][name.as_str()])));
                line.extend(VARIANT_FIELDS.iter().map(|name| field(&variant[name])));
                line.extend(KIND_FIELDS.iter().map(|name| field(&kind[name])));
                line.extend(AFTER_FIELDS.iter().map(|name| field(&of_run[name])));
                text += &(line.join(",") + "\n");
            }
        }
    }
    text
}

/// A field of RFC 4180; empty if there is no value.
fn field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if text.contains([',', '"', '\n', '\r']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}
