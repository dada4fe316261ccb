//! The balancers of a pool at request level: HAProxy's own ways to pick, and a smooth one to compare with.

use plimsoll_queueing::{HaproxyLeastconn, HaproxyRoundRobin, Pick, SmoothRoundRobin};

use crate::pool::Method;

pub(crate) enum Balancer {
    RoundRobin(HaproxyRoundRobin),
    /// The same shares, in smooth turns and effective at once.
    Smooth(SmoothRoundRobin),
    LeastConn(HaproxyLeastconn),
}

fn as_parts(weights: &[u32]) -> Vec<f64> {
    weights.iter().map(|&w| f64::from(w)).collect()
}

impl Balancer {
    pub fn new(method: Method, weights: &[u32]) -> Self {
        match method {
            Method::RoundRobin => Balancer::RoundRobin(HaproxyRoundRobin::new(weights)),
            Method::LeastConn => Balancer::LeastConn(HaproxyLeastconn::new(weights)),
        }
    }

    pub fn smooth(weights: &[u32]) -> Self {
        Balancer::Smooth(SmoothRoundRobin::new(&as_parts(weights)))
    }

    /// It has lost its state; a smooth one stays so under roundrobin.
    pub fn restart(&mut self, method: Method, weights: &[u32]) {
        *self = match self {
            Balancer::Smooth(_) if method == Method::RoundRobin => Balancer::smooth(weights),
            _ => Balancer::new(method, weights),
        };
    }

    /// The server for the next request; `None` when none takes traffic.
    pub fn pick(&mut self) -> Option<usize> {
        match self {
            Balancer::RoundRobin(rr) => rr.pick(),
            Balancer::Smooth(rr) => rr.pick(),
            Balancer::LeastConn(lc) => lc.pick(),
        }
    }

    /// It now has so many in flight at this server.
    pub fn changed(&mut self, i: usize, in_flight: u32) {
        match self {
            Balancer::RoundRobin(rr) => rr.changed(i, in_flight),
            Balancer::Smooth(rr) => rr.changed(i, in_flight),
            Balancer::LeastConn(lc) => lc.changed(i, in_flight),
        }
    }

    /// Server `i` has another one of these weights.
    pub fn set_weight(&mut self, i: usize, weights: &[u32], in_flight: u32) {
        match self {
            Balancer::RoundRobin(rr) => rr.set_weight(i, weights[i]),
            Balancer::Smooth(rr) => rr.set_weights(&as_parts(weights)),
            Balancer::LeastConn(lc) => lc.set_weight(i, weights[i], in_flight),
        }
    }
}
