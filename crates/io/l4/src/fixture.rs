//! What unit tests with a real balancer share.

use std::path::PathBuf;
use std::time::Duration;

use crate::{
    AttachMode, Backend, CookieConfig, Interface, Keys, L4Config, Limits, Policy, UplinkMode, Vip,
};

/// Pins that go with the test, even when it fails.
pub struct Pins(pub PathBuf);

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = crate::detach(&self.0);
    }
}

/// One service, `shop`, of these servers.
pub fn config(pin_dir: PathBuf, interfaces: &[&str], backends: Vec<Backend>) -> L4Config {
    let interface = |name: &&str| Interface { name: (*name).to_owned(), mode: AttachMode::Native };
    let vip = Vip {
        name: "shop".to_owned(),
        address: "10.0.9.9:80".parse().expect("an address"),
        policy: Policy::RoundRobin,
        slow_start: Duration::ZERO,
        backends,
    };
    L4Config {
        interfaces: interfaces.iter().map(interface).collect(),
        vips: vec![vip],
        cookie: CookieConfig {
            layout: plimsoll_cookie::Layout::default(),
            key_file: PathBuf::from("/nonexistent"),
            rotate: None,
        },
        uplink: UplinkMode::Auto,
        limits: Limits::default(),
        pin_dir,
        drain: Duration::from_secs(3600),
    }
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
