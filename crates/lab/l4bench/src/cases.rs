//! The packets whose cost is asked for: established connections both ways, SYNs, and the same
//! by a balancer with a connection table.

use crate::cost::{Case, ENDLESS};
use crate::packet::{ACK, SYN, Segment, option, syn_options, timestamps};
use crate::rig::{CLIENT_LEG_MAC, VIP, VIP6, server_mac};

/// Servers of the rig that the cases are for.
pub const SERVERS: u8 = 16;
/// Flows that take turns.
pub const FLOWS: [u64; 3] = [1, 1 << 16, 1 << 20];
/// Clients that take turns, where each flow has its own.
const CLIENTS: [u64; 4] = [1 << 10, 1 << 12, 1 << 14, 1 << 16];

const CLIENT: &str = "10.0.0.1:1";
const CLIENT6: &str = "[fd00::1]:1";

/// From a client, with 64 bytes of payload.
fn packet(six: bool, flags: u8, options: Vec<u8>) -> Vec<u8> {
    let (client, vip) = if six { (CLIENT6, VIP6) } else { (CLIENT, VIP) };
    let mut segment = Segment::new(client, vip, flags, options);
    segment.payload = vec![0; 64];
    segment.bytes()
}

fn reply(six: bool) -> Vec<u8> {
    let (client, vip) = if six { (CLIENT6, VIP6) } else { (CLIENT, VIP) };
    let mut segment = Segment::new(vip, client, ACK, timestamps(1, 2)).sent_by(server_mac(1));
    segment.to_mac = CLIENT_LEG_MAC;
    segment.payload = vec![0; 64];
    segment.bytes()
}

fn ack(six: bool) -> Vec<u8> {
    packet(six, ACK, timestamps(1, 2))
}

fn syn(six: bool) -> Vec<u8> {
    packet(six, SYN, syn_options(1, 0))
}

/// Names of a preamble and of the program behind it.
type Names = (&'static str, &'static str);

fn from_client(title: &str, names: Names, packet: Vec<u8>) -> Case {
    Case {
        title: title.to_owned(),
        preamble: names.0,
        program: names.1,
        packet,
        field_at: 0,
        apart: false,
        from_servers: false,
        flows: FLOWS.to_vec(),
        fill: None,
    }
}

const TO_SERVER: Names = ("established_v4_preamble", "established_v4_balancer");
const TO_SERVER6: Names = ("established_v6_preamble", "established_v6_balancer");
const REPLY: Names = ("reply_v4_preamble", "reply_v4_balancer");
const REPLY6: Names = ("reply_v6_preamble", "reply_v6_balancer");
const PLAIN: Names = ("plain_v4_preamble", "plain_v4_balancer");
const PLAIN6: Names = ("plain_v6_preamble", "plain_v6_balancer");
const TABLE: Names = ("plain_v4_preamble", "plain_v4_table");
const TABLE6: Names = ("plain_v6_preamble", "plain_v6_table");

// The upper half of TSecr, and of TSval, from the start of the packet.
const ECHO4: u32 = 34 + 28;
const VALUE4: u32 = 34 + 24;
const ECHO6: u32 = 54 + 28;
const VALUE6: u32 = 54 + 24;

/// Packets of established connections.
pub fn established() -> Vec<Case> {
    let mut odd = vec![1, 3, 3, 7, 1];
    odd.extend(option(1, 2));
    odd.push(0);
    let slow = from_client("client to server, slow options", TO_SERVER, packet(false, ACK, odd));
    let plain =
        from_client("client to server, no timestamp", PLAIN, packet(false, ACK, Vec::new()));
    vec![
        Case { field_at: ECHO4, ..from_client("client to server", TO_SERVER, ack(false)) },
        server_to_client("server to client", false),
        Case { field_at: ECHO6, ..from_client("client to server, IPv6", TO_SERVER6, ack(true)) },
        server_to_client("server to client, IPv6", true),
        Case { field_at: 34 + 31, ..slow },
        plain,
    ]
}

fn server_to_client(title: &str, six: bool) -> Case {
    let (names, field_at) = if six { (REPLY6, VALUE6) } else { (REPLY, VALUE4) };
    Case { field_at, from_servers: true, ..from_client(title, names, reply(six)) }
}

/// Replies, on a rig without an uplink: `by` says where they go.
pub fn replies(by: &str) -> Vec<Case> {
    vec![
        server_to_client(&format!("server to client, {by}"), false),
        server_to_client(&format!("server to client, IPv6, {by}"), true),
    ]
}

/// Replies to so many clients, each with a flow.
pub fn replies_apart(by: &str) -> Vec<Case> {
    let apart = |case: Case| Case { apart: true, flows: CLIENTS.to_vec(), ..case };
    replies(by).into_iter().map(apart).collect()
}

/// Balancers that keep nothing and have no cookie: by hash alone, and with Beamer's previous server.
pub fn without_state() -> Vec<Case> {
    let names = |program| ("plain_v4_preamble", program);
    vec![
        from_client("hash, no cookie", names("plain_v4_hash"), ack(false)),
        from_client("hash, daisy chain", names("plain_v4_chained"), ack(false)),
    ]
}

/// A balancer with a connection table: look-ups.
pub fn tables() -> Vec<Case> {
    let fill = |names: Names, six| Some((names.1, syn(six)));
    vec![
        Case { fill: fill(TABLE, false), ..from_client("LRU table, hit", TABLE, ack(false)) },
        Case { fill: fill(TABLE6, true), ..from_client("LRU table, hit, IPv6", TABLE6, ack(true)) },
    ]
}

/// SYNs on a rig of this policy: forwarded, and entered into a connection table whose servers
/// are chosen the same way.
pub fn first_packets(policy: &str) -> Vec<Case> {
    let flows = vec![1 << 16, 1 << 20, ENDLESS];
    let case = |title: String, names, six| Case {
        flows: flows.clone(),
        ..from_client(&title, names, syn(six))
    };
    vec![
        case(format!("SYN, {policy}"), PLAIN, false),
        case(format!("LRU table, insert, {policy}"), TABLE, false),
    ]
}

/// The same by IPv6.
pub fn first_packets_v6(policy: &str) -> Vec<Case> {
    let six = |case: Case| {
        let table = case.program == TABLE.1;
        let names = if table { TABLE6 } else { PLAIN6 };
        let (title, flows) = (format!("{}, IPv6", case.title), case.flows);
        Case { flows, ..from_client(&title, names, syn(true)) }
    };
    first_packets(policy).into_iter().map(six).collect()
}
