//! `plimsoll doctor`: looks at the balancers, the backends and the machine, and says what keeps
//! Plimsoll from helping and what to do about it. It changes nothing.

mod backends;
mod balancer;
mod clients;
mod edge;
mod finding;
mod found;
mod haproxy;
mod l4;
mod machine;
mod proxy;
mod running;
mod several;
mod source;
mod steered;

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::config::{self, Config, Sections, Service, defaults, shared};
use crate::daemons::refused;
use crate::place::{OnlyArgs, PlaceArgs};
use crate::run;
use finding::{Finding, Findings};
use plimsoll_config::Document;
use plimsoll_control::ServiceView;
use plimsoll_terminal::{Format, Screen, complain, exit};
use running::Running;
use tokio::runtime::Runtime;

/// Look for what keeps Plimsoll from helping, and say what to do
#[derive(clap::Args, Clone, Debug)]
pub struct DoctorArgs {
    /// The configuration: of `run`, or with an `l4`, `proxy` or `edge` section; without one, what layer 4 needs of any machine
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub only: OnlyArgs,
    /// Without a configuration: where a daemon that steers the balancer answers, as in `run`
    #[arg(long, value_name = "ADDRESS", requires = "balancer", default_value_t = defaults::API_LISTEN)]
    pub listen: SocketAddr,
    /// How to show what was found
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

/// Looks, and exits 0 when nothing is wrong, 1 when something is, 2 when the configuration is.
pub fn run(args: &DoctorArgs) -> ExitCode {
    if let Some(sink) = args.place.sink() {
        let found = |runtime: Runtime| {
            runtime.block_on(found::examine(&sink, &args.only.backend, args.listen))
        };
        return with_runtime(found).map_or_else(|code| code, |found| show(&found, args.output));
    }
    let Some(path) = &args.config else { return l4::run(None, args.output) };
    let read = Document::load(path).and_then(|document| config::all(&document));
    let sections = match read {
        Err(problems) => return refused(&problems),
        Ok(Sections { daemon: None, l4: Some(l4), proxy: None, edge: None }) => {
            return l4::run(Some(&l4.balancer), args.output);
        }
        Ok(sections) => sections,
    };
    let mut findings = Findings::default();
    // Before anything is opened here that a proxy would not have open.
    if let Some(section) = &sections.proxy {
        findings.append(proxy::findings(section));
    }
    if let Some(config) = &sections.daemon {
        let looked = |runtime: Runtime| runtime.block_on(examine(config, path));
        match with_runtime(looked) {
            Ok(found) => findings.append(found),
            Err(code) => return code,
        }
    }
    if let Some(section) = &sections.l4 {
        findings.append(l4::findings(&section.balancer));
    }
    if let Some(section) = &sections.edge {
        findings.append(edge::findings(section));
    }
    show(&findings, args.output)
}

fn with_runtime<T>(work: impl FnOnce(Runtime) -> T) -> Result<T, ExitCode> {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => Ok(work(runtime)),
        Err(error) => {
            complain!("plimsoll: cannot start: {error}");
            Err(ExitCode::from(exit::FAILED))
        }
    }
}

/// Shows what was found; the exit code for it.
fn show(findings: &Findings, format: Format) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let shown = match format {
        Format::Json => findings.to_json(&mut out),
        Format::Table => findings.to_lines(&Screen::stdout(), &mut out),
    };
    match shown.and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            complain!("plimsoll: cannot write the answer: {error}");
            ExitCode::from(exit::FAILED)
        }
        _ if findings.has_errors() => ExitCode::from(exit::FAILED),
        _ => ExitCode::SUCCESS,
    }
}

async fn examine(config: &Config, path: &Path) -> Findings {
    let mut findings = Findings::default();
    let file = path.display();
    findings.add(Finding::ok("config", format!("{file} is valid")));
    let running = Running::ask(config.api.listen).await;
    machine::examine(config, &running, &mut findings).await;
    // All services at once: a balancer that hangs costs its time-out only once.
    let mut looks = tokio::task::JoinSet::new();
    for (i, mut service) in config.services.iter().cloned().enumerate() {
        let told = running.service(&service.name);
        looks.spawn(async move {
            let found = examine_service(&mut service, told).await;
            (i, service, found)
        });
    }
    let mut all = looks.join_all().await;
    all.sort_by_key(|(i, ..)| *i);
    let mut services = Vec::new();
    for (_, service, found) in all {
        services.push(service);
        findings.append(found);
    }
    share(&services, &mut findings);
    findings
}

/// Which of them share servers.
fn share(services: &[Service], findings: &mut Findings) {
    for one in shared::shared(services) {
        findings.add(Finding::warning("services", one.to_string(), shared::ADVICE));
    }
}

/// Looks at one; where its servers are asked of the balancer, it has them afterwards.
async fn examine_service(service: &mut Service, told: Option<ServiceView>) -> Findings {
    let mut findings = Findings::default();
    let left_alone = match service.auto {
        true => Some(found::servers(service, &mut findings).await),
        false => None,
    };
    let service = &*service;
    let setup =
        match run::translate::service(service, &run::translate::numbered(service), true, None) {
            Ok(setup) => setup,
            Err(error) => {
                let what = format!("{error}");
                findings.add(Finding::error(&service.name, what, "correct the configuration"));
                return findings;
            }
        };
    balancer::examine(service, &setup, told.as_ref(), left_alone.as_ref(), &mut findings).await;
    source::examine(&service.name, &setup, told.is_some(), &mut findings).await;
    if let Some(view) = &told {
        clients::examine(view, &mut findings);
    }
    backends::examine(service, &setup, told.as_ref(), &mut findings).await;
    findings
}
