//! Hooks, retries, budgets, patience, probes and closed loops around policies.

use plimsoll_admission::{FailureRetries, Reason, RefusalBudget, RetryOptions};
use plimsoll_model::Nanos;
use plimsoll_policy::{Ending, Finish, Probing, Request, RoundRobin, ServerLoad};
use rand::RngCore;

use super::*;

fn random(balancers: usize, weights: &[u32]) -> Vec<Box<dyn Policy>> {
    (0..balancers).flat_map(|_| balancer(PolicyKind::Random, weights)).collect()
}

#[test]
fn full_backend_refuses_the_part_given_by_erlang_b() {
    // M/M/4/4: without a queue the part refused is Erlang's B of 4 cores at 3.2.
    let arena = Arena::new(vec![BackendModel { cores: 4, speed: 1.0 }], 0.8, 400_000, 1);
    let mut doors = StaticLimit::times_cores(&arena.pool, 1.0);
    let around = Surroundings { ingress: &mut doors };
    let report = arena.run_with(&mut random(1, &[1]), around);
    let erlang_b = (1..=4).fold(1.0, |b, k| 3.2 * b / (f64::from(k) + 3.2 * b));
    assert!((report.drop_ratio() / erlang_b - 1.0).abs() < 0.03, "{}", report.drop_ratio());
    assert!((report.mean_us / 30_000.0 - 1.0).abs() < 0.02, "no request waits: {}", report.mean_us);
    let good = arena.rate_rps * (1.0 - erlang_b);
    assert!((report.goodput_rps / good - 1.0).abs() < 0.02, "{} for {good}", report.goodput_rps);
    assert_eq!((report.refusals, report.retries), (report.dropped, 0));
    assert_eq!(report.offered(), 360_000);
}

#[test]
fn refused_requests_are_tried_elsewhere_and_pay_the_network_delay() {
    let pool = vec![BackendModel { cores: 1, speed: 1.0 }; 4];
    let mut arena = Arena::new(pool, 0.5, 200_000, 1);
    arena.network = Duration::from_millis(1);
    let run = |retries| {
        let arena = Arena { retry: RetryOptions::of_refusals(retries), ..arena.clone() };
        let mut doors = StaticLimit::times_cores(&arena.pool, 1.0);
        let around = Surroundings { ingress: &mut doors };
        arena.run_with(&mut random(3, &[1; 4]), around)
    };
    let (none, all) = (run(0), run(3));
    // One try: each door is busy half of the time at most, less what is lost.
    assert!((0.3..0.4).contains(&none.drop_ratio()), "{}", none.drop_ratio());
    // All four tried, each once: only when all are busy is a request lost, M/M/4/4 at 2 erlang (but
    // for what changes while a refusal travels).
    let erlang_b = (1..=4).fold(1.0, |b, k| 2.0 * b / (f64::from(k) + 2.0 * b));
    assert!((all.drop_ratio() / erlang_b - 1.0).abs() < 0.15, "{}", all.drop_ratio());
    assert!(all.tries_per_request() > 1.5 && all.retries < all.refusals);
    // Each further try costs two ways.
    let extra_us = all.mean_us - 30_000.0 - 2_000.0;
    assert!((600.0..2_500.0).contains(&extra_us), "{extra_us}");
}

#[test]
fn a_budget_limits_retries_and_admission_knows_the_tries_left() {
    let pool = vec![BackendModel { cores: 1, speed: 1.0 }; 4];
    let mut arena = Arena::new(pool, 3.0, 40_000, 1);
    let run = |arena: &Arena| {
        let mut doors = StaticLimit::times_cores(&arena.pool, 1.0);
        arena.run_with(&mut random(2, &[1; 4]), Surroundings { ingress: &mut doors })
    };
    arena.retry = RetryOptions::of_refusals(3);
    let free = run(&arena);
    assert_eq!(free.over_budget, 0);
    arena.retry.refusals.budget = Some(RefusalBudget { per_admitted: 0.5, burst: 10 });
    let held = run(&arena);
    assert!(held.retries as f64 <= 0.5 * held.requests as f64 + 20.0, "{}", held.retries);
    assert!(held.over_budget > 10_000 && held.retries < free.retries / 5, "{}", free.retries);
    // Where three times come what can be served, a first try finds a free core often enough.
    assert!(
        held.goodput_rps > 0.75 * free.goodput_rps,
        "{} {}",
        held.goodput_rps,
        free.goodput_rps
    );
}

#[test]
fn failed_requests_are_retried_elsewhere_within_a_budget_of_their_own() {
    // One of four fails within a millisecond, and does not attract requests by looking idle: the choice is random.
    let pool = vec![BackendModel { cores: 4, speed: 1.0 }; 4];
    let mut arena = Arena::new(pool, 0.4, 40_000, 1);
    let after = Duration::from_millis(1);
    arena.timeline = vec![step(0.0, Change::FailFast { backend: 2, after })];
    let run = |arena: &Arena| arena.run(&mut random(3, &[1; 4]));
    let none = run(&arena);
    let share = none.errors as f64 / none.offered() as f64;
    assert!((share - 0.25).abs() < 0.01 && none.retries == 0, "{share}");
    let failures = FailureRetries { most: 1, share: 1.0, least: 1 };
    arena.retry.failures = failures;
    let once = run(&arena);
    assert_eq!((once.errors, once.over_budget), (0, 0), "a retry goes elsewhere");
    assert!((once.retries as f64 / once.offered() as f64 - 0.25).abs() < 0.01);
    arena.retry.failures = FailureRetries { share: 0.0, ..failures };
    let held = run(&arena);
    assert_eq!(held.over_budget, held.errors);
    assert!(held.errors > 500 && held.retries > 500, "{} {}", held.errors, held.retries);
}

/// Counts whether leaving requests were served.
struct Watching(std::sync::Arc<std::sync::Mutex<[u32; 2]>>);

impl Ingress for Watching {
    fn admits(&mut self, offer: &Offer, _: &mut dyn RngCore) -> Result<(), Refusal> {
        if offer.in_flight < 50 { Ok(()) } else { Err(Refusal::FULL) }
    }

    fn leaves(
        &mut self,
        _: Nanos,
        in_flight: u32,
        took: Duration,
        ok: bool,
        _: &mut dyn RngCore,
    ) -> Option<bool> {
        assert!(in_flight > 0 && (ok || took == Duration::from_millis(7)));
        self.0.lock().expect("one thread")[usize::from(ok)] += 1;
        None
    }
}

#[test]
fn admission_sees_failures_of_its_backend() {
    let mut arena = Arena::new(vec![BackendModel { cores: 2, speed: 1.0 }], 0.5, 10_000, 1);
    arena.warm_up = 0;
    arena.timeline = vec![
        step(100.0, Change::FailFast { backend: 0, after: Duration::from_millis(7) }),
        step(200.0, Change::Return { backend: 0 }),
    ];
    let seen = std::sync::Arc::default();
    let mut doors: Vec<Box<dyn Ingress>> = vec![Box::new(Watching(std::sync::Arc::clone(&seen)))];
    let report = arena.run_with(&mut random(1, &[1]), Surroundings { ingress: &mut doors });
    let [failed, served] = *seen.lock().expect("one thread");
    assert_eq!((u64::from(served), u64::from(failed)), (report.requests, report.errors));
    // 33 requests a second, for a hundred of 300 s.
    assert!((3_000..3_700).contains(&failed), "{failed}");
}

#[test]
fn users_in_a_closed_loop_follow_littles_law() {
    // 12 users, no thinking, one backend of 4 cores: always busy, 4/30 ms, and Little's law.
    let pool = vec![BackendModel { cores: 4, speed: 1.0 }];
    let mut arena = Arena::new(pool, 0.5, 100_000, 1);
    arena.clients = Clients::Closed { users: 12, think: Duration::ZERO };
    let busy = arena.run(&mut random(3, &[1]));
    assert!((busy.goodput_rps / (4.0 / 0.03) - 1.0).abs() < 0.01, "{}", busy.goodput_rps);
    assert!((busy.mean_us / 90_000.0 - 1.0).abs() < 0.02, "{}", busy.mean_us);
    // Four users never queue: a cycle is 30 ms of service and 60 of thought.
    arena.clients = Clients::Closed { users: 4, think: Duration::from_millis(60) };
    let idle = arena.run(&mut random(3, &[1]));
    assert!((idle.goodput_rps / (4.0 / 0.09) - 1.0).abs() < 0.02, "{}", idle.goodput_rps);
    assert!((idle.mean_us / 30_000.0 - 1.0).abs() < 0.02, "{}", idle.mean_us);
}

#[test]
fn a_gateway_spreads_the_requests_of_one_user_over_the_balancers() {
    let pool = vec![BackendModel { cores: 1, speed: 1.0 }; 2];
    let mut arena = Arena::new(pool, 0.5, 10_000, 1);
    let share = |arena: &Arena| {
        let mut each: [Box<dyn Policy>; 2] =
            [Box::new(RoundRobin::new(&[1, 0])), Box::new(RoundRobin::new(&[0, 1]))];
        arena.run(&mut each).backends[0].share
    };
    arena.clients = Clients::Closed { users: 1, think: Duration::ZERO };
    assert_eq!(share(&arena), 1.0);
    arena.clients = Clients::Roaming { users: 1, think: Duration::ZERO };
    assert!((share(&arena) - 0.5).abs() < 0.03, "{}", share(&arena));
}

#[test]
fn clients_give_up_and_cancelled_requests_are_not_served() {
    // Twice what can be served, 300 ms of patience.
    let pool = vec![BackendModel { cores: 2, speed: 1.0 }];
    let mut arena = Arena::new(pool, 2.0, 100_000, 1);
    let after = Duration::from_millis(300);
    arena.patience = Some(Patience { after, cancels: true });
    let cancelled = arena.run(&mut random(2, &[1]));
    arena.patience = Some(Patience { after, cancels: false });
    let uncancelled = arena.run(&mut random(2, &[1]));
    for report in [&cancelled, &uncancelled] {
        assert_eq!(report.offered(), 90_000);
        assert!(report.p99_us < 300_001.0, "{}", report.p99_us);
    }
    // With cancelling, cores work in vain only for clients that leave in mid-service (two of three here: first in
    // first out, a request is begun when little patience is left); without, no request is served in time.
    let capacity = 2.0 / 0.03;
    assert!(cancelled.goodput_rps > 0.25 * capacity, "{}", cancelled.goodput_rps);
    assert!(uncancelled.goodput_rps < 0.01 * capacity, "{}", uncancelled.goodput_rps);
}

#[test]
fn clients_that_retry_refused_requests_are_all_served_in_the_end() {
    // One core without a queue, half busy: a request that is sent again finds it as full as the first time, or fuller.
    let mut arena = Arena::new(vec![BackendModel { cores: 1, speed: 1.0 }], 0.5, 100_000, 1);
    let run = |arena: &Arena| {
        let mut doors = StaticLimit::times_cores(&arena.pool, 1.0);
        arena.run_with(&mut random(2, &[1]), Surroundings { ingress: &mut doors })
    };
    let dropped = run(&arena);
    arena.comes_again = Some(Duration::from_millis(60));
    let again = run(&arena);
    assert!(dropped.dropped > 25_000, "{}", dropped.dropped);
    assert_eq!((again.requests, again.dropped, again.refusals), (90_000, 0, again.came_again));
    // All load is carried, so every try is refused with the chance that the core is busy, half at least: a
    // request has one return or more on average, each of which took 60 ms.
    let returns = again.came_again as f64 / 90_000.0;
    assert!((1.0..2.0).contains(&returns), "{returns}");
    assert!(
        (again.backends[0].utilisation - 0.5).abs() < 0.01,
        "{}",
        again.backends[0].utilisation
    );
    assert!(
        (again.mean_us / (30_000.0 + 60_000.0 * returns) - 1.0).abs() < 0.01,
        "{}",
        again.mean_us
    );
    // A client whose patience ends in between is gone.
    arena.patience = Some(Patience { after: Duration::from_millis(100), cancels: true });
    let gone = run(&arena);
    assert_eq!(gone.offered(), 90_000);
    assert!(gone.abandoned > 10_000 && gone.came_again > 10_000 && gone.p99_us < 100_001.0);
}

/// Probes one backend and records the answers.
struct Curious {
    probing: Probing,
    heard: std::sync::Arc<std::sync::Mutex<Vec<(u64, ServerLoad)>>>,
    carried: u32,
}

impl Policy for Curious {
    fn set_weights(&mut self, _: &[u32]) {}

    fn pick(&mut self, _: &Request<'_>, now: Nanos, _: &mut dyn RngCore) -> Option<usize> {
        let heard = self.heard.lock().expect("one thread");
        if self.probing == Probing::Before {
            let round_trip = heard.last().map(|(asked, _)| now.0 - asked);
            assert_eq!(round_trip, Some(4_000_000), "picked when it was answered");
        }
        Some(0)
    }

    fn on_finish(&mut self, _: usize, finish: &Finish, _: Nanos) {
        assert_eq!(finish.ending, Ending::Success);
        assert_eq!(finish.chip, None);
        self.carried += u32::from(finish.load.is_some());
    }

    fn probing(&self) -> Probing {
        self.probing
    }

    fn probe_targets(
        &mut self,
        _: &Request<'_>,
        _: Nanos,
        _: &mut dyn RngCore,
        targets: &mut Vec<usize>,
    ) {
        targets.extend([1, 0]);
    }

    fn on_probe(&mut self, backend: usize, load: ServerLoad, asked: Nanos) {
        assert!(backend == 0 || load.in_flight == 0);
        if backend == 0 {
            self.heard.lock().expect("one thread").push((asked.0, load));
        }
    }
}

#[test]
fn probe_answers_are_correct() {
    let pool = vec![BackendModel { cores: 2, speed: 1.0 }; 2];
    let mut arena = Arena::new(pool, 0.25, 100_000, 1);
    arena.network = Duration::from_millis(2);
    for probing in [Probing::Before, Probing::Beside] {
        let heard = std::sync::Arc::default();
        let policy = Curious { probing, heard: std::sync::Arc::clone(&heard), carried: 0 };
        let report = arena.run(&mut [Box::new(policy)]);
        assert_eq!(report.probes, 180_000);
        let heard = heard.lock().expect("one thread");
        // Poisson arrivals see time averages: M/M/2 at half load has 4/3 in it.
        let mean =
            heard.iter().map(|(_, l)| f64::from(l.in_flight)).sum::<f64>() / heard.len() as f64;
        assert!((mean - 4.0 / 3.0).abs() < 0.06, "{probing:?}: {mean}");
        let cpu: f64 = heard.iter().filter_map(|(_, l)| l.cpu).map(f64::from).sum();
        assert!((cpu / heard.len() as f64 - 0.5).abs() < 0.05, "{probing:?}: {cpu}");
        // 40 ms in the backend, and one or two round trips of 4 ms.
        let way_us = if probing == Probing::Before { 8_000.0 } else { 4_000.0 };
        assert!((report.mean_us - 40_000.0 - way_us).abs() < 1_500.0, "{}", report.mean_us);
    }
}

/// Asks one backend more each time; only backend 1 has room.
struct Insistent;

impl Policy for Insistent {
    fn set_weights(&mut self, _: &[u32]) {}

    fn pick(&mut self, request: &Request<'_>, _: Nanos, _: &mut dyn RngCore) -> Option<usize> {
        request.answered().iter().copied().find(|backend| request.avoided() != [*backend])
    }

    fn has_room(&self, backend: usize, _: Nanos) -> Option<bool> {
        Some(backend == 1)
    }

    fn probing(&self) -> Probing {
        Probing::Before
    }

    fn probe_targets(
        &mut self,
        _: &Request<'_>,
        _: Nanos,
        _: &mut dyn RngCore,
        targets: &mut Vec<usize>,
    ) {
        targets.push(targets.len());
    }
}

/// Refuses first tries, and notes the tries left.
struct Refusing(std::sync::Arc<std::sync::Mutex<Vec<u32>>>);

impl Ingress for Refusing {
    fn admits(&mut self, offer: &Offer, _: &mut dyn RngCore) -> Result<(), Refusal> {
        self.0.lock().expect("one thread").push(offer.tries_left);
        if offer.refusals == 0 { Err(Refusal::FULL) } else { Ok(()) }
    }
}

#[test]
fn where_none_that_answered_has_room_others_are_asked_once_and_who_waits_announces_no_tries() {
    let pool = vec![BackendModel { cores: 4, speed: 1.0 }; 3];
    let mut arena = Arena::new(pool, 0.1, 1_000, 1);
    arena.warm_up = 0;
    arena.retry = RetryOptions::of_refusals(3);
    let seen = std::sync::Arc::default();
    let refusing = || Box::new(Refusing(std::sync::Arc::clone(&seen))) as Box<dyn Ingress>;
    let mut doors = vec![refusing(), refusing(), refusing()];
    let report = arena.run_with(&mut [Box::new(Insistent)], Surroundings { ingress: &mut doors });
    assert_eq!((report.probes, report.retries), (2_000, 1_000), "backend 2 is never asked");
    let seen: &Vec<u32> = &seen.lock().expect("one thread");
    let count = |left| seen.iter().filter(|tries| **tries == left).count();
    assert_eq!(
        (count(0), count(2)),
        (1_000, 1_000),
        "at the full one, and then where there is room"
    );
}

/// A chip on every response, and the number in flight as its backend sees it.
struct Chips;

impl Ingress for Chips {
    fn admits(&mut self, offer: &Offer, _: &mut dyn RngCore) -> Result<(), Refusal> {
        assert!(offer.tries_left == 0 && offer.left.is_none() && offer.refusals == 0);
        Ok(())
    }

    fn leaves(
        &mut self,
        _: Nanos,
        in_flight: u32,
        _: Duration,
        ok: bool,
        _: &mut dyn RngCore,
    ) -> Option<bool> {
        assert!(ok && in_flight > 0, "it is counted until it has left");
        Some(in_flight == 1)
    }
}

struct Counting(std::sync::Arc<std::sync::atomic::AtomicU32>);

impl Policy for Counting {
    fn set_weights(&mut self, _: &[u32]) {}

    fn pick(&mut self, _: &Request<'_>, _: Nanos, _: &mut dyn RngCore) -> Option<usize> {
        Some(0)
    }

    fn on_finish(&mut self, _: usize, finish: &Finish, _: Nanos) {
        let load = finish.load.expect("loads are reported");
        assert_eq!(finish.chip, Some(load.in_flight == 0));
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn responses_carry_chips_and_loads() {
    let pool = vec![BackendModel { cores: 1, speed: 1.0 }];
    let arena = Arena { tells_load: true, ..Arena::new(pool, 0.5, 10_000, 1) };
    let seen = std::sync::Arc::default();
    let mut doors: Vec<Box<dyn Ingress>> = vec![Box::new(Chips)];
    let around = Surroundings { ingress: &mut doors };
    arena.run_with(&mut [Box::new(Counting(std::sync::Arc::clone(&seen)))], around);
    assert_eq!(seen.load(std::sync::atomic::Ordering::Relaxed), 10_000);
}

#[test]
fn windows_report_ended_requests_and_queues() {
    let pool = vec![BackendModel { cores: 1, speed: 1.0 }; 10];
    let mut arena = Arena::new(pool, 0.8, 50_000, 1);
    arena.window_s = Some(2.0);
    let one = arena.run(&mut random(1, &[1; 10]));
    // 53 requests to each backend in 2 s, Poisson: deviation √53, and the queues' end of it.
    assert!((5.0..9.0).contains(&one.imbalance()), "{}", one.imbalance());
    let some = one.windows[3].in_flight.iter().any(|&n| n > 0);
    assert!(some && one.windows[3].in_flight.len() == 10);
}

#[test]
fn response_times_are_kept_in_order_if_configured() {
    let arena = Arena { keeps_times: true, ..Arena::new(small_pool(), 0.5, 5_000, 1) };
    let report = arena.run(&mut random(1, &[1; 6]));
    assert_eq!(report.times_us.len() as u64, report.requests);
    assert!(report.times_us.is_sorted());
    let at = |q: f64| f64::from(report.times_us[((report.times_us.len() - 1) as f64 * q) as usize]);
    assert_eq!((report.p10_us, report.p90_us), (at(0.1), at(0.9)));
}

/// Refuses every request, for this reason.
struct Never(Reason);

impl Ingress for Never {
    fn admits(&mut self, _: &Offer, _: &mut dyn RngCore) -> Result<(), Refusal> {
        Err(Refusal { reason: self.0, chip: None })
    }
}

struct Endings(std::sync::Arc<std::sync::Mutex<Vec<Ending>>>);

impl Policy for Endings {
    fn set_weights(&mut self, _: &[u32]) {}

    fn pick(&mut self, request: &Request<'_>, _: Nanos, _: &mut dyn RngCore) -> Option<usize> {
        (0..3).find(|i| !request.avoided().contains(i))
    }

    fn on_finish(&mut self, _: usize, finish: &Finish, _: Nanos) {
        self.0.lock().expect("one thread").push(finish.ending);
    }
}

#[test]
fn a_refusal_for_lateness_is_no_evidence_against_the_backend_and_is_retried_where_that_can_help() {
    for (reason, ending, tries) in [
        (Reason::Full, Ending::Rejected, 3),
        (Reason::Queue, Ending::Rejected, 3),
        (Reason::Deadline { is_idle: false }, Ending::TooLate, 3),
        (Reason::Deadline { is_idle: true }, Ending::TooLate, 1),
    ] {
        let mut arena = Arena::new(vec![BackendModel { cores: 1, speed: 1.0 }; 3], 0.5, 100, 1);
        arena.warm_up = 0;
        arena.retry = RetryOptions::of_refusals(2);
        let heard = std::sync::Arc::default();
        let mut doors: Vec<Box<dyn Ingress>> =
            (0..3).map(|_| Box::new(Never(reason)) as _).collect();
        let around = Surroundings { ingress: &mut doors };
        let endings = Endings(std::sync::Arc::clone(&heard));
        let report = arena.run_with(&mut [Box::new(endings)], around);
        assert_eq!((report.dropped, report.refusals), (100, 100 * tries), "{reason:?}");
        let heard = heard.lock().expect("one thread");
        assert_eq!(*heard, vec![ending; 100 * tries as usize], "{reason:?}");
    }
}

#[test]
fn requests_to_a_dead_backend_earn_no_retries() {
    let mut arena = Arena::new(vec![BackendModel { cores: 1, speed: 1.0 }; 2], 0.5, 2_000, 1);
    arena.warm_up = 0;
    arena.timeline = vec![step(0.0, Change::Kill { backend: 0 })];
    arena.retry = RetryOptions::of_refusals(1);
    arena.retry.refusals.budget = Some(RefusalBudget { per_admitted: 1.0, burst: 1 });
    let mut doors: Vec<Box<dyn Ingress>> =
        (0..2).map(|_| Box::new(Never(Reason::Full)) as _).collect();
    let report = arena.run_with(&mut random(1, &[1; 2]), Surroundings { ingress: &mut doors });
    assert!(report.errors > 800 && report.over_budget > 800, "{report:?}");
    assert_eq!(report.retries, 1, "the one there was to begin with");
}

/// Counts admitted requests that have not left.
struct Present(std::sync::Arc<std::sync::Mutex<(u32, u32)>>);

impl Present {
    fn left(&self, in_flight: u32, gone: u32) {
        let mut counts = self.0.lock().expect("one thread");
        counts.0 -= 1;
        counts.1 += gone;
        assert_eq!(counts.0, in_flight);
    }
}

impl Ingress for Present {
    fn admits(&mut self, offer: &Offer, _: &mut dyn RngCore) -> Result<(), Refusal> {
        let mut counts = self.0.lock().expect("one thread");
        assert_eq!(counts.0, offer.in_flight);
        counts.0 += 1;
        Ok(())
    }

    fn leaves(
        &mut self,
        _: Nanos,
        in_flight: u32,
        _: Duration,
        _: bool,
        _: &mut dyn RngCore,
    ) -> Option<bool> {
        self.left(in_flight - 1, 0);
        None
    }

    fn gone(&mut self, _: Nanos, in_flight: u32, waited: Duration) {
        assert!(waited <= Duration::from_millis(130), "in the queue, then served");
        self.left(in_flight, 1);
    }
}

#[test]
fn admission_sees_every_admitted_request_leave() {
    let mut arena = Arena::new(vec![BackendModel { cores: 2, speed: 1.0 }], 1.5, 10_000, 1);
    arena.service = ServiceTime::Deterministic;
    arena.patience = Some(Patience { after: Duration::from_millis(100), cancels: true });
    arena.timeline =
        vec![step(20.0, Change::Kill { backend: 0 }), step(21.0, Change::Return { backend: 0 })];
    let seen = std::sync::Arc::default();
    let mut doors: Vec<Box<dyn Ingress>> = vec![Box::new(Present(std::sync::Arc::clone(&seen)))];
    arena.run_with(&mut random(1, &[1]), Surroundings { ingress: &mut doors });
    let (present, gone) = *seen.lock().expect("one thread");
    assert!(present == 0 && gone > 1_000, "{present} are left, {gone} went without an answer");
}
