//! Nodes as the forwarder sees them: asked ten times a second, believed by what they answer, down when they have not
//! answered for a while.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use plimsoll_feedback::{CpuModel, LEAST_COST, MOST_COST, Place, Report};
use plimsoll_l4::Mac;
use plimsoll_l4::network::{self, Link, Neighbour};
use plimsoll_model::Nanos;
use tracing::{debug, warn};

use super::places::Places;
use super::status::NodeStatus;
use crate::config::EdgeConfig;
use crate::control::{Answer, Ask, Key, MOST_BYTES, PlaceReport, agreement};

/// A node that has not answered for so long, and so many questions, is down: noticed within a second. The questions
/// count because a forwarder that was itself held up has asked no node.
const SILENT: Duration = Duration::from_millis(700);
const UNANSWERED: u32 = 7;
/// Reports of shorter windows say little.
const LEAST_WINDOW: Duration = Duration::from_millis(80);
/// What a node said is shown for so long.
const STALE: Duration = Duration::from_secs(2);

/// The way to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextHop {
    pub(super) mac: Mac,
    pub(super) source_mac: Mac,
    pub(super) port: u32,
    pub(super) ifindex: u32,
    pub(super) mtu: u32,
}

/// Where a node is on the network; why it is nowhere.
pub(super) fn place_of(
    address: Ipv4Addr,
    ports: &[(u32, &Link)],
    neighbours: &[Neighbour],
) -> Result<NextHop, String> {
    let links: Vec<&Link> = ports.iter().map(|(_, link)| *link).collect();
    let route = network::route(address.into(), &links)
        .map_err(|error| error.to_string())?
        .ok_or_else(|| format!("no route to {address}"))?;
    let (port, link) =
        ports.iter().find(|(_, link)| link.index == route.ifindex).ok_or_else(|| {
            format!("{address} is reached by an interface that edge.interfaces does not name")
        })?;
    let next = route.gateway.unwrap_or(IpAddr::V4(address));
    let known = neighbours.iter().find(|one| one.address == next && one.ifindex == link.index);
    if known.is_none_or(|one| one.stale) {
        // Refused without CAP_NET_ADMIN, and then there is no program either.
        let _ = network::use_neighbour(next, link.index);
    }
    let known =
        known.ok_or_else(|| format!("{next} has no MAC address in the neighbour table yet"))?;
    Ok(NextHop {
        mac: known.mac,
        source_mac: link.mac,
        port: *port,
        ifindex: link.index,
        mtu: link.mtu,
    })
}

#[derive(Debug)]
struct State {
    address: SocketAddr,
    /// What it must agree to.
    agreement: String,
    /// What it drew when it started.
    boot: Option<u64>,
    /// The last question, and how many were not answered since the last answer.
    sequence: u64,
    unanswered: u32,
    heard: Option<Instant>,
    alive: bool,
    /// Whether `alive` changed since it was asked for.
    changed: bool,
    drained: bool,
    disagrees: bool,
    problem: Option<String>,
    /// The last answer, when it came, and what had been sent by then.
    last: Option<(Answer, Vec<u64>)>,
    reasons: BTreeMap<String, u64>,
}

pub(super) struct Nodes {
    key: Key,
    forwarder: u64,
    /// Its own, towards nodes.
    address: Ipv4Addr,
    socket: UdpSocket,
    states: Vec<State>,
    refused: BTreeMap<String, u64>,
    services: usize,
    buffer: Vec<u8>,
}

impl Nodes {
    pub(super) fn new(
        config: &EdgeConfig,
        key: Key,
        (forwarder, address): (u64, Ipv4Addr),
        socket: UdpSocket,
        was_live: &[bool],
    ) -> Nodes {
        let state = |(index, live): (usize, &bool)| State {
            address: SocketAddr::new(config.nodes[index].address.into(), config.control_port),
            agreement: agreement(config, index),
            boot: None,
            sequence: 0,
            unanswered: 0,
            // Whoever was here before sent packets there: given as long as anybody else to answer.
            heard: live.then(Instant::now),
            alive: *live,
            changed: false,
            drained: false,
            disagrees: false,
            problem: None,
            last: None,
            reasons: BTreeMap::new(),
        };
        Nodes {
            key,
            forwarder,
            address,
            socket,
            states: (0..config.nodes.len()).zip(was_live).map(state).collect(),
            refused: BTreeMap::new(),
            services: config.services.len(),
            buffer: vec![0; MOST_BYTES],
        }
    }

    /// Asks all of them.
    pub(super) fn ask(&mut self, now: Instant) {
        for state in &mut self.states {
            state.sequence += 1;
            state.unanswered = state.unanswered.saturating_add(1);
            let ask = Ask {
                forwarder: self.forwarder,
                address: self.address,
                sequence: state.sequence,
                node: state.boot,
                agreement: state.agreement.clone(),
            };
            // One that is not there does not answer: that is noticed.
            let _ = self.socket.send_to(&self.key.seal(&ask), state.address);
            let silent = state.heard.is_none_or(|heard| now.duration_since(heard) >= SILENT);
            if silent && state.unanswered > UNANSWERED {
                state.disagrees = false;
                state.last = None;
                state.changed |= state.alive;
                state.alive = false;
            }
        }
    }

    /// Takes what has come in, and learns from it.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        at: Nanos,
        places: &mut Places,
        model: &mut CpuModel,
    ) {
        // As many as there are nodes, and a few more; the rest waits for the next step.
        for _ in 0..self.states.len() * 2 + 8 {
            let Ok((bytes, from)) = self.socket.recv_from(&mut self.buffer) else { break };
            let Some(answer) = self.key.open::<Answer>(&self.buffer[..bytes]) else {
                *self.refused.entry("not authentic".to_owned()).or_default() += 1;
                continue;
            };
            let node = self.states.iter().position(|state| state.address == from);
            let Some(node) = node else { continue };
            self.take(node, answer, now, at, places, model);
        }
        for (node, state) in self.states.iter().enumerate() {
            if state.heard.is_none_or(|heard| now.duration_since(heard) > STALE) {
                for (place, spec) in places.all().collect::<Vec<_>>() {
                    if spec.server == node {
                        places.note(place, None, None);
                    }
                }
            }
        }
    }

    fn take(
        &mut self,
        node: usize,
        answer: Answer,
        now: Instant,
        at: Nanos,
        places: &mut Places,
        model: &mut CpuModel,
    ) {
        let state = &mut self.states[node];
        // Only to what was asked in the last second.
        let is_ours = answer.forwarder == self.forwarder
            && answer.sequence <= state.sequence
            && answer.sequence + 10 > state.sequence;
        if !is_ours {
            *self.refused.entry("not asked for".to_owned()).or_default() += 1;
            return;
        }
        state.disagrees = answer.agreement != state.agreement;
        if !state.disagrees {
            places.set_agreed(node);
        }
        state.reasons = answer.reasons.iter().cloned().collect();
        if state.boot != Some(answer.node) {
            // It started anew: it takes packets when it has heard its own number from here.
            debug!(node, "a node's first answer");
            state.boot = Some(answer.node);
            state.last = None;
            self.calibrate(node, &answer, places, model);
            return;
        }
        state.unanswered = 0;
        state.heard = Some(now);
        if !state.disagrees && state.problem.is_none() && !state.alive {
            state.alive = true;
            state.changed = true;
        }
        self.learn(node, answer, at, places, model);
    }

    fn calibrate(&self, node: usize, answer: &Answer, places: &mut Places, model: &mut CpuModel) {
        for report in &answer.places {
            let Some(place) = places.find(node, report.cpu, report.service) else { continue };
            let seconds = report.calibrated_ns * 1e-9;
            if seconds > 0.0 {
                // Its own word: shown as it is believed.
                let seconds = seconds.clamp(LEAST_COST, MOST_COST);
                model.calibrate(place, seconds);
                places.note(place, None, Some(seconds));
            }
        }
    }

    fn learn(
        &mut self,
        node: usize,
        answer: Answer,
        at: Nanos,
        places: &mut Places,
        model: &mut CpuModel,
    ) {
        let known: Vec<_> = answer
            .places
            .iter()
            .filter_map(|report| Some((places.find(node, report.cpu, report.service)?, *report)))
            .collect();
        let sent: Vec<u64> = known.iter().map(|(place, _)| places.sent(*place)).collect();
        let Some((last, last_sent)) = &self.states[node].last else {
            self.states[node].last = Some((answer, sent));
            return;
        };
        let window = Duration::from_nanos(answer.clock_ns.saturating_sub(last.clock_ns));
        if window < LEAST_WINDOW || last.places.len() != answer.places.len() {
            if last.places.len() != answer.places.len() {
                self.states[node].last = Some((answer, sent));
            }
            return;
        }
        let seconds = window.as_secs_f64();
        let mut cores = Cores::default();
        for (index, (place, report)) in known.iter().enumerate() {
            let before = last.places.iter().find(|old| same(old, report)).copied();
            let Some(before) = before else { continue };
            let busy = report.busy_ns.saturating_sub(before.busy_ns) as f64 * 1e-9;
            let mut handled = vec![0; self.services];
            handled[place.service] = report.packets.saturating_sub(before.packets);
            let mut went = vec![0; self.services];
            went[place.service] =
                sent[index].saturating_sub(last_sent.get(index).copied().unwrap_or(0));
            places.note(*place, Some((busy / seconds).min(1.0)), None);
            cores.add(*place, handled[place.service], busy);
            if handled[place.service] == 0 {
                continue;
            }
            let report = Report {
                server: place.server,
                core: place.core,
                ended: at,
                seconds,
                busy,
                handled: &handled,
                sent: &went,
            };
            if let Err(why) = model.learn(at, &report) {
                *self.refused.entry(why.to_string()).or_default() += 1;
            }
        }
        // Nothing is learned from a core without packets, but it is known to be idle.
        let none = vec![0; self.services];
        for (core, busy) in cores.without_packets() {
            let (busy, handled, sent) = (busy.min(seconds), &none[..], &none[..]);
            let report = Report { server: node, core, ended: at, seconds, busy, handled, sent };
            if let Err(why) = model.hear(at, &report) {
                *self.refused.entry(why.to_string()).or_default() += 1;
            }
        }
        self.states[node].last = Some((answer, sent));
    }

    /// Nodes that came or went since the last call.
    pub(super) fn changes(&mut self) -> Vec<(usize, bool)> {
        let changed = self.states.iter_mut().enumerate().filter(|(_, state)| state.changed);
        changed
            .map(|(node, state)| {
                state.changed = false;
                (node, state.alive)
            })
            .collect()
    }

    pub(super) fn drain(&mut self, node: usize, drained: bool) {
        if let Some(state) = self.states.get_mut(node) {
            state.drained = drained;
        }
    }

    /// Whether new flows may go there, unless it is a standby.
    pub(super) fn may_serve(&self, node: usize) -> bool {
        let state = &self.states[node];
        state.alive && !state.drained && !state.disagrees && state.problem.is_none()
    }

    /// What the network says of it.
    pub(super) fn set_problem(&mut self, node: usize, problem: Option<String>) {
        let state = &mut self.states[node];
        if problem.is_some() && problem != state.problem {
            warn!(node, problem = problem.as_deref(), "a node cannot be reached");
        }
        state.problem = problem;
    }

    pub(super) fn refused(&self) -> &BTreeMap<String, u64> {
        &self.refused
    }

    pub(super) fn status(&self, config: &EdgeConfig, active: &[bool]) -> Vec<NodeStatus> {
        let nodes = config.nodes.iter().zip(&self.states).zip(active);
        let show = |((node, state), active): ((&crate::config::Node, &State), &bool)| NodeStatus {
            name: node.name.clone(),
            address: node.address.to_string(),
            state: match (state.disagrees, state.alive, state.drained, active) {
                (true, ..) => "differs",
                (_, false, ..) => "down",
                (_, true, true, _) => "draining",
                (_, true, false, false) => "standby",
                (_, true, false, true) => "serving",
            }
            .to_owned(),
            problem: why_not(state),
            reasons: state.reasons.clone(),
        };
        nodes.map(show).collect()
    }
}

/// What keeps a node from getting new flows, where nobody has drained it.
fn why_not(state: &State) -> Option<String> {
    if state.disagrees {
        let differs = "its configuration of vni, services or itself differs from the forwarder's, or its place in the list of nodes";
        return Some(differs.to_owned());
    }
    let silent = || {
        format!(
            "no answer from {}: it does not run, is not reached, or has another key",
            state.address
        )
    };
    state.problem.clone().or_else(|| (!state.alive).then(silent))
}

/// What a node's cores did in a window, all services together: packets, and busy seconds.
#[derive(Debug, Default)]
struct Cores(BTreeMap<usize, (u64, f64)>);

impl Cores {
    fn add(&mut self, place: Place, packets: u64, busy: f64) {
        let (of_core, seconds) = self.0.entry(place.core).or_default();
        *of_core += packets;
        *seconds += busy;
    }

    fn without_packets(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.0
            .iter()
            .filter(|(_, (packets, _))| *packets == 0)
            .map(|(core, (_, busy))| (*core, *busy))
    }
}

fn same(one: &PlaceReport, other: &PlaceReport) -> bool {
    (one.cpu, one.service) == (other.cpu, other.service)
}

#[cfg(test)]
mod tests {
    use plimsoll_feedback::Shape;

    use super::*;

    #[test]
    fn a_core_without_packets_is_heard_once_whatever_its_services() {
        let mut cores = Cores::default();
        for (core, service, packets, busy) in
            [(0, 0, 0, 0.25), (0, 1, 0, 0.25), (1, 0, 0, 0.1), (1, 1, 7, 0.2)]
        {
            cores.add(Place { server: 0, core, service }, packets, busy);
        }
        assert_eq!(cores.without_packets().collect::<Vec<_>>(), [(0, 0.5)]);
        let mut model = CpuModel::new(Shape { servers: 1, cores: 2, services: 2 });
        let now = Nanos(1_000_000_000);
        let none = [0, 0];
        for (core, busy) in cores.without_packets() {
            let report = Report {
                server: 0,
                core,
                ended: now,
                seconds: 1.0,
                busy,
                handled: &none,
                sent: &none,
            };
            model.hear(now, &report).expect("heard");
        }
        let second = Duration::from_secs(1);
        assert_eq!(model.reported(0, 0, now, second), Some(0.5));
        assert_eq!(model.reported(0, 1, now, second), None, "its packets are learned from");
    }
}
