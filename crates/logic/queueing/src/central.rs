//! A reference for balancers: one queue that all share and that always feeds the fastest free core.
//!
//! It is no bound. Where speeds differ much it is better to leave a slow core idle and wait for a fast one:
//! at speeds 1 : 8 a threshold rule has a mean 6 % below it.

use crate::des::{PoolResult, Run, Station};
use crate::service::exponential;
use rand::RngCore;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The central queue over one pool.
pub struct Central;

impl Central {
    /// Simulates `run` on these stations.
    pub fn simulate(stations: &[Station], run: &Run, rng: &mut dyn RngCore) -> PoolResult {
        let mut fastest: Vec<usize> = (0..stations.len()).collect();
        fastest.sort_by(|&a, &b| stations[a].service_us.total_cmp(&stations[b].service_us));
        let mut busy = vec![0u32; stations.len()];
        let mut queue: VecDeque<f64> = VecDeque::new();
        let mut departures: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
        let mut result = PoolResult::new(stations.len());
        let gap = 1e9 / run.rate_rps;
        let mut next = exponential(rng) * gap;
        let mut arrived = 0u32;
        let mut from = vec![0.0f64; 0];
        let mut free_slots: Vec<u32> = Vec::new();
        loop {
            let due = departures.peek().map(|Reverse((t, _))| *t as f64);
            let arrival = arrived < run.requests && due.is_none_or(|t| next <= t);
            if arrival {
                arrived += 1;
                queue.push_back(next);
            } else if let Some(Reverse((t, slot))) = departures.pop() {
                let station = (slot >> 24) as usize;
                let slot = slot & 0xff_ffff;
                busy[station] -= 1;
                result.finish(station, t as f64 - from[slot as usize], run);
                free_slots.push(slot);
            } else {
                return result.done();
            }
            let now = if arrival { next } else { due.unwrap_or(next) };
            if arrival {
                next += exponential(rng) * gap;
            }
            while let Some(&came) = queue.front() {
                let Some(&i) = fastest.iter().find(|&&i| busy[i] < stations[i].cores) else {
                    break;
                };
                queue.pop_front();
                busy[i] += 1;
                let slot = free_slots.pop().unwrap_or_else(|| {
                    from.push(0.0);
                    (from.len() - 1) as u32
                });
                from[slot as usize] = came;
                let done = now + run.service.draw(rng) * stations[i].service_us * 1e3;
                departures.push(Reverse((done as u64, (i as u32) << 24 | slot)));
            }
        }
    }
}
