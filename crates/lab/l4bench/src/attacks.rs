//! Attacks at size, beside connections that must not notice: SYNs of millions of connections,
//! and millions of guessed cookies.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::Instant;

use aya::maps::{HashMap, Map, MapData};

use crate::cost::ENDLESS;
use crate::packet::{ACK, REDIRECT, SYN, Segment, TX, read_timestamps, syn_options, timestamps};
use crate::rig::{CLIENT_MAC, Rig, VIP, server_mac};
use crate::{BenchError, Load, Settings};
use plimsoll_l4::xdp::Ran;

/// Packets that a system call makes; in between, the live connections speak.
const BURST: u32 = 1 << 16;

/// A connection as both of its ends see it, packet by packet.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Its client's address.
    pub client: String,
    /// The server it got.
    pub server: u8,
    /// What the client echoes.
    pub wire: u32,
    /// What its server stamped.
    pub real: u32,
}

impl Connection {
    /// Opens one.
    ///
    /// # Errors
    /// When its SYN reaches no server.
    pub fn open(rig: &Rig, client: String) -> Result<Connection, BenchError> {
        let syn = Segment::new(&client, VIP, SYN, syn_options(1, 0));
        let ran = rig.balancer.run(&syn.bytes(), rig.clients)?;
        let server = ran.packet[5];
        if !left(&ran) || ran.packet[..6] != server_mac(server) {
            return Err(BenchError::kernel(client)("its SYN reached no server"));
        }
        Ok(Connection { client, server, wire: 0, real: 0 })
    }

    /// A packet from its server, stamped `real`; whether it leaves towards the client.
    ///
    /// # Errors
    /// When the kernel does not run the program.
    pub fn reply(&mut self, rig: &Rig, real: u32) -> Result<bool, BenchError> {
        let segment = Segment::new(VIP, &self.client, ACK, timestamps(real, 1))
            .sent_by(server_mac(self.server));
        let ran = rig.balancer.run(&segment.bytes(), rig.servers)?;
        self.wire = read_timestamps(&ran.packet, 22).0;
        self.real = real;
        Ok(left(&ran) && ran.packet[..6] == CLIENT_MAC)
    }

    /// A packet from its client; whether it reaches its server, with the echo that its server expects.
    ///
    /// # Errors
    /// When the kernel does not run the program.
    pub fn ask(&self, rig: &Rig) -> Result<bool, BenchError> {
        let segment = Segment::new(&self.client, VIP, ACK, timestamps(7, self.wire));
        let ran = rig.balancer.run(&segment.bytes(), rig.clients)?;
        Ok(left(&ran)
            && ran.packet[..6] == server_mac(self.server)
            && read_timestamps(&ran.packet, 22) == (7, self.real))
    }
}

/// Whether a packet left: by another interface, or back by the one it came in by.
fn left(ran: &Ran) -> bool {
    matches!(ran.verdict, REDIRECT | TX)
}

/// What the kernel holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Bytes of each pinned map, by its name.
    pub maps: Vec<(String, u64)>,
    /// Fragmented packets that are remembered.
    pub fragments: usize,
}

impl Held {
    /// By what is pinned in a balancer's directory.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn by(dir: &Path) -> Result<Held, BenchError> {
        let what = |name: &str| BenchError::kernel::<std::io::Error>(format!("map {name}"));
        let mut maps = Vec::new();
        for entry in fs::read_dir(dir.join("maps")).map_err(what("all"))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let map = MapData::from_pin(entry.path()).map_err(BenchError::kernel(&name))?;
            let info = format!("/proc/self/fdinfo/{}", map.fd().as_fd().as_raw_fd());
            let text = fs::read_to_string(info).map_err(what(&name))?;
            let bytes = text.lines().find_map(|line| line.strip_prefix("memlock:"));
            let bytes = bytes.and_then(|bytes| bytes.trim().parse().ok());
            let bytes = bytes.ok_or("no memlock in its fdinfo").map_err(BenchError::kernel(&name));
            maps.push((name, bytes?));
        }
        maps.sort();
        let map = MapData::from_pin(dir.join("maps/fragments"));
        let map = map.and_then(Map::from_map_data).map_err(BenchError::kernel("fragments"))?;
        let map: HashMap<MapData, [u32; 10], u32> =
            map.try_into().map_err(BenchError::kernel("fragments"))?;
        Ok(Held { maps, fragments: map.keys().count() })
    }

    /// Of all maps.
    pub fn bytes(&self) -> u64 {
        self.maps.iter().map(|(_, bytes)| bytes).sum()
    }
}

/// What a flood of SYNs did.
#[derive(Clone, Debug, PartialEq)]
pub struct Flood {
    /// How many were sent, each of a connection of its own.
    pub sent: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// What the kernel held before.
    pub before: Held,
    /// And held then.
    pub after: Held,
    /// Packets of live connections during it, both ways.
    pub asked: u64,
    /// Of these, how many were lost, or came to another server or with another echo.
    pub astray: u64,
    /// SYNs that each server got, those of the live connections included.
    pub opened: Vec<u64>,
}

/// Sends SYNs, none of a connection that was there before, in bursts; after each, every live
/// connection sends a packet both ways. `tell` hears the part that is done, and may end it.
///
/// # Errors
/// When the kernel does not run the program, a SYN reaches no server, or `tell` fails.
pub fn flood<E: From<BenchError>>(
    rig: &Rig,
    total: u64,
    live: usize,
    mut tell: impl FnMut(f64) -> Result<(), E>,
) -> Result<Flood, E> {
    let mut load = Load::on(&rig.balancer)?;
    let client = |n: usize| format!("172.16.{}.{}:40000", n / 200, n % 200 + 1);
    let mut live = (0..live)
        .map(|n| Connection::open(rig, client(n)))
        .collect::<Result<Vec<_>, BenchError>>()?;
    let dir = rig.balancer.maps().dir().to_owned();
    let before = Held::by(&dir)?;
    let syn = Segment::new("10.0.0.1:1", VIP, SYN, syn_options(1, 0)).bytes();
    let began = Instant::now();
    let (mut sent, mut asked, mut astray) = (0, 0, 0);
    while sent < total {
        tell(sent as f64 / total as f64)?;
        load.set(Settings { turn: sent, ..settings(rig, 0) })?;
        forwarded(load.run("plain_v4_balancer", &syn, rig.clients, BURST)?.0)?;
        sent += u64::from(BURST);
        for one in &mut live {
            let now = 0x1234_0000 + began.elapsed().as_millis() as u32;
            for right in [one.reply(rig, now)?, one.ask(rig)?] {
                asked += 1;
                astray += u64::from(!right);
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let opened = (1..=rig.config.vips[0].backends.len() as u32)
        .map(|id| Ok(rig.balancer.maps().count(id)?.opened))
        .collect::<Result<Vec<_>, plimsoll_l4::L4Error>>()
        .map_err(BenchError::from)?;
    Ok(Flood { sent, seconds, before, after: Held::by(&dir)?, asked, astray, opened })
}

/// Where guessed cookies went.
#[derive(Clone, Debug, PartialEq)]
pub struct Forged {
    /// How many were sent, each of a connection of its own.
    pub sent: u64,
    /// Packets that each server got.
    pub by_server: Vec<u64>,
    /// How many were counted as no server's; the others named a server by chance.
    pub counted: u64,
}

/// Sends packets with a number for a cookie, each of another connection.
///
/// # Errors
/// When the kernel does not run the program, or a packet reaches no server.
pub fn forge(rig: &Rig, total: u32) -> Result<Forged, BenchError> {
    let mut load = Load::on(&rig.balancer)?;
    let ack = Segment::new("10.0.0.1:1", VIP, ACK, timestamps(1, 2)).bytes();
    let (got, counted) = (rig.packets_in(0)?, rig.reason("foreign_cookie")?);
    load.set(settings(rig, 34 + 28))?;
    forwarded(load.run("forged_v4_balancer", &ack, rig.clients, total)?.0)?;
    let by_server = rig.packets_in(0)?.iter().zip(got).map(|(now, before)| now - before).collect();
    let counted = rig.reason("foreign_cookie")? - counted;
    Ok(Forged { sent: u64::from(total), by_server, counted })
}

/// Pearson's statistic against equal shares.
pub fn chi_square(counts: &[u64]) -> f64 {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum()
}

fn settings(rig: &Rig, field_at: u32) -> Settings {
    let servers = rig.config.vips[0].backends.len() as u32;
    Settings { servers, field_at, ..Settings::of(ENDLESS) }
}

fn forwarded(verdict: u32) -> Result<(), BenchError> {
    if verdict == REDIRECT {
        return Ok(());
    }
    let error = format!("verdict {verdict}, expected {REDIRECT} (redirect)");
    Err(BenchError::kernel("a packet of the attack")(error))
}
