//! Prefixes: the leading parts of keys, which a filter holds besides whole keys or instead of them.
//!
//! A filter of prefixes can say that a table has no key of a range, if all keys of the range share
//! a prefix. A scan then skips the table. [`Prefix`] is the choice: three built-in rules, or a
//! user's [`PrefixExtractor`]. Each table persists the id of its rule, parameters included, and is
//! asked by that rule. A built-in rule is made from the id; a user's is looked up among those
//! registered at open. With an unknown id the table's prefixes are not consulted.
//!
//! Users' code runs guarded and its answers are checked. [`Prefix::extract_checked`] is for
//! building, where a broken contract is an error; the others are for reading, where it is `None`.
//! The layout of a table decides what goes into a filter.

use crate::policy::{check_name, guarded};
use std::fmt::Debug;
use std::sync::Arc;

/// A rule of your own that says which leading part of a key is its prefix.
///
/// # The contract
///
/// 1. **A prefix is a leading part of its key**: the key's first n bytes, n from 0 to all of them.
///    `None` means that the key has no prefix (it is *out of the domain*); a filter holds such a
///    key only as a whole.
/// 2. **The same key always has the same prefix**, today and after an upgrade.
/// 3. **The id is persisted** with every table and decides, by exact equality, whether a table's
///    prefixes may be asked for. Whatever changes a prefix of any key changes the id: a rule with
///    a parameter names the parameter, as in `example.first-words.2`. Tables under another id are
///    read without their prefixes, which costs time and never an answer. An id has 1 to 255
///    printable ASCII characters and none of the beginnings `siftdb.`, `rocksdb.`, `leveldb.`.
/// 4. **[`prefix_of_all`](Self::prefix_of_all) speaks for every key**. If it returns `p` for
///    `common`, every key that begins with `common` must be in the domain and have the prefix `p`.
///    That includes `common` itself and keys that were never written. A scan trusts it, so a wrong
///    result hides entries. When in doubt, return `None`; then scans skip no table.
/// 5. **Keys of one prefix should be neighbours** in the order of keys. Otherwise each run of them
///    adds the prefix again; the filter grows and stays right.
/// 6. **No error channel.** A panic, or a prefix that is no leading part, fails the flush or
///    compaction that meets it, and on a read means that no filter is asked. Methods are called by
///    several threads at once and should not block.
///
/// # Example
///
/// The first word, for keys that have a space:
///
/// ```
/// # use siftdb_filter::PrefixExtractor;
/// #[derive(Debug)]
/// struct FirstWord;
///
/// impl PrefixExtractor for FirstWord {
///     fn id(&self) -> &str {
///         "example.first-word"
///     }
///
///     fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
///         let space = key.iter().position(|&byte| byte == b' ')?;
///         key.get(..space)
///     }
///
///     fn prefix_of_all<'k>(&self, common: &'k [u8]) -> Option<&'k [u8]> {
///         self.prefix(common) // whatever follows the first space, the first word stays
///     }
/// }
///
/// assert_eq!(FirstWord.prefix(b"ada 1815"), Some(&b"ada"[..]));
/// assert_eq!(FirstWord.prefix_of_all(b"ad"), None); // "ada 1815" and "adam 1" begin with it
/// ```
pub trait PrefixExtractor: Send + Sync + Debug {
    /// The persisted id, parameters included; always the same.
    fn id(&self) -> &str;

    /// The prefix of `key`; `None` if it has none.
    fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]>;

    /// The prefix that every key beginning with `common` has, if there is one, as a leading part
    /// of `common`. The default answers `None`: prefixes then serve lookups, not scans.
    fn prefix_of_all<'k>(&self, common: &'k [u8]) -> Option<&'k [u8]> {
        let _ = common;
        None
    }
}

/// Which leading part of a key is its prefix.
///
/// ```
/// # use siftdb_filter::Prefix;
/// let by_tenant = Prefix::delimited(b'/', 1);
/// assert_eq!(by_tenant.extract(b"acme/order/7"), Some(&b"acme/"[..]));
/// assert_eq!(Prefix::fixed(4).extract(b"abc"), None);
/// ```
#[derive(Clone, Debug)]
pub struct Prefix(Rule);

#[derive(Clone, Debug)]
enum Rule {
    Fixed(usize),
    Capped(usize),
    Delimited { delimiter: u8, count: usize },
    Custom(Arc<dyn PrefixExtractor>),
}

const BUILT_IN: &str = "siftdb.";

/// The most bytes of a prefix, those of the longest key of siftdb.
pub const PREFIX_BYTES_MAX: usize = 65_535;

impl Prefix {
    /// The first `bytes` bytes (1 to 65,535); shorter keys have no prefix.
    #[must_use]
    pub fn fixed(bytes: usize) -> Self {
        Prefix(Rule::Fixed(bytes))
    }

    /// The first `bytes` bytes (1 to 65,535); a shorter key is its own prefix.
    #[must_use]
    pub fn capped(bytes: usize) -> Self {
        Prefix(Rule::Capped(bytes))
    }

    /// Up to and including the `count`th `delimiter` (1 to 65,535); keys with fewer have no
    /// prefix.
    #[must_use]
    pub fn delimited(delimiter: u8, count: usize) -> Self {
        Prefix(Rule::Delimited { delimiter, count })
    }

    /// A custom rule. Tables built with it record its id. Opened without the rule, their prefixes
    /// are not asked.
    #[must_use]
    pub fn custom(extractor: Arc<dyn PrefixExtractor>) -> Self {
        Prefix(Rule::Custom(extractor))
    }

    /// The id that tables persist. It is empty if a custom rule panics; nothing is persisted under
    /// an empty id.
    #[must_use]
    pub fn id(&self) -> String {
        match &self.0 {
            Rule::Fixed(bytes) => format!("{BUILT_IN}FixedPrefix.{bytes}"),
            Rule::Capped(bytes) => format!("{BUILT_IN}CappedPrefix.{bytes}"),
            Rule::Delimited { delimiter, count } => {
                format!("{BUILT_IN}DelimitedPrefix.{delimiter:02x}.{count}")
            }
            Rule::Custom(extractor) => guarded(|| extractor.id().to_string()).unwrap_or_default(),
        }
    }

    /// The built-in rule with this [id](Prefix::id); `None` if there is none.
    #[must_use]
    pub fn built_in(id: &str) -> Option<Self> {
        Prefix::for_id(id, &[])
    }

    /// The rule that tables persist under `id`; `None` if it is unknown.
    #[doc(hidden)]
    #[must_use]
    pub fn for_id(id: &str, custom: &[Arc<dyn PrefixExtractor>]) -> Option<Self> {
        if id.is_empty() {
            return None;
        }
        let custom = || custom.iter().map(|extractor| Prefix::custom(Arc::clone(extractor)));
        // Compared with the printed id, because "FixedPrefix.03" is no id of `fixed(3)`.
        built_in(id).into_iter().chain(custom()).find(|prefix| prefix.id() == id)
    }

    /// What is wrong with this choice, if anything.
    pub fn validate(&self) -> Result<(), String> {
        match &self.0 {
            Rule::Fixed(n) | Rule::Capped(n) | Rule::Delimited { count: n, .. } => {
                if (1..=PREFIX_BYTES_MAX).contains(n) {
                    return Ok(());
                }
                Err(format!("the prefix {} with {n}; it may be 1 to {PREFIX_BYTES_MAX}", self.id()))
            }
            Rule::Custom(_) => check_name("prefix extractor's id", &self.id()),
        }
    }

    /// The prefix of a key that is read; `None` also where a user's rule breaks its contract.
    #[inline]
    #[must_use]
    pub fn extract<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        match &self.0 {
            Rule::Custom(extractor) => ask_custom(key, |key| extractor.prefix(key)).ok().flatten(),
            rule => built_in_prefix(rule, key),
        }
    }

    /// The prefix of a key that is written. The error says how a user's rule broke its contract;
    /// `prefix_of_all` is checked against the prefix, too.
    #[doc(hidden)]
    #[inline]
    pub fn extract_checked<'k>(&self, key: &'k [u8]) -> Result<Option<&'k [u8]>, String> {
        let Rule::Custom(extractor) = &self.0 else { return Ok(built_in_prefix(&self.0, key)) };
        let broken = |what: String| format!("prefix extractor {extractor:?} {what}");
        let prefix = ask_custom(key, |key| extractor.prefix(key)).map_err(broken)?;
        let of_all = ask_custom(key, |key| extractor.prefix_of_all(key)).map_err(broken)?;
        if of_all.is_some() && of_all != prefix {
            let key = key.escape_ascii();
            return Err(broken(format!("has another prefix for all keys from \"{key}\" on")));
        }
        Ok(prefix)
    }

    /// The prefix of every key that begins with `common`, if there is one for certain.
    #[must_use]
    pub fn extract_for_all<'k>(&self, common: &'k [u8]) -> Option<&'k [u8]> {
        match &self.0 {
            // A longer key has more bytes than the cap.
            Rule::Fixed(bytes) | Rule::Capped(bytes) => common.get(..*bytes),
            // Later bytes do not move the delimiter.
            rule @ Rule::Delimited { .. } => built_in_prefix(rule, common),
            Rule::Custom(extractor) => {
                ask_custom(common, |common| extractor.prefix_of_all(common)).ok().flatten()
            }
        }
    }

    /// The user's rule, if it is one.
    #[doc(hidden)]
    pub fn as_custom(&self) -> Option<&Arc<dyn PrefixExtractor>> {
        match &self.0 {
            Rule::Custom(extractor) => Some(extractor),
            _ => None,
        }
    }
}

/// A built-in rule by its id.
fn built_in(id: &str) -> Option<Prefix> {
    let (kind, parameter) = id.strip_prefix(BUILT_IN)?.split_once('.')?;
    let prefix = match kind {
        "FixedPrefix" => Prefix::fixed(parameter.parse().ok()?),
        "CappedPrefix" => Prefix::capped(parameter.parse().ok()?),
        "DelimitedPrefix" => {
            let (delimiter, count) = parameter.split_once('.')?;
            Prefix::delimited(u8::from_str_radix(delimiter, 16).ok()?, count.parse().ok()?)
        }
        _ => return None,
    };
    prefix.validate().is_ok().then_some(prefix)
}

/// The prefix by a built-in rule.
#[inline]
fn built_in_prefix<'k>(rule: &Rule, key: &'k [u8]) -> Option<&'k [u8]> {
    match rule {
        Rule::Fixed(bytes) => key.get(..*bytes),
        Rule::Capped(bytes) => key.get(..key.len().min(*bytes)),
        Rule::Delimited { delimiter, count } => {
            let mut delimiters = (1..).zip(key).filter(|(_, byte)| *byte == delimiter);
            let (end, _) = delimiters.nth(count.saturating_sub(1))?;
            key.get(..end)
        }
        Rule::Custom(_) => None,
    }
}

/// The prefix that a custom rule returns for `key`. The error says how the rule broke its contract.
fn ask_custom<'k>(
    key: &'k [u8],
    rule: impl FnOnce(&'k [u8]) -> Option<&'k [u8]>,
) -> Result<Option<&'k [u8]>, String> {
    match guarded(|| rule(key)) {
        Err(panic) => Err(format!("panicked: {panic}")),
        Ok(Some(prefix)) if !key.starts_with(prefix) => {
            let (prefix, key) = (prefix.escape_ascii(), key.escape_ascii());
            Err(format!("answers \"{prefix}\", which is no leading part of \"{key}\""))
        }
        Ok(answer) => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANY_ID: &str = "siftdb\\.(Fixed|Capped|Delimited|)Prefix(\\.[0-9a-f+]{0,6}){0,3}";

    /// The letters of a key up to its first digit. `Breaks` makes it break its contract.
    #[derive(Debug, Default)]
    struct Letters(Breaks);

    #[derive(Debug, Default, PartialEq)]
    enum Breaks {
        #[default]
        Nothing,
        PanicsInId,
        PanicsInPrefix,
        NoLeadingPart,
        WrongForAll,
        Id(&'static str),
    }

    impl PrefixExtractor for Letters {
        fn id(&self) -> &str {
            assert!(self.0 != Breaks::PanicsInId, "no id today");
            if let Breaks::Id(id) = self.0 { id } else { "test.letters" }
        }

        fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
            assert!(self.0 != Breaks::PanicsInPrefix, "no prefix today");
            if self.0 == Breaks::NoLeadingPart {
                return Some(b"elsewhere");
            }
            let end = key.iter().position(u8::is_ascii_digit)?;
            key.get(..end)
        }

        fn prefix_of_all<'k>(&self, common: &'k [u8]) -> Option<&'k [u8]> {
            if self.0 == Breaks::WrongForAll { common.get(..1) } else { self.prefix(common) }
        }
    }

    fn custom(breaks: Breaks) -> Prefix {
        Prefix::custom(Arc::new(Letters(breaks)))
    }

    fn rules() -> Vec<Prefix> {
        vec![
            Prefix::fixed(1),
            Prefix::fixed(3),
            Prefix::capped(2),
            Prefix::capped(7),
            Prefix::delimited(b'a', 1),
            Prefix::delimited(b'b', 2),
            custom(Breaks::Nothing),
        ]
    }

    proptest! {
        /// Points 1, 2 and 4 of the contract, for the built-in rules as for a user's.
        #[test]
        fn a_range_prefix_is_every_keys_prefix(common in "[ab1]{0,5}", rest in "[ab1]{0,5}") {
            let key = [common.as_bytes(), rest.as_bytes()].concat();
            for rule in rules() {
                let prefix = rule.extract(&key);
                prop_assert!(prefix.is_none_or(|prefix| key.starts_with(prefix)));
                prop_assert_eq!(rule.extract_checked(&key), Ok(prefix), "{:?}", &rule);
                if let Some(of_all) = rule.extract_for_all(common.as_bytes()) {
                    prop_assert_eq!(prefix, Some(of_all), "{:?}", &rule);
                    prop_assert!(common.as_bytes().starts_with(of_all));
                }
            }
        }

        #[test]
        fn prefix_ids_round_trip_or_are_refused(id in ANY_ID) {
            if let Some(prefix) = Prefix::for_id(&id, &[]) {
                prop_assert_eq!(prefix.id(), id);
                prop_assert!(prefix.validate().is_ok());
            }
        }
    }

    #[test]
    fn built_in_rules_take_their_prefix() {
        let cases: [(Prefix, &str, Option<&str>, Option<&str>); 12] = [
            (Prefix::fixed(3), "abcd", Some("abc"), Some("abc")),
            (Prefix::fixed(3), "abc", Some("abc"), Some("abc")),
            (Prefix::fixed(3), "ab", None, None),
            (Prefix::fixed(3), "", None, None),
            (Prefix::capped(3), "abcd", Some("abc"), Some("abc")),
            (Prefix::capped(3), "abc", Some("abc"), Some("abc")),
            // "ab" is its own prefix, but "abc" begins with it and has another.
            (Prefix::capped(3), "ab", Some("ab"), None),
            (Prefix::capped(3), "", Some(""), None),
            (Prefix::delimited(b'/', 2), "a/b/c", Some("a/b/"), Some("a/b/")),
            (Prefix::delimited(b'/', 2), "//", Some("//"), Some("//")),
            (Prefix::delimited(b'/', 2), "a/b", None, None),
            (Prefix::delimited(b'/', 1), "", None, None),
        ];
        for (rule, key, prefix, of_all) in cases {
            let key = key.as_bytes();
            assert_eq!(rule.extract(key), prefix.map(str::as_bytes), "{rule:?} {key:?}");
            assert_eq!(rule.extract_for_all(key), of_all.map(str::as_bytes), "{rule:?} {key:?}");
        }
    }

    #[test]
    fn prefix_ids_find_their_rule() {
        let ids = [
            (Prefix::fixed(3), "siftdb.FixedPrefix.3"),
            (Prefix::capped(65_535), "siftdb.CappedPrefix.65535"),
            (Prefix::delimited(b'/', 2), "siftdb.DelimitedPrefix.2f.2"),
            (Prefix::delimited(0, 1), "siftdb.DelimitedPrefix.00.1"),
        ];
        for (rule, id) in ids {
            assert_eq!(rule.id(), id);
            assert_eq!(Prefix::for_id(id, &[]).expect("built in").id(), id);
        }
        // Ids in another form than the printed one, or with an impossible parameter.
        let strangers = [
            "",
            "siftdb.FixedPrefix",
            "siftdb.FixedPrefix.",
            "siftdb.FixedPrefix.0",
            "siftdb.FixedPrefix.03",
            "siftdb.FixedPrefix.+3",
            "siftdb.FixedPrefix.65536",
            "siftdb.FixedPrefix.99999999999999999999",
            "rocksdb.FixedPrefix.3",
            "siftdb.DelimitedPrefix.2F.1",
            "siftdb.DelimitedPrefix.2f",
            "siftdb.Other.3",
            "test.letters",
        ];
        for id in strangers {
            assert!(Prefix::for_id(id, &[]).is_none(), "{id}");
        }
        // Point 3: a user's rule is found by exactly its id, and one without an id by none.
        let given: Vec<Arc<dyn PrefixExtractor>> =
            vec![Arc::new(Letters(Breaks::PanicsInId)), Arc::new(Letters(Breaks::Nothing))];
        assert!(Prefix::for_id("test.letters", &given).is_some());
        assert!(Prefix::for_id("test.letters.2", &given).is_none());
        assert!(Prefix::for_id("", &given).is_none());
    }

    #[test]
    fn broken_prefix_rules_fail_writers_only() {
        let cases = [
            (Breaks::PanicsInPrefix, "no prefix today"),
            (Breaks::NoLeadingPart, "no leading part"),
            (Breaks::WrongForAll, "for all keys"),
        ];
        for (breaks, says) in cases {
            let of_all_only = breaks == Breaks::WrongForAll;
            let rule = custom(breaks);
            let error = rule.extract_checked(b"ab1").expect_err("refused");
            assert!(error.contains(says), "{error}");
            assert_eq!(rule.extract(b"ab1").is_some(), of_all_only);
        }
        assert_eq!(custom(Breaks::PanicsInPrefix).extract_for_all(b"ab1"), None);
        let for_all = custom(Breaks::NoLeadingPart).extract_for_all(b"ab1");
        assert_eq!(for_all, None);
    }

    #[test]
    fn impossible_choices_are_refused() {
        for bad in [0, PREFIX_BYTES_MAX + 1] {
            assert!(Prefix::fixed(bad).validate().is_err());
            assert!(Prefix::capped(bad).validate().is_err());
            assert!(Prefix::delimited(b'/', bad).validate().is_err());
        }
        let ids = ["", "siftdb.x", "rocksdb.FixedPrefix.3", "leveldb.x", "with space", "ümlaut"];
        for id in ids {
            assert!(custom(Breaks::Id(id)).validate().is_err(), "{id}");
        }
        assert!(custom(Breaks::PanicsInId).validate().is_err());
        assert!(rules().iter().all(|rule| rule.validate().is_ok()));
        assert!(rules().iter().filter(|rule| rule.as_custom().is_some()).count() == 1);
    }
}
