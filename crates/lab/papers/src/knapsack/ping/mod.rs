//! What pings a backend's host: the two ways of Figure 5, and a server that burns CPU.

pub mod busy;
pub mod echo;

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A loopback that takes longer is not there.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long it takes until a connection stands: SYN and SYN-ACK, which the kernel answers by itself.
pub fn connect(address: SocketAddr) -> Option<Duration> {
    let begin = Instant::now();
    let stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    let took = begin.elapsed();
    drop(stream);
    Some(took)
}
