//! The Unix socket of a running proxy: a question a line, a JSON value a line in answer: `"status"`, `"reload"`,
//! `{"drain": {"backend": …, "pool": …, "undo": …}}`, or what a controller says ([`plimsoll_sink::wire`]).

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_sink::wire;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::debug;

use crate::run::Handle;
use crate::status::Status;

/// A question is no longer than this, bytes: a plan for more than 10,000 backends.
const MAX_QUESTION: u64 = wire::MAX_LINE as u64;
/// An answer is no longer than this, bytes: more than 10,000 backends fill.
const MAX_ANSWER: u64 = 64 << 20;
/// How long a side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections at a time; more wait to be taken.
const CONNECTIONS: usize = 32;
/// A connection that says nothing for so long is closed: a controller reads twenty times a second.
const IDLE: Duration = Duration::from_secs(60);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Question {
    Status,
    Drain {
        backend: String,
        #[serde(default)]
        pool: Option<String>,
        #[serde(default)]
        undo: bool,
    },
    Reload,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer<S> {
    Status(S),
    Done,
    Refused(String),
}

/// Why a proxy cannot be asked.
#[derive(Debug, Error)]
pub enum SocketError {
    /// There is no proxy, or this process may not ask it.
    #[error("no proxy answers at {path}: {error}")]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Its answer is none.
    #[error("expected a proxy's answer, found something else: {0}")]
    Answer(String),
    /// It does not do what it was asked.
    #[error("{0}")]
    Refused(String),
}

/// Where a proxy is asked. Its file is removed when it is dropped.
pub struct Socket {
    path: PathBuf,
    listener: tokio::net::UnixListener,
}

impl Socket {
    /// Listens, for this user alone; takes the place of a socket without a listener. To be called within a runtime.
    ///
    /// # Errors
    /// When the system refuses, or another proxy listens there.
    pub fn bind(path: &Path) -> io::Result<Self> {
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(ErrorKind::AddrInUse, "another proxy listens there"));
        }
        match std::fs::symlink_metadata(path) {
            Ok(found) if !std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()) => {
                return Err(io::Error::new(ErrorKind::AlreadyExists, "a file that is no socket"));
            }
            Ok(_) => std::fs::remove_file(path)?,
            Err(_) => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        Ok(Socket { path: path.to_owned(), listener })
    }

    /// Answers until it is dropped. `reload` has the daemon read its configuration again: what is wrong with it, if it
    /// is refused.
    pub async fn serve<R>(&self, proxy: &Handle, reload: R)
    where
        R: Fn() -> Result<(), String> + Clone + Send + Sync + 'static,
    {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        // Ends them all when this ends.
        let mut connections = JoinSet::new();
        loop {
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            while connections.try_join_next().is_some() {}
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let (proxy, reload) = (proxy.clone(), reload.clone());
                    connections.spawn(async move {
                        if let Err(error) = converse(stream, &proxy, &reload).await {
                            debug!(%error, "a question could not be answered");
                        }
                        drop(permit);
                    });
                }
                Err(error) => {
                    debug!(%error, "cannot accept a question");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Nothing is left to do about one that cannot be removed: the next proxy takes its place.
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn converse(
    stream: tokio::net::UnixStream,
    proxy: &Handle,
    reload: &(dyn Fn() -> Result<(), String> + Sync),
) -> io::Result<()> {
    let mut stream = tokio::io::BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut stream).take(MAX_QUESTION);
        match timeout(IDLE, limited.read_until(b'\n', &mut line)).await {
            Ok(read) => read?,
            Err(_) => return Ok(()),
        };
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
        let mut text = answer(&line, proxy, reload)?;
        text.push(b'\n');
        timeout(PATIENCE, stream.write_all(&text)).await.map_err(|_| ErrorKind::TimedOut)??;
    }
}

/// A controller's questions are distinguished from others by their words.
fn answer(
    line: &[u8],
    proxy: &Handle,
    reload: &dyn Fn() -> Result<(), String>,
) -> serde_json::Result<Vec<u8>> {
    if let Ok(question) = serde_json::from_slice::<wire::Question>(line) {
        return serde_json::to_vec(&proxy.steer(question));
    }
    let done = |done: Result<(), String>| match done {
        Ok(()) => Answer::Done,
        Err(why) => Answer::Refused(why),
    };
    let answer = match serde_json::from_slice(line) {
        Ok(Question::Status) => Answer::Status(proxy.status()),
        Ok(Question::Drain { backend, pool, undo }) => {
            done(proxy.drain(&backend, pool.as_deref(), undo))
        }
        Ok(Question::Reload) => done(reload()),
        Err(error) => {
            // In the words of the controllers' protocol, which knows more kinds of refusals.
            return serde_json::to_vec(&wire::Answer::Refused {
                reason: wire::Refusal::NotUnderstood,
                message: format!(
                    "expected status, reload, a drain or a controller's question: {error}"
                ),
                exist: Vec::new(),
            });
        }
    };
    serde_json::to_vec(&answer)
}

/// Asks the proxy that listens there for its status.
///
/// # Errors
/// [`SocketError`].
pub fn ask(path: &Path) -> Result<Status, SocketError> {
    match exchange(path, &Question::Status)? {
        Answer::Status(status) => Ok(status),
        Answer::Refused(why) => Err(SocketError::Refused(why)),
        Answer::Done => Err(SocketError::Answer("done".to_owned())),
    }
}

/// Has the proxy that listens there drain a backend, or take it up again: [`Handle::drain`].
///
/// # Errors
/// [`SocketError`].
pub fn drain(
    path: &Path,
    backend: &str,
    pool: Option<&str>,
    undo: bool,
) -> Result<(), SocketError> {
    let (backend, pool) = (backend.to_owned(), pool.map(str::to_owned));
    done(exchange(path, &Question::Drain { backend, pool, undo })?)
}

/// Has the proxy that listens there read its configuration again.
///
/// # Errors
/// [`SocketError`]; [`SocketError::Refused`] says all that is wrong with it.
pub fn reload(path: &Path) -> Result<(), SocketError> {
    done(exchange(path, &Question::Reload)?)
}

/// Has a pool of the proxy that listens there go back to its configured weights, in place of a controller's.
///
/// # Errors
/// [`SocketError`].
pub fn release(path: &Path, pool: &str) -> Result<(), SocketError> {
    match exchange(path, &wire::Question::Release { vip: pool.to_owned() })? {
        wire::Answer::Done(_) => Ok(()),
        wire::Answer::Refused { message, .. } => Err(SocketError::Refused(message)),
    }
}

fn done(answer: Answer<Status>) -> Result<(), SocketError> {
    match answer {
        Answer::Done => Ok(()),
        Answer::Refused(why) => Err(SocketError::Refused(why)),
        Answer::Status(_) => Err(SocketError::Answer("a status".to_owned())),
    }
}

fn exchange<Q: Serialize, A: DeserializeOwned>(
    path: &Path,
    question: &Q,
) -> Result<A, SocketError> {
    let asked = || {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut text = serde_json::to_vec(question)?;
        text.push(b'\n');
        stream.write_all(&text)?;
        let mut line = String::new();
        BufReader::new(stream).take(MAX_ANSWER).read_line(&mut line)?;
        Ok(line)
    };
    let unreachable = |error| SocketError::Unreachable { path: path.to_owned(), error };
    let line = asked().map_err(unreachable)?;
    serde_json::from_str(&line).map_err(|error| SocketError::Answer(error.to_string()))
}
