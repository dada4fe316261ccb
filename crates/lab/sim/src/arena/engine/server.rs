//! One backend: cores, a first-in-first-out queue, and the load that it reports.

use std::collections::VecDeque;

use plimsoll_policy::ServerLoad;

/// Numbers in flight with a latency of their own; greater ones count as the greatest.
const LEVELS: usize = 128;
/// Weight of the newest latency in the mean of its level.
const NEWEST: f32 = 0.125;
/// The reported CPU utilisation is a mean over about this time, nanoseconds.
const CPU_MEMORY_NS: f64 = 1e9;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum State {
    Serving,
    Failing { after_ns: u64 },
}

pub(super) struct Server {
    pub(super) cores: u32,
    pub(super) ns_per_work: f64,
    pub(super) state: State,
    pub(super) busy: u32,
    /// May hold requests whose client has gone; `in_flight` does not.
    pub(super) waiting: VecDeque<u32>,
    /// Requests it has.
    pub(super) in_flight: u32,
    pub(super) busy_ns: u64,
    since: u64,
    /// Recent mean utilisation of the cores.
    cpu: f64,
    /// Recent mean latency by the number in flight that a request met, microseconds; 0 where unknown.
    found_us: Vec<f32>,
}

impl Server {
    pub(super) fn new(model: &crate::BackendModel, service_us: f64) -> Self {
        Server {
            cores: model.cores,
            ns_per_work: service_us * 1e3 / model.speed,
            state: State::Serving,
            busy: 0,
            waiting: VecDeque::new(),
            in_flight: 0,
            busy_ns: 0,
            since: 0,
            cpu: 0.0,
            found_us: vec![0.0; LEVELS],
        }
    }

    /// Adds up the busy time so far, before the number of busy cores changes.
    pub(super) fn settle(&mut self, now: u64) {
        let span = now - self.since;
        self.busy_ns += u64::from(self.busy) * span;
        let busy = f64::from(self.busy) / f64::from(self.cores);
        self.cpu += (busy - self.cpu) * span as f64 / (span as f64 + CPU_MEMORY_NS);
        self.since = now;
    }

    /// Records the time of a request that met this many in flight (Prequal, section 4: latency by requests in flight).
    pub(super) fn note(&mut self, found: u32, took_ns: u64) {
        let mean = &mut self.found_us[(found as usize).min(LEVELS - 1)];
        let us = took_ns as f32 / 1e3;
        *mean += (us - *mean) * if *mean == 0.0 { 1.0 } else { NEWEST };
    }

    /// The load that it reports, without `without` requests.
    pub(super) fn load(&self, without: u32) -> ServerLoad {
        let in_flight = self.in_flight - without.min(self.in_flight);
        let at = (in_flight as usize).min(LEVELS - 1);
        let known = |us: &&f32| **us > 0.0;
        let below = self.found_us[..=at].iter().rev().find(known);
        let above = || self.found_us[at..].iter().find(known);
        ServerLoad {
            in_flight,
            latency_us: below.or_else(above).copied().unwrap_or(0.0),
            cpu: Some(self.cpu as f32),
            cores: None,
        }
    }
}
