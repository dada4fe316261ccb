//! Balancers that take an address and no descriptor: a free one, and when they listen.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::{LaneError, Member};

/// It binds within a moment; a machine that is busy takes longer.
const START_WITHIN: Duration = Duration::from_secs(20);

/// An address of the loopback whose port was free a moment ago.
///
/// # Errors
/// When the system has none.
pub fn free_address() -> Result<SocketAddr, LaneError> {
    Ok(free_addresses(1)?[0])
}

/// So many of them, all different: a port that is asked for alone may be given again.
///
/// # Errors
/// When the system has not as many.
pub fn free_addresses(count: usize) -> Result<Vec<SocketAddr>, LaneError> {
    let listeners: Result<Vec<TcpListener>, _> =
        (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect();
    let addresses = listeners.and_then(|all| all.iter().map(TcpListener::local_addr).collect());
    addresses.map_err(LaneError::system("find free ports"))
}

/// Returns when this process accepts connections there.
///
/// # Errors
/// When it ends, or does not listen in time.
pub fn wait_until_it_listens(member: &mut Member, address: SocketAddr) -> Result<(), LaneError> {
    member.wait_until(START_WITHIN, || TcpStream::connect(address).map(drop))
}
