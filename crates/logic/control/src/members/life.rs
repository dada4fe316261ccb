//! Evidence that a backend lives: its answers to clients. How long it may go without depends on its own past.

use std::time::Duration;

use crate::tuning::members::life::{
    BEYOND, BEYOND_DOUBT, BROKEN, GAP, LEAST_ASIDE, LEAST_FAILED, MISSED, MOST_ASIDE, MOST_FAILED,
    PACE_S, PAST, PATIENCE, REMEMBERED, USUAL_OVER,
};
use plimsoll_model::{Nanos, ServerReport};

/// The longest pause in the present period and in the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Pauses {
    since: Nanos,
    present: Duration,
    before: Duration,
}

impl Pauses {
    fn note(&mut self, at: Nanos, pause: Duration) {
        self.turn(at);
        self.present = self.present.max(pause);
    }

    fn turn(&mut self, at: Nanos) {
        let passed = at.since(self.since);
        if passed < REMEMBERED {
            return;
        }
        self.before = if passed < 2 * REMEMBERED { self.present } else { Duration::ZERO };
        self.present = Duration::ZERO;
        self.since = at;
    }

    fn longest(&self) -> Duration {
        self.present.max(self.before)
    }
}

/// Answers and silences of one server, from its readings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    last: Option<(Nanos, ServerReport)>,
    /// For how long requests have waited without any answer, as far as observed.
    silent: Option<Duration>,
    first_answer: Option<Nanos>,
    answered_at: Option<Nanos>,
    pauses: Pauses,
    /// Mean wait for the next answer, seconds, and the number of answers that it is over.
    usual: (f64, f64),
    /// Answers and the seconds in which they came, exponentially decayed.
    pace: (f64, f64),
    /// Requests that failed at the balancer since the last answer.
    lost: u64,
    /// Requests that the balancer has sent since the last answer.
    sent: u64,
}

impl Life {
    /// Processes a reading.
    pub fn observe(&mut self, at: Nanos, server: &ServerReport) {
        let Some((then, last)) = self.last.replace((at, *server)) else { return };
        let fell = server.started_total < last.started_total
            || server.errors_total < last.errors_total
            || server.answered_total < last.answered_total;
        if fell {
            (self.silent, self.lost, self.sent) = (None, 0, 0);
            return;
        }
        let started = server.started_total - last.started_total;
        let errors = server.errors_total - last.errors_total;
        let left = started + u64::from(last.in_flight);
        let passed = at.since(then).min(GAP);
        let answers = match (last.answered_total, server.answered_total) {
            (Some(before), Some(now)) => now - before,
            _ => left.saturating_sub(errors + u64::from(server.in_flight)),
        };
        if answers > 0 {
            self.note_answer(at);
            self.note_pace(answers as f64, passed);
            return;
        }
        self.lost += errors;
        self.sent += started;
        // A backend without weight owes no answers.
        if self.silent.is_none() && server.weight > 0 {
            self.note_pace(0.0, passed);
        }
        match &mut self.silent {
            Some(silent) => *silent += passed,
            // Open connections need not be waiting for an answer.
            None if server.answered_total.is_none() => {}
            None if started > 0 || server.in_flight > 0 => self.silent = Some(Duration::ZERO),
            None => {}
        }
    }

    fn note_answer(&mut self, at: Nanos) {
        let silent = self.silent.take();
        if let Some(silent) = silent {
            self.pauses.note(at, silent);
        }
        let (mean, count) = self.usual;
        let kept = count.min(USUAL_OVER - 1.0);
        let pause = silent.unwrap_or_default().as_secs_f64();
        self.usual = ((mean * kept + pause) / (kept + 1.0), kept + 1.0);
        self.pauses.turn(at);
        self.first_answer.get_or_insert(at);
        self.answered_at = Some(at);
        (self.lost, self.sent) = (0, 0);
    }

    fn note_pace(&mut self, answers: f64, passed: Duration) {
        let passed = passed.as_secs_f64();
        let kept = (-passed / PACE_S).exp();
        self.pace = (self.pace.0 * kept + answers, self.pace.1 * kept + passed);
    }

    /// The time in which so many answers came before that their absence is evidence.
    fn telling(&self) -> Duration {
        let (answers, seconds) = self.pace;
        Duration::try_from_secs_f64(MISSED * seconds / answers).unwrap_or(Duration::MAX)
    }

    /// The usual time that requests wait for the next answer to any of them.
    pub fn usual_pause(&self) -> Duration {
        let (mean, count) = self.usual;
        Duration::from_secs_f64(if count >= 3.0 { mean } else { 0.0 })
    }

    /// For how long requests have waited without any answer; `None` while none waits.
    pub fn silent(&self) -> Option<Duration> {
        self.silent
    }

    /// Restarts the wait, as if the waiting requests had just been sent.
    pub fn wait_anew(&mut self) {
        (self.silent, self.lost, self.sent) = (None, 0, 0);
    }

    /// Whether the balancer counts requests and answers: then traffic is as good as a check.
    pub fn counts_answers(&self) -> bool {
        self.last.is_some_and(|(_, server)| server.answered_total.is_some())
    }

    /// When it last answered.
    pub fn answered_at(&self) -> Option<Nanos> {
        self.answered_at
    }

    /// Whether it answered a client within this time.
    pub fn answered_within(&self, now: Nanos, span: Duration) -> bool {
        self.answered_at.is_some_and(|at| now.since(at) < span)
    }

    /// The longest time that requests waited without any answer, within the hour.
    pub fn longest_pause(&self) -> Duration {
        self.pauses.longest()
    }

    /// A request was lost and none answered since: a check is due.
    pub fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Consecutive requests were lost immediately and hardly any is waiting: a dead server does that, an overloaded one
    /// does not. Requests from before the last answer may have waited long: those of one burst time out at once. A
    /// reading may catch requests that are just about to fail.
    pub fn is_broken(&self) -> bool {
        let in_flight = self.last.map_or(0, |(_, server)| u64::from(server.in_flight));
        self.lost.min(self.sent.saturating_sub(in_flight)) >= BROKEN * (1 + in_flight)
    }

    /// The time without an answer after which it is set aside: never before it is as long as the last waits for one
    /// together.
    pub fn aside_after(&self, now: Nanos) -> Duration {
        let after = match self.has_past(now) {
            true => self.longest_pause().mul_f64(BEYOND).max(self.telling()),
            false => MOST_ASIDE,
        };
        after.clamp(LEAST_ASIDE, MOST_ASIDE).max(self.usual_pause().mul_f64(USUAL_OVER))
    }

    /// The time without an answer after which it counts as failed. `backlog` is the time that its waiting requests
    /// take.
    pub fn failed_after(&self, now: Nanos, backlog: Duration) -> Duration {
        let longest = self.longest_pause();
        let (after, beyond) = match self.has_past(now) {
            true => (longest.mul_f64(BEYOND_DOUBT).max(self.telling()), longest.mul_f64(BEYOND)),
            false => (MOST_FAILED, self.usual_pause().mul_f64(BEYOND_DOUBT)),
        };
        after.clamp(LEAST_FAILED, MOST_FAILED).max(beyond).max((2 * backlog).min(PATIENCE))
    }

    fn has_past(&self, now: Nanos) -> bool {
        self.first_answer.is_some_and(|at| now.since(at) >= PAST)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_model::{BackendId, ServerStatus};

    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    fn server(in_flight: u32, started: u64, errors: u64, answered: u64) -> ServerReport {
        ServerReport {
            backend: BackendId(1),
            weight: 1,
            status: ServerStatus::Up,
            checked: false,
            in_flight,
            queued: 0,
            started_total: started,
            errors_total: errors,
            answered_total: Some(answered),
            response_times: None,
        }
    }

    /// A backend that has answered three requests every 100 ms for two minutes.
    fn lively() -> (Life, u64) {
        let mut life = Life::default();
        (0..1_200).for_each(|k| life.observe(at(100 * k), &server(1, 3 * k, 0, 3 * k)));
        (life, 3_597)
    }

    #[test]
    fn silence_lasts_from_the_first_reading_without_an_answer_to_the_next_answer() {
        let (mut life, n) = lively();
        assert_eq!(life.silent(), None);
        for k in 0..=20 {
            life.observe(at(120_000 + 100 * k), &server(3, n + 3, 0, n));
        }
        assert_eq!(life.silent(), Some(Duration::from_secs(2)));
        assert_eq!(life.aside_after(at(122_000)), LEAST_ASIDE);
        assert_eq!(life.failed_after(at(122_000), Duration::ZERO), LEAST_FAILED);
        life.observe(at(122_100), &server(2, n + 3, 0, n + 1));
        assert_eq!((life.silent(), life.longest_pause()), (None, Duration::from_secs(2)));
        assert_eq!(life.aside_after(at(122_100)), Duration::from_secs(2), "the waits before it");
        assert_eq!(life.failed_after(at(122_100), Duration::ZERO), Duration::from_secs(6));
    }

    #[test]
    fn slow_backend_is_not_set_aside_for_its_usual_waits() {
        let mut life = Life::default();
        // One answer a second, with the next request waiting.
        (0..1_200).for_each(|k| life.observe(at(100 * k), &server(1, 1 + k / 10, 0, k / 10)));
        let after = life.aside_after(at(120_000)).as_secs_f64();
        assert!((5.0..8.0).contains(&after), "{after}");
    }

    #[test]
    fn backends_with_long_requests_or_a_backlog_are_waited_for_longer() {
        let (mut life, n) = lively();
        for k in 0..=300 {
            life.observe(at(120_000 + 100 * k), &server(1, n + 1, 0, n));
        }
        life.observe(at(150_100), &server(0, n + 1, 0, n + 1));
        assert_eq!(life.failed_after(at(150_100), Duration::ZERO), Duration::from_secs(45));
        let (life, _) = lively();
        let backlog = Duration::from_secs(4);
        assert_eq!(life.failed_after(at(120_000), backlog), Duration::from_secs(8));
        assert_eq!(life.failed_after(at(120_000), 60 * backlog), PATIENCE);
    }

    #[test]
    fn a_single_long_request_is_waited_for() {
        let mut life = Life::default();
        (0..100).for_each(|k| life.observe(at(1_000 * k), &server(0, k, 0, k)));
        // Answers came once a second: two missing ones are no evidence.
        assert_eq!(life.aside_after(at(100_000)), MOST_ASIDE);
        assert_eq!(life.failed_after(at(100_000), Duration::ZERO), MOST_FAILED);
    }

    #[test]
    fn backend_that_needs_seconds_for_every_request_is_not_set_aside_for_it() {
        let mut life = Life::default();
        let mut set_aside = Vec::new();
        for tenth in 0..1_200 {
            // One request after the other, 3 s each.
            life.observe(at(100 * tenth), &server(1, 1 + tenth / 30, 0, tenth / 30));
            if life.silent().is_some_and(|silent| silent >= life.aside_after(at(100 * tenth))) {
                set_aside.push(tenth / 10);
            }
        }
        assert!(set_aside.iter().all(|second| *second < 10), "{set_aside:?}");
        assert!(life.aside_after(at(120_000)) > Duration::from_secs(5));
    }

    #[test]
    fn a_pause_is_forgotten_after_an_hour() {
        let (mut life, n) = lively();
        (0..20).for_each(|k| life.observe(at(120_000 + 100 * k), &server(1, n + 1, 0, n)));
        for minute in 3..65 {
            life.observe(at(60_000 * minute), &server(1, n + minute, 0, n + minute));
            let kept = life.longest_pause() > Duration::from_secs(1);
            assert!(kept || minute > 30, "{minute}");
        }
        assert!(life.longest_pause() <= Duration::from_secs(1));
    }

    #[test]
    fn consecutive_immediate_failures_indicate_a_dead_server() {
        let (mut life, n) = lively();
        life.observe(at(120_000), &server(1, n + 2, 2, n));
        assert!(life.has_lost() && !life.is_broken());
        life.observe(at(120_100), &server(1, n + 4, 3, n));
        assert!(!life.is_broken(), "a request still waits");
        life.observe(at(120_200), &server(0, n + 4, 4, n));
        assert!(life.is_broken());
        life.observe(at(120_300), &server(0, n + 5, 4, n + 1));
        assert!(!life.has_lost(), "it answers");
    }

    #[test]
    fn server_that_fails_every_request_is_broken_though_one_is_always_in_flight() {
        let (mut life, n) = lively();
        life.observe(at(120_000), &server(1, n + 5, 4, n));
        assert!(!life.is_broken(), "one of few may be waiting");
        life.observe(at(120_100), &server(1, n + 10, 9, n));
        assert!(life.is_broken());
    }

    #[test]
    fn requests_of_one_burst_that_time_out_at_once_are_no_immediate_failures() {
        let (mut life, n) = lively();
        life.observe(at(120_000), &server(32, n + 33, 0, n + 1));
        // The balancer's time-out passes for all of them before the next answer.
        life.observe(at(120_100), &server(2, n + 35, 32, n + 1));
        life.observe(at(120_200), &server(0, n + 35, 34, n + 1));
        assert!(life.has_lost() && !life.is_broken());
        life.observe(at(120_300), &server(0, n + 36, 35, n + 1));
        assert!(life.is_broken(), "a third one failed that was sent since the last answer");
    }

    #[test]
    fn time_without_readings_is_no_silence() {
        let (mut life, n) = lively();
        life.observe(at(120_000), &server(1, n + 1, 0, n));
        life.observe(at(150_000), &server(1, n + 1, 0, n));
        assert_eq!(life.silent(), Some(GAP));
        life.observe(at(150_100), &server(1, 1, 0, 0));
        assert_eq!(life.silent(), None, "counters fell");
    }

    #[test]
    fn completions_count_where_answers_are_not_counted() {
        let mut life = Life::default();
        let uncounted = |n, started, errors| ServerReport {
            answered_total: None,
            ..server(n, started, errors, 0)
        };
        life.observe(at(0), &uncounted(1, 10, 0));
        life.observe(at(100), &uncounted(1, 12, 2));
        assert!(life.has_lost() && life.answered_at().is_none(), "two failed, and one is open");
        life.observe(at(200), &uncounted(1, 13, 2));
        assert_eq!(life.answered_at(), Some(at(200)));
        (3..100).for_each(|k| life.observe(at(100 * k), &uncounted(1, 13, 2)));
        assert_eq!(life.silent(), None, "an open connection need not wait for anything");
    }
}
