//! The types that openraft is generic over: what clients ask for, what they are answered, who the
//! nodes are and what a snapshot is.
//!
//! Log entries, messages between nodes and records are these types in JSON. That is not the
//! smallest form, but `siftdb scan` and `curl` show it.

use crate::snapshot_directory::SnapshotDirectory;
use openraft::BasicNode;
use serde::{Deserialize, Serialize};

openraft::declare_raft_types!(
    /// Openraft with the types of this service.
    pub TypeConfig:
        D = Command,
        R = Answer,
        NodeId = NodeId,
        Node = BasicNode,
        SnapshotData = SnapshotDirectory,
);

/// The number of a node. A node that lost its directory must come back under a new one: its vote
/// and the entries that it acknowledged are gone.
pub type NodeId = u64;

/// A running node of the cluster.
pub type Raft = openraft::Raft<TypeConfig>;

/// An entry of the replicated log.
pub type Entry = openraft::Entry<TypeConfig>;

/// The term, leader and index of an entry.
pub type LogId = openraft::LogId<NodeId>;

/// Which nodes vote, which only listen, and the entry that says so.
pub type Membership = openraft::StoredMembership<NodeId, BasicNode>;

/// What a snapshot holds: the last entry applied, and the membership at that entry.
pub type SnapshotMeta = openraft::SnapshotMeta<NodeId, BasicNode>;

/// A snapshot with its directory.
pub type Snapshot = openraft::Snapshot<TypeConfig>;

/// A failure of the storage: openraft stops the node.
pub type StorageError = openraft::StorageError<NodeId>;

/// What a client asks for, as the log carries it. Every node runs the same commands in the same
/// order, so a command must depend on nothing but the data: no clock, no random number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Writes `value` under `key`.
    Put {
        /// The key.
        key: String,
        /// The new value.
        value: String,
    },
    /// Deletes `key`, which need not exist.
    Delete {
        /// The key.
        key: String,
    },
    /// Writes `new` under `key` if its value is `expected`; `None` is "no value" in both.
    CompareAndSet {
        /// The key.
        key: String,
        /// The value that it must have.
        expected: Option<String>,
        /// The value that it gets.
        new: Option<String>,
    },
}

/// What applying an entry answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The entry is applied.
    Done,
    /// The outcome of [`Command::CompareAndSet`].
    Compared {
        /// Whether the new value was written.
        swapped: bool,
        /// The value before.
        found: Option<String>,
    },
}
