//! The balancer's program under a load made in the kernel: flows are computed by a preamble
//! (`bpf/flows.h`), so that millions of packets take seconds and nothing but the program is in the
//! cache.

use std::path::Path;
use std::time::Duration;

use aya::maps::{Array, Map, MapData};
use aya::programs::{TestRun, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader};
use rustix::time::{ClockId, clock_gettime};

use crate::BenchError;
use plimsoll_l4::lab::{MAPS, Maps, mac_bits, vip_bits};
use plimsoll_l4::{Balancer, tick_ms_q20};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/bench.bpf.o"));

/// What the preamble makes; `struct bench` of `bpf/flows.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The number of the first flow.
    pub turn: u64,
    /// Of flows: a power of two.
    pub flows: u64,
    /// Of servers: a power of two.
    pub servers: u32,
    /// Where in the packet the upper half is that the preamble writes.
    pub field_at: u32,
    /// Whether each flow has a client of its own; else 16,384 of them have the same.
    pub apart: bool,
}

impl Settings {
    /// So many flows of few clients to one server, nothing written into them.
    pub fn of(flows: u64) -> Settings {
        Settings { turn: 0, flows, servers: 1, field_at: 0, apart: false }
    }
}

/// The programs of `bpf/bench.bpf.c`, on a running balancer's maps.
#[derive(Debug)]
pub struct Load {
    pub(super) ebpf: Ebpf,
}

impl Load {
    /// Loads them; constants follow from the maps' sizes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn on(balancer: &Balancer) -> Result<Load, BenchError> {
        Load::with(balancer.maps())
    }

    /// The same, of a balancer in another process.
    ///
    /// # Errors
    /// When nothing is pinned in this directory, or the kernel refuses.
    pub fn pinned(dir: &Path) -> Result<Load, BenchError> {
        Load::with(&Maps::open(dir)?)
    }

    fn with(balancer: &Maps) -> Result<Load, BenchError> {
        let meta = balancer.meta();
        let maps = balancer.dir().join("maps");
        let mut loader = EbpfLoader::new();
        for name in MAPS {
            loader.map_pin_path(name, maps.join(name));
        }
        let (vip_bits, mac_bits) = (vip_bits(meta.vips), mac_bits(meta.vips * meta.stride));
        let hop_bits = meta.clients.max(2).ilog2();
        let tick = tick_ms_q20();
        loader
            .override_global("version_bits", &meta.version_bits, true)
            .override_global("stride", &meta.stride, true)
            .override_global("max_vips", &meta.vips, true)
            .override_global("vip_bits", &vip_bits, true)
            .override_global("mac_bits", &mac_bits, true)
            .override_global("hop_bits", &hop_bits, true)
            .override_global("tick_ms_q20", &tick, true);
        let ebpf = loader.load(OBJECT).map_err(BenchError::kernel("bench.bpf.o"))?;
        Ok(Load { ebpf })
    }

    pub(super) fn program(&mut self, name: &str) -> Result<&mut Xdp, BenchError> {
        let program = self.ebpf.program_mut(name).ok_or("not in the object");
        let program = program.map_err(BenchError::kernel(name))?;
        let program: &mut Xdp = program.try_into().map_err(BenchError::kernel(name))?;
        if program.fd().is_err() {
            program.load().map_err(BenchError::kernel(name))?;
        }
        Ok(program)
    }

    pub(super) fn map(&mut self, name: &str) -> Result<&mut Map, BenchError> {
        self.ebpf.map_mut(name).ok_or("not in the object").map_err(BenchError::kernel(name))
    }

    fn bench(&mut self) -> Result<Array<&mut MapData, [u64; 5]>, BenchError> {
        self.map("bench")?.try_into().map_err(BenchError::kernel("bench"))
    }

    /// Sets what the preamble makes, and forgets what was missed.
    ///
    /// # Errors
    /// When the map cannot be written.
    ///
    /// # Panics
    /// When a number that must be a power of two is none.
    pub fn set(&mut self, settings: Settings) -> Result<(), BenchError> {
        assert!(settings.flows.is_power_of_two() && settings.servers.is_power_of_two());
        let second = u64::from(settings.servers - 1) | u64::from(settings.field_at) << 32;
        let words = [settings.turn, settings.flows - 1, second, 0, u64::from(settings.apart)];
        self.bench()?.set(0, words, 0).map_err(BenchError::kernel("bench"))
    }

    /// Packets that a connection table did not know.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn missed(&mut self) -> Result<u64, BenchError> {
        Ok(self.bench()?.get(&0, 0).map_err(BenchError::kernel("bench"))?[3])
    }

    /// Runs a program on a packet many times; the last verdict and the CPU time of one run in
    /// nanoseconds.
    ///
    /// # Errors
    /// When the kernel does not run it.
    pub fn run(
        &mut self,
        name: &str,
        packet: &[u8],
        ifindex: u32,
        repeat: u32,
    ) -> Result<(u32, f64), BenchError> {
        let program = self.program(name)?;
        let mut out = vec![0; packet.len() + 256];
        let context = context(packet.len(), ifindex);
        let mut options = TestRunOptions::new();
        options.data_in = Some(packet);
        options.data_out = Some(&mut out);
        options.ctx_in = Some(&context);
        options.repeat = repeat;
        let before = cpu_time();
        let result = program.test_run(options).map_err(BenchError::kernel(name))?;
        let spent = cpu_time() - before;
        Ok((result.return_value, spent.as_secs_f64() * 1e9 / f64::from(repeat)))
    }
}

/// `struct xdp_md` for a packet that came in by an interface.
pub(super) fn context(bytes: usize, ifindex: u32) -> [u8; 24] {
    let mut context = [0u8; 24];
    context[4..8].copy_from_slice(&(bytes as u32).to_le_bytes());
    context[12..16].copy_from_slice(&ifindex.to_le_bytes());
    context
}

/// Of this thread: the test run is within its system call, and what else runs here is not counted.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
