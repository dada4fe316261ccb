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

struct Bed {
    controller: Controller,
    now_ms: u64,
    weights: [u32; 2],
    past: VecDeque<[f64; 2]>,
    begun: [f64; 2],
    owed: [f64; 2],
    is_known: bool,
    rate_rps: f64,
    /// When plans were made, milliseconds.
    plans: Vec<u64>,
}

impl Bed {
    fn new() -> Self {
        let backend = |i| BackendSpec { id: BackendId(i), name: format!("s{i}") };
        let spec = ServiceSpec::new("shop", vec![backend(1), backend(2)]);
        Bed {
            controller: Controller::new(spec, None, Nanos::ZERO, 1),
            now_ms: 0,
            weights: [100, 100],
            past: VecDeque::new(),
            begun: [0.0; 2],
            owed: [0.0; 2],
            is_known: true,
            rate_rps: RATE_RPS,
            plans: Vec::new(),
        }
    }

    fn now(&self) -> Nanos {
        Nanos(self.now_ms * 1_000_000)
    }

    /// The means of the last seconds, as rates and response times in seconds.
    fn means(&mut self) -> [(f64, f64); 2] {
        let sum: f64 = self.weights.iter().map(|&w| f64::from(w)).sum();
        self.past.push_back(self.weights.map(|w| self.rate_rps * f64::from(w) / sum.max(1.0)));
        if self.past.len() as u64 > RANGE_MS / STEP_MS {
            self.past.pop_front();
        }
        [0, 1].map(|i| {
            let count = self.past.len() as f64;
            let rate = self.past.iter().map(|rates| rates[i]).sum::<f64>() / count;
            let waited = |rates: &[f64; 2]| {
                let load = rates[i].min(0.98 * BACKENDS[i].capacity());
                rates[i] * BACKENDS[i].latency_at(load) / 1e6
            };
            let in_flight = self.past.iter().map(waited).sum::<f64>() / count;
            (rate, if rate > 0.0 { in_flight / rate } else { 0.0 })
        })
    }

    fn report(&mut self) -> BalancerReport {
        let means = self.means();
        let servers = [0, 1].map(|i| {
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
    let mut bed = Bed::new();
    bed.run_for(240);
    let [slow, fast] = bed.weights.map(f64::from);
    assert!(slow > 0.0 && fast > 4.0 * slow, "{:?}", bed.weights);
    let (weights, plans) = (bed.weights, bed.plans.len());
    assert!(plans < 40, "{plans} plans: each waits until the last one shows");

    bed.is_known = false;
    bed.run_for(120);
    assert_eq!((bed.weights, bed.plans.len()), (weights, plans), "nothing is decided on nothing");

    // Checks alone show that a backend is dead, at once.
    for _ in 0..3 {
        let (backend, started) = (BackendId(1), bed.now());
        let failure = Some(FailureKind::Refused);
        bed.step(Event::Liveness { backend, successes: 0, failure, started });
        bed.run_for(1);
    }
    assert_eq!(bed.weights[0], 0, "{:?}", bed.weights);
    assert!(bed.weights[1] > 0);
}

#[test]
fn a_plan_waits_for_news_of_the_last_one_however_fast_the_traffic_changes() {
    let mut bed = Bed::new();
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
