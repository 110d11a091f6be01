//! What clients call: reads and writes of keys, linearizable.
//!
//! | answer | what happened |
//! |---|---|
//! | 200, 404 | the call was done at one moment between request and answer |
//! | 307 | nothing: this node is not the leader; the answer says where that is |
//! | 400, 413 | nothing: a key or value that may not be |
//! | 410 | nothing: this node was removed; the answer says where members are |
//! | 503 | nothing: no leader is known, or it cannot reach a majority |
//! | 503 with `Retry-After` | nothing: too many writes are open |
//! | 504 | unknown: the write may be done already, later or never |

use crate::server::{ANSWER_WITHIN, App, json, text};
use crate::types::{Answer, Command};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use openraft::ServerState;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// Bytes of a value at most. Many of them travel in one message between nodes.
pub const VALUE_BYTES_MAX: usize = 256 << 10;

/// Bytes of a key at most.
pub const KEY_BYTES_MAX: usize = 1 << 10;

/// The body of `POST /cas/KEY`; `null` is "no value".
#[derive(Debug, Serialize, Deserialize)]
pub struct CompareAndSet {
    /// The value that the key must have.
    pub expected: Option<String>,
    /// The value that it gets then.
    pub new: Option<String>,
}

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/kv/{key}", get(read).put(write).delete(remove))
        .route("/cas/{key}", post(compare_and_set))
        // Twice, for what JSON puts around two values.
        .layer(DefaultBodyLimit::max(2 * VALUE_BYTES_MAX + 1024))
}

async fn read(State(app): State<App>, Path(key): Path<String>, uri: Uri) -> Response {
    // Asks a majority whether this node still leads, and waits until it has applied what was
    // committed by then. Without that it could answer with a value that has been overwritten.
    match timeout(ANSWER_WITHIN, app.raft.ensure_linearizable()).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) if error.forward_to_leader().is_some() => return app.to_leader(&uri),
        Ok(Err(error)) => return text(StatusCode::SERVICE_UNAVAILABLE, error),
        Err(late) => return text(StatusCode::SERVICE_UNAVAILABLE, late),
    }
    match app.storage.read(&key) {
        Ok(Some(value)) => value.into_response(),
        Ok(None) => text(StatusCode::NOT_FOUND, format_args!("no value for {key}")),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

async fn write(State(app): State<App>, Path(key): Path<String>, uri: Uri, body: Bytes) -> Response {
    match String::from_utf8(body.into()) {
        Ok(value) => propose(&app, &uri, Command::Put { key, value }).await,
        Err(_) => text(StatusCode::BAD_REQUEST, "a value is UTF-8 text"),
    }
}

async fn remove(State(app): State<App>, Path(key): Path<String>, uri: Uri) -> Response {
    propose(&app, &uri, Command::Delete { key }).await
}

async fn compare_and_set(
    State(app): State<App>,
    Path(key): Path<String>,
    uri: Uri,
    body: Bytes,
) -> Response {
    match serde_json::from_slice::<CompareAndSet>(&body) {
        Ok(CompareAndSet { expected, new }) => {
            propose(&app, &uri, Command::CompareAndSet { key, expected, new }).await
        }
        Err(error) => text(StatusCode::BAD_REQUEST, error),
    }
}

/// Puts a command into the log and answers when it is applied.
async fn propose(app: &App, uri: &Uri, command: Command) -> Response {
    if let Err((status, said)) = check(&command) {
        return text(status, said);
    }
    if !app.leads() {
        return app.to_leader(uri);
    }
    let Ok(permit) = Arc::clone(&app.proposals).try_acquire_owned() else {
        let (open, after) = (app.open_proposals_max, [(header::RETRY_AFTER, "1")]);
        let said = format!("{open} writes are open, and no more may be: try again in a second");
        return (after, text(StatusCode::SERVICE_UNAVAILABLE, said)).into_response();
    };
    // From here on the entry may be in the log. If openraft says now that another node leads, it
    // may still be in the logs of others, and be applied one day. So that is no redirect.
    let outcome = tokio::spawn(outcome(app.clone(), command, permit));
    match timeout(ANSWER_WITHIN, outcome).await {
        Ok(Ok(Ok(Answer::Done))) => text(StatusCode::OK, "done"),
        Ok(Ok(Ok(compared @ Answer::Compared { .. }))) => json(&compared),
        Ok(Ok(Err(said))) => text(StatusCode::GATEWAY_TIMEOUT, said),
        Ok(Err(ended)) => text(StatusCode::GATEWAY_TIMEOUT, ended),
        Err(late) => text(StatusCode::GATEWAY_TIMEOUT, late),
    }
}

/// Proposes a command and waits for its result. It waits even if the client is gone: openraft still
/// holds the command, and a permit stands for each command that it holds.
async fn outcome(
    app: App,
    command: Command,
    _permit: OwnedSemaphorePermit,
) -> Result<Answer, String> {
    let mut server = app.raft.server_metrics();
    tokio::select! {
        biased;
        written = app.raft.client_write(command) => match written {
            Ok(applied) => Ok(applied.data),
            Err(error) => Err(error.to_string()),
        },
        // Openraft gives no outcome of entries that a snapshot of another leader covers.
        _ = server.wait_for(|now| now.state != ServerState::Leader) => {
            Err("this node lost the lead: the write may be done or not".into())
        }
    }
}

/// Refuses what the database could not write. Such an entry in the log would stop every node that
/// applies it.
fn check(command: &Command) -> Result<(), (StatusCode, String)> {
    let (key, value) = match command {
        Command::Put { key, value } => (key, Some(value)),
        Command::Delete { key } => (key, None),
        Command::CompareAndSet { key, new, .. } => (key, new.as_ref()),
    };
    if key.len() > KEY_BYTES_MAX {
        let said = format!("a key has at most {KEY_BYTES_MAX} bytes");
        return Err((StatusCode::BAD_REQUEST, said));
    }
    if value.is_some_and(|value| value.len() > VALUE_BYTES_MAX) {
        let said = format!("a value has at most {VALUE_BYTES_MAX} bytes");
        return Err((StatusCode::PAYLOAD_TOO_LARGE, said));
    }
    Ok(())
}
