//! How much work a request is: the distributions, each with exactly the mean that was asked for.

use std::time::Duration;

use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::duration_text;

/// The distribution of the service time on a core of speed 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawService", into = "RawService")]
pub struct Service {
    /// The mean, for every kind.
    pub mean: Duration,
    /// The shape.
    pub kind: ServiceKind,
}

/// The shape of a service time distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServiceKind {
    /// Always the mean.
    Deterministic,
    /// Memoryless.
    Exponential,
    /// The exponential of a normal variable with this standard deviation.
    Lognormal {
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// A share of the requests takes a multiple of what the others take.
    Bimodal {
        /// How many are slow, 0…1.
        slow_share: f64,
        /// How many times longer than a fast one a slow one takes.
        slow_factor: f64,
    },
}

const DEFAULT_SIGMA: f64 = 1.0;
const DEFAULT_SLOW_SHARE: f64 = 0.05;
/// With 5 % slow ones: fast 0.526 of the mean, slow 10 times the mean.
const DEFAULT_SLOW_FACTOR: f64 = 19.0;

impl Service {
    /// A deterministic service time.
    pub fn deterministic(mean: Duration) -> Self {
        Service { mean, kind: ServiceKind::Deterministic }
    }

    /// An exponential service time.
    pub fn exponential(mean: Duration) -> Self {
        Service { mean, kind: ServiceKind::Exponential }
    }

    /// Draws the work of one request, nanoseconds on a core of speed 1.
    pub(crate) fn sample(&self, rng: &mut impl Rng) -> f64 {
        let mean = self.mean.as_nanos() as f64;
        match self.kind {
            ServiceKind::Deterministic => mean,
            ServiceKind::Exponential => -(1.0 - rng.random::<f64>()).ln() * mean,
            ServiceKind::Lognormal { sigma } => {
                // E[exp(σZ)] = exp(σ²/2), which is divided out.
                (sigma * standard_normal(rng) - sigma * sigma / 2.0).exp() * mean
            }
            ServiceKind::Bimodal { slow_share, slow_factor } => {
                let fast = mean / (1.0 - slow_share + slow_share * slow_factor);
                if rng.random::<f64>() < slow_share { fast * slow_factor } else { fast }
            }
        }
    }
}

/// Box and Muller's transform; the second of the pair is thrown away, which keeps the state to the
/// generator alone.
fn standard_normal(rng: &mut impl Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}

/// The written form: flat, with the parameters of all kinds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawService {
    pub kind: KindName,
    #[serde(with = "duration_text")]
    pub mean: Duration,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sigma: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_share: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_factor: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KindName {
    Deterministic,
    Exponential,
    Lognormal,
    Bimodal,
}

impl TryFrom<RawService> for Service {
    type Error = String;

    fn try_from(raw: RawService) -> Result<Self, String> {
        if raw.mean.is_zero() {
            return Err("mean: expected a duration above zero".into());
        }
        if raw.kind != KindName::Lognormal && raw.sigma.is_some() {
            return Err("sigma: belongs to kind lognormal only".into());
        }
        if raw.kind != KindName::Bimodal && (raw.slow_share.is_some() || raw.slow_factor.is_some())
        {
            return Err("slow_share and slow_factor: belong to kind bimodal only".into());
        }
        let kind = match raw.kind {
            KindName::Deterministic => ServiceKind::Deterministic,
            KindName::Exponential => ServiceKind::Exponential,
            KindName::Lognormal => {
                let sigma = raw.sigma.unwrap_or(DEFAULT_SIGMA);
                if !(0.0..=5.0).contains(&sigma) {
                    return Err(format!("sigma: expected 0 to 5, found {sigma}"));
                }
                ServiceKind::Lognormal { sigma }
            }
            KindName::Bimodal => {
                let slow_share = raw.slow_share.unwrap_or(DEFAULT_SLOW_SHARE);
                let slow_factor = raw.slow_factor.unwrap_or(DEFAULT_SLOW_FACTOR);
                if !(0.0..=1.0).contains(&slow_share) {
                    return Err(format!("slow_share: expected 0 to 1, found {slow_share}"));
                }
                if !(slow_factor.is_finite() && slow_factor > 0.0) {
                    return Err(format!(
                        "slow_factor: expected a number above 0, found {slow_factor}"
                    ));
                }
                ServiceKind::Bimodal { slow_share, slow_factor }
            }
        };
        Ok(Service { mean: raw.mean, kind })
    }
}

impl From<Service> for RawService {
    fn from(service: Service) -> Self {
        let none = RawService {
            kind: KindName::Deterministic,
            mean: service.mean,
            sigma: None,
            slow_share: None,
            slow_factor: None,
        };
        match service.kind {
            ServiceKind::Deterministic => none,
            ServiceKind::Exponential => RawService { kind: KindName::Exponential, ..none },
            ServiceKind::Lognormal { sigma } => {
                RawService { kind: KindName::Lognormal, sigma: Some(sigma), ..none }
            }
            ServiceKind::Bimodal { slow_share, slow_factor } => RawService {
                kind: KindName::Bimodal,
                slow_share: Some(slow_share),
                slow_factor: Some(slow_factor),
                ..none
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn every_kind_has_the_mean_and_the_spread_of_its_formula() {
        let kinds = [
            (ServiceKind::Deterministic, 0.0),
            (ServiceKind::Exponential, 1.0),
            (ServiceKind::Lognormal { sigma: 1.0 }, std::f64::consts::E - 1.0),
            // fast 10/19, slow 10: variance = .95·(10/19)² + .05·100 − 1.
            (ServiceKind::Bimodal { slow_share: 0.05, slow_factor: 19.0 }, 4.263),
        ];
        for (kind, variance) in kinds {
            let service = Service { mean: Duration::from_millis(30), kind };
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
            let n = 400_000;
            let draws: Vec<f64> = (0..n).map(|_| service.sample(&mut rng) / 30e6).collect();
            let mean = draws.iter().sum::<f64>() / f64::from(n);
            let var = draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / f64::from(n);
            assert!((mean - 1.0).abs() < 0.015, "{kind:?}: mean {mean}");
            assert!((var - variance).abs() <= 0.1 * variance, "{kind:?}: variance {var}");
        }
    }

    #[test]
    fn reads_defaults_and_refuses_parameters_of_another_kind() {
        let read = |text: &str| serde_json::from_str::<Service>(text);
        let bimodal = read(r#"{"kind":"bimodal","mean":"30ms"}"#).unwrap();
        assert_eq!(bimodal.kind, ServiceKind::Bimodal { slow_share: 0.05, slow_factor: 19.0 });
        for bad in [
            r#"{"kind":"exponential","mean":"30ms","sigma":2}"#,
            r#"{"kind":"deterministic","mean":"30ms","slow_share":0.1}"#,
            r#"{"kind":"exponential","mean":"0s"}"#,
            r#"{"kind":"bimodal","mean":"30ms","slow_share":1.5}"#,
            r#"{"kind":"gamma","mean":"30ms"}"#,
            r#"{"kind":"exponential"}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
