//! What a packet costs, before anybody sends any (E2): a burst of frames that the kernel makes (live frames of
//! `BPF_PROG_TEST_RUN`) through the whole service, on each of its cores. A run of the functions alone would not
//! do: it leaves out the queue and the thread, and says 620 ns where 900 to 1,100 are spent.

use std::time::Duration;

use aya::Ebpf;
use aya::maps::Array;
use aya::programs::{TestRun, TestRunAttrs, TestRunOptions};

use super::busy::Thread;
use crate::error::EdgeError;
use crate::kernel;

/// Frames of a burst, and how far apart they are: 20 ms of a core.
const FRAMES: u32 = 2_000;
const PERIOD_NS: u64 = 20_000;
const BATCH: u32 = 64;
/// Flows that they belong to.
const FLOWS: u32 = 64;
/// `struct burst`.
const BURST_BYTES: usize = 32;
/// Fewer packets say nothing.
const LEAST: u64 = 100;
const SETTLES: Duration = Duration::from_millis(30);
/// Of `work`, for how long one of its steps takes.
const STEPS: u32 = 10_000;

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calibrated {
    /// Nanoseconds a packet; 0: nothing arrived.
    pub(super) cost_ns: f64,
}

fn burst_bytes(core: u32, flows: u32) -> [u8; BURST_BYTES] {
    let mut bytes = [0; BURST_BYTES];
    bytes[..8].copy_from_slice(&PERIOD_NS.to_ne_bytes());
    bytes[16..20].copy_from_slice(&core.to_ne_bytes());
    bytes[20..24].copy_from_slice(&flows.to_ne_bytes());
    bytes
}

/// Sends a burst to a core, and divides the time that its thread ran by the packets that it handled.
pub(super) fn burst(
    ebpf: &mut Ebpf,
    uplink: u32,
    cpu: u32,
    thread: &Thread,
    handled: impl Fn() -> Result<u64, EdgeError>,
) -> Result<Calibrated, EdgeError> {
    let map = ebpf.map_mut("bursts").ok_or_else(|| kernel::absent("bursts"))?;
    let mut bursts: Array<_, [u8; BURST_BYTES]> =
        map.try_into().map_err(EdgeError::kernel("bursts"))?;
    bursts.set(0, burst_bytes(cpu, FLOWS), 0).map_err(EdgeError::kernel("bursts"))?;
    let packet = [0u8; 66];
    let mut context = [0u8; 24];
    context[4..8].copy_from_slice(&(packet.len() as u32).to_le_bytes());
    context[12..16].copy_from_slice(&uplink.to_le_bytes());
    let program = kernel::program(ebpf, "calibrate")?;
    let send = |frames| {
        let mut options = TestRunOptions::new();
        options.data_in = Some(&packet);
        options.ctx_in = Some(&context);
        options.repeat = frames;
        options.attrs = TestRunAttrs::new().xdp_live_frames(BATCH);
        program.test_run(options).map(|_| ()).map_err(EdgeError::kernel("calibrate"))
    };
    // The first packets make entries of conntrack, and load caches.
    send(FLOWS * 2)?;
    std::thread::sleep(SETTLES);
    let (packets, busy) = (handled()?, thread.busy_ns()?);
    send(FRAMES)?;
    std::thread::sleep(SETTLES);
    let (packets, busy) = (handled()? - packets, thread.busy_ns()? - busy);
    let cost_ns = if packets < LEAST { 0.0 } else { busy as f64 / packets as f64 };
    Ok(Calibrated { cost_ns })
}

/// Nanoseconds of a step of `work`.
pub(super) fn iteration_ns(ebpf: &mut Ebpf) -> Result<f64, EdgeError> {
    let mut packet = [0; 64];
    packet[..BURST_BYTES].copy_from_slice(&burst_bytes(0, STEPS));
    let program = kernel::program(ebpf, "measure_work")?;
    let mut least = f64::INFINITY;
    // What disturbs makes it longer, never shorter.
    for _ in 0..5 {
        let mut options = TestRunOptions::new();
        options.data_in = Some(&packet);
        options.repeat = 20;
        let ran = program.test_run(options).map_err(EdgeError::kernel("measure_work"))?;
        least = least.min(ran.duration.as_secs_f64() * 1e9);
    }
    Ok((least / f64::from(STEPS)).max(0.05))
}
