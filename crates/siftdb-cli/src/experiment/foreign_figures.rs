//! The figures of the filters of another store: as they are, and what lookups read with them and
//! with others.

use crate::experiment::figure::{Figure, Picture, Unit, table};
use crate::foreign_filters::alternatives::Alternative;
use crate::foreign_filters::levels::LevelFilters;
use crate::foreign_filters::simulation::{LookupCost, Part};
use siftdb::inspect::bytes;
use siftdb_foreign::FilterFigures;

/// The figure of filters and indexes by level.
pub fn foreign_levels_figure(levels: &[LevelFilters]) -> Figure {
    let mut all = FilterFigures::default();
    levels.iter().for_each(|level| all.add(&level.filters));
    let rate = all.expected_fpr().map_or("no rate is known".into(), |rate| {
        format!("{} of absent keys are expected to pass one", Unit::Share.print(rate))
    });
    Figure {
        id: "filters-by-level",
        title: "Filters and indexes by level".into(),
        finding: format!(
            "Filters take {}, indexes {}; {rate}.",
            bytes(all.filter_bytes),
            bytes(all.index_bytes)
        ),
        picture: Picture::bars(&[3, 4]),
        ..table! { for LevelFilters { level, filters, counts } in levels;
            Unit::Text, "level", "level" => format!("level {level}");
            Unit::Count, "tables", "tables" => filters.tables;
            Unit::Count, "keys", "keys" => filters.keys;
            Unit::Bytes, "filter_bytes", "filters" => filters.filter_bytes;
            Unit::Bytes, "index_bytes", "indexes" => filters.index_bytes;
            Unit::Share, "expected_fpr", "expected" => filters.expected_fpr().unwrap_or(f64::NAN);
            Unit::Share, "observed_fpr", "observed" => counts.observed_fpr().unwrap_or(f64::NAN);
            Unit::Count, "lookups", "lookups" => counts.lookups;
        }
    }
}

/// A setting that reads less by this share is worth a word.
const WORTH: f64 = 0.01;

/// The figures of simulated lookups: what they read by setting, and what memory that takes.
/// `nanos_per_lookup` is the time of the reads. The first setting is the one that the database has.
pub fn foreign_settings_figures(
    settings: &[(Alternative, LookupCost)],
    nanos_per_lookup: &dyn Fn(&LookupCost) -> f64,
) -> [Figure; 2] {
    let per_lookup = |(_, cost): &(Alternative, LookupCost)| cost.bytes_per_lookup();
    let now = settings.first().map_or(0.0, per_lookup);
    let cache = settings.first().map_or(0, |(as_it_is, _)| as_it_is.plan.read.cache_bytes);
    let memory = |(other, cost): &(Alternative, LookupCost)| {
        other.plan.read.cache_bytes + cost.outside_bytes
    };
    // At no more memory.
    let memory_now = settings.first().map_or(0, memory);
    let affordable = settings.iter().filter(|setting| memory(setting) <= memory_now);
    let best = affordable.min_by(|a, b| per_lookup(a).total_cmp(&per_lookup(b)));
    let best = best.filter(|best| per_lookup(best) < (1.0 - WORTH) * now);
    let best = best.map_or(String::new(), |best| {
        let least = Unit::Bytes.print(per_lookup(best));
        format!(" With no more memory, the least is {least}: {}.", best.0.setting)
    });
    let reads = Figure {
        id: "reads-by-setting",
        title: "Bytes that a lookup reads, by setting".into(),
        finding: format!(
            "With a block cache of {}, a lookup reads {} now.{best}",
            bytes(cache),
            Unit::Bytes.print(now)
        ),
        picture: Picture::bars(&[1, 2, 3]),
        ..table! { for (other, cost) in settings;
            Unit::Text, "setting", "setting" => other.setting.clone();
            Unit::Bytes, "filter_bytes_per_lookup", "of filters"
                => cost.part_bytes_per_lookup(Part::Filter);
            Unit::Bytes, "index_bytes_per_lookup", "of indexes"
                => cost.part_bytes_per_lookup(Part::Index);
            Unit::Bytes, "data_bytes_per_lookup", "of data"
                => cost.part_bytes_per_lookup(Part::Data);
            Unit::Number, "blocks_per_lookup", "blocks" => cost.blocks_per_lookup();
            Unit::Nanos, "nanos_per_lookup", "time" => nanos_per_lookup(cost);
        }
    };
    let memory_figure = Figure {
        id: "memory-by-setting",
        title: "Memory and filters, by setting".into(),
        finding: "The memory is the block cache, and filters and indexes outside of it.".into(),
        picture: Picture::bars(&[1, 2]),
        ..table! { for (other, cost) in settings;
            Unit::Text, "setting", "setting" => other.setting.clone();
            Unit::Bytes, "memory_bytes", "memory"
                => other.plan.read.cache_bytes + cost.outside_bytes;
            Unit::Bytes, "filter_bytes", "filters" => cost.filter_bytes;
            Unit::Text, "options", "options" => other.options.join("; ");
        }
    };
    [reads, memory_figure]
}
