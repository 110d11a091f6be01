//! A server on tokio: reads in place, writes by ticket.
//!
//! A lookup takes microseconds, so a task makes it where it runs. So does a write without sync.
//! What takes long is the sync, and no thread waits for it: the task awaits a ticket, and the
//! writes of all connections share one sync. An answer "stored" survives a power loss.
//!
//! The example is its own client: it stores and fetches through 64 connections, and ends.

use siftdb::Db;
use std::io;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const CLIENTS: usize = 64;
const REQUESTS: usize = 50;

/// Answers the lines `put KEY VALUE` and `get KEY` of one connection.
async fn serve(db: Db, mut stream: TcpStream) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader).lines();
    while let Some(line) = lines.next_line().await? {
        let answer = answer(&db, &line).await.unwrap_or_else(|error| format!("error: {error}"));
        writer.write_all(format!("{answer}\n").as_bytes()).await?;
    }
    Ok(())
}

async fn answer(db: &Db, line: &str) -> siftdb::Result<String> {
    let words: Vec<&str> = line.splitn(3, ' ').collect();
    Ok(match words[..] {
        ["put", key, value] => {
            db.put(key, value)?;
            db.sync_ticket().await?;
            "stored".into()
        }
        ["get", key] => match db.get(key)? {
            Some(value) => String::from_utf8_lossy(&value).into_owned(),
            None => "none".into(),
        },
        _ => "error: put KEY VALUE, or get KEY".into(),
    })
}

/// Stores and fetches through one connection.
async fn client(number: usize, mut stream: TcpStream) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader).lines();
    for n in 0..REQUESTS {
        writer.write_all(format!("put {number}/{n} v{n}\nget {number}/{n}\n").as_bytes()).await?;
        assert_eq!(lines.next_line().await?.as_deref(), Some("stored"));
        assert_eq!(lines.next_line().await?, Some(format!("v{n}")));
    }
    Ok(())
}

async fn run(db: &Db) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let stream = TcpStream::connect(listener.local_addr()?).await?;
        clients.push(tokio::spawn(client(number, stream)));
        tokio::spawn(serve(db.clone(), listener.accept().await?.0));
    }
    for client in clients {
        client.await??;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let db = Db::open(directory.path().join("server.sift"))?;
    tokio::runtime::Builder::new_multi_thread().enable_io().build()?.block_on(run(&db))?;
    let syncs = db.stats().wal_syncs;
    println!("{} durable writes with {syncs} syncs", CLIENTS * REQUESTS);
    Ok(db.close()?)
}
