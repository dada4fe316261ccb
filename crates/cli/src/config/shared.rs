//! Servers that several services have.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Service;

/// So many are named; the others are counted.
const NAMED: usize = 3;

/// What to do about shared servers.
pub const ADVICE: &str = "several balancers before one pool are one service with `sinks`; of two pools of one balancer, \
                          make one pool where their clients ask for the same";

/// Servers that the same services have, by address. Each of these services is steered as if it were alone: what the others
/// send is, for it, a server that has become slower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    services: Vec<String>,
    servers: Vec<String>,
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers = if self.servers.len() == 1 { "server" } else { "servers" };
        write!(
            f,
            "{} share {} {servers} ({}): each is steered as if it were alone, and sees the others' requests as slower servers",
            list(&self.services),
            self.servers.len(),
            list(&self.servers)
        )
    }
}

fn list(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What the services share, each set of services once.
pub fn shared(services: &[Service]) -> Vec<Shared> {
    let mut by_address: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for service in services {
        for backend in &service.backends {
            by_address.entry(backend.address.to_string()).or_default().insert(&service.name);
        }
    }
    let mut by_services: BTreeMap<BTreeSet<&str>, Vec<String>> = BTreeMap::new();
    for (address, names) in by_address.into_iter().filter(|(_, names)| names.len() > 1) {
        by_services.entry(names).or_default().push(address);
    }
    let owned = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect();
    by_services
        .into_iter()
        .map(|(names, servers)| Shared { services: owned(names), servers })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::all;
    use plimsoll_config::Document;

    fn said(pools: &[(&str, &[&str])]) -> Vec<String> {
        let mut text = "services:\n".to_owned();
        for (name, addresses) in pools {
            text += &format!("  - name: {name}\n    backends:\n");
            for (i, address) in addresses.iter().enumerate() {
                text += &format!("      - {{ name: s{i}, address: \"{address}\" }}\n");
            }
            text +=
                &format!("    sink: {{ haproxy: {{ socket: /run/a.sock, backend: {name} }} }}\n");
        }
        let sections = all(&Document::parse("test.yaml", &text).expect("YAML")).expect("valid");
        shared(&sections.daemon.expect("services").services).iter().map(Shared::to_string).collect()
    }

    #[test]
    fn services_that_share_servers_are_named_once_with_these() {
        let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(|i| format!("10.0.0.{i}:80"));
        let (a, b, c, d, e) = (a.as_str(), b.as_str(), c.as_str(), d.as_str(), e.as_str());
        assert_eq!(said(&[("web", &[a, b]), ("api", &[c, d])]), [""; 0]);
        let one = said(&[("web", &[a, b]), ("api", &[b, c])]);
        assert_eq!(one.len(), 1);
        assert!(one[0].starts_with("api, web share 1 server (10.0.0.2:80): "), "{one:?}");
        let many = said(&[("web", &[a, b, c, d]), ("api", &[d, c, b, a]), ("other", &[e])]);
        let start = "api, web share 4 servers (10.0.0.1:80, 10.0.0.2:80, 10.0.0.3:80 and 1 more): ";
        assert!(many.len() == 1 && many[0].starts_with(start), "{many:?}");
        assert_eq!(said(&[("web", &[a, b]), ("api", &[b, c]), ("other", &[c, d])]).len(), 2);
    }
}
