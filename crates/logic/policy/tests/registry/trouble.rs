//! What fails or refuses fast must not attract load.

use plimsoll_policy::{EjectionSettings, Ending, PolicyKind, Settings};

use super::stream::{Does, Stream, share};
use super::{build, build_with, is_blind};

const WELL: fn(usize) -> Does = |_| Does::Serve(30.0);

fn first_is(does: Does) -> impl Fn(usize) -> Does {
    move |i| if i == 0 { does } else { Does::Serve(30.0) }
}

/// Backend 0 answers in a millisecond, with a failure, where the others take 30 ms. It must not get
/// more than its part, neither at first nor for long, and must be found when it is well again.
#[test]
fn what_fails_fast_does_not_attract_load() {
    for &kind in PolicyKind::ALL {
        for rate_rps in [30.0, 300.0, 3_000.0] {
            let mut policy = build(kind, &[100; 5]);
            let mut stream = Stream::new(policy.as_mut());
            let before = share(&stream.run(5_000, rate_rps, WELL), 0);
            let sick = first_is(Does::Say(Ending::Failure));
            let first = share(&stream.run(1_000, rate_rps, &sick), 0);
            let then = share(&stream.run(20_000, rate_rps, &sick), 0);
            if kind == PolicyKind::LeastconnHaproxy {
                // HAProxy's own behaviour, kept.
                assert!(rate_rps < 100.0 || then > 0.5, "{kind} at {rate_rps}: {then}");
                continue;
            }
            let part = before.max(0.2) + 0.01;
            assert!(first < part + 0.09, "{kind} at {rate_rps}/s: {first:.3} of the first 1,000");
            assert!(then < part, "{kind} at {rate_rps}/s: {then:.3}");
            stream.run((rate_rps * 120.0) as u32, rate_rps, WELL);
            let well = share(&stream.run(20_000, rate_rps, WELL), 0);
            assert!(well > 0.13, "{kind} at {rate_rps}/s: {well:.3} when well again");
        }
    }
}

/// The same with refusals of its admission: busy, so it gets no more than its part; but not broken.
#[test]
fn what_refuses_fast_does_not_attract_load() {
    for &kind in PolicyKind::ALL {
        if kind == PolicyKind::LeastconnHaproxy {
            continue;
        }
        for rate_rps in [30.0, 300.0, 3_000.0] {
            let mut policy = build(kind, &[100; 5]);
            let mut stream = Stream::new(policy.as_mut());
            let before = share(&stream.run(5_000, rate_rps, WELL), 0);
            let busy = first_is(Does::Say(Ending::Rejected));
            stream.run(1_000, rate_rps, &busy);
            let then = share(&stream.run(20_000, rate_rps, &busy), 0);
            let part = before.max(0.2) + 0.01;
            assert!(then < part, "{kind} at {rate_rps}/s: {then:.3}");
            stream.run((rate_rps * 60.0) as u32, rate_rps, WELL);
            let well = share(&stream.run(20_000, rate_rps, WELL), 0);
            assert!(well > 0.13, "{kind} at {rate_rps}/s: {well:.3} when it has room again");
        }
    }
}

/// With ejection every policy sends the sick one next to nothing, HAProxy's leastconn included, and what
/// is only busy keeps getting what the policy gives it.
#[test]
fn ejection_is_for_the_broken_not_for_the_busy() {
    let settings = Settings {
        ejection: Some(EjectionSettings { base_ms: 1_000, ..EjectionSettings::default() }),
        ..Settings::default()
    };
    for &kind in PolicyKind::ALL {
        let after = |ending, settings| {
            let mut policy = build_with(kind, &[100; 5], settings);
            let mut stream = Stream::new(policy.as_mut());
            stream.run(5_000, 300.0, WELL);
            share(&stream.run(20_000, 300.0, first_is(Does::Say(ending))), 0)
        };
        let broken = after(Ending::Failure, settings);
        assert!(broken < 0.03, "{kind}: {broken:.4} to what is broken");
        let busy = [settings, Settings::default()].map(|s| after(Ending::Rejected, s));
        assert_eq!(busy[0], busy[1], "{kind}: refusals must not eject");
        assert!(!is_blind(kind) || busy[0] > 0.15, "{kind}: {busy:?}");
    }
}
