//! A service behind the balancer: clients, a balancer and servers in namespaces of their own, all on
//! veth pairs. A server answers every line with its name, so that a packet that reached another one is
//! seen by which server answers.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_l4::{Backend, Balancer, L4Config, Policy};

use plimsoll_testbed::net::{Site, SiteSpec};
use rustix::net::sockopt;

use super::{Net, backend, config, keys, vip};

/// How long anything on one machine may take before it is lost.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The whole arrangement.
pub struct Service {
    pub net: Net,
    pub vip: SocketAddr,
    pub servers: Vec<String>,
    /// While it is set, servers that were asked to push do so.
    pub push: Arc<AtomicBool>,
}

/// A connection, and the server that answered first.
pub struct Connection {
    stream: BufReader<TcpStream>,
    pub server: String,
}

impl Service {
    /// So many servers, each with a link of its own, with this `net.ipv4.tcp_timestamps`.
    pub fn new(servers: usize, timestamps: u8, v6: bool) -> Service {
        Service::on(&SiteSpec { v6, server_timestamps: timestamps, ..SiteSpec::new(servers) })
    }

    /// On a site like this.
    pub fn on(spec: &SiteSpec) -> Service {
        let Site { net, vip, servers } = Site::new(spec).expect("a site");
        let service = Service { net: net.into(), vip, servers, push: Arc::default() };
        service.servers.iter().for_each(|name| service.serve(name));
        service
    }

    /// Answers every line with the server's name, from its namespace.
    fn serve(&self, name: &str) {
        let (name, address) = (name.to_owned(), self.vip);
        self.net.enter(&name);
        let listener = TcpListener::bind(address).expect("listens");
        self.net.leave();
        let push = Arc::clone(&self.push);
        // Ends with the process: it holds nothing but a socket of a namespace that is removed.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (name, push) = (name.clone(), Arc::clone(&push));
                std::thread::spawn(move || answer(stream, &name, &push));
            }
        });
    }

    /// The servers' sockets of connections that are established, or that only their client has closed.
    pub fn open_sockets(&self) -> (usize, usize) {
        let mut counted = (0, 0);
        for name in &self.servers {
            let told = self.net.exec(name, "cat /proc/net/tcp /proc/net/tcp6").stdout;
            for line in String::from_utf8_lossy(&told).lines() {
                let field: Vec<&str> = line.split_whitespace().collect();
                if field[1].ends_with(":0050") {
                    counted.0 += usize::from(field[3] == "01");
                    counted.1 += usize::from(field[3] == "08");
                }
            }
        }
        counted
    }

    /// Packets that the balancer's kernel forwarded itself: without a cookie, but for those without a route.
    pub fn forwarded(&self) -> u64 {
        let counters = self.net.exec("lb", "cat /proc/net/snmp /proc/net/snmp6").stdout;
        let counters = String::from_utf8_lossy(&counters).into_owned();
        let mut v4 = counters.lines().filter(|line| line.starts_with("Ip: "));
        let (names, counts) = (v4.next().expect("names"), v4.next().expect("counts"));
        let mut pairs = names.split(' ').zip(counts.split(' '));
        let v4 = pairs.find(|(name, _)| *name == "ForwDatagrams").expect("a counter").1;
        let v6 = counters.lines().find_map(|line| line.strip_prefix("Ip6OutForwDatagrams"));
        let number = |count: &str| count.trim().parse::<u64>().expect("a number");
        number(v4) + number(v6.expect("a counter"))
    }

    /// The servers as backends.
    pub fn backends(&self, names: &[&str]) -> Vec<Backend> {
        names
            .iter()
            .map(|name| {
                let n = name.trim_start_matches('s').parse::<usize>().expect("a number") + 1;
                let address =
                    if self.vip.is_ipv4() { format!("10.0.{n}.2") } else { format!("fd00:{n}::2") };
                let mut one = backend(name, &address, [0; 6]);
                one.mac = None;
                one
            })
            .collect()
    }

    /// A configuration with some of the servers.
    pub fn config(&self, policy: Policy, names: &[&str]) -> L4Config {
        let mut interfaces = vec!["lbc".to_owned()];
        interfaces.extend((1..=self.servers.len()).map(|n| format!("lb{n}")));
        let interfaces: Vec<&str> = interfaces.iter().map(String::as_str).collect();
        let service = vip("shop", &self.vip.to_string(), policy, self.backends(names));
        config(&self.net, &interfaces, service)
    }

    /// A balancer with nothing pending; its thread stays in the balancer's namespace.
    pub fn balance(&self, config: &L4Config) -> Balancer {
        self.net.enter("lb");
        let (mut balancer, mut pending) = Balancer::start_with(config, keys()).expect("starts");
        let began = std::time::Instant::now();
        while !pending.0.is_empty() {
            assert!(began.elapsed() < PATIENCE, "{pending:?}");
            std::thread::sleep(Duration::from_millis(50));
            pending = balancer.refresh().expect("refreshes");
        }
        balancer
    }

    /// Applies a configuration and waits until nothing is pending.
    pub fn apply(&self, balancer: &mut Balancer, config: &L4Config) {
        let mut pending = balancer.apply(config).expect("applies");
        let began = std::time::Instant::now();
        while !pending.0.is_empty() {
            assert!(began.elapsed() < PATIENCE, "{pending:?}");
            std::thread::sleep(Duration::from_millis(50));
            pending = balancer.refresh().expect("refreshes");
        }
    }

    /// No stack refused the echo of a handshake's last segment since the namespaces were made (kernels since
    /// 6.14 look). What PAWS refuses is not watched: a segment that a busy machine sent twice is old, too.
    pub fn no_echo_was_wrong(&self) {
        for name in self.servers.iter().map(String::as_str).chain(["cli"]) {
            let told = self.net.exec(name, "cat /proc/net/netstat").stdout;
            let told = String::from_utf8_lossy(&told).into_owned();
            let mut lines = told.lines().filter(|line| line.starts_with("TcpExt: "));
            let (names, counts) = (lines.next().expect("names"), lines.next().expect("counts"));
            let mut counters = names.split(' ').zip(counts.split(' '));
            let refused = counters.find(|(name, _)| *name == "TSEcrRejected");
            assert!(refused.is_none_or(|(_, count)| count == "0"), "{name}: {refused:?}");
        }
    }

    /// Opens connections from the clients' namespace; a refused or lost one is an error.
    pub fn connect(&self, count: usize) -> Vec<Result<Connection, String>> {
        let all = || (0..count).map(|_| Connection::open(self.vip)).collect();
        self.net.inside("cli", all).expect("enters")
    }

    /// The same, all of them served.
    pub fn opened(&self, count: usize) -> Vec<Connection> {
        self.connect(count).into_iter().map(|one| one.expect("connects")).collect()
    }
}

/// All of them answer, each by the server it began with.
pub fn all_stay(connections: &mut [Connection], when: &str) {
    for connection in connections {
        assert_eq!(connection.ask().as_deref(), Ok(connection.server.as_str()), "{when}");
    }
}

impl Connection {
    fn open(vip: SocketAddr) -> Result<Connection, String> {
        let stream =
            TcpStream::connect_timeout(&vip, PATIENCE).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
        let mut connection = Connection { stream: BufReader::new(stream), server: String::new() };
        connection.server = connection.ask()?;
        Ok(connection)
    }

    /// Asks its server to push lines once `push` is set, whether or not they are read.
    pub fn ask_to_push(&mut self) {
        self.stream.get_mut().write_all(b"push\n").expect("says");
    }

    /// The same, so fast that hardly a moment passes without a segment.
    pub fn ask_to_rush(&mut self) {
        self.stream.get_mut().write_all(b"rush\n").expect("says");
    }

    /// Whether its own server answers still, after all that was pushed.
    pub fn stays(&mut self) -> Result<(), String> {
        self.say()?;
        loop {
            let line = self.hear()?;
            if line == self.server {
                return Ok(());
            }
            if line != "tick" {
                return Err(format!("{line} answered"));
            }
        }
    }

    /// Its socket is gone at once, and says so by a RST.
    pub fn abort(self) {
        sockopt::set_socket_linger(self.stream.get_ref(), Some(Duration::ZERO)).expect("set");
    }

    /// Asks, and leaves the answer for the next to read.
    pub fn say(&mut self) -> Result<(), String> {
        self.stream.get_mut().write_all(b"who\n").map_err(|error| error.to_string())
    }

    /// The server that answers now.
    pub fn ask(&mut self) -> Result<String, String> {
        self.say()?;
        self.hear()
    }

    /// The next line of its server.
    pub fn hear(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err("closed".to_owned()),
            Ok(_) => Ok(line.trim().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn answer(stream: TcpStream, name: &str, push: &AtomicBool) {
    let Ok(mut writer) = stream.try_clone() else { return };
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let pace = match line.as_str() {
            "push" => Some(Duration::from_millis(50)),
            "rush" => Some(Duration::from_millis(2)),
            _ => None,
        };
        if let Some(pace) = pace {
            while !push.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
            while push.load(Ordering::Relaxed) {
                if writer.write_all(b"tick\n").is_err() {
                    return;
                }
                std::thread::sleep(pace);
            }
            continue;
        }
        if writer.write_all(format!("{name}\n").as_bytes()).is_err() {
            return;
        }
    }
}
