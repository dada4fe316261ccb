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
use crate::section::{ProxySection, backends, timeouts};
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
        let address = free_address()?;
        let mut command = command(family, name, &configuration(&socket, address))?;
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

/// `plimsoll proxy run` with this configuration, which is written to the family's directory.
pub(crate) fn command(
    family: &Family,
    name: &str,
    configuration: &Value,
) -> Result<Command, LaneError> {
    let file = family.dir().join(format!("{name}.yaml"));
    std::fs::write(&file, configuration.to_string())
        .map_err(LaneError::system("write the proxy's configuration"))?;
    let mut command = Command::new(plimsoll()?);
    command.args(["proxy", "run", "--config"]).arg(&file).stdin(Stdio::null());
    Ok(command)
}

/// The policy that does what HAProxy's `balance` does.
pub fn proxy_policy(balance: &str) -> &'static str {
    match balance {
        "leastconn" => "least_connections",
        "random(2)" => "power_of_n",
        _ => "round_robin",
    }
}

/// As much time for servers as the other balancers give them.
fn configuration(
    socket: &Path,
    address: SocketAddr,
    policy: &str,
    servers: &[Server],
    patience: Duration,
) -> Value {
    ProxySection::default()
        .socket(socket)
        .egress("clients", address, json!({ "timeouts": timeouts(patience) }))
        .pool(SECTION, backends(servers), json!({ "policy": policy }))
        .file()
}
