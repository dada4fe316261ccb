//! Ports for servers that other processes start.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// An address that was free a moment ago, below the range from which the kernel takes the ports of
/// outgoing connections: out of that range a client would take it before the server is up.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(61) % 10_000;
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + u16::try_from((first + step) % 12_000).expect("below 12,000");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
        assert!(step < 12_000, "no port is free");
    }
}
