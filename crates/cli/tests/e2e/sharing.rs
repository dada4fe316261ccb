//! Several services behind one HAProxy share one connection to its socket, whose default is ten in all.

use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use plimsoll_testbed::Mode;

use crate::rig::{Daemon, Rig, arg, free_address, out, plimsoll, until};

/// A service: its name, its HAProxy's socket and backend, and its servers.
type Service = (String, String, String, Vec<&'static str>);

/// One HAProxy with backends pool0, pool1, … of the same two servers.
struct Pools {
    rig: Rig,
    services: Vec<Service>,
}

impl Pools {
    /// `more` is more of HAProxy's configuration.
    fn new(pools: usize, more: &str) -> Self {
        let mut rig = Rig::new("roundrobin", &[1.0, 1.0]);
        let mut text = more.to_owned();
        for pool in 0..pools {
            writeln!(text, "backend pool{pool}\n  balance roundrobin").expect("a string grows");
            for (name, address) in rig.bed.addresses() {
                writeln!(text, "  server {name} {address} weight 100").expect("a string grows");
            }
        }
        rig.haproxy.extend(&text);
        let socket = rig.haproxy.socket("admin").display().to_string();
        let services = (0..pools)
            .map(|i| (format!("shop{i}"), socket.clone(), format!("pool{i}"), vec!["s1", "s2"]))
            .collect();
        Pools { rig, services }
    }

    fn write_config(&self) -> PathBuf {
        let mut text = "services:\n".to_owned();
        for (service, socket, backend, servers) in &self.services {
            writeln!(text, "  - name: {service}\n    backends:").expect("a string grows");
            for name in servers {
                let address = self.rig.bed.address(name).unwrap_or_else(free_address);
                writeln!(text, "      - {{ name: {name}, address: \"{address}\" }}")
                    .expect("a string grows");
            }
            writeln!(
                text,
                "{}    sink: {{ haproxy: {{ socket: \"{socket}\", backend: {backend} }} }}",
                self.rig.service
            )
            .expect("a string grows");
        }
        let (state, api) = (self.rig.path("state"), self.rig.api);
        writeln!(text, "store: {{ path: {} }}\napi: {{ listen: \"{api}\" }}", state.display())
            .expect("a string grows");
        let path = self.rig.path("plimsoll.yaml");
        std::fs::write(&path, text).expect("written");
        path
    }

    fn daemon(&self) -> Daemon {
        let config = self.write_config();
        let mut daemon = Daemon::spawn(&config, self.rig.api, &self.rig.path("log"), &[]);
        daemon.wait_until_it_answers();
        daemon
    }

    /// Connections to HAProxy's sockets, but for the one that asks.
    fn connections(&self) -> usize {
        self.rig.haproxy.ask("show sess").matches("fe=GLOBAL").count() - 1
    }

    fn weight(&self, backend: &str, server: &str) -> String {
        let answer = self.rig.haproxy.ask(&format!("get weight {backend}/{server}"));
        answer.split_whitespace().next().unwrap_or_default().to_owned()
    }

    /// Has s2 fail, and waits until every one of these backends gives it nothing.
    fn s2_fails_everywhere(&self, backends: usize) {
        self.rig.set_mode("s2", Mode::Refuse);
        for i in 0..backends {
            until("s2 to be taken out", || self.weight(&format!("pool{i}"), "s2") == "0");
        }
    }
}

fn trouble(daemon: &Daemon, service: &str) -> String {
    let status = daemon.ask("status");
    let mut services = status["services"].as_array().into_iter().flatten();
    let found = services.find(|one| one["service"] == service);
    found.and_then(|one| one["trouble"].as_str()).unwrap_or_default().to_owned()
}

#[test]
fn fourteen_services_do_not_exhaust_the_ten_connections_of_haproxys_socket() {
    let pools = Pools::new(14, "");
    let daemon = pools.daemon();
    until("all to be read", || daemon.http("/readyz").0 == 200);
    until("one connection", || pools.connections() == 1);
    pools.s2_fails_everywhere(14);
    until("one connection: plans take none of their own", || pools.connections() == 1);
    let shared = "shop0, shop1, shop10 and 11 more share 2 servers";
    daemon.until_log_has(shared);
    assert_eq!(daemon.log().matches(shared).count(), 1, "{}", daemon.log());
    let report = out(&plimsoll(&["doctor", "--config", arg(&pools.rig.path("plimsoll.yaml"))]));
    assert!(report.contains(shared) && report.contains("one service with `sinks`"), "{report}");
}

#[test]
fn one_haproxy_under_several_spellings_takes_one_connection() {
    let port = free_address().port();
    let tcp = format!("global\n  stats socket ipv4@127.0.0.1:{port} level admin\n");
    let mut pools = Pools::new(4, &tcp);
    let link = pools.rig.path("link.sock");
    symlink(pools.rig.haproxy.socket("admin"), &link).expect("a link");
    pools.services[1].1 = link.display().to_string();
    pools.services[2].1 = format!("127.0.0.1:{port}");
    pools.services[3].1 = format!("localhost:{port}");
    let daemon = pools.daemon();
    until("all to be read", || daemon.http("/readyz").0 == 200);
    until("one connection", || pools.connections() == 1);
    pools.s2_fails_everywhere(4);
    // What was shared is looked at again after a restart: the spellings may lead elsewhere.
    let mut pools = pools;
    pools.rig.haproxy.stop();
    until("the loss", || daemon.http("/readyz").0 == 503);
    pools.rig.haproxy.start_again();
    until("all to be read", || daemon.http("/readyz").0 == 200);
    until("one connection", || pools.connections() == 1);
}

#[test]
fn two_haproxys_are_not_taken_for_one() {
    let mut pools = Pools::new(2, "");
    let other = Pools::new(2, "");
    pools.services[1].1 = other.services[1].1.clone();
    let daemon = pools.daemon();
    until("both to be read", || daemon.http("/readyz").0 == 200);
    pools.rig.set_mode("s2", Mode::Refuse);
    until("s2 of the first", || pools.weight("pool0", "s2") == "0");
    until("s2 of the second", || other.weight("pool1", "s2") == "0");
    assert_eq!(
        (pools.weight("pool1", "s2"), other.weight("pool0", "s2")),
        ("100".into(), "100".into())
    );
    until("one connection to each", || (pools.connections(), other.connections()) == (1, 1));
}

#[test]
fn wrong_server_names_of_one_service_do_not_stop_the_others() {
    let mut pools = Pools::new(3, "");
    pools.services[1].3 = vec!["s1", "s7"];
    pools.services[2].2 = "nowhere".to_owned();
    let daemon = pools.daemon();
    until("the troubles", || {
        trouble(&daemon, "shop1").contains("no server s7; it has s1, s2")
            && trouble(&daemon, "shop2").contains("no backend \"nowhere\"; it has")
    });
    pools.s2_fails_everywhere(1);
    assert_eq!(trouble(&daemon, "shop0"), "");
    // The operator corrects both.
    pools.services[1].3 = vec!["s1", "s2"];
    pools.services[2].2 = "pool2".to_owned();
    pools.write_config();
    daemon.signal("HUP");
    pools.s2_fails_everywhere(3);
    until("one connection", || pools.connections() == 1);
}

#[test]
fn a_backend_steered_twice_under_two_spellings_is_refused() {
    let mut pools = Pools::new(1, "");
    let link = pools.rig.path("link.sock");
    symlink(pools.rig.haproxy.socket("admin"), &link).expect("a link");
    let mut twice = pools.services[0].clone();
    (twice.0, twice.1) = ("again".to_owned(), link.display().to_string());
    pools.services.push(twice);
    let daemon = pools.daemon();
    until("the refusal", || {
        ["shop0", "again"]
            .iter()
            .any(|one| trouble(&daemon, one).contains("already steers backend"))
    });
    pools.s2_fails_everywhere(1);
}

#[test]
fn a_service_that_moves_to_another_haproxy_or_leaves_closes_unused_connections() {
    let mut pools = Pools::new(2, "");
    let other = Pools::new(2, "");
    let daemon = pools.daemon();
    until("both to be read", || daemon.http("/readyz").0 == 200);
    pools.services[1].1 = other.services[1].1.clone();
    pools.write_config();
    daemon.signal("HUP");
    until("it to have moved", || other.connections() == 1);
    pools.rig.set_mode("s2", Mode::Refuse);
    until("it to be steered there", || other.weight("pool1", "s2") == "0");
    assert_eq!(pools.weight("pool1", "s2"), "100", "its former HAProxy keeps its weights");
    pools.services.remove(1);
    pools.write_config();
    daemon.signal("HUP");
    until("the connection to be closed", || other.connections() == 0);
    until("one connection", || pools.connections() == 1);
}
