//! Sells seats over TCP, a command a line: see README.md.
//!
//! Sales and returns are answered when they are durable.

use seats::{Outcome, Seats};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

mod seats;

const COMMANDS: &str =
    "hold SEAT BUYER | buy SEAT BUYER | return SEAT BUYER | count BUYER | checkpoint PATH";

/// Bytes of a command, with the end of its line.
const LINE_BYTES_MAX: u64 = 8 << 10;

/// Before the next client, when there is no place for one.
const PAUSE: Duration = Duration::from_millis(100);

fn answer(seats: &Seats, line: &str) -> Outcome<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let done = match words[..] {
        ["hold", seat, buyer] => seats.hold(seat, buyer)?,
        ["buy", seat, buyer] => seats.buy(seat, buyer)?,
        ["return", seat, buyer] => seats.take_back(seat, buyer)?,
        ["checkpoint", path] => seats.checkpoint(path)?,
        ["count", buyer] => return Ok(seats.count_of(buyer)?.to_string()),
        _ => return Err(format!("no such command; there are {COMMANDS}").into()),
    };
    Ok(if done { "done" } else { "refused" }.into())
}

fn serve(seats: &Seats, mut client: &TcpStream) -> std::io::Result<()> {
    let (mut lines, mut line) = (BufReader::new(client), Vec::new());
    while lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? > 0 {
        let answer = if line.ends_with(b"\n") {
            str::from_utf8(&line).map_err(Into::into).and_then(|line| answer(seats, line))
        } else if line.len() as u64 == LINE_BYTES_MAX {
            lines.skip_until(b'\n')?;
            Err(format!("a line has at most {LINE_BYTES_MAX} bytes").into())
        } else {
            // The client is gone. The rest of its command may say who buys.
            return Ok(());
        };
        let answer = answer.unwrap_or_else(|error| format!("error: {error}"));
        client.write_all(format!("{}\n", answer.replace('\n', " ")).as_bytes())?;
        line.clear();
    }
    Ok(())
}

fn run(path: &Path, address: &str) -> Outcome<()> {
    let seats = Seats::open(path)?;
    let listener = TcpListener::bind(address).map_err(|error| format!("{address}: {error}"))?;
    println!("listening on {}", listener.local_addr()?);
    let counting = seats.clone();
    std::thread::spawn(move || {
        if let Err(error) = counting.count() {
            eprintln!("seats: counting ended: {error}");
            std::process::exit(1);
        }
    });
    for client in listener.incoming() {
        let seats = seats.clone();
        // A client that is gone ends its thread.
        let serve = |client| std::thread::Builder::new().spawn(move || serve(&seats, &client));
        if let Err(error) = client.and_then(serve) {
            // Too many: the clients that are there are served.
            eprintln!("seats: a client was refused: {error}");
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ended = match &arguments[..] {
        [path] if !path.starts_with('-') => run(Path::new(path), "127.0.0.1:7070"),
        [path, address] => run(Path::new(path), address),
        _ => Err("usage: seats DIR [ADDRESS]".into()),
    };
    match ended {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("seats: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
