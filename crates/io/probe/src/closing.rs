//! How connections end: in order. A server that answers after we hung up would find a reset, and may log it as an
//! error of its own; so would one whose answer lies here unread.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// The server's end is waited for so long, for one that is slow answers late; …
const LINGER: Duration = Duration::from_secs(30);
/// … if it has not answered at all, so long, for a process that was stopped answers when it goes on, …
const LINGER_OWED: Duration = Duration::from_secs(600);
/// … as long as its kernel is there, which confirms our end within this time, milliseconds; …
const UNCONFIRMED_MS: u32 = 10_000;
/// … and so much of what it still says is read.
const MOST_READ: usize = 1 << 20;
/// So many connections to one backend wait at once that owe no answer. A backend that owes so many is asked nothing more.
const MOST_WAITING: usize = 4;

/// Closes connections to one backend. None that owes an answer is given up for being one too many: a server that hangs
/// and goes on would find resets for all that it answers then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closer {
    owing: Arc<AtomicUsize>,
    others: Arc<AtomicUsize>,
}

/// A connection that waits for the server's end.
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn among(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Waiting(all.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Closer {
    /// Whether the backend owes so many answers that another request would only be one more.
    pub fn is_overdue(&self) -> bool {
        self.owing.load(Ordering::Relaxed) >= MOST_WAITING
    }

    /// Says that nothing more is sent, and reads what still comes until the server's end; does not wait for it.
    fn close(&self, mut stream: TcpStream, owes: bool) {
        let (all, linger) = match owes {
            true => (&self.owing, LINGER_OWED),
            false => (&self.others, LINGER),
        };
        if !owes && all.load(Ordering::Relaxed) >= MOST_WAITING {
            return;
        }
        // Without a runtime, at the very end, no task is left to wait.
        let Ok(runtime) = Handle::try_current() else { return };
        let waiting = Waiting::among(all);
        // Where it cannot be set, the kernel gives up by its own count of tries.
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, UNCONFIRMED_MS);
        runtime.spawn(async move {
            let _ = timeout(linger, end(&mut stream)).await;
            drop((stream, waiting));
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
    /// Something was sent, and nothing came since.
    owes: bool,
    closer: Closer,
}

impl Orderly {
    pub fn new(stream: TcpStream, closer: &Closer) -> Self {
        Orderly { stream: Some(stream), owes: false, closer: closer.clone() }
    }

    fn get(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for Orderly {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.closer.close(stream, self.owes);
        }
    }
}

impl AsyncRead for Orderly {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = self.get()?.poll_read(cx, buf);
        if buf.filled().len() > before {
            self.owes = false;
        }
        read
    }
}

impl AsyncWrite for Orderly {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.owes = true;
        self.get()?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get()?.poll_shutdown(cx)
    }
}
