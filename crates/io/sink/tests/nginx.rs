//! A real NGINX with the Lua balancer: what every sink promises, and what is its own.

mod contract;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use contract::plan;
use plimsoll_model::{BackendId, MethodKind};
use plimsoll_sink::{
    NginxConfig, NginxPool, NginxReloadConfig, NginxReloadSink, NginxServer, NginxSink,
    ReportSource, Servers, Sink, SinkError, SocketAddress, WeightSink, nginx_snippet,
};
use plimsoll_testbed::load::{LoadSpec, Target, start};
use plimsoll_testbed::{BackendSpec, Change, Mode, Service, Testbed, TestbedSpec};

/// Longest wait for anything that a healthy NGINX does at once.
const PATIENCE: Duration = Duration::from_secs(30);
const PROGRAM: &str = "/usr/sbin/nginx";
const MODULES: [&str; 2] = ["ndk_http_module.so", "ngx_http_lua_module.so"];

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The modules' directory; none where NGINX or its Lua module is missing, which is said.
fn modules() -> Option<PathBuf> {
    let dir = PathBuf::from("/usr/lib/nginx/modules");
    let there =
        MODULES.iter().all(|module| dir.join(module).is_file()) && Path::new(PROGRAM).is_file();
    if !there {
        eprintln!(
            "skipped: no nginx with a Lua module: `apt-get install nginx-light libnginx-mod-http-lua`"
        );
    }
    there.then_some(dir)
}

/// A real NGINX as a child process, in a directory of its own.
struct Nginx {
    dir: PathBuf,
    child: Option<Child>,
    /// Where clients connect.
    address: SocketAddr,
}

impl Nginx {
    /// With these pools in the snippet; `more` stands in `http`. Requests go to the first pool.
    fn start(pools: &[NginxPool], more: &str) -> Option<Self> {
        let mut nginx = Self::prepare_with(pools, &pools[0].name, more)?;
        nginx.start_again();
        Some(nginx)
    }

    /// Not started yet; requests go to an upstream of this name, whose servers are in NAME.servers.
    fn prepare(pools: &[NginxPool], name: &str) -> Option<Self> {
        Self::prepare_with(pools, name, &format!("upstream {name} {{ include {name}.servers; }}"))
    }

    fn prepare_with(pools: &[NginxPool], to: &str, more: &str) -> Option<Self> {
        let modules = modules()?;
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir =
            std::env::temp_dir().join(format!("plimsoll-nginx-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let address =
            TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
        let nginx = Nginx { dir, child: None, address };
        nginx.write_snippet(pools);
        let load =
            MODULES.map(|module| format!("load_module {}/{module};\n", modules.display())).concat();
        let dir = nginx.dir.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {dir}/{kind};\n"))
            .concat();
        let config = format!(
            "{load}worker_processes 2;\ndaemon off;\npid {dir}/pid;\nerror_log {dir}/error.log notice;\n\
             events {{ worker_connections 2048; }}\nhttp {{\naccess_log off;\n{temporary}\
             include {dir}/plimsoll.conf;\n{more}\nserver {{\nlisten {address};\nkeepalive_requests 1000000;\n\
             location / {{\nproxy_pass http://{};\nproxy_http_version 1.1;\nproxy_set_header Connection \"\";\n}}\n}}\n}}\n",
            to
        );
        std::fs::write(nginx.dir.join("nginx.conf"), config).expect("written");
        Some(nginx)
    }

    fn write_snippet(&self, pools: &[NginxPool]) {
        let text = nginx_snippet(&self.socket(), pools).expect("good names");
        std::fs::write(self.dir.join("plimsoll.conf"), text).expect("written");
    }

    fn path(&self) -> PathBuf {
        self.dir.join("plimsoll.sock")
    }

    fn socket(&self) -> SocketAddress {
        SocketAddress::Unix(self.path())
    }

    fn start_again(&mut self) {
        let child = Command::new(PROGRAM)
            .args(["-p".as_ref(), self.dir.as_os_str()])
            .args(["-c".as_ref(), self.dir.join("nginx.conf").as_os_str()])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.expect("start nginx"));
        until(&format!("nginx to answer: {}", self.dir.join("error.log").display()), || {
            UnixStream::connect(self.path()).is_ok() && TcpStream::connect(self.address).is_ok()
        });
    }

    fn signal(&self, name: &str) {
        let pid = self.child.as_ref().expect("nginx runs").id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(sent.expect("run kill").success());
    }

    fn kill_workers(&self) {
        let pid = self.child.as_ref().expect("it runs").id().to_string();
        let children = Command::new("pgrep").args(["-P", &pid]).output().expect("run pgrep");
        let workers = String::from_utf8_lossy(&children.stdout).into_owned();
        for worker in workers.split_whitespace() {
            let killed = Command::new("kill").args(["-9", worker]).status();
            assert!(killed.expect("run kill").success());
        }
    }

    /// In order, so that it takes its socket away.
    fn stop(&mut self) {
        if self.child.is_some() {
            self.signal("TERM");
        }
        if let Some(mut child) = self.child.take() {
            child.wait().expect("wait for nginx");
        }
    }

    fn sink(&self, servers: &[&str]) -> NginxSink {
        let config = NginxConfig {
            timeout: Duration::from_secs(10),
            ..NginxConfig::new(self.socket(), "shop")
        };
        NginxSink::new(config, named(servers)).expect("good names")
    }

    /// What the socket says, asked as an administrator would with curl.
    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = UnixStream::connect(self.path()).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let length = body.len();
        write!(stream, "{method} {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}")
            .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    }

    /// Column of a server's line.
    fn column(&self, server: &str, column: usize) -> u64 {
        let text = self.ask("GET", "/shop", "");
        let line = text.lines().find(|line| line.starts_with(&format!("server {server} ")));
        let words: Vec<&str> = line.unwrap_or_else(|| panic!("{text}")).split(' ').collect();
        words[column].parse().expect("a number")
    }

    fn errors(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.dir.join("error.log")).unwrap_or_default();
        let is_bad = |line: &&str| {
            line.contains("[error]") || line.contains("[alert]") || line.contains("[emerg]")
        };
        log.lines().filter(is_bad).map(str::to_owned).collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn named(servers: &[&str]) -> Servers {
    (1..).map(BackendId).zip(servers.iter().map(|name| (*name).to_owned())).collect()
}

/// Backends s1, s2, … that take this long for a request.
fn bed(servers: usize, takes: Duration) -> Testbed {
    let backend = |i| BackendSpec {
        cores: 8,
        ..BackendSpec::new(format!("s{i}"), Service::deterministic(takes))
    };
    let backends = (1..=servers).map(backend).collect();
    Testbed::start(TestbedSpec { admin: None, backends }).expect("backends")
}

fn pool(bed: &Testbed, leastconn: bool) -> NginxPool {
    let servers = bed.addresses().iter().map(|(name, address)| NginxServer {
        name: name.clone(),
        address: *address,
        weight: 100,
    });
    NginxPool { name: "shop".to_owned(), leastconn, servers: servers.collect() }
}

/// Number `i`, which nobody needs to reach.
fn server(i: u16, weight: u32) -> NginxServer {
    NginxServer { name: format!("s{i}"), address: SocketAddr::from(([127, 0, 0, 1], i)), weight }
}

struct Shop(Nginx);

impl contract::Bed for Shop {
    type Sink = NginxSink;
    const KEEPS_WEIGHTS: bool = false;

    fn sink(&self, servers: &[&str]) -> NginxSink {
        self.0.sink(servers)
    }

    fn weight(&self, server: &str) -> u32 {
        u32::try_from(self.0.column(server, 3)).expect("a weight")
    }

    fn meddle(&self, weight: u32) {
        let answer = self.0.ask("PUT", "/shop", &format!("epoch 1\ns2 {weight}\n"));
        assert!(answer.contains("changed 1"), "{answer}");
    }

    fn stop(&mut self) {
        self.0.stop();
    }

    fn start_again(&mut self) {
        self.0.start_again();
    }
}

#[tokio::test]
async fn what_every_sink_promises_holds() {
    let servers = (1..=3).map(|i| server(i, 10 * u32::from(i)));
    let pools =
        [NginxPool { name: "shop".to_owned(), leastconn: false, servers: servers.collect() }];
    let Some(nginx) = Nginx::start(&pools, "") else { return };
    contract::holds(&mut Shop(nginx)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_changes_under_load_cost_no_client_an_error_and_the_split_follows() {
    let bed = bed(3, Duration::from_millis(1));
    let Some(nginx) = Nginx::start(&[pool(&bed, false)], "") else { return };
    let mut sink = nginx.sink(&["s1", "s2", "s3"]);
    let target = Target::resolve(&format!("http://{}/work", nginx.address)).expect("a URL");
    let clients =
        start(LoadSpec::poisson(target.clone(), 400.0, Duration::from_secs(600))).expect("clients");
    let shapes = [[20, 30, 50], [80, 10, 10], [0, 1, 1], [1_000, 1, 999], [1, 0, 0], [34, 33, 33]];
    for change in 0..500 {
        let mut plan = plan(&shapes[change % shapes.len()]);
        plan.epoch = change as u64 + 1;
        sink.apply(&plan).await.expect("applied");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    clients.stop();
    let report = clients.join().expect("a report");
    assert_eq!(report.first_error, None, "{:?}", report.error_kinds);
    assert!(report.total.requests > 500, "{:?}", report.total.requests);
    assert_eq!(nginx.errors(), Vec::<String>::new());

    // What is counted: every request once, none left in flight; the split is that of the weights.
    let read = sink.read().await.expect("read");
    assert_eq!(read.method.kind, MethodKind::Split);
    let started: u64 = read.servers.iter().map(|s| s.started_total).sum();
    assert_eq!(started, report.total.requests, "requests of clients");
    sink.apply(&plan(&[20, 30, 50])).await.expect("applied");
    let before = sink.read().await.expect("read");
    let mut spec = LoadSpec::poisson(target, 400.0, Duration::from_secs(5));
    spec.seed = 2;
    let report = start(spec).expect("clients").join().expect("a report");
    let total = report.total.requests as f64;
    until("all to have ended", || {
        nginx.column("s1", 5) + nginx.column("s2", 5) + nginx.column("s3", 5) == 0
    });
    let after = sink.read().await.expect("read");
    for ((server, was), share) in after.servers.iter().zip(&before.servers).zip([0.2, 0.3, 0.5]) {
        let got = (server.started_total - was.started_total) as f64 / total;
        assert!((got - share).abs() < 0.02, "{got:.3} of {share}");
        assert_eq!(server.errors_total, 0);
        assert_eq!(server.answered_total, Some(server.started_total));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_keeps_the_weights_and_a_dead_server_costs_no_client_an_error() {
    let bed = bed(3, Duration::from_millis(1));
    let Some(nginx) = Nginx::start(&[pool(&bed, true)], "") else { return };
    let mut sink = nginx.sink(&["s1", "s2", "s3"]);
    assert_eq!(sink.read().await.expect("read").method.kind, MethodKind::InFlight);
    sink.apply(&plan(&[7, 8, 9])).await.expect("applied");
    let before = sink.read().await.expect("read");
    nginx.signal("HUP");
    let pools = || std::fs::read_to_string(nginx.dir.join("error.log")).unwrap_or_default();
    until("the reload", || pools().contains("gracefully shutting down"));
    let after = sink.read().await.expect("read");
    assert_eq!(after.generation, before.generation, "the dictionary outlives it");
    assert_eq!(after.servers.iter().map(|s| s.weight).collect::<Vec<_>>(), [7, 8, 9]);

    // Connections to s2 are refused from now on: the other attempt of each request succeeds.
    bed.set("s2", Change::mode(Mode::Refuse)).expect("the testbed runs");
    let target = Target::resolve(&format!("http://{}/work", nginx.address)).expect("a URL");
    let spec = LoadSpec::poisson(target, 200.0, Duration::from_secs(3));
    let report = start(spec).expect("clients").join().expect("a report");
    assert_eq!(report.first_error, None, "{:?}", report.error_kinds);
    let read = sink.read().await.expect("read");
    assert!(read.servers[1].errors_total > 0, "{:?}", read.servers[1]);
    assert_eq!(read.servers[0].errors_total + read.servers[2].errors_total, 0);
    let started: u64 = read.servers.iter().map(|s| s.started_total).sum();
    assert_eq!(
        started,
        report.total.requests + read.servers[1].errors_total,
        "attempts are counted"
    );
    until("nothing to be in flight", || (1..=3).all(|i| nginx.column(&format!("s{i}"), 5) == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_leaves_nothing_in_flight() {
    let bed = bed(2, Duration::from_millis(300));
    let Some(nginx) = Nginx::start(&[pool(&bed, true)], "") else { return };
    let target = Target::resolve(&format!("http://{}/work", nginx.address)).expect("a URL");
    let clients =
        start(LoadSpec::poisson(target, 100.0, Duration::from_secs(600))).expect("clients");
    until("requests in flight", || nginx.column("s1", 5) > 3);
    nginx.kill_workers();
    clients.stop();
    drop(clients);
    until("their requests to be forgotten", || nginx.column("s1", 5) + nginx.column("s2", 5) == 0);
}

/// Answers 200 on a port of its own, to whatever it is asked.
fn plain() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4_096];
            let _ = stream.read(&mut request);
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    address
}

#[test]
fn internal_redirects_end_what_came_before_and_another_upstreams_answer_is_not_counted() {
    let bed = bed(2, Duration::from_millis(1));
    for server in ["s1", "s2"] {
        bed.set(server, Change::mode(Mode::Status(404))).expect("the testbed runs");
    }
    let front = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let more = format!(
        "server {{ listen {front}; proxy_intercept_errors on; recursive_error_pages on;\n\
         location / {{ proxy_pass http://shop; error_page 404 500 = @again; }}\n\
         location @again {{ proxy_pass http://shop; error_page 404 500 = @plain; }}\n\
         location @plain {{ proxy_pass http://{}; }} }}",
        plain()
    );
    let Some(nginx) = Nginx::start(&[pool(&bed, true)], &more) else { return };
    let get = || {
        let mut stream = TcpStream::connect(front).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        write!(stream, "GET /work HTTP/1.0\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        assert!(answer.starts_with("HTTP/1.1 200"), "the last upstream's: {answer}");
    };
    let sum = |column: usize| nginx.column("s1", column) + nginx.column("s2", column);
    for round in 1..=20 {
        get();
        until("the end of the request", || sum(5) == 0);
        assert_eq!(sum(6), 2 * round, "asked twice, by a redirect");
    }
    // A status of 404 is an answer, and no failure.
    assert_eq!((sum(7), sum(8)), (0, 40));
    for server in ["s1", "s2"] {
        bed.set(server, Change::mode(Mode::Status(500))).expect("the testbed runs");
    }
    for _ in 0..20 {
        get();
    }
    until("the end of the requests", || sum(5) == 0);
    assert_eq!(
        (sum(6), sum(7), sum(8)),
        (80, 40, 80),
        "500 is one, whoever has answered in the end"
    );
}

#[test]
fn workers_forget_what_a_killed_one_had_in_flight_though_nobody_asks() {
    let bed = bed(2, Duration::from_secs(1));
    let peek = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let more = format!(
        "server {{ listen {peek}; location / {{ content_by_lua_block {{\n\
         local dict, places = ngx.shared.plimsoll, 0\n\
         for _, key in ipairs(dict:get_keys(0)) do if key:find('^k:') then places = places + 1 end end\n\
         ngx.say(dict:get('f:shop:s1') or 0, ' ', dict:get('f:shop:s2') or 0, ' ', places)\n}} }} }}"
    );
    let Some(nginx) = Nginx::start(&[pool(&bed, true)], &more) else { return };
    let peek = || -> Vec<i64> {
        let mut answer = String::new();
        let mut stream = TcpStream::connect(peek).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        write!(stream, "GET / HTTP/1.0\r\n\r\n").expect("sent");
        stream.read_to_string(&mut answer).expect("answered");
        let last = answer.lines().last().unwrap_or_default();
        last.split(' ').map(|n| n.parse().unwrap_or_else(|_| panic!("{answer}"))).collect()
    };
    let target = Target::resolve(&format!("http://{}/work", nginx.address)).expect("a URL");
    for _ in 0..2 {
        let spec = LoadSpec::poisson(target.clone(), 50.0, Duration::from_secs(600));
        let clients = start(spec).expect("clients");
        until("requests in flight", || peek()[0] > 3);
        nginx.kill_workers();
        clients.stop();
        drop(clients);
    }
    // The workers of now have a request each, so that they are there to look.
    let mut spec = LoadSpec::poisson(target, 50.0, Duration::from_secs(1));
    spec.seed = 3;
    start(spec).expect("clients").join().expect("a report");
    until("their requests to be forgotten", || peek()[..2] == [0, 0] && peek()[2] <= 2);
    assert_eq!(nginx.column("s1", 5) + nginx.column("s2", 5), 0);
    assert_eq!(nginx.errors().iter().filter(|line| line.contains("plimsoll")).count(), 0);
}

#[test]
fn the_dictionary_has_room_for_the_counters_of_all_workers() {
    let socket = SocketAddress::Unix("/run/x.sock".into());
    for (count, size) in [(3, "4m"), (100, "4m"), (200, "8m"), (2_000, "128m")] {
        let servers = (1..=count).map(|i| server(i, 100)).collect();
        let pools = [NginxPool { name: "shop".to_owned(), leastconn: true, servers }];
        let text = nginx_snippet(&socket, &pools).expect("good names");
        assert!(text.contains(&format!("\nlua_shared_dict plimsoll {size};\n")), "{count}");
    }
}

#[tokio::test]
async fn it_tells_what_it_has_and_says_what_it_does_not_understand() {
    let servers = |n: u16| (1..=n).map(|i| server(i, 100)).collect();
    let pools = [
        NginxPool { name: "shop".to_owned(), leastconn: true, servers: servers(2_000) },
        NginxPool { name: "a:80".to_owned(), leastconn: false, servers: servers(1) },
    ];
    let Some(nginx) = Nginx::start(&pools, "") else { return };
    let found = Sink::Nginx(NginxConfig::new(nginx.socket(), "")).look().await.expect("found");
    assert_eq!(found.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>(), ["shop", "a:80"]);
    assert_eq!(found[0].out_of_reach(), None);
    assert_eq!(found[0].steerable().count(), 2_000);
    assert!(found[1].out_of_reach().is_some_and(|why| why.contains("one server")));
    for bad in [
        "",
        "s1 5",
        "epoch 1\ns1 5\ns9999 5",
        "epoch 1\ns1 -1",
        "epoch 1\ns1 1001",
        "epoch 1\ns1 5 6",
        "{}",
    ] {
        let answer = nginx.ask("PUT", "/shop", bad);
        assert!(answer.contains("409") && answer.contains("refused "), "{bad:?}: {answer}");
    }
    assert_eq!((nginx.column("s1", 3), nginx.column("s2", 3)), (100, 100), "nothing was changed");
    let all: Vec<String> = (1..=2_000).map(|i| format!("s{i}")).collect();
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    let wanted: Vec<u32> = (0..2_000).map(|i| 2 + i % 900).collect();
    let applied = nginx.sink(&names).apply(&plan(&wanted)).await.expect("applied");
    assert_eq!(applied.weights.iter().map(|(_, weight)| *weight).collect::<Vec<_>>(), wanted);

    let config = NginxConfig::new(nginx.socket(), "shoq");
    let error =
        NginxSink::new(config, Vec::new()).expect("good names").read().await.expect_err("unknown");
    assert!(matches!(error, SinkError::UnknownUpstream { .. }), "{error}");
    assert!(error.to_string().contains("no upstream \"shoq\"; it has shop, a:80"), "{error}");
    let clients = SocketAddress::Tcp(nginx.address.to_string());
    let error =
        NginxSink::new(NginxConfig::new(clients, "shop"), Vec::new()).expect("good").read().await;
    let error = error.expect_err("not the Lua balancer");
    assert!(error.to_string().contains("is this the socket of the Lua balancer?"), "{error}");
}

#[test]
fn what_cannot_stand_in_a_configuration_is_refused() {
    let at = SocketAddr::from(([127, 0, 0, 1], 1));
    let unix = SocketAddress::Unix("/run/x.sock".into());
    let pool = |name: &str, server: &str| NginxPool {
        name: name.to_owned(),
        leastconn: false,
        servers: vec![NginxServer { name: server.to_owned(), address: at, weight: 100 }],
    };
    assert!(nginx_snippet(&unix, &[pool("shop", "s1")]).is_ok());
    for (name, server) in [
        ("sh op", "s1"),
        ("shop\"", "s1"),
        ("", "s1"),
        ("shop", "s\\1"),
        ("shop", "]]"),
        ("shop", "a=1"),
    ] {
        assert!(nginx_snippet(&unix, &[pool(name, server)]).is_err(), "{name} {server}");
    }
    for path in ["/run/x y.sock", "/run/x;.sock", "/run/{x}.sock", "/run/$x"] {
        assert!(nginx_snippet(&SocketAddress::Unix(path.into()), &[]).is_err(), "{path}");
    }
}

/// The same NGINX, whose first pool is an upstream of its own with a file of servers.
struct Reloaded(Nginx);

impl Reloaded {
    fn start() -> Option<Self> {
        let pools =
            [NginxPool { name: "lua".to_owned(), leastconn: false, servers: vec![server(9, 1)] }];
        let nginx = Nginx::prepare(&pools, "own")?;
        let lines: String =
            (1..=3).map(|i| format!("server 127.0.0.1:{i} weight={};\n", 10 * i)).collect();
        std::fs::write(nginx.dir.join("own.servers"), lines).expect("written");
        let mut reloaded = Reloaded(nginx);
        reloaded.0.start_again();
        Some(reloaded)
    }

    fn config(&self) -> NginxReloadConfig {
        let dir = &self.0.dir;
        let config = dir.join("nginx.conf").display().to_string();
        let command = [PROGRAM, "-p", &dir.display().to_string(), "-c", &config].map(str::to_owned);
        NginxReloadConfig {
            pid: dir.join("pid"),
            command: command.into(),
            min_interval: Duration::from_millis(1),
            ..NginxReloadConfig::new(dir.join("own.servers"))
        }
    }

    /// Servers of the contract are called s1, s2, s3: by their addresses here.
    fn name(server: &str) -> String {
        match server.strip_prefix('s').and_then(|n| n.parse::<u16>().ok()) {
            Some(n) => format!("127.0.0.1:{n}"),
            None => server.to_owned(),
        }
    }

    fn sink_of(&self, servers: &[&str]) -> NginxReloadSink {
        let named = (1..).map(BackendId).zip(servers.iter().map(|name| Self::name(name))).collect();
        NginxReloadSink::new(self.config(), named).expect("good names")
    }

    fn file(&self) -> String {
        std::fs::read_to_string(self.0.dir.join("own.servers")).expect("readable")
    }
}

#[tokio::test]
async fn without_lua_weights_are_written_and_reloaded_and_nothing_is_left_half_done() {
    let Some(mut bed) = Reloaded::start() else { return };
    let mut sink = bed.sink_of(&["s1", "s2", "s3"]);
    let workers = |bed: &Reloaded| {
        let pid = bed.0.child.as_ref().expect("it runs").id().to_string();
        let children = Command::new("pgrep").args(["-P", &pid]).output().expect("run pgrep");
        String::from_utf8_lossy(&children.stdout).into_owned()
    };
    let before = workers(&bed);
    let report = sink.read().await.expect("read");
    assert_eq!(report.servers.iter().map(|s| s.weight).collect::<Vec<_>>(), [10, 20, 30]);
    let applied = sink.apply(&plan(&[1_000, 20, 0])).await.expect("applied");
    assert_eq!(applied.commands, 2);
    until("other workers", || workers(&bed) != before);
    let written = "server 127.0.0.1:1 weight=1000;\nserver 127.0.0.1:2 weight=20;\nserver 127.0.0.1:3 weight=1 down; # \
                   weight 0 by plimsoll\n";
    assert_eq!(bed.file(), written);
    let again = sink.apply(&plan(&[1_000, 20, 0])).await.expect("applied");
    assert_eq!(again.commands, 0, "nothing differs: no reload");
    for bad in [plan(&[5, 1_001, 5]), plan(&[0, 0, 0]), plan(&[5, 5, 5, 5])] {
        assert!(!sink.apply(&bad).await.expect_err("refused").retryable());
    }
    let error = bed.sink_of(&["s1", "s7"]).apply(&plan(&[1, 2])).await.expect_err("unknown");
    assert!(error.to_string().contains("no server 127.0.0.1:7; it has 127.0.0.1:1,"), "{error}");

    // A life that ended between the writing and the reload left this file: the next one does not trust it.
    let before = workers(&bed);
    let mut next = bed.sink_of(&["s1", "s2", "s3"]);
    let applied = next.apply(&plan(&[1_000, 20, 0])).await.expect("applied");
    assert_eq!((applied.commands, bed.file().as_str()), (0, written));
    until("other workers", || workers(&bed) != before);

    // A reload that NGINX refuses is told in its words, and the file is as it was.
    let main = bed.0.dir.join("nginx.conf");
    let good = std::fs::read_to_string(&main).expect("readable");
    std::fs::write(&main, good.replace("worker_processes 2;", "worker_processes two;"))
        .expect("written");
    let error = sink.apply(&plan(&[1, 2, 3])).await.expect_err("NGINX refuses");
    assert!(error.retryable() && error.to_string().contains("worker_processes"), "{error}");
    assert_eq!(bed.file(), written);
    std::fs::write(&main, good).expect("written");
    sink.apply(&plan(&[1, 2, 3])).await.expect("applied");

    // Seldom: the second of two is refused, and says when.
    let config = NginxReloadConfig { min_interval: Duration::from_secs(600), ..bed.config() };
    let named = (1..=3).map(|i| (BackendId(i), format!("127.0.0.1:{i}"))).collect();
    let mut seldom = NginxReloadSink::new(config, named).expect("good names");
    assert_eq!(seldom.limits().min_interval, Duration::from_secs(600));
    seldom.apply(&plan(&[3, 2, 1])).await.expect("the first");
    let error = seldom.apply(&plan(&[1, 2, 3])).await.expect_err("too soon");
    assert!(error.to_string().contains("the last reload was a moment ago"), "{error}");

    bed.0.stop();
    for _ in 0..2 {
        let error = sink.read().await.expect_err("gone");
        assert!(error.retryable(), "{error}");
    }
    bed.0.start_again();
    let weights: Vec<u32> =
        sink.read().await.expect("read").servers.iter().map(|s| s.weight).collect();
    assert_eq!(weights, [3, 2, 1], "the file keeps them");
}
