//! KnapsackLB's controller before a real HAProxy.

use std::time::{Duration, Instant};

use plimsoll_control::{Phase, RecordKind};
use plimsoll_lanes::{Distribution, Family, Lane, LaneError, LaneKind, Pool};
use plimsoll_sim::BackendModel;

#[test]
fn it_measures_weights_in_rounds_and_goes_on_after_a_rest() {
    let family = Family::start().expect("a family");
    let model = |cores| BackendModel { cores, speed: 1.0 };
    let (service, spread) = (Duration::from_millis(10), Distribution::Exponential);
    let pool = Pool::new(&[model(1), model(2), model(4)], service, spread, 0.3, 1);
    let mut lane = match Lane::start(&family, &pool, LaneKind::KnapsackBisect, "knapsack") {
        Err(LaneError::NoHaproxy) => {
            eprintln!("skipped: haproxy is not installed");
            return;
        }
        lane => lane.expect("starts"),
    };
    lane.open(&family).expect("clients come");
    let plans =
        |lane: &Lane| lane.events().iter().filter(|event| event.kind == RecordKind::Plan).count();
    let began = Instant::now();
    let wait_for = |lane: &mut Lane, count: usize| {
        while plans(lane) < count {
            lane.check().expect("all live");
            assert!(began.elapsed() < Duration::from_secs(180), "{:?}", lane.events());
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    wait_for(&mut lane, 2);
    assert_eq!(lane.phase(), Some(Phase::Exploring));
    // A plan is told before the balancer holds it; the next comes a round later, which is ten seconds.
    let mut held = lane.held(None);
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = lane.held(None);
        if std::mem::replace(&mut held, now.clone()) == now {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(180), "{:?}", lane.events());
    }
    assert!(held.iter().any(|weight| *weight != held[0]), "one was measured by itself: {held:?}");
    lane.rest();
    assert_eq!(lane.held(None), held, "the balancer keeps them");
    let so_far = plans(&lane);
    lane.open(&family).expect("it goes on");
    wait_for(&mut lane, so_far + 1);
    lane.finish().expect("ends");
}
