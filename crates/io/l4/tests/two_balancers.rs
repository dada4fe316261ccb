//! Two balancers of one service, each packet by either of them: one joins, leaves, and comes back, while
//! servers come and go. A connection is broken when another server answers than before, or none. The same
//! course with balancers that go by hash, by consistent hash, and by consistent hash with daisy chaining
//! (Beamer), all of them programs of their own on the same tables (`crates/lab/l4bench/bpf/rival.h`).

mod rig;

use plimsoll_l4::lab::Candidate;
use plimsoll_l4::{Balancer, L4Config, Policy};
use plimsoll_l4bench::{Chain, Load, ifindex};
use rig::second::{By, Second, route};
use rig::service::{Connection, Service};
use rig::{keys, privileged};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Cookie,
    Hash,
    Consistent,
    Chained,
}

/// Both balancers, and what takes their program's place.
struct Pair {
    service: Service,
    method: Method,
    first: Option<Balancer>,
    second: Second,
    rivals: Vec<Load>,
    chain: Option<Chain>,
    live: Vec<Connection>,
    opened: usize,
    broken: usize,
}

fn config(service: &Service, method: Method, names: &[&str]) -> L4Config {
    let policy = match method {
        Method::Cookie => Policy::RoundRobin,
        Method::Hash => Policy::Hash,
        Method::Consistent | Method::Chained => Policy::Maglev,
    };
    let mut config = service.config(policy, names);
    for backend in &mut config.vips[0].backends {
        let n: u16 = backend.name[1..].parse().expect("a number");
        backend.id = Some(n);
        backend.mac = Some([2, 0, 0, 0, n as u8 + 1, 2]);
    }
    config
}

fn candidates(config: &L4Config) -> Vec<Candidate> {
    let of = |one: &plimsoll_l4::Backend| Candidate {
        id: one.id.expect("an id"),
        weight: one.weight,
        name: one.name.clone(),
    };
    config.vips[0].backends.iter().map(of).collect()
}

impl Pair {
    /// The first one has connections; none goes by the second.
    fn new(method: Method, names: &[&str]) -> Pair {
        let service = Service::new(4, 2, false);
        let config = config(&service, method, names);
        let first = service.balance(&config);
        let second = Second::new(&service, &config, &keys());
        let chain = (method == Method::Chained).then(|| Chain::new(&candidates(&config)));
        let (first, rivals, live) = (Some(first), Vec::new(), Vec::new());
        let mut pair =
            Pair { service, method, first, second, rivals, chain, live, opened: 0, broken: 0 };
        pair.take_over();
        pair.go_by(By::First, 60);
        pair
    }

    /// Puts the method's program in the place of both balancers' own.
    fn take_over(&mut self) {
        let name = match self.method {
            Method::Cookie => return,
            Method::Hash | Method::Consistent => "by_hash",
            Method::Chained => "by_chain",
        };
        self.rivals.clear();
        for balancer in self.first.iter().chain([&self.second.balancer]) {
            let mut load = Load::on(balancer).expect("loads");
            load.take_over(balancer, name).expect("attaches");
            self.rivals.push(load);
        }
        if self.chain.is_some() {
            for (load, link) in self.rivals.iter_mut().rev().zip(["e1", "e0"]) {
                for server in &self.service.servers {
                    self.service.net.enter(server);
                    load.chain_at(ifindex(link).expect("there")).expect("attaches");
                    self.service.net.leave();
                }
            }
        }
        self.tell_previous();
    }

    fn tell_previous(&mut self) {
        for load in &mut self.rivals {
            if let Some(chain) = &self.chain {
                load.set_previous(chain).expect("set");
            }
        }
    }

    /// All packets go this way from now on: which of the live connections are still served, and so
    /// many more.
    fn go_by(&mut self, by: By, more: usize) {
        let net = &self.service.net;
        net.leave();
        route(net, "cli", 1, by);
        for (name, n) in self.service.servers.iter().zip(2..) {
            route(net, name, n, by);
        }
        self.ask();
        let mut opened: Vec<_> = self.service.connect(more).into_iter().flatten().collect();
        self.opened += more;
        self.broken += more - opened.len();
        self.live.append(&mut opened);
        self.ask();
    }

    fn ask(&mut self) {
        let asked = self.live.len();
        // Silence is not waited for: a connection that goes by hash is mostly reset.
        self.live.retain_mut(|one| one.ask().is_ok_and(|who| who == one.server));
        self.broken += asked - self.live.len();
    }

    fn servers(&mut self, names: &[&str]) {
        let config = config(&self.service, self.method, names);
        if let Some(chain) = &mut self.chain {
            chain.follow(&candidates(&config));
        }
        self.tell_previous();
        if let Some(first) = &mut self.first {
            self.service.net.enter("lb");
            self.service.apply(first, &config);
            self.service.net.leave();
        }
        self.second.apply(&config);
        self.ask();
    }

    fn first_leaves(&mut self) {
        self.go_by(By::Second, 20);
        // A rival's program holds the links, too.
        if !self.rivals.is_empty() {
            self.rivals.remove(0);
        }
        drop(self.first.take());
        std::fs::remove_dir_all(self.service.net.pins().join("links")).expect("detached");
    }

    fn first_returns(&mut self, names: &[&str]) {
        let config = config(&self.service, self.method, names);
        self.first = Some(self.service.balance(&config));
        self.service.net.leave();
        self.take_over();
        self.go_by(By::Both, 20);
    }
}

/// The whole course: connections opened, and broken.
fn broken(method: Method) -> (usize, usize) {
    let mut pair = Pair::new(method, &["s1", "s2", "s3"]);
    pair.go_by(By::Both, 20);
    pair.servers(&["s2", "s3", "s4"]);
    pair.go_by(By::Both, 20);
    pair.first_leaves();
    pair.servers(&["s3", "s4"]);
    pair.go_by(By::Second, 20);
    pair.first_returns(&["s3", "s4"]);
    pair.servers(&["s1", "s2", "s3", "s4"]);
    pair.go_by(By::First, 20);
    (pair.opened, pair.broken)
}

#[test]
fn a_balancer_joins_and_leaves_while_servers_come_and_go_and_no_cookie_is_lost() {
    if !privileged() {
        return;
    }
    let counted =
        [Method::Cookie, Method::Hash, Method::Consistent, Method::Chained].map(|method| {
            let (opened, broken) = broken(method);
            eprintln!("{method:?}: {broken} of {opened} broken");
            assert!(opened >= 160, "{opened}");
            broken
        });
    let [cookie, hash, consistent, chained] = counted;
    assert_eq!(cookie, 0);
    assert!(hash > 20 && consistent > 20 && hash > consistent, "{counted:?}");
    assert!(chained < consistent, "{counted:?}");
}
