//! Checks the sources of all packages against DESIGN.md: imports go downward, files and
//! functions are small, every file is reachable, `unsafe` stays in its files, invariants are
//! documented.
//!
//! The sources are read as text: comments and literals are blanked, then `use`, `mod` and `fn` are
//! found. That is enough for code that rustfmt has formatted, and needs no parser. Each check also
//! runs on a bad source, to show that it can fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const FILE_LINES_MAX: usize = 900;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// The packages' folders, and the files that may contain `unsafe`.
const PACKAGES: [(&str, &[&str]); 4] = [
    ("", &["env/mapped.rs"]),
    ("crates/siftdb-cli", &[]),
    ("crates/siftdb-filter", &["bloom/simd.rs", "cache_line.rs"]),
    ("crates/siftdb-foreign", &[]),
];

#[test]
fn imports_go_downward() {
    each_package(imports);
}

#[test]
fn module_roots_hold_no_logic() {
    each_package(module_roots);
}

#[test]
fn files_and_functions_stay_within_budget() {
    each_package(budgets);
}

#[test]
fn peer_benchmarks_stay_within_budget() {
    // `benches/peers` is a package of its own and is not published.
    if root().join("benches/peers").exists() {
        expect_none("benches/peers", &budgets(&sources("benches/peers")));
    }
}

#[test]
fn every_file_is_reachable() {
    each_package(dead_files);
}

#[test]
fn unsafe_stays_in_its_file() {
    for (package, allowed) in PACKAGES {
        expect_none(package, &unsafe_outside(&sources(package), allowed));
    }
}

#[test]
fn invariants_of_the_source_are_in_design() {
    if let Ok(design) = fs::read_to_string(root().join("DESIGN.md")) {
        each_package(|sources| unknown_invariants(sources, &design));
    }
}

/// Checks every package. (That one uses only what another makes public is checked by the compiler.)
fn each_package(check: impl Fn(&BTreeMap<String, Source>) -> Vec<String>) {
    for (package, _) in PACKAGES {
        expect_none(package, &check(&sources(package)));
    }
}

fn expect_none(package: &str, findings: &[String]) {
    assert!(findings.is_empty(), "\n{package}\n{}\n", findings.join("\n"));
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below `src` of a package, by path from there.
fn sources(package: &str) -> BTreeMap<String, Source> {
    let mut found = BTreeMap::new();
    collect(&root().join(package).join("src"), "", &mut found);
    assert!(found.len() > 10, "{package}: only {} files found", found.len());
    found
}

fn collect(directory: &Path, prefix: &str, found: &mut BTreeMap<String, Source>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            collect(&entry.path(), &format!("{prefix}{name}/"), found);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(entry.path()).unwrap();
            found.insert(format!("{prefix}{name}"), Source::new(&text));
        }
    }
}

/// One source file in three forms of the same length.
struct Source {
    text: String,
    /// Comments and literals blanked.
    code: String,
    /// Everything but comments blanked.
    comments: String,
    /// By line: part of an item under `#[cfg(test)]`.
    test_line: Vec<bool>,
}

impl Source {
    fn new(text: &str) -> Self {
        let (code, comments) = split_comments(text);
        let test_line = test_lines(&code);
        Source { text: text.to_string(), code, comments, test_line }
    }

    fn line_of(&self, offset: usize) -> usize {
        self.code[..offset].matches('\n').count()
    }

    fn is_test(&self, offset: usize) -> bool {
        self.test_line.get(self.line_of(offset)).copied().unwrap_or(false)
    }
}

/// The text with comments and the contents of literals blanked, and the text with everything but
/// comments blanked. Both keep every line break and every offset.
fn split_comments(text: &str) -> (String, String) {
    let bytes = text.as_bytes();
    let blank = |byte: u8| if byte == b'\n' { b'\n' } else { b' ' };
    let mut code: Vec<u8> = bytes.iter().map(|&byte| blank(byte)).collect();
    let mut comments = code.clone();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let previous = if at == 0 { b' ' } else { bytes[at - 1] };
        let (len, target) = if rest.starts_with(b"//") {
            (rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()), Some(&mut comments))
        } else if rest.starts_with(b"/*") {
            (block_comment(rest), Some(&mut comments))
        } else if let Some(len) = raw_string(rest).filter(|_| !is_word(previous)) {
            (len, None)
        } else if rest[0] == b'"' {
            (quoted(rest, b'"'), None)
        } else if rest[0] == b'\'' && is_char_literal(rest) {
            (quoted(rest, b'\''), None)
        } else {
            (1, Some(&mut code))
        };
        if let Some(target) = target {
            target[at..at + len].copy_from_slice(&rest[..len]);
        }
        at += len;
    }
    (String::from_utf8_lossy(&code).into_owned(), String::from_utf8_lossy(&comments).into_owned())
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at.min(rest.len())
}

fn raw_string(rest: &[u8]) -> Option<usize> {
    let start = if rest.starts_with(b"br") { 2 } else { usize::from(rest.starts_with(b"r")) };
    let hashes = rest[start..].iter().take_while(|&&byte| byte == b'#').count();
    if start == 0 || rest.get(start + hashes) != Some(&b'"') {
        return None;
    }
    let end = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let body = start + hashes + 1;
    let len = rest[body..].windows(end.len()).position(|window| window == end);
    Some(len.map_or(rest.len(), |len| body + len + end.len()))
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// A quote that begins a character, not a lifetime.
fn is_char_literal(rest: &[u8]) -> bool {
    rest.get(1) == Some(&b'\\')
        || rest.iter().skip(2).take(4).position(|&byte| byte == b'\'').is_some_and(|end| {
            end == 0 || !rest[1].is_ascii() // a longer gap is one character of several bytes
        })
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Offsets of `word` in `code`, not as a part of a longer word.
fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let bytes = code.as_bytes();
        let before = at.checked_sub(1).map_or(b' ', |at| bytes[at]);
        let after = bytes.get(at + word.len()).copied().unwrap_or(b' ');
        !is_word(before) && !is_word(after)
    })
}

/// The end of the item that begins at `start`: after its `;` or its braces.
fn item_end(code: &str, start: usize) -> usize {
    let (mut braces, mut others) = (0i32, 0i32);
    for (at, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => others += 1,
            b')' | b']' => others -= 1,
            b'{' => braces += 1,
            b'}' => {
                braces -= 1;
                if braces == 0 && others == 0 {
                    return at + 1;
                }
            }
            b';' if braces == 0 && others == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

fn test_lines(code: &str) -> Vec<bool> {
    const MARK: &str = "#[cfg(test)]";
    let mut lines = vec![false; code.lines().count() + 1];
    for (at, _) in code.match_indices(MARK) {
        let end = item_end(code, at + MARK.len());
        let first = code[..at].matches('\n').count();
        let last = code[..end].matches('\n').count();
        lines[first..=last].fill(true);
    }
    lines
}

/// A module: its path from the crate's root, and the index of each step in the list of its parent.
#[derive(Clone)]
struct Module {
    file: String,
    place: Vec<usize>,
    has_children: bool,
    /// The module is under `#[cfg(test)]`, so it may use everything that it tests.
    is_test: bool,
}

/// The modules of one crate, by path; the root is the empty path.
type Tree = BTreeMap<Vec<String>, Module>;

/// The crates whose sources are in `src`: the library and the program.
fn crates(sources: &BTreeMap<String, Source>) -> Vec<Tree> {
    let roots = ["lib.rs", "main.rs"].into_iter().filter(|root| sources.contains_key(*root));
    roots
        .map(|root| {
            let mut tree = Tree::new();
            add_module(sources, &mut tree, root.into(), Vec::new(), Vec::new());
            tree
        })
        .collect()
}

fn add_module(
    sources: &BTreeMap<String, Source>,
    tree: &mut Tree,
    file: String,
    path: Vec<String>,
    place: Vec<usize>,
) {
    let Some(source) = sources.get(&file) else { return };
    let children = child_modules(source);
    let is_root = file.ends_with("/mod.rs") || path.is_empty();
    let folder = if is_root {
        file.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"))
    } else {
        format!("{}/", file.trim_end_matches(".rs"))
    };
    let has_children = !children.is_empty();
    let place_here = place.clone();
    tree.insert(path.clone(), Module { file, place: place_here, has_children, is_test: false });
    for (number, (child, is_test)) in children.into_iter().enumerate() {
        let candidates = [format!("{folder}{child}.rs"), format!("{folder}{child}/mod.rs")];
        if let Some(file) = candidates.into_iter().find(|file| sources.contains_key(file)) {
            let path = [path.clone(), vec![child]].concat();
            add_module(sources, tree, file, path.clone(), [place.clone(), vec![number]].concat());
            tree.entry(path).and_modify(|module| module.is_test = is_test);
        }
    }
}

/// The names in lines like `pub(crate) mod name;`, in order, and whether only tests have them.
fn child_modules(source: &Source) -> Vec<(String, bool)> {
    let lines = source.code.lines().zip(&source.test_line).filter_map(|(line, is_test)| {
        let line = line.trim().trim_start_matches("#[cfg(test)]").trim();
        let name = strip_visibility(line).strip_prefix("mod ")?.strip_suffix(';')?;
        Some((name.trim().to_string(), *is_test))
    });
    lines.collect()
}

fn strip_visibility(line: &str) -> &str {
    match line.strip_prefix("pub(").and_then(|rest| rest.split_once(") ")) {
        Some((_, rest)) => rest,
        None => line.strip_prefix("pub ").unwrap_or(line),
    }
}

/// The `use` items of a file: offset, end and text of each.
fn uses(code: &str) -> Vec<(usize, usize, &str)> {
    let starts = words(code, "use").filter(|&at| {
        let line = code[..at].rsplit('\n').next().unwrap_or("").trim();
        strip_visibility(&format!("{line} ")).trim().is_empty()
    });
    starts
        .map(|at| {
            let end = code[at..].find(';').map_or(code.len(), |len| at + len);
            (at, end, code[at + 3..end].trim())
        })
        .collect()
}

/// The paths of a nested import such as `a::{b, c::{self, d as e}}`.
fn expand(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let Some((prefix, group)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree);
        let segments = path.split("::").map(|segment| segment.trim().to_string());
        return vec![segments.filter(|segment| !segment.is_empty() && segment != "self").collect()];
    };
    let prefix = expand(prefix).remove(0);
    let group = group.trim_end().strip_suffix('}').unwrap_or(group);
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[start..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(expand).map(|part| [prefix.clone(), part].concat()).collect()
}

fn imports(sources: &BTreeMap<String, Source>) -> Vec<String> {
    let mut findings = Vec::new();
    for tree in crates(sources) {
        for (path, module) in &tree {
            let source = &sources[&module.file];
            let mut rest = source.code.clone();
            for (start, end, item) in uses(&source.code) {
                let line = source.line_of(start) + 1;
                for problem in use_problems(&tree, path, item, source.is_test(start)) {
                    findings.push(format!("src/{}:{line}: {problem}", module.file));
                }
                rest.replace_range(start..end, &" ".repeat(end - start));
            }
            findings.extend(inline_paths(source, &module.file, &rest));
        }
    }
    findings
}

fn use_problems(tree: &Tree, importer: &[String], item: &str, is_test: bool) -> Vec<String> {
    if item.starts_with("super::") {
        let allowed = is_test && item == "super::*";
        return if allowed { vec![] } else { vec![format!("`{item}` goes up")] };
    }
    if item.starts_with("crate::{") {
        return vec!["`use crate::{…}` hides which modules are used".into()];
    }
    if !item.starts_with("crate::") {
        return vec![];
    }
    let paths = expand(item);
    paths.iter().filter_map(|path| path_problem(tree, importer, &path[1..])).collect()
}

fn path_problem(tree: &Tree, importer: &[String], path: &[String]) -> Option<String> {
    let shown = path.join("::");
    let depth = (0..=path.len()).rev().find(|&len| tree.contains_key(&path[..len]))?;
    let used = &path[..depth];
    let module = &tree[used];
    if depth == 0 || module.has_children {
        return Some(format!("`crate::{shown}` does not name the module that defines it"));
    }
    if used == importer || used.starts_with(importer) {
        return None;
    }
    let (from, to) = (&tree[importer].place, &module.place);
    let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let goes_down = from.get(common) < to.get(common) || tree[importer].is_test;
    (!goes_down).then(|| format!("`crate::{shown}` is above this module"))
}

/// `crate::` and `super::` outside of `use` items, in production code.
fn inline_paths(source: &Source, file: &str, rest: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for word in ["crate::", "super::"] {
        for (at, _) in rest.match_indices(word) {
            let before = at.checked_sub(1).map_or(b' ', |at| rest.as_bytes()[at]);
            if !is_word(before) && before != b'$' && !source.is_test(at) {
                let line = source.line_of(at) + 1;
                findings.push(format!("src/{file}:{line}: an inline `{word}` is a hidden import"));
            }
        }
    }
    findings
}

/// `lib.rs` and `mod.rs` hold documentation, lists of modules and re-exports, nothing else.
fn module_roots(sources: &BTreeMap<String, Source>) -> Vec<String> {
    let mut findings = Vec::new();
    for (file, source) in sources {
        if file != "lib.rs" && !file.ends_with("mod.rs") {
            continue;
        }
        let mut rest = source.code.clone();
        for (start, end, _) in uses(&source.code) {
            rest.replace_range(start..=end, &" ".repeat(end + 1 - start));
        }
        for (number, line) in rest.lines().map(str::trim).enumerate() {
            let attribute = line.starts_with("#[") || line.starts_with("#![");
            let module = strip_visibility(line).starts_with("mod ") && line.ends_with(';');
            let of_use = line.is_empty() || line == "pub" || line == "pub(crate)";
            if !(attribute || module || of_use) {
                findings.push(format!("src/{file}:{}: logic in a module list", number + 1));
            }
        }
    }
    findings
}

fn budgets(sources: &BTreeMap<String, Source>) -> Vec<String> {
    let mut findings = Vec::new();
    for (file, source) in sources {
        let lines = source.text.lines().zip(&source.test_line).filter(|(_, test)| !**test).count();
        if lines > FILE_LINES_MAX {
            findings
                .push(format!("src/{file}: {lines} production lines, at most {FILE_LINES_MAX}"));
        }
        let lines = source.text.lines().zip(&source.test_line).enumerate();
        for (number, (line, _)) in lines.filter(|(_, (_, test))| !**test) {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX {
                findings.push(format!("src/{file}:{}: {columns} columns", number + 1));
            }
        }
        for at in words(&source.code, "fn") {
            let named = source.code[at + 2..].trim_start().bytes().next().is_some_and(is_word);
            if named {
                let end = item_end(&source.code, at);
                let lines = source.code[at..end].matches('\n').count() + 1;
                if lines > FUNCTION_LINES_MAX {
                    let line = source.line_of(at) + 1;
                    findings.push(format!("src/{file}:{line}: a function of {lines} lines"));
                }
            }
        }
    }
    findings
}

fn dead_files(sources: &BTreeMap<String, Source>) -> Vec<String> {
    let trees = crates(sources);
    let live: BTreeSet<&String> =
        trees.iter().flat_map(|tree| tree.values().map(|module| &module.file)).collect();
    let dead = sources.keys().filter(|file| !live.contains(file));
    dead.map(|file| format!("src/{file}: no `mod` line leads here")).collect()
}

fn unsafe_outside(sources: &BTreeMap<String, Source>, allowed: &[&str]) -> Vec<String> {
    let mut findings = Vec::new();
    for (file, source) in sources {
        if !allowed.contains(&file.as_str()) {
            findings.extend(
                words(&source.code, "unsafe")
                    .map(|at| format!("src/{file}:{}: unsafe", source.line_of(at) + 1)),
            );
        }
    }
    findings
}

/// Tags like `I7` in a text, with their offsets.
fn tags(text: &str) -> Vec<(usize, &str)> {
    let bytes = text.as_bytes();
    let starts = text.match_indices('I').map(|(at, _)| at);
    starts
        .filter_map(|at| {
            let digits = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let end = at + 1 + digits;
            let alone = at == 0 || !is_word(bytes[at - 1]);
            let ends = bytes.get(end).is_none_or(|&byte| !is_word(byte));
            (digits > 0 && alone && ends).then(|| (at, &text[at..end]))
        })
        .collect()
}

fn unknown_invariants(sources: &BTreeMap<String, Source>, design: &str) -> Vec<String> {
    let known: BTreeSet<&str> = tags(design).into_iter().map(|(_, tag)| tag).collect();
    let mut findings = Vec::new();
    for (file, source) in sources {
        for (at, tag) in tags(&source.comments) {
            if !known.contains(tag) {
                let line = source.line_of(at) + 1;
                findings.push(format!("src/{file}:{line}: {tag} is not in DESIGN.md"));
            }
        }
    }
    findings
}

// ---- the checks, seen to fail ------------------------------------------------------------------

fn made_up(files: &[(&str, &str)]) -> BTreeMap<String, Source> {
    files.iter().map(|(path, text)| (path.to_string(), Source::new(text))).collect()
}

/// A tree in order, with `below.rs` and `folder/second.rs` replaced.
fn made_up_tree(top: &str, first: &str, second: &str, low: &str) -> BTreeMap<String, Source> {
    made_up(&[
        ("lib.rs", "mod top;\nmod folder;\npub(crate) mod low;\npub use low::Low;\n"),
        ("top.rs", top),
        ("folder/mod.rs", "//! A folder.\npub mod first;\nmod second;\n"),
        ("folder/first.rs", first),
        ("folder/second.rs", second),
        ("low.rs", low),
    ])
}

#[test]
fn a_tree_in_order_passes_every_check() {
    let tree = made_up_tree(
        "use crate::folder::first::{self, First};\nuse crate::low::Low as Bottom;\n",
        "use crate::folder::second::Second;\npub(crate) struct First;\n",
        "use crate::low::Low; // crate::top is only mentioned, \"crate::top\" too\n",
        "pub struct Low;\n#[cfg(test)]\nmod tests {\n    use super::*;\n}\n",
    );
    let findings = [
        imports(&tree),
        module_roots(&tree),
        budgets(&tree),
        dead_files(&tree),
        unsafe_outside(&tree, &[]),
    ];
    expect_none("", &findings.concat());
}

#[test]
fn upward_imports_are_found() {
    let cases = [
        ("", "", "", "use crate::top::Top;", "src/low.rs:1: `crate::top::Top` is above"),
        ("", "", "\nuse crate::folder::first::First;", "", "src/folder/second.rs:2:"),
        ("", "", "use crate::top::Top;", "", "is above"),
        ("use crate::{low::Low};", "", "", "", "hides which modules"),
        ("use crate::Low;", "", "", "", "`crate::Low` does not name the module"),
        ("use crate::folder::First;", "", "", "", "does not name the module"),
        ("use crate::folder::{first::First, Second};", "", "", "", "`crate::folder::Second`"),
        ("", "use super::second::Second;", "", "", "goes up"),
        ("", "#[cfg(test)]\nmod tests {\n    use super::First;\n}", "", "", "first.rs:3: `super"),
        ("fn f() {\n    crate::low::call();\n}", "", "", "", "src/top.rs:2: an inline `crate::`"),
        ("", "fn f() -> super::X {}", "", "", "inline `super::`"),
        ("", "", "", "pub(crate) use crate::top::{\n    A,\n};", "src/low.rs:1"),
    ];
    for (top, first, second, low, expected) in cases {
        let findings = imports(&made_up_tree(top, first, second, low));
        assert!(findings.iter().any(|finding| finding.contains(expected)), "{findings:?}");
    }
}

#[test]
fn logic_in_module_lists_is_found() {
    let tree = made_up(&[("lib.rs", "mod a;\n"), ("a/mod.rs", "pub mod b;\nfn f() {}\n")]);
    assert_eq!(module_roots(&tree), ["src/a/mod.rs:2: logic in a module list"]);
}

#[test]
fn broken_budgets_are_found() {
    let long_file = "const A: u8 = 1;\n".repeat(FILE_LINES_MAX + 1);
    let long_function = format!("fn f() {{\n{}}}\n", "    g();\n".repeat(FUNCTION_LINES_MAX - 1));
    let long_line = format!("// {}\n", "ä".repeat(COLUMNS_MAX - 2));
    let tests_do_not_count = format!("#[cfg(test)]\nmod tests {{\n{long_file}}}\n");
    let tree = made_up(&[
        ("a.rs", &long_file),
        ("b.rs", &long_function),
        ("c.rs", &long_line),
        ("d.rs", &tests_do_not_count),
    ]);
    assert_eq!(
        budgets(&tree),
        [
            "src/a.rs: 901 production lines, at most 900",
            "src/b.rs:1: a function of 71 lines",
            "src/c.rs:1: 101 columns"
        ]
    );
}

#[test]
fn dead_files_are_found() {
    let tree = made_up(&[
        ("lib.rs", "mod a;\n// mod b;\n"),
        ("a.rs", "const TEXT: &str = \"\nmod b;\n\";\n"),
        ("b.rs", ""),
        ("main.rs", "mod c;\n"),
        ("c.rs", ""),
    ]);
    assert_eq!(dead_files(&tree), ["src/b.rs: no `mod` line leads here"]);
}

#[test]
fn stray_unsafe_and_unknown_invariants_are_found() {
    let text =
        "// unsafe in words is fine\n#![allow(unsafe_code)]\nunsafe fn f() {} // (I3), I14\n";
    let tree = made_up(&[("a.rs", text), ("bloom/simd.rs", "unsafe {}\n")]);
    assert_eq!(unsafe_outside(&tree, &["bloom/simd.rs"]), ["src/a.rs:3: unsafe"]);
    let findings = unknown_invariants(&tree, "- **I3** View first. **I140** is another.");
    assert_eq!(findings, ["src/a.rs:3: I14 is not in DESIGN.md"]);
}

#[test]
fn literals_and_comments_are_not_code() {
    let text = concat!(
        "let a = \"x // \\\" y\"; let b = r#\"\" unsafe \"#; // c\n",
        "let d = '\\''; let e = '\"'; fn f<'a>(g: &'a str) { 'h: loop {} } /* i /* j */ k */ l\n",
    );
    let source = Source::new(text);
    assert_eq!(source.code.len(), text.len());
    assert!(!source.code.contains("unsafe") && !source.code.contains(" y"));
    assert!(source.code.contains("fn f<'a>(g: &'a str) { 'h: loop {} }"));
    assert!(source.code.trim_end().ends_with('l') && !source.code.contains('k'));
    assert!(source.comments.contains("// c") && source.comments.contains("k */"));
}

#[test]
fn test_modules_may_import_their_parent() {
    let tree = made_up(&[
        ("lib.rs", "mod top;\n#[cfg(test)]\nmod testing;\n"),
        ("top.rs", ""),
        ("testing.rs", "use crate::top::Top;\n"),
    ]);
    expect_none("", &imports(&tree));
}
