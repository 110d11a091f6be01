//! A cluster of processes, which can be killed and started again.

use hyper::Method;
use siftdb_raft_kv::http_client::{Client, Response, whole};
use siftdb_raft_kv::operators::{NewNode, Status};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_raft-kv");

/// Longer than anything may take on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A node: a directory, an address, and a process or none.
pub struct Node {
    pub address: String,
    pub directory: PathBuf,
    child: Option<Child>,
}

pub struct Cluster {
    pub nodes: BTreeMap<u64, Node>,
    root: TempDir,
    runtime: Runtime,
    options: Vec<String>,
}

impl Cluster {
    /// Starts nodes 1 to 3 with these options and makes them a cluster.
    pub fn start(options: &[&str]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let options = options.iter().map(|option| option.to_string()).collect();
        let mut cluster = Cluster { nodes: BTreeMap::new(), root, runtime, options };
        for id in 1..=3 {
            cluster.add_empty(id);
        }
        let addresses = cluster.nodes.iter().map(|(id, node)| (*id, node.address.clone()));
        let addresses: BTreeMap<u64, String> = addresses.collect();
        let body = serde_json::to_vec(&addresses).unwrap();
        let answer = cluster.post(1, "/cluster/init", body).unwrap();
        assert!(answer.status.is_success(), "{answer:?}");
        cluster
    }

    /// Starts a node with an empty directory, which is no member yet.
    pub fn add_empty(&mut self, id: u64) {
        let directory = self.root.path().join(format!("node-{id}"));
        let address = free_listener().local_addr().unwrap().to_string();
        let node = Node { address, directory, child: None };
        self.nodes.insert(id, node);
        self.start_again(id);
    }

    /// Starts the process of a node and waits until it answers.
    pub fn start_again(&mut self, id: u64) {
        let log = self.root.path().join(format!("node-{id}.log"));
        let log = File::options().create(true).append(true).open(log).unwrap();
        let node = self.nodes.get_mut(&id).unwrap();
        let child = Command::new(PROGRAM)
            .arg("node")
            .arg(&node.directory)
            .args(["--id", &id.to_string(), "--listen", &node.address, "--until-stdin-ends"])
            .args(&self.options)
            // It ends with this process, however this one ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        node.child = Some(child);
        wait_until("the node answers", || self.status(id));
    }

    /// What the node has told since its first start.
    pub fn log(&self, id: u64) -> String {
        fs::read_to_string(self.root.path().join(format!("node-{id}.log"))).unwrap()
    }

    /// SIGKILL.
    pub fn kill(&mut self, id: u64) {
        let mut child = self.nodes.get_mut(&id).unwrap().child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Stops a process for a while. It does not notice, and believes what it believed before.
    pub fn pause(&self, id: u64) {
        self.signal(id, "-STOP");
    }

    /// Continues a stopped process.
    pub fn resume(&self, id: u64) {
        self.signal(id, "-CONT");
    }

    fn signal(&self, id: u64, signal: &str) {
        let process = self.nodes[&id].child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }

    /// Ends the processes of all nodes properly.
    pub fn stop(&mut self) {
        for (id, node) in &mut self.nodes {
            let mut child = node.child.take().unwrap();
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success(), "node {id}");
        }
    }

    pub fn status(&self, id: u64) -> Option<Status> {
        let answer = self.send(id, Method::GET, "/status", Vec::new())?;
        Some(serde_json::from_slice(&answer.body).unwrap())
    }

    /// The leader that a majority of the voters agrees on.
    pub fn leader(&self) -> u64 {
        self.leader_without(0)
    }

    /// The same, without asking node `paused`, which would not answer.
    pub fn leader_without(&self, paused: u64) -> u64 {
        wait_until("there is a leader", || {
            let ids = self.nodes.keys().filter(|id| **id != paused);
            let all: Vec<Status> = ids.filter_map(|id| self.status(*id)).collect();
            let leader = all.iter().find(|status| status.leader == Some(status.id))?;
            let agree = all.iter().filter(|other| other.leader == Some(leader.id)).count();
            (2 * agree > leader.voters.len()).then_some(leader.id)
        })
    }

    /// Makes a node that runs a member.
    pub fn add_learner(&self, id: u64) {
        let new = NewNode { id, address: self.nodes[&id].address.clone() };
        self.change("/cluster/nodes", |_| serde_json::to_vec(&new).unwrap());
    }

    /// Makes these the voters, which may depend on the leader. Returns the leader that did it.
    pub fn set_voters(&self, voters: impl Fn(u64) -> Vec<u64>) -> u64 {
        self.change("/cluster/voters", |leader| serde_json::to_vec(&voters(leader)).unwrap())
    }

    /// Changes the membership: at the leader, whichever that is.
    fn change(&self, path: &str, body: impl Fn(u64) -> Vec<u8>) -> u64 {
        wait_until("the membership changes", || {
            let leader = self.leader();
            self.post(leader, path, body(leader))?.status.is_success().then_some(leader)
        })
    }

    pub fn post(&self, id: u64, path: &str, body: Vec<u8>) -> Option<Response> {
        self.send(id, Method::POST, path, body)
    }

    pub fn send(&self, id: u64, method: Method, path: &str, body: Vec<u8>) -> Option<Response> {
        let mut client = Client::new(&self.nodes[&id].address);
        let sent = client.send(method, path, whole(body));
        self.runtime
            .block_on(async { tokio::time::timeout(DEADLINE, sent).await.expect("no answer").ok() })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.nodes.keys().for_each(|id| println!("{}", self.log(*id)));
        }
    }
}

/// Ports below those that the system gives to outgoing connections: none of them is taken while
/// its node is dead.
pub fn free_listener() -> TcpListener {
    let [listener] = free_listeners();
    listener
}

/// Neighbours.
pub fn free_listeners<const N: usize>() -> [TcpListener; N] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = 10_000 + (std::process::id() % 1000) as u16 * 20;
    loop {
        let first = base + NEXT.fetch_add(N as u16, Ordering::SeqCst);
        let all = (first..).take(N).map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
        if let Some(all) = all.collect::<Option<Vec<_>>>() {
            return all.try_into().unwrap();
        }
    }
}

/// Asks until there is an answer.
pub fn wait_until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(started.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
