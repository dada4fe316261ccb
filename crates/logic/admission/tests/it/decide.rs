//! Decisions, chips, deadlines, and what endings tell.

use std::time::Duration;

use plimsoll_admission::{
    Admission, AdmissionCounts, AdmissionOptions, Arrival, CapacityOptions, Decision, Ended,
    Permit, Reason,
};
use plimsoll_model::Nanos;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::backend::{Backend, Service};

const MS: Duration = Duration::from_millis(1);

fn admission(capacity: CapacityOptions) -> Admission {
    Admission::new(&AdmissionOptions { capacity, deadline_ms: None }).expect("valid options")
}

fn admit(admission: &mut Admission, now: Nanos, in_flight: u32) -> Permit {
    match admission.decide(now, in_flight, Arrival::default()) {
        Decision::Admit(permit) => permit,
        Decision::Reject(reason) => panic!("{reason:?} at {in_flight}"),
    }
}

#[test]
fn a_static_capacity_is_reached_and_not_passed() {
    let mut admission = admission(CapacityOptions::Static(3));
    (0..3).for_each(|in_flight| {
        admit(&mut admission, Nanos::ZERO, in_flight);
    });
    for in_flight in [3, 4, u32::MAX] {
        let decision = admission.decide(Nanos::ZERO, in_flight, Arrival::default());
        assert_eq!(decision, Decision::Reject(Reason::Full));
    }
    let counts = AdmissionCounts { admitted: 3, full: 3, deadline: 0 };
    assert_eq!(admission.counts(), counts);
}

#[test]
fn the_average_admits_all_for_thirty_seconds_and_then_the_mean() {
    let mut admission = admission(CapacityOptions::Average);
    // In flight, each admitted one included: 1, 2, …, 9, whose mean is 5.
    for in_flight in 0..9 {
        admit(&mut admission, Nanos::from_secs_f64(f64::from(in_flight)), in_flight);
    }
    admit(&mut admission, Nanos::from_secs_f64(29.9), 4);
    assert_eq!(admission.limit(), None);
    admit(&mut admission, Nanos::from_secs_f64(30.0), 4);
    assert_eq!(admission.limit(), Some(5.0));
    let decision = admission.decide(Nanos::from_secs_f64(31.0), 5, Arrival::default());
    assert_eq!(decision, Decision::Reject(Reason::Full));
    admit(&mut admission, Nanos::from_secs_f64(59.0), 2);
    admit(&mut admission, Nanos::from_secs_f64(60.0), 0);
    assert_eq!(admission.limit(), Some(4.0), "the mean of 5 and 3");
}

#[test]
fn chips_are_as_rare_as_the_load_is_high() {
    let admission = admission(CapacityOptions::Static(10));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    for (in_flight, expected) in [(1, 0.875), (4, 0.5), (7, 0.125), (8, 0.0), (10, 0.0)] {
        let chips = (0..40_000).filter(|_| admission.chip(in_flight, &mut rng)).count();
        let share = chips as f64 / 40_000.0;
        assert!((share - expected).abs() < 0.01, "{in_flight}: {share}");
    }
    let unknown = self::admission(CapacityOptions::Average);
    assert!((0..100).all(|_| unknown.chip(1_000, &mut rng)));
}

/// One at a time, `took` each.
fn serve(admission: &mut Admission, now: &mut Nanos, took: Duration, ended: Ended) {
    for _ in 0..200 {
        let permit = admit(admission, *now, 0);
        *now = *now + took;
        admission.finish(*now, 0, permit, ended);
    }
}

#[test]
fn what_was_given_up_or_failed_tells_nothing_of_the_time_a_request_takes() {
    let mut admission = admission(CapacityOptions::default());
    let mut now = Nanos::ZERO;
    serve(&mut admission, &mut now, 20 * MS, Ended::Abandoned);
    assert_eq!(admission.delay(), None);
    serve(&mut admission, &mut now, 20 * MS, Ended::Answered);
    let before = admission.delay().expect("three blocks");
    assert_eq!(before.expected(0).as_millis(), 20);
    serve(&mut admission, &mut now, MS, Ended::Failed);
    serve(&mut admission, &mut now, 900 * MS, Ended::Abandoned);
    assert_eq!(admission.delay(), Some(before));
}

#[test]
fn what_cannot_be_in_time_is_refused_at_once() {
    let mut admission = admission(CapacityOptions::Static(100));
    let within = |ms: u32| Arrival { time_left: Some(ms * MS), tries_left: 0 };
    let mut now = Nanos::ZERO;
    let unknown = admission.decide(now, 0, within(1));
    assert!(matches!(unknown, Decision::Admit(_)), "nothing is known yet");
    // One core of 20 ms: three at a time, the k-th of which takes k · 20 ms.
    for _ in 0..100 {
        let permits: Vec<Permit> = (0..3).map(|n| admit(&mut admission, now, n)).collect();
        for (left, permit) in [2, 1, 0].into_iter().zip(permits) {
            now = now + 20 * MS;
            admission.finish(now, left, permit, Ended::Answered);
        }
    }
    let alone = |is_idle| Reason::Deadline { is_idle };
    let late = [(0, 15, alone(true)), (3, 15, alone(false)), (3, 75, Reason::Queue)];
    for (found, ms, reason) in late {
        let decision = admission.decide(now, found, within(ms));
        assert_eq!(decision, Decision::Reject(reason), "{found} {ms}");
        assert_eq!(reason.is_worth_a_retry(), found > 0, "{found} {ms}");
    }
    for (found, ms) in [(0, 25), (3, 85)] {
        let decision = admission.decide(now, found, within(ms));
        assert!(matches!(decision, Decision::Admit(_)), "{found} {ms}: {decision:?}");
    }
    assert_eq!(admission.counts().deadline, 3);
    let patient = admission.decide(now, 50, Arrival::default());
    assert!(matches!(patient, Decision::Admit(_)), "no deadline, no refusal");
}

/// Every 10 ms a request that waits for 100 ms finds the application idle. It takes 20 ms, then ten times the
/// deadline, then 20 ms again.
#[test]
fn an_application_too_slow_for_every_deadline_serves_again_when_it_recovers() {
    let mut admission = admission(CapacityOptions::Static(1));
    let mut now = Nanos::ZERO;
    serve(&mut admission, &mut now, 20 * MS, Ended::Answered);
    serve(&mut admission, &mut now, 1_000 * MS, Ended::Answered);
    let hurried = Arrival { time_left: Some(100 * MS), tries_left: 0 };
    let mut run = |took: Duration, seconds: u32, admission: &mut Admission| {
        let (mut served, mut tried) = (0, 0);
        let end = now + seconds * 1_000 * MS;
        while now < end {
            now = now + 10 * MS;
            if let Decision::Admit(permit) = admission.decide(now, 0, hurried) {
                tried += 1;
                now = now + took;
                admission.finish(now, 0, permit, Ended::Answered);
                served += u32::from(took <= 100 * MS);
            }
        }
        (served, tried)
    };
    let (_, in_vain) = run(1_000 * MS, 60, &mut admission);
    assert!((20..=60).contains(&in_vain), "one a second at most: {in_vain}");
    // The difference of one second is halved four times, once a second.
    run(20 * MS, 6, &mut admission);
    let (served, _) = run(20 * MS, 3, &mut admission);
    assert_eq!(served, 100, "all are served: one in 30 ms");
}

/// A request that stays for ever, or is never reported to have ended, locks no other out either.
#[test]
fn a_trial_does_not_wait_for_an_idle_backend() {
    let mut admission = admission(CapacityOptions::Static(9));
    let mut now = Nanos::ZERO;
    serve(&mut admission, &mut now, 1_000 * MS, Ended::Answered);
    let hurried = Arrival { time_left: Some(100 * MS), tries_left: 0 };
    let mut served = 0;
    for _ in 0..60_000 {
        now = now + MS;
        if let Decision::Admit(permit) = admission.decide(now, 1, hurried) {
            now = now + 20 * MS;
            admission.finish(now, 1, permit, Ended::Answered);
            served += 1;
        }
    }
    assert!(served > 100, "{served}");
}

#[test]
fn refusing_what_would_be_late_serves_more_in_time() {
    let in_time = |heeds: bool| {
        let options = AdmissionOptions {
            capacity: CapacityOptions::Static(60),
            deadline_ms: heeds.then_some(1_000),
        };
        let mut admission = Admission::new(&options).expect("valid options");
        let mut backend = Backend::new(2, 1.5, 23);
        backend.wanted_within = Some(1_000 * MS);
        backend.run(&mut admission, 60.0);
        let outcome = backend.run(&mut admission, 300.0);
        (f64::from(outcome.in_time) / 300.0, backend.capacity_rps())
    };
    let (heeding, capacity) = in_time(true);
    assert!(heeding > 0.5 * capacity, "{heeding} of {capacity}");
    // Sixty in two cores of 100 ms take three seconds.
    let (blind, _) = in_time(false);
    assert!(blind < 0.1 * capacity, "{blind} of {capacity}");
}

/// Three times its capacity arrives at one core whose clients wait for two services and a third. How long a service
/// is makes no difference: what is answered, and what too late.
#[test]
fn slow_services_are_fast_ones_on_another_clock() {
    let outcome = |service_s: f64, service: Service| {
        let options = AdmissionOptions {
            capacity: CapacityOptions::Static(1_000),
            deadline_ms: Some((service_s * 7_000.0 / 3.0) as u64),
        };
        let mut admission = Admission::new(&options).expect("valid options");
        let mut backend = Backend::new(1, 1.0, 29);
        (backend.service_s, backend.service) = (service_s, service);
        backend.rate_rps = 0.2 / service_s;
        backend.run(&mut admission, 1_000.0 * service_s);
        backend.wanted_within = options.deadline_ms.map(|ms| ms as u32 * MS);
        backend.rate_rps = 3.0 / service_s;
        backend.run(&mut admission, 3_000.0 * service_s)
    };
    for service in [Service::Fixed, Service::Exponential] {
        let fast = outcome(0.3, service);
        assert!(service != Service::Fixed || fast.served == fast.in_time, "{fast:?}");
        for service_s in [3.0, 30.0, 300.0] {
            let slow = outcome(service_s, service);
            let what = format!("{service_s} s: {slow:?}, fast {fast:?}");
            // One in 20,000 waits for ten services, and then the draws are others.
            assert!(slow.served.abs_diff(fast.served) < 60, "{what}");
            assert!(slow.in_time.abs_diff(fast.in_time) < 60, "{what}");
        }
    }
}

/// An idle application for which all that comes has too little time: half of its time at most goes to trials.
#[test]
fn trials_of_slow_services_are_seldom() {
    let mut admission = admission(CapacityOptions::Static(9));
    let mut now = Nanos::ZERO;
    let took = 30_000 * MS;
    serve(&mut admission, &mut now, took, Ended::Answered);
    let hurried = Arrival { time_left: Some(10_000 * MS), tries_left: 0 };
    let mut trials = 0;
    let end = now + 100 * took;
    while now < end {
        now = now + 1_000 * MS;
        if let Decision::Admit(permit) = admission.decide(now, 0, hurried) {
            trials += 1;
            now = now + took;
            admission.finish(now, 0, permit, Ended::Answered);
        }
    }
    assert!((40..=50).contains(&trials), "{trials} of 100");
}

#[test]
fn options_are_read_and_checked() {
    let read = |text: &str| serde_json::from_str::<AdmissionOptions>(text);
    let options = read(r#"{"capacity": {"adaptive": {"loss": 0.02}}, "deadline_ms": 500}"#);
    assert!(Admission::new(&options.expect("valid")).is_ok());
    assert_eq!(
        read(r#"{"capacity": "average"}"#).expect("valid").capacity,
        CapacityOptions::Average
    );
    assert!(read(r#"{"capacity": {"adaptive": {"los": 0.02}}}"#).is_err());
    for refused in [
        r#"{"deadline_ms": 0}"#,
        r#"{"capacity": {"static": 0}}"#,
        r#"{"capacity": {"adaptive": {"loss": 0.9}}}"#,
        r#"{"capacity": {"adaptive": {"first_cores": 0}}}"#,
        r#"{"capacity": {"adaptive": {"most": 0}}}"#,
    ] {
        let error = Admission::new(&read(refused).expect("well formed")).err();
        assert!(error.is_some_and(|e| e.to_string().contains("expected")), "{refused}");
    }
}
