//! A Plimsoll daemon of a lane's own, started as `plimsoll run`.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_api::wire::{Event, ServiceEvents};
use plimsoll_control::ServiceView;
use serde_json::{Value, json};

use crate::client::Client;
use crate::family::Member;
use crate::haproxy::SECTION;
use crate::listener::free_address;
use crate::program::plimsoll;
use crate::{Family, LaneError, Lb};

/// The service's name in its configuration.
const SERVICE: &str = "demo";
/// It listens within a second, and reads HAProxy soon after.
const START_WITHIN: Duration = Duration::from_secs(10);
/// How often to look whether it answers.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The most events that its API gives at once, and keeps.
const MOST_EVENTS: usize = 1000;

/// What a daemon is to steer.
pub struct Steered<'a> {
    /// The servers: names and addresses.
    pub servers: &'a [(String, SocketAddr)],
    /// Which balancer.
    pub lb: Lb,
    /// HAProxy's admin sockets, or the proxy's; at least one.
    pub sockets: Vec<&'a Path>,
    /// What it is given.
    pub given: Given,
}

/// What a daemon is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// A configuration, everything that is optional by default.
    Configuration,
    /// The same, in which each of several balancers has a subset of the servers.
    Subsets,
    /// The first socket and nothing else.
    Socket,
}

/// A running daemon; killed when dropped.
pub struct Daemon {
    member: Member,
    client: Client,
    service: &'static str,
}

impl Daemon {
    /// Starts one that knows what the last one of this name knew, and returns when it answers.
    ///
    /// # Errors
    /// When there is no `plimsoll`, or it ends at once or does not answer.
    pub fn start(family: &Family, name: &str, steered: &Steered) -> Result<Self, LaneError> {
        if steered.given != Given::Socket {
            return Daemon::start_with(family, name, |store, api| {
                configuration(steered, store, api)
            });
        }
        let api = free_address()?;
        let mut command = Command::new(plimsoll()?);
        command.arg("run").arg("--haproxy").arg(steered.sockets[0]);
        command.arg("--store").arg(family.dir().join(format!("{name}.state")));
        command.args(["--backend", SECTION, "--listen", &api.to_string()]);
        // Without a file a service is called as HAProxy calls its section.
        Daemon::spawn(family, name, command, Client::new(api), SECTION)
    }

    /// The same with a configuration of the caller's, which is given where to keep what is learned and where to listen.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn start_with(
        family: &Family,
        name: &str,
        configuration: impl FnOnce(&Path, SocketAddr) -> Value,
    ) -> Result<Self, LaneError> {
        let api = free_address()?;
        let file = family.dir().join(format!("{name}.yaml"));
        let text = configuration(&family.dir().join(format!("{name}.state")), api).to_string();
        std::fs::write(&file, text).map_err(LaneError::system("write Plimsoll's configuration"))?;
        let mut command = Command::new(plimsoll()?);
        command.arg("run").arg("--config").arg(&file);
        Daemon::spawn(family, name, command, Client::new(api), SERVICE)
    }

    fn spawn(
        family: &Family,
        name: &str,
        mut command: Command,
        client: Client,
        service: &'static str,
    ) -> Result<Self, LaneError> {
        let member = family.spawn(name, command.stdin(Stdio::null()));
        let member = member.map_err(LaneError::system("start plimsoll run"))?;
        let mut daemon = Daemon { member, client, service };
        daemon.wait_until_ready(name)?;
        Ok(daemon)
    }

    /// What it knows and does; nothing while it does not answer.
    pub fn view(&self) -> Option<ServiceView> {
        self.client.get(&format!("/v1/services/{}", self.service)).ok()
    }

    /// Its last decisions, with their reasons; empty when it does not answer.
    pub fn events(&self) -> Vec<Event> {
        let path = format!("/v1/services/{}/events?limit={MOST_EVENTS}", self.service);
        self.client.get(&path).map_or_else(|_| Vec::new(), |answer: ServiceEvents| answer.events)
    }

    /// Its decisions after the one of this number, at most a thousand; empty when it does not
    /// answer.
    pub fn events_after(&self, seq: u64) -> Vec<Event> {
        let service = self.service;
        let path = format!("/v1/services/{service}/events?limit={MOST_EVENTS}&after={seq}");
        self.client.get(&path).map_or_else(|_| Vec::new(), |answer: ServiceEvents| answer.events)
    }

    /// Ends it orderly: it saves what it knows.
    pub fn end(self) {
        self.member.end();
    }

    /// That it has ended, if it has.
    pub fn ended(&mut self) -> Option<LaneError> {
        self.member.ended()
    }

    fn wait_until_ready(&mut self, name: &str) -> Result<(), LaneError> {
        let end = Instant::now() + START_WITHIN;
        loop {
            if let Some(ended) = self.ended() {
                return Err(ended);
            }
            match self.client.get::<ServiceView>(&format!("/v1/services/{}", self.service)) {
                Ok(_) => return Ok(()),
                Err(why) if Instant::now() > end => {
                    return Err(LaneError::Mute { name: name.to_owned(), why });
                }
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
        }
    }
}

/// The daemon's configuration, as JSON, which is YAML: what README shows, everything else by default.
pub fn configuration(steered: &Steered, store: &Path, api: SocketAddr) -> Value {
    let backends: Vec<Value> = steered
        .servers
        .iter()
        .map(|(name, address)| json!({ "name": name, "address": address.to_string() }))
        .collect();
    let sink = |socket: &&Path| match steered.lb {
        Lb::Haproxy => json!({ "haproxy": { "socket": socket, "backend": SECTION } }),
        Lb::Proxy => json!({ "proxy": { "socket": socket, "pool": SECTION } }),
    };
    let (key, sinks) = match &steered.sockets[..] {
        [one] => ("sink", sink(one)),
        several => ("sinks", several.iter().map(sink).collect()),
    };
    let mut service = json!({ "name": SERVICE, "backends": backends, key: sinks });
    if steered.given == Given::Subsets {
        service["subsets"] = json!(true);
    }
    json!({
        "services": [service],
        "store": { "path": store },
        "api": { "listen": api.to_string() },
    })
}
