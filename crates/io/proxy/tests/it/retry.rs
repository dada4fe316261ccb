//! What is sent again, and what is not.

use crate::support::*;

#[test]
fn what_could_not_be_delivered_goes_elsewhere_whatever_its_method() {
    let (_held, dead) = dead();
    let backend = Backend::ok("alive");
    let proxy = start(&egress(1, "", "policy: round_robin", &[dead, backend.address]));
    for i in 0..10 {
        let answer = proxy.client("out").post("/", &format!("body {i}"));
        assert_eq!((answer.status, answer.body.as_str()), (200, "alive"));
        assert_eq!(backend.last().body, format!("body {i}").as_bytes());
    }
    until("counted", || proxy.in_flight() == 0);
    assert!(proxy.backends()[0].connections_failed >= 4, "{:?}", proxy.backends());
}

#[test]
fn no_backend_at_all_is_said() {
    let (_held, dead) = dead();
    let proxy = start(&egress(1, "", "policy: random", &[dead]));
    let answer = proxy.client("out").get("/");
    assert_eq!((answer.status, answer.body.as_str()), (502, "no backend could be reached\n"));
}

/// Answers the first request of each connection, and closes when the second has come.
fn forgetful() -> Backend {
    Backend::new(|request, stream| {
        if request.number == 0 {
            write(stream, &response("200 OK", "", "first"));
        }
        request.number == 0
    })
}

#[test]
fn a_reset_after_reuse_is_tried_again_where_twice_is_as_good_as_once() {
    let backend = forgetful();
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    let mut client = proxy.client("out");
    for _ in 0..4 {
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(backend.count(), 7, "each but the first came twice");
    until("counted", || proxy.backends()[0].succeeded == 4);
}

#[test]
fn every_method_that_may_be_repeated_is_tried_again_after_a_reset() {
    // RFC 9110, section 9.2.2.
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        let backend = forgetful();
        let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
        let mut client = proxy.client("out");
        let request = format!("{method} / HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\n\r\n");
        for _ in 0..2 {
            assert_eq!(client.send(&request).answer().status, 200, "{method}");
        }
        assert_eq!(backend.count(), 3, "{method}");
    }
}

#[test]
fn a_second_reset_is_a_failure() {
    // The second request resets its connection, and so does its second try.
    let backend = Backend::new(|request, stream| {
        let is_first = request.connection == 0 && request.number == 0;
        if is_first {
            write(stream, &response("200 OK", "", "first"));
        }
        is_first
    });
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    let mut client = proxy.client("out");
    assert_eq!(client.get("/").status, 200);
    assert_eq!(client.get("/").status, 502);
    assert_eq!(backend.count(), 3);
}

#[test]
fn a_reset_after_reuse_is_not_tried_again_for_other_methods() {
    let backend = forgetful();
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    let mut client = proxy.client("out");
    assert_eq!(client.get("/").status, 200);
    let answer = client.post("/", "once");
    assert_eq!((answer.status, answer.body.as_str()), (502, "the backend sent no response\n"));
    assert_eq!(backend.count(), 2);
    until("counted", || proxy.backends()[0].failed == 1);
}

#[test]
fn a_new_connection_that_is_reset_is_a_failure() {
    let backend = Backend::new(|_, _| false);
    let proxy = start(&egress(1, "", "policy: random", &[backend.address]));
    assert_eq!(proxy.client("out").get("/").status, 502);
    assert_eq!(backend.count(), 1);
}

#[test]
fn an_applications_own_429_passes_untouched_and_is_not_tried_again() {
    let backend = Backend::new(|_, stream| {
        write(stream, &response("429 Too Many Requests", "retry-after: 7\r\n", "slow down"));
        true
    });
    let other = Backend::ok("other");
    let proxy = start(&egress(1, "", "policy: first", &[backend.address, other.address]));
    let answer = proxy.client("out").get("/");
    assert_eq!((answer.status, answer.body.as_str()), (429, "slow down"));
    assert_eq!((answer.header("retry-after"), other.count()), (Some("7"), 0));
}

/// An ingress of capacity 1 whose one place is taken, another that is free, and an egress before both.
struct Full {
    proxy: Running,
    gate: Gate,
    taken: Backend,
    free: Backend,
    holder: Client,
    /// Where the two ingresses listen: they have a proxy of their own.
    _behind: Running,
}

fn full(entry: &str, pool: &str) -> Full {
    let gate = Gate::default();
    let (taken, free) = (Backend::gated(&gate), Backend::ok("free"));
    let behind = start(&format!(
        "  threads: 1
  ingress:
    - {{ name: full, listen: \"127.0.0.1:1\", upstream: \"{}\", capacity: {{ static: 1 }} }}
    - {{ name: free, listen: \"127.0.0.1:2\", upstream: \"{}\", capacity: {{ static: 1000 }} }}
",
        taken.address, free.address
    ));
    let mut holder = behind.client("full");
    holder.send("GET / HTTP/1.1\r\nhost: shop\r\n\r\n");
    until("the place is taken", || taken.count() == 1);
    let backends = [behind.address("full"), behind.address("free")];
    let proxy = start(&egress(1, entry, pool, &backends));
    Full { proxy, gate, taken, free, holder, _behind: behind }
}

#[test]
fn a_refused_request_goes_elsewhere_with_its_body_and_the_connection_is_used_again() {
    let mut full = full("", "policy: round_robin");
    let mut client = full.proxy.client("out");
    for i in 0..10 {
        let answer = client.post("/", &format!("body {i}"));
        assert_eq!((answer.status, answer.body.as_str()), (200, "free"));
        assert_eq!(full.free.last().body, format!("body {i}").as_bytes());
    }
    assert_eq!(full.taken.count(), 1, "no refused request came to the application");
    until("counted", || full.proxy.in_flight() == 0);
    let backends = full.proxy.backends();
    assert!(backends[0].rejected >= 4 && backends[1].succeeded == 10, "{backends:?}");
    let status = full._behind.proxy.status();
    assert_eq!(status.ingress[0].clients.connections, 2, "the holder's, and one of the egress");
    assert_eq!(status.ingress[0].full, backends[0].rejected);
    full.gate.open();
    assert_eq!(full.holder.answer().status, 200);
}

#[test]
fn bloc_leaves_alone_what_refused() {
    let mut full = full("", "policy: bloc, bloc: { reset_interval: 1h }");
    let mut client = full.proxy.client("out");
    for _ in 0..30 {
        assert_eq!(client.get("/").status, 200);
    }
    until("counted", || full.proxy.in_flight() == 0);
    let backends = full.proxy.backends();
    assert!(backends[0].rejected <= 1, "{backends:?}");
    assert!(backends[1].chips > 0, "{backends:?}");
    full.gate.open();
    assert_eq!(full.holder.answer().status, 200);
}

#[test]
fn where_all_refuse_the_client_gets_the_refusal_without_our_headers() {
    let full = full("", "policy: random");
    // Only the full one.
    let backends = [full._behind.address("full")];
    let proxy = start(&egress(1, "", "policy: random", &backends));
    let answer = proxy.client("out").get("/");
    assert_eq!((answer.status, answer.body.as_str()), (429, "refused: full\n"));
    assert!(!answer.head.to_lowercase().contains("plimsoll-"), "{}", answer.head);
    full.gate.open();
}

#[test]
fn a_body_that_was_not_kept_is_not_sent_again() {
    let full = full(", limits: { body_kept_for_retries: 1KiB }", "policy: round_robin");
    let body = "x".repeat(200_000);
    let mut statuses: Vec<u16> =
        (0..2).map(|_| full.proxy.client("out").post("/", &body).status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 429]);
    full.gate.open();
}

#[test]
fn no_more_tries_than_configured() {
    let refusing = || {
        Backend::new(|_, stream| {
            let headers = "plimsoll-rejected: full\r\n";
            write(stream, &response("429 Too Many Requests", headers, "no"));
            true
        })
    };
    let backends: Vec<Backend> = (0..8).map(|_| refusing()).collect();
    let addresses: Vec<_> = backends.iter().map(|b| b.address).collect();
    let pool = "policy: random, refusals: { most: 3 }";
    let proxy = start(&egress(1, "", pool, &addresses));
    assert_eq!(proxy.client("out").get("/").status, 429);
    let counts: Vec<usize> = backends.iter().map(Backend::count).collect();
    assert_eq!(counts.iter().sum::<usize>(), 4, "one try, and three more");
    assert!(counts.iter().all(|count| *count <= 1), "each elsewhere: {counts:?}");
}
