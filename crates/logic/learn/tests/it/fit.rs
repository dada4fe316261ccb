use plimsoll_learn::{
    CapacityHint, CurveFit, Family, FitError, FitOptions, FittedCurve, IdleLatency, Point, fit,
};
use plimsoll_model::{Curve, Hyperbola};
use rand::Rng;

use crate::queues::{Mmc, normal, pool, rng};

fn point(load: f64, latency_us: f64) -> Point {
    Point { load, latency_us, requests: 400.0 }
}

fn on(curve: impl Fn(f64) -> f64, loads: &[f64]) -> Vec<Point> {
    loads.iter().map(|&load| point(load, curve(load))).collect()
}

fn forced(family: Family) -> FitOptions {
    FitOptions { family: Some(family), ..FitOptions::default() }
}

/// Holds for every fit, whatever it was fitted to.
fn check_sound(fit: &CurveFit, what: &str) {
    let capacity = fit.curve.capacity();
    assert!(capacity.is_finite() && capacity > fit.largest_load, "{what}: {fit:?}");
    assert!(fit.max_load() < capacity && fit.max_load() >= fit.largest_load, "{what}: {fit:?}");
    assert!(fit.residual.is_finite() && fit.l0_us.is_finite(), "{what}: {fit:?}");
    assert!(fit.cv_error.is_none_or(f64::is_finite), "{what}: {fit:?}");
    let mut last = 0.0;
    for i in 0..=200 {
        let load = fit.max_load() * f64::from(i) / 200.0;
        let (latency, marginal) = (fit.curve.latency_at(load), fit.curve.marginal_at(load));
        assert!(latency.is_finite() && latency > 0.0, "{what}: {latency} at {load}: {fit:?}");
        assert!(latency >= last * (1.0 - 1e-9), "{what}: falls at {load}: {fit:?}");
        assert!(marginal.is_finite() && marginal >= latency * (1.0 - 1e-9), "{what}: {fit:?}");
        last = latency;
    }
    assert_eq!(fit.curve.latency_at(capacity), f64::INFINITY, "{what}");
}

#[test]
fn a_hyperbola_is_recovered() {
    let truth = Hyperbola { a: 20_000.0, b: 90_000.0, c: 13.0 };
    let points = on(|x| truth.latency_at(x), &[0.0, 2.0, 5.0, 8.0, 10.0, 11.5]);
    let got = fit(&points, &FitOptions::default()).expect("sound points");
    check_sound(&got, "exact");
    let curve = got.curve.as_hyperbola().expect("the default family");
    assert!((curve.c / truth.c - 1.0).abs() < 1e-3, "{curve:?}");
    assert!((got.l0_us / truth.latency_at(0.0) - 1.0).abs() < 1e-3);
    assert!(!got.capacity_is_lower_bound);
    assert!(got.residual < 1e-3 && got.cv_error.expect("six loads") < 0.02, "{got:?}");
}

#[test]
fn one_load_and_two_loads_use_documented_fallbacks() {
    let flat =
        fit(&[point(5.0, 70.0), point(5.0, 90.0)], &FitOptions::default()).expect("one load");
    check_sound(&flat, "one load");
    assert!(flat.capacity_is_lower_bound && flat.points == 1 && flat.cv_error.is_none());
    assert_eq!(flat.curve.latency_at(1.0), 80.0);

    let about = CapacityHint { about: Some((20.0, 0.2)), ..CapacityHint::default() };
    let options = FitOptions { capacity: about, ..FitOptions::default() };
    let shaped = fit(&[point(5.0, 80.0)], &options).expect("one load and a capacity");
    assert!((shaped.l0_us - 60.0).abs() < 1e-9, "M/M/1 through the point: {shaped:?}");
    let idle = Some(IdleLatency { latency_us: 40.0, requests: 100.0 });
    let only_idle = fit(&[], &FitOptions { idle, ..options }).expect("l0 and a capacity");
    check_sound(&only_idle, "l0 and a capacity");
    assert!((only_idle.curve.latency_at(10.0) / 80.0 - 1.0).abs() < 1e-9);

    let anchored = FitOptions { idle, ..FitOptions::default() };
    let two = fit(&[point(5.0, 80.0)], &anchored).expect("a load and l0");
    check_sound(&two, "two loads");
    assert!(two.capacity_is_lower_bound, "two loads do not name a capacity: {two:?}");
    let known = FitOptions { idle, ..options };
    let two = fit(&[point(5.0, 80.0)], &known).expect("a load, l0 and a capacity");
    assert!(!two.capacity_is_lower_bound && two.curve.capacity() <= 20.0, "{two:?}");
}

#[test]
fn hints_bound_the_capacity() {
    let flat = on(|_| 50.0, &[1.0, 2.0, 3.0, 4.0]);
    let got = fit(&flat, &FitOptions::default()).expect("flat");
    assert!(got.capacity_is_lower_bound && got.curve.capacity() > 4.0);
    let at_least = CapacityHint { at_least: Some(9.0), ..CapacityHint::default() };
    let got = fit(&flat, &FitOptions { capacity: at_least, ..FitOptions::default() });
    let got = got.expect("flat, with a bound");
    assert!(got.capacity_is_lower_bound && got.curve.capacity() >= 9.0, "{got:?}");
    let line = on(|x| 50.0 + x, &[1.0, 2.0, 3.0, 4.0]);
    let at_most = CapacityHint { at_most: Some(6.0), ..CapacityHint::default() };
    let got = fit(&line, &FitOptions { capacity: at_most, ..FitOptions::default() });
    assert!(got.expect("a line").curve.capacity() <= 6.0);
    let at_most = CapacityHint { at_most: Some(2.0), ..CapacityHint::default() };
    let got = fit(&line, &FitOptions { capacity: at_most, ..FitOptions::default() });
    assert!(got.expect("a line").curve.capacity() > 4.0, "what was carried counts more");
}

#[test]
fn errors_name_invalid_input() {
    assert_eq!(fit(&[], &FitOptions::default()), Err(FitError::Empty));
    assert_eq!(fit(&[point(0.0, 9.0)], &FitOptions::default()), Err(FitError::OnlyIdle));
    let bad = [(f64::NAN, 1.0), (-1.0, 1.0), (1.0, 0.0), (1.0, f64::INFINITY), (1.0, f64::NAN)];
    for (load, latency) in bad {
        let error = fit(&[point(1.0, 1.0), point(load, latency)], &FitOptions::default());
        assert!(matches!(error, Err(FitError::BadPoint { .. })), "{load} {latency}: {error:?}");
    }
    let none = Point { requests: 0.0, ..point(1.0, 1.0) };
    assert!(matches!(fit(&[none], &FitOptions::default()), Err(FitError::BadPoint { .. })));
    for about in [(f64::NAN, 0.1), (5.0, 0.0), (-5.0, 0.1)] {
        let capacity = CapacityHint { about: Some(about), ..CapacityHint::default() };
        let options = FitOptions { capacity, ..FitOptions::default() };
        let error = fit(&[point(1.0, 1.0)], &options);
        assert!(matches!(error, Err(FitError::BadHint { .. })), "{about:?}: {error:?}");
    }
}

/// Whatever the points, a curve is sound: finite, rising, and past every load that was served.
#[test]
fn every_fit_is_sound() {
    let mut rng = rng(41);
    let families = [None, Some(Family::Hyperbola), Some(Family::Pchip), Some(Family::Poly2)];
    for round in 0..6_000 {
        let n = rng.random_range(1..=12);
        let scale = 10.0_f64.powi(rng.random_range(-4..6));
        let latency = 10.0_f64.powi(rng.random_range(0..7));
        let spread = [0.0, 0.05, 0.5, 3.0][rng.random_range(0..4)];
        let mut points: Vec<Point> = (0..n)
            .map(|_| {
                let load =
                    if rng.random::<f64>() < 0.2 { 0.0 } else { scale * rng.random::<f64>() };
                let latency_us = latency * (spread * normal(&mut rng)).exp();
                Point { load, latency_us, requests: rng.random_range(1.0..1000.0) }
            })
            .collect();
        points[0].load = scale;
        if rng.random::<bool>() {
            let copy = points[0].load;
            points.iter_mut().skip(n / 2).for_each(|point| point.load = copy);
        }
        let capacity = CapacityHint {
            at_least: rng.random::<bool>().then(|| scale * rng.random_range(0.5..3.0)),
            at_most: rng.random::<bool>().then(|| scale * rng.random_range(0.5..3.0)),
            about: rng.random::<bool>().then(|| (scale * rng.random_range(0.5..9.0), 0.3)),
        };
        for family in families {
            let options = FitOptions { family, capacity, idle: None };
            let got = fit(&points, &options).expect("sound points");
            check_sound(&got, &format!("round {round}, {family:?}"));
            assert!(family.is_none_or(|family| family == got.family));
        }
    }
}

#[test]
fn another_family_needs_another_shape_and_not_noise() {
    // Two plateaus: a cache that overflows. No hyperbola bends like that.
    let step = |x: f64| if x < 5.0 { 10_000.0 } else { 60_000.0 };
    let loads = [1.0, 2.0, 3.0, 4.0, 4.8, 5.2, 6.0, 7.0, 8.0, 9.0];
    let got = fit(&on(step, &loads), &FitOptions::default()).expect("sound points");
    assert_eq!(got.family, Family::Pchip, "{got:?}");
    check_sound(&got, "two plateaus");

    let mut rng = rng(7);
    let mut bent = 0;
    for truth in pool(1, 0.7) {
        let points: Vec<Point> = (0..8)
            .map(|i| {
                let load = truth.capacity * 0.13 * f64::from(i);
                let noise = 1.0 + 0.22 * normal(&mut rng).clamp(-3.0, 3.0);
                Point { load, latency_us: truth.latency(load) * noise, requests: 20.0 }
            })
            .collect();
        let got = fit(&points, &FitOptions::default()).expect("sound points");
        bent += usize::from(got.family != Family::Hyperbola);
    }
    assert!(bent <= 2, "{bent} of 30 curves were bent by noise");
}

#[test]
fn rescaling_and_storage_keep_the_curve() {
    let truth = Hyperbola { a: 20_000.0, b: 90_000.0, c: 13.0 };
    let points = on(|x| truth.latency_at(x), &[0.5, 2.0, 5.0, 8.0, 10.0]);
    for family in [Family::Hyperbola, Family::Pchip, Family::Poly2] {
        let got = fit(&points, &forced(family)).expect("sound points");
        let wider = got.rescaled_load(1.6);
        check_sound(&wider, "rescaled");
        for x in [0.0, 1.0, 4.0, 9.9, 10.04] {
            let ratio = wider.curve.latency_at(1.6 * x) / got.curve.latency_at(x);
            assert!((ratio - 1.0).abs() < 1e-9, "{family} at {x}");
        }
        assert!((wider.max_load() / got.max_load() - 1.6).abs() < 1e-9);
        let stored = serde_json::to_string(&got).expect("serialisable");
        assert!(stored.contains(&format!("\"kind\":\"{family}\"")), "{stored}");
        let back: CurveFit = serde_json::from_str(&stored).expect("the same shape");
        assert_eq!(back.family, family);
        let near = back.curve.latency_at(7.7) / got.curve.latency_at(7.7);
        assert!((near - 1.0).abs() < 1e-12);
    }
}

/// The load of each curve where its marginal cost reaches a common price that spends all traffic.
fn pack(curves: &[(FittedCurve, f64)]) -> Vec<f64> {
    let load_at = |(curve, most): &(FittedCurve, f64), price: f64| {
        let (mut low, mut high) = (0.0, *most);
        for _ in 0..50 {
            let middle = 0.5 * (low + high);
            if curve.marginal_at(middle) <= price { low = middle } else { high = middle }
        }
        low
    };
    let (mut low, mut high) = (0.0, 1e9);
    for _ in 0..80 {
        let price = 0.5 * (low + high);
        let total: f64 = curves.iter().map(|curve| load_at(curve, price)).sum();
        if total >= 1.0 { high = price } else { low = price }
    }
    let loads: Vec<f64> = curves.iter().map(|curve| load_at(curve, high)).collect();
    let total: f64 = loads.iter().sum();
    loads.iter().map(|load| load / total).collect()
}

fn client_mean(pool: &[Mmc], loads: &[f64]) -> f64 {
    pool.iter().zip(loads).map(|(truth, load)| load * truth.latency(*load)).sum()
}

/// Client mean when packed by curves fitted to 8 points up to five-fold latency with 5 % noise, over the mean with
/// exact curves; the median over pools.
fn cost_of(family: Option<Family>, load: f64) -> f64 {
    let mut ratios: Vec<f64> = (0..9)
        .map(|seed| {
            let pool = pool(seed, load);
            let mut rng = rng(100 + seed);
            let mut draw = |noise: f64, points: u32, options: &FitOptions| -> Vec<_> {
                pool.iter()
                    .map(|truth| {
                        let most = last_below(truth, 5.0);
                        let points: Vec<Point> = (0..points)
                            .map(|i| {
                                let x = most * f64::from(i) / f64::from(points - 1);
                                let noise = 1.0 + noise * normal(&mut rng);
                                Point {
                                    load: x,
                                    latency_us: truth.latency(x) * noise,
                                    requests: 400.0,
                                }
                            })
                            .collect();
                        let got = fit(&points, options).expect("sound points");
                        let most = got.max_load();
                        (got.curve, most)
                    })
                    .collect()
            };
            // Dense exact points and interpolation between them stand for the truth.
            let exact = pack(&draw(0.0, 200, &forced(Family::Pchip)));
            let options = FitOptions { family, ..FitOptions::default() };
            let fitted = pack(&draw(0.05, 8, &options));
            client_mean(&pool, &fitted) / client_mean(&pool, &exact)
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

fn last_below(truth: &Mmc, factor: f64) -> f64 {
    let (mut low, mut high) = (0.0, truth.capacity);
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if truth.latency(middle) < factor * truth.service_us { low = middle } else { high = middle }
    }
    low
}

#[test]
fn noise_costs_clients_under_a_percent_with_the_hyperbola() {
    for load in [0.7, 0.8] {
        let ours = cost_of(None, load);
        let paper = cost_of(Some(Family::Poly2), load);
        assert!(ours < 1.01, "at {load}: {ours}");
        assert!(paper > ours, "at {load}: {paper} against {ours}");
    }
}

#[test]
fn a_curve_that_never_bent_gives_a_lower_bound_only() {
    for seed in 0..20 {
        let mut rng = rng(seed);
        for cores in [4, 8] {
            let truth = Mmc { capacity: 1.0, cores, service_us: 30_000.0 };
            let points: Vec<Point> = (0..6)
                .map(|i| {
                    let load = 0.06 * f64::from(i);
                    point(load, truth.latency(load) * (1.0 + 0.05 * normal(&mut rng)))
                })
                .collect();
            let got = fit(&points, &FitOptions::default()).expect("sound points");
            let what = format!("{cores} cores, seed {seed}: {got:?}");
            assert!(got.capacity_is_lower_bound, "{what}");
            assert!(got.curve.capacity() <= truth.capacity, "{what}");
        }
    }
}
