//! The loop that hosts all backends of a testbed: one thread, one epoll, one alarm.
//!
//! One thread is enough, since nothing computes: service is time that passes, and a request costs
//! two system calls for its bytes and its part of two for waiting.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use hdrhistogram::Histogram;
use mio::event::Event;
use mio::{Events, Interest, Poll, Token, Waker};
use plimsoll_model::Nanos;
use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use super::admin;
use super::backend::{Backend, Verdict};
use super::change::Change;
use super::conn::{Conn, Gone, Request, Role};
use super::listener::Listener;
use super::mode::Mode;
use super::{Lateness, SetError, TestbedStats};
use crate::clock::{Alarm, Clock};

/// Connections have tokens of 2³² and more (slotmap versions start at 1); these lie below.
const WAKER: Token = Token(0);
const ALARM: Token = Token(1);
const ADMIN: Token = Token(2);
const FIRST_LISTENER: usize = 16;

/// How long to leave connections unaccepted when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// What the handle asks of the loop.
pub(super) enum Command {
    Set(String, Change, Sender<Result<(), SetError>>),
    Stats(Sender<TestbedStats>),
    Stop,
}

pub(super) fn listener_token(backend: usize) -> Token {
    Token(FIRST_LISTENER + backend)
}

pub(super) const fn admin_token() -> Token {
    ADMIN
}

pub(super) struct Engine {
    poll: Poll,
    clock: Clock,
    alarm: Alarm,
    commands: Receiver<Command>,
    /// Taken from the poll once per round and given back.
    backends: Vec<Backend>,
    listeners: Vec<Listener>,
    admin: Option<Listener>,
    conns: SlotMap<DefaultKey, Conn>,
    /// When to look at which backend. An entry may be out of date: then the look is in vain.
    due: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// The earliest entry of each backend in `due`.
    scheduled: Vec<Option<Nanos>>,
    /// Connections with more of an endless answer to send.
    pushing: Vec<DefaultKey>,
    /// Listeners that could not accept for want of file descriptors, and when to try again.
    accept_again: Option<Nanos>,
    lateness: Histogram<u64>,
    stopping: bool,
}

impl Engine {
    /// All listeners are open when this returns, but for those of backends that refuse.
    pub(super) fn new(
        mut backends: Vec<Backend>,
        mut listeners: Vec<Listener>,
        mut admin: Option<Listener>,
        commands: Receiver<Command>,
        clock: Clock,
    ) -> Result<(Self, Waker), (Option<usize>, io::Error)> {
        let whole = |e| (None, e);
        let poll = Poll::new().map_err(whole)?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(whole)?;
        let alarm = Alarm::new(clock, poll.registry(), ALARM).map_err(whole)?;
        for (i, (backend, listener)) in backends.iter_mut().zip(&mut listeners).enumerate() {
            if backend.mode() != Mode::Refuse {
                listener.open(poll.registry()).map_err(|e| (Some(i), e))?;
            }
        }
        if let Some(listener) = &mut admin {
            listener.open(poll.registry()).map_err(whole)?;
        }
        let engine = Engine {
            poll,
            clock,
            alarm,
            commands,
            scheduled: vec![None; backends.len()],
            backends,
            listeners,
            admin,
            conns: SlotMap::new(),
            due: BinaryHeap::new(),
            pushing: Vec::new(),
            accept_again: None,
            lateness: crate::micros_histogram(),
            stopping: false,
        };
        Ok((engine, waker))
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// When the system refuses to wait: the testbed is then dead.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        while !self.stopping {
            let pause = (!self.pushing.is_empty()).then_some(Duration::ZERO);
            match self.poll.poll(&mut events, pause) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            for event in &events {
                self.on_event(event);
            }
            self.push_on();
            self.finish_due();
            let wake = self.due.peek().map(|d| d.0.0);
            self.alarm.set(wake.into_iter().chain(self.accept_again).min())?;
        }
        Ok(())
    }

    fn on_event(&mut self, event: &Event) {
        match event.token() {
            WAKER => self.obey(),
            ALARM => {
                self.alarm.rang();
                if self.accept_again.is_some_and(|at| at <= self.clock.now()) {
                    self.accept_again = None;
                    self.accept(Role::Admin);
                    (0..self.backends.len()).for_each(|i| self.accept(Role::Backend(i)));
                }
            }
            ADMIN => self.accept(Role::Admin),
            Token(t) if t < 1 << 32 => self.accept(Role::Backend(t - FIRST_LISTENER)),
            Token(t) => self.on_conn(KeyData::from_ffi(t as u64).into(), event),
        }
    }

    fn obey(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            // A caller that has gone does not want its answer.
            match command {
                Command::Set(name, change, answer) => {
                    let _ = answer.send(self.set(&name, &change));
                }
                Command::Stats(answer) => {
                    let _ = answer.send(self.stats());
                }
                Command::Stop => self.stopping = true,
            }
        }
    }

    fn accept(&mut self, role: Role) {
        loop {
            let listener = match role {
                Role::Backend(i) => &self.listeners[i],
                Role::Admin => match &self.admin {
                    Some(listener) => listener,
                    None => return,
                },
            };
            match listener.accept() {
                Ok(stream) => self.welcome(stream, role),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // The client has gone again, or a signal came: neither concerns the next one.
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                    ) => {}
                Err(_) => {
                    self.accept_again = Some(self.clock.now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn welcome(&mut self, stream: mio::net::TcpStream, role: Role) {
        // Without it a reply in two pieces would wait for the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        let key = self.conns.insert(Conn::new(stream, role));
        let token = Token(key.data().as_ffi() as usize);
        let both = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        let registered =
            self.conns.get_mut(key).map(|c| registry.register(&mut c.stream, token, both));
        if !matches!(registered, Some(Ok(()))) {
            self.conns.remove(key);
        }
    }

    fn on_conn(&mut self, key: DefaultKey, event: &Event) {
        // An event of a connection that this very round has removed.
        let Some(conn) = self.conns.get_mut(key) else { return };
        let hopeless = event.is_error() || event.is_write_closed();
        if hopeless || (conn.is_swallowed() && event.is_read_closed()) {
            self.conns.remove(key);
            return;
        }
        if event.is_readable() || event.is_read_closed() {
            conn.mark_readable(event.is_read_closed());
        }
        if event.is_writable() {
            self.push(key);
        }
        self.serve(key);
    }

    /// Takes requests from a connection until it has none, or one that takes time.
    fn serve(&mut self, key: DefaultKey) {
        while let Some(conn) = self.conns.get_mut(key) {
            let role = conn.role;
            let cost = |path: &str| match role {
                Role::Backend(i) => self.backends[i].cost(path),
                Role::Admin => None,
            };
            let outcome = match (conn.next_request(cost), role) {
                (Ok(None), _) => return,
                (Ok(Some(request)), Role::Backend(i)) => self.work(key, i, &request),
                (Ok(Some(request)), Role::Admin) => self.administer(key, request),
                (Err(Gone), _) => Err(Gone),
            };
            if outcome.is_err() {
                self.conns.remove(key);
                return;
            }
        }
    }

    fn work(&mut self, key: DefaultKey, i: usize, request: &Request) -> Result<(), Gone> {
        let backend = &mut self.backends[i];
        let verdict = backend.admit(self.clock.now(), key.data().as_ffi(), request.cost);
        let conn = self.conns.get_mut(key).ok_or(Gone)?;
        match verdict {
            Verdict::Queued => self.schedule(i),
            Verdict::Reply(kind) => {
                let reply = backend.replies().get(kind);
                conn.reply(|keep, head| reply.bytes(keep, head))?;
            }
            Verdict::Ignore => conn.swallow(),
            Verdict::Reset => {
                conn.will_reset();
                return Err(Gone);
            }
            Verdict::HangHeaders => conn.reply_unfinished(&backend.replies().unfinished)?,
            Verdict::Huge => {
                conn.reply_huge(&backend.replies().huge_head)?;
                self.pushing.push(key);
            }
        }
        Ok(())
    }

    fn administer(&mut self, key: DefaultKey, request: Request) -> Result<(), Gone> {
        let Some(request) = request.admin else { return Err(Gone) };
        self.finish_due();
        let reply = admin::answer(self, &request);
        let conn = self.conns.get_mut(key).ok_or(Gone)?;
        conn.reply(|keep, head| reply.bytes(keep, head))
    }

    /// Sees to it that the loop looks at a backend when its next request is done.
    fn schedule(&mut self, i: usize) {
        let Some(at) = self.backends[i].next_finish() else { return };
        if self.scheduled[i].is_none_or(|known| at < known) {
            self.scheduled[i] = Some(at);
            self.due.push(Reverse((at, i)));
        }
    }

    /// Answers every request that is done.
    fn finish_due(&mut self) {
        let mut now = self.clock.now();
        while let Some(Reverse((at, i))) = self.due.peek().copied() {
            if at > now {
                now = self.clock.now();
                if at > now {
                    return;
                }
            }
            self.due.pop();
            if self.scheduled[i] == Some(at) {
                self.scheduled[i] = None;
            }
            while let Some((id, kind, done)) = self.backends[i].pop_finished(now) {
                self.finish(i, KeyData::from_ffi(id).into(), kind, done);
            }
            self.schedule(i);
        }
    }

    fn finish(&mut self, i: usize, key: DefaultKey, kind: super::reply::ReplyKind, done: Nanos) {
        let backend = &self.backends[i];
        // The client may have gone; its request was served all the same.
        let Some(conn) = self.conns.get_mut(key) else { return };
        if backend.mode() == Mode::Silent {
            conn.swallow();
            return;
        }
        let late = self.clock.now().since(done).as_micros() as u64;
        self.lateness.saturating_record(late);
        let reply = backend.replies().get(kind);
        match conn.reply(|keep, head| reply.bytes(keep, head)) {
            Ok(()) => self.serve(key),
            Err(Gone) => {
                self.conns.remove(key);
            }
        }
    }

    fn push_on(&mut self) {
        for key in std::mem::take(&mut self.pushing) {
            self.push(key);
        }
    }

    fn push(&mut self, key: DefaultKey) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        match conn.push() {
            Ok(true) if !self.pushing.contains(&key) => self.pushing.push(key),
            Ok(_) => {}
            Err(Gone) => {
                self.conns.remove(key);
            }
        }
    }

    pub(super) fn backend_named(&self, name: &str) -> Option<&Backend> {
        self.backends.iter().find(|b| b.name() == name)
    }

    pub(super) fn set(&mut self, name: &str, change: &Change) -> Result<(), SetError> {
        let Some(i) = self.backends.iter().position(|b| b.name() == name) else {
            return Err(SetError::Unknown(name.into()));
        };
        let problems = change.problems();
        if !problems.is_empty() {
            return Err(SetError::Invalid(problems));
        }
        self.finish_due();
        let before = self.backends[i].mode();
        self.backends[i].apply(self.clock.now(), change);
        let after = self.backends[i].mode();
        if after == Mode::Refuse {
            self.listeners[i].shut();
            self.conns.retain(|_, conn| conn.role != Role::Backend(i));
        } else {
            if before != after {
                // What was swallowed is never answered: its clients learn that at the end of the mode.
                let lost = |c: &Conn| c.role == Role::Backend(i) && c.is_swallowed();
                self.conns.retain(|_, conn| !lost(conn));
            }
            let opened = self.listeners[i].open(self.poll.registry());
            opened.map_err(|e| SetError::Listen(name.into(), e.to_string()))?;
        }
        self.scheduled[i] = None;
        self.schedule(i);
        Ok(())
    }

    pub(super) fn stats(&mut self) -> TestbedStats {
        self.finish_due();
        let now = self.clock.now();
        let at = |q| self.lateness.value_at_quantile(q);
        let lateness = Lateness {
            replies: self.lateness.len(),
            p50_us: at(0.5),
            p99_us: at(0.99),
            max_us: self.lateness.max(),
        };
        TestbedStats {
            uptime_seconds: now.as_secs_f64(),
            lateness,
            backends: self.backends.iter().map(|b| b.stats(now)).collect(),
        }
    }
}
