//! The balancers: the study's methods, and what it lacks.

use plimsoll_lanes::{envoy, find_program, plimsoll, program_places};

/// The weights that a balancer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// All alike, as in the study.
    Equal,
    /// In proportion to cores, as an administrator knows them.
    Cores,
}

/// The program in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balancer {
    /// HAProxy with this `balance`; lines for the section may follow.
    Haproxy(&'static str),
    /// nginx with this line in its `upstream`; empty for its round robin.
    Nginx(&'static str),
    /// Envoy with this `lb_policy`.
    Envoy(&'static str),
    /// Plimsoll's own proxy with this `policy`.
    Proxy(&'static str),
}

impl Balancer {
    /// Why it cannot run here, in a line; nothing where it can, or where HAProxy is missing, which no experiment of
    /// the study can do without.
    fn lacks(self) -> Option<String> {
        match self {
            Balancer::Haproxy(_) => None,
            Balancer::Nginx(_) => find_program("nginx", program_places()).is_none().then(|| {
                "nginx is not installed; on Debian and Ubuntu: apt-get install nginx-light".into()
            }),
            Balancer::Envoy(_) => envoy().err().map(|error| error.to_string()),
            Balancer::Proxy(_) => plimsoll().err().map(|error| error.to_string()),
        }
    }
}

/// One way of balancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// Its name.
    pub name: &'static str,
    /// The balancer.
    pub balancer: Balancer,
    /// With which weights.
    pub weights: Weights,
    /// Whether a Plimsoll daemon steers it.
    pub is_steered: bool,
}

const fn behind(name: &'static str, balancer: Balancer) -> Method {
    Method { name, balancer, weights: Weights::Equal, is_steered: false }
}

const fn haproxy(name: &'static str, balance: &'static str) -> Method {
    behind(name, Balancer::Haproxy(balance))
}

/// The eight of the study; `rdp-cookie` needs remote desktops.
pub const STUDY: &[Method] = &[
    haproxy("random", "random"),
    haproxy("first", "first"),
    haproxy("leastconn", "leastconn"),
    haproxy("source", "source"),
    haproxy("roundrobin", "roundrobin"),
    haproxy("static-rr", "static-rr"),
    haproxy("uri", "uri"),
    haproxy("url_param", "url_param id"),
];

/// Weights in proportion to cores.
pub const BY_CORES: &[Method] = &[
    Method { weights: Weights::Cores, ..haproxy("roundrobin, cores", "roundrobin") },
    Method { weights: Weights::Cores, ..haproxy("leastconn, cores", "leastconn") },
];

/// Plimsoll sets HAProxy's weights.
pub const STEERED: &[Method] = &[
    Method { is_steered: true, ..haproxy("Plimsoll, roundrobin", "roundrobin") },
    Method { is_steered: true, ..haproxy("Plimsoll, leastconn", "leastconn") },
];

/// The study's methods with other parameters, `first` with the limit that it is made for, and other balancers. `uri
/// path-only` hashes here what `uri` hashes, `uri depth 1` a page's directory, so that it has one server as well, and
/// `hdr` of what all clients send alike is `source`: haproxy-picks has them.
const OTHERS: &[Method] = &[
    haproxy("random(1)", "random(1)"),
    haproxy("random(3)", "random(3)"),
    haproxy("random(5)", "random(5)"),
    haproxy("uri whole", "uri whole"),
    haproxy("first, maxconn 8", "first\n    default-server maxconn 8"),
    behind("nginx", Balancer::Nginx("")),
    behind("nginx least_conn", Balancer::Nginx("least_conn;")),
    behind("nginx random two", Balancer::Nginx("random two least_conn;")),
    behind("nginx hash", Balancer::Nginx("hash $request_uri consistent;")),
    behind("Envoy ROUND_ROBIN", Balancer::Envoy("ROUND_ROBIN")),
    behind("Envoy LEAST_REQUEST", Balancer::Envoy("LEAST_REQUEST")),
    behind("Envoy RANDOM", Balancer::Envoy("RANDOM")),
    behind("Envoy RING_HASH", Balancer::Envoy("RING_HASH")),
    behind("Envoy MAGLEV", Balancer::Envoy("MAGLEV")),
    behind("our proxy, expected_delay", Balancer::Proxy("expected_delay")),
    behind("our proxy, least_connections", Balancer::Proxy("least_connections")),
    behind("our proxy, round_robin", Balancer::Proxy("round_robin")),
    behind("our proxy, bloc", Balancer::Proxy("bloc")),
];

/// All that there are.
pub fn all() -> Vec<Method> {
    [STUDY, BY_CORES, STEERED, OTHERS].concat()
}

/// Those that can run here, and why the others cannot, each reason once.
pub fn installed(methods: &[Method]) -> (Vec<Method>, Vec<String>) {
    let (mut there, mut reasons) = (Vec::new(), Vec::new());
    for method in methods {
        match method.balancer.lacks() {
            None => there.push(*method),
            Some(why) if reasons.contains(&why) => {}
            Some(why) => reasons.push(why),
        }
    }
    (there, reasons)
}

/// The method of this name.
pub fn named(name: &str) -> Method {
    let found = all().into_iter().find(|method| method.name == name);
    found.unwrap_or_else(|| panic!("no method is called {name}"))
}
