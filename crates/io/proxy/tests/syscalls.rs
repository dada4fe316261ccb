//! A plain request costs four system calls: read and written on either side. strace counts those of the one thread
//! that serves, which it slows down so much that what comes meanwhile is waited for together.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_config::Document;
use plimsoll_proxy::{Proxy, ProxyConfig};

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 40;
const MOST_PER_REQUEST: f64 = 4.2;
/// A machine that gives the clients no time lets the proxy wait for each of them alone.
const ATTEMPTS: usize = 5;

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
    content-length: 2\r\nplimsoll-chip: 1\r\n\r\nok";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: shop\r\n\r\n";

fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut bytes = [0; 4_096];
                while stream.read(&mut bytes).is_ok_and(|n| n > 0) {
                    if stream.write_all(RESPONSE).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn proxy(backends: &[SocketAddr]) -> Proxy {
    let backend =
        |(i, address): (usize, &SocketAddr)| format!("{{ name: b{i}, address: \"{address}\" }}");
    let backends: Vec<String> = backends.iter().enumerate().map(backend).collect();
    let text = format!(
        "proxy:
  threads: 1
  egress: [ {{ name: out, listen: \"127.0.0.1:1\" }} ]
  pools: [ {{ name: pool, policy: bloc, backends: [ {} ] }} ]
",
        backends.join(", ")
    );
    let document = Document::parse("test", &text).expect("YAML");
    let mut config = document
        .read(|c| c.fields(&["proxy"])?.required("proxy", "a section", ProxyConfig::read))
        .expect("a section");
    config.egress[0].listen.set_port(0);
    Proxy::start(&config).expect("a proxy")
}

/// The kernel's number of the proxy's one thread.
fn serving_thread() -> String {
    let tasks = fs::read_dir("/proc/self/task").expect("threads");
    let mut tasks = tasks.filter_map(|task| Some(task.ok()?.path()));
    let is_it = |path: &std::path::PathBuf| {
        fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "proxy-0")
    };
    let path = tasks.find(is_it).expect("a thread proxy-0");
    path.file_name().expect("a number").to_string_lossy().into_owned()
}

fn rounds(clients: &mut [TcpStream], rounds: usize) {
    for _ in 0..rounds {
        for client in clients.iter_mut() {
            client.write_all(REQUEST).expect("a request is sent");
        }
        for client in clients.iter_mut() {
            let mut response = Vec::new();
            let mut bytes = [0; 1_024];
            while !response.ends_with(b"ok") {
                let n = client.read(&mut bytes).expect("a response");
                assert!(n > 0, "the proxy closed a connection");
                response.extend_from_slice(&bytes[..n]);
            }
            assert!(response.starts_with(b"HTTP/1.1 200 OK\r\n"), "{response:?}");
        }
    }
}

/// strace, attached; none where it may not be.
fn attached(thread: &str, out: &str) -> Option<Child> {
    let mut strace = Command::new("strace");
    strace.args(["-c", "-o", out, "-p", thread]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = strace.spawn().ok()?;
    let began = Instant::now();
    loop {
        let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
        if status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0")) {
            return Some(child);
        }
        if child.try_wait().ok()?.is_some() || began.elapsed() > Duration::from_secs(30) {
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Calls by name, of strace's summary.
fn counted(summary: &str) -> Vec<(String, u64)> {
    let call = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (name, count) = (fields.last()?, fields.get(3)?.parse().ok()?);
        (*name != "total").then(|| ((*name).to_owned(), count))
    };
    summary.lines().filter_map(call).collect()
}

#[test]
fn a_plain_request_costs_four_system_calls() {
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("skipped: strace is not installed");
        return;
    }
    let backends: Vec<SocketAddr> = (0..4).map(|_| backend()).collect();
    let proxy = proxy(&backends);
    let address = proxy.addresses()[0].1;
    let connect = |_| TcpStream::connect(address).expect("a connection");
    let mut clients: Vec<TcpStream> = (0..CONNECTIONS).map(connect).collect();
    // Connections to backends are made, as many as there will be.
    rounds(&mut clients, 20);
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("calls").to_string_lossy().into_owned();
    let thread = serving_thread();
    let mut least = f64::INFINITY;
    for attempt in 0..ATTEMPTS {
        let Some(mut strace) = attached(&thread, &out) else {
            eprintln!("skipped: strace may not trace this process");
            return;
        };
        rounds(&mut clients, ROUNDS);
        let pid = rustix::process::Pid::from_child(&strace);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is told");
        strace.wait().expect("strace ends");
        let calls = counted(&fs::read_to_string(&out).expect("its summary"));
        let total: u64 = calls.iter().map(|(_, count)| count).sum();
        let per_request = total as f64 / (CONNECTIONS * ROUNDS) as f64;
        eprintln!("attempt {attempt}: {per_request:.2} calls per request: {calls:?}");
        assert!(per_request > 3.9, "strace missed calls");
        least = least.min(per_request);
        if least <= MOST_PER_REQUEST {
            return;
        }
    }
    panic!("{least:.2} system calls per request, expected at most {MOST_PER_REQUEST}");
}
