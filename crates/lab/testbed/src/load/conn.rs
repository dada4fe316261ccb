//! One connection of the generator: a request out, its answer in, again.

use std::io::{self, Write};
use std::sync::Arc;

use mio::net::TcpStream;
use slotmap::DefaultKey;

use super::report::ErrorKind;
use crate::http::{Body, Fill, Inbox, ProtocolError, parse_response};

/// Reads of one connection before others have their turn: 1 MB at most.
const READS_PER_TURN: usize = 16;

#[derive(Debug)]
enum Phase {
    Connecting,
    Idle,
    /// A request is out, or on its way.
    Head,
    /// The answer's head has come.
    Body {
        body: Body,
        answer: Answer,
    },
}

/// An answer that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub status: u16,
    pub keep_alive: bool,
    /// As given by the caller's naming function.
    pub backend: Option<usize>,
}

/// Where a connection stands after its socket was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing to do before the next event.
    Wait,
    /// There is more to read, but others should have their turn first.
    MoreToRead,
    Answered(Answer),
}

/// The connection is of no use any more.
#[derive(Debug)]
pub(super) struct Broken {
    pub kind: ErrorKind,
    pub why: String,
}

impl Broken {
    fn cut(why: impl ToString) -> Self {
        Broken { kind: ErrorKind::Cut, why: format!("connection cut: {}", why.to_string()) }
    }
}

impl From<ProtocolError> for Broken {
    fn from(e: ProtocolError) -> Self {
        Broken { kind: ErrorKind::Protocol, why: e.0.into() }
    }
}

pub(super) struct Conn {
    pub(super) stream: TcpStream,
    /// Whose answer is awaited.
    pub(super) request: Option<DefaultKey>,
    inbox: Inbox,
    phase: Phase,
    bytes: Arc<[u8]>,
    /// Bytes of the request that the socket has taken.
    sent: usize,
    /// The other side's end has been announced, and will not be again: read up to it.
    closing: bool,
}

/// What all connections of a load share.
pub(super) struct Shared {
    pub to_head: bool,
    pub by_header: String,
}

impl Conn {
    pub(super) fn connecting(stream: TcpStream, request: DefaultKey, bytes: Arc<[u8]>) -> Self {
        Conn {
            stream,
            request: Some(request),
            inbox: Inbox::default(),
            phase: Phase::Connecting,
            bytes,
            sent: 0,
            closing: false,
        }
    }

    /// To be called when an event says that the other side has closed.
    pub(super) fn mark_closing(&mut self) {
        self.closing = true;
    }

    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.phase, Phase::Connecting)
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// To be called on the first writable event: whether there is a connection, and if so sends the
    /// request that waits for it.
    pub(super) fn connected(&mut self) -> Result<bool, Broken> {
        let failed =
            |e: io::Error| Broken { kind: ErrorKind::Connect, why: format!("connect: {e}") };
        if let Some(e) = self.stream.take_error().map_err(failed)? {
            return Err(failed(e));
        }
        match self.stream.peer_addr() {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotConnected => return Ok(false),
            Err(e) => return Err(failed(e)),
        }
        // Without it a request of two pieces would wait for an acknowledgement.
        self.stream.set_nodelay(true).map_err(failed)?;
        self.phase = Phase::Head;
        self.send()?;
        Ok(true)
    }

    /// Begins a request on an idle connection.
    pub(super) fn begin(&mut self, request: DefaultKey, bytes: Arc<[u8]>) -> Result<(), Broken> {
        self.request = Some(request);
        self.bytes = bytes;
        self.phase = Phase::Head;
        self.sent = 0;
        self.send()
    }

    /// Sends as much of the request as the socket takes.
    pub(super) fn send(&mut self) -> Result<(), Broken> {
        while self.sent < self.bytes.len() && !self.is_idle() {
            match self.stream.write(&self.bytes[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Broken::cut(e)),
            }
        }
        Ok(())
    }

    /// Reads what has come. `name` turns the header's value into a backend's entry.
    pub(super) fn receive(
        &mut self,
        shared: &Shared,
        mut name: impl FnMut(&[u8]) -> usize,
    ) -> Result<Progress, Broken> {
        for _ in 0..READS_PER_TURN {
            let fill = self.inbox.fill(&mut self.stream).map_err(Broken::cut)?;
            if fill == Fill::Closed {
                return self.closed();
            }
            if fill == Fill::Full {
                return Err(ProtocolError("an answer with too long a head").into());
            }
            if let Some(mut answer) = self.parse(shared, &mut name)? {
                answer.keep_alive &= !self.closing;
                self.phase = Phase::Idle;
                return Ok(Progress::Answered(answer));
            }
            if fill == Fill::Blocked || (fill == Fill::Drained && !self.closing) {
                return Ok(Progress::Wait);
            }
        }
        Ok(Progress::MoreToRead)
    }

    /// The other side will send no more: that may be the end of an answer.
    fn closed(&mut self) -> Result<Progress, Broken> {
        match self.phase {
            Phase::Body { body, answer } if body.ends_with_connection() => {
                self.phase = Phase::Idle;
                Ok(Progress::Answered(answer))
            }
            _ => Err(Broken::cut("closed by the other side before its answer was complete")),
        }
    }

    fn parse(
        &mut self,
        shared: &Shared,
        name: &mut impl FnMut(&[u8]) -> usize,
    ) -> Result<Option<Answer>, Broken> {
        loop {
            match &mut self.phase {
                Phase::Head => {
                    let bytes = self.inbox.bytes();
                    let head = parse_response(bytes, shared.to_head, &shared.by_header)?;
                    let Some(head) = head else { return Ok(None) };
                    let len = head.len;
                    // 1xx only announces the answer (RFC 9110 §15.2).
                    if head.status >= 200 {
                        let answer = Answer {
                            status: head.status,
                            keep_alive: head.keep_alive,
                            backend: head.label.map(&mut *name),
                        };
                        self.phase = Phase::Body { body: Body::new(head.framing), answer };
                    }
                    self.inbox.consume(len);
                }
                Phase::Body { body, answer } => {
                    let taken = body.feed(self.inbox.bytes(), |_| {})?;
                    self.inbox.consume(taken);
                    let complete = body.is_done().then_some(*answer);
                    if complete.is_some() && !self.inbox.bytes().is_empty() {
                        return Err(ProtocolError("bytes after the end of an answer").into());
                    }
                    return Ok(complete);
                }
                Phase::Idle if self.inbox.bytes().is_empty() => return Ok(None),
                Phase::Idle | Phase::Connecting => {
                    return Err(ProtocolError("an answer that nobody asked for").into());
                }
            }
        }
    }
}
