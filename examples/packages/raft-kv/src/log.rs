//! The log of a node on its standard error: a line for each event, with the number of the node.
//!
//! Refused requests are counted: one line a second at most says how many there were.

use crate::server::{App, REFUSALS};
use crate::types::{NodeId, Snapshot};
use openraft::ServerState;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::interval;

/// Refused requests are written once in this time at most.
const REFUSALS_EVERY: Duration = Duration::from_secs(1);

static NODE: OnceLock<NodeId> = OnceLock::new();

/// Sets the number that each line begins with. Before that no line is written.
pub fn begin(id: NodeId) {
    NODE.get_or_init(|| id);
}

/// Writes a line.
pub fn line(what: impl Display) {
    if let Some(id) = NODE.get() {
        // One call for the whole line: several nodes may write to one terminal. The node needs no
        // log, so a failure is ignored.
        let _ = io::stderr().write_all(format!("node {id}: {what}\n").as_bytes());
    }
}

/// Writes a line about a snapshot.
pub fn snapshot(what: impl Display, of: &Snapshot) {
    let last = of.meta.last_log_id.map_or(0, |last| last.index);
    let bytes = of.snapshot.bytes();
    line(format_args!("{what} a snapshot up to entry {last}, of {bytes} bytes"));
}

/// What is compared to find events.
struct Seen {
    state: ServerState,
    term: u64,
    leader: Option<NodeId>,
    /// In words.
    members: String,
    removed: bool,
}

impl Seen {
    fn now(app: &App) -> Self {
        let (leader, removed, members) = (app.leader(), app.is_removed(), app.members());
        let voters: BTreeSet<NodeId> = members.voter_ids().collect();
        let all: BTreeSet<NodeId> = members.nodes().map(|(id, _)| *id).collect();
        let members = format!("{voters:?} vote, {:?} listen", &all - &voters);
        let metrics = app.raft.server_metrics();
        let metrics = metrics.borrow();
        let (state, term) = (metrics.state, metrics.vote.leader_id().term);
        Seen { state, term, leader, members, removed }
    }

    fn tell_changes_since(&self, before: &Seen) {
        let term = self.term;
        if (self.state, term) != (before.state, before.term) {
            match self.state {
                ServerState::Leader => line(format_args!("is the leader of term {term}")),
                ServerState::Candidate => line(format_args!("asks for votes for term {term}")),
                _ if before.state == ServerState::Leader => {
                    line(format_args!("lost the lead, in term {term}"));
                }
                _ => {}
            }
        }
        if self.leader != before.leader && self.state != ServerState::Leader {
            match self.leader {
                Some(leader) => line(format_args!("follows node {leader}, term {term}")),
                None => line("hears of no leader"),
            }
        }
        if self.members != before.members {
            line(format_args!("members: {}", self.members));
        }
        if self.removed && !before.removed {
            line("is no member: it was removed from the cluster, or is not added yet");
        }
    }
}

/// Tells events for as long as the node runs.
pub async fn watch(app: &App) {
    let mut server = app.raft.server_metrics();
    // What changes without a message: a leader falls silent.
    let mut ticks = interval(REFUSALS_EVERY);
    let (mut seen, mut refused) = (Seen::now(app), [0; REFUSALS.len()]);
    loop {
        tokio::select! {
            changed = server.changed() => if changed.is_err() {
                // The node stops.
                return;
            },
            _ = ticks.tick() => tell_refused(app, &mut refused),
        }
        let now = Seen::now(app);
        now.tell_changes_since(&seen);
        seen = now;
    }
}

fn tell_refused(app: &App, told: &mut [u64; REFUSALS.len()]) {
    let mut news = Vec::new();
    for ((why, count), told) in REFUSALS.iter().zip(&*app.refused).zip(told) {
        let count = count.load(Ordering::Relaxed);
        if count > *told {
            news.push(format!("{} as {why}", count - *told));
        }
        *told = count;
    }
    if !news.is_empty() {
        line(format_args!("refused requests: {}", news.join(", ")));
    }
}
