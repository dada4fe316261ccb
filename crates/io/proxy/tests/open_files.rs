//! A flood of connections at the process' limit of open files: they are served on, and when the flood has gone
//! all are. The proxy is a process of its own, this test started again: the limit is a process'.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_config::Document;
use plimsoll_proxy::{Proxy, ProxyConfig, RequestStatus};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const BACKENDS: &str = "PLIMSOLL_TEST_OPEN_FILES_BACKENDS";
const PATIENCE: Duration = Duration::from_secs(60);
/// Of the proxy, and connections beyond it.
const LIMIT: u64 = 64;
const FLOOD: usize = 200;
/// Whoever fails once gets nothing more.
const EJECTION: &str = "ejection: { consecutive_failures: 1, max_percent: 100 }";
const COUNT: usize = 4;

/// Not a test by itself: the proxy's process, where there is a backend in the environment.
#[test]
fn the_proxy() {
    let Ok(backends) = std::env::var(BACKENDS) else { return };
    let limit = |files| {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum }).expect("a limit");
    };
    limit(LIMIT);
    let text = format!(
        "proxy:
  threads: 1
  egress: [ {{ name: out, listen: \"127.0.0.1:1\" }} ]
  pools: [ {{ name: pool, policy: hash_map, key: uri, {EJECTION}, backends: [ {backends} ] }} ]
"
    );
    let document = Document::parse("test", &text).expect("YAML");
    let mut config = document
        .read(|c| c.fields(&["proxy"])?.required("proxy", "a section", ProxyConfig::read))
        .expect("a section");
    config.egress[0].listen.set_port(0);
    let proxy = Proxy::start(&config).expect("a proxy");
    // The parent looks for it; what the harness prints stands before it.
    println!("\nhas room for {}", proxy.status().most_connections);
    println!("\nlistens {}", proxy.addresses()[0].1);
    for line in std::io::stdin().lines().map_while(Result::ok) {
        match line.as_str() {
            "no more files" => limit(0),
            "files" => limit(LIMIT),
            _ => break,
        }
        println!("\ndone");
    }
    let status = proxy.status();
    let sum = |of: fn(&RequestStatus) -> u64| -> u64 {
        status.egress[0].pools[0].backends.iter().map(|backend| of(&backend.requests)).sum()
    };
    let lost = [sum(|sent| sent.no_socket), sum(|sent| sent.failed), sum(|sent| sent.abandoned)];
    println!("\nno socket, failed, abandoned: {lost:?}");
    let clients = &status.egress[0].clients;
    println!("\nfailures {}", clients.accept_failures);
    println!("\nturned away {}", clients.turned_away);
}

struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(backends: &[SocketAddr]) -> Self {
        let backends = backends.iter().enumerate();
        let backends: Vec<String> =
            backends.map(|(i, at)| format!("{{ name: b{i}, address: \"{at}\" }}")).collect();
        let this = std::env::current_exe().expect("this test");
        let mut child = Command::new(this)
            .args(["--exact", "the_proxy", "--nocapture"])
            .env(BACKENDS, backends.join(", "))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let input = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().expect("its output"));
        Process { child, input, lines }
    }

    fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its input");
        input.write_all(format!("{line}\n").as_bytes()).expect("it listens");
    }

    /// What follows this word on a line of its own.
    fn says(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            let n = self.lines.read_line(&mut line).expect("its output");
            assert!(n > 0, "it ended before it said {word}");
            if let Some(rest) = line.trim().strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Backends that count requests, and hold those for `/hold…` while they are closed.
#[derive(Default)]
struct Backends {
    /// How many have come to each; whether they are closed.
    state: Mutex<([usize; COUNT], bool)>,
    changed: Condvar,
}

impl Backends {
    fn start() -> (Arc<Self>, Vec<SocketAddr>) {
        let backends: Arc<Self> = Arc::default();
        let addresses = (0..COUNT).map(|index| backends.clone().listen(index)).collect();
        (backends, addresses)
    }

    fn listen(self: Arc<Self>, index: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let backends = self.clone();
                thread::spawn(move || {
                    let mut bytes = [0; 4_096];
                    while stream.read(&mut bytes).is_ok_and(|n| n > 0) {
                        backends.hold(index, bytes.starts_with(b"GET /hold"));
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                        if stream.write_all(answer).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        address
    }

    fn hold(&self, index: usize, is_held: bool) {
        let mut state = self.state.lock().expect("a state");
        state.0[index] += 1;
        self.changed.notify_all();
        drop(self.changed.wait_timeout_while(state, PATIENCE, |state| is_held && state.1));
    }

    fn close(&self, is_closed: bool) {
        self.state.lock().expect("a state").1 = is_closed;
        self.changed.notify_all();
    }

    fn counts(&self) -> [usize; COUNT] {
        self.state.lock().expect("a state").0
    }

    /// Waits until so many have come to this one.
    fn until(&self, index: usize, count: usize) {
        let state = self.state.lock().expect("a state");
        let is_missing = |state: &mut ([usize; COUNT], bool)| state.0[index] < count;
        let (state, _) = self.changed.wait_timeout_while(state, PATIENCE, is_missing).expect("it");
        assert!(state.0[index] >= count, "{:?} of {count} have come", state.0);
    }
}

fn ask(stream: &mut TcpStream, path: &str) -> bool {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).is_ok()
}

/// Whether what was asked is answered 200 within a while.
fn is_answered(stream: &mut TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).expect("a timeout");
    let mut bytes = Vec::new();
    let mut piece = [0; 1_024];
    while !bytes.ends_with(b"\r\n\r\nok") {
        match stream.read(&mut piece) {
            Ok(n @ 1..) => bytes.extend_from_slice(&piece[..n]),
            _ => return false,
        }
    }
    bytes.starts_with(b"HTTP/1.1 200 ")
}

fn is_served(stream: &mut TcpStream, within: Duration) -> bool {
    ask(stream, "/") && is_answered(stream, within)
}

#[test]
fn idle_connections_make_room_for_requests_to_other_backends() {
    let (backends, addresses) = Backends::start();
    let mut proxy = Process::start(&addresses);
    let room: usize = proxy.says("has room for ").parse().expect("a number");
    let address: SocketAddr = proxy.says("listens ").parse().expect("an address");
    let mut clients: Vec<TcpStream> =
        (0..room).map(|_| TcpStream::connect(address).expect("a connection")).collect();
    // A path that goes to this backend.
    let mut path_to = |wanted: usize| {
        let mut paths = (0..1_000).map(|n| format!("/hold/{n}"));
        let leads_there = |path: &String| {
            let before = backends.counts()[wanted];
            assert!(ask(&mut clients[0], path) && is_answered(&mut clients[0], PATIENCE));
            backends.counts()[wanted] > before
        };
        paths.find(leads_there).expect("a path")
    };
    let paths: Vec<String> = (0..COUNT).map(&mut path_to).collect();
    // As many connections are idle to each as it had requests at a time: together more than there are files.
    for (index, path) in paths.iter().enumerate() {
        let before = backends.counts()[index];
        backends.close(true);
        assert!(clients.iter_mut().all(|client| ask(client, path)));
        backends.until(index, before + room);
        backends.close(false);
        assert!(clients.iter_mut().all(|client| is_answered(client, PATIENCE)));
    }
    assert!(room * (COUNT + 1) > LIMIT as usize, "{room}: the limit was never reached");
}

#[test]
fn a_flood_at_the_limit_of_open_files_leaves_the_others_served() {
    // More than one, so that a client of before needs connections to backends that it had none to.
    let (_, addresses) = Backends::start();
    let mut proxy = Process::start(&addresses);
    let room: usize = proxy.says("has room for ").parse().expect("a number");
    assert!((4..LIMIT as usize / 2).contains(&room), "{room}");
    let address: SocketAddr = proxy.says("listens ").parse().expect("an address");
    let mut first = TcpStream::connect(address).expect("a connection");
    assert!(is_served(&mut first, PATIENCE));
    let mut flood: Vec<TcpStream> =
        (0..FLOOD).map(|_| TcpStream::connect(address).expect("the kernel takes it")).collect();
    // A client that was there before is served all the while, and as many more as there is room for.
    for n in 0..20 {
        assert!(ask(&mut first, &format!("/{n}")) && is_answered(&mut first, PATIENCE));
    }
    let served = flood.iter_mut().filter_map(|one| is_served(one, PATIENCE).then_some(())).count();
    assert_eq!(served, room - 1);
    assert!(is_served(&mut first, PATIENCE));
    drop(flood);
    let began = Instant::now();
    while !TcpStream::connect(address).is_ok_and(|mut s| is_served(&mut s, Duration::from_secs(5)))
    {
        assert!(began.elapsed() < PATIENCE, "nobody is served after the flood");
    }
    assert!(is_served(&mut first, PATIENCE));
    proxy.say("end");
    let mut number = |what| proxy.says(what).parse::<usize>().expect("a number");
    assert_eq!(number("failures "), 0, "files were left");
    assert!(number("turned away ") >= FLOOD - room, "the limit was never reached");
}

#[test]
fn a_request_for_which_no_file_is_left_is_no_failure_of_a_backend() {
    let (backends, addresses) = Backends::start();
    let mut proxy = Process::start(&addresses);
    let address: SocketAddr = proxy.says("listens ").parse().expect("an address");
    let mut client = TcpStream::connect(address).expect("a connection");
    let serves =
        |client: &mut TcpStream, path: &str| ask(client, path) && is_answered(client, PATIENCE);
    let paths = || (0..1_000).map(|n| format!("/{n}"));
    assert!(serves(&mut client, "/0"));
    proxy.say("no more files");
    proxy.says("done");
    // What is idle serves as long as it is.
    let mut refused = String::new();
    for path in paths() {
        let mut bytes = [0; 4_096];
        assert!(ask(&mut client, &path));
        let length = client.read(&mut bytes).expect("an answer");
        refused = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if !refused.starts_with("HTTP/1.1 200") {
            break;
        }
    }
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.ends_with("the proxy has no more connections to give\n"), "{refused}");
    proxy.say("files");
    proxy.says("done");
    // None was ejected: all serve.
    let before = backends.counts();
    paths().take(100).for_each(|path| assert!(serves(&mut client, &path)));
    let after = backends.counts();
    assert!(before.iter().zip(after).all(|(before, after)| after > *before), "{after:?}");
    proxy.say("end");
    // The backend of its key, and three more.
    assert_eq!(proxy.says("no socket, failed, abandoned:"), "[4, 0, 0]");
}
