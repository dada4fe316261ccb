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
    let address = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    address.map_err(LaneError::system("find a free port"))
}

/// Returns when this process accepts connections there.
///
/// # Errors
/// When it ends, or does not listen in time.
pub fn wait_until_it_listens(member: &mut Member, address: SocketAddr) -> Result<(), LaneError> {
    member.wait_until(START_WITHIN, || TcpStream::connect(address).map(drop))
}
