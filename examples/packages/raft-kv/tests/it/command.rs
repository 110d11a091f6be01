//! The command: what it says of arguments and directories that it cannot use.

use crate::cluster::{PROGRAM, free_listeners, wait_until};
use hyper::Method;
use siftdb::Options;
use siftdb_raft_kv::http_client::{Client, whole};
use siftdb_raft_kv::operators::Status;
use siftdb_raft_kv::storage::Storage;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use tokio::runtime::Runtime;

/// Runs the command, which must fail, and gives what it says.
fn refused(arguments: &[&str]) -> String {
    let command = Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert_eq!(command.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(command.stderr).unwrap()
}

fn node_in(directory: &Path, id: &str) -> String {
    let directory = directory.to_str().unwrap();
    // If it starts after all, it ends at once.
    let listen = ["--listen", "127.0.0.1:0", "--until-stdin-ends"];
    refused(&[&["node", directory, "--id", id][..], &listen].concat())
}

#[test]
fn unknown_arguments_are_refused() {
    for (arguments, said) in [
        (&[][..], "raft-kv cluster DIR"),
        (&["frobnicate"], "raft-kv node DIR"),
        (&["cluster"], "raft-kv cluster DIR"),
        (&["node", "nowhere", "--id", "1"], "--listen ADDRESS"),
        (&["node", "nowhere", "--listen", "127.0.0.1:0"], "--id N"),
        (
            &["node", "nowhere", "--id", "one", "--listen", "127.0.0.1:0"],
            "one is no value for --id",
        ),
        (&["node", "nowhere", "--id"], "--id needs a value"),
        (&["node", "nowhere", "--snapshot-after", "0"], "0 is no value for --snapshot-after"),
        (&["cluster", "nowhere", "--open-proposals", "-1"], "-1 is no value for"),
        (&["node", "nowhere", "--speed", "9"], "unknown option --speed"),
        (&["cluster", "nowhere", "--port", "65535"], "the port is too large"),
    ] {
        let text = refused(arguments);
        assert!(text.contains(said), "{arguments:?} says {text}");
    }
    assert!(!Path::new("nowhere").exists());
}

#[test]
fn a_port_in_use_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let path = directory.path().join("node");
    let text = refused(&["node", path.to_str().unwrap(), "--id", "1", "--listen", &address]);
    assert!(text.contains(&format!("cannot listen on {address}")), "{text}");
    assert!(!path.exists());
}

#[test]
fn a_cluster_on_ports_in_use_is_refused() {
    // Three neighbours, of which the last is taken, by a server that even answers.
    let directory = tempfile::tempdir().unwrap();
    // Not closed and bound again: a process that another test starts may hold it in between.
    let [first, _, _taken] = free_listeners();
    let port = first.local_addr().unwrap().port();
    let path = directory.path().join("cluster");
    let text = refused(&["cluster", path.to_str().unwrap(), "--port", &port.to_string()]);
    assert!(text.contains("a node did not start"), "{text}");
}

#[test]
fn a_cluster_passes_limits_to_nodes() {
    let directory = tempfile::tempdir().unwrap();
    let ports = free_listeners::<3>().map(|free| free.local_addr().unwrap().port().to_string());
    let mut cluster = Command::new(PROGRAM)
        .args(["cluster", directory.path().to_str().unwrap(), "--port", &ports[0]])
        .args(["--snapshot-after", "5"])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let runtime = Runtime::new().unwrap();
    let mut client = Client::new(&format!("127.0.0.1:{}", ports[0]));
    wait_until("there is a snapshot", || {
        // Done or not, it makes entries.
        runtime.block_on(client.send(Method::PUT, "/kv/ada", whole("1815"))).ok()?;
        let sent = runtime.block_on(client.send(Method::GET, "/status", whole(""))).ok()?;
        serde_json::from_slice::<Status>(&sent.body).unwrap().snapshot
    });
    // Its nodes end with it.
    cluster.kill().unwrap();
    cluster.wait().unwrap();
    wait_until("the nodes have ended", || {
        runtime.block_on(client.send(Method::GET, "/status", whole(""))).is_err().then_some(())
    });
}

#[test]
fn unusable_directories_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let (open, half) = (directory.path().join("open"), directory.path().join("half"));
    let storage = Storage::open(&open, Options::new()).unwrap();
    storage.claim(1).unwrap();
    let text = node_in(&open, "1");
    assert!(text.contains("open") && text.contains("LOCK"), "{text}");
    storage.db.close().unwrap();
    drop(storage);
    let text = node_in(&open, "2");
    assert!(text.contains("is the directory of node 1, not of node 2"), "{text}");

    // Half a copy of a node.
    fs::create_dir(&half).unwrap();
    for file in fs::read_dir(&open).unwrap() {
        let file = file.unwrap();
        if file.file_name() != "CURRENT" {
            fs::copy(file.path(), half.join(file.file_name())).unwrap();
        }
    }
    let text = node_in(&half, "1");
    assert!(text.contains("CURRENT is missing"), "{text}");
}
