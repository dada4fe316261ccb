//! Windows of traffic from the balancer's counters: rates, requests in flight and response times by Little's law,
//! `W = N̄ / λ`, which is unbiased however seldom the counters are read, or as the balancer measured them.

use std::collections::VecDeque;
use std::time::Duration;

use crate::tuning::observe::traffic::{
    GAP, MAX_IN_FLIGHT, MOST_PAST, NEAR, PAST_OF_SERVICE, WINDOW,
};
use plimsoll_learn::drift::Interval;
use plimsoll_learn::{LONG_BEFORE, Lagged};
use plimsoll_model::{Nanos, ServerReport};

/// When windows begin and end: at the same reports for all backends of a pool, because their rates are added.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowClock {
    began: Option<Nanos>,
    last: Nanos,
}

impl WindowClock {
    /// Begins a new window at the next report.
    pub fn reset(&mut self) {
        self.began = None;
    }

    /// Takes the time of a report; returns the length in seconds of the window that it closes.
    pub fn tick(&mut self, at: Nanos) -> Option<f64> {
        let gap = at.since(self.last) > GAP;
        self.last = at;
        let Some(began) = self.began.filter(|_| !gap) else {
            self.began = Some(at);
            return None;
        };
        let long = at.since(began);
        if long < WINDOW {
            return None;
        }
        self.began = Some(at);
        Some(long.as_secs_f64())
    }
}

/// The traffic of one backend over one window.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Window {
    pub seconds: f64,
    /// Requests given to the backend.
    pub started: f64,
    /// Requests that left it with a valid answer.
    pub completed: f64,
    pub errors: f64,
    /// Errors that the server itself answered, as far as the balancer distinguishes them from others.
    pub wrong_answers: f64,
    /// Mean of the response times that the balancer measured, microseconds, where it does and there were any.
    pub measured_us: Option<f64>,
    /// Whether its response times are known: else what was in flight is inferred from those measured before, and
    /// nothing is to be learned from it.
    pub is_timed: bool,
    /// Time average of requests in flight, including those queued in the balancer.
    pub in_flight: f64,
    /// How often each number in flight at the server was observed.
    pub seen: Vec<(u32, u32)>,
    /// In-flight at the end minus in-flight at the start.
    pub growth: f64,
    /// Completions by the number in flight one service time earlier.
    pub lagged: Lagged,
    /// Completions by the number in flight [`LONG_BEFORE`] service times earlier.
    pub long_lagged: Lagged,
    /// It was made from means: what was in flight at single readings is unknown (`seen` and the completions by it).
    pub is_averaged: bool,
}

impl Window {
    /// The same made from means.
    pub fn of_means(self) -> Self {
        let (seen, lagged, long_lagged) = (Vec::new(), Lagged::default(), Lagged::default());
        Window { seen, lagged, long_lagged, is_averaged: true, ..self }
    }

    pub fn rate_rps(&self) -> f64 {
        self.started / self.seconds
    }

    /// The mean response time, microseconds, if there was a request: as measured, or else by Little's law.
    pub fn latency_us(&self) -> Option<f64> {
        let inferred = || {
            (self.started > 0.0 && self.is_timed).then(|| self.in_flight / self.rate_rps() * 1e6)
        };
        self.measured_us.or_else(inferred)
    }

    /// The time that its requests took together: of those in flight, or of those begun, each as long as the measured.
    pub fn request_seconds(&self) -> f64 {
        let in_flight = self.in_flight * self.seconds;
        self.measured_us.map_or(in_flight, |us| us / 1e6 * self.started)
    }
}

/// Turns the reports of one server into windows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    last: Option<(Nanos, ServerReport)>,
    began: Nanos,
    first: Option<ServerReport>,
    area: f64,
    seen: Vec<u32>,
    top: usize,
    lagged: Lagged,
    long_lagged: Lagged,
    /// Past readings of the number in flight since the last gap, oldest first.
    past: VecDeque<(Nanos, u32)>,
    interval: Option<Interval>,
    /// The mean response time in the last window made from means in which one was measured, microseconds.
    measured_us: Option<f64>,
}

impl Meter {
    /// What happened between the last two reports.
    pub fn interval(&self) -> Option<Interval> {
        self.interval
    }

    /// The same for a report that was made from means: between two such reports nothing is known to have happened.
    pub fn observe_means(
        &mut self,
        at: Nanos,
        report: &ServerReport,
        closes: bool,
    ) -> Option<Window> {
        let window = self.observe(at, report, closes, None);
        self.interval = None;
        let mut window = window?.of_means();
        self.measured_us = window.measured_us.or(self.measured_us);
        // Without a response time it is not known either how many were in flight.
        if report.response_times.is_some() && window.measured_us.is_none() {
            window.is_timed = false;
            window.in_flight = self.measured_us.map_or(0.0, |us| us / 1e6 * window.rate_rps());
        }
        Some(window)
    }

    /// Discards the open window: its parts no longer belong together.
    pub fn reset(&mut self) {
        *self = Meter::default();
    }

    /// Takes a report and returns the window that it closes, if any. That window is shorter than the pool's where the
    /// server was absent or lost its counters meanwhile. `service_us` is the service time on one core.
    pub fn observe(
        &mut self,
        at: Nanos,
        report: &ServerReport,
        closes: bool,
        service_us: Option<f64>,
    ) -> Option<Window> {
        self.interval = None;
        let Some((then, last)) = self.last else {
            self.open(at, report);
            self.past.clear();
            return None;
        };
        let fell = report.started_total < last.started_total
            || report.errors_total < last.errors_total
            || at.since(then) > GAP;
        if fell {
            self.open(at, report);
            self.past.clear();
            return None;
        }
        let dt = at.since(then).as_secs_f64();
        let n = f64::from(last.in_flight + last.queued);
        let m = f64::from(report.in_flight + report.queued);
        self.area += 0.5 * (n + m) * dt;
        let level = (report.in_flight as usize).min(MAX_IN_FLIGHT);
        if self.seen.len() <= level {
            self.seen.resize(level + 1, 0);
        }
        self.seen[level] += 1;
        self.top = self.top.max(level);
        let started = (report.started_total - last.started_total) as f64;
        let left = started + f64::from(last.in_flight) - f64::from(report.in_flight);
        let failed = (report.errors_total - last.errors_total) as f64;
        let completions = (left - failed).max(0.0);
        self.interval = Some(Interval {
            seconds: dt,
            before: last.in_flight,
            after: report.in_flight,
            completions,
        });
        let polls = [last.in_flight, report.in_flight];
        if let Some(before) = service_us.and_then(|us| self.before(then, us)) {
            self.lagged.note(before, polls, completions, dt);
        }
        if let Some(before) = service_us.and_then(|us| self.before(then, LONG_BEFORE * us)) {
            self.long_lagged.note(before, polls, completions, dt);
        }
        self.remember(then, last.in_flight, service_us);
        self.last = Some((at, *report));
        if !closes {
            return None;
        }
        let window = self.close(at, report);
        self.open(at, report);
        window
    }

    /// Keeps readings for as long as the longest look back, however long a service takes.
    fn remember(&mut self, at: Nanos, in_flight: u32, service_us: Option<f64>) {
        let apart_s = service_us.map_or(0.0, |us| us / 1e6 / PAST_OF_SERVICE);
        if self.past.back().is_some_and(|&(last, _)| at.since(last).as_secs_f64() < apart_s) {
            return;
        }
        if self.past.len() == MOST_PAST {
            self.past.pop_front();
        }
        self.past.push_back((at, in_flight));
    }

    /// The number in flight at least `micros` before `at`, by the latest reading that is old enough. (The service time
    /// may be any number where curves are rescaled by latencies alone.)
    fn before(&self, at: Nanos, micros: f64) -> Option<u32> {
        let lag = Duration::try_from_secs_f64(micros / 1e6).ok()?;
        let is_old = |&(then, _): &(Nanos, u32)| at.since(then) >= lag;
        // Usually it is one of the most recent: in large pools readings are as far apart as a service time.
        if let Some(&(_, last)) = self.past.iter().rev().take(NEAR).find(|&past| is_old(past)) {
            return Some(last);
        }
        let old = self.past.partition_point(is_old);
        Some(self.past.get(old.checked_sub(1)?)?.1)
    }

    fn open(&mut self, at: Nanos, report: &ServerReport) {
        self.last = Some((at, *report));
        self.began = at;
        self.first = Some(*report);
        self.area = 0.0;
        self.seen.iter_mut().for_each(|c| *c = 0);
        self.top = 0;
        self.lagged.clear();
        self.long_lagged.clear();
    }

    fn close(&self, at: Nanos, report: &ServerReport) -> Option<Window> {
        let first = self.first?;
        let seconds = at.since(self.began).as_secs_f64();
        if seconds == 0.0 {
            return None;
        }
        let started = (report.started_total - first.started_total) as f64;
        let errors = (report.errors_total - first.errors_total) as f64;
        let growth = f64::from(report.in_flight) - f64::from(first.in_flight);
        let seen = self.seen[..=self.top]
            .iter()
            .enumerate()
            .filter(|&(_, &count)| count > 0)
            .map(|(n, &count)| (n as u32, count))
            .collect();
        let completed = (started - growth - errors).max(0.0);
        // Errors among the answers. (Requests that were answered correctly are all in `completed`.)
        let wrong_answers = match (first.answered_total, report.answered_total) {
            (Some(before), Some(now)) => {
                (now.saturating_sub(before) as f64 - completed).clamp(0.0, errors.max(0.0))
            }
            _ => errors,
        };
        Some(Window {
            seconds,
            started,
            completed,
            errors,
            wrong_answers,
            measured_us: first
                .response_times
                .zip(report.response_times)
                .and_then(|(before, now)| now.mean_us_since(&before)),
            is_timed: true,
            in_flight: self.area / seconds,
            seen,
            growth,
            lagged: self.lagged.clone(),
            long_lagged: self.long_lagged.clone(),
            is_averaged: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::{BackendId, ResponseTimes, ServerStatus};

    fn report(in_flight: u32, started_total: u64, errors_total: u64) -> ServerReport {
        ServerReport {
            in_flight,
            started_total,
            errors_total,
            ..ServerReport::new(BackendId(1), 1, ServerStatus::Up)
        }
    }

    #[test]
    fn window_follows_littles_law() {
        let mut meter = Meter::default();
        let mut window = None;
        for k in 0..=10u64 {
            let at = Nanos(k * 100_000_000);
            window = window.or(meter.observe(at, &report(3, 100 + 6 * k, k / 5), k == 10, None));
        }
        let w = window.expect("a second has passed");
        assert!((w.seconds - 1.0).abs() < 1e-9);
        assert!((w.rate_rps() - 60.0).abs() < 1e-9);
        assert!((w.in_flight / w.rate_rps() - 0.05).abs() < 1e-9, "50 ms");
        assert_eq!((w.completed, w.errors, w.growth), (58.0, 2.0, 0.0));
        assert_eq!(w.seen, vec![(3, 10)]);
    }

    #[test]
    fn measured_response_times_take_the_place_of_inferred_ones() {
        let timed = |k: u64, count, sum_us| ServerReport {
            response_times: Some(ResponseTimes { count, sum_us }),
            ..report(3, 100 + 60 * k, 0)
        };
        let mut meter = Meter::default();
        let mut take = |k: u64, r| meter.observe(Nanos(k * 1_000_000_000), &r, true, None);
        take(0, timed(0, 90, 7_000_000));
        let w = take(1, timed(1, 140, 9_000_000)).expect("a window");
        assert_eq!((w.measured_us, w.latency_us()), (Some(4e4), Some(4e4)), "not 50 ms");
        assert!((w.request_seconds() - 2.4).abs() < 1e-9);
        // Nothing has ended: what is in flight tells more than nothing.
        let w = take(2, timed(2, 140, 9_000_000)).expect("a window");
        assert_eq!(w.measured_us, None);
        assert!(w.latency_us().is_some_and(|us| (us - 5e4).abs() < 1e-6));
        // A restart of what measures alone.
        let w = take(3, timed(3, 2, 10_000)).expect("a window");
        assert_eq!(w.measured_us, None);
    }

    #[test]
    fn where_means_tell_no_response_time_it_is_unknown_and_not_zero() {
        let told = |k: u64, count, in_flight| ServerReport {
            response_times: Some(ResponseTimes { count, sum_us: 20_000 * count }),
            ..report(in_flight, 50 * k, 0)
        };
        let mut meter = Meter::default();
        let mut take = |k: u64, r| meter.observe_means(Nanos(k * 1_000_000_000), &r, true);
        take(0, told(0, 0, 1));
        let w = take(1, told(1, 50, 1)).expect("a window");
        assert_eq!((w.is_timed, w.latency_us(), w.request_seconds()), (true, Some(2e4), 1.0));
        let w = take(2, told(2, 50, 0)).expect("a window");
        assert_eq!((w.is_timed, w.latency_us(), w.rate_rps()), (false, None, 50.0));
        assert!((w.request_seconds() - 1.0).abs() < 1e-9, "as long as before, as far as is known");
        // A window of which a part was reported is known by that part.
        let w = take(3, told(3, 60, 0)).expect("a window");
        assert_eq!((w.is_timed, w.latency_us(), w.request_seconds()), (true, Some(2e4), 1.0));
    }

    #[test]
    fn a_restart_or_a_gap_begins_a_new_window() {
        let mut meter = Meter::default();
        let mut take =
            |s: u64, report| meter.observe(Nanos(s * 1_000_000_000), &report, true, None);
        take(0, report(3, 1_000, 0));
        assert_eq!(take(1, report(0, 4, 0)), None, "counters fell");
        let w = take(2, report(0, 14, 0)).expect("a whole window");
        assert_eq!(w.started, 10.0);
        assert_eq!(take(9, report(0, 900, 0)), None, "a gap");
    }

    #[test]
    fn number_in_flight_is_taken_from_at_least_that_long_before() {
        let mut meter = Meter::default();
        let mut take = |tenths: u64, in_flight| {
            let at = Nanos(tenths * 100_000_000);
            meter.observe(at, &report(in_flight, 100 * tenths, 0), false, Some(15e4));
        };
        // 150 ms and 600 ms before the last reading but one, which is at 0.7 s.
        (0..=8).for_each(|tenths| take(tenths, tenths as u32));
        assert_eq!(meter.before(Nanos(700_000_000), 15e4), Some(5));
        assert_eq!(meter.before(Nanos(700_000_000), 6e5), Some(1));
        assert_eq!(meter.before(Nanos(700_000_000), 8e5), None);
        for micros in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            assert_eq!(meter.before(Nanos(700_000_000), micros), None, "{micros}");
        }
        let mut expected = Lagged::default();
        for tenths in 2..8 {
            expected.note(tenths - 2, [tenths, tenths + 1], 99.0, 0.1);
        }
        assert_eq!(meter.lagged, expected);
        assert_eq!(meter.long_lagged, Lagged::default(), "1.5 s ago nothing was seen");
        meter.observe(Nanos(900_000_000), &report(0, 0, 0), false, Some(15e4));
        assert_eq!(
            meter.before(Nanos(900_000_000), 15e4),
            None,
            "counters fell: that was another life"
        );
    }

    #[test]
    fn number_in_flight_is_known_for_any_service_time() {
        let mut meter = Meter::default();
        for k in 0..10_000_u64 {
            let at = Nanos(k * 25_000_000);
            meter.observe(at, &report((k / 40) as u32, k, 0), false, Some(2e7));
            if k == 9_999 {
                // 200 s before the last reading but one.
                let before =
                    meter.before(Nanos(9_998 * 25_000_000), 2e8).expect("it is remembered");
                assert!((49..=50).contains(&before), "{before}");
                assert_ne!(meter.long_lagged, Lagged::default());
            }
        }
        assert!(meter.past.len() <= MOST_PAST);
        // 20 s before the last reading but one: 229.975 s, by readings a third of a second apart.
        let before = meter.before(Nanos(9_999 * 25_000_000), 2e7).expect("it is remembered");
        assert!((229..=230).contains(&before), "{before}");
    }

    #[test]
    fn windows_end_at_once_for_all_backends_and_begin_again_after_a_gap() {
        let mut clock = WindowClock::default();
        let mut tick = |tenths: u64| clock.tick(Nanos(tenths * 100_000_000));
        let closed: Vec<u64> = (20..=40).filter(|&tenths| tick(tenths).is_some()).collect();
        assert_eq!(closed, [30, 40]);
        assert_eq!(tick(55), Some(1.5), "a slow poll");
        assert_eq!(tick(76), None, "a gap");
        assert_eq!(tick(85), None);
        assert_eq!(tick(86), Some(1.0));
    }
}
