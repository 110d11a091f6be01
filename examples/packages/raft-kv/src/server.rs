//! The HTTP server of a node: its routes, and what their handlers share.
//!
//! | for | routes | file |
//! |---|---|---|
//! | clients | `GET`, `PUT`, `DELETE /kv/KEY`, `POST /cas/KEY` | `clients.rs` |
//! | operators | `GET /status`, `POST /cluster/...` | `operators.rs` |
//! | Prometheus | `GET /metrics` | `metrics.rs` |
//! | other nodes | `POST /raft/ID/append`, `vote`, `snapshot`, `GET .../members` | `peers.rs` |

use crate::members::Heard;
use crate::storage::{Storage, to_json};
use crate::types::{NodeId, Raft};
use crate::{clients, metrics, operators, peers};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// A client or operator gets an answer within this time.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Why nothing was done, in words for the log and labels for `/metrics`.
pub const REFUSALS: [&str; 5] =
    ["bad_request", "not_leader", "no_leader", "open_proposals", "removed"];

/// What the handlers work with.
#[derive(Clone)]
pub struct App {
    /// The number of this node.
    pub id: NodeId,
    /// The node.
    pub raft: Raft,
    /// Its database.
    pub storage: Arc<Storage>,
    /// What it heard from the others.
    pub heard: Arc<Heard>,
    /// A permit for each proposal that may still be opened.
    pub proposals: Arc<Semaphore>,
    /// How many proposals may be open.
    pub open_proposals_max: usize,
    /// Requests refused so far, in the order of [`REFUSALS`].
    pub refused: Arc<[AtomicU64; REFUSALS.len()]>,
}

impl App {
    /// Proposals that are neither applied nor given up.
    #[must_use]
    pub fn open_proposals(&self) -> usize {
        self.open_proposals_max - self.proposals.available_permits()
    }

    /// Sends a client to the leader, or says that there is none. Nothing was done.
    #[must_use]
    pub fn to_leader(&self, uri: &Uri) -> Response {
        let members = self.members();
        if self.is_removed() {
            let at: Vec<&str> = members.nodes().map(|(_, node)| node.addr.as_str()).collect();
            let said = format!(
                "node {} is no member: it was removed from the cluster, or is not added yet; \
                 ask one of {}",
                self.id,
                at.join(", ")
            );
            return text(StatusCode::GONE, said);
        }
        // A node may believe that it leads while it finds out that it does not.
        let leader = self.leader().filter(|leader| *leader != self.id);
        match leader.and_then(|id| members.membership().get_node(&id)) {
            Some(node) => {
                let to = format!("http://{}{uri}", node.addr);
                let said = format!("the leader is at {}\n", node.addr);
                (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, to)], said).into_response()
            }
            None => {
                let said = "no leader is known here; try again, or another node";
                text(StatusCode::SERVICE_UNAVAILABLE, said)
            }
        }
    }
}

/// The routes of a node.
pub fn routes(app: App) -> Router {
    Router::new()
        .merge(clients::routes())
        .merge(operators::routes())
        .merge(metrics::routes())
        .merge(peers::routes())
        .layer(from_fn_with_state(app.clone(), count_refusals))
        .with_state(app)
}

async fn count_refusals(State(app): State<App>, request: Request, next: Next) -> Response {
    let answer = next.run(request).await;
    let why = refusal(&answer);
    if let Some(at) = REFUSALS.iter().position(|refusal| why == Some(*refusal)) {
        app.refused[at].fetch_add(1, Ordering::Relaxed);
    }
    answer
}

fn refusal(answer: &Response) -> Option<&'static str> {
    match answer.status() {
        // A key without a value.
        StatusCode::NOT_FOUND => None,
        StatusCode::TEMPORARY_REDIRECT => Some("not_leader"),
        StatusCode::GONE => Some("removed"),
        StatusCode::SERVICE_UNAVAILABLE => {
            let later = answer.headers().contains_key(header::RETRY_AFTER);
            Some(if later { "open_proposals" } else { "no_leader" })
        }
        status => status.is_client_error().then_some("bad_request"),
    }
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
