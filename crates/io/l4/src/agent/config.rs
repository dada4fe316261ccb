//! What the agent of one server is to do. It reads the balancer's own configuration, and finds itself
//! in it by the machine's addresses.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use thiserror::Error;

use crate::config::{CookieConfig, L4Config};

/// What the agent is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// The services that this server serves.
    pub vips: Vec<AgentVip>,
    /// Where clients' packets come in and replies leave.
    pub interfaces: Vec<String>,
    /// How cookies are made: as the balancers have it.
    pub cookie: CookieConfig,
    /// Where programs, maps and links are pinned: a directory in bpffs.
    pub pin_dir: PathBuf,
}

/// A service that this server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentVip {
    /// Its name.
    pub name: String,
    /// What clients connect to.
    pub address: SocketAddr,
    /// This server's name there.
    pub backend: String,
    /// This server's id in its cookies.
    pub id: u16,
}

/// Why this machine is no server of a configuration.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NotServer {
    /// None of the addresses is its own.
    #[error(
        "none of the backends is this machine: expected one of {expected} among its addresses ({found})"
    )]
    Nobody {
        /// The backends'.
        expected: String,
        /// The machine's.
        found: String,
    },
    /// It is there, but balancers restore its timestamps.
    #[error(
        "{vip}/{backend}: expected `agent: true`, or the balancers go on writing its timestamps"
    )]
    NoAgent {
        /// The service.
        vip: String,
        /// The server.
        backend: String,
    },
    /// Balancers would choose an id by themselves.
    #[error("{vip}/{backend}: expected an `id`: agent and balancers must agree on it")]
    NoId {
        /// The service.
        vip: String,
        /// The server.
        backend: String,
    },
}

/// Where an agent pins: beside where a balancer of the same configuration would.
pub fn agent_dir(l4: &L4Config) -> PathBuf {
    let mut name = l4.pin_dir.file_name().unwrap_or_default().to_owned();
    name.push("-agent");
    l4.pin_dir.with_file_name(name)
}

impl AgentConfig {
    /// The part of a balancer's configuration that concerns the machine with these addresses.
    ///
    /// # Errors
    /// When the machine is no backend with `agent: true` and an `id`.
    pub fn of(
        l4: &L4Config,
        local: &[IpAddr],
        interfaces: Vec<String>,
        pin_dir: PathBuf,
    ) -> Result<Self, NotServer> {
        let mut vips = Vec::new();
        let mut without = None;
        for vip in &l4.vips {
            for backend in vip.backends.iter().filter(|one| local.contains(&one.address)) {
                let (name, server) = (vip.name.clone(), backend.name.clone());
                if !backend.agent {
                    without = Some(NotServer::NoAgent { vip: name, backend: server });
                    continue;
                }
                let Some(id) = backend.id else {
                    return Err(NotServer::NoId { vip: name, backend: server });
                };
                vips.push(AgentVip { name, address: vip.address, backend: server, id });
            }
        }
        if vips.is_empty() {
            return Err(without.unwrap_or_else(|| NotServer::Nobody {
                expected: listed(l4.vips.iter().flat_map(|vip| &vip.backends).map(|b| b.address)),
                found: listed(local.iter().copied()),
            }));
        }
        Ok(AgentConfig { vips, interfaces, cookie: l4.cookie.clone(), pin_dir })
    }
}

fn listed(addresses: impl Iterator<Item = IpAddr>) -> String {
    addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_cookie::Layout;

    use super::*;
    use crate::config::{Backend, BackendState, Limits, Policy, UplinkMode, Vip};

    fn l4(id: Option<u16>, agent: bool) -> L4Config {
        let backend = |name: &str, address: &str, id| Backend {
            name: name.to_owned(),
            address: address.parse().expect("address"),
            mac: None,
            weight: 1,
            id,
            state: BackendState::Up,
            agent,
        };
        L4Config {
            interfaces: Vec::new(),
            vips: vec![Vip {
                name: "shop".to_owned(),
                address: "10.0.9.9:80".parse().expect("address"),
                policy: Policy::RoundRobin,
                slow_start: Duration::ZERO,
                backends: vec![backend("s1", "10.0.2.2", Some(1)), backend("s2", "10.0.3.2", id)],
            }],
            cookie: CookieConfig {
                layout: Layout::default(),
                key_file: PathBuf::from("/k"),
                rotate: None,
            },
            uplink: UplinkMode::Ask,
            limits: Limits::default(),
            pin_dir: PathBuf::from("/p"),
            drain: Duration::from_secs(1),
        }
    }

    fn of(l4: &L4Config, local: &str) -> Result<AgentConfig, NotServer> {
        let local = [local.parse().expect("address")];
        AgentConfig::of(l4, &local, vec!["eth0".to_owned()], PathBuf::from("/a"))
    }

    #[test]
    fn a_server_finds_itself_by_its_address() {
        let found = of(&l4(Some(7), true), "10.0.3.2").expect("there");
        assert_eq!(found.vips.len(), 1);
        assert_eq!((found.vips[0].backend.as_str(), found.vips[0].id), ("s2", 7));
    }

    #[test]
    fn a_machine_that_cannot_run_the_agent_gets_the_reason() {
        let says = |l4: &L4Config, local| of(l4, local).expect_err("refused").to_string();
        assert!(
            says(&l4(Some(7), true), "10.0.4.2").contains("expected one of 10.0.2.2, 10.0.3.2")
        );
        assert!(says(&l4(Some(7), false), "10.0.3.2").contains("shop/s2: expected `agent: true`"));
        assert!(says(&l4(None, true), "10.0.3.2").contains("shop/s2: expected an `id`"));
    }
}
