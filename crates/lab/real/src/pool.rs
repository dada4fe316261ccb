//! The servers of every lane and the requests they serve.

use std::time::Duration;

use plimsoll_testbed::Service;

use crate::cgroup::{Limits, Quota};
use crate::make::Make;
use crate::server::Model;

/// One server's name and size.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    /// `s1` and so on.
    pub name: String,
    /// Its quota, part of a core.
    pub cores: f64,
}

/// The same for every lane.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The servers.
    pub sizes: Vec<Size>,
    /// How often each gets its quota anew.
    pub period: Duration,
    /// The CPUs that all of them run on; none for all.
    pub cpus: Option<String>,
    /// What they are.
    pub make: Make,
    /// How the lab's own server works.
    pub model: Model,
    /// How many threads or processes each has.
    pub threads: usize,
    /// The CPU work of requests.
    pub work: Service,
    /// The CPU work of a health check.
    pub health_work: Duration,
}

impl Pool {
    /// Names and sizes from quotas in any unit, scaled so that together they have `total` cores.
    pub fn sizes(quotas: &[f64], total: f64) -> Vec<Size> {
        let sum: f64 = quotas.iter().sum();
        let size = |(i, quota): (usize, &f64)| Size {
            name: format!("s{}", i + 1),
            cores: quota / sum * total,
        };
        quotas.iter().enumerate().map(size).collect()
    }

    /// Cores of all together.
    pub fn total_cores(&self) -> f64 {
        self.sizes.iter().map(|size| size.cores).sum()
    }

    /// What the server of this size may use.
    pub fn limits(&self, size: &Size) -> Limits {
        let quota = Quota { cores: size.cores, period: self.period };
        Limits { quota: Some(quota), cpus: self.cpus.clone() }
    }

    /// The position of the largest; the first of equals.
    pub fn largest(&self) -> usize {
        let best = |best: usize, i: usize| {
            if self.sizes[i].cores > self.sizes[best].cores { i } else { best }
        };
        (0..self.sizes.len()).fold(0, best)
    }

    /// The position of the smallest; the first of equals.
    pub fn smallest(&self) -> usize {
        let best = |best: usize, i: usize| {
            if self.sizes[i].cores < self.sizes[best].cores { i } else { best }
        };
        (0..self.sizes.len()).fold(0, best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_scaled_to_the_total() {
        let sizes = Pool::sizes(&[4.0, 4.0, 6.4, 9.6, 16.0, 28.0], 0.45);
        let cores: Vec<f64> = sizes.iter().map(|s| (s.cores * 1e4).round() / 1e4).collect();
        assert_eq!(cores, [0.0265, 0.0265, 0.0424, 0.0635, 0.1059, 0.1853]);
        assert!((sizes.iter().map(|s| s.cores).sum::<f64>() - 0.45).abs() < 1e-12);
        assert_eq!((sizes[0].name.as_str(), sizes[5].name.as_str()), ("s1", "s6"));
    }
}
