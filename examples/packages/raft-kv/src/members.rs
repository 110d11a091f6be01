//! The leader and the members that this node knows of.
//!
//! Openraft 0.9 leaves two things to the service:
//!
//! - A node takes its leader for alive until it becomes a candidate itself, which a learner never
//!   does. So this node notes when a leader last sent it a message.
//! - A leader stops sending to a node that a change of the membership removes, often before that
//!   node has the entry about it. So a node without a leader asks the members that it knows of,
//!   again and again.

use crate::http_client::{Client, whole};
use crate::node::ELECTION_TIMEOUT_MAX;
use crate::server::App;
use crate::types::{Membership, NodeId};
use hyper::Method;
use openraft::{ServerState, Vote};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::{interval, timeout};

/// How often a node without a leader asks the others.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// What this node has heard from others.
#[derive(Debug, Default)]
pub struct Heard {
    /// The last leader that sent something, and when.
    leader: Mutex<Option<(NodeId, Instant)>>,
    /// The newest membership that another node gave as an answer.
    members: Mutex<Membership>,
}

impl App {
    /// Notes a message from the leader with this vote.
    pub fn heard_from(&self, vote: &Vote<NodeId>) {
        // Not from one that has been voted out.
        if vote.is_committed() && *vote >= self.raft.server_metrics().borrow().vote {
            let leader = vote.leader_id().voted_for().map(|leader| (leader, Instant::now()));
            *self.heard.leader.lock().unwrap_or_else(PoisonError::into_inner) = leader;
        }
    }

    /// Whether this node is the leader, as far as it knows.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.raft.server_metrics().borrow().state == ServerState::Leader
    }

    /// The leader, if this node is the leader or has just heard from it.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        if self.leads() {
            return Some(self.id);
        }
        let heard = *self.heard.leader.lock().unwrap_or_else(PoisonError::into_inner);
        let (leader, at) = heard?;
        let follows = self.raft.server_metrics().borrow().current_leader == Some(leader);
        (follows && at.elapsed() < ELECTION_TIMEOUT_MAX).then_some(leader)
    }

    /// The newest membership that this node knows of.
    #[must_use]
    pub fn members(&self) -> Membership {
        let own = Membership::clone(&self.raft.server_metrics().borrow().membership_config);
        let heard = self.heard.members.lock().unwrap_or_else(PoisonError::into_inner);
        // Only committed ones are given, so if it is newer it has replaced the own one.
        if heard.log_id() > own.log_id() { heard.clone() } else { own }
    }

    /// Whether this node is no member. One that catches up has old memberships without itself, but
    /// hears from a leader.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        let members = self.members();
        let is_member = members.membership().get_node(&self.id).is_some();
        members.log_id().is_some() && !is_member && self.leader().is_none()
    }
}

/// Asks the others for the membership while there is no leader. A removed node stops that, and
/// starts no elections.
pub async fn ask(app: &App) {
    let mut ticks = interval(ASK_EVERY);
    loop {
        ticks.tick().await;
        if app.leader().is_none() && !app.is_removed() {
            for (id, node) in app.members().nodes().filter(|(id, _)| **id != app.id) {
                // One that does not answer is asked again with the next tick.
                if let Some(members) = members_at(*id, &node.addr).await {
                    let mut heard =
                        app.heard.members.lock().unwrap_or_else(PoisonError::into_inner);
                    if members.log_id() > heard.log_id() {
                        *heard = members;
                    }
                }
            }
        }
        app.raft.runtime_config().elect(!app.is_removed());
    }
}

/// The membership that the node `id` gives, if it answers at this address.
pub async fn members_at(id: NodeId, address: &str) -> Option<Membership> {
    let path = format!("/raft/{id}/members");
    let mut client = Client::new(address);
    let answer = timeout(ASK_EVERY, client.send(Method::GET, &path, whole(""))).await.ok()?.ok()?;
    serde_json::from_slice(&answer.body).ok()
}
