use std::time::Duration;

use plimsoll_feedback::{Ages, BalancerKind, ScaleSettings};

use super::core::Core;
use super::*;

/// A few seconds of two cores, one with an elephant of 47 %.
fn elephant(way: Way) -> EdgeRun {
    let mut run = EdgeRun::new(2, 0.85, way);
    run.cost = 7e-6;
    run.traffic.packets_per_ms /= 10.0;
    run.traffic.elephants = Elephants::Fixed { share: 0.47 };
    (run.run_ms, run.warm_ms) = (3000, 1000);
    run
}

#[test]
fn a_core_is_busy_for_its_packets_and_its_batches_and_drops_what_has_no_room() {
    let mut core = Core::new(100, 0.0);
    for _ in 0..1000 {
        core.tick(5, 1e-6);
    }
    let (busy, served, lost) = core.take();
    assert!((busy - 5e-3).abs() < 1e-5 && (4995..=5000).contains(&served), "{busy} {served}");
    assert_eq!(lost, 0);
    // Twice what it serves: half is lost once the queue of 100 is full, and whoever waits has all of it ahead.
    let mut delay = 0.0;
    for _ in 0..1000 {
        delay = core.tick(20, 1e-6);
    }
    let (busy, served, lost) = core.take();
    assert!((busy - 10e-3).abs() < 1e-4 && served.abs_diff(10_000) < 100, "{busy} {served}");
    assert!(lost.abs_diff(9_900) < 100, "{lost}");
    assert!((90e-6..120e-6).contains(&delay), "{delay}");
    // Packets that come alone pay a batch each; where they wait, batches are shared.
    let mut core = Core::new(100, 1e-6);
    (0..1000).for_each(|_| _ = core.tick(1, 1e-6));
    assert!((core.take().0 - 2e-3).abs() < 1e-5);
    let mut core = Core::new(1000, 1e-6);
    (0..1000).for_each(|_| _ = core.tick(20, 1e-6));
    assert!(core.take().1 > 9_500, "nearly one a microsecond");
}

#[test]
fn an_elephant_stays_and_mice_move_away_from_it() {
    let even = elephant(Way::policy(BalancerKind::WeightedRoundRobin)).run();
    // 0.47 · 1.7 of a core more than the other: 1.25 beside 0.45.
    assert!((even.gap - 79.9).abs() < 1.0, "{}", even.gap);
    assert!((even.lost - 14.7).abs() < 1.5, "{}", even.lost);
    let filled = elephant(Way::policy(BalancerKind::WaterFill)).run();
    assert!(filled.gap < 5.0 && filled.lost < 0.1, "{} {}", filled.gap, filled.lost);
    assert!(filled.delay_p99 < even.delay_p99);
    assert!(filled.served > even.served);
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_not() {
    let gap = |seed| EdgeRun { seed, ..elephant(Way::policy(BalancerKind::Monitor)) }.run().gap;
    assert_eq!(gap(1).to_bits(), gap(1).to_bits());
    assert_ne!(gap(1).to_bits(), gap(2).to_bits());
}

#[test]
fn all_ways_run_and_send_what_is_offered() {
    let ways = BalancerKind::ALL.iter().map(|&kind| Way::policy(kind));
    for way in ways.chain([Way::Awrr, Way::Choices(2), Way::Least]) {
        let run = elephant(way);
        let seen = run.run();
        let offered: f64 = seen.windows.iter().flat_map(|window| &window.offered).sum();
        let mean = offered / seen.windows.len() as f64;
        assert!((mean - 1.7).abs() < 0.05, "{}: {mean}", way.name());
        assert!(seen.gap.is_finite() && seen.busy_gap <= 100.0, "{}", way.name());
    }
}

#[test]
fn elephants_known_by_their_packets_are_avoided_sooner_than_by_their_age() {
    let moving = Elephants::Moving { share: 0.3, load: 0.15, mean_ms: 300.0 };
    let gap = |ages: Ages, ms: u64| {
        let way = Way::Policy(BalancerKind::WaterFill, Duration::from_millis(ms));
        let mut run = elephant(way);
        (run.cores, run.ages, run.traffic.elephants) = (8, ages, moving);
        run.traffic.packets_per_ms *= 4.0;
        run.run().gap
    };
    let old = Duration::from_millis(20);
    let by_age = gap(Ages { aging: old, old, heavy: u32::MAX }, 10);
    let by_packets = gap(Ages::default(), 10);
    let sooner = gap(Ages::default(), 5);
    assert!(by_packets < 0.85 * by_age, "{by_packets} beside {by_age}");
    assert!(sooner < 0.85 * by_packets, "{sooner} beside {by_packets}");
}

#[test]
fn a_standby_takes_what_comes_when_the_load_doubles() {
    let way = Way::policy(BalancerKind::WaterFill);
    let mut run = EdgeRun::new(2, 0.45, way);
    run.traffic.mice = Mice::Packets(10_000);
    run.traffic.packets_per_ms /= 10.0;
    run.cost = 7e-6;
    run.traffic.step = Some(Step { at_ms: 2000, factor: 1.9, ramp_ms: 1000 });
    run.standby = Some(Standby { cores: 1, scale: ScaleSettings::default() });
    (run.run_ms, run.warm_ms) = (4500, 0);
    let seen = run.run();
    let joined = seen.windows.iter().position(|window| window.serving == 2);
    let joined = joined.map(|index| seen.windows[index].at);
    assert!(joined.is_some_and(|at| (2.0..3.0).contains(&at)), "{joined:?}");
    let [first, second] = [0, 1].map(|core| seen.windows[seen.windows.len() - 1].offered[core]);
    assert!(first + second > 1.5 && (first - second).abs() < 0.25, "{first} {second}");
    assert!(seen.windows.iter().take(60).all(|window| window.offered[1] == 0.0));
}

#[test]
fn learned_costs_predict_what_calibration_misses() {
    let one = Accuracy {
        costs: [700e-9, 700e-9],
        second: 0.0,
        batch_cost: 100e-9,
        load: 0.7,
        grown: 1.0,
        report_error: 0.02,
        seed: 1,
    };
    let [calibrated, learned] = one.run().errors();
    assert!(calibrated > 1.0, "batches are shared, so calibration predicts too much: {calibrated}");
    assert!(learned.abs() < 2.0 && learned.abs() < calibrated, "{learned}");
    // Without reports a cost that has grown is not known.
    let [_, stale] = Accuracy { grown: 1.3, load: 0.6, ..one }.run().errors();
    assert!(stale < -10.0, "{stale}");
}
