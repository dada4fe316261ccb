//! Living backends that cost next to nothing, the HAProxy before them, and its clients.

use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};

use crate::{Fallible, Process, Row};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
/// Backends take so long for a request, from the first to the last.
const SERVICE_MS: std::ops::Range<u64> = 5..25;
/// Connections that wait to be accepted.
const WAITING: u32 = 4_096;
/// What a client asks for, requests per second: few enough that it is seldom late.
const RATE_OF_A_CLIENT: f64 = 20.0;

/// Where a backend listens: an address of its own on the loopback device, one port for all.
pub fn address(backend: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 64, 0, 1).to_bits() + backend as u32)
}

/// Backends on all addresses, in this process.
pub struct Pool {
    runtime: Runtime,
    services: u64,
    port: u16,
    answered: Arc<AtomicU64>,
}

impl Pool {
    pub fn start(services: usize, servers: usize) -> Fallible<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let listener = runtime.block_on(async { listen() })?;
        let port = listener.local_addr()?.port();
        let backends = (services * servers) as u64;
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, backends));
            }
        });
        Ok(Pool { runtime, services: services as u64, port, answered: Arc::default() })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many requests clients had answered so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// From now on clients ask for so many requests per second, evenly over the services.
    pub fn ask(&self, front: u16, rate: f64, keeps: bool) {
        let clients = (rate / RATE_OF_A_CLIENT).ceil() as u64;
        let began = Instant::now();
        for client in 0..clients {
            let (services, answered) = (self.services, self.answered.clone());
            let turns = (client..).step_by(clients as usize);
            let dues = turns.map(move |turn| (due(began, turn, rate), turn % services));
            self.runtime.spawn(async move {
                while let Err(error) = ask(front, dues.clone(), keeps, &answered).await {
                    eprintln!("a client: {error}");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            });
        }
    }
}

fn due(began: Instant, turn: u64, rate: f64) -> Instant {
    began + Duration::from_secs_f64(turn as f64 / rate)
}

/// All backends in one queue, with room for HAProxy's checks of all of them at once.
fn listen() -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.bind("0.0.0.0:0".parse().map_err(io::Error::other)?)?;
    socket.listen(WAITING)
}

/// Requests one after the other, on a kept connection or on one each.
async fn ask(
    front: u16,
    dues: impl Iterator<Item = (Instant, u64)>,
    keeps: bool,
    answered: &AtomicU64,
) -> io::Result<()> {
    let mut kept = None;
    let mut answer = vec![0; 4096];
    for (due, service) in dues {
        if due.elapsed() > Duration::from_secs(1) {
            continue;
        }
        tokio::time::sleep_until(due.into()).await;
        let mut stream = match kept.take() {
            Some(stream) => stream,
            None => TcpStream::connect(("127.0.0.1", front)).await?,
        };
        let request = format!("GET /pool{service} HTTP/1.1\r\nHost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let length = stream.read(&mut answer).await?;
        if !answer[..length].starts_with(b"HTTP/1.1 200") {
            let text = String::from_utf8_lossy(&answer[..length.min(80)]);
            return Err(io::Error::other(format!("answered {text:?}")));
        }
        answered.fetch_add(1, Ordering::Relaxed);
        kept = keeps.then_some(stream);
    }
    Ok(())
}

/// Answers every request on a connection after the time that its backend takes.
async fn serve(mut stream: TcpStream, backends: u64) {
    let Ok(here) = stream.local_addr() else { return };
    let std::net::IpAddr::V4(here) = here.ip() else { return };
    let backend = u64::from(here.to_bits() - address(0).to_bits()).min(backends);
    let span = SERVICE_MS.end - SERVICE_MS.start;
    let took = Duration::from_millis(SERVICE_MS.start + span * backend / backends);
    let mut request = [0; 4096];
    while stream.read(&mut request).await.is_ok_and(|length| length > 0) {
        tokio::time::sleep(took).await;
        if stream.write_all(ANSWER).await.is_err() {
            return;
        }
    }
}

/// README's, and a frontend that finds the service in the path, where HAProxy reads it.
pub fn start_haproxy(dir: &Path, row: &Row, front: u16, port: u16) -> Fallible<Process> {
    let mut text = format!(
        "global\n  maxconn 4000\n  stats socket {}/admin.sock mode 660 level admin\ndefaults\n  mode \
         {}\n  timeout connect 1s\n  timeout client 60s\n  timeout server 20s\nfrontend front\n  bind \
         127.0.0.1:{front}\n  {}\n",
        dir.display(),
        row.mode,
        if row.is_http() { "use_backend %[path,field(2,/)]" } else { "default_backend pool0" }
    );
    for service in 0..row.services {
        writeln!(text, "backend pool{service}\n  balance {}\n  option redispatch", row.method)?;
        for server in 0..row.servers {
            let address = address(service * row.servers + server);
            writeln!(text, "  server s{server} {address}:{port} check")?;
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
