//! Keys, names and settings at their limits survive an export and an import.

use crate::cli::{Place, json, ok, write};
use crate::support::limits::{Limits, options};
use crate::support::rng::seeds;
use crate::support::stores::{HOME, files, name};

#[test]
fn limits_survive_export_and_import() {
    for seed in seeds(1) {
        let limits = Limits::written(seed);
        let place = Place::new();
        let path = |file: &str| place.path(file);
        std::fs::create_dir(path("home")).unwrap();
        for (from, bytes) in files(&limits.env) {
            if from.starts_with(HOME) {
                write(&path(&format!("home/{}", name(&from))), &bytes);
            }
        }
        ok(&["export", &path("home"), "-o", &path("entries")]);
        json(&["import", "jsonl", &path("entries"), &path("copy"), "--json"]);
        let db = options().open(path("copy")).unwrap();
        limits.check(&db, &format!("seed {seed}, imported"));
        db.close().unwrap();
    }
}
