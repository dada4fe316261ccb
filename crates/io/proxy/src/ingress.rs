//! An entry before an application: admits a request or refuses it at once, and says with every response whether there
//! is room for more.
//!
//! **It has one thread**, which owns its admission: what is in flight is exact, and nothing is shared. A thread passes
//! on more than one application behind it answers.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Request, Response, StatusCode};
use plimsoll_admission::{
    Admission, AdmissionOptions, AdmissionOptionsError, Arrival, Decision, Ended, Permit, Reason,
};
use plimsoll_policy::{Ending, Finish};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::answer::{is_failure, rejected_response, text_response};
use crate::body::{Body, Passage};
use crate::cidr::Cidr;
use crate::clock::Clock;
use crate::config::{self, Cpu, Limits, Timeouts};
use crate::forward::{Failed, Forward};
use crate::guard::Guard;
use crate::headers::{self, Rejected};
use crate::load::{self, LoadMeter};
use crate::request;
use crate::serve::{Client, Handler};
use crate::tally::{EntryTally, IngressTally};
use crate::upgrade;
use crate::upstream::Connections;

/// An ingress entry, on its thread.
pub(crate) struct Ingress {
    trust: Vec<Cidr>,
    announcing: Vec<Cidr>,
    upstream: SocketAddr,
    gate: Rc<Gate>,
    rng: RefCell<Xoshiro256PlusPlus>,
    connections: Rc<Connections>,
    timeouts: Timeouts,
    limits: Limits,
    clock: Clock,
    tally: Arc<EntryTally>,
    counts: Arc<IngressTally>,
}

/// What is admitted and counted, whichever configuration is in force.
struct Gate {
    options: AdmissionOptions,
    cpu: Cpu,
    load: LoadMeter,
    admission: RefCell<Admission>,
    /// Shared with those before: what they have let in is there until it ends.
    in_flight: Rc<Cell<u32>>,
}

impl Ingress {
    /// In the place of `before`: where the same is to be admitted, what was learned of it stays.
    ///
    /// # Errors
    /// When an option is out of range.
    pub(crate) fn new(
        config: &config::Ingress,
        clock: Clock,
        tally: Arc<EntryTally>,
        counts: Arc<IngressTally>,
        before: Option<&Ingress>,
    ) -> Result<Rc<Self>, AdmissionOptionsError> {
        let kept = before
            .map(|before| &before.gate)
            .filter(|gate| gate.options == config.admission && gate.cpu == config.cpu);
        let gate = match kept {
            Some(gate) => gate.clone(),
            None => Rc::new(Gate {
                options: config.admission,
                cpu: config.cpu.clone(),
                load: LoadMeter::new(config.cpu.clone()),
                admission: RefCell::new(Admission::new(&config.admission)?),
                in_flight: before.map(|before| before.gate.in_flight.clone()).unwrap_or_default(),
            }),
        };
        let config::Ingress { timeouts, limits, .. } = *config;
        let (connect, idle) = (timeouts.connect, timeouts.idle);
        let connections = Connections::new([config.upstream], limits.headers, connect, idle);
        if let Some(before) = before {
            connections.take_over(&before.connections);
        }
        Ok(Rc::new(Ingress {
            trust: config.trust.clone(),
            announcing: config.proxy_protocol.clone(),
            upstream: config.upstream,
            gate,
            rng: RefCell::new(crate::random::generator()),
            connections,
            timeouts,
            limits,
            clock,
            tally,
            counts,
        }))
    }

    /// To be called now and then.
    pub(crate) fn upkeep(&self) {
        self.connections.upkeep();
        self.note_limit();
    }

    fn note_limit(&self) {
        let limit = self.gate.admission.borrow().limit();
        self.counts.limit.set(limit.map_or(0, f64::to_bits));
    }

    fn trusts(&self, peer: SocketAddr) -> bool {
        self.trust.iter().any(|network| network.contains(peer.ip()))
    }

    /// The load, in answer to a request for it.
    fn tell_load(&self) -> Response<Body> {
        let cores = self.gate.admission.borrow().cores();
        let load = self.gate.load.read(self.gate.in_flight.get(), cores, self.clock.now());
        let mut response = text_response(StatusCode::NO_CONTENT, "");
        response.headers_mut().clear();
        if let Some(told) = load::write(&load) {
            response.headers_mut().insert(headers::LOAD, told);
        }
        response
    }

    /// What the request brings, as far as its sender is believed.
    fn arrival(&self, peer: SocketAddr, headers: &hyper::HeaderMap) -> Arrival {
        if !self.trusts(peer) {
            return Arrival::default();
        }
        let tries_left = headers::tries_left(headers).unwrap_or(0);
        Arrival { time_left: headers::deadline(headers), tries_left }
    }

    fn decide(self: &Rc<Self>, arrival: Arrival) -> Result<Admitted, Reason> {
        let (now, in_flight) = (self.clock.now(), self.gate.in_flight.get());
        match self.gate.admission.borrow_mut().decide(now, in_flight, arrival) {
            Decision::Admit(permit) => {
                self.count(in_flight + 1);
                self.counts.admitted.one_more();
                self.counts.upstream.started.one_more();
                Ok(Admitted {
                    ingress: self.clone(),
                    permit,
                    at: now,
                    found: in_flight,
                    ended: Ended::Abandoned,
                    has_no_socket: false,
                })
            }
            Decision::Reject(reason) => {
                match reason {
                    Reason::Full => &self.counts.full,
                    Reason::Queue => &self.counts.queue,
                    Reason::Deadline { .. } => &self.counts.deadline,
                }
                .one_more();
                Err(reason)
            }
        }
    }

    fn count(&self, in_flight: u32) {
        self.gate.in_flight.set(in_flight);
        self.counts.in_flight.set(u64::from(in_flight));
    }

    fn chip(&self) -> HeaderValue {
        let in_flight = self.gate.in_flight.get();
        let chip = self.gate.admission.borrow().chip(in_flight, &mut *self.rng.borrow_mut());
        let count = if chip { &self.counts.chips } else { &self.counts.responses_without_chip };
        count.one_more();
        headers::chip_value(chip)
    }

    fn refuse(&self, reason: Reason) -> Response<Body> {
        let rejected = Rejected::from(reason);
        let mut response = rejected_response(rejected);
        let headers = response.headers_mut();
        headers.insert(headers::REJECTED, HeaderValue::from_static(rejected.word()));
        if let Rejected::Deadline { is_idle } = rejected {
            headers.insert(headers::IDLE, headers::chip_value(is_idle));
            headers.insert(headers::CHIP, self.chip());
        }
        response
    }
}

impl Handler for Ingress {
    async fn handle(
        self: Rc<Self>,
        client: Client,
        mut request: Request<Incoming>,
    ) -> Response<Body> {
        if load::is_asked(&request) && self.trusts(client.address()) {
            client.open.record.forget();
            return self.tell_load();
        }
        self.tally.requests.one_more();
        let upgrade = upgrade::asked(&mut request, &client);
        let (mut head, body) = request.into_parts();
        if let Err(problem) = request::admit(&mut head) {
            self.tally.malformed.one_more();
            return problem.response();
        }
        let admitted = match self.decide(self.arrival(client.address(), &head.headers)) {
            Ok(admitted) => admitted,
            Err(reason) => return self.refuse(reason),
        };
        let kept = self.limits.body_kept_for_retries;
        client.open.record.sent(self.upstream);
        let mut forward = Forward::new(&client.open, (head, body), kept, self.timeouts);
        match forward.send(&self.connections, (0, None), || true).await {
            Ok((response, lease)) => {
                let status = response.status();
                let ended = if is_failure(status) { Ended::Failed } else { Ended::Answered };
                let guard = Guard::Admitted(admitted, ended);
                let mut passed = match upgrade {
                    Some(upgrade) if status == StatusCode::SWITCHING_PROTOCOLS => {
                        upgrade::tunnel(response, upgrade, guard, lease, &client)
                    }
                    _ => {
                        let (body, idle) = (forward.source(), self.timeouts.idle);
                        Passage::response(response, body, guard, lease, (&client, idle))
                    }
                };
                passed.headers_mut().insert(headers::CHIP, self.chip());
                passed
            }
            Err(failed) => {
                if failed == Failed::Timeout {
                    self.tally.timeouts.one_more();
                }
                if failed == Failed::NoConnection {
                    self.counts.upstream.connections_failed.one_more();
                }
                // A timeout says nothing of the application's speed but that it is worse.
                let is_silent = failed.is_clients() || failed == Failed::Timeout;
                match failed {
                    Failed::NoSocket => admitted.end_without_socket(),
                    _ if is_silent => admitted.end(Ended::Abandoned),
                    _ => admitted.end(Ended::Failed),
                }
                failed.problem().response()
            }
        }
    }

    fn expects_announcement(&self, client: &Client) -> bool {
        self.announcing.iter().any(|network| network.contains(client.peer.ip()))
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    fn tally(&self) -> &EntryTally {
        &self.tally
    }
}

/// A request that was admitted. Dropped without more, its client has given it up.
pub(crate) struct Admitted {
    ingress: Rc<Ingress>,
    permit: Permit,
    at: plimsoll_model::Nanos,
    /// How many were in flight before it.
    found: u32,
    ended: Ended,
    /// It was not sent, for no socket was left here.
    has_no_socket: bool,
}

impl Admitted {
    /// It ends so, now.
    pub(crate) fn end(mut self, ended: Ended) {
        self.ended = ended;
    }

    /// It was not sent, for no socket was left here.
    fn end_without_socket(mut self) {
        self.has_no_socket = true;
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let Admitted { ingress, permit, at, found, ended, has_no_socket } = self;
        let left = ingress.gate.in_flight.get().saturating_sub(1);
        ingress.count(left);
        let now = ingress.clock.now();
        let ending = match ended {
            Ended::Answered => Ending::Success,
            Ended::Failed => Ending::Failure,
            Ended::Abandoned => Ending::Abandoned,
        };
        match has_no_socket {
            true => ingress.counts.upstream.no_socket.one_more(),
            false => ingress.counts.upstream.finished(&Finish::new(now.since(*at), ending)),
        }
        if *ended == Ended::Answered {
            ingress.gate.load.note(*found, now.since(*at));
        }
        if let Ok(mut admission) = ingress.gate.admission.try_borrow_mut() {
            admission.finish(now, left, *permit, *ended);
        }
    }
}
