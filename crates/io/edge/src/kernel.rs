//! Loading programs onto pinned maps, attaching them by pinned links, running them on packets.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{Array, MapData, PerCpuArray};
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::xdp::{XdpLink, XdpMode};
use aya::programs::{TestRun, TestRunOptions, Xdp};
use aya::{Ebpf, Pod};
use plimsoll_l4::network::{self, Link};
use plimsoll_l4::{AttachMode, link_pin};

use crate::error::EdgeError;

/// Within this time the kernel lets go of a link whose pin was removed.
const LETS_GO: Duration = Duration::from_secs(2);

/// What a run of a program did with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// `XDP_ABORTED`, `XDP_DROP`, `XDP_PASS`, `XDP_TX` or `XDP_REDIRECT`, from 0.
    pub verdict: u32,
    /// The packet as it was left.
    pub packet: Vec<u8>,
}

/// A program of an object.
pub(crate) fn xdp<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, EdgeError> {
    let program = ebpf.program_mut(name).ok_or_else(|| absent(name))?;
    program.try_into().map_err(EdgeError::kernel(name))
}

pub(crate) fn absent(name: &str) -> EdgeError {
    EdgeError::Kernel { what: name.to_owned(), error: "it is not in the object".to_owned() }
}

/// Gives programs to the kernel.
pub(crate) fn load_all(ebpf: &mut Ebpf, names: &[&str]) -> Result<(), EdgeError> {
    for name in names {
        let program = xdp(ebpf, name)?;
        // A signal disturbs the verifier: EAGAIN.
        let mut tries = 0;
        loop {
            match program.load() {
                Err(aya::programs::ProgramError::LoadError { io_error, .. })
                    if io_error.kind() == std::io::ErrorKind::WouldBlock && tries < 10 =>
                {
                    tries += 1;
                }
                done => break done.map_err(EdgeError::kernel(name))?,
            }
        }
    }
    Ok(())
}

/// An array taken out of a loaded object.
pub(crate) fn array<T: Pod>(
    ebpf: &mut Ebpf,
    name: &'static str,
) -> Result<Array<MapData, T>, EdgeError> {
    let map = ebpf.take_map(name).ok_or_else(|| absent(name))?;
    map.try_into().map_err(EdgeError::kernel(name))
}

/// One with a value for each CPU.
pub(crate) fn per_cpu<T: Pod>(
    ebpf: &mut Ebpf,
    name: &'static str,
) -> Result<PerCpuArray<MapData, T>, EdgeError> {
    let map = ebpf.take_map(name).ok_or_else(|| absent(name))?;
    map.try_into().map_err(EdgeError::kernel(name))
}

/// The sum over CPUs of an entry of counters.
pub(crate) fn sum<const N: usize>(
    map: &PerCpuArray<MapData, [u64; N]>,
    at: u32,
    name: &'static str,
) -> Result<[u64; N], EdgeError> {
    let values = map.get(&at, 0).map_err(EdgeError::kernel(name))?;
    let mut sums = [0; N];
    for value in values.iter() {
        for (sum, one) in sums.iter_mut().zip(value) {
            *sum += one;
        }
    }
    Ok(sums)
}

/// The interfaces of this namespace, by name.
pub(crate) fn links() -> Result<BTreeMap<String, Link>, EdgeError> {
    let links = network::links().map_err(EdgeError::system("list interfaces"))?;
    Ok(links.into_iter().map(|link| (link.name.clone(), link)).collect())
}

/// Puts a program onto an interface: into the pinned link where there is one, so that no packet misses it.
pub(crate) fn attach(
    program: &mut Xdp,
    link: &Link,
    mode: AttachMode,
    pins: &Path,
) -> Result<(), EdgeError> {
    let path = link_pin(pins, &link.name);
    let failed = |error: String| EdgeError::Interface { name: link.name.clone(), error };
    if let Some(held) = link.xdp.filter(|held| *held != mode && path.exists()) {
        // The kernel takes one mode at a time: for a moment packets are its own.
        let _ = fs::remove_file(&path);
        return attach_when_free(program, link, mode, &path).or_else(|error| {
            attach_when_free(program, link, held, &path).map_err(failed)?;
            Err(failed(format!("stays in the mode that it was in: {error}")))
        });
    }
    if let Ok(pinned) = PinnedLink::from_pin(&path)
        && let Ok(held) = XdpLink::try_from(FdLink::from(pinned))
        && let Ok(id) = program.attach_to_link(held)
    {
        drop(program.take_link(id));
        return Ok(());
    }
    let _ = fs::remove_file(&path);
    attach_anew(program, link, mode, &path).map_err(failed)
}

/// The kernel lets go of a link some time after its last pin is gone.
fn attach_when_free(
    program: &mut Xdp,
    link: &Link,
    mode: AttachMode,
    path: &Path,
) -> Result<(), String> {
    let began = Instant::now();
    loop {
        match attach_anew(program, link, mode, path) {
            Err(error) if is_held(&error) && began.elapsed() < LETS_GO => {
                thread::sleep(Duration::from_millis(1));
            }
            done => return done,
        }
    }
}

fn attach_anew(
    program: &mut Xdp,
    link: &Link,
    mode: AttachMode,
    path: &Path,
) -> Result<(), String> {
    let id = program
        .attach_to_if_index(link.index, flags(mode))
        .map_err(|error| why_not_attached(&error, mode))?;
    let taken = program.take_link(id).map_err(|error| error.to_string())?;
    let link = FdLink::try_from(taken)
        .map_err(|_| "expected a kernel with BPF links for XDP (5.9 or later)".to_owned())?;
    link.pin(path).map_err(|error| error.to_string())?;
    Ok(())
}

fn is_held(error: &str) -> bool {
    error.contains("os error 16") || error.contains("os error 17")
}

/// Puts a program of an object onto an interface, until the object is dropped.
pub(crate) fn attach_while_it_runs(
    ebpf: &mut Ebpf,
    name: &str,
    link: &Link,
    mode: AttachMode,
) -> Result<(), EdgeError> {
    let attached = xdp(ebpf, name)?.attach_to_if_index(link.index, flags(mode));
    attached.map(drop).map_err(|error| EdgeError::Interface {
        name: link.name.clone(),
        error: why_not_attached(&error, mode),
    })
}

fn flags(mode: AttachMode) -> XdpMode {
    match mode {
        AttachMode::Native => XdpMode::Driver,
        AttachMode::Generic => XdpMode::Skb,
    }
}

fn why_not_attached(error: &aya::programs::ProgramError, mode: AttachMode) -> String {
    let text = EdgeError::kernel("XDP")(ErrorText(error)).to_string();
    if is_held(&text) {
        return format!(
            "another XDP program is attached (`ip link show` names it); expected none: {text}"
        );
    }
    if mode == AttachMode::Native && (text.contains("os error 95") || text.contains("os error 34"))
    {
        return format!(
            "the driver takes no native XDP, or not with this MTU: try mode: generic: {text}"
        );
    }
    text
}

#[derive(Debug)]
struct ErrorText<'a>(&'a aya::programs::ProgramError);

impl std::fmt::Display for ErrorText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ErrorText<'_> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// Runs a program on a packet (`BPF_PROG_TEST_RUN`), as if it came in by an interface.
pub(crate) fn run(
    program: &Xdp,
    what: &'static str,
    packet: &[u8],
    ifindex: Option<u32>,
) -> Result<Ran, EdgeError> {
    let mut out = vec![0; packet.len() + 256];
    // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
    let mut context = [0u8; 24];
    context[4..8].copy_from_slice(&(packet.len() as u32).to_le_bytes());
    context[12..16].copy_from_slice(&ifindex.unwrap_or(1).to_le_bytes());
    let mut options = TestRunOptions::new();
    options.data_in = Some(packet);
    options.data_out = Some(&mut out);
    options.ctx_in = ifindex.is_some().then_some(&context[..]);
    let result = program.test_run(options).map_err(EdgeError::kernel(what))?;
    out.truncate(result.data_size_out as usize);
    Ok(Ran { verdict: result.return_value, packet: out })
}
