use std::time::Duration;

use plimsoll_policy::{Ending, PolicyKind, Settings};
use tokio::sync::Notify;

use super::*;
use crate::config::Backend;

fn pool(policy: PolicyKind, backends: usize) -> Pool {
    let backend = |i: usize| Backend {
        name: format!("b{i}"),
        address: SocketAddr::from(([127, 0, 0, 1], 1 + i as u16)),
        weight: 1,
    };
    let key = None;
    let (settings, retries) = (Settings::default(), Default::default());
    let backends = (0..backends).map(backend).collect();
    Pool { name: "p".to_owned(), policy, settings, key, retries, backends }
}

/// The copies that so many threads have.
fn copies(pool: &Pool, threads: usize) -> Vec<Rc<Balancer>> {
    let logs = Logs::new((0..threads).map(|_| Arc::new(Notify::new())).collect());
    let clock = Clock::start();
    let copy = |thread| {
        let tally = Arc::new(PoolTally::new(pool.backends.len()));
        Balancer::new(pool, (logs.clone(), thread), clock, tally).expect("a balancer")
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
            let flight = copies[k % 4].pick(None, &[]).expect("a backend");
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
    let next = copies[2].pick(None, &[]).expect("a backend");
    assert_eq!(next.backend(), backend);
}

#[test]
fn chips_are_shared() {
    let pool = pool(PolicyKind::Bloc, 3);
    let copies = copies(&pool, 2);
    let refused = copies[0].pick(None, &[]).expect("a backend");
    let backend = refused.backend();
    refused.end(Ending::Rejected);
    for _ in 0..50 {
        let mut flight = copies[1].pick(None, &[]).expect("a backend");
        assert_ne!(flight.backend(), backend, "it refused the other thread's request");
        flight.bring(Some(true));
        flight.end(Ending::Success);
    }
}

#[test]
fn nothing_is_lost_for_a_thread_that_does_not_listen() {
    let pool = pool(PolicyKind::LeastConnections, 2);
    let copies = copies(&pool, 2);
    let held = copies[0].pick(None, &[]).expect("a backend");
    // Far more than the log holds.
    for _ in 0..10 * log::CAPACITY {
        copies[0].pick(None, &[]).expect("a backend").end(Ending::Success);
    }
    for _ in 0..20 {
        copies[1].upkeep();
        copies[0].upkeep();
    }
    let other = copies[1].pick(None, &[]).expect("a backend");
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
    drop(copies[0].pick(None, &[]));
    let tally = &copies[0].tally.backends[0];
    assert_eq!((tally.abandoned.get(), tally.in_flight()), (1, 0));
    std::thread::sleep(Duration::from_millis(1));
    copies[0].pick(None, &[]).expect("a backend").end(Ending::Success);
    assert_eq!(tally.succeeded.get(), 1);
}
