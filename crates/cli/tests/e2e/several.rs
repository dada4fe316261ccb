//! docs/several-balancers.md on two real HAProxys before one pool: one that is gone, servers that come and go, and a
//! subset of the servers for each.

use std::collections::BTreeSet;
use std::time::Duration;

use plimsoll_testbed::load::{LoadHandle, LoadSpec, Target, start};

use crate::rig::guide::{START_TO_FINISH, block};
use crate::rig::{Daemon, Haproxy, Rig, arg, out, plimsoll, until, until_within};

const GUIDE: &str = include_str!("../../../../docs/several-balancers.md");

fn names(daemon: &Daemon) -> BTreeSet<String> {
    let weights = daemon.weights();
    let backends = weights["backends"].as_array().into_iter().flatten();
    backends.map(|b| b["backend"].as_str().expect("a name").to_owned()).collect()
}

fn errors(daemon: &Daemon) -> f64 {
    let (_, text) = daemon.http("/metrics");
    let line = text.lines().find(|line| line.starts_with("plimsoll_sink_errors_total{"));
    let count = line.and_then(|line| line.split_whitespace().last()?.parse().ok());
    count.unwrap_or_else(|| panic!("no count of errors in {text}"))
}

/// A second HAProxy before the rig's servers, and the page's configuration, which asks both.
fn pair(rig: &Rig) -> (Haproxy, std::path::PathBuf) {
    pair_by(rig, "roundrobin", block(GUIDE, START_TO_FINISH, "yaml"))
}

fn pair_by(rig: &Rig, balance: &str, mut text: String) -> (Haproxy, std::path::PathBuf) {
    let dir = rig.path("second");
    std::fs::create_dir(&dir).expect("a directory");
    let second = Haproxy::start(&dir, balance, rig.bed.addresses());
    let file = rig.path("auto.yaml");
    for (example, haproxy) in
        [("/run/haproxy-a/admin.sock", &rig.haproxy), ("/run/haproxy-b/admin.sock", &second)]
    {
        assert!(text.contains(example), "{text}");
        text = text.replace(example, arg(&haproxy.socket("admin")));
    }
    text += &format!(
        "\nstore: {{ path: {} }}\napi: {{ listen: \"{}\" }}\n",
        rig.path("state").display(),
        rig.api
    );
    std::fs::write(&file, text).expect("written");
    (second, file)
}

/// The page shows what changes: two lines of the service.
fn pair_with_subsets(rig: &Rig) -> (Haproxy, std::path::PathBuf) {
    let whole = block(GUIDE, START_TO_FINISH, "yaml");
    let (head, _) = whole.split_once("    sinks:").expect("the balancers");
    let changed = block(GUIDE, "## A subset of the servers for each", "yaml");
    let changed: String = changed.lines().map(|line| format!("    {line}\n")).collect();
    pair_by(rig, "leastconn", format!("{head}{changed}"))
}

/// One server is shared at most, and each has some.
fn are_subsets(both: &[&Haproxy; 2]) -> bool {
    let [first, second] = both.map(held);
    let shared = first.iter().zip(&second).filter(|(a, b)| **a > 0 && **b > 0).count();
    shared < 2 && [first, second].iter().all(|held| held.iter().any(|weight| *weight > 0))
}

fn held(haproxy: &Haproxy) -> [u64; 4] {
    ["s1", "s2", "s3", "s4"].map(|name| u64::from(haproxy.weight(name)))
}

fn clients_of(haproxy: &Haproxy, rate_rps: f64) -> LoadHandle {
    let target = Target::resolve(&format!("http://{}/work", haproxy.address)).expect("a URL");
    start(LoadSpec::poisson(target, rate_rps, Duration::from_secs(600))).expect("clients")
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_guide_leads_to_the_same_learned_weights_in_both() {
    let rig = Rig::new("roundrobin", &[1.0, 4.0]);
    let (second, file) = pair(&rig);
    let doctor = plimsoll(&["doctor", "--config", arg(&file)]);
    assert!(doctor.status.success(), "{}", out(&doctor));
    let note = "2 balancers before one pool: each splits its requests by the same weights";
    assert!(out(&doctor).contains(note), "{}", out(&doctor));
    let _clients = [&rig.haproxy, &second].map(|haproxy| clients_of(haproxy, 150.0));
    let mut daemon = Daemon::spawn(&file, rig.api, &rig.path("log"), &[]);
    daemon.wait_until_it_answers();
    let weights = |haproxy: &Haproxy| ["s1", "s2"].map(|name| haproxy.weight(name));
    until_within(Duration::from_secs(60), "the faster one to have more in both", || {
        let [slow, fast] = weights(&rig.haproxy);
        slow > 0 && fast > 2 * slow && weights(&second) == [slow, fast]
    });
}

#[test]
fn the_servers_come_from_the_balancer_that_answers_and_the_dead_one_is_shown() {
    let mut rig = Rig::new("roundrobin", &[1.0, 1.0]);
    let (second, file) = pair(&rig);
    rig.haproxy.stop();
    let mut daemon = Daemon::spawn(&file, rig.api, &rig.path("log"), &[]);
    daemon.wait_until_it_answers();
    until("the second's servers", || names(&daemon) == set(&["s1", "s2"]));
    daemon.until_log_has("could not be had from the first balancer");
    let socket = rig.haproxy.socket("admin").display().to_string();
    until("the dead one to be shown", || daemon.trouble().contains(&socket));
    let shown = daemon.trouble();
    assert!(shown.contains("1 of 2 balancers cannot be steered"), "{shown}");
    assert_eq!(shown.matches(&socket).count(), 1, "{shown}");
    assert_eq!(daemon.http("/readyz").0, 503);
    until("each failure to be counted", || errors(&daemon) >= 2.0);
    second.ask("add server shop/s3 127.0.0.1:3 weight 100");
    until("it to join", || names(&daemon).contains("s3"));
    assert_eq!(daemon.events("warning", "cannot be steered").len(), 1, "{}", daemon.log());

    rig.haproxy.start_again();
    until("it to be well", || daemon.trouble().is_empty());
    until("the first's servers", || names(&daemon) == set(&["s1", "s2"]));
    assert!(daemon.has_event("balancer", "all balancers, and their source, are there again"));
}

#[test]
fn a_server_that_leaves_is_no_fault() {
    let rig = Rig::new("roundrobin", &[1.0, 1.0]);
    let (second, file) = pair(&rig);
    let both = [&rig.haproxy, &second];
    for haproxy in both {
        haproxy.ask("add server shop/s3 127.0.0.1:3 weight 100");
    }
    let mut daemon = Daemon::spawn(&file, rig.api, &rig.path("log"), &[]);
    daemon.wait_until_it_answers();
    until("three servers", || {
        names(&daemon) == set(&["s1", "s2", "s3"]) && daemon.trouble().is_empty()
    });
    for haproxy in both {
        haproxy.ask("set server shop/s3 state maint");
        let said = haproxy.ask("del server shop/s3");
        assert!(said.contains("deleted"), "{said}");
    }
    until("it to have left", || names(&daemon) == set(&["s1", "s2"]));
    until("no trouble", || daemon.trouble().is_empty());
    assert!(daemon.has_event("left", "removed"), "{}", daemon.log());
    for word in ["has no server", "can be reached again", "are there again"] {
        assert!(!daemon.log().contains(word), "{word}: {}", daemon.log());
    }
}

#[test]
fn each_has_a_subset_of_the_servers_and_one_alone_has_all() {
    let rig = Rig::new("leastconn", &[1.0; 4]);
    let (mut second, file) = pair_with_subsets(&rig);
    let doctor = plimsoll(&["doctor", "--config", arg(&file)]);
    assert!(doctor.status.success(), "{}", out(&doctor));
    let note = "each has a subset of the servers, weight 0 at the others";
    assert!(out(&doctor).contains(note), "{}", out(&doctor));
    let _clients = [&rig.haproxy, &second].map(|haproxy| clients_of(haproxy, 200.0));
    let mut daemon = Daemon::spawn(&file, rig.api, &rig.path("log"), &[]);
    daemon.wait_until_it_answers();
    until_within(Duration::from_secs(60), "one server to be shared at most", || {
        are_subsets(&[&rig.haproxy, &second])
    });
    // What was planned is what is held: nothing is taken for a change by others.
    std::thread::sleep(Duration::from_secs(5));
    assert!(!daemon.log().contains("not by Plimsoll"), "{}", daemon.log());
    assert!(daemon.trouble().is_empty(), "{}", daemon.trouble());

    second.stop();
    let planned = |daemon: &Daemon| {
        let weights = daemon.weights();
        let backends = weights["backends"].as_array().expect("backends").iter();
        backends.filter(|b| b["weight"].as_u64().is_some_and(|weight| weight > 0)).count()
    };
    until_within(Duration::from_secs(30), "the first to serve with all", || {
        held(&rig.haproxy).into_iter().filter(|weight| *weight > 0).count() == planned(&daemon)
    });
    second.start_again();
    until("it to be well", || daemon.trouble().is_empty());
    until_within(Duration::from_secs(30), "a subset for each again", || {
        are_subsets(&[&rig.haproxy, &second])
    });
    // A crash leaves the subsets, which the next daemon goes on with, and a clean exit all servers in both.
    daemon.kill();
    let both = [&rig.haproxy, &second];
    let before = both.map(held);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(both.map(held), before);
    assert!(are_subsets(&both), "{before:?}");
    let mut daemon = Daemon::spawn(&file, rig.api, &rig.path("log2"), &[]);
    daemon.wait_until_it_answers();
    std::thread::sleep(Duration::from_secs(3));
    assert!(!daemon.log().contains("not by Plimsoll"), "{}", daemon.log());
    until("a subset for each", || {
        let mut both = held(&rig.haproxy).into_iter().zip(held(&second));
        both.any(|(a, b)| (a > 0) != (b > 0))
    });
    daemon.signal("TERM");
    assert!(daemon.end().success());
    let both = [&rig.haproxy, &second].map(held);
    assert!(both[0] == both[1] && both[0].iter().all(|weight| *weight > 0), "{both:?}");
}

#[test]
fn clients_of_a_subset_lose_hardly_a_request_by_a_server_down_in_one_balancer_or_dead_after_a_crash()
 {
    let rig = Rig::new("leastconn", &[1.0; 4]);
    let (second, file) = pair_with_subsets(&rig);
    let both = [&rig.haproxy, &second];
    let clients = both.map(|haproxy| clients_of(haproxy, 200.0));
    let mut daemon = Daemon::spawn(&file, rig.api, &rig.path("log"), &[]);
    daemon.wait_until_it_answers();
    until_within(Duration::from_secs(60), "subsets", || are_subsets(&both));
    // A server to which only the first balancer sends requests.
    let of_first = || {
        let (first, second) = (held(&rig.haproxy), held(&second));
        let own = (0..4).find(|i| first[*i] > 0 && second[*i] == 0).expect("a server of its own");
        format!("s{}", own + 1)
    };
    let down = of_first();
    rig.haproxy.ask(&format!("set server shop/{down} state maint"));
    until("the first to have all", || held(&rig.haproxy).iter().all(|weight| *weight > 0));
    assert!(daemon.has_event("balancer", "no traffic there for"), "{}", daemon.log());
    rig.haproxy.ask(&format!("set server shop/{down} state ready"));
    until_within(Duration::from_secs(30), "subsets again", || are_subsets(&both));
    assert!(held(&rig.haproxy).iter().filter(|weight| **weight > 0).count() > 1);

    daemon.kill();
    rig.set_mode(&of_first(), plimsoll_testbed::Mode::Refuse);
    std::thread::sleep(Duration::from_secs(3));
    for load in clients {
        load.stop();
        let report = load.join().expect("clients");
        let (errors, requests) = (report.total.errors, report.total.requests);
        assert!(requests > 500 && errors * 50 < requests, "{errors} of {requests}");
    }
}

#[test]
fn a_server_in_maintenance_everywhere_leaves_the_others_divided() {
    let rig = Rig::new("leastconn", &[1.0; 5]);
    let (second, file) = pair_with_subsets(&rig);
    let both = [&rig.haproxy, &second];
    let _clients = both.map(|haproxy| clients_of(haproxy, 200.0));
    let mut daemon = Daemon::spawn(&file, rig.api, &rig.path("log"), &[]);
    daemon.wait_until_it_answers();
    until_within(Duration::from_secs(60), "subsets", || are_subsets(&both));
    for state in ["maint", "ready"] {
        for haproxy in both {
            haproxy.ask(&format!("set server shop/s5 state {state}"));
        }
        let kind = if state == "maint" { "left" } else { "given_back" };
        until("it to be seen", || daemon.has_event(kind, "by an administrator"));
        std::thread::sleep(Duration::from_secs(3));
        until("the others to be divided", || are_subsets(&both));
    }
    for word in ["not by Plimsoll", " there, and not "] {
        assert!(!daemon.log().contains(word), "{word}: {}", daemon.log());
    }
}
