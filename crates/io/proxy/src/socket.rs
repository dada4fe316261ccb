//! The Unix socket of a running proxy: a question a line, a JSON value a line in answer: `"status"`, or
//! `{"drain": {"backend": …, "pool": …, "undo": …}}`.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tracing::debug;

use crate::run::Handle;
use crate::status::Status;

/// A question is no longer than this, bytes.
const MAX_QUESTION: u64 = 4 << 10;
/// An answer is no longer than this, bytes: more than 10,000 backends fill.
const MAX_ANSWER: u64 = 64 << 20;
/// How long a side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);

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
    /// There is no proxy, or nobody may ask it.
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
    /// Listens, for this user alone; takes the place of a socket that nobody listens on. To be called within a runtime.
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

    /// Answers, one after the other, until it is dropped.
    pub async fn serve(&self, proxy: &Handle) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    // Each is done within its patience, so nobody keeps the others from asking for long.
                    let answered = tokio::time::timeout(PATIENCE, answer(stream, proxy)).await;
                    if let Ok(Err(error)) = answered {
                        debug!(%error, "a question could not be answered");
                    }
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

async fn answer(mut stream: tokio::net::UnixStream, proxy: &Handle) -> io::Result<()> {
    let (read, mut write) = stream.split();
    let mut line = String::new();
    tokio::io::BufReader::new(read).take(MAX_QUESTION).read_line(&mut line).await?;
    let answer = match serde_json::from_str(&line) {
        Ok(Question::Status) => Answer::Status(proxy.status()),
        Ok(Question::Drain { backend, pool, undo }) => {
            match proxy.drain(&backend, pool.as_deref(), undo) {
                Ok(()) => Answer::Done,
                Err(why) => Answer::Refused(why),
            }
        }
        Err(error) => Answer::Refused(format!("expected \"status\" or a drain: {error}")),
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    write.write_all(&text).await
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
    match exchange(path, &Question::Drain { backend, pool, undo })? {
        Answer::Done => Ok(()),
        Answer::Refused(why) => Err(SocketError::Refused(why)),
        Answer::Status(_) => Err(SocketError::Answer("a status".to_owned())),
    }
}

fn exchange(path: &Path, question: &Question) -> Result<Answer<Status>, SocketError> {
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
