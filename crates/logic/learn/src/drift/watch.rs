//! Watches the service rate of one backend.
//!
//! Compares completions between two polls of the balancer with the expected ones, which depend on how busy the cores
//! were and on the rate of a core, and not on traffic, weights or queues: `B = (min(n, c) + min(m, c))/2 · t`
//! core-seconds were busy, with n in flight at first and m at last, and `v·B` completions are expected, however service
//! times are distributed. What scatters more than a Poisson process (other service times, busy time known from polls
//! only) is in the dispersion, estimated from the samples.
//!
//! The reference rate is the ratio of the sums of both, so a wrong c does not matter while the load stays the same.
//! What an excursion of the charts covers is added to it only when the excursion has ended: a change does not hide
//! itself by becoming the reference.
//!
//! Cost: some tens of nanoseconds per poll. It fails where work per request depends on load (shared caches): a large
//! change of load then counts as a change of the backend, which it is for its curve.

use super::charts::{self, Charts, Excursion, TUNED};
use super::noise::Noise;

/// Completions that the reference remembers.
const MEMORY: f64 = 20_000.0;
/// Completions without which there is no reference.
const LEAST: f64 = 300.0;
/// Standard errors of the reference by which an alarm is weakened.
const DOUBT: f64 = 2.5;
/// From this many completions on, the error of the reference is small compared with a change.
const SURE: f64 = 1_500.0;
/// Completions per second must differ by this part to count as fewer or more.
const FEWER: f64 = 0.1;
/// Excursions below this many nats are ordinary: what they cover is settled.
const ORDINARY: f64 = 2.0;
/// An excursion that lasts for this many completions without an alarm is settled all the same.
const LINGERING: f64 = 4_000.0;
/// Seconds of a day.
const DAY: f64 = 86_400.0;

/// The interval between two polls of one backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Time between them.
    pub seconds: f64,
    /// Requests in flight at the first, the backend's own queue included.
    pub before: u32,
    /// Requests in flight at the second.
    pub after: u32,
    /// Successful requests that ended between them.
    pub completions: f64,
}

/// Tolerated rate of false alarms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Mean time between false alarms of one backend, days, at least.
    pub days_between: f64,
}

impl Default for Tolerance {
    /// One false alarm in three days of a pool of 30. (It is followed by a second one, back to the former rate.)
    fn default() -> Self {
        Tolerance { days_between: 90.0 }
    }
}

/// A change of a backend's service rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The rate now over the rate before.
    pub ratio: f64,
    /// Requests completed since the change began, as far as can be inferred.
    pub requests: f64,
    /// Time since the change began, as far as can be inferred.
    pub seconds: f64,
    /// No other number of cores could explain it by another load: fewer complete per second although more are in
    /// flight, or more although fewer.
    pub is_beyond_cores: bool,
}

/// Completions, busy core-seconds and request-seconds in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Work {
    completions: f64,
    core_seconds: f64,
    seconds: f64,
    in_flight_s: f64,
}

impl Work {
    fn add(&mut self, other: Work) {
        self.completions += other.completions;
        self.core_seconds += other.core_seconds;
        self.seconds += other.seconds;
        self.in_flight_s += other.in_flight_s;
    }

    fn fade(&mut self, kept: f64) {
        self.completions *= kept;
        self.core_seconds *= kept;
        self.seconds *= kept;
        self.in_flight_s *= kept;
    }
}

/// The change detector of one backend; see the module's description.
#[derive(Clone, Debug, PartialEq)]
pub struct RateWatch {
    tolerance: Tolerance,
    cores: f64,
    /// A deviation shorter than this is a pause and no change, however clear.
    lasting_s: f64,
    settled: Work,
    open: Work,
    noise: Noise,
    charts: Charts,
}

impl RateWatch {
    /// A detector for a backend with this many cores (infinite: every request in flight is being served).
    pub fn new(cores: f64, tolerance: Tolerance) -> RateWatch {
        RateWatch {
            tolerance,
            cores: cores.max(1.0),
            lasting_s: 0.0,
            settled: Work::default(),
            open: Work::default(),
            noise: Noise::default(),
            charts: Charts::default(),
        }
    }

    /// Sets the time in seconds that a deviation must last to be a change: pauses end before.
    pub fn wait_for(&mut self, seconds: f64) {
        self.lasting_s = seconds;
    }

    /// The number of cores that busy time is counted with.
    pub fn cores(&self) -> f64 {
        self.cores
    }

    /// The reference rate of one core, requests per second; `None` before there are enough completions.
    pub fn reference(&self) -> Option<f64> {
        let enough = self.settled.completions >= LEAST && self.settled.core_seconds > 0.0;
        enough.then(|| self.settled.completions / self.settled.core_seconds)
    }

    /// Whether the reference is certain enough.
    pub fn is_sure(&self) -> bool {
        self.settled.completions >= SURE && self.noise.is_known()
    }

    /// The evidence of a change as a part of an alarm, 0…1, and its ratio.
    pub fn suspicion(&self) -> (f64, f64) {
        let evidence = self.charts.nearest(self.completions_between(), self.noise.dispersion());
        let Excursion { completions, expected, .. } = evidence.excursion;
        let ratio = if expected > 0.0 { completions / expected } else { 1.0 };
        (evidence.part.min(1.0), ratio)
    }

    /// Takes an interval; returns a change when it is detected. Later intervals are compared with the new rate.
    pub fn note(&mut self, interval: &Interval) -> Option<Change> {
        let Interval { seconds, before, after, completions } = *interval;
        if !(seconds > 0.0 && completions >= 0.0 && seconds.is_finite() && completions.is_finite())
        {
            return None;
        }
        let busy = |n: u32| f64::from(n).min(self.cores);
        let core_seconds = 0.5 * (busy(before) + busy(after)) * seconds;
        let in_flight_s = 0.5 * (f64::from(before) + f64::from(after)) * seconds;
        let work = Work { completions, core_seconds, seconds, in_flight_s };
        self.take(work)
    }

    /// Takes a probe of the idle backend with this latency, this many seconds after the last one: one completion, and
    /// all its time on one core.
    pub fn note_probe(&mut self, latency_s: f64, seconds: f64) -> Option<Change> {
        if !(latency_s > 0.0 && latency_s.is_finite() && seconds >= 0.0 && seconds.is_finite()) {
            return None;
        }
        let in_flight_s = latency_s;
        let work = Work { completions: 1.0, core_seconds: latency_s, seconds, in_flight_s };
        self.take(work)
    }

    fn take(&mut self, work: Work) -> Option<Change> {
        self.open.add(work);
        let Some(rate) = self.reference() else {
            self.settle();
            return None;
        };
        let expected = rate * work.core_seconds;
        self.noise.note(work.completions - expected, expected, rate * work.seconds);
        let dispersion = self.noise.dispersion();
        let gains = if self.noise.is_known() {
            let fair = fair(rate, (dispersion / self.settled.completions).sqrt());
            charts::gains(work.completions, work.core_seconds, fair).map(|gain| gain / dispersion)
        } else {
            [0.0; TUNED.len()]
        };
        self.charts.note(work.completions, expected, gains, work.seconds, work.in_flight_s);
        let evidence = self.charts.nearest(self.completions_between(), dispersion);
        let excursion = evidence.excursion;
        let lasts = excursion.seconds >= self.lasting_s;
        if evidence.part >= 1.0 && lasts && excursion.expected > 0.0 {
            let ratio = excursion.completions / excursion.expected;
            let is_beyond_cores = self.is_beyond_cores(&excursion);
            self.begin_anew(rate * ratio);
            return Some(Change {
                ratio,
                requests: excursion.completions,
                seconds: excursion.seconds,
                is_beyond_cores,
            });
        }
        if self.charts.are_below(ORDINARY) || self.open.completions > LINGERING {
            self.settle();
        }
        None
    }

    /// `E[min(n, c)]` grows with the number in flight, whatever c is.
    fn is_beyond_cores(&self, excursion: &Excursion) -> bool {
        let Work { completions, seconds, in_flight_s, .. } = self.settled;
        let pace = (excursion.completions / excursion.seconds) / (completions / seconds);
        let in_flight = (excursion.in_flight_s / excursion.seconds) / (in_flight_s / seconds);
        (pace < 1.0 - FEWER && in_flight > 1.0) || (pace > 1.0 + FEWER && in_flight < 1.0)
    }

    /// Completions between two tolerated false alarms, at the present rate.
    fn completions_between(&self) -> f64 {
        let pace = self.settled.completions / self.settled.seconds.max(1e-9);
        pace * DAY * self.tolerance.days_between
    }

    fn settle(&mut self) {
        self.settled.fade((-self.open.completions / MEMORY).exp());
        self.settled.add(self.open);
        self.open = Work::default();
        self.noise.settle();
    }

    /// The backend has changed: of the new one little more than the rate is known.
    fn begin_anew(&mut self, rate: f64) {
        let pace = self.settled.completions / self.settled.seconds.max(1e-9);
        let held = self.settled.in_flight_s / self.settled.seconds.max(1e-9);
        let seconds = LEAST / pace;
        self.settled = Work {
            completions: LEAST,
            core_seconds: LEAST / rate,
            seconds,
            in_flight_s: held * seconds,
        };
        self.open = Work::default();
        self.noise.drop_open();
        self.charts.clear();
    }
}

/// The rate for a chart, moved towards the observed one by the reference's relative standard error.
fn fair(rate: f64, error: f64) -> impl Fn(f64) -> f64 {
    move |theta: f64| rate * if theta < 1.0 { 1.0 - DOUBT * error } else { 1.0 + DOUBT * error }
}
