//! Lanes side by side: the same arrivals, the same work, the same events.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plimsoll_control::RecordKind;
use plimsoll_lanes::{
    CpuClock, Event as Decision, Family, Front, FrontSpec, Interrupt, LaneError, Lb,
    Server as Balanced,
};
use plimsoll_terminal::complain;
use plimsoll_testbed::load::LoadReport;

use crate::args::Args;
use crate::cgroup::Cgroups;
use crate::event::{self, Event, Step, What};
use crate::server::Mode;
use crate::servers::Servers;
use crate::{LaneKind, Pool, RealError};

/// How often processes are looked after and events may happen.
const TICK: Duration = Duration::from_millis(20);
/// How often decisions are read, and whether everything lives: long before a daemon forgets any.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often a word is said about progress.
const SAY_EVERY: Duration = Duration::from_secs(30);

/// What every run shares.
pub struct Setting<'a> {
    /// What was asked for.
    pub args: &'a Args,
    /// The servers.
    pub pool: &'a Pool,
    /// What each can serve, requests per second.
    pub capacities_rps: &'a [f64],
    /// The processes.
    pub family: &'a Family,
    /// The control groups.
    pub cgroups: &'a Cgroups,
    /// The wish to end.
    pub interrupt: &'a Interrupt,
}

/// Which arrivals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Part of the true capacity.
    pub load: f64,
    /// From 0.
    pub round: u32,
    /// Of arrivals and work.
    pub seed: u64,
}

/// One lane that has run.
pub struct Ran {
    /// The balancer.
    pub kind: LaneKind,
    /// Which arrivals.
    pub trial: Trial,
    /// Lanes of the same number ran at the same time.
    pub group: usize,
    /// What its clients saw.
    pub report: LoadReport,
    /// What Plimsoll decided, and when, from the first request on.
    pub decisions: Vec<(Duration, Decision)>,
    /// Busy part of the machine meanwhile.
    pub busy: Option<f64>,
    /// Part of the machine that the hypervisor gave to others meanwhile.
    pub steal: Option<f64>,
}

/// A lane that runs.
struct Lane {
    kind: LaneKind,
    front: Front,
    servers: Servers,
    decisions: Vec<Decision>,
}

impl Lane {
    fn start(
        setting: &Setting,
        trial: Trial,
        kind: LaneKind,
        number: u8,
    ) -> Result<Self, RealError> {
        let Setting { pool, family, .. } = *setting;
        let name = kind.name();
        let servers = Servers::start(family, setting.cgroups, pool, name, number)?;
        let weights = kind.weights(setting.capacities_rps);
        let server = |((name, address), weight)| Balanced { name, address, weight };
        let spec = FrontSpec {
            name: format!("{name}-{}-{}", trial.round, trial.load),
            lb: Lb::Haproxy,
            balance: kind.balance(),
            servers: servers.addresses().into_iter().zip(weights).map(server).collect(),
            balancers: kind.balancers(),
            steering: kind.steering(),
            rate_rps: trial.load * setting.capacities_rps.iter().sum::<f64>(),
            work: Some(pool.work),
            seed: trial.seed,
        };
        let front = Front::start(family, spec)?;
        Ok(Lane { kind, front, servers, decisions: Vec::new() })
    }

    fn look(&mut self) -> Result<(), RealError> {
        self.read_decisions();
        self.front.check()?;
        Ok(self.servers.check()?)
    }

    fn read_decisions(&mut self) {
        let last = self.decisions.last().map_or(0, |decision| decision.seq);
        self.decisions.extend(self.front.events_after(last));
    }

    fn take(&mut self, step: Step, event: &Event, setting: &Setting) -> Result<(), RealError> {
        let Setting { family, cgroups, .. } = *setting;
        for i in event.which.positions(setting.pool) {
            match (event.what, step.begins) {
                (What::Neighbour(part), true) => {
                    self.servers.add_neighbour(family, cgroups, i, part)?;
                }
                (What::Neighbour(_), false) => self.servers.remove_neighbour(i),
                (What::Stop | What::Pause, true) => self.servers.stop(i),
                (What::Stop | What::Pause, false) => self.servers.go_on(i),
                (What::Kill, true) => self.servers.kill(i),
                (What::Kill, false) => self.servers.spawn(family, i)?,
                (What::Mode(mode), true) => self.servers.set_mode(i, mode)?,
                (What::Mode(_), false) => self.servers.set_mode(i, Mode::Normal)?,
                (What::Load(_), _) => {}
            }
        }
        if let What::Load(part) = event.what {
            self.front.set_rate(part * setting.capacities_rps.iter().sum::<f64>())?;
        }
        Ok(())
    }
}

/// Runs these lanes at the same time, from fresh servers and daemons that know nothing, to the end.
///
/// # Errors
/// When something does not start or ends before its time, or it was interrupted.
pub fn run(
    setting: &Setting,
    trial: Trial,
    kinds: &[LaneKind],
    group: usize,
) -> Result<Vec<Ran>, RealError> {
    let args = setting.args;
    let mut lanes = Vec::new();
    for (number, kind) in (1..).zip(kinds) {
        lanes.push(Lane::start(setting, trial, *kind, number)?);
        if setting.interrupt.came() {
            return Err(RealError::Interrupted);
        }
    }
    for lane in &mut lanes {
        lane.front.open(setting.family)?;
    }
    let (started, started_unix) = (Instant::now(), unix_now());
    let clock = CpuClock::now();
    let mut steps = event::steps(&args.events, args.span()).into_iter().peekable();
    let (mut looked, mut said) = (Duration::ZERO, Duration::ZERO);
    loop {
        let now = started.elapsed();
        if now >= args.span() {
            break;
        }
        while let Some(step) = steps.next_if(|step| step.at <= now) {
            for lane in &mut lanes {
                lane.take(step, &args.events[step.event], setting)?;
            }
        }
        if now >= looked + LOOK_EVERY {
            looked = now;
            lanes.iter_mut().try_for_each(Lane::look)?;
        }
        if now >= said + SAY_EVERY {
            said = now;
            say(&lanes, trial, now, args.span());
        }
        if setting.interrupt.came() {
            return Err(RealError::Interrupted);
        }
        std::thread::sleep(TICK);
    }
    let (busy, steal) = (clock.and_then(|c| c.busy_share()), clock.and_then(|c| c.steal_share()));
    // All end their arrivals at the same time, and then wait for the last answers.
    lanes.iter().for_each(|lane| lane.front.close());
    let finish = |mut lane: Lane| {
        lane.read_decisions();
        let at = |decision: Decision| {
            let since = (decision.unix_ms - started_unix).max(0) as u64;
            (Duration::from_millis(since), decision)
        };
        let decisions: Vec<(Duration, Decision)> = lane.decisions.into_iter().map(at).collect();
        if let Some((at, _)) = decisions.iter().find(|(_, d)| d.kind == RecordKind::Plan) {
            complain!("{}: first plan after {:.1} s", lane.kind.name(), at.as_secs_f64());
        }
        let (_, report) = lane.front.finish()?;
        Ok(Ran { kind: lane.kind, trial, group, report, decisions, busy, steal })
    };
    lanes.into_iter().map(finish).collect()
}

fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or_default()
}

fn say(lanes: &[Lane], trial: Trial, now: Duration, span: Duration) {
    let means: Vec<String> = lanes
        .iter()
        .map(|lane| {
            let report = lane.front.so_far().unwrap_or_default();
            let last = now.as_secs().saturating_sub(SAY_EVERY.as_secs());
            let mean = plimsoll_lanes::mean_of(&report.series, last..now.as_secs());
            let mean = mean.map_or("-".to_owned(), |ms| format!("{ms:.0} ms"));
            format!("{} {mean}, {} errors", lane.kind.name(), report.total.errors)
        })
        .collect();
    eprintln!(
        "round {} load {} {:>4}/{} s: {}",
        trial.round + 1,
        trial.load,
        now.as_secs(),
        span.as_secs(),
        means.join("; ")
    );
}

/// Writes what the lane's clients saw and Plimsoll decided.
///
/// # Errors
/// When the system refuses.
pub fn write(dir: &Path, ran: &Ran) -> Result<(), LaneError> {
    let Trial { load, round, .. } = ran.trial;
    let name = format!("{}-{load}-{}-{}", ran.kind.name(), round + 1, ran.group);
    let mut text = String::from("start_s,latency_ms,ok\n");
    for record in &ran.report.records {
        let start = record.start_ns as f64 / 1e9;
        text += &format!("{start:.6},{:.3},{}\n", f64::from(record.latency_us) / 1e3, record.ok);
    }
    let file = dir.join(format!("requests-{name}.csv"));
    let problem = |file: &Path| LaneError::system(format!("write {}", file.display()));
    std::fs::write(&file, text).map_err(problem(&file))?;
    if ran.kind.is_steered() {
        let mut text = String::new();
        for (at, Decision { kind, backend, reason, .. }) in &ran.decisions {
            let backend = backend.as_deref().unwrap_or("-");
            text += &format!("{:9.3}\t{kind:?}\t{backend}\t{reason}\n", at.as_secs_f64());
        }
        let file = dir.join(format!("events-{name}.tsv"));
        std::fs::write(&file, text).map_err(problem(&file))?;
    }
    Ok(())
}
