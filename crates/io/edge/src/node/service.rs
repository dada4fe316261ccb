//! A service on a node: its programs, its cpumap, its namespace. The Rust side of bpf/service.bpf.c.

use std::path::Path;
use std::time::Duration;

use aya::maps::{Array, CpuMap, DevMap, MapData, PerCpuArray, ProgramArray};
use aya::programs::links::LinkOrder;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{ProgramFd, SchedClassifier, TcAttachType};
use aya::util::nr_cpus;
use aya::{Ebpf, EbpfLoader};
use plimsoll_l4::AttachMode;
use plimsoll_l4::network::{self, Link};

use super::SHARED;
use super::busy::Thread;
use super::calibrate::{self, Calibrated};
use super::namespace::ServiceNamespace;
use crate::config::{EdgeConfig, Function, Node};
use crate::control::PlaceReport;
use crate::error::EdgeError;
use crate::kernel::{self, array, attach_while_it_runs};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/service.bpf.o"));

const PROGRAMS: [&str; 16] = [
    "receive",
    "enter",
    "enter_reply",
    "stage",
    "counter",
    "counter_behind",
    "work",
    "work_behind",
    "rewrite",
    "rewrite_behind",
    "finish",
    "finish_behind",
    "leave",
    "leave_reply",
    "calibrate",
    "measure_work",
];
/// `MAX_CHAIN`: the place of the end.
const END: u32 = 8;
/// Packets that wait for a core: 2 ms of them at a microsecond each.
const QUEUE: u32 = 2048;
/// `struct function_settings`.
const SETTINGS_BYTES: usize = 64;

/// A service that runs.
pub(super) struct Service {
    number: usize,
    ebpf: Ebpf,
    threads: Vec<(u32, Thread)>,
    calibrated: Vec<Calibrated>,
    _cpus: CpuMap<MapData>,
    _chains: Vec<ProgramArray<MapData>>,
    legs: DevMap<MapData>,
    namespace: Option<ServiceNamespace>,
}

impl Service {
    pub(super) fn start(
        config: &EdgeConfig,
        node: &Node,
        number: usize,
        dir: &Path,
        uplink: &Link,
    ) -> Result<Service, EdgeError> {
        let spec = &config.services[number];
        let (before, behind) = spec.functions();
        let mut ebpf = load(dir, number, spec.nftables().is_some(), before.len(), behind.len())?;
        let cost_ns = calibrate::iteration_ns(&mut ebpf)?;
        let mut settings: Array<_, [u8; SETTINGS_BYTES]> = array(&mut ebpf, "functions")?;
        for (place, function) in before.iter().chain(&behind).enumerate() {
            settings
                .set(place as u32, function_bytes(function, cost_ns), 0)
                .map_err(EdgeError::kernel("functions"))?;
        }
        let chains = vec![
            fill_chain(&mut ebpf, "chain", "", &before, 0)?,
            fill_chain(&mut ebpf, "chain_behind", "_behind", &behind, before.len() as u32)?,
        ];
        let mut cpus: CpuMap<MapData> = ebpf
            .take_map("cpus")
            .ok_or_else(|| kernel::absent("cpus"))?
            .try_into()
            .map_err(EdgeError::kernel("cpus"))?;
        let map = aya::maps::MapInfo::from_pin(dir.join("maps").join(cpus_pin(number)))
            .map_err(EdgeError::kernel("cpus"))?
            .id();
        let stage = fd(&mut ebpf, "stage")?;
        let mut threads = Vec::new();
        for cpu in &node.cpus {
            cpus.set(*cpu, QUEUE, Some(&stage), 0).map_err(|error| {
                EdgeError::Config(format!("node {}: no CPU {cpu}: {error}", node.name))
            })?;
            threads.push((*cpu, Thread::find(*cpu, map)?));
        }
        let legs: DevMap<MapData> = ebpf
            .take_map("legs")
            .ok_or_else(|| kernel::absent("legs"))?
            .try_into()
            .map_err(EdgeError::kernel("legs"))?;
        let mut service = Service {
            number,
            ebpf,
            threads,
            calibrated: Vec::new(),
            _cpus: cpus,
            _chains: chains,
            legs,
            namespace: None,
        };
        if let Some(rules) = spec.nftables() {
            let external = node.external.get(&number).map_or(&[][..], Vec::as_slice);
            let of = (node.name.as_str(), config.flows.idle);
            let made = ServiceNamespace::create(uplink, rules, external, of)?;
            service.connect(&made, node.mode)?;
            service.namespace = Some(made);
        }
        Ok(service)
    }

    /// Puts the programs onto both ends of both cables.
    fn connect(&mut self, namespace: &ServiceNamespace, mode: AttachMode) -> Result<(), EdgeError> {
        let links = kernel::links()?;
        let ebpf = &mut self.ebpf;
        for (leg, (end, name)) in namespace.outside.iter().zip(["leave_reply", "leave"]).enumerate()
        {
            let link = links.get(end).ok_or_else(|| EdgeError::Interface {
                name: end.clone(),
                error: "it was just made, and is gone".to_owned(),
            })?;
            attach_while_it_runs(ebpf, name, link, mode)?;
            self.legs.set(leg as u32, link.index, None, 0).map_err(EdgeError::kernel("legs"))?;
        }
        let mut macs: Array<_, u64> = array(ebpf, "leg_macs")?;
        for name in ["mark", "tell"] {
            let program = classifier(ebpf, name)?;
            program.load().map_err(EdgeError::kernel(name))?;
        }
        namespace.inside(|| -> Result<(), EdgeError> {
            let links = network::links().map_err(EdgeError::system("list interfaces"))?;
            for (leg, (inside, name)) in
                [("lan", "enter"), ("wan", "enter_reply")].iter().enumerate()
            {
                let found = links.iter().find(|link| link.name == *inside);
                let link = found.ok_or_else(|| EdgeError::Interface {
                    name: (*inside).to_owned(),
                    error: "it was just made, and is gone".to_owned(),
                })?;
                let mut mac = [0; 8];
                mac[..6].copy_from_slice(&link.mac);
                macs.set(leg as u32, u64::from_ne_bytes(mac), 0)
                    .map_err(EdgeError::kernel("leg_macs"))?;
                attach_while_it_runs(ebpf, name, link, mode)?;
                for (program, hook) in
                    [("mark", TcAttachType::Ingress), ("tell", TcAttachType::Egress)]
                {
                    let order = TcAttachOptions::TcxOrder(LinkOrder::default());
                    classifier(ebpf, program)?
                        .attach_with_options(inside, hook, order)
                        .map_err(EdgeError::kernel("tcx (Linux 6.6 or later)"))?;
                }
            }
            Ok(())
        })?
    }

    /// The program that takes its packets.
    pub(super) fn receive(&self) -> Result<&ProgramFd, EdgeError> {
        let program: &aya::programs::Xdp = self
            .ebpf
            .program("receive")
            .ok_or_else(|| kernel::absent("receive"))?
            .try_into()
            .map_err(EdgeError::kernel("receive"))?;
        program.fd().map_err(EdgeError::kernel("receive"))
    }

    /// Measures what a packet costs on each of its cores, by a burst through the whole service.
    pub(super) fn calibrate(
        &mut self,
        uplink: u32,
        counts: &PerCpuArray<MapData, [u64; 4]>,
    ) -> Result<(), EdgeError> {
        for (cpu, thread) in &self.threads {
            let number = self.number as u32;
            let measured = calibrate::burst(&mut self.ebpf, uplink, *cpu, thread, || {
                packets(counts, number, *cpu)
            })?;
            tracing::info!(service = number, cpu, cost_us = measured.cost_ns / 1e3, "calibrated");
            self.calibrated.push(measured);
        }
        Ok(())
    }

    /// What it has done on each of its cores.
    pub(super) fn report(
        &mut self,
        counts: &PerCpuArray<MapData, [u64; 4]>,
    ) -> Result<Vec<PlaceReport>, EdgeError> {
        let mut reports = Vec::with_capacity(self.threads.len());
        for (index, (cpu, thread)) in self.threads.iter().enumerate() {
            // The time first: packets that come between belong to the next window, as does theirs, nearly.
            let busy_ns = thread.busy_ns()?;
            reports.push(PlaceReport {
                cpu: *cpu,
                service: self.number,
                busy_ns,
                packets: packets(counts, self.number as u32, *cpu)?,
                calibrated_ns: self.calibrated.get(index).map_or(0.0, |one| one.cost_ns),
            });
        }
        Ok(reports)
    }

    pub(super) fn namespace(&self) -> Option<String> {
        self.namespace.as_ref().map(|one| one.name.clone())
    }
}

/// Packets handed to a service's functions on a CPU.
fn packets(
    counts: &PerCpuArray<MapData, [u64; 4]>,
    service: u32,
    cpu: u32,
) -> Result<u64, EdgeError> {
    let values = counts.get(&service, 0).map_err(EdgeError::kernel("service_counts"))?;
    Ok(values.get(cpu as usize).map_or(0, |of| of[0]))
}

fn cpus_pin(number: usize) -> String {
    format!("cpus-{number}")
}

fn load(
    dir: &Path,
    number: usize,
    has_namespace: bool,
    before: usize,
    behind: usize,
) -> Result<Ebpf, EdgeError> {
    let cpus = nr_cpus().map_err(|(_, error)| EdgeError::system("count CPUs")(error))?;
    let (number_word, has_namespace) = (number as u32, u32::from(has_namespace));
    let (before, behind) = (before as u32, behind as u32);
    let mut loader = EbpfLoader::new();
    for map in SHARED {
        loader.map_pin_path(map, dir.join("maps").join(map));
    }
    loader
        // For its number.
        .map_pin_path("cpus", dir.join("maps").join(cpus_pin(number)))
        .map_max_entries("cpus", cpus as u32)
        .override_global("service", &number_word, true)
        .override_global("has_namespace", &has_namespace, true)
        .override_global("functions_before", &before, true)
        .override_global("functions_after", &behind, true);
    let mut ebpf = loader.load(OBJECT).map_err(EdgeError::kernel("a service"))?;
    kernel::load_all(&mut ebpf, &PROGRAMS)?;
    Ok(ebpf)
}

fn fd(ebpf: &mut Ebpf, name: &str) -> Result<ProgramFd, EdgeError> {
    let program = kernel::program(ebpf, name)?;
    program
        .fd()
        .map_err(EdgeError::kernel(name))?
        .try_clone()
        .map_err(EdgeError::system("copy a descriptor"))
}

/// Functions by their place, and the end.
fn fill_chain(
    ebpf: &mut Ebpf,
    map: &'static str,
    suffix: &str,
    functions: &[Function],
    first: u32,
) -> Result<ProgramArray<MapData>, EdgeError> {
    let mut chain: ProgramArray<MapData> = ebpf
        .take_map(map)
        .ok_or_else(|| kernel::absent(map))?
        .try_into()
        .map_err(EdgeError::kernel(map))?;
    let names = functions.iter().map(|function| match function {
        Function::Counter => "counter",
        Function::Work(_) => "work",
        Function::Rewrite { .. } => "rewrite",
    });
    let places = names.enumerate().map(|(place, name)| (first + place as u32, name));
    for (place, name) in places.chain([(END, "finish")]) {
        let program = fd(ebpf, &format!("{name}{suffix}"))?;
        chain.set(place, &program, 0).map_err(EdgeError::kernel(map))?;
    }
    Ok(chain)
}

fn function_bytes(function: &Function, iteration_ns: f64) -> [u8; SETTINGS_BYTES] {
    let mut bytes = [0; SETTINGS_BYTES];
    match function {
        Function::Counter => {}
        Function::Work(span) => {
            bytes[0] = 1;
            let iterations = (work_ns(*span) / iteration_ns).round() as u32;
            bytes[4..8].copy_from_slice(&iterations.to_ne_bytes());
        }
        Function::Rewrite { from, to } => {
            bytes[0] = 2;
            let ((from, mask), (to, _)) = (from.words(), to.words());
            bytes[8..24].copy_from_slice(&from);
            bytes[24..40].copy_from_slice(&mask);
            bytes[40..56].copy_from_slice(&to);
        }
    }
    bytes
}

fn work_ns(span: Duration) -> f64 {
    span.as_secs_f64() * 1e9
}

fn classifier<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut SchedClassifier, EdgeError> {
    let program = ebpf.program_mut(name).ok_or_else(|| kernel::absent(name))?;
    program.try_into().map_err(EdgeError::kernel(name))
}
