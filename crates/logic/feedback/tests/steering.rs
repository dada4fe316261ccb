//! Slots, scaling, and the step from counts to weights.

use std::time::Duration;

use plimsoll_feedback::{
    Ages, BalancerKind, Counts, CpuModel, Place, Scale, ScaleAction, ScaleSettings, Shape, Slots,
    Steering,
};
use plimsoll_model::Nanos;

fn counted(table: &[u32], cores: usize) -> Vec<usize> {
    (0..cores).map(|core| table.iter().filter(|&&slot| slot as usize == core).count()).collect()
}

#[test]
fn every_run_of_slots_has_its_shares() {
    let weights = [0.5, 0.3, 0.15, 0.05];
    let mut slots = Slots::new(1000, 4);
    assert!(slots.fill(&weights));
    for run in [3, 10, 17, 256, 1000] {
        for from in (0..=1000 - run).step_by(13) {
            let found = counted(&slots.table()[from..from + run], 4);
            for (count, weight) in found.iter().zip(weights) {
                let expected = weight * run as f64;
                assert!((*count as f64 - expected).abs() < 2.0, "{found:?} of {run} from {from}");
            }
        }
    }
}

#[test]
fn a_core_with_less_than_a_slot_gets_one_every_few_tables() {
    let mut slots = Slots::new(16, 2);
    let mut rare = 0;
    for _ in 0..100 {
        assert!(slots.fill(&[0.99, 0.01]));
        rare += counted(slots.table(), 2)[1];
    }
    assert!((15..=17).contains(&rare), "{rare} of 1600");
}

#[test]
fn without_weights_the_table_stays() {
    let mut slots = Slots::new(4, 2);
    assert!(slots.fill(&[0.0, 1.0]));
    assert!(!slots.fill(&[0.0, 0.0]));
    assert_eq!(slots.table(), [1; 4]);
    // A core that comes back is not owed for the time that it was away.
    assert!(slots.fill(&[0.5, 0.5]));
    assert_eq!(counted(slots.table(), 2), [2, 2]);
    assert_eq!(Slots::new(0, 1).table().len(), 1);
}

fn at(ms: u64) -> Nanos {
    Nanos(ms * 1_000_000)
}

/// Steps a millisecond at a time; what was done, and when.
fn steps(
    scale: &mut Scale,
    ms: std::ops::Range<u64>,
    load: f64,
    standbys: &[usize],
) -> Vec<(u64, ScaleAction)> {
    ms.filter_map(|ms| scale.step(at(ms), load, 1, standbys).map(|done| (ms, done))).collect()
}

#[test]
fn a_standby_joins_when_the_mean_stays_high_and_leaves_when_the_rest_can_do_without() {
    let Ok(mut scale) = Scale::new(ScaleSettings::default()) else { panic!("defaults are good") };
    assert_eq!(steps(&mut scale, 0..1000, 0.94, &[1]), []);
    assert_eq!(steps(&mut scale, 1000..1019, 1.2, &[1]), [], "a burst");
    assert_eq!(steps(&mut scale, 1019..1200, 0.9, &[1]), []);
    assert_eq!(steps(&mut scale, 1200..1500, 0.95, &[1]), [(1220, ScaleAction::Activate(0))]);
    // Both together have 0.475, which is below 0.6; the first alone would have 0.95.
    assert_eq!(steps(&mut scale, 1500..30_000, 0.95, &[1]), []);
    assert_eq!(steps(&mut scale, 30_000..39_000, 0.59, &[1]), [], "for less than 10 s");
    assert_eq!(steps(&mut scale, 39_000..39_100, 0.7, &[1]), []);
    assert_eq!(steps(&mut scale, 39_100..49_200, 0.59, &[1]), [(49_100, ScaleAction::Release(0))]);
    assert!(scale.active().is_empty());
}

#[test]
fn as_many_standbys_join_as_are_needed_and_failed_ones_are_passed_over() {
    let Ok(mut scale) = Scale::new(ScaleSettings::default()) else { panic!("defaults are good") };
    let done = steps(&mut scale, 0..1000, 4.5, &[1, 0, 2, 4]);
    let joined = [0, 2, 3].map(ScaleAction::Activate);
    assert_eq!(done.iter().map(|(_, action)| *action).collect::<Vec<_>>(), joined);
    assert_eq!(scale.active(), [0, 2, 3]);
    // The last one fails: it is not active any more, and there is none left to replace it.
    assert_eq!(steps(&mut scale, 1000..2000, 4.5, &[1, 0, 2, 0]), []);
    assert_eq!(scale.active(), [0, 2]);
    // Load falls: they leave one by one, the last first.
    let done = steps(&mut scale, 2000..60_000, 0.1, &[1, 0, 2, 0]);
    let left = [2, 0].map(ScaleAction::Release);
    assert_eq!(done.iter().map(|(_, action)| *action).collect::<Vec<_>>(), left);
}

#[test]
fn with_no_active_backend_a_standby_joins_at_any_load_and_settings_are_checked() {
    let Ok(mut scale) = Scale::new(ScaleSettings::default()) else { panic!("defaults are good") };
    let done: Vec<_> = (0..200).filter_map(|ms| scale.step(at(ms), 0.01, 0, &[1])).collect();
    assert_eq!(done, [ScaleAction::Activate(0)]);
    for (up, down) in [(0.5, 0.6), (0.6, 0.6), (f64::NAN, 0.6), (0.9, 0.0)] {
        let settings = ScaleSettings { up, down, hold: Duration::from_secs(1) };
        let error = Scale::new(settings).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("0 < down < up")), "{up} {down}");
    }
}

const TWO: Shape = Shape { servers: 2, cores: 1, services: 2 };

fn both_serve(steering: &mut Steering) -> CpuModel {
    let mut model = CpuModel::new(TWO);
    for server in 0..2 {
        for service in 0..2 {
            let place = Place { server, core: 0, service };
            steering.set_serves(place, true);
            model.calibrate(place, 1e-6);
        }
    }
    model
}

#[test]
fn services_do_not_all_correct_the_same_imbalance() {
    let mut steering = Steering::new(TWO, BalancerKind::WaterFill);
    let model = both_serve(&mut steering);
    // In 10 ms: an elephant of 0.4 on server 0 under service 0; 0.2 young of either service on both servers.
    let counts =
        Counts { seconds: 0.01, old: &[4000, 0, 0, 0], aging: &[], new: &[1000, 1000, 1000, 1000] };
    steering.step(at(10), &counts, &model);
    assert!(steering.predicted().iter().zip([0.6, 0.2]).all(|(a, b)| (a - b).abs() < 1e-9));
    assert!((steering.total() - 0.8).abs() < 1e-9);
    // Both servers are to have 0.4: whatever the services do, their 0.4 of young load goes to server 1.
    let young = |server: usize| 0.2 * (steering.weights(0)[server] + steering.weights(1)[server]);
    assert!(
        (0.4 + young(0) - young(1)).abs() < 0.02,
        "{:?}",
        [steering.weights(0), steering.weights(1)]
    );
}

#[test]
fn a_service_goes_only_where_it_is_served() {
    let mut steering = Steering::new(TWO, BalancerKind::Pid);
    let model = both_serve(&mut steering);
    let counts = Counts { seconds: 0.03, old: &[0; 4], aging: &[0; 4], new: &[10; 4] };
    steering.step(at(30), &counts, &model);
    assert_eq!(steering.weights(1), [0.5, 0.5]);
    steering.set_serves(Place { server: 1, core: 0, service: 1 }, false);
    assert_eq!(steering.weights(1), [0.5, 0.0], "at once");
    steering.step(at(60), &counts, &model);
    assert_eq!((steering.weights(1), steering.weights(0)), (&[1.0, 0.0][..], &[0.5, 0.5][..]));
    steering.set_serves(Place { server: 0, core: 0, service: 1 }, false);
    steering.step(at(90), &counts, &model);
    assert_eq!(steering.weights(1), [0.0, 0.0]);
}

#[test]
fn ages_are_those_of_the_documentation() {
    let Ages { aging, old, heavy } = Ages::default();
    assert_eq!((2 * aging, heavy), (old, 32));
}
