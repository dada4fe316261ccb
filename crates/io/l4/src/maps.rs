//! The pinned maps, opened from bpffs: by the daemon that fills them, and by whoever only looks.

mod counts;
mod meta;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use aya::maps::{Array, DevMap, HashMap, Map, MapData, MapInfo, PerCpuArray};

use crate::error::L4Error;
use crate::layout::{
    CONFIG_BYTES, ConfigValue, LAST_ROW, LINE_BYTES, MAX_PORTS, MemberValue, NAME_BYTES,
    PERMUTATION_BYTES, SLOTS_BYTES, VipValue, WAY_BYTES, WAYS_AT, Way, bucket_to_bytes,
    name_from_bytes, name_to_bytes,
};
use crate::notes::{MemberNote, VipNote};
use crate::tables::{address_words, vip_bits};

pub use counts::MemberCount;
pub(crate) use counts::clear;
pub use meta::{Meta, read_meta};
pub(crate) use meta::{read_own_meta, write_meta};

/// Where the maps are pinned, in the directory of all pins.
pub(crate) const MAPS_DIR: &str = "maps";

/// Every map of the program, by its name in `bpf/maps.h`.
pub const MAPS: [&str; 22] = [
    "config",
    "permutations",
    "vips",
    "slots",
    "members",
    "clocks",
    "macs",
    "counts",
    "reasons",
    "turns",
    "open",
    "connections",
    "owners",
    "ports",
    "turns_back",
    "hops",
    "meta",
    "vip_names",
    "member_names",
    "notes",
    "fragments",
    "addresses",
];

/// The pinned maps.
pub struct Maps {
    dir: PathBuf,
    meta: Meta,
    config: Array<MapData, [u8; CONFIG_BYTES]>,
    permutations: Array<MapData, [u8; PERMUTATION_BYTES]>,
    vips: Array<MapData, [u8; LINE_BYTES]>,
    slots: Array<MapData, [u8; SLOTS_BYTES]>,
    members: Array<MapData, [u8; LINE_BYTES]>,
    clocks: Array<MapData, [u32; 2]>,
    macs: Array<MapData, [u8; LINE_BYTES]>,
    counts: PerCpuArray<MapData, [u64; 8]>,
    reasons: PerCpuArray<MapData, u64>,
    open: Array<MapData, i32>,
    last: Array<MapData, [u64; LAST_ROW]>,
    ports: DevMap<MapData>,
    turns_back: Array<MapData, u32>,
    addresses: HashMap<MapData, [u32; 5], u32>,
    vip_names: Array<MapData, [u8; NAME_BYTES]>,
    member_names: Array<MapData, [u8; NAME_BYTES]>,
    notes: Array<MapData, [u8; LINE_BYTES]>,
}

impl std::fmt::Debug for Maps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Maps")
            .field("dir", &self.dir)
            .field("meta", &self.meta)
            .finish_non_exhaustive()
    }
}

/// A map of the kind that is expected there, by the directory of maps and its name.
macro_rules! opened {
    ($maps:expr, $name:literal) => {
        $crate::maps::map($maps, $name)?.try_into().map_err($crate::L4Error::map($name))?
    };
}
pub(crate) use opened;

pub(crate) fn map(maps: &Path, name: &'static str) -> Result<Map, L4Error> {
    let pinned = MapData::from_pin(maps.join(name)).map_err(L4Error::map(name))?;
    Map::from_map_data(pinned).map_err(L4Error::map(name))
}

impl Maps {
    /// Opens what is pinned in a directory.
    ///
    /// # Errors
    /// When nothing is pinned, or by another version.
    pub fn open(dir: &Path) -> Result<Self, L4Error> {
        Maps::open_in(dir, MAPS_DIR, read_own_meta(dir)?)
    }

    /// Opens what is in one directory of maps, made by this.
    pub(crate) fn open_in(pins: &Path, name: &str, meta: Meta) -> Result<Self, L4Error> {
        let dir = &pins.join(name);
        Ok(Maps {
            dir: pins.to_owned(),
            meta,
            config: opened!(dir, "config"),
            permutations: opened!(dir, "permutations"),
            vips: opened!(dir, "vips"),
            slots: opened!(dir, "slots"),
            members: opened!(dir, "members"),
            clocks: opened!(dir, "clocks"),
            macs: opened!(dir, "macs"),
            counts: opened!(dir, "counts"),
            reasons: opened!(dir, "reasons"),
            open: opened!(dir, "open"),
            last: opened!(dir, "connections"),
            ports: opened!(dir, "ports"),
            turns_back: opened!(dir, "turns_back"),
            addresses: opened!(dir, "addresses"),
            vip_names: opened!(dir, "vip_names"),
            member_names: opened!(dir, "member_names"),
            notes: opened!(dir, "notes"),
        })
    }

    /// By what they were made.
    pub fn meta(&self) -> Meta {
        self.meta
    }

    /// Where they are pinned.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes the settings, then which halves are read, then which salt is written: the kernel copies them in any
    /// order, and no packet must go by seeds of what a half held before, nor by a key, or a VIP's part of a
    /// hash, of the salt before.
    pub(crate) fn set_config(&mut self, value: ConfigValue) -> Result<(), L4Error> {
        let mut bytes = self.config_bytes()?;
        let ConfigValue { vip_half, mac_half, switch_ms, epoch, .. } = self.config()?;
        let flipped = ConfigValue { switch_ms, epoch, ..value };
        for value in [ConfigValue { vip_half, mac_half, ..flipped }, flipped, value] {
            bytes[..WAYS_AT].copy_from_slice(&value.to_bytes());
            self.config.set(0, bytes, 0).map_err(L4Error::map("config"))?;
        }
        Ok(())
    }

    fn config_bytes(&self) -> Result<[u8; CONFIG_BYTES], L4Error> {
        self.config.get(&0, 0).map_err(L4Error::map("config"))
    }

    /// The settings.
    pub(crate) fn config(&self) -> Result<ConfigValue, L4Error> {
        let bytes = self.config_bytes()?;
        let settings = bytes.first_chunk().expect("they come first");
        Ok(ConfigValue::from_bytes(settings))
    }

    fn way_at(v4: bool) -> Range<usize> {
        let begin = WAYS_AT + if v4 { 0 } else { WAY_BYTES };
        begin..begin + WAY_BYTES
    }

    /// Where replies of a family go.
    pub(crate) fn way(&self, v4: bool) -> Result<Way, L4Error> {
        let bytes = self.config_bytes()?;
        let way = bytes[Maps::way_at(v4)].first_chunk().expect("as long as it is");
        Ok(Way::from_bytes(way, v4))
    }

    pub(crate) fn set_way(&mut self, v4: bool, way: &Way) -> Result<(), L4Error> {
        let mut bytes = self.config_bytes()?;
        bytes[Maps::way_at(v4)].copy_from_slice(&way.to_bytes());
        self.config.set(0, bytes, 0).map_err(L4Error::map("config"))
    }

    pub(crate) fn set_permutation(
        &mut self,
        epoch: u32,
        bytes: &[u8; PERMUTATION_BYTES],
    ) -> Result<(), L4Error> {
        self.permutations.set(epoch, bytes, 0).map_err(L4Error::map("permutations"))
    }

    /// One epoch's permutation.
    pub(crate) fn permutation(&self, epoch: u32) -> Result<[u8; PERMUTATION_BYTES], L4Error> {
        self.permutations.get(&epoch, 0).map_err(L4Error::map("permutations"))
    }

    pub(crate) fn set_vip(&mut self, place: u32, vip: Option<VipValue>) -> Result<(), L4Error> {
        let bytes = vip.map_or([0; LINE_BYTES], VipValue::to_bytes);
        self.vips.set(place, bytes, 0).map_err(L4Error::map("vips"))
    }

    /// The services that the program serves.
    pub(crate) fn vips(&self) -> Result<Vec<VipValue>, L4Error> {
        let bits = vip_bits(self.meta.vips);
        let active = u32::from(self.config()?.vip_half) << bits;
        let mut served = Vec::new();
        for place in active..active + (1 << bits) {
            let bytes = self.vips.get(&place, 0).map_err(L4Error::map("vips"))?;
            served.extend(VipValue::from_bytes(&bytes));
        }
        Ok(served)
    }

    pub(crate) fn set_slots(
        &mut self,
        vip_number: u32,
        half: u8,
        bytes: &[u8; SLOTS_BYTES],
    ) -> Result<(), L4Error> {
        let place = 2 * vip_number + u32::from(half);
        self.slots.set(place, bytes, 0).map_err(L4Error::map("slots"))
    }

    /// A server.
    pub(crate) fn member(&self, place: u32) -> Result<MemberValue, L4Error> {
        let bytes = self.members.get(&place, 0).map_err(L4Error::map("members"))?;
        Ok(MemberValue::from_bytes(&bytes))
    }

    pub(crate) fn set_member(&mut self, place: u32, member: MemberValue) -> Result<(), L4Error> {
        self.members.set(place, member.to_bytes(), 0).map_err(L4Error::map("members"))
    }

    /// A server's clock less the program's, in milliseconds, as the program has heard it; `None` before it has.
    pub(crate) fn clock(&self, place: u32) -> Result<Option<u32>, L4Error> {
        let [offset_ms, heard] = self.clocks.get(&place, 0).map_err(L4Error::map("clocks"))?;
        Ok((heard != 0).then_some(offset_ms))
    }

    /// Notes a clock that was heard, in maps that no program has yet.
    pub(crate) fn set_clock(&mut self, place: u32, offset_ms: u32) -> Result<(), L4Error> {
        self.clocks.set(place, [offset_ms, 1], 0).map_err(L4Error::map("clocks"))
    }

    /// Forgets a server's clock, when its place goes to another: all that user space writes of a clock in use.
    pub(crate) fn forget_clock(&mut self, place: u32) -> Result<(), L4Error> {
        self.clocks.set(place, [0, 0], 0).map_err(L4Error::map("clocks"))
    }

    pub(crate) fn set_bucket(&mut self, place: u32, entries: &[(u64, u16)]) -> Result<(), L4Error> {
        self.macs.set(place, bucket_to_bytes(entries), 0).map_err(L4Error::map("macs"))
    }

    /// Which interface is at which index, as the kernel holds it.
    pub(crate) fn ports(&self) -> Vec<(u32, u32)> {
        let at = |port| Some((port, self.ports.get(port, 0).ok()?.if_index));
        (0..MAX_PORTS).filter_map(at).collect()
    }

    pub(crate) fn set_port(&mut self, port: u32, ifindex: u32) -> Result<(), L4Error> {
        self.ports.set(port, ifindex, None, 0).map_err(L4Error::map("ports"))
    }

    /// How what came by an interface goes back, and whether anything else is sent there.
    pub(crate) fn set_port_flags(&mut self, port: u32, flags: u32) -> Result<(), L4Error> {
        if self.port_flags(port)? != flags {
            self.turns_back.set(port, flags, 0).map_err(L4Error::map("turns_back"))?;
        }
        Ok(())
    }

    /// As they were set.
    pub(crate) fn port_flags(&self, port: u32) -> Result<u32, L4Error> {
        self.turns_back.get(&port, 0).map_err(L4Error::map("turns_back"))
    }

    /// Writes at which addresses only services are reached.
    pub(crate) fn set_addresses(&mut self, wanted: &BTreeSet<IpAddr>) -> Result<(), L4Error> {
        let key = |address: &IpAddr| {
            let [a, b, c, d] = address_words(*address);
            [a, b, c, d, if address.is_ipv4() { 4 } else { 6 }]
        };
        let wanted: BTreeSet<[u32; 5]> = wanted.iter().map(key).collect();
        let held: Result<BTreeSet<[u32; 5]>, _> = self.addresses.keys().collect();
        let held = held.map_err(L4Error::map("addresses"))?;
        for gone in held.difference(&wanted) {
            self.addresses.remove(gone).map_err(L4Error::map("addresses"))?;
        }
        for new in wanted.difference(&held) {
            self.addresses.insert(new, 1, 0).map_err(L4Error::map("addresses"))?;
        }
        Ok(())
    }

    /// A service's name; empty where there is none.
    pub fn vip_name(&self, number: u32) -> Result<String, L4Error> {
        let bytes = self.vip_names.get(&number, 0).map_err(L4Error::map("vip_names"))?;
        Ok(name_from_bytes(&bytes))
    }

    pub(crate) fn set_vip_name(&mut self, number: u32, name: &str) -> Result<(), L4Error> {
        let bytes = name_to_bytes(name);
        self.vip_names.set(number, bytes, 0).map_err(L4Error::map("vip_names"))
    }

    /// A server's name; empty where there is none.
    pub fn member_name(&self, place: u32) -> Result<String, L4Error> {
        let bytes = self.member_names.get(&place, 0).map_err(L4Error::map("member_names"))?;
        Ok(name_from_bytes(&bytes))
    }

    pub(crate) fn set_member_name(&mut self, place: u32, name: &str) -> Result<(), L4Error> {
        let bytes = name_to_bytes(name);
        self.member_names.set(place, bytes, 0).map_err(L4Error::map("member_names"))
    }

    /// What set a service's weights.
    pub(crate) fn vip_note(&self, number: u32) -> Result<VipNote, L4Error> {
        let bytes = self.notes.get(&(number * self.meta.stride), 0);
        Ok(VipNote::from_bytes(&bytes.map_err(L4Error::map("notes"))?))
    }

    pub(crate) fn set_vip_note(&mut self, number: u32, note: &VipNote) -> Result<(), L4Error> {
        let place = number * self.meta.stride;
        self.notes.set(place, note.to_bytes(), 0).map_err(L4Error::map("notes"))
    }

    /// What was set for a server, and what it reported.
    pub(crate) fn member_note(&self, place: u32) -> Result<MemberNote, L4Error> {
        let bytes = self.notes.get(&place, 0).map_err(L4Error::map("notes"))?;
        Ok(MemberNote::from_bytes(&bytes))
    }

    pub(crate) fn set_member_note(&mut self, place: u32, note: MemberNote) -> Result<(), L4Error> {
        self.notes.set(place, note.to_bytes(), 0).map_err(L4Error::map("notes"))
    }

    /// Tells these maps from any others, of this boot and before: counters that went on have the same.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn generation(&self) -> Result<u64, L4Error> {
        let path = self.dir.join("maps/counts");
        let id = MapInfo::from_pin(path).map_err(L4Error::map("counts"))?.id();
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id")?;
        // FNV-1a: two boots differ with a probability of 1 - 2^-32.
        let hash = boot
            .iter()
            .fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
        Ok(u64::from(hash) << 32 | u64::from(id))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_l4bench::packet::{ACK, Segment, read_timestamps, timestamps};
    use plimsoll_l4bench::{CLIENT_MAC, VIP, ifindex, legs, server_mac};
    use plimsoll_testbed::net::Namespaces;

    use crate::fixture::{config, keys};
    use crate::{Backend, BackendState, Balancer, Uplink, UplinkMode};

    const CLIENT: &str = "10.0.1.2:40000";
    const REAL: u32 = 0x1234_5678;

    #[test]
    fn clock_that_the_program_hears_meanwhile_outlives_a_write_of_its_server() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root (network namespaces, BPF)");
            return;
        }
        let net = Namespaces::new(&["lb", "out"]).expect("namespaces");
        let legs = net.run("lb", &format!("sh -c '{}'", legs(&net.full("out"))));
        assert!(legs.expect("runs").status.success());
        net.enter("lb").expect("enters");
        let server = Backend {
            name: "s1".to_owned(),
            address: [10, 0, 2, 1].into(),
            mac: Some(server_mac(1)),
            weight: 1,
            id: None,
            state: BackendState::Up,
            agent: false,
        };
        let mut config = config(net.pins(), &["lbc", "lbs"], vec![server]);
        config.uplink = UplinkMode::Fixed(Uplink {
            interface: "lbc".to_owned(),
            gateway: None,
            mac: Some(CLIENT_MAC),
        });
        let (mut balancer, _) = Balancer::start_with(&config, keys()).expect("starts");
        let [clients, servers] = ["lbc", "lbs"].map(|name| ifindex(name).expect("there"));
        // As a daemon does that has read the server's entry before its first reply, and writes it after.
        let read = balancer.maps.member(1).expect("read");
        let reply = Segment::new(VIP, CLIENT, ACK, timestamps(REAL, 1)).sent_by(server_mac(1));
        let replied = balancer.run(&reply.bytes(), servers).expect("runs");
        balancer.maps.set_member(1, read).expect("written");

        let wire = read_timestamps(&replied.packet, 22).0;
        assert_ne!(wire, REAL, "a cookie");
        let echo = Segment::new(CLIENT, VIP, ACK, timestamps(9, wire)).bytes();
        let restored = balancer.run(&echo, clients).expect("runs");
        assert_eq!(read_timestamps(&restored.packet, 22).1, REAL);
        drop(balancer);
        net.leave().expect("goes home");
    }
}
