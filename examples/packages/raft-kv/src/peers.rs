//! What other nodes call: messages of the protocol, snapshots, and who the members are.

use crate::clients::VALUE_BYTES_MAX;
use crate::node::ENTRIES_PER_MESSAGE;
use crate::server::{App, json, text};
use crate::transfer::Incoming;
use crate::types::{NodeId, Snapshot, TypeConfig};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use openraft::error::RaftError;
use openraft::raft::AppendEntriesRequest;
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
        .route("/raft/{target}/members", get(members))
        .layer(DefaultBodyLimit::max(MESSAGE_BYTES_MAX))
}

async fn append(State(app): State<App>, Path(target): Path<NodeId>, body: Bytes) -> Response {
    let pass = |message: AppendEntriesRequest<TypeConfig>| {
        app.heard_from(&message.vote);
        app.raft.append_entries(message)
    };
    answer(&app, target, &body, pass).await
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

/// The membership that is committed here. One that is not may still be taken back.
async fn members(State(app): State<App>, Path(target): Path<NodeId>) -> Response {
    if target != app.id {
        return misdirected(&app, target);
    }
    match app.storage.applied() {
        Ok(applied) => json(&applied.membership),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

fn misdirected(app: &App, target: NodeId) -> Response {
    let said = format!("this is node {}, not node {target}", app.id);
    text(StatusCode::MISDIRECTED_REQUEST, said)
}
