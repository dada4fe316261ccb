//! Who balances: the study's methods, and what it lacks.

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
}

/// One way of balancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// Its name.
    pub name: &'static str,
    /// Who balances.
    pub balancer: Balancer,
    /// With which weights.
    pub weights: Weights,
    /// Whether a Plimsoll daemon steers it.
    pub is_steered: bool,
}

const fn haproxy(name: &'static str, balance: &'static str) -> Method {
    let balancer = Balancer::Haproxy(balance);
    Method { name, balancer, weights: Weights::Equal, is_steered: false }
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

/// What it lacks.
pub const BESIDE: &[Method] = &[
    // A server's own limit is what `first` is made for.
    haproxy("first, maxconn 8", "first\n    default-server maxconn 8"),
    Method { weights: Weights::Cores, ..haproxy("roundrobin, cores", "roundrobin") },
    Method { weights: Weights::Cores, ..haproxy("leastconn, cores", "leastconn") },
    Method { is_steered: true, ..haproxy("Plimsoll, roundrobin", "roundrobin") },
    Method { is_steered: true, ..haproxy("Plimsoll, leastconn", "leastconn") },
    Method {
        name: "nginx",
        balancer: Balancer::Nginx(""),
        weights: Weights::Equal,
        is_steered: false,
    },
    Method {
        name: "nginx least_conn",
        balancer: Balancer::Nginx("least_conn;"),
        weights: Weights::Equal,
        is_steered: false,
    },
];

/// The study's method of this name.
pub fn named(name: &str) -> Method {
    let found = STUDY.iter().chain(BESIDE).find(|method| method.name == name);
    *found.unwrap_or_else(|| panic!("no method is called {name}"))
}
