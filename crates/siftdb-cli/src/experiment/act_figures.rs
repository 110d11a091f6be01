//! Figures of a report: the blocks that lookups read, and how long they take.

use crate::experiment::figure::{Figure, Picture, Unit, table};
use crate::experiment::probe::Measurement;
use crate::experiment::report::{Act, ActKind, Column};
use siftdb::inspect::bytes;

/// The names of figures by [`ActKind`].
const BLOCKS_IDS: [&str; 4] = ["blocks-absent", "blocks-present", "blocks-mixed", "blocks-starved"];
const LATENCY_IDS: [&str; 4] =
    ["latency-absent", "latency-present", "latency-mixed", "latency-starved"];

/// The blocks and bytes that a lookup of `act` reads, by column.
pub fn blocks_figure(act: &Act) -> Figure {
    let saved = |column: Column| act.data_reads_saved(column).filter(|_| column.filters());
    Figure {
        id: BLOCKS_IDS[act.kind as usize],
        title: format!("Blocks read: {} (cache {})", lower(act.kind), bytes(act.cache_bytes)),
        finding: blocks_finding(act),
        picture: Picture::bars(&[2, 3, 4]),
        ..table! { for (column, one) in &act.columns;
            Unit::Text, "layout", "layout" => column.name();
            Unit::Number, "data_blocks", "data blocks looked at" =>
                one.per_lookup(one.total.data_blocks());
            Unit::Number, "data_blocks_read", "data blocks read" =>
                one.per_lookup(one.total.data_blocks_read);
            Unit::Number, "index_blocks_read", "index blocks read" =>
                one.per_lookup(one.total.index_blocks_read);
            Unit::Number, "filter_blocks_read", "filter blocks read" =>
                one.per_lookup(one.total.filter_blocks_read);
            Unit::Bytes, "bytes_read", "bytes read" => one.per_lookup(one.bytes_read());
            Unit::Share, "data_reads_saved", "reads saved" => saved(*column);
            Unit::Share, "observed_fpr", "false positives" => one.total.observed_fpr();
            Unit::Share, "expected_fpr", "expected" => one.expected_fpr;
            Unit::Count, "lookups", "lookups" => one.lookups;
        }
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
pub fn latency_figure(act: &Act) -> Figure {
    let points = act.columns.iter().flat_map(|(column, measured)| {
        measured.slower_nanos.iter().map(|(one_in, nanos)| (*column, *one_in, *nanos))
    });
    Figure {
        id: LATENCY_IDS[act.kind as usize],
        title: format!("Time of a lookup: {}", lower(act.kind)),
        finding: latency_finding(act),
        picture: Picture::log_lines(1, 3),
        ..table! { for (column, one_in, nanos) in points;
            Unit::Text, "layout", "layout" => column.name();
            Unit::Count, "one_in", "one lookup in N takes longer" => one_in;
            Unit::Share, "share_within", "lookups within" => 1.0 - 1.0 / one_in as f64;
            Unit::Nanos, "nanos", "time" => f64::from(nanos);
        }
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
