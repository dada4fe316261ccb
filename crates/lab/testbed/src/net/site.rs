//! A service on one machine: clients, a balancer and servers in namespaces of their own, on veth pairs.
//!
//! ```text
//!   cli ── c0 · lbc ── lb ── lb1 · e0 ── s1        replies pass the balancer, or, direct, go from
//!    │                  └─── lb2 · e0 ── s2        each server by its second link (d0) to the client
//!    └──────── d2, d3, … · d0 ──────────┘
//! ```
//!
//! Every server holds the service's address on `lo` (direct routing). Native XDP on veth needs the far
//! ends to hand over frames with checksums, by NAPI: `ethtool -K DEV tx off gro on`.

use std::net::{IpAddr, SocketAddr};

use super::{CableEnd, Namespaces, NetError};

/// The service's address.
const VIP: &str = "10.0.9.9";
/// And by IPv6.
const VIP6: &str = "fd00:9::9";
/// The service's port.
const PORT: u16 = 80;
/// Servers at most: each has a network 10.0.n.0/24 of its own.
const MOST_SERVERS: usize = 250;
/// Makes an interface ready for native XDP at its other end.
const OFFLOADS: &str = "tx off gro on";

/// How replies reach clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyPath {
    /// Through the balancer, which is the servers' router.
    #[default]
    Balancer,
    /// Straight to the client, by a link of their own (direct server return).
    Direct,
}

/// What a site is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteSpec {
    /// How many servers: s1, s2, …
    pub servers: usize,
    /// Whether clients use IPv6; both families are set up.
    pub v6: bool,
    /// The servers' `net.ipv4.tcp_timestamps`: 2 for cookies that the balancer restores.
    pub server_timestamps: u8,
    /// The clients' one: 1 is Linux's default, 0 sends none.
    pub client_timestamps: u8,
    /// How replies reach clients.
    pub reply_path: ReplyPath,
}

impl SiteSpec {
    /// IPv4, timestamps as the balancer needs them, replies through it.
    pub fn new(servers: usize) -> Self {
        SiteSpec {
            servers,
            v6: false,
            server_timestamps: 2,
            client_timestamps: 1,
            reply_path: ReplyPath::Balancer,
        }
    }
}

/// Clients (`cli`), a balancer (`lb`) that is only a router yet, and servers (`s1`, `s2`, …).
pub struct Site {
    /// Its namespaces.
    pub net: Namespaces,
    /// What clients connect to.
    pub vip: SocketAddr,
    /// The servers' names.
    pub servers: Vec<String>,
}

impl Site {
    /// Sets it up; nothing listens yet.
    ///
    /// # Errors
    /// When the system refuses something of it.
    ///
    /// # Panics
    /// When asked for more servers than there are networks for.
    pub fn new(spec: &SiteSpec) -> Result<Self, NetError> {
        assert!(spec.servers <= MOST_SERVERS, "at most {MOST_SERVERS} servers");
        let servers: Vec<String> = (1..=spec.servers).map(|n| format!("s{n}")).collect();
        let mut names = vec!["cli", "lb"];
        names.extend(servers.iter().map(String::as_str));
        let net = Namespaces::new(&names)?;
        let ip: &str = if spec.v6 { VIP6 } else { VIP };
        let ip: IpAddr = ip.parse().expect("an address");
        let site = Site { net, vip: SocketAddr::new(ip, PORT), servers };
        site.lay_clients(spec)?;
        for server in 0..spec.servers {
            site.lay_server(spec, server)?;
        }
        Ok(site)
    }

    fn lay_clients(&self, spec: &SiteSpec) -> Result<(), NetError> {
        let net = &self.net;
        for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            net.set_sysctl("lb", key, "1")?;
        }
        net.set_sysctl("lb", "net.ipv4.conf.all.rp_filter", "0")?;
        net.set_sysctl("cli", "net.ipv4.tcp_timestamps", &spec.client_timestamps.to_string())?;
        net.set_sysctl("cli", "net.ipv4.ip_local_port_range", "1024 65535")?;
        self.leg("lbc", ("cli", "c0"), 1)
    }

    fn lay_server(&self, spec: &SiteSpec, index: usize) -> Result<(), NetError> {
        let (net, name, n) = (&self.net, self.servers[index].as_str(), self.number(index));
        self.leg(&self.leg_to(index), (name, "e0"), n)?;
        let vips = [format!("{VIP}/32"), format!("{VIP6}/128 nodad")];
        net.run(name, &vips.map(|vip| format!("ip addr add dev lo {vip}")).join(" && "))?;
        net.set_sysctl(name, "net.ipv4.tcp_timestamps", &spec.server_timestamps.to_string())?;
        match spec.reply_path {
            ReplyPath::Balancer => Ok(()),
            ReplyPath::Direct => self.shortcut(name, n),
        }
    }

    /// A link of the balancer to one of its neighbours, which routes everything else through it.
    fn leg(&self, near: &str, (name, far): (&str, &str), n: usize) -> Result<(), NetError> {
        let mac = |end: u8| format!("02:00:00:00:{n:02x}:{end:02x}");
        let address = |end: u8| format!("10.0.{n}.{end}/24");
        self.net.cable(
            CableEnd { namespace: "lb", interface: near, mac: &mac(1), address: &address(1) },
            CableEnd { namespace: name, interface: far, mac: &mac(2), address: &address(2) },
        )?;
        self.net.run("lb", &format!("ip addr add fd00:{n}::1/64 dev {near} nodad"))?;
        let line = format!(
            "ip addr add fd00:{n}::2/64 dev {far} nodad && ip route add default via 10.0.{n}.1 && \
             ip -6 route add default via fd00:{n}::1 && ethtool -K {far} {OFFLOADS}"
        );
        self.net.run(name, &line).map(drop)
    }

    /// A second link, straight to the clients, by which all replies leave.
    fn shortcut(&self, name: &str, n: usize) -> Result<(), NetError> {
        let (net, near) = (&self.net, format!("d{n}"));
        let mac = |end: u8| format!("02:00:00:01:{n:02x}:{end:02x}");
        let address = |end: u8| format!("10.1.{n}.{end}/24");
        net.cable(
            CableEnd { namespace: "cli", interface: &near, mac: &mac(1), address: &address(1) },
            CableEnd { namespace: name, interface: "d0", mac: &mac(2), address: &address(2) },
        )?;
        net.run("cli", &format!("ip addr add fd01:{n}::1/64 dev {near} nodad"))?;
        let line = format!(
            "ip addr add fd01:{n}::2/64 dev d0 nodad && ip route replace default via 10.1.{n}.1 && \
             ip -6 route replace default via fd01:{n}::1"
        );
        net.run(name, &line)?;
        // Replies come in by another interface than requests leave by.
        for one in ["cli", name] {
            net.set_sysctl(one, "net.ipv4.conf.all.rp_filter", "0")?;
        }
        Ok(())
    }

    /// The number of a server's networks: not that of the service's address.
    fn number(&self, index: usize) -> usize {
        index + if index + 2 < 9 { 2 } else { 3 }
    }

    /// The balancer's interface towards a server, by its place in [`Site::servers`].
    pub fn leg_to(&self, index: usize) -> String {
        format!("lb{}", index + 1)
    }

    /// All interfaces of the balancer, the clients' first.
    pub fn balancer_interfaces(&self) -> Vec<String> {
        let legs = (0..self.servers.len()).map(|index| self.leg_to(index));
        std::iter::once("lbc".to_owned()).chain(legs).collect()
    }

    /// The clients' own address, in the family of the service's.
    pub fn client_address(&self) -> IpAddr {
        let text = if self.vip.is_ipv4() { "10.0.1.2" } else { "fd00:1::2" };
        text.parse().expect("an address")
    }

    /// The clients' MAC address towards the balancer.
    pub fn client_mac(&self) -> [u8; 6] {
        [2, 0, 0, 0, 1, 2]
    }

    /// A server's MAC address, by its place in [`Site::servers`].
    pub fn mac_of(&self, index: usize) -> [u8; 6] {
        [2, 0, 0, 0, self.number(index) as u8, 2]
    }

    /// A server's own address, in the clients' family, by its place in [`Site::servers`].
    pub fn address_of(&self, index: usize) -> IpAddr {
        let n = self.number(index);
        let text = if self.vip.is_ipv4() { format!("10.0.{n}.2") } else { format!("fd00:{n}::2") };
        text.parse().expect("an address")
    }
}
