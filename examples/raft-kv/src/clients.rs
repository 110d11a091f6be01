//! What clients call: reads and writes of keys, linearizable.
//!
//! | answer | what happened |
//! |---|---|
//! | 200, 404 | the call was done at one moment between request and answer |
//! | 307 | nothing: this node is not the leader; the answer says where that is |
//! | 400, 413 | nothing: a key or value that may not be |
//! | 503 | nothing: no leader, or it cannot reach a majority |
//! | 504 | unknown: the write may be done already, later or never |

use crate::server::{ANSWER_WITHIN, App, json, text};
use crate::types::{Answer, Command};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
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
    // From here on the entry may be in the log. If openraft says now that another node leads, it
    // may still be in the logs of others, and be applied one day. So that is no redirect.
    match timeout(ANSWER_WITHIN, app.raft.client_write(command)).await {
        Ok(Ok(applied)) => match applied.data {
            Answer::Done => text(StatusCode::OK, "done"),
            compared @ Answer::Compared { .. } => json(&compared),
        },
        Ok(Err(error)) => text(StatusCode::GATEWAY_TIMEOUT, error),
        Err(late) => text(StatusCode::GATEWAY_TIMEOUT, late),
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
