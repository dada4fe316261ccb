//! One accepted connection: requests in, answers out, in order.

use std::io::{self, Write};
use std::time::Duration;

use mio::net::TcpStream;
use socket2::SockRef;

use crate::http::{Body, Fill, Inbox, ProtocolError, parse_request};

/// Bytes of one write of the endless answer.
const HUGE_CHUNK: usize = 64 * 1024;

/// Writes of the endless answer before others have their turn.
const HUGE_TURN: usize = 4;

/// Bytes of the endless answer: four gigabytes.
const HUGE_BYTES: u64 = 4 << 30;

/// The longest body kept for the admin API.
const MOST_BODY: usize = 64 * 1024;

/// What listens at the other end of the listener that accepted the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Backend(usize),
    Admin,
}

/// A complete request.
#[derive(Debug, Default)]
pub(super) struct Request {
    /// Its work, as a multiple of the usual; none for a light path.
    pub cost: Option<f64>,
    /// For the admin API only: method, path, body.
    pub admin: Option<Box<AdminRequest>>,
}

#[derive(Debug)]
pub(super) struct AdminRequest {
    pub method: String,
    pub path: String,
    pub body: Vec<u8>,
    pub body_too_long: bool,
}

/// What the other side is owed.
#[derive(Debug)]
enum Phase {
    /// A head is expected.
    Head,
    /// A body is expected.
    Body(Body, Request),
    /// The request is with the backend.
    Waiting,
    /// Nothing will ever be answered.
    Swallowed,
    /// This many bytes of the endless answer are left.
    Huge(u64),
}

/// The connection has no use any more: drop it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

impl From<io::Error> for Gone {
    fn from(_: io::Error) -> Self {
        Gone
    }
}

impl From<ProtocolError> for Gone {
    fn from(_: ProtocolError) -> Self {
        Gone
    }
}

pub(super) struct Conn {
    pub(super) stream: TcpStream,
    pub(super) role: Role,
    inbox: Inbox,
    phase: Phase,
    /// Of the request being answered.
    keep_alive: bool,
    head_only: bool,
    /// What the socket did not take yet.
    outbox: Vec<u8>,
    /// The socket may hold bytes; edge-triggered events come once.
    readable: bool,
    /// The client's end has been announced, and will not be again: read up to it.
    closing: bool,
}

impl Conn {
    pub(super) fn new(stream: TcpStream, role: Role) -> Self {
        Conn {
            stream,
            role,
            inbox: Inbox::default(),
            phase: Phase::Head,
            keep_alive: true,
            head_only: false,
            outbox: Vec::new(),
            readable: false,
            closing: false,
        }
    }

    /// To be called on a readable event; `closing` when it says that the client has closed.
    pub(super) fn mark_readable(&mut self, closing: bool) {
        self.readable = true;
        self.closing |= closing;
    }

    /// Nothing will ever be sent here again.
    pub(super) fn is_swallowed(&self) -> bool {
        matches!(self.phase, Phase::Swallowed)
    }

    /// From now on nothing is answered here.
    pub(super) fn swallow(&mut self) {
        self.phase = Phase::Swallowed;
    }

    /// The next request, when it is its turn and all of it is here; `cost` says how much work its path is.
    pub(super) fn next_request(
        &mut self,
        cost: impl Fn(&str) -> Option<f64>,
    ) -> Result<Option<Request>, Gone> {
        loop {
            if !self.outbox.is_empty() {
                return Ok(None);
            }
            let request = match &mut self.phase {
                Phase::Head => self.try_head(&cost)?,
                Phase::Body(body, request) => Self::try_body(&mut self.inbox, body, request)?,
                Phase::Waiting | Phase::Huge(_) => return Ok(None),
                Phase::Swallowed => {
                    self.inbox.consume(self.inbox.bytes().len());
                    None
                }
            };
            if request.is_some() {
                self.phase = Phase::Waiting;
                return Ok(request);
            }
            if !self.readable {
                return Ok(None);
            }
            match self.inbox.fill(&mut self.stream)? {
                Fill::More => {}
                Fill::Drained => self.readable = self.closing,
                Fill::Blocked => {
                    self.readable = false;
                    return Ok(None);
                }
                Fill::Closed | Fill::Full => return Err(Gone),
            }
        }
    }

    fn try_head(&mut self, cost: impl Fn(&str) -> Option<f64>) -> Result<Option<Request>, Gone> {
        if self.inbox.bytes().is_empty() {
            return Ok(None);
        }
        let Some(head) = parse_request(self.inbox.bytes())? else { return Ok(None) };
        let mut request = Request::default();
        let path = head.target.split('?').next().unwrap_or_default();
        if self.role == Role::Admin {
            request.admin = Some(Box::new(AdminRequest {
                method: head.method.into(),
                path: path.into(),
                body: Vec::new(),
                body_too_long: false,
            }));
        } else {
            request.cost = cost(path);
        }
        self.keep_alive = head.keep_alive;
        self.head_only = head.method == "HEAD";
        let (len, mut body) = (head.len, Body::new(head.framing));
        self.inbox.consume(len);
        let whole = Self::try_body(&mut self.inbox, &mut body, &mut request)?;
        if whole.is_none() {
            self.phase = Phase::Body(body, request);
        }
        Ok(whole)
    }

    fn try_body(
        inbox: &mut Inbox,
        body: &mut Body,
        request: &mut Request,
    ) -> Result<Option<Request>, Gone> {
        let n = body.feed(inbox.bytes(), |piece| {
            if let Some(admin) = &mut request.admin {
                admin.body_too_long |= admin.body.len() + piece.len() > MOST_BODY;
                if !admin.body_too_long {
                    admin.body.extend_from_slice(piece);
                }
            }
        })?;
        inbox.consume(n);
        Ok(body.is_done().then(|| std::mem::take(request)))
    }

    /// Answers the request that [`Conn::next_request`] gave; `bytes` are chosen by whether the
    /// connection lives on and whether the body is wanted.
    pub(super) fn reply<'a>(
        &mut self,
        bytes: impl FnOnce(bool, bool) -> &'a [u8],
    ) -> Result<(), Gone> {
        let bytes = bytes(self.keep_alive, self.head_only);
        let sent = write_some(&mut self.stream, bytes)?;
        self.outbox.extend_from_slice(&bytes[sent..]);
        self.answered()
    }

    /// Sends the start of an answer and leaves it at that.
    pub(super) fn reply_unfinished(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        self.phase = Phase::Swallowed;
        write_some(&mut self.stream, bytes)?;
        Ok(())
    }

    /// Begins the endless answer; [`Conn::push`] goes on with it.
    pub(super) fn reply_huge(&mut self, head: &[u8]) -> Result<(), Gone> {
        self.phase = Phase::Huge(HUGE_BYTES);
        self.outbox.extend_from_slice(head);
        Ok(())
    }

    fn answered(&mut self) -> Result<(), Gone> {
        if self.outbox.is_empty() {
            if !self.keep_alive {
                return Err(Gone);
            }
            self.phase = Phase::Head;
        }
        Ok(())
    }

    /// Sends what is still to be sent, as far as the socket takes it. True when there is more and the
    /// socket would take it: others should have their turn first.
    pub(super) fn push(&mut self) -> Result<bool, Gone> {
        for _ in 0..HUGE_TURN {
            if !self.outbox.is_empty() {
                let sent = write_some(&mut self.stream, &self.outbox)?;
                self.outbox.drain(..sent);
                if !self.outbox.is_empty() {
                    return Ok(false);
                }
                if matches!(self.phase, Phase::Waiting) {
                    self.answered()?;
                }
            }
            match &mut self.phase {
                Phase::Huge(0) => return Err(Gone),
                Phase::Huge(left) => {
                    *left = left.saturating_sub(HUGE_CHUNK as u64);
                    self.outbox.extend_from_slice(format!("{HUGE_CHUNK:x}\r\n").as_bytes());
                    self.outbox.resize(self.outbox.len() + HUGE_CHUNK, b'x');
                    self.outbox.extend_from_slice(b"\r\n");
                }
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Makes the end of the connection a reset rather than an orderly one.
    pub(super) fn will_reset(&self) {
        // Should the option not take, the connection still ends, if more politely.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

/// Writes until all is written or the socket is full; returns how much was.
fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => sent += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(sent)
}
