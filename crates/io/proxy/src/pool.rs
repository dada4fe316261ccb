//! A pool, as one thread of one entry sees it: its balancer, connections to its backends, and what is asked of them.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use hyper::{Response, StatusCode};
use plimsoll_policy::{Ending, Request};

use crate::answer::{Problem, is_failure, rejected_response};
use crate::balance::{Balancer, Flight, Pick};
use crate::body::Body;
use crate::config::{self, Limits, ProxyProtocol, Timeouts};
use crate::headers::Rejected;
use crate::patience::Patience;
use crate::probe::Probes;
use crate::serve::Client;
use crate::tried::Tried;
use crate::upstream::Connections;

/// A pool, as one thread of one entry sees it.
pub(crate) struct Pool {
    pub(crate) balancer: Rc<Balancer>,
    pub(crate) connections: Rc<Connections>,
    /// Whether a backend has shown that an ingress is before it: only these get deadlines and tries.
    has_ingress: Vec<Cell<bool>>,
    /// Backends get clients' addresses by this version of the `PROXY` protocol, and that they came in here.
    pub(crate) announces: Option<(ProxyProtocol, SocketAddr)>,
    probes: Option<Rc<Probes>>,
    /// What goes on where this one was: a request that waits meanwhile goes on there.
    successor: RefCell<Option<Rc<Pool>>>,
}

/// What is known of a request for which a backend is picked.
pub(crate) struct Wants {
    pub(crate) key: Option<u64>,
    /// The backend that its client stays with.
    pub(crate) own: Option<usize>,
    /// Backends that answered, where some were asked for it and it has not waited since.
    pub(crate) answered: Option<Vec<usize>>,
    /// It cannot wait here, whatever its policy says.
    pub(crate) is_sent_anyhow: bool,
}

impl Pool {
    pub(crate) fn new(
        config: &config::Pool,
        balancer: Rc<Balancer>,
        (timeouts, limits): (Timeouts, Limits),
        announces: Option<(ProxyProtocol, SocketAddr)>,
    ) -> Self {
        let addresses = balancer.addresses.iter().copied();
        let has_ingress = balancer.addresses.iter().map(|_| Cell::new(false)).collect();
        let (connect, idle) = (timeouts.connect, timeouts.idle);
        let connections = Connections::new(addresses, limits.headers, connect, idle);
        let probes = Probes::start(config, &balancer, &connections);
        let successor = RefCell::default();
        Pool { balancer, connections, has_ingress, announces, probes, successor }
    }

    /// A request was picked for: what the policy asks beside it is asked.
    pub(crate) fn ask_beside(&self, key: Option<u64>) {
        if let Some(probes) = &self.probes {
            probes.beside(key);
        }
    }

    /// Whether a request waits for news of backends before one is picked for it.
    pub(crate) fn asks_before(&self) -> bool {
        self.probes.as_ref().is_some_and(|probes| probes.are_before())
    }

    /// Picks a backend for a try of a request.
    pub(crate) async fn pick(
        &self,
        wants: &mut Wants,
        tried: &Tried,
        patience: &mut Patience<'_>,
    ) -> Pick {
        // Whoever asks anyhow finds out whether another has more room.
        if let Some(left) = patience.room().filter(|_| !self.asks_before()) {
            let flight = self.balancer.pick_left(left);
            return flight.or_else(|| self.balancer.pick(&Request::keyed(wants.key))).into();
        }
        let own = wants.own.filter(|_| tried.count == 0);
        if let Some(flight) = own.and_then(|backend| self.balancer.pick_own(backend)) {
            return Pick::Flight(flight);
        }
        let probes = self.probes.as_ref().filter(|probes| probes.are_before());
        if let (Some(probes), None) = (probes, &wants.answered) {
            // In a box: each connection's task is as large as all that it may hold.
            wants.answered = Some(Box::pin(probes.before(wants.key)).await);
        }
        let answered = wants.answered.as_deref().unwrap_or_default();
        let request = Request::keyed(wants.key).avoiding(tried.avoid()).answered_by(answered);
        match wants.is_sent_anyhow {
            true => self.balancer.pick(&request).into(),
            false => self.balancer.pick_or_wait(&request),
        }
    }

    /// Connections for this client's requests: shared, or where backends get each client's address, its own.
    pub(crate) fn connections_for(&self, client: &Client) -> Rc<Connections> {
        let Some((version, here)) = self.announces else { return self.connections.clone() };
        self.connections.preceded_by(version.announcement(client.address(), here))
    }

    /// What has gone on where this one was, now.
    pub(crate) fn newest(self: Rc<Self>) -> Rc<Self> {
        let successor = self.successor.borrow().clone();
        successor.map_or(self, Pool::newest)
    }

    /// Goes on where that one was, with backends that stay.
    pub(crate) fn take_over(self: &Rc<Self>, before: &Pool) {
        *before.successor.borrow_mut() = Some(self.clone());
        self.connections.take_over(&before.connections);
        if let (Some(probes), Some(before)) = (&self.probes, &before.probes) {
            probes.take_over(before);
        }
        let stays = self.balancer.addresses.iter().zip(&before.balancer.addresses);
        let known = self.has_ingress.iter().zip(&before.has_ingress);
        for ((now, then), (has, had)) in stays.zip(known) {
            has.set(now == then && had.get());
        }
    }

    /// A backend has answered: what its chip and its status say of it, and what the request counts as when it ends.
    pub(crate) fn answered(
        &self,
        flight: &mut Flight,
        chip: Option<bool>,
        status: StatusCode,
    ) -> Ending {
        self.balancer.admitted();
        if let Some(has_room) = chip {
            self.has_ingress[flight.backend()].set(true);
            if has_room {
                self.balancer.has_room(flight.backend());
            }
        }
        flight.bring(chip);
        if !is_failure(status) {
            return Ending::Success;
        }
        self.balancer.tally.backends[flight.backend()].answered_badly.one_more();
        Ending::Failure
    }

    /// An ingress has refused it.
    pub(crate) fn refused(&self, mut flight: Flight, rejected: Rejected, chip: Option<bool>) {
        self.has_ingress[flight.backend()].set(true);
        flight.bring(chip);
        flight.end_unanswered(match rejected {
            Rejected::Deadline { .. } => Ending::TooLate,
            Rejected::Full | Rejected::Queue => Ending::Rejected,
        });
    }

    /// No backend is left to try.
    pub(crate) fn nowhere(&self, tried: &Tried) -> Response<Body> {
        if let Some(rejected) = tried.rejected {
            return rejected_response(rejected);
        }
        if let Some(failed) = tried.failed {
            return failed.problem().response();
        }
        self.balancer.tally.without_backend.one_more();
        Problem::NoBackend.response()
    }

    /// Whether a backend has shown that an ingress is before it.
    pub(crate) fn has_ingress(&self, backend: usize) -> bool {
        self.has_ingress[backend].get()
    }
}
