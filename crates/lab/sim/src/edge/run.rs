//! One run: ticks, windows, reports of nodes, and what was seen.

use plimsoll_feedback::{Ages, Place, Report, Scale, ScaleAction, ScaleSettings};
use plimsoll_model::Nanos;

use super::TICKS_PER_MS;
use super::core::Core;
use super::forwarder::{Forwarder, Way};
use super::traffic::{Flows, Traffic};
use crate::RandomStream;

/// Bins of one microsecond in which delays are counted.
const DELAYS: usize = 8192;
/// Nodes report this often, and gaps are looked at over as long: the paper's interval, milliseconds.
const WINDOW_MS: u64 = 30;

/// Servers that join when the load is high.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standby {
    /// How many of the cores, the last ones.
    pub cores: usize,
    /// When they join.
    pub scale: ScaleSettings,
}

/// What to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EdgeRun {
    /// Number of cores, each a server of its own.
    pub cores: usize,
    /// Cost of a packet, seconds.
    pub cost: f64,
    /// Cost of a batch besides, seconds.
    pub batch_cost: f64,
    /// Packets that may wait at a core.
    pub queue: u32,
    /// The traffic.
    pub traffic: Traffic,
    /// How new flows are spread.
    pub way: Way,
    /// When flows are old.
    pub ages: Ages,
    /// Standard error of a node's reports, fraction of a core.
    pub report_error: f64,
    /// Standbys, if any.
    pub standby: Option<Standby>,
    /// Time that is run, and that passes before anything is counted, milliseconds.
    pub run_ms: u64,
    /// See `run_ms`.
    pub warm_ms: u64,
    /// Seed.
    pub seed: u64,
}

/// Loads of the cores in one window.
#[derive(Clone, Debug)]
pub struct Window {
    /// Its end, seconds.
    pub at: f64,
    /// Offered load of each core, fraction.
    pub offered: Vec<f64>,
    /// Its busy time, fraction.
    pub busy: Vec<f64>,
    /// Cores that get new flows.
    pub serving: usize,
}

/// What was seen after the warm-up.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Mean over windows of the greatest less the least offered load, percent of a core.
    pub gap: f64,
    /// The 99th percentile of it.
    pub gap_p99: f64,
    /// The same mean of busy time.
    pub busy_gap: f64,
    /// Packets lost, percent of those sent.
    pub lost: f64,
    /// Packets served per second.
    pub served: f64,
    /// Time that packets wait and are served: mean and 99th percentile, microseconds.
    pub delay_mean: f64,
    /// See `delay_mean`.
    pub delay_p99: f64,
    /// All windows, those of the warm-up too.
    pub windows: Vec<Window>,
}

struct Tally {
    delays: Vec<u64>,
    sent: u64,
    lost: u64,
    served: u64,
    windows: Vec<Window>,
}

impl EdgeRun {
    /// So many cores at 700 ns a packet under this mean load, mice of ten packets alone.
    pub fn new(cores: usize, load: f64, way: Way) -> Self {
        let cost = 700e-9;
        EdgeRun {
            cores,
            cost,
            batch_cost: 0.0,
            queue: 4096,
            traffic: Traffic {
                packets_per_ms: load * cores as f64 / cost / 1e3,
                mice: super::Mice::Packets(10),
                elephants: super::Elephants::None,
                packets_per_mouse_ms: 1,
                even: false,
                steady: true,
                step: None,
            },
            way,
            ages: Ages::default(),
            report_error: 0.05,
            standby: None,
            run_ms: 20_000,
            warm_ms: 4_000,
            seed: 1,
        }
    }

    /// Runs it.
    pub fn run(&self) -> Seen {
        let mut running = Running::new(self);
        for tick in 0..self.run_ms * TICKS_PER_MS {
            running.tick(tick);
            if tick % TICKS_PER_MS == TICKS_PER_MS - 1 {
                running.millisecond(tick / TICKS_PER_MS);
            }
        }
        self.seen(running.tally)
    }
    fn seen(&self, tally: Tally) -> Seen {
        let warm = self.warm_ms as f64 / 1e3;
        let gap = |loads: &[f64]| {
            let most = loads.iter().copied().fold(f64::MIN, f64::max);
            100.0 * (most - loads.iter().copied().fold(f64::MAX, f64::min))
        };
        let counted = || tally.windows.iter().filter(|window| window.at > warm);
        let mut gaps: Vec<f64> = counted().map(|window| gap(&window.offered)).collect();
        let busy: Vec<f64> = counted().map(|window| gap(&window.busy)).collect();
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
        let mean_gap = mean(&gaps);
        gaps.sort_by(f64::total_cmp);
        let gap_p99 = gaps.get(gaps.len() * 99 / 100).copied().unwrap_or(f64::NAN);
        let all: u64 = tally.delays.iter().sum();
        let mut left = all * 99 / 100;
        let is_there = |&count: &u64| {
            let here = left < count;
            left = left.saturating_sub(count);
            here
        };
        let p99 = tally.delays.iter().position(is_there).unwrap_or(DELAYS - 1);
        let sum = |(bin, count): (usize, &u64)| (bin as f64 + 0.5) * *count as f64;
        let delays = tally.delays.iter().enumerate().map(sum).sum::<f64>();
        Seen {
            gap: mean_gap,
            gap_p99,
            busy_gap: mean(&busy),
            lost: 100.0 * tally.lost as f64 / tally.sent.max(1) as f64,
            served: tally.served as f64 * 1e3 / (self.run_ms - self.warm_ms) as f64,
            delay_mean: delays / all.max(1) as f64,
            delay_p99: p99 as f64 + 0.5,
            windows: tally.windows,
        }
    }
}

/// A run under way.
struct Running<'a> {
    run: &'a EdgeRun,
    flows: Flows,
    forwarder: Forwarder,
    cores: Vec<Core>,
    /// Packets of the tick, by core.
    arrivals: Vec<u32>,
    /// Cores that are no standbys, and what decides about those.
    serving: usize,
    scale: Option<Scale>,
    noise: RandomStream,
    tally: Tally,
}

impl<'a> Running<'a> {
    fn new(run: &'a EdgeRun) -> Self {
        let mut flows = Flows::new(run.traffic, 1e-3 / run.cost, run.seed);
        let serving = run.cores - run.standby.map_or(0, |standby| standby.cores);
        let each = f64::from(run.traffic.packets_per_mouse_ms);
        let mut forwarder = Forwarder::new(run.cores, serving, run.way, run.ages, each, run.seed);
        for server in 0..run.cores {
            forwarder.model.calibrate(Place { server, core: 0, service: 0 }, run.cost);
        }
        forwarder.correct(0);
        flows.begin(&mut || forwarder.pick());
        Running {
            run,
            flows,
            forwarder,
            cores: vec![Core::new(run.queue, run.batch_cost); run.cores],
            arrivals: vec![0; run.cores],
            serving,
            scale: run.standby.and_then(|standby| Scale::new(standby.scale).ok()),
            noise: RandomStream::new(run.seed, 26),
            tally: Tally {
                delays: vec![0; DELAYS],
                sent: 0,
                lost: 0,
                served: 0,
                windows: Vec::new(),
            },
        }
    }

    fn tick(&mut self, tick: u64) {
        let Running { flows, forwarder, arrivals, .. } = self;
        flows.arrive(tick, &mut || forwarder.pick());
        flows.send(tick, &mut |core, packets, age_ms, before| {
            arrivals[core as usize] += packets;
            forwarder.count(core, packets, age_ms, before);
        });
        let counted = tick >= self.run.warm_ms * TICKS_PER_MS;
        for (core, arrivals) in self.cores.iter_mut().zip(&mut self.arrivals) {
            let packets = std::mem::take(arrivals);
            let delay = core.tick(packets, self.run.cost);
            if counted && packets > 0 {
                let bin = ((delay * 1e6) as usize).min(DELAYS - 1);
                self.tally.delays[bin] += u64::from(packets);
                self.tally.sent += u64::from(packets);
            }
        }
    }

    /// After each millisecond, the number of it.
    fn millisecond(&mut self, ms: u64) {
        self.forwarder.millisecond(ms);
        if ms % WINDOW_MS == WINDOW_MS - 1 {
            self.window(ms + 1);
        }
        let standbys = vec![1; self.run.cores - self.serving];
        if let Some(scale) = &mut self.scale {
            let load = self.forwarder.steering.total();
            match scale.step(Nanos((ms + 1) * 1_000_000), load, self.serving, &standbys) {
                Some(ScaleAction::Activate(index)) => {
                    self.forwarder.serve(self.serving + index, true)
                }
                Some(ScaleAction::Release(index)) => {
                    self.forwarder.serve(self.serving + index, false)
                }
                None => {}
            }
        }
    }

    /// Nodes report, and loads are noted.
    fn window(&mut self, ms: u64) {
        let run = self.run;
        let seconds = WINDOW_MS as f64 / 1e3;
        let active = self.scale.as_ref().map_or(0, |scale| scale.active().len());
        let (at, serving) = (ms as f64 / 1e3, self.serving + active);
        let mut window = Window { at, offered: Vec::new(), busy: Vec::new(), serving };
        for (server, core) in self.cores.iter_mut().enumerate() {
            let (busy, served, lost) = core.take();
            let sent = std::mem::take(&mut self.forwarder.sent[server]);
            window.offered.push(sent as f64 * run.cost / seconds);
            window.busy.push(busy / seconds);
            // The sum of twelve uniform numbers is near enough to normal.
            let normal: f64 = (0..12).map(|_| self.noise.uniform()).sum::<f64>() - 6.0;
            let busy = (busy + normal * run.report_error * seconds).clamp(0.0, seconds);
            let (handled, sent) = (&[served][..], &[sent][..]);
            let ended = Nanos(ms * 1_000_000);
            let report = Report { server, core: 0, ended, seconds, busy, handled, sent };
            // The model stays as calibrated, so that policies are compared on the same loads; reports are for those
            // that go by them. One that is refused is missing, as in the product.
            let _ = self.forwarder.model.hear(ended, &report);
            if ms > run.warm_ms {
                self.tally.lost += lost;
                self.tally.served += served;
            }
        }
        self.tally.windows.push(window);
    }
}
