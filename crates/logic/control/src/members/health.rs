//! Health of one backend: answers to clients, liveness checks where there are none, probes of the work URL, and the
//! share of errors that the balancer counts. A backend that fails fast looks fast, so errors never count as latency.

use std::time::Duration;

use crate::tuning::members::health::{
    ERROR_DECAY, ERROR_SHARE, FIRST_EJECTION, FLAP_MEMORY, LONGEST_EJECTION, MAX_PROBES_TO_RETURN,
    MAX_ROUNDS_TO_RETURN, MIN_ERRORS, OUTVOTED_AFTER, PROBES_TO_FAIL, ROUNDS_TO_RETURN,
    TIMEOUTS_TO_FAIL,
};
use plimsoll_model::{FailureKind, Nanos, Outcome};

/// Why a backend does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Liveness checks failed.
    Liveness(Option<FailureKind>),
    /// Requests waited for this many milliseconds and none was answered.
    Silence(u32),
    /// Consecutive requests fail immediately.
    Broken,
    /// The balancer's own health check reports it down.
    Balancer,
    /// The work URL does not give the expected answer.
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

/// Failures that a dead process or host causes, and a slow one does not.
fn is_death(kind: Option<FailureKind>) -> bool {
    matches!(kind, Some(FailureKind::Refused | FailureKind::Reset))
}

/// A wrong answer is an answer: no dead process gives one.
fn is_an_answer(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Status | FailureKind::Body | FailureKind::Protocol)
}

/// One round of liveness checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub started: Nanos,
    pub successes: u32,
    /// Why the first failed check failed.
    pub why: Option<FailureKind>,
    /// Clients get answers or wait for one, which is stronger evidence.
    pub doubted: bool,
    /// Clients get answers and lose no request: then even a refused check does not prove death.
    pub contradicted: bool,
    /// Time-outs must last this long before a backend counts as failed: it may be slow.
    pub patience: Duration,
    /// Nobody configured the check: it is a connection to the address that is known, which need not lead there from
    /// where Plimsoll runs.
    pub bare: bool,
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
    /// The balancer's own check reports it down: the balancer sends it nothing, whatever other evidence says.
    held_down: bool,
    /// A check has succeeded from here. Until one has, failed bare connections tell of the way there, not of the backend.
    reached: bool,
    /// Since when checks have failed without proof of death.
    doubted_from: Option<Nanos>,
    /// When the first of the consecutive failed checks began.
    failing_from: Option<Nanos>,
    /// The last refused check that was not believed because clients got answers.
    refused: Option<(Nanos, Option<FailureKind>)>,
    good_rounds: u32,
    good_round_began: Nanos,
    rounds_needed: u32,
    returned_at: Option<Nanos>,
    work_failures: u32,
    work_successes: u32,
    ever_worked: bool,
    last_work_failure: Option<FailureKind>,
    /// Enough probes of the work URL failed that it counts as failed, whatever else is wrong with it; as many successes
    /// end that.
    work_broken: Option<FailureKind>,
    errors: f64,
    answers: f64,
    /// Its checks do not return it before this time, because clients found it failing.
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

    /// It is down for a reason that a slow or hung backend has as well.
    pub fn is_doubtful(&self) -> bool {
        matches!(self.down, Some(Cause::Silence(_) | Cause::Work(_) | Cause::Liveness(_)))
            && !matches!(self.down, Some(Cause::Liveness(why)) if is_death(why))
            && !self.held_down
    }

    /// It was ejected for its errors.
    pub fn is_ejected(&self) -> bool {
        self.down == Some(Cause::Errors)
    }

    /// Whether a probe of the work URL has ever succeeded.
    pub fn ever_worked(&self) -> bool {
        self.ever_worked
    }

    /// Processes a round of checks. One that began before a later successful one is ignored. Failures that a slow
    /// backend causes as well count only after `patience`, and never while `doubted`: clients get answers, or wait for
    /// one.
    pub fn liveness(&mut self, now: Nanos, round: &Round) -> Option<Turn> {
        let Round { started, successes, why, .. } = *round;
        if started < self.good_round_began {
            return None;
        }
        if successes > 0 {
            self.good_round_began = started;
            self.reached = true;
            (self.doubted_from, self.failing_from, self.refused) = (None, None, None);
        }
        if successes == 0 {
            self.good_rounds = 0;
            self.failing_from.get_or_insert(started);
            if round.bare && !self.reached {
                return None;
            }
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
            // The probes that were refused or timed out before met the dead process.
            self.forget_work();
        }
        self.good_rounds = self.good_rounds.saturating_add(1);
        match self.down {
            // It is alive again; whether its work URL answers is checked below.
            Some(Cause::Liveness(_) | Cause::Silence(_) | Cause::Broken)
                if self.good_rounds >= self.rounds_needed && !self.is_barred(now) =>
            {
                self.down = self.work_broken.map(Cause::Work);
                if self.down.is_none() { self.recover(now) } else { None }
            }
            _ => None,
        }
    }

    /// Whether clients found it failing too recently for its checks to return it.
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

    /// Whether clients got an answer at this time although checks failed before and after it.
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

    /// No request has been answered for so long that it counts as failed.
    pub fn fail_silent(&mut self, now: Nanos, silent: Duration) -> Option<Turn> {
        self.good_rounds = 0;
        self.bar(now);
        self.fail(now, Cause::silence(silent))
    }

    /// Consecutive requests failed immediately.
    pub fn fail_broken(&mut self, now: Nanos) -> Option<Turn> {
        self.good_rounds = 0;
        self.bar(now);
        self.fail(now, Cause::Broken)
    }

    /// It failed for its silence or for checks that timed out, and has answered a client since: it had paused.
    pub fn answered(&mut self, now: Nanos) -> Option<Turn> {
        let paused = match self.down {
            Some(Cause::Silence(_)) => true,
            Some(Cause::Liveness(why)) => !is_death(why),
            _ => false,
        };
        paused.then(|| self.recover(now)).flatten()
    }

    /// Whether a check has succeeded from here.
    pub fn is_reached(&self) -> bool {
        self.reached
    }

    /// An earlier controller knew whether a check had.
    pub fn recall(&mut self, reached: bool) {
        self.reached = reached;
    }

    /// The balancer's own check passes. Where that lasts although bare connections from here fail, what they meet is not
    /// the backend. One that failed clients, and that no check from here could return, is returned by it.
    pub fn vouched_for(&mut self, now: Nanos) -> Option<Turn> {
        if self.is_unseen() && now >= self.barred_until {
            return self.recover(now);
        }
        let from = self.failing_from.filter(|_| matches!(self.down, Some(Cause::Liveness(_))))?;
        if now.since(from) < OUTVOTED_AFTER {
            return None;
        }
        self.reached = false;
        self.recover(now)
    }

    /// Processes the state that the balancer's own check reports.
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

    /// Processes a probe of the work URL. `judged` is false while no backend of the pool gives the expected answer:
    /// then the URL is wrong, not the backend.
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

    /// The last round had no success, but that alone proves nothing.
    pub fn is_doubted(&self) -> bool {
        self.doubted_from.is_some()
    }

    /// How the work URL fails at present, if it does.
    pub fn work_failure(&self) -> Option<FailureKind> {
        self.last_work_failure.filter(|_| self.work_failures >= PROBES_TO_FAIL)
    }

    /// Processes the answers of a window.
    pub fn answers(&mut self, completed: f64, errors: f64) {
        self.errors = ERROR_DECAY * self.errors + errors;
        self.answers = ERROR_DECAY * self.answers + completed + errors;
    }

    /// Lets the share of errors decay over a time without readings.
    pub fn fade(&mut self, seconds: f64) {
        let kept = ERROR_DECAY.powf(seconds);
        self.errors *= kept;
        self.answers *= kept;
    }

    /// The recent share of errors, once there are enough to judge.
    pub fn error_share(&self) -> f64 {
        if self.errors >= MIN_ERRORS { self.errors / self.answers.max(1.0) } else { 0.0 }
    }

    /// Whether its share of errors calls for ejection, if the pool can carry its traffic.
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

    /// It failed clients, and no check from here will tell that it works again.
    fn is_unseen(&self) -> bool {
        !self.reached && matches!(self.down, Some(Cause::Silence(_) | Cause::Broken))
    }

    /// Returns it from ejection after its time, if its probes, where there are any, succeed. Where nothing of the pool
    /// can be reached from here, one that failed clients returns in the same way.
    pub fn end_ejection(&mut self, now: Nanos, reaches_none: bool) -> Option<Turn> {
        let needed =
            if self.ever_worked { self.rounds_needed.min(MAX_PROBES_TO_RETURN) } else { 0 };
        let works = self.work_failures == 0 && self.work_successes >= needed;
        let unseen = reaches_none && self.is_unseen();
        ((self.is_ejected() || unseen) && now >= self.barred_until && works)
            .then(|| self.recover(now))
            .flatten()
    }

    /// Consecutive successful rounds since it failed its liveness checks; none while the balancer reports it down,
    /// because it would get nothing.
    pub fn rounds_passed(&self) -> Option<u32> {
        let by_life =
            matches!(self.down, Some(Cause::Liveness(_) | Cause::Silence(_) | Cause::Broken));
        let alive = by_life && !self.held_down;
        (alive && self.good_rounds > 0).then_some(self.good_rounds)
    }

    /// Consecutive successful probes since it failed at its work, if there are as many as a backend that does not flap
    /// needs.
    fn works_again(&self) -> Option<u32> {
        let failed_at_work = matches!(self.down, Some(Cause::Work(_) | Cause::Errors));
        let works = failed_at_work && !self.held_down && self.work_successes >= PROBES_TO_FAIL;
        works.then_some(self.work_successes)
    }

    /// How much evidence there is that it works, for the case that no backend serves.
    pub fn evidence(&self) -> Option<u32> {
        self.works_again().or_else(|| self.rounds_passed())
    }

    /// Returns it without the extra rounds and probes that flapping requires.
    pub fn return_at_once(&mut self, now: Nanos) -> Option<Turn> {
        if self.works_again().is_none() {
            self.rounds_passed()?;
            self.forget_work();
        }
        self.recover(now)
    }

    /// Returns an ejected backend that the pool needs.
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
        // A dead process outranks a wrong answer: recovery must show that the last and worst failure is over.
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
