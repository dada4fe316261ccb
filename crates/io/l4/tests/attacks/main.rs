//! What strangers send: packets that lie, cookies that are guessed, floods. Millions of packets are made
//! in the kernel (`bpf/bench`), so that all of them take seconds.

#[path = "../../examples/support/mod.rs"]
mod support;

mod crowd;
mod fuzz;

use support::rig::packet::{ACK, REDIRECT, SYN, Segment, read_timestamps, syn_options, timestamps};
use support::{CLIENT_MAC, Rig, VIP, server_mac};

/// A connection as both of its ends see it.
struct Connection {
    client: String,
    server: u8,
    /// What the client echoes, and what its server stamped.
    wire: u32,
    real: u32,
}

impl Connection {
    /// Opens one.
    fn open(rig: &Rig, client: String) -> Connection {
        let syn = Segment::new(&client, VIP, SYN, syn_options(1, 0));
        let ran = rig.balancer.run(&syn.bytes(), rig.clients).expect("runs");
        assert_eq!(ran.verdict, REDIRECT);
        let server = ran.packet[5];
        assert_eq!(ran.packet[..6], server_mac(server));
        Connection { client, server, wire: 0, real: 0 }
    }

    /// A packet from its server, stamped `real`.
    fn reply(&mut self, rig: &Rig, real: u32) {
        let segment = Segment::new(VIP, &self.client, ACK, timestamps(real, 1))
            .sent_by(server_mac(self.server));
        let ran = rig.balancer.run(&segment.bytes(), rig.servers).expect("runs");
        assert_eq!((ran.verdict, &ran.packet[..6]), (REDIRECT, &CLIENT_MAC[..]));
        self.wire = read_timestamps(&ran.packet, 22).0;
        self.real = real;
    }

    /// A packet from its client must reach its server, with the echo its server expects.
    fn ask(&self, rig: &Rig) {
        let segment = Segment::new(&self.client, VIP, ACK, timestamps(7, self.wire));
        let ran = rig.balancer.run(&segment.bytes(), rig.clients).expect("runs");
        assert_eq!(ran.verdict, REDIRECT);
        assert_eq!(ran.packet[..6], server_mac(self.server), "{}", self.client);
        assert_eq!(read_timestamps(&ran.packet, 22), (7, self.real), "{}", self.client);
    }
}
