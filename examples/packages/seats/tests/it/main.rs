//! The service is killed again and again while clients buy and return seats. After each death every
//! acknowledged sale and return is there, every other one whole or not at all, and the counts come
//! to what was sold.
//!
//! `SEATS_SECONDS` sets for how long, and `SEATS_SEED` where and when.

use siftdb::{Db, Error, keys};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

mod answers;

const CLIENTS: usize = 4;
const SEATS: u64 = 400;
/// Before it looks again.
const PAUSE: Duration = Duration::from_millis(1);

/// What is known of the seat of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    Sold,
    /// It is not this client's.
    Not,
    /// A call was not answered.
    Open,
}

/// A xorshift generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

struct Service {
    process: Child,
    address: String,
}

impl Service {
    fn start(path: &Path) -> Self {
        let mut service = Command::new(env!("CARGO_BIN_EXE_seats"));
        service.arg(path).arg("127.0.0.1:0").stdout(Stdio::piped());
        let mut process = service.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("it listens").to_string();
        Service { process, address }
    }

    fn client(&self) -> Client {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { reader: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A test that fails leaves no process.
impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    /// The answer; `None` if the service died before.
    fn ask(&mut self, command: &str) -> Option<String> {
        self.send(command)?;
        self.receive()
    }

    fn send(&mut self, command: &str) -> Option<()> {
        self.stream.write_all(format!("{command}\n").as_bytes()).ok()
    }

    fn receive(&mut self) -> Option<String> {
        let mut answer = String::new();
        let bytes = self.reader.read_line(&mut answer).ok()?;
        (bytes > 0 && answer.ends_with('\n')).then(|| answer.trim().to_string())
    }
}

/// Buys and returns seats until the service dies.
fn trade(
    client: &mut Client,
    name: &str,
    known: &mut BTreeMap<String, Known>,
    random: &mut Random,
    answered: &AtomicU64,
) {
    loop {
        let seat = format!("{}", random.below(SEATS));
        let own = known.entry(seat.clone()).or_insert(Known::Not);
        let was_sold = *own == Known::Sold;
        if !was_sold {
            match client.ask(&format!("hold {seat} {name}")).as_deref() {
                Some("done") => {}
                Some("refused") => continue,
                other => return assert_eq!(other, None),
            }
            // Some holds are left to expire.
            if random.below(10) == 0 {
                continue;
            }
        }
        let command = if was_sold { "return" } else { "buy" };
        *own = Known::Open;
        *own = match client.ask(&format!("{command} {seat} {name}")).as_deref() {
            Some("done") if was_sold => Known::Not,
            Some("done") => Known::Sold,
            // A hold that has expired is refused; a seat of this client is not.
            Some("refused") if !was_sold => {
                *own = Known::Not;
                continue;
            }
            other => return assert_eq!(other, None),
        };
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// The seats that are sold, with their buyers: as the seats say, and as the orders do.
fn sold(db: &Db) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let seats = db.keyspace("seats").unwrap().iter().map(Result::unwrap);
    let seats = seats.filter_map(|(seat, state)| {
        Some((text(&seat), text(&state).strip_prefix("sold ")?.to_string()))
    });
    let seats: BTreeMap<_, _> = seats.collect();
    let orders = db.keyspace("orders").unwrap().iter().keys();
    let orders = orders.map(|order| keys::decode::<(String, String)>(&order.unwrap()).unwrap());
    let orders: BTreeMap<_, _> = orders.map(|(buyer, seat)| (seat, buyer)).collect();
    assert_eq!(seats, orders, "a sale is in both keyspaces or in neither");
    assert!(db.verify(|_| {}).unwrap().is_sound());
    seats
}

/// Compares what is there with what clients know, and closes what is open.
fn settle(there: &BTreeMap<String, String>, clients: &mut [BTreeMap<String, Known>]) {
    for (number, known) in clients.iter_mut().enumerate() {
        let name = format!("buyer{number}");
        for (seat, known) in known.iter_mut() {
            let has = there.get(seat) == Some(&name);
            let is_right = *known == Known::Open || (*known == Known::Sold) == has;
            assert!(is_right, "seat {seat} of {name}: {known:?}, sold to {:?}", there.get(seat));
            *known = if has { Known::Sold } else { Known::Not };
        }
        let unknown =
            there.iter().find(|(seat, buyer)| **buyer == name && !known.contains_key(*seat));
        assert_eq!(unknown, None);
    }
}

/// Waits until the counts are those of the seats.
fn wait_for_counts(service: &Service, there: &BTreeMap<String, String>) {
    let mut client = service.client();
    let deadline = Instant::now() + Duration::from_secs(60);
    for number in 0..CLIENTS {
        let name = format!("buyer{number}");
        let expected = there.values().filter(|buyer| **buyer == name).count().to_string();
        loop {
            let count = client.ask(&format!("count {name}")).expect("it runs");
            if count == expected {
                break;
            }
            assert!(Instant::now() < deadline, "{name} has {expected} seats, counted are {count}");
            std::thread::sleep(PAUSE);
        }
    }
}

/// A checkpoint is a database of its own; one whose first call died is unfinished.
fn check_backup(path: &Path) -> bool {
    match Db::open_read_only(path) {
        Ok(backup) => {
            sold(&backup);
            true
        }
        Err(Error::Unfinished { .. } | Error::Io { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

#[test]
fn no_sale_is_lost_or_counted_twice_in_kills() {
    let directory = tempfile::tempdir().unwrap();
    let (path, backup) = (directory.path().join("seats"), directory.path().join("backup"));
    let seed = setting("SEATS_SEED", 1);
    let end = Instant::now() + Duration::from_secs(setting("SEATS_SECONDS", 6));
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut clients = vec![BTreeMap::new(); CLIENTS];
    let mut there = BTreeMap::new();
    let (answered, mut kills, mut backups) = (AtomicU64::new(0), 0, 0);
    while Instant::now() < end {
        let mut service = Service::start(&path);
        // Nobody buys yet.
        wait_for_counts(&service, &there);
        kills += 1;
        let goal = answered.load(Ordering::Relaxed) + 1 + random.below(400);
        std::thread::scope(|scope| {
            for (number, known) in clients.iter_mut().enumerate() {
                let (mut client, answered) = (service.client(), &answered);
                let mut random = Random(random.below(u64::MAX) | 1);
                scope.spawn(move || {
                    trade(&mut client, &format!("buyer{number}"), known, &mut random, answered);
                });
            }
            let mut client = service.client();
            let checkpoint = format!("checkpoint {}", backup.display());
            scope
                .spawn(move || while client.ask(&checkpoint).is_some_and(|said| said == "done") {});
            let deadline = Instant::now() + Duration::from_secs(60);
            while answered.load(Ordering::Relaxed) < goal && Instant::now() < deadline {
                std::thread::sleep(PAUSE);
            }
            // Clients go on until it dies.
            service.kill();
        });
        assert!(answered.load(Ordering::Relaxed) >= goal, "nothing is sold or returned");
        there = sold(&Db::open_read_only(&path).unwrap());
        settle(&there, &mut clients);
        backups += u64::from(check_backup(&backup));
    }
    let answered = answered.load(Ordering::Relaxed);
    println!("{answered} sales and returns, {kills} kills, {backups} backups, seed {seed}");
    assert!(kills > 3 && backups > 0);
}
