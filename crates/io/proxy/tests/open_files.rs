//! A flood of connections at the process' limit of open files: they are served on, and when the flood has gone
//! all are. The proxy is a process of its own, this test started again: the limit is a process'.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_config::Document;
use plimsoll_proxy::{Proxy, ProxyConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const BACKENDS: &str = "PLIMSOLL_TEST_OPEN_FILES_BACKENDS";
const PATIENCE: Duration = Duration::from_secs(60);
/// Of the proxy, and connections beyond it.
const LIMIT: u64 = 64;
const FLOOD: usize = 200;

/// Not a test by itself: the proxy's process, where there is a backend in the environment.
#[test]
fn the_proxy() {
    let Ok(backends) = std::env::var(BACKENDS) else { return };
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), maximum }).expect("a lower limit");
    let text = format!(
        "proxy:
  threads: 1
  egress: [ {{ name: out, listen: \"127.0.0.1:1\" }} ]
  pools: [ {{ name: pool, policy: round_robin, backends: [ {backends} ] }} ]
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
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
    let clients = &proxy.status().egress[0].clients;
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

fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut bytes = [0; 4_096];
                while stream.read(&mut bytes).is_ok_and(|n| n > 0) {
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

/// Whether a request on this connection is answered 200 within a while.
fn is_served(stream: &mut TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).expect("a timeout");
    if stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").is_err() {
        return false;
    }
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

#[test]
fn a_flood_at_the_limit_of_open_files_leaves_the_others_served() {
    // More than one, so that a client of before needs connections to backends that it had none to.
    let backends: Vec<SocketAddr> = (0..3).map(|_| backend()).collect();
    let mut proxy = Process::start(&backends);
    let room: usize = proxy.says("has room for ").parse().expect("a number");
    assert!((4..LIMIT as usize / 2).contains(&room), "{room}");
    let address: SocketAddr = proxy.says("listens ").parse().expect("an address");
    let mut first = TcpStream::connect(address).expect("a connection");
    assert!(is_served(&mut first, PATIENCE));
    let mut flood: Vec<TcpStream> =
        (0..FLOOD).map(|_| TcpStream::connect(address).expect("the kernel takes it")).collect();
    // A client that was there before is served all the while, and as many more as there is room for.
    for _ in 0..20 {
        assert!(is_served(&mut first, PATIENCE));
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
    if let Some(mut input) = proxy.input.take() {
        input.write_all(b"end\n").expect("told to end");
    }
    let mut number = |what| proxy.says(what).parse::<usize>().expect("a number");
    assert_eq!(number("failures "), 0, "files were left");
    assert!(number("turned away ") >= FLOOD - room, "the limit was never reached");
}
