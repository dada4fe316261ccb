use plimsoll_model::Curve;
use plimsoll_queueing::MmcCurve;
use plimsoll_sim::knapsack::{Climb, ExploreMode, ExploreOptions, Measurement, Step};
use plimsoll_sim::paper_pool;

/// A backend's latency over its share of the traffic.
#[derive(Debug)]
struct Truth {
    curve: MmcCurve,
    total_rps: f64,
    service_us: f64,
    capacity: f64,
}

impl Truth {
    fn latency(&self, share: f64) -> f64 {
        self.curve.latency_at(share * self.total_rps)
    }
}

/// The paper's pool at this load.
fn pool(seed: u64, load: f64) -> Vec<Truth> {
    let curves: Vec<MmcCurve> = paper_pool(seed).iter().map(|b| b.curve(30_000.0)).collect();
    let total_rps = load * curves.iter().map(Curve::capacity).sum::<f64>();
    let truth = |curve: MmcCurve| {
        let (service_us, capacity) = (curve.latency_at(0.0), curve.capacity() / total_rps);
        Truth { curve, total_rps, service_us, capacity }
    };
    curves.into_iter().map(truth).collect()
}

/// Explores a backend without noise: steps taken, w_max, and the greatest load it was given.
fn explore(truth: &Truth, first: f64, options: ExploreOptions) -> (u32, f64, f64) {
    let mut climb = Climb::new(first, options).expect("sound options");
    let mut most: f64 = 0.0;
    loop {
        match climb.pending() {
            Step::Done { w_max } => return (climb.steps(), w_max, most),
            Step::Measure(weight) => {
                most = most.max(weight / truth.capacity);
                let latency_us = truth.latency(weight);
                climb.next(&Measurement {
                    weight,
                    l0_us: truth.service_us,
                    latency_us,
                    dropped: latency_us.is_infinite(),
                });
            }
        }
    }
}

fn options(mode: ExploreMode) -> ExploreOptions {
    ExploreOptions { mode, ..ExploreOptions::default() }
}

#[test]
fn bisect_finds_where_latency_triples_within_11_steps() {
    let (mut total, mut count) = (0, 0);
    for seed in 0..10 {
        for truth in pool(seed, 0.7) {
            let (steps, w_max, _) = explore(&truth, 1.0 / 30.0, options(ExploreMode::Bisect));
            assert!((3..=11).contains(&steps), "{truth:?}: {steps} steps");
            assert!(truth.latency(w_max) < 3.0 * truth.service_us, "{truth:?}: {w_max}");
            assert!(truth.latency(1.12 * w_max) >= 3.0 * truth.service_us, "{truth:?}: {w_max}");
            total += steps;
            count += 1;
        }
    }
    let mean = f64::from(total) / f64::from(count);
    assert!((5.0..=10.0).contains(&mean), "{mean} steps in the mean");
}

#[test]
fn literal_stops_early_at_zero_where_the_first_weight_overloads() {
    let mut overloaded = 0;
    for seed in 0..10 {
        for truth in pool(seed, 0.7) {
            let (steps, w_max, _) = explore(&truth, 1.0 / 30.0, options(ExploreMode::Literal));
            assert!((2..=6).contains(&steps), "{truth:?}: {steps} steps");
            if truth.latency(1.0 / 30.0) >= 5.0 * truth.service_us {
                assert_eq!((steps, w_max), (2, 0.0), "{truth:?}");
                overloaded += 1;
            }
        }
    }
    assert!(overloaded > 50, "the paper's pool has many a small backend: {overloaded}");
}

#[test]
fn a_useful_bound_and_a_small_step_limit_the_load() {
    for truth in pool(3, 0.7) {
        let useful = 0.8 * truth.capacity;
        let gentle = ExploreOptions { useful_max: Some(useful), ..ExploreOptions::default() };
        let (_, w_max, most) = explore(&truth, (1.0 / 30.0_f64).min(useful), gentle);
        assert!(most <= 0.8 + 1e-9, "{truth:?} was driven to {most}");
        assert!(w_max > 0.5 * useful, "{truth:?}: {w_max}");
    }
}
