//! Zero, one, removed, avoided: whatever happens, the pick is allowed.

use std::time::Duration;

use plimsoll_model::Nanos;
use plimsoll_policy::{Finish, Probing, Request, ServerLoad};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::stream::{Does, Stream};
use super::ways;

#[test]
fn no_backend_to_pick() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    for way in ways() {
        for request in [Request::default(), Request::with_key(9)] {
            for weights in [&[][..], &[0], &[0, 0, 0]] {
                let mut policy = way.build(weights);
                assert_eq!(policy.pick(&request, Nanos::ZERO, &mut rng), None, "{way}");
            }
            let mut policy = way.build(&[1, 1]);
            let all = request.avoiding(&[0, 1]);
            assert_eq!(policy.pick(&all, Nanos::ZERO, &mut rng), None, "{way}: all avoided");
            policy.set_weights(&[0, 0]);
            assert_eq!(policy.pick(&request, Nanos::ZERO, &mut rng), None, "{way}");
            policy.set_weights(&[0, 3]);
            assert_eq!(policy.pick(&request, Nanos::ZERO, &mut rng), Some(1), "{way}");
        }
    }
}

#[test]
fn one_backend_gets_everything() {
    for way in ways() {
        let mut policy = way.build(&[0, 7, 0]);
        let count = Stream::new(policy.as_mut()).run(1_000, 100.0, |_| Does::Serve(30.0));
        assert_eq!(count[1], 1_000, "{way}");
    }
}

/// Weights, ends, loads, avoided backends and times at random: only backends of weight that are not
/// avoided are picked, and one is picked whenever there is one.
#[test]
fn whatever_happens_the_pick_is_allowed() {
    for way in ways() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
        let mut weights = vec![1, 0, 3];
        let mut policy = way.build(&weights);
        let mut running: Vec<usize> = Vec::new();
        let mut targets = Vec::new();
        let mut now = Nanos::ZERO;
        for step in 0..10_000 {
            now = now + Duration::from_micros(rng.next_u64() % 20_000);
            // Tables of great sums take a while to fill: fewer changes for policies that have them.
            if step % 100 == 0 {
                let n = (1 + rng.next_u64() % 12) as usize;
                let big = if step % 2_500 == 0 { u64::from(u32::MAX) } else { 4 };
                weights = (0..n).map(|_| (rng.next_u64() % big) as u32).collect();
                policy.set_weights(&weights);
            }
            let avoid: Vec<usize> =
                (0..rng.next_u64() % 4).map(|_| (rng.next_u64() % 14) as usize).collect();
            let key = (step % 3 > 0).then_some(step);
            let request = Request::keyed(key).avoiding(&avoid);
            let open = |i: &usize| weights[*i] > 0 && !avoid.contains(i);
            let mut answered = Vec::new();
            // Once more where those that have answered are to be full.
            for round in 0..1 + step % 2 {
                let probing = policy.probing();
                if probing == Probing::Never || round > 0 && probing != Probing::Before {
                    break;
                }
                targets.clone_from(&answered);
                policy.probe_targets(&request, now, &mut rng, &mut targets);
                assert!(targets.iter().all(|&i| weights[i] > 0), "{way} probes {targets:?}");
                for &i in targets[answered.len()..].iter().filter(|i| **i % 3 > 0) {
                    policy.on_probe(i, load(&mut rng), now);
                }
                targets.retain(|i| i % 3 > 0);
                answered.clone_from(&targets);
            }
            let picked = policy.pick(&request.answered_by(&answered), now, &mut rng);
            assert_eq!(picked.is_some(), (0..weights.len()).any(|i| open(&i)), "{way} at {step}");
            if let Some(i) = picked {
                assert!(open(&i), "{way} at {step}: {i} of {weights:?}, avoiding {avoid:?}");
                policy.on_start(i, now);
                running.push(i);
            }
            while running.len() > 20 || (!running.is_empty() && rng.next_u64() % 2 == 0) {
                let at = (rng.next_u64() % running.len() as u64) as usize;
                let finish = ending(&mut rng);
                policy.on_finish(running.swap_remove(at), &finish, now);
            }
        }
    }
}

fn load(rng: &mut Xoshiro256PlusPlus) -> ServerLoad {
    let in_flight = (rng.next_u64() % 9) as u32;
    let latency_us = (rng.next_u64() % 100_000) as f32;
    let cpu = Some((rng.next_u64() % 101) as f32 / 100.0);
    let cores = Some((1 + rng.next_u64() % 8) as f32).filter(|cores| *cores > 1.0);
    ServerLoad { in_flight, latency_us, cpu, cores }
}

fn ending(rng: &mut Xoshiro256PlusPlus) -> Finish {
    let latency = Duration::from_micros(rng.next_u64() % 100_000);
    let mut finish = match rng.next_u64() % 5 {
        0 => Finish::success(latency),
        1 => Finish::failure(latency),
        2 => Finish::rejected(latency),
        3 => Finish::too_late(latency),
        _ => Finish::abandoned(latency),
    };
    finish.chip = [None, Some(false), Some(true)][(rng.next_u64() % 3) as usize];
    finish.load = rng.next_u64().is_multiple_of(2).then(|| load(rng));
    finish
}

#[test]
fn a_run_is_its_seed() {
    for way in ways() {
        let run = || {
            let mut policy = way.build(&[3, 1, 2]);
            let slower = |i| Does::Serve(10.0 * (i + 1) as f64);
            Stream::new(policy.as_mut()).run(5_000, 300.0, slower)
        };
        assert_eq!(run(), run(), "{way}");
    }
}
