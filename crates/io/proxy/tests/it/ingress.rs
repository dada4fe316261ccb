//! An ingress before an application.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::*;

fn ingress(more: &str, upstream: &Backend) -> Running {
    start(&format!(
        "  threads: 1
  ingress: [ {{ name: in, listen: \"127.0.0.1:1\", upstream: \"{}\"{more} }} ]
",
        upstream.address
    ))
}

#[test]
fn beyond_its_capacity_it_refuses_before_the_application_sees_anything() {
    let gate = Gate::default();
    let application = Backend::gated(&gate);
    let proxy = ingress(", capacity: { static: 1 }", &application);
    let mut first = proxy.client("in");
    first.send("GET / HTTP/1.1\r\nhost: shop\r\n\r\n");
    until("it is in flight", || application.count() == 1);
    let mut second = proxy.client("in");
    for _ in 0..3 {
        let refused = second.post("/", "some body");
        assert_eq!((refused.status, refused.header("plimsoll-rejected")), (429, Some("full")));
        assert_eq!(refused.header("plimsoll-chip"), None);
    }
    gate.open();
    let answer = first.answer();
    assert_eq!((answer.status, answer.body.as_str()), (200, "late"));
    assert_eq!(answer.header("plimsoll-chip"), Some("0"), "it was full: 1 of 1 is over 80 %");
    assert_eq!(application.count(), 1);
    until("it has room again", || proxy.in_flight() == 0);
    assert_eq!(second.get("/").status, 200);
    let status = proxy.proxy.status();
    assert_eq!((status.ingress[0].full, status.ingress[0].admitted), (3, 2));
}

#[test]
fn a_response_says_that_there_is_room() {
    let application = Backend::ok("hello");
    let proxy = ingress(", capacity: { static: 1000000 }", &application);
    let mut client = proxy.client("in");
    let chips = (0..20).filter(|_| client.get("/").header("plimsoll-chip") == Some("1"));
    assert_eq!(chips.count(), 20);
    // Nothing is known in the first 30 s of `average`: all is admitted, with a chip.
    let proxy = ingress(", capacity: average", &application);
    assert_eq!(proxy.client("in").get("/").header("plimsoll-chip"), Some("1"));
    let proxy = ingress("", &application);
    assert!(proxy.client("in").get("/").header("plimsoll-chip").is_some());
}

#[test]
fn the_application_sees_none_of_our_headers_and_its_own_are_not_believed() {
    let application = Backend::new(|_, stream| {
        let headers = "plimsoll-rejected: full\r\nplimsoll-chip: maybe\r\n";
        write(stream, &response("429 Too Many Requests", headers, "mine"));
        true
    });
    let proxy = ingress(", trust: [\"127.0.0.0/8\"]", &application);
    let request = "GET / HTTP/1.1\r\nhost: shop\r\nplimsoll-try: 2\r\nplimsoll-other: 1\r\n\r\n";
    let answer = proxy.client("in").send(request).answer();
    assert_eq!((answer.status, answer.body.as_str()), (429, "mine"));
    assert_eq!(answer.header("plimsoll-rejected"), None);
    assert!(matches!(answer.header("plimsoll-chip"), Some("0" | "1")));
    assert!(!application.last().head.contains("plimsoll"), "{}", application.last().head);
}

#[test]
fn a_deadline_is_believed_only_from_trusted_peers() {
    let application = Backend::new(|_, stream| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        write(stream, &response("200 OK", "", "slow"));
        true
    });
    let trusting = ingress(", trust: [\"127.0.0.0/8\"]", &application);
    let wary = ingress(", trust: [\"10.0.0.0/8\"]", &application);
    // Learned after some: what takes 20 ms is refused to those that have 1 ms, but for a trial now and then.
    let hurried = "GET / HTTP/1.1\r\nhost: shop\r\nplimsoll-deadline: 1\r\n\r\n";
    let asked = |proxy: &Running| {
        let mut client = proxy.client("in");
        (0..100).for_each(|_| drop(client.get("/")));
        let answers: Vec<Answer> = (0..10).map(|_| client.send(hurried).answer()).collect();
        let refused = |answer: &&Answer| answer.header("plimsoll-rejected") == Some("deadline");
        answers.iter().filter(refused).count()
    };
    assert!(asked(&trusting) > 0);
    assert_eq!(asked(&wary), 0);
}

#[test]
fn an_egress_sends_the_time_and_tries_left_to_an_ingress_only() {
    let foreign = Backend::ok("foreign");
    let of_ours = Backend::new(|_, stream| {
        write(stream, &response("200 OK", "plimsoll-chip: 1\r\n", "ours"));
        true
    });
    for (backend, is_told) in [(&foreign, false), (&of_ours, true)] {
        let proxy = start(&egress(1, "", "policy: bloc", &[backend.address]));
        let mut client = proxy.client("out");
        assert_eq!(client.get("/").status, 200);
        let first = backend.last();
        assert_eq!((first.header("plimsoll-try"), first.header("plimsoll-deadline")), (None, None));
        assert_eq!(client.get("/").status, 200);
        let second = backend.last();
        assert_eq!(second.header("plimsoll-try"), is_told.then_some("3"));
        let left = second.header("plimsoll-deadline").map(|ms| ms.parse::<u64>().expect("ms"));
        assert_eq!(left.is_some(), is_told);
        assert!(left.is_none_or(|ms| ms <= 30_000));
    }
}

#[test]
fn an_application_that_is_down_is_said() {
    let (_held, address) = dead();
    let proxy = start(&format!(
        "  threads: 1\n  ingress: [ {{ name: in, listen: \"127.0.0.1:1\", upstream: \"{address}\" }} ]\n"
    ));
    let mut client = proxy.client("in");
    for _ in 0..3 {
        assert_eq!(client.get("/").status, 502);
    }
    assert_eq!(proxy.in_flight(), 0);
}

/// An application that serves one request at a time, 30 ms each.
fn one_at_a_time() -> Backend {
    let core = Mutex::new(());
    Backend::new(move |_, stream| {
        let busy = core.lock().expect("no panic");
        std::thread::sleep(Duration::from_millis(30));
        drop(busy);
        write(stream, &response("200 OK", "", "served"));
        true
    })
}

#[test]
fn clients_that_come_again_at_once_wait_by_default() {
    let application = one_at_a_time();
    let proxy = ingress("", &application);
    let is_over = AtomicBool::new(false);
    let refused = || proxy.proxy.status().ingress[0].full;
    std::thread::scope(|scope| {
        for _ in 0..14 {
            scope.spawn(|| {
                let mut client = proxy.client("in");
                while !is_over.load(Ordering::Relaxed) {
                    assert!([200, 429].contains(&client.get("/").status));
                }
            });
        }
        let served = |more: usize| {
            let before = application.count();
            while application.count() < before + more {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        served(100);
        let (first, began) = (refused(), Instant::now());
        // It may take the machine's stalls for the application's: not in every round.
        let since = loop {
            let before = refused();
            served(60);
            let since = refused() - before;
            if since <= 3 || began.elapsed() > PATIENCE {
                break since;
            }
        };
        // First: a failure would else wait for the clients.
        is_over.store(true, Ordering::Relaxed);
        assert!(first > 100, "there was no room for all at first: {first}");
        assert!(since <= 3, "{since} of about 60 were refused");
    });
}

#[test]
fn clients_that_come_once_are_refused_at_once_by_default() {
    let gate = Gate::default();
    let application = Backend::gated(&gate);
    let proxy = ingress("", &application);
    let mut clients: Vec<Client> = (0..40).map(|_| proxy.client("in")).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: shop\r\n\r\n");
    }
    // What it begins with: four cores, and as many that wait.
    until("all others are refused", || proxy.proxy.status().ingress[0].full == 32);
    until("the application has the others", || application.count() == 8);
    gate.open();
    let answers = clients.iter_mut().map(|client| client.answer().status);
    assert_eq!(answers.filter(|&status| status == 200).count(), 8);
}
