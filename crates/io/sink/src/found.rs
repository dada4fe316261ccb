//! What a balancer has, as far as it tells: pools and servers, which of them can be steered, and why the others cannot.

use std::collections::HashSet;
use std::net::SocketAddr;

use plimsoll_model::{Method, MethodKind};

/// Fewer servers than this leave nothing to decide.
const LEAST_SERVERS: usize = 2;
/// Names in a sentence.
const NAMED: usize = 5;

/// A pool of servers as the balancer has it: HAProxy's backend, NGINX's upstream, a layer-4 service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPool {
    /// Its name in the balancer.
    pub name: String,
    /// How it picks.
    pub method: Method,
    /// All of its servers, in the balancer's order.
    pub servers: Vec<FoundServer>,
    /// Another reason not to steer it, such as an agent that sets weights too.
    pub conflict: Option<String>,
    /// What the balancer does not tell, so that it may turn out to be out of reach.
    pub unknown: Option<&'static str>,
}

/// A server of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundServer {
    /// Its name in the balancer.
    pub name: String,
    /// Where it is, or why it cannot be steered.
    pub place: Result<SocketAddr, LeftAlone>,
}

/// Why a server is not steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftAlone {
    /// Its name has no address yet: a slot of a `server-template` that is free.
    Unresolved,
    /// It listens on a socket of the balancer's machine, where liveness cannot be checked.
    UnixSocket,
    /// The balancer takes address or port from each connection (`set-dst`, a port map).
    NoAddress,
    /// It serves when all others are down, whatever its weight.
    Backup,
    /// Its weight in the balancer's configuration is 0: an administrator has taken it out.
    WeightZero,
    /// Another server of the pool has its address: one server under two names would be asked twice, and takes the load
    /// of both.
    SameAddress,
    /// Its name holds characters that Plimsoll does not send to a balancer.
    Name,
}

impl LeftAlone {
    /// For people, after a server's name.
    pub fn as_str(self) -> &'static str {
        match self {
            LeftAlone::Unresolved => "its name is not resolved yet",
            LeftAlone::UnixSocket => "it listens on a Unix socket",
            LeftAlone::NoAddress => "it has no address and port of its own",
            LeftAlone::Backup => "it is a backup server",
            LeftAlone::WeightZero => "its configured weight is 0",
            LeftAlone::SameAddress => "a server before it has the same address",
            LeftAlone::Name => "its name cannot be sent in a command",
        }
    }
}

impl FoundPool {
    /// Leaves alone every server whose address one before it has.
    pub(crate) fn without_repeats(mut self) -> Self {
        let mut seen = HashSet::new();
        for server in &mut self.servers {
            if server.place.is_ok_and(|at| !seen.insert(at)) {
                server.place = Err(LeftAlone::SameAddress);
            }
        }
        self
    }

    /// The servers that can be steered, with their addresses.
    pub fn steerable(&self) -> impl Iterator<Item = (&str, SocketAddr)> {
        self.servers.iter().filter_map(|s| Some((s.name.as_str(), s.place.ok()?)))
    }

    /// The servers that cannot, by reason: a sentence each.
    pub fn left_alone(&self) -> Vec<String> {
        let mut reasons: Vec<LeftAlone> =
            self.servers.iter().filter_map(|s| s.place.err()).collect();
        reasons.sort_unstable();
        reasons.dedup();
        let named = |reason: LeftAlone| {
            let is_so = |s: &&FoundServer| s.place == Err(reason);
            let names: Vec<&str> =
                self.servers.iter().filter(is_so).map(|s| s.name.as_str()).collect();
            format!("{} ({})", list(&names), reason.as_str())
        };
        reasons.into_iter().map(named).collect()
    }

    /// Why weights cannot help this pool now; none where they can.
    pub fn out_of_reach(&self) -> Option<String> {
        let algo = &self.method.name;
        if self.servers.is_empty() {
            return Some("it has no servers".to_owned());
        }
        if self.method.kind == MethodKind::NoLiveWeights {
            return Some(match crate::error::hash_method(algo) {
                true => format!(
                    "`balance {algo}` with a map-based hash: its weights are fixed when the balancer starts; \
                     `hash-type consistent` lets them change"
                ),
                false => format!(
                    "`{algo}` takes no weights while the balancer runs; leastconn and roundrobin do"
                ),
            });
        }
        if let Some(conflict) = &self.conflict {
            return Some(conflict.clone());
        }
        if self.servers.len() < LEAST_SERVERS {
            return Some("it has one server: nothing to divide".to_owned());
        }
        let steerable = self.steerable().count();
        (steerable < LEAST_SERVERS).then(|| {
            let all = self.servers.len();
            format!(
                "{steerable} of its {all} servers can be steered: {}",
                self.left_alone().join("; ")
            )
        })
    }

    /// Whether it is out of reach only until names of servers are resolved.
    pub fn waits_for_names(&self) -> bool {
        let waiting = self.servers.iter().filter(|s| s.place == Err(LeftAlone::Unresolved)).count();
        let may_come = self.steerable().count() + waiting >= LEAST_SERVERS;
        let live = self.method.kind != MethodKind::NoLiveWeights && self.conflict.is_none();
        self.out_of_reach().is_some() && live && may_come
    }

    /// What it is, in a few words: `leastconn, 6 servers`.
    pub fn summary(&self) -> String {
        let (all, steerable) = (self.servers.len(), self.steerable().count());
        let servers = match all == steerable {
            true => format!("{all} servers"),
            false => format!(
                "{steerable} of {all} servers, the others keep their weights: {}",
                self.left_alone().join("; ")
            ),
        };
        let unknown = self.unknown.map(|what| format!("; {what}")).unwrap_or_default();
        format!("{}, {servers}{unknown}", self.method.name)
    }
}

fn list(names: &[&str]) -> String {
    let shown = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(algo: &str, kind: MethodKind, servers: Vec<FoundServer>) -> FoundPool {
        let method = Method { name: algo.to_owned(), kind };
        FoundPool { name: "shop".to_owned(), method, servers, conflict: None, unknown: None }
    }

    fn server(name: &str, place: Result<u16, LeftAlone>) -> FoundServer {
        let place = place.map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        FoundServer { name: name.to_owned(), place }
    }

    #[test]
    fn two_steerable_servers_under_a_live_method_can_be_helped() {
        let mut servers = vec![server("s1", Ok(1)), server("s2", Ok(2))];
        let pool_of =
            |servers: &[FoundServer]| pool("leastconn", MethodKind::InFlight, servers.to_vec());
        assert_eq!(pool_of(&servers).out_of_reach(), None);
        assert_eq!(pool_of(&servers).summary(), "leastconn, 2 servers");
        servers.push(server("s3", Err(LeftAlone::Backup)));
        assert_eq!(
            pool_of(&servers).summary(),
            "leastconn, 2 of 3 servers, the others keep their weights: s3 (it is a backup server)"
        );
        assert_eq!(
            pool_of(&servers[..1]).out_of_reach().as_deref(),
            Some("it has one server: nothing to divide")
        );
        assert_eq!(pool_of(&[]).out_of_reach().as_deref(), Some("it has no servers"));
        assert!(!pool_of(&servers[..1]).waits_for_names());
        let slots =
            [server("w1", Err(LeftAlone::Unresolved)), server("w2", Err(LeftAlone::Unresolved))];
        assert!(pool_of(&slots).waits_for_names() && !pool_of(&slots[..1]).waits_for_names());
        servers.remove(0);
        let why = pool_of(&servers).out_of_reach().expect("one is left");
        assert!(why.starts_with("1 of its 2 servers can be steered: s3 (it is"), "{why}");
    }

    #[test]
    fn a_map_based_hash_is_named_and_so_is_what_would_help() {
        let servers = vec![server("s1", Ok(1)), server("s2", Ok(2))];
        let why = pool("uri", MethodKind::NoLiveWeights, servers.clone()).out_of_reach();
        let why = why.expect("out of reach");
        assert!(why.contains("`balance uri` with a map-based hash") && why.contains("consistent"));
        let why = pool("first", MethodKind::NoLiveWeights, servers).out_of_reach();
        assert!(why.expect("out of reach").starts_with("`first` takes no weights"));
    }

    #[test]
    fn one_server_under_two_names_is_steered_under_the_first() {
        let servers = vec![server("s1", Ok(1)), server("again", Ok(1)), server("s2", Ok(2))];
        let pool = pool("leastconn", MethodKind::InFlight, servers).without_repeats();
        assert_eq!(pool.steerable().map(|(name, _)| name).collect::<Vec<_>>(), ["s1", "s2"]);
        assert!(pool.summary().contains("again (a server before it has the same address)"));
    }

    #[test]
    fn many_names_are_cut_and_counted() {
        let slots = (1..=40).map(|i| server(&format!("web{i}"), Err(LeftAlone::Unresolved)));
        let left = pool("roundrobin", MethodKind::Split, slots.collect()).left_alone();
        assert_eq!(
            left,
            ["web1, web2, web3, web4, web5 and 35 more (its name is not resolved yet)"]
        );
    }
}
