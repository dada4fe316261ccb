//! The program: loaded onto the pinned maps, attached by pinned links. A daemon that starts over, or a
//! newer one, loads its program onto the same maps and puts it into the same links in one step, so that
//! no packet and no count is lost.

mod pins;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aya::programs::{ProgramError, ProgramInfo, Xdp};
use aya::{Ebpf, EbpfLoader};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use tracing::warn;

use crate::config::{AttachMode, L4Config, Limits};
use crate::doctor::features;
use crate::error::L4Error;
use crate::guard::Guard;
use crate::layout::META_LAYOUT;
use crate::maps::{MAPS, MAPS_DIR, Meta, read_meta, read_own_meta, write_meta};
use crate::mounts::{self, Owner};
use crate::network::Link;
use crate::readers::Readers;
use crate::reason::REASONS;
use crate::refused::{explained, refused};
use crate::rights;
use crate::tables::{mac_bits, vip_bits};
use crate::xdp::{self, Ran};

use pins::{LINKS_DIR, PROGRAM, clear_maps};
pub use pins::{detach, detach_interface, is_link_on, link_pin, pinned_links};
pub(crate) use pins::{is_bpffs, pinned, unpinned};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/balancer.bpf.o"));

/// What an interface has handed on goes from queue to queue of the kernel for no longer.
const ON_THEIR_WAY: Duration = Duration::from_millis(50);

/// The loaded program.
#[derive(Debug)]
pub struct Program {
    ebpf: Ebpf,
    dir: PathBuf,
    /// Where its maps are, in the directory.
    maps: &'static str,
    vip_bits: u32,
    /// The kernel's number of it.
    id: u32,
    /// And of one that a comparison has put in its place; 0: none.
    stand_in: AtomicU32,
    readers: Readers,
}

impl Meta {
    /// What a configuration asks for where these maps are.
    pub(crate) fn wanted(config: &L4Config, found: Option<Meta>) -> Meta {
        let held = || found.map(|found| found.clients).filter(|clients| *clients > 0);
        Meta {
            layout: META_LAYOUT,
            version_bits: config.cookie.layout.version_bits(),
            vips: config.limits.vips,
            stride: config.limits.stride(),
            fragments: config.limits.fragments.max(1),
            clients: config.limits.client_places().or_else(held).unwrap_or(Limits::CLIENTS),
        }
    }

    /// Whether maps are as wanted, but for what is missing of those that hold nothing which must last.
    pub(crate) fn is_as(self, wanted: Meta) -> bool {
        let or = |found: u32, wanted| if found == 0 { wanted } else { found };
        let fragments = or(self.fragments, wanted.fragments);
        let clients = or(self.clients, wanted.clients);
        Meta { fragments, clients, ..self } == wanted
    }
}

impl Program {
    /// Loads the program onto the maps pinned in a directory, which is prepared; makes them when there are
    /// none.
    ///
    /// # Errors
    /// With pinned maps of another shape, or when the kernel refuses.
    pub fn load(dir: &Path, meta: Meta) -> Result<Self, L4Error> {
        match read_meta(dir)? {
            Some(found) if found.is_as(meta) => {}
            // A start that was killed before it said what its maps are: they are unused.
            found
                if found.is_none_or(|found| found.layout == 0) && pinned_links(dir).is_empty() =>
            {
                clear_maps(dir)?;
            }
            Some(found) => {
                return Err(L4Error::Pinned {
                    path: dir.to_owned(),
                    found: found.describe(),
                    expected: meta.describe(),
                });
            }
            None => {}
        }
        let program = Program::load_in(dir, MAPS_DIR, meta)?;
        write_meta(&dir.join(MAPS_DIR), meta)?;
        Ok(program)
    }

    /// Loads the program onto the maps in one directory of them; makes those that are missing.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn load_in(dir: &Path, maps: &'static str, meta: Meta) -> Result<Self, L4Error> {
        let loaded = Program::load_as(dir, maps, meta, false);
        loaded.map_err(|error| explained(error, features::missing))
    }

    /// Loads the program onto pinned maps such that it counts nothing and takes no server's turn: to ask
    /// it what it would do.
    ///
    /// # Errors
    /// When nothing is pinned, or by another version, or the kernel refuses.
    pub fn load_dry(dir: &Path) -> Result<Self, L4Error> {
        Program::load_as(dir, MAPS_DIR, read_own_meta(dir)?, true)
    }

    fn load_as(dir: &Path, maps: &'static str, meta: Meta, dry: bool) -> Result<Self, L4Error> {
        let members = meta.vips * meta.stride;
        let (vip_bits, mac_bits) = (vip_bits(meta.vips), mac_bits(members));
        let hop_bits = meta.clients.max(2).ilog2();
        let mut loader = EbpfLoader::new();
        for name in MAPS {
            loader.map_pin_path(name, dir.join(maps).join(name));
        }
        let dry = u32::from(dry);
        let tick = tick_ms_q20();
        loader
            .map_max_entries("vips", 2 << vip_bits)
            .map_max_entries("slots", 2 * meta.vips)
            .map_max_entries("members", members)
            .map_max_entries("clocks", members)
            .map_max_entries("macs", 2 << mac_bits)
            .map_max_entries("counts", members)
            .map_max_entries("open", members)
            .map_max_entries("reasons", (meta.vips + 1) * REASONS.len() as u32)
            .map_max_entries("turns", meta.vips)
            .map_max_entries("vip_names", meta.vips)
            .map_max_entries("member_names", members)
            .map_max_entries("notes", members)
            .map_max_entries("fragments", meta.fragments)
            .map_max_entries("hops", meta.clients)
            .map_max_entries("addresses", meta.vips)
            .override_global("version_bits", &meta.version_bits, true)
            .override_global("stride", &meta.stride, true)
            .override_global("max_vips", &meta.vips, true)
            .override_global("vip_bits", &vip_bits, true)
            .override_global("mac_bits", &mac_bits, true)
            .override_global("hop_bits", &hop_bits, true)
            .override_global("tick_ms_q20", &tick, true)
            .override_global("dry_run", &dry, true);
        let mut ebpf = loader.load(OBJECT).map_err(|error| refused(&error))?;
        for name in ["balancer", "read_clock"] {
            xdp::load(program(&mut ebpf, name)?).map_err(|error| refused(&error))?;
        }
        let info = program(&mut ebpf, "balancer")?.info().map_err(|error| refused(&error))?;
        let (id, stand_in, readers) = (info.id(), AtomicU32::new(0), Readers::of(&mut ebpf)?);
        Ok(Program { ebpf, dir: dir.to_owned(), maps, vip_bits, id, stand_in, readers })
    }

    /// Returns when every packet that the program had begun with before has left it.
    ///
    /// # Errors
    /// When the kernel does not wait.
    pub(crate) fn wait_for_readers(&mut self) -> Result<(), L4Error> {
        self.readers.wait()
    }

    /// Its maps have taken the place of those before.
    pub(crate) fn set_handed_over(&mut self) {
        self.maps = MAPS_DIR;
    }

    /// Whether this is the program that was pinned last.
    pub(crate) fn is_pinned(&self) -> bool {
        ProgramInfo::from_pin(self.dir.join(PROGRAM)).is_ok_and(|info| info.id() == self.id)
    }

    /// Whether it, or what stands in for it, is on an interface.
    pub(crate) fn is_on(&self, link: &Link) -> bool {
        let stand_in = self.stand_in.load(Ordering::Relaxed);
        link.programs.iter().any(|id| *id == self.id || *id == stand_in)
    }

    /// Another program is on the interfaces in the place of this one, and is to stay there.
    pub(crate) fn give_way_to(&self, id: u32) {
        self.stand_in.store(id, Ordering::Relaxed);
    }

    /// Makes this the daemon in charge: the one before notices that its program is pinned no more.
    pub(crate) fn pin(&mut self) -> Result<(), L4Error> {
        let path = self.dir.join(PROGRAM);
        let _ = fs::remove_file(&path);
        program(&mut self.ebpf, "balancer")?.pin(&path).map_err(|error| refused(&error))
    }

    /// Puts the program onto an interface: into the pinned link where there is one, in one step. A link of
    /// another mode gives way to a new one, with a [`Guard`] in between; where the driver does not take that, the old
    /// mode is kept and the answer says why.
    ///
    /// # Errors
    /// When another program is there, or the driver does not take it.
    pub fn attach(&mut self, link: &Link, mode: AttachMode) -> Result<Option<String>, L4Error> {
        let failed = |error: String| L4Error::Interface { name: link.name.clone(), error };
        let (maps, vip_bits) = (self.dir.join(self.maps), self.vip_bits);
        let before = || {
            let guard = Guard::on(&maps, vip_bits, &link.name);
            if let Err(error) = &guard {
                let interface = &link.name;
                warn!(
                    interface,
                    "connections may break while the mode changes; expected a kernel with tcx (6.6 or later): {error}"
                );
            }
            guard
        };
        let (program, pin) =
            (program(&mut self.ebpf, "balancer")?, link_pin(&self.dir, &link.name));
        let Some(changed) = xdp::attach(program, link, mode, &pin, before).map_err(failed)? else {
            return Ok(None);
        };
        // Packets that came before the program did are on their way to the kernel.
        self.wait_for_readers()?;
        std::thread::sleep(ON_THEIR_WAY);
        drop(changed.guard);
        let stays = |error| failed(format!("stays in the mode it was in: {error}")).to_string();
        Ok(changed.refused.map(stays))
    }

    /// Runs the program on a packet, as if it came in by an interface (`BPF_PROG_TEST_RUN`).
    ///
    /// # Errors
    /// When the kernel does not run it: a packet shorter than an Ethernet header, for one.
    pub fn run(&self, packet: &[u8], ifindex: u32) -> Result<Ran, L4Error> {
        self.run_named("balancer", packet, Some(ifindex))
    }

    /// The program's clock, in milliseconds.
    ///
    /// # Errors
    /// When the kernel does not run it.
    pub fn clock_ms(&self) -> Result<u64, L4Error> {
        let ran = self.run_named("read_clock", &[0; 64], None)?;
        let bytes = ran.packet.first_chunk().copied().unwrap_or_default();
        Ok(u64::from_le_bytes(bytes))
    }

    fn run_named(
        &self,
        name: &'static str,
        packet: &[u8],
        ifindex: Option<u32>,
    ) -> Result<Ran, L4Error> {
        let program: &Xdp = self
            .ebpf
            .program(name)
            .ok_or_else(|| absent(name))?
            .try_into()
            .map_err(|error: ProgramError| refused(&error))?;
        xdp::run(program, packet, ifindex).map_err(|error| refused(&error))
    }
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Xdp, L4Error> {
    let program = ebpf.program_mut(name).ok_or_else(|| absent(name))?;
    program.try_into().map_err(|error: ProgramError| refused(&error))
}

fn absent(name: &str) -> L4Error {
    L4Error::Load(format!("the object holds no program {name}"))
}

/// Makes the directories for pinned maps and links, and mounts a bpffs where there is none and it would last.
///
/// # Errors
/// Without the rights to, or where no bpffs is or would last.
pub fn prepare(dir: &Path) -> Result<(), L4Error> {
    rights::check()?;
    let root = Path::new("/sys/fs/bpf");
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error: std::io::Error| L4Error::Bpffs { path: path.clone(), error }
    };
    if dir.starts_with(root) && !is_bpffs(root) {
        if mounts::are_own() {
            return Err(L4Error::OwnMounts(root.to_owned()));
        }
        // Of two that start at the same time the second would hide what the first has pinned under a mount of its own.
        let alone = fs::File::open(root).map_err(failed(root))?;
        flock(&alone, FlockOperation::LockExclusive)
            .map_err(|error: Errno| failed(root)(error.into()))?;
        if !is_bpffs(root) {
            mount("bpf", root, "bpf", MountFlags::empty(), None)
                .map_err(|error: Errno| failed(root)(error.into()))?;
        }
    }
    for part in [MAPS_DIR, LINKS_DIR] {
        fs::create_dir_all(dir.join(part)).map_err(failed(dir))?;
    }
    if !is_bpffs(dir) {
        let error = std::io::Error::other("not a bpffs");
        return Err(failed(dir)(error));
    }
    if mounts::owner(dir) == Owner::Namespace {
        warn!("{}", L4Error::OwnMounts(dir.to_owned()));
    }
    Ok(())
}

/// Milliseconds a jiffy, with 20 binary places: the resolution of the coarse clock is one jiffy.
pub fn tick_ms_q20() -> u64 {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    let nanos = tick.tv_sec as u64 * 1_000_000_000 + tick.tv_nsec as u64;
    (nanos << 20) / 1_000_000
}
