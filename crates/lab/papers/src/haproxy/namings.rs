//! `uri` under many namings of the pages (§8, §9): ten pages on five servers are up to the hash's chance.
//!
//! Which server has a page is computed by the policy that picks what HAProxy picks (haproxy-picks); what
//! clients wait is simulated: Poisson arrivals, exponential work, servers of c cores, first in first out.
//! Every naming has the same arrivals and the same work.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use plimsoll_model::Nanos;
use plimsoll_policy::{
    HashFunction, HashKey, KeySource, PolicyKind, Request, RequestView, Settings, UriPart,
};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::namings_live;
use super::pool::{SERVICE, Sizes};
use super::servers::chosen;
use super::sweep::load;
use crate::cells::Cells;
use crate::comparison::Bound;
use crate::outcome::{Outcome, Table, row};
use crate::plot::{Axis, Lines, Plot};
use crate::{Comparison, Context, Experiment, Failure, Provenance};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "haproxy-namings",
    paper: &super::PAPER,
    figure: "Figures 7 and 8, uri",
    title: "uri under many namings of the pages",
    claim: "uri shows the best performance for GET and the worst for POST.",
    provenance: &[Provenance::Simulated],
    takes: Duration::from_secs(60),
    takes_quick: Duration::from_secs(2),
    run,
};

/// What each GET and each POST takes of the mean work.
const GETS: [f64; 5] = [0.6, 0.6, 0.8, 1.2, 0.8];
const POSTS: [f64; 5] = [0.8, 1.0, 1.2, 1.4, 1.6];
/// Tasks per 60 s on each pool, below what equal parts overload: a quarter and three quarters of that.
const RATES: [(Sizes<'static>, f64); 4] = [
    (Sizes::Homogeneous, 20_000.0),
    (Sizes::Homogeneous, 60_000.0),
    (Sizes::Heterogeneous, 5_000.0),
    (Sizes::Heterogeneous, 15_000.0),
];

struct Page(String);

impl RequestView for Page {
    fn target(&self) -> Option<&[u8]> {
        Some(self.0.as_bytes())
    }
}

/// Servers of all pages, GETs first, by HAProxy's default hash of the URI under equal weights.
pub fn placed(names: &[String]) -> Result<Vec<usize>, Failure> {
    let built = PolicyKind::HashMap.build(&[1; 5], &Settings::default());
    let mut policy = built.map_err(|error| Failure::Other(error.to_string()))?;
    let of = KeySource::Uri(UriPart::default());
    let key = HashKey { of, function: HashFunction::Sdbm, avalanche: false };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
    let mut place = |name: &String| {
        let key = key.key(&Page(name.clone()))?;
        policy.pick(&Request::with_key(key), Nanos::ZERO, &mut rng)
    };
    let all: Option<Vec<usize>> = names.iter().map(&mut place).collect();
    all.ok_or_else(|| Failure::Other("a page has no server".to_owned()))
}

/// Mean response times of GETs and POSTs, milliseconds; `place` gives each page's server, or turns.
fn simulate(
    cores: &[u32],
    rate_rps: f64,
    requests: u32,
    place: Option<&[usize]>,
    seed: u64,
) -> [f64; 2] {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut free: Vec<BinaryHeap<Reverse<u64>>> =
        cores.iter().map(|&n| (0..n).map(|_| Reverse(0)).collect()).collect();
    let mut exponential = |mean: f64| -(1.0 - rng.random::<f64>()).ln() * mean;
    let (mut now, mut turn) = (0.0, 0);
    let (mut sum, mut count) = ([0.0; 2], [0.0; 2]);
    for i in 0..requests {
        now += exponential(1e9 / rate_rps);
        let page = (exponential(1.0) * 1e6) as usize % 10;
        let cost = GETS.iter().chain(&POSTS).nth(page).copied().unwrap_or(1.0);
        let work = exponential(SERVICE.as_nanos() as f64 * cost);
        let server = place.map_or_else(
            || {
                turn += 1;
                turn % 5
            },
            |place| place[page],
        );
        let Some(Reverse(core)) = free[server].pop() else { continue };
        let end = now.max(core as f64) + work;
        free[server].push(Reverse(end as u64));
        // The pool starts empty.
        if i >= requests / 10 {
            sum[page / 5] += (end - now) / 1e6;
            count[page / 5] += 1.0;
        }
    }
    [sum[0] / count[0], sum[1] / count[1]]
}

/// Requests per second for so many of the paper's tasks.
fn rate_rps(tasks: f64) -> f64 {
    let mean = GETS.iter().chain(&POSTS).sum::<f64>() / 10.0;
    load(tasks, 80.0) * 20.0 / (SERVICE.as_secs_f64() * mean)
}

/// How pages are named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// Ten paths.
    Ten,
    /// Five paths of GETs, and one of all POSTs, as WordPress takes comments.
    WordPress,
}

impl Naming {
    fn name(self) -> &'static str {
        match self {
            Naming::Ten => "ten paths",
            Naming::WordPress => "one path for all POSTs",
        }
    }

    fn draw(self, rng: &mut impl Rng) -> Vec<String> {
        let word = |rng: &mut dyn rand::RngCore| {
            let letters = 3 + rng.next_u32() % 10;
            let letter =
                |rng: &mut dyn rand::RngCore| char::from(b'a' + (rng.next_u32() % 26) as u8);
            (0..letters).map(|_| letter(rng)).collect::<String>()
        };
        let form = format!("/{}.php", word(rng));
        (0..10)
            .map(|i| match self {
                Naming::WordPress if i >= 5 => form.clone(),
                _ => format!("/{}/", word(rng)),
            })
            .collect()
    }
}

fn run(context: &Context) -> Result<Outcome, Failure> {
    // Simulated without a choice of servers: that takes a minute.
    let pools = if context.options.pools.is_empty() { Vec::new() } else { chosen(context)? };
    let (namings, requests) = context.pick((20, 10_000), (200, 200_000));
    let simulated = if pools.is_empty() { 1.0 } else { 0.05 };
    let mut table = Table::empty("namings", "uri over roundrobin, naming by naming");
    let mut shown =
        Table::empty("distribution", "uri over roundrobin: the distribution over namings");
    let mut lines = Vec::new();
    let mut comparisons = Vec::new();
    let plans = RATES
        .into_iter()
        .flat_map(|plan| [Naming::Ten, Naming::WordPress].map(|naming| (plan, naming)));
    for (step, ((sizes, tasks), naming)) in plans.enumerate() {
        let rate = rate_rps(tasks);
        let turns = simulate(&sizes.emulated(), rate, requests, None, context.seed);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(context.seed);
        let mut ratios = Vec::new();
        for i in 0..namings {
            let done = step as f64 + f64::from(i) / f64::from(namings);
            context.progress(done / 8.0 * simulated, naming.name())?;
            let place = placed(&naming.draw(&mut rng))?;
            let uri = simulate(&sizes.emulated(), rate, requests, Some(&place), context.seed);
            let ratio = [uri[0] / turns[0], uri[1] / turns[1]];
            row!(table, Provenance::Simulated, {
                servers: sizes.name();
                tasks_per_60_s: tasks, "the paper's rate";
                naming: naming.name();
                number: i + 1;
                servers_with_gets: distinct(&place[..5]);
                servers_with_posts: distinct(&place[5..]);
                get_ratio: ratio[0], "× roundrobin";
                post_ratio: ratio[1], "× roundrobin";
            })?;
            ratios.push(ratio);
        }
        for (task, name) in ["GET", "POST"].iter().enumerate() {
            let sorted = spread(&ratios, task);
            let at = |part: f64| quantile(&sorted, part);
            row!(shown, Provenance::Simulated, {
                servers: sizes.name();
                tasks_per_60_s: tasks, "the paper's rate";
                naming: naming.name();
                task: *name;
                least: at(0.0), "× roundrobin";
                tenth: at(0.1), "× roundrobin";
                median: at(0.5), "× roundrobin";
                nine_tenths: at(0.9), "× roundrobin";
                greatest: at(1.0), "× roundrobin";
                better_than_roundrobin: sorted.iter().filter(|r| **r < 1.0).count() as f64 / sorted.len() as f64, "part of the namings";
            })?;
            let points =
                (0..).zip(&sorted).map(|(i, r)| (100.0 * f64::from(i) / sorted.len() as f64, *r));
            // Of the lower rate, where a crowded server is slow; at the higher one it is overloaded.
            if tasks == RATES[0].1 || tasks == RATES[2].1 {
                let label = format!("{} {name}, {}", sizes.name(), naming.name());
                lines.push(Lines::new(&label, Provenance::Simulated, points.collect()));
            }
        }
        let both = ratios.iter().filter(|r| r[0] < 1.0 && r[1] > 1.0).count();
        let what = format!(
            "{}, {tasks:.0} tasks per 60 s, {}: namings in which uri beats roundrobin on GET and loses on POST",
            sizes.name(),
            naming.name()
        );
        let part = 100.0 * both as f64 / ratios.len() as f64;
        let paper = ("uri is best on GET and worst on POST", Bound::AtLeast(50.0));
        comparisons.push(Comparison::bound(Provenance::Simulated, what, paper, part, "%").why(
            "More than half of the namings would make it the method's doing and not the names'. Five pages on \
             five servers all differ in 4 of 100 namings; a server with two is twice as busy.",
        ));
    }
    let (x, y) = (Axis::linear("namings (%)"), Axis::log("× roundrobin's mean response time"));
    let mut outcome = Outcome {
        tables: vec![shown, table],
        plots: vec![Plot::lines("namings", "uri over roundrobin", x, y, lines)],
        comparisons,
        notes: vec![format!(
            "Equal weights, the scale of haproxy-fig7; the plot is of the lower rate. A server that is given more than it can serve has no mean: its ratio grows with the \
             length of the run, {requests} requests."
        )],
    };
    let mut cells = Cells::open(context, EXPERIMENT.name)?;
    for (i, &pool) in pools.iter().enumerate() {
        let at = |i: usize| 0.05 + 0.95 * i as f64 / pools.len() as f64;
        namings_live::add(context, &mut cells, pool, &mut outcome, (at(i), at(i + 1)))?;
    }
    Ok(outcome)
}

/// The ratios of GETs (0) or POSTs (1), the least first.
pub fn spread(ratios: &[[f64; 2]], task: usize) -> Vec<f64> {
    let mut sorted: Vec<f64> = ratios.iter().map(|ratio| ratio[task]).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// What this part of them is at most, between two of them by their distance.
pub fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = (sorted.len().saturating_sub(1)) as f64 * part;
    let value = |at: f64| sorted.get(at as usize).copied().unwrap_or(f64::NAN);
    let (low, high) = (value(at.floor()), value(at.ceil()));
    low + (high - low) * at.fract()
}

/// On how many of the five servers pages are.
pub fn distinct(servers: &[usize]) -> u32 {
    (0..5).map(|server| u32::from(servers.contains(&server))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(quantile(&[1.0, 2.0, 4.0, 9.0], 0.5), 3.0);
        assert_eq!(quantile(&[1.0, 2.0, 4.0], 0.5), 2.0);
        assert_eq!((quantile(&[1.0, 3.0], 0.0), quantile(&[1.0, 3.0], 1.0)), (1.0, 3.0));
    }

    #[test]
    fn pages_are_placed_as_haproxy_places_them() {
        // sdbm of "/" is 47, of "/index.html" 858007926: HAProxy's converters say so.
        let names = ["/".to_owned(), "/index.html".to_owned(), "/?x=1".to_owned()];
        assert_eq!(placed(&names).unwrap(), [47 % 5, 858_007_926 % 5, 47 % 5]);
    }

    #[test]
    fn the_simulation_knows_one_core_and_the_price_of_sharing_a_server() {
        // One page each: no waiting to speak of.
        let light = simulate(&[1; 5], 0.5, 200_000, None, 1);
        let due = |costs: [f64; 5]| 60.0 * costs.iter().sum::<f64>() / 5.0;
        for (got, due) in light.iter().zip([due(GETS), due(POSTS)]) {
            assert!((got / due - 1.0).abs() < 0.06, "{got} for {due}");
        }
        let apart = simulate(&[1; 5], 20.0, 50_000, None, 1);
        let together = simulate(&[1; 5], 20.0, 50_000, Some(&[0, 0, 0, 0, 0, 1, 2, 3, 4, 4]), 1);
        assert!(together[0] > 1.5 * apart[0], "{together:?} {apart:?}");
    }
}
