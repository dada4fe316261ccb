//! Figure 9 (§5.3): connections broken while the pool grows and shrinks, with real servers and real
//! connections. A connection is broken when it is reset, silent, or answered by another server than before:
//! the server's name in every answer tells.

use std::ops::Range;
use std::time::Duration;

use plimsoll_l4::lab::Candidate;
use plimsoll_l4::{Balancer, Policy};
use plimsoll_l4bench::{Chain, Load, ifindex};
use plimsoll_sim::flows::Durations;
use plimsoll_testbed::net::Nginx;
use plimsoll_testbed::net::clients::{ClientReport, ClientSpec, Clients, Session, Sessions};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::service::Service;
use crate::Provenance::Measured;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Mark, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cheetah-fig9",
    paper: &super::PAPER,
    figure: "Figure 9",
    title: "Connections broken while servers come and go",
    claim: "While 7 servers join 24 and 8 leave, a hash breaks up to 11 % of the connections, a consistent hash 3 %, \
            Beamer 0.5 %, Cheetah none.",
    provenance: &[Provenance::Measured],
    takes: Duration::from_secs(4 * 60),
    takes_quick: Duration::from_secs(14),
    run,
};

/// How often weights follow the load (AWRR), and how exactly changes are in time.
const TICK: Duration = Duration::from_millis(100);

/// A method of balancing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Cookie,
    Hash,
    Consistent,
    Beamer,
}

use Method::{Beamer, Consistent, Cookie, Hash};

/// Each with the paper's percentage at its worst. The cookie is first: its program is the balancer's own.
const METHODS: [(Method, f64); 4] = [(Cookie, 0.0), (Hash, 11.0), (Consistent, 3.0), (Beamer, 0.5)];

impl Method {
    fn name(self) -> &'static str {
        match self {
            Cookie => "cookie, awrr",
            Hash => "hash",
            Consistent => "consistent hash (maglev)",
            Beamer => "consistent hash, daisy chain (Beamer)",
        }
    }

    fn policy(self) -> Policy {
        match self {
            Cookie => Policy::Awrr(plimsoll_l4::Load::Connections),
            Hash => Policy::Hash,
            Consistent | Beamer => Policy::Maglev,
        }
    }
}

/// The course of a run.
struct Plan {
    start: usize,
    joins: usize,
    leaves: usize,
    lasts: Duration,
    /// Connections a second, at the ends and in the middle.
    rates: (f64, f64),
    /// Between two requests of a connection.
    pause: Duration,
}

impl Plan {
    fn new(context: &Context) -> Plan {
        let whole = Plan {
            start: 24,
            joins: 7,
            leaves: 8,
            lasts: Duration::from_secs(40),
            rates: (300.0, 500.0),
            pause: Duration::from_secs(5),
        };
        let quick = Plan {
            start: 6,
            joins: 2,
            leaves: 2,
            lasts: Duration::from_millis(1500),
            rates: (150.0, 250.0),
            pause: Duration::from_millis(200),
        };
        context.pick(quick, whole)
    }

    /// The servers, by their places, from when on: they join in the first half, and those that have served
    /// longest leave in the second.
    fn changes(&self) -> Vec<(Duration, Range<usize>)> {
        let most = self.start + self.joins;
        let half = |from: f64, index: usize, of: usize| {
            self.lasts.mul_f64(from + 0.4 * index as f64 / of as f64)
        };
        let joins = (0..self.joins).map(|i| (half(0.05, i, self.joins), 0..self.start + i + 1));
        let leaves = (0..self.leaves).map(|i| (half(0.52, i, self.leaves), i + 1..most));
        joins.chain(leaves).collect()
    }

    /// Poisson arrivals whose rate is half a wave, by thinning.
    fn sessions(&self, seed: u64) -> Vec<Session> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let durations = Durations::web_server();
        let (low, high) = self.rates;
        let mut begins = 0.0;
        let mut sessions = Vec::new();
        loop {
            begins += -(1.0 - rng.random::<f64>()).ln() / high;
            let part = begins / self.lasts.as_secs_f64();
            if part >= 1.0 {
                return sessions;
            }
            let rate = low + (high - low) * (std::f64::consts::PI * part).sin();
            if rng.random::<f64>() * high < rate {
                let lasts = Duration::from_nanos(durations.sample(&mut rng).0);
                sessions.push(Session { begins: Duration::from_secs_f64(begins), lasts });
            }
        }
    }
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let plan = Plan::new(context);
    let sessions = plan.sessions(context.seed);
    context.progress(0.0, "servers")?;
    let service = Service::real(plan.start + plan.joins)?;
    let reports = service.site.net.inside("lb", || {
        let first = service.config(Cookie.policy(), 0..plan.start);
        let mut balancer = service.balancer(&first)?;
        let mut reports = Vec::new();
        for (method, _) in METHODS {
            let done = reports.len() as f64 / METHODS.len() as f64;
            let tell =
                |part: f64| context.progress(done + part / METHODS.len() as f64, method.name());
            let report = one(&service, &mut balancer, method, &plan, &sessions, tell)?;
            reports.push((method, report));
        }
        Ok::<_, Failure>(reports)
    })??;
    let notes = vec![
        format!(
            "Real nginx servers, one for each of {} network namespaces, and {} real connections, the same for every \
             method: {:.0} a second, rising to {:.0} and falling again in {:?}. Scaled to two cores: a fifth of the \
             paper's rate. The servers that leave are those that have served longest.",
            plan.start + plan.joins,
            sessions.len(),
            plan.rates.0,
            plan.rates.1,
            plan.lasts
        ),
        format!(
            "Durations are those of the authors' web server workload. A connection sends a request at its beginning, \
             one every {:?}, and one at its end; what a change broke is counted at the next request. Percentages \
             are of the connections that ended in the same second, well or broken; those open at the end of the \
             run are in neither.",
            plan.pause
        ),
        "The methods beside the cookie are XDP programs of their own on the same tables (crates/lab/l4bench/bpf/\
         rival.h). Beamer's daisy chain: the balancer names the previous server of the hash's place in the packet, and \
         a server that has no socket for it passes it on."
            .to_owned(),
    ];
    Ok(Outcome {
        tables: vec![table(&reports)?, seconds(&reports)?],
        plots: vec![plot(&reports)],
        comparisons: comparisons(&reports),
        notes,
    })
}

/// One method through the whole course.
fn one(
    service: &Service<Nginx>,
    balancer: &mut Balancer,
    method: Method,
    plan: &Plan,
    sessions: &[Session],
    tell: impl Fn(f64) -> Result<(), Failure>,
) -> Result<ClientReport, Failure> {
    service.begin(balancer, method.policy(), 0..plan.start)?;
    let mut rival = match method {
        Cookie => None,
        method => Some(Rival::new(service, balancer, method, 0..plan.start)?),
    };
    let spec = ClientSpec {
        sessions: Sessions::Listed(sessions.to_vec()),
        pause: plan.pause,
        ..ClientSpec::new(service.site.vip)
    };
    let clients = Clients::start(&service.site.net.namespace("cli")?, spec)?;
    let mut changes = plan.changes().into_iter().peekable();
    // Whatever the last change broke has asked by then.
    let end = plan.lasts.mul_f64(0.95) + plan.pause + TICK;
    while clients.began().elapsed() < end.max(plan.lasts) {
        let now = clients.began().elapsed();
        tell(now.as_secs_f64() / end.as_secs_f64())?;
        while let Some((_, servers)) = changes.next_if(|(at, _)| *at <= now) {
            if let Some(rival) = &mut rival {
                rival.follow(service, servers.clone())?;
            }
            balancer.apply(&service.config(method.policy(), servers))?;
        }
        if method == Cookie {
            balancer.refresh()?;
        }
        std::thread::sleep(TICK);
    }
    Ok(clients.finish())
}

/// A balancer without a cookie, in the place of ours.
struct Rival {
    load: Load,
    chain: Option<Chain>,
}

impl Rival {
    fn new(
        service: &Service<Nginx>,
        balancer: &Balancer,
        method: Method,
        servers: Range<usize>,
    ) -> Result<Rival, Failure> {
        let mut load = Load::on(balancer)?;
        if method != Beamer {
            load.take_over(balancer, "by_hash")?;
            return Ok(Rival { load, chain: None });
        }
        load.take_over(balancer, "by_chain")?;
        for name in &service.site.servers {
            service.site.net.inside(name, || load.chain_at(ifindex("e0")?))??;
        }
        let chain = Chain::new(&candidates(service, servers));
        load.set_previous(&chain)?;
        Ok(Rival { load, chain: Some(chain) })
    }

    /// To be called before the lists change: until then a place's present server is its previous one.
    fn follow(&mut self, service: &Service<Nginx>, servers: Range<usize>) -> Result<(), Failure> {
        if let Some(chain) = &mut self.chain {
            chain.follow(&candidates(service, servers));
            self.load.set_previous(chain)?;
        }
        Ok(())
    }
}

/// As the balancer's lists are made of them.
fn candidates(service: &Service<Nginx>, servers: Range<usize>) -> Vec<Candidate> {
    let backends = service.config(Policy::Maglev, servers).vips.remove(0).backends;
    let of = |one: plimsoll_l4::Backend| Candidate {
        id: one.id.unwrap_or_default(),
        weight: one.weight,
        name: one.name,
    };
    backends.into_iter().map(of).collect()
}

/// Of the connections that ended in a second, how many broke, percent.
fn percents(report: &ClientReport) -> Vec<f64> {
    let of = |broken: u64, ended: u64| 100.0 * broken as f64 / (broken + ended).max(1) as f64;
    report.seconds.iter().map(|one| of(one.broken, one.ended)).collect()
}

fn worst(report: &ClientReport) -> f64 {
    percents(report).into_iter().fold(0.0, f64::max)
}

fn table(reports: &[(Method, ClientReport)]) -> Result<Table, Failure> {
    let mut table = Table::empty("broken", "Connections broken while servers come and go");
    for (method, report) in reports {
        let how = report.by_break();
        let words: Vec<String> = how.iter().map(|(how, n)| format!("{how:?} {n}")).collect();
        let another = report
            .broken
            .iter()
            .filter(|one| one.how == plimsoll_testbed::net::clients::Break::ChangedServer);
        row!(table, Provenance::Measured, {
            method: method.name();
            connections: report.opened;
            broken: report.broken.len();
            broken_percent: 100.0 * report.broken_share(), "% of all connections";
            worst_second_percent: worst(report), "% of those that ended in it";
            how: words.join(", ");
            answered_by_another: another.count(), "connections";
            requests: report.requests;
        })?;
    }
    for (method, percent) in METHODS {
        row!(table, Provenance::Reported, {
            method: method.name();
            worst_second_percent: percent;
        })?;
    }
    Ok(table)
}

fn seconds(reports: &[(Method, ClientReport)]) -> Result<Table, Failure> {
    let mut table = Table::empty("seconds", "Second by second");
    for (method, report) in reports {
        for (second, one) in report.seconds.iter().enumerate() {
            row!(table, Provenance::Measured, {
                method: method.name();
                second: second, "s";
                opened: one.opened;
                ended: one.ended;
                broken: one.broken;
            })?;
        }
    }
    Ok(table)
}

fn plot(reports: &[(Method, ClientReport)]) -> Plot {
    let line = |(method, report): &(Method, ClientReport)| {
        let points = percents(report).into_iter().enumerate();
        let points = points.map(|(second, percent)| (second as f64, percent)).collect();
        Lines::new(method.name(), Provenance::Measured, points).drawn(Mark::Line)
    };
    Plot::lines(
        "broken",
        "Connections broken while servers come and go",
        Axis::linear("time (s)"),
        Axis::linear("broken of those that ended in the second (%)"),
        reports.iter().map(line).collect(),
    )
}

fn comparisons(reports: &[(Method, ClientReport)]) -> Vec<Comparison> {
    let mut all: Vec<Comparison> = Vec::new();
    for ((method, report), (_, theirs)) in reports.iter().zip(METHODS) {
        let name = method.name();
        if *method == Cookie {
            let (none, broken) = ((theirs, Tolerance::Absolute(0.0)), report.broken.len() as f64);
            let of = format!("broken of {}", report.opened);
            let one = Comparison::number(Measured, name, none, broken, &of);
            all.push(one.why("A connection broke under the cookie."));
            continue;
        }
        let (what, paper) = (format!("{name}, worst second"), (theirs, Tolerance::Part(0.5)));
        all.push(Comparison::number(Measured, what, paper, worst(report), "% broken").why(
            "A third of these connections last longer than 20 s and are open at most of the 15 changes, and a \
             client learns at its next request that its connection is gone; the paper does not say how long its \
             connections were idle, nor when its clients gave up, and counts some after the run.",
        ));
    }
    let percent = reports.iter().map(|(method, report)| {
        let short = ["cookie", "hash", "consistent hash", "Beamer"][*method as usize];
        (short, 100.0 * report.broken_share())
    });
    let mut percent: Vec<(&str, f64)> = percent.collect();
    // As the paper has them, from the fewest to the most: cookie, Beamer, consistent hash, hash.
    if let Some(others) = percent.get_mut(1..) {
        others.reverse();
    }
    let what = "cookie, Beamer, consistent hash, hash: broken of all connections";
    all.push(
        Comparison::order(Measured, what, "more and more", percent, "%")
            .why("Too few connections, or too few that were open at a change."),
    );
    all
}
