//! HTTP to one address, over a connection that is kept: between nodes, and for tests.

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderMap};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::io;
use tokio::net::TcpStream;

/// What a request carries.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A body that is in memory.
pub fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// What a server answered.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// A client of one address.
#[derive(Debug)]
pub struct Client {
    address: String,
    idle: Option<SendRequest<Body>>,
}

impl Client {
    /// A client of the server at `address`, as `127.0.0.1:7101`. Connects with the first request.
    #[must_use]
    pub fn new(address: &str) -> Self {
        Client { address: address.into(), idle: None }
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// `ConnectionRefused` if nothing listens there: then nothing was sent. After any other error
    /// the server may have the request.
    pub async fn send(&mut self, method: Method, path: &str, body: Body) -> io::Result<Response> {
        // Taken out: if the caller gives up halfway, the connection goes with this future, and the
        // answer of this request cannot become that of the next one.
        let mut connection = match self.idle.take() {
            Some(idle) if !idle.is_closed() => idle,
            _ => connect(&self.address).await?,
        };
        let request = Request::builder().method(method).uri(path).header(HOST, &self.address);
        let request = request.body(body).map_err(io::Error::other)?;
        connection.ready().await.map_err(io::Error::other)?;
        let response = connection.send_request(request).await.map_err(io::Error::other)?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        self.idle = Some(connection);
        Ok(Response { status: head.status, headers: head.headers, body })
    }
}

async fn connect(address: &str) -> io::Result<SendRequest<Body>> {
    let stream = TcpStream::connect(address).await?;
    // Messages between nodes are small and waited for.
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // It ends with an error if the server dies; calls that wait for an answer get one, too.
    tokio::spawn(connection);
    Ok(sender)
}
