//! Figures of a report: the blocks that lookups read, and how long they take.

use crate::experiment::figure::{Cell, Figure, Heading, Picture, Scale, Unit};
use crate::experiment::probe::Measurement;
use crate::experiment::report::{Act, ActKind, Column};
use siftdb::inspect::bytes;

/// The blocks and bytes that a lookup of `act` reads, by column.
#[must_use]
pub fn blocks_figure(act: &Act, command: &str) -> Figure {
    let row = |(column, measured): &(Column, Measurement)| {
        let (total, each) = (&measured.total, |count| Cell::Number(measured.per_lookup(count)));
        let share = |share: Option<f64>| share.map_or(Cell::Absent, Cell::Number);
        let saved = act.data_reads_saved(*column).filter(|_| column.filters());
        vec![
            Cell::Text(column.name().into()),
            each(total.data_blocks()),
            each(total.data_blocks_read),
            each(total.index_blocks_read),
            each(total.filter_blocks_read),
            each(measured.bytes_read()),
            share(saved),
            share(total.observed_fpr()),
            share(measured.expected_fpr),
            Cell::Number(measured.lookups as f64),
        ]
    };
    Figure {
        id: match act.kind {
            ActKind::Absent => "blocks-absent",
            ActKind::Present => "blocks-present",
            ActKind::Mixed => "blocks-mixed",
            ActKind::Starved => "blocks-starved",
        },
        title: format!("Blocks read: {} (cache {})", lower(act.kind), bytes(act.cache_bytes)),
        finding: blocks_finding(act),
        command: command.into(),
        columns: vec![
            Heading { name: "layout", label: "layout", unit: Unit::Text },
            Heading { name: "data_blocks", label: "data blocks looked at", unit: Unit::Number },
            Heading { name: "data_blocks_read", label: "data blocks read", unit: Unit::Number },
            Heading { name: "index_blocks_read", label: "index blocks read", unit: Unit::Number },
            Heading { name: "filter_blocks_read", label: "filter blocks read", unit: Unit::Number },
            Heading { name: "bytes_read", label: "bytes read", unit: Unit::Bytes },
            Heading { name: "data_reads_saved", label: "reads saved", unit: Unit::Share },
            Heading { name: "observed_fpr", label: "false positives", unit: Unit::Share },
            Heading { name: "expected_fpr", label: "expected", unit: Unit::Share },
            Heading { name: "lookups", label: "lookups", unit: Unit::Count },
        ],
        rows: act.columns.iter().map(row).collect(),
        picture: Picture::Bars {
            labels: vec![0],
            values: vec![2, 3, 4],
            interval: None,
            scale: Scale::Linear,
        },
    }
}

/// The column with full filters, or the first one with filters.
fn with_filters(act: &Act) -> Option<&(Column, Measurement)> {
    let mut filters = act.columns.iter().filter(|(column, _)| column.filters());
    let full = act.columns.iter().find(|(column, _)| *column == Column::Full);
    full.or_else(|| filters.next())
}

fn lower(kind: ActKind) -> String {
    let name = kind.name();
    name[..1].to_lowercase() + &name[1..]
}

fn blocks_finding(act: &Act) -> String {
    let by_bytes = |(_, one): &&(Column, Measurement)| one.bytes_read();
    if act.kind == ActKind::Starved {
        let least = act.columns.iter().min_by_key(by_bytes);
        let most = act.columns.iter().max_by_key(by_bytes);
        let Some((least, most)) = least.zip(most) else { return String::new() };
        let each = |(column, one): &(Column, Measurement)| {
            let read = one.per_lookup(one.bytes_read()).round() as u64;
            format!("\"{}\" ({})", column.name(), bytes(read))
        };
        return format!(
            "When filters do not fit the cache, a lookup reads least with {} and most with {}.",
            each(least),
            each(most)
        );
    }
    let Some(((column, with), without)) = with_filters(act).zip(act.column(Column::NoFilter))
    else {
        return "Without filters, a lookup looks into a block of every table that may have the key."
            .into();
    };
    let saved = act.data_reads_saved(*column).unwrap_or_default();
    format!(
        "Without filters a lookup reads {:.2} data blocks, with \"{}\" {:.3}: {:.1} % fewer.",
        without.per_lookup(without.total.data_blocks_read),
        column.name(),
        with.per_lookup(with.total.data_blocks_read),
        100.0 * saved
    )
}

/// The distribution of the times of `act`'s lookups, by column.
#[must_use]
pub fn latency_figure(act: &Act, command: &str) -> Figure {
    let rows = act.columns.iter().flat_map(|(column, measured)| {
        measured.slower_nanos.iter().map(|(one_in, nanos)| {
            vec![
                Cell::Text(column.name().into()),
                Cell::Number(*one_in as f64),
                Cell::Number(1.0 - 1.0 / *one_in as f64),
                Cell::Number(f64::from(*nanos)),
            ]
        })
    });
    Figure {
        id: match act.kind {
            ActKind::Absent => "latency-absent",
            ActKind::Present => "latency-present",
            ActKind::Mixed => "latency-mixed",
            ActKind::Starved => "latency-starved",
        },
        title: format!("Time of a lookup: {}", lower(act.kind)),
        finding: latency_finding(act),
        command: command.into(),
        columns: vec![
            Heading { name: "layout", label: "layout", unit: Unit::Text },
            Heading { name: "one_in", label: "one lookup in N takes longer", unit: Unit::Count },
            Heading { name: "share_within", label: "lookups within", unit: Unit::Share },
            Heading { name: "nanos", label: "time", unit: Unit::Nanos },
        ],
        rows: rows.collect(),
        picture: Picture::Lines {
            series: 0,
            x: 1,
            y: 3,
            interval: None,
            expected: None,
            x_scale: Scale::Log,
            y_scale: Scale::Log,
        },
    }
}

fn latency_finding(act: &Act) -> String {
    let of = |column: &Column, one: &Measurement| {
        let [half, most] =
            [one.p50_nanos, one.p99_nanos].map(|nanos| Unit::Nanos.print(f64::from(nanos)));
        format!(
            "with \"{}\" half of the lookups end within {half} and 99 % within {most}",
            column.name()
        )
    };
    let best = with_filters(act).map(|(column, one)| of(column, one));
    let without = act.column(Column::NoFilter).map(|one| of(&Column::NoFilter, one));
    let both: Vec<String> = best.into_iter().chain(without).collect();
    let text = both.join("; ") + ".";
    text[..1].to_uppercase() + &text[1..]
}
