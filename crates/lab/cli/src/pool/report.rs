//! What was measured: a table for people, JSON and CSV for programs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::time::Duration;

use plimsoll_api::wire::Event;
use plimsoll_terminal::table::{Cell, Table, left, right};
use plimsoll_terminal::{Screen, Tone, maybe, number};
use plimsoll_testbed::format_duration;
use plimsoll_testbed::load::Slice;
use serde::Serialize;

use super::Args;
use super::overhead::Overhead;
use super::rounds::{Ran, RanLane, Stretch};
use plimsoll_lanes::{Backend, Finished, Harm, LaneKind, Measured, Pool, harm};

/// `-o json`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pool: PoolReport,
    /// In the order of the arguments.
    lanes: Vec<LaneReport>,
    limit: Simulated,
    /// The best static split on an ideal machine.
    split: Simulated,
    machine: Machine,
    #[serde(skip)]
    details: Vec<Details>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct PoolReport {
    /// Nobody should take these for real ones.
    backends: &'static str,
    servers: Vec<Server>,
    service: String,
    distribution: String,
    load: f64,
    rate_rps: f64,
    capacity_rps: f64,
    rounds: u32,
    concurrent: u32,
    seed: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Server {
    name: String,
    cores: u32,
    speed: f64,
    /// Its weight in the best static split.
    best_weight: u32,
}

/// A number that a simulation gave, without machine and network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Simulated {
    mean_ms: f64,
    simulated: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct LaneReport {
    lane: &'static str,
    #[serde(flatten)]
    measured: Measured,
    /// Its mean by that of the best static split, measured in the same rounds, and the standard error.
    to_split: Option<f64>,
    to_split_error: Option<f64>,
    /// Its mean by the simulated limit.
    to_limit: Option<f64>,
    rounds: Vec<Measured>,
    learning: Option<LaneLearning>,
    weights: BTreeMap<String, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct LaneLearning {
    /// Until it was steady; `null` where it was not in time.
    seconds: Option<f64>,
    /// The time that slow and lost requests are of.
    over_seconds: f64,
    #[serde(flatten)]
    harm: Harm,
    /// Slow and lost together.
    harm_total: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Machine {
    /// What it adds to every response time.
    overhead: Overhead,
    /// Part of all cores that was busy in the busiest turn, 0…1.
    busiest: Option<f64>,
    /// How late backends sent replies, 99th percentile, microseconds; the worst lane.
    backends_late_p99_us: u64,
    /// How late clients sent requests, 99th percentile, microseconds; the worst lane.
    clients_late_p99_us: u64,
}

/// What goes to files only.
#[derive(Clone, Debug, PartialEq)]
struct Details {
    lane: LaneKind,
    series: Vec<Slice>,
    events: Vec<Event>,
}

impl Report {
    /// Of these lanes.
    pub fn new(args: &Args, pool: &Pool, ran: &Ran, overhead: Overhead) -> Self {
        let best = pool.best_split().unwrap_or_default();
        let limit_ms = pool.limit_ms();
        let split = ran.lanes.iter().find(|lane| lane.finished.kind == LaneKind::StaticOracle);
        let split = split.map(|lane| over(&lane.finished, &lane.measured));
        let lanes = ran.lanes.iter().map(|lane| lane_report(lane, pool, split.as_ref(), limit_ms));
        let worst = |late: fn(&Finished) -> u64| {
            ran.lanes.iter().map(|lane| late(&lane.finished)).max().unwrap_or_default()
        };
        Report {
            pool: pool_report(args, pool, &best),
            lanes: lanes.collect(),
            limit: Simulated { mean_ms: limit_ms, simulated: true },
            split: Simulated { mean_ms: pool.split_ms(&best), simulated: true },
            machine: Machine {
                overhead,
                busiest: ran.busy.iter().copied().reduce(f64::max),
                backends_late_p99_us: worst(|lane| lane.lateness.p99_us),
                clients_late_p99_us: worst(|lane| lane.report.start_lateness_p99_us),
            },
            details: ran.lanes.iter().map(details).collect(),
        }
    }

    /// `-o table`
    pub fn text(&self, screen: &Screen) -> String {
        let mut text = self.latencies().render(screen);
        if self.lanes.iter().any(|lane| lane.learning.is_some()) {
            text.push('\n');
            text.push_str(&self.learning().render(screen));
        }
        text.push('\n');
        for line in self.sentences() {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    /// One line per lane and round; round 0 is all of them together.
    pub fn lanes_csv(&self) -> String {
        let mut text =
            "lane,round,requests,errors,mean_ms,error_ms,p50_ms,p99_ms,to_split,to_limit\n"
                .to_owned();
        let cell = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.4}"));
        for lane in &self.lanes {
            let all = std::iter::once(&lane.measured).chain(&lane.rounds);
            for (round, m) in all.enumerate() {
                let whole = round == 0;
                let ratio = |value: Option<f64>| cell(value.filter(|_| whole));
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "{},{round},{},{},{},{},{},{},{},{}",
                    lane.lane,
                    m.requests,
                    m.errors,
                    cell(m.mean_ms),
                    cell(m.error_ms),
                    cell(m.p50_ms),
                    cell(m.p99_ms),
                    ratio(lane.to_split),
                    ratio(lane.to_limit)
                );
            }
        }
        text
    }

    /// One line per lane and second in which requests started, learning and warm-up included.
    pub fn series_csv(&self) -> String {
        let mut text = "lane,second,requests,errors,mean_ms,max_ms\n".to_owned();
        let cell = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.3}"));
        for Details { lane, series, .. } in &self.details {
            for s in series.iter().filter(|s| s.requests > 0) {
                let (mean, max) = (cell(s.mean_ms), cell(s.max_ms));
                let _ = writeln!(
                    text,
                    "{},{},{},{},{mean},{max}",
                    lane.name(),
                    s.second,
                    s.requests,
                    s.errors
                );
            }
        }
        text
    }

    /// The decisions of every Plimsoll, by lane.
    pub fn events(&self) -> impl Iterator<Item = (&'static str, &[Event])> {
        let steered = self.details.iter().filter(|details| details.lane.is_steered());
        steered.map(|details| (details.lane.name(), details.events.as_slice()))
    }

    fn latencies(&self) -> Table {
        let mut table = Table::new([
            left("EMULATED BACKENDS, REAL HAPROXY"),
            right("MEAN ms"),
            right("± ms"),
            right("P50"),
            right("P99"),
            right("REQUESTS"),
            right("ERRORS"),
            right("× SPLIT"),
            right("±"),
            right("× LIMIT"),
        ]);
        let short = |value: Option<f64>| -> Cell {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}")).into()
        };
        for lane in &self.lanes {
            let m = &lane.measured;
            table.row([
                lane.lane.into(),
                maybe(m.mean_ms).into(),
                maybe(m.error_ms).into(),
                maybe(m.p50_ms).into(),
                maybe(m.p99_ms).into(),
                m.requests.to_string().into(),
                m.errors.to_string().into(),
                short(lane.to_split),
                short(lane.to_split_error),
                short(lane.to_limit),
            ]);
        }
        for (name, simulated) in [
            ("best static split, simulated", self.split),
            ("limit: central queue, simulated", self.limit),
        ] {
            let mut row = vec![Cell::toned(name, Tone::Quiet), number(simulated.mean_ms).into()];
            row.resize_with(9, Cell::default);
            row.push(short(Some(simulated.mean_ms / self.limit.mean_ms)));
            table.row(row);
        }
        table
    }

    fn learning(&self) -> Table {
        let mut table = Table::new([
            left("LEARNING FROM NOTHING"),
            right("STEADY AFTER s"),
            right("OVER s"),
            right("REQUESTS"),
            right("SLOW"),
            right("LOST"),
            right("HARM"),
        ]);
        for lane in &self.lanes {
            let Some(learning) = lane.learning else { continue };
            table.row([
                lane.lane.into(),
                learning.seconds.map_or_else(|| "not yet".to_owned(), |s| format!("{s:.1}")).into(),
                format!("{:.0}", learning.over_seconds).into(),
                learning.harm.requests.to_string().into(),
                format!("{:.0}", learning.harm.slow_requests).into(),
                learning.harm.lost_requests.to_string().into(),
                format!("{:.0}", learning.harm_total).into(),
            ]);
        }
        table
    }

    fn sentences(&self) -> Vec<String> {
        let percent = |part: Option<f64>| match part {
            Some(part) => format!("{:.0} %", part * 100.0),
            None => "an unknown part".to_owned(),
        };
        let Overhead { mean_ms, p99_ms, .. } = self.machine.overhead;
        let lateness = &self.machine;
        vec![
            format!(
                "{} emulated backends, {:.0} of {:.0} requests/s ({:.0} %), service {} {}.",
                self.pool.servers.len(),
                self.pool.rate_rps,
                self.pool.capacity_rps,
                self.pool.load * 100.0,
                self.pool.service,
                self.pool.distribution
            ),
            format!(
                "The machine's own part of every response time, without any queue: {mean_ms:.2} ms in \
                 the mean, {p99_ms:.2} ms in the 99th percentile."
            ),
            format!(
                "While measuring, {} of it was busy at most; backends replied up to {} µs late and \
                 clients asked up to {} µs late (99th percentiles).",
                percent(lateness.busiest),
                lateness.backends_late_p99_us,
                lateness.clients_late_p99_us
            ),
        ]
    }
}

fn pool_report(args: &Args, pool: &Pool, best: &[u32]) -> PoolReport {
    let server = |(b, &best_weight): (&Backend, &u32)| Server {
        name: b.name.clone(),
        cores: b.cores,
        speed: b.speed,
        best_weight,
    };
    PoolReport {
        backends: "emulated",
        servers: pool.backends.iter().zip(best).map(server).collect(),
        service: format_duration(pool.service),
        distribution: format!("{:?}", pool.distribution).to_lowercase(),
        load: args.load,
        rate_rps: pool.rate_rps,
        capacity_rps: pool.capacity_rps(),
        rounds: args.rounds,
        concurrent: args.concurrent,
        seed: args.seed,
    }
}

/// Stretches of time on a lane's own clock.
fn stretches(lane: &Finished, stretches: &[Stretch]) -> Vec<Range<Duration>> {
    let since = |at: std::time::Instant| at.saturating_duration_since(lane.started);
    stretches.iter().map(|(from, to)| since(*from)..since(*to)).collect()
}

fn over(lane: &Finished, measured: &[Stretch]) -> Measured {
    Measured::over(&lane.report.records, &stretches(lane, measured))
}

fn lane_report(lane: &RanLane, pool: &Pool, split: Option<&Measured>, limit_ms: f64) -> LaneReport {
    let RanLane { finished, measured: turns, weights, .. } = lane;
    let measured = over(finished, turns);
    let to_split = split.and_then(|s| s.mean_ms).zip(measured.mean_ms).map(|(s, m)| m / s);
    let part = |m: &Measured| m.error_ms.zip(m.mean_ms).map(|(error, mean)| error / mean);
    // As if the two were independent; they share their arrivals, so it is less.
    let relative = split.and_then(part).zip(part(&measured)).map(|(a, b)| a.hypot(b));
    let is_split = finished.kind == LaneKind::StaticOracle;
    LaneReport {
        lane: finished.kind.name(),
        to_split,
        to_split_error: to_split.zip(relative).map(|(r, e)| r * e).filter(|_| !is_split),
        to_limit: measured.mean_ms.map(|mean| mean / limit_ms),
        rounds: turns.iter().map(|turn| over(finished, std::slice::from_ref(turn))).collect(),
        learning: lane_learning(lane, measured.p99_ms),
        weights: pool
            .backends
            .iter()
            .map(|b| b.name.clone())
            .zip(weights.iter().copied())
            .collect(),
        measured,
    }
}

fn lane_learning(lane: &RanLane, steady_p99_ms: Option<f64>) -> Option<LaneLearning> {
    let (stretch, learning) = lane.learning.as_ref()?;
    let during = stretches(&lane.finished, std::slice::from_ref(stretch)).pop()?;
    let harm = harm(&lane.finished.report.records, &during, steady_p99_ms?);
    Some(LaneLearning {
        seconds: learning.learned().map(|at| at.as_secs_f64()),
        over_seconds: (during.end - during.start).as_secs_f64(),
        harm,
        harm_total: harm.total(),
    })
}

fn details(lane: &RanLane) -> Details {
    Details {
        lane: lane.finished.kind,
        series: lane.finished.report.series.clone(),
        events: lane.events.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use clap::Parser;
    use plimsoll_control::Phase;
    use plimsoll_testbed::Lateness;
    use plimsoll_testbed::load::{LoadReport, Record};

    use super::*;
    use plimsoll_lanes::{Distribution, Learning};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// 30 s of 100 requests a second, all alike but for 10 % slow ones in the first 10 s.
    fn lane(kind: LaneKind, start: Instant, latency_ms: u32) -> RanLane {
        let record = |i: u64| Record {
            start_ns: i * 10_000_000,
            latency_us: 1000 * if i < 1000 && i.is_multiple_of(10) { 500 } else { latency_ms },
            ok: true,
        };
        let records: Vec<Record> = (0..3000).map(record).collect();
        let at = |s| start + Duration::from_secs(s);
        let slice = Slice { second: 3, requests: 100, mean_ms: Some(9.5), ..Slice::default() };
        let report = LoadReport { records, series: vec![slice], ..LoadReport::default() };
        let learning = kind.is_steered().then(|| {
            let mut learning = Learning::default();
            learning.saw(Duration::from_secs(2), Phase::Steady);
            learning.saw(Duration::from_secs(12), Phase::Steady);
            ((start, at(10)), learning)
        });
        RanLane {
            finished: Finished { kind, started: start, report, lateness: Lateness::default() },
            learning,
            measured: vec![(at(10), at(16)), (at(20), at(26))],
            weights: vec![1; 6],
            events: Vec::new(),
        }
    }

    fn report() -> Report {
        let args = Line::try_parse_from(["pool", "--pool", "small"]).unwrap().args;
        let models = plimsoll_sim::small_pool();
        let pool =
            Pool::new(&models, args.service, Distribution::Exponential, args.load, args.seed);
        let start = Instant::now();
        let lanes = vec![
            lane(LaneKind::StaticOracle, start, 50),
            lane(LaneKind::PlimsollRoundrobin, start, 52),
        ];
        Report::new(&args, &pool, &Ran { lanes, busy: vec![0.2, 0.3] }, Overhead::default())
    }

    #[test]
    fn lanes_compare_with_the_split_measured_beside_them() {
        let json = serde_json::to_value(report()).unwrap();
        let lane = &json["lanes"][1];
        assert_eq!(
            (&lane["lane"], &lane["mean_ms"]),
            (&"plimsoll-roundrobin".into(), &52.0.into())
        );
        assert_eq!((&lane["to_split"], &lane["requests"]), (&1.04.into(), &1200.into()));
        assert_eq!(lane["rounds"].as_array().unwrap().len(), 2);
        // 100 slow ones in 1,000, of which 10 were to be expected.
        let learning = &lane["learning"];
        assert_eq!((&learning["seconds"], &learning["harm_total"]), (&2.0.into(), &90.0.into()));
        assert!(json["lanes"][0]["learning"].is_null());
        assert_eq!(json["machine"]["busiest"], 0.3);
        assert_eq!(json["pool"]["backends"], "emulated");
    }

    #[test]
    fn text_and_files_say_the_same() {
        let report = report();
        let text = report.text(&Screen::PLAIN);
        assert!(text.contains("plimsoll-roundrobin"), "{text}");
        assert!(text.contains("LEARNING FROM NOTHING"), "{text}");
        let csv = report.lanes_csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 1 + 2 * 3);
        assert!(lines[4].starts_with("plimsoll-roundrobin,0,1200,0,52.0000,"), "{csv}");
        assert!(lines[5].ends_with(",52.0000,52.0000,,"), "{csv}");
        assert!(report.series_csv().contains("\nplimsoll-roundrobin,3,100,0,9.500,\n"));
        assert_eq!(
            report.events().map(|(name, _)| name).collect::<Vec<_>>(),
            ["plimsoll-roundrobin"]
        );
    }
}
