//! Listening sockets that can be closed without losing their port.

use std::io;
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, Type};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

pub(super) struct Listener {
    /// While it listens.
    open: Option<TcpListener>,
    /// Bound and never listening: it keeps the port ours while connections are refused.
    _holder: Socket,
    pub(super) address: SocketAddr,
    token: Token,
}

impl Listener {
    /// Takes the port without listening yet.
    pub(super) fn bind(address: SocketAddr, token: Token) -> io::Result<Self> {
        let holder = bound(address)?;
        let address = holder.local_addr()?.as_socket().unwrap_or(address);
        Ok(Listener { open: None, _holder: holder, address, token })
    }

    /// Begins to listen; nothing happens when it does already.
    pub(super) fn open(&mut self, registry: &Registry) -> io::Result<()> {
        if self.open.is_none() {
            let socket = bound(self.address)?;
            socket.listen(BACKLOG)?;
            let mut listener = TcpListener::from_std(socket.into());
            registry.register(&mut listener, self.token, Interest::READABLE)?;
            self.open = Some(listener);
        }
        Ok(())
    }

    /// Refuses connections from now on, those not accepted yet included.
    pub(super) fn shut(&mut self) {
        self.open = None;
    }

    /// The next connection, if one waits.
    pub(super) fn accept(&self) -> io::Result<TcpStream> {
        match &self.open {
            Some(listener) => listener.accept().map(|(stream, _)| stream),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

fn bound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream as Client;

    #[test]
    fn a_shut_port_refuses_and_stays_ours() {
        let poll = mio::Poll::new().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut listener = Listener::bind(any, Token(0)).unwrap();
        let address = listener.address;
        let refused = || Client::connect(address).unwrap_err().kind();
        assert_eq!(refused(), io::ErrorKind::ConnectionRefused);
        for _ in 0..2 {
            listener.open(poll.registry()).unwrap();
            Client::connect(address).unwrap();
            let taken = Listener::bind(address, Token(1)).map(|_| ()).unwrap_err();
            assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
            listener.shut();
            assert_eq!(refused(), io::ErrorKind::ConnectionRefused);
        }
    }
}
