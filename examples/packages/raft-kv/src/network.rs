//! Messages from this node to the others: openraft's `RaftNetwork`, over HTTP.
//!
//! Openraft gives each message a time and drops the call when it is over. A message that is lost
//! is sent again, and one that arrives twice does no harm.

use crate::http_client::{Client, whole};
use crate::log;
use crate::storage::to_json;
use crate::transfer;
use crate::types::{NodeId, Snapshot, TypeConfig};
use hyper::Method;
use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, RemoteError, ReplicationClosed, StreamingError,
    Unreachable,
};
use openraft::network::{Backoff, RPCOption};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend, RaftNetwork, RaftNetworkFactory, Vote};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::io;
use std::time::Duration;

/// How long a node that does not answer is left alone.
const BACKOFF: Duration = Duration::from_millis(200);

/// Makes a [`Peer`] for each other node.
#[derive(Clone, Copy, Debug)]
pub struct Peers;

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: NodeId, node: &BasicNode) -> Peer {
        Peer { target, client: Client::new(&node.addr) }
    }
}

/// Another node.
#[derive(Debug)]
pub struct Peer {
    target: NodeId,
    client: Client,
}

type Failed = RPCError<NodeId, BasicNode, RaftError<NodeId>>;

impl Peer {
    /// The number of the node is part of the path: another node that listens at its address now
    /// must not answer for it.
    fn path(&self, what: &str) -> String {
        format!("/raft/{}/{what}", self.target)
    }

    async fn call<A: DeserializeOwned>(
        &mut self,
        what: &str,
        message: &impl Serialize,
    ) -> Result<A, Failed> {
        let body = to_json(message).map_err(|error| NetworkError::new(&error))?;
        let answer = self.client.send(Method::POST, &self.path(what), whole(body)).await;
        let answer = answer.and_then(|answer| match answer.status.is_success() {
            true => Ok(answer),
            false => Err(io::Error::other(String::from_utf8_lossy(&answer.body).into_owned())),
        });
        let answer = answer.map_err(|error| Unreachable::new(&error))?;
        let answer: Result<A, RaftError<NodeId>> =
            serde_json::from_slice(&answer.body).map_err(|error| NetworkError::new(&error))?;
        answer.map_err(|error| RemoteError::new(self.target, error).into())
    }
}

impl RaftNetwork<TypeConfig> for Peer {
    async fn append_entries(
        &mut self,
        message: AppendEntriesRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<NodeId>, Failed> {
        self.call("append", &message).await
    }

    async fn vote(
        &mut self,
        message: VoteRequest<NodeId>,
        _: RPCOption,
    ) -> Result<VoteResponse<NodeId>, Failed> {
        self.call("vote", &message).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<NodeId>,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<NodeId>, StreamingError<TypeConfig, Fatal<NodeId>>> {
        let path = self.path("snapshot");
        let sent = transfer::send(&mut self.client, &path, vote, &snapshot);
        // Openraft has no limit of its own here.
        let sent = tokio::time::timeout(option.hard_ttl(), sent);
        let answer = tokio::select! {
            closed = cancel => return Err(closed.into()),
            sent = sent => sent.map_err(|error| NetworkError::new(&error))?,
        };
        let answer = answer.map_err(|error| Unreachable::new(&error))?;
        if !answer.status.is_success() {
            let said = io::Error::other(String::from_utf8_lossy(&answer.body).into_owned());
            return Err(Unreachable::new(&said).into());
        }
        let answer: Result<SnapshotResponse<NodeId>, Fatal<NodeId>> =
            serde_json::from_slice(&answer.body).map_err(|error| NetworkError::new(&error))?;
        log::snapshot(format_args!("sent node {}", self.target), &snapshot);
        answer.map_err(|error| RemoteError::new(self.target, error).into())
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(BACKOFF))
    }
}
