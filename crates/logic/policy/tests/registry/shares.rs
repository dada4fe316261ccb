//! Which backend gets how much.

use plimsoll_model::Nanos;
use plimsoll_policy::{Draw, PolicyKind, PrequalSettings, Request, Settings};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::stream::{Does, Stream, share};
use super::{IS_BLIND, Way, is_blind, ways};

const WELL: fn(usize) -> Does = |_| Does::Serve(30.0);

/// What a weight is to a policy.
#[derive(Clone, Copy, PartialEq)]
enum Weight {
    /// A share of the requests.
    Share,
    /// A share, but what is too much for one goes to others.
    Bounded,
    /// What load is compared with: a share where there is load enough.
    Scale,
    /// The chance to be one of two, between which something else decides.
    Chance,
    /// In or out.
    InOrOut,
}

/// For messages: what a new policy may lack.
const WEIGHT: &str = "`weight` in tests/registry/shares.rs says what a weight means to a policy";

fn weight(way: &Way) -> Weight {
    use PolicyKind::{ExpectedDelay, PowerOfNLatency, Prequal};
    match way.kind {
        PolicyKind::HashRing | PolicyKind::HashMaglev if !is_blind(way) => Weight::Bounded,
        PowerOfNLatency => Weight::Chance,
        // With three probes for three backends Prequal asks all of them.
        ExpectedDelay | Prequal => Weight::InOrOut,
        _ if is_blind(way) => Weight::Share,
        _ => Weight::Scale,
    }
}

/// The part that each should get.
fn due(way: &Way, weights: &[u32]) -> Vec<f64> {
    let sum: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    let share = |w: u32| f64::from(w) / sum;
    let open = weights.iter().filter(|w| **w > 0).count() as f64;
    let of = |i: usize| match weight(way) {
        Weight::Share | Weight::Bounded | Weight::Scale => share(weights[i]),
        Weight::InOrOut => f64::from(weights[i].min(1)) / open,
        // Half of the chance to be drawn first, or second when another was first.
        Weight::Chance => {
            let others =
                weights.iter().enumerate().filter(|(k, _)| *k != i).map(|(_, &w)| share(w));
            let second: f64 = others.map(|w| w * share(weights[i]) / (1.0 - w)).sum();
            (share(weights[i]) + second) / 2.0
        }
    };
    (0..weights.len()).map(of).collect()
}

/// How far from it they may be: by chance alone; where latency decides, by what noise makes of it; a ring is
/// as even as its points fall.
fn room(way: &Way) -> f64 {
    match (weight(way), way.kind) {
        (Weight::Share, PolicyKind::HashRing) => 0.015,
        (Weight::Share, _) => 0.005,
        (Weight::Scale, PolicyKind::Bloc) => 0.055,
        (Weight::Scale, _) => 0.035,
        (Weight::InOrOut, PolicyKind::Prequal) => 0.015,
        (Weight::Bounded | Weight::InOrOut, _) => 0.06,
        (Weight::Chance, _) => 0.12,
    }
}

#[test]
fn equal_backends_get_equal_parts() {
    for way in ways() {
        let mut policy = way.build(&[100; 5]);
        let count = Stream::new(policy.as_mut()).run(100_000, 200.0, WELL);
        if way.kind == PolicyKind::First {
            assert_eq!(count[0], 100_000, "{way}: the others can sleep");
            continue;
        }
        for i in 0..5 {
            assert!((share(&count, i) - 0.2).abs() < room(&way), "{way}: {count:?}");
        }
    }
}

/// With 30 requests in flight, enough for weights to show where they scale load.
#[test]
fn weights_are_heeded_and_can_change_mid_stream() {
    for way in ways() {
        let mut policy = way.build(&[40, 80, 200]);
        let mut stream = Stream::new(policy.as_mut());
        for weights in [[40u32, 80, 200], [200, 0, 40], [40, 40, 40]] {
            stream.policy.set_weights(&weights);
            stream.run(2_000, 1_000.0, WELL);
            let count = stream.run(100_000, 1_000.0, WELL);
            if way.kind == PolicyKind::First {
                assert_eq!(count[0], 100_000, "{way}: weights say who is in, no more");
                continue;
            }
            for (i, due) in due(&way, &weights).into_iter().enumerate() {
                let got = share(&count, i);
                assert!(
                    (got - due).abs() < room(&way),
                    "{way} {weights:?}: {count:?} for {due:.3} ({WEIGHT})"
                );
                assert_eq!(weights[i] > 0, got > 0.0, "{way} {weights:?}: {count:?}");
            }
        }
    }
}

/// Weights that change at every twentieth request, as a controller might do to follow a load: no backend
/// starves. A round that begins anew with every change would give the light one nothing.
#[test]
fn weights_changed_all_the_time_starve_no_backend() {
    for way in ways().filter(|w| w.kind != PolicyKind::First) {
        let mut policy = way.build(&[5, 100, 100]);
        let mut stream = Stream::new(policy.as_mut());
        let mut count = vec![0; 16];
        for round in 0..1_000 {
            stream.policy.set_weights(&[5, 100, 100 + round % 2]);
            let more = stream.run(20, 1_000.0, WELL);
            count.iter_mut().zip(more).for_each(|(all, c)| *all += c);
        }
        let light = share(&count, 0) / due(&way, &[5, 100, 100])[0];
        let allowed = match weight(&way) {
            Weight::Share => 0.9..=1.1,
            Weight::Bounded => 0.5..=1.1,
            // Of less than one request in flight there is no part: it comes last or, idle, first.
            Weight::Scale => 0.1..=2.2,
            Weight::Chance => 0.7..=1.4,
            Weight::InOrOut => 0.6..=1.7,
        };
        assert!(allowed.contains(&light), "{way}: {light:.2} of its part ({WEIGHT})");
    }
}

/// A slow backend gets less than its part from every policy that looks at load or latency.
#[test]
fn what_is_slow_gets_less() {
    for way in ways().filter(|w| w.kind != PolicyKind::First) {
        let mut policy = way.build(&[100; 4]);
        let slow = |i| Does::Serve(if i == 0 { 120.0 } else { 30.0 });
        let got = share(&Stream::new(policy.as_mut()).run(50_000, 400.0, slow), 0);
        let allowed = match is_blind(&way) {
            true => 0.235..0.265,
            // No backend refuses anything here: all that is seen of slowness is the time it takes.
            false if way.note == ", refusals" => 0.01..0.235,
            false => 0.001..0.12,
        };
        assert!(
            allowed.contains(&got),
            "{way}: {got} of the requests go to the slow one of four, expected {allowed:?} ({IS_BLIND})"
        );
    }
}

/// One choice is a draw and nothing else: by weight, or uniform. Four choices of four are all of them.
#[test]
fn choices_are_drawn_as_is_set_and_are_different_ones() {
    use PolicyKind::{PeakEwma, PowerOfN, PowerOfNLatency};
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    for kind in [PowerOfN, PowerOfNLatency, PeakEwma] {
        for (draw, due) in
            [(Draw::ByWeight, [0.1, 0.2, 0.3, 0.4]), (Draw::Uniform, [0.25, 0.25, 0.25, 0.25])]
        {
            let settings = Settings { choices: 1, draw, ..Settings::default() };
            let mut policy = kind.build(&[1, 2, 3, 4], &settings).unwrap();
            let count = Stream::new(policy.as_mut()).run(100_000, 1_000.0, WELL);
            for (i, due) in due.into_iter().enumerate() {
                let got = share(&count, i);
                assert!((got - due).abs() < 0.006, "{kind}, {draw:?}: {count:?}");
            }
        }
        let settings = Settings { choices: 4, ..Settings::default() };
        let mut policy = kind.build(&[1_000, 1, 1_000, 1_000], &settings).unwrap();
        let now = Nanos::from_secs_f64(1.0);
        for backend in 0..4 {
            let ms = if backend == 1 { 1 } else { 100_000 };
            let finish = plimsoll_policy::Finish::success(std::time::Duration::from_millis(ms));
            policy.on_start(backend, now);
            policy.on_finish(backend, &finish, now);
            (0..if backend == 1 { 0 } else { 3_000 }).for_each(|_| policy.on_start(backend, now));
        }
        let picked = (0..1_000).map(|_| policy.pick(&Request::default(), now, &mut rng));
        assert!(picked.into_iter().all(|p| p == Some(1)), "{kind}: the best of all four");
    }
}

/// Prequal's weights are chances to be asked.
#[test]
fn prequal_asks_by_weight() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    for (draw, due) in [(Draw::ByWeight, [0.1, 0.2, 0.7]), (Draw::Uniform, [1.0 / 3.0; 3])] {
        let prequal = PrequalSettings { probes_per_100: 100, ..PrequalSettings::default() };
        let settings = Settings { prequal, draw, ..Settings::default() };
        let mut policy = PolicyKind::Prequal.build(&[1, 2, 7], &settings).unwrap();
        let mut asked = Vec::new();
        for _ in 0..100_000 {
            policy.probe_targets(&Request::default(), Nanos::ZERO, &mut rng, &mut asked);
        }
        for (i, due) in due.into_iter().enumerate() {
            let got = asked.iter().filter(|&&a| a == i).count() as f64 / asked.len() as f64;
            assert!((got - due).abs() < 0.006, "{draw:?}: {got} of {due} to {i}");
        }
    }
}
