//! `plimsoll-lab backends`: hosts emulated backends until told to stop.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use plimsoll_terminal::table::{Table, left, right};
use plimsoll_terminal::{Screen, complain, exit, fail, number};
use plimsoll_testbed::{
    BackendSpec, Service, ServiceKind, StartError, Testbed, TestbedSpec, format_duration,
};

use crate::stop::StopSignals;

/// Host emulated backends: real HTTP, cores that exist only on a schedule.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// What to host, as YAML or JSON (docs/lab.md).
    #[arg(long, value_name = "FILE")]
    pub spec: PathBuf,
}

/// Serves until SIGINT or SIGTERM. Exits 2 when the specification is wrong, 1 when it cannot listen.
pub async fn run(args: &Args) -> ExitCode {
    let spec = match read(args) {
        Ok(spec) => spec,
        Err(problems) => {
            problems.iter().for_each(|problem| complain!("{problem}"));
            return ExitCode::from(exit::MALFORMED);
        }
    };
    let mut signals = match StopSignals::listen() {
        Ok(signals) => signals,
        Err(error) => return fail(&format!("cannot wait for signals: {error}")),
    };
    let shown = spec.backends.clone();
    let bed = match Testbed::start(spec) {
        Ok(bed) => bed,
        Err(StartError::Spec(problems)) => {
            let file = args.spec.display();
            problems.iter().for_each(|problem| complain!("{file}: {problem}"));
            return ExitCode::from(exit::MALFORMED);
        }
        Err(error) => return fail(&error.to_string()),
    };
    // A reader that closed the pipe has seen enough; the backends go on.
    let _ = announce(&bed, &shown);
    signals.next().await;
    let late = bed.stats().map(|stats| stats.lateness);
    if let Some(late) = late.filter(|late| late.replies > 0) {
        complain!(
            "{} replies, later than on the ideal schedule by {} µs (median), {} µs (p99), {} µs (max)",
            late.replies,
            late.p50_us,
            late.p99_us,
            late.max_us
        );
    }
    match bed.shutdown() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("the backends had stopped: {error}")),
    }
}

fn read(args: &Args) -> Result<TestbedSpec, Vec<String>> {
    let file = args.spec.display().to_string();
    let text = std::fs::read_to_string(&args.spec)
        .map_err(|error| vec![format!("{file}: cannot be read: {error}")])?;
    TestbedSpec::from_yaml(&text)
        .map_err(|problems| problems.iter().map(|p| p.describe(&file)).collect())
}

fn announce(bed: &Testbed, specs: &[BackendSpec]) -> io::Result<()> {
    let mut table = Table::new([
        left("EMULATED"),
        left("ADDRESS"),
        right("CORES"),
        right("SPEED"),
        left("SERVICE"),
        left("DISCIPLINE"),
        right("CAPACITY/S"),
        left("MODE"),
    ]);
    for (spec, (name, address)) in specs.iter().zip(bed.addresses()) {
        let discipline = format!("{:?}", spec.discipline).to_lowercase();
        table.row([
            name.into(),
            address.to_string().into(),
            spec.cores.to_string().into(),
            spec.speed.to_string().into(),
            describe(&spec.service).into(),
            discipline.into(),
            number(spec.capacity_rps()).into(),
            spec.mode.to_string().into(),
        ]);
    }
    let mut out = io::stdout().lock();
    out.write_all(table.render(&Screen::stdout()).as_bytes())?;
    if let Some(admin) = bed.admin_address() {
        writeln!(out, "admin API: http://{admin}/backends")?;
    }
    writeln!(out, "These backends are emulated: no work is done, only time passes.")?;
    out.flush()
}

fn describe(service: &Service) -> String {
    let mean = format_duration(service.mean);
    match service.kind {
        ServiceKind::Deterministic => format!("{mean} deterministic"),
        ServiceKind::Exponential => format!("{mean} exponential"),
        ServiceKind::Lognormal { sigma } => format!("{mean} lognormal, sigma {sigma}"),
        ServiceKind::Bimodal { slow_share, slow_factor } => {
            format!("{mean} bimodal, {}% take {slow_factor}x", slow_share * 100.0)
        }
    }
}
