//! What reading the balancer costs: processor time of the daemon and of HAProxy, with probing off.
//!
//! `cargo bench -p plimsoll --bench polling [-- --seconds N] [--daemon PATH]`: for each size a real HAProxy
//! and `plimsoll run`, one service per HAProxy backend; first without requests, then with a few. HAProxy's
//! own cost of serving them, measured without the daemon, is taken off. `--daemon` measures another build.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Services, and servers of each.
const SIZES: [(usize, usize); 3] = [(1, 100), (10, 10), (300, 10)];
/// What clients ask of the whole pool, requests per second.
const RATE_RPS: u64 = 200;
/// Until the daemon has read everything once and has made its first decisions.
const WARM_UP: Duration = Duration::from_secs(10);

type Fallible<T> = Result<T, Box<dyn Error>>;

/// A child that does not outlive the measurement.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let span = Duration::from_secs(value("--seconds").map_or(Ok(60), |text| text.parse())?);
    let built = env!("CARGO_BIN_EXE_plimsoll");
    let daemon = value("--daemon").map_or_else(|| PathBuf::from(built), PathBuf::from);
    println!(
        "processor time over {} s, in % of a core; {RATE_RPS} req/s where there are any\n",
        span.as_secs()
    );
    println!("| services × servers | requests | daemon | HAProxy, for being read | descriptors |");
    println!("|---|---|---|---|---|");
    for (services, servers) in SIZES {
        measure(&daemon, services, servers, span)?;
    }
    Ok(())
}

fn measure(program: &Path, services: usize, servers: usize, span: Duration) -> Fallible<()> {
    let dir = tempfile::tempdir()?;
    let web = TcpListener::bind("127.0.0.1:0")?;
    let origin = web.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in web.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    let front = free_port()?;
    let haproxy = start_haproxy(dir.path(), services, servers, front, origin)?;
    let config = write_config(dir.path(), services, servers)?;
    for loaded in [false, true] {
        let stop = Arc::new(AtomicBool::new(!loaded));
        let clients = start_clients(front, services, stop.clone());
        let alone = cpu(haproxy.0.id(), None, span / 4)?.0;
        let log = std::fs::File::create(dir.path().join("daemon.log"))?;
        let mut command = Command::new(program);
        command.args(["run", "--config"]).arg(&config).stdout(Stdio::null()).stderr(log);
        let daemon = Process(command.spawn()?);
        sleep(WARM_UP);
        let (theirs, ours) = cpu(haproxy.0.id(), Some(daemon.0.id()), span)?;
        let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.0.id()))?.count();
        stop.store(true, Ordering::Relaxed);
        clients.join().map_err(|_| "the clients failed")?;
        println!(
            "| {services} × {servers} | {} | {:.1} | {:.1} | {open} |",
            if loaded { "some" } else { "none" },
            ours,
            (theirs - alone).max(0.0),
        );
        drop(daemon);
    }
    Ok(())
}

fn start_haproxy(
    dir: &Path,
    services: usize,
    servers: usize,
    front: u16,
    origin: u16,
) -> Fallible<Process> {
    let mut text = format!(
        "global\n  maxconn 1000\n  stats socket {0}/admin.sock level admin\n  stats maxconn \
         1000\ndefaults\n  mode http\n  timeout connect 1s\n  timeout client 20s\n  timeout server \
         20s\nfrontend front\n  bind 127.0.0.1:{front}\n  use_backend %[path,field(2,/)]\n",
        dir.display()
    );
    for service in 0..services {
        writeln!(text, "backend pool{service}\n  balance roundrobin")?;
        for server in 0..servers {
            writeln!(text, "  server s{server} 127.0.0.1:{origin} weight 100")?;
        }
    }
    std::fs::write(dir.join("haproxy.cfg"), text)?;
    let program = std::env::var("HAPROXY").unwrap_or_else(|_| "/usr/sbin/haproxy".to_owned());
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(dir.join("haproxy.cfg")).stdout(Stdio::null());
    let process = Process(command.stderr(Stdio::null()).spawn()?);
    let ready = Instant::now() + Duration::from_secs(10);
    while UnixStream::connect(dir.join("admin.sock")).is_err() {
        if Instant::now() > ready {
            return Err("HAProxy does not answer".into());
        }
        sleep(Duration::from_millis(20));
    }
    Ok(process)
}

fn write_config(dir: &Path, services: usize, servers: usize) -> Fallible<PathBuf> {
    let mut text = "services:\n".to_owned();
    for service in 0..services {
        writeln!(text, "  - name: pool{service}\n    backends:")?;
        for server in 0..servers {
            writeln!(text, "      - {{ name: s{server}, address: \"127.0.0.1:{}\" }}", 2 + server)?;
        }
        writeln!(
            text,
            "    probe: {{ path: /, interval: 1h, requests: 1 }}\n    liveness: {{ path: /, interval: \
             1h, requests: 1 }}\n    sink: {{ haproxy: {{ socket: {}/admin.sock, backend: \
             pool{service} }} }}",
            dir.display()
        )?;
    }
    writeln!(
        text,
        "store: {{ path: {}/state }}\napi: {{ listen: \"127.0.0.1:{}\" }}",
        dir.display(),
        free_port()?
    )?;
    let path = dir.join("plimsoll.yaml");
    std::fs::write(&path, text)?;
    Ok(path)
}

/// Requests one after the other on a kept connection, evenly over time and services.
fn start_clients(front: u16, services: usize, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let Ok(stream) = TcpStream::connect(("127.0.0.1", front)) else { return };
        let Ok(mut writer) = stream.try_clone() else { return };
        let mut reader = BufReader::new(stream);
        let began = Instant::now();
        for turn in 0u64.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let due = began + Duration::from_nanos(turn * 1_000_000_000 / RATE_RPS);
            sleep(due.saturating_duration_since(Instant::now()));
            let service = turn % services as u64;
            let request = format!("GET /pool{service} HTTP/1.1\r\nHost: a\r\n\r\n");
            if writer.write_all(request.as_bytes()).is_err() || read_answer(&mut reader).is_none() {
                return;
            }
        }
    })
}

fn read_answer(reader: &mut impl BufRead) -> Option<()> {
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
    }
    Some(())
}

/// An origin that answers every request with nothing.
fn answer(mut stream: TcpStream) {
    let mut request = [0; 4096];
    while stream.read(&mut request).is_ok_and(|length| length > 0) {
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}

/// What two processes take, in % of a core.
fn cpu(first: u32, second: Option<u32>, span: Duration) -> Fallible<(f64, f64)> {
    let read = || Fallible::Ok((cpu_ns(first)?, second.map_or(Ok(0), cpu_ns)?));
    let (began, before) = (Instant::now(), read()?);
    sleep(span);
    let after = read()?;
    let percent = |from: u64, to: u64| {
        100.0 * to.saturating_sub(from) as f64 / began.elapsed().as_nanos() as f64
    };
    Ok((percent(before.0, after.0), percent(before.1, after.1)))
}

/// Processor time of a process so far: the first number of each thread's schedstat, nanoseconds.
fn cpu_ns(pid: u32) -> Fallible<u64> {
    let mut total = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end between the listing and the reading.
        let Ok(text) = std::fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        total += text.split_whitespace().next().ok_or("empty schedstat")?.parse::<u64>()?;
    }
    Ok(total)
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
