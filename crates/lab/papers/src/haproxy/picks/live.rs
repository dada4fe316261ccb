//! The real HAProxy: a section per method, all before the same five servers, everything over sockets of the
//! file system, so that a hundred thousand connections use up no ports.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_lanes::{Family, LaneError, Member, find_program, program_places};
use plimsoll_model::Nanos;
use plimsoll_policy::{Finish, Policy, Request};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Compared;
use super::cases::{Case, Ends};
use super::stream::Sent;
use crate::Failure;

/// How long anything may take that takes a moment, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Requests that stay open at most: fewer than the limits of `first` together.
const MOST_OPEN: usize = 40;
/// Requests between two changes of a weight.
const REWEIGH_EVERY: u64 = 23;
const SERVERS: usize = 5;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// A request that has come to a server, which answers by writing.
type Arrived = (usize, UnixStream);

/// A HAProxy, its servers, and where requests arrive.
pub struct Live {
    arrived: Mutex<Receiver<Arrived>>,
    ended: Arc<AtomicBool>,
    dir: PathBuf,
    _haproxy: Member,
    _family: Family,
}

impl Live {
    /// Starts everything for these methods.
    pub fn start(cases: &[Case]) -> Result<Self, Failure> {
        let family = Family::start()?;
        let dir = family.dir().to_owned();
        let (tell, arrived) = channel();
        let ended = Arc::new(AtomicBool::new(false));
        for server in 0..SERVERS {
            let listener = UnixListener::bind(server_path(&dir, server));
            let listener = listener.map_err(Failure::file("listen"))?;
            let (tell, ended) = (tell.clone(), Arc::clone(&ended));
            std::thread::spawn(move || accept(&listener, server, &tell, &ended));
        }
        let file = dir.join("haproxy.cfg");
        std::fs::write(&file, configuration(&dir, cases)).map_err(Failure::file("write"))?;
        let program = find_program("haproxy", program_places()).ok_or(LaneError::NoHaproxy)?;
        let mut command = Command::new(program);
        command.arg("-db").arg("-f").arg(&file).stdin(Stdio::null());
        let started = family.spawn("haproxy", &mut command);
        let mut haproxy = started.map_err(Failure::file("start haproxy"))?;
        let end = Instant::now() + PATIENCE;
        while UnixStream::connect(dir.join("admin")).is_err() {
            if let Some(ended) = haproxy.ended() {
                return Err(ended.into());
            }
            if Instant::now() > end {
                return Err(Failure::Other("haproxy does not open its admin socket".to_owned()));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(Live { arrived: Mutex::new(arrived), ended, dir, _haproxy: haproxy, _family: family })
    }

    /// Sends requests to this method and picks for the same ones.
    pub fn compare(
        &self,
        place: usize,
        case: &Case,
        seed: u64,
        requests: u64,
    ) -> Result<Compared, Failure> {
        let limits = case.limits.map_or_else(Vec::new, Vec::from);
        let policy = case.kind.build_limited(&case.weights, &case.settings(), &limits);
        let policy = policy.map_err(|error| Failure::Other(error.to_string()))?;
        let mut trial = Trial {
            live: self,
            case,
            section: section(place),
            front: self.dir.join(section(place)),
            admin: Admin::connect(&self.dir.join("admin"))?,
            policy,
            weights: case.weights,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed ^ (place as u64) << 32),
            open: Vec::new(),
            now: Nanos::ZERO,
        };
        trial.run(requests)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for server in 0..SERVERS {
            // Wakes the thread that accepts; one that is gone need not be woken.
            let _ = UnixStream::connect(server_path(&self.dir, server));
        }
    }
}

fn server_path(dir: &Path, server: usize) -> PathBuf {
    dir.join(format!("s{server}"))
}

fn section(place: usize) -> String {
    format!("m{place}")
}

/// Hands over every connection as soon as its request is complete.
fn accept(listener: &UnixListener, server: usize, tell: &Sender<Arrived>, ended: &AtomicBool) {
    while let Ok((mut stream, _)) = listener.accept() {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        let mut bytes = Vec::new();
        let mut part = [0; 4_096];
        let whole = |bytes: &[u8]| bytes.starts_with(&[3]) || bytes.ends_with(b"\r\n\r\n");
        while !whole(&bytes) {
            match stream.read(&mut part) {
                Ok(n) if n > 0 => bytes.extend_from_slice(&part[..n]),
                _ => break,
            }
        }
        if whole(&bytes) && tell.send((server, stream)).is_err() {
            return;
        }
    }
}

fn configuration(dir: &Path, cases: &[Case]) -> String {
    let at = |name: &str| format!("unix@{}", dir.join(name).display());
    let mut text = format!(
        "global\n    nbthread 1\n    stats socket {} mode 600 level admin\n    no strict-limits\ndefaults\n    \
         timeout connect 30s\n    timeout client 600s\n    timeout server 600s\n    timeout queue 600s\n",
        dir.join("admin").display()
    );
    for (i, case) in cases.iter().enumerate() {
        let mode = if case.is_rdp() { "tcp" } else { "http" };
        text += &format!(
            "listen {0}\n    mode {mode}\n    bind {1} accept-proxy\n",
            section(i),
            at(&section(i))
        );
        if case.is_rdp() {
            text += "    tcp-request inspect-delay 5s\n    tcp-request content accept if { req.len gt 0 }\n";
        }
        text += &format!("    {}\n", case.lines);
        for (server, weight) in case.weights.iter().enumerate() {
            let limit = case.limits.map_or_else(String::new, |l| format!(" maxconn {}", l[server]));
            let path = format!("unix@{}", server_path(dir, server).display());
            text += &format!("    server s{server} {path} weight {weight}{limit}\n");
        }
    }
    text
}

/// HAProxy's command line, kept open.
struct Admin {
    stream: BufReader<UnixStream>,
}

impl Admin {
    fn connect(path: &Path) -> Result<Self, Failure> {
        let stream = UnixStream::connect(path).map_err(Failure::file("reach haproxy"))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(Failure::file("set a time-out"))?;
        let mut admin = Admin { stream: BufReader::new(stream) };
        admin.write("prompt")?;
        admin.answer()?;
        Ok(admin)
    }

    fn write(&mut self, command: &str) -> Result<(), Failure> {
        let line = format!("{command}\n");
        self.stream.get_mut().write_all(line.as_bytes()).map_err(Failure::file("ask haproxy"))
    }

    /// Up to the next prompt.
    fn answer(&mut self) -> Result<String, Failure> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\n> ") && bytes != b"> " {
            let read = self.stream.read_until(b' ', &mut bytes);
            if read.map_err(Failure::file("hear haproxy"))? == 0 {
                return Err(Failure::Other("haproxy has closed its admin socket".to_owned()));
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn ask(&mut self, command: &str) -> Result<String, Failure> {
        self.write(command)?;
        self.answer()
    }

    /// Requests that the servers of this section have now: the fifth column of the statistics.
    fn in_flight(&mut self, section: &str) -> Result<usize, Failure> {
        let text = self.ask(&format!("show stat {section} 4 -1"))?;
        let rows = text.lines().filter(|line| line.starts_with(section));
        Ok(rows.filter_map(|row| row.split(',').nth(4)?.parse::<usize>().ok()).sum())
    }
}

/// A client whose request is open, where it is, and how it is ended.
struct Open {
    client: UnixStream,
    server: usize,
    stream: UnixStream,
}

/// One method under way.
struct Trial<'a> {
    live: &'a Live,
    case: &'a Case,
    section: String,
    front: PathBuf,
    admin: Admin,
    policy: Box<dyn Policy>,
    weights: [u32; SERVERS],
    rng: Xoshiro256PlusPlus,
    open: Vec<Open>,
    now: Nanos,
}

impl Trial<'_> {
    fn run(&mut self, requests: u64) -> Result<Compared, Failure> {
        let mut seen = Compared {
            name: self.case.name,
            requests,
            identical: 0,
            first_apart: None,
            servers_used: 0,
        };
        let key = self.case.hash_key();
        let mut used = [false; SERVERS];
        for i in 0..requests {
            self.change(i)?;
            let sent = Sent::draw(self.case, &mut self.rng);
            let client = self.send(&sent)?;
            let (server, stream) = self.arrival(i)?;
            let key = key.as_ref().and_then(|key| key.key(&sent));
            let request = Request::keyed(key);
            let ours = self.policy.pick(&request, self.now, &mut self.rng);
            // It goes on from what HAProxy did, so that one difference is one difference.
            self.policy.on_start(server, self.now);
            used[server] = true;
            if ours == Some(server) {
                seen.identical += 1;
            } else if seen.first_apart.is_none() {
                seen.first_apart = Some((i, server, ours));
            }
            self.open.push(Open { client, server, stream });
            if self.case.ends == Ends::AtOnce {
                self.end(0)?;
            }
        }
        while !self.open.is_empty() {
            self.end(0)?;
        }
        seen.servers_used = used.iter().filter(|used| **used).count();
        Ok(seen)
    }

    /// Before each request: some that are open end, and now and then a weight changes.
    fn change(&mut self, i: u64) -> Result<(), Failure> {
        // Waves: the number open swings between few and many.
        let most = if (i / 97).is_multiple_of(2) { MOST_OPEN } else { 6 };
        if self.case.ends == Ends::Later {
            let mut ended = false;
            while self.open.len() >= most || (!self.open.is_empty() && self.rng.random_bool(0.4)) {
                let which = self.rng.random_range(0..self.open.len());
                self.end(which)?;
                ended = true;
            }
            if ended {
                self.wait_until_counted()?;
            }
        }
        if self.case.reweighted && i % REWEIGH_EVERY == REWEIGH_EVERY - 1 {
            let which = self.rng.random_range(0..SERVERS);
            // The first never leaves, so that a server is left.
            self.weights[which] = self.rng.random_range(u32::from(which == 0)..=256);
            let to = self.weights[which];
            let said =
                self.admin.ask(&format!("set server {}/s{which} weight {to}", self.section))?;
            if !said.trim_matches([' ', '\n', '>']).is_empty() {
                return Err(Failure::Other(format!("haproxy takes no weight of {to}: {said}")));
            }
            self.policy.set_weights(&self.weights);
        }
        Ok(())
    }

    fn send(&mut self, sent: &Sent) -> Result<UnixStream, Failure> {
        let mut client =
            UnixStream::connect(&self.front).map_err(Failure::file("reach haproxy"))?;
        client.set_read_timeout(Some(PATIENCE)).map_err(Failure::file("set a time-out"))?;
        let bytes = sent.bytes(self.case);
        client.write_all(&bytes).map_err(Failure::file("send a request"))?;
        Ok(client)
    }

    fn arrival(&self, i: u64) -> Result<Arrived, Failure> {
        let arrived = self.live.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.recv_timeout(PATIENCE).map_err(|_| {
            let name = self.case.name;
            Failure::Other(format!("{name}: request {i} came to no server within {PATIENCE:?}"))
        })
    }

    /// Answers one, and waits until its client has seen the end.
    fn end(&mut self, which: usize) -> Result<(), Failure> {
        let Open { mut client, server, mut stream } = self.open.swap_remove(which);
        stream.write_all(ANSWER).map_err(Failure::file("answer"))?;
        drop(stream);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).map_err(Failure::file("read an answer"))?;
        // In mode http HAProxy writes the names of headers small.
        if !rest.starts_with(b"HTTP/1.1 200 ") {
            let said = String::from_utf8_lossy(&rest[..rest.len().min(100)]).into_owned();
            let name = self.case.name;
            return Err(Failure::Other(format!("{name}: a client was answered `{said}`")));
        }
        self.now = self.now + Duration::from_millis(1);
        self.policy.on_finish(server, &Finish::success(Duration::from_millis(1)), self.now);
        Ok(())
    }

    /// The client may see the end before HAProxy has counted it.
    fn wait_until_counted(&mut self) -> Result<(), Failure> {
        let end = Instant::now() + PATIENCE;
        while self.admin.in_flight(&self.section)? != self.open.len() {
            if Instant::now() > end {
                return Err(Failure::Other(
                    "haproxy counts more requests than there are".to_owned(),
                ));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}
