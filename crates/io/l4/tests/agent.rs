//! The server's agent: replies go straight to the client, and connections stay through changes of
//! servers, balancers, agents and salts. Servers keep Linux's default, `net.ipv4.tcp_timestamps=1`.

mod rig;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_l4::bench::packet::{ACK, SYN, Segment, checksum, syn_options, timestamps};
use plimsoll_l4::{
    Agent, AgentConfig, AgentStatus, Balancer, Interface, Keys, L4Config, Policy, agent_status,
    status,
};
use plimsoll_testbed::net::{ReplyPath, SiteSpec};
use rig::service::{Connection, PATIENCE, Service};
use rig::{Net, keys, privileged, run};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketAddrV4, SocketType, recv, sendto, socket,
    sockopt,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A service whose servers have a second link, straight to the client, by which all replies leave.
struct Direct {
    service: Service,
    agents: BTreeMap<String, Agent>,
}

impl Direct {
    fn new(servers: usize, v6: bool) -> Direct {
        let path = ReplyPath::Direct;
        let spec =
            SiteSpec { v6, server_timestamps: 1, reply_path: path, ..SiteSpec::new(servers) };
        let service = Service::on(&spec);
        let mut direct = Direct { service, agents: BTreeMap::new() };
        let names = direct.service.servers.clone();
        for name in &names {
            direct.start_agent(name);
        }
        direct
    }

    fn net(&self) -> &Net {
        &self.service.net
    }

    fn pins(&self, server: &str) -> PathBuf {
        self.net().pins().join(format!("agent-{server}"))
    }

    /// A balancer's configuration with some of the servers, whose ids stand in it.
    fn config(&self, names: &[&str]) -> L4Config {
        let mut config = self.service.config(Policy::RoundRobin, names);
        for backend in &mut config.vips[0].backends {
            backend.agent = true;
            backend.id = backend.name[1..].parse().ok();
        }
        config
    }

    /// Starts an agent, or another one in its place.
    fn start_agent(&mut self, server: &str) {
        let config = self.config(&[server]);
        let local = [config.vips[0].backends[0].address];
        let interfaces = ["e0", "d0", "e1"].map(str::to_owned).to_vec();
        let config = AgentConfig::of(&config, &local, interfaces, self.pins(server));
        self.net().enter(server);
        let started = Agent::start(&config.expect("a server"), keys());
        self.net().leave();
        let (agent, pending) = started.expect("starts");
        assert!(pending.0.iter().all(|what| what.starts_with("interface e1: not there")));
        self.agents.insert(server.to_owned(), agent);
    }

    fn agent_status(&self, server: &str) -> AgentStatus {
        agent_status(&self.pins(server)).expect("status")
    }

    /// A second balancer with links of its own to everybody; the client's packets go by it afterwards.
    fn second_balancer(&self, names: &[&str], keys: &Keys) -> (Balancer, Net) {
        let net = self.net();
        let away = Net::new(&["lb"]);
        let mut config = self.config(names);
        config.pin_dir = away.pins();
        config.interfaces.retain(|interface| interface.name == "lbc");
        let first = config.interfaces.remove(0);
        let mut leg = |n: u16, end: &str, interface: &str| {
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
            config.interfaces.push(Interface { name: near, ..first.clone() });
        };
        leg(1, "cli", "c1");
        for name in names {
            leg(name[1..].parse::<u16>().expect("a number") + 1, name, "e1");
        }
        for backend in &mut config.vips[0].backends {
            let n = backend.id.expect("an id") + 1;
            let v4 = backend.address.is_ipv4();
            let address = if v4 { format!("10.8.{n}.2") } else { format!("fd08:{n}::2") };
            backend.address = address.parse().expect("address");
            backend.mac = Some([2, 0, 0, 8, n as u8, 2]);
        }
        away.enter("lb");
        let started = Balancer::start_with(&config, keys.clone());
        away.leave();
        let (balancer, pending) = started.expect("starts");
        assert!(pending.0.is_empty(), "{pending:?}");
        net.exec("cli", "ip route replace default via 10.8.1.1");
        net.exec("cli", "ip -6 route replace default via fd08:1::1");
        (balancer, away)
    }
}

fn all_stay(connections: &mut [Connection], when: &str) {
    for connection in connections {
        assert_eq!(connection.ask().as_deref(), Ok(connection.server.as_str()), "{when}");
    }
}

fn opened(service: &Service, count: usize) -> Vec<Connection> {
    service.connect(count).into_iter().map(|one| one.expect("connects")).collect()
}

fn connections_stay(v6: bool) {
    let mut direct = Direct::new(3, v6);
    let mut balancer = direct.service.balance(&direct.config(&["s1", "s2"]));
    let mut connections = opened(&direct.service, 40);
    let served: BTreeSet<&str> = connections.iter().map(|one| one.server.as_str()).collect();
    assert_eq!(served, BTreeSet::from(["s1", "s2"]));
    all_stay(&mut connections, "at rest");

    for (names, when) in [
        (&["s2", "s3"][..], "s3 joins and s1 drains"),
        (&["s3"], "s2 drains, too"),
        (&["s3", "s1", "s2"], "all are back"),
    ] {
        direct.service.apply(&mut balancer, &direct.config(names));
        all_stay(&mut connections, when);
        let more = opened(&direct.service, 10);
        assert!(more.iter().all(|one| names.contains(&one.server.as_str())), "{when}");
        connections.extend(more);
    }

    // The kernel goes on without the agents' processes, and the next ones count on.
    let before = direct.agent_status("s1");
    direct.agents.clear();
    all_stay(&mut connections, "without the agents' processes");
    for name in ["s1", "s2", "s3"] {
        direct.start_agent(name);
    }
    all_stay(&mut connections, "after the agents started over");
    let after = direct.agent_status("s1");
    assert!(after.vips[0].counts["restored"] > before.vips[0].counts["restored"]);

    let rotated = rotate(&mut direct, &mut balancer);
    all_stay(&mut connections, "with a second salt");

    // Nothing but first packets and later ones towards servers: no reply, and nothing out of the way.
    let seen = status(&direct.net().pins()).expect("status");
    assert!(seen.vips[0].backends.iter().all(|one| one.packets_in > 0 && one.packets_out == 0));
    assert!(
        seen.vips[0].fallbacks.values().all(|count| *count == 0),
        "{:?}",
        seen.vips[0].fallbacks
    );

    let second = direct.second_balancer(&["s1", "s2", "s3"], &rotated);
    for (name, agent) in &mut direct.agents {
        direct.service.net.enter(name);
        let pending = agent.refresh();
        direct.service.net.leave();
        assert_eq!(pending.expect("refreshes").0, Vec::<String>::new(), "the new link is found");
    }
    drop(balancer);
    plimsoll_l4::detach(&direct.net().pins().join("links")).expect("the first is gone");
    all_stay(&mut connections, "by another balancer that never saw them");
    connections.extend(opened(&direct.service, 12));
    all_stay(&mut connections, "at the end");
    let taken = status(&second.1.pins()).expect("status");
    assert!(taken.vips[0].backends.iter().all(|one| one.packets_in > 0 && one.packets_out == 0));
    drop(second);
    for name in ["s1", "s2", "s3"] {
        let counts = &direct.agent_status(name).vips[0].counts;
        assert!(counts["written"] > 0 && counts["restored"] > 0);
        for none in ["foreign_cookie", "no_socket", "syn_cookie"] {
            assert_eq!(counts[none], 0, "{name}: {none}");
        }
    }
}

/// A new salt, in force some seconds ago, for balancer and agents.
fn rotate(direct: &mut Direct, balancer: &mut Balancer) -> Keys {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    let next = Keys {
        salts: [Some([7; 32]), Some([9; 32])],
        epoch: plimsoll_cookie::Epoch::Odd,
        since_unix_ms: now.as_millis() as u64 - 3000,
        ..keys()
    };
    balancer.set_keys(next.clone()).expect("written");
    for agent in direct.agents.values_mut() {
        agent.set_keys(next.clone()).expect("written");
    }
    assert_eq!(direct.agent_status("s1").epoch, 1);
    next
}

#[test]
fn ipv4_connections_stay_and_replies_go_straight_to_the_client() {
    if privileged() {
        connections_stay(false);
    }
}

#[test]
fn ipv6_connections_stay_and_replies_go_straight_to_the_client() {
    if privileged() {
        connections_stay(true);
    }
}

const RAW_CLIENT: &str = "10.0.1.77";
const HANDSHAKES: u16 = 200;
/// Longer than a clock's tick and a retransmission: an echo must be exact, not only recent.
const DELAY: Duration = Duration::from_millis(1300);

/// What one segment of the VIP to the raw client says.
struct Heard {
    port: u16,
    from_mac: [u8; 6],
    flags: u8,
    sequence: u32,
    value: u32,
    data: Vec<u8>,
}

fn heard(frame: &[u8]) -> Option<Heard> {
    let client: std::net::Ipv4Addr = RAW_CLIENT.parse().expect("address");
    if frame.len() < 54 || frame[12..14] != [8, 0] || frame[30..34] != client.octets() {
        return None;
    }
    let tcp = &frame[34..14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]))];
    let header = usize::from(tcp[12] >> 4) * 4;
    let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().expect("four"));
    let at = tcp[20..header].windows(2).position(|two| two == [8, 10])? + 20;
    Some(Heard {
        port: u16::from_be_bytes([tcp[2], tcp[3]]),
        from_mac: frame[6..12].try_into().expect("six"),
        flags: tcp[13],
        sequence: word(4),
        value: word(at + 2),
        data: tcp[header..].to_vec(),
    })
}

/// An IP packet from the raw client.
fn packet(port: u16, flags: u8, numbers: (u32, u32), options: Vec<u8>, payload: &[u8]) -> Vec<u8> {
    let mut segment = Segment::new(&format!("{RAW_CLIENT}:{port}"), "10.0.9.9:80", flags, options);
    segment.payload = payload.to_vec();
    let mut bytes = segment.bytes().split_off(14);
    bytes[24..28].copy_from_slice(&numbers.0.to_be_bytes());
    bytes[28..32].copy_from_slice(&numbers.1.to_be_bytes());
    bytes[36..38].fill(0);
    let mut pseudo = bytes[12..20].to_vec();
    pseudo.extend([0, 6]);
    pseudo.extend(((bytes.len() - 20) as u16).to_be_bytes());
    let sum = checksum(&[&pseudo, &bytes[20..]]);
    bytes[36..38].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Both sockets of a client that the kernel knows nothing of: its address is nobody's.
struct RawClient {
    out: rustix::fd::OwnedFd,
    all: rustix::fd::OwnedFd,
}

impl RawClient {
    fn new() -> RawClient {
        let out = socket(AddressFamily::INET, SocketType::RAW, Some(rustix::net::ipproto::RAW));
        let ip_frames = Protocol::from_raw(std::num::NonZeroU32::new(0x0008).expect("not zero"));
        let all = socket(AddressFamily::PACKET, SocketType::RAW, Some(ip_frames)).expect("opens");
        sockopt::set_socket_timeout(&all, sockopt::Timeout::Recv, Some(Duration::from_millis(100)))
            .expect("set");
        sockopt::set_socket_recv_buffer_size(&all, 8 << 20).expect("set");
        RawClient { out: out.expect("opens"), all }
    }

    fn send(&self, packet: &[u8]) {
        let to: SocketAddrV4 = "10.0.9.9:0".parse().expect("address");
        sendto(&self.out, packet, SendFlags::empty(), &to).expect("sends");
    }

    /// Listens until `enough` says so, or patience ends.
    fn listen(&self, mut enough: impl FnMut(Heard) -> bool) {
        let began = std::time::Instant::now();
        let mut frame = vec![0; 4096];
        while began.elapsed() < PATIENCE {
            let Ok((length, _)) = recv(&self.all, &mut frame[..], RecvFlags::empty()) else {
                continue;
            };
            if heard(&frame[..length]).is_some_and(&mut enough) {
                return;
            }
        }
    }
}

/// All handshakes whose last ACK comes late; who answered, by what their frames and words say.
fn delayed_handshakes() -> BTreeMap<u16, ([u8; 6], String)> {
    let client = RawClient::new();
    let ports = 20_000..20_000 + HANDSHAKES;
    for port in ports {
        client.send(&packet(port, SYN, (1000, 0), syn_options(77, 0), b""));
    }
    let mut answers = BTreeMap::new();
    client.listen(|heard| {
        if heard.flags == SYN | ACK {
            answers.entry(heard.port).or_insert(heard);
        }
        answers.len() == usize::from(HANDSHAKES)
    });
    assert_eq!(answers.len(), usize::from(HANDSHAKES), "every SYN is answered");
    std::thread::sleep(DELAY);
    for (port, answer) in &answers {
        let numbers = (1001, answer.sequence.wrapping_add(1));
        client.send(&packet(*port, ACK, numbers, timestamps(1400, answer.value), b"who\n"));
    }
    let mut served = BTreeMap::new();
    client.listen(|heard| {
        if !heard.data.is_empty() {
            let name = String::from_utf8_lossy(&heard.data).trim().to_owned();
            served.insert(heard.port, (heard.from_mac, name));
        }
        served.len() == usize::from(HANDSHAKES)
    });
    served
}

#[test]
fn handshakes_with_late_acks_all_survive_at_the_server_that_answered() {
    if !privileged() {
        return;
    }
    let direct = Direct::new(2, false);
    let balancer = direct.service.balance(&direct.config(&["s1", "s2"]));
    direct.net().leave();
    let namespace = format!("/run/netns/{}", direct.net().full("cli"));
    let client = std::thread::spawn(move || {
        let file = std::fs::File::open(namespace).expect("a namespace");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("enters");
        delayed_handshakes()
    });
    let served = client.join().expect("a client");
    assert_eq!(served.len(), usize::from(HANDSHAKES));
    let mut names = BTreeSet::new();
    for (mac, name) in served.values() {
        let n: u8 = name[1..].parse().expect("a server's name");
        assert_eq!(*mac, [2, 0, 0, 1, n + 1, 2], "straight from the server that says its name");
        names.insert(name.clone());
    }
    assert_eq!(names.len(), 2);
    drop(balancer);
}
