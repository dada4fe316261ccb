//! soak
use plimsoll_sim::{Cadence, Scenario, run_samples};
fn main() {
    let args: Vec<f64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    for seed in args[0] as u64..args[1] as u64 {
        let s = Scenario::from_seed(seed, Cadence::SAMPLE_LEVEL);
        let t = std::time::Instant::now();
        let r = run_samples(s.clone(), args[2], None);
        let el = t.elapsed();
        match r {
            Ok(t) => println!("{seed} ok {el:?} {:?} n={} {t:?}", s.method, s.pool.len()),
            Err(f) => println!("{seed} {el:?} {:?} {}", s.method, f.violation),
        }
    }
}
