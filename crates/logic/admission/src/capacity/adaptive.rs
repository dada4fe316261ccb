//! The default capacity: the number of requests that the application can work on at once, plus a small
//! allowance. It neither ratchets down nor lets the queue grow.
//!
//! `limit = cores + allowance` on a request's last try, less before ([`escalation`]), the cores from latency
//! ([`Knee`]), from how requests overtake ([`Overtaking`]) and, where requests are refused, from trials of two limits
//! ([`Trials`]), the allowance from what refusing costs ([`Allowance`](super::allowance)). Latency as such is not held against a goal or a best value seen
//! once, as gradient methods do (Netflix' concurrency-limits, Envoy's adaptive concurrency): an
//! application that slows down has as many cores as before, so the limit stays, and what is refused is
//! only what it cannot do. With [`AdaptiveOptions::max_wait_ms`] as many may wait as wait no longer than that,
//! `cores · max_wait / s`, in place of the allowance; an application that slows down has fewer waiting then.
//!
//! Where the refused come again at once all are let in for whom a line of some seconds is enough ([`Returning`]); nothing is
//! learned meanwhile, for what is in flight does not vary.
//!
//! * A number of cores that is contradicted gives way to the best one.
//! * Where no queue was ever seen there may be any number of cores. Requests being refused, a trial of
//!   twice the limit is made: throughput rises with it, and the limit does, or it does not, and a
//!   queue was seen.
//! * Where refusals go on and the plausible numbers differ by a factor of two, a trial between them
//!   decides; and now and then one is made anyway, of less or, where latency knows no bound, of more:
//!   latency tells nothing where what is in flight never varies.
//! * Where nobody overtakes more than some requests, these are the cores, unless latency contradicts that many, and
//!   trials would only cost: half of one goes by with too low a limit for what has run out of tries, the other half
//!   with a queue. Latency alone does not lower them: where few requests take most of the time, that took eight cores
//!   for one now and then, and as no trial was made, for a minute: what the others had no room for came again.
//!
//! Cost: O(1) per event, O(candidates) per review, no allocation.

use super::AdaptiveOptions;
use super::allowance::Allowance;
use super::escalation;
use super::grid::{CANDIDATES, EQUAL, cores, position};
use super::knee::Knee;
use super::overtaking::Overtaking;
use super::returning::Returning;
use super::trial::Trials;

/// Squared standard deviations within which a number of cores is plausible.
const PLAUSIBLE: f64 = 4.0;
/// And within which it is as good as any.
const AS_GOOD: f64 = 1.0;
/// As many cores as are overtaken on are believed unless latency says so much more against them than against others.
const BY_PLACE: f64 = 1.5;
/// What is known is reviewed after so many completions, or as many as may be in flight if that is more.
pub const REVIEW: u32 = 64;
/// Numbers of cores that differ by this factor are to be distinguished, and those that do by its square
/// at once.
const APART: f64 = 2.0;
/// Reviews between trials that are to tell numbers apart.
const BETWEEN: u32 = 8;
/// Reviews after which one is made anyway.
const BETWEEN_ANYWAY: u32 = 32;
/// Trials are made where at least one request in so many was refused.
const BINDING: u32 = 16;
/// What is tried where any number of cores is plausible, and where only latency says so.
const MORE: f64 = 2.0;
const A_LITTLE_MORE: f64 = 1.5;
/// One more than two is too small a step to be seen.
const LEAST_MORE: u32 = 2;
/// Cores that differ by less than this factor leave the allowance as it is.
const SAME_CORES: f64 = 1.5;

/// Which numbers of cores agree with all that was seen.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    best: f64,
    /// The least and the greatest; infinite where no queue was seen.
    plausible: (f64, f64),
    /// The same by trials alone.
    by_trials: (f64, f64),
    /// Any number is as good as the best: throughput rises with the limit.
    rises: bool,
    /// As far as latency and overtaking tell.
    flat: bool,
    /// The present number is as good as the best.
    holds: bool,
    /// Nobody overtakes more than some: there is nothing to try.
    in_turn: bool,
}

/// Learns how many requests an application may have; see the module's description.
#[derive(Clone, Debug)]
pub struct Adaptive {
    options: AdaptiveOptions,
    cores: f64,
    allowance: Allowance,
    trials: Trials,
    overtaking: Overtaking,
    returning: Returning,
    /// A queue was seen at least once.
    queue_seen: bool,
    /// Requests were refused since the last review.
    refused: u32,
    completions_since_review: u32,
    reviews_since_trial: u32,
    /// The last trial made anyway was one of more.
    upwards: bool,
    service_s: Option<f64>,
}

impl Adaptive {
    /// Knows nothing but what it is to begin with.
    pub fn new(options: AdaptiveOptions) -> Self {
        let cores = f64::from(options.first_cores);
        Adaptive {
            options,
            cores,
            allowance: Allowance::new(cores, &options),
            trials: Trials::new(),
            overtaking: Overtaking::new(),
            returning: Returning::default(),
            queue_seen: false,
            refused: 0,
            completions_since_review: 0,
            reviews_since_trial: 0,
            upwards: false,
            service_s: None,
        }
    }

    /// Cores, once a queue was seen: before, there may be any number.
    pub(crate) fn cores(&self) -> Option<f64> {
        self.queue_seen.then_some(self.cores)
    }

    /// Requests that may be in flight for one with so many tries left. A trial needs one limit for all.
    pub fn limit(&self, tries_left: u32) -> u32 {
        if let Some(held) = self.returning.limit() {
            return held.min(self.options.most);
        }
        let line = || match self.may_wait() {
            // Whoever rather waits than is refused does not have to try elsewhere first.
            Some(_) => self.own_limit(),
            None => escalation::line(self.cores, tries_left, self.own_limit()),
        };
        self.trials.limit().unwrap_or_else(line)
    }

    /// So many were in flight for so long.
    pub(crate) fn pass(&mut self, in_flight: u32, seconds: f64) {
        self.trials.pass(in_flight, seconds, self.service_s);
        self.returning.pass(in_flight, seconds);
        if let Some(service_s) = self.service_s.filter(|_| !self.in_trial()) {
            self.allowance.pass(self.cores, f64::from(in_flight), seconds, service_s);
        }
    }

    /// A request was admitted; its turn.
    pub(crate) fn enter(&mut self) -> u64 {
        self.overtaking.enter()
    }

    /// The request of this turn is no longer in flight, where so many were with it; whether it was answered.
    pub(crate) fn leave(&mut self, turn: u64, in_flight: u32, answered: bool) {
        let place = self.overtaking.leave(turn);
        if let Some(place) = place.filter(|_| answered) {
            self.overtaking.observe(in_flight, place);
        }
    }

    /// A request was refused; for good, if it is not going to be tried elsewhere.
    pub(crate) fn refuse(&mut self, for_good: bool) {
        self.refused += 1;
        self.trials.refused();
        if for_good {
            self.allowance.refused(self.cores);
            self.returning.refused();
        }
        if !self.queue_seen && !self.holds_all() {
            self.try_more(MORE);
        }
    }

    /// The application is done with a request.
    pub(crate) fn complete(&mut self, knee: &Knee) {
        if !self.in_trial() {
            self.allowance.complete(self.cores);
        }
        // Who says how long requests may wait is not to be outdone.
        if self.options.max_wait_ms.is_none() {
            self.returning.complete(self.own_limit());
        }
        if self.holds_all() {
            self.trials.stop();
        }
        if let Some(high) = self.trials.complete(knee.variation()) {
            self.reviews_since_trial = 0;
            let verdict = self.verdict(knee);
            if verdict.rises {
                self.believe(f64::from(high).max(self.cores));
            }
            self.conclude(verdict);
        }
        self.completions_since_review += 1;
        if self.completions_since_review >= REVIEW.max(self.own_limit()) {
            self.completions_since_review = 0;
            self.reviews_since_trial += 1;
            self.review(knee);
        }
    }

    fn review(&mut self, knee: &Knee) {
        if self.holds_all() {
            // The limit is what sets the number in flight: latency tells nothing.
            return;
        }
        let verdict = self.verdict(knee);
        self.conclude(verdict);
        self.service_s = knee.service_with(position(self.cores as u32));
        let refused = std::mem::take(&mut self.refused);
        let waited = self.reviews_since_trial;
        if verdict.in_turn {
            return;
        }
        if verdict.plausible.1.is_infinite() {
            if refused > 0 && (verdict.rises || waited >= BETWEEN) {
                self.try_more(MORE);
            }
            return;
        }
        // Where the limit hardly ever binds a trial would find nothing, and refuse for nothing.
        if refused < REVIEW.max(self.own_limit()) / BINDING {
            return;
        }
        let (all, trials) = (verdict.plausible, verdict.by_trials);
        let limit = f64::from(self.own_limit());
        let apart = |(least, most): (f64, f64)| most.min(limit) / least;
        let between = |(least, most): (f64, f64)| (least * most.min(limit)).sqrt() as u32;
        if apart(all) >= APART * APART || apart(all) >= APART && waited >= BETWEEN {
            self.try_less(between(all));
        } else if apart(trials) >= APART * APART && waited >= BETWEEN {
            self.try_less(between(trials));
        } else if waited >= BETWEEN_ANYWAY {
            self.upwards = !self.upwards && verdict.flat;
            if self.upwards {
                self.try_more(A_LITTLE_MORE);
            } else {
                self.try_less(self.own_limit().div_ceil(2));
            }
        }
    }

    fn own_limit(&self) -> u32 {
        let waiting = self.may_wait().unwrap_or_else(|| self.allowance.amount());
        ((self.cores + waiting).round() as u32).clamp(1, self.options.most)
    }

    /// How many may wait where it is said how long, once it is known how long one takes.
    fn may_wait(&self) -> Option<f64> {
        let wait_s = self.options.max_wait_ms? as f64 / 1e3;
        Some(self.cores * wait_s / self.service_s.filter(|s| *s > 0.0)?)
    }

    /// Clients come again at once, and wait.
    fn holds_all(&self) -> bool {
        self.returning.limit().is_some()
    }

    fn in_trial(&self) -> bool {
        self.trials.limit().is_some()
    }

    fn try_more(&mut self, factor: f64) {
        let limit = self.own_limit();
        let high = (f64::from(limit) * factor).ceil() as u32;
        let high = high.max(limit.saturating_add(LEAST_MORE)).min(self.options.most);
        if high > limit {
            self.trials.begin(limit, high);
        }
    }

    fn try_less(&mut self, low: u32) {
        let limit = self.own_limit();
        if limit < 2 {
            return self.try_more(MORE);
        }
        self.trials.begin(low.clamp(1, limit - 1), limit);
    }

    /// What trials allow, and of that what latency and overtaking say: trials hold for shared processors too.
    fn verdict(&self, knee: &Knee) -> Verdict {
        let trials = self.trials.misfits();
        let turns = self.overtaking.misfits(knee.variation(), knee.reach());
        let seen = |k: usize| knee.misfits().at(k) + turns[k];
        let allowed = |k: &usize| trials.at(*k) <= PLAUSIBLE;
        let least = (0..CANDIDATES).filter(allowed).map(seen);
        let least = least.fold(f64::INFINITY, f64::min);
        let within =
            |off: f64| move |k: &usize| trials.at(*k) <= PLAUSIBLE && seen(*k) - least <= off;
        let top = CANDIDATES - 1;
        let in_turn = turns[top] >= PLAUSIBLE;
        let in_place = |k: &usize| turns[*k] <= AS_GOOD && within(BY_PLACE)(k);
        let most_in_place = (0..CANDIDATES).rev().find(in_place).filter(|_| in_turn);
        let best = most_in_place.or((0..CANDIDATES).find(within(EQUAL))).unwrap_or(0);
        let range = |plausible: &dyn Fn(&usize) -> bool| {
            let least = (0..CANDIDATES).find(plausible).unwrap_or(0);
            let most = (0..CANDIDATES).rev().find(plausible).unwrap_or(top);
            (cores(least), if most == top { f64::INFINITY } else { cores(most) })
        };
        Verdict {
            best: cores(best),
            plausible: range(&within(PLAUSIBLE)),
            by_trials: range(&allowed),
            rises: within(AS_GOOD)(&top) && trials.at(top) <= AS_GOOD,
            flat: seen(top) <= AS_GOOD,
            holds: match most_in_place {
                Some(most) => most == position(self.cores as u32),
                None => within(AS_GOOD)(&position(self.cores as u32)),
            },
            in_turn,
        }
    }

    fn conclude(&mut self, verdict: Verdict) {
        let bounded = verdict.plausible.1.is_finite();
        self.queue_seen |= bounded;
        // Where there may be any number there is no reason to go down.
        if !verdict.holds && (bounded || verdict.best > self.cores) {
            self.believe(verdict.best);
        }
    }

    fn believe(&mut self, cores: f64) {
        let ratio = (cores / self.cores).max(self.cores / cores);
        self.cores = cores;
        if ratio >= SAME_CORES {
            self.allowance.restart(cores);
        }
    }
}
