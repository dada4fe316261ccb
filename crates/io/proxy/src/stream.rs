//! A client's stream while hyper has it: hyper reads and writes it, and the connection's task sees beside that whether
//! the client has left, which hyper notices only while it reads.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::linger::Lingering;
use crate::wire::Wire;

/// Locked by one task, one after the other, so never waited for: hyper wants streams that could be sent to other threads,
/// so it cannot be a cell.
#[derive(Clone)]
pub(crate) struct Stream(Arc<Mutex<Lingering<Wire>>>);

impl Stream {
    pub(crate) fn new(stream: Lingering<Wire>) -> Self {
        Stream(Arc::new(Mutex::new(stream)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Lingering<Wire>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Back, where hyper has it no more.
    pub(crate) fn into_inner(self) -> Option<Lingering<Wire>> {
        let stream = Arc::into_inner(self.0)?;
        Some(stream.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.lock()).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.lock()).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.lock().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_shutdown(cx)
    }
}
