//! How connections end: in order. A server that answers after we hung up would find a reset, and may log it as an
//! error of its own; so would one whose answer lies here unread.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The server's end is waited for so long, for one that is slow answers late, …
const LINGER: Duration = Duration::from_secs(30);
/// … so much of what it still says is read, …
const MOST_READ: usize = 1 << 20;
/// … and so many connections to one backend wait at once: one that hangs need not be waited for.
const MOST_WAITING: usize = 4;

/// Closes connections to one backend.
#[derive(Clone, Debug)]
pub(crate) struct Closer(Arc<Semaphore>);

impl Closer {
    pub fn new() -> Self {
        Closer(Arc::new(Semaphore::new(MOST_WAITING)))
    }

    /// Says that nothing more is sent, and reads what still comes until the server's end; does not wait for it.
    fn close(&self, mut stream: TcpStream) {
        let Ok(place) = self.0.clone().try_acquire_owned() else { return };
        // Without a runtime, at the very end, nobody is left to wait.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let _ = timeout(LINGER, end(&mut stream)).await;
            drop((stream, place));
        });
    }
}

async fn end(stream: &mut TcpStream) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let (mut said, mut read) = ([0; 1024], 0);
    while let Ok(more @ 1..) = stream.read(&mut said).await {
        read += more;
        if read > MOST_READ {
            return;
        }
    }
}

/// A stream that is closed in order when it is dropped, by a time-out too.
#[derive(Debug)]
pub(crate) struct Orderly {
    /// None only while it is dropped.
    stream: Option<TcpStream>,
    closer: Closer,
}

impl Orderly {
    pub fn new(stream: TcpStream, closer: &Closer) -> Self {
        Orderly { stream: Some(stream), closer: closer.clone() }
    }

    fn get(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for Orderly {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.closer.close(stream);
        }
    }
}

impl AsyncRead for Orderly {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for Orderly {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get()?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get()?.poll_shutdown(cx)
    }
}
