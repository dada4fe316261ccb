//! A balancer without servers, in namespaces of its own. Shared by examples and tests.
#![allow(dead_code)] // each user needs a part

#[path = "../rig/mod.rs"]
pub mod rig;

use std::ops::{Deref, DerefMut};

use plimsoll_l4::{Balancer, Mac, Policy, Uplink, UplinkMode};
use plimsoll_l4bench::{self as bench, CLIENT_MAC, Replies, VIP, VIP6, server_mac};
use rig::{Net, backend, keys};

/// Of the one arm of a balancer that has no other.
pub const ARM_MAC: Mac = [2, 0, 0, 0, 9, 1];

/// The balancer; this thread is in its namespace until the rig is dropped.
pub struct Rig {
    rig: bench::Rig,
    pub net: Net,
}

impl Rig {
    pub fn new(policy: Policy, count: u8, replies: Replies) -> Rig {
        let net = legs();
        net.enter("lb");
        let rig = bench::Rig::new(net.pins(), policy, count, replies).expect("starts");
        Rig { rig, net }
    }

    /// The same, with room for the ways to so many clients.
    pub fn with_room(policy: Policy, count: u8, replies: Replies, clients: u32) -> Rig {
        let net = legs();
        net.enter("lb");
        let rig = bench::Rig::with_room(net.pins(), policy, count, replies, clients);
        Rig { rig: rig.expect("starts"), net }
    }

    /// On one interface, which is no veth: what came by it leaves by it, by `XDP_TX`.
    pub fn one_armed(policy: Policy, count: u8) -> Rig {
        let net = Net::new(&["lb"]);
        net.exec(
            "lb",
            "sh -c 'set -e
            ip tuntap add arm mode tap; ip link set arm address 02:00:00:00:09:01 up
            ip addr add 10.0.2.254/24 dev arm; ip addr add fd00:2::fe/64 dev arm nodad'",
        );
        net.enter("lb");
        let servers = |prefix: &str| {
            let one = |n| backend(&format!("s{n}"), &format!("{prefix}{n}"), server_mac(n));
            (1..=count).map(one).collect()
        };
        let four = bench::vip("four", VIP, policy, servers("10.0.2."));
        let mut config = rig::config(&net, &["arm"], four);
        config.vips.push(bench::vip("six", VIP6, policy, servers("fd00:2::")));
        config.uplink = UplinkMode::Fixed(Uplink {
            interface: "arm".to_owned(),
            gateway: None,
            mac: Some(CLIENT_MAC),
        });
        let (balancer, pending) = Balancer::start_with(&config, keys()).expect("starts");
        assert!(pending.0.is_empty(), "{pending:?}");
        let arm = bench::ifindex("arm").expect("there");
        Rig { rig: bench::Rig { balancer, config, clients: arm, servers: arm }, net }
    }
}

impl Deref for Rig {
    type Target = bench::Rig;

    fn deref(&self) -> &bench::Rig {
        &self.rig
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut bench::Rig {
        &mut self.rig
    }
}

/// A namespace `lb` with legs to `out`.
pub fn legs() -> Net {
    let net = Net::new(&["lb", "out"]);
    net.exec("lb", &format!("sh -c '{}'", bench::legs(&net.full("out"))));
    net
}
