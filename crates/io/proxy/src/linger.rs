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
