//! Sells seats over TCP, a command a line: see README.md.
//!
//! Sales and returns are answered when they are durable.

use seats::{Outcome, Seats};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

mod seats;

const COMMANDS: &str =
    "hold SEAT BUYER | buy SEAT BUYER | return SEAT BUYER | count BUYER | checkpoint PATH";

fn answer(seats: &Seats, line: &str) -> Outcome<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let done = match words[..] {
        ["hold", seat, buyer] => seats.hold(seat, buyer)?,
        ["buy", seat, buyer] => seats.buy(seat, buyer)?,
        ["return", seat, buyer] => seats.take_back(seat, buyer)?,
        ["checkpoint", path] => seats.checkpoint(path)?,
        ["count", buyer] => return Ok(seats.count_of(buyer)?.to_string()),
        _ => return Err(COMMANDS.into()),
    };
    Ok(if done { "done" } else { "refused" }.into())
}

fn serve(seats: &Seats, client: &TcpStream) -> std::io::Result<()> {
    for line in BufReader::new(client.try_clone()?).lines() {
        let answer = answer(seats, &line?).unwrap_or_else(|error| format!("error: {error}"));
        (&mut &*client).write_all(format!("{}\n", answer.replace('\n', " ")).as_bytes())?;
    }
    Ok(())
}

fn run(path: &Path, address: &str) -> Outcome<()> {
    let seats = Seats::open(path)?;
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    let counting = seats.clone();
    std::thread::spawn(move || {
        if let Err(error) = counting.count() {
            eprintln!("seats: counting ended: {error}");
            std::process::exit(1);
        }
    });
    for client in listener.incoming() {
        let (client, seats) = (client?, seats.clone());
        // A client that is gone ends its thread.
        std::thread::spawn(move || serve(&seats, &client));
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
