//! What single calls are answered, and what is true afterwards.

use crate::{Client, Service, sold, wait_for_counts};
use siftdb::{Db, Options, keys};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::Shutdown;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A service on a new database, which is `seats` in the directory.
fn start() -> (TempDir, Service, Client) {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(&directory.path().join("seats"));
    let client = service.client();
    (directory, service, client)
}

impl Client {
    fn answer(&mut self, command: &str) -> String {
        self.ask(command).expect("it runs")
    }

    /// Asks until the answer to the last command is `done`: holds expire.
    fn ask_until_done(&mut self, commands: &[&str]) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while commands.iter().map(|command| self.answer(command)).last().unwrap() != "done" {
            assert!(Instant::now() < deadline, "{commands:?} are refused");
        }
    }

    fn sell(&mut self, seat: &str, buyer: &str) {
        self.ask_until_done(&[&format!("hold {seat} {buyer}"), &format!("buy {seat} {buyer}")]);
    }
}

/// Seats with their buyers.
fn sales(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(seat, buyer)| (seat.to_string(), buyer.to_string())).collect()
}

#[test]
fn only_the_holder_buys_and_returns() {
    let (_directory, service, mut client) = start();
    assert_eq!(client.answer("buy 1 buyer1"), "refused");
    assert_eq!(client.answer("hold 1 buyer1"), "done");
    assert_eq!(client.answer("buy 1 buyer2"), "refused");
    client.sell("1", "buyer1");
    for command in ["hold 1 buyer2", "buy 1 buyer1", "buy 1 buyer2", "return 1 buyer2"] {
        assert_eq!(client.answer(command), "refused", "{command}");
    }
    assert_eq!(client.answer("return 1 buyer1"), "done");
    assert_eq!(client.answer("return 1 buyer1"), "refused");
    client.sell("1", "buyer2");
    wait_for_counts(&service, &sales(&[("1", "buyer2")]));
}

#[test]
fn a_hold_expires_but_not_at_once() {
    let (_directory, _service, mut client) = start();
    let begun = Instant::now();
    assert_eq!(client.answer("hold 1 buyer1"), "done");
    client.ask_until_done(&["hold 1 buyer2"]);
    assert!(begun.elapsed() > Duration::from_millis(400), "{:?}", begun.elapsed());
    client.sell("1", "buyer2");
}

/// The answers to a command that two clients send at the same time, sorted.
fn ask_both(clients: &mut [Client; 2], command: &str) -> [String; 2] {
    clients.iter_mut().for_each(|client| client.send(command).expect("it runs"));
    let mut answers = clients.each_mut().map(|client| client.receive().expect("it runs"));
    answers.sort();
    answers
}

#[test]
fn one_of_two_equal_calls_is_done() {
    let (_directory, service, client) = start();
    let mut clients = [client, service.client()];
    for seat in 0..50 {
        clients[0].ask_until_done(&[&format!("hold {seat} buyer1")]);
        let mut answers = ask_both(&mut clients, &format!("buy {seat} buyer1"));
        if answers == ["refused", "refused"] {
            // The hold has expired.
            clients[0].sell(&format!("{seat}"), "buyer1");
            answers[0] = "done".into();
        }
        assert_eq!(answers, ["done", "refused"]);
        assert_eq!(ask_both(&mut clients, &format!("return {seat} buyer1")), ["done", "refused"]);
    }
    wait_for_counts(&service, &sales(&[]));
}

#[test]
fn answered_calls_are_durable() {
    let (directory, _service, mut client) = start();
    let durable = || {
        let options = Options::new().follow_synced_only(true);
        sold(&options.open_follower(directory.path().join("seats")).unwrap().moment())
    };
    client.sell("1", "buyer1");
    client.sell("2", "buyer2");
    // The log says so with the next write.
    client.ask_until_done(&["hold 3 buyer1"]);
    assert_eq!(durable(), sales(&[("1", "buyer1"), ("2", "buyer2")]));
    assert_eq!(client.answer("return 1 buyer1"), "done");
    client.ask_until_done(&["hold 4 buyer1"]);
    assert_eq!(durable(), sales(&[("2", "buyer2")]));
}

#[test]
fn a_checkpoint_has_what_was_answered_before() {
    let (directory, _service, mut client) = start();
    let backup = directory.path().join("backup");
    let checkpoint = format!("checkpoint {}", backup.display());
    for (seat, all) in [("1", &[("1", "buyer1")][..]), ("2", &[("1", "buyer1"), ("2", "buyer1")])] {
        client.sell(seat, "buyer1");
        assert_eq!(client.answer(&checkpoint), "done");
        assert_eq!(sold(&Db::open_read_only(&backup).unwrap()), sales(all));
    }
}

/// Without the logs the counts are made of the orders, and with them of the changes.
#[test]
fn lost_counts_are_made_again() {
    let (directory, mut service, mut client) = start();
    let path = directory.path().join("seats");
    client.sell("1", "buyer1");
    client.sell("2", "buyer2");
    let both = sales(&[("1", "buyer1"), ("2", "buyer2")]);
    wait_for_counts(&service, &both);
    for keeps_logs in [true, false] {
        service.kill();
        let db = Options::new().keep_log_bytes(u64::from(keeps_logs) << 20).open(&path).unwrap();
        let counts = db.keyspace("counts").unwrap();
        counts.delete_range(..).unwrap();
        if !keeps_logs {
            // A buyer without seats, whom no change tells of.
            counts.put("buyer3", keys::encode(&7_u64)).unwrap();
        }
        db.flush().unwrap();
        db.close().unwrap();
        service = Service::start(&path);
        wait_for_counts(&service, &both);
    }
}

#[test]
fn a_command_that_is_cut_off_is_not_run() {
    let (_directory, service, mut client) = start();
    client.stream.write_all(b"hold 1 buyer1").unwrap();
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.receive(), None);
    assert_eq!(service.client().answer("hold 1 buyer2"), "done");
}

#[test]
fn bad_lines_are_errors_and_end_nothing() {
    let (directory, _service, mut client) = start();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let checkpoint = format!("checkpoint {}", file.display());
    let long = "x".repeat(100_000);
    let key = format!("hold {} ada", &long[..8000]);
    for command in ["", " ", "hold", "buy 1", "hold 1 ada now", "HOLD 1 ada", &long, &checkpoint] {
        let answer = client.answer(command);
        assert!(answer.starts_with("error: "), "{command:.20}: {answer}");
    }
    client.stream.write_all(b"hold \xff\xfe ada\nhold \xff").unwrap();
    assert!(client.receive().unwrap().contains("utf-8"));
    client.stream.write_all(b"\n").unwrap();
    assert!(client.receive().unwrap().contains("utf-8"));
    assert_eq!(client.answer(&key), "done");
    assert_eq!(client.answer("count ada"), "0");
}
