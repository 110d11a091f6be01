//! What may be wrong with filters, and what to do about it: read from a report, never guessed.
//!
//! [`FilterReport::findings`] is a pure function of the report. Rates are judged only after a
//! thousand lookups, and only where the whole 95 % interval lies clearly above what was expected:
//! a finding that comes and goes teaches people to look away. A filter that does better than
//! expected (few keys, rounded up to a line) is no finding.

use crate::admin::filter_report::{FilterDamage, FilterFacts, FilterReport, WantedFilter};
use crate::base::stats::report::LevelStats;
use crate::base::stats::text::bytes;
use crate::filter::encoding::Encoding;
use std::fmt;

/// Lookups before anything is said of them.
const LOOKUPS_MIN: u64 = 1_000;

/// A rate is above another when it is more than this many times as high.
const MARGIN: f64 = 1.2;

/// From this share of lookups that find their key on, a filter has nothing to save.
const FOUND_SHARE: f64 = 0.95;

/// Keys of one filter from which on a hash of 32 bits is too short to go unmentioned.
const SHORT_HASH_KEYS: u64 = 3_000_000;

/// Something about the filters that someone should look at; prints as what it is and what to do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FilterFinding {
    /// Tables have no filter though the options ask for one.
    NoFilter {
        /// Their level.
        level: usize,
        /// How many.
        tables: u64,
    },
    /// Filters of a policy, or a rule of prefixes, that nobody brought are not asked.
    UnknownPolicy {
        /// Their level.
        level: usize,
        /// How many tables.
        tables: u64,
        /// The name they persist.
        policy: String,
    },
    /// Filters let clearly more through than those that the options ask for.
    Weaker {
        /// Their level.
        level: usize,
        /// How many tables.
        tables: u64,
        /// The highest rate to expect of them.
        expected_fpr: f64,
        /// The rate of what the options ask for.
        wanted_fpr: f64,
    },
    /// The observed rate is above what to expect of the tables of today.
    AboveExpected {
        /// The level.
        level: usize,
        /// The observed rate.
        observed_fpr: f64,
        /// The lower end of its 95 % interval.
        low: f64,
        /// The highest rate that a table of the level may be expected to have.
        expected_fpr: f64,
    },
    /// One filter holds so many keys that hashes of 32 bits meet.
    ShortHash {
        /// The level.
        level: usize,
        /// Number of the table's file.
        table: u64,
        /// The encoding's label.
        encoding: String,
        /// Keys of one filter.
        keys: u64,
        /// The rate to expect with so many keys.
        expected_fpr: f64,
        /// The rate if no hashes met.
        few_keys_fpr: f64,
    },
    /// Filters are damaged, so lookups do without them; no answer is wrong.
    Damaged {
        /// Their level.
        level: usize,
        /// How many tables.
        tables: u64,
        /// Number of the first table's file.
        table: u64,
        /// What is wrong with that one.
        damage: FilterDamage,
        /// Searches of the level's tables that asked no filter, since counting began.
        not_consulted: u64,
    },
    /// Filters could not be read, in a report that did not look for damage itself.
    Unreadable {
        /// How many times, since counting began.
        errors: u64,
    },
    /// All filters together are larger than the cache.
    LargerThanCache {
        /// Bytes of the filters.
        filter_bytes: u64,
        /// Bytes of the cache.
        cache_bytes: u64,
    },
    /// Filters that are read whole are larger than what may stay in memory.
    LargerThanResident {
        /// Bytes of the filters in the full and block-based layouts.
        filter_bytes: u64,
        /// Bytes that may stay.
        resident_bytes_max: u64,
    },
    /// Nearly every lookup that asks the filters of a level finds its key there.
    DoesNotPay {
        /// The level.
        level: usize,
        /// Lookups that asked.
        lookups: u64,
        /// The share of them that found the key.
        found: f64,
        /// Bytes of the filters.
        filter_bytes: u64,
    },
}

impl FilterFinding {
    /// One word for programs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            FilterFinding::NoFilter { .. } => "no-filter",
            FilterFinding::UnknownPolicy { .. } => "unknown-policy",
            FilterFinding::Weaker { .. } => "weaker",
            FilterFinding::AboveExpected { .. } => "above-expected",
            FilterFinding::ShortHash { .. } => "short-hash",
            FilterFinding::Damaged { .. } => "damaged",
            FilterFinding::Unreadable { .. } => "unreadable",
            FilterFinding::LargerThanCache { .. } => "larger-than-cache",
            FilterFinding::LargerThanResident { .. } => "larger-than-resident",
            FilterFinding::DoesNotPay { .. } => "does-not-pay",
        }
    }
}

/// What to do about more false positives than are expected.
const COUNT_AFRESH: &str = "if tables were rewritten since counting began, count afresh (--probe, \
    Options::reset_stats); else the same few absent keys are asked for again and again, which \
    more bits may cure";

/// Why filters of an unknown policy are not asked, and what to do.
const UNKNOWN_POLICY: &str = "which, or whose rule of prefixes, is not known here, so they are not \
    asked; open with it (Options::register_filter_policy, register_prefix) or rebuild the filters";

/// How to find the tables whose filters could not be read.
const WHICH_DAMAGED: &str = "Db::check_filters or `siftdb filter stats` names the tables if they \
    are damaged now, and rebuilding the filters mends them";

/// What follows from filters larger than the cache, and what to do.
const BEYOND_CACHE: &str = "so lookups read filters from files; raise block_cache_bytes, or take \
    fewer bits, or no filter at the last level";

/// What follows from filters beyond their share of the cache, and what to do.
const BEYOND_SHARE: &str = "may stay in memory: the rest comes and goes through the cache; raise \
    block_cache_bytes or filter_resident_share, or rebuild them partitioned";

impl fmt::Display for FilterFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterFinding::NoFilter { level, tables } => {
                write!(
                    f,
                    "level {level}: {} without a filter, searched by every ",
                    table(*tables)
                )?;
                f.write_str("lookup in their range; rebuild the filters")
            }
            FilterFinding::UnknownPolicy { level, tables, policy } => {
                let (tables, policy) = (table(*tables), policy.escape_debug());
                write!(f, "level {level}: {tables} with filters of the policy \"{policy}\", ")?;
                f.write_str(UNKNOWN_POLICY)
            }
            FilterFinding::Weaker { level, tables, expected_fpr, wanted_fpr } => {
                let (has, wants) = (percent(*expected_fpr), percent(*wanted_fpr));
                write!(f, "level {level}: {} with filters that let up to ", table(*tables))?;
                write!(f, "{has} through, where the options ask for {wants}; ")?;
                f.write_str("rebuild the filters")
            }
            FilterFinding::AboveExpected { level, observed_fpr, low, expected_fpr } => {
                write!(f, "level {level}: {} false positives observed, ", percent(*observed_fpr))?;
                write!(f, "at least {} by the 95 % interval, ", percent(*low))?;
                write!(f, "where {} are expected; {COUNT_AFRESH}", percent(*expected_fpr))
            }
            FilterFinding::ShortHash {
                level,
                table,
                encoding,
                keys,
                expected_fpr,
                few_keys_fpr,
            } => {
                write!(f, "level {level}: table {table} has {keys} keys in one filter of ")?;
                write!(f, "{encoding}, whose hash of 32 bits is too short for them: ")?;
                let (expected, few) = (percent(*expected_fpr), percent(*few_keys_fpr));
                write!(f, "{expected} false positives are expected instead of {few}; ")?;
                f.write_str("rebuild the filters with fast-local-bloom, or partitioned")
            }
            FilterFinding::Damaged { level, tables, table: number, damage, not_consulted } => {
                write!(
                    f,
                    "level {level}: {} with a damaged filter (table {number} ",
                    table(*tables)
                )?;
                write!(f, "at byte {}: {}), searched without it; ", damage.offset, damage.what)?;
                write!(f, "{not_consulted} searches asked no filter so far; rebuild the filters")
            }
            FilterFinding::Unreadable { errors } => {
                write!(f, "filters could not be read {errors} times since counting began; ")?;
                f.write_str(WHICH_DAMAGED)
            }
            FilterFinding::LargerThanCache { filter_bytes, cache_bytes } => {
                let (filters, cache) = (bytes(*filter_bytes), bytes(*cache_bytes));
                write!(f, "filters take {filters}, more than the cache of {cache}, {BEYOND_CACHE}")
            }
            FilterFinding::LargerThanResident { filter_bytes, resident_bytes_max } => {
                let (filters, most) = (bytes(*filter_bytes), bytes(*resident_bytes_max));
                write!(f, "filters that are read whole take {filters}, and {most} {BEYOND_SHARE}")
            }
            FilterFinding::DoesNotPay { level, lookups, found, filter_bytes } => {
                write!(f, "level {level}: {} of {lookups} lookups that asked ", percent(*found))?;
                write!(f, "found their key, so its filters ({}) save ", bytes(*filter_bytes))?;
                write!(f, "little; Options::filter_at_level({level}, Filter::none()) saves ")?;
                f.write_str("their memory")
            }
        }
    }
}

fn table(count: u64) -> String {
    if count == 1 { "1 table".into() } else { format!("{count} tables") }
}

fn percent(rate: f64) -> String {
    format!("{:.3} %", 100.0 * rate)
}

/// Whether a table has what is wanted, or more bits of it: rates vary with the number of keys.
fn has_wanted_bits(table: &FilterFacts, wanted: &WantedFilter) -> bool {
    table.encoding == wanted.encoding && table.asked_bits_per_key >= wanted.bits_per_key
}

impl FilterReport {
    /// What someone should look at, level by level, then what concerns all of them.
    #[must_use]
    pub fn findings(&self) -> Vec<FilterFinding> {
        let mut findings = Vec::new();
        for level in 0..self.wanted.len().max(self.stats.levels.len()) {
            self.kinds(level, &mut findings);
            let counts = self.stats.levels.get(level).cloned().unwrap_or_default();
            findings.extend(self.damaged(level, &counts));
            findings.extend(self.above_expected(level, &counts));
            findings.extend(self.short_hash(level));
            findings.extend(self.does_not_pay(level, &counts));
        }
        findings.extend(self.unreadable());
        findings.extend(self.too_large());
        findings
    }

    fn damaged(&self, level: usize, counts: &LevelStats) -> Option<FilterFinding> {
        let damaged = || self.level(level).filter(|table| table.damage.is_some());
        let first = damaged().next()?;
        Some(FilterFinding::Damaged {
            level,
            tables: damaged().count() as u64,
            table: first.table,
            damage: first.damage.clone()?,
            not_consulted: counts.not_consulted,
        })
    }

    /// Once filters were read, what is damaged is known, and the count is history.
    fn unreadable(&self) -> Option<FilterFinding> {
        let errors = self.stats.filter_errors;
        (errors > 0 && !self.were_read).then_some(FilterFinding::Unreadable { errors })
    }

    /// What is seen of the filters themselves: missing, unknown, weak.
    fn kinds(&self, level: usize, findings: &mut Vec<FilterFinding>) {
        let wanted = self.wanted.get(level).and_then(Option::as_ref);
        let count = |is: &dyn Fn(&FilterFacts) -> bool| {
            self.level(level).filter(|table| is(table)).count() as u64
        };
        let tables = count(&|table| table.policy.is_empty());
        if tables > 0 && wanted.is_some() {
            findings.push(FilterFinding::NoFilter { level, tables });
        }
        for group in self.groups(level) {
            if !group.like.is_asked && !group.like.policy.is_empty() {
                let (tables, policy) = (group.tables, group.like.policy);
                findings.push(FilterFinding::UnknownPolicy { level, tables, policy });
            }
        }
        let Some(wanted) = wanted else { return };
        let Some(wanted_fpr) = wanted.expected_fpr else { return };
        let is_weaker = |table: &FilterFacts| {
            let lets_more_through = table.expected_fpr.is_some_and(|fpr| fpr > MARGIN * wanted_fpr);
            table.is_asked && lets_more_through && !has_wanted_bits(table, wanted)
        };
        let tables = count(&is_weaker);
        if tables > 0 {
            let rates = self.level(level).filter(|table| is_weaker(table));
            let rates = rates.filter_map(|table| table.expected_fpr);
            let expected_fpr = rates.fold(0.0, f64::max);
            findings.push(FilterFinding::Weaker { level, tables, expected_fpr, wanted_fpr });
        }
    }

    fn above_expected(&self, level: usize, counts: &LevelStats) -> Option<FilterFinding> {
        let observed_fpr = counts.observed_fpr()?;
        let (low, _) = counts.observed_fpr_interval()?;
        // With a policy among them that says nothing, nothing is known.
        let asked = self.level(level).filter(|table| table.is_asked);
        let expected: Option<Vec<f64>> = asked.map(|table| table.expected_fpr).collect();
        let expected_fpr = expected?.into_iter().reduce(f64::max)?;
        (counts.negatives + counts.false_positives >= LOOKUPS_MIN && low > MARGIN * expected_fpr)
            .then_some(FilterFinding::AboveExpected { level, observed_fpr, low, expected_fpr })
    }

    /// The table of the level that loses most by a short hash.
    fn short_hash(&self, level: usize) -> Option<FilterFinding> {
        let large = self.level(level).filter(|table| table.keys_per_filter > SHORT_HASH_KEYS);
        let lost = large.filter_map(|table| {
            let millibits = (1_000.0 * table.asked_bits_per_key?).round() as u64;
            let encoding = Encoding::of_table(&table.encoding, millibits)?;
            let keys = table.keys_per_filter;
            let expected_fpr = encoding.expected_fpr_of(keys)?;
            let equal_hash = encoding.equal_hash_rate(keys)?;
            let few_keys_fpr = (expected_fpr - equal_hash) / (1.0 - equal_hash);
            let (table, encoding) = (table.table, table.encoding.clone());
            (expected_fpr > few_keys_fpr).then_some(FilterFinding::ShortHash {
                level,
                table,
                encoding,
                keys,
                expected_fpr,
                few_keys_fpr,
            })
        });
        lost.max_by_key(|finding| match finding {
            FilterFinding::ShortHash { keys, .. } => *keys,
            _ => 0,
        })
    }

    fn does_not_pay(&self, level: usize, counts: &LevelStats) -> Option<FilterFinding> {
        let asked = self.level(level).filter(|table| table.is_asked);
        let filter_bytes: u64 = asked.map(|table| table.bytes).sum();
        let lookups = counts.negatives + counts.true_positives + counts.false_positives;
        let found = counts.true_positives as f64 / lookups.max(1) as f64;
        (filter_bytes > 0 && lookups >= LOOKUPS_MIN && found >= FOUND_SHARE)
            .then_some(FilterFinding::DoesNotPay { level, lookups, found, filter_bytes })
    }

    fn too_large(&self) -> Option<FilterFinding> {
        let asked = || self.tables.iter().filter(|table| table.is_asked);
        let filter_bytes: u64 = asked().map(|table| table.bytes).sum();
        let cache_bytes = self.stats.cache_capacity_bytes;
        if filter_bytes > cache_bytes {
            return Some(FilterFinding::LargerThanCache { filter_bytes, cache_bytes });
        }
        let whole = asked().filter(|table| !table.layout.starts_with("partitioned"));
        let filter_bytes: u64 = whole.map(|table| table.bytes).sum();
        let resident_bytes_max = self.resident_bytes_max;
        (filter_bytes > resident_bytes_max)
            .then_some(FilterFinding::LargerThanResident { filter_bytes, resident_bytes_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::stats::report::Stats;

    fn table(encoding: &str, bits: f64, keys: u64) -> FilterFacts {
        let known = Encoding::of_table(encoding, (1_000.0 * bits) as u64);
        FilterFacts {
            level: 1,
            table: 7,
            entries: keys,
            policy: "a.Policy".into(),
            encoding: encoding.into(),
            layout: "full".into(),
            asked_bits_per_key: Some(bits),
            keys,
            keys_per_filter: keys,
            bytes: (bits * keys as f64 / 8.0) as u64,
            expected_fpr: known.and_then(|known| known.expected_fpr_of(keys)),
            is_asked: true,
            ..FilterFacts::default()
        }
    }

    /// One table at level 1 where 10 bits of FastLocalBloom are wanted, and these counters.
    fn report(
        table: FilterFacts,
        negatives: u64,
        found: u64,
        false_positives: u64,
    ) -> FilterReport {
        let wanted = WantedFilter { expected_fpr: Some(0.0095), ..WantedFilter::default() };
        let counts = LevelStats {
            negatives,
            true_positives: found,
            false_positives,
            ..LevelStats::default()
        };
        FilterReport {
            tables: vec![table],
            wanted: vec![None, Some(wanted)],
            stats: Stats {
                levels: vec![LevelStats::default(), counts],
                cache_capacity_bytes: 1 << 40,
                ..Stats::default()
            },
            resident_bytes_max: 1 << 40,
            ..FilterReport::default()
        }
    }

    fn kinds(report: &FilterReport) -> Vec<&'static str> {
        let findings = report.findings();
        for finding in &findings {
            let text = finding.to_string();
            assert!(text.contains(';') && text.len() > 60 && !text.contains('\n'), "{text}");
        }
        findings.iter().map(FilterFinding::kind).collect()
    }

    fn good() -> FilterFacts {
        table("fast-local-bloom", 10.0, 1_000_000)
    }

    #[test]
    fn healthy_filters_give_no_finding() {
        assert!(kinds(&report(good(), 0, 0, 0)).is_empty());
        assert!(kinds(&report(good(), 99_000, 500, 1_000)).is_empty());
        // Better than wanted, better than expected.
        assert!(kinds(&report(table("fast-local-bloom", 16.0, 10), 1_000_000, 0, 0)).is_empty());
        assert!(FilterReport::default().findings().is_empty());
        let mut none_wanted = report(FilterFacts { level: 1, ..FilterFacts::default() }, 0, 0, 0);
        none_wanted.wanted[1] = None;
        assert!(kinds(&none_wanted).is_empty());
    }

    #[test]
    fn missing_unknown_and_weak_filters_are_named() {
        let none = FilterFacts { level: 1, entries: 5, ..FilterFacts::default() };
        assert_eq!(kinds(&report(none, 0, 0, 0)), ["no-filter"]);
        let unknown = FilterFacts { is_asked: false, expected_fpr: None, ..good() };
        assert_eq!(kinds(&report(unknown, 0, 0, 0)), ["unknown-policy"]);
        let weak = table("fast-local-bloom", 5.0, 1_000);
        assert_eq!(kinds(&report(weak, 0, 0, 0)), ["weaker"]);
        let custom = FilterFacts { expected_fpr: None, ..good() };
        assert!(kinds(&report(custom, 10, 10, 1_000_000)).is_empty(), "no rate to hold it to");
    }

    #[test]
    fn damaged_filters_are_named() {
        let damage = FilterDamage { offset: 99, what: "wrong checksum".into() };
        let mut broken = report(FilterFacts { damage: Some(damage), ..good() }, 0, 0, 0);
        assert_eq!(kinds(&broken), ["damaged"]);
        let text = broken.findings()[0].to_string();
        assert!(text.contains("table 7 at byte 99: wrong checksum"), "{text}");
        broken.stats.filter_errors = 3;
        assert_eq!(kinds(&broken), ["damaged", "unreadable"]);
        let sound = FilterReport { tables: vec![good()], were_read: true, ..broken };
        assert!(kinds(&sound).is_empty(), "the errors are history");
    }

    #[test]
    fn a_high_rate_needs_its_whole_interval_above() {
        // 1.5 % of 500 lookups, of 2,000, and of 20,000.
        assert!(kinds(&report(good(), 492, 0, 8)).is_empty());
        assert!(kinds(&report(good(), 1_970, 0, 30)).is_empty());
        assert_eq!(kinds(&report(good(), 19_700, 0, 300)), ["above-expected"]);
        // LevelDB's probes depend on each other: 1.45 % are expected of 100,000 keys, and as it
        // was asked for, it is not weaker.
        let leveldb = |negatives, false_positives| {
            let table = table("leveldb-bloom", 10.0, 100_000);
            let mut report = report(table.clone(), negatives, 0, false_positives);
            let wanted = report.wanted[1].as_mut().unwrap();
            (wanted.encoding, wanted.bits_per_key) = (table.encoding, Some(10.0));
            report
        };
        assert!(kinds(&leveldb(98_400, 1_600)).is_empty());
        assert_eq!(kinds(&leveldb(97_500, 2_500)), ["above-expected"]);
        // Few lookups, however bad.
        assert!(kinds(&report(good(), 0, 0, 999)).is_empty());
        assert_eq!(kinds(&report(good(), 0, 0, 1_000)), ["above-expected"]);
    }

    #[test]
    fn short_hashes_lose_with_millions_of_keys() {
        for (encoding, keys, expected) in [
            ("legacy-bloom", 3_000_000, vec![]),
            ("legacy-bloom", 3_000_001, vec!["weaker", "short-hash"]),
            ("leveldb-bloom", 3_000_001, vec!["short-hash"]),
            ("fast-local-bloom", 50_000_000, vec![]),
        ] {
            let mut found = kinds(&report(table(encoding, 10.0, keys), 0, 0, 0));
            if expected.is_empty() {
                found.retain(|kind| *kind != "weaker");
            }
            assert_eq!(found, expected, "{encoding}, {keys} keys");
        }
        let partitioned = FilterFacts { keys: 9_000_000, ..table("leveldb-bloom", 10.0, 2_900) };
        assert!(kinds(&report(partitioned, 0, 0, 0)).is_empty());
    }

    #[test]
    fn levels_that_always_hit_need_no_filter() {
        assert!(kinds(&report(good(), 60, 940, 0)).is_empty());
        assert!(kinds(&report(good(), 0, 999, 0)).is_empty());
        assert_eq!(kinds(&report(good(), 50, 950, 0)), ["does-not-pay"]);
    }

    #[test]
    fn filter_memory_is_compared_with_the_cache() {
        let mut small = report(good(), 0, 0, 0);
        small.resident_bytes_max = 1_000_000;
        assert_eq!(kinds(&small), ["larger-than-resident"]);
        small.tables[0].layout = "partitioned:4096".into();
        assert!(kinds(&small).is_empty());
        small.stats.cache_capacity_bytes = 1_200_000;
        assert_eq!(kinds(&small), ["larger-than-cache"]);
    }
}
