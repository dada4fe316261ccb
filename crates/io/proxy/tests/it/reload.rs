//! Another configuration while requests are under way: none is lost, and what stays goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use plimsoll_proxy::ProxyConfig;

use crate::support::*;

#[test]
fn backends_come_and_go_and_no_request_is_lost() {
    let backends: Vec<Backend> = (0..5).map(|_| Backend::ok("ok")).collect();
    let addresses: Vec<_> = backends.iter().map(|backend| backend.address).collect();
    let with = |which: &[usize]| {
        let list: Vec<String> = which
            .iter()
            .map(|i| format!("{{ name: b{i}, address: \"{}\" }}", addresses[*i]))
            .collect();
        format!(
            "  threads: 2
  egress: [ {{ name: out, listen: \"127.0.0.1:1\" }} ]
  pools: [ {{ name: pool, policy: least_connections, backends: [ {} ] }} ]
",
            list.join(", ")
        )
    };
    let proxy = start(&with(&[0, 1, 2]));
    let (over, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let address = proxy.address("out");
    let clients: Vec<_> = (0..6)
        .map(|i| {
            let (over, served) = (over.clone(), served.clone());
            thread::spawn(move || {
                let mut kept = Client::new(address);
                while !over.load(Ordering::SeqCst) {
                    // Half of them keep their connection all the time: no reload may close it.
                    if i % 2 == 0 {
                        kept = Client::new(address);
                    }
                    let answer = match i % 3 {
                        0 => kept.post("/", "a body"),
                        _ => kept.get("/"),
                    };
                    assert_eq!(answer.status, 200);
                    served.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for which in [&[0, 1, 2, 3][..], &[3, 4], &[0, 4], &[0, 1, 2, 3, 4], &[2], &[2, 3]] {
        let before = served.load(Ordering::SeqCst);
        reload(&proxy, &with(which)).expect("taken up");
        until("requests pass", || served.load(Ordering::SeqCst) > before + 50);
        until("only these serve", || {
            let counts = || backends.iter().map(Backend::count).collect::<Vec<_>>();
            let (before, some) = (counts(), served.load(Ordering::SeqCst));
            until("requests pass", || served.load(Ordering::SeqCst) > some + 30);
            let after = counts();
            (0..5).all(|i| which.contains(&i) == (after[i] > before[i]))
        });
    }
    over.store(true, Ordering::SeqCst);
    clients.into_iter().for_each(|client| client.join().expect("no request was lost"));
    until("all have ended", || proxy.in_flight() == 0);
    let status = proxy.proxy.status();
    let names: Vec<_> =
        status.egress[0].pools[0].backends.iter().map(|b| b.name.as_str()).collect();
    assert_eq!(names, ["b2", "b3"], "those that have left are not shown once they are empty");
}

#[test]
fn a_request_under_way_ends_as_it_began_and_the_next_goes_by_the_new_configuration() {
    let gate = Gate::default();
    let (old, new) = (Backend::gated(&gate), Backend::ok("new"));
    let section = |backend: &Backend, extra: &str| {
        format!(
            "  threads: 2
  egress: [ {{ name: out, listen: \"127.0.0.1:1\"{extra} }} ]
  pools: [ {{ name: pool, policy: random, backends: [ {{ name: b, address: \"{}\" }} ] }} ]
",
            backend.address
        )
    };
    let proxy = start(&section(&old, ""));
    let mut held = proxy.client("out");
    held.send("GET /old HTTP/1.1\r\nhost: a\r\n\r\n");
    until("it is in flight", || old.count() == 1);
    reload(&proxy, &section(&new, ", routes: [ { path: /new, pool: pool } ]")).expect("taken up");
    until("taken up by all", || {
        (0..20).all(|_| {
            let mut client = proxy.client("out");
            client.get("/old").status == 404 && client.get("/new").body == "new"
        })
    });
    gate.open();
    assert_eq!(held.answer().body, "late");
    assert_eq!(held.get("/new").body, "new", "on the same connection");
    assert_eq!(old.count(), 1);
    // A client may have read its answer before the proxy has counted it.
    until("all have ended", || proxy.in_flight() == 0);
}

#[test]
fn entries_come_and_go() {
    let gate = Gate::default();
    let (held_by, other) = (Backend::gated(&gate), Backend::ok("other"));
    let section = |entries: &str, pools: &str| {
        format!("  threads: 2\n  egress: [ {entries} ]\n  pools: [ {pools} ]\n")
    };
    let entry = |name: &str, port: u16, pool: &str| {
        format!("{{ name: {name}, listen: \"127.0.0.1:{port}\", routes: [ {{ pool: {pool} }} ] }}")
    };
    let pool = |name: &str, backend: &Backend| {
        format!(
            "{{ name: {name}, policy: random, backends: [ {{ name: b, address: \"{}\" }} ] }}",
            backend.address
        )
    };
    let proxy = start(&section(&entry("one", 1, "p"), &pool("p", &held_by)));
    let gone = proxy.address("one");
    let mut held = proxy.client("one");
    held.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    until("it is in flight", || held_by.count() == 1);
    let idle = Client::new(gone);
    let both = format!("{}, {}", entry("one", 1, "p"), entry("two", 2, "q"));
    let pools = format!("{}, {}", pool("p", &held_by), pool("q", &other));
    reload(&proxy, &section(&both, &pools)).expect("taken up");
    assert_eq!(proxy.address("one"), gone, "its listener is the same");
    until("it serves", || proxy.client("two").get("/").body == "other");
    reload(&proxy, &section(&entry("two", 2, "q"), &pool("q", &other))).expect("taken up");
    until("nobody listens", || std::net::TcpStream::connect(gone).is_err());
    let mut idle = idle;
    assert!(idle.is_closed(), "an idle connection of an entry that is gone");
    gate.open();
    assert_eq!(held.answer().body, "late", "its request is finished");
    assert!(held.is_closed());
    assert_eq!(proxy.client("two").get("/").body, "other");
}

#[test]
fn what_cannot_be_taken_up_changes_nothing() {
    let backend = Backend::ok("ok");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let proxy = start(&egress(2, "", "policy: random", &[backend.address]));
    let mut config = read(&egress(2, "", "policy: random", &[backend.address]));
    config.egress[0].listen.set_port(0);
    let mut more = config.clone();
    let second = plimsoll_proxy::config::Egress {
        name: "second".to_owned(),
        listen: taken.local_addr().expect("an address"),
        ..more.egress[0].clone()
    };
    more.egress.push(second);
    let handle = proxy.proxy.handle();
    let error = handle.reload(&more).expect_err("another listens there").to_string();
    assert!(error.contains("second: cannot listen on 127.0.0.1"), "{error}");
    let threads = ProxyConfig { threads: Some(3), ..config.clone() };
    let error = handle.reload(&threads).expect_err("fixed").to_string();
    assert!(error.contains("proxy.threads differs"), "{error}");
    assert_eq!(proxy.client("out").get("/").status, 200);
    assert_eq!(proxy.proxy.status().egress.len(), 1);
}

#[test]
fn what_was_learned_stays_where_the_policy_does() {
    // With chips, `bloc` sends to the one backend that has room, whatever is reloaded beside it.
    let full = Backend::new(|_, stream| {
        let headers = "plimsoll-rejected: full\r\nplimsoll-chip: 0\r\n";
        write(stream, &response("429 Too Many Requests", headers, ""));
        true
    });
    let room = Backend::new(|_, stream| {
        write(stream, &response("200 OK", "plimsoll-chip: 1\r\n", "room"));
        true
    });
    let third = Backend::ok("third");
    let section = |more: &str| {
        format!(
            "  threads: 2
  egress: [ {{ name: out, listen: \"127.0.0.1:1\"{more} }} ]
  pools: [ {{ name: pool, policy: bloc, bloc: {{ reset_interval: 1h }},
    backends: [ {{ name: full, address: \"{}\" }}, {{ name: room, address: \"{}\" }} ] }} ]
",
            full.address, room.address
        )
    };
    let proxy = start(&section(""));
    let mut client = proxy.client("out");
    until("it is known to be full", || {
        assert_eq!(client.get("/").body, "room");
        full.count() > 0
    });
    let (before, connections) = (full.count(), room.connections.load(Ordering::SeqCst));
    reload(&proxy, &section(", timeouts: { request: 29s }")).expect("taken up");
    for _ in 0..30 {
        assert_eq!(client.get("/").body, "room");
    }
    assert_eq!(full.count(), before, "it is known still");
    assert_eq!(room.connections.load(Ordering::SeqCst), connections, "its connection is kept");
    drop(third);
}

#[test]
fn a_connection_that_was_idle_goes_by_the_new_configuration_from_its_first_request() {
    let backend = Backend::ok("ok");
    let section = |entry: &str| egress(1, entry, "policy: random", &[backend.address]);
    let proxy = start(&section(""));
    let mut idle = proxy.client("out");
    assert_eq!(idle.get("/").status, 200);
    assert_eq!(backend.last().header("forwarded"), None);
    reload(&proxy, &section(", forwarded: append")).expect("taken up");
    until("taken up", || {
        assert_eq!(proxy.client("out").get("/").status, 200);
        backend.last().header("forwarded").is_some()
    });
    assert_eq!(idle.get("/idle").status, 200);
    let received = backend.last();
    assert_eq!(received.line(), "GET /idle HTTP/1.1");
    assert!(received.header("forwarded").is_some(), "{}", received.head);
}
