//! Behind a balancer that counts, arrivals follow from what is in flight; cores are told all the same.

use plimsoll_sim::{Method, World, WorldSpec, small_pool};

const SERVICE_US: f64 = 30_000.0;
/// One core of eight is more.
const RIGHT: f64 = 0.07;

#[test]
fn behind_leastconn_the_cores_of_every_backend_are_known_and_stay_known_when_one_slows_down() {
    for seed in [1, 2] {
        let mut pool = small_pool();
        let mut world = World::new(WorldSpec::new(pool.clone(), Method::LeastConn, 0.7, seed));
        world.forget_answers();
        let service = world.service_spec();
        world.attach(service, None);
        world.run_for(1_500.0);
        let largest = pool.len() - 1;
        for slowed in [false, true] {
            if slowed {
                pool[largest].speed *= 0.6;
                world.set_speed(largest, pool[largest].speed);
                world.run_for(60.0);
            }
            let controller = world.controller().expect("one is attached");
            for (i, (model, belief)) in pool.iter().zip(controller.beliefs()).enumerate() {
                let off = belief.capacity_rps.unwrap_or(0.0) / model.capacity_rps(SERVICE_US) - 1.0;
                assert!(!belief.is_lower_bound, "seed {seed}, slowed {slowed}: s{i}");
                assert!(off.abs() < RIGHT, "seed {seed}, slowed {slowed}: s{i} off by {off:.3}");
            }
        }
    }
}
