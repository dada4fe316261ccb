//! A service whose servers run agents, so that replies go straight to clients. Servers keep Linux's default,
//! `net.ipv4.tcp_timestamps=1`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use plimsoll_l4::{Agent, AgentConfig, AgentStatus, L4Config, Policy, agent_status};
use plimsoll_testbed::net::{ReplyPath, SiteSpec};

use super::service::Service;
use super::{Net, keys};

/// A service whose servers have a second link, straight to the client, by which all replies leave.
pub struct Direct {
    pub service: Service,
    pub agents: BTreeMap<String, Agent>,
}

impl Direct {
    pub fn new(servers: usize, v6: bool) -> Direct {
        let path = ReplyPath::Direct;
        let spec =
            SiteSpec { v6, server_timestamps: 1, reply_path: path, ..SiteSpec::new(servers) };
        let service = Service::on(&spec);
        let mut direct = Direct { service, agents: BTreeMap::new() };
        let names = direct.service.servers.clone();
        for name in &names {
            direct.start_agent(name);
        }
        direct
    }

    pub fn net(&self) -> &Net {
        &self.service.net
    }

    pub fn pins(&self, server: &str) -> PathBuf {
        self.net().pins().join(format!("agent-{server}"))
    }

    /// A balancer's configuration with some of the servers, whose ids stand in it.
    pub fn config(&self, names: &[&str]) -> L4Config {
        let mut config = self.service.config(Policy::RoundRobin, names);
        for backend in &mut config.vips[0].backends {
            backend.agent = true;
            backend.id = backend.name[1..].parse().ok();
        }
        config
    }

    /// Starts an agent, or another one in its place.
    pub fn start_agent(&mut self, server: &str) {
        let config = self.config(&[server]);
        let local = [config.vips[0].backends[0].address];
        let interfaces = ["e0", "d0", "e1"].map(str::to_owned).to_vec();
        let config = AgentConfig::of(&config, &local, interfaces, self.pins(server));
        self.net().enter(server);
        let started = Agent::start(&config.expect("a server"), keys());
        self.net().leave();
        let (agent, pending) = started.expect("starts");
        assert!(pending.0.iter().all(|what| what.starts_with("interface e1: not there")));
        self.agents.insert(server.to_owned(), agent);
    }

    pub fn agent_status(&self, server: &str) -> AgentStatus {
        agent_status(&self.pins(server)).expect("status")
    }
}
