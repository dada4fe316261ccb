//! One connection: requests in, answers out, one at a time.

use std::io::Write;

use mio::net::TcpStream;
use plimsoll_testbed::http::{Body, Fill, Inbox, parse_request};

use super::request::Wanted;

enum Phase {
    Head,
    Body(Body, Wanted),
    /// The answer is being worked for, or will never come.
    Waiting,
}

/// The connection is over: drop it.
pub(super) struct Gone;

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    inbox: Inbox,
    phase: Phase,
    keep_alive: bool,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Connection { stream, inbox: Inbox::default(), phase: Phase::Head, keep_alive: true }
    }

    /// Reads all that has come.
    pub(super) fn read(&mut self) -> Result<(), Gone> {
        loop {
            match self.inbox.fill(&mut self.stream) {
                Ok(Fill::Blocked) => return Ok(()),
                Ok(Fill::More | Fill::Drained) => {}
                Ok(Fill::Closed | Fill::Full) | Err(_) => return Err(Gone),
            }
        }
    }

    /// The next request, when it has come whole and the last one is answered.
    pub(super) fn next(&mut self) -> Result<Option<Wanted>, Gone> {
        loop {
            match &mut self.phase {
                Phase::Head => {
                    let head = parse_request(self.inbox.bytes()).map_err(|_| Gone)?;
                    let Some(head) = head else { return Ok(None) };
                    self.keep_alive = head.keep_alive;
                    self.phase = Phase::Body(Body::new(head.framing), Wanted::of(head.target));
                    let len = head.len;
                    self.inbox.consume(len);
                }
                Phase::Body(body, wanted) => {
                    let taken = body.feed(self.inbox.bytes(), |_| {}).map_err(|_| Gone)?;
                    let complete = body.is_done().then_some(*wanted);
                    self.inbox.consume(taken);
                    if complete.is_some() {
                        self.phase = Phase::Waiting;
                    }
                    return Ok(complete);
                }
                Phase::Waiting => return Ok(None),
            }
        }
    }

    /// Answers the request under way.
    pub(super) fn answer(&mut self, status: u16) -> Result<(), Gone> {
        let reason = match status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            500 => "Internal Server Error",
            _ => "Service Unavailable",
        };
        let close = if self.keep_alive { "" } else { "Connection: close\r\n" };
        let answer = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain\r\n{close}Content-Length: {}\r\n\r\n{reason}\n",
            reason.len() + 1
        );
        self.phase = Phase::Head;
        // A client that leaves no room for so few bytes does not read.
        self.stream.write_all(answer.as_bytes()).map_err(|_| Gone)?;
        if self.keep_alive { Ok(()) } else { Err(Gone) }
    }
}
