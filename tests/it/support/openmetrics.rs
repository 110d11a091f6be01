//! A strict reader of the text format of OpenMetrics 1.0, written from its specification. It
//! refuses what a lenient one would let pass: see [`parse`].

use std::collections::BTreeSet;

/// The suffixes that samples of any type may have.
const SUFFIXES: [&str; 8] =
    ["_total", "_created", "_count", "_sum", "_bucket", "_gcount", "_gsum", "_info"];

/// A metric family.
#[derive(Debug, Default)]
pub struct Family {
    pub name: String,
    pub kind: String,
    pub unit: Option<String>,
    pub help: Option<String>,
    pub samples: Vec<Sample>,
}

/// A line with a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

impl Sample {
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }
}

type Parsed<T> = Result<T, String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Parsed<()> {
    if holds { Ok(()) } else { Err(what()) }
}

/// The families of a text.
///
/// It ends with `# EOF` and a line feed. No line is empty. The metadata of a family come once, with
/// its type, before its samples; its samples are neither interleaved with others nor repeated.
/// Names, escapes and numbers are those of the grammar; sample names and values are those of the
/// type; no name of a family is that of a sample of another.
pub fn parse(text: &str) -> Parsed<Vec<Family>> {
    let body = text.strip_suffix("# EOF\n").ok_or("it does not end with # EOF")?;
    ensure(body.is_empty() || body.ends_with('\n'), || "no line feed before # EOF".into())?;
    let mut families: Vec<Family> = Vec::new();
    for line in body.split_terminator('\n') {
        add_line(&mut families, line).map_err(|what| format!("{what}: {line:?}"))?;
    }
    let mut names = BTreeSet::new();
    for family in &families {
        ensure(names.insert(family.name.clone()), || format!("{} comes twice", family.name))?;
    }
    for family in &families {
        check_family(family).map_err(|what| format!("{what}: {}", family.name))?;
        for suffix in SUFFIXES {
            let clash = format!("{}{suffix}", family.name);
            ensure(!names.contains(&clash), || format!("{clash} is a family, too"))?;
        }
    }
    Ok(families)
}

fn add_line(families: &mut Vec<Family>, line: &str) -> Parsed<()> {
    if let Some(rest) = line.strip_prefix("# ") {
        let mut words = rest.splitn(3, ' ');
        let mut word = || words.next().ok_or("metadata without its three parts");
        let (keyword, name, rest) = (word()?, word()?, word()?);
        ensure(is_name(name, ':'), || "not the name of a family".into())?;
        if families.last().is_none_or(|family| family.name != name) {
            families.push(Family { name: name.into(), ..Family::default() });
        }
        let family = families.last_mut().ok_or("no family")?;
        ensure(family.samples.is_empty(), || "metadata after samples".into())?;
        let known = match keyword {
            "TYPE" => !std::mem::replace(&mut family.kind, rest.into()).is_empty(),
            "UNIT" => family.unit.replace(rest.into()).is_some(),
            "HELP" => family.help.replace(unescaped(rest)?).is_some(),
            _ => return Err("unknown metadata".into()),
        };
        return ensure(!known, || "metadata comes twice".into());
    }
    ensure(!line.starts_with('#') && !line.is_empty(), || "neither metadata nor sample".into())?;
    let sample = sample_of(line)?;
    let family = families.last_mut().ok_or("a sample before any family")?;
    ensure(sample.name.starts_with(&family.name), || "not of the family before it".into())?;
    family.samples.push(sample);
    Ok(())
}

fn is_name(name: &str, also: char) -> bool {
    let letter = |symbol: char| symbol.is_ascii_alphabetic() || symbol == '_' || symbol == also;
    name.starts_with(letter) && name.chars().all(|s| letter(s) || s.is_ascii_digit())
}

/// The text behind escapes; a quote or line feed must be escaped.
fn unescaped(text: &str) -> Parsed<String> {
    let (mut plain, mut symbols) = (String::new(), text.chars());
    while let Some(symbol) = symbols.next() {
        match symbol {
            '\\' => plain.push(match symbols.next() {
                Some('n') => '\n',
                Some(symbol @ ('\\' | '"')) => symbol,
                other => return Err(format!("the escape {other:?}")),
            }),
            '"' | '\n' => return Err("a quote that is not escaped".into()),
            symbol => plain.push(symbol),
        }
    }
    Ok(plain)
}

fn sample_of(line: &str) -> Parsed<Sample> {
    let end = line.find(['{', ' ']).ok_or("a sample without value")?;
    let (name, mut rest) = line.split_at(end);
    ensure(is_name(name, ':'), || "not the name of a sample".into())?;
    let mut labels: Vec<(String, String)> = Vec::new();
    if let Some(mut inside) = rest.strip_prefix('{') {
        loop {
            let (label, after) = inside.split_once("=\"").ok_or("a label without value")?;
            ensure(is_name(label, '_') && !label.starts_with("__"), || "a label's name".into())?;
            ensure(labels.iter().all(|(known, _)| known != label), || "a label twice".into())?;
            let end = end_of_quoted(after).ok_or("a label without its end")?;
            labels.push((label.into(), unescaped(&after[..end])?));
            match after[end + 1..].chars().next() {
                Some(',') => inside = &after[end + 2..],
                Some('}') => {
                    rest = &after[end + 2..];
                    break;
                }
                _ => return Err("after a label".into()),
            }
        }
    }
    let value = rest.strip_prefix(' ').ok_or("no space before the value")?;
    Ok(Sample { name: name.into(), labels, value: number(value)? })
}

fn end_of_quoted(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

/// A `realnumber` of the grammar.
fn number(text: &str) -> Parsed<f64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_infinite = ["inf", "infinity"].contains(&digits.to_ascii_lowercase().as_str());
    let of_digits = |byte: u8| byte.is_ascii_digit() || b".eE+-".contains(&byte);
    let plain = digits.bytes().all(of_digits) && digits.contains(|s: char| s.is_ascii_digit());
    ensure(plain || is_infinite || text == "NaN", || format!("the number {text:?}"))?;
    text.parse().map_err(|_| format!("the number {text:?}"))
}

fn check_family(family: &Family) -> Parsed<()> {
    if let Some(unit) = &family.unit {
        ensure(family.name.ends_with(&format!("_{unit}")), || "the unit is not its end".into())?;
    }
    let mut seen = BTreeSet::new();
    for sample in &family.samples {
        let labels: BTreeSet<_> = sample.labels.iter().collect();
        ensure(seen.insert((sample.name.clone(), format!("{labels:?}"))), || {
            format!("{sample:?} comes twice")
        })?;
    }
    let suffix = |sample: &Sample| sample.name[family.name.len()..].to_string();
    match &*family.kind {
        "counter" => family.samples.iter().try_for_each(|sample| {
            ensure(suffix(sample) == "_total", || format!("{} of a counter", sample.name))?;
            ensure(sample.value >= 0.0, || format!("the counter is {}", sample.value))
        }),
        "gauge" => family.samples.iter().try_for_each(|sample| {
            ensure(suffix(sample).is_empty(), || format!("{} of a gauge", sample.name))
        }),
        "histogram" => check_histogram(family, &suffix),
        kind => Err(format!("the type {kind:?}")),
    }
}

fn check_histogram(family: &Family, suffix: &dyn Fn(&Sample) -> String) -> Parsed<()> {
    let others = |sample: &Sample| -> Vec<_> {
        sample.labels.iter().filter(|(name, _)| name != "le").cloned().collect()
    };
    for metric in family.samples.chunk_by(|one, next| others(one) == others(next)) {
        let (mut bound, mut below, mut infinite) = (f64::NEG_INFINITY, 0.0, None);
        let (mut count, mut sum) = (None, None);
        for sample in metric {
            match &*suffix(sample) {
                "_bucket" => {
                    let le = number(sample.label("le").ok_or("a bucket without le")?)?;
                    ensure(le > bound, || format!("buckets out of order at {le}"))?;
                    ensure(sample.value >= below, || format!("fewer calls up to {le}"))?;
                    (bound, below) = (le, sample.value);
                    infinite = (le == f64::INFINITY).then_some(below).or(infinite);
                }
                "_count" => count = Some(sample.value),
                "_sum" => sum = Some(sample.value),
                other => return Err(format!("{other} of a histogram")),
            }
        }
        ensure(infinite.is_some(), || "no bucket +Inf".into())?;
        ensure(count == infinite, || "the count is not that of +Inf".into())?;
        ensure(sum.is_some_and(|sum| sum >= 0.0), || "no sum".into())?;
    }
    // Neither interleaved nor in two parts.
    let metrics = family.samples.chunk_by(|one, next| others(one) == others(next)).count();
    let distinct: BTreeSet<_> = family.samples.iter().map(|s| format!("{:?}", others(s))).collect();
    ensure(metrics == distinct.len(), || "a histogram in two parts".into())
}
