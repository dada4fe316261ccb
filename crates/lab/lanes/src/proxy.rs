//! Plimsoll's own proxy in front of one lane, started as `plimsoll proxy run`.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::family::Member;
use crate::haproxy::{SECTION, Server};
use crate::listener::free_address;
use crate::program::plimsoll;
use crate::{Family, LaneError};

/// It listens within a second.
const START_WITHIN: Duration = Duration::from_secs(10);
/// How often to look whether it does.
const LOOK_EVERY: Duration = Duration::from_millis(10);

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
        let member = member.map_err(LaneError::system("start plimsoll proxy run"))?;
        let mut proxy = Proxy { member, address, socket };
        proxy.wait_until_ready(name)?;
        Ok(proxy)
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

    /// It answers questions once all its threads serve.
    fn wait_until_ready(&mut self, name: &str) -> Result<(), LaneError> {
        let end = Instant::now() + START_WITHIN;
        loop {
            if let Some(ended) = self.ended() {
                return Err(ended);
            }
            let is_ready = UnixStream::connect(&self.socket)
                .and_then(|_| std::net::TcpStream::connect(self.address));
            match is_ready {
                Ok(_) => return Ok(()),
                Err(why) if Instant::now() > end => {
                    return Err(LaneError::Mute { name: name.to_owned(), why: why.to_string() });
                }
                Err(_) => std::thread::sleep(LOOK_EVERY),
            }
        }
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
