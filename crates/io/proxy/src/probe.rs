//! Probes: asks the ingresses of a pool's backends for their load, for policies that go by it. `prequal` asks some beside
//! each request, which does not wait; `expected_delay` by probes some before each pick, and others where these are full,
//! which waits for what is answered within [`IN_TIME`]; `cpu_random` gets all loads, every so often.
//!
//! A probe goes by the connections that requests use, or a new one where none is idle. A backend without an ingress of
//! ours answers `OPTIONS *` with something else, or not at all, and is left alone for a while. Each thread asks for
//! itself: news is not passed on to others.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::Duration;

use httparse::Status;
use plimsoll_policy::{Probing, ServerLoad};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::balance::Balancer;
use crate::config;
use crate::headers;
use crate::load;
use crate::upstream::{Connections, is_ours};
use crate::wire::Wire;

/// Most probes of a thread that wait for one backend: what it does not answer is not asked again and again.
const MOST_WAITING: u32 = 64;
/// A backend that did not answer, or not so, is left alone for so long.
const REST: Duration = Duration::from_secs(1);
const LONG_REST: Duration = Duration::from_secs(30);
/// How long a request waits for answers before its backend is picked, and as long again where others are asked: more than
/// those within a region take, and less than a request that was worth asking for. A backend that is late is not asked again before it has answered, or not at all.
const IN_TIME: Duration = Duration::from_millis(10);
/// All are asked no more often.
const SHORTEST: Duration = Duration::from_millis(10);
/// The longest answer.
const ANSWER: usize = 1_024;
const QUESTION: &[u8] = b"OPTIONS * HTTP/1.1\r\nhost: plimsoll\r\nplimsoll-probe: 1\r\n\r\n";

/// What one thread asks of one pool.
pub(crate) struct Probes {
    balancer: Rc<Balancer>,
    connections: Rc<Connections>,
    /// News that is older is worth nothing.
    age: Duration,
    /// [`IN_TIME`], but in tests.
    in_time: Duration,
    /// Others ask on where these did.
    is_succeeded: Cell<bool>,
    backends: Vec<Asked>,
    targets: RefCell<Vec<usize>>,
}

/// What each probe that a request waits for holds: it says which backend has answered, and the request waits until nobody
/// holds it any more.
type Held = mpsc::UnboundedSender<usize>;

/// One that is asked.
#[derive(Default)]
struct Asked {
    waiting: Cell<u32>,
    /// Probes that requests do not wait for any more.
    late: Cell<u32>,
    rests_until: Cell<Option<Instant>>,
    /// It answers, but does not tell its load.
    is_silent: Cell<bool>,
}

impl Asked {
    fn rests(&self, now: Instant) -> bool {
        self.rests_until.get().is_some_and(|until| now < until)
    }

    /// Leaves it alone until then. Several may be under way when the first does not answer: the longest rest holds.
    fn rest_until(&self, until: Instant) {
        self.rests_until.set(self.rests_until.get().max(Some(until)));
    }
}

impl Probes {
    /// For a pool whose policy wants to know; none for others. To be called within a local set.
    pub(crate) fn start(
        pool: &config::Pool,
        balancer: &Rc<Balancer>,
        connections: &Rc<Connections>,
    ) -> Option<Rc<Self>> {
        let when = balancer.probing();
        if when == Probing::Never {
            return None;
        }
        let probes = Rc::new(Probes {
            balancer: balancer.clone(),
            connections: connections.clone(),
            age: Duration::from_millis(pool.settings.load_age_ms),
            in_time: IN_TIME,
            is_succeeded: Cell::new(false),
            backends: balancer.addresses.iter().map(|_| Asked::default()).collect(),
            targets: RefCell::default(),
        });
        if when == Probing::Periodic {
            // Twice while news is good: one that is lost loses nothing.
            let interval = (probes.age / 2).max(SHORTEST);
            tokio::task::spawn_local(every(interval, Rc::downgrade(&probes)));
        }
        Some(probes)
    }

    /// Goes on where those did: what rests goes on resting.
    pub(crate) fn take_over(&self, before: &Probes) {
        before.is_succeeded.set(true);
        let stays = self.balancer.addresses.iter().zip(&before.balancer.addresses);
        for ((now, then), (asked, was)) in stays.zip(self.backends.iter().zip(&before.backends)) {
            if now == then {
                asked.rests_until.set(was.rests_until.get());
                asked.is_silent.set(was.is_silent.get());
            }
        }
    }

    /// A request was picked for: asks the backends that the policy wants to ask beside it.
    pub(crate) fn beside(self: &Rc<Self>, key: Option<u64>) {
        if self.balancer.probing() == Probing::Beside {
            self.ask_targets(key, &[], None);
        }
    }

    /// Whether requests wait for answers.
    pub(crate) fn are_before(&self) -> bool {
        self.balancer.probing() == Probing::Before
    }

    /// Asks the backends that the policy wants to ask before it picks for a request, and others once more where none of
    /// these has room; those that answered in time.
    pub(crate) async fn before(self: &Rc<Self>, key: Option<u64>) -> Vec<usize> {
        let answered = self.round(key, Vec::new()).await;
        match self.balancer.have_no_room(&answered) {
            true => self.round(key, answered).await,
            false => answered,
        }
    }

    /// Asks others than those that have answered, and waits until each has, too, or is late; all that have.
    async fn round(self: &Rc<Self>, key: Option<u64>, mut answered: Vec<usize>) -> Vec<usize> {
        let (held, mut answers) = mpsc::unbounded_channel();
        self.ask_targets(key, &answered, Some(held));
        while let Some(backend) = answers.recv().await {
            answered.push(backend);
        }
        answered
    }

    fn ask_targets(self: &Rc<Self>, key: Option<u64>, answered: &[usize], held: Option<Held>) {
        let mut targets = self.targets.borrow_mut();
        targets.clear();
        targets.extend_from_slice(answered);
        self.balancer.probe_targets(key, &mut targets);
        targets.drain(answered.len()..).for_each(|backend| self.ask(backend, held.clone()));
    }

    /// Asks a backend; `held` is let go of when it has answered, or is late.
    fn ask(self: &Rc<Self>, backend: usize, mut held: Option<Held>) {
        let Some(asked) = self.backends.get(backend) else { return };
        let began = Instant::now();
        let is_enough = asked.waiting.get() >= MOST_WAITING || asked.rests(began);
        if is_enough || asked.late.get() > 0 || !self.balancer.has_weight(backend) {
            return;
        }
        asked.waiting.set(asked.waiting.get() + 1);
        let probes = self.clone();
        tokio::task::spawn_local(async move {
            // No longer than it would rest: those that hang would else be all that is asked.
            let mut exchange = pin!(timeout(probes.age.min(REST), probes.exchange(backend)));
            let asked = &probes.backends[backend];
            let in_time = match &held {
                Some(_) => timeout(probes.in_time, exchange.as_mut()).await.ok(),
                None => None,
            };
            let answered = match in_time {
                Some(answered) => answered,
                None => {
                    let is_late = u32::from(held.take().is_some());
                    asked.late.set(asked.late.get() + is_late);
                    let answered = exchange.await;
                    asked.late.set(asked.late.get() - is_late);
                    answered
                }
            };
            asked.waiting.set(asked.waiting.get() - 1);
            match answered {
                Ok(Ok(Some(load))) => {
                    if asked.is_silent.take() {
                        probes.balancer.tells_load(backend, true);
                    }
                    asked.rests_until.set(None);
                    probes.balancer.probed(backend, load, began.elapsed());
                    if let Some(held) = &held {
                        // A request that is gone does not hear it.
                        let _ = held.send(backend);
                    }
                }
                Ok(Ok(None)) => {
                    asked.is_silent.set(true);
                    asked.rest_until(Instant::now() + LONG_REST);
                    if probes.balancer.tells_load(backend, false) {
                        let address = probes.balancer.addresses[backend];
                        warn!(%address, "does not tell its load: is a plimsoll ingress before it that trusts this proxy?");
                    }
                }
                Ok(Err(error)) if is_ours(&error) => {}
                Ok(Err(_)) | Err(_) => asked.rest_until(Instant::now() + REST),
            }
            drop(held);
        });
    }

    /// Asks a backend; no load where what answers tells none.
    async fn exchange(&self, backend: usize) -> io::Result<Option<ServerLoad>> {
        if let Some(wire) = self.connections.bare(backend) {
            // One that was about to be closed is no news.
            if let Ok(load) = self.exchange_on(backend, wire).await {
                return Ok(load);
            }
        }
        let stream = TcpStream::connect(self.balancer.addresses[backend]).await?;
        stream.set_nodelay(true)?;
        self.exchange_on(backend, Wire::new(stream)).await
    }

    async fn exchange_on(&self, backend: usize, mut wire: Wire) -> io::Result<Option<ServerLoad>> {
        wire.write_all(QUESTION).await?;
        let (mut answer, mut length) = ([0; ANSWER], 0);
        loop {
            length += match wire.read(&mut answer[length..]).await? {
                0 if length == ANSWER => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => more,
            };
            match read(&answer[..length]) {
                Read::Partly => {}
                Read::Load(load) => {
                    self.connections.park(backend, wire);
                    return Ok(Some(load));
                }
                Read::Other => return Ok(None),
            }
        }
    }
}

async fn every(interval: Duration, probes: Weak<Probes>) {
    loop {
        let Some(all) = probes.upgrade().filter(|all| !all.is_succeeded.get()) else { return };
        (0..all.backends.len()).for_each(|backend| all.ask(backend, None));
        drop(all);
        tokio::time::sleep(interval).await;
    }
}

/// What bytes are as an answer.
#[derive(Debug, PartialEq)]
enum Read {
    Partly,
    /// All of one.
    Load(ServerLoad),
    /// Something else: the connection is of no further use.
    Other,
}

fn read(bytes: &[u8]) -> Read {
    let mut slots = [httparse::EMPTY_HEADER; 16];
    let mut response = httparse::Response::new(&mut slots);
    let end = match response.parse(bytes) {
        Ok(Status::Partial) => return Read::Partly,
        Ok(Status::Complete(end)) => end,
        Err(_) => return Read::Other,
    };
    let told =
        response.headers.iter().find(|h| h.name.eq_ignore_ascii_case(headers::LOAD.as_str()));
    let load = told.and_then(|header| load::parse(header.value));
    match load {
        // 204 has no body, whatever it says.
        Some(load) if response.code == Some(204) && end == bytes.len() => Read::Load(load),
        _ => Read::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU32, Ordering};

    use plimsoll_policy::{PolicyKind, Request, Sight};

    use super::*;
    use crate::clock::Clock;

    #[test]
    fn the_longest_rest_holds() {
        let (asked, now) = (Asked::default(), Instant::now());
        assert!(!asked.rests(now));
        asked.rest_until(now + LONG_REST);
        // Another that was under way times out.
        asked.rest_until(now + REST);
        assert!(asked.rests(now + 2 * REST) && !asked.rests(now + LONG_REST));
    }

    /// Probes before backends that listen here, which wait so long for an answer: the clock of a machine that does other
    /// things is none to fail by.
    fn probes(listeners: &[TcpListener], in_time: Duration) -> (Rc<Balancer>, Rc<Probes>) {
        let mut pool = crate::balance::tests::pool(PolicyKind::ExpectedDelay, listeners.len());
        pool.settings.expected_delay.sight = Sight::Probes;
        for (backend, listener) in pool.backends.iter_mut().zip(listeners) {
            backend.address = listener.local_addr().unwrap();
        }
        let balancer = crate::balance::tests::copies_with(&pool, 1, Clock::start(), None).remove(0);
        let long = Duration::from_secs(60);
        let addresses = balancer.addresses.iter().copied();
        let connections = Connections::new(addresses, 32 << 10, long, long);
        let mut probes = Probes::start(&pool, &balancer, &connections).expect("it asks");
        Rc::get_mut(&mut probes).expect("nothing is asked yet").in_time = in_time;
        (balancer, probes)
    }

    /// Answers on one connection, until that is closed.
    fn answer(
        listener: TcpListener,
        load: impl Fn() -> String + Send + 'static,
    ) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = [0; QUESTION.len()];
            while stream.read_exact(&mut question).is_ok() {
                let answer =
                    format!("HTTP/1.1 204 No Content\r\nplimsoll-load: {}\r\n\r\n", load());
                stream.write_all(answer.as_bytes()).unwrap();
            }
        })
    }

    fn listeners<const N: usize>() -> [TcpListener; N] {
        [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap())
    }

    #[tokio::test]
    async fn a_request_waits_for_answers_but_not_for_one_that_is_late_and_that_is_not_asked_again()
    {
        let listeners: [_; 2] = listeners();
        // Less than after what time one that hangs is given up.
        let (balancer, probes) = probes(&listeners, Duration::from_millis(300));
        let [answers, _hangs] = listeners;
        let answers = answer(answers, || "in_flight=7".to_owned());
        let asks = async move {
            assert_eq!(probes.before(None).await, [0]);
            let late = || probes.backends.iter().map(|asked| asked.late.get()).collect::<Vec<_>>();
            let waiting = |backend: usize| probes.backends[backend].waiting.get();
            assert_eq!((late(), waiting(1)), (vec![0, 1], 1), "it may answer yet");
            for _ in 0..20 {
                assert_eq!(probes.before(None).await, [0]);
            }
            assert!(late()[1] <= 1 && waiting(1) <= 1);
            let request = Request::default().answered_by(&[0]);
            assert_eq!(balancer.pick(&request).expect("a backend").backend(), 0);
        };
        tokio::task::LocalSet::new().run_until(asks).await;
        answers.join().unwrap();
    }

    #[tokio::test]
    async fn where_none_that_answered_has_room_others_are_asked() {
        static IN_FLIGHT: AtomicU32 = AtomicU32::new(4);
        let listeners: [_; 7] = listeners();
        let (balancer, probes) = probes(&listeners, Duration::from_secs(60));
        let load = || format!("in_flight={}, cores=4", IN_FLIGHT.load(Ordering::Relaxed));
        let threads = listeners.map(|listener| answer(listener, load));
        let asks = async move {
            let mut answered = probes.before(None).await;
            let request = Request::default().answered_by(&answered);
            assert!(balancer.pick(&request).expect("a backend").is_to_wait());
            answered.sort_unstable();
            assert_eq!(answered, (0..7).collect::<Vec<_>>(), "all, each once");
            // One of the four cores that it tells is free.
            IN_FLIGHT.store(3, Ordering::Relaxed);
            let answered = probes.before(None).await;
            assert_eq!(answered.len(), 5, "there is room");
            let request = Request::default().answered_by(&answered);
            assert!(!balancer.pick(&request).expect("a backend").is_to_wait());
        };
        tokio::task::LocalSet::new().run_until(asks).await;
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn an_answer_is_ours_or_none() {
        let ours = "HTTP/1.1 204 No Content\r\nplimsoll-load: in_flight=3\r\ndate: x\r\n\r\n";
        let load = ServerLoad { in_flight: 3, ..ServerLoad::default() };
        assert_eq!(read(ours.as_bytes()), Read::Load(load));
        for end in 0..ours.len() {
            assert_eq!(read(&ours.as_bytes()[..end]), Read::Partly, "{end}");
        }
        for other in [
            "HTTP/1.1 200 OK\r\nplimsoll-load: in_flight=3\r\ncontent-length: 1\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 204 No Content\r\nplimsoll-load: many\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n",
        ] {
            assert_eq!(read(other.as_bytes()), Read::Other, "{other}");
        }
        assert_eq!(read(format!("{ours}x").as_bytes()), Read::Other);
    }
}
