//! `plimsoll-lab demo-l4`: connections that stay while servers come and go, shown on one machine in less
//! than a minute.
//!
//! Three lanes run side by side, each with clients, a balancer and nginx servers in network namespaces of
//! its own: Plimsoll (the real daemon, native XDP), and two programs that go by hash alone, consistently
//! and plainly. The same servers come and go in all of them at the same moments; Plimsoll's daemon is also
//! killed and started again.

mod churn;
mod config;
mod lane;
mod live;
mod report;
mod steering;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use plimsoll_l4::{L4Error, Policy};
use plimsoll_l4bench::BenchError;
use plimsoll_lanes::{CpuClock, Interrupt, LaneError};
use plimsoll_terminal::{Format, complain, fail};
use plimsoll_testbed::net::{NetError, requirements};

use churn::Change;
use lane::{Finished, Lane};
use live::Live;
use report::Report;

use crate::shown::shown;

/// How often lanes are looked at.
const TICK: Duration = Duration::from_millis(500);
/// How often to look for an interrupt, or for a change that is due.
const BLINK: Duration = Duration::from_millis(20);

/// Show that connections stay while servers come and go, beside balancing by hash; needs root
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// How long clients are at work, seconds
    #[arg(long, value_name = "N", default_value_t = 40,
          value_parser = clap::value_parser!(u64).range(10..=3600))]
    pub seconds: u64,
    /// The same seed gives the same pauses of clients
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Also plot broken connections over time into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// How to show the result
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

/// How a lane's packets are steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By cookies.
    Plimsoll,
    /// By hash over a consistent table (Maglev).
    Maglev,
    /// By hash over the list of servers, as ECMP does.
    Hash,
}

impl Method {
    /// In the order in which they are shown.
    pub const ALL: [Method; 3] = [Method::Plimsoll, Method::Maglev, Method::Hash];

    /// Where people read.
    pub fn title(self) -> &'static str {
        match self {
            Method::Plimsoll => "Plimsoll",
            Method::Maglev => "consistent hash",
            Method::Hash => "hash",
        }
    }

    /// How its balancer picks a server for a SYN.
    pub fn policy(self) -> Policy {
        match self {
            Method::Plimsoll => Policy::RoundRobin,
            Method::Maglev => Policy::Maglev,
            Method::Hash => Policy::Hash,
        }
    }
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The network.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The balancer.
    #[error(transparent)]
    L4(#[from] L4Error),
    /// What is compared with it, or measured on it.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// Signals.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// The daemon, or a balancer's configuration.
    #[error("{0}")]
    Daemon(String),
    /// The plot.
    #[error("{0}")]
    Plot(String),
    /// The system refuses a file or a process.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl DemoError {
    /// For `map_err`: what was tried when the system refused.
    fn system(what: &'static str) -> impl FnOnce(io::Error) -> DemoError {
        move |source| DemoError::System { what, source }
    }
}

/// Runs the demonstration. Exits 1 when it cannot or when Plimsoll broke a connection, 130 when it was
/// interrupted.
pub fn run(args: &Args) -> ExitCode {
    match shown(demonstrate(args), args.output, Report::text) {
        (ExitCode::SUCCESS, Some(report)) if report.plimsoll_broke() > 0 => {
            fail("Plimsoll broke connections: this must not be")
        }
        (code, _) => code,
    }
}

/// Everything but the words; nothing when it was interrupted.
fn demonstrate(args: &Args) -> Result<Option<Report>, DemoError> {
    requirements()?;
    let interrupt = Interrupt::listen()?;
    plimsoll_lanes::raise_descriptor_limit();
    let program = plimsoll_lanes::plimsoll()?;
    let mut live = Live::new();
    live.say("setting up namespaces, balancers and servers");
    let mut lanes = Vec::with_capacity(Method::ALL.len());
    for method in Method::ALL {
        lanes.push(Lane::start(method, &program)?);
        if interrupt.came() {
            return Ok(None);
        }
    }
    for lane in &mut lanes {
        lane.open(args.seed)?;
    }
    let plan = churn::plan(Duration::from_secs(args.seconds));
    let mut show = Show { live, lanes, plan, interrupt, whole: Duration::from_secs(args.seconds) };
    let cpu = CpuClock::now();
    if !show.run()? {
        return Ok(None);
    }
    let busy = cpu.and_then(|cpu| cpu.busy_share());
    let finished: Vec<Finished> =
        show.lanes.into_iter().map(Lane::finish).collect::<Result<_, _>>()?;
    show.live.end();
    let report = Report::new(&finished, &show.plan, show.whole, busy);
    if let Some(file) = &args.svg {
        let text = report::plot(&finished, show.whole)?;
        std::fs::write(file, text).map_err(DemoError::system("write the plot"))?;
        complain!("plot: {}", file.display());
    }
    Ok(Some(report))
}

struct Show {
    live: Live,
    lanes: Vec<Lane>,
    plan: Vec<(Duration, Change)>,
    interrupt: Interrupt,
    whole: Duration,
}

impl Show {
    /// From the first client to the last; false when interrupted.
    fn run(&mut self) -> Result<bool, DemoError> {
        let (began, mut places, mut next) = (Instant::now(), churn::at_first(), 0);
        let mut look = Duration::ZERO;
        while began.elapsed() < self.whole {
            if self.interrupt.came() {
                self.live.end();
                return Ok(false);
            }
            if let Some((at, change)) = self.plan.get(next)
                && began.elapsed() >= *at
            {
                change.apply(&mut places);
                self.lanes.iter_mut().try_for_each(|lane| lane.change(*change, &places))?;
                next += 1;
            }
            if began.elapsed() >= look {
                look += TICK;
                self.lanes.iter_mut().try_for_each(Lane::check)?;
                let last = next.checked_sub(1).map(|last| self.plan[last].1);
                let lanes = self
                    .lanes
                    .iter()
                    .map(|lane| Ok((lane.method, lane.so_far()?)))
                    .collect::<Result<Vec<_>, DemoError>>()?;
                self.live.draw(began.elapsed(), self.whole, last, &places, &lanes);
            }
            std::thread::sleep(BLINK);
        }
        Ok(true)
    }
}
