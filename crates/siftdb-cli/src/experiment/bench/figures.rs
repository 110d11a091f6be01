//! The figures of a benchmark: latency distributions, throughput, and what operations read.
//!
//! Rounds of one run are one row: the median of their figures, and all their latencies together.

use crate::experiment::bench::interval::{Interval, median};
use crate::experiment::bench::matrix::cell_text;
use crate::experiment::bench::record::Run;
use crate::experiment::bench::result::{Latencies, Variant};
use crate::experiment::figure::{Cell, Figure, Heading, Picture, Scale, Unit};

/// The points of a distribution: N where one of N operations takes longer.
const ONE_IN: [u64; 8] = [2, 5, 10, 50, 100, 1_000, 10_000, 100_000];

/// More lines in one picture cannot be told apart.
const LINES_MAX: usize = 8;

/// The figures of all runs. `command` makes them again.
#[must_use]
pub fn figures(runs: &[Run], command: &str) -> Vec<Figure> {
    let groups = groups(runs);
    let figures = [
        ratios(&groups, command),
        latencies(&groups, command),
        throughput(&groups, command),
        reads(&groups, command),
        read_bytes(&groups, command),
    ];
    figures.into_iter().filter(|figure| !figure.rows.is_empty()).collect()
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

/// Cells of the columns that name a group.
fn named(group: &Group<'_>) -> Vec<Cell> {
    let run = group[0];
    let texts = [run.store.clone(), run.measured.workload.to_owned(), cell_text(&run.cell)];
    texts.into_iter().map(Cell::Text).collect()
}

const NAMES: [Heading; 3] = [
    Heading { name: "store", label: "store", unit: Unit::Text },
    Heading { name: "workload", label: "workload", unit: Unit::Text },
    Heading { name: "settings", label: "settings", unit: Unit::Text },
];

/// The median over the rounds of a figure of the variant with filters, or without.
fn over_rounds(group: &Group<'_>, filters: bool, of: impl Fn(&Variant) -> Option<f64>) -> Cell {
    let variant = |run: &&Run| {
        let variants = &run.measured.variants;
        variants.iter().find(|variant| variant.filters == filters).and_then(&of)
    };
    median(group.iter().filter_map(variant).collect()).map_or(Cell::Absent, Cell::Number)
}

/// Bars of one figure with and without filters.
fn bars(
    groups: &[Group<'_>],
    columns: [Heading; 2],
    scale: Scale,
    of: impl Fn(&Variant) -> Option<f64>,
) -> (Vec<Heading>, Vec<Vec<Cell>>, Picture) {
    let mut rows = Vec::new();
    for group in groups {
        let values = [true, false].map(|filters| over_rounds(group, filters, &of));
        if values.iter().any(|value| *value != Cell::Absent) {
            rows.push(named(group).into_iter().chain(values).collect());
        }
    }
    let columns = NAMES.into_iter().chain(columns).collect();
    (
        columns,
        rows,
        Picture::Bars { labels: vec![0, 1, 2], values: vec![3, 4], interval: None, scale },
    )
}

fn ratios(groups: &[Group<'_>], command: &str) -> Figure {
    let heading = |name, label| Heading { name, label, unit: Unit::Number };
    let mut rows = Vec::new();
    for group in groups {
        let ratios: Vec<Interval> = group.iter().filter_map(|run| run.measured.ratio).collect();
        let Some(middle) = median(ratios.iter().map(|ratio| ratio.median).collect()) else {
            continue;
        };
        let low = ratios.iter().map(|ratio| ratio.low).fold(f64::INFINITY, f64::min);
        let high = ratios.iter().map(|ratio| ratio.high).fold(0.0, f64::max);
        let rounds = ratios.len() as f64;
        let numbers = [middle, low, high, rounds].map(Cell::Number);
        rows.push(named(group).into_iter().chain(numbers).collect());
    }
    let more = [
        heading("off_on_ratio", "time without filters / with filters"),
        heading("low", "lowest end of an interval (95 %)"),
        heading("high", "highest end of an interval (95 %)"),
        Heading { name: "rounds", label: "rounds", unit: Unit::Count },
    ];
    Figure {
        id: "filters-off-on",
        title: "Time of an operation without filters, as a multiple".into(),
        finding: "Above 1, filters save time; the ratio comes from neighbouring turns on the same \
                  database, and is the median of the rounds."
            .into(),
        command: command.into(),
        columns: NAMES.into_iter().chain(more).collect(),
        rows,
        picture: Picture::Bars {
            labels: vec![0, 1, 2],
            values: vec![3],
            interval: Some((4, 5)),
            scale: Scale::Linear,
        },
    }
}

fn latencies(groups: &[Group<'_>], command: &str) -> Figure {
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
                let series = format!("{} {kind}, filters {filters}", group[0].name());
                for one_in in ONE_IN.into_iter().filter(|one| *one <= latencies.operations()) {
                    let nanos = latencies.quantile(1.0 - 1.0 / one_in as f64);
                    rows.push(vec![
                        Cell::Text(series.clone()),
                        Cell::Number(one_in as f64),
                        Cell::Number(nanos as f64),
                    ]);
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
        command: command.into(),
        columns: vec![
            Heading { name: "series", label: "operation", unit: Unit::Text },
            Heading { name: "one_in", label: "one operation in this many", unit: Unit::Count },
            Heading { name: "latency_nanos", label: "takes longer than", unit: Unit::Nanos },
        ],
        rows,
        picture: Picture::Lines {
            series: 0,
            x: 1,
            y: 2,
            interval: None,
            expected: None,
            x_scale: Scale::Log,
            y_scale: Scale::Log,
        },
    }
}

/// The latencies of all rounds together, by kind.
fn all_latencies(group: &Group<'_>, filters: bool) -> Vec<(&'static str, Latencies)> {
    let mut all: Vec<(&'static str, Latencies)> = Vec::new();
    let variants = group.iter().flat_map(|run| &run.measured.variants);
    for (kind, latencies) in
        variants.filter(|variant| variant.filters == filters).flat_map(|variant| &variant.kinds)
    {
        match all.iter_mut().find(|(name, _)| *name == kind.name()) {
            Some((_, sum)) => sum.add(latencies),
            None => all.push((kind.name(), latencies.clone())),
        }
    }
    all
}

fn throughput(groups: &[Group<'_>], command: &str) -> Figure {
    let heading = |name, label| Heading { name, label, unit: Unit::Count };
    let (columns, rows, picture) = bars(
        groups,
        [
            heading("operations_per_second", "operations a second"),
            heading("operations_per_second_unfiltered", "without filters"),
        ],
        Scale::Linear,
        |variant| Some(variant.operations_per_second().round()),
    );
    Figure {
        id: "throughput",
        title: "Operations a second".into(),
        finding: "All threads together; longer bars are faster.".into(),
        command: command.into(),
        columns,
        rows,
        picture,
    }
}

fn reads(groups: &[Group<'_>], command: &str) -> Figure {
    let heading = |name, label| Heading { name, label, unit: Unit::Number };
    let (columns, rows, picture) = bars(
        groups,
        [
            heading("data_blocks_per_operation", "data blocks an operation searches"),
            heading("data_blocks_per_operation_unfiltered", "without filters"),
        ],
        Scale::Linear,
        |variant| Some(variant.per_operation(variant.counts?.data_blocks)),
    );
    Figure {
        id: "blocks-searched",
        title: "Data blocks that an operation searches".into(),
        finding: "From the cache or from files: this does not depend on the machine.".into(),
        command: command.into(),
        columns,
        rows,
        picture,
    }
}

fn read_bytes(groups: &[Group<'_>], command: &str) -> Figure {
    let heading = |name, label| Heading { name, label, unit: Unit::Bytes };
    let (columns, rows, picture) = bars(
        groups,
        [
            heading("bytes_read_per_operation", "bytes an operation reads from files"),
            heading("bytes_read_per_operation_unfiltered", "without filters"),
        ],
        Scale::Linear,
        |variant| Some(variant.per_operation(variant.counts?.bytes_read)),
    );
    Figure {
        id: "bytes-read",
        title: "Bytes that an operation reads from files".into(),
        finding: "What the block cache does not hold; a larger cache shortens these bars.".into(),
        command: command.into(),
        columns,
        rows,
        picture,
    }
}
