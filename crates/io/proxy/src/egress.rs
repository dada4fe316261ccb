//! An entry beside a caller, or before a pool: picks a backend for each request, sends it elsewhere where it was
//! refused or could not be delivered.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use hyper::body::{Body as _, Incoming};
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode};
use plimsoll_policy::Ending;
use tokio::time::Instant;

use crate::answer::{Problem, is_failure, rejected_response};
use crate::balance::{Flight, Live, Pick};
use crate::body::{Body, Passage};
use crate::cidr::Cidr;
use crate::config::{self, Forwarding, Limits, Note, Route, Timeouts};
use crate::forward::{Failed, Forward};
use crate::forwarded;
use crate::guard::Guard;
use crate::headers::{self, Rejected};
use crate::linger::Lingering;
use crate::patience::Patience;
use crate::plain;
use crate::pool::{Pool, Wants};
use crate::quick::{self, Quick, Scratch};
use crate::request;
use crate::route::{self, View};
use crate::serve::{Client, Handler};
use crate::tally::EntryTally;
use crate::tried::Tried;
use crate::upgrade;
use crate::upstream::{Connections, Lease};
use crate::wire::Wire;

/// Further backends that are tried where no connection could be made: with no health checks yet, each request finds
/// the dead ones by itself.
const MOST_ELSEWHERE: usize = 3;
/// A refusal's body that is longer is not read to its end for the sake of the connection.
const MOST_DRAINED: u64 = 4 << 10;

/// One thread's part of an egress entry.
pub(crate) struct Egress {
    routes: Vec<Route>,
    /// By the index of routes; those pools that no route of this entry names have none.
    pools: Vec<Option<Rc<Pool>>>,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: Limits,
    pub(crate) tally: Arc<EntryTally>,
    pub(crate) scratch: Scratch,
    forwarding: Forwarding,
    announcing: Vec<Cidr>,
    captures: bool,
}

/// A request that was begun without hyper, for hyper to go on with.
pub(crate) struct Resume {
    pub(crate) flight: Flight,
    pub(crate) live: Live,
    /// On which it was sent, if it was.
    pub(crate) lease: Option<Lease>,
    pub(crate) arrived: Instant,
}

impl Egress {
    pub(crate) fn new(
        config: &config::Egress,
        pools: Vec<Option<Rc<Pool>>>,
        tally: Arc<EntryTally>,
    ) -> Rc<Self> {
        let (timeouts, limits) = (config.timeouts, config.limits);
        let (routes, scratch) = (config.routes.clone(), Scratch::default());
        let captures = config.capture.is_some();
        let (forwarding, announcing) = (config.forwarding, config.proxy_protocol.clone());
        Rc::new(Egress {
            routes,
            pools,
            timeouts,
            limits,
            tally,
            scratch,
            forwarding,
            announcing,
            captures,
        })
    }

    /// To be called now and then.
    pub(crate) fn upkeep(&self) {
        for pool in self.pools.iter().flatten() {
            pool.balancer.upkeep();
            pool.connections.upkeep();
        }
    }

    fn route(&self, head: &Parts) -> Option<&Rc<Pool>> {
        self.pools[route::find(&self.routes, head)?.pool].as_ref()
    }

    /// Whether backends get clients' addresses by `X-Forwarded-*`.
    pub(crate) fn tells_client(&self) -> bool {
        self.forwarding.x_forwarded != Note::Off
    }

    /// The pool of a plain request.
    pub(crate) fn route_plain(&self, request: &plain::Request<'_, '_>) -> Option<&Pool> {
        let host = request::without_port(request.host);
        self.pools[route::find_by(&self.routes, host, request.path())?.pool].as_deref()
    }

    async fn pass(
        &self,
        pool: &Rc<Pool>,
        client: &Client,
        request: (Parts, Incoming),
        upgrade: Option<OnUpgrade>,
    ) -> Response<Body> {
        let mut pool = pool.clone();
        let kept = self.limits.body_kept_for_retries;
        let alarm = &client.open.alarm;
        let mut forward = Forward::new(&client.open, request, kept, self.timeouts);
        forwarded::note(forward.headers(), self.forwarding, client.address().ip());
        let mut connections = pool.connections_for(client);
        let sticky = pool.balancer.sticky.as_ref();
        let named = sticky.and_then(|sticky| sticky.take(forward.headers()));
        let view = View { peer: client.address().ip(), head: forward.head() };
        let key = pool.balancer.key.as_ref().and_then(|key| key.key(&view));
        let mut wants = Wants { key, own: named, answered: None, is_sent_anyhow: false };
        let mut tried = Tried::default();
        let mut patience = Patience::new(pool.balancer.clone(), alarm);
        let (mut live, mut begun) = match client.open.resume.take() {
            Some(Resume { flight, live, lease, arrived }) => {
                forward.arrived_at(arrived);
                (live, Some((flight, lease)))
            }
            None => (pool.balancer.begin(), None),
        };
        if begun.is_none() && pool.balancer.others_wait() {
            // In a box: each connection's task is as large as all that it may hold.
            if !Box::pin(patience.wait_behind(forward.deadline())).await {
                patience.give_up();
                return rejected_response(Rejected::Full);
            }
            pool = pool.newest();
            connections = pool.connections_for(client);
        }
        loop {
            let picked = match begun.take() {
                Some((flight, lease)) => Ok((flight, lease)),
                None => match pool.pick(&mut wants, &tried, &mut patience).await {
                    Pick::Flight(flight) => Ok((flight, None)),
                    Pick::Nothing => Err(false),
                    Pick::RatherWaits => Err(true),
                },
            };
            let (mut flight, lease) = match picked {
                Ok(picked) => picked,
                Err(rather_waits) => {
                    let is_refused = tried.rejected.is_some() || pool.balancer.has_backends();
                    let may_wait = is_refused && (tried.unreachable == 0 || tried.refusals > 0);
                    let waited = may_wait && Box::pin(patience.wait(forward.deadline())).await;
                    if !waited && rather_waits && Instant::now() < forward.deadline() {
                        wants.is_sent_anyhow = true;
                        continue;
                    }
                    if !waited {
                        patience.give_up();
                        return pool.nowhere(&tried);
                    }
                    tried.forget();
                    wants.answered = None;
                    pool = pool.newest();
                    connections = pool.connections_for(client);
                    continue;
                }
            };
            if tried.count == 0 && lease.is_none() {
                pool.ask_beside(key);
            }
            let backend = flight.backend();
            let is_last = flight.is_to_wait() || patience.has_one_try();
            self.tell(&pool, backend, &mut forward, (&tried, is_last));
            client.open.record.sent(pool.balancer.addresses[backend]);
            let at = (backend, lease);
            let sent = forward.send(&connections, at, || live.may_retry_failure()).await;
            let (mut response, lease) = match sent {
                Ok(sent) => sent,
                Err(failed) => {
                    self.failed(&pool, flight, failed);
                    if failed.is_before_sent()
                        && tried.unreachable < MOST_ELSEWHERE
                        && forward.can_repeat()
                    {
                        tried.unreachable += 1;
                        tried.failed = Some(failed);
                        tried.add(backend);
                        continue;
                    }
                    return failed.problem().response();
                }
            };
            let rejected = match response.status() {
                StatusCode::TOO_MANY_REQUESTS => Rejected::of(response.headers()),
                _ => None,
            };
            let Some(rejected) = rejected else {
                let chip = headers::chip(response.headers());
                let ending = pool.answered(&mut flight, chip, response.status());
                // One that could not serve is none to stay with.
                let is_new = named != Some(backend) && !is_failure(response.status());
                if let (true, Some(sticky)) = (is_new, &pool.balancer.sticky) {
                    sticky.note(response.headers_mut(), backend);
                }
                let guard = Guard::Flight(flight, ending, live);
                return self.respond(client, &forward, upgrade, (response, lease), guard);
            };
            pool.refused(flight, rejected, headers::chip(response.headers()));
            if forward.is_sent() {
                // What is not drained in time is dropped, and closed.
                let drained = drain(response.into_body(), lease);
                let _ = alarm.by(|| forward.deadline(), drained).await;
            }
            tried.refusals += 1;
            tried.rejected = Some(rejected);
            tried.add(backend);
            let can_go_on = rejected.is_worth_a_retry() && forward.can_repeat();
            if can_go_on && !patience.has_one_try() && pool.balancer.refused(tried.refusals) {
                continue;
            }
            if !can_go_on || !Box::pin(patience.wait(forward.deadline())).await {
                patience.give_up();
                return rejected_response(rejected);
            }
            tried.forget();
            wants.answered = None;
            pool = pool.newest();
            connections = pool.connections_for(client);
        }
    }

    /// A captured request that is for none of our pools goes where it was going.
    async fn pass_through(
        &self,
        client: &Client,
        request: (Parts, Incoming),
        upgrade: Option<OnUpgrade>,
    ) -> Response<Body> {
        let Some(address) = client.open.original.get() else { return Problem::NoRoute.response() };
        client.open.record.sent(address);
        let Timeouts { connect, idle, .. } = self.timeouts;
        let connections = Connections::new([address], self.limits.headers, connect, idle);
        let kept = self.limits.body_kept_for_retries;
        let mut forward = Forward::new(&client.open, request, kept, self.timeouts);
        match forward.send(&connections, (0, None), || true).await {
            Ok(sent) => self.respond(client, &forward, upgrade, sent, Guard::Captured),
            Err(failed) => failed.problem().response(),
        }
    }

    /// A backend's response goes on to the client, and what comes after it, where both go on with another protocol.
    fn respond(
        &self,
        client: &Client,
        forward: &Forward,
        upgrade: Option<OnUpgrade>,
        (response, lease): (Response<Incoming>, Lease),
        guard: Guard,
    ) -> Response<Body> {
        match upgrade {
            Some(upgrade) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                upgrade::tunnel(response, upgrade, guard, lease, client)
            }
            _ => {
                let idle = self.timeouts.idle;
                Passage::response(response, forward.source(), guard, lease, (client, idle))
            }
        }
    }

    /// Says to an ingress how much time and how many tries the request has left.
    fn tell(
        &self,
        pool: &Pool,
        backend: usize,
        forward: &mut Forward,
        (tried, is_last): (&Tried, bool),
    ) {
        let left = forward.deadline().saturating_duration_since(Instant::now());
        let headers = forward.headers();
        if pool.has_ingress(backend) {
            let left =
                u64::try_from(left.min(self.timeouts.request).as_millis()).unwrap_or(u64::MAX);
            let tries = match is_last {
                true => 0,
                false => pool.balancer.tries_left(tried.refusals),
            };
            headers.insert(headers::DEADLINE, HeaderValue::from(left));
            headers.insert(headers::TRY, headers::number(tries));
        } else if tried.count > 0 {
            headers::remove_ours(headers);
        }
    }

    fn failed(&self, pool: &Pool, flight: Flight, failed: Failed) {
        if failed == Failed::NoConnection {
            pool.balancer.tally.backends[flight.backend()].connections_failed.one_more();
        }
        if failed == Failed::Timeout {
            self.tally.timeouts.one_more();
        }
        match failed {
            Failed::NoSocket => flight.end_without_socket(),
            _ if failed.is_clients() => flight.end_unanswered(Ending::Abandoned),
            _ => flight.end_unanswered(Ending::Failure),
        }
    }
}

impl Handler for Egress {
    async fn handle(
        self: Rc<Self>,
        client: Client,
        mut request: Request<Incoming>,
    ) -> Response<Body> {
        // One that was begun without hyper has been counted.
        if client.open.resume.borrow().is_none() {
            self.tally.requests.one_more();
        }
        let upgrade = upgrade::asked(&mut request, &client);
        let (mut head, body) = request.into_parts();
        let checked = request::admit(&mut head);
        let routed = checked.and_then(|()| self.route(&head).ok_or(Problem::NoRoute));
        match routed {
            Ok(pool) => self.pass(pool, &client, (head, body), upgrade).await,
            Err(Problem::NoRoute) if client.open.original.get().is_some() => {
                self.pass_through(&client, (head, body), upgrade).await
            }
            Err(problem) => {
                self.tally.malformed.one_more();
                problem.response()
            }
        }
    }

    fn expects_announcement(&self, client: &Client) -> bool {
        self.announcing.iter().any(|network| network.contains(client.peer.ip()))
    }

    fn captures(&self) -> bool {
        self.captures
    }

    fn scratch(&self) -> Option<&Scratch> {
        // RFC 7239's header, and announced clients, are hyper's path's.
        let announces = || self.pools.iter().flatten().any(|pool| pool.announces.is_some());
        let is_plain = self.forwarding.forwarded == Note::Off && !self.captures;
        (is_plain && !announces()).then_some(&self.scratch)
    }

    async fn quick(&self, client: &Client, stream: &mut Lingering<Wire>, request: &[u8]) -> Quick {
        quick::pass(self, client, stream, request).await
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

/// Reads a small body to its end, so that its connection can be used again.
async fn drain(mut body: Incoming, mut lease: Lease) {
    let is_small = body.size_hint().upper().is_some_and(|upper| upper <= MOST_DRAINED);
    if !is_small {
        return;
    }
    while let Some(frame) = poll_fn(|cx| lease.poll_frame(&mut body, cx)).await {
        if frame.is_err() {
            return;
        }
    }
    lease.give_back();
}
