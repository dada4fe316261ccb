//! Containers under CPU quotas: healthy backends are never declared failed, and clients wait hardly longer than with
//! weights in proportion to the quotas. (Figures over more seeds: `--example real`.)

use plimsoll_control::RecordKind;
use plimsoll_sim::{ContainerPool, ContainerPoolSpec, Method};

const QUOTAS: [f64; 6] = [0.0267, 0.0267, 0.0427, 0.064, 0.1067, 0.1867];

fn pool(method: Method, load: f64, by_quota: bool) -> ContainerPool {
    seeded(method, load, by_quota, 1)
}

fn seeded(method: Method, load: f64, by_quota: bool, seed: u64) -> ContainerPool {
    let weight = |q: &f64| if by_quota { (q * 1_000.0) as u32 } else { 100 };
    let spec = ContainerPoolSpec {
        quotas: QUOTAS.to_vec(),
        cpu_s: 0.0055,
        workers: None,
        maxconn: None,
        method,
        weights: QUOTAS.iter().map(weight).collect(),
        rate_rps: load * QUOTAS.iter().sum::<f64>() / 0.0055,
        seed,
    };
    ContainerPool::new(spec)
}

/// Mean response time of requests sent from then on; clients that gave up count with ten seconds.
fn mean_ms(pool: &ContainerPool, from_s: f64) -> f64 {
    let sent = pool.outcomes.iter().filter(|o| o.sent_s >= from_s);
    let (sum, n) = sent.fold((0.0, 0), |(sum, n), o| (sum + o.latency_ms.unwrap_or(1e4), n + 1));
    sum / f64::from(n)
}

fn count(pool: &ContainerPool, kind: RecordKind) -> usize {
    pool.records.iter().filter(|(_, record)| record.kind == kind).count()
}

#[test]
fn weights_come_close_to_quotas_and_no_backend_is_declared_failed() {
    for (method, most) in
        [(Method::RoundRobin, [1.5, 1.1, 0.9]), (Method::LeastConn, [1.0, 1.2, 1.2])]
    {
        for (load, most) in [0.5, 0.7, 0.85].into_iter().zip(most) {
            let mut oracle = pool(method, load, true);
            let mut learned = pool(method, load, false);
            learned.attach();
            oracle.run_for(480.0);
            learned.run_for(480.0);
            let ratio = mean_ms(&learned, 180.0) / mean_ms(&oracle, 180.0);
            assert!(ratio < most, "{method:?} at {load}: {ratio:.2}");
            assert_eq!(count(&learned, RecordKind::Failed), 0, "{method:?} at {load}");
        }
    }
}

#[test]
fn a_pause_is_neither_a_change_nor_a_failure() {
    for all in [false, true] {
        let mut learned = pool(Method::LeastConn, 0.7, false);
        learned.attach();
        learned.run_for(180.0);
        let before = count(&learned, RecordKind::Drift);
        for minute in 0..20 {
            let who = if all { 0..6 } else { minute % 6..minute % 6 + 1 };
            who.for_each(|i| learned.pause(i, 1.0));
            learned.run_for(30.0);
        }
        assert_eq!(count(&learned, RecordKind::Failed), 0, "all at once: {all}");
        assert_eq!(count(&learned, RecordKind::Drift), before, "all at once: {all}");
    }
}

#[test]
fn a_neighbour_on_half_of_the_largest_backend_costs_less_than_with_weights_by_quota() {
    let mut lanes = [true, false].map(|by_quota| pool(Method::RoundRobin, 0.7, by_quota));
    lanes[1].attach();
    for lane in &mut lanes {
        lane.run_for(180.0);
        lane.outcomes.clear();
        lane.set_quota(5, 0.5 * QUOTAS[5]);
        lane.run_for(75.0);
        lane.set_quota(5, QUOTAS[5]);
        lane.run_for(120.0);
    }
    let [frozen, ours] = [0, 1].map(|lane| mean_ms(&lanes[lane], 0.0));
    assert!(ours < 0.5 * frozen, "{ours:.0} ms, {frozen:.0} ms under weights by quota");
    let after = [0, 1].map(|lane| mean_ms(&lanes[lane], 285.0));
    assert!(after[1] < 2.0 * after[0], "normal again: {after:?}");
    let given_up = lanes[1].outcomes.iter().filter(|o| o.latency_ms.is_none()).count();
    assert!(given_up < 10, "{given_up} gave up");
    assert_eq!(count(&lanes[1], RecordKind::Failed), 0);
}

#[test]
fn half_of_the_largest_backend_taken_is_recognised_within_ten_seconds() {
    for seed in [0, 7, 9] {
        let mut learned = seeded(Method::RoundRobin, 0.7, false, seed);
        learned.attach();
        learned.run_for(180.0);
        assert_eq!(count(&learned, RecordKind::Drift), 0, "nothing has changed yet");
        learned.set_quota(5, 0.5 * QUOTAS[5]);
        learned.run_for(10.0);
        let of_it = |record: &plimsoll_control::Record| {
            record.kind == RecordKind::Drift && record.backend.as_deref() == Some("s5")
        };
        assert!(learned.records.iter().any(|(_, record)| of_it(record)), "seed {seed}");
    }
}

/// Of 32 slow-downs: the detector takes one in twenty for a change of a backend, by noise.
#[test]
fn slow_downs_that_all_share_are_hardly_ever_laid_to_a_backend() {
    let (mut called, mut doubted) = (0, 0);
    for seed in 0..8 {
        let mut learned = seeded(Method::RoundRobin, 0.7, false, seed);
        learned.attach();
        learned.run_for(180.0);
        for _ in 0..4 {
            (0..6).for_each(|i| learned.set_quota(i, 0.6 * QUOTAS[i]));
            learned.run_for(20.0);
            (0..6).for_each(|i| learned.set_quota(i, QUOTAS[i]));
            learned.run_for(160.0);
        }
        called += count(&learned, RecordKind::Drift);
        doubted += usize::from(count(&learned, RecordKind::Doubted) > 0);
    }
    println!("{called} called, doubted in {doubted} of 8 runs");
    assert!(called <= 3, "{called}");
    assert!(doubted >= 6, "{doubted}: it is said");
}
