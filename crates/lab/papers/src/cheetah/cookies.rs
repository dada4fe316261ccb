//! Connections that carry the product's cookie: a policy picks for the SYN, the timestamp that
//! comes back decides for all others. Decoded for every connection whenever something changes, so that
//! none is taken for unbroken without its cookie having said so.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use plimsoll_cookie::{CookieCodec, Epoch, IdState, Layout, Salt, ServerId, Tuple, Verdict};
use plimsoll_model::Nanos;
use plimsoll_policy::{Finish, Policy, Request};
use plimsoll_sim::flows::{Steering, Update, Watch};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The balancer: the policy, and nothing else but the cookie's salt and the servers that exist.
pub struct ByCookie {
    policy: Box<dyn Policy>,
    codec: CookieCodec,
    rng: Xoshiro256PlusPlus,
    /// What clients echo, by slot: theirs, not the balancer's.
    echoes: Vec<u32>,
}

impl ByCookie {
    /// Over so many servers. All stay known, whoever of them takes new connections.
    pub fn new(policy: Box<dyn Policy>, servers: usize, seed: u64) -> Self {
        let layout = Layout::default();
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&seed.to_le_bytes());
        let mut codec = CookieCodec::new(layout, Epoch::Even, Salt::derive(&secret, layout));
        for server in 0..servers {
            codec.set_id(id(server), IdState::Live);
        }
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        ByCookie { policy, codec, rng, echoes: Vec::new() }
    }
}

/// Id 0 is no server's.
fn id(server: usize) -> ServerId {
    ServerId(server as u16 + 1)
}

/// The addresses whose hash the key is.
fn tuple(key: u64) -> Tuple {
    let client = Ipv4Addr::from_bits(key as u32);
    Tuple {
        client: SocketAddr::from((client, (key >> 32) as u16)),
        vip: SocketAddr::from((Ipv4Addr::new(10, 0, 9, 9), 80)),
        protocol: 6,
    }
}

impl Steering for ByCookie {
    fn first(&mut self, slot: usize, key: u64, now: Nanos) -> Option<usize> {
        let server = self.policy.pick(&Request::with_key(key), now, &mut self.rng)?;
        self.policy.on_start(server, now);
        if slot >= self.echoes.len() {
            self.echoes.resize(slot + 1, 0);
        }
        let clock_ms = (now.0 / 1_000_000) as u32;
        self.echoes[slot] = self.codec.encode(id(server), &tuple(key), clock_ms, Epoch::Even)?;
        Some(server)
    }

    fn later(&mut self, slot: usize, key: u64, _now: Nanos) -> Option<usize> {
        match self.codec.decode(&tuple(key), self.echoes[slot]).verdict {
            Verdict::Valid(id) => Some(usize::from(id.0) - 1),
            Verdict::Stale(_) | Verdict::Foreign => None,
        }
    }

    fn end(&mut self, _slot: usize, server: usize, lasted: Duration, now: Nanos) {
        self.policy.on_finish(server, &Finish::success(lasted), now);
    }

    fn update(&mut self, _update: Update, weights: &[u32]) {
        self.policy.set_weights(weights);
    }
}

#[derive(Clone, Copy)]
struct Flow {
    key: u64,
    holder: usize,
    counted: bool,
    broken: bool,
}

/// How even connections with cookies are, and how many break, while the pool stays.
pub struct Carried {
    steering: ByCookie,
    counted_from: Nanos,
    flows: Vec<Option<Flow>>,
    open: Vec<u32>,
    imbalance: f64,
    readings: u32,
    /// Of those that were counted.
    pub connections: u64,
    /// Whose packets reached a server that does not hold them.
    pub broken: u64,
}

impl Carried {
    /// Read at the ticks of the run.
    pub fn new(steering: ByCookie, servers: usize, counted_from: Nanos) -> Self {
        Carried {
            steering,
            counted_from,
            flows: Vec::new(),
            open: vec![0; servers],
            imbalance: 0.0,
            readings: 0,
            connections: 0,
            broken: 0,
        }
    }

    /// The most over the mean, less one, percent; the mean over time.
    pub fn imbalance_percent(&self) -> f64 {
        100.0 * self.imbalance / f64::from(self.readings.max(1))
    }
}

impl Watch for Carried {
    fn start(&mut self, slot: usize, key: u64, counted: bool, now: Nanos) {
        if slot >= self.flows.len() {
            self.flows.resize(slot + 1, None);
        }
        let holder = self.steering.first(slot, key, now);
        holder.into_iter().for_each(|holder| self.open[holder] += 1);
        self.flows[slot] = holder.map(|holder| Flow { key, holder, counted, broken: false });
        self.connections += u64::from(counted);
    }

    fn end(&mut self, slot: usize, lasted: Duration, now: Nanos) {
        if let Some(flow) = self.flows[slot].take() {
            self.open[flow.holder] -= 1;
            self.steering.end(slot, flow.holder, lasted, now);
        }
    }

    fn tick(&mut self, _index: usize, now: Nanos) {
        if now < self.counted_from {
            return;
        }
        let all: u32 = self.open.iter().sum();
        let most = self.open.iter().copied().max().unwrap_or(0);
        let mean = f64::from(all) / self.open.len() as f64;
        self.imbalance += f64::from(most) / mean - 1.0;
        self.readings += 1;
        for (slot, flow) in self.flows.iter_mut().enumerate() {
            let Some(flow) = flow.as_mut().filter(|flow| flow.counted && !flow.broken) else {
                continue;
            };
            if self.steering.later(slot, flow.key, now) != Some(flow.holder) {
                flow.broken = true;
                self.broken += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_policy::{PolicyKind, Settings};
    use plimsoll_sim::flows::{Durations, Tracking, Traffic};

    use super::*;

    fn balancer(servers: usize) -> ByCookie {
        let policy = PolicyKind::RoundRobin.build(&vec![1; servers], &Settings::default());
        ByCookie::new(policy.unwrap(), servers, 1)
    }

    fn traffic() -> Traffic {
        Traffic {
            active: 1_000.0,
            durations: Durations::new(&[(10_000.0, 1)]),
            settle_s: 0.0,
            counted_s: 10.0,
            to_their_end: true,
            seed: 1,
        }
    }

    fn broken_of(steering: ByCookie) -> (u64, u64) {
        let updates = [(Nanos::from_secs_f64(20.0), Update::Leaves(3))];
        let mut tracking = Tracking::new(Box::new(steering), &updates, &[1; 10]);
        traffic().run(&updates.map(|(at, _)| at), &mut tracking);
        let broken = tracking.broken();
        (broken.connections, broken.plain)
    }

    #[test]
    fn a_cookie_outlives_the_pool_and_no_more_than_the_servers_known() {
        let (connections, broken) = broken_of(balancer(10));
        assert!(connections > 800 && broken == 0, "{broken} of {connections}");
        let mut forgetful = balancer(10);
        forgetful.codec.set_id(id(5), IdState::Gone);
        let (connections, broken) = broken_of(forgetful);
        let part = broken as f64 / connections as f64;
        assert!((part - 0.1).abs() < 0.01, "those of one server in ten: {part}");
    }

    #[test]
    fn cookies_of_another_connection_are_found_out() {
        let mut carried = Carried::new(balancer(10), 10, Nanos::ZERO);
        for slot in 0..100 {
            carried.start(
                slot,
                (slot as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                true,
                Nanos::ZERO,
            );
        }
        carried.tick(0, Nanos::ZERO);
        assert_eq!((carried.connections, carried.broken), (100, 0));
        carried.steering.echoes.rotate_left(1);
        carried.tick(1, Nanos::ZERO);
        assert!(carried.broken > 90, "{}", carried.broken);
    }
}
