use std::io;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::SinkError;
use crate::haproxy::SocketAddress;
use crate::socket::not_a_socket;

/// The longest answer: a server takes about 100 bytes in it.
const MAX_ANSWER: usize = 16 << 20;

/// One kept connection to the local server of NGINX's Lua balancer. A connection whose exchange failed or was dropped
/// is closed.
pub(super) struct Link {
    address: SocketAddress,
    limit: Duration,
    sender: Option<SendRequest<Full<Bytes>>>,
}

/// Why an exchange failed.
#[derive(Debug)]
pub(super) enum LinkError {
    /// Could not connect.
    Connect(io::Error),
    /// Connected, and cut before the answer was there.
    Cut(String),
    /// No answer in time.
    Timeout,
    /// Not what the Lua balancer says.
    Protocol(String),
}

impl Link {
    pub(super) fn new(address: SocketAddress, limit: Duration) -> Self {
        Link { address, limit, sender: None }
    }

    /// The socket, for messages.
    pub(super) fn place(&self) -> String {
        place(&self.address)
    }

    /// Asks, and waits for the answer. A kept connection that turns out to be cut (NGINX was reloaded) is opened once
    /// more: weights are absolute, so that asking twice does no harm.
    pub(super) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: &str,
    ) -> Result<(StatusCode, String), LinkError> {
        let kept = self.sender.is_some();
        match self.exchange(method.clone(), path, body).await {
            Err(LinkError::Cut(_)) if kept => self.exchange(method, path, body).await,
            done => done,
        }
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        body: &str,
    ) -> Result<(StatusCode, String), LinkError> {
        let cut = |error: hyper::Error| LinkError::Cut(error.to_string());
        let done = timeout(self.limit, async {
            // Taken, and put back only on success.
            let mut sender = match self.sender.take() {
                Some(sender) => sender,
                None => connect(&self.address).await?,
            };
            sender.ready().await.map_err(cut)?;
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("host", "plimsoll")
                .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
                .map_err(|error| LinkError::Protocol(error.to_string()))?;
            let answer = sender.send_request(request).await.map_err(cut)?;
            let status = answer.status();
            let read = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            let bytes = read.map_err(|error| LinkError::Cut(error.to_string()))?.to_bytes();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Ok((status, text, sender))
        });
        let (status, text, sender) = done.await.map_err(|_| LinkError::Timeout)??;
        self.sender = Some(sender);
        Ok((status, text))
    }

    /// The public error for a failure on this link.
    pub(super) fn error(&self, error: LinkError) -> SinkError {
        let socket = self.place();
        match error {
            LinkError::Timeout => SinkError::Timeout { socket, limit: self.limit },
            LinkError::Protocol(reason) => SinkError::Protocol { socket, reason },
            LinkError::Cut(why) => SinkError::Unreachable {
                socket,
                reason: format!(
                    "the connection was cut ({why}): is this the socket of `plimsoll nginx snippet`, and is NGINX \
                     restarting?"
                ),
                source: None,
            },
            LinkError::Connect(source) => match not_a_socket(self.address.path(), &source) {
                Some(reason) => SinkError::Unreachable { socket, reason, source: None },
                None => connect_error(socket, source),
            },
        }
    }
}

/// A socket of NGINX, for messages.
pub(super) fn place(address: &SocketAddress) -> String {
    match address {
        SocketAddress::Unix(path) => format!("NGINX socket {}", path.display()),
        SocketAddress::Tcp(address) => format!("NGINX socket tcp://{address}"),
    }
}

async fn connect(address: &SocketAddress) -> Result<SendRequest<Full<Bytes>>, LinkError> {
    let shaken = match address {
        SocketAddress::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(LinkError::Connect)?;
            let (sender, connection) = shake(stream).await?;
            // It ends with the sender; what goes wrong on it is the sender's error.
            tokio::spawn(connection);
            sender
        }
        SocketAddress::Tcp(address) => {
            let stream = TcpStream::connect(address.as_str()).await.map_err(LinkError::Connect)?;
            stream.set_nodelay(true).map_err(LinkError::Connect)?;
            let (sender, connection) = shake(stream).await?;
            tokio::spawn(connection);
            sender
        }
    };
    Ok(shaken)
}

type Shaken<S> =
    (SendRequest<Full<Bytes>>, hyper::client::conn::http1::Connection<TokioIo<S>, Full<Bytes>>);

async fn shake<S>(stream: S) -> Result<Shaken<S>, LinkError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    handshake(TokioIo::new(stream)).await.map_err(|error| LinkError::Cut(error.to_string()))
}

fn connect_error(socket: String, source: io::Error) -> SinkError {
    let reason = match source.kind() {
        io::ErrorKind::PermissionDenied => {
            let reason = "permission denied: Plimsoll's user must be allowed to write to the socket, and to enter \
                          its directory";
            return SinkError::Permission { socket, reason: reason.to_owned() };
        }
        io::ErrorKind::NotFound => "no such socket: does NGINX run with the configuration that `plimsoll nginx snippet` \
                                    prints?"
            .to_owned(),
        io::ErrorKind::ConnectionRefused => {
            "nothing listens there: does NGINX run with the configuration that `plimsoll nginx snippet` prints?".to_owned()
        }
        _ => format!("cannot connect: {source}"),
    };
    SinkError::Unreachable { socket, reason, source: Some(source) }
}
