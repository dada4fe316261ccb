//! What fails or refuses fast must not attract load, nor what hangs keep it.

use plimsoll_policy::{EjectionSettings, Ending, PolicyKind, Settings};

use super::stream::{Does, Stream, share};
use super::{IS_BLIND, is_blind, ways};

const WELL: fn(usize) -> Does = |_| Does::Serve(30.0);

/// A fifth, and noise: more than that is attraction.
const PART: f64 = 0.21;
/// What is too late counts as if it were served: a fifth, and the noise of latencies that are learned.
const PART_AS_SERVED: f64 = 0.3;
const BEGINNINGS: u64 = 32;

fn first_is(does: Does) -> impl Fn(usize) -> Does {
    move |i| if i == 0 { does } else { Does::Serve(30.0) }
}

/// Backend 0 answers in a millisecond, with a failure, where the others take 30 ms. It must not get
/// more than its part, neither at first nor for long, and must be found when it is well again.
#[test]
fn what_fails_fast_does_not_attract_load() {
    for way in ways() {
        for rate_rps in [30.0, 300.0, 3_000.0] {
            let mut policy = way.build(&[100; 5]);
            let mut stream = Stream::new(policy.as_mut());
            stream.run(5_000, rate_rps, WELL);
            let sick = first_is(Does::Say(Ending::Failure));
            let first = share(&stream.run(1_000, rate_rps, &sick), 0);
            let then = share(&stream.run(20_000, rate_rps, &sick), 0);
            if way.kind == PolicyKind::LeastconnHaproxy {
                // HAProxy's own behaviour, kept.
                assert!(rate_rps < 100.0 || then > 0.5, "{way} at {rate_rps}: {then}");
                continue;
            }
            assert!(first < PART + 0.03, "{way} at {rate_rps}/s: {first:.3} of the first 1,000");
            assert!(then < PART, "{way} at {rate_rps}/s: {then:.3}");
            stream.run((rate_rps * 120.0) as u32, rate_rps, WELL);
            let well = share(&stream.run(20_000, rate_rps, WELL), 0);
            assert!(well > 0.13, "{way} at {rate_rps}/s: {well:.3} when well again");
        }
    }
}

/// One that has done nothing but fail, or refuse, since the first request, while nothing is known of the
/// others either: it gets no more than its part of the first few requests, nor of those after them.
#[test]
fn what_fails_from_the_very_first_request_does_not_attract_load() {
    for way in ways().filter(|w| w.kind != PolicyKind::LeastconnHaproxy) {
        for ending in [Ending::Failure, Ending::Rejected, Ending::TooLate] {
            for rate_rps in [30.0f64, 300.0, 3_000.0] {
                let sick = first_is(Does::Say(ending));
                // For ten services, of which the first to end are the shortest, or more; so few are a
                // matter of chance, so it is the mean of many beginnings.
                let few = (0.3 * rate_rps).max(200.0) as u32;
                let of_first = |seed| {
                    let mut policy = way.build(&[100; 5]);
                    share(&Stream::seeded(policy.as_mut(), seed).run(few, rate_rps, &sick), 0)
                };
                let first = (0..BEGINNINGS).map(of_first).sum::<f64>() / BEGINNINGS as f64;
                let mut policy = way.build(&[100; 5]);
                let mut stream = Stream::new(policy.as_mut());
                stream.run(few, rate_rps, &sick);
                let then = share(&stream.run(5_000, rate_rps, &sick), 0);
                let what = format!("{way}, {ending:?} at {rate_rps}/s: {first:.3}, {then:.3}");
                let most = if ending == Ending::TooLate { PART_AS_SERVED } else { PART };
                assert!(first < most && then < most, "{what}");
            }
        }
    }
}

/// The same with refusals of its admission: busy, or too slow for its clients, so it gets no more than its part;
/// but not broken.
#[test]
fn what_refuses_fast_does_not_attract_load() {
    let endings = [Ending::Rejected, Ending::TooLate];
    for (way, ending) in ways().flat_map(|way| endings.map(|ending| (way, ending))) {
        if way.kind == PolicyKind::LeastconnHaproxy {
            continue;
        }
        for rate_rps in [30.0, 300.0, 3_000.0] {
            let mut policy = way.build(&[100; 5]);
            let mut stream = Stream::new(policy.as_mut());
            stream.run(5_000, rate_rps, WELL);
            let busy = first_is(Does::Say(ending));
            stream.run(1_000, rate_rps, &busy);
            let then = share(&stream.run(20_000, rate_rps, &busy), 0);
            let most = if ending == Ending::TooLate { PART_AS_SERVED } else { PART };
            assert!(then < most, "{way}, {ending:?} at {rate_rps}/s: {then:.3}");
            stream.run((rate_rps * 60.0) as u32, rate_rps, WELL);
            let well = share(&stream.run(20_000, rate_rps, WELL), 0);
            assert!(well > 0.13, "{way} at {rate_rps}/s: {well:.3} when it has room again");
        }
    }
}

/// Backend 0 takes requests and never answers, and its clients leave after ten means or more. Who looks at
/// load or latency sends it little, whether it hangs from the first request on or later, and finds it when it
/// is well again.
#[test]
fn what_hangs_does_not_keep_its_load() {
    for way in ways().filter(|w| !is_blind(w)) {
        for (rate_rps, ms) in [(30.0f64, 1_000), (300.0, 300), (300.0, 1_000), (3_000.0, 300)] {
            let what = format!("{way} at {rate_rps}/s, {ms} ms");
            let hangs = first_is(Does::Hang(ms));
            for before in [0, 5_000] {
                // What was learned of a backend that is seldom asked stays wrong for a while now and then: of three runs
                // the one in the middle.
                let mut shares = [7, 8, 9].map(|seed| {
                    let mut policy = way.build(&[100; 5]);
                    let mut stream = Stream::seeded(policy.as_mut(), seed);
                    stream.run(before, rate_rps, WELL);
                    stream.run((rate_rps * 20.0) as u32, rate_rps, &hangs);
                    let then = share(&stream.run(20_000, rate_rps, &hangs), 0);
                    stream.run((rate_rps * 120.0) as u32, rate_rps, WELL);
                    (then, share(&stream.run(20_000, rate_rps, WELL), 0))
                });
                shares.sort_by(|a, b| a.0.total_cmp(&b.0));
                let then = shares[1].0;
                // `first` fills it up to its limit each time that it tries it again.
                let most = if way.kind == PolicyKind::First { 1.0 } else { 0.25 } * PART;
                assert!(
                    then < most,
                    "{what}: {then:.3} of the requests go to it, expected at most {most:.3} ({IS_BLIND})"
                );
                shares.sort_by(|a, b| a.1.total_cmp(&b.1));
                let well = shares[1].1;
                assert!(before == 0 || well > 0.13, "{what}: {well:.3} when well again");
            }
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
    for way in ways() {
        let after = |does, settings| {
            let mut policy = way.guarded(&[100; 5], settings);
            let mut stream = Stream::new(policy.as_mut());
            stream.run(5_000, 300.0, WELL);
            share(&stream.run(20_000, 300.0, first_is(does)), 0)
        };
        let broken = after(Does::Say(Ending::Failure), settings);
        assert!(broken < 0.03, "{way}: {broken:.4} to what is broken");
        let hangs = after(Does::Hang(1_000), settings);
        // `first` fills it up to its limit each time that it returns.
        let most = if way.kind == PolicyKind::First { 0.15 } else { 0.05 };
        assert!(hangs < most, "{way}: {hangs:.4} to what hangs");
        let busy = Does::Say(Ending::Rejected);
        let busy = [settings, Settings::default()].map(|s| after(busy, s));
        assert_eq!(busy[0], busy[1], "{way}: refusals must not eject");
        assert!(!is_blind(&way) || busy[0] > 0.15, "{way}: {busy:?}");
    }
}
