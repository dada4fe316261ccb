use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_policy::{EjectionSettings, Ending, PolicyKind, Settings, Sight};
use rand::{RngCore, SeedableRng};
use tokio::sync::Notify;

use super::*;
use crate::alarm::Alarm;
use crate::config::Backend;

const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) fn pool(policy: PolicyKind, backends: usize) -> Pool {
    let backend = |i: usize| Backend {
        name: format!("b{i}"),
        address: SocketAddr::from(([127, 0, 0, 1], 1 + i as u16)),
        weight: 1,
    };
    let key = None;
    let (settings, retries) = (Settings::default(), Default::default());
    let backends = (0..backends).map(backend).collect();
    let queue = None;
    let (source, health, proxy_protocol) = (crate::config::Source::List, None, None);
    Pool {
        cookie: None,
        name: "p".to_owned(),
        policy,
        settings,
        key,
        retries,
        queue,
        source,
        health,
        proxy_protocol,
        backends,
    }
}

/// The copies that so many threads have.
fn copies(pool: &Pool, threads: usize) -> Vec<Rc<Balancer>> {
    timed_copies(pool, threads, Clock::start())
}

fn timed_copies(pool: &Pool, threads: usize, clock: Clock) -> Vec<Rc<Balancer>> {
    copies_with(pool, threads, clock, None)
}

pub(crate) fn copies_with(
    pool: &Pool,
    threads: usize,
    clock: Clock,
    waiting: Option<Arc<Waiting>>,
) -> Vec<Rc<Balancer>> {
    let logs = Logs::new((0..threads).map(|_| Arc::new(Notify::new())).collect());
    let members = Arc::new(Members::new(&pool.backends));
    let copy = |thread| {
        let tally = Arc::new(PoolTally::default().of(&members.read().0));
        let shared = (members.clone(), waiting.clone());
        let balancer =
            Balancer::new(pool, (logs.clone(), thread), clock, tally, shared).expect("a balancer");
        balancer.state.borrow_mut().rng = Xoshiro256PlusPlus::seed_from_u64(thread as u64);
        balancer
    };
    (0..threads).map(copy).collect()
}

#[test]
fn what_one_thread_sends_all_threads_count() {
    let pool = pool(PolicyKind::LeastConnections, 8);
    let copies = copies(&pool, 4);
    // Least connections over 8 backends: each of the first 8 requests goes to another one, whoever sends it.
    let mut flights = Vec::new();
    let mut picked: Vec<usize> = (0..8)
        .map(|k| {
            let flight = copies[k % 4].pick(&Request::default()).expect("a backend");
            let backend = flight.backend();
            flights.push(flight);
            backend
        })
        .collect();
    picked.sort_unstable();
    assert_eq!(picked, [0, 1, 2, 3, 4, 5, 6, 7]);
    // One ends on the thread that sent it: the next, from another thread, goes there.
    let ended = flights.swap_remove(5);
    let backend = ended.backend();
    ended.end(Ending::Success);
    let next = copies[2].pick(&Request::default()).expect("a backend");
    assert_eq!(next.backend(), backend);
}

#[test]
fn chips_are_shared() {
    let pool = pool(PolicyKind::Bloc, 3);
    let copies = copies(&pool, 2);
    let refused = copies[0].pick(&Request::default()).expect("a backend");
    let backend = refused.backend();
    refused.end_unanswered(Ending::Rejected);
    for _ in 0..50 {
        let mut flight = copies[1].pick(&Request::default()).expect("a backend");
        assert_ne!(flight.backend(), backend, "it refused the other thread's request");
        flight.bring(Some(true));
        flight.end(Ending::Success);
    }
}

#[test]
fn nothing_is_lost_for_a_thread_that_does_not_listen() {
    let pool = pool(PolicyKind::LeastConnections, 2);
    let copies = copies(&pool, 2);
    let held = copies[0].pick(&Request::default()).expect("a backend");
    // Far more than the log holds.
    for _ in 0..10 * log::CAPACITY {
        copies[0].pick(&Request::default()).expect("a backend").end(Ending::Success);
    }
    for _ in 0..20 {
        copies[1].upkeep();
        copies[0].upkeep();
    }
    let other = copies[1].pick(&Request::default()).expect("a backend");
    assert_ne!(other.backend(), held.backend());
    drop((held, other));
    let counted = |copy: &Rc<Balancer>| -> u64 {
        copy.tally.backends.iter().map(|backend| backend.in_flight()).sum()
    };
    assert_eq!(copies.iter().map(counted).sum::<u64>(), 0);
}

#[test]
fn a_flight_that_is_dropped_was_given_up() {
    let pool = pool(PolicyKind::Random, 1);
    let copies = copies(&pool, 1);
    drop(copies[0].pick(&Request::default()));
    let tally = &copies[0].tally.backends[0];
    assert_eq!((tally.abandoned.get(), tally.in_flight()), (1, 0));
    std::thread::sleep(Duration::from_millis(1));
    copies[0].pick(&Request::default()).expect("a backend").end(Ending::Success);
    assert_eq!(tally.succeeded.get(), 1);
}

#[test]
fn a_queued_request_goes_to_no_backend_that_is_full_or_ejected() {
    let mut full = pool(PolicyKind::Bloc, 2);
    full.settings.max_in_flight = Some(1);
    let copies = copies(&full, 2);
    let held = copies[0].pick_left(1).expect("it has room");
    assert!(copies[0].pick_left(1).is_none() && copies[1].pick_left(1).is_none(), "it is full");
    held.end_unanswered(Ending::Rejected);
    copies[1].pick_left(1).expect("it has room, whatever its chips are").end(Ending::Success);

    let mut fails = pool(PolicyKind::Random, 2);
    fails.settings.ejection = Some(EjectionSettings::default());
    let copies = self::copies(&fails, 1);
    for _ in 0..EjectionSettings::default().consecutive_failures {
        copies[0].pick_left(1).expect("not ejected yet").end(Ending::Failure);
    }
    assert!(copies[0].pick_left(1).is_none(), "it is ejected");
    assert!(copies[0].pick_left(0).is_some());
}

#[test]
fn a_request_waits_where_its_policy_knows_of_no_room_and_requests_end_sooner() {
    let now: &'static AtomicU64 = Box::leak(Box::default());
    let clock = Clock::Simulated(now);
    let mut asks = pool(PolicyKind::ExpectedDelay, 1);
    asks.settings.expected_delay.sight = Sight::Probes;
    let waiting = Waiting::new(&Default::default(), clock).expect("options");
    let copies = copies_with(&asks, 2, clock, Some(waiting));
    let tell = |copy: usize, in_flight| {
        copies[copy].probed(0, ServerLoad { in_flight, ..ServerLoad::default() }, Duration::ZERO);
    };
    let pick = |copy: usize| copies[copy].pick_or_wait(&Request::default());
    tell(0, 9);
    assert!(matches!(pick(0), Pick::Flight(_)), "nothing is known of how long one would wait");
    // One core: two at a time take 10 and 20 ms. Either thread learns it.
    for _ in 0..400 {
        tell(0, 0);
        let two = [0, 1].map(|copy| copies[copy].pick(&Request::default()).expect("a backend"));
        for flight in two {
            now.fetch_add(10_000_000, Ordering::Relaxed);
            flight.end(Ending::Success);
        }
    }
    for copy in [0, 1] {
        tell(copy, 0);
        assert!(matches!(pick(copy), Pick::Flight(_)), "there is room");
        tell(copy, 5);
        assert!(matches!(pick(copy), Pick::RatherWaits), "one ends each 10 ms");
        assert_eq!(copies[copy].pick(&Request::default()).map(|flight| flight.backend()), Some(0));
    }
    now.fetch_add(10_000_000_000, Ordering::Relaxed);
    tell(0, 5);
    assert!(matches!(pick(0), Pick::Flight(_)), "none has ended for long");
}

thread_local! {
    /// Of the one that waits, and where it went when it was called.
    static CALLED: RefCell<(Option<Rc<Balancer>>, Option<Flight>)> = RefCell::default();
}

/// Goes to backend 0 at once where it is woken, as a request of another thread may.
struct GoesAtOnce;

impl std::task::Wake for GoesAtOnce {
    fn wake(self: Arc<Self>) {
        CALLED.with_borrow_mut(|(balancer, went)| {
            // Kept: the queue is locked, and where a flight ends it is asked.
            *went = balancer.as_ref().and_then(|balancer| balancer.pick_left(0));
        });
    }
}

#[test]
fn an_answer_is_as_old_as_its_question() {
    let now: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(1_000_000_000)));
    let mut asks = pool(PolicyKind::ExpectedDelay, 2);
    asks.settings.expected_delay.sight = Sight::Probes;
    let copies = copies_with(&asks, 1, Clock::Simulated(now), None);
    let service = Duration::from_millis(10);
    for _ in 0..200 {
        let flight = copies[0].pick(&Request::default()).expect("a backend");
        now.fetch_add(service.as_nanos() as u64, Ordering::Relaxed);
        flight.end(Ending::Success);
    }
    let request = Request::default().answered_by(&[0, 1]);
    let to_the_fuller = |took| {
        let goes_there = |_: &u32| {
            for (backend, in_flight) in [(0, 2), (1, 0)] {
                let load = ServerLoad { in_flight, ..ServerLoad::default() };
                copies[0].probed(backend, load, took);
            }
            copies[0].pick(&request).expect("a backend").backend() == 0
        };
        (0..100).filter(goes_there).count()
    };
    assert_eq!(to_the_fuller(Duration::ZERO), 0);
    let turns = to_the_fuller(service);
    assert!((20..80).contains(&turns), "both by chance after a service: {turns}");
}

#[test]
fn a_request_is_sent_to_wait_only_where_a_backend_told_for_it_that_it_is_full() {
    let mut pool = pool(PolicyKind::ExpectedDelay, 1);
    pool.settings.expected_delay.sight = Sight::Probes;
    let copies = copies(&pool, 1);
    let asked = Request::default().answered_by(&[0]);
    let is_to_wait =
        |request: &Request<'_>| copies[0].pick(request).expect("it serves").is_to_wait();
    copies[0].probed(
        0,
        ServerLoad { in_flight: 3, cores: Some(4.0), ..ServerLoad::default() },
        Duration::ZERO,
    );
    assert!(!is_to_wait(&asked), "one of four cores is free");
    copies[0].probed(
        0,
        ServerLoad { in_flight: 4, cores: Some(4.0), ..ServerLoad::default() },
        Duration::ZERO,
    );
    assert!(is_to_wait(&asked));
    assert!(!is_to_wait(&Request::default()), "it told another request");
    assert!(!copies[0].pick_own(0).expect("it serves").is_to_wait(), "nobody was asked for it");
}

#[tokio::test]
async fn a_waiting_request_is_called_after_the_ended_one_is_uncounted() {
    let waits = async {
        let waiting = Waiting::new(&Default::default(), Clock::start()).expect("options");
        let mut full = pool(PolicyKind::Random, 1);
        full.settings.max_in_flight = Some(1);
        let copies = copies_with(&full, 2, Clock::start(), Some(waiting.clone()));
        let held = copies[0].pick(&Request::default()).expect("a backend");
        let (place, alarm) = (waiting.enter(None).expect("a place"), Alarm::default());
        let mut turn = std::pin::pin!(place.turn(&alarm, tokio::time::Instant::now() + HOUR));
        let waker = std::task::Waker::from(Arc::new(GoesAtOnce));
        let mut cx = std::task::Context::from_waker(&waker);
        assert!(turn.as_mut().poll(&mut cx).is_pending());
        CALLED.with_borrow_mut(|(balancer, _)| *balancer = Some(copies[1].clone()));
        held.end(Ending::Success);
        let (_, went) = CALLED.take();
        assert!(went.is_some(), "called while the backend still counted as full");
    };
    tokio::task::LocalSet::new().run_until(waits).await;
}

/// Response times, in simulated milliseconds, of Poisson requests to backends of one core and 1 ms, half of them
/// twice as fast, at 80 % of what all can do; each comes to a random thread. The mean, and the 99th percentile.
/// A policy that asks before it picks is answered at once.
fn simulated((policy, sight): (PolicyKind, Sight), threads: usize, are_one: bool) -> (f64, f64) {
    const REQUESTS: usize = 100_000;
    const BACKENDS: usize = 10;
    let now: &'static AtomicU64 = Box::leak(Box::default());
    let (mut pool, clock) = (pool(policy, BACKENDS), Clock::Simulated(now));
    pool.settings.expected_delay.sight = sight;
    let copies = match are_one {
        true => timed_copies(&pool, threads, clock),
        false => (0..threads).flat_map(|_| timed_copies(&pool, 1, clock)).collect(),
    };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut exponential = move |mean_ns: f64| {
        let part = ((rng.next_u64() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        (-part.ln() * mean_ns) as u64
    };
    let mut threads_rng = Xoshiro256PlusPlus::seed_from_u64(8);
    let mut free_at = [0; BACKENDS];
    let mut under_way: BTreeMap<(u64, usize), Flight> = BTreeMap::new();
    let mut targets = Vec::new();
    let (mut arrives, mut took) = (0, Vec::with_capacity(REQUESTS));
    for number in 0..REQUESTS {
        arrives += exponential(1e6 / (15.0 * 0.8));
        while let Some(entry) = under_way.first_entry().filter(|entry| entry.key().0 <= arrives) {
            now.store(entry.key().0, Ordering::Relaxed);
            entry.remove().end(Ending::Success);
        }
        now.store(arrives, Ordering::Relaxed);
        let thread = threads_rng.next_u64() as usize % threads;
        targets.clear();
        while copies[thread].probing() == Probing::Before {
            let before = targets.len();
            copies[thread].probe_targets(None, &mut targets);
            for &backend in &targets[before..] {
                let is_there = |flight: &&Flight| flight.backend() == backend;
                let in_flight = under_way.values().filter(is_there).count() as u32;
                copies[thread].probed(
                    backend,
                    ServerLoad { in_flight, ..ServerLoad::default() },
                    Duration::ZERO,
                );
            }
            if before > 0 || !copies[thread].have_no_room(&targets) {
                break;
            }
        }
        let request = Request::default().answered_by(&targets);
        let flight = copies[thread].pick(&request).expect("a backend");
        let backend = flight.backend();
        let service = exponential(if backend % 2 == 0 { 1e6 } else { 5e5 });
        free_at[backend] = arrives.max(free_at[backend]) + service;
        // The first tenth is warm-up.
        if number >= REQUESTS / 10 {
            took.push((free_at[backend] - arrives) as f64 / 1e6);
        }
        under_way.insert((free_at[backend], number), flight);
    }
    took.sort_by(f64::total_cmp);
    let mean = took.iter().sum::<f64>() / took.len() as f64;
    (mean, took[took.len() * 99 / 100])
}

#[test]
fn four_threads_wait_no_longer_than_one() {
    let own = [PolicyKind::ExpectedDelay, PolicyKind::Bloc, PolicyKind::LeastConnections];
    let own = own.map(|policy| (policy, Sight::Own));
    for policy in own.into_iter().chain([(PolicyKind::ExpectedDelay, Sight::Probes)]) {
        let ((one, one_p99), (four, four_p99)) =
            (simulated(policy, 1, true), simulated(policy, 4, true));
        assert!((four / one - 1.0).abs() < 0.05, "{policy:?}: mean {four:.3} ms against {one:.3}");
        let off = (four_p99 / one_p99 - 1.0).abs();
        assert!(off < 0.1, "{policy:?}: p99 {four_p99:.3} ms against {one_p99:.3}");
        let (apart, _) = simulated(policy, 4, false);
        // Whoever asks backends needs to know less of the others.
        let is_blind = policy.1 == Sight::Own;
        assert!(
            !is_blind || apart > 1.1 * one,
            "{policy:?}: {apart:.3} ms where they do not know of each other"
        );
    }
}
