//! Places (service on a core of a node): their numbers in the kernel's tables, and what is counted of them.

use std::net::Ipv4Addr;

use plimsoll_feedback::{CpuModel, Place, Shape, Steering};

use super::kernel::{Count, Kernel, Target};
use super::nodes::NextHop;
use super::status::PlaceStatus;
use crate::config::{EdgeConfig, Service};
use crate::error::EdgeError;
use crate::wire::{CABLE_MTU, GROWS, Wrap};

/// A place that is configured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) server: usize,
    pub(super) cpu: u32,
    pub(super) service: usize,
    number: u32,
    /// The longest that a packet may be when it has grown.
    most_bytes: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    last: Count,
    /// Predicted busy seconds since they were shown.
    predicted: f64,
    /// Packets of the last interval.
    packets: u64,
    /// What its node last said.
    reported: Option<f64>,
    calibrated: Option<f64>,
}

/// What a service's namespace takes at the most, as the programs compare it: with what packets grow by.
fn most_bytes(service: &Service) -> u32 {
    if service.nftables().is_some() { CABLE_MTU + GROWS[0] } else { u32::MAX }
}

/// A node's address and the way there; the forwarder's own address, and the VNI.
type Way = (Ipv4Addr, NextHop, (Ipv4Addr, u32));

pub(super) struct Places {
    shape: Shape,
    specs: Vec<(Place, Spec)>,
    states: Vec<State>,
    /// By place ([`Shape::place`]): packets of the last interval, of old flows, of those that age, and of young ones.
    pub(super) old: Vec<u64>,
    pub(super) aging: Vec<u64>,
    pub(super) new: Vec<u64>,
    /// By core and service: the number.
    numbers: Vec<u32>,
    live: Vec<bool>,
    /// By node: whether it has agreed to these numbers since the start.
    agreed: Vec<bool>,
    /// Nodes that have just agreed.
    fresh: Vec<usize>,
    hops: Vec<Option<Way>>,
    empty: Vec<bool>,
}

impl Places {
    pub(super) fn of(
        config: &EdgeConfig,
        shape: Shape,
        kernel: &mut Kernel,
    ) -> Result<Places, EdgeError> {
        let mut specs = Vec::new();
        for (server, node) in config.nodes.iter().enumerate() {
            for (core, cpu) in node.cpus.iter().enumerate() {
                for service in &node.services {
                    let place = Place { server, core, service: *service };
                    let most_bytes = most_bytes(&config.services[*service]);
                    let spec = Spec { server, cpu: *cpu, service: *service, number: 0, most_bytes };
                    specs.push((place, spec));
                }
            }
        }
        let name = |(_, spec): &(Place, Spec)| {
            let (node, service) =
                (&config.nodes[spec.server].name, &config.services[spec.service].name);
            format!("{node}/{}/{service}", spec.cpu)
        };
        let names: Vec<String> = specs.iter().map(name).collect();
        let given = kernel.number(&names)?;
        let addresses: Vec<Ipv4Addr> = config.nodes.iter().map(|node| node.address).collect();
        kernel.forget_servers(&addresses)?;
        let mut numbers = vec![0; shape.places()];
        let mut states = Vec::with_capacity(specs.len());
        for ((place, spec), number) in specs.iter_mut().zip(given) {
            spec.number = number;
            numbers[shape.place(*place)] = number;
            states.push(State { last: kernel.count(number)?, ..State::default() });
        }
        Ok(Places {
            shape,
            specs,
            states,
            old: vec![0; shape.places()],
            aging: vec![0; shape.places()],
            new: vec![0; shape.places()],
            numbers,
            live: vec![false; config.nodes.len()],
            agreed: vec![false; config.nodes.len()],
            fresh: Vec::new(),
            hops: vec![None; config.nodes.len()],
            empty: vec![false; config.services.len()],
        })
    }

    /// All of them, each with its index in the model.
    pub(super) fn all(&self) -> impl Iterator<Item = (Place, Spec)> + '_ {
        self.specs.iter().copied()
    }

    /// The number of a service's place on a core of all ([`Shape::core`]).
    pub(super) fn number_at(&self, core: usize, service: usize) -> u16 {
        self.numbers[core * self.shape.services + service] as u16
    }

    /// Nodes that were sent packets when whoever was here before ended.
    pub(super) fn live_nodes(&self, kernel: &Kernel) -> Result<Vec<bool>, EdgeError> {
        let mut live = vec![false; self.live.len()];
        for (_, spec) in &self.specs {
            live[spec.server] |= kernel.is_live(spec.number)?;
        }
        Ok(live)
    }

    /// Whether the kernel holds no slots for a service.
    pub(super) fn is_empty(&self, service: usize) -> bool {
        self.empty[service]
    }

    pub(super) fn set_empty(&mut self, service: usize, empty: bool) {
        self.empty[service] = empty;
    }

    /// Reads what was counted since the last time.
    pub(super) fn read(&mut self, kernel: &Kernel) -> Result<(), EdgeError> {
        for ((place, spec), state) in self.specs.iter().zip(&mut self.states) {
            let count = kernel.count(spec.number)?;
            let packets = count.packets.saturating_sub(state.last.packets);
            let old = count.old.saturating_sub(state.last.old).min(packets);
            let aging = count.aging.saturating_sub(state.last.aging).min(packets - old);
            let index = self.shape.place(*place);
            (self.old[index], self.aging[index]) = (old, aging);
            self.new[index] = packets - old - aging;
            state.packets = packets;
            state.last = count;
        }
        Ok(())
    }

    /// Adds what the interval's packets are predicted to have taken.
    pub(super) fn add_predicted(&mut self, model: &CpuModel) {
        for ((place, _), state) in self.specs.iter().zip(&mut self.states) {
            state.predicted += state.packets as f64 * model.cost(*place);
        }
    }

    /// Packets sent to a place, ever.
    pub(super) fn sent(&self, place: Place) -> u64 {
        let found = self.specs.iter().position(|(other, _)| *other == place);
        found.map_or(0, |at| self.states[at].last.packets)
    }

    /// The place of a service on a CPU of a node.
    pub(super) fn find(&self, server: usize, cpu: u32, service: usize) -> Option<Place> {
        let is = |spec: &Spec| spec.server == server && spec.cpu == cpu && spec.service == service;
        self.specs.iter().find(|(_, spec)| is(spec)).map(|(place, _)| *place)
    }

    /// Notes what a node said of a place.
    pub(super) fn note(&mut self, place: Place, reported: Option<f64>, calibrated_s: Option<f64>) {
        if let Some(at) = self.specs.iter().position(|(other, _)| *other == place) {
            self.states[at].reported = reported;
            if calibrated_s.is_some() {
                self.states[at].calibrated = calibrated_s;
            }
        }
    }

    /// Flows that are at a node.
    pub(super) fn flows_of(&self, node: usize, kernel: &Kernel) -> Result<u64, EdgeError> {
        let mut flows = 0;
        for ((_, spec), state) in self.specs.iter().zip(&self.states) {
            if spec.server == node {
                flows += state.last.opened.saturating_sub(kernel.closed(spec.number)?);
            }
        }
        Ok(flows)
    }

    pub(super) fn set_live(
        &mut self,
        node: usize,
        live: bool,
        kernel: &mut Kernel,
    ) -> Result<(), EdgeError> {
        self.live[node] = live;
        self.write(node, kernel)
    }

    /// Where a node is on the network.
    pub(super) fn set_next_hop(
        &mut self,
        node: usize,
        address: Ipv4Addr,
        next: NextHop,
        wrap: (Ipv4Addr, u32),
        kernel: &mut Kernel,
    ) -> Result<(), EdgeError> {
        if self.hops[node] == Some((address, next, wrap)) {
            return Ok(());
        }
        self.hops[node] = Some((address, next, wrap));
        kernel.set_server(node as u8 + 1, Some((address, next.ifindex)))?;
        // Until it has answered, or failed to, it is as whoever was here before left it.
        for (_, spec) in self.specs.iter().filter(|(_, spec)| spec.server == node) {
            self.live[node] |= kernel.is_live(spec.number)?;
        }
        self.write(node, kernel)
    }

    /// A node knows the numbers that its packets are to carry.
    pub(super) fn set_agreed(&mut self, node: usize) {
        if !std::mem::replace(&mut self.agreed[node], true) {
            self.fresh.push(node);
        }
    }

    /// Writes in full what is known of nodes that have just agreed.
    pub(super) fn write_agreed(&mut self, kernel: &mut Kernel) -> Result<(), EdgeError> {
        for node in std::mem::take(&mut self.fresh) {
            self.write(node, kernel)?;
        }
        Ok(())
    }

    fn kill(&self, node: usize, kernel: &mut Kernel) -> Result<(), EdgeError> {
        for (_, spec) in self.specs.iter().filter(|(_, spec)| spec.server == node) {
            kernel.kill_target(spec.number)?;
        }
        Ok(())
    }

    fn write(&self, node: usize, kernel: &mut Kernel) -> Result<(), EdgeError> {
        let Some((destination, next, (source, vni))) = self.hops[node] else {
            // Whoever was here before may have left it in, and it has no MAC address any more.
            return if self.live[node] { Ok(()) } else { self.kill(node, kernel) };
        };
        for (_, spec) in self.specs.iter().filter(|(_, spec)| spec.server == node) {
            let wrap = Wrap {
                to_mac: next.mac,
                from_mac: next.source_mac,
                source,
                destination,
                vni,
                server: node as u8 + 1,
                core: spec.cpu as u8,
                service: spec.service as u8,
            };
            // Flows that are there carry numbers of before: they go on while the node knows these and not the new ones.
            let keeps = self.live[node] && !self.agreed[node];
            if keeps && kernel.has_other_ids(spec.number, &wrap)? {
                continue;
            }
            let mtu = next.mtu.min(spec.most_bytes);
            let target = Target { wrap, port: next.port, live: self.live[node], mtu };
            kernel.set_target(spec.number, &target)?;
        }
        Ok(())
    }

    /// What is reported of all, and how many flows ended at all.
    pub(super) fn status(
        &mut self,
        config: &EdgeConfig,
        kernel: &Kernel,
        steering: &Steering,
        model: &CpuModel,
        span: f64,
    ) -> Result<(Vec<PlaceStatus>, u64), EdgeError> {
        let mut places = Vec::with_capacity(self.specs.len());
        let mut ended = 0;
        for ((place, spec), state) in self.specs.iter().zip(&mut self.states) {
            let closed = kernel.closed(spec.number)?;
            ended += closed;
            let core = self.shape.core(place.server, place.core);
            places.push(PlaceStatus {
                node: config.nodes[spec.server].name.clone(),
                cpu: spec.cpu,
                service: config.services[spec.service].name.clone(),
                packets: state.last.packets,
                old: state.last.old,
                aging: state.last.aging,
                bytes: state.last.bytes,
                replies: state.last.replies,
                predicted: state.predicted / span.max(1e-9),
                reported: state.reported,
                cost_us: model.cost(*place) * 1e6,
                calibrated_us: state.calibrated.map(|seconds| seconds * 1e6),
                weight: steering.weights(spec.service)[core],
                flows: state.last.opened.saturating_sub(closed),
                opened: state.last.opened,
            });
            state.predicted = 0.0;
        }
        Ok((places, ended))
    }
}
