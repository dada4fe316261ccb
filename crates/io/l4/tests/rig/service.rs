//! A service behind the balancer: clients, a balancer and servers in namespaces of their own, all on
//! veth pairs. A server answers every line with its name, so that a packet that reached another one is
//! seen by who answers.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use plimsoll_l4::{Backend, Balancer, L4Config, Policy};

use super::{Net, backend, config, keys, vip};

/// How long anything on one machine may take before it is lost.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The whole arrangement.
pub struct Service {
    pub net: Net,
    pub vip: SocketAddr,
    pub servers: Vec<String>,
}

/// A connection, and who answered first.
pub struct Connection {
    stream: BufReader<TcpStream>,
    pub server: String,
}

impl Service {
    /// So many servers, each with a link of its own, with this `net.ipv4.tcp_timestamps`.
    pub fn new(servers: usize, timestamps: u8, v6: bool) -> Service {
        let names: Vec<String> = (1..=servers).map(|n| format!("s{n}")).collect();
        let mut all = vec!["cli", "lb"];
        all.extend(names.iter().map(String::as_str));
        let net = Net::new(&all);
        net.exec("lb", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        net.exec("lb", "sysctl -qw net.ipv4.conf.all.rp_filter=0");
        let vip = if v6 { "[fd00:9::9]:80" } else { "10.0.9.9:80" };
        net.cable(
            ("lb", "lbc", "02:00:00:00:01:01", "10.0.1.1/24"),
            ("cli", "c0", "02:00:00:00:01:02", "10.0.1.2/24"),
        );
        net.exec("lb", "ip addr add fd00:1::1/64 dev lbc nodad");
        net.exec("cli", "ip addr add fd00:1::2/64 dev c0 nodad");
        let service = Service { net, vip: vip.parse().expect("address"), servers: names };
        service.route("cli", "c0", 1);
        for (index, name) in service.servers.iter().enumerate() {
            let n = index + 2;
            service.net.cable(
                ("lb", &format!("lb{}", index + 1), &mac_text(n, 1), &format!("10.0.{n}.1/24")),
                (name, "e0", &mac_text(n, 2), &format!("10.0.{n}.2/24")),
            );
            let leg = index + 1;
            service.net.exec("lb", &format!("ip addr add fd00:{n}::1/64 dev lb{leg} nodad"));
            service.net.exec(name, &format!("ip addr add fd00:{n}::2/64 dev e0 nodad"));
            service.net.exec(name, "ip addr add 10.0.9.9/32 dev lo");
            service.net.exec(name, "ip addr add fd00:9::9/128 dev lo nodad");
            service.net.exec(name, &format!("sysctl -qw net.ipv4.tcp_timestamps={timestamps}"));
            service.route(name, "e0", n);
            service.serve(name);
        }
        service
    }

    /// A default route through the balancer, and offloads as native XDP on veth needs them.
    fn route(&self, name: &str, interface: &str, n: usize) {
        self.net.exec(name, &format!("ip route add default via 10.0.{n}.1"));
        self.net.exec(name, &format!("ip -6 route add default via fd00:{n}::1"));
        self.net.exec(name, &format!("ethtool -K {interface} tx off gro on"));
    }

    /// Answers every line with the server's name, from its namespace.
    fn serve(&self, name: &str) {
        let (name, address) = (name.to_owned(), self.vip);
        self.net.enter(&name);
        let listener = TcpListener::bind(address).expect("listens");
        self.net.leave();
        // Ends with the process: it holds nothing but a socket of a namespace that is removed.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let name = name.clone();
                std::thread::spawn(move || answer(stream, &name));
            }
        });
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

    /// Opens connections from the clients' namespace; a refused or lost one is an error.
    pub fn connect(&self, count: usize) -> Vec<Result<Connection, String>> {
        let (vip, file) = (self.vip, format!("/run/netns/{}", self.net.full("cli")));
        std::thread::spawn(move || {
            use std::os::fd::AsFd;
            let file = std::fs::File::open(file).expect("a namespace");
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(file.as_fd(), kind).expect("enters");
            (0..count).map(|_| Connection::open(vip)).collect()
        })
        .join()
        .expect("connects")
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

    /// Who answers now.
    pub fn ask(&mut self) -> Result<String, String> {
        self.stream.get_mut().write_all(b"who\n").map_err(|error| error.to_string())?;
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err("closed".to_owned()),
            Ok(_) => Ok(line.trim().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn answer(stream: TcpStream, name: &str) {
    let Ok(mut writer) = stream.try_clone() else { return };
    for line in BufReader::new(stream).lines() {
        if line.is_err() || writer.write_all(format!("{name}\n").as_bytes()).is_err() {
            return;
        }
    }
}

fn mac_text(n: usize, end: usize) -> String {
    format!("02:00:00:00:{n:02x}:{end:02x}")
}
