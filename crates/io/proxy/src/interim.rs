//! Interim responses (1xx but 100 and 101) of a backend on their way to the client: 103 Early Hints, 102 Processing.
//!
//! hyper's client hands them over, its server cannot send them. So they wait here, as bytes, until the connection's task
//! finds that hyper has nothing under way to the client, and then go out below hyper ([`crate::wire`]); the response itself
//! is not given to hyper before they have. Only what belongs to the request that is under way ever waits: hyper serves the
//! requests of a connection one after the other.

use std::future::poll_fn;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use hyper::header::{self, HeaderMap};
use hyper::{StatusCode, Version};

use crate::headers;

/// Those of one client's connection. Used by one task: hyper wants a callback that could be sent to others, so it cannot be
/// a cell.
#[derive(Debug, Default)]
pub(crate) struct Interim {
    is_waiting: AtomicBool,
    are_too_much: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Heads, one after the other.
    waiting: Vec<u8>,
    /// How long those of this request were so far, and may be.
    length: usize,
    most: usize,
    /// Whether the client knows of such responses.
    pass: bool,
}

impl Interim {
    /// A client's request of this version: the heads of its interim responses may be so long together.
    pub(crate) fn begin(&self, version: Version, most: usize) {
        // A client of HTTP/1.0 gets none (RFC 9110, section 15.2).
        let pass = version > Version::HTTP_10;
        *self.state() = State { waiting: Vec::new(), length: 0, most, pass };
        self.is_waiting.store(false, Ordering::Relaxed);
        self.are_too_much.store(false, Ordering::Relaxed);
    }

    /// A backend has sent one.
    pub(crate) fn came(&self, status: StatusCode, headers: &HeaderMap) {
        let mut state = self.state();
        let line =
            format!("HTTP/1.1 {} {}", status.as_str(), status.canonical_reason().unwrap_or(""));
        let lengths = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
        state.length += line.len() + 4 + lengths.sum::<usize>();
        if state.length > state.most {
            self.are_too_much.store(true, Ordering::Relaxed);
        } else if state.pass && status != StatusCode::CONTINUE {
            write_head(&line, headers.clone(), &mut state.waiting);
            self.is_waiting.store(true, Ordering::Relaxed);
        }
    }

    /// Whether they are longer together than a head may be.
    pub(crate) fn are_too_much(&self) -> bool {
        self.are_too_much.load(Ordering::Relaxed)
    }

    /// Whether any wait.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// What waits, to be sent.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.is_waiting.store(false, Ordering::Relaxed);
        std::mem::take(&mut self.state().waiting)
    }

    /// Waits until none do. Whoever takes them polls again.
    pub(crate) async fn taken(&self) {
        poll_fn(|_| match self.is_waiting() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write_head(line: &str, mut headers: HeaderMap, out: &mut Vec<u8>) {
    headers::remove_ours(&mut headers);
    headers::remove_hop_by_hop(&mut headers);
    // It has no body, whatever it says (RFC 9110, section 8.6).
    headers.remove(header::CONTENT_LENGTH);
    // To a vector: it cannot fail.
    let _ = write!(out, "{line}\r\n");
    for (name, value) in &headers {
        for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            out.extend_from_slice(piece);
        }
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn hints() -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("link", "</a.css>; rel=preload"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("plimsoll-chip", "1"),
            ("content-length", "4"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers
    }

    fn taken(interim: &Interim) -> String {
        String::from_utf8(interim.take()).unwrap()
    }

    #[test]
    fn one_goes_on_without_what_ends_here() {
        let interim = Interim::default();
        interim.begin(Version::HTTP_11, 32 << 10);
        interim.came(StatusCode::CONTINUE, &HeaderMap::new());
        assert!(!interim.is_waiting(), "hyper says that by itself");
        interim.came(StatusCode::EARLY_HINTS, &hints());
        interim.came(StatusCode::PROCESSING, &HeaderMap::new());
        assert!(interim.is_waiting());
        let expected = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n\
            HTTP/1.1 102 Processing\r\n\r\n";
        assert_eq!(taken(&interim), expected);
        assert!(!interim.is_waiting() && taken(&interim).is_empty());
    }

    #[test]
    fn all_of_one_request_together_are_bounded_whether_they_pass_or_not() {
        let interim = Interim::default();
        for version in [Version::HTTP_10, Version::HTTP_11] {
            interim.begin(version, 300);
            let mut came = 0;
            while !interim.are_too_much() {
                interim.came(StatusCode::EARLY_HINTS, &HeaderMap::new());
                came += 1;
            }
            assert_eq!(came, 11, "28 bytes each");
            assert_eq!(taken(&interim).len(), if version == Version::HTTP_10 { 0 } else { 280 });
        }
        interim.begin(Version::HTTP_11, 300);
        assert!(!interim.are_too_much());
    }
}
