//! Packets into the real program, and what comes out (`BPF_PROG_TEST_RUN`). Servers are distinguished by the
//! MAC address that a packet leaves for.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod counting;
mod least;
mod malformed;
mod ports;
mod rare;
mod rare_v6;
mod replies;
mod resets;
mod spread;
mod straight;
mod two;
mod vectors;
mod ways_out;
mod wraps;

use plimsoll_cookie::{CookieCodec, Epoch, Layout, Salt, ServerId, Tuple};
use plimsoll_l4::{Keys, Policy};
use plimsoll_l4bench::packet::{ACK, REDIRECT, Segment, intact, read_timestamps, timestamps};
use plimsoll_l4bench::{Replies, keys, server_mac};
use support::Rig;
use support::rig::at;

const CLIENT: &str = "10.0.1.2:40000";
const CLIENT6: &str = "[fd00:1::2]:40000";

/// A balancer whose replies go to one next hop.
fn rig(servers: u8) -> Rig {
    Rig::new(Policy::RoundRobin, servers, Replies::Uplink)
}

impl Rig {
    /// A packet in by the clients' leg: the verdict, and what leaves.
    fn by_client(&self, packet: &[u8]) -> (u32, Vec<u8>) {
        let ran = self.balancer.run(packet, self.clients).expect("runs");
        (ran.verdict, ran.packet)
    }

    /// A packet in by the servers' leg.
    fn by_server(&self, packet: &[u8]) -> (u32, Vec<u8>) {
        let ran = self.balancer.run(packet, self.servers).expect("runs");
        (ran.verdict, ran.packet)
    }

    fn counted(&self, reason: &str) -> u64 {
        self.reason(reason).expect("read")
    }

    /// A reply that a server stamps `real`, which tells the program its clock: what its client sees.
    fn hear(&self, vip: &str, client: &str, server: u8, real: u32) -> u32 {
        let reply = Segment::new(vip, client, ACK, timestamps(real, 1)).sent_by(server_mac(server));
        let (verdict, out) = self.by_server(&reply.bytes());
        assert_eq!(verdict, REDIRECT);
        assert!(intact(&out));
        read_timestamps(&out, 22).0
    }

    /// What a server sees when a client echoes `wire`; asserts that it is this server.
    fn echo(&self, vip: &str, client: &str, server: u8, wire: u32) -> u32 {
        let (verdict, out) =
            self.by_client(&Segment::new(client, vip, ACK, timestamps(9, wire)).bytes());
        assert_eq!((verdict, &out[..6]), (REDIRECT, &server_mac(server)[..]), "{client}");
        assert!(intact(&out));
        read_timestamps(&out, 22).1
    }
}

fn codec(keys: &Keys, epoch: Epoch) -> CookieCodec {
    let layout = Layout::default();
    let secret = keys.salts[epoch.bit() as usize].expect("a salt");
    CookieCodec::new(layout, epoch, Salt::derive(&secret, layout))
}

fn tuple(client: &str, vip: &str) -> Tuple {
    Tuple { client: at(client), vip: at(vip), protocol: 6 }
}

/// A cookie of server `id` for a connection, stamped `real`.
fn cookie(client: &str, vip: &str, id: u16, real: u32) -> u32 {
    codec(&keys(), Epoch::Even)
        .encode(ServerId(id), &tuple(client, vip), real, Epoch::Even)
        .expect("a salt")
}
