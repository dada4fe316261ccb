use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::Daemon;
use super::wire::{Answer, MAX_LINE, Question};
use crate::SinkError;
use crate::socket::not_a_socket;

/// One kept connection to a daemon. A connection whose exchange failed or was dropped is closed:
/// what is still to come on it would be taken for the next answer.
pub(super) struct Link {
    daemon: &'static Daemon,
    path: PathBuf,
    limit: Duration,
    stream: Option<BufReader<UnixStream>>,
}

/// Why an exchange failed.
#[derive(Debug)]
pub(super) enum LinkError {
    /// Could not connect.
    Connect(io::Error),
    /// Connected, and cut before the answer was there.
    Cut(Option<io::Error>),
    /// No answer in time.
    Timeout,
    /// Not what the daemon says.
    Protocol(String),
}

impl Link {
    pub(super) fn new(daemon: &'static Daemon, path: PathBuf, limit: Duration) -> Self {
        Link { daemon, path, limit, stream: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Asks, and waits for the answer. A kept connection that turns out to be cut (the daemon was started
    /// anew) is opened once more: weights are absolute, so that asking twice does no harm.
    pub(super) async fn ask(&mut self, question: &Question) -> Result<Answer, LinkError> {
        let kept = self.stream.is_some();
        match self.exchange(question).await {
            Err(LinkError::Cut(_)) if kept => self.exchange(question).await,
            done => done,
        }
    }

    async fn exchange(&mut self, question: &Question) -> Result<Answer, LinkError> {
        let done = timeout(self.limit, async {
            // Taken, and put back only on success.
            let mut stream = match self.stream.take() {
                Some(stream) => stream,
                None => {
                    let connected = UnixStream::connect(&self.path).await;
                    BufReader::new(connected.map_err(LinkError::Connect)?)
                }
            };
            let answer = talk(&mut stream, question).await?;
            self.stream = Some(stream);
            Ok(answer)
        });
        done.await.unwrap_or(Err(LinkError::Timeout))
    }

    /// The public error for a failure on this link.
    pub(super) fn error(&self, error: LinkError) -> SinkError {
        let socket = self.path.display().to_string();
        match error {
            LinkError::Timeout => SinkError::Timeout { socket, limit: self.limit },
            LinkError::Protocol(reason) => {
                let daemon = self.daemon;
                let reason =
                    format!("{reason}: is this the {} of `{}`?", daemon.key, daemon.command);
                SinkError::Protocol { socket, reason }
            }
            LinkError::Cut(source) => SinkError::Unreachable {
                socket,
                reason: format!(
                    "the connection was cut: is `{}` being restarted?",
                    self.daemon.command
                ),
                source,
            },
            LinkError::Connect(source) => match not_a_socket(Some(&self.path), &source) {
                Some(reason) => SinkError::Unreachable { socket, reason, source: None },
                None => connect_error(self.daemon, socket, source),
            },
        }
    }
}

fn connect_error(daemon: &Daemon, socket: String, source: io::Error) -> SinkError {
    let reason = match source.kind() {
        io::ErrorKind::PermissionDenied => {
            let reason = format!("permission denied: {}", daemon.permission);
            return SinkError::Permission { socket, reason };
        }
        io::ErrorKind::NotFound => {
            format!(
                "no such socket: does `{}` run, and is this its {}?",
                daemon.command, daemon.key
            )
        }
        io::ErrorKind::ConnectionRefused => {
            format!("nothing listens there: does `{}` run?", daemon.command)
        }
        _ => format!("cannot connect: {source}"),
    };
    SinkError::Unreachable { socket, reason, source: Some(source) }
}

async fn talk(
    stream: &mut BufReader<UnixStream>,
    question: &Question,
) -> Result<Answer, LinkError> {
    let wrong = |error: serde_json::Error| LinkError::Protocol(error.to_string());
    let cut = |error| LinkError::Cut(Some(error));
    let mut line = serde_json::to_vec(question).map_err(wrong)?;
    line.push(b'\n');
    stream.write_all(&line).await.map_err(cut)?;
    line.clear();
    stream.take(MAX_LINE as u64).read_until(b'\n', &mut line).await.map_err(cut)?;
    match line.last() {
        Some(b'\n') => serde_json::from_slice(&line).map_err(wrong),
        _ if line.len() >= MAX_LINE => {
            Err(LinkError::Protocol(format!("an answer of more than {MAX_LINE} bytes")))
        }
        _ => Err(LinkError::Cut(None)),
    }
}
