//! Advice on a memory budget for filters: the same bits at all levels, or divided over the levels.
//!
//! [`advice`] is a pure function of a report. A lookup of an absent key is assumed to
//! search as many tables of level 0 as the report says on average, and at most one table of each
//! deeper level. Its false positives are the sum of the rates of these tables. The budget is
//! divided as by `Filter::monkey` (`siftdb_filter::allocation`), at the rates of FastLocalBloom.
//! From the top level down, the layout is full while the filters fit into pinned memory, and
//! partitioned below. A level counts less where lookups find their keys in it or above it.

use siftdb::{FilterFacts, FilterLayout, FilterReport};
use siftdb_filter::allocation::{MILLIBITS_MAX, Run, millibits_by_run};
use siftdb_filter::encoding::Encoding;

/// A table that hardly any lookup asks gets few bits, but some.
const SHARE_MIN: f64 = 0.001;

/// Filters for a memory budget; from [`advice`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilterAdvice {
    /// The budget.
    pub budget_bytes: u64,
    /// The levels that have tables, from the top.
    pub levels: Vec<LevelAdvice>,
}

/// The filters of one level now, and after the advice.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelAdvice {
    /// The level.
    pub level: usize,
    /// How many tables of the level a lookup searches on average: at level 0 those whose range
    /// contains the key, at deeper levels one.
    pub tables_per_lookup: f64,
    /// Keys of its filters; entries of tables without a filter.
    pub keys: u64,
    /// Bytes of its filters now.
    pub bytes_now: u64,
    /// Expected false positives of a lookup of an absent key at this level now. A table without a
    /// filter counts as one. `None` if a policy does not know its rate.
    pub fpr_now: Option<f64>,
    /// The same bits per key at all levels; 0 is no filter.
    pub bits_even: f64,
    /// Expected false positives with `bits_even`.
    pub fpr_even: f64,
    /// Bits per key of the divided budget; 0 is no filter.
    pub bits_divided: f64,
    /// Expected false positives with `bits_divided`.
    pub fpr_divided: f64,
    /// Bytes of the filters with `bits_divided`.
    pub bytes_divided: u64,
    /// The layout with `bits_divided`.
    pub layout: FilterLayout,
}

impl FilterAdvice {
    /// Expected false positives of a lookup of an absent key now; `None` if a policy does not know
    /// its rate.
    pub fn fpr_now(&self) -> Option<f64> {
        self.levels.iter().try_fold(0.0, |sum, level| Some(sum + level.fpr_now?))
    }

    /// Expected false positives with the same bits at all levels.
    pub fn fpr_even(&self) -> f64 {
        self.levels.iter().fold(0.0, |sum, level| sum + level.fpr_even)
    }

    /// Expected false positives with the budget divided over the levels.
    pub fn fpr_divided(&self) -> f64 {
        self.levels.iter().fold(0.0, |sum, level| sum + level.fpr_divided)
    }
}

/// The rates that filters of `budget_bytes` would achieve for the current tables.
pub fn advice(report: &FilterReport, budget_bytes: u64) -> FilterAdvice {
    let levels: Vec<(usize, Vec<&FilterFacts>)> = (0..report.wanted.len())
        .map(|level| (level, report.level(level).collect::<Vec<_>>()))
        .filter(|(_, tables)| !tables.is_empty())
        .collect();
    let runs: Vec<Vec<Run>> =
        levels.iter().map(|(level, tables)| runs_of(report, *level, tables)).collect();
    let all = runs.concat();
    let mut divided = millibits_by_run(&all, budget_bytes).into_iter();
    let even = even_millibits(all.iter().map(|run| run.keys).sum(), budget_bytes);
    let mut pinned_bytes = 0;
    let levels = levels.into_iter().zip(runs).map(|((level, tables), runs)| {
        let keys: u64 = tables.iter().map(|table| keys_of(table)).sum();
        let tables_per_lookup = tables_per_lookup(&tables);
        // Options are set by level, so all tables of level 0 get the same bits.
        let bits = runs.iter().zip(&mut divided);
        let bits: u128 = bits.map(|(run, bits)| u128::from(run.keys) * u128::from(bits)).sum();
        let divided = whole_filter(bits / u128::from(keys.max(1)));
        let bytes_divided = (u128::from(keys) * u128::from(divided)).div_ceil(8_000) as u64;
        pinned_bytes += bytes_divided;
        LevelAdvice {
            level,
            tables_per_lookup,
            keys,
            bytes_now: tables.iter().map(|table| table.bytes).sum(),
            fpr_now: fpr_now(&tables),
            bits_even: f64::from(even) / 1_000.0,
            fpr_even: tables_per_lookup * false_positive_rate(even),
            bits_divided: f64::from(divided) / 1_000.0,
            fpr_divided: tables_per_lookup * false_positive_rate(divided),
            bytes_divided,
            layout: match pinned_bytes <= report.pinned_bytes_max {
                true => FilterLayout::Full,
                false => {
                    FilterLayout::Partitioned { block_bytes: FilterLayout::BLOCK_BYTES_DEFAULT }
                }
            },
        }
    });
    FilterAdvice { budget_bytes, levels: levels.collect() }
}

/// The sorted runs of a level: each table of level 0, and all of a deeper one.
fn runs_of(report: &FilterReport, level: usize, tables: &[&FilterFacts]) -> Vec<Run> {
    let level_share = report.level_shares.get(level).copied().unwrap_or(1.0);
    let run = |tables: &[&FilterFacts]| Run {
        keys: tables.iter().map(|table| keys_of(table)).sum(),
        share: tables_per_lookup(tables).min(level_share).max(SHARE_MIN),
    };
    match level {
        0 => tables.iter().map(|table| run(&[*table])).collect(),
        _ => vec![run(tables)],
    }
}

fn tables_per_lookup(tables: &[&FilterFacts]) -> f64 {
    tables.iter().map(|table| table.lookup_share).sum()
}

fn keys_of(table: &FilterFacts) -> u64 {
    if table.keys > 0 { table.keys } else { table.entries }
}

/// The false-positive rate of FastLocalBloom by thousandths of a bit per key; 0 is no filter.
fn false_positive_rate(millibits: u32) -> f64 {
    let rate = || Encoding::FastLocalBloom { millibits }.expected_fpr();
    Some(millibits).filter(|millibits| *millibits > 0).and_then(|_| rate()).unwrap_or(1.0)
}

fn even_millibits(keys: u64, budget_bytes: u64) -> u32 {
    whole_filter(u128::from(budget_bytes) * 8_000 / u128::from(keys.max(1)))
}

/// A filter with less than one bit per key is left out, and memory beyond the most is not used.
fn whole_filter(millibits: u128) -> u32 {
    match millibits {
        0..1_000 => 0,
        _ => millibits.min(u128::from(MILLIBITS_MAX)) as u32,
    }
}

fn fpr_now(tables: &[&FilterFacts]) -> Option<f64> {
    let rates = tables.iter().map(|table| {
        Some(table.lookup_share * if table.is_asked { table.expected_fpr? } else { 1.0 })
    });
    rates.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use siftdb::WantedFilter;

    fn table(level: usize, keys: u64, fpr: Option<f64>) -> FilterFacts {
        let mut table = FilterFacts::default();
        (table.level, table.keys, table.bytes) = (level, keys, keys);
        (table.expected_fpr, table.is_asked, table.lookup_share) = (fpr, true, 1.0);
        table
    }

    fn shared(lookup_share: f64, mut table: FilterFacts) -> FilterFacts {
        table.lookup_share = lookup_share;
        table
    }

    fn report(tables: Vec<FilterFacts>) -> FilterReport {
        let mut report = FilterReport::default();
        report.wanted = vec![Some(WantedFilter::default()); 7];
        (report.tables, report.pinned_bytes_max) = (tables, 1 << 20);
        report
    }

    #[test]
    fn a_divided_budget_beats_an_even_one() {
        let sizes = [(1, 100_000), (2, 1_000_000), (3, 10_000_000)];
        let tables = sizes.map(|(level, keys)| table(level, keys, Some(0.02)));
        // Ten bits a key.
        let advice = advice(&report(tables.into()), 11_100_000 * 10 / 8);
        assert!((advice.fpr_now().unwrap() - 0.06).abs() < 1e-12);
        assert!((advice.fpr_even() - 0.0290).abs() < 0.0001, "{}", advice.fpr_even());
        assert!((advice.fpr_divided() - 0.0138).abs() < 0.0004, "{}", advice.fpr_divided());
        let bits: Vec<f64> = advice.levels.iter().map(|level| level.bits_divided).collect();
        assert!((bits[0] - 20.3).abs() < 0.3 && (bits[2] - 9.4).abs() < 0.1, "{bits:?}");
        let bytes: u64 = advice.levels.iter().map(|level| level.bytes_divided).sum();
        assert!(bytes <= advice.budget_bytes + 3 && bytes > advice.budget_bytes * 99 / 100);
        let layouts = advice.levels.iter().map(|level| level.layout.to_string());
        assert_eq!(layouts.collect::<Vec<_>>(), ["full", "partitioned:4096", "partitioned:4096"]);
    }

    #[test]
    fn overlapping_level_0_tables_get_equal_bits() {
        let mut none = table(0, 0, None);
        (none.entries, none.is_asked) = (500, false);
        let tables = vec![
            table(0, 1_000, Some(0.01)),
            none,
            shared(0.9, table(1, 9_000, Some(0.1))),
            shared(0.1, table(1, 1_000, Some(0.2))),
        ];
        let advice = advice(&report(tables), 14_375);
        let [top, deep] = &advice.levels[..] else { panic!("{advice:?}") };
        assert_eq!((top.tables_per_lookup, top.keys), (2.0, 1_500));
        assert_eq!((deep.tables_per_lookup, deep.keys), (1.0, 10_000));
        assert!((top.fpr_now.unwrap() - 1.01).abs() < 1e-12);
        assert!((deep.fpr_now.unwrap() - 0.11).abs() < 1e-12);
        assert_eq!((top.bits_even, deep.bits_even), (10.0, 10.0));
        assert!((advice.fpr_even() - 3.0 * deep.fpr_even).abs() < 1e-12);
        assert!(top.bits_divided > 12.0 && deep.bits_divided > 8.0, "{advice:?}");
    }

    #[test]
    fn disjoint_level_0_tables_count_as_one_run() {
        let third = || shared(1.0 / 3.0, table(0, 1_000, Some(0.03)));
        let advice = advice(&report(vec![third(), third(), third()]), 3_750);
        let [top] = &advice.levels[..] else { panic!("{advice:?}") };
        assert!((top.tables_per_lookup - 1.0).abs() < 1e-12 && top.keys == 3_000, "{top:?}");
        assert!((top.fpr_now.unwrap() - 0.03).abs() < 1e-12, "{top:?}");
        assert!((advice.fpr_even() - false_positive_rate(10_000)).abs() < 1e-12);
        assert!((advice.fpr_divided() - advice.fpr_even()).abs() < 1e-9, "{advice:?}");
    }

    #[test]
    fn advice_covers_little_much_and_no_memory() {
        let tables = || vec![table(1, 1_000, Some(0.01)), table(2, 1_000_000, None)];
        let little = advice(&report(tables()), 2_000);
        assert_eq!(little.fpr_now(), None, "a policy that does not say");
        assert_eq!((little.levels[1].bits_even, little.fpr_even()), (0.0, 2.0));
        assert!(little.levels[0].bits_divided > 10.0 && little.levels[1].bits_divided == 0.0);
        let much = advice(&report(tables()), u64::MAX);
        assert!(much.levels.iter().all(|level| level.bits_divided == 30.0));
        assert!(much.levels.iter().all(|level| level.bits_even == 30.0));
        let empty = advice(&report(Vec::new()), 1_000);
        assert_eq!((empty.fpr_now(), empty.fpr_even(), empty.levels.len()), (Some(0.0), 0.0, 0));
    }
}
