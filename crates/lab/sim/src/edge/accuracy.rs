//! One core under one or two chains of functions: what the model predicts beside the time that it is busy.

use plimsoll_feedback::{CpuModel, Place, Report, Shape};
use plimsoll_model::Nanos;

use super::TICKS_PER_MS;
use super::core::Core;
use super::traffic::{Elephants, Flows, Mice, Traffic};
use crate::RandomStream;

/// A report each so many milliseconds, so many before anything is predicted, and the length of what is predicted.
const REPORT_MS: u64 = 100;
const LEARNED_MS: u64 = 2000;
const MEASURED_MS: u64 = 1000;

/// What to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// Cost of a packet under each chain, seconds.
    pub costs: [f64; 2],
    /// The part of the flows that takes the second chain.
    pub second: f64,
    /// Cost of a batch besides, seconds.
    pub batch_cost: f64,
    /// Load from packets alone, fraction of the core.
    pub load: f64,
    /// What costs are multiplied by when the number of flows has grown.
    pub grown: f64,
    /// Standard error of a report of busy time, as a part of it.
    pub report_error: f64,
    /// Seed.
    pub seed: u64,
}

/// Loads over the same time, fractions of a core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// Measured on the core.
    pub busy: f64,
    /// Predicted from calibration alone.
    pub calibrated: f64,
    /// Predicted with costs learned before costs grew, without a report since.
    pub learned: f64,
}

impl Predicted {
    /// Errors of the two, in points: prediction less measurement.
    pub fn errors(&self) -> [f64; 2] {
        [self.calibrated, self.learned].map(|load| 100.0 * (load - self.busy))
    }
}

const PLACES: [Place; 2] =
    [Place { server: 0, core: 0, service: 0 }, Place { server: 0, core: 0, service: 1 }];

struct Bench {
    flows: Flows,
    rng: RandomStream,
    second: f64,
    core: Core,
    tick: u64,
}

impl Bench {
    /// So many milliseconds at these costs: busy time as a fraction, packets handled and sent by chain.
    fn run(&mut self, ms: u64, costs: [f64; 2]) -> (f64, [u64; 2], [u64; 2]) {
        let mut sent = [0u64; 2];
        for _ in 0..ms * TICKS_PER_MS {
            let mut now = [0u32; 2];
            let (rng, second) = (&mut self.rng, self.second);
            self.flows.arrive(self.tick, &mut || u16::from(rng.uniform() < second));
            self.flows.send(self.tick, &mut |chain, packets, _, _| now[chain as usize] += packets);
            let all = now[0] + now[1];
            let work = f64::from(now[0]) * costs[0] + f64::from(now[1]) * costs[1];
            self.core.tick(all, work / f64::from(all.max(1)));
            sent[0] += u64::from(now[0]);
            sent[1] += u64::from(now[1]);
            self.tick += 1;
        }
        let (busy, served, _) = self.core.take();
        // A queue drops from all chains alike.
        let part = served as f64 / (sent[0] + sent[1]).max(1) as f64;
        let handled = sent.map(|sent| (sent as f64 * part) as u64);
        (busy / (ms as f64 / 1e3), handled, sent)
    }
}

impl Accuracy {
    /// Learns for two seconds, lets costs grow, and predicts the next second.
    pub fn run(&self) -> Predicted {
        let mean = self.costs[0] * (1.0 - self.second) + self.costs[1] * self.second;
        let traffic = Traffic {
            packets_per_ms: self.load / mean / 1e3,
            mice: Mice::Packets(10),
            elephants: Elephants::None,
            packets_per_mouse_ms: 1,
            even: false,
            steady: true,
            step: None,
        };
        let mut flows = Flows::new(traffic, 1e-3 / mean, self.seed);
        let mut rng = RandomStream::new(self.seed, 27);
        flows.begin(&mut || u16::from(rng.uniform() < self.second));
        let core = Core::new(512, self.batch_cost);
        let mut bench = Bench { flows, rng, second: self.second, core, tick: 0 };
        let mut model = CpuModel::new(Shape { servers: 1, cores: 1, services: 2 });
        for (place, cost) in PLACES.into_iter().zip(self.costs) {
            // The node's own packets come one by one, each a batch.
            model.calibrate(place, cost + self.batch_cost);
        }
        let calibrated = model.clone();
        let mut noise = RandomStream::new(self.seed, 28);
        for report in 1..=LEARNED_MS / REPORT_MS {
            let (busy, handled, sent) = bench.run(REPORT_MS, self.costs);
            let seconds = REPORT_MS as f64 / 1e3;
            let told = busy * (1.0 + self.report_error * noise.between(-1.7, 1.7));
            let ended = Nanos(report * REPORT_MS * 1_000_000);
            let (handled, sent) = (&handled[..], &sent[..]);
            let busy = told.min(1.0) * seconds;
            let report = Report { server: 0, core: 0, ended, seconds, busy, handled, sent };
            // One that is refused would only leave the model as it was.
            let _ = model.learn(ended, &report);
        }
        let grown = self.costs.map(|cost| cost * self.grown);
        let (busy, _, sent) = bench.run(MEASURED_MS, grown);
        let rates = sent.map(|sent| sent as f64 * 1e3 / MEASURED_MS as f64);
        let predict = |model: &CpuModel| {
            let mut load = [0.0];
            model.predict(&rates, &mut load);
            load[0]
        };
        Predicted { busy, calibrated: predict(&calibrated), learned: predict(&model) }
    }
}
