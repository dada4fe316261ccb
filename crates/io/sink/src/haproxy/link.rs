use std::io;
use std::ops::Range;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::SocketAddress;
use crate::SinkError;
use crate::socket::not_a_socket;

/// Bound on the answers of one exchange. A server takes about 400 bytes in them: room for 40,000.
const MAX_ANSWER: usize = 16 << 20;

/// What ends every answer in interactive mode.
const PROMPT: &[u8] = b"\n> ";

/// What the master process says instead, to our first command.
const MASTER_PROMPT: &[u8] = b"master> ";

/// Commands that turn a fresh connection into a kept one: interactive mode, and no hanging up after
/// ten idle seconds, which is HAProxy's default.
const GREETING: &str = "prompt\nset timeout cli 1d\n";

/// One kept connection to the runtime API.
///
/// Commands are pipelined: all lines are written at once, and HAProxy ends each one's answer with a
/// prompt, in order, so that every answer belongs to its command. A connection whose exchange failed is
/// dropped, for what is still to come on it would be taken for the next answer. One whose exchange was
/// cancelled or took too long is not used again either, but HAProxy may still have its commands before it: the
/// next connection waits until they are carried out, for they would undo what is said there.
pub(super) struct Link {
    address: SocketAddress,
    limit: Duration,
    stream: Option<Stream>,
    /// Whether an exchange has begun on `stream` and not ended.
    unanswered: bool,
    answers: Answers,
}

/// Why an exchange failed.
#[derive(Debug)]
pub(super) enum LinkError {
    /// Could not connect.
    Connect(io::Error),
    /// Connected, and cut before all answers were there.
    Cut(Option<io::Error>),
    /// No complete answer in time.
    Timeout,
    /// More bytes than any answer can have, or bytes after the last prompt.
    Protocol(String),
}

/// The answers of one exchange, one per command.
#[derive(Default)]
pub(super) struct Answers {
    bytes: Vec<u8>,
    ranges: Vec<Range<usize>>,
}

impl Answers {
    /// The answer to the command at this position, without the newlines around it; empty when the
    /// command succeeded silently.
    pub(super) fn get(&self, command: usize) -> &[u8] {
        self.ranges.get(command).map_or(&[], |range| self.bytes[range.clone()].trim_ascii())
    }

    /// The same as text, for messages.
    pub(super) fn text(&self, command: usize) -> String {
        String::from_utf8_lossy(self.get(command)).into_owned()
    }
}

impl Link {
    pub(super) fn new(address: SocketAddress, limit: Duration) -> Self {
        Link { address, limit, stream: None, unanswered: false, answers: Answers::default() }
    }

    pub(super) fn address(&self) -> &SocketAddress {
        &self.address
    }

    /// Bounds connecting and each exchange from now on.
    pub(super) fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    pub(super) fn is_open(&self) -> bool {
        self.stream.is_some() && !self.unanswered
    }

    pub(super) fn close(&mut self) {
        if !self.unanswered {
            self.stream = None;
        }
    }

    /// The answers of the last exchange that succeeded.
    pub(super) fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Connects anew, within the time-out, and makes the connection a kept one. Commands that are unanswered on
    /// the last connection are waited for, as long again at most.
    pub(super) async fn open(&mut self) -> Result<(), LinkError> {
        if let Some(stream) = self.stream.as_mut().filter(|_| self.unanswered) {
            let _ = timeout(self.limit, stream.finish()).await;
        }
        self.stream = None;
        self.unanswered = false;
        let stream = match timeout(self.limit, Stream::connect(&self.address)).await {
            Err(_) => return Err(LinkError::Timeout),
            Ok(Err(error)) => return Err(LinkError::Connect(error)),
            Ok(Ok(stream)) => stream,
        };
        self.stream = Some(stream);
        self.exchange(GREETING).await.map(|_| ())
    }

    /// Sends all lines at once (each ends with a newline) and reads one answer per line. The
    /// connection must be open; it is closed when this fails.
    pub(super) async fn exchange(&mut self, lines: &str) -> Result<&Answers, LinkError> {
        if self.unanswered {
            return Err(LinkError::Cut(None));
        }
        let stream = self.stream.as_mut().ok_or(LinkError::Cut(None))?;
        self.unanswered = true;
        let done = timeout(self.limit, stream.exchange(lines, &mut self.answers)).await;
        let done = done.map_err(|_| LinkError::Timeout)?;
        self.unanswered = false;
        if let Err(error) = done {
            self.stream = None;
            return Err(error);
        }
        Ok(&self.answers)
    }

    /// The public error for a failure on this link.
    pub(super) fn error(&self, error: LinkError) -> SinkError {
        let socket = self.address.to_string();
        match error {
            LinkError::Timeout => SinkError::Timeout { socket, limit: self.limit },
            LinkError::Protocol(reason) => SinkError::Protocol { socket, reason },
            LinkError::Cut(source) => SinkError::Unreachable {
                socket,
                reason:
                    "the connection was cut: is this HAProxy's `stats socket`, is it restarting, or full (10 \
                         connections is the default `stats maxconn`)?"
                        .to_owned(),
                source,
            },
            LinkError::Connect(source) => match not_a_socket(self.address.path(), &source) {
                Some(reason) => SinkError::Unreachable { socket, reason, source: None },
                None => connect_error(socket, source),
            },
        }
    }
}

fn connect_error(socket: String, source: io::Error) -> SinkError {
    let reason = match source.kind() {
        io::ErrorKind::PermissionDenied => {
            return SinkError::Permission {
                socket,
                reason:
                    "permission denied: Plimsoll's user must be allowed to write to the socket \
                         (see `user`, `group` and `mode` of HAProxy's `stats socket`)"
                        .to_owned(),
            };
        }
        io::ErrorKind::NotFound => {
            "no such socket: is HAProxy running, and is this its `stats socket`?".to_owned()
        }
        io::ErrorKind::ConnectionRefused => {
            "nothing listens there: is HAProxy running, and is this its `stats socket`?".to_owned()
        }
        _ => format!("cannot connect: {source}"),
    };
    SinkError::Unreachable { socket, reason, source: Some(source) }
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    async fn connect(address: &SocketAddress) -> io::Result<Self> {
        match address {
            SocketAddress::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
            SocketAddress::Tcp(address) => {
                let stream = TcpStream::connect(address.as_str()).await?;
                // A poll is one small write that waits for its answer: Nagle would add 40 ms.
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    async fn exchange(&mut self, lines: &str, answers: &mut Answers) -> Result<(), LinkError> {
        match self {
            Stream::Unix(stream) => {
                let (reader, writer) = stream.split();
                talk(reader, writer, lines, answers).await
            }
            Stream::Tcp(stream) => {
                let (reader, writer) = stream.split();
                talk(reader, writer, lines, answers).await
            }
        }
    }

    /// Says that nothing more follows, and waits for the other side to have done with what was said.
    async fn finish(&mut self) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => drain(stream).await,
            Stream::Tcp(stream) => drain(stream).await,
        }
    }
}

async fn drain(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    stream.shutdown().await?;
    tokio::io::copy(stream, &mut tokio::io::sink()).await.map(|_| ())
}

/// Writes while it reads: HAProxy stops reading when its answers are not taken, so that a long batch
/// written first would stand still.
async fn talk(
    reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    lines: &str,
    answers: &mut Answers,
) -> Result<(), LinkError> {
    let expected = lines.bytes().filter(|byte| *byte == b'\n').count();
    let write = async {
        writer.write_all(lines.as_bytes()).await.map_err(|error| LinkError::Cut(Some(error)))
    };
    tokio::try_join!(write, read_answers(reader, expected, answers)).map(|_| ())
}

async fn read_answers(
    mut reader: impl AsyncRead + Unpin,
    expected: usize,
    answers: &mut Answers,
) -> Result<(), LinkError> {
    let Answers { bytes, ranges } = answers;
    bytes.clear();
    ranges.clear();
    let (mut start, mut scanned) = (0, 0);
    while ranges.len() < expected {
        bytes.reserve(16 << 10);
        match reader.read_buf(bytes).await {
            Ok(0) => return Err(LinkError::Cut(None)),
            Ok(_) => {}
            Err(error) => return Err(LinkError::Cut(Some(error))),
        }
        while ranges.len() < expected
            && let Some(end) = find_prompt(bytes, scanned)
        {
            ranges.push(start..end);
            start = end + PROMPT.len();
            scanned = start;
        }
        if bytes.starts_with(MASTER_PROMPT) {
            return Err(LinkError::Protocol(
                "this is the master's socket (`haproxy -S`): give the workers' `stats socket`"
                    .to_owned(),
            ));
        }
        // A prompt may be cut in two by the end of a read.
        scanned = scanned.max(bytes.len().saturating_sub(PROMPT.len() - 1));
        if bytes.len() > MAX_ANSWER {
            return Err(LinkError::Protocol("the answer is longer than 16 MiB".to_owned()));
        }
    }
    if start == bytes.len() {
        Ok(())
    } else {
        Err(LinkError::Protocol(
            "more answers than commands: is this HAProxy's `stats socket`?".to_owned(),
        ))
    }
}

fn find_prompt(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(PROMPT.len()).position(|window| window == PROMPT).map(|at| from + at)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::io::AsyncBufReadExt;

    use super::*;
    use crate::SinkErrorKind;

    fn read(chunks: &[&[u8]], expected: usize) -> Result<Vec<String>, LinkError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut answers = Answers::default();
        runtime.block_on(async {
            let (near, mut far) = tokio::io::duplex(4);
            let send = async {
                for chunk in chunks {
                    if far.write_all(chunk).await.is_err() {
                        break; // the reader has seen enough
                    }
                }
                drop(far);
            };
            tokio::join!(send, read_answers(near, expected, &mut answers)).1
        })?;
        Ok((0..expected).map(|i| answers.text(i)).collect())
    }

    #[test]
    fn every_answer_is_cut_at_its_prompt_wherever_the_reads_fall() {
        let answers = read(&[b"No such server.\n", b"\n", b"> \n", b"> a\nb\n\n> "], 3).unwrap();
        assert_eq!(answers, ["No such server.", "", "a\nb"]);
    }

    #[test]
    fn a_cut_or_chatty_stream_is_an_error() {
        assert!(matches!(read(&[b"\n> half"], 2), Err(LinkError::Cut(None))));
        assert!(matches!(read(&[b"\n> \n> "], 1), Err(LinkError::Protocol(_))));
        assert!(matches!(read(&[], 1), Err(LinkError::Cut(None))));
    }

    /// Carries out what each connection says, the first one's only after a while, and ends.
    async fn slow_at_first(
        listener: tokio::net::UnixListener,
        carried_out: Arc<Mutex<Vec<String>>>,
    ) {
        for slow in [true, false] {
            let (stream, _) = listener.accept().await.unwrap();
            let carried_out = Arc::clone(&carried_out);
            tokio::spawn(async move {
                let (reader, mut writer) = stream.into_split();
                let mut lines = tokio::io::BufReader::new(reader).lines();
                while let Some(line) = lines.next_line().await.unwrap() {
                    if line.starts_with("set weight") {
                        if slow {
                            tokio::time::sleep(Duration::from_millis(200)).await;
                        }
                        carried_out.lock().unwrap().push(line);
                    }
                    writer.write_all(PROMPT).await.unwrap();
                }
            });
        }
    }

    #[tokio::test]
    async fn commands_of_a_dropped_exchange_are_carried_out_before_the_next_connections() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("admin.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let carried_out = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(slow_at_first(listener, Arc::clone(&carried_out)));
        let mut link = Link::new(SocketAddress::Unix(path), Duration::from_secs(10));
        link.open().await.unwrap();
        let dropped = timeout(Duration::from_millis(20), link.exchange("set weight b/s 9\n")).await;
        assert!(dropped.is_err());
        assert!(!link.is_open());
        assert!(matches!(link.exchange("set weight b/s 8\n").await, Err(LinkError::Cut(None))));
        link.open().await.unwrap();
        link.exchange("set weight b/s 3\n").await.unwrap();
        assert_eq!(*carried_out.lock().unwrap(), ["set weight b/s 9", "set weight b/s 3"]);
    }

    #[test]
    fn a_socket_that_may_not_be_opened_is_a_matter_of_permission() {
        let error = connect_error("s".into(), io::ErrorKind::PermissionDenied.into());
        assert_eq!(error.kind(), SinkErrorKind::Permission);
        assert!(!error.retryable());
        let error = connect_error("s".into(), io::ErrorKind::ConnectionRefused.into());
        assert_eq!(error.kind(), SinkErrorKind::Unreachable);
        assert!(error.retryable());
    }
}
