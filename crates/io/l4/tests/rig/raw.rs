//! Clients that no kernel knows, so that nothing answers for them: handshakes whose last ACK comes late.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use plimsoll_l4bench::packet::{ACK, SYN, Segment, checksum, syn_options, timestamps};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketAddrV4, SocketType, recv, sendto, socket,
    sockopt,
};

use super::service::{PATIENCE, Service};

pub const HANDSHAKES: usize = 200;
const FIRST_PORT: u16 = 20_000;
/// Longer than a clock's tick and a retransmission: an echo must be exact, not only recent.
const DELAY: Duration = Duration::from_millis(1300);

/// Each handshake has a client of its own: kernels before 2026 have one clock for all of an address.
fn client(port: u16) -> Ipv4Addr {
    Ipv4Addr::from(0xac10_0000 + u32::from(port - FIRST_PORT) + 1)
}

/// What one segment of the VIP to a raw client says.
struct Heard {
    port: u16,
    from_mac: [u8; 6],
    flags: u8,
    sequence: u32,
    value: u32,
    data: Vec<u8>,
}

fn heard(frame: &[u8]) -> Option<Heard> {
    if frame.len() < 54 || frame[12..14] != [8, 0] || frame[30..32] != [172, 16] {
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

/// An IP packet from a raw client.
fn packet(port: u16, flags: u8, numbers: (u32, u32), options: Vec<u8>, payload: &[u8]) -> Vec<u8> {
    let from = format!("{}:{port}", client(port));
    let mut segment = Segment::new(&from, "10.0.9.9:80", flags, options);
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

/// Both sockets of a client that the kernel knows nothing of: its address is no machine's.
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

/// How a handshake ended.
pub struct Served {
    /// The sender of the answer's frame.
    pub from_mac: [u8; 6],
    /// The client, by its address.
    pub client: String,
    /// The timestamp in the first answer, with its cookie.
    pub wire: u32,
    /// What the answer says: its server's name.
    pub name: String,
}

/// Handshakes whose last ACK comes late: those that are served.
pub fn delayed_handshakes(service: &Service) -> Vec<Served> {
    // They are behind the clients' namespace.
    service.net.exec("lb", "ip route replace 172.16.0.0/16 via 10.0.1.2");
    service.net.inside("cli", shake_hands).expect("enters")
}

/// A segment of each client with a timestamp from before its handshake.
pub fn send_old_timestamps(service: &Service, served: &[Served]) {
    let send = || {
        let raw = RawClient::new();
        for one in served {
            let (_, port) = one.client.rsplit_once(':').expect("a port");
            let port = port.parse().expect("a number");
            raw.send(&packet(port, ACK, (1005, 0), timestamps(1, one.wire), b"old\n"));
        }
    };
    service.net.inside("cli", send).expect("enters");
}

fn shake_hands() -> Vec<Served> {
    let raw = RawClient::new();
    for port in (FIRST_PORT..).take(HANDSHAKES) {
        raw.send(&packet(port, SYN, (1000, 0), syn_options(77, 0), b""));
    }
    let mut answers = BTreeMap::new();
    raw.listen(|heard| {
        if heard.flags == SYN | ACK {
            answers.entry(heard.port).or_insert(heard);
        }
        answers.len() == HANDSHAKES
    });
    assert_eq!(answers.len(), HANDSHAKES, "every SYN is answered");
    std::thread::sleep(DELAY);
    for (port, answer) in &answers {
        let numbers = (1001, answer.sequence.wrapping_add(1));
        raw.send(&packet(*port, ACK, numbers, timestamps(1400, answer.value), b"who\n"));
    }
    let mut served = BTreeMap::new();
    raw.listen(|heard| {
        if !heard.data.is_empty() {
            let name = String::from_utf8_lossy(&heard.data).trim().to_owned();
            let wire = answers[&heard.port].value;
            let client = format!("{}:{}", client(heard.port), heard.port);
            served.insert(heard.port, Served { from_mac: heard.from_mac, client, wire, name });
        }
        served.len() == HANDSHAKES
    });
    served.into_values().collect()
}
