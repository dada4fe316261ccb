//! Table 6 (appendix C): how exactly balancers keep to the weights 0.2, 0.3 and 0.5, over 10,000 requests.
//!
//! A real HAProxy in front of three emulated backends; NGINX's smooth weighted round robin and HAProxy's
//! own keys simulated; and a random draw by weight, which is what weighted DNS answers come to.

use std::time::Duration;

use plimsoll_lanes::{Distribution, Family, Lane, LaneKind, Pool};
use plimsoll_queueing::HaproxyRoundRobin;
use plimsoll_queueing::{Pick, SmoothRoundRobin};
use plimsoll_sim::BackendModel;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::lanes::wait;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Bars, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance, Tolerance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "knapsack-table6",
    paper: &super::PAPER,
    figure: "Table 6",
    title: "How exactly balancers split 10,000 requests by weight",
    claim: "NGINX splits requests exactly by the weights 0.2, 0.3 and 0.5; Azure Traffic Manager, by \
            DNS, is off by up to four points.",
    provenance: &[Provenance::Emulated, Provenance::Simulated],
    takes: Duration::from_secs(15),
    takes_quick: Duration::from_secs(5),
    run,
};

/// The weights, as integers.
const WEIGHTS: [u32; 3] = [20, 30, 50];
/// Requests, in the paper and simulated.
const REQUESTS: u32 = 10_000;
const RATE_RPS: f64 = 1_000.0;
const SERVICE: Duration = Duration::from_millis(5);
/// The paper's percentages.
const NGINX: [f64; 3] = [20.0, 30.0, 50.0];
const AZURE: [f64; 3] = [18.0, 34.0, 48.0];
/// The paper rounds to whole percent.
const EXACT: f64 = 0.5;

struct Split {
    balancer: &'static str,
    provenance: Provenance,
    requests: u64,
    percent: [f64; 3],
}

impl Split {
    fn new(balancer: &'static str, provenance: Provenance, counts: [u64; 3]) -> Self {
        let requests: u64 = counts.iter().sum();
        let percent = counts.map(|n| 100.0 * n as f64 / requests.max(1) as f64);
        Split { balancer, provenance, requests, percent }
    }

    /// How far the worst of them is from its weight, points.
    fn off(&self) -> f64 {
        let pairs = self.percent.iter().zip(WEIGHTS);
        pairs.map(|(p, w)| (p - f64::from(w)).abs()).fold(0.0, f64::max)
    }
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    let smooth = WEIGHTS.map(f64::from);
    let splits = [
        haproxy(context)?,
        Split::new(
            "HAProxy roundrobin (its keys)",
            Provenance::Simulated,
            picked(&mut HaproxyRoundRobin::new(&WEIGHTS)),
        ),
        Split::new(
            "NGINX (smooth weighted round robin)",
            Provenance::Simulated,
            picked(&mut SmoothRoundRobin::new(&smooth)),
        ),
        Split::new("random by weight", Provenance::Simulated, drawn(context.seed)),
    ];
    Ok(Outcome {
        tables: vec![table(&splits)?],
        plots: vec![plot(&splits)],
        comparisons: splits.iter().map(compare).collect(),
        notes: vec![
            "NGINX itself is not run: its round robin is simulated.".to_owned(),
            "DNS answers drawn by weight for clients that never cache would be the random draw; caches \
             make it worse."
                .to_owned(),
        ],
    })
}

/// Real requests through a real HAProxy.
fn haproxy(context: &Context) -> Result<Split, Failure> {
    let time = context.pick(Duration::from_secs(2), Duration::from_secs(10));
    let models = [BackendModel { cores: 64, speed: 1.0 }; 3];
    let mut pool = Pool::new(&models, SERVICE, Distribution::Deterministic, 0.0, context.seed);
    pool.rate_rps = RATE_RPS;
    let family = Family::start()?;
    let (kind, weights) = (LaneKind::Roundrobin, WEIGHTS.to_vec());
    let mut lane = Lane::start_with(&family, &pool, kind, weights, "split")?;
    lane.open(&family)?;
    wait(context, time, (0.0, 1.0), "requests through HAProxy", || Ok(lane.check()?))?;
    let report = lane.finish()?.report;
    let count = |name: &str| report.by_backend.get(name).map_or(0, |backend| backend.requests);
    let counts = ["s1", "s2", "s3"].map(count);
    Ok(Split::new("HAProxy roundrobin", Provenance::Emulated, counts))
}

fn picked(balancer: &mut impl Pick) -> [u64; 3] {
    let mut counts = [0; 3];
    for _ in 0..REQUESTS {
        if let Some(count) = balancer.pick().and_then(|i| counts.get_mut(i)) {
            *count += 1;
        }
    }
    counts
}

fn drawn(seed: u64) -> [u64; 3] {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let sum = u64::from(WEIGHTS.iter().sum::<u32>());
    let mut counts = [0; 3];
    for _ in 0..REQUESTS {
        let mut ball = rng.next_u64() % sum;
        for (count, weight) in counts.iter_mut().zip(WEIGHTS.map(u64::from)) {
            if ball < weight {
                *count += 1;
                break;
            }
            ball -= weight;
        }
    }
    counts
}

fn table(splits: &[Split]) -> Result<Table, Failure> {
    let mut table = Table::empty("split", "Part of the requests that each backend got");
    let theirs = [("NGINX, paper", NGINX), ("Azure Traffic Manager, paper", AZURE)].map(
        |(balancer, percent)| Split {
            balancer,
            provenance: Provenance::Reported,
            requests: u64::from(REQUESTS),
            percent,
        },
    );
    for split in splits.iter().chain(&theirs) {
        let [one, two, three] = split.percent;
        row!(table, split.provenance, {
            balancer: split.balancer;
            requests: split.requests;
            backend_1: one, "%";
            backend_2: two, "%";
            backend_3: three, "%";
            furthest_off: split.off(), "points";
        })?;
    }
    Ok(table)
}

fn plot(splits: &[Split]) -> Plot {
    let bars =
        |balancer, from, percent: [f64; 3]| Bars::new(balancer, from, percent.map(Some).to_vec());
    let ours = splits.iter().map(|s| bars(s.balancer, s.provenance, s.percent));
    let theirs = [
        bars("NGINX, paper", Provenance::Reported, NGINX),
        bars("Azure TM, paper", Provenance::Reported, AZURE),
    ];
    let names = ["weight 0.2", "weight 0.3", "weight 0.5"].map(str::to_owned).to_vec();
    let y = Axis::linear("part of the requests (%)");
    Plot::bars("split", "Requests by weight", "", y, names, ours.chain(theirs).collect())
}

fn compare(split: &Split) -> Comparison {
    let random = split.balancer.starts_with("random");
    let (paper, theirs) = if random { ("Azure TM", 4.0) } else { ("NGINX", 0.0) };
    let what = format!("{}: furthest from its weight (paper: {paper})", split.balancer);
    let (from, theirs) = (split.provenance, (theirs, Tolerance::Absolute(EXACT)));
    let found = Comparison::number(from, what, theirs, split.off(), "points");
    if random {
        return found.incomparable(
            "Independent draws are within a point at this number; DNS answers are cached, so that one draw \
             stands for many requests.",
        );
    }
    found.why("Another balancer than the paper's, or its algorithm alone; to whole percent they are the same.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_robins_are_exact_and_draws_are_near() {
        let off = |counts| Split::new("", Provenance::Simulated, counts).off();
        assert!(off(picked(&mut HaproxyRoundRobin::new(&WEIGHTS))) < 0.1);
        assert!(off(picked(&mut SmoothRoundRobin::new(&WEIGHTS.map(f64::from)))) < 0.1);
        let random = off(drawn(1));
        assert!(random > 0.0 && random < 2.5, "{random}");
        assert_eq!(drawn(1).iter().sum::<u64>(), u64::from(REQUESTS));
    }
}
