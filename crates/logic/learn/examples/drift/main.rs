//! How soon a change of a backend is detected, and how often one is detected without any.
//!
//! ```text
//! cargo run --release -p plimsoll-learn --example drift -- detect RATIO [SEEDS] [poll=MS]
//! cargo run --release -p plimsoll-learn --example drift -- noise DAYS \
//!     [SEED [SERVICE_MS [leastconn|regular|bimodal]]] [poll=MS]
//! ```
//!
//! `detect` changes the speed of a backend at 70 % load and counts the requests that it completes, and
//! the seconds that pass, until the alarm. `noise` changes nothing, for so many days of a pool of 30
//! (16 of one core, 8 of two, 4 of four, 2 of eight), and counts alarms. Polls as the daemon does by default, every
//! 25 ms, and every 50 behind leastconn, where the pool is simulated as one.

mod backend;
mod pool;

use backend::{Backend, Service};
use plimsoll_learn::drift::{RateWatch, Tolerance};
use pool::Pool;

const SERVICE_S: f64 = 0.03;
const POLL_S: f64 = 0.025;
const LEASTCONN_POLL_S: f64 = 0.05;
/// For this long a backend is watched before it changes, seconds.
const BEFORE_S: f64 = 300.0;
const LOAD: f64 = 0.7;
/// How many backends with how many cores.
const POOL: [(usize, u32); 4] = [(16, 1), (8, 2), (4, 4), (2, 8)];
const KINDS: [Service; 3] = [Service::Exponential, Service::Deterministic, Service::Bimodal];

fn main() {
    let (polls, args): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with("poll="));
    let asked_s = polls.last().map(|word| {
        let ms: std::num::NonZeroU64 =
            word[5..].parse().expect("poll=MS is a whole number above 0");
        ms.get() as f64 / 1e3
    });
    let poll_s = asked_s.unwrap_or(POLL_S);
    let number = |i: usize, otherwise: f64| {
        args.get(i).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    match args.first().map(String::as_str) {
        Some("detect") => detect(number(1, 0.6), number(2, 200.0) as u64, poll_s),
        Some("noise") => {
            let (days, seed) = (number(1, 1.0) as u64, number(2, 1.0) as u64);
            let service_s = number(3, 1e3 * SERVICE_S) / 1e3;
            match args.get(4).map(String::as_str) {
                None => noise(days, seed, service_s, (Service::Exponential, poll_s)),
                Some("regular") => noise(days, seed, service_s, (Service::Deterministic, poll_s)),
                Some("bimodal") => noise(days, seed, service_s, (Service::Bimodal, poll_s)),
                Some("leastconn") => {
                    noise_of_leastconn(days, seed, service_s, asked_s.unwrap_or(LEASTCONN_POLL_S));
                }
                Some(other) => {
                    usage(&format!("{other}: expected leastconn, regular, bimodal or nothing"))
                }
            }
        }
        _ => usage("expected detect or noise"),
    }
}

fn usage(why: &str) {
    eprintln!(
        "{why}\nusage: drift detect RATIO [SEEDS] | drift noise DAYS [SEED [SERVICE_MS [leastconn|regular|bimodal]]], and poll=MS"
    );
    std::process::exit(2);
}

fn detect(ratio: f64, seeds: u64, poll_s: f64) {
    println!(
        "service        cores  load  requests p50  p90   seconds p50  p90  ratio said  missed"
    );
    for kind in KINDS {
        for (cores, load) in [(1, 0.7), (1, 0.3), (2, 0.7), (4, 0.7), (8, 0.7), (8, 0.3)] {
            let (mut requests, mut seconds, mut said) = (Vec::new(), Vec::new(), Vec::new());
            let mut missed = 0;
            for seed in 1..=seeds {
                match detect_once(kind, cores, load, (ratio, poll_s), seed) {
                    Some((n, s, r)) => {
                        requests.push(n);
                        seconds.push(s);
                        said.push(r);
                    }
                    None => missed += 1,
                }
            }
            let at = |all: &mut Vec<f64>, part: f64| {
                all.sort_by(f64::total_cmp);
                all.get((all.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN)
            };
            println!(
                "{:13}  {cores:5}  {load:.1}  {:12.0}  {:3.0}  {:12.1}  {:3.1}  {:10.2}  {missed}",
                format!("{kind:?}"),
                at(&mut requests, 0.5),
                at(&mut requests, 0.9),
                at(&mut seconds, 0.5),
                at(&mut seconds, 0.9),
                at(&mut said, 0.5),
            );
        }
    }
}

/// Requests completed and seconds passed until the alarm, and the alarm's ratio.
fn detect_once(
    kind: Service,
    cores: u32,
    load: f64,
    (ratio, poll_s): (f64, f64),
    seed: u64,
) -> Option<(f64, f64, f64)> {
    let arrivals = load * f64::from(cores) / SERVICE_S;
    let mut backend = Backend::new(arrivals, SERVICE_S, kind, cores, seed);
    let mut watch = RateWatch::new(f64::from(cores), Tolerance::default());
    for _ in 0..(BEFORE_S / poll_s) as u64 {
        watch.note(&backend.poll(poll_s));
    }
    backend.service_s /= ratio;
    let (mut requests, mut seconds) = (0.0, 0.0);
    while requests < 20_000.0 {
        let interval = backend.poll(poll_s);
        requests += interval.completions;
        seconds += poll_s;
        if let Some(change) = watch.note(&interval) {
            return Some((requests, seconds, change.ratio));
        }
    }
    None
}

/// Every day begins anew, with unknown backends.
fn noise(days: u64, seed: u64, service_s: f64, (kind, poll_s): (Service, f64)) {
    let polls = (86_400.0 / poll_s) as u64;
    println!("days of a pool of 30  requests  false alarms");
    let (mut alarms, mut requests) = (0, 0.0);
    for day in 1..=days {
        let mut mix = 1_000_000 * seed + 1_000 * day;
        for (count, cores) in POOL {
            for _ in 0..count {
                mix += 1;
                let arrivals = LOAD * f64::from(cores) / service_s;
                let mut backend = Backend::new(arrivals, service_s, kind, cores, mix);
                let mut watch = RateWatch::new(f64::from(cores), Tolerance::default());
                for poll in 0..polls {
                    let interval = backend.poll(poll_s);
                    requests += interval.completions;
                    if let Some(change) = watch.note(&interval) {
                        alarms += 1;
                        let at_s = poll as f64 * poll_s;
                        println!("day {day}, {at_s:.1} s, {cores} cores: {change:?}");
                    }
                }
            }
        }
        println!("{day:20}  {requests:8.2e}  {alarms:12}");
    }
}

/// The same under leastconn. Every day begins anew here, too.
fn noise_of_leastconn(days: u64, seed: u64, service_s: f64, poll_s: f64) {
    println!("days of a pool of 30  requests  false alarms");
    let cores: Vec<u32> =
        POOL.iter().flat_map(|&(count, cores)| std::iter::repeat_n(cores, count)).collect();
    let (mut alarms, mut requests) = (0, 0.0);
    for day in 1..=days {
        let mut pool = Pool::new(cores.clone(), LOAD, service_s, 1_000_000 * seed + day);
        let watch = |&cores: &u32| RateWatch::new(f64::from(cores), Tolerance::default());
        let mut watches: Vec<RateWatch> = cores.iter().map(watch).collect();
        for poll in 0..(86_400.0 / poll_s) as u64 {
            for (watch, interval) in watches.iter_mut().zip(pool.poll(poll_s)) {
                requests += interval.completions;
                if let Some(change) = watch.note(&interval) {
                    alarms += 1;
                    let at_s = poll as f64 * poll_s;
                    println!("day {day}, {at_s:.1} s, {} cores: {change:?}", watch.cores());
                }
            }
        }
        println!("{day:20}  {requests:8.2e}  {alarms:12}");
    }
}
