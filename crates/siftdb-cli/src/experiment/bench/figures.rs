//! The figures of a benchmark: latency distributions, throughput, and what operations read.
//!
//! Rounds of one run are one row: the median of their figures, and all their latencies together.

use crate::experiment::bench::interval::{Interval, median};
use crate::experiment::bench::matrix::cell_text;
use crate::experiment::bench::record::Run;
use crate::experiment::bench::result::{ByKind, Variant, add};
use crate::experiment::figure::{Figure, Picture, Unit, table};

/// The points of a distribution: N where one of N operations takes longer.
const ONE_IN: [u64; 8] = [2, 5, 10, 50, 100, 1_000, 10_000, 100_000];

/// More lines in one picture cannot be told apart.
const LINES_MAX: usize = 8;

/// The figures of all runs. `command` makes them again.
pub fn figures(runs: &[Run], command: &str) -> Vec<Figure> {
    let groups = groups(runs);
    let bars = [
        Bars {
            id: "throughput",
            title: "Operations a second",
            finding: "All threads together; longer bars are faster.",
            unit: Unit::Count,
            columns: ["operations_per_second", "operations_per_second_unfiltered"],
            label: "operations a second",
            of: |variant| Some(variant.operations_per_second().round()),
        },
        Bars {
            id: "blocks-searched",
            title: "Data blocks that an operation searches",
            finding: "From the cache or from files: this does not depend on the machine.",
            unit: Unit::Number,
            columns: ["data_blocks_per_operation", "data_blocks_per_operation_unfiltered"],
            label: "data blocks an operation searches",
            of: |variant| Some(variant.per_operation(variant.counts?.data_blocks)),
        },
        Bars {
            id: "bytes-read",
            title: "Bytes that an operation reads from files",
            finding: "What the block cache does not hold; a larger cache shortens these bars.",
            unit: Unit::Bytes,
            columns: ["bytes_read_per_operation", "bytes_read_per_operation_unfiltered"],
            label: "bytes an operation reads from files",
            of: |variant| Some(variant.per_operation(variant.counts?.bytes_read)),
        },
    ];
    let figures = [ratios(&groups), latencies(&groups)].into_iter();
    let figures = figures.chain(bars.iter().map(|bars| bars.figure(&groups)));
    let figures = figures.filter(|figure| !figure.rows.is_empty());
    figures.map(|figure| figure.again(command)).collect()
}

/// All rounds of one workload in one cell.
type Group<'a> = Vec<&'a Run>;

fn groups(runs: &[Run]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for run in runs {
        match groups.iter_mut().find(|group| group[0].name() == run.name()) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups
}

/// A bar for each group with filters, and one without.
struct Bars {
    id: &'static str,
    title: &'static str,
    finding: &'static str,
    unit: Unit,
    /// The names of the columns with filters and without.
    columns: [&'static str; 2],
    label: &'static str,
    of: fn(&Variant) -> Option<f64>,
}

impl Bars {
    fn figure(&self, groups: &[Group<'_>]) -> Figure {
        let rows = groups.iter().map(|group| {
            (group, [true, false].map(|filters| over_rounds(group, filters, self.of)))
        });
        let rows = rows.filter(|(_, values)| values.iter().any(Option::is_some));
        Figure {
            id: self.id,
            title: self.title.into(),
            finding: self.finding.into(),
            picture: Picture::Bars { labels: vec![0, 1, 2], values: vec![3, 4], interval: None },
            ..table! { for (group, [with, without]) in rows;
                Unit::Text, "store", "store" => group[0].store.as_str();
                Unit::Text, "workload", "workload" => group[0].measured.workload;
                Unit::Text, "settings", "settings" => cell_text(&group[0].cell);
                self.unit, self.columns[0], self.label => with;
                self.unit, self.columns[1], "without filters" => without;
            }
        }
    }
}

/// The median over the rounds of a figure of the variant with filters, or without.
fn over_rounds(group: &Group<'_>, filters: bool, of: fn(&Variant) -> Option<f64>) -> Option<f64> {
    let variant = |run: &&Run| {
        let variants = &run.measured.variants;
        variants.iter().find(|variant| variant.filters == filters).and_then(of)
    };
    median(group.iter().filter_map(variant).collect())
}

fn ratios(groups: &[Group<'_>]) -> Figure {
    let rows = groups.iter().filter_map(|group| {
        let ratios: Vec<Interval> = group.iter().filter_map(|run| run.measured.ratio).collect();
        let middle = median(ratios.iter().map(|ratio| ratio.median).collect())?;
        Some((group, middle, ratios))
    });
    Figure {
        id: "filters-off-on",
        title: "Time of an operation without filters, as a multiple".into(),
        finding: "Above 1, filters save time; the ratio comes from neighbouring turns on the same \
                  database, and is the median of the rounds."
            .into(),
        picture: Picture::Bars { labels: vec![0, 1, 2], values: vec![3], interval: Some((4, 5)) },
        ..table! { for (group, middle, ratios) in rows;
            Unit::Text, "store", "store" => group[0].store.as_str();
            Unit::Text, "workload", "workload" => group[0].measured.workload;
            Unit::Text, "settings", "settings" => cell_text(&group[0].cell);
            Unit::Number, "off_on_ratio", "time without filters / with filters" => middle;
            Unit::Number, "low", "lowest end of an interval (95 %)" =>
                ratios.iter().map(|ratio| ratio.low).fold(f64::INFINITY, f64::min);
            Unit::Number, "high", "highest end of an interval (95 %)" =>
                ratios.iter().map(|ratio| ratio.high).fold(0.0, f64::max);
            Unit::Count, "rounds", "rounds" => ratios.len() as u64;
        }
    }
}

fn latencies(groups: &[Group<'_>]) -> Figure {
    let mut rows = Vec::new();
    let mut lines = 0;
    for group in groups {
        for filters in [true, false] {
            for (kind, latencies) in all_latencies(group, filters) {
                lines += 1;
                if lines > LINES_MAX {
                    continue;
                }
                let filters = if filters { "on" } else { "off" };
                let (run, kind) = (group[0].name(), kind.name());
                let series = format!("{run} {kind}, filters {filters}");
                for one_in in ONE_IN.into_iter().filter(|one| *one <= latencies.len()) {
                    let nanos = latencies.value_at_quantile(1.0 - 1.0 / one_in as f64);
                    rows.push((series.clone(), one_in, nanos));
                }
            }
        }
    }
    let finding = "Of as many operations as the horizontal axis says, one takes longer: the \
                   median is at 2, the 99th percentile at 100";
    let left_out = match lines - LINES_MAX.min(lines) {
        0 => String::new(),
        lines => format!("; {lines} more lines are in the JSON and CSV of the runs"),
    };
    Figure {
        id: "latency-distribution",
        title: "How long operations take".into(),
        finding: format!("{finding}{left_out}."),
        picture: Picture::log_lines(1, 2),
        ..table! { for (series, one_in, nanos) in rows;
            Unit::Text, "series", "operation" => series;
            Unit::Count, "one_in", "one operation in this many" => one_in;
            Unit::Nanos, "latency_nanos", "takes longer than" => nanos;
        }
    }
}

/// The latencies of all rounds together, by kind.
fn all_latencies(group: &Group<'_>, filters: bool) -> ByKind {
    let mut all = ByKind::new();
    let variants = group.iter().flat_map(|run| &run.measured.variants);
    variants
        .filter(|variant| variant.filters == filters)
        .for_each(|variant| add(&mut all, &variant.kinds));
    all
}
