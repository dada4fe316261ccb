//! A balancer of which only means over some seconds are known, late, as a monitoring system has them.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_control::{Action, BackendSpec, Controller, Event, ServiceSpec};
use plimsoll_model::{
    Applied, BackendId, BalancerReport, Curve, FailureKind, Method, MethodKind, Nanos,
    ServerReport, ServerStatus, Traffic,
};
use plimsoll_queueing::QueueCurve;

const STEP_MS: u64 = 50;
/// Means are over so long.
const RANGE_MS: u64 = 5_000;
const RATE_RPS: f64 = 300.0;
/// For so long a change may not show.
const LAG_MS: u64 = RANGE_MS + 1_000;

/// Two backends of one core: 5 ms and 1.25 ms.
const BACKENDS: [QueueCurve; 2] = [
    QueueCurve { service_us: 5_000.0, cores: 1.0, variability: 1.0 },
    QueueCurve { service_us: 1_250.0, cores: 1.0, variability: 1.0 },
];

/// Three of one core, of which the second has half of the others' speed.
const THREE: [QueueCurve; 3] = [
    QueueCurve { service_us: 20_000.0, cores: 1.0, variability: 1.0 },
    QueueCurve { service_us: 40_000.0, cores: 1.0, variability: 1.0 },
    QueueCurve { service_us: 20_000.0, cores: 1.0, variability: 1.0 },
];

/// Backends whose queues are at rest for their load, or grow where that is beyond their capacity.
struct Bed<const N: usize> {
    controller: Controller,
    now_ms: u64,
    curves: [QueueCurve; N],
    weights: [u32; N],
    /// What is waiting because it came faster than it could be served.
    backlog: [f64; N],
    /// Completions per second and requests in flight of every step within the range.
    past: VecDeque<[(f64, f64); N]>,
    begun: [f64; N],
    owed: [f64; N],
    is_known: bool,
    /// What is in flight is the mean of a gauge that was there, at 0, before traffic began.
    gauge_lags: bool,
    rate_rps: f64,
    /// When plans were made, milliseconds.
    plans: Vec<u64>,
}

impl<const N: usize> Bed<N> {
    fn new(curves: [QueueCurve; N], rate_rps: f64) -> Self {
        let backend = |i| BackendSpec { id: BackendId(i), name: format!("s{i}") };
        let spec = ServiceSpec::new("shop", (1..=N as u32).map(backend).collect());
        Bed {
            controller: Controller::new(spec, None, Nanos::ZERO, 1),
            now_ms: 0,
            curves,
            weights: [100; N],
            backlog: [0.0; N],
            past: VecDeque::new(),
            begun: [0.0; N],
            owed: [0.0; N],
            is_known: true,
            gauge_lags: false,
            rate_rps,
            plans: Vec::new(),
        }
    }

    fn now(&self) -> Nanos {
        Nanos(self.now_ms * 1_000_000)
    }

    /// One step of the backends: completions per second and requests in flight of each.
    fn serve(&mut self) -> [(f64, f64); N] {
        let sum: f64 = self.weights.iter().map(|&w| f64::from(w)).sum();
        let seconds = STEP_MS as f64 / 1e3;
        std::array::from_fn(|i| {
            let offered = self.rate_rps * f64::from(self.weights[i]) / sum.max(1.0);
            let most = 0.98 * self.curves[i].capacity();
            let served = (offered + self.backlog[i] / seconds).min(most);
            self.backlog[i] = (self.backlog[i] + (offered - served) * seconds).max(0.0);
            (served, self.backlog[i] + served * self.curves[i].latency_at(served) / 1e6)
        })
    }

    /// The means of the last seconds, as rates and response times in seconds.
    fn means(&mut self) -> [(f64, f64); N] {
        let served = self.serve();
        self.past.push_back(served);
        if self.past.len() as u64 > RANGE_MS / STEP_MS {
            self.past.pop_front();
        }
        std::array::from_fn(|i| {
            let count = self.past.len() as f64;
            let rate = self.past.iter().map(|all| all[i].0).sum::<f64>() / count;
            let over = if self.gauge_lags { (RANGE_MS / STEP_MS) as f64 } else { count };
            let in_flight = self.past.iter().map(|all| all[i].1).sum::<f64>() / over;
            (rate, if rate > 0.0 { in_flight / rate } else { 0.0 })
        })
    }

    /// Mean response time of what is served now, milliseconds.
    fn mean_ms(&self) -> f64 {
        let all = self.past.back().expect("it has run");
        let (rates, in_flight) = (all.iter().map(|one| one.0), all.iter().map(|one| one.1));
        in_flight.sum::<f64>() / rates.sum::<f64>() * 1e3
    }

    fn report(&mut self) -> BalancerReport {
        let means = self.means();
        let servers: [ServerReport; N] = std::array::from_fn(|i| {
            let (rate, seconds) = if self.is_known { means[i] } else { (0.0, 0.0) };
            self.begun[i] += rate * STEP_MS as f64 / 1e3;
            self.owed[i] += rate * seconds;
            let shown = self.owed[i].floor();
            self.owed[i] -= shown;
            ServerReport {
                in_flight: shown as u32,
                started_total: self.begun[i] as u64,
                ..ServerReport::new(BackendId(i as u32 + 1), self.weights[i], ServerStatus::Up)
            }
        });
        let lag = Duration::from_millis(LAG_MS);
        BalancerReport {
            at: self.now(),
            method: Method { name: "random".to_owned(), kind: MethodKind::Split },
            generation: 1,
            traffic: if self.is_known { Traffic::Averaged { lag } } else { Traffic::Unknown },
            servers: servers.into(),
        }
    }

    fn step(&mut self, event: Event) {
        for action in self.controller.step(self.now(), event) {
            let Action::Program(plan) = action else { continue };
            self.plans.push(self.now_ms);
            for entry in &plan.entries {
                self.weights[entry.backend.0 as usize - 1] = entry.weight;
            }
            let weights = plan.entries.iter().map(|entry| (entry.backend, entry.weight)).collect();
            let applied = Applied { epoch: plan.epoch, weights, commands: 1 };
            self.step(Event::Applied(applied));
        }
    }

    fn run_for(&mut self, seconds: u64) {
        for _ in 0..seconds * 1_000 / STEP_MS {
            self.now_ms += STEP_MS;
            let report = self.report();
            self.step(Event::Balancer(report));
            self.step(Event::Tick);
        }
    }
}

#[test]
fn means_lead_to_weights_that_are_kept_while_nothing_is_known() {
    let mut bed = Bed::new(BACKENDS, RATE_RPS);
    bed.run_for(240);
    let [slow, fast] = bed.weights.map(f64::from);
    assert!(slow > 0.0 && fast > 4.0 * slow, "{:?}", bed.weights);
    let (weights, plans) = (bed.weights, bed.plans.len());
    assert!(plans < 40, "{plans} plans: each waits until the last one shows");

    bed.is_known = false;
    bed.run_for(120);
    assert_eq!((bed.weights, bed.plans.len()), (weights, plans), "nothing is decided on nothing");

    // Checks alone show that a backend is dead, at once.
    for round in 0..4 {
        let (backend, started) = (BackendId(1), bed.now());
        let (successes, failure) = match round {
            0 => (1, None),
            _ => (0, Some(FailureKind::Refused)),
        };
        bed.step(Event::Liveness { backend, successes, failure, started });
        bed.run_for(1);
    }
    assert_eq!(bed.weights[0], 0, "{:?}", bed.weights);
    assert!(bed.weights[1] > 0);
}

#[test]
fn a_plan_waits_for_news_of_the_last_one_however_fast_the_traffic_changes() {
    let mut bed = Bed::new(BACKENDS, RATE_RPS);
    bed.run_for(240);
    bed.plans.clear();
    for change in 0..20 {
        bed.rate_rps = RATE_RPS * if change % 2 == 0 { 2.6 } else { 1.0 };
        bed.run_for(13);
    }
    assert!(bed.plans.len() > 4, "{:?}", bed.plans);
    let is_seen = |pair: &[u64]| pair[1] - pair[0] >= LAG_MS;
    assert!(bed.plans.windows(2).all(is_seen), "{:?}", bed.plans);
}

/// What a gauge and a counter say at the start of traffic does not belong together: a rate is that of the samples there
/// are, and the gauge's mean still has the time before in it.
#[test]
fn backend_that_equal_weights_overload_gets_what_it_can_carry_from_means_alone() {
    let mut bed = Bed::new(THREE, 75.0);
    bed.gauge_lags = true;
    let mut worst = Vec::new();
    for _ in 0..24 {
        bed.run_for(10);
        worst.push(bed.mean_ms());
    }
    // The best split of this load takes 58 ms.
    assert!(worst.iter().all(|ms| *ms < 80.0), "{worst:.0?}");
    assert!(worst[12..].iter().all(|ms| *ms < 61.0), "{worst:.0?} {:?}", bed.weights);
}
