//! Real servers in control groups behind real HAProxys, one lane per way of balancing.
//!
//! What an emulated pool does not show: checks that wait behind work, CPU that is taken away until the
//! next period, requests of one server that share its CPU. Every lane has servers, control groups, a
//! HAProxy and, where Plimsoll steers it, a daemon of its own; all have the same arrivals and the same
//! work ([`run()`]). See `docs/lab-real.md`.

mod addresses;
mod args;
mod calibrate;
pub mod cgroup;
mod error;
mod event;
mod kind;
mod make;
mod noticed;
mod php;
mod pool;
mod ratio;
mod report;
mod run;
pub mod server;
mod servers;
mod table;
pub mod wordpress;

use std::io::{self, Write};
use std::process::ExitCode;

use plimsoll_lanes::{
    CpuClock, Family, Interrupt, LaneError, haproxy_version, plimsoll, raise_descriptor_limit,
};
use plimsoll_terminal::{Format, complain, exit};

pub use args::Args;
pub use calibrate::calibrate;
pub use error::RealError;
pub use kind::LaneKind;
pub use make::{Installed, Make};
pub use pool::{Pool, Size};
pub use ratio::{BATCHES, Pair, Ratio};
use report::Report;
use run::{Setting, Trial};
pub use server::Model;
pub use servers::Servers;

/// Runs everything and prints what was measured. Exits 2 when the arguments do not fit, 1 when it cannot
/// run, 130 when it was interrupted.
pub fn run(args: &Args) -> ExitCode {
    let problems = args.problems();
    if !problems.is_empty() {
        problems.iter().for_each(|problem| complain!("{problem}"));
        return ExitCode::from(exit::MALFORMED);
    }
    let report = match measure(args) {
        Ok(report) => report,
        Err(RealError::Interrupted) => return ExitCode::from(exit::INTERRUPTED),
        Err(error) => {
            complain!("real: {error}");
            return ExitCode::FAILURE;
        }
    };
    match print(args, &report) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain!("real: cannot write the result: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn print(args: &Args, report: &Report) -> io::Result<()> {
    let mut json = serde_json::to_string_pretty(report)?;
    json.push('\n');
    if let Some(dir) = &args.out {
        std::fs::write(dir.join("result.json"), &json)?;
    }
    let mut out = io::stdout().lock();
    match args.output {
        Format::Json => out.write_all(json.as_bytes())?,
        Format::Table => out.write_all(table::text(report).as_bytes())?,
    }
    out.flush()
}

fn measure(args: &Args) -> Result<Report, RealError> {
    let pool = args.pool();
    // Whatever is missing shows now rather than after minutes.
    pool.make.find()?;
    haproxy_version().ok_or(LaneError::NoHaproxy)?;
    plimsoll()?;
    if let Some(dir) = &args.out {
        let made = std::fs::create_dir_all(dir);
        made.map_err(LaneError::system(format!("make {}", dir.display())))?;
    }
    let interrupt = Interrupt::listen()?;
    raise_descriptor_limit();
    // Groups go last: they must be empty.
    let cgroups = cgroup::Cgroups::open()?;
    let family = Family::start()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    args.doubts(cores).iter().for_each(|doubt| complain!("warning: {doubt}"));
    complain!("calibrating {} servers for {} s", pool.sizes.len(), args.calibrate.as_secs());
    let clock = CpuClock::now();
    let capacities_rps = calibrate(&family, &cgroups, &pool, args.calibrate, &interrupt)?;
    let busy = clock.and_then(|clock| clock.busy_share());
    let total: f64 = capacities_rps.iter().sum();
    let each: Vec<String> = capacities_rps.iter().map(|c| format!("{c:.2}")).collect();
    complain!("true capacities: {} = {total:.1} requests/s", each.join(" + "));
    let setting = Setting {
        args,
        pool: &pool,
        capacities_rps: &capacities_rps,
        family: &family,
        cgroups: &cgroups,
        interrupt: &interrupt,
    };
    let groups = kind::groups(&args.lanes, args.concurrent as usize);
    let runs = args.rounds as usize * args.loads.len() * groups.len();
    let minutes = runs as f64 * args.span().as_secs_f64() / 60.0;
    complain!("{runs} runs of {} s: {minutes:.0} minutes", args.span().as_secs());
    let mut all = Vec::new();
    for round in 0..args.rounds {
        for &load in &args.loads {
            let trial = Trial { load, round, seed: args.seed + u64::from(round) };
            for kinds in &groups {
                let ran = run::run(&setting, trial, kinds, all.len())?;
                if let Some(dir) = &args.out {
                    ran.iter().try_for_each(|ran| run::write(dir, ran))?;
                }
                all.extend(ran);
            }
        }
    }
    let mut report = Report::new(args, &pool, &capacities_rps, &all);
    report.warnings.splice(0..0, report::busy_at_calibration(busy));
    Ok(report)
}
