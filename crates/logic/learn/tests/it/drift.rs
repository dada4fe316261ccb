//! A change of a backend is detected soon, and traffic, weights and noise are not mistaken for one.

use plimsoll_learn::drift::{Change, Interval, RateWatch, Tolerance};

#[path = "../../examples/drift/backend.rs"]
mod backend;
use backend::{Backend, Service};

const SERVICE_S: f64 = 0.03;
const POLL_S: f64 = 0.025;

fn backend(cores: u32, load: f64, seed: u64) -> (Backend, RateWatch) {
    let arrivals = load * f64::from(cores) / SERVICE_S;
    let backend = Backend::new(arrivals, SERVICE_S, Service::Exponential, cores, seed);
    (backend, RateWatch::new(f64::from(cores), Tolerance::default()))
}

fn run(backend: &mut Backend, watch: &mut RateWatch, seconds: f64) -> Option<(f64, Change)> {
    let mut requests = 0.0;
    for _ in 0..(seconds / POLL_S) as u64 {
        let interval = backend.poll(POLL_S);
        requests += interval.completions;
        if let Some(change) = watch.note(&interval) {
            return Some((requests, change));
        }
    }
    None
}

#[test]
fn a_slow_down_to_60_percent_is_detected_within_150_requests() {
    for cores in [1, 2] {
        let mut needed: Vec<f64> = (1..=41)
            .map(|seed| {
                let (mut b, mut watch) = backend(cores, 0.7, seed);
                assert_eq!(run(&mut b, &mut watch, 300.0), None, "seed {seed}");
                b.service_s /= 0.6;
                let (requests, change) = run(&mut b, &mut watch, 120.0).expect("it is seen");
                assert!((0.4..0.75).contains(&change.ratio), "{change:?}");
                requests
            })
            .collect();
        needed.sort_by(f64::total_cmp);
        assert!(needed[20] <= 150.0, "{cores} cores: median {}", needed[20]);
    }
}

#[test]
fn a_speed_up_is_detected_with_the_right_ratio() {
    let (mut b, mut watch) = backend(4, 0.7, 5);
    run(&mut b, &mut watch, 300.0);
    b.service_s /= 1.5;
    let (_, change) = run(&mut b, &mut watch, 120.0).expect("it is seen");
    assert!((1.3..1.75).contains(&change.ratio), "{change:?}");
    assert_eq!(run(&mut b, &mut watch, 600.0), None, "it is the new normal");
    let rate = watch.reference().expect("a reference");
    assert!((rate * SERVICE_S / 1.5 - 1.0).abs() < 0.1, "{rate}");
}

/// With a wrong number of cores traffic looks like a change, but not like one that no number of cores explains; a
/// slow-down is one with any number.
#[test]
fn changes_that_cores_may_explain_are_distinguished_from_others() {
    let detected = |believed: f64, change: fn(&mut Backend)| {
        let mut backend =
            Backend::new(0.6 * 4.0 / SERVICE_S, SERVICE_S, Service::Exponential, 4, 8);
        let mut watch = RateWatch::new(believed, Tolerance::default());
        let mut poll = |backend: &mut Backend| watch.note(&backend.poll(POLL_S));
        assert!((0..12_000).all(|_| poll(&mut backend).is_none()));
        change(&mut backend);
        (0..12_000).find_map(|_| poll(&mut backend))
    };
    let overloaded = detected(16.0, |b| b.arrivals *= 1.7).expect("many wait, hardly more leave");
    assert_eq!((overloaded.ratio < 1.0, overloaded.is_beyond_cores), (true, false));
    for believed in [2.0, 4.0, 16.0] {
        let slowed = |b: &mut Backend| b.service_s /= 0.4;
        let change = detected(believed, slowed).expect("it is seen");
        assert_eq!((change.ratio < 1.0, change.is_beyond_cores), (true, true), "{believed}");
    }
}

#[test]
fn more_and_less_traffic_is_no_change_of_the_backend() {
    for (seed, cores) in [(1, 1), (2, 2), (3, 4), (4, 8)] {
        let (mut b, mut watch) = backend(cores, 0.7, seed);
        let usual = b.arrivals;
        for part in [1.0, 1.2, 0.8, 1.4, 0.3, 1.0] {
            b.arrivals = part * usual;
            assert_eq!(
                run(&mut b, &mut watch, 300.0),
                None,
                "{cores} cores, {part} of the traffic"
            );
        }
    }
}

#[test]
fn noise_of_every_kind_raises_no_alarm() {
    for service in [Service::Exponential, Service::Deterministic, Service::Bimodal] {
        for (seed, cores) in [(1, 1), (2, 2), (3, 8)] {
            let arrivals = 0.7 * f64::from(cores) / SERVICE_S;
            let mut b = Backend::new(arrivals, SERVICE_S, service, cores, seed);
            let mut watch = RateWatch::new(f64::from(cores), Tolerance::default());
            assert_eq!(run(&mut b, &mut watch, 3_600.0), None, "{service:?}, {cores} cores");
        }
    }
}

#[test]
fn coarse_polls_and_wrong_cores_do_not_make_noise_a_change() {
    let (mut b, _) = backend(4, 0.7, 9);
    // With an infinite number of cores every request in flight counts as being served.
    for cores in [4.0, 2.0, f64::INFINITY] {
        let mut watch = RateWatch::new(cores, Tolerance::default());
        for _ in 0..7_200 {
            assert_eq!(watch.note(&b.poll(1.0)), None, "{cores} cores");
        }
    }
}

#[test]
fn an_idle_backend_is_watched_by_its_probes() {
    let mut probe = Backend::new(1.0, 1.0, Service::Exponential, 1, 3);
    let mut latency = move |seconds: f64| {
        probe.service_s = seconds;
        probe.service_time()
    };
    let mut watch = RateWatch::new(1.0, Tolerance::default());
    for _ in 0..5_000 {
        assert_eq!(watch.note_probe(latency(0.03), 1.0), None);
    }
    let seen = (1..400).find_map(|n| Some((n, watch.note_probe(latency(0.05), 1.0)?.seconds)));
    let (probes, seconds) = seen.expect("its probes take longer");
    assert!(probes <= 250, "{probes}");
    let since = f64::from(probes);
    assert!((0.5 * since..=1.5 * since).contains(&seconds), "{seconds} s, probed for {since} s");
}

#[test]
fn invalid_intervals_are_ignored() {
    let mut watch = RateWatch::new(f64::NAN, Tolerance::default());
    assert_eq!(watch.cores(), 1.0);
    for _ in 0..1_000 {
        for completions in [f64::NAN, -1.0, f64::INFINITY] {
            let interval = Interval { seconds: 0.1, before: 1, after: 1, completions };
            assert_eq!(watch.note(&interval), None);
        }
        assert_eq!(watch.note_probe(f64::NAN, 1.0), None);
    }
    assert_eq!(watch.reference(), None);
}
