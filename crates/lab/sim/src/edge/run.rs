//! One run: ticks, windows, reports of nodes, and what was seen.

use plimsoll_feedback::{Ages, Place, Report, Scale, ScaleAction, ScaleSettings};
use plimsoll_model::Nanos;

use super::core::{Core, Costs};
use super::forwarder::{Forwarder, Way};
use super::traffic::{Flows, Traffic};
use super::{TICK_S, TICKS_PER_MS};
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
    /// Time that packets wait and are served: median and 99th percentile, microseconds.
    pub delay_p50: f64,
    /// See `delay_p50`.
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
        let costs = Costs { packet: self.cost, batch: self.batch_cost, queue: self.queue };
        let capacity = 1e-3 / self.cost;
        let mut flows = Flows::new(self.traffic, capacity, self.seed);
        let standbys = self.standby.map_or(0, |standby| standby.cores);
        let mut scale = self.standby.and_then(|standby| Scale::new(standby.scale).ok());
        let serving = self.cores - standbys;
        let each = f64::from(self.traffic.packets_per_mouse_ms);
        let mut forwarder =
            Forwarder::new(self.cores, serving, self.way, self.ages, each, self.seed);
        for server in 0..self.cores {
            forwarder.model.calibrate(Place { server, core: 0, service: 0 }, self.cost);
        }
        forwarder.correct(0);
        flows.begin(&mut || forwarder.pick());
        let mut cores = vec![Core::default(); self.cores];
        let mut arrivals = vec![0u32; self.cores];
        let mut noise = RandomStream::new(self.seed, 26);
        let mut tally =
            Tally { delays: vec![0; DELAYS], sent: 0, lost: 0, served: 0, windows: Vec::new() };
        for tick in 0..self.run_ms * TICKS_PER_MS {
            flows.arrive(tick, &mut || forwarder.pick());
            flows.send(tick, &mut |core, packets, age_ms, before| {
                arrivals[core as usize] += packets;
                forwarder.count(core, packets, age_ms, before);
            });
            let counted = tick >= self.warm_ms * TICKS_PER_MS;
            for (core, arrivals) in cores.iter_mut().zip(&mut arrivals) {
                let packets = std::mem::take(arrivals);
                let delay = core.tick(packets, &costs);
                if counted && packets > 0 {
                    let bin = ((delay * 1e6) as usize).min(DELAYS - 1);
                    tally.delays[bin] += u64::from(packets);
                    tally.sent += u64::from(packets);
                }
            }
            if tick % TICKS_PER_MS == TICKS_PER_MS - 1 {
                let ms = tick / TICKS_PER_MS;
                forwarder.millisecond(ms);
                if ms % WINDOW_MS == WINDOW_MS - 1 {
                    let active = scale.as_ref().map_or(0, |scale| scale.active().len());
                    self.window(
                        ms + 1,
                        serving + active,
                        &mut forwarder,
                        &mut cores,
                        &mut tally,
                        &mut noise,
                    );
                }
                if let Some(scale) = &mut scale {
                    self.scale(ms + 1, serving, scale, &mut forwarder);
                }
            }
        }
        self.seen(tally)
    }

    /// Nodes report, and loads are noted.
    fn window(
        &self,
        ms: u64,
        serving: usize,
        forwarder: &mut Forwarder,
        cores: &mut [Core],
        tally: &mut Tally,
        noise: &mut RandomStream,
    ) {
        let seconds = WINDOW_MS as f64 / 1e3;
        let counted = ms > self.warm_ms;
        let mut window =
            Window { at: ms as f64 / 1e3, offered: Vec::new(), busy: Vec::new(), serving };
        for (server, core) in cores.iter_mut().enumerate() {
            let lost = std::mem::take(&mut core.lost);
            let (busy, served) = core.take();
            let sent = std::mem::take(&mut forwarder.sent[server]);
            window.offered.push(sent as f64 * self.cost / seconds);
            window.busy.push(busy / seconds);
            // The sum of twelve uniform numbers is near enough to normal.
            let normal: f64 = (0..12).map(|_| noise.uniform()).sum::<f64>() - 6.0;
            let told = (busy + normal * self.report_error * seconds).clamp(0.0, seconds);
            let report = Report {
                server,
                core: 0,
                ended: Nanos(ms * 1_000_000),
                seconds,
                busy: told,
                handled: &[served],
                sent: &[sent],
            };
            // The model stays as calibrated, so that policies are compared on the same loads; reports are for Monitor.
            let _ = forwarder.model.hear(report.ended, &report);
            if counted {
                tally.lost += lost;
                tally.served += served;
            }
        }
        tally.windows.push(window);
    }

    fn scale(&self, ms: u64, serving: usize, scale: &mut Scale, forwarder: &mut Forwarder) {
        let ones = vec![1; self.cores - serving];
        let load = forwarder.steering.total();
        match scale.step(Nanos(ms * 1_000_000), load, serving, &ones) {
            Some(ScaleAction::Activate(index)) => forwarder.serve(serving + index, true),
            Some(ScaleAction::Release(index)) => forwarder.serve(serving + index, false),
            None => {}
        }
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
        let p99 = gaps.get(gaps.len() * 99 / 100).copied().unwrap_or(f64::NAN);
        let quantile = |part: f64| {
            let all: u64 = tally.delays.iter().sum();
            let mut left = (part * all as f64) as u64;
            let over = |&count: &u64| {
                let here = left < count;
                left = left.saturating_sub(count);
                here
            };
            tally.delays.iter().position(over).unwrap_or(DELAYS - 1) as f64 + 0.5
        };
        Seen {
            gap: mean_gap,
            gap_p99: p99,
            busy_gap: mean(&busy),
            lost: 100.0 * tally.lost as f64 / tally.sent.max(1) as f64,
            served: tally.served as f64 * 1e3 / (self.run_ms - self.warm_ms) as f64,
            delay_p50: quantile(0.5),
            delay_p99: quantile(0.99),
            windows: tally.windows,
        }
    }
}

const _: () = assert!((TICK_S * TICKS_PER_MS as f64 - 1e-3).abs() < 1e-12);
