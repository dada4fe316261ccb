//! Backends that come from a file or by DNS, and that are found down by checks.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_proxy::BackendState;

use crate::support::*;

fn section(backends: &str, more: &str) -> String {
    format!(
        "  threads: 2
  egress: [ {{ name: out, listen: \"127.0.0.1:1\" }} ]
  pools: [ {{ name: pool, policy: round_robin, backends: {backends}{more} }} ]
"
    )
}

fn trouble(proxy: &Running) -> String {
    proxy.proxy.status().egress[0].pools[0].trouble.clone().unwrap_or_default()
}

#[test]
fn a_file_of_backends_is_read_while_the_proxy_runs() {
    let (one, two) = (Backend::ok("one"), Backend::ok("two"));
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("backends.yaml");
    let write = |text: &str| {
        // As careful programs write: whole, or not at all.
        let new = directory.path().join("new");
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &file)).expect("written");
    };
    let entry = |name: &str, backend: &Backend| {
        format!("- {{ name: {name}, address: \"{}\" }}\n", backend.address)
    };
    write(&entry("one", &one));
    let path = file.display();
    let proxy = start(&section(&format!("{{ file: \"{path}\", interval: 10ms }}"), ""));
    let mut client = proxy.client("out");
    assert_eq!(client.get("/").body, "one");
    write(&(entry("one", &one) + &entry("two", &two)));
    until("the second serves", || client.get("/").body == "two");
    for (bad, said) in [
        ("- { name: one }\n", "missing address"),
        ("- { name: a, address: \"127.0.0.1:1\", wait: 3 }\n", "unknown key"),
        ("[]", "with at least one"),
        ("{", "found the end"),
    ] {
        write(bad);
        until(said, || !trouble(&proxy).is_empty());
        (0..20).for_each(|_| assert_eq!(client.get("/").status, 200));
        assert_eq!(proxy.backends().len(), 2, "the last good list stays");
        write(&(entry("two", &two) + &entry("one", &one)));
        until("it is good again", || trouble(&proxy).is_empty());
    }
    std::fs::remove_file(&file).expect("removed");
    until("it is missed", || trouble(&proxy).contains("backends.yaml"));
    assert_eq!(client.get("/").status, 200);
    write(&entry("two", &two));
    until("the first has left", || {
        let before = one.count();
        (0..20).for_each(|_| assert_eq!(client.get("/").status, 200));
        one.count() == before
    });
}

#[test]
fn a_name_stands_for_all_its_addresses() {
    let one = Backend::ok("one");
    let port = one.address.port();
    let proxy = start(&section(&format!("{{ dns: \"localhost:{port}\", interval: 20ms }}"), ""));
    // No backend is known before the first look-up.
    until("it is looked up", || proxy.client("out").get("/").status == 200);
    let mut client = proxy.client("out");
    (0..20).for_each(|_| assert_eq!(client.get("/").body, "one"));
    let status = proxy.proxy.status();
    let names: Vec<_> = status.egress[0].pools[0].backends.iter().map(|b| b.name.clone()).collect();
    assert!(names.contains(&format!("127.0.0.1:{port}")), "{names:?}");

    let lost = start(&section("{ dns: \"no-such-host.invalid:80\", interval: 20ms }", ""));
    until("it is said", || trouble(&lost).contains("no-such-host.invalid:80 cannot be looked up"));
    assert_eq!(lost.client("out").get("/").status, 503);
}

#[test]
fn a_backend_whose_check_fails_gets_nothing_until_it_succeeds_again() {
    let is_well = Arc::new(AtomicBool::new(true));
    let sick = {
        let is_well = is_well.clone();
        Backend::new(move |request, stream| {
            let status = match request.line().starts_with("GET /health ") {
                true if !is_well.load(Ordering::SeqCst) => "500 Internal Server Error",
                _ => "200 OK",
            };
            write(stream, &response(status, "", "sick"));
            true
        })
    };
    let well = Backend::ok("well");
    let list = format!(
        "[ {{ name: sick, address: \"{}\" }}, {{ name: well, address: \"{}\" }} ]",
        sick.address, well.address
    );
    let health = ", health: { path: /health, interval: 10ms, timeout: 10s, rise: 2, fall: 2 }";
    let proxy = start(&section(&list, health));
    let state = || proxy.proxy.status().egress[0].pools[0].backends[0].state;
    let mut client = proxy.client("out");
    until("both serve", || client.get("/").body == "sick");
    is_well.store(false, Ordering::SeqCst);
    until("it is down", || state() == BackendState::Down);
    until("all threads know", || (0..20).all(|_| proxy.client("out").get("/").body == "well"));
    let asked = sick.received.lock().expect("a list").last().cloned();
    let asked = asked.expect("a check");
    assert!(asked.head.contains("user-agent: plimsoll\r\n"), "{}", asked.head);
    is_well.store(true, Ordering::SeqCst);
    until("it is up", || state() == BackendState::Up);
    until("it serves again", || client.get("/").body == "sick");
}

#[test]
fn a_backend_that_fails_its_clients_is_ejected_without_any_check() {
    let sick = Backend::new(|_, stream| {
        write(stream, &response("503 Service Unavailable", "", "sick"));
        true
    });
    let well = Backend::ok("well");
    let pool = "policy: round_robin, ejection: { consecutive_failures: 3, base: 1h, max: 1h }";
    let proxy = start(&egress(1, "", pool, &[sick.address, well.address]));
    let mut client = proxy.client("out");
    (0..20).for_each(|_| drop(client.get("/")));
    let before = sick.count();
    assert!((3..10).contains(&before), "{before} requests came to it");
    (0..20).for_each(|_| assert_eq!(client.get("/").body, "well"));
    assert_eq!(sick.count(), before);
}

#[test]
fn a_backend_that_hangs_delays_no_check_of_another() {
    // The kernel accepts for it, and nobody answers.
    let hanging = TcpListener::bind("127.0.0.1:0").expect("a port");
    let is_well = Arc::new(AtomicBool::new(true));
    let sick = {
        let is_well = is_well.clone();
        Backend::new(move |_, stream| {
            let status = if is_well.load(Ordering::SeqCst) { "200 OK" } else { "503 No" };
            write(stream, &response(status, "", "sick"));
            true
        })
    };
    let list = format!(
        "[ {{ name: hanging, address: \"{}\" }}, {{ name: sick, address: \"{}\" }} ]",
        hanging.local_addr().expect("an address"),
        sick.address
    );
    let health = ", health: { path: /health, interval: 10ms, timeout: 1m, rise: 1, fall: 2 }";
    let proxy = start(&section(&list, health));
    let state = || proxy.proxy.status().egress[0].pools[0].backends[1].state;
    until("it was asked", || sick.count() > 3);
    is_well.store(false, Ordering::SeqCst);
    until("it is down", || state() == BackendState::Down);
    is_well.store(true, Ordering::SeqCst);
    until("it is up", || state() == BackendState::Up);
}

#[test]
fn where_every_check_fails_all_serve() {
    let backend = Backend::new(|request, stream| {
        let is_check = request.line().starts_with("GET /health ");
        write(stream, &response(if is_check { "503 No" } else { "200 OK" }, "", "served"));
        true
    });
    let list = format!("[ {{ name: b, address: \"{}\" }} ]", backend.address);
    let health = ", health: { path: /health, interval: 10ms, timeout: 10s, fall: 1 }";
    let proxy = start(&section(&list, health));
    let state = || proxy.proxy.status().egress[0].pools[0].backends[0].state;
    until("it is down", || state() == BackendState::Down);
    assert_eq!(proxy.client("out").get("/").body, "served");
}

#[test]
fn checks_announce_themselves_where_requests_announce_clients() {
    let backend = Backend::ok("ok");
    let entry = ", proxy_protocol: [\"127.0.0.0/8\"]";
    // It closes what begins without an announcement.
    let second = start(&egress(1, entry, "policy: random", &[backend.address]));
    let list = format!("[ {{ name: b, address: \"{}\" }} ]", second.address("out"));
    for version in ["v1", "v2"] {
        let health = format!(
            ", proxy_protocol: {version}, health: {{ path: /{version}, interval: 10ms, \
             timeout: 10s, fall: 1 }}"
        );
        let first = start(&section(&list, &health));
        let line = format!("GET /{version} HTTP/1.1");
        until("it was asked", || backend.count() > 0 && backend.last().line() == line);
        assert_eq!(first.client("out").get("/").status, 200);
        let status = first.proxy.status();
        assert_eq!(status.egress[0].pools[0].backends[0].state, BackendState::Up);
    }
}
