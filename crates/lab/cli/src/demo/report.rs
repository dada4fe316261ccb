//! The result: a table for people, JSON for programs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use plimsoll_terminal::table::{Cell, Table, left, right, wrap};
use plimsoll_terminal::{Screen, Tone, maybe, number};
use serde::Serialize;

use super::live::title;
use super::{LANES, Ran};
use plimsoll_lanes::{Backend, Finished, Harm, LaneKind, Lb, Measured, Pool, harm};

/// Beyond this part, for five seconds, the machine itself makes clients wait.
const BUSY: f64 = 0.9;

/// `-o json`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    #[serde(skip)]
    lb: Lb,
    roundrobin: Measured,
    leastconn: Measured,
    plimsoll_roundrobin: Measured,
    plimsoll_leastconn: Measured,
    static_oracle: Measured,
    limit: Limit,
    weights: BTreeMap<String, BTreeMap<String, u32>>,
    learning: LearningReport,
    pool: PoolReport,
    machine: Machine,
}

/// The central queue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Limit {
    mean_ms: f64,
    /// It is the only number that nobody measured.
    simulated: bool,
}

/// What learning took: both Plimsoll lanes together, and each.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct LearningReport {
    /// Until the later of the two was steady; the whole time for learning where it was not.
    seconds: f64,
    /// Whether both were steady in time.
    steady: bool,
    /// The time for learning in all, seconds: slow and lost requests are of this time.
    over_seconds: f64,
    slow_requests: u64,
    lost_requests: u64,
    requests: u64,
    lanes: BTreeMap<String, LaneLearning>,
}

/// What learning took in one lane.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct LaneLearning {
    /// Until it was steady; `null` where it was not in time.
    seconds: Option<f64>,
    #[serde(flatten)]
    harm: Harm,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct PoolReport {
    /// Nobody should take these for real ones.
    backends: &'static str,
    servers: Vec<Server>,
    rate_rps: f64,
    capacity_rps: f64,
    measured_seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Server {
    name: String,
    cores: u32,
    speed: f64,
}

/// How much of the waiting is the machine's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Machine {
    /// Part of all cores that was busy while measuring, 0…1.
    busy: Option<f64>,
    /// The same of the busiest five seconds.
    busiest: Option<f64>,
    /// How late requests were sent, 99th percentile, microseconds; the worst lane.
    clients_late_p99_us: u64,
    /// How late replies were sent, 99th percentile, microseconds; the worst lane.
    backends_late_p99_us: u64,
}

impl Report {
    /// Of these lanes.
    pub fn new(pool: &Pool, lb: Lb, finished: Vec<Finished>, ran: &Ran, limit_ms: f64) -> Self {
        let measured = |kind: LaneKind| {
            let lane = finished.iter().find(|lane| lane.kind == kind);
            lane.map_or_else(Measured::default, |lane| {
                Measured::over(&lane.report.records, &[stretch(lane.started, ran.measured)])
            })
        };
        Report {
            lb,
            roundrobin: measured(LaneKind::Roundrobin),
            leastconn: measured(LaneKind::Leastconn),
            plimsoll_roundrobin: measured(LaneKind::PlimsollRoundrobin),
            plimsoll_leastconn: measured(LaneKind::PlimsollLeastconn),
            static_oracle: measured(LaneKind::StaticOracle),
            limit: Limit { mean_ms: limit_ms, simulated: true },
            weights: weights(pool, ran),
            learning: learning(&finished, ran, measured),
            pool: pool_report(pool, ran),
            machine: machine(&finished, ran),
        }
    }

    /// `-o table`
    pub fn text(&self, screen: &Screen) -> String {
        let mut text = self.latencies().render(screen);
        text.push('\n');
        text.push_str(&self.weight_table().render(screen));
        text.push('\n');
        for line in self.sentences().iter().flat_map(|sentence| wrap(sentence, screen.width)) {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    fn lane(&self, kind: LaneKind) -> &Measured {
        match kind {
            LaneKind::Leastconn => &self.leastconn,
            LaneKind::StaticOracle => &self.static_oracle,
            LaneKind::PlimsollRoundrobin => &self.plimsoll_roundrobin,
            LaneKind::PlimsollLeastconn => &self.plimsoll_leastconn,
            _ => &self.roundrobin,
        }
    }

    fn latencies(&self) -> Table {
        let mut table = Table::new([
            left("EMULATED BACKENDS"),
            right("MEAN ms"),
            right("± ms"),
            right("P50"),
            right("P99"),
            right("ERRORS"),
            right("× SPLIT"),
            right("× LIMIT"),
        ]);
        let ratio = |mean: Option<f64>, base: Option<f64>| -> Cell {
            let ratio = mean.zip(base).map(|(mean, base)| mean / base);
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")).into()
        };
        let (split, limit) = (self.static_oracle.mean_ms, Some(self.limit.mean_ms));
        for kind in LANES {
            let lane = self.lane(kind);
            let tone = if kind.is_steered() { Tone::Good } else { Tone::Plain };
            table.row([
                Cell::toned(title(kind, self.lb), tone),
                maybe(lane.mean_ms).into(),
                maybe(lane.error_ms).into(),
                maybe(lane.p50_ms).into(),
                maybe(lane.p99_ms).into(),
                lane.errors.to_string().into(),
                ratio(lane.mean_ms, split),
                ratio(lane.mean_ms, limit),
            ]);
        }
        let nothing = || Cell::from("");
        table.row([
            Cell::toned("central queue, simulated", Tone::Quiet),
            number(self.limit.mean_ms).into(),
            nothing(),
            nothing(),
            nothing(),
            nothing(),
            ratio(limit, split),
            ratio(limit, limit),
        ]);
        table
    }

    fn weight_table(&self) -> Table {
        let kinds = LANES.map(|kind| (kind.key(), title(kind, self.lb)));
        let shown: Vec<_> =
            kinds.iter().filter(|(key, _)| self.weights.contains_key(key)).collect();
        let mut columns = vec![left("WEIGHTS"), right("CORES"), right("SPEED")];
        columns.extend(shown.iter().map(|(_, title)| right(title)));
        let mut table = Table::new(columns);
        for server in &self.pool.servers {
            let cell = |key: &String| {
                let weight = self.weights.get(key).and_then(|of| of.get(&server.name));
                weight.map_or_else(|| "-".to_owned(), u32::to_string).into()
            };
            let mut row: Vec<Cell> = vec![
                server.name.as_str().into(),
                server.cores.to_string().into(),
                server.speed.to_string().into(),
            ];
            row.extend(shown.iter().map(|(key, _)| cell(key)));
            table.row(row);
        }
        table
    }

    fn sentences(&self) -> Vec<String> {
        let LearningReport {
            seconds,
            steady,
            over_seconds,
            slow_requests,
            lost_requests,
            requests,
            ..
        } = &self.learning;
        let took = match steady {
            true => format!("Learning from nothing, while serving, took {seconds:.0} s."),
            false => format!(
                "Learning was not over after {over_seconds:.0} s; what was measured is what was \
                 known by then."
            ),
        };
        let mut lines = vec![format!(
            "{took} In its {over_seconds:.0} s, {slow_requests} of the {requests} requests under \
             Plimsoll were slower than is usual afterwards, and {lost_requests} were lost."
        )];
        lines.push(format!(
            "Measured over the same {:.0} s in all lanes, {:.0} requests/s each ({:.0} % of capacity).",
            self.pool.measured_seconds,
            self.pool.rate_rps,
            100.0 * self.pool.rate_rps / self.pool.capacity_rps
        ));
        if self.roundrobin.errors > 0 {
            lines.push(format!(
                "Equal weights give the slowest backends more than they can serve: under {} \
                 their queues grow until clients give up after 10 s, which are its errors.",
                match self.lb {
                    Lb::Haproxy => "HAProxy's roundrobin",
                    Lb::Proxy => "round_robin",
                }
            ));
        }
        if let Some(busiest) = self.machine.busiest.filter(|busiest| *busiest > BUSY) {
            lines.push(format!(
                "This machine was {:.0} % busy for a while: part of what was measured, in all lanes \
                 alike, is its own doing. Run it again when nothing else runs.",
                busiest * 100.0
            ));
        }
        lines
    }
}

/// A stretch of time on a lane's own clock.
fn stretch(started: Instant, (from, to): (Instant, Instant)) -> Range<Duration> {
    from.saturating_duration_since(started)..to.saturating_duration_since(started)
}

/// The weights that differ from equal ones from the start on, by lane and server.
fn weights(pool: &Pool, ran: &Ran) -> BTreeMap<String, BTreeMap<String, u32>> {
    let named = |weights: &Vec<u32>| {
        pool.backends.iter().map(|b| b.name.clone()).zip(weights.iter().copied()).collect()
    };
    let chosen = |kind: LaneKind| kind.is_steered() || kind == LaneKind::StaticOracle;
    let shown = ran.weights.iter().filter(|(kind, _)| chosen(*kind));
    shown.map(|(kind, weights)| (kind.key(), named(weights))).collect()
}

fn learning(
    finished: &[Finished],
    ran: &Ran,
    measured: impl Fn(LaneKind) -> Measured,
) -> LearningReport {
    let over = ran.measured.0.saturating_duration_since(ran.opened);
    let mut lanes = BTreeMap::new();
    for lane in finished.iter().filter(|lane| lane.kind.is_steered()) {
        let during = stretch(lane.started, (ran.opened, ran.measured.0));
        let usual = measured(lane.kind).p99_ms.unwrap_or(f64::INFINITY);
        let learned = ran.learned.iter().find(|(kind, _)| *kind == lane.kind);
        let seconds = learned.and_then(|(_, at)| *at).map(|at| at.as_secs_f64());
        let harm = harm(&lane.report.records, &during, usual);
        lanes.insert(lane.kind.key(), LaneLearning { seconds, harm });
    }
    let times = lanes.values().map(|lane| lane.seconds.unwrap_or(over.as_secs_f64()));
    LearningReport {
        seconds: times.fold(0.0, f64::max),
        steady: lanes.values().all(|lane| lane.seconds.is_some()),
        over_seconds: over.as_secs_f64(),
        slow_requests: lanes.values().map(|l| l.harm.slow_requests).sum::<f64>().round() as u64,
        lost_requests: lanes.values().map(|lane| lane.harm.lost_requests).sum(),
        requests: lanes.values().map(|lane| lane.harm.requests).sum(),
        lanes,
    }
}

fn pool_report(pool: &Pool, ran: &Ran) -> PoolReport {
    let server = |b: &Backend| Server { name: b.name.clone(), cores: b.cores, speed: b.speed };
    PoolReport {
        backends: "emulated",
        servers: pool.backends.iter().map(server).collect(),
        rate_rps: pool.rate_rps,
        capacity_rps: pool.capacity_rps(),
        measured_seconds: (ran.measured.1 - ran.measured.0).as_secs_f64(),
    }
}

fn machine(finished: &[Finished], ran: &Ran) -> Machine {
    let worst = |late: fn(&Finished) -> u64| finished.iter().map(late).max().unwrap_or_default();
    Machine {
        busy: ran.busy.mean,
        busiest: ran.busy.most,
        clients_late_p99_us: worst(|lane| lane.report.start_lateness_p99_us),
        backends_late_p99_us: worst(|lane| lane.lateness.p99_us),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::small_pool;
    use plimsoll_testbed::Lateness;
    use plimsoll_testbed::load::{LoadReport, Record};
    use serde_json::Value;

    use super::*;
    use crate::demo::Busy;
    use plimsoll_lanes::Distribution;

    /// 20 s of 100 requests a second, each as slow as its lane; the first 10 s are for learning, and
    /// every 50th request of them takes a second.
    fn lane(kind: LaneKind, started: Instant, latency_ms: u32) -> Finished {
        let record = |i: u64| {
            let slow = i < 1000 && i.is_multiple_of(50);
            let latency_us = if slow { 1_000_000 } else { latency_ms * 1000 };
            Record { start_ns: i * 10_000_000, latency_us, ok: i != 7 }
        };
        let records = (0..2000).map(record).collect();
        let report = LoadReport { records, start_lateness_p99_us: 40, ..LoadReport::default() };
        Finished { kind, started, report, lateness: Lateness::default() }
    }

    fn report() -> Report {
        let started = Instant::now();
        let at = |s| started + Duration::from_secs(s);
        let service = Duration::from_millis(30);
        let pool = Pool::new(&small_pool(), service, Distribution::Exponential, 0.7, 1);
        let finished = LANES.iter().zip([90, 60, 50, 52, 40]);
        let finished = finished.map(|(&kind, ms)| lane(kind, started, ms)).collect();
        let ran = Ran {
            measured: (at(10), at(20)),
            opened: started,
            learned: vec![
                (LaneKind::PlimsollRoundrobin, Some(Duration::from_secs(4))),
                (LaneKind::PlimsollLeastconn, None),
            ],
            weights: LANES.iter().map(|&kind| (kind, vec![1, 2, 3, 4, 5, 6])).collect(),
            busy: Busy { mean: Some(0.5), most: Some(0.95) },
        };
        Report::new(&pool, Lb::Haproxy, finished, &ran, 35.0)
    }

    #[test]
    fn json_has_the_promised_keys() {
        let json: Value = serde_json::to_value(report()).unwrap();
        for (lane, mean) in [
            ("roundrobin", 90.0),
            ("leastconn", 60.0),
            ("static_oracle", 50.0),
            ("plimsoll_roundrobin", 52.0),
            ("plimsoll_leastconn", 40.0),
        ] {
            assert_eq!(json[lane]["mean_ms"], mean);
            assert_eq!(
                (&json[lane]["p50_ms"], &json[lane]["p99_ms"]),
                (&mean.into(), &mean.into())
            );
            assert_eq!(json[lane]["errors"], 0);
        }
        assert_eq!(json["limit"]["mean_ms"], 35.0);
        assert_eq!(json["weights"]["plimsoll_leastconn"]["s6"], 6);
        assert!(json["weights"].get("roundrobin").is_none());
        let learning = &json["learning"];
        // One lane was not steady in time, so the whole time counts. In each, 20 slow ones less 1 %
        // of the 999 that were answered, and one lost.
        assert_eq!((&learning["seconds"], &learning["steady"]), (&10.0.into(), &false.into()));
        assert_eq!(
            (&learning["slow_requests"], &learning["lost_requests"]),
            (&20.into(), &2.into())
        );
        assert_eq!(learning["lanes"]["plimsoll_roundrobin"]["seconds"], 4.0);
        assert_eq!(json["pool"]["backends"], "emulated");
    }

    #[test]
    fn the_table_compares_with_split_and_limit_and_says_what_is_odd() {
        let text = report().text(&Screen::PLAIN);
        let line = |start: &str| {
            let found = text.lines().find(|line| line.starts_with(start));
            found.unwrap_or_else(|| panic!("no {start} in\n{text}")).to_owned()
        };
        assert!(line("EMULATED BACKENDS").ends_with("× SPLIT  × LIMIT"));
        assert!(line("Plimsoll, leastconn").ends_with("0.80     1.14"), "{text}");
        assert!(line("central queue").ends_with("0.70     1.00"), "{text}");
        assert!(line("s2").split_whitespace().eq(["s2", "1", "0.7", "2", "2", "2"]), "{text}");
        assert!(line("Learning was not over after 10 s").contains("20 of the 2000 requests"));
        assert!(line("This machine was 95 % busy").contains("its own doing"));
    }
}
