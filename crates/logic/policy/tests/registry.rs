//! What every policy must hold to, run over the whole registry.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use plimsoll_model::Nanos;
use plimsoll_policy::{Finish, Policy, PolicyKind, Request, Settings};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

fn build(kind: PolicyKind, weights: &[u32]) -> Box<dyn Policy> {
    kind.build(weights, &Settings::default()).expect("the defaults are valid")
}

fn uniform(rng: &mut dyn RngCore) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// Poisson arrivals at backends that never queue; counts what each was given.
struct Stream<'a> {
    policy: &'a mut dyn Policy,
    rng: Xoshiro256PlusPlus,
    now: Nanos,
    running: BinaryHeap<Reverse<(Nanos, usize, u64)>>,
}

impl<'a> Stream<'a> {
    fn new(policy: &'a mut dyn Policy) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(7);
        Stream { policy, rng, now: Nanos::ZERO, running: BinaryHeap::new() }
    }

    /// `answer` gives for a backend how long it takes, milliseconds, and whether it succeeds.
    fn run(
        &mut self,
        requests: u32,
        rate_rps: f64,
        answer: impl Fn(usize) -> (f64, bool),
    ) -> Vec<u32> {
        let mut count = vec![0; 16];
        for _ in 0..requests {
            let gap = Duration::from_secs_f64(-uniform(&mut self.rng).ln() / rate_rps);
            self.now = self.now + gap;
            while let Some(&Reverse((due, backend, took))) = self.running.peek() {
                if due > self.now {
                    break;
                }
                self.running.pop();
                let latency = Duration::from_nanos(took);
                let failed = !answer(backend).1;
                let finish =
                    if failed { Finish::failure(latency) } else { Finish::success(latency) };
                self.policy.on_finish(backend, &finish, due);
            }
            let picked = self.policy.pick(&Request::default(), self.now, &mut self.rng);
            let backend = picked.expect("some backend has weight");
            count[backend] += 1;
            self.policy.on_start(backend, self.now);
            let (mean_ms, ok) = answer(backend);
            let spread = if ok { -uniform(&mut self.rng).ln() } else { 1.0 };
            let took = (mean_ms * spread * 1e6) as u64;
            let due = self.now + Duration::from_nanos(took);
            self.running.push(Reverse((due, backend, took)));
        }
        count
    }
}

fn share(count: &[u32], backend: usize) -> f64 {
    f64::from(count[backend]) / f64::from(count.iter().sum::<u32>())
}

#[test]
fn nobody_to_pick() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    for &kind in PolicyKind::ALL {
        for weights in [&[][..], &[0], &[0, 0, 0]] {
            let mut policy = build(kind, weights);
            assert_eq!(policy.pick(&Request::default(), Nanos::ZERO, &mut rng), None, "{kind}");
        }
        let mut policy = build(kind, &[1, 1]);
        let all = Request::default().avoiding(&[0, 1]);
        assert_eq!(policy.pick(&all, Nanos::ZERO, &mut rng), None, "{kind}: all avoided");
        policy.set_weights(&[0, 0]);
        assert_eq!(policy.pick(&Request::default(), Nanos::ZERO, &mut rng), None, "{kind}");
        policy.set_weights(&[0, 3]);
        assert_eq!(policy.pick(&Request::default(), Nanos::ZERO, &mut rng), Some(1), "{kind}");
    }
}

#[test]
fn one_backend_gets_everything() {
    for &kind in PolicyKind::ALL {
        let mut policy = build(kind, &[0, 7, 0]);
        let count = Stream::new(policy.as_mut()).run(1_000, 100.0, |_| (30.0, true));
        assert_eq!(count[1], 1_000, "{kind}");
    }
}

/// Weights, ends, avoided backends and times at random: only backends of weight that are not avoided
/// are picked, and one is picked whenever there is one.
#[test]
fn whatever_happens_the_pick_is_allowed() {
    for &kind in PolicyKind::ALL {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
        let mut weights = vec![1, 0, 3];
        let mut policy = build(kind, &weights);
        let mut running: Vec<usize> = Vec::new();
        let mut now = Nanos::ZERO;
        for step in 0..20_000 {
            now = now + Duration::from_micros(rng.next_u64() % 20_000);
            if step % 50 == 0 {
                let n = (1 + rng.next_u64() % 12) as usize;
                let big = if rng.next_u64() % 5 == 0 { u64::from(u32::MAX) } else { 4 };
                weights = (0..n).map(|_| (rng.next_u64() % big) as u32).collect();
                policy.set_weights(&weights);
            }
            let avoid: Vec<usize> =
                (0..rng.next_u64() % 4).map(|_| (rng.next_u64() % 14) as usize).collect();
            let request = Request::with_key(step).avoiding(&avoid);
            let open = |i: &usize| weights[*i] > 0 && !avoid.contains(i);
            let picked = policy.pick(&request, now, &mut rng);
            assert_eq!(picked.is_some(), (0..weights.len()).any(|i| open(&i)), "{kind} at {step}");
            if let Some(i) = picked {
                assert!(open(&i), "{kind} at {step}: {i} of {weights:?}, avoiding {avoid:?}");
                policy.on_start(i, now);
                running.push(i);
            }
            while running.len() > 20 || (!running.is_empty() && rng.next_u64() % 2 == 0) {
                let at = (rng.next_u64() % running.len() as u64) as usize;
                let latency = Duration::from_micros(rng.next_u64() % 100_000);
                let finish = match rng.next_u64() % 3 {
                    0 => Finish::success(latency),
                    1 => Finish::failure(latency),
                    _ => Finish::abandoned(latency),
                };
                policy.on_finish(running.swap_remove(at), &finish, now);
            }
        }
    }
}

#[test]
fn equal_backends_get_equal_parts() {
    for &kind in PolicyKind::ALL {
        let mut policy = build(kind, &[1; 5]);
        let count = Stream::new(policy.as_mut()).run(100_000, 200.0, |_| (30.0, true));
        for i in 0..5 {
            // Where latency alone decides and load does not change it, noise decides.
            let room = if kind == PolicyKind::PowerOfNLatency { 0.05 } else { 0.02 };
            assert!((share(&count, i) - 0.2).abs() < room, "{kind}: {count:?}");
        }
    }
}

/// The policies whose weights are shares keep them; the others, loaded enough for weights to show
/// (30 in flight), come near. By latency alone, which load does not change here, a weight says only
/// who can be drawn.
#[test]
fn weights_are_heeded_and_can_change_mid_stream() {
    for &kind in PolicyKind::ALL {
        let exact = matches!(kind, PolicyKind::Random | PolicyKind::RoundRobin);
        let by_latency = kind == PolicyKind::PowerOfNLatency;
        let mut policy = build(kind, &[1, 2, 5]);
        let mut stream = Stream::new(policy.as_mut());
        for weights in [[1u32, 2, 5], [5, 0, 1], [1, 1, 1]] {
            stream.policy.set_weights(&weights);
            stream.run(2_000, 1_000.0, |_| (30.0, true));
            let count = stream.run(100_000, 1_000.0, |_| (30.0, true));
            for (i, &w) in weights.iter().enumerate() {
                let due = f64::from(w) / f64::from(weights.iter().sum::<u32>());
                let got = share(&count, i);
                if exact {
                    assert!((got - due).abs() < 0.005, "{kind} {weights:?}: {count:?}");
                } else {
                    let room = if by_latency { 0.5 } else { 0.12 };
                    assert!((got - due).abs() < room, "{kind} {weights:?}: {count:?}");
                    assert_eq!(w > 0, got > 0.0, "{kind} {weights:?}: {count:?}");
                }
            }
        }
    }
}

/// Backend 0 answers in a millisecond, with a failure, where the others take 30 ms. It must not get
/// more than its part, neither at first nor for long, and must be found when it is well again.
#[test]
fn what_fails_fast_does_not_attract_load() {
    for &kind in PolicyKind::ALL {
        for rate_rps in [30.0, 300.0, 3_000.0] {
            let mut policy = build(kind, &[1; 5]);
            let mut stream = Stream::new(policy.as_mut());
            stream.run(5_000, rate_rps, |_| (30.0, true));
            let sick = |i| if i == 0 { (1.0, false) } else { (30.0, true) };
            let first = share(&stream.run(1_000, rate_rps, sick), 0);
            let then = share(&stream.run(20_000, rate_rps, sick), 0);
            if kind == PolicyKind::LeastconnHaproxy {
                // HAProxy's own behaviour, kept.
                assert!(rate_rps < 100.0 || then > 0.5, "{kind} at {rate_rps}: {then}");
                continue;
            }
            assert!(first < 0.3, "{kind} at {rate_rps}/s: {first:.3} of the first 1,000");
            assert!(then < 0.21, "{kind} at {rate_rps}/s: {then:.3}");
            stream.run((rate_rps * 120.0) as u32, rate_rps, |_| (30.0, true));
            let well = share(&stream.run(20_000, rate_rps, |_| (30.0, true)), 0);
            assert!(well > 0.15, "{kind} at {rate_rps}/s: {well:.3} when well again");
        }
    }
}

#[test]
fn a_run_is_its_seed() {
    for &kind in PolicyKind::ALL {
        let run = || {
            let mut policy = build(kind, &[3, 1, 2]);
            Stream::new(policy.as_mut()).run(5_000, 300.0, |i| (10.0 * (i + 1) as f64, true))
        };
        assert_eq!(run(), run(), "{kind}");
    }
}

/// A slow backend gets less than its part from every policy that looks at load or latency.
#[test]
fn what_is_slow_gets_less() {
    for &kind in PolicyKind::ALL {
        let mut policy = build(kind, &[1; 4]);
        let slow = |i| (if i == 0 { 120.0 } else { 30.0 }, true);
        let got = share(&Stream::new(policy.as_mut()).run(50_000, 400.0, slow), 0);
        let blind = matches!(kind, PolicyKind::Random | PolicyKind::RoundRobin);
        assert_eq!(got > 0.24, blind, "{kind}: {got}");
        assert!(got > 0.001, "{kind}: it must still be heard of");
    }
}
