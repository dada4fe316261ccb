//! One backend as KnapsackLB sees it.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_learn::{
    CurveFit, Family, FitOptions, Hints, IdleLatency, InFlightWindow, Point, ThroughputEstimator,
    ThroughputOptions, fit,
};
use plimsoll_model::{BackendId, Curve, Nanos, ServerReport};

use super::climb::{Climb, Measurement, Step};

/// Readings further apart than this do not belong together.
const GAP: Duration = Duration::from_secs(2);
/// What the estimate of the latency without load is made from, seconds.
const WINDOW_S: f64 = 1.0;
/// The part of lost requests from which on a weight counts as one with drops.
const DROPS: f64 = 0.01;
/// A curve is stretched by at most this factor at once.
const MOST: f64 = 5.0;

/// What was counted under the weights in force.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub seconds: f64,
    pub started: f64,
    /// Request-seconds in flight.
    pub area_s: f64,
    pub errors: f64,
}

impl Sums {
    /// Mean latency by Little's law, microseconds.
    pub fn latency_us(&self) -> Option<f64> {
        (self.started > 0.0).then(|| self.area_s / self.started * 1e6)
    }
}

/// One backend.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub id: BackendId,
    pub name: String,
    /// By checks of it.
    pub alive: bool,
    /// By the balancer.
    pub in_service: bool,
    last: Option<(Nanos, ServerReport)>,
    window: InFlightWindow,
    polled: BTreeMap<u32, u32>,
    estimator: ThroughputEstimator,
    pub sums: Sums,
    pub climb: Climb,
    pub is_overloaded: bool,
    pub ticket: u64,
    /// It has the weight that it asked for.
    pub is_granted: bool,
    points: Vec<Point>,
    /// Latency over weight, once the climb has ended.
    pub curve: Option<CurveFit>,
    /// The greatest weight that it may be given.
    pub most: f64,
    /// The share of the traffic that it was given last.
    pub share: f64,
}

impl Server {
    pub fn new(id: BackendId, name: String, climb: Climb) -> Self {
        Server {
            id,
            name,
            alive: true,
            in_service: true,
            last: None,
            window: InFlightWindow::default(),
            polled: BTreeMap::new(),
            estimator: ThroughputEstimator::new(ThroughputOptions::default()),
            sums: Sums::default(),
            climb,
            is_overloaded: false,
            ticket: 0,
            is_granted: false,
            points: Vec::new(),
            curve: None,
            most: 0.0,
            share: 0.0,
        }
    }

    pub fn serves(&self) -> bool {
        self.alive && self.in_service
    }

    pub fn note(&mut self, at: Nanos, report: &ServerReport) {
        self.in_service = report.status.takes_traffic();
        let Some((then, last)) = self.last.replace((at, *report)) else { return };
        let fell = report.started_total < last.started_total
            || report.errors_total < last.errors_total
            || at.since(then) > GAP;
        if fell {
            (self.window, self.sums) = (InFlightWindow::default(), Sums::default());
            self.polled.clear();
            return;
        }
        let seconds = at.since(then).as_secs_f64();
        let (before, after) = (last.in_flight + last.queued, report.in_flight + report.queued);
        let started = (report.started_total - last.started_total) as f64;
        let errors = (report.errors_total - last.errors_total) as f64;
        self.sums.seconds += seconds;
        self.sums.started += started;
        self.sums.errors += errors;
        self.sums.area_s += 0.5 * f64::from(before + after) * seconds;
        self.window.seconds += seconds;
        self.window.completions += started + f64::from(before) - f64::from(after) - errors;
        *self.polled.entry(report.in_flight).or_default() += 1;
        if self.window.seconds >= WINDOW_S {
            let mut window = std::mem::take(&mut self.window);
            window.completions = window.completions.max(0.0);
            window.levels = std::mem::take(&mut self.polled).into_iter().collect();
            // What cannot be used is left out.
            let _ = self.estimator.observe(&window);
        }
    }

    /// Latency without load, microseconds.
    fn l0_us(&self) -> Option<f64> {
        self.estimator.estimate(Hints::default()).map(|estimate| estimate.service_us)
    }

    /// The weight that it asks to be measured at.
    pub fn wanted(&self) -> Option<f64> {
        match self.climb.pending() {
            Step::Measure(weight) => Some(weight.min(1.0)),
            Step::Done { .. } => None,
        }
    }

    /// Takes what was counted in a round in which the pool was given `all` requests; false where that shows nothing.
    pub fn measure(&mut self, all: f64) -> bool {
        let Some(l0_us) = self.l0_us() else { return false };
        let latency_us = self.sums.latency_us().unwrap_or(l0_us);
        let weight = self.sums.started / all;
        let dropped = self.sums.errors > DROPS * self.sums.started;
        self.is_overloaded = latency_us > self.climb.factor() * l0_us;
        if !dropped && weight > 0.0 {
            self.points.push(Point { load: weight, latency_us, requests: self.sums.started });
        }
        self.climb.next(&Measurement { weight, l0_us, latency_us, dropped });
        true
    }

    /// Fits the paper's curve to what was measured.
    pub fn learn(&mut self) {
        let idle = self.l0_us().map(|latency_us| IdleLatency { latency_us, requests: 100.0 });
        let options = FitOptions { family: Some(Family::Poly2), idle, ..FitOptions::default() };
        self.curve = fit(&self.points, &options).ok();
        self.most = self.climb.w_max();
    }

    /// The curve's latency at the weight in force, and the one that was counted.
    pub fn moved(&self) -> Option<super::Moved> {
        let expected = self.curve.as_ref()?.curve.latency_at(self.share);
        let latency = self.sums.latency_us().filter(|_| self.share > 0.0)?;
        Some(super::Moved { latency, expected }).filter(|moved| moved.expected.is_finite())
    }

    /// The weight at which its curve has the latency that was counted, over the weight in force.
    pub fn load_ratio(&self) -> Option<f64> {
        let (curve, latency_us) = (&self.curve.as_ref()?.curve, self.sums.latency_us()?);
        if self.share <= 0.0 || latency_us <= curve.latency_at(0.0) {
            return None;
        }
        let (mut low, mut high) = (0.0, MOST * self.share);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            let above = curve.latency_at(middle) > latency_us;
            if above { high = middle } else { low = middle }
        }
        Some((low / self.share).clamp(1.0 / MOST, MOST))
    }

    /// What was the latency at a weight is now that at `factor` times as much.
    pub fn stretch(&mut self, factor: f64) {
        self.curve = self.curve.as_ref().map(|curve| curve.rescaled_load(factor));
        self.most *= factor;
    }
}
