//! A service behind the product's XDP balancer on this machine, for Figures 6 to 9: clients, balancer and
//! servers in network namespaces, real TCP connections between them.

use std::ops::Range;
use std::time::Duration;

use plimsoll_l4::{Backend, Balancer, L4Config, Load, Policy, Uplink, UplinkMode};
use plimsoll_l4bench::{backend, config, keys, vip};
use plimsoll_testbed::load::{self, LoadReport, LoadSpec, Target};
use plimsoll_testbed::net::{Download, Nginx, Site, SiteSpec, requirements};
use plimsoll_testbed::{BackendSpec, Service as Work, Testbed, TestbedSpec};

use crate::{Context, Failure};

/// How often the balancer's weights follow the load (AWRR), and an interrupt is looked for.
const TICK: Duration = Duration::from_millis(100);

/// The servers of a site, which run until this is dropped.
pub struct Service<S> {
    /// One for each server of the site.
    pub servers: Vec<S>,
    /// Where they are; dropped after them.
    pub site: Site,
}

fn site(servers: usize) -> Result<Site, Failure> {
    requirements()?;
    let site = Site::new(&SiteSpec::new(servers))?;
    // More ports than a run has connections, and none that waits a minute for a late packet.
    site.net.set_sysctl("cli", "net.ipv4.ip_local_port_range", "1024 65535")?;
    site.net.set_sysctl("cli", "net.ipv4.tcp_tw_reuse", "1")?;
    Ok(site)
}

impl Service<Testbed> {
    /// Emulated servers of one core each, which do requests one after another.
    pub fn emulated(servers: usize, work: Work, seed: u64) -> Result<Self, Failure> {
        let site = site(servers)?;
        let start = |name: &String| {
            let spec = BackendSpec { listen: site.vip, seed, ..BackendSpec::new(name, work) };
            let spec = TestbedSpec { admin: None, backends: vec![spec] };
            let started = site.net.inside(name, || Testbed::start(spec))?;
            started.map_err(|error| Failure::Other(error.to_string()))
        };
        let servers = site.servers.iter().map(start).collect::<Result<_, Failure>>()?;
        Ok(Service { servers, site })
    }

    /// Seconds that each server has worked.
    pub fn busy_s(&self) -> Result<Vec<f64>, Failure> {
        let of = |server: &Testbed| {
            let stats = server.stats();
            let one = stats.and_then(|stats| Some(stats.backends.first()?.busy_core_seconds));
            one.ok_or_else(|| Failure::Other("an emulated server has stopped".to_owned()))
        };
        self.servers.iter().map(of).collect()
    }
}

impl Service<Nginx> {
    /// Real servers.
    pub fn real(servers: usize) -> Result<Self, Failure> {
        let site = site(servers)?;
        let download = Download { bytes: 1, bytes_per_s: 1 };
        let start = |name: &String| Nginx::start(&site.net, name, site.vip, download);
        let servers = site.servers.iter().map(start).collect::<Result<_, _>>()?;
        Ok(Service { servers, site })
    }
}

impl<S> Service<S> {
    /// The balancer's configuration with some of the servers, by their places.
    pub fn config(&self, policy: Policy, servers: Range<usize>) -> L4Config {
        let of = |index: usize| Backend {
            id: Some(index as u16 + 1),
            ..backend(
                &self.site.servers[index],
                self.site.address_of(index),
                self.site.mac_of(index),
            )
        };
        let interfaces = self.site.balancer_interfaces();
        let interfaces: Vec<&str> = interfaces.iter().map(String::as_str).collect();
        let service = vip("service", &self.site.vip.to_string(), policy, servers.map(of).collect());
        let mut config = config(self.site.net.pins(), &interfaces, service);
        config.uplink = UplinkMode::Fixed(Uplink {
            interface: interfaces[0].to_owned(),
            gateway: None,
            mac: Some(self.site.client_mac()),
        });
        config
    }

    /// Puts a configuration in force with equal weights: those that AWRR found stay with servers that come
    /// back.
    pub fn begin(
        &self,
        balancer: &mut Balancer,
        policy: Policy,
        servers: Range<usize>,
    ) -> Result<(), Failure> {
        let all = self.config(policy, 0..self.servers.len());
        balancer.apply(&all)?;
        balancer.release(&all.vips[0].name)?;
        balancer.apply(&self.config(policy, servers))?;
        Ok(())
    }

    /// A balancer with this configuration; the thread is in its namespace, as it is for all that follows.
    pub fn balancer(&self, config: &L4Config) -> Result<Balancer, Failure> {
        let (balancer, pending) = Balancer::start_with(config, keys())?;
        match pending.0.first() {
            Some(missing) => Err(Failure::Other(format!("the balancer is not ready: {missing}"))),
            None => Ok(balancer),
        }
    }

    /// Poisson arrivals of connections with one request each. `tick` is called all the while, with what
    /// has passed.
    pub fn connections(
        &self,
        context: &Context,
        balancer: &mut Balancer,
        spec: Arrivals,
        mut tick: impl FnMut(Duration) -> Result<(), Failure>,
    ) -> Result<LoadReport, Failure> {
        let url = format!("http://{}/", self.site.vip);
        let target = Target::resolve(&url).map_err(Failure::Other)?;
        let mut load = LoadSpec::poisson(target, spec.rate_rps, spec.measured);
        load.headers.push(("Connection".to_owned(), "close".to_owned()));
        load.warmup = spec.warmup;
        load.seed = context.seed;
        let failed = |error: load::LoadError| Failure::Other(error.to_string());
        let running = self.site.net.inside("cli", || load::start(load))?.map_err(failed)?;
        let follows = balancer.config().vips[0].policy == Policy::Awrr(Load::Connections);
        while !running.wait(TICK) {
            context.check()?;
            if follows {
                balancer.refresh()?;
            }
            tick(running.started().elapsed())?;
        }
        running.join().map_err(failed)
    }
}

/// When connections begin.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals {
    /// How many a second.
    pub rate_rps: f64,
    /// Not measured.
    pub warmup: Duration,
    /// Measured.
    pub measured: Duration,
}
