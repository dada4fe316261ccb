//! The weights in the balancer serve clients without the controller as well: after a crash, after an exit, and while
//! another party sets weights.

use plimsoll_control::Event;
use plimsoll_sim::{BackendModel, Method, World, WorldSpec, paper_pool, small_pool};

const SERVICE_US: f64 = 30_000.0;

/// One fast server and three slow ones: at low load the fast one alone would be quickest.
fn uneven_pool() -> Vec<BackendModel> {
    [(8, 4.0), (4, 1.0), (2, 0.5), (1, 0.5)]
        .map(|(cores, speed)| BackendModel { cores, speed })
        .to_vec()
}

fn world(pool: Vec<BackendModel>, method: Method, load: f64, seed: u64) -> World {
    let mut world = World::new(WorldSpec::new(pool, method, load, seed));
    let spec = world.service_spec();
    world.attach(spec, None);
    world
}

/// The highest load of any server, as a part of its capacity, after the loss of the worst of those servers without
/// which the others can carry the traffic.
fn worst_load_after_a_loss(pool: &[BackendModel], method: Method, w: &[u32], rate: f64) -> f64 {
    let capacity: Vec<f64> = pool.iter().map(|b| b.capacity_rps(SERVICE_US)).collect();
    let without = |lost: usize| {
        let left = || (0..pool.len()).filter(move |i| *i != lost && w[*i] > 0);
        let weights: f64 = left().map(|i| f64::from(w[i])).sum();
        match method {
            _ if weights == 0.0 => f64::INFINITY,
            Method::LeastConn => rate / left().map(|i| capacity[i]).sum::<f64>(),
            Method::RoundRobin => {
                left().map(|i| rate * f64::from(w[i]) / weights / capacity[i]).fold(0.0, f64::max)
            }
        }
    };
    let all: f64 = capacity.iter().sum();
    let can_do_without = |i: &usize| w[*i] > 0 && rate < 0.85 * (all - capacity[*i]);
    (0..pool.len()).filter(can_do_without).map(without).fold(0.0, f64::max)
}

#[test]
fn weights_survive_the_loss_of_any_server_at_any_time() {
    for (pool, load) in [(uneven_pool(), 0.03), (uneven_pool(), 0.3), (small_pool(), 0.4)] {
        for method in [Method::RoundRobin, Method::LeastConn] {
            let mut w = world(pool.clone(), method, load, 3);
            let rate = load * pool.iter().map(|b| b.capacity_rps(SERVICE_US)).sum::<f64>();
            for second in 0..240 {
                w.run_for(1.0);
                let weights = w.weights();
                let holders = weights.iter().filter(|weight| **weight > 0).count();
                assert!(holders >= 2, "{method:?} at {load}, {second} s: {weights:?}");
                // What is known at first is not enough.
                if second > 120 {
                    let worst = worst_load_after_a_loss(&pool, method, &weights, rate);
                    assert!(worst < 1.1, "{method:?} at {load}, {second} s: {worst} {weights:?}");
                }
            }
        }
    }
}

#[test]
fn servers_are_still_parked_beyond_the_reserve() {
    let mut w = world(paper_pool(11), Method::LeastConn, 0.4, 3);
    w.run_for(200.0);
    assert!(w.weights().iter().filter(|weight| **weight == 0).count() >= 3, "{:?}", w.weights());
}

#[test]
fn all_zero_weights_are_corrected_at_once_however_often_they_are_set() {
    for method in [Method::RoundRobin, Method::LeastConn] {
        let mut w = world(small_pool(), method, 0.5, 6);
        w.run_for(60.0);
        for times in 0..40 {
            (0..6).for_each(|i| w.set_foreign_weight(i, 0));
            w.run_for(0.2);
            let weights = w.weights();
            assert!(weights.iter().any(|weight| *weight > 0), "{method:?}: the {times}th time");
            w.run_for(0.5);
        }
    }
}

#[test]
fn all_zero_weights_at_the_start_are_corrected_at_once() {
    for method in [Method::RoundRobin, Method::LeastConn] {
        let mut spec = WorldSpec::new(small_pool(), method, 0.5, 6);
        spec.weights = vec![0; 6];
        let mut w = World::new(spec);
        let spec = w.service_spec();
        w.attach(spec, None);
        w.run_for(0.3);
        assert!(w.weights().iter().all(|weight| *weight > 0), "{method:?}: {:?}", w.weights());
    }
}

#[test]
fn returned_server_gets_its_full_weight_without_traffic() {
    for method in [Method::RoundRobin, Method::LeastConn] {
        let mut spec = WorldSpec::new(small_pool(), method, 0.0, 6);
        spec.weights = vec![100; 6];
        let mut w = World::new(spec);
        let spec = w.service_spec();
        w.attach(spec, None);
        w.run_for(5.0);
        assert_eq!(w.weights(), [100; 6], "{method:?}");
        w.set_alive(3, false);
        w.run_for(5.0);
        assert_eq!(w.weights(), [100, 100, 100, 0, 100, 100], "{method:?}");
        w.set_alive(3, true);
        w.run_for(2.0);
        let first = w.weights()[3];
        assert!((1..50).contains(&first), "{method:?}: it ramps up: {first}");
        w.run_for(20.0);
        assert_eq!(w.weights(), [100; 6], "{method:?}");
    }
}

#[test]
fn a_clean_exit_leaves_every_healthy_server_with_weight() {
    for (method, load) in [(Method::LeastConn, 0.03), (Method::RoundRobin, 0.03)] {
        let mut w = world(uneven_pool(), method, load, 4);
        w.run_for(200.0);
        w.set_alive(1, false);
        w.run_for(2.0);
        w.tell_controller(Event::Stopping);
        // The plan is applied, and nothing else happens.
        w.run_for(0.004);
        w.detach();
        let weights = w.weights();
        let holds: Vec<bool> = weights.iter().map(|weight| *weight > 0).collect();
        assert_eq!(holds, [true, false, true, true], "{method:?}: {weights:?}");
        let rate = load * uneven_pool().iter().map(|b| b.capacity_rps(SERVICE_US)).sum::<f64>();
        let living = |i: &usize| *i != 1;
        let pool: Vec<_> = (0..4).filter(living).map(|i| uneven_pool()[i]).collect();
        let left: Vec<u32> = (0..4).filter(living).map(|i| weights[i]).collect();
        let worst = worst_load_after_a_loss(&pool, method, &left, rate);
        assert!(worst < 1.2, "{method:?}: {worst} {weights:?}");
    }
}

#[test]
fn idle_service_wants_the_weights_in_force() {
    let mut spec = WorldSpec::new(small_pool(), Method::RoundRobin, 0.0, 6);
    spec.weights = vec![100; 6];
    let mut w = World::new(spec);
    let spec = w.service_spec();
    w.attach(spec, None);
    w.run_for(30.0);
    let view = w.controller().expect("a controller").view(w.now());
    let shown: Vec<_> = view.backends.iter().map(|b| (b.programmed, b.weight)).collect();
    assert_eq!(shown, [(Some(100), 100); 6]);
    assert!(w.plans.is_empty());
}
