//! What clients send: UDP by one thread, several packets of a flow in a system call (UDP_SEGMENT), so that making packets
//! takes little of the two cores that are measured.
//!
//! A flow is one address and port of the server's network; no two have them in common for as long as forwarders
//! remember. Packets come in bursts of up to [`BURST`], ten microseconds or so apart, each of one flow.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use plimsoll_testbed::net::Namespaces;

use crate::Failure;

/// Packets of a mouse, and of one burst.
pub const BURST: u64 = 10;
/// Bytes of a packet's payload: the first eight say when it was sent.
const PAYLOAD: usize = 64;
const TICK: Duration = Duration::from_micros(100);
/// After a pause of the machine's no more than this is made up for.
const MADE_UP: Duration = Duration::from_millis(5);
/// One mouse of so many is one whose way is timed.
const TIMED: u64 = 16;
/// Ports of a service, and those of the next one behind them. The server times what comes to port [`TIMED_PORT`].
const PORTS: u64 = 20_000;
const FIRST_PORT: u64 = 10_000;
/// See above.
pub const TIMED_PORT: u16 = 7_001;
/// Puts the order in which flows end apart from that of their turns: a prime that divides no number of flows used here.
const APART: u64 = 23;
/// Addresses of the server's network that flows go to.
const HOSTS: u64 = 60_000;

/// What is sent, while it is; all can be changed at any time.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Packets per second.
    pub rate: AtomicU64,
    /// The part of them that one flow sends, per mille. Another flow whenever it has been 0.
    pub elephant: AtomicU64,
    /// Flows that the others belong to, in turn; 0: mice of ten packets.
    pub flows: AtomicU64,
    /// How long each of these lasts, milliseconds; 0: always. They end evenly over time, and others begin.
    pub life_ms: AtomicU64,
    /// Services that flows go to in turn; 0 is 1.
    pub services: AtomicU64,
    /// Sent so far.
    pub sent: AtomicU64,
    /// Nanoseconds of a CPU that sending has taken, forwarding included: the sender does it.
    pub cpu_ns: AtomicU64,
}

/// Sets one of these.
pub fn set(of: &AtomicU64, value: u64) {
    of.store(value, Ordering::Relaxed);
}

impl Traffic {
    /// Packets sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Seconds of a CPU that sending and forwarding have taken.
    pub fn cpu(&self) -> f64 {
        self.cpu_ns.load(Ordering::Relaxed) as f64 / 1e9
    }
}

/// A thread that sends; until it is dropped.
#[derive(Debug)]
pub struct Load {
    /// What it sends.
    pub traffic: Arc<Traffic>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Starts it in the client's namespace, on these CPUs alone where there are any.
    pub(super) fn start(net: &Namespaces, cpu: Option<u32>) -> Result<Load, Failure> {
        let (traffic, stop) = (Arc::new(Traffic::default()), Arc::new(AtomicBool::new(false)));
        let (of, until) = (traffic.clone(), stop.clone());
        let socket = net
            .inside("client", || UdpSocket::bind("10.1.0.10:6000"))?
            .map_err(Failure::file("open a UDP socket"))?;
        setsockopt(&socket, UdpGsoSegment, &(PAYLOAD as i32))
            .map_err(|errno| Failure::file("set UDP_SEGMENT")(errno.into()))?;
        let body = move || {
            if let Some(cpu) = cpu {
                let mut set = rustix::thread::CpuSet::new();
                set.set(cpu as usize);
                let _ = rustix::thread::sched_setaffinity(None, &set);
            }
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            Sender::new(socket, &of).run(&until);
        };
        let thread = std::thread::Builder::new().name("clients".to_owned()).spawn(body);
        let thread = thread.map_err(Failure::file("start a thread"))?;
        Ok(Load { traffic, stop, thread: Some(thread) })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Nanoseconds since some moment, the same for all threads of this machine.
pub fn clock_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

struct Sender<'a> {
    socket: UdpSocket,
    traffic: &'a Traffic,
    began: Instant,
    /// Mice so far, elephants so far, the turn among flows that last.
    mice: u64,
    elephants: u64,
    turn: u64,
    /// Of the elephant, per mille of packets that it has not sent yet.
    owed: u64,
}

impl Sender<'_> {
    fn new(socket: UdpSocket, traffic: &Traffic) -> Sender<'_> {
        let began = Instant::now();
        Sender { socket, traffic, began, mice: 0, elephants: 0, turn: 0, owed: 0 }
    }

    fn run(mut self, stop: &AtomicBool) {
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let (mut last, mut due) = (Instant::now(), 0.0);
        let (mut had_elephant, mut ticks) = (false, 0u32);
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(TICK);
            let passed = last.elapsed();
            last += passed;
            due += passed.min(MADE_UP).as_secs_f64() * load(&self.traffic.rate) as f64;
            let elephant = load(&self.traffic.elephant);
            self.elephants += u64::from(elephant > 0 && !had_elephant);
            had_elephant = elephant > 0;
            while due >= BURST as f64 {
                due -= BURST as f64;
                self.owed += elephant;
                if self.owed >= 1000 {
                    self.owed -= 1000;
                    self.send(flow(HOSTS - 1, self.elephants, 0));
                } else {
                    let next = self.next();
                    self.send(next);
                }
            }
            ticks += 1;
            if ticks.is_multiple_of(500)
                && let Ok(text) = std::fs::read_to_string("/proc/thread-self/schedstat")
                && let Some(ns) = text.split_whitespace().next().and_then(|word| word.parse().ok())
            {
                self.traffic.cpu_ns.store(ns, Ordering::Relaxed);
            }
        }
    }

    /// Where the next burst goes that is not an elephant's.
    fn next(&mut self) -> SocketAddrV4 {
        let services = self.traffic.services.load(Ordering::Relaxed).max(1);
        let flows = self.traffic.flows.load(Ordering::Relaxed);
        if flows == 0 {
            self.mice += 1;
            if self.mice.is_multiple_of(TIMED) {
                let host = self.mice / TIMED % (HOSTS - 1);
                return SocketAddrV4::new(address(host), TIMED_PORT);
            }
            return flow(self.mice % (HOSTS - 1), self.mice / (HOSTS - 1), self.mice % services);
        }
        self.turn = (self.turn + 1) % flows;
        let life = self.traffic.life_ms.load(Ordering::Relaxed);
        // One of n ends each n-th of a life. Not in the order of turns: flows of one age are on one node, and would send one
        // after another, so that nodes took turns of milliseconds.
        let now = self.began.elapsed().as_millis() as u64;
        let place = place(self.turn, flows);
        let lives = (now + place * life / flows).checked_div(life).unwrap_or(0);
        flow(self.turn % (HOSTS - 1), self.turn / (HOSTS - 1) + lives, self.turn % services)
    }

    fn send(&self, to: SocketAddrV4) {
        let mut bytes = [0u8; PAYLOAD * BURST as usize];
        let now = clock_ns().to_le_bytes();
        bytes.chunks_exact_mut(PAYLOAD).for_each(|packet| packet[..8].copy_from_slice(&now));
        if self.socket.send_to(&bytes, to).is_ok() {
            self.traffic.sent.fetch_add(BURST, Ordering::Relaxed);
        }
    }
}

/// Where in the order of ends the flow of this turn is.
fn place(turn: u64, flows: u64) -> u64 {
    turn * APART % flows
}

fn address(host: u64) -> Ipv4Addr {
    Ipv4Addr::new(10, 2, (host / 250) as u8 + 1, (host % 250) as u8 + 1)
}

/// The `number`-th flow to a host, of a service.
fn flow(host: u64, number: u64, service: u64) -> SocketAddrV4 {
    let port = FIRST_PORT + service * PORTS + number % PORTS;
    SocketAddrV4::new(address(host), port as u16)
}

/// The ports of a service's flows, as `match` has them.
pub(super) fn ports(service: u64) -> String {
    let first = FIRST_PORT + service * PORTS;
    format!("{}-{}", first, first + PORTS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_end_one_by_one_and_not_in_the_order_of_their_turns() {
        for flows in [60, 1_000, 32_000] {
            let places: Vec<u64> = (0..flows).map(|turn| place(turn, flows)).collect();
            let all: std::collections::BTreeSet<u64> = places.iter().copied().collect();
            assert_eq!(all.len() as u64, flows);
        }
        // Of any half of the ages, which may be on one node, never more than three in a row.
        let places: Vec<u64> = (0..60).map(|turn| place(turn, 60)).collect();
        for (some, first) in places.windows(4).flat_map(|some| (0..60).map(move |f| (some, f))) {
            let inside = some.iter().filter(|place| (**place + 60 - first) % 60 < 30).count();
            assert!((1..4).contains(&inside), "{some:?} from {first}");
        }
    }

    #[test]
    fn flows_have_addresses_of_the_servers_network_and_ports_of_their_service() {
        let mut seen = std::collections::BTreeSet::new();
        for (host, number, service) in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (59_999, 7, 1)]
        {
            let to = flow(host, number, service);
            assert_eq!(to.ip().octets()[..2], [10, 2], "{to}");
            let first = 10_000 + 20_000 * service as u16;
            assert!((first..first + 20_000).contains(&to.port()), "{to}");
            assert!(seen.insert(to), "{to} twice");
        }
        assert_eq!(ports(1), "30000-49999");
    }
}
