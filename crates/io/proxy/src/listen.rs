//! The listeners of an entry: one for each thread that serves it, all on the same address.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use thiserror::Error;

/// Connections that the kernel holds for a listener until they are accepted; it cuts this to `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;

/// An address that cannot be listened on.
#[derive(Debug, Error)]
#[error("{entry}: cannot listen on {address}: {error}")]
pub struct ListenError {
    /// The entry's name.
    pub entry: String,
    /// The address.
    pub address: SocketAddr,
    /// What the system says.
    pub error: io::Error,
}

/// An entry's listeners, each until its thread takes it.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// Where they really listen.
    pub(crate) address: SocketAddr,
    waiting: Vec<Mutex<Option<TcpListener>>>,
}

impl Listeners {
    /// So many.
    ///
    /// # Errors
    /// When the system refuses one.
    pub(crate) fn bind(
        entry: &str,
        address: SocketAddr,
        count: usize,
    ) -> Result<Arc<Self>, ListenError> {
        let mut at = address;
        let bound = (0..count).map(|_| {
            let listener = bind(at)?;
            // All on the port that the first was given, where any would do.
            at = listener.local_addr()?;
            Ok(Mutex::new(Some(listener)))
        });
        let waiting = bound.collect::<io::Result<_>>().map_err(|error| ListenError {
            entry: entry.to_owned(),
            address,
            error,
        })?;
        Ok(Arc::new(Listeners { address: at, waiting }))
    }

    /// One of them, once.
    pub(crate) fn take(&self, index: usize) -> Option<TcpListener> {
        self.waiting[index].lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A listener that shares its port with those of other threads: the kernel gives each a part of the connections.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}
