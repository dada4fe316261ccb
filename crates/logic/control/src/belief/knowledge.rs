//! What is known of one backend: its service time, its cores, and its response time as a function of load.
//!
//! Two estimators work side by side. The *throughput* over the number in flight (`X = v·E[min(n, c)]`) gives service
//! time, cores and capacity, and needs no overload. The *points* (rate, response time by Little's law) give the curve:
//! a queue with these cores, scaled by the variability of the load, unless a fitted family predicts left-out points
//! clearly better.

use plimsoll_learn::drift::{Change, Interval};
use plimsoll_learn::{
    CapacityHint, CurveFit, Dispersion, Family, FitOptions, Hints, IdleLatency, InFlightWindow,
    Point, Throughput, ThroughputEstimator, ThroughputOptions, fit, from_averages,
};
use plimsoll_model::Curve;
use plimsoll_queueing::QueueCurve;
use serde::{Deserialize, Serialize};

use crate::belief::grain::{Grain, Moved, Quota};
use crate::belief::points::Points;
use crate::belief::shape::Shape;
use crate::belief::typical::Typical;
use crate::belief::unloaded::{Rescaled, UnloadedProbes};
use crate::belief::variability::Waits;
use crate::observe::traffic::Window;
use crate::spec::CurveChoice;
use crate::tuning::belief::grain::SLOW_US;
use crate::tuning::belief::knowledge::{
    ALIKE_REQUESTS, CLEARLY_BETTER, ENOUGH, GROWN, KNOWN, LEAST_CREEP, LEAST_IS_NEAR,
    LIKE_THE_OTHERS, NEVER_US, NOISE, OPTIMISM, RELEARNED_REQUESTS, RESCALED_ERROR, RESCALED_POINT,
    RESCALED_REQUESTS, RESIDUAL_LIMIT, SAME_CAPACITY, SURE,
};
use crate::tuning::belief::variability::PRIOR_REQUESTS;

/// The traffic that the programmed weights should give a backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Setting {
    /// Its part of the weights times the pool's rate, once known.
    pub rps: Option<f64>,
    /// Arrivals do not depend on the number in flight.
    pub is_split: bool,
}

impl Setting {
    /// The expected rate under a split, if the observed rate differs from it by no more than noise: then traffic has
    /// not just changed, and the balancer follows its weights.
    fn followed_rps(&self, rate_rps: f64, seconds: f64) -> Option<f64> {
        let is_near = |rps: &f64| (rate_rps - rps).abs() <= NOISE * (rps / seconds).sqrt();
        self.rps.filter(|_| self.is_split).filter(is_near)
    }
}

/// What is known of one backend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Knowledge {
    throughput: ThroughputEstimator,
    estimate: Option<Throughput>,
    /// Its service rate has changed: the old estimate holds until there are enough new measurements.
    #[serde(default)]
    changed: bool,
    /// Cores that were inferred with certainty: believed until they are contradicted.
    #[serde(default)]
    sure_cores: Option<f64>,
    /// Dispersion of the service times by this backend's own measurements, once known.
    #[serde(default)]
    own_dispersion: Option<Dispersion>,
    /// Dispersion of the service times by the pool's backends, once several know theirs.
    #[serde(skip)]
    dispersion: Option<Dispersion>,
    #[serde(flatten)]
    points: Points,
    at_rest: UnloadedProbes,
    /// Unloaded service time that is typical of the pool's faster backends.
    typical_us: Option<f64>,
    /// The least response time of a window, microseconds.
    least_us: f64,
    #[serde(default)]
    least_strayed: Rescaled,
    /// Request-seconds and requests since the least response time was last taken.
    gathered: (f64, f64),
    /// There were windows since the last estimate.
    stale: bool,
    /// The last window was made from means: the estimate is made from points alone.
    #[serde(skip)]
    averaged: bool,
    /// Estimator of a CPU quota.
    #[serde(default)]
    grain: Grain,
    variability: f64,
    /// Variability by this backend's own measurements alone.
    own_variability: f64,
    shape: Option<Shape>,
    cv_error: Option<f64>,
}

impl Default for Knowledge {
    fn default() -> Self {
        Knowledge {
            throughput: ThroughputEstimator::new(ThroughputOptions::default()),
            estimate: None,
            changed: false,
            sure_cores: None,
            own_dispersion: None,
            dispersion: None,
            points: Points::default(),
            at_rest: UnloadedProbes::default(),
            typical_us: None,
            least_us: NEVER_US,
            least_strayed: Rescaled::default(),
            gathered: (0.0, 0.0),
            stale: false,
            averaged: false,
            grain: Grain::default(),
            variability: 1.0,
            own_variability: 1.0,
            shape: None,
            cv_error: None,
        }
    }
}

/// A capacity that was once observed stays known while nothing contradicts it.
fn kept(fresh: Option<Throughput>, old: Option<Throughput>) -> Option<Throughput> {
    match (fresh, old) {
        (Some(f), Some(old)) if f.lower_bound && !old.lower_bound => {
            Some(if f.capacity_rps > GROWN * old.capacity_rps { f } else { old })
        }
        (f, old) => f.or(old),
    }
}

/// The part of a window that the throughput estimator uses.
fn observed(window: &Window, setting: Setting) -> InFlightWindow {
    InFlightWindow {
        seconds: window.seconds,
        completions: window.completed,
        levels: window.seen.clone(),
        setting: setting.rps,
        lagged: window.lagged.clone(),
        // Under an in-flight method the number in flight long before shows nothing.
        long_lagged: setting.is_split.then(|| window.long_lagged.clone()),
    }
}

impl Knowledge {
    /// Processes a window of traffic. `setting` is what the programmed weights should give the backend, `typical_us`
    /// the pool's unloaded service time. `steady` is false shortly after a change of weights, when response times still
    /// show the load before it.
    pub fn observe(
        &mut self,
        window: &Window,
        steady: bool,
        setting: Setting,
        typical_us: Option<f64>,
    ) {
        self.typical_us = typical_us;
        if window.completed <= 0.0 && window.in_flight == 0.0 {
            return;
        }
        self.averaged = window.is_averaged;
        // A window that makes no sense (its clock stood still) is ignored.
        self.stale |= self.averaged || self.throughput.observe(&observed(window, setting)).is_ok();
        self.note_least(window);
        // Of means, only the points show an overload: what grows then is a queue that is served at full speed.
        let stationary = self.averaged || window.growth.abs() <= 3.0 + 0.2 * window.started;
        let latency_us = window.latency_us().filter(|us| *us > 0.0);
        if let Some(latency_us) =
            latency_us.filter(|_| steady && stationary && window.started >= 1.0)
        {
            let load = window.rate_rps();
            let expected_rps = setting.followed_rps(load, window.seconds).unwrap_or(load);
            self.points.add(expected_rps, Point { load, latency_us, requests: window.started });
        }
    }

    /// A capacity that was once observed stays known while nothing contradicts it: at low load the same estimator gives
    /// a lower bound only.
    fn take_estimate(&mut self) {
        if self.averaged {
            let fresh = from_averages(self.points.as_slice(), self.rested());
            self.estimate = kept(fresh, self.estimate);
            return;
        }
        let seen = self.throughput.completions();
        if self.changed && seen < RESCALED_REQUESTS && self.estimate.is_some() {
            return;
        }
        // Certain cores hold until they are contradicted: a change of the rate rarely changes them, and an estimate
        // that changes every time is no baseline. Uncertain ones do not hold: they are often too few, which would
        // underestimate the capacity for good.
        let fresh = self.throughput.estimate(Hints {
            service: self.service_hint(),
            cores: self.sure_cores,
            dispersion: self.dispersion,
        });
        if let Some(f) = fresh {
            if f.margin >= SURE {
                self.sure_cores = Some(f.cores);
            } else if self.sure_cores.is_some_and(|cores| cores != f.cores) {
                self.sure_cores = None;
            }
        }
        self.estimate = kept(fresh, self.estimate);
        // The dispersion stays known until it is estimated again, with the present estimate of the cores.
        let cores = self.estimate.map(|estimate| estimate.cores);
        let dispersion = cores.and_then(|cores| self.throughput.dispersion(cores));
        self.own_dispersion =
            dispersion.filter(|dispersion| dispersion.is_known).or(self.own_dispersion);
    }

    /// The unloaded service time by other evidence, microseconds, with its relative standard deviation: by probes of
    /// the idle backend, whose service times may scatter as much as their mean, or else by the other backends, which do
    /// the same work on other machines.
    fn service_hint(&self) -> Option<(f64, f64)> {
        let scatter = self.scatter();
        if let Some(rested) = self.rested() {
            return Some(rested);
        }
        // The unloaded service time is at most the response time under load.
        let others = self.typical_us.filter(|us| *us < self.least_us);
        match others {
            // The least mean of a few requests is the further below the true mean the more service times scatter.
            Some(us) => Some((us, LIKE_THE_OTHERS * scatter)),
            None => (self.least_us < NEVER_US).then_some((self.least_us, LEAST_IS_NEAR * scatter)),
        }
    }

    /// The mean of enough probes of the idle backend, with its relative standard deviation.
    fn rested(&self) -> Option<(f64, f64)> {
        let deviation = (self.scatter() / self.at_rest.count.sqrt()).max(0.05);
        (self.at_rest.count >= 5.0).then_some((self.at_rest.mean_us, deviation))
    }

    /// Relative standard deviation of a service time, at least that of an exponential one.
    fn scatter(&self) -> f64 {
        self.dispersion.map_or(1.0, |dispersion| dispersion.ratio.max(1.0).sqrt())
    }

    /// Dispersion of the service times by this backend's own measurements, once known. With too few cores it is too
    /// small.
    pub fn own_dispersion(&self) -> Option<Dispersion> {
        self.own_dispersion
    }

    /// Updates the least response time; each is a mean over enough requests that noise does not make it.
    fn note_least(&mut self, window: &Window) {
        if !window.is_timed {
            return;
        }
        self.gathered.0 += window.request_seconds();
        self.gathered.1 += window.started;
        if self.gathered.1 >= ENOUGH {
            let latency_us = self.gathered.0 / self.gathered.1 * 1e6;
            self.gathered = (0.0, 0.0);
            self.least_us = (self.least_us * LEAST_CREEP).min(NEVER_US);
            // Readings that never met a request in flight show no time.
            let is_least = latency_us <= self.least_us || self.least_us <= 0.0;
            if latency_us > 0.0 && is_least {
                (self.least_us, self.least_strayed) = (latency_us, Rescaled::default());
            }
        }
    }

    /// Processes a successful probe of an almost idle backend.
    pub fn observe_unloaded(&mut self, latency_us: f64) {
        self.at_rest.note(latency_us);
        if self.estimate.is_none() {
            self.take_estimate();
        }
        self.stale = true;
    }

    /// Processes the interval between two readings; returns a change of the capacity under its quota, once it has
    /// lasted for this many seconds of work.
    pub fn note_interval(&mut self, interval: &Interval, lasting_s: f64) -> Option<Moved> {
        let service_us = self.estimate.map(|e| e.service_us);
        self.grain.note(interval, service_us, lasting_s)
    }

    /// Whether its own work shows a CPU quota.
    pub fn is_held(&self) -> bool {
        self.grain.is_held()
    }

    /// Whether it has a quota, or others of its pool have.
    pub fn may_be_held(&self) -> bool {
        self.grain.may_be_held()
    }

    /// Whether a request takes longer than a quota's usual period: none would show in how its work proceeds, and a few
    /// requests in flight are a backlog that lasts.
    pub fn is_slow(&self) -> bool {
        self.service_us().is_some_and(|us| us > SLOW_US)
    }

    /// The capacity under its quota, where it has one.
    pub fn quota(&self) -> Option<Quota> {
        self.grain.quota()
    }

    /// What its quota gives has changed.
    pub fn take_quota(&mut self, change: &Change) {
        self.grain.take(change.ratio, change.seconds);
        self.stale = true;
    }

    /// What the quotas of most of the pool give has changed.
    pub fn share_quota(&mut self) {
        self.grain.share();
        self.stale = true;
    }

    /// Log likelihood, by its lasting work of the last so many seconds, of this change of the rate against none.
    pub fn nats_for(&self, ratio: f64, seconds: f64) -> f64 {
        self.grain.nats_for(ratio, seconds)
    }

    /// Scales the capacity under its quota by this ratio.
    pub fn rescale_quota(&mut self, ratio: f64) {
        self.grain.rescale(ratio);
    }

    /// The service rate is this multiple of the known one: all measurements are rescaled, and count for little beside
    /// new ones.
    pub fn rescale(&mut self, ratio: f64) {
        self.throughput.reset();
        self.changed = true;
        if let Some(e) = &mut self.estimate {
            e.service_us /= ratio;
            e.capacity_rps *= ratio;
            e.rel_se = e.rel_se.max(RESCALED_ERROR);
        }
        self.points.rescale(ratio, RESCALED_POINT);
        self.at_rest.rescale(ratio);
        self.least_us /= ratio;
        self.least_strayed = self.least_strayed.by(ratio);
        if self.least_strayed.is_far() {
            (self.least_us, self.least_strayed) = (NEVER_US, Rescaled::default());
        }
        self.gathered = (0.0, 0.0);
        self.stale = true;
    }

    /// It may have become faster: earlier measurements count for little beside new ones.
    pub fn relearn(&mut self) {
        self.throughput.fade_to(RELEARNED_REQUESTS);
        self.stale = true;
    }

    /// Estimates everything and fits the curve again. This is the costly part (0.3 to 0.9 ms). `typical` are the
    /// estimates common to the pool's backends.
    pub fn refit(&mut self, choice: CurveChoice, typical: Typical) {
        self.dispersion = typical.dispersion;
        self.grain.assume(typical.quotas);
        if std::mem::take(&mut self.stale) {
            self.take_estimate();
        }
        let Some(service_us) = self.service_us() else { return };
        let part = self.quota().map(|quota| quota.capacity_rps * service_us / 1e6);
        let cores = part.unwrap_or_else(|| self.cores());
        let unit = QueueCurve { service_us, cores, variability: 1.0 };
        let waits = Waits::of(&unit, self.points.as_slice());
        self.own_variability = waits.variability(1.0, PRIOR_REQUESTS);
        self.variability = waits.variability(typical.variability, ALIKE_REQUESTS);
        let queue = QueueCurve { variability: self.variability, ..unit };
        let queue_error = waits.cross_validate();
        // Fitting is costly: it is left out where the queue fits well, or where no family could replace it.
        let misses = queue_error.is_some_and(|e| e > RESIDUAL_LIMIT) && self.is_known();
        let asked = choice != CurveChoice::Auto || misses;
        let fitted = if asked { self.fit_family(choice, service_us) } else { None };
        let (shape, cv_error) = match (choice, fitted) {
            (CurveChoice::Auto, Some(f)) if self.is_clearly_better(&f, queue_error) => {
                (Shape::Fitted(f.curve), f.cv_error)
            }
            (CurveChoice::Auto, _) | (_, None) => (Shape::Queue(queue), queue_error),
            (_, Some(f)) => (Shape::Fitted(f.curve), f.cv_error),
        };
        self.shape = Some(shape);
        self.cv_error = cv_error;
    }

    /// Whether a fitted family should replace the queue: the queue misses its points by more than noise would, the
    /// family does not, and both agree on the capacity. The paper's parabola is never chosen: it has no capacity.
    fn is_clearly_better(&self, fitted: &CurveFit, queue_error: Option<f64>) -> bool {
        let (Some(fitted_error), Some(queue_error)) = (fitted.cv_error, queue_error) else {
            return false;
        };
        let Some(capacity) = self.capacity_rps().filter(|_| self.is_known()) else { return false };
        fitted.family != Family::Poly2
            && queue_error > RESIDUAL_LIMIT
            && fitted_error < CLEARLY_BETTER * queue_error
            && (fitted.curve.capacity() / capacity - 1.0).abs() < SAME_CAPACITY
    }

    fn fit_family(&self, choice: CurveChoice, service_us: f64) -> Option<CurveFit> {
        let about = self.estimate.map(|e| (e.capacity_rps, e.rel_se.max(0.02)));
        let options = FitOptions {
            family: match choice {
                CurveChoice::Auto => None,
                CurveChoice::Hyperbola => Some(Family::Hyperbola),
                CurveChoice::Isotonic => Some(Family::Pchip),
            },
            capacity: CapacityHint {
                about: self
                    .quota()
                    .map(|q| (q.capacity_rps, q.error.max(0.02)))
                    .or(about.filter(|_| !self.is_lower_bound())),
                ..CapacityHint::default()
            },
            idle: Some(IdleLatency { latency_us: service_us, requests: 30.0 }),
        };
        fit(self.points.as_slice(), &options).ok()
    }

    /// The curve, once there is one.
    pub fn shape(&self) -> Option<&Shape> {
        self.shape.as_ref()
    }

    /// The curve to pack with: optimistic where the capacity is only a lower bound, so that packing itself explores;
    /// otherwise reduced by the error of the estimate.
    pub fn shape_to_pack(&self) -> Option<Shape> {
        let shape = self.shape.as_ref()?;
        if self.is_lower_bound() {
            let cores = self.cores() * OPTIMISM;
            let service_us = self.service_us()?;
            return Some(Shape::Queue(QueueCurve {
                service_us,
                cores,
                variability: self.variability,
            }));
        }
        let doubt = self.estimate.map_or(0.0, |_| self.error().min(0.3));
        Some(match shape {
            Shape::Queue(q) if doubt > 0.05 => Shape::Queue(QueueCurve {
                cores: (q.cores * (1.0 - doubt)).max(q.cores.min(0.5)),
                ..*q
            }),
            other => other.clone(),
        })
    }

    /// Unloaded service time on one core, microseconds.
    pub fn service_us(&self) -> Option<f64> {
        match self.estimate {
            Some(e) => Some(e.service_us),
            None if self.at_rest.count >= 3.0 => Some(self.at_rest.mean_us),
            None => None,
        }
    }

    /// Requests served at the same time; at least 1.
    pub fn cores(&self) -> f64 {
        self.estimate.map_or(1.0, |e| e.cores.max(1.0))
    }

    /// Requests per second; a lower bound while [`Knowledge::is_lower_bound`].
    pub fn capacity_rps(&self) -> Option<f64> {
        if let Some(quota) = self.quota() {
            return Some(quota.capacity_rps);
        }
        match self.estimate {
            Some(e) => Some(e.capacity_rps),
            None => self.service_us().map(|s| 1e6 / s),
        }
    }

    /// No queue was ever observed: the capacity may be greater.
    pub fn is_lower_bound(&self) -> bool {
        self.quota().is_none() && self.estimate.is_none_or(|e| e.lower_bound)
    }

    /// Relative standard error of the capacity; 1 when nothing was measured.
    pub fn error(&self) -> f64 {
        match self.quota() {
            Some(quota) => quota.error,
            None => self.estimate.map_or(1.0, |e| e.rel_se),
        }
    }

    /// Its capacity was observed and is known well.
    pub fn is_known(&self) -> bool {
        !self.is_lower_bound() && self.error() <= KNOWN
    }

    /// Variability by its own measurements, once there are some.
    pub fn own_variability(&self) -> Option<f64> {
        (!self.points.is_empty() && self.is_known()).then_some(self.own_variability)
    }

    pub fn cv_error(&self) -> Option<f64> {
        self.cv_error
    }

    pub fn points(&self) -> &[Point] {
        self.points.as_slice()
    }
}

#[cfg(test)]
mod tests;
