//! [`Stats`] in the text format of OpenMetrics 1.0, for programs that collect figures.
//!
//! A family has the name of a field of [`Stats`] after `siftdb_`, or of [`LevelStats`] after
//! `siftdb_level_`, and the field's documentation as help. Counters end in `_total`. Nanoseconds
//! and milliseconds become seconds. What each keyspace counts has its name as the label `keyspace`;
//! keyspaces beyond the first hundred are one row without the label. Levels that have no tables,
//! and were never searched, have no rows.

use crate::base::stats::latency::{TIMED_CALLS, bound_of, ends_doubling};
use crate::base::stats::report::{Figure, LevelStats, Scope, Stats};
use std::fmt::{Display, Write};

const NANOS: u64 = 1_000_000_000;
const MILLIS: u64 = 1_000;

impl Stats {
    /// The figures in the text format of OpenMetrics 1.0, as Prometheus reads it: `# HELP`,
    /// `# TYPE` and samples of each family, and `# EOF` at the end. Its content type is
    /// `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    ///
    /// Of [`Db::stats`](crate::Db::stats) it has all keyspaces, each under its name in the label
    /// `keyspace`; those beyond the first hundred are one row without the label. Of
    /// [`Keyspace::stats`](crate::Keyspace::stats) it has that keyspace alone.
    ///
    /// ```
    /// # fn main() -> siftdb::Result<()> {
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = siftdb::Db::open(directory.path().join("db"))?;
    /// db.put("ada", "1815")?;
    /// let text = db.stats().to_openmetrics();
    /// assert!(text.contains("siftdb_batches_total 1\n"));
    /// assert!(text.contains("siftdb_gets_total{keyspace=\"default\"} 0\n"));
    /// assert!(text.ends_with("# EOF\n"));
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn to_openmetrics(&self) -> String {
        // The rows of what keyspaces count.
        let rows: Vec<&Stats> = match self.keyspaces.is_empty() {
            true => vec![self],
            false => self.keyspaces.iter().collect(),
        };
        let mut text = Text::default();
        for figure in Stats::FIGURES {
            let rows = match figure.scope {
                Scope::Keyspaces => &rows[..],
                Scope::Database if self.keyspace.is_some() => continue,
                Scope::Database | Scope::Both => &[self],
            };
            text.figure("siftdb", figure, rows.iter().map(|stats| (stats.labels(), *stats)));
        }
        let levels: Vec<_> = rows.iter().flat_map(|stats| stats.labelled_levels()).collect();
        for figure in LevelStats::FIGURES {
            text.figure("siftdb_level", figure, levels.iter().cloned());
        }
        text.expected_rates(&levels);
        text.latencies(&rows, self);
        text.0.push_str("# EOF\n");
        text.0
    }

    /// The levels that have tables, or were searched.
    fn labelled_levels(&self) -> impl Iterator<Item = (Labels, &LevelStats)> {
        let levels = self.levels.iter().enumerate();
        let levels = levels.filter(|(_, level)| **level != LevelStats::default());
        levels.map(|(number, level)| (self.labels().with("level", &number.to_string()), level))
    }

    /// The keyspace as a label, if there is one.
    fn labels(&self) -> Labels {
        let mut labels = Labels::default();
        if let Some(name) = &self.keyspace {
            labels.push("keyspace", name);
        }
        labels
    }
}

/// Labels of a sample, between the braces.
#[derive(Clone, Default)]
struct Labels(String);

impl Labels {
    fn push(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(name);
        self.0.push_str("=\"");
        escape(value, &mut self.0);
        self.0.push('"');
    }

    fn with(&self, name: &str, value: &str) -> Self {
        let mut labels = self.clone();
        labels.push(name, value);
        labels
    }
}

/// Appends `value` as it stands between quotes, and in a help.
fn escape(value: &str, text: &mut String) {
    for symbol in value.chars() {
        match symbol {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            symbol => text.push(symbol),
        }
    }
}

/// A number of whole units, of which `per_unit` parts make one: exact, without needless zeros.
fn decimal(parts: u64, per_unit: u64) -> String {
    let digits = per_unit.ilog10() as usize;
    let text = format!("{}.{:0digits$}", parts / per_unit, parts % per_unit);
    let shortest = text.trim_end_matches('0');
    shortest.strip_suffix('.').unwrap_or(shortest).to_string()
}

/// The unit that a family's name ends in.
fn unit_of(family: &str) -> Option<&'static str> {
    ["bytes", "seconds"]
        .into_iter()
        .find(|unit| family.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_')))
}

/// The text so far.
#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, family: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# TYPE {family} {kind}");
        if let Some(unit) = unit_of(family) {
            let _ = writeln!(self.0, "# UNIT {family} {unit}");
        }
        let _ = write!(self.0, "# HELP {family} ");
        escape(help.trim(), &mut self.0);
        self.0.push('\n');
    }

    fn sample(&mut self, name: &str, Labels(labels): &Labels, value: impl Display) {
        let _ = match labels.is_empty() {
            true => writeln!(self.0, "{name} {value}"),
            false => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    /// A figure of some reports; nanoseconds and milliseconds are printed as seconds.
    fn figure<'r, R: 'r>(
        &mut self,
        prefix: &str,
        figure: &Figure<R>,
        reports: impl Iterator<Item = (Labels, &'r R)>,
    ) {
        let name = figure.name;
        let small = [("_nanos", "Nanoseconds", "Seconds", NANOS), ("_millis", "milli", "", MILLIS)];
        let of_time = small.into_iter().find_map(|(suffix, word, whole, per_second)| {
            let stem = name.strip_suffix(suffix)?;
            let help = figure.help.replace(word, whole);
            Some((format!("{prefix}_{stem}_seconds"), help, per_second))
        });
        let (family, help, per_unit) =
            of_time.unwrap_or_else(|| (format!("{prefix}_{name}"), figure.help.into(), 1));
        self.family(&family, figure.kind, &help);
        let suffix = if figure.kind == "counter" { "_total" } else { "" };
        for (labels, report) in reports {
            if let Some(value) = (figure.read)(report) {
                self.sample(&format!("{family}{suffix}"), &labels, decimal(value, per_unit));
            }
        }
    }

    fn expected_rates(&mut self, levels: &[(Labels, &LevelStats)]) {
        let family = "siftdb_level_expected_fpr";
        let help = "False-positive rate to expect of the filters, weighted by entries.";
        self.family(family, "gauge", help);
        for (labels, level) in levels {
            self.sample(family, labels, level.expected_fpr);
        }
    }

    /// The histograms of calls: reads of each keyspace, writes of the database.
    fn latencies(&mut self, rows: &[&Stats], database: &Stats) {
        if database.latencies == Default::default() {
            return;
        }
        let family = "siftdb_call_duration_seconds";
        self.family(family, "histogram", "How long calls took, by kind of call.");
        for call in TIMED_CALLS {
            let is_write = matches!(call, "write" | "sync");
            let rows: &[&Stats] = if is_write { &[database] } else { rows };
            for stats in rows {
                let Some((nanos, buckets)) = stats.latencies.of_call(call) else { continue };
                let labels = stats.labels().with("call", call);
                let mut below = 0;
                for (bucket, calls) in buckets.iter().enumerate() {
                    below += calls;
                    // A quarter of the buckets: the text of all would be long.
                    if ends_doubling(bucket) {
                        let bound = bound_of(bucket).map_or("+Inf".into(), |b| decimal(b, NANOS));
                        let labels = labels.with("le", &bound);
                        self.sample(&format!("{family}_bucket"), &labels, below);
                    }
                }
                self.sample(&format!("{family}_count"), &labels, below);
                self.sample(&format!("{family}_sum"), &labels, decimal(nanos, NANOS));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_in_the_text() {
        let text = Stats { levels: vec![LevelStats::default()], ..Stats::default() };
        let text = text.to_openmetrics();
        let fields = Stats::FIGURES.iter().map(|figure| figure.name);
        let levels = LevelStats::FIGURES.iter().map(|figure| figure.name).chain(["expected_fpr"]);
        for name in fields.map(str::to_string).chain(levels.map(|name| format!("level_{name}"))) {
            let name = name.replace("_nanos", "_seconds").replace("_millis", "_seconds");
            assert!(text.contains(&format!("# TYPE siftdb_{name} ")), "{name}:\n{text}");
        }
    }

    #[test]
    fn levels_without_tables_and_searches_have_no_rows() {
        let searched = LevelStats { negatives: 1, ..LevelStats::default() };
        let held = LevelStats { tables: 1, ..LevelStats::default() };
        let levels = vec![searched, LevelStats::default(), held];
        let text = Stats { levels, ..Stats::default() }.to_openmetrics();
        let rows = [0, 1, 2].map(|level| text.contains(&format!("level=\"{level}\"")));
        assert_eq!(rows, [true, false, true], "{text}");
    }

    #[test]
    fn numbers_are_exact_and_short() {
        let cases = [(0, "0"), (64, "0.000000064"), (NANOS, "1"), (1_500_000_000, "1.5")];
        assert!(cases.into_iter().all(|(nanos, text)| decimal(nanos, NANOS) == text));
        assert_eq!(decimal(u64::MAX, NANOS), "18446744073.709551615");
        assert_eq!(decimal(12_340, MILLIS), "12.34");
        assert_eq!(decimal(7 * MILLIS * 10, MILLIS), "70");
        assert_eq!([0, 700].map(|number| decimal(number, 1)), ["0", "700"]);
    }

    #[test]
    fn label_values_are_escaped() {
        let labels = Labels::default().with("keyspace", "a\\b\"c\nd\u{e9}").with("level", "0");
        assert_eq!(labels.0, "keyspace=\"a\\\\b\\\"c\\nd\u{e9}\",level=\"0\"");
    }
}
