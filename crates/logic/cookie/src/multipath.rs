//! Connections over several paths (Cheetah, §7): each subflow has its own 5-tuple and must still reach
//! the server of the first. The i-th subflow's cookie is made with the i-th permutation of all
//! servers, so that the cookies of one connection do not tell an observer that they mean one server.
//!
//! The server hands the cookie of subflow i to the client when the client announces the subflow; the
//! balancer needs to know i, as the carrier's configuration says (a port or an address per subflow). What
//! [`CookieCodec`](crate::CookieCodec) carries is the place in that order; place 0 is no server's there, so the one
//! server that an order puts there takes no such subflow.

use crate::layout::{Layout, ServerId};
use crate::salt::Salt;

/// The permutations of all servers, one for each subflow.
#[derive(Clone, Debug)]
pub struct SubflowOrder {
    /// Only their permutations are used.
    orders: Vec<Salt>,
}

impl SubflowOrder {
    /// Derives as many permutations as there may be subflows beyond the first.
    pub fn derive(secret: &[u8; 32], layout: Layout, subflows: u8) -> Self {
        let order = |index: u8| {
            let mut seed = *secret;
            // A seed of its own for each: ChaCha20 under different keys.
            seed[31] ^= index.wrapping_add(1);
            Salt::derive(&seed, layout)
        };
        SubflowOrder { orders: (0..subflows).map(order).collect() }
    }

    /// The place of a server in the order of a subflow; subflow 0 is the connection's first and has
    /// the natural order. `None` beyond the subflows there are.
    pub fn place(&self, subflow: u8, id: ServerId) -> Option<ServerId> {
        match subflow.checked_sub(1) {
            None => Some(id),
            Some(index) => {
                let order = self.orders.get(usize::from(index))?;
                order.forward().get(usize::from(id.0)).copied().map(ServerId)
            }
        }
    }

    /// The server at a place.
    pub fn server(&self, subflow: u8, place: ServerId) -> Option<ServerId> {
        match subflow.checked_sub(1) {
            None => Some(place),
            Some(index) => {
                let order = self.orders.get(usize::from(index))?;
                order.inverse().get(usize::from(place.0)).copied().map(ServerId)
            }
        }
    }
}
