//! tmp
use plimsoll_sim::{Method, World, WorldSpec, paper_pool};
fn main() {
    let pool = paper_pool(11);
    let mut world = World::new(WorldSpec::new(pool.clone(), Method::RoundRobin, 0.7, 1));
    let spec = world.service_spec();
    world.attach(spec, None);
    for _ in 0..50 {
        world.run_for(60.0);
        let v = world.controller().unwrap().view(world.now());
        let mut line = String::new();
        for (i, b) in pool.iter().enumerate() {
            let c = &v.curves[i];
            if (c.cores - f64::from(b.cores)).abs() > 0.5 {
                line += &format!(" s{i}:{}→{:.1}{} cap {:.2} load {:.2}", b.cores, c.cores, if c.capacity_is_lower_bound {"+"} else {""}, c.capacity_rps / b.capacity_rps(30_000.0), v.backends[i].share * v.rate_rps / b.capacity_rps(30_000.0));
            }
        }
        println!("{:.0} {line}", world.now().as_secs_f64());
    }
}
