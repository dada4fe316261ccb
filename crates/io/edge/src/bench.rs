//! What a packet costs the forwarder, by test runs (`bpf/bench.bpf.c`), beside a table such as layer-4 balancers keep.

use aya::Ebpf;
use aya::maps::Array;
use aya::programs::{TestRun, TestRunOptions, TestRunResult};

use crate::config::EdgeConfig;
use crate::error::EdgeError;
use crate::forwarder::{forwarder_dir, load_object};
use crate::kernel;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/bench.bpf.o"));

/// What is run on every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Makes the packet another flow's, and leaves it as the others do.
    Preamble,
    /// The forwarder, behind that.
    Forwarder,
    /// A table that forgets what was used least recently, with the same rules, slots, counters and VXLAN.
    Lru,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::Preamble => "preamble",
            Program::Forwarder => "measured",
            Program::Lru => "by_lru",
        }
    }
}

/// The programs, on the maps of a forwarder that runs.
pub struct Bench {
    ebpf: Ebpf,
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").finish_non_exhaustive()
    }
}

impl Bench {
    /// Loads them.
    ///
    /// # Errors
    /// When no forwarder of this configuration has run, or the kernel refuses.
    pub fn on(config: &EdgeConfig) -> Result<Bench, EdgeError> {
        let maps = forwarder_dir(config).join("maps");
        let loaded = load_object(OBJECT, &maps, config.flows.limit, &[]);
        let mut ebpf = loaded.map_err(EdgeError::kernel("the benchmark"))?;
        kernel::load_all(&mut ebpf, &["preamble", "measured", "by_lru"])?;
        Ok(Bench { ebpf })
    }

    /// Sends so many packets, each the first of another flow from `turn` on, forged addresses and all; whatever becomes
    /// of them.
    ///
    /// # Errors
    /// When the kernel does not run it.
    pub fn flood(
        &mut self,
        packet: &[u8],
        ifindex: u32,
        turn: u64,
        packets: u32,
    ) -> Result<(), EdgeError> {
        self.ran(Program::Forwarder, packet, ifindex, (1 << 36, turn), packets).map(drop)
    }

    /// Nanoseconds per packet of so many, each of the next of `flows` flows (a power of two), which begin at `turn`.
    ///
    /// # Errors
    /// When the kernel does not run it, or a packet is not forwarded.
    pub fn run(
        &mut self,
        program: Program,
        packet: &[u8],
        ifindex: u32,
        (flows, turn): (u64, u64),
        repeat: u32,
    ) -> Result<f64, EdgeError> {
        let ran = self.ran(program, packet, ifindex, (flows, turn), repeat)?;
        if ran.return_value != 4 {
            let error = format!("verdict {}, expected 4 (redirect)", ran.return_value);
            return Err(EdgeError::Kernel { what: program.name().to_owned(), error });
        }
        Ok(ran.duration.as_secs_f64() * 1e9)
    }

    fn ran(
        &mut self,
        program: Program,
        packet: &[u8],
        ifindex: u32,
        (flows, turn): (u64, u64),
        repeat: u32,
    ) -> Result<TestRunResult, EdgeError> {
        let map = self.ebpf.map_mut("bench").ok_or_else(|| kernel::absent("bench"))?;
        let mut map: Array<_, [u64; 3]> = map.try_into().map_err(EdgeError::kernel("bench"))?;
        map.set(0, [0, flows, turn], 0).map_err(EdgeError::kernel("bench"))?;
        let name = program.name();
        let loaded = kernel::program(&mut self.ebpf, name)?;
        let mut context = [0u8; 24];
        context[4..8].copy_from_slice(&(packet.len() as u32).to_le_bytes());
        context[12..16].copy_from_slice(&ifindex.to_le_bytes());
        let mut options = TestRunOptions::new();
        options.data_in = Some(packet);
        options.ctx_in = Some(&context);
        options.repeat = repeat;
        loaded.test_run(options).map_err(EdgeError::kernel(name))
    }
}
