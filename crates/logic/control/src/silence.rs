//! Who does not answer: set aside until it does, or failed once that has lasted beyond doubt.
//!
//! Whoever is set aside gets nothing, as an overlay over the weights that were decided: they are whole again with
//! its first answer, without a ramp. Ordinary decisions wait meanwhile; it does not last.

use std::time::Duration;

use plimsoll_model::{BackendId, Nanos};

use crate::backend::Backend;
use crate::controller::{Controller, Urgent, record};
use crate::event::{Action, RecordKind};
use crate::health::Cause;
use crate::plan::Decision;

/// A silence counts as one of several at once from this part of the time on after which it is set aside.
const SUSPECT: f64 = 0.5;
/// Who answered within this time has traffic.
const LATELY: Duration = Duration::from_secs(2);

/// What a silence calls for.
enum Verdict {
    Fail,
    SetAside,
    /// Nobody waits there any longer, so that no answer can come: it is asked again, once.
    TryAgain,
    Restore,
}

impl Backend {
    /// The time that what waits there takes it, as far as is known.
    fn backlog(&self) -> Duration {
        let bears = self.knowledge.capacity_rps().unwrap_or(f64::INFINITY);
        Duration::try_from_secs_f64(f64::from(self.in_flight) / bears).unwrap_or(Duration::MAX)
    }

    /// After so long without an answer it counts as failed.
    pub(crate) fn failed_after(&self, now: Nanos) -> Duration {
        self.life.failed_after(now, self.backlog())
    }

    fn is_silent_for(&self, part: f64, now: Nanos) -> bool {
        self.life.silent().is_some_and(|silent| silent >= self.life.aside_after(now).mul_f64(part))
    }

    fn judge_silence(&self, now: Nanos) -> Option<Verdict> {
        let Some(silent) = self.life.silent() else {
            return self.aside.then_some(Verdict::Restore);
        };
        if silent >= self.failed_after(now) {
            return Some(Verdict::Fail);
        }
        if self.aside {
            let again = if self.tried { Verdict::Fail } else { Verdict::TryAgain };
            return (self.in_flight == 0).then_some(again);
        }
        (silent >= self.life.aside_after(now)).then_some(Verdict::SetAside)
    }
}

impl Controller {
    /// Looks after every reading who has not answered for how long.
    pub(crate) fn judge_silence(&mut self, now: Nanos, out: &mut Vec<Action>) {
        self.fail_broken(now, out);
        if self.is_silence_shared(now) {
            let held: Vec<BackendId> = self.aside().map(|b| b.id).collect();
            held.into_iter().for_each(|id| self.restore(id, "so do most others", out));
            return;
        }
        let serves = |b: &&Backend| b.is_usable();
        let mut due: Vec<(Duration, BackendId, Verdict)> = self
            .backends
            .iter()
            .filter(serves)
            .filter_map(|b| {
                Some((b.life.silent().unwrap_or_default(), b.id, b.judge_silence(now)?))
            })
            .collect();
        due.sort_by_key(|(silent, ..)| std::cmp::Reverse(*silent));
        for (silent, id, verdict) in due {
            match verdict {
                Verdict::Fail => {
                    let turn = self.get(id).and_then(|b| b.health.fail_silent(now, silent));
                    self.on_turn(now, id, turn, out);
                }
                Verdict::SetAside => self.set_aside(id, silent, out),
                Verdict::TryAgain => {
                    if let Some(b) = self.get(id) {
                        b.life.wait_anew();
                        b.tried = true;
                    }
                    self.restore(id, "nobody waits there any longer: it is tried again", out);
                }
                Verdict::Restore => self.restore(id, "it answers", out),
            }
        }
        for b in &mut self.backends {
            b.tried &= !b.life.answered_within(now, LATELY);
        }
    }

    /// Whose requests fail at once, one after the other: no check need tell.
    fn fail_broken(&mut self, now: Nanos, out: &mut Vec<Action>) {
        let broken = self.backends.iter().filter(|b| b.is_usable() && b.life.is_broken());
        for id in broken.map(|b| b.id).collect::<Vec<_>>() {
            let turn = self.get(id).and_then(|b| b.health.fail_broken(now));
            self.on_turn(now, id, turn, out);
        }
    }

    /// Most of those with traffic are silent at once: that is laid to none of them.
    fn is_silence_shared(&self, now: Nanos) -> bool {
        let has_traffic =
            |b: &&Backend| b.life.silent().is_some() || b.life.answered_within(now, LATELY);
        let asked: Vec<&Backend> =
            self.backends.iter().filter(|b| b.is_usable()).filter(has_traffic).collect();
        let silent = asked.iter().filter(|b| b.is_silent_for(SUSPECT, now)).count();
        asked.len() > 1 && 2 * silent > asked.len()
    }

    pub(crate) fn aside(&self) -> impl Iterator<Item = &Backend> {
        self.backends.iter().filter(|b| b.aside && b.is_usable())
    }

    fn set_aside(&mut self, id: BackendId, silent: Duration, out: &mut Vec<Action>) {
        if !self.can_spare(id) {
            return;
        }
        let Some(b) = self.get(id) else { return };
        b.aside = true;
        let name = b.name.clone();
        let reason =
            format!("no answer for {:.1} s, and {} wait", silent.as_secs_f64(), b.in_flight);
        record(out, RecordKind::SetAside, Some(&name), reason.clone());
        self.trial = None;
        self.search = None;
        self.raise(Urgent::Silence(format!("{name} is set aside: {reason}")));
    }

    fn restore(&mut self, id: BackendId, why: &str, out: &mut Vec<Action>) {
        let Some(b) = self.get(id).filter(|b| b.aside) else { return };
        b.aside = false;
        let name = b.name.clone();
        record(out, RecordKind::Restored, Some(&name), why.to_owned());
        self.raise(Urgent::Silence(format!("{name} is restored: {why}")));
    }

    /// Whether the others can carry the traffic. Who is not known counts as the mean of those who are; while
    /// nobody is, half of the pool has to do.
    fn can_spare(&self, id: BackendId) -> bool {
        let members: Vec<&Backend> = self.backends.iter().filter(|b| b.is_usable()).collect();
        let left: Vec<&Backend> =
            members.iter().copied().filter(|b| b.id != id && !b.aside).collect();
        let holds = |b: &&Backend| b.wanted.weight > 0 || b.programmed.is_some_and(|w| w > 0);
        // The loss of one more must not be the loss of all.
        if left.iter().filter(|b| holds(b)).count() < left.len().min(2) || left.is_empty() {
            return false;
        }
        let known: Vec<f64> = members.iter().filter_map(|b| b.knowledge.capacity_rps()).collect();
        if known.is_empty() {
            return 2 * left.len() >= members.len();
        }
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        let room: f64 = left.iter().map(|b| b.knowledge.capacity_rps().unwrap_or(mean)).sum();
        room > self.rate()
    }

    /// The decision with nothing for those who are set aside, unless that leaves nobody.
    pub(crate) fn less_those_aside(&self, decision: &Decision) -> Decision {
        let is_aside = |id| self.aside().any(|b| b.id == id);
        let kept = || decision.wishes.iter().filter(|w| !is_aside(w.id));
        let sum: f64 = kept().map(|w| w.share).sum();
        let mut decision = decision.clone();
        if sum <= 0.0 || kept().all(|w| w.weight == 0) {
            return decision;
        }
        for wish in &mut decision.wishes {
            if is_aside(wish.id) {
                (wish.share, wish.weight, wish.expected_us) = (0.0, 0, None);
                "set aside: it does not answer at the moment".clone_into(&mut wish.reason);
            } else {
                wish.share /= sum;
            }
        }
        decision
    }
}

impl Cause {
    /// For people: a silence of so long.
    pub(crate) fn silence(silent: Duration) -> Cause {
        Cause::Silence(u32::try_from(silent.as_millis()).unwrap_or(u32::MAX))
    }
}
