//! Servers that run: emulated, the lab's own in control groups, or WordPress.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use plimsoll_lanes::{Family, LaneError, haproxy_version};
use plimsoll_real::cgroup::{Cgroups, Quota};
use plimsoll_real::wordpress::{self, Cost, Instances, Site, WordPressError};
use plimsoll_real::{Make, Model, Pool, RealError, Servers, calibrate};
use plimsoll_testbed::{Service, Testbed};
use serde::{Deserialize, Serialize};

use super::lane::Lane;
use super::method::BY_CORES;
use super::pool::{Addresses, Names, REAL_WORK, SERVICE, Sizes, asks, core_rps, emulated};
use crate::cells::Cells;
use crate::lanes::wait;
use crate::{Context, Failure, Provenance, ServerPool};

/// Cores that the lab's real servers have together: what one lane may use of two.
const REAL_CORES: f64 = 0.8;
/// Cores that all WordPress instances have together; the rest is for the database, balancer and clients.
const WORDPRESS_CORES: f64 = 1.2;
/// Threads of each real server.
const THREADS: usize = 4;
/// The kernel's and Kubernetes' usual one.
const PERIOD: Duration = Duration::from_millis(100);
/// Part of what the servers could do, by what a request costs alone, that they are asked for while its cost at capacity
/// is measured: all are busy, and after half a minute no client has waited so long as to give up.
const SATURATED: f64 = 1.1;
/// Servers are idle when they use no more than this part of their cores.
const IDLE: f64 = 0.03;
/// Over so long.
const IDLE_FOR: Duration = Duration::from_secs(1);
/// What is left of an overload has been served by then.
const IDLE_WITHIN: Duration = Duration::from_secs(180);

impl ServerPool {
    /// For people.
    pub(super) fn title(self) -> &'static str {
        match self {
            ServerPool::Emulated => "emulated servers",
            ServerPool::Real => "real servers",
            ServerPool::Wordpress => "WordPress",
        }
    }

    pub(super) fn provenance(self) -> Provenance {
        match self {
            ServerPool::Emulated => Provenance::Emulated,
            ServerPool::Real | ServerPool::Wordpress => Provenance::Measured,
        }
    }

    /// The study does not state its deadline: ten times the mean work of a request, emulated, and the three seconds
    /// that it cites for clients where servers are real.
    pub(super) fn deadline(self) -> Duration {
        match self {
            ServerPool::Emulated => SERVICE.saturating_mul(10),
            ServerPool::Real | ServerPool::Wordpress => Duration::from_secs(3),
        }
    }

    /// Cores that all servers have together.
    pub(super) fn total_cores(self, sizes: Sizes) -> f64 {
        match self {
            ServerPool::Emulated => f64::from(sizes.emulated().iter().sum::<u32>()),
            ServerPool::Real => REAL_CORES,
            ServerPool::Wordpress => WORDPRESS_CORES,
        }
    }
}

/// The pools that were chosen; the emulated one by default. Before anything is kept of a run: it may be another one once
/// what is missing is there.
///
/// # Errors
/// When one of them cannot run here, with everything that is missing: hours of another shall not end with that.
pub fn chosen(context: &Context) -> Result<Vec<ServerPool>, Failure> {
    let pools = match &context.options.pools[..] {
        [] => vec![ServerPool::Emulated],
        pools => pools.to_vec(),
    };
    let mut problems = Vec::new();
    for pool in &pools {
        match pool {
            ServerPool::Emulated => {}
            ServerPool::Real => {
                problems.extend(cgroups().err().map(|error| error.to_string()));
                let own = Make::Own.find().map_err(of_real);
                problems.extend(own.err().map(|error| error.to_string()));
            }
            ServerPool::Wordpress => {
                let missing = wordpress::missing();
                let lacks = (!missing.is_empty()).then_some(WordPressError::Missing(missing));
                let site = context.options.site.as_deref();
                let place = site.and_then(|site| wordpress::check_place(site).err());
                let both = lacks.into_iter().chain(place);
                problems.extend(both.map(|error| of_wordpress(error).to_string()));
            }
        }
    }
    // No experiment of the study can do without it.
    if haproxy_version().is_none() {
        problems.push(LaneError::NoHaproxy.to_string());
    }
    if problems.is_empty() { Ok(pools) } else { Err(Failure::Other(problems.join("; "))) }
}

// Held for what runs. Groups must be empty to go: servers end first.
enum Running {
    Emulated(Testbed),
    Real(Servers, Cgroups),
    WordPress(Application),
}

/// Held together: instances end before their groups, and those before the database.
struct Application {
    instances: Instances,
    _cgroups: Cgroups,
    /// Of all that run side by side.
    site: Rc<RefCell<Site>>,
}

impl Application {
    fn start(
        context: &Context,
        family: &Family,
        site: Rc<RefCell<Site>>,
        quotas: &[f64],
        number: u8,
    ) -> Result<Self, Failure> {
        context.under_way("WordPress: each instance serves its first pages")?;
        let cgroups = cgroups()?;
        let interrupt = context.interrupt();
        let instances =
            Instances::start(family, &cgroups, &site.borrow(), quotas, number, interrupt);
        let instances = instances.map_err(of_wordpress)?;
        Ok(Application { instances, _cgroups: cgroups, site })
    }
}

/// Servers that run; they end with this value.
pub struct Bed<'a> {
    /// What they are.
    pub pool: ServerPool,
    /// Their sizes.
    pub sizes: Sizes<'a>,
    running: Running,
}

/// How much the servers can do, measured before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Requests per second that one core serves of GETs and POSTs in halves: all servers together, over all cores.
    pub core_rps: f64,
    /// The same of the smallest server. Under a small quota a request costs more CPU.
    pub smallest_rps: f64,
    /// What each request costs the smallest server while nothing else is at work; WordPress alone has such.
    pub costs: Vec<(String, String, f64)>,
}

impl Scale {
    /// Of emulated servers, which is known.
    pub fn emulated() -> Self {
        Scale { core_rps: core_rps(), smallest_rps: core_rps(), costs: Vec::new() }
    }
}

impl<'a> Bed<'a> {
    /// Starts them. Service times of emulated ones are drawn with `seed`: another for each repetition that has servers
    /// of its own.
    ///
    /// # Errors
    /// When something is missing, or a part does not start.
    pub fn start(
        context: &Context,
        family: &Family,
        pool: ServerPool,
        sizes: Sizes<'a>,
        (names, seed): (&Names, u64),
    ) -> Result<Self, Failure> {
        let running = match pool {
            ServerPool::Emulated => Running::Emulated(emulated(sizes, seed, names)?),
            ServerPool::Real => start_real(family, sizes, 1)?,
            ServerPool::Wordpress => {
                let dir = context.options.site.as_deref().ok_or_else(|| {
                    Failure::Other("--pool wordpress: needs --site DIR".to_owned())
                })?;
                make_site(context, dir)?;
                let site = Site::start(family, dir).map_err(of_wordpress)?;
                let (site, quotas) = (Rc::new(RefCell::new(site)), quotas(pool, sizes));
                Running::WordPress(Application::start(context, family, site, &quotas, 1)?)
            }
        };
        Ok(Bed { pool, sizes, running })
    }

    /// As many servers again, for a lane beside those of the first. WordPress' instances share the database.
    ///
    /// # Errors
    /// As [`Bed::start`].
    pub fn beside(&self, context: &Context, family: &Family, number: u8) -> Result<Self, Failure> {
        let (pool, sizes) = (self.pool, self.sizes);
        let running = match &self.running {
            Running::Emulated(_) => {
                Running::Emulated(emulated(sizes, context.seed + u64::from(number), &[])?)
            }
            Running::Real(..) => start_real(family, sizes, number)?,
            Running::WordPress(first) => {
                let (site, quotas) = (first.site.clone(), quotas(pool, sizes));
                Running::WordPress(Application::start(context, family, site, &quotas, number)?)
            }
        };
        Ok(Bed { pool, sizes, running })
    }

    /// Names and addresses.
    pub fn addresses(&self) -> Addresses {
        match &self.running {
            Running::Emulated(bed) => bed.addresses().to_vec(),
            Running::Real(servers, _) => servers.addresses(),
            Running::WordPress(site) => site.instances.addresses(),
        }
    }

    /// Cores of each, or its part of one.
    pub fn cores(&self) -> Vec<f64> {
        quotas(self.pool, self.sizes)
    }

    /// The directory of each one's control group, where there are such.
    pub fn groups(&self) -> Option<Vec<PathBuf>> {
        match &self.running {
            Running::Emulated(_) => None,
            Running::Real(servers, _) => Some(servers.groups()),
            Running::WordPress(site) => Some(site.instances.groups()),
        }
    }

    /// CPU time that each has used so far, seconds: of control groups where servers are real.
    ///
    /// # Errors
    /// When it is not counted.
    pub fn cpu_used(&self) -> Result<Vec<f64>, Failure> {
        let seconds = |all: Vec<Duration>| all.iter().map(Duration::as_secs_f64).collect();
        match &self.running {
            Running::Emulated(bed) => {
                let stats = bed.stats().ok_or_else(|| {
                    Failure::Other("the emulated servers have stopped".to_owned())
                })?;
                Ok(stats.backends.iter().map(|backend| backend.busy_core_seconds).collect())
            }
            Running::Real(servers, _) => servers.cpu_used().map(seconds).map_err(of_real),
            Running::WordPress(site) => {
                site.instances.cpu_used().map(seconds).map_err(of_wordpress)
            }
        }
    }

    /// Whether every process lives.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&mut self) -> Result<(), Failure> {
        match &mut self.running {
            Running::Emulated(_) => Ok(()),
            Running::Real(servers, _) => Ok(servers.check()?),
            Running::WordPress(application) => {
                application.site.borrow_mut().check()?;
                Ok(application.instances.check()?)
            }
        }
    }

    /// Waits until all of these have served what the last lanes have left: requests that nobody waits for any more are
    /// still worked on, by WordPress with all the CPU that there is.
    ///
    /// # Errors
    /// When they do not come to rest.
    pub fn settle(beds: &[Bed], context: &Context) -> Result<(), Failure> {
        let sites = || {
            beds.iter().filter_map(|bed| match &bed.running {
                Running::WordPress(site) => Some(&site.instances),
                Running::Emulated(_) | Running::Real(..) => None,
            })
        };
        sites().try_for_each(Instances::lift_quotas).map_err(of_wordpress)?;
        let rested = Bed::rest(beds, context);
        sites().try_for_each(Instances::restore_quotas).map_err(of_wordpress)?;
        rested
    }

    fn rest(beds: &[Bed], context: &Context) -> Result<(), Failure> {
        let end = Instant::now() + IDLE_WITHIN;
        let used = || -> Result<Vec<f64>, Failure> {
            beds.iter().map(|bed| Ok(bed.cpu_used()?.iter().sum())).collect()
        };
        loop {
            let (at, before) = (Instant::now(), used()?);
            while at.elapsed() < context.pick(IDLE_FOR / 4, IDLE_FOR) {
                context.check()?;
                std::thread::sleep(Duration::from_millis(50));
            }
            let (now, seconds) = (used()?, at.elapsed().as_secs_f64());
            let is_idle =
                |bed: &Bed, used: f64| used / seconds <= IDLE * bed.cores().iter().sum::<f64>();
            let mut all = beds.iter().zip(now.iter().zip(&before));
            if all.all(|(bed, (now, before))| is_idle(bed, now - before)) {
                return Ok(());
            }
            if Instant::now() > end {
                let what = beds[0].pool.title();
                return Err(Failure::Other(format!("{what}: still busy after the last lane")));
            }
        }
    }

    /// What a core serves: known of emulated servers, measured of real ones, once a run.
    ///
    /// # Errors
    /// When it cannot be measured.
    pub fn scale(
        &self,
        context: &Context,
        family: &Family,
        cells: &mut Cells,
    ) -> Result<Scale, Failure> {
        let cell = format!("{}/{}/scale", self.pool.name(), self.sizes.name());
        match &self.running {
            Running::Emulated(_) => Ok(Scale::emulated()),
            Running::Real(_, cgroups) => cells.get_or(&cell, || {
                context.check()?;
                let span = context.pick(Duration::from_secs(4), Duration::from_secs(10));
                let pool = real(self.sizes);
                let interrupt = context.interrupt();
                let all = calibrate(family, cgroups, &pool, span, interrupt).map_err(of_real)?;
                let core_rps = all.iter().sum::<f64>() / REAL_CORES;
                Ok(Scale { core_rps, smallest_rps: all[0] / self.cores()[0], costs: Vec::new() })
            }),
            Running::WordPress(site) => cells.get_or(&cell, || {
                context.under_way("WordPress: what each request costs")?;
                let times = context.pick(1, 5);
                let all = wordpress::costs(&site.instances, times, context.interrupt());
                let all = all.map_err(of_wordpress)?;
                let one_rps: Vec<f64> = all.iter().map(|costs| rps(costs)).collect();
                let cores = self.cores();
                let sum: f64 = one_rps.iter().zip(&cores).map(|(rps, cores)| rps * cores).sum();
                let alone_rps = sum / cores.iter().sum::<f64>();
                let core_rps = self.saturated_core_rps(context, family, SATURATED * sum)?;
                let cost = |one: &Cost| (one.method.to_owned(), one.what.clone(), one.cpu_ms);
                Ok(Scale {
                    core_rps,
                    smallest_rps: one_rps[0] * core_rps / alone_rps,
                    costs: all[0].iter().map(cost).collect(),
                })
            }),
        }
    }

    /// Requests per second that a core serves while all servers are asked for so many that they are busy, in proportion
    /// to their cores: with all of them, the database, the balancer and the clients at work, a request costs more CPU
    /// time than alone.
    fn saturated_core_rps(
        &self,
        context: &Context,
        family: &Family,
        rate_rps: f64,
    ) -> Result<f64, Failure> {
        let (servers, name) = (self.addresses(), format!("scale-{}", self.sizes.name()));
        let mut lane = Lane::start(family, BY_CORES[0], &servers, self.sizes.cores(), &name)?;
        lane.open(&asks(self.pool, &[]), rate_rps, context.seed)?;
        let what = format!("{}: what a request costs at {rate_rps:.1}/s", self.pool.title());
        let look = |lane: &mut Lane, seconds| {
            wait(context, Duration::from_secs(seconds), (0.0, 0.0), &what, || lane.check())
        };
        look(&mut lane, context.pick(1, 5))?;
        let used_s = || self.cpu_used().map(|all| all.iter().sum::<f64>());
        let (before_s, before) = (used_s()?, lane.answered()?);
        let from = Instant::now();
        look(&mut lane, context.pick(3, 30))?;
        let (after_s, after) = (used_s()?, lane.answered()?);
        lane.finish(from, Instant::now(), self.pool.deadline())?;
        Bed::settle(std::slice::from_ref(self), context)?;
        let answered = (after.0 - after.1) - (before.0 - before.1);
        Ok(answered as f64 / (after_s - before_s))
    }
}

/// What a core serves a second of requests that cost this, each as often as the others.
fn rps(costs: &[Cost]) -> f64 {
    1e3 * costs.len() as f64 / costs.iter().map(|cost| cost.cpu_ms).sum::<f64>()
}

/// Cores of each server of such a pool.
fn quotas(pool: ServerPool, sizes: Sizes) -> Vec<f64> {
    let sum = f64::from(sizes.cores().iter().sum::<u32>());
    let quota = |&cores: &u32| pool.total_cores(sizes) * f64::from(cores) / sum;
    sizes.cores().iter().map(quota).collect()
}

/// Whether the kernel can give each server its part of these proportions, and not only more.
pub(crate) fn can_share(pool: ServerPool, sizes: &[u32]) -> bool {
    let is_possible = |cores| Quota { cores, period: PERIOD }.is_possible();
    pool == ServerPool::Emulated || quotas(pool, Sizes::Own(sizes)).into_iter().all(is_possible)
}

fn start_real(family: &Family, sizes: Sizes, number: u8) -> Result<Running, Failure> {
    let cgroups = cgroups()?;
    let name = format!("study-{}-{number}", sizes.name());
    let servers = Servers::start(family, &cgroups, &real(sizes), &name, number);
    Ok(Running::Real(servers.map_err(of_real)?, cgroups))
}

fn real(sizes: Sizes) -> Pool {
    Pool {
        sizes: Pool::sizes(&quotas(ServerPool::Real, sizes), REAL_CORES),
        period: PERIOD,
        cpus: None,
        make: Make::Own,
        model: Model::default(),
        threads: THREADS,
        work: Service::deterministic(REAL_WORK),
        health_work: Duration::from_micros(100),
    }
}

/// One command sets it up: a site that is not there yet is made.
fn make_site(context: &Context, dir: &Path) -> Result<(), Failure> {
    if wordpress::is_free(dir) {
        context.under_way(&format!("making a WordPress site in {}", dir.display()))?;
        wordpress::up(dir).map_err(of_wordpress)?;
    }
    Ok(())
}

fn cgroups() -> Result<Cgroups, Failure> {
    Cgroups::open().map_err(|error| of_real(error.into()))
}

fn of_real(error: RealError) -> Failure {
    match error {
        RealError::Interrupted => Failure::Interrupted,
        error => Failure::Other(format!("real servers: {error}")),
    }
}

fn of_wordpress(error: WordPressError) -> Failure {
    match error {
        WordPressError::Real(RealError::Interrupted) => Failure::Interrupted,
        error => Failure::Other(format!("wordpress: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_servers_share_the_cores_in_the_proportions_of_their_sizes() {
        let near = |quotas: Vec<f64>, expected: &[f64]| {
            assert_eq!(quotas.len(), expected.len());
            assert!(quotas.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{quotas:?}");
        };
        near(quotas(ServerPool::Real, Sizes::Own(&[10, 30])), &[0.2, 0.6]);
        near(quotas(ServerPool::Wordpress, Sizes::Homogeneous), &[0.24; 5]);
        // Emulated ones have what they are asked for.
        near(quotas(ServerPool::Emulated, Sizes::Own(&[2, 2, 4])), &[2.0, 2.0, 4.0]);
        near(quotas(ServerPool::Emulated, Sizes::Heterogeneous), &[1.0, 2.0, 4.0, 8.0, 12.0]);
    }
}
