//! References that see everything: one queue that all cores share, with the arena's own arrivals and work, request by
//! request.
//!
//! *Central* feeds the fastest free core at once. It is no limit where speeds differ: to leave a slow core idle and
//! wait for a fast one can be better (Lin and Kumar, 1984, Optimal control of a queueing system with two
//! heterogeneous servers: the best rule is a threshold). So the *least known bound* is the least mean over a grid of
//! rules by which a free core of service time `s` takes the first of `q` that wait when
//!
//! `q ≥ θ · (s − s̄) · R`,
//!
//! `R` being the rate of all faster cores and `s̄` their mean service time: `θ = 1` thinks of that request alone, and
//! 0 is *central*. It is the best of one family, so a better rule may exist.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use plimsoll_queueing::ServiceTime;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Arena;

/// The `θ` of the rules that are compared, 0 aside.
const THRESHOLDS: [f64; 6] = [0.05, 0.1, 0.2, 0.35, 0.6, 1.0];

/// Means of references over one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneQueue {
    /// One queue that feeds the fastest free core, microseconds, network included.
    pub central_us: f64,
    /// The least of all rules, that one included.
    pub bound_us: f64,
    /// The `θ` of the least.
    pub threshold: f64,
}

impl OneQueue {
    /// Runs them over the arena's pool with its arrivals, without its timeline. Where all speeds are alike, all rules are
    /// one.
    pub fn of(arena: &Arena) -> OneQueue {
        let central_us = mean_us(arena, 0.0);
        let mut best = OneQueue { central_us, bound_us: central_us, threshold: 0.0 };
        let first = arena.pool.first().map(|b| b.speed);
        if arena.pool.iter().all(|b| Some(b.speed) == first) {
            return best;
        }
        for threshold in THRESHOLDS {
            let us = mean_us(arena, threshold);
            if us < best.bound_us {
                (best.bound_us, best.threshold) = (us, threshold);
            }
        }
        best
    }
}

/// Cores of one speed.
struct Class {
    ns_per_work: f64,
    free: u32,
    /// As many must wait before one of these is used.
    least_waiting: f64,
}

fn classes(arena: &Arena, threshold: f64) -> Vec<Class> {
    let mut speeds: Vec<(f64, u32)> = arena.pool.iter().map(|b| (b.speed, b.cores)).collect();
    speeds.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut classes: Vec<Class> = Vec::new();
    let (mut rate, mut cores) = (0.0, 0.0);
    for (speed, count) in speeds {
        let ns_per_work = arena.service_us * 1e3 / speed;
        match classes.last_mut().filter(|class| class.ns_per_work == ns_per_work) {
            Some(class) => class.free += count,
            None => {
                let mean_ns = if rate > 0.0 { cores / rate } else { ns_per_work };
                let least_waiting = threshold * (ns_per_work - mean_ns) * rate;
                classes.push(Class { ns_per_work, free: count, least_waiting });
            }
        }
        rate += f64::from(count) / ns_per_work;
        cores += f64::from(count);
    }
    classes
}

fn mean_us(arena: &Arena, threshold: f64) -> f64 {
    let mut classes = classes(arena, threshold);
    // The order of draws is the engine's: runs have the same traffic.
    let mut traffic = Xoshiro256PlusPlus::seed_from_u64(arena.seed);
    let gap_ns = 1e9 / arena.rate_rps;
    let mut next = ServiceTime::Exponential.draw(&mut traffic) * gap_ns;
    let mut arrived = 0;
    let mut waiting: VecDeque<(u64, f64, bool)> = VecDeque::new();
    let mut departures: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let (mut sum_ns, mut counted) = (0.0, 0u64);
    loop {
        let due = departures.peek().map(|Reverse((at, _))| *at);
        let arrival = arrived < arena.requests && due.is_none_or(|at| (next as u64) < at);
        let now = if arrival {
            let now = next as u64;
            let work = arena.service.draw(&mut traffic);
            next += ServiceTime::Exponential.draw(&mut traffic) * gap_ns;
            waiting.push_back((now, work, arrived >= arena.warm_up));
            arrived += 1;
            now
        } else if let Some(Reverse((now, class))) = departures.pop() {
            classes[class].free += 1;
            now
        } else {
            break;
        };
        while let Some(&(came, work, counts)) = waiting.front() {
            let enough = |class: &Class| waiting.len() as f64 >= class.least_waiting;
            let Some(at) = classes.iter().position(|class| class.free > 0) else { break };
            if !enough(&classes[at]) {
                break;
            }
            waiting.pop_front();
            classes[at].free -= 1;
            let done = now + (work * classes[at].ns_per_work) as u64;
            departures.push(Reverse((done, at)));
            if counts {
                sum_ns += (done - came) as f64;
                counted += 1;
            }
        }
    }
    let travel_us = 2.0 * arena.network.as_nanos() as f64 / 1e3;
    sum_ns / 1e3 / counted.max(1) as f64 + travel_us
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BackendModel, yardsticks};

    fn pool(slow: u32, fast: u32, speed: f64) -> Vec<BackendModel> {
        let of = |count: u32, speed| vec![BackendModel { cores: 1, speed }; count as usize];
        [of(slow, 1.0), of(fast, speed)].concat()
    }

    #[test]
    fn the_central_queue_is_that_of_the_other_simulator() {
        let arena = Arena::new(pool(4, 4, 2.0), 0.7, 100_000, 3);
        let yard = yardsticks(&arena).expect("a pool with room");
        let ours = OneQueue::of(&arena);
        assert!((ours.central_us / yard.central_mean_us - 1.0).abs() < 0.03, "{ours:?}");
    }

    #[test]
    fn where_speeds_differ_by_eight_to_wait_for_a_fast_core_is_better() {
        let unequal = OneQueue::of(&Arena::new(pool(16, 4, 8.0), 0.7, 100_000, 1));
        assert!(unequal.bound_us < 0.97 * unequal.central_us, "{unequal:?}");
        let alike = OneQueue::of(&Arena::new(pool(8, 0, 8.0), 0.7, 20_000, 1));
        assert_eq!((alike.bound_us, alike.threshold), (alike.central_us, 0.0));
    }
}
