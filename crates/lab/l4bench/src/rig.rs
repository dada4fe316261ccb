//! A balancer between a leg to clients and one to servers, with no machines behind them: for packets that are
//! made (`BPF_PROG_TEST_RUN`), not received.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_cookie::Layout;

use crate::BenchError;
use plimsoll_l4::{
    AttachMode, Backend, BackendState, Balancer, CookieConfig, Interface, Keys, L4Config, L4Error,
    Limits, Mac, Policy, REASONS, Uplink, UplinkMode, Vip,
};

/// The client's next hop, and the one after a reply.
pub const CLIENT_MAC: Mac = [2, 0, 0, 0, 1, 2];
/// Of the leg towards servers.
pub const SERVER_LEG_MAC: Mac = [2, 0, 0, 0, 3, 1];
/// Of the leg towards clients.
pub const CLIENT_LEG_MAC: Mac = [2, 0, 0, 0, 1, 1];
/// The service's address.
pub const VIP: &str = "10.0.9.9:80";
/// And by IPv6.
pub const VIP6: &str = "[fd00:9::9]:80";

/// Server `n`, from 1, is at this address; its cookie's id is `n`.
pub fn server_mac(n: u8) -> Mac {
    [2, 0, 0, 0, 2, n]
}

/// A balancer with two services, one for each family, of the same servers.
#[derive(Debug)]
pub struct Rig {
    /// The balancer.
    pub balancer: Balancer,
    /// Its configuration.
    pub config: L4Config,
    /// The leg towards clients, by index.
    pub clients: u32,
    /// The leg towards servers.
    pub servers: u32,
}

/// Where replies go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// To one next hop, as configured.
    Uplink,
    /// To that of the kernel's default route, which the daemon follows.
    DefaultRoute,
    /// Where the kernel's routes lead, which are asked for each.
    Asked,
}

impl Rig {
    /// With so many servers, pinned in a directory of bpffs. The thread is in a namespace with [`legs`],
    /// and stays there as long as the rig is used.
    ///
    /// # Errors
    /// Without root or legs, or when the kernel does not take the balancer.
    pub fn new(
        pins: PathBuf,
        policy: Policy,
        count: u8,
        replies: Replies,
    ) -> Result<Rig, BenchError> {
        Rig::of(rig_config(pins, policy, count, replies))
    }

    /// The same, with room for the ways to so many clients.
    ///
    /// # Errors
    /// As [`Rig::new`].
    pub fn with_room(
        pins: PathBuf,
        policy: Policy,
        count: u8,
        replies: Replies,
        clients: u32,
    ) -> Result<Rig, BenchError> {
        let mut config = rig_config(pins, policy, count, replies);
        config.limits.clients = Some(clients);
        Rig::of(config)
    }

    fn of(config: L4Config) -> Result<Rig, BenchError> {
        let (balancer, pending) = Balancer::start_with(&config, keys())?;
        if let Some(missing) = pending.0.first() {
            return Err(BenchError::kernel("the balancer is not ready")(missing));
        }
        let (clients, servers) = (ifindex("lbc")?, ifindex("lbs")?);
        Ok(Rig { balancer, config, clients, servers })
    }

    /// How often a packet went another way than straight, over all services and none.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn reasons(&self) -> Result<[u64; REASONS.len()], L4Error> {
        let mut sums = [0; REASONS.len()];
        for row in 0..=self.balancer.maps().meta().vips {
            for (sum, one) in sums.iter_mut().zip(self.balancer.maps().reasons(row)?) {
                *sum += one;
            }
        }
        Ok(sums)
    }

    /// How often for this one of [`REASONS`].
    ///
    /// # Errors
    /// When a map cannot be read.
    ///
    /// # Panics
    /// When it is no reason.
    pub fn reason(&self, name: &str) -> Result<u64, L4Error> {
        let at = REASONS.iter().position(|one| *one == name).expect("a reason");
        Ok(self.reasons()?[at])
    }

    /// Packets that each server got, of the first service (IPv4) or the second.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn packets_in(&self, service: u32) -> Result<Vec<u64>, L4Error> {
        let stride = self.balancer.maps().meta().stride;
        let count = self.config.vips[0].backends.len() as u32;
        let of = |id| Ok(self.balancer.maps().count(service * stride + id)?.packets_in);
        (1..=count).map(of).collect()
    }
}

/// The index of an interface of this thread's namespace.
///
/// # Errors
/// When there is none of this name.
pub fn ifindex(name: &str) -> Result<u32, BenchError> {
    let links = plimsoll_l4::network::links().map_err(L4Error::from)?;
    let link = links.iter().find(|link| link.name == name);
    link.map(|link| link.index).ok_or_else(|| {
        BenchError::kernel(format!("interface {name}"))("not there, expected in this namespace")
    })
}

/// A shell's script, to be run in the balancer's namespace: a leg `lbc` to clients and one `lbs` to servers,
/// whose other ends, `c0` and `s0`, are in the namespace `out`.
pub fn legs(out: &str) -> String {
    format!(
        "set -e
        ip link add lbc address 02:00:00:00:01:01 type veth \
            peer name c0 netns {out} address 02:00:00:00:01:02
        ip link add lbs address 02:00:00:00:03:01 type veth \
            peer name s0 netns {out} address 02:00:00:00:02:fe
        for end in c0 s0; do ip -n {out} link set $end up; done
        for leg in lbc lbs; do ip link set $leg up; done
        ip addr add 10.0.1.1/24 dev lbc
        ip addr add 10.0.2.254/24 dev lbs
        ip addr add fd00:1::1/64 dev lbc nodad
        ip addr add fd00:2::fe/64 dev lbs nodad
        sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
        for hop in 10.0.1.2 fd00:1::2; do
            ip neigh replace $hop lladdr 02:00:00:00:01:02 dev lbc
        done
        ip route add default via 10.0.1.2 dev lbc
        ip -6 route add default via fd00:1::2 dev lbc"
    )
}

fn rig_config(pins: PathBuf, policy: Policy, count: u8, replies: Replies) -> L4Config {
    let four = |n: u8| backend(&format!("s{n:03}"), [10, 0, 2, n].into(), server_mac(n));
    let backends: Vec<Backend> = (1..=count).map(four).collect();
    let six = backends
        .iter()
        .zip(1..)
        .map(|(one, n)| Backend { address: [0xfd00, 2, 0, 0, 0, 0, 0, n].into(), ..one.clone() });
    let six = six.collect();
    let mut config = config(pins, &["lbc", "lbs"], vip("four", VIP, policy, backends));
    config.vips.push(vip("six", VIP6, policy, six));
    config.uplink = match replies {
        Replies::Uplink => UplinkMode::Fixed(Uplink {
            interface: "lbc".to_owned(),
            gateway: None,
            mac: Some(CLIENT_MAC),
        }),
        Replies::DefaultRoute => UplinkMode::Auto,
        Replies::Asked => UplinkMode::Ask,
    };
    config
}

/// Secrets that are none.
pub fn keys() -> Keys {
    Keys {
        epoch: plimsoll_cookie::Epoch::Even,
        since_unix_ms: 0,
        salts: [Some([7; 32]), None],
        spread: [8; 32],
    }
}

/// A configuration with one service.
pub fn config(pin_dir: PathBuf, interfaces: &[&str], vip: Vip) -> L4Config {
    L4Config {
        interfaces: interfaces
            .iter()
            .map(|name| Interface { name: (*name).to_owned(), mode: AttachMode::Native })
            .collect(),
        vips: vec![vip],
        cookie: CookieConfig {
            layout: Layout::default(),
            key_file: PathBuf::from("/nonexistent"),
            rotate: None,
        },
        uplink: UplinkMode::Auto,
        limits: Limits::default(),
        pin_dir,
        drain: Duration::from_secs(3600),
    }
}

/// A service.
///
/// # Panics
/// When the address is none.
pub fn vip(name: &str, address: &str, policy: Policy, backends: Vec<Backend>) -> Vip {
    Vip {
        name: name.to_owned(),
        address: address.parse().expect("address"),
        policy,
        slow_start: Duration::ZERO,
        backends,
    }
}

/// A server with a known MAC address.
pub fn backend(name: &str, address: std::net::IpAddr, mac: Mac) -> Backend {
    Backend {
        name: name.to_owned(),
        address,
        mac: Some(mac),
        weight: 1,
        id: None,
        state: BackendState::Up,
        agent: false,
    }
}
