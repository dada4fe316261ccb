//! Services and servers as they should be: numbers and ids stay with their names.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::config::{Backend, BackendState, L4Config, Vip};
use crate::error::L4Error;
use crate::fill::{Candidate, WHOLE};
use crate::layout::{MemberState, MemberValue};
use crate::maps::Meta;
use crate::notes::{MemberNote, VipNote, boot_ms};
use crate::tables::{address_words, vip_key};

const TCP: u8 = 6;

/// A server of a running service.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) id: u16,
    /// As configured; `None` for one that is only draining.
    pub(crate) backend: Option<Backend>,
    pub(crate) note: MemberNote,
    /// Whether this daemon has asked for its load.
    pub(crate) asked: bool,
    /// Whether it answers nothing of what it gets: see balancer/silence.rs.
    pub(crate) is_mute: bool,
    pub(crate) value: MemberValue,
}

impl Member {
    /// Whether SYNs go to it.
    pub(crate) fn takes_new(&self) -> bool {
        let up = |backend: &Backend| backend.state == BackendState::Up;
        self.backend.as_ref().is_some_and(up) && self.value.state == MemberState::Live
    }

    /// Its share of the SYNs.
    pub(crate) fn weight(&self) -> u16 {
        let configured = self.backend.as_ref().map_or(0, |backend| backend.weight);
        if self.takes_new() { self.note.weight.unwrap_or(configured) } else { 0 }
    }

    /// Its part of what has no cookie. No weight in force counts here: a connection without timestamps stays
    /// only where the list does. So one that drains keeps its part, until no server answers there.
    fn share(&self) -> u16 {
        let serves = self.value.state == MemberState::Live && !self.is_mute;
        if serves { self.note.share } else { 0 }
    }
}

/// A running service.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) number: u32,
    pub(crate) vip: Vip,
    pub(crate) members: BTreeMap<String, Member>,
    pub(crate) note: VipNote,
}

impl Service {
    /// Whether it has an address, and is not only remembered.
    pub(crate) fn is_configured(&self) -> bool {
        self.vip.address.port() != 0
    }

    pub(crate) fn words(&self) -> ([u32; 4], u32) {
        (address_words(self.vip.address.ip()), vip_key(self.vip.address, TCP))
    }

    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        // In the configuration's order, as turns are taken.
        let of = |backend: &Backend| {
            let member = self.members.get(&backend.name)?;
            Some(Candidate { id: member.id, weight: member.weight(), name: backend.name.clone() })
        };
        self.vip.backends.iter().filter_map(of).collect()
    }

    /// How much of a server's weight counts, by its id.
    pub(crate) fn part(&self, id: u16) -> u16 {
        self.members
            .values()
            .find(|member| member.id == id)
            .map_or(WHOLE, |member| member.note.part())
    }

    /// The servers of what has no cookie, those included that drain; in the order of names, which no reload
    /// changes.
    pub(crate) fn sharers(&self) -> Vec<Candidate> {
        let of = |(name, member): (&String, &Member)| {
            let (id, weight) = (member.id, member.share());
            Candidate { id, weight, name: name.clone() }
        };
        self.members.iter().map(of).collect()
    }
}

impl Service {
    /// A server that is found where one that drains is, is that one under another name: it takes over the id,
    /// for a connection whose cookie changes within a version stalls (PAWS). Returns the id it had, of which
    /// nothing knows yet.
    pub(crate) fn take_over(&mut self, name: &str) -> Option<u16> {
        let new = self.members.get(name)?;
        let asked = new.backend.as_ref()?.id;
        let is_old = |(_, old): &(&String, &Member)| {
            old.backend.is_none()
                && old.value.mac == new.value.mac
                && asked.is_none_or(|id| id == old.id)
        };
        let old = self.members.iter().find(is_old)?.0.clone();
        let old = self.members.remove(&old)?;
        let new = self.members.get_mut(name)?;
        new.note.since_ms = old.note.since_ms;
        Some(std::mem::replace(&mut new.id, old.id)).filter(|id| *id != old.id)
    }
}

/// Services and servers as configured, with the numbers and ids they have or get.
pub(crate) fn plan(
    current: &BTreeMap<String, Service>,
    config: &L4Config,
    meta: Meta,
) -> Result<BTreeMap<String, Service>, L4Error> {
    let mut planned: BTreeMap<String, Service> = BTreeMap::new();
    let limit = meta.vips;
    let taken: BTreeSet<u32> = current.values().map(|service| service.number).collect();
    let mut free = (0..limit).filter(|number| !taken.contains(number));
    for vip in &config.vips {
        let mut service = match current.get(&vip.name) {
            Some(service) => service.clone(),
            None => Service {
                number: free
                    .next()
                    .ok_or_else(|| L4Error::Full { what: "l4.vips".to_owned(), limit })?,
                vip: vip.clone(),
                members: BTreeMap::new(),
                note: VipNote::default(),
            },
        };
        plan_members(meta.stride, &mut service, vip, config.drain)?;
        service.vip = vip.clone();
        service.drop_what_is_not_taken();
        planned.insert(vip.name.clone(), service);
    }
    // A service that is no longer named keeps its number, and its servers drain.
    for (name, service) in current {
        if !planned.contains_key(name) {
            let mut left = service.clone();
            let none = Vip { backends: Vec::new(), ..service.vip.clone() };
            plan_members(meta.stride, &mut left, &none, config.drain)?;
            left.vip = none;
            // Its address may be another service's by now.
            if planned.values().any(|other| other.vip.address == left.vip.address) {
                left.vip.address.set_port(0);
            }
            planned.insert(name.clone(), left);
        }
    }
    Ok(planned)
}

fn plan_members(
    stride: u32,
    service: &mut Service,
    vip: &Vip,
    drain: Duration,
) -> Result<(), L4Error> {
    for (name, member) in &mut service.members {
        match vip.backends.iter().find(|backend| backend.name == *name) {
            Some(backend) => {
                if backend.id.is_some_and(|id| id != member.id) {
                    return Err(L4Error::Map {
                        name: "members",
                        error: format!(
                            "{}/{name} has id {}, expected it to keep that; give a server with \
                                 another id another name",
                            vip.name, member.id
                        ),
                    });
                }
                member.backend = Some(backend.clone());
                member.note.until_ms = 0;
            }
            None => {
                if member.backend.take().is_some() || member.note.until_ms == 0 {
                    member.note.until_ms = boot_ms() + drain.as_millis() as u64;
                }
            }
        }
    }
    let mut taken: BTreeSet<u16> = service.members.values().map(|member| member.id).collect();
    taken.extend(vip.backends.iter().filter_map(|backend| backend.id));
    for backend in &vip.backends {
        if service.members.contains_key(&backend.name) {
            continue;
        }
        let free = || (1..stride as u16).find(|id| !taken.contains(id));
        let id = backend.id.or_else(free).ok_or_else(|| L4Error::Full {
            what: format!("servers of {}, those that drain included", vip.name),
            limit: stride - 1,
        })?;
        taken.insert(id);
        if let Some((other, _)) =
            service.members.iter().find(|(_, one)| one.backend.is_some() && one.id == id)
        {
            let error = format!(
                "{}/{} asks for id {id}, which {other} has; expected another",
                vip.name, backend.name
            );
            return Err(L4Error::Map { name: "members", error });
        }
        // An id that is asked for is the new one's, with the connections of the server that had it and only drains.
        let is_old = |(_, old): &(&String, &Member)| old.backend.is_none() && old.id == id;
        let old = service.members.iter().find(is_old).map(|(name, _)| name.clone());
        let old = old.and_then(|name| service.members.remove(&name));
        let since_ms = old.as_ref().map_or(0, |old| old.note.since_ms);
        let member = Member {
            id,
            backend: Some(backend.clone()),
            note: MemberNote { since_ms, ..MemberNote::default() },
            asked: false,
            is_mute: false,
            value: old.map(|old| old.value).unwrap_or_default(),
        };
        service.members.insert(backend.name.clone(), member);
    }
    for backend in vip.backends.iter().filter(|backend| backend.weight > 0) {
        if let Some(member) = service.members.get_mut(&backend.name) {
            member.note.share = backend.weight;
        }
    }
    Ok(())
}
