//! `GET /metrics`: figures of openraft and of the database, as Prometheus reads them.

use crate::server::{App, REFUSALS};
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use openraft::ServerState;
use std::fmt::Display;
use std::sync::atomic::Ordering;

const STATES: [ServerState; 4] =
    [ServerState::Learner, ServerState::Follower, ServerState::Candidate, ServerState::Leader];

pub(crate) fn routes() -> Router<App> {
    Router::new().route("/metrics", get(metrics))
}

async fn metrics(State(app): State<App>) -> Response {
    // The end of the text, and its `# EOF`, is that of siftdb.
    let text = raft_metrics(&app) + &app.storage.db.stats().to_openmetrics();
    let content = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, content)], text).into_response()
}

fn raft_metrics(app: &App) -> String {
    let now = app.raft.metrics().borrow().clone();
    let members = app.members();
    let mut text = Text::default();
    text.family("state", "gauge", "1 for what the node is.");
    for state in STATES {
        let name = format!("{state:?}").to_lowercase();
        text.sample(format_args!("state{{state=\"{name}\"}}"), u8::from(now.state == state));
    }
    text.gauge("term", "The term.", Some(now.current_term));
    text.gauge("leader", "Number of the leader; no sample without a leader.", app.leader());
    text.gauge("last_log_index", "The last entry in the log.", now.last_log_index);
    let [applied, snapshot, purged] =
        [now.last_applied, now.snapshot, now.purged].map(|last| last.map(|last| last.index));
    text.gauge("last_applied_index", "The last entry applied.", applied);
    text.gauge("snapshot_index", "The last entry in the snapshot.", snapshot);
    text.gauge("purged_index", "The last entry purged from the log.", purged);
    text.family("member", "gauge", "1 for each member, and what it does.");
    for (id, _) in members.nodes() {
        let voter = members.voter_ids().any(|voter| voter == *id);
        let role = if voter { "voter" } else { "learner" };
        text.sample(format_args!("member{{node=\"{id}\",role=\"{role}\"}}"), 1);
    }
    text.gauge("removed", "1 if the node is no member.", Some(u8::from(app.is_removed())));
    text.gauge("open_proposals", "Writes without an outcome.", Some(app.open_proposals()));
    text.family("refused", "counter", "Requests of which nothing was done.");
    for (why, count) in REFUSALS.iter().zip(&*app.refused) {
        text.sample(format_args!("refused_total{{why=\"{why}\"}}"), count.load(Ordering::Relaxed));
    }
    text.0
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let lines = format!("# TYPE raft_kv_{name} {kind}\n# HELP raft_kv_{name} {help}\n");
        self.0.push_str(&lines);
    }

    fn sample(&mut self, name: impl Display, value: impl Display) {
        self.0.push_str(&format!("raft_kv_{name} {value}\n"));
    }

    /// A family of one sample, or of none.
    fn gauge(&mut self, name: &str, help: &str, value: Option<impl Display>) {
        self.family(name, "gauge", help);
        if let Some(value) = value {
            self.sample(name, value);
        }
    }
}
