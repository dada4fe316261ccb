//! The answers of a backend, written once and sent many times.

use std::fmt::Write;

use super::spec::BackendSpec;

/// One response in its two forms.
#[derive(Debug)]
pub(super) struct Reply {
    keep: Vec<u8>,
    close: Vec<u8>,
    body_len: usize,
}

impl Reply {
    /// `headers` are complete lines.
    pub(super) fn new(status: u16, headers: &str, content_type: &str, body: &str) -> Self {
        let mut head = format!("HTTP/1.1 {status} {}\r\n{headers}", reason(status));
        // Writing to a String cannot fail.
        let _ = write!(head, "Content-Type: {content_type}\r\nContent-Length: {}\r\n", body.len());
        let keep = format!("{head}\r\n{body}").into_bytes();
        let close = format!("{head}Connection: close\r\n\r\n{body}").into_bytes();
        Reply { keep, close, body_len: body.len() }
    }

    /// The bytes to send; a `HEAD` request gets no body.
    pub(super) fn bytes(&self, keep_alive: bool, head_only: bool) -> &[u8] {
        let all = if keep_alive { &self.keep } else { &self.close };
        if head_only { &all[..all.len() - self.body_len] } else { all }
    }
}

/// Which answer a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyKind {
    Ok,
    /// 500, by the error rate.
    Error,
    /// 503, by the queue limit.
    Rejected,
    /// By [`super::Mode::Status`].
    Forced,
}

/// The answers of one backend as it is configured now.
#[derive(Debug)]
pub(super) struct Replies {
    ok: Reply,
    error: Reply,
    rejected: Reply,
    forced: Reply,
    /// The start of an answer that never goes on.
    pub(super) unfinished: Vec<u8>,
    /// The head of the endless answer.
    pub(super) huge_head: Vec<u8>,
}

impl Replies {
    pub(super) fn new(spec: &BackendSpec, forced_status: u16) -> Self {
        let BackendSpec { name, cores, speed, .. } = spec;
        let labels =
            format!("x-backend: {name}\r\nx-plimsoll-emulated: cores={cores} speed={speed}\r\n");
        let ok = spec.answer_bytes.map_or_else(|| "ok\n".to_owned(), |bytes| text(bytes as usize));
        let reply = |status, body: &str| Reply::new(status, &labels, "text/plain", body);
        Replies {
            ok: reply(200, &ok),
            error: reply(500, "error\n"),
            rejected: reply(503, "queue full\n"),
            forced: reply(forced_status, "forced\n"),
            unfinished: format!("HTTP/1.1 200 OK\r\n{labels}x-unfin").into_bytes(),
            huge_head: format!("HTTP/1.1 200 OK\r\n{labels}Transfer-Encoding: chunked\r\n\r\n")
                .into_bytes(),
        }
    }

    pub(super) fn get(&self, kind: ReplyKind) -> &Reply {
        match kind {
            ReplyKind::Ok => &self.ok,
            ReplyKind::Error => &self.error,
            ReplyKind::Rejected => &self.rejected,
            ReplyKind::Forced => &self.forced,
        }
    }
}

/// So many bytes of words in an order without a pattern, of which gzip leaves a third to a quarter.
fn text(bytes: usize) -> String {
    let words = "a pool of servers behind one balancer has as much room as its clients leave it and what \
                 they find there is never quite the same from one request to the next for some pages \
                 take longer than others while each server works on several at once until it is full";
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut text = String::with_capacity(bytes + 16);
    // Marsaglia, "Xorshift RNGs" (2003): any start but 0.
    let mut state = 1_u32;
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        text.push_str(words[state as usize % words.len()]);
        text.push(' ');
    }
    text.truncate(bytes);
    text
}

/// The usual words; a client does not depend on them (RFC 9112 §4).
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Status",
    }
}
