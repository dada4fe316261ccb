//! Loading programs onto pinned maps, attaching them by pinned links, running them on packets.

use std::collections::BTreeMap;
use std::path::Path;

use aya::maps::{Array, MapData, PerCpuArray};
use aya::programs::Xdp;
use aya::{Ebpf, Pod};
use plimsoll_l4::network::{self, Link};
use plimsoll_l4::xdp::{self, Ran};
use plimsoll_l4::{AttachMode, link_pin};

use crate::error::EdgeError;

/// A program of an object.
pub(crate) fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, EdgeError> {
    let program = ebpf.program_mut(name).ok_or_else(|| absent(name))?;
    program.try_into().map_err(EdgeError::kernel(name))
}

pub(crate) fn absent(name: &str) -> EdgeError {
    EdgeError::Kernel { what: name.to_owned(), error: "it is not in the object".to_owned() }
}

/// Gives programs to the kernel.
pub(crate) fn load_all(ebpf: &mut Ebpf, names: &[&str]) -> Result<(), EdgeError> {
    for name in names {
        xdp::load(program(ebpf, name)?).map_err(EdgeError::kernel(name))?;
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

/// Puts a program onto an interface, by a pinned link. While its mode changes, packets are the kernel's for a moment.
pub(crate) fn attach(
    program: &mut Xdp,
    link: &Link,
    mode: AttachMode,
    pins: &Path,
) -> Result<(), EdgeError> {
    let failed = |error| EdgeError::Interface { name: link.name.clone(), error };
    let changed = xdp::attach(program, link, mode, &link_pin(pins, &link.name), || ());
    match changed.map_err(failed)?.and_then(|changed| changed.refused) {
        Some(error) => Err(failed(format!("stays in the mode that it was in: {error}"))),
        None => Ok(()),
    }
}

/// Puts a program of an object onto an interface, until the object is dropped.
pub(crate) fn attach_while_it_runs(
    ebpf: &mut Ebpf,
    name: &str,
    link: &Link,
    mode: AttachMode,
) -> Result<(), EdgeError> {
    let attached = xdp::attach_until_dropped(program(ebpf, name)?, link, mode);
    attached.map_err(|error| EdgeError::Interface { name: link.name.clone(), error })
}

/// Runs a program on a packet, as if it came in by an interface.
pub(crate) fn run(
    program: &Xdp,
    what: &'static str,
    packet: &[u8],
    ifindex: Option<u32>,
) -> Result<Ran, EdgeError> {
    xdp::run(program, packet, ifindex).map_err(EdgeError::kernel(what))
}
