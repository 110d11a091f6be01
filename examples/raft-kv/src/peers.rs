//! What other nodes call: messages of the protocol, and snapshots.

use crate::clients::VALUE_BYTES_MAX;
use crate::node::ENTRIES_PER_MESSAGE;
use crate::server::{App, json, text};
use crate::transfer::Incoming;
use crate::types::{NodeId, Snapshot};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use openraft::error::RaftError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::io;

/// The largest message. A byte of a value takes up to six in JSON.
const MESSAGE_BYTES_MAX: usize = ENTRIES_PER_MESSAGE as usize * (6 * VALUE_BYTES_MAX + 16384);

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/raft/{target}/append", post(append))
        .route("/raft/{target}/vote", post(vote))
        .route("/raft/{target}/snapshot", post(snapshot))
        .layer(DefaultBodyLimit::max(MESSAGE_BYTES_MAX))
}

async fn append(State(app): State<App>, Path(target): Path<NodeId>, body: Bytes) -> Response {
    answer(&app, target, &body, |message| app.raft.append_entries(message)).await
}

async fn vote(State(app): State<App>, Path(target): Path<NodeId>, body: Bytes) -> Response {
    answer(&app, target, &body, |message| app.raft.vote(message)).await
}

/// Passes a message to the node. The answer is in JSON, also if the node refuses.
async fn answer<M, A, F>(
    app: &App,
    target: NodeId,
    body: &[u8],
    pass: impl FnOnce(M) -> F,
) -> Response
where
    M: DeserializeOwned,
    A: Serialize,
    F: Future<Output = Result<A, RaftError<NodeId>>>,
{
    if target != app.id {
        return misdirected(app, target);
    }
    match serde_json::from_slice(body) {
        Ok(message) => json(&pass(message).await),
        Err(error) => text(StatusCode::BAD_REQUEST, error),
    }
}

async fn snapshot(State(app): State<App>, Path(target): Path<NodeId>, body: Body) -> Response {
    if target != app.id {
        return misdirected(&app, target);
    }
    match receive(&app, body).await {
        Ok((vote, snapshot)) => json(&app.raft.install_full_snapshot(vote, snapshot).await),
        Err(error) => text(StatusCode::BAD_REQUEST, error),
    }
}

async fn receive(app: &App, body: Body) -> io::Result<(openraft::Vote<NodeId>, Snapshot)> {
    let mut incoming = Incoming::new(body);
    let header = incoming.header().await?;
    let directory = app.raft.begin_receiving_snapshot().await.map_err(io::Error::other)?;
    incoming.write_files(&header, directory.path()).await?;
    Ok((header.vote, Snapshot { meta: header.meta, snapshot: directory }))
}

fn misdirected(app: &App, target: NodeId) -> Response {
    let said = format!("this is node {}, not node {target}", app.id);
    text(StatusCode::MISDIRECTED_REQUEST, said)
}
