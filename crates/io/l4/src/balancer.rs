//! The balancer: turns a configuration into what the kernel's tables hold, and keeps them so.
//!
//! A change never disturbs a connection: tables that the program walks are written beside those it
//! reads, and one byte flips over; a server's id stays its own by name, through reloads, restarts and
//! upgrades, for the names are pinned beside the counters.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plimsoll_cookie::{Epoch, FlowHash, Salt, SpreadKey};
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use rustix::rand::{GetRandomFlags, getrandom};
use tracing::{info, warn};

use crate::config::{AttachMode, BackendState, L4Config, Policy, Vip};
use crate::error::L4Error;
use crate::fill::{costs, each_once, in_line, in_turn, maglev, same_weights};
use crate::keys::Keys;
use crate::layout::{
    ConfigValue, FlowKey, MAX_PORTS, MemberState, MemberValue, NextHop, VipValue,
    permutation_to_bytes, policy_code, slots_to_bytes,
};
use crate::maps::{Maps, Meta};
use crate::network::{self, Link, Neighbour};
use crate::place::{known_mac, place_of};
use crate::program::{self, Program, Ran};
use crate::service::{Member, Service, plan};
use crate::tables::{mac_bits, mac_buckets, mac_key, vip_bits, vip_index, vip_place};

/// The balancer in charge of the kernel's tables.
#[derive(Debug)]
pub struct Balancer {
    program: Program,
    pub(crate) maps: Maps,
    rng: ChaCha20Rng,
    config: L4Config,
    keys: Keys,
    pub(crate) services: BTreeMap<String, Service>,
    settings: ConfigValue,
    /// Interfaces by name, with their index in `ports`.
    ports: BTreeMap<String, (u32, Link)>,
    /// Interfaces the program of this daemon is on, by name: their index, and how.
    attached: BTreeMap<String, (u32, AttachMode)>,
}

/// What a change could not do and will try again: a server without a MAC address, an interface that is
/// not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending(pub Vec<String>);

impl Balancer {
    /// Takes charge: loads the program onto the pinned maps or new ones, fills them, and attaches.
    ///
    /// # Errors
    /// Without privileges, with pinned maps of another shape, when nothing of the configuration's
    /// interfaces is there, or when a table is full.
    pub fn start(config: &L4Config) -> Result<(Self, Pending), L4Error> {
        let keys = Keys::load_or_create(&config.cookie.key_file, unix_ms())?;
        Balancer::start_with(config, keys)
    }

    /// Takes charge with secrets that are at hand.
    ///
    /// # Errors
    /// As [`Balancer::start`].
    pub fn start_with(config: &L4Config, keys: Keys) -> Result<(Self, Pending), L4Error> {
        let meta = Meta::wanted(config);
        let program = Program::load(&config.pin_dir, meta, config.limits.fragments)?;
        let maps = Maps::open(&config.pin_dir)?;
        let mut seed = [0; 32];
        getrandom(&mut seed[..], GetRandomFlags::empty()).map_err(std::io::Error::from)?;
        let (vip_half, mac_half) = ConfigValue::halves(&maps.config()?);
        let settings = ConfigValue { vip_half, mac_half, ..Default::default() };
        let mut balancer = Balancer {
            program,
            maps,
            rng: ChaCha20Rng::from_seed(seed),
            config: config.clone(),
            keys,
            services: BTreeMap::new(),
            settings,
            ports: BTreeMap::new(),
            attached: BTreeMap::new(),
        };
        balancer.recall()?;
        let pending = balancer.apply(config)?;
        Ok((balancer, pending))
    }

    /// Takes up servers that an earlier daemon left in the maps: they drain unless they are named.
    fn recall(&mut self) -> Result<(), L4Error> {
        let meta = self.maps.meta();
        let served = self.maps.vips()?;
        for number in 0..meta.vips {
            let name = self.maps.vip_name(number)?;
            if name.is_empty() {
                continue;
            }
            let mut members = BTreeMap::new();
            for id in 1..meta.stride {
                let place = number * meta.stride + id;
                let member = self.maps.member_name(place)?;
                if member.is_empty() {
                    continue;
                }
                let value = self.maps.member(place)?;
                let left = Member {
                    id: id as u16,
                    backend: None,
                    until: None,
                    note: self.maps.member_note(place)?,
                    asked: false,
                    value,
                };
                members.insert(member, left);
            }
            let of_number = |vip: &&VipValue| vip.number == number;
            let half = served.iter().find(of_number).map_or(0, |vip| vip.slot_half & 1);
            let vip = Vip {
                name: name.clone(),
                address: ([0, 0, 0, 0], 0).into(),
                policy: Policy::RoundRobin,
                backends: Vec::new(),
            };
            let note = self.maps.vip_note(number)?;
            self.services.insert(name, Service { number, vip, members, half, note });
        }
        Ok(())
    }

    /// Makes the kernel's tables what a configuration says. On an error the old ones stay in force.
    ///
    /// # Errors
    /// When a table is full, another id is asked for than a server has, or a map cannot be written.
    pub fn apply(&mut self, config: &L4Config) -> Result<Pending, L4Error> {
        let wanted = Meta::wanted(config);
        if wanted != self.maps.meta() {
            return Err(L4Error::Pinned {
                path: self.maps.dir().to_owned(),
                found: self.maps.meta().describe(),
                expected: wanted.describe(),
            });
        }
        let services = plan(&self.services, config, self.maps.meta())?;
        let before = std::mem::replace(&mut self.services, services);
        let old_config = std::mem::replace(&mut self.config, config.clone());
        let old_ports = self.ports.clone();
        let done = self.program_all(true);
        if done.is_err() {
            self.services = before;
            self.config = old_config;
            self.ports = old_ports;
        }
        done
    }

    /// Repeats what was pending, forgets servers that have drained, finds servers that moved.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub fn refresh(&mut self) -> Result<Pending, L4Error> {
        let now = Instant::now();
        let mut gone = Vec::new();
        for (name, service) in &self.services {
            for (member, left) in &service.members {
                if left.backend.is_none() && left.until.is_some_and(|until| until <= now) {
                    gone.push((name.clone(), member.clone()));
                }
            }
        }
        for (service, member) in &gone {
            self.forget(service, member)?;
        }
        let shifted = self.follow_load()?;
        self.program_all(!gone.is_empty() || shifted)
    }

    fn forget(&mut self, service: &str, member: &str) -> Result<(), L4Error> {
        let stride = self.maps.meta().stride;
        let Some(service) = self.services.get_mut(service) else { return Ok(()) };
        let Some(left) = service.members.remove(member) else { return Ok(()) };
        let place = service.number * stride + u32::from(left.id);
        self.maps.set_member(place, MemberValue::default())?;
        self.maps.set_member_name(place, "")?;
        info!(service = service.vip.name, backend = member, "drained");
        if service.members.is_empty() && service.vip.backends.is_empty() {
            let (number, name) = (service.number, service.vip.name.clone());
            self.maps.set_vip_name(number, "")?;
            self.services.remove(&name);
        }
        Ok(())
    }

    /// Puts new secrets in force: each server's connections change at its clock's next version boundary
    /// after `keys.since_unix_ms`.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub fn set_keys(&mut self, keys: Keys) -> Result<(), L4Error> {
        self.keys = keys;
        self.program_all(true).map(|_| ())
    }

    /// The secrets in force.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The pinned maps.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The configuration in force.
    pub fn config(&self) -> &L4Config {
        &self.config
    }

    /// Runs the program on a packet, for tests and benchmarks.
    ///
    /// # Errors
    /// When the kernel does not run it.
    pub fn run(&self, packet: &[u8], ifindex: u32) -> Result<Ran, L4Error> {
        self.program.run(packet, ifindex)
    }

    /// Writes what differs from what the kernel holds; the tables when something they are made of did,
    /// or when they are `due` anyway.
    pub(crate) fn program_all(&mut self, due: bool) -> Result<Pending, L4Error> {
        let mut pending = Pending::default();
        let links = network::links()?;
        self.find_ports(&links, &mut pending)?;
        let neighbours = network::neighbours()?;
        let before = self.settings;
        self.settings.uplink = self.find_uplink(&neighbours, &mut pending);
        self.write_keys()?;
        let moved = self.write_members(&neighbours, &mut pending)?;
        self.write_notes()?;
        if due || moved || self.settings != before {
            self.write_tables()?;
        }
        self.attach(&mut pending)?;
        Ok(pending)
    }

    fn find_ports(&mut self, links: &[Link], pending: &mut Pending) -> Result<(), L4Error> {
        let held = self.maps.ports();
        let mut ports = BTreeMap::new();
        let mut taken: BTreeSet<u32> = self.ports.values().map(|(port, _)| *port).collect();
        for interface in &self.config.interfaces {
            let Some(link) = links.iter().find(|link| link.name == interface.name) else {
                let known: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
                pending.0.push(format!(
                    "interface {}: not there; expected one of {}",
                    interface.name,
                    known.join(", ")
                ));
                continue;
            };
            let before = self.ports.get(&interface.name).map(|(port, _)| *port);
            let by_index =
                held.iter().find(|(_, index)| *index == link.index).map(|(port, _)| *port);
            let free = || {
                (0..MAX_PORTS)
                    .find(|port| !taken.contains(port) && held.iter().all(|(one, _)| one != port))
            };
            let port = by_index.or(before).or_else(free).ok_or_else(|| L4Error::Full {
                what: "l4.interfaces".to_owned(),
                limit: MAX_PORTS,
            })?;
            taken.insert(port);
            if !held.contains(&(port, link.index)) {
                self.maps.set_port(port, link.index)?;
            }
            ports.insert(interface.name.clone(), (port, link.clone()));
        }
        self.ports = ports;
        Ok(())
    }

    fn find_uplink(&self, neighbours: &[Neighbour], pending: &mut Pending) -> Option<NextHop> {
        let uplink = self.config.uplink.as_ref()?;
        let (port, link) = self.ports.get(&uplink.interface)?;
        let mac = uplink.mac.or_else(|| known_mac(neighbours, uplink.gateway?, link.index));
        if mac.is_none() {
            if let Some(gateway) = uplink.gateway {
                network::look_for(gateway);
            }
            pending.0.push(format!(
                "uplink {}: no MAC address in the neighbour table yet; replies go by the kernel's \
                 routes",
                uplink.interface
            ));
        }
        Some(NextHop {
            mac: mac?,
            source_mac: link.mac,
            port: *port,
            ifindex: link.index,
            hairpin_tx: !link.veth,
        })
    }

    fn write_keys(&mut self) -> Result<(), L4Error> {
        let layout = self.config.cookie.layout;
        let mut settings = self.settings;
        settings.salts = 0;
        for epoch in [Epoch::Even, Epoch::Odd] {
            let index = epoch.bit() as usize;
            let Some(secret) = self.keys.salts[index] else { continue };
            let salt = Salt::derive(&secret, layout);
            settings.salts |= 1 << index;
            let key = flow_key(salt.hash());
            if settings.salt[index] != key {
                let bytes = permutation_to_bytes(salt.forward(), salt.inverse());
                self.maps.set_permutation(epoch.bit(), &bytes)?;
                settings.salt[index] = key;
            }
        }
        settings.epoch = self.keys.epoch.bit() as u8;
        settings.spread = flow_key(SpreadKey::derive(&self.keys.spread).hash());
        let now_unix = unix_ms();
        let ahead = self.keys.since_unix_ms as i64 - now_unix as i64;
        // Worked out once for a rotation, so that the boundary does not move with the clocks' drift.
        if settings.epoch != self.settings.epoch || settings.switch_ms == 0 {
            settings.switch_ms = self.program.clock_ms()?.wrapping_add_signed(ahead);
        }
        // A first epoch has no other to come from: it is in force at once.
        if self.keys.salts.iter().flatten().count() == 1 {
            settings.switch_ms = self.program.clock_ms()?.wrapping_sub(1_000_000);
        }
        self.settings = settings;
        Ok(())
    }

    fn write_members(
        &mut self,
        neighbours: &[Neighbour],
        pending: &mut Pending,
    ) -> Result<bool, L4Error> {
        let mut moved = false;
        let stride = self.maps.meta().stride;
        let ports = &self.ports;
        for service in self.services.values_mut() {
            if self.maps.vip_name(service.number)? != service.vip.name {
                self.maps.set_vip_name(service.number, &service.vip.name)?;
            }
            for (name, member) in &mut service.members {
                let place = service.number * stride + u32::from(member.id);
                let held = self.maps.member(place)?;
                let mut value = MemberValue { offset_ms: held.offset_ms, ..member.value };
                if let Some(backend) = &member.backend {
                    let found = place_of(backend, ports, neighbours);
                    match found {
                        Ok(at) => value = MemberValue { offset_ms: held.offset_ms, ..at },
                        Err(why) => pending.0.push(format!("{}/{name}: {why}", service.vip.name)),
                    }
                    value.weight = member.note.weight.unwrap_or(backend.weight);
                    value.agent = backend.agent;
                    if value.agent {
                        value.offset_ms = None;
                    }
                    value.state = match backend.state {
                        BackendState::Down => MemberState::Gone,
                        _ if value.mac == [0; 6] => MemberState::Gone,
                        _ => MemberState::Live,
                    };
                } else if value.state == MemberState::Unused {
                    value.state = MemberState::Gone;
                }
                if self.maps.member_name(place)? != *name {
                    self.maps.clear_count(place)?;
                    self.maps.set_member_name(place, name)?;
                }
                member.value = value;
                if value != held {
                    self.maps.set_member(place, value)?;
                    moved = true;
                }
            }
        }
        Ok(moved)
    }

    /// Lists, VIPs and MAC addresses: written beside those in use, then flipped over by one write.
    fn write_tables(&mut self) -> Result<(), L4Error> {
        let meta = self.maps.meta();
        let (vip_half, mac_half) = (self.settings.vip_half ^ 1, self.settings.mac_half ^ 1);
        let vbits = vip_bits(meta.vips);
        let serving: Vec<([u32; 4], u32)> = self
            .services
            .values()
            .filter(|service| service.is_configured())
            .map(|service| service.words())
            .collect();
        let index = vip_index(&serving, vbits, &mut self.rng).ok_or_else(|| L4Error::Full {
            what: "l4.vips: two have the same address, or there are too many".to_owned(),
            limit: meta.vips,
        })?;
        for place in 0..1 << vbits {
            self.maps.set_vip(u32::from(vip_half) << vbits | place, None)?;
        }
        for service in self.services.values_mut().filter(|service| service.is_configured()) {
            let (words, key) = service.words();
            let candidates = service.candidates();
            let list = match service.vip.policy {
                Policy::RoundRobin => in_turn(&same_weights(&candidates)),
                Policy::WeightedRoundRobin | Policy::Awrr(_) => in_turn(&candidates),
                Policy::PowerOfTwo | Policy::Hash => in_line(&candidates),
                Policy::LeastConnections => each_once(&candidates),
                Policy::Maglev => maglev(&candidates),
            };
            service.half ^= 1;
            let bytes = slots_to_bytes(&list, &costs(&list, &candidates), &maglev(&candidates));
            self.maps.set_slots(service.number, service.half, &bytes)?;
            let place = u32::from(vip_half) << vbits | vip_place(words, key, &index, vbits);
            let value = VipValue {
                address: words,
                key,
                number: service.number,
                base: service.number * meta.stride,
                policy: policy_code(service.vip.policy),
                slot_half: service.half,
            };
            self.maps.set_vip(place, Some(value))?;
        }
        let mac_seed = self.write_macs(mac_half)?;
        self.settings.index[usize::from(vip_half)] = index;
        self.settings.mac_seed[usize::from(mac_half)] = mac_seed;
        self.settings.vip_half = vip_half;
        self.settings.mac_half = mac_half;
        self.maps.set_config(self.settings)
    }

    fn write_macs(&mut self, half: u8) -> Result<u64, L4Error> {
        let meta = self.maps.meta();
        let bits = mac_bits(meta.vips * meta.stride);
        let mut servers = Vec::new();
        for service in self.services.values() {
            for (name, member) in &service.members {
                let key = mac_key(member.value.mac, service.number);
                if member.value.mac == [0; 6] {
                    continue;
                }
                if servers.iter().any(|(other, _)| *other == key) {
                    warn!(
                        service = service.vip.name,
                        backend = name,
                        "MAC address of another, too"
                    );
                    continue;
                }
                servers.push((key, member.id));
            }
        }
        let (seed, buckets) =
            mac_buckets(&servers, bits, &mut self.rng).ok_or_else(|| L4Error::Full {
                what: "servers over all of l4.vips".to_owned(),
                limit: meta.vips * (meta.stride - 1),
            })?;
        for (place, bucket) in buckets.iter().enumerate() {
            self.maps.set_bucket(u32::from(half) << bits | place as u32, bucket)?;
        }
        Ok(seed)
    }

    fn attach(&mut self, pending: &mut Pending) -> Result<(), L4Error> {
        for interface in &self.config.interfaces {
            let Some((_, link)) = self.ports.get(&interface.name) else { continue };
            if self.attached.get(&interface.name) == Some(&(link.index, interface.mode)) {
                continue;
            }
            match self.program.attach(link, interface.mode) {
                Ok(()) => {
                    self.attached.insert(interface.name.clone(), (link.index, interface.mode));
                }
                Err(error) => pending.0.push(error.to_string()),
            }
        }
        for name in program::attached(self.maps.dir()) {
            if self.config.interfaces.iter().all(|interface| interface.name != name) {
                program::detach_interface(self.maps.dir(), &name);
                self.attached.remove(&name);
            }
        }
        Ok(())
    }
}

fn flow_key(hash: &FlowHash) -> FlowKey {
    FlowKey { words: *hash.words(), multiplier: hash.multiplier() }
}

pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    since.as_millis() as u64
}
