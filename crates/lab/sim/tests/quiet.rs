//! A world in which nothing changes: nothing is taken for a change.

use plimsoll_control::RecordKind;
use plimsoll_sim::{Method, World, WorldSpec, paper_pool, small_pool};

/// While a pool is being learned, cores are not yet certain and a change may be seen that is none.
const LEARNED_S: f64 = 180.0;

#[test]
fn an_hour_of_noise_is_left_alone() {
    for (pool, method, seed) in [
        (paper_pool(11), Method::RoundRobin, 1),
        (small_pool(), Method::RoundRobin, 2),
        (small_pool(), Method::LeastConn, 3),
    ] {
        let mut world = World::new(WorldSpec::new(pool, method, 0.7, seed));
        let spec = world.service_spec();
        world.attach(spec, None);
        world.run_for(3_600.0);
        let alarms: Vec<String> = world
            .records
            .iter()
            .filter(|(at, r)| r.kind == RecordKind::Drift && at.as_secs_f64() > LEARNED_S)
            .map(|(at, r)| format!("{:.0} s: {:?}", at.as_secs_f64(), r))
            .collect();
        assert!(alarms.is_empty(), "{method:?}: {} alarms, {alarms:#?}", alarms.len());
    }
}
