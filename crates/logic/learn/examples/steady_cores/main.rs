//! How well the cores of a backend are known that has one load for hours.
//!
//! `cargo run --release -p plimsoll-learn --example steady_cores -- [HOURS [SEEDS [POLL_MS]]]`
//!
//! Polls every 25 ms unless given, an estimate every 5 s as in the controller, from the fifth minute on. A
//! *flip* is an estimate with other cores than the one before it.

use std::collections::VecDeque;

#[path = "../drift/backend.rs"]
mod backend;

use backend::{Backend, Service};
use plimsoll_learn::{
    Hints, InFlightWindow, LONG_BEFORE, Lagged, Throughput, ThroughputEstimator, ThroughputOptions,
};

const SERVICE_S: f64 = 0.03;
const POLL_MS: f64 = 25.0;
const BLIND_S: u32 = 300;
const EVERY_S: u32 = 5;
/// Cores are held, as by the controller, once one more or less fits worse by this much: four standard deviations.
const SURE: f64 = 16.0;

fn main() {
    let args: Vec<f64> =
        std::env::args().skip(1).map(|text| text.parse().expect("a number")).collect();
    let (hours, seeds) = (args.first().map_or(1.0, |h| *h), args.get(1).map_or(5, |s| *s as u64));
    let poll_s = args.get(2).map_or(POLL_MS, |ms| ms.max(1.0)) / 1e3;
    println!(
        "service        cores  load  right  more  fewer  bound  flips/h  capacity off p50   p90"
    );
    for kind in [Service::Exponential, Service::Deterministic, Service::Bimodal] {
        for cores in [1, 2, 4, 8] {
            for load in [0.3, 0.5, 0.7, 0.85] {
                let mut tally = Tally::default();
                for seed in 1..=seeds {
                    watch((kind, poll_s), (cores, load), hours, seed, &mut tally);
                }
                tally.print(kind, cores, load, hours * seeds as f64);
            }
        }
    }
}

#[derive(Default)]
struct Tally {
    right: u32,
    more: u32,
    fewer: u32,
    bound: u32,
    flips: u32,
    off: Vec<f64>,
}

impl Tally {
    fn note(&mut self, cores: u32, got: &Throughput, last: &mut Option<f64>) {
        let truth = f64::from(cores);
        if got.lower_bound {
            self.bound += 1;
        } else if (got.cores / truth - 1.0).abs() < 0.05 {
            self.right += 1;
        } else if got.cores > truth {
            self.more += 1;
        } else {
            self.fewer += 1;
        }
        self.flips += u32::from(last.is_some_and(|c| (got.cores / c - 1.0).abs() > 0.1));
        *last = Some(got.cores);
        if !got.lower_bound {
            self.off.push((got.capacity_rps * SERVICE_S / truth - 1.0).abs());
        }
    }

    fn print(mut self, kind: Service, cores: u32, load: f64, hours: f64) {
        let all = f64::from((self.right + self.more + self.fewer + self.bound).max(1));
        let part = |n: u32| 100.0 * f64::from(n) / all;
        self.off.sort_by(f64::total_cmp);
        let at = |p: f64| {
            100.0 * self.off.get((self.off.len() as f64 * p) as usize).unwrap_or(&f64::NAN)
        };
        println!(
            "{:13}  {cores:5}  {load:4}  {:4.0}%  {:3.0}%  {:4.0}%  {:4.0}%  {:7.1}  {:15.1}%  {:3.0}%",
            format!("{kind:?}"),
            part(self.right),
            part(self.more),
            part(self.fewer),
            part(self.bound),
            f64::from(self.flips) / hours,
            at(0.5),
            at(0.9),
        );
    }
}

fn watch(
    (kind, poll_s): (Service, f64),
    (cores, load): (u32, f64),
    hours: f64,
    seed: u64,
    tally: &mut Tally,
) {
    let arrivals = load * f64::from(cores) / SERVICE_S;
    let mut backend = Backend::new(arrivals, SERVICE_S, kind, cores, seed);
    let mut estimator = ThroughputEstimator::new(ThroughputOptions::default());
    let (mut last, mut held) = (None, None);
    // The number in flight some service times before a poll, by earlier polls.
    let mut past = VecDeque::new();
    let lag = (SERVICE_S / poll_s).ceil() as usize;
    let long = (LONG_BEFORE * SERVICE_S / poll_s).ceil() as usize;
    for second in 1..=(hours * 3_600.0) as u32 {
        let mut window =
            InFlightWindow { seconds: 1.0, setting: Some(arrivals), ..InFlightWindow::default() };
        let (mut lagged, mut long_lagged) = (Lagged::default(), Lagged::default());
        for _ in 0..(1.0 / poll_s) as u32 {
            let interval = backend.poll(poll_s);
            window.completions += interval.completions;
            if let Some(&earlier) = past.get(lag - 1) {
                let polls = [interval.before, interval.after];
                lagged.note(earlier, polls, interval.completions, poll_s);
            }
            if let Some(&earlier) = past.get(long - 1) {
                let polls = [interval.before, interval.after];
                long_lagged.note(earlier, polls, interval.completions, poll_s);
            }
            past.push_front(interval.before);
            past.truncate(long);
            match window.levels.iter_mut().find(|level| level.0 == interval.after) {
                Some(level) => level.1 += 1,
                None => window.levels.push((interval.after, 1)),
            }
        }
        (window.lagged, window.long_lagged) = (lagged, Some(long_lagged));
        estimator.observe(&window).expect("a sound window");
        if second.is_multiple_of(EVERY_S)
            && let Some(got) = estimator.estimate(Hints { cores: held, ..Hints::default() })
        {
            held = if got.margin >= SURE {
                Some(got.cores)
            } else {
                held.filter(|cores| *cores == got.cores)
            };
            if second > BLIND_S {
                tally.note(cores, &got, &mut last);
            }
        }
    }
}
