//! Balancers that take an address and no descriptor: a free one, and when they listen.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::{LaneError, Member};

/// It binds within a moment; a machine that is busy takes longer.
const START_WITHIN: Duration = Duration::from_secs(20);

/// Where ports of ours are sought: below those that the kernel gives to outgoing connections, of which one would take
/// a port before the balancer is up.
const PORTS: Range<u16> = 20_000..32_000;

/// An address of the loopback whose port was free a moment ago and that no other call of this process was given.
///
/// # Errors
/// When the system has none.
pub fn free_address() -> Result<SocketAddr, LaneError> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let count = u32::from(PORTS.end - PORTS.start);
    // Laboratories that run beside each other begin elsewhere.
    let first = std::process::id().wrapping_mul(61) % count;
    let mut refused = ErrorKind::AddrInUse.into();
    for _ in 0..count {
        let step = GIVEN.fetch_add(1, Ordering::Relaxed) % count;
        let port = PORTS.start + u16::try_from((first + step) % count).expect("below 12,000");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        match TcpListener::bind(address) {
            Ok(_) => return Ok(address),
            Err(error) => refused = error,
        }
    }
    Err(LaneError::system("find a free port")(refused))
}

/// So many of them, all different.
///
/// # Errors
/// When the system has not as many.
pub fn free_addresses(count: usize) -> Result<Vec<SocketAddr>, LaneError> {
    (0..count).map(|_| free_address()).collect()
}

/// Returns when this process accepts connections there.
///
/// # Errors
/// When it ends, or does not listen in time.
pub fn wait_until_it_listens(member: &mut Member, address: SocketAddr) -> Result<(), LaneError> {
    member.wait_until(START_WITHIN, || TcpStream::connect(address).map(drop))
}
