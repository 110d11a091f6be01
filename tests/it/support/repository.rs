//! Files of the repository, found from the tests of any of its packages.

use std::path::{Path, PathBuf};

/// The folder that has DESIGN.md.
pub fn repository() -> &'static Path {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find(|folder| folder.join("DESIGN.md").exists()).unwrap()
}

/// The file or folder `name` of `tests/it/golden/`.
pub fn golden(name: &str) -> PathBuf {
    repository().join("tests/it/golden").join(name)
}
