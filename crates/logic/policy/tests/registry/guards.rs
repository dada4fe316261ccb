//! A limit, ejection and slow start around every policy.

use std::time::Duration;

use plimsoll_model::Nanos;
use plimsoll_policy::{
    Draw, EjectionSettings, Ending, Finish, PolicyKind, PrequalSettings, Request, Settings,
    SlowStartSettings,
};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::stream::{Does, Stream, share};
use super::ways;

const WELL: fn(usize) -> Does = |_| Does::Serve(30.0);

#[test]
fn a_limit_is_never_passed_and_all_of_it_is_used() {
    let settings = Settings { max_in_flight: Some(3), ..Settings::default() };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    for way in ways() {
        let mut policy = way.guarded(&[1, 5, 2, 1], settings);
        let mut count = [0u32; 4];
        for key in 0..12 {
            let request = Request::with_key(key * 0x9e37_79b9);
            let i = policy.pick(&request, Nanos::ZERO, &mut rng).expect("not all are full");
            policy.on_start(i, Nanos::ZERO);
            count[i] += 1;
        }
        assert_eq!(count, [3; 4], "{way}");
        let mut pick = |request: Request<'_>| policy.pick(&request, Nanos::ZERO, &mut rng);
        assert_eq!(pick(Request::default()), None, "{way}: all are full");
        policy.on_finish(2, &Finish::success(Duration::from_millis(1)), Nanos::ZERO);
        let mut pick = |request: Request<'_>| policy.pick(&request, Nanos::ZERO, &mut rng);
        assert_eq!(pick(Request::with_key(7)), Some(2), "{way}");
        assert_eq!(pick(Request::with_key(7).avoiding(&[2])), None, "{way}");

        let mut policy = way.guarded(&[1, 5, 2, 1], settings);
        let mut stream = Stream::new(policy.as_mut());
        let served: u32 = stream.run(20_000, 1_000.0, WELL).iter().sum();
        assert_eq!(stream.most_in_flight, 3, "{way}");
        // Erlang B: 12 servers offered 30 serve 37.6 % of it.
        let served = f64::from(served) / 20_000.0;
        assert!((served - 0.376).abs() < 0.02, "{way}: {served:.3} served");
    }
}

/// The same with a list of limits: the last backend is not on it.
#[test]
fn limits_by_backend_are_never_passed_and_all_of_them_are_used() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    for &kind in PolicyKind::ALL {
        for (max_in_flight, most) in [(Some(2), [4, 1, 2]), (None, [4, 1, u32::MAX])] {
            let settings = Settings { max_in_flight, ..Settings::default() };
            let built = kind.build_limited(&[1, 5, 2], &settings, &[4, 1]);
            let mut policy = built.expect("valid settings");
            let mut count = [0u32; 3];
            for key in 0..7 {
                let request = Request::with_key(key * 0x9e37_79b9);
                let i = policy.pick(&request, Nanos::ZERO, &mut rng).expect("not all are full");
                policy.on_start(i, Nanos::ZERO);
                count[i] += 1;
            }
            assert!(count.iter().zip(most).all(|(c, most)| *c <= most), "{kind}: {count:?}");
            let next = policy.pick(&Request::default(), Nanos::ZERO, &mut rng);
            match max_in_flight {
                Some(_) => assert_eq!((count, next), (most, None), "{kind}"),
                None => assert!(next.is_some(), "{kind}: the last has no limit"),
            }
        }
    }
}

/// For messages: what a new policy may lack.
const RAMPING: &str = "`ramping` in src/kind.rs says how slow start reaches a policy, `outruns_slow_start` in \
     tests/registry/guards.rs which it holds back little";

/// The policies that slow start holds back little: what has the lowest latency or the least load comes first whatever its
/// weight, and where a pick is turned away the next one comes back to it.
fn outruns_slow_start(kind: PolicyKind) -> bool {
    use PolicyKind::{ExpectedDelay, PowerOfNLatency, Prequal};
    matches!(kind, PowerOfNLatency | Prequal | ExpectedDelay)
}

#[test]
fn a_backend_that_joins_or_returns_starts_slowly() {
    let slow_start = SlowStartSettings { window_ms: 20_000, least_percent: 10 };
    let settings = Settings { slow_start: Some(slow_start), ..Settings::default() };
    for way in ways().filter(|w| w.kind != PolicyKind::First) {
        let mut policy = way.guarded(&[50; 4], settings);
        let mut stream = Stream::new(policy.as_mut());
        let even = share(&stream.run(3_000, 1_000.0, WELL), 3);
        assert!(even > 0.15, "{way}: those of the first list do not ramp: {even:.3}");
        stream.policy.set_weights(&[50, 50, 50, 0]);
        stream.run(3_000, 1_000.0, WELL);
        stream.policy.set_weights(&[50; 4]);
        let parts = [0, 1, 2, 3].map(|_| share(&stream.run(7_000, 1_000.0, WELL), 3));
        // In the first third of the window the mean part is 0.19 of its weight, in the last 0.83.
        assert!(parts[0] > 0.0, "{way}: {parts:?}");
        if !outruns_slow_start(way.kind) && way.kind != PolicyKind::LeastconnHaproxy {
            assert!(
                parts[0] < 0.12 && parts[0] < parts[1] && parts[1] < parts[2],
                "{way}: {parts:?}; {RAMPING}"
            );
        }
        assert!(parts[3] > 0.15, "{way}: {parts:?}");
    }
}

/// A key that has come to a newcomer stays with it, and one that has not is where it was.
#[test]
fn keys_come_one_by_one() {
    let slow_start = SlowStartSettings { window_ms: 10_000, least_percent: 10 };
    let settings = Settings { slow_start: Some(slow_start), ..Settings::default() };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let hashes = [PolicyKind::HashRing, PolicyKind::HashMaglev];
    for way in ways().filter(|w| hashes.contains(&w.kind)) {
        let mut policy = way.guarded(&[50, 50, 50, 0], settings);
        let mut places = |policy: &mut dyn plimsoll_policy::Policy, seconds| -> Vec<usize> {
            let now = Nanos::from_secs_f64(seconds);
            let key = |k: u64| Request::with_key((k + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            (0..2_000).map(|k| policy.pick(&key(k), now, &mut rng).unwrap()).collect()
        };
        let before = places(policy.as_mut(), 0.0);
        policy.set_weights(&[50; 4]);
        let early = places(policy.as_mut(), 0.0);
        let half = places(policy.as_mut(), 5.0);
        let end = places(policy.as_mut(), 11.0);
        let new = |places: &[usize]| places.iter().filter(|&&p| p == 3).count();
        assert!(new(&early) > 20 && new(&early) < 90, "{way}: {} of 500", new(&early));
        assert!(new(&half) > 180 && new(&half) < 330, "{way}: {} of 500", new(&half));
        assert!(new(&end) > 400, "{way}: {} of 500", new(&end));
        let moved = |from: &[usize], to: &[usize]| {
            from.iter().zip(to).filter(|(b, a)| b != a && **a != 3).count()
        };
        // When a backend joins a few of a thousand move in Maglev's table, once.
        let most = if way.kind == PolicyKind::HashRing { 0 } else { 10 };
        let between = [moved(&before, &early), moved(&early, &half), moved(&half, &end)];
        assert!(between[0] <= most && between[1..] == [0, 0], "{way}: {between:?} between others");
    }
}

/// A backend that joins an empty pool, or is as cold as all others that are open, gets its full load: keys are where
/// they belong from the first request on.
#[test]
fn when_all_backends_are_cold_none_is_given_less_load() {
    let hashes = [PolicyKind::HashMap, PolicyKind::HashRing, PolicyKind::HashMaglev];
    let slow = Settings { slow_start: Some(SlowStartSettings::default()), ..Settings::default() };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let now = Nanos::from_secs_f64(1.0);
    let key = |k: u64| Request::with_key((k + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for kind in hashes {
        let mut warm = kind.build(&[100; 20], &Settings::default()).expect("valid settings");
        let mut places =
            |policy: &mut dyn plimsoll_policy::Policy, avoid: &[usize]| -> Vec<usize> {
                let mut place = |k| policy.pick(&key(k).avoiding(avoid), now, &mut rng).unwrap();
                (0..2_000).map(&mut place).collect()
            };
        for before in [&[][..], &[0; 20]] {
            let mut policy = kind.build(before, &slow).expect("valid settings");
            policy.set_weights(&[100; 20]);
            assert!(places(policy.as_mut(), &[]) == places(warm.as_mut(), &[]), "{kind}");
        }
        // The only one that was there is full.
        let full = Settings { max_in_flight: Some(1), ..slow };
        let mut before = [0; 20];
        before[7] = 100;
        let mut policy = kind.build(&before, &full).expect("valid settings");
        policy.set_weights(&[100; 20]);
        policy.on_start(7, now);
        assert!(places(policy.as_mut(), &[]) == places(warm.as_mut(), &[7]), "{kind}: one full");
    }
}

/// A uniform draw sees no weight: a newcomer is given less load all the same.
#[test]
fn a_uniform_draw_gives_a_new_backend_less_load() {
    use PolicyKind::{Bloc, PeakEwma, PowerOfN, PowerOfNLatency, Prequal};
    for kind in [PowerOfN, PowerOfNLatency, PeakEwma, Prequal, Bloc] {
        let slow_start = Some(SlowStartSettings::default());
        let settings = Settings { draw: Draw::Uniform, slow_start, ..Settings::default() };
        let mut policy = kind.build(&[100, 100, 100, 0], &settings).expect("valid settings");
        policy.set_weights(&[100; 4]);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let now = Nanos::from_secs_f64(1.0);
        let mut count = [0; 4];
        for _ in 0..10_000 {
            let i = policy.pick(&Request::default(), now, &mut rng).expect("all are open");
            policy.on_start(i, now);
            policy.on_finish(i, &Finish::success(Duration::from_millis(30)), now);
            count[i] += 1;
        }
        assert!((100..600).contains(&count[3]), "{kind}: {count:?}");
    }
}

#[test]
fn an_ejected_backend_gets_nothing_and_then_starts_slowly() {
    let settings = Settings {
        ejection: Some(EjectionSettings { base_ms: 5_000, ..EjectionSettings::default() }),
        slow_start: Some(SlowStartSettings { window_ms: 10_000, least_percent: 10 }),
        ..Settings::default()
    };
    for way in ways().filter(|w| w.kind != PolicyKind::First) {
        let mut policy = way.guarded(&[50; 4], settings);
        let mut stream = Stream::new(policy.as_mut());
        stream.run(3_000, 1_000.0, WELL);
        let from = stream.now;
        for _ in 0..5 {
            stream.policy.on_start(1, from);
            stream.policy.on_finish(1, &Finish::failure(Duration::from_millis(1)), from);
        }
        while stream.now.since(from) < Duration::from_millis(4_500) {
            assert_eq!(stream.run(100, 1_000.0, WELL)[1], 0, "{way}: ejected");
        }
        stream.run(700, 1_000.0, WELL);
        let back = share(&stream.run(1_000, 1_000.0, WELL), 1);
        let slowly = way.kind != PolicyKind::LeastconnHaproxy;
        let forgiven = back > 0.0 || way.kind == PolicyKind::PowerOfNLatency;
        assert!(forgiven && (back < 0.15 || !slowly), "{way}: {back:.3}; {RAMPING}");
        stream.run(60_000, 1_000.0, WELL);
        let well = share(&stream.run(5_000, 1_000.0, WELL), 1);
        assert!(well > 0.12, "{way}: {well:.3}");
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let ok = Settings::default();
    let eject = |e| Settings { ejection: Some(e), ..ok };
    let start = |s| Settings { slow_start: Some(s), ..ok };
    let (ejection, slow) = (EjectionSettings::default(), SlowStartSettings::default());
    let prequal = |prequal| Settings { prequal, ..ok };
    let probes = ok.prequal;
    let refused = [
        (Settings { max_in_flight: Some(0), ..ok }, "max_in_flight is 0"),
        (Settings { load_age_ms: 0, ..ok }, "load_age_ms is 0"),
        (Settings { cpu_threshold_percent: 101, ..ok }, "cpu_threshold_percent is 101"),
        (Settings { hash_balance_factor: Some(100), ..ok }, "hash_balance_factor is 100"),
        (eject(EjectionSettings { interval_ms: 0, ..ejection }), "ejection has"),
        (eject(EjectionSettings { max_ms: 1, ..ejection }), "ejection has"),
        (start(SlowStartSettings { window_ms: 0, ..slow }), "slow_start has"),
        (start(SlowStartSettings { least_percent: 0, ..slow }), "slow_start has"),
        (prequal(PrequalSettings { pool: 1, ..probes }), "prequal has"),
        (prequal(PrequalSettings { probes_per_100: 0, ..probes }), "prequal has"),
        (prequal(PrequalSettings { hot_percentile: 101, ..probes }), "prequal has"),
    ];
    for way in ways() {
        assert!(way.kind.build(&[1], &ok).is_ok());
        for (settings, expected) in refused {
            let error = way.kind.build(&[1], &settings).err().map(|e| e.to_string());
            assert!(error.as_ref().is_some_and(|e| e.starts_with(expected)), "{error:?}");
        }
    }
}

/// All fail: ejection takes the share that it may, and never the last.
#[test]
fn ejection_leaves_at_least_one_backend() {
    let settings = Settings {
        ejection: Some(EjectionSettings { max_percent: 100, ..EjectionSettings::default() }),
        ..Settings::default()
    };
    for way in ways() {
        for n in [1, 2, 5] {
            let mut policy = way.guarded(&vec![50; n], settings);
            let mut stream = Stream::new(policy.as_mut());
            let count = stream.run(3_000, 100.0, |_| Does::Say(Ending::Failure));
            assert_eq!(count.iter().sum::<u32>(), 3_000, "{way} of {n}");
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
            let last = count.iter().position(|&c| c == *count.iter().max().unwrap()).unwrap();
            let avoid_last = Request::with_key(1).avoiding(std::slice::from_ref(&last));
            let now = Nanos::from_secs_f64(30.0);
            let is_one_open = (0..n).any(|i| i != last && policy.takes(i, now));
            let before = policy.ineligible_picks();
            let picked = policy.pick(&avoid_last, now, &mut rng);
            assert_eq!(picked.is_some(), n > 1, "{way} of {n}: better an ejected one than none");
            let is_counted = policy.ineligible_picks() > before;
            assert_eq!(is_counted, n > 1 && !is_one_open, "{way} of {n}");
        }
    }
}
