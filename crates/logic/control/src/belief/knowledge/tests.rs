use plimsoll_learn::Lagged;

use super::*;

impl Knowledge {
    /// One core with a certain estimate.
    pub fn known(service_us: f64) -> Self {
        let estimate = Throughput {
            service_us,
            cores: 1.0,
            capacity_rps: 1e6 / service_us,
            rel_se: 0.01,
            cores_rel_se: Some(0.01),
            lower_bound: false,
            margin: 100.0,
        };
        Knowledge { estimate: Some(estimate), ..Knowledge::default() }
    }
}

fn window(rate_rps: f64) -> Window {
    Window {
        seconds: 1.0,
        started: rate_rps,
        completed: rate_rps,
        errors: 0.0,
        wrong_answers: 0.0,
        measured_us: None,
        is_timed: true,
        in_flight: 3.0,
        seen: vec![(3, 10)],
        growth: 0.0,
        lagged: Lagged::default(),
        long_lagged: Lagged::default(),
        is_averaged: false,
    }
}

#[test]
fn the_planned_rate_distinguishes_loads_unless_the_observed_rate_differs() {
    let mut known = Knowledge::default();
    let setting = Setting { rps: Some(100.0), is_split: true };
    for rate_rps in [90.0, 110.0, 80.0, 120.0] {
        known.observe(&window(rate_rps), true, setting, None);
    }
    assert_eq!(known.points().len(), 1, "noise: {:?}", known.points());
    known.observe(&window(150.0), true, setting, None);
    assert_eq!(known.points().len(), 2, "traffic has changed: {:?}", known.points());
    assert!((known.points()[1].load - 150.0).abs() < 1e-9);
}

#[test]
fn unloaded_service_time_does_not_drift_away_with_repeated_wrong_rescaling() {
    for ratio in [0.5, 2.0] {
        let mut known = Knowledge::default();
        (0..20).for_each(|_| known.observe_unloaded(3e4));
        let setting = Setting { rps: None, is_split: true };
        for _ in 0..40 {
            known.rescale(ratio);
            (0..5).for_each(|_| known.observe(&window(100.0), true, setting, None));
            known.refit(CurveChoice::Auto, Typical::default());
            let hint_us = known.service_hint().map(|(us, _)| us);
            assert!(hint_us.is_some_and(|us| (3e3..3e5).contains(&us)), "{ratio}: {hint_us:?}");
        }
        if ratio < 1.0 {
            let capacity = known.capacity_rps();
            assert!(
                capacity.is_some_and(|rps| rps > 90.0),
                "it completes 100 a second: {capacity:?}"
            );
        }
    }
}

#[test]
fn dispersion_stays_known_through_a_change_and_a_restart() {
    let mut known = Knowledge::default();
    let setting = Setting { rps: None, is_split: true };
    let often = Window { seen: vec![(3, 40)], ..window(100.0) };
    (0..60).for_each(|_| known.observe(&often, true, setting, None));
    known.refit(CurveChoice::Auto, Typical::default());
    let known_before = known.own_dispersion();
    assert!(known_before.is_some_and(|known_before| known_before.is_known), "{known_before:?}");
    known.rescale(0.6);
    known.refit(CurveChoice::Auto, Typical::default());
    let kept = serde_json::to_string(&known).expect("it can be written");
    let back: Knowledge = serde_json::from_str(&kept).expect("it can be read");
    assert_eq!(known.own_dispersion(), known_before);
    let again = back
        .own_dispersion()
        .map(|known_before| (known_before.ratio as f32, known_before.error as f32));
    assert_eq!(
        again,
        known_before.map(|known_before| (known_before.ratio as f32, known_before.error as f32))
    );
}

#[test]
fn under_an_in_flight_method_the_number_in_flight_long_before_is_not_used() {
    let mut window = window(100.0);
    window.long_lagged.note(3, [3, 3], 1.0, 0.1);
    let lagged = |is_split: bool| observed(&window, Setting { rps: None, is_split }).long_lagged;
    assert_eq!(lagged(true), Some(window.long_lagged.clone()));
    assert_eq!(lagged(false), None);
}

#[test]
fn readings_without_a_request_in_flight_show_no_time() {
    let mut known = Knowledge::default();
    let setting = Setting { rps: None, is_split: true };
    known.observe(&window(100.0), true, setting, None);
    let idle = Window { in_flight: 0.0, seen: vec![(0, 10)], ..window(100.0) };
    known.observe(&idle, true, setting, None);
    assert_eq!(known.service_hint().map(|(us, _)| us), Some(3e4 * LEAST_CREEP));
}

#[test]
fn a_memory_without_expected_rates_is_accepted() {
    let mut known = Knowledge::default();
    known.observe(&window(100.0), true, Setting { rps: None, is_split: true }, None);
    let mut memory = serde_json::to_value(&known).expect("it can be written");
    let fields = memory.as_object_mut().expect("an object");
    assert!(fields.remove("expected_rps").is_some());
    let mut known: Knowledge = serde_json::from_value(memory).expect("it can be read");
    known.observe(&window(101.0), true, Setting { rps: None, is_split: true }, None);
    assert_eq!(known.points().len(), 1);
}
