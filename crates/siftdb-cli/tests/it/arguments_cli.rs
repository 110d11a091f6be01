//! Arguments that cannot work are refused before anything is created.

use crate::cli::fails;

/// The command names what is wrong with its arguments, and creates nothing.
#[test]
fn impossible_arguments_are_refused_before_creation() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let missing = missing.to_str().unwrap();
    let usage: &[&[&str]] = &[
        &["no-such-command"],
        &["--no-such-flag"],
        &["get"],
        &["get", missing],
        &["get", missing, "key", "--input", "keys"],
        &["get", missing, "key", "--no-such-flag"],
        &["put"],
        &["put", missing, "key"],
        &["put", missing, "key", r"\xzz", "--escaped"],
        &["put", missing, r"\q", "value", "--escaped"],
        &["delete"],
        &["delete", missing],
        &["delete", missing, r"\x0", "--escaped"],
        &["scan"],
        &["scan", missing, "--limit", "-1"],
        &["scan", missing, "--limit", "ten"],
        &["scan", missing, "--limit", "18446744073709551616"],
        &["scan", missing, "--prefix", "a", "--from", "b"],
        &["scan", missing, "--prefix", "a", "--to", "b"],
        &["load"],
        &["stats"],
        &["explain"],
        &["explain", missing],
        &["filter"],
        &["filter", "no-such-command"],
        &["filter", "rebuild", missing, "--bits", "0"],
        &["filter", "rebuild", missing, "--layout", "partitioned:0"],
        &["filter", "rebuild", missing, "--encoding", "rot13"],
        &["filter", "stats", missing, "--bits", "NaN"],
        &["filter", "advise", missing, "--memory", "much"],
        &["filter", "sim", "--bits", "-1"],
        &["filter", "bench", "--keys", "0"],
        &["sst"],
        &["sst", "layout"],
        &["sst", "dump"],
        &["sst", "dump", missing, "--block", "-1"],
        &["sst", "dump", missing, "--limit", "many"],
        &["sst", "verify"],
        &["flush"],
        &["compact"],
        &["compact", missing, "a", "b", "c"],
        &["demo", "--keys", "0"],
        &["demo", "--keys", "1e1"],
        &["demo", "--keys", "1e30"],
        &["demo", "--bits", "0", "--keys", "1000"],
        &["demo", "--lookups", "0", "--keys", "1000"],
        &["demo", "--encoding", "rot13"],
        &["demo", "--value-bytes", "-1"],
        &["demo", "--value-bytes", "1073741825"],
        &["demo", "--value-bytes", "18446744073709551615"],
        &["bench", "rot13"],
        &["bench", "--keys", "0"],
        &["bench", "--keys", "1e10"],
        &["bench", "--hit-ratio", "2"],
        &["bench", "--threads", "0"],
        &["bench", "--batch", "1e9"],
        &["bench", "--value-bytes", "2GiB"],
        &["bench", "--duration", "5"],
        &["bench", "--distribution", "normal"],
        &["bench", "--filter", "bloom:1000"],
        &["bench", "--db", missing, "--keys", "5", "--key-file", missing],
        &["bench", "compare", missing],
    ];
    for arguments in usage {
        assert!(!fails(2, arguments).is_empty(), "{arguments:?} says nothing");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{arguments:?}");
    }
    let nothing_there: &[&[&str]] = &[
        &["get", missing, "key"],
        &["put", missing, "key", "value"],
        &["flush", missing],
        &["compact", missing],
        &["delete", missing, "key"],
        &["scan", missing],
        &["stats", missing],
        &["explain", missing, "key"],
        &["filter", "stats", missing],
        &["filter", "rebuild", missing],
        &["sst", "layout", missing],
        &["sst", "dump", missing],
        &["sst", "verify", missing],
        &["load", "--create", missing, missing],
        &["demo", "--input", missing],
        &["bench", "--db", missing],
        &["bench", "--key-file", missing],
        &["bench", "compare", missing, missing],
    ];
    for arguments in nothing_there {
        assert!(!fails(4, arguments).is_empty(), "{arguments:?} says nothing");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{arguments:?}");
    }
}
