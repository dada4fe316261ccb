//! A balancer with nobody behind it, in namespaces of its own. Shared by examples and tests.
#![allow(dead_code)] // each user needs a part

#[path = "../../tests/rig/mod.rs"]
pub mod rig;

use std::ops::{Deref, DerefMut};

use plimsoll_l4::Policy;
use plimsoll_l4::bench::{self, Replies};
use rig::Net;

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
