//! Signs of life of one backend: every answer is one. How long it may stay without depends on its own past.

use std::time::Duration;

use plimsoll_model::{Nanos, ServerReport};

/// Whatever its past, a silence is looked into after so long, …
const LEAST_ASIDE: Duration = Duration::from_millis(500);
/// … and no later than 2 s after the first request that was not answered, of which two readings and a plan take some
/// part; also while its past is too short to tell.
const MOST_ASIDE: Duration = Duration::from_millis(1_850);
/// A backend that may only pause is not declared failed before this, which makes 2 s, …
const LEAST_FAILED: Duration = Duration::from_millis(1_850);
/// … and after this it is, which makes 10 s, unless it is known to need longer.
const MOST_FAILED: Duration = Duration::from_millis(9_850);
/// Whatever it has to do, an answer is not waited for longer than this.
const PATIENCE: Duration = Duration::from_secs(30);
/// A silence counts as beyond the usual from this multiple of the longest pause on, …
const BEYOND: f64 = 1.5;
/// … and as beyond doubt from this one.
const BEYOND_DOUBT: f64 = 3.0;
/// A silence tells a dead backend from one that has been given a single long request once so many answers are missing at
/// the pace of before.
const MISSED: f64 = 10.0;
/// The pace of answers is that of so many seconds.
const PACE_S: f64 = 10.0;
/// What it usually lets requests wait is the mean over so many readings with answers, …
const USUAL_OVER: f64 = 8.0;
/// … and a silence is beyond that from this multiple on.
const BEYOND_USUAL: f64 = 2.0;
/// The past is too short to tell until it has answered for so long.
const PAST: Duration = Duration::from_secs(60);
/// The longest pause is that of the last two of these: half an hour to an hour.
const REMEMBERED: Duration = Duration::from_secs(1_800);
/// Between two readings further apart than this nobody knows what was answered when.
const GAP: Duration = Duration::from_secs(1);
/// So many requests in a row that fail at once, with none answered between, are a dead server's.
const BROKEN: u64 = 3;

/// The longest pauses of the present half hour and of the one before it.
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

/// What the readings of one server tell of its life.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    last: Option<(Nanos, ServerReport)>,
    /// For how long requests have waited without any answer, as far as was seen.
    silent: Option<Duration>,
    first_answer: Option<Nanos>,
    answered_at: Option<Nanos>,
    pauses: Pauses,
    /// Mean time that requests wait for the next answer, seconds, and over how many answers.
    usual: (f64, f64),
    /// Answers, and the seconds in which they came, fading.
    pace: (f64, f64),
    /// Requests that failed in the balancer's hands since the last answer.
    lost: u64,
}

impl Life {
    /// Takes a reading.
    pub fn observe(&mut self, at: Nanos, server: &ServerReport) {
        let Some((then, last)) = self.last.replace((at, *server)) else { return };
        let fell = server.started_total < last.started_total
            || server.errors_total < last.errors_total
            || server.answered_total < last.answered_total;
        if fell {
            (self.silent, self.lost) = (None, 0);
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
        // A backend without weight owes no answers.
        if self.silent.is_none() && server.weight > 0 {
            self.note_pace(0.0, passed);
        }
        match &mut self.silent {
            Some(silent) => *silent += passed,
            // An open connection need not wait for anything.
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
        self.lost = 0;
    }

    fn note_pace(&mut self, answers: f64, passed: Duration) {
        let passed = passed.as_secs_f64();
        let kept = (-passed / PACE_S).exp();
        self.pace = (self.pace.0 * kept + answers, self.pace.1 * kept + passed);
    }

    /// The time in which so many answers came before that their absence tells something.
    fn telling(&self) -> Duration {
        let (answers, seconds) = self.pace;
        Duration::try_from_secs_f64(MISSED * seconds / answers).unwrap_or(Duration::MAX)
    }

    /// The time that requests usually wait for the next answer, whoever gets it.
    pub fn usual_pause(&self) -> Duration {
        let (mean, count) = self.usual;
        Duration::from_secs_f64(if count >= 3.0 { mean } else { 0.0 })
    }

    /// For how long requests have waited without any answer; none while nobody waits.
    pub fn silent(&self) -> Option<Duration> {
        self.silent
    }

    /// From now on it is waited for as if it had just been asked.
    pub fn wait_anew(&mut self) {
        (self.silent, self.lost) = (None, 0);
    }

    /// Requests are counted, and the answers to them: traffic tells all that a check could.
    pub fn is_told(&self) -> bool {
        self.last.is_some_and(|(_, server)| server.answered_total.is_some())
    }

    /// When it last answered.
    pub fn answered_at(&self) -> Option<Nanos> {
        self.answered_at
    }

    /// It answered a client within this time.
    pub fn answered_within(&self, now: Nanos, span: Duration) -> bool {
        self.answered_at.is_some_and(|at| now.since(at) < span)
    }

    /// The longest time that it let requests wait without any answer, within the hour.
    pub fn longest_pause(&self) -> Duration {
        self.pauses.longest()
    }

    /// A request was lost and none was answered since: worth a look.
    pub fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Several requests in a row were lost at once and nobody is left who waits: a dead server's way, and not an
    /// overloaded one's.
    pub fn is_broken(&self) -> bool {
        let waits = self.last.is_some_and(|(_, server)| server.in_flight > 0);
        self.lost >= BROKEN && !waits
    }

    /// After so long without an answer it is set aside.
    pub fn aside_after(&self, now: Nanos) -> Duration {
        let after = match self.has_past(now) {
            true => self.longest_pause().mul_f64(BEYOND).max(self.telling()),
            false => MOST_ASIDE,
        };
        after.clamp(LEAST_ASIDE, MOST_ASIDE).max(self.usual_pause().mul_f64(BEYOND_USUAL))
    }

    /// After so long without an answer it counts as failed. `backlog` is the time that what waits there takes it.
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
            in_flight,
            queued: 0,
            started_total: started,
            errors_total: errors,
            answered_total: Some(answered),
        }
    }

    /// A backend that has answered thrice every 100 ms for two minutes.
    fn lively() -> (Life, u64) {
        let mut life = Life::default();
        (0..1_200).for_each(|k| life.observe(at(100 * k), &server(1, 3 * k, 0, 3 * k)));
        (life, 3_597)
    }

    #[test]
    fn silence_runs_from_the_first_reading_without_an_answer_and_ends_with_one() {
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
        assert_eq!(life.aside_after(at(122_100)), MOST_ASIDE);
        assert_eq!(life.failed_after(at(122_100), Duration::ZERO), Duration::from_secs(6));
    }

    #[test]
    fn whose_requests_are_long_is_waited_for_longer_and_so_is_who_has_much_to_do() {
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
    fn one_long_request_of_few_is_waited_for() {
        let mut life = Life::default();
        (0..100).for_each(|k| life.observe(at(1_000 * k), &server(0, k, 0, k)));
        // Answers came once a second: two that are missing are no evidence.
        assert_eq!(life.aside_after(at(100_000)), MOST_ASIDE);
        assert_eq!(life.failed_after(at(100_000), Duration::ZERO), MOST_FAILED);
    }

    #[test]
    fn a_backend_that_needs_seconds_for_every_request_is_not_set_aside_for_it() {
        let mut life = Life::default();
        let mut set_aside = Vec::new();
        for tenth in 0..1_200 {
            // One request after the other, of 3 s each.
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
    fn requests_that_fail_at_once_and_in_a_row_are_a_dead_servers() {
        let (mut life, n) = lively();
        life.observe(at(120_000), &server(1, n + 2, 2, n));
        assert!(life.has_lost() && !life.is_broken());
        life.observe(at(120_100), &server(1, n + 4, 3, n));
        assert!(!life.is_broken(), "somebody still waits");
        life.observe(at(120_200), &server(0, n + 4, 4, n));
        assert!(life.is_broken());
        life.observe(at(120_300), &server(0, n + 5, 4, n + 1));
        assert!(!life.has_lost(), "it answers");
    }

    #[test]
    fn time_that_nobody_saw_is_no_silence() {
        let (mut life, n) = lively();
        life.observe(at(120_000), &server(1, n + 1, 0, n));
        life.observe(at(150_000), &server(1, n + 1, 0, n));
        assert_eq!(life.silent(), Some(GAP));
        life.observe(at(150_100), &server(1, 1, 0, 0));
        assert_eq!(life.silent(), None, "counters fell");
    }

    #[test]
    fn where_answers_are_not_counted_completions_are() {
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
