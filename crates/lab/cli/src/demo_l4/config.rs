//! What a lane's balancer is to do: for the kernel's tables, and for the daemon's file.

use std::time::Duration;

use plimsoll_l4::{
    AttachMode, Backend, BackendState, CookieConfig, Interface, L4Config, Limits, Uplink,
    UplinkMode, Vip,
};
use plimsoll_testbed::net::Site;
use serde_json::{Value, json};

use super::Method;
use super::churn::{Place, SERVERS};

/// How long a server that is no longer named serves its connections: longer than any demonstration.
const DRAIN: Duration = Duration::from_secs(24 * 3600);

/// With the servers in these places.
pub fn configuration(site: &Site, method: Method, places: &[Place; SERVERS]) -> L4Config {
    let backend = |(index, (name, place)): (usize, (&String, &Place))| {
        let state = match place {
            Place::Away => return None,
            Place::Up => BackendState::Up,
            Place::Draining => BackendState::Draining,
        };
        let address = site.address_of(index);
        Some(Backend {
            name: name.clone(),
            address,
            mac: None,
            weight: 1,
            id: None,
            state,
            agent: false,
        })
    };
    let interface = |name| Interface { name, mode: AttachMode::Native };
    L4Config {
        interfaces: site.balancer_interfaces().into_iter().map(interface).collect(),
        vips: vec![Vip {
            name: "shop".to_owned(),
            address: site.vip,
            policy: method.policy(),
            slow_start: Duration::ZERO,
            backends: site.servers.iter().zip(places).enumerate().filter_map(backend).collect(),
        }],
        cookie: CookieConfig {
            layout: Default::default(),
            key_file: site.net.dir().join("l4.key"),
            rotate: None,
        },
        uplink: UplinkMode::Fixed(Uplink {
            interface: "lbc".to_owned(),
            gateway: Some(site.client_address()),
            mac: None,
        }),
        limits: Limits::default(),
        pin_dir: site.net.pins(),
        drain: DRAIN,
    }
}

/// The same as the daemon reads it: JSON, which is YAML. What is the daemon's default is left out.
pub fn file(config: &L4Config) -> String {
    let backend =
        |one: &Backend| json!({ "name": one.name, "address": one.address, "state": one.state });
    let vip = |vip: &Vip| {
        let backends: Vec<Value> = vip.backends.iter().map(backend).collect();
        json!({
            "name": vip.name,
            "address": vip.address,
            "policy": vip.policy.name(),
            "backends": backends,
        })
    };
    let interfaces = config.interfaces.iter().map(|one| json!({ "name": one.name }));
    let uplink = match &config.uplink {
        UplinkMode::Fixed(to) => json!({ "interface": to.interface, "gateway": to.gateway }),
        UplinkMode::Auto => json!("auto"),
        UplinkMode::Ask => json!("ask"),
    };
    let section = json!({
        "interfaces": interfaces.collect::<Vec<Value>>(),
        "pin_dir": config.pin_dir,
        "cookie": { "key_file": config.cookie.key_file },
        "uplink": uplink,
        "vips": config.vips.iter().map(vip).collect::<Vec<Value>>(),
    });
    json!({ "l4": section }).to_string()
}
