//! A TCP connection as hyper, and what forwards without hyper, use it.
//!
//! It writes with `send` where it can: a head and a small body, which come as two pieces, are put together, which costs
//! less than `writev`. And one on which a request was sent without hyper can be given to hyper with that request: what
//! hyper writes of it then is dropped, and what was read already is read again. And interim responses, which hyper does not
//! send, are written before what it writes next.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What is put together, bytes.
const SMALL: usize = 1_024;
/// How much a client may send ahead before no more is read for it, bytes: as much as is read at once.
const MOST_AHEAD: usize = 32 << 10;

pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    /// Read already, and to be read again.
    unread: BytesMut,
    sent: Sent,
    /// Written before anything else.
    first: BytesMut,
    /// The last write had to wait: its writer has bytes of it left.
    is_blocked: bool,
}

/// Whether what hyper writes was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Nothing,
    /// It was, and hyper has not written it yet: until it has, it takes no response for one.
    Expected,
    /// It was, and hyper writes it.
    Begun,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        let (unread, first) = (BytesMut::new(), BytesMut::new());
        Wire { stream, unread, sent: Sent::Nothing, first, is_blocked: false }
    }

    /// The bytes come first when it is read; there are none that would.
    pub(crate) fn unread(&mut self, bytes: Bytes) {
        self.unread = bytes.into();
    }

    /// The bytes come first when it is read, before those that would.
    pub(crate) fn precede(&mut self, bytes: &[u8]) {
        let after = std::mem::replace(&mut self.unread, bytes.into());
        self.unread.extend_from_slice(&after);
    }

    /// Whether the peer has closed the connection, or its sending half; this task is woken when it does. What it sends
    /// before that is read, for nothing else shows that it is followed by the end, and read again later. Not noticed
    /// behind more than [`MOST_AHEAD`].
    pub(crate) fn poll_left(&mut self, cx: &mut Context<'_>) -> bool {
        while self.unread.len() < MOST_AHEAD {
            let mut ahead = [MaybeUninit::uninit(); 4_096];
            let mut buffer = ReadBuf::uninit(&mut ahead);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.unread.extend_from_slice(buffer.filled());
                }
                Poll::Ready(_) => return true,
                Poll::Pending => return false,
            }
        }
        false
    }

    /// What has been read and is to be read again.
    pub(crate) fn unread_bytes(&self) -> &[u8] {
        &self.unread
    }

    /// Whether bytes have been read that are to be read again.
    pub(crate) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Whether bytes of a message wait for the peer: what is written next must be the rest of it.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// These bytes, whole messages, go out before what is written next. To be called where all messages before are out.
    pub(crate) fn write_first(&mut self, bytes: &[u8]) {
        self.first.extend_from_slice(bytes);
    }

    /// Whether such bytes are left.
    pub(crate) fn has_first(&self) -> bool {
        !self.first.is_empty()
    }

    /// Writes them.
    pub(crate) fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.has_first() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.first))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.first.advance(written),
            }
        }
        self.first = BytesMut::new();
        Poll::Ready(Ok(()))
    }

    /// The request that hyper will write was sent already.
    pub(crate) fn expect_sent(&mut self) {
        self.sent = Sent::Expected;
    }

    /// It has been answered: what is written from now on is sent.
    pub(crate) fn send_again(&mut self) {
        self.sent = Sent::Nothing;
    }

    /// Whether this write is of what was sent before.
    fn drops(&mut self, cx: &Context<'_>) -> bool {
        if self.sent == Sent::Expected {
            // The reader has been made to wait.
            self.sent = Sent::Begun;
            cx.waker().wake_by_ref();
        }
        self.sent != Sent::Nothing
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.sent == Sent::Expected {
            return Poll::Pending;
        }
        if self.unread.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let length = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread[..length]);
        self.unread.advance(length);
        if self.unread.is_empty() {
            // An idle connection keeps no buffer.
            self.unread = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.drops(cx) {
            return Poll::Ready(Ok(bytes.len()));
        }
        if self.has_first() && self.poll_first(cx)?.is_pending() {
            self.is_blocked = true;
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.is_blocked = written.is_pending();
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if self.drops(cx) {
            return Poll::Ready(Ok(length));
        }
        if self.has_first() && self.poll_first(cx)?.is_pending() {
            self.is_blocked = true;
            return Poll::Pending;
        }
        let stream = Pin::new(&mut self.stream);
        let written = if let [piece] = pieces {
            stream.poll_write(cx, piece)
        } else if length > SMALL {
            stream.poll_write_vectored(cx, pieces)
        } else {
            let mut together = [0; SMALL];
            let mut end = 0;
            for piece in pieces {
                together[end..end + piece.len()].copy_from_slice(piece);
                end += piece.len();
            }
            stream.poll_write(cx, &together[..end])
        };
        self.is_blocked = written.is_pending();
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
