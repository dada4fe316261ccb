//! Where servers listen: addresses of the loopback that no other run on this machine takes at the same time.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::OnceLock;

use crate::RealError;

/// Where all of them listen, each on an address of its own.
const PORT: u16 = 8000;
/// Second bytes of the addresses, far from 127.0 where everything else listens.
const RUNS: std::ops::Range<u8> = 64..192;

/// Address of server `server` (from 1) of lane `lane`: `127.RUN.LANE.SERVER:8000`, where a process keeps its RUN until
/// it ends.
///
/// # Errors
/// When all are taken: by a program that listens on port 8000 of every address, or by 128 other runs.
pub(crate) fn address(lane: u8, server: u8) -> Result<SocketAddr, RealError> {
    // The listener that it holds tells other processes that these addresses are taken.
    static RUN: OnceLock<Option<(u8, TcpListener)>> = OnceLock::new();
    let listener = |run| TcpListener::bind((Ipv4Addr::new(127, run, 0, 0), PORT));
    let claim = || RUNS.into_iter().find_map(|run| Some((run, listener(run).ok()?)));
    let (run, _) = RUN.get_or_init(claim).as_ref().ok_or(RealError::NoAddress)?;
    Ok((Ipv4Addr::new(127, *run, lane, server), PORT).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second run finds the first one's claim, and its servers do not.
    #[test]
    fn a_run_keeps_its_addresses_to_itself() {
        let SocketAddr::V4(first) = address(1, 2).unwrap() else { panic!("IPv4") };
        let [_, run, lane, server] = first.ip().octets();
        assert_eq!((RUNS.contains(&run), lane, server), (true, 1, 2));
        assert_eq!(address(1, 2).unwrap(), first.into());
        assert!(TcpListener::bind((Ipv4Addr::new(127, run, 0, 0), PORT)).is_err());
        assert!(TcpListener::bind(first).is_ok());
    }
}
