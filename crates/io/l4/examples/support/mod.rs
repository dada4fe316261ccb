//! The balancer's program under a load made in the kernel: flows are computed by a preamble
//! (`bpf/bench/flows.h`), so that millions of packets take seconds and nothing but the program is in the
//! cache. Shared by examples and tests.
#![allow(dead_code)] // each user needs a part

pub mod generator;
#[path = "../../tests/rig/mod.rs"]
pub mod rig;

use std::time::Duration;

use aya::maps::{Array, MapData};
use aya::programs::{TestRun, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader};
use plimsoll_l4::{Backend, Balancer, L4Config, Policy, REASONS, Uplink, Vip};
use rig::{Net, backend, config, keys, vip};
use rustix::time::{ClockId, clock_gettime};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/bench-bench.bpf.o"));

/// The client's next hop, and the one after a reply.
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];
/// Of the leg towards servers.
pub const SERVER_LEG_MAC: [u8; 6] = [2, 0, 0, 0, 2, 1];
/// Of the leg towards clients.
pub const CLIENT_LEG_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// The service's address.
pub const VIP: &str = "10.0.9.9:80";
/// And by IPv6.
pub const VIP6: &str = "[fd00:9::9]:80";

/// Server `n`, from 1, is at this address; its cookie's id is `n`.
pub fn server_mac(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 2, n]
}

/// Servers s1, s2, … with the MAC addresses that the preamble expects.
pub fn servers(count: u8) -> Vec<Backend> {
    (1..=count)
        .map(|n| backend(&format!("s{n:03}"), &format!("10.0.2.{n}"), server_mac(n)))
        .collect()
}

/// A balancer between a leg to clients and one to servers.
pub struct Rig {
    pub net: Net,
    pub balancer: Balancer,
    pub config: L4Config,
    pub clients: u32,
    pub servers: u32,
}

/// Whether replies go to one next hop, or by the kernel's routes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Replies {
    Uplink,
    Routes,
}

impl Rig {
    pub fn new(policy: Policy, count: u8, replies: Replies) -> Rig {
        let net = legs();
        net.enter("lb");
        let config = rig_config(&net, policy, count, replies);
        let (balancer, pending) = Balancer::start_with(&config, keys()).expect("starts");
        assert_eq!(pending.0, Vec::<String>::new());
        Rig { clients: ifindex("lbc"), servers: ifindex("lbs"), net, balancer, config }
    }

    /// How often a packet went another way than straight, over all services and none.
    pub fn reasons(&self) -> [u64; REASONS.len()] {
        let mut sums = [0; REASONS.len()];
        for row in 0..=self.balancer.maps().meta().vips {
            for (sum, one) in sums.iter_mut().zip(self.balancer.maps().reasons(row).expect("read"))
            {
                *sum += one;
            }
        }
        sums
    }

    pub fn reason(&self, name: &str) -> u64 {
        self.reasons()[REASONS.iter().position(|one| *one == name).expect("a reason")]
    }

    /// Packets that each server got, of the first service (IPv4) or the second.
    pub fn packets_in(&self, service: u32) -> Vec<u64> {
        let stride = self.balancer.maps().meta().stride;
        let count = self.config.vips[0].backends.len() as u32;
        let of = |id| self.balancer.maps().count(service * stride + id).expect("read").packets_in;
        (1..=count).map(of).collect()
    }
}

/// The index of an interface of this thread's namespace.
pub fn ifindex(name: &str) -> u32 {
    let links = plimsoll_l4::network::links().expect("links");
    links.iter().find(|link| link.name == name).expect("there").index
}

/// A namespace `lb` with a leg `lbc` to clients and one `lbs` to servers, whose other ends, `c0` and
/// `s0`, are in `out`.
pub fn legs() -> Net {
    let net = Net::new(&["lb", "out"]);
    net.cable(
        ("lb", "lbc", "02:00:00:00:01:01", "10.0.1.1/24"),
        ("out", "c0", "02:00:00:00:01:02", "10.0.1.2/24"),
    );
    net.cable(
        ("lb", "lbs", "02:00:00:00:02:01", "10.0.2.254/24"),
        ("out", "s0", "02:00:00:00:02:fe", "10.0.2.253/24"),
    );
    for address in ["fd00:1::1/64 dev lbc", "fd00:2::fe/64 dev lbs"] {
        net.exec("lb", &format!("ip addr add {address} nodad"));
    }
    net.exec("lb", "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    for (route, hop) in [("10.0.0.0/8", "10.0.1.2"), ("fd00::/16", "fd00:1::2")] {
        net.exec("lb", &format!("ip route add {route} via {hop} dev lbc"));
        net.exec("lb", &format!("ip neigh replace {hop} lladdr 02:00:00:00:01:02 dev lbc"));
    }
    net
}

fn rig_config(net: &Net, policy: Policy, count: u8, replies: Replies) -> L4Config {
    let backends = servers(count);
    let mut config = config(net, &["lbc", "lbs"], vip("four", VIP, policy, backends.clone()));
    let six = backends.into_iter().zip(1..).map(|(one, n): (Backend, u8)| Backend {
        address: format!("fd00:2::{n}").parse().expect("address"),
        ..one
    });
    let address = VIP6.parse().expect("address");
    config.vips.push(Vip { name: "six".to_owned(), address, policy, backends: six.collect() });
    config.uplink = (replies == Replies::Uplink).then(|| Uplink {
        interface: "lbc".to_owned(),
        gateway: None,
        mac: Some(CLIENT_MAC),
    });
    config
}

/// `struct bench` of `bpf/bench/flows.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The number of the first flow.
    pub turn: u64,
    /// Of flows: a power of two.
    pub flows: u64,
    /// Of servers: a power of two.
    pub servers: u32,
    /// Where in the packet the upper half is that the preamble writes.
    pub field_at: u32,
}

/// The programs of `bpf/bench/bench.bpf.c`, on a running balancer's maps.
pub struct Load {
    ebpf: Ebpf,
}

impl Load {
    /// Loads them; constants follow from the maps' sizes.
    pub fn on(balancer: &Balancer) -> Load {
        let meta = balancer.maps().meta();
        let maps = balancer.maps().dir().join("maps");
        let names: Vec<String> = std::fs::read_dir(&maps)
            .expect("pinned")
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        let mut loader = EbpfLoader::new();
        for name in &names {
            loader.map_pin_path(name, maps.join(name));
        }
        let half_of = |name: &str| {
            let map = MapData::from_pin(maps.join(name)).expect("a map");
            (map.info().expect("known").max_entries() / 2).trailing_zeros()
        };
        let (vip_bits, mac_bits) = (half_of("vips"), half_of("macs"));
        let tick = rustix::time::clock_getres(ClockId::MonotonicCoarse);
        let tick_ms_q20 = ((tick.tv_nsec as u64) << 20) / 1_000_000;
        loader
            .override_global("version_bits", &meta.version_bits, true)
            .override_global("stride", &meta.stride, true)
            .override_global("max_vips", &meta.vips, true)
            .override_global("vip_bits", &vip_bits, true)
            .override_global("mac_bits", &mac_bits, true)
            .override_global("tick_ms_q20", &tick_ms_q20, true);
        Load { ebpf: loader.load(OBJECT).expect("bench.bpf.o loads") }
    }

    fn program(&mut self, name: &str) -> &mut Xdp {
        let program: &mut Xdp = self.ebpf.program_mut(name).expect(name).try_into().expect("XDP");
        if program.fd().is_err() {
            program.load().expect(name);
        }
        program
    }

    /// Sets what the preamble makes, and forgets what was missed.
    pub fn set(&mut self, settings: Settings) {
        assert!(settings.flows.is_power_of_two() && settings.servers.is_power_of_two());
        let mut map: Array<_, [u64; 4]> = self.map();
        let second = u64::from(settings.servers - 1) | u64::from(settings.field_at) << 32;
        map.set(0, [settings.turn, settings.flows - 1, second, 0], 0).expect("set");
    }

    fn map(&mut self) -> Array<&mut MapData, [u64; 4]> {
        let map = self.ebpf.map_mut("bench").expect("the map");
        map.try_into().expect("an array")
    }

    /// Packets that a connection table did not know.
    pub fn missed(&mut self) -> u64 {
        self.map().get(&0, 0).expect("read")[3]
    }

    /// Runs a program on a packet many times; the last verdict and the CPU time of one run in
    /// nanoseconds.
    pub fn run(&mut self, name: &str, packet: &[u8], ifindex: u32, repeat: u32) -> (u32, f64) {
        let program = self.program(name);
        let mut out = vec![0; packet.len() + 256];
        let context = context(packet.len(), ifindex);
        let mut options = TestRunOptions::new();
        options.data_in = Some(packet);
        options.data_out = Some(&mut out);
        options.ctx_in = Some(&context);
        options.repeat = repeat;
        let before = cpu_time();
        let result = program.test_run(options).expect("runs");
        let spent = cpu_time() - before;
        (result.return_value, spent.as_secs_f64() * 1e9 / f64::from(repeat))
    }
}

/// `struct xdp_md` for a packet that came in by an interface.
pub fn context(bytes: usize, ifindex: u32) -> [u8; 24] {
    let mut context = [0u8; 24];
    context[4..8].copy_from_slice(&(bytes as u32).to_le_bytes());
    context[12..16].copy_from_slice(&ifindex.to_le_bytes());
    context
}

/// Of this thread: the test run is within its system call, and what else runs here is not counted.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The smallest and the middle one.
pub fn min_and_median(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[0], sorted[sorted.len() / 2])
}
