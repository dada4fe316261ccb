//! The application tier: five servers that are alike, or as unequal as in Table 4, or a person's own; and what clients ask
//! of them.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_queueing::{Central, Run, ServiceTime, Station};
use plimsoll_real::wordpress;
use plimsoll_testbed::load::Asked;
use plimsoll_testbed::{BackendSpec, Service, Testbed, TestbedSpec};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::lane::{Asks, Task};
use crate::{Failure, ServerPool};

/// What the mean request takes on a core, emulated.
pub const SERVICE: Duration = Duration::from_millis(60);
/// What each kind takes of it: the paths of the WordPress site, the five GETs and the form of the POSTs.
const COSTS: [(&str, f64); 6] = [
    (wordpress::GET[0], 0.6),
    (wordpress::GET[1], 0.6),
    (wordpress::GET[2], 0.8),
    (wordpress::GET[3], 1.2),
    (wordpress::GET[4], 0.8),
    ("/wp-comments-post.php", 1.2),
];

/// The servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes<'a> {
    /// 5 × 16 cores.
    Homogeneous,
    /// 4, 8, 16, 32 and 48 cores: Table 4.
    Heterogeneous,
    /// A person's own.
    Own(&'a [u32]),
}

impl<'a> Sizes<'a> {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Sizes::Homogeneous => "homogeneous",
            Sizes::Heterogeneous => "heterogeneous",
            Sizes::Own(_) => "own",
        }
    }

    /// Cores of each, or their proportions.
    pub fn cores(self) -> &'a [u32] {
        match self {
            Sizes::Homogeneous => &[16; 5],
            Sizes::Heterogeneous => &[4, 8, 16, 32, 48],
            Sizes::Own(cores) => cores,
        }
    }

    /// Cores of each emulated one: of the paper's a quarter.
    pub fn emulated(self) -> Vec<u32> {
        match self {
            Sizes::Own(cores) => cores.to_vec(),
            _ => self.cores().iter().map(|cores| cores / 4).collect(),
        }
    }
}

/// What the mean request costs one of the lab's real servers, CPU time.
pub const REAL_WORK: Duration = Duration::from_millis(6);

/// Names of the ten requests, GETs first, for balancers that hash paths; empty for the site's own.
pub type Names = [String];

/// The path of a request under its name.
fn named(names: &Names, i: usize, path: &str) -> String {
    names.get(i).map_or_else(|| path.to_owned(), |name| format!("/~{name}{path}"))
}

/// The five GETs, each with a parameter of its own for `url_param`, and the five POSTs, as these servers understand
/// them.
pub fn asks(pool: ServerPool, names: &Names) -> Asks {
    let path = |i: usize, asked: &Asked, cost: f64| {
        let path = named(names, i, &asked.path);
        let us = (REAL_WORK.as_secs_f64() * 1e6 * cost).round();
        match (pool, i) {
            (ServerPool::Real, 0..5) => format!("/work{path}?id={}&work_us={us}", i + 1),
            (ServerPool::Real, _) => format!("/work{path}?work_us={us}"),
            (_, 0..5) => format!("{path}?id={}", i + 1),
            _ => path,
        }
    };
    let gets = wordpress::gets().into_iter().zip(COSTS).enumerate();
    let gets = gets.map(|(i, (asked, (_, cost)))| Asked { path: path(i, &asked, cost), ..asked });
    let posts = (5..).zip(wordpress::posts());
    let posts =
        posts.map(|(i, asked)| Asked { path: path(i, &asked, COSTS[5].1), ..asked }).collect();
    Asks { gets: gets.collect(), posts, headers: Vec::new() }
}

/// Emulated servers of these sizes, which know pages by these names as well.
///
/// # Errors
/// When they do not start.
pub fn emulated(sizes: Sizes, seed: u64, names: &Names) -> Result<Testbed, Failure> {
    let backend = |(i, cores): (usize, u32)| {
        let mut spec = BackendSpec::new(format!("s{}", i + 1), Service::exponential(SERVICE));
        (spec.cores, spec.seed) = (cores, seed);
        spec.costs =
            (0..10).map(|i| (named(names, i, COSTS[i.min(5)].0), COSTS[i.min(5)].1)).collect();
        spec
    };
    let backends = (0..).zip(sizes.emulated()).map(backend).collect();
    Testbed::start(TestbedSpec { admin: None, backends })
        .map_err(|error| Failure::Other(format!("emulated servers: {error}")))
}

/// Requests per second that a core serves of GETs and POSTs in halves, emulated.
pub fn core_rps() -> f64 {
    2e3 / (work_ms(Task::Get) + work_ms(Task::Post))
}

/// The mean work of one task type, milliseconds, emulated.
pub fn work_ms(task: Task) -> f64 {
    let gets = COSTS[..5].iter().map(|(_, cost)| cost).sum::<f64>() / 5.0;
    let cost = match task {
        Task::Get => gets,
        Task::Post => COSTS[5].1,
    };
    SERVICE.as_secs_f64() * 1e3 * cost
}

/// How long a request of a central queue waits for the fastest free core in the mean, milliseconds: the limit, without
/// its own work. Work is taken as exponential, of all types together.
pub fn limit_wait_ms(sizes: Sizes, rate_rps: f64, requests: u32, seed: u64) -> f64 {
    let service_us = 1e6 / core_rps();
    let station = |cores: u32| Station { cores, service_us };
    let stations: Vec<Station> = sizes.emulated().into_iter().map(station).collect();
    let warm_up = requests / 10;
    let run = Run { rate_rps, requests, warm_up, service: ServiceTime::Exponential };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    (Central::simulate(&stations, &run, &mut rng).mean_us - service_us) / 1e3
}

/// Names and addresses of servers.
pub type Addresses = Vec<(String, SocketAddr)>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pool_is_asked_for_the_same_pages_in_its_own_words() {
        let names: Vec<String> = (0..10).map(|i| format!("n{i}")).collect();
        for (pool, get, post) in [
            (ServerPool::Emulated, "/page-1/?id=2", "/wp-comments-post.php"),
            (ServerPool::Wordpress, "/page-1/?id=2", "/wp-comments-post.php"),
            (
                ServerPool::Real,
                "/work/page-1/?id=2&work_us=3600",
                "/work/wp-comments-post.php?work_us=7200",
            ),
        ] {
            let own = asks(pool, &[]);
            assert_eq!((own.gets.len(), own.posts.len()), (5, 5));
            assert_eq!((own.gets[1].path.as_str(), own.posts[3].path.as_str()), (get, post));
            assert!(own.posts.iter().all(|post| !post.body.is_empty()));
            let other = asks(pool, &names);
            assert!(other.gets[1].path.contains("/~n1/page-1/"), "{}", other.gets[1].path);
            assert!(other.posts[3].path.contains("/~n8/wp-"), "{}", other.posts[3].path);
        }
    }
}
