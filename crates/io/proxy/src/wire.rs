//! A TCP connection that writes with `send` where it can: a head and a small body, which come as two pieces, are put
//! together, which costs less than `writev`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What is put together, bytes.
const SMALL: usize = 1_024;

pub(crate) struct Wire(pub(crate) TcpStream);

impl Wire {
    fn stream(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.0)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [piece] = pieces {
            return self.stream().poll_write(cx, piece);
        }
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if length > SMALL {
            return self.stream().poll_write_vectored(cx, pieces);
        }
        let mut together = [0; SMALL];
        let mut end = 0;
        for piece in pieces {
            together[end..end + piece.len()].copy_from_slice(piece);
            end += piece.len();
        }
        self.stream().poll_write(cx, &together[..end])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
