//! Table 1 (§5) and what operators ask beyond it: each knob against the same HAProxy without it, in pairs.
//!
//! A pair runs one after the other with the same arrivals, in an order that alternates. What is reported is the
//! median of the pairs' ratios, and how many of them are on its side: of ten, nine on one side have a chance of
//! 2 % where there is no effect (sign test).

use std::time::{Duration, Instant};

use plimsoll_lanes::{Family, raise_descriptor_limit};
use plimsoll_testbed::{BackendSpec, Change, Mode, Service, Testbed, TestbedSpec};

use super::config::{self, Lines, PLAIN, Used};
use super::figure::DEADLINE;
use super::lane::{Lane, Seen};
use super::method::named;
use super::pool::asks;
use crate::lanes::wait;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Bars, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, ServerPool};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "haproxy-knobs",
    paper: &super::PAPER,
    figure: "Table 1",
    title: "HAProxy's knobs, each against its default",
    claim: "Threads, cpu-map, maxconn, busy-polling, compression and spread-checks influence the performance \
            for most load balancing environments.",
    provenance: &[Provenance::Emulated],
    takes: Duration::from_secs(38 * 60),
    takes_quick: Duration::from_secs(15),
    run,
};

/// Work that leaves HAProxy's own part visible.
const WORK: Duration = Duration::from_millis(2);
/// Of which five servers of one core serve 2,500 a second.
const RATE_RPS: f64 = 400.0;
/// Where requests wait for servers: 80 % of what these can do.
const BUSY_RPS: f64 = 2_000.0;
/// About what a page has.
const PAGE: u32 = 32 << 10;
/// Of ten pairs, so many on one side are reported as an effect.
const SIDE: f64 = 0.9;
/// Fewer lie on one side by chance more than one time in twenty.
const LEAST_PAIRS: usize = 6;

/// A knob, and what it is held against.
struct Knob {
    to: Lines,
    from: Lines,
    /// Requests per second.
    rate_rps: f64,
    /// How long answers are; a few bytes where it does not matter.
    answer_bytes: Option<u32>,
    /// The first server refuses connections all the while.
    one_refuses: bool,
    /// What it is for.
    what: &'static str,
}

const fn knob(to: Lines, what: &'static str) -> Knob {
    Knob { to, from: PLAIN, rate_rps: RATE_RPS, answer_bytes: None, one_refuses: false, what }
}

const fn refusing(to: Lines) -> Knob {
    let what = "one of five servers refuses connections, without checks";
    Knob { from: NO_RETRY, one_refuses: true, ..knob(to, what) }
}

const CHECKS: Lines = Lines { name: "check inter 200ms", server: "check inter 200ms", ..PLAIN };
const CLOSING: Lines =
    Lines { name: "option httpclose", defaults: "    option httpclose", ..PLAIN };
const NO_RETRY: Lines = Lines { name: "retries 0", defaults: "    retries 0", ..PLAIN };

const KNOBS: &[Knob] = &[
    knob(Lines { name: "nbthread 2", threads: 2, ..PLAIN }, "two threads"),
    knob(
        Lines {
            name: "nbthread 2, cpu-map",
            threads: 2,
            global: "    cpu-map auto:1/1-2 0-1",
            ..PLAIN
        },
        "two threads, each on a core of its own",
    ),
    knob(
        Lines { name: "maxconn 4", global: "    maxconn 4", ..PLAIN },
        "HAProxy accepts no more: the others wait in the kernel, not refused, for as long as four keep their connections",
    ),
    Knob {
        from: CLOSING,
        rate_rps: BUSY_RPS,
        ..knob(
            Lines { name: "maxconn 32, httpclose", global: "    maxconn 32", ..CLOSING },
            "as many inside as the servers need to be busy, and each place free after a request: the others wait in the \
             kernel, first come, first served",
        )
    },
    knob(Lines { name: "busy-polling", global: "    busy-polling", ..PLAIN }, "never sleeps"),
    Knob {
        answer_bytes: Some(PAGE),
        ..knob(
            Lines { name: "compression", defaults: "    compression algo gzip", ..PLAIN },
            "all clients accept it; answers are 32 KiB of words, of which gzip leaves a third to a quarter",
        )
    },
    Knob {
        from: CHECKS,
        ..knob(
            Lines { name: "spread-checks 50", global: "    spread-checks 50", ..CHECKS },
            "health checks of five servers at other times",
        )
    },
    knob(
        Lines { name: "http-reuse always", defaults: "    http-reuse always", ..PLAIN },
        "connections to servers are shared from the first request on",
    ),
    knob(
        Lines { name: "http-reuse never", defaults: "    http-reuse never", ..PLAIN },
        "each client has connections to servers of its own",
    ),
    knob(CLOSING, "a connection per request on both sides"),
    Knob {
        rate_rps: BUSY_RPS,
        ..knob(
            Lines { name: "server maxconn 1", server: "maxconn 1", ..PLAIN },
            "requests wait in HAProxy's queue, which all servers share, instead of the server's",
        )
    },
    refusing(Lines {
        name: "retries 3, no redispatch",
        defaults: "    retries 3\n    no option redispatch",
        ..PLAIN
    }),
    refusing(Lines {
        name: "retries 3, redispatch 1",
        defaults: "    retries 3\n    option redispatch 1",
        ..PLAIN
    }),
];

/// What one run showed.
#[derive(Clone, Copy, Debug)]
struct Ran {
    mean_ms: f64,
    /// Of those that got an answer.
    answered_ms: f64,
    p99_ms: f64,
    errors: f64,
    /// Microseconds of HAProxy's CPU per request.
    cpu_us: f64,
    /// Bytes that HAProxy sends per request, to clients and to servers.
    sent: f64,
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    raise_descriptor_limit();
    let family = Family::start()?;
    let pairs = context.repetitions(10);
    let mut table = Table::empty("knobs", "Each knob over its default: medians of pairs");
    let (mut names, mut cpu, mut means) = (Vec::new(), Vec::new(), Vec::new());
    let mut comparisons = Vec::new();
    for (i, knob) in KNOBS.iter().enumerate() {
        let mut all = Vec::new();
        for pair in 0..pairs {
            let at = i as f64 + f64::from(pair) / f64::from(pairs);
            let done = at / KNOBS.len() as f64;
            let ran = |lines: Lines| one(context, &family, knob, lines, pair, done);
            all.push(if pair % 2 == 0 {
                let from = ran(knob.from)?;
                (from, ran(knob.to)?)
            } else {
                let to = ran(knob.to)?;
                (ran(knob.from)?, to)
            });
        }
        let mean = Effect::of(&all, |ran| ran.mean_ms);
        let p99 = Effect::of(&all, |ran| ran.p99_ms);
        let answered = Effect::of(&all, |ran| ran.answered_ms);
        let work = Effect::of(&all, |ran| ran.cpu_us);
        let sent = Effect::of(&all, |ran| ran.sent);
        let errors =
            |of: fn(&(Ran, Ran)) -> f64| all.iter().map(of).sum::<f64>() / f64::from(pairs);
        let failed = [errors(|pair| pair.1.errors), errors(|pair| pair.0.errors)];
        let unanswered = match failed {
            [0.0, 0.0] => String::new(),
            [with, without] => {
                let parts = (100.0 * with, 100.0 * without);
                format!(
                    "; not answered {:.1} %, without it {:.1} %; the others {}",
                    parts.0,
                    parts.1,
                    answered.said()
                )
            }
        };
        row!(table, Provenance::Emulated, {
            knob: knob.to.name;
            against: knob.from.name;
            rate_rps: knob.rate_rps, "requests/s";
            pairs: pairs;
            mean_ratio: mean.median, "×";
            mean_on_side: mean.side, "part of the pairs";
            answered_ratio: answered.median, "× of those that got an answer";
            answered_on_side: answered.side, "part of the pairs";
            p99_ratio: p99.median, "×";
            p99_on_side: p99.side, "part of the pairs";
            cpu_ratio: work.median, "× HAProxy's CPU per request";
            cpu_on_side: work.side, "part of the pairs";
            sent_ratio: sent.median, "× bytes that HAProxy sends per request";
            errors_with: failed[0], "part of the requests";
            errors_without: failed[1], "part of the requests";
            what: knob.what;
        })?;
        names.push(knob.to.name.to_owned());
        cpu.push(Some(work.median));
        means.push(Some(mean.median));
        let sent_said =
            knob.answer_bytes.map_or(String::new(), |_| format!("; bytes sent {}", sent.said()));
        let ours = format!("{}; CPU {}{sent_said}{unanswered}", mean.said(), work.said());
        let what = format!("{} against {}: mean response time", knob.to.name, knob.from.name);
        let silent = "it influences the performance";
        comparisons.push(Comparison::silent(Provenance::Emulated, what, silent, ours, "").why(
            "The study measures none of them but threads, so there is no number to compare with.",
        ));
    }
    let bars = vec![
        Bars::new("mean response time", Provenance::Emulated, means),
        Bars::new("HAProxy's CPU per request", Provenance::Emulated, cpu),
    ];
    let y = Axis::linear("× of the default");
    Ok(Outcome {
        tables: vec![table],
        plots: vec![Plot::bars("knobs", "Knobs over their default", "knob", y, names, bars)],
        comparisons,
        notes: vec![
            format!(
                "Requests of {} ms on five servers of one core, roundrobin. Pairs alternate; \
                 medians; an effect is told where at least {:.0} % of the pairs are on its side.",
                WORK.as_millis(),
                100.0 * SIDE
            ),
            "busy-polling burns what is idle, so its CPU says little; on two cores it takes them from clients \
             and servers. What more cores would show, this cannot."
                .to_owned(),
        ],
    })
}

/// The median of the pairs' ratios, the part of them on its side of 1, and how many there are.
struct Effect {
    median: f64,
    side: f64,
    pairs: usize,
}

impl Effect {
    fn of(pairs: &[(Ran, Ran)], value: fn(&Ran) -> f64) -> Self {
        let mut ratios: Vec<f64> = pairs
            .iter()
            .map(|(from, to)| value(to) / value(from))
            .filter(|r| r.is_finite())
            .collect();
        ratios.sort_by(f64::total_cmp);
        let Some(last) = ratios.len().checked_sub(1) else {
            return Effect { median: f64::NAN, side: 0.0, pairs: 0 };
        };
        let median = (ratios[last / 2] + ratios[last.div_ceil(2)]) / 2.0;
        let on = ratios.iter().filter(|&&r| (r > 1.0) == (median > 1.0)).count();
        Effect { median, side: on as f64 / ratios.len() as f64, pairs: ratios.len() }
    }

    fn said(&self) -> String {
        if self.side >= SIDE && self.pairs >= LEAST_PAIRS {
            format!("{:+.0} %", 100.0 * (self.median - 1.0))
        } else {
            format!("no effect seen ({:+.0} %)", 100.0 * (self.median - 1.0))
        }
    }
}

fn one(
    context: &Context,
    family: &Family,
    knob: &Knob,
    lines: Lines,
    pair: u32,
    done: f64,
) -> Result<Ran, Failure> {
    let (warm_up, measure) = context.pick((100, 350), (1_000, 6_000));
    let seed = context.seed + u64::from(pair);
    let bed = servers(seed, knob.answer_bytes)?;
    if knob.one_refuses {
        let change = Change { mode: Some(Mode::Refuse), ..Change::default() };
        bed.set("s1", change).map_err(|error| Failure::Other(error.to_string()))?;
    }
    let name = format!("knob-{}-{pair}", lines.name.replace([' ', ','], "-"));
    let haproxy = config::start(family, &name, lines, &bed.addresses().to_vec())?;
    let socket = haproxy.socket().to_owned();
    let mut lane = Lane::behind(named("roundrobin"), haproxy);
    let mut asks = asks(ServerPool::Emulated, &[]);
    // As browsers do; without `compression` HAProxy does not look at it.
    asks.headers.push(("Accept-Encoding".to_owned(), "gzip".to_owned()));
    lane.open(&asks, knob.rate_rps, seed)?;
    let mut look =
        |ms| wait(context, Duration::from_millis(ms), (done, done), lines.name, || lane.check());
    look(warm_up)?;
    let (from, before) = (Instant::now(), config::used(&socket));
    look(measure)?;
    let (to, after) = (Instant::now(), config::used(&socket));
    let seen = lane.finish(from, to, DEADLINE)?;
    let requests: f64 = seen.iter().map(|(_, seen)| seen.requests as f64).sum();
    let mean = |of: fn(&Seen) -> f64| {
        seen.iter().map(|(_, seen)| of(seen) * seen.requests as f64).sum::<f64>() / requests
    };
    let used = before.zip(after);
    let per_request = |of: fn(&Used) -> f64| {
        used.map_or(f64::NAN, |(before, after)| (of(&after) - of(&before)) / requests)
    };
    Ok(Ran {
        mean_ms: mean(|seen| seen.mean_ms),
        answered_ms: mean(|seen| seen.answered_ms),
        p99_ms: mean(|seen| seen.p99_ms),
        errors: mean(|seen| seen.errors as f64 / seen.requests.max(1) as f64),
        cpu_us: per_request(|used| used.cpu.as_secs_f64() * 1e6),
        sent: per_request(|used| used.sent as f64),
    })
}

fn servers(seed: u64, answer_bytes: Option<u32>) -> Result<Testbed, Failure> {
    let backend = |i| {
        let mut spec = BackendSpec::new(format!("s{i}"), Service::exponential(WORK));
        (spec.seed, spec.answer_bytes) = (seed, answer_bytes);
        spec
    };
    let spec = TestbedSpec { admin: None, backends: (1..=5).map(backend).collect() };
    Testbed::start(spec).map_err(|error| Failure::Other(format!("emulated servers: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_is_reported_only_where_the_pairs_agree() {
        let ran = |mean_ms| Ran {
            mean_ms,
            answered_ms: 1.0,
            p99_ms: 1.0,
            errors: 0.0,
            cpu_us: 1.0,
            sent: 1.0,
        };
        let pairs = |means: &[f64]| means.iter().map(|m| (ran(10.0), ran(*m))).collect::<Vec<_>>();
        let effect = Effect::of(&pairs(&[12.0; 10]), |ran| ran.mean_ms);
        assert_eq!(effect.said(), "+20 %");
        let few = Effect::of(&pairs(&[12.0; 5]), |ran| ran.mean_ms);
        assert_eq!(few.said(), "no effect seen (+20 %)");
        let effect = Effect::of(&pairs(&[12.0, 9.0, 11.0, 8.0, 13.0]), |ran| ran.mean_ms);
        assert_eq!((effect.median, effect.side), (1.1, 0.6));
        assert!(effect.said().starts_with("no effect seen"));
    }
}
