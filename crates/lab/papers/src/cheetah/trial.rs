//! One policy over emulated servers, for Figures 6 to 8: completion times, and how even the load was.

use std::time::Duration;

use plimsoll_l4::{Balancer, Policy};
use plimsoll_testbed::load::LoadReport;
use plimsoll_testbed::{Service as Work, Testbed};

use super::service::{Arrivals, Service};
use crate::{Context, Failure};

/// What one policy did.
pub struct Trial {
    /// Its name.
    pub policy: &'static str,
    /// Servers that took part.
    pub servers: usize,
    /// Offered load, of the servers' capacity.
    pub load: f64,
    /// From the intended start of a connection to the end of its answer.
    pub report: LoadReport,
    /// Variance over the servers of the part of the measured time that each worked.
    pub variance: f64,
    /// The same second by second, in the mean.
    pub variance_by_second: f64,
}

impl Trial {
    /// 99th percentile of the completion times, milliseconds.
    pub fn p99_ms(&self) -> f64 {
        self.report.total.p99_ms.unwrap_or(f64::NAN)
    }
}

/// A policy, and what it is called.
pub type Named = (&'static str, Policy);

/// What to try.
#[derive(Clone, Copy)]
pub struct Plan {
    /// The policy.
    pub policy: Named,
    /// The first so many servers.
    pub servers: usize,
    /// Of their capacity.
    pub load: f64,
    /// Not measured.
    pub warmup: Duration,
    /// Measured.
    pub measured: Duration,
}

/// Every policy with so many servers at such a load, each for so many seconds after others that do not count.
pub fn plans(
    pools: impl IntoIterator<Item = (usize, f64)>,
    policies: &[Named],
    (warmup_s, measured_s): (u64, u64),
) -> Vec<Plan> {
    let (warmup, measured) = (Duration::from_secs(warmup_s), Duration::from_secs(measured_s));
    let all = pools.into_iter().flat_map(|pool| policies.iter().map(move |&policy| (pool, policy)));
    all.map(|((servers, load), policy)| Plan { policy, servers, load, warmup, measured }).collect()
}

/// 99th percentile of a policy's completion times at a load, milliseconds; NaN where it was not tried.
pub fn p99_ms(all: &[Trial], policy: &str, load: f64) -> f64 {
    let found = all.iter().find(|one| one.policy == policy && one.load == load);
    found.map_or(f64::NAN, Trial::p99_ms)
}

/// The servers at one moment.
struct Look {
    at: Duration,
    /// How long each had worked.
    busy_s: Vec<f64>,
}

impl Look {
    /// Variance over the first servers of the part of the time that each worked.
    fn until(&self, after: &Look, servers: usize) -> f64 {
        let seconds = (after.at - self.at).as_secs_f64();
        let worked = self.busy_s.iter().zip(&after.busy_s).take(servers);
        variance(&worked.map(|(before, after)| (after - before) / seconds).collect::<Vec<_>>())
    }
}

/// Runs one plan after the other, all on the same servers, each of which does this work one request at a time.
pub fn run_all(context: &Context, work: Work, plans: &[Plan]) -> Result<Vec<Trial>, Failure> {
    context.progress(0.0, "servers")?;
    let servers = plans.iter().map(|plan| plan.servers).max().unwrap_or(1);
    let service = Service::emulated(servers, work, context.seed)?;
    let capacity_rps = work.mean.as_secs_f64().recip();
    service.site.net.inside("lb", || {
        let mut balancer = service.balancer(&service.config(Policy::RoundRobin, 0..servers))?;
        let run_one = |(index, plan): (usize, &Plan)| {
            let what = format!("{}, {} servers, load {}", plan.policy.0, plan.servers, plan.load);
            context.progress(index as f64 / plans.len() as f64, &what)?;
            run(context, &service, &mut balancer, capacity_rps, *plan)
        };
        plans.iter().enumerate().map(run_one).collect()
    })?
}

fn run(
    context: &Context,
    service: &Service<Testbed>,
    balancer: &mut Balancer,
    capacity_rps: f64,
    plan: Plan,
) -> Result<Trial, Failure> {
    let (policy, kind) = plan.policy;
    service.begin(balancer, kind, 0..plan.servers)?;
    let arrivals = Arrivals {
        rate_rps: plan.load * capacity_rps * plan.servers as f64,
        warmup: plan.warmup,
        measured: plan.measured,
    };
    // Every second of the measured part.
    let mut looks: Vec<Look> = Vec::new();
    let report = service.connections(context, balancer, arrivals, |passed| {
        let due = plan.warmup + Duration::from_secs(looks.len() as u64);
        if passed >= due && passed <= plan.warmup + plan.measured {
            looks.push(Look { at: passed, busy_s: service.busy_s()? });
        }
        Ok(())
    })?;
    let between = |before: &Look, after: &Look| before.until(after, plan.servers);
    let whole = looks.first().zip(looks.last());
    let whole = whole.map_or(f64::NAN, |(first, last)| between(first, last));
    let seconds: Vec<f64> = looks.windows(2).map(|pair| between(&pair[0], &pair[1])).collect();
    let by_second = seconds.iter().sum::<f64>() / seconds.len() as f64;
    Ok(Trial {
        policy,
        servers: plan.servers,
        load: plan.load,
        report,
        variance: whole,
        variance_by_second: by_second,
    })
}

fn variance(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64
}

/// What holds for the figures that are made of trials.
pub fn note(service: &str) -> String {
    format!(
        "Real TCP connections, one request each, through the XDP balancer in network namespaces; servers are \
         emulated ({service}), of one core, first come first served, so that two real cores carry them all. \
         Arrivals are Poisson, and the same for every policy. hash and maglev place connections as hash-based \
         balancers do (ECMP; Maglev, Beamer), here under the cookie."
    )
}

#[cfg(test)]
mod tests {
    use super::variance;

    #[test]
    fn variance_is_of_the_whole_population() {
        assert_eq!(variance(&[1.0, 1.0, 1.0]), 0.0);
        assert_eq!(variance(&[0.0, 2.0]), 1.0);
    }
}
