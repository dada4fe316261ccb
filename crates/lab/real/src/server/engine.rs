//! The thread that reads and writes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use super::burn::burn;
use super::connection::{Connection, Gone};
use super::request::Wanted;
use super::workers::{Job, Workers};
use super::{Behaviour, Mode, Model, Settings};

/// Connections have tokens of 2³² and more (slotmap versions start at 1); these lie below.
const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);

pub(super) struct Engine {
    poll: Poll,
    listener: TcpListener,
    connections: SlotMap<DefaultKey, Connection>,
    /// None in the event-loop model.
    workers: Option<Workers>,
    work: Duration,
    health: Duration,
    behaviour: Behaviour,
}

impl Engine {
    pub(super) fn new(settings: &Settings) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::bind(settings.listen)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let workers = match settings.model {
            Model::EventLoop => None,
            Model::Threads => {
                let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
                Some(Workers::start(settings.threads, &waker)?)
            }
        };
        let (connections, behaviour) = (SlotMap::new(), settings.behaviour.clone());
        let &Settings { work, health, .. } = settings;
        Ok(Engine { poll, listener, connections, workers, work, health, behaviour })
    }

    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    WAKER => self.answer_done(),
                    Token(t) => {
                        let key = KeyData::from_ffi(t as u64).into();
                        let read = |connection: &mut Connection| connection.read();
                        if self.with(key, read).is_some() {
                            self.proceed(key);
                        }
                    }
                }
            }
        }
    }

    fn accept(&mut self) {
        // Blocked: no more for now. Anything else is that connection's own trouble, or will show again.
        while let Ok((stream, _)) = self.listener.accept() {
            // An answer of one write needs no waiting for more.
            let _ = stream.set_nodelay(true);
            let key = self.connections.insert(Connection::new(stream));
            let token = Token(key.data().as_ffi() as usize);
            let registry = self.poll.registry();
            let stream = self.connections.get_mut(key).map(|connection| &mut connection.stream);
            if stream.is_none_or(|s| registry.register(s, token, Interest::READABLE).is_err()) {
                self.connections.remove(key);
            }
        }
    }

    /// Does this with a connection that may have gone, and drops one that is over.
    fn with<T>(
        &mut self,
        key: DefaultKey,
        act: impl FnOnce(&mut Connection) -> Result<T, Gone>,
    ) -> Option<T> {
        match act(self.connections.get_mut(key)?) {
            Ok(value) => Some(value),
            Err(Gone) => {
                self.connections.remove(key);
                None
            }
        }
    }

    /// Takes requests of this connection until one must be worked for.
    fn proceed(&mut self, key: DefaultKey) {
        while let Some(Some(wanted)) = self.with(key, Connection::next) {
            let (work, status) = match (wanted, self.behaviour.mode()) {
                (Wanted::Work(_), Mode::HangWork) => return,
                (Wanted::Work(_), Mode::FailWork) => (Duration::ZERO, 500),
                (Wanted::Work(work), _) => (work.unwrap_or(self.work), 200),
                (Wanted::Health, Mode::FailHealth) => (self.health, 503),
                (Wanted::Health, _) => (self.health, 200),
                (Wanted::Unknown, _) => (Duration::ZERO, 404),
                (Wanted::Malformed, _) => (Duration::ZERO, 400),
            };
            match &self.workers {
                Some(workers) => return workers.give(Job { connection: key, work, status }),
                None => {
                    burn(work);
                    self.answer(key, status);
                }
            }
        }
    }

    fn answer(&mut self, key: DefaultKey, status: u16) {
        self.with(key, |connection| connection.answer(status));
    }

    fn answer_done(&mut self) {
        while let Some(job) = self.workers.as_ref().and_then(Workers::take_done) {
            self.answer(job.connection, job.status);
            self.proceed(job.connection);
        }
    }
}
