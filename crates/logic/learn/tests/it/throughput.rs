use plimsoll_learn::{
    Hints, InFlightWindow, Throughput, ThroughputEstimator, ThroughputOptions, WindowError,
};

use crate::queues::{Server, Service};

const SERVICE_S: f64 = 0.03;
const SEEDS: u64 = 20;

fn watched(
    cores: usize,
    service: Service,
    loads: &[f64],
    poll_s: f64,
    seed: u64,
) -> ThroughputEstimator {
    let mut server = Server::new(cores, service, SERVICE_S, seed);
    let mut estimator = ThroughputEstimator::new(ThroughputOptions::default());
    for &utilisation in loads {
        for window in server.windows(utilisation, 60, poll_s) {
            estimator.observe(&window).expect("a sound window");
        }
    }
    estimator
}

fn watch(cores: usize, service: Service, loads: &[f64], poll_s: f64, seed: u64) -> Throughput {
    watched(cores, service, loads, poll_s, seed)
        .estimate(Hints::default())
        .expect("enough completions")
}

/// Root mean square over seeds of the relative errors in cores and capacity, and of the capacity's error in units of
/// the claimed standard error.
fn errors(cores: usize, service: Service, loads: &[f64], poll_s: f64) -> [f64; 3] {
    let capacity = cores as f64 / SERVICE_S;
    let mut squares = [0.0; 3];
    for seed in 0..SEEDS {
        let got = watch(cores, service, loads, poll_s, seed);
        assert!(!got.lower_bound, "{cores} cores, {service:?}, seed {seed}: a queue was seen");
        let off = got.capacity_rps / capacity - 1.0;
        for (square, error) in
            squares.iter_mut().zip([got.cores / cores as f64 - 1.0, off, off / got.rel_se])
        {
            *square += error * error;
        }
    }
    squares.map(|square| (square / SEEDS as f64).sqrt())
}

#[test]
fn cores_and_capacity_are_found_from_three_loads() {
    for cores in [1, 2, 4, 8] {
        for (service, cores_within, capacity_within) in [
            (Service::Exponential, 0.10, 0.04),
            (Service::Deterministic, 0.05, 0.02),
            // Its variance is five times the exponential's: the capacity is found, cores only roughly.
            (Service::Bimodal, 0.40, 0.06),
        ] {
            let [of_cores, of_capacity, claimed] = errors(cores, service, &[0.4, 0.7, 0.95], 0.05);
            let what =
                format!("{cores} cores, {service:?}: {of_cores:.3} {of_capacity:.3} {claimed:.2}");
            assert!(of_cores <= cores_within, "{what}");
            assert!(of_capacity <= capacity_within, "{what}");
            assert!(claimed <= 2.5, "the claimed error is too small: {what}");
        }
    }
}

#[test]
fn polls_at_200_ms_are_enough_for_capacity() {
    for cores in [1, 2, 4, 8] {
        let [_, of_capacity, _] = errors(cores, Service::Exponential, &[0.4, 0.7, 0.95], 0.2);
        assert!(of_capacity <= 0.03, "{cores} cores: {of_capacity}");
    }
}

#[test]
fn loads_of_a_closed_loop_are_enough() {
    for cores in [1, 2, 4, 8] {
        let [_, of_capacity, _] = errors(cores, Service::Exponential, &[0.5, 0.9, 0.7, 0.8], 0.2);
        assert!(of_capacity <= 0.05, "{cores} cores: {of_capacity}");
    }
}

#[test]
fn without_a_queue_capacity_is_a_lower_bound() {
    // At one load alone, blocks with more in flight complete less by noise: that is no saturation.
    for (cores, loads) in [(4, [0.1, 0.2, 0.3]), (8, [0.1, 0.2, 0.3]), (8, [0.4, 0.4, 0.4])] {
        let (truth, carried) = (cores as f64 / SERVICE_S, loads[2] * cores as f64 / SERVICE_S);
        let mut bounds = 0;
        for seed in 0..SEEDS {
            let got = watch(cores, Service::Exponential, &loads, 0.2, seed);
            let what = format!("{cores} cores at {loads:?}, seed {seed}: {got:?}");
            bounds += u64::from(got.lower_bound);
            assert_eq!(got.lower_bound, got.cores_rel_se.is_none(), "{what}");
            assert!(got.capacity_rps <= 1.1 * truth, "{what}");
            assert!(got.capacity_rps >= 0.9 * carried, "{what}");
        }
        // Two standard deviations are required, so one false find in 20 is expected.
        assert!(bounds + 2 >= SEEDS, "{cores} cores at {loads:?}: {bounds} of {SEEDS}");
    }
}

#[test]
fn a_known_service_time_determines_the_cores_at_one_load() {
    for cores in [1, 2, 4, 8] {
        let estimator = watched(cores, Service::Exponential, &[0.85], 0.05, 3);
        let blind = estimator.estimate(Hints::default()).expect("enough completions");
        let held = estimator
            .estimate(Hints { service: Some((1e6 * SERVICE_S, 0.02)), ..Hints::default() })
            .expect("enough completions");
        let truth = cores as f64 / SERVICE_S;
        assert!(blind.lower_bound && blind.capacity_rps <= 1.1 * truth, "{cores} cores: {blind:?}");
        assert!((held.capacity_rps / truth - 1.0).abs() <= 0.1, "{cores} cores: {held:?}");
    }
}

#[test]
fn lagged_pairs_determine_the_cores_at_one_load_for_good() {
    use Service::{Bimodal, Deterministic, Exponential};
    let scattered = [(1, 0.5), (1, 0.7), (2, 0.5), (2, 0.7), (4, 0.7), (4, 0.85), (8, 0.85)];
    let regular = [(1, 0.5), (1, 0.85), (2, 0.5), (2, 0.7), (4, 0.7), (8, 0.85)];
    // With a great dispersion more cores than these take longer than this test.
    let bimodal = [(1, 0.5), (1, 0.7), (1, 0.85), (2, 0.7), (2, 0.85)];
    let scattered = scattered.map(|load| (Exponential, load));
    let regular = regular.map(|load| (Deterministic, load));
    let bimodal = bimodal.map(|load| (Bimodal, load));
    for (service, (cores, load)) in scattered.into_iter().chain(regular).chain(bimodal) {
        let (mut right, mut flips, mut estimates) = (0, 0, 0);
        for seed in 0..SEEDS {
            let mut server = Server::new(cores, service, SERVICE_S, seed).followed();
            let mut estimator = ThroughputEstimator::new(ThroughputOptions::default());
            let (mut held, mut last) = (None, None);
            for round in 0..24 {
                for window in server.windows(load, 25, 0.025) {
                    estimator.observe(&window).expect("a sound window");
                }
                let Some(got) = estimator.estimate(Hints { cores: held, ..Hints::default() })
                else {
                    continue;
                };
                // As in the controller: held once they are certain, until they are contradicted.
                held = if got.margin >= 16.0 {
                    Some(got.cores)
                } else {
                    held.filter(|c| *c == got.cores)
                };
                if round >= 12 {
                    estimates += 1;
                    right += u32::from(!got.lower_bound && got.cores == cores as f64);
                    flips += u32::from(last.is_some_and(|c| c != got.cores));
                    last = Some(got.cores);
                }
            }
        }
        let what =
            format!("{service:?}, {cores} cores at {load}: {right} of {estimates}, {flips} flips");
        assert!(10 * right >= 8 * estimates, "{what}");
        assert!(25 * flips <= estimates, "{what}");
    }
}

#[test]
fn dispersion_is_inferred_from_completions() {
    use Service::{Bimodal, Deterministic, Exponential};
    for (service, least, most) in
        [(Exponential, 0.7, 1.5), (Deterministic, 0.0, 0.3), (Bimodal, 2.8, 6.0)]
    {
        for (cores, load, poll_s) in [(1, 0.5, 0.025), (4, 0.5, 0.025), (4, 0.85, 0.05)] {
            for seed in 0..5 {
                let mut server = Server::new(cores, service, SERVICE_S, seed).followed();
                let mut estimator = ThroughputEstimator::new(ThroughputOptions::default());
                let mut observe = |windows: Vec<InFlightWindow>| {
                    for window in windows {
                        estimator.observe(&window).expect("a sound window");
                    }
                    estimator.dispersion(cores as f64).expect("polls are close enough")
                };
                assert!(!observe(server.windows(load, 10, poll_s)).is_known, "ten windows");
                let got = observe(server.windows(load, 600, poll_s));
                let what = format!("{service:?}, {cores} cores at {load}, seed {seed}: {got:?}");
                assert!(got.is_known && (least..=most).contains(&got.ratio), "{what}");
            }
        }
    }
}

#[test]
fn polls_too_far_apart_show_no_dispersion() {
    let estimator = watched(2, Service::Exponential, &[0.5], 0.2, 1);
    assert_eq!(estimator.dispersion(2.0), None, "6 services from one to the next");
}

#[test]
fn a_backend_that_changed_is_learned_again() {
    let mut estimator = ThroughputEstimator::new(ThroughputOptions { memory_requests: 2_000.0 });
    for (cores, loads) in [(8, [0.4, 0.9]), (2, [0.5, 0.9])] {
        let mut server = Server::new(cores, Service::Exponential, SERVICE_S, 11);
        for _ in 0..4 {
            for load in loads {
                for window in server.windows(load, 60, 0.2) {
                    estimator.observe(&window).expect("a sound window");
                }
            }
        }
    }
    let got = estimator.estimate(Hints::default()).expect("enough completions");
    assert!((got.capacity_rps * SERVICE_S / 2.0 - 1.0).abs() < 0.1, "{got:?}");
    estimator.reset();
    assert_eq!(estimator.estimate(Hints::default()), None);
}

#[test]
fn a_backend_that_needs_seconds_per_request_is_known_after_a_few() {
    let mut estimator = ThroughputEstimator::new(ThroughputOptions::default());
    // One request after the other, 3 s each, while others wait.
    for second in 1..=12 {
        let completions = if second % 3 == 0 { 1.0 } else { 0.0 };
        let window = InFlightWindow {
            seconds: 1.0,
            completions,
            levels: vec![(9, 40)],
            ..InFlightWindow::default()
        };
        estimator.observe(&window).expect("a sound window");
        let got = estimator.estimate(Hints::default());
        assert_eq!(got.is_some(), second >= 9, "{got:?}");
    }
    let got = estimator.estimate(Hints::default()).expect("four completions");
    assert!((0.2..0.5).contains(&got.capacity_rps) && got.rel_se > 0.2, "{got:?}");
}

#[test]
fn memory_is_bounded_and_survives_storage() {
    let mut estimator = ThroughputEstimator::new(ThroughputOptions { memory_requests: 0.0 });
    let mut server = Server::new(2, Service::Exponential, SERVICE_S, 5);
    for window in server.windows(0.8, 1_000, 0.2) {
        estimator.observe(&window).expect("a sound window");
    }
    let stored = serde_json::to_string(&estimator).expect("serialisable");
    assert!(stored.len() < 20_000, "{} bytes", stored.len());
    let back: ThroughputEstimator = serde_json::from_str(&stored).expect("the same shape");
    let (before, after) = (estimator.estimate(Hints::default()), back.estimate(Hints::default()));
    let (before, after) = (before.expect("known"), after.expect("known"));
    assert!((before.capacity_rps / after.capacity_rps - 1.0).abs() < 1e-9);
}

#[test]
fn invalid_windows_are_refused() {
    let mut estimator = ThroughputEstimator::new(ThroughputOptions::default());
    let good = InFlightWindow {
        seconds: 1.0,
        completions: 30.0,
        levels: vec![(1, 5)],
        ..InFlightWindow::default()
    };
    let refused = [
        (InFlightWindow { seconds: 0.0, ..good.clone() }, WindowError::Length(0.0)),
        (InFlightWindow { completions: -1.0, ..good.clone() }, WindowError::Completions(-1.0)),
        (InFlightWindow { levels: vec![(3, 0)], ..good.clone() }, WindowError::NoPolls),
    ];
    for (window, error) in refused {
        assert_eq!(estimator.observe(&window), Err(error));
    }
    assert_eq!(estimator.estimate(Hints::default()), None, "nothing known yet");
    let idle = InFlightWindow { levels: vec![(0, 5)], ..good.clone() };
    estimator.observe(&idle).expect("polls that miss every request are possible");
    assert_eq!(estimator.estimate(Hints::default()), None, "nothing was ever in flight at a poll");
    estimator.observe(&good).expect("a sound window");
    let got = estimator.estimate(Hints::default()).expect("60 completions");
    assert!(got.lower_bound && got.cores == 1.0, "{got:?}");
}
