//! What every lane has in front of its servers: a balancer, clients, and a controller where one steers.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_api::wire::Event;
use plimsoll_control::{BackendView, Phase, ServiceView};
use plimsoll_sim::knapsack::ExploreMode;
use plimsoll_testbed::Service;
use plimsoll_testbed::load::{self, Arrivals, LoadHandle, LoadReport, LoadSpec, Target};

use crate::daemon::{Daemon, Given, Steered};
use crate::haproxy::{Haproxy, Server};
use crate::knapsack::KnapsackDriver;
use crate::proxy::{Proxy, proxy_policy};
use crate::{Family, LaneError};

/// How long a client waits for its answer before it gives up, which counts as an error.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// A bound on the arrivals that no run reaches; runs end them.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// Which balancer a front has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Lb {
    /// The installed HAProxy.
    #[default]
    Haproxy,
    /// Plimsoll's own layer-7 proxy, by the policies that do the same.
    Proxy,
}

impl Lb {
    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Lb::Haproxy => "HAProxy",
            Lb::Proxy => "proxy",
        }
    }
}

/// A balancer that runs.
enum Balancer {
    Haproxy(Haproxy),
    Proxy(Proxy),
}

impl Balancer {
    fn start(family: &Family, spec: &FrontSpec, number: usize) -> Result<Self, LaneError> {
        let FrontSpec { balance, servers, .. } = spec;
        let name = match number {
            0 => spec.name.clone(),
            more => format!("{}-{}", spec.name, more + 1),
        };
        Ok(match spec.lb {
            Lb::Haproxy => {
                let name = format!("{name}-haproxy");
                Balancer::Haproxy(Haproxy::start(family, &name, balance, servers, PATIENCE)?)
            }
            Lb::Proxy => {
                let name = format!("{name}-proxy");
                let policy = proxy_policy(balance);
                Balancer::Proxy(Proxy::start(family, &name, policy, servers, PATIENCE)?)
            }
        })
    }

    fn address(&self) -> SocketAddr {
        match self {
            Balancer::Haproxy(haproxy) => haproxy.address(),
            Balancer::Proxy(proxy) => proxy.address(),
        }
    }

    fn socket(&self) -> &Path {
        match self {
            Balancer::Haproxy(haproxy) => haproxy.socket(),
            Balancer::Proxy(proxy) => proxy.socket(),
        }
    }

    fn ended(&mut self) -> Option<LaneError> {
        match self {
            Balancer::Haproxy(haproxy) => haproxy.ended(),
            Balancer::Proxy(proxy) => proxy.ended(),
        }
    }
}

/// What steers a balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteeredBy {
    /// A Plimsoll daemon.
    Plimsoll,
    /// One that gives each of several balancers a subset of the servers.
    PlimsollSubsets,
    /// One that is given nothing but HAProxy's socket: no file, no list of servers.
    PlimsollFromNothing,
    /// KnapsackLB's controller, which explores in this way.
    Knapsack(ExploreMode),
}

/// A HAProxy that gives each request to one of these balancers, drawn at random.
fn split(family: &Family, name: &str, balancers: &[Balancer]) -> Result<Haproxy, LaneError> {
    let server = |(number, balancer): (usize, &Balancer)| Server {
        name: format!("balancer{}", number + 1),
        address: balancer.address(),
        // The drawing is by points of a ring: few of them make unequal parts.
        weight: 256,
    };
    let servers: Vec<Server> = balancers.iter().enumerate().map(server).collect();
    Haproxy::start_splitter(family, &format!("{name}-split"), &servers, PATIENCE)
}

/// What a front is to be.
#[derive(Clone, Debug)]
pub struct FrontSpec {
    /// Unique within a family: files are called after it.
    pub name: String,
    /// Which balancer.
    pub lb: Lb,
    /// HAProxy's `balance`, or what does the same.
    pub balance: &'static str,
    /// The servers, with what the balancer holds while no daemon runs.
    pub servers: Vec<Server>,
    /// How many balancers stand before the servers, each of which gets its part of the requests at random and knows
    /// nothing of the others; they are HAProxys where there are several.
    pub balancers: usize,
    /// What steers it, if anything.
    pub steering: Option<SteeredBy>,
    /// Requests per second of its Poisson clients.
    pub rate_rps: f64,
    /// The work that each request asks its server for; none where servers draw it themselves.
    pub work: Option<Service>,
    /// Seed of arrivals and work.
    pub seed: u64,
}

/// A balancer before some servers, its clients, and a daemon where Plimsoll steers it.
pub struct Front {
    spec: FrontSpec,
    addresses: Vec<(String, SocketAddr)>,
    /// What was decided by the end of the last daemon that rests.
    past: Vec<Event>,
    // In the order in which they are to end: no client asks a server that is already gone.
    clients: Option<LoadHandle>,
    daemon: Option<Daemon>,
    knapsack: Option<KnapsackDriver>,
    /// Splits the requests where there are several balancers.
    splitter: Option<Haproxy>,
    balancers: Vec<Balancer>,
}

impl Front {
    /// Everything but the clients.
    ///
    /// # Errors
    /// When a part of it does not start.
    pub fn start(family: &Family, spec: FrontSpec) -> Result<Self, LaneError> {
        let balancers: Vec<Balancer> = (0..spec.balancers.max(1))
            .map(|number| Balancer::start(family, &spec, number))
            .collect::<Result<_, _>>()?;
        let splitter = match &balancers[..] {
            [_] => None,
            several => Some(split(family, &spec.name, several)?),
        };
        let addresses = spec.servers.iter().map(|s| (s.name.clone(), s.address)).collect();
        let (past, clients, daemon, knapsack) = (Vec::new(), None, None, None);
        let mut front =
            Front { spec, addresses, past, clients, daemon, knapsack, splitter, balancers };
        front.steer(family)?;
        Ok(front)
    }

    /// Starts the controller where there should be one and is none. It knows what the last one knew.
    fn steer(&mut self, family: &Family) -> Result<(), LaneError> {
        let (servers, lb) = (&self.addresses, self.spec.lb);
        let sockets: Vec<&Path> = self.balancers.iter().map(Balancer::socket).collect();
        match self.spec.steering {
            Some(
                by @ (SteeredBy::Plimsoll
                | SteeredBy::PlimsollSubsets
                | SteeredBy::PlimsollFromNothing),
            ) if self.daemon.is_none() => {
                let name = format!("{}-plimsoll", self.spec.name);
                let given = match by {
                    SteeredBy::PlimsollFromNothing => Given::Socket,
                    SteeredBy::PlimsollSubsets => Given::Subsets,
                    _ => Given::Configuration,
                };
                let steered = Steered { servers, lb, sockets, given };
                self.daemon = Some(Daemon::start(family, &name, &steered)?);
                Ok(())
            }
            Some(SteeredBy::Knapsack(mode)) => {
                if self.knapsack.is_none() {
                    let driver = KnapsackDriver::new(servers, lb, sockets[0], mode)?;
                    self.knapsack = Some(driver);
                }
                self.knapsack.as_mut().map_or(Ok(()), KnapsackDriver::start)
            }
            _ => Ok(()),
        }
    }

    /// Lets the clients come, for the first time or after a pause, and the daemon again where it rested.
    ///
    /// # Errors
    /// When the system refuses a thread or a process, or the clients have ended.
    pub fn open(&mut self, family: &Family) -> Result<(), LaneError> {
        if let Some(clients) = &self.clients {
            clients.set_rate(self.spec.rate_rps)?;
            return self.steer(family);
        }
        self.clients = Some(load::start(self.load()?)?);
        Ok(())
    }

    /// Instead of [`Lane::open`]: lets so many clients come, each of which sends its next request when
    /// its last one has ended. They cannot be paused.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn open_closed(&mut self, clients: usize) -> Result<(), LaneError> {
        let mut spec = self.load()?;
        (spec.arrivals, spec.concurrency) = (Arrivals::Closed, Some(clients));
        self.clients = Some(load::start(spec)?);
        Ok(())
    }

    /// Poisson clients at the lane's rate.
    fn load(&self) -> Result<LoadSpec, LaneError> {
        let address = match &self.splitter {
            Some(splitter) => splitter.address(),
            None => self.balancers[0].address(),
        };
        let target = Target::resolve(&format!("http://{address}/work"))
            .map_err(|problem| load::LoadError::Invalid(vec![problem]))?;
        let mut spec = LoadSpec::poisson(target, self.spec.rate_rps, LONGEST);
        (spec.timeout, spec.seed, spec.keep_records) = (PATIENCE, self.spec.seed, true);
        spec.work = self.spec.work;
        Ok(spec)
    }

    /// Ends the daemon, if there is one: the balancer keeps its weights, and the next one begins with what
    /// this one has learned.
    pub fn rest(&mut self) {
        let weights = self.held(self.view().as_ref());
        for (server, weight) in self.spec.servers.iter_mut().zip(weights) {
            server.weight = weight;
        }
        self.knapsack.iter_mut().for_each(KnapsackDriver::rest);
        if let Some(daemon) = self.daemon.take() {
            self.past = daemon.events();
            daemon.end();
        }
    }

    /// No more clients come; those who wait are still served.
    ///
    /// # Errors
    /// When the clients have ended.
    pub fn pause(&self) -> Result<(), LaneError> {
        self.set_rate(0.0)
    }

    /// Lets open clients come at another rate from now on.
    ///
    /// # Errors
    /// When the rate is not possible, or the clients have ended.
    pub fn set_rate(&self, rate_rps: f64) -> Result<(), LaneError> {
        self.clients.as_ref().map_or(Ok(()), |clients| Ok(clients.set_rate(rate_rps)?))
    }

    /// When the clock of its clients read zero; nothing before the first has come.
    pub fn started(&self) -> Option<Instant> {
        self.clients.as_ref().map(LoadHandle::started)
    }

    /// What its clients saw so far, without single requests.
    pub fn so_far(&self) -> Option<LoadReport> {
        self.clients.as_ref()?.snapshot()
    }

    /// What Plimsoll knows and does here; nothing where it does not steer or does not answer.
    pub fn view(&self) -> Option<ServiceView> {
        self.daemon.as_ref()?.view()
    }

    /// What its controller does; nothing where there is none or it does not answer.
    pub fn phase(&self) -> Option<Phase> {
        match &self.knapsack {
            Some(knapsack) => knapsack.phase(),
            None => self.view().map(|view| view.phase),
        }
    }

    /// The weights that the balancer holds: what this view says is programmed, or the last that are known.
    pub fn held(&self, view: Option<&ServiceView>) -> Vec<u32> {
        let programmed = |b: &BackendView| b.programmed.unwrap_or(b.weight);
        let last = || match &self.knapsack {
            Some(knapsack) => knapsack.weights(),
            None => self.spec.servers.iter().map(|server| server.weight).collect(),
        };
        view.map_or_else(last, |v| v.backends.iter().map(programmed).collect())
    }

    /// Plimsoll's decisions so far, the last thousand: a daemon also keeps those of the ones before it.
    pub fn events(&self) -> Vec<Event> {
        match &self.knapsack {
            Some(knapsack) => knapsack.entries(),
            None => self.daemon.as_ref().map_or_else(|| self.past.clone(), Daemon::events),
        }
    }

    /// Those after the one of this number, at most a thousand; none while no daemon runs.
    pub fn events_after(&self, seq: u64) -> Vec<Event> {
        self.daemon.as_ref().map_or_else(Vec::new, |daemon| daemon.events_after(seq))
    }

    /// Whether every part of it still lives.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&mut self) -> Result<(), LaneError> {
        let daemon = self.daemon.as_mut().and_then(Daemon::ended);
        let knapsack = || self.knapsack.as_ref().and_then(KnapsackDriver::ended);
        let splitter = self.splitter.as_mut().and_then(Haproxy::ended);
        let balancer = || self.balancers.iter_mut().find_map(Balancer::ended);
        daemon.or_else(knapsack).or(splitter).or_else(balancer).map_or(Ok(()), Err)
    }

    /// Ends the arrivals for good, so that several lanes can wait for their last clients together.
    pub fn close(&self) {
        if let Some(clients) = &self.clients {
            clients.stop();
        }
    }

    /// Waits for the last client, which takes no longer than its patience, and ends everything: when the
    /// clock of the records read zero, and what the clients saw.
    ///
    /// # Errors
    /// When the clients have died.
    pub fn finish(mut self) -> Result<(Instant, LoadReport), LaneError> {
        let clients = self.clients.take().ok_or(load::LoadError::Ended)?;
        clients.stop();
        let started = clients.started();
        Ok((started, clients.join()?))
    }
}
