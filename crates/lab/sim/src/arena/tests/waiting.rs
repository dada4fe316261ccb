//! Requests that wait at their balancer.

use plimsoll_admission::{RetryOptions, WaitOptions};
use plimsoll_policy::{ExpectedDelaySettings, Sight};

use super::*;

const WAIT: WaitOptions = WaitOptions { timeout_ms: 5_000, max_requests: 1_000 };

/// Ten backends that let in two requests each, and as many users as that and half as many more.
fn closed(wait: Option<WaitOptions>) -> ArenaReport {
    let pool = vec![BackendModel { cores: 1, speed: 1.0 }; 10];
    let mut arena = Arena::new(pool, 1.0, 40_000, 1);
    arena.clients = Clients::Roaming { users: 30, think: Duration::ZERO };
    arena.network = Duration::from_millis(1);
    arena.retry = RetryOptions::of_refusals(2);
    arena.wait = wait;
    let mut doors = StaticLimit::times_cores(&arena.pool, 2.0);
    let mut balancers: Vec<Box<dyn Policy>> =
        (0..4).flat_map(|_| balancer(PolicyKind::Random, &[1; 10])).collect();
    arena.run_with(&mut balancers, Surroundings { ingress: &mut doors })
}

#[test]
fn users_that_retry_at_once_are_served_in_turn_when_there_is_a_queue() {
    let (refused, waits) = (closed(None), closed(Some(WAIT)));
    assert!(refused.drop_ratio() > 0.7, "{}", refused.drop_ratio());
    assert!(waits.drop_ratio() < 0.01, "{}", waits.drop_ratio());
    assert_eq!(waits.offered(), 36_000, "all have ended");
    assert!(
        waits.goodput_rps > 0.97 * refused.goodput_rps,
        "{} {}",
        waits.goodput_rps,
        refused.goodput_rps
    );
    // Thirty are in the system, of whom each waits as long as any.
    let mean_s = 30.0 / waits.goodput_rps;
    assert!((waits.mean_us / 1e6 / mean_s - 1.0).abs() < 0.1, "{} {mean_s}", waits.mean_us);
}

#[test]
fn a_request_is_refused_after_its_queue_timeout_and_when_the_queue_is_full() {
    let short = closed(Some(WaitOptions { timeout_ms: 20, ..WAIT }));
    assert!((0.1..0.7).contains(&short.drop_ratio()), "{}", short.drop_ratio());
    assert!(short.p99_us < 400e3, "{}", short.p99_us);
    let few = closed(Some(WaitOptions { max_requests: 1, ..WAIT }));
    assert!(few.drop_ratio() > 0.1, "four may wait, of ten: {}", few.drop_ratio());
    assert_eq!((short.offered(), few.offered()), (36_000, 36_000));
}

#[test]
fn a_client_that_leaves_while_it_waits_is_gone() {
    let pool = vec![BackendModel { cores: 1, speed: 1.0 }; 4];
    let mut arena = Arena::new(pool, 1.5, 20_000, 1);
    arena.patience = Some(Patience { after: Duration::from_millis(100), cancels: true });
    arena.wait = Some(WAIT);
    let mut doors = StaticLimit::times_cores(&arena.pool, 1.0);
    let mut policies = balancer(PolicyKind::Random, &[1; 4]);
    let report = arena.run_with(&mut policies, Surroundings { ingress: &mut doors });
    assert_eq!(report.offered(), 18_000);
    assert_eq!(report.dropped, 0, "nobody waits for five seconds");
    // First come, first served, and as much patience as all need: many leave while they are served.
    assert!(report.abandoned > 6_000, "{}", report.abandoned);
    assert_eq!(report.requests + report.abandoned, 18_000);
}

#[test]
fn many_balancers_by_probes_come_near_one_queue_where_requests_wait() {
    let mut arena = Arena::new(vec![BackendModel { cores: 1, speed: 1.0 }; 50], 0.85, 60_000, 1);
    let expected_delay =
        ExpectedDelaySettings { sight: Sight::Probes, ..ExpectedDelaySettings::default() };
    let settings = Settings { expected_delay, ..Settings::default() };
    let run = |arena: &Arena| {
        let one = |_| PolicyKind::ExpectedDelay.build(&[1; 50], &settings).expect("valid");
        let mut balancers: Vec<Box<dyn Policy>> = (0..10).map(one).collect();
        arena.run(&mut balancers).mean_us
    };
    let at_once = run(&arena);
    arena.wait = Some(WAIT);
    let (waits, central) = (run(&arena), OneQueue::of(&arena).central_us);
    assert!(waits < 1.15 * central, "{waits} {central}");
    assert!(waits < at_once, "{waits} {at_once}");
}
