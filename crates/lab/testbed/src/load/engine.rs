//! The generator's loop: one thread, one epoll, one alarm.
//!
//! Latency counts from the intended start of a request, which no answer can move: a server that
//! stalls is charged with every request that it kept waiting, not with the one that saw it (no
//! coordinated omission).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};
use plimsoll_model::Nanos;
use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use super::arrivals::ArrivalTimes;
use super::conn::{Answer, Broken, Conn, Progress, Shared};
use super::recorder::{Ended, Recorder};
use super::report::{ErrorKind, LoadReport};
use super::requests::Requests;
use super::spec::{Arrivals, LoadSpec};
use crate::clock::{Alarm, Clock};

/// Connections have tokens of 2³² and more (slotmap versions start at 1); these lie below.
const WAKER: Token = Token(0);
const ALARM: Token = Token(1);

/// A client of a closed loop whose connection failed waits so long: else a refused port would be
/// hammered as fast as the machine can.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);

/// What the handle asks of the loop.
pub(super) enum Command {
    SetRate(f64),
    Snapshot(Sender<LoadReport>),
    /// No more arrivals; what is under way may end.
    Stop,
    /// End now.
    Abort,
}

/// A request that has not ended.
struct Outstanding {
    intended: Nanos,
    /// None while it waits for a connection.
    conn: Option<DefaultKey>,
    bytes: Arc<[u8]>,
}

pub(super) struct Engine {
    poll: Poll,
    clock: Clock,
    alarm: Alarm,
    commands: Receiver<Command>,
    spec: LoadSpec,
    shared: Shared,
    requests_to_send: Requests,
    /// None in a closed loop.
    arrivals: Option<ArrivalTimes>,
    /// Starts of the clients of a closed loop, in order.
    restarts: VecDeque<Nanos>,
    most_conns: usize,
    requests: SlotMap<DefaultKey, Outstanding>,
    /// In order of intended start, and so of deadline; entries that have ended are skipped.
    deadlines: VecDeque<(Nanos, DefaultKey)>,
    /// Requests that wait for a connection; those that timed out are skipped.
    backlog: VecDeque<DefaultKey>,
    conns: SlotMap<DefaultKey, Conn>,
    /// The last used is the first reused, so that few stay warm; those that were closed are skipped.
    idle: Vec<DefaultKey>,
    /// Connections that have more to read than one turn allows.
    reading: Vec<DefaultKey>,
    recorder: Recorder,
    connected: bool,
    /// No arrivals from here on.
    end: Nanos,
    aborted: bool,
}

impl Engine {
    pub(super) fn new(
        spec: LoadSpec,
        commands: Receiver<Command>,
        clock: Clock,
    ) -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let alarm = Alarm::new(clock, poll.registry(), ALARM)?;
        let (arrivals, restarts) = match spec.arrivals {
            Arrivals::Open { pattern, rate_rps } => {
                (Some(ArrivalTimes::new(pattern, rate_rps, spec.seed)), VecDeque::new())
            }
            Arrivals::Closed => {
                (None, vec![Nanos::ZERO; spec.concurrency.unwrap_or_default()].into())
            }
        };
        let engine = Engine {
            poll,
            clock,
            alarm,
            commands,
            shared: Shared { to_head: spec.method == "HEAD", by_header: spec.by_header.clone() },
            requests_to_send: Requests::new(&spec),
            arrivals,
            restarts,
            most_conns: spec.concurrency.unwrap_or(usize::MAX),
            requests: SlotMap::new(),
            deadlines: VecDeque::new(),
            backlog: VecDeque::new(),
            conns: SlotMap::new(),
            idle: Vec::new(),
            reading: Vec::new(),
            recorder: Recorder::new(spec.warmup, spec.keep_records),
            connected: false,
            end: Nanos::ZERO + spec.warmup + spec.duration,
            aborted: false,
            spec,
        };
        Ok((engine, waker))
    }

    /// Runs to the end of the load and of every request that it began.
    ///
    /// # Errors
    /// When the system refuses to wait.
    pub(super) fn run(mut self) -> io::Result<LoadReport> {
        let mut events = Events::with_capacity(1024);
        loop {
            self.expire();
            self.start_due();
            let over = self.clock.now() >= self.end && self.requests.is_empty();
            if over || self.aborted {
                break;
            }
            let wake = self.next_wake();
            self.alarm.set(wake)?;
            let pause = (!self.reading.is_empty()).then_some(Duration::ZERO);
            match self.poll.poll(&mut events, pause) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            for key in std::mem::take(&mut self.reading) {
                self.receive(key);
                self.dispatch();
            }
            for event in &events {
                self.on_event(event);
            }
        }
        let mut report = self.report();
        report.records = self.recorder.take_records();
        Ok(report)
    }

    fn next_wake(&mut self) -> Option<Nanos> {
        while self.deadlines.front().is_some_and(|(_, key)| !self.requests.contains_key(*key)) {
            self.deadlines.pop_front();
        }
        let deadline = self.deadlines.front().map(|(at, _)| *at);
        let now = self.clock.now();
        let ending = (now < self.end).then_some(self.end);
        let arrival = self.arrivals.as_ref().and_then(ArrivalTimes::peek);
        let restart = self.restarts.front().copied();
        let starts = arrival.into_iter().chain(restart).filter(|at| *at < self.end);
        starts.chain(deadline).chain(ending).min()
    }

    fn on_event(&mut self, event: &Event) {
        match event.token() {
            WAKER => self.obey(),
            ALARM => self.alarm.rang(),
            Token(t) => {
                self.on_conn(KeyData::from_ffi(t as u64).into(), event);
                self.dispatch();
            }
        }
    }

    fn obey(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            let now = self.clock.now();
            match command {
                Command::SetRate(rate_rps) => {
                    if let Some(arrivals) = &mut self.arrivals {
                        arrivals.set_rate(now, rate_rps);
                    }
                }
                // A caller that has gone does not want its answer.
                Command::Snapshot(answer) => drop(answer.send(self.report())),
                Command::Stop => self.end = self.end.min(now),
                Command::Abort => self.aborted = true,
            }
        }
    }

    /// Begins every request whose time has come.
    fn start_due(&mut self) {
        let now = self.clock.now();
        while let Some(at) = self.pop_start(now.min(Nanos(self.end.0.saturating_sub(1)))) {
            self.recorder.begun(at, self.clock.now().since(at));
            self.start(at);
        }
    }

    fn pop_start(&mut self, by: Nanos) -> Option<Nanos> {
        match &mut self.arrivals {
            Some(arrivals) => arrivals.pop(by),
            None => {
                let due = self.restarts.front().is_some_and(|at| *at <= by);
                if due { self.restarts.pop_front() } else { None }
            }
        }
    }

    fn start(&mut self, intended: Nanos) {
        // Drawn for refused arrivals too: the work of an arrival depends on its number alone.
        let bytes = self.requests_to_send.next(&self.spec);
        if self.arrivals.is_some() && self.requests.len() >= self.spec.max_in_flight {
            let error = Some(ErrorKind::Overflow);
            let ended = Ended { intended, at: self.clock.now(), backend: None, error };
            let bound = self.spec.max_in_flight;
            self.recorder.ended(ended, || format!("more than {bound} requests in flight"));
            return;
        }
        let key = self.requests.insert(Outstanding { intended, conn: None, bytes });
        self.deadlines.push_back((intended + self.spec.timeout, key));
        self.backlog.push_back(key);
        self.dispatch();
    }

    /// Gives waiting requests connections, idle ones first, as long as there are both.
    fn dispatch(&mut self) {
        while let Some(request) = self.backlog.front().copied() {
            if !self.requests.contains_key(request) {
                self.backlog.pop_front();
            } else if let Some(conn) = self.pop_idle() {
                self.backlog.pop_front();
                self.send_on(conn, request);
            } else if self.conns.len() < self.most_conns {
                self.backlog.pop_front();
                self.connect(request);
            } else {
                return;
            }
        }
    }

    fn pop_idle(&mut self) -> Option<DefaultKey> {
        while let Some(key) = self.idle.pop() {
            if self.conns.contains_key(key) {
                return Some(key);
            }
        }
        None
    }

    fn connect(&mut self, request: DefaultKey) {
        let failed =
            |e: io::Error| Broken { kind: ErrorKind::Connect, why: format!("connect: {e}") };
        let stream = match TcpStream::connect(self.spec.target.address) {
            Ok(stream) => stream,
            Err(e) => return self.fail(request, failed(e)),
        };
        let Some(bytes) = self.requests.get(request).map(|r| Arc::clone(&r.bytes)) else { return };
        let key = self.conns.insert(Conn::connecting(stream, request, bytes));
        let token = Token(key.data().as_ffi() as usize);
        let both = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        match self.conns.get_mut(key).map(|c| registry.register(&mut c.stream, token, both)) {
            Some(Err(e)) => self.drop_conn(key, Some(failed(e))),
            _ => {
                if let Some(outstanding) = self.requests.get_mut(request) {
                    outstanding.conn = Some(key);
                }
            }
        }
    }

    fn send_on(&mut self, key: DefaultKey, request: DefaultKey) {
        let Some(outstanding) = self.requests.get_mut(request) else { return };
        outstanding.conn = Some(key);
        let bytes = Arc::clone(&outstanding.bytes);
        let Some(conn) = self.conns.get_mut(key) else { return };
        if let Err(broken) = conn.begin(request, bytes) {
            self.drop_conn(key, Some(broken));
        }
    }

    fn on_conn(&mut self, key: DefaultKey, event: &Event) {
        // An event of a connection that this very round has removed.
        let Some(conn) = self.conns.get_mut(key) else { return };
        if event.is_read_closed() {
            conn.mark_closing();
        }
        if conn.is_connecting() {
            match conn.connected() {
                Ok(false) => return,
                Ok(true) => self.connected = true,
                Err(broken) => return self.drop_conn(key, Some(broken)),
            }
        } else if conn.is_idle() {
            // Nothing was asked, so whatever comes is the end of the connection.
            if event.is_readable() || event.is_read_closed() || event.is_error() {
                self.drop_conn(key, None);
            }
            return;
        } else if event.is_writable()
            && let Err(broken) = conn.send()
        {
            return self.drop_conn(key, Some(broken));
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.receive(key);
        }
    }

    fn receive(&mut self, key: DefaultKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        match conn.receive(&self.shared, |label| self.recorder.backend(label)) {
            Ok(Progress::Wait) => {}
            Ok(Progress::MoreToRead) => self.reading.push(key),
            Ok(Progress::Answered(answer)) => self.answered(key, answer),
            Err(broken) => self.drop_conn(key, Some(broken)),
        }
    }

    fn answered(&mut self, key: DefaultKey, answer: Answer) {
        let request = self.conns.get_mut(key).and_then(|conn| conn.request.take());
        if let Some(request) = request {
            let error = (answer.status >= 400).then_some(ErrorKind::Status);
            let why = || format!("status {}", answer.status);
            self.end_request(request, answer.backend, error, why, Duration::ZERO);
        }
        if !answer.keep_alive {
            return self.drop_conn(key, None);
        }
        if self.idle.len() > 2 * self.conns.len() + 64 {
            self.idle.retain(|idle| self.conns.contains_key(*idle));
        }
        self.idle.push(key);
    }

    /// Closes a connection, and ends its request, if it has one, as `broken` says.
    fn drop_conn(&mut self, key: DefaultKey, broken: Option<Broken>) {
        let request = self.conns.remove(key).and_then(|conn| conn.request);
        if let (Some(request), Some(broken)) = (request, broken) {
            self.fail(request, broken);
        }
    }

    fn fail(&mut self, request: DefaultKey, broken: Broken) {
        self.end_request(request, None, Some(broken.kind), || broken.why, PAUSE_AFTER_FAILURE);
    }

    /// Books the end of a request; in a closed loop its client comes again after `pause`.
    fn end_request(
        &mut self,
        request: DefaultKey,
        backend: Option<usize>,
        error: Option<ErrorKind>,
        why: impl FnOnce() -> String,
        pause: Duration,
    ) {
        let Some(outstanding) = self.requests.remove(request) else { return };
        let at = self.clock.now();
        self.recorder.ended(Ended { intended: outstanding.intended, at, backend, error }, why);
        if self.arrivals.is_none() {
            let again = at + pause;
            // Failures queue behind later successes by at most the pause; starts stay in order.
            let place = self.restarts.partition_point(|other| *other <= again);
            self.restarts.insert(place, again);
        }
    }

    /// Ends every request whose time is up.
    fn expire(&mut self) {
        let now = self.clock.now();
        while let Some((at, key)) = self.deadlines.front().copied() {
            let Some(outstanding) = self.requests.get(key) else {
                self.deadlines.pop_front();
                continue;
            };
            if at > now {
                return;
            }
            self.deadlines.pop_front();
            let conn = outstanding.conn;
            let timeout = crate::format_duration(self.spec.timeout);
            let why = || format!("no answer within {timeout}");
            self.end_request(key, None, Some(ErrorKind::Timeout), why, Duration::ZERO);
            if let Some(conn) = conn {
                self.drop_conn(conn, None);
            }
            self.dispatch();
        }
    }

    fn report(&self) -> LoadReport {
        let now = self.clock.now().min(self.end);
        let mut report = self.recorder.report(now.since(Nanos::ZERO + self.spec.warmup));
        report.target_rps = self.arrivals.as_ref().map(ArrivalTimes::rate_rps);
        report.in_flight = self.requests.len() as u64;
        report.connections = self.conns.len() as u64;
        report.connected = self.connected;
        report
    }
}
