//! Configurations of Plimsoll's proxy, put together entry by entry.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::haproxy::Server;

/// The `trust` of an ingress before which egresses of this machine are.
pub const LOOPBACK: [&str; 1] = ["127.0.0.0/8"];

/// A `proxy` section with one thread, as the other balancers of a comparison have.
#[derive(Clone, Debug)]
pub struct ProxySection {
    section: Value,
}

impl Default for ProxySection {
    fn default() -> Self {
        ProxySection { section: json!({ "threads": 1 }) }
    }
}

impl ProxySection {
    /// The same with a socket for `plimsoll proxy` and whoever steers it.
    pub fn socket(mut self, socket: &Path) -> Self {
        self.section["socket"] = json!(socket);
        self
    }

    /// The same with an ingress that listens here, and these keys.
    pub fn ingress(
        self,
        name: &str,
        listen: SocketAddr,
        upstream: SocketAddr,
        keys: Value,
    ) -> Self {
        let (listen, upstream) = (listen.to_string(), upstream.to_string());
        let entry = json!({ "name": name, "listen": listen, "upstream": upstream });
        self.entry("ingress", entry, keys)
    }

    /// The same with an egress that listens here, and these keys.
    pub fn egress(self, name: &str, listen: SocketAddr, keys: Value) -> Self {
        self.entry("egress", json!({ "name": name, "listen": listen.to_string() }), keys)
    }

    /// The same with a pool of these backends, and these keys: its policy and the policy's settings.
    pub fn pool<'a>(
        self,
        name: &str,
        backends: impl IntoIterator<Item = (&'a str, SocketAddr, u32)>,
        keys: Value,
    ) -> Self {
        let backend = |(name, address, weight): (&str, SocketAddr, u32)| json!({ "name": name, "address": address.to_string(), "weight": weight });
        let backends: Vec<Value> = backends.into_iter().map(backend).collect();
        self.entry("pools", json!({ "name": name, "backends": backends }), keys)
    }

    /// A file of it, as JSON, which is YAML.
    pub fn file(self) -> Value {
        json!({ "proxy": self.section })
    }

    fn entry(mut self, list: &str, mut entry: Value, mut keys: Value) -> Self {
        if let (Some(entry), Some(keys)) = (entry.as_object_mut(), keys.as_object_mut()) {
            entry.append(keys);
        }
        match self.section[list].as_array_mut() {
            Some(entries) => entries.push(entry),
            None => self.section[list] = json!([entry]),
        }
        self
    }
}

/// As backends of a pool.
pub(crate) fn backends(servers: &[Server]) -> impl Iterator<Item = (&str, SocketAddr, u32)> {
    servers.iter().map(|server| (server.name.as_str(), server.address, server.weight))
}

/// The `timeouts` of an entry: servers get a little longer than clients are willing to wait.
pub fn timeouts(patience: Duration) -> Value {
    json!({ "request": format!("{}ms", server_timeout(patience).as_millis()) })
}

/// How long a server may take when clients are willing to wait for so long.
pub(crate) fn server_timeout(patience: Duration) -> Duration {
    patience + Duration::from_secs(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_order_and_have_their_keys() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let section = ProxySection::default()
            .socket(Path::new("/x.sock"))
            .ingress("a", at(81), at(91), json!({ "trust": LOOPBACK }))
            .ingress("b", at(82), at(92), json!({}))
            .egress("clients", at(80), json!({ "timeouts": timeouts(Duration::from_secs(10)) }))
            .pool("pool", [("a", at(81), 7)], json!({ "policy": "bloc" }));
        let expected = json!({ "proxy": {
            "threads": 1,
            "socket": "/x.sock",
            "ingress": [
                { "name": "a", "listen": "127.0.0.1:81", "upstream": "127.0.0.1:91", "trust": ["127.0.0.0/8"] },
                { "name": "b", "listen": "127.0.0.1:82", "upstream": "127.0.0.1:92" },
            ],
            "egress": [{ "name": "clients", "listen": "127.0.0.1:80", "timeouts": { "request": "12000ms" } }],
            "pools": [{
                "name": "pool", "policy": "bloc",
                "backends": [{ "name": "a", "address": "127.0.0.1:81", "weight": 7 }],
            }],
        } });
        assert_eq!(section.file(), expected);
    }
}
