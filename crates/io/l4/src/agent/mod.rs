//! The server's agent: with it replies go straight from server to client, and any number of balancers
//! can stand in front.
//!
//! Without an agent the balancer writes cookies into replies and restores their echoes, so every reply
//! must pass it. The agent does both on the server (`bpf/agent.bpf.c`, on tcx), with the same codec, keys
//! and ids as the balancers, which then only read. It needs neither `net.ipv4.tcp_timestamps=2` nor state
//! of its own: a connection's clock offset is in its socket.
//!
//! ```text
//! client ──SYN──▶ balancer ──▶ server
//! client ◀──TSval: version|epoch|cookie|clock── agent ◀── server        past the balancer
//! client ──TSecr: the same──▶ balancer, any ──▶ agent: TSecr put back ──▶ server
//! ```
//!
//! Programs, maps and links are pinned: the kernel goes on without the agent's process, and a newer one
//! takes over in one step. Cost: one look at the socket table and a handful of table look-ups for each
//! aggregated segment; see docs/l4.md.

mod config;
mod layout;
mod load;
mod maps;
mod program;
mod status;

use std::collections::BTreeSet;
use std::path::Path;

use plimsoll_cookie::Epoch;
use rustix::time::{ClockId, clock_gettime};

pub use config::{AgentConfig, AgentVip, NotServer, agent_dir};
pub use load::{CpuLoad, CpuMeter};
pub use maps::AgentMaps;
pub(crate) use program::attached as attached_agents;
pub use status::{AGENT_COUNTS, AgentStatus, AgentVipStatus, agent_status};

use crate::balancer::{Pending, rotation, unix_ms};
use crate::error::L4Error;
use crate::keys::Keys;
use crate::network;
use layout::{Settings, salt_bytes, vip_words};
use program::{AgentProgram, attached, detach_interface, is_unpinned};

/// A first salt has no other to take over from: it is long in force.
const LONG_AGO_MS: i64 = 1_000_000;

/// The agent in charge of the kernel's tables.
#[derive(Debug)]
pub struct Agent {
    program: AgentProgram,
    maps: AgentMaps,
    config: AgentConfig,
    keys: Keys,
    /// Interfaces the programs of this process are on, with their index.
    on: Vec<(String, u32)>,
}

impl Agent {
    /// Takes charge: loads the programs onto the pinned maps or new ones, fills them, and attaches.
    ///
    /// # Errors
    /// Without privileges or tcx, with pinned maps of another shape, or when a map cannot be written.
    pub fn start(config: &AgentConfig, keys: Keys) -> Result<(Self, Pending), L4Error> {
        let program = AgentProgram::load(&config.pin_dir, config.cookie.layout)?;
        let mut maps = AgentMaps::open(&config.pin_dir)?;
        maps.claim(config.cookie.layout)?;
        let mut agent = Agent { program, maps, config: config.clone(), keys, on: Vec::new() };
        agent.write_keys()?;
        let pending = agent.apply(config)?;
        Ok((agent, pending))
    }

    /// Makes the kernel's tables what a configuration says.
    ///
    /// # Errors
    /// When a map cannot be written, or the cookies' layout is another than that of the pinned maps.
    pub fn apply(&mut self, config: &AgentConfig) -> Result<Pending, L4Error> {
        self.maps.claim(config.cookie.layout)?;
        let mut kept = BTreeSet::new();
        for vip in &config.vips {
            let number = self.maps.number_of(&vip.name)?;
            let key = vip_words(vip.address);
            self.maps.set_vip(key, number, vip.id)?;
            kept.insert(key);
        }
        for (key, [number, _]) in self.maps.vips()? {
            if !kept.contains(&key) {
                self.maps.remove_vip(key)?;
                let name = self.maps.name(number)?;
                if config.vips.iter().all(|vip| vip.name != name) {
                    self.maps.forget(number)?;
                }
            }
        }
        self.config = config.clone();
        self.refresh()
    }

    /// Puts the programs onto interfaces that came, and off those that are no longer named; follows the time at which
    /// a salt is to take over.
    ///
    /// # Errors
    /// When the kernel does not list its interfaces, or a map cannot be written.
    pub fn refresh(&mut self) -> Result<Pending, L4Error> {
        let mut pending = Pending::default();
        if self.on.iter().any(|(name, _)| is_unpinned(&self.config.pin_dir, name)) {
            return Err(L4Error::Replaced(self.config.pin_dir.clone()));
        }
        let links = network::links()?;
        for name in &self.config.interfaces {
            let Some(link) = links.iter().find(|link| link.name == *name) else {
                let known: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
                pending.0.push(format!(
                    "interface {name}: not there; expected one of {}",
                    known.join(", ")
                ));
                continue;
            };
            let now = (name.clone(), link.index);
            if self.on.contains(&now) {
                continue;
            }
            self.on.retain(|(other, _)| other != name);
            match self.program.attach(name) {
                Ok(()) => self.on.push(now),
                Err(error) => pending.0.push(error.to_string()),
            }
        }
        for name in attached(&self.config.pin_dir) {
            if !self.config.interfaces.contains(&name) {
                detach_interface(&self.config.pin_dir, &name);
                self.on.retain(|(other, _)| *other != name);
            }
        }
        self.follow_rotation()?;
        Ok(pending)
    }

    /// Puts new secrets in force: each connection changes at its own timestamps' next version boundary
    /// after `keys.since_unix_ms`.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub fn set_keys(&mut self, keys: Keys) -> Result<(), L4Error> {
        self.keys = keys;
        self.write_keys()
    }

    /// The secrets in force.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The configuration in force.
    pub fn config(&self) -> &AgentConfig {
        &self.config
    }

    fn write_keys(&mut self) -> Result<(), L4Error> {
        let held = self.maps.settings()?;
        let mut settings = held;
        settings.salts = 0;
        for epoch in [Epoch::Even, Epoch::Odd] {
            let Some(salt) = salt_bytes(&self.keys, epoch, self.config.cookie.layout) else {
                continue;
            };
            settings.salts |= 1 << epoch.bit();
            settings.keys[epoch.bit() as usize] = salt.key;
            self.maps.set_permutation(epoch, &salt.permutation)?;
        }
        let now = monotonic_ms();
        let active = self.keys.epoch.bit() as usize;
        // Another salt of the same epoch: it was replaced, or a whole rotation was missed.
        let new = held.salts == 0
            || held.epoch != self.keys.epoch
            || held.keys[active] != settings.keys[active];
        if settings.salts.count_ones() == 1 {
            settings.switch_ms = now - LONG_AGO_MS;
        } else if new {
            settings.switch_ms = now + (self.keys.since_unix_ms as i64 - unix_ms() as i64);
        }
        // The salt first, then the word that brings it into force.
        self.maps.set_settings(Settings {
            epoch: held.epoch,
            switch_ms: held.switch_ms,
            ..settings
        })?;
        settings.epoch = self.keys.epoch;
        self.maps.set_settings(settings)
    }
}

impl Agent {
    /// A salt that is to take over does so when the key file says, whatever the clocks' drift until then.
    fn follow_rotation(&mut self) -> Result<(), L4Error> {
        let ahead_ms = self.keys.since_unix_ms as i64 - unix_ms() as i64;
        let held = self.maps.settings()?;
        let (switch_ms, now_ms) = (held.switch_ms as u64, monotonic_ms() as u64);
        let switch_ms = rotation::follow(switch_ms, now_ms, ahead_ms) as i64;
        if switch_ms != held.switch_ms {
            self.maps.set_settings(Settings { switch_ms, ..held })?;
        }
        Ok(())
    }
}

/// Takes the programs off every interface and removes all that is pinned.
///
/// # Errors
/// When something cannot be removed.
pub fn detach_agent(dir: &Path) -> Result<(), L4Error> {
    crate::program::detach(dir)
}

/// The clock of Linux's TCP timestamps.
fn monotonic_ms() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}
