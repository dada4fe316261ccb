//! What the daemon costs by default: its processor time and HAProxy's, over pools of living backends.
//!
//! `cargo bench -p plimsoll --bench polling [-- OPTIONS]`: for each row a real HAProxy as in README and `plimsoll
//! run` with README's configuration, one service per HAProxy backend; every backend answers. HAProxy's own cost of
//! serving the requests and of its checks, measured before the daemon starts, is taken off.
//!
//! `--settle S` and `--intervals N` (of 10 s) say when and how long is measured, `--only TEXT` leaves out the rows
//! that do not contain it, `--daemon PATH` measures another build.

mod pool;

use std::error::Error;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pool::{Pool, address};

/// Services, and servers of each.
const SIZES: [(usize, usize); 2] = [(1, 1_000), (300, 10)];
/// HAProxy's mode and method, and what clients ask of each backend in the mean, requests per second.
const LOADS: [(&str, &str, f64); 5] = [
    (HTTP, "leastconn", 0.0),
    (HTTP, "leastconn", 0.1),
    (HTTP, "leastconn", 1.0),
    (HTTP, "roundrobin", 0.0),
    (HTTP, "roundrobin", 1.0),
];
const HTTP: &str = "http";
/// For one service, for comparison: answers that HAProxy does not count, and configuration beside the default.
const BESIDE: [(&str, Option<&str>); 3] = [
    ("tcp", None),
    (HTTP, Some("{ path: /, requests: 1 }")),
    (HTTP, Some("{ path: /, requests: 1, interval: 100ms }")),
];
const INTERVAL: Duration = Duration::from_secs(10);
/// `USER_HZ`: what `/proc/PID/stat` counts in, on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

type Fallible<T> = Result<T, Box<dyn Error>>;

/// A child that does not outlive the measurement.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is measured together.
struct Row {
    services: usize,
    servers: usize,
    mode: &'static str,
    method: &'static str,
    rate_each: f64,
    liveness: Option<&'static str>,
}

impl Row {
    fn backends(&self) -> usize {
        self.services * self.servers
    }

    fn is_http(&self) -> bool {
        self.mode == HTTP
    }

    fn name(&self) -> String {
        let liveness =
            self.liveness.map_or("default".to_owned(), |text| format!("liveness: {text}"));
        format!(
            "{} × {} | {} {} | {:.1} | {liveness}",
            self.services, self.servers, self.mode, self.method, self.rate_each
        )
    }
}

struct Options {
    daemon: PathBuf,
    settle: Duration,
    intervals: usize,
}

fn main() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name, default: u64| value(name).map_or(Ok(default), |text| text.parse());
    let options = Options {
        daemon: value("--daemon").unwrap_or(env!("CARGO_BIN_EXE_plimsoll").to_owned()).into(),
        settle: Duration::from_secs(number("--settle", 120)?),
        intervals: usize::try_from(number("--intervals", 6)?)?,
    };
    let only = value("--only").unwrap_or_default();
    println!(
        "processor time in % of a core: median of {} intervals of {} s, and the most of one, from {} s after the \
         start\n",
        options.intervals,
        INTERVAL.as_secs(),
        options.settle.as_secs()
    );
    println!(
        "| services × servers | mode, method | req/s of each | configuration | daemon | daemon at most | \
         before that | HAProxy, for being read | answers/s | descriptors | MB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for row in rows().iter().filter(|row| row.name().contains(&only)) {
        measure(&options, row)?;
    }
    Ok(())
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (services, servers) in SIZES {
        for (mode, method, rate_each) in LOADS {
            rows.push(Row { services, servers, mode, method, rate_each, liveness: None });
        }
    }
    let (services, servers) = SIZES[0];
    for (mode, liveness) in BESIDE {
        rows.push(Row { services, servers, mode, method: "leastconn", rate_each: 1.0, liveness });
    }
    rows
}

fn measure(options: &Options, row: &Row) -> Fallible<()> {
    let dir = tempfile::tempdir()?;
    let front = free_port()?;
    let pool = Pool::start(row.services, row.servers)?;
    let haproxy = pool::start_haproxy(dir.path(), row, front, pool.port())?;
    let config = write_config(dir.path(), row, pool.port())?;
    pool.ask(front, row.rate_each * row.backends() as f64, row.is_http());
    sleep(INTERVAL / 2);
    let alone = Cpu::over(INTERVAL, haproxy.0.id())?;
    let log = std::fs::File::create(dir.path().join("daemon.log"))?;
    let mut command = Command::new(&options.daemon);
    command.args(["run", "--config"]).arg(&config).stdout(Stdio::null()).stderr(log);
    let daemon = Process(command.spawn()?);
    let before = Cpu::over(options.settle, daemon.0.id())?;
    let answered = pool.answered();
    let began = Instant::now();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..options.intervals {
        let (us, them) = (Cpu::start(daemon.0.id())?, Cpu::start(haproxy.0.id())?);
        sleep(INTERVAL);
        ours.push(us.percent()?);
        theirs.push(them.percent()?);
    }
    let answers = (pool.answered() - answered) as f64 / began.elapsed().as_secs_f64();
    let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.0.id()))?.count();
    println!(
        "| {} | {:.1} | {:.1} | {before:.1} | {:.1} | {answers:.0} | {open} | {:.0} |",
        row.name(),
        median(&mut ours),
        ours.last().copied().unwrap_or_default(),
        (median(&mut theirs) - alone).max(0.0),
        resident_mb(daemon.0.id())?,
    );
    // The others' end is no answer: clients go before HAProxy, and the daemon before all.
    drop(daemon);
    drop((pool, haproxy));
    said(&dir.path().join("daemon.log"))
}

/// Shows what the daemon complained of: what is measured must be a pool that works.
fn said(log: &Path) -> Fallible<()> {
    let text = std::fs::read_to_string(log)?;
    let is_bad = |line: &&str| [" WARN ", " ERROR ", "failed"].iter().any(|bad| line.contains(bad));
    let bad: Vec<&str> = text.lines().filter(is_bad).collect();
    if let Some(last) = bad.last() {
        eprintln!("{} complaints of the daemon, the last: {last}", bad.len());
    }
    Ok(())
}

/// README's, for so many services.
fn write_config(dir: &Path, row: &Row, port: u16) -> Fallible<PathBuf> {
    let mut text = "services:\n".to_owned();
    for service in 0..row.services {
        writeln!(text, "  - name: pool{service}\n    backends:")?;
        for server in 0..row.servers {
            let address = address(service * row.servers + server);
            writeln!(text, "      - {{ name: s{server}, address: \"{address}:{port}\" }}")?;
        }
        if let Some(liveness) = row.liveness {
            writeln!(text, "    liveness: {liveness}")?;
        }
        writeln!(
            text,
            "    sink: {{ haproxy: {{ socket: {}/admin.sock, backend: pool{service} }} }}",
            dir.display()
        )?;
    }
    let api = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), free_port()?);
    writeln!(text, "store: {{ path: {}/state }}\napi: {{ listen: \"{api}\" }}", dir.display())?;
    let path = dir.join("plimsoll.yaml");
    std::fs::write(&path, text)?;
    Ok(path)
}

/// A process's time so far, user and system.
struct Cpu {
    pid: u32,
    began: Instant,
    ticks: u64,
}

impl Cpu {
    fn start(pid: u32) -> Fallible<Self> {
        Ok(Cpu { pid, began: Instant::now(), ticks: Self::ticks(pid)? })
    }

    /// In % of a core, since it was started.
    fn percent(&self) -> Fallible<f64> {
        let seconds = (Self::ticks(self.pid)? - self.ticks) as f64 / TICKS_PER_SECOND;
        Ok(100.0 * seconds / self.began.elapsed().as_secs_f64())
    }

    fn over(span: Duration, pid: u32) -> Fallible<f64> {
        let cpu = Self::start(pid)?;
        sleep(span);
        cpu.percent()
    }

    /// Threads that have ended count as well.
    fn ticks(pid: u32) -> Fallible<u64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name, in brackets, may hold blanks.
        let (_, after) = text.rsplit_once(") ").ok_or("no name in /proc/PID/stat")?;
        let fields: Vec<&str> = after.split(' ').collect();
        let field = |at: usize| Fallible::Ok(fields.get(at).ok_or("short stat")?.parse::<u64>()?);
        Ok(field(11)? + field(12)?)
    }
}

fn resident_mb(pid: u32) -> Fallible<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb: f64 = line.and_then(|l| l.split_whitespace().next()).ok_or("no VmRSS")?.parse()?;
    Ok(kb / 1e3)
}

/// The median; sorts.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    if n == 0 { f64::NAN } else { (values[(n - 1) / 2] + values[n / 2]) / 2.0 }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
