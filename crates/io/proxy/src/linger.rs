//! Lingering close: a socket that is closed while bytes of the peer are unread resets the connection, and a reset may
//! destroy a response that the peer has not read yet (RFC 9112, section 9.6). A refusal of a long request would be lost
//! so. What still comes is therefore read and dropped for a while, until the peer closes.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::alarm::Alarm;
use crate::interim::Interim;
use crate::wire::Wire;

/// The longest wait for the peer to close.
const LONGEST: Duration = Duration::from_secs(1);
/// The most that is read and dropped, bytes.
const MOST: usize = 4 << 20;

/// Whether the peer takes what it is sent. Written and read by one thread: hyper wants streams that could be sent to
/// others, so it cannot be cells.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    is_blocked: AtomicBool,
    is_shut: AtomicBool,
    count: AtomicU32,
    /// What it is to be sent before its response.
    pub(crate) interim: Interim,
}

impl Writes {
    /// Whether bytes wait for the peer.
    pub(crate) fn are_blocked(&self) -> bool {
        self.is_blocked.load(Ordering::Relaxed)
    }

    /// Whether nothing is written any more: the connection lingers, and what comes is dropped.
    pub(crate) fn are_shut(&self) -> bool {
        self.is_shut.load(Ordering::Relaxed)
    }

    /// While they do: how often it has taken some.
    fn blocked_at(&self) -> Option<u32> {
        self.are_blocked().then(|| self.count.load(Ordering::Relaxed))
    }

    fn note<T>(&self, written: Poll<T>) -> Poll<T> {
        self.is_blocked.store(written.is_pending(), Ordering::Relaxed);
        if written.is_ready() {
            let count = self.count.load(Ordering::Relaxed);
            self.count.store(count.wrapping_add(1), Ordering::Relaxed);
        }
        written
    }
}

/// Since when a peer takes nothing of what waits for it.
#[derive(Debug, Default)]
pub(crate) struct Blocked(Option<(u32, Instant)>);

impl Blocked {
    /// Whether it has taken nothing for so long. To be asked at each poll that ends pending.
    pub(crate) fn is_for(&mut self, longest: Duration, writes: &Writes, alarm: &Alarm) -> bool {
        let Some(count) = writes.blocked_at() else {
            self.0 = None;
            return false;
        };
        let since = match self.0 {
            Some((before, since)) if before == count => since,
            _ => Instant::now(),
        };
        self.0 = Some((count, since));
        alarm.is_past(since + longest)
    }
}

/// A stream that lingers when it is shut down.
pub(crate) struct Lingering<S> {
    stream: S,
    writes: Arc<Writes>,
    dropped: usize,
    /// From the shutdown of the sending half on.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S> Lingering<S> {
    pub(crate) fn new(stream: S, writes: Arc<Writes>) -> Self {
        Lingering { stream, writes, dropped: 0, until: None }
    }

    /// What it is of.
    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    /// What it is of.
    pub(crate) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }
}

impl Lingering<Wire> {
    /// Sends interim responses, unless bytes of an earlier response wait for the peer; says whether there were any. To be
    /// called while no response is under way.
    pub(crate) fn send_interim(&mut self, cx: &mut Context<'_>) -> bool {
        let is_new = self.writes.interim.is_waiting() && !self.stream.is_blocked();
        if is_new {
            self.stream.write_first(&self.writes.interim.take());
        }
        if self.stream.has_first() {
            let _ = self.writes.note(self.stream.poll_first(cx));
        }
        is_new
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.writes.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.writes.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.until.is_none() {
            self.writes.is_shut.store(true, Ordering::Relaxed);
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.until = Some(Box::pin(sleep(LONGEST)));
        }
        let mut scratch = [0; 16 * 1024];
        while self.dropped < MOST {
            if self.until.as_mut().is_some_and(|until| until.as_mut().poll(cx).is_ready()) {
                break;
            }
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.dropped += buffer.filled().len();
                }
                Poll::Ready(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderMap;
    use hyper::{StatusCode, Version};
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn interim_responses_are_sent_after_an_earlier_response_and_before_their_own() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connected, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let mut client = accepted.unwrap().0;
        let writes = Arc::new(Writes::default());
        let mut stream = Lingering::new(Wire::new(connected.unwrap()), writes.clone());
        let mut cx = Context::from_waker(std::task::Waker::noop());

        // An earlier response, of which some waits.
        let (earlier, mut sent) = (vec![b'e'; 64 << 20], 0);
        while let Poll::Ready(written) = Pin::new(&mut stream).poll_write(&mut cx, &earlier) {
            sent += written.unwrap();
        }
        writes.interim.begin(Version::HTTP_11, 32 << 10);
        writes.interim.came(StatusCode::EARLY_HINTS, &HeaderMap::new());
        assert!(!stream.send_interim(&mut cx) && writes.interim.is_waiting());

        let mut read = vec![0; sent];
        client.read_exact(&mut read).await.unwrap();
        stream.stream().stream.writable().await.unwrap();
        let rest = Pin::new(&mut stream).poll_write(&mut cx, b"the rest;");
        assert!(matches!(rest, Poll::Ready(Ok(9))));
        assert!(stream.send_interim(&mut cx) && !writes.interim.is_waiting());
        assert!(!stream.send_interim(&mut cx), "once");
        let response = Pin::new(&mut stream).poll_write(&mut cx, b"HTTP/1.1 200 OK");
        assert!(matches!(response, Poll::Ready(Ok(15))));
        let expected = "the rest;HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK";
        let mut read = vec![0; expected.len()];
        client.read_exact(&mut read).await.unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), expected);
    }

    #[tokio::test]
    async fn a_response_waits_for_interim_ones_that_the_client_does_not_take() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connected, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut client, mut wire) = (accepted.unwrap().0, Wire::new(connected.unwrap()));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        // More than sockets hold.
        let first = vec![b'f'; 64 << 20];
        wire.write_first(&first);
        assert!(Pin::new(&mut wire).poll_write(&mut cx, b"response").is_pending());
        assert!(wire.has_first() && wire.is_blocked());
        let write = async {
            tokio::io::AsyncWriteExt::write_all(&mut wire, b"response").await.unwrap();
        };
        let mut read = vec![0; first.len() + 8];
        let (_, all) = tokio::join!(write, client.read_exact(&mut read));
        assert_eq!(all.unwrap(), first.len() + 8);
        assert!(read.starts_with(&first) && read.ends_with(b"response"));
    }
}
