//! One method of steering, with clients and servers of its own.

use std::time::Duration;

use plimsoll_l4bench::{Meter, Runs};
use plimsoll_testbed::net::clients::{ClientReport, ClientSpec, Clients, Sessions};
use plimsoll_testbed::net::{Download, Nginx, Site, SiteSpec};

use super::churn::{Change, Place, SERVERS, at_first};
use super::steering::Steering;
use super::{DemoError, Method};

/// Clients that download.
pub const DOWNLOADS: usize = 24;
/// Clients with short requests.
pub const BROWSERS: usize = 40;
/// Short requests to a connection.
const REQUESTS: u32 = 20;
/// Between two of them, on average.
const PAUSE: Duration = Duration::from_millis(100);
/// A machine that is busy must not look like a balancer that breaks: misrouted packets are answered by a
/// reset, at once.
const PATIENCE: Duration = Duration::from_secs(30);
/// About twelve seconds each.
const DOWNLOAD: Download = Download { bytes: 5_000_000, bytes_per_s: 400_000 };
/// The interface by which the balancer's program is found.
const LEG: &str = "lbc";

/// A lane.
pub struct Lane {
    /// How it steers.
    pub method: Method,
    // In the order in which they must end: nobody is to miss what ended before.
    clients: Option<Clients>,
    steering: Steering,
    _servers: Vec<Nginx>,
    meter: Meter,
    site: Site,
}

/// What came of it.
pub struct Finished {
    /// How it steered.
    pub method: Method,
    /// What its clients saw.
    pub clients: ClientReport,
    /// What its packets cost.
    pub runs: Runs,
    /// Packets that left the fast path, over all reasons.
    pub fallbacks: u64,
}

impl Lane {
    /// Sets it up; clients come when it is opened.
    ///
    /// # Errors
    /// When something of it does not start.
    pub fn start(method: Method, program: &std::path::Path) -> Result<Self, DemoError> {
        let site = Site::new(&SiteSpec::new(SERVERS))?;
        let start = |name: &String| Nginx::start(&site.net, name, site.vip, DOWNLOAD);
        let servers = site.servers.iter().map(start).collect::<Result<_, _>>()?;
        let mut meter = Meter::start()?;
        let steering = Steering::start(&site, method, &at_first(), program)?;
        meter.watch(&site.net.pins(), LEG)?;
        Ok(Lane { method, clients: None, steering, _servers: servers, meter, site })
    }

    /// Lets the clients in.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn open(&mut self, seed: u64) -> Result<(), DemoError> {
        let spec = ClientSpec {
            sessions: Sessions::Closed { clients: BROWSERS },
            requests: REQUESTS,
            pause: PAUSE,
            downloads: DOWNLOADS,
            patience: PATIENCE,
            seed,
            ..ClientSpec::new(self.site.vip)
        };
        self.clients = Some(Clients::start(&self.site.net.namespace("cli")?, spec)?);
        Ok(())
    }

    /// Makes a change; these are the servers after it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn change(&mut self, change: Change, places: &[Place; SERVERS]) -> Result<(), DemoError> {
        match change {
            Change::KillDaemon => self.steering.kill(),
            Change::StartDaemon => self.steering.restart(&self.site.net)?,
            Change::Remove(_) | Change::Drain(_) | Change::Add(_) => {
                self.steering.apply(&self.site, places)?;
            }
        }
        Ok(())
    }

    /// To be called now and then: that all is well, and which program is at work.
    ///
    /// # Errors
    /// When the daemon has ended by itself.
    pub fn check(&mut self) -> Result<(), DemoError> {
        self.steering.check()?;
        Ok(self.meter.watch(&self.site.net.pins(), LEG)?)
    }

    /// What clients saw so far, and what packets cost.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn so_far(&self) -> Result<(ClientReport, Runs), DemoError> {
        let report = self.clients.as_ref().map(Clients::report).unwrap_or_default();
        Ok((report, self.meter.read()?))
    }

    /// Sends the clients home, and takes everything down.
    ///
    /// # Errors
    /// When the kernel does not tell what it counted.
    pub fn finish(mut self) -> Result<Finished, DemoError> {
        let runs = self.meter.read()?;
        // Before clients end: what is still on its way to them is answered by resets without timestamps.
        let status = plimsoll_l4::status(&self.site.net.pins())?;
        let clients = self.clients.take().map(Clients::finish).unwrap_or_default();
        let fallbacks = status.vips.iter().flat_map(|vip| vip.fallbacks.values()).sum();
        Ok(Finished { method: self.method, clients, runs, fallbacks })
    }
}
