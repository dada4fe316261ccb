//! Tells when links, neighbours, routes or rules change, as the kernel says it (rtnetlink's groups).

use std::io::{self, ErrorKind};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;
use rustix::net::RecvFlags;

/// `enum rtnetlink_groups`: links, neighbours; addresses, routes, rules and settings of both families; next
/// hops.
const GROUPS: [u32; 11] = [1, 3, 5, 7, 8, 9, 11, 19, 24, 25, 32];

/// Hears of changes in the network namespace it was made in. What has changed is not reported: all is read anew.
#[derive(Debug)]
pub struct Watch(Socket);

impl Watch {
    /// From now on.
    ///
    /// # Errors
    /// When the kernel gives no socket.
    pub fn new() -> io::Result<Watch> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        Ok(Watch(socket))
    }

    /// Waits until something has changed since this was last asked.
    ///
    /// # Errors
    /// When the kernel tells no more.
    pub fn wait(&self) -> io::Result<()> {
        self.hear(RecvFlags::empty())?;
        self.has_changed().map(|_| ())
    }

    /// Whether something has changed since this was last asked.
    ///
    /// # Errors
    /// When the kernel tells no more.
    pub fn has_changed(&self) -> io::Result<bool> {
        let mut changed = false;
        loop {
            match self.hear(RecvFlags::DONTWAIT) {
                Ok(()) => changed = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(changed),
                Err(error) => return Err(error),
            }
        }
    }

    fn hear(&self, flags: RecvFlags) -> io::Result<()> {
        let mut buffer = [0u8; 4096];
        loop {
            match self.0.recv(&mut &mut buffer[..], flags.bits() as i32) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // There were more than the socket holds.
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }
}
