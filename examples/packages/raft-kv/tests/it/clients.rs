//! Clients that read and write all the time, and the history of what they were answered.

use crate::checker::{Action, Call, Value, is_linearizable};
use crate::cluster::DEADLINE;
use crate::random::Random;
use hyper::{Method, StatusCode};
use siftdb_raft_kv::clients::CompareAndSet;
use siftdb_raft_kv::http_client::{Client, whole};
use siftdb_raft_kv::types::Answer;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Calls of each key, about. Then the clients change to new keys, so that each search stays short.
const CALLS_PER_KEY: u64 = 100;
/// Keys that are used at the same time.
const KEYS: u64 = 4;
/// How long a client waits. Then it makes the next call, and the outcome of this one is unknown.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Shared {
    /// Moments, and the order in which keys are used up.
    clock: AtomicU64,
    /// Writes that were acknowledged.
    acknowledged: AtomicU64,
    stop: AtomicBool,
    history: Mutex<BTreeMap<String, Vec<Call>>>,
    /// Where nodes listen.
    addresses: Mutex<Vec<String>>,
}

impl Shared {
    /// How many sets of keys are used up.
    fn age(&self) -> u64 {
        self.clock.load(Ordering::SeqCst) / (2 * CALLS_PER_KEY * KEYS)
    }
}

fn key_of(age: u64, number: u64) -> String {
    format!("key-{age}-{number}")
}

/// What became of a request.
enum Outcome {
    /// The status and the body.
    Done(StatusCode, String),
    /// It was certainly not done.
    Refused,
    /// It may have been done, or not, or it will be.
    Unknown,
}

/// Clients at work.
pub struct Clients {
    shared: Arc<Shared>,
    runtime: Runtime,
    tasks: Vec<JoinHandle<()>>,
}

/// What the history holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub keys: usize,
    pub reads: usize,
    /// Writes with an answer, a refused swap included.
    pub acknowledged: usize,
    /// Writes without an answer.
    pub unknown: usize,
}

impl Clients {
    pub fn start(count: u64, seed: u64, addresses: Vec<String>) -> Self {
        let shared = Arc::new(Shared { addresses: Mutex::new(addresses), ..Shared::default() });
        let runtime = Runtime::new().unwrap();
        let tasks = (0..count).map(|number| {
            let worker = Worker::new(Arc::clone(&shared), number, seed);
            runtime.spawn(worker.run())
        });
        let tasks = tasks.collect();
        Clients { shared, runtime, tasks }
    }

    /// Writes acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.shared.acknowledged.load(Ordering::SeqCst)
    }

    /// Tells the clients where nodes listen from now on.
    pub fn set_addresses(&self, addresses: Vec<String>) {
        *self.shared.addresses.lock().unwrap() = addresses;
    }

    /// Reads the keys that are used now at one node, in the background.
    pub fn read_at(&mut self, address: &str) {
        let age = self.shared.age();
        for number in 0..KEYS {
            let mut reader = Worker::new(Arc::clone(&self.shared), number, 0);
            reader.client = Some(Client::new(address));
            self.tasks.push(self.runtime.spawn(async move {
                reader.read(&key_of(age, number)).await;
            }));
        }
    }

    /// Ends the clients, reads every key once more, and checks the history.
    pub fn check(self) -> Figures {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.runtime.block_on(async {
            for task in self.tasks {
                task.await.unwrap();
            }
            let keys: Vec<String> = self.shared.history.lock().unwrap().keys().cloned().collect();
            let mut last = Worker::new(Arc::clone(&self.shared), u64::MAX, 0);
            for key in keys {
                // Until there is an answer: this is where a lost write shows.
                let all = async { while !last.read(&key).await {} };
                timeout(DEADLINE, all).await.expect("no answer to the last read");
            }
        });
        let mut figures = Figures::default();
        for (key, calls) in &*self.shared.history.lock().unwrap() {
            assert!(is_linearizable(calls), "no order explains the calls of {key}: {calls:#?}");
            figures.keys += 1;
            for call in calls {
                match (&call.action, call.end) {
                    (Action::Read(_), _) => figures.reads += 1,
                    (_, Some(_)) => figures.acknowledged += 1,
                    (_, None) => figures.unknown += 1,
                }
            }
        }
        figures
    }
}

/// One client.
struct Worker {
    shared: Arc<Shared>,
    random: Random,
    /// Makes each value a new one.
    name: String,
    written: u64,
    client: Option<Client>,
}

impl Worker {
    fn new(shared: Arc<Shared>, number: u64, seed: u64) -> Self {
        let random = Random(seed ^ number.wrapping_mul(0x1234_5678_9abc));
        Worker { shared, random, name: format!("c{number}"), written: 0, client: None }
    }

    async fn run(mut self) {
        while !self.shared.stop.load(Ordering::SeqCst) {
            // Not always the leader: any node may be asked, and must not answer with what is old.
            if self.random.one_in(3) {
                self.client = None;
            }
            let age = self.shared.age();
            let key = key_of(age, self.random.below(KEYS));
            match self.random.below(10) {
                0..5 => {
                    self.read(&key).await;
                }
                5..8 => self.put(&key).await,
                8 => self.delete(&key).await,
                _ => self.swap(&key).await,
            }
        }
    }

    fn now(&self) -> u64 {
        self.shared.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn record(&self, key: &str, call: Call) {
        if call.end.is_some() && !matches!(call.action, Action::Read(_)) {
            self.shared.acknowledged.fetch_add(1, Ordering::SeqCst);
        }
        self.shared.history.lock().unwrap().entry(key.into()).or_default().push(call);
    }

    fn new_value(&mut self) -> String {
        self.written += 1;
        format!("{}-{}", self.name, self.written)
    }

    async fn read(&mut self, key: &str) -> bool {
        let begin = self.now();
        let answer = match self.send(Method::GET, &format!("/kv/{key}"), "").await {
            Outcome::Done(StatusCode::OK, value) => Some(value),
            Outcome::Done(StatusCode::NOT_FOUND, _) => None,
            Outcome::Done(status, said) => panic!("a read answered {status} {said}"),
            Outcome::Refused | Outcome::Unknown => return false,
        };
        self.record(key, Call { begin, end: Some(self.now()), action: Action::Read(answer) });
        true
    }

    async fn put(&mut self, key: &str) {
        let value = self.new_value();
        let begin = self.now();
        let sent = self.send(Method::PUT, &format!("/kv/{key}"), &value).await;
        self.record_write(key, begin, sent, Some(value));
    }

    async fn delete(&mut self, key: &str) {
        let begin = self.now();
        let sent = self.send(Method::DELETE, &format!("/kv/{key}"), "").await;
        self.record_write(key, begin, sent, None);
    }

    fn record_write(&self, key: &str, begin: u64, sent: Outcome, value: Value) {
        let end = match sent {
            Outcome::Done(StatusCode::OK, _) => Some(self.now()),
            Outcome::Done(status, said) => panic!("a write answered {status} {said}"),
            Outcome::Unknown => None,
            Outcome::Refused => return,
        };
        self.record(key, Call { begin, end, action: Action::Write(value) });
    }

    /// Expects what a read before it found, so that about half of the swaps happen.
    async fn swap(&mut self, key: &str) {
        let read = self.send(Method::GET, &format!("/kv/{key}"), "").await;
        let expected = match read {
            Outcome::Done(StatusCode::OK, value) => Some(value),
            _ => None,
        };
        let new = Some(self.new_value());
        let body = CompareAndSet { expected: expected.clone(), new: new.clone() };
        let body = serde_json::to_string(&body).unwrap();
        let begin = self.now();
        let (end, found) = match self.send(Method::POST, &format!("/cas/{key}"), &body).await {
            Outcome::Done(StatusCode::OK, said) => match serde_json::from_str(&said).unwrap() {
                Answer::Compared { swapped, found } => {
                    assert_eq!(swapped, found == expected);
                    (Some(self.now()), Some(found))
                }
                Answer::Done => panic!("a swap answered without the value"),
            },
            Outcome::Done(status, said) => panic!("a swap answered {status} {said}"),
            Outcome::Unknown => (None, None),
            Outcome::Refused => return,
        };
        let action = Action::CompareAndSet { expected, new, found };
        self.record(key, Call { begin, end, action });
    }

    /// Sends a request to a node and follows it to the leader.
    async fn send(&mut self, method: Method, path: &str, body: &str) -> Outcome {
        for _ in 0..4 {
            let mut client = self.client.take().unwrap_or_else(|| self.any_node());
            let sent = client.send(method.clone(), path, whole(body.to_string()));
            let answer = match timeout(PATIENCE, sent).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => break,
                Ok(Err(_)) | Err(_) => return Outcome::Unknown,
            };
            match answer.status {
                StatusCode::TEMPORARY_REDIRECT => {
                    let to = answer.headers["location"].to_str().unwrap();
                    let address = to.strip_prefix("http://").and_then(|to| to.split('/').next());
                    self.client = Some(Client::new(address.unwrap()));
                }
                StatusCode::SERVICE_UNAVAILABLE => break,
                StatusCode::GATEWAY_TIMEOUT => return Outcome::Unknown,
                status => {
                    self.client = Some(client);
                    let said = String::from_utf8(answer.body.into()).unwrap();
                    return Outcome::Done(status, said);
                }
            }
        }
        // No leader now: not to ask all the time.
        sleep(Duration::from_millis(20)).await;
        Outcome::Refused
    }

    fn any_node(&mut self) -> Client {
        let addresses = self.shared.addresses.lock().unwrap();
        let at = self.random.below(addresses.len() as u64) as usize;
        Client::new(&addresses[at])
    }
}
