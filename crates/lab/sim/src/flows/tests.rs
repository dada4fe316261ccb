//! Small pools whose answers are known.

use std::time::Duration;

use plimsoll_model::Nanos;
use plimsoll_policy::{PolicyKind, Settings};

use super::*;

fn traffic(active: f64, durations: &[(f64, u32)], counted_s: f64) -> Traffic {
    let durations = Durations::new(durations);
    Traffic { active, durations, settle_s: 0.0, counted_s, to_their_end: true, seed: 7 }
}

fn by_key(kind: PolicyKind, weights: &[u32]) -> Box<dyn Steering> {
    Box::new(ByKey::new(kind.build(weights, &Settings::default()).unwrap()))
}

fn at(seconds: f64, update: Update) -> (Nanos, Update) {
    (Nanos::from_secs_f64(seconds), update)
}

/// What breaks of 10-second connections that are counted from 10 s to 20 s.
fn broken(steering: Box<dyn Steering>, weights: &[u32], updates: &[(Nanos, Update)]) -> Broken {
    let mut tracking = Tracking::new(steering, updates, weights);
    let ticks: Vec<Nanos> = updates.iter().map(|(at, _)| *at).collect();
    traffic(2_000.0, &[(10_000.0, 1)], 10.0).run(&ticks, &mut tracking);
    tracking.broken()
}

/// Counts what happens.
#[derive(Default)]
struct Census {
    open: u32,
    keys: Vec<Option<u64>>,
    counted: u64,
    open_at_ticks: Vec<u32>,
    last: Nanos,
}

impl Watch for Census {
    fn start(&mut self, slot: usize, key: u64, counted: bool, now: Nanos) {
        self.keys.resize(self.keys.len().max(slot + 1), None);
        assert!(self.keys[slot].replace(key).is_none() && now >= self.last);
        (self.open, self.last) = (self.open + 1, now);
        self.counted += u64::from(counted);
    }

    fn end(&mut self, slot: usize, lasted: Duration, now: Nanos) {
        assert!(self.keys[slot].take().is_some() && now >= self.last);
        assert!([1, 4].contains(&lasted.as_secs()));
        (self.open, self.last) = (self.open - 1, now);
    }

    fn tick(&mut self, _index: usize, now: Nanos) {
        assert!(now >= self.last);
        self.open_at_ticks.push(self.open);
    }
}

#[test]
fn as_many_are_open_as_little_says() {
    let traffic = traffic(3_000.0, &[(1_000.0, 3), (4_000.0, 1)], 200.0);
    assert_eq!(traffic.durations.mean_s(), 1.75);
    let mut census = Census::default();
    let ticks = traffic.every(Duration::from_secs(1));
    traffic.run(&ticks, &mut census);
    let steady = &census.open_at_ticks[4..];
    let mean = steady.iter().map(|&n| f64::from(n)).sum::<f64>() / steady.len() as f64;
    // 200 readings of a Poisson number of mean 3,000, which forgets within 4 s.
    assert!((mean - 3_000.0).abs() < 25.0, "{mean}");
    let expected = 200.0 * 3_000.0 / 1.75;
    assert!((census.counted as f64 / expected - 1.0).abs() < 0.01, "{} counted", census.counted);
}

#[test]
fn the_web_servers_connections_last_26_seconds_in_the_mean() {
    let durations = Durations::web_server();
    assert!((durations.mean_s() - 26.2).abs() < 0.3, "{}", durations.mean_s());
    assert_eq!(durations.longest().as_secs_f64().round(), 150.0);
}

#[test]
fn a_server_that_leaves_a_ring_breaks_its_own_connections_and_chaining_saves_them() {
    let weights = [16; 10];
    let one = [at(20.0, Update::Leaves(3))];
    let ring = broken(by_key(PolicyKind::HashRing, &weights), &weights, &one);
    // All that are counted are open at 20 s; a tenth of them is the server's.
    assert!((0.07..0.13).contains(&(ring.plain as f64 / ring.connections as f64)), "{ring:?}");
    assert_eq!(ring.chained, 0);
    let modulo = broken(by_key(PolicyKind::HashMap, &weights), &weights, &one);
    assert!(
        (0.85..0.95).contains(&(modulo.plain as f64 / modulo.connections as f64)),
        "{modulo:?}"
    );
    assert_eq!(broken(by_key(PolicyKind::HashRing, &weights), &weights, &[]).plain, 0);
}

#[test]
fn a_chain_remembers_one_change() {
    let weights = [1; 4];
    let table = || Box::new(IndirectionTable::new(400, &weights, Comeback::Home, 1));
    let back = [at(20.0, Update::Leaves(3)), at(21.0, Update::Joins(3))];
    let went = broken(table(), &weights, &back);
    assert!(went.plain > 0 && went.chained == 0, "{went:?}");
    // A third of 3's entries went to 2, and on to 0 or 1: 1 in 12 of all connections.
    let twice = [at(20.0, Update::Leaves(3)), at(20.001, Update::Leaves(2))];
    let both = broken(table(), &weights, &twice);
    let part = |n: u64| n as f64 / both.connections as f64;
    assert!((part(both.chained) - 1.0 / 12.0).abs() < 0.02, "{both:?}");
    assert!((part(both.plain) - 0.5).abs() < 0.03, "{both:?}");
}

#[test]
fn a_table_stays_even_and_moves_no_more_than_it_must() {
    let weights = [1; 20];
    let mut table = IndirectionTable::new(2_000, &weights, Comeback::Share, 3);
    let shares = |table: &IndirectionTable| {
        let mut shares = [0; 20];
        (0..2_000).for_each(|entry| shares[table.server_at(entry)] += 1);
        shares
    };
    assert_eq!(shares(&table), [100; 20]);
    let before: Vec<usize> = (0..2_000).map(|entry| table.server_at(entry)).collect();
    let moved = table.leave(7);
    assert_eq!(moved.len(), 100);
    for (entry, &server) in before.iter().enumerate() {
        let moves = moved.iter().any(|moved| moved.entry as usize == entry);
        assert_eq!(moves, server == 7);
        assert_eq!(moves, table.server_at(entry) != server);
    }
    assert!(table.leave(7).is_empty() && !table.holds(7));
    assert_eq!(table.join(7).len(), 100);
    let after = shares(&table);
    assert!(after[7] == 100 && after.iter().all(|share| (98..=102).contains(share)), "{after:?}");
    (1..20).for_each(|server| assert!(!table.leave(server).is_empty()));
    assert!(table.leave(0).is_empty() && shares(&table)[0] == 2_000, "the last one stays");
}

#[test]
fn updates_come_at_their_rate_and_fit_the_pool() {
    for order in [UpdateOrder::AtRandom { out: 5 }, UpdateOrder::Rolling { out_s: 30.0 }] {
        let updates = Updates { per_minute: 20.0, order, servers: 50, seed: 1 };
        let mut inside: Vec<bool> = updates.weights().iter().map(|&weight| weight > 0).collect();
        let all = updates.until(Nanos::from_secs_f64(6_000.0));
        assert!(all.len().abs_diff(2_000) < 150, "{}", all.len());
        assert!(all.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        for (_, update) in all {
            match update {
                Update::Leaves(server) => assert!(std::mem::replace(&mut inside[server], false)),
                Update::Joins(server) => assert!(!std::mem::replace(&mut inside[server], true)),
            }
            assert!(inside.iter().filter(|&&inside| inside).count() >= 20);
        }
    }
}

fn imbalance(kind: PolicyKind, reweigh: Option<Reweigh>) -> f64 {
    let traffic = Traffic { to_their_end: false, ..traffic(4_000.0, &[(5_000.0, 1)], 20.0) };
    let policy = kind.build(&[10; 40], &Settings::default()).unwrap();
    let mut spreading = Spreading::new(policy, reweigh, 40, traffic.counted_from(), 1);
    traffic.run(&traffic.every(Duration::from_millis(100)), &mut spreading);
    spreading.imbalance_percent()
}

#[test]
fn policies_spread_as_evenly_as_theory_says() {
    // The greatest of 40 numbers of mean 100 and deviation 10 is 21.6 above the mean (order statistics).
    let random = imbalance(PolicyKind::Random, None);
    assert!((17.0..28.0).contains(&random), "{random}");
    // Equal durations and equal turns: no server has two more than another.
    assert!(imbalance(PolicyKind::RoundRobin, None) < 2.0);
    assert!(imbalance(PolicyKind::LeastConnections, None) < 2.0);
    let two = imbalance(PolicyKind::PowerOfN, None);
    assert!(two > 0.5 && two < random / 4.0, "{two}");
}

#[test]
fn weights_follow_the_connections() {
    // The server with the fewest gets all until the next tick.
    fn all_to_the_least(open: &[u32]) -> Vec<u32> {
        let least = open.iter().min().copied().unwrap_or(0);
        open.iter().map(|&n| u32::from(n == least)).collect()
    }
    let reweigh = Reweigh { every: 1, weights: all_to_the_least };
    assert!(imbalance(PolicyKind::RoundRobin, Some(reweigh)) > 10.0);
}

fn rebalanced(threshold: f64) -> Rebalanced {
    let traffic = Traffic { settle_s: 20.0, ..traffic(4_000.0, &[(20_000.0, 1)], 100.0) };
    let table = IndirectionTable::new(4_000, &[1; 40], Comeback::Share, 1);
    let (from, counted) = (traffic.stationary_from(), traffic.counted_from());
    let mut watch = Rebalanced::new(table, threshold, from, counted);
    traffic.run(&traffic.every(Duration::from_millis(100)), &mut watch);
    watch
}

#[test]
fn balance_is_paid_for_with_broken_connections() {
    let never = rebalanced(10.0);
    assert_eq!((never.broken().plain, never.broken().chained, never.changes()), (0, 0, 0));
    let (loose, tight) = (rebalanced(0.3), rebalanced(0.1));
    assert!(loose.changes() > 0 && tight.changes() > loose.changes());
    assert!(tight.broken().chained > loose.broken().chained);
    assert!(tight.broken().plain > tight.broken().chained, "the chain saves most");
    assert!(tight.imbalance_percent() < loose.imbalance_percent());
    assert!(loose.imbalance_percent() < never.imbalance_percent());
}
