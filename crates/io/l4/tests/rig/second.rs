//! A second balancer of a service, with links of its own to all. Which connections go by which balancer is told
//! by routes, as a router in front would by connections' hashes.

use plimsoll_l4::{Balancer, Interface, Keys, L4Config};

use super::service::Service;
use super::{Net, run};

/// It, and its namespace `lb`.
pub struct Second {
    pub balancer: Balancer,
    pub net: Net,
    /// The first one's configuration with its own addresses.
    pub config: L4Config,
}

impl Second {
    /// Laid beside the first balancer, with the servers of its configuration and their ids; no connection goes by
    /// it yet.
    pub fn new(service: &Service, first: &L4Config, keys: &Keys) -> Second {
        // What removes its namespace would else begin in the first one's, and end with that.
        service.net.leave();
        let away = Net::new(&["lb"]);
        away.exec("lb", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        away.exec("lb", "sysctl -qw net.ipv4.conf.all.rp_filter=0");
        leg(&service.net, &away, 1, "cli", "c1");
        for (n, name) in (2..).zip(&service.servers) {
            leg(&service.net, &away, n, name, "e1");
        }
        // Clients are known by their first address alone.
        away.exec("lb", "ip route add 10.0.1.0/24 via 10.8.1.2");
        away.exec("lb", "ip route add fd00:1::/64 via fd08:1::2");
        let config = own(first, &away);
        away.enter("lb");
        let started = Balancer::start_with(&config, keys.clone());
        away.leave();
        let (balancer, pending) = started.expect("starts");
        assert!(pending.0.is_empty(), "{pending:?}");
        Second { balancer, net: away, config }
    }

    /// Does in its namespace what the first one's configuration says.
    pub fn apply(&mut self, first: &L4Config) {
        self.config = own(first, &self.net);
        self.net.enter("lb");
        let applied = self.balancer.apply(&self.config);
        self.net.leave();
        assert_eq!(applied.expect("applies").0, Vec::<String>::new());
    }
}

fn leg(net: &Net, away: &Net, n: u16, end: &str, interface: &str) {
    let (near, mac) = (format!("m{n}"), format!("02:00:00:08:{n:02x}"));
    let (lb, other) = (away.full("lb"), net.full(end));
    run(&format!(
        "ip link add {near} netns {lb} address {mac}:01 type veth peer name {interface} netns \
         {other} address {mac}:02"
    ));
    for (name, link, last) in [(&lb, near.as_str(), 1), (&other, interface, 2)] {
        run(&format!("ip -n {name} addr add 10.8.{n}.{last}/24 dev {link}"));
        run(&format!("ip -n {name} addr add fd08:{n}::{last}/64 dev {link} nodad"));
        run(&format!("ip -n {name} link set {link} up"));
    }
    net.exec(end, &format!("ethtool -K {interface} tx off gro on"));
    net.exec(end, "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.fib_multipath_hash_policy=1");
}

/// The first balancer's configuration, by this one's links.
fn own(first: &L4Config, away: &Net) -> L4Config {
    let mut config = first.clone();
    config.pin_dir = away.pins();
    let legs = first.interfaces.iter().zip(1..);
    config.interfaces =
        legs.map(|(one, n)| Interface { name: format!("m{n}"), ..one.clone() }).collect();
    for backend in &mut config.vips[0].backends {
        let n = backend.id.expect("an id") + 1;
        let v4 = backend.address.is_ipv4();
        let address = if v4 { format!("10.8.{n}.2") } else { format!("fd08:{n}::2") };
        backend.address = address.parse().expect("address");
        backend.mac = Some([2, 0, 0, 8, n as u8, 2]);
    }
    config
}

/// The balancer that connections go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    First,
    Second,
    /// Each by one of them, by the hash of its addresses.
    Both,
}

/// Sets the default route of a neighbour of both, whose `n`-th link this is, and of its replies.
pub fn route(net: &Net, name: &str, n: usize, by: By) {
    let hops = |family: &str, first: String, second: String| {
        let to = match by {
            By::First => format!("via {first}"),
            By::Second => format!("via {second}"),
            By::Both => format!("nexthop via {first} nexthop via {second}"),
        };
        // A server answers from the service's address, whatever its route says.
        let source = match (name, family) {
            ("cli", "-4") => "src 10.0.1.2",
            ("cli", _) => "src fd00:1::2",
            _ => "",
        };
        net.exec(name, &format!("ip {family} route replace default {source} {to}"));
    };
    hops("-4", format!("10.0.{n}.1"), format!("10.8.{n}.1"));
    hops("-6", format!("fd00:{n}::1"), format!("fd08:{n}::1"));
}
