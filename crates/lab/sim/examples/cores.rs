//! The controller's estimates of cores some time after it began without memory: how many backends of all runs are
//! estimated right (within 7 %), too low or too high, and of how many only a lower bound is known; the clients' mean
//! response time, and how often a backend is taken to have changed, although none does.
//!
//! `cargo run --release -p plimsoll-sim --example cores -- paper|small roundrobin|leastconn LOAD SERVICE_MS SEEDS
//! [exponential|regular|bimodal] [poll=MS]`

use plimsoll_model::Nanos;
use plimsoll_sim::{Method, Verdict, World, WorldSpec, poll_asked, pool_named, service_named};

/// Times of the estimates, seconds.
const AT_S: [f64; 5] = [120.0, 300.0, 600.0, 1_500.0, 3_000.0];
/// Time from which on the response times count, seconds.
const LEARNED_S: f64 = 300.0;
/// Capacities within this are right: one core of eight is more.
const RIGHT: f64 = 0.07;

#[derive(Clone, Copy, Default)]
struct Tally {
    right: u32,
    fewer: u32,
    more: u32,
    bound: u32,
}

fn main() {
    let (poll, args) = poll_asked(std::env::args().skip(1)).unwrap_or_else(|why| panic!("{why}"));
    let [pool, method, load, service_ms, seeds, rest @ ..] = args.as_slice() else {
        eprintln!(
            "usage: cores paper|small roundrobin|leastconn LOAD SERVICE_MS SEEDS [exponential|regular|bimodal] [poll=MS]"
        );
        std::process::exit(2);
    };
    let pool = pool_named(pool).unwrap_or_else(|why| panic!("POOL {why}"));
    let method: Method = method.parse().unwrap_or_else(|why| panic!("METHOD {why}"));
    let load: f64 = load.parse().expect("LOAD is a number such as 0.7");
    let service_us = 1e3 * service_ms.parse::<f64>().expect("SERVICE_MS is a number such as 30");
    let seeds: u64 = seeds.parse().expect("SEEDS is how many runs to make");
    let service = service_named(rest.first().map_or("exponential", String::as_str));
    let service = service.unwrap_or_else(|why| panic!("SERVICE {why}"));
    let mut tallies = [Tally::default(); AT_S.len()];
    let mut means_ms = Vec::new();
    let (mut changed, mut learned_anew) = (0, 0);
    for seed in 1..=seeds {
        let mut spec = WorldSpec::new(pool.clone(), method, load, seed);
        spec.rate_rps *= spec.service_us / service_us;
        (spec.service_us, spec.service) = (service_us, service);
        spec.poll = poll.unwrap_or(spec.poll);
        let mut world = World::new(spec);
        let spec = world.service_spec();
        world.attach(spec, None);
        let mut now_s = 0.0;
        for (tally, at_s) in tallies.iter_mut().zip(AT_S) {
            world.run_for(at_s - now_s);
            now_s = at_s;
            let controller = world.controller().expect("one is attached");
            for (model, belief) in pool.iter().zip(controller.beliefs()) {
                let capacity_rps = belief.capacity_rps.unwrap_or(0.0);
                let off = capacity_rps / model.capacity_rps(service_us) - 1.0;
                let count = match () {
                    () if belief.is_lower_bound => &mut tally.bound,
                    () if off < -RIGHT => &mut tally.fewer,
                    () if off > RIGHT => &mut tally.more,
                    () => &mut tally.right,
                };
                *count += 1;
            }
        }
        let learned = Nanos::from_secs_f64(LEARNED_S);
        means_ms.push(world.since(learned).0);
        for (_, record) in world.records.iter().filter(|(at, _)| *at >= learned) {
            match Verdict::of(record) {
                Some(Verdict::Changed) => changed += 1,
                Some(Verdict::MayHaveChanged) => learned_anew += 1,
                Some(Verdict::Underestimated) | None => {}
            }
        }
    }
    println!("after_s  right  fewer  more  bound");
    for (Tally { right, fewer, more, bound }, at_s) in tallies.iter().zip(AT_S) {
        println!("{at_s:7}  {right:5}  {fewer:5}  {more:4}  {bound:5}");
    }
    let mean_ms = means_ms.iter().sum::<f64>() / means_ms.len() as f64;
    println!("clients wait {mean_ms:.2} ms in the mean from {LEARNED_S:.0} s on");
    let hours = seeds as f64 * (AT_S[AT_S.len() - 1] - LEARNED_S) / 3_600.0;
    println!(
        "{changed} changes reported and {learned_anew} relearnings in those {hours:.1} h, of backends that had not changed"
    );
}
