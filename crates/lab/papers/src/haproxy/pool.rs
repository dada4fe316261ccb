//! The application tier: five servers that are alike, or as unequal as in Table 4; emulated, or WordPress.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_queueing::{Central, Run, ServiceTime, Station};
use plimsoll_real::wordpress;
use plimsoll_testbed::load::Asked;
use plimsoll_testbed::{BackendSpec, Service, Testbed, TestbedSpec};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::Failure;

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
pub enum Sizes {
    /// 5 × 16 cores.
    Homogeneous,
    /// 4, 8, 16, 32 and 48 cores: Table 4.
    Heterogeneous,
}

impl Sizes {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Sizes::Homogeneous => "homogeneous",
            Sizes::Heterogeneous => "heterogeneous",
        }
    }

    /// The paper's cores.
    pub fn cores(self) -> [u32; 5] {
        match self {
            Sizes::Homogeneous => [16; 5],
            Sizes::Heterogeneous => [4, 8, 16, 32, 48],
        }
    }

    /// The paper's cores over four: what is emulated.
    pub fn emulated(self) -> [u32; 5] {
        self.cores().map(|cores| cores / 4)
    }
}

/// Emulated servers of these sizes.
///
/// # Errors
/// When they do not start.
pub fn emulated(sizes: Sizes, seed: u64) -> Result<Testbed, Failure> {
    let backend = |(i, cores): (usize, u32)| {
        let mut spec = BackendSpec::new(format!("s{}", i + 1), Service::exponential(SERVICE));
        (spec.cores, spec.seed) = (cores, seed);
        spec.costs = COSTS.iter().map(|(path, cost)| ((*path).to_owned(), *cost)).collect();
        spec
    };
    let backends = (0..).zip(sizes.emulated()).map(backend).collect();
    Testbed::start(TestbedSpec { admin: None, backends })
        .map_err(|error| Failure::Other(format!("emulated servers: {error}")))
}

/// The GETs, each with a parameter of its own for `url_param`.
pub fn gets() -> Vec<Asked> {
    let numbered = (1..).zip(wordpress::gets());
    numbered.map(|(i, asked)| Asked { path: format!("{}?id={i}", asked.path), ..asked }).collect()
}

/// The mean work of GETs and POSTs together, in halves, as a multiple of [`SERVICE`].
fn mean_cost() -> f64 {
    let gets = COSTS[..5].iter().map(|(_, cost)| cost).sum::<f64>() / 5.0;
    (gets + COSTS[5].1) / 2.0
}

/// Requests per second that a core serves, emulated.
pub fn core_rps() -> f64 {
    1.0 / (SERVICE.as_secs_f64() * mean_cost())
}

/// What the mean client of a central queue would wait, milliseconds: the limit. Work is taken as
/// exponential, without the classes' own means.
pub fn limit_ms(sizes: Sizes, rate_rps: f64, requests: u32, seed: u64) -> f64 {
    let service_us = 1e6 / core_rps();
    let stations = sizes.emulated().map(|cores| Station { cores, service_us });
    let warm_up = requests / 10;
    let run = Run { rate_rps, requests, warm_up, service: ServiceTime::Exponential };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    Central::simulate(&stations, &run, &mut rng).mean_us / 1e3
}

/// Names and addresses of servers.
pub type Addresses = Vec<(String, SocketAddr)>;
