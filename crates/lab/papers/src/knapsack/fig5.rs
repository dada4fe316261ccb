//! Figure 5 (§3.2): pings do not see load, application latency does.
//!
//! Two backends, one after the other, under clients who come more and more often: an emulated one of two
//! cores, and a server whose requests really burn CPU. Meanwhile the time of a TCP connect is taken, and
//! that of an ICMP echo where the system allows raw sockets.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use plimsoll_lanes::LaneError;
use plimsoll_model::Curve;
use plimsoll_queueing::MmcCurve;
use plimsoll_testbed::load::{self, LoadHandle, LoadReport, LoadSpec, Target};
use plimsoll_testbed::{BackendSpec, Service, Testbed, TestbedSpec};

use super::ping::busy::BusyServer;
use super::ping::connect;
use super::ping::echo::Echo;
use crate::lanes::served;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Plot, Points};
use crate::{Bound, Comparison, Context, Experiment, Failure, Provenance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-fig5",
    paper: &super::PAPER,
    figure: "Figure 5",
    title: "Pings and application latency as load rises",
    claim: "As a backend's traffic rises its CPU and its application latency rise, while TCP and ICMP \
            pings stay as they are.",
    provenance: &[Provenance::Measured, Provenance::Emulated, Provenance::Simulated],
    takes: Duration::from_secs(130),
    takes_quick: Duration::from_secs(8),
    run,
};

/// The emulated backend.
const CORES: u32 = 2;
const SERVICE: Duration = Duration::from_millis(30);
/// CPU that a request of the real one burns, in the mean.
const WORK: Duration = Duration::from_millis(5);
const PING_EVERY: Duration = Duration::from_millis(20);
/// No level lasts so long; levels end their clients.
const LONGEST: Duration = Duration::from_secs(3600);

/// What was seen at one load.
struct Level {
    /// What the clients asked for, as a part of the capacity.
    load: f64,
    /// The busy part of the cores.
    cpu: f64,
    app_ms: Option<f64>,
    /// Medians.
    tcp_ms: Option<f64>,
    icmp_ms: Option<f64>,
    requests: u64,
}

/// A backend that can be asked how long it has worked.
struct Subject<'a> {
    address: SocketAddr,
    capacity_rps: f64,
    cores: f64,
    worked_s: &'a dyn Fn() -> Result<f64, Failure>,
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let service = Service::exponential(SERVICE);
    let mut spec = BackendSpec::new("emulated", service);
    (spec.cores, spec.seed) = (CORES, context.seed);
    let capacity_rps = spec.capacity_rps();
    let bed = Testbed::start(TestbedSpec { admin: None, backends: vec![spec] });
    let bed = bed.map_err(LaneError::from)?;
    let worked = || -> Result<f64, Failure> {
        let stats = bed.stats().ok_or(LaneError::BackendsStopped)?;
        Ok(stats.backends.iter().map(|backend| backend.busy_core_seconds).sum())
    };
    let address = bed.addresses().first().map(|(_, address)| *address);
    let address = address.ok_or(LaneError::BackendsStopped)?;
    let cores = f64::from(CORES);
    let subject = Subject { address, capacity_rps, cores, worked_s: &worked };
    let loads = context.pick(&[0.2, 0.6, 0.9][..], &[0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95][..]);
    let emulated = levels(context, &subject, loads, (0.0, 0.55))?;

    let server = BusyServer::start(WORK, context.seed);
    let server = server.map_err(Failure::file("start a server"))?;
    let worked = || Ok(server.worked().as_secs_f64());
    let capacity_rps = 1.0 / WORK.as_secs_f64();
    let subject =
        Subject { address: server.address(), capacity_rps, cores: 1.0, worked_s: &worked };
    let loads = context.pick(&[0.2, 0.5, 0.8][..], &[0.1, 0.3, 0.5, 0.6, 0.7, 0.8][..]);
    let measured = levels(context, &subject, loads, (0.55, 1.0))?;

    let mut notes = vec![
        format!(
            "The emulated backend has {CORES} cores and burns no CPU: its CPU is the part of its cores that \
             was busy. The real one burns {} ms of CPU per request in the mean, one request at a time; it \
             shares the machine with its clients, so its latency holds their waits for a CPU as well.",
            WORK.as_millis()
        ),
        "Pings are medians, one every 20 ms: a TCP connect to the backend's own port, and an ICMP echo to \
         its host."
            .to_owned(),
    ];
    if measured.iter().chain(&emulated).all(|level| level.icmp_ms.is_none()) {
        notes.push("No ICMP: this system refuses raw sockets to whoever ran this.".to_owned());
    }
    Ok(Outcome {
        tables: vec![table(&measured, &emulated)?],
        plots: vec![
            plot("measured", "A server that burns CPU", Provenance::Measured, &measured),
            plot("emulated", "An emulated backend of two cores", Provenance::Emulated, &emulated),
        ],
        comparisons: compare(Provenance::Measured, &measured)
            .into_iter()
            .chain(compare(Provenance::Emulated, &emulated))
            .collect(),
        notes,
    })
}

fn levels(
    context: &Context,
    subject: &Subject<'_>,
    loads: &[f64],
    part: (f64, f64),
) -> Result<Vec<Level>, Failure> {
    let length = Duration::from_millis(context.pick(800, 8_000));
    let settle = Duration::from_millis(context.pick(200, 1_000));
    let target = Target::resolve(&format!("http://{}/work", subject.address));
    let rate_rps = loads.first().copied().unwrap_or(0.1) * subject.capacity_rps;
    let mut spec = LoadSpec::poisson(target.map_err(Failure::Other)?, rate_rps, LONGEST);
    spec.seed = context.seed;
    let clients = load::start(spec).map_err(LaneError::from)?;
    let mut icmp = Echo::to(Ipv4Addr::LOCALHOST);
    let mut found = Vec::with_capacity(loads.len());
    for (i, &load) in loads.iter().enumerate() {
        let at = part.0 + (part.1 - part.0) * i as f64 / loads.len() as f64;
        let what = format!("{:.0} % of {:.0} requests/s", 100.0 * load, subject.capacity_rps);
        context.progress(at, &what)?;
        clients.set_rate(load * subject.capacity_rps).map_err(LaneError::from)?;
        std::thread::sleep(settle);
        found.push(level(context, subject, &clients, &mut icmp, (load, length))?);
    }
    Ok(found)
}

fn level(
    context: &Context,
    subject: &Subject<'_>,
    clients: &LoadHandle,
    icmp: &mut Option<Echo>,
    (load, length): (f64, Duration),
) -> Result<Level, Failure> {
    let snapshot = || clients.snapshot().ok_or(LaneError::Load(load::LoadError::Ended));
    let (before, worked, begin) = (snapshot()?, (subject.worked_s)()?, Instant::now());
    let (mut tcp, mut echoes) = (Vec::new(), Vec::new());
    while begin.elapsed() < length {
        context.check()?;
        tcp.extend(connect(subject.address));
        echoes.extend(icmp.as_mut().and_then(Echo::ping));
        std::thread::sleep(PING_EVERY);
    }
    let span_s = begin.elapsed().as_secs_f64();
    let worked = (subject.worked_s)()? - worked;
    let after = snapshot()?;
    let (requests, app_ms) = between(&before, &after);
    Ok(Level {
        load,
        cpu: worked / (span_s * subject.cores),
        app_ms,
        tcp_ms: median_ms(tcp),
        icmp_ms: median_ms(echoes),
        requests,
    })
}

/// Requests answered between two looks, and their mean latency in milliseconds.
fn between(before: &LoadReport, after: &LoadReport) -> (u64, Option<f64>) {
    let (count, sum_ms) = served(&before.total, &after.total);
    (count as u64, (count > 0.0).then(|| sum_ms / count))
}

fn median_ms(mut times: Vec<Duration>) -> Option<f64> {
    times.sort_unstable();
    times.get(times.len() / 2).map(|time| time.as_secs_f64() * 1e3)
}

fn table(measured: &[Level], emulated: &[Level]) -> Result<Table, Failure> {
    let mut table = Table::empty("levels", "Application latency and pings over load");
    let both = [(Provenance::Measured, measured), (Provenance::Emulated, emulated)];
    for (provenance, levels) in both {
        for level in levels {
            row!(table, provenance, {
                load_percent: 100.0 * level.load, "% of capacity asked for";
                cpu_percent: 100.0 * level.cpu, "%";
                application_ms: level.app_ms, "ms, mean";
                tcp_connect_ms: level.tcp_ms, "ms, median";
                icmp_echo_ms: level.icmp_ms, "ms, median";
                requests: level.requests;
            })?;
        }
    }
    for level in emulated {
        row!(table, Provenance::Simulated, {
            load_percent: 100.0 * level.load;
            cpu_percent: 100.0 * level.load;
            application_ms: exact_ms(level);
        })?;
    }
    Ok(table)
}

/// What an M/M/c queue takes at this load.
fn exact_ms(level: &Level) -> f64 {
    let curve = MmcCurve { service_us: SERVICE.as_secs_f64() * 1e6, cores: CORES };
    curve.latency_at(level.load * curve.capacity()) / 1e3
}

fn plot(name: &str, title: &str, provenance: Provenance, levels: &[Level]) -> Plot {
    let points = |value: fn(&Level) -> Option<f64>| -> Points {
        levels.iter().filter_map(|l| Some((100.0 * l.load, value(l)?))).collect()
    };
    let mut lines = vec![
        Lines::new("application, mean", provenance, points(|l| l.app_ms)),
        Lines::new("TCP connect, median", provenance, points(|l| l.tcp_ms)),
    ];
    let echoes = points(|l| l.icmp_ms);
    if !echoes.is_empty() {
        lines.push(Lines::new("ICMP echo, median", provenance, echoes));
    }
    if provenance == Provenance::Emulated {
        let exact = levels.iter().map(|l| (100.0 * l.load, exact_ms(l))).collect();
        lines.push(Lines::new("M/M/2", Provenance::Simulated, exact));
    }
    let x = Axis::linear("load (% of capacity)").from_to(0.0, 100.0);
    Plot::lines(name, title, x, Axis::log("time (ms)"), lines)
}

fn compare(provenance: Provenance, levels: &[Level]) -> Vec<Comparison> {
    let (Some(low), Some(high)) = (levels.first(), levels.last()) else { return Vec::new() };
    let growth = |value: fn(&Level) -> Option<f64>| Some(value(high)? / value(low)?);
    let range = format!("from {:.0} % to {:.0} % load", 100.0 * low.load, 100.0 * high.load);
    let mut found = Vec::new();
    if let Some(app) = growth(|l| l.app_ms) {
        let what = format!("application latency, {range}");
        let paper = ("rises with load", Bound::AtLeast(1.5));
        found.push(
            Comparison::bound(provenance, what, paper, app, "×")
                .why("Few requests in a short run: the mean of a queue is slow to settle."),
        );
    }
    for (name, value) in [
        ("TCP connect", (|l: &Level| l.tcp_ms) as fn(&Level) -> Option<f64>),
        ("ICMP echo", |l| l.icmp_ms),
    ] {
        let (Some(before), Some(after), Some(app_ms)) = (value(low), value(high), high.app_ms)
        else {
            continue;
        };
        let what = format!("{name}, {range}: what it grows by, of the application latency");
        let grown = 100.0 * (after - before) / app_ms;
        let paper = ("unaffected", Bound::AtMost(1.0));
        found.push(Comparison::bound(provenance, what, paper, grown, "%").why(format!(
            "From {:.0} to {:.0} µs. Backend, clients and ping share two cores: a ping waits for a CPU as \
             every process does.",
            1e3 * before,
            1e3 * after
        )));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_and_means_are_of_what_came_between() {
        let ms = Duration::from_millis;
        assert_eq!(median_ms(vec![ms(9), ms(1), ms(2)]), Some(2.0));
        assert_eq!(median_ms(Vec::new()), None);
        let report = |requests, errors, mean_ms| {
            let total = load::Summary { requests, errors, mean_ms, ..load::Summary::default() };
            LoadReport { total, ..LoadReport::default() }
        };
        let (before, after) = (report(11, 1, Some(5.0)), report(41, 1, Some(20.0)));
        assert_eq!(between(&before, &after), (30, Some(25.0)));
        assert_eq!(between(&before, &before), (0, None));
    }
}
