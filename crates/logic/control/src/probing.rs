//! How often to probe. Probes are load: by default they cost at most 1 % of what a backend bears, and
//! few are sent while nothing is known; a number that an administrator gave is obeyed.

use std::time::Duration;

use crate::controller::{Controller, record};
use crate::event::{Action, RecordKind};

/// The part of a backend's capacity that adaptive probes may cost.
const BUDGET: f64 = 0.01;
/// Adaptive probes are never further apart, so that a wrong answer is seen …
const RAREST: Duration = Duration::from_secs(5);
/// … and never closer than this: more would teach nothing that the balancer does not report.
const CLOSEST: Duration = Duration::from_millis(500);
/// While nothing is known.
const UNKNOWN: Duration = Duration::from_secs(1);
/// A new interval must differ by this factor to be worth changing.
const WORTH_CHANGING: f64 = 1.25;

impl Controller {
    /// Adjusts every backend's probing to what it bears.
    pub(crate) fn adapt_probing(&mut self, out: &mut Vec<Action>) {
        let Some(asked) = self.spec.probe else { return };
        let mut warnings = Vec::new();
        for b in &mut self.backends {
            let capacity = b.knowledge.capacity_rps().filter(|_| b.knowledge.error() < 0.5);
            let requests = asked.requests.unwrap_or(1).max(1);
            let adaptive = match capacity {
                // Its way back is by probes, and it has nothing else to do.
                _ if b.health.is_down() => CLOSEST,
                Some(c) => {
                    Duration::from_secs_f64((f64::from(requests) / (BUDGET * c)).min(3600.0))
                        .clamp(CLOSEST, RAREST)
                }
                None => UNKNOWN,
            };
            let interval = asked.interval.unwrap_or(adaptive);
            let due = match b.probing {
                None => true,
                Some((was, n)) => {
                    let ratio = interval.as_secs_f64() / was.as_secs_f64().max(1e-9);
                    n != requests || !(1.0 / WORTH_CHANGING..=WORTH_CHANGING).contains(&ratio)
                }
            };
            if !due {
                continue;
            }
            b.probing = Some((interval, requests));
            out.push(Action::ProbeRate { backend: b.id, interval, requests });
        }
        if asked.interval.is_none() && asked.requests.is_none() {
            return;
        }
        for b in &mut self.backends {
            let (Some((interval, requests)), true) = (b.probing, b.knowledge.is_known()) else {
                continue;
            };
            let Some(capacity) = b.knowledge.capacity_rps() else { continue };
            let cost = f64::from(requests) / interval.as_secs_f64().max(1e-9) / capacity;
            if cost > BUDGET && !b.warned_probe_cost {
                b.warned_probe_cost = true;
                warnings.push((b.name.clone(), cost));
            }
        }
        for (name, cost) in warnings {
            let line = format!(
                "the probing asked for costs {:.1} % of its capacity (probe.interval, probe.requests)",
                cost * 100.0
            );
            record(out, RecordKind::Warning, Some(&name), line);
        }
    }
}
