//! A proxy among clients that leave and backends that reset, stall, refuse and die, while its configuration changes all
//! the time; and what must hold of it at the end. The test and the example `violence` share it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_config::Document;
use plimsoll_proxy::{Handle, Proxy, ProxyConfig, Status};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const BACKENDS: usize = 4;
const CLIENTS: u64 = 12;
const PATIENCE: Duration = Duration::from_secs(60);

/// What backends did.
#[derive(Default)]
struct Served {
    /// How often each request that must not be repeated was begun, by its number.
    posts: Mutex<BTreeMap<u64, u32>>,
    requests: AtomicU64,
}

/// The body of the response to a request: whoever gets another's, or a part of it, can tell.
fn body(id: u64) -> Vec<u8> {
    let length = [0, 2, 700, 20_000, 150_000][id as usize % 5];
    (0..length).map(|i| b'a' + ((id + i) % 26) as u8).collect()
}

/// One request of a backend; whether the connection goes on.
fn respond(stream: &mut BufReader<TcpStream>, served: &Served, rng: &mut impl Rng) -> Option<()> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let n = stream.read_line(&mut head).ok()?;
        (n > 0).then_some(())?;
    }
    let header = |name: &str| {
        let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(name))?;
        line.split(':').nth(1)?.trim().parse::<u64>().ok()
    };
    let id = header("x-id:").expect("every request has a number");
    let mut rest = vec![0; header("content-length:").unwrap_or(0) as usize];
    served.requests.fetch_add(1, Ordering::Relaxed);
    let refuses = rng.random_ratio(1, 8);
    if head.starts_with("POST") && !refuses {
        *served.posts.lock().expect("a map").entry(id).or_default() += 1;
    }
    stream.read_exact(&mut rest).ok()?;
    let body = body(id);
    let mut out = stream.get_ref().try_clone().ok()?;
    if refuses {
        let refusal = "HTTP/1.1 429 Too Many Requests\r\nplimsoll-rejected: full\r\ncontent-length: 5\r\n\r\nfull\n";
        return out.write_all(refusal.as_bytes()).ok();
    }
    let length = body.len();
    let plain = format!(
        "HTTP/1.1 200 OK\r\nx-id: {id}\r\nplimsoll-chip: 1\r\ncontent-length: {length}\r\n\r\n"
    );
    match rng.random_range(0..14) {
        // It breaks off: before the head, within it, within the body.
        0 => return None,
        1 => {
            out.write_all(&plain.as_bytes()[..20]).ok()?;
            return None;
        }
        2 => {
            out.write_all(plain.as_bytes()).ok()?;
            out.write_all(&body[..length / 2]).ok()?;
            return None;
        }
        // It takes its time.
        3 => {
            thread::sleep(Duration::from_millis(rng.random_range(1..60)));
            out.write_all(plain.as_bytes()).ok()?;
            for piece in body.chunks(body.len() / 4 + 1) {
                thread::sleep(Duration::from_millis(2));
                out.write_all(piece).ok()?;
            }
        }
        4 | 5 => {
            let head =
                format!("HTTP/1.1 200 OK\r\nx-id: {id}\r\ntransfer-encoding: chunked\r\n\r\n");
            out.write_all(head.as_bytes()).ok()?;
            for piece in body.chunks(9_000) {
                write!(out, "{:x}\r\n", piece.len()).ok()?;
                out.write_all(piece).ok()?;
                out.write_all(b"\r\n").ok()?;
            }
            out.write_all(b"0\r\n\r\n").ok()?;
        }
        6 => {
            let head = format!(
                "HTTP/1.1 200 OK\r\nx-id: {id}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            out.write_all(head.as_bytes()).ok()?;
            out.write_all(&body).ok()?;
            return None;
        }
        _ => {
            out.write_all(plain.as_bytes()).ok()?;
            out.write_all(&body).ok()?;
        }
    }
    Some(())
}

/// A backend that is dead now and then: it accepts no connection, and drops those it had.
fn backend(seed: u64, served: Arc<Served>, over: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut listener = Some(listener);
        while !over.load(Ordering::Relaxed) {
            let Some(open) = &listener else {
                thread::sleep(Duration::from_millis(30));
                listener = TcpListener::bind(address).ok();
                continue;
            };
            let Ok((stream, _)) = open.accept() else { continue };
            if rng.random_ratio(1, 60) {
                listener = None;
                continue;
            }
            let served = served.clone();
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(rng.random());
            thread::spawn(move || {
                let mut stream = BufReader::new(stream);
                while respond(&mut stream, &served, &mut rng).is_some() {}
            });
        }
    });
    address
}

/// A response as it came: its status, the number in it, its body; none if it broke off.
fn read(
    stream: &mut BufReader<TcpStream>,
    rng: &mut impl Rng,
) -> Option<(u16, Option<u64>, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let n = stream.read_line(&mut head).ok()?;
        (n > 0).then_some(())?;
    }
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let header = |name: &str| {
        let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(name))?;
        line.split(':').nth(1).map(|value| value.trim().to_owned())
    };
    let id = header("x-id:").and_then(|id| id.parse().ok());
    let mut body = Vec::new();
    if header("transfer-encoding:").is_some() {
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).ok()?;
            let size = usize::from_str_radix(line.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk).ok()?;
            body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                return Some((status, id, body));
            }
        }
    }
    let length: usize = header("content-length:")?.parse().ok()?;
    let slowly = length > 1_000 && rng.random_ratio(1, 6);
    body.resize(length, 0);
    for piece in body.chunks_mut(if slowly { 20_000 } else { 1 << 20 }) {
        if slowly {
            thread::sleep(Duration::from_millis(3));
        }
        stream.read_exact(piece).ok()?;
    }
    Some((status, id, body))
}

/// What clients saw: each of their requests is one of these.
#[derive(Clone, Copy, Default, Debug)]
pub struct Saw {
    /// Sent, or tried to.
    pub requests: u64,
    /// 200, whole and their own.
    pub answered: u64,
    /// 429, 502, 503 or 504.
    pub failed: u64,
    /// The connection was closed before all of an answer had come.
    pub broken: u64,
    /// Nothing came for longer than any time-out of the proxy.
    pub lost: u64,
    /// Given up by the client itself.
    pub left: u64,
}

fn client(address: SocketAddr, seed: u64, until: Instant) -> Saw {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut saw = Saw::default();
    let mut number = 0;
    while Instant::now() < until {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut stream = BufReader::new(stream);
        loop {
            number += 1;
            saw.requests += 1;
            let asked = Instant::now();
            let id = seed << 32 | number;
            let post = rng.random_ratio(1, 3);
            let length = if post { [0, 10, 3_000, 100_000][rng.random_range(0..4)] } else { 0 };
            let (method, length_line) = match post {
                true => ("POST", format!("content-length: {length}\r\n")),
                false => ("GET", String::new()),
            };
            let head =
                format!("{method} /{id} HTTP/1.1\r\nhost: shop\r\nx-id: {id}\r\n{length_line}\r\n");
            let mut out = stream.get_ref().try_clone().expect("a socket");
            let sent =
                out.write_all(head.as_bytes()).and_then(|()| out.write_all(&vec![b'x'; length]));
            // It leaves: at once, after a while, or by its sending half alone.
            if rng.random_ratio(1, 12) {
                saw.left += 1;
                thread::sleep(Duration::from_millis(rng.random_range(0..4)));
                if rng.random() {
                    let _ = stream.get_ref().shutdown(Shutdown::Write);
                    thread::sleep(Duration::from_millis(1));
                }
                break;
            }
            match read(&mut stream, &mut rng) {
                Some((200, of, got)) => {
                    assert_eq!(of, Some(id), "another's response");
                    assert!(got == body(id), "{id}: a body that is another's, or a part of one");
                    saw.answered += 1;
                }
                Some((429 | 502 | 503 | 504, None, _)) => saw.failed += 1,
                Some((status, of, _)) => panic!("{id}: status {status}, of {of:?}"),
                None => {
                    let is_lost = asked.elapsed() >= PATIENCE;
                    *(if is_lost { &mut saw.lost } else { &mut saw.broken }) += 1;
                    break;
                }
            }
            if sent.is_err() || rng.random_ratio(1, 10) || Instant::now() >= until {
                break;
            }
        }
    }
    saw
}

fn in_flight(status: &Status) -> u64 {
    let backends = status.egress.iter().flat_map(|e| &e.pools).flat_map(|p| &p.backends);
    backends.map(|backend| backend.requests.in_flight).sum()
}

/// How many requests wait for room, and have waited in the pools that there are now.
fn queued(status: &Status) -> (u64, u64) {
    let queues = status.egress.iter().flat_map(|e| &e.pools).filter_map(|pool| pool.queue);
    queues.fold((0, 0), |(now, total), queue| (now + queue.now, total + queue.total))
}

/// The configuration of this turn: policies, sticky cookies, queues, time-outs and backends change.
fn configuration(turn: u64, backends: &[SocketAddr]) -> ProxyConfig {
    let pool = [
        "policy: bloc",
        "policy: least_connections, max_in_flight: 1, refusals: { queue: { timeout: 1s, max_requests: 6 } }",
        "policy: bloc, refusals: { most: 1 }",
        "policy: expected_delay",
        "policy: least_connections, cookie: { name: SRV }",
        "policy: bloc, refusals: { most: 0, queue: {} }",
        "policy: bloc, cookie: { name: SRV, max_age: 1m }",
        "policy: peak_ewma, ejection: { consecutive_failures: 5, base: 100ms }",
    ][turn as usize % 8];
    // Now and then one is gone, and comes back as it was or under another name.
    let absent = (turn % 3 == 1).then_some((turn / 3) as usize % backends.len());
    let backend = |(i, address): (usize, &SocketAddr)| {
        let name = if i == 0 { turn / 12 } else { 0 };
        (Some(i) != absent).then(|| format!("{{ name: b{i}-{name}, address: \"{address}\" }}"))
    };
    let backends: Vec<String> = backends.iter().enumerate().filter_map(backend).collect();
    let idle = 5 + turn % 2;
    let text = format!(
        "proxy:
  threads: 2
  egress: [ {{ name: out, listen: \"127.0.0.1:1\", timeouts: {{ request: 5s, idle: {idle}s }} }} ]
  pools: [ {{ name: pool, {pool}, backends: [ {} ] }} ]
",
        backends.join(", ")
    );
    let document = Document::parse("test", &text).expect("YAML");
    let mut config = document
        .read(|c| c.fields(&["proxy"])?.required("proxy", "a section", ProxyConfig::read))
        .expect("a section");
    config.egress[0].listen.set_port(0);
    config
}

/// Reloads until then; how often, and whether requests have waited for room.
fn reload(proxy: &Handle, backends: &[SocketAddr], seed: u64, until: Instant) -> (u64, bool) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut turn, mut waited) = (0, false);
    while Instant::now() < until {
        thread::sleep(Duration::from_millis(rng.random_range(20..400)));
        waited |= queued(&proxy.status()).1 > 0;
        turn += 1;
        proxy.reload(&configuration(turn, backends)).expect("a reload that is right");
    }
    (turn, waited)
}

/// What came of it.
#[derive(Debug)]
pub struct Verdict {
    /// What clients saw.
    pub saw: Saw,
    /// Reloads.
    pub reloads: u64,
    /// Requests that backends have read.
    pub served: u64,
    /// Requests that must not be repeated and were begun by a backend more than once.
    pub twice: Vec<u64>,
    /// In flight when all was over, after a while.
    pub in_flight: u64,
    /// Whether requests have waited for room.
    pub waited: bool,
    /// Counted as waiting when all was over.
    pub waiting: u64,
    /// Clients that saw another's response, or a part of one, or what no proxy may say.
    pub wronged: usize,
}

impl Verdict {
    /// What must not be, in words.
    pub fn faults(&self) -> Vec<String> {
        let Verdict { saw, twice, in_flight, waiting, wronged, .. } = self;
        let ends = saw.answered + saw.failed + saw.broken + saw.lost + saw.left;
        let fault = |is: bool, text: String| is.then_some(text);
        [
            fault(*in_flight > 0, format!("{in_flight} requests are still counted as in flight")),
            fault(*waiting > 0, format!("{waiting} requests are still counted as waiting")),
            fault(!twice.is_empty(), format!("served twice: {twice:?}")),
            fault(*wronged > 0, format!("{wronged} clients got what was not theirs")),
            fault(saw.lost > 0, format!("{} requests were never answered", saw.lost)),
            fault(ends != saw.requests, format!("{} requests, {ends} ends", saw.requests)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Runs it for so long.
pub fn run(time: Duration, seed: u64) -> Verdict {
    let (served, over) = (Arc::new(Served::default()), Arc::new(AtomicBool::new(false)));
    let backends: Vec<SocketAddr> = (0..BACKENDS)
        .map(|i| backend(seed << 8 | i as u64, served.clone(), over.clone()))
        .collect();
    let proxy = Proxy::start(&configuration(0, &backends)).expect("a proxy");
    let address = proxy.addresses()[0].1;
    let until = Instant::now() + time;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|i| thread::spawn(move || client(address, seed << 8 | i, until)))
        .collect();
    let (reloads, waited) = reload(&proxy.handle(), &backends, seed, until);
    let (mut saw, mut wronged) = (Saw::default(), 0);
    for client in clients {
        // It says what it saw that must not be, and ends.
        let Ok(one) = client.join() else {
            wronged += 1;
            continue;
        };
        saw.requests += one.requests;
        saw.answered += one.answered;
        saw.failed += one.failed;
        saw.broken += one.broken;
        saw.lost += one.lost;
        saw.left += one.left;
    }
    let began = Instant::now();
    let is_over = |status: &Status| in_flight(status) == 0 && queued(status).0 == 0;
    while !is_over(&proxy.status()) && began.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(10));
    }
    over.store(true, Ordering::Relaxed);
    let posts = served.posts.lock().expect("a map");
    Verdict {
        saw,
        reloads,
        served: served.requests.load(Ordering::Relaxed),
        twice: posts.iter().filter(|(_, n)| **n > 1).map(|(id, _)| *id).collect(),
        in_flight: in_flight(&proxy.status()),
        waited,
        waiting: queued(&proxy.status()).0,
        wronged,
    }
}
