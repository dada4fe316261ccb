//! What is known of one backend: how long it works on a request, on how many at once, and what load
//! does to its latency.
//!
//! Two estimators work side by side. The *throughput* of the states it was seen in (`X = v·E[min(n, c)]`)
//! gives service time, cores and capacity, and needs no overload. The *points* (rate, response time by
//! Little's law) give the curve: a queue of those cores, scaled by how irregular the load is, unless a
//! fitted family predicts left-out points clearly better.

use plimsoll_learn::drift::Interval;
use plimsoll_learn::{
    CapacityHint, CurveFit, Dispersion, Family, FitOptions, Hints, IdleLatency, InFlightWindow,
    Point, Throughput, ThroughputEstimator, ThroughputOptions, fit,
};
use plimsoll_model::Curve;
use plimsoll_queueing::QueueCurve;
use serde::{Deserialize, Serialize};

use crate::belief::grain::{Grain, Moved, Quota};
use crate::belief::points::Points;
use crate::belief::shape::Shape;
use crate::belief::typical::Typical;
use crate::belief::variability::{PRIOR_REQUESTS, Waits};
use crate::observe::traffic::Window;
use crate::spec::CurveChoice;

/// A fitted family replaces the queue when the queue's cross-validated error is above the first, its own
/// is below this part of the queue's, and its capacity is this near to what the throughput says.
const RESIDUAL_LIMIT: f64 = 0.15;
const CLEARLY_BETTER: f64 = 0.6;
const SAME_CAPACITY: f64 = 0.15;
/// Response times are compared over so many requests; the least of them is forgotten at this pace and
/// lies this near the time at rest, relatively.
const ENOUGH: f64 = 100.0;
const LEAST_CREEP: f64 = 1.005;
const LEAST_IS_NEAR: f64 = 0.15;
/// No response time was seen.
const NEVER_US: f64 = 1e12;
/// How far a backend's time at rest may lie from that of the pool, relatively: one standard deviation.
const LIKE_THE_OTHERS: f64 = 0.3;
/// How many requests' worth of belief, at half load, that the backends of a pool are alike in this. (Six backends after a
/// change, 16 runs: with 300 and with 3,000 clients waited up to 1 % longer.)
const ALIKE_REQUESTS: f64 = 1_000.0;
/// A lower bound this far above the capacity that was known says that the backend has grown.
const GROWN: f64 = 1.15;
/// Of a backend that has changed, what was known counts for so many requests and probes, and errs by so
/// much.
const RESCALED_REQUESTS: f64 = 300.0;
const RESCALED_POINT: f64 = 50.0;
const RESCALED_PROBES: f64 = 5.0;
const RESCALED_ERROR: f64 = 0.06;
/// What was measured of a time at rest says nothing once it was rescaled by this much without being measured again: nothing
/// leads it back, and scales that err multiply.
const STRAYED: f64 = 10.0;
/// Of one that may have become faster, so many requests are remembered.
const RELEARNED_REQUESTS: f64 = 2_000.0;
/// Cores are beyond doubt where one more or less would be worse by so much: four standard deviations.
const SURE: f64 = 16.0;
/// A rate is no further from what is expected by luck than so many of its standard deviations.
const LUCK: f64 = 4.0;
/// With a relative standard error below this a capacity is known.
pub(crate) const KNOWN: f64 = 0.15;
/// What a backend is trusted to bear beyond what was seen, while no queue was ever seen.
pub(crate) const OPTIMISM: f64 = 1.5;

/// Logarithm of by how much something was rescaled since it was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct Strayed(f64);

impl Strayed {
    fn by(self, ratio: f64) -> Strayed {
        Strayed(self.0 + ratio.ln())
    }

    fn is_far(self) -> bool {
        self.0.abs() > STRAYED.ln()
    }
}

/// Mean of the probes of a backend that has next to no traffic: its time at rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct AtRest {
    mean_us: f64,
    count: f64,
    #[serde(default)]
    strayed: Strayed,
}

impl AtRest {
    fn note(&mut self, latency_us: f64) {
        let kept = self.count.min(200.0);
        self.mean_us = (self.mean_us * kept + latency_us) / (kept + 1.0);
        self.count = kept + 1.0;
        self.strayed.0 *= kept / self.count;
    }

    fn rescale(&mut self, ratio: f64) {
        *self = AtRest {
            mean_us: self.mean_us / ratio,
            count: self.count.min(RESCALED_PROBES),
            strayed: self.strayed.by(ratio),
        };
        if self.strayed.is_far() {
            *self = AtRest::default();
        }
    }
}

/// What the balancer was told to give a backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Setting {
    /// Its part of the weights, of the traffic there is, once that is known.
    pub rps: Option<f64>,
    /// Arrivals do not depend on what is in flight.
    pub is_split: bool,
}

impl Setting {
    /// What arrives in the mean where arrivals are as it was told: this rate differs by no more than luck, so that traffic has
    /// not just changed, and the balancer does as it was told.
    fn followed_rps(&self, rate_rps: f64, seconds: f64) -> Option<f64> {
        let is_near = |rps: &f64| (rate_rps - rps).abs() <= LUCK * (rps / seconds).sqrt();
        self.rps.filter(|_| self.is_split).filter(is_near)
    }
}

/// What is known of one backend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Knowledge {
    throughput: ThroughputEstimator,
    estimate: Option<Throughput>,
    /// What was known holds until enough was seen of what it has become.
    #[serde(default)]
    changed: bool,
    /// Cores that were told beyond doubt: believed until they are contradicted.
    #[serde(default)]
    sure_cores: Option<f64>,
    /// How service scatters by what this backend has shown, once that is known.
    #[serde(default)]
    own_dispersion: Option<Dispersion>,
    /// How service scatters by what the pool's backends have shown, once several know.
    #[serde(skip)]
    dispersion: Option<Dispersion>,
    #[serde(flatten)]
    points: Points,
    at_rest: AtRest,
    /// What the pool's quicker backends need for a request.
    typical_us: Option<f64>,
    /// The least response time of a window, microseconds.
    least_us: f64,
    #[serde(default)]
    least_strayed: Strayed,
    /// Request-seconds and requests of the present gathering.
    gathered: (f64, f64),
    /// Windows came since the last estimate.
    stale: bool,
    /// What it bears under a quota of CPU, where it has one.
    #[serde(default)]
    grain: Grain,
    variability: f64,
    /// The same from this backend's measurements alone.
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
            at_rest: AtRest::default(),
            typical_us: None,
            least_us: NEVER_US,
            least_strayed: Strayed::default(),
            gathered: (0.0, 0.0),
            stale: false,
            grain: Grain::default(),
            variability: 1.0,
            own_variability: 1.0,
            shape: None,
            cv_error: None,
        }
    }
}

/// What a window tells of throughput.
fn observed(window: &Window, setting: Setting) -> InFlightWindow {
    InFlightWindow {
        seconds: window.seconds,
        completions: window.completed,
        levels: window.seen.clone(),
        setting: setting.rps,
        lagged: window.lagged.clone(),
        // Behind a balancer that counts what was in flight long before says nothing.
        long_lagged: setting.is_split.then(|| window.long_lagged.clone()),
    }
}

impl Knowledge {
    /// Takes a window of passive measurement. `setting` is what the balancer was told to give it, and
    /// `typical_us` the pool's time at rest. `steady` is false shortly after a change of weights,
    /// when response times still show the load before.
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
        // A window that makes no sense (a clock that stood still) teaches nothing.
        if self.throughput.observe(&observed(window, setting)).is_ok() {
            self.stale = true;
        }
        self.note_least(window);
        let stationary = window.growth.abs() <= 3.0 + 0.2 * window.started;
        if steady && stationary && window.started >= 1.0 && window.in_flight > 0.0 {
            let latency_us = window.in_flight / window.rate_rps() * 1e6;
            let load = window.rate_rps();
            let expected_rps = setting.followed_rps(load, window.seconds).unwrap_or(load);
            self.points.add(expected_rps, Point { load, latency_us, requests: window.started });
        }
    }

    /// A capacity that was once seen stays known while nothing contradicts it: at low load the same
    /// estimator can only say what it is at least.
    fn take_estimate(&mut self) {
        let seen = self.throughput.completions();
        if self.changed && seen < RESCALED_REQUESTS && self.estimate.is_some() {
            return;
        }
        // Cores that were sure hold until they are contradicted: what works faster or slower rarely has others,
        // and what changes with every estimate is nothing to hold traffic against. Others do not: they are often
        // too few, and what it works at from now on would be too little for good.
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
        self.estimate = match (fresh, self.estimate) {
            (Some(f), Some(old)) if f.lower_bound && !old.lower_bound => {
                Some(if f.capacity_rps > GROWN * old.capacity_rps { f } else { old })
            }
            (f, old) => f.or(old),
        };
        // Of the same work it stays known until it is known anew, by the cores that are believed.
        let cores = self.estimate.map(|estimate| estimate.cores);
        let told = cores.and_then(|cores| self.throughput.dispersion(cores));
        self.own_dispersion = told.filter(|told| told.is_known).or(self.own_dispersion);
    }

    /// What is known of the time at rest from elsewhere, microseconds, with its relative standard
    /// deviation: from probes of the idle backend, whose service times may scatter as much as their
    /// mean, or else from the others, which do the same work on other machines.
    fn service_hint(&self) -> Option<(f64, f64)> {
        let scatter = self.scatter();
        if self.at_rest.count >= 5.0 {
            let deviation = (scatter / self.at_rest.count.sqrt()).max(0.05);
            return Some((self.at_rest.mean_us, deviation));
        }
        // Nobody needs longer at rest than under load.
        let others = self.typical_us.filter(|us| *us < self.least_us);
        match others {
            // The least of some seconds: the further below the mean the more service scatters.
            Some(us) => Some((us, LIKE_THE_OTHERS * scatter)),
            None => (self.least_us < NEVER_US).then_some((self.least_us, LEAST_IS_NEAR * scatter)),
        }
    }

    /// Standard deviation of a service time, relatively, and at least that of an exponential one.
    fn scatter(&self) -> f64 {
        self.dispersion.map_or(1.0, |dispersion| dispersion.ratio.max(1.0).sqrt())
    }

    /// How service scatters by what this backend has shown, once that is known. With fewer cores than it has it shows too
    /// little.
    pub fn own_dispersion(&self) -> Option<Dispersion> {
        self.own_dispersion
    }

    /// Keeps the least response time, each over requests enough that chance does not make it.
    fn note_least(&mut self, window: &Window) {
        self.gathered.0 += window.in_flight * window.seconds;
        self.gathered.1 += window.started;
        if self.gathered.1 >= ENOUGH {
            let latency_us = self.gathered.0 / self.gathered.1 * 1e6;
            self.gathered = (0.0, 0.0);
            self.least_us = (self.least_us * LEAST_CREEP).min(NEVER_US);
            // Polls that never met one in flight tell no time.
            let is_least = latency_us <= self.least_us || self.least_us <= 0.0;
            if latency_us > 0.0 && is_least {
                (self.least_us, self.least_strayed) = (latency_us, Strayed::default());
            }
        }
    }

    /// Takes a successful probe of a backend with next to no traffic.
    pub fn observe_at_rest(&mut self, latency_us: f64) {
        self.at_rest.note(latency_us);
        if self.estimate.is_none() {
            self.take_estimate();
        }
        self.stale = true;
    }

    /// Takes what happened between two readings; gives back how what it bears under its quota has changed, once that has
    /// lasted for so many seconds of work.
    pub fn note_interval(&mut self, interval: &Interval, lasting_s: f64) -> Option<Moved> {
        let service_us = self.estimate.map(|e| e.service_us);
        let moved = self.grain.note(interval, service_us, lasting_s);
        self.stale |= moved.is_some();
        moved
    }

    /// It is held to a quota of CPU by what was seen of it.
    pub fn is_held(&self) -> bool {
        self.grain.is_held()
    }

    /// It is held to a quota, or others of its pool are.
    pub fn may_be_held(&self) -> bool {
        self.grain.may_be_held()
    }

    /// What it bears under its quota, where it has one.
    pub fn quota(&self) -> Option<Quota> {
        self.grain.quota()
    }

    /// What it bears under its quota, too, is this multiple of what was known.
    pub fn rescale_quota(&mut self, ratio: f64) {
        self.grain.rescale(ratio);
    }

    /// The backend works at this multiple of the rate it was known by: everything known is of it at another
    /// scale, and counts for little beside what it does from now on.
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
            (self.least_us, self.least_strayed) = (NEVER_US, Strayed::default());
        }
        self.gathered = (0.0, 0.0);
        self.stale = true;
    }

    /// It may have become faster: what was seen before counts for little beside what it does from now on.
    pub fn relearn(&mut self) {
        self.throughput.fade_to(RELEARNED_REQUESTS);
        self.stale = true;
    }

    /// Estimates and draws the curve anew from all that is known. This is the costly part (0.3 to 0.9 ms).
    /// `typical` is what the pool's backends have in common.
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
        // Fitting is the costly part: not where the queue says it all, nor where nothing could replace it.
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

    /// Whether a fitted family should replace the queue: the queue misses its points by more than noise
    /// would, the other does not, and both agree on where the backend ends. The paper's parabola is
    /// never chosen: it knows no capacity.
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
                CurveChoice::Poly2 => Some(Family::Poly2),
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

    /// The curve, once anything is known.
    pub fn shape(&self) -> Option<&Shape> {
        self.shape.as_ref()
    }

    /// The curve to pack with: optimistic where the capacity is only bounded from below, so that the
    /// packing itself finds out; and no more trusting than the estimate is sure.
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

    /// Time on one core, microseconds.
    pub fn service_us(&self) -> Option<f64> {
        match self.estimate {
            Some(e) => Some(e.service_us),
            None if self.at_rest.count >= 3.0 => Some(self.at_rest.mean_us),
            None => None,
        }
    }

    /// Requests it works on at once; at least 1.
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

    /// No queue was ever seen: the capacity may be greater.
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

    /// Its capacity was seen and is known well.
    pub fn is_known(&self) -> bool {
        !self.is_lower_bound() && self.error() <= KNOWN
    }

    /// How irregular its load is by its own measurements, once there are some.
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
mod tests {
    use plimsoll_learn::Lagged;

    use super::*;

    impl Knowledge {
        /// One core, known for sure.
        pub fn known(service_us: f64) -> Self {
            let estimate = Throughput {
                service_us,
                cores: 1.0,
                capacity_rps: 1e6 / service_us,
                rel_se: 0.01,
                cores_rel_se: Some(0.01),
                lower_bound: false,
                margin: 100.0,
            };
            Knowledge { estimate: Some(estimate), ..Knowledge::default() }
        }
    }

    fn window(rate_rps: f64) -> Window {
        Window {
            seconds: 1.0,
            started: rate_rps,
            completed: rate_rps,
            errors: 0.0,
            wrong_answers: 0.0,
            in_flight: 3.0,
            seen: vec![(3, 10)],
            growth: 0.0,
            lagged: Lagged::default(),
            long_lagged: Lagged::default(),
        }
    }

    #[test]
    fn what_a_backend_was_to_get_tells_loads_apart_unless_it_gets_something_else() {
        let mut known = Knowledge::default();
        let setting = Setting { rps: Some(100.0), is_split: true };
        for rate_rps in [90.0, 110.0, 80.0, 120.0] {
            known.observe(&window(rate_rps), true, setting, None);
        }
        assert_eq!(known.points().len(), 1, "luck: {:?}", known.points());
        known.observe(&window(150.0), true, setting, None);
        assert_eq!(known.points().len(), 2, "traffic has changed: {:?}", known.points());
        assert!((known.points()[1].load - 150.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_known_of_the_time_at_rest_does_not_stray_with_scales_that_err_again_and_again() {
        for ratio in [0.5, 2.0] {
            let mut known = Knowledge::default();
            (0..20).for_each(|_| known.observe_at_rest(3e4));
            let setting = Setting { rps: None, is_split: true };
            for _ in 0..40 {
                known.rescale(ratio);
                (0..5).for_each(|_| known.observe(&window(100.0), true, setting, None));
                known.refit(CurveChoice::Auto, Typical::default());
                let hint_us = known.service_hint().map(|(us, _)| us);
                assert!(hint_us.is_some_and(|us| (3e3..3e5).contains(&us)), "{ratio}: {hint_us:?}");
            }
            if ratio < 1.0 {
                let bears = known.capacity_rps();
                assert!(
                    bears.is_some_and(|rps| rps > 90.0),
                    "it completes 100 a second: {bears:?}"
                );
            }
        }
    }

    #[test]
    fn how_service_scatters_is_known_through_a_change_and_a_restart() {
        let mut known = Knowledge::default();
        let setting = Setting { rps: None, is_split: true };
        let often = Window { seen: vec![(3, 40)], ..window(100.0) };
        (0..60).for_each(|_| known.observe(&often, true, setting, None));
        known.refit(CurveChoice::Auto, Typical::default());
        let told = known.own_dispersion();
        assert!(told.is_some_and(|told| told.is_known), "{told:?}");
        known.rescale(0.6);
        known.refit(CurveChoice::Auto, Typical::default());
        let kept = serde_json::to_string(&known).expect("it can be written");
        let back: Knowledge = serde_json::from_str(&kept).expect("it can be read");
        assert_eq!(known.own_dispersion(), told);
        let again = back.own_dispersion().map(|told| (told.ratio as f32, told.error as f32));
        assert_eq!(again, told.map(|told| (told.ratio as f32, told.error as f32)));
    }

    #[test]
    fn behind_a_balancer_that_counts_nothing_is_told_by_what_was_in_flight_long_before() {
        let mut window = window(100.0);
        window.long_lagged.note(3, [3, 3], 1.0, 0.1);
        let told = |is_split: bool| observed(&window, Setting { rps: None, is_split }).long_lagged;
        assert_eq!(told(true), Some(window.long_lagged.clone()));
        assert_eq!(told(false), None);
    }

    #[test]
    fn polls_that_meet_nobody_tell_no_time() {
        let mut known = Knowledge::default();
        let setting = Setting { rps: None, is_split: true };
        known.observe(&window(100.0), true, setting, None);
        let nobody = Window { in_flight: 0.0, seen: vec![(0, 10)], ..window(100.0) };
        known.observe(&nobody, true, setting, None);
        assert_eq!(known.service_hint().map(|(us, _)| us), Some(3e4 * LEAST_CREEP));
    }

    #[test]
    fn a_memory_of_before_expectations_were_kept_goes_on() {
        let mut known = Knowledge::default();
        known.observe(&window(100.0), true, Setting { rps: None, is_split: true }, None);
        let mut memory = serde_json::to_value(&known).expect("it can be written");
        let fields = memory.as_object_mut().expect("an object");
        assert!(fields.remove("expected_rps").is_some());
        let mut known: Knowledge = serde_json::from_value(memory).expect("it can be read");
        known.observe(&window(101.0), true, Setting { rps: None, is_split: true }, None);
        assert_eq!(known.points().len(), 1);
    }
}
