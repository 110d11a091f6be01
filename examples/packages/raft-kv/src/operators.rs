//! What operators call: the state of a node, and changes of the membership.
//!
//! A node that is to be replaced goes in two steps: `POST /cluster/nodes` adds the new one, which
//! only listens, and answers when it has caught up. `POST /cluster/voters` then says which nodes
//! vote.

use crate::members::members_at;
use crate::server::{App, json, text};
use crate::types::NodeId;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::{get, post};
use openraft::BasicNode;
use openraft::error::{ClientWriteError, RaftError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::timeout;

/// How long a new node may take until it has caught up. After that the call ends, and the node
/// keeps catching up.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(60);

/// A node that is added: the body of `POST /cluster/nodes`.
#[derive(Debug, Serialize, Deserialize)]
pub struct NewNode {
    /// Its number, which no node had before.
    pub id: NodeId,
    /// Where it listens.
    pub address: String,
}

/// The answer of `GET /status`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    /// The number of this node.
    pub id: NodeId,
    /// `Leader`, `Follower`, `Candidate` or `Learner`.
    pub state: String,
    /// The leader, if this node has just heard from it.
    pub leader: Option<NodeId>,
    /// The term.
    pub term: u64,
    /// Index of the last entry in its log.
    pub last: Option<u64>,
    /// Index of the last entry that it applied.
    pub applied: Option<u64>,
    /// Index of the last entry in its snapshot.
    pub snapshot: Option<u64>,
    /// Index of the last entry that was purged from its log.
    pub purged: Option<u64>,
    /// The address of each node of the cluster.
    pub nodes: BTreeMap<NodeId, String>,
    /// The nodes that vote.
    pub voters: BTreeSet<NodeId>,
    /// Whether this node is no member: it was removed, or is not added yet.
    pub removed: bool,
}

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/status", get(status))
        .route("/cluster/init", post(init))
        .route("/cluster/nodes", post(add))
        .route("/cluster/voters", post(set_voters))
}

async fn status(State(app): State<App>) -> Response {
    let metrics = app.raft.metrics().borrow().clone();
    let members = app.members();
    json(&Status {
        id: app.id,
        state: format!("{:?}", metrics.state),
        leader: app.leader(),
        term: metrics.current_term,
        last: metrics.last_log_index,
        applied: metrics.last_applied.map(|last| last.index),
        snapshot: metrics.snapshot.map(|last| last.index),
        purged: metrics.purged.map(|last| last.index),
        nodes: members.nodes().map(|(id, node)| (*id, node.addr.clone())).collect(),
        voters: members.voter_ids().collect(),
        removed: app.is_removed(),
    })
}

/// Makes a cluster of new nodes: `{"1": "127.0.0.1:7101", ...}`.
async fn init(State(app): State<App>, body: Bytes) -> Response {
    let nodes: BTreeMap<NodeId, String> = match serde_json::from_slice(&body) {
        Ok(nodes) => nodes,
        Err(error) => return text(StatusCode::BAD_REQUEST, error),
    };
    let nodes = nodes.into_iter().map(|(id, addr)| (id, BasicNode { addr }));
    match app.raft.initialize(nodes.collect::<BTreeMap<_, _>>()).await {
        Ok(()) => text(StatusCode::OK, "done"),
        Err(RaftError::APIError(error)) => text(StatusCode::CONFLICT, error),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

async fn add(State(app): State<App>, uri: Uri, body: Bytes) -> Response {
    match serde_json::from_slice::<NewNode>(&body) {
        Ok(NewNode { id, address }) => {
            // A node that is added stays, and so would an address with a mistake.
            if members_at(id, &address).await.is_none() {
                let said = format!("no node {id} answers at {address}: start it first");
                return text(StatusCode::CONFLICT, said);
            }
            let added = app.raft.add_learner(id, BasicNode { addr: address }, true);
            match timeout(CATCH_UP_WITHIN, added).await {
                Ok(added) => changed(&app, &uri, added),
                Err(late) => text(StatusCode::GATEWAY_TIMEOUT, late),
            }
        }
        Err(error) => text(StatusCode::BAD_REQUEST, error),
    }
}

/// `[1, 2, 4]`: these vote, and the others leave the cluster.
async fn set_voters(State(app): State<App>, uri: Uri, body: Bytes) -> Response {
    match serde_json::from_slice::<BTreeSet<NodeId>>(&body) {
        Ok(voters) => changed(&app, &uri, app.raft.change_membership(voters, false).await),
        Err(error) => text(StatusCode::BAD_REQUEST, error),
    }
}

/// To change the membership twice does no harm, so a redirect may always be followed.
fn changed<T>(
    app: &App,
    uri: &Uri,
    result: Result<T, RaftError<NodeId, ClientWriteError<NodeId, BasicNode>>>,
) -> Response {
    match result {
        Ok(_) => text(StatusCode::OK, "done"),
        Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => app.to_leader(uri),
        Err(error) => text(StatusCode::CONFLICT, error),
    }
}
