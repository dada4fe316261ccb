//! `plimsoll-lab demo`: what Plimsoll does for an unequal pool, shown on one machine in a few minutes.
//!
//! Five lanes run side by side under the same clients: HAProxy (or Plimsoll's own proxy) alone (roundrobin, leastconn), Plimsoll
//! under each, and the best static split. Plimsoll begins knowing nothing; when it has learned, or its
//! time is up, the same stretch of time is measured in all lanes.

mod live;
mod report;
mod timeline;

use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use plimsoll_control::ServiceView;
use plimsoll_sim::small_pool;
use plimsoll_terminal::Format;

use live::{Frame, LaneFrame, Live};
use plimsoll_lanes::{
    CpuClock, Distribution, Family, Finished, Interrupt, Lane, LaneError, LaneKind, Lb, Learning,
    Pool, plimsoll, raise_descriptor_limit,
};
use report::Report;
use timeline::Timeline;

use crate::shown::shown;

/// The lanes, in the order in which they are shown.
const LANES: [LaneKind; 5] = [
    LaneKind::Roundrobin,
    LaneKind::Leastconn,
    LaneKind::StaticOracle,
    LaneKind::PlimsollRoundrobin,
    LaneKind::PlimsollLeastconn,
];
/// The part of its capacity that clients ask of the pool.
const LOAD: f64 = 0.7;
/// What the mean request takes on a core of speed 1.
const SERVICE: Duration = Duration::from_millis(30);
/// How often lanes are looked at.
const TICK: Duration = Duration::from_millis(500);
/// Stretches of this length tell whether the machine was ever too busy.
const BUSY_OVER: Duration = Duration::from_secs(5);
/// How often to look for an interrupt.
const BLINK: Duration = Duration::from_millis(50);

/// Show what Plimsoll does: emulated backends, real balancers, with and without Plimsoll, side by side
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// How long it may take in all, seconds
    #[arg(long, value_name = "N", default_value_t = 240,
          value_parser = clap::value_parser!(u64).range(40..=3600))]
    pub seconds: u64,
    /// The same seed gives the same arrivals
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The balancer of all lanes: HAProxy, or Plimsoll's own proxy in its place
    #[arg(long, value_enum, default_value_t, value_name = "BALANCER")]
    pub lb: Lb,
    /// How to show the result
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

/// Runs the demonstration. Exits 1 when it cannot, 130 when it was interrupted.
pub fn run(args: &Args) -> ExitCode {
    let begun = Instant::now();
    shown(demonstrate(args, begun), args.output, Report::text).0
}

/// Everything but the words; nothing when it was interrupted.
fn demonstrate(args: &Args, begun: Instant) -> Result<Option<Report>, LaneError> {
    let interrupt = Interrupt::listen()?;
    raise_descriptor_limit();
    // Found out now rather than when the first lanes run.
    plimsoll()?;
    let pool = Pool::new(&small_pool(), SERVICE, Distribution::Exponential, LOAD, args.seed);
    let simulated = simulate(&pool)?;
    let family = Family::start()?;
    let mut lanes = Vec::with_capacity(LANES.len());
    for kind in LANES {
        lanes.push(Lane::start_behind(&family, &pool, kind, args.lb, kind.name())?);
        if interrupt.came() {
            return Ok(None);
        }
    }
    for lane in &mut lanes {
        lane.open(&family)?;
    }
    let timeline = Timeline::within(Duration::from_secs(args.seconds), begun.elapsed());
    let mut show =
        Show { lb: args.lb, live: Live::new(&pool, args.lb), lanes, timeline, interrupt };
    let Some(ran) = show.run()? else { return Ok(None) };
    show.lanes.iter().for_each(|lane| lane.close());
    show.live.say("waiting for the last answers");
    let finished: Vec<Finished> =
        show.lanes.into_iter().map(Lane::finish).collect::<Result<_, _>>()?;
    show.live.end();
    let limit_ms = simulated.join().unwrap_or(f64::NAN);
    Ok(Some(Report::new(&pool, args.lb, finished, &ran, limit_ms)))
}

/// The central queue, simulated beside the start of everything else.
fn simulate(pool: &Pool) -> Result<JoinHandle<f64>, LaneError> {
    let pool = pool.clone();
    let thread = std::thread::Builder::new().name("limit".into());
    thread.spawn(move || pool.limit_ms()).map_err(LaneError::system("start a thread"))
}

/// What is known when the last client has come.
pub struct Ran {
    /// When the measured stretch began and ended; the same for all lanes.
    pub measured: (Instant, Instant),
    /// When the first clients came.
    pub opened: Instant,
    /// When the Plimsoll lanes were steady, by lane of [`LANES`].
    pub learned: Vec<(LaneKind, Option<Duration>)>,
    /// The weights of each lane at the end.
    pub weights: Vec<(LaneKind, Vec<u32>)>,
    /// How busy the machine was while it measured.
    pub busy: Busy,
}

/// How busy the machine was while it measured, 0…1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    /// On the whole.
    pub mean: Option<f64>,
    /// In the busiest stretch of [`BUSY_OVER`].
    pub most: Option<f64>,
}

/// Watches how busy the machine is.
struct BusyWatch {
    whole: Option<CpuClock>,
    lately: Option<CpuClock>,
    next: Instant,
    most: Option<f64>,
}

impl BusyWatch {
    fn start() -> Self {
        let clock = CpuClock::now();
        BusyWatch { whole: clock, lately: clock, next: Instant::now() + BUSY_OVER, most: None }
    }

    /// To be called now and then.
    fn look(&mut self) {
        if Instant::now() >= self.next {
            let lately = self.lately.and_then(|clock| clock.busy_share());
            self.most = self.most.into_iter().chain(lately).reduce(f64::max);
            (self.lately, self.next) = (CpuClock::now(), Instant::now() + BUSY_OVER);
        }
    }

    fn busy(&self) -> Busy {
        Busy { mean: self.whole.and_then(|clock| clock.busy_share()), most: self.most }
    }
}

struct Show {
    lb: Lb,
    live: Live,
    lanes: Vec<Lane>,
    timeline: Timeline,
    interrupt: Interrupt,
}

impl Show {
    /// From the first client to the last; nothing when interrupted.
    fn run(&mut self) -> Result<Option<Ran>, LaneError> {
        let opened =
            self.lanes.iter().filter_map(|lane| lane.started()).max().unwrap_or_else(Instant::now);
        let mut learning: Vec<(LaneKind, Learning)> = self
            .lanes
            .iter()
            .filter(|lane| lane.kind.is_steered())
            .map(|lane| (lane.kind, Learning::default()))
            .collect();
        let mut measuring: Option<(Instant, BusyWatch)> = None;
        loop {
            let views: Vec<Option<ServiceView>> =
                self.lanes.iter().map(|lane| lane.view()).collect();
            let passed = opened.elapsed();
            for (kind, learning) in &mut learning {
                let at = self.lanes.iter().position(|lane| lane.kind == *kind);
                if let Some(view) = at.and_then(|at| views[at].as_ref()) {
                    learning.saw(passed, view.phase);
                }
            }
            let learned = learning.iter().all(|(_, learning)| learning.learned().is_some());
            if measuring.is_none() && self.timeline.learning_is_over(passed, learned) {
                measuring = Some((Instant::now(), BusyWatch::start()));
            }
            if let Some((_, watch)) = &mut measuring {
                watch.look();
            }
            let from = measuring.as_ref().map(|(from, _)| *from);
            self.draw(passed, from.map(|from| from - opened), &views, &learning);
            if passed >= self.timeline.whole {
                return Ok(Some(Ran {
                    measured: (from.unwrap_or(opened), Instant::now()),
                    opened,
                    learned: learning.iter().map(|(kind, l)| (*kind, l.learned())).collect(),
                    weights: self.weights(&views),
                    busy: measuring.map(|(_, watch)| watch.busy()).unwrap_or_default(),
                }));
            }
            if !self.pause()? {
                return Ok(None);
            }
        }
    }

    /// Waits for the next look; false when an interrupt has come.
    fn pause(&mut self) -> Result<bool, LaneError> {
        let end = Instant::now() + TICK;
        while Instant::now() < end {
            if self.interrupt.came() {
                self.live.end();
                return Ok(false);
            }
            std::thread::sleep(BLINK);
        }
        self.lanes.iter_mut().try_for_each(|lane| lane.check())?;
        Ok(true)
    }

    fn weights(&self, views: &[Option<ServiceView>]) -> Vec<(LaneKind, Vec<u32>)> {
        let of =
            |(lane, view): (&Lane, &Option<ServiceView>)| (lane.kind, lane.held(view.as_ref()));
        self.lanes.iter().zip(views).map(of).collect()
    }

    fn draw(
        &mut self,
        passed: Duration,
        measuring: Option<Duration>,
        views: &[Option<ServiceView>],
        learning: &[(LaneKind, Learning)],
    ) {
        let lane = |(lane, view): (&Lane, &Option<ServiceView>)| {
            let report = lane.so_far().unwrap_or_default();
            let learned = learning.iter().find(|(kind, _)| *kind == lane.kind);
            LaneFrame {
                kind: lane.kind,
                in_flight: report.in_flight,
                errors: report.total.errors,
                series: report.series,
                weights: lane.held(view.as_ref()),
                view: view.as_ref().map(|view| (view.phase, view.plan.reason.clone())),
                trouble: view.as_ref().and_then(|view| view.trouble.clone()),
                learned: learned.and_then(|(_, learning)| learning.learned()),
            }
        };
        let lanes = self.lanes.iter().zip(views).map(lane).collect();
        let (whole, learn_at_most) = (self.timeline.whole, self.timeline.learn_at_most);
        self.live.draw(&Frame { lb: self.lb, passed, measuring, whole, learn_at_most, lanes });
    }
}
