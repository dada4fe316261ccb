//! Who gets how much.

use plimsoll_policy::PolicyKind;

use super::stream::{Does, Stream, share};
use super::{build, is_blind};

const WELL: fn(usize) -> Does = |_| Does::Serve(30.0);

/// Where latency alone decides and load does not change it, noise decides; and a ring is as even as its
/// points fall.
fn room(kind: PolicyKind) -> f64 {
    match kind {
        PolicyKind::PowerOfNLatency | PolicyKind::Prequal => 0.05,
        PolicyKind::ExpectedDelay => 0.04,
        PolicyKind::HashRing => 0.03,
        _ => 0.02,
    }
}

#[test]
fn equal_backends_get_equal_parts() {
    for &kind in PolicyKind::ALL {
        let mut policy = build(kind, &[100; 5]);
        let count = Stream::new(policy.as_mut()).run(100_000, 200.0, WELL);
        if kind == PolicyKind::First {
            assert_eq!(count[0], 100_000, "{kind}: the others can sleep");
            continue;
        }
        for i in 0..5 {
            assert!((share(&count, i) - 0.2).abs() < room(kind), "{kind}: {count:?}");
        }
    }
}

/// The policies whose weights are shares keep them; the others, loaded enough for weights to show
/// (30 in flight), come near. By latency alone, which load does not change here, a weight says only
/// who can be drawn.
#[test]
fn weights_are_heeded_and_can_change_mid_stream() {
    for &kind in PolicyKind::ALL {
        let by_latency = matches!(
            kind,
            PolicyKind::PowerOfNLatency | PolicyKind::Prequal | PolicyKind::ExpectedDelay
        );
        let mut policy = build(kind, &[40, 80, 200]);
        let mut stream = Stream::new(policy.as_mut());
        for weights in [[40u32, 80, 200], [200, 0, 40], [40, 40, 40]] {
            stream.policy.set_weights(&weights);
            stream.run(2_000, 1_000.0, WELL);
            let count = stream.run(100_000, 1_000.0, WELL);
            if kind == PolicyKind::First {
                assert_eq!(count[0], 100_000, "{kind}: weights say who is in, no more");
                continue;
            }
            for (i, &w) in weights.iter().enumerate() {
                let due = f64::from(w) / f64::from(weights.iter().sum::<u32>());
                let got = share(&count, i);
                let room = match kind {
                    PolicyKind::HashRing => 0.03,
                    _ if is_blind(kind) => 0.005,
                    _ if by_latency => 0.5,
                    _ => 0.12,
                };
                assert!((got - due).abs() < room, "{kind} {weights:?}: {count:?}");
                assert_eq!(w > 0, got > 0.0, "{kind} {weights:?}: {count:?}");
            }
        }
    }
}

/// Weights that change at every twentieth request, as a controller might do to follow a load: nobody
/// starves. A round that begins anew with every change would give the light one nothing.
#[test]
fn weights_changed_all_the_time_starve_nobody() {
    for &kind in PolicyKind::ALL.iter().filter(|k| **k != PolicyKind::First) {
        let mut policy = build(kind, &[5, 100, 100]);
        let mut stream = Stream::new(policy.as_mut());
        let mut count = vec![0; 16];
        for round in 0..1_000 {
            stream.policy.set_weights(&[5, 100, 100 + round % 2]);
            let more = stream.run(20, 1_000.0, WELL);
            count.iter_mut().zip(more).for_each(|(all, c)| *all += c);
        }
        let light = share(&count, 0) / (5.0 / 205.0);
        // By load a light backend comes last or, idle, first; by latency its weight hardly counts.
        let least = if is_blind(kind) { 0.6 } else { 0.1 };
        let most = if latency_decides(kind) { 20.0 } else { 4.0 };
        assert!((least..=most).contains(&light), "{kind}: {light:.2} of its part");
    }
}

fn latency_decides(kind: PolicyKind) -> bool {
    matches!(
        kind,
        PolicyKind::PowerOfNLatency
            | PolicyKind::Prequal
            | PolicyKind::PeakEwma
            | PolicyKind::ExpectedDelay
    )
}

/// A slow backend gets less than its part from every policy that looks at load or latency.
#[test]
fn what_is_slow_gets_less() {
    for &kind in PolicyKind::ALL.iter().filter(|k| **k != PolicyKind::First) {
        let mut policy = build(kind, &[100; 4]);
        let slow = |i| Does::Serve(if i == 0 { 120.0 } else { 30.0 });
        let got = share(&Stream::new(policy.as_mut()).run(50_000, 400.0, slow), 0);
        let even = if kind == PolicyKind::HashRing { 0.22 } else { 0.24 };
        assert_eq!(got > even, is_blind(kind), "{kind}: {got}");
        assert!(got > 0.001, "{kind}: it must still be heard of");
    }
}
