//! Events: what a database tells the listener of its user while it runs.
//!
//! This is the one seam for it. Jobs, write stalls, logs, table builders and filters that meet
//! damage call [`Events::emit`](delivery::Events::emit), at any place and with any lock held.
//! `delivery` passes the events on in a thread of its own; `event` has the public types.

pub(crate) mod delivery;
pub(crate) mod event;

pub use event::{Event, EventListener};
