//! The live view: how each lane fares, and what changes.

use std::time::Duration;

use plimsoll_l4bench::Runs;
use plimsoll_terminal::view::{View, bar, clock};
use plimsoll_terminal::{Screen, Tone, complain, maybe};
use plimsoll_testbed::net::clients::{ClientReport, Second};

use super::Method;
use super::churn::{Change, Place, SERVERS, name};
use super::lane::{BROWSERS, DOWNLOADS};

/// How often a log gets a line.
const IN_LOG: Duration = Duration::from_secs(5);

/// The view on standard error.
pub struct Live {
    view: View,
    logged: Option<Duration>,
}

/// A lane at one moment.
pub type LaneFrame = (Method, (ClientReport, Runs));

fn head() -> String {
    format!(
        "plimsoll-lab demo-l4: {SERVERS} nginx servers, {DOWNLOADS} downloads and {BROWSERS} clients in each lane"
    )
}

impl Live {
    /// The view's first line.
    pub fn new() -> Self {
        let view = View::stderr();
        if view.screen().is_none() {
            complain!("{}", head());
        }
        Live { view, logged: None }
    }

    /// Says one thing below the view, or in the log.
    pub fn say(&mut self, what: &str) {
        self.view.say(what);
    }

    /// Takes the view away: the result follows.
    pub fn end(&mut self) {
        self.view.replace(&[]);
    }

    /// Shows this moment.
    pub fn draw(
        &mut self,
        passed: Duration,
        whole: Duration,
        last: Option<Change>,
        places: &[Place; SERVERS],
        lanes: &[LaneFrame],
    ) {
        let last = last.map_or_else(|| "connections begin".to_owned(), Change::text);
        let Some(screen) = self.view.screen() else {
            if self.logged.is_none_or(|logged| passed >= logged + IN_LOG) {
                self.logged = Some(passed);
                complain!("{} {last}; {}", clock(passed), log_line(lanes));
            }
            return;
        };
        let stage =
            format!("{} of {}  {}  {last}", clock(passed), clock(whole), bar(passed, whole));
        let mut lines = vec![screen.paint(Tone::Head, &head()), stage, String::new()];
        lines.extend(lane_lines(passed, lanes, &screen));
        lines.extend([String::new(), server_line(places, &screen)]);
        self.view.replace(&lines);
    }
}

/// The last second that is over.
fn latest(passed: Duration, report: &ClientReport) -> Second {
    let over = passed.as_secs().checked_sub(1).and_then(|second| usize::try_from(second).ok());
    over.and_then(|second| report.seconds.get(second)).copied().unwrap_or_default()
}

/// Colours only what a lane's method promises: Plimsoll's to break nothing.
fn tone(method: Method, broken: usize) -> Tone {
    match (method, broken) {
        (Method::Plimsoll, 0) => Tone::Good,
        (_, 0) => Tone::Plain,
        _ => Tone::Bad,
    }
}

fn lane_lines(passed: Duration, lanes: &[LaneFrame], screen: &Screen) -> Vec<String> {
    let title = format!(
        "{:<18}{:>8}{:>8}{:>8}{:>9}{:>9}{:>9}{:>11}",
        "CONNECTIONS", "BROKEN", "OPEN", "SO FAR", "REQ/s", "MB/s", "P99 ms", "NS/PACKET"
    );
    let mut lines = vec![screen.paint(Tone::Head, &title)];
    for (method, (report, runs)) in lanes {
        let (second, broken) = (latest(passed, report), report.broken.len());
        let p99 = (!report.latency_us.is_empty())
            .then(|| report.latency_us.value_at_quantile(0.99) as f64 / 1e3);
        lines.push(format!(
            "{:<18}{}{:>8}{:>8}{:>9}{:>9.1}{:>9}{:>11}",
            method.title(),
            screen.paint(tone(*method, broken), &format!("{broken:>8}")),
            report.open,
            report.opened,
            second.requests,
            second.bytes as f64 / 1e6,
            maybe(p99),
            runs.mean_ns().map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}")),
        ));
    }
    lines
}

fn server_line(places: &[Place; SERVERS], screen: &Screen) -> String {
    let each = |(server, place): (usize, &Place)| {
        let (text, tone) = match place {
            Place::Up => (name(server), Tone::Plain),
            Place::Draining => (format!("{} draining", name(server)), Tone::Warn),
            Place::Away => (format!("{} removed", name(server)), Tone::Quiet),
        };
        screen.paint(tone, &text)
    };
    let all: Vec<String> = places.iter().enumerate().map(each).collect();
    format!("servers: {}", all.join(", "))
}

fn log_line(lanes: &[LaneFrame]) -> String {
    let each = |(method, (report, _)): &LaneFrame| {
        format!("{} {} of {}", method.title(), report.broken.len(), report.opened)
    };
    let all: Vec<String> = lanes.iter().map(each).collect();
    format!("connections broken: {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<LaneFrame> {
        let second = Second { opened: 1, broken: 0, ended: 0, requests: 400, bytes: 9_600_000 };
        let mut report = ClientReport { opened: 70, open: 64, ..ClientReport::default() };
        report.seconds = vec![Second::default(), second];
        report.latency_us.record(1500).unwrap();
        vec![(Method::Plimsoll, (report, Runs { count: 10, time_ns: 1234 }))]
    }

    #[test]
    fn a_lane_shows_its_last_whole_second() {
        let lines = lane_lines(Duration::from_millis(2700), &frames(), &Screen::PLAIN);
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(words, ["Plimsoll", "0", "64", "70", "400", "9.6", "1.50", "123"]);
        let first = lane_lines(Duration::from_millis(700), &frames(), &Screen::PLAIN);
        assert!(first[1].contains(" 0.0 "), "{first:?}");
    }

    #[test]
    fn servers_say_how_they_stand() {
        let mut places = super::super::churn::at_first();
        Change::Drain(1).apply(&mut places);
        let line = server_line(&places, &Screen::PLAIN);
        assert!(line.starts_with("servers: s1, s2 draining, s3"), "{line}");
        assert!(line.ends_with("s7 removed, s8 removed"), "{line}");
        assert_eq!(log_line(&frames()), "connections broken: Plimsoll 0 of 70");
    }
}
