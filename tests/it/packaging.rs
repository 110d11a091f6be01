//! What `cargo package` ships: all that README and SECURITY name, and nothing that only the
//! repository needs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The packages that users install, and their folders.
const PACKAGES: [(&str, &str); 4] = [
    ("siftdb", ""),
    ("siftdb-cli", "crates/siftdb-cli"),
    ("siftdb-filter", "crates/siftdb-filter"),
    ("siftdb-foreign", "crates/siftdb-foreign"),
];

/// Packages whose README is all that they need.
const WITHOUT_DOCS: [&str; 2] = ["siftdb-filter", "siftdb-foreign"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files of a package.
fn packaged(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["package", "--list", "--allow-dirty", "--offline", "--quiet", "-p", package])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_string).collect()
}

/// The words of `text` that name a file or folder below `folder`, but for what a build makes.
fn paths_in<'a>(text: &'a str, folder: &Path) -> BTreeSet<&'a str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && !"._-/".contains(c));
    let words = words.map(|word| word.trim_end_matches(['.', '/']).trim_start_matches("./"));
    words
        .filter(|word| word.contains(['.', '/']) && !word.starts_with('/'))
        .filter(|word| folder.join(word).exists())
        .collect()
}

#[test]
fn packages_have_what_their_documents_name() {
    for (package, folder) in PACKAGES {
        let (packaged, folder) = (packaged(package), root().join(folder));
        let has = |path: &str| {
            packaged.iter().any(|file| {
                file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        for document in ["README.md", "SECURITY.md"] {
            let Ok(text) = fs::read_to_string(folder.join(document)) else {
                assert!(package != "siftdb" && document == "SECURITY.md");
                continue;
            };
            let named = paths_in(&text, &folder);
            let missing: Vec<_> = named.into_iter().filter(|path| !has(path)).collect();
            assert!(missing.is_empty(), "{package}: {document} names {missing:?}");
        }
        assert!(!has(".ci/run") && has("src/lib.rs"));
        assert!(has("docs") || WITHOUT_DOCS.contains(&package));
    }
    assert_eq!(
        paths_in("see `.ci/run`, docs/format.md, 1.90", root()),
        [".ci/run", "docs/format.md"].into()
    );
}

#[test]
fn packages_hold_only_what_users_need() {
    let documents = ["README", "DESIGN", "CHANGELOG", "CONTRIBUTING", "SECURITY"];
    let needed = |package: &str, file: &str| match file.split_once('/') {
        Some(("src", name)) => {
            name.ends_with(".rs") || package == "siftdb-cli" && name.ends_with(".css")
        }
        Some(("examples", name)) => name.ends_with(".rs"),
        Some(("docs", name)) => name.ends_with(".md") || name == "demo.png",
        Some(_) => false,
        None => {
            let (stem, _) = file.split_once('.').unwrap_or((file, ""));
            documents.contains(&stem)
                || file.starts_with("Cargo.")
                || file.starts_with("LICENSE-")
                || file == ".cargo_vcs_info.json"
        }
    };
    for (package, _) in PACKAGES {
        let packaged = packaged(package);
        let least = if WITHOUT_DOCS.contains(&package) { 25 } else { 100 };
        assert!(packaged.len() > least, "{packaged:?}");
        let others: Vec<_> = packaged.iter().filter(|file| !needed(package, file)).collect();
        assert!(others.is_empty(), "{package}: {others:?}");
    }
}

#[test]
fn the_index_names_every_example() {
    let index = fs::read_to_string(root().join("docs/examples.md")).unwrap();
    let listed: BTreeSet<_> = index
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name.to_string())
        .collect();
    let paths_in =
        |folder| fs::read_dir(root().join(folder)).unwrap().map(|path| path.unwrap().path());
    let files = paths_in("examples").filter(|path| path.is_file());
    let packages = paths_in("examples/packages").filter(|path| path.join("Cargo.toml").is_file());
    let examples = files.chain(packages).map(|path| path.file_stem().unwrap().to_owned());
    assert_eq!(listed, examples.map(|name| name.into_string().unwrap()).collect());
}
