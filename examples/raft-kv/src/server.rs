//! The HTTP server of a node: its routes, and what their handlers share.
//!
//! | for | routes | file |
//! |---|---|---|
//! | clients | `GET`, `PUT`, `DELETE /kv/KEY`, `POST /cas/KEY` | `clients.rs` |
//! | operators | `GET /status`, `POST /cluster/...` | `operators.rs` |
//! | other nodes | `POST /raft/ID/append`, `vote`, `snapshot` | `peers.rs` |

use crate::storage::{Storage, to_json};
use crate::types::{NodeId, Raft};
use crate::{clients, operators, peers};
use axum::Router;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

/// A client or operator gets an answer within this time.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What the handlers work with.
#[derive(Clone)]
pub struct App {
    /// The number of this node.
    pub id: NodeId,
    /// The node.
    pub raft: Raft,
    /// Its database.
    pub storage: Arc<Storage>,
}

impl App {
    /// Whether this node is the leader, as far as it knows.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.raft.metrics().borrow().current_leader == Some(self.id)
    }

    /// Sends a client to the leader. Nothing was done.
    #[must_use]
    pub fn to_leader(&self, uri: &Uri) -> Response {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        // A node may believe that it leads while it finds out that it does not.
        let leader = metrics.current_leader.filter(|leader| *leader != self.id);
        let node = leader.and_then(|id| metrics.membership_config.membership().get_node(&id));
        match node {
            Some(node) => {
                let to = format!("http://{}{uri}", node.addr);
                let said = format!("the leader is at {}\n", node.addr);
                (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, to)], said).into_response()
            }
            None => text(StatusCode::SERVICE_UNAVAILABLE, "there is no leader now; try again"),
        }
    }
}

/// The routes of a node.
pub fn routes(app: App) -> Router {
    Router::new()
        .merge(clients::routes())
        .merge(operators::routes())
        .merge(peers::routes())
        .with_state(app)
}

/// An answer of one line.
pub fn text(status: StatusCode, said: impl Display) -> Response {
    (status, format!("{said}\n")).into_response()
}

/// An answer in JSON.
pub fn json(value: &impl Serialize) -> Response {
    match to_json(value) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}
