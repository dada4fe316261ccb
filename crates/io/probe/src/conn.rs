use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use plimsoll_config::Address;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::closing::{Closer, Orderly};
use crate::failure::{Failure, Stage, Stop};
use crate::resolve::Resolver;

/// A connection to a backend, in the clear or not.
#[derive(Debug)]
pub(crate) enum Conn {
    Plain(Orderly),
    Tls(Box<TlsStream<Orderly>>),
}

/// Opens connections to one backend.
#[derive(Debug)]
pub(crate) struct Dialer {
    resolver: Resolver,
    closer: Closer,
}

impl Dialer {
    pub fn new(address: Address) -> Self {
        Dialer { resolver: Resolver::new(address), closer: Closer::default() }
    }

    pub fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Whether the backend owes so many answers that it is not to be asked again.
    pub fn is_overdue(&self) -> bool {
        self.closer.is_overdue()
    }

    /// Connects to the first address that takes it.
    pub async fn dial(&self, addrs: &[SocketAddr]) -> Result<Orderly, Stop> {
        let mut last = Stop::Backend(Failure::new(
            plimsoll_model::FailureKind::Refused,
            "cannot connect: no address",
        ));
        for addr in addrs {
            match TcpStream::connect(addr).await {
                Ok(stream) => {
                    // A request is one write: waiting for more to send would only add delay.
                    stream.set_nodelay(true).map_err(|e| Stop::from_io(Stage::Connect, e))?;
                    return Ok(Orderly::new(stream, &self.closer));
                }
                Err(error) => last = Stop::from_io(Stage::Connect, error),
            }
        }
        Err(last)
    }
}

impl Conn {
    /// Adds TLS to a fresh connection.
    pub async fn secure(
        stream: Orderly,
        config: &Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, Stop> {
        let connector = TlsConnector::from(config.clone());
        let stream = connector.connect(name, stream).await;
        let stream = stream.map_err(|e| Stop::from_io(Stage::Handshake, e))?;
        Ok(Conn::Tls(Box::new(stream)))
    }

    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Conn::Plain(stream) => stream.write_all(bytes).await,
            Conn::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    /// Reads what is there, at least one byte; 0 when the server has closed.
    pub async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Conn::Plain(stream) => stream.read(buf).await,
            Conn::Tls(stream) => match stream.read(buf).await {
                // Closed without a goodbye: many servers do, and lengths tell what is cut.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                result => result,
            },
        }
    }

    /// Whether an idle connection can carry another request, as far as is known here: nothing was
    /// sent unasked, and the server has not closed. Costs no system call while nothing happened.
    pub fn usable(&mut self) -> bool {
        let mut byte = [0u8; 1];
        let mut buf = ReadBuf::new(&mut byte);
        let mut cx = Context::from_waker(Waker::noop());
        let polled = match self {
            Conn::Plain(stream) => Pin::new(stream).poll_read(&mut cx, &mut buf),
            Conn::Tls(stream) => Pin::new(stream.as_mut()).poll_read(&mut cx, &mut buf),
        };
        matches!(polled, Poll::Pending)
    }
}
