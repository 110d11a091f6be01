//! A snapshot on its way to another node: one request, whose body is
//!
//! ```text
//! bytes of the header: u32 | header in JSON: vote, meta, names and sizes of files | the files
//! ```
//!
//! A checkpoint is a flat directory of files that never change, so they are streamed as they are.
//! Their contents need no checksum here: siftdb checks every block when the snapshot is installed.

use crate::http_client::{Client, Response};
use crate::storage::to_json;
use crate::types::{NodeId, Snapshot, SnapshotMeta};
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use hyper::Method;
use hyper::body::{Buf, Bytes};
use openraft::Vote;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CHUNK_BYTES: usize = 256 << 10;
const HEADER_BYTES_MAX: usize = 16 << 20;

/// What comes before the files.
#[derive(Debug, Serialize, Deserialize)]
pub struct Header {
    /// The vote that makes the sender the leader.
    pub vote: Vote<NodeId>,
    /// What the snapshot holds.
    pub meta: SnapshotMeta,
    /// Name and bytes of each file.
    pub files: Vec<(String, u64)>,
}

/// Sends a snapshot and waits until it is installed.
///
/// # Errors
/// The failure of a file or of the connection.
pub async fn send(
    client: &mut Client,
    path: &str,
    vote: Vote<NodeId>,
    snapshot: &Snapshot,
) -> io::Result<Response> {
    let directory = snapshot.snapshot.path();
    let header = Header { vote, meta: snapshot.meta.clone(), files: files_of(directory)? };
    let (sender, body) = Channel::new(2);
    let write = write_body(sender, &header, directory);
    let request = client.send(Method::POST, path, body.boxed_unsync());
    match tokio::join!(write, request) {
        // A file that cannot be read cuts the body, and the other node complains of that.
        (Err(error), Ok(answer)) if !answer.status.is_success() => {
            let said = String::from_utf8_lossy(&answer.body).into_owned();
            Err(io::Error::new(error.kind(), format!("{error}; the other node said: {said}")))
        }
        (_, answer) => answer,
    }
}

async fn write_body(
    mut sender: Sender<Bytes, io::Error>,
    header: &Header,
    directory: &Path,
) -> io::Result<()> {
    let json = to_json(header)?;
    let bytes = u32::try_from(json.len()).map_err(io::Error::other)?;
    let start = [&bytes.to_be_bytes()[..], &json].concat();
    sender.send_data(start.into()).await.map_err(io::Error::other)?;
    for (name, bytes) in &header.files {
        let mut file = File::open(directory.join(name)).await?.take(*bytes);
        loop {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            if file.read_buf(&mut chunk).await? == 0 {
                break;
            }
            sender.send_data(chunk.into()).await.map_err(io::Error::other)?;
        }
    }
    Ok(())
}

/// The files that make the database.
fn files_of(directory: &Path) -> io::Result<Vec<(String, u64)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // The lock belongs to the process that has it open.
        if name != "LOCK" {
            files.push((name, entry.metadata()?.len()));
        }
    }
    Ok(files)
}

/// A snapshot that comes in.
#[derive(Debug)]
pub struct Incoming {
    body: axum::body::Body,
    rest: Bytes,
}

impl Incoming {
    /// The body of a request.
    #[must_use]
    pub fn new(body: axum::body::Body) -> Self {
        Incoming { body, rest: Bytes::new() }
    }

    /// Reads the header, which comes first.
    ///
    /// # Errors
    /// The failure of the connection; a header that is none.
    pub async fn header(&mut self) -> io::Result<Header> {
        let bytes = self.exactly(4).await?.as_slice().get_u32() as usize;
        if bytes > HEADER_BYTES_MAX {
            return Err(invalid(format!("a header of {bytes} bytes")));
        }
        Ok(serde_json::from_slice(&self.exactly(bytes).await?)?)
    }

    /// Writes the files into `directory`, durably.
    ///
    /// # Errors
    /// The failure of the connection or of a file; a name that leaves the directory.
    pub async fn write_files(&mut self, header: &Header, directory: &Path) -> io::Result<()> {
        for (name, bytes) in &header.files {
            if !is_plain(name) {
                return Err(invalid(format!("{name:?} is no name of a file of a snapshot")));
            }
            let mut file = File::create_new(directory.join(name)).await?;
            let mut left = *bytes;
            while left > 0 {
                let part = self.some(usize::try_from(left).unwrap_or(usize::MAX)).await?;
                file.write_all(&part).await?;
                left -= part.len() as u64;
            }
            // `write_all` leaves the last write to another thread, and `sync_all` ignores its
            // failure. Only `flush` returns it.
            file.flush().await?;
            // The snapshot becomes links to these files, and a link is only as durable as they are.
            file.sync_all().await?;
        }
        File::open(directory).await?.sync_all().await
    }

    async fn exactly(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while all.len() < bytes {
            all.extend_from_slice(&self.some(bytes - all.len()).await?);
        }
        Ok(all)
    }

    /// The next bytes: at least one, at most `max`.
    async fn some(&mut self, max: usize) -> io::Result<Bytes> {
        while self.rest.is_empty() {
            let frame =
                self.body.frame().await.ok_or_else(|| invalid("the snapshot is cut off"))?;
            // A frame without data carries trailers, which mean nothing here.
            self.rest = frame.map_err(io::Error::other)?.into_data().unwrap_or_default();
        }
        Ok(self.rest.split_to(max.min(self.rest.len())))
    }
}

fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    name.bytes().all(plain) && !name.starts_with('.') && !name.is_empty()
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}
