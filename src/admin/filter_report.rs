//! The report of `Db::filter_report`: the filter of every table, and the filters in the options.
//!
//! Facts come from the properties of the tables, counters from `stats`. Filters are read only by
//! [`check_filters`](crate::Db::check_filters), which looks for damage; data indexes are read if
//! tables of level 0 overlap. The command `siftdb filter stats` finds problems in a report alone,
//! so it also works on a report of the counters [since](FilterReport::since) another one.
//!
//! Counters are kept by level, not by table, because a compaction would lose those of its tables.
//! So the counters of a level sum up all kinds of filters in it.

use crate::admin::lookup_share::shares_of_level_0;
use crate::admin::stats_report;
use crate::base::error::{Error, Result};
use crate::base::stats::report::Stats;
use crate::base::sync::Arc;
use crate::jobs::compact::filter_budget::wanted_filters;
use crate::state::engine::Engine;
use crate::state::keyspace::KeyspaceState;
use crate::table::filter::layout::TableFilter;
use crate::tree::handle::TableHandle;
use crate::tree::runs::SortedRuns;
use crate::tree::version::Version;

/// The filters of a keyspace: what they are, what its settings ask for, what they did.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FilterReport {
    /// The tables, level by level in search order.
    pub tables: Vec<FilterFacts>,
    /// For each level, the filter that a table would get now; `None` for no filter.
    pub wanted: Vec<Option<WantedFilter>>,
    /// The counters, and the memory of the cache.
    pub stats: Stats,
    /// Bytes of the cache's budget in which filters and indexes may be pinned.
    pub pinned_bytes_max: u64,
    /// The budget of `Filter::monkey`, if there is one.
    pub budget_bytes: Option<u64>,
    /// One entry a level: the share of lookups that ask one of its sorted runs for a key that is
    /// not there, of those since the database was opened. Close to 1 while there are few.
    pub level_shares: Vec<f64>,
    /// Whether every filter was read to find damage, as by
    /// [`Keyspace::check_filters`](crate::Keyspace::check_filters).
    pub were_read: bool,
}

/// The filter of one table.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FilterFacts {
    /// Level of the table.
    pub level: usize,
    /// Number of its file.
    pub table: u64,
    /// Entries of the table, old versions and tombstones included.
    pub entries: u64,
    /// The share of lookups that search this table, if looked-up keys are distributed like stored
    /// ones: of all lookups at level 0, of the lookups in this level at deeper levels.
    pub lookup_share: f64,
    /// The policy's name as persisted; empty without a filter.
    pub policy: String,
    /// The encoding's label; empty without a filter.
    pub encoding: String,
    /// The layout; empty without a filter.
    pub layout: String,
    /// Bits per key in the options; `None` without a filter, or if the policy decides.
    pub asked_bits_per_key: Option<f64>,
    /// Keys that the filter was built from.
    pub keys: u64,
    /// Keys in one filter on average: fewer than `keys` if the filter is partitioned.
    pub keys_per_filter: u64,
    /// Bytes of the filter, all partitions and their index included.
    pub bytes: u64,
    /// Bits per key of the range filter in the options; `None` without one.
    pub range_bits_per_key: Option<f64>,
    /// Bytes of the range filter, all partitions and their index included; 0 without one.
    pub range_filter_bytes: u64,
    /// The expected false-positive rate; `None` without a filter, or if the policy decides.
    pub expected_fpr: Option<f64>,
    /// Whether lookups ask the filter. False without a filter, and if its policy or prefix
    /// extractor is not registered.
    pub is_asked: bool,
    /// Whether its bytes come from the budget of `Filter::monkey`.
    pub shares_budget: bool,
    /// Whether the filter differs from the one in the options for this level. Bits from a budget
    /// (`Filter::monkey`) may differ by a quarter.
    pub differs: bool,
    /// Damage in the filter, if it was read and is damaged. Lookups do not use the filter then, or
    /// not the damaged partition.
    pub damage: Option<FilterDamage>,
}

/// Damage in the filter of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterDamage {
    /// The place in the file of the table, in bytes from its start.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

/// The filter in the options for one level.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WantedFilter {
    /// The label of the encoding, as [`Encoding::label`](crate::filter::Encoding::label) returns
    /// it.
    pub encoding: String,
    /// The layout, as [`FilterLayout`](crate::FilterLayout) prints it.
    pub layout: String,
    /// Bits per key; `None` if the policy decides.
    pub bits_per_key: Option<f64>,
    /// The expected false-positive rate; `None` if the policy decides.
    pub expected_fpr: Option<f64>,
    /// Bits per key of the range filter; `None` for none.
    pub range_bits_per_key: Option<f64>,
}

/// Tables of one level with the same kind of filter.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FilterGroup {
    /// Policy, encoding, layout and bits, also of the range filter, which all tables share. The
    /// other fields are those of the first table.
    pub like: FilterFacts,
    /// The number of tables.
    pub tables: u64,
    /// How many of them have a damaged filter.
    pub damaged: u64,
    /// Entries of those tables.
    pub entries: u64,
    /// Keys of their filters.
    pub keys: u64,
    /// Bytes of their filters.
    pub bytes: u64,
    /// Bytes of their range filters.
    pub range_filter_bytes: u64,
    /// The expected rate, weighted by keys; `None` without a filter, or if the policy decides.
    pub expected_fpr: Option<f64>,
}

impl FilterGroup {
    /// Bits per key as stored, all overhead included; `None` without keys.
    #[must_use]
    pub fn bits_per_key(&self) -> Option<f64> {
        (self.keys > 0).then(|| 8.0 * self.bytes as f64 / self.keys as f64)
    }
}

impl FilterReport {
    /// The same tables with the counters since `earlier`, from [`Db::stats`](crate::Db::stats).
    #[must_use]
    pub fn since(&self, earlier: &Stats) -> FilterReport {
        FilterReport { stats: self.stats.since(earlier), ..self.clone() }
    }

    /// The tables of `level` by kind of filter, in order of first occurrence.
    #[must_use]
    pub fn groups(&self, level: usize) -> Vec<FilterGroup> {
        let mut groups: Vec<FilterGroup> = Vec::new();
        for table in self.level(level) {
            let known = groups.iter().position(|group| is_alike(&group.like, table));
            if known.is_none() {
                let expected_fpr = table.expected_fpr.map(|_| 0.0);
                let like = table.clone();
                groups.push(FilterGroup { like, expected_fpr, ..FilterGroup::default() });
            }
            let index = known.unwrap_or(groups.len() - 1);
            let group = &mut groups[index];
            let keys = (group.keys + table.keys).max(1) as f64;
            group.expected_fpr = group
                .expected_fpr
                .zip(table.expected_fpr)
                .map(|(sum, fpr)| (sum * group.keys as f64 + fpr * table.keys as f64) / keys);
            group.tables += 1;
            group.damaged += u64::from(table.damage.is_some());
            group.entries += table.entries;
            group.keys += table.keys;
            group.bytes += table.bytes;
            group.range_filter_bytes += table.range_filter_bytes;
        }
        groups
    }

    /// The tables of `level`.
    pub fn level(&self, level: usize) -> impl Iterator<Item = &FilterFacts> {
        self.tables.iter().filter(move |table| table.level == level)
    }
}

fn is_alike(one: &FilterFacts, other: &FilterFacts) -> bool {
    let kind = [&one.policy, &one.encoding, &one.layout];
    kind == [&other.policy, &other.encoding, &other.layout]
        && one.asked_bits_per_key == other.asked_bits_per_key
        && one.range_bits_per_key == other.range_bits_per_key
}

/// The report for `Db::filter_report`.
pub(crate) fn filter_report(engine: &Engine, keyspace: &Arc<KeyspaceState>) -> FilterReport {
    if !engine.context.process.is_current() {
        // A rate is computed once under a lock, which a thread of the parent process may hold.
        return FilterReport::default();
    }
    report_of(engine, keyspace, &keyspace.view.load().version)
}

/// The report for `Db::check_filters`.
///
/// # Errors
/// `Closed`; `Forked`; a table cannot be read for a reason other than damage.
pub(crate) fn check_filters(
    engine: &Engine,
    keyspace: &Arc<KeyspaceState>,
) -> Result<FilterReport> {
    engine.context.check_open()?;
    engine.context.process.check()?;
    let view = keyspace.view.load_full();
    if view.dropped {
        return Err(keyspace.dropped());
    }
    let version = Arc::clone(&view.version);
    let mut report = report_of(engine, keyspace, &version);
    for (facts, handle) in report.tables.iter_mut().zip(version.tables()) {
        facts.damage = damage_of(handle)?;
    }
    report.were_read = true;
    Ok(report)
}

/// The tables in `version` whose filter cannot be read, by reading all filters.
///
/// # Errors
/// As for [`check_filters`].
pub(crate) fn damaged_tables(version: &Version) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for handle in version.tables() {
        if damage_of(handle)?.is_some() {
            numbers.push(handle.meta.number);
        }
    }
    Ok(numbers)
}

fn damage_of(handle: &TableHandle) -> Result<Option<FilterDamage>> {
    let table = &handle.table;
    let range_filter =
        || table.range_filter.as_deref().map_or(Ok(()), |filter| filter.check(&table.file));
    match table.filter.check(&table.file).and_then(|()| range_filter()) {
        Ok(()) => Ok(None),
        Err(Error::Corruption { offset, what, .. }) => Ok(Some(FilterDamage { offset, what })),
        // Bytes that the disk cannot read count as damaged.
        Err(Error::Io { op: "read", source, .. }) => {
            Ok(Some(FilterDamage { offset: table.filter_offset, what: source.to_string() }))
        }
        Err(other) => Err(other),
    }
}

/// The report, without reading filters.
fn report_of(engine: &Engine, keyspace: &Arc<KeyspaceState>, version: &Version) -> FilterReport {
    let wanted = wanted_filters(keyspace, version);
    let budget_levels = budget_levels(keyspace, version);
    let mut tables = Vec::new();
    let top = shares_of_level_0(version);
    for (level, wanted) in wanted.iter().enumerate() {
        let handles = version.level(level);
        let entries: u64 = handles.iter().map(|handle| handle.meta.entries).sum();
        for (index, handle) in handles.iter().enumerate() {
            let lookup_share = match level {
                0 => top.get(index).copied().unwrap_or(1.0),
                _ => handle.meta.entries as f64 / entries.max(1) as f64,
            };
            tables.push(FilterFacts {
                lookup_share,
                ..facts_of(level, wanted.as_ref(), budget_levels.contains(&level), handle)
            });
        }
    }
    let capacity = engine.context.cache.budget.capacity as f64;
    FilterReport {
        tables,
        wanted: wanted.iter().map(|wanted| wanted.as_ref().map(described)).collect(),
        stats: stats_report::keyspace_stats(engine, keyspace),
        pinned_bytes_max: (capacity * engine.context.options.filter_pinned_share) as u64,
        budget_bytes: keyspace.options.load().filter_budget(),
        level_shares: keyspace.filter_workload.lock().shares().to_vec(),
        were_read: false,
    }
}

/// The numbers of the tables in `version` whose filter is not the wanted one.
pub(crate) fn differing_tables(keyspace: &KeyspaceState, version: &Version) -> Vec<u64> {
    let mut numbers = Vec::new();
    let budget_levels = budget_levels(keyspace, version);
    for (level, wanted) in wanted_filters(keyspace, version).iter().enumerate() {
        let handles = version.level(level).iter();
        let shares = budget_levels.contains(&level);
        let differing = handles.filter(|handle| differs(wanted.as_ref(), shares, handle));
        numbers.extend(differing.map(|handle| handle.meta.number));
    }
    numbers
}

/// Whether a table has another filter than the `wanted` one.
fn differs(wanted: Option<&TableFilter>, shares_budget: bool, handle: &TableHandle) -> bool {
    let properties = &handle.table.properties;
    let Some(filter) = wanted else { return !properties.filter_policy.is_empty() };
    // A table of range deletes alone has no key to build a filter from: it never gets one.
    if handle.meta.entries == 0 {
        return false;
    }
    if filter.had_no_member(properties) {
        return properties.range_filter_millibits != u64::from(filter.range_millibits);
    }
    let (has, wants) = (properties.filter_millibits_per_key, filter.millibits_per_key());
    // Bits from a budget change a little with every flush and compaction.
    let tolerance = if shares_budget { wants / 4 } else { 0 };
    !filter.is_alike(properties) || has.abs_diff(wants) > tolerance
}

/// The levels whose filters share a budget.
fn budget_levels(keyspace: &KeyspaceState, version: &Version) -> Vec<usize> {
    keyspace.options.load().budget_levels(&SortedRuns::of(&version.files))
}

fn facts_of(
    level: usize,
    wanted: Option<&TableFilter>,
    shares_budget: bool,
    handle: &TableHandle,
) -> FilterFacts {
    let properties = &handle.table.properties;
    FilterFacts {
        level,
        table: handle.meta.number,
        entries: handle.meta.entries,
        lookup_share: 0.0,
        policy: properties.filter_policy.clone(),
        encoding: properties.filter_encoding.clone(),
        layout: properties.filter_layout.clone(),
        asked_bits_per_key: bits_of(properties.filter_millibits_per_key),
        keys: properties.filter_entries,
        keys_per_filter: properties.keys_per_filter(),
        bytes: properties.filter_bytes,
        range_bits_per_key: bits_of(properties.range_filter_millibits),
        range_filter_bytes: properties.range_filter_bytes,
        expected_fpr: handle.table.expected_fpr(),
        is_asked: is_asked(handle),
        shares_budget,
        differs: differs(wanted, shares_budget, handle),
        damage: handle.table.filter.is_known_damaged().then(|| FilterDamage {
            offset: handle.table.filter_offset,
            what: "it was damaged when it was last read".into(),
        }),
    }
}

fn bits_of(millibits: u64) -> Option<f64> {
    (millibits > 0).then(|| millibits as f64 / 1_000.0)
}

fn is_asked(handle: &TableHandle) -> bool {
    let filter = &handle.table.filter;
    let holds_something_known = filter.members.whole_keys || filter.holds_prefixes();
    filter.layout_name() != "none" && holds_something_known
}

fn described(filter: &TableFilter) -> WantedFilter {
    WantedFilter {
        encoding: filter.encoding.label().to_string(),
        layout: filter.layout.to_string(),
        bits_per_key: filter.encoding.bits_per_key(),
        expected_fpr: filter.encoding.expected_fpr(),
        range_bits_per_key: bits_of(u64::from(filter.range_millibits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(level: usize, bits: f64, keys: u64, fpr: f64) -> FilterFacts {
        FilterFacts {
            level,
            entries: keys + 1,
            policy: "rocksdb.BuiltinBloomFilter".into(),
            encoding: "fast-local-bloom".into(),
            layout: "full".into(),
            asked_bits_per_key: Some(bits),
            keys,
            bytes: keys * bits as u64 / 8,
            expected_fpr: Some(fpr),
            is_asked: true,
            ..FilterFacts::default()
        }
    }

    #[test]
    fn groups_weight_their_rates_by_keys() {
        let none = FilterFacts { level: 1, entries: 7, ..FilterFacts::default() };
        let tables = vec![
            table(0, 10.0, 50, 0.5),
            table(1, 10.0, 1_000, 0.01),
            table(1, 16.0, 500, 0.001),
            table(1, 10.0, 3_000, 0.03),
            FilterFacts {
                range_bits_per_key: Some(12.0),
                range_filter_bytes: 1_500,
                ..table(1, 10.0, 1_000, 0.01)
            },
            none,
        ];
        let report = FilterReport { tables, ..FilterReport::default() };
        let groups = report.groups(1);
        let of = |group: &FilterGroup| (group.tables, group.keys, group.entries, group.bytes);
        let [ten, sixteen, ranges, none] = &groups[..] else { panic!("{groups:?}") };
        assert_eq!(of(ten), (2, 4_000, 4_002, 5_000));
        assert!((ten.expected_fpr.unwrap() - 0.025).abs() < 1e-12);
        assert_eq!((ten.bits_per_key(), sixteen.bits_per_key()), (Some(10.0), Some(16.0)));
        assert_eq!((of(ranges), ranges.range_filter_bytes), ((1, 1_000, 1_001, 1_250), 1_500));
        assert_eq!((of(none), none.expected_fpr, none.bits_per_key()), ((1, 0, 7, 0), None, None));
        assert!(report.groups(6).is_empty());
    }
}
