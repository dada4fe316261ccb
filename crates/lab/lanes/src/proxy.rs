//! Plimsoll's own proxy in front of one lane, started as `plimsoll proxy run`.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::family::Member;
use crate::haproxy::{SECTION, Server};
use crate::listener::free_address;
use crate::program::plimsoll;
use crate::{Family, LaneError};

/// It listens within a second.
const START_WITHIN: Duration = Duration::from_secs(10);

/// A running proxy; killed when dropped.
pub struct Proxy {
    member: Member,
    address: SocketAddr,
    socket: PathBuf,
}

impl Proxy {
    /// Starts one for these servers, and returns when it listens. `policy` is one of the proxy's own.
    ///
    /// # Errors
    /// When there is no `plimsoll`, or it ends at once.
    pub fn start(
        family: &Family,
        name: &str,
        policy: &str,
        servers: &[Server],
        patience: Duration,
    ) -> Result<Self, LaneError> {
        Proxy::start_with(family, name, |socket, address| {
            configuration(socket, address, policy, servers, patience)
        })
    }

    /// The same with a configuration of the caller's, which is given the path of the proxy's socket and the address
    /// at which its clients come.
    ///
    /// # Errors
    /// When there is no `plimsoll`, or it ends at once.
    pub fn start_with(
        family: &Family,
        name: &str,
        configuration: impl FnOnce(&Path, SocketAddr) -> Value,
    ) -> Result<Self, LaneError> {
        let socket = family.dir().join(format!("{name}.sock"));
        let file = family.dir().join(format!("{name}.yaml"));
        let address = free_address()?;
        let text = configuration(&socket, address).to_string();
        std::fs::write(&file, text)
            .map_err(LaneError::system("write the proxy's configuration"))?;
        let mut command = Command::new(plimsoll()?);
        command.args(["proxy", "run", "--config"]).arg(&file).stdin(Stdio::null());
        let member = family.spawn(name, &mut command);
        let mut member = member.map_err(LaneError::system("start plimsoll proxy run"))?;
        // It answers questions once all its threads serve.
        member.wait_until(START_WITHIN, || {
            UnixStream::connect(&socket)?;
            TcpStream::connect(address).map(drop)
        })?;
        Ok(Proxy { member, address, socket })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it is steered.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// That it has ended, if it has.
    pub fn ended(&mut self) -> Option<LaneError> {
        self.member.ended()
    }
}

/// The policy that does what HAProxy's `balance` does.
pub fn proxy_policy(balance: &str) -> &'static str {
    match balance {
        "leastconn" => "least_connections",
        "random(2)" => "power_of_n",
        _ => "round_robin",
    }
}

/// One thread, as HAProxy has, and as much time for servers.
fn configuration(
    socket: &Path,
    address: SocketAddr,
    policy: &str,
    servers: &[Server],
    patience: Duration,
) -> Value {
    let server = |server: &Server| {
        let Server { name, address, weight } = server;
        json!({ "name": name, "address": address.to_string(), "weight": weight })
    };
    let backends: Vec<Value> = servers.iter().map(server).collect();
    let request = format!("{}ms", patience.as_millis() + 2000);
    json!({ "proxy": {
        "threads": 1,
        "socket": socket,
        "egress": [{ "name": "clients", "listen": address.to_string(), "timeouts": { "request": request } }],
        "pools": [{ "name": SECTION, "policy": policy, "backends": backends }],
    } })
}
