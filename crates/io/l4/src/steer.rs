//! Weights that are decided elsewhere: a controller, or the servers' load (`awrr`).
//!
//! All weights of a plan come into force by the one write that flips the tables, and are noted beside the
//! counters: they hold until they are set again or given back, through reloads and restarts. Only where a
//! service's policy no longer takes them they are dropped.

use tracing::info;

use plimsoll_feedback::awrr;

use crate::balancer::followed::Followed;
use crate::balancer::{Balancer, unix_ms};
use crate::config::{BackendState, Load, Policy};
use crate::error::L4Error;
use crate::layout::MemberState;
use crate::notes::{SetBy, VipNote};
use crate::service::{Member, Service};

/// What a controller gets of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Which server gets a SYN.
    pub policy: Policy,
    /// Another one when counters and weights began anew.
    pub generation: u64,
    /// What set the weights.
    pub set_by: SetBy,
    /// The plan in force, where a controller set them.
    pub epoch: u64,
    /// The servers that are configured.
    pub servers: Vec<ServerReading>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReading {
    /// Its name.
    pub name: String,
    /// Its share of the SYNs, whether or not it takes any now.
    pub weight: u16,
    /// What it takes, as configured.
    pub state: BackendState,
    /// Whether it was found on the network.
    pub found: bool,
    /// Connections begun and not ended.
    pub open_connections: u64,
    /// Connections begun, without those whose client did not answer the server.
    pub new_connections: u64,
    /// Packets from clients.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets to clients.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
}

/// What a server reported of its load when it was asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told {
    /// The busy part of its CPUs; `None` when that is not known, or was reported too long ago.
    pub cpu: Option<f64>,
    /// When it reported.
    pub unix_ms: u64,
    /// How often it did not answer since the last time.
    pub failures: u64,
}

impl Balancer {
    /// Sets weights of a service's servers, as a controller's plan has them; those not named keep theirs.
    /// Returns how many changed. On an error all are as before.
    ///
    /// # Errors
    /// An unknown service or server, a policy that takes no weights, no server left with a weight, or a map
    /// that cannot be written.
    pub fn set_weights(
        &mut self,
        vip: &str,
        weights: &[(String, u16)],
        who: &str,
        epoch: u64,
    ) -> Result<usize, L4Error> {
        let _turn = self.turn()?;
        let mut is_written = false;
        let done = self.attempt(|balancer| {
            let service = balancer.configured_mut(vip)?;
            let changed = service.take_weights(weights)?;
            let unix_ms = unix_ms();
            let who = who.to_owned();
            service.note = VipNote { set_by: SetBy::Controller, who, epoch, unix_ms }.as_kept();
            is_written = true;
            balancer.program_all(changed > 0)?;
            Ok(changed)
        });
        if done.is_err() && is_written {
            // Should this fail as well, the tables in use are still the old ones.
            let _ = self.program_all(true);
        }
        done
    }

    /// Gives a service the configured weights again.
    ///
    /// # Errors
    /// An unknown service, or a map that cannot be written.
    pub fn release(&mut self, vip: &str) -> Result<(), L4Error> {
        let _turn = self.turn()?;
        self.attempt(|balancer| {
            balancer.configured_mut(vip)?.forget_weights();
            balancer.program_all(true).map(|_| ())
        })
    }

    /// What a controller gets of a service.
    ///
    /// # Errors
    /// An unknown service, or a map that cannot be read.
    pub fn reading(&mut self, vip: &str) -> Result<Reading, L4Error> {
        let mut followed = std::mem::take(&mut self.followed);
        let reading = self.read(vip, &mut followed);
        self.followed = followed;
        reading
    }

    fn read(&self, vip: &str, followed: &mut Followed) -> Result<Reading, L4Error> {
        let service = self.configured(vip)?;
        let base = service.number * self.maps.meta().stride;
        let of = |(name, member): (&String, &Member)| {
            let backend = member.backend.as_ref()?;
            let mut read = || {
                let place = base + u32::from(member.id);
                let count = self.maps.count(place)?;
                Ok(ServerReading {
                    name: name.clone(),
                    weight: member.note.weight.unwrap_or(backend.weight),
                    state: backend.state,
                    found: !matches!(member.value.state, MemberState::Unused | MemberState::Lost)
                        && member.value.mac != [0; 6],
                    open_connections: self.maps.open_connections(place)?,
                    new_connections: followed.take(place, count.opened, count.unanswered),
                    packets_in: count.packets_in,
                    bytes_in: count.bytes_in,
                    packets_out: count.packets_out,
                    bytes_out: count.bytes_out,
                })
            };
            Some(read())
        };
        Ok(Reading {
            policy: service.vip.policy,
            generation: self.maps.generation()?,
            set_by: service.note.set_by,
            epoch: service.note.epoch,
            servers: service.members.iter().filter_map(of).collect::<Result<_, L4Error>>()?,
        })
    }

    /// Notes what a service's servers reported of their load; the weights follow with the next refresh.
    pub fn note_loads(&mut self, vip: &str, told: &[(String, Told)]) {
        let Some(service) = self.services.get_mut(vip) else { return };
        for (name, told) in told {
            let Some(member) = service.members.get_mut(name) else { continue };
            member.asked = true;
            member.note.set_load(told.cpu);
            member.note.unix_ms = told.unix_ms;
            member.note.failures += told.failures;
        }
    }

    /// Gives the servers of `awrr` services the weights that their load asks for.
    pub(crate) fn follow_load(&mut self) -> Result<bool, L4Error> {
        let stride = self.maps.meta().stride;
        let mut shifted = false;
        for service in self.services.values_mut() {
            let Policy::Awrr(load) = service.vip.policy else { continue };
            let base = service.number * stride;
            let mut differ = false;
            // A configured 0 drains, whatever the load.
            let (mut serving, drained): (Vec<&mut Member>, Vec<_>) = service
                .members
                .values_mut()
                .filter(|member| member.takes_new())
                .partition(|member| member.backend.as_ref().is_some_and(|one| one.weight > 0));
            for member in drained {
                differ |= member.note.weight.take().is_some();
            }
            let loads: Vec<Option<f64>> = match load {
                // Right after a start the weights of before are better than none.
                Load::Cpu if !serving.iter().all(|member| member.asked) => {
                    shifted |= differ;
                    continue;
                }
                Load::Cpu => serving.iter().map(|member| member.note.load()).collect(),
                Load::Connections => serving
                    .iter()
                    .map(|member| {
                        let place = base + u32::from(member.id);
                        Ok(Some(self.maps.open_connections(place)? as f64))
                    })
                    .collect::<Result<_, L4Error>>()?,
            };
            for (member, weight) in serving.iter_mut().zip(awrr::weights(&loads)) {
                differ |= member.note.weight != Some(weight);
                member.note.weight = Some(weight);
            }
            if differ {
                let set_by = SetBy::Load;
                service.note = VipNote { set_by, unix_ms: unix_ms(), ..VipNote::default() };
            }
            shifted |= differ;
        }
        Ok(shifted)
    }

    /// Writes the notes that differ from those that are kept.
    pub(crate) fn write_notes(&mut self) -> Result<(), L4Error> {
        let stride = self.maps.meta().stride;
        for service in self.services.values() {
            if self.maps.vip_note(service.number)? != service.note {
                self.maps.set_vip_note(service.number, &service.note)?;
            }
            for member in service.members.values() {
                let place = service.number * stride + u32::from(member.id);
                if self.maps.member_note(place)? != member.note {
                    self.maps.set_member_note(place, member.note)?;
                }
            }
        }
        Ok(())
    }

    fn configured(&self, vip: &str) -> Result<&Service, L4Error> {
        let found =
            self.services.get(vip).filter(|_| self.config().vips.iter().any(|v| v.name == vip));
        found.ok_or_else(|| self.unknown(vip))
    }

    fn configured_mut(&mut self, vip: &str) -> Result<&mut Service, L4Error> {
        let unknown = self.unknown(vip);
        let configured = self.config().vips.iter().any(|v| v.name == vip);
        self.services.get_mut(vip).filter(|_| configured).ok_or(unknown)
    }

    fn unknown(&self, vip: &str) -> L4Error {
        let known: Vec<&str> = self.config().vips.iter().map(|vip| vip.name.as_str()).collect();
        L4Error::Unknown { what: "service", name: vip.to_owned(), known: known.join(", ") }
    }
}

impl Service {
    /// Takes a plan's weights, or none of them.
    fn take_weights(&mut self, weights: &[(String, u16)]) -> Result<usize, L4Error> {
        let vip = &self.vip.name;
        if !self.vip.policy.takes_weights() {
            let policy = self.vip.policy.name();
            return Err(L4Error::NoLiveWeights { vip: vip.clone(), policy });
        }
        let configured: Vec<&String> =
            self.members.iter().filter(|(_, one)| one.backend.is_some()).map(|(n, _)| n).collect();
        for (name, _) in weights {
            if !configured.contains(&name) {
                let known = configured.iter().map(|n| n.as_str()).collect::<Vec<_>>().join(", ");
                return Err(L4Error::Unknown { what: "server", name: name.clone(), known });
            }
        }
        let planned = |name: &String| weights.iter().find(|(n, _)| n == name).map(|(_, w)| *w);
        let weight = |(name, member): (&String, &Member)| {
            let backend = member.backend.as_ref()?;
            planned(name).or(member.note.weight).or(Some(backend.weight))
        };
        // Where no server takes connections now, a plan is for when one does again.
        let any = self.members.values().any(Member::takes_new);
        let counted = self.members.iter().filter(|(_, member)| member.takes_new() || !any);
        if counted.filter_map(weight).all(|weight| weight == 0) {
            return Err(L4Error::AllZero { vip: vip.clone() });
        }
        let mut changed = 0;
        for (name, member) in &mut self.members {
            let Some(backend) = &member.backend else { continue };
            let held = member.note.weight.unwrap_or(backend.weight);
            member.note.weight = planned(name).or(member.note.weight);
            changed += usize::from(member.note.weight.unwrap_or(held) != held);
        }
        Ok(changed)
    }

    /// Goes back to the configured weights.
    pub(crate) fn forget_weights(&mut self) {
        if self.note.set_by != SetBy::Configuration {
            info!(service = self.vip.name, "the configured weights again");
        }
        self.note = VipNote::default();
        self.members.values_mut().for_each(|member| member.note.weight = None);
    }

    /// Drops weights that the policy does not take.
    pub(crate) fn drop_what_is_not_taken(&mut self) {
        let taken = match self.note.set_by {
            SetBy::Configuration => true,
            SetBy::Controller => self.vip.policy.takes_weights(),
            SetBy::Load => matches!(self.vip.policy, Policy::Awrr(_)),
        };
        if !taken {
            self.forget_weights();
        }
    }
}
