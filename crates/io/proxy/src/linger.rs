//! Lingering close: a socket that is closed while bytes of the peer are unread resets the connection, and a reset may
//! destroy a response that the peer has not read yet (RFC 9112, section 9.6). A refusal of a long request would be lost
//! so. What still comes is therefore read and dropped for a while, until the peer closes.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The longest wait for the peer to close.
const LONGEST: Duration = Duration::from_secs(1);
/// The most that is read and dropped, bytes.
const MOST: usize = 4 << 20;

/// A stream that lingers when it is shut down.
pub(crate) struct Lingering<S> {
    stream: S,
    dropped: usize,
    /// From the shutdown of the sending half on.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S> Lingering<S> {
    pub(crate) fn new(stream: S) -> Self {
        Lingering { stream, dropped: 0, until: None }
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
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.until.is_none() {
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
