//! The live view: redrawn in place on a terminal, a line now and then in a log.

use std::time::Duration;

use plimsoll_control::Phase;
use plimsoll_terminal::view::{USUAL_WIDTH, View, bar, clock};
use plimsoll_terminal::{Screen, Tone, complain, maybe, printable};
use plimsoll_testbed::load::Slice;

use plimsoll_lanes::{Backend, LaneKind, Lb, Pool, mean_of};

/// How often a log gets a line.
const IN_LOG: Duration = Duration::from_secs(5);
/// Seconds that the latest mean is over.
const LATEST: u64 = 10;
/// Seconds of one step of a sparkline.
const STEP: u64 = 2;
/// The most steps of a sparkline.
const STEPS: usize = 60;
/// Columns to the left of the sparklines.
const LEFT_OF_HISTORY: usize = 61;
/// From low to high.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One lane at one moment.
pub struct LaneFrame {
    /// The balancer.
    pub kind: LaneKind,
    /// Clients that wait for their answer.
    pub in_flight: u64,
    /// Clients that did not get one.
    pub errors: u64,
    /// Every second since the first client.
    pub series: Vec<Slice>,
    /// What the balancer holds.
    pub weights: Vec<u32>,
    /// What Plimsoll does, and why.
    pub view: Option<(Phase, String)>,
    /// What keeps Plimsoll from steering.
    pub trouble: Option<String>,
    /// When it was steady.
    pub learned: Option<Duration>,
}

/// All lanes at one moment.
pub struct Frame {
    /// The balancer of all lanes.
    pub lb: Lb,
    /// Since the first client.
    pub passed: Duration,
    /// When measuring began.
    pub measuring: Option<Duration>,
    /// When it ends.
    pub whole: Duration,
    /// When it begins at the latest.
    pub learn_at_most: Duration,
    /// The lanes, in the order in which they are shown.
    pub lanes: Vec<LaneFrame>,
}

/// The view on standard error.
pub struct Live {
    view: View,
    head: String,
    servers: Vec<(String, String)>,
    logged: Option<Duration>,
}

impl Live {
    /// A view of lanes over this pool, and its first lines.
    pub fn new(pool: &Pool, lb: Lb) -> Self {
        let balancer = match lb {
            Lb::Haproxy => "real HAProxy",
            Lb::Proxy => "proxy of Plimsoll's own",
        };
        let head = format!(
            "plimsoll-lab demo: {} emulated backends and a {balancer} per lane, {:.0} req/s ({:.0} %)",
            pool.backends.len(),
            pool.rate_rps,
            100.0 * pool.rate_rps / pool.capacity_rps()
        );
        let server = |b: &Backend| (b.name.clone(), format!("{}×{}", b.cores, b.speed));
        let servers = pool.backends.iter().map(server).collect();
        let view = View::stderr();
        if view.screen().is_none() {
            complain!("{head}");
        }
        Live { view, head, servers, logged: None }
    }

    /// Shows this moment.
    pub fn draw(&mut self, frame: &Frame) {
        let Some(screen) = self.view.screen() else {
            let due = self.logged.is_none_or(|last| frame.passed >= last + IN_LOG);
            if due {
                self.logged = Some(frame.passed);
                complain!("{}", log_line(frame));
            }
            return;
        };
        let mut lines = vec![screen.paint(Tone::Head, &self.head), stage(frame), String::new()];
        lines.extend(lane_lines(frame, &screen));
        lines.push(String::new());
        lines.extend(weight_lines(frame, &self.servers, &screen));
        self.view.replace(&lines);
    }

    /// Says one thing below the view, or in the log.
    pub fn say(&mut self, what: &str) {
        self.view.say(what);
    }

    /// Takes the view away: the result follows.
    pub fn end(&mut self) {
        self.view.replace(&[]);
    }
}

fn stage(frame: &Frame) -> String {
    match frame.measuring {
        None => format!(
            "learning   {} of at most {}  {}",
            clock(frame.passed),
            clock(frame.learn_at_most),
            bar(frame.passed, frame.learn_at_most)
        ),
        Some(from) => {
            let (done, of) = (frame.passed.saturating_sub(from), frame.whole.saturating_sub(from));
            format!("measuring  {} of {}  {}", clock(done), clock(of), bar(done, of))
        }
    }
}

/// How a lane is called where people read.
pub fn title(kind: LaneKind, lb: Lb) -> &'static str {
    match kind {
        LaneKind::Roundrobin if lb == Lb::Proxy => "proxy round_robin",
        LaneKind::Leastconn if lb == Lb::Proxy => "proxy least_conn.",
        LaneKind::Roundrobin => "HAProxy roundrobin",
        LaneKind::Leastconn => "HAProxy leastconn",
        LaneKind::StaticOracle => "best static split",
        LaneKind::PlimsollRoundrobin => "Plimsoll, roundrobin",
        LaneKind::PlimsollLeastconn => "Plimsoll, leastconn",
        other => other.name(),
    }
}

fn tone(kind: LaneKind) -> Tone {
    if kind.is_steered() { Tone::Good } else { Tone::Plain }
}

/// The mean of the last seconds that are over, and since measuring began.
fn means(frame: &Frame, lane: &LaneFrame) -> (Option<f64>, Option<f64>) {
    let now = frame.passed.as_secs();
    let since = frame.measuring.map(|from| from.as_secs()..now);
    let latest = mean_of(&lane.series, now.saturating_sub(LATEST)..now);
    (latest, since.and_then(|since| mean_of(&lane.series, since)))
}

fn lane_lines(frame: &Frame, screen: &Screen) -> Vec<String> {
    let title_line = format!(
        "{:<22}{:>10}{:>10}{:>9}{:>8}  {}",
        "MEAN RESPONSE, ms", "LAST 10 s", "MEASURED", "WAITING", "LOST", "LATELY (log scale)"
    );
    let mut lines = vec![screen.paint(Tone::Head, &title_line)];
    let room = screen.width.unwrap_or(USUAL_WIDTH).saturating_sub(LEFT_OF_HISTORY).min(STEPS);
    let histories: Vec<Vec<Option<f64>>> =
        frame.lanes.iter().map(|lane| history(&lane.series, frame.passed, room)).collect();
    let known = || histories.iter().flatten().flatten().copied();
    let (low, high) =
        (known().fold(f64::INFINITY, f64::min), known().fold(f64::NEG_INFINITY, f64::max));
    for (lane, history) in frame.lanes.iter().zip(&histories) {
        let (latest, since) = means(frame, lane);
        lines.push(format!(
            "{}{:>10}{:>10}{:>9}{:>8}  {}",
            screen.paint(tone(lane.kind), &format!("{:<22}", title(lane.kind, frame.lb))),
            maybe(latest),
            maybe(since),
            lane.in_flight,
            lane.errors,
            screen.paint(tone(lane.kind), &sparkline(history, low, high))
        ));
    }
    lines
}

/// As many of the last steps as there is room for, oldest first.
fn history(series: &[Slice], passed: Duration, room: usize) -> Vec<Option<f64>> {
    let steps = passed.as_secs() / STEP;
    let first = steps.saturating_sub(room as u64);
    (first..steps).map(|step| mean_of(series, step * STEP..(step + 1) * STEP)).collect()
}

/// Latencies between the least and the greatest of all lanes, on a logarithmic scale: an overloaded
/// lane must not flatten the others.
fn sparkline(history: &[Option<f64>], low: f64, high: f64) -> String {
    let span = (high / low).ln().max(1e-9);
    let level = |ms: f64| {
        let part = (ms / low).ln() / span;
        LEVELS[((part * LEVELS.len() as f64) as usize).min(LEVELS.len() - 1)]
    };
    history.iter().map(|step| step.map_or(' ', level)).collect()
}

fn weight_lines(frame: &Frame, servers: &[(String, String)], screen: &Screen) -> Vec<String> {
    let row = |first: &str, cells: &mut dyn Iterator<Item = String>| {
        let cells: String = cells.map(|cell| format!("{cell:>8}")).collect();
        format!("{first:<22}{cells}")
    };
    let names = row("WEIGHTS", &mut servers.iter().map(|(name, _)| name.clone()));
    let mut lines = vec![screen.paint(Tone::Head, &names)];
    let sizes = row("cores × speed", &mut servers.iter().map(|(_, size)| size.clone()));
    lines.push(screen.paint(Tone::Quiet, &sizes));
    for lane in &frame.lanes {
        if lane.view.is_none() && lane.kind != LaneKind::StaticOracle {
            continue;
        }
        lines.push(row(title(lane.kind, frame.lb), &mut lane.weights.iter().map(u32::to_string)));
        lines.extend(state(lane).map(|state| format!("  {state}")));
    }
    lines
}

/// What Plimsoll does in this lane, in words.
fn state(lane: &LaneFrame) -> Option<String> {
    let (phase, reason) = lane.view.as_ref()?;
    let phase = match phase {
        Phase::Exploring => "exploring",
        Phase::Steady => "steady",
        Phase::ShortOfCapacity => "short of capacity",
        Phase::Observing => "observing",
    };
    let learned = lane.learned.map(|at| format!(" (learned at {})", clock(at))).unwrap_or_default();
    let why = lane.trouble.as_deref().unwrap_or(reason);
    Some(format!("{phase}{learned}: {}", printable(why)))
}

fn log_line(frame: &Frame) -> String {
    let lane = |lane: &LaneFrame| {
        let (latest, since) = means(frame, lane);
        format!("{} {}", lane.kind.name(), maybe(since.or(latest)))
    };
    let lanes: Vec<String> = frame.lanes.iter().map(lane).collect();
    let (stage, over) = match frame.measuring {
        None => ("learning", "last 10 s"),
        Some(_) => ("measuring", "so far"),
    };
    format!("{} {stage}; mean ms, {over}: {}", clock(frame.passed), lanes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(second: u64, mean_ms: f64) -> Slice {
        Slice { second, requests: 10, errors: 0, mean_ms: Some(mean_ms), max_ms: None }
    }

    fn lane(kind: LaneKind, view: Option<(Phase, String)>) -> LaneFrame {
        LaneFrame {
            kind,
            in_flight: 12,
            errors: 0,
            series: (0..40).map(|s| slice(s, 50.0 + s as f64)).collect(),
            weights: vec![3, 250],
            view,
            trouble: None,
            learned: None,
        }
    }

    fn frame(measuring: Option<u64>) -> Frame {
        let view = Some((Phase::Exploring, "more of s2".to_owned()));
        Frame {
            lb: Lb::Haproxy,
            passed: Duration::from_millis(40_400),
            measuring: measuring.map(Duration::from_secs),
            whole: Duration::from_secs(228),
            learn_at_most: Duration::from_secs(100),
            lanes: vec![lane(LaneKind::Roundrobin, None), lane(LaneKind::PlimsollRoundrobin, view)],
        }
    }

    #[test]
    fn a_frame_says_stage_means_weights_and_reason() {
        assert!(stage(&frame(None)).starts_with("learning   0:40 of at most 1:40  ████████████░"));
        assert!(stage(&frame(Some(30))).starts_with("measuring  0:10 of 3:18  █░"));
        let lines = lane_lines(&frame(Some(30)), &Screen::PLAIN);
        // The last ten seconds and the measured ones are the same here: 30…39.
        assert!(
            lines[1].starts_with("HAProxy roundrobin          84.5      84.5       12"),
            "{lines:?}"
        );
        let servers = [("s1".to_owned(), "1×1".to_owned()), ("s2".to_owned(), "4×1.1".to_owned())];
        let weights = weight_lines(&frame(None), &servers, &Screen::PLAIN).join("\n");
        assert!(
            weights.contains("Plimsoll, roundrobin         3     250\n  exploring: more of s2")
        );
        // HAProxy's own equal weights need no line.
        assert!(!weights.contains("HAProxy"));
    }

    #[test]
    fn every_line_fits_and_the_latest_history_stays_in_sight() {
        let screen = Screen { color: false, width: Some(70) };
        let lines = lane_lines(&frame(Some(30)), &screen);
        assert_eq!(lines[1].chars().count(), 70, "{lines:?}");
        // The latest step is the slowest of these.
        assert!(lines[1].ends_with('█'), "{lines:?}");
    }

    #[test]
    fn a_log_line_is_one_line() {
        let line = log_line(&frame(None));
        assert_eq!(
            line,
            "0:40 learning; mean ms, last 10 s: roundrobin 84.5, plimsoll-roundrobin 84.5"
        );
    }

    #[test]
    fn sparklines_span_all_levels_on_a_logarithmic_scale() {
        let history = [Some(10.0), None, Some(100.0), Some(1000.0)];
        assert_eq!(sparkline(&history, 10.0, 1000.0), "▁ ▅█");
    }
}
