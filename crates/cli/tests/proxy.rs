//! `plimsoll proxy` as a child process: it serves, says what it does, and ends in order.

#[path = "e2e/rig/ports.rs"]
mod ports;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ports::free_address;
use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(60);

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Answers every request when asked to, one connection each.
fn backend(told: mpsc::Receiver<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
                head.push(byte[0]);
            }
            if told.recv_timeout(PATIENCE).is_ok() {
                let _ = stream.write_all(
                    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
                );
            }
        }
    });
    address
}

fn plimsoll(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(arguments).output().expect("run plimsoll")
}

/// Ended when it is dropped, whatever a test found.
struct Daemon(Child);

impl Daemon {
    fn start(config: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["proxy", "run", "--config"]).arg(config);
        Daemon(command.stdin(Stdio::null()).spawn().expect("start plimsoll"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("a signal");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

#[test]
fn it_serves_says_what_it_does_and_finishes_requests_before_it_ends() {
    let (tell, told) = mpsc::channel();
    let backend = backend(told);
    let directory = tempfile::tempdir().expect("a directory");
    let (config, socket) = (directory.path().join("p.yaml"), directory.path().join("p.sock"));
    let (listen, metrics) = (free_address(), free_address());
    let text = format!(
        "proxy:
  threads: 2
  socket: {}
  metrics: {{ listen: \"{metrics}\" }}
  egress: [ {{ name: out, listen: \"{listen}\" }} ]
  pools: [ {{ name: pool, policy: bloc, backends: [ {{ name: b1, address: \"{backend}\" }} ] }} ]
",
        socket.display()
    );
    std::fs::write(&config, text).expect("written");
    let file = config.to_str().expect("a path");

    let checked = plimsoll(&["check", "--config", file]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(said.contains("ok (proxy: 0 ingress, 1 egress, 1 pool, 1 backend)"), "{said}");
    let status = || plimsoll(&["proxy", "status", "--config", file, "-o", "json"]);
    assert_eq!(status().status.code(), Some(4), "nothing answers yet");

    let mut daemon = Daemon::start(&config);
    until("it answers", || status().status.success());
    // The same configuration again: it goes on.
    daemon.signal(Signal::HUP);
    tell.send(()).expect("a backend");
    assert!(answer(ask(listen, "/")).ends_with("\r\n\r\nok"));
    let told: serde_json::Value = serde_json::from_slice(&status().stdout).expect("JSON");
    assert_eq!(told["egress"][0]["pools"][0]["backends"][0]["succeeded"], 1);
    assert_eq!(told["threads"], 2);
    let table = plimsoll(&["proxy", "status", "--socket", socket.to_str().expect("a path")]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("b1") && table.starts_with("ENTRY"), "{table}");
    let drained = plimsoll(&["proxy", "drain", "--config", file, "b1"]);
    let why = String::from_utf8_lossy(&drained.stderr).into_owned();
    assert_eq!(drained.status.code(), Some(1), "{why}");
    assert!(why.contains("\"b1\" is the last backend of its pool"), "{why}");
    assert!(plimsoll(&["proxy", "drain", "--config", file, "b1", "--undo"]).status.success());
    let page = answer(ask(metrics, "/metrics"));
    for sample in [
        "plimsoll_proxy_sent_total{entry=\"out\",pool=\"pool\",policy=\"bloc\",backend=\"b1\",ending=\"success\"} 1",
        "plimsoll_proxy_latency_seconds_count{entry=\"out\",pool=\"pool\",policy=\"bloc\",backend=\"b1\"} 1",
        "plimsoll_proxy_requests_total{entry=\"out\"} 1",
    ] {
        assert!(page.contains(sample), "{sample}\n{page}");
    }

    let under_way = ask(listen, "/");
    let in_flight = || {
        let told: serde_json::Value = serde_json::from_slice(&status().stdout).expect("JSON");
        told["egress"][0]["pools"][0]["backends"][0]["in_flight"].as_u64()
    };
    until("it is in flight", || in_flight() == Some(1));
    daemon.signal(Signal::TERM);
    until("nobody listens", || TcpStream::connect(listen).is_err());
    tell.send(()).expect("a backend");
    assert!(answer(under_way).ends_with("\r\n\r\nok"));
    assert_eq!(daemon.0.wait().expect("an end").code(), Some(0));
    assert!(!socket.exists(), "its socket is gone");
}

#[test]
fn it_reads_its_configuration_again_and_refuses_one_that_is_wrong() {
    let directory = tempfile::tempdir().expect("a directory");
    let (config, socket) = (directory.path().join("p.yaml"), directory.path().join("p.sock"));
    let (first, second) = (free_address(), free_address());
    let backend = keeping_backend();
    let text = |entry: &str, listen: SocketAddr| {
        format!(
            "proxy:
  threads: 2
  socket: {}
  egress: [ {{ name: {entry}, listen: \"{listen}\" }} ]
  pools: [ {{ name: pool, policy: random, backends: [ {{ name: b1, address: \"{backend}\" }} ] }} ]
",
            socket.display()
        )
    };
    std::fs::write(&config, text("one", first)).expect("written");
    let file = config.to_str().expect("a path");
    let daemon = Daemon::start(&config);
    let reload = || plimsoll(&["proxy", "reload", "--config", file]);
    until("it answers", || plimsoll(&["proxy", "status", "--config", file]).status.success());
    let mut kept = TcpStream::connect(first).expect("a connection");
    assert_eq!(asked(&mut kept), "HTTP/1.1 200 OK");

    // All that is wrong is reported in the answer; what is in force stays.
    let wrong = text("two", second).replace("threads: 2", "thread: 2").replace("random", "rand");
    std::fs::write(&config, wrong).expect("written");
    let refused = plimsoll(&["proxy", "reload", "--socket", socket.to_str().expect("a path")]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{why}");
    assert!(
        why.contains("proxy.thread: unknown key") && why.contains("no policy is called"),
        "{why}"
    );
    assert_eq!(asked(&mut kept), "HTTP/1.1 200 OK");

    // By a signal, and by the command.
    std::fs::write(&config, text("two", second)).expect("written");
    daemon.signal(Signal::HUP);
    until("it listens elsewhere", || TcpStream::connect(second).is_ok());
    until("it listens there no more", || TcpStream::connect(first).is_err());
    std::fs::write(&config, text("three", first)).expect("written");
    assert!(reload().status.success());
    until("it listens there again", || TcpStream::connect(first).is_ok());
    let told = plimsoll(&["proxy", "status", "--config", file, "-o", "json"]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).expect("JSON");
    assert_eq!(told["egress"][0]["name"], "three");
    std::fs::write(&config, text("three", first).replace("threads: 2", "threads: 3"))
        .expect("written");
    let why = String::from_utf8_lossy(&reload().stderr).into_owned();
    assert!(why.contains("proxy.threads differs from what the proxy was started with"), "{why}");
    assert!(plimsoll(&["proxy", "release", "--config", file, "pool"]).status.success());
    let none = plimsoll(&["proxy", "release", "--config", file, "none"]);
    assert_eq!(none.status.code(), Some(1));
}

#[test]
fn a_configuration_that_is_wrong_does_not_keep_its_operator_from_the_proxy() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name| directory.path().join(name);
    let (config, socket, backends) = (path("p.yaml"), path("p.sock"), path("backends.yaml"));
    let (list, broken) = (
        format!(
            "[ {{ name: b1, address: \"{}\" }}, {{ name: b2, address: \"127.0.0.1:9\" }} ]",
            keeping_backend()
        ),
        "[ { name: b1, address: nowhere } ]",
    );
    let text = format!(
        "proxy:
  threads: 1
  socket: {}
  egress: [ {{ name: out, listen: \"{}\" }} ]
  pools: [ {{ name: pool, policy: random, backends: {{ file: backends.yaml }} }} ]
",
        socket.display(),
        free_address()
    );
    std::fs::write(&config, text).expect("written");
    std::fs::write(&backends, &list).expect("written");
    let file = config.to_str().expect("a path");
    let asked = |command: &[&str]| plimsoll(&[&["proxy"], command, &["--config", file]].concat());
    let _daemon = Daemon::start(&config);
    until("it answers", || asked(&["status"]).status.success());
    for is_gone in [false, true] {
        match is_gone {
            false => std::fs::write(&backends, broken).expect("written"),
            true => std::fs::remove_file(&backends).expect("removed"),
        }
        for command in
            [&["status"][..], &["drain", "b2"], &["drain", "b2", "--undo"], &["release", "pool"]]
        {
            let output = asked(command);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{command:?}: {said}");
            let table = asked(&["status"]).stdout;
            let is_drained = String::from_utf8_lossy(&table).contains(" drained ");
            assert_eq!(is_drained, command == ["drain", "b2"], "the table says so");
        }
        // That is the proxy's own to validate: it says what is wrong.
        let reload = asked(&["reload"]);
        let said = String::from_utf8_lossy(&reload.stderr).into_owned();
        assert_eq!(reload.status.code(), Some(1), "{said}");
        assert!(said.contains("backends.yaml"), "{said}");
    }
}

/// A request on a connection that is kept; the response's status line.
fn asked(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").expect("sent");
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(b"\r\n\r\nok") {
        stream.read_exact(&mut byte).expect("an answer");
        bytes.push(byte[0]);
    }
    String::from_utf8_lossy(&bytes).lines().next().unwrap_or("").to_owned()
}

/// Answers any number of requests on any number of connections.
fn keeping_backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while stream.read(&mut byte).is_ok_and(|n| n > 0) {
                    head.push(byte[0]);
                    if head.ends_with(b"\r\n\r\n") {
                        head.clear();
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                        if stream.write_all(answer).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

#[test]
fn at_the_limit_of_open_files_it_serves_whom_it_has_and_takes_others_later() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("p.yaml");
    let listen = free_address();
    let text = format!(
        "proxy:
  threads: 1
  egress: [ {{ name: out, listen: \"{listen}\" }} ]
  pools: [ {{ name: pool, policy: random, backends: [ {{ name: b1, address: \"{}\" }} ] }} ]
",
        keeping_backend()
    );
    std::fs::write(&config, text).expect("written");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$0\" proxy run --config \"$1\""]);
    command.arg(env!("CARGO_BIN_EXE_plimsoll")).arg(&config);
    let _daemon = Daemon(command.stdin(Stdio::null()).spawn().expect("start plimsoll"));
    until("it listens", || TcpStream::connect(listen).is_ok());
    let mut first = TcpStream::connect(listen).expect("a connection");
    assert_eq!(asked(&mut first), "HTTP/1.1 200 OK");
    let crowd: Vec<TcpStream> =
        (0..150).map(|_| TcpStream::connect(listen).expect("the kernel takes it")).collect();
    for _ in 0..20 {
        assert_eq!(asked(&mut first), "HTTP/1.1 200 OK");
        thread::sleep(Duration::from_millis(10));
    }
    drop(crowd);
    // One that comes before the proxy has noticed that the crowd is gone is turned away, maybe by a reset.
    let is_served = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(listen)?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text.starts_with("HTTP/1.1 200 OK"))
    };
    until("others are served", || matches!(is_served(), Ok(true)));
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_nothing_is_started() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("p.yaml");
    let text = "proxy:
  egress: [ { name: out, listen: \"127.0.0.1:8080\", capture: true } ]
  pools: [ { name: pool, policy: blocc, backends: [ { name: b1, address: \"app:80\" } ] } ]
";
    std::fs::write(&config, text).expect("written");
    let file = config.to_str().expect("a path");
    for command in [&["check"][..], &["proxy", "run"]] {
        let output = plimsoll(&[command, &["--config", file]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
        for problem in
            [":2:61: proxy.egress[0].capture:", "proxy.pools[0].policy:", "backends[0].address:"]
        {
            assert!(said.contains(problem), "{command:?}: {said}");
        }
    }
}

#[test]
fn an_address_that_is_taken_is_said() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("p.yaml");
    let text = format!(
        "proxy:\n  ingress: [ {{ name: in, listen: \"{address}\", upstream: \"127.0.0.1:1\" }} ]\n"
    );
    std::fs::write(&config, text).expect("written");
    let output = plimsoll(&["proxy", "run", "--config", config.to_str().expect("a path")]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("in: cannot listen on {address}: Address already in use")),
        "{said}"
    );
}
