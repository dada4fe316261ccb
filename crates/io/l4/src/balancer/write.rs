//! What the kernel's tables get: interfaces, secrets, servers, lists, addresses. What the
//! program walks is written beside what it reads, and one write flips over.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_cookie::{Epoch, FlowHash, Salt, SpreadKey};
use tracing::warn;

use super::{Attached, Balancer, Pending, rotation, unix_ms};
use crate::config::{BackendState, Policy};
use crate::doctor;
use crate::error::L4Error;
use crate::fill::{costs, each_once, in_line, in_turn, maglev, same_weights};
use crate::layout::{
    FlowKey, MAX_PORTS, MemberState, MemberValue, PORT_SHUT, PORT_TURNS_BACK, SOURCE_AGENT,
    VipIndex, VipValue, permutation_to_bytes, policy_code, slots_to_bytes,
};
use crate::network::{Link, Neighbour};
use crate::place::place_of;
use crate::program;
use crate::tables::{Bucket, mac_bits, mac_buckets, mac_key, vip_bits, vip_index, vip_place};

/// Where everything goes in the tables that the program searches.
pub(super) struct Places {
    index: VipIndex,
    mac_seed: u64,
    buckets: Vec<Bucket>,
}

impl Balancer {
    pub(super) fn find_ports(
        &mut self,
        links: &[Link],
        pending: &mut Pending,
    ) -> Result<(), L4Error> {
        let held = self.maps.ports();
        let is_wanted =
            |link: &&Link| self.config.interfaces.iter().any(|one| one.name == link.name);
        let wanted: BTreeSet<u32> = links.iter().filter(is_wanted).map(|link| link.index).collect();
        if wanted.len() > MAX_PORTS as usize {
            return Err(L4Error::Full { what: "l4.interfaces".to_owned(), limit: MAX_PORTS });
        }
        let (mut ports, mut is_told_anew) = (BTreeMap::new(), false);
        // Servers and ways still name the places of interfaces that are dropped just now: no other's yet.
        let mut taken: BTreeSet<u32> = self.ports.values().map(|(port, _)| *port).collect();
        for (port, _) in &held {
            if self.maps.port_flags(*port)? & PORT_SHUT == 0 {
                taken.insert(*port);
            }
        }
        for interface in self.config.interfaces.clone() {
            let Some(link) = links.iter().find(|link| link.name == interface.name) else {
                let known: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
                pending.0.push(format!(
                    "interface {}: not there; expected one of {}",
                    interface.name,
                    known.join(", ")
                ));
                continue;
            };
            let is_left =
                |port: &u32| held.iter().all(|(one, index)| one != port || !wanted.contains(index));
            let before = self.ports.get(&interface.name).map(|(port, _)| *port).filter(is_left);
            let by_index =
                held.iter().find(|(_, index)| *index == link.index).map(|(port, _)| *port);
            let untaken = || (0..MAX_PORTS).filter(|port| !taken.contains(port));
            let free = || untaken().find(|port| held.iter().all(|(one, _)| one != port));
            // One that had the program before and is configured no more gives its place away last.
            let left = || untaken().find(is_left);
            let Some(port) = by_index.or(before).or_else(free).or_else(left) else {
                pending.0.push(format!(
                    "interface {}: all {MAX_PORTS} places are taken; expected that of one taken out in a moment",
                    interface.name
                ));
                continue;
            };
            taken.insert(port);
            if !held.contains(&(port, link.index)) {
                // What is remembered of the kernel's routes may name the place.
                if !std::mem::replace(&mut is_told_anew, true) {
                    self.forget_hops()?;
                }
                // Until the program is on it: see `open_ports`.
                self.maps.set_port_flags(port, flags_of(link) | PORT_SHUT)?;
                self.maps.set_port(port, link.index)?;
            }
            ports.insert(interface.name.clone(), (port, link.clone()));
        }
        self.ports = ports;
        Ok(())
    }

    /// Clients' routes lead by the interfaces that have the program: many drivers drop what is redirected to
    /// another one, and the kernel can send it.
    pub(super) fn open_ports(&mut self) -> Result<(), L4Error> {
        for (port, _) in self.maps.ports() {
            let open = self.ports.values().find(|(one, _)| *one == port);
            let flags = open.map_or(PORT_SHUT, |(_, link)| flags_of(link));
            self.maps.set_port_flags(port, flags)?;
        }
        Ok(())
    }

    pub(super) fn write_keys(&mut self) -> Result<(), L4Error> {
        let layout = self.config.cookie.layout;
        let before = self.settings;
        let mut settings = before;
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
        // Worked out anew only while it is to come: the boundary does not move with the clocks' drift.
        let active = usize::from(settings.epoch & 1);
        let is_new = settings.salt[active] != before.salt[active];
        // A first epoch has no other to come from: it is in force at once.
        let is_alone = settings.salts.count_ones() == 1;
        let turned = settings.epoch != before.epoch || (is_alone && settings.salts != before.salts);
        if is_new || turned || settings.switch_ms == 0 {
            let clock_ms = self.program.clock_ms()?;
            settings.switch_ms = if is_alone {
                clock_ms.wrapping_sub(1_000_000)
            } else {
                clock_ms.wrapping_add_signed(ahead)
            };
        } else {
            // Also one that was brought forward to a time that has passed when the file is read.
            let clock_ms = self.program.clock_ms()?;
            settings.switch_ms = rotation::follow(settings.switch_ms, clock_ms, ahead);
        }
        self.settings = settings;
        Ok(())
    }

    /// What every server is to be, and whether that differs from what the kernel holds; also the places of
    /// ids that are given back.
    pub(super) fn find_members(
        &mut self,
        links: &[Link],
        neighbours: &[Neighbour],
        pending: &mut Pending,
    ) -> Result<(bool, Vec<u32>), L4Error> {
        let (mut moved, mut left) = (false, Vec::new());
        let stride = self.maps.meta().stride;
        let ports = &self.ports;
        for service in self.services.values_mut() {
            let mut found = Vec::new();
            for (name, member) in &mut service.members {
                let place = service.number * stride + u32::from(member.id);
                let held = self.maps.member(place)?;
                let mut value = member.value;
                if let Some(backend) = &member.backend {
                    let mut is_lost = false;
                    let own = |mac| links.iter().find(|link| link.mac == mac);
                    match place_of(backend, ports, neighbours, own) {
                        Ok(at) => value = at,
                        Err(nowhere) => {
                            is_lost = nowhere.is_lost;
                            let why = nowhere.why;
                            pending.0.push(format!("{}/{name}: {why}", service.vip.name));
                        }
                    }
                    value.weight = member.note.weight.unwrap_or(backend.weight);
                    value.agent = backend.agent;
                    value.state = match backend.state {
                        BackendState::Down => MemberState::Gone,
                        _ if is_lost || value.mac == [0; 6] => MemberState::Lost,
                        _ => MemberState::Live,
                    };
                } else {
                    let has_way = ports.values().any(|(_, link)| link.index == value.ifindex);
                    value.state = match value.state {
                        MemberState::Unused | MemberState::Gone => MemberState::Gone,
                        _ if has_way => MemberState::Live,
                        _ => MemberState::Lost,
                    };
                }
                member.value = value;
                moved |= value != held;
                if held.mac == [0; 6] && value.mac != [0; 6] {
                    found.push(name.clone());
                }
            }
            for name in found {
                let id = service.take_over(&name);
                moved |= id.is_some();
                left.extend(id.map(|id| service.number * stride + u32::from(id)));
            }
        }
        Ok((moved, left))
    }

    pub(super) fn write_members(&mut self, left: &[u32]) -> Result<(), L4Error> {
        let stride = self.maps.meta().stride;
        for place in left {
            self.maps.set_member(*place, MemberValue::default())?;
            self.maps.set_member_name(*place, "")?;
        }
        for service in self.services.values() {
            if self.maps.vip_name(service.number)? != service.vip.name {
                self.maps.set_vip_name(service.number, &service.vip.name)?;
            }
            for (name, member) in &service.members {
                let place = service.number * stride + u32::from(member.id);
                let held = self.maps.member(place)?;
                if self.maps.member_name(place)? != *name {
                    // Else it is the same server under another name.
                    if held.state == MemberState::Unused {
                        self.maps.clear_count(place)?;
                        self.maps.forget_clock(place)?;
                    }
                    self.maps.set_member_name(place, name)?;
                }
                // Of before it had an agent: the program has not listened meanwhile.
                if held.agent && !member.value.agent {
                    self.maps.forget_clock(place)?;
                }
                if held != member.value {
                    self.maps.set_member(place, member.value)?;
                }
            }
        }
        Ok(())
    }

    /// Where everything goes in the tables of VIPs and MAC addresses; nothing is written.
    pub(super) fn find_places(&mut self) -> Result<Places, L4Error> {
        let meta = self.maps.meta();
        let serving: Vec<([u32; 4], u32)> = self
            .services
            .values()
            .filter(|service| service.is_configured())
            .map(|service| service.words())
            .collect();
        let bits = vip_bits(meta.vips);
        let index = vip_index(&serving, bits, &mut self.rng).ok_or_else(|| L4Error::Full {
            what: "l4.vips: two have the same address, or there are too many".to_owned(),
            limit: meta.vips,
        })?;
        let (mac_seed, buckets) = self.find_buckets()?;
        Ok(Places { index, mac_seed, buckets })
    }

    /// Lists, VIPs and MAC addresses: written beside those in use, then flipped over by one write.
    pub(super) fn write_tables(&mut self, places: Places) -> Result<(), L4Error> {
        let Places { index, mac_seed, buckets } = places;
        let meta = self.maps.meta();
        let (vip_half, mac_half) = (self.settings.vip_half ^ 1, self.settings.mac_half ^ 1);
        let vbits = vip_bits(meta.vips);
        let served = self.maps.vips()?;
        for place in 0..1 << vbits {
            self.maps.set_vip(u32::from(vip_half) << vbits | place, None)?;
        }
        let keys = [self.settings.salt[0], self.settings.salt[1], self.settings.spread];
        for service in self.services.values().filter(|service| service.is_configured()) {
            let (words, key) = service.words();
            let candidates = service.candidates();
            let list = match service.vip.policy {
                Policy::RoundRobin => in_turn(&same_weights(&candidates)),
                Policy::WeightedRoundRobin | Policy::Awrr(_) => in_turn(&candidates),
                Policy::PowerOfTwo | Policy::Hash => in_line(&candidates),
                Policy::LeastConnections => each_once(&candidates),
                Policy::Maglev => maglev(&candidates),
            };
            let held = served.iter().find(|vip| vip.number == service.number);
            let half = held.map_or(0, |vip| vip.slot_half & 1) ^ 1;
            let costs = costs(&list, &candidates, |id| service.part(id));
            let bytes = slots_to_bytes(&list, &costs, &maglev(&service.sharers()));
            self.maps.set_slots(service.number, half, &bytes)?;
            let place = u32::from(vip_half) << vbits | vip_place(words, key, &index, vbits);
            let value = VipValue {
                address: words,
                key,
                number: service.number,
                base: service.number * meta.stride,
                policy: policy_code(service.vip.policy),
                slot_half: half,
                part: keys.map(|key| key.of_vip(words)),
            };
            self.maps.set_vip(place, Some(value))?;
        }
        let mac_places = u32::from(mac_half) << mac_bits(meta.vips * meta.stride);
        for (place, bucket) in buckets.iter().enumerate() {
            self.maps.set_bucket(mac_places | place as u32, bucket)?;
        }
        self.settings.index[usize::from(vip_half)] = index;
        self.settings.mac_seed[usize::from(mac_half)] = mac_seed;
        self.settings.vip_half = vip_half;
        self.settings.mac_half = mac_half;
        self.maps.set_config(self.settings)
    }

    /// Where only services are reached: at the VIPs' addresses that this machine has not itself.
    pub(super) fn write_addresses(&mut self) -> Result<(), L4Error> {
        let own = doctor::local_addresses()?;
        let serving = self.services.values().filter(|service| service.is_configured());
        let addresses = serving.map(|service| service.vip.address.ip());
        let alone = addresses.filter(|address| !own.contains(address)).collect();
        self.maps.set_addresses(&alone)
    }

    fn find_buckets(&mut self) -> Result<(u64, Vec<Bucket>), L4Error> {
        let meta = self.maps.meta();
        let bits = mac_bits(meta.vips * meta.stride);
        let mut servers = Vec::new();
        for service in self.services.values() {
            // A server that drains may be one that is configured now, under its old name: its packets are
            // the new one's.
            let (configured, left): (Vec<_>, Vec<_>) =
                service.members.iter().partition(|(_, member)| member.backend.is_some());
            for (name, member) in configured.into_iter().chain(left) {
                let key = mac_key(member.value.mac, service.number);
                if member.value.mac == [0; 6] {
                    continue;
                }
                if servers.iter().any(|(other, _)| *other == key) {
                    if member.backend.is_some() {
                        let service = &service.vip.name;
                        warn!(service, backend = name, "MAC address of another, too");
                    }
                    continue;
                }
                let agent = if member.value.agent { SOURCE_AGENT } else { 0 };
                servers.push((key, member.id | agent));
            }
        }
        mac_buckets(&servers, bits, &mut self.rng).ok_or_else(|| L4Error::Full {
            what: "servers over all of l4.vips".to_owned(),
            limit: meta.vips * (meta.stride - 1),
        })
    }

    /// Puts the program onto every interface that is there. One that does not take it is none: no server is
    /// sent anything through it.
    pub(super) fn attach(&mut self, pending: &mut Pending) {
        for interface in &self.config.interfaces {
            let Some((_, link)) = self.ports.get(&interface.name) else { continue };
            let (index, mode) = (link.index, interface.mode);
            // Another process may have detached it.
            let on = self.attached.get(&interface.name).filter(|_| self.program.is_on(link));
            if let Some(on) = on.filter(|on| on.index == index && on.mode == mode) {
                pending.0.extend(on.refused.clone());
                continue;
            }
            match self.program.attach(link, mode) {
                Ok(refused) => {
                    pending.0.extend(refused.clone());
                    self.attached.insert(interface.name.clone(), Attached { index, mode, refused });
                }
                Err(error) => {
                    pending.0.push(error.to_string());
                    self.ports.remove(&interface.name);
                }
            }
        }
    }

    /// Takes the program off interfaces that are not configured any more.
    pub(super) fn detach_unused(&mut self) {
        if !self.is_in_charge {
            return;
        }
        for name in program::pinned_links(self.maps.dir()) {
            if self.config.interfaces.iter().all(|interface| interface.name != name) {
                program::detach_interface(self.maps.dir(), &name);
                self.attached.remove(&name);
            }
        }
    }
}

fn flags_of(link: &Link) -> u32 {
    if link.veth { 0 } else { PORT_TURNS_BACK }
}

fn flow_key(hash: &FlowHash) -> FlowKey {
    FlowKey { words: *hash.words(), multiplier: hash.multiplier() }
}
