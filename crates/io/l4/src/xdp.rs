//! What every XDP data plane of Plimsoll needs: programs are given to the kernel, put onto interfaces by links that are
//! pinned, so that they outlive the process, and run on packets.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::xdp::{XdpLink, XdpMode};
use aya::programs::{ProgramError, TestRun, TestRunOptions, Xdp};
use rustix::io::Errno;

use crate::config::AttachMode;
use crate::network::Link;
use crate::refused::{errno, is_held, refused, undisturbed, was_disturbed, why_not_attached};

/// How long the kernel may take to let go of a link that no process holds.
const LETS_GO: Duration = Duration::from_secs(2);

/// What a run of a program did with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// `XDP_ABORTED`, `XDP_DROP`, `XDP_PASS`, `XDP_TX` or `XDP_REDIRECT`, from 0.
    pub verdict: u32,
    /// The packet as it was left.
    pub packet: Vec<u8>,
}

/// A program that was off its interface for a moment, because its mode was to change.
#[derive(Debug)]
pub struct Changed<G> {
    /// What `before` gave: packets that came in that moment may still be in the kernel's queues.
    pub guard: G,
    /// Why it is in the mode that it was in, where the driver takes no other.
    pub refused: Option<String>,
}

/// Gives a program to the kernel.
///
/// # Errors
/// When the kernel does not take it.
pub fn load(xdp: &mut Xdp) -> Result<(), ProgramError> {
    undisturbed(|| xdp.load(), was_disturbed)
}

/// Puts a program onto an interface: into the pinned link where there is one, in one step, so that no packet misses it.
/// The kernel takes one mode at a time: a link of another mode is removed, `before` is called first, and a new one made;
/// in the old mode, where the driver does not take the new one.
///
/// # Errors
/// When another program is there, or the driver does not take it: why, for people.
pub fn attach<G>(
    xdp: &mut Xdp,
    link: &Link,
    mode: AttachMode,
    pin: &Path,
    before: impl FnOnce() -> G,
) -> Result<Option<Changed<G>>, String> {
    let pinned = existing(pin);
    if let Some(held) = link.xdp.filter(|held| pinned.is_some() && *held != mode) {
        drop(pinned);
        let guard = before();
        let _ = fs::remove_file(pin);
        let refused = attach_when_free(xdp, link, mode, pin).err();
        if refused.is_some() {
            attach_when_free(xdp, link, held, pin)?;
        }
        return Ok(Some(Changed { guard, refused }));
    }
    if let Some(pinned) = pinned
        && let Ok(id) = xdp.attach_to_link(pinned)
    {
        // The pin alone holds it: without that it is off the interface.
        drop(xdp.take_link(id));
        return Ok(None);
    }
    // There is none, or its interface was removed and there is a new one of its name.
    let _ = fs::remove_file(pin);
    attach_anew(xdp, link, mode, pin).map(|()| None).map_err(|(_, why)| why)
}

/// Puts a program onto an interface until the program is dropped.
///
/// # Errors
/// As [`attach`].
pub fn attach_until_dropped(xdp: &mut Xdp, link: &Link, mode: AttachMode) -> Result<(), String> {
    xdp.attach_to_if_index(link.index, flags(mode))
        .map(drop)
        .map_err(|error| why(&error, link, mode))
}

/// Runs a program on a packet (`BPF_PROG_TEST_RUN`), as if it came in by an interface.
///
/// # Errors
/// When the kernel does not run it: a packet shorter than an Ethernet header, for one.
pub fn run(xdp: &Xdp, packet: &[u8], ifindex: Option<u32>) -> Result<Ran, ProgramError> {
    let mut out = vec![0; packet.len() + 256];
    // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
    let mut context = [0u8; 24];
    context[4..8].copy_from_slice(&(packet.len() as u32).to_le_bytes());
    context[12..16].copy_from_slice(&ifindex.unwrap_or(1).to_le_bytes());
    let mut options = TestRunOptions::new();
    options.data_in = Some(packet);
    options.data_out = Some(&mut out);
    options.ctx_in = ifindex.is_some().then_some(&context[..]);
    let result = xdp.test_run(options)?;
    out.truncate(result.data_size_out as usize);
    Ok(Ran { verdict: result.return_value, packet: out })
}

/// The kernel lets go of a link some time after its last pin is gone.
fn attach_when_free(
    xdp: &mut Xdp,
    link: &Link,
    mode: AttachMode,
    pin: &Path,
) -> Result<(), String> {
    let began = Instant::now();
    loop {
        match attach_anew(xdp, link, mode, pin) {
            Err((errno, _)) if is_held(errno) && began.elapsed() < LETS_GO => {
                std::thread::sleep(Duration::from_millis(1));
            }
            done => return done.map_err(|(_, why)| why),
        }
    }
}

/// The kernel's error number where it refuses the program, and why, for people.
fn attach_anew(
    xdp: &mut Xdp,
    link: &Link,
    mode: AttachMode,
    pin: &Path,
) -> Result<(), (Option<Errno>, String)> {
    let id = xdp
        .attach_to_if_index(link.index, flags(mode))
        .map_err(|error| (errno(&error), why(&error, link, mode)))?;
    let taken = xdp.take_link(id).map_err(|error| (None, error.to_string()))?;
    let fd = FdLink::try_from(taken).map_err(|_| {
        (None, "expected a kernel with BPF links for XDP (5.9 or later)".to_owned())
    })?;
    fd.pin(pin).map_err(|error| (None, error.to_string()))?;
    Ok(())
}

fn existing(pin: &Path) -> Option<XdpLink> {
    let pinned = PinnedLink::from_pin(pin).ok()?;
    XdpLink::try_from(FdLink::from(pinned)).ok()
}

fn flags(mode: AttachMode) -> XdpMode {
    match mode {
        AttachMode::Native => XdpMode::Driver,
        AttachMode::Generic => XdpMode::Skb,
    }
}

fn why(error: &ProgramError, link: &Link, mode: AttachMode) -> String {
    why_not_attached(errno(error), refused(error).to_string(), mode, link.mtu)
}
