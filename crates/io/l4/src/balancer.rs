//! The balancer: turns a configuration into what the kernel's tables hold, and keeps them so.
//!
//! A change never disturbs a connection: tables that the program walks are written beside those it
//! reads, and one byte flips over; a server's id stays its own by name, through reloads, restarts and
//! upgrades, for the names are pinned beside the counters.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use rustix::rand::{GetRandomFlags, getrandom};
use tracing::info;

use crate::carry;
use crate::config::{AttachMode, L4Config, Policy, Vip};
use crate::error::L4Error;
use crate::keys::Keys;
use crate::layout::{ConfigValue, MemberValue, VipValue};
use crate::maps::{Maps, Meta, read_meta};
use crate::network::{self, Link};
use crate::notes::boot_ms;
use crate::program::{Program, prepare};
use crate::service::{Member, Service, plan};
use crate::turn::Turn;
use crate::xdp::Ran;

mod clocks;
pub(crate) mod followed;
mod newcomer;
mod recount;
pub(crate) mod rotation;
mod silence;
mod strangers;
pub(crate) mod ways;
mod write;

/// From one version boundary of a server's clock to the next.
const VERSION_MS: u64 = 1 << 16;

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
    /// Interfaces that the program is on, by name, with their index in `ports`.
    ports: BTreeMap<String, (u32, Link)>,
    /// Interfaces the program of this daemon is on, by name.
    attached: BTreeMap<String, Attached>,
    silence: silence::Silence,
    clocks: clocks::Clocks,
    recounted: recount::Recounted,
    strangers: strangers::Strangers,
    pub(crate) followed: followed::Followed,
    /// Whether no program has these maps yet: none is put onto an interface.
    is_unread: bool,
    /// Whether this program is pinned: until then interfaces are those of the daemon before, for the start may be
    /// refused.
    is_in_charge: bool,
}

/// How the program is on an interface.
#[derive(Debug)]
struct Attached {
    index: u32,
    /// As asked for.
    mode: AttachMode,
    /// Why it is in the other mode: tried once, for each try takes the program off for a moment.
    refused: Option<String>,
}

/// What a change could not do and will try again: a server without a MAC address, an interface that is
/// not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending(pub Vec<String>);

impl Balancer {
    /// Takes charge: loads the program onto the pinned maps or new ones, fills them, and attaches.
    ///
    /// # Errors
    /// Without privileges, with pinned maps of another shape, when the key file is gone from under pinned
    /// maps, or when a table is full.
    pub fn start(config: &L4Config) -> Result<(Self, Pending), L4Error> {
        Balancer::begin(config, |maps| keys_of(&config.cookie.key_file, maps))
    }

    /// Takes charge with secrets that are at hand.
    ///
    /// # Errors
    /// As [`Balancer::start`].
    pub fn start_with(config: &L4Config, keys: Keys) -> Result<(Self, Pending), L4Error> {
        Balancer::begin(config, |_| Ok(keys))
    }

    /// The secrets come last: a start that is refused makes no key file.
    fn begin(
        config: &L4Config,
        keys: impl FnOnce(&Maps) -> Result<Keys, L4Error>,
    ) -> Result<(Self, Pending), L4Error> {
        prepare(&config.pin_dir)?;
        let _turn = Turn::wait(&config.pin_dir)?;
        let found = read_meta(&config.pin_dir)?;
        let wanted = Meta::wanted(config, found);
        let (program, maps, before) = carry::load(&config.pin_dir, found, wanted)?;
        let keys = keys(&maps)?;
        let mut seed = [0; 32];
        getrandom(&mut seed[..], GetRandomFlags::empty()).map_err(std::io::Error::from)?;
        // A salt that took over stays where it is, whatever the clock on the wall says by now.
        let settings = maps.config()?;
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
            silence: silence::Silence::default(),
            clocks: clocks::Clocks::default(),
            recounted: recount::Recounted::default(),
            strangers: strangers::Strangers::default(),
            followed: followed::Followed::default(),
            is_unread: before.is_some(),
            is_in_charge: false,
        };
        let served = before.as_ref().map_or_else(|| balancer.maps.vips(), carry::Before::vips)?;
        balancer.recall(&served)?;
        if balancer.is_unread {
            // Packets go by the maps of before until these hold all that those hold.
            balancer.take_up(config)?;
            balancer.is_unread = false;
        }
        let pending = balancer.take_up(config)?;
        if let Some(before) = before {
            // What interfaces that are no longer named count by the old maps would be lost.
            balancer.is_in_charge = true;
            balancer.detach_unused();
            balancer.program.wait_for_readers()?;
            before.hand_over(&mut balancer.maps)?;
            balancer.program.set_handed_over();
            info!(tables = wanted.describe(), "tables made anew; connections go on");
        }
        balancer.program.pin()?;
        balancer.is_in_charge = true;
        balancer.detach_unused();
        Ok((balancer, pending))
    }

    /// Takes up servers that an earlier daemon left in the maps: they drain unless they are named.
    fn recall(&mut self, served: &[VipValue]) -> Result<(), L4Error> {
        let meta = self.maps.meta();
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
                    note: self.maps.member_note(place)?,
                    asked: false,
                    is_mute: false,
                    value,
                };
                members.insert(member, left);
            }
            // No server takes SYNs of a service that is not named: its policy is of no matter.
            let address = served.iter().find(|vip| vip.number == number).map(|vip| vip.address());
            let vip = Vip {
                name: name.clone(),
                address: address.unwrap_or(([0, 0, 0, 0], 0).into()),
                policy: Policy::RoundRobin,
                slow_start: Duration::ZERO,
                backends: Vec::new(),
            };
            let note = self.maps.vip_note(number)?;
            self.services.insert(name, Service { number, vip, members, note });
        }
        Ok(())
    }

    /// Makes the kernel's tables what a configuration says. On an error the old ones stay in force.
    ///
    /// # Errors
    /// When a size or `pin_dir` differs from what is pinned, a table is full, another id is asked for than a
    /// server has, a newer daemon is in charge, or a map cannot be written.
    pub fn apply(&mut self, config: &L4Config) -> Result<Pending, L4Error> {
        let _turn = self.turn()?;
        self.take_up(config)
    }

    /// The right to write.
    ///
    /// # Errors
    /// When a newer daemon is in charge.
    pub(crate) fn turn(&self) -> Result<Turn, L4Error> {
        let turn = Turn::wait(self.maps.dir())?;
        if !self.program.is_pinned() {
            return Err(L4Error::Replaced(self.maps.dir().to_owned()));
        }
        Ok(turn)
    }

    fn take_up(&mut self, config: &L4Config) -> Result<Pending, L4Error> {
        if config.pin_dir != self.maps.dir() {
            let (held, asked) = (self.maps.dir().to_owned(), config.pin_dir.clone());
            return Err(L4Error::PinDir { held, asked });
        }
        let wanted = Meta::wanted(config, Some(self.maps.meta()));
        if wanted != self.maps.meta() {
            let (found, expected) = (self.maps.meta().describe(), wanted.describe());
            if carry::is_understood(self.maps.meta(), wanted) {
                return Err(L4Error::Sizes { found, expected });
            }
            return Err(L4Error::Pinned { path: self.maps.dir().to_owned(), found, expected });
        }
        let services = plan(&self.services, config, self.maps.meta())?;
        self.attempt(|balancer| {
            balancer.services = services;
            balancer.config = config.clone();
            balancer.program_all(true)
        })
    }

    /// Makes a change, or none: on an error all that is wanted is what it was.
    pub(crate) fn attempt<T>(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<T, L4Error>,
    ) -> Result<T, L4Error> {
        let services = self.services.clone();
        let (config, ports) = (self.config.clone(), self.ports.clone());
        let keys = self.keys.clone();
        let done = change(self);
        if done.is_err() {
            (self.services, self.config, self.ports, self.keys) = (services, config, ports, keys);
            self.detach_unused();
        }
        done
    }

    /// Repeats what was pending, forgets servers that have drained, finds servers that moved.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub fn refresh(&mut self) -> Result<Pending, L4Error> {
        let _turn = self.turn()?;
        let now_ms = boot_ms();
        let mut gone = Vec::new();
        for (name, service) in &self.services {
            for (member, left) in &service.members {
                if left.backend.is_none() && left.note.until_ms <= now_ms {
                    gone.push((name.clone(), member.clone()));
                }
            }
        }
        self.attempt(|balancer| {
            for (service, member) in &gone {
                balancer.forget(service, member)?;
            }
            let heard = balancer.listen(Instant::now())?;
            balancer.recount(Instant::now())?;
            let shifted = balancer.follow_load()?;
            let pending = balancer.program_all(heard || shifted || !gone.is_empty())?;
            balancer.query_moved_servers()?;
            Ok(pending)
        })
    }

    /// Takes up what has changed in links, neighbours, routes and rules: where servers are and where replies go.
    /// [`crate::Watch`] tells when.
    ///
    /// # Errors
    /// When a newer daemon is in charge, or a map cannot be written.
    pub fn follow_network(&mut self) -> Result<Pending, L4Error> {
        let _turn = self.turn()?;
        self.attempt(|balancer| balancer.program_all(false))
    }

    fn forget(&mut self, service: &str, member: &str) -> Result<(), L4Error> {
        let stride = self.maps.meta().stride;
        let Some(service) = self.services.get_mut(service) else { return Ok(()) };
        let Some(left) = service.members.remove(member) else { return Ok(()) };
        let place = service.number * stride + u32::from(left.id);
        self.maps.set_member(place, MemberValue::default())?;
        self.maps.set_member_name(place, "")?;
        self.maps.end_all(place)?;
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
        let _turn = self.turn()?;
        self.attempt(|balancer| {
            balancer.keys = keys;
            balancer.program_all(true).map(|_| ())
        })
    }

    /// Whether a new salt may take the place of the one before: not while connections may carry cookies of that. By
    /// the program's clock, which is never set.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn may_rotate(&self) -> Result<bool, L4Error> {
        let layout = self.config.cookie.layout;
        Ok(rotation::held(&self.settings, self.program.clock_ms()?, layout).is_zero())
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

    /// Another program has its place on all interfaces, for a comparison: it is not put back.
    pub fn give_way_to(&self, id: u32) {
        self.program.give_way_to(id);
    }

    /// Writes what differs from what the kernel holds; the tables when something they are made of did,
    /// or when they are `due` anyway.
    pub(crate) fn program_all(&mut self, due: bool) -> Result<Pending, L4Error> {
        let mut pending = Pending::default();
        let links = network::links()?;
        self.find_ports(&links, &mut pending)?;
        // Before any server is sent anything: a reply that came in without the program would leave without a
        // cookie, and what the client sends next could go anywhere.
        if !self.is_unread {
            self.attach(&mut pending);
        }
        let neighbours = network::neighbours()?;
        // What a write that failed left in memory is forgotten: the kernel's is what is in force.
        let held = self.maps.config()?;
        self.settings = held;
        let (moved, left) = self.find_members(&links, &neighbours, &mut pending)?;
        let grown = self.spare_newcomers(boot_ms())?;
        // Before anything is written: what does not fit must change nothing.
        let mut places = if due || moved || grown { Some(self.find_places()?) } else { None };
        self.write_keys()?;
        if places.is_none() && self.settings != held {
            places = Some(self.find_places()?);
        }
        if places.is_some() {
            // Before the halves that are not in force are written: some CPU may have read that they are.
            self.program.wait_for_readers()?;
        }
        self.write_members(&left)?;
        self.write_notes()?;
        if let Some(places) = places {
            self.write_tables(places)?;
        }
        self.write_addresses()?;
        self.open_ports()?;
        self.write_ways(&neighbours, &mut pending)?;
        self.detach_unused();
        Ok(pending)
    }
}

/// The secrets of a file. New ones are made only where none were ever in force: connections whose cookies
/// were written with others would all break, and the kernel holds only what is derived from them.
fn keys_of(file: &Path, maps: &Maps) -> Result<Keys, L4Error> {
    if maps.config()?.salts == 0 {
        return Keys::load_or_create(file, unix_ms());
    }
    Keys::load(file)?.ok_or_else(|| {
        let dir = maps.dir().display();
        let error = format!(
            "not there; expected the keys of the connections that {dir} serves: put the file back (another \
             balancer of the service has it, too), or run `plimsoll l4 detach`, which breaks them"
        );
        L4Error::KeyFile { path: file.to_owned(), error }
    })
}

pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    since.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Pins, config, keys};

    #[test]
    fn a_change_that_fails_leaves_all_that_was_wanted() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root (BPF)");
            return;
        }
        let name = format!("/sys/fs/bpf/plimsoll-attempt-{}", std::process::id());
        let pins = Pins(name.into());
        let config = config(pins.0.clone(), &[], Vec::new());
        let (mut balancer, _) = Balancer::start_with(&config, keys()).expect("starts");
        let failed = balancer.attempt(|balancer| -> Result<(), L4Error> {
            balancer.keys = keys().rotated(7)?;
            balancer.config.drain = Duration::ZERO;
            balancer.services.clear();
            let link = network::links()?.remove(0);
            balancer.ports.insert("new".to_owned(), (0, link));
            Err(L4Error::Load("as if".to_owned()))
        });
        assert!(failed.is_err());
        assert_eq!(balancer.keys, keys());
        assert_eq!(balancer.config, config);
        assert_eq!(balancer.services.len(), 1);
        assert!(balancer.ports.is_empty());
    }
}
