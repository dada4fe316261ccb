//! The result: a table for people, JSON for programs, a plot.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_papers::{Axis, Lines, Mark, Plot, PlotKind, Provenance, svg_document};
use plimsoll_terminal::table::{Cell, Table, left, right, wrap};
use plimsoll_terminal::{Screen, Tone, maybe};
use plimsoll_testbed::net::clients::Break;
use serde::Serialize;

use super::churn::Change;
use super::lane::Finished;
use super::{DemoError, Method};

/// Beyond this part the machine itself makes clients wait.
const BUSY: f64 = 0.9;

/// `-o json`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    plimsoll: LaneReport,
    consistent_hash: LaneReport,
    hash: LaneReport,
    /// What changed, in order.
    changes: Vec<ChangeReport>,
    seconds: f64,
    /// Part of all cores that was busy, 0…1.
    machine_busy: Option<f64>,
}

/// A lane.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct LaneReport {
    /// Connections that opened.
    connections: u64,
    broken: u64,
    /// Of all that were tried, 0…1.
    broken_share: f64,
    broken_by: BTreeMap<Break, u64>,
    /// Of the broken ones, long downloads.
    broken_downloads: u64,
    /// Downloads that came to their end.
    downloads: u64,
    download_mb_per_s: f64,
    /// Short requests that were answered.
    requests: u64,
    latency_p50_ms: Option<f64>,
    latency_p99_ms: Option<f64>,
    /// Mean of every packet, both ways, with what counting it costs.
    ns_per_packet: Option<f64>,
    packets: u64,
    /// Packets that left the fast path.
    fallbacks: u64,
    /// Connections by the server that they began with.
    by_server: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ChangeReport {
    at_s: f64,
    what: String,
}

impl Report {
    /// Of these lanes.
    pub fn new(
        finished: &[Finished],
        plan: &[(Duration, Change)],
        whole: Duration,
        machine_busy: Option<f64>,
    ) -> Self {
        let lane = |method| {
            let found = finished.iter().find(|lane| lane.method == method);
            found.map(|lane| lane_report(lane, whole)).unwrap_or_default()
        };
        let change = |(at, change): &(Duration, Change)| ChangeReport {
            at_s: at.as_secs_f64(),
            what: change.text(),
        };
        Report {
            plimsoll: lane(Method::Plimsoll),
            consistent_hash: lane(Method::Maglev),
            hash: lane(Method::Hash),
            changes: plan.iter().map(change).collect(),
            seconds: whole.as_secs_f64(),
            machine_busy,
        }
    }

    /// Connections that Plimsoll broke.
    pub fn plimsoll_broke(&self) -> u64 {
        self.plimsoll.broken
    }

    fn lane(&self, method: Method) -> &LaneReport {
        match method {
            Method::Plimsoll => &self.plimsoll,
            Method::Maglev => &self.consistent_hash,
            Method::Hash => &self.hash,
        }
    }

    /// `-o table`
    pub fn text(&self, screen: &Screen) -> String {
        let mut text = self.table().render(screen);
        text.push('\n');
        for line in self.sentences().iter().flat_map(|sentence| wrap(sentence, screen.width)) {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    fn table(&self) -> Table {
        let mut table = Table::new([
            left("CONNECTIONS"),
            right("BROKEN"),
            right("OF"),
            right("%"),
            right("DOWNLOADS BROKEN"),
            right("WHOLE"),
            right("MB/s"),
            right("P50 ms"),
            right("P99 ms"),
            right("NS/PACKET"),
        ]);
        for method in Method::ALL {
            let lane = self.lane(method);
            let tone = if lane.broken == 0 { Tone::Good } else { Tone::Bad };
            table.row([
                method.title().into(),
                Cell::toned(lane.broken.to_string(), tone),
                lane.connections.to_string().into(),
                format!("{:.1}", 100.0 * lane.broken_share).into(),
                lane.broken_downloads.to_string().into(),
                lane.downloads.to_string().into(),
                format!("{:.1}", lane.download_mb_per_s).into(),
                maybe(lane.latency_p50_ms).into(),
                maybe(lane.latency_p99_ms).into(),
                lane.ns_per_packet.map_or_else(|| "-".into(), |ns| format!("{ns:.0}")).into(),
            ]);
        }
        table
    }

    fn sentences(&self) -> Vec<String> {
        let changes: Vec<&str> = self.changes.iter().map(|change| change.what.as_str()).collect();
        let mut lines = vec![
            format!("In {:.0} s: {}.", self.seconds, changes.join(", ")),
            "All servers live on and serve what reaches them; a connection is broken when the balancer \
             sends its packets to another one. `hash` goes by the list of servers, as ECMP does, \
             `consistent hash` by a Maglev table; neither keeps anything per connection, nor does Plimsoll."
                .to_owned(),
        ];
        if let Some(busy) = self.machine_busy.filter(|busy| *busy > BUSY) {
            lines.push(format!(
                "This machine was {:.0} % busy: latency and throughput, in all lanes alike, are its own \
                 doing.",
                busy * 100.0
            ));
        }
        lines
    }
}

fn lane_report(lane: &Finished, whole: Duration) -> LaneReport {
    let clients = &lane.clients;
    let quantile = |q: f64| {
        let known = !clients.latency_us.is_empty();
        known.then(|| clients.latency_us.value_at_quantile(q) as f64 / 1e3)
    };
    LaneReport {
        connections: clients.opened,
        broken: clients.broken.len() as u64,
        broken_share: clients.broken_share(),
        broken_by: clients.by_break(),
        broken_downloads: clients.broken.iter().filter(|one| one.download).count() as u64,
        downloads: clients.downloads,
        download_mb_per_s: clients.download_bytes as f64 / 1e6 / whole.as_secs_f64(),
        requests: clients.requests,
        latency_p50_ms: quantile(0.5),
        latency_p99_ms: quantile(0.99),
        ns_per_packet: lane.runs.mean_ns(),
        packets: lane.runs.count,
        fallbacks: lane.fallbacks,
        by_server: clients.by_server.clone(),
    }
}

/// Broken connections over time, as an SVG file.
///
/// # Errors
/// When it cannot be drawn.
pub fn plot(finished: &[Finished], whole: Duration) -> Result<String, DemoError> {
    let line = |lane: &Finished| {
        let broken = lane.clients.broken.iter().zip(1..);
        let mut points = vec![(0.0, 0.0)];
        points.extend(broken.map(|(one, count)| (one.at.as_secs_f64(), f64::from(count))));
        points.push((whole.as_secs_f64(), lane.clients.broken.len() as f64));
        Lines::new(lane.method.title(), Provenance::Measured, points).drawn(Mark::Steps)
    };
    let plot = Plot {
        name: "demo-l4".to_owned(),
        title: "Connections broken while servers come and go".to_owned(),
        x: Axis::linear("time (s)"),
        y: Axis::linear("broken so far"),
        kind: PlotKind::Lines(finished.iter().map(line).collect()),
    };
    svg_document(&plot).map_err(|failure| DemoError::Plot(failure.to_string()))
}

#[cfg(test)]
mod tests {
    use plimsoll_l4bench::Runs;
    use plimsoll_testbed::net::clients::{BrokenConnection, ClientReport};

    use super::*;

    fn lane(method: Method, broken: usize) -> Finished {
        let one = |i: usize| BrokenConnection {
            at: Duration::from_secs(i as u64),
            age: Duration::from_secs(1),
            how: Break::Reset,
            download: i == 0,
            server: None,
        };
        let mut clients = ClientReport { opened: 200, ..ClientReport::default() };
        clients.broken = (0..broken).map(one).collect();
        clients.download_bytes = 400_000_000;
        clients.latency_us.record(2000).unwrap();
        Finished { method, clients, runs: Runs { count: 4, time_ns: 400 }, fallbacks: 0 }
    }

    fn all() -> Vec<Finished> {
        vec![lane(Method::Plimsoll, 0), lane(Method::Maglev, 10), lane(Method::Hash, 50)]
    }

    fn report() -> Report {
        let whole = Duration::from_secs(40);
        Report::new(&all(), &[(Duration::from_secs(4), Change::Remove(0))], whole, Some(0.95))
    }

    #[test]
    fn the_table_has_a_line_for_each_lane() {
        let text = report().text(&Screen::PLAIN);
        let words = |start: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.starts_with(start)).unwrap_or(&text);
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(
            words("Plimsoll"),
            ["Plimsoll", "0", "200", "0.0", "0", "0", "10.0", "2.00", "2.00", "100"]
        );
        assert_eq!(words("hash")[1..5], ["50", "200", "25.0", "1"]);
        assert!(text.contains("In 40 s: s1 is removed."), "{text}");
        assert!(text.contains("95 % busy"), "{text}");
    }

    #[test]
    fn json_has_the_promised_keys() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["plimsoll"]["broken"], 0);
        assert_eq!(json["consistent_hash"]["broken_by"]["reset"], 10);
        assert_eq!(json["hash"]["broken_share"], 0.25);
        assert_eq!(json["hash"]["ns_per_packet"], 100.0);
        assert_eq!(json["changes"][0]["at_s"], 4.0);
        assert_eq!(report().plimsoll_broke(), 0);
    }

    #[test]
    fn the_plot_has_a_line_for_each_lane() {
        let text = plot(&all(), Duration::from_secs(60)).unwrap();
        for method in Method::ALL {
            assert!(text.contains(&format!("{} (measured)", method.title())), "{text}");
        }
    }
}
