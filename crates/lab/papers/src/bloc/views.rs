//! What is true of the queues, for balancers that know it (JSQ) and for judging those that do not (§3).

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_model::Nanos;
use plimsoll_policy::{Finish, Policy, Probing, Request, ServerLoad};
use rand::RngCore;

/// Errors of this and more count as this.
const MOST: usize = 1_000;
/// The paper counts what is sent every two seconds.
const INTERVAL_NS: u64 = 2_000_000_000;

/// Every backend's requests, those of all balancers, and how far picks were from the shortest queue.
#[derive(Clone, Debug)]
pub struct Truth(Arc<Mutex<Queues>>);

#[derive(Debug)]
struct Queues {
    lengths: Vec<u32>,
    /// Picks by how much longer their queue was than the shortest.
    errors: Vec<u64>,
    from: Nanos,
    sent: Sent,
}

/// How evenly requests are sent, interval by interval.
#[derive(Debug, Default)]
struct Sent {
    /// Which interval.
    at: u64,
    /// By backend, in it.
    counts: Vec<u32>,
    /// Standard deviations over the backends, of all intervals before.
    sum: f64,
    intervals: u64,
}

impl Sent {
    fn to(&mut self, backend: usize, now: Nanos) {
        let at = now.0 / INTERVAL_NS;
        if at != self.at {
            let n = self.counts.len() as f64;
            let mean = self.counts.iter().map(|&k| f64::from(k)).sum::<f64>() / n;
            let square = |&k: &u32| (f64::from(k) - mean).powi(2);
            self.sum += (self.counts.iter().map(square).sum::<f64>() / n).sqrt();
            self.intervals += 1;
            self.counts.fill(0);
            self.at = at;
        }
        self.counts[backend] += 1;
    }
}

impl Truth {
    /// Nothing is under way; picks count from then on.
    pub fn new(backends: usize, from: Nanos) -> Self {
        let (lengths, errors) = (vec![0; backends], vec![0; MOST + 1]);
        let sent = Sent { counts: vec![0; backends], ..Sent::default() };
        Truth(Arc::new(Mutex::new(Queues { lengths, errors, from, sent })))
    }

    /// By how much the median pick's queue was longer than the shortest.
    pub fn median_error(&self) -> usize {
        self.with(|queues| {
            let all: u64 = queues.errors.iter().sum();
            let mut below = 0;
            let median = queues.errors.iter().position(|&count| {
                below += count;
                2 * below >= all
            });
            median.unwrap_or(0)
        })
    }

    /// The mean of the same.
    pub fn mean_error(&self) -> f64 {
        self.with(|queues| {
            let all: u64 = queues.errors.iter().sum();
            let sum: f64 =
                queues.errors.iter().enumerate().map(|(k, &count)| k as f64 * count as f64).sum();
            sum / all.max(1) as f64
        })
    }

    /// The standard deviation over backends of the requests sent to each within two seconds, averaged over
    /// time: the paper's load variation.
    pub fn imbalance(&self) -> f64 {
        self.with(|queues| queues.sent.sum / queues.sent.intervals.max(1) as f64)
    }

    fn with<T>(&self, what: impl FnOnce(&mut Queues) -> T) -> T {
        // Counters are never half written.
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn start(&self, backend: usize, now: Nanos) {
        self.with(|queues| {
            queues.lengths[backend] += 1;
            queues.sent.to(backend, now);
        });
    }

    fn finish(&self, backend: usize) {
        self.with(|queues| queues.lengths[backend] -= 1);
    }
}

/// Any policy, whose picks are held against the truth.
pub struct Judged {
    /// The policy.
    pub policy: Box<dyn Policy>,
    /// Which all balancers have in common.
    pub truth: Truth,
}

impl Policy for Judged {
    fn set_weights(&mut self, weights: &[u32]) {
        self.policy.set_weights(weights);
    }

    fn pick(&mut self, request: &Request<'_>, now: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        let picked = self.policy.pick(request, now, rng)?;
        self.truth.with(|queues| {
            if now >= queues.from {
                let least = queues.lengths.iter().copied().min().unwrap_or(0);
                queues.errors[((queues.lengths[picked] - least) as usize).min(MOST)] += 1;
            }
        });
        Some(picked)
    }

    fn on_start(&mut self, backend: usize, now: Nanos) {
        self.truth.start(backend, now);
        self.policy.on_start(backend, now);
    }

    fn on_finish(&mut self, backend: usize, finish: &Finish, now: Nanos) {
        self.truth.finish(backend);
        self.policy.on_finish(backend, finish, now);
    }

    fn has_room(&self, backend: usize, now: Nanos) -> Option<bool> {
        self.policy.has_room(backend, now)
    }

    fn probing(&self) -> Probing {
        self.policy.probing()
    }

    fn probe_targets(
        &mut self,
        request: &Request<'_>,
        now: Nanos,
        rng: &mut dyn RngCore,
        targets: &mut Vec<usize>,
    ) {
        self.policy.probe_targets(request, now, rng, targets);
    }

    fn on_probe(&mut self, backend: usize, load: ServerLoad, asked: Nanos) {
        self.policy.on_probe(backend, load, asked);
    }
}

/// Join the shortest queue: what every balancer would do that knew all queues. Ties at random.
pub struct Jsq {
    truth: Truth,
    weights: Vec<u32>,
}

impl Jsq {
    /// Over backends of equal weight.
    pub fn new(truth: Truth, backends: usize) -> Self {
        Jsq { truth, weights: vec![1; backends] }
    }
}

impl Policy for Jsq {
    fn set_weights(&mut self, weights: &[u32]) {
        self.weights = weights.to_vec();
    }

    fn pick(&mut self, request: &Request<'_>, _: Nanos, rng: &mut dyn RngCore) -> Option<usize> {
        self.truth.with(|queues| {
            let (mut best, mut alike) = (None, 0);
            for (i, &length) in queues.lengths.iter().enumerate() {
                if self.weights.get(i).is_none_or(|&w| w == 0) || request.avoided().contains(&i) {
                    continue;
                }
                match best {
                    Some((_, least)) if length > least => continue,
                    Some((_, least)) if length == least => alike += 1,
                    _ => alike = 1,
                }
                if alike == 1 || rng.next_u64().is_multiple_of(alike) {
                    best = Some((i, length));
                }
            }
            best.map(|(i, _)| i)
        })
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_policy::{LeastConnections, Random};
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn a_policy_that_knows_all_queues_is_never_off_and_a_random_one_is_often() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let now = Nanos::ZERO;
        let mut mean = |make: fn(&Truth) -> Box<dyn Policy>| {
            let truth = Truth::new(4, now);
            let policies = [make(&truth), make(&truth)];
            let mut all = policies.map(|policy| Judged { policy, truth: truth.clone() });
            for turn in 0..400 {
                let judged = &mut all[turn % 2];
                let picked = judged.pick(&Request::default(), now, &mut rng).unwrap();
                judged.on_start(picked, now);
            }
            truth.mean_error()
        };
        assert_eq!(mean(|truth| Box::new(Jsq::new(truth.clone(), 4))), 0.0);
        assert!(mean(|_| Box::new(Random::new(&[1; 4]))) > 2.0);
        // Each of two balancers is even by itself, so that both together are off by one at most.
        assert!(mean(|_| Box::new(LeastConnections::new(&[1; 4]))) < 1.0);
    }

    #[test]
    fn what_ends_leaves_the_queue_and_the_median_is_of_picks() {
        let truth = Truth::new(2, Nanos::ZERO);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut first = Judged { policy: Box::new(Random::new(&[1, 0])), truth: truth.clone() };
        for _ in 0..5 {
            let picked = first.pick(&Request::default(), Nanos::ZERO, &mut rng).unwrap();
            first.on_start(picked, Nanos::ZERO);
        }
        // 0, 1, 2, 3 and 4 requests were there.
        assert_eq!((truth.median_error(), truth.mean_error()), (2, 2.0));
        let end = Finish::success(std::time::Duration::ZERO);
        (0..5).for_each(|_| first.on_finish(0, &end, Nanos::ZERO));
        assert_eq!(truth.with(|queues| queues.lengths.clone()), [0, 0]);
        // Five and none within the first two seconds.
        truth.start(0, Nanos(INTERVAL_NS));
        assert_eq!(truth.imbalance(), 2.5);
    }
}
