//! One connection: requests one after another, and which server answers them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Break;
use crate::http::{Body, parse_response};
use crate::net::SERVER_HEADER;

/// Bytes taken from the socket at a time.
const BUFFER: usize = 64 * 1024;

/// An open connection.
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Bytes of the buffer that have come and are not used yet.
    filled: usize,
    patience: Duration,
    host: SocketAddr,
    /// The server that answered first.
    pub server: Option<String>,
}

impl Connection {
    pub async fn open(target: SocketAddr, patience: Duration) -> Result<Self, Break> {
        let stream = match timeout(patience, TcpStream::connect(target)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(_)) | Err(_) => return Err(Break::NotOpened),
        };
        // A request is one short segment: waiting for more would only add Nagle's delay.
        stream.set_nodelay(true).map_err(|error| broken_by(&error))?;
        let buffer = vec![0; BUFFER];
        Ok(Connection { stream, buffer, filled: 0, patience, host: target, server: None })
    }

    /// Asks for something, and reads the whole answer; `progress` gets how many bytes of its body
    /// came.
    pub async fn get(&mut self, path: &str, mut progress: impl FnMut(u64)) -> Result<(), Break> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
        self.stream.write_all(request.as_bytes()).await.map_err(|error| broken_by(&error))?;
        let mut body = loop {
            if let Some(body) = self.head()? {
                break body;
            }
            self.fill().await?;
        };
        loop {
            let mut came = 0;
            let fed = body.feed(&self.buffer[..self.filled], |part| came += part.len() as u64);
            let taken = fed.map_err(|_| Break::BadAnswer)?;
            self.consume(taken);
            if came > 0 {
                progress(came);
            }
            if body.is_done() {
                return Ok(());
            }
            self.fill().await?;
        }
    }

    /// The head of the answer, once it is whole: it names the server.
    fn head(&mut self) -> Result<Option<Body>, Break> {
        let parsed = parse_response(&self.buffer[..self.filled], false, SERVER_HEADER);
        let Some(head) = parsed.map_err(|_| Break::BadAnswer)? else { return Ok(None) };
        let name = head.label.map(|name| String::from_utf8_lossy(name).into_owned());
        let Some(name) = name.filter(|_| head.status == 200) else { return Err(Break::BadAnswer) };
        let (body, taken) = (Body::new(head.framing), head.len);
        self.consume(taken);
        match &self.server {
            Some(first) if *first != name => return Err(Break::ChangedServer),
            Some(_) => {}
            None => self.server = Some(name),
        }
        Ok(Some(body))
    }

    fn consume(&mut self, taken: usize) {
        self.buffer.copy_within(taken..self.filled, 0);
        self.filled -= taken;
    }

    async fn fill(&mut self) -> Result<(), Break> {
        if self.filled == self.buffer.len() {
            // A head or a chunk's line longer than the buffer.
            return Err(Break::BadAnswer);
        }
        match timeout(self.patience, self.stream.read(&mut self.buffer[self.filled..])).await {
            Err(_) => Err(Break::Timeout),
            Ok(Ok(0)) => Err(Break::Closed),
            Ok(Ok(count)) => {
                self.filled += count;
                Ok(())
            }
            Ok(Err(error)) => Err(broken_by(&error)),
        }
    }
}

fn broken_by(error: &io::Error) -> Break {
    match error.kind() {
        io::ErrorKind::TimedOut => Break::Timeout,
        // Written to after the reset, or closed before the answer.
        _ => Break::Reset,
    }
}
