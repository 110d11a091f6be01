//! Three processes that are killed again and again while clients read and write.
//!
//! `RAFT_KV_SECONDS` and `RAFT_KV_KILLS` set how long and how often at least, and `RAFT_KV_SEED`
//! where and when.

use crate::clients::Clients;
use crate::cluster::{Cluster, wait_until};
use crate::random::Random;
use siftdb::Options;
use siftdb_raft_kv::storage::Storage;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const CLIENTS: u64 = 8;
/// Few enough that the log is purged all the time.
const SNAPSHOT_AFTER: [&str; 2] = ["--snapshot-after", "200"];

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

struct Run {
    cluster: Cluster,
    random: Random,
    kills: u64,
    leaders_killed: u64,
    replaced: u64,
}

impl Run {
    /// Waits until the cluster has done some work.
    fn work(&mut self, clients: &Clients) {
        let goal = clients.acknowledged() + 20 + self.random.below(150);
        wait_until("writes are acknowledged", || (clients.acknowledged() >= goal).then_some(()));
    }

    /// Kills a node: the leader every other time.
    fn kill(&mut self) -> u64 {
        let leader = self.cluster.leader();
        let mut ids: Vec<u64> = self.cluster.nodes.keys().copied().collect();
        ids.retain(|id| *id != leader);
        let victim = match self.random.one_in(2) {
            true => leader,
            false => ids[self.random.below(ids.len() as u64) as usize],
        };
        self.cluster.kill(victim);
        self.kills += 1;
        self.leaders_killed += u64::from(victim == leader);
        victim
    }

    /// Kills a node, and now and then a second one, and starts them again some time later.
    fn kill_and_start_again(&mut self) {
        let mut victims = vec![self.kill()];
        if self.random.one_in(4) {
            let next = self.cluster.nodes.keys().find(|id| **id != victims[0]);
            let next = *next.unwrap();
            self.cluster.kill(next);
            self.kills += 1;
            victims.push(next);
        }
        // How long they stay away is part of the random schedule.
        std::thread::sleep(Duration::from_millis(self.random.below(1000)));
        for victim in victims {
            self.cluster.start_again(victim);
        }
    }

    /// Stops the leader until there is another one that has written, and continues it. For a
    /// moment it still believes that it leads, and has requests of clients to answer.
    fn pause_the_leader(&mut self, clients: &mut Clients) {
        let old = self.cluster.leader();
        // Those that are connected to it wait, and others do not begin to.
        clients.set_addresses(self.addresses_without(old));
        self.cluster.pause(old);
        self.cluster.leader_without(old);
        self.work(clients);
        // These wait in its socket, and are the first thing that it does.
        clients.read_at(&self.cluster.nodes[&old].address);
        std::thread::sleep(Duration::from_millis(50));
        self.cluster.resume(old);
        clients.set_addresses(self.addresses_without(0));
    }

    fn addresses_without(&self, left_out: u64) -> Vec<String> {
        let nodes = self.cluster.nodes.iter().filter(|(id, _)| **id != left_out);
        nodes.map(|(_, node)| node.address.clone()).collect()
    }

    /// Kills a node for good. An empty one takes its place while clients write. It must get a
    /// snapshot, because the log has no beginning any more.
    fn replace(&mut self, clients: &Clients) {
        wait_until("the log is purged", || {
            self.cluster.status(self.cluster.leader())?.purged.filter(|purged| *purged > 0)
        });
        let victim = self.kill();
        self.cluster.nodes.remove(&victim);
        self.replaced += 1;
        let id = 3 + self.replaced;
        self.cluster.add_empty(id);
        self.cluster.add_learner(id);
        let voters: Vec<u64> = self.cluster.nodes.keys().copied().collect();
        self.cluster.set_voters(|_| voters.clone());
        // It hears of the change a moment after the leader has committed it.
        let voters = voters.into_iter().collect();
        wait_until("the new node votes and has a snapshot", || {
            let status = self.cluster.status(id)?;
            (status.voters == voters && status.snapshot.is_some()).then_some(())
        });
        let log = self.cluster.log(id);
        assert!(log.contains("installed a snapshot up to entry"), "{log}");
        clients.set_addresses(self.addresses_without(0));
    }

    /// Waits until all nodes have applied the same entries, and compares what they hold.
    fn compare_nodes(&mut self) {
        wait_until("all nodes have applied the same", || {
            let all = self.cluster.nodes.keys().map(|id| self.cluster.status(*id)?.applied);
            let all: Vec<u64> = all.collect::<Option<_>>()?;
            all.iter().all(|at| *at == all[0]).then_some(())
        });
        self.cluster.stop();
        let mut contents = Vec::new();
        for node in self.cluster.nodes.values() {
            let storage = Storage::open(&node.directory, Options::new()).unwrap();
            assert!(storage.db.verify(|_| ()).unwrap().is_sound());
            let entries = storage.data().iter().map(Result::unwrap);
            let text = |bytes: &[u8]| String::from_utf8(bytes.into()).unwrap();
            let entries = entries.map(|(key, value)| (text(&key), text(&value)));
            contents.push(entries.collect::<BTreeMap<String, String>>());
        }
        assert!(contents.windows(2).all(|two| two[0] == two[1]), "nodes differ");
    }
}

#[test]
fn no_acknowledged_write_is_lost_in_kills() {
    let (seconds, kills) = (setting("RAFT_KV_SECONDS", 0), setting("RAFT_KV_KILLS", 5));
    let seed = setting("RAFT_KV_SEED", 1);
    let started = Instant::now();
    let cluster = Cluster::start(&SNAPSHOT_AFTER);
    let addresses = cluster.nodes.values().map(|node| node.address.clone()).collect();
    let mut clients = Clients::start(CLIENTS, seed, addresses);
    let random = Random(seed);
    let mut run = Run { cluster, random, kills: 0, leaders_killed: 0, replaced: 0 };
    for round in 1.. {
        run.work(&clients);
        if run.kills >= kills && started.elapsed().as_secs() >= seconds {
            break;
        }
        match round % 5 {
            1 => run.pause_the_leader(&mut clients),
            3 => run.replace(&clients),
            _ => run.kill_and_start_again(),
        }
    }
    let took = started.elapsed();
    let figures = clients.check();
    // Every election has a term of its own.
    let elections = run.cluster.status(run.cluster.leader()).unwrap().term;
    println!(
        "{} kills, {} of them of a leader, {} nodes replaced by empty ones, {elections} elections, \
         in {took:?}; linearizable: {figures:?}",
        run.kills, run.leaders_killed, run.replaced,
    );
    assert!(figures.acknowledged > 100 && figures.reads > 100 && run.replaced > 0);
    // The clients are gone, so nothing is written any more.
    run.compare_nodes();
}
