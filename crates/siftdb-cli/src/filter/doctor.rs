//! The doctor of `siftdb filter stats`: finds problems with filters in a report, and says what to
//! do about them.
//!
//! [`findings`] is a pure function of the report. It judges rates only after a thousand lookups,
//! and only if the whole 95 % interval is clearly above the expected rate, because flaky warnings
//! get ignored. A filter that does better than expected (few keys, rounded up to a line) is not a
//! finding.
//!
//! The kinds of findings:
//!
//! - `no-filter`: tables have no filter though the settings ask for one.
//! - `unknown-policy`: filters are not asked, because their policy or prefix extractor is not
//!   registered.
//! - `weaker`: filters have a clearly higher rate than those that the settings ask for.
//! - `budget`: the filters under one budget take more than it, or much less.
//! - `above-expected`: the observed rate is above the expected rate of the current tables.
//! - `short-hash`: a filter with 32-bit hashes has too many keys: some keys share a hash, which
//!   raises the rate.
//! - `damaged`: filters are damaged, so lookups do not use them; answers stay right.
//! - `unreadable`: filters could not be read, in a report that did not check them for damage.
//! - `larger-than-cache`: all filters together are larger than the cache.
//! - `larger-than-pinned`: filters that are read whole are larger than the memory in which they may
//!   be pinned.
//! - `does-not-pay`: nearly every lookup that asks the filters of a level finds its key there.
//! - `empty-scans`: most scans find nothing, and enter tables without a range filter.

use crate::numbers::percent;
use crate::text::{counted, keyspace_option};
use serde::Serialize;
use serde_json::{Value, json};
use siftdb::filter::Encoding;
use siftdb::{FilterFacts, FilterReport, LevelStats, WantedFilter};
use siftdb_cli::experiment::bytes;

/// Lookups before rates are judged.
const LOOKUPS_MIN: u64 = 1_000;

/// A rate counts as higher than another if it is more than this many times as high.
const MARGIN: f64 = 1.2;

/// If this share of lookups finds its key, a filter saves nearly nothing.
const FOUND_SHARE: f64 = 0.95;

/// If this share of scans finds nothing, and each enters so many tables without a range filter,
/// such filters would save something.
const EMPTY_SHARE: f64 = 0.5;
const ENTERED_MIN: f64 = 0.5;

/// Filters under one budget cause a finding if they take a smaller or larger share of it.
const BUDGET_USED: [f64; 2] = [0.9, 1.02];

/// Filters with this many bits a key need not use up their budget.
const BITS_ENOUGH: u64 = 16;

/// Keys of one filter above which a hash of 32 bits raises the rate noticeably.
const SHORT_HASH_KEYS: u64 = 3_000_000;

/// A problem with filters.
#[derive(Serialize)]
pub struct Finding {
    /// Names the problem for programs.
    pub kind: &'static str,
    /// The problem and its remedy, in words.
    pub what: String,
    /// The figures that the words contain, by name.
    #[serde(flatten)]
    figures: Value,
}

/// The problems of each level, then those of all levels together. `keyspace` is the name of the
/// keyspace that the report is about.
pub fn findings(report: &FilterReport, keyspace: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for level in 0..report.wanted.len().max(report.stats.levels.len()) {
        let level = Level {
            level,
            tables: report.level(level).collect(),
            wanted: report.wanted.get(level).and_then(Option::as_ref),
            counts: report.stats.levels.get(level).cloned().unwrap_or_default(),
        };
        findings.extend(level.without_filter());
        findings.extend(level.unknown_policies(report));
        findings.extend(level.weaker());
        findings.extend(level.damaged());
        findings.extend(level.above_expected());
        findings.extend(level.short_hash());
        findings.extend(level.does_not_pay());
    }
    findings.extend(unreadable(report));
    findings.extend(off_budget(report));
    findings.extend(too_large(report));
    findings.extend(empty_scans(report, keyspace));
    findings
}

/// What a report says about one level.
struct Level<'a> {
    level: usize,
    tables: Vec<&'a FilterFacts>,
    wanted: Option<&'a WantedFilter>,
    counts: LevelStats,
}

impl Level<'_> {
    fn finding(&self, kind: &'static str, mut figures: Value, what: &str) -> Finding {
        figures["level"] = json!(self.level);
        Finding { kind, what: format!("level {}: {what}", self.level), figures }
    }

    fn asked(&self) -> impl Iterator<Item = &FilterFacts> {
        self.tables.iter().copied().filter(|table| table.is_asked)
    }

    fn without_filter(&self) -> Option<Finding> {
        self.wanted?;
        let tables = self.tables.iter().filter(|table| table.policy.is_empty()).count() as u64;
        let what = format!(
            "{} without a filter, searched by every lookup in their range; rebuild the filters",
            counted(tables, "table")
        );
        (tables > 0).then(|| self.finding("no-filter", json!({ "tables": tables }), &what))
    }

    fn unknown_policies(&self, report: &FilterReport) -> impl Iterator<Item = Finding> {
        let groups = report.groups(self.level).into_iter();
        let unknown = groups.filter(|group| !group.like.is_asked && !group.like.policy.is_empty());
        unknown.map(|group| {
            let (tables, policy) = (group.tables, group.like.policy);
            let what = format!(
                "{} with filters of the policy \"{}\", which, or whose rule of prefixes, is not \
                 known here, so they are not asked; open with it \
                 (Options::register_filter_policy, register_prefix) or rebuild the filters",
                counted(tables, "table"),
                policy.escape_debug()
            );
            self.finding("unknown-policy", json!({ "tables": tables, "policy": policy }), &what)
        })
    }

    fn weaker(&self) -> Option<Finding> {
        let wanted = self.wanted?;
        let wanted_fpr = wanted.expected_fpr?;
        // With the wanted bits, a rate may still be higher: it varies with the number of keys.
        let has_wanted_bits = |table: &FilterFacts| {
            table.encoding == wanted.encoding && table.asked_bits_per_key >= wanted.bits_per_key
        };
        // Filters under a budget are judged together.
        let judged = self.asked().filter(|table| !table.shares_budget && !has_wanted_bits(table));
        let rates = judged.filter_map(|table| table.expected_fpr);
        let rates: Vec<f64> = rates.filter(|rate| *rate > MARGIN * wanted_fpr).collect();
        let (tables, expected_fpr) = (rates.len() as u64, rates.into_iter().reduce(f64::max)?);
        let what = format!(
            "{} with filters that let up to {} through, where the options ask for {}; rebuild the \
             filters",
            counted(tables, "table"),
            percent(expected_fpr),
            percent(wanted_fpr)
        );
        let figures =
            json!({ "tables": tables, "expected_fpr": expected_fpr, "wanted_fpr": wanted_fpr });
        Some(self.finding("weaker", figures, &what))
    }

    fn damaged(&self) -> Option<Finding> {
        let mut damaged =
            self.tables.iter().filter_map(|table| Some((table, table.damage.as_ref()?)));
        let (first, damage) = damaged.next()?;
        let (tables, table, offset) = (1 + damaged.count() as u64, first.table, damage.offset);
        let searches = self.counts.not_consulted;
        let what = format!(
            "{} with a damaged filter (table {table} at byte {offset}: {}), searched without it; \
             {searches} searches asked no filter so far; rebuild the filters",
            counted(tables, "table"),
            damage.what
        );
        let figures = json!({
            "tables": tables, "table": table, "offset": offset, "not_consulted": searches
        });
        Some(self.finding("damaged", figures, &what))
    }

    fn above_expected(&self) -> Option<Finding> {
        let observed_fpr = self.counts.observed_fpr()?;
        let (low, _) = self.counts.observed_fpr_interval()?;
        // If one policy does not know its rate, the expected rate of the level is unknown.
        let expected: Option<Vec<f64>> = self.asked().map(|table| table.expected_fpr).collect();
        let expected_fpr = expected?.into_iter().reduce(f64::max)?;
        let what = format!(
            "{} false positives observed, at least {} by the 95 % interval, where {} are expected; \
             if tables were rewritten since counting began, count afresh (--probe, \
             Options::reset_stats); else the same few absent keys are asked for again and again, \
             which more bits may cure",
            percent(observed_fpr),
            percent(low),
            percent(expected_fpr)
        );
        let figures =
            json!({ "observed_fpr": observed_fpr, "low": low, "expected_fpr": expected_fpr });
        let lookups = self.counts.negatives + self.counts.false_positives;
        (lookups >= LOOKUPS_MIN && low > MARGIN * expected_fpr)
            .then(|| self.finding("above-expected", figures, &what))
    }

    /// The table of the level with the most keys in one filter, if its hash is too short.
    fn short_hash(&self) -> Option<Finding> {
        let large = self.tables.iter().filter(|table| table.keys_per_filter > SHORT_HASH_KEYS);
        let lost = large.filter_map(|table| {
            let millibits = (1_000.0 * table.asked_bits_per_key?).round() as u64;
            let encoding = Encoding::of_table(&table.encoding, millibits)?;
            let expected_fpr = encoding.expected_fpr_of(table.keys_per_filter)?;
            let equal_hash = encoding.equal_hash_rate(table.keys_per_filter)?;
            let few_keys_fpr = (expected_fpr - equal_hash) / (1.0 - equal_hash);
            (expected_fpr > few_keys_fpr).then_some((table, expected_fpr, few_keys_fpr))
        });
        let (table, expected_fpr, few) = lost.max_by_key(|(table, ..)| table.keys_per_filter)?;
        let (number, keys, encoding) = (table.table, table.keys_per_filter, &table.encoding);
        let what = format!(
            "table {number} has {keys} keys in one filter of {encoding}, whose hash of 32 bits is \
             too short for them: {} false positives are expected instead of {}; rebuild the \
             filters with fast-local-bloom, or partitioned",
            percent(expected_fpr),
            percent(few)
        );
        let figures = json!({
            "table": number, "encoding": encoding, "keys": keys, "expected_fpr": expected_fpr,
            "few_keys_fpr": few
        });
        Some(self.finding("short-hash", figures, &what))
    }

    fn does_not_pay(&self) -> Option<Finding> {
        let filter_bytes: u64 = self.asked().map(|table| table.bytes).sum();
        // Those without the filter found their keys, but for one in thousands.
        let hits = self.counts.true_positives + self.counts.not_paying;
        let lookups = hits + self.counts.negatives + self.counts.false_positives;
        let found = hits as f64 / lookups.max(1) as f64;
        let what = format!(
            "{} of {lookups} lookups that came so far found their key, so its filters ({}) save \
             little; Options::filter_at_level({}, Filter::none()) saves their memory",
            percent(found),
            bytes(filter_bytes),
            self.level
        );
        let figures = json!({ "lookups": lookups, "found": found, "filter_bytes": filter_bytes });
        (filter_bytes > 0 && lookups >= LOOKUPS_MIN && found >= FOUND_SHARE)
            .then(|| self.finding("does-not-pay", figures, &what))
    }
}

/// A report that read all filters knows the damaged ones, so it ignores the counter.
fn unreadable(report: &FilterReport) -> Option<Finding> {
    let errors = report.stats.filter_errors;
    let what = format!(
        "filters could not be read {errors} times since counting began; `siftdb filter stats` \
         names the tables if they are damaged now, and rebuilding the filters mends them"
    );
    let figures = json!({ "errors": errors });
    (errors > 0 && !report.were_read).then_some(Finding { kind: "unreadable", what, figures })
}

fn off_budget(report: &FilterReport) -> Option<Finding> {
    let budget_bytes = report.budget_bytes?;
    let tables = || report.tables.iter().filter(|table| table.shares_budget);
    let filter_bytes: u64 = tables().map(|table| table.bytes).sum();
    let keys: u64 = tables().map(|table| table.keys.max(table.entries)).sum();
    // A filter is rounded up to a line of 64 bytes.
    let rounding = 64 * tables().count() as u64;
    let [least, most] = BUDGET_USED.map(|share| (share * budget_bytes as f64) as u64);
    let is_short = filter_bytes + rounding < least.min(BITS_ENOUGH * keys / 8);
    let share = 100.0 * filter_bytes as f64 / budget_bytes.max(1) as f64;
    let what = format!(
        "the filters take {}, {share:.0} % of their budget of {}; compactions change that, and \
         rebuilding the filters does it now",
        bytes(filter_bytes),
        bytes(budget_bytes)
    );
    let figures = json!({ "filter_bytes": filter_bytes, "budget_bytes": budget_bytes });
    let is_off = is_short || filter_bytes > most + rounding;
    is_off.then_some(Finding { kind: "budget", what, figures })
}

fn too_large(report: &FilterReport) -> Option<Finding> {
    let asked = || report.tables.iter().filter(|table| table.is_asked);
    let all: u64 = asked().map(|table| table.bytes).sum();
    let whole = asked().filter(|table| !table.layout.starts_with("partitioned"));
    let whole: u64 = whole.map(|table| table.bytes).sum();
    let (cache, pinned) = (report.stats.cache_capacity_bytes, report.pinned_bytes_max);
    if all > cache {
        let what = format!(
            "filters take {}, more than the cache of {}, so lookups read filters from files; raise \
             block_cache_bytes, or take fewer bits, or no filter at the last level",
            bytes(all),
            bytes(cache)
        );
        let figures = json!({ "filter_bytes": all, "cache_bytes": cache });
        return Some(Finding { kind: "larger-than-cache", what, figures });
    }
    let what = format!(
        "filters that are read whole take {}, and {} may stay in memory: the rest comes and goes \
         through the cache; raise block_cache_bytes or filter_pinned_share, or rebuild them \
         partitioned",
        bytes(whole),
        bytes(pinned)
    );
    let figures = json!({ "filter_bytes": whole, "pinned_bytes_max": pinned });
    (whole > pinned).then_some(Finding { kind: "larger-than-pinned", what, figures })
}

/// Scans that a range filter could answer: most find nothing, and they enter tables without one.
pub fn empty_scans(report: &FilterReport, keyspace: &str) -> Option<Finding> {
    let (scans, empty) = (report.stats.scans, report.stats.scans_empty);
    let has_none = |level: &usize| {
        report.groups(*level).iter().any(|group| group.like.range_bits_per_key.is_none())
    };
    let levels = report.stats.levels.iter().enumerate().filter(|(level, _)| has_none(level));
    let entered: u64 = levels.map(|(_, counts)| counts.scan_tables).sum();
    let each = entered as f64 / scans.max(1) as f64;
    let share = empty as f64 / scans.max(1) as f64;
    let (share_empty, of) = (percent(share), keyspace_option(keyspace));
    let what = format!(
        "{share_empty} of {scans} scans found nothing, and a scan entered {each:.1} tables without \
         a range filter; for keys that are numbers, times or UUIDs take Filter::ranges(12.0), or \
         `siftdb settings DIR{of} --set filter='bloom ranges=12'` and `siftdb filter rebuild \
         DIR{of}`; `siftdb filter stats DIR{of} --probe-ranges FILE` then counts what they exclude"
    );
    let figures = json!({ "scans": scans, "empty": share, "tables_per_scan": each });
    let pays = scans >= LOOKUPS_MIN && share >= EMPTY_SHARE && each >= ENTERED_MIN;
    pays.then_some(Finding { kind: "empty-scans", what, figures })
}

#[cfg(test)]
mod tests {
    use super::*;
    use siftdb::FilterDamage;

    /// The default of a type that only its own crate can write as a literal, with changes.
    fn with<T: Default>(change: impl FnOnce(&mut T)) -> T {
        changed(T::default(), change)
    }

    fn changed<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
        change(&mut value);
        value
    }

    fn table(encoding: &str, bits: f64, keys: u64) -> FilterFacts {
        let known = Encoding::of_table(encoding, (1_000.0 * bits) as u64);
        with(|table: &mut FilterFacts| {
            (table.level, table.table, table.entries) = (1, 7, keys);
            (table.policy, table.encoding) = ("a.Policy".into(), encoding.into());
            table.layout = "full".into();
            table.asked_bits_per_key = Some(bits);
            (table.keys, table.keys_per_filter) = (keys, keys);
            table.bytes = (bits * keys as f64 / 8.0) as u64;
            table.expected_fpr = known.and_then(|known| known.expected_fpr_of(keys));
            table.is_asked = true;
        })
    }

    /// One table at level 1 where 10 bits of FastLocalBloom are wanted, and these counters.
    fn report(
        table: FilterFacts,
        negatives: u64,
        found: u64,
        false_positives: u64,
    ) -> FilterReport {
        let wanted = with(|wanted: &mut WantedFilter| wanted.expected_fpr = Some(0.0095));
        let counts = with(|counts: &mut LevelStats| {
            (counts.negatives, counts.true_positives) = (negatives, found);
            counts.false_positives = false_positives;
        });
        with(|report: &mut FilterReport| {
            report.tables = vec![table];
            report.wanted = vec![None, Some(wanted)];
            report.stats.levels = vec![LevelStats::default(), counts];
            report.stats.cache_capacity_bytes = 1 << 40;
            report.pinned_bytes_max = 1 << 40;
        })
    }

    fn kinds(report: &FilterReport) -> Vec<&'static str> {
        let findings = findings(report, "default");
        for finding in &findings {
            let text = &finding.what;
            assert!(text.contains(';') && text.len() > 60 && !text.contains('\n'), "{text}");
        }
        findings.iter().map(|finding| finding.kind).collect()
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
        assert!(findings(&FilterReport::default(), "default").is_empty());
        let mut none_wanted = report(with(|table: &mut FilterFacts| table.level = 1), 0, 0, 0);
        none_wanted.wanted[1] = None;
        assert!(kinds(&none_wanted).is_empty());
    }

    #[test]
    fn missing_unknown_and_weak_filters_are_named() {
        let none = with(|table: &mut FilterFacts| (table.level, table.entries) = (1, 5));
        assert_eq!(kinds(&report(none, 0, 0, 0)), ["no-filter"]);
        let unknown = changed(good(), |table| (table.is_asked, table.expected_fpr) = (false, None));
        assert_eq!(kinds(&report(unknown, 0, 0, 0)), ["unknown-policy"]);
        let weak = table("fast-local-bloom", 5.0, 1_000);
        assert_eq!(kinds(&report(weak, 0, 0, 0)), ["weaker"]);
        let custom = changed(good(), |table| table.expected_fpr = None);
        assert!(kinds(&report(custom, 10, 10, 1_000_000)).is_empty(), "no rate to hold it to");
    }

    #[test]
    fn filters_under_a_budget_are_judged_by_it() {
        let judged = |bits: f64, budget_bytes: u64| {
            let mut table = table("fast-local-bloom", bits, 1_000_000);
            table.shares_budget = true;
            let mut report = report(table, 0, 0, 0);
            report.budget_bytes = Some(budget_bytes);
            kinds(&report)
        };
        // Weaker than an even division, as the largest level should be.
        assert!(judged(5.0, 650_000).is_empty());
        assert_eq!(judged(5.0, 600_000), ["budget"], "too much");
        assert_eq!(judged(5.0, 750_000), ["budget"], "too little");
        assert!(judged(16.0, 10_000_000).is_empty(), "more bits would be of no use");
    }

    #[test]
    fn damaged_filters_are_named() {
        let damage = with(|damage: &mut FilterDamage| {
            (damage.offset, damage.what) = (99, "wrong checksum".into());
        });
        let broken_table = changed(good(), |table| table.damage = Some(damage));
        let mut broken = report(broken_table, 0, 0, 0);
        assert_eq!(kinds(&broken), ["damaged"]);
        let text = &findings(&broken, "default")[0].what;
        assert!(text.contains("table 7 at byte 99: wrong checksum"), "{text}");
        broken.stats.filter_errors = 3;
        assert_eq!(kinds(&broken), ["damaged", "unreadable"]);
        let sound =
            changed(broken, |report| (report.tables, report.were_read) = (vec![good()], true));
        assert!(kinds(&sound).is_empty(), "the errors are history");
    }

    #[test]
    fn a_high_rate_needs_its_whole_interval_above() {
        // 1.5 % of 500 lookups, of 2,000 and of 20,000: only the last is a finding.
        assert!(kinds(&report(good(), 492, 0, 8)).is_empty());
        assert!(kinds(&report(good(), 1_970, 0, 30)).is_empty());
        assert_eq!(kinds(&report(good(), 19_700, 0, 300)), ["above-expected"]);
        // LevelDB's probes depend on each other, so 1.45 % are expected of 100,000 keys. The
        // options ask for this encoding, so it is not weaker.
        let leveldb = |negatives, false_positives| {
            let table = table("leveldb-bloom", 10.0, 100_000);
            let mut report = report(table.clone(), negatives, 0, false_positives);
            let wanted = report.wanted[1].as_mut().unwrap();
            (wanted.encoding, wanted.bits_per_key) = (table.encoding, Some(10.0));
            report
        };
        assert!(kinds(&leveldb(98_400, 1_600)).is_empty());
        assert_eq!(kinds(&leveldb(97_500, 2_500)), ["above-expected"]);
        // A bad rate is no finding while there are few lookups.
        assert!(kinds(&report(good(), 0, 0, 999)).is_empty());
        assert_eq!(kinds(&report(good(), 0, 0, 1_000)), ["above-expected"]);
    }

    #[test]
    fn empty_scans_want_range_filters() {
        let scanned = |scans, empty, tables, has_ranges: bool| {
            let table =
                changed(good(), |table| table.range_bits_per_key = has_ranges.then_some(12.0));
            let mut report = report(table, 0, 0, 0);
            (report.stats.scans, report.stats.scans_empty) = (scans, empty);
            report.stats.levels[1].scan_tables = tables;
            kinds(&report)
        };
        assert_eq!(scanned(1_000, 900, 950, false), ["empty-scans"]);
        assert!(scanned(1_000, 900, 950, true).is_empty(), "they have range filters");
        assert!(scanned(1_000, 900, 100, false).is_empty(), "prefixes exclude most tables");
        assert!(scanned(1_000, 400, 1_000, false).is_empty(), "most find something");
        assert!(scanned(999, 999, 999, false).is_empty(), "too few to judge");
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
        let partitioned =
            changed(table("leveldb-bloom", 10.0, 2_900), |table| table.keys = 9_000_000);
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
        small.pinned_bytes_max = 1_000_000;
        assert_eq!(kinds(&small), ["larger-than-pinned"]);
        small.tables[0].layout = "partitioned:4096".into();
        assert!(kinds(&small).is_empty());
        small.stats.cache_capacity_bytes = 1_200_000;
        assert_eq!(kinds(&small), ["larger-than-cache"]);
    }
}
