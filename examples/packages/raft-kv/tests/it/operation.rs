//! What operators and clients see of a node: its log, its metrics and its refusals.

use crate::cluster::{Cluster, wait_until};
use hyper::{Method, StatusCode};
use siftdb_raft_kv::http_client::Response;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;

fn text(answer: &Response) -> String {
    String::from_utf8(answer.body.to_vec()).unwrap()
}

fn put(cluster: &Cluster, id: u64) -> Option<Response> {
    cluster.send(id, Method::PUT, "/kv/ada", "1815".into())
}

/// Waits until the node says that it was removed, and returns its term.
fn wait_removed(cluster: &Cluster, id: u64, voters: &[u64]) -> u64 {
    let status = wait_until("the node knows that it was removed", || {
        cluster.status(id).filter(|status| status.removed)
    });
    assert!(status.voters.iter().eq(voters), "{status:?}");
    for method in [Method::GET, Method::PUT] {
        let answer = cluster.send(id, method, "/kv/ada", Vec::new()).unwrap();
        assert_eq!(answer.status, StatusCode::GONE);
        let member = &cluster.nodes[&voters[0]].address;
        assert!(text(&answer).contains("removed") && text(&answer).contains(member), "{answer:?}");
    }
    status.term
}

#[test]
fn removed_nodes_say_so_and_start_no_elections() {
    let mut cluster = Cluster::start(&[]);
    let leader = cluster.leader();
    let others: Vec<u64> = cluster.nodes.keys().copied().filter(|id| *id != leader).collect();
    let [stays, removed] = others[..] else { panic!("{others:?}") };
    let mut voters = [leader, stays];
    voters.sort_unstable();

    // It does not run when it is removed, so it gets no message about it.
    wait_until("it is a member", || put(&cluster, removed)?.headers.get("location").cloned());
    cluster.kill(removed);
    cluster.set_voters(|_| voters.into());
    cluster.start_again(removed);
    let term = wait_removed(&cluster, removed, &voters);

    // A member without a leader stands for election twice before a removed node would do so once.
    cluster.kill(leader);
    wait_until("there are elections", || (cluster.status(stays)?.term > term + 1).then_some(()));
    assert_eq!(cluster.status(removed).unwrap().term, term, "it stood for election");
    wait_until("it tells", || cluster.log(removed).contains("it was removed").then_some(()));
    cluster.start_again(leader);

    // A leader that removes itself.
    let other = |leader| if leader == voters[0] { voters[1] } else { voters[0] };
    let leader = cluster.set_voters(|leader| vec![other(leader)]);
    let stays = other(leader);
    wait_removed(&cluster, leader, &[stays]);

    cluster.add_learner(removed);
    wait_until("the node is back", || put(&cluster, removed)?.headers.get("location").cloned());
    assert!(!cluster.status(removed).unwrap().removed);
}

#[test]
fn nobody_is_sent_to_a_dead_leader() {
    let mut cluster = Cluster::start(&[]);
    let leader = cluster.leader();
    // One that only listens never stands for election.
    cluster.add_empty(4);
    cluster.add_learner(4);
    let voter = leader % 3 + 1;
    for id in [voter, 4] {
        wait_until("the leader is known", || put(&cluster, id)?.headers.get("location").cloned());
    }
    let other = voter % 3 + 1;
    // Without a majority there is no new leader.
    cluster.kill(other);
    cluster.kill(leader);
    for id in [4, voter] {
        let answer = wait_until("there is no redirect", || {
            put(&cluster, id).filter(|answer| answer.status == StatusCode::SERVICE_UNAVAILABLE)
        });
        assert!(text(&answer).contains("no leader is known here"), "{answer:?}");
        wait_until("it tells", || cluster.log(id).contains("hears of no leader").then_some(()));
    }
}

#[test]
fn writes_beyond_the_bound_are_refused() {
    let cluster = Cluster::start(&["--open-proposals", "2"]);
    let leader = cluster.leader();
    let followers = cluster.nodes.keys().filter(|id| **id != leader);
    followers.clone().for_each(|id| cluster.pause(*id));
    let open = [1, 2].map(|_| {
        let mut client = TcpStream::connect(&cluster.nodes[&leader].address).unwrap();
        let head = "PUT /kv/ada HTTP/1.1\r\nhost: raft\r\nconnection: close\r\ncontent-length: 4";
        client.write_all(format!("{head}\r\n\r\n1815").as_bytes()).unwrap();
        client
    });
    for mut client in open {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    }
    // These clients gave up, but openraft did not.
    let refused = put(&cluster, leader).unwrap();
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(text(&refused).contains("2 writes are open"), "{refused:?}");
    let samples = samples(&cluster, leader);
    assert_eq!(samples["raft_kv_open_proposals"], 2.0);
    assert_eq!(samples["raft_kv_refused_total{why=\"open_proposals\"}"], 1.0);
    wait_until("it tells", || cluster.log(leader).contains("1 as open_proposals").then_some(()));

    followers.for_each(|id| cluster.resume(*id));
    wait_until("writes work again", || {
        put(&cluster, cluster.leader()).filter(|answer| answer.status == StatusCode::OK)
    });
}

#[test]
fn metrics_agree_with_status() {
    let cluster = Cluster::start(&["--snapshot-after", "10"]);
    let leader = cluster.leader();
    for _ in 0..30 {
        assert_eq!(put(&cluster, leader).unwrap().status, StatusCode::OK);
    }
    for (path, body, status) in [
        ("/cluster/voters", "[9]", StatusCode::CONFLICT),
        ("/cluster/voters", "[", StatusCode::BAD_REQUEST),
        ("/cas/ada", "1815", StatusCode::BAD_REQUEST),
        ("/cluster/nodes", "{\"id\": 9, \"address\": \"nowhere\"}", StatusCode::CONFLICT),
        ("/raft/9/vote", "", StatusCode::MISDIRECTED_REQUEST),
    ] {
        assert_eq!(cluster.post(leader, path, body.into()).unwrap().status, status, "{path}");
    }
    let snapshot = wait_until("there is a snapshot", || cluster.status(leader)?.snapshot);
    let samples = samples(&cluster, leader);
    let status = cluster.status(leader).unwrap();
    assert_eq!(samples["raft_kv_state{state=\"leader\"}"], 1.0);
    assert_eq!(samples["raft_kv_term"], status.term as f64);
    assert_eq!(samples["raft_kv_leader"], leader as f64);
    assert_eq!(samples["raft_kv_last_log_index"], status.last.unwrap() as f64);
    assert_eq!(samples["raft_kv_last_applied_index"], status.applied.unwrap() as f64);
    assert!(samples["raft_kv_snapshot_index"] >= snapshot as f64);
    for id in 1..=3 {
        assert_eq!(samples[&format!("raft_kv_member{{node=\"{id}\",role=\"voter\"}}")], 1.0);
    }
    assert_eq!(samples["raft_kv_removed"], 0.0);
    assert_eq!(samples["raft_kv_open_proposals"], 0.0);
    assert_eq!(samples["raft_kv_refused_total{why=\"bad_request\"}"], 5.0);
    assert!(samples["siftdb_batches_total"] > 30.0);
    let log = cluster.log(leader);
    for said in ["is the leader of term", "{1, 2, 3} vote", "built a snapshot up to entry"] {
        assert!(log.contains(said), "{said}: {log}");
    }
}

/// The samples of a node. Fails if their text is no OpenMetrics.
fn samples(cluster: &Cluster, id: u64) -> BTreeMap<String, f64> {
    let answer = cluster.send(id, Method::GET, "/metrics", Vec::new()).unwrap();
    assert!(answer.headers["content-type"].to_str().unwrap().contains("openmetrics-text"));
    let text = text(&answer);
    let body = text.strip_suffix("# EOF\n").unwrap();
    let (mut families, mut samples) = (BTreeSet::new(), BTreeMap::new());
    let mut family = ("", "");
    for line in body.lines() {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            family = typed.split_once(' ').unwrap();
            assert!(families.insert(family.0), "{line}");
        } else if let Some(told) = line.strip_prefix("# ") {
            let [what, name, text] = told.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            assert!(["HELP", "UNIT"].contains(&what) && name == family.0, "{line}");
            assert!(what == "HELP" || name.ends_with(text), "{line}");
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let suffix = sample.split('{').next().unwrap().strip_prefix(family.0).expect(line);
            let fits = match family.1 {
                "counter" => suffix == "_total",
                "gauge" => suffix.is_empty(),
                "histogram" => ["_bucket", "_count", "_sum"].contains(&suffix),
                _ => false,
            };
            assert!(fits, "{line}");
            let twice = samples.insert(sample.to_string(), value.parse().expect(line));
            assert!(twice.is_none(), "{line}");
        }
    }
    samples
}
