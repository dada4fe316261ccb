//! A real NGINX as a child process, and what stands behind it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use plimsoll_model::BackendId;
use plimsoll_sink::{
    NginxConfig, NginxPool, NginxServer, NginxSink, Servers, SocketAddress, nginx_snippet,
};
use plimsoll_testbed::{BackendSpec, Service, Testbed, TestbedSpec};

/// Longest wait for anything that a healthy NGINX does at once.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const PROGRAM: &str = "/usr/sbin/nginx";
pub const MODULES: [&str; 2] = ["ndk_http_module.so", "ngx_http_lua_module.so"];

pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The modules' directory; none where NGINX or its Lua module is missing, which is said.
pub fn modules() -> Option<PathBuf> {
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
pub struct Nginx {
    pub dir: PathBuf,
    pub child: Option<Child>,
    /// Where clients connect.
    pub address: SocketAddr,
}

impl Nginx {
    /// With these pools in the snippet; `more` stands in `http`. Requests go to the first pool.
    pub fn start(pools: &[NginxPool], more: &str) -> Option<Self> {
        let mut nginx = Self::prepare_with(pools, &pools[0].name, more)?;
        nginx.start_again();
        Some(nginx)
    }

    /// Not started yet; requests go to an upstream of this name, whose servers are in NAME.servers.
    pub fn prepare(pools: &[NginxPool], name: &str) -> Option<Self> {
        Self::prepare_with(pools, name, &format!("upstream {name} {{ include {name}.servers; }}"))
    }

    pub fn prepare_with(pools: &[NginxPool], to: &str, more: &str) -> Option<Self> {
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

    pub fn write_snippet(&self, pools: &[NginxPool]) {
        let text = nginx_snippet(&self.socket(), pools).expect("good names");
        std::fs::write(self.dir.join("plimsoll.conf"), text).expect("written");
    }

    /// Has it read a snippet with these pools, and waits until a new worker answers.
    pub fn reload_with(&self, pools: &[NginxPool]) {
        self.write_snippet(pools);
        self.signal("HUP");
        let servers = pools[0].servers.len();
        until("the reload", || {
            let text = self.ask("GET", &format!("/{}", pools[0].name), "");
            text.lines().filter(|line| line.starts_with("server ")).count() == servers
        });
    }

    pub fn path(&self) -> PathBuf {
        self.dir.join("plimsoll.sock")
    }

    pub fn socket(&self) -> SocketAddress {
        SocketAddress::Unix(self.path())
    }

    pub fn start_again(&mut self) {
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

    pub fn signal(&self, name: &str) {
        let pid = self.child.as_ref().expect("nginx runs").id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(sent.expect("run kill").success());
    }

    pub fn kill_workers(&self) {
        let pid = self.child.as_ref().expect("it runs").id().to_string();
        let children = Command::new("pgrep").args(["-P", &pid]).output().expect("run pgrep");
        let workers = String::from_utf8_lossy(&children.stdout).into_owned();
        for worker in workers.split_whitespace() {
            let killed = Command::new("kill").args(["-9", worker]).status();
            assert!(killed.expect("run kill").success());
        }
    }

    /// In order, so that it takes its socket away.
    pub fn stop(&mut self) {
        if self.child.is_some() {
            self.signal("TERM");
        }
        if let Some(mut child) = self.child.take() {
            child.wait().expect("wait for nginx");
        }
    }

    pub fn sink(&self, servers: &[&str]) -> NginxSink {
        let config = NginxConfig {
            timeout: Duration::from_secs(10),
            ..NginxConfig::new(self.socket(), "shop")
        };
        NginxSink::new(config, named(servers)).expect("good names")
    }

    /// What the socket says, asked as an administrator would with curl. A connection that is reset is made once more,
    /// unless a worker has crashed.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let answer = self.asked(method, path, body).or_else(|error| {
            let log = std::fs::read_to_string(self.dir.join("error.log")).unwrap_or_default();
            let is_reset = error.kind() == ErrorKind::ConnectionReset;
            assert!(is_reset && !log.contains("exited on signal 11"), "{error}\n{log}");
            self.asked(method, path, body)
        });
        answer.expect("answered")
    }

    fn asked(&self, method: &str, path: &str, body: &str) -> std::io::Result<String> {
        let mut stream = UnixStream::connect(self.path())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let length = body.len();
        let request = format!("{method} {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Column of a server's line.
    pub fn column(&self, server: &str, column: usize) -> u64 {
        self.column_if_there(server, column).unwrap_or_else(|| panic!("{server}: no such line"))
    }

    /// The same; nothing while the server is not there, as before a reload has taken effect.
    pub fn column_if_there(&self, server: &str, column: usize) -> Option<u64> {
        let text = self.ask("GET", "/shop", "");
        let line = text.lines().find(|line| line.starts_with(&format!("server {server} ")))?;
        let word = line.split(' ').nth(column).unwrap_or_else(|| panic!("{text}"));
        Some(word.parse().expect("a number"))
    }

    pub fn errors(&self) -> Vec<String> {
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

pub fn named(servers: &[&str]) -> Servers {
    (1..).map(BackendId).zip(servers.iter().map(|name| (*name).to_owned())).collect()
}

/// Backends s1, s2, … that take this long for a request.
pub fn bed(servers: usize, takes: Duration) -> Testbed {
    let backend = |i| BackendSpec {
        cores: 8,
        ..BackendSpec::new(format!("s{i}"), Service::deterministic(takes))
    };
    let backends = (1..=servers).map(backend).collect();
    Testbed::start(TestbedSpec { admin: None, backends }).expect("backends")
}

pub fn pool(bed: &Testbed, leastconn: bool) -> NginxPool {
    let servers = bed.addresses().iter().map(|(name, address)| NginxServer {
        name: name.clone(),
        address: *address,
        weight: 100,
    });
    NginxPool { name: "shop".to_owned(), leastconn, servers: servers.collect() }
}

/// Number `i`, which need not be reachable.
pub fn server(i: u16, weight: u32) -> NginxServer {
    NginxServer { name: format!("s{i}"), address: SocketAddr::from(([127, 0, 0, 1], i)), weight }
}
