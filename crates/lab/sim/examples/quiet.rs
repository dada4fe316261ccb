//! False alarms of the whole controller in a world that does not change, from the first request on:
//! alarms in this many days, each of which begins without memory. Counted separately are backends
//! that were relearned, because they might have changed, and those that were corrected, because they completed more
//! than was believed.
//!
//! ```text
//! cargo run --release -p plimsoll-sim --example quiet -- paper|small roundrobin|leastconn LOAD SERVICE_MS DAYS \
//!     [SEED [exponential|regular|bimodal]] [poll=MS]
//! ```

use plimsoll_sim::{Method, Verdict, World, WorldSpec, poll_asked, pool_named, service_named};

const HOUR_S: f64 = 3_600.0;
const DAY_H: f64 = 24.0;

fn main() {
    let (poll, args) = poll_asked(std::env::args().skip(1)).unwrap_or_else(|why| panic!("{why}"));
    let [pool, method, load, service_ms, days, rest @ ..] = args.as_slice() else {
        eprintln!(
            "usage: quiet paper|small roundrobin|leastconn LOAD SERVICE_MS DAYS [SEED [exponential|regular|bimodal]] [poll=MS]"
        );
        std::process::exit(2);
    };
    let pool = pool_named(pool).unwrap_or_else(|why| panic!("POOL {why}"));
    let method: Method = method.parse().unwrap_or_else(|why| panic!("METHOD {why}"));
    let number = |text: &String| match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => number,
        _ => panic!("{text}: expected a number above 0"),
    };
    let (load, service_us, days) = (number(load), 1e3 * number(service_ms), number(days));
    let service = service_named(rest.get(1).map_or("exponential", String::as_str));
    let service = service.unwrap_or_else(|why| panic!("SERVICE {why}"));
    let first: u64 = rest.first().map_or(1, |text| text.parse().expect("SEED is a whole number"));
    let (mut alarms, mut learned_anew, mut corrected, mut plans, mut requests) = (0, 0, 0, 0, 0.0);
    for day in 0..days.ceil() as u64 {
        let mut spec = WorldSpec::new(pool.clone(), method, load, first + day);
        spec.rate_rps *= spec.service_us / service_us;
        (spec.service_us, spec.service) = (service_us, service);
        spec.poll = poll.unwrap_or(spec.poll);
        let rate_rps = spec.rate_rps;
        let mut world = World::new(spec);
        world.forget_answers();
        let service = world.service_spec();
        world.attach(service, None);
        let hours = (DAY_H * (days - day as f64)).min(DAY_H);
        world.run_for(HOUR_S * hours);
        requests += rate_rps * HOUR_S * hours;
        plans += world.plans.len();
        for (at, record) in &world.records {
            let Some(verdict) = Verdict::of(record) else { continue };
            match verdict {
                Verdict::Changed => alarms += 1,
                Verdict::MayHaveChanged => learned_anew += 1,
                Verdict::Underestimated => corrected += 1,
            }
            let backend = record.backend.as_deref().unwrap_or("the pool");
            println!(
                "seed {}, {:.0} s: {backend}: {}",
                first + day,
                at.as_secs_f64(),
                record.reason
            );
        }
        println!("seed {}: {hours:.1} hours, {alarms} alarms so far", first + day);
    }
    println!(
        "{days} days, {requests:.2e} requests: {alarms} alarms, {learned_anew} relearned, {corrected} corrected, \
         {plans} plans"
    );
}
