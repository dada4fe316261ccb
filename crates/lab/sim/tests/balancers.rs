//! Several balancers before one pool, each of which counts only its own requests in flight: what it brings that the
//! controller knows how many they are, and that each has a subset of the servers.

use plimsoll_control::ServiceSpec;
use plimsoll_sim::{Method, World, WorldSpec, paper_pool};

/// The mean over five minutes after four of learning, milliseconds, behind so many balancers with a controller that
/// believes in so many; and what that says they cost.
fn behind(balancers: u32, believed: u32, load: f64, seed: u64) -> (f64, Option<f64>) {
    let spec = WorldSpec::new(paper_pool(11), Method::LeastConn, load, seed);
    let world = World::new(WorldSpec { balancers, ..spec });
    let spec = world.service_spec();
    learned(world, ServiceSpec { balancers: believed, ..spec })
}

fn learned(mut world: World, spec: ServiceSpec) -> (f64, Option<f64>) {
    world.attach(spec, None);
    world.run_for(240.0);
    let from = world.now();
    world.run_for(300.0);
    let (mean, _, errors) = world.since(from);
    assert_eq!(errors, 0);
    let view = world.controller().expect("a controller is attached").view(world.now());
    (mean, view.plan.several_cost)
}

#[test]
fn a_controller_that_knows_of_two_or_three_balancers_serves_better() {
    let load = 0.5;
    let (one, no_cost) = behind(1, 1, load, 3);
    assert_eq!(no_cost, None);
    for balancers in [2, 3] {
        let (unaware, _) = behind(balancers, 1, load, 3);
        let (aware, cost) = behind(balancers, balancers, load, 3);
        println!(
            "load {load}, {balancers} balancers: {aware:.1} ms, unaware {unaware:.1} ms; one balancer {one:.1} ms; \
                 said to cost {cost:?}"
        );
        assert!(aware < unaware, "{load}, {balancers}: {aware:.1} and {unaware:.1} ms");
        let cost = cost.expect("it is modelled");
        assert!((0.02..1.0).contains(&cost), "{load}, {balancers}: {cost}");
    }
}

#[test]
fn two_balancers_with_a_subset_each_serve_better_than_two_with_the_whole_pool() {
    for load in [0.5, 0.7, 0.85] {
        let (one, _) = behind(1, 1, load, 3);
        let (whole, _) = behind(2, 2, load, 3);
        let spec = WorldSpec::new(paper_pool(11), Method::LeastConn, load, 3);
        let world = World::new(WorldSpec { balancers: 2, subsets: true, ..spec });
        let spec = world.service_spec();
        let (subsets, cost) = learned(world, spec);
        println!(
            "load {load}: one {one:.1} ms, two {whole:.1} ms, two with subsets {subsets:.1} ms"
        );
        assert_eq!(cost, None, "none that counts only a part");
        assert!(subsets < whole, "{load}: {subsets:.1} and {whole:.1} ms");
    }
}
