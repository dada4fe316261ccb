//! The adaptive capacity: what it learns, of any application, and what it costs.

use plimsoll_admission::{AdaptiveOptions, Admission, AdmissionOptions, CapacityOptions};

use crate::backend::{Backend, Discipline, Service};

fn adaptive() -> Admission {
    Admission::new(&AdmissionOptions::default()).expect("the default is valid")
}

fn average() -> Admission {
    let options = AdmissionOptions { capacity: CapacityOptions::Average, deadline_ms: None };
    Admission::new(&options).expect("no options")
}

#[test]
fn what_finds_room_elsewhere_leaves_the_cores_and_little_more() {
    for discipline in [Discipline::FirstComeFirstServed, Discipline::ProcessorSharing] {
        for service in [Service::Fixed, Service::Exponential] {
            for cores in [1, 4, 16, 32] {
                let mut backend = Backend::new(cores, 1.3, 5);
                backend.tries_left = 1;
                (backend.discipline, backend.service) = (discipline, service);
                let mut admission = adaptive();
                backend.run(&mut admission, 400.0);
                let after = backend.run(&mut admission, 200.0);
                let busy = after.goodput_rps() / backend.capacity_rps();
                let per_core = after.limit / f64::from(cores);
                let what = format!("{discipline:?} {service:?} {cores}: {per_core} {busy}");
                let most = if cores == 1 { 6.0 } else { 3.0 };
                // One core is busy for λ/(λ + v) = 57 % when one request is let in at a time.
                assert!(per_core < most, "a queue: {what}");
                assert!(busy > if cores == 1 { 0.55 } else { 0.7 }, "idle cores: {what}");
            }
        }
    }
}

/// Short requests that take some time leave the long ones behind, and no short ones: where the greatest place seen was taken for
/// the cores, 32 of them were taken for a dozen and stood idle for a third of the time.
#[test]
fn few_long_requests_among_many_short_ones_hide_no_cores() {
    for cores in [4, 16, 32] {
        let outcomes = (1..=5).map(|seed| {
            let mut backend = Backend::new(cores, 1.3, seed);
            (backend.tries_left, backend.service) = (1, Service::Bimodal);
            let mut admission = adaptive();
            backend.run(&mut admission, 400.0);
            let after = backend.run(&mut admission, 200.0);
            (after.goodput_rps() / backend.capacity_rps(), after.limit / f64::from(cores))
        });
        let mut outcomes: Vec<(f64, f64)> = outcomes.collect();
        outcomes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (busy, per_core) = outcomes[outcomes.len() / 2];
        assert!(busy > 0.87 && per_core < 2.0, "{cores}: {outcomes:?}");
    }
}

#[test]
fn overload_is_served_to_within_a_few_per_cent_without_a_growing_queue() {
    for discipline in [Discipline::FirstComeFirstServed, Discipline::ProcessorSharing] {
        for cores in [1, 8] {
            let mut backend = Backend::new(cores, 1.2, 9);
            backend.discipline = discipline;
            let mut admission = adaptive();
            backend.run(&mut admission, 500.0);
            let after = backend.run(&mut admission, 500.0);
            let busy = after.goodput_rps() / backend.capacity_rps();
            assert!(busy > 0.94, "{discipline:?} {cores}: {busy}");
            let most = f64::from(cores) + 12.0 * f64::from(cores).sqrt();
            assert!(after.limit <= most, "{discipline:?} {cores}: limit {}", after.limit);
        }
    }
}

#[test]
fn with_a_longest_wait_requests_are_let_in_that_wait_no_longer_whatever_tries_they_have_left() {
    let options = AdaptiveOptions { max_wait_ms: Some(300), ..AdaptiveOptions::default() };
    let options =
        AdmissionOptions { capacity: CapacityOptions::Adaptive(options), deadline_ms: None };
    for tries_left in [0, 5] {
        let mut backend = Backend::new(4, 1.5, 11);
        backend.tries_left = tries_left;
        let mut admission = Admission::new(&options).expect("valid options");
        backend.run(&mut admission, 200.0);
        let after = backend.run(&mut admission, 100.0);
        let busy = after.goodput_rps() / backend.capacity_rps();
        // Four at work, and three services that wait for each: 4 · (1 + 0.3 s / 0.1 s).
        let what = format!("{tries_left} tries left: limit {}, busy {busy}", after.limit);
        assert!((12.0..20.0).contains(&after.limit) && busy > 0.95, "{what}");
    }
}

#[test]
fn where_the_average_ratchets_down_the_adaptive_one_does_not() {
    let refused = |mut admission: Admission| {
        let mut backend = Backend::new(1, 0.62, 3);
        backend.run(&mut admission, 300.0);
        backend.run(&mut admission, 900.0).refused_share()
    };
    let (average, adaptive) = (refused(average()), refused(adaptive()));
    assert!(average > 0.18, "the paper's: {average}");
    assert!(adaptive < 0.03, "ours: {adaptive}");
}

#[test]
fn an_application_that_slows_down_keeps_its_limit() {
    for cores in [1, 4] {
        let mut backend = Backend::new(cores, 1.3, 11);
        backend.tries_left = 1;
        let mut admission = adaptive();
        backend.run(&mut admission, 400.0);
        let before = backend.run(&mut admission, 200.0);
        backend.service_s *= 2.0;
        backend.run(&mut admission, 200.0);
        let after = backend.run(&mut admission, 400.0);
        let ratio = after.limit / before.limit;
        assert!((0.6..1.7).contains(&ratio), "{cores}: {} {}", before.limit, after.limit);
        let busy = after.goodput_rps() / backend.capacity_rps();
        assert!(busy > if cores == 1 { 0.55 } else { 0.7 }, "{cores}: {busy}");
    }
}

#[test]
fn cores_that_go_and_come_are_noticed() {
    let mut backend = Backend::new(8, 1.3, 13);
    backend.tries_left = 1;
    let mut admission = adaptive();
    backend.run(&mut admission, 300.0);
    let mut limits = vec![backend.run(&mut admission, 100.0).limit];
    for cores in [2, 8] {
        backend.cores = cores;
        backend.run(&mut admission, 800.0);
        limits.push(backend.run(&mut admission, 100.0).limit);
    }
    let [before, fewer, again] = limits[..] else { panic!("three limits") };
    assert!(before > 6.0 && again > 6.0, "{limits:?}");
    assert!(fewer < 5.0, "{limits:?}");
}

#[test]
fn an_application_without_a_knee_is_let_be() {
    // Two hundred at once, each on its own: as an application that only waits for others. What is refused is what trials cost.
    let refused = (1..=5).map(|seed| {
        let mut backend = Backend::new(1_000, 0.2, seed);
        let mut admission = adaptive();
        backend.run(&mut admission, 60.0);
        backend.run(&mut admission, 60.0).refused_share()
    });
    let refused: Vec<f64> = refused.collect();
    let mean = refused.iter().sum::<f64>() / refused.len() as f64;
    assert!(mean < 0.04, "{refused:?}");
}

#[test]
fn light_load_is_not_refused() {
    for cores in [1, 4] {
        let mut backend = Backend::new(cores, 0.3, 19);
        let mut admission = adaptive();
        backend.run(&mut admission, 300.0);
        let share = backend.run(&mut admission, 2_000.0).refused_share();
        assert!(share < 0.005, "{cores}: {share}");
    }
}
