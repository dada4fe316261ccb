//! Measured points of one backend's curve: response time at about one load.
//!
//! The rate of a second is the load that was given plus that second's noise, and latency follows the noise less than
//! the load: points grouped by it would show curves flatter than they are (regression dilution; near capacity, several
//! times too flat). So they are grouped by the rate that the backend was to get, of the traffic before that second,
//! which is independent of its noise. (An instrumental variable; a point's load is still the counted one.)

use crate::tuning::belief::points::{LONGEST_US, MAX_POINTS, POINT_MEMORY, RATES_RPS, SAME_LOAD};
use plimsoll_learn::Point;
use serde::{Deserialize, Serialize};

/// The points of one backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Points {
    points: Vec<Point>,
    /// The rate that the backend was to get while each was measured, requests per second.
    #[serde(default)]
    expected_rps: Vec<f64>,
}

impl Points {
    pub fn as_slice(&self) -> &[Point] {
        &self.points
    }

    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Adds a measurement, made while this rate was expected.
    pub fn add(&mut self, expected_rps: f64, fresh: Point) {
        // (A memory written by an earlier version has no expected rates.)
        self.expected_rps.truncate(self.points.len());
        let known = self.expected_rps.len();
        self.expected_rps.extend(self.points.iter().skip(known).map(|p| p.load));
        let near = |at: &f64| (at / expected_rps - 1.0).abs() < SAME_LOAD;
        if let Some(i) = self.expected_rps.iter().position(near) {
            let p = &mut self.points[i];
            let kept = p.requests.min(POINT_MEMORY);
            let all = kept + fresh.requests;
            let mean = |old: f64, new: f64| (old * kept + new * fresh.requests) / all;
            p.load = mean(p.load, fresh.load);
            // Little's law over both: request-seconds add up, latencies do not.
            p.latency_us = mean(p.latency_us, fresh.latency_us);
            p.requests = all;
            self.expected_rps[i] = mean(self.expected_rps[i], expected_rps);
            return;
        }
        if self.points.len() == MAX_POINTS {
            self.points.remove(0);
            self.expected_rps.remove(0);
        }
        self.points.push(fresh);
        self.expected_rps.push(expected_rps);
    }

    /// The service rate is this multiple of the known one: points are rescaled, and count for at most this many
    /// requests.
    pub fn rescale(&mut self, ratio: f64, most_requests: f64) {
        for p in &mut self.points {
            p.load *= ratio;
            p.latency_us /= ratio;
            p.requests = p.requests.min(most_requests);
        }
        self.expected_rps.iter_mut().for_each(|at| *at *= ratio);
        let is_sense = |p: &Point| RATES_RPS.contains(&p.load) && p.latency_us < LONGEST_US;
        let mut sense = self.points.iter().map(is_sense);
        self.expected_rps.retain(|_| sense.next().unwrap_or(false));
        self.points.retain(is_sense);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(load: f64) -> Point {
        Point { load, latency_us: 100.0, requests: 10.0 }
    }

    #[test]
    fn close_loads_are_one_point_and_points_are_bounded() {
        let mut points = Points::default();
        for i in 0..200 {
            let load = 10.0 + 0.01 * f64::from(i % 10);
            points.add(load, point(load));
        }
        assert_eq!(points.as_slice().len(), 1);
        for i in 0..200 {
            let load = 10.0 * 1.1f64.powi(i % 60);
            points.add(load, point(load));
        }
        assert!(points.as_slice().len() <= MAX_POINTS);
        assert_eq!(points.points.len(), points.expected_rps.len());
    }

    #[test]
    fn the_noise_of_a_second_makes_no_point_of_its_own() {
        let mut points = Points::default();
        for noise in [-2.0, 2.0, -1.0, 1.0, 0.0] {
            points.add(10.0, point(10.0 + noise));
        }
        assert_eq!(points.as_slice().len(), 1);
        assert!((points.as_slice()[0].load - 10.0).abs() < 1e-9);
    }

    #[test]
    fn a_point_rescaled_without_measure_is_dropped() {
        for ratio in [0.2, 5.0] {
            let mut points = Points::default();
            points.add(10.0, point(10.0));
            for _ in 0..1_000 {
                points.rescale(ratio, 5.0);
                let all = points.as_slice();
                assert!(all.iter().all(|p| p.load.is_finite() && p.latency_us.is_finite()));
            }
            points.add(20.0, point(20.0));
            assert_eq!((points.points.len(), points.expected_rps.len()), (1, 1));
        }
    }

    #[test]
    fn a_memory_without_expected_rates_is_accepted() {
        let mut points =
            Points { points: vec![point(10.0), point(20.0)], expected_rps: Vec::new() };
        points.add(20.1, point(20.1));
        assert_eq!(points.as_slice().len(), 2);
        points.rescale(0.5, 5.0);
        assert!((points.as_slice()[0].load - 5.0).abs() < 1e-9);
        points.add(5.0, point(5.0));
        assert_eq!(points.as_slice().len(), 2);
    }
}
