//! Who may serve: answers to clients, checks for life where those do not tell, probes of the work URL, and the
//! share of errors that the balancer counts. A backend that fails fast looks fast, so errors never count as latency.

use std::time::Duration;

use plimsoll_model::{FailureKind, Nanos, Outcome};

/// So many liveness rounds in a row must succeed before a failed backend returns; doubled with every
/// failure that follows a return within [`FLAP_MEMORY`].
const ROUNDS_TO_RETURN: u32 = 3;
/// The doubling stops here: at 250 ms a round, 12 s of good health.
const MAX_ROUNDS_TO_RETURN: u32 = 48;
/// Probes are rarer than rounds: so many good ones always do.
const MAX_PROBES_TO_RETURN: u32 = 12;
/// How long a failure is held against a backend that returns.
const FLAP_MEMORY: Duration = Duration::from_secs(60);
/// A backend that its clients found to fail, by errors or by silence, is not let back by its checks before this time has
/// passed …
const FIRST_EJECTION: Duration = Duration::from_secs(5);
/// … doubled with every such failure that follows before it has served well for [`FLAP_MEMORY`], or for as long as it was
/// out, up to this (Envoy's longest): its checks pass while its clients get nothing good, so every return costs some.
const LONGEST_EJECTION: Duration = Duration::from_secs(300);
/// So many probes of the work URL in a row must fail before the backend counts as failed. Time-outs
/// need more, for an overloaded backend is slow, not dead.
const PROBES_TO_FAIL: u32 = 3;
const TIMEOUTS_TO_FAIL: u32 = 8;
/// From this share of errors among a backend's answers on it is a candidate for ejection …
const ERROR_SHARE: f64 = 0.10;
/// … when it has given at least so many wrong answers lately.
const MIN_ERRORS: f64 = 5.0;
/// Weight of the past in the moving share of errors, per window of a second.
const ERROR_DECAY: f64 = 0.7;

/// Why a backend is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Checks for life failed.
    Liveness(Option<FailureKind>),
    /// Requests waited for so many milliseconds and none was answered.
    Silence(u32),
    /// Requests fail at once, one after the other.
    Broken,
    /// The balancer's own health check says so.
    Balancer,
    /// The work URL does not answer as expected.
    Work(FailureKind),
    /// Clients get errors from it.
    Errors,
}

impl Cause {
    pub fn describe(self) -> String {
        let kind = |k: FailureKind| match k {
            FailureKind::Refused => "connection refused",
            FailureKind::Reset => "connection reset",
            FailureKind::Timeout => "no answer in time",
            FailureKind::Status => "unexpected status",
            FailureKind::Body => "unexpected body",
            FailureKind::Protocol => "not HTTP",
            FailureKind::Tls => "TLS handshake failed",
        };
        match self {
            Cause::Liveness(Some(k)) => format!("no liveness check succeeded: {}", kind(k)),
            Cause::Liveness(None) => "no liveness check succeeded".to_owned(),
            Cause::Silence(ms) => {
                format!("no request was answered for {:.1} s", f64::from(ms) / 1e3)
            }
            Cause::Broken => "requests to it fail immediately".to_owned(),
            Cause::Balancer => "the balancer's health check says it is down".to_owned(),
            Cause::Work(k) => format!("probes of the work URL fail: {}", kind(k)),
            Cause::Errors => "it answers clients with errors".to_owned(),
        }
    }
}

/// What only a dead process or host does, and no slow one.
fn is_death(kind: Option<FailureKind>) -> bool {
    matches!(kind, Some(FailureKind::Refused | FailureKind::Reset))
}

/// Something answered, and wrongly: no dead process does that.
fn is_an_answer(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Status | FailureKind::Body | FailureKind::Protocol)
}

/// One round of checks for life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub started: Nanos,
    pub successes: u32,
    /// Why the first that failed did so.
    pub why: Option<FailureKind>,
    /// Clients get answers, or wait for one: that tells more.
    pub doubted: bool,
    /// Clients get answers and lose no request: not even a refused check proves death.
    pub contradicted: bool,
    /// A slow backend is not failed before its checks have failed for so long.
    pub patience: Duration,
}

/// A change of health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Failed(Cause),
    Returned,
}

/// The health of one backend.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    down: Option<Cause>,
    /// The balancer's own check has it down: it gives it nothing, whatever else is well.
    held_down: bool,
    /// Since when checks have failed, of which each by itself proves nothing.
    doubted_from: Option<Nanos>,
    /// When the first of the checks began that have failed in a row.
    failing_from: Option<Nanos>,
    /// The last check that would prove death, if clients did not get answers.
    refused: Option<(Nanos, Option<FailureKind>)>,
    good_rounds: u32,
    good_round_began: Nanos,
    rounds_needed: u32,
    returned_at: Option<Nanos>,
    work_failures: u32,
    work_successes: u32,
    ever_worked: bool,
    last_work_failure: Option<FailureKind>,
    /// So many probes of the work URL failed that it counts as failed, whatever else is wrong with it;
    /// so many successes end it.
    work_broken: Option<FailureKind>,
    errors: f64,
    answers: f64,
    /// Its checks do not let it back until then, for so long after its clients found it to fail.
    barred_until: Nanos,
    barred_for: Duration,
}

impl Health {
    pub fn is_down(&self) -> bool {
        self.down.is_some()
    }

    pub fn cause(&self) -> Option<Cause> {
        self.down
    }

    /// It is down, and by what a slow or a hung one does as well.
    pub fn is_doubtful(&self) -> bool {
        matches!(self.down, Some(Cause::Silence(_) | Cause::Work(_) | Cause::Liveness(_)))
            && !matches!(self.down, Some(Cause::Liveness(why)) if is_death(why))
            && !self.held_down
    }

    /// It was taken out for its errors.
    pub fn is_ejected(&self) -> bool {
        self.down == Some(Cause::Errors)
    }

    /// Whether a probe of the work URL ever succeeded.
    pub fn ever_worked(&self) -> bool {
        self.ever_worked
    }

    /// Takes a round of checks. One that began before another that has already succeeded says nothing of the
    /// present. What a slow backend does as well counts only from `patience` on, and never where it is `doubted`:
    /// clients get answers, or wait for one.
    pub fn liveness(&mut self, now: Nanos, round: &Round) -> Option<Turn> {
        let Round { started, successes, why, .. } = *round;
        if started < self.good_round_began {
            return None;
        }
        if successes > 0 {
            self.good_round_began = started;
            (self.doubted_from, self.failing_from, self.refused) = (None, None, None);
        }
        if successes == 0 {
            self.good_rounds = 0;
            self.failing_from.get_or_insert(started);
            if self.is_down() || is_death(why) && !round.contradicted {
                return self.fail(now, Cause::Liveness(why));
            }
            if is_death(why) {
                self.refused = Some((now, why));
                return None;
            }
            if round.doubted {
                self.doubted_from = None;
                return None;
            }
            let from = *self.doubted_from.get_or_insert(started);
            let lasts = now.since(from) >= round.patience;
            return if lasts { self.fail(now, Cause::Liveness(why)) } else { None };
        }
        if self.good_rounds == 0 && !self.last_work_failure.is_some_and(is_an_answer) {
            // What refused and hung before was the dead one.
            self.forget_work();
        }
        self.good_rounds = self.good_rounds.saturating_add(1);
        match self.down {
            // Alive again, but does it do its work?
            Some(Cause::Liveness(_) | Cause::Silence(_) | Cause::Broken)
                if self.good_rounds >= self.rounds_needed && !self.is_barred(now) =>
            {
                self.down = self.work_broken.map(Cause::Work);
                if self.down.is_none() { self.recover(now) } else { None }
            }
            _ => None,
        }
    }

    /// Its clients have found that it fails, whatever its checks say.
    fn is_barred(&self, now: Nanos) -> bool {
        let by_clients = matches!(self.down, Some(Cause::Silence(_) | Cause::Broken));
        by_clients && now < self.barred_until
    }

    fn bar(&mut self, now: Nanos) {
        let remembered = FLAP_MEMORY.max(self.barred_for);
        let again = self.returned_at.is_some_and(|at| now.since(at) < remembered);
        self.barred_for = match self.barred_for {
            last if again && !last.is_zero() => (2 * last).min(LONGEST_EJECTION),
            _ => FIRST_EJECTION,
        };
        self.barred_until = now + self.barred_for;
    }

    /// Clients got an answer at this time, though checks had failed before it and have since.
    pub fn is_contradicted_by(&self, answered_at: Option<Nanos>) -> bool {
        self.failing_from.is_some_and(|from| answered_at.is_some_and(|at| at >= from))
    }

    /// A request was lost: a check that was refused within this time was right.
    pub fn believe_refusal(&mut self, now: Nanos, within: Duration) -> Option<Turn> {
        let (at, why) = self.refused?;
        (now.since(at) < within).then(|| self.fail(now, Cause::Liveness(why))).flatten()
    }

    fn forget_work(&mut self) {
        self.work_failures = 0;
        self.work_broken = None;
    }

    /// No request was answered for so long that it counts as failed.
    pub fn fail_silent(&mut self, now: Nanos, silent: Duration) -> Option<Turn> {
        self.good_rounds = 0;
        self.bar(now);
        self.fail(now, Cause::silence(silent))
    }

    /// Requests fail at once, one after the other.
    pub fn fail_broken(&mut self, now: Nanos) -> Option<Turn> {
        self.good_rounds = 0;
        self.bar(now);
        self.fail(now, Cause::Broken)
    }

    /// It failed for its silence, or for checks without an answer, and has answered a client since: it had paused.
    pub fn answered(&mut self, now: Nanos) -> Option<Turn> {
        let paused = match self.down {
            Some(Cause::Silence(_)) => true,
            Some(Cause::Liveness(why)) => !is_death(why),
            _ => false,
        };
        paused.then(|| self.recover(now)).flatten()
    }

    /// Takes what the balancer's own check says.
    pub fn balancer(&mut self, now: Nanos, down: bool) -> Option<Turn> {
        self.held_down = down;
        match (down, self.down) {
            (true, _) => self.fail(now, Cause::Balancer),
            (false, Some(Cause::Balancer)) => {
                self.forget_work();
                self.recover(now)
            }
            _ => None,
        }
    }

    /// Takes a probe of the work URL. `judged` is false while no backend of the pool answers as
    /// expected: then the URL is wrong, not the backend.
    pub fn work(&mut self, now: Nanos, outcome: Outcome, judged: bool) -> Option<Turn> {
        match outcome {
            Outcome::Success => {
                self.ever_worked = true;
                self.work_failures = 0;
                self.last_work_failure = None;
                self.work_successes = self.work_successes.saturating_add(1);
                if self.work_successes >= PROBES_TO_FAIL {
                    self.work_broken = None;
                }
                match self.down {
                    Some(Cause::Work(_))
                        if self.work_successes >= self.rounds_needed.min(MAX_PROBES_TO_RETURN) =>
                    {
                        self.recover(now)
                    }
                    _ => None,
                }
            }
            Outcome::Failure(kind) => {
                self.work_successes = 0;
                self.work_failures = self.work_failures.saturating_add(1);
                self.last_work_failure = Some(kind);
                let needed =
                    if kind == FailureKind::Timeout { TIMEOUTS_TO_FAIL } else { PROBES_TO_FAIL };
                if judged && self.work_failures >= needed {
                    self.work_broken = Some(kind);
                    self.fail(now, Cause::Work(kind))
                } else {
                    None
                }
            }
        }
    }

    /// The last round had no success, though that alone proves nothing.
    pub fn is_doubted(&self) -> bool {
        self.doubted_from.is_some()
    }

    /// Whether the work URL fails now, and how.
    pub fn work_failure(&self) -> Option<FailureKind> {
        self.last_work_failure.filter(|_| self.work_failures >= PROBES_TO_FAIL)
    }

    /// Takes a window's answers.
    pub fn answers(&mut self, completed: f64, errors: f64) {
        self.errors = ERROR_DECAY * self.errors + errors;
        self.answers = ERROR_DECAY * self.answers + completed + errors;
    }

    /// Nothing was seen of its answers for so long.
    pub fn fade(&mut self, seconds: f64) {
        let kept = ERROR_DECAY.powf(seconds);
        self.errors *= kept;
        self.answers *= kept;
    }

    /// The recent share of errors, once there are enough of them to tell.
    pub fn error_share(&self) -> f64 {
        if self.errors >= MIN_ERRORS { self.errors / self.answers.max(1.0) } else { 0.0 }
    }

    /// Whether it gives so many errors that it should be ejected, if the pool can spare it.
    pub fn is_failing_fast(&self) -> bool {
        self.error_share() >= ERROR_SHARE
    }

    /// Ejects it for its errors.
    pub fn eject(&mut self, now: Nanos) -> Option<Turn> {
        self.errors = 0.0;
        self.answers = 0.0;
        self.work_successes = 0;
        self.bar(now);
        self.fail(now, Cause::Errors)
    }

    /// Lets it back if it was ejected for long enough, and if its probes, where there are any, succeed.
    pub fn end_ejection(&mut self, now: Nanos) -> Option<Turn> {
        let needed =
            if self.ever_worked { self.rounds_needed.min(MAX_PROBES_TO_RETURN) } else { 0 };
        let works = self.work_failures == 0 && self.work_successes >= needed;
        (self.is_ejected() && now >= self.barred_until && works)
            .then(|| self.recover(now))
            .flatten()
    }

    /// It failed its liveness checks and passes them again: so many in a row. None while the balancer holds it
    /// down, for then it would get nothing.
    pub fn rounds_passed(&self) -> Option<u32> {
        let by_life =
            matches!(self.down, Some(Cause::Liveness(_) | Cause::Silence(_) | Cause::Broken));
        let alive = by_life && !self.held_down;
        (alive && self.good_rounds > 0).then_some(self.good_rounds)
    }

    /// It failed at its work and does it again, as often as any other must that did not come and go: so many times in
    /// a row.
    fn works_again(&self) -> Option<u32> {
        let failed_at_work = matches!(self.down, Some(Cause::Work(_) | Cause::Errors));
        let works = failed_at_work && !self.held_down && self.work_successes >= PROBES_TO_FAIL;
        works.then_some(self.work_successes)
    }

    /// What speaks for it, so much, where nobody else serves.
    pub fn hope(&self) -> Option<u32> {
        self.works_again().or_else(|| self.rounds_passed())
    }

    /// Back without waiting for more rounds, or for more probes than any other needs that did not come and go.
    pub fn return_at_once(&mut self, now: Nanos) -> Option<Turn> {
        if self.works_again().is_none() {
            self.rounds_passed()?;
            self.forget_work();
        }
        self.recover(now)
    }

    /// It was taken out for its errors, and is needed.
    pub fn call_back(&mut self, now: Nanos) -> Option<Turn> {
        self.is_ejected().then(|| self.recover(now)).flatten()
    }

    fn fail(&mut self, now: Nanos, cause: Cause) -> Option<Turn> {
        let was_up = self.down.is_none();
        if was_up {
            let flapping = self.returned_at.is_some_and(|at| now.since(at) < FLAP_MEMORY);
            self.rounds_needed = if flapping {
                (self.rounds_needed * 2).min(MAX_ROUNDS_TO_RETURN)
            } else {
                ROUNDS_TO_RETURN
            };
            self.down = Some(cause);
            return Some(Turn::Failed(cause));
        }
        // A dead process outranks a wrong answer: what must recover is what failed last and worst.
        if matches!(cause, Cause::Liveness(_) | Cause::Silence(_) | Cause::Broken) {
            self.down = Some(cause);
        }
        None
    }

    fn recover(&mut self, now: Nanos) -> Option<Turn> {
        if self.held_down {
            self.down = Some(Cause::Balancer);
            return None;
        }
        self.down = None;
        (self.doubted_from, self.failing_from, self.refused) = (None, None, None);
        self.returned_at = Some(now);
        Some(Turn::Returned)
    }
}

#[cfg(test)]
mod tests;
