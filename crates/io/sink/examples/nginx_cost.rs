//! What the Lua balancer costs NGINX: CPU time of its workers a request, beside NGINX's own upstream, in turns.
//!
//! `cargo run --release -p plimsoll-sink --example nginx_cost -- 20000 5` (requests a turn, turns)

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use plimsoll_sink::{NginxPool, NginxServer, SocketAddress, nginx_snippet};
use plimsoll_testbed::load::{Arrivals, LoadSpec, Target, start};

/// What is compared: the first is NGINX's own.
const WAYS: [&str; 3] = ["own", "roundrobin", "leastconn"];
/// Servers of each pool.
const SERVERS: u16 = 6;
/// Clients that each wait for their answer.
const CLIENTS: usize = 16;
const FRONT: u16 = 29_600;
const BACK: u16 = 29_700;

fn main() {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("a number"));
    let (requests, turns) = (words.next().unwrap_or(20_000), words.next().unwrap_or(5));
    let dir = tempfile::tempdir().expect("a directory");
    let servers = || {
        (1..=SERVERS).map(|i| NginxServer {
            name: format!("s{i}"),
            address: SocketAddr::from(([127, 0, 0, 1], BACK + i)),
            weight: 10 * u32::from(i),
        })
    };
    let pool = |name: &str| NginxPool {
        name: name.to_owned(),
        leastconn: name == "leastconn",
        servers: servers().collect(),
    };
    let socket = SocketAddress::Unix(dir.path().join("s.sock"));
    let lua = nginx_snippet(&socket, &[pool(WAYS[1]), pool(WAYS[2])]).expect("good names");
    let mut front = format!("{lua}\nupstream own {{\n");
    for server in servers() {
        writeln!(front, "server {} weight={};", server.address, server.weight).expect("a string");
    }
    front.push_str("keepalive 64;\n}\n");
    for (i, way) in (0..).zip(WAYS) {
        writeln!(
            front,
            "server {{ listen 127.0.0.1:{}; keepalive_requests 1000000; location / {{ proxy_pass http://{way}; \
             proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }}",
            FRONT + i
        )
        .expect("a string");
    }
    let mut back = String::from("keepalive_requests 1000000;\n");
    for server in servers() {
        writeln!(back, "server {{ listen {}; location / {{ return 200 ok; }} }}", server.address)
            .expect("a string");
    }
    let _back = Nginx::start(dir.path(), "back", &back, BACK + 1);
    let front = Nginx::start(dir.path(), "front", &front, FRONT);
    let mut cost = [Vec::new(), Vec::new(), Vec::new()];
    for turn in 0..=turns {
        for (i, port) in (0..WAYS.len()).zip(FRONT..) {
            let used = front.cpu_us(|| load(port, requests));
            // The first turn opens connections and compiles.
            if turn > 0 {
                cost[i].push(used);
            }
        }
    }
    for (way, mut all) in WAYS.into_iter().zip(cost) {
        all.sort_by(f64::total_cmp);
        let shown: Vec<String> = all.iter().map(|us| format!("{us:.1}")).collect();
        println!(
            "{way:<11} {:>6.1} µs of CPU a request (turns: {})",
            all[all.len() / 2],
            shown.join(" ")
        );
    }
}

/// So many requests, at least; returns how many.
fn load(port: u16, requests: u64) -> u64 {
    let target = Target::resolve(&format!("http://127.0.0.1:{port}/")).expect("a URL");
    let mut spec = LoadSpec::poisson(target, 1.0, Duration::from_secs(600));
    (spec.arrivals, spec.concurrency) = (Arrivals::Closed, Some(CLIENTS));
    let handle = start(spec).expect("clients");
    while handle.snapshot().is_none_or(|report| report.total.requests < requests) {
        std::thread::sleep(Duration::from_millis(5));
    }
    handle.stop();
    let report = handle.join().expect("a report");
    assert_eq!(report.total.errors, 0, "{:?}", report.first_error);
    report.total.requests
}

struct Nginx(Child);

impl Nginx {
    fn start(dir: &Path, name: &str, http: &str, port: u16) -> Self {
        let at = dir.display();
        let modules = "/usr/lib/nginx/modules";
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {at}/{kind};\n"))
            .concat();
        let text = format!(
            "load_module {modules}/ndk_http_module.so;\nload_module {modules}/ngx_http_lua_module.so;\n\
             worker_processes 1;\ndaemon off;\npid {at}/{name}.pid;\nerror_log {at}/{name}.log;\n\
             events {{ worker_connections 1024; }}\nhttp {{\naccess_log off;\n{temporary}{http}}}\n"
        );
        let file = dir.join(format!("{name}.conf"));
        std::fs::write(&file, text).expect("written");
        let child = Command::new("/usr/sbin/nginx").arg("-p").arg(dir).arg("-c").arg(&file).spawn();
        let nginx = Nginx(child.expect("start nginx"));
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
        nginx
    }

    /// Microseconds of CPU that its worker takes a request.
    fn cpu_us(&self, load: impl FnOnce() -> u64) -> f64 {
        let (id, before) = (self.0.id(), self.ticks());
        let requests = load();
        assert_eq!(id, self.0.id());
        // Ticks of 10 ms.
        (self.ticks() - before) as f64 * 1e4 / requests as f64
    }

    fn ticks(&self) -> u64 {
        let children = format!("/proc/{0}/task/{0}/children", self.0.id());
        let worker = std::fs::read_to_string(children).expect("its worker");
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", worker.trim())).expect("its times");
        let (_, rest) = stat.rsplit_once(") ").expect("a name");
        let fields: Vec<&str> = rest.split(' ').collect();
        fields[11..13].iter().map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}
