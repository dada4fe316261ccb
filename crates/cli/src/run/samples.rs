//! Samples to be kept: what probes found, and once in a while what the balancer reports, each with
//! the load that the backend bore at the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use plimsoll_control::ServiceView;
use plimsoll_model::{Outcome, Source};
use plimsoll_store::StoredSample;

use super::record::unix_ms;

/// Between two samples of what the balancer reports: the store's 2,000 a backend last for hours.
const EVERY: Duration = Duration::from_secs(10);

/// Makes samples, and remembers the load they were taken at.
#[derive(Debug)]
pub struct Passive {
    last: Instant,
    loads: BTreeMap<Arc<str>, Load>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    share: f64,
    rate_rps: Option<f64>,
}

impl Passive {
    /// Begins at this instant, with no load known.
    pub fn new(now: Instant) -> Self {
        Passive { last: now, loads: BTreeMap::new() }
    }

    /// Takes in every backend's capacity now, for the probes to come.
    pub fn see(&mut self, view: &ServiceView) {
        self.loads = view
            .backends
            .iter()
            .map(|b| {
                let rate_rps = (view.rate_rps > 0.0).then_some(b.share * view.rate_rps);
                (b.backend.as_str().into(), Load { share: b.share, rate_rps })
            })
            .collect();
    }

    /// The sample that a probe is.
    pub fn probe(&self, backend: &str, outcome: Outcome, latency_us: f64) -> StoredSample {
        let load = self.loads.get(backend).copied().unwrap_or_default();
        StoredSample {
            unix_ms: unix_ms(SystemTime::now()),
            weight: load.share,
            rate_rps: load.rate_rps,
            latency_us,
            requests: 1,
            outcome,
            source: Source::Probe,
        }
    }

    /// Whether it is time to keep what the balancer reports.
    pub fn is_due(&self) -> bool {
        self.last.elapsed() >= EVERY
    }

    /// The last window of every backend that had traffic.
    pub fn windows(&mut self, view: &ServiceView) -> Vec<(Arc<str>, StoredSample)> {
        self.last = Instant::now();
        let at = unix_ms(SystemTime::now());
        let busy = view.backends.iter().filter_map(|b| Some((b, b.latency_ms?)));
        busy.map(|(b, latency_ms)| {
            let rate_rps = b.share * view.rate_rps;
            let sample = StoredSample {
                unix_ms: at,
                weight: b.share,
                rate_rps: Some(rate_rps),
                latency_us: latency_ms * 1e3,
                // A window is a second.
                requests: rate_rps.round().max(1.0) as u32,
                outcome: Outcome::Success,
                source: Source::Passive,
            };
            (b.backend.as_str().into(), sample)
        })
        .collect()
    }
}
